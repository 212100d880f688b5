//! A crash at every command of a scan, a removal, an eviction and a sweep.
//!
//! The object that leaves is whole or gone, its hidden version never shows, the other object is
//! untouched, and the next process scans, sweeps and counts as if nothing had happened.

mod support;

use mooncake_nvme_kv::ErrorCode;
use mooncake_nvme_kv::config::{Config, EvictionPolicy};
use nvme_kv_emulator::Personality;
use support::places::{Piece, Places};
use support::{Device, Rig, payload};

const LEAVES: &[u8] = b"tenant\0leaves";
const STAYS: &[u8] = b"tenant\0stays";
const VALUE: usize = 8192;
/// Two chunks.
const CHUNKED: usize = VALUE + 100;

fn settings(config: &mut Config) {
    config.connector.runtime_transfer_limit = VALUE as u32;
    config.lifecycle.eviction = EvictionPolicy::Lru;
    // Above the high watermark with both objects, below the low one with the smaller.
    config.lifecycle.max_bytes = 16 * 4096;
}

/// An object with a hidden version above it and a hole between, another object, and orphans.
fn stage() -> Rig {
    let rig = Rig::with(Personality::default(), settings);
    let places = Places::new(&rig, LEAVES, 4);
    places.put_object(&rig, 0, &payload(CHUNKED, 1));
    places.put_object(&rig, 2, &payload(CHUNKED, 2));
    places.put(&rig, Piece::Chunk(1, 0), &payload(VALUE, 3));
    Places::new(&rig, STAYS, 4).put_object(&rig, 1, &payload(100, 4));
    rig
}

/// Runs `operation` once undisturbed and then with a crash before each of its commands.
fn crash_everywhere(leaves: bool, operation: impl Fn(&Device) -> bool) {
    let commands = {
        let rig = stage();
        let device = rig.open();
        assert!(operation(&device), "undisturbed");
        device.faults.take_counts().total()
    };
    assert!(commands > 2, "{commands} commands");
    for index in 0..=commands {
        let rig = stage();
        let done = {
            let device = rig.open();
            device.faults.crash_after(index);
            operation(&device)
        };
        let device = rig.open();
        let gone = match device.get(LEAVES, CHUNKED) {
            Ok(bytes) => {
                assert!(bytes == payload(CHUNKED, 1), "crash at {index}: not the visible version");
                false
            }
            Err(error) => {
                assert_eq!(error.code(), ErrorCode::ObjectNotFound, "crash at {index}: {error}");
                true
            }
        };
        assert!(!gone || leaves, "crash at {index}: it is gone");
        assert!(gone || !done || !leaves, "crash at {index}: it is still there");
        assert_eq!(device.backend.exists(LEAVES).unwrap(), !gone, "crash at {index}");
        device.expect(STAYS, &payload(100, 4));

        // The next process puts the rest right.
        device.backend.sweep(false).unwrap();
        let reported = device.scan().1.len();
        assert_eq!(reported, if gone { 1 } else { 2 }, "crash at {index}");
        let (usage, held) = (device.backend.usage(), rig.namespace.usage());
        assert_eq!((usage.values, usage.bytes), (held.keys, held.bytes), "crash at {index}");
        assert_eq!(usage.objects, reported as u64);
        if !gone {
            device.expect(LEAVES, &payload(CHUNKED, 1));
            device.backend.remove(LEAVES).unwrap();
        }
        assert_eq!(rig.value_count(), 1, "crash at {index}: only the other object is left");
        device.expect(STAYS, &payload(100, 4));
    }
}

#[test]
fn a_crash_at_any_command_of_a_scan_loses_nothing() {
    crash_everywhere(false, |device| device.backend.scan(&mut |_| Ok(())).is_ok());
}

#[test]
fn a_crash_at_any_command_of_a_removal_leaves_the_object_whole_or_gone() {
    crash_everywhere(true, |device| device.backend.remove(LEAVES).is_ok());
}

#[test]
fn a_crash_at_any_command_of_an_eviction_leaves_the_object_whole_or_gone() {
    crash_everywhere(true, |device| {
        let told = std::cell::RefCell::new(Vec::new());
        // Read last, so that the other object is the oldest no more.
        let _ = device.get(STAYS, 100);
        let evicted = device.backend.evict_above(0.1, 0.1, &mut |keys| {
            told.borrow_mut().extend_from_slice(keys);
            Ok(())
        });
        evicted.is_ok_and(|evicted| {
            assert_eq!(evicted, *told.borrow());
            evicted == [LEAVES.to_vec()]
        })
    });
}

#[test]
fn a_crash_at_any_command_of_a_sweep_loses_nothing() {
    crash_everywhere(false, |device| {
        device.backend.sweep(false).is_ok_and(|report| report.deleted == report.orphans)
    });
}
