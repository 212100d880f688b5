// The library that this program is linked with.
#include "mooncake_nvme_kv/storage_backend.hpp"
#include "support.hpp"

namespace test {

std::unique_ptr<StorageBackendInterface> NewBackend(const FileStorageConfig& config) {
    return std::make_unique<mooncake::RustNvmeKvStorageBackend>(config);
}

const mnkv_functions& Functions() { return *mnkv_functions_get(); }

}  // namespace test
