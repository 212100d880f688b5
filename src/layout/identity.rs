//! The canonical identity: a logical key as it is hashed and stored.
//!
//! `0x01` (encoding version) | u32 key length | key bytes. Keys are arbitrary bytes, NUL included.

use super::LayoutError;

/// The canonical identity of a logical key.
///
/// A key of more than `u32::MAX` bytes cannot be stored
/// ([`write_plan`](super::write_plan) refuses it); its length field is `u32::MAX`, which
/// [`parse_identity`] never accepts for it.
pub fn canonical_identity(logical_key: &[u8]) -> Vec<u8> {
    let mut identity = Vec::with_capacity(IDENTITY_PREFIX_LEN.saturating_add(logical_key.len()));
    identity.extend_from_slice(&identity_prefix(logical_key));
    identity.extend_from_slice(logical_key);
    identity
}

/// The logical key of a canonical identity, which `bytes` must be exactly.
///
/// # Errors
/// [`LayoutError::Truncated`], [`LayoutError::IdentityVersion`] or
/// [`LayoutError::IdentityLength`], with offsets from the start of `bytes`.
pub fn parse_identity(bytes: &[u8]) -> Result<&[u8], LayoutError> {
    parse_identity_at(bytes, 0)
}

/// Bytes of a canonical identity before the key itself.
pub(super) const IDENTITY_PREFIX_LEN: usize = 5;

/// What precedes the key bytes in its canonical identity.
pub(super) fn identity_prefix(logical_key: &[u8]) -> [u8; IDENTITY_PREFIX_LEN] {
    let [a, b, c, d] = u32::try_from(logical_key.len()).unwrap_or(u32::MAX).to_le_bytes();
    [ENCODING_VERSION, a, b, c, d]
}

/// [`parse_identity`] of an identity that starts at `offset` of a larger value.
pub(super) fn parse_identity_at(bytes: &[u8], offset: usize) -> Result<&[u8], LayoutError> {
    let Some((&[version, a, b, c, d], logical_key)) =
        bytes.split_first_chunk::<IDENTITY_PREFIX_LEN>()
    else {
        return Err(LayoutError::Truncated {
            need: offset as u64 + IDENTITY_PREFIX_LEN as u64,
            got: offset as u64 + bytes.len() as u64,
        });
    };
    if version != ENCODING_VERSION {
        return Err(LayoutError::IdentityVersion { offset, got: version });
    }
    let expected = u32::from_le_bytes([a, b, c, d]);
    let got = logical_key.len() as u64;
    if got != u64::from(expected) {
        return Err(LayoutError::IdentityLength { offset: offset + 1, expected, got });
    }
    Ok(logical_key)
}

const ENCODING_VERSION: u8 = 1;
