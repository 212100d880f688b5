//! Several roots of one key, holes and orphan chunks, as the C++ original or a crash leaves them:
//! read, offloaded again and rewritten by the rules of one key.

mod support;

use std::collections::BTreeSet;

use mooncake_nvme_kv::ErrorCode;
use nvme_kv_emulator::Personality;
use support::characters::{length_tellers, small_values};
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
