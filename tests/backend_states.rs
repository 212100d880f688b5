//! Device states that the C++ original, a crash or another configuration leaves: read, offloaded
//! again and rewritten by the rules of one key.

mod support;

use std::collections::BTreeSet;
use std::sync::Arc;

use mooncake_nvme_kv::ErrorCode;
use mooncake_nvme_kv::layout::{ChecksumKind, KeyCodec, ObjectKeys};
use nvme_kv_emulator::{Personality, RetrieveLength, ShortRetrieve};
use support::characters::small_values;
use support::places::{Piece, Places};
use support::{Rig, payload};

const KEY: &[u8] = b"tenant\0object";
/// Value size limit of the rigs, bytes.
const VALUE: usize = 8192;
const INLINE: usize = 700;

fn small_rig() -> (Rig, Places) {
    let rig = Rig::with(Personality::default(), small_values);
    let places = Places::new(&rig, KEY, 8);
    (rig, places)
}

/// The lowest slot but `taken`.
fn lowest_but(taken: u32) -> u32 {
    u32::from(taken == 0)
}

fn union(sets: impl IntoIterator<Item = BTreeSet<Piece>>) -> BTreeSet<Piece> {
    sets.into_iter().flatten().collect()
}

/// Slots that hold roots, the lowest first: side by side, with holes, at the end.
const CONSTELLATIONS: [&[u32]; 6] =
    [&[0, 1, 2], &[0, 3, 7], &[2, 5, 63], &[1, 2], &[62, 63], &[63]];

/// The versions that a constellation holds, in the order of its slots.
fn versions() -> [Vec<u8>; 3] {
    [payload(2 * VALUE + 10, 1), payload(INLINE, 2), payload(3 * VALUE, 3)]
}

fn plant(rig: &Rig, places: &Places, slots: &[u32]) {
    for (slot, version) in slots.iter().zip(versions()) {
        places.put_object(rig, *slot, &version);
    }
}

#[test]
fn of_several_roots_the_lowest_is_read() {
    for slots in CONSTELLATIONS {
        let (rig, places) = small_rig();
        plant(&rig, &places, slots);
        let device = rig.open();
        let [visible, hidden, _] = versions();
        assert!(device.backend.exists(KEY).unwrap());
        device.expect(KEY, &visible);
        let error = device.get(KEY, hidden.len()).unwrap_err();
        assert_eq!(error.code(), ErrorCode::FileReadFail, "{error}");
        rig.open().expect(KEY, &visible);
    }
}

#[test]
fn a_reoffload_purges_the_hidden_roots_and_keeps_the_visible_one() {
    for slots in CONSTELLATIONS {
        let (rig, places) = small_rig();
        plant(&rig, &places, slots);
        let [visible, ..] = versions();
        assert!(rig.open().put(KEY, &visible).unwrap().already);
        assert_eq!(places.on_device(&rig), places.object(slots[0], visible.len()));
        rig.open().expect(KEY, &visible);
    }
}

#[test]
fn a_rewrite_takes_the_lowest_free_slot_and_leaves_nothing_else() {
    let [_, hidden, chunked_hidden] = versions();
    let new =
        [payload(0, 9), payload(VALUE + 1, 10), payload(5 * VALUE, 11), hidden, chunked_hidden];
    for slots in CONSTELLATIONS {
        for new in &new {
            let (rig, places) = small_rig();
            plant(&rig, &places, slots);
            let device = rig.open();
            assert!(!device.put(KEY, new).unwrap().already);
            let expected = places.object(lowest_but(slots[0]), new.len());
            assert_eq!(places.on_device(&rig), expected, "roots in {slots:?}");
            device.expect(KEY, new);
            rig.open().expect(KEY, new);
            assert!(rig.open().put(KEY, new).unwrap().already);
        }
    }
}

