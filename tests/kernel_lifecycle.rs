//! Recovery, limits, eviction, removal and the orphan sweep on a real kernel, through either
//! transport, with every command counted. Needs the guest of `kernel_tests/run`; skipped where
//! `MNKV_KERNEL_NODE` is not set.

mod executor_bench;
mod kernel_support;
mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use kernel_support::served::Served;
use kernel_support::{both_transports, name_of};
use mooncake_nvme_kv::backend::{
    Handlers, ObjectToStore, ScanReport, ScannedObject, SweepReport, Usage,
};
use mooncake_nvme_kv::config::{Config, EvictionPolicy, Transport};
use mooncake_nvme_kv::device::Executor;
use mooncake_nvme_kv::{Error, ErrorCode, Result, log};
use nvme_kv_command_set::{Key, PhysicalKey};
use nvme_kv_emulator::Counts;
use support::characters::small_values;
use support::places::{Piece, Places};
use support::random::Random;
use support::{Device, Rig, payload, seed};

const PATH: &str = "mem:kernel-lifecycle";
/// Around the limits of a page, of an inline object and of whole chunks of 8 KiB.
const SIZES: [usize; 7] = [0, 1, 4000, 4096, 8192, 8193, 30_000];
/// Three chunks and a root: 8192, 8192, 4096 and 4096 bytes on the device.
const OBJECT: usize = 20_000;
const OBJECT_VALUES: u64 = 4;
const OBJECT_BYTES: u64 = 2 * 8192 + 2 * 4096;

/// A namespace that this kernel has attached, with values of at most 8 KiB; `None` outside of the
/// guest.
fn attached(
    transport: Transport,
    personality: &str,
    change: impl FnOnce(&mut Config),
) -> Option<(Rig, Served)> {
    let personality = personality.parse::<nvme_kv_emulator::Personality>().expect("it is one");
    let served = Served::new(PATH, personality.clone())?;
    let rig = Rig::at(PATH, personality, |config| {
        small_values(config);
        served.configure(config, transport);
        change(config);
    });
    Some((rig, served))
}

fn key(n: usize) -> Vec<u8> {
    format!("tenant\0object {n:05}").into_bytes()
}

/// Runs `body` and says how many commands of each kind it sent: as many as the device received.
#[track_caller]
fn commands<T>(rig: &Rig, device: &Device, body: impl FnOnce() -> T) -> (Counts, T) {
    let (before, sent) = (rig.namespace.counts(), device.faults.statistics().commands);
    let result = body();
    let (after, sent) = (rig.namespace.counts(), device.faults.statistics().commands - sent);
    let received = Counts {
        store: after.store - before.store,
        retrieve: after.retrieve - before.retrieve,
        list: after.list - before.list,
        delete: after.delete - before.delete,
        exist: after.exist - before.exist,
        identify: 0,
    };
    let Counts { store, retrieve, list, delete, exist, .. } = received;
    assert_eq!(sent, store + retrieve + list + delete + exist, "{received:?}");
    (received, result)
}

/// Runs `body`, which needs no command.
#[track_caller]
fn without_a_command<T>(rig: &Rig, device: &Device, body: impl FnOnce() -> T) -> T {
    let (received, result) = commands(rig, device, body);
    assert_eq!(received, Counts::default());
    result
}

/// What the device holds, but for `foreign`, is what the backend counts.
#[track_caller]
fn counters_are_true(rig: &Rig, device: &Device, foreign: nvme_kv_emulator::Usage) {
    let (usage, held) = (device.backend.usage(), rig.namespace.usage());
    assert_eq!((usage.values + foreign.keys, usage.bytes + foreign.bytes), (held.keys, held.bytes));
}

/// Offloads one object, which is stored; what was evicted for it.
fn put_evicting(device: &Device, key: &[u8], bytes: &[u8]) -> Vec<Vec<u8>> {
    let mut evicted = Vec::new();
    let mut on_evicted = |keys: &[Vec<u8>]| {
        evicted.extend_from_slice(keys);
        Ok(())
    };
    let report = offload(device, key, bytes, &mut on_evicted);
    report.expect("it is stored");
    evicted
}

