/// The library's log lines in glog, where the including program has it.
#pragma once

#include <map>
#include <mutex>
#include <string_view>

#include "mooncake_nvme_kv.h"

namespace mooncake_nvme_kv {

/// Sends the log lines of a library to glog while at least one of these lives for it. Without glog
/// it does nothing, and lines go where the library sends them itself.
class LogToGlog {
   public:
    LogToGlog(const LogToGlog&) = delete;
    LogToGlog& operator=(const LogToGlog&) = delete;

#if defined(COMPACT_GOOGLE_LOG_ERROR)
    explicit LogToGlog(const mnkv_functions& functions) : functions_(functions) {
        const std::lock_guard lock(mutex_);
        if (users_[&functions_]++ == 0) functions_.set_log_callback(&LogToGlog::Line, nullptr);
    }
    // The callback may be code of a program part that is unloaded next.
    ~LogToGlog() {
        const std::lock_guard lock(mutex_);
        if (--users_[&functions_] == 0) functions_.set_log_callback(nullptr, nullptr);
    }

   private:
    static void Line(void*, int32_t level, const char* line, size_t size) noexcept {
        try {
            const std::string_view text(line, size);
            switch (level) {
                case MNKV_LOG_INFO:
                    LOG(INFO) << text;
                    break;
                case MNKV_LOG_WARNING:
                    LOG(WARNING) << text;
                    break;
                default:
                    LOG(ERROR) << text;
            }
        } catch (...) {
            // A line that cannot be written is lost.
        }
    }

    inline static std::mutex mutex_;
    inline static std::map<const mnkv_functions*, int> users_;

    const mnkv_functions& functions_;
#else
    explicit LogToGlog(const mnkv_functions&) {}
#endif
};

}  // namespace mooncake_nvme_kv
