//! One call of an executor: pulls requests, keeps the queue filled, hands out completions, and
//! lets go of no memory that a command in flight still names.

use nvme_kv_command_set::{PassthroughCommand, StoreOptions, Wire};

use super::executor::{Completion, Operation, Reply, Request, Stream};
use super::kernel_result::interpret;
use super::placement::{Limits, Placement, Segments};
use super::queue::{Addressing, Queue, RawCompletion, Refused};
use super::statistics::Counters;
use super::{Buffer, BufferPool, CommandError, Target, Value};

/// Pushed commands are submitted at the latest when they are this many (or a quarter of what is
/// in flight, if more): [`Stream::next`] may hash a chunk, and the device need not wait for that.
const GROUP: usize = 8;
/// The same in bytes of data.
const GROUP_BYTES: usize = 1 << 20;
/// At most this many completions are awaited at once.
const MAX_WANT: usize = 8;

/// What every call of one executor shares.
pub(super) struct Rules<'e> {
    pub(super) wire: &'e Wire,
    pub(super) max_transfer: usize,
    pub(super) buffers: &'e BufferPool,
    pub(super) counters: &'e Counters,
    /// Gives a failure its meaning where the executor knows more than the answer says.
    pub(super) judge: &'e dyn Fn(CommandError, Addressing) -> Verdict,
}

/// What a failed command means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It ends with this error.
    Fail(CommandError),
    /// It was refused because of how its memory was named; it goes again as a plain buffer.
    RetryContiguous,
}

/// Hands out tokens that never repeat in one queue: 48 bits of sequence, 16 bits of slot.
#[derive(Debug, Default)]
pub(super) struct Tokens {
    next: u64,
}

impl Tokens {
    /// Slots that a token can name.
    pub(super) const SLOTS: usize = 1 << 16;

    fn take(&mut self, slot: usize) -> u64 {
        self.next += 1;
        self.next << 16 | slot as u64
    }

    fn slot(token: u64) -> usize {
        (token & 0xffff) as usize
    }
}

/// Runs `stream` on `queue` until it has no request ready and none is in flight.
pub(super) fn run<'a>(
    rules: &Rules<'_>,
    queue: &mut dyn Queue,
    tokens: &mut Tokens,
    stream: &mut dyn Stream<'a>,
) {
    let mut flight = Flight::new(rules, queue, tokens);
    loop {
        while flight.has_room() {
            let Some(request) = stream.next() else { break };
            flight.start(request, stream);
            if flight.group_is_full() {
                flight.submit(0, stream);
                flight.reap(stream);
            }
        }
        if flight.in_flight == 0 {
            return;
        }
        let want = (flight.in_flight / MAX_WANT).clamp(1, MAX_WANT);
        flight.submit(want, stream);
        flight.reap(stream);
    }
}

/// Runs one command that is no [`Operation`] on `queue`.
///
/// # Safety
/// The memory that the command names is valid and unused by anybody else during the call.
pub(super) unsafe fn run_command(
    rules: &Rules<'_>,
    queue: &mut dyn Queue,
    tokens: &mut Tokens,
    command: PassthroughCommand,
) -> Result<Reply, CommandError> {
    struct One(Option<Result<Reply, CommandError>>);
    impl Stream<'_> for One {
        fn next(&mut self) -> Option<Request<'static>> {
            None
        }
        fn complete(&mut self, completion: Completion) {
            self.0 = Some(completion.result);
        }
    }
    let mut one = One(None);
    let mut flight = Flight::new(rules, queue, tokens);
    flight.launch(0, command, Addressing::Contiguous, Held::Nothing, &mut one);
    while flight.in_flight > 0 {
        flight.submit(1, &mut one);
        flight.reap(&mut one);
    }
    drop(flight);
    one.0.unwrap_or(Err(CommandError::Unanswered("lost")))
}

/// Ends every request of `stream` with `error`.
pub(super) fn refuse<'a>(stream: &mut dyn Stream<'a>, error: &CommandError) {
    while let Some(Request { tag, operation }) = stream.next() {
        let buffer = match operation {
            Operation::Retrieve { buffer, .. } => Some(buffer),
            _ => None,
        };
        stream.complete(Completion { tag, result: Err(error.clone()), buffer });
    }
}

/// The memory a command in flight names, and where its bytes go afterwards.
enum Held<'a> {
    Nothing,
    /// The value and what was made for it are read by the device.
    Store {
        _value: Value<'a>,
        _buffer: Option<Buffer>,
        _segments: Option<Segments>,
    },
    /// The device fills the buffer.
    Buffer(Buffer),
    /// The device fills the target.
    Target {
        _target: Target<'a>,
    },
    /// The device fills the buffer, whose bytes are then copied to the target.
    Bounce {
        target: Target<'a>,
        buffer: Buffer,
        len: usize,
    },
}

