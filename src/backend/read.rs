//! Reading one object: one round trip when the guess is right, and never anything that was not
//! verified.
//!
//! Key and size are known before any I/O, so root and chunks are asked for together, at the slot
//! the index names or the first one. Only when that misses are the other slots searched.

use std::cell::Cell;

use super::chunks::{ChunkFailure, Shape};
use super::core::{Core, Object};
use super::index::{Knowledge, Record, Root};
use super::lane::{Lane, both};
use super::manifest_cache::CachedManifest;
use super::roots::{Ask, StoredRoot, Want};
use crate::config::EvictionPolicy;
use crate::device::Destination;
use crate::error::{Error, ErrorCode, Result};
use crate::layout::{
    ChecksumPart, ChunkIndex, LayoutError, Manifest, ObjectKind, Slot, WritePlan, read_plan,
};
use crate::log;

/// Why an attempt to read did not deliver.
enum Failure {
    /// No slot holds a root of the key.
    Absent(Error),
    /// The object is being removed: for readers it is gone.
    Hidden(Error),
    /// The stored object cannot be delivered whole.
    Damaged(Error),
    /// The stored object has another size.
    OtherSize(Error),
    /// The device failed; this says nothing about the object.
    Device(Error),
}

impl Failure {
    fn into_error(self) -> Error {
        match self {
            Failure::Absent(error)
            | Failure::Hidden(error)
            | Failure::Damaged(error)
            | Failure::OtherSize(error)
            | Failure::Device(error) => error,
        }
    }
}

/// What an attempt learned of the key.
#[derive(Default)]
struct Learned {
    /// The visible version, unless something unreadable is under a root key: it may be a root that
    /// the device has garbled once.
    record: Option<Record>,
    manifest: Option<CachedManifest>,
    /// The device does not hold what the index says.
    contradicted: bool,
}

/// Whether a key is stored.
enum Presence {
    Present,
    Absent,
    /// Being removed.
    Hidden,
}

