# shellcheck shell=bash
# What the suites mooncake_*.sh of kernel_tests share. `run` sets MNKV_PYTHON, MNKV_MOONCAKE_PACKAGE,
# MNKV_MOONCAKE_CLIENT and MNKV_TRANSPORTS.

build_library() {
  cargo build --locked --lib --message-format=json-render-diagnostics |
    sed -n 's/.*"\([^"]*libmooncake_nvme_kv\.so\)".*/\1/p' >"$SUITE_LOG/library"
}

# Runs a test of this folder once for each transport, on a new device.
# Usage: run_on_every_transport TEST
run_on_every_transport() {
  export MNKV_LIBRARY MOONCAKE_NVME_KV_TRANSPORT MOONCAKE_NVME_KV_DEVICE_PATH
  export PYTHONPATH=$MNKV_MOONCAKE_PACKAGE MOONCAKE_CLIENT=$MNKV_MOONCAKE_CLIENT
  export LD_LIBRARY_PATH=$MNKV_MOONCAKE_PACKAGE/mooncake
  MNKV_LIBRARY=$(<"$SUITE_LOG/library")
  local test=$1 transports
  read -ra transports <<<"$MNKV_TRANSPORTS"
  for MOONCAKE_NVME_KV_TRANSPORT in "${transports[@]}"; do
    local device=/tmp/$MOONCAKE_NVME_KV_TRANSPORT
    mkdir "$device"
    start_target "$device" && attach || return 1
    MOONCAKE_NVME_KV_DEVICE_PATH=$MNKV_KERNEL_NODE
    echo "transport $MOONCAKE_NVME_KV_TRANSPORT"
    check "${test}_through_$MOONCAKE_NVME_KV_TRANSPORT" "$MNKV_PYTHON" -B \
      "integration/mooncake/e2e/$test.py" "$SUITE_LOG/$MOONCAKE_NVME_KV_TRANSPORT"
    if ! { detach && stop_target; }; then return 1; fi
  done
  report_checks
}
