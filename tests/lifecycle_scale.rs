//! Full devices, large batches, and everything at once.

mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use mooncake_nvme_kv::backend::{Handlers, ObjectToStore, OffloadReport};
use mooncake_nvme_kv::config::{Config, EvictionPolicy};
use mooncake_nvme_kv::device::CommandError;
use mooncake_nvme_kv::device::fault::{Effect, HoldPoint, Kind};
use mooncake_nvme_kv::{Error, ErrorCode, Result};
use nvme_kv_command_set::Opcode;
use nvme_kv_emulator::{Effect as DeviceEffect, Personality};
use support::faults::fail_at;
use support::places::{Piece, Places};
use support::random::Random;
use support::{Device, Rig, manual_clock, payload, seed};

/// Bytes of most objects: some are inline, some have chunks.
const SIZES: [usize; 3] = [100, 4000, 20_000];

fn key(n: usize) -> Vec<u8> {
    format!("tenant\0object {n:05}").into_bytes()
}

fn object(n: usize) -> (Vec<u8>, Vec<u8>) {
    (key(n), payload(SIZES[n % SIZES.len()], n as u64))
}

fn evicting(policy: EvictionPolicy) -> impl FnOnce(&mut Config) {
    move |config| {
        config.lifecycle.eviction = policy;
        config.connector.runtime_transfer_limit = 8192;
    }
}

/// Offloads objects in one call.
fn offload(
    device: &Device,
    objects: &[(Vec<u8>, Vec<u8>)],
    handlers: Handlers<'_>,
) -> OffloadReport {
    let slices: Vec<[&[u8]; 1]> = objects.iter().map(|(_, bytes)| [bytes.as_slice()]).collect();
    let batch: Vec<ObjectToStore<'_>> = objects
        .iter()
        .zip(&slices)
        .map(|((key, _), slices)| ObjectToStore { key, slices })
        .collect();
    device.backend.offload_with(&batch, handlers).unwrap()
}

/// What the device holds is what the backend counts.
#[track_caller]
fn counters_are_true(rig: &Rig, device: &Device) {
    let (usage, held) = (device.backend.usage(), rig.namespace.usage());
    assert_eq!((usage.values, usage.bytes), (held.keys, held.bytes));
}

fn no(_: &[Vec<u8>]) -> Result<()> {
    Ok(())
}

/// Fills a device to three times its limit in batches of `batch` objects; some are read all the
/// time. Returns which objects are left.
fn fill_threefold(rig: &Rig, batch: usize, count: usize) -> BTreeSet<usize> {
    let device = rig.open();
    let limit = rig.config.lifecycle.max_bytes.min(rig.namespace.personality().capacity_bytes);
    let mut evicted: Vec<Vec<u8>> = Vec::new();
    let all: Vec<(Vec<u8>, Vec<u8>)> = (0..count).map(object).collect();
    let mut reported = 0;
    let mut most = 0;
    for objects in all.chunks(batch) {
        let mut on_stored = |stored: &[usize]| {
            reported += stored.len();
            Ok(())
        };
        let mut on_evicted = |keys: &[Vec<u8>]| {
            for key in keys {
                let root = Places::new(rig, key, 0).device_key(Piece::Root(0));
                assert!(rig.namespace.peek(&root).is_some(), "deleted before it was announced");
                assert!(!device.backend.exists(key).unwrap(), "not hidden from readers");
            }
            evicted.extend_from_slice(keys);
            Ok(())
        };
        let handlers = Handlers { on_stored: &mut on_stored, on_evicted: &mut on_evicted };
        let report = offload(&device, objects, handlers);
        assert!(report.callback_error.is_none());
        for result in report.results {
            result.expect("an offload that evicts stores everything");
        }
        most = most.max(device.backend.usage().bytes);
        assert!(rig.namespace.usage().bytes <= limit);
        counters_are_true(rig, &device);
        assert!(device.backend.is_enabled().unwrap());
        // The first object is in use.
        if batch < count {
            device.expect(&all[0].0, &all[0].1);
        }
    }
    assert_eq!(reported, count);
    assert!(most > limit / 2, "the device is used: {most} of {limit} bytes");
    let gone: BTreeSet<Vec<u8>> = evicted.iter().cloned().collect();
    assert_eq!(gone.len(), evicted.len(), "each is announced once");
    let mut left = BTreeSet::new();
    for (n, (key, bytes)) in all.iter().enumerate() {
        if gone.contains(key) {
            let error = device.get(key, bytes.len()).unwrap_err();
            assert_eq!(error.code(), ErrorCode::ObjectNotFound);
        } else {
            device.expect(key, bytes);
            left.insert(n);
        }
    }
    left
}