#[test]
fn hidden_roots_that_appear_behind_a_complete_index_never_become_visible() {
    let [visible, hidden, chunked_hidden] = versions();
    let (rig, places) = small_rig();
    let device = rig.open();
    assert!(device.backend.index_is_complete());
    device.put(KEY, &visible).unwrap();
    places.put_object(&rig, 5, &hidden);
    places.put_object(&rig, 9, &chunked_hidden);
    device.expect(KEY, &visible);
    assert!(device.put(KEY, &visible).unwrap().already);
    for round in 0..5 {
        let new = payload(VALUE * 2 + round, 20 + round as u64);
        assert!(!device.put(KEY, &new).unwrap().already);
        device.expect(KEY, &new);
        rig.open().expect(KEY, &new);
        let stays = [places.object(5, hidden.len()), places.object(9, chunked_hidden.len())];
        let slot = 1 - round as u32 % 2;
        let expected = union(stays).union(&places.object(slot, new.len())).copied().collect();
        assert_eq!(places.on_device(&rig), expected);
    }
}

#[test]
fn a_root_that_appears_in_a_free_slot_behind_a_complete_index_is_found_by_the_write() {
    let (rig, places) = small_rig();
    let device = rig.open();
    let theirs = payload(INLINE, 1);
    places.put_object(&rig, 0, &theirs);
    assert!(device.backend.index_is_complete());
    device.put(KEY, &theirs).unwrap();
    assert_eq!(places.on_device(&rig), places.object(0, INLINE), "it is the same");
    device.expect(KEY, &theirs);

    let ours = payload(INLINE, 2);
    device.put(KEY, &ours).unwrap();
    assert_eq!(places.on_device(&rig), places.object(1, INLINE));
    places.put_object(&rig, 0, &theirs);
    let new = payload(INLINE + 1, 3);
    assert!(!device.put(KEY, &new).unwrap().already);
    assert_eq!(places.on_device(&rig), places.object(1, new.len()));
    device.expect(KEY, &new);
    rig.open().expect(KEY, &new);
}

#[test]
fn orphan_chunks_with_the_wanted_bytes_are_taken_over() {
    let new = payload(2 * VALUE + 100, 4);
    for complete in [true, false] {
        for present in [&[0][..], &[1], &[2], &[0, 2], &[0, 1, 2]] {
            let (rig, places) = small_rig();
            let before = rig.open();
            for &index in present {
                let chunk = new.chunks(VALUE).nth(index as usize).unwrap();
                places.put(&rig, Piece::Chunk(0, index), chunk);
            }
            let device = if complete { before } else { rig.open() };
            assert_eq!(device.backend.index_is_complete(), complete);
            assert!(!device.put(KEY, &new).unwrap().already);
            assert_eq!(places.on_device(&rig), places.object(0, new.len()));
            device.expect(KEY, &new);
            rig.open().expect(KEY, &new);

            let newer = payload(3 * VALUE, 5);
            places.put_chunks(&rig, 1, &newer);
            assert!(!device.put(KEY, &newer).unwrap().already);
            assert_eq!(places.on_device(&rig), places.object(1, newer.len()));
            rig.open().expect(KEY, &newer);
        }
    }
}

/// Devices that tell an orphan of another length in different ways, or not at all.
fn length_tellers() -> Vec<Personality> {
    let mut all = Vec::new();
    for retrieve_length in [RetrieveLength::Exact, RetrieveLength::Padded, RetrieveLength::Zero] {
        for short_retrieve in [ShortRetrieve::Success, ShortRetrieve::InvalidValueSize] {
            all.push(Personality { retrieve_length, short_retrieve, ..Personality::default() });
        }
    }
    all
}

