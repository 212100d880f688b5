// Handlers that throw, block, or call back in.
#include <future>
#include <stdexcept>
#include <thread>

#include "support.hpp"

namespace {

using namespace test;

class Callbacks : public BackendTest {
   protected:
    /// The code of an offload of `key` with this handler.
    static ErrorCode Offload(StorageBackendInterface& backend, const std::string& key,
                             const std::function<ErrorCode()>& handler) {
        const std::string payload = "payload of " + key;
        const auto stored = backend.BatchOffload({{key, {SliceOf(payload)}}},
                                                 [&](const auto&, auto&) { return handler(); });
        return stored ? ErrorCode::OK : stored.error();
    }
};

TEST_F(Callbacks, ThatThrowAreAnInternalErrorAndTheBackendStaysUsable) {
    const auto backend = Open();
    EXPECT_EQ(Offload(*backend, "a", []() -> ErrorCode { throw std::runtime_error("no"); }),
              ErrorCode::INTERNAL_ERROR);
    EXPECT_EQ(Offload(*backend, "b", []() -> ErrorCode { throw 42; }), ErrorCode::INTERNAL_ERROR);
    EXPECT_EQ(Offload(*backend, "c", [] { return ErrorCode::OK; }), ErrorCode::OK);
    EXPECT_TRUE(Load(*backend, "a", 12) == std::string("payload of a"));
}

TEST_F(Callbacks, ThatBlockHoldUpNoOtherCall) {
    const auto backend = Open();
    ASSERT_EQ(Store(*backend, "other", "payload"), ErrorCode::OK);
    std::promise<void> entered, released;
    auto offload = std::async(std::launch::async, [&] {
        return Offload(*backend, "key", [&] {
            entered.set_value();
            released.get_future().wait();
            return ErrorCode::OK;
        });
    });
    entered.get_future().wait();
    EXPECT_TRUE(Load(*backend, "other", 7) == std::string("payload"));
    EXPECT_TRUE(Load(*backend, "key", 14) == std::string("payload of key"));
    EXPECT_EQ(backend->IsExist("key"), true);
    EXPECT_EQ(Store(*backend, "another", "payload"), ErrorCode::OK);
    EXPECT_EQ(Store(*backend, "key", "rewritten"), ErrorCode::OK);
    released.set_value();
    EXPECT_EQ(offload.get(), ErrorCode::OK);
    EXPECT_TRUE(Load(*backend, "key", 9) == std::string("rewritten"));
}

TEST_F(Callbacks, MayCallEveryMethod) {
    const auto backend = Open();
    EXPECT_EQ(Offload(*backend, "outer",
                      [&] {
                          EXPECT_EQ(backend->IsExist("outer"), true);
                          EXPECT_EQ(backend->IsEnableOffloading(), true);
                          EXPECT_EQ(Store(*backend, "inner", "payload"), ErrorCode::OK);
                          EXPECT_EQ(Store(*backend, "outer", "rewritten"), ErrorCode::OK);
                          EXPECT_TRUE(Load(*backend, "outer", 9) == std::string("rewritten"));
                          return ErrorCode::OK;
                      }),
              ErrorCode::OK);
    EXPECT_TRUE(Load(*backend, "inner", 7) == std::string("payload"));
}

TEST_F(Callbacks, CannotCloseTheirOwnBackend) {
    const mnkv_functions& functions = Functions();
    mnkv_backend* backend = nullptr;
    ASSERT_EQ(functions.backend_open_from_environment(&backend), MNKV_OK);
    struct Context {
        const mnkv_functions& functions;
        mnkv_backend* backend;
        mnkv_status_t status;
    } context{functions, backend, MNKV_OK};
    const mnkv_slice payload{"payload", 7};
    const mnkv_object object{sizeof object, "key", 3, &payload, 1};
    EXPECT_EQ(functions.backend_offload(
                  backend, &object, 1,
                  [](void* user, const size_t*, size_t) -> mnkv_status_t {
                      Context& inside = *static_cast<Context*>(user);
                      inside.status = inside.functions.backend_close(inside.backend);
                      return MNKV_OK;
                  },
                  nullptr, &context, nullptr),
              MNKV_OK);
    EXPECT_EQ(context.status, MNKV_INTERNAL_ERROR);
    bool exists = false;
    EXPECT_EQ(functions.backend_exists(backend, "key", 3, &exists), MNKV_OK);
    EXPECT_TRUE(exists);
    EXPECT_EQ(functions.backend_close(backend), MNKV_OK);
}

TEST_F(Callbacks, OfManyThreadsRunAtOnce) {
    auto backend = Open();
    constexpr int kThreads = 8;
    std::vector<std::future<bool>> threads;
    for (int thread = 0; thread < kThreads; ++thread) {
        threads.push_back(std::async(std::launch::async, [&, thread] {
            for (int round = 0; round < 20; ++round) {
                const std::string own = "key " + std::to_string(thread);
                const std::string payload = Payload(1000 + static_cast<size_t>(round), 7);
                if (Store(*backend, own, payload) != ErrorCode::OK) return false;
                if (Store(*backend, "shared", Payload(300000, 9)) != ErrorCode::OK) return false;
                if (Load(*backend, own, payload.size()) != payload) return false;
                if (Load(*backend, "shared", 300000) != Payload(300000, 9)) return false;
            }
            return true;
        }));
    }
    for (auto& thread : threads) EXPECT_TRUE(thread.get());
    Reopen(backend);
    EXPECT_TRUE(Load(*backend, "shared", 300000) == Payload(300000, 9));
}

}  // namespace
