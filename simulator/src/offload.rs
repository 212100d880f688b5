//! Steps that offload.

use std::cell::RefCell;

use mooncake_nvme_kv::backend::{Backend, Handlers, ObjectToStore};
use mooncake_nvme_kv::{Error, ErrorCode, Result};

use crate::device::{FaultPlan, SimulatedDevice};
use crate::model::Version;
use crate::survey::Survey;
use crate::world::{Checked, Ledger, World, load};

/// Whether a failed write may have stored its version.
pub(crate) fn either_version(error: &Error) -> bool {
    error.message().contains("either version")
}

pub(crate) fn refusal() -> Error {
    Error::new(ErrorCode::InternalError, "the callback refuses")
}

/// An eviction callback that notes whom it was told of; it is told before anything is deleted, and
/// the objects are gone for readers already.
pub(crate) fn on_evicted<'w>(
    ledger: &'w RefCell<Ledger>,
    backend: &'w Backend,
    device: &'w SimulatedDevice,
    survey: &'w dyn Fn() -> Survey,
    refuse: bool,
) -> impl FnMut(&[Vec<u8>]) -> Result<()> + 'w {
    move |keys| {
        if device.has_crashed() {
            return Err(refusal());
        }
        let roots = survey().roots;
        for key in keys {
            let there = device.calmly(|| backend.exists(key));
            let mut ledger = ledger.borrow_mut();
            let checked = (|| {
                let position = ledger.position(key)?;
                if !ledger.objects[position].may_be_absent() && !roots.contains_key(key) {
                    return Err(format!("k{position} was deleted before its eviction was told"));
                }
                match there {
                    Ok(false) => Ok(()),
                    other => Err(format!("k{position} is being evicted, and exists: {other:?}")),
                }
            })();
            ledger.check(checked);
            if let (Ok(position), false) = (ledger.position(key), refuse) {
                ledger.objects[position].perhaps(None);
                ledger.evicting.insert(position, device.faults().failed());
                ledger.told.push(position);
            }
        }
        if refuse { Err(refusal()) } else { Ok(()) }
    }
}

impl World {
    pub(crate) fn offload(&mut self, plan: FaultPlan) -> Checked {
        let count = self.random.between(1, 6);
        let mut batch: Vec<(usize, Version)> = Vec::new();
        for _ in 0..count {
            let key = match batch.last() {
                Some(&(last, _)) if self.random.one_in(4) => last,
                _ => self.any_key(),
            };
            batch.push((key, self.any_version(key)));
        }
        let refuse_stored = self.random.one_in(16);
        let refuse_evicted = self.random.one_in(10);
        self.offload_batch(&batch, plan, refuse_stored, refuse_evicted)
    }

