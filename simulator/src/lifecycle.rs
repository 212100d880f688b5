//! Steps that remove, evict, scan and sweep, and what happens to a device meanwhile.

use std::cell::RefCell;
use std::time::Duration;

use mooncake_nvme_kv::ErrorCode;
use mooncake_nvme_kv::backend::ScannedObject;
use mooncake_nvme_kv::layout::{ChunkIndex, ObjectKeys, ObjectKind, Slot, root_prefix};
use nvme_kv_command_set::WireProfile;

use crate::device::FaultPlan;
use crate::offload::{on_evicted, refusal};
use crate::survey::Survey;
use crate::world::{Checked, World, bytes};

impl World {
    fn all_keys(&self) -> std::ops::Range<usize> {
        0..self.key_count()
    }

    /// Marks `keys` if the step had a command of unknown outcome since `before`.
    pub(crate) fn unsettle_since(
        &mut self,
        before: crate::device::Faults,
        keys: impl IntoIterator<Item = usize>,
    ) {
        let now = self.device.faults();
        if now.unanswered + now.late > before.unanswered + before.late {
            self.unsettle(keys);
        }
    }

    pub(crate) fn remove(&mut self, plan: FaultPlan) -> Checked {
        let key = self.any_key();
        self.begin(plan, format!("remove k{key}"));
        let before = self.device.faults();
        let name = self.ledger.borrow().keys[key].clone();
        let result = self.backend.remove(&name);
        let outcome = match &result {
            Ok(()) => "-> ok".to_string(),
            Err(error) => format!("-> {error}"),
        };
        self.unsettle_since(before, [key]);
        if self.device.has_crashed() {
            self.ledger.get_mut().objects[key].perhaps(None);
            return self.end(&outcome);
        }
        let calm = self.device.faults().failed() == before.failed();
        let ledger = self.ledger.get_mut();
        let object = &mut ledger.objects[key];
        let checked = match result {
            Ok(()) if !object.damaged && object.versions().next().is_none() => {
                Err(format!("{}, and was removed", ledger.describe(key)))
            }
            Ok(()) => {
                object.removed();
                Ok(())
            }
            Err(error) if error.code() == ErrorCode::ObjectNotFound => {
                if object.may_be_absent() {
                    object.removed();
                    Ok(())
                } else {
                    Err(format!("{}, and was not found", ledger.describe(key)))
                }
            }
            Err(error) => {
                object.perhaps(None);
                object.doubted = true;
                let waits = error.code() == ErrorCode::InvalidRead && object.unsettled;
                if calm && !waits {
                    Err(format!("remove of k{key} failed without a fault: {error}"))
                } else {
                    Ok(())
                }
            }
        };
        self.end(&outcome)?;
        checked
    }

    pub(crate) fn remove_all(&mut self, plan: FaultPlan) -> Checked {
        self.begin(plan, "remove all".to_string());
        let before = self.device.faults();
        let result = self.backend.remove_all();
        self.unsettle_since(before, self.all_keys());
        let crashed = self.device.has_crashed();
        let calm = self.device.faults().failed() == before.failed();
        let left = self.survey().roots.len();
        let settled = self.ledger.borrow().objects.iter().all(|object| !object.unsettled);
        // Without List, objects of earlier processes may stay.
        let lists = self.lists();
        let mut checked = Ok(());
        for object in &mut self.ledger.get_mut().objects {
            match &result {
                // A root of unknown outcome may yet appear.
                Ok(_) if !crashed && lists && !object.unsettled => object.removed(),
                _ => {
                    object.perhaps(None);
                    object.doubted = true;
                }
            }
        }
        match &result {
            Ok(_) if !crashed && settled && left > 0 && lists => {
                checked = Err(format!("{left} objects are left after all were removed"));
            }
            Err(error) if calm && settled && !crashed => {
                checked = Err(format!("remove all failed without a fault: {error}"));
            }
            _ => {}
        }
        self.end(&format!("-> {result:?}"))?;
        checked
    }

