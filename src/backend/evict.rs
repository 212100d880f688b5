//! Eviction: victims are hidden from new reads, the caller is told, and only then they are
//! deleted. If the caller objects, they are shown again.

use super::Backend;
use super::core::Core;
use super::deletion::Version;
use super::index::{Footprint, Shown, Usage, Victim};
use super::key_table::Exclusive;
use super::lane::{Lane, each};
use super::roots::Peeked;
use crate::error::{Error, ErrorCode, Result};
use crate::log;

/// Is told which objects are about to be evicted; an error keeps them.
pub type OnEvicted<'h> = &'h mut dyn FnMut(&[Vec<u8>]) -> Result<()>;

/// Objects that are evicted together, at most.
const BATCH: usize = 256;
/// So many batches in a row without an object that can be evicted end the search for one.
const FUTILE_BATCHES: usize = 16;

/// An object that is about to be deleted.
pub(super) struct HiddenVictim<'t> {
    key: Vec<u8>,
    hold: Exclusive<'t>,
    victim: Victim,
    shown: Shown,
    only: Option<Version>,
}

impl Core {
    /// Hides a victim. `None`: it is in use, has been used since it was chosen, or is gone.
    pub(super) async fn hide(
        &self,
        lane: &Lane<'_>,
        victim: Victim,
    ) -> Result<Option<HiddenVictim<'_>>> {
        let peeked = self.peek(lane, victim.key).await?;
        if let Some(Peeked::Damaged(error)) = &peeked {
            log::warning!("the root {:?} is damaged and not evicted: {error}", victim.key);
        }
        let key = match peeked {
            Some(Peeked::Root(key, _)) if self.object(&key).fingerprint == victim.fingerprint => {
                key
            }
            _ => {
                self.index.doubt(&victim);
                return Ok(None);
            }
        };
        let object = self.object(&key);
        let Some(hold) = self.table.try_exclusive(object.entry) else { return Ok(None) };
        if hold.is_haunted((self.clock)()) {
            return Ok(None);
        }
        // What commands of unknown outcome have left has not been looked at since they ended.
        let only = if hold.is_quarantined() { None } else { self.only_version(&object) };
        let Some(shown) = self.index.hide_victim(&victim) else { return Ok(None) };
        Ok(Some(HiddenVictim { key, hold, victim, shown, only }))
    }

    /// Deletes a victim that nobody objected to; what it took.
    pub(super) async fn destroy_victim(
        &self,
        lane: &Lane<'_>,
        victim: HiddenVictim<'_>,
    ) -> Result<Footprint> {
        let object = self.object(&victim.key);
        let destroyed = self.destroy(lane, &victim.hold, &object, victim.only).await;
        if destroyed.is_err() {
            self.index.show_doubted(object.fingerprint, Some(victim.shown));
        }
        destroyed.map(|_| victim.victim.footprint)
    }
}

impl Backend {
    /// Evicts the oldest objects until `need` is freed or nothing is left to evict; returns their
    /// keys.
    pub(super) fn evict(&self, need: Usage, on_evicted: OnEvicted<'_>) -> Result<Vec<Vec<u8>>> {
        let core = &self.core;
        let mut freed = Usage::default();
        let mut evicted = Vec::new();
        let mut futile = 0;
        while !freed.covers(need) && futile < FUTILE_BATCHES && !self.is_closing() {
            let victims = core.index.take_oldest(need.without(freed), BATCH);
            if victims.is_empty() {
                break;
            }
            let mut hidden = Vec::with_capacity(victims.len());
            let mut failure = None;
            for result in
                each(&*core.executor, victims, async |lane, victim| core.hide(lane, victim).await)
            {
                match result {
                    Ok(victim) => hidden.extend(victim),
                    Err(error) => failure = Some(error),
                }
            }
            if hidden.is_empty() {
                match failure {
                    Some(error) => return Err(error),
                    None => {
                        futile += 1;
                        continue;
                    }
                }
            }
            futile = 0;
            let keys: Vec<Vec<u8>> = hidden.iter().map(|victim| victim.key.clone()).collect();
            if let Err(error) = on_evicted(&keys) {
                for victim in &hidden {
                    core.index.show(&victim.victim.fingerprint, victim.shown);
                }
                return Err(error.context("the eviction callback keeps the objects"));
            }
            let results = each(&*core.executor, hidden, async |lane, victim| {
                core.destroy_victim(lane, victim).await
            });
            evicted.extend(keys);
            for result in results {
                freed.add(result?);
            }
        }
        Ok(evicted)
    }

    /// When the stored bytes are above `high` times the limit, evicts down to `low` times it; returns
    /// the keys that left.
    ///
    /// # Errors
    /// INVALID_PARAMS unless 0 <= low <= high <= 1; the callback's error, which keeps the objects
    /// it was told of; INTERNAL_ERROR after [`Backend::close`]; otherwise the device's.
    pub fn evict_above(
        &self,
        high: f64,
        low: f64,
        on_evicted: OnEvicted<'_>,
    ) -> Result<Vec<Vec<u8>>> {
        let _call = self.enter_to_change()?;
        if !(0.0 <= low && low <= high && high <= 1.0) {
            return Err(Error::new(
                ErrorCode::InvalidParams,
                format!("watermarks high {high} and low {low}: 0 <= low <= high <= 1 is needed"),
            ));
        }
        self.complete_index()?;
        let limit = self.core.quota.limit.bytes as f64;
        let used = self.core.index.usage().bytes;
        if used as f64 <= limit * high {
            return Ok(Vec::new());
        }
        let need = Usage { bytes: used - (limit * low) as u64, ..Usage::default() };
        self.evict(need, on_evicted)
    }

    /// Evicts what `more` needs beyond the limits.
    pub(super) fn make_room(&self, more: Usage, on_evicted: OnEvicted<'_>) -> Result<()> {
        let missing = self.core.quota.missing(&self.core.index, more);
        if missing == Usage::default() {
            return Ok(());
        }
        self.complete_index()?;
        self.evict(missing, on_evicted).map(|_| ())
    }
}