/// Bytes on the device of the first `count` objects.
fn bytes_of(count: usize) -> u64 {
    let rig = Rig::with(Personality::default(), evicting(EvictionPolicy::None));
    let device = rig.open();
    let all: Vec<(Vec<u8>, Vec<u8>)> = (0..count).map(object).collect();
    offload(&device, &all, Handlers { on_stored: &mut |_| Ok(()), on_evicted: &mut no });
    device.backend.usage().bytes
}

#[test]
fn filled_threefold_with_lru_offloads_go_on_and_the_oldest_unread_leave() {
    let bytes = bytes_of(300) / 3;
    for batch in [1, 10, 300] {
        let rig = Rig::with(Personality::default(), |config| {
            evicting(EvictionPolicy::Lru)(config);
            config.lifecycle.max_bytes = bytes;
        });
        let left = fill_threefold(&rig, batch, 300);
        assert!(left.contains(&299) && left.len() > 50, "{left:?}");
        if batch < 300 {
            assert!(left.contains(&0), "read all the time");
            let oldest = left.iter().nth(1).copied().unwrap();
            // The objects of one batch are of one age.
            assert!(oldest + batch > 300 - (left.len() - 1), "an older one is left: {left:?}");
        }
    }
}

#[test]
fn filled_threefold_with_fifo_the_first_stored_leave_even_if_they_are_read() {
    let bytes = bytes_of(300) / 3;
    let rig = Rig::with(Personality::default(), |config| {
        evicting(EvictionPolicy::Fifo)(config);
        config.lifecycle.max_bytes = bytes;
    });
    let device = rig.open();
    let mut evicted = Vec::new();
    for n in 0..300 {
        let mut on_evicted = |keys: &[Vec<u8>]| {
            evicted.extend_from_slice(keys);
            Ok(())
        };
        let handlers = Handlers { on_stored: &mut |_| Ok(()), on_evicted: &mut on_evicted };
        let report = offload(&device, &[object(n)], handlers);
        assert!(report.results[0].is_ok());
        if !evicted.contains(&key(0)) {
            device.expect(&key(0), &object(0).1);
        }
    }
    assert!(evicted.len() > 150);
    assert!(evicted.iter().enumerate().all(|(n, evicted)| *evicted == key(n)), "in their order");
}

#[test]
fn the_limits_are_those_of_the_device_if_these_are_lower() {
    let bytes = bytes_of(300) / 3;
    let capacity = Personality { capacity_bytes: bytes, ..Personality::default() };
    let rig = Rig::with(capacity, evicting(EvictionPolicy::Lru));
    assert!(rig.config.lifecycle.max_bytes > bytes);
    let left = fill_threefold(&rig, 10, 300);
    assert!(left.contains(&0) && left.contains(&299));

    let few = Personality { max_keys: 50, ..Personality::default() };
    let rig = Rig::with(few, evicting(EvictionPolicy::Lru));
    let device = rig.open();
    for n in 0..150 {
        device.put(&key(n), &object(n).1).unwrap();
        assert!(rig.value_count() <= 50);
    }
    counters_are_true(&rig, &device);
}

#[test]
fn objects_of_an_earlier_life_leave_before_those_of_this_one() {
    let rig = Rig::with(Personality::default(), |config| {
        evicting(EvictionPolicy::Lru)(config);
        config.lifecycle.max_objects = 100;
    });
    let device = rig.open();
    for n in 0..100 {
        device.put(&key(n), b"old").unwrap();
    }
    let device = rig.open();
    device.expect(&key(7), b"old");
    device.backend.scan(&mut |_| Ok(())).unwrap();
    for n in 100..199 {
        device.put(&key(n), b"new").unwrap();
    }
    assert!((100..199).all(|n| device.backend.exists(&key(n)).unwrap()));
    assert!(device.backend.exists(&key(7)).unwrap(), "used in this life");
    assert_eq!(device.backend.usage().objects, 100);
}

