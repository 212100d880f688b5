//! The in-memory index: what is known about each key without asking the device, how much the
//! stored objects take, and which of them leaves first.
//!
//! Keyed by a fingerprint of the canonical identity (the first 16 bytes of the verify hash), which
//! a root header carries, so that a scan needs no logical key and keys whose physical keys
//! collide stay apart. It holds no logical keys: an entry names the physical key of its root,
//! from which the logical key can be read back.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;

use super::entries::Entries;
use super::sync::{AtomicBool, AtomicU64, Mutex, MutexGuard, shards};
use crate::layout::{ObjectKeys, PhysicalKey, Slot};

/// The first byte of a fingerprint picks the shard.
const SHARDS: usize = shards(256);
/// Looking for candidates for eviction visits every entry; it then keeps one in so many of them,
/// so that a victim costs this many visits, whatever the number of keys.
const KEYS_PER_CANDIDATE: usize = 64;
const FEWEST_CANDIDATES: usize = 1024;

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

    /// It is a hash already: its upper half is used as it is.
    pub(super) fn hash(&self) -> u64 {
        let [_, _, _, _, _, _, _, _, upper @ ..] = self.0;
        u64::from_le_bytes(upper)
    }

    #[cfg(test)]
    pub(super) fn from_bytes(bytes: [u8; 16]) -> Self {
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

impl Usage {
    /// One more object.
    pub(super) fn add(&mut self, footprint: Footprint) {
        self.objects += 1;
        self.values += u64::from(footprint.values);
        self.bytes += footprint.bytes;
    }

    /// It is at least `need`.
    pub(super) fn covers(&self, need: Usage) -> bool {
        self.objects >= need.objects && self.values >= need.values && self.bytes >= need.bytes
    }

    /// What is left of it without `part`.
    pub(super) fn without(&self, part: Usage) -> Usage {
        Usage {
            objects: self.objects.saturating_sub(part.objects),
            values: self.values.saturating_sub(part.values),
            bytes: self.bytes.saturating_sub(part.bytes),
        }
    }
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

/// 40 bytes, and 16 of its fingerprint.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    key: PhysicalKey,
    /// 0: not in this life of the backend.
    last_use: u64,
    size: u32,
    /// Bytes on the device beyond `size`: root, padding. Less than two values in practice.
    overhead: u32,
    values: u32,
    slot: Slot,
    state: State,
    /// How many callbacks that tell of it have not returned, and writes that replace it not ended;
    /// until then it is not evicted and counts as it does.
    pins: u8,
    marks: Marks,
}

/// What scans have noted on an entry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Marks(u8);

impl Marks {
    /// The reporting scan has reported it, or need not, since it was stored meanwhile.
    const REPORTED: Marks = Marks(1);

    /// Only this scan knows of it.
    const fn found(by: ScanKind) -> Marks {
        match by {
            ScanKind::Reporting => Marks(2),
            ScanKind::Silent => Marks(4),
        }
    }

    const FOUND: Marks = Marks(2 | 4);

    /// Not trusted when this scan began, and not changed since.
    const fn doubted(by: ScanKind) -> Marks {
        match by {
            ScanKind::Reporting => Marks(8),
            ScanKind::Silent => Marks(16),
        }
    }

    const DOUBTED: Marks = Marks(8 | 16);

    fn contains(self, other: Marks) -> bool {
        self.0 & other.0 != 0
    }

    /// A scan has seen it: if the other one found it, both know of it now.
    fn confirmed(self, by: ScanKind) -> Marks {
        if self.contains(Marks::found(by)) { self } else { self.without(Marks::FOUND) }
    }

    fn with(self, other: Marks) -> Marks {
        Marks(self.0 | other.0)
    }

    fn without(self, other: Marks) -> Marks {
        Marks(self.0 & !other.0)
    }
}

/// Scans that may run at the same time, one of each kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ScanKind {
    /// Tells the caller what it finds.
    Reporting,
    /// Only completes the index.
    Silent,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Visible,
    Only,
    /// Not trusted: a mutation failed half-way, or the device contradicted. Only a write, or a
    /// scan that looks at every slot, ends this: what a read sees may be gone a moment later.
    /// Still counted, if it was.
    Suspect,
    /// Ended by a write, or a scan that meets no root of the key.
    Damaged,
    Hidden,
}

impl State {
    /// What is stored is not trusted until something ends that.
    fn is_doubt(self) -> bool {
        matches!(self, State::Suspect | State::Damaged)
    }

    /// What is left of it when what was known no longer holds: damage outlives other doubts.
    fn doubted(self) -> State {
        if self == State::Damaged { State::Damaged } else { State::Suspect }
    }
}

impl Entry {
    /// Known to take room on the device.
    fn counts(&self) -> bool {
        self.values > 0
    }

