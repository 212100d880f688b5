//! Operations of different kinds in one lane, for simulation.
//!
//! The public calls give every operation a lane of its own, so that one thread runs them one after
//! the other. Here their commands interleave, in an order that the executor alone decides: one
//! thread and one seed repeat every race.

use super::Backend;
use super::index::ScanKind;
use super::lane::{Lane, each};
use super::listing::Listing;
use super::load::ObjectToLoad;
use super::offload::ObjectToStore;
use super::scan::{Scanned, ScannedObject};
use super::write::Stored;
use crate::device::{Direction, Payload};
use crate::error::Result;

/// One operation.
#[derive(Debug)]
pub enum Mixed<'a> {
    /// Offloads an object.
    Store(ObjectToStore<'a>),
    /// Loads one.
    Load(ObjectToLoad<'a>),
    /// Asks for one.
    Exists(&'a [u8]),
    /// Removes one.
    Remove(&'a [u8]),
    /// Evicts one, if it may be evicted now; nobody objects.
    Evict(&'a [u8]),
    /// Scans the device from the start, value by value.
    Scan,
}

/// How it ended.
#[derive(Debug)]
pub enum Done {
    /// What was stored.
    Stored(Result<Stored>),
    /// It is in its destination.
    Loaded(Result<()>),
    /// It is stored.
    Exists(Result<bool>),
    /// It was stored, and is no more.
    Removed(Result<bool>),
    /// It was evicted.
    Evicted(Result<bool>),
    /// What is to be reported of the device.
    Scanned(Result<Vec<ScannedObject>>),
}

impl Backend {
    /// Runs `operations` together on one lane of the calling thread; what each ended with, in the
    /// order in which they ended, under its position.
    #[doc(hidden)]
    pub fn mixed(&self, operations: Vec<Mixed<'_>>) -> Result<Vec<(usize, Done)>> {
        let _call = self.enter_to_change()?;
        let core = &self.core;
        Ok(each(
            &*core.executor,
            operations.into_iter().enumerate(),
            async |lane, (position, operation)| {
                let done = match operation {
                    Mixed::Store(ObjectToStore { key, slices }) => {
                        let object = core.object(key);
                        let written = core.write(lane, &object, Payload::new(slices)).await;
                        match written {
                            Ok(written) => {
                                core.index.unpin(&object.fingerprint);
                                if let Some(leftovers) = written.leftovers {
                                    core.clear(lane, &object, leftovers).await;
                                }
                                Done::Stored(Ok(written.stored))
                            }
                            Err(refused) => Done::Stored(Err(refused.error)),
                        }
                    }
                    Mixed::Load(ObjectToLoad { key, destination }) => {
                        Done::Loaded(core.read(lane, &core.object(key), destination).await)
                    }
                    Mixed::Exists(key) => Done::Exists(core.exists(lane, &core.object(key)).await),
                    Mixed::Remove(key) => Done::Removed(core.remove(lane, &core.object(key)).await),
                    Mixed::Evict(key) => Done::Evicted(self.evict_one(lane, key).await),
                    Mixed::Scan => Done::Scanned(self.scan_mixed(lane).await),
                };
                (position, done)
            },
        ))
    }

    async fn evict_one(&self, lane: &Lane<'_>, key: &[u8]) -> Result<bool> {
        let core = &self.core;
        let object = core.object(key);
        let Some(victim) = core.index.victim(&object.fingerprint) else { return Ok(false) };
        let Some(hidden) = core.hide(lane, victim).await? else { return Ok(false) };
        core.destroy_victim(lane, hidden).await.map(|_| true)
    }

    async fn scan_mixed(&self, lane: &Lane<'_>) -> Result<Vec<ScannedObject>> {
        let core = &self.core;
        let began = (core.clock)();
        core.index.begin_scan(ScanKind::Reporting);
        let mut listing = Listing::new();
        let mut found = Vec::new();
        let scanned = async {
            loop {
                let keys = listing
                    .next(&*core.executor)
                    .map_err(|error| error.into_error(Direction::Read, "List"))?;
                if keys.is_empty() {
                    return Ok(());
                }
                for key in keys.iter().filter_map(|key| core.own_key(key)) {
                    let scanned = core.scan_value(lane, key, ScanKind::Reporting).await?;
                    if let Scanned::Root { object: Some((_, object)), .. } = scanned {
                        found.push(object);
                    }
                }
            }
        }
        .await;
        match scanned {
            Ok(()) => core.scanned(ScanKind::Reporting, began),
            Err(error) => {
                core.index.abandon_scan(ScanKind::Reporting);
                return Err(error);
            }
        }
        Ok(found)
    }
}
