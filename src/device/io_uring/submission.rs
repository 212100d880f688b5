//! Getting pushed commands into the kernel, whatever `io_uring_enter` answers.

use std::collections::VecDeque;
use std::io;
use std::time::Duration;

use nvme_kv_command_set::PassthroughCommand;

use super::fixed::RegionTable;
use crate::device::queue::{Addressing, Queue, RawCompletion, Refused};
use crate::device::statistics::Counters;

/// Pause between two attempts while the kernel has no memory and nothing of ours is in flight.
const BACK_OFF: Duration = Duration::from_millis(1);
/// Attempts of that kind before the commands are refused: about a second.
const ATTEMPTS: u32 = 1000;

/// A ring, reduced to what submitting needs.
pub(super) trait RawRing {
    /// Puts a command into the submission queue.
    ///
    /// # Safety
    /// As for [`Queue::push`].
    ///
    /// # Panics
    /// When the submission queue is full.
    unsafe fn push(&mut self, token: u64, command: &PassthroughCommand, addressing: Addressing);

    /// Commands in the submission queue that the kernel has not taken.
    fn queued(&mut self) -> usize;

    /// Lets the kernel take at most `submit` commands, in order, and waits until `want`
    /// completions are there. It may take fewer, and not wait then.
    fn enter(&mut self, submit: usize, want: usize) -> io::Result<()>;

    /// Completions that can be popped.
    fn ready(&mut self) -> usize;

    /// The next completion.
    fn pop(&mut self) -> Option<RawCompletion>;
}

/// A [`Queue`] over a ring.
pub(super) struct Submission<'r, R> {
    ring: &'r mut R,
    depth: usize,
    regions: &'r RegionTable,
    counters: &'r Counters,
    /// Tokens in the submission queue, in order.
    untaken: VecDeque<u64>,
    /// Commands the kernel has taken and not completed.
    taken: usize,
    refused: bool,
}

impl<'r, R: RawRing> Submission<'r, R> {
    /// A queue of `depth` commands, at most what the ring has entries for.
    pub(super) fn new(
        ring: &'r mut R,
        depth: usize,
        regions: &'r RegionTable,
        counters: &'r Counters,
    ) -> Self {
        let untaken = VecDeque::new();
        Submission { ring, depth, regions, counters, untaken, taken: 0, refused: false }
    }

    /// The ring has refused commands and is of no more use.
    pub(super) fn refused(&self) -> bool {
        self.refused
    }

    fn enter(&mut self, submit: usize, want: usize) -> io::Result<usize> {
        self.counters.enters.add(1);
        let result = self.ring.enter(submit, want);
        // What the kernel took counts even if it also reports an error.
        let left = if self.refused { 0 } else { self.ring.queued() };
        let newly_taken = self.untaken.len().saturating_sub(left);
        self.untaken.drain(..newly_taken);
        self.taken += newly_taken;
        result.map(|()| newly_taken)
    }

    fn refuse(&mut self, errno: i32) -> Result<(), Refused> {
        self.refused = true;
        Err(Refused { errno, tokens: self.untaken.drain(..).collect() })
    }

    /// Waits for what is in the kernel and submits nothing.
    fn wait(&mut self, want: usize) {
        while self.ring.ready() < want {
            match self.enter(0, want) {
                Ok(_) => {}
                Err(error) if error.raw_os_error() == Some(libc::EINTR) => {}
                // Completions arrive without our help; a pause lets the kernel deliver them.
                Err(_) => std::thread::sleep(BACK_OFF),
            }
        }
    }
}

impl<R: RawRing> Queue for Submission<'_, R> {
    fn depth(&self) -> usize {
        self.depth
    }

    fn takes_segments(&self) -> bool {
        true
    }

    fn region(&self, address: u64, len: u32) -> Option<u16> {
        self.regions.find(address as usize, len as usize)
    }

    unsafe fn push(&mut self, token: u64, command: &PassthroughCommand, addressing: Addressing) {
        // SAFETY: the caller's promise is the same.
        unsafe { self.ring.push(token, command, addressing) };
        self.untaken.push_back(token);
    }

    fn submit(&mut self, want: usize) -> Result<(), Refused> {
        let mut attempts = 0;
        while !self.refused {
            let queued = self.untaken.len();
            if queued == 0 && self.ring.ready() >= want {
                return Ok(());
            }
            let error = match self.enter(queued, want) {
                Ok(0) if queued > 0 => libc::EAGAIN,
                Ok(_) => continue,
                Err(error) => error.raw_os_error().unwrap_or(libc::EIO),
            };
            match error {
                libc::EINTR => {}
                // The kernel wants completions to be taken away, or is short of memory.
                libc::EAGAIN | libc::EBUSY => {
                    if self.ring.ready() > 0 {
                        return Ok(());
                    }
                    if self.taken > 0 {
                        self.wait(1);
                        return Ok(());
                    }
                    attempts += 1;
                    if attempts == ATTEMPTS {
                        return self.refuse(error);
                    }
                    std::thread::sleep(BACK_OFF);
                }
                errno => return self.refuse(errno),
            }
        }
        self.wait(want);
        Ok(())
    }

    fn pop(&mut self) -> Option<RawCompletion> {
        let completion = self.ring.pop()?;
        self.taken = self.taken.saturating_sub(1);
        Some(completion)
    }
}

#[cfg(test)]
mod tests;
