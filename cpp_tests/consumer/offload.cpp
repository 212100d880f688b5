// Stores an object through Mooncake's storage interface; the environment names the device.
#include <cstdlib>
#include <memory>
#include <string>

#include "mooncake_nvme_kv/storage_backend.hpp"

int main() {
    setenv("MOONCAKE_NVME_KV_TRANSPORT", "emulated", 1);
    setenv("MOONCAKE_NVME_KV_DEVICE_PATH", "mem:consumer", 1);
    const std::unique_ptr<mooncake::StorageBackendInterface> backend =
        std::make_unique<mooncake::RustNvmeKvStorageBackend>(mooncake::FileStorageConfig{});
    if (!backend->Init()) return 1;
    std::string payload = "payload";
    if (!backend->BatchOffload({{"key", {{payload.data(), payload.size()}}}}, nullptr)) return 1;
    return backend->IsExist("key") == true ? 0 : 1;
}