    pub(crate) fn evict(&mut self, plan: FaultPlan) -> Checked {
        let high = self.random.below(10) as f64 / 10.0;
        let low = high * self.random.below(10) as f64 / 10.0;
        let refuse = self.random.one_in(6);
        let refusing = if refuse { ", refused by on_evicted" } else { "" };
        self.begin(plan, format!("evict above {high:.2} down to {low:.2}{refusing}"));
        let before = self.device.faults();
        let survey = || Survey::of(&self.namespace, &self.wire);
        let result = {
            let (ledger, backend, device) = (&self.ledger, &self.backend, &*self.device);
            let mut on_evicted = on_evicted(ledger, backend, device, &survey, refuse);
            backend.evict_above(high, low, &mut on_evicted)
        };
        let told = self.ledger.borrow().told.clone();
        self.unsettle_since(before, told.clone());
        let outcome = match &result {
            Ok(_) => format!("-> evicted {told:?}"),
            Err(error) => format!("-> told {told:?}: {error}"),
        };
        let calm = self.device.faults().failed() == before.failed();
        let checked = match &result {
            _ if self.device.has_crashed() => Ok(()),
            Ok(evicted) => {
                let ledger = self.ledger.borrow();
                let evicted: Checked<Vec<usize>> =
                    evicted.iter().map(|key| ledger.position(key)).collect();
                evicted.and_then(|evicted| {
                    if evicted == told {
                        Ok(())
                    } else {
                        Err(format!("told of {told:?}, but evicted {evicted:?}"))
                    }
                })
            }
            Err(error) if calm && !refuse => {
                Err(format!("eviction failed without a fault: {error}"))
            }
            Err(_) => Ok(()),
        };
        self.end(&outcome)?;
        checked
    }

    pub(crate) fn scan(&mut self, plan: FaultPlan) -> Checked {
        let reset = self.random.one_in(2);
        if reset {
            self.backend.reset_scan();
            self.scanned = false;
        }
        let refuse = self.random.one_in(8);
        let refusing = if refuse { ", refused by on_page" } else { "" };
        let from_start = if reset { " from the start" } else { "" };
        self.begin(plan, format!("scan{from_start}{refusing}"));
        self.scan_now(refuse).map(|_| ())
    }

    /// Scans, and checks what is reported.
    pub(crate) fn scan_now(&mut self, refuse: bool) -> Checked<Vec<ScannedObject>> {
        let before = self.device.faults();
        let usage = self.backend.usage();
        let survey = self.survey();
        let found = RefCell::new(Vec::new());
        let result = self.backend.scan(&mut |page| {
            found.borrow_mut().extend_from_slice(page);
            if refuse { Err(refusal()) } else { Ok(()) }
        });
        let found = found.into_inner();
        let crashed = self.device.has_crashed();
        self.unsettle_since(before, self.all_keys());
        let calm = self.device.faults().failed() == before.failed();
        let outcome = match &result {
            Ok(report) => format!("-> {report:?}"),
            Err(error) => format!("-> {error}"),
        };
        let checked = (|| {
            let ledger = self.ledger.borrow();
            let mut reported = vec![false; ledger.keys.len()];
            for object in &found {
                let key = ledger.position(&object.key)?;
                if std::mem::replace(&mut reported[key], true) {
                    return Err(format!("the scan reported k{key} twice"));
                }
                let model = &ledger.objects[key];
                let sizes: Vec<u64> =
                    model.versions().map(|v| ledger.versions[key][v].len() as u64).collect();
                if !sizes.contains(&object.size) && !model.damaged {
                    return Err(format!(
                        "{}, and was reported with {} bytes",
                        ledger.describe(key),
                        object.size
                    ));
                }
            }
            match &result {
                Ok(report) if report.listed => {
                    if !self.backend.index_is_complete() {
                        return Err("the index is not complete after a scan".to_string());
                    }
                    if self.scanned && !found.is_empty() {
                        return Err("a completed scan was repeated".to_string());
                    }
                    for (key, object) in ledger.objects.iter().enumerate() {
                        let certain = !object.may_be_absent()
                            && !object.unsettled
                            && !object.suspected
                            && calm;
                        if !self.scanned && certain && !reported[key] {
                            return Err(format!("the scan did not report k{key}"));
                        }
                    }
                }
                Ok(_) if self.lists() && calm => return Err("nothing was listed".to_string()),
                Ok(_) => {}
                Err(error) if calm && (!refuse || found.is_empty()) => {
                    return Err(format!("the scan failed without a fault: {error}"));
                }
                Err(_) => {
                    // Several roots of one key, or what was not trusted, may have been put right.
                    let plain = survey.roots.values().all(|roots| roots.len() == 1)
                        && ledger.objects.iter().all(|object| {
                            !object.unsettled
                                && !object.suspected
                                && !object.doubted
                                && !object.damaged
                                && object.possible.len() == 1
                        });
                    let after = self.backend.usage();
                    if plain && after != usage {
                        return Err(format!(
                            "a failed scan changed the counters from {usage:?} to {after:?}"
                        ));
                    }
                }
            }
            Ok(())
        })();
        if !crashed {
            self.scanned |= result.is_ok_and(|report| report.listed);
        }
        self.end(&outcome)?;
        if crashed { Ok(found) } else { checked.map(|()| found) }
    }

