//! What the C ABI's handles, structs and texts tolerate.

mod ffi_support;

use std::ffi::CStr;
use std::sync::mpsc;
use std::{mem, ptr, thread};

use ffi_support::*;
use mooncake_nvme_kv::ffi::*;

/// A handle that another thread may use, as the header allows.
#[derive(Clone, Copy)]
struct Shared(*mut mnkv_backend);
// SAFETY: a handle may be used by any thread.
unsafe impl Send for Shared {}

impl Shared {
    fn get(self) -> *mut mnkv_backend {
        self.0
    }
}

#[test]
fn a_closed_or_made_up_handle_is_an_error_in_every_call() {
    let closed = open();
    close(closed);
    let reopened = open();
    assert_ne!(closed, reopened, "no number is used twice");
    for handle in [closed, ptr::null_mut(), ptr::without_provenance_mut(0xdead_beef)] {
        assert_eq!(put(handle, b"k", b"v"), INTERNAL_ERROR);
        assert!(error(handle).contains("no open backend"), "{}", error(handle));
        assert_eq!(get(handle, b"k", 1), Err(INTERNAL_ERROR));
        assert_eq!(exists(handle, b"k"), Err(INTERNAL_ERROR));
        // SAFETY: all other pointers are good.
        unsafe {
            assert_eq!(mnkv_backend_is_enabled(handle, &mut false), INTERNAL_ERROR);
            let mut answer: mnkv_capabilities = mem::zeroed();
            answer.struct_size = size_of::<mnkv_capabilities>();
            assert_eq!(mnkv_backend_capabilities(handle, &mut answer), INTERNAL_ERROR);
            let expected = if handle.is_null() { OK } else { INTERNAL_ERROR };
            assert_eq!(mnkv_backend_close(handle), expected);
        }
    }
    close(reopened);
}

#[test]
fn a_handle_of_one_kind_is_none_of_the_other() {
    let backend = open();
    // SAFETY: a wrong handle is refused; all other pointers are good.
    unsafe {
        assert_eq!(mnkv_device_delete(backend.cast(), [0u8; 16].as_ptr().cast()), INTERNAL_ERROR);
        assert_eq!(mnkv_device_close(backend.cast()), INTERNAL_ERROR);
    }
    close(backend);
}

#[test]
fn close_from_inside_a_callback_of_the_same_backend_is_an_error_and_closes_nothing() {
    let (backend, other) = (open(), open());
    let slices = [slice(b"payload")];
    let mut closed_other = None;
    let (status, _) = offload(backend, &[object(b"k", &slices)], |_| {
        // SAFETY: any handle may be closed.
        unsafe {
            assert_eq!(mnkv_backend_close(backend), INTERNAL_ERROR);
            closed_other = Some(mnkv_backend_close(other));
        }
        OK
    });
    assert_eq!((status, closed_other), (OK, Some(OK)));
    assert!(error(backend).contains("from inside one of its own callbacks"));
    assert_eq!(exists(backend, b"k"), Ok(true));
    close(backend);
}

#[test]
fn close_waits_for_calls_under_way_and_refuses_new_ones() {
    let backend = open();
    let shared = Shared(backend);
    let (entered, has_entered) = mpsc::channel();
    let (release, released) = mpsc::channel::<()>();
    let (ended, has_ended) = mpsc::channel();
    thread::scope(|scope| {
        let call_ended = ended.clone();
        scope.spawn(move || {
            let slices = [slice(b"payload")];
            let (status, _) = offload(shared.get(), &[object(b"k", &slices)], |_| {
                entered.send(()).expect("the test waits");
                released.recv().expect("the test releases");
                // The handle is gone for whoever comes now, callbacks included.
                assert_eq!(exists(shared.get(), b"k"), Err(INTERNAL_ERROR));
                call_ended.send("callback").expect("the test waits");
                OK
            });
            assert_eq!(status, OK);
        });
        has_entered.recv().expect("the callback runs");
        scope.spawn(move || {
            close(shared.get());
            ended.send("close").expect("the test waits");
        });
        // Until the close has begun, calls go through.
        while exists(backend, b"k").is_ok() {
            thread::yield_now();
        }
        let early = has_ended.try_recv();
        release.send(()).expect("the callback waits");
        assert_eq!(early, Err(mpsc::TryRecvError::Empty));
        assert_eq!(has_ended.recv(), Ok("callback"));
        assert_eq!(has_ended.recv(), Ok("close"));
    });
}

