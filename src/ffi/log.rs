//! The log callback.

use std::ffi::{c_char, c_void};

use super::guard::guarded;
use super::handle::{fail_on_this_thread, inside_log_callback, refuse_in_log_callback};
use super::status::{OK, mnkv_status_t};
use crate::error::Error;
use crate::log::{self, Level};

/// How urgent a log line is.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum mnkv_log_level {
    /// What was configured, found or decided.
    MNKV_LOG_INFO = 0,
    /// Something was refused, ignored or degraded; work goes on.
    MNKV_LOG_WARNING = 1,
    /// An operation failed.
    MNKV_LOG_ERROR = 2,
}

/// Gets one log line: UTF-8, `size` bytes at `line`, no line end and no NUL, readable until the
/// callback returns. `level` is one of `enum mnkv_log_level`.
///
/// It runs on any thread and on several at once, as part of calls of the library. It must not
/// throw or jump out. Calls of the library from inside it return MNKV_INTERNAL_ERROR, except for
/// versions, names and last errors.
pub type mnkv_log_fn =
    Option<unsafe extern "C" fn(user: *mut c_void, level: i32, line: *const c_char, size: usize)>;

/// Sends the log lines of the whole process to `callback`, with `user`; NULL restores the
/// default, which writes warnings and errors to standard error.
///
/// When it returns, the callback before is not running and will not be called again, so that its
/// `user` may be freed. Thread-safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mnkv_set_log_callback(
    callback: mnkv_log_fn,
    user: *mut c_void,
) -> mnkv_status_t {
    guarded!(|error: Error| fail_on_this_thread(&error), {
        refuse_in_log_callback()?;
        // Waits for lines under way: a line is written with its sink held.
        log::set_sink(callback.map(|function| {
            let callback = Callback { function, user };
            let sink = move |level, line: &str| callback.run(level, line);
            Box::new(sink) as Box<dyn Fn(Level, &str) + Send + Sync>
        }));
        Ok(OK)
    })
}

struct Callback {
    function: unsafe extern "C" fn(*mut c_void, i32, *const c_char, usize),
    user: *mut c_void,
}

// SAFETY: by the header the function may be called on any thread with its pointer, which is only
// passed on.
unsafe impl Send for Callback {}
// SAFETY: as above, on several threads at once.
unsafe impl Sync for Callback {}

impl Callback {
    fn run(&self, level: Level, line: &str) {
        inside_log_callback(|| {
            // SAFETY: the caller's function and its own pointer; `line` lives.
            unsafe { (self.function)(self.user, level as i32, line.as_ptr().cast(), line.len()) };
        });
    }
}
