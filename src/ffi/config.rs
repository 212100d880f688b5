//! Settings.

use std::collections::HashMap;
use std::ffi::{CStr, c_char};
use std::ptr;

use super::bytes::invalid;
use super::guard::guarded;
use super::handle::fail_on_this_thread;
use super::sized::{self, Sized};
use super::status::{OK, mnkv_status_t};
use crate::config::{Config, Environment, ProcessEnvironment};
use crate::error::{Error, Result};

/// How commands reach the namespace.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum mnkv_transport {
    /// io_uring, or ioctl where io_uring cannot be initialised.
    MNKV_TRANSPORT_AUTO = 0,
    /// io_uring, with no fallback.
    MNKV_TRANSPORT_IO_URING = 1,
    /// ioctl, with no fallback.
    MNKV_TRANSPORT_IOCTL = 2,
    /// A namespace inside this process, in memory or in a directory; in builds that have it.
    MNKV_TRANSPORT_EMULATED = 3,
}

/// How keys and sizes are put into a command.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum mnkv_wire_profile {
    /// As Mooncake's C++ backend does.
    MNKV_WIRE_MOONCAKE = 0,
    /// As the NVMe Key Value Command Set Specification says.
    MNKV_WIRE_SPEC = 1,
}

/// The checksum of newly written objects; both kinds can be read at any time.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum mnkv_checksum {
    /// XXH32, which Mooncake's C++ backend can read.
    MNKV_CHECKSUM_XXH32 = 0,
    /// CRC-32: faster, but not known to the C++ backend.
    MNKV_CHECKSUM_CRC32 = 1,
}

/// Which objects leave when a limit or the device's capacity is reached.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum mnkv_eviction_policy {
    /// The ones not used for longest; storing and loading are uses.
    MNKV_EVICTION_LRU = 0,
    /// The ones stored first.
    MNKV_EVICTION_FIFO = 1,
    /// None: a full backend refuses new objects.
    MNKV_EVICTION_NONE = 2,
}

/// Who else may use the namespace, and what the backend may do to it.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum mnkv_access {
    /// The backend owns the namespace; a second owner, in this process or another, is refused.
    MNKV_ACCESS_EXCLUSIVE = 0,
    /// Nothing is changed and nothing is owned: beside an owner. What changes the device is
    /// NOT_SUPPORTED.
    MNKV_ACCESS_READ_ONLY = 1,
    /// For experts who keep writers apart themselves: everything is allowed, nothing is owned.
    /// Two backends that write the same namespace lose objects of each other.
    MNKV_ACCESS_SHARED = 2,
}

/// Settings for an open. Each is named after its environment variable, MOONCAKE_NVME_KV_ and the
/// name in capitals, and 0 or NULL selects the default that an unset variable has. The
/// environment itself is not read, except by `mnkv_backend_open_from_environment_and_config`. The
/// struct and its text may be freed after the call.
///
/// `mnkv_config config = { .struct_size = sizeof config, .device_path = "/dev/ng0n1" };`
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct mnkv_config {
    /// sizeof(mnkv_config).
    pub struct_size: usize,
    /// The namespace's device node; for the emulated transport `mem:NAME` or a directory.
    /// NUL-terminated UTF-8. Required.
    pub device_path: *const c_char,
    /// Namespace identifier in every command. Default: what the device node says, else 1.
    pub nsid: u32,
    /// Commands in flight at once. Default 256.
    pub queue_depth: u32,
    /// Largest transfer that the host wants to make, bytes. Default 270336.
    pub runtime_transfer_limit: u32,
    /// One of `enum mnkv_transport`.
    pub transport: u32,
    /// One of `enum mnkv_wire_profile`.
    pub wire_profile: u32,
    /// One of `enum mnkv_checksum`.
    pub checksum: u32,
    /// Largest value that the device takes, bytes. Default 524288.
    pub protocol_max_value_size: u32,
    /// Transfers are padded to a multiple of this many bytes. Default 4096.
    pub transfer_alignment: u32,
    /// Unit of the value block count in commands (Mooncake's wire profile), bytes. Default 512.
    pub value_block_unit: u32,
    /// Upper bound of `io_concurrency`. Default 256.
    pub max_io_concurrency: u32,
    /// I/O concurrency in all. Default: the smallest of the queue depth, 18 and the bound.
    pub io_concurrency: u32,
    /// Objects being prepared at once. Default 12, within what `io_concurrency` leaves.
    pub prepare_concurrency: u32,
    /// Lanes for chunks. Default 6, within what `io_concurrency` leaves.
    pub batch_submit_concurrency: u32,
    /// Lanes for roots. Default 1, within what `io_concurrency` leaves.
    pub root_submit_concurrency: u32,
    /// Objects that one lane of a load is worth, 1 to 1024. Default 8.
    pub read_plan_batch_size: u32,
    /// How long one command may take, milliseconds. Default 30000.
    pub command_timeout_ms: u32,
    /// Bytes that are writable behind the last slice of every destination of a load, beyond its
    /// size; a device may leave padding there. Default 0. Mooncake's FileStorage provides the
    /// rest of the last page. Has no environment variable.
    pub destination_slack: usize,
    /// One of `enum mnkv_eviction_policy`.
    pub eviction_policy: u32,
    /// One of `enum mnkv_access`.
    pub access: u32,
    /// Objects kept at most. Default 10,000,000. Has no environment variable.
    pub total_keys_limit: u64,
    /// Bytes kept at most, as the device counts them: padded values of roots and chunks. Default
    /// 2 TiB, and never more than the namespace has. Has no environment variable.
    pub total_size_limit: u64,
    /// Objects in one page of a scan at most. Default 20,000. Has no environment variable.
    pub scan_page_size: u32,
    /// MiB of data that one offload has in flight at most, however large the batch. Default 128.
    pub staging_mib: u32,
}

