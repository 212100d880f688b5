#!/bin/sh
# usage: native_libraries.sh PRINTED DOCUMENT EXPECTED...
# What rustc says a program needs beside the static library is what the build passes on and what the
# documentation tells its readers.
set -eu
printed=$(cat "$1")
document=$2
shift 2
if [ "$printed" != "$*" ]; then
  echo "rustc prints '$printed', cmake/cargo.cmake has '$*'"
  exit 1
fi
if ! grep -q -F -- "$*" "$document"; then
  echo "$document does not name '$*'"
  exit 1
fi