    fn root(&self) -> Root {
        Root { slot: self.slot, size: self.size }
    }

    fn footprint(&self) -> Footprint {
        let bytes = u64::from(self.size) + u64::from(self.overhead);
        Footprint { values: self.values, bytes }
    }

    fn is_evictable(&self) -> bool {
        self.pins == 0 && self.counts() && self.state != State::Hidden
    }

    #[cfg(test)]
    pub(super) fn with_last_use(last_use: u64) -> Entry {
        Entry { last_use, ..Entry::unknown(State::Only) }
    }

    #[cfg(test)]
    pub(super) fn last_use(&self) -> u64 {
        self.last_use
    }

    /// Of a key whose roots nobody has seen.
    fn unknown(state: State) -> Entry {
        Entry {
            key: PhysicalKey([0; 16]),
            last_use: 0,
            size: 0,
            overhead: 0,
            values: 0,
            slot: Slot::FIRST,
            state,
            pins: 0,
            marks: Marks::default(),
        }
    }

    /// Never used, not pinned.
    fn of(record: &Record) -> Entry {
        let overhead = record.footprint.bytes.saturating_sub(u64::from(record.root.size));
        Entry {
            key: record.key,
            size: record.root.size,
            overhead: u32::try_from(overhead).unwrap_or(u32::MAX),
            values: record.footprint.values,
            slot: record.root.slot,
            ..Entry::unknown(if record.only { State::Only } else { State::Visible })
        }
    }
}

/// What is known of every key. Thread-safe; consistency with the device is the key table's task.
#[derive(Debug)]
pub(super) struct Index {
    shards: Vec<Mutex<Entries>>,
    complete: AtomicBool,
    objects: AtomicU64,
    values: AtomicU64,
    bytes: AtomicU64,
    uses: AtomicU64,
    /// The oldest objects when they were last looked for, oldest first.
    candidates: Mutex<VecDeque<Candidate>>,
}

/// An object and the use that made it old.
#[derive(Clone, Copy, Debug)]
struct Candidate {
    fingerprint: Fingerprint,
    last_use: u64,
}

/// An object as it was when it was chosen, to be evicted or removed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Victim {
    pub(super) fingerprint: Fingerprint,
    pub(super) key: PhysicalKey,
    pub(super) footprint: Footprint,
    last_use: u64,
}

impl Victim {
    fn new(fingerprint: Fingerprint, entry: &Entry) -> Victim {
        let (key, last_use) = (entry.key, entry.last_use);
        Victim { fingerprint, key, footprint: entry.footprint(), last_use }
    }

    fn is(&self, entry: &Entry) -> bool {
        entry.state != State::Hidden && entry.key == self.key && entry.last_use == self.last_use
    }
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
            candidates: Mutex::default(),
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