#[test]
fn an_eviction_that_needs_a_scan_takes_nothing_from_the_scan_that_reports() {
    let rig = Rig::with(Personality::default(), |config| {
        evicting(EvictionPolicy::Lru)(config);
        config.lifecycle.scan_page = 10;
        config.lifecycle.max_objects = 100;
    });
    let device = rig.open();
    let old: Vec<Vec<u8>> = (0..100).map(key).collect();
    for key in &old {
        device.put(key, b"old").unwrap();
    }
    // Without the limit until the index is complete.
    let device = rig.open();
    let (mut known, mut evicted) = (BTreeSet::new(), BTreeSet::new());
    let mut next = 1000;
    device
        .backend
        .scan(&mut |page| {
            known.extend(page.iter().map(|object| object.key.clone()));
            let mut on_evicted = |keys: &[Vec<u8>]| {
                evicted.extend(keys.iter().cloned());
                Ok(())
            };
            let new: Vec<(Vec<u8>, Vec<u8>)> =
                (next..next + 60).map(|n| (key(n), b"new".to_vec())).collect();
            next += 60;
            let handlers = Handlers { on_stored: &mut |_| Ok(()), on_evicted: &mut on_evicted };
            for result in offload(&device, &new, handlers).results {
                result.unwrap();
            }
            Ok(())
        })
        .unwrap();
    for key in &old {
        assert!(known.contains(key) || evicted.contains(key), "neither reported nor evicted");
        assert_eq!(device.backend.exists(key).unwrap(), !evicted.contains(key));
    }
    counters_are_true(&rig, &device);
    assert!(device.backend.usage().objects <= 100);
}

#[test]
fn the_eviction_callback_may_look_up_and_load() {
    let rig = Rig::with(Personality::default(), |config| {
        evicting(EvictionPolicy::Lru)(config);
        config.lifecycle.max_objects = 4;
    });
    let device = rig.open();
    for n in 0..4 {
        device.put(&key(n), &object(n).1).unwrap();
    }
    let mut told = Vec::new();
    let mut on_evicted = |keys: &[Vec<u8>]| {
        for victim in keys {
            assert!(!device.backend.exists(victim).unwrap());
            assert_eq!(device.get(victim, 100).unwrap_err().code(), ErrorCode::ObjectNotFound);
        }
        device.expect(&key(3), &object(3).1);
        told.extend_from_slice(keys);
        Ok(())
    };
    let handlers = Handlers { on_stored: &mut |_| Ok(()), on_evicted: &mut on_evicted };
    assert!(offload(&device, &[object(4)], handlers).results[0].is_ok());
    assert_eq!(told, [key(0)]);
}

#[test]
fn the_eviction_callbacks_error_is_passed_on_and_nothing_is_lost() {
    let rig = Rig::with(Personality::default(), |config| {
        evicting(EvictionPolicy::Lru)(config);
        config.lifecycle.max_objects = 4;
    });
    let device = rig.open();
    for n in 0..3 {
        device.put(&key(n), &object(n).1).unwrap();
    }
    let mut calls = 0;
    let mut refuse = |_: &[Vec<u8>]| {
        calls += 1;
        Err(Error::new(ErrorCode::NotSupported, "keep them"))
    };
    let mut stored = Vec::new();
    let mut on_stored = |positions: &[usize]| {
        stored.extend_from_slice(positions);
        Ok(())
    };
    let handlers = Handlers { on_stored: &mut on_stored, on_evicted: &mut refuse };
    let report = offload(&device, &[object(10), object(11), object(12)], handlers);
    assert_eq!(report.callback_error.unwrap().code(), ErrorCode::NotSupported);
    assert_eq!((stored.as_slice(), calls), (&[0usize][..], 1), "what has room is stored");
    assert!(report.results[0].is_ok());
    for result in &report.results[1..] {
        assert_eq!(result.as_ref().unwrap_err().code(), ErrorCode::InvalidRead);
    }
    for n in [0, 1, 2, 10] {
        device.expect(&key(n), &object(n).1);
    }
}

/// Enough small objects for a batch to get lanes of its own.
fn large_batch() -> Vec<(Vec<u8>, Vec<u8>)> {
    (0..700).map(|n| (key(n), payload(100, n as u64))).collect()
}

