/* The header on its own, as C11. */
#include "mooncake_nvme_kv.h"

uint32_t abi_version_seen_by_c(void);

uint32_t abi_version_seen_by_c(void) { return mnkv_functions_get()->abi_version(); }
