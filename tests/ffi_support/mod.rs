//! What the tests of the C ABI share: handles on memory namespaces, and texts.

#![allow(dead_code, unreachable_pub)] // each test binary uses its part

use std::ffi::{CStr, CString, c_char, c_void};
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};

use mooncake_nvme_kv::ffi::*;

pub const OK: mnkv_status_t = mnkv_status::MNKV_OK as mnkv_status_t;
pub const INTERNAL_ERROR: mnkv_status_t = mnkv_status::MNKV_INTERNAL_ERROR as mnkv_status_t;
pub const INVALID_KEY: mnkv_status_t = mnkv_status::MNKV_INVALID_KEY as mnkv_status_t;
pub const INVALID_PARAMS: mnkv_status_t = mnkv_status::MNKV_INVALID_PARAMS as mnkv_status_t;
pub const INVALID_READ: mnkv_status_t = mnkv_status::MNKV_INVALID_READ as mnkv_status_t;
pub const NOT_FOUND: mnkv_status_t = mnkv_status::MNKV_OBJECT_NOT_FOUND as mnkv_status_t;
pub const EXISTS: mnkv_status_t = mnkv_status::MNKV_OBJECT_ALREADY_EXISTS as mnkv_status_t;
pub const NOT_SUPPORTED: mnkv_status_t = mnkv_status::MNKV_NOT_SUPPORTED as mnkv_status_t;
pub const LOCK_FAIL: mnkv_status_t = mnkv_status::MNKV_FILE_LOCK_FAIL as mnkv_status_t;
pub const FULL: mnkv_status_t = mnkv_status::MNKV_KEYS_ULTRA_LIMIT as mnkv_status_t;

/// A name of a memory namespace that no other test uses.
pub fn fresh_path() -> CString {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let next = NEXT.fetch_add(1, Ordering::Relaxed);
    CString::new(format!("mem:ffi-{}-{next}", std::process::id())).expect("no NUL")
}

/// The settings of the emulated namespace at `path`, everything else the default.
pub fn config(path: &CStr) -> mnkv_config {
    // SAFETY: zero bytes are a value of every field, as the header says.
    let mut config: mnkv_config = unsafe { std::mem::zeroed() };
    config.struct_size = size_of::<mnkv_config>();
    config.device_path = path.as_ptr();
    config.transport = mnkv_transport::MNKV_TRANSPORT_EMULATED as u32;
    config
}

/// A backend on a namespace of its own.
pub fn open() -> *mut mnkv_backend {
    open_with(&config(&fresh_path()))
}

/// A backend with these settings.
pub fn open_with(config: &mnkv_config) -> *mut mnkv_backend {
    let mut backend = ptr::null_mut();
    // SAFETY: both pointers are good.
    let status = unsafe { mnkv_backend_open(config, &mut backend) };
    assert_eq!(status, OK, "{}", thread_error());
    assert!(!backend.is_null());
    backend
}

/// The text of the latest failure of `backend`.
pub fn error(backend: *const mnkv_backend) -> String {
    // SAFETY: a buffer as long as it says.
    text(|buffer, size| unsafe { mnkv_backend_last_error(backend, buffer, size) })
}

/// The text of the latest failure of this thread.
pub fn thread_error() -> String {
    // SAFETY: a buffer as long as it says.
    text(|buffer, size| unsafe { mnkv_last_open_error(buffer, size) })
}

/// A text read as the header says: ask for the size, then for the bytes.
pub fn text(read: impl Fn(*mut c_char, usize) -> usize) -> String {
    let size = read(ptr::null_mut(), 0);
    let mut bytes = vec![0x7Fu8; size + 1];
    assert_eq!(read(bytes.as_mut_ptr().cast(), bytes.len()), size);
    let text = CStr::from_bytes_until_nul(&bytes).expect("a NUL");
    assert_eq!(text.count_bytes(), size);
    text.to_str().expect("UTF-8").to_owned()
}

/// `bytes` as a slice of the header.
pub fn slice(bytes: &[u8]) -> mnkv_slice {
    mnkv_slice { data: bytes.as_ptr().cast(), size: bytes.len() }
}

