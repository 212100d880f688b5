# shellcheck shell=bash
# What a suite() may use. It runs in the guest, in the repository's root folder, which is
# read-only; /tmp and $SUITE_LOG are writable, and $SUITE_LOG is the host's folder.

# Where start_target listens and what attach connects to.
export MNKV_KERNEL_ADDRESS=127.0.0.1:4420
export MNKV_KERNEL_NQN=nqn.2014-08.org.nvmexpress:uuid:6d6e6b76-0000-4000-8000-6b65726e656c
export MNKV_KERNEL_TOOL=$NVME_KV

target=

# Starts the NVMe/TCP target and waits until it listens.
# Usage: start_target DEVICE [PERSONALITY]
start_target() {
  local device=$1 options=()
  if (($# > 1)); then options=(--personality "$2"); fi
  "$NVME_KV" serve --listen "$MNKV_KERNEL_ADDRESS" --nqn "$MNKV_KERNEL_NQN" \
    --device "$device" "${options[@]}" >>"$SUITE_LOG/target.log" 2>&1 &
  target=$!
  local host=${MNKV_KERNEL_ADDRESS%:*} port=${MNKV_KERNEL_ADDRESS##*:}
  until (exec 3<>"/dev/tcp/$host/$port") 2>/dev/null; do
    kill -0 "$target" 2>/dev/null || {
      echo "the target ended before it listened:"
      cat "$SUITE_LOG/target.log"
      return 1
    }
    sleep 0.01
  done
}

# Ends the target as an operator does and waits for it.
stop_target() {
  kill -TERM "$target" && wait "$target"
}

# Attaches the target's namespace; MNKV_KERNEL_NODE becomes its generic character device. A lost
# connection is tried again every second, not every ten.
# Usage: attach [NVME-KV-ATTACH-ARGUMENT...]
attach() {
  MNKV_KERNEL_NODE=$("$NVME_KV" attach --listen "$MNKV_KERNEL_ADDRESS" \
    --nqn "$MNKV_KERNEL_NQN" --option reconnect_delay=1 "$@") || return 1
  export MNKV_KERNEL_NODE
}

detach() {
  "$NVME_KV" detach "$MNKV_KERNEL_NODE"
  unset MNKV_KERNEL_NODE
}

# Runs each program that build_rust_tests built with a new device of its own, attached as
# $MNKV_KERNEL_NODE; its directory, $MNKV_KERNEL_DIR, may be opened once the target is stopped.
# Usage: run_rust_tests [NVME-KV-ATTACH-ARGUMENT...]
run_rust_tests() {
  local program name status=0
  while read -r program; do
    name=$(basename "$program")
    echo "running $name"
    export MNKV_KERNEL_DIR=/tmp/$name.device
    mkdir "$MNKV_KERNEL_DIR"
    start_target "$MNKV_KERNEL_DIR" && attach "$@" || return 1
    "$program" --test-threads=1 --show-output || status=1
    detach && stop_target || status=1
    rm -rf "$MNKV_KERNEL_DIR"
  done <"$SUITE_LOG/rust_tests"
  return "$status"
}

# Runs a GoogleTest program and reports its tests as libtest does, named PREFIX::TEST.
# Usage: run_gtest PREFIX PROGRAM [ARGUMENT...]
run_gtest() {
  local prefix=$1 status
  shift
  echo "running $(basename "$1") as $prefix"
  "$@" 2>&1 | awk -v prefix="$prefix" '
    /^\[ RUN      \] / { next }
    /^\[       OK \] / { passed++; print "test " prefix "::" $4 " ... ok"; next }
    /^\[  SKIPPED \] .*\([0-9]+ ms\)$/ { ignored++; print "test " prefix "::" $4 " ... ignored"; next }
    /^\[  FAILED  \] .*\([0-9]+ ms\)$/ { failed++; print "test " prefix "::" $4 " ... FAILED"; next }
    { print }
    END {
      printf "test result: %s. %d passed; %d failed; %d ignored\n", failed ? "FAILED" : "ok",
        passed, failed, ignored
    }'
  status=${PIPESTATUS[0]}
  if ((status)); then echo "$(basename "$1") ended with exit status $status"; fi
  return "$status"
}

# Checks of a suite that is written in shell: report them with report_checks at its end.
checks_passed=0 checks_failed=0

# Usage: check SENTENCE COMMAND [ARGUMENT...]
check() {
  local sentence=$1
  shift
  if "$@"; then
    checks_passed=$((checks_passed + 1))
    echo "test $sentence ... ok"
  else
    checks_failed=$((checks_failed + 1))
    echo "test $sentence ... FAILED"
  fi
}

report_checks() {
  local verdict=ok
  if ((checks_failed)); then verdict=FAILED; fi
  echo "test result: $verdict. $checks_passed passed; $checks_failed failed; 0 ignored"
  ((checks_failed == 0))
}