#[test]
fn of_many_threads_that_close_one_handle_one_succeeds() {
    let shared = Shared(open());
    let statuses: Vec<_> = thread::scope(|scope| {
        // SAFETY: any handle may be closed, by any thread.
        let close = || scope.spawn(move || unsafe { mnkv_backend_close(shared.get()) });
        let threads: Vec<_> = (0..8).map(|_| close()).collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
    });
    assert_eq!(statuses.iter().filter(|status| **status == OK).count(), 1);
    assert_eq!(statuses.iter().filter(|status| **status == INTERNAL_ERROR).count(), 7);
}

#[test]
fn a_shorter_config_leaves_the_rest_at_the_defaults_and_an_impossible_size_is_refused() {
    let path = fresh_path();
    let mut settings = config(&path);
    settings.queue_depth = 7;
    settings.wire_profile = 99;
    let open = |settings: &mnkv_config| {
        let mut backend = ptr::without_provenance_mut(1);
        // SAFETY: both pointers are good.
        let status = unsafe { mnkv_backend_open(settings, &mut backend) };
        assert_eq!(backend.is_null(), status != OK);
        (status, backend)
    };
    assert_eq!(open(&settings).0, INVALID_PARAMS);
    assert!(thread_error().contains("wire_profile is 99; it is 0 to 1"), "{}", thread_error());

    // Ends before wire_profile, whose nonsense is not seen.
    settings.struct_size = mem::offset_of!(mnkv_config, wire_profile);
    let (status, backend) = open(&settings);
    assert_eq!(status, OK, "{}", thread_error());
    close(backend);

    for size in [0, 1, size_of::<usize>(), 4097, usize::MAX] {
        settings.struct_size = size;
        assert_eq!(open(&settings).0, INVALID_PARAMS, "{size}");
        let message = format!("mnkv_config.struct_size is {size}; set it to sizeof(mnkv_config)");
        assert!(thread_error().contains(&message), "{}", thread_error());
    }
}

#[test]
fn a_longer_config_is_accepted_as_long_as_it_sets_nothing_unknown() {
    #[repr(C)]
    struct Newer {
        known: mnkv_config,
        unknown: u64,
    }
    let path = fresh_path();
    let mut settings = Newer { known: config(&path), unknown: 0 };
    settings.known.struct_size = size_of::<Newer>();
    let mut open = |unknown| {
        settings.unknown = unknown;
        let mut backend = ptr::null_mut();
        // SAFETY: as many bytes as the struct says.
        let status = unsafe { mnkv_backend_open(ptr::from_ref(&settings).cast(), &mut backend) };
        (status, backend)
    };
    let (status, backend) = open(0);
    assert_eq!(status, OK, "{}", thread_error());
    close(backend);
    assert_eq!(open(1 << 40).0, INVALID_PARAMS);
    assert!(thread_error().contains("sets a field that"), "{}", thread_error());
}

#[test]
fn arrays_are_walked_by_the_size_of_their_first_struct() {
    #[repr(C)]
    #[derive(Clone, Copy)]
    struct Newer {
        known: mnkv_object,
        unknown: u64,
    }
    let backend = open();
    let slices = [slice(b"payload")];
    let newer = |key: &[u8]| {
        let mut newer = Newer { known: object(key, &slices), unknown: 0 };
        newer.known.struct_size = size_of::<Newer>();
        newer
    };
    let mut objects = [newer(b"first"), newer(b"second")];
    let offload = |objects: &[Newer]| {
        // SAFETY: as many bytes as the structs say.
        unsafe {
            let from = objects.as_ptr().cast();
            let (user, statuses) = (ptr::null_mut(), ptr::null_mut());
            mnkv_backend_offload(backend, from, objects.len(), None, None, user, statuses)
        }
    };
    assert_eq!(offload(&objects), OK, "{}", error(backend));
    assert_eq!(exists(backend, b"second"), Ok(true));
    objects[1].known.struct_size = size_of::<mnkv_object>();
    assert_eq!(offload(&objects), INVALID_PARAMS);
    assert!(error(backend).contains("mnkv_object[1].struct_size"), "{}", error(backend));
    for size in [0, 8, size_of::<mnkv_object>() - 1, size_of::<mnkv_object>() + 1] {
        objects[0].known.struct_size = size;
        assert_eq!(offload(&objects), INVALID_PARAMS, "{size}");
    }
    close(backend);
}

