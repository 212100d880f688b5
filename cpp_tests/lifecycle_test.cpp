// Scan, removal and eviction through the adapter.
#include <set>
#include <stdexcept>

#include "support.hpp"

namespace {

using namespace test;

class Lifecycle : public BackendTest {
   protected:
    void SetUp() override { Open()->RemoveAll(); }

    /// Every one takes one padded page on the device.
    static constexpr size_t kSize = 3000;
    static constexpr int64_t kOnDevice = 4096;

    static std::string Key(size_t index) { return "key " + std::to_string(index); }

    static void StoreMany(StorageBackendInterface& backend, size_t count) {
        for (size_t i = 0; i < count; ++i)
            ASSERT_EQ(Store(backend, Key(i), Payload(kSize, i)), ErrorCode::OK);
    }

    /// Which of the keys exist; each of these must load with its bytes.
    static std::set<std::string> Stored(StorageBackendInterface& backend, size_t count) {
        std::set<std::string> stored;
        for (size_t i = 0; i < count; ++i) {
            if (!*backend.IsExist(Key(i))) continue;
            stored.insert(Key(i));
            EXPECT_TRUE(Load(backend, Key(i), kSize) == Payload(kSize, i)) << Key(i);
        }
        return stored;
    }

    static std::set<std::string> Keys(size_t count) {
        std::set<std::string> keys;
        for (size_t i = 0; i < count; ++i) keys.insert(Key(i));
        return keys;
    }

    static FileStorageConfig RoomFor(int64_t objects) {
        FileStorageConfig config;
        config.total_size_limit = objects * kOnDevice;
        return config;
    }

