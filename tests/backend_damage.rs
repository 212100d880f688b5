//! Damaged and incomplete objects: never wrong bytes, a message that says what is wrong, and an
//! offload that really writes the object again.

mod support;

use std::collections::BTreeSet;

use mooncake_nvme_kv::backend::Usage;
use mooncake_nvme_kv::device::fault::Counts;
use mooncake_nvme_kv::layout::{ChecksumKind, HEADER_LEN, ObjectKind};
use mooncake_nvme_kv::{Error, ErrorCode};
use nvme_kv_command_set::{Opcode, Status};
use nvme_kv_emulator::{Effect, Personality};
use support::characters::small_values;
use support::faults::fail_at;
use support::places::{Piece, Places};
use support::{Device, Rig, payload};

const KEY: &[u8] = b"tenant\0object";
/// Value size limit of the rigs, bytes.
const VALUE: usize = 8192;
const INLINE: usize = 5000;
const CHUNKED: usize = 2 * VALUE + 100;

/// What a backend knows when it meets the damage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Knows {
    /// It was opened afterwards: the index is empty and incomplete.
    Nothing,
    /// It wrote the object itself, and its index is complete.
    Everything,
}

/// An object of `size` bytes in slot 0, damaged by `damage`, and a backend.
fn damaged(size: usize, knows: Knows, damage: impl Fn(&Rig, &Places)) -> (Rig, Places, Device) {
    let rig = Rig::with(Personality::default(), small_values);
    let places = Places::new(&rig, KEY, 8);
    let writer = rig.open();
    writer.put(KEY, &payload(size, 1)).unwrap();
    damage(&rig, &places);
    let device = if knows == Knows::Everything { writer } else { rig.open() };
    assert_eq!(device.backend.index_is_complete(), knows == Knows::Everything);
    (rig, places, device)
}

/// Loads the object, which must fail, and offloads it again, which must store it whole beside
/// `stays`, what cannot be proved to be ours.
fn reported_and_repaired(
    size: usize,
    stays: &[Piece],
    damage: impl Fn(&Rig, &Places),
    check: impl Fn(&Error),
) {
    for knows in [Knows::Nothing, Knows::Everything] {
        for rewritten in [false, true] {
            let (rig, places, device) = damaged(size, knows, &damage);
            for _ in 0..2 {
                let error = device.get(KEY, size).unwrap_err();
                assert!(error.message().contains("tenant\\x00object"), "{error}");
                check(&error);
            }
            let bytes = payload(size, if rewritten { 2 } else { 1 });
            assert!(!device.put(KEY, &bytes).unwrap().already, "{knows:?}");
            let mut expected = places.object(1, size);
            expected.extend(stays);
            assert_eq!(places.on_device(&rig), expected, "{knows:?}");
            device.expect(KEY, &bytes);
            rig.open().expect(KEY, &bytes);
            assert!(device.put(KEY, &bytes).unwrap().already);
            assert!(rig.open().put(KEY, &bytes).unwrap().already);
        }
    }
}

fn says(code: ErrorCode, words: &'static str) -> impl Fn(&Error) {
    move |error| {
        assert_eq!(error.code(), code, "{error}");
        assert!(error.message().contains(words), "{error}");
    }
}

#[test]
fn a_missing_chunk_is_reported_and_repaired_by_the_next_offload() {
    for index in 0..3 {
        reported_and_repaired(
            CHUNKED,
            &[],
            |rig, places| places.lose(rig, Piece::Chunk(0, index)),
            says(ErrorCode::FileReadFail, "is missing"),
        );
    }
}

#[test]
fn a_damaged_chunk_is_reported_and_repaired_by_the_next_offload() {
    for (index, offset) in [(0, 0), (0, VALUE - 1), (1, 4096), (2, 99)] {
        reported_and_repaired(
            CHUNKED,
            &[],
            |rig, places| places.damage(rig, Piece::Chunk(0, index), offset),
            says(ErrorCode::ChecksumMismatch, "checksum mismatch"),
        );
    }
}

