// Loading the library from a path, and what the adapter makes of a full device.
#include "mooncake_nvme_kv/library.hpp"

#include <gtest/gtest.h>

#include "mooncake_nvme_kv/storage_backend.hpp"

namespace {

using mooncake::ErrorCode;
using mooncake_nvme_kv::Library;

TEST(Library, ThatDoesNotExistIsNamedInTheReason) {
    std::string why;
    EXPECT_EQ(Library::Load("/nonexistent/library.so", why), nullptr);
    EXPECT_NE(why.find("/nonexistent/library.so"), std::string::npos) << why;
}

TEST(Library, OfSomethingElseIsRefused) {
    std::string why;
    EXPECT_EQ(Library::Load("libm.so.6", why), nullptr);
    EXPECT_NE(why.find("mnkv_functions_get"), std::string::npos) << why;
}

TEST(Library, OfAnotherMajorVersionIsRefused) {
    std::string why;
    EXPECT_EQ(Library::Load(MNKV_OTHER_MAJOR_LIBRARY, why), nullptr);
    EXPECT_NE(why.find("ABI version"), std::string::npos) << why;
}

TEST(Library, ThatIsOlderThanTheHeaderIsRefused) {
    std::string why;
    EXPECT_EQ(Library::Load(MNKV_OLDER_LIBRARY, why), nullptr);
    EXPECT_NE(why.find("ABI version"), std::string::npos) << why;
}

class FullDevice : public ::testing::TestWithParam<bool> {
   protected:
    FullDevice() {
        mooncake::FileStorageConfig config;
        config.enable_disk_watermark_eviction = GetParam();
        std::string why;
        backend_ = std::make_unique<mooncake::RustNvmeKvStorageBackend>(
            config, Library::Load(MNKV_FULL_DEVICE_LIBRARY, why));
        EXPECT_TRUE(backend_->Init());
    }
    std::unique_ptr<mooncake::StorageBackendInterface> backend_;
};

INSTANTIATE_TEST_SUITE_P(Eviction, FullDevice, ::testing::Bool(),
                         [](const auto& test) { return test.param ? "On" : "Off"; });

TEST_P(FullDevice, SwitchesOffloadingOffOnlyWithoutEviction) {
    char payload[] = "payload";
    const auto stored = backend_->BatchOffload({{"key", {{payload, 7}}}}, nullptr);
    ASSERT_FALSE(stored);
    EXPECT_EQ(stored.error(), GetParam() ? ErrorCode::INVALID_READ : ErrorCode::KEYS_ULTRA_LIMIT);
    EXPECT_EQ(backend_->IsEnableOffloading(), GetParam());
}

}  // namespace
