//! Completion status: status code type and status code, never one without the other.

use std::fmt;
use std::hash::{Hash, Hasher};

/// Status of a completion: status code type (SCT), status code (SC) and retry hints.
///
/// The same SC means different things under different SCTs, so the two are only compared
/// together. Equality and hash are those of (SCT, SC): DNR, More and the retry delay do not
/// change what happened, and devices differ in setting them.
#[derive(Clone, Copy, Debug)]
pub struct Status(u16);

/// Meaning of a status in the Key Value command set.
#[repr(u8)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum KvStatus {
    /// The namespace has no room for the value or the key.
    CapacityExceeded = 0x81,
    /// The namespace is not ready; a retry may succeed.
    NamespaceNotReady = 0x82,
    /// Another host holds a reservation.
    ReservationConflict = 0x83,
    /// A format is in progress.
    FormatInProgress = 0x84,
    /// The value size is not supported, or a buffer is too short on some devices.
    InvalidValueSize = 0x85,
    /// The key size is not supported.
    InvalidKeySize = 0x86,
    /// The key does not exist.
    KeyNotFound = 0x87,
    /// The value cannot be recovered.
    UnrecoveredError = 0x88,
    /// The key exists and the Store asked for it not to.
    KeyExists = 0x89,
}

impl Status {
    /// Success.
    pub const SUCCESS: Self = Self::new(0, 0x00);
    /// The controller does not have the opcode.
    pub const INVALID_OPCODE: Self = Self::new(0, 0x01);
    /// A field of the command is invalid.
    pub const INVALID_FIELD: Self = Self::new(0, 0x02);
    /// Transferring data failed.
    pub const DATA_TRANSFER_ERROR: Self = Self::new(0, 0x04);
    /// Internal error of the controller.
    pub const INTERNAL: Self = Self::new(0, 0x06);
    /// The command was aborted on request.
    pub const ABORT_REQUESTED: Self = Self::new(0, 0x07);
    /// The namespace identifier is invalid.
    pub const INVALID_NAMESPACE: Self = Self::new(0, 0x0b);
    /// See [`KvStatus::CapacityExceeded`].
    pub const CAPACITY_EXCEEDED: Self = Self::of(KvStatus::CapacityExceeded);
    /// See [`KvStatus::NamespaceNotReady`].
    pub const NAMESPACE_NOT_READY: Self = Self::of(KvStatus::NamespaceNotReady);
    /// See [`KvStatus::ReservationConflict`].
    pub const RESERVATION_CONFLICT: Self = Self::of(KvStatus::ReservationConflict);
    /// See [`KvStatus::FormatInProgress`].
    pub const FORMAT_IN_PROGRESS: Self = Self::of(KvStatus::FormatInProgress);
    /// See [`KvStatus::InvalidValueSize`].
    pub const INVALID_VALUE_SIZE: Self = Self::of(KvStatus::InvalidValueSize);
    /// See [`KvStatus::InvalidKeySize`].
    pub const INVALID_KEY_SIZE: Self = Self::of(KvStatus::InvalidKeySize);
    /// See [`KvStatus::KeyNotFound`].
    pub const KEY_NOT_FOUND: Self = Self::of(KvStatus::KeyNotFound);
    /// See [`KvStatus::UnrecoveredError`].
    pub const UNRECOVERED_ERROR: Self = Self::of(KvStatus::UnrecoveredError);
    /// See [`KvStatus::KeyExists`].
    pub const KEY_EXISTS: Self = Self::of(KvStatus::KeyExists);
    /// Media error: write fault.
    pub const WRITE_FAULT: Self = Self::new(2, 0x80);
    /// Media error: unrecovered read error.
    pub const UNRECOVERED_READ: Self = Self::new(2, 0x81);
    /// Path error: the host has no path to the controller.
    pub const HOST_PATHING_ERROR: Self = Self::new(3, 0x70);

    const CODE_MASK: u16 = 0x07ff;
    const MORE: u16 = 1 << 13;
    const DNR: u16 = 1 << 14;

    /// A status of this type (0 to 7; higher bits are dropped) and code, without retry hints.
    pub const fn new(sct: u8, sc: u8) -> Self {
        Self((sct as u16 & 0x7) << 8 | sc as u16)
    }

    /// The status field of a completion without its phase bit, which is what Linux hands out:
    /// SC in bits 7:0, SCT in 10:8, retry delay in 12:11, More in 13, DNR in 14.
    pub const fn from_cqe(field: u16) -> Self {
        Self(field & 0x7fff)
    }

