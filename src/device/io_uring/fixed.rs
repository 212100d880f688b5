//! Memory registered with the kernel: pages pinned once instead of per command.

/// Regions of one ring, in ascending order of address.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct RegionTable {
    regions: Vec<(usize, usize)>,
}

/// Regions of one ring at most (`IORING_MAX_REG_BUFFERS`).
const MAX_REGIONS: usize = 1 << 14;
/// Page of the kernel, bytes: regions meet at page boundaries.
const PAGE: usize = 4096;

impl RegionTable {
    /// Cuts `memory` (address, bytes) into regions of at most `max_transfer` bytes, counted from
    /// the page of its first byte: the kernel (6.1) refuses commands whose region is longer. Memory
    /// beyond what one ring can have is left out, the last first.
    pub(super) fn cut(memory: &[(usize, usize)], max_transfer: usize) -> RegionTable {
        // A power of two: buffers of the pool are aligned within an aligned arena, so that each
        // lies in one region.
        let size = (max_transfer.max(PAGE) + 1).next_power_of_two() / 2;
        let mut regions = Vec::new();
        for &(start, len) in memory {
            let mut at = start;
            let end = start + len;
            let mut border = start - start % PAGE;
            while at < end && regions.len() < MAX_REGIONS {
                border = border.saturating_add(size);
                let next = border.min(end);
                regions.push((at, next - at));
                at = next;
            }
        }
        regions.sort_unstable();
        RegionTable { regions }
    }

    /// The regions, for registration.
    pub(super) fn regions(&self) -> &[(usize, usize)] {
        &self.regions
    }

    /// The index of the region that holds all of `len` bytes at `address`.
    pub(super) fn find(&self, address: usize, len: usize) -> Option<u16> {
        let index = self.regions.partition_point(|&(start, _)| start <= address).checked_sub(1)?;
        let (start, size) = self.regions[index];
        (address - start <= size && len <= size - (address - start)).then_some(index as u16)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_cut_into_the_largest_transfers_from_the_page_of_its_start() {
        let table = RegionTable::cut(&[(0x11000, 0x21000)], 0x10000);
        let expected = [(0x11000, 0x10000), (0x21000, 0x10000), (0x31000, 0x1000)];
        assert_eq!(table.regions(), expected);
        let table = RegionTable::cut(&[(0x40000, 0x10000)], 0x17000);
        assert_eq!(table.regions(), [(0x40000, 0x10000)]);
        let table = RegionTable::cut(&[(0x11004, 0x10000)], 0x10000);
        assert_eq!(table.regions(), [(0x11004, 0xfffc), (0x21000, 4)], "16 pages at most");
    }

    #[test]
    fn only_bytes_inside_one_region_are_found() {
        let table = RegionTable::cut(&[(0x40000, 0x1000), (0x10000, 0x20000)], 0x10000);
        assert_eq!(table.find(0x10000, 0x10000), Some(0));
        assert_eq!(table.find(0x10004, 0x1000), Some(0));
        assert_eq!(table.find(0x1f000, 0x2000), None, "across two regions");
        assert_eq!(table.find(0x20000, 1), Some(1));
        assert_eq!(table.find(0x40000, 0x1000), Some(2));
        assert_eq!(table.find(0x40000, 0x1001), None, "past the end");
        assert_eq!(table.find(0xf000, 0x1000), None, "before the first");
        assert_eq!(table.find(0x35000, 4), None, "between");
        assert_eq!(RegionTable::default().find(0x1000, 1), None);
    }

    #[test]
    fn no_more_regions_are_made_than_a_ring_can_have() {
        let table = RegionTable::cut(&[(0x1_0000_0000, 1 << 40)], 0x10000);
        assert_eq!(table.regions().len(), MAX_REGIONS);
    }
}
