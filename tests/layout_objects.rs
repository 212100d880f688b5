//! What a root value proves about the object it claims to be.

use mooncake_nvme_kv::layout::{
    ChecksumKind, ChecksumPart, ChunkIndex, ChunkRecord, Header, KeyCodec, LayoutError, MAX_SLOTS,
    Manifest, ObjectKeys, ObjectKind, Slot, XxhKeyCodec, canonical_identity, carried_key,
    parse_identity, parse_root_prefix, root_prefix,
};
use mooncake_nvme_kv::{Error, ErrorCode};

const KINDS: [ChecksumKind; 2] = [ChecksumKind::Xxh32, ChecksumKind::Crc32];
const KEY: &[u8] = b"tenant\0user key";

#[test]
fn slots_are_the_numbers_below_64() {
    let numbers: Vec<u32> = Slot::all().map(Slot::get).collect();
    assert_eq!(numbers, (0..64).collect::<Vec<_>>());
    assert_eq!(Slot::new(63).map(Slot::get), Some(63));
    for beyond in [MAX_SLOTS, 255, 256, u32::MAX] {
        assert_eq!(Slot::new(beyond), None);
    }
}

#[test]
fn all_physical_keys_of_a_key_are_distinct() {
    let keys = XxhKeyCodec.object_keys(KEY);
    let mut all: Vec<_> = Slot::all()
        .flat_map(|slot| {
            let chunks = (0..20).map(ChunkIndex).map(move |index| (slot, Some(index)));
            chunks.chain([(slot, None)])
        })
        .map(|(slot, index)| match index {
            Some(index) => keys.chunk(slot, index),
            None => keys.root(slot),
        })
        .collect();
    let count = all.len();
    all.sort();
    all.dedup();
    assert_eq!(all.len(), count);
}

#[test]
fn keys_of_every_length_hash_as_if_each_input_were_hashed_from_its_start() {
    // XXH64 works in stripes of 32 bytes; 0..=100 ends the identity at every place of a stripe.
    for len in 0..=100_u8 {
        let key: Vec<u8> = (0..len).collect();
        let keys = XxhKeyCodec.object_keys(&key);
        let hash = |input: &[u8], seed| xxhash_rust::xxh64::xxh64(input, seed).to_le_bytes();
        let identity = canonical_identity(&key);
        let verify_hash = [0, 1, 2, 3].map(|seed| hash(&identity, seed)).concat();
        assert_eq!(keys.verify_hash()[..], verify_hash);

        let root = [&identity[..], &[1], &[63, 0, 0, 0], &[0]].concat();
        assert_eq!(keys.root(slot(63)).0[..], [hash(&root, 0), hash(&root, 1)].concat());
        let chunk = [&identity[..], &[2], &[9, 0, 0, 0], &[1], &[4, 3, 2, 1]].concat();
        let key = keys.chunk(slot(9), ChunkIndex(0x0102_0304));
        assert_eq!(key.0[..], [hash(&chunk, 0), hash(&chunk, 1)].concat());
    }
}

#[test]
fn a_checksum_does_not_depend_on_how_the_bytes_are_cut_into_segments() {
    let bytes: Vec<u8> = (0..1000_u32).map(|i| (i * i) as u8).collect();
    for kind in KINDS {
        let whole = kind.of_slice(&bytes);
        for size in [1, 3, 16, 17, 999, 1000] {
            assert_eq!(kind.of(bytes.chunks(size)), whole, "{kind:?} in segments of {size}");
        }
        let mut hasher = kind.hasher();
        hasher.update(&bytes[..10]);
        hasher.update(&[]);
        hasher.update(&bytes[10..]);
        assert_eq!(hasher.finish(), whole);
        assert_eq!(kind.of(std::iter::empty()), kind.of_slice(&[]));
    }
}

#[test]
fn crc32_is_the_ieee_polynomial() {
    // The check value that catalogues of CRCs list for CRC-32/ISO-HDLC.
    assert_eq!(ChecksumKind::Crc32.of_slice(b"123456789"), 0xcbf4_3926);
}

#[test]
fn a_crc32_object_is_marked_in_its_type_and_carries_crc32_in_header_and_payload() {
    for (kind, code) in [(ObjectKind::Inline, 0x101_u32), (ObjectKind::Manifest, 0x102)] {
        let root = root_value(kind, ChecksumKind::Crc32, Slot::FIRST, KEY, b"123456789");
        assert_eq!(root[4..8], code.to_le_bytes());
        assert_eq!(root[44..48], 0xcbf4_3926_u32.to_le_bytes());
        let mut header = root[..56].to_vec();
        header[48..52].fill(0);
        assert_eq!(root[48..52], crc32fast::hash(&header).to_le_bytes());
    }
}

