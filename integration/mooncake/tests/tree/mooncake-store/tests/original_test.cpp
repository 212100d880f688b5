// Mooncake's own class is still in the archive and works beside the library's.
#include "@HEADER@"

#include <cstdio>
#include <memory>

namespace mooncake {
std::shared_ptr<StorageBackendInterface> CreateStorageBackend(const FileStorageConfig& config);
}

int main() {
    const mooncake::FileStorageConfig config;
    const auto made = mooncake::CreateStorageBackend(config);
    mooncake::NvmeKvStorageBackend original(config);
    const auto result = original.Init();
    const bool passed = !result && result.error() == mooncake::NvmeKvStorageBackend::kOriginal &&
                        dynamic_cast<mooncake::NvmeKvStorageBackend*>(made.get()) == nullptr &&
                        made->Init().has_value();
    std::printf("test the_original_class_lives_beside_ours ... %s\n", passed ? "ok" : "FAILED");
    return passed ? 0 : 1;
}
