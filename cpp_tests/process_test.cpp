// Loading and unloading, fork, and what stays behind. This program is not linked with the library.
#include <dirent.h>
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <string>

#include "mooncake_nvme_kv.h"

namespace {

struct Resources {
    size_t threads, descriptors, mappings;
    bool operator==(const Resources&) const = default;
    friend std::ostream& operator<<(std::ostream& out, const Resources& resources) {
        return out << resources.threads << " threads, " << resources.descriptors << " descriptors, "
                   << resources.mappings << " mappings";
    }
};

Resources Count() {
    const auto entries = [](const char* directory) {
        size_t count = 0;
        for (const auto& entry : std::filesystem::directory_iterator(directory)) {
            static_cast<void>(entry);
            ++count;
        }
        return count;
    };
    std::ifstream maps("/proc/self/maps");
    size_t mappings = 0;
    for (std::string line; std::getline(maps, line);) ++mappings;
    return {entries("/proc/self/task"), entries("/proc/self/fd"), mappings};
}

/// The library by dlopen and dlsym alone.
class Loaded {
   public:
    Loaded() : handle_(dlopen(MNKV_TEST_LIBRARY, RTLD_NOW | RTLD_LOCAL)) {
        if (handle_ == nullptr) throw std::runtime_error(dlerror());
        const auto get = reinterpret_cast<const mnkv_functions* (*)()>(
            dlsym(handle_, "mnkv_functions_get"));
        if (get == nullptr) throw std::runtime_error(dlerror());
        functions_ = get();
    }
    ~Loaded() { dlclose(handle_); }
    Loaded(const Loaded&) = delete;
    Loaded& operator=(const Loaded&) = delete;

    const mnkv_functions* operator->() const { return functions_; }

    mnkv_status_t TryToOpen(const std::string& device, mnkv_backend*& backend) const {
        mnkv_config config{};
        config.struct_size = sizeof config;
        config.device_path = device.c_str();
        config.transport = MNKV_TRANSPORT_EMULATED;
        return functions_->backend_open(&config, &backend);
    }
    mnkv_backend* Open(const std::string& device) const {
        mnkv_backend* backend = nullptr;
        EXPECT_EQ(TryToOpen(device, backend), MNKV_OK);
        return backend;
    }
    mnkv_status_t Store(mnkv_backend* backend, const std::string& payload) const {
        const mnkv_slice slice{payload.data(), payload.size()};
        const mnkv_object object{sizeof object, "key", 3, &slice, 1};
        return functions_->backend_offload(backend, &object, 1, nullptr, nullptr, nullptr, nullptr);
    }
    mnkv_status_t Load(mnkv_backend* backend, std::string& memory) const {
        const mnkv_mut_slice slice{memory.data(), memory.size()};
        const mnkv_destination destination{sizeof destination, "key", 3, &slice, 1};
        return functions_->backend_load(backend, &destination, 1, nullptr);
    }

