//! Batches: every object is accounted for exactly once, whatever it is and however it ends.

mod support;

use std::collections::HashMap;
use std::sync::Arc;

use mooncake_nvme_kv::backend::{ObjectToLoad, ObjectToStore, OffloadReport};
use mooncake_nvme_kv::device::Destination;
use mooncake_nvme_kv::device::fault::{Counts, Effect, HoldPoint, Kind};
use mooncake_nvme_kv::layout::{Limits, max_object_size};
use mooncake_nvme_kv::{Error, ErrorCode};
use nvme_kv_emulator::Personality;
use support::characters::small_values;
use support::{Device, Rig, payload};

/// Value size limit of the small rigs, bytes.
const VALUE: usize = 8192;

fn small_rig() -> Rig {
    Rig::with(Personality::default(), small_values)
}

/// One object of a batch, owned.
struct Item {
    key: Vec<u8>,
    payload: Vec<u8>,
}

fn item(key: impl Into<Vec<u8>>, payload: Vec<u8>) -> Item {
    Item { key: key.into(), payload }
}

/// Offloads the batch and checks that exactly what is stored was told, once each.
fn offload(device: &Device, items: &[Item]) -> OffloadReport {
    let slices: Vec<[&[u8]; 1]> = items.iter().map(|item| [&item.payload[..]]).collect();
    let objects: Vec<ObjectToStore<'_>> = items
        .iter()
        .zip(&slices)
        .map(|(item, slices)| ObjectToStore { key: &item.key, slices })
        .collect();
    let mut told = Vec::new();
    let report = device
        .backend
        .offload(&objects, &mut |stored| {
            told.extend_from_slice(stored);
            Ok(())
        })
        .unwrap();
    assert!(report.callback_error.is_none());
    assert_eq!(report.results.len(), items.len());
    told.sort_unstable();
    let stored: Vec<usize> =
        (0..items.len()).filter(|index| report.results[*index].is_ok()).collect();
    assert_eq!(told, stored, "told exactly once what is stored, and nothing else");
    report
}

#[test]
fn every_object_of_a_mixed_batch_has_its_own_result() {
    let rig = small_rig();
    let device = rig.open();
    let limits = Limits { max_value_size: VALUE as u32 };
    let too_large = max_object_size(9, limits) as usize + 1;
    let items = [
        item("inline", payload(100, 1)),
        item("", payload(200, 2)),
        item("empty payload", Vec::new()),
        item("too large", payload(too_large, 3)),
        item("chunked", payload(3 * VALUE + 1, 4)),
        item([0, 0xFF, 0, b'\n'], payload(VALUE + 5, 5)),
        item(vec![b'k'; VALUE], payload(1, 6)),
        item("inline", payload(101, 7)),
        item(vec![b'k'; 2000], payload(2 * VALUE, 8)),
    ];
    let report = offload(&device, &items);
    for (index, (item, result)) in items.iter().zip(&report.results).enumerate() {
        match index {
            3 | 6 => {
                let error = result.as_ref().unwrap_err();
                assert_eq!(error.code(), ErrorCode::InvalidParams, "{error}");
                assert!(!device.backend.exists(&item.key).unwrap());
            }
            _ => {
                let stored = result.as_ref().unwrap();
                assert_eq!((stored.size, stored.already), (item.payload.len() as u64, false));
            }
        }
    }
    for index in [1, 2, 4, 5, 7, 8] {
        device.expect(&items[index].key, &items[index].payload);
        rig.open().expect(&items[index].key, &items[index].payload);
        assert!(device.backend.exists(&items[index].key).unwrap());
    }
    let again = offload(&device, &items[1..3]);
    assert!(again.results.iter().all(|result| result.as_ref().unwrap().already));
}

#[test]
fn of_several_objects_of_one_key_the_last_one_wins() {
    let rig = small_rig();
    let device = rig.open();
    // Inline and chunked objects of one key would go to different lanes.
    let sizes = [10, 2 * VALUE, 0, 5 * VALUE + 7, 300];
    let mut items = Vec::new();
    for round in 0..40 {
        for key in 0..10 {
            let size = sizes[(round + key) % sizes.len()];
            items.push(item(format!("key {key}"), payload(size, (100 * round + key) as u64)));
        }
    }
    // The last object of one key is refused: the one before it stays.
    items.push(item("key 3", payload(400 * VALUE, 1)));
    let report = offload(&device, &items);
    let (refused, stored) = report.results.split_last().unwrap();
    assert_eq!(refused.as_ref().unwrap_err().code(), ErrorCode::InvalidParams);
    assert!(stored.iter().all(Result::is_ok));
    let mut values = 0;
    for item in &items[390..400] {
        device.expect(&item.key, &item.payload);
        rig.open().expect(&item.key, &item.payload);
        values += rig.values_of(&item.key, item.payload.len());
    }
    assert_eq!(rig.value_count(), values, "nothing of the other versions is left");
}

