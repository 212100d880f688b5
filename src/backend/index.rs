//! The in-memory index: what is known about each key without asking the device, how much the
//! stored objects take, and which of them leaves first.
//!
//! Keyed by a fingerprint of the canonical identity (the first 16 bytes of the verify hash), which
//! a root header carries, so that a scan needs no logical key and keys whose physical keys
//! collide stay apart. It holds no logical keys: an entry names the physical key of its root,
//! from which the logical key can be read back.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};

use crate::layout::{ObjectKeys, PhysicalKey, Slot};

const SHARDS: usize = 64;

/// Which object: 128 bits of its identity's hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Fingerprint([u8; 16]);

impl Fingerprint {
    pub(super) fn of(keys: &ObjectKeys) -> Self {
        Fingerprint::of_verify_hash(keys.verify_hash())
    }

    /// From a root's header.
    pub(super) fn of_verify_hash(verify_hash: &[u8; 32]) -> Self {
        let mut bytes = [0; 16];
        bytes.copy_from_slice(&verify_hash[..16]);
        Fingerprint(bytes)
    }
}

/// A fingerprint is a hash already: its upper half is used as it is, its first byte picks the
/// shard.
#[derive(Default)]
struct Prehashed(u64);

impl Hasher for Prehashed {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        if let Some(upper) = bytes.last_chunk::<8>() {
            self.0 = u64::from_le_bytes(*upper);
        }
    }

    /// The length prefix of an array; says nothing.
    fn write_usize(&mut self, _: usize) {}
}

type Shard = HashMap<Fingerprint, Entry, BuildHasherDefault<Prehashed>>;

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
    /// It is being evicted or removed: for readers it is gone.
    Hidden,
}

/// One root.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Root {
    /// Where it is.
    pub(super) slot: Slot,
    /// Bytes of the logical object.
    pub(super) size: u32,
}

/// What an object takes on the device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Footprint {
    /// Its root and its chunks.
    pub(super) values: u32,
    /// Bytes of these values as the device counts them.
    pub(super) bytes: u64,
}

/// What all objects of the index take on the device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Logical objects.
    pub objects: u64,
    /// Values: roots and chunks.
    pub values: u64,
    /// Bytes of the values, padding included.
    pub bytes: u64,
}

/// A stored object.
#[derive(Clone, Copy, Debug)]
pub(super) struct Record {
    pub(super) root: Root,
    /// The physical key of the root.
    pub(super) key: PhysicalKey,
    pub(super) footprint: Footprint,
    /// No other root exists.
    pub(super) only: bool,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    key: PhysicalKey,
    bytes: u64,
    last_use: u64,
    size: u32,
    values: u32,
    slot: Slot,
    state: State,
    /// Not to be evicted: its callback has not returned yet.
    pinned: bool,
    /// The scan that reported it or needs not, because it was stored since.
    scan: u16,
    /// The scan that found it, if nobody else has changed it since; 0: none.
    found_by: u16,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Visible,
    Only,
    /// Not trusted: a mutation failed half-way, or the device contradicted. Only a write, or a
    /// scan that looks at every slot, ends this: what a read sees may be gone a moment later.
    /// Still counted, if it was.
    Suspect,
    /// Ended by a write.
    Damaged,
    Hidden,
}

impl Entry {
    /// Known to take room on the device.
    fn counts(&self) -> bool {
        self.values > 0
    }

    fn root(&self) -> Root {
        Root { slot: self.slot, size: self.size }
    }
}

/// What is known of every key. Thread-safe; consistency with the device is the key table's task.
#[derive(Debug)]
pub(super) struct Index {
    shards: Vec<Mutex<Shard>>,
    complete: AtomicBool,
    objects: AtomicU64,
    values: AtomicU64,
    bytes: AtomicU64,
    uses: AtomicU64,
    /// The latest scan, from 1 on; 0 before the first.
    scan: AtomicU16,
}

/// A candidate for eviction.
#[derive(Clone, Copy, Debug)]
pub(super) struct Victim {
    pub(super) fingerprint: Fingerprint,
    pub(super) key: PhysicalKey,
    pub(super) footprint: Footprint,
    last_use: u64,
}

