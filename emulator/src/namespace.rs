//! One emulated namespace.

use std::sync::RwLock;

use nvme_kv_command_set::{Key, StoreOptions};

use crate::{
    counts::{Counters, Counts},
    data::Payload,
    fault::{Fault, Script},
    late::LateQueue,
    personality::Personality,
    registry::Registration,
    store::{Limits, Store, Usage, WalkOrder},
    sync::{read, write},
};

/// Identifier of the only namespace an emulated controller has.
pub const NSID: u32 = 1;

/// An emulated Key-Value namespace and the controller in front of it.
///
/// Every method may be called from any number of threads at once. One call of
/// [`execute`](Self::execute) is one command from submission to completion.
pub struct Namespace {
    pub(crate) store: Box<dyn Store>,
    pub(crate) script: Script,
    pub(crate) late: LateQueue,
    pub(crate) counters: Counters,
    personality: RwLock<Personality>,
    nguid: [u8; 16],
    // After `store`: fields are dropped in this order, and a directory is
    // closed only when its store is.
    _registration: Option<Registration>,
}

impl Namespace {
    pub(crate) fn new(
        store: Box<dyn Store>,
        nguid: [u8; 16],
        personality: Personality,
        registration: Option<Registration>,
    ) -> Self {
        Self {
            store,
            script: Script::default(),
            late: LateQueue::default(),
            counters: Counters::default(),
            personality: RwLock::new(personality),
            nguid,
            _registration: registration,
        }
    }

    /// Queues a fault. Several may wait at the same time.
    pub fn script(&self, fault: Fault) {
        self.script.add(fault);
    }

    /// Forgets all faults that have not fired. Late commands stay pending.
    pub fn clear_faults(&self) {
        self.script.clear();
    }

    /// Executes all pending late commands now, oldest first, and returns how
    /// many there were.
    pub fn release_late(&self) -> usize {
        let pending = self.late.take_all();
        let count = pending.len();
        self.execute_late(pending);
        count
    }

    /// The current personality.
    pub fn personality(&self) -> Personality {
        read(&self.personality).clone()
    }

    /// Changes the personality for commands submitted from now on. Values
    /// that are stored stay, even beyond smaller limits.
    pub fn set_personality(&self, personality: Personality) {
        *write(&self.personality) = personality;
    }

    /// Namespace Globally Unique Identifier: random, made at creation, and
    /// kept as long as the namespace.
    pub fn nguid(&self) -> [u8; 16] {
        self.nguid
    }

    /// The namespace identifier, [`NSID`].
    pub fn nsid(&self) -> u32 {
        NSID
    }

    /// Commands received since the namespace was opened.
    pub fn counts(&self) -> Counts {
        self.counters.snapshot()
    }

    /// What the namespace holds.
    pub fn usage(&self) -> Usage {
        self.store.usage()
    }

    /// All keys in byte order, without a command.
    pub fn keys(&self) -> Vec<Key> {
        let mut keys = Vec::new();
        self.store.walk(WalkOrder::Sorted, None, &mut |key| {
            keys.push(*key);
            true
        });
        keys
    }

    /// The value of a key, without a command. For tests.
    ///
    /// # Panics
    /// When the file store cannot be read.
    pub fn peek(&self, key: &Key) -> Option<Vec<u8>> {
        let value = self.store.get(key).unwrap_or_else(|failure| panic!("{failure}"));
        value.map(|value| value.to_vec())
    }

    /// Sets the value of a key without a command and without limits. For tests.
    ///
    /// # Panics
    /// When the file store cannot be written, or the value is longer than 4 GiB.
    pub fn poke(&self, key: &Key, value: &[u8]) {
        assert!(u32::try_from(value.len()).is_ok(), "a value of {} bytes", value.len());
        let parts = [value];
        let stored = Payload::new(&parts, value.len())
            .map(|payload| self.store.put(key, payload, StoreOptions::NONE, Limits::NONE));
        if let Some(Err(error)) = stored {
            panic!("storing under {key:?} failed: {error}");
        }
    }

    /// Removes a key without a command; whether it was there. For tests.
    ///
    /// # Panics
    /// When the file store cannot be written.
    pub fn erase(&self, key: &Key) -> bool {
        self.store.remove(key).unwrap_or_else(|failure| panic!("{failure}"))
    }
}

impl std::fmt::Debug for Namespace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Namespace")
            .field("nguid", &format_args!("{:032x}", u128::from_be_bytes(self.nguid)))
            .field("usage", &self.usage())
            .field("personality", &format_args!("{}", self.personality()))
            .finish_non_exhaustive()
    }
}
