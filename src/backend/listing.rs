//! Every key on the device, page by page, whatever the device's listing is like, in memory that
//! does not grow with the number of keys.
//!
//! There is no "more" flag: a page is asked for from the last key of the one before. Devices list
//! in key order or in another, may begin again at the start after the last key, and may do
//! anything when the key to go on from has been deleted meanwhile.

use std::collections::HashSet;

use nvme_kv_command_set::{Key, ListScanner};

use crate::device::{CommandError, Executor};

/// Bytes of one page: some 3,000 keys.
const PAGE_BYTES: usize = 64 << 10;
/// So many of the latest keys are kept to go on from.
const ANCHORS: usize = 8;
/// How often a walk begins again, because none of the latest keys is left.
const RESTARTS: u32 = 64;

/// The List command: start key and page.
type List<'l> = &'l mut dyn FnMut(Option<&Key>, &mut [u8]) -> Result<(), CommandError>;

/// A walk over all keys. One that is on the device all the time is met at least once, and more
/// than once only if others vanish meanwhile.
pub(super) struct Listing {
    page: Vec<u8>,
    /// The latest keys, in the order of the device.
    latest: Vec<Key>,
    /// Keys of one page each, whose return means that the device has begun again: the first page,
    /// and one that is replaced at ever longer intervals, should all of the first be deleted.
    first: HashSet<Key>,
    checkpoint: HashSet<Key>,
    pages: u64,
    /// All keys came in key order so far.
    ascending: bool,
    restarts: u32,
    ended: bool,
}

impl Listing {
    pub(super) fn new() -> Self {
        Listing {
            page: vec![0; PAGE_BYTES],
            latest: Vec::new(),
            first: HashSet::new(),
            checkpoint: HashSet::new(),
            pages: 0,
            ascending: true,
            restarts: 0,
            ended: false,
        }
    }

    /// The next keys; none at the end.
    pub(super) fn next(&mut self, executor: &dyn Executor) -> Result<Vec<Key>, CommandError> {
        self.advance(&mut |start, page| executor.list(start, page))
    }

    fn advance(&mut self, list: List<'_>) -> Result<Vec<Key>, CommandError> {
        while !self.ended {
            let Some(keys) = self.go_on(list)? else {
                if self.restarts == RESTARTS {
                    return Err(CommandError::Unanswered("List lost its place too often"));
                }
                *self = Listing { restarts: self.restarts + 1, ..Listing::new() };
                continue;
            };
            let begun_again = |key: &Key| self.first.contains(key) || self.checkpoint.contains(key);
            let new: Vec<Key> = keys.into_iter().take_while(|key| !begun_again(key)).collect();
            self.note(&new);
            return Ok(new);
        }
        Ok(Vec::new())
    }

    /// The keys after the latest one. `None`: the place is lost.
    fn go_on(&mut self, list: List<'_>) -> Result<Option<Vec<Key>>, CommandError> {
        let mut from_latest = None;
        for index in (0..self.latest.len()).rev() {
            let keys = self.list(list, Some(self.latest[index]))?;
            let passed = &self.latest[index..];
            // Some devices leave the start key out.
            if keys.first().is_some_and(|key| passed[..passed.len().min(2)].contains(key)) {
                let new = keys.into_iter().skip_while(|key| passed.contains(key));
                return Ok(Some(new.collect()));
            }
            from_latest.get_or_insert(keys);
        }
        match (from_latest, self.latest.last()) {
            (None, _) | (_, None) => self.list(list, None).map(Some),
            // In key order the next key is right even if none of the latest is left.
            (Some(keys), Some(latest)) if self.ascending => {
                Ok(Some(keys.into_iter().filter(|key| key > latest).collect()))
            }
            (Some(_), Some(_)) => Ok(None),
        }
    }

    fn list(&mut self, list: List<'_>, from: Option<Key>) -> Result<Vec<Key>, CommandError> {
        self.page.fill(0);
        list(from.as_ref(), &mut self.page)?;
        Ok(ListScanner::new(&self.page).collect())
    }

    /// Takes over what was new; nothing was is the end.
    fn note(&mut self, new: &[Key]) {
        self.ended = new.is_empty();
        self.pages += 1;
        if self.pages == 1 {
            self.first = new.iter().copied().collect();
        } else if self.pages.is_power_of_two() {
            self.checkpoint = new.iter().copied().collect();
        }
        let in_order = |latest: &Key| new.first().is_none_or(|key| key > latest);
        self.ascending &= new.is_sorted() && self.latest.last().is_none_or(in_order);
        self.latest.extend(&new[new.len().saturating_sub(ANCHORS)..]);
        self.latest.drain(..self.latest.len().saturating_sub(ANCHORS));
    }
}

#[cfg(test)]
mod tests;
