//! The NVMe Key Value command set as Rust types.
//!
//! Everything here is pure: commands, status, Identify data and List pages go from typed values
//! to the exact bytes and back. There is no I/O, no clock and no environment, so a driver, an
//! emulated device and a fuzzer share the same code.
//!
//! Sources of the rules are the NVMe Key Value Command Set Specification 1.0, the NVMe Base
//! Specification 2.0 (status, Identify) and the Linux header `linux/nvme_ioctl.h` (structures
//! and request numbers of the passthrough interface).
//!
//! ```
//! use nvme_kv_command_set::{Command, PhysicalKey, StoreOptions, Wire};
//!
//! let wire = Wire::default();
//! let key = PhysicalKey([0x2a; 16]);
//! let sent = wire.store(&key, 100, StoreOptions::IF_ABSENT, 0x1000);
//! let seen = sent.decode().unwrap();
//! assert_eq!(
//!     seen,
//!     Command::Store {
//!         key: wire.device_key(&key),
//!         value_len: 4096, // padded to the transfer alignment
//!         options: StoreOptions::IF_ABSENT,
//!     }
//! );
//! ```

#![forbid(unsafe_code)]

mod bytes;
mod command;
mod descriptors;
mod identify;
mod key;
pub mod linux;
mod list;
mod list_scanner;
mod opcode;
mod passthrough;
mod status;
mod wire;

pub use command::{Command, StoreOptions};
pub use descriptors::NamespaceDescriptors;
pub use identify::{CSI_KV, IDENTIFY_LEN, IdentifyError, IdentifyKvNamespace, KvFormat, cns};
pub use key::{Key, MAX_KEY_LEN, PhysicalKey};
pub use list::{ListError, ListPageBuilder, parse_list};
pub use list_scanner::ListScanner;
pub use opcode::{Opcode, UnknownOpcode, admin};
pub use passthrough::{DecodeError, PassthroughCommand, PassthroughCommand64};
pub use status::{KvStatus, Status};
pub use wire::{Wire, WireProfile};
