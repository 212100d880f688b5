# shellcheck shell=bash
# Speed of offloads and loads on a device node, through both transports, and without any driver: what
# the guest allows at most. Runs only when it is named.
# shellcheck disable=SC2034
limit=600

prepare() {
  cargo_executables build --release --package mooncake-nvme-kv --example object_bench \
    >"$SUITE_LOG/bench"
  cargo_executables build --release --package nvme-kv-tools --bin nvme-kv >"$SUITE_LOG/nvme-kv"
}

measures() {
  MOONCAKE_NVME_KV_DEVICE_PATH=mem:bench "$(<"$SUITE_LOG/bench")" emulated &&
    MOONCAKE_NVME_KV_DEVICE_PATH=$MNKV_KERNEL_NODE "$(<"$SUITE_LOG/bench")" io_uring ioctl
}

suite() {
  # An optimised target, so that its time is not what is measured.
  NVME_KV=$(<"$SUITE_LOG/nvme-kv")
  start_target mem:bench && attach || return 1
  check "every object of io_uring and ioctl came back" measures
  check "driver detaches" detach
  check "target ends when asked to" stop_target
  report_checks
}
