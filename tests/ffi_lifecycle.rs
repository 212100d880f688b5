//! Scan, usage, removal, eviction, sweep and ownership through the C ABI.

mod ffi_support;

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{CStr, c_void};
use std::ptr;

use ffi_support::*;
use mooncake_nvme_kv::ffi::*;

fn key(number: usize) -> Vec<u8> {
    format!("object\0{number:04}").into_bytes()
}

/// # Safety
/// As `std::slice::from_raw_parts`, for the array and for each slice.
unsafe fn keys(from: *const mnkv_slice, count: usize) -> Vec<Vec<u8>> {
    // SAFETY: the caller's promise.
    unsafe {
        let slices = std::slice::from_raw_parts(from, count).iter();
        let bytes =
            slices.map(|slice| std::slice::from_raw_parts(slice.data.cast::<u8>(), slice.size));
        bytes.map(<[u8]>::to_vec).collect()
    }
}

/// What a callback of this file saw, and what it answers.
#[derive(Default)]
struct Seen {
    pages: Vec<usize>,
    objects: BTreeMap<Vec<u8>, u64>,
    evicted: BTreeSet<Vec<u8>>,
    answer: mnkv_status_t,
    /// Asked whether each evicted object is on the device.
    device: Option<*mut mnkv_device>,
    on_device: Vec<u64>,
}

impl Seen {
    fn user(&mut self) -> *mut c_void {
        ptr::from_mut(self).cast()
    }
}

unsafe extern "C" fn on_page(
    user: *mut c_void,
    from: *const mnkv_slice,
    sizes: *const u64,
    count: usize,
) -> mnkv_status_t {
    // SAFETY: the tests pass a `Seen`, and the library arrays of `count`.
    let (seen, keys, sizes) = unsafe {
        let sizes = std::slice::from_raw_parts(sizes, count);
        (&mut *user.cast::<Seen>(), keys(from, count), sizes)
    };
    seen.pages.push(count);
    for (key, size) in keys.into_iter().zip(sizes) {
        assert_eq!(seen.objects.insert(key, *size), None, "reported twice");
    }
    seen.answer
}

unsafe extern "C" fn on_evicted(
    user: *mut c_void,
    from: *const mnkv_slice,
    count: usize,
) -> mnkv_status_t {
    // SAFETY: the tests pass a `Seen`, and the library an array of `count`.
    let (seen, keys) = unsafe { (&mut *user.cast::<Seen>(), keys(from, count)) };
    if let Some(device) = seen.device {
        seen.on_device.push(values_of(device));
    }
    for key in keys {
        assert!(seen.evicted.insert(key), "evicted twice");
    }
    seen.answer
}

unsafe extern "C" fn count_key(user: *mut c_void, _: *const c_void, _: usize) -> mnkv_status_t {
    // SAFETY: the test passes a number.
    unsafe { *user.cast::<u64>() += 1 };
    OK
}

fn open_device(path: &CStr) -> *mut mnkv_device {
    let mut device = ptr::null_mut();
    // SAFETY: both pointers are good.
    assert_eq!(unsafe { mnkv_device_open(&config(path), &mut device) }, OK);
    device
}

/// How many values the namespace holds.
fn values_of(device: *mut mnkv_device) -> u64 {
    let mut count = 0u64;
    let user = ptr::from_mut(&mut count).cast();
    // SAFETY: everything lives during the call.
    assert_eq!(unsafe { mnkv_device_list(device, ptr::null(), 0, Some(count_key), user) }, OK);
    count
}

fn scan(backend: *mut mnkv_backend, seen: &mut Seen) -> (mnkv_status_t, mnkv_scan_report) {
    // SAFETY: zero bytes are a value of every field.
    let mut report: mnkv_scan_report = unsafe { std::mem::zeroed() };
    report.struct_size = size_of::<mnkv_scan_report>();
    // SAFETY: everything lives during the call.
    let status = unsafe { mnkv_backend_scan(backend, Some(on_page), seen.user(), &mut report) };
    (status, report)
}

fn reset_scan(backend: *mut mnkv_backend) {
    // SAFETY: any handle will do.
    assert_eq!(unsafe { mnkv_backend_reset_scan(backend) }, OK);
}