    /// Offloads these versions of these keys in one call.
    pub(crate) fn offload_batch(
        &mut self,
        batch: &[(usize, Version)],
        plan: FaultPlan,
        refuse_stored: bool,
        refuse_evicted: bool,
    ) -> Checked {
        let named: Vec<String> = {
            let ledger = self.ledger.borrow();
            let len = |&(key, version): &(usize, Version)| ledger.versions[key][version].len();
            batch.iter().map(|at| format!("k{} v{} ({} B)", at.0, at.1, len(at))).collect()
        };
        let refusing = [(refuse_stored, " on_stored"), (refuse_evicted, " on_evicted")];
        let refusing: String =
            refusing.iter().filter(|(refuses, _)| *refuses).map(|(_, name)| *name).collect();
        let refusing =
            if refusing.is_empty() { refusing } else { format!(", refused by{refusing}") };
        self.begin(plan, format!("offload {}{refusing}", named.join(", ")));
        let faults_before = self.device.faults();

        // The backend borrows keys and payloads while callbacks change the ledger.
        let keys = self.ledger.borrow().keys.clone();
        let payloads: Vec<Vec<u8>> = {
            let ledger = self.ledger.borrow();
            batch.iter().map(|&(key, version)| ledger.versions[key][version].clone()).collect()
        };
        // Two slices an object.
        let slices: Vec<[&[u8]; 2]> = payloads
            .iter()
            .map(|payload| {
                let (a, b) = payload.split_at(payload.len() / 3);
                [a, b]
            })
            .collect();
        let objects: Vec<ObjectToStore<'_>> = batch
            .iter()
            .zip(&slices)
            .map(|(&(key, _), slices)| ObjectToStore { key: &keys[key], slices })
            .collect();
        let (ledger, backend, device) = (&self.ledger, &self.backend, &*self.device);
        let told = RefCell::new(Vec::new());
        let mut on_stored = |positions: &[usize]| {
            if device.has_crashed() {
                return Err(refusal());
            }
            let mut positions = positions.to_vec();
            positions.sort_unstable();
            for &position in &positions {
                let (key, version) = batch[position];
                ledger.borrow_mut().objects[key].stored(version);
                ledger.borrow_mut().evicting.remove(&key);
                told.borrow_mut().push(position);
            }
            for &position in &positions {
                // A later object of the same key may have replaced it, told or not yet.
                let (key, _) = batch[position];
                let readable = device.calmly(|| {
                    batch[position..].iter().filter(|(other, _)| *other == key).any(
                        |&(_, version)| {
                            let payload = ledger.borrow().versions[key][version].clone();
                            load(backend, &keys[key], payload.len())
                                .is_ok_and(|loaded| loaded == payload)
                        },
                    )
                });
                let checked = if readable || ledger.borrow().objects[key].damaged {
                    Ok(())
                } else {
                    Err(format!("k{key} is not readable when it is reported as stored"))
                };
                ledger.borrow_mut().check(checked);
            }
            if refuse_stored { Err(refusal()) } else { Ok(()) }
        };
        let survey = || Survey::of(&self.namespace, &self.wire);
        let mut on_evicted = on_evicted(ledger, backend, device, &survey, refuse_evicted);
        let handlers = Handlers { on_stored: &mut on_stored, on_evicted: &mut on_evicted };
        let report = backend.offload_with(&objects, handlers);
        drop(on_evicted);
        let told = told.into_inner();

        let crashed = self.device.has_crashed();
        let faults = self.device.faults();
        if faults.unanswered + faults.late > faults_before.unanswered + faults_before.late {
            let evicted = self.ledger.borrow().told.clone();
            self.unsettle(batch.iter().map(|&(key, _)| key).chain(evicted));
        }
        let outcome = match &report {
            Ok(report) => {
                let results: Vec<String> = report
                    .results
                    .iter()
                    .map(|result| match result {
                        Ok(stored) if stored.already => "already".to_string(),
                        Ok(_) => "ok".to_string(),
                        Err(error) => error.to_string(),
                    })
                    .collect();
                let evicted = &self.ledger.borrow().told;
                let evicted = if evicted.is_empty() {
                    String::new()
                } else {
                    format!(", evicted {evicted:?}")
                };
                format!("-> {}{evicted}", results.join("; "))
            }
            Err(error) => format!("-> {error}"),
        };
        if crashed {
            let ledger = self.ledger.get_mut();
            for (position, &(key, version)) in batch.iter().enumerate() {
                if !told.contains(&position) {
                    ledger.objects[key].perhaps(Some(version));
                }
            }
            return self.end(&outcome);
        }
        let calm = faults.failed() == faults_before.failed();
        let checked = self.check_offload(batch, report, &told, calm);
        self.end(&outcome)?;
        checked
    }

    fn check_offload(
        &mut self,
        batch: &[(usize, Version)],
        report: Result<mooncake_nvme_kv::backend::OffloadReport>,
        told: &[usize],
        calm: bool,
    ) -> Checked {
        let report = report.map_err(|error| format!("the offload failed as a whole: {error}"))?;
        let refused = report.callback_error.is_some();
        if report.results.len() != batch.len() {
            return Err(format!("{} results for {} objects", report.results.len(), batch.len()));
        }
        let mut once = told.to_vec();
        once.sort_unstable();
        once.dedup();
        if once.len() != told.len() {
            return Err(format!("told twice: {told:?}"));
        }
        let evicts = self.evicts();
        let ledger = self.ledger.get_mut();
        for (position, result) in report.results.iter().enumerate() {
            let (key, version) = batch[position];
            let replaced = batch[position + 1..]
                .iter()
                .zip(&report.results[position + 1..])
                .any(|(&(other, _), result)| other == key && result.is_ok());
            match result {
                Ok(stored) => {
                    if !told.contains(&position) && !refused {
                        return Err(format!("k{key} v{version} is stored, and nobody was told"));
                    }
                    if stored.size != ledger.versions[key][version].len() as u64 {
                        return Err(format!("k{key} v{version} was stored as {stored:?}"));
                    }
                    if !told.contains(&position) && !replaced {
                        ledger.objects[key].stored(version);
                    }
                    if !stored.already {
                        ledger.objects[key].written();
                    } else if ledger.objects[key].reported {
                        return Err(format!(
                            "k{key} was reported as damaged, and v{version} is taken for stored"
                        ));
                    }
                }
                Err(error) => {
                    if told.contains(&position) {
                        return Err(format!("told that k{key} is stored, but: {error}"));
                    }
                    // The new version may be stored, and good.
                    ledger.objects[key].reported = false;
                    ledger.objects[key].doubted = true;
                    if either_version(error) && !replaced {
                        ledger.objects[key].perhaps(Some(version));
                    }
                    let code = error.code();
                    if evicts && code == ErrorCode::KeysUltraLimit {
                        return Err(format!("with eviction on: {error}"));
                    }
                    let expected =
                        matches!(code, ErrorCode::KeysUltraLimit | ErrorCode::InvalidRead);
                    if calm && !expected {
                        return Err(format!("k{key} failed without a fault: {error}"));
                    }
                }
            }
        }
        Ok(())
    }
}
