#!/bin/sh
# usage: pkg_config_consumer.sh SOURCE LIBDIR WORK VERSION
# A C program that knows only what pkg-config says, linked with the shared and the static library.
set -eu
source=$1 libdir=$2 work=$3 version=$4
PKG_CONFIG_PATH=$libdir/pkgconfig
export PKG_CONFIG_PATH
mkdir -p "$work"
test "$(pkg-config --modversion mooncake_nvme_kv)" = "$version"
# Words of pkg-config are separate arguments.
# shellcheck disable=SC2046
${CC:-cc} -std=c11 -Wall -Wextra -Werror $(pkg-config --cflags mooncake_nvme_kv) "$source" \
  -o "$work/shared" $(pkg-config --libs mooncake_nvme_kv)
LD_LIBRARY_PATH=$libdir "$work/shared"
# shellcheck disable=SC2046
${CC:-cc} -std=c11 -nodefaultlibs $(pkg-config --cflags mooncake_nvme_kv) "$source" \
  -o "$work/static" "$libdir/libmooncake_nvme_kv.a" \
  $(pkg-config --static --libs-only-l mooncake_nvme_kv | sed 's/-lmooncake_nvme_kv//') -lgcc
"$work/static"
