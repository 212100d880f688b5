// The library at the path MNKV_TEST_LIBRARY; this program is not linked with any.
#include "mooncake_nvme_kv/storage_backend.hpp"
#include "support.hpp"

namespace test {
namespace {

std::shared_ptr<const mooncake_nvme_kv::Library> TheLibrary() {
    static const auto library = [] {
        std::string why;
        auto loaded = mooncake_nvme_kv::Library::Load(MNKV_TEST_LIBRARY, why);
        if (loaded == nullptr) throw std::runtime_error(why);
        return loaded;
    }();
    return library;
}

}  // namespace

std::unique_ptr<StorageBackendInterface> NewBackend(const FileStorageConfig& config) {
    return std::make_unique<mooncake::RustNvmeKvStorageBackend>(config, TheLibrary());
}

const mnkv_functions& Functions() { return TheLibrary()->functions(); }

}  // namespace test
