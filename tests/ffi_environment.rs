//! Opening from the environment, of which there is one per process: one test in a process of its
//! own.

mod ffi_support;

use std::ptr;

use ffi_support::*;
use mooncake_nvme_kv::ffi::*;

fn open_from_environment() -> (mnkv_status_t, *mut mnkv_backend) {
    let mut backend = ptr::without_provenance_mut(1);
    // SAFETY: the pointer is good.
    let status = unsafe { mnkv_backend_open_from_environment(&mut backend) };
    assert_eq!(backend.is_null(), status != OK);
    (status, backend)
}

fn set(name: &str, value: &str) {
    // SAFETY: this process has one test, and no other thread of it reads the environment.
    unsafe { std::env::set_var(format!("MOONCAKE_NVME_KV_{name}"), value) };
}

fn queue_depth(backend: *mut mnkv_backend) -> u32 {
    // SAFETY: zero bytes are a value of every field.
    let mut answer: mnkv_capabilities = unsafe { std::mem::zeroed() };
    answer.struct_size = size_of::<mnkv_capabilities>();
    // SAFETY: both pointers are good.
    assert_eq!(unsafe { mnkv_backend_capabilities(backend, &mut answer) }, OK);
    answer.queue_depth
}

#[test]
fn the_environment_decides_only_where_it_is_asked() {
    set("DEVICE_PATH", "");
    assert_eq!(open_from_environment().0, INVALID_PARAMS);
    assert!(thread_error().contains("MOONCAKE_NVME_KV_DEVICE_PATH is not set"));

    let path = fresh_path();
    set("DEVICE_PATH", path.to_str().expect("ASCII"));
    set("TRANSPORT", "emulated");
    set("QUEUE_DEPTH", "33");
    let (status, from_environment) = open_from_environment();
    assert_eq!(status, OK, "{}", thread_error());
    assert_eq!(put(from_environment, b"k", b"v"), OK);
    assert_eq!(queue_depth(from_environment), 33);
    close(from_environment);
    let from_config = open_with(&config(&path));
    assert_eq!(get(from_config, b"k", 1), Ok(b"v".to_vec()), "the same namespace");
    assert_eq!(queue_depth(from_config), 256);
    close(from_config);

    // What a config sets comes before the environment, and nothing else does.
    let elsewhere = fresh_path();
    let mut settings = config(&elsewhere);
    settings.queue_depth = 0;
    set("TRANSPORT", "ioctl");
    let mut overridden = ptr::null_mut();
    // SAFETY: the pointers are good.
    let status =
        unsafe { mnkv_backend_open_from_environment_and_config(&settings, &mut overridden) };
    assert_eq!(status, OK, "{}", thread_error());
    assert_eq!(exists(overridden, b"k"), Ok(false), "another namespace");
    assert_eq!(queue_depth(overridden), 33);
    close(overridden);
    settings.device_path = ptr::null();
    set("TRANSPORT", "emulated");
    // SAFETY: the pointers are good.
    let status =
        unsafe { mnkv_backend_open_from_environment_and_config(&settings, &mut overridden) };
    assert_eq!(status, OK, "{}", thread_error());
    assert_eq!(queue_depth(overridden), 33);
    close(overridden);

    set("TRANSPORT", "carrier pigeon");
    assert_eq!(open_from_environment().0, INVALID_PARAMS);
    assert!(thread_error().contains("carrier pigeon"), "{}", thread_error());
}
