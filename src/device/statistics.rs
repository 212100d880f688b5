//! What an executor has done, counted exactly: for tests and benchmarks.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counts since the executor was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Commands handed to the kernel or the emulator, refused ones included.
    pub commands: u64,
    /// Calls into the kernel that start commands or wait for them.
    pub enters: u64,
    /// Bytes copied between the caller's memory and transport buffers, headers included.
    pub bytes_copied: u64,
    /// Commands whose data went out as an array of segments, without a gather copy.
    pub vectored: u64,
    /// Commands whose data lay in memory that was registered with the kernel.
    pub fixed: u64,
    /// Completions that belonged to no command in flight: stale, duplicate or foreign.
    pub rejected: u64,
}

/// The counters behind [`Statistics`].
#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) commands: Counter,
    pub(super) enters: Counter,
    pub(super) bytes_copied: Counter,
    pub(super) vectored: Counter,
    pub(super) fixed: Counter,
    pub(super) rejected: Counter,
}

impl Counters {
    pub(super) fn snapshot(&self) -> Statistics {
        Statistics {
            commands: self.commands.get(),
            enters: self.enters.get(),
            bytes_copied: self.bytes_copied.get(),
            vectored: self.vectored.get(),
            fixed: self.fixed.get(),
            rejected: self.rejected.get(),
        }
    }
}

/// One counter; orders nothing.
#[derive(Debug, Default)]
pub(super) struct Counter(AtomicU64);

impl Counter {
    pub(super) fn add(&self, amount: u64) {
        self.0.fetch_add(amount, Ordering::Relaxed);
    }

    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}