/// A backend whose 600th Store waits, on one lane or on several.
fn held_rig(one_lane: bool) -> (Rig, Device, std::sync::Arc<HoldPoint>) {
    let rig = Rig::with(Personality::default(), |config| {
        config.connector.queue_depth = 16;
        if one_lane {
            config.io.prepare = 1;
        }
    });
    let device = rig.open();
    let hold = HoldPoint::new();
    let (mut stores, point) = (0, hold.clone());
    device.faults.set_rule(move |kind, _| {
        stores += u32::from(kind == Kind::Store);
        let held = kind == Kind::Store && stores == 600;
        if held { Effect::Hold(point.clone()) } else { Effect::Pass }
    });
    (rig, device, hold)
}

#[test]
fn what_is_stored_is_reported_before_the_batch_ends() {
    for one_lane in [true, false] {
        let (_rig, device, hold) = held_rig(one_lane);
        let objects = large_batch();
        let (mut calls, mut stored) = (0, 0);
        let mut on_stored = |positions: &[usize]| {
            for &position in positions {
                device.expect(&objects[position].0, &objects[position].1);
            }
            calls += 1;
            stored += positions.len();
            // Without this call the batch would not end.
            hold.release();
            Ok(())
        };
        let handlers = Handlers { on_stored: &mut on_stored, on_evicted: &mut no };
        let report = offload(&device, &objects, handlers);
        assert!(report.results.iter().all(Result::is_ok));
        assert!(calls > 1 && stored == objects.len(), "{calls} calls");
    }
}

#[test]
fn a_load_does_not_wait_for_an_offload() {
    let (_rig, device, hold) = held_rig(false);
    device.put(b"other", b"bytes").unwrap();
    let objects = large_batch();
    thread::scope(|scope| {
        let offloading = scope.spawn(|| {
            let handlers = Handlers { on_stored: &mut |_| Ok(()), on_evicted: &mut no };
            offload(&device, &objects, handlers)
        });
        hold.wait_for_arrival();
        let loaded = device.get(b"other", 5);
        let early = offloading.is_finished();
        hold.release();
        assert!(loaded.unwrap() == b"bytes" && !early);
        assert!(offloading.join().unwrap().results.iter().all(Result::is_ok));
    });
}

#[test]
fn closing_ends_a_large_batch_and_every_object_has_an_answer_that_is_true() {
    for one_lane in [true, false] {
        let (rig, device, hold) = held_rig(one_lane);
        // Three windows, were it not closed.
        let objects: Vec<(Vec<u8>, Vec<u8>)> =
            (0..10_000).map(|n| (key(n), payload(100, n as u64))).collect();
        let mut told = BTreeSet::new();
        let report = thread::scope(|scope| {
            let offloading = scope.spawn(|| {
                let mut on_stored = |positions: &[usize]| {
                    told.extend(positions.iter().copied());
                    Ok(())
                };
                let handlers = Handlers { on_stored: &mut on_stored, on_evicted: &mut no };
                offload(&device, &objects, handlers)
            });
            hold.wait_for_arrival();
            let closing = scope.spawn(|| device.backend.close());
            while device.backend.exists(b"any").is_ok() {
                thread::yield_now();
            }
            hold.release();
            closing.join().unwrap();
            offloading.join().unwrap()
        });
        let device = rig.open();
        device.backend.scan(&mut |_| Ok(())).unwrap();
        let mut stored = 0;
        for (n, result) in report.results.iter().enumerate() {
            let (key, bytes) = &objects[n];
            assert_eq!(told.contains(&n), result.is_ok());
            match result {
                Ok(_) => {
                    device.expect(key, bytes);
                    stored += 1;
                }
                Err(error) => {
                    assert_eq!(error.code(), ErrorCode::InvalidRead);
                    assert!(error.message().contains("closed"), "{error}");
                    assert!(!device.backend.exists(key).unwrap());
                }
            }
        }
        assert!((500..1000).contains(&stored), "{stored} were under way or done");
    }
}

#[test]
fn closing_ends_a_scan_which_then_has_found_nothing() {
    let rig = Rig::with(Personality::default(), |config| config.lifecycle.scan_page = 100);
    let device = rig.open();
    // Two pages of List, and more.
    let objects: Vec<(Vec<u8>, Vec<u8>)> = (0..7000).map(|n| (key(n), vec![1])).collect();
    offload(&device, &objects, Handlers { on_stored: &mut |_| Ok(()), on_evicted: &mut no });
    let device = rig.open();
    let error = thread::scope(|scope| {
        let mut closing = None;
        let scanned = device.backend.scan(&mut |_| {
            closing.get_or_insert_with(|| scope.spawn(|| device.backend.close()));
            while device.backend.exists(b"any").is_ok() {
                thread::yield_now();
            }
            Ok(())
        });
        scanned.unwrap_err()
    });
    assert!(error.message().contains("closed"), "{error}");
    assert_eq!(device.backend.usage().objects, 0);
}