#[test]
fn a_chunk_that_is_too_short_is_reported_and_repaired_by_the_next_offload() {
    reported_and_repaired(
        CHUNKED,
        &[],
        |rig, places| {
            let whole = payload(CHUNKED, 1);
            places.put(rig, Piece::Chunk(0, 1), &whole[VALUE..VALUE + 4096]);
        },
        says(ErrorCode::FileReadFail, "has 4096 bytes instead of 8192"),
    );
}

#[test]
fn bytes_behind_the_end_of_the_last_chunk_do_not_matter() {
    for knows in [Knows::Nothing, Knows::Everything] {
        let (_rig, _, device) =
            damaged(CHUNKED, knows, |rig, places| places.damage(rig, Piece::Chunk(0, 2), 100));
        device.expect(KEY, &payload(CHUNKED, 1));
    }
}

#[test]
fn a_lost_chunk_that_no_read_has_noticed_is_repaired_after_one_has() {
    for knows in [Knows::Nothing, Knows::Everything] {
        let (rig, places, device) =
            damaged(CHUNKED, knows, |rig, places| places.lose(rig, Piece::Chunk(0, 1)));
        // A re-offload compares checksums in the manifest and does not read chunks.
        assert!(device.put(KEY, &payload(CHUNKED, 1)).unwrap().already);
        device.get(KEY, CHUNKED).unwrap_err();
        assert!(!device.put(KEY, &payload(CHUNKED, 1)).unwrap().already);
        assert_eq!(places.on_device(&rig), places.object(1, CHUNKED));
        rig.open().expect(KEY, &payload(CHUNKED, 1));
    }
}

#[test]
fn a_rewrite_needs_nothing_of_a_damaged_old_version() {
    for piece in [Piece::Chunk(0, 0), Piece::Chunk(0, 2), Piece::Root(0)] {
        for knows in [Knows::Nothing, Knows::Everything] {
            let (rig, places, device) = damaged(CHUNKED, knows, |rig, places| {
                // Of the root it is the manifest that is damaged.
                let offset = if piece == Piece::Root(0) { 120 } else { 7 };
                places.damage(rig, piece, offset);
            });
            let new = payload(CHUNKED + 1, 3);
            assert!(!device.put(KEY, &new).unwrap().already);
            assert_eq!(places.on_device(&rig), places.object(1, new.len()));
            device.expect(KEY, &new);
            rig.open().expect(KEY, &new);
        }
    }
}

#[test]
fn a_damaged_object_whose_root_a_scan_does_not_meet_is_absent_without_a_command() {
    // A root that is gone when the scan runs, and one that nothing proves to be this object's.
    for gone in [true, false] {
        let (rig, places, device) = damaged(INLINE, Knows::Everything, |rig, places| {
            places.damage(rig, Piece::Root(0), if gone { 4096 } else { 0 });
        });
        device.get(KEY, INLINE).unwrap_err();
        if gone {
            places.lose(&rig, Piece::Root(0));
        }
        device.backend.scan(&mut |_| Ok(())).unwrap();
        assert_eq!(device.backend.usage(), Usage::default());
        device.faults.take_counts();
        assert!(!device.backend.exists(KEY).unwrap());
        let error = device.get(KEY, INLINE).unwrap_err();
        assert_eq!(error.code(), ErrorCode::ObjectNotFound, "{error}");
        assert_eq!(device.faults.take_counts(), Counts::default());
        assert!(!device.put(KEY, &payload(INLINE, 1)).unwrap().already);
        device.expect(KEY, &payload(INLINE, 1));
        rig.open().expect(KEY, &payload(INLINE, 1));
    }
}

