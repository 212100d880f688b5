//! Commands of a write that fail or take long: the right code and message, nothing of the attempt
//! left behind, and an offload that succeeds once the device does.

mod support;

use std::collections::BTreeSet;
use std::time::Duration;

use mooncake_nvme_kv::ErrorCode;
use nvme_kv_command_set::{Opcode, Status};
use nvme_kv_emulator::{CompletionOrder, Effect, Personality, RetrieveLength, ShortRetrieve};
use support::characters::small_values;
use support::faults::{Class, classes, fail, fail_at, says};
use support::places::{Piece, Places};
use support::{Device, Rig, payload};

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

fn nothing() -> BTreeSet<Piece> {
    BTreeSet::new()
}

#[test]
fn a_failed_store_is_reported_and_leaves_nothing_of_the_attempt() {
    let mut classes = classes();
    classes.push(Class {
        effect: Effect::Status(Status::INVALID_VALUE_SIZE),
        on_write: ErrorCode::InvalidParams,
        on_read: ErrorCode::InvalidParams,
        words: "value size",
    });
    for Class { effect, on_write, words, .. } in classes {
        for (size, stores) in [(INLINE, 1), (CHUNKED, CHUNKS + 1)] {
            for nth in 1..=stores {
                for complete in [true, false] {
                    let (rig, places) = small_rig();
                    if !complete {
                        rig.open().put(b"other", b"").unwrap();
                    }
                    let device = rig.open();
                    let others = rig.value_count();
                    fail(&rig, Opcode::Store, nth, effect);
                    says(&device.put(KEY, &payload(size, 1)).unwrap_err(), on_write, words);
                    assert_eq!(rig.value_count(), others, "{effect:?} at Store {nth}");
                    assert!(!device.backend.exists(KEY).unwrap());
                    assert!(!device.put(KEY, &payload(size, 1)).unwrap().already);
                    device.expect(KEY, &payload(size, 1));
                    rig.open().expect(KEY, &payload(size, 1));
                    assert_eq!(rig.value_count(), others + stores as usize);
                    assert_eq!(root_slots(&rig, &places), [0]);
                }
            }
        }
    }
}

#[test]
fn a_failed_store_of_a_rewrite_keeps_the_old_version() {
    for Class { effect, on_write, words, .. } in classes() {
        for nth in 1..=CHUNKS + 1 {
            for known in [true, false] {
                let (rig, places) = small_rig();
                let writer = rig.open();
                let (old, new) = (payload(CHUNKED, 1), payload(CHUNKED, 2));
                writer.put(KEY, &old).unwrap();
                let device = if known { writer } else { rig.open() };
                fail(&rig, Opcode::Store, nth, effect);
                says(&device.put(KEY, &new).unwrap_err(), on_write, words);
                assert_eq!(places.on_device(&rig), places.object(0, CHUNKED));
                device.expect(KEY, &old);
                rig.open().expect(KEY, &old);
                assert!(device.put(KEY, &old).unwrap().already);
                assert!(!device.put(KEY, &new).unwrap().already);
                assert_eq!(places.on_device(&rig), places.object(1, CHUNKED));
                device.expect(KEY, &new);
            }
        }
    }
}

#[test]
fn a_chunk_that_was_there_before_survives_a_failed_write() {
    let new = payload(CHUNKED, 1);
    for present in 0..3 {
        for failing in [Piece::Chunk(0, 0), Piece::Chunk(0, 1), Piece::Chunk(0, 2), Piece::Root(0)]
        {
            if failing == Piece::Chunk(0, present) {
                continue;
            }
            let (rig, places) = small_rig();
            let chunk = new.chunks(VALUE).nth(present as usize).unwrap();
            places.put(&rig, Piece::Chunk(0, present), chunk);
            let device = rig.open();
            fail_at(&rig, &places, Opcode::Store, failing, Effect::Status(Status::INTERNAL));
            device.put(KEY, &new).unwrap_err();
            assert_eq!(places.on_device(&rig), BTreeSet::from([Piece::Chunk(0, present)]));
            device.put(KEY, &new).unwrap();
            assert_eq!(places.on_device(&rig), places.object(0, CHUNKED));
            rig.open().expect(KEY, &new);
        }
    }
}

#[test]
fn a_failed_comparison_with_a_chunk_that_is_there_fails_the_write() {
    let new = payload(CHUNKED, 1);
    for Class { effect, on_write, words, .. } in classes() {
        let (rig, places) = small_rig();
        let device = rig.open();
        places.put(&rig, Piece::Chunk(0, 1), &new[VALUE..2 * VALUE]);
        fail_at(&rig, &places, Opcode::Retrieve, Piece::Chunk(0, 1), effect);
        says(&device.put(KEY, &new).unwrap_err(), on_write, words);
        assert_eq!(places.on_device(&rig), BTreeSet::from([Piece::Chunk(0, 1)]));
        device.put(KEY, &new).unwrap();
        assert_eq!(places.on_device(&rig), places.object(0, CHUNKED));
    }
}

