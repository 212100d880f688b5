//! A backend: logical objects on one namespace.

use std::ffi::{c_char, c_void};
use std::ptr;

use super::bytes::{self, input, output};
use super::capabilities::{self, mnkv_capabilities};
use super::config::{mnkv_config, read_config, read_environment_and_config};
use super::fork;
use super::guard::guarded;
use super::handle::{self, Registry};
use super::lifecycle::{Told, mnkv_evicted_fn};
use super::object::{mnkv_destination, mnkv_object, read_destinations, read_objects};
use super::sized;
use super::status::{OK, mnkv_status_t};
use crate::backend::{Backend, Handlers, OffloadReport};
use crate::config::{Config, IoConcurrency, ProcessEnvironment, Transport};
use crate::error::{Error, ErrorCode, Result};

/// An open backend.
///
/// Every function that takes one is thread-safe: calls run in parallel, and loads do not wait
/// behind offloads. After it is closed, or in a forked child, a call returns INTERNAL_ERROR.
pub struct mnkv_backend(());

pub(super) struct OpenBackend {
    pub(super) backend: Backend,
    pub(super) io: IoConcurrency,
    pub(super) transport: Transport,
    slack: usize,
}

pub(super) static HANDLES: Registry<mnkv_backend, OpenBackend> = Registry::new("backend");

/// Tells the caller of `mnkv_backend_offload` which objects can be read from now on:
/// `indexes[0 .. count]` are their positions in the batch, readable until the callback returns.
///
/// It runs on the thread that called, with no lock held, several times in a large batch and at
/// most once for an object. It may call functions of the same backend but not close it, and must
/// not throw or jump out. Anything but MNKV_OK ends the batch: no further object is begun, and
/// the offload returns that number.
pub type mnkv_stored_fn = Option<
    unsafe extern "C" fn(user: *mut c_void, indexes: *const usize, count: usize) -> mnkv_status_t,
>;

/// Opens the namespace that the environment names (variables MOONCAKE_NVME_KV_*).
///
/// On success `*out` is the backend, which the caller closes with `mnkv_backend_close`; on
/// failure it is NULL and `mnkv_last_open_error` says why. INVALID_PARAMS for a bad or missing
/// setting, NOT_SUPPORTED for a transport that this build or machine lacks, FILE_OPEN_FAIL when
/// the device cannot be opened, FILE_LOCK_FAIL when the namespace has another owner, whom the text
/// names (see `enum mnkv_access`). Thread-safe, as long as nobody changes the environment.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mnkv_backend_open_from_environment(
    out: *mut *mut mnkv_backend,
) -> mnkv_status_t {
    guarded!(|error: Error| handle::fail_on_this_thread(&error), {
        // SAFETY: the caller's promise: NULL or writable.
        unsafe { output(out, ptr::null_mut(), "out")? };
        handle::refuse_in_log_callback()?;
        let backend = open(&Config::from_environment(&ProcessEnvironment)?, 0)?;
        // SAFETY: as above.
        unsafe { output(out, backend, "out")? };
        Ok(OK)
    })
}

/// Opens the namespace that `config` names; the environment is not read. `config` may be freed
/// after the call. Otherwise as `mnkv_backend_open_from_environment`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mnkv_backend_open(
    config: *const mnkv_config,
    out: *mut *mut mnkv_backend,
) -> mnkv_status_t {
    guarded!(|error: Error| handle::fail_on_this_thread(&error), {
        // SAFETY: the caller's promise: NULL or writable.
        unsafe { output(out, ptr::null_mut(), "out")? };
        handle::refuse_in_log_callback()?;
        // SAFETY: the caller's promise, as the header says it.
        let (config, slack) = unsafe { read_config(config)? };
        let backend = open(&config, slack)?;
        // SAFETY: as above.
        unsafe { output(out, backend, "out")? };
        Ok(OK)
    })
}

/// Opens the namespace that the environment names, but for what `config` sets: a field that is not
/// 0 or NULL comes before its variable. For settings that only the program knows, such as
/// `destination_slack`. Otherwise as `mnkv_backend_open_from_environment`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mnkv_backend_open_from_environment_and_config(
    config: *const mnkv_config,
    out: *mut *mut mnkv_backend,
) -> mnkv_status_t {
    guarded!(|error: Error| handle::fail_on_this_thread(&error), {
        // SAFETY: the caller's promise: NULL or writable.
        unsafe { output(out, ptr::null_mut(), "out")? };
        handle::refuse_in_log_callback()?;
        // SAFETY: the caller's promise, as the header says it.
        let (config, slack) = unsafe { read_environment_and_config(config)? };
        let backend = open(&config, slack)?;
        // SAFETY: as above.
        unsafe { output(out, backend, "out")? };
        Ok(OK)
    })
}

