// What Mooncake's FileStorage relies on: codes, counts, and which key is reported when.
#include <set>

#include "support.hpp"

namespace {

using namespace test;

constexpr auto kAccept = [](const std::vector<std::string>&, std::vector<StorageObjectMetadata>&) {
    return ErrorCode::OK;
};

class Protocol : public BackendTest {
   protected:
    /// With values of one page, 1 MiB is more than a manifest can describe.
    void MakeAMebibyteTooLarge() { environment_.Set("MOONCAKE_NVME_KV_PROTOCOL_MAX_VALUE_SIZE", "4096"); }
    const std::string too_large_ = std::string(1 << 20, 'x');
};

template <typename T>
ErrorCode Code(const tl::expected<T, ErrorCode>& result) {
    return result ? ErrorCode::OK : result.error();
}

TEST_F(Protocol, EveryMethodIsAnInternalErrorBeforeInit) {
    const auto backend = NewBackend();
    const std::string payload = "payload";
    std::unordered_map<std::string, Slice> wanted{{"key", SliceOf(payload)}};
    EXPECT_EQ(Code(backend->BatchOffload({{"key", {SliceOf(payload)}}}, kAccept)),
              ErrorCode::INTERNAL_ERROR);
    EXPECT_EQ(Code(backend->BatchOffload({}, kAccept)), ErrorCode::INTERNAL_ERROR);
    EXPECT_EQ(Code(backend->BatchLoad(wanted)), ErrorCode::INTERNAL_ERROR);
    EXPECT_EQ(Code(backend->IsExist("key")), ErrorCode::INTERNAL_ERROR);
    EXPECT_EQ(Code(backend->IsEnableOffloading()), ErrorCode::INTERNAL_ERROR);
    EXPECT_EQ(Code(backend->ScanMeta(kAccept)), ErrorCode::INTERNAL_ERROR);
    EXPECT_EQ(Code(backend->EvictAboveDiskWatermark(0.9, 0.8)), ErrorCode::INTERNAL_ERROR);
    backend->ResetScanIterator();
    backend->RemoveAll();
}

TEST_F(Protocol, ASecondInitIsAnInternalErrorAndHarmsNothing) {
    const auto backend = Open();
    EXPECT_EQ(Code(backend->Init()), ErrorCode::INTERNAL_ERROR);
    EXPECT_EQ(Store(*backend, "key", "payload"), ErrorCode::OK);
}

TEST_F(Protocol, AFailedInitSaysWhyByItsCodeAndMayBeRepeated) {
    const auto backend = NewBackend();
    {
        Environment environment;
        environment.Unset("MOONCAKE_NVME_KV_DEVICE_PATH");
        EXPECT_EQ(Code(backend->Init()), ErrorCode::INVALID_PARAMS);
    }
    {
        Environment environment;
        environment.Set("MOONCAKE_NVME_KV_TRANSPORT", "carrier pigeon");
        EXPECT_EQ(Code(backend->Init()), ErrorCode::INVALID_PARAMS);
    }
    EXPECT_EQ(Code(backend->IsExist("key")), ErrorCode::INTERNAL_ERROR);
    EXPECT_EQ(Code(backend->Init()), ErrorCode::OK);
    EXPECT_EQ(Store(*backend, "key", "payload"), ErrorCode::OK);
}

TEST_F(Protocol, ADeviceThatIsOpenAlreadyIsLockedUntilItsOwnerEnds) {
    auto owner = Open();
    const auto backend = NewBackend();
    EXPECT_EQ(Code(backend->Init()), ErrorCode::FILE_LOCK_FAIL);
    owner.reset();
    EXPECT_EQ(Code(backend->Init()), ErrorCode::OK);
}

TEST_F(Protocol, AnEmptyOffloadIsAnInvalidKeyAndAnEmptyLoadIsDone) {
    const auto backend = Open();
    std::unordered_map<std::string, Slice> nothing;
    EXPECT_EQ(Code(backend->BatchOffload({}, kAccept)), ErrorCode::INVALID_KEY);
    EXPECT_EQ(Code(backend->BatchLoad(nothing)), ErrorCode::OK);
}

TEST_F(Protocol, AnOffloadReportsEveryKeyOnceWithItsSizesAndReturnsTheirNumber) {
    const auto backend = Open();
    constexpr size_t kObjects = 2000;
    std::map<std::string, std::string> payloads;
    std::unordered_map<std::string, std::vector<Slice>> batch;
    for (size_t i = 0; i < kObjects; ++i) {
        const std::string key = "key " + std::to_string(i);
        const std::string& payload = payloads[key] = Payload(i, i);
        batch[key] = {{const_cast<char*>(payload.data()), i / 2},
                      {const_cast<char*>(payload.data()) + i / 2, i - i / 2}};
    }
    std::set<std::string> reported;
    const auto stored = backend->BatchOffload(
        batch, [&](const std::vector<std::string>& keys, std::vector<StorageObjectMetadata>& metadatas) {
            EXPECT_FALSE(keys.empty());
            EXPECT_EQ(keys.size(), metadatas.size());
            for (size_t i = 0; i < keys.size(); ++i) {
                EXPECT_TRUE(reported.insert(keys[i]).second) << keys[i] << " reported twice";
                EXPECT_EQ(metadatas[i].bucket_id, 0);
                EXPECT_EQ(metadatas[i].offset, 0);
                EXPECT_EQ(metadatas[i].key_size, static_cast<int64_t>(keys[i].size()));
                EXPECT_EQ(metadatas[i].data_size, static_cast<int64_t>(payloads.at(keys[i]).size()));
                EXPECT_EQ(metadatas[i].transport_endpoint, "");
            }
            return ErrorCode::OK;
        });
    EXPECT_EQ(stored, static_cast<int64_t>(kObjects));
    EXPECT_EQ(reported.size(), kObjects);
}

TEST_F(Protocol, AReportedKeyIsReadableInsideTheHandler) {
    const auto backend = Open();
    const std::string payload = Payload(600000, 1);
    bool compared = false;
    ASSERT_TRUE(backend->BatchOffload({{"key", {SliceOf(payload)}}}, [&](const auto&, auto&) {
        compared = Load(*backend, "key", payload.size()) == payload;
        return ErrorCode::OK;
    }));
    EXPECT_TRUE(compared);
}

TEST_F(Protocol, APartialFailureReportsWhatIsStoredAndIsAnInvalidRead) {
    MakeAMebibyteTooLarge();
    const auto backend = Open();
    const std::string small = "small";
    std::set<std::string> reported;
    const auto stored = backend->BatchOffload(
        {{"good 1", {SliceOf(small)}}, {"bad", {SliceOf(too_large_)}}, {"good 2", {SliceOf(small)}}},
        [&](const std::vector<std::string>& keys, auto&) {
            reported.insert(keys.begin(), keys.end());
            return ErrorCode::OK;
        });
    EXPECT_EQ(Code(stored), ErrorCode::INVALID_READ);
    EXPECT_EQ(reported, (std::set<std::string>{"good 1", "good 2"}));
    EXPECT_TRUE(Load(*backend, "good 2", small.size()) == small);
    EXPECT_FALSE(*backend->IsExist("bad"));
}

TEST_F(Protocol, WhenNothingIsStoredTheHardErrorIsReturnedAndNothingReported) {
    MakeAMebibyteTooLarge();
    const auto backend = Open();
    bool called = false;
    const auto stored =
        backend->BatchOffload({{"bad", {SliceOf(too_large_)}}}, [&](const auto&, auto&) {
            called = true;
            return ErrorCode::OK;
        });
    EXPECT_EQ(Code(stored), ErrorCode::INVALID_PARAMS);
    EXPECT_FALSE(called);
}

TEST_F(Protocol, KeysThatTheTestFailurePredicateNamesFailAndNoOthers) {
    const auto backend = Open();
    const std::string payload = "payload";
    backend->SetTestFailurePredicate([](const std::string& key) { return key == "bad"; });
    std::set<std::string> reported;
    const auto stored = backend->BatchOffload(
        {{"good", {SliceOf(payload)}}, {"bad", {SliceOf(payload)}}, {"fine", {SliceOf(payload)}}},
        [&](const std::vector<std::string>& keys, auto&) {
            reported.insert(keys.begin(), keys.end());
            return ErrorCode::OK;
        });
    EXPECT_EQ(Code(stored), ErrorCode::INVALID_READ);
    EXPECT_EQ(reported, (std::set<std::string>{"good", "fine"}));
    EXPECT_EQ(backend->IsExist("bad"), false);
    EXPECT_EQ(Store(*backend, "bad", payload), ErrorCode::FILE_WRITE_FAIL);
    backend->SetTestFailurePredicate(nullptr);
    EXPECT_EQ(Store(*backend, "bad", payload), ErrorCode::OK);
}

TEST_F(Protocol, ANullHandlerIsAllowedAlsoWhenAnObjectFails) {
    MakeAMebibyteTooLarge();
    const auto backend = Open();
    const std::string small = "small";
    EXPECT_EQ(backend->BatchOffload({{"key", {SliceOf(small)}}}, nullptr, nullptr), 1);
    EXPECT_EQ(Code(backend->BatchOffload(
                  {{"key", {SliceOf(small)}}, {"bad", {SliceOf(too_large_)}}}, nullptr)),
              ErrorCode::INVALID_READ);
}

TEST_F(Protocol, TheHandlersErrorIsReturnedAndWhatIsStoredStays) {
    const auto backend = Open();
    const std::string payload = "payload";
    EXPECT_EQ(Code(backend->BatchOffload({{"key", {SliceOf(payload)}}},
                                         [](const auto&, auto&) { return ErrorCode::NOT_SUPPORTED; })),
              ErrorCode::NOT_SUPPORTED);
    EXPECT_TRUE(Load(*backend, "key", payload.size()) == payload);
}

TEST_F(Protocol, ANullSliceWithASizeIsRefused) {
    const auto backend = Open();
    EXPECT_EQ(Store(*backend, "key", std::vector<Slice>{{nullptr, 1}}), ErrorCode::INVALID_PARAMS);
    std::unordered_map<std::string, Slice> wanted{{"key", {nullptr, 1}}};
    EXPECT_EQ(Code(backend->BatchLoad(wanted)), ErrorCode::INVALID_PARAMS);
}

TEST_F(Protocol, OneMissingKeyFailsTheWholeLoad) {
    const auto backend = Open();
    ASSERT_EQ(Store(*backend, "stored", "payload"), ErrorCode::OK);
    std::string one(7, '\0'), other(7, '\0');
    std::unordered_map<std::string, Slice> wanted{{"stored", SliceOf(one)}, {"missing", SliceOf(other)}};
    EXPECT_EQ(Code(backend->BatchLoad(wanted)), ErrorCode::OBJECT_NOT_FOUND);
}

TEST_F(Protocol, ALoadOfAnotherSizeThanTheStoredOneFails) {
    const auto backend = Open();
    ASSERT_EQ(Store(*backend, "inline", Payload(5000, 1)), ErrorCode::OK);
    ASSERT_EQ(Store(*backend, "chunked", Payload(600000, 2)), ErrorCode::OK);
    for (const size_t size : {size_t{0}, size_t{4999}, size_t{5001}, size_t{600000}})
        EXPECT_FALSE(Load(*backend, "inline", size)) << size;
    for (const size_t size : {size_t{0}, size_t{5000}, size_t{599999}, size_t{600001}})
        EXPECT_FALSE(Load(*backend, "chunked", size)) << size;
}

TEST_F(Protocol, ExistsSaysWhatIsStored) {
    auto backend = Open();
    EXPECT_EQ(backend->IsExist("key"), false);
    ASSERT_EQ(Store(*backend, "key", "payload"), ErrorCode::OK);
    EXPECT_EQ(backend->IsExist("key"), true);
    Reopen(backend);
    EXPECT_EQ(backend->IsExist("key"), true);
    EXPECT_EQ(backend->IsEnableOffloading(), true);
}

}  // namespace
