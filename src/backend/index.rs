//! The in-memory index: what is known about each key without asking the device.
//!
//! Keyed by a fingerprint of the canonical identity (the first 16 bytes of the verify hash), which
//! a root header carries, so that a scan needs no logical key and keys whose physical keys
//! collide stay apart. It holds no logical keys.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard};

use crate::layout::{ObjectKeys, Slot};

const SHARDS: usize = 64;

/// Which object: 128 bits of its identity's hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Fingerprint([u8; 16]);

impl Fingerprint {
    pub(super) fn of(keys: &ObjectKeys) -> Self {
        let mut bytes = [0; 16];
        bytes.copy_from_slice(&keys.verify_hash()[..16]);
        Fingerprint(bytes)
    }
}

/// What is known of the roots of one key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Knowledge {
    /// Nothing: ask the device.
    Unknown,
    /// No slot holds a root of it.
    Absent,
    /// This root is the visible one; higher slots may hold hidden ones.
    Visible(Root),
    /// This root is the only one.
    Only(Root),
    /// A read found damage: ask the device, and never take what is stored for a good copy.
    Damaged,
}

/// One root.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Root {
    /// Where it is.
    pub(super) slot: Slot,
    /// Bytes of the logical object.
    pub(super) size: u32,
}

/// What is known of every key. Thread-safe; consistency with the device is the key table's task.
#[derive(Debug)]
pub(super) struct Index {
    shards: Vec<Mutex<HashMap<Fingerprint, Entry>>>,
    complete: AtomicBool,
}

#[derive(Clone, Copy, Debug)]
enum Entry {
    Visible(Root),
    Only(Root),
    /// Not trusted: a mutation failed half-way, or the device contradicted. Only a write, which
    /// looks at every slot, ends this: what a read sees may be gone a moment later.
    Suspect,
    /// Ended by a write, too.
    Damaged,
}

impl Index {
    pub(super) fn new() -> Self {
        Index {
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            complete: AtomicBool::new(false),
        }
    }

    /// From now on a key that is not in the index is not on the device.
    pub(super) fn set_complete(&self) {
        self.complete.store(true, Ordering::Release);
    }

    /// Whether absence from the index proves absence from the device.
    pub(super) fn is_complete(&self) -> bool {
        self.complete.load(Ordering::Acquire)
    }

    fn shard(&self, key: &Fingerprint) -> MutexGuard<'_, HashMap<Fingerprint, Entry>> {
        let shard = &self.shards[key.0[0] as usize % SHARDS];
        shard.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    pub(super) fn get(&self, key: &Fingerprint) -> Knowledge {
        match self.shard(key).get(key) {
            Some(Entry::Visible(root)) => Knowledge::Visible(*root),
            Some(Entry::Only(root)) => Knowledge::Only(*root),
            Some(Entry::Suspect) => Knowledge::Unknown,
            Some(Entry::Damaged) => Knowledge::Damaged,
            None if self.is_complete() => Knowledge::Absent,
            None => Knowledge::Unknown,
        }
    }

    /// Records that `root` is the visible one, or, when `only`, the only one.
    pub(super) fn put(&self, key: Fingerprint, root: Root, only: bool) {
        let entry = if only { Entry::Only(root) } else { Entry::Visible(root) };
        self.shard(&key).insert(key, entry);
    }

    /// Records what a read saw, if nothing was known.
    pub(super) fn learn(&self, key: Fingerprint, root: Root, only: bool) {
        let entry = if only { Entry::Only(root) } else { Entry::Visible(root) };
        self.shard(&key).entry(key).or_insert(entry);
    }

    /// What was known no longer holds: ask the device until the next write.
    pub(super) fn distrust(&self, key: Fingerprint) {
        let mut shard = self.shard(&key);
        if !matches!(shard.get(&key), Some(Entry::Damaged)) {
            shard.insert(key, Entry::Suspect);
        }
    }

    /// Roots other than the visible one may appear.
    pub(super) fn expect_hidden(&self, key: &Fingerprint) {
        if let Some(entry) = self.shard(key).get_mut(key) {
            if let Entry::Only(root) = *entry {
                *entry = Entry::Visible(root);
            }
        }
    }

    /// The stored object is damaged.
    pub(super) fn set_damaged(&self, key: Fingerprint) {
        self.shard(&key).insert(key, Entry::Damaged);
    }

    /// A read proved that the object is not stored. What is not trusted stays so: a root may yet
    /// appear.
    pub(super) fn remove(&self, key: &Fingerprint) {
        let mut shard = self.shard(key);
        if matches!(shard.get(key), Some(Entry::Visible(_) | Entry::Only(_))) {
            shard.remove(key);
        }
    }

    /// Objects known to be stored.
    pub(super) fn len(&self) -> usize {
        let present = |shard: &Mutex<HashMap<Fingerprint, Entry>>| {
            let shard = shard.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
            shard
                .values()
                .filter(|entry| matches!(entry, Entry::Visible(_) | Entry::Only(_)))
                .count()
        };
        self.shards.iter().map(present).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(logical: &[u8]) -> Fingerprint {
        Fingerprint::of(&ObjectKeys::new(logical))
    }

    fn root(slot: u32) -> Root {
        Root { slot: Slot::new(slot).unwrap(), size: 5 }
    }

    #[test]
    fn what_is_not_in_the_index_is_absent_only_once_it_is_complete() {
        let index = Index::new();
        assert_eq!(index.get(&key(b"a")), Knowledge::Unknown);
        index.set_complete();
        assert_eq!(index.get(&key(b"a")), Knowledge::Absent);
    }

    #[test]
    fn distrust_means_asking_the_device_even_when_the_index_is_complete() {
        let index = Index::new();
        index.set_complete();
        index.put(key(b"a"), root(3), true);
        assert_eq!(index.get(&key(b"a")), Knowledge::Only(root(3)));
        assert_eq!(index.len(), 1);
        index.distrust(key(b"a"));
        assert_eq!(index.get(&key(b"a")), Knowledge::Unknown);
        assert_eq!(index.len(), 0);
    }

    #[test]
    fn reads_do_not_end_distrust_and_do_not_replace_what_is_known() {
        let index = Index::new();
        index.set_complete();
        index.learn(key(b"a"), root(1), false);
        index.learn(key(b"a"), root(2), true);
        assert_eq!(index.get(&key(b"a")), Knowledge::Visible(root(1)));
        index.distrust(key(b"a"));
        index.learn(key(b"a"), root(1), true);
        assert_eq!(index.get(&key(b"a")), Knowledge::Unknown);
        index.remove(&key(b"a"));
        assert_eq!(index.get(&key(b"a")), Knowledge::Unknown, "not proven absent for good");
        index.put(key(b"a"), root(1), true);
        index.expect_hidden(&key(b"a"));
        assert_eq!(index.get(&key(b"a")), Knowledge::Visible(root(1)));
        index.remove(&key(b"a"));
        assert_eq!(index.get(&key(b"a")), Knowledge::Absent);
        index.expect_hidden(&key(b"a"));
        assert_eq!(index.get(&key(b"a")), Knowledge::Absent);
    }

    #[test]
    fn damage_is_forgotten_only_by_a_new_root() {
        let index = Index::new();
        index.set_damaged(key(b"a"));
        index.distrust(key(b"a"));
        index.learn(key(b"a"), root(0), true);
        index.remove(&key(b"a"));
        assert_eq!(index.get(&key(b"a")), Knowledge::Damaged);
        index.put(key(b"a"), root(0), false);
        assert_eq!(index.get(&key(b"a")), Knowledge::Visible(root(0)));
    }
}
