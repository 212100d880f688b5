// Stands for Mooncake's own NVMe KV backend: another class of the same name, and of another size.
#pragma once

#include <array>

#include "storage_backend.h"

namespace mooncake {

class NvmeKvStorageBackend : public StorageBackendInterface {
   public:
    /// How one knows that it is this class.
    static constexpr ErrorCode kOriginal = ErrorCode::BUFFER_OVERFLOW;

    using StorageBackendInterface::StorageBackendInterface;

    tl::expected<void, ErrorCode> Init() override;
    tl::expected<int64_t, ErrorCode> BatchOffload(
        const std::unordered_map<std::string, std::vector<Slice>>&,
        std::function<ErrorCode(const std::vector<std::string>&,
                                std::vector<StorageObjectMetadata>&)>,
        EvictionHandler) override {
        return tl::unexpected(kOriginal);
    }
    tl::expected<void, ErrorCode> BatchLoad(std::unordered_map<std::string, Slice>&) override {
        return tl::unexpected(kOriginal);
    }
    tl::expected<bool, ErrorCode> IsExist(const std::string&) override {
        return tl::unexpected(kOriginal);
    }
    tl::expected<bool, ErrorCode> IsEnableOffloading() override {
        return tl::unexpected(kOriginal);
    }
    tl::expected<void, ErrorCode> ScanMeta(
        const std::function<ErrorCode(const std::vector<std::string>&,
                                      std::vector<StorageObjectMetadata>&)>&) override {
        return tl::unexpected(kOriginal);
    }

   private:
    std::array<char, 65536> members_;
};

}  // namespace mooncake
