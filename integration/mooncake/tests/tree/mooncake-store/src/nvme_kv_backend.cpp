#include "@HEADER@"

namespace mooncake {

tl::expected<void, ErrorCode> NvmeKvStorageBackend::Init() {
    members_.fill('o');
    return tl::unexpected(kOriginal);
}

}  // namespace mooncake
