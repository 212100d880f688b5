//! Retrieves and existence checks that fail or lie: an error says what failed, wrong bytes are never
//! delivered, and nothing that may still be stored is called absent.

mod support;

use std::collections::BTreeSet;

use mooncake_nvme_kv::ErrorCode;
use mooncake_nvme_kv::backend::SweepReport;
use nvme_kv_command_set::Opcode;
use nvme_kv_emulator::{Effect, Personality};
use support::characters::small_values;
use support::faults::{Class, classes, fail, fail_at, says};
use support::places::{Piece, Places};
use support::{Rig, payload};

const KEY: &[u8] = b"tenant\0object";
/// Value size limit of the rigs, bytes.
const VALUE: usize = 8192;
const INLINE: usize = 3000;
/// Three chunks.
const CHUNKED: usize = 2 * VALUE + 100;
const CHUNKS: u64 = 3;

fn small_rig() -> (Rig, Places) {
    let rig = Rig::with(Personality::default(), small_values);
    let places = Places::new(&rig, KEY, 8);
    (rig, places)
}

/// Slots whose root key holds a value.
fn root_slots(rig: &Rig, places: &Places) -> Vec<u32> {
    let holds = |slot: &u32| rig.namespace.peek(&places.device_key(Piece::Root(*slot))).is_some();
    (0..64).filter(holds).collect()
}

#[test]
fn a_failed_retrieve_is_reported_and_says_nothing_about_the_object() {
    for Class { effect, on_read, words, .. } in classes() {
        for (size, retrieves) in [(INLINE, 1), (CHUNKED, CHUNKS + 1)] {
            for nth in 1..=retrieves {
                for known in [true, false] {
                    if known && nth > retrieves.saturating_sub(1).max(1) {
                        continue; // A known manifest saves the root.
                    }
                    let (rig, places) = small_rig();
                    let writer = rig.open();
                    writer.put(KEY, &payload(size, 1)).unwrap();
                    let device = if known { writer } else { rig.open() };
                    fail(&rig, Opcode::Retrieve, nth, effect);
                    says(&device.get(KEY, size).unwrap_err(), on_read, words);
                    rig.namespace.clear_faults();
                    assert!(device.backend.exists(KEY).unwrap());
                    device.expect(KEY, &payload(size, 1));
                    assert!(device.put(KEY, &payload(size, 1)).unwrap().already, "not damaged");
                    assert_eq!(places.on_device(&rig), places.object(0, size));
                }
            }
        }
    }
}

#[test]
fn a_failed_existence_check_is_an_error_and_never_false() {
    for Class { effect, on_read, words, .. } in classes() {
        for (kind, nth) in [(Opcode::Retrieve, 1), (Opcode::Exist, 1), (Opcode::Exist, 40)] {
            let (rig, places) = small_rig();
            // In a high slot, so that both kinds of probe are made.
            places.put_object(&rig, 50, &payload(INLINE, 1));
            let device = rig.open();
            fail(&rig, kind, nth, effect);
            says(&device.backend.exists(KEY).unwrap_err(), on_read, words);
            fail(&rig, kind, nth, effect);
            says(&device.get(KEY, INLINE).unwrap_err(), on_read, words);
            assert!(device.backend.exists(KEY).unwrap());
            device.expect(KEY, &payload(INLINE, 1));
        }
    }
}

