// Replays a request trace on the NVMe Key-Value backend through Mooncake's storage interface, opens
// the device again and verifies every block byte by byte. `trace_replay --help` says how.

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <charconv>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "mooncake_nvme_kv/storage_backend.hpp"
#include "replay.hpp"
#include "trace.hpp"

namespace {

constexpr char kUsage[] =
    "usage: trace_replay [--trace FILE] [--block-bytes N] [--requests N] [--device DIR|mem:NAME]\n"
    "\n"
    "  --trace FILE       JSONL with \"hash_ids\" in every line; without it a trace of the same\n"
    "                     shape is generated from the seed in MNKV_SEED (default 1)\n"
    "  --block-bytes N    bytes of a block (default 262144)\n"
    "  --requests N       requests to replay, from the start of the trace (default 100)\n"
    "  --device DIR|mem:NAME\n"
    "                     an emulated namespace in a directory or in memory (default\n"
    "                     mem:trace-replay); a path below /dev is a device node\n"
    "\n"
    "The last line of a good run is \"0 mismatches\"; any other run exits with a status other than 0.\n";

struct Options {
    std::string trace;
    size_t block_bytes = 262144;
    size_t requests = 100;
    std::string device = "mem:trace-replay";
    /// Set in the process that only opens the device again and verifies.
    bool verify = false;
};

size_t ParseCount(const std::string& name, const char* text) {
    size_t value = 0;
    const char* end = text + std::strlen(text);
    const auto parsed = std::from_chars(text, end, value);
    if (parsed.ec != std::errc{} || parsed.ptr != end || value == 0)
        throw std::runtime_error(name + " " + text + ": give a whole number above 0");
    return value;
}

Options ParseOptions(int argc, char** argv) {
    Options options;
    for (int i = 1; i < argc; ++i) {
        const std::string name = argv[i];
        if (name == "--help") {
            std::fputs(kUsage, stdout);
            std::exit(0);
        }
        if (name == "--verify") {
            options.verify = true;
            continue;
        }
        if (i + 1 == argc) throw std::runtime_error(name + ": unknown or without a value\n" + kUsage);
        const char* value = argv[++i];
        if (name == "--trace")
            options.trace = value;
        else if (name == "--block-bytes")
            options.block_bytes = ParseCount(name, value);
        else if (name == "--requests")
            options.requests = ParseCount(name, value);
        else if (name == "--device")
            options.device = value;
        else
            throw std::runtime_error(name + ": unknown\n" + kUsage);
    }
    return options;
}

std::vector<trace::Request> Requests(const Options& options) {
    if (!options.trace.empty()) return trace::Read(options.trace, options.requests);
    const char* seed = std::getenv("MNKV_SEED");
    return trace::Generate(seed ? ParseCount("MNKV_SEED", seed) : 1, options.requests);
}

std::unique_ptr<mooncake::StorageBackendInterface> Open(const Options& options) {
    setenv("MOONCAKE_NVME_KV_DEVICE_PATH", options.device.c_str(), 1);
    if (options.device.rfind("/dev/", 0) != 0) setenv("MOONCAKE_NVME_KV_TRANSPORT", "emulated", 1);
    auto backend =
        std::make_unique<mooncake::RustNvmeKvStorageBackend>(mooncake::FileStorageConfig{});
    // The reason is in the log.
    if (!backend->Init()) throw std::runtime_error(options.device + ": cannot be opened");
    return backend;
}

replay::Result Verify(const Options& options, const std::vector<trace::Request>& requests) {
    const auto backend = Open(options);
    return replay::Replay(*backend, options.block_bytes).Verify(requests);
}

// The verifying process hands its result to the replaying one as text: mismatches, objects, bytes,
// then the seconds of each call.

void PrintResult(const replay::Result& result) {
    std::printf("%" PRIu64 " %" PRIu64 " %" PRIu64, result.mismatches, result.load.objects,
                result.load.bytes);
    for (const double seconds : result.load.call_seconds) std::printf(" %.9f", seconds);
    std::printf("\n");
}

replay::Result ReadResult(std::FILE* from) {
    replay::Result result;
    if (std::fscanf(from, "%" SCNu64 " %" SCNu64 " %" SCNu64, &result.mismatches,
                    &result.load.objects, &result.load.bytes) != 3)
        throw std::runtime_error("the verifying process reported nothing");
    for (double seconds = 0; std::fscanf(from, "%lf", &seconds) == 1;)
        result.load.call_seconds.push_back(seconds);
    return result;
}

/// Verifies in a new process, which knows nothing but what is on the device.
replay::Result VerifyInNewProcess(const std::vector<std::string>& arguments) {
    std::vector<char*> argv;
    for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
    argv.push_back(nullptr);
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) throw std::runtime_error("pipe2 failed");
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
    pid_t child = 0;
    const int error = posix_spawn(&child, "/proc/self/exe", &actions, nullptr, argv.data(), environ);
    posix_spawn_file_actions_destroy(&actions);
    close(ends[1]);
    const std::unique_ptr<std::FILE, int (*)(std::FILE*)> output(fdopen(ends[0], "r"), std::fclose);
    if (error != 0) throw std::runtime_error("no new process: " + std::string(std::strerror(error)));
    replay::Result result = ReadResult(output.get());
    int status = 0;
    if (waitpid(child, &status, 0) != child || status != 0)
        throw std::runtime_error("the verifying process failed");
    return result;
}

