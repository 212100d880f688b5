// The adapter's header on its own, in a second translation unit of the program.
#include "mooncake_nvme_kv/storage_backend.hpp"

bool adapter_seen_by_another_unit();

bool adapter_seen_by_another_unit() {
    mooncake::RustNvmeKvStorageBackend backend{mooncake::FileStorageConfig{}};
    return !backend.IsExist("key");
}