    static tl::expected<std::set<std::string>, ErrorCode> Scan(StorageBackendInterface& backend) {
        std::set<std::string> found;
        const auto scanned = backend.ScanMeta(
            [&](const std::vector<std::string>& keys, std::vector<StorageObjectMetadata>& metadatas) {
                EXPECT_EQ(keys.size(), metadatas.size());
                for (size_t i = 0; i < keys.size(); ++i) {
                    EXPECT_TRUE(found.insert(keys[i]).second) << keys[i] << " reported twice";
                    EXPECT_EQ(metadatas[i].key_size, static_cast<int64_t>(keys[i].size()));
                    EXPECT_EQ(metadatas[i].data_size, static_cast<int64_t>(kSize));
                }
                return ErrorCode::OK;
            });
        if (!scanned) return tl::unexpected<ErrorCode>(scanned.error());
        return found;
    }
};

TEST_F(Lifecycle, AScanAfterReopeningReportsEveryObjectOnceWithItsSizesInPages) {
    auto backend = Open();
    StoreMany(*backend, 50);
    backend.reset();
    FileStorageConfig config;
    config.scanmeta_iterator_keys_limit = 20;
    backend = Open(config);
    std::set<std::string> found;
    ASSERT_TRUE(backend->ScanMeta([&](const std::vector<std::string>& keys, auto&) {
        EXPECT_LE(keys.size(), 20u);
        found.insert(keys.begin(), keys.end());
        return ErrorCode::OK;
    }));
    EXPECT_EQ(found, Keys(50));
    EXPECT_EQ(Scan(*backend), std::set<std::string>{});
    backend->ResetScanIterator();
    EXPECT_EQ(Scan(*backend), Keys(50));
}

TEST_F(Lifecycle, AScanWhoseHandlerFailsOrThrowsEndsWithItsErrorAndCanBeRepeated) {
    auto backend = Open();
    StoreMany(*backend, 10);
    Reopen(backend);
    const auto failed = backend->ScanMeta([](const auto&, auto&) { return ErrorCode::NOT_SUPPORTED; });
    ASSERT_FALSE(failed);
    EXPECT_EQ(failed.error(), ErrorCode::NOT_SUPPORTED);
    const auto threw =
        backend->ScanMeta([](const auto&, auto&) -> ErrorCode { throw std::runtime_error("no"); });
    ASSERT_FALSE(threw);
    EXPECT_EQ(threw.error(), ErrorCode::INTERNAL_ERROR);
    backend->ResetScanIterator();
    EXPECT_EQ(Scan(*backend), Keys(10));
}

TEST_F(Lifecycle, ANullScanHandlerIsAllowed) {
    auto backend = Open();
    StoreMany(*backend, 3);
    Reopen(backend);
    EXPECT_TRUE(backend->ScanMeta(nullptr));
}

TEST_F(Lifecycle, RemoveAllLeavesAnEmptyBackendThatCanBeUsed) {
    auto backend = Open();
    StoreMany(*backend, 10);
    ASSERT_EQ(Store(*backend, "chunked", Payload(600000, 1)), ErrorCode::OK);
    Reopen(backend);
    backend->RemoveAll();
    EXPECT_EQ(Stored(*backend, 10), std::set<std::string>{});
    EXPECT_FALSE(*backend->IsExist("chunked"));
    StoreMany(*backend, 5);
    EXPECT_EQ(Stored(*backend, 10), Keys(5));
    Reopen(backend);
    EXPECT_EQ(Scan(*backend), Keys(5));
}

TEST_F(Lifecycle, EvictionAboveTheWatermarkTellsTheHandlerWhatItReturnsAndDeletes) {
    const auto backend = Open(RoomFor(100));
    StoreMany(*backend, 80);
    EXPECT_EQ(backend->EvictAboveDiskWatermark(0.9, 0.5), std::vector<std::string>{});
    std::set<std::string> told;
    const auto evicted =
        backend->EvictAboveDiskWatermark(0.75, 0.5, [&](const std::vector<std::string>& keys) {
            told.insert(keys.begin(), keys.end());
            return tl::expected<void, ErrorCode>{};
        });
    ASSERT_TRUE(evicted);
    EXPECT_EQ(std::set<std::string>(evicted->begin(), evicted->end()), told);
    EXPECT_EQ(told, Keys(30));  // the oldest ones
    EXPECT_EQ(Stored(*backend, 80).size(), 50u);
    EXPECT_EQ(backend->EvictAboveDiskWatermark(0.4, 0.3)->size(), 20u);
}

TEST_F(Lifecycle, EvictionWhoseHandlerFailsOrThrowsKeepsTheObjects) {
    const auto backend = Open(RoomFor(100));
    StoreMany(*backend, 80);
    const auto failed = backend->EvictAboveDiskWatermark(0.5, 0.4, [](const auto&) {
        return tl::expected<void, ErrorCode>(tl::unexpected<ErrorCode>(ErrorCode::NOT_SUPPORTED));
    });
    ASSERT_FALSE(failed);
    EXPECT_EQ(failed.error(), ErrorCode::NOT_SUPPORTED);
    const auto threw = backend->EvictAboveDiskWatermark(
        0.5, 0.4, [](const auto&) -> tl::expected<void, ErrorCode> { throw 42; });
    ASSERT_FALSE(threw);
    EXPECT_EQ(threw.error(), ErrorCode::INTERNAL_ERROR);
    EXPECT_EQ(Stored(*backend, 80), Keys(80));
}

TEST_F(Lifecycle, AnOffloadBeyondTheLimitEvictsOthersAndTellsWhich) {
    const auto backend = Open(RoomFor(20));
    std::set<std::string> evicted;
    for (size_t i = 0; i < 50; ++i) {
        const std::string payload = Payload(kSize, i);
        ASSERT_EQ(backend->BatchOffload({{Key(i), {SliceOf(payload)}}}, nullptr,
                                        [&](const std::vector<std::string>& keys) {
                                            evicted.insert(keys.begin(), keys.end());
                                            return tl::expected<void, ErrorCode>{};
                                        }),
                  1);
    }
    std::set<std::string> all = Stored(*backend, 50);
    EXPECT_LE(all.size(), 20u);
    EXPECT_TRUE(all.contains(Key(49)));
    all.merge(evicted);
    EXPECT_EQ(all, Keys(50));
    EXPECT_TRUE(evicted.empty()) << "stored, although reported as evicted";
    EXPECT_EQ(backend->IsEnableOffloading(), true);
}

TEST_F(Lifecycle, AnEvictionHandlerIsCalledWhileTheObjectsAreOnTheDevice) {
    const auto backend = Open(RoomFor(10));
    StoreMany(*backend, 10);
    environment_.Set("MOONCAKE_NVME_KV_ACCESS", "read_only");
    const auto observer = Open();
    std::vector<std::string> told;
    const std::string payload = Payload(kSize, 10);
    EXPECT_EQ(backend->BatchOffload({{Key(10), {SliceOf(payload)}}}, nullptr,
                                    [&](const std::vector<std::string>& keys) {
                                        for (const std::string& key : keys) {
                                            EXPECT_EQ(observer->IsExist(key), true) << key;
                                            told.push_back(key);
                                        }
                                        return tl::expected<void, ErrorCode>{};
                                    }),
              1);
    ASSERT_FALSE(told.empty());
    for (const std::string& key : told) EXPECT_EQ(backend->IsExist(key), false) << key;
}

TEST_F(Lifecycle, AnOffloadWhoseEvictionHandlerFailsKeepsTheObjectsAndReturnsItsError) {
    const auto backend = Open(RoomFor(10));
    StoreMany(*backend, 10);
    const std::string payload = Payload(kSize, 10);
    int calls = 0;
    bool completed = false;
    const auto failed = backend->BatchOffload(
        {{Key(10), {SliceOf(payload)}}},
        [&](const auto&, auto&) {
            completed = true;
            return ErrorCode::OK;
        },
        [&](const auto&) {
            ++calls;
            return tl::expected<void, ErrorCode>(tl::unexpected<ErrorCode>(ErrorCode::NOT_SUPPORTED));
        });
    ASSERT_FALSE(failed);
    EXPECT_EQ(failed.error(), ErrorCode::NOT_SUPPORTED);
    EXPECT_EQ(calls, 1);
    EXPECT_FALSE(completed);
    EXPECT_EQ(Stored(*backend, 11), Keys(10));
}

TEST_F(Lifecycle, TheLimitOfKeysIsMooncakes) {
    FileStorageConfig config;
    config.total_keys_limit = 10;
    const auto backend = Open(config);
    StoreMany(*backend, 30);
    EXPECT_EQ(Stored(*backend, 30).size(), 10u);
}

TEST_F(Lifecycle, AScanHandlerMayResetTheScanAndUseTheBackend) {
    auto backend = Open();
    StoreMany(*backend, 5);
    Reopen(backend);
    size_t found = 0;
    ASSERT_TRUE(backend->ScanMeta([&](const std::vector<std::string>& keys, auto&) {
        found += keys.size();
        backend->ResetScanIterator();
        for (const std::string& key : keys) EXPECT_EQ(backend->IsExist(key), true);
        EXPECT_EQ(Store(*backend, "meanwhile", Payload(kSize, 5)), ErrorCode::OK);
        return ErrorCode::OK;
    }));
    EXPECT_GE(found, 5u);
    EXPECT_EQ(Scan(*backend)->size(), 6u);
}

TEST_F(Lifecycle, AFullBackendSwitchesOffloadingOffOnlyWhenNothingMayEvict) {
    environment_.Set("MOONCAKE_NVME_KV_EVICTION_POLICY", "none");
    for (const bool watermarks : {true, false}) {
        SCOPED_TRACE(watermarks);
        FileStorageConfig config = RoomFor(10);
        config.enable_disk_watermark_eviction = watermarks;
        const auto backend = Open(config);
        backend->RemoveAll();
        StoreMany(*backend, 10);
        EXPECT_EQ(Store(*backend, "one more", Payload(kSize, 10)),
                  watermarks ? ErrorCode::INVALID_READ : ErrorCode::KEYS_ULTRA_LIMIT);
        EXPECT_EQ(backend->IsEnableOffloading(), watermarks);
        EXPECT_EQ(Stored(*backend, 10), Keys(10));
    }
}

}  // namespace
