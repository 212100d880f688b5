//! The ioctl transport: every command is a blocking system call, many at once in a bounded set of
//! threads. Works where io_uring passthrough does not.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

use nvme_kv_command_set::{IdentifyKvNamespace, Key, PassthroughCommand, Wire};

use super::executor::{Capabilities, Executor, Stream};
use super::flight::{self, Rules, Tokens, Verdict};
use super::node::{Node, OpenNode, sys};
use super::queue::{Addressing, Queue, RawCompletion, Refused};
use super::statistics::{Counters, Statistics};
use super::workers::{Device, Job, Workers};
use super::{BufferPool, CommandError};

/// Threads at most: more than the cores of most drives' hosts can keep busy, few enough to own.
const MAX_WORKERS: usize = 32;

/// Executes commands through NVME_IOCTL_IO_CMD.
#[derive(Debug)]
pub struct IoctlExecutor {
    node: Arc<Node>,
    wire: Wire,
    capabilities: Capabilities,
    max_transfer: usize,
    buffers: BufferPool,
    counters: Arc<Counters>,
    workers: Workers,
}

impl IoctlExecutor {
    /// An executor for `node`. Threads are started with the first batch.
    pub(super) fn new(
        node: Arc<Node>,
        wire: Wire,
        capabilities: Capabilities,
        max_transfer: usize,
        buffers: BufferPool,
    ) -> Self {
        let workers = Workers::new(MAX_WORKERS.min(capabilities.queue_depth as usize));
        let counters = Arc::default();
        IoctlExecutor { node, wire, capabilities, max_transfer, buffers, counters, workers }
    }

    /// Calls `body` with a queue and the rules of one call.
    fn with_queue<T>(&self, body: impl FnOnce(&Rules<'_>, &mut Jobs<'_>) -> T) -> T {
        let judge = |error, _: Addressing| Verdict::Fail(self.node.judge(error));
        let rules = Rules {
            wire: &self.wire,
            max_transfer: self.max_transfer,
            buffers: &self.buffers,
            counters: &self.counters,
            judge: &judge,
        };
        let device =
            IoctlDevice { open: self.node.current(), counters: Arc::clone(&self.counters) };
        body(&rules, &mut Jobs::new(&self.workers, Arc::new(device)))
    }
}

struct IoctlDevice {
    open: Arc<OpenNode>,
    counters: Arc<Counters>,
}

impl Device for IoctlDevice {
    unsafe fn execute(&self, command: &PassthroughCommand) -> (i32, u32) {
        self.counters.enters.add(1);
        // SAFETY: the caller's promise is the same.
        unsafe { sys::io(self.open.as_fd(), command) }
    }
}

/// A [`Queue`] over the workers. Each has a channel of its own, so that the end of a command
/// reaches the call it belongs to and no other.
pub(super) struct Jobs<'w> {
    workers: &'w Workers,
    device: Arc<dyn Device>,
    staged: Vec<Job>,
    sender: Sender<RawCompletion>,
    receiver: Receiver<RawCompletion>,
    /// Received and not popped.
    ended: Vec<RawCompletion>,
    running: usize,
}

impl<'w> Jobs<'w> {
    pub(super) fn new(workers: &'w Workers, device: Arc<dyn Device>) -> Self {
        let (sender, receiver) = channel();
        let (staged, ended) = (Vec::new(), Vec::new());
        Jobs { workers, device, staged, sender, receiver, ended, running: 0 }
    }
}

impl Queue for Jobs<'_> {
    fn depth(&self) -> usize {
        self.workers.most()
    }

    fn takes_segments(&self) -> bool {
        false
    }

    fn region(&self, _address: u64, _len: u32) -> Option<u16> {
        None
    }

    unsafe fn push(&mut self, token: u64, command: &PassthroughCommand, _: Addressing) {
        let (device, sender) = (Arc::clone(&self.device), self.sender.clone());
        // SAFETY: the caller keeps the memory until the completion was popped, which is after the
        // job's end was received.
        self.staged.push(unsafe { Job::new(device, token, *command, sender) });
    }

    fn submit(&mut self, want: usize) -> Result<(), Refused> {
        let alone = self.running == 0 && self.ended.is_empty() && self.staged.len() == 1;
        self.running += self.staged.len();
        if want > 0 && alone {
            // One command that is waited for needs no other thread.
            self.staged.drain(..).for_each(Job::run);
        } else if !self.staged.is_empty() {
            self.workers.run(self.staged.drain(..));
        }
        while self.ended.len() < want {
            // This queue holds a sender, so that receiving cannot fail.
            let Ok(ended) = self.receiver.recv() else { break };
            self.running -= 1;
            self.ended.push(ended);
        }
        Ok(())
    }

    fn pop(&mut self) -> Option<RawCompletion> {
        if let Ok(ended) = self.receiver.try_recv() {
            self.running -= 1;
            self.ended.push(ended);
        }
        self.ended.pop()
    }
}

impl Executor for IoctlExecutor {
    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn buffers(&self) -> &BufferPool {
        &self.buffers
    }

    fn execute<'a>(&self, stream: &mut dyn Stream<'a>) {
        self.with_queue(|rules, jobs| flight::run(rules, jobs, &mut Tokens::default(), stream));
    }

    fn list(&self, start: Option<&Key>, page: &mut [u8]) -> Result<(), CommandError> {
        let len = page.len().min(self.max_transfer).min(u32::MAX as usize) as u32;
        let command = self.wire.list(start, len, page.as_mut_ptr() as u64);
        // SAFETY: `page` is borrowed for the call and has `len` bytes at least.
        let result = self.with_queue(|rules, jobs| unsafe {
            flight::run_command(rules, jobs, &mut Tokens::default(), command)
        });
        result.map(|_| ())
    }

    fn identify(&self) -> Result<IdentifyKvNamespace, CommandError> {
        self.node.identify()
    }

    fn statistics(&self) -> Statistics {
        self.counters.snapshot()
    }
}
