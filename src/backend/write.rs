//! Writing one object: "the rules of one key", step by step.
//!
//! Visible version of a key = the lowest slot that holds a valid root of it. A write stores the
//! new version beside the old one, under a root of its own, and only then deletes the old root:
//! whoever looks, at any moment and after any crash, finds the old version whole or the new one.

use super::core::{Core, Object};
use super::deletion::Version;
use super::index::{Knowledge, Record, Root};
use super::key_table::{Exclusive, Ghost};
use super::lane::{Lane, both};
use super::manifest_cache::CachedManifest;
use super::roots::{Ask, SlotSet, StoredRoot, Want};
use super::sums::Sums;
use crate::device::{Direction, Operation, Payload, PayloadRange, Value};
use crate::error::{Error, ErrorCode, Result};
use crate::layout::{
    ChunkIndex, ChunkRecord, MAX_SLOTS, Manifest, ObjectKind, Slot, WritePlan, root_prefix,
    root_prefix_len, root_value_len, write_plan,
};
use crate::log;

/// What a write did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stored {
    /// Bytes of the logical object.
    pub size: u64,
    /// The same bytes were stored already; nothing was written.
    pub already: bool,
}

/// A finished write: the object is readable. What is left to do is not the caller's business.
pub(super) struct Written<'t> {
    pub(super) stored: Stored,
    pub(super) leftovers: Option<Leftovers<'t>>,
}

/// A write that failed.
pub(super) struct Refused {
    pub(super) error: Error,
    /// The device or a limit has no room for the object: evicting others may help.
    pub(super) full: bool,
}

impl From<Error> for Refused {
    fn from(error: Error) -> Self {
        Refused { error, full: false }
    }
}

/// Chunks of the replaced version, deleted once no reader can be at them. The key stays held
/// until then, so that their slot is not used before.
pub(super) struct Leftovers<'t> {
    hold: Exclusive<'t>,
    version: Version,
}

/// How often a write starts over because a root of its key appeared that nobody knew of.
const ROUNDS: u32 = 3;

/// Devices that report padded lengths report multiples of this many bytes.
const DEVICE_PADDING: u32 = 4096;

/// One write under way.
struct Write<'w, 'a> {
    core: &'w Core,
    lane: &'w Lane<'a>,
    object: &'w Object<'a>,
    payload: Payload<'a>,
    /// All of the payload, as one range.
    whole: PayloadRange<'a>,
    plan: WritePlan,
    sums: Sums,
    hold: &'w Exclusive<'w>,
    /// Slots that hold something.
    occupied: SlotSet,
    /// Slots where an old root may appear late.
    root_ghosts: SlotSet,
    /// The device or a limit has no room for the new version.
    full: bool,
    /// The new version is in the index, pinned.
    published: bool,
    /// Slots where what is stored may be deleted late.
    doomed: SlotSet,
}

/// How storing at one slot ended.
enum At {
    Stored,
    /// Something else is stored there.
    Conflict,
    /// A root of this key is there that nobody knew of.
    UnknownRoot,
}

impl Core {
    /// Stores `payload` as the value of `object`.
    ///
    /// # Errors
    /// INVALID_PARAMS for an object that no manifest can describe, before anything is read of it;
    /// OBJECT_ALREADY_EXISTS when all slots are taken; otherwise the device's. After an error the
    /// old version is stored, or, where the message says so, either version.
    pub(super) async fn write<'t, 'a>(
        &'t self,
        lane: &Lane<'a>,
        object: &Object<'a>,
        payload: Payload<'a>,
    ) -> std::result::Result<Written<'t>, Refused> {
        let refused = |error: crate::layout::LayoutError| {
            Error::new(error.code(), format!("{object}: {error}"))
        };
        let plan = write_plan(object.key.len(), payload.len(), self.limits()).map_err(refused)?;
        let Some(whole) = payload.whole() else {
            let message =
                format!("{object}: {} bytes, the largest object has {}", payload.len(), u32::MAX);
            return Err(Error::new(ErrorCode::InvalidParams, message).into());
        };
        let hold = self.table.exclusive(object.entry).await;
        // After the key: whoever waits for a key keeps no sweep waiting.
        let _gate = self.table.shared(Core::sweep_gate()).await;
        let mut write = Write {
            core: self,
            lane,
            object,
            payload,
            whole,
            plan,
            sums: Sums::new(self.checksum, plan, whole.len()),
            hold: &hold,
            occupied: SlotSet::default(),
            root_ghosts: SlotSet::default(),
            full: false,
            published: false,
            doomed: SlotSet::default(),
        };
        let done = write.run().await;
        let (stored, replaced) = done.map_err(|error| {
            if write.published {
                self.index.unpin(&object.fingerprint);
            }
            Refused { error, full: write.full }
        })?;
        let leftovers = replaced.filter(|version| version.chunk_count > 0);
        Ok(Written { stored, leftovers: leftovers.map(|version| Leftovers { hold, version }) })
    }

    /// Deletes the chunks of a replaced version.
    pub(super) async fn clear(&self, lane: &Lane<'_>, object: &Object<'_>, left: Leftovers<'_>) {
        self.delete_version_chunks(lane, &left.hold, object, left.version).await;
    }
}

