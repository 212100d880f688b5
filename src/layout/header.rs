//! The header that opens every root value.
//!
//! ```text
//! offset  size  field
//!      0     4  magic 0x4e564b56
//!      4     4  object type: 1 inline, 2 manifest; +0x100 when the checksums are CRC-32
//!      8     4  payload size
//!     12    32  verify hash
//!     44     4  payload checksum
//!     48     4  header checksum: of these 56 bytes with this field zero
//!     52     4  identity metadata size
//! ```

use super::{ChecksumKind, ChecksumPart, LayoutError};

/// Length of a header in bytes.
pub const HEADER_LEN: usize = 56;

/// First four bytes of every root value; `56 4b 56 4e` on the device.
pub const MAGIC: u32 = 0x4e56_4b56;

/// What a root's payload is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ObjectKind {
    /// The object's own bytes.
    Inline,
    /// A [`Manifest`](super::Manifest) that lists the object's chunks.
    Manifest,
}

/// The decoded header of a root value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// What the payload is.
    pub kind: ObjectKind,
    /// The checksum of header, payload and chunks.
    pub checksum: ChecksumKind,
    /// Bytes of payload in the root value: the object, or its manifest.
    pub payload_size: u32,
    /// Hash of the canonical identity; see [`ObjectKeys::verify_hash`](super::ObjectKeys::verify_hash).
    pub verify_hash: [u8; 32],
    /// Checksum of the payload.
    pub payload_checksum: u32,
    /// Bytes between header and payload.
    pub identity_metadata_size: u32,
}

impl Header {
    /// The header's bytes, header checksum included.
    pub fn encode(&self) -> [u8; HEADER_LEN] {
        let mut bytes = [0; HEADER_LEN];
        put::<MAGIC_AT, 4>(&mut bytes, MAGIC.to_le_bytes());
        put::<TYPE_AT, 4>(&mut bytes, type_code(self.kind, self.checksum).to_le_bytes());
        put::<PAYLOAD_SIZE_AT, 4>(&mut bytes, self.payload_size.to_le_bytes());
        put::<VERIFY_HASH_AT, 32>(&mut bytes, self.verify_hash);
        put::<PAYLOAD_CHECKSUM_AT, 4>(&mut bytes, self.payload_checksum.to_le_bytes());
        put::<IDENTITY_SIZE_AT, 4>(&mut bytes, self.identity_metadata_size.to_le_bytes());
        let checksum = self.checksum.of_slice(&bytes);
        put::<HEADER_CHECKSUM_AT, 4>(&mut bytes, checksum.to_le_bytes());
        bytes
    }

    /// Decodes the header at the start of `bytes`; what follows it is ignored.
    ///
    /// # Errors
    /// [`LayoutError::Truncated`], [`LayoutError::BadMagic`], [`LayoutError::UnknownType`], or
    /// [`LayoutError::ChecksumMismatch`] of the header.
    pub fn parse(bytes: &[u8]) -> Result<Header, LayoutError> {
        let Some(bytes) = bytes.first_chunk::<HEADER_LEN>() else {
            return Err(LayoutError::Truncated {
                need: HEADER_LEN as u64,
                got: bytes.len() as u64,
            });
        };
        let magic = u32_at::<MAGIC_AT>(bytes);
        if magic != MAGIC {
            return Err(LayoutError::BadMagic { got: magic });
        }
        let code = u32_at::<TYPE_AT>(bytes);
        let (kind, checksum) = kind_of_type(code).ok_or(LayoutError::UnknownType { got: code })?;

        let mut unsigned = *bytes;
        put::<HEADER_CHECKSUM_AT, 4>(&mut unsigned, [0; 4]);
        let expected = u32_at::<HEADER_CHECKSUM_AT>(bytes);
        let got = checksum.of_slice(&unsigned);
        if got != expected {
            return Err(LayoutError::ChecksumMismatch {
                part: ChecksumPart::Header,
                expected,
                got,
            });
        }
        Ok(Header {
            kind,
            checksum,
            payload_size: u32_at::<PAYLOAD_SIZE_AT>(bytes),
            verify_hash: get::<VERIFY_HASH_AT, 32>(bytes),
            payload_checksum: u32_at::<PAYLOAD_CHECKSUM_AT>(bytes),
            identity_metadata_size: u32_at::<IDENTITY_SIZE_AT>(bytes),
        })
    }
}

const MAGIC_AT: usize = 0;
const TYPE_AT: usize = 4;
const PAYLOAD_SIZE_AT: usize = 8;
const VERIFY_HASH_AT: usize = 12;
const PAYLOAD_CHECKSUM_AT: usize = 44;
const HEADER_CHECKSUM_AT: usize = 48;
const IDENTITY_SIZE_AT: usize = 52;

fn type_code(kind: ObjectKind, checksum: ChecksumKind) -> u32 {
    match (kind, checksum) {
        (ObjectKind::Inline, ChecksumKind::Xxh32) => 0x1,
        (ObjectKind::Manifest, ChecksumKind::Xxh32) => 0x2,
        (ObjectKind::Inline, ChecksumKind::Crc32) => 0x101,
        (ObjectKind::Manifest, ChecksumKind::Crc32) => 0x102,
    }
}

fn kind_of_type(code: u32) -> Option<(ObjectKind, ChecksumKind)> {
    match code {
        0x1 => Some((ObjectKind::Inline, ChecksumKind::Xxh32)),
        0x2 => Some((ObjectKind::Manifest, ChecksumKind::Xxh32)),
        0x101 => Some((ObjectKind::Inline, ChecksumKind::Crc32)),
        0x102 => Some((ObjectKind::Manifest, ChecksumKind::Crc32)),
        _ => None,
    }
}

fn get<const AT: usize, const N: usize>(bytes: &[u8; HEADER_LEN]) -> [u8; N] {
    const { assert!(AT + N <= HEADER_LEN) };
    let mut field = [0; N];
    field.copy_from_slice(&bytes[AT..AT + N]);
    field
}

fn u32_at<const AT: usize>(bytes: &[u8; HEADER_LEN]) -> u32 {
    u32::from_le_bytes(get::<AT, 4>(bytes))
}

fn put<const AT: usize, const N: usize>(bytes: &mut [u8; HEADER_LEN], field: [u8; N]) {
    const { assert!(AT + N <= HEADER_LEN) };
    bytes[AT..AT + N].copy_from_slice(&field);
}
