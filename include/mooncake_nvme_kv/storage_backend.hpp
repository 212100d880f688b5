/// Mooncake Store's storage interface on the NVMe Key-Value backend.
///
/// Header-only C++20. It is compiled against the storage_backend.h of the including build, so the
/// library itself contains no C++ and depends on no version of Mooncake.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <system_error>
#include <unordered_map>
#include <utility>
#include <vector>

#include "mooncake_nvme_kv.h"
#include "mooncake_nvme_kv/device_memory.hpp"
#include "mooncake_nvme_kv/library.hpp"
#include "storage_backend.h"
// Behind the header that brings glog.
#include "mooncake_nvme_kv/glog.hpp"

namespace mooncake {

// Codes cross the boundary as numbers.
static_assert(static_cast<int32_t>(ErrorCode::OK) == MNKV_OK);
static_assert(static_cast<int32_t>(ErrorCode::INTERNAL_ERROR) == MNKV_INTERNAL_ERROR);
static_assert(static_cast<int32_t>(ErrorCode::INVALID_KEY) == MNKV_INVALID_KEY);
static_assert(static_cast<int32_t>(ErrorCode::INVALID_READ) == MNKV_INVALID_READ);
static_assert(static_cast<int32_t>(ErrorCode::OBJECT_NOT_FOUND) == MNKV_OBJECT_NOT_FOUND);
static_assert(static_cast<int32_t>(ErrorCode::KEYS_ULTRA_LIMIT) == MNKV_KEYS_ULTRA_LIMIT);

/// What neither Mooncake's configuration nor the environment says.
struct RustNvmeKvOptions {
    /// Bytes behind every destination of BatchLoad, beyond its size, that may be written: a device
    /// may leave padding there, which saves a copy. Mooncake's FileStorage provides 4096.
    size_t destination_slack = 0;
};

/// A storage backend over one NVMe Key-Value namespace, configured by the MOONCAKE_NVME_KV_*
/// environment variables when Init is called. MOONCAKE_NVME_KV_DRIVER=stub, Mooncake's test driver,
/// selects an emulated namespace in the folder nvme_kv_blobs of the configured storage_filepath.
///
/// Thread-safe after Init. Until Init has succeeded, and for an Init after that, every method
/// answers INTERNAL_ERROR. The reason of an error is logged (glog where storage_backend.h brings
/// it, which then also gets the library's own lines; standard error elsewhere). Destroy it when no
/// call is running, and not from a handler.
///
/// Slices are memory of the host. Memory of a CUDA device is refused with INVALID_PARAMS; that of
/// other makers' devices must not be passed.
class RustNvmeKvStorageBackend : public StorageBackendInterface {
   public:
    using CompleteHandler = std::function<ErrorCode(const std::vector<std::string>& keys,
                                                    std::vector<StorageObjectMetadata>& metadatas)>;

    /// On the library that the program is linked with.
    explicit RustNvmeKvStorageBackend(const FileStorageConfig& config,
                                      RustNvmeKvOptions options = {})
        : StorageBackendInterface(config),
          options_(options),
          functions_(*mnkv_functions_get()),
          log_to_glog_(functions_) {}

    /// On a library that was loaded from a path; the program need not be linked with it.
    RustNvmeKvStorageBackend(const FileStorageConfig& config,
                             std::shared_ptr<const mooncake_nvme_kv::Library> library,
                             RustNvmeKvOptions options = {})
        : StorageBackendInterface(config),
          options_(options),
          library_(std::move(library)),
          functions_(library_->functions()),
          log_to_glog_(functions_) {}

    RustNvmeKvStorageBackend(const RustNvmeKvStorageBackend&) = delete;
    RustNvmeKvStorageBackend& operator=(const RustNvmeKvStorageBackend&) = delete;

    ~RustNvmeKvStorageBackend() override {
        mnkv_backend* const backend = backend_.load(std::memory_order_acquire);
        const mnkv_status_t status = functions_.backend_close(backend);
        if (status != MNKV_OK) Log("close", status, LastError());
    }

    /// Opens the namespace. After a failure it may be called again.
    tl::expected<void, ErrorCode> Init() override {
        const std::lock_guard lock(init_);
        if (backend_.load(std::memory_order_relaxed) != nullptr)
            return Fail("Init", MNKV_INTERNAL_ERROR, "already initialised");
        mnkv_backend* backend = nullptr;
        const mnkv_status_t status = Open(&backend);
        if (status != MNKV_OK)
            return Fail("Init", status, LastError());
        backend_.store(backend, std::memory_order_release);
        return {};
    }

