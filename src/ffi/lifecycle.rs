//! What becomes of a backend's objects: found by a scan, removed, evicted, counted.

use std::ffi::c_void;

use super::backend::{HANDLES, mnkv_backend};
use super::bytes::input;
use super::guard::guarded;
use super::object::mnkv_slice;
use super::sized::{self, Sized};
use super::status::{OK, mnkv_status_t};
use crate::backend::{ScanReport, ScannedObject, SweepReport};
use crate::error::{Error, ErrorCode, Result};

/// Gets a page of objects that a scan found: their keys, `keys[0 .. count]`, and the bytes of their
/// payloads, `sizes[0 .. count]`, readable until the callback returns.
///
/// It runs on the thread that called, with no lock held; the objects of the page are not evicted
/// meanwhile. It may call functions of the same backend but not close it, and must not throw or
/// jump out. Anything but MNKV_OK ends the scan, which returns that number.
pub type mnkv_page_fn = Option<
    unsafe extern "C" fn(
        user: *mut c_void,
        keys: *const mnkv_slice,
        sizes: *const u64,
        count: usize,
    ) -> mnkv_status_t,
>;

/// Gets the keys of objects that are about to be evicted, `keys[0 .. count]`, readable until the
/// callback returns. Loads do not find these objects any more, but they are deleted only when it
/// returns MNKV_OK; after anything else they are as before, and the call that evicts does not ask
/// again.
///
/// It runs on the thread that called. It may call functions of the same backend, but not for the
/// keys that it was given, and not close it, and must not throw or jump out.
pub type mnkv_evicted_fn = Option<
    unsafe extern "C" fn(user: *mut c_void, keys: *const mnkv_slice, count: usize) -> mnkv_status_t,
>;

/// What a scan saw. Counts are of values of the device, but `objects` of objects.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct mnkv_scan_report {
    /// sizeof(mnkv_scan_report), set by the caller.
    pub struct_size: usize,
    /// 1: the device can list its keys. 0: it cannot; nothing was scanned, keys that this backend
    /// has not met are asked for one by one, and objects of earlier runs count for no limit.
    pub listed: u64,
    /// Objects reported.
    pub objects: u64,
    /// Roots, visible and hidden.
    pub roots: u64,
    /// Hidden roots, left by interrupted writes, that were deleted.
    pub purged: u64,
    /// Values that are no roots: chunks, and orphans, which `mnkv_backend_sweep` tells apart.
    pub others: u64,
    /// Damaged roots.
    pub damaged: u64,
    /// Keys that this backend cannot have written: of another length or wire profile.
    pub foreign: u64,
}

// SAFETY: repr(C), struct_size first, and the rest are numbers.
unsafe impl Sized for mnkv_scan_report {
    const NAME: &'static str = "mnkv_scan_report";
    const LEAST: usize = size_of::<usize>();
}

/// What a sweep found and did.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct mnkv_sweep_report {
    /// sizeof(mnkv_sweep_report), set by the caller.
    pub struct_size: usize,
    /// Values that no root refers to.
    pub orphans: u64,
    /// How many of them were deleted; none in a dry run.
    pub deleted: u64,
}

// SAFETY: repr(C), struct_size first, and the rest are numbers.
unsafe impl Sized for mnkv_sweep_report {
    const NAME: &'static str = "mnkv_sweep_report";
    const LEAST: usize = size_of::<usize>();
}

/// What the objects that the backend knows of take on the device.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct mnkv_usage {
    /// sizeof(mnkv_usage), set by the caller.
    pub struct_size: usize,
    /// 1: every object of the device is known, after a scan or because the device was empty. 0:
    /// objects of earlier runs may be missing in the counts.
    pub complete: u64,
    /// Objects.
    pub objects: u64,
    /// Values: roots and chunks.
    pub values: u64,
    /// Bytes of the values, padding included.
    pub bytes: u64,
}

// SAFETY: repr(C), struct_size first, and the rest are numbers.
unsafe impl Sized for mnkv_usage {
    const NAME: &'static str = "mnkv_usage";
    const LEAST: usize = size_of::<usize>();
}