#[test]
fn a_length_shorter_than_a_chunk_is_a_failed_read_and_a_longer_one_is_fine() {
    for (size, piece) in [
        (INLINE, Piece::Root(0)),
        (CHUNKED, Piece::Root(0)),
        (CHUNKED, Piece::Chunk(0, 0)),
        (CHUNKED, Piece::Chunk(0, 2)),
    ] {
        let bytes = payload(size, 1);
        let wanted = match piece {
            Piece::Root(_) if size == INLINE => 81 + KEY.len() + INLINE,
            Piece::Root(_) => 81 + KEY.len() + 8 + 24 * CHUNKS as usize,
            Piece::Chunk(_, 0) => VALUE,
            Piece::Chunk(..) => CHUNKED - 2 * VALUE,
        } as u32;
        let lie = |length| {
            let (rig, places) = small_rig();
            rig.open().put(KEY, &bytes).unwrap();
            let device = rig.open();
            fail_at(&rig, &places, Opcode::Retrieve, piece, Effect::WrongLength(length));
            let loaded = device.get(KEY, size);
            (rig, places, device, loaded)
        };
        for length in [1, 40, wanted - 1] {
            let (rig, places, device, loaded) = lie(length);
            match piece {
                Piece::Root(_) => assert!(loaded.unwrap() == bytes, "it is read a second time"),
                Piece::Chunk(..) => says(&loaded.unwrap_err(), ErrorCode::FileReadFail, ""),
            }
            assert!(device.backend.exists(KEY).is_ok_and(|exists| exists));
            device.expect(KEY, &bytes);
            device.put(KEY, &bytes).unwrap();
            device.expect(KEY, &bytes);
            let [slot] = root_slots(&rig, &places)[..] else { panic!("one root") };
            assert_eq!(places.on_device(&rig), places.object(slot, size));
        }
        for length in [0, wanted, wanted + 1, u32::MAX] {
            let (.., loaded) = lie(length);
            assert!(loaded.unwrap() == bytes, "length {length}");
        }
    }
}

#[test]
fn damaged_bytes_are_never_delivered() {
    let prefix = 81 + KEY.len() as u32;
    let read = [
        (INLINE, Piece::Root(0), &[0, 5, 9, 20, 45, 49, 53, 58, 73, 77, 79, 85, 100, 3000][..]),
        (CHUNKED, Piece::Root(0), &[0, 5, 9, 20, 45, 49, 53, 58, 73, 77, 79, 85, 100, 150]),
        (CHUNKED, Piece::Chunk(0, 0), &[0, 4096, 8191]),
        (CHUNKED, Piece::Chunk(0, 2), &[0, 99]),
    ];
    for (size, piece, offsets) in read {
        for &offset in offsets {
            let (rig, places) = small_rig();
            let bytes = payload(size, 1);
            rig.open().put(KEY, &bytes).unwrap();
            let device = rig.open();
            let effect = Effect::Damage { offset, xor: 0x04 };
            fail_at(&rig, &places, Opcode::Retrieve, piece, effect);
            match device.get(KEY, size) {
                Ok(loaded) => {
                    assert!(loaded == bytes);
                    assert_eq!(piece, Piece::Root(0), "it is read a second time");
                    assert!(offset < prefix, "only what proves whose it is: {offset}");
                }
                Err(error) => {
                    let damage = [ErrorCode::ChecksumMismatch, ErrorCode::FileReadFail];
                    assert!(damage.contains(&error.code()), "{error}");
                    assert!(piece != Piece::Root(0) || offset >= prefix, "{offset}: {error}");
                }
            }
            device.put(KEY, &bytes).unwrap();
            device.expect(KEY, &bytes);
            rig.open().expect(KEY, &bytes);
        }
    }
}

/// A root that cannot be read once is not taken for somebody else's value: left where it is, it would
/// be read again instead of the new version, or after its removal.
#[test]
fn a_root_that_is_damaged_on_the_way_once_is_replaced_and_removed_all_the_same() {
    let damage = |offset| Effect::Damage { offset, xor: 0x04 };
    let damages = [0, 5, 9, 20, 45, 49, 53, 58, 73, 77, 79, 85, 100].map(damage);
    for effect in damages.into_iter().chain([1, 40, 100].map(Effect::WrongLength)) {
        for size in [INLINE, CHUNKED] {
            let stored = || {
                let (rig, places) = small_rig();
                rig.open().put(KEY, &payload(size, 1)).unwrap();
                let device = rig.open();
                fail_at(&rig, &places, Opcode::Retrieve, Piece::Root(0), effect);
                (rig, places, device)
            };
            let (rig, places, device) = stored();
            assert!(!device.put(KEY, &payload(size, 2)).unwrap().already);
            device.expect(KEY, &payload(size, 2));
            rig.open().expect(KEY, &payload(size, 2));
            assert_eq!(root_slots(&rig, &places).len(), 1, "{effect:?}");
            let (rig, places, device) = stored();
            device.backend.remove(KEY).unwrap();
            assert_eq!(places.on_device(&rig), BTreeSet::new(), "{effect:?}");
        }
    }
}

