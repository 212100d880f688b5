//! Recovery, limits, eviction, removal and the orphan sweep.

mod support;

use mooncake_nvme_kv::ErrorCode;
use mooncake_nvme_kv::backend::{
    Backend, Handlers, ObjectToStore, ScannedObject, SweepReport, Usage,
};
use mooncake_nvme_kv::config::{Access, EvictionPolicy};
use nvme_kv_command_set::Opcode;
use nvme_kv_emulator::{Effect, Personality};
use support::faults::fail_at;
use support::places::{Piece, Places};
use support::{Rig, payload};

fn personality(text: &str) -> Personality {
    text.parse().unwrap()
}

fn key(n: usize) -> Vec<u8> {
    format!("tenant\0object {n}").into_bytes()
}

/// Small values: chunked objects need little room.
fn small_rig(text: &str) -> Rig {
    Rig::with(personality(text), |config| config.connector.runtime_transfer_limit = 8192)
}

fn sizes() -> Vec<usize> {
    vec![0, 1, 4000, 4096, 8192, 8193, 30_000]
}

#[test]
fn a_scan_finds_every_object_once_with_its_size_and_counts_what_the_device_holds() {
    for text in [
        "",
        "list=unordered",
        "list=wrapping",
        "dw0=zero,short-retrieve=error",
        "exist=no",
        "order=shuffled:5",
    ] {
        let rig = small_rig(text);
        let device = rig.open();
        let mut expected = Vec::new();
        for (n, size) in sizes().into_iter().enumerate() {
            device.put(&key(n), &payload(size, n as u64)).unwrap();
            expected.push(ScannedObject { key: key(n), size: size as u64 });
        }
        let usage = device.backend.usage();
        let device = rig.open();
        assert!(!device.backend.index_is_complete(), "{text}");
        assert_eq!(device.scan().1, expected, "{text}");
        assert!(device.backend.index_is_complete());
        assert_eq!(device.backend.usage(), usage, "{text}");
        let held = rig.namespace.usage();
        assert_eq!((usage.values, usage.bytes), (held.keys, held.bytes), "{text}");
        assert_eq!(device.scan().1, [], "a completed scan reports nothing more");
        device.backend.reset_scan();
        assert_eq!(device.scan().1, expected, "{text}");
        assert_eq!(device.backend.usage(), usage, "{text}: counted once");
        device.faults.take_counts();
        assert!(!device.backend.exists(b"missing").unwrap());
        assert!(device.backend.exists(&key(3)).unwrap());
        assert_eq!(device.faults.take_counts().total(), 0, "{text}");
    }
}

#[test]
fn a_device_without_list_is_asked_key_by_key() {
    let rig = small_rig("list=absent");
    let device = rig.open();
    device.put(&key(1), b"one").unwrap();
    let device = rig.open();
    let report = device.backend.scan(&mut |_| panic!("no page")).unwrap();
    assert!(!report.listed && !device.backend.index_is_complete());
    assert!(device.backend.exists(&key(1)).unwrap());
}

#[test]
fn a_scan_whose_page_is_refused_leaves_no_trace_and_can_be_repeated() {
    let rig = Rig::with(Personality::default(), |config| config.lifecycle.scan_page = 3);
    let device = rig.open();
    for n in 0..10 {
        device.put(&key(n), b"x").unwrap();
    }
    let device = rig.open();
    let before = device.backend.usage();
    let mut pages = 0;
    let refused = device.backend.scan(&mut |page| {
        assert!(page.len() <= 3);
        pages += 1;
        if pages == 2 {
            return Err(mooncake_nvme_kv::Error::new(ErrorCode::InternalError, "no"));
        }
        Ok(())
    });
    assert!(refused.is_err());
    assert_eq!(device.scan().1.len(), 10);
    assert_eq!(device.backend.usage().objects, 10);
    assert_eq!(before, Usage::default());
}

/// A Delete without an answer may be executed yet, so a scan leaves the other values of its key
/// alone; what it has met is not absent for that.
#[test]
fn a_scan_after_one_that_failed_forgets_no_object_whose_purge_had_no_answer() {
    let rig = small_rig("");
    let places = Places::new(&rig, &key(1), 4);
    let device = rig.open();
    device.put(&key(1), &payload(4000, 1)).unwrap();
    device.put(&key(1), &payload(4000, 2)).unwrap();
    device.put(&key(2), &payload(4000, 3)).unwrap();
    places.put_object(&rig, 3, &payload(4000, 1));
    let device = rig.open();
    fail_at(&rig, &places, Opcode::Delete, Piece::Root(3), Effect::ExecutedNoAnswer);
    let other = Places::new(&rig, &key(2), 1);
    fail_at(&rig, &other, Opcode::Retrieve, Piece::Root(0), Effect::Errno(libc::EIO));
    device.backend.scan(&mut |_| Ok(())).unwrap_err();
    device.backend.scan(&mut |_| Ok(())).unwrap();
    assert!(device.backend.index_is_complete());
    assert!(device.backend.exists(&key(1)).unwrap());
    device.expect(&key(1), &payload(4000, 2));
    device.expect(&key(2), &payload(4000, 3));
}

