//! Offloading a batch: which lane stores which object, and when the caller is told.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::atomic::Ordering;

use super::Backend;
use super::core::Core;
use super::evict::OnEvicted;
use super::index::{Fingerprint, Usage};
use super::lane::{Lane, OPERATIONS_PER_LANE, Task, drive};
use super::quota::growth;
use super::sync::{AtomicBool, Mutex, mpsc, thread};
use super::write::{Refused, Stored};
use crate::config::EvictionPolicy;
use crate::device::Payload;
use crate::error::{Error, ErrorCode, Result};
use crate::layout::{WritePlan, read_plan, write_plan};
use crate::log;

/// An object to be stored: a key of any bytes, and its payload in any number of slices, which are
/// read while the call lasts and never after.
#[derive(Clone, Copy, Debug)]
pub struct ObjectToStore<'a> {
    /// Any bytes, none included.
    pub key: &'a [u8],
    /// The payload is their concatenation.
    pub slices: &'a [&'a [u8]],
}

/// How an offload ended.
#[derive(Debug)]
pub struct OffloadReport {
    /// One result an object, in the order of the batch.
    pub results: Vec<Result<Stored>>,
    /// The first error of a callback. If it is that of `on_stored`, objects not begun by then were
    /// not stored; if it is that of `on_evicted`, those that found no room.
    pub callback_error: Option<Error>,
}

/// A lane is worth its thread from this much work on.
const BYTES_PER_LANE: u64 = 8 << 20;
const OBJECTS_PER_LANE: usize = 128;
/// Up to this many objects are reported in one call of the callback.
const SUB_BATCH: usize = 256;
/// A batch is stored in windows of at most this much; room is made before each.
const WINDOW_BYTES: u64 = 256 << 20;
const WINDOW_OBJECTS: u64 = 4096;
/// No window is more than this part of a limit, so that a large batch does not evict everything
/// before it stores anything.
const WINDOWS_PER_LIMIT: u64 = 8;
/// How often objects that met a full device are tried again after an eviction.
const FULL_RETRIES: usize = 3;

/// Who is told what during an offload. Both are called on the calling thread with no key held by
/// the offload, so that they may call back into the backend; the evicted keys themselves must
/// not be offloaded or removed by `on_evicted`.
pub struct Handlers<'h> {
    /// Gets the positions of objects that can be read from now on. If it fails, no further object
    /// is begun.
    pub on_stored: &'h mut dyn FnMut(&[usize]) -> Result<()>,
    /// Gets the keys of objects before they are evicted; an error keeps them, and nothing is
    /// evicted for the rest of the batch.
    pub on_evicted: OnEvicted<'h>,
}

