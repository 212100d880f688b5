//! The device under simulation: an emulated namespace whose commands take virtual time, fail by
//! plan, and stop for ever when the process crashes.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use mooncake_nvme_kv::device::fault::Kind;
use mooncake_nvme_kv::device::{
    BufferPool, Capabilities, CommandError, Completion, Executor, Operation, Request, Stream,
};
use nvme_kv_command_set::{IdentifyKvNamespace, Key, Opcode, PhysicalKey, Status, Wire};
use nvme_kv_emulator::{Effect, Fault, Namespace, Trigger};

use crate::random::Random;

/// Virtual time, shared by the device and every backend opened on it.
#[derive(Clone, Debug, Default)]
pub(crate) struct VirtualTime(Arc<AtomicU64>);

impl VirtualTime {
    pub(crate) fn now(&self) -> Duration {
        Duration::from_micros(self.0.load(Ordering::Relaxed))
    }

    fn set(&self, now: Duration) {
        self.0.store(now.as_micros() as u64, Ordering::Relaxed);
    }
}

/// Which faults may happen during one step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct FaultPlan {
    /// A command is hit once in so many; 0: none is.
    pub(crate) one_in: u64,
    /// Commands that have no answer: executed, not executed, executed late.
    pub(crate) unanswered: bool,
    /// Commands that fail with a status or an errno.
    pub(crate) refused: bool,
    /// Retrieves that return damaged bytes or a wrong length.
    pub(crate) lies: Lies,
    /// The process dies before its so-manieth command.
    pub(crate) crash_after: Option<u64>,
}

/// How often a Retrieve may return what is not stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Lies {
    #[default]
    Never,
    /// At most once for each value. Only a load may end otherwise than without that.
    Once,
    Often,
}

/// What has happened, of each kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// Commands that failed with a status or an errno.
    pub refused: u64,
    /// Commands that were executed or lost without an answer.
    pub unanswered: u64,
    /// Commands without an answer that the device executed later.
    pub late: u64,
    /// Retrieves with damaged bytes or a wrong length.
    pub damaged: u64,
}

impl Faults {
    /// All of them.
    pub fn total(&self) -> u64 {
        self.refused + self.unanswered + self.late + self.damaged
    }

    /// Commands that failed: all but what was only read wrongly.
    pub(crate) fn failed(&self) -> u64 {
        self.total() - self.damaged
    }

    /// Adds those of another run.
    pub fn add(&mut self, other: Faults) {
        self.refused += other.refused;
        self.unanswered += other.unanswered;
        self.late += other.late;
        self.damaged += other.damaged;
    }
}

/// An executor over the namespace. It outlives every simulated process.
pub(crate) struct SimulatedDevice {
    inner: Arc<dyn Executor>,
    pub(crate) namespace: Arc<Namespace>,
    wire: Wire,
    pub(crate) time: VirtualTime,
    /// How long a command runs at most, and how long after that the device may still execute it.
    timeout: Duration,
    names: HashMap<Key, String>,
    state: Mutex<State>,
}

struct State {
    random: Random,
    plan: FaultPlan,
    /// No fault happens and no crash comes nearer.
    paused: bool,
    crashed: bool,
    /// Values that were read wrongly during this step.
    lied_about: HashSet<Key>,
    /// When the first of the commands that have not been executed yet must have been.
    late_until: Option<Duration>,
    commands: u64,
    faults: Faults,
    log: Vec<String>,
}

impl std::fmt::Debug for SimulatedDevice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SimulatedDevice").field("inner", &self.inner).finish_non_exhaustive()
    }
}

/// What is to be known of a command when it ends.
#[derive(Debug, Default)]
struct Sent {
    /// What the trace says of it, if anything.
    name: Option<String>,
    /// Its answer is lost, and waiting for it takes the command timeout.
    times_out: bool,
    /// The device executes it after it was given up.
    late: bool,
}

/// What becomes of a command.
enum Fate {
    /// The device gets it.
    Sent(Sent),
    /// It never reaches the device.
    Stopped(CommandError),
}