fn usage(backend: *mut mnkv_backend) -> mnkv_usage {
    // SAFETY: zero bytes are a value of every field.
    let mut usage: mnkv_usage = unsafe { std::mem::zeroed() };
    usage.struct_size = size_of::<mnkv_usage>();
    // SAFETY: both pointers are good.
    assert_eq!(unsafe { mnkv_backend_usage(backend, &mut usage) }, OK);
    usage
}

fn remove(backend: *mut mnkv_backend, key: &[u8]) -> mnkv_status_t {
    // SAFETY: the key lives during the call.
    unsafe { mnkv_backend_remove(backend, key.as_ptr().cast(), key.len()) }
}

fn sweep(backend: *mut mnkv_backend, dry_run: bool) -> (u64, u64) {
    let struct_size = size_of::<mnkv_sweep_report>();
    let mut report = mnkv_sweep_report { struct_size, orphans: 77, deleted: 77 };
    // SAFETY: both pointers are good.
    let status = unsafe { mnkv_backend_sweep(backend, dry_run, &mut report) };
    assert_eq!(status, OK, "{}", error(backend));
    (report.orphans, report.deleted)
}

fn evict_above(backend: *mut mnkv_backend, high: f64, low: f64, seen: &mut Seen) -> mnkv_status_t {
    // SAFETY: everything lives during the call.
    unsafe { mnkv_backend_evict_above_watermark(backend, high, low, Some(on_evicted), seen.user()) }
}

/// Offloads one object whose eviction callback is that of `seen`.
fn put_evicting(
    backend: *mut mnkv_backend,
    key: &[u8],
    payload: &[u8],
    seen: &mut Seen,
) -> mnkv_status_t {
    let slices = [slice(payload)];
    let objects = [object(key, &slices)];
    // SAFETY: everything lives during the call.
    unsafe {
        let (from, user) = (objects.as_ptr(), seen.user());
        mnkv_backend_offload(backend, from, 1, None, Some(on_evicted), user, ptr::null_mut())
    }
}

#[test]
fn a_scan_after_reopening_reports_every_key_with_its_size_in_pages() {
    let path = fresh_path();
    let mut settings = config(&path);
    settings.runtime_transfer_limit = 8192;
    settings.scan_page_size = 4;
    let backend = open_with(&settings);
    assert_eq!(usage(backend).complete, 1, "an empty device is known");
    let sizes = [0, 1, 4000, 8192, 30_000, 100_000];
    let mut expected = BTreeMap::new();
    for (number, size) in sizes.into_iter().cycle().take(18).enumerate() {
        assert_eq!(put(backend, &key(number), &vec![number as u8; size]), OK);
        expected.insert(key(number), size as u64);
    }
    let before = usage(backend);
    close(backend);

    let backend = open_with(&settings);
    let unknown = usage(backend);
    assert_eq!((unknown.complete, unknown.objects, unknown.bytes), (0, 0, 0));
    let mut seen = Seen::default();
    let (status, report) = scan(backend, &mut seen);
    assert_eq!(status, OK, "{}", error(backend));
    assert_eq!(seen.objects, expected);
    assert_eq!(seen.pages, [4, 4, 4, 4, 2]);
    let counts = (report.listed, report.objects, report.roots, report.purged, report.damaged);
    assert_eq!(counts, (1, 18, 18, 0, 0));
    assert_eq!(report.others, before.values - 18, "chunks");
    let after = usage(backend);
    let of = |usage: mnkv_usage| (usage.complete, usage.objects, usage.values, usage.bytes);
    assert_eq!(of(after), of(before));

    let mut seen = Seen::default();
    assert_eq!(scan(backend, &mut seen).0, OK);
    assert_eq!(seen.pages, [0; 0], "a completed scan has nothing more to report");
    reset_scan(backend);
    assert_eq!(scan(backend, &mut seen).0, OK);
    assert_eq!(seen.objects, expected);
    close(backend);
}

