//! Identify: the I/O Command Set specific Namespace data structure of a Key Value namespace
//! (CNS 05h, CSI 01h).

use std::fmt;

use crate::bytes::{array_at, u16_at, u32_at, u64_at};

/// Length of every Identify data structure, in bytes.
pub const IDENTIFY_LEN: usize = 4096;

/// Command Set Identifier of the Key Value command set.
pub const CSI_KV: u8 = 0x01;

/// Controller or Namespace Structure values of Identify (CDW10 bits 7:0).
pub mod cns {
    /// Identify Namespace of the NVM command set.
    pub const NAMESPACE: u8 = 0x00;
    /// Identify Controller.
    pub const CONTROLLER: u8 = 0x01;
    /// Active namespace identifiers.
    pub const ACTIVE_NAMESPACES: u8 = 0x02;
    /// Namespace Identification Descriptors, see
    /// [`NamespaceDescriptors`](crate::NamespaceDescriptors).
    pub const DESCRIPTORS: u8 = 0x03;
    /// Namespace structure of a command set, see
    /// [`IdentifyKvNamespace`](crate::IdentifyKvNamespace).
    pub const CSI_NAMESPACE: u8 = 0x05;
    /// Controller structure of a command set.
    pub const CSI_CONTROLLER: u8 = 0x06;
    /// Active namespace identifiers of a command set.
    pub const CSI_ACTIVE: u8 = 0x07;
    /// Namespace structure that is independent of the command set.
    pub const CSI_INDEPENDENT: u8 = 0x08;
}

/// Number of KV formats a namespace can have.
const MAX_FORMATS: usize = 16;
const FORMATS_OFFSET: usize = 72;
const FORMAT_LEN: usize = 16;

/// One KV format (KVF): the limits of keys and values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KvFormat {
    /// Maximum key length in bytes.
    pub max_key_len: u16,
    /// Additional format options (AFO).
    pub additional_format_options: u8,
    /// Maximum value length in bytes.
    pub max_value_len: u32,
    /// Maximum number of keys; zero where the device states none.
    pub max_keys: u32,
}

/// The Key Value namespace structure.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IdentifyKvNamespace {
    /// Namespace size in bytes (NSZE).
    pub size_bytes: u64,
    /// Bytes in use (NUSE).
    pub used_bytes: u64,
    /// Namespace features (NSFEAT), bits as the device states them.
    pub features: u8,
    /// Multi-path and sharing capabilities (NMIC), bits as the device states them.
    pub multipath: u8,
    /// Index of the current format (KVFC bits 3:0), 0 to 15. It may name no format.
    pub current_format: u8,
    /// Namespace optimal value granularity in bytes (NOVG); zero where the device states none.
    pub optimal_value_granularity: u32,
    /// Namespace Globally Unique Identifier (NGUID); zero where there is none.
    pub nguid: [u8; 16],
    /// IEEE Extended Unique Identifier (EUI64); zero where there is none.
    pub eui64: [u8; 8],
    /// The supported formats, 1 to 16 of them.
    pub formats: Vec<KvFormat>,
}

impl IdentifyKvNamespace {
    /// Reads the structure. Bytes after the last format are not looked at.
    ///
    /// # Errors
    /// [`IdentifyError::Truncated`] if the bytes end before the formats they announce, and
    /// [`IdentifyError::FormatCount`] if they announce more than 16.
    pub fn parse(bytes: &[u8]) -> Result<Self, IdentifyError> {
        let announced = usize::from(*bytes.get(25).ok_or_else(|| truncated(bytes, 26))?) + 1;
        if announced > MAX_FORMATS {
            return Err(IdentifyError::FormatCount(announced));
        }
        let need = FORMATS_OFFSET + announced * FORMAT_LEN;
        let missing = || truncated(bytes, need);
        let formats = (0..announced)
            .map(|index| format_at(bytes, FORMATS_OFFSET + index * FORMAT_LEN))
            .collect::<Option<Vec<_>>>()
            .ok_or_else(missing)?;
        Ok(Self {
            size_bytes: u64_at(bytes, 0).ok_or_else(missing)?,
            used_bytes: u64_at(bytes, 16).ok_or_else(missing)?,
            features: *bytes.get(24).ok_or_else(missing)?,
            multipath: *bytes.get(26).ok_or_else(missing)?,
            current_format: *bytes.get(29).ok_or_else(missing)? & 0x0f,
            optimal_value_granularity: u32_at(bytes, 32).ok_or_else(missing)?,
            nguid: array_at(bytes, 48).ok_or_else(missing)?,
            eui64: array_at(bytes, 64).ok_or_else(missing)?,
            formats,
        })
    }

