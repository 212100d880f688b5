// What a Mooncake build gets of the adapter and no other program: glog lines, the test driver, the
// memory of GPUs. usage: mooncake_test FOLDER; the folder is Mooncake's storage_filepath.
#include <dlfcn.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>

#include "nvme_kv_backend.h"

namespace {

using namespace mooncake;
using Backend = NvmeKvStorageBackend;

int failures = 0;

void Check(const char* what, bool passed) {
    std::printf("test %s ... %s\n", what, passed ? "ok" : "FAILED");
    if (!passed) ++failures;
}

bool Logged(const std::string& text) { return glog_stand_in::All().find(text) != std::string::npos; }

template <typename T>
ErrorCode ErrorOf(const tl::expected<T, ErrorCode>& result) {
    return result ? ErrorCode::OK : result.error();
}

const auto kAccept = [](const std::vector<std::string>&, std::vector<StorageObjectMetadata>&) {
    return ErrorCode::OK;
};

std::unordered_map<std::string, std::vector<Slice>> Batch(std::string& payload) {
    return {{"key", {Slice{payload.data(), payload.size()}}}};
}

bool Loads(Backend& backend, const std::string& payload) {
    std::string loaded(payload.size(), '\0');
    std::unordered_map<std::string, Slice> batch{{"key", Slice{loaded.data(), loaded.size()}}};
    return backend.BatchLoad(batch).has_value() && loaded == payload;
}

void TestDriver(const FileStorageConfig& config) {
    setenv("MOONCAKE_NVME_KV_DRIVER", "stub", 1);
    std::string payload(500000, 'x');
    {
        Backend backend(config);
        Check("the_test_driver_opens", backend.Init().has_value());
        Check("the_test_driver_has_a_queue_depth_of_1",
              Logged("INFO NVMe KV backend I/O concurrency: 1 (max 256), batch submit concurrency: 1, "
                     "root submit concurrency: 1, prepare concurrency: 1"));
        Check("the_test_driver_keeps_its_values_below_the_storage_path",
              std::filesystem::is_directory(config.storage_filepath + "/nvme_kv_blobs"));
        Check("the_test_driver_stores",
              backend.BatchOffload(Batch(payload), kAccept).value_or(0) == 1);
        Check("a_second_init_is_refused",
              ErrorOf(backend.Init()) == ErrorCode::INTERNAL_ERROR);
        Check("errors_are_logged", Logged("ERROR NVMe KV backend: Init: already initialised"));
    }
    setenv("MOONCAKE_NVME_KV_QUEUE_DEPTH", "8", 1);
    setenv("MOONCAKE_NVME_KV_IO_CONCURRENCY", "8", 1);
    setenv("MOONCAKE_NVME_KV_BATCH_SUBMIT_CONCURRENCY", "7", 1);
    setenv("MOONCAKE_NVME_KV_ROOT_SUBMIT_CONCURRENCY", "7", 1);
    setenv("MOONCAKE_NVME_KV_MAX_IO_CONCURRENCY", "8", 1);
    Backend backend(config);
    Check("the_test_driver_opens_again", backend.Init().has_value());
    Check("variables_apply_to_the_test_driver",
          Logged("NVMe KV backend I/O concurrency: 8 (max 8), batch submit concurrency: 7, "
                 "root submit concurrency: 7, prepare concurrency: 1"));
    Check("the_test_driver_finds_what_it_stored", Loads(backend, payload));
    unsetenv("MOONCAKE_NVME_KV_DRIVER");
    Backend elsewhere(config);
    Check("without_a_device_path_nothing_opens",
          ErrorOf(elsewhere.Init()) == ErrorCode::INVALID_PARAMS &&
              Logged("MOONCAKE_NVME_KV_DEVICE_PATH is not set"));
}

void Options(const FileStorageConfig& config) {
    setenv("MOONCAKE_NVME_KV_TRANSPORT", "emulated", 1);
    setenv("MOONCAKE_NVME_KV_DEVICE_PATH", "mem:options", 1);
    RustNvmeKvStorageBackend backend(config, RustNvmeKvOptions{.destination_slack = 4096});
    std::string payload(100001, 'y');
    Check("a_backend_with_slack_opens", backend.Init().has_value());
    Check("a_backend_with_slack_stores",
          backend.BatchOffload(Batch(payload), kAccept).has_value());
    alignas(4096) static std::array<char, 100001 + 4096 + 1> memory;
    memory.back() = 'e';
    std::unordered_map<std::string, Slice> batch{{"key", Slice{memory.data(), payload.size()}}};
    Check("a_backend_with_slack_loads",
          backend.BatchLoad(batch).has_value() &&
              std::string(memory.data(), payload.size()) == payload && memory.back() == 'e');
    Check("memory_is_registered_once",
          backend.RegisterMemory(memory.data(), memory.size()).has_value() &&
              backend.BatchLoad(batch).has_value() &&
              backend.UnregisterMemory(memory.data()).has_value());
    Check("no_memory_is_refused",
          ErrorOf(backend.RegisterMemory(nullptr, 0)) == ErrorCode::INVALID_PARAMS);
    RustNvmeKvStorageBackend closed(config);
    Check("memory_is_registered_after_init",
          ErrorOf(closed.RegisterMemory(memory.data(), 1)) ==
                  ErrorCode::INTERNAL_ERROR &&
              ErrorOf(closed.UnregisterMemory(memory.data())) ==
                  ErrorCode::INTERNAL_ERROR);
}

void DeviceMemory(const FileStorageConfig& config) {
    setenv("MOONCAKE_NVME_KV_DEVICE_PATH", "mem:device_memory", 1);
    Backend backend(config);
    Check("a_backend_opens_beside_a_gpu", backend.Init().has_value());
    alignas(4) static std::array<char, 64> memory{};
    const auto offload = [&](size_t at, size_t size) {
        const auto result = backend.BatchOffload({{"key", {Slice{&memory[at], size}}}}, kAccept);
        return ErrorOf(result);
    };
    const auto load = [&](size_t at) {
        std::unordered_map<std::string, Slice> batch{{"key", Slice{&memory[at], 8}}};
        return ErrorOf(backend.BatchLoad(batch));
    };
    Check("without_a_driver_memory_is_taken_as_it_is", offload(1, 8) == ErrorCode::OK);
    void* const driver = dlopen(FAKE_CUDA, RTLD_NOW | RTLD_LOCAL);
    Check("the_driver_is_loaded", driver != nullptr);
    Check("memory_of_a_gpu_is_refused", offload(1, 8) == ErrorCode::INVALID_PARAMS &&
                                            load(1) == ErrorCode::INVALID_PARAMS &&
                                            Logged("a slice is memory of a GPU"));
    Check("an_empty_slice_is_nobodys_memory", offload(1, 0) == ErrorCode::OK);
    Check("memory_of_the_host_is_taken", offload(4, 8) == ErrorCode::OK && load(4) == ErrorCode::OK);
    Check("managed_memory_is_taken", offload(3, 8) == ErrorCode::OK && load(3) == ErrorCode::OK);
    dlclose(driver);
}

}  // namespace

int main(int argc, char** argv) {
    if (argc != 2) return 2;
    FileStorageConfig config;
    config.storage_filepath = argv[1];
    TestDriver(config);
    Options(config);
    DeviceMemory(config);
    return failures == 0 ? 0 : 1;
}
