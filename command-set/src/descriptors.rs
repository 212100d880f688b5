//! Identify: the Namespace Identification Descriptor list (CNS 03h).

use crate::identify::{IDENTIFY_LEN, IdentifyError};

const HEADER_LEN: usize = 4;
const EUI64: u8 = 1;
const NGUID: u8 = 2;
const UUID: u8 = 3;
const CSI: u8 = 4;

/// What identifies a namespace, as far as the device states it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NamespaceDescriptors {
    /// IEEE Extended Unique Identifier (type 1).
    pub eui64: Option<[u8; 8]>,
    /// Namespace Globally Unique Identifier (type 2).
    pub nguid: Option<[u8; 16]>,
    /// Namespace UUID (type 3).
    pub uuid: Option<[u8; 16]>,
    /// Command Set Identifier (type 4); [`CSI_KV`](crate::CSI_KV) for a Key Value namespace.
    pub csi: Option<u8>,
}

impl NamespaceDescriptors {
    /// Reads the list: per descriptor a type byte, a length byte, two reserved bytes and the
    /// identifier. A zero length or the end of the bytes ends it. Types that are not known are
    /// passed over; of two descriptors of one type the last one counts.
    ///
    /// # Errors
    /// [`IdentifyError::Truncated`] and [`IdentifyError::DescriptorLength`].
    pub fn parse(bytes: &[u8]) -> Result<Self, IdentifyError> {
        let mut found = Self::default();
        let mut offset = 0;
        while let Some(&[kind, len, ..]) = bytes.get(offset..) {
            if len == 0 {
                break;
            }
            let start = offset + HEADER_LEN;
            let end = start + usize::from(len);
            let value = bytes
                .get(start..end)
                .ok_or(IdentifyError::Truncated { need: end, got: bytes.len() })?;
            let wrong_length =
                |expected| IdentifyError::DescriptorLength { offset, kind, got: len, expected };
            match kind {
                EUI64 => found.eui64 = Some(value.try_into().map_err(|_| wrong_length(8))?),
                NGUID => found.nguid = Some(value.try_into().map_err(|_| wrong_length(16))?),
                UUID => found.uuid = Some(value.try_into().map_err(|_| wrong_length(16))?),
                CSI => match value {
                    [csi] => found.csi = Some(*csi),
                    _ => return Err(wrong_length(1)),
                },
                _ => {}
            }
            offset = end;
        }
        Ok(found)
    }

    /// The 4096 bytes of the list, in the order of the types.
    pub fn to_bytes(&self) -> [u8; IDENTIFY_LEN] {
        let mut bytes = [0; IDENTIFY_LEN];
        let mut offset = 0;
        let mut push = |kind: u8, value: &[u8]| {
            bytes[offset] = kind;
            bytes[offset + 1] = value.len() as u8;
            offset += HEADER_LEN;
            bytes[offset..offset + value.len()].copy_from_slice(value);
            offset += value.len();
        };
        if let Some(eui64) = &self.eui64 {
            push(EUI64, eui64);
        }
        if let Some(nguid) = &self.nguid {
            push(NGUID, nguid);
        }
        if let Some(uuid) = &self.uuid {
            push(UUID, uuid);
        }
        if let Some(csi) = self.csi {
            push(CSI, &[csi]);
        }
        bytes
    }
}