#[test]
fn the_same_object_twice_in_a_batch_is_stored_once() {
    let rig = small_rig();
    let items = [0, 1, 2].map(|_| item("twice", payload(2 * VALUE, 1)));
    let report = offload(&rig.open(), &items);
    let already: Vec<bool> =
        report.results.iter().map(|result| result.as_ref().unwrap().already).collect();
    assert_eq!(already, [false, true, true]);
    assert_eq!(rig.value_count(), 3);
}

#[test]
fn slices_of_any_number_and_length_make_one_payload() {
    let rig = small_rig();
    for (n, size) in [1, 5000, VALUE, 2 * VALUE + 3000].into_iter().enumerate() {
        let bytes = payload(size, n as u64);
        for piece in [1, 7, 4096, VALUE, size] {
            let rig = small_rig();
            let mut slices: Vec<&[u8]> = vec![&[], &[]];
            for slice in bytes.chunks(piece) {
                slices.extend([slice, &[]]);
            }
            assert!(!rig.open().put_slices(b"sliced", &slices).unwrap().already);
            let device = rig.open();
            device.expect(b"sliced", &bytes);
            assert!(device.put_slices(b"sliced", &slices).unwrap().already);
            assert!(device.put(b"sliced", &bytes).unwrap().already);
        }
    }
    let device = rig.open();
    for slices in [&[][..], &[&[][..]], &[&[][..], &[], &[]]] {
        let stored = device.put_slices(b"nothing", slices).unwrap();
        assert_eq!(stored.size, 0);
        device.expect(b"nothing", b"");
    }
    assert_eq!(rig.value_count(), 1);
    let empty = Destination::from_slices([&mut [][..], &mut []]);
    device.get_to(b"nothing", empty).unwrap();
    // SAFETY: there is nothing to be valid.
    let nowhere = unsafe { Destination::from_raw([(std::ptr::null_mut(), 0)], 0) };
    device.get_to(b"nothing", nowhere).unwrap();
}

/// Memory that kills the process when it is read.
struct Untouchable {
    start: *mut libc::c_void,
    len: usize,
}

impl Untouchable {
    fn new(len: usize) -> Untouchable {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a new mapping at an address of the kernel's choice.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), len, libc::PROT_NONE, flags, -1, 0) };
        assert_ne!(start, libc::MAP_FAILED);
        Untouchable { start, len }
    }

    fn bytes(&self) -> &[u8] {
        // SAFETY: mapped as long as `self`. A read of it would end the process: that none
        // happens is what the test is about.
        unsafe { std::slice::from_raw_parts(self.start.cast(), self.len) }
    }
}

impl Drop for Untouchable {
    fn drop(&mut self) {
        // SAFETY: the mapping of `new`, unmapped once.
        unsafe { libc::munmap(self.start, self.len) };
    }
}

#[test]
fn what_no_manifest_can_describe_is_refused_unread_and_without_a_command() {
    let rig = small_rig();
    let device = rig.open();
    let limit = max_object_size(5, Limits { max_value_size: VALUE as u32 }) as usize;
    for (len, words) in [
        (limit + 1, format!("object of {} bytes, at most {limit}", limit + 1)),
        (u32::MAX as usize, format!("at most {limit}")),
        (u32::MAX as usize + 2, format!("at most {limit}")),
    ] {
        let memory = Untouchable::new(len);
        let error = device.put(b"large", memory.bytes()).unwrap_err();
        assert_eq!(error.code(), ErrorCode::InvalidParams);
        assert!(error.message().contains(&words), "{error}");
        let (head, tail) = memory.bytes().split_at(len / 2);
        device.put_slices(b"large", &[head, tail]).unwrap_err();
    }
    assert_eq!(device.faults.counts(), Counts::default());

    // The largest that a manifest can describe.
    let bytes = payload(limit, 1);
    assert!(!device.put(b"large", &bytes).unwrap().already);
    assert_eq!(rig.value_count(), 1 + limit / VALUE);
    device.expect(b"large", &bytes);
    rig.open().expect(b"large", &bytes);
}

#[test]
fn an_empty_batch_is_refused_and_an_empty_load_is_done() {
    let rig = small_rig();
    let device = rig.open();
    let error = device.backend.offload(&[], &mut |_| Ok(())).unwrap_err();
    assert_eq!(error.code(), ErrorCode::InvalidKey);
    assert_eq!(device.backend.load(Vec::new()).unwrap().len(), 0);
    assert_eq!(device.faults.counts(), Counts::default());
}

