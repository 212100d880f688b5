/* A library with another ABI version. */
#include "mooncake_nvme_kv.h"

static uint32_t abi_version(void) { return FAKE_ABI_VERSION; }

const mnkv_functions *mnkv_functions_get(void) {
    static const mnkv_functions functions = {
        .struct_size = sizeof functions,
        .abi_version = abi_version,
    };
    return &functions;
}