#[test]
fn a_refused_page_ends_the_scan_with_its_number_and_leaves_it_repeatable() {
    let path = fresh_path();
    let mut settings = config(&path);
    settings.scan_page_size = 2;
    let backend = open_with(&settings);
    (0..6).for_each(|number| assert_eq!(put(backend, &key(number), b"payload"), OK));
    close(backend);
    let backend = open_with(&settings);
    let mut seen = Seen { answer: -4321, ..Seen::default() };
    assert_eq!(scan(backend, &mut seen).0, -4321);
    assert!(error(backend).contains("page callback returned -4321"), "{}", error(backend));
    assert_eq!(seen.pages, [2]);
    assert_eq!((usage(backend).complete, usage(backend).objects), (0, 0));
    let mut seen = Seen::default();
    assert_eq!(scan(backend, &mut seen).0, OK);
    assert_eq!(seen.objects.len(), 6);
    assert_eq!(usage(backend).objects, 6);
    close(backend);
}

/// Resets the scan that it is a page of, and tries another one.
unsafe extern "C" fn reset_inside(
    user: *mut c_void,
    _: *const mnkv_slice,
    _: *const u64,
    _: usize,
) -> mnkv_status_t {
    let backend = user.cast::<mnkv_backend>();
    reset_scan(backend);
    // SAFETY: a scan without callback and report.
    unsafe { mnkv_backend_scan(backend, None, ptr::null_mut(), ptr::null_mut()) }
}

#[test]
fn the_page_callback_may_reset_its_scan_and_cannot_nest_another() {
    let path = fresh_path();
    let backend = open_with(&config(&path));
    assert_eq!(put(backend, b"k", b"payload"), OK);
    // SAFETY: the callback gets the handle.
    let status =
        unsafe { mnkv_backend_scan(backend, Some(reset_inside), backend.cast(), ptr::null_mut()) };
    assert_eq!(status, INTERNAL_ERROR);
    assert!(error(backend).contains("page callback returned -1"), "{}", error(backend));
    let mut seen = Seen::default();
    assert_eq!(scan(backend, &mut seen).0, OK);
    assert_eq!(seen.objects.len(), 1);
    close(backend);
}

#[test]
fn with_lru_a_full_backend_evicts_the_oldest_unread_and_tells_before_it_deletes() {
    let path = fresh_path();
    let mut settings = config(&path);
    settings.total_keys_limit = 8;
    let backend = open_with(&settings);
    let mut seen = Seen { device: Some(open_device(&path)), ..Seen::default() };
    for number in 0..8 {
        assert_eq!(put_evicting(backend, &key(number), b"payload", &mut seen), OK);
    }
    assert!(seen.evicted.is_empty());
    assert_eq!(get(backend, &key(0), 7), Ok(b"payload".to_vec()));
    for number in 8..24 {
        assert_eq!(put_evicting(backend, &key(number), b"payload", &mut seen), OK);
        assert_eq!(exists(backend, &key(number)), Ok(true));
        assert!(usage(backend).objects <= 8);
    }
    assert!(seen.evicted.contains(&key(1)) && seen.evicted.len() == 16);
    assert!(!seen.evicted.contains(&key(23)));
    assert_eq!(seen.on_device.first(), Some(&8), "nothing is deleted before the callback");
    for number in 0..24 {
        let evicted = seen.evicted.contains(&key(number));
        assert_eq!(exists(backend, &key(number)), Ok(!evicted), "{number}");
    }
    // SAFETY: any handle may be closed.
    assert_eq!(unsafe { mnkv_device_close(seen.device.unwrap_or(ptr::null_mut())) }, OK);
    close(backend);
}

#[test]
fn an_eviction_callback_that_refuses_keeps_the_objects_and_its_number_is_returned() {
    let path = fresh_path();
    let mut settings = config(&path);
    settings.total_keys_limit = 2;
    let backend = open_with(&settings);
    (0..2).for_each(|number| assert_eq!(put(backend, &key(number), b"payload"), OK));
    let mut seen = Seen { answer: -4321, ..Seen::default() };
    assert_eq!(put_evicting(backend, b"new", b"payload", &mut seen), -4321);
    assert_eq!(seen.evicted.len(), 1);
    assert_eq!(exists(backend, b"new"), Ok(false));
    let mut seen = Seen { answer: -4321, ..Seen::default() };
    assert_eq!(evict_above(backend, 0.0, 0.0, &mut seen), -4321);
    assert!(!seen.evicted.is_empty());
    (0..2).for_each(|number| assert_eq!(get(backend, &key(number), 7), Ok(b"payload".to_vec())));
    // One that needs no new room is stored all the same.
    let mut seen = Seen { answer: -4321, ..Seen::default() };
    assert_eq!(put_evicting(backend, &key(0), b"PAYLOAD", &mut seen), OK);
    close(backend);
}