#[test]
fn a_damaged_object_whose_root_a_scan_meets_is_still_written_by_the_next_offload() {
    for slot in [0, 2] {
        let (rig, _, device) = damaged(CHUNKED, Knows::Nothing, |rig, places| {
            places.lose(rig, Piece::Root(0));
            places.put_object(rig, slot, &payload(CHUNKED, 1));
            places.lose(rig, Piece::Chunk(slot, 1));
        });
        device.get(KEY, CHUNKED).unwrap_err();
        device.backend.scan(&mut |_| Ok(())).unwrap();
        assert!(device.backend.exists(KEY).unwrap());
        assert!(!device.put(KEY, &payload(CHUNKED, 1)).unwrap().already);
        device.expect(KEY, &payload(CHUNKED, 1));
        rig.open().expect(KEY, &payload(CHUNKED, 1));
    }
}

#[test]
fn a_damaged_object_that_could_not_be_removed_is_still_written_by_the_next_offload() {
    let (rig, places, device) = damaged(CHUNKED, Knows::Everything, |rig, places| {
        places.lose(rig, Piece::Chunk(0, 1));
    });
    device.get(KEY, CHUNKED).unwrap_err();
    let refused = Effect::Status(Status::INTERNAL);
    fail_at(&rig, &places, Opcode::Delete, Piece::Root(0), refused);
    device.backend.remove(KEY).unwrap_err();
    assert!(!device.put(KEY, &payload(CHUNKED, 1)).unwrap().already);
    rig.open().expect(KEY, &payload(CHUNKED, 1));
}

#[test]
fn a_damaged_inline_payload_is_reported_and_repaired_by_the_next_offload() {
    for offset in [HEADER_LEN + 25 + KEY.len(), 4096] {
        reported_and_repaired(
            INLINE,
            &[],
            |rig, places| places.damage(rig, Piece::Root(0), offset),
            says(ErrorCode::ChecksumMismatch, "payload checksum mismatch"),
        );
    }
}

#[test]
fn a_damaged_header_hides_the_object_but_never_as_proven_absent() {
    // Magic, type, payload size, verify hash, payload checksum, header checksum, identity size.
    for offset in [0, 4, 8, 12, 44, 48, 52] {
        let code = match offset {
            0 | 4 => ErrorCode::FileReadFail,
            _ => ErrorCode::ChecksumMismatch,
        };
        reported_and_repaired(
            INLINE,
            // Nothing proves whose it is.
            &[Piece::Root(0)],
            |rig, places| places.damage(rig, Piece::Root(0), offset),
            says(code, "the value in slot 0 is no root"),
        );
        let (_rig, _, device) = damaged(INLINE, Knows::Nothing, |rig, places| {
            places.damage(rig, Piece::Root(0), offset);
        });
        assert_eq!(device.backend.exists(KEY).unwrap_err().code(), code);
    }
}

/// The header's checksum does not cover the identity behind it.
#[test]
fn a_damaged_identity_hides_the_object_but_never_as_proven_absent() {
    let key = HEADER_LEN + 25;
    // Physical key, slot, version, length of the key, the key itself.
    for offset in [56, 71, 72, 76, 77, key, key + KEY.len() - 1] {
        reported_and_repaired(
            INLINE,
            &[Piece::Root(0)],
            |rig, places| places.damage(rig, Piece::Root(0), offset),
            says(ErrorCode::FileReadFail, "the value in slot 0 is no root"),
        );
        let (_rig, _, device) = damaged(INLINE, Knows::Nothing, |rig, places| {
            places.damage(rig, Piece::Root(0), offset);
        });
        assert_eq!(device.backend.exists(KEY).unwrap_err().code(), ErrorCode::FileReadFail);
    }
}

