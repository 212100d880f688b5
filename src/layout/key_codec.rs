//! From a logical key to the physical keys of its roots and chunks.
//!
//! Physical key = XXH64(input, seed 0) | XXH64(input, seed 1), where input = canonical identity |
//! u8 role | u32 slot | u8 has-chunk | u32 chunk index when has-chunk is 1. All physical keys of
//! one logical key share the identity, so it is hashed once and the state is cloned.

use xxhash_rust::xxh64::{Xxh64, xxh64};

use super::{ChunkIndex, PhysicalKey, Slot, canonical_identity};

/// How logical keys become physical ones.
///
/// There is one on-device format and so one codec, [`XxhKeyCodec`]; the trait is the place where a
/// test makes distinct logical keys collide.
pub trait KeyCodec: Send + Sync + std::fmt::Debug {
    /// The physical keys of `logical_key`.
    fn object_keys(&self, logical_key: &[u8]) -> ObjectKeys;
}

/// The key codec of the on-device format.
#[derive(Clone, Copy, Debug, Default)]
pub struct XxhKeyCodec;

impl KeyCodec for XxhKeyCodec {
    fn object_keys(&self, logical_key: &[u8]) -> ObjectKeys {
        ObjectKeys::new(logical_key)
    }
}

/// The physical keys of one logical key, and the hash that tells it from a colliding one.
#[derive(Clone)]
pub struct ObjectKeys {
    /// States of seeds 0 and 1 that have absorbed the canonical identity.
    prefix: [Xxh64; 2],
    verify_hash: [u8; 32],
}

impl ObjectKeys {
    /// Hashes `logical_key`'s canonical identity.
    pub fn new(logical_key: &[u8]) -> Self {
        let identity = canonical_identity(logical_key);
        let prefix = [0, 1].map(|seed| {
            let mut state = Xxh64::new(seed);
            state.update(&identity);
            state
        });
        let hashes =
            [prefix[0].digest(), prefix[1].digest(), xxh64(&identity, 2), xxh64(&identity, 3)];
        let mut verify_hash = [0; 32];
        for (bytes, hash) in verify_hash.chunks_exact_mut(8).zip(hashes) {
            bytes.copy_from_slice(&hash.to_le_bytes());
        }
        ObjectKeys { prefix, verify_hash }
    }

    /// The physical keys of `alias` with the verify hash of `logical_key`.
    ///
    /// For a [`KeyCodec`] that provokes collisions: 128-bit physical keys do not collide by
    /// themselves within the patience of a test.
    pub fn with_alias(logical_key: &[u8], alias: &[u8]) -> Self {
        let ObjectKeys { prefix, .. } = ObjectKeys::new(alias);
        let ObjectKeys { verify_hash, .. } = ObjectKeys::new(logical_key);
        ObjectKeys { prefix, verify_hash }
    }

    /// Key of the root at `slot`.
    pub fn root(&self, slot: Slot) -> PhysicalKey {
        let [s0, s1, s2, s3] = slot.get().to_le_bytes();
        self.physical_key(&[ROLE_ROOT, s0, s1, s2, s3, 0])
    }

    /// Key of the object's chunk `index` at `slot`.
    pub fn chunk(&self, slot: Slot, index: ChunkIndex) -> PhysicalKey {
        let [s0, s1, s2, s3] = slot.get().to_le_bytes();
        let [c0, c1, c2, c3] = index.0.to_le_bytes();
        self.physical_key(&[ROLE_CHUNK, s0, s1, s2, s3, 1, c0, c1, c2, c3])
    }

    /// XXH64 of the canonical identity with seeds 0, 1, 2, 3: stored in every root's header.
    pub fn verify_hash(&self) -> &[u8; 32] {
        &self.verify_hash
    }

    fn physical_key(&self, suffix: &[u8]) -> PhysicalKey {
        let mut key = [0; 16];
        for (bytes, prefix) in key.chunks_exact_mut(8).zip(&self.prefix) {
            let mut state = prefix.clone();
            state.update(suffix);
            bytes.copy_from_slice(&state.digest().to_le_bytes());
        }
        PhysicalKey(key)
    }
}

impl std::fmt::Debug for ObjectKeys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ObjectKeys")
            .field("first_root", &self.root(Slot::FIRST))
            .finish_non_exhaustive()
    }
}

const ROLE_ROOT: u8 = 1;
const ROLE_CHUNK: u8 = 2;