/// Finds what is on the device, as after a restart: calls `on_page`, which may be NULL, with `user`
/// for each page of objects, each object once. May run beside every other call; objects stored
/// meanwhile need not be reported. Hidden versions of objects are deleted on the way.
///
/// After a completed scan another one reports nothing until `mnkv_backend_reset_scan`. `*report`,
/// whose `struct_size` the caller has set, is filled on success, unless `report` is NULL.
/// What `on_page` returned, if that was not MNKV_OK; INTERNAL_ERROR while another scan runs;
/// FILE_READ_FAIL when the device fails: what only this scan had found is forgotten then, and the
/// scan can be repeated.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mnkv_backend_scan(
    backend: *mut mnkv_backend,
    on_page: mnkv_page_fn,
    user: *mut c_void,
    report: *mut mnkv_scan_report,
) -> mnkv_status_t {
    let mut told = Told::new("page");
    let status = guarded!(|error: Error| HANDLES.fail(backend, &error), {
        // SAFETY: the caller's promise: NULL or as many bytes as `struct_size` says.
        unsafe { check(report)? };
        let mut on_objects = |objects: &[ScannedObject]| {
            let Some(on_page) = on_page else { return Ok(()) };
            let keys: Vec<_> = objects.iter().map(|object| slice(&object.key)).collect();
            let sizes: Vec<_> = objects.iter().map(|object| object.size).collect();
            // SAFETY: the caller's function and its own pointer; the arrays live.
            told.with(unsafe { on_page(user, keys.as_ptr(), sizes.as_ptr(), keys.len()) })
        };
        let scanned = HANDLES.call(backend, |open| open.backend.scan(&mut on_objects))?;
        // SAFETY: as above.
        unsafe { fill(report, &scan_report(&scanned))? };
        Ok(OK)
    });
    told.or(status)
}

/// Lets the next scan begin from the start and report every object again. Thread-safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mnkv_backend_reset_scan(backend: *mut mnkv_backend) -> mnkv_status_t {
    guarded!(|error: Error| HANDLES.fail(backend, &error), {
        HANDLES.call(backend, |open| {
            open.backend.reset_scan();
            Ok(())
        })?;
        Ok(OK)
    })
}

/// Fills `*out`, whose `struct_size` the caller has set. Thread-safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mnkv_backend_usage(
    backend: *mut mnkv_backend,
    out: *mut mnkv_usage,
) -> mnkv_status_t {
    guarded!(|error: Error| HANDLES.fail(backend, &error), {
        let answer = HANDLES.call(backend, |open| {
            let usage = open.backend.usage();
            Ok(mnkv_usage {
                struct_size: size_of::<mnkv_usage>(),
                complete: open.backend.index_is_complete().into(),
                objects: usage.objects,
                values: usage.values,
                bytes: usage.bytes,
            })
        })?;
        // SAFETY: the caller's promise: NULL or as many bytes as `struct_size` says.
        unsafe { sized::write(out, &answer)? };
        Ok(OK)
    })
}

/// Removes one object. Loads of it that are under way end with its bytes or with OBJECT_NOT_FOUND.
///
/// OBJECT_NOT_FOUND when it is proven absent; INVALID_READ while an earlier Store without an answer
/// may make it appear again; after FILE_READ_FAIL and FILE_WRITE_FAIL it may be stored or not.
/// Thread-safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mnkv_backend_remove(
    backend: *mut mnkv_backend,
    key: *const c_void,
    key_size: usize,
) -> mnkv_status_t {
    guarded!(|error: Error| HANDLES.fail(backend, &error), {
        // SAFETY: the caller's promise.
        let key = unsafe { input(key.cast(), key_size, format_args!("the key"))? };
        HANDLES.call(backend, |open| open.backend.remove(key))?;
        Ok(OK)
    })
}

/// Removes every object, those of earlier runs included; the backend stays usable. Values that no
/// root refers to stay, see `mnkv_backend_sweep`.
///
/// `*removed`, unless `removed` is NULL, gets how many objects were removed. After an error what
/// could be removed is gone, and the call can be repeated. Thread-safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mnkv_backend_remove_all(
    backend: *mut mnkv_backend,
    removed: *mut u64,
) -> mnkv_status_t {
    guarded!(|error: Error| HANDLES.fail(backend, &error), {
        let count = HANDLES.call(backend, |open| open.backend.remove_all())?;
        if !removed.is_null() {
            // SAFETY: not NULL, so by the caller's promise it is writable.
            unsafe { removed.write(count) };
        }
        Ok(OK)
    })
}

/// When more than `high` times the size limit is stored, evicts objects down to `low` times it,
/// whatever the policy, the oldest first; both are ratios, 0 <= low <= high <= 1. The limit is
/// `total_size_limit` (see mnkv_config) or what the namespace holds, whichever is less.
///
/// `on_evicted`, which may be NULL, is called with `user` several times when many objects leave;
/// together it gets the keys of all. What it returned, if that was not MNKV_OK; INVALID_PARAMS for
/// bad ratios. Thread-safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mnkv_backend_evict_above_watermark(
    backend: *mut mnkv_backend,
    high: f64,
    low: f64,
    on_evicted: mnkv_evicted_fn,
    user: *mut c_void,
) -> mnkv_status_t {
    let mut told = Told::new("eviction");
    let status = guarded!(|error: Error| HANDLES.fail(backend, &error), {
        HANDLES.call(backend, |open| {
            // SAFETY: the caller's function and its own pointer.
            let mut on_evicted = |keys: &[Vec<u8>]| unsafe { told.keys(on_evicted, user, keys) };
            open.backend.evict_above(high, low, &mut on_evicted).map(drop)
        })?;
        Ok(OK)
    });
    told.or(status)
}

