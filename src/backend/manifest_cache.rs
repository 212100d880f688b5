//! Manifests of chunked objects, so that a warm read needs no root.
//!
//! Filled after writes and reads, replaced on a rewrite, bounded in bytes: the least recently used
//! leave first. Chunk keys follow from the logical key and are not kept.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::index::{Fingerprint, Root};
use super::sync::{Mutex, MutexGuard};
use crate::layout::{ChecksumKind, Manifest, Slot};

/// What a reader must know of a chunked object to load and verify it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct CachedManifest {
    /// The slot of root and chunks, and the object's size.
    pub(super) root: Root,
    /// Of every chunk but the last, which holds the rest.
    pub(super) chunk_size: u32,
    /// How the chunks are checksummed.
    pub(super) checksum: ChecksumKind,
    /// One checksum a chunk.
    pub(super) sums: Vec<u32>,
}

impl CachedManifest {
    /// What `manifest`, found in `slot`, says.
    pub(super) fn of(manifest: &Manifest, slot: Slot, checksum: ChecksumKind) -> Self {
        CachedManifest {
            root: Root { slot, size: manifest.logical_size },
            chunk_size: manifest.chunk_size(),
            checksum,
            sums: manifest.chunks.iter().map(|chunk| chunk.checksum).collect(),
        }
    }

    /// Size and chunk size of the object.
    pub(super) fn shape(&self) -> (u32, u32) {
        (self.root.size, self.chunk_size)
    }

    /// Memory that keeping it costs, bytes: its own and that of the two maps, roughly.
    fn cost(&self) -> usize {
        self.sums.len() * size_of::<u32>() + 160
    }
}

/// A bounded cache. Thread-safe.
#[derive(Debug)]
pub(super) struct ManifestCache {
    capacity: usize,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    bytes: usize,
    clock: u64,
    entries: HashMap<Fingerprint, (Arc<CachedManifest>, u64)>,
    /// Last use to key, oldest first.
    by_use: BTreeMap<u64, Fingerprint>,
}

impl ManifestCache {
    /// Keeps at most `capacity` bytes.
    pub(super) fn new(capacity: usize) -> Self {
        ManifestCache { capacity, inner: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// The manifest of `key`, if it is kept and describes an object of `size` bytes.
    pub(super) fn get(&self, key: &Fingerprint, size: u32) -> Option<Arc<CachedManifest>> {
        let inner = &mut *self.lock();
        let (manifest, last_use) = inner.entries.get_mut(key)?;
        if manifest.root.size != size {
            return None;
        }
        inner.by_use.remove(last_use);
        inner.clock += 1;
        *last_use = inner.clock;
        inner.by_use.insert(inner.clock, *key);
        Some(Arc::clone(manifest))
    }

    /// Keeps `manifest`, replacing what was kept for `key`.
    pub(super) fn put(&self, key: Fingerprint, manifest: CachedManifest) {
        let inner = &mut *self.lock();
        inner.remove(&key);
        let cost = manifest.cost();
        if cost > self.capacity {
            return;
        }
        inner.clock += 1;
        inner.by_use.insert(inner.clock, key);
        inner.entries.insert(key, (Arc::new(manifest), inner.clock));
        inner.bytes += cost;
        while inner.bytes > self.capacity {
            let Some((_, oldest)) = inner.by_use.first_key_value() else { break };
            let oldest = *oldest;
            inner.remove(&oldest);
        }
    }

    /// Forgets `key`.
    pub(super) fn remove(&self, key: &Fingerprint) {
        self.lock().remove(key);
    }
}

impl Inner {
    fn remove(&mut self, key: &Fingerprint) {
        if let Some((manifest, last_use)) = self.entries.remove(key) {
            self.by_use.remove(&last_use);
            self.bytes -= manifest.cost();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::ObjectKeys;

    fn key(n: u32) -> Fingerprint {
        Fingerprint::of(&ObjectKeys::new(&n.to_le_bytes()))
    }

    fn manifest(size: u32, chunks: usize) -> CachedManifest {
        CachedManifest {
            root: Root { slot: Slot::FIRST, size },
            chunk_size: 4096,
            checksum: ChecksumKind::Xxh32,
            sums: vec![7; chunks],
        }
    }

    #[test]
    fn a_manifest_answers_only_for_its_own_size_and_is_replaced() {
        let cache = ManifestCache::new(10_000);
        cache.put(key(1), manifest(5000, 2));
        assert!(cache.get(&key(1), 4999).is_none());
        assert_eq!(*cache.get(&key(1), 5000).unwrap(), manifest(5000, 2));
        cache.put(key(1), manifest(6000, 2));
        assert!(cache.get(&key(1), 5000).is_none());
        cache.remove(&key(1));
        assert!(cache.get(&key(1), 6000).is_none());
        assert_eq!(cache.lock().bytes, 0);
    }

    #[test]
    fn the_bytes_are_bounded_and_the_least_recently_used_leave_first() {
        let one = manifest(1, 100).cost();
        let cache = ManifestCache::new(3 * one);
        for n in 0..3 {
            cache.put(key(n), manifest(1, 100));
        }
        assert!(cache.get(&key(0), 1).is_some(), "used again");
        cache.put(key(3), manifest(1, 100));
        assert!(cache.get(&key(1), 1).is_none(), "the oldest left");
        assert!(cache.get(&key(0), 1).is_some());
        assert_eq!(cache.lock().bytes, 3 * one);
        cache.put(key(4), manifest(1, 1 << 20));
        assert!(cache.get(&key(4), 1).is_none(), "larger than the whole cache");
        let inner = cache.lock();
        assert_eq!(inner.by_use.len(), inner.entries.len());
    }
}
