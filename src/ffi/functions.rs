//! The function table, for programs that load the library with dlopen.

use std::ffi::{c_char, c_void};

use super::*;

/// One pointer for every function of this header, so that a program that loads the library at
/// run time looks up a single symbol, `mnkv_functions_get`.
///
/// The table is static and only grows at its end: a program built against a newer header must
/// see that `struct_size` reaches behind a pointer before it uses it. None of them is NULL.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct mnkv_functions {
    /// Bytes of the library's table.
    pub struct_size: usize,
    /// `mnkv_abi_version`.
    pub abi_version: extern "C" fn() -> u32,
    /// `mnkv_version`.
    pub version: extern "C" fn() -> *const c_char,
    /// `mnkv_status_name`.
    pub status_name: extern "C" fn(status: mnkv_status_t) -> *const c_char,
    /// `mnkv_set_log_callback`.
    pub set_log_callback:
        unsafe extern "C" fn(callback: mnkv_log_fn, user: *mut c_void) -> mnkv_status_t,
    /// `mnkv_last_open_error`.
    pub last_open_error: unsafe extern "C" fn(buffer: *mut c_char, size: usize) -> usize,
    /// `mnkv_config_init`.
    pub config_init: unsafe extern "C" fn(config: *mut mnkv_config) -> mnkv_status_t,
    /// `mnkv_backend_open_from_environment`.
    pub backend_open_from_environment:
        unsafe extern "C" fn(out: *mut *mut mnkv_backend) -> mnkv_status_t,
    /// `mnkv_backend_open`.
    pub backend_open: unsafe extern "C" fn(
        config: *const mnkv_config,
        out: *mut *mut mnkv_backend,
    ) -> mnkv_status_t,
    /// `mnkv_backend_close`.
    pub backend_close: unsafe extern "C" fn(backend: *mut mnkv_backend) -> mnkv_status_t,
    /// `mnkv_backend_offload`.
    pub backend_offload: unsafe extern "C" fn(
        backend: *mut mnkv_backend,
        objects: *const mnkv_object,
        count: usize,
        on_stored: mnkv_stored_fn,
        on_evicted: mnkv_evicted_fn,
        user: *mut c_void,
        statuses: *mut mnkv_status_t,
    ) -> mnkv_status_t,
    /// `mnkv_backend_load`.
    pub backend_load: unsafe extern "C" fn(
        backend: *mut mnkv_backend,
        destinations: *const mnkv_destination,
        count: usize,
        statuses: *mut mnkv_status_t,
    ) -> mnkv_status_t,
    /// `mnkv_backend_exists`.
    pub backend_exists: unsafe extern "C" fn(
        backend: *mut mnkv_backend,
        key: *const c_void,
        key_size: usize,
        out: *mut bool,
    ) -> mnkv_status_t,
    /// `mnkv_backend_is_enabled`.
    pub backend_is_enabled:
        unsafe extern "C" fn(backend: *mut mnkv_backend, out: *mut bool) -> mnkv_status_t,
    /// `mnkv_backend_capabilities`.
    pub backend_capabilities: unsafe extern "C" fn(
        backend: *mut mnkv_backend,
        out: *mut mnkv_capabilities,
    ) -> mnkv_status_t,
    /// `mnkv_backend_last_error`.
    pub backend_last_error: unsafe extern "C" fn(
        backend: *const mnkv_backend,
        buffer: *mut c_char,
        size: usize,
    ) -> usize,
    /// `mnkv_device_open`.
    pub device_open: unsafe extern "C" fn(
        config: *const mnkv_config,
        out: *mut *mut mnkv_device,
    ) -> mnkv_status_t,
    /// `mnkv_device_close`.
    pub device_close: unsafe extern "C" fn(device: *mut mnkv_device) -> mnkv_status_t,
    /// `mnkv_device_store`.
    pub device_store: unsafe extern "C" fn(
        device: *mut mnkv_device,
        key: *const c_void,
        data: *const c_void,
        size: usize,
    ) -> mnkv_status_t,
    /// `mnkv_device_retrieve`.
    pub device_retrieve: unsafe extern "C" fn(
        device: *mut mnkv_device,
        key: *const c_void,
        buffer: *mut c_void,
        capacity: usize,
        value_size: *mut usize,
    ) -> mnkv_status_t,
    /// `mnkv_device_delete`.
    pub device_delete:
        unsafe extern "C" fn(device: *mut mnkv_device, key: *const c_void) -> mnkv_status_t,
    /// `mnkv_device_exist`.
    pub device_exist: unsafe extern "C" fn(
        device: *mut mnkv_device,
        key: *const c_void,
        out: *mut bool,
    ) -> mnkv_status_t,
    /// `mnkv_device_list`.
    pub device_list: unsafe extern "C" fn(
        device: *mut mnkv_device,
        start: *const c_void,
        start_size: usize,
        on_key: mnkv_key_fn,
        user: *mut c_void,
    ) -> mnkv_status_t,
    /// `mnkv_device_identify`.
    pub device_identify:
        unsafe extern "C" fn(device: *mut mnkv_device, out: *mut mnkv_identify) -> mnkv_status_t,
    /// `mnkv_device_last_error`.
    pub device_last_error:
        unsafe extern "C" fn(device: *const mnkv_device, buffer: *mut c_char, size: usize) -> usize,
    /// `mnkv_backend_open_from_environment_and_config`.
    pub backend_open_from_environment_and_config: unsafe extern "C" fn(
        config: *const mnkv_config,
        out: *mut *mut mnkv_backend,
    ) -> mnkv_status_t,
    /// `mnkv_backend_register_memory`.
    pub backend_register_memory: unsafe extern "C" fn(
        backend: *mut mnkv_backend,
        start: *mut c_void,
        size: usize,
    ) -> mnkv_status_t,
    /// `mnkv_backend_unregister_memory`.
    pub backend_unregister_memory:
        unsafe extern "C" fn(backend: *mut mnkv_backend, start: *mut c_void) -> mnkv_status_t,
    /// `mnkv_backend_scan`.
    pub backend_scan: unsafe extern "C" fn(
        backend: *mut mnkv_backend,
        on_page: mnkv_page_fn,
        user: *mut c_void,
        report: *mut mnkv_scan_report,
    ) -> mnkv_status_t,
    /// `mnkv_backend_reset_scan`.
    pub backend_reset_scan: unsafe extern "C" fn(backend: *mut mnkv_backend) -> mnkv_status_t,
    /// `mnkv_backend_usage`.
    pub backend_usage:
        unsafe extern "C" fn(backend: *mut mnkv_backend, out: *mut mnkv_usage) -> mnkv_status_t,
    /// `mnkv_backend_remove`.
    pub backend_remove: unsafe extern "C" fn(
        backend: *mut mnkv_backend,
        key: *const c_void,
        key_size: usize,
    ) -> mnkv_status_t,
    /// `mnkv_backend_remove_all`.
    pub backend_remove_all:
        unsafe extern "C" fn(backend: *mut mnkv_backend, removed: *mut u64) -> mnkv_status_t,
    /// `mnkv_backend_evict_above_watermark`.
    pub backend_evict_above_watermark: unsafe extern "C" fn(
        backend: *mut mnkv_backend,
        high: f64,
        low: f64,
        on_evicted: mnkv_evicted_fn,
        user: *mut c_void,
    ) -> mnkv_status_t,
    /// `mnkv_backend_sweep`.
    pub backend_sweep: unsafe extern "C" fn(
        backend: *mut mnkv_backend,
        dry_run: bool,
        report: *mut mnkv_sweep_report,
    ) -> mnkv_status_t,
}

