//! Recovery: what is on the device becomes the index, and the caller learns the logical keys.
//!
//! List gives every physical key; the beginnings of the values are read in deep batches, and those
//! that are roots at their own place are recorded. A root in a slot above 0 may be hidden or have
//! hidden others, so its key is resolved at once: all slots are probed, the visible root is
//! recorded, the others are purged.

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::Backend;
use super::core::{Core, Object};
use super::deletion::Version;
use super::index::{Fingerprint, Knowledge, Record, ScanKind};
use super::key_table::Exclusive;
use super::lane::{Lane, each};
use super::listing::Listing;
use super::roots::{Ask, Peeked, StoredRoot, Want};
use super::sync::MutexGuard;
use crate::config::Access;
use crate::device::Direction;
use crate::error::{Error, ErrorCode, Result};
use crate::layout::{ObjectKind, PhysicalKey, Slot};
use crate::log;
use nvme_kv_command_set::{CSI_KV, Key, WireProfile};

/// Byte of a key that the `mooncake` wire profile sets to 01h.
const CSI_BYTE: usize = 11;

/// An object that a scan found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScannedObject {
    /// Its logical key.
    pub key: Vec<u8>,
    /// Its bytes.
    pub size: u64,
}

/// What a scan saw. Counts are of values unless they say objects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ScanReport {
    /// The device can list its keys. If not, nothing was scanned, and keys that this backend has
    /// not met are asked for one by one.
    pub listed: bool,
    /// Objects reported.
    pub objects: u64,
    /// Roots, visible and hidden.
    pub roots: u64,
    /// Hidden roots that were purged.
    pub purged: u64,
    /// Values that are no roots: chunks and orphans.
    pub others: u64,
    /// Damaged roots.
    pub damaged: u64,
    /// Keys that this backend cannot have written: of another length or wire profile.
    pub foreign: u64,
}

/// What one listed value is.
pub(super) enum Scanned {
    /// It has gone meanwhile, or an earlier value of the scan stood for it.
    Nothing,
    Other,
    Damaged,
    Root {
        object: Option<(Fingerprint, ScannedObject)>,
        purged: u64,
    },
}

impl Core {
    pub(super) async fn scan_value(
        &self,
        lane: &Lane<'_>,
        listed: PhysicalKey,
        by: ScanKind,
    ) -> Result<Scanned> {
        let destroyed = || self.destroyed.load(Ordering::Acquire);
        let mut before = destroyed();
        let (key, mut root) = match self.peek(lane, listed).await? {
            None => return Ok(Scanned::Nothing),
            Some(Peeked::Other) => return Ok(Scanned::Other),
            Some(Peeked::Damaged(error)) => {
                log::warning!("the root under {listed:?} is damaged: {error}");
                return Ok(Scanned::Damaged);
            }
            Some(Peeked::Root(key, root)) => (key, root),
        };
        let object = self.object(&key);
        let slot = root.slot;
        if slot == Slot::FIRST {
            // The lowest slot is the visible one, whatever the others hold.
            let _hold = self.table.shared(object.entry).await;
            if let Knowledge::Unknown | Knowledge::Absent = self.index.get(&object.fingerprint) {
                // What was read before the hold may have been removed since.
                while before != destroyed() {
                    before = destroyed();
                    root = match self.peek(lane, listed).await? {
                        None => return Ok(Scanned::Nothing),
                        Some(Peeked::Root(_, root)) => root,
                        Some(Peeked::Damaged(_) | Peeked::Other) => return Ok(Scanned::Damaged),
                    };
                }
                match self.scanned_record(lane, &object, root, false).await? {
                    Some(record) => {
                        self.index.learn_scanned(object.fingerprint, &record, by);
                    }
                    None => return Ok(Scanned::Damaged),
                }
            }
        }
        let known = self.index.get(&object.fingerprint);
        let settled = match known {
            Knowledge::Only(root) | Knowledge::Visible(root) => root.slot == slot,
            Knowledge::Damaged => {
                // It stays so, and counts what its visible root says.
                self.index.confirm_damaged(&object.fingerprint, by);
                false
            }
            Knowledge::Hidden => return Ok(Scanned::Nothing),
            Knowledge::Unknown | Knowledge::Absent => false,
        };
        let mut purged = 0;
        if !settled {
            let hold = self.table.exclusive(object.entry).await;
            let now = (self.clock)();
            if hold.is_haunted(now) {
                // Its values may change yet and are left alone. That the scan has met a root is
                // not lost: whoever wants the object asks the device.
                if matches!(
                    self.index.get(&object.fingerprint),
                    Knowledge::Unknown | Knowledge::Absent
                ) {
                    self.index.distrust(object.fingerprint);
                }
            } else {
                if !hold.review_quarantine(now).is_empty() {
                    // If the look at all slots fails, the next one must not be skipped.
                    self.index.distrust(object.fingerprint);
                }
                match self.resolve(lane, &hold, &object, by).await? {
                    Some(count) => purged = count,
                    None => return Ok(Scanned::Damaged),
                }
            }
        }
        let size = match self.index.get(&object.fingerprint) {
            Knowledge::Only(root) | Knowledge::Visible(root) => u64::from(root.size),
            Knowledge::Damaged => return Ok(Scanned::Damaged),
            _ => return Ok(Scanned::Nothing),
        };
        let fingerprint = object.fingerprint;
        let report = by == ScanKind::Reporting && self.index.claim_for_scan(&fingerprint);
        let object = report.then_some((fingerprint, ScannedObject { key, size }));
        Ok(Scanned::Root { object, purged })
    }

