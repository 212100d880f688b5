//! Status codes.

use std::ffi::{CStr, c_char};

/// The result of a call, or of one item of a batch: one of `enum mnkv_status`, or, where a
/// callback of the caller returned another number, that number.
pub type mnkv_status_t = i32;

/// Mooncake's ErrorCode numbers, which never change.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum mnkv_status {
    /// Done.
    MNKV_OK = 0,
    /// A misuse of the library (a handle that is not open, a call from a forbidden place), or a
    /// defect of it.
    MNKV_INTERNAL_ERROR = -1,
    /// No memory for a transport buffer.
    MNKV_BUFFER_OVERFLOW = -10,
    /// An empty batch.
    MNKV_INVALID_KEY = -400,
    /// A bad argument or setting, or an object that is too large.
    MNKV_INVALID_PARAMS = -600,
    /// Some objects of a batch were not stored; soft for Mooncake.
    MNKV_INVALID_READ = -701,
    /// Proven absent.
    MNKV_OBJECT_NOT_FOUND = -704,
    /// The key holds another value; soft for Mooncake.
    MNKV_OBJECT_ALREADY_EXISTS = -705,
    /// Stored bytes do not match their checksum.
    MNKV_CHECKSUM_MISMATCH = -801,
    /// The device, the transport or this build cannot do it.
    MNKV_NOT_SUPPORTED = -1012,
    /// The device could not be opened.
    MNKV_FILE_OPEN_FAIL = -1101,
    /// A read failed, or returned something that is not what was stored.
    MNKV_FILE_READ_FAIL = -1102,
    /// A write failed.
    MNKV_FILE_WRITE_FAIL = -1103,
    /// The namespace has another owner, in this process or another one.
    MNKV_FILE_LOCK_FAIL = -1105,
    /// The device or a configured limit is full, and the policy is to evict nothing.
    MNKV_KEYS_ULTRA_LIMIT = -1203,
}

/// `MNKV_OK` as functions return it.
pub(super) const OK: mnkv_status_t = mnkv_status::MNKV_OK as mnkv_status_t;

const NAMES: [(mnkv_status, &CStr); 15] = [
    (mnkv_status::MNKV_OK, c"OK"),
    (mnkv_status::MNKV_INTERNAL_ERROR, c"INTERNAL_ERROR"),
    (mnkv_status::MNKV_BUFFER_OVERFLOW, c"BUFFER_OVERFLOW"),
    (mnkv_status::MNKV_INVALID_KEY, c"INVALID_KEY"),
    (mnkv_status::MNKV_INVALID_PARAMS, c"INVALID_PARAMS"),
    (mnkv_status::MNKV_INVALID_READ, c"INVALID_READ"),
    (mnkv_status::MNKV_OBJECT_NOT_FOUND, c"OBJECT_NOT_FOUND"),
    (mnkv_status::MNKV_OBJECT_ALREADY_EXISTS, c"OBJECT_ALREADY_EXISTS"),
    (mnkv_status::MNKV_CHECKSUM_MISMATCH, c"CHECKSUM_MISMATCH"),
    (mnkv_status::MNKV_NOT_SUPPORTED, c"NOT_SUPPORTED"),
    (mnkv_status::MNKV_FILE_OPEN_FAIL, c"FILE_OPEN_FAIL"),
    (mnkv_status::MNKV_FILE_READ_FAIL, c"FILE_READ_FAIL"),
    (mnkv_status::MNKV_FILE_WRITE_FAIL, c"FILE_WRITE_FAIL"),
    (mnkv_status::MNKV_FILE_LOCK_FAIL, c"FILE_LOCK_FAIL"),
    (mnkv_status::MNKV_KEYS_ULTRA_LIMIT, c"KEYS_ULTRA_LIMIT"),
];

/// Mooncake's name of a status, e.g. `OBJECT_NOT_FOUND`; `UNKNOWN` for a number that is none.
///
/// The string is static. Thread-safe.
#[unsafe(no_mangle)]
pub extern "C" fn mnkv_status_name(status: mnkv_status_t) -> *const c_char {
    let name = NAMES.iter().find(|(known, _)| *known as mnkv_status_t == status);
    name.map_or(c"UNKNOWN", |(_, name)| *name).as_ptr()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorCode;

    #[test]
    fn every_status_but_ok_is_an_error_code_of_the_library_with_its_number_and_name() {
        let codes = [
            ErrorCode::InternalError,
            ErrorCode::BufferOverflow,
            ErrorCode::InvalidKey,
            ErrorCode::InvalidParams,
            ErrorCode::InvalidRead,
            ErrorCode::ObjectNotFound,
            ErrorCode::ObjectAlreadyExists,
            ErrorCode::ChecksumMismatch,
            ErrorCode::NotSupported,
            ErrorCode::FileOpenFail,
            ErrorCode::FileReadFail,
            ErrorCode::FileWriteFail,
            ErrorCode::FileLockFail,
            ErrorCode::KeysUltraLimit,
        ];
        assert_eq!(NAMES.len(), codes.len() + 1);
        for code in codes {
            // SAFETY: the function returns a static string.
            let name = unsafe { CStr::from_ptr(mnkv_status_name(code as i32)) };
            assert_eq!(name.to_str(), Ok(code.name()));
        }
        for (status, name) in NAMES {
            assert_eq!(format!("{status:?}"), format!("MNKV_{}", name.to_str().expect("ASCII")));
        }
    }
}
