//! Reclaiming orphans: values that are no roots and that no root refers to, left by crashes.
//!
//! The device is listed twice over: first for what roots claim and what is no root, then, in small
//! steps with no write in flight, for deleting what nobody has claimed since. Writes announce
//! the chunks they use while a sweep runs.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::time::Duration;

use super::Backend;
use super::core::{Core, Object};
use super::lane::{Lane, each};
use super::listing::Listing;
use super::roots::Peeked;
use super::sync::{Mutex, MutexGuard};
use crate::device::Direction;
use crate::error::{Error, ErrorCode, Result};
use crate::layout::{ChunkIndex, PhysicalKey, Slot};

/// Orphans that are deleted in one step, which keeps writes waiting.
const STEP: usize = 256;

/// What a sweep found and did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SweepReport {
    /// Values that no root refers to.
    pub orphans: u64,
    /// How many of them were deleted; none in a dry run.
    pub deleted: u64,
}

/// What sweeps and writes tell each other of single values. Keys are as the device lists them.
#[derive(Debug, Default)]
pub(super) struct Claims(Mutex<Claimed>);

#[derive(Debug, Default)]
struct Claimed {
    /// Chunks that writes have used since the running sweep began.
    announced: Option<HashSet<PhysicalKey>>,
    /// Values whose Delete by a sweep had no answer and may be executed until then.
    doomed: HashMap<PhysicalKey, Duration>,
}

impl Claims {
    fn lock(&self) -> MutexGuard<'_, Claimed> {
        self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Says that a write is about to use these chunks.
    pub(super) fn announce(&self, chunks: impl Iterator<Item = PhysicalKey>) {
        if let Some(announced) = &mut self.lock().announced {
            announced.extend(chunks);
        }
    }

    /// What is stored now under one of `keys` may be deleted late.
    pub(super) fn is_any_doomed(
        &self,
        mut keys: impl Iterator<Item = PhysicalKey>,
        now: Duration,
    ) -> bool {
        let claimed = self.lock();
        !claimed.doomed.is_empty()
            && keys.any(|key| claimed.doomed.get(&key).is_some_and(|until| *until > now))
    }

    /// Begins a sweep; false: another one is running.
    fn begin(&self, now: Duration) -> bool {
        let claimed = &mut *self.lock();
        if claimed.announced.is_some() {
            return false;
        }
        claimed.announced = Some(HashSet::new());
        claimed.doomed.retain(|_, until| *until > now);
        true
    }

    /// Whether somebody has claimed `key` since the sweep began.
    fn has(&self, key: &PhysicalKey) -> bool {
        self.lock().announced.as_ref().is_none_or(|announced| announced.contains(key))
    }
}

/// What one listed value is to a sweep.
enum Swept {
    /// A root at its own place, and the chunks it refers to.
    Root(Vec<PhysicalKey>),
    /// No root.
    Other(PhysicalKey),
    Gone,
}

impl Core {
    /// The key of the table that writes hold shared, and a step of a sweep exclusively.
    pub(super) fn sweep_gate() -> PhysicalKey {
        PhysicalKey(*b"the sweep's gate")
    }

    async fn sweep_value(&self, lane: &Lane<'_>, listed: PhysicalKey) -> Result<Swept> {
        Ok(match self.peek(lane, listed).await? {
            None => Swept::Gone,
            Some(Peeked::Damaged(_) | Peeked::Other) => Swept::Other(listed),
            Some(Peeked::Root(key, root)) => {
                let object = self.object(&key);
                let chunks = self.chunk_keys(&object, root.slot, root.chunk_count());
                Swept::Root(chunks.collect())
            }
        })
    }

    /// Chunk keys as the device lists them.
    pub(super) fn chunk_keys(
        &self,
        object: &Object<'_>,
        slot: Slot,
        count: u32,
    ) -> impl Iterator<Item = PhysicalKey> {
        (0..count).map(move |index| self.listed_key(object.keys.chunk(slot, ChunkIndex(index))))
    }
}

