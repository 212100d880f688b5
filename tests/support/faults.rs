//! Scripted failures of commands, and what the backend must say of each.

use mooncake_nvme_kv::{Error, ErrorCode};
use nvme_kv_command_set::{Opcode, Status};
use nvme_kv_emulator::{Effect, Fault, Trigger};

use super::Rig;
use super::places::{Piece, Places};

pub fn fail(rig: &Rig, kind: Opcode, nth: u64, effect: Effect) {
    rig.namespace.script(Fault { on: Trigger { kind: Some(kind), nth, key: None }, effect });
}

/// Fails the next command of `kind` that concerns `piece`.
pub fn fail_at(rig: &Rig, places: &Places, kind: Opcode, piece: Piece, effect: Effect) {
    let key = Some(places.device_key(piece));
    rig.namespace.script(Fault { on: Trigger { kind: Some(kind), nth: 1, key }, effect });
}

/// A failure, what a write that meets it ends with, and what a read does.
pub struct Class {
    pub effect: Effect,
    pub on_write: ErrorCode,
    pub on_read: ErrorCode,
    /// The message says this of it.
    pub words: &'static str,
}

/// Every class of status and errno. 87h, 89h and, for a Retrieve, 85h are answers and not
/// failures.
pub fn classes() -> Vec<Class> {
    use ErrorCode::{BufferOverflow, FileReadFail, FileWriteFail, InvalidParams, KeysUltraLimit};
    let status = |status, on_write, on_read, words| Class {
        effect: Effect::Status(status),
        on_write,
        on_read,
        words,
    };
    let errno = |errno, on_write, on_read, words| Class {
        effect: Effect::Errno(errno),
        on_write,
        on_read,
        words,
    };
    vec![
        status(Status::CAPACITY_EXCEEDED, KeysUltraLimit, KeysUltraLimit, "capacity exceeded"),
        status(Status::new(1, 0x81), KeysUltraLimit, KeysUltraLimit, "capacity exceeded"),
        status(Status::NAMESPACE_NOT_READY, FileWriteFail, FileReadFail, "not ready"),
        status(Status::RESERVATION_CONFLICT, FileWriteFail, FileReadFail, "reservation"),
        status(Status::FORMAT_IN_PROGRESS, FileWriteFail, FileReadFail, "format"),
        status(Status::INVALID_KEY_SIZE, InvalidParams, InvalidParams, "key size"),
        status(Status::UNRECOVERED_ERROR, FileReadFail, FileReadFail, "unrecovered"),
        status(Status::INVALID_FIELD, FileWriteFail, FileReadFail, "invalid field"),
        status(Status::DATA_TRANSFER_ERROR, FileWriteFail, FileReadFail, "transfer"),
        status(Status::INTERNAL, FileWriteFail, FileReadFail, "internal"),
        status(Status::ABORT_REQUESTED, FileWriteFail, FileReadFail, "abort"),
        // Media errors: the numbers 81h, 87h and 89h mean something else there.
        status(Status::UNRECOVERED_READ, FileWriteFail, FileReadFail, "unrecovered read"),
        status(Status::WRITE_FAULT, FileWriteFail, FileReadFail, "write fault"),
        status(Status::new(2, 0x87), FileWriteFail, FileReadFail, "sct 2"),
        status(Status::new(2, 0x89), FileWriteFail, FileReadFail, "sct 2"),
        // Path errors.
        status(Status::HOST_PATHING_ERROR, FileWriteFail, FileReadFail, "host pathing"),
        status(Status::new(3, 0x02), FileWriteFail, FileReadFail, "path inaccessible"),
        // Vendor specific.
        status(Status::new(7, 0xC1), FileWriteFail, FileReadFail, "sct 7"),
        errno(libc::EIO, FileWriteFail, FileReadFail, "os error 5"),
        errno(libc::ENODEV, FileWriteFail, FileReadFail, "os error 19"),
        errno(libc::ENOSPC, KeysUltraLimit, KeysUltraLimit, "os error 28"),
        errno(libc::EINVAL, InvalidParams, InvalidParams, "os error 22"),
        errno(libc::ENOMEM, BufferOverflow, BufferOverflow, "os error 12"),
        // 87h and 89h as errno are just numbers.
        errno(0x87, FileWriteFail, FileReadFail, "os error 135"),
        errno(0x89, FileWriteFail, FileReadFail, "os error 137"),
    ]
}

#[track_caller]
pub fn says(error: &Error, code: ErrorCode, words: &str) {
    assert_eq!(error.code(), code, "{error}");
    assert!(error.message().contains("tenant\\x00object"), "{error}");
    assert!(error.message().to_lowercase().contains(words), "{words:?} in {error}");
}