/// Ids carry these bits beside a chunk index: a second try, and a comparison with what is there.
const AGAIN: u64 = 1 << 32;
const COMPARE: u64 = 1 << 33;

impl<'a> Write<'_, 'a> {
    /// What was stored, and the version that it replaced.
    async fn run(&mut self) -> Result<(Stored, Option<Version>)> {
        for round in 0..ROUNDS {
            let known = self.knowledge(round);
            let mut roots = self.find_roots(known).await?;
            self.finish_deletes(&mut roots).await?;
            let hidden = roots.split_off(roots.len().min(1));
            let old = roots
                .first()
                .map(|root| Version { slot: root.slot, chunk_count: root.chunk_count() });
            let visible = match roots.pop() {
                Some(root) => self.core.whole(self.lane, self.object, root).await?,
                None => None,
            };
            if let Some(visible) =
                visible.filter(|root| known != Knowledge::Damaged && self.lasts(root.slot))
                && let Some(manifest) = self.same(&visible).await
            {
                self.purge(hidden).await?;
                self.publish(visible.slot, visible.value_len, manifest);
                return Ok((self.stored(true), None));
            }
            for root in &hidden {
                self.occupied.remove(root.slot);
            }
            // Nothing is deleted for a version that cannot be stored.
            self.target()?;
            self.purge(hidden).await?;
            let value_len = self.root_value_len();
            let new = self.core.footprint(value_len.into(), self.plan_shape());
            let index = &self.core.index;
            let replaced = index.footprint(&self.object.fingerprint);
            let promise = self.core.quota.promise(index, new, replaced);
            self.full |= promise.is_err();
            let promise = promise.map_err(|error| error.context(self.object))?;
            let Some(slot) = self.store().await? else { continue };
            self.hold.bump();
            let manifest = self.manifest(slot);
            self.publish(slot, value_len.into(), manifest);
            drop(promise);
            if let Some(old) = old {
                self.delete_old_root(old.slot).await?;
            }
            return Ok((self.stored(false), old));
        }
        Err(Error::new(
            ErrorCode::FileWriteFail,
            format!(
                "{}: roots of it appeared {ROUNDS} times while it was written; \
                 is another process writing to this namespace?",
                self.object
            ),
        ))
    }

    fn stored(&self, already: bool) -> Stored {
        Stored { size: u64::from(self.whole.len()), already }
    }

    /// What is known of the key, and which slots commands of unknown outcome may still change.
    fn knowledge(&mut self, round: u32) -> Knowledge {
        let quarantine = self.hold.review_quarantine((self.core.clock)());
        let now = (self.core.clock)();
        self.occupied = SlotSet::default();
        self.root_ghosts = SlotSet::default();
        self.doomed = SlotSet::default();
        for mark in quarantine.iter().filter(|mark| mark.until > now) {
            self.haunt(mark.slot, mark.ghost);
        }
        match self.core.index.get(&self.object.fingerprint) {
            Knowledge::Damaged => Knowledge::Damaged,
            _ if round > 0 || !quarantine.is_empty() => Knowledge::Unknown,
            known => known,
        }
    }

    fn haunt(&mut self, slot: Slot, ghost: Ghost) {
        match ghost {
            Ghost::RootStore => self.root_ghosts.insert(slot),
            Ghost::Delete => self.doomed.insert(slot),
        }
    }

    /// No command of unknown outcome can delete the root in `slot` or hide it.
    fn lasts(&self, slot: Slot) -> bool {
        !self.doomed.contains(slot) && !self.root_ghosts.any_below(slot)
    }

    /// Takes over what deletions have quarantined.
    fn note_ghosts(&mut self) {
        for mark in self.hold.quarantines() {
            self.haunt(mark.slot, mark.ghost);
        }
    }

    fn quarantine(&mut self, slot: Slot, ghost: Ghost) {
        self.core.quarantine(self.hold, self.object, slot, ghost);
        self.haunt(slot, ghost);
    }

    /// Rule 1: all roots of the key, lowest slot first. The payload is hashed meanwhile, as far as
    /// it may turn out to be stored already.
    async fn find_roots(&mut self, known: Knowledge) -> Result<Vec<StoredRoot>> {
        let guess = self.root_value_len();
        let asks = match known {
            Knowledge::Absent => return Ok(Vec::new()),
            Knowledge::Only(root) => vec![(root.slot, Ask::Root { guess, want: Want::Prefix })],
            Knowledge::Visible(root) => self.core.ask_all(root.slot, guess),
            // A hidden key is held by whoever hid it, so it is not hidden here.
            Knowledge::Unknown | Knowledge::Damaged | Knowledge::Hidden => {
                self.core.ask_all(Slot::FIRST, guess)
            }
        };
        let only = matches!(known, Knowledge::Only(_));
        let may_be_stored = match known {
            Knowledge::Only(root) | Knowledge::Visible(root) => root.size == self.whole.len(),
            _ => true,
        };
        let search = self.core.search(self.lane, self.object, asks);
        let mut found = if may_be_stored {
            both(search, self.sums.complete(self.lane, &self.payload)).await.0?
        } else {
            search.await?
        };
        if only && found.roots.is_empty() {
            // The index was wrong: somebody else changed the device.
            let asks = self.core.ask_all(Slot::FIRST, guess);
            found = self.core.search(self.lane, self.object, asks).await?;
        }
        self.occupied = self.occupied.union(found.occupied);
        Ok(found.roots)
    }

    /// A visible root whose Delete had no answer gives way to the version that was to replace it:
    /// it may vanish at any moment, and what is purged until then cannot take its place.
    async fn finish_deletes(&mut self, roots: &mut Vec<StoredRoot>) -> Result<()> {
        while roots.len() > 1 && self.doomed.contains(roots[0].slot) {
            let replaced = roots.remove(0);
            self.purge(vec![replaced]).await?;
        }
        Ok(())
    }

    /// Rule 2: whether `root` is a good copy of the payload, judged at its own chunk boundaries
    /// and by its own kind of checksum; with what a reader needs to know of it.
    async fn same(&mut self, root: &StoredRoot) -> Option<Option<CachedManifest>> {
        let bytes = root.payload().ok()?;
        if root.header.kind == ObjectKind::Inline {
            return self.whole.equals(bytes).then_some(None);
        }
        let manifest = Manifest::parse(bytes).ok()?;
        manifest.verify_placement(&self.object.keys, root.slot).ok()?;
        if manifest.logical_size != self.whole.len() {
            return None;
        }
        let (kind, piece) = (root.header.checksum, manifest.chunk_size());
        if !self.sums.are(kind, piece) {
            let mut stored_sums = Sums::of_pieces(kind, piece, self.whole.len());
            stored_sums.complete(self.lane, &self.payload).await;
            return same_sums(&manifest, &stored_sums)
                .then(|| Some(CachedManifest::of(&manifest, root.slot, kind)));
        }
        self.sums.complete(self.lane, &self.payload).await;
        same_sums(&manifest, &self.sums)
            .then(|| Some(CachedManifest::of(&manifest, root.slot, kind)))
    }

    /// Rule 3: deletes hidden roots, highest slot first, each root before its chunks.
    async fn purge(&mut self, mut hidden: Vec<StoredRoot>) -> Result<()> {
        if !hidden.is_empty() {
            // The index may name one of them, if the lower root appeared late.
            self.core.index.distrust(self.object.fingerprint);
        }
        while let Some(root) = hidden.pop() {
            let version = Version { slot: root.slot, chunk_count: root.chunk_count() };
            let (core, lane, hold, object) = (self.core, self.lane, self.hold, self.object);
            let deleted = core.delete_root(lane, hold, object, version.slot).await;
            if deleted.is_ok() {
                core.delete_version_chunks(lane, hold, object, version).await;
            }
            self.note_ghosts();
            deleted?;
        }
        Ok(())
    }

    /// The lowest slot that can hold the new version.
    fn target(&self) -> Result<Slot> {
        let taken = self.occupied.union(self.root_ghosts).union(self.doomed);
        let Some(slot) = Slot::all().find(|slot| !taken.contains(*slot)) else {
            return Err(Error::new(
                ErrorCode::ObjectAlreadyExists,
                format!("{}: no free slot: other values hold all {MAX_SLOTS} of them", self.object),
            ));
        };
        if self.root_ghosts.any_below(slot) {
            return Err(Error::new(
                ErrorCode::InvalidRead,
                format!(
                    "{}: an earlier Store without an answer may still appear below slot {}, \
                     hiding what would be written there; offload it again in {} ms",
                    self.object,
                    slot.get(),
                    self.core.settle.as_millis()
                ),
            ));
        }
        Ok(slot)
    }

    /// Rule 4: the new version in the lowest slot that takes it. `None`: a root of this key turned
    /// up.
    async fn store(&mut self) -> Result<Option<Slot>> {
        loop {
            let slot = self.target()?;
            match self.store_at(slot).await? {
                At::Stored => return Ok(Some(slot)),
                At::Conflict => self.occupied.insert(slot),
                At::UnknownRoot => return Ok(None),
            }
        }
    }

    async fn store_at(&mut self, slot: Slot) -> Result<At> {
        let mut created = Vec::new();
        let stored = match self.plan {
            WritePlan::Inline => Ok(true),
            WritePlan::Chunked { chunk_size, .. } => {
                self.store_chunks(slot, chunk_size, &mut created).await
            }
        };
        let at = match stored {
            Ok(true) => self.store_root(slot).await,
            Ok(false) => Ok(At::Conflict),
            Err(error) => Err(Undone::Discard(error)),
        };
        match at {
            Ok(At::Stored) => Ok(At::Stored),
            Ok(other) => {
                self.discard(slot, &created).await;
                Ok(other)
            }
            Err(Undone::Discard(error)) => {
                self.discard(slot, &created).await;
                Err(error)
            }
            Err(Undone::Keep(error)) => Err(error),
        }
    }

    /// Stores the chunks, hashing each while it is on its way. False: a chunk of other bytes is
    /// there. `created` gets the chunks that were not there before.
    async fn store_chunks(
        &mut self,
        slot: Slot,
        chunk_size: u32,
        created: &mut Vec<u32>,
    ) -> Result<bool> {
        let ranges: Vec<PayloadRange<'a>> = self.payload.chunks(chunk_size).collect();
        let count = ranges.len() as u32;
        self.core.claims.announce(self.core.chunk_keys(self.object, slot, count));
        let mut commands = self.lane.commands();
        let mut conflict = false;
        let mut failure: Option<Error> = None;
        let key = |index: usize| self.object.keys.chunk(slot, ChunkIndex(index as u32));
        let store = |index: usize| Operation::Store {
            key: key(index),
            value: Value { head: Vec::new(), body: ranges[index] },
        };
        let mut next = 0;
        loop {
            let arrived = if next < ranges.len() && !conflict && failure.is_none() {
                commands.submit(next as u64, store(next));
                self.sums.piece(next, &ranges[next]);
                next += 1;
                self.lane.yield_now().await;
                match commands.try_next() {
                    Some(arrived) => arrived,
                    None => continue,
                }
            } else {
                match commands.next().await {
                    Some(arrived) => arrived,
                    None => break,
                }
            };
            let (id, completion) = arrived;
            let index = (id & !(AGAIN | COMPARE)) as usize;
            let range = ranges[index];
            match completion.result {
                Ok(_) if id & COMPARE == 0 => created.push(index as u32),
                Ok(reply) => {
                    let stored = completion.buffer.as_deref().unwrap_or_default();
                    conflict |= !self.is_value(&range, stored, reply.value_len);
                }
                Err(error) if id & COMPARE != 0 && error.is_short_buffer() => conflict = true,
                Err(error) if id & COMPARE == 0 && error.is_exists() => {
                    let transfer = self.core.executor.capabilities().transfer_len(range.len());
                    let mut buffer = self.core.executor.buffers().get(transfer as usize);
                    spoil(&mut buffer, &range);
                    let compare = Operation::Retrieve { key: key(index), buffer, len: range.len() };
                    commands.submit(index as u64 | COMPARE, compare);
                }
                Err(error) if id & (AGAIN | COMPARE) == 0 && error.outcome_unknown() => {
                    // The same bytes again: whichever of the two is executed, it is right.
                    commands.submit(index as u64 | AGAIN, store(index));
                }
                Err(error) => {
                    self.full |= id & COMPARE == 0 && error.is_full();
                    let what =
                        format_args!("{}: chunk {index} in slot {}", self.object, slot.get());
                    failure.get_or_insert_with(|| error.into_error(Direction::Write, what));
                }
            }
        }
        match failure {
            Some(error) => Err(error),
            None => Ok(!conflict),
        }
    }

    /// Whether a stored value, reported to have `reported` bytes, is `range`: exact or padded, by
    /// us or by the device.
    fn is_value(&self, range: &PayloadRange<'_>, stored: &[u8], reported: Option<u32>) -> bool {
        let len = range.len();
        let ours = self.core.executor.capabilities().transfer_len(len);
        let device = len.checked_next_multiple_of(DEVICE_PADDING).unwrap_or(u32::MAX);
        let plausible = reported.is_none_or(|reported| [len, ours, device].contains(&reported));
        plausible && stored.get(..len as usize).is_some_and(|bytes| range.equals(bytes))
    }

    /// Rule 5, the visibility mark.
    async fn store_root(&mut self, slot: Slot) -> std::result::Result<At, Undone> {
        let key = self.object.keys.root(slot);
        let mut ghost = false;
        loop {
            let head = self.root_head(slot);
            let body = match self.plan {
                WritePlan::Inline => self.whole,
                WritePlan::Chunked { .. } => PayloadRange::EMPTY,
            };
            let stored = self.lane.run(Operation::Store { key, value: Value { head, body } }).await;
            let at = match stored.result {
                Ok(_) => Ok(At::Stored),
                Err(error) if error.is_exists() => self.judge_root(slot).await,
                Err(error) if error.outcome_unknown() && !ghost => {
                    // The same root again: whichever of the two is executed, it is right.
                    ghost = true;
                    continue;
                }
                Err(error) => {
                    ghost |= error.outcome_unknown();
                    self.full |= error.is_full();
                    let what = format_args!("{}: root in slot {}", self.object, slot.get());
                    Err(error.into_error(Direction::Write, what))
                }
            };
            if ghost {
                self.quarantine(slot, Ghost::RootStore);
            }
            if matches!((&at, ghost), (Ok(At::UnknownRoot), _) | (Err(_), true)) {
                // What is visible now, or soon, may not be what the index says.
                self.core.index.distrust(self.object.fingerprint);
            }
            return match at {
                Err(error) if ghost => Err(Undone::Keep(
                    error.context("either version may be stored, and the root may still appear"),
                )),
                Err(error) => Err(Undone::Discard(error)),
                Ok(at) => Ok(at),
            };
        }
    }

    /// Header, identity and, of a chunked object, the manifest.
    fn root_head(&mut self, slot: Slot) -> Vec<u8> {
        let (kind, manifest) = match self.plan {
            WritePlan::Inline => (ObjectKind::Inline, None),
            WritePlan::Chunked { .. } => {
                (ObjectKind::Manifest, Some(self.new_manifest(slot).encode()))
            }
        };
        let (len, sum) = match &manifest {
            Some(bytes) => (bytes.len() as u32, self.core.checksum.of_slice(bytes)),
            None => (self.whole.len(), self.sums.piece(0, &self.whole)),
        };
        let (keys, key) = (&self.object.keys, self.object.key);
        let mut head = root_prefix(kind, self.core.checksum, keys, slot, key, len, sum);
        head.extend_from_slice(&manifest.unwrap_or_default());
        head
    }

    fn new_manifest(&mut self, slot: Slot) -> Manifest {
        let WritePlan::Chunked { chunk_size, .. } = self.plan else {
            return Manifest { logical_size: self.whole.len(), chunks: Vec::new() };
        };
        let chunks =
            self.payload.chunks(chunk_size).enumerate().map(|(index, range)| ChunkRecord {
                key: self.object.keys.chunk(slot, ChunkIndex(index as u32)),
                size: range.len(),
                checksum: self.sums.piece(index, &range),
            });
        Manifest { logical_size: self.whole.len(), chunks: chunks.collect() }
    }

    /// The root key of `slot` holds a value already: which?
    async fn judge_root(&mut self, slot: Slot) -> Result<At> {
        let expected = self.root_head(slot);
        let guess = self.root_value_len();
        let ask = (slot, Ask::Root { guess, want: Want::Whole });
        let found = self.core.search(self.lane, self.object, [ask]).await?;
        let Some(root) = found.roots.first() else {
            let gone = !found.occupied.contains(slot);
            return Ok(if gone { At::UnknownRoot } else { At::Conflict });
        };
        let (prefix, manifest) = expected.split_at(root_prefix_len(self.object.key.len()));
        let same = root.prefix() == prefix
            && root.payload().is_ok_and(|payload| match self.plan {
                WritePlan::Inline => self.whole.equals(payload),
                WritePlan::Chunked { .. } => payload == manifest,
            });
        Ok(if same { At::Stored } else { At::UnknownRoot })
    }

    /// Deletes what this attempt created in `slot`. What cannot be deleted stays as an orphan.
    async fn discard(&mut self, slot: Slot, created: &[u32]) {
        let created = created.iter().copied();
        let deleted = self.core.delete_chunks(self.lane, self.object, slot, created).await;
        if deleted.ghost {
            self.quarantine(slot, Ghost::Delete);
        }
        if let Some(error) = deleted.error {
            log::warning!(
                "{}: chunks of a failed write stay in slot {} as orphans: {error}",
                self.object,
                slot.get()
            );
        }
    }

    /// Rule 5: readers find the version in `slot` from now on. It may be evicted once the caller
    /// has been told of it.
    fn publish(&mut self, slot: Slot, value_len: u64, manifest: Option<CachedManifest>) {
        let record = Record {
            root: Root { slot, size: self.whole.len() },
            key: self.object.keys.root(slot),
            footprint: self.core.footprint(value_len, manifest.as_ref().map(CachedManifest::shape)),
            only: !self.hold.is_quarantined(),
        };
        let key = self.object.fingerprint;
        match manifest {
            Some(manifest) => self.core.manifests.put(key, manifest),
            None => self.core.manifests.remove(&key),
        }
        self.core.index.put(key, &record);
        self.published = true;
    }

    fn root_value_len(&self) -> u32 {
        root_value_len(self.plan, self.object.key.len(), self.payload.len())
    }

    /// Size and chunk size of a chunked object.
    fn plan_shape(&self) -> Option<(u32, u32)> {
        match self.plan {
            WritePlan::Inline => None,
            WritePlan::Chunked { chunk_size, .. } => Some((self.whole.len(), chunk_size)),
        }
    }

    fn manifest(&mut self, slot: Slot) -> Option<CachedManifest> {
        let WritePlan::Chunked { .. } = self.plan else { return None };
        let manifest = self.new_manifest(slot);
        Some(CachedManifest::of(&manifest, slot, self.core.checksum))
    }

    /// Rule 6.
    async fn delete_old_root(&mut self, slot: Slot) -> Result<()> {
        let deleted = self.core.delete_root(self.lane, self.hold, self.object, slot).await;
        self.note_ghosts();
        deleted.map_err(|error| {
            error.context(
                "the new version is stored, but the old root is not deleted: either version may \
                 be read until the key is written again",
            )
        })
    }
}

/// How a root that was not stored leaves the chunks of its attempt.
enum Undone {
    /// Nothing refers to them.
    Discard(Error),
    /// The root may still appear.
    Keep(Error),
}

/// Makes what a buffer holds from before differ from `range`, so that a shorter value, on a device
/// that does not report lengths, is not taken for it.
fn spoil(buffer: &mut [u8], range: &PayloadRange<'_>) {
    let last = range.segments().filter_map(|segment| segment.last()).last();
    let place = (range.len() as usize).checked_sub(1).and_then(|end| buffer.get_mut(end));
    if let (Some(byte), Some(last)) = (place, last) {
        *byte = !*last;
    }
}

fn same_sums(manifest: &Manifest, sums: &Sums) -> bool {
    sums.all().is_some_and(|sums| {
        sums.len() == manifest.chunks.len()
            && sums.iter().zip(&manifest.chunks).all(|(sum, chunk)| *sum == chunk.checksum)
    })
}
