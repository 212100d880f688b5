//! List pages: reading whatever keys can be read.

use crate::Key;
use crate::bytes::{u16_at, u32_at};
use crate::list::{COUNT_LEN, LENGTH_LEN, entry_len};

/// Longest entry that is passed over. Vendor command sets before the standard one had keys of up
/// to 255 bytes; a larger length is not a length.
const MAX_SKIPPED_LEN: usize = 255;

/// Yields each plausible key of a page until the count is reached, the bytes end or they stop
/// making sense.
///
/// Unlike [`parse_list`](crate::parse_list) it accepts padding that is not zero, a last entry
/// without its padding and a count that is too large, and passes over keys longer than 16
/// bytes. It borrows the page and allocates nothing.
///
/// ```
/// use nvme_kv_command_set::{Key, ListPageBuilder, ListScanner};
///
/// let mut builder = ListPageBuilder::new(64);
/// assert!(builder.push(&Key::new(b"one").unwrap()));
/// let mut page = builder.finish();
/// page[0] = 200; // the device counts more than it wrote
/// let mut scanner = ListScanner::new(&page);
/// assert_eq!(scanner.by_ref().count(), 1);
/// assert!(scanner.truncated());
/// ```
#[derive(Clone, Debug)]
pub struct ListScanner<'a> {
    page: &'a [u8],
    offset: usize,
    remaining: u32,
    skipped: usize,
    truncated: bool,
}

impl<'a> ListScanner<'a> {
    /// A scanner over a page.
    pub fn new(page: &'a [u8]) -> Self {
        let count = u32_at(page, 0);
        Self {
            page,
            offset: COUNT_LEN,
            remaining: count.unwrap_or(0),
            skipped: 0,
            truncated: count.is_none(),
        }
    }

    /// Entries passed over so far because their key is longer than 16 bytes.
    pub fn skipped(&self) -> usize {
        self.skipped
    }

    /// Whether the scan ended before the count was reached. Final once the iterator has ended.
    pub fn truncated(&self) -> bool {
        self.truncated
    }

    /// Key bytes of the next entry, or `None` where the bytes end or stop making sense.
    fn entry(&mut self) -> Option<&'a [u8]> {
        let len = usize::from(u16_at(self.page, self.offset)?);
        // A length of zero is what a buffer holds where the device wrote nothing.
        if len == 0 || len > MAX_SKIPPED_LEN {
            return None;
        }
        let start = self.offset + LENGTH_LEN;
        let key = self.page.get(start..start + len)?;
        self.offset += entry_len(len);
        Some(key)
    }
}

impl Iterator for ListScanner<'_> {
    type Item = Key;

    fn next(&mut self) -> Option<Key> {
        while self.remaining > 0 {
            let Some(bytes) = self.entry() else {
                self.remaining = 0;
                self.truncated = true;
                return None;
            };
            self.remaining -= 1;
            match Key::new(bytes) {
                Some(key) => return Some(key),
                None => self.skipped += 1,
            }
        }
        None
    }
}

impl std::iter::FusedIterator for ListScanner<'_> {}
