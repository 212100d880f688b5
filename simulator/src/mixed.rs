//! Steps whose operations interleave, command by command.
//!
//! What they ended with must be explained by some order in which they happened one after the
//! other.

use std::collections::BTreeSet;

use mooncake_nvme_kv::backend::{Done, Mixed, ObjectToLoad, ObjectToStore};
use mooncake_nvme_kv::device::Destination;
use mooncake_nvme_kv::{Error, ErrorCode};

use crate::device::FaultPlan;
use crate::load::{other_size, tells_damage};
use crate::model::Version;
use crate::offload::either_version;
use crate::world::{Checked, World};

type State = Option<Version>;

/// One operation on one key.
#[derive(Clone, Copy, Debug)]
enum Op {
    Store(usize, Version),
    Load(usize, usize),
    Exists(usize),
    Remove(usize),
    Evict(usize),
    Scan,
}

/// What it ended with.
#[derive(Clone, Debug)]
enum End {
    Ok,
    Is(bool),
    Loaded(Vec<Version>),
    Failed(Error),
}

impl World {
    pub(crate) fn mixed(&mut self, plan: FaultPlan) -> Checked {
        let pool: Vec<usize> = (0..self.random.between(1, 2)).map(|_| self.any_key()).collect();
        let count = self.random.between(2, 6);
        let mut ops = Vec::new();
        for _ in 0..count {
            let key = *self.random.pick(&pool);
            let version = self.any_version(key);
            ops.push(match self.random.below(12) {
                0..4 => Op::Store(key, version),
                4..7 => {
                    let ledger = self.ledger.borrow();
                    let versions: Vec<Version> = ledger.objects[key].versions().collect();
                    let version = match versions.first() {
                        Some(&now) if version.is_multiple_of(2) => now,
                        _ => version,
                    };
                    Op::Load(key, ledger.versions[key][version].len())
                }
                7 => Op::Exists(key),
                8 | 9 => Op::Remove(key),
                10 => Op::Evict(key),
                _ => Op::Scan,
            });
        }
        if ops.iter().filter(|op| matches!(op, Op::Scan)).count() > 1 {
            ops.retain(|op| !matches!(op, Op::Scan));
            ops.push(Op::Scan);
        }
        self.run_mixed(&ops, plan)
    }