#[test]
fn a_failed_probe_fails_the_write_before_anything_is_stored() {
    for Class { effect, on_read, words, .. } in classes() {
        for (kind, nth) in [(Opcode::Retrieve, 1), (Opcode::Exist, 1), (Opcode::Exist, 63)] {
            let (rig, places) = small_rig();
            rig.open().put(b"other", b"").unwrap();
            let device = rig.open();
            device.faults.take_counts();
            fail(&rig, kind, nth, effect);
            says(&device.put(KEY, &payload(CHUNKED, 1)).unwrap_err(), on_read, words);
            assert_eq!(device.faults.take_counts().store, 0);
            assert_eq!(root_slots(&rig, &places), []);
            device.put(KEY, &payload(CHUNKED, 1)).unwrap();
            assert_eq!(root_slots(&rig, &places), [0]);
            rig.open().expect(KEY, &payload(CHUNKED, 1));
        }
    }
}

/// The old root cannot be deleted: "either version" until the key is written again.
#[test]
fn a_failed_delete_of_the_old_root_is_an_error_that_the_next_offload_repairs() {
    for Class { effect, on_write, words, .. } in classes() {
        for next_is_new in [true, false] {
            let (rig, places) = small_rig();
            let device = rig.open();
            let (old, new) = (payload(CHUNKED, 1), payload(CHUNKED, 2));
            device.put(KEY, &old).unwrap();
            fail(&rig, Opcode::Delete, 1, effect);
            let error = device.put(KEY, &new).unwrap_err();
            says(&error, on_write, words);
            assert!(error.message().contains("either version"), "{error}");
            let either = |device: &Device| {
                let loaded = device.get(KEY, CHUNKED).unwrap();
                assert!(loaded == old || loaded == new);
                loaded
            };
            assert_eq!(either(&device), either(&rig.open()), "all read the same one");
            assert!(device.backend.exists(KEY).unwrap());
            let next = if next_is_new { &new } else { &old };
            device.put(KEY, next).unwrap();
            device.expect(KEY, next);
            rig.open().expect(KEY, next);
            let [slot] = root_slots(&rig, &places)[..] else { panic!("one root") };
            assert_eq!(places.on_device(&rig), places.object(slot, CHUNKED));
        }
    }
}

#[test]
fn a_failed_delete_of_old_chunks_leaves_orphans_and_a_stored_object() {
    for nth in 2..=CHUNKS + 1 {
        let (rig, places) = small_rig();
        let device = rig.open();
        device.put(KEY, &payload(CHUNKED, 1)).unwrap();
        fail(&rig, Opcode::Delete, nth, Effect::Status(Status::INTERNAL));
        assert!(!device.put(KEY, &payload(CHUNKED, 2)).unwrap().already);
        let stays = Piece::Chunk(0, nth as u32 - 2);
        let mut expected = places.object(1, CHUNKED);
        expected.insert(stays);
        assert_eq!(places.on_device(&rig), expected);
        for (seed, slot) in [(3, 2), (4, 1)] {
            device.put(KEY, &payload(CHUNKED, seed)).unwrap();
            let mut expected = places.object(slot, CHUNKED);
            expected.insert(stays);
            assert_eq!(places.on_device(&rig), expected, "the orphan's slot is passed over");
            rig.open().expect(KEY, &payload(CHUNKED, seed));
        }
    }
}

#[test]
fn a_failed_purge_of_a_hidden_root_keeps_the_visible_version() {
    let (old, new) = (payload(CHUNKED, 1), payload(CHUNKED, 2));
    for Class { effect, on_write, words, .. } in classes() {
        let (rig, places) = small_rig();
        places.put_object(&rig, 0, &old);
        places.put_object(&rig, 5, &new);
        let device = rig.open();
        fail(&rig, Opcode::Delete, 1, effect);
        says(&device.put(KEY, &new).unwrap_err(), on_write, words);
        device.expect(KEY, &old);
        rig.open().expect(KEY, &old);
        device.put(KEY, &new).unwrap();
        assert_eq!(places.on_device(&rig), places.object(1, CHUNKED));
        rig.open().expect(KEY, &new);
    }
}

#[test]
fn what_a_failed_write_cannot_delete_stays_and_the_first_error_is_reported() {
    let (rig, places) = small_rig();
    let device = rig.open();
    fail_at(&rig, &places, Opcode::Store, Piece::Root(0), Effect::Errno(libc::EIO));
    fail_at(&rig, &places, Opcode::Delete, Piece::Chunk(0, 1), Effect::Status(Status::INTERNAL));
    let new = payload(CHUNKED, 1);
    says(&device.put(KEY, &new).unwrap_err(), ErrorCode::FileWriteFail, "os error 5");
    assert_eq!(places.on_device(&rig), BTreeSet::from([Piece::Chunk(0, 1)]));
    device.put(KEY, &new).unwrap();
    assert_eq!(places.on_device(&rig), places.object(0, CHUNKED), "the orphan is taken over");
}

