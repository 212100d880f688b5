//! A lane: one thread that drives many object operations over one executor stream.
//!
//! Each operation is a future, so that the rules of one key read from top to bottom. What it
//! awaits is either a device command (completed by the executor on the lane's own thread) or a
//! key held by someone else (woken from any thread). The lane is the executor's [`Stream`]: when
//! asked for a request it polls operations until one is ready, starting new operations as long as
//! fewer than its limit are under way. A lane never blocks while it has anything to do, and one
//! that has nothing waits for a wake-up.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

use super::sync::{Condvar, Mutex};
use crate::device::{Completion, Executor, Operation, Request, Stream};

/// Operations of one lane under way at most, whatever the queue depth.
pub(super) const OPERATIONS_PER_LANE: usize = 256;

/// An operation on one object.
pub(super) type Task<'f> = Pin<Box<dyn Future<Output = ()> + 'f>>;

/// Commands of one lane: submitted ones wait in the outbox, running ones in the slots.
pub(super) struct Lane<'a> {
    outbox: RefCell<VecDeque<Request<'a>>>,
    running: RefCell<Running>,
    /// Data bytes of the commands that the executor has, and how many they may be.
    staged: Cell<usize>,
    staging: usize,
}

#[derive(Default)]
struct Running {
    slots: Vec<Option<Awaited>>,
    free: Vec<usize>,
}

/// A command whose completion has not arrived.
struct Awaited {
    mailbox: Rc<Mailbox>,
    id: u64,
    /// Of data, counted in [`Lane::staged`] once the executor has the command.
    bytes: usize,
}

/// Where the completions of one [`Commands`] arrive.
#[derive(Default)]
struct Mailbox {
    done: RefCell<VecDeque<(u64, Completion)>>,
    waker: RefCell<Option<Waker>>,
}

impl<'a> Lane<'a> {
    /// A lane whose commands in flight carry as much data as the queue takes.
    pub(super) fn new() -> Self {
        Lane::with_staging(usize::MAX)
    }

    /// A lane whose commands in flight carry at most `staging` bytes of data, or are one.
    pub(super) fn with_staging(staging: usize) -> Self {
        let (outbox, running) = Default::default();
        Lane { outbox, running, staged: Cell::new(0), staging }
    }

    /// A new set of commands.
    pub(super) fn commands(&self) -> Commands<'_, 'a> {
        Commands { lane: self, mailbox: Rc::default(), running: 0 }
    }

    /// Runs one command.
    pub(super) async fn run(&self, operation: Operation<'a>) -> Completion {
        let mut commands = self.commands();
        commands.submit(0, operation);
        loop {
            if let Some((_, completion)) = commands.next().await {
                return completion;
            }
        }
    }

    /// Lets commands that are ready be submitted before going on.
    pub(super) async fn yield_now(&self) {
        let mut yielded = false;
        poll_fn(|context| {
            if std::mem::replace(&mut yielded, true) {
                return Poll::Ready(());
            }
            context.waker().wake_by_ref();
            Poll::Pending
        })
        .await
    }

    /// The next command for the executor.
    fn take(&self) -> Taken<'a> {
        let mut outbox = self.outbox.borrow_mut();
        let Some(first) = outbox.front() else { return Taken::Empty };
        let bytes = data_bytes(&first.operation);
        let staged = self.staged.get();
        if staged > 0 && bytes > self.staging.saturating_sub(staged) {
            return Taken::Later;
        }
        self.staged.set(staged + bytes);
        outbox.pop_front().map_or(Taken::Empty, Taken::Request)
    }

    fn complete(&self, completion: Completion) {
        let slot = completion.tag as usize;
        let arrived = {
            let mut running = self.running.borrow_mut();
            let arrived = running.slots.get_mut(slot).and_then(Option::take);
            if arrived.is_some() {
                running.free.push(slot);
            }
            arrived
        };
        if let Some(Awaited { mailbox, id, bytes }) = arrived {
            self.staged.set(self.staged.get() - bytes);
            mailbox.done.borrow_mut().push_back((id, completion));
            if let Some(waker) = mailbox.waker.borrow_mut().take() {
                waker.wake();
            }
        }
    }
}

enum Taken<'a> {
    Request(Request<'a>),
    /// Not before data in flight has arrived.
    Later,
    Empty,
}

/// Bytes that an executor may have to copy for a command.
fn data_bytes(operation: &Operation<'_>) -> usize {
    match operation {
        Operation::Store { value, .. } => value.len() as usize,
        Operation::Retrieve { buffer, .. } => buffer.len(),
        Operation::RetrieveInto { len, .. } => *len as usize,
        Operation::Delete { .. } | Operation::Exist { .. } => 0,
    }
}

/// Commands of one operation that are in flight together.
pub(super) struct Commands<'l, 'a> {
    lane: &'l Lane<'a>,
    mailbox: Rc<Mailbox>,
    running: usize,
}

impl<'a> Commands<'_, 'a> {
    /// Hands a command to the executor; `id` comes back with its completion.
    pub(super) fn submit(&mut self, id: u64, operation: Operation<'a>) {
        let slot = {
            let mut running = self.lane.running.borrow_mut();
            let slot = running.free.pop().unwrap_or_else(|| {
                running.slots.push(None);
                running.slots.len() - 1
            });
            let bytes = data_bytes(&operation);
            running.slots[slot] = Some(Awaited { mailbox: Rc::clone(&self.mailbox), id, bytes });
            slot
        };
        self.running += 1;
        self.lane.outbox.borrow_mut().push_back(Request { tag: slot as u64, operation });
    }

    /// A completion that has arrived already.
    pub(super) fn try_next(&mut self) -> Option<(u64, Completion)> {
        let arrived = self.mailbox.done.borrow_mut().pop_front();
        self.running -= usize::from(arrived.is_some());
        arrived
    }

    /// The next completion, in order of arrival; `None` when nothing is in flight.
    pub(super) async fn next(&mut self) -> Option<(u64, Completion)> {
        if self.running == 0 {
            return None;
        }
        let arrived = poll_fn(|context| {
            if let Some(arrived) = self.mailbox.done.borrow_mut().pop_front() {
                return Poll::Ready(arrived);
            }
            *self.mailbox.waker.borrow_mut() = Some(context.waker().clone());
            Poll::Pending
        })
        .await;
        self.running -= 1;
        Some(arrived)
    }
}

