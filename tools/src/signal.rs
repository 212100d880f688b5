//! SIGTERM and SIGINT as something a thread waits for.

use std::{io, mem::MaybeUninit, ptr};

/// SIGTERM and SIGINT, blocked in this process.
pub(crate) struct Termination(libc::sigset_t);

/// Blocks both signals in this thread and in those it starts from now on.
pub(crate) fn block_termination() -> io::Result<Termination> {
    let mut set = MaybeUninit::uninit();
    // SAFETY: sigemptyset initialises the set, which is valid for the calls
    // after it; neither fails with a valid set and valid signals.
    let set = unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        libc::sigaddset(set.as_mut_ptr(), libc::SIGTERM);
        libc::sigaddset(set.as_mut_ptr(), libc::SIGINT);
        set.assume_init()
    };
    // SAFETY: the set is initialised, and the old mask is not asked for.
    match unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &set, ptr::null_mut()) } {
        0 => Ok(Termination(set)),
        errno => Err(io::Error::from_raw_os_error(errno)),
    }
}

impl Termination {
    /// Waits for one of the signals.
    pub(crate) fn wait(&self) {
        let mut signal = 0;
        // SAFETY: the set is initialised and `signal` outlives the call. It
        // fails only for a set with signals that do not exist.
        unsafe { libc::sigwait(&self.0, &mut signal) };
    }
}
