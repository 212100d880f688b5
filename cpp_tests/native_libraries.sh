#!/bin/sh
# usage: native_libraries.sh PRINTED README EXPECTED...
# What rustc says a program needs beside the static library is what the build passes on and what the
# README tells its readers.
set -eu
printed=$(cat "$1")
readme=$2
shift 2
if [ "$printed" != "$*" ]; then
  echo "rustc prints '$printed', cmake/cargo.cmake has '$*'"
  exit 1
fi
if ! grep -q -F -- "$*" "$readme"; then
  echo "$readme does not name '$*'"
  exit 1
fi
