//! Why a command did not succeed, and what that says about the device.

use nvme_kv_command_set::{KvStatus, Status};

use crate::error::{Error, ErrorCode};

/// Whether a command moved data to the device or from it; decides the code of an unspecific failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Store and Delete.
    Write,
    /// Retrieve, Exist, List and Identify.
    Read,
}

/// The failure of one command.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CommandError {
    /// The device answered; the command had no effect.
    #[error("the device answered {0}")]
    Status(Status),
    /// The transport refused the command before the device saw it.
    #[error("the transport refused the command: {}", std::io::Error::from_raw_os_error(*.0))]
    Errno(i32),
    /// No answer: timeout or lost connection. The device may have executed the command, may
    /// execute it later, or never.
    #[error("no answer from the device ({0}): the command may or may not take effect")]
    Unanswered(&'static str),
}

impl CommandError {
    /// The command may still take effect, or has.
    pub fn outcome_unknown(&self) -> bool {
        matches!(self, CommandError::Unanswered(_))
    }

    fn kv(&self) -> Option<KvStatus> {
        match self {
            CommandError::Status(status) => status.kv(),
            _ => None,
        }
    }

    /// The device proved that the key is absent.
    pub fn is_not_found(&self) -> bool {
        self.kv() == Some(KvStatus::KeyNotFound) || *self == CommandError::Errno(libc::ENOENT)
    }

    /// A store-if-absent met a value under the key.
    pub fn is_exists(&self) -> bool {
        self.kv() == Some(KvStatus::KeyExists)
    }

    /// The buffer of a Retrieve was shorter than the value, on a device that refuses that.
    pub fn is_short_buffer(&self) -> bool {
        self.kv() == Some(KvStatus::InvalidValueSize)
    }

    /// The device has no room for a value.
    pub fn is_full(&self) -> bool {
        self.kv() == Some(KvStatus::CapacityExceeded) || *self == CommandError::Errno(libc::ENOSPC)
    }

    /// The device does not implement the command.
    pub fn is_unsupported(&self) -> bool {
        matches!(self, CommandError::Status(status) if *status == Status::INVALID_OPCODE)
    }

    /// The controller or the path to it is gone: the device did not see the command. This says
    /// nothing about keys or room.
    pub fn is_device_gone(&self) -> bool {
        match self {
            CommandError::Status(status) => *status == Status::HOST_PATHING_ERROR,
            CommandError::Errno(errno) => matches!(*errno, libc::ENODEV | libc::ENXIO),
            CommandError::Unanswered(_) => false,
        }
    }

    /// Mooncake's code: the status table of the KV command set, or the errno table; the two are
    /// never mixed.
    pub fn code(&self, direction: Direction) -> ErrorCode {
        let unspecific = match direction {
            Direction::Write => ErrorCode::FileWriteFail,
            Direction::Read => ErrorCode::FileReadFail,
        };
        match self {
            CommandError::Status(status) => match status.kv() {
                Some(KvStatus::CapacityExceeded) => ErrorCode::KeysUltraLimit,
                Some(KvStatus::InvalidValueSize | KvStatus::InvalidKeySize) => {
                    ErrorCode::InvalidParams
                }
                Some(KvStatus::KeyNotFound) => ErrorCode::ObjectNotFound,
                Some(KvStatus::UnrecoveredError) => ErrorCode::FileReadFail,
                Some(KvStatus::KeyExists) => ErrorCode::ObjectAlreadyExists,
                _ => unspecific,
            },
            CommandError::Errno(libc::ENOENT) => ErrorCode::ObjectNotFound,
            CommandError::Errno(libc::ENOSPC) => ErrorCode::KeysUltraLimit,
            CommandError::Errno(libc::EINVAL) => ErrorCode::InvalidParams,
            CommandError::Errno(libc::ENOMEM) => ErrorCode::BufferOverflow,
            CommandError::Errno(_) | CommandError::Unanswered(_) => unspecific,
        }
    }

    /// The library error for a command that was doing `what`.
    pub fn into_error(self, direction: Direction, what: impl std::fmt::Display) -> Error {
        Error::new(self.code(direction), format!("{what}: {self}"))
    }
}
