//! How much is kept, and what leaves when that is reached.

use std::fmt;

use super::variables::Variables;
use crate::Result;

/// Objects kept at most, unless configured: Mooncake's `total_keys_limit`.
const DEFAULT_MAX_OBJECTS: u64 = 10_000_000;
/// Bytes kept at most, unless configured: Mooncake's `total_size_limit`, 2 TiB.
const DEFAULT_MAX_BYTES: u64 = 2 << 40;
/// Keys of one scan page, unless configured: Mooncake's `scanmeta_iterator_keys_limit`.
const DEFAULT_SCAN_PAGE: u32 = 20_000;

/// Which objects leave when a limit is reached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum EvictionPolicy {
    /// None: a full backend refuses new objects.
    None,
    /// The ones stored first.
    Fifo,
    /// The ones not used for longest; storing and loading are uses.
    #[default]
    Lru,
}

impl fmt::Display for EvictionPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            EvictionPolicy::None => "none",
            EvictionPolicy::Fifo => "fifo",
            EvictionPolicy::Lru => "lru",
        })
    }
}

/// Who else may use the namespace, and what this backend may do to it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Access {
    /// This backend owns the namespace; a second owner is refused, in this process too.
    #[default]
    Exclusive,
    /// Nothing is changed, and nothing is owned: beside an owner.
    ReadOnly,
    /// For experts who keep writers apart themselves: everything is allowed, nothing is owned.
    /// Two backends that write the same namespace lose objects of each other.
    Shared,
}

/// Limits and what happens at them. The limits are Mooncake's `FileStorageConfig`, not variables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LifecycleConfig {
    /// `MOONCAKE_NVME_KV_ACCESS`: `exclusive` (default), `read_only` or `shared`.
    pub access: Access,
    /// `MOONCAKE_NVME_KV_EVICTION_POLICY`: `lru` (default), `fifo` or `none`.
    pub eviction: EvictionPolicy,
    /// Objects kept at most.
    pub max_objects: u64,
    /// Bytes kept at most, as the device counts them: padded values, roots and chunks.
    pub max_bytes: u64,
    /// Keys in one page of a scan, never 0.
    pub scan_page: u32,
}

impl Default for LifecycleConfig {
    fn default() -> Self {
        LifecycleConfig {
            access: Access::default(),
            eviction: EvictionPolicy::default(),
            max_objects: DEFAULT_MAX_OBJECTS,
            max_bytes: DEFAULT_MAX_BYTES,
            scan_page: DEFAULT_SCAN_PAGE,
        }
    }
}

impl LifecycleConfig {
    pub(super) fn read(variables: &mut Variables<'_>) -> Result<Self> {
        let access = variables.choice(
            "MOONCAKE_NVME_KV_ACCESS",
            &[
                ("exclusive", Access::Exclusive),
                ("read_only", Access::ReadOnly),
                ("shared", Access::Shared),
            ],
        )?;
        let eviction = variables.choice(
            "MOONCAKE_NVME_KV_EVICTION_POLICY",
            &[
                ("lru", EvictionPolicy::Lru),
                ("fifo", EvictionPolicy::Fifo),
                ("none", EvictionPolicy::None),
            ],
        )?;
        Ok(LifecycleConfig { access, eviction, ..LifecycleConfig::default() })
    }
}