fn offload(
    device: &Device,
    key: &[u8],
    bytes: &[u8],
    on_evicted: &mut dyn FnMut(&[Vec<u8>]) -> Result<()>,
) -> Result<()> {
    let objects = [ObjectToStore { key, slices: &[bytes] }];
    let handlers = Handlers { on_stored: &mut |_| Ok(()), on_evicted };
    let report = device.backend.offload_with(&objects, handlers).expect("it is open");
    let [result] = <[_; 1]>::try_from(report.results).expect("one result");
    result.map(|_| ())
}

#[track_caller]
fn is_absent(device: &Device, key: &[u8]) {
    assert!(!device.backend.exists(key).expect("it is known"));
    let error = device.get(key, OBJECT).expect_err("it is not stored");
    assert_eq!(error.code(), ErrorCode::ObjectNotFound, "{error}");
}

fn a_scan_after_a_reopen_knows_everything(transport: Transport) {
    for text in [
        "",
        "list=unordered",
        "list=wrapping",
        "dw0=zero,short-retrieve=error,delete-missing=error",
        "exist=no,order=shuffled:5",
    ] {
        println!("a device that is {text:?}");
        let Some((rig, _served)) = attached(transport, text, |_| {}) else { return };
        let writer = rig.open();
        let objects: Vec<(Vec<u8>, Vec<u8>)> =
            (0..).zip(SIZES).map(|(n, size)| (key(n), payload(size, n as u64))).collect();
        let mut expected = Vec::new();
        for (key, bytes) in &objects {
            writer.put(key, bytes).expect("it is stored");
            expected.push(ScannedObject { key: key.clone(), size: bytes.len() as u64 });
        }
        let usage = writer.backend.usage();
        let device = rig.open();
        assert!(!device.backend.index_is_complete());
        assert_eq!(device.backend.usage(), Usage::default());

        let (sent, (report, found)) = commands(&rig, &device, || device.scan());
        assert_eq!(found, expected);
        let roots = objects.len() as u64;
        let others = usage.values - roots;
        let all = ScanReport { listed: true, objects: roots, roots, others, ..Default::default() };
        assert_eq!(report, all);
        // One page, and one without a new key.
        assert_eq!((sent.list, sent.store, sent.delete, sent.exist), (2, 0, 0, 0));
        if text.contains("short-retrieve") {
            assert!(sent.retrieve >= usage.values, "{sent:?}");
        } else {
            assert_eq!(sent.retrieve, usage.values, "one look at each value");
        }
        assert!(device.backend.index_is_complete());
        assert_eq!(device.backend.usage(), usage);
        counters_are_true(&rig, &device, nvme_kv_emulator::Usage::default());

        without_a_command(&rig, &device, || {
            for (key, _) in &objects {
                assert!(device.backend.exists(key).expect("it is known"));
            }
            (100..200).for_each(|n| is_absent(&device, &key(n)));
            assert_eq!(device.scan().1, [], "a completed scan reports nothing more");
        });
        objects.iter().for_each(|(key, bytes)| device.expect(key, bytes));
        println!("data checks: {} {}", name_of(transport), objects.len());
        // What is known to be absent is stored without a look at its slots.
        let (sent, _) = commands(&rig, &device, || device.put(&key(7), &payload(OBJECT, 7)));
        assert_eq!(sent, Counts { store: OBJECT_VALUES, ..Counts::default() });
        device.backend.reset_scan();
        expected.push(ScannedObject { key: key(7), size: OBJECT as u64 });
        assert_eq!(device.scan().1, expected);
        counters_are_true(&rig, &device, nvme_kv_emulator::Usage::default());
    }
}

