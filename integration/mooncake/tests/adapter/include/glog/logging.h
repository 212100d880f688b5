// The little of glog that the adapter uses: keeps lines instead of writing them.
#pragma once

#include <mutex>
#include <sstream>
#include <string>
#include <vector>

namespace glog_stand_in {

inline std::mutex mutex;
inline std::vector<std::string> lines;

class Line {
   public:
    explicit Line(const char* severity) { text_ << severity << ' '; }
    ~Line() {
        const std::lock_guard lock(mutex);
        lines.push_back(text_.str());
    }
    template <typename T>
    Line& operator<<(const T& value) {
        text_ << value;
        return *this;
    }

   private:
    std::ostringstream text_;
};

inline std::string All() {
    const std::lock_guard lock(mutex);
    std::string all;
    for (const std::string& line : lines) all += line + '\n';
    return all;
}

}  // namespace glog_stand_in

#define COMPACT_GOOGLE_LOG_ERROR
#define LOG(severity) glog_stand_in::Line(#severity)