    fn shard(&self, key: &Fingerprint) -> MutexGuard<'_, Entries> {
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
            self.bytes.fetch_add(new.footprint().bytes, Ordering::Relaxed);
        }
        if let Some(old) = counted(old) {
            self.objects.fetch_sub(1, Ordering::Relaxed);
            self.values.fetch_sub(u64::from(old.values), Ordering::Relaxed);
            self.bytes.fetch_sub(old.footprint().bytes, Ordering::Relaxed);
        }
    }

    /// Records a version that a write has made visible, used now. It is not evicted before
    /// [`Index::unpin`], and the running scan need not report it.
    pub(super) fn put(&self, key: Fingerprint, record: &Record) {
        let last_use = self.tick();
        self.change(&key, |known| {
            let pins = known.map_or(0, |known| known.pins).saturating_add(1);
            Some(Entry { last_use, pins, marks: Marks::REPORTED, ..Entry::of(record) })
        });
    }

    /// Records what a read saw, if nothing was known.
    pub(super) fn learn(&self, key: Fingerprint, record: &Record) {
        let last_use = self.tick();
        self.change(&key, |known| known.or(Some(Entry { last_use, ..Entry::of(record) })));
    }

    /// Records what a scan saw, if nothing was known. It counts as older than everything used
    /// since the backend was opened. [`Index::abandon_scan`] forgets it again, unless the other
    /// scan or anybody else has seen it too.
    pub(super) fn learn_scanned(&self, key: Fingerprint, record: &Record, by: ScanKind) {
        self.change(&key, |known| match known {
            Some(known) => Some(Entry { marks: known.marks.confirmed(by), ..known }),
            None => Some(Entry { marks: Marks::found(by), ..Entry::of(record) }),
        });
    }

    /// A scan has met a root of what is damaged: it stays so.
    pub(super) fn confirm_damaged(&self, key: &Fingerprint, by: ScanKind) {
        if let Some(entry) = self.shard(key).get_mut(key) {
            entry.marks = entry.marks.without(Marks::doubted(by));
        }
    }

    /// Records what a scan made of all slots of a key. What a read has found damaged meanwhile
    /// stays so.
    pub(super) fn put_resolved(&self, key: Fingerprint, record: &Record, by: ScanKind) {
        self.change(&key, |known| {
            let new = Entry::of(record);
            Some(match known {
                Some(known) => {
                    let Entry { last_use, pins, .. } = known;
                    let marks = known.marks.confirmed(by).without(Marks::DOUBTED);
                    let state = if known.state == State::Damaged { known.state } else { new.state };
                    Entry { last_use, pins, marks, state, ..new }
                }
                None => Entry { marks: Marks::found(by), ..new },
            })
        });
    }

    /// Keeps an object from being evicted until [`Index::unpin`]; false when it is not there.
    pub(super) fn pin(&self, key: &Fingerprint) -> bool {
        match self.shard(key).get_mut(key) {
            Some(entry) if entry.state != State::Hidden => {
                entry.pins = entry.pins.saturating_add(1);
                true
            }
            _ => false,
        }
    }

    /// Ends one pin: the callback that told of the object has returned, or the write has ended.
    pub(super) fn unpin(&self, key: &Fingerprint) {
        if let Some(entry) = self.shard(key).get_mut(key) {
            entry.pins = entry.pins.saturating_sub(1);
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

    /// `state` gets the one that was, if there was any.
    fn set_state(&self, key: Fingerprint, state: impl FnOnce(Option<State>) -> State) {
        self.change(&key, |entry| {
            let state = state(entry.map(|entry| entry.state));
            let entry = entry.unwrap_or(Entry::unknown(state));
            Some(Entry { state, marks: entry.marks.without(Marks::DOUBTED), ..entry })
        });
    }

    /// What was known no longer holds: ask the device until the next write.
    pub(super) fn distrust(&self, key: Fingerprint) {
        self.set_state(key, |was| was.map_or(State::Suspect, State::doubted));
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
        self.set_state(key, |_| State::Damaged);
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
            // A scan that met a hidden root took no note of it.
            entry.marks = entry.marks.without(Marks::DOUBTED);
        }
    }

    /// Undoes [`Index::hide`] of an object that may be gone, or partly gone, meanwhile.
    pub(super) fn show_doubted(&self, key: Fingerprint, shown: Option<Shown>) {
        self.set_state(key, |_| shown.map_or(State::Suspect, |shown| shown.0.doubted()));
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

    /// Hides a victim, see [`Index::hide`]. `None`: it is not what it was when it was chosen, or is
    /// pinned.
    pub(super) fn hide_victim(&self, victim: &Victim) -> Option<Shown> {
        let mut shard = self.shard(&victim.fingerprint);
        let entry = shard.get_mut(&victim.fingerprint)?;
        let unchanged = entry.is_evictable() && victim.is(entry);
        unchanged.then(|| Shown(std::mem::replace(&mut entry.state, State::Hidden)))
    }

    /// The root of a victim is not where it was, or not readable: the object counts no more and the
    /// device is asked for it, unless it has changed since or is pinned: a write may be replacing
    /// that root. It may still be in another slot, so nothing proves its absence.
    pub(super) fn doubt(&self, victim: &Victim) {
        self.change(&victim.fingerprint, |entry| {
            entry.map(|entry| {
                if victim.is(&entry) && entry.pins == 0 {
                    Entry::unknown(entry.state.doubted())
                } else {
                    entry
                }
            })
        });
    }

    /// What the object of `key` takes, as far as is known.
    pub(super) fn footprint(&self, key: &Fingerprint) -> Footprint {
        self.shard(key).get(key).map_or(Footprint::default(), Entry::footprint)
    }

    /// What [`Index::roots`] is asked for, one after the other.
    pub(super) fn shards(&self) -> std::ops::Range<usize> {
        0..SHARDS
    }

    /// Every root of one shard, pinned ones included.
    pub(super) fn roots(&self, shard: usize) -> Vec<Victim> {
        let shard = lock(&self.shards[shard]);
        let roots = shard.iter().filter(|(_, entry)| entry.counts());
        roots.map(|(fingerprint, entry)| Victim::new(*fingerprint, entry)).collect()
    }

    /// The object of `key` as it is now, if it may be evicted.
    pub(super) fn victim(&self, key: &Fingerprint) -> Option<Victim> {
        let shard = self.shard(key);
        let entry = shard.get(key).filter(|entry| entry.is_evictable())?;
        Some(Victim::new(*key, entry))
    }

    /// Objects that were used least recently, oldest first, until they take `need` or are `most`,
    /// or fewer, but one at least if there is any. What is taken is not offered again before every other object of about its age.
    pub(super) fn take_oldest(&self, need: Usage, most: usize) -> Vec<Victim> {
        let mut candidates =
            self.candidates.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let mut victims = Vec::new();
        let mut freed = Usage::default();
        let mut looked = false;
        while victims.len() < most && !freed.covers(need) {
            let Some(candidate) = candidates.pop_front() else {
                // Those already chosen would be found again.
                if looked || !victims.is_empty() {
                    break;
                }
                looked = true;
                *candidates = self.look_for_candidates(most);
                continue;
            };
            let key = candidate.fingerprint;
            let entry = self.shard(&key).get(&key).copied();
            let same = |entry: &Entry| entry.is_evictable() && entry.last_use == candidate.last_use;
            if let Some(entry) = entry.filter(same) {
                let victim = Victim::new(key, &entry);
                freed.add(victim.footprint);
                victims.push(victim);
            }
        }
        victims
    }

    fn look_for_candidates(&self, least: usize) -> VecDeque<Candidate> {
        let all: usize = self.shards.iter().map(|shard| lock(shard).len()).sum();
        let count = (all / KEYS_PER_CANDIDATE).max(FEWEST_CANDIDATES).max(least);
        let mut oldest: Vec<Candidate> = Vec::with_capacity(2 * count.min(all));
        let by_age = |candidate: &Candidate| (candidate.last_use, candidate.fingerprint);
        for shard in &self.shards {
            for (fingerprint, entry) in lock(shard).iter() {
                if !entry.is_evictable() {
                    continue;
                }
                oldest.push(Candidate { fingerprint: *fingerprint, last_use: entry.last_use });
                if oldest.len() >= 2 * count {
                    oldest.select_nth_unstable_by_key(count - 1, by_age);
                    oldest.truncate(count);
                }
            }
        }
        oldest.sort_unstable_by_key(by_age);
        oldest.truncate(count);
        oldest.into()
    }

    /// Begins a scan. To a reporting one, what is put from now on need not be reported.
    pub(super) fn begin_scan(&self, by: ScanKind) {
        let old = match by {
            ScanKind::Reporting => Marks::found(by).with(Marks::REPORTED),
            ScanKind::Silent => Marks::found(by),
        };
        for shard in &self.shards {
            for entry in lock(shard).iter_mut() {
                entry.marks = entry.marks.without(old).without(Marks::doubted(by));
                if entry.state.is_doubt() {
                    entry.marks = entry.marks.with(Marks::doubted(by));
                }
            }
        }
    }

    /// A scan has seen every root, and none of what was not trusted when it began and has not been
    /// touched since, nor is being written: it is not stored.
    pub(super) fn drop_doubted(&self, by: ScanKind) {
        let doubted = |entry: &Entry| {
            entry.state.is_doubt() && entry.marks.contains(Marks::doubted(by)) && entry.pins == 0
        };
        for shard in &self.shards {
            let keys: Vec<Fingerprint> = lock(shard)
                .iter()
                .filter(|(_, entry)| doubted(entry))
                .map(|(key, _)| *key)
                .collect();
            for key in keys {
                self.change(&key, |entry| entry.filter(|entry| !doubted(entry)));
            }
        }
    }

    /// Forgets what only the running scan knows of, unless it is being written, or the other scan
    /// has meanwhile shown that nothing else is stored.
    pub(super) fn abandon_scan(&self, by: ScanKind) {
        let found = Marks::found(by);
        for shard in &self.shards {
            let keys: Vec<Fingerprint> = lock(shard)
                .iter()
                .filter(|(_, entry)| entry.marks.contains(found))
                .map(|(key, _)| *key)
                .collect();
            for key in keys {
                self.change(&key, |entry| {
                    let entry = entry?;
                    if !entry.marks.contains(found) || entry.pins > 0 || self.is_complete() {
                        return Some(entry);
                    }
                    match entry.state {
                        State::Visible | State::Only => None,
                        // Doubt about the key outlives what raised it.
                        State::Suspect | State::Damaged => Some(Entry::unknown(entry.state)),
                        State::Hidden => Some(entry),
                    }
                });
            }
        }
    }

    /// Whether the running scan still has to report `key`; marks it as reported.
    pub(super) fn claim_for_scan(&self, key: &Fingerprint) -> bool {
        match self.shard(key).get_mut(key) {
            Some(entry) if !entry.marks.contains(Marks::REPORTED) => {
                entry.marks = entry.marks.with(Marks::REPORTED);
                true
            }
            _ => false,
        }
    }
}

/// What an object was before it was hidden.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shown(State);

fn lock(shard: &Mutex<Entries>) -> MutexGuard<'_, Entries> {
    shard.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

#[cfg(test)]
mod tests;
