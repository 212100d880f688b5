//! The C ABI's backend: batches, their statuses and callbacks.

mod ffi_support;

use std::ptr;

use ffi_support::*;
use mooncake_nvme_kv::ffi::*;

fn bytes(len: usize, seed: u8) -> Vec<u8> {
    (0..len).map(|at| (at / 251) as u8 ^ (at % 251) as u8 ^ seed).collect()
}

#[test]
fn objects_in_several_unaligned_slices_come_back_in_several_unaligned_slices() {
    let path = fresh_path();
    let settings = config(&path);
    let backend = open_with(&settings);
    let payload = bytes(1_000_001, 3);
    let parts = [slice(&payload[..1]), slice(&payload[1..70_000]), slice(&payload[70_000..])];
    let objects = [object(b"key\0with a zero byte", &parts)];
    let mut stored = Vec::new();
    let (status, statuses) = offload(backend, &objects, |indexes| {
        stored.extend_from_slice(indexes);
        OK
    });
    assert_eq!((status, statuses, stored), (OK, vec![OK], vec![0]));

    close(backend);
    let backend = open_with(&settings);
    let mut memory = vec![0xEE; payload.len() + 3];
    let (left, right) = memory[1..payload.len() + 2].split_at_mut(300_001);
    let slices = [mut_slice(left), mut_slice(&mut right[..payload.len() - 300_001])];
    let destinations = [destination(b"key\0with a zero byte", &slices)];
    let mut statuses = [77];
    // SAFETY: everything lives during the call.
    let status =
        unsafe { mnkv_backend_load(backend, destinations.as_ptr(), 1, statuses.as_mut_ptr()) };
    assert_eq!((status, statuses), (OK, [OK]), "{}", error(backend));
    assert!(memory[1..=payload.len()] == payload);
    assert_eq!((memory[0], &memory[payload.len() + 1..]), (0xEE, &[0xEE; 2][..]), "outside");
    close(backend);
}

#[test]
fn empty_keys_payloads_and_slices_ignore_their_pointers() {
    let backend = open();
    let nowhere = ptr::without_provenance::<u8>(1);
    for data in [ptr::null(), nowhere] {
        let empty = [mnkv_slice { data: data.cast(), size: 0 }; 2];
        for slices in [&empty[..], &[]] {
            let mut objects = [object(b"", slices)];
            objects[0].key = data.cast();
            if slices.is_empty() {
                objects[0].slices = data.cast::<mnkv_slice>().cast_mut();
            }
            assert_eq!(offload(backend, &objects, |_| OK), (OK, vec![OK]), "{}", error(backend));
        }
        let slices = [mnkv_mut_slice { data: data.cast_mut().cast(), size: 0 }];
        let mut destinations = [destination(b"", &slices)];
        destinations[0].key = data.cast();
        // SAFETY: no pointer with a size of 0 is followed; the rest lives.
        unsafe {
            let status = mnkv_backend_load(backend, destinations.as_ptr(), 1, ptr::null_mut());
            assert_eq!(status, OK, "{}", error(backend));
            let mut out = false;
            assert_eq!(mnkv_backend_exists(backend, data.cast(), 0, &mut out), OK);
            assert!(out);
            let status = mnkv_backend_load(backend, data.cast(), 0, data.cast_mut().cast());
            assert_eq!(status, OK, "an empty load");
        }
    }
    // SAFETY: nothing is followed.
    let status = unsafe {
        let none = ptr::null_mut();
        mnkv_backend_offload(backend, ptr::null(), 0, None, None, none, ptr::null_mut())
    };
    assert_eq!(status, INVALID_KEY);
    assert!(error(backend).contains("no object"), "{}", error(backend));
    close(backend);
}