#[test]
fn a_scan_that_the_device_fails_at_any_command_leaves_no_trace() {
    let rig = Rig::with(Personality::default(), |config| {
        config.connector.runtime_transfer_limit = 8192;
        config.lifecycle.scan_page = 5;
    });
    let device = rig.open();
    let objects: Vec<(Vec<u8>, Vec<u8>)> = (0..12).map(object).collect();
    offload(&device, &objects, Handlers { on_stored: &mut |_| Ok(()), on_evicted: &mut no });
    let rewritten = Places::new(&rig, &key(0), 4);
    rewritten.put_object(&rig, 3, b"hidden");
    let whole = device.backend.usage();
    for failing in 0.. {
        let device = rig.open();
        // Known before the scan, and so after it.
        device.expect(&key(5), &object(5).1);
        let before = device.backend.usage();
        let mut commands = 0;
        device.faults.set_rule(move |_, _| {
            commands += 1;
            if commands == failing + 1 {
                return Effect::Fail(CommandError::Errno(libc::EIO));
            }
            Effect::Pass
        });
        let failed = device.backend.scan(&mut |_| Ok(())).is_err();
        device.faults.clear_rule();
        if failed {
            assert_eq!(device.backend.usage(), before, "command {failing}");
            assert!(!device.backend.index_is_complete());
        }
        device.backend.reset_scan();
        let reported = device.scan().1.len();
        assert_eq!((reported, device.backend.usage()), (12, whole), "command {failing}");
        if !failed {
            assert!(failing > 12);
            return;
        }
    }
}

#[test]
fn an_object_removed_while_it_is_scanned_does_not_come_back() {
    let rig = Rig::new();
    rig.open().put(b"k", b"bytes").unwrap();
    let device = rig.open();
    let hold = HoldPoint::new();
    let point = hold.clone();
    device.faults.set_rule(move |kind, _| match kind {
        Kind::Delete => Effect::Hold(point.clone()),
        _ => Effect::Pass,
    });
    let mut reported = 0;
    thread::scope(|scope| {
        let removing = scope.spawn(|| device.backend.remove(b"k"));
        hold.wait_for_arrival();
        let before = device.faults.counts().retrieve;
        let scanning = scope.spawn(|| {
            device.backend.scan(&mut |page| {
                reported += page.len();
                Ok(())
            })
        });
        // It has read the root, or is about to.
        while device.faults.counts().retrieve == before {
            thread::yield_now();
        }
        hold.release();
        removing.join().unwrap().unwrap();
        scanning.join().unwrap().unwrap();
    });
    assert!(!device.backend.exists(b"k").unwrap());
    assert_eq!((reported, device.backend.usage().objects), (0, 0));
}

#[test]
fn removing_everything_goes_on_after_a_failure() {
    let rig = Rig::new();
    let device = rig.open();
    for n in 0..50 {
        device.put(&key(n), b"x").unwrap();
    }
    let mut failures = 1;
    device.faults.set_rule(move |kind, _| {
        if kind == Kind::Delete && failures > 0 {
            failures -= 1;
            return Effect::Fail(CommandError::Errno(libc::EIO));
        }
        Effect::Pass
    });
    device.backend.remove_all().unwrap_err();
    assert_eq!(rig.value_count(), 0, "the second look removed what the first one could not");
    counters_are_true(&rig, &device);
}

#[test]
fn without_list_what_is_known_is_evicted_and_removed() {
    let rig = Rig::with("list=absent".parse().unwrap(), |config| {
        evicting(EvictionPolicy::Lru)(config);
        config.lifecycle.max_objects = 20;
    });
    rig.open().put(&key(500), b"of an earlier life").unwrap();
    let device = rig.open();
    for n in 0..60 {
        device.put(&key(n), &object(n).1).unwrap();
    }
    assert_eq!(device.backend.usage().objects, 20);
    assert!(device.backend.exists(&key(500)).unwrap(), "asked for");
    assert!(!device.backend.exists(&key(0)).unwrap());
    assert_eq!(device.backend.remove_all().unwrap(), 21, "it is known since");
    assert_eq!(rig.value_count(), 0);
}

