// A request trace: which KV-cache blocks each request of an inference service needs, in order.
#pragma once

#include <cctype>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <random>
#include <stdexcept>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

namespace trace {

/// One request. An equal id is an equal block, so a prefix of ids seen before can be reused.
using Request = std::vector<uint64_t>;

/// Block ids of one line of Mooncake's published traces: a JSON object whose "hash_ids" is an
/// array of non-negative integers.
inline Request ParseLine(std::string_view line) {
    constexpr std::string_view kName = "\"hash_ids\"";
    auto skip_blanks = [&line] {
        while (!line.empty() && std::isspace(static_cast<unsigned char>(line.front())))
            line.remove_prefix(1);
    };
    auto expect = [&](char wanted) {
        skip_blanks();
        if (line.empty() || line.front() != wanted)
            throw std::runtime_error(std::string("expected '") + wanted + "' in hash_ids");
        line.remove_prefix(1);
    };
    const size_t name = line.find(kName);
    if (name == std::string_view::npos) throw std::runtime_error("no \"hash_ids\" in it");
    line.remove_prefix(name + kName.size());
    expect(':');
    expect('[');
    Request ids;
    for (skip_blanks(); line.empty() || line.front() != ']'; skip_blanks()) {
        if (!ids.empty()) expect(',');
        skip_blanks();
        uint64_t id = 0;
        const auto [end, error] = std::from_chars(line.data(), line.data() + line.size(), id);
        if (error != std::errc{}) throw std::runtime_error("hash_ids holds something else than ids");
        line.remove_prefix(static_cast<size_t>(end - line.data()));
        ids.push_back(id);
    }
    return ids;
}

/// The first `limit` requests of a JSONL file.
inline std::vector<Request> Read(const std::string& path, size_t limit) {
    std::ifstream file(path);
    if (!file) throw std::runtime_error(path + ": cannot be opened; give a JSONL request trace");
    std::vector<Request> requests;
    std::string line;
    for (size_t number = 1; requests.size() < limit && std::getline(file, line); ++number) {
        if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
        try {
            requests.push_back(ParseLine(line));
        } catch (const std::runtime_error& error) {
            throw std::runtime_error(path + ":" + std::to_string(number) + ": " + error.what());
        }
    }
    return requests;
}

/// Requests shaped like the published conversation trace: all share a system prompt (block 0), most
/// begin a conversation, the others take a turn in one that is under way; about 28 blocks a request,
/// at most 247. Equal seeds give equal traces.
inline std::vector<Request> Generate(uint64_t seed, size_t count) {
    constexpr size_t kLongest = 247;
    std::mt19937_64 random(seed);
    auto below = [&random](size_t bound) { return static_cast<size_t>(random() % bound); };
    std::vector<Request> requests, conversations;
    uint64_t next_id = 1;
    while (requests.size() < count) {
        const bool takes_a_turn = !conversations.empty() && below(100) < 25;
        if (!takes_a_turn) conversations.push_back({0});
        auto& conversation =
            takes_a_turn ? conversations[below(conversations.size())] : conversations.back();
        // A product of two uniform lengths: many short prompts, few long ones.
        size_t grows_by = takes_a_turn ? 1 + below(12) : 1 + below(10) * below(11);
        for (; grows_by > 0 && conversation.size() < kLongest; --grows_by)
            conversation.push_back(next_id++);
        requests.push_back(conversation);
    }
    return requests;
}

/// How many different blocks the requests need.
inline size_t DistinctBlocks(const std::vector<Request>& requests) {
    std::unordered_set<uint64_t> ids;
    for (const Request& request : requests) ids.insert(request.begin(), request.end());
    return ids.size();
}

}  // namespace trace