    /// The field that [`from_cqe`](Self::from_cqe) reads.
    pub const fn to_u16(self) -> u16 {
        self.0
    }

    /// The same status with Do Not Retry set.
    pub const fn with_dnr(self) -> Self {
        Self(self.0 | Self::DNR)
    }

    /// Status code type: 0 generic, 1 command specific, 2 media, 3 path, 7 vendor specific.
    pub const fn sct(self) -> u8 {
        (self.0 >> 8) as u8 & 0x7
    }

    /// Status code.
    pub const fn sc(self) -> u8 {
        self.0 as u8
    }

    /// Whether the command succeeded.
    pub const fn is_success(self) -> bool {
        self.code() == 0
    }

    /// Do Not Retry: the same command would fail again.
    pub const fn dnr(self) -> bool {
        self.0 & Self::DNR != 0
    }

    /// More: the Error Information log has details.
    pub const fn more(self) -> bool {
        self.0 & Self::MORE != 0
    }

    /// The Key Value meaning, if it is a Key Value status.
    ///
    /// The codes belong to SCT 0, and devices that answer with SCT 1 are understood. Under any
    /// other type the same numbers mean something else: 81h of SCT 2 is an unrecovered read.
    pub fn kv(self) -> Option<KvStatus> {
        if self.sct() > 1 {
            return None;
        }
        KvStatus::ALL.into_iter().find(|status| *status as u8 == self.sc())
    }

    const fn of(status: KvStatus) -> Self {
        Self::new(0, status as u8)
    }

    const fn code(self) -> u16 {
        self.0 & Self::CODE_MASK
    }

    fn meaning(self) -> Option<&'static str> {
        if let Some(status) = self.kv() {
            return Some(status.meaning());
        }
        Some(match (self.sct(), self.sc()) {
            (0, 0x00) => "success",
            (0, 0x01) => "invalid opcode",
            (0, 0x02) => "invalid field",
            (0, 0x03) => "command identifier conflict",
            (0, 0x04) => "data transfer error",
            (0, 0x05) => "aborted by power loss",
            (0, 0x06) => "internal error",
            (0, 0x07) => "abort requested",
            (0, 0x08) => "aborted by queue deletion",
            (0, 0x0b) => "invalid namespace",
            (0, 0x20) => "namespace is write protected",
            (0, 0x21) => "command interrupted",
            (0, 0x22) => "transient transport error",
            (2, 0x80) => "write fault",
            (2, 0x81) => "unrecovered read error",
            (2, 0x82) => "guard check error",
            (2, 0x86) => "access denied",
            (3, 0x00) => "internal path error",
            (3, 0x01) => "path permanently lost",
            (3, 0x02) => "path inaccessible",
            (3, 0x03) => "path in transition",
            (3, 0x60) => "controller pathing error",
            (3, 0x70) => "host pathing error",
            (3, 0x71) => "aborted by host",
            _ => return None,
        })
    }
}

impl PartialEq for Status {
    fn eq(&self, other: &Self) -> bool {
        self.code() == other.code()
    }
}

impl Eq for Status {}

impl Hash for Status {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.code().hash(state);
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SCT {:x}h SC {:02x}h", self.sct(), self.sc())?;
        match self.meaning() {
            Some(meaning) => write!(f, " ({meaning})"),
            None => Ok(()),
        }
    }
}

impl KvStatus {
    /// Every Key Value status, in numeric order.
    pub const ALL: [Self; 9] = [
        Self::CapacityExceeded,
        Self::NamespaceNotReady,
        Self::ReservationConflict,
        Self::FormatInProgress,
        Self::InvalidValueSize,
        Self::InvalidKeySize,
        Self::KeyNotFound,
        Self::UnrecoveredError,
        Self::KeyExists,
    ];

    fn meaning(self) -> &'static str {
        match self {
            Self::CapacityExceeded => "capacity exceeded",
            Self::NamespaceNotReady => "namespace not ready",
            Self::ReservationConflict => "reservation conflict",
            Self::FormatInProgress => "format in progress",
            Self::InvalidValueSize => "invalid value size",
            Self::InvalidKeySize => "invalid key size",
            Self::KeyNotFound => "key does not exist",
            Self::UnrecoveredError => "unrecovered error",
            Self::KeyExists => "key exists",
        }
    }
}

impl fmt::Display for KvStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.meaning())
    }
}