impl SimulatedDevice {
    /// `names` are what traces call the values of the namespace.
    pub(crate) fn new(
        inner: Arc<dyn Executor>,
        namespace: Arc<Namespace>,
        wire: Wire,
        timeout: Duration,
        names: HashMap<Key, String>,
        seed: u64,
    ) -> Arc<Self> {
        let state = State {
            random: Random::new(seed),
            plan: FaultPlan::default(),
            paused: false,
            crashed: false,
            lied_about: HashSet::new(),
            late_until: None,
            commands: 0,
            faults: Faults::default(),
            log: Vec::new(),
        };
        Arc::new(SimulatedDevice {
            inner,
            namespace,
            wire,
            time: VirtualTime::default(),
            timeout,
            names,
            state: Mutex::new(state),
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins a step; its faults follow `plan`.
    pub(crate) fn begin(&self, plan: FaultPlan) {
        let mut state = self.state();
        state.plan = plan;
        state.lied_about.clear();
    }

    /// Ends a step; returns what commands it sent, for the trace.
    pub(crate) fn end(&self) -> Vec<String> {
        self.namespace.clear_faults();
        let mut state = self.state();
        state.plan = FaultPlan::default();
        std::mem::take(&mut state.log)
    }

    /// Runs `action` without faults.
    pub(crate) fn calmly<R>(&self, action: impl FnOnce() -> R) -> R {
        let before = std::mem::replace(&mut self.state().paused, true);
        let result = action();
        self.state().paused = before;
        result
    }

    pub(crate) fn has_crashed(&self) -> bool {
        self.state().crashed
    }

    /// The next process starts: what the last one left in flight has been executed or never is.
    pub(crate) fn restart(&self) {
        self.release_late();
        self.state().crashed = false;
    }

    pub(crate) fn faults(&self) -> Faults {
        self.state().faults
    }

    pub(crate) fn commands(&self) -> u64 {
        self.state().commands
    }

    /// Lets time pass.
    pub(crate) fn pass(&self, time: Duration) {
        let mut state = self.state();
        self.pass_with(&mut state, time);
    }

    /// Lets so much time pass that the device has executed what it was sent before.
    pub(crate) fn settle(&self) {
        self.pass(self.timeout * 2 + Duration::from_secs(1));
    }

    /// The device executes what it has not executed yet.
    pub(crate) fn release_late(&self) -> usize {
        self.state().late_until = None;
        self.namespace.release_late()
    }

    fn pass_with(&self, state: &mut State, time: Duration) {
        let then = self.time.now() + time;
        if state.late_until.is_some_and(|until| until <= then) {
            state.late_until = None;
            self.namespace.release_late();
        }
        self.time.set(then);
    }

    fn name(&self, key: &PhysicalKey) -> String {
        let key = self.wire.device_key(key);
        self.names.get(&key).cloned().unwrap_or_else(|| format!("{key:?}"))
    }

    /// One more command. Draws what happens to it.
    fn judge(&self, kind: Option<Kind>, key: Option<&PhysicalKey>) -> Fate {
        let mut state = self.state();
        let state = &mut *state;
        if state.crashed {
            return Fate::Stopped(CommandError::Unanswered("crashed"));
        }
        state.commands += 1;
        let took = Duration::from_micros(state.random.between(10, 500));
        self.pass_with(state, took);
        if state.paused {
            return Fate::Sent(Sent::default());
        }
        let last = match &mut state.plan.crash_after {
            Some(0) => {
                state.crashed = true;
                state.log.push("crash".to_string());
                return Fate::Stopped(CommandError::Unanswered("crashed"));
            }
            Some(left) => {
                *left -= 1;
                *left == 0
            }
            None => false,
        };
        let plan = state.plan;
        // A search asks 64 slots: its commands are hit less often than those that change something.
        let asks = matches!(kind, Some(Kind::Exist | Kind::Retrieve));
        let spared = asks && plan.lies != Lies::Often && state.random.below(16) < 7;
        let hit = plan.one_in > 0 && state.random.one_in(plan.one_in) && !spared;
        // The last command before a crash may have no answer either.
        let lost_in_crash = last && state.random.one_in(2);
        if !hit && !lost_in_crash {
            return Fate::Sent(Sent::default());
        }
        let (Some(kind), Some(key)) = (kind, key) else { return self.judge_list(state) };
        let reads = matches!(kind, Kind::Retrieve | Kind::Exist);
        let mut effects = Vec::new();
        if plan.unanswered || last {
            effects.push(Effect::NotExecutedNoAnswer);
            effects.push(Effect::ExecutedNoAnswer);
            if !reads {
                let after = *state.random.pick(&[0, 1, 2, 5, 20, 200, u64::MAX, u64::MAX]);
                effects.extend([Effect::LateNoAnswer { after }; 3]);
            }
        }
        if plan.refused {
            effects.push(Effect::Status(*state.random.pick(&[
                Status::INTERNAL,
                Status::NAMESPACE_NOT_READY,
                Status::UNRECOVERED_ERROR,
                Status::HOST_PATHING_ERROR,
                Status::WRITE_FAULT,
            ])));
            effects.push(Effect::Errno(*state.random.pick(&[libc::EIO, libc::ENOMEM])));
            if kind == Kind::Store {
                effects.push(Effect::Status(Status::CAPACITY_EXCEEDED));
            }
        }
        let may_lie = match plan.lies {
            Lies::Never => false,
            Lies::Once => !state.lied_about.contains(&self.wire.device_key(key)),
            Lies::Often => true,
        };
        if may_lie && kind == Kind::Retrieve {
            let xor = 1 << state.random.below(8);
            let offset = *state.random.pick(&[0, 3, 5, 9, 20, 50, 55, 60, 80, 90, 100, 400]);
            effects.push(Effect::Damage { offset, xor });
            effects.push(Effect::WrongLength(*state.random.pick(&[1, 55, 100])));
        }
        if effects.is_empty() {
            return Fate::Sent(Sent::default());
        }
        let effect = *state.random.pick(&effects);
        let late = matches!(effect, Effect::LateNoAnswer { .. });
        // A timeout takes its time; a lost connection takes none.
        let times_out = state.random.one_in(2);
        match effect {
            Effect::Damage { .. } | Effect::WrongLength(_) => {
                state.faults.damaged += 1;
                state.lied_about.insert(self.wire.device_key(key));
            }
            Effect::LateNoAnswer { .. } => {
                state.faults.late += 1;
            }
            Effect::NotExecutedNoAnswer | Effect::ExecutedNoAnswer => {
                state.faults.unanswered += 1;
            }
            _ => state.faults.refused += 1,
        }
        state.log.push(format!("fault: {kind:?} {}: {effect:?}", self.name(key)));
        let kind = match kind {
            Kind::Store => Opcode::Store,
            Kind::Retrieve => Opcode::Retrieve,
            Kind::Delete => Opcode::Delete,
            Kind::Exist => Opcode::Exist,
        };
        let on = Trigger { kind: Some(kind), nth: 1, key: Some(self.wire.device_key(key)) };
        self.namespace.script(Fault { on, effect });
        Fate::Sent(Sent { times_out, late, name: None })
    }

    fn judge_list(&self, state: &mut State) -> Fate {
        if state.plan.unanswered {
            state.faults.unanswered += 1;
            state.log.push("fault: List without an answer".to_string());
            return Fate::Stopped(CommandError::Unanswered("timeout"));
        }
        if state.plan.refused {
            state.faults.refused += 1;
            state.log.push("fault: List refused".to_string());
            return Fate::Stopped(CommandError::Status(Status::INTERNAL));
        }
        Fate::Sent(Sent::default())
    }

    /// Notes a command that changes the device, and the time that waiting for a lost answer took.
    fn ended(&self, sent: &Sent, result: &Result<(), CommandError>) {
        let mut state = self.state();
        let state = &mut *state;
        if let Some(name) = &sent.name {
            let end = match result {
                Ok(()) => "ok".to_string(),
                Err(error) => error.to_string(),
            };
            state.log.push(format!("{name}: {end}"));
        }
        let lost = result.as_ref().is_err_and(|error| error.outcome_unknown());
        if lost && sent.times_out && !state.crashed {
            let timeout = self.timeout;
            self.pass_with(state, timeout);
        }
        if sent.late {
            // Given up now, it may be executed for the same time again.
            let until = self.time.now() + self.timeout;
            state.late_until.get_or_insert(until);
        }
    }
}

struct Wrapped<'s, 'a> {
    device: &'s SimulatedDevice,
    inner: &'s mut dyn Stream<'a>,
    /// Commands in flight, by tag.
    flying: HashMap<u64, Sent>,
}

fn kind_of(operation: &Operation<'_>) -> (Kind, PhysicalKey) {
    match operation {
        Operation::Store { key, .. } => (Kind::Store, *key),
        Operation::Retrieve { key, .. } | Operation::RetrieveInto { key, .. } => {
            (Kind::Retrieve, *key)
        }
        Operation::Delete { key } => (Kind::Delete, *key),
        Operation::Exist { key } => (Kind::Exist, *key),
    }
}

impl<'a> Stream<'a> for Wrapped<'_, 'a> {
    fn next(&mut self) -> Option<Request<'a>> {
        loop {
            let request = self.inner.next()?;
            let (kind, key) = kind_of(&request.operation);
            match self.device.judge(Some(kind), Some(&key)) {
                Fate::Sent(sent) => {
                    let changes = matches!(kind, Kind::Store | Kind::Delete);
                    let name = changes.then(|| format!("{kind:?} {}", self.device.name(&key)));
                    self.flying.insert(request.tag, Sent { name, ..sent });
                    return Some(request);
                }
                Fate::Stopped(error) => {
                    let buffer = match request.operation {
                        Operation::Retrieve { buffer, .. } => Some(buffer),
                        _ => None,
                    };
                    let tag = request.tag;
                    self.inner.complete(Completion { tag, result: Err(error), buffer });
                }
            }
        }
    }

    fn complete(&mut self, completion: Completion) {
        let sent = self.flying.remove(&completion.tag).unwrap_or_default();
        let result = completion.result.as_ref().map(|_| ()).map_err(CommandError::clone);
        self.device.ended(&sent, &result);
        // A dead process learns nothing.
        let completion = if self.device.has_crashed() {
            Completion { result: Err(CommandError::Unanswered("crashed")), ..completion }
        } else {
            completion
        };
        self.inner.complete(completion);
    }
}

impl Executor for SimulatedDevice {
    fn capabilities(&self) -> &Capabilities {
        self.inner.capabilities()
    }

    fn buffers(&self) -> &BufferPool {
        self.inner.buffers()
    }

    fn execute<'a>(&self, stream: &mut dyn Stream<'a>) {
        let mut wrapped = Wrapped { device: self, inner: stream, flying: HashMap::new() };
        self.inner.execute(&mut wrapped);
    }

    fn list(&self, start: Option<&Key>, page: &mut [u8]) -> Result<(), CommandError> {
        match self.judge(None, None) {
            Fate::Sent(_) => self.inner.list(start, page),
            Fate::Stopped(error) => Err(error),
        }
    }

    fn identify(&self) -> Result<IdentifyKvNamespace, CommandError> {
        self.inner.identify()
    }
}