    fn run_mixed(&mut self, ops: &[Op], plan: FaultPlan) -> Checked {
        self.begin(plan, format!("together: {ops:?}"));
        let before = self.device.faults();
        let keys = self.ledger.borrow().keys.clone();
        let versions = self.ledger.borrow().versions.clone();
        let slices: Vec<[&[u8]; 1]> = ops
            .iter()
            .map(|op| match *op {
                Op::Store(key, version) => [versions[key][version].as_slice()],
                _ => [&[][..]],
            })
            .collect();
        let mut memory: Vec<Vec<u8>> = ops
            .iter()
            .map(|op| if let Op::Load(_, len) = op { vec![0xEE; *len] } else { Vec::new() })
            .collect();
        let operations: Vec<Mixed<'_>> = ops
            .iter()
            .zip(&slices)
            .zip(&mut memory)
            .map(|((op, slices), memory)| match *op {
                Op::Store(key, _) => Mixed::Store(ObjectToStore { key: &keys[key], slices }),
                Op::Load(key, _) => Mixed::Load(ObjectToLoad {
                    key: &keys[key],
                    destination: Destination::new(memory),
                }),
                Op::Exists(key) => Mixed::Exists(&keys[key]),
                Op::Remove(key) => Mixed::Remove(&keys[key]),
                Op::Evict(key) => Mixed::Evict(&keys[key]),
                Op::Scan => Mixed::Scan,
            })
            .collect();
        let done = self.backend.mixed(operations).map_err(|error| error.to_string())?;
        let touched: BTreeSet<usize> = ops.iter().filter_map(|op| key_of(*op)).collect();
        if ops.iter().any(|op| matches!(op, Op::Scan)) {
            self.unsettle_since(before, 0..keys.len());
        } else {
            self.unsettle_since(before, touched.iter().copied());
        }
        let calm = self.device.faults() == before;
        let mut ends = Vec::new();
        let mut outcome = Vec::new();
        for (position, done) in done {
            outcome.push(format!("{position}: {}", shown(&done)));
            let key = key_of(ops[position]).unwrap_or(0);
            let end = match done {
                Done::Stored(result) => result.map(|_| End::Ok),
                Done::Loaded(result) => result
                    .map(|()| End::Loaded(self.ledger.borrow().version_of(key, &memory[position]))),
                Done::Exists(result) | Done::Removed(result) | Done::Evicted(result) => {
                    result.map(End::Is)
                }
                Done::Scanned(result) => result.map(|found| {
                    if found.len() > keys.len() { End::Is(false) } else { End::Is(true) }
                }),
            };
            ends.push((ops[position], end.unwrap_or_else(End::Failed)));
        }
        let outcome = format!("-> {}", outcome.join("; "));
        if self.device.has_crashed() {
            let ledger = self.ledger.get_mut();
            for op in ops {
                match *op {
                    Op::Store(key, version) => ledger.objects[key].perhaps(Some(version)),
                    Op::Remove(key) | Op::Evict(key) => ledger.objects[key].perhaps(None),
                    Op::Load(..) | Op::Exists(_) | Op::Scan => {}
                }
            }
            return self.end(&outcome);
        }
        for (op, end) in &ends {
            if let (Some(key), End::Failed(error)) = (key_of(*op), end) {
                let object = &mut self.ledger.get_mut().objects[key];
                object.doubted = true;
                object.suspected |= matches!(op, Op::Load(..)) && tells_damage(error);
            }
        }
        let checked = touched.into_iter().try_for_each(|key| {
            let ends: Vec<&(Op, End)> =
                ends.iter().filter(|(op, _)| key_of(*op) == Some(key)).collect();
            self.explain(key, &ends, calm)
        });
        self.end(&outcome)?;
        checked
    }

    /// Finds every order that explains the ends, and what the key may be after it.
    fn explain(&mut self, key: usize, ends: &[&(Op, End)], calm: bool) -> Checked {
        let ledger = self.ledger.get_mut();
        let sizes: Vec<usize> = ledger.versions[key].iter().map(Vec::len).collect();
        let object = &ledger.objects[key];
        if object.damaged || object.suspected || ledger.junk[key] {
            // What damage does to each of them is checked one by one elsewhere.
            let object = &mut ledger.objects[key];
            for (op, end) in ends {
                if matches!(op, Op::Store(..)) {
                    object.reported = false;
                }
                match (*op, end) {
                    (Op::Store(_, version), End::Ok) => object.perhaps(Some(version)),
                    (Op::Store(_, version), End::Failed(error)) if either_version(error) => {
                        object.perhaps(Some(version));
                    }
                    (Op::Remove(_) | Op::Evict(_), _) => object.perhaps(None),
                    _ => {}
                }
            }
            return Ok(());
        }
        let failed_to_go = ends
            .iter()
            .any(|(op, end)| matches!((op, end), (Op::Remove(_) | Op::Evict(_), End::Failed(_))));
        let setting = Setting { sizes: &sizes, calm, unsettled: object.unsettled, failed_to_go };
        let mut finals = BTreeSet::new();
        let mut order: Vec<usize> = (0..ends.len()).collect();
        permutations(&mut order, 0, &mut |order| {
            let mut states: BTreeSet<State> = object.possible.clone();
            for &index in order {
                let (op, end) = ends[index];
                if setting.unsettled && matches!(op, Op::Load(..) | Op::Exists(_)) {
                    // What it may be can change between two reads.
                    if !states.iter().any(|state| !after(*state, *op, end, &setting).is_empty()) {
                        return;
                    }
                    continue;
                }
                states =
                    states.iter().flat_map(|state| after(*state, *op, end, &setting)).collect();
                if states.is_empty() {
                    return;
                }
            }
            finals.extend(states);
        });
        if finals.is_empty() {
            return Err(format!("{}, and no order explains {ends:?}", ledger.describe(key)));
        }
        ledger.objects[key].possible = finals;
        Ok(())
    }
}