#[test]
fn null_with_a_size_is_refused_by_name_and_every_item_gets_the_status() {
    let backend = open();
    let good = [slice(b"payload")];
    let null_slice = [mnkv_slice { data: ptr::null(), size: 5 }];
    let mut objects = [object(b"k", &good), object(b"k", &good)];
    type Break<'a> = &'a dyn Fn(&mut mnkv_object);
    let broken: [(Break<'_>, &str); 3] = [
        (&|object| object.key = ptr::null(), "the key of item 1 is NULL with a size of 1"),
        (&|object| object.slices = ptr::null(), "the array of slices of object 1 is NULL"),
        (&|object| object.slices = null_slice.as_ptr(), "slice 0 of object 1 is NULL"),
    ];
    for (break_it, message) in broken {
        objects[1] = object(b"k", &good);
        break_it(&mut objects[1]);
        let (status, statuses) = offload(backend, &objects, |_| panic!("nothing is stored"));
        assert_eq!((status, statuses), (INVALID_PARAMS, vec![INVALID_PARAMS; 2]), "{message}");
        assert!(error(backend).contains(message), "{}", error(backend));
    }
    let slices = [mnkv_mut_slice { data: ptr::null_mut(), size: 5 }];
    let destinations = [destination(b"k", &slices)];
    let mut statuses = [77];
    // SAFETY: NULL is not followed; the rest lives.
    unsafe {
        let load = |from, count, to| mnkv_backend_load(backend, from, count, to);
        assert_eq!(load(destinations.as_ptr(), 1, statuses.as_mut_ptr()), INVALID_PARAMS);
        assert_eq!(statuses, [INVALID_PARAMS]);
        assert!(error(backend).contains("slice 0 of destination 0"), "{}", error(backend));
        assert_eq!(load(ptr::null(), 1, ptr::null_mut()), INVALID_PARAMS);
        assert_eq!(load(destinations.as_ptr(), usize::MAX, statuses.as_mut_ptr()), INVALID_PARAMS);
        let offload = mnkv_backend_offload;
        let none = ptr::null_mut();
        let status = offload(backend, ptr::null(), 1, None, None, none, ptr::null_mut());
        assert_eq!(status, INVALID_PARAMS);
        assert_eq!(mnkv_backend_exists(backend, ptr::null(), 1, &mut false), INVALID_PARAMS);
        let key = b"k".as_ptr().cast();
        assert_eq!(mnkv_backend_exists(backend, key, 1, ptr::null_mut()), INVALID_PARAMS);
        assert_eq!(mnkv_backend_exists(backend, key, usize::MAX, &mut false), INVALID_PARAMS);
        assert_eq!(mnkv_backend_is_enabled(backend, ptr::null_mut()), INVALID_PARAMS);
        assert_eq!(mnkv_backend_capabilities(backend, ptr::null_mut()), INVALID_PARAMS);
        assert_eq!(mnkv_backend_open_from_environment(ptr::null_mut()), INVALID_PARAMS);
        assert_eq!(mnkv_backend_open(&config(&fresh_path()), ptr::null_mut()), INVALID_PARAMS);
        assert_eq!(mnkv_backend_open(ptr::null(), &mut ptr::null_mut()), INVALID_PARAMS);
    }
    close(backend);
}

#[test]
fn a_load_tells_each_item_and_ends_with_the_first_error() {
    let backend = open();
    assert_eq!(put(backend, b"here", b"12345"), OK);
    let (mut a, mut b, mut c) = ([0; 5], [0; 5], [0; 4]);
    let slices = [[mut_slice(&mut a)], [mut_slice(&mut b)], [mut_slice(&mut c)]];
    let destinations = [
        destination(b"here", &slices[0]),
        destination(b"absent", &slices[1]),
        destination(b"here", &slices[2]),
    ];
    let mut statuses = [77; 3];
    // SAFETY: everything lives during the call.
    let status =
        unsafe { mnkv_backend_load(backend, destinations.as_ptr(), 3, statuses.as_mut_ptr()) };
    assert_eq!(status, NOT_FOUND);
    assert_eq!(statuses[..2], [OK, NOT_FOUND]);
    assert!(![OK, NOT_FOUND, 77].contains(&statuses[2]), "a wrong size: {}", statuses[2]);
    assert_eq!(&a, b"12345");
    assert!(error(backend).starts_with("OBJECT_NOT_FOUND (-704)"), "{}", error(backend));
    assert_eq!(exists(backend, b"here"), Ok(true));
    assert_eq!(exists(backend, b"absent"), Ok(false));
    close(backend);
}

#[test]
fn an_offload_is_soft_when_some_objects_are_stored_and_hard_when_none_is() {
    let path = fresh_path();
    let mut settings = config(&path);
    settings.protocol_max_value_size = 4096;
    let backend = open_with(&settings);
    // More chunks than a manifest of 4096 bytes can list.
    let large = vec![0; 4 << 20];
    let (small, large) = ([slice(b"x")], [slice(&large)]);
    let (status, statuses) =
        offload(backend, &[object(b"a", &large), object(b"b", &small)], |_| OK);
    assert_eq!((status, statuses), (INVALID_READ, vec![INVALID_PARAMS, OK]));
    assert!(error(backend).contains("1 of 2 objects were not stored"), "{}", error(backend));
    let (status, statuses) = offload(backend, &[object(b"a", &large); 2], |_| OK);
    assert_eq!((status, statuses), (INVALID_PARAMS, vec![INVALID_PARAMS; 2]));
    close(backend);
}

#[test]
fn what_a_completion_callback_returns_comes_back_and_ends_the_batch() {
    let backend = open();
    let slices = [slice(b"payload")];
    let keys: Vec<String> = (0..3).map(|index| format!("key {index}")).collect();
    let objects: Vec<_> = keys.iter().map(|key| object(key.as_bytes(), &slices)).collect();
    let mut calls = 0;
    let (status, statuses) = offload(backend, &objects, |_| {
        calls += 1;
        -123_456
    });
    assert_eq!((status, calls), (-123_456, 1));
    assert!(statuses.iter().all(|status| [OK, INVALID_READ].contains(status)), "{statuses:?}");
    assert!(error(backend).contains("-123456"), "{}", error(backend));
    close(backend);
}

#[test]
fn a_completion_callback_may_use_the_backend() {
    let backend = open();
    let payload = bytes(600_000, 9);
    let slices = [slice(&payload)];
    let keys: Vec<String> = (0..40).map(|index| format!("key {index}")).collect();
    let objects: Vec<_> = keys.iter().map(|key| object(key.as_bytes(), &slices)).collect();
    let mut told = Vec::new();
    let (status, statuses) = offload(backend, &objects, |indexes| {
        for index in indexes {
            let key = keys[*index].as_bytes();
            assert_eq!(exists(backend, key), Ok(true));
            assert!(get(backend, key, payload.len()).is_ok_and(|loaded| loaded == payload));
            assert_eq!(put(backend, format!("nested {index}").as_bytes(), b"x"), OK);
        }
        told.extend_from_slice(indexes);
        OK
    });
    assert_eq!((status, statuses), (OK, vec![OK; 40]));
    told.sort_unstable();
    assert_eq!(told, (0..40).collect::<Vec<_>>(), "every object once");
    assert_eq!(exists(backend, b"nested 39"), Ok(true));
    close(backend);
}

#[test]
fn statuses_and_the_callback_may_be_left_out() {
    let backend = open();
    assert_eq!(put(backend, b"k", b"v"), OK);
    assert_eq!(get(backend, b"k", 1), Ok(b"v".to_vec()));
    let mut enabled = false;
    // SAFETY: both pointers are good.
    assert_eq!(unsafe { mnkv_backend_is_enabled(backend, &mut enabled) }, OK);
    assert!(enabled);
    close(backend);
}

#[test]
fn capabilities_tell_limits_and_settings() {
    let path = fresh_path();
    let mut settings = config(&path);
    settings.queue_depth = 5;
    settings.runtime_transfer_limit = 9000;
    settings.wire_profile = mnkv_wire_profile::MNKV_WIRE_SPEC as u32;
    let backend = open_with(&settings);
    // SAFETY: zero bytes are a value of every field.
    let mut answer: mnkv_capabilities = unsafe { std::mem::zeroed() };
    answer.struct_size = size_of::<mnkv_capabilities>();
    // SAFETY: both pointers are good.
    assert_eq!(unsafe { mnkv_backend_capabilities(backend, &mut answer) }, OK);
    assert_eq!(answer.struct_size, size_of::<mnkv_capabilities>());
    assert_eq!((answer.max_value_size, answer.queue_depth), (8192, 5));
    assert!(answer.max_object_size > 8192);
    assert_eq!(answer.transport, mnkv_transport::MNKV_TRANSPORT_EMULATED as u32);
    assert_eq!(answer.wire_profile, mnkv_wire_profile::MNKV_WIRE_SPEC as u32);
    let derived = (answer.io_concurrency, answer.batch_submit_concurrency);
    assert_eq!(derived, (5, 4), "derived from the queue depth");
    assert_eq!((answer.root_submit_concurrency, answer.prepare_concurrency), (1, 1));
    assert_eq!(answer.max_io_concurrency, 256);
    close(backend);
}

#[test]
fn padding_lands_in_the_slack_that_the_settings_promise_and_nowhere_else() {
    let path = fresh_path();
    let mut settings = config(&path);
    for slack in [0, 4096] {
        settings.destination_slack = slack;
        let backend = open_with(&settings);
        let payload = bytes(300_100, 1);
        assert_eq!(put(backend, b"k", &payload), OK);
        let mut memory = vec![0xEE_u8; payload.len() + 4 * 4096];
        let start = memory.as_ptr().align_offset(4096);
        let slices = [mut_slice(&mut memory[start..start + payload.len()])];
        let destinations = [destination(b"k", &slices)];
        // SAFETY: everything lives during the call, 4096 bytes behind the slice too.
        let status =
            unsafe { mnkv_backend_load(backend, destinations.as_ptr(), 1, ptr::null_mut()) };
        assert_eq!(status, OK);
        let end = start + payload.len();
        assert!(memory[start..end] == payload);
        assert!(memory[end + slack..].iter().all(|byte| *byte == 0xEE), "slack {slack}");
        close(backend);
    }
}

#[test]
fn registered_memory_is_used_like_any_other() {
    let backend = open();
    let payload = bytes(300_000, 5);
    assert_eq!(put(backend, b"k", &payload), OK);
    let mut arena = vec![0u8; 1 << 20];
    let start = arena.as_mut_ptr().cast();
    // SAFETY: the arena outlives the backend.
    unsafe {
        assert_eq!(mnkv_backend_register_memory(backend, start, arena.len()), OK);
        let slices = [mut_slice(&mut arena[4096..4096 + payload.len()])];
        let destinations = [destination(b"k", &slices)];
        assert_eq!(mnkv_backend_load(backend, destinations.as_ptr(), 1, ptr::null_mut()), OK);
        assert!(arena[4096..4096 + payload.len()] == payload);
        assert_eq!(mnkv_backend_unregister_memory(backend, start), OK);
        assert_eq!(mnkv_backend_register_memory(backend, ptr::null_mut(), 7), INVALID_PARAMS);
        assert_eq!(mnkv_backend_register_memory(backend, start, 0), INVALID_PARAMS);
        assert!(error(backend).contains("is empty"), "{}", error(backend));
    }
    close(backend);
}