#[test]
fn without_eviction_a_limit_is_an_error_and_offloading_is_over() {
    let path = fresh_path();
    for (limit_keys, limit_bytes) in [(2, 0), (0, 2 * 4096)] {
        let mut settings = config(&path);
        settings.eviction_policy = mnkv_eviction_policy::MNKV_EVICTION_NONE as u32;
        settings.total_keys_limit = limit_keys;
        settings.total_size_limit = limit_bytes;
        let backend = open_with(&settings);
        let mut enabled = false;
        for number in 0..2 {
            // SAFETY: both pointers are good.
            assert_eq!(unsafe { mnkv_backend_is_enabled(backend, &mut enabled) }, OK);
            assert!(enabled);
            assert_eq!(put(backend, &key(number), &[7; 3900]), OK, "{}", error(backend));
        }
        assert_eq!(put(backend, b"new", &[7; 3900]), FULL);
        assert!(error(backend).contains("total_keys_limit"), "{}", error(backend));
        // SAFETY: both pointers are good.
        assert_eq!(unsafe { mnkv_backend_is_enabled(backend, &mut enabled) }, OK);
        assert!(!enabled);
        let mut removed = 77;
        // SAFETY: both pointers are good.
        assert_eq!(unsafe { mnkv_backend_remove_all(backend, &mut removed) }, OK);
        assert_eq!((removed, usage(backend).objects), (2, 0));
        assert_eq!(put(backend, b"new", &[7; 3900]), OK);
        assert_eq!(remove(backend, b"new"), OK);
        close(backend);
    }
}

#[test]
fn a_watermark_evicts_the_oldest_down_to_the_low_mark() {
    let path = fresh_path();
    let mut settings = config(&path);
    settings.total_size_limit = 10 * 4096;
    let backend = open_with(&settings);
    (0..9).for_each(|number| assert_eq!(put(backend, &key(number), &[7; 3900]), OK));
    let mut seen = Seen::default();
    assert_eq!(evict_above(backend, 0.95, 0.5, &mut seen), OK);
    assert!(seen.evicted.is_empty());
    assert_eq!(evict_above(backend, 0.85, 0.5, &mut seen), OK, "{}", error(backend));
    assert_eq!(seen.evicted, (0..4).map(key).collect());
    assert_eq!(usage(backend).bytes, 5 * 4096);
    for (high, low) in [(0.5, 0.6), (1.1, 0.5), (0.5, -0.1), (f64::NAN, 0.5)] {
        assert_eq!(evict_above(backend, high, low, &mut seen), INVALID_PARAMS, "{high} {low}");
    }
    close(backend);
}

#[test]
fn removing_tells_what_was_there_and_a_sweep_reclaims_what_no_root_refers_to() {
    let path = fresh_path();
    let backend = open_with(&config(&path));
    assert_eq!(put(backend, b"k", &[7; 600_000]), OK);
    let device = open_device(&path);
    // SAFETY: the memory lives during the call.
    unsafe {
        let orphan = b"0123456789\0\x01abcd";
        let status =
            mnkv_device_store(device, orphan.as_ptr().cast(), b"orphan".as_ptr().cast(), 6);
        assert_eq!(status, OK);
    }
    assert_eq!(sweep(backend, true), (1, 0));
    assert_eq!(sweep(backend, false), (1, 1));
    assert_eq!(sweep(backend, false), (0, 0));
    assert_eq!(get(backend, b"k", 600_000), Ok(vec![7; 600_000]));
    assert_eq!(remove(backend, b"k"), OK);
    assert_eq!(remove(backend, b"k"), NOT_FOUND);
    assert_eq!(values_of(device), 0);
    // SAFETY: the pointers are NULL, or a handle.
    unsafe {
        assert_eq!(mnkv_backend_remove(backend, ptr::null(), 1), INVALID_PARAMS);
        assert_eq!(mnkv_backend_remove_all(backend, ptr::null_mut()), OK);
        assert_eq!(mnkv_backend_sweep(backend, false, ptr::null_mut()), OK);
        assert_eq!(mnkv_backend_usage(backend, ptr::null_mut()), INVALID_PARAMS);
        assert_eq!(mnkv_device_close(device), OK);
    }
    close(backend);
}