impl Backend {
    /// [`Backend::offload_with`], for callers that need not know what is evicted.
    ///
    /// # Errors
    /// As there.
    pub fn offload(
        &self,
        objects: &[ObjectToStore<'_>],
        on_stored: &mut dyn FnMut(&[usize]) -> Result<()>,
    ) -> Result<OffloadReport> {
        self.offload_with(objects, Handlers { on_stored, on_evicted: &mut |_| Ok(()) })
    }

    /// Stores a batch of objects. When it returns, every object has exactly one result.
    ///
    /// What is stored is reported several times in a large batch. A key may occur several times;
    /// its objects are stored in the order of the batch. When a limit or the device's capacity is
    /// reached, older objects are evicted if the policy allows it.
    ///
    /// # Errors
    /// INVALID_KEY for an empty batch, INTERNAL_ERROR after [`Backend::close`]. What happens to
    /// single objects is in their results; KEYS_ULTRA_LIMIT is among them only without eviction.
    pub fn offload_with(
        &self,
        objects: &[ObjectToStore<'_>],
        handlers: Handlers<'_>,
    ) -> Result<OffloadReport> {
        let _call = self.enter_to_change()?;
        if objects.is_empty() {
            return Err(Error::new(ErrorCode::InvalidKey, "the batch holds no object"));
        }
        let mut reports = Reports::new(objects.len());
        let mut refusal = None;
        let Handlers { on_stored, on_evicted } = handlers;
        let mut on_evicted = |keys: &[Vec<u8>]| {
            let told = on_evicted(keys);
            refusal = refusal.take().or(told.as_ref().err().cloned());
            told
        };
        let mut handlers = Handlers { on_stored, on_evicted: &mut on_evicted };
        let mut begin = 0;
        while begin < objects.len() && !self.is_closing() {
            let end = begin + self.window(&objects[begin..]);
            self.offload_window(objects, (begin..end).collect(), &mut reports, &mut handlers);
            begin = end;
        }
        let mut report = reports.finish(self.core.lifecycle.eviction);
        report.callback_error = report.callback_error.or(refusal);
        Ok(report)
    }

    /// How many of the first objects make a window.
    fn window(&self, objects: &[ObjectToStore<'_>]) -> usize {
        let limit = self.core.quota.limit;
        let most_bytes = WINDOW_BYTES.min(limit.bytes / WINDOWS_PER_LIMIT);
        let most = WINDOW_OBJECTS.min(limit.objects.min(limit.values) / WINDOWS_PER_LIMIT);
        let mut bytes = 0u64;
        let fits = objects.iter().take(most as usize).take_while(|object| {
            bytes = bytes.saturating_add(Payload::new(object.slices).len());
            bytes <= most_bytes
        });
        fits.count().max(1)
    }

    /// Stores the objects at `positions`, making room before and, when the device is fuller than
    /// was thought, in between.
    fn offload_window(
        &self,
        objects: &[ObjectToStore<'_>],
        mut positions: Vec<usize>,
        reports: &mut Reports,
        handlers: &mut Handlers<'_>,
    ) {
        let mut evicting =
            self.core.lifecycle.eviction != EvictionPolicy::None && !reports.keep_all;
        if evicting {
            let more = self.growth(objects, &positions);
            if let Err(error) = self.make_room(more, handlers.on_evicted) {
                // Objects that find no room fail for themselves.
                log::warning!("no room could be made: {error}");
                reports.keep_all = true;
                evicting = false;
            }
        }
        for retry in 0.. {
            self.store_all(objects, &positions, reports, handlers.on_stored);
            // Those that met a full device, in the order of the batch.
            positions = std::mem::take(&mut reports.full);
            positions.sort_unstable();
            if positions.is_empty() || !evicting || retry == FULL_RETRIES {
                return;
            }
            let more = self.growth(objects, &positions);
            let evicted =
                self.complete_index().and_then(|()| self.evict(more, handlers.on_evicted));
            match evicted {
                Ok(evicted) if !evicted.is_empty() => {}
                Ok(_) => return,
                Err(error) => {
                    log::warning!("no room could be made: {error}");
                    reports.keep_all = true;
                    return;
                }
            }
        }
    }

    /// What storing these objects adds at most.
    fn growth(&self, objects: &[ObjectToStore<'_>], positions: &[usize]) -> Usage {
        let core = &self.core;
        let mut more = Usage::default();
        for &position in positions {
            let ObjectToStore { key, slices } = objects[position];
            let len = Payload::new(slices).len();
            let Ok(plan) = read_plan(key.len(), len, core.limits()) else { continue };
            let shape = match plan.shape {
                WritePlan::Inline => None,
                WritePlan::Chunked { chunk_size, .. } => Some((len as u32, chunk_size)),
            };
            let new = core.footprint(plan.root_value_len.into(), shape);
            let growth = growth(new, core.index.footprint(&core.object(key).fingerprint));
            more.objects += growth.objects;
            more.values += growth.values;
            more.bytes += growth.bytes;
        }
        more
    }

    /// Stores the objects at `positions` on as many lanes as they are worth.
    fn store_all(
        &self,
        objects: &[ObjectToStore<'_>],
        positions: &[usize],
        reports: &mut Reports,
        on_stored: &mut dyn FnMut(&[usize]) -> Result<()>,
    ) {
        let batch = Batch::new(&self.core, objects, positions, reports.callback_error.is_some());
        let (chunk_lanes, root_lanes) = self.write_lanes(&batch);
        let lanes = chunk_lanes + root_lanes;
        let staging = usize::try_from(self.staging_bytes).unwrap_or(usize::MAX) / lanes;
        if batch.worth() <= 1 {
            let arrived = RefCell::new(Vec::with_capacity(positions.len()));
            batch.run_lane(&self.core, LaneKind::Chunk, staging, &|outcome| {
                arrived.borrow_mut().push(outcome);
            });
            return reports.take(&self.core, arrived.take(), &batch, on_stored);
        }
        thread::scope(|scope| {
            let (sender, receiver) = mpsc::channel();
            let kinds = std::iter::repeat_n(LaneKind::Chunk, chunk_lanes)
                .chain(std::iter::repeat_n(LaneKind::Root, root_lanes));
            for kind in kinds {
                let (sender, batch, core) = (sender.clone(), &batch, &self.core);
                scope.spawn(move || {
                    batch.run_lane(core, kind, staging, &|outcome| {
                        // The receiver outlives the lanes.
                        let _ = sender.send(outcome);
                    });
                });
            }
            drop(sender);
            while let Ok(first) = receiver.recv() {
                let mut arrived = vec![first];
                arrived.extend(receiver.try_iter().take(SUB_BATCH - 1));
                reports.take(&self.core, arrived, &batch, on_stored);
            }
        });
    }

    /// How many lanes of each kind a batch gets: what it is worth, within the configured
    /// concurrency and the machine's. Lanes hash what they store, so `prepare` bounds them too.
    fn write_lanes(&self, batch: &Batch<'_>) -> (usize, usize) {
        let cores = thread::available_parallelism().map_or(1, usize::from);
        let all = batch.worth().min(cores).min(self.io.prepare as usize).max(1);
        let root = usize::from(all > 1 && batch.has_inline())
            .max(if batch.has_chunked() { 0 } else { all.saturating_sub(1) })
            .min(self.io.root_submit as usize);
        let chunk = (all - root.min(all - 1)).min(self.io.batch_submit as usize).max(1);
        (chunk, root.min(all - 1))
    }
}

/// Of objects that were not begun, because the backend is being closed.
fn closed() -> Error {
    Error::new(ErrorCode::InvalidRead, "not stored, because the backend was closed meanwhile")
}

/// The end of one object's operation.
struct Outcome {
    position: usize,
    fingerprint: Fingerprint,
    result: Result<Stored>,
    /// It failed because the device or a limit is full.
    full: bool,
}

/// What a lane takes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LaneKind {
    /// Objects with chunks; when none is left, inline objects.
    Chunk,
    /// Inline objects, which are one root each: they do not wait behind large objects.
    Root,
}

/// A batch being stored. Objects of one key are linked, and stored one after the other.
struct Batch<'a> {
    objects: &'a [ObjectToStore<'a>],
    /// Position of the next object of the same key.
    next_of_key: HashMap<usize, usize>,
    chunked: Mutex<std::vec::IntoIter<usize>>,
    inline: Mutex<std::vec::IntoIter<usize>>,
    counts: [usize; 2],
    bytes: u64,
    cancelled: AtomicBool,
}

impl<'a> Batch<'a> {
    fn new(
        core: &Core,
        objects: &'a [ObjectToStore<'a>],
        positions: &[usize],
        cancelled: bool,
    ) -> Self {
        let mut next_of_key = HashMap::new();
        let mut last_of_key: HashMap<&[u8], usize> = HashMap::with_capacity(positions.len());
        let (mut chunked, mut inline) = (Vec::new(), Vec::new());
        let mut bytes = 0;
        for &index in positions {
            let object = &objects[index];
            let len = Payload::new(object.slices).len();
            bytes += len;
            if let Some(previous) = last_of_key.insert(object.key, index) {
                next_of_key.insert(previous, index);
                continue;
            }
            // What cannot be planned is refused by the write, like any other failure.
            match write_plan(object.key.len(), len, core.limits()) {
                Ok(WritePlan::Chunked { .. }) => chunked.push(index),
                Ok(WritePlan::Inline) | Err(_) => inline.push(index),
            }
        }
        Batch {
            objects,
            next_of_key,
            counts: [chunked.len(), inline.len()],
            chunked: Mutex::new(chunked.into_iter()),
            inline: Mutex::new(inline.into_iter()),
            bytes,
            cancelled: AtomicBool::new(cancelled),
        }
    }

    /// How many lanes it is worth.
    fn worth(&self) -> usize {
        let heads = self.counts[0] + self.counts[1];
        (self.bytes / BYTES_PER_LANE) as usize + heads / OBJECTS_PER_LANE
    }

    fn has_chunked(&self) -> bool {
        self.counts[0] > 0
    }

    fn has_inline(&self) -> bool {
        self.counts[1] > 0
    }

    fn take(&self, kind: LaneKind) -> Option<usize> {
        let next = |queue: &Mutex<std::vec::IntoIter<usize>>| {
            queue.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).next()
        };
        match kind {
            LaneKind::Chunk => next(&self.chunked).or_else(|| next(&self.inline)),
            LaneKind::Root => next(&self.inline),
        }
    }

    /// Stores objects until none is left; `report` is called once for each.
    fn run_lane(&self, core: &Core, kind: LaneKind, staging: usize, report: &dyn Fn(Outcome)) {
        let lane = Lane::with_staging(staging);
        let depth = core.executor.capabilities().queue_depth.max(1) as usize;
        drive(
            &*core.executor,
            &lane,
            depth.min(OPERATIONS_PER_LANE),
            &mut || -> Option<Task<'_>> {
                let head = self.take(kind)?;
                let lane = &lane;
                Some(Box::pin(async move {
                    let mut next = Some(head);
                    let mut full = None;
                    while let Some(position) = next {
                        next = self.next_of_key.get(&position).copied();
                        full = self.store_one(core, lane, position, full, report).await;
                    }
                }))
            },
        );
    }

