//! Every key on the device, page by page, whatever the device's listing is like.
//!
//! There is no "more" flag: a page is asked for from the last key of the one before, and the end
//! is a page that brings nothing new. Devices may list in key order, in another order, or begin
//! again at the start after the last key.

use std::collections::HashSet;

use nvme_kv_command_set::{Key, ListScanner};

use crate::device::{CommandError, Executor};

/// Bytes of one page: some 3,000 keys.
const PAGE_BYTES: usize = 64 << 10;

/// A walk over all keys.
pub(super) struct Listing {
    last: Option<Key>,
    page: Vec<u8>,
    seen: Seen,
}

/// Which keys have been passed.
enum Seen {
    Nothing,
    /// All up to this one: the first page came in key order.
    UpTo(Key),
    /// These: the first page did not.
    These(HashSet<Key>),
}

impl Seen {
    /// Takes the keys of a page and returns those that are new.
    fn take(&mut self, keys: Vec<Key>) -> Vec<Key> {
        if let Seen::Nothing = self {
            let Some(last) = keys.last() else { return keys };
            if keys.is_sorted() {
                *self = Seen::UpTo(*last);
            } else {
                *self = Seen::These(keys.iter().copied().collect());
            }
            return keys;
        }
        match self {
            Seen::Nothing => keys,
            Seen::UpTo(last) => {
                let new: Vec<Key> = keys.into_iter().filter(|key| *key > *last).collect();
                if let Some(highest) = new.iter().max() {
                    *last = *highest;
                }
                new
            }
            Seen::These(seen) => keys.into_iter().filter(|key| seen.insert(*key)).collect(),
        }
    }
}

impl Listing {
    pub(super) fn new() -> Self {
        Listing { last: None, page: vec![0; PAGE_BYTES], seen: Seen::Nothing }
    }

    /// The next keys; none at the end.
    pub(super) fn next(&mut self, executor: &dyn Executor) -> Result<Vec<Key>, CommandError> {
        self.page.fill(0);
        executor.list(self.last.as_ref(), &mut self.page)?;
        let keys: Vec<Key> = ListScanner::new(&self.page).collect();
        if let Some(last) = keys.last() {
            self.last = Some(*last);
        }
        Ok(self.seen.take(keys))
    }
}
