#!/bin/sh
# usage: exported_symbols.sh LIBRARY HEADER
# The shared library exports exactly the functions that the header declares.
set -eu
declared=$(sed -n 's/^[a-z].*[ *]\(mnkv_[a-z_]*\)(.*/\1/p' "$2" | grep -v '_fn$' | sort -u)
exported=$(nm --dynamic --defined-only "$1" | awk '{ print $3 }' | sort -u)
if [ "$declared" != "$exported" ]; then
  printf 'declared:\n%s\n\nexported:\n%s\n' "$declared" "$exported"
  exit 1
fi
printf '%s\n' "$exported" | wc -l