/// Deletes orphans: values that no root refers to, which crashes leave and which count for no
/// limit; with `dry_run`, only counts them. Reads the whole device. May run beside every other call
/// and never touches what an offload under way has written. The namespace must have no other
/// writer, Mooncake's C++ backend included.
///
/// `*report`, whose `struct_size` the caller has set, is filled on success, unless `report` is NULL.
/// NOT_SUPPORTED for a device that cannot list its keys; INTERNAL_ERROR while another sweep runs.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mnkv_backend_sweep(
    backend: *mut mnkv_backend,
    dry_run: bool,
    report: *mut mnkv_sweep_report,
) -> mnkv_status_t {
    guarded!(|error: Error| HANDLES.fail(backend, &error), {
        // SAFETY: the caller's promise: NULL or as many bytes as `struct_size` says.
        unsafe { check(report)? };
        let swept = HANDLES.call(backend, |open| open.backend.sweep(dry_run))?;
        let SweepReport { orphans, deleted } = swept;
        let struct_size = size_of::<mnkv_sweep_report>();
        // SAFETY: as above.
        unsafe { fill(report, &mnkv_sweep_report { struct_size, orphans, deleted })? };
        Ok(OK)
    })
}

/// Refuses a report of an impossible size before anything is done for it.
///
/// # Safety
/// As [`fill`].
unsafe fn check<T: Sized>(to: *const T) -> Result<()> {
    if !to.is_null() {
        // SAFETY: the caller's promise.
        unsafe { sized::claimed_size(to)? };
    }
    Ok(())
}

/// Fills the caller's report, if it wants one.
///
/// # Safety
/// `to` is NULL or points to as many writable bytes as its `struct_size` says.
unsafe fn fill<T: Sized>(to: *mut T, report: &T) -> Result<()> {
    if to.is_null() {
        return Ok(());
    }
    // SAFETY: the caller's promise.
    unsafe { sized::write(to, report) }
}

fn scan_report(report: &ScanReport) -> mnkv_scan_report {
    mnkv_scan_report {
        struct_size: size_of::<mnkv_scan_report>(),
        listed: report.listed.into(),
        objects: report.objects,
        roots: report.roots,
        purged: report.purged,
        others: report.others,
        damaged: report.damaged,
        foreign: report.foreign,
    }
}

/// `bytes` as the header's slice.
fn slice(bytes: &[u8]) -> mnkv_slice {
    mnkv_slice { data: bytes.as_ptr().cast(), size: bytes.len() }
}

/// A callback of the caller, and what it returned: MNKV_OK, or the number that it refused with.
pub(super) struct Told {
    noun: &'static str,
    refused: mnkv_status_t,
}

impl Told {
    /// Not called yet; `noun` names it in messages.
    pub(super) fn new(noun: &'static str) -> Self {
        Told { noun, refused: OK }
    }

    /// What the callback's `status` is to the backend.
    pub(super) fn with(&mut self, status: mnkv_status_t) -> Result<()> {
        self.refused = status;
        if status == OK {
            return Ok(());
        }
        let message = format!("the {} callback returned {status}", self.noun);
        Err(Error::new(ErrorCode::InternalError, message))
    }

    /// Calls `on_evicted`, if there is one, with `keys`; not again after a refusal.
    ///
    /// # Safety
    /// As the header says of `on_evicted` and `user`.
    pub(super) unsafe fn keys(
        &mut self,
        on_evicted: mnkv_evicted_fn,
        user: *mut c_void,
        keys: &[Vec<u8>],
    ) -> Result<()> {
        let Some(on_evicted) = on_evicted else { return Ok(()) };
        if self.refused != OK {
            return self.with(self.refused);
        }
        let keys: Vec<_> = keys.iter().map(|key| slice(key)).collect();
        // SAFETY: the caller's promise; `keys` lives.
        self.with(unsafe { on_evicted(user, keys.as_ptr(), keys.len()) })
    }

    /// Whether it refused.
    pub(super) fn refused(&self) -> bool {
        self.refused != OK
    }

    /// The number that it refused with; `status` when it did not.
    pub(super) fn or(&self, status: mnkv_status_t) -> mnkv_status_t {
        if self.refused == OK { status } else { self.refused }
    }
}