#[test]
fn a_closed_backend_refuses_every_call_and_may_be_closed_again() {
    let rig = small_rig();
    let device = rig.open();
    device.put(b"key", b"value").unwrap();
    device.backend.close();
    device.backend.close();
    device.faults.take_counts();
    let refused = |error: Error| {
        assert_eq!(error.code(), ErrorCode::InternalError, "{error}");
        assert!(error.message().contains("closed"), "{error}");
    };
    refused(device.put(b"key", b"value").unwrap_err());
    refused(device.get(b"key", 5).unwrap_err());
    refused(device.backend.exists(b"key").unwrap_err());
    refused(device.backend.is_enabled().unwrap_err());
    refused(device.backend.offload(&[], &mut |_| Ok(())).unwrap_err());
    refused(device.backend.load(Vec::new()).unwrap_err());
    assert_eq!(device.faults.counts(), Counts::default());
    rig.open().expect(b"key", b"value");
}

#[test]
fn close_lets_calls_in_flight_finish() {
    let rig = small_rig();
    let device = rig.open();
    let point = HoldPoint::new();
    let held = Arc::clone(&point);
    device.faults.set_rule(move |kind, _| match kind {
        Kind::Store => Effect::Hold(Arc::clone(&held)),
        _ => Effect::Pass,
    });
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| device.put(b"key", b"value"));
        point.wait_for_arrival();
        let closer = scope.spawn(|| {
            device.backend.close();
            // Whatever was in flight has reached the device by now.
            rig.value_count()
        });
        point.release();
        assert!(!writer.join().unwrap().unwrap().already);
        assert_eq!(closer.join().unwrap(), 1);
    });
    assert!(device.put(b"key", b"value").is_err());
}

/// Enough for several lanes of both kinds.
fn large_batch() -> Vec<Item> {
    let mut items: Vec<Item> =
        (0..3000).map(|n| item(format!("tenant\0small {n}"), payload(n % 700, n as u64))).collect();
    for n in 0..20 {
        let large = item(format!("tenant\0large {n}"), payload(60 * VALUE + n, n as u64));
        items.insert(n * 100, large);
    }
    items
}

#[test]
fn a_large_batch_is_stored_by_several_lanes_and_told_in_parts() {
    let rig = small_rig();
    let device = rig.open();
    let items = large_batch();
    offload(&device, &items);
    let values: usize = items.iter().map(|item| rig.values_of(&item.key, item.payload.len())).sum();
    assert_eq!(rig.value_count(), values);
    assert_eq!(device.backend.usage().objects, items.len() as u64);
    for device in [&device, &rig.open()] {
        let mut memory: Vec<Vec<u8>> =
            items.iter().map(|item| vec![0; item.payload.len()]).collect();
        let objects = items.iter().zip(&mut memory).map(|(item, memory)| ObjectToLoad {
            key: &item.key,
            destination: Destination::new(memory),
        });
        let results = device.backend.load(objects.collect()).unwrap();
        assert_eq!(results.len(), items.len());
        assert!(results.iter().all(Result::is_ok));
        assert!(items.iter().zip(&memory).all(|(item, memory)| item.payload == *memory));
    }
    let again = offload(&device, &items);
    assert!(again.results.iter().all(|result| result.as_ref().unwrap().already));
}

#[test]
fn the_callback_may_call_back_into_the_backend() {
    let rig = small_rig();
    let device = rig.open();
    let items = large_batch();
    for items in [&items[..3], &items] {
        let slices: Vec<[&[u8]; 1]> = items.iter().map(|item| [&item.payload[..]]).collect();
        let objects: Vec<ObjectToStore<'_>> = items
            .iter()
            .zip(&slices)
            .map(|(item, slices)| ObjectToStore { key: &item.key, slices })
            .collect();
        let mut calls: HashMap<usize, usize> = HashMap::new();
        let report = device.backend.offload(&objects, &mut |stored| {
            assert!(!stored.is_empty());
            for &index in stored {
                *calls.entry(index).or_default() += 1;
                assert!(device.backend.exists(&items[index].key)?);
                // Reading every one back would only be slow.
                if index % 10 == 0 {
                    device.expect(&items[index].key, &items[index].payload);
                }
            }
            let first = &items[stored[0]];
            assert!(device.put(&first.key, &first.payload)?.already);
            Ok(())
        });
        assert!(report.unwrap().results.iter().all(Result::is_ok));
        assert_eq!(calls.len(), items.len());
        assert!(calls.values().all(|calls| *calls == 1));
    }
}