fn many_list_pages_are_walked(transport: Transport) {
    const OBJECTS: usize = 500;
    const FOREIGN: usize = 9500;
    const SCAN_PAGE: usize = 125;
    // 64 KiB: a count of 4 bytes and keys of 16 in entries of 20.
    const PER_PAGE: usize = (65_536 - 4) / 20;
    // Every further page begins with the last key of the one before, and the last has no other.
    let pages = |keys: usize| 2 + (keys - PER_PAGE).div_ceil(PER_PAGE - 1) as u64;
    for text in ["", "list=unordered", "list=wrapping"] {
        println!("a device that is {text:?}");
        let change = |config: &mut Config| config.lifecycle.scan_page = SCAN_PAGE as u32;
        let Some((rig, _served)) = attached(transport, text, change) else { return };
        let mut random = Random::new(seed());
        for _ in 0..FOREIGN {
            let mut foreign = [0; 16];
            foreign[..8].copy_from_slice(&random.next().to_le_bytes());
            // Keys of this profile have 01h there.
            foreign[11] = 2;
            rig.namespace.poke(&PhysicalKey(foreign).into(), b"x");
        }
        let foreign = rig.namespace.usage();
        assert_eq!(foreign.keys, FOREIGN as u64);
        let device = rig.open();
        let keys: Vec<Vec<u8>> = (0..OBJECTS).map(key).collect();
        let slices: [&[u8]; 1] = [b"one"];
        let objects = keys.iter().map(|key| ObjectToStore { key, slices: &slices });
        let objects: Vec<_> = objects.collect();
        let report = device.backend.offload(&objects, &mut |_| Ok(())).expect("it is open");
        assert!(report.results.iter().all(|result| result.as_ref().is_ok_and(|end| !end.already)));
        counters_are_true(&rig, &device, foreign);

        let device = rig.open();
        let mut found = BTreeSet::new();
        let mut told = Vec::new();
        let (sent, report) = commands(&rig, &device, || {
            device.backend.scan(&mut |page| {
                told.push(page.len());
                found.extend(page.iter().map(|object| object.key.clone()));
                assert!(page.iter().all(|object| object.size == 3));
                Ok(())
            })
        });
        let all = OBJECTS as u64;
        let foreign_keys = FOREIGN as u64;
        let wanted = ScanReport {
            listed: true,
            objects: all,
            roots: all,
            foreign: foreign_keys,
            ..ScanReport::default()
        };
        assert_eq!(report.expect("it is listed"), wanted);
        assert_eq!(told, [SCAN_PAGE; OBJECTS / SCAN_PAGE]);
        assert!(found.iter().eq(&keys));
        let list = pages(OBJECTS + FOREIGN);
        assert_eq!(sent, Counts { list, retrieve: all, ..Counts::default() });
        counters_are_true(&rig, &device, foreign);
        without_a_command(&rig, &device, || {
            assert!(keys.iter().all(|key| device.backend.exists(key).expect("it is known")));
            (OBJECTS..2 * OBJECTS).for_each(|n| {
                assert!(!device.backend.exists(&key(n)).expect("it is known"));
            });
        });

        // The roots it knows of, and then a look at whatever else is listed.
        let (sent, removed) = commands(&rig, &device, || device.backend.remove_all());
        assert_eq!(removed.expect("they go"), all);
        let list = pages(FOREIGN);
        assert_eq!(sent, Counts { list, retrieve: all, delete: all, ..Counts::default() });
        assert_eq!(rig.namespace.usage(), foreign, "another's values stay");
    }
}

fn removing_leaves_nothing(transport: Transport) {
    let Some((rig, _served)) = attached(transport, "delete-missing=error", |_| {}) else { return };
    let nothing = nvme_kv_emulator::Usage::default();
    let device = rig.open();
    for (n, size) in SIZES.into_iter().enumerate() {
        device.put(&key(n), &payload(size, 1)).expect("it is stored");
    }
    for n in [0, 6] {
        let delete = rig.values_of(&key(n), SIZES[n]) as u64;
        let (sent, removed) = commands(&rig, &device, || device.backend.remove(&key(n)));
        removed.expect("it was stored");
        assert_eq!(sent, Counts { delete, ..Counts::default() });
        without_a_command(&rig, &device, || {
            let error = device.backend.remove(&key(n)).expect_err("it is gone");
            assert_eq!(error.code(), ErrorCode::ObjectNotFound, "{error}");
            is_absent(&device, &key(n));
        });
        counters_are_true(&rig, &device, nothing);
    }
    device.put(&key(6), &payload(OBJECT, 2)).expect("it is stored again");
    device.expect(&key(6), &payload(OBJECT, 2));

    // One that knows nothing finds what is there.
    let device = rig.open();
    device.backend.remove(&key(1)).expect("it was stored");
    is_absent(&device, &key(1));
    assert_eq!(device.backend.remove_all().expect("they go"), 5);
    assert_eq!(rig.value_count(), 0);
    assert_eq!(device.backend.usage(), Usage::default());
    let (sent, removed) = commands(&rig, &device, || device.backend.remove_all());
    assert_eq!(removed.expect("nothing is left"), 0);
    assert_eq!(sent, Counts { list: 1, ..Counts::default() });
    device.put(&key(1), b"again").expect("it is stored");
    rig.open().expect(&key(1), b"again");
    println!("data checks: {} 2", name_of(transport));
}

