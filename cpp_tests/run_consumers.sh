#!/bin/sh
# usage: run_consumers.sh BUILD LIBDIR
set -eu
"$1/c_program"
"$1/static_c_program"
"$1/adapter_program"
"$1/loading_program" "$2/libmooncake_nvme_kv.so.0"