fn open(config: &Config, slack: usize) -> Result<*mut mnkv_backend> {
    fork::watch();
    let backend = Backend::open(config)?;
    let transport = config.connector.transport;
    Ok(HANDLES.open(OpenBackend { backend, io: config.io, transport, slack }))
}

/// Closes a backend: new calls fail, calls under way are waited for, and then its threads,
/// descriptors, rings, memory and the ownership of the namespace are given back. NULL is MNKV_OK and does nothing.
///
/// Long calls under way end early: an offload begins no further object, a scan, a sweep and a
/// removal of everything return INTERNAL_ERROR.
///
/// No callback of the backend runs after it has returned. From inside a callback of the same
/// backend, from the log callback, for a backend that is closed already and in a forked child it
/// returns INTERNAL_ERROR and does nothing. Thread-safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mnkv_backend_close(backend: *mut mnkv_backend) -> mnkv_status_t {
    guarded!(|error: Error| HANDLES.fail(backend, &error), {
        HANDLES.close(backend, |open| open.backend.begin_close())?;
        Ok(OK)
    })
}

/// Stores a batch of objects. An object that is stored with the same bytes already is a success;
/// one with other bytes is replaced.
///
/// Keys, slices and arrays are read during the call and never after; nothing is copied as a
/// whole, and memory use does not grow with the payload. Any alignment will do. A key may occur
/// several times; its objects are stored in the order of the batch. `on_stored`, which may be
/// NULL, is called with `user` as objects become readable.
///
/// When a limit or the device's capacity is reached and the policy allows it, other objects are
/// evicted: `on_evicted`, which may be NULL, is called with `user` and their keys before they are
/// deleted. Objects of the batch whose `on_stored` has not returned are never among them.
///
/// `statuses`, which may be NULL, gets the status of each object: `count` entries, all written.
/// The call returns MNKV_OK when every object is stored; what `on_stored` returned, if that was
/// not MNKV_OK; then what `on_evicted` returned, likewise; INVALID_READ when some objects are
/// stored; else the status of the first object that failed with more than INVALID_READ or
/// OBJECT_ALREADY_EXISTS. An object that finds no room is KEYS_ULTRA_LIMIT when the policy is to
/// evict nothing, INVALID_READ otherwise. An empty batch is INVALID_KEY.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mnkv_backend_offload(
    backend: *mut mnkv_backend,
    objects: *const mnkv_object,
    count: usize,
    on_stored: mnkv_stored_fn,
    on_evicted: mnkv_evicted_fn,
    user: *mut c_void,
    statuses: *mut mnkv_status_t,
) -> mnkv_status_t {
    let mut stored = Told::new("completion");
    let mut evicted = Told::new("eviction");
    let mut statuses = Statuses::new(statuses, count);
    let status = guarded!(
        |error: Error| {
            // SAFETY: the caller's promise: NULL or `count` writable entries.
            unsafe { statuses.fill(&error) };
            HANDLES.fail(backend, &error)
        },
        {
            // SAFETY: the caller's promise, as the header says it.
            let objects = unsafe { read_objects(objects, count)? };
            let report = HANDLES.call(backend, |open| {
                let handlers = Handlers {
                    on_stored: &mut |indexes| {
                        let Some(on_stored) = on_stored else { return Ok(()) };
                        // SAFETY: the caller's function and its own pointer; `indexes` lives.
                        stored.with(unsafe { on_stored(user, indexes.as_ptr(), indexes.len()) })
                    },
                    // SAFETY: the caller's function and its own pointer.
                    on_evicted: &mut |keys| unsafe { evicted.keys(on_evicted, user, keys) },
                };
                open.backend.offload_with(&objects.borrowed(), handlers)
            })?;
            // SAFETY: as above.
            unsafe { statuses.write(&report.results) };
            if stored.refused() || !report.results.iter().all(Result::is_ok) {
                overall(report)?;
            }
            Ok(OK)
        }
    );
    // Without the eviction there may have been room after all.
    if status == OK { OK } else { stored.or(evicted.or(status)) }
}