struct Pending<'a> {
    tag: u64,
    token: u64,
    command: PassthroughCommand,
    addressing: Addressing,
    held: Held<'a>,
}

struct Flight<'f, 'a> {
    rules: &'f Rules<'f>,
    queue: &'f mut dyn Queue,
    tokens: &'f mut Tokens,
    limits: Limits,
    depth: usize,
    slots: Vec<Option<Pending<'a>>>,
    free: Vec<usize>,
    in_flight: usize,
    staged: usize,
    staged_bytes: usize,
    /// The queue takes no more commands, because of this errno.
    refused: Option<i32>,
}

impl<'f, 'a> Flight<'f, 'a> {
    fn new(rules: &'f Rules<'f>, queue: &'f mut dyn Queue, tokens: &'f mut Tokens) -> Self {
        let limits = Limits { vectored: queue.takes_segments(), max_transfer: rules.max_transfer };
        let depth = queue.depth().clamp(1, Tokens::SLOTS);
        Flight {
            rules,
            queue,
            tokens,
            limits,
            depth,
            slots: Vec::new(),
            free: Vec::new(),
            in_flight: 0,
            staged: 0,
            staged_bytes: 0,
            refused: None,
        }
    }

    fn has_room(&self) -> bool {
        self.in_flight < self.depth
    }

    fn group_is_full(&self) -> bool {
        self.staged >= GROUP.max(self.in_flight / 4) || self.staged_bytes >= GROUP_BYTES
    }

    /// Turns a request into a command and pushes it.
    fn start(&mut self, request: Request<'a>, stream: &mut dyn Stream<'a>) {
        let Request { tag, operation } = request;
        let wire = self.rules.wire;
        match operation {
            Operation::Store { key, value } => {
                let len = value.len();
                let transfer = wire.transfer_len(len);
                let mut command = wire.store(&key, len, StoreOptions::IF_ABSENT, 0);
                let (placement, copied) =
                    Placement::of(&value, transfer as usize, self.limits, self.rules.buffers);
                self.rules.counters.bytes_copied.add(copied);
                let mut addressing = Addressing::Contiguous;
                let (mut buffer, mut segments) = (None, None);
                match placement {
                    Placement::Empty => {}
                    Placement::Direct(address) => {
                        command.addr = address;
                        addressing = self.contiguous(address, transfer);
                    }
                    Placement::Vectored(array, head) => {
                        command.addr = array.address();
                        command.data_len = array.len();
                        addressing = Addressing::Vectored;
                        self.rules.counters.vectored.add(1);
                        buffer = head;
                        segments = Some(array);
                    }
                    Placement::Copied(bytes) => {
                        command.addr = bytes.as_ptr() as u64;
                        addressing = self.contiguous(command.addr, transfer);
                        buffer = Some(bytes);
                    }
                }
                let held = Held::Store { _value: value, _buffer: buffer, _segments: segments };
                self.staged_bytes += transfer as usize;
                self.launch(tag, command, addressing, held, stream);
            }
            Operation::Retrieve { key, mut buffer, len } => {
                let transfer = wire.transfer_len(len);
                if buffer.len() < transfer as usize {
                    let result = Err(CommandError::Errno(libc::EFAULT));
                    return stream.complete(Completion { tag, result, buffer: Some(buffer) });
                }
                let address = buffer.as_mut_ptr() as u64;
                let command = wire.retrieve(&key, len, address);
                let addressing = self.contiguous(address, transfer);
                self.launch(tag, command, addressing, Held::Buffer(buffer), stream);
            }
            Operation::RetrieveInto { key, target, len } => {
                let transfer = wire.transfer_len(len);
                if target.capacity() < transfer {
                    let result = Err(CommandError::Errno(libc::EFAULT));
                    return stream.complete(Completion { tag, result, buffer: None });
                }
                let (address, held) =
                    if self.limits.takes(target.address() as usize, transfer as usize) {
                        (target.address(), Held::Target { _target: target })
                    } else {
                        let mut buffer = self.rules.buffers.get(transfer as usize);
                        let address = buffer.as_mut_ptr() as u64;
                        (address, Held::Bounce { target, buffer, len: transfer as usize })
                    };
                let command = wire.retrieve(&key, len, address);
                let addressing = self.contiguous(address, transfer);
                self.launch(tag, command, addressing, held, stream);
            }
            Operation::Delete { key } => {
                let command = wire.delete(&key);
                self.launch(tag, command, Addressing::Contiguous, Held::Nothing, stream);
            }
            Operation::Exist { key } => {
                let command = wire.exist(&key);
                self.launch(tag, command, Addressing::Contiguous, Held::Nothing, stream);
            }
        }
    }