#[test]
fn slow_commands_change_nothing_but_the_order() {
    let delay = Effect::Delay(Duration::from_millis(1));
    for order in [CompletionOrder::Fifo, CompletionOrder::Shuffled { seed: 3 }] {
        for nth in 1..=CHUNKS + 1 {
            let personality = Personality { completion_order: order, ..Personality::default() };
            let rig = Rig::with(personality, small_values);
            let places = Places::new(&rig, KEY, 8);
            let device = rig.open();
            fail(&rig, Opcode::Store, nth, delay);
            device.put(KEY, &payload(CHUNKED, 1)).unwrap();
            fail(&rig, Opcode::Retrieve, nth, delay);
            rig.open().expect(KEY, &payload(CHUNKED, 1));
            rig.namespace.clear_faults();
            fail(&rig, Opcode::Delete, nth, delay);
            device.put(KEY, &payload(CHUNKED, 2)).unwrap();
            assert_eq!(places.on_device(&rig), places.object(1, CHUNKED));
            rig.open().expect(KEY, &payload(CHUNKED, 2));
        }
    }
}

/// The root is the visibility mark: no device may hold it before the last chunk has completed.
#[test]
fn the_root_is_submitted_only_after_the_last_chunk_has_completed() {
    for nth in 1..=CHUNKS {
        let (rig, places) = small_rig();
        let device = rig.open();
        fail(&rig, Opcode::Store, nth, Effect::LateNoAnswer { after: u64::MAX });
        // Its second try fails as well: the chunk never completes.
        fail_at(
            &rig,
            &places,
            Opcode::Store,
            Piece::Chunk(0, nth as u32 - 1),
            Effect::Status(Status::INTERNAL),
        );
        // One command takes at most one fault, so the second one meets the second try.
        device.put(KEY, &payload(CHUNKED, 1)).unwrap_err();
        assert_eq!(device.faults.counts().store, CHUNKS + 1, "chunks, and one again; no root");
        assert_eq!(places.on_device(&rig), nothing());
    }
}

#[test]
fn a_device_that_is_full_says_so_and_keeps_what_it_has() {
    let key_limit = Personality { max_keys: 5, ..Personality::default() };
    let byte_limit = Personality { capacity_bytes: 5 * VALUE as u64, ..Personality::default() };
    for personality in [key_limit, byte_limit] {
        let rig = Rig::with(personality, small_values);
        let device = rig.open();
        assert!(device.backend.is_enabled().unwrap());
        device.put(b"first", &payload(CHUNKED, 1)).unwrap();
        let values = rig.value_count();
        let new = payload(CHUNKED, 2);
        says(&device.put(KEY, &new).unwrap_err(), ErrorCode::KeysUltraLimit, "full: ");
        assert_eq!(rig.value_count(), values);
        says(
            &device.put(b"tenant\0object", &payload(3 * CHUNKED, 3)).unwrap_err(),
            ErrorCode::KeysUltraLimit,
            "full: ",
        );
        assert_eq!(rig.value_count(), values);
        device.expect(b"first", &payload(CHUNKED, 1));
        assert!(device.put(b"first", &payload(CHUNKED, 1)).unwrap().already);
        device.put(b"small", b"fits").unwrap();
    }
}

#[test]
fn one_failed_object_does_not_harm_the_others_of_its_batch() {
    for nth in [1, 7, 20, 33] {
        let rig = Rig::with(
            Personality {
                retrieve_length: RetrieveLength::Padded,
                short_retrieve: ShortRetrieve::InvalidValueSize,
                ..Personality::default()
            },
            small_values,
        );
        let device = rig.open();
        let objects: Vec<(String, Vec<u8>)> =
            (0..20).map(|n| (format!("key {n}"), payload(n * 1500, n as u64))).collect();
        let slices: Vec<[&[u8]; 1]> = objects.iter().map(|(_, bytes)| [&bytes[..]]).collect();
        let batch: Vec<_> = objects
            .iter()
            .zip(&slices)
            .map(|((key, _), slices)| mooncake_nvme_kv::backend::ObjectToStore {
                key: key.as_bytes(),
                slices,
            })
            .collect();
        fail(&rig, Opcode::Store, nth, Effect::Status(Status::WRITE_FAULT));
        let report = device.backend.offload(&batch, &mut |_| Ok(())).unwrap();
        let failed: Vec<usize> = (0..20).filter(|index| report.results[*index].is_err()).collect();
        assert_eq!(failed.len(), 1);
        let mut values = 0;
        for (index, (key, bytes)) in objects.iter().enumerate() {
            let stored = device.backend.exists(key.as_bytes()).unwrap();
            assert_eq!(stored, index != failed[0]);
            if stored {
                rig.open().expect(key.as_bytes(), bytes);
                values += rig.values_of(key.as_bytes(), bytes.len());
            }
        }
        assert_eq!(rig.value_count(), values);
    }
}
