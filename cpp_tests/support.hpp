// What the adapter's tests share.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <unordered_map>
#include <vector>

#include "mooncake_nvme_kv.h"
#include "storage_backend.h"

namespace test {

using mooncake::ErrorCode;
using mooncake::FileStorageConfig;
using mooncake::Slice;
using mooncake::StorageBackendInterface;
using mooncake::StorageObjectMetadata;

// Defined once for the linked library and once for the loaded one.
std::unique_ptr<StorageBackendInterface> NewBackend(const FileStorageConfig& config = {});
const mnkv_functions& Functions();

/// Sets environment variables and restores them at the end.
class Environment {
   public:
    void Set(const std::string& name, const std::string& value) {
        Remember(name);
        setenv(name.c_str(), value.c_str(), 1);
    }
    void Unset(const std::string& name) {
        Remember(name);
        unsetenv(name.c_str());
    }
    ~Environment() {
        for (const auto& [name, value] : before_) {
            if (value)
                setenv(name.c_str(), value->c_str(), 1);
            else
                unsetenv(name.c_str());
        }
    }

   private:
    void Remember(const std::string& name) {
        const char* value = std::getenv(name.c_str());
        before_.try_emplace(name, value ? std::optional<std::string>(value) : std::nullopt);
    }
    std::map<std::string, std::optional<std::string>> before_;
};

/// The seed of this run; MNKV_SEED=<seed> repeats one.
inline uint64_t Seed() {
    static const uint64_t seed = [] {
        const char* given = std::getenv("MNKV_SEED");
        const uint64_t value = given ? std::strtoull(given, nullptr, 0) : std::random_device{}();
        std::cout << "MNKV_SEED=" << value << std::endl;
        return value;
    }();
    return seed;
}

/// Random bytes; the same for equal arguments of one run.
inline std::string Payload(size_t size, uint64_t salt) {
    std::mt19937_64 random(Seed() ^ (salt * 0x9E3779B97F4A7C15));
    std::string bytes(size, '\0');
    for (char& byte : bytes) byte = static_cast<char>(random());
    return bytes;
}

/// A slice over bytes that an offload only reads.
inline Slice SliceOf(const std::string& bytes) {
    return {const_cast<char*>(bytes.data()), bytes.size()};
}

/// A test with an emulated device in memory of its own; with MNKV_TEST_DEVICE, all tests of a run
/// share the device of that path and the transport that the environment selects.
class BackendTest : public ::testing::Test {
   protected:
    BackendTest() {
        if (const char* device = std::getenv("MNKV_TEST_DEVICE")) {
            environment_.Set("MOONCAKE_NVME_KV_DEVICE_PATH", device);
            return;
        }
        const auto* info = ::testing::UnitTest::GetInstance()->current_test_info();
        environment_.Set("MOONCAKE_NVME_KV_TRANSPORT", "emulated");
        environment_.Set("MOONCAKE_NVME_KV_DEVICE_PATH",
                         std::string("mem:") + info->test_suite_name() + "." + info->name());
    }

    static std::unique_ptr<StorageBackendInterface> Open(const FileStorageConfig& config = {}) {
        auto backend = NewBackend(config);
        const auto opened = backend->Init();
        if (!opened) throw std::runtime_error("Init failed");
        return backend;
    }

    /// Closes a backend and puts a fresh one on the same device in its place.
    static void Reopen(std::unique_ptr<StorageBackendInterface>& backend) {
        backend.reset();  // one backend owns a device
        backend = Open();
    }

    /// The code of an offload of one object in one slice; OK when it was stored and reported.
    static ErrorCode Store(StorageBackendInterface& backend, const std::string& key,
                           const std::string& payload) {
        return Store(backend, key, std::vector<Slice>{SliceOf(payload)});
    }
    static ErrorCode Store(StorageBackendInterface& backend, const std::string& key,
                           std::vector<Slice> slices) {
        size_t reports = 0;
        const auto stored = backend.BatchOffload(
            {{key, std::move(slices)}},
            [&](const std::vector<std::string>& keys, std::vector<StorageObjectMetadata>&) {
                EXPECT_EQ(keys, std::vector<std::string>{key});
                ++reports;
                return ErrorCode::OK;
            });
        EXPECT_EQ(reports, stored ? 1u : 0u);
        if (!stored) return stored.error();
        EXPECT_EQ(*stored, 1);
        return ErrorCode::OK;
    }

    /// Loads `size` bytes into memory that begins `shift` bytes after a page boundary, and expects
    /// the bytes around to stay as they are.
    static tl::expected<std::string, ErrorCode> Load(StorageBackendInterface& backend,
                                                     const std::string& key, size_t size,
                                                     size_t shift = 0) {
        constexpr size_t kPage = 4096;
        constexpr char kGuard = '\x5A';
        const size_t before = kPage + shift;
        const size_t all = (before + size + kPage + kPage - 1) / kPage * kPage;
        const std::unique_ptr<char, decltype(&std::free)> memory(
            static_cast<char*>(std::aligned_alloc(kPage, all)), &std::free);
        std::fill_n(memory.get(), all, kGuard);
        std::unordered_map<std::string, Slice> batch{{key, {memory.get() + before, size}}};
        const auto loaded = backend.BatchLoad(batch);
        for (size_t i = 0; i < all; i = i + 1 == before ? before + size : i + 1) {
            if (memory.get()[i] != kGuard) {
                ADD_FAILURE() << "byte " << i << " changed, the destination is [" << before << ", "
                              << before + size << ")";
                break;
            }
        }
        if (!loaded) return tl::unexpected<ErrorCode>(loaded.error());
        return std::string(memory.get() + before, size);
    }

    Environment environment_;
};

}  // namespace test

namespace mooncake {
/// How GoogleTest prints a code.
inline void PrintTo(ErrorCode code, std::ostream* out) {
    *out << mnkv_status_t{static_cast<mnkv_status_t>(code)};
}
}  // namespace mooncake
