//! Steps that read, and what they may see.

use mooncake_nvme_kv::{Error, ErrorCode, Result};

use crate::device::FaultPlan;
use crate::world::{Checked, Ledger, World, load};

/// The stored object has another size than was asked for.
pub(crate) fn other_size(error: &Error) -> bool {
    error.code() == ErrorCode::FileReadFail && error.message().contains("were wanted")
}

/// What is stored may be damaged, and is not trusted after this.
pub(crate) fn tells_damage(error: &Error) -> bool {
    let codes = [ErrorCode::ChecksumMismatch, ErrorCode::FileReadFail, ErrorCode::InvalidRead];
    codes.contains(&error.code()) && !other_size(error)
}

/// Whether a load of `key` with `len` bytes may end like this. `calm`: no fault was injected. After
/// one, what was seen says nothing of later: Retrieves that lie twice can make the visible root
/// unreadable for once, and a root above it takes its place. `uncovered`: they may have.
pub(crate) fn check_load(
    ledger: &mut Ledger,
    key: usize,
    len: usize,
    result: &Result<Vec<u8>>,
    calm: bool,
    uncovered: bool,
) -> Checked {
    match result {
        Ok(bytes) => {
            let versions = ledger.version_of(key, bytes);
            let expected =
                versions.iter().any(|&version| ledger.objects[key].may_be(Some(version)));
            let hidden = uncovered && !versions.is_empty();
            if !expected && !hidden {
                let what = if versions.is_empty() {
                    "bytes that nobody stored".to_string()
                } else {
                    format!("v{versions:?}")
                };
                return Err(format!("{}, and was loaded as {what}", ledger.describe(key)));
            }
            if calm {
                ledger.objects[key]
                    .seen(|state| state.is_some_and(|seen| versions.contains(&seen)));
            }
        }
        Err(error) if error.code() == ErrorCode::ObjectNotFound => {
            if !ledger.objects[key].may_be_absent() {
                return Err(format!("{}, and was not found", ledger.describe(key)));
            }
            if calm {
                ledger.objects[key].seen(|state| state.is_none());
            }
        }
        Err(error) if other_size(error) => {
            let lens: Vec<usize> =
                ledger.objects[key].versions().map(|v| ledger.versions[key][v].len()).collect();
            let right = lens.iter().all(|&other| other == len);
            if calm && right && !ledger.objects[key].damaged {
                return Err(format!("{}, and has another size: {error}", ledger.describe(key)));
            }
            let sizes: Vec<usize> = ledger.versions[key].iter().map(Vec::len).collect();
            if calm {
                ledger.objects[key]
                    .seen(|state| state.is_some_and(|version| sizes[version] != len));
            }
        }
        Err(error) => {
            let junk = ledger.junk[key] && ledger.objects[key].may_be_absent();
            if calm && !ledger.objects[key].damaged && !junk {
                return Err(format!("{}: {error}, without a fault", ledger.describe(key)));
            }
            if tells_damage(error) {
                let object = &mut ledger.objects[key];
                object.suspected = true;
                object.reported |= calm && object.damaged;
            }
        }
    }
    Ok(())
}

/// Whether `exists` of `key` may end like this.
pub(crate) fn check_exists(
    ledger: &mut Ledger,
    key: usize,
    result: &Result<bool>,
    calm: bool,
) -> Checked {
    let object = &ledger.objects[key];
    match result {
        Ok(true) => {
            if !object.damaged && object.versions().next().is_none() {
                return Err(format!("{}, and exists", ledger.describe(key)));
            }
            ledger.objects[key].seen(|state| state.is_some());
        }
        Ok(false) => {
            if !object.may_be_absent() {
                return Err(format!("{}, and does not exist", ledger.describe(key)));
            }
            ledger.objects[key].seen(|state| state.is_none());
        }
        Err(error) => {
            let junk = ledger.junk[key] && object.may_be_absent();
            if calm && !object.damaged && !junk {
                return Err(format!("{}: {error}, without a fault", ledger.describe(key)));
            }
        }
    }
    Ok(())
}

impl World {
    /// Lengths by which `key` is worth asking for.
    fn lens(&self, key: usize) -> Vec<usize> {
        let ledger = self.ledger.borrow();
        let mut lens: Vec<usize> =
            ledger.objects[key].versions().map(|v| ledger.versions[key][v].len()).collect();
        if lens.is_empty() {
            lens.extend(ledger.versions[key].first().map(Vec::len));
            lens.push(100);
        }
        lens.sort_unstable();
        lens.dedup();
        lens
    }

    pub(crate) fn load(&mut self, plan: FaultPlan) -> Checked {
        let key = self.any_key();
        self.begin(plan, format!("load k{key}"));
        let checked = self.load_key(key);
        self.end_with(checked)
    }

    /// Loads `key` by every length that it may have; one of them is right.
    pub(crate) fn load_key(&mut self, key: usize) -> Checked<String> {
        let mut outcomes = Vec::new();
        let mut loaded = false;
        let faults = self.device.faults();
        let certain = {
            let object = &self.ledger.borrow().objects[key];
            !object.may_be_absent() && !object.unsettled
        };
        for len in self.lens(key) {
            let before = self.device.faults();
            let name = self.ledger.borrow().keys[key].clone();
            let result = load(&self.backend, &name, len);
            if self.device.has_crashed() {
                return Ok("crashed".to_string());
            }
            let faults = self.device.faults();
            let calm = faults == before;
            let uncovered = faults.damaged >= before.damaged + 2
                && self.survey().roots.get(&name).is_some_and(|roots| roots.len() > 1);
            outcomes.push(match &result {
                Ok(bytes) => format!("v{:?}", self.ledger.borrow().version_of(key, bytes)),
                Err(error) => error.to_string(),
            });
            loaded |= result.is_ok();
            check_load(self.ledger.get_mut(), key, len, &result, calm, uncovered)?;
        }
        if certain && !loaded && self.device.faults() == faults {
            return Err(format!(
                "{}, and no length loads it: {}",
                self.ledger.borrow().describe(key),
                outcomes.join("; ")
            ));
        }
        Ok(outcomes.join("; "))
    }

    pub(crate) fn exists(&mut self, plan: FaultPlan) -> Checked {
        let key = self.any_key();
        self.begin(plan, format!("exists k{key}"));
        let checked = self.ask_key(key);
        self.end_with(checked)
    }

    /// Ends a step that has looked at one key.
    fn end_with(&mut self, checked: Checked<String>) -> Checked {
        let outcome = match &checked {
            Ok(outcome) => format!("-> {outcome}"),
            Err(_) => "-> violation".to_string(),
        };
        self.end(&outcome)?;
        checked.map(|_| ())
    }

    /// Asks whether `key` exists.
    pub(crate) fn ask_key(&mut self, key: usize) -> Checked<String> {
        let before = self.device.faults();
        let name = self.ledger.borrow().keys[key].clone();
        let result = self.backend.exists(&name);
        if self.device.has_crashed() {
            return Ok("crashed".to_string());
        }
        let calm = self.device.faults().failed() == before.failed();
        check_exists(self.ledger.get_mut(), key, &result, calm)?;
        Ok(result.map_or_else(|error| error.to_string(), |there| there.to_string()))
    }
}