    /// The 4096 bytes of the structure. Formats beyond the 16th have no place in it; without
    /// any format, the one that NKVF cannot help announcing is all zero.
    pub fn to_bytes(&self) -> [u8; IDENTIFY_LEN] {
        let mut bytes = [0; IDENTIFY_LEN];
        let count = self.formats.len().clamp(1, MAX_FORMATS);
        bytes[0..8].copy_from_slice(&self.size_bytes.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.used_bytes.to_le_bytes());
        bytes[24] = self.features;
        bytes[25] = (count - 1) as u8;
        bytes[26] = self.multipath;
        bytes[29] = self.current_format & 0x0f;
        bytes[32..36].copy_from_slice(&self.optimal_value_granularity.to_le_bytes());
        bytes[48..64].copy_from_slice(&self.nguid);
        bytes[64..72].copy_from_slice(&self.eui64);
        for (slot, format) in
            bytes[FORMATS_OFFSET..].chunks_exact_mut(FORMAT_LEN).zip(&self.formats).take(count)
        {
            slot[0..2].copy_from_slice(&format.max_key_len.to_le_bytes());
            slot[3] = format.additional_format_options;
            slot[4..8].copy_from_slice(&format.max_value_len.to_le_bytes());
            slot[8..12].copy_from_slice(&format.max_keys.to_le_bytes());
        }
        bytes
    }

    /// The current format, or `None` if the device names one that it does not have.
    pub fn current(&self) -> Option<&KvFormat> {
        self.formats.get(usize::from(self.current_format))
    }
}

fn format_at(bytes: &[u8], offset: usize) -> Option<KvFormat> {
    let bytes = bytes.get(offset..offset + FORMAT_LEN)?;
    Some(KvFormat {
        max_key_len: u16_at(bytes, 0)?,
        additional_format_options: *bytes.get(3)?,
        max_value_len: u32_at(bytes, 4)?,
        max_keys: u32_at(bytes, 8)?,
    })
}

fn truncated(bytes: &[u8], need: usize) -> IdentifyError {
    IdentifyError::Truncated { need, got: bytes.len() }
}

/// Why bytes are not an Identify data structure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum IdentifyError {
    /// The bytes end too early.
    Truncated {
        /// Bytes needed.
        need: usize,
        /// Bytes there are.
        got: usize,
    },
    /// More KV formats than the structure has room for.
    FormatCount(usize),
    /// A Namespace Identification Descriptor has the wrong length for its type.
    DescriptorLength {
        /// Offset of the descriptor in bytes.
        offset: usize,
        /// Its type (NIDT).
        kind: u8,
        /// The length it states (NIDL), in bytes.
        got: u8,
        /// The length of that type, in bytes.
        expected: u8,
    },
}

impl fmt::Display for IdentifyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Truncated { need, got } => {
                write!(f, "Identify data ends after {got} bytes, {need} are needed")
            }
            Self::FormatCount(count) => {
                write!(f, "Identify data announces {count} KV formats, at most 16 are possible")
            }
            Self::DescriptorLength { offset, kind, got, expected } => write!(
                f,
                "namespace descriptor of type {kind} at offset {offset} is {got} bytes long, \
                 expected {expected}"
            ),
        }
    }
}

impl std::error::Error for IdentifyError {}
