/// The library, loaded from a path at run time instead of linked.
#pragma once

#include <dlfcn.h>

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
        if (library->functions_->size < sizeof(mnkv_functions)) {
            why = path + ": its function table has " + std::to_string(library->functions_->size) +
                  " bytes, this program needs " + std::to_string(sizeof(mnkv_functions)) +
                  "; install a library that is not older than the headers";
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
