//! What every operation shares: the device, the layout's parameters, and what is known of keys.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::index::{Fingerprint, Footprint, Index};
use super::key_table::KeyTable;
use super::manifest_cache::ManifestCache;
use super::quota::Quota;
use super::sweep::Claims;
use super::sync::{AtomicBool, AtomicU64};
use crate::config::LifecycleConfig;
use crate::device::Executor;
use crate::layout::{ChecksumKind, KeyCodec, Limits, ObjectKeys, PhysicalKey, Slot};

/// Bytes that cached manifests may take: 4 a chunk and 160 an object.
const MANIFEST_CACHE_BYTES: usize = 32 << 20;

/// Time since some fixed moment; replaced in tests, which do not wait.
pub(super) type Clock = Arc<dyn Fn() -> Duration + Send + Sync>;

/// The machine's monotonic clock.
pub(super) fn system_clock() -> Clock {
    let start = Instant::now();
    Arc::new(move || start.elapsed())
}

/// One open backend's state.
pub(super) struct Core {
    pub(super) executor: Arc<dyn Executor>,
    pub(super) codec: Arc<dyn KeyCodec>,
    /// Checksum of new objects.
    pub(super) checksum: ChecksumKind,
    pub(super) clock: Clock,
    /// How long after it was given up a command of unknown outcome may still be executed.
    pub(super) settle: Duration,
    pub(super) table: KeyTable,
    pub(super) index: Index,
    pub(super) manifests: ManifestCache,
    pub(super) quota: Quota,
    pub(super) lifecycle: LifecycleConfig,
    pub(super) claims: Claims,
    /// When the last command of unknown outcome can no longer be executed, in microseconds of the
    /// clock, rounded up.
    pub(super) haunted_until: AtomicU64,
    /// Objects that were removed or evicted so far.
    pub(super) destroyed: AtomicU64,
    /// [`Backend::close`](super::Backend::close) was called: nothing long is begun.
    pub(super) closing: AtomicBool,
    /// The device has answered that it does not implement Exist.
    pub(super) no_exist: AtomicBool,
}

impl Core {
    pub(super) fn new(
        executor: Arc<dyn Executor>,
        codec: Arc<dyn KeyCodec>,
        checksum: ChecksumKind,
        clock: Clock,
        settle: Duration,
        lifecycle: LifecycleConfig,
    ) -> Self {
        Core {
            quota: Quota::new(&lifecycle, executor.capabilities()),
            lifecycle,
            executor,
            codec,
            checksum,
            clock,
            settle,
            table: KeyTable::new(),
            index: Index::new(),
            manifests: ManifestCache::new(MANIFEST_CACHE_BYTES),
            claims: Claims::default(),
            haunted_until: AtomicU64::new(0),
            destroyed: AtomicU64::new(0),
            closing: AtomicBool::new(false),
            no_exist: AtomicBool::new(false),
        }
    }

    pub(super) fn limits(&self) -> Limits {
        Limits { max_value_size: self.executor.capabilities().max_value_size }
    }

    /// What an object takes on the device, given the length of its root value and, if it is
    /// chunked, its size and chunk size.
    pub(super) fn footprint(&self, root_value_len: u64, shape: Option<(u32, u32)>) -> Footprint {
        let capabilities = self.executor.capabilities();
        let stored = |len: u64| u64::from(capabilities.stored_len(len.min(u32::MAX.into()) as u32));
        let root = stored(root_value_len);
        let Some((size, chunk_size)) = shape.filter(|(size, chunk)| *size > 0 && *chunk > 0) else {
            return Footprint { values: 1, bytes: root };
        };
        let chunks = size.div_ceil(chunk_size);
        let last = size - (chunks - 1) * chunk_size;
        let full = u64::from(chunks - 1) * stored(chunk_size.into());
        Footprint { values: chunks + 1, bytes: root + full + stored(last.into()) }
    }

    /// The keys of a logical key.
    pub(super) fn object<'a>(&self, key: &'a [u8]) -> Object<'a> {
        let keys = self.codec.object_keys(key);
        Object { key, fingerprint: Fingerprint::of(&keys), entry: keys.root(Slot::FIRST), keys }
    }
}

/// A logical key and what is derived from it.
pub(super) struct Object<'a> {
    pub(super) key: &'a [u8],
    pub(super) keys: ObjectKeys,
    /// Its place in the index and the manifest cache.
    pub(super) fingerprint: Fingerprint,
    /// Its place in the key table.
    pub(super) entry: PhysicalKey,
}

/// The key as messages show it: printable bytes as they are, others escaped, long keys cut.
impl std::fmt::Display for Object<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        const SHOWN: usize = 64;
        let head = &self.key[..self.key.len().min(SHOWN)];
        write!(f, "object \"{}\"", head.escape_ascii())?;
        if self.key.len() > SHOWN {
            write!(f, "... ({} bytes)", self.key.len())?;
        }
        Ok(())
    }
}