#[test]
fn an_error_of_the_callback_ends_a_large_batch_and_loses_no_account() {
    let items = large_batch();
    // On one processor there is one lane, which tells at its end.
    let lanes = std::thread::available_parallelism().map_or(1, usize::from);
    for items in [&items[..5], &items] {
        let cut_short = lanes > 1 && items.len() > 5;
        // Few commands at once, so that the first objects are stored long before the last begin;
        // and no more than some until the callback has failed.
        let rig = Rig::with(Personality::default(), |config| {
            small_values(config);
            config.connector.queue_depth = 4;
        });
        let device = rig.open();
        let point = HoldPoint::new();
        let (held, mut stores) = (Arc::clone(&point), 0);
        device.faults.set_rule(move |kind, _| {
            stores += u32::from(kind == Kind::Store);
            if cut_short && stores > 300 { Effect::Hold(Arc::clone(&held)) } else { Effect::Pass }
        });
        let slices: Vec<[&[u8]; 1]> = items.iter().map(|item| [&item.payload[..]]).collect();
        let objects: Vec<ObjectToStore<'_>> = items
            .iter()
            .zip(&slices)
            .map(|(item, slices)| ObjectToStore { key: &item.key, slices })
            .collect();
        let mut calls = 0;
        let report = device.backend.offload(&objects, &mut |_| {
            calls += 1;
            point.release();
            Err(Error::new(ErrorCode::NotSupported, "the master is gone"))
        });
        let report = report.unwrap();
        assert_eq!(calls, 1, "not called again");
        let error = report.callback_error.unwrap();
        assert_eq!(
            (error.code(), error.message()),
            (ErrorCode::NotSupported, "the master is gone")
        );
        assert_eq!(report.results.len(), items.len());
        let stored = report.results.iter().filter(|result| result.is_ok()).count();
        assert_eq!(stored < items.len(), cut_short, "{stored} of {}", items.len());
        let mut values = 0;
        for (item, result) in items.iter().zip(&report.results) {
            match result {
                Ok(stored) => {
                    assert!(!stored.already);
                    values += rig.values_of(&item.key, item.payload.len());
                    assert!(device.backend.exists(&item.key).unwrap());
                }
                Err(error) => {
                    assert_eq!(error.code(), ErrorCode::InvalidRead);
                    assert!(error.message().contains("callback failed"), "{error}");
                    assert!(!device.backend.exists(&item.key).unwrap());
                }
            }
        }
        assert_eq!(rig.value_count(), values);
        // The backend goes on as if nothing had happened.
        offload(&device, items);
    }
}

#[test]
fn a_load_reports_each_object_at_its_own_place() {
    let rig = small_rig();
    let device = rig.open();
    let (small, large) = (payload(10, 1), payload(2 * VALUE, 2));
    offload(&device, &[item("small", small.clone()), item("large", large.clone())]);
    let keys: [(&[u8], usize); 7] = [
        (b"large", large.len()),
        (b"absent", 10),
        (b"small", 10),
        (b"small", 11),
        (b"large", large.len()),
        (b"absent", 0),
        (b"small", 0),
    ];
    for device in [&device, &rig.open()] {
        let mut memory: Vec<Vec<u8>> = keys.iter().map(|(_, len)| vec![0; *len]).collect();
        let objects = keys
            .iter()
            .zip(&mut memory)
            .map(|((key, _), memory)| ObjectToLoad { key, destination: Destination::new(memory) });
        let results = device.backend.load(objects.collect()).unwrap();
        let codes: Vec<_> =
            results.iter().map(|result| result.as_ref().err().map(Error::code)).collect();
        let (absent, other_size) = (ErrorCode::ObjectNotFound, ErrorCode::FileReadFail);
        assert_eq!(
            codes,
            [None, Some(absent), None, Some(other_size), None, Some(absent), Some(other_size)]
        );
        assert!(memory[0] == large && memory[2] == small && memory[4] == large);
    }
}

#[test]
fn a_destination_larger_than_any_object_is_refused() {
    let rig = small_rig();
    let device = rig.open();
    device.put(b"key", b"value").unwrap();
    let len = u32::MAX as usize + 1;
    let memory = Untouchable::new(len);
    // SAFETY: lent to nobody else; as nothing may be written to it, it needs no access rights.
    let destination = unsafe { Destination::from_raw([(memory.start.cast(), len)], 0) };
    let error = device.get_to(b"key", destination).unwrap_err();
    assert_eq!(error.code(), ErrorCode::InvalidParams);
    assert!(error.message().contains("4294967296 bytes wanted"), "{error}");
}