fn key_of(op: Op) -> Option<usize> {
    match op {
        Op::Store(key, _)
        | Op::Load(key, _)
        | Op::Exists(key)
        | Op::Remove(key)
        | Op::Evict(key) => Some(key),
        Op::Scan => None,
    }
}

/// What else decides what an end means.
struct Setting<'s> {
    /// Of each version.
    sizes: &'s [usize],
    /// No fault was injected.
    calm: bool,
    unsettled: bool,
    /// A removal or eviction failed: for a while the key was hidden.
    failed_to_go: bool,
}

/// What a key may be after an operation that ended like this found it in `state`; nothing when it
/// cannot have ended like this.
fn after(state: State, op: Op, end: &End, setting: &Setting<'_>) -> Vec<State> {
    let Setting { sizes, calm, unsettled, failed_to_go } = *setting;
    let only_if = |possible: bool| if possible { vec![state] } else { Vec::new() };
    match (op, end) {
        (Op::Store(_, version), End::Ok) => vec![Some(version)],
        (Op::Store(_, version), End::Failed(error)) if either_version(error) => {
            vec![state, Some(version)]
        }
        (Op::Store(..), End::Failed(error)) => {
            let refused =
                matches!(error.code(), ErrorCode::InvalidRead | ErrorCode::KeysUltraLimit);
            only_if(!calm || refused)
        }
        (Op::Load(..), End::Loaded(versions)) => {
            only_if(state.is_some_and(|version| versions.contains(&version)))
        }
        (Op::Load(_, len), End::Failed(error)) => {
            if error.code() == ErrorCode::ObjectNotFound {
                only_if(state.is_none() || failed_to_go)
            } else if other_size(error) {
                only_if(state.is_some_and(|version| sizes[version] != len))
            } else {
                only_if(!calm)
            }
        }
        (Op::Exists(_), End::Is(there)) => {
            only_if(state.is_some() == *there || (!there && failed_to_go))
        }
        (Op::Remove(_), End::Is(there)) => {
            if state.is_some() == *there {
                vec![None]
            } else {
                Vec::new()
            }
        }
        (Op::Remove(_), End::Failed(error)) => {
            let waits = error.code() == ErrorCode::InvalidRead && unsettled;
            if calm && !waits { Vec::new() } else { vec![state, None] }
        }
        (Op::Evict(_), End::Is(true)) => vec![None],
        (Op::Evict(_), End::Is(false)) => vec![state],
        (Op::Evict(_), End::Failed(_)) => {
            if calm {
                Vec::new()
            } else {
                vec![state, None]
            }
        }
        (Op::Exists(_), End::Failed(_)) => only_if(!calm),
        _ => Vec::new(),
    }
}

fn permutations(order: &mut [usize], from: usize, visit: &mut dyn FnMut(&[usize])) {
    if from == order.len() {
        return visit(order);
    }
    for other in from..order.len() {
        order.swap(from, other);
        permutations(order, from + 1, visit);
        order.swap(from, other);
    }
}

fn shown(done: &Done) -> String {
    let yes = |result: &mooncake_nvme_kv::Result<bool>| match result {
        Ok(yes) => yes.to_string(),
        Err(error) => error.to_string(),
    };
    match done {
        Done::Stored(Ok(stored)) if stored.already => "already".to_string(),
        Done::Stored(Ok(_)) | Done::Loaded(Ok(())) => "ok".to_string(),
        Done::Stored(Err(error)) | Done::Loaded(Err(error)) => error.to_string(),
        Done::Exists(result) | Done::Removed(result) | Done::Evicted(result) => yes(result),
        Done::Scanned(Ok(found)) => format!("{} objects", found.len()),
        Done::Scanned(Err(error)) => error.to_string(),
    }
}
