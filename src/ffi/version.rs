//! Versions.

use std::ffi::c_char;

/// As in the header, which says how it counts; build.rs has the major number.
pub(super) const ABI_VERSION: u32 = 1;

/// The MNKV_ABI_VERSION of the library. Thread-safe.
#[unsafe(no_mangle)]
pub extern "C" fn mnkv_abi_version() -> u32 {
    ABI_VERSION
}

/// The version of the library, e.g. `0.1.0`. The string is static. Thread-safe.
#[unsafe(no_mangle)]
pub extern "C" fn mnkv_version() -> *const c_char {
    const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "\0");
    VERSION.as_ptr().cast()
}
