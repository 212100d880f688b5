/// Tells memory of a GPU from memory that the CPU, and so the backend, can read and write.
#pragma once

#include <dlfcn.h>

#include <cstdint>

namespace mooncake_nvme_kv {

/// Asks the CUDA driver, when the program has loaded it. Other makers' pointers are not recognised.
class DeviceMemory {
   public:
    DeviceMemory() : driver_(dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD)) {
        if (driver_ != nullptr)
            get_attribute_ =
                reinterpret_cast<GetAttribute>(dlsym(driver_, "cuPointerGetAttribute"));
    }
    DeviceMemory(const DeviceMemory&) = delete;
    DeviceMemory& operator=(const DeviceMemory&) = delete;
    ~DeviceMemory() {
        if (driver_ != nullptr) dlclose(driver_);
    }

    /// False also for memory that the driver does not know. Managed memory belongs to both sides.
    bool Holds(const void* pointer) const {
        return Attribute(kMemoryType, pointer) == kDevice && Attribute(kIsManaged, pointer) == 0;
    }

   private:
    // CUresult cuPointerGetAttribute(void* data, CUpointer_attribute attribute, CUdeviceptr ptr)
    using GetAttribute = int (*)(void* data, int attribute, uint64_t pointer);
    // CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_IS_MANAGED, CU_MEMORYTYPE_DEVICE
    static constexpr int kMemoryType = 2;
    static constexpr int kIsManaged = 8;
    static constexpr unsigned kDevice = 2;

    /// 0 where there is no answer.
    unsigned Attribute(int attribute, const void* pointer) const {
        // Some attributes have one byte, others four.
        unsigned value = 0;
        if (get_attribute_ == nullptr ||
            get_attribute_(&value, attribute, reinterpret_cast<uintptr_t>(pointer)) != 0)
            return 0;
        return value;
    }

    void* driver_;
    GetAttribute get_attribute_ = nullptr;
};

}  // namespace mooncake_nvme_kv
