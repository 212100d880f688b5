//! Who is working on which key: the in-flight table of "the rules of one key".
//!
//! All mutations of a key hold its entry exclusively; others of the same key park behind it, in
//! order, without blocking a lane. A reader *pins* the key and checks at its end that the key's
//! generation did not change; after a retry it holds the entry shared instead, which keeps
//! mutations out while it decides. Slots touched by commands of unknown outcome are quarantined
//! here until the device can no longer execute them.
//!
//! Entries are keyed by the root key of slot 0, so that logical keys whose physical keys collide
//! are serialised too, and exist only while somebody needs them.

use std::collections::{HashMap, VecDeque};
use std::future::poll_fn;
use std::task::{Poll, Waker};
use std::time::Duration;

use super::sync::{Mutex, MutexGuard, shards};
use crate::layout::{PhysicalKey, Slot};

const SHARDS: usize = shards(64);

/// All entries. Thread-safe.
#[derive(Debug)]
pub(super) struct KeyTable {
    shards: Vec<Mutex<Shard>>,
}

type Shard = HashMap<PhysicalKey, Entry>;

#[derive(Debug, Default)]
struct Entry {
    exclusive: bool,
    shared: usize,
    /// Bumped by every visible change of the key.
    generation: u64,
    /// Readers that pinned the current generation, and readers of earlier ones.
    pins: usize,
    old_pins: usize,
    old_pins_gone: Option<Waker>,
    next_ticket: u64,
    waiting: VecDeque<Waiter>,
    quarantine: Vec<Quarantine>,
}

#[derive(Debug)]
struct Waiter {
    ticket: u64,
    waker: Waker,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Exclusive,
    Shared,
}

/// A slot that a command of unknown outcome may still change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Quarantine {
    /// Which slot.
    pub(super) slot: Slot,
    /// What may still happen there.
    pub(super) ghost: Ghost,
    /// When the device can no longer execute it, on the backend's clock.
    pub(super) until: Duration,
}

/// A command that may be executed late.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ghost {
    /// A Store of a root: an old version may appear in the slot.
    RootStore,
    /// A Delete: what is stored in the slot may disappear.
    Delete,
}

impl Entry {
    fn is_idle(&self) -> bool {
        !self.exclusive
            && self.shared == 0
            && self.pins == 0
            && self.old_pins == 0
            && self.waiting.is_empty()
            && self.quarantine.is_empty()
    }

    fn admits(&self, mode: Mode) -> bool {
        match mode {
            Mode::Exclusive => !self.exclusive && self.shared == 0,
            Mode::Shared => !self.exclusive,
        }
    }

    fn admit(&mut self, mode: Mode) {
        match mode {
            Mode::Exclusive => self.exclusive = true,
            Mode::Shared => self.shared += 1,
        }
    }

    /// Lets the first in the queue try again.
    fn wake_first(&self) {
        if let Some(first) = self.waiting.front() {
            first.waker.wake_by_ref();
        }
    }
}

impl KeyTable {
    pub(super) fn new() -> Self {
        KeyTable { shards: (0..SHARDS).map(|_| Mutex::default()).collect() }
    }

    fn shard(&self, key: &PhysicalKey) -> MutexGuard<'_, Shard> {
        let shard = &self.shards[key.0[0] as usize % SHARDS];
        shard.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Changes the entry of `key`, making it if there is none and dropping it once idle.
    fn with<R>(&self, key: &PhysicalKey, change: impl FnOnce(&mut Entry) -> R) -> R {
        let mut shard = self.shard(key);
        let entry = shard.entry(*key).or_default();
        let result = change(entry);
        if entry.is_idle() {
            shard.remove(key);
        }
        result
    }

    /// Waits until no one else holds `key`.
    pub(super) async fn exclusive(&self, key: PhysicalKey) -> Exclusive<'_> {
        self.acquire(key, Mode::Exclusive).await;
        Exclusive { table: self, key }
    }

    /// Waits until no mutation of `key` is in flight, and keeps mutations out.
    pub(super) async fn shared(&self, key: PhysicalKey) -> Shared<'_> {
        self.acquire(key, Mode::Shared).await;
        Shared { table: self, key }
    }

    /// Holds `key` if nobody else does or waits to.
    pub(super) fn try_exclusive(&self, key: PhysicalKey) -> Option<Exclusive<'_>> {
        self.with(&key, |entry| {
            let free = entry.waiting.is_empty() && entry.admits(Mode::Exclusive);
            free.then(|| entry.admit(Mode::Exclusive))
        })?;
        Some(Exclusive { table: self, key })
    }

    async fn acquire(&self, key: PhysicalKey, mode: Mode) {
        let mut place = Place { table: self, key, ticket: None };
        poll_fn(|context| {
            self.with(&key, |entry| {
                let first = match (place.ticket, entry.waiting.front()) {
                    (_, None) => true,
                    (ticket, Some(front)) => ticket == Some(front.ticket),
                };
                if first && entry.admits(mode) {
                    if place.ticket.take().is_some() {
                        entry.waiting.pop_front();
                    }
                    entry.admit(mode);
                    // The next in the queue may share with us.
                    entry.wake_first();
                    return Poll::Ready(());
                }
                match place.ticket {
                    None => {
                        let ticket = entry.next_ticket;
                        entry.next_ticket += 1;
                        place.ticket = Some(ticket);
                        let waker = context.waker().clone();
                        entry.waiting.push_back(Waiter { ticket, waker });
                    }
                    Some(ticket) => {
                        if let Some(waiter) =
                            entry.waiting.iter_mut().find(|waiter| waiter.ticket == ticket)
                        {
                            waiter.waker.clone_from(context.waker());
                        }
                    }
                }
                Poll::Pending
            })
        })
        .await
    }

    /// Pins `key` for a read.
    pub(super) fn pin(&self, key: PhysicalKey) -> Pin<'_> {
        self.with(&key, |entry| {
            entry.pins += 1;
            Pin { table: self, key, generation: entry.generation, calm: !entry.exclusive }
        })
    }

    /// Until when a root that was stored without an answer may still appear somewhere.
    pub(super) fn roots_may_appear_until(&self) -> Option<Duration> {
        let latest = |shard: &Mutex<Shard>| {
            let shard = shard.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
            let marks = shard.values().flat_map(|entry| &entry.quarantine);
            let roots = marks.filter(|mark| mark.ghost == Ghost::RootStore);
            roots.map(|mark| mark.until).max()
        };
        self.shards.iter().filter_map(latest).max()
    }

    /// Entries now in the table: keys in flight, pinned or quarantined.
    #[cfg(test)]
    fn len(&self) -> usize {
        self.shards
            .iter()
            .map(|shard| shard.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).len())
            .sum()
    }
}