// SAFETY: repr(C), struct_size first, and the rest are numbers and a pointer.
unsafe impl Sized for mnkv_config {
    const NAME: &'static str = "mnkv_config";
    const LEAST: usize =
        std::mem::offset_of!(mnkv_config, device_path) + size_of::<*const c_char>();
}

/// Sets every field of `*config` to "use the default", but keeps `struct_size`, which the caller
/// has set before.
///
/// Returns INVALID_PARAMS when `config` is NULL or its `struct_size` impossible. Thread-safe for
/// different structs.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mnkv_config_init(config: *mut mnkv_config) -> mnkv_status_t {
    guarded!(|error: Error| fail_on_this_thread(&error), {
        // SAFETY: the caller's promise: NULL or as many bytes as `struct_size` says.
        unsafe { sized::write(config, &DEFAULT)? };
        Ok(OK)
    })
}

const DEFAULT: mnkv_config = mnkv_config {
    struct_size: size_of::<mnkv_config>(),
    device_path: ptr::null(),
    nsid: 0,
    queue_depth: 0,
    runtime_transfer_limit: 0,
    transport: 0,
    wire_profile: 0,
    checksum: 0,
    protocol_max_value_size: 0,
    transfer_alignment: 0,
    value_block_unit: 0,
    max_io_concurrency: 0,
    io_concurrency: 0,
    prepare_concurrency: 0,
    batch_submit_concurrency: 0,
    root_submit_concurrency: 0,
    read_plan_batch_size: 0,
    command_timeout_ms: 0,
    destination_slack: 0,
    eviction_policy: 0,
    access: 0,
    total_keys_limit: 0,
    total_size_limit: 0,
    scan_page_size: 0,
    staging_mib: 0,
};

/// The settings in `config`, and its slack behind destinations.
///
/// # Safety
/// As [`settings`].
pub(super) unsafe fn read_config(config: *const mnkv_config) -> Result<(Config, usize)> {
    // SAFETY: the caller's promise.
    let (config, settings) = unsafe { settings(config)? };
    if !settings.contains_key(DEVICE_PATH) {
        return Err(invalid(
            "mnkv_config.device_path is NULL; name the namespace, e.g. /dev/ng0n1",
        ));
    }
    Ok((with_limits(&config, Config::from_environment(&settings)?), config.destination_slack))
}

/// The settings of the process's environment, but for those that `config` has, and its slack
/// behind destinations.
///
/// # Safety
/// As [`settings`].
pub(super) unsafe fn read_environment_and_config(
    config: *const mnkv_config,
) -> Result<(Config, usize)> {
    // SAFETY: the caller's promise.
    let (config, settings) = unsafe { settings(config)? };
    let environment = Overridden(settings);
    Ok((with_limits(&config, Config::from_environment(&environment)?), config.destination_slack))
}

