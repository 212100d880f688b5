//! What can be wrong with bytes read from a device, or with an object to be written.

use super::header::{HEADER_LEN, MAGIC};
use super::slot::MAX_SLOTS;
use super::{ChunkIndex, PhysicalKey};
use crate::error::{Error, ErrorCode};

/// A violation of the format, or an object that the format cannot hold.
///
/// Offsets are in bytes from the start of the parsed input. In a comparison `expected` is what the
/// format or the stored record demands, `got` what the bytes say.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LayoutError {
    /// Fewer bytes than the value needs; a read of at least `need` bytes may succeed.
    ///
    /// `need` comes from a header whose checksum agrees, yet anyone can write such a header: bound
    /// it by the device's value size before allocating.
    #[error("value is cut short: {need} bytes needed, got {got}")]
    Truncated {
        /// Bytes from the start of the value that are needed to go on.
        need: u64,
        /// Bytes present.
        got: u64,
    },
    /// The value is no root: a chunk, foreign data, or zeros.
    #[error("not a root value: expected magic {MAGIC:#010x} at offset 0, got {got:#010x}")]
    BadMagic {
        /// The first four bytes.
        got: u32,
    },
    /// A root of a kind that this version does not know.
    #[error(
        "unknown object type {got:#x} at offset 4 (known: 0x1, 0x2, 0x101, 0x102); \
         a newer version may be able to read it"
    )]
    UnknownType {
        /// The type field.
        got: u32,
    },
    /// Stored bytes do not match their checksum.
    #[error("{part} checksum mismatch: expected {expected:#010x}, got {got:#010x}")]
    ChecksumMismatch {
        /// Which bytes are damaged.
        part: ChecksumPart,
        /// The stored checksum.
        expected: u32,
        /// The checksum of the bytes read.
        got: u32,
    },
    /// The identity metadata cannot hold its fixed fields.
    #[error("identity metadata of {got} bytes at offset 52, at least {expected} needed")]
    IdentitySize {
        /// The least possible size.
        expected: u32,
        /// The size field of the header.
        got: u32,
    },
    /// The slot number is out of range.
    #[error("slot {got} at offset 72, expected less than {MAX_SLOTS}")]
    SlotOutOfRange {
        /// The slot field.
        got: u32,
    },
    /// The canonical identity has an encoding that this version does not know.
    #[error("identity encoding version {got} at offset {offset}, expected 1")]
    IdentityVersion {
        /// Where the version byte is.
        offset: usize,
        /// The version byte.
        got: u8,
    },
    /// The canonical identity is longer or shorter than its length field says.
    #[error("logical key length {expected} at offset {offset}, but {got} bytes follow")]
    IdentityLength {
        /// Where the length field is.
        offset: usize,
        /// The length field.
        expected: u32,
        /// Bytes that follow it.
        got: u64,
    },
    /// The header is that of the wanted key, but its identity metadata names another key or place.
    #[error(
        "the identity at offset {HEADER_LEN} is not that of the header's verify hash and place"
    )]
    IdentityMismatch,
    /// The manifest has another length than its chunk count demands.
    #[error("manifest of {got} bytes, expected {expected} for its chunk count at offset 4")]
    ManifestLength {
        /// Bytes that the chunk count demands.
        expected: u64,
        /// Bytes present.
        got: u64,
    },
    /// A manifest without chunks: an empty object is always inline.
    #[error("manifest without chunks (count 0 at offset 4)")]
    ManifestEmpty,
    /// A chunk is empty, or is not of the size that its position demands.
    ///
    /// Every chunk but the last has the size of the first, the last at most that.
    #[error("chunk {} of size {got} in a manifest with chunks of {expected} bytes", index.0)]
    ChunkSize {
        /// The chunk.
        index: ChunkIndex,
        /// Size of the manifest's first chunk.
        expected: u32,
        /// Size in the chunk's record.
        got: u32,
    },
    /// The chunks do not add up to the object.
    #[error("manifest of an object of {expected} bytes lists chunks of {got} bytes in all")]
    ManifestTotal {
        /// The logical payload size.
        expected: u32,
        /// The sum of the chunk sizes.
        got: u64,
    },
    /// A chunk record names a physical key that is not the one of its position.
    #[error("chunk {} is recorded at key {got:?}, expected {expected:?}", index.0)]
    ChunkKey {
        /// The chunk.
        index: ChunkIndex,
        /// The key derived from identity, slot and index.
        expected: PhysicalKey,
        /// The key in the record.
        got: PhysicalKey,
    },
    /// The object is larger than one manifest can describe.
    #[error(
        "object of {size} bytes, at most {limit} for this key and device; \
         store it in parts or raise the value size limit"
    )]
    TooLarge {
        /// Payload bytes.
        size: u64,
        /// The largest payload that this key can have.
        limit: u64,
    },
    /// The key leaves no room for a root value.
    #[error(
        "logical key of {len} bytes does not fit a device value of {max_value_size} bytes; \
         use a shorter key or a larger value size limit"
    )]
    KeyTooLong {
        /// Length of the key in bytes.
        len: u64,
        /// The largest value of the device in bytes.
        max_value_size: u32,
    },
}

/// The bytes that a checksum covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChecksumPart {
    /// The 56 bytes of a root's header.
    Header,
    /// A root's payload: an inline object, or a manifest.
    Payload,
    /// One chunk of an object.
    Chunk(ChunkIndex),
}

impl std::fmt::Display for ChecksumPart {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ChecksumPart::Header => f.write_str("header"),
            ChecksumPart::Payload => f.write_str("payload"),
            ChecksumPart::Chunk(index) => write!(f, "chunk {}", index.0),
        }
    }
}

impl LayoutError {
    /// Mooncake's code for this: damage is `CHECKSUM_MISMATCH`, an impossible object
    /// `INVALID_PARAMS`, anything else that is not what was stored `FILE_READ_FAIL`.
    pub fn code(&self) -> ErrorCode {
        match self {
            LayoutError::ChecksumMismatch { .. } => ErrorCode::ChecksumMismatch,
            LayoutError::TooLarge { .. } | LayoutError::KeyTooLong { .. } => {
                ErrorCode::InvalidParams
            }
            LayoutError::Truncated { .. }
            | LayoutError::BadMagic { .. }
            | LayoutError::UnknownType { .. }
            | LayoutError::IdentitySize { .. }
            | LayoutError::SlotOutOfRange { .. }
            | LayoutError::IdentityVersion { .. }
            | LayoutError::IdentityLength { .. }
            | LayoutError::IdentityMismatch
            | LayoutError::ManifestLength { .. }
            | LayoutError::ManifestEmpty
            | LayoutError::ChunkSize { .. }
            | LayoutError::ManifestTotal { .. }
            | LayoutError::ChunkKey { .. } => ErrorCode::FileReadFail,
        }
    }
}

impl From<LayoutError> for Error {
    fn from(error: LayoutError) -> Self {
        Error::new(error.code(), error.to_string())
    }
}
