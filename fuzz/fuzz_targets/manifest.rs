//! A manifest: hostile bytes, and a valid manifest with one damaged byte.
//!
//! The valid one is made here, because mutations hardly find sizes that add up.
#![no_main]

use libfuzzer_sys::arbitrary::{self, Arbitrary};
use libfuzzer_sys::fuzz_target;
use mooncake_nvme_kv::layout::{ChunkIndex, ChunkRecord, Manifest, ObjectKeys, Slot};

#[derive(Debug, Arbitrary)]
struct Input<'a> {
    chunk_size: u16,
    last_size: u16,
    full_chunks: u8,
    checksum: u32,
    damaged_byte: usize,
    damage: u8,
    hostile: &'a [u8],
}

fuzz_target!(|input: Input| {
    let keys = ObjectKeys::new(b"key");
    let slot = Slot::new(0).expect("slot 0 exists");
    check(input.hostile, &keys, slot);

    let full = u32::from(input.chunk_size) + 1;
    let last = u32::from(input.last_size) % full + 1;
    let sizes = std::iter::repeat_n(full, input.full_chunks.into()).chain([last]);
    let chunks: Vec<_> = (0..)
        .zip(sizes)
        .map(|(index, size)| ChunkRecord {
            key: keys.chunk(slot, ChunkIndex(index)),
            size,
            checksum: input.checksum,
        })
        .collect();
    let logical_size = chunks.iter().map(|chunk| chunk.size).sum();
    let manifest = Manifest { logical_size, chunks };
    let mut bytes = manifest.encode();
    assert_eq!(Manifest::parse(&bytes).as_ref(), Ok(&manifest));
    assert_eq!(manifest.verify_placement(&keys, slot), Ok(()));

    let at = input.damaged_byte % bytes.len();
    bytes[at] ^= input.damage;
    check(&bytes, &keys, slot);
});

fn check(bytes: &[u8], keys: &ObjectKeys, slot: Slot) {
    let Ok(manifest) = Manifest::parse(bytes) else { return };
    assert_eq!(manifest.encode(), bytes);
    let total: u64 = manifest.chunks.iter().map(|chunk| u64::from(chunk.size)).sum();
    assert_eq!(total, u64::from(manifest.logical_size));
    let in_place = (0..)
        .zip(&manifest.chunks)
        .all(|(index, chunk)| chunk.key == keys.chunk(slot, ChunkIndex(index)));
    assert_eq!(manifest.verify_placement(keys, slot).is_ok(), in_place);
}