    /// What the index is to keep of a root that the scan found. `None`: it is damaged.
    async fn scanned_record(
        &self,
        lane: &Lane<'_>,
        object: &Object<'_>,
        root: StoredRoot,
        only: bool,
    ) -> Result<Option<Record>> {
        let root = match root.header.kind {
            ObjectKind::Inline => Some(root),
            ObjectKind::Manifest => match self.whole(lane, object, root).await? {
                // Damaged perhaps only on the way, and a damaged object is not counted.
                Some(root) if root.shape().is_none() => {
                    self.fetch_again(lane, object, &root).await?
                }
                root => root,
            },
        };
        let shape = root.as_ref().and_then(|root| Some((root, root.shape()?)));
        let Some((root, shape)) = shape else {
            self.index.set_damaged(object.fingerprint);
            return Ok(None);
        };
        Ok(Some(self.record(object, root, shape, only)))
    }

    /// A scan that `began` then has seen every root.
    pub(super) fn scanned(&self, by: ScanKind, began: Duration) {
        if self.lifecycle.access != Access::Exclusive {
            return;
        }
        // While a command of unknown outcome may be executed, a root may appear after the scan has
        // passed its place.
        if Duration::from_micros(self.haunted_until.load(Ordering::Acquire)) < began {
            self.index.drop_doubted(by);
        }
        self.index.set_complete();
    }

    /// Finds the visible root of a key and purges the others; how many. `None`: it is damaged.
    async fn resolve(
        &self,
        lane: &Lane<'_>,
        hold: &Exclusive<'_>,
        object: &Object<'_>,
        by: ScanKind,
    ) -> Result<Option<u64>> {
        let first = Ask::Root { guess: 0, want: Want::Prefix };
        let asks = std::iter::once((Slot::FIRST, first)).chain(self.ask_others(Slot::FIRST));
        let mut roots = self.search(lane, object, asks).await?.roots;
        let mut purged = 0;
        if self.lifecycle.access == Access::ReadOnly {
            roots.truncate(1);
        }
        while roots.len() > 1 {
            let Some(root) = roots.pop() else { break };
            let version = Version { slot: root.slot, chunk_count: root.chunk_count() };
            self.delete_root(lane, hold, object, version.slot).await?;
            self.delete_version_chunks(lane, hold, object, version).await;
            purged += 1;
        }
        let Some(visible) = roots.pop() else { return Ok(Some(purged)) };
        let only = !hold.is_quarantined();
        let Some(record) = self.scanned_record(lane, object, visible, only).await? else {
            return Ok(None);
        };
        self.index.put_resolved(object.fingerprint, &record, by);
        Ok(Some(purged))
    }

