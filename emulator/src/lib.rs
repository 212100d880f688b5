//! An emulated NVMe Key-Value namespace.
//!
//! A [`Namespace`] executes the same command bytes a device would get and
//! answers with the same status codes and completion dword, so everything
//! above it is tested on real encodings. Values live in memory (`mem:NAME`) or
//! in a directory that survives `kill -9` ([`open`]).
//!
//! What real devices do differently from one another is a [`Personality`];
//! what they do wrong is a scripted [`Fault`]. Nothing here sleeps: a latency
//! model and a scripted delay are reported in [`Outcome::Completed`], and
//! whoever submits the command decides whether to spend the time.

mod admin;
mod counts;
mod data;
mod execute;
mod fault;
mod late;
mod namespace;
mod personality;
mod personality_text;
mod registry;
mod store;
mod sync;
pub mod target;

pub use counts::Counts;
pub use data::{Data, Outcome};
pub use fault::{Effect, Fault, Trigger};
pub use namespace::{NSID, Namespace};
pub use personality::{
    CompletionOrder, DeleteMissing, Latency, ListSupport, Personality, RetrieveLength,
    ShortRetrieve,
};
pub use personality_text::PersonalityError;
pub use registry::{OpenError, forget, open, open_with};
pub use store::Usage;
