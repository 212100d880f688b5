//! The io_uring transport: commands are passed to the namespace's generic node without a thread
//! of our own. A calling thread leases a ring, runs its requests on it and gives it back.

mod fixed;
mod offered;
mod ring;
mod room;
mod submission;

use std::io;
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use nvme_kv_command_set::{IdentifyKvNamespace, Key, PhysicalKey, Wire};

use self::fixed::RegionTable;
use self::offered::Offered;
use self::ring::Ring;
pub(super) use self::room::Room;
use self::submission::Submission;
use super::executor::{Capabilities, Executor, Stream};
use super::flight::{self, Rules, Tokens, Verdict};
use super::node::Node;
use super::queue::Addressing;
use super::statistics::{Counters, Statistics};
use super::{BufferPool, CommandError};
use crate::error::{Error, ErrorCode, Result};
use crate::log;

/// Idle rings that are kept; calls beyond that many at once set up their own and close it.
const KEPT_RINGS: usize = 64;

/// Why the transport could not be opened.
#[derive(Debug)]
pub(super) enum OpenError {
    /// io_uring, or its NVMe passthrough, does not exist here.
    Unavailable(String),
    /// It exists, and the device did not answer.
    Failed(CommandError),
}

/// Executes commands through io_uring passthrough, in the calling thread.
#[derive(Debug)]
pub struct IoUringExecutor {
    node: Arc<Node>,
    wire: Wire,
    capabilities: Capabilities,
    max_transfer: usize,
    room: Room,
    idle: Mutex<Vec<Lane>>,
    memory: Mutex<Offered>,
    counters: Counters,
    /// Declared after the rings: their registered regions lie in its arena.
    buffers: BufferPool,
}

/// A ring and what goes with it.
#[derive(Debug)]
struct Lane {
    ring: Ring,
    tokens: Tokens,
    regions: RegionTable,
    /// The opening of the node that it was set up for.
    opening: u64,
    /// The version of the offered memory that it has registered.
    version: u64,
}

impl IoUringExecutor {
    /// An executor for `node`, after a first command (an Exist) has proved that the kernel takes
    /// commands this way.
    pub(super) fn open(
        node: Arc<Node>,
        wire: Wire,
        capabilities: Capabilities,
        max_transfer: usize,
        room: Room,
        buffers: BufferPool,
    ) -> std::result::Result<Self, OpenError> {
        let executor = IoUringExecutor {
            node,
            wire,
            capabilities,
            max_transfer,
            room,
            idle: Mutex::default(),
            memory: Mutex::new(Offered::new(buffers.arena().into_iter().collect())),
            counters: Counters::default(),
            buffers,
        };
        let lane = executor.lease().map_err(|error| {
            OpenError::Unavailable(format!("io_uring cannot be set up: {error}"))
        })?;
        let probe = executor.wire.exist(&PhysicalKey([0; 16]));
        // SAFETY: an Exist names no memory.
        match unsafe { executor.run_command(lane, probe) } {
            Ok(()) | Err(CommandError::Status(_)) => Ok(executor),
            Err(CommandError::Errno(libc::EOPNOTSUPP)) => Err(OpenError::Unavailable(
                "the kernel or the node takes no NVMe commands through io_uring".to_owned(),
            )),
            Err(error) => Err(OpenError::Failed(error)),
        }
    }

    /// An idle ring, or a new one.
    fn lease(&self) -> io::Result<Lane> {
        let open = self.node.current();
        let version = lock(&self.memory).version();
        loop {
            let Some(lane) = lock(&self.idle).pop() else { break };
            if lane.opening == open.generation && lane.version == version {
                return Ok(lane);
            }
        }
        let mut ring = Ring::new(self.capabilities.queue_depth, open.as_fd())?;
        let (regions, version) = self.register(&mut ring);
        let tokens = Tokens::default();
        Ok(Lane { ring, tokens, regions, opening: open.generation, version })
    }

    /// Registers the offered memory with `ring`; nothing where the kernel does not allow it.
    fn register(&self, ring: &mut Ring) -> (RegionTable, u64) {
        let mut memory = lock(&self.memory);
        // SAFETY: the arena lives as long as the buffer pool, which outlives every lane; whoever
        // offered other memory promised to keep it mapped until it is withdrawn.
        let regions = unsafe { memory.register(ring, self.max_transfer) };
        let regions = regions.unwrap_or_else(|error| {
            log::warning!(
                "{}: memory stays unregistered, every command pins its own pages ({error}); \
                 raise RLIMIT_MEMLOCK (ulimit -l) or grant CAP_IPC_LOCK",
                self.node.path().display()
            );
            RegionTable::default()
        });
        (regions, memory.version())
    }

