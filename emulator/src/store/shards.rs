//! A concurrent map of keys in 64 shards, walkable in two orders.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BinaryHeap},
    ops::Bound,
    sync::{RwLock, RwLockReadGuard, RwLockWriteGuard},
};

use nvme_kv_command_set::Key;

use crate::sync::{read, write};

/// Order of a walk over all keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WalkOrder {
    /// Byte order.
    Sorted,
    /// Byte order from the start key on, then the keys before it.
    SortedWrapping,
    /// By shard, and in byte order within one: another order than byte order,
    /// and the same in every run and for every store.
    Sharded,
}

pub(crate) const SHARDS: usize = 64;

type Shard<V> = BTreeMap<Key, V>;

/// Ordered maps behind one lock each; a key always belongs to the same one.
pub(crate) struct Shards<V> {
    shards: Box<[RwLock<Shard<V>>]>,
}

/// Which of the [`SHARDS`] a key belongs to.
pub(crate) fn shard_of(key: &Key) -> usize {
    let mut padded = [0; 16];
    padded[..key.len()].copy_from_slice(key.as_bytes());
    let word = u128::from_be_bytes(padded);
    let folded = (word >> 64) as u64 ^ (word as u64).rotate_left(32);
    // Fibonacci hashing: the top bits of a product with 2^64 / golden ratio.
    (folded.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - SHARDS.ilog2())) as usize
}

impl<V> Shards<V> {
    pub(crate) fn new() -> Self {
        Self { shards: (0..SHARDS).map(|_| RwLock::new(BTreeMap::new())).collect() }
    }

    /// The shard of a key, for reading.
    pub(crate) fn read(&self, key: &Key) -> RwLockReadGuard<'_, Shard<V>> {
        read(&self.shards[shard_of(key)])
    }

    /// The shard of a key, for writing.
    pub(crate) fn write(&self, key: &Key) -> RwLockWriteGuard<'_, Shard<V>> {
        write(&self.shards[shard_of(key)])
    }

    /// Visits keys from `start` (included if present) on, each once, until
    /// `visit` answers false. Sorted walks see one state of the whole map.
    pub(crate) fn walk(
        &self,
        order: WalkOrder,
        start: Option<&Key>,
        visit: &mut dyn FnMut(&Key) -> bool,
    ) {
        let from_start = (start.map_or(Bound::Unbounded, Bound::Included), Bound::Unbounded);
        match order {
            WalkOrder::Sorted => {
                merge(&self.read_all(), from_start, visit);
            }
            WalkOrder::SortedWrapping => {
                let shards = self.read_all();
                if merge(&shards, from_start, visit)
                    && let Some(start) = start
                {
                    merge(&shards, (Bound::Unbounded, Bound::Excluded(start)), visit);
                }
            }
            WalkOrder::Sharded => {
                let first = start.map_or(0, shard_of);
                for (index, shard) in self.shards.iter().enumerate().skip(first) {
                    let range = match start {
                        Some(start) if index == first => Bound::Included(start),
                        _ => Bound::Unbounded,
                    };
                    if !read(shard).range((range, Bound::Unbounded)).all(|(key, _)| visit(key)) {
                        return;
                    }
                }
            }
        }
    }

    fn read_all(&self) -> Vec<RwLockReadGuard<'_, Shard<V>>> {
        self.shards.iter().map(read).collect()
    }
}

/// Visits the keys of all shards in byte order; false when `visit` stopped it.
fn merge<V>(
    shards: &[RwLockReadGuard<'_, Shard<V>>],
    range: (Bound<&Key>, Bound<&Key>),
    visit: &mut dyn FnMut(&Key) -> bool,
) -> bool {
    let mut cursors: Vec<_> =
        shards.iter().map(|shard| shard.range(range).map(|(key, _)| *key)).collect();
    let mut heads: BinaryHeap<_> = cursors
        .iter_mut()
        .enumerate()
        .filter_map(|(index, cursor)| cursor.next().map(|key| Reverse((key, index))))
        .collect();
    while let Some(Reverse((key, index))) = heads.pop() {
        if !visit(&key) {
            return false;
        }
        if let Some(next) = cursors[index].next() {
            heads.push(Reverse((next, index)));
        }
    }
    true
}
