//! How much may be stored, and how much of it is taken or promised.

use super::index::{Footprint, Index, Usage};
use super::sync::{Mutex, MutexGuard};
use crate::config::LifecycleConfig;
use crate::device::Capabilities;
use crate::error::{Error, ErrorCode, Result};

/// Limits, lowered by what the namespace says of itself.
#[derive(Debug)]
pub(super) struct Quota {
    /// What may be stored at most.
    pub(super) limit: Usage,
    promised: Mutex<Usage>,
}

impl Quota {
    pub(super) fn new(config: &LifecycleConfig, capabilities: &Capabilities) -> Self {
        let namespace_bytes = capabilities.namespace_bytes.unwrap_or(u64::MAX);
        let limit = Usage {
            objects: config.max_objects,
            values: capabilities.namespace_values.unwrap_or(u64::MAX),
            bytes: config.max_bytes.min(namespace_bytes),
        };
        Quota { limit, promised: Mutex::default() }
    }

    fn promised(&self) -> MutexGuard<'_, Usage> {
        self.promised.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// What would have to go for `more` to fit, on top of what is stored and promised.
    pub(super) fn missing(&self, index: &Index, more: Usage) -> Usage {
        self.beyond(index.usage(), *self.promised(), more)
    }

    fn beyond(&self, used: Usage, promised: Usage, more: Usage) -> Usage {
        let beyond = |used: u64, promised: u64, more: u64, limit: u64| {
            used.saturating_add(promised).saturating_add(more).saturating_sub(limit)
        };
        Usage {
            objects: beyond(used.objects, promised.objects, more.objects, self.limit.objects),
            values: beyond(used.values, promised.values, more.values, self.limit.values),
            bytes: beyond(used.bytes, promised.bytes, more.bytes, self.limit.bytes),
        }
    }

    /// Which limits there are, and how much of them is used.
    fn full(&self, used: Usage) -> String {
        let of = |used: u64, limit: u64, what: &str| match limit {
            u64::MAX => format!("{used} {what}"),
            _ => format!("{used} of {limit} {what}"),
        };
        format!(
            "full: {}, {} and {} are stored; raise total_keys_limit or total_size_limit, take a \
             larger namespace, or let objects be evicted (MOONCAKE_NVME_KV_EVICTION_POLICY)",
            of(used.objects, self.limit.objects, "objects"),
            of(used.values, self.limit.values, "values"),
            of(used.bytes, self.limit.bytes, "bytes")
        )
    }

    /// Promises room for an object that replaces one of `replaced`.
    ///
    /// # Errors
    /// KEYS_ULTRA_LIMIT when it does not fit.
    pub(super) fn promise(
        &self,
        index: &Index,
        new: Footprint,
        replaced: Footprint,
    ) -> Result<Promise<'_>> {
        let more = growth(new, replaced);
        let mut promised = self.promised();
        let beyond = self.beyond(index.usage(), *promised, more);
        // An object that needs no more room than it has is never refused.
        if beyond != Usage::default() && more != Usage::default() {
            return Err(Error::new(ErrorCode::KeysUltraLimit, self.full(index.usage())));
        }
        promised.objects += more.objects;
        promised.values += more.values;
        promised.bytes += more.bytes;
        Ok(Promise { quota: self, more })
    }
}

/// What storing an object in place of another adds.
pub(super) fn growth(new: Footprint, replaced: Footprint) -> Usage {
    Usage {
        objects: u64::from(replaced.values == 0),
        values: u64::from(new.values.saturating_sub(replaced.values)),
        bytes: new.bytes.saturating_sub(replaced.bytes),
    }
}

/// Room that is promised until the object is in the index or given up.
#[derive(Debug)]
pub(super) struct Promise<'q> {
    quota: &'q Quota,
    more: Usage,
}

impl Drop for Promise<'_> {
    fn drop(&mut self) {
        let mut promised = self.quota.promised();
        promised.objects -= self.more.objects;
        promised.values -= self.more.values;
        promised.bytes -= self.more.bytes;
    }
}