#[test]
fn orphan_chunks_with_other_bytes_stay_and_the_object_goes_to_the_next_slot() {
    let new = payload(2 * VALUE + 100, 4);
    let chunk = |index: u32| new.chunks(VALUE).nth(index as usize).unwrap();
    for personality in length_tellers() {
        for complete in [true, false] {
            for index in 0..3 {
                let other = payload(chunk(index).len(), 99);
                let mut last_byte = chunk(index).to_vec();
                *last_byte.last_mut().unwrap() ^= 1;
                for orphan in [&other[..], &last_byte] {
                    let rig = Rig::with(personality.clone(), small_values);
                    let places = Places::new(&rig, KEY, 8);
                    let before = rig.open();
                    places.put(&rig, Piece::Chunk(0, index), orphan);
                    let device = if complete { before } else { rig.open() };
                    let stays = BTreeSet::from([Piece::Chunk(0, index)]);
                    let expect = |slot, bytes: &[u8]| {
                        let expected = union([stays.clone(), places.object(slot, bytes.len())]);
                        assert_eq!(places.on_device(&rig), expected);
                        device.expect(KEY, bytes);
                        rig.open().expect(KEY, bytes);
                        assert!(device.put(KEY, bytes).unwrap().already);
                    };
                    assert!(!device.put(KEY, &new).unwrap().already);
                    expect(1, &new);
                    for (round, slot) in [(0, 2), (1, 1), (2, 2)] {
                        let newer = payload(3 * VALUE, 50 + round);
                        assert!(!device.put(KEY, &newer).unwrap().already);
                        expect(slot, &newer);
                    }
                }
            }
        }
    }
}

#[test]
fn an_orphan_that_is_only_the_beginning_of_the_wanted_chunk_is_not_taken_for_it() {
    let new = payload(2 * VALUE, 4);
    for personality in length_tellers() {
        let rig = Rig::with(personality, small_values);
        let places = Places::new(&rig, KEY, 8);
        let device = rig.open();
        // Transport buffers are reused: these hold the very bytes that the orphan lacks.
        device.put(b"other", &new).unwrap();
        let mut memory = vec![0; new.len() + 1];
        let odd = 1 - memory.as_ptr() as usize % 2;
        device.get_into(b"other", &mut memory[odd..odd + new.len()]).unwrap();
        places.put(&rig, Piece::Chunk(0, 1), &new[VALUE..VALUE + 4096]);
        assert!(!device.put(KEY, &new).unwrap().already);
        assert!(rig.namespace.peek(&places.device_key(Piece::Root(1))).is_some(), "next slot");
        device.expect(KEY, &new);
        rig.open().expect(KEY, &new);
    }
}

#[test]
fn an_orphan_that_begins_like_the_wanted_chunk_but_is_longer_does_no_harm() {
    let new = payload(VALUE + 100, 4);
    for personality in length_tellers() {
        let rig = Rig::with(personality, small_values);
        let places = Places::new(&rig, KEY, 8);
        let mut longer = new[VALUE..].to_vec();
        longer.resize(VALUE, 0x77);
        places.put(&rig, Piece::Chunk(0, 1), &longer);
        let device = rig.open();
        assert!(!device.put(KEY, &new).unwrap().already);
        device.expect(KEY, &new);
        rig.open().expect(KEY, &new);
        assert!(rig.open().put(KEY, &new).unwrap().already);
    }
}

#[test]
fn orphan_chunks_behind_the_object_are_not_in_the_way() {
    let (rig, places) = small_rig();
    places.put(&rig, Piece::Chunk(0, 6), &payload(VALUE, 1));
    let new = payload(2 * VALUE, 2);
    rig.open().put(KEY, &new).unwrap();
    let stays = BTreeSet::from([Piece::Chunk(0, 6)]);
    assert_eq!(places.on_device(&rig), union([stays, places.object(0, new.len())]));
}

#[test]
fn sixty_four_roots_of_the_key_are_reduced_to_one() {
    for size in [INLINE, 2 * VALUE] {
        let (rig, places) = small_rig();
        for slot in 0..64 {
            places.put_object(&rig, slot, &payload(size, u64::from(slot)));
        }
        let device = rig.open();
        device.expect(KEY, &payload(size, 0));
        let new = payload(size, 100);
        assert!(!device.put(KEY, &new).unwrap().already);
        assert_eq!(places.on_device(&rig), places.object(1, size));
        rig.open().expect(KEY, &new);
    }
}

