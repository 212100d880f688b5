//! A device: single commands of one namespace, for experiments.

use std::ffi::{c_char, c_void};
use std::{ptr, slice};

use nvme_kv_command_set::{IdentifyKvNamespace, Key, MAX_KEY_LEN, PhysicalKey, parse_list};

use super::bytes::{self, check, input, invalid, output};
use super::config::{mnkv_config, read_config};
use super::guard::guarded;
use super::handle::{self, Registry};
use super::sized::{self, Sized};
use super::status::{OK, mnkv_status_t};
use crate::device::{
    CommandError, Connector, Direction, Operation, Payload, PayloadRange, Value, execute_one,
};
use crate::error::{Error, ErrorCode, Result};

/// An open namespace without a backend: what is stored through it is no object of a backend. It
/// owns nothing and is opened beside any owner, from whom nothing keeps its commands away.
///
/// Every function that takes one is thread-safe and synchronous; when it has returned, no memory
/// of the caller is in use. After it is closed, or in a forked child, a call returns
/// INTERNAL_ERROR.
///
/// Keys have 16 bytes. Under Mooncake's wire profile byte 11 does not reach the device, which
/// gets 01h in its place: keys that differ in nothing else are one.
pub struct mnkv_device(());

pub(super) static HANDLES: Registry<mnkv_device, Connector> = Registry::new("device");

/// Gets one key of a List command; `key` is readable until the callback returns.
///
/// It runs on the thread that called. It may call functions of the same device but not close it,
/// and must not throw or jump out. Anything but MNKV_OK ends the list, which returns that number.
pub type mnkv_key_fn = Option<
    unsafe extern "C" fn(user: *mut c_void, key: *const c_void, key_size: usize) -> mnkv_status_t,
>;

/// What a namespace says of itself. Sizes are in bytes; 0 is "not stated".
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct mnkv_identify {
    /// sizeof(mnkv_identify), set by the caller.
    pub struct_size: usize,
    /// Size of the namespace.
    pub size_bytes: u64,
    /// How much of it is in use.
    pub used_bytes: u64,
    /// Largest value.
    pub max_value_size: u32,
    /// Longest key.
    pub max_key_size: u32,
    /// Most keys.
    pub max_keys: u32,
    /// Values of a multiple of this size use the device best.
    pub optimal_value_granularity: u32,
    /// Globally unique identifier, all zero when there is none.
    pub nguid: [u8; 16],
    /// Extended unique identifier, all zero when there is none.
    pub eui64: [u8; 8],
}

// SAFETY: repr(C), struct_size first, and the rest are numbers.
unsafe impl Sized for mnkv_identify {
    const NAME: &'static str = "mnkv_identify";
    const LEAST: usize = size_of::<usize>();
}

/// Opens the namespace that `config` names; only the settings of the device are used. `config`
/// may be freed after the call.
///
/// On success `*out` is the device, which the caller closes with `mnkv_device_close`; on failure
/// it is NULL and `mnkv_last_open_error` says why. Statuses as `mnkv_backend_open`. Thread-safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mnkv_device_open(
    config: *const mnkv_config,
    out: *mut *mut mnkv_device,
) -> mnkv_status_t {
    guarded!(|error: Error| handle::fail_on_this_thread(&error), {
        // SAFETY: the caller's promise: NULL or writable.
        unsafe { output(out, ptr::null_mut(), "out")? };
        handle::refuse_in_log_callback()?;
        // SAFETY: the caller's promise, as the header says it.
        let (config, _) = unsafe { read_config(config)? };
        let device = HANDLES.open(Connector::open(&config.connector)?);
        // SAFETY: as above.
        unsafe { output(out, device, "out")? };
        Ok(OK)
    })
}

/// Closes a device, as `mnkv_backend_close` does a backend. NULL is MNKV_OK and does nothing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mnkv_device_close(device: *mut mnkv_device) -> mnkv_status_t {
    guarded!(|error: Error| HANDLES.fail(device, &error), {
        HANDLES.close(device, |_| ())?;
        Ok(OK)
    })
}

