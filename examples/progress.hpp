// Progress on standard error: a bar on a terminal, one line a tenth elsewhere.
#pragma once

#include <unistd.h>

#include <chrono>
#include <cstddef>
#include <cstdio>
#include <string>

class Progress {
   public:
    Progress(std::string label, size_t total)
        : label_(std::move(label)), total_(total), on_terminal_(isatty(STDERR_FILENO) == 1) {}

    void Advance(size_t done) {
        if (total_ == 0) return;
        const size_t tenth = done * 10 / total_;
        if (on_terminal_) {
            // Twenty frames a second are enough for an eye.
            const auto now = std::chrono::steady_clock::now();
            if (done < total_ && now - drawn_ < std::chrono::milliseconds(50)) return;
            drawn_ = now;
            constexpr size_t kWidth = 40;
            const size_t filled = done * kWidth / total_;
            const std::string bar = std::string(filled, '#') + std::string(kWidth - filled, ' ');
            std::fprintf(stderr, "\r%-8s [%s] %zu/%zu%s", label_.c_str(), bar.c_str(), done, total_,
                         done == total_ ? "\n" : "");
        } else if (tenth > tenth_) {
            tenth_ = tenth;
            std::fprintf(stderr, "%s: %zu of %zu\n", label_.c_str(), done, total_);
        }
    }

   private:
    const std::string label_;
    const size_t total_;
    const bool on_terminal_;
    size_t tenth_ = 0;
    std::chrono::steady_clock::time_point drawn_;
};
