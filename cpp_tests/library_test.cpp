// Loading the library from a path.
#include "mooncake_nvme_kv/library.hpp"

#include <gtest/gtest.h>

namespace {

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

}  // namespace
