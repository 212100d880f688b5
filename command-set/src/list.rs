//! List pages: building them, and reading them strictly.
//!
//! A page is a u32 number of keys and per key a u16 length, the key and zero padding up to a
//! multiple of 4 bytes, all little-endian.

use std::fmt;

use crate::bytes::{u16_at, u32_at};
use crate::{Key, MAX_KEY_LEN};

/// Bytes of the key count.
pub(crate) const COUNT_LEN: usize = 4;
/// Bytes of a key's length field.
pub(crate) const LENGTH_LEN: usize = 2;
/// Entry of a 1-byte key.
const MIN_ENTRY_LEN: usize = 4;

/// Bytes of the entry of a key of `key_len` bytes.
pub(crate) fn entry_len(key_len: usize) -> usize {
    (LENGTH_LEN + key_len).next_multiple_of(4)
}

/// Reads a page strictly: each counted key must be there, 1 to 16 bytes long and zero padded.
///
/// Bytes after the last counted key are not looked at: the host's buffer is usually longer than
/// what the device wrote, and the completion does not tell how much that is.
///
/// # Errors
/// [`ListError`], which names the offset. [`ListScanner`](crate::ListScanner) salvages keys from
/// such a page.
pub fn parse_list(page: &[u8]) -> Result<Vec<Key>, ListError> {
    let truncated = |offset, need| ListError::Truncated { offset, need, got: page.len() };
    let count = u32_at(page, 0).ok_or_else(|| truncated(0, COUNT_LEN))?;
    let room = (page.len() - COUNT_LEN) / MIN_ENTRY_LEN;
    // Checked first, so that a count cannot make this allocate more than the page justifies.
    let count = usize::try_from(count)
        .ok()
        .filter(|count| *count <= room)
        .ok_or(ListError::Count { count, room })?;
    let mut keys = Vec::with_capacity(count);
    let mut offset = COUNT_LEN;
    for _ in 0..count {
        let len = u16_at(page, offset).ok_or_else(|| truncated(offset, offset + LENGTH_LEN))?;
        let key_len = usize::from(len);
        if key_len == 0 || key_len > MAX_KEY_LEN {
            return Err(ListError::KeyLength { offset, len });
        }
        let end = offset + entry_len(key_len);
        let entry = page.get(offset + LENGTH_LEN..end).ok_or_else(|| truncated(offset, end))?;
        let (key, padding) = entry.split_at(key_len);
        if let Some(at) = padding.iter().position(|byte| *byte != 0) {
            return Err(ListError::Padding { offset: offset + LENGTH_LEN + key_len + at });
        }
        keys.push(Key::new(key).ok_or(ListError::KeyLength { offset, len })?);
        offset = end;
    }
    Ok(keys)
}

/// Why bytes are not a List page. Offsets are in bytes from the start of the page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ListError {
    /// The page ends inside of a field.
    Truncated {
        /// Where the field or entry starts.
        offset: usize,
        /// Length the page would need, in bytes.
        need: usize,
        /// Length it has, in bytes.
        got: usize,
    },
    /// The page counts more keys than it has room for.
    Count {
        /// The count at offset 0.
        count: u32,
        /// Entries that a page of this length can have.
        room: usize,
    },
    /// A key length is not 1 to 16.
    KeyLength {
        /// Where the length field is.
        offset: usize,
        /// The length in bytes.
        len: u16,
    },
    /// Padding is not zero.
    Padding {
        /// Where the first such byte is.
        offset: usize,
    },
}

impl fmt::Display for ListError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Truncated { offset, need, got } => write!(
                f,
                "List page of {got} bytes ends inside of the field at offset {offset}, \
                 {need} bytes are needed"
            ),
            Self::Count { count, room } => {
                write!(f, "List page counts {count} keys and has room for {room}")
            }
            Self::KeyLength { offset, len } => {
                write!(f, "List page has a key of {len} bytes at offset {offset}, expected 1 to 16")
            }
            Self::Padding { offset } => {
                write!(f, "List page has non-zero padding at offset {offset}")
            }
        }
    }
}

impl std::error::Error for ListError {}

/// Builds a page of at most a given number of bytes.
#[derive(Clone, Debug)]
pub struct ListPageBuilder {
    page: Vec<u8>,
    capacity: usize,
    count: u32,
}

impl ListPageBuilder {
    /// A page without keys in a host buffer of `capacity` bytes.
    pub fn new(capacity: usize) -> Self {
        Self { page: vec![0; COUNT_LEN], capacity, count: 0 }
    }

    /// Appends a key. `false`: the page is full and was not changed.
    pub fn push(&mut self, key: &Key) -> bool {
        let end = self.page.len() + entry_len(key.len());
        if end > self.capacity || self.count == u32::MAX {
            return false;
        }
        self.page.extend_from_slice(&(key.len() as u16).to_le_bytes());
        self.page.extend_from_slice(key.as_bytes());
        self.page.resize(end, 0);
        self.count += 1;
        true
    }

    /// The bytes of the page, at most the capacity: a buffer shorter than the count field gets
    /// the leading bytes of it.
    pub fn finish(mut self) -> Vec<u8> {
        self.page[..COUNT_LEN].copy_from_slice(&self.count.to_le_bytes());
        self.page.truncate(self.capacity);
        self.page
    }
}
