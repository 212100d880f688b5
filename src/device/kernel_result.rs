//! What the kernel's answer to a passthrough command means.

use nvme_kv_command_set::Status;

use super::executor::Reply;
use super::{CommandError, CommandError::Errno};

/// The host aborted the command (SCT 3h, SC 71h): nobody knows whether it was executed.
const HOST_ABORTED: Status = Status::new(3, 0x71);

/// Reads `result` as ioctl and io_uring give it: negative an errno, otherwise the status field.
pub(super) fn interpret(result: i32, dw0: u32) -> Result<Reply, CommandError> {
    if result < 0 {
        return Err(match result.saturating_neg() {
            // The driver cancelled a command in flight: reset, lost connection or timeout.
            libc::EINTR => CommandError::Unanswered("timeout, reset or lost connection"),
            // io_uring gave up a command that it may have started.
            libc::ECANCELED => CommandError::Unanswered("cancelled"),
            libc::ETIMEDOUT => CommandError::Unanswered("timeout"),
            errno => Errno(errno),
        });
    }
    // The field has 16 bits; higher ones are never set.
    let status = Status::from_cqe(result as u16);
    if status.is_success() {
        return Ok(Reply { value_len: (dw0 != 0).then_some(dw0) });
    }
    if status == HOST_ABORTED {
        return Err(CommandError::Unanswered("aborted by the host"));
    }
    Err(CommandError::Status(status))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cancelled_command_has_an_unknown_outcome() {
        for result in [-libc::EINTR, -libc::ECANCELED, -libc::ETIMEDOUT, 0x371, 0x4371] {
            let error = interpret(result, 0).expect_err("it was cancelled");
            assert!(error.outcome_unknown(), "{result}: {error}");
        }
    }

    #[test]
    fn a_status_keeps_its_type_and_loses_its_hints() {
        let status = |result| interpret(result, 0).expect_err("it is a failure");
        assert!(status(0x4087).is_not_found());
        assert!(status(0x4089).is_exists());
        assert_eq!(status(0x4281), CommandError::Status(Status::UNRECOVERED_READ));
        assert!(status(0x370).is_device_gone());
    }

    #[test]
    fn errnos_stay_errnos_and_a_lost_device_is_told_from_a_full_one() {
        assert_eq!(interpret(-libc::ENOSPC, 0), Err(Errno(libc::ENOSPC)));
        assert!(!Errno(libc::ENOSPC).is_device_gone());
        assert!(!Errno(libc::ENOENT).is_device_gone());
        assert!(Errno(libc::ENODEV).is_device_gone());
        assert!(Errno(libc::ENXIO).is_device_gone());
    }

    #[test]
    fn a_retrieve_reports_the_length_in_the_completion_if_there_is_one() {
        assert_eq!(interpret(0, 4096), Ok(Reply { value_len: Some(4096) }));
        assert_eq!(interpret(0, 0), Ok(Reply { value_len: None }));
    }
}