/// A chunked object whose index and manifest are known is read without its root.
#[test]
fn a_damaged_header_of_a_chunked_object_is_reported_and_repaired() {
    let (rig, places, device) =
        damaged(CHUNKED, Knows::Nothing, |rig, places| places.damage(rig, Piece::Root(0), 50));
    let error = device.get(KEY, CHUNKED).unwrap_err();
    says(ErrorCode::ChecksumMismatch, "header checksum mismatch")(&error);
    let bytes = payload(CHUNKED, 1);
    assert!(!device.put(KEY, &bytes).unwrap().already);
    let mut expected: BTreeSet<Piece> = places.object(1, CHUNKED);
    expected.extend(places.object(0, CHUNKED));
    assert_eq!(places.on_device(&rig), expected, "the old pieces are orphans");
    rig.open().expect(KEY, &bytes);
}

#[test]
fn a_root_cut_short_is_reported_and_repaired_by_the_next_offload() {
    reported_and_repaired(
        INLINE,
        &[Piece::Root(0)],
        |rig, places| {
            let root = places.root(0, &payload(INLINE, 1));
            places.put(rig, Piece::Root(0), &root[..4096]);
        },
        says(ErrorCode::FileReadFail, "cut short"),
    );
}

#[test]
fn an_unknown_object_type_is_reported_and_left_alone() {
    reported_and_repaired(
        INLINE,
        &[Piece::Root(0)],
        |rig, places| {
            let mut root = places.root(0, &payload(INLINE, 1));
            root[4..8].copy_from_slice(&7u32.to_le_bytes());
            root[48..52].fill(0);
            let sum = ChecksumKind::Xxh32.of_slice(&root[..HEADER_LEN]);
            root[48..52].copy_from_slice(&sum.to_le_bytes());
            places.put(rig, Piece::Root(0), &root);
        },
        says(ErrorCode::FileReadFail, "unknown object type 0x7"),
    );
}

#[test]
fn a_manifest_that_contradicts_itself_is_reported_and_replaced() {
    let forge = |change: fn(&mut mooncake_nvme_kv::layout::Manifest)| {
        move |rig: &Rig, places: &Places| {
            let mut manifest = places.manifest(0, &payload(CHUNKED, 1));
            change(&mut manifest);
            let root = places.root_of(0, ObjectKind::Manifest, &manifest.encode());
            places.put(rig, Piece::Root(0), &root);
        }
    };
    for (change, words) in [
        (forge(|manifest| manifest.chunks.swap(0, 1)), "is recorded at key"),
        (forge(|manifest| manifest.logical_size += 1), "lists chunks of"),
        (forge(|manifest| manifest.chunks[0].size = 0), "of size"),
    ] {
        let (rig, places, device) = damaged(CHUNKED, Knows::Nothing, change);
        let error = device.get(KEY, CHUNKED).unwrap_err();
        says(ErrorCode::FileReadFail, words)(&error);
        let bytes = payload(CHUNKED, 1);
        assert!(!device.put(KEY, &bytes).unwrap().already);
        assert_eq!(places.on_device(&rig), places.object(1, CHUNKED));
        device.expect(KEY, &bytes);
        rig.open().expect(KEY, &bytes);
    }
}

#[test]
fn a_good_root_in_a_higher_slot_is_read_past_a_value_that_is_no_root() {
    let bytes = payload(CHUNKED, 1);
    for garbage in [&[0u8; 4096][..], &[0xFF; 3], &payload(VALUE, 5)] {
        let rig = Rig::with(Personality::default(), small_values);
        let places = Places::new(&rig, KEY, 8);
        places.put(&rig, Piece::Root(0), garbage);
        places.put_object(&rig, 3, &bytes);
        let device = rig.open();
        assert!(device.backend.exists(KEY).unwrap());
        device.expect(KEY, &bytes);
        assert!(rig.open().put(KEY, &bytes).unwrap().already);
        let new = payload(INLINE, 6);
        assert!(!rig.open().put(KEY, &new).unwrap().already);
        let expected = BTreeSet::from([Piece::Root(0), Piece::Root(1)]);
        assert_eq!(places.on_device(&rig), expected);
        rig.open().expect(KEY, &new);
    }
}

