//! The emulated transport: encodes the same command bytes as the kernel executors and hands them
//! to a namespace inside this process.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use nvme_kv_command_set::{
    CSI_KV, IdentifyKvNamespace, Key, PassthroughCommand, StoreOptions, Wire, cns,
};
use nvme_kv_emulator::{CompletionOrder, Data, Namespace, Outcome};

use super::executor::{Capabilities, Completion, Executor, Operation, Reply, Request, Stream};
use super::statistics::Counters;
use super::{BufferPool, CommandError, Statistics};

/// Zeros that pad a value to the transfer alignment, lent to the namespace.
static ZEROS: [u8; 4096] = [0; 4096];

/// Executes commands on an emulated namespace, in the calling thread.
#[derive(Debug)]
pub struct EmulatedExecutor {
    namespace: Arc<Namespace>,
    wire: Wire,
    capabilities: Capabilities,
    buffers: BufferPool,
    counters: Counters,
}

impl EmulatedExecutor {
    /// An executor for `namespace`.
    pub fn new(
        namespace: Arc<Namespace>,
        wire: Wire,
        capabilities: Capabilities,
        buffers: BufferPool,
    ) -> Self {
        let counters = Counters::default();
        EmulatedExecutor { namespace, wire, capabilities, buffers, counters }
    }

    /// Runs one request; the duration is when its completion is due, counted from now.
    fn run(&self, request: Request<'_>) -> (Completion, Duration) {
        let Request { tag, operation } = request;
        let (result, buffer) = match operation {
            Operation::Store { key, value } => {
                let len = value.len();
                let command = self.wire.store(&key, len, StoreOptions::IF_ABSENT, 0);
                let mut pieces: Vec<&[u8]> = value.segments().collect();
                let mut padding = (self.wire.transfer_len(len) - len) as usize;
                while padding > 0 {
                    let zeros = padding.min(ZEROS.len());
                    pieces.push(&ZEROS[..zeros]);
                    padding -= zeros;
                }
                (self.io(&command, Data::ToDevice(&pieces)), None)
            }
            Operation::Retrieve { key, mut buffer, len } => {
                let result = self.retrieve(&key, len, &mut buffer);
                (result, Some(buffer))
            }
            Operation::RetrieveInto { key, mut target, len } => {
                (self.retrieve(&key, len, target.as_mut_slice()), None)
            }
            Operation::Delete { key } => (self.io(&self.wire.delete(&key), Data::None), None),
            Operation::Exist { key } => (self.io(&self.wire.exist(&key), Data::None), None),
        };
        let (result, latency) = match result {
            Ok((reply, latency)) => (Ok(reply), latency),
            Err((error, latency)) => (Err(error), latency),
        };
        (Completion { tag, result, buffer }, latency)
    }

    fn retrieve(
        &self,
        key: &nvme_kv_command_set::PhysicalKey,
        len: u32,
        memory: &mut [u8],
    ) -> IoResult {
        let transfer = self.wire.transfer_len(len) as usize;
        let Some(memory) = memory.get_mut(..transfer) else {
            return Err((CommandError::Errno(libc::EFAULT), Duration::ZERO));
        };
        self.io(&self.wire.retrieve(key, len, 0), Data::FromDevice(memory))
    }

    fn io(&self, command: &PassthroughCommand, data: Data<'_>) -> IoResult {
        self.counters.commands.add(1);
        convert(self.namespace.execute(&command.to_bytes(), data))
    }
}

type IoResult = Result<(Reply, Duration), (CommandError, Duration)>;

fn convert(outcome: Outcome) -> IoResult {
    match outcome {
        Outcome::Completed { status, dw0, latency } if status.is_success() => {
            Ok((Reply { value_len: (dw0 != 0).then_some(dw0) }, latency))
        }
        Outcome::Completed { status, latency, .. } => Err((CommandError::Status(status), latency)),
        Outcome::Errno(errno) => Err((CommandError::Errno(errno), Duration::ZERO)),
        Outcome::NoAnswer => Err((CommandError::Unanswered("timeout"), Duration::ZERO)),
    }
}

