// Found in the place of Mooncake's header of this name: the class of that name is the library's.
//
// An alias, because the original class may be in the same program (its sources stay in Mooncake's
// archive), and two classes of one name corrupt memory.
#pragma once

#include "mooncake_nvme_kv/storage_backend.hpp"

namespace mooncake {

using NvmeKvStorageBackend = RustNvmeKvStorageBackend;

}  // namespace mooncake
