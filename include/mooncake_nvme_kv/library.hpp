/// The library, loaded from a path at run time instead of linked.
#pragma once

#include <dlfcn.h>

#include <cstdint>
#include <memory>
#include <string>

#include "mooncake_nvme_kv.h"

namespace mooncake_nvme_kv {

/// Keeps a loaded library and gives its function table. Whoever uses the table holds a reference.
class Library {
   public:
    /// Loads `path`, as dlopen(3) understands it. NULL when that fails, and `why` says the reason.
    static std::shared_ptr<const Library> Load(const std::string& path, std::string& why) {
        void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
        if (handle == nullptr) {
            why = dlerror();
            return nullptr;
        }
        // Closes the handle whatever happens from here on.
        const std::shared_ptr<Library> library(new Library(handle));
        using GetFunctions = const mnkv_functions* (*)();
        const auto get =
            reinterpret_cast<GetFunctions>(dlsym(handle, "mnkv_functions_get"));
        if (get == nullptr) {
            why = path + ": not a mooncake_nvme_kv library, it has no mnkv_functions_get";
            return nullptr;
        }
        library->functions_ = get();
        // Additions since count in the lower half; see MNKV_ABI_VERSION.
        const uint32_t version = library->functions_->abi_version();
        if (version >> 16 != MNKV_ABI_VERSION >> 16 || version < MNKV_ABI_VERSION) {
            why = path + ": has ABI version " + std::to_string(version) +
                  ", this program needs version " + std::to_string(MNKV_ABI_VERSION) +
                  " or a later addition to it; install the library that the headers belong to";
            return nullptr;
        }
        return library;
    }

    Library(const Library&) = delete;
    Library& operator=(const Library&) = delete;
    ~Library() { dlclose(handle_); }

    /// Valid as long as this object.
    const mnkv_functions& functions() const { return *functions_; }

   private:
    explicit Library(void* handle) : handle_(handle) {}

    void* handle_;
    const mnkv_functions* functions_ = nullptr;
};

}  // namespace mooncake_nvme_kv
