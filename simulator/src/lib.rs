//! A seeded, deterministic simulation of the backend.
//!
//! One seed makes one run: a device with some personality, a backend on virtual time and a single
//! thread, and a schedule of offloads, loads, removals, evictions, scans, sweeps, crashes and
//! faults of every kind that docs/faults.md lists. After every step, what the backend said is
//! compared with a ledger of what it may say; now and then everything settles, and backend, device
//! and ledger are compared in full.

mod device;
mod lifecycle;
mod load;
mod mixed;
mod model;
mod offload;
mod random;
mod settle;
mod survey;
mod world;

use device::{FaultPlan, Lies};
use random::Random;
use world::{Checked, World};

pub use device::Faults;

/// Steps of one run.
const STEPS: u64 = 40;

/// What runs did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Seeds that ran.
    pub seeds: u64,
    /// Steps: calls of the backend, and what happened to its device meanwhile.
    pub operations: u64,
    /// Commands sent to devices.
    pub commands: u64,
    /// Faults, by kind.
    pub faults: Faults,
    /// Processes that died between two commands.
    pub crashes: u64,
}

impl Totals {
    /// Adds those of another run.
    pub fn add(&mut self, other: &Totals) {
        self.seeds += other.seeds;
        self.operations += other.operations;
        self.commands += other.commands;
        self.faults.add(other.faults);
        self.crashes += other.crashes;
    }
}

impl std::fmt::Display for Totals {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Totals { seeds, operations, commands, faults, crashes } = self;
        write!(
            f,
            "{seeds} seeds, {operations} operations, {commands} commands, {} faults ({} without \
             an answer, {} executed late, {} refused, {} damaged), {crashes} crashes",
            faults.total(),
            faults.unanswered,
            faults.late,
            faults.refused,
            faults.damaged
        )
    }
}

/// A run that broke a rule.
#[derive(Clone, Debug)]
pub struct Violation {
    /// Repeats it.
    pub seed: u64,
    /// The step that broke the rule, counted from 0.
    pub step: u64,
    /// What does not agree.
    pub what: String,
    /// What happened until then, one line each.
    pub trace: Vec<String>,
}

impl std::fmt::Display for Violation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for line in &self.trace {
            writeln!(f, "{line}")?;
        }
        write!(f, "violation: seed {}, step {}: {}", self.seed, self.step, self.what)
    }
}

impl std::error::Error for Violation {}

/// Keeps the backend's log lines, of which faults cause many, off standard error.
pub fn silence() {
    mooncake_nvme_kv::log::set_sink(Some(Box::new(|_, _| {})));
}

/// Runs one seed.
///
/// # Errors
/// The first violation of a rule.
pub fn simulate(seed: u64) -> Result<Totals, Box<Violation>> {
    let violation = |step, what, trace| Box::new(Violation { seed, step, what, trace });
    let mut world = World::new(seed).map_err(|what| violation(0, what, Vec::new()))?;
    let mut result = Ok(());
    for step in 0..STEPS {
        result = step_of(&mut world, step + 1 == STEPS);
        if result.is_err() {
            break;
        }
    }
    let step = world.operations.saturating_sub(1);
    result.map_err(|what| violation(step, what, std::mem::take(&mut world.trace)))?;
    Ok(Totals {
        seeds: 1,
        operations: world.operations,
        commands: world.device.commands(),
        faults: world.device.faults(),
        crashes: world.crashes,
    })
}

fn step_of(world: &mut World, last: bool) -> Checked {
    if last {
        return world.agree();
    }
    let plan = plan(&mut world.random);
    match world.random.below(100) {
        0..26 => world.offload(plan),
        26..40 => {
            let often = world.random.one_in(3);
            world.load(FaultPlan { lies: if often { Lies::Often } else { plan.lies }, ..plan })
        }
        40..44 => world.exists(plan),
        44..51 => world.remove(plan),
        51..66 => world.mixed(plan),
        66..71 => world.evict(plan),
        71..77 => world.scan(plan),
        77..82 => world.sweep(plan),
        82 => world.remove_all(plan),
        83..88 => world.time(),
        88..90 => world.late(),
        90..92 => world.close_and_open(),
        92..94 => world.damage(),
        94..96 => world.junk(),
        _ => world.agree(),
    }
}

/// Half of the steps are calm.
fn plan(random: &mut Random) -> FaultPlan {
    let faults = random.one_in(2);
    FaultPlan {
        one_in: if faults { *random.pick(&[2, 4, 8, 16, 40]) } else { 0 },
        unanswered: random.one_in(2),
        refused: random.one_in(3),
        lies: if random.one_in(3) { Lies::Once } else { Lies::Never },
        crash_after: random.one_in(12).then(|| {
            let most = *random.pick(&[3, 10, 60]);
            random.below(most)
        }),
    }
}