/// `bytes` as a destination slice of the header.
pub fn mut_slice(bytes: &mut [u8]) -> mnkv_mut_slice {
    mnkv_mut_slice { data: bytes.as_mut_ptr().cast(), size: bytes.len() }
}

/// An object of the header.
pub fn object(key: &[u8], slices: &[mnkv_slice]) -> mnkv_object {
    mnkv_object {
        struct_size: size_of::<mnkv_object>(),
        key: key.as_ptr().cast(),
        key_size: key.len(),
        slices: slices.as_ptr(),
        slice_count: slices.len(),
    }
}

/// A destination of the header.
pub fn destination(key: &[u8], slices: &[mnkv_mut_slice]) -> mnkv_destination {
    mnkv_destination {
        struct_size: size_of::<mnkv_destination>(),
        key: key.as_ptr().cast(),
        key_size: key.len(),
        slices: slices.as_ptr(),
        slice_count: slices.len(),
    }
}

/// Stores one object.
pub fn put(backend: *mut mnkv_backend, key: &[u8], payload: &[u8]) -> mnkv_status_t {
    let slices = [slice(payload)];
    let objects = [object(key, &slices)];
    // SAFETY: everything lives during the call.
    unsafe {
        let none = ptr::null_mut();
        mnkv_backend_offload(backend, objects.as_ptr(), 1, None, None, none, ptr::null_mut())
    }
}

/// Loads one object of `size` bytes.
pub fn get(backend: *mut mnkv_backend, key: &[u8], size: usize) -> Result<Vec<u8>, mnkv_status_t> {
    let mut bytes = vec![0; size];
    let slices = [mut_slice(&mut bytes)];
    let destinations = [destination(key, &slices)];
    // SAFETY: everything lives during the call.
    let status = unsafe { mnkv_backend_load(backend, destinations.as_ptr(), 1, ptr::null_mut()) };
    if status == OK { Ok(bytes) } else { Err(status) }
}

/// Whether an object is stored.
pub fn exists(backend: *mut mnkv_backend, key: &[u8]) -> Result<bool, mnkv_status_t> {
    let mut out = false;
    // SAFETY: everything lives during the call.
    let status = unsafe { mnkv_backend_exists(backend, key.as_ptr().cast(), key.len(), &mut out) };
    if status == OK { Ok(out) } else { Err(status) }
}

/// Closes a backend, which must work.
pub fn close(backend: *mut mnkv_backend) {
    // SAFETY: any handle may be closed.
    assert_eq!(unsafe { mnkv_backend_close(backend) }, OK, "{}", error(backend));
}

/// A callback of Rust as one of the header: `user` is a pointer to the closure.
pub fn user<F: FnMut(&[usize]) -> mnkv_status_t>(closure: &mut F) -> *mut c_void {
    ptr::from_mut(closure).cast()
}

/// Calls the closure that `user` made a pointer of.
pub unsafe extern "C" fn on_stored<F: FnMut(&[usize]) -> mnkv_status_t>(
    user: *mut c_void,
    indexes: *const usize,
    count: usize,
) -> mnkv_status_t {
    // SAFETY: the library passes on the pointer, and indexes that live during the call.
    unsafe { (*user.cast::<F>())(std::slice::from_raw_parts(indexes, count)) }
}

/// An offload of `objects` that calls `told`; the statuses start as a number that is none.
pub fn offload<F: FnMut(&[usize]) -> mnkv_status_t>(
    backend: *mut mnkv_backend,
    objects: &[mnkv_object],
    mut told: F,
) -> (mnkv_status_t, Vec<mnkv_status_t>) {
    let mut statuses = vec![77; objects.len()];
    // SAFETY: everything lives during the call.
    let status = unsafe {
        mnkv_backend_offload(
            backend,
            objects.as_ptr(),
            objects.len(),
            Some(on_stored::<F>),
            None,
            user(&mut told),
            statuses.as_mut_ptr(),
        )
    };
    (status, statuses)
}