    /// Stores a batch and returns how many keys are stored.
    ///
    /// `complete_handler` may be empty. It gets keys that are readable from now on, several times in
    /// a large batch, on the calling thread, and may call this backend. Its error, or
    /// INTERNAL_ERROR when it throws, ends the batch and is returned. When some keys failed it has
    /// got the others, and the result is INVALID_READ; when all failed it is the first hard error,
    /// but INVALID_READ for a full device when Mooncake's configuration turns eviction on.
    /// A key without slices is an empty object. INVALID_KEY: the batch is empty.
    ///
    /// `eviction_handler` may be empty. It gets keys that leave to make room, before they are deleted;
    /// its error keeps them, and is returned unless `complete_handler` failed too.
    tl::expected<int64_t, ErrorCode> BatchOffload(
        const std::unordered_map<std::string, std::vector<Slice>>& batch_object,
        CompleteHandler complete_handler,
        EvictionHandler eviction_handler = nullptr) override {
        mnkv_backend* const backend = backend_.load(std::memory_order_acquire);
        if (backend == nullptr) return Uninitialised("BatchOffload");
        if (batch_object.empty())
            return Fail("BatchOffload", MNKV_INVALID_KEY, "the batch holds no object");

        Offload offload{std::move(complete_handler), {}, {std::move(eviction_handler), {}}};
        offload.objects.reserve(batch_object.size());
        size_t slice_count = 0;
        const mooncake_nvme_kv::DeviceMemory device_memory;
        for (const auto& [key, slices] : batch_object) {
            slice_count += slices.size();
            for (const Slice& slice : slices)
                if (slice.size > 0 && device_memory.Holds(slice.ptr))
                    return Fail("BatchOffload", MNKV_INVALID_PARAMS, kDeviceMemory);
        }
        std::vector<mnkv_slice> sources;
        sources.reserve(slice_count);  // so that pointers into it stay valid
        std::vector<mnkv_object> objects;
        objects.reserve(batch_object.size());
        const std::function<bool(const std::string&)> fails = TestFailurePredicate();
        for (const auto& [key, slices] : batch_object) {
            if (fails && fails(key)) continue;
            const mnkv_slice* const first = sources.data() + sources.size();
            int64_t size = 0;
            for (const Slice& slice : slices) {
                sources.push_back({slice.ptr, slice.size});
                size += static_cast<int64_t>(slice.size);
            }
            objects.push_back({sizeof(mnkv_object), key.data(), key.size(), first, slices.size()});
            offload.objects.push_back({&key, size});
        }

        if (objects.empty()) return Fail("BatchOffload", MNKV_FILE_WRITE_FAIL, kTestFailure);
        const mnkv_status_t status = functions_.backend_offload(
            backend, objects.data(), objects.size(),
            offload.complete_handler ? &RustNvmeKvStorageBackend::OnStored : nullptr,
            offload.eviction.handler ? &RustNvmeKvStorageBackend::OnEvictedInOffload : nullptr,
            &offload, nullptr);
        if (status == MNKV_OK) {
            if (objects.size() < batch_object.size())
                return Fail("BatchOffload", MNKV_INVALID_READ, kTestFailure);
            return static_cast<int64_t>(objects.size());
        }
        // Mooncake gives up offloading for good at KEYS_ULTRA_LIMIT.
        return Fail("BatchOffload",
                    status == MNKV_KEYS_ULTRA_LIMIT && Evicts() ? MNKV_INVALID_READ : status,
                    LastError());
    }

    /// Loads a batch; a slice's size must be the object's. OK only when every object was loaded,
    /// also for an empty batch. No byte of a slice is written after the return.
    tl::expected<void, ErrorCode> BatchLoad(
        std::unordered_map<std::string, Slice>& batched_slices) override {
        mnkv_backend* const backend = backend_.load(std::memory_order_acquire);
        if (backend == nullptr) return Uninitialised("BatchLoad");
        std::vector<mnkv_mut_slice> targets;
        targets.reserve(batched_slices.size());  // so that pointers into it stay valid
        std::vector<mnkv_destination> destinations;
        destinations.reserve(batched_slices.size());
        const mooncake_nvme_kv::DeviceMemory device_memory;
        for (const auto& [key, slice] : batched_slices) {
            if (slice.size > 0 && device_memory.Holds(slice.ptr))
                return Fail("BatchLoad", MNKV_INVALID_PARAMS, kDeviceMemory);
            targets.push_back({slice.ptr, slice.size});
            destinations.push_back(
                {sizeof(mnkv_destination), key.data(), key.size(), &targets.back(), 1});
        }
        const mnkv_status_t status = functions_.backend_load(backend, destinations.data(),
                                                                  destinations.size(), nullptr);
        if (status != MNKV_OK) return Fail("BatchLoad", status, LastError());
        return {};
    }

