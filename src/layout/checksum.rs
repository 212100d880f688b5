//! The checksum of headers, payloads and chunks.

use xxhash_rust::xxh32::{Xxh32, xxh32};

/// Which checksum an object carries, in all three places: header, payload, chunks.
///
/// The kind is part of the object type in the header, so objects of both kinds are readable side
/// by side.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ChecksumKind {
    /// XXH32 with seed 0: what Mooncake's C++ backend writes and reads.
    #[default]
    Xxh32,
    /// CRC-32 (IEEE 802.3, as in zlib): faster, but an object type the C++ backend does not know.
    Crc32,
}

impl ChecksumKind {
    /// Checksum of the concatenation of `segments`, without concatenating them.
    pub fn of<'a>(self, segments: impl Iterator<Item = &'a [u8]>) -> u32 {
        let mut hasher = self.hasher();
        segments.for_each(|segment| hasher.update(segment));
        hasher.finish()
    }

    /// Checksum of `bytes`.
    pub fn of_slice(self, bytes: &[u8]) -> u32 {
        match self {
            ChecksumKind::Xxh32 => xxh32(bytes, XXH32_SEED),
            ChecksumKind::Crc32 => crc32fast::hash(bytes),
        }
    }

    /// A hasher that takes the bytes piece by piece.
    pub fn hasher(self) -> Hasher {
        match self {
            ChecksumKind::Xxh32 => Hasher(State::Xxh32(Xxh32::new(XXH32_SEED))),
            ChecksumKind::Crc32 => Hasher(State::Crc32(crc32fast::Hasher::new())),
        }
    }
}

/// A checksum in the making; see [`ChecksumKind::hasher`].
#[derive(Clone)]
pub struct Hasher(State);

impl Hasher {
    /// Appends `bytes` to what is hashed.
    pub fn update(&mut self, bytes: &[u8]) {
        match &mut self.0 {
            State::Xxh32(state) => state.update(bytes),
            State::Crc32(state) => state.update(bytes),
        }
    }

    /// The checksum of all bytes so far.
    pub fn finish(self) -> u32 {
        match self.0 {
            State::Xxh32(state) => state.digest(),
            State::Crc32(state) => state.finalize(),
        }
    }
}

impl std::fmt::Debug for Hasher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Hasher").field(&self.clone().finish()).finish()
    }
}

const XXH32_SEED: u32 = 0;

#[derive(Clone)]
enum State {
    Xxh32(Xxh32),
    Crc32(crc32fast::Hasher),
}
