//! The header of a root value: hostile bytes, and a valid header with one damaged byte.
#![no_main]

use libfuzzer_sys::arbitrary::{self, Arbitrary};
use libfuzzer_sys::fuzz_target;
use mooncake_nvme_kv::layout::{ChecksumKind, HEADER_LEN, Header, ObjectKind};

#[derive(Debug, Arbitrary)]
struct Input<'a> {
    manifest: bool,
    crc32: bool,
    payload_size: u32,
    verify_hash: [u8; 32],
    payload_checksum: u32,
    identity_metadata_size: u32,
    damaged_byte: usize,
    damage: u8,
    hostile: &'a [u8],
}

fuzz_target!(|input: Input| {
    if let Ok(header) = Header::parse(input.hostile) {
        assert!(input.hostile.starts_with(&header.encode()));
    }

    let header = Header {
        kind: if input.manifest { ObjectKind::Manifest } else { ObjectKind::Inline },
        checksum: if input.crc32 { ChecksumKind::Crc32 } else { ChecksumKind::Xxh32 },
        payload_size: input.payload_size,
        verify_hash: input.verify_hash,
        payload_checksum: input.payload_checksum,
        identity_metadata_size: input.identity_metadata_size,
    };
    let mut bytes = header.encode();
    assert_eq!(Header::parse(&bytes), Ok(header));

    bytes[input.damaged_byte % HEADER_LEN] ^= input.damage;
    assert_eq!(Header::parse(&bytes).is_ok(), input.damage == 0);
});
