//! NVMe Key-Value storage backend for Mooncake Store.
//!
//! Logical objects (a byte-string key, a payload of any size that one manifest can describe) are
//! kept on one NVMe Key-Value namespace. ARCHITECTURE.md draws the rooms and the flows between
//! them; data goes one way: [`backend`] -> ([`layout`]) -> [`device`].

pub mod backend;
pub mod config;
pub mod device;
pub mod error;
pub mod ffi;
pub mod layout;
pub mod log;

pub use error::{Error, ErrorCode, Result};
