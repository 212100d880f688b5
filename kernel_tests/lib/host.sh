# shellcheck shell=bash
# What a suite's prepare() may use. It runs on the host, in the repository's root folder, before
# the guest boots. What it writes to $SUITE_LOG is there for the suite, under the same name.

# Builds with cargo and prints the paths of the executables, one a line.
# Usage: cargo_executables build|test CARGO-ARGUMENT...
cargo_executables() {
  local command=$1
  shift
  if [[ $command == test ]]; then set -- --no-run "$@"; fi
  cargo "$command" --locked --message-format=json-render-diagnostics "$@" |
    sed -n '/"reason":"compiler-artifact"/s/.*"executable":"\([^"]*\)".*/\1/p'
}

# Builds Rust test programs for run_rust_tests of the guest.
# Usage: build_rust_tests CARGO-ARGUMENT...
build_rust_tests() {
  cargo_executables test "$@" >"$SUITE_LOG/rust_tests"
}

# Builds programs of a CMake preset; says how only when that fails.
# Usage: cmake_build PRESET CMAKE-TARGET...
cmake_build() {
  local preset=$1 log=$SUITE_LOG/build.log
  shift
  # Its own cargo target directory is below the preset's.
  if ! { cmake --preset "$preset" -Wno-dev && cmake --build --preset "$preset" --parallel 2 --target "$@"; } \
    >"$log" 2>&1; then
    cat "$log"
    return 1
  fi
}