#[test]
fn a_sweep_beside_offloads_deletes_nothing_of_theirs() {
    let rig = Rig::with("order=shuffled:7".parse().unwrap(), |config| {
        config.connector.runtime_transfer_limit = 8192;
    });
    let device = rig.open();
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let writers = (0..2).map(|writer| {
            let device = &device;
            scope.spawn(move || {
                for round in 0..30 {
                    for n in 0..4 {
                        let key = key(10 * writer + n);
                        let bytes = payload(20_000 + 100 * n, (round * 100 + n) as u64);
                        device.put(&key, &bytes).unwrap();
                        device.expect(&key, &bytes);
                    }
                }
            })
        });
        let writers: Vec<_> = writers.collect();
        let sweeper = scope.spawn(|| {
            while !done.load(Ordering::Acquire) {
                device.backend.sweep(false).unwrap();
            }
        });
        writers.into_iter().for_each(|writer| writer.join().unwrap());
        done.store(true, Ordering::Release);
        sweeper.join().unwrap();
    });
    for writer in 0..2 {
        for n in 0..4 {
            let bytes = payload(20_000 + 100 * n, (29 * 100 + n) as u64);
            device.expect(&key(10 * writer + n), &bytes);
        }
    }
    counters_are_true(&rig, &device);
}

#[test]
fn a_sweep_leaves_the_chunks_of_a_root_that_may_still_appear() {
    let (clock, show) = manual_clock();
    let mut rig = Rig::with(Personality::default(), |config| {
        config.connector.runtime_transfer_limit = 8192;
    });
    rig.parts.clock = show;
    let device = rig.open();
    device.put(&key(1), b"old").unwrap();
    let places = Places::new(&rig, &key(1), 8);
    let bytes = payload(20_000, 2);
    // Both tries of the new root, in the slot above the old one, get no answer.
    for _ in 0..2 {
        fail_at(
            &rig,
            &places,
            Opcode::Store,
            Piece::Root(1),
            DeviceEffect::LateNoAnswer { after: u64::MAX },
        );
    }
    device.put(&key(1), &bytes).unwrap_err();
    assert!(device.backend.sweep(true).unwrap().orphans > 0);
    let error = device.backend.sweep(false).unwrap_err();
    assert_eq!(error.code(), ErrorCode::InvalidRead, "{error}");
    rig.namespace.release_late();
    places.lose(&rig, Piece::Root(0));
    rig.open().expect(&key(1), &bytes);
    clock.fetch_add(10 * 60 * 1000, Ordering::Relaxed);
    device.backend.sweep(false).unwrap();
}

#[test]
fn removing_everything_takes_damaged_and_pinned_objects_too() {
    let rig = Rig::with(Personality::default(), |config| {
        config.connector.runtime_transfer_limit = 8192;
    });
    let device = rig.open();
    device.put(&key(1), &payload(30_000, 1)).unwrap();
    let places = Places::new(&rig, &key(1), 8);
    places.damage(&rig, Piece::Root(0), 200);
    let device = rig.open();
    let report = device.backend.scan(&mut |_| Ok(())).unwrap();
    assert_eq!((report.objects, report.damaged), (0, 1));
    let mut removed = Ok(0);
    let mut on_stored = |_: &[usize]| {
        removed = device.backend.remove_all();
        Ok(())
    };
    let handlers = Handlers { on_stored: &mut on_stored, on_evicted: &mut no };
    assert!(offload(&device, &[object(2)], handlers).results[0].is_ok());
    assert_eq!(removed.unwrap(), 2);
    assert_eq!(rig.value_count(), 0);
    counters_are_true(&rig, &device);
}