#[test]
fn objects_of_both_checksum_kinds_are_readable() {
    for checksum in KINDS {
        for kind in [ObjectKind::Inline, ObjectKind::Manifest] {
            let value = root_value(kind, checksum, slot(7), KEY, b"payload");
            let root = parse_root_prefix(&value).expect("a valid root");
            assert_eq!((root.header.kind, root.header.checksum), (kind, checksum));
            assert_eq!(root.slot, slot(7));
            assert_eq!(root.logical_key, KEY);
            assert_eq!(root.physical_key, XxhKeyCodec.object_keys(KEY).root(slot(7)));
            assert_eq!(root.payload(&value), Ok(&b"payload"[..]));
        }
    }
}

#[test]
fn an_empty_object_is_a_root_with_payload_size_0() {
    for checksum in KINDS {
        let value = root_value(ObjectKind::Inline, checksum, Slot::FIRST, b"", b"");
        let root = parse_root_prefix(&value).expect("a valid root");
        assert_eq!(root.header.payload_size, 0);
        assert_eq!(root.value_len(), 81);
        assert_eq!(root.payload(&value), Ok(&b""[..]));
        assert!(root.belongs_to(&XxhKeyCodec.object_keys(b""), Slot::FIRST, b""));
    }
}

#[test]
fn an_unknown_object_type_is_a_read_failure_that_names_the_type() {
    for code in [0_u32, 3, 0x100, 0x103, 0x201, u32::MAX] {
        let mut value = root_value(ObjectKind::Inline, KINDS[0], Slot::FIRST, KEY, b"x");
        value[4..8].copy_from_slice(&code.to_le_bytes());
        let error = parse_root_prefix(&value).expect_err("unknown type");
        assert_eq!(error, LayoutError::UnknownType { got: code });
        assert_eq!(error.code(), ErrorCode::FileReadFail);
        assert!(Error::from(error).message().contains(&format!("{code:#x}")));
    }
}

#[test]
fn a_payload_that_begins_with_the_magic_is_as_long_as_the_header_says() {
    let inner = root_value(ObjectKind::Inline, KINDS[0], Slot::FIRST, KEY, b"inner");
    let mut value = root_value(ObjectKind::Inline, KINDS[0], Slot::FIRST, KEY, &inner);
    let len = value.len();
    value.resize(4096, 0);
    let root = parse_root_prefix(&value).expect("a valid root");
    assert_eq!(root.value_len(), len as u64);
    assert_eq!(root.payload(&value), Ok(&inner[..]));
}

#[test]
fn a_root_cut_short_says_how_many_bytes_it_needs() {
    let value = root_value(ObjectKind::Inline, KINDS[0], Slot::FIRST, KEY, b"some payload");
    let payload_at = value.len() - 12;
    for cut in 0..value.len() {
        let bytes = &value[..cut];
        let got = cut as u64;
        match parse_root_prefix(bytes) {
            Err(error) => {
                let need = if cut < 56 { 56 } else { payload_at as u64 };
                assert_eq!(error, LayoutError::Truncated { need, got });
            }
            Ok(root) => {
                assert!(cut >= payload_at);
                let need = value.len() as u64;
                assert_eq!(root.value_len(), need);
                assert_eq!(root.payload(bytes), Err(LayoutError::Truncated { need, got }));
            }
        }
    }
}

#[test]
fn no_single_flipped_bit_goes_unnoticed() {
    let keys = XxhKeyCodec.object_keys(KEY);
    for checksum in KINDS {
        let value = root_value(ObjectKind::Inline, checksum, slot(5), KEY, b"some payload");
        for bit in 0..value.len() * 8 {
            let mut damaged = value.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            let accepted = parse_root_prefix(&damaged).is_ok_and(|root| {
                root.belongs_to(&keys, slot(5), KEY) && root.payload(&damaged).is_ok()
            });
            assert!(!accepted, "{checksum:?}, bit {bit}");
        }
    }
}

#[test]
fn damage_of_header_and_payload_is_a_checksum_mismatch_of_that_part() {
    let value = root_value(ObjectKind::Inline, KINDS[0], Slot::FIRST, KEY, b"some payload");
    let mut damaged = value.clone();
    damaged[8] ^= 1;
    let error = parse_root_prefix(&damaged).expect_err("damaged header");
    assert!(
        matches!(error, LayoutError::ChecksumMismatch { part: ChecksumPart::Header, .. }),
        "{error}"
    );
    assert_eq!(error.code(), ErrorCode::ChecksumMismatch);

    let mut damaged = value.clone();
    *damaged.last_mut().expect("not empty") ^= 1;
    let root = parse_root_prefix(&damaged).expect("an undamaged prefix");
    assert_eq!(
        root.payload(&damaged),
        Err(LayoutError::ChecksumMismatch {
            part: ChecksumPart::Payload,
            expected: KINDS[0].of_slice(b"some payload"),
            got: KINDS[0].of_slice(b"some payloae"),
        })
    );
}