fn a_sweep_reclaims_orphans_alone(transport: Transport) {
    let Some((rig, _served)) = attached(transport, "", |_| {}) else { return };
    let device = rig.open();
    device.put(&key(1), &payload(30_000, 1)).expect("it is stored");
    device.put(&key(2), &payload(10, 1)).expect("it is stored");
    rig.namespace.poke(&Key::new(b"somebody else's").expect("a key"), b"value");
    let good = rig.namespace.keys();
    device.faults.crash_after(3);
    device.put(&key(3), &payload(30_000, 3)).expect_err("the process has died");
    Places::new(&rig, &key(4), 4).put_chunks(&rig, 2, &payload(30_000, 4));
    let all = rig.namespace.keys();
    assert_eq!(all.len(), good.len() + 3 + 4);

    let device = rig.open();
    let (sent, report) = commands(&rig, &device, || device.backend.sweep(true));
    assert_eq!(report.expect("it is listed"), SweepReport { orphans: 7, deleted: 0 });
    // What no root claims is looked at twice.
    let looked = Counts { list: 2, retrieve: all.len() as u64 - 1 + 7, ..Counts::default() };
    assert_eq!(sent, looked);
    assert_eq!(rig.namespace.keys(), all, "a dry run deletes nothing");
    let (sent, report) = commands(&rig, &device, || device.backend.sweep(false));
    assert_eq!(report.expect("it is listed"), SweepReport { orphans: 7, deleted: 7 });
    assert_eq!(sent, Counts { delete: 7, ..looked });
    assert_eq!(rig.namespace.keys(), good);
    let (sent, report) = commands(&rig, &device, || device.backend.sweep(false));
    assert_eq!(report.expect("it is listed"), SweepReport::default());
    assert_eq!(sent, Counts { list: 2, retrieve: good.len() as u64 - 1, ..Counts::default() });
    for device in [&device, &rig.open()] {
        device.expect(&key(1), &payload(30_000, 1));
        device.expect(&key(2), &payload(10, 1));
    }
    println!("data checks: {} 4", name_of(transport));
}

/// A limit that ten objects reach: by what device, and by which setting.
type TenObjects = (&'static str, &'static str, fn(&mut Config));

/// The oldest leaves for each object beyond the tenth: told of first, then deleted.
fn at_a_limit_the_oldest_unread_leaves(transport: Transport) {
    const LIMITS: [TenObjects; 4] = [
        ("objects", "", |config| config.lifecycle.max_objects = 10),
        ("bytes", "", |config| config.lifecycle.max_bytes = 10 * OBJECT_BYTES),
        ("bytes of the device", "capacity=240k", |_| {}),
        ("keys of the device", "max-keys=40", |_| {}),
    ];
    for (limit, personality, change) in LIMITS {
        println!("a limit of {limit}");
        let change = |config: &mut Config| {
            config.lifecycle.eviction = EvictionPolicy::Lru;
            change(config);
        };
        let Some((rig, _served)) = attached(transport, personality, change) else { return };
        let device = rig.open();
        let object = |n: usize| payload(OBJECT, n as u64);
        let mut gone = Vec::new();
        for n in 0..30 {
            let before = rig.value_count();
            let mut told = Vec::new();
            let mut on_evicted = |keys: &[Vec<u8>]| {
                assert_eq!(rig.value_count(), before, "deleted before it was announced");
                without_a_command(&rig, &device, || {
                    keys.iter().for_each(|key| is_absent(&device, key));
                });
                told.extend_from_slice(keys);
                Ok(())
            };
            let (sent, stored) =
                commands(&rig, &device, || offload(&device, &key(n), &object(n), &mut on_evicted));
            stored.expect("the oldest makes room");
            let values = if n < 10 { 0 } else { OBJECT_VALUES };
            // The root of who leaves tells its key.
            let retrieve = u64::from(n >= 10);
            let stored = Counts { store: OBJECT_VALUES, ..Counts::default() };
            assert_eq!(sent, Counts { retrieve, delete: values, ..stored }, "object {n}");
            gone.extend(told);
            counters_are_true(&rig, &device, nvme_kv_emulator::Usage::default());
            assert!(device.backend.is_enabled().expect("it is open"));
            device.expect(&key(0), &object(0));
        }
        assert_eq!(gone, (1..=20).map(key).collect::<Vec<_>>(), "the oldest unread, in order");
        for device in [&device, &rig.open()] {
            gone.iter().for_each(|key| is_absent(device, key));
            for n in (21..30).chain([0]) {
                device.expect(&key(n), &object(n));
            }
        }
        println!("data checks: {} 50", name_of(transport));
    }
}