/// A place in the queue, given up when the wait is abandoned.
struct Place<'t> {
    table: &'t KeyTable,
    key: PhysicalKey,
    ticket: Option<u64>,
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket {
            self.table.with(&self.key, |entry| {
                entry.waiting.retain(|waiter| waiter.ticket != ticket);
                entry.wake_first();
            });
        }
    }
}

/// The right to mutate one key.
#[derive(Debug)]
pub(super) struct Exclusive<'t> {
    table: &'t KeyTable,
    key: PhysicalKey,
}

impl Exclusive<'_> {
    /// Says that the key has visibly changed: reads begun before count no more.
    pub(super) fn bump(&self) {
        self.table.with(&self.key, |entry| {
            entry.generation += 1;
            entry.old_pins += std::mem::take(&mut entry.pins);
        });
    }

    /// Waits until every reader that pinned the key before the last [`Exclusive::bump`] is done.
    pub(super) async fn old_readers_gone(&self) {
        poll_fn(|context| {
            self.table.with(&self.key, |entry| {
                if entry.old_pins == 0 {
                    return Poll::Ready(());
                }
                entry.old_pins_gone = Some(context.waker().clone());
                Poll::Pending
            })
        })
        .await
    }

    /// Quarantines a slot.
    pub(super) fn quarantine(&self, quarantine: Quarantine) {
        self.table.with(&self.key, |entry| entry.quarantine.push(quarantine));
    }

    /// A command of unknown outcome may have changed some slot of the key, or may yet.
    pub(super) fn is_quarantined(&self) -> bool {
        self.table.with(&self.key, |entry| !entry.quarantine.is_empty())
    }

    /// A command of unknown outcome may still be executed.
    pub(super) fn is_haunted(&self, now: Duration) -> bool {
        self.table.with(&self.key, |entry| entry.quarantine.iter().any(|mark| mark.until > now))
    }

    /// The quarantines of the key that have not been reviewed away.
    pub(super) fn quarantines(&self) -> Vec<Quarantine> {
        self.table.with(&self.key, |entry| entry.quarantine.clone())
    }

    /// The quarantines of the key, expired ones included, which are forgotten by this call.
    pub(super) fn review_quarantine(&self, now: Duration) -> Vec<Quarantine> {
        self.table.with(&self.key, |entry| {
            let all = entry.quarantine.clone();
            entry.quarantine.retain(|quarantine| quarantine.until > now);
            all
        })
    }
}

impl Drop for Exclusive<'_> {
    fn drop(&mut self) {
        self.table.with(&self.key, |entry| {
            entry.exclusive = false;
            entry.wake_first();
        });
    }
}

/// Keeps mutations of one key out.
#[derive(Debug)]
pub(super) struct Shared<'t> {
    table: &'t KeyTable,
    key: PhysicalKey,
}

impl Drop for Shared<'_> {
    fn drop(&mut self) {
        self.table.with(&self.key, |entry| {
            entry.shared -= 1;
            entry.wake_first();
        });
    }
}

/// A reader's mark on a key: what it reads is not deleted under it.
#[derive(Debug)]
pub(super) struct Pin<'t> {
    table: &'t KeyTable,
    key: PhysicalKey,
    generation: u64,
    /// No mutation was in flight when the key was pinned.
    calm: bool,
}

impl Pin<'_> {
    /// The key did not change since it was pinned.
    pub(super) fn unchanged(&self) -> bool {
        self.table.with(&self.key, |entry| entry.generation == self.generation)
    }

    /// If no mutation was in flight from the pinning until now, does `act` before one can start
    /// and returns true: what was read is as good as read under a shared hold.
    pub(super) fn if_undisturbed(&self, act: impl FnOnce()) -> bool {
        self.table.with(&self.key, |entry| {
            let undisturbed = self.calm && !entry.exclusive && entry.generation == self.generation;
            if undisturbed {
                act();
            }
            undisturbed
        })
    }
}

impl Drop for Pin<'_> {
    fn drop(&mut self) {
        self.table.with(&self.key, |entry| {
            if entry.generation == self.generation {
                entry.pins -= 1;
                return;
            }
            entry.old_pins -= 1;
            if entry.old_pins == 0
                && let Some(waker) = entry.old_pins_gone.take()
            {
                waker.wake();
            }
        });
    }
}

#[cfg(test)]
mod tests;