#[test]
fn a_root_belongs_to_its_own_key_and_slot_only() {
    let keys = XxhKeyCodec.object_keys(KEY);
    let value = root_value(ObjectKind::Inline, KINDS[0], slot(2), KEY, b"x");
    let root = parse_root_prefix(&value).expect("a valid root");
    assert!(root.belongs_to(&keys, slot(2), KEY));
    assert!(!root.belongs_to(&keys, slot(3), KEY), "a root copied to another slot");
    let other = b"tenant\0user kez";
    assert!(!root.belongs_to(&XxhKeyCodec.object_keys(other), slot(2), other), "another key");
    assert!(!root.belongs_to(&keys, slot(2), other), "another key with the same hashes");

    let hashed_otherwise = ObjectKeys::with_alias(other, KEY);
    assert_eq!(hashed_otherwise.root(slot(2)), keys.root(slot(2)));
    assert!(!root.belongs_to(&hashed_otherwise, slot(2), KEY), "another verify hash");

    let mut moved = value.clone();
    moved[56] ^= 1;
    let moved = parse_root_prefix(&moved).expect("only the stored physical key differs");
    assert!(!moved.belongs_to(&keys, slot(2), KEY), "a root that names another place");
}

#[test]
fn a_colliding_key_has_the_same_places_and_another_verify_hash() {
    let mine = ObjectKeys::with_alias(b"mine", b"shared");
    let theirs = ObjectKeys::with_alias(b"theirs", b"shared");
    for slot in Slot::all() {
        assert_eq!(mine.root(slot), theirs.root(slot));
        assert_eq!(mine.chunk(slot, ChunkIndex(3)), theirs.chunk(slot, ChunkIndex(3)));
    }
    assert_eq!(mine.root(Slot::FIRST), ObjectKeys::new(b"shared").root(Slot::FIRST));
    assert_eq!(mine.verify_hash(), ObjectKeys::new(b"mine").verify_hash());
    assert_ne!(mine.verify_hash(), theirs.verify_hash());

    let checksum = ChecksumKind::Xxh32;
    let prefix = root_prefix(ObjectKind::Inline, checksum, &theirs, Slot::FIRST, b"theirs", 0, 0);
    let root = parse_root_prefix(&prefix).expect("a valid root");
    assert!(root.belongs_to(&theirs, Slot::FIRST, b"theirs"));
    assert!(!root.belongs_to(&mine, Slot::FIRST, b"mine"));
}

#[test]
fn an_identity_is_parsed_only_when_version_and_length_agree() {
    let identity = canonical_identity(KEY);
    assert_eq!(parse_identity(&identity), Ok(KEY));
    for cut in 0..5 {
        let error = LayoutError::Truncated { need: 5, got: cut as u64 };
        assert_eq!(parse_identity(&identity[..cut]), Err(error));
    }
    let mut newer = identity.clone();
    newer[0] = 2;
    assert_eq!(parse_identity(&newer), Err(LayoutError::IdentityVersion { offset: 0, got: 2 }));
    let mut longer = identity.clone();
    longer.push(0);
    for bytes in [&identity[..identity.len() - 1], &longer] {
        let got = bytes.len() as u64 - 5;
        let error = LayoutError::IdentityLength { offset: 1, expected: KEY.len() as u32, got };
        assert_eq!(parse_identity(bytes), Err(error));
    }
}

#[test]
fn identity_metadata_too_small_for_its_fixed_fields_is_refused() {
    for size in [0, 1, 20, 24] {
        let header = Header {
            kind: ObjectKind::Inline,
            checksum: ChecksumKind::Xxh32,
            payload_size: 0,
            verify_hash: [0; 32],
            payload_checksum: 0,
            identity_metadata_size: size,
        };
        let mut value = header.encode().to_vec();
        value.resize(4096, 1);
        let error = LayoutError::IdentitySize { expected: 25, got: size };
        assert_eq!(parse_root_prefix(&value), Err(error));
    }
}