/// Half of the device holds what no index knows, so that it is full before a limit is reached.
fn a_fuller_device_than_was_thought_evicts_and_goes_on(transport: Transport) {
    let evicting = |config: &mut Config| config.lifecycle.eviction = EvictionPolicy::Lru;
    let Some((rig, _served)) = attached(transport, "capacity=400k", evicting) else { return };
    let device = rig.open();
    for n in 0..25u8 {
        let name = format!("another's {n}");
        rig.namespace.poke(&Key::new(name.as_bytes()).expect("a key"), &[7; 8192]);
    }
    let foreign = rig.namespace.usage();
    let object = |n: usize| payload(OBJECT, n as u64);
    let mut gone = Vec::new();
    let mut refused = 0;
    for n in 0..24 {
        let (sent, evicted) =
            commands(&rig, &device, || put_evicting(&device, &key(n), &object(n)));
        refused += sent.store - OBJECT_VALUES;
        gone.extend(evicted);
        assert!(rig.namespace.usage().bytes <= 400 << 10);
        counters_are_true(&rig, &device, foreign);
    }
    // Eight objects fit.
    assert_eq!(gone, (0..16).map(key).collect::<Vec<_>>());
    assert!(refused >= 16, "each of them was evicted because the device said that it is full");
    for device in [&device, &rig.open()] {
        (0..16).for_each(|n| is_absent(device, &key(n)));
        (16..24).for_each(|n| device.expect(&key(n), &object(n)));
    }
    println!("data checks: {} 16", name_of(transport));
}

/// Ten objects fit; nothing may be evicted.
fn without_eviction_what_is_full_says_so(transport: Transport) {
    const LIMITS: [TenObjects; 3] = [
        ("objects", "", |config| config.lifecycle.max_objects = 10),
        ("bytes of the device", "capacity=240k", |_| {}),
        ("bytes that others take", "capacity=480k", |_| {}),
    ];
    for (limit, personality, change) in LIMITS {
        println!("a limit of {limit}");
        let Some((rig, _served)) = attached(transport, personality, change) else { return };
        let device = rig.open();
        if limit == "bytes that others take" {
            for n in 0..30u8 {
                let name = format!("another's {n}");
                rig.namespace.poke(&Key::new(name.as_bytes()).expect("a key"), &[7; 8192]);
            }
        }
        let foreign = rig.namespace.usage();
        let object = |n: usize| payload(OBJECT, n as u64);
        for n in 0..10 {
            assert!(device.backend.is_enabled().expect("it is open"));
            device.put(&key(n), &object(n)).expect("ten objects fit");
        }
        assert!(!device.backend.is_enabled().expect("it is open"));
        let full = rig.namespace.keys();
        let error = device.put(&key(10), &object(10)).expect_err("there is no room");
        assert_eq!(error.code(), ErrorCode::KeysUltraLimit, "{error}");
        assert_eq!(rig.namespace.keys(), full, "nothing is left of it");
        assert!(device.put(&key(3), &object(3)).expect("it is stored").already);
        device.backend.remove(&key(5)).expect("it is stored");
        assert!(device.backend.is_enabled().expect("it is open"));
        device.put(&key(10), &object(10)).expect("there is room");
        counters_are_true(&rig, &device, foreign);
        for n in (0..5).chain(6..11) {
            device.expect(&key(n), &object(n));
        }
        println!("data checks: {} 10", name_of(transport));
    }
}

