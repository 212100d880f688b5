//! The payload of a manifest root: where an object's chunks are.
//!
//! ```text
//! offset       size  field
//!      0          4  logical payload size
//!      4          4  chunk count
//!      8 + 24 i  16  physical key of chunk i
//!     24 + 24 i   4  size of chunk i
//!     28 + 24 i   4  checksum of chunk i
//! ```

use super::{ChunkIndex, LayoutError, ObjectKeys, PhysicalKey, Slot};

/// The chunks of one object, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Manifest {
    /// Bytes of the object.
    pub logical_size: u32,
    /// At least one; every chunk but the last has the size of the first, the last at most that.
    pub chunks: Vec<ChunkRecord>,
}

/// One chunk of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChunkRecord {
    /// Where the chunk is stored.
    pub key: PhysicalKey,
    /// Bytes of the chunk; the device may report a padded length.
    pub size: u32,
    /// Checksum of the chunk, of the kind that the root's header names.
    pub checksum: u32,
}

impl Manifest {
    /// The manifest's bytes.
    pub fn encode(&self) -> Vec<u8> {
        let count = u32::try_from(self.chunks.len()).unwrap_or(u32::MAX);
        let mut bytes = Vec::with_capacity(MANIFEST_FIXED_LEN + self.chunks.len() * RECORD_LEN);
        bytes.extend_from_slice(&self.logical_size.to_le_bytes());
        bytes.extend_from_slice(&count.to_le_bytes());
        for chunk in &self.chunks {
            bytes.extend_from_slice(&chunk.key.0);
            bytes.extend_from_slice(&chunk.size.to_le_bytes());
            bytes.extend_from_slice(&chunk.checksum.to_le_bytes());
        }
        bytes
    }

    /// Decodes a manifest, which `bytes` must be exactly.
    ///
    /// # Errors
    /// [`LayoutError::Truncated`], [`LayoutError::ManifestLength`],
    /// [`LayoutError::ManifestEmpty`], [`LayoutError::ChunkSize`],
    /// [`LayoutError::ManifestTotal`].
    pub fn parse(bytes: &[u8]) -> Result<Manifest, LayoutError> {
        let got = bytes.len() as u64;
        let Some((&[s0, s1, s2, s3, c0, c1, c2, c3], records)) =
            bytes.split_first_chunk::<MANIFEST_FIXED_LEN>()
        else {
            return Err(LayoutError::Truncated { need: MANIFEST_FIXED_LEN as u64, got });
        };
        let logical_size = u32::from_le_bytes([s0, s1, s2, s3]);
        let count = u32::from_le_bytes([c0, c1, c2, c3]);
        // Checked before anything is allocated for `count` records.
        let expected = manifest_len(count);
        if got != expected {
            return Err(LayoutError::ManifestLength { expected, got });
        }
        let mut chunks = Vec::with_capacity(records.len() / RECORD_LEN);
        let mut rest = records;
        while let Some((record, after)) = rest.split_first_chunk::<RECORD_LEN>() {
            chunks.push(ChunkRecord::decode(record));
            rest = after;
        }
        let manifest = Manifest { logical_size, chunks };
        manifest.check_sizes()?;
        Ok(manifest)
    }

    /// How many chunks a manifest of `payload_size` bytes lists.
    pub fn count_in(payload_size: u32) -> u32 {
        payload_size.saturating_sub(MANIFEST_FIXED_LEN as u32) / RECORD_LEN as u32
    }

    /// Bytes of every chunk but the last; 0 when there are no chunks.
    pub fn chunk_size(&self) -> u32 {
        self.chunks.first().map_or(0, |chunk| chunk.size)
    }

    /// Checks that every chunk is recorded at the key of its position in the object at `slot`.
    ///
    /// # Errors
    /// [`LayoutError::ChunkKey`] for the first that is not.
    pub fn verify_placement(&self, keys: &ObjectKeys, slot: Slot) -> Result<(), LayoutError> {
        for (index, chunk) in (0..).map(ChunkIndex).zip(&self.chunks) {
            let expected = keys.chunk(slot, index);
            if chunk.key != expected {
                return Err(LayoutError::ChunkKey { index, expected, got: chunk.key });
            }
        }
        Ok(())
    }

    fn check_sizes(&self) -> Result<(), LayoutError> {
        let Some((last, full)) = self.chunks.split_last() else {
            return Err(LayoutError::ManifestEmpty);
        };
        let expected = self.chunk_size();
        let mut total = 0;
        for (index, chunk) in (0..).map(ChunkIndex).zip(full) {
            if chunk.size != expected || chunk.size == 0 {
                return Err(LayoutError::ChunkSize { index, expected, got: chunk.size });
            }
            total += u64::from(chunk.size);
        }
        if last.size > expected || last.size == 0 {
            // The count was decoded from a u32.
            let index = ChunkIndex(full.len() as u32);
            return Err(LayoutError::ChunkSize { index, expected, got: last.size });
        }
        total += u64::from(last.size);
        if total != u64::from(self.logical_size) {
            return Err(LayoutError::ManifestTotal { expected: self.logical_size, got: total });
        }
        Ok(())
    }
}

impl ChunkRecord {
    fn decode(record: &[u8; RECORD_LEN]) -> ChunkRecord {
        let [key @ .., s0, s1, s2, s3, c0, c1, c2, c3] = *record;
        ChunkRecord {
            key: PhysicalKey(key),
            size: u32::from_le_bytes([s0, s1, s2, s3]),
            checksum: u32::from_le_bytes([c0, c1, c2, c3]),
        }
    }
}

/// Bytes of a manifest of `count` chunks.
pub(super) const fn manifest_len(count: u32) -> u64 {
    MANIFEST_FIXED_LEN as u64 + count as u64 * RECORD_LEN as u64
}

/// Bytes of a manifest before its records.
pub(super) const MANIFEST_FIXED_LEN: usize = 8;

/// Bytes of one chunk record.
pub(super) const RECORD_LEN: usize = 24;