#[test]
fn with_lru_a_full_backend_evicts_the_oldest_unread_and_says_so_before_deleting() {
    for text in
        ["", "dw0=zero,short-retrieve=error,delete-missing=error", "exist=no,order=shuffled:3"]
    {
        let rig = Rig::with(personality(text), |config| {
            config.lifecycle.eviction = EvictionPolicy::Lru;
            config.connector.runtime_transfer_limit = 8192;
            config.lifecycle.max_bytes = 40 * (4096 + 8192 * 2 + 4096);
        });
        let device = rig.open();
        let mut gone: Vec<Vec<u8>> = Vec::new();
        let mut latest = Vec::new();
        for n in 0..120 {
            let bytes = payload(20_000, n as u64);
            let key_n = key(n);
            let mut on_evicted = |keys: &[Vec<u8>]| {
                for key in keys {
                    assert!(
                        !device.backend.exists(key).unwrap(),
                        "hidden while the caller is told"
                    );
                    gone.push(key.clone());
                }
                Ok(())
            };
            let report = device
                .backend
                .offload_with(
                    &[ObjectToStore { key: &key_n, slices: &[&bytes] }],
                    Handlers { on_stored: &mut |_| Ok(()), on_evicted: &mut on_evicted },
                )
                .unwrap();
            assert!(report.results[0].is_ok(), "{text}: {:?}", report.results[0]);
            assert!(rig.namespace.usage().bytes <= rig.config.lifecycle.max_bytes, "{text}");
            device.expect(&key(0), &payload(20_000, 0));
            latest.push(key_n);
        }
        assert!(!gone.contains(&key(0)), "{text}: read all the time");
        let expected: Vec<Vec<u8>> = (1..=gone.len()).map(key).collect();
        assert_eq!(gone, expected, "{text}: the oldest unread, in order");
        for n in 0..120 {
            assert_eq!(device.backend.exists(&key(n)).unwrap(), !gone.contains(&key(n)));
        }
        let (usage, held) = (device.backend.usage(), rig.namespace.usage());
        assert_eq!((usage.values, usage.bytes), (held.keys, held.bytes), "{text}");
    }
}

#[test]
fn a_device_that_is_fuller_than_was_thought_evicts_and_goes_on() {
    let rig = Rig::with(personality("capacity=400k"), |config| {
        config.lifecycle.eviction = EvictionPolicy::Lru;
        config.connector.runtime_transfer_limit = 8192;
    });
    let device = rig.open();
    // Values nobody knows of take half of the device.
    let half = vec![7u8; 8192];
    for n in 0..25u8 {
        rig.namespace.poke(&nvme_kv_command_set::PhysicalKey([n; 16]).into(), &half);
    }
    let batch: Vec<(Vec<u8>, Vec<u8>)> =
        (0..60).map(|n| (key(n), payload(20_000, n as u64))).collect();
    let slices: Vec<[&[u8]; 1]> = batch.iter().map(|(_, bytes)| [bytes.as_slice()]).collect();
    for (object, slices) in batch.iter().zip(&slices) {
        let report = device
            .backend
            .offload(&[ObjectToStore { key: &object.0, slices }], &mut |_| Ok(()))
            .unwrap();
        assert!(report.results[0].is_ok(), "{:?}", report.results[0]);
    }
    device.expect(&key(59), &batch[59].1);
}

#[test]
fn without_eviction_a_full_backend_refuses_new_objects_and_accepts_stored_ones() {
    let rig = Rig::with(Personality::default(), |config| {
        config.lifecycle.max_objects = 2;
    });
    let device = rig.open();
    device.put(&key(1), b"one").unwrap();
    assert!(device.backend.is_enabled().unwrap());
    device.put(&key(2), b"two").unwrap();
    assert!(!device.backend.is_enabled().unwrap());
    assert_eq!(device.put(&key(3), b"three").unwrap_err().code(), ErrorCode::KeysUltraLimit);
    assert!(device.put(&key(1), b"one").unwrap().already);
    assert!(!device.put(&key(1), b"uno").unwrap().already);
    device.expect(&key(1), b"uno");
    device.backend.remove(&key(2)).unwrap();
    device.put(&key(3), b"three").unwrap();
    assert_eq!(device.backend.usage().objects, 2);
}

#[test]
fn what_the_eviction_callback_keeps_stays_readable() {
    let rig = Rig::with(Personality::default(), |config| {
        config.lifecycle.eviction = EvictionPolicy::Lru;
        config.lifecycle.max_objects = 2;
    });
    let device = rig.open();
    device.put(&key(1), b"one").unwrap();
    device.put(&key(2), b"two").unwrap();
    let refuse =
        |_: &[Vec<u8>]| Err(mooncake_nvme_kv::Error::new(ErrorCode::InternalError, "keep"));
    let report = device
        .backend
        .offload_with(
            &[ObjectToStore { key: b"three", slices: &[b"3"] }],
            Handlers { on_stored: &mut |_| Ok(()), on_evicted: &mut { refuse } },
        )
        .unwrap();
    assert_eq!(report.results[0].as_ref().unwrap_err().code(), ErrorCode::InvalidRead);
    device.expect(&key(1), b"one");
    device.expect(&key(2), b"two");
}

