// The class that Mooncake's factory makes and the one that its own test sees are the library's, and
// they store and load. Exit status 0 when they do.
#include "@HEADER@"

#include <cstdio>
#include <memory>
#include <string>

namespace mooncake {
std::shared_ptr<StorageBackendInterface> CreateStorageBackend(const FileStorageConfig& config);
}

namespace {

using namespace mooncake;

bool StoresAndLoads(StorageBackendInterface& backend, const std::string& key) {
    if (!backend.Init()) return false;
    std::string payload(1000000, '\0');
    for (size_t i = 0; i < payload.size(); ++i) payload[i] = static_cast<char>(i * 31 / 7);
    const auto stored = backend.BatchOffload(
        {{key, {Slice{payload.data(), payload.size()}}}},
        [](const std::vector<std::string>&, std::vector<StorageObjectMetadata>&) {
            return ErrorCode::OK;
        });
    // With room behind it, as Mooncake's FileStorage has.
    std::string loaded(payload.size() + 4096, '\0');
    std::unordered_map<std::string, Slice> batch{{key, Slice{loaded.data(), payload.size()}}};
    return stored && *stored == 1 && backend.BatchLoad(batch) && loaded.starts_with(payload) &&
           backend.IsExist(key).value_or(false);
}

bool Check(const char* what, bool passed) {
    std::printf("test %s ... %s\n", what, passed ? "ok" : "FAILED");
    return passed;
}

}  // namespace

int main() {
    const FileStorageConfig config;
    auto made = CreateStorageBackend(config);
    bool passed = Check("what_the_factory_makes_stores_and_loads", StoresAndLoads(*made, "made"));
    passed &= Check("the_factory_and_the_test_mean_the_same_class",
                    dynamic_cast<NvmeKvStorageBackend*>(made.get()) != nullptr);
    made.reset();  // one backend owns a namespace
    NvmeKvStorageBackend seen(config);
    passed &= Check("what_the_test_sees_stores_and_loads", StoresAndLoads(seen, "seen"));
    return passed ? 0 : 1;
}
