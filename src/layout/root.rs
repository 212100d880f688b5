//! A whole root value: header | physical key | slot | canonical identity | payload.

use super::header::HEADER_LEN;
use super::identity::{IDENTITY_PREFIX_LEN, identity_prefix, parse_identity_at};
use super::{
    ChecksumKind, ChecksumPart, Header, LayoutError, ObjectKeys, ObjectKind, PhysicalKey, Slot,
};

/// Header and identity metadata of a root value: everything that precedes its payload.
///
/// `payload_len` and `payload_checksum` are of the root's payload: the object's own bytes when it
/// is inline, its encoded manifest otherwise. The key must be one that
/// [`write_plan`](super::write_plan) has accepted.
pub fn root_prefix(
    kind: ObjectKind,
    checksum: ChecksumKind,
    keys: &ObjectKeys,
    slot: Slot,
    logical_key: &[u8],
    payload_len: u32,
    payload_checksum: u32,
) -> Vec<u8> {
    let len = root_prefix_len(logical_key.len());
    let header = Header {
        kind,
        checksum,
        payload_size: payload_len,
        verify_hash: *keys.verify_hash(),
        payload_checksum,
        identity_metadata_size: u32::try_from(len - HEADER_LEN).unwrap_or(u32::MAX),
    };
    let mut prefix = Vec::with_capacity(len);
    prefix.extend_from_slice(&header.encode());
    prefix.extend_from_slice(&keys.root(slot).0);
    prefix.extend_from_slice(&slot.get().to_le_bytes());
    prefix.extend_from_slice(&identity_prefix(logical_key));
    prefix.extend_from_slice(logical_key);
    prefix
}

/// Bytes that precede the payload in a root of a key of that length; saturates at `usize::MAX`.
pub fn root_prefix_len(logical_key_len: usize) -> usize {
    const FIXED: usize = HEADER_LEN + STORED_POSITION_LEN + IDENTITY_PREFIX_LEN;
    FIXED.saturating_add(logical_key_len)
}

/// What a root value says before its payload.
///
/// Well-formed, but not yet known to be the root of any particular key: see
/// [`RootPrefix::belongs_to`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RootPrefix<'a> {
    /// The header; its checksum agreed.
    pub header: Header,
    /// The physical key under which the root was stored, unmodified by any wire profile.
    pub physical_key: PhysicalKey,
    /// The slot at which the root was stored.
    pub slot: Slot,
    /// The logical key of the object.
    pub logical_key: &'a [u8],
    /// Bytes from the start of the value to its payload.
    pub payload_offset: usize,
}

/// Parses what precedes the payload of a root value.
///
/// `bytes` starts at the root's first byte and may be longer than the root (a device may pad) or
/// shorter (a short Retrieve), as long as header and identity are there.
///
/// # Errors
/// Those of [`Header::parse`]; [`LayoutError::Truncated`] with the length to read when the
/// identity is cut short; [`LayoutError::IdentitySize`], [`LayoutError::SlotOutOfRange`],
/// [`LayoutError::IdentityVersion`], [`LayoutError::IdentityLength`].
pub fn parse_root_prefix(bytes: &[u8]) -> Result<RootPrefix<'_>, LayoutError> {
    let header = Header::parse(bytes)?;
    if header.identity_metadata_size < LEAST_IDENTITY_METADATA {
        return Err(LayoutError::IdentitySize {
            expected: LEAST_IDENTITY_METADATA,
            got: header.identity_metadata_size,
        });
    }
    let need = HEADER_LEN as u64 + u64::from(header.identity_metadata_size);
    let truncated = LayoutError::Truncated { need, got: bytes.len() as u64 };
    let Some(payload_offset) = usize::try_from(need).ok() else { return Err(truncated) };
    let Some(metadata) = bytes.get(HEADER_LEN..payload_offset) else { return Err(truncated) };
    let Some((&physical_key, rest)) = metadata.split_first_chunk::<16>() else {
        return Err(truncated);
    };
    let Some((&slot, identity)) = rest.split_first_chunk::<4>() else { return Err(truncated) };

    let slot = u32::from_le_bytes(slot);
    let slot = Slot::new(slot).ok_or(LayoutError::SlotOutOfRange { got: slot })?;
    let logical_key = parse_identity_at(identity, HEADER_LEN + STORED_POSITION_LEN)?;
    Ok(RootPrefix {
        header,
        physical_key: PhysicalKey(physical_key),
        slot,
        logical_key,
        payload_offset,
    })
}

/// The physical key that `bytes` carry at the place where a root does, whatever their header says.
/// A value that carries the key under which it is stored is a root, if perhaps a damaged one.
pub fn carried_key(bytes: &[u8]) -> Option<PhysicalKey> {
    let (_, metadata) = bytes.split_at_checked(HEADER_LEN)?;
    metadata.first_chunk().map(|key| PhysicalKey(*key))
}

impl RootPrefix<'_> {
    /// Whether this is the root of `logical_key`, stored at `slot`.
    ///
    /// Compares verify hash, physical key, slot and the key itself: a colliding key, or a value
    /// that was copied to another place, fails.
    pub fn belongs_to(&self, keys: &ObjectKeys, slot: Slot, logical_key: &[u8]) -> bool {
        self.slot == slot
            && self.header.verify_hash == *keys.verify_hash()
            && self.logical_key == logical_key
            && self.physical_key == keys.root(slot)
    }

    /// Bytes of the whole root value, payload included and padding excluded.
    pub fn value_len(&self) -> u64 {
        self.payload_offset as u64 + u64::from(self.header.payload_size)
    }

    /// The verified payload of the root value `bytes`, from which this prefix was parsed.
    ///
    /// # Errors
    /// [`LayoutError::Truncated`] when `bytes` ends before the payload does, and
    /// [`LayoutError::ChecksumMismatch`] when the payload is damaged.
    pub fn payload<'b>(&self, bytes: &'b [u8]) -> Result<&'b [u8], LayoutError> {
        let payload = usize::try_from(self.value_len())
            .ok()
            .and_then(|end| bytes.get(self.payload_offset..end))
            .ok_or(LayoutError::Truncated { need: self.value_len(), got: bytes.len() as u64 })?;
        let expected = self.header.payload_checksum;
        let got = self.header.checksum.of_slice(payload);
        if got != expected {
            return Err(LayoutError::ChecksumMismatch {
                part: ChecksumPart::Payload,
                expected,
                got,
            });
        }
        Ok(payload)
    }
}

/// Physical key and slot, which precede the canonical identity in the identity metadata.
const STORED_POSITION_LEN: usize = 20;

/// Identity metadata of an empty key.
const LEAST_IDENTITY_METADATA: u32 = (STORED_POSITION_LEN + IDENTITY_PREFIX_LEN) as u32;
