//! Opcodes of the Key Value I/O commands, and the admin opcodes next to them.

use std::fmt;

/// I/O opcodes of the Key Value command set.
#[repr(u8)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Opcode {
    /// Write a value under a key.
    Store = 0x01,
    /// Read the value of a key.
    Retrieve = 0x02,
    /// Enumerate keys.
    List = 0x06,
    /// Remove a key.
    Delete = 0x10,
    /// Ask whether a key exists.
    Exist = 0x14,
}

impl Opcode {
    /// Every opcode, in numeric order.
    pub const ALL: [Self; 5] = [Self::Store, Self::Retrieve, Self::List, Self::Delete, Self::Exist];
}

/// An I/O opcode that the Key Value command set does not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownOpcode(pub u8);

impl fmt::Display for UnknownOpcode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "opcode {:02x}h is not a Key Value command", self.0)
    }
}

impl std::error::Error for UnknownOpcode {}

impl TryFrom<u8> for Opcode {
    type Error = UnknownOpcode;

    fn try_from(value: u8) -> Result<Self, UnknownOpcode> {
        Self::ALL.into_iter().find(|opcode| *opcode as u8 == value).ok_or(UnknownOpcode(value))
    }
}

/// Admin opcodes (NVMe Base Specification) that a host of a Key Value namespace sends.
pub mod admin {
    /// Get Log Page.
    pub const GET_LOG_PAGE: u8 = 0x02;
    /// Identify.
    pub const IDENTIFY: u8 = 0x06;
    /// Set Features.
    pub const SET_FEATURES: u8 = 0x09;
    /// Get Features.
    pub const GET_FEATURES: u8 = 0x0a;
    /// Asynchronous Event Request.
    pub const ASYNC_EVENT_REQUEST: u8 = 0x0c;
    /// Keep Alive.
    pub const KEEP_ALIVE: u8 = 0x18;
}
