//! One range of memory for transport buffers, so that it can be registered as a whole.

use std::ptr::NonNull;

/// Alignment of the range, bytes: a huge page, and a multiple of every registered region.
const ALIGNMENT: usize = 2 << 20;

/// Zeroed memory of its own mapping.
#[derive(Debug)]
pub(super) struct Arena {
    mapping: NonNull<libc::c_void>,
    mapped: usize,
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: an arena is plain memory without thread affinity; it hands out addresses only.
unsafe impl Send for Arena {}
// SAFETY: as above; shared use reads the fields only.
unsafe impl Sync for Arena {}

impl Arena {
    /// Maps `len` bytes. `None` when there is no memory.
    pub(super) fn new(len: usize) -> Option<Arena> {
        let mapped = len.checked_add(ALIGNMENT)?;
        // SAFETY: a new private mapping of no file touches nothing that exists.
        let mapping = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                mapped,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        if mapping == libc::MAP_FAILED {
            return None;
        }
        let mapping = NonNull::new(mapping)?;
        let first = mapping.cast::<u8>();
        let skip = first.as_ptr().align_offset(ALIGNMENT);
        // SAFETY: `skip` is below the alignment, by which the mapping is longer than `len`.
        let start = unsafe { first.add(skip) };
        Some(Arena { mapping, mapped, start, len })
    }

    pub(super) fn start(&self) -> usize {
        self.start.as_ptr() as usize
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// The address `offset` bytes in.
    pub(super) fn at(&self, offset: usize) -> Option<NonNull<u8>> {
        // SAFETY: inside the range, as the condition says.
        (offset < self.len).then(|| unsafe { self.start.add(offset) })
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        // SAFETY: mapped in `new` with this length; whoever holds the arena holds all of its
        // buffers' owners too, so nothing points into it any more.
        unsafe { libc::munmap(self.mapping.as_ptr(), self.mapped) };
    }
}
