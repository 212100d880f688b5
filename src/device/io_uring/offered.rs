//! Memory that rings register when they are set up: the arena of the buffer pool and what the
//! caller offers.

use std::io;
use std::os::fd::AsFd;

use super::fixed::RegionTable;
use super::ring::Ring;

/// What is offered, and the ring that has it for others to share.
#[derive(Debug)]
pub(super) struct Offered {
    /// (address, bytes), disjoint.
    ranges: Vec<(usize, usize)>,
    /// Changes with what is offered; a ring with another version is closed.
    version: u64,
    /// Registration was refused once; rings go without.
    off: bool,
    /// Holds the regions, so that further rings share them and pin nothing. Set up for its
    /// version with the first ring.
    template: Option<Ring>,
    /// The kernel (since 6.12) lets rings share regions, as far as is known.
    shares: bool,
}

impl Offered {
    pub(super) fn new(ranges: Vec<(usize, usize)>) -> Self {
        Offered { ranges, version: 0, off: false, template: None, shares: true }
    }

    pub(super) fn version(&self) -> u64 {
        self.version
    }

    /// Adds a range. `false`: it is empty or overlaps another one.
    pub(super) fn add(&mut self, start: usize, len: usize) -> bool {
        let Some(end) = start.checked_add(len).filter(|_| len > 0) else { return false };
        if self.ranges.iter().any(|&(other, bytes)| start < other + bytes && other < end) {
            return false;
        }
        self.ranges.push((start, len));
        self.change();
        true
    }

    /// Takes a range back.
    pub(super) fn withdraw(&mut self, start: usize) {
        self.ranges.retain(|&(other, _)| other != start);
        self.change();
    }

    /// Lets later rings go without. `false`: they do already.
    pub(super) fn switch_off(&mut self) -> bool {
        if self.off {
            return false;
        }
        self.off = true;
        self.change();
        true
    }

    fn change(&mut self) {
        self.version += 1;
        self.template = None;
    }

    /// Registers what is offered with `ring`.
    ///
    /// # Errors
    /// What the kernel says; later rings go without then.
    ///
    /// # Safety
    /// What is offered stays mapped until `ring` is dropped or the offer was taken back.
    pub(super) unsafe fn register(
        &mut self,
        ring: &mut Ring,
        max_transfer: usize,
    ) -> io::Result<RegionTable> {
        if self.off || self.ranges.is_empty() {
            return Ok(RegionTable::default());
        }
        let regions = RegionTable::cut(&self.ranges, max_transfer);
        // SAFETY: the caller's promise; the template goes with the offer.
        let result = unsafe { self.register_or_share(ring, &regions) };
        if result.is_err() {
            self.off = true;
            self.template = None;
        }
        result.map(|()| regions)
    }

    /// # Safety
    /// As for [`Offered::register`].
    unsafe fn register_or_share(
        &mut self,
        ring: &mut Ring,
        regions: &RegionTable,
    ) -> io::Result<()> {
        if self.shares {
            if self.template.is_none() {
                let mut template = Ring::without_node(1)?;
                // SAFETY: the caller's promise is the same.
                unsafe { template.register_regions(regions.regions()) }?;
                self.template = Some(template);
            }
            if let Some(template) = &self.template
                && ring.share_regions(template.as_fd()).is_ok()
            {
                return Ok(());
            }
            self.shares = false;
            self.template = None;
        }
        // SAFETY: the caller's promise is the same.
        unsafe { ring.register_regions(regions.regions()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_offered_once_and_every_change_has_a_version_of_its_own() {
        let mut offered = Offered::new(vec![(0x10000, 0x10000)]);
        let mut versions = vec![offered.version()];
        assert!(!offered.add(0x1f000, 0x2000), "overlaps the end");
        assert!(!offered.add(0x8000, 0x20000), "covers");
        assert!(!offered.add(0x30000, 0), "empty");
        assert!(!offered.add(usize::MAX, 2), "wraps");
        assert!(offered.add(0x20000, 0x1000), "adjacent");
        versions.push(offered.version());
        offered.withdraw(0x20000);
        versions.push(offered.version());
        assert!(offered.add(0x20000, 0x2000), "free again");
        versions.push(offered.version());
        assert!(offered.switch_off());
        assert!(!offered.switch_off());
        versions.push(offered.version());
        versions.dedup();
        assert_eq!(versions.len(), 5);
    }
}
