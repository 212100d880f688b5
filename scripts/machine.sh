# shellcheck shell=bash
# Sourced by run and test: installs what this Debian machine lacks. Packages are installed as root or
# with sudo; Rust goes into the user's home with rustup.

missing_packages=()

# need THING PACKAGE: THING is a command, or a file when it has a slash.
need() {
  case $1 in
    */*) [[ -e $1 ]] ;;
    *) command -v "$1" >/dev/null ;;
  esac || missing_packages+=("$2")
}

install_missing_packages() {
  if ((${#missing_packages[@]} == 0)); then return; fi
  if ! command -v apt-get >/dev/null; then
    echo "$0: please install what these Debian packages provide: ${missing_packages[*]}" >&2
    return 1
  fi
  local as_root=()
  if ((EUID != 0)); then
    if ! command -v sudo >/dev/null; then
      echo "$0: please install, as root: apt-get install ${missing_packages[*]}" >&2
      return 1
    fi
    as_root=(sudo)
  fi
  echo "$0: installing ${missing_packages[*]}"
  "${as_root[@]}" apt-get -qq update
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
    apt-get -qq install --yes --no-install-recommends "${missing_packages[@]}" >/dev/null
}

# need_rust [COMPONENT...]
need_rust() {
  # Before the distribution's directories, whose cargo may be too old. A fresh rustup is not yet on
  # the PATH of a shell that was started before it.
  PATH="${CARGO_HOME:-$HOME/.cargo}/bin:$PATH"
  local version
  version=$(cargo --version 2>/dev/null | cut -d ' ' -f 2) || true
  if [[ $(printf '%s\n' 1.90 "${version:-0}" | sort --version-sort | head --lines 1) != 1.90 ]]; then
    echo "$0: installing Rust with rustup, because cargo is ${version:-missing} and 1.90 is needed"
    curl --proto '=https' --tlsv1.2 --fail --silent --show-error https://sh.rustup.rs |
      sh -s -- -y --quiet --no-modify-path --profile minimal
  fi
  local component
  for component in "$@"; do
    cargo "$component" --version >/dev/null 2>&1 || rustup component add "${component/#fmt/rustfmt}"
  done
}
