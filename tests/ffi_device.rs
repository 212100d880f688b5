//! The C ABI's device: single commands.

mod ffi_support;

use std::ffi::{CStr, c_void};
use std::ptr;

use ffi_support::*;
use mooncake_nvme_kv::ffi::*;

struct Device(*mut mnkv_device);

impl Device {
    fn open(change: impl FnOnce(&mut mnkv_config)) -> Device {
        let path = fresh_path();
        let mut settings = config(&path);
        change(&mut settings);
        let mut device = ptr::null_mut();
        // SAFETY: both pointers are good.
        assert_eq!(unsafe { mnkv_device_open(&settings, &mut device) }, OK, "{}", thread_error());
        Device(device)
    }

    fn store(&self, key: &[u8; 16], value: &[u8]) -> mnkv_status_t {
        let (key, data) = (key.as_ptr().cast(), value.as_ptr().cast());
        // SAFETY: everything lives during the call.
        unsafe { mnkv_device_store(self.0, key, data, value.len()) }
    }

    fn retrieve(&self, key: &[u8; 16], buffer: &mut [u8]) -> (mnkv_status_t, usize) {
        let (key, to) = (key.as_ptr().cast(), buffer.as_mut_ptr().cast());
        let mut size = usize::MAX;
        // SAFETY: everything lives during the call.
        let status = unsafe { mnkv_device_retrieve(self.0, key, to, buffer.len(), &mut size) };
        (status, size)
    }

    fn delete(&self, key: &[u8; 16]) -> mnkv_status_t {
        // SAFETY: everything lives during the call.
        unsafe { mnkv_device_delete(self.0, key.as_ptr().cast()) }
    }

    fn exists(&self, key: &[u8; 16]) -> bool {
        let mut out = false;
        // SAFETY: everything lives during the call.
        assert_eq!(unsafe { mnkv_device_exist(self.0, key.as_ptr().cast(), &mut out) }, OK);
        out
    }

    fn list(&self, start: &[u8], stop_after: usize) -> (mnkv_status_t, Vec<Vec<u8>>) {
        let mut seen = (stop_after, Vec::new());
        let user = ptr::from_mut(&mut seen).cast();
        let from = start.as_ptr().cast();
        // SAFETY: everything lives during the call.
        let status = unsafe { mnkv_device_list(self.0, from, start.len(), Some(on_key), user) };
        (status, seen.1)
    }

    fn error(&self) -> String {
        // SAFETY: a buffer as long as it says.
        text(|buffer, size| unsafe { mnkv_device_last_error(self.0, buffer, size) })
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        // SAFETY: any handle may be closed.
        assert_eq!(unsafe { mnkv_device_close(self.0) }, OK);
    }
}

unsafe extern "C" fn on_key(user: *mut c_void, key: *const c_void, size: usize) -> mnkv_status_t {
    // SAFETY: the library passes on the pointer of `list`, and a key that lives during the call.
    let ((left, keys), key) = unsafe {
        let seen = &mut *user.cast::<(usize, Vec<Vec<u8>>)>();
        ((&mut seen.0, &mut seen.1), std::slice::from_raw_parts(key.cast::<u8>(), size))
    };
    keys.push(key.to_vec());
    *left -= 1;
    if *left == 0 { 4711 } else { OK }
}

fn key(number: u8) -> [u8; 16] {
    // Byte 11 is Mooncake's mark on the device.
    [number, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 9]
}

#[test]
fn a_value_is_stored_once_retrieved_and_deleted() {
    let device = Device::open(|_| {});
    assert_eq!(device.store(&key(1), b"twelve bytes"), OK);
    assert_eq!(device.store(&key(1), b"another value"), EXISTS);
    assert!(
        device.error().starts_with("OBJECT_ALREADY_EXISTS (-705): Store"),
        "{}",
        device.error()
    );
    assert!(device.exists(&key(1)) && !device.exists(&key(2)));
    let mut buffer = [0xEE; 4096];
    let (status, size) = device.retrieve(&key(1), &mut buffer);
    assert_eq!(status, OK);
    assert!([12, 4096].contains(&size), "exact or padded: {size}");
    assert_eq!(&buffer[..12], b"twelve bytes");
    assert_eq!(device.delete(&key(1)), OK);
    assert_eq!(device.delete(&key(1)), OK, "an absent key is gone too");
    assert!(!device.exists(&key(1)));
    assert_eq!(device.retrieve(&key(1), &mut buffer), (NOT_FOUND, usize::MAX));
}

