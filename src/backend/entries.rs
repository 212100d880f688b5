//! A hash map from fingerprints to entries that takes few bytes a key at any size.
//!
//! The entries lie densely in segments; a table of 4-byte slots leads to them. Growing copies
//! only the slots, and at most one segment of entries is unused. A slot keeps a tag of its
//! key, so that a lookup rarely touches an entry that is not the one it looks for.

use super::index::{Entry, Fingerprint};

/// Entries that are allocated together.
const SEGMENT: usize = 128;
/// A slot's lower bits: the position of its entry plus 1; 0 is no entry. 256 maps of this size
/// hold 2^32 keys, the most that Identify can say a namespace takes.
const POSITION_BITS: u32 = 24;
const POSITION: u32 = (1 << POSITION_BITS) - 1;
const FEWEST_SLOTS: usize = 16;

/// The map.
#[derive(Debug, Default)]
pub(super) struct Entries {
    /// A power of two, at most three quarters taken; collisions go to the next slot.
    slots: Vec<u32>,
    segments: Vec<Vec<(Fingerprint, Entry)>>,
    len: usize,
}

impl Entries {
    pub(super) fn get(&self, key: &Fingerprint) -> Option<&Entry> {
        let (_, position) = self.find(key)?;
        Some(&self.at(position).1)
    }

    pub(super) fn get_mut(&mut self, key: &Fingerprint) -> Option<&mut Entry> {
        let (_, position) = self.find(key)?;
        Some(&mut self.segments[position / SEGMENT][position % SEGMENT].1)
    }

    pub(super) fn insert(&mut self, key: Fingerprint, entry: Entry) {
        if let Some(known) = self.get_mut(&key) {
            *known = entry;
            return;
        }
        if (self.len + 1) * 4 > self.slots.len() * 3 {
            self.grow();
        }
        if self.len.is_multiple_of(SEGMENT) {
            self.segments.push(Vec::with_capacity(SEGMENT));
        }
        self.segments[self.len / SEGMENT].push((key, entry));
        self.link(self.len);
        self.len += 1;
    }

    pub(super) fn remove(&mut self, key: &Fingerprint) {
        let Some((slot, position)) = self.find(key) else { return };
        self.unlink(slot);
        // The last entry takes the place of the removed one.
        let last = self.len - 1;
        if position != last {
            let moved = *self.at(last);
            if let Some((slot, _)) = self.find(&moved.0) {
                self.slots[slot] = Entries::slot_of(&moved.0, position);
            }
            self.segments[position / SEGMENT][position % SEGMENT] = moved;
        }
        self.segments[last / SEGMENT].pop();
        if last.is_multiple_of(SEGMENT) {
            self.segments.pop();
        }
        self.len = last;
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &(Fingerprint, Entry)> {
        self.segments.iter().flatten()
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Entry> {
        self.segments.iter_mut().flatten().map(|(_, entry)| entry)
    }

    fn at(&self, position: usize) -> &(Fingerprint, Entry) {
        &self.segments[position / SEGMENT][position % SEGMENT]
    }

    /// Where a key's search begins.
    fn home(&self, key: &Fingerprint) -> usize {
        key.hash() as usize & (self.slots.len() - 1)
    }

    fn slot_of(key: &Fingerprint, position: usize) -> u32 {
        let tag = (key.hash() >> (64 - (32 - POSITION_BITS))) as u32;
        tag << POSITION_BITS | (position as u32 + 1)
    }

    /// Slot and position of a key.
    fn find(&self, key: &Fingerprint) -> Option<(usize, usize)> {
        if self.slots.is_empty() {
            return None;
        }
        let tag = Entries::slot_of(key, 0) & !POSITION;
        let mut slot = self.home(key);
        loop {
            let taken = self.slots[slot];
            if taken == 0 {
                return None;
            }
            let position = ((taken & POSITION) - 1) as usize;
            if taken & !POSITION == tag && self.at(position).0 == *key {
                return Some((slot, position));
            }
            slot = (slot + 1) & (self.slots.len() - 1);
        }
    }

    fn link(&mut self, position: usize) {
        let key = self.at(position).0;
        let mut slot = self.home(&key);
        while self.slots[slot] != 0 {
            slot = (slot + 1) & (self.slots.len() - 1);
        }
        self.slots[slot] = Entries::slot_of(&key, position);
    }

    /// Empties a slot and moves later ones up, so that no search ends too early.
    fn unlink(&mut self, slot: usize) {
        let mask = self.slots.len() - 1;
        let (mut hole, mut next) = (slot, slot);
        loop {
            next = (next + 1) & mask;
            let taken = self.slots[next];
            if taken == 0 {
                break;
            }
            let home = self.home(&self.at(((taken & POSITION) - 1) as usize).0);
            // It may move if its search passes the hole.
            if (next.wrapping_sub(home) & mask) >= (next.wrapping_sub(hole) & mask) {
                self.slots[hole] = taken;
                hole = next;
            }
        }
        self.slots[hole] = 0;
    }

    fn grow(&mut self) {
        assert!(self.len < POSITION as usize, "more keys than a namespace can hold");
        let slots = (self.slots.len() * 2).max(FEWEST_SLOTS);
        // The old slots go first: both together would be the peak.
        self.slots = Vec::new();
        self.slots = vec![0; slots];
        for position in 0..self.len {
            self.link(position);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    #[test]
    fn it_holds_what_a_standard_map_holds_after_any_insertions_and_removals() {
        let mut entries = Entries::default();
        let mut model = HashMap::new();
        let mut state = 0x1234_5678_9ABC_DEF1u64;
        let mut random = |limit: u64| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 11) % limit
        };
        for step in 0..60_000u64 {
            // Few distinct hashes, so that searches collide; the space shrinks and grows.
            let space = if step / 10_000 % 2 == 0 { 3000 } else { 300 };
            let n = random(space);
            let mut bytes = [0; 16];
            bytes[..8].copy_from_slice(&n.to_le_bytes());
            bytes[8..].copy_from_slice(&(n % 97 * 0x0101_0101_0101_0101).to_le_bytes());
            let key = Fingerprint::from_bytes(bytes);
            if random(3) == 0 {
                entries.remove(&key);
                model.remove(&key);
            } else {
                entries.insert(key, Entry::with_last_use(step));
                model.insert(key, step);
            }
            assert_eq!(entries.len(), model.len());
            assert_eq!(entries.get(&key).map(Entry::last_use), model.get(&key).copied());
        }
        assert_eq!(entries.iter().count(), model.len());
        for (key, entry) in entries.iter() {
            assert_eq!(model.get(key), Some(&entry.last_use()));
        }
        for key in model.keys().copied().collect::<Vec<_>>() {
            entries.remove(&key);
        }
        assert!(entries.len() == 0 && entries.segments.is_empty());
    }
}