impl Index {
    pub(super) fn new() -> Self {
        Index {
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            complete: AtomicBool::new(false),
            objects: AtomicU64::new(0),
            values: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            uses: AtomicU64::new(0),
            scan: AtomicU16::new(0),
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

    fn shard(&self, key: &Fingerprint) -> MutexGuard<'_, Shard> {
        lock(&self.shards[key.0[0] as usize % SHARDS])
    }

    pub(super) fn get(&self, key: &Fingerprint) -> Knowledge {
        match self.shard(key).get(key) {
            Some(entry) => match entry.state {
                // A completed scan has purged every hidden root it met.
                State::Visible if self.is_complete() => Knowledge::Only(entry.root()),
                State::Visible => Knowledge::Visible(entry.root()),
                State::Only => Knowledge::Only(entry.root()),
                State::Suspect => Knowledge::Unknown,
                State::Damaged => Knowledge::Damaged,
                State::Hidden => Knowledge::Hidden,
            },
            None if self.is_complete() => Knowledge::Absent,
            None => Knowledge::Unknown,
        }
    }

    /// Changes the entry of `key` and keeps the counters true. `None` removes it.
    fn change(&self, key: &Fingerprint, change: impl FnOnce(Option<Entry>) -> Option<Entry>) {
        let mut shard = self.shard(key);
        let old = shard.get(key).copied();
        let new = change(old);
        match new {
            Some(entry) => shard.insert(*key, entry),
            None => shard.remove(key),
        };
        let counted = |entry: Option<Entry>| entry.filter(Entry::counts);
        if let Some(new) = counted(new) {
            self.objects.fetch_add(1, Ordering::Relaxed);
            self.values.fetch_add(u64::from(new.values), Ordering::Relaxed);
            self.bytes.fetch_add(new.bytes, Ordering::Relaxed);
        }
        if let Some(old) = counted(old) {
            self.objects.fetch_sub(1, Ordering::Relaxed);
            self.values.fetch_sub(u64::from(old.values), Ordering::Relaxed);
            self.bytes.fetch_sub(old.bytes, Ordering::Relaxed);
        }
    }

    /// Records a version that a write has made visible. It may not be evicted before
    /// [`Index::unpin`], and the running scan needs not report it.
    pub(super) fn put(&self, key: Fingerprint, record: &Record) {
        let entry = Entry { scan: self.current_scan(), ..self.entry(record) };
        self.change(&key, |_| Some(entry));
    }

    /// Records what a scan made of all slots of a key. It may not be evicted before
    /// [`Index::unpin`].
    pub(super) fn put_resolved(&self, key: Fingerprint, record: &Record) {
        let entry = self.entry(record);
        self.change(&key, |_| Some(entry));
    }

    /// Records what a read saw, if nothing was known.
    pub(super) fn learn(&self, key: Fingerprint, record: &Record) {
        let entry = Entry { pinned: false, ..self.entry(record) };
        self.change(&key, |known| known.or(Some(entry)));
    }

    /// Records what the running scan found, if nothing was known; whether it did.
    /// [`Index::abandon_scan`] forgets it again. It may not be evicted before [`Index::unpin`].
    pub(super) fn learn_scanned(&self, key: Fingerprint, record: &Record) -> bool {
        let entry = Entry { found_by: self.current_scan(), ..self.entry(record) };
        let mut vacant = false;
        self.change(&key, |known| {
            vacant = known.is_none();
            known.or(Some(entry))
        });
        vacant
    }

    /// A new entry, used now and pinned.
    fn entry(&self, record: &Record) -> Entry {
        Entry {
            key: record.key,
            bytes: record.footprint.bytes,
            last_use: self.tick(),
            size: record.root.size,
            values: record.footprint.values,
            slot: record.root.slot,
            state: if record.only { State::Only } else { State::Visible },
            pinned: true,
            scan: 0,
            found_by: 0,
        }
    }

    fn current_scan(&self) -> u16 {
        self.scan.load(Ordering::Relaxed)
    }

    /// Lets the object be evicted.
    pub(super) fn unpin(&self, key: &Fingerprint) {
        if let Some(entry) = self.shard(key).get_mut(key) {
            entry.pinned = false;
        }
    }

    /// The object was used.
    pub(super) fn touch(&self, key: &Fingerprint) {
        let now = self.tick();
        if let Some(entry) = self.shard(key).get_mut(key) {
            entry.last_use = now;
        }
    }

    fn tick(&self) -> u64 {
        self.uses.fetch_add(1, Ordering::Relaxed) + 1
    }

    fn set_state(&self, key: Fingerprint, state: State) {
        self.change(&key, |entry| {
            let unknown = Entry {
                key: PhysicalKey([0; 16]),
                bytes: 0,
                last_use: 0,
                size: 0,
                values: 0,
                slot: Slot::FIRST,
                state,
                pinned: false,
                scan: 0,
                found_by: 0,
            };
            Some(Entry { state, found_by: 0, ..entry.unwrap_or(unknown) })
        });
    }

    /// What was known no longer holds: ask the device until the next write.
    pub(super) fn distrust(&self, key: Fingerprint) {
        if self.get(&key) != Knowledge::Damaged {
            self.set_state(key, State::Suspect);
        }
    }

    /// Roots other than the visible one may appear.
    pub(super) fn expect_hidden(&self, key: &Fingerprint) {
        if let Some(entry) = self.shard(key).get_mut(key)
            && entry.state == State::Only
        {
            entry.state = State::Visible;
        }
    }

    /// The stored object is damaged.
    pub(super) fn set_damaged(&self, key: Fingerprint) {
        self.set_state(key, State::Damaged);
    }

    /// The object is gone for readers from now on. Returns how to show it again; `None` when it is
    /// not in the index.
    pub(super) fn hide(&self, key: &Fingerprint) -> Option<Shown> {
        let mut shard = self.shard(key);
        let entry = shard.get_mut(key)?;
        let shown = Shown(entry.state);
        entry.state = State::Hidden;
        Some(shown)
    }

    /// Undoes [`Index::hide`].
    pub(super) fn show(&self, key: &Fingerprint, shown: Shown) {
        if let Some(entry) = self.shard(key).get_mut(key) {
            entry.state = shown.0;
        }
    }

    /// Every root of the object was deleted.
    pub(super) fn remove(&self, key: &Fingerprint) {
        self.change(key, |_| None);
    }

    /// A read proved that the object is not stored. What is not trusted stays so: a root may yet
    /// appear.
    pub(super) fn forget(&self, key: &Fingerprint) {
        self.change(key, |entry| {
            entry.filter(|entry| !matches!(entry.state, State::Visible | State::Only))
        });
    }

    /// What all objects take.
    pub(super) fn usage(&self) -> Usage {
        Usage {
            objects: self.objects.load(Ordering::Relaxed),
            values: self.values.load(Ordering::Relaxed),
            bytes: self.bytes.load(Ordering::Relaxed),
        }
    }

    /// What is recorded of a victim, if it is still what it was when it was chosen.
    pub(super) fn still(&self, victim: &Victim) -> bool {
        self.shard(&victim.fingerprint).get(&victim.fingerprint).is_some_and(|entry| {
            entry.key == victim.key
                && entry.last_use == victim.last_use
                && !entry.pinned
                && entry.state != State::Hidden
        })
    }

    /// What the object of `key` takes, as far as is known.
    pub(super) fn footprint(&self, key: &Fingerprint) -> Footprint {
        self.shard(key).get(key).map_or(Footprint::default(), |entry| Footprint {
            values: entry.values,
            bytes: entry.bytes,
        })
    }

    /// The `count` objects that were used least recently, oldest first.
    pub(super) fn oldest(&self, count: usize) -> Vec<Victim> {
        let mut oldest: Vec<Victim> = Vec::with_capacity(2 * count);
        for shard in &self.shards {
            for (fingerprint, entry) in lock(shard).iter() {
                let evictable = !entry.pinned && entry.counts() && entry.state != State::Hidden;
                if !evictable {
                    continue;
                }
                oldest.push(Victim {
                    fingerprint: *fingerprint,
                    key: entry.key,
                    footprint: Footprint { values: entry.values, bytes: entry.bytes },
                    last_use: entry.last_use,
                });
                if oldest.len() >= 2 * count.max(1) {
                    oldest.select_nth_unstable_by_key(count.max(1) - 1, |victim| victim.last_use);
                    oldest.truncate(count);
                }
            }
        }
        oldest.sort_unstable_by_key(|victim| victim.last_use);
        oldest.truncate(count);
        oldest
    }

    /// Begins a scan: what is put from now on needs not be reported by it.
    pub(super) fn begin_scan(&self) {
        let next = |scan: u16| Some(scan.checked_add(1).unwrap_or(1));
        // The closure never declines.
        let _ = self.scan.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
    }

    /// Forgets what only the running scan knows of.
    pub(super) fn abandon_scan(&self) {
        let scan = self.current_scan();
        for shard in &self.shards {
            let found: Vec<Fingerprint> = lock(shard)
                .iter()
                .filter(|(_, entry)| entry.found_by == scan)
                .map(|(key, _)| *key)
                .collect();
            for key in found {
                self.change(&key, |entry| entry.filter(|entry| entry.found_by != scan));
            }
        }
    }

    /// Whether the running scan still has to report `key`; marks it as reported.
    pub(super) fn claim_for_scan(&self, key: &Fingerprint) -> bool {
        let scan = self.current_scan();
        match self.shard(key).get_mut(key) {
            Some(entry) if entry.scan == scan => false,
            Some(entry) => {
                entry.scan = scan;
                true
            }
            None => true,
        }
    }
}

/// What an object was before it was hidden.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shown(State);

fn lock(shard: &Mutex<Shard>) -> MutexGuard<'_, Shard> {
    shard.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
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