impl Core {
    /// Loads `object`, whose size is that of `destination`. After an error the destination holds
    /// arbitrary bytes.
    ///
    /// # Errors
    /// OBJECT_NOT_FOUND only when absence is proven; FILE_READ_FAIL when the stored object has
    /// another size or lacks a piece; CHECKSUM_MISMATCH when bytes are damaged; otherwise the
    /// device's.
    pub(super) async fn read<'a>(
        &self,
        lane: &Lane<'a>,
        object: &Object<'_>,
        mut destination: Destination<'a>,
    ) -> Result<()> {
        let Ok(size) = u32::try_from(destination.len()) else {
            return Err(Error::new(
                ErrorCode::InvalidParams,
                format!(
                    "{object}: {} bytes wanted, the largest object has {}",
                    destination.len(),
                    u32::MAX
                ),
            ));
        };
        // Two attempts count only if no mutation interfered; the third keeps mutations out.
        for _ in 0..2 {
            let pin = self.table.pin(object.entry);
            let (result, learned) = self.attempt(lane, object, &mut destination, size).await;
            match result {
                Ok(()) if pin.unchanged() => {
                    pin.if_undisturbed(|| self.learn(object, learned));
                    self.used(object);
                    return Ok(());
                }
                Err(Failure::Device(error) | Failure::Hidden(error)) => return Err(error),
                Err(failure) if pin.if_undisturbed(|| self.note(object, &failure, &learned)) => {
                    return Err(failure.into_error());
                }
                Ok(()) | Err(_) => {}
            }
        }
        let _hold = self.table.shared(object.entry).await;
        let (result, learned) = self.attempt(lane, object, &mut destination, size).await;
        match result {
            Ok(()) => {
                self.learn(object, learned);
                self.used(object);
                Ok(())
            }
            Err(failure) => {
                self.note(object, &failure, &learned);
                Err(failure.into_error())
            }
        }
    }

    /// Whether `object` is stored, if the index knows and nobody is changing it.
    pub(super) fn known_presence(&self, object: &Object<'_>) -> Option<bool> {
        let pin = self.table.pin(object.entry);
        match self.index.get(&object.fingerprint) {
            Knowledge::Only(_) | Knowledge::Visible(_) => Some(true),
            Knowledge::Hidden => Some(false),
            Knowledge::Absent if pin.if_undisturbed(|| ()) => Some(false),
            Knowledge::Absent | Knowledge::Unknown | Knowledge::Damaged => None,
        }
    }

    /// Whether `object` is stored; false only when absence is proven.
    pub(super) async fn exists<'a>(&self, lane: &Lane<'a>, object: &Object<'_>) -> Result<bool> {
        for _ in 0..2 {
            let pin = self.table.pin(object.entry);
            let (presence, learned) = self.presence(lane, object).await?;
            match presence {
                Presence::Present if pin.unchanged() => {
                    pin.if_undisturbed(|| self.learn(object, learned));
                    return Ok(true);
                }
                Presence::Hidden => return Ok(false),
                Presence::Absent if pin.if_undisturbed(|| ()) => return Ok(false),
                Presence::Present | Presence::Absent => {}
            }
        }
        let _hold = self.table.shared(object.entry).await;
        let (presence, learned) = self.presence(lane, object).await?;
        self.learn(object, learned);
        Ok(matches!(presence, Presence::Present))
    }

    async fn presence<'a>(
        &self,
        lane: &Lane<'a>,
        object: &Object<'_>,
    ) -> Result<(Presence, Learned)> {
        match self.index.get(&object.fingerprint) {
            Knowledge::Only(_) | Knowledge::Visible(_) => {
                return Ok((Presence::Present, Learned::default()));
            }
            Knowledge::Absent => return Ok((Presence::Absent, Learned::default())),
            Knowledge::Hidden => return Ok((Presence::Hidden, Learned::default())),
            Knowledge::Unknown | Knowledge::Damaged => {}
        }
        let first = Ask::Root { guess: 0, want: Want::Prefix };
        let mut found = self.search(lane, object, [(Slot::FIRST, first)]).await?;
        let mut only = false;
        if found.roots.is_empty() {
            let unreadable = found.unreadable;
            found = self.search(lane, object, self.ask_others(Slot::FIRST)).await?;
            only = found.roots.len() == 1;
            found.unreadable = unreadable.or(found.unreadable);
        }
        match (found.roots.first(), found.unreadable) {
            (Some(root), unreadable) => {
                let shape = root.shape().filter(|_| unreadable.is_none());
                let record = shape.map(|shape| self.record(object, root, shape, only));
                Ok((Presence::Present, Learned { record, ..Learned::default() }))
            }
            (None, Some((slot, error))) => Err(unreadable_root(object, slot, &error)),
            (None, None) => Ok((Presence::Absent, Learned::default())),
        }
    }

    /// What the index keeps of a version whose root was fetched.
    pub(super) fn record(
        &self,
        object: &Object<'_>,
        root: &StoredRoot,
        shape: (u32, Option<u32>),
        only: bool,
    ) -> Record {
        let (size, chunk_size) = shape;
        Record {
            root: Root { slot: root.slot, size },
            key: object.keys.root(root.slot),
            footprint: self.footprint(root.value_len, chunk_size.map(|chunk| (size, chunk))),
            only,
        }
    }

    /// A load is a use, which postpones eviction.
    fn used(&self, object: &Object<'_>) {
        if self.lifecycle.eviction == EvictionPolicy::Lru {
            self.index.touch(&object.fingerprint);
        }
    }

    /// Keeps what a good read learned. Nothing known better is replaced.
    fn learn(&self, object: &Object<'_>, learned: Learned) {
        if learned.contradicted {
            self.index.distrust(object.fingerprint);
        }
        if let Some(record) = learned.record {
            self.index.learn(object.fingerprint, &record);
        }
        if let Some(manifest) = learned.manifest {
            self.manifests.put(object.fingerprint, manifest);
        }
    }

    /// What is damaged or gone leaves the index, so that the next offload really writes it.
    fn note(&self, object: &Object<'_>, failure: &Failure, learned: &Learned) {
        match failure {
            Failure::Damaged(error) => {
                log::warning!("{error}");
                self.index.set_damaged(object.fingerprint);
            }
            Failure::Absent(_) => self.index.forget(&object.fingerprint),
            Failure::OtherSize(_) if learned.contradicted => {
                self.index.distrust(object.fingerprint);
            }
            Failure::Hidden(_) | Failure::OtherSize(_) | Failure::Device(_) => return,
        }
        self.manifests.remove(&object.fingerprint);
    }

    async fn attempt<'a>(
        &self,
        lane: &Lane<'a>,
        object: &Object<'_>,
        destination: &mut Destination<'a>,
        size: u32,
    ) -> (std::result::Result<(), Failure>, Learned) {
        let mut learned = Learned::default();
        let result = self.try_read(lane, object, destination, size, &mut learned).await;
        (result, learned)
    }

    async fn try_read<'a>(
        &self,
        lane: &Lane<'a>,
        object: &Object<'_>,
        destination: &mut Destination<'a>,
        size: u32,
        learned: &mut Learned,
    ) -> std::result::Result<(), Failure> {
        let known = self.index.get(&object.fingerprint);
        let indexed = match known {
            Knowledge::Only(root) | Knowledge::Visible(root) => Some(root),
            Knowledge::Absent | Knowledge::Unknown | Knowledge::Damaged | Knowledge::Hidden => None,
        };
        let slot = match known {
            Knowledge::Absent => return Err(Failure::Absent(not_found(object))),
            Knowledge::Hidden => return Err(Failure::Hidden(not_found(object))),
            Knowledge::Only(root) | Knowledge::Visible(root) => {
                if let Some(manifest) = self.manifests.get(&object.fingerprint, size)
                    && manifest.root == root
                {
                    return self.read_cached(lane, object, destination, &manifest).await;
                }
                root.slot
            }
            Knowledge::Unknown | Knowledge::Damaged => Slot::FIRST,
        };

        // A size that our own limits cannot plan may have been written with others.
        let plan = read_plan(object.key.len(), u64::from(size), self.limits()).ok();
        let guess = plan.map_or(0, |plan| plan.root_value_len);
        let shape = plan.and_then(|plan| match plan.shape {
            WritePlan::Inline => None,
            WritePlan::Chunked { chunk_size, .. } => Some(Shape { slot, chunk_size, size }),
        });
        let want = Want::Whole;
        let stop = Cell::new(false);
        let search = async {
            let found = self.search(lane, object, [(slot, Ask::Root { guess, want })]).await;
            stop.set(!found.as_ref().is_ok_and(|found| !found.roots.is_empty()));
            found
        };
        let (found, sums) = match shape {
            Some(shape) => {
                let chunks =
                    self.read_chunks(lane, object, destination, shape, self.checksum, &stop);
                let (found, sums) = both(search, chunks).await;
                (found, Some((shape, sums)))
            }
            None => (search.await, None),
        };
        let mut found = found.map_err(Failure::Device)?;
        let mut only = false;
        if found.roots.is_empty() {
            learned.contradicted = indexed.is_some();
            let unreadable = found.unreadable;
            let others = self.ask_others(slot);
            found = self.search(lane, object, others).await.map_err(Failure::Device)?;
            found.unreadable = match (unreadable, found.unreadable) {
                (Some(first), Some(other)) => Some(if first.0 < other.0 { first } else { other }),
                (first, other) => first.or(other),
            };
            only = found.roots.len() == 1;
        }
        let mut roots = found.roots.into_iter();
        let Some(root) = roots.next() else {
            return Err(match found.unreadable {
                Some((slot, error)) => Failure::Damaged(unreadable_root(object, slot, &error)),
                None => Failure::Absent(not_found(object)),
            });
        };
        let slot = root.slot;
        let Some(root) = self.whole(lane, object, root).await.map_err(Failure::Device)? else {
            return Err(Failure::Damaged(vanished(object, slot)));
        };
        let payload = root.payload().map_err(|error| damaged(object, slot, &error))?;
        if let (Some(shape), None) = (root.shape(), found.unreadable) {
            learned.record = Some(self.record(object, &root, shape, only));
        }
        if root.header.kind == ObjectKind::Inline {
            if payload.len() as u64 != u64::from(size) {
                let stored = root.header.payload_size;
                learned.contradicted |= indexed.is_some_and(|root| root.size != stored);
                return Err(Failure::OtherSize(other_size(object, stored, size)));
            }
            destination.write(0, payload);
            return Ok(());
        }

        let manifest = Manifest::parse(payload).map_err(|error| damaged(object, slot, &error))?;
        manifest
            .verify_placement(&object.keys, slot)
            .map_err(|error| damaged(object, slot, &error))?;
        if manifest.logical_size != size {
            let stored = manifest.logical_size;
            learned.contradicted |= indexed.is_some_and(|root| root.size != stored);
            return Err(Failure::OtherSize(other_size(object, manifest.logical_size, size)));
        }
        let manifest = CachedManifest::of(&manifest, slot, root.header.checksum);
        let actual = Shape { slot, chunk_size: manifest.chunk_size, size };
        match sums {
            Some((shape, sums)) if shape == actual && manifest.checksum == self.checksum => {
                verify(object, &manifest, sums)?;
            }
            _ => self.read_cached(lane, object, destination, &manifest).await?,
        }
        learned.manifest = Some(manifest);
        Ok(())
    }

    /// Reads and verifies the chunks that `manifest` lists.
    async fn read_cached<'a>(
        &self,
        lane: &Lane<'a>,
        object: &Object<'_>,
        destination: &mut Destination<'a>,
        manifest: &CachedManifest,
    ) -> std::result::Result<(), Failure> {
        let shape = Shape {
            slot: manifest.root.slot,
            chunk_size: manifest.chunk_size,
            size: manifest.root.size,
        };
        let go_on = Cell::new(false);
        let sums =
            self.read_chunks(lane, object, destination, shape, manifest.checksum, &go_on).await;
        verify(object, manifest, sums)
    }
}

