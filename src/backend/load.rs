//! Loading a batch.

use super::lane::each;
use super::sync::{Mutex, thread};
use super::{Backend, unfinished};
use crate::device::Destination;
use crate::error::Result;

/// An object to be loaded. The destination's length is the object's size.
#[derive(Debug)]
pub struct ObjectToLoad<'a> {
    /// Any bytes, none included.
    pub key: &'a [u8],
    /// Where its bytes go.
    pub destination: Destination<'a>,
}

/// A lane is worth its thread from this many bytes on.
const BYTES_PER_LANE: u64 = 4 << 20;

impl Backend {
    /// Loads a batch of objects; one result an object, in the order of the batch. A destination
    /// whose result is an error holds arbitrary bytes. No byte is written after the return.
    ///
    /// Loads do not wait behind offloads: every call has lanes of its own.
    ///
    /// # Errors
    /// INTERNAL_ERROR after [`Backend::close`]. What happens to single objects is in their
    /// results.
    pub fn load(&self, objects: Vec<ObjectToLoad<'_>>) -> Result<Vec<Result<()>>> {
        let _call = self.calls.enter()?;
        let count = objects.len();
        let lanes = self.read_lanes(&objects);
        let queue = Mutex::new(objects.into_iter().enumerate());
        let arrived = if lanes <= 1 {
            self.load_lane(&queue)
        } else {
            thread::scope(|scope| {
                let others: Vec<_> =
                    (1..lanes).map(|_| scope.spawn(|| self.load_lane(&queue))).collect();
                let mut arrived = self.load_lane(&queue);
                for other in others {
                    match other.join() {
                        Ok(theirs) => arrived.extend(theirs),
                        Err(panic) => std::panic::resume_unwind(panic),
                    }
                }
                arrived
            })
        };
        let mut results: Vec<Option<Result<()>>> = (0..count).map(|_| None).collect();
        for (index, result) in arrived {
            results[index] = Some(result);
        }
        Ok(results.into_iter().map(|result| result.unwrap_or_else(|| Err(unfinished()))).collect())
    }

    /// One lane per planning batch, as far as there is work, within the configured concurrency
    /// and the machine's.
    fn read_lanes(&self, objects: &[ObjectToLoad<'_>]) -> usize {
        let bytes: u64 = objects.iter().map(|object| object.destination.len()).sum();
        let plans = objects.len().div_ceil(self.read_plan_batch_size.max(1) as usize);
        let worth = plans.min((bytes / BYTES_PER_LANE) as usize + 1);
        let cores = thread::available_parallelism().map_or(1, usize::from);
        worth.min(cores).min(self.io.io as usize).max(1)
    }

    fn load_lane<'a>(
        &self,
        queue: &Mutex<impl Iterator<Item = (usize, ObjectToLoad<'a>)>>,
    ) -> Vec<(usize, Result<()>)> {
        let items = std::iter::from_fn(|| {
            queue.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).next()
        });
        each(&*self.core.executor, items, async |lane, (index, object)| {
            let ObjectToLoad { key, destination } = object;
            let object = self.core.object(key);
            (index, self.core.read(lane, &object, destination).await)
        })
    }
}