    pub(crate) fn sweep(&mut self, plan: FaultPlan) -> Checked {
        let dry_run = self.random.one_in(3);
        self.begin(plan, format!("sweep{}", if dry_run { ", dry run" } else { "" }));
        self.sweep_now(dry_run)
    }

    /// Sweeps; everything that is an orphan is gone, and nothing else.
    pub(crate) fn sweep_now(&mut self, dry_run: bool) -> Checked {
        let before = self.device.faults();
        let held = self.survey();
        let result = self.backend.sweep(dry_run);
        self.unsettle_since(before, self.all_keys());
        let calm = self.device.faults().failed() == before.failed();
        let settled = self.ledger.borrow().objects.iter().all(|object| !object.unsettled);
        let left = self.survey();
        let checked = match &result {
            _ if self.device.has_crashed() => Ok(()),
            Ok(report) if calm && settled => {
                let orphans = held.orphans.len() as u64;
                let expected = if dry_run { orphans } else { 0 };
                if report.orphans != orphans {
                    Err(format!("{orphans} orphans are there, the sweep says {report:?}"))
                } else if left.orphans.len() as u64 != expected {
                    Err(format!("{} orphans survive a sweep", left.orphans.len()))
                } else {
                    if !dry_run {
                        self.ledger.get_mut().junk.fill(false);
                    }
                    Ok(())
                }
            }
            Ok(_) => Ok(()),
            Err(error) if error.code() == ErrorCode::NotSupported && !self.lists() => Ok(()),
            // Chunks of a root that may yet appear look like orphans.
            Err(error) if error.code() == ErrorCode::InvalidRead && !settled => Ok(()),
            Err(error) if calm => Err(format!("the sweep failed without a fault: {error}")),
            Err(_) => Ok(()),
        };
        self.end(&format!("-> {result:?}"))?;
        checked
    }

    pub(crate) fn time(&mut self) -> Checked {
        if self.random.one_in(2) {
            self.begin(FaultPlan::default(), "time passes until all is settled".to_string());
            self.settle();
        } else {
            let time = Duration::from_millis(self.random.between(1, 40_000));
            self.begin(FaultPlan::default(), format!("{time:?} pass"));
            self.device.pass(time);
        }
        self.end("")
    }

    pub(crate) fn late(&mut self) -> Checked {
        self.begin(FaultPlan::default(), "late commands are executed".to_string());
        let released = self.device.release_late();
        self.end(&format!("-> {released}"))
    }