    fn record(slot: u32, only: bool) -> Record {
        let footprint = Footprint { values: 3, bytes: 12_288 };
        Record { root: root(slot), key: PhysicalKey([slot as u8; 16]), footprint, only }
    }

    #[test]
    fn what_is_not_in_the_index_is_absent_only_once_it_is_complete() {
        let index = Index::new();
        assert_eq!(index.get(&key(b"a")), Knowledge::Unknown);
        index.set_complete();
        assert_eq!(index.get(&key(b"a")), Knowledge::Absent);
    }

    #[test]
    fn a_visible_root_is_the_only_one_once_the_index_is_complete() {
        let index = Index::new();
        index.put(key(b"a"), &record(1, false));
        assert_eq!(index.get(&key(b"a")), Knowledge::Visible(root(1)));
        index.set_complete();
        assert_eq!(index.get(&key(b"a")), Knowledge::Only(root(1)));
    }

    #[test]
    fn distrust_means_asking_the_device_even_when_the_index_is_complete() {
        let index = Index::new();
        index.set_complete();
        index.put(key(b"a"), &record(3, true));
        index.distrust(key(b"a"));
        assert_eq!(index.get(&key(b"a")), Knowledge::Unknown);
        assert_eq!(index.usage().objects, 1, "it still takes its room");
    }

