// Found in the place of Mooncake's header of this name: the class of that name is the library's.
//
// An alias, because the original class may be in the same program (its sources stay in Mooncake's
// archive), and two classes of one name corrupt memory.
#pragma once

#include "mooncake_nvme_kv/storage_backend.hpp"

namespace mooncake_nvme_kv {

/// A backend whose users keep `bytes` writable behind every destination.
template <size_t bytes>
class WithDestinationSlack : public mooncake::RustNvmeKvStorageBackend {
   public:
    explicit WithDestinationSlack(const mooncake::FileStorageConfig& config)
        : RustNvmeKvStorageBackend(config, {.destination_slack = bytes}) {}
};

}  // namespace mooncake_nvme_kv

namespace mooncake {

#ifdef MOONCAKE_NVME_KV_DESTINATION_SLACK  // the kit's setting, for Mooncake's factory only
using NvmeKvStorageBackend =
    mooncake_nvme_kv::WithDestinationSlack<MOONCAKE_NVME_KV_DESTINATION_SLACK>;
#else
using NvmeKvStorageBackend = RustNvmeKvStorageBackend;
#endif

}  // namespace mooncake
