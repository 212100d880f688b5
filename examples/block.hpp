// Blocks whose bytes are a function of their id, so that every load can be verified.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>

namespace block {

/// Blocks of another size are other objects: a device may hold several sizes.
inline std::string Key(uint64_t id, size_t size) {
    return "trace-block/" + std::to_string(size) + "/" + std::to_string(id);
}

namespace detail {
/// Calls `piece(offset, words, bytes)` for consecutive pieces of block `id`; stops at false.
template <typename Piece>
bool ForEachPiece(uint64_t id, size_t size, Piece piece) {
    uint64_t words[512];
    uint64_t state = id * 0xD1342543DE82EF95 + 1;
    for (size_t offset = 0; offset < size; offset += sizeof words) {
        for (uint64_t& word : words) {
            // splitmix64
            uint64_t mixed = (state += 0x9E3779B97F4A7C15);
            mixed = (mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9;
            mixed = (mixed ^ (mixed >> 27)) * 0x94D049BB133111EB;
            word = mixed ^ (mixed >> 31);
        }
        if (!piece(offset, words, std::min(sizeof words, size - offset))) return false;
    }
    return true;
}
}  // namespace detail

inline void Fill(uint64_t id, char* memory, size_t size) {
    detail::ForEachPiece(id, size, [memory](size_t offset, const uint64_t* words, size_t bytes) {
        std::memcpy(memory + offset, words, bytes);
        return true;
    });
}

inline bool Matches(uint64_t id, const char* memory, size_t size) {
    return detail::ForEachPiece(id, size,
                                [memory](size_t offset, const uint64_t* words, size_t bytes) {
                                    return std::memcmp(memory + offset, words, bytes) == 0;
                                });
}

}  // namespace block
