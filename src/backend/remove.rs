//! Removing objects: hidden first, then roots, highest slot first and the visible one last, then
//! chunks. A removed object never comes back.

use std::sync::atomic::Ordering;

use super::Backend;
use super::core::{Core, Object};
use super::deletion::Version;
use super::index::{Knowledge, Victim};
use super::key_table::{Exclusive, Ghost};
use super::lane::{Lane, each};
use super::listing::Listing;
use super::roots::{Ask, Peeked, Want};
use crate::device::Direction;
use crate::error::{Error, ErrorCode, Result};
use crate::layout::{PhysicalKey, Slot};
use crate::log;

impl Core {
    /// Deletes every version of `object`, which is hidden or held. False: there was none.
    ///
    /// # Errors
    /// The device's; the object may then be stored or not, and the index asks the device.
    pub(super) async fn destroy(
        &self,
        lane: &Lane<'_>,
        hold: &Exclusive<'_>,
        object: &Object<'_>,
        only: Option<Version>,
    ) -> Result<bool> {
        let versions = match only {
            Some(version) => vec![version],
            None => {
                let first = Ask::Root { guess: 0, want: Want::Prefix };
                let asks =
                    std::iter::once((Slot::FIRST, first)).chain(self.ask_others(Slot::FIRST));
                let found = self.search(lane, object, asks).await?;
                let versions = found.roots.iter();
                versions
                    .map(|root| Version { slot: root.slot, chunk_count: root.chunk_count() })
                    .collect()
            }
        };
        for version in versions.iter().rev() {
            self.delete_root(lane, hold, object, version.slot).await?;
        }
        hold.bump();
        self.destroyed.fetch_add(1, Ordering::AcqRel);
        self.index.remove(&object.fingerprint);
        self.manifests.remove(&object.fingerprint);
        for version in versions.iter().rev() {
            self.delete_version_chunks(lane, hold, object, *version).await;
        }
        if only.is_none() {
            // All slots were looked at.
            hold.review_quarantine((self.clock)());
        }
        Ok(!versions.is_empty())
    }

    /// The only version of `object`, if the index knows that it is the only one.
    pub(super) fn only_version(&self, object: &Object<'_>) -> Option<Version> {
        match self.index.get(&object.fingerprint) {
            Knowledge::Only(root) => {
                let values = self.index.footprint(&object.fingerprint).values;
                Some(Version { slot: root.slot, chunk_count: values.saturating_sub(1) })
            }
            _ => None,
        }
    }

    /// Removes the object whose root is under `key`, as the device lists it or as it was derived;
    /// whether it was there. `None`: no root is.
    async fn remove_root(&self, lane: &Lane<'_>, key: PhysicalKey) -> Result<Option<bool>> {
        let Some(Peeked::Root(key, _)) = self.peek(lane, key).await? else { return Ok(None) };
        self.remove(lane, &self.object(&key)).await.map(Some)
    }

    pub(super) async fn remove(&self, lane: &Lane<'_>, object: &Object<'_>) -> Result<bool> {
        let hold = self.table.exclusive(object.entry).await;
        let now = (self.clock)();
        let quarantine = hold.review_quarantine(now);
        if quarantine.iter().any(|mark| mark.ghost == Ghost::RootStore && mark.until > now) {
            return Err(Error::new(
                ErrorCode::InvalidRead,
                format!(
                    "{object}: an earlier Store without an answer may still make it appear again; \
                     remove it in {} ms",
                    self.settle.as_millis()
                ),
            ));
        }
        let only = if quarantine.is_empty() {
            match self.index.get(&object.fingerprint) {
                Knowledge::Absent => return Ok(false),
                _ => self.only_version(object),
            }
        } else {
            None
        };
        let shown = self.index.hide(&object.fingerprint);
        let removed = self.destroy(lane, &hold, object, only).await;
        if removed.is_err() {
            self.index.show_doubted(object.fingerprint, shown);
        }
        removed
    }
}

/// How far removing everything has come.
#[derive(Default)]
struct Removed {
    objects: u64,
    failure: Option<Error>,
}

impl Removed {
    fn take(&mut self, results: Vec<Result<bool>>) {
        for result in results {
            match result {
                Ok(was_there) => self.objects += u64::from(was_there),
                Err(error) => self.failure = self.failure.take().or(Some(error)),
            }
        }
    }

    fn finish(self) -> Result<u64> {
        self.failure.map_or(Ok(self.objects), Err)
    }
}

impl Backend {
    /// Removes one object.
    ///
    /// # Errors
    /// OBJECT_NOT_FOUND when it is proven absent; INVALID_READ while an unanswered Store may make
    /// it appear again; INTERNAL_ERROR after [`Backend::close`]; otherwise the device's, and the
    /// object may be stored or not.
    pub fn remove(&self, key: &[u8]) -> Result<()> {
        let _call = self.enter_to_change()?;
        let removed = each(&*self.core.executor, [key], async |lane, key| {
            let object = self.core.object(key);
            self.core.remove(lane, &object).await
        });
        match removed.into_iter().next() {
            Some(Ok(true)) => Ok(()),
            Some(Ok(false)) => Err(Error::new(
                ErrorCode::ObjectNotFound,
                format!("{} is not stored", self.core.object(key)),
            )),
            Some(Err(error)) => Err(error),
            None => Err(super::unfinished()),
        }
    }

    /// Removes every object, those included that only a scan finds. Values that no readable root
    /// refers to stay; [`Backend::sweep`] reclaims them. Objects stored meanwhile may stay.
    ///
    /// # Errors
    /// The first failure, and INTERNAL_ERROR when the backend is closed meanwhile: what could be
    /// removed is gone. INTERNAL_ERROR after [`Backend::close`].
    pub fn remove_all(&self) -> Result<u64> {
        let _call = self.enter_to_change()?;
        let core = &self.core;
        let mut count = Removed::default();
        // Known roots first: their chunks need not be looked at.
        for shard in core.index.shards() {
            self.go_on()?;
            let results: Vec<Result<bool>> =
                each(&*core.executor, core.index.roots(shard), async |lane, victim: Victim| {
                    let found = core.remove_root(lane, victim.key).await?;
                    if found.is_none() {
                        core.index.doubt(&victim);
                    }
                    Ok(found == Some(true))
                });
            count.take(results);
        }
        let mut listing = Listing::new();
        loop {
            self.go_on()?;
            let keys = match listing.next(&*core.executor) {
                Ok(keys) if keys.is_empty() => return count.finish(),
                Ok(keys) => keys,
                Err(error) if error.is_unsupported() => {
                    log::warning!(
                        "remove all: the device does not implement List; objects of earlier runs \
                         that nobody has asked for since stay"
                    );
                    return count.finish();
                }
                Err(error) => return Err(error.into_error(Direction::Read, "List")),
            };
            let own: Vec<PhysicalKey> = keys.iter().filter_map(|key| core.own_key(key)).collect();
            let results = each(&*core.executor, own, async |lane, key| {
                core.remove_root(lane, key).await.map(|found| found == Some(true))
            });
            count.take(results);
        }
    }
}