void PrintTraffic(const char* name, const replay::Traffic& traffic) {
    const double seconds = traffic.Seconds();
    const double gigabytes = static_cast<double>(traffic.bytes) / 1e9;
    std::printf("%-14s %9" PRIu64 " %9.3f %8.3f %11.0f %9.3f %9.3f\n", name, traffic.objects,
                gigabytes, seconds > 0 ? gigabytes / seconds : 0,
                seconds > 0 ? static_cast<double>(traffic.objects) / seconds : 0,
                traffic.Percentile(0.50) * 1e3, traffic.Percentile(0.99) * 1e3);
}

int Main(int argc, char** argv) {
    const Options options = ParseOptions(argc, argv);
    const std::vector<trace::Request> requests = Requests(options);
    if (requests.empty()) throw std::runtime_error(options.trace + ": holds no request");
    if (options.verify) {
        PrintResult(Verify(options, requests));
        return 0;
    }

    replay::Result replayed;
    {
        const auto backend = Open(options);
        replayed = replay::Replay(*backend, options.block_bytes).Run(requests);
    }
    // A namespace in memory ends with its process.
    const bool in_memory = options.device.rfind("mem:", 0) == 0;
    std::vector<std::string> arguments(argv, argv + argc);
    arguments.push_back("--verify");
    const replay::Result reopened =
        in_memory ? Verify(options, requests) : VerifyInNewProcess(arguments);

    const size_t distinct = trace::DistinctBlocks(requests);
    const double hits = replayed.lookups == 0
                            ? 0
                            : 100.0 * static_cast<double>(replayed.lookups - replayed.offload.objects) /
                                  static_cast<double>(replayed.lookups);
    std::printf("device         %s\n", options.device.c_str());
    std::printf("requests       %zu\n", requests.size());
    std::printf("blocks         %" PRIu64 ", %zu of them distinct, %zu bytes each\n",
                replayed.lookups, distinct, options.block_bytes);
    std::printf("hit rate       %.1f %%\n\n", hits);
    std::printf("%-14s %9s %9s %8s %11s %9s %9s\n", "", "blocks", "GB", "GB/s", "blocks/s", "p50 ms",
                "p99 ms");
    PrintTraffic("offload", replayed.offload);
    PrintTraffic("load", replayed.load);
    PrintTraffic("load, reopened", reopened.load);
    std::printf("(p50 and p99 are of one call, which moves the blocks of a request, 64 MiB at most)\n\n");
    const uint64_t mismatches = replayed.mismatches + reopened.mismatches;
    const bool complete = reopened.load.objects == distinct;
    std::printf("verification   %s: %" PRIu64 " loads compared byte by byte, %" PRIu64
                " of them after reopening in %s\n",
                mismatches == 0 && complete ? "passed" : "FAILED",
                replayed.load.objects + reopened.load.objects, reopened.load.objects,
                in_memory ? "a fresh backend" : "a new process");
    std::printf("%" PRIu64 " mismatches\n", mismatches);
    return mismatches == 0 && complete ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
    try {
        return Main(argc, argv);
    } catch (const std::exception& error) {
        std::fprintf(stderr, "trace_replay: %s\n", error.what());
        return 2;
    }
}