#[test]
fn an_answer_fills_as_much_of_the_callers_struct_as_it_has() {
    let backend = open();
    let mut memory = [0xEE_u8; size_of::<mnkv_capabilities>() + 16];
    for size in [8, 16, 20, size_of::<mnkv_capabilities>(), size_of::<mnkv_capabilities>() + 8] {
        memory.fill(0xEE);
        memory[..8].copy_from_slice(&size.to_ne_bytes());
        // SAFETY: as many bytes as the struct says; the library copes with any alignment.
        let status = unsafe { mnkv_backend_capabilities(backend, memory.as_mut_ptr().cast()) };
        assert_eq!(status, OK);
        assert_eq!(memory[..8], size.to_ne_bytes());
        let known = size.min(size_of::<mnkv_capabilities>());
        assert!(memory[known..size].iter().all(|byte| *byte == 0), "unknown fields, {size}");
        assert!(memory[size..].iter().all(|byte| *byte == 0xEE), "behind the struct, {size}");
    }
    close(backend);
}

#[test]
fn config_init_selects_every_default() {
    let mut settings = config(c"mem:never opened");
    settings.nsid = 9;
    settings.destination_slack = 9;
    // SAFETY: good pointers, then NULL.
    unsafe {
        assert_eq!(mnkv_config_init(&mut settings), OK);
        assert_eq!(mnkv_config_init(ptr::null_mut()), INVALID_PARAMS);
    }
    assert_eq!(settings.struct_size, size_of::<mnkv_config>());
    assert!(settings.device_path.is_null());
    assert_eq!((settings.nsid, settings.transport, settings.destination_slack), (0, 0, 0));
    let mut backend = ptr::null_mut();
    // SAFETY: both pointers are good.
    assert_eq!(unsafe { mnkv_backend_open(&settings, &mut backend) }, INVALID_PARAMS);
    assert!(thread_error().contains("mnkv_config.device_path is NULL"), "{}", thread_error());
    settings.struct_size = 0;
    // SAFETY: a good pointer.
    assert_eq!(unsafe { mnkv_config_init(&mut settings) }, INVALID_PARAMS);
}

#[test]
fn an_error_text_is_cut_to_the_buffer_and_always_ends() {
    let backend = open();
    assert_eq!(error(backend), "", "nothing has failed");
    assert_eq!(get(backend, "ключ".as_bytes(), 3), Err(NOT_FOUND));
    let whole = error(backend);
    for size in 0..=whole.len() + 2 {
        let mut buffer = vec![0x7Fu8; size + 1];
        // SAFETY: `size` bytes are writable.
        let len = unsafe { mnkv_backend_last_error(backend, buffer.as_mut_ptr().cast(), size) };
        assert_eq!(len, whole.len());
        assert_eq!(buffer[size], 0x7F, "behind the buffer");
        if size > 0 {
            let text = CStr::from_bytes_until_nul(&buffer[..size]).expect("a NUL");
            let text = text.to_str().expect("no character is cut");
            assert!(whole.starts_with(text) && text.len() + 4 > whole.len().min(size - 1));
        }
    }
    close(backend);
}

#[test]
fn a_failed_open_leaves_its_reason_with_the_thread() {
    let mut settings = config(c"/nonexistent/namespace");
    settings.transport = mnkv_transport::MNKV_TRANSPORT_IOCTL as u32;
    let mut backend = ptr::without_provenance_mut(1);
    // SAFETY: both pointers are good.
    let status = unsafe { mnkv_backend_open(&settings, &mut backend) };
    assert_eq!(status, mnkv_status::MNKV_FILE_OPEN_FAIL as mnkv_status_t);
    assert!(backend.is_null());
    assert!(thread_error().contains("/nonexistent/namespace"), "{}", thread_error());
    thread::spawn(|| assert_eq!(thread_error(), "")).join().expect("another thread has none");
    settings.device_path = c"\xff".as_ptr();
    // SAFETY: both pointers are good.
    assert_eq!(unsafe { mnkv_backend_open(&settings, &mut backend) }, INVALID_PARAMS);
    assert!(thread_error().contains("is not UTF-8"), "{}", thread_error());
}
