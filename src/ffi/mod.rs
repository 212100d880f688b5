//! The C ABI: every exported function of the library, and nothing else that is exported.
//!
//! One file per noun of the header; the comments here are the header's, which cbindgen writes.
//! Everything exported begins with `mnkv_`.
//!
//! | file | idea |
//! |---|---|
//! | `backend`, `object`, `capabilities` | a backend: offload, load, exists |
//! | `lifecycle` | a backend: scan, usage, remove, evict, sweep |
//! | `device` | single commands of a namespace, for experiments |
//! | `config`, `status`, `log`, `version`, `functions` | what they share |
//! | `guard` | no panic crosses the boundary |
//! | `handle`, `fork` | what a handle is, when it ends, and in which process it lives |
//! | `sized`, `bytes` | reading and writing the caller's memory |

#![allow(non_camel_case_types)] // the names are the header's
#![allow(clippy::missing_safety_doc)] // what a caller promises is in the header's prose

mod backend;
mod bytes;
mod capabilities;
mod config;
mod device;
mod fork;
mod functions;
mod guard;
mod handle;
mod lifecycle;
mod log;
mod object;
mod sized;
mod status;
mod version;

pub use backend::*;
pub use capabilities::*;
pub use config::*;
pub use device::*;
pub use functions::*;
pub use lifecycle::*;
pub use log::*;
pub use object::*;
pub use status::*;
pub use version::*;