/// Compares what the chunks are with what they should be.
fn verify(
    object: &Object<'_>,
    manifest: &CachedManifest,
    sums: Vec<std::result::Result<u32, ChunkFailure>>,
) -> std::result::Result<(), Failure> {
    let slot = manifest.root.slot;
    let mut damage = None;
    for (index, (sum, &expected)) in sums.into_iter().zip(&manifest.sums).enumerate() {
        let part = ChecksumPart::Chunk(ChunkIndex(index as u32));
        match sum {
            Ok(got) if got == expected => {}
            Ok(got) => {
                let error = LayoutError::ChecksumMismatch { part, expected, got };
                damage.get_or_insert(damaged(object, slot, &error));
            }
            Err(ChunkFailure::Device(error)) => return Err(Failure::Device(error)),
            Err(ChunkFailure::Lost(error)) => {
                damage.get_or_insert(Failure::Damaged(error));
            }
        }
    }
    damage.map_or(Ok(()), Err)
}

fn not_found(object: &Object<'_>) -> Error {
    Error::new(ErrorCode::ObjectNotFound, format!("{object} is not stored"))
}

fn other_size(object: &Object<'_>, stored: u32, wanted: u32) -> Error {
    Error::new(
        ErrorCode::FileReadFail,
        format!("{object} has {stored} bytes, {wanted} were wanted"),
    )
}

fn vanished(object: &Object<'_>, slot: Slot) -> Error {
    Error::new(
        ErrorCode::FileReadFail,
        format!("{object}: its root is no longer in slot {}", slot.get()),
    )
}

fn unreadable_root(object: &Object<'_>, slot: Slot, error: &LayoutError) -> Error {
    Error::new(
        error.code(),
        format!("{object}: the value in slot {} is no root: {error}; offload it again", slot.get()),
    )
}

fn damaged(object: &Object<'_>, slot: Slot, error: &LayoutError) -> Failure {
    Failure::Damaged(Error::new(
        error.code(),
        format!("{object}, stored in slot {}, is damaged: {error}; offload it again", slot.get()),
    ))
}
