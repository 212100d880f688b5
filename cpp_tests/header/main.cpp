// Two translation units with the C header and two with the C++ ones in a single program.
#include "mooncake_nvme_kv.h"
#include "mooncake_nvme_kv.h"
#include "mooncake_nvme_kv/storage_backend.hpp"
#include "mooncake_nvme_kv/storage_backend.hpp"

extern "C" uint32_t abi_version_seen_by_c();
uint32_t abi_version_seen_by_cxx();
bool adapter_seen_by_another_unit();

int main() {
    const mooncake::RustNvmeKvStorageBackend backend{mooncake::FileStorageConfig{}};
    return abi_version_seen_by_c() == MNKV_ABI_VERSION &&
                   abi_version_seen_by_cxx() == MNKV_ABI_VERSION && adapter_seen_by_another_unit()
               ? 0
               : 1;
}
