//! Offloading a batch: which lane stores which object, and when the caller is told.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;

use super::core::Core;
use super::lane::{Lane, Task, drive};
use super::write::Stored;
use super::{Backend, unfinished};
use crate::device::Payload;
use crate::error::{Error, ErrorCode, Result};
use crate::layout::{WritePlan, write_plan};

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
    /// The first error of the callback. Objects not begun by then were not stored.
    pub callback_error: Option<Error>,
}

/// A lane is worth its thread from this much work on.
const BYTES_PER_LANE: u64 = 8 << 20;
const OBJECTS_PER_LANE: usize = 128;
/// Up to this many objects are reported in one call of the callback.
const SUB_BATCH: usize = 256;
/// Operations of one lane under way at most, whatever the queue depth.
pub(super) const OPERATIONS_PER_LANE: usize = 256;

impl Backend {
    /// Stores a batch of objects. When it returns, every object has exactly one result.
    ///
    /// `on_stored` gets the positions of objects that can be read from now on: several times in a
    /// large batch, always on the calling thread and with no key held, so that it may call back
    /// into the backend. If it fails, no further object is begun.
    ///
    /// A key may occur several times; its objects are stored in the order of the batch.
    ///
    /// # Errors
    /// INVALID_KEY for an empty batch, INTERNAL_ERROR after [`Backend::close`]. What happens to
    /// single objects is in their results.
    pub fn offload(
        &self,
        objects: &[ObjectToStore<'_>],
        on_stored: &mut dyn FnMut(&[usize]) -> Result<()>,
    ) -> Result<OffloadReport> {
        let _call = self.calls.enter()?;
        if objects.is_empty() {
            return Err(Error::new(ErrorCode::InvalidKey, "the batch holds no object"));
        }
        let batch = Batch::new(&self.core, objects);
        let (chunk_lanes, root_lanes) = self.write_lanes(&batch);
        if chunk_lanes + root_lanes <= 1 {
            let mut reports = Reports::new(objects.len());
            let arrived = RefCell::new(Vec::with_capacity(objects.len()));
            batch.run_lane(&self.core, LaneKind::Chunk, &|index, result| {
                arrived.borrow_mut().push((index, result));
            });
            reports.take(arrived.take(), &batch, on_stored);
            return Ok(reports.finish());
        }
        std::thread::scope(|scope| {
            let (sender, receiver) = mpsc::channel();
            let kinds = std::iter::repeat_n(LaneKind::Chunk, chunk_lanes)
                .chain(std::iter::repeat_n(LaneKind::Root, root_lanes));
            for kind in kinds {
                let (sender, batch, core) = (sender.clone(), &batch, &self.core);
                scope.spawn(move || {
                    batch.run_lane(core, kind, &|index, result| {
                        // The receiver outlives the lanes.
                        let _ = sender.send((index, result));
                    });
                });
            }
            drop(sender);
            let mut reports = Reports::new(objects.len());
            while let Ok(first) = receiver.recv() {
                let mut arrived = vec![first];
                arrived.extend(receiver.try_iter().take(SUB_BATCH - 1));
                reports.take(arrived, &batch, on_stored);
            }
            Ok(reports.finish())
        })
    }

    /// How many lanes of each kind a batch gets: what it is worth, within the configured
    /// concurrency and the machine's. Lanes hash what they store, so `prepare` bounds them too.
    fn write_lanes(&self, batch: &Batch<'_>) -> (usize, usize) {
        let worth = (batch.bytes / BYTES_PER_LANE) as usize + batch.heads() / OBJECTS_PER_LANE;
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let all = worth.min(cores).min(self.io.prepare as usize).max(1);
        let root = usize::from(all > 1 && batch.has_inline())
            .max(if batch.has_chunked() { 0 } else { all.saturating_sub(1) })
            .min(self.io.root_submit as usize);
        let chunk = (all - root.min(all - 1)).min(self.io.batch_submit as usize).max(1);
        (chunk, root.min(all - 1))
    }
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
    next_of_key: Vec<Option<usize>>,
    chunked: Mutex<std::vec::IntoIter<usize>>,
    inline: Mutex<std::vec::IntoIter<usize>>,
    counts: [usize; 2],
    bytes: u64,
    cancelled: AtomicBool,
}

impl<'a> Batch<'a> {
    fn new(core: &Core, objects: &'a [ObjectToStore<'a>]) -> Self {
        let mut next_of_key = vec![None; objects.len()];
        let mut last_of_key: HashMap<&[u8], usize> = HashMap::with_capacity(objects.len());
        let (mut chunked, mut inline) = (Vec::new(), Vec::new());
        let mut bytes = 0;
        for (index, object) in objects.iter().enumerate() {
            let len = Payload::new(object.slices).len();
            bytes += len;
            if let Some(previous) = last_of_key.insert(object.key, index) {
                next_of_key[previous] = Some(index);
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
            cancelled: AtomicBool::new(false),
        }
    }

    fn heads(&self) -> usize {
        self.counts[0] + self.counts[1]
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
    fn run_lane(&self, core: &Core, kind: LaneKind, report: &dyn Fn(usize, Result<Stored>)) {
        let lane = Lane::new();
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
                    while let Some(index) = next {
                        self.store_one(core, lane, index, report).await;
                        next = self.next_of_key[index];
                    }
                }))
            },
        );
    }

    async fn store_one(
        &self,
        core: &Core,
        lane: &Lane<'a>,
        index: usize,
        report: &dyn Fn(usize, Result<Stored>),
    ) {
        let ObjectToStore { key, slices } = self.objects[index];
        let object = core.object(key);
        if self.cancelled.load(Ordering::Relaxed) {
            let message = format!("{object}: not stored, because the completion callback failed");
            report(index, Err(Error::new(ErrorCode::InvalidRead, message)));
            return;
        }
        match core.write(lane, &object, Payload::new(slices)).await {
            Ok(written) => {
                report(index, Ok(written.stored));
                if let Some(leftovers) = written.leftovers {
                    core.clear(lane, &object, leftovers).await;
                }
            }
            Err(error) => report(index, Err(error)),
        }
    }
}

/// Results as they arrive.
struct Reports {
    results: Vec<Option<Result<Stored>>>,
    callback_error: Option<Error>,
}

impl Reports {
    fn new(objects: usize) -> Self {
        Reports { results: (0..objects).map(|_| None).collect(), callback_error: None }
    }

    fn take(
        &mut self,
        arrived: Vec<(usize, Result<Stored>)>,
        batch: &Batch<'_>,
        on_stored: &mut dyn FnMut(&[usize]) -> Result<()>,
    ) {
        let mut stored = Vec::with_capacity(arrived.len());
        for (index, result) in arrived {
            if result.is_ok() {
                stored.push(index);
            }
            self.results[index] = Some(result);
        }
        if stored.is_empty() || self.callback_error.is_some() {
            return;
        }
        if let Err(error) = on_stored(&stored) {
            batch.cancelled.store(true, Ordering::Relaxed);
            self.callback_error = Some(error);
        }
    }

    fn finish(self) -> OffloadReport {
        let results = self.results.into_iter();
        OffloadReport {
            results: results.map(|result| result.unwrap_or_else(|| Err(unfinished()))).collect(),
            callback_error: self.callback_error,
        }
    }
}
