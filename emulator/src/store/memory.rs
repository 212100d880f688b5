//! Values in memory, for tests and benchmarks.

use std::sync::Arc;

use nvme_kv_command_set::{Key, StoreOptions};

use crate::{
    data::Payload,
    store::{
        PutError, Store, StoreFailure, Usage, Value, WalkOrder,
        accounting::{Accounting, Limits},
        check_options,
        shards::Shards,
    },
};

/// Values are copied once on the way in, before any lock is taken, and once
/// on the way out, after it was released. Shard locks cover map operations
/// only, and memory is freed outside them.
pub(crate) struct MemoryStore {
    values: Shards<Arc<Vec<u8>>>,
    accounting: Accounting,
}

impl MemoryStore {
    pub(crate) fn new() -> Self {
        Self { values: Shards::new(), accounting: Accounting::default() }
    }
}

impl Store for MemoryStore {
    fn contains(&self, key: &Key) -> bool {
        self.values.read(key).contains_key(key)
    }

    fn get(&self, key: &Key) -> Result<Option<Value>, StoreFailure> {
        Ok(self.values.read(key).get(key).cloned().map(Value::Memory))
    }

    fn put(
        &self,
        key: &Key,
        payload: Payload<'_>,
        options: StoreOptions,
        limits: Limits,
    ) -> Result<(), PutError> {
        if options.must_exist || options.must_not_exist {
            // Spares the copy when the answer is already known; what counts is
            // the check under the write lock.
            check_options(options, self.contains(key))?;
        }
        let value = Arc::new(payload.to_vec());
        let mut shard = self.values.write(key);
        let old = shard.get(key).map(|old| old.len() as u64);
        check_options(options, old.is_some())?;
        if !self.accounting.replace(old, value.len() as u64, limits) {
            return Err(PutError::CapacityExceeded);
        }
        let replaced = shard.insert(*key, value);
        drop(shard);
        drop(replaced);
        Ok(())
    }

    fn remove(&self, key: &Key) -> Result<bool, StoreFailure> {
        let mut shard = self.values.write(key);
        let removed = shard.remove(key);
        if let Some(value) = &removed {
            self.accounting.remove(value.len() as u64);
        }
        drop(shard);
        Ok(removed.is_some())
    }

    fn walk(&self, order: WalkOrder, start: Option<&Key>, visit: &mut dyn FnMut(&Key) -> bool) {
        self.values.walk(order, start, visit);
    }

    fn usage(&self) -> Usage {
        self.accounting.usage()
    }
}
