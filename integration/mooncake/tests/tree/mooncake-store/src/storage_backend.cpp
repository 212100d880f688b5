// Stands for the file of this name in Mooncake, which creates storage backends.
#include "storage_backend.h"

#include <memory>

#include "@HEADER@"

namespace mooncake {

std::shared_ptr<StorageBackendInterface> CreateStorageBackend(const FileStorageConfig& config) {
    return std::make_shared<NvmeKvStorageBackend>(config);
}

}  // namespace mooncake