    /// Whether two keys, derived or listed, are one as far as the device keeps them.
    pub(super) fn same_key(&self, a: &PhysicalKey, b: &PhysicalKey) -> bool {
        self.listed_key(*a) == self.listed_key(*b)
    }

    /// A derived key as the device lists it.
    pub(super) fn listed_key(&self, mut derived: PhysicalKey) -> PhysicalKey {
        if self.executor.capabilities().wire_profile == WireProfile::Mooncake {
            derived.0[CSI_BYTE] = CSI_KV;
        }
        derived
    }

    /// A listed key as this backend may have written it; `None`: it cannot have.
    pub(super) fn own_key(&self, listed: &Key) -> Option<PhysicalKey> {
        let key = listed.physical()?;
        let own = match self.executor.capabilities().wire_profile {
            WireProfile::Spec => true,
            WireProfile::Mooncake => key.0[CSI_BYTE] == CSI_KV,
        };
        own.then_some(key)
    }
}

/// Where the scans that report are.
#[derive(Debug, Default)]
pub(super) struct ScanProgress {
    running: bool,
    /// The latest scan ran to its end, or still may, and has not been reset.
    done: bool,
}

/// Ends a scan, also when the callback unwinds.
struct RunningScan<'b> {
    backend: &'b Backend,
    completed: bool,
}

impl Drop for RunningScan<'_> {
    fn drop(&mut self) {
        let mut progress = self.backend.scan_progress();
        progress.running = false;
        progress.done &= self.completed;
    }
}

impl Backend {
    /// Lists the device, takes what it finds into the index and reports each object once, in pages
    /// of the configured size. After a completed scan, another one reports nothing until
    /// [`Backend::reset_scan`].
    ///
    /// May run beside everything else. Objects stored meanwhile need not be reported. The keys of
    /// a page are not evicted before `on_page` has returned; no key is held across it.
    ///
    /// # Errors
    /// INTERNAL_ERROR while another scan runs and after [`Backend::close`]; otherwise that of
    /// `on_page` or of the device. What only this scan had found is forgotten then, and the scan
    /// can be repeated.
    pub fn scan(
        &self,
        on_page: &mut dyn FnMut(&[ScannedObject]) -> Result<()>,
    ) -> Result<ScanReport> {
        let _call = self.calls.enter()?;
        let Some(mut running) = self.begin_scan()? else {
            return Ok(ScanReport { listed: true, ..ScanReport::default() });
        };
        let report = self.scan_device(ScanKind::Reporting, on_page)?;
        running.completed = report.listed;
        Ok(report)
    }

    /// Lets the next scan begin from the start. Does not wait for one that is running.
    pub fn reset_scan(&self) {
        self.scan_progress().done = false;
    }