/// A completion that waits for its time, earliest first.
struct Flying {
    due: Instant,
    completion: Completion,
}

impl PartialEq for Flying {
    fn eq(&self, other: &Self) -> bool {
        self.due == other.due
    }
}
impl Eq for Flying {}
impl PartialOrd for Flying {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Flying {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.due.cmp(&other.due)
    }
}

impl Executor for EmulatedExecutor {
    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn buffers(&self) -> &BufferPool {
        &self.buffers
    }

    fn execute<'a>(&self, stream: &mut dyn Stream<'a>) {
        let depth = self.capabilities.queue_depth.max(1) as usize;
        let mut order = Order::new(self.namespace.personality().completion_order);
        let mut submitted: VecDeque<Request<'a>> = VecDeque::with_capacity(depth);
        let mut flying: BinaryHeap<Reverse<Flying>> = BinaryHeap::new();
        loop {
            while submitted.len() + flying.len() < depth {
                match stream.next() {
                    Some(request) => submitted.push_back(request),
                    None => break,
                }
            }
            if let Some(request) = order.pick(&mut submitted) {
                let (completion, latency) = self.run(request);
                if latency.is_zero() {
                    stream.complete(completion);
                } else {
                    flying.push(Reverse(Flying { due: Instant::now() + latency, completion }));
                }
            } else if let Some(Reverse(first)) = flying.pop() {
                // The latency model is asked for explicitly; this wait is what it models.
                std::thread::sleep(first.due.saturating_duration_since(Instant::now()));
                stream.complete(first.completion);
            } else {
                return;
            }
        }
    }

    fn list(&self, start: Option<&Key>, page: &mut [u8]) -> Result<(), CommandError> {
        let len = u32::try_from(page.len()).map_err(|_| CommandError::Errno(libc::EINVAL))?;
        let command = self.wire.list(start, len, 0);
        self.io(&command, Data::FromDevice(page)).map(|_| ()).map_err(|(error, _)| error)
    }

    fn identify(&self) -> Result<IdentifyKvNamespace, CommandError> {
        identify(&self.namespace, &self.wire)
    }

    fn statistics(&self) -> Statistics {
        self.counters.snapshot()
    }
}

/// Asks `namespace` for its Identify data of the Key Value command set.
pub(super) fn identify(
    namespace: &Namespace,
    wire: &Wire,
) -> Result<IdentifyKvNamespace, CommandError> {
    let mut data = [0u8; 4096];
    let command =
        PassthroughCommand::identify(wire.nsid, cns::CSI_NAMESPACE, CSI_KV, 0, wire.timeout_ms);
    convert(namespace.execute_admin(&command.to_bytes(), Data::FromDevice(&mut data)))
        .map_err(|(error, _)| error)?;
    IdentifyKvNamespace::parse(&data).map_err(|_| CommandError::Errno(libc::EBADMSG))
}

/// In which order submitted commands are executed.
enum Order {
    Fifo,
    Shuffled(u64),
}

impl Order {
    fn new(order: CompletionOrder) -> Self {
        match order {
            CompletionOrder::Fifo => Order::Fifo,
            CompletionOrder::Shuffled { seed } => Order::Shuffled(seed | 1),
        }
    }

    fn pick<'a>(&mut self, submitted: &mut VecDeque<Request<'a>>) -> Option<Request<'a>> {
        match self {
            Order::Fifo => submitted.pop_front(),
            Order::Shuffled(state) => {
                // xorshift64: any cheap generator with a seed will do.
                *state ^= *state << 13;
                *state ^= *state >> 7;
                *state ^= *state << 17;
                let len = submitted.len() as u64;
                (len > 0).then(|| submitted.swap_remove_back((*state % len) as usize)).flatten()
            }
        }
    }
}
