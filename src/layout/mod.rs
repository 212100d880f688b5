//! The bytes on the device: pure functions from bytes to bytes.
//!
//! A logical object is one *root* value and, when it does not fit one device value, the *chunks*
//! that the root's manifest lists. The format is the one Mooncake Store's C++ NVMe KV backend
//! writes (kvcache-ai/Mooncake at 3b5a5941), so either can read the other's objects from one
//! device. All integers are little-endian.
//!
//! ```text
//! root value     header (56) | identity metadata | payload
//! identity       physical key (16) | slot (4) | canonical identity (5 + key)
//! payload        inline: the object's bytes      manifest: see `Manifest`
//! chunk value    raw bytes of the object, nothing else
//! ```
//!
//! Nothing here does I/O, reads a clock or the environment. Every parser accepts arbitrary bytes:
//! it answers with a [`LayoutError`], never panics and never allocates more than its input
//! justifies.

mod checksum;
mod error;
mod header;
mod identity;
mod key_codec;
mod manifest;
mod plan;
mod root;
mod slot;

pub use checksum::{ChecksumKind, Hasher};
pub use error::{ChecksumPart, LayoutError};
pub use header::{HEADER_LEN, Header, MAGIC, ObjectKind};
pub use identity::{canonical_identity, parse_identity};
pub use key_codec::{KeyCodec, ObjectKeys, XxhKeyCodec};
pub use manifest::{ChunkRecord, Manifest};
pub use nvme_kv_command_set::PhysicalKey;
pub use plan::{
    Limits, ReadPlan, WritePlan, chunk_range, max_object_size, read_plan, root_value_len,
    write_plan,
};
pub use root::{RootPrefix, carried_key, parse_root_prefix, root_prefix, root_prefix_len};
pub use slot::{ChunkIndex, MAX_SLOTS, Slot};