    /// How a contiguous buffer is best named.
    fn contiguous(&self, address: u64, len: u32) -> Addressing {
        match self.queue.region(address, len) {
            Some(index) if len > 0 => Addressing::Fixed(index),
            _ => Addressing::Contiguous,
        }
    }

    fn launch(
        &mut self,
        tag: u64,
        command: PassthroughCommand,
        addressing: Addressing,
        held: Held<'a>,
        stream: &mut dyn Stream<'a>,
    ) {
        let pending = Pending { tag, token: 0, command, addressing, held };
        if let Some(errno) = self.refused {
            return stream.complete(fail(pending, CommandError::Errno(errno)));
        }
        self.rules.counters.commands.add(1);
        if matches!(addressing, Addressing::Fixed(_)) {
            self.rules.counters.fixed.add(1);
        }
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() - 1
        });
        let token = self.tokens.take(slot);
        // The memory is in `held`, which stays in the slot until the completion was popped or the
        // queue gave the command up; `drop` waits for both.
        self.slots[slot] = Some(Pending { token, ..pending });
        self.in_flight += 1;
        self.staged += 1;
        // SAFETY: as the comment above says.
        unsafe { self.queue.push(token, &command, addressing) };
    }

    /// Starts what was pushed and waits for `want` completions.
    fn submit(&mut self, want: usize, stream: &mut dyn Stream<'a>) {
        self.staged = 0;
        self.staged_bytes = 0;
        if let Err(Refused { errno, tokens }) = self.queue.submit(want) {
            self.refused = Some(errno);
            for token in tokens {
                if let Some(pending) = self.retire(token) {
                    stream.complete(fail(pending, CommandError::Errno(errno)));
                }
            }
        }
    }

    /// Hands out the completions that have arrived.
    fn reap(&mut self, stream: &mut dyn Stream<'a>) {
        while let Some(completion) = self.queue.pop() {
            match self.retire(completion.token) {
                Some(pending) => self.finish(pending, completion, stream),
                None => self.rules.counters.rejected.add(1),
            }
        }
    }

    /// Frees the slot of `token`. `None`: it belongs to no command in flight.
    fn retire(&mut self, token: u64) -> Option<Pending<'a>> {
        let slot = Tokens::slot(token);
        let pending = self.slots.get_mut(slot)?.take_if(|pending| pending.token == token)?;
        self.free.push(slot);
        self.in_flight -= 1;
        Some(pending)
    }

    fn finish(
        &mut self,
        pending: Pending<'a>,
        completion: RawCompletion,
        stream: &mut dyn Stream<'a>,
    ) {
        let mut result = interpret(completion.result, completion.dw0);
        if let Err(error) = result {
            result = match (self.rules.judge)(error, pending.addressing) {
                Verdict::Fail(error) => Err(error),
                Verdict::RetryContiguous => {
                    let Pending { tag, command, held, .. } = pending;
                    return self.launch(tag, command, Addressing::Contiguous, held, stream);
                }
            };
        }
        match result {
            Err(error) => stream.complete(fail(pending, error)),
            Ok(reply) => {
                let Pending { tag, held, .. } = pending;
                let buffer = match held {
                    Held::Buffer(buffer) => Some(buffer),
                    Held::Bounce { mut target, buffer, len } => {
                        // Behind a short value the buffer holds what its last user left.
                        let got = reply.value_len.map_or(len, |value| len.min(value as usize));
                        target.as_mut_slice()[..got].copy_from_slice(&buffer[..got]);
                        self.rules.counters.bytes_copied.add(got as u64);
                        None
                    }
                    Held::Nothing | Held::Store { .. } | Held::Target { .. } => None,
                };
                stream.complete(Completion { tag, result: Ok(reply), buffer });
            }
        }
    }
}

fn fail(pending: Pending<'_>, error: CommandError) -> Completion {
    let buffer = match pending.held {
        Held::Buffer(buffer) => Some(buffer),
        _ => None,
    };
    Completion { tag: pending.tag, result: Err(error), buffer }
}

/// Also when the stream panics: the caller's memory is free only when nothing is in flight.
impl Drop for Flight<'_, '_> {
    fn drop(&mut self) {
        while self.in_flight > 0 {
            if let Err(Refused { tokens, .. }) = self.queue.submit(1) {
                tokens.into_iter().for_each(|token| drop(self.retire(token)));
            }
            while let Some(completion) = self.queue.pop() {
                drop(self.retire(completion.token));
            }
        }
    }
}

#[cfg(test)]
mod tests;