    fn scan_progress(&self) -> MutexGuard<'_, ScanProgress> {
        self.scan_progress.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// `None`: the last scan ran to its end and has not been reset.
    fn begin_scan(&self) -> Result<Option<RunningScan<'_>>> {
        let mut progress = self.scan_progress();
        if progress.running {
            return Err(Error::new(ErrorCode::InternalError, "another scan is running"));
        }
        if progress.done {
            return Ok(None);
        }
        *progress = ScanProgress { running: true, done: true };
        Ok(Some(RunningScan { backend: self, completed: false }))
    }

    /// Scans if that is needed to know every object. A scan that is reporting to somebody is not
    /// waited for: its callback may be what waits for us.
    pub(super) fn complete_index(&self) -> Result<()> {
        let mut surveyed = self.surveyed.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if !*surveyed && !self.core.index.is_complete() {
            self.scan_device(ScanKind::Silent, &mut |_| Ok(()))?;
            *surveyed = true;
        }
        Ok(())
    }

    fn scan_device(
        &self,
        by: ScanKind,
        on_page: &mut dyn FnMut(&[ScannedObject]) -> Result<()>,
    ) -> Result<ScanReport> {
        let core = &self.core;
        let began = (core.clock)();
        core.index.begin_scan(by);
        let report = self.scan_pages(by, on_page);
        match &report {
            Ok(report) if report.listed => {
                core.scanned(by, began);
                log::info!("scan: {report:?}");
                if report.foreign > 0 {
                    let (ours, other) = match core.executor.capabilities().wire_profile {
                        WireProfile::Mooncake => ("mooncake", "spec"),
                        WireProfile::Spec => ("spec", "mooncake"),
                    };
                    log::warning!(
                        "scan: {} keys were not written with wire profile {ours}; if another \
                         instance wrote them, it used MOONCAKE_NVME_KV_WIRE_PROFILE={other}",
                        report.foreign
                    );
                }
            }
            Ok(_) => log::warning!(
                "scan: the device does not implement List; keys are asked for one by one, and \
                 objects of earlier runs count for no limit"
            ),
            Err(_) => core.index.abandon_scan(by),
        }
        report
    }

    fn scan_pages(
        &self,
        by: ScanKind,
        on_page: &mut dyn FnMut(&[ScannedObject]) -> Result<()>,
    ) -> Result<ScanReport> {
        let core = &self.core;
        let mut report = ScanReport::default();
        let mut listing = Listing::new();
        let mut page: Vec<(Fingerprint, ScannedObject)> = Vec::new();
        let page_len = core.lifecycle.scan_page.max(1) as usize;
        loop {
            self.go_on()?;
            let keys = match listing.next(&*core.executor) {
                Ok(keys) => keys,
                Err(error) if error.is_unsupported() && !report.listed => return Ok(report),
                Err(error) => return Err(error.into_error(Direction::Read, "List")),
            };
            report.listed = true;
            if keys.is_empty() {
                break;
            }
            let listed = keys.len() as u64;
            let own: Vec<PhysicalKey> = keys.iter().filter_map(|key| core.own_key(key)).collect();
            report.foreign += listed - own.len() as u64;
            let scanned =
                each(&*core.executor, own, async |lane, key| core.scan_value(lane, key, by).await);
            let mut failure = None;
            for value in scanned {
                match value {
                    Ok(Scanned::Nothing) => {}
                    Ok(Scanned::Other) => report.others += 1,
                    Ok(Scanned::Damaged) => report.damaged += 1,
                    Ok(Scanned::Root { object, purged }) => {
                        report.roots += 1;
                        report.purged += purged;
                        page.extend(object);
                    }
                    Err(error) => failure = Some(error),
                }
            }
            if let Some(error) = failure {
                return Err(error);
            }
            while page.len() >= page_len {
                let rest = page.split_off(page_len);
                let full = std::mem::replace(&mut page, rest);
                self.deliver(full, &mut report, on_page)?;
            }
        }
        self.deliver(page, &mut report, on_page)?;
        Ok(report)
    }

    /// Reports a page; its objects may be evicted afterwards.
    fn deliver(
        &self,
        page: Vec<(Fingerprint, ScannedObject)>,
        report: &mut ScanReport,
        on_page: &mut dyn FnMut(&[ScannedObject]) -> Result<()>,
    ) -> Result<()> {
        // What has left since it was read need not be reported.
        let page = page.into_iter().filter(|(fingerprint, _)| self.core.index.pin(fingerprint));
        let (fingerprints, objects): (Vec<Fingerprint>, Vec<ScannedObject>) = page.unzip();
        report.objects += objects.len() as u64;
        if objects.is_empty() {
            return Ok(());
        }
        let told = on_page(&objects);
        for fingerprint in &fingerprints {
            self.core.index.unpin(fingerprint);
        }
        told
    }
}
