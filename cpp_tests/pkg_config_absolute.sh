#!/bin/sh
# usage: pkg_config_absolute.sh CMAKE SOURCE WORK
# Absolute install directories reach the pkg-config file as they are.
set -eu
"$1" -S "$2" -B "$3" -DCMAKE_INSTALL_LIBDIR=/opt/there/lib -DCMAKE_INSTALL_INCLUDEDIR=/opt/there/include
PKG_CONFIG_PATH=$3
export PKG_CONFIG_PATH
test "$(pkg-config --variable=libdir mooncake_nvme_kv)" = /opt/there/lib
test "$(pkg-config --variable=includedir mooncake_nvme_kv)" = /opt/there/include
