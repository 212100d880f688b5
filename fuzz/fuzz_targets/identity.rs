//! A root value: hostile bytes, hostile identity metadata behind a valid header, and a valid root
//! with one damaged byte.
//!
//! The valid header is made here, because no mutation finds its checksum.
#![no_main]

use libfuzzer_sys::arbitrary::{self, Arbitrary};
use libfuzzer_sys::fuzz_target;
use mooncake_nvme_kv::layout::{
    ChecksumKind, Header, ObjectKeys, ObjectKind, Slot, parse_identity, parse_root_prefix,
    root_prefix,
};

const CHECKSUM: ChecksumKind = ChecksumKind::Xxh32;

#[derive(Debug, Arbitrary)]
struct Input<'a> {
    slot: u8,
    damaged_byte: usize,
    damage: u8,
    logical_key: &'a [u8],
    payload: &'a [u8],
    hostile: &'a [u8],
}

fuzz_target!(|input: Input| {
    let _ = parse_identity(input.hostile);
    let _ = parse_root_prefix(input.hostile);
    hostile_metadata(input.hostile);
    damaged_root(&input);
});

fn hostile_metadata(metadata: &[u8]) {
    let header = Header {
        kind: ObjectKind::Inline,
        checksum: CHECKSUM,
        payload_size: 0,
        verify_hash: [0; 32],
        payload_checksum: CHECKSUM.of_slice(&[]),
        identity_metadata_size: metadata.len() as u32,
    };
    let value = [&header.encode()[..], metadata].concat();
    if let Ok(prefix) = parse_root_prefix(&value) {
        assert_eq!((prefix.header, prefix.payload_offset), (header, value.len()));
        assert!(metadata.ends_with(prefix.logical_key));
        assert_eq!(prefix.payload(&value), Ok(&[][..]));
    }
}

fn damaged_root(input: &Input) {
    let slot = Slot::new(u32::from(input.slot) % 64).expect("slots are 0 to 63");
    let keys = ObjectKeys::new(input.logical_key);
    let mut value = root_prefix(
        ObjectKind::Inline,
        CHECKSUM,
        &keys,
        slot,
        input.logical_key,
        input.payload.len() as u32,
        CHECKSUM.of_slice(input.payload),
    );
    value.extend_from_slice(input.payload);

    let read = |value: &[u8]| {
        let prefix = parse_root_prefix(value).ok()?;
        let ours = prefix.belongs_to(&keys, slot, input.logical_key);
        let payload = prefix.payload(value).ok()?;
        ours.then(|| payload.to_vec())
    };
    assert_eq!(read(&value).as_deref(), Some(input.payload));

    let at = input.damaged_byte % value.len();
    assert_eq!(read(&value[..at]), None);
    value[at] ^= input.damage;
    assert_eq!(read(&value).is_some(), input.damage == 0);
}
