# shellcheck shell=bash
# The library's own tests on a device node: tests/kernel_*.rs.
# shellcheck disable=SC2034
limit=1200

prepare() { build_rust_tests --package mooncake-nvme-kv --test 'kernel_*'; }

suite() { run_rust_tests; }