#[test]
fn a_sweep_takes_no_root_that_is_garbled_once_for_an_orphan() {
    for effect in [0, 5, 20, 49, 58].map(|offset| Effect::Damage { offset, xor: 0x04 }) {
        let (rig, places) = small_rig();
        rig.open().put(KEY, &payload(CHUNKED, 1)).unwrap();
        places.put(&rig, Piece::Chunk(1, 0), b"an orphan");
        let device = rig.open();
        fail_at(&rig, &places, Opcode::Retrieve, Piece::Root(0), effect);
        assert_eq!(device.backend.sweep(false).unwrap(), SweepReport { orphans: 1, deleted: 1 });
        assert_eq!(places.on_device(&rig), places.object(0, CHUNKED));
    }
}

/// One lie in every part of a root: header, placement, identity, payload, and its length.
fn lies() -> impl Iterator<Item = Effect> {
    let garbled =
        [0, 5, 20, 49, 58, 73, 77, 85, 100].map(|offset| Effect::Damage { offset, xor: 4 });
    garbled.into_iter().chain([Effect::WrongLength(1), Effect::WrongLength(60)])
}

#[test]
fn a_scan_finds_and_counts_a_root_that_is_garbled_once() {
    for effect in lies() {
        for (slot, size) in [(0, INLINE), (0, CHUNKED), (2, INLINE), (2, CHUNKED)] {
            let (rig, places) = small_rig();
            places.put_object(&rig, slot, &payload(size, 1));
            let device = rig.open();
            fail_at(&rig, &places, Opcode::Retrieve, Piece::Root(slot), effect);
            let report = device.backend.scan(&mut |_| Ok(())).unwrap();
            assert_eq!((report.objects, report.damaged), (1, 0), "{effect:?}");
            assert_eq!(device.backend.usage().values, rig.value_count() as u64);
            device.expect(KEY, &payload(size, 1));
            assert!(device.put(KEY, &payload(size, 1)).unwrap().already, "not damaged");
        }
    }
}

#[test]
fn a_scan_counts_an_object_that_a_load_has_taken_for_damaged() {
    for piece in [Piece::Root(0), Piece::Chunk(0, 0)] {
        let (rig, places) = small_rig();
        rig.open().put(KEY, &payload(CHUNKED, 1)).unwrap();
        let device = rig.open();
        let effect = Effect::Damage { offset: 100, xor: 0x04 };
        fail_at(&rig, &places, Opcode::Retrieve, piece, effect);
        assert!(device.get(KEY, CHUNKED).is_err());
        let report = device.backend.scan(&mut |_| Ok(())).unwrap();
        assert_eq!((report.objects, report.damaged), (0, 1));
        let usage = device.backend.usage();
        assert_eq!((usage.objects, usage.values), (1, rig.value_count() as u64));
        device.expect(KEY, &payload(CHUNKED, 1));
        assert!(!device.put(KEY, &payload(CHUNKED, 1)).unwrap().already, "not trusted");
        assert_eq!(device.backend.usage(), usage);
    }
}

#[test]
fn a_scan_purges_a_hidden_root_that_is_garbled_once() {
    for effect in lies() {
        let (rig, places) = small_rig();
        rig.open().put(KEY, &payload(CHUNKED, 1)).unwrap();
        places.put_root(&rig, 3, &payload(INLINE, 2));
        let device = rig.open();
        fail_at(&rig, &places, Opcode::Retrieve, Piece::Root(3), effect);
        device.backend.scan(&mut |_| Ok(())).unwrap();
        device.backend.remove(KEY).unwrap();
        assert_eq!(places.on_device(&rig), BTreeSet::new(), "{effect:?}: it would come back");
    }
}