    #[test]
    fn reads_do_not_end_distrust_and_do_not_replace_what_is_known() {
        let index = Index::new();
        index.learn(key(b"a"), &record(1, false));
        index.learn(key(b"a"), &record(2, true));
        assert_eq!(index.get(&key(b"a")), Knowledge::Visible(root(1)));
        index.distrust(key(b"a"));
        index.learn(key(b"a"), &record(1, true));
        assert!(!index.learn_scanned(key(b"a"), &record(1, true)));
        assert_eq!(index.get(&key(b"a")), Knowledge::Unknown);
        index.forget(&key(b"a"));
        assert_eq!(index.get(&key(b"a")), Knowledge::Unknown, "not proven absent for good");
        index.put(key(b"a"), &record(1, true));
        index.expect_hidden(&key(b"a"));
        assert_eq!(index.get(&key(b"a")), Knowledge::Visible(root(1)));
        index.set_complete();
        index.forget(&key(b"a"));
        assert_eq!(index.get(&key(b"a")), Knowledge::Absent);
    }

    #[test]
    fn damage_is_forgotten_only_by_a_new_root() {
        let index = Index::new();
        index.set_damaged(key(b"a"));
        index.distrust(key(b"a"));
        index.learn(key(b"a"), &record(0, true));
        index.forget(&key(b"a"));
        assert_eq!(index.get(&key(b"a")), Knowledge::Damaged);
        index.put(key(b"a"), &record(0, true));
        assert_eq!(index.get(&key(b"a")), Knowledge::Only(root(0)));
    }

    #[test]
    fn usage_follows_every_change() {
        let index = Index::new();
        let one = Usage { objects: 1, values: 3, bytes: 12_288 };
        index.put(key(b"a"), &record(0, true));
        index.put(key(b"a"), &record(1, true));
        assert_eq!(index.usage(), one);
        index.hide(&key(b"a"));
        index.set_damaged(key(b"b"));
        assert_eq!(index.usage(), one);
        index.remove(&key(b"a"));
        assert_eq!(index.usage(), Usage::default());
    }

    #[test]
    fn an_abandoned_scan_leaves_only_what_was_known_before() {
        let index = Index::new();
        index.put(key(b"old"), &record(0, true));
        index.begin_scan();
        assert!(index.claim_for_scan(&key(b"old")));
        assert!(index.learn_scanned(key(b"new"), &record(0, false)));
        assert!(index.claim_for_scan(&key(b"new")));
        assert!(!index.claim_for_scan(&key(b"new")), "reported once");
        index.put(key(b"stored meanwhile"), &record(0, true));
        assert!(!index.claim_for_scan(&key(b"stored meanwhile")));
        index.abandon_scan();
        assert_eq!(index.get(&key(b"new")), Knowledge::Unknown);
        assert_eq!(index.usage().objects, 2);
    }

    #[test]
    fn the_oldest_unpinned_objects_are_chosen_oldest_first() {
        let index = Index::new();
        let name = |n: u32| key(&n.to_le_bytes());
        for n in 0..1000 {
            index.put(name(n), &record(0, true));
            if n != 3 {
                index.unpin(&name(n));
            }
        }
        index.touch(&name(0));
        let chosen: Vec<Fingerprint> =
            index.oldest(4).into_iter().map(|victim| victim.fingerprint).collect();
        assert_eq!(chosen, [name(1), name(2), name(4), name(5)]);
    }
}