#[test]
fn loads_beside_removals_and_evictions_get_all_bytes_or_a_clean_not_found() {
    let rig = Rig::with("order=shuffled:9".parse().unwrap(), |config| {
        evicting(EvictionPolicy::Lru)(config);
        config.lifecycle.max_objects = 30;
    });
    let device = rig.open();
    let mut random = Random::new(seed());
    let done = AtomicBool::new(false);
    let (mut loaded, mut missing) = (0, 0);
    thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let (mut loaded, mut missing) = (0, 0);
            let mut n = 0;
            while !done.load(Ordering::Acquire) {
                n = (n + 7) % 40;
                let (key, bytes) = object(n);
                match device.get(&key, bytes.len()) {
                    Ok(got) => {
                        assert!(got == bytes, "wrong bytes");
                        loaded += 1;
                    }
                    Err(error) => {
                        assert_eq!(error.code(), ErrorCode::ObjectNotFound, "{error}");
                        missing += 1;
                    }
                }
            }
            (loaded, missing)
        });
        for step in 0..400 {
            let n = random.below(40) as usize;
            let (key, bytes) = object(n);
            device.put(&key, &bytes).unwrap();
            match step % 10 {
                3 => {
                    let _ = device.backend.remove(&key);
                }
                6 => drop(device.backend.evict_above(0.0, 0.0, &mut no).unwrap()),
                9 => drop(device.backend.remove_all().unwrap()),
                _ => {}
            }
        }
        done.store(true, Ordering::Release);
        (loaded, missing) = reader.join().unwrap();
    });
    println!("{loaded} loaded, {missing} missing");
    assert!(missing > 0);
    device.backend.remove_all().unwrap();
    assert_eq!(rig.value_count(), 0, "no orphan either");
}

#[test]
fn scans_beside_everything_report_each_object_once_and_end_with_true_counters() {
    let rig = Rig::with("order=shuffled:3".parse().unwrap(), |config| {
        evicting(EvictionPolicy::Lru)(config);
        config.lifecycle.scan_page = 7;
        config.lifecycle.max_objects = 250;
    });
    let device = rig.open();
    let objects: Vec<(Vec<u8>, Vec<u8>)> = (0..200).map(object).collect();
    offload(&device, &objects, Handlers { on_stored: &mut |_| Ok(()), on_evicted: &mut no });
    let seed = seed();
    for round in 0..4 {
        let device = rig.open();
        let mut reported: BTreeMap<Vec<u8>, u32> = BTreeMap::new();
        thread::scope(|scope| {
            for worker in 0..3 {
                let device = &device;
                scope.spawn(move || {
                    let mut random = Random::new(seed ^ (round * 8 + worker));
                    for _ in 0..80 {
                        let n = random.below(300) as usize;
                        let (key, bytes) = object(n);
                        match random.below(4) {
                            0 | 1 => drop(device.put(&key, &bytes).unwrap()),
                            2 => {
                                if let Ok(got) = device.get(&key, bytes.len()) {
                                    assert!(got == bytes);
                                }
                            }
                            _ => drop(device.backend.remove(&key)),
                        }
                    }
                });
            }
            device
                .backend
                .scan(&mut |page| {
                    for object in page {
                        *reported.entry(object.key.clone()).or_default() += 1;
                    }
                    Ok(())
                })
                .unwrap();
        });
        // An object that was removed and stored again during the scan is not reported twice
        // either: it was stored meanwhile.
        assert!(reported.values().all(|times| *times == 1));
        counters_are_true(&rig, &device);
        for n in 0..300 {
            let (key, bytes) = object(n);
            if device.backend.exists(&key).unwrap() {
                device.expect(&key, &bytes);
            }
        }
        let fresh = rig.open();
        fresh.backend.scan(&mut |_| Ok(())).unwrap();
        assert_eq!(fresh.backend.usage(), device.backend.usage());
    }
}

#[test]
fn a_restart_costs_one_command_an_inline_object_and_one_a_value_otherwise() {
    let rig = Rig::with(Personality::default(), |config| {
        config.connector.runtime_transfer_limit = 8192;
    });
    let device = rig.open();
    let objects: Vec<(Vec<u8>, Vec<u8>)> = (0..4000).map(|n| (key(n), vec![3; 64])).collect();
    offload(&device, &objects, Handlers { on_stored: &mut |_| Ok(()), on_evicted: &mut no });
    device.put(b"chunked", &payload(30_000, 1)).unwrap();
    let device = rig.open();
    let report = device.backend.scan(&mut |_| Ok(())).unwrap();
    assert_eq!((report.objects, report.roots, report.others), (4001, 4001, 4));
    let counts = device.faults.take_counts();
    assert_eq!((counts.retrieve, counts.total()), (4005, 4005));
}
