//! Writing one object: "the rules of one key", step by step.
//!
//! Visible version of a key = the lowest slot that holds a valid root of it. A write stores the
//! new version beside the old one, under a root of its own, and only then deletes the old root:
//! whoever looks, at any moment and after any crash, finds the old version whole or the new one.

mod attempt;

use self::attempt::At;
use super::core::{Core, Object};
use super::deletion::Version;
use super::index::{Knowledge, Record, Root};
use super::key_table::{Exclusive, Ghost};
use super::lane::{Lane, both};
use super::manifest_cache::CachedManifest;
use super::roots::{Ask, SlotSet, StoredRoot, Want};
use super::sums::Sums;
use crate::device::{Payload, PayloadRange};
use crate::error::{Error, ErrorCode, Result};
use crate::layout::{MAX_SLOTS, Manifest, ObjectKind, Slot, WritePlan, root_value_len, write_plan};

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
    /// All slots were looked at.
    searched: bool,
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
            searched: false,
            occupied: SlotSet::default(),
            root_ghosts: SlotSet::default(),
            full: false,
            published: false,
            doomed: SlotSet::default(),
        };
        // The room of the old version is part of what is promised to the new one: it counts until
        // the new one does, also while neither root is where the index says.
        let pinned = self.index.pin(&object.fingerprint);
        let done = write.run().await;
        if pinned {
            self.index.unpin(&object.fingerprint);
        }
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
            let manifest = self.manifest(slot);
            // Readers see the new version as soon as the device shows it, and no sooner: a root above
            // the old one becomes visible when that is deleted. Whoever has seen the new version
            // is not shown the old one again, neither if the deletion fails nor by a manifest with
            // which the old chunks can be read without their root.
            let above = old.is_some_and(|old| old.slot < slot);
            if above && let Some(old) = old {
                self.core.manifests.remove(&self.object.fingerprint);
                self.delete_old_root(old.slot).await?;
            }
            self.hold.bump();
            self.publish(slot, value_len.into(), manifest);
            drop(promise);
            if !above && let Some(old) = old {
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
        let now = (self.core.clock)();
        let quarantine = self.hold.review_quarantine(now);
        if quarantine.iter().any(|mark| mark.until <= now) {
            // They are forgotten, and if the look at all slots fails, the next one must not be
            // skipped.
            self.core.index.distrust(self.object.fingerprint);
        }
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
        self.searched = !only;
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
            self.searched = true;
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
    /// up, or may be what is in the way.
    async fn store(&mut self) -> Result<Option<Slot>> {
        loop {
            let slot = self.target()?;
            match self.store_at(slot).await? {
                At::Stored => return Ok(Some(slot)),
                // The chunks of a root that nobody knew of would be in the way like an orphan.
                At::Conflict if !self.searched => return Ok(None),
                At::Conflict => self.occupied.insert(slot),
                At::UnknownRoot => return Ok(None),
            }
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

fn same_sums(manifest: &Manifest, sums: &Sums) -> bool {
    sums.all().is_some_and(|sums| {
        sums.len() == manifest.chunks.len()
            && sums.iter().zip(&manifest.chunks).all(|(sum, chunk)| *sum == chunk.checksum)
    })
}
