//! The device room: one configured namespace, and how commands reach it.
//!
//! | layer | owns |
//! |---|---|
//! | [`Connector`] | one configured namespace; picks one executor at open; forwards |
//! | [`Executor`] | encodes and submits commands, transport buffers, completions |
//!
//! Nothing here knows what a root, a manifest or a logical key is.

mod arena;
mod buffer;
mod connector;
#[cfg(feature = "emulated")]
mod emulated;
mod error;
mod executor;
pub mod fault;
mod flight;
mod io_uring;
mod ioctl;
mod kernel_result;
mod memory;
mod node;
mod ownership;
mod placement;
mod queue;
mod statistics;
mod workers;

pub use buffer::{Buffer, BufferPool};
pub use connector::Connector;
#[cfg(feature = "emulated")]
pub use emulated::EmulatedExecutor;
pub use error::{CommandError, Direction};
pub use executor::{
    Capabilities, Completion, Executor, Operation, Reply, Request, Stream, execute_batch,
    execute_one,
};
pub use io_uring::IoUringExecutor;
pub use ioctl::IoctlExecutor;
pub use memory::{Destination, Payload, PayloadRange, Target, Value};
pub use ownership::Ownership;
pub(crate) use ownership::inherited_descriptors;
pub use statistics::Statistics;