/// One Store command: `size` bytes at `data` under the 16 bytes at `key`, if the key is absent.
/// OBJECT_ALREADY_EXISTS when it is not, INVALID_PARAMS when the value is too large,
/// KEYS_ULTRA_LIMIT when the device is full.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mnkv_device_store(
    device: *mut mnkv_device,
    key: *const c_void,
    data: *const c_void,
    size: usize,
) -> mnkv_status_t {
    guarded!(|error: Error| HANDLES.fail(device, &error), {
        // SAFETY: the caller's promise.
        let (key, data) = unsafe {
            (physical_key(key)?, input(data.cast::<u8>(), size, format_args!("the value"))?)
        };
        HANDLES.call(device, |connector| {
            let largest = connector.executor().capabilities().max_value_size;
            if size > largest as usize {
                return Err(invalid(format!("a value of {size} bytes; at most {largest} fit")));
            }
            let slices = [data];
            let body = Payload::new(&slices).whole().unwrap_or(PayloadRange::EMPTY);
            let value = Value { head: Vec::new(), body };
            let done = execute_one(&**connector.executor(), Operation::Store { key, value });
            done.result.map_err(|error| failed(error, Direction::Write, "Store"))
        })?;
        Ok(OK)
    })
}

/// One Retrieve command: at most `capacity` bytes of the value of the 16 bytes at `key` into
/// `buffer`. OBJECT_NOT_FOUND when there is none.
///
/// `*value_size`, unless `value_size` is NULL, gets the size of the whole value as the device
/// reports it, which may be padded to the transfer alignment; 0 when it reports none. Of a longer
/// value the first `capacity` bytes are copied; some devices refuse that with INVALID_PARAMS. Of
/// a shorter one the rest of the buffer is left alone.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mnkv_device_retrieve(
    device: *mut mnkv_device,
    key: *const c_void,
    buffer: *mut c_void,
    capacity: usize,
    value_size: *mut usize,
) -> mnkv_status_t {
    guarded!(|error: Error| HANDLES.fail(device, &error), {
        // SAFETY: the caller's promise.
        let key = unsafe { physical_key(key)? };
        check(buffer.cast(), capacity, 1, format_args!("the buffer"))?;
        let reported = HANDLES.call(device, |connector| {
            let executor = &**connector.executor();
            let capabilities = executor.capabilities();
            let len = u32::try_from(capacity).unwrap_or(u32::MAX);
            let len = len.min(capabilities.max_retrieve_size);
            let transfer = executor.buffers().get(capabilities.transfer_len(len) as usize);
            let done = execute_one(executor, Operation::Retrieve { key, buffer: transfer, len });
            let reply = done.result.map_err(|error| failed(error, Direction::Read, "Retrieve"))?;
            let got = reply.value_len.unwrap_or(len).min(len) as usize;
            if let Some(from) = done.buffer.filter(|_| got > 0) {
                // SAFETY: not NULL with a capacity, so by the caller's promise `capacity` bytes
                // are writable, and `got <= capacity`; `from` is ours and does not overlap.
                unsafe { ptr::copy_nonoverlapping(from.as_ptr(), buffer.cast(), got) };
            }
            Ok(reply.value_len.unwrap_or(0) as usize)
        })?;
        if !value_size.is_null() {
            // SAFETY: not NULL, so by the caller's promise it is writable.
            unsafe { value_size.write(reported) };
        }
        Ok(OK)
    })
}

/// One Delete command for the 16 bytes at `key`. A key that is absent is MNKV_OK too.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mnkv_device_delete(
    device: *mut mnkv_device,
    key: *const c_void,
) -> mnkv_status_t {
    guarded!(|error: Error| HANDLES.fail(device, &error), {
        // SAFETY: the caller's promise.
        let key = unsafe { physical_key(key)? };
        HANDLES.call(device, |connector| {
            match execute_one(&**connector.executor(), Operation::Delete { key }).result {
                Err(error) if !error.is_not_found() => {
                    Err(failed(error, Direction::Write, "Delete"))
                }
                _ => Ok(()),
            }
        })?;
        Ok(OK)
    })
}

/// One Exist command: sets `*out` to whether the 16 bytes at `key` hold a value.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mnkv_device_exist(
    device: *mut mnkv_device,
    key: *const c_void,
    out: *mut bool,
) -> mnkv_status_t {
    guarded!(|error: Error| HANDLES.fail(device, &error), {
        // SAFETY: the caller's promise.
        let key = unsafe { physical_key(key)? };
        let exists = HANDLES.call(device, |connector| {
            match execute_one(&**connector.executor(), Operation::Exist { key }).result {
                Ok(_) => Ok(true),
                Err(error) if error.is_not_found() => Ok(false),
                Err(error) => Err(failed(error, Direction::Read, "Exist")),
            }
        })?;
        // SAFETY: the caller's promise: NULL or writable.
        unsafe { output(out, exists, "out")? };
        Ok(OK)
    })
}