#[test]
fn removing_everything_and_evictions_take_a_root_that_is_garbled_once() {
    for effect in lies() {
        for known in [true, false] {
            let stored = || {
                let (rig, places) = small_rig();
                let writer = rig.open();
                writer.put(KEY, &payload(CHUNKED, 1)).unwrap();
                let device = if known { writer } else { rig.open() };
                fail_at(&rig, &places, Opcode::Retrieve, Piece::Root(0), effect);
                (rig, device)
            };
            let (rig, device) = stored();
            assert_eq!(device.backend.remove_all().unwrap(), 1, "{effect:?}");
            assert_eq!(rig.value_count(), 0);
            let (rig, device) = stored();
            let evicted = device.backend.evict_above(0.0, 0.0, &mut |_| Ok(())).unwrap();
            assert_eq!(evicted, [KEY], "{effect:?}");
            assert_eq!(rig.value_count(), 0);
        }
    }
}

/// Its answer was lost, and so it meets itself; taken for another root, it would lose its chunks.
#[test]
fn a_write_knows_its_own_root_that_is_garbled_once() {
    for effect in lies() {
        for size in [INLINE, CHUNKED] {
            let (rig, places) = small_rig();
            let device = rig.open();
            fail_at(&rig, &places, Opcode::Store, Piece::Root(0), Effect::ExecutedNoAnswer);
            // With a complete index the write asks for no root before it stores one.
            device.backend.scan(&mut |_| Ok(())).unwrap();
            fail_at(&rig, &places, Opcode::Retrieve, Piece::Root(0), effect);
            assert!(!device.put(KEY, &payload(size, 1)).unwrap().already);
            assert_eq!(places.on_device(&rig), places.object(0, size), "{effect:?}");
            device.expect(KEY, &payload(size, 1));
        }
    }
}

#[test]
fn an_object_whose_root_a_scan_took_twice_for_a_chunk_is_replaced_by_the_next_offload() {
    for effect in [Effect::Damage { offset: 58, xor: 0x04 }, Effect::WrongLength(1)] {
        for size in [INLINE, CHUNKED] {
            let (rig, places) = small_rig();
            rig.open().put(KEY, &payload(size, 1)).unwrap();
            let device = rig.open();
            for _ in 0..2 {
                fail_at(&rig, &places, Opcode::Retrieve, Piece::Root(0), effect);
            }
            device.backend.scan(&mut |_| Ok(())).unwrap();
            assert!(!device.backend.exists(KEY).unwrap());
            device.put(KEY, &payload(size, 2)).unwrap();
            assert_eq!(places.on_device(&rig), places.object(1, size));
            rig.open().expect(KEY, &payload(size, 2));
        }
    }
}

#[test]
fn a_root_that_is_garbled_once_never_uncovers_an_older_one() {
    let garbled = [0, 5, 20, 49, 58, 85].map(|offset| Effect::Damage { offset, xor: 0x04 });
    for effect in garbled.into_iter().chain([Effect::WrongLength(1), Effect::WrongLength(60)]) {
        for size in [INLINE, CHUNKED] {
            let (rig, places) = small_rig();
            let bytes = payload(size, 1);
            rig.open().put(KEY, &bytes).unwrap();
            // What a crash may leave above the visible version.
            places.put_root(&rig, 3, &payload(INLINE, 2));
            let fail = || fail_at(&rig, &places, Opcode::Retrieve, Piece::Root(0), effect);
            let device = rig.open();
            fail();
            device.expect(KEY, &bytes);
            let device = rig.open();
            fail();
            assert!(device.backend.exists(KEY).unwrap());
            let device = rig.open();
            fail();
            assert!(device.put(KEY, &bytes).unwrap().already);
            let device = rig.open();
            fail();
            device.backend.remove(KEY).unwrap();
            assert_eq!(places.on_device(&rig).len(), 0);
        }
    }
}
