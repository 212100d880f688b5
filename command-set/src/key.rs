//! Keys: the fixed 16-byte key a layout derives, and the 1 to 16 byte key a device stores.

use std::fmt;

/// Longest key of the command set, in bytes.
pub const MAX_KEY_LEN: usize = 16;

/// A 16-byte key as an object layout derives it, before any wire profile changes it.
///
/// `Debug` and `Display` print lower-case hex.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PhysicalKey(pub [u8; 16]);

/// A key as a device sees it: 1 to 16 bytes.
///
/// The order is that of the byte slices: a prefix sorts before what it is a prefix of. `Debug`
/// and `Display` print lower-case hex.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key {
    // Zero after `len` bytes: the derived comparison (bytes, then length) is then exactly the
    // comparison of the slices.
    bytes: [u8; MAX_KEY_LEN],
    len: u8,
}

impl Key {
    /// A key of these bytes, or `None` unless there are 1 to 16 of them.
    pub fn new(bytes: &[u8]) -> Option<Self> {
        if bytes.is_empty() || bytes.len() > MAX_KEY_LEN {
            return None;
        }
        let mut padded = [0; MAX_KEY_LEN];
        padded[..bytes.len()].copy_from_slice(bytes);
        Some(Self { bytes: padded, len: bytes.len() as u8 })
    }

    /// The bytes of the key.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.len()]
    }

    /// Length in bytes, 1 to 16.
    #[expect(clippy::len_without_is_empty, reason = "a key is never empty")]
    pub fn len(&self) -> usize {
        usize::from(self.len)
    }

    /// The same bytes as a [`PhysicalKey`], if there are 16.
    pub fn physical(&self) -> Option<PhysicalKey> {
        (self.len() == MAX_KEY_LEN).then_some(PhysicalKey(self.bytes))
    }

    /// The 16 key bytes of a command, zero after the key's length.
    pub(crate) fn padded(&self) -> [u8; MAX_KEY_LEN] {
        self.bytes
    }
}

/// All 16 bytes, unmodified; what a wire profile sends is
/// [`Wire::device_key`](crate::Wire::device_key).
impl From<PhysicalKey> for Key {
    fn from(key: PhysicalKey) -> Self {
        Self { bytes: key.0, len: MAX_KEY_LEN as u8 }
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_hex(f, self.as_bytes())
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_hex(f, self.as_bytes())
    }
}

impl fmt::Display for PhysicalKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_hex(f, &self.0)
    }
}

impl fmt::Debug for PhysicalKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_hex(f, &self.0)
    }
}

fn write_hex(f: &mut fmt::Formatter<'_>, bytes: &[u8]) -> fmt::Result {
    bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
}