/// Keys that begin with "twin" have one sequence of physical keys.
#[derive(Debug)]
struct Twins;

impl KeyCodec for Twins {
    fn object_keys(&self, logical_key: &[u8]) -> ObjectKeys {
        let alias = if logical_key.starts_with(b"twin") { b"twin" } else { logical_key };
        ObjectKeys::with_alias(logical_key, alias)
    }
}

fn twin_rig() -> Rig {
    let mut rig = Rig::with(Personality::default(), small_values);
    rig.parts.codec = Arc::new(Twins);
    rig
}

#[test]
fn keys_that_collide_live_side_by_side_and_never_see_each_other() {
    for size in [INLINE, 2 * VALUE + 5] {
        for reopen in [false, true] {
            let rig = twin_rig();
            let first = rig.open();
            let fresh = || if reopen { Some(rig.open()) } else { None };
            let keys: [&[u8]; 3] = [b"twin a", b"twin b", b"twin c"];
            // Equal payloads too: the chunks of one key are the wanted bytes of the other.
            for round in 0..6u64 {
                for (n, key) in keys.iter().enumerate() {
                    let fresh = fresh();
                    let device = fresh.as_ref().unwrap_or(&first);
                    let bytes = payload(size, if round % 2 == 0 { round } else { n as u64 + 100 });
                    let stored = device.put(key, &bytes).unwrap();
                    assert!(!stored.already, "round {round}");
                    assert!(device.put(key, &bytes).unwrap().already);
                    device.expect(key, &bytes);
                    rig.open().expect(key, &bytes);
                }
                assert_eq!(rig.value_count(), 3 * rig.values_of(keys[0], size), "round {round}");
                let device = rig.open();
                assert!(!device.backend.exists(b"twin d").unwrap());
                let error = device.get(b"twin d", size).unwrap_err();
                assert_eq!(error.code(), ErrorCode::ObjectNotFound);
            }
        }
    }
}

#[test]
fn when_other_keys_hold_every_slot_the_write_is_refused_and_leaves_nothing() {
    for size in [INLINE, 2 * VALUE] {
        for complete in [true, false] {
            let rig = twin_rig();
            let before = rig.open();
            for slot in 0..64 {
                let theirs = Places::new(&rig, b"twin a", 8);
                theirs.put_object(&rig, slot, &payload(3 * VALUE, 1));
            }
            let values = rig.value_count();
            let device = if complete { before } else { rig.open() };
            assert!(!device.backend.exists(b"twin b").unwrap());
            let error = device.put(b"twin b", &payload(size, 2)).unwrap_err();
            assert_eq!(error.code(), ErrorCode::ObjectAlreadyExists);
            assert!(error.message().contains("no free slot"), "{error}");
            assert_eq!(rig.value_count(), values);
            rig.open().expect(b"twin a", &payload(3 * VALUE, 1));
        }
    }
}

#[test]
fn when_no_slot_is_left_for_a_rewrite_the_old_version_stays() {
    for size in [INLINE, 2 * VALUE] {
        let rig = twin_rig();
        let theirs = Places::new(&rig, b"twin a", 8);
        for slot in (0..64).filter(|slot| *slot != 17) {
            theirs.put_object(&rig, slot, &payload(INLINE, 1));
        }
        let old = payload(size, 2);
        let device = rig.open();
        device.put(b"twin b", &old).unwrap();
        let values = rig.value_count();
        for device in [&device, &rig.open()] {
            let error = device.put(b"twin b", &payload(size, 3)).unwrap_err();
            assert_eq!(error.code(), ErrorCode::ObjectAlreadyExists);
            assert_eq!(rig.value_count(), values);
            device.expect(b"twin b", &old);
            assert!(device.put(b"twin b", &old).unwrap().already);
        }
    }
}