/// Runs two futures together.
pub(super) async fn both<A: Future, B: Future>(a: A, b: B) -> (A::Output, B::Output) {
    let (mut a, mut b) = (pin!(a), pin!(b));
    let (mut a_done, mut b_done) = (None, None);
    poll_fn(|context| {
        if a_done.is_none()
            && let Poll::Ready(output) = a.as_mut().poll(context)
        {
            a_done = Some(output);
        }
        if b_done.is_none()
            && let Poll::Ready(output) = b.as_mut().poll(context)
        {
            b_done = Some(output);
        }
        match (a_done.take(), b_done.take()) {
            (Some(a), Some(b)) => Poll::Ready((a, b)),
            (a, b) => {
                (a_done, b_done) = (a, b);
                Poll::Pending
            }
        }
    })
    .await
}

/// Does `operation` with every item, many at a time, on the calling thread. The results come in
/// the order in which the operations end.
pub(super) fn each<'a, T, R>(
    executor: &dyn Executor,
    items: impl IntoIterator<Item = T>,
    operation: impl AsyncFn(&Lane<'a>, T) -> R,
) -> Vec<R> {
    let lane = Lane::new();
    let results = RefCell::new(Vec::new());
    let mut items = items.into_iter();
    let depth = executor.capabilities().queue_depth.max(1) as usize;
    drive(executor, &lane, depth.min(OPERATIONS_PER_LANE), &mut || -> Option<Task<'_>> {
        let item = items.next()?;
        let (lane, results, operation) = (&lane, &results, &operation);
        Some(Box::pin(async move {
            let result = operation(lane, item).await;
            results.borrow_mut().push(result);
        }))
    });
    results.take()
}

/// Drives the operations that `source` yields, at most `limit` at a time, until all are done.
pub(super) fn drive<'f, 'a: 'f>(
    executor: &dyn Executor,
    lane: &'f Lane<'a>,
    limit: usize,
    source: &mut dyn FnMut() -> Option<Task<'f>>,
) {
    let ready = Arc::new(ReadyQueue::default());
    let mut driver = Driver {
        lane,
        limit,
        source,
        exhausted: false,
        tasks: Vec::new(),
        free: Vec::new(),
        active: 0,
        ready,
    };
    loop {
        executor.execute(&mut driver);
        if driver.exhausted && driver.active == 0 {
            return;
        }
        driver.ready.wait();
    }
}

struct Driver<'d, 'f, 'a> {
    lane: &'f Lane<'a>,
    limit: usize,
    source: &'d mut dyn FnMut() -> Option<Task<'f>>,
    exhausted: bool,
    tasks: Vec<Option<(Task<'f>, Waker)>>,
    free: Vec<usize>,
    active: usize,
    ready: Arc<ReadyQueue>,
}

impl Driver<'_, '_, '_> {
    /// Starts one more operation; false when there is none or enough are under way.
    fn start(&mut self) -> bool {
        if self.exhausted || self.active >= self.limit {
            return false;
        }
        let Some(task) = (self.source)() else {
            self.exhausted = true;
            return false;
        };
        let slot = self.free.pop().unwrap_or_else(|| {
            self.tasks.push(None);
            self.tasks.len() - 1
        });
        let waker = Waker::from(Arc::new(TaskWaker { slot, ready: Arc::clone(&self.ready) }));
        self.tasks[slot] = Some((task, waker));
        self.active += 1;
        self.poll(slot);
        true
    }

    fn poll(&mut self, slot: usize) {
        let Some(Some((task, waker))) = self.tasks.get_mut(slot) else { return };
        if task.as_mut().poll(&mut Context::from_waker(waker)).is_ready() {
            self.tasks[slot] = None;
            self.free.push(slot);
            self.active -= 1;
        }
    }
}

impl<'a> Stream<'a> for Driver<'_, '_, 'a> {
    fn next(&mut self) -> Option<Request<'a>> {
        loop {
            match self.lane.take() {
                Taken::Request(request) => return Some(request),
                Taken::Later => return None,
                Taken::Empty => {}
            }
            if let Some(slot) = self.ready.pop() {
                self.poll(slot);
            } else if !self.start() {
                return None;
            }
        }
    }

    fn complete(&mut self, completion: Completion) {
        self.lane.complete(completion);
    }
}

/// Operations that can go on, from any thread.
#[derive(Default)]
struct ReadyQueue {
    slots: Mutex<VecDeque<usize>>,
    arrived: Condvar,
}

impl ReadyQueue {
    fn pop(&self) -> Option<usize> {
        self.slots.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).pop_front()
    }

    fn wait(&self) {
        let slots = self.slots.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        drop(self.arrived.wait_while(slots, |slots| slots.is_empty()));
    }
}

/// Wakes one operation. A wake-up for an operation that has ended polls whoever has its place
/// now, which is harmless.
struct TaskWaker {
    slot: usize,
    ready: Arc<ReadyQueue>,
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.ready
            .slots
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner())
            .push_back(self.slot);
        self.ready.arrived.notify_one();
    }
}
