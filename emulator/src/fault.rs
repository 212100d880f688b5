//! Scripted faults: the nth command of a kind goes wrong in a chosen way.

use std::{
    sync::{
        Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use nvme_kv_command_set::{Key, Opcode, Status};

use crate::sync::lock;

/// One fault. It fires once and is gone.
#[derive(Clone, Debug, PartialEq)]
pub struct Fault {
    /// The command it waits for.
    pub on: Trigger,
    /// What happens to that command.
    pub effect: Effect,
}

/// Which command a fault waits for, counted from the moment of scripting.
///
/// One command takes at most one fault: of several that are due, the one that
/// was scripted first; the others fire at the next commands they match.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Trigger {
    /// Kind of command; `None` for any I/O command.
    pub kind: Option<Opcode>,
    /// The nth match; 1 (or 0) is the next one.
    pub nth: u64,
    /// Key of the command as the device sees it (a List's start key); `None`
    /// for any, or none.
    pub key: Option<Key>,
}

/// What happens to a command.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Effect {
    /// Not executed; ends with this status and dword 0 zero.
    Status(Status),
    /// Not executed; the host sees this errno (positive).
    Errno(i32),
    /// Executed, and takes this much longer.
    Delay(Duration),
    /// Not executed, and no completion.
    NotExecutedNoAnswer,
    /// Executed, but the completion is lost.
    ExecutedNoAnswer,
    /// No completion; the device executes it later, from its own copy of the
    /// data and by the store options as they apply then.
    LateNoAnswer {
        /// Executed once this many further I/O commands have been; `u64::MAX`
        /// for never, that is, only by
        /// [`Namespace::release_late`](crate::Namespace::release_late).
        after: u64,
    },
    /// Executed; a successful completion carries this dword 0.
    WrongLength(u32),
    /// Executed; one returned byte is changed. Without effect when fewer bytes
    /// are returned.
    Damage {
        /// Which of the returned bytes.
        offset: u32,
        /// Bits to flip in it.
        xor: u8,
    },
}

#[derive(Default)]
pub(crate) struct Script {
    /// Whether `pending` holds anything: keeps the lock off the fast path.
    armed: AtomicBool,
    pending: Mutex<Vec<Pending>>,
}

struct Pending {
    fault: Fault,
    seen: u64,
}

impl Script {
    pub(crate) fn add(&self, fault: Fault) {
        let mut pending = lock(&self.pending);
        pending.push(Pending { fault, seen: 0 });
        self.armed.store(true, Ordering::Release);
    }

    pub(crate) fn clear(&self) {
        let mut pending = lock(&self.pending);
        pending.clear();
        self.armed.store(false, Ordering::Release);
    }

    /// Counts a command for every fault and takes the one that it fires.
    pub(crate) fn take(&self, kind: Opcode, key: Option<Key>) -> Option<Effect> {
        if !self.armed.load(Ordering::Acquire) {
            return None;
        }
        let mut pending = lock(&self.pending);
        let mut fired = None;
        for (index, waiting) in pending.iter_mut().enumerate() {
            let on = &waiting.fault.on;
            if on.kind.is_some_and(|wanted| wanted != kind)
                || on.key.is_some_and(|wanted| Some(wanted) != key)
            {
                continue;
            }
            waiting.seen = waiting.seen.saturating_add(1);
            if fired.is_none() && waiting.seen >= on.nth {
                fired = Some(index);
            }
        }
        let fault = fired.map(|index| pending.remove(index).fault);
        self.armed.store(!pending.is_empty(), Ordering::Release);
        fault.map(|fault| fault.effect)
    }
}
