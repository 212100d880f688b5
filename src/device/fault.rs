//! A decorator that counts commands and makes some of them fail on this side of the device.
//!
//! Faults of the device itself (late execution, wrong lengths, damaged bytes) are scripted in
//! the emulator. Here belongs what happens to the host: a command that is never submitted, a
//! process that has died and submits nothing more, a step that is held until a test lets it go.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};

use nvme_kv_command_set::{IdentifyKvNamespace, Key, PhysicalKey};

use super::executor::{Capabilities, Completion, Executor, Operation, Request, Stream};
use super::{BufferPool, CommandError, Statistics};

/// The kinds of command that are counted and can be made to fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Store.
    Store,
    /// Retrieve, into a buffer or into the caller's memory.
    Retrieve,
    /// Delete.
    Delete,
    /// Exist.
    Exist,
}

impl Kind {
    fn of(operation: &Operation<'_>) -> (Kind, PhysicalKey) {
        match operation {
            Operation::Store { key, .. } => (Kind::Store, *key),
            Operation::Retrieve { key, .. } | Operation::RetrieveInto { key, .. } => {
                (Kind::Retrieve, *key)
            }
            Operation::Delete { key } => (Kind::Delete, *key),
            Operation::Exist { key } => (Kind::Exist, *key),
        }
    }
}

/// What happens to a command before it is submitted.
#[derive(Clone, Debug)]
pub enum Effect {
    /// It is submitted.
    Pass,
    /// It fails with this error and never reaches the device.
    Fail(CommandError),
    /// It waits until the hold point is released, then is submitted.
    Hold(Arc<HoldPoint>),
}

/// A step that waits: the test sees it arrive and lets it go.
#[derive(Debug, Default)]
pub struct HoldPoint {
    state: Mutex<HoldState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct HoldState {
    arrived: bool,
    released: bool,
}

impl HoldPoint {
    /// A hold point nobody has reached.
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    /// Blocks until a command has arrived here.
    pub fn wait_for_arrival(&self) {
        let state = self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        drop(self.changed.wait_while(state, |state| !state.arrived));
    }

    /// Lets the command, and all that come later, go on.
    pub fn release(&self) {
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).released = true;
        self.changed.notify_all();
    }

    fn pass(&self) {
        let mut state = self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        state.arrived = true;
        self.changed.notify_all();
        drop(self.changed.wait_while(state, |state| !state.released));
    }
}

/// Commands seen so far, by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Stores.
    pub store: u64,
    /// Retrieves.
    pub retrieve: u64,
    /// Deletes.
    pub delete: u64,
    /// Exists.
    pub exist: u64,
}

impl Counts {
    /// All of them.
    pub fn total(&self) -> u64 {
        self.store + self.retrieve + self.delete + self.exist
    }
}

type Rule = Box<dyn FnMut(Kind, PhysicalKey) -> Effect + Send>;

/// Counts every command and asks a rule what happens to it.
pub struct FaultExecutor {
    inner: Arc<dyn Executor>,
    rule: Mutex<Option<Rule>>,
    counts: [AtomicU64; 4],
}

impl std::fmt::Debug for FaultExecutor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FaultExecutor").field("inner", &self.inner).finish_non_exhaustive()
    }
}

impl FaultExecutor {
    /// Decorates `inner`; until a rule is set every command passes.
    pub fn new(inner: Arc<dyn Executor>) -> Arc<Self> {
        Arc::new(FaultExecutor { inner, rule: Mutex::new(None), counts: Default::default() })
    }

    /// Asks `rule` about every later command, in the order of submission.
    pub fn set_rule(&self, rule: impl FnMut(Kind, PhysicalKey) -> Effect + Send + 'static) {
        *self.rule.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = Some(Box::new(rule));
    }

    /// Lets every later command pass.
    pub fn clear_rule(&self) {
        *self.rule.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = None;
    }

    /// The process dies after `commands` further commands: nothing later reaches the device.
    pub fn crash_after(&self, commands: u64) {
        let mut left = commands;
        self.set_rule(move |_, _| {
            if left == 0 {
                return Effect::Fail(CommandError::Unanswered("crashed"));
            }
            left -= 1;
            Effect::Pass
        });
    }

    /// Commands seen since the last call of [`FaultExecutor::take_counts`].
    pub fn counts(&self) -> Counts {
        let [store, retrieve, delete, exist] =
            self.counts.each_ref().map(|count| count.load(Ordering::Relaxed));
        Counts { store, retrieve, delete, exist }
    }

    /// Reads the counts and starts again at 0.
    pub fn take_counts(&self) -> Counts {
        let [store, retrieve, delete, exist] =
            self.counts.each_ref().map(|count| count.swap(0, Ordering::Relaxed));
        Counts { store, retrieve, delete, exist }
    }

    fn judge(&self, operation: &Operation<'_>) -> Effect {
        let (kind, key) = Kind::of(operation);
        self.counts[kind as usize].fetch_add(1, Ordering::Relaxed);
        match &mut *self.rule.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) {
            Some(rule) => rule(kind, key),
            None => Effect::Pass,
        }
    }
}

struct Faulty<'s, 'a> {
    executor: &'s FaultExecutor,
    inner: &'s mut dyn Stream<'a>,
}

impl<'a> Stream<'a> for Faulty<'_, 'a> {
    fn next(&mut self) -> Option<Request<'a>> {
        loop {
            let request = self.inner.next()?;
            match self.executor.judge(&request.operation) {
                Effect::Pass => return Some(request),
                Effect::Hold(point) => {
                    point.pass();
                    return Some(request);
                }
                Effect::Fail(error) => {
                    let buffer = match request.operation {
                        Operation::Retrieve { buffer, .. } => Some(buffer),
                        _ => None,
                    };
                    self.inner.complete(Completion {
                        tag: request.tag,
                        result: Err(error),
                        buffer,
                    });
                }
            }
        }
    }

    fn complete(&mut self, completion: Completion) {
        self.inner.complete(completion);
    }
}

impl Executor for FaultExecutor {
    fn capabilities(&self) -> &Capabilities {
        self.inner.capabilities()
    }

    fn buffers(&self) -> &BufferPool {
        self.inner.buffers()
    }

    fn execute<'a>(&self, stream: &mut dyn Stream<'a>) {
        self.inner.execute(&mut Faulty { executor: self, inner: stream });
    }

    fn list(&self, start: Option<&Key>, page: &mut [u8]) -> Result<(), CommandError> {
        self.inner.list(start, page)
    }

    fn identify(&self) -> Result<IdentifyKvNamespace, CommandError> {
        self.inner.identify()
    }

    fn statistics(&self) -> Statistics {
        self.inner.statistics()
    }

    unsafe fn register_memory(&self, start: *mut u8, len: usize) -> crate::error::Result<()> {
        // SAFETY: the caller's promise is the same.
        unsafe { self.inner.register_memory(start, len) }
    }

    fn unregister_memory(&self, start: *mut u8) {
        self.inner.unregister_memory(start);
    }
}
