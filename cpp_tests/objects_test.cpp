// Objects of many sizes through the adapter: what was stored comes back, byte by byte.
#include <filesystem>

#include "support.hpp"

namespace {

using namespace test;

/// The key is part of a root value, so the largest inline object depends on its length.
const std::string kKey = std::string("tenant\0user/key", 15);
/// Without variables: the runtime limit of 270336 bytes, which is a multiple of 4096.
constexpr size_t kValue = 270336;
/// Header 56, resolved key and slot 20, identity 5 and the key.
const size_t kLargestInline = kValue - 56 - 20 - 5 - kKey.size();

class ObjectOfSize : public BackendTest, public ::testing::WithParamInterface<size_t> {};

INSTANTIATE_TEST_SUITE_P(Sizes, ObjectOfSize,
                         ::testing::Values(0, 1, 4095, 4096, 4097, kLargestInline,
                                           kLargestInline + 1, 2 * kValue, 3 * kValue + 1,
                                           3 * kValue + 4095),
                         [](const auto& test) { return std::to_string(test.param); });

TEST_P(ObjectOfSize, ComesBackFromSlicesOfAnyShapeIntoBuffersOfAnyAlignment) {
    const size_t size = GetParam();
    const auto backend = Open();
    // One byte more on either side, so that slices can begin at odd addresses.
    const std::string memory = Payload(size + 2, size);
    char* const bytes = const_cast<char*>(memory.data());
    const std::map<std::string, std::vector<Slice>> shapes{
        {"one slice", {{bytes, size}}},
        {"one unaligned slice", {{bytes + 1, size}}},
        {"halves", {{bytes, size / 2}, {bytes + size / 2, size - size / 2}}},
        {"an empty slice in front, between and behind",
         {{nullptr, 0}, {bytes, size / 3}, {bytes, 0}, {bytes + size / 3, size - size / 3}, {nullptr, 0}}},
    };
    for (const auto& [shape, slices] : shapes) {
        SCOPED_TRACE(shape);
        std::string expected;
        for (const Slice& slice : slices)
            expected.append(static_cast<const char*>(slice.ptr), slice.size);
        ASSERT_EQ(Store(*backend, kKey, slices), ErrorCode::OK);
        for (const size_t shift : {0, 1, 8, 511, 4095}) {
            const auto loaded = Load(*backend, kKey, size, shift);
            ASSERT_TRUE(loaded) << "destination shifted by " << shift;
            ASSERT_TRUE(*loaded == expected) << "destination shifted by " << shift;
        }
    }
}

TEST_P(ObjectOfSize, ComesBackAfterReopening) {
    const std::string payload = Payload(GetParam(), 1);
    ASSERT_EQ(Store(*Open(), kKey, payload), ErrorCode::OK);
    const auto backend = Open();
    EXPECT_TRUE(*backend->IsExist(kKey));
    EXPECT_TRUE(Load(*backend, kKey, payload.size()) == payload);
    EXPECT_TRUE(Load(*backend, kKey, payload.size(), 3) == payload);
}

TEST_P(ObjectOfSize, MayBeOffloadedAgainByTheSameAndByAFreshBackend) {
    const std::string payload = Payload(GetParam(), 2);
    auto backend = Open();
    ASSERT_EQ(Store(*backend, kKey, payload), ErrorCode::OK);
    ASSERT_EQ(Store(*backend, kKey, payload), ErrorCode::OK);
    Reopen(backend);
    ASSERT_EQ(Store(*backend, kKey, payload), ErrorCode::OK);
    EXPECT_TRUE(Load(*backend, kKey, payload.size()) == payload);
}

TEST_P(ObjectOfSize, IsReplacedByASmallerAnEqualAndALargerOne) {
    const size_t size = GetParam();
    uint64_t salt = 3;
    for (const size_t next : {size / 2, size, size + 1, size + kValue}) {
        SCOPED_TRACE(next);
        const std::string before = Payload(size, ++salt);
        const std::string after = Payload(next, ++salt);
        auto backend = Open();
        ASSERT_EQ(Store(*backend, kKey, before), ErrorCode::OK);
        ASSERT_EQ(Store(*backend, kKey, after), ErrorCode::OK);
        EXPECT_TRUE(Load(*backend, kKey, next) == after);
        Reopen(backend);
        EXPECT_TRUE(Load(*backend, kKey, next) == after);
        if (next != size) {
            EXPECT_FALSE(Load(*backend, kKey, size));
        }
    }
}

class Objects : public BackendTest {};

TEST_F(Objects, OfAllSizesInOneBatchComeBackInOneBatch) {
    const auto backend = Open();
    std::map<std::string, std::string> payloads;
    std::mt19937_64 random(Seed());
    for (size_t i = 0; i < 300; ++i) {
        const size_t size = i % 50 == 0 ? kValue * (i / 50) + i : random() % 5000;
        payloads["object " + std::to_string(i)] = Payload(size, i);
    }
    std::unordered_map<std::string, std::vector<Slice>> batch;
    for (const auto& [key, payload] : payloads) batch[key] = {SliceOf(payload)};
    ASSERT_EQ(backend->BatchOffload(batch, nullptr), 300);

    std::map<std::string, std::string> loaded;
    std::unordered_map<std::string, Slice> wanted;
    for (const auto& [key, payload] : payloads) {
        std::string& memory = loaded[key];
        memory.resize(payload.size());
        wanted[key] = {memory.data(), memory.size()};
    }
    ASSERT_TRUE(backend->BatchLoad(wanted));
    EXPECT_TRUE(loaded == payloads);
}

TEST_F(Objects, WithTheEmptyKeyAreObjectsLikeOthers) {
    auto backend = Open();
    EXPECT_FALSE(*backend->IsExist(""));
    ASSERT_EQ(Store(*backend, "", Payload(5000, 1)), ErrorCode::OK);
    EXPECT_TRUE(*backend->IsExist(""));
    Reopen(backend);
    EXPECT_TRUE(Load(*backend, "", 5000) == Payload(5000, 1));
}

TEST_F(Objects, WithoutASliceAreEmpty) {
    const auto backend = Open();
    ASSERT_EQ(Store(*backend, kKey, std::vector<Slice>{}), ErrorCode::OK);
    EXPECT_TRUE(*backend->IsExist(kKey));
    EXPECT_TRUE(Load(*backend, kKey, 0) == std::string());
}

TEST_F(Objects, WhoseKeysDifferOnlyBehindANulAreDifferent) {
    const auto backend = Open();
    const std::string one("a\0b", 3), other("a\0c", 3);
    ASSERT_EQ(Store(*backend, one, Payload(100, 1)), ErrorCode::OK);
    EXPECT_FALSE(*backend->IsExist(other));
    EXPECT_FALSE(*backend->IsExist("a"));
    ASSERT_EQ(Store(*backend, other, Payload(100, 2)), ErrorCode::OK);
    EXPECT_TRUE(Load(*backend, one, 100) == Payload(100, 1));
}

TEST_F(Objects, InADirectoryComeBackAfterReopening) {
    char directory[] = "/tmp/mnkv-test-XXXXXX";
    ASSERT_NE(mkdtemp(directory), nullptr);
    environment_.Set("MOONCAKE_NVME_KV_DEVICE_PATH", directory);
    const std::string payload = Payload(3 * kValue + 1, 1);
    ASSERT_EQ(Store(*Open(), kKey, payload), ErrorCode::OK);
    EXPECT_TRUE(Load(*Open(), kKey, payload.size()) == payload);
    std::filesystem::remove_all(directory);
}

}  // namespace
