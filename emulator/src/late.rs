//! Commands that were not answered and execute later.

use std::sync::{
    Mutex,
    atomic::{AtomicBool, Ordering},
};

use nvme_kv_command_set::Command;

use crate::sync::lock;

/// A command with its own copy of what the host sent.
pub(crate) struct LateCommand {
    pub(crate) command: Command,
    pub(crate) data: Vec<u8>,
    /// I/O commands to execute before this one; `u64::MAX` for never.
    pub(crate) remaining: u64,
}

#[derive(Default)]
pub(crate) struct LateQueue {
    /// Whether `waiting` holds anything: keeps the lock off the fast path.
    armed: AtomicBool,
    waiting: Mutex<Vec<LateCommand>>,
}

impl LateQueue {
    pub(crate) fn push(&self, command: LateCommand) {
        let mut waiting = lock(&self.waiting);
        waiting.push(command);
        self.armed.store(true, Ordering::Release);
    }

    /// Counts one executed command; returns what is due now, oldest first.
    pub(crate) fn tick(&self) -> Vec<LateCommand> {
        if !self.armed.load(Ordering::Acquire) {
            return Vec::new();
        }
        let mut waiting = lock(&self.waiting);
        for late in waiting.iter_mut().filter(|late| late.remaining != u64::MAX) {
            late.remaining = late.remaining.saturating_sub(1);
        }
        let due = waiting.extract_if(.., |late| late.remaining == 0).collect();
        self.armed.store(!waiting.is_empty(), Ordering::Release);
        due
    }

    /// Takes everything, oldest first.
    pub(crate) fn take_all(&self) -> Vec<LateCommand> {
        let mut waiting = lock(&self.waiting);
        self.armed.store(false, Ordering::Release);
        std::mem::take(&mut waiting)
    }
}