#[test]
fn a_root_that_is_unreadable_for_a_while_is_not_forgotten_beside_one_in_a_higher_slot() {
    let (visible, hidden) = (payload(INLINE, 1), payload(INLINE, 2));
    let looks: [fn(&Device); 2] = [
        |device| device.expect(KEY, &payload(INLINE, 2)),
        |device| assert!(device.backend.exists(KEY).unwrap()),
    ];
    for look in looks {
        for scanned in [false, true] {
            let rig = Rig::with(Personality::default(), small_values);
            let places = Places::new(&rig, KEY, 8);
            places.put_object(&rig, 0, &visible);
            places.put_object(&rig, 1, &hidden);
            let device = rig.open();
            for _ in 0..2 {
                fail_at(&rig, &places, Opcode::Retrieve, Piece::Root(0), Effect::WrongLength(1));
            }
            look(&device);
            if scanned {
                device.backend.scan(&mut |_| Ok(())).unwrap();
            }
            device.expect(KEY, &visible);
            device.backend.remove(KEY).unwrap();
            assert_eq!(places.on_device(&rig), BTreeSet::new());
        }
    }
}

#[test]
fn an_eviction_that_meets_a_value_that_is_no_root_does_not_take_the_object_for_damaged() {
    let bytes = payload(CHUNKED, 1);
    let rig = Rig::with(Personality::default(), small_values);
    let places = Places::new(&rig, KEY, 8);
    let device = rig.open();
    device.put(KEY, &bytes).unwrap();
    // It moves behind the backend's back, as after a Delete that is executed late.
    places.put_object(&rig, 1, &bytes);
    places.lose(&rig, Piece::Root(0));
    places.put(&rig, Piece::Root(0), &[0xFF; 4096]);
    let evicted = device.backend.evict_above(0.0, 0.0, &mut |_| Ok(())).unwrap();
    assert_eq!(evicted, Vec::<Vec<u8>>::new());
    let report = device.backend.scan(&mut |_| Ok(())).unwrap();
    assert_eq!((report.objects, report.damaged), (1, 0));
    assert!(device.put(KEY, &bytes).unwrap().already);
    device.expect(KEY, &bytes);
}

#[test]
fn a_root_that_was_copied_to_another_place_is_not_an_object_there() {
    let rig = Rig::with(Personality::default(), small_values);
    let places = Places::new(&rig, KEY, 8);
    let bytes = payload(INLINE, 1);
    // The root of slot 4 in slot 2, and this key's root under another key.
    places.put(&rig, Piece::Root(2), &places.root(4, &bytes));
    let other = Places::new(&rig, b"other", 8);
    other.put(&rig, Piece::Root(0), &places.root(0, &bytes));
    let device = rig.open();
    says(ErrorCode::FileReadFail, "identity")(&device.get(KEY, INLINE).unwrap_err());
    assert!(!device.backend.exists(b"other").unwrap());
    let error = device.get(b"other", INLINE).unwrap_err();
    assert_eq!(error.code(), ErrorCode::ObjectNotFound, "{error}");
    for key in [KEY, b"other"] {
        assert!(!device.put(key, &bytes).unwrap().already);
        device.expect(key, &bytes);
        rig.open().expect(key, &bytes);
    }
}

#[test]
fn when_values_that_are_no_roots_hold_every_slot_nothing_is_written() {
    for size in [INLINE, CHUNKED] {
        let rig = Rig::with(Personality::default(), small_values);
        let places = Places::new(&rig, KEY, 8);
        for slot in 0..64 {
            places.put(&rig, Piece::Root(slot), &[slot as u8; 50]);
        }
        let device = rig.open();
        let error = device.put(KEY, &payload(size, 1)).unwrap_err();
        assert_eq!(error.code(), ErrorCode::ObjectAlreadyExists, "{error}");
        assert_eq!(rig.value_count(), 64);
        let error = device.get(KEY, size).unwrap_err();
        says(ErrorCode::FileReadFail, "the value in slot 0 is no root")(&error);
    }
}