    pub(crate) fn close_and_open(&mut self) -> Checked {
        self.begin(FaultPlan::default(), "close".to_string());
        self.end("")?;
        self.reopen("closed");
        Ok(())
    }

    /// One bit of a stored object changes on the device. If that makes its root unreadable, a root
    /// above it is the visible one.
    pub(crate) fn damage(&mut self) -> Checked {
        let key = self.any_key();
        let ledger = self.ledger.get_mut();
        let object = &ledger.objects[key];
        let settled = !object.unsettled && object.possible.len() == 1 && !object.damaged;
        let name = ledger.keys[key].clone();
        let survey = self.survey();
        let pieces = survey.pieces(&name);
        if !settled || pieces.is_empty() {
            return Ok(());
        }
        let piece = *self.random.pick(&pieces);
        let mut value = self.namespace.peek(&piece).unwrap_or_default();
        let Some(last) = (value.len() as u64).checked_sub(1) else { return Ok(()) };
        let place = self.random.between(0, last.min(700)) as usize;
        value[place] ^= 1 << self.random.below(8);
        self.begin(FaultPlan::default(), format!("k{key} is damaged: byte {place} of {piece:?}"));
        self.namespace.poke(&piece, &value);
        let uncovered = survey.hidden(&self.namespace, &self.wire, &name);
        let ledger = self.ledger.get_mut();
        for payload in uncovered {
            for version in ledger.version_of(key, &payload) {
                ledger.objects[key].perhaps(Some(version));
            }
        }
        ledger.objects[key].damaged = true;
        // What is left of a damaged root stays under its key.
        ledger.junk[key] = true;
        self.end("")
    }

    /// Another writer, between two processes, leaves an old version above the visible one.
    pub(crate) fn put_hidden(&mut self) {
        let key = self.any_key();
        let name = self.ledger.borrow().keys[key].clone();
        let version = self.any_version(key);
        let payload = self.ledger.borrow().versions[key][version].clone();
        let Some(visible) = self.survey().roots.get(&name).map(|roots| roots[0].slot) else {
            return;
        };
        let above = visible.get() + self.random.between(1, 3) as u32;
        let Some(slot) = Slot::new(above).filter(|_| payload.len() <= 3000) else { return };
        let keys = ObjectKeys::new(&name);
        let place = self.wire.device_key(&keys.root(slot));
        if self.namespace.peek(&place).is_some() {
            return;
        }
        let (kind, len) = (self.config.checksum, payload.len() as u32);
        let sum = kind.of_slice(&payload);
        let mut value = root_prefix(ObjectKind::Inline, kind, &keys, slot, &name, len, sum);
        value.extend_from_slice(&payload);
        if self.wire.profile == WireProfile::Mooncake {
            value.resize(self.wire.transfer_len(value.len() as u32) as usize, 0);
        }
        self.namespace.poke(&place, &value);
        self.note(format!("  another writer leaves k{key} v{version} hidden in slot {above}"));
    }

    /// Somebody else puts a value where one of ours may go.
    pub(crate) fn junk(&mut self) -> Checked {
        let key = self.any_key();
        let keys = ObjectKeys::new(&self.ledger.borrow().keys[key]);
        let slot = Slot::new(self.random.below(3) as u32).unwrap_or(Slot::FIRST);
        let root = self.random.one_in(2);
        let place = if root {
            keys.root(slot)
        } else {
            keys.chunk(slot, ChunkIndex(self.random.below(3) as u32))
        };
        let place = self.wire.device_key(&place);
        if self.namespace.peek(&place).is_some() {
            return Ok(());
        }
        let what = if root { "root" } else { "chunk" };
        self.begin(
            FaultPlan::default(),
            format!("something else takes the place of a {what} of k{key} in slot {}", slot.get()),
        );
        let value = bytes(4096, self.random.next());
        self.namespace.poke(&place, &value);
        self.ledger.get_mut().junk[key] |= root;
        self.end("")
    }
}