    /// False only when the absence is proven; a device that cannot be asked is an error.
    tl::expected<bool, ErrorCode> IsExist(const std::string& key) override {
        mnkv_backend* const backend = backend_.load(std::memory_order_acquire);
        if (backend == nullptr) return Uninitialised("IsExist");
        bool exists = false;
        const mnkv_status_t status =
            functions_.backend_exists(backend, key.data(), key.size(), &exists);
        if (status != MNKV_OK) return Fail("IsExist", status, LastError());
        return exists;
    }

    /// False only when a limit is reached and eviction is configured off: Mooncake takes a false for
    /// ever.
    tl::expected<bool, ErrorCode> IsEnableOffloading() override {
        mnkv_backend* const backend = backend_.load(std::memory_order_acquire);
        if (backend == nullptr) return Uninitialised("IsEnableOffloading");
        bool enabled = false;
        const mnkv_status_t status = functions_.backend_is_enabled(backend, &enabled);
        if (status != MNKV_OK) return Fail("IsEnableOffloading", status, LastError());
        return enabled || Evicts();
    }

    /// Reports every object of the device in pages, once; then again only after ResetScanIterator.
    /// `handler` is called on the calling thread and may call this backend. Its error, or
    /// INTERNAL_ERROR when it throws, ends the scan and is returned; the scan can be repeated.
    tl::expected<void, ErrorCode> ScanMeta(const CompleteHandler& handler) override {
        mnkv_backend* const backend = backend_.load(std::memory_order_acquire);
        if (backend == nullptr) return Uninitialised("ScanMeta");
        const mnkv_status_t status = functions_.backend_scan(
            backend, handler ? &RustNvmeKvStorageBackend::OnPage : nullptr,
            const_cast<CompleteHandler*>(&handler), nullptr);
        if (status != MNKV_OK) return Fail("ScanMeta", status, LastError());
        return {};
    }

    void ResetScanIterator() override {
        mnkv_backend* const backend = backend_.load(std::memory_order_acquire);
        if (backend == nullptr) return;
        const mnkv_status_t status = functions_.backend_reset_scan(backend);
        if (status != MNKV_OK) Log("ResetScanIterator", status, LastError());
    }

    /// Removes every object, those of earlier runs included. A failure is logged.
    void RemoveAll() override {
        mnkv_backend* const backend = backend_.load(std::memory_order_acquire);
        if (backend == nullptr) return;
        const mnkv_status_t status = functions_.backend_remove_all(backend, nullptr);
        if (status != MNKV_OK) Log("RemoveAll", status, LastError());
    }

    /// When more than `high` times the size limit is stored, evicts objects down to `low` times it
    /// and returns their keys. `eviction_handler` as in BatchOffload.
    tl::expected<std::vector<std::string>, ErrorCode> EvictAboveDiskWatermark(
        double high, double low, EvictionHandler eviction_handler = nullptr) override {
        mnkv_backend* const backend = backend_.load(std::memory_order_acquire);
        if (backend == nullptr) return Uninitialised("EvictAboveDiskWatermark");
        Eviction eviction{std::move(eviction_handler), {}};
        const mnkv_status_t status = functions_.backend_evict_above_watermark(
            backend, high, low, &RustNvmeKvStorageBackend::OnEvicted, &eviction);
        if (status != MNKV_OK) return Fail("EvictAboveDiskWatermark", status, LastError());
        return std::move(eviction.keys);
    }

    /// For tests: from now on the offload of a key for which `predicate` is true fails with
    /// FILE_WRITE_FAIL, before anything of it is written. An empty one ends that.
    void SetTestFailurePredicate(std::function<bool(const std::string& key)> predicate) override {
        const std::lock_guard lock(test_failure_);
        test_failure_predicate_ = std::move(predicate);
    }