impl Backend {
    /// Counts the orphans and, unless `dry_run`, deletes them. Safe beside offloads and loads;
    /// offloads wait while a step of deletions runs.
    ///
    /// # Errors
    /// INVALID_READ while a root that was stored without an answer may still appear: its chunks
    /// look like orphans. NOT_SUPPORTED on a device without List; INTERNAL_ERROR while another sweep runs and after
    /// [`Backend::close`]; otherwise the device's.
    pub fn sweep(&self, dry_run: bool) -> Result<SweepReport> {
        let _call = if dry_run { self.calls.enter()? } else { self.enter_to_change()? };
        if !self.core.claims.begin((self.core.clock)()) {
            return Err(Error::new(ErrorCode::InternalError, "another sweep is running"));
        }
        let swept = self.sweep_claimed(dry_run);
        self.core.claims.lock().announced = None;
        swept
    }

    /// Looks at `values`: what roots refer to goes to `claimed`, what is no root to `others`.
    fn sort_values(
        &self,
        values: Vec<PhysicalKey>,
        claimed: &mut BTreeSet<PhysicalKey>,
        others: &mut BTreeSet<PhysicalKey>,
    ) -> Result<()> {
        let core = &self.core;
        for value in
            each(&*core.executor, values, async |lane, key| core.sweep_value(lane, key).await)
        {
            match value? {
                Swept::Root(chunks) => claimed.extend(chunks),
                Swept::Other(key) => {
                    others.insert(key);
                }
                Swept::Gone => {}
            }
        }
        Ok(())
    }

    fn sweep_claimed(&self, dry_run: bool) -> Result<SweepReport> {
        let core = &self.core;
        // Writes that began before claims were announced end here.
        each(&*core.executor, [()], async |_, ()| {
            drop(core.table.exclusive(Core::sweep_gate()).await);
        });
        let now = (core.clock)();
        let ghosts = core.table.roots_may_appear_until().filter(|until| *until > now);
        if let (Some(until), false) = (ghosts, dry_run) {
            let message = format!(
                "sweep: an earlier Store without an answer may still be executed; sweep again in \
                 {} ms",
                (until - now).as_millis()
            );
            return Err(Error::new(ErrorCode::InvalidRead, message));
        }
        let mut listing = Listing::new();
        // In key order, so that a seeded test repeats what a sweep does.
        let mut claimed = BTreeSet::new();
        let mut others = BTreeSet::new();
        loop {
            self.go_on()?;
            let keys = listing.next(&*core.executor).map_err(|error| {
                let code = if error.is_unsupported() {
                    ErrorCode::NotSupported
                } else {
                    error.code(Direction::Read)
                };
                Error::new(code, format!("sweep: List: {error}"))
            })?;
            if keys.is_empty() {
                break;
            }
            let own: Vec<PhysicalKey> = keys.iter().filter_map(|key| core.own_key(key)).collect();
            self.sort_values(own, &mut claimed, &mut others)?;
        }
        // A root that the device has garbled once looks like an orphan, and so do its chunks.
        let unclaimed: Vec<PhysicalKey> = others.difference(&claimed).copied().collect();
        others.clear();
        for step in unclaimed.chunks(STEP) {
            self.go_on()?;
            self.sort_values(step.to_vec(), &mut claimed, &mut others)?;
        }
        if let Some(announced) = &core.claims.lock().announced {
            claimed.extend(announced);
        }
        let orphans: Vec<PhysicalKey> = others.difference(&claimed).copied().collect();
        let mut report = SweepReport { orphans: orphans.len() as u64, deleted: 0 };
        if dry_run {
            return Ok(report);
        }
        for step in orphans.chunks(STEP) {
            self.go_on()?;
            let deleted = each(&*core.executor, [step], async |lane, step: &[PhysicalKey]| {
                let _gate = core.table.exclusive(Core::sweep_gate()).await;
                let mut deleted = 0;
                for key in step {
                    if core.claims.has(key) {
                        continue;
                    }
                    let end = core.delete(lane, *key).await;
                    if end.ghost {
                        core.claims.lock().doomed.insert(*key, core.haunted());
                    }
                    if let Some(error) = end.error {
                        return Err(
                            error.into_error(Direction::Write, "sweep: Delete of an orphan")
                        );
                    }
                    deleted += 1;
                }
                Ok(deleted)
            });
            for result in deleted {
                report.deleted += result?;
            }
        }
        Ok(report)
    }
}