#[test]
fn a_manifest_with_a_chunk_at_another_place_is_refused() {
    let keys = XxhKeyCodec.object_keys(KEY);
    let manifest = manifest(&[10, 10, 3]);
    assert_eq!(Manifest::parse(&manifest.encode()), Ok(manifest.clone()));
    assert_eq!(manifest.chunk_size(), 10);
    manifest.verify_placement(&keys, Slot::FIRST).expect("every chunk at its place");

    let other_slot = manifest.verify_placement(&keys, slot(1)).expect_err("another slot");
    assert_eq!(other_slot.code(), ErrorCode::FileReadFail);
    let mut swapped = manifest.clone();
    swapped.chunks.swap(1, 2);
    assert_eq!(
        swapped.verify_placement(&keys, Slot::FIRST),
        Err(LayoutError::ChunkKey {
            index: ChunkIndex(1),
            expected: keys.chunk(Slot::FIRST, ChunkIndex(1)),
            got: keys.chunk(Slot::FIRST, ChunkIndex(2)),
        })
    );
}

#[test]
fn a_manifest_whose_sizes_do_not_add_up_is_refused() {
    let mut short = manifest(&[10, 10, 3]);
    short.logical_size = 22;
    let error = LayoutError::ManifestTotal { expected: 22, got: 23 };
    assert_eq!(Manifest::parse(&short.encode()), Err(error));

    // 2^32 + 5 in all, which a 32-bit sum would take for 5.
    let mut wrapped = manifest(&[0x8000_0000, 0x8000_0000, 5]);
    wrapped.logical_size = 5;
    let error = LayoutError::ManifestTotal { expected: 5, got: 0x1_0000_0005 };
    assert_eq!(Manifest::parse(&wrapped.encode()), Err(error));
}

#[test]
fn only_the_last_chunk_may_be_smaller_and_none_may_be_empty() {
    for (sizes, index) in [
        (&[10, 9, 10][..], 1),
        (&[10, 10, 11], 2),
        (&[10, 10, 0], 2),
        (&[0, 0, 0], 0),
        (&[0], 0),
        (&[3, 10], 1),
    ] {
        let error = Manifest::parse(&manifest(sizes).encode()).expect_err("impossible sizes");
        let (expected, got) = (sizes[0], sizes[index as usize]);
        assert_eq!(error, LayoutError::ChunkSize { index: ChunkIndex(index), expected, got });
    }
    assert_eq!(Manifest::parse(&manifest(&[]).encode()), Err(LayoutError::ManifestEmpty));
}

#[test]
fn a_root_whose_header_is_damaged_still_carries_the_key_it_is_stored_under() {
    let mut value = root_value(ObjectKind::Inline, ChecksumKind::Xxh32, slot(9), KEY, b"payload");
    value[..56].fill(0xFF);
    let key = XxhKeyCodec.object_keys(KEY).root(slot(9));
    assert_eq!(carried_key(&value), Some(key));
    assert_eq!(carried_key(&value[..72]), Some(key));
    assert_eq!(carried_key(&value[..71]), None);
    assert_eq!(carried_key(&[]), None);
}

#[test]
fn a_manifest_is_exactly_as_long_as_its_chunk_count_demands() {
    let bytes = manifest(&[10, 3]).encode();
    for cut in 0..bytes.len() {
        let got = cut as u64;
        let error = if cut < 8 {
            LayoutError::Truncated { need: 8, got }
        } else {
            LayoutError::ManifestLength { expected: 56, got }
        };
        assert_eq!(Manifest::parse(&bytes[..cut]), Err(error));
    }
    let mut counted = bytes.clone();
    counted[4..8].fill(0xff);
    let expected = 8 + 24 * 0xffff_ffff;
    let error = LayoutError::ManifestLength { expected, got: 56 };
    assert_eq!(Manifest::parse(&counted), Err(error));
}

fn manifest(sizes: &[u32]) -> Manifest {
    let keys = XxhKeyCodec.object_keys(KEY);
    let chunks = (0..)
        .zip(sizes)
        .map(|(i, &size)| ChunkRecord {
            key: keys.chunk(Slot::FIRST, ChunkIndex(i)),
            size,
            checksum: i,
        })
        .collect();
    let logical_size = sizes.iter().fold(0_u32, |sum, &size| sum.wrapping_add(size));
    Manifest { logical_size, chunks }
}

fn root_value(
    kind: ObjectKind,
    checksum: ChecksumKind,
    slot: Slot,
    key: &[u8],
    payload: &[u8],
) -> Vec<u8> {
    let keys = XxhKeyCodec.object_keys(key);
    let len = u32::try_from(payload.len()).expect("a small payload");
    let mut value = root_prefix(kind, checksum, &keys, slot, key, len, checksum.of_slice(payload));
    value.extend_from_slice(payload);
    value
}

fn slot(number: u32) -> Slot {
    Slot::new(number).expect("a slot")
}