/// Bytes of keys that one List command asks for.
const LIST_PAGE: usize = 64 << 10;

/// One List command: calls `on_key` with `user` for each key that the device returns, as the
/// device knows it and in its order.
///
/// `start` is the key of `start_size` bytes (at most 16) to begin with; a size of 0 begins with
/// the first. A device returns as many keys as it likes. To see all, begin again with the last
/// one, which most devices then repeat, until a call brings no key that is new.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mnkv_device_list(
    device: *mut mnkv_device,
    start: *const c_void,
    start_size: usize,
    on_key: mnkv_key_fn,
    user: *mut c_void,
) -> mnkv_status_t {
    let mut refused = OK;
    let status = guarded!(|error: Error| HANDLES.fail(device, &error), {
        // SAFETY: the caller's promise.
        let start = unsafe { input(start.cast::<u8>(), start_size, format_args!("start"))? };
        if start_size > MAX_KEY_LEN {
            return Err(invalid(format!("start has {start_size} bytes; keys have at most 16")));
        }
        let start = Key::new(start);
        let Some(on_key) = on_key else { return Err(invalid("on_key is NULL")) };
        HANDLES.call(device, |connector| {
            let mut page = connector.executor().buffers().get(LIST_PAGE);
            let listed = connector.executor().list(start.as_ref(), &mut page);
            listed.map_err(|error| failed(error, Direction::Read, "List"))?;
            let keys = parse_list(&page)
                .map_err(|error| Error::new(ErrorCode::FileReadFail, format!("List: {error}")))?;
            for key in keys {
                let key = key.as_bytes();
                // SAFETY: the caller's function and its own pointer; `key` lives.
                refused = unsafe { on_key(user, key.as_ptr().cast(), key.len()) };
                if refused != OK {
                    let message = format!("the key callback returned {refused}");
                    return Err(Error::new(ErrorCode::InternalError, message));
                }
            }
            Ok(())
        })?;
        Ok(OK)
    });
    if refused == OK { status } else { refused }
}

/// One Identify Namespace command: fills `*out`, whose `struct_size` the caller has set.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mnkv_device_identify(
    device: *mut mnkv_device,
    out: *mut mnkv_identify,
) -> mnkv_status_t {
    guarded!(|error: Error| HANDLES.fail(device, &error), {
        let answer = HANDLES.call(device, |connector| {
            let namespace = connector.executor().identify();
            namespace.map_err(|error| failed(error, Direction::Read, "Identify"))
        })?;
        // SAFETY: the caller's promise: NULL or as many bytes as `struct_size` says.
        unsafe { sized::write(out, &identified(&answer))? };
        Ok(OK)
    })
}

/// The text of the latest failed call on this device, as `mnkv_backend_last_error`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mnkv_device_last_error(
    device: *const mnkv_device,
    buffer: *mut c_char,
    size: usize,
) -> usize {
    guarded!(|_: Error| 0, {
        // SAFETY: the caller's promise: NULL or `size` writable bytes.
        Ok(unsafe { bytes::copy_text(&HANDLES.last_error(device), buffer, size) })
    })
}

/// # Safety
/// `key` is NULL, or 16 bytes at it are readable.
unsafe fn physical_key(key: *const c_void) -> Result<PhysicalKey> {
    if key.is_null() {
        return Err(invalid("the key is NULL; it is 16 bytes"));
    }
    let mut bytes = [0; 16];
    // SAFETY: not NULL, so by the caller's promise 16 bytes are readable.
    bytes.copy_from_slice(unsafe { slice::from_raw_parts(key.cast::<u8>(), 16) });
    Ok(PhysicalKey(bytes))
}

fn failed(error: CommandError, direction: Direction, command: &str) -> Error {
    if error.is_unsupported() {
        return Error::new(ErrorCode::NotSupported, format!("{command}: {error}"));
    }
    error.into_error(direction, command)
}

fn identified(namespace: &IdentifyKvNamespace) -> mnkv_identify {
    let format = namespace.current();
    mnkv_identify {
        struct_size: size_of::<mnkv_identify>(),
        size_bytes: namespace.size_bytes,
        used_bytes: namespace.used_bytes,
        max_value_size: format.map_or(0, |format| format.max_value_len),
        max_key_size: format.map_or(0, |format| format.max_key_len.into()),
        max_keys: format.map_or(0, |format| format.max_keys),
        optimal_value_granularity: namespace.optimal_value_granularity,
        nguid: namespace.nguid,
        eui64: namespace.eui64,
    }
}
