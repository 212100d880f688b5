// Replaying requests against a storage backend, and reading every block back.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "block.hpp"
#include "progress.hpp"
#include "storage_backend.h"
#include "trace.hpp"

namespace replay {

/// What went over the interface one way. Only the time inside its calls counts.
struct Traffic {
    uint64_t objects = 0;
    uint64_t bytes = 0;
    std::vector<double> call_seconds;

    double Seconds() const {
        double sum = 0;
        for (const double seconds : call_seconds) sum += seconds;
        return sum;
    }
    /// The time that `share` (0 to 1) of the calls did not exceed.
    double Percentile(double share) const {
        if (call_seconds.empty()) return 0;
        std::vector<double> sorted = call_seconds;
        std::sort(sorted.begin(), sorted.end());
        return sorted[static_cast<size_t>(share * static_cast<double>(sorted.size() - 1) + 0.5)];
    }
};

struct Result {
    uint64_t lookups = 0;
    Traffic offload, load;
    uint64_t mismatches = 0;
};

class Replay {
   public:
    Replay(mooncake::StorageBackendInterface& backend, size_t block_size)
        : backend_(backend),
          block_size_(block_size),
          blocks_at_once_(std::max<size_t>(1, kBytesAtOnce / Stride())) {}

    /// For each request: loads and verifies the blocks that are stored, offloads the others.
    Result Run(const std::vector<trace::Request>& requests) {
        Progress progress("replay", requests.size());
        for (size_t done = 0; done < requests.size(); progress.Advance(++done))
            InPieces(requests[done], [this](const std::vector<uint64_t>& ids) { Serve(ids); });
        return std::move(result_);
    }

    /// Loads and verifies every block that `requests` need, once, at its first use.
    Result Verify(const std::vector<trace::Request>& requests) {
        Progress progress("verify", requests.size());
        std::unordered_set<uint64_t> seen;
        for (size_t done = 0; done < requests.size(); progress.Advance(++done)) {
            std::vector<uint64_t> ids;
            for (const uint64_t id : requests[done])
                if (seen.insert(id).second) ids.push_back(id);
            InPieces(ids, [this](const std::vector<uint64_t>& piece) { Load(piece); });
        }
        return std::move(result_);
    }

   private:
    static constexpr size_t kBytesAtOnce = size_t{64} << 20;
    static constexpr size_t kAlignment = 4096;

    template <typename Piece>
    void InPieces(const std::vector<uint64_t>& ids, Piece piece) const {
        for (size_t begin = 0; begin < ids.size(); begin += blocks_at_once_) {
            const size_t end = std::min(ids.size(), begin + blocks_at_once_);
            piece({ids.begin() + static_cast<ptrdiff_t>(begin),
                   ids.begin() + static_cast<ptrdiff_t>(end)});
        }
    }

    void Serve(const std::vector<uint64_t>& ids) {
        std::vector<uint64_t> stored, missing;
        std::unordered_set<uint64_t> seen;
        for (const uint64_t id : ids) {
            ++result_.lookups;
            if (!seen.insert(id).second) continue;
            const auto exists = backend_.IsExist(block::Key(id, block_size_));
            if (!exists) throw Failure("IsExist", exists.error());
            (*exists ? stored : missing).push_back(id);
        }
        if (!stored.empty()) Load(stored);
        if (!missing.empty()) Offload(missing);
    }

    void Offload(const std::vector<uint64_t>& ids) {
        std::unordered_map<std::string, std::vector<mooncake::Slice>> batch;
        for (size_t i = 0; i < ids.size(); ++i) {
            block::Fill(ids[i], Memory(i), block_size_);
            batch[block::Key(ids[i], block_size_)] = {{Memory(i), block_size_}};
        }
        size_t completed = 0;
        const auto begin = Clock::now();
        const auto stored = backend_.BatchOffload(
            batch, [&completed](const std::vector<std::string>& keys, auto&) {
                completed += keys.size();
                return mooncake::ErrorCode::OK;
            });
        Count(result_.offload, ids.size(), begin);
        if (!stored) throw Failure("BatchOffload", stored.error());
        if (completed != ids.size())
            throw std::runtime_error("BatchOffload reported " + std::to_string(completed) +
                                     " blocks of " + std::to_string(ids.size()));
    }

    void Load(const std::vector<uint64_t>& ids) {
        std::unordered_map<std::string, mooncake::Slice> batch;
        for (size_t i = 0; i < ids.size(); ++i)
            batch[block::Key(ids[i], block_size_)] = {Memory(i), block_size_};
        const auto begin = Clock::now();
        const auto loaded = backend_.BatchLoad(batch);
        Count(result_.load, ids.size(), begin);
        if (!loaded) throw Failure("BatchLoad", loaded.error());
        for (size_t i = 0; i < ids.size(); ++i) {
            if (block::Matches(ids[i], Memory(i), block_size_)) continue;
            ++result_.mismatches;
            std::fprintf(stderr, "block %llu: other bytes than were stored\n",
                         static_cast<unsigned long long>(ids[i]));
        }
    }

    /// Memory of the block at `position` of a piece.
    char* Memory(size_t position) {
        if (!memory_) {
            const size_t size = blocks_at_once_ * Stride();
            memory_.reset(static_cast<char*>(std::aligned_alloc(kAlignment, size)));
            if (!memory_) throw std::bad_alloc();
        }
        return memory_.get() + position * Stride();
    }
    size_t Stride() const { return (block_size_ + kAlignment - 1) / kAlignment * kAlignment; }

    using Clock = std::chrono::steady_clock;
    void Count(Traffic& traffic, size_t objects, Clock::time_point begin) const {
        traffic.call_seconds.push_back(std::chrono::duration<double>(Clock::now() - begin).count());
        traffic.objects += objects;
        traffic.bytes += objects * block_size_;
    }

    static std::runtime_error Failure(const std::string& call, mooncake::ErrorCode code) {
        return std::runtime_error(call + " failed with " +
                                  std::to_string(static_cast<int>(code)));
    }

    struct Free {
        void operator()(char* memory) const { std::free(memory); }
    };

    mooncake::StorageBackendInterface& backend_;
    const size_t block_size_;
    const size_t blocks_at_once_;
    std::unique_ptr<char, Free> memory_;
    Result result_;
};

}  // namespace replay
