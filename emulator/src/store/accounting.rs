//! How much a namespace holds, and how much it may.

use std::sync::Mutex;

use crate::sync::lock;

/// What a namespace holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Number of keys.
    pub keys: u64,
    /// Bytes of all values; keys are not counted.
    pub bytes: u64,
}

/// What a namespace may hold.
#[derive(Clone, Copy)]
pub(crate) struct Limits {
    pub(crate) keys: u64,
    pub(crate) bytes: u64,
}

impl Limits {
    pub(crate) const NONE: Self = Self { keys: u64::MAX, bytes: u64::MAX };
}

/// Both counters change together, so that of many writers at the limit
/// exactly those that fit get in.
#[derive(Default)]
pub(crate) struct Accounting(Mutex<Usage>);

impl Accounting {
    pub(crate) fn new(usage: Usage) -> Self {
        Self(Mutex::new(usage))
    }

    pub(crate) fn usage(&self) -> Usage {
        *lock(&self.0)
    }

    /// Replaces a value of `old` bytes (`None`: no such key) by one of `new`
    /// bytes. False, and nothing changed, when it would grow past a limit.
    pub(crate) fn replace(&self, old: Option<u64>, new: u64, limits: Limits) -> bool {
        let mut usage = lock(&self.0);
        let keys = usage.keys + u64::from(old.is_none());
        let bytes = (usage.bytes - old.unwrap_or(0)).saturating_add(new);
        let grows_past = |now: u64, then: u64, limit: u64| then > now && then > limit;
        if grows_past(usage.keys, keys, limits.keys) || grows_past(usage.bytes, bytes, limits.bytes)
        {
            return false;
        }
        *usage = Usage { keys, bytes };
        true
    }

    /// Takes back a replacement that did not happen.
    pub(crate) fn undo(&self, old: Option<u64>, new: u64) {
        let mut usage = lock(&self.0);
        usage.keys -= u64::from(old.is_none());
        usage.bytes = usage.bytes - new + old.unwrap_or(0);
    }

    pub(crate) fn remove(&self, bytes: u64) {
        let mut usage = lock(&self.0);
        usage.keys -= 1;
        usage.bytes -= bytes;
    }
}