#[test]
fn objects_written_with_another_value_limit_are_read_recognised_and_rewritten() {
    for theirs in [4096, 16_384, 65_536] {
        for size in [0, INLINE, 7000, 8150, 15_000, 2 * VALUE, 5 * VALUE + 4095, 70_000] {
            for slot in [0, 4] {
                let (rig, places) = small_rig();
                let writer = Places::new(&rig, KEY, 20).with_limit(theirs);
                let old = payload(size, 6);
                writer.put_object(&rig, slot, &old);
                let values = rig.value_count();
                let device = rig.open();
                device.expect(KEY, &old);
                device.expect(KEY, &old);
                assert!(device.put(KEY, &old).unwrap().already);
                assert!(rig.open().put(KEY, &old).unwrap().already);
                assert_eq!(rig.value_count(), values);
                let mut memory = vec![0; size + 1];
                let odd = 1 - memory.as_ptr() as usize % 2;
                rig.open().get_into(KEY, &mut memory[odd..odd + size]).unwrap();
                assert!(memory[odd..odd + size] == old[..]);

                let new = payload(3 * VALUE, 7);
                assert!(!rig.open().put(KEY, &new).unwrap().already);
                assert_eq!(places.on_device(&rig), places.object(lowest_but(slot), new.len()));
                rig.open().expect(KEY, &new);
            }
        }
    }
}

#[test]
fn objects_padded_to_another_alignment_are_read_recognised_and_rewritten() {
    for personality in length_tellers() {
        for (theirs, ours) in [(4096, 512), (512, 4096), (8192, 4096)] {
            for size in [INLINE, 5000, VALUE + 100, 2 * VALUE + 4100] {
                let mut rig = Rig::with(personality.clone(), small_values);
                let (old, new) = (payload(size, 1), payload(size, 2));
                rig.config.connector.transfer_alignment = theirs;
                rig.open().put(KEY, &old).unwrap();
                let values = rig.value_count();
                rig.config.connector.transfer_alignment = ours;
                let device = rig.open();
                device.expect(KEY, &old);
                assert!(device.put(KEY, &old).unwrap().already);
                assert!(rig.open().put(KEY, &old).unwrap().already);
                assert!(!rig.open().put(KEY, &new).unwrap().already);
                assert_eq!(rig.value_count(), values);
                rig.open().expect(KEY, &new);
            }
        }
    }
}

#[test]
fn both_checksums_are_readable_side_by_side_and_recognised() {
    let name = |kind| format!("{kind:?}").into_bytes();
    let kinds = [ChecksumKind::Xxh32, ChecksumKind::Crc32];
    for size in [0, INLINE, 3 * VALUE + 1] {
        let (mut rig, _) = small_rig();
        let bytes = payload(size, 8);
        for kind in kinds {
            rig.config.checksum = kind;
            rig.open().put(&name(kind), &bytes).unwrap();
            // The C++ original's objects have type 1 and 2, ours with CRC-32 0x101 and 0x102.
            let writer = Places::new(&rig, &name(kind), 8).with_checksum(kind);
            let root = rig.namespace.peek(&writer.device_key(Piece::Root(0))).unwrap();
            assert!(root.starts_with(&writer.root(0, &bytes)));
        }
        let values = rig.value_count();
        for setting in kinds {
            rig.config.checksum = setting;
            for written in kinds {
                let device = rig.open();
                device.expect(&name(written), &bytes);
                assert!(device.put(&name(written), &bytes).unwrap().already);
                device.expect(&name(written), &bytes);
            }
        }
        assert_eq!(rig.value_count(), values);
        let new = payload(size + 2, 9);
        for (setting, written) in kinds.into_iter().zip([kinds[1], kinds[0]]) {
            rig.config.checksum = setting;
            assert!(!rig.open().put(&name(written), &new).unwrap().already);
            rig.open().expect(&name(written), &new);
        }
        assert_eq!(rig.value_count(), 2 * rig.values_of(&name(kinds[0]), new.len()));
    }
}
