//! How many commands the kernel has room for, shared between the calls of one executor.
//!
//! A command that finds no room makes the kernel start a thread, which waits in its place and
//! outlives the ring. A call's share is what it may have in flight.

use std::sync::Mutex;

use super::lock;

/// Room that calls take shares of.
#[derive(Debug)]
pub(in crate::device) struct Room {
    free: Mutex<u32>,
}

/// A call's share; given back when dropped.
#[derive(Debug)]
pub(super) struct Share<'r> {
    room: &'r Room,
    taken: u32,
    size: u32,
}

impl Room {
    /// Room for `commands` commands.
    pub(in crate::device) fn new(commands: u32) -> Self {
        Room { free: Mutex::new(commands) }
    }

    /// A share of at most `wanted` commands and of at most half of what is free, so that there is
    /// something left for whoever comes next. At least one command.
    pub(super) fn share(&self, wanted: u32) -> Share<'_> {
        let mut free = lock(&self.free);
        let taken = wanted.min(free.div_ceil(2));
        *free -= taken;
        Share { room: self, taken, size: taken.max(1) }
    }
}

impl Share<'_> {
    pub(super) fn size(&self) -> u32 {
        self.size
    }
}

impl Drop for Share<'_> {
    fn drop(&mut self) {
        *lock(&self.room.free) += self.taken;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_call_gets_a_share_and_gives_it_back() {
        let room = Room::new(100);
        let first = room.share(64);
        let second = room.share(64);
        assert_eq!((first.size(), second.size()), (50, 25));
        let small = room.share(4);
        assert_eq!(small.size(), 4);
        drop((first, second, small));
        assert_eq!(room.share(10).size(), 10);
        assert_eq!(room.share(u32::MAX).size(), 50);
    }

    #[test]
    fn a_call_that_finds_no_room_may_send_one_command_at_a_time() {
        let room = Room::new(1);
        let all = room.share(8);
        assert_eq!(room.share(8).size(), 1);
        assert_eq!(room.share(8).size(), 1);
        drop(all);
        assert_eq!(room.share(8).taken, 1);
    }
}