fn watermarks_evict_down_to_the_low_one(transport: Transport) {
    let change = |config: &mut Config| {
        config.lifecycle.eviction = EvictionPolicy::Lru;
        config.lifecycle.max_bytes = 100 * 4096;
    };
    let Some((rig, _served)) = attached(transport, "", change) else { return };
    let device = rig.open();
    for n in 0..90 {
        device.put(&key(n), b"x").expect("it is stored");
    }
    let nothing = nvme_kv_emulator::Usage::default();
    without_a_command(&rig, &device, || {
        let evicted = device.backend.evict_above(0.9, 0.5, &mut |_| panic!("nothing leaves"));
        assert_eq!(evicted.expect("it is not above"), Vec::<Vec<u8>>::new());
        device.backend.evict_above(0.5, 0.9, &mut |_| Ok(())).expect_err("the wrong way round");
    });
    let keep = |_: &[Vec<u8>]| Err(Error::new(ErrorCode::InternalError, "keep them"));
    device.backend.evict_above(0.89, 0.5, &mut { keep }).expect_err("the caller objects");
    assert_eq!(rig.value_count(), 90);
    assert!((0..90).all(|n| device.backend.exists(&key(n)).expect("it is known")));

    let mut told = Vec::new();
    let (sent, evicted) = commands(&rig, &device, || {
        device.backend.evict_above(0.89, 0.5, &mut |keys| {
            assert_eq!(rig.value_count(), 90, "deleted before it was announced");
            told.extend_from_slice(keys);
            Ok(())
        })
    });
    assert_eq!(evicted.expect("it is above"), told);
    // In the order in which their roots were read. What the caller has kept is not offered again
    // before others of about its age.
    told.sort();
    assert_eq!(told, (40..80).map(key).collect::<Vec<_>>());
    assert_eq!(sent, Counts { retrieve: 40, delete: 40, ..Counts::default() });
    assert_eq!(device.backend.usage().objects, 50);
    counters_are_true(&rig, &device, nothing);

    // One that knows nothing scans for itself, and a scan that reports still reports what is left.
    let device = rig.open();
    let mut evicted = device.backend.evict_above(0.4, 0.2, &mut |_| Ok(())).expect("it is above");
    assert_eq!((evicted.len(), device.backend.usage().objects), (30, 20));
    counters_are_true(&rig, &device, nothing);
    let left = device.scan().1.into_iter().map(|object| object.key);
    evicted.extend(left);
    evicted.sort();
    assert_eq!(
        evicted,
        (0..40).chain(80..90).map(key).collect::<Vec<_>>(),
        "each either left or is reported"
    );
}

/// Every version replaces the one before, whether the backend that writes it knows of that or not.
fn a_rewrite_leaves_the_new_version_alone(transport: Transport) {
    let Some((rig, _served)) = attached(transport, "", |_| {}) else { return };
    let nothing = nvme_kv_emulator::Usage::default();
    let mut device = rig.open();
    let sizes = [0, 30_000, 100, 30_000, OBJECT, 8193, 1];
    for (version, size) in sizes.into_iter().enumerate() {
        let bytes = payload(size, version as u64);
        assert!(!device.put(&key(1), &bytes).expect("it is stored").already);
        assert_eq!(rig.value_count(), rig.values_of(&key(1), size));
        counters_are_true(&rig, &device, nothing);
        device.expect(&key(1), &bytes);
        let again = rig.open();
        let (report, found) = again.scan();
        assert_eq!(found, [ScannedObject { key: key(1), size: size as u64 }]);
        assert_eq!((report.roots, report.purged), (1, 0));
        counters_are_true(&rig, &again, nothing);
        again.expect(&key(1), &bytes);
        let known = version % 2 == 0;
        device = if known { again } else { rig.open() };
    }
    println!("data checks: {} {}", name_of(transport), 2 * sizes.len());
}

/// What a crash of another writer may leave: a version above the visible one, an object in a slot
/// above the first, and a chunk that belongs to nothing.
fn a_scan_purges_hidden_versions(transport: Transport) {
    let Some((rig, _served)) = attached(transport, "", |_| {}) else { return };
    let places = Places::new(&rig, &key(1), 4);
    places.put_object(&rig, 0, &payload(OBJECT, 1));
    places.put_object(&rig, 2, &payload(OBJECT, 2));
    places.put(&rig, Piece::Chunk(1, 0), &payload(8192, 3));
    Places::new(&rig, &key(2), 4).put_object(&rig, 1, &payload(100, 4));
    let device = rig.open();
    let (report, found) = device.scan();
    let object = |n, size| ScannedObject { key: key(n), size };
    assert_eq!(found, [object(1, OBJECT as u64), object(2, 100)]);
    assert_eq!((report.purged, report.damaged, report.foreign), (1, 0, 0), "{report:?}");
    device.expect(&key(1), &payload(OBJECT, 1));
    device.expect(&key(2), &payload(100, 4));
    println!("data checks: {} 2", name_of(transport));
    let orphan = nvme_kv_emulator::Usage { keys: 1, bytes: 8192 };
    counters_are_true(&rig, &device, orphan);
    let swept = device.backend.sweep(false).expect("it is listed");
    assert_eq!(swept, SweepReport { orphans: 1, deleted: 1 });
    counters_are_true(&rig, &device, nvme_kv_emulator::Usage::default());
    assert_eq!(device.backend.usage().objects, 2);
}