#[test]
fn a_close_cuts_an_offload_short_and_every_object_has_its_status() {
    let path = fresh_path();
    let mut settings = config(&path);
    // Objects are stored in windows of a part of the limit.
    settings.total_keys_limit = 8000;
    let backend = open_with(&settings);
    let names: Vec<_> = (0..8000).map(key).collect();
    let slices = [slice(b"payload")];
    let objects: Vec<_> = names.iter().map(|name| object(name, &slices)).collect();
    let number = backend.addr();
    let mut closing = None;
    let (status, statuses) = offload(backend, &objects, |_| {
        if closing.is_none() {
            closing = Some(std::thread::spawn(move || {
                close(ptr::without_provenance_mut(number));
            }));
            while exists(backend, b"k") != Err(INTERNAL_ERROR) {
                std::thread::yield_now();
            }
        }
        OK
    });
    closing.expect("called").join().expect("closed");
    assert_eq!(status, INVALID_READ);
    let stored = statuses.iter().filter(|status| **status == OK).count();
    let cut = statuses.iter().filter(|status| **status == INVALID_READ).count();
    assert!(stored > 0 && cut > 0 && stored + cut == objects.len(), "{stored} and {cut}");

    let backend = open_with(&settings);
    let mut seen = Seen::default();
    assert_eq!(scan(backend, &mut seen).0, OK);
    assert_eq!(seen.objects.len(), stored);
    close(backend);
}

#[test]
fn reports_of_an_impossible_size_are_refused_before_anything_is_done() {
    let backend = open();
    assert_eq!(put(backend, b"k", b"payload"), OK);
    let mut seen = Seen::default();
    // SAFETY: zero bytes are a value of every field.
    let mut scanned: mnkv_scan_report = unsafe { std::mem::zeroed() };
    let mut swept = mnkv_sweep_report { struct_size: 1 << 20, orphans: 0, deleted: 0 };
    // SAFETY: everything lives during the calls; no more than the size is read.
    unsafe {
        let status = mnkv_backend_scan(backend, Some(on_page), seen.user(), &mut scanned);
        assert_eq!(status, INVALID_PARAMS);
        assert_eq!(mnkv_backend_sweep(backend, false, &mut swept), INVALID_PARAMS);
    }
    assert_eq!(seen.pages, [0; 0]);
    close(backend);
}

#[test]
fn a_namespace_has_one_owner_beside_whom_others_may_read() {
    let path = fresh_path();
    let owner = open_with(&config(&path));
    assert_eq!(put(owner, b"k", b"payload"), OK);
    let mut second = ptr::without_provenance_mut(1);
    // SAFETY: both pointers are good.
    assert_eq!(unsafe { mnkv_backend_open(&config(&path), &mut second) }, LOCK_FAIL);
    assert!(second.is_null());
    let holder = format!("owned by process {}", std::process::id());
    assert!(thread_error().contains(&holder), "{}", thread_error());

    let mut settings = config(&path);
    settings.access = mnkv_access::MNKV_ACCESS_READ_ONLY as u32;
    let reader = open_with(&settings);
    assert_eq!(get(reader, b"k", 7), Ok(b"payload".to_vec()));
    let mut seen = Seen::default();
    assert_eq!(scan(reader, &mut seen).0, OK);
    assert_eq!(seen.objects.len(), 1);
    assert_eq!(put(reader, b"other", b"payload"), NOT_SUPPORTED);
    assert_eq!(remove(reader, b"k"), NOT_SUPPORTED);
    assert_eq!(evict_above(reader, 0.0, 0.0, &mut seen), NOT_SUPPORTED);
    // SAFETY: NULL is allowed.
    unsafe {
        assert_eq!(mnkv_backend_remove_all(reader, ptr::null_mut()), NOT_SUPPORTED);
        assert_eq!(mnkv_backend_sweep(reader, false, ptr::null_mut()), NOT_SUPPORTED);
    }
    close(reader);
    settings.access = mnkv_access::MNKV_ACCESS_SHARED as u32;
    let shared = open_with(&settings);
    assert_eq!(put(shared, b"other", b"payload"), OK);
    close(shared);
    close(owner);
    close(open_with(&config(&path)));
}