    /// Stores one object. `full` is how an earlier object of the same key met a full device: this
    /// one then waits its turn, so that the order of the batch is kept when they are tried again.
    async fn store_one(
        &self,
        core: &Core,
        lane: &Lane<'a>,
        position: usize,
        full: Option<Error>,
        report: &dyn Fn(Outcome),
    ) -> Option<Error> {
        let ObjectToStore { key, slices } = self.objects[position];
        let object = core.object(key);
        let fingerprint = object.fingerprint;
        let end = |result, full| report(Outcome { position, fingerprint, result, full });
        if let Some(error) = full {
            end(Err(error.clone()), true);
            return Some(error);
        }
        if self.cancelled.load(Ordering::Relaxed) {
            let message = format!("{object}: not stored, because the completion callback failed");
            end(Err(Error::new(ErrorCode::InvalidRead, message)), false);
            return None;
        }
        if core.closing.load(Ordering::Acquire) {
            end(Err(closed()), false);
            return None;
        }
        match core.write(lane, &object, Payload::new(slices)).await {
            Ok(written) => {
                end(Ok(written.stored), false);
                if let Some(leftovers) = written.leftovers {
                    core.clear(lane, &object, leftovers).await;
                }
                None
            }
            Err(Refused { error, full }) => {
                end(Err(error.clone()), full);
                full.then_some(error)
            }
        }
    }
}