/// What is logged as a warning while `body` runs.
fn warnings<T>(body: impl FnOnce() -> T) -> (Vec<String>, T) {
    let lines = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&lines);
    log::set_sink(Some(Box::new(move |level, line| {
        if level == log::Level::Warning {
            seen.lock().expect("no panic").push(line.to_owned());
        }
    })));
    let result = body();
    log::set_sink(None);
    let lines = std::mem::take(&mut *lines.lock().expect("no panic"));
    (lines, result)
}

fn without_list_keys_are_asked_for_one_by_one(transport: Transport) {
    let change = |config: &mut Config| {
        config.lifecycle.eviction = EvictionPolicy::Lru;
        config.lifecycle.max_objects = 5;
    };
    let Some((rig, _served)) = attached(transport, "list=absent", change) else { return };
    rig.open().put(&key(100), b"of an earlier life").expect("it is stored");
    rig.open().put(&key(101), b"of an earlier life").expect("it is stored");
    let device = rig.open();
    let (sent, (lines, report)) = commands(&rig, &device, || {
        warnings(|| device.backend.scan(&mut |_| panic!("nothing is found")))
    });
    assert_eq!(report.expect("it is no failure"), ScanReport::default());
    assert_eq!(sent, Counts { list: 1, ..Counts::default() });
    assert!(matches!(&lines[..], [line] if line.contains("does not implement List")), "{lines:?}");
    assert!(!device.backend.index_is_complete());
    let (sent, known) = commands(&rig, &device, || device.backend.exists(&key(100)));
    assert!(known.expect("the device answers"));
    assert!(sent.exist + sent.retrieve > 0, "{sent:?}");
    assert!(!device.backend.exists(&key(7)).expect("the device answers"));
    let error = device.backend.sweep(true).expect_err("orphans cannot be told");
    assert_eq!(error.code(), ErrorCode::NotSupported, "{error}");
    assert!(error.message().contains("List"), "{error}");

    // Known objects count for the limit, and are evicted and removed; others stay.
    let used = device.backend.usage().objects as usize;
    let gone: Vec<_> = (0..20).flat_map(|n| put_evicting(&device, &key(n), b"new")).collect();
    assert_eq!(gone.len(), used + 20 - 5);
    assert_eq!(device.backend.usage().objects, 5);
    let (lines, removed) = warnings(|| device.backend.remove_all());
    assert_eq!(removed.expect("what is known goes"), 5);
    assert!(matches!(&lines[..], [line] if line.contains("does not implement List")), "{lines:?}");
    device.expect(&key(101), b"of an earlier life");
    println!("data checks: {} 1", name_of(transport));
}

