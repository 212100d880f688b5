// The part of Mooncake Store's storage_backend.h that the adapter uses, for builds without Mooncake.
// Names, types and numbers are Mooncake's (mooncake-store/include/storage_backend.h and types.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <tl/expected.hpp>
#include <unordered_map>
#include <vector>

namespace mooncake {

enum class ErrorCode : int32_t {
    OK = 0,
    INTERNAL_ERROR = -1,
    BUFFER_OVERFLOW = -10,
    INVALID_KEY = -400,
    INVALID_PARAMS = -600,
    INVALID_READ = -701,
    OBJECT_NOT_FOUND = -704,
    OBJECT_ALREADY_EXISTS = -705,
    CHECKSUM_MISMATCH = -801,
    NOT_SUPPORTED = -1012,
    FILE_OPEN_FAIL = -1101,
    FILE_READ_FAIL = -1102,
    FILE_WRITE_FAIL = -1103,
    FILE_LOCK_FAIL = -1105,
    KEYS_ULTRA_LIMIT = -1203,
};

struct Slice {
    void* ptr;
    size_t size;
};

struct StorageObjectMetadata {
    int64_t bucket_id;
    int64_t offset;
    int64_t key_size;
    int64_t data_size;
    std::string transport_endpoint;
};

struct FileStorageConfig {
    std::string storage_filepath;
    int64_t scanmeta_iterator_keys_limit = 20'000;
    int64_t total_keys_limit = 10'000'000;
    int64_t total_size_limit = int64_t{2} << 40;
    bool enable_disk_watermark_eviction = true;
    double disk_eviction_high_watermark_ratio = 0.90;
    double disk_eviction_low_watermark_ratio = 0.80;
};

class StorageBackendInterface {
   public:
    using EvictionHandler =
        std::function<tl::expected<void, ErrorCode>(const std::vector<std::string>& evicted_keys)>;

    explicit StorageBackendInterface(const FileStorageConfig& config)
        : file_storage_config_(config) {}
    virtual ~StorageBackendInterface() = default;

    virtual tl::expected<void, ErrorCode> Init() = 0;
    virtual tl::expected<int64_t, ErrorCode> BatchOffload(
        const std::unordered_map<std::string, std::vector<Slice>>& batch_object,
        std::function<ErrorCode(const std::vector<std::string>& keys,
                                std::vector<StorageObjectMetadata>& metadatas)>
            complete_handler,
        EvictionHandler eviction_handler = nullptr) = 0;
    virtual tl::expected<void, ErrorCode> BatchLoad(
        std::unordered_map<std::string, Slice>& batched_slices) = 0;
    virtual tl::expected<bool, ErrorCode> IsExist(const std::string& key) = 0;
    virtual tl::expected<bool, ErrorCode> IsEnableOffloading() = 0;
    virtual tl::expected<void, ErrorCode> ScanMeta(
        const std::function<ErrorCode(const std::vector<std::string>& keys,
                                      std::vector<StorageObjectMetadata>& metadatas)>& handler) = 0;
    virtual void ResetScanIterator() {}
    virtual void SetTestFailurePredicate(std::function<bool(const std::string& key)>) {}
    virtual void RemoveAll() {}
    virtual tl::expected<std::vector<std::string>, ErrorCode> EvictAboveDiskWatermark(
        double, double, EvictionHandler = nullptr) {
        return std::vector<std::string>{};
    }

    FileStorageConfig file_storage_config_;
};

}  // namespace mooncake