    fn give_back(&self, lane: Lane) {
        // Held meanwhile, so that memory cannot be withdrawn between the look and the push.
        let memory = lock(&self.memory);
        let mut idle = lock(&self.idle);
        if lane.version == memory.version() && idle.len() < KEPT_RINGS {
            idle.push(lane);
        }
    }

    /// Calls `body` with the rules of a call.
    fn with_rules<T>(&self, body: impl FnOnce(&Rules<'_>) -> T) -> T {
        let judge = |error, addressing| self.judge(error, addressing);
        body(&Rules {
            wire: &self.wire,
            max_transfer: self.max_transfer,
            buffers: &self.buffers,
            counters: &self.counters,
            judge: &judge,
        })
    }

    fn judge(&self, error: CommandError, addressing: Addressing) -> Verdict {
        let error = self.node.judge(error);
        let refused_region = matches!(addressing, Addressing::Fixed(_))
            && matches!(error, CommandError::Errno(libc::EINVAL | libc::EFAULT));
        if !refused_region {
            return Verdict::Fail(error);
        }
        if lock(&self.memory).switch_off() {
            log::warning!(
                "{}: the kernel refuses commands on registered memory ({error}); going on without",
                self.node.path().display()
            );
        }
        Verdict::RetryContiguous
    }

    /// # Safety
    /// The memory that the command names is valid and unused by anybody else during the call.
    unsafe fn run_command(
        &self,
        lane: Lane,
        command: nvme_kv_command_set::PassthroughCommand,
    ) -> std::result::Result<(), CommandError> {
        let Lane { mut ring, mut tokens, regions, opening, version } = lane;
        let mut queue = Submission::new(&mut ring, 1, &regions, &self.counters);
        let result = self.with_rules(|rules| {
            // SAFETY: the caller's promise is the same.
            unsafe { flight::run_command(rules, &mut queue, &mut tokens, command) }
        });
        if !queue.refused() {
            self.give_back(Lane { ring, tokens, regions, opening, version });
        }
        result.map(|_| ())
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn errno(error: &io::Error) -> CommandError {
    CommandError::Errno(error.raw_os_error().unwrap_or(libc::EIO))
}

impl Executor for IoUringExecutor {
    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn buffers(&self) -> &BufferPool {
        &self.buffers
    }

    fn execute<'a>(&self, stream: &mut dyn Stream<'a>) {
        let mut lane = match self.lease() {
            Ok(lane) => lane,
            Err(error) => return flight::refuse(stream, &errno(&error)),
        };
        let share = self.room.share(lane.ring.entries().min(self.capabilities.queue_depth));
        let depth = share.size() as usize;
        let mut queue = Submission::new(&mut lane.ring, depth, &lane.regions, &self.counters);
        self.with_rules(|rules| flight::run(rules, &mut queue, &mut lane.tokens, stream));
        if !queue.refused() {
            self.give_back(lane);
        }
    }

    fn list(&self, start: Option<&Key>, page: &mut [u8]) -> std::result::Result<(), CommandError> {
        let len = page.len().min(self.max_transfer).min(u32::MAX as usize) as u32;
        let command = self.wire.list(start, len, page.as_mut_ptr() as u64);
        let lane = self.lease().map_err(|error| errno(&error))?;
        // SAFETY: `page` is borrowed for the call and has `len` bytes at least.
        unsafe { self.run_command(lane, command) }
    }

    fn identify(&self) -> std::result::Result<IdentifyKvNamespace, CommandError> {
        self.node.identify()
    }

    fn statistics(&self) -> Statistics {
        self.counters.snapshot()
    }

    unsafe fn register_memory(&self, start: *mut u8, len: usize) -> Result<()> {
        if lock(&self.memory).add(start as usize, len) {
            return Ok(());
        }
        Err(Error::new(
            ErrorCode::InvalidParams,
            format!(
                "memory of {len} bytes at {start:p} is empty or overlaps memory that is \
                 registered already: register each range once"
            ),
        ))
    }

    fn unregister_memory(&self, start: *mut u8) {
        let start = start as usize;
        if self.buffers.arena().is_none_or(|(arena, _)| arena != start) {
            lock(&self.memory).withdraw(start);
        }
        // Rings in use are closed when their calls end: they have an older version.
        let closed = std::mem::take(&mut *lock(&self.idle));
        drop(closed);
    }
}

#[cfg(test)]
mod tests;