/// Results as they arrive.
struct Reports {
    results: Vec<Option<Result<Stored>>>,
    /// Positions of objects that met a full device or limit, in order of arrival.
    full: Vec<usize>,
    /// No more room is made.
    keep_all: bool,
    callback_error: Option<Error>,
}

impl Reports {
    fn new(objects: usize) -> Self {
        let results = (0..objects).map(|_| None).collect();
        Reports { results, full: Vec::new(), keep_all: false, callback_error: None }
    }

    fn take(
        &mut self,
        core: &Core,
        arrived: Vec<Outcome>,
        batch: &Batch<'_>,
        on_stored: &mut dyn FnMut(&[usize]) -> Result<()>,
    ) {
        let mut stored = Vec::with_capacity(arrived.len());
        let mut fingerprints = Vec::with_capacity(arrived.len());
        for Outcome { position, fingerprint, result, full } in arrived {
            if full {
                self.full.push(position);
            }
            if result.is_ok() {
                stored.push(position);
                fingerprints.push(fingerprint);
            }
            self.results[position] = Some(result);
        }
        if !stored.is_empty()
            && self.callback_error.is_none()
            && let Err(error) = on_stored(&stored)
        {
            batch.cancelled.store(true, Ordering::Relaxed);
            self.callback_error = Some(error);
        }
        // From now on they may be evicted.
        fingerprints.iter().for_each(|fingerprint| core.index.unpin(fingerprint));
    }

    /// With eviction on, a full device is a passing state.
    fn finish(self, eviction: EvictionPolicy) -> OffloadReport {
        let soft = |error: Error| match (error.code(), eviction) {
            (ErrorCode::KeysUltraLimit, EvictionPolicy::Fifo | EvictionPolicy::Lru) => Error::new(
                ErrorCode::InvalidRead,
                format!("{}; nothing could be evicted now", error.message()),
            ),
            _ => error,
        };
        let results = self.results.into_iter();
        let results = results.map(|result| result.unwrap_or_else(|| Err(closed())).map_err(soft));
        OffloadReport { results: results.collect(), callback_error: self.callback_error }
    }
}