    /// Offers an arena that slices come from, so that transfers need not pin its pages each time. It
    /// stays mapped until UnregisterMemory or the destruction. INVALID_PARAMS: it is empty or
    /// overlaps one that is registered.
    tl::expected<void, ErrorCode> RegisterMemory(void* start, size_t size) {
        mnkv_backend* const backend = backend_.load(std::memory_order_acquire);
        if (backend == nullptr) return Uninitialised("RegisterMemory");
        const mnkv_status_t status = functions_.backend_register_memory(backend, start, size);
        if (status != MNKV_OK) return Fail("RegisterMemory", status, LastError());
        return {};
    }

    /// Takes the offer back. No call that uses the arena may be running.
    tl::expected<void, ErrorCode> UnregisterMemory(void* start) {
        mnkv_backend* const backend = backend_.load(std::memory_order_acquire);
        if (backend == nullptr) return Uninitialised("UnregisterMemory");
        const mnkv_status_t status = functions_.backend_unregister_memory(backend, start);
        if (status != MNKV_OK) return Fail("UnregisterMemory", status, LastError());
        return {};
    }

   private:
    static constexpr const char* kDeviceMemory =
        "a slice is memory of a GPU; copy it to the host first";
    static constexpr const char* kTestFailure =
        "the predicate of SetTestFailurePredicate makes keys fail";

    std::function<bool(const std::string&)> TestFailurePredicate() {
        const std::lock_guard lock(test_failure_);
        return test_failure_predicate_;
    }

    mnkv_status_t Open(mnkv_backend** backend) const {
        mnkv_config settings{};
        settings.struct_size = sizeof(settings);
        settings.destination_slack = options_.destination_slack;
        settings.total_keys_limit = Limit(file_storage_config_.total_keys_limit);
        settings.total_size_limit = Limit(file_storage_config_.total_size_limit);
        settings.scan_page_size = static_cast<uint32_t>(std::min<uint64_t>(
            Limit(file_storage_config_.scanmeta_iterator_keys_limit), UINT32_MAX));
        if (!IsSet("MOONCAKE_NVME_KV_DRIVER", "stub"))
            return functions_.backend_open_from_environment_and_config(&settings, backend);
        // As Mooncake's test driver has them.
        const std::filesystem::path folder =
            std::filesystem::path(file_storage_config_.storage_filepath) / "nvme_kv_blobs";
        std::error_code ignored;  // what cannot be created cannot be opened either
        std::filesystem::create_directories(folder, ignored);
        const std::string path = folder.string();
        settings.device_path = path.c_str();
        settings.transport = MNKV_TRANSPORT_EMULATED;
        if (!IsSet("MOONCAKE_NVME_KV_QUEUE_DEPTH")) settings.queue_depth = 1;
        if (!IsSet("MOONCAKE_NVME_KV_RUNTIME_TRANSFER_LIMIT"))
            settings.runtime_transfer_limit = 128 * 1024;
        return functions_.backend_open_from_environment_and_config(&settings, backend);
    }

    /// A limit of Mooncake's; 0, which is the default, for what is none.
    static uint64_t Limit(int64_t configured) {
        return configured > 0 ? static_cast<uint64_t>(configured) : 0;
    }

    /// Whether an environment variable has a value; with `wanted`, whether it has that one.
    static bool IsSet(const char* name, const std::string& wanted = {}) {
        const char* const value = std::getenv(name);
        return value != nullptr && *value != '\0' && (wanted.empty() || wanted == value);
    }

    /// Whether Mooncake is configured to evict; its older configurations have no such field.
    bool Evicts() const {
        return [](const auto& config) {
            if constexpr (requires { config.enable_disk_watermark_eviction; })
                return static_cast<bool>(config.enable_disk_watermark_eviction);
            else
                return false;
        }(file_storage_config_);
    }

    struct OffloadedObject {
        const std::string* key;
        int64_t size;
    };
    struct Eviction {
        EvictionHandler handler;
        std::vector<std::string> keys;
    };
    struct Offload {
        CompleteHandler complete_handler;
        std::vector<OffloadedObject> objects;
        Eviction eviction;
    };

    // Called by the library, which no exception may enter.