   private:
    void* handle_;
    const mnkv_functions* functions_;
};

void Round(const std::string& device) {
    const Loaded library;
    mnkv_backend* const backend = library.Open(device);
    const std::string payload(300000, 'x');
    std::string memory(payload.size(), '\0');
    ASSERT_EQ(library.Store(backend, payload), MNKV_OK);
    ASSERT_EQ(library.Load(backend, memory), MNKV_OK);
    ASSERT_TRUE(memory == payload);
    ASSERT_EQ(library->backend_close(backend), MNKV_OK);
}

/// After a few rounds, in which allocators and pools take what they keep, nothing may grow. An
/// allocator may still split or add a mapping now and then; one that is lost each round shows.
void ExpectNoGrowth(int rounds, const std::string& device) {
    for (int round = 0; round < 10; ++round) Round(device);
    const Resources before = Count();
    for (int round = 0; round < rounds; ++round) Round(device);
    const Resources after = Count();
    EXPECT_EQ(after.threads, before.threads);
    EXPECT_EQ(after.descriptors, before.descriptors);
    EXPECT_LT(after.mappings, before.mappings + static_cast<size_t>(rounds) / 2);
}

TEST(Process, KeepsNothingOfAThousandRoundsOfLoadOpenCloseUnload) {
    ExpectNoGrowth(1000, "mem:rounds");
    EXPECT_EQ(Count().threads, 1u);
}

TEST(Process, KeepsNothingOfRoundsOnADirectory) {
    char directory[] = "/tmp/mnkv-test-XXXXXX";
    ASSERT_NE(mkdtemp(directory), nullptr);
    ExpectNoGrowth(20, directory);
    EXPECT_EQ(Count().threads, 1u);
    std::filesystem::remove_all(directory);
}

/// Runs `body` in a forked child; whether it returned true there.
bool InChild(const std::function<bool()>& body) {
    const pid_t child = fork();
    if (child == 0) _exit(body() ? 0 : 1);
    int status = 0;
    return child > 0 && waitpid(child, &status, 0) == child && status == 0;
}

void ForkWithAnOpenBackend(const std::string& device) {
    const Loaded library;
    mnkv_backend* const backend = library.Open(device);
    const std::string payload(600000, 'x');
    std::string memory(payload.size(), '\0');
    ASSERT_EQ(library.Store(backend, payload), MNKV_OK);
    EXPECT_TRUE(InChild([&] {
        bool exists = false;
        std::string childs(payload.size(), '\0');
        return library.Store(backend, payload) == MNKV_INTERNAL_ERROR &&
               library.Load(backend, childs) == MNKV_INTERNAL_ERROR &&
               library->backend_exists(backend, "key", 3, &exists) == MNKV_INTERNAL_ERROR &&
               library->backend_close(backend) == MNKV_INTERNAL_ERROR;
    }));
    EXPECT_EQ(library.Load(backend, memory), MNKV_OK);
    EXPECT_TRUE(memory == payload);
    EXPECT_EQ(library->backend_close(backend), MNKV_OK);
    EXPECT_TRUE(InChild([&] { return library->backend_close(backend) == MNKV_INTERNAL_ERROR; }));
    // What the child left alone is whole: it opens again.
    mnkv_backend* const again = library.Open(device);
    EXPECT_EQ(library.Load(again, memory), MNKV_OK);
    EXPECT_EQ(library->backend_close(again), MNKV_OK);
}

TEST(AForkedChild, IsRefusedOnAnInheritedHandleAndHarmsNothing) { ForkWithAnOpenBackend("mem:fork"); }

TEST(AForkedChild, HarmsNoDirectory) {
    char directory[] = "/tmp/mnkv-test-XXXXXX";
    ASSERT_NE(mkdtemp(directory), nullptr);
    ForkWithAnOpenBackend(directory);
    std::filesystem::remove_all(directory);
}

TEST(AForkedChild, CannotTakeItsParentsNamespaceAndDoesNotKeepIt) {
    const Loaded library;
    const std::string device = "mem:owned";
    mnkv_backend* const backend = library.Open(device);
    EXPECT_TRUE(InChild([&] {
        mnkv_backend* own = nullptr;
        return library.TryToOpen(device, own) == MNKV_FILE_LOCK_FAIL && own == nullptr;
    }));
    mnkv_backend* second = nullptr;
    EXPECT_EQ(library.TryToOpen(device, second), MNKV_FILE_LOCK_FAIL) << "after the child's end";

    const pid_t child = fork();
    if (child == 0) {
        pause();
        _exit(0);
    }
    ASSERT_GT(child, 0);
    EXPECT_EQ(library->backend_close(backend), MNKV_OK);
    EXPECT_EQ(library.TryToOpen(device, second), MNKV_OK) << "while the child lives";
    EXPECT_EQ(library->backend_close(second), MNKV_OK);
    kill(child, SIGKILL);
    EXPECT_EQ(waitpid(child, nullptr, 0), child);
}

TEST(AForkedChild, MayOpenABackendOfItsOwn) {
    const Loaded library;
    mnkv_backend* const backend = library.Open("mem:parent");
    EXPECT_TRUE(InChild([&] {
        const std::string payload(600000, 'x');
        std::string memory(payload.size(), '\0');
        mnkv_backend* const own = library.Open("mem:child");
        return library.Store(own, payload) == MNKV_OK && library.Load(own, memory) == MNKV_OK &&
               memory == payload && library->backend_close(own) == MNKV_OK;
    }));
    EXPECT_EQ(library->backend_close(backend), MNKV_OK);
}

}  // namespace