#[test]
fn a_watermark_evicts_down_to_the_low_mark_only_above_the_high_one() {
    let rig = Rig::with(Personality::default(), |config| {
        config.lifecycle.eviction = EvictionPolicy::Lru;
        config.lifecycle.max_bytes = 100 * 4096;
    });
    let device = rig.open();
    for n in 0..90 {
        device.put(&key(n), b"x").unwrap();
    }
    assert_eq!(device.backend.evict_above(0.9, 0.5, &mut |_| Ok(())).unwrap().len(), 0);
    let evicted = device.backend.evict_above(0.89, 0.5, &mut |_| Ok(())).unwrap();
    assert_eq!(evicted, (0..40).map(key).collect::<Vec<_>>());
    assert_eq!(device.backend.usage().objects, 50);
    assert!(device.backend.evict_above(0.5, 0.9, &mut |_| Ok(())).is_err());
}

#[test]
fn removing_leaves_nothing_and_a_removed_object_can_be_stored_again() {
    let rig = small_rig("delete-missing=error");
    let device = rig.open();
    for (n, size) in sizes().into_iter().enumerate() {
        device.put(&key(n), &payload(size, 1)).unwrap();
    }
    device.backend.remove(&key(6)).unwrap();
    assert_eq!(device.backend.remove(&key(6)).unwrap_err().code(), ErrorCode::ObjectNotFound);
    assert_eq!(device.get(&key(6), 30_000).unwrap_err().code(), ErrorCode::ObjectNotFound);
    device.put(&key(6), &payload(30_000, 2)).unwrap();
    device.expect(&key(6), &payload(30_000, 2));
    let device = rig.open();
    device.backend.remove(&key(0)).unwrap();
    assert_eq!(device.backend.remove_all().unwrap(), sizes().len() as u64 - 1);
    assert_eq!(rig.value_count(), 0);
    assert_eq!(device.backend.usage(), Usage::default());
    device.put(&key(1), b"again").unwrap();
    device.expect(&key(1), b"again");
}

#[test]
fn a_sweep_reclaims_orphans_and_nothing_else() {
    let rig = small_rig("");
    let device = rig.open();
    device.put(&key(1), &payload(30_000, 1)).unwrap();
    device.put(&key(2), &payload(10, 1)).unwrap();
    let good = rig.value_count();
    device.faults.crash_after(3);
    assert!(device.put(&key(3), &payload(30_000, 3)).is_err());
    let device = rig.open();
    assert_eq!(rig.value_count(), good + 3);
    assert_eq!(device.backend.sweep(true).unwrap(), SweepReport { orphans: 3, deleted: 0 });
    assert_eq!(device.backend.sweep(false).unwrap(), SweepReport { orphans: 3, deleted: 3 });
    assert_eq!(rig.value_count(), good);
    device.expect(&key(1), &payload(30_000, 1));
}

#[test]
fn a_namespace_has_one_owner_and_others_may_read() {
    let rig = Rig::new();
    let owner = Backend::open(&rig.config).unwrap();
    let refused = Backend::open(&rig.config).unwrap_err();
    assert_eq!(refused.code(), ErrorCode::FileLockFail, "{refused}");
    owner.offload(&[ObjectToStore { key: b"k", slices: &[b"value"] }], &mut |_| Ok(())).unwrap();
    let mut config = rig.config.clone();
    config.lifecycle.access = Access::ReadOnly;
    let reader = Backend::open(&config).unwrap();
    assert!(reader.exists(b"k").unwrap());
    let error = reader
        .offload(&[ObjectToStore { key: b"k2", slices: &[b"v"] }], &mut |_| Ok(()))
        .unwrap_err();
    assert_eq!(error.code(), ErrorCode::NotSupported);
    assert_eq!(reader.remove(b"k").unwrap_err().code(), ErrorCode::NotSupported);
    owner.close();
    Backend::open(&rig.config).unwrap();
}

#[test]
fn a_reader_finds_what_the_owner_stores_after_the_reader_has_scanned() {
    let rig = Rig::new();
    let mut config = rig.config.clone();
    config.lifecycle.access = Access::ReadOnly;
    let reader = Backend::open(&config).unwrap();
    let owner = rig.open();
    owner.put(&key(1), b"before").unwrap();
    assert_eq!(reader.scan(&mut |_| Ok(())).unwrap().objects, 1);
    owner.put(&key(2), b"after").unwrap();
    assert!(!reader.index_is_complete());
    assert!(reader.exists(&key(1)).unwrap() && reader.exists(&key(2)).unwrap());
    assert!(!reader.exists(&key(3)).unwrap());
}
