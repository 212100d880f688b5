// The header on its own, as C++20.
#include "mooncake_nvme_kv.h"

uint32_t abi_version_seen_by_cxx();

uint32_t abi_version_seen_by_cxx() { return mnkv_abi_version(); }
