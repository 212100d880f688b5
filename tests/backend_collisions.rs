//! Logical keys whose physical keys are the same.

mod support;

use std::sync::Arc;

use mooncake_nvme_kv::ErrorCode;
use mooncake_nvme_kv::layout::{KeyCodec, ObjectKeys};
use nvme_kv_emulator::Personality;
use support::characters::small_values;
use support::places::Places;
use support::{Rig, payload};

/// Value size limit of the rigs, bytes.
const VALUE: usize = 8192;
const INLINE: usize = 700;

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