static FUNCTIONS: mnkv_functions = mnkv_functions {
    struct_size: size_of::<mnkv_functions>(),
    abi_version: mnkv_abi_version,
    version: mnkv_version,
    status_name: mnkv_status_name,
    set_log_callback: mnkv_set_log_callback,
    last_open_error: mnkv_last_open_error,
    config_init: mnkv_config_init,
    backend_open_from_environment: mnkv_backend_open_from_environment,
    backend_open: mnkv_backend_open,
    backend_close: mnkv_backend_close,
    backend_offload: mnkv_backend_offload,
    backend_load: mnkv_backend_load,
    backend_exists: mnkv_backend_exists,
    backend_is_enabled: mnkv_backend_is_enabled,
    backend_capabilities: mnkv_backend_capabilities,
    backend_last_error: mnkv_backend_last_error,
    device_open: mnkv_device_open,
    device_close: mnkv_device_close,
    device_store: mnkv_device_store,
    device_retrieve: mnkv_device_retrieve,
    device_delete: mnkv_device_delete,
    device_exist: mnkv_device_exist,
    device_list: mnkv_device_list,
    device_identify: mnkv_device_identify,
    device_last_error: mnkv_device_last_error,
    backend_open_from_environment_and_config: mnkv_backend_open_from_environment_and_config,
    backend_register_memory: mnkv_backend_register_memory,
    backend_unregister_memory: mnkv_backend_unregister_memory,
    backend_scan: mnkv_backend_scan,
    backend_reset_scan: mnkv_backend_reset_scan,
    backend_usage: mnkv_backend_usage,
    backend_remove: mnkv_backend_remove,
    backend_remove_all: mnkv_backend_remove_all,
    backend_evict_above_watermark: mnkv_backend_evict_above_watermark,
    backend_sweep: mnkv_backend_sweep,
};

/// The function table of the library; never NULL, valid for the life of the process. Thread-safe.
#[unsafe(no_mangle)]
pub extern "C" fn mnkv_functions_get() -> *const mnkv_functions {
    &FUNCTIONS
}