/// `to` with the limits of `from`, which have no variables.
fn with_limits(from: &mnkv_config, mut to: Config) -> Config {
    let limits = &mut to.lifecycle;
    if from.total_keys_limit != 0 {
        limits.max_objects = from.total_keys_limit;
    }
    if from.total_size_limit != 0 {
        limits.max_bytes = from.total_size_limit;
    }
    if from.scan_page_size != 0 {
        limits.scan_page = from.scan_page_size;
    }
    to
}

/// The process's environment under settings that come first.
struct Overridden(HashMap<String, String>);

impl Environment for Overridden {
    fn var(&self, name: &str) -> Option<String> {
        self.0.var(name).or_else(|| ProcessEnvironment.var(name))
    }
}

const DEVICE_PATH: &str = "MOONCAKE_NVME_KV_DEVICE_PATH";

/// The struct at `config`, and what it sets as an environment that holds nothing else, so that
/// defaults, derivations and caps are the same.
///
/// # Safety
/// `config` is NULL or points to as many bytes as its `struct_size` says, and its `device_path`
/// is NULL or NUL-terminated.
unsafe fn settings(config: *const mnkv_config) -> Result<(mnkv_config, HashMap<String, String>)> {
    // SAFETY: the caller's promise.
    let config = unsafe { sized::read(config)? };
    let words = [
        ("TRANSPORT", config.transport, &["auto", "io_uring", "ioctl", "emulated"][..]),
        ("WIRE_PROFILE", config.wire_profile, &["mooncake", "spec"]),
        ("CHECKSUM", config.checksum, &["xxh32", "crc32"]),
        ("EVICTION_POLICY", config.eviction_policy, &["lru", "fifo", "none"]),
        ("ACCESS", config.access, &["exclusive", "read_only", "shared"]),
    ];
    let numbers = [
        ("NSID", config.nsid),
        ("QUEUE_DEPTH", config.queue_depth),
        ("RUNTIME_TRANSFER_LIMIT", config.runtime_transfer_limit),
        ("PROTOCOL_MAX_VALUE_SIZE", config.protocol_max_value_size),
        ("TRANSFER_ALIGNMENT_BYTES", config.transfer_alignment),
        ("VALUE_BLOCK_UNIT_BYTES", config.value_block_unit),
        ("MAX_IO_CONCURRENCY", config.max_io_concurrency),
        ("IO_CONCURRENCY", config.io_concurrency),
        ("PREPARE_CONCURRENCY", config.prepare_concurrency),
        ("BATCH_SUBMIT_CONCURRENCY", config.batch_submit_concurrency),
        ("ROOT_SUBMIT_CONCURRENCY", config.root_submit_concurrency),
        ("READ_PLAN_BATCH_SIZE", config.read_plan_batch_size),
        ("COMMAND_TIMEOUT_MS", config.command_timeout_ms),
        ("STAGING_MIB", config.staging_mib),
    ];
    let mut settings = HashMap::new();
    let mut set = |name: &str, value: String| {
        settings.insert(format!("MOONCAKE_NVME_KV_{name}"), value);
    };
    // SAFETY: the caller's promise.
    if let Some(path) = unsafe { device_path(config.device_path)? } {
        set("DEVICE_PATH", path.to_owned());
    }
    for (name, number, words) in words {
        // The first one is the default.
        let word = word(name, number, words)?;
        if number != 0 {
            set(name, word.to_owned());
        }
    }
    for (name, number) in numbers {
        if number != 0 {
            set(name, number.to_string());
        }
    }
    Ok((config, settings))
}

/// # Safety
/// `path` is NULL or NUL-terminated and lives for `'a`.
unsafe fn device_path<'a>(path: *const c_char) -> Result<Option<&'a str>> {
    if path.is_null() {
        return Ok(None);
    }
    // SAFETY: not NULL, so by the caller's promise NUL-terminated.
    let path = unsafe { CStr::from_ptr(path) };
    let text = path.to_str();
    let text =
        text.map_err(|_| invalid(format!("mnkv_config.device_path {path:?} is not UTF-8")))?;
    Ok(Some(text))
}

fn word<'w>(field: &str, number: u32, words: &[&'w str]) -> Result<&'w str> {
    words.get(number as usize).copied().ok_or_else(|| {
        invalid(format!(
            "mnkv_config.{} is {number}; it is 0 to {} for {}",
            field.to_lowercase(),
            words.len() - 1,
            words.join(", ")
        ))
    })
}