    static mnkv_status_t OnStored(void* user, const size_t* indexes, size_t count) noexcept {
        return Guarded("complete_handler", [=] {
            const Offload& offload = *static_cast<const Offload*>(user);
            std::vector<std::string> keys;
            std::vector<StorageObjectMetadata> metadatas;
            keys.reserve(count);
            metadatas.reserve(count);
            for (size_t i = 0; i < count; ++i) {
                const auto& [key, size] = offload.objects[indexes[i]];
                keys.push_back(*key);
                metadatas.push_back(Metadata(key->size(), size));
            }
            return static_cast<mnkv_status_t>(offload.complete_handler(keys, metadatas));
        });
    }

    static mnkv_status_t OnPage(void* user, const mnkv_slice* keys, const uint64_t* sizes,
                                size_t count) noexcept {
        return Guarded("scan handler", [=] {
            std::vector<std::string> texts = Texts(keys, count);
            std::vector<StorageObjectMetadata> metadatas;
            metadatas.reserve(count);
            for (size_t i = 0; i < count; ++i)
                metadatas.push_back(Metadata(keys[i].size, static_cast<int64_t>(sizes[i])));
            const CompleteHandler& handler = *static_cast<const CompleteHandler*>(user);
            return static_cast<mnkv_status_t>(handler(texts, metadatas));
        });
    }

    static mnkv_status_t OnEvictedInOffload(void* user, const mnkv_slice* keys,
                                            size_t count) noexcept {
        return OnEvicted(&static_cast<Offload*>(user)->eviction, keys, count);
    }

    static mnkv_status_t OnEvicted(void* user, const mnkv_slice* keys, size_t count) noexcept {
        return Guarded("eviction_handler", [=] {
            Eviction& eviction = *static_cast<Eviction*>(user);
            std::vector<std::string> texts = Texts(keys, count);
            if (eviction.handler) {
                const auto told = eviction.handler(texts);
                if (!told) return static_cast<mnkv_status_t>(told.error());
            }
            for (std::string& text : texts) eviction.keys.push_back(std::move(text));
            return mnkv_status_t{MNKV_OK};
        });
    }

    template <typename Body>
    static mnkv_status_t Guarded(const char* handler, Body body) noexcept {
        try {
            return body();
        } catch (const std::exception& error) {
            Log(handler, MNKV_INTERNAL_ERROR, error.what());
        } catch (...) {
            Log(handler, MNKV_INTERNAL_ERROR, "threw something");
        }
        return MNKV_INTERNAL_ERROR;
    }

    static std::vector<std::string> Texts(const mnkv_slice* keys, size_t count) {
        std::vector<std::string> texts;
        texts.reserve(count);
        for (size_t i = 0; i < count; ++i)
            texts.emplace_back(static_cast<const char*>(keys[i].data), keys[i].size);
        return texts;
    }

    static StorageObjectMetadata Metadata(size_t key_size, int64_t data_size) {
        StorageObjectMetadata metadata{};
        metadata.key_size = static_cast<int64_t>(key_size);
        metadata.data_size = data_size;
        return metadata;
    }

    /// Why the latest call of this thread failed.
    std::string LastError() const {
        std::string text(functions_.last_open_error(nullptr, 0), '\0');
        functions_.last_open_error(text.data(), text.size() + 1);
        return text;
    }

    static tl::unexpected<ErrorCode> Uninitialised(const char* method) {
        return Fail(method, MNKV_INTERNAL_ERROR, "not initialised, call Init first");
    }

    static tl::unexpected<ErrorCode> Fail(const char* method, mnkv_status_t status,
                                          const std::string& reason) {
        Log(method, status, reason);
        return tl::unexpected<ErrorCode>(static_cast<ErrorCode>(status));
    }

    static void Log(const char* method, mnkv_status_t status, const std::string& reason) {
#if defined(COMPACT_GOOGLE_LOG_ERROR)  // glog, included by Mooncake's storage_backend.h
        LOG(ERROR) << "NVMe KV backend: " << method << ": " << reason << " (" << status << ")";
#else
        std::fprintf(stderr, "NVMe KV backend: %s: %s (%d)\n", method, reason.c_str(),
                     static_cast<int>(status));
#endif
    }

    const RustNvmeKvOptions options_;
    const std::shared_ptr<const mooncake_nvme_kv::Library> library_;
    const mnkv_functions& functions_;
    const mooncake_nvme_kv::LogToGlog log_to_glog_;
    std::mutex init_, test_failure_;
    std::function<bool(const std::string&)> test_failure_predicate_;
    std::atomic<mnkv_backend*> backend_{nullptr};
};

}  // namespace mooncake