/// Everything in any order, with the limit reached all the time, against a map.
fn a_random_life_is_what_a_map_says(transport: Transport) {
    const KEYS: u64 = 16;
    const STEPS: u64 = 250;
    let change = |config: &mut Config| {
        config.lifecycle.eviction = EvictionPolicy::Lru;
        config.lifecycle.max_bytes = 5 * OBJECT_BYTES;
        config.lifecycle.scan_page = 3;
    };
    let personality = "delete-missing=error,list=wrapping";
    let Some((rig, _served)) = attached(transport, personality, change) else { return };
    let mut random = Random::new(seed());
    let mut stored: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
    let mut device = rig.open();
    let (mut compared, mut evictions) = (0, 0);
    for step in 0..STEPS {
        let key = key(random.below(KEYS) as usize);
        match random.below(10) {
            0..5 => {
                let bytes = payload(*random.pick(&SIZES), random.below(3));
                let evicted = put_evicting(&device, &key, &bytes);
                evictions += evicted.len();
                for key in evicted {
                    stored.remove(&key).expect("only what is stored is evicted");
                }
                stored.insert(key.clone(), bytes);
            }
            5 => match device.backend.remove(&key) {
                Ok(()) => drop(stored.remove(&key).expect("only what is stored is removed")),
                Err(error) => {
                    assert_eq!(error.code(), ErrorCode::ObjectNotFound, "step {step}: {error}");
                    assert!(!stored.contains_key(&key), "step {step}");
                }
            },
            6 => {
                let left = device.backend.evict_above(0.8, 0.5, &mut |_| Ok(()));
                for key in left.expect("it evicts") {
                    stored.remove(&key).expect("only what is stored is evicted");
                    evictions += 1;
                }
            }
            7 => {
                let orphans = random.below(3) as u32;
                let places = Places::new(&rig, b"nobody's", 3);
                for index in 0..orphans {
                    places.put(&rig, Piece::Chunk(0, index), b"orphan");
                }
                let swept = device.backend.sweep(false).expect("it is listed");
                assert_eq!((swept.orphans, swept.deleted), (orphans.into(), orphans.into()));
            }
            8 => {
                device = rig.open();
                let found: Vec<_> = device.scan().1;
                let found = found.iter().map(|object| (&object.key[..], object.size));
                let wanted = stored.iter().map(|(key, bytes)| (&key[..], bytes.len() as u64));
                assert!(found.eq(wanted), "step {step}");
                stored.iter().for_each(|(key, bytes)| device.expect(key, bytes));
                compared += stored.len();
            }
            _ => match stored.get(&key) {
                Some(bytes) => {
                    device.expect(&key, bytes);
                    compared += 1;
                }
                None => is_absent(&device, &key),
            },
        }
        counters_are_true(&rig, &device, nvme_kv_emulator::Usage::default());
        assert_eq!(device.backend.usage().objects, stored.len() as u64, "step {step}");
        without_a_command(&rig, &device, || {
            assert_eq!(device.backend.exists(&key).expect("known"), stored.contains_key(&key));
        });
    }
    for (key, bytes) in &stored {
        device.expect(key, bytes);
        compared += 1;
    }
    println!("data checks: {} {compared}", name_of(transport));
    assert!(evictions > 0, "the limit was reached");
    assert_eq!(device.backend.remove_all().expect("they go"), stored.len() as u64);
    assert_eq!(rig.value_count(), 0);
}

both_transports! {
    a_scan_after_a_reopen_knows_everything =>
        a_scan_by_io_uring_after_a_reopen_knows_everything,
        a_scan_by_ioctl_after_a_reopen_knows_everything;
    many_list_pages_are_walked =>
        many_list_pages_are_walked_by_io_uring,
        many_list_pages_are_walked_by_ioctl;
    removing_leaves_nothing =>
        removing_by_io_uring_leaves_nothing,
        removing_by_ioctl_leaves_nothing;
    a_sweep_reclaims_orphans_alone =>
        a_sweep_by_io_uring_reclaims_orphans_alone,
        a_sweep_by_ioctl_reclaims_orphans_alone;
    at_a_limit_the_oldest_unread_leaves =>
        at_a_limit_the_oldest_unread_leaves_by_io_uring,
        at_a_limit_the_oldest_unread_leaves_by_ioctl;
    a_fuller_device_than_was_thought_evicts_and_goes_on =>
        a_fuller_device_than_was_thought_evicts_by_io_uring_and_goes_on,
        a_fuller_device_than_was_thought_evicts_by_ioctl_and_goes_on;
    without_eviction_what_is_full_says_so =>
        without_eviction_what_is_full_says_so_through_io_uring,
        without_eviction_what_is_full_says_so_through_ioctl;
    watermarks_evict_down_to_the_low_one =>
        watermarks_evict_by_io_uring_down_to_the_low_one,
        watermarks_evict_by_ioctl_down_to_the_low_one;
    a_rewrite_leaves_the_new_version_alone =>
        a_rewrite_by_io_uring_leaves_the_new_version_alone,
        a_rewrite_by_ioctl_leaves_the_new_version_alone;
    a_scan_purges_hidden_versions =>
        a_scan_by_io_uring_purges_hidden_versions,
        a_scan_by_ioctl_purges_hidden_versions;
    without_list_keys_are_asked_for_one_by_one =>
        without_list_keys_are_asked_for_one_by_one_by_io_uring,
        without_list_keys_are_asked_for_one_by_one_by_ioctl;
    a_random_life_is_what_a_map_says =>
        a_random_life_on_io_uring_is_what_a_map_says,
        a_random_life_on_ioctl_is_what_a_map_says;
}
