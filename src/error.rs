//! The one error type of the library. Its codes are Mooncake's `ErrorCode` numbers.

use std::borrow::Cow;

/// Mooncake's `ErrorCode` values that this library can return.
///
/// The numbers are Mooncake's own (`types.h`) and never change.
#[repr(i32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorCode {
    /// A misuse of the library or a broken invariant: not initialised, opened twice, closed.
    InternalError = -1,
    /// No memory for a transport buffer.
    BufferOverflow = -10,
    /// An empty batch.
    InvalidKey = -400,
    /// A bad setting or argument, or an object that no manifest can describe.
    InvalidParams = -600,
    /// A soft failure: the keys of the batch are released and the cycle goes on.
    InvalidRead = -701,
    /// Proven absent.
    ObjectNotFound = -704,
    /// The key holds another value; soft for Mooncake.
    ObjectAlreadyExists = -705,
    /// Stored bytes do not match their checksum.
    ChecksumMismatch = -801,
    /// The device, the transport or this build cannot do it.
    NotSupported = -1012,
    /// The device could not be opened.
    FileOpenFail = -1101,
    /// A read failed or returned something that is not what was stored.
    FileReadFail = -1102,
    /// A write failed.
    FileWriteFail = -1103,
    /// The namespace is owned by another process.
    FileLockFail = -1105,
    /// The device or a configured limit is full.
    KeysUltraLimit = -1203,
}

impl ErrorCode {
    /// Mooncake's name of the code, e.g. `OBJECT_NOT_FOUND`.
    pub fn name(self) -> &'static str {
        match self {
            ErrorCode::InternalError => "INTERNAL_ERROR",
            ErrorCode::BufferOverflow => "BUFFER_OVERFLOW",
            ErrorCode::InvalidKey => "INVALID_KEY",
            ErrorCode::InvalidParams => "INVALID_PARAMS",
            ErrorCode::InvalidRead => "INVALID_READ",
            ErrorCode::ObjectNotFound => "OBJECT_NOT_FOUND",
            ErrorCode::ObjectAlreadyExists => "OBJECT_ALREADY_EXISTS",
            ErrorCode::ChecksumMismatch => "CHECKSUM_MISMATCH",
            ErrorCode::NotSupported => "NOT_SUPPORTED",
            ErrorCode::FileOpenFail => "FILE_OPEN_FAIL",
            ErrorCode::FileReadFail => "FILE_READ_FAIL",
            ErrorCode::FileWriteFail => "FILE_WRITE_FAIL",
            ErrorCode::FileLockFail => "FILE_LOCK_FAIL",
            ErrorCode::KeysUltraLimit => "KEYS_ULTRA_LIMIT",
        }
    }
}

/// What went wrong: a code for the machine, a message that names thing, value and remedy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{} ({}): {message}", code.name(), *code as i32)]
pub struct Error {
    code: ErrorCode,
    message: Cow<'static, str>,
}

impl Error {
    /// An error of `code`; `message` names the thing, its value and what to do about it.
    pub fn new(code: ErrorCode, message: impl Into<Cow<'static, str>>) -> Self {
        Error { code, message: message.into() }
    }

    /// The code that crosses the C boundary.
    pub fn code(&self) -> ErrorCode {
        self.code
    }

    /// The message without the code.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// The same error, its message prefixed with what was being done.
    pub fn context(self, what: impl std::fmt::Display) -> Self {
        Error { code: self.code, message: format!("{what}: {}", self.message).into() }
    }
}

/// `Result` with this library's [`Error`].
pub type Result<T> = std::result::Result<T, Error>;