/// Loads a batch of objects. The size of a destination must be the object's.
///
/// Thread-safe; no byte of a destination is written after the return. A destination that was not
/// loaded holds arbitrary bytes. The memory must be writable and used by nobody else during the
/// call, along with `destination_slack` bytes (see mnkv_config) behind the last slice.
///
/// `statuses`, which may be NULL, gets the status of each object: `count` entries, all written.
/// The call returns MNKV_OK when all are loaded, else the first error: OBJECT_NOT_FOUND for a key
/// that is proven absent, CHECKSUM_MISMATCH for damage, INVALID_PARAMS for a wrong size. An empty
/// batch is MNKV_OK.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mnkv_backend_load(
    backend: *mut mnkv_backend,
    destinations: *const mnkv_destination,
    count: usize,
    statuses: *mut mnkv_status_t,
) -> mnkv_status_t {
    let mut statuses = Statuses::new(statuses, count);
    guarded!(
        |error: Error| {
            // SAFETY: the caller's promise: NULL or `count` writable entries.
            unsafe { statuses.fill(&error) };
            HANDLES.fail(backend, &error)
        },
        {
            let results = HANDLES.call(backend, |open| {
                // SAFETY: the caller's promise, as the header says it.
                open.backend.load(unsafe { read_destinations(destinations, count, open.slack)? })
            })?;
            // SAFETY: as above.
            unsafe { statuses.write(&results) };
            for result in results {
                result?;
            }
            Ok(OK)
        }
    )
}

/// Sets `*out` to whether the key is stored. False only when its absence is proven; a device that
/// cannot be asked is an error. Thread-safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mnkv_backend_exists(
    backend: *mut mnkv_backend,
    key: *const c_void,
    key_size: usize,
    out: *mut bool,
) -> mnkv_status_t {
    guarded!(|error: Error| HANDLES.fail(backend, &error), {
        // SAFETY: the caller's promise.
        let key = unsafe { input(key.cast(), key_size, format_args!("the key"))? };
        let exists = HANDLES.call(backend, |open| open.backend.exists(key))?;
        // SAFETY: the caller's promise: NULL or writable.
        unsafe { output(out, exists, "out")? };
        Ok(OK)
    })
}

/// Sets `*out` to whether new objects are taken: false only when the policy is to evict nothing and
/// a limit is reached or the device says itself that it is full. Thread-safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mnkv_backend_is_enabled(
    backend: *mut mnkv_backend,
    out: *mut bool,
) -> mnkv_status_t {
    guarded!(|error: Error| HANDLES.fail(backend, &error), {
        let enabled = HANDLES.call(backend, |open| open.backend.is_enabled())?;
        // SAFETY: the caller's promise: NULL or writable.
        unsafe { output(out, enabled, "out")? };
        Ok(OK)
    })
}

/// Offers `size` bytes at `start`, say an arena that destinations come from, so that transfers into
/// and out of it need not pin its pages each time. A hint: without a use for it (ioctl, emulated),
/// or over a limit of the kernel, the call succeeds and transfers work as before. So does a transfer
/// that crosses a multiple of the longest one (a power of two), counted from the page of `start`.
///
/// The memory must stay mapped until `mnkv_backend_unregister_memory` or the close. INVALID_PARAMS:
/// the range is empty or overlaps one that is registered. Thread-safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mnkv_backend_register_memory(
    backend: *mut mnkv_backend,
    start: *mut c_void,
    size: usize,
) -> mnkv_status_t {
    guarded!(|error: Error| HANDLES.fail(backend, &error), {
        if start.is_null() || size == 0 {
            let what = format!("memory of {size} bytes at {start:p} is empty; register some");
            return Err(bytes::invalid(what));
        }
        HANDLES.call(backend, |open| {
            // SAFETY: the caller's promise, as the header says it.
            unsafe { open.backend.register_memory(start.cast(), size) }
        })?;
        Ok(OK)
    })
}

/// Takes back the offer of the memory at `start`, which may be unmapped then; nothing happens when
/// there is none. No call on the backend that uses the memory may be under way. Thread-safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mnkv_backend_unregister_memory(
    backend: *mut mnkv_backend,
    start: *mut c_void,
) -> mnkv_status_t {
    guarded!(|error: Error| HANDLES.fail(backend, &error), {
        HANDLES.call(backend, |open| open.backend.unregister_memory(start.cast()))?;
        Ok(OK)
    })
}

