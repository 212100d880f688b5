//! Where encoded commands go and completions come from: a ring, a set of workers, or a test.

use nvme_kv_command_set::PassthroughCommand;

/// How a command's `addr` and `data_len` are meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Addressing {
    /// A contiguous buffer and its bytes.
    Contiguous,
    /// An array of segments and their number.
    Vectored,
    /// A contiguous buffer inside the registered region of this index.
    Fixed(u16),
}

/// The end of a command as the kernel reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RawCompletion {
    /// What was given with the command.
    pub(super) token: u64,
    /// Negative: an errno, negated. Otherwise the NVMe status field, 0 for success.
    pub(super) result: i32,
    /// Completion DW0.
    pub(super) dw0: u32,
}

/// The kernel takes no more commands from this queue.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Refused {
    /// Why.
    pub(super) errno: i32,
    /// Commands that were pushed and will never start.
    pub(super) tokens: Vec<u64>,
}

/// One caller's way to the device. Dropped only when nothing is in flight.
pub(super) trait Queue {
    /// Commands that may be in flight at once, pushed ones included.
    fn depth(&self) -> usize;

    /// Whether [`Addressing::Vectored`] is understood.
    fn takes_segments(&self) -> bool;

    /// The registered region that holds all of `len` bytes at `address`.
    fn region(&self, address: u64, len: u32) -> Option<u16>;

    /// Adds a command to the next submission. At most [`Queue::depth`] are in flight.
    ///
    /// # Safety
    /// The memory that the command names stays valid, and unused by anybody else for a Retrieve,
    /// until the command's completion was popped or [`Refused`] names its token.
    unsafe fn push(&mut self, token: u64, command: &PassthroughCommand, addressing: Addressing);

    /// Starts what was pushed and returns when at least `want` completions can be popped, fewer
    /// when the kernel needs room first. `want` is at most the number in flight.
    ///
    /// # Errors
    /// [`Refused`] once; later calls only wait for what had been started before.
    fn submit(&mut self, want: usize) -> Result<(), Refused>;

    /// The next completion that has arrived.
    fn pop(&mut self) -> Option<RawCompletion>;
}
