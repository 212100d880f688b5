//! How an object of a given size is laid out, decided from sizes alone.

use std::ops::Range;

use super::manifest::{MANIFEST_FIXED_LEN, RECORD_LEN, manifest_len};
use super::root::root_prefix_len;
use super::{ChunkIndex, LayoutError};

/// What the device can take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Largest value in bytes; also the size of every chunk but an object's last.
    pub max_value_size: u32,
}

/// The values that an object becomes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WritePlan {
    /// One root value that holds the payload.
    Inline,
    /// A root value with a manifest, and the chunks it lists.
    Chunked {
        /// Bytes of every chunk but the last.
        chunk_size: u32,
        /// Number of chunks, at least 1.
        chunk_count: u32,
    },
}

/// What a reader that knows key and size can expect before any I/O.
///
/// The stored header and manifest decide when they differ, as with an object that was written
/// with another value size limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadPlan {
    /// Bytes of the root value.
    pub root_value_len: u32,
    /// The values that the object was written as.
    pub shape: WritePlan,
}

/// Lays out an object, before anything of it is hashed or copied.
///
/// Inline when header, identity and payload fit one device value, otherwise chunks of the largest
/// value size; the manifest root must itself fit one device value.
///
/// # Errors
/// [`LayoutError::KeyTooLong`] when not even an empty object fits one value, and
/// [`LayoutError::TooLarge`] when the payload exceeds [`max_object_size`].
pub fn write_plan(
    logical_key_len: usize,
    payload_len: u64,
    limits: Limits,
) -> Result<WritePlan, LayoutError> {
    let room = payload_room(logical_key_len, limits).ok_or(LayoutError::KeyTooLong {
        len: logical_key_len as u64,
        max_value_size: limits.max_value_size,
    })?;
    if payload_len <= u64::from(room) {
        return Ok(WritePlan::Inline);
    }
    let limit = max_object_size(logical_key_len, limits);
    if payload_len > limit {
        return Err(LayoutError::TooLarge { size: payload_len, limit });
    }
    let chunk_size = limits.max_value_size;
    let chunk_count = payload_len.div_ceil(u64::from(chunk_size));
    // At most max_chunks(), a u32, because the payload is within max_object_size().
    Ok(WritePlan::Chunked { chunk_size, chunk_count: chunk_count as u32 })
}

/// The shape in which a writer with the same limits stored an object.
///
/// # Errors
/// Those of [`write_plan`].
pub fn read_plan(
    logical_key_len: usize,
    payload_len: u64,
    limits: Limits,
) -> Result<ReadPlan, LayoutError> {
    let shape = write_plan(logical_key_len, payload_len, limits)?;
    Ok(ReadPlan { root_value_len: root_value_len(shape, logical_key_len, payload_len), shape })
}

/// Bytes of the root value of an object laid out by `plan`.
///
/// Exact for the arguments of the [`write_plan`] that made `plan`; saturates for others.
pub fn root_value_len(plan: WritePlan, logical_key_len: usize, payload_len: u64) -> u32 {
    let payload = match plan {
        WritePlan::Inline => payload_len,
        WritePlan::Chunked { chunk_count, .. } => manifest_len(chunk_count),
    };
    let len = (root_prefix_len(logical_key_len) as u64).saturating_add(payload);
    u32::try_from(len).unwrap_or(u32::MAX)
}

/// The bytes of an object that chunk `index` holds; empty beyond the object's end.
pub fn chunk_range(chunk_size: u32, payload_len: u64, index: ChunkIndex) -> Range<u64> {
    // A product of two u32 leaves room for one more.
    let start = u64::from(chunk_size) * u64::from(index.0);
    let end = start + u64::from(chunk_size);
    start.min(payload_len)..end.min(payload_len)
}

/// The largest payload that a key of that length can have.
///
/// As many chunks as a manifest that fits one device value can list, and no more than the format's
/// 32-bit size field can say. 0 when not even an empty object fits.
pub fn max_object_size(logical_key_len: usize, limits: Limits) -> u64 {
    let Some(room) = payload_room(logical_key_len, limits) else { return 0 };
    let chunks = max_chunks(room);
    if chunks == 0 {
        return u64::from(room);
    }
    (u64::from(chunks) * u64::from(limits.max_value_size)).min(u64::from(u32::MAX))
}

/// Bytes that a root value has left for its payload; `None` when the prefix alone is too long.
fn payload_room(logical_key_len: usize, limits: Limits) -> Option<u32> {
    let prefix = u32::try_from(root_prefix_len(logical_key_len)).ok()?;
    limits.max_value_size.checked_sub(prefix)
}

/// Chunks that a manifest of at most `room` bytes can list.
fn max_chunks(room: u32) -> u32 {
    room.saturating_sub(MANIFEST_FIXED_LEN as u32) / RECORD_LEN as u32
}
