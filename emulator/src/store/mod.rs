//! Where values live: one interface, a store in memory and one in a directory.

mod accounting;
mod file;
mod memory;
mod shards;

use std::{ops::Deref, sync::Arc};

use nvme_kv_command_set::{Key, StoreOptions};

use crate::data::Payload;

pub(crate) use accounting::Limits;
pub use accounting::Usage;
pub(crate) use file::{DirectoryError, FileStore};
pub(crate) use memory::MemoryStore;
pub(crate) use shards::WalkOrder;

/// Holds the values of one namespace. Every method may be called from any
/// number of threads at once.
pub(crate) trait Store: Send + Sync {
    fn contains(&self, key: &Key) -> bool;

    fn get(&self, key: &Key) -> Result<Option<Value>, StoreFailure>;

    /// Checks the options and the limits and stores, as one atomic step per
    /// key. When it returns, the value is as durable as this store makes it.
    fn put(
        &self,
        key: &Key,
        payload: Payload<'_>,
        options: StoreOptions,
        limits: Limits,
    ) -> Result<(), PutError>;

    /// Whether there was something to remove.
    fn remove(&self, key: &Key) -> Result<bool, StoreFailure>;

    /// Visits keys from `start` (included if present) on, each once, until
    /// `visit` answers false.
    fn walk(&self, order: WalkOrder, start: Option<&Key>, visit: &mut dyn FnMut(&Key) -> bool);

    fn usage(&self) -> Usage;
}

/// A stored value, shared and not copied.
pub(crate) enum Value {
    Memory(Arc<Vec<u8>>),
    File(fjall::Slice),
}

impl Deref for Value {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Memory(bytes) => bytes,
            Self::File(bytes) => bytes,
        }
    }
}

/// Why a value was not stored.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PutError {
    #[error("the key exists")]
    KeyExists,
    #[error("the key does not exist")]
    KeyNotFound,
    #[error("the capacity is exceeded")]
    CapacityExceeded,
    #[error(transparent)]
    Failure(StoreFailure),
}

/// The medium failed: an I/O error of the file store.
#[derive(Debug, thiserror::Error)]
#[error("the file store failed: {0}")]
pub(crate) struct StoreFailure(#[from] fjall::Error);

/// The store options of a command, given whether its key is there.
fn check_options(options: StoreOptions, present: bool) -> Result<(), PutError> {
    if options.must_not_exist && present {
        Err(PutError::KeyExists)
    } else if options.must_exist && !present {
        Err(PutError::KeyNotFound)
    } else {
        Ok(())
    }
}
