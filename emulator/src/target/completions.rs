//! Completions between execution and sending: the latency model delays them, a
//! shuffling personality reorders them.

use std::{
    cmp::Reverse,
    collections::BinaryHeap,
    time::{Duration, Instant},
};

use nvme_kv_command_set::Status;

use crate::personality::CompletionOrder;

/// A command that was executed and not yet answered.
pub(super) struct Completion {
    pub(super) command_id: u16,
    pub(super) status: Status,
    pub(super) result: u64,
    /// Data for the host: the first bytes of a buffer, and how many.
    pub(super) data: Option<(Vec<u8>, usize)>,
}

/// Completions that are not due.
#[derive(Default)]
pub(super) struct Completions {
    delayed: BinaryHeap<Reverse<Delayed>>,
    /// Executed together, to be drawn in a random order.
    batch: Vec<Completion>,
    bytes: usize,
    sequence: u64,
    random: Option<u64>,
}

impl Completions {
    /// Bytes of data that wait here.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn count(&self) -> usize {
        self.delayed.len() + self.batch.len()
    }

    /// Takes a completion in, or gives it back when there is nothing to wait for.
    pub(super) fn hold(
        &mut self,
        completion: Completion,
        latency: Duration,
        order: CompletionOrder,
    ) -> Option<Completion> {
        if latency.is_zero() && order == CompletionOrder::Fifo {
            return Some(completion);
        }
        self.bytes += completion.data.as_ref().map_or(0, |(_, len)| *len);
        if let CompletionOrder::Shuffled { seed } = order {
            self.random.get_or_insert(seed | 1);
        }
        if latency.is_zero() {
            self.batch.push(completion);
        } else {
            // A sum beyond the clock's range is a completion that never comes.
            let due = Instant::now().checked_add(latency);
            self.sequence += 1;
            self.delayed.push(Reverse(Delayed { due, sequence: self.sequence, completion }));
        }
        None
    }

    /// The next completion that is due at `now`.
    pub(super) fn next(&mut self, now: Instant) -> Option<Completion> {
        let completion = match self.delayed.peek() {
            Some(Reverse(Delayed { due: Some(due), .. })) if *due <= now => {
                self.delayed.pop().map(|Reverse(delayed)| delayed.completion)
            }
            _ => self.draw(),
        }?;
        self.bytes -= completion.data.as_ref().map_or(0, |(_, len)| *len);
        Some(completion)
    }

    /// When the next completion is due.
    pub(super) fn due(&self) -> Option<Instant> {
        if !self.batch.is_empty() {
            return Some(Instant::now());
        }
        self.delayed.peek().and_then(|Reverse(delayed)| delayed.due)
    }

    fn draw(&mut self) -> Option<Completion> {
        if self.batch.is_empty() {
            return None;
        }
        // xorshift64: any cheap generator with a seed will do.
        let state = self.random.get_or_insert(1);
        *state ^= *state << 13;
        *state ^= *state >> 7;
        *state ^= *state << 17;
        let index = *state % self.batch.len() as u64;
        Some(self.batch.swap_remove(index as usize))
    }
}

/// Ordered by time, those without one last, and then as executed.
struct Delayed {
    due: Option<Instant>,
    sequence: u64,
    completion: Completion,
}

impl Delayed {
    fn order(&self) -> (bool, Option<Instant>, u64) {
        (self.due.is_none(), self.due, self.sequence)
    }
}

impl PartialEq for Delayed {
    fn eq(&self, other: &Self) -> bool {
        self.order() == other.order()
    }
}

impl Eq for Delayed {}

impl PartialOrd for Delayed {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Delayed {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.order().cmp(&other.order())
    }
}