/// Fills `*out`, whose `struct_size` the caller has set. The answer never changes while the
/// backend is open. Thread-safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mnkv_backend_capabilities(
    backend: *mut mnkv_backend,
    out: *mut mnkv_capabilities,
) -> mnkv_status_t {
    guarded!(|error: Error| HANDLES.fail(backend, &error), {
        let answer = HANDLES.call(backend, |open| Ok(capabilities::of(open)))?;
        // SAFETY: the caller's promise: NULL or as many bytes as `struct_size` says.
        unsafe { sized::write(out, &answer)? };
        Ok(OK)
    })
}

/// Copies the text of the latest failed call on this backend, by any thread, into `buffer`: as
/// much as fits into `size` bytes with the NUL, which is always written when `size` is not 0.
/// Returns the bytes of the whole text without the NUL, so that a call with NULL and 0 tells how
/// much room it takes; 0 when no call has failed.
///
/// For a backend that is not open: the text of the latest failed call on this thread. Thread-safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mnkv_backend_last_error(
    backend: *const mnkv_backend,
    buffer: *mut c_char,
    size: usize,
) -> usize {
    guarded!(|_: Error| 0, {
        // SAFETY: the caller's promise: NULL or `size` writable bytes.
        Ok(unsafe { bytes::copy_text(&HANDLES.last_error(backend), buffer, size) })
    })
}

/// Copies the text of the latest failed call on this thread, as `mnkv_backend_last_error` does.
/// It is the way to learn why an open failed, which leaves no handle to ask.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mnkv_last_open_error(buffer: *mut c_char, size: usize) -> usize {
    guarded!(|_: Error| 0, {
        // SAFETY: the caller's promise: NULL or `size` writable bytes.
        Ok(unsafe { bytes::copy_text(&handle::last_error_on_this_thread(), buffer, size) })
    })
}

/// Where the status of each item goes: NULL, once that is done or when nobody wants to know.
struct Statuses {
    to: *mut mnkv_status_t,
    count: usize,
}

impl Statuses {
    /// An array of a size that no memory has is left alone; the call ends with that.
    fn new(to: *mut mnkv_status_t, count: usize) -> Self {
        let possible = bytes::check(to.cast(), count, size_of::<mnkv_status_t>(), format_args!(""));
        Statuses { to: if possible.is_ok() { to } else { ptr::null_mut() }, count }
    }

    /// Each item's own status.
    ///
    /// # Safety
    /// `to` is NULL or has room for `count` entries.
    unsafe fn write<T>(&mut self, results: &[Result<T>]) {
        if self.to.is_null() {
            return;
        }
        for (index, result) in results.iter().take(self.count).enumerate() {
            let status = result.as_ref().map_or_else(|error| error.code() as mnkv_status_t, |_| OK);
            // SAFETY: not NULL, so by the caller's promise there is room.
            unsafe { self.to.add(index).write(status) };
        }
        self.to = ptr::null_mut();
    }

    /// The same for all, unless they have their own: the call failed as a whole.
    ///
    /// # Safety
    /// As [`Statuses::write`].
    unsafe fn fill(&mut self, error: &Error) {
        if self.to.is_null() {
            return;
        }
        for index in 0..self.count {
            // SAFETY: not NULL, so by the caller's promise there is room.
            unsafe { self.to.add(index).write(error.code() as mnkv_status_t) };
        }
    }
}

/// The end of an offload as Mooncake wants it.
fn overall(report: OffloadReport) -> Result<()> {
    if let Some(error) = report.callback_error {
        return Err(error);
    }
    let count = report.results.len();
    let (stored, errors): (Vec<_>, Vec<_>) = report.results.into_iter().partition(Result::is_ok);
    let mut errors = errors.into_iter().filter_map(Result::err).peekable();
    let Some(first) = errors.peek().cloned() else { return Ok(()) };
    let what = format!("{} of {count} objects were not stored; one of them", count - stored.len());
    if stored.is_empty() {
        let soft = [ErrorCode::InvalidRead, ErrorCode::ObjectAlreadyExists];
        let hard = errors.find(|error| !soft.contains(&error.code()));
        return Err(hard.unwrap_or(first).context(what));
    }
    Err(Error::new(ErrorCode::InvalidRead, format!("{what}: {first}")))
}
