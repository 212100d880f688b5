# shellcheck shell=bash
# The C++ adapter on a device node, through either transport: programs of cpp_tests, and a short
# request trace by examples/trace_replay.
# shellcheck disable=SC2034
limit=600
build=target/cmake/test

prepare() {
  # shellcheck source=scripts/machine.sh
  source scripts/machine.sh
  need cmake cmake
  need make make
  need c++ g++
  need /usr/include/tl/expected.hpp libexpected-dev
  need /usr/include/gtest/gtest.h libgtest-dev
  install_missing_packages
  cmake_build test adapter_linked adapter_loaded library_test trace_replay
}

replays_without_a_mismatch() {
  local transport=$1 log=$SUITE_LOG/trace_replay.$1.log status
  MOONCAKE_NVME_KV_TRANSPORT=$transport "$build/trace_replay" --requests 20 \
    --block-bytes 65536 --device "$MNKV_KERNEL_NODE" >"$log" 2>&1
  status=$?
  cat "$log"
  sed -n "s/^verification .*: \([0-9]*\) loads compared.*/data checks: $transport \1/p" "$log"
  ((status == 0)) && [[ $(tail -n 1 "$log") == "0 mismatches" ]]
}

# Usage: on_new_device DEVICE COMMAND [ARGUMENT...]
on_new_device() {
  local device=$1 status=0
  shift
  start_target "$device" && attach || return 1
  "$@" || status=1
  detach && stop_target || status=1
  return "$status"
}

# Either group finds a device that holds none of its keys; InADirectory brings its own device.
objects='Sizes/*:Objects.*:Protocol.ExistsSaysWhatIsStored:-*InADirectory*'
protocol='Callbacks.*:Protocol.*:-Protocol.ExistsSaysWhatIsStored'

run_adapter() {
  local transport=$1 form=$2 tests=$3
  MNKV_TEST_DEVICE=$MNKV_KERNEL_NODE MOONCAKE_NVME_KV_TRANSPORT=$transport \
    run_gtest "$transport::$form" "$build/cpp_tests/adapter_$form" "--gtest_filter=$tests"
}

suite() {
  local transport status=0
  run_gtest library_test "$build/cpp_tests/library_test" || status=1
  for transport in io_uring ioctl; do
    # One group through either form of the library: what they differ in is not the device.
    on_new_device mem:objects run_adapter "$transport" linked "$objects" || status=1
    on_new_device mem:protocol run_adapter "$transport" loaded "$protocol" || status=1
    mkdir "/tmp/$transport"
    check "20 requests are replayed on $transport without a mismatch" \
      on_new_device "/tmp/$transport" replays_without_a_mismatch "$transport"
  done
  report_checks || status=1
  return "$status"
}