#[test]
fn no_byte_behind_a_short_buffer_is_written() {
    let device = Device::open(|settings| {
        settings.wire_profile = mnkv_wire_profile::MNKV_WIRE_SPEC as u32;
    });
    let value: Vec<u8> = (0..100).collect();
    assert_eq!(device.store(&key(1), &value), OK);
    let mut memory = [0xEE; 64];
    let (status, size) = device.retrieve(&key(1), &mut memory[..33]);
    assert_eq!((status, size), (OK, 100));
    assert_eq!(memory[..33], value[..33]);
    assert_eq!(memory[33..], [0xEE; 31]);
}

#[test]
fn keys_are_listed_from_a_start_and_a_callback_can_stop_the_list() {
    let device = Device::open(|_| {});
    for number in [3, 1, 2] {
        assert_eq!(device.store(&key(number), b"v"), OK);
    }
    let all: Vec<_> = [1, 2, 3].into_iter().map(|number| key(number).to_vec()).collect();
    assert_eq!(device.list(b"", usize::MAX), (OK, all.clone()));
    assert_eq!(device.list(&key(2), usize::MAX), (OK, all[1..].to_vec()));
    assert_eq!(device.list(b"", 2), (4711, all[..2].to_vec()));
    assert!(device.error().contains("the key callback returned 4711"), "{}", device.error());
    assert_eq!(device.list(&[0; 17], usize::MAX).0, INVALID_PARAMS);
}

#[test]
fn identify_tells_the_limits_of_the_namespace() {
    let device = Device::open(|_| {});
    // SAFETY: zero bytes are a value of every field.
    let mut answer: mnkv_identify = unsafe { std::mem::zeroed() };
    answer.struct_size = size_of::<mnkv_identify>();
    // SAFETY: both pointers are good.
    assert_eq!(unsafe { mnkv_device_identify(device.0, &mut answer) }, OK);
    assert_eq!(answer.max_key_size, 16);
    assert!(answer.max_value_size > 0 && answer.size_bytes > answer.used_bytes);
}

#[test]
fn a_value_over_the_limit_is_refused_before_any_command() {
    let device = Device::open(|settings| settings.runtime_transfer_limit = 8192);
    assert_eq!(device.store(&key(1), &[7; 8192]), OK);
    assert_eq!(device.store(&key(2), &[7; 8193]), INVALID_PARAMS);
    assert!(device.error().contains("8193 bytes; at most 8192 fit"), "{}", device.error());
    assert!(!device.exists(&key(2)));
}

#[test]
fn null_arguments_are_refused() {
    let device = Device::open(|_| {});
    let (none, good): (*const c_void, _) = (ptr::null(), key(1));
    let good: *const c_void = good.as_ptr().cast();
    let out = ptr::null_mut();
    // SAFETY: NULL is not followed; the rest lives.
    unsafe {
        for (status, what) in [
            (mnkv_device_store(device.0, none, good, 1), "store: key"),
            (mnkv_device_store(device.0, good, none, 1), "store: value"),
            (mnkv_device_retrieve(device.0, none, out, 0, ptr::null_mut()), "retrieve: key"),
            (mnkv_device_retrieve(device.0, good, out, 1, ptr::null_mut()), "retrieve: buffer"),
            (mnkv_device_delete(device.0, none), "delete: key"),
            (mnkv_device_exist(device.0, none, &mut false), "exist: key"),
            (mnkv_device_exist(device.0, good, ptr::null_mut()), "exist: out"),
            (mnkv_device_list(device.0, none, 1, Some(on_key), out), "list: start"),
            (mnkv_device_list(device.0, none, 0, None, out), "list: callback"),
            (mnkv_device_identify(device.0, ptr::null_mut()), "identify: out"),
            (mnkv_device_open(ptr::null(), &mut ptr::null_mut()), "open: config"),
            (mnkv_device_open(&config(&fresh_path()), ptr::null_mut()), "open: out"),
        ] {
            assert_eq!(status, INVALID_PARAMS, "{what}");
        }
        assert_eq!(mnkv_device_close(ptr::null_mut()), OK);
        assert_eq!(mnkv_device_delete(ptr::null_mut(), good), INTERNAL_ERROR);
        assert_eq!(mnkv_device_last_error(ptr::null(), ptr::null_mut(), 10), thread_error().len());
    }
}

#[test]
fn status_names_are_mooncakes() {
    for (status, name) in [(OK, "OK"), (-704, "OBJECT_NOT_FOUND"), (-7, "UNKNOWN"), (7, "UNKNOWN")]
    {
        // SAFETY: the string is static.
        let text = unsafe { CStr::from_ptr(mnkv_status_name(status)) };
        assert_eq!(text.to_str(), Ok(name));
    }
}
