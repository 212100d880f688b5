//! Typed commands: what the fields of a submission mean.

use crate::{Key, Opcode};

/// Options of a Store (CDW11 bits 15:8).
///
/// Both conditions together are legal on the wire and can never be met.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct StoreOptions {
    /// Bit 8: store only if the key exists (else status 87h).
    pub must_exist: bool,
    /// Bit 9: store only if the key does not exist (else status 89h).
    pub must_not_exist: bool,
    /// Bit 10: the device shall not compress the value.
    pub no_compress: bool,
}

impl StoreOptions {
    /// Store unconditionally, replacing a value.
    pub const NONE: Self = Self { must_exist: false, must_not_exist: false, no_compress: false };
    /// Store only if the key does not exist.
    pub const IF_ABSENT: Self =
        Self { must_exist: false, must_not_exist: true, no_compress: false };

    const MUST_EXIST: u8 = 0x1;
    const MUST_NOT_EXIST: u8 = 0x2;
    const NO_COMPRESS: u8 = 0x4;

    /// The option byte: CDW11 bits 15:8.
    pub fn to_bits(self) -> u8 {
        let flag = |set: bool, bit: u8| if set { bit } else { 0 };
        flag(self.must_exist, Self::MUST_EXIST)
            | flag(self.must_not_exist, Self::MUST_NOT_EXIST)
            | flag(self.no_compress, Self::NO_COMPRESS)
    }

    /// Reads the option byte, or `None` if it has a bit that the command set does not define.
    pub fn from_bits(bits: u8) -> Option<Self> {
        let options = Self {
            must_exist: bits & Self::MUST_EXIST != 0,
            must_not_exist: bits & Self::MUST_NOT_EXIST != 0,
            no_compress: bits & Self::NO_COMPRESS != 0,
        };
        (options.to_bits() == bits).then_some(options)
    }
}

/// A Key Value command exactly as it is on the wire: lengths are CDW10, keys are what the device
/// sees. How a logical request becomes one is the business of [`Wire`](crate::Wire).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Command {
    /// Write a value under a key.
    Store {
        /// The key.
        key: Key,
        /// Value size in bytes, not 0's based (CDW10).
        value_len: u32,
        /// Conditions and compression.
        options: StoreOptions,
    },
    /// Read the value of a key. A short buffer gets the leading bytes, and completion DW0 has
    /// the full size.
    Retrieve {
        /// The key.
        key: Key,
        /// Host buffer size in bytes (CDW10).
        buffer_len: u32,
        /// CDW11 bit 8: return the value as stored, without decompression.
        raw: bool,
    },
    /// Enumerate keys into a List page, see [`parse_list`](crate::parse_list).
    List {
        /// Where to start, inclusive; `None` starts at the first key.
        start: Option<Key>,
        /// Host buffer size in bytes (CDW10).
        buffer_len: u32,
    },
    /// Remove a key.
    Delete {
        /// The key.
        key: Key,
    },
    /// Ask whether a key exists.
    Exist {
        /// The key.
        key: Key,
    },
}

impl Command {
    /// The opcode of the command.
    pub fn opcode(&self) -> Opcode {
        match self {
            Self::Store { .. } => Opcode::Store,
            Self::Retrieve { .. } => Opcode::Retrieve,
            Self::List { .. } => Opcode::List,
            Self::Delete { .. } => Opcode::Delete,
            Self::Exist { .. } => Opcode::Exist,
        }
    }

    /// The key in the command: for a List the start key, if any.
    pub fn key(&self) -> Option<Key> {
        match *self {
            Self::Store { key, .. }
            | Self::Retrieve { key, .. }
            | Self::Delete { key }
            | Self::Exist { key } => Some(key),
            Self::List { start, .. } => start,
        }
    }
}
