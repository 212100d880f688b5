// Ends with backends open and calls under way. A crash, a hang or another status is the failure.
#include <cstdlib>
#include <future>
#include <string>
#include <thread>

#include "mooncake_nvme_kv.h"

namespace {

mnkv_backend* Open(const char* device) {
    mnkv_config config{};
    config.struct_size = sizeof config;
    config.device_path = device;
    config.transport = MNKV_TRANSPORT_EMULATED;
    mnkv_backend* backend = nullptr;
    if (mnkv_backend_open(&config, &backend) != MNKV_OK) std::abort();
    return backend;
}

/// Closes after main has ended, as a global object of a program may do.
struct Global {
    ~Global() {
        if (mnkv_backend_close(backend) != MNKV_OK) std::abort();
    }
    mnkv_backend* backend = nullptr;
} global;

}  // namespace

int main(int argc, char** argv) {
    if (argc != 2) return 2;
    const std::string directory = argv[1];
    global.backend = Open("mem:global");
    mnkv_backend* const in_memory = Open("mem:left-open");
    mnkv_backend* const in_directory = Open((directory + "/device").c_str());

    std::promise<void> under_way;
    for (mnkv_backend* const backend : {in_memory, in_directory}) {
        std::thread([backend, &under_way, in_memory] {
            const std::string payload(300000, 'x');
            const mnkv_slice slice{payload.data(), payload.size()};
            for (size_t round = 0;; ++round) {
                const std::string key = std::to_string(round % 100);
                const mnkv_object object{sizeof object, key.data(), key.size(), &slice, 1};
                mnkv_backend_offload(backend, &object, 1, nullptr, nullptr, nullptr, nullptr);
                if (round == 10 && backend == in_memory) under_way.set_value();
            }
        }).detach();
    }
    under_way.get_future().wait();
    std::exit(0);
}
