//! The executor: how commands of one namespace are submitted and completed.
//!
//! A call to [`Executor::execute`] is synchronous at its boundary: when it returns, no buffer of
//! the caller is in use by the device, error and timeout paths included. Inside it is a stream:
//! requests are pulled from a [`Stream`] as slots free up, and completions are pushed into it as
//! they arrive, each of which may make further requests ready.

use std::collections::VecDeque;
use std::fmt::Debug;

use nvme_kv_command_set::{IdentifyKvNamespace, Key, PhysicalKey, WireProfile};

use super::{Buffer, BufferPool, CommandError, Statistics, Target, Value};

/// What an executor can do, fixed at open.
#[derive(Clone, Debug)]
pub struct Capabilities {
    /// The largest value that is written, bytes, already padded: chunks have this size.
    pub max_value_size: u32,
    /// The longest Retrieve, bytes: values written with another limit may be larger than ours.
    pub max_retrieve_size: u32,
    /// Commands in flight at most in one call of [`Executor::execute`].
    pub queue_depth: u32,
    /// Values are padded with zeros to a multiple of this many bytes on their way (1: not at all).
    pub transfer_alignment: u32,
    /// A destination that a device fills directly starts at a multiple of this many bytes.
    pub destination_alignment: u32,
    /// How keys and sizes are put into a command.
    pub wire_profile: WireProfile,
    /// Bytes of values that the namespace holds; `None`: it does not say.
    pub namespace_bytes: Option<u64>,
    /// Values that the namespace holds; `None`: it does not say.
    pub namespace_values: Option<u64>,
}

impl Capabilities {
    /// Bytes that the device keeps for a value of `len` bytes.
    pub fn stored_len(&self, len: u32) -> u32 {
        match self.wire_profile {
            WireProfile::Mooncake => self.transfer_len(len),
            WireProfile::Spec => len,
        }
    }

    /// Bytes that move for a value of `len` bytes.
    pub fn transfer_len(&self, len: u32) -> u32 {
        len.checked_next_multiple_of(self.transfer_alignment.max(1)).unwrap_or(u32::MAX)
    }
}

/// One command to be executed.
#[derive(Debug)]
pub struct Request<'a> {
    /// Comes back in the completion.
    pub tag: u64,
    /// What to do.
    pub operation: Operation<'a>,
}

/// The commands of the I/O path. Keys are as the layout derives them; the executor turns them
/// into the device's.
#[derive(Debug)]
pub enum Operation<'a> {
    /// Store `value` if `key` is absent.
    Store {
        /// Under which key.
        key: PhysicalKey,
        /// What.
        value: Value<'a>,
    },
    /// Retrieve at most `len` bytes into a pooled buffer, which comes back in the completion.
    Retrieve {
        /// Of which key.
        key: PhysicalKey,
        /// At least [`Capabilities::transfer_len`] of `len` bytes.
        buffer: Buffer,
        /// Wanted bytes.
        len: u32,
    },
    /// Retrieve at most `len` bytes directly into the caller's memory.
    RetrieveInto {
        /// Of which key.
        key: PhysicalKey,
        /// At least [`Capabilities::transfer_len`] of `len` bytes.
        target: Target<'a>,
        /// Wanted bytes.
        len: u32,
    },
    /// Delete `key`; a missing key is a success or "not found", as the device likes.
    Delete {
        /// Which key.
        key: PhysicalKey,
    },
    /// Ask whether `key` holds a value.
    Exist {
        /// Which key.
        key: PhysicalKey,
    },
}

/// The end of one request. Every request gets exactly one.
#[derive(Debug)]
pub struct Completion {
    /// The request's tag.
    pub tag: u64,
    /// What the device or the transport said.
    pub result: Result<Reply, CommandError>,
    /// The buffer of a Retrieve, whatever the result.
    pub buffer: Option<Buffer>,
}

/// What a successful command returned.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reply {
    /// Retrieve: the whole value's size as the device reports it, exact or padded.
    /// `None`: the device does not say (reports 0).
    pub value_len: Option<u32>,
}

/// A source of requests and a sink of completions.
pub trait Stream<'a> {
    /// The next request, or `None` when none is ready now. After `None` the executor asks again
    /// when something has completed, and returns when nothing is in flight.
    fn next(&mut self) -> Option<Request<'a>>;

    /// Takes the end of a request.
    fn complete(&mut self, completion: Completion);
}

/// Submits commands to one namespace. All methods may be called from many threads at once.
pub trait Executor: Send + Sync + Debug {
    /// What this executor can do.
    fn capabilities(&self) -> &Capabilities;

    /// The pool of transport buffers.
    fn buffers(&self) -> &BufferPool;

    /// Runs requests of `stream` until it has none ready and none is in flight.
    fn execute<'a>(&self, stream: &mut dyn Stream<'a>);

    /// One List command: keys from `start` on (all keys when `None`), as the device lays them
    /// out, into `page`. `start` is a key as the device knows it.
    fn list(&self, start: Option<&Key>, page: &mut [u8]) -> Result<(), CommandError>;

    /// Identify Namespace of the Key Value command set.
    fn identify(&self) -> Result<IdentifyKvNamespace, CommandError>;

    /// What has been done so far; zeros where nothing is counted.
    fn statistics(&self) -> Statistics {
        Statistics::default()
    }

    /// Offers `len` bytes at `start` for transfers, so that their pages are pinned once and not
    /// per command. A hint: a transport that has no use for it, or may not, does without.
    ///
    /// # Errors
    /// INVALID_PARAMS when the range is empty or overlaps one that is registered.
    ///
    /// # Safety
    /// The range stays mapped until [`Executor::unregister_memory`] was called with `start` or the
    /// executor is dropped.
    unsafe fn register_memory(&self, _start: *mut u8, _len: usize) -> crate::error::Result<()> {
        Ok(())
    }

    /// Takes back an offer. No call that uses the range may be running. The range may be unmapped
    /// afterwards; other memory at the same addresses may be used by calls that begin later.
    fn unregister_memory(&self, _start: *mut u8) {}
}

/// Executes `operations` and returns their completions in the order of the operations, tags
/// counting from 0.
pub fn execute_batch<'a>(
    executor: &dyn Executor,
    operations: impl IntoIterator<Item = Operation<'a>>,
) -> Vec<Completion> {
    struct Batch<'a> {
        waiting: VecDeque<Operation<'a>>,
        next_tag: u64,
        done: Vec<Completion>,
    }
    impl<'a> Stream<'a> for Batch<'a> {
        fn next(&mut self) -> Option<Request<'a>> {
            let operation = self.waiting.pop_front()?;
            self.next_tag += 1;
            Some(Request { tag: self.next_tag - 1, operation })
        }
        fn complete(&mut self, completion: Completion) {
            self.done.push(completion);
        }
    }
    let waiting: VecDeque<_> = operations.into_iter().collect();
    let mut batch = Batch { done: Vec::with_capacity(waiting.len()), waiting, next_tag: 0 };
    executor.execute(&mut batch);
    batch.done.sort_by_key(|completion| completion.tag);
    batch.done
}

/// Executes one operation.
pub fn execute_one(executor: &dyn Executor, operation: Operation<'_>) -> Completion {
    execute_batch(executor, [operation]).pop().unwrap_or(Completion {
        tag: 0,
        result: Err(CommandError::Unanswered("lost")),
        buffer: None,
    })
}
