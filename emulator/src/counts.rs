//! How many commands of each kind a namespace received.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use nvme_kv_command_set::Opcode;

/// Commands received since the namespace was opened, whatever became of them.
/// Commands that do not decode, or name another namespace, are not counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Store commands.
    pub store: u64,
    /// Retrieve commands.
    pub retrieve: u64,
    /// List commands.
    pub list: u64,
    /// Delete commands.
    pub delete: u64,
    /// Exist commands.
    pub exist: u64,
    /// Identify commands.
    pub identify: u64,
}

#[derive(Default)]
pub(crate) struct Counters {
    store: AtomicU64,
    retrieve: AtomicU64,
    list: AtomicU64,
    delete: AtomicU64,
    exist: AtomicU64,
    identify: AtomicU64,
}

impl Counters {
    pub(crate) fn count(&self, opcode: Opcode) {
        let counter = match opcode {
            Opcode::Store => &self.store,
            Opcode::Retrieve => &self.retrieve,
            Opcode::List => &self.list,
            Opcode::Delete => &self.delete,
            Opcode::Exist => &self.exist,
        };
        counter.fetch_add(1, Relaxed);
    }

    pub(crate) fn count_identify(&self) {
        self.identify.fetch_add(1, Relaxed);
    }

    pub(crate) fn snapshot(&self) -> Counts {
        Counts {
            store: self.store.load(Relaxed),
            retrieve: self.retrieve.load(Relaxed),
            list: self.list.load(Relaxed),
            delete: self.delete.load(Relaxed),
            exist: self.exist.load(Relaxed),
            identify: self.identify.load(Relaxed),
        }
    }
}
