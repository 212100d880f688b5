//! An allocator that counts, for tests and measurements of memory. Whoever uses it declares it as
//! the `#[global_allocator]`.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

/// The system's allocator, with bytes counted as they are asked for.
pub struct Counting {
    live: AtomicUsize,
    peak: AtomicUsize,
}

impl Counting {
    pub const fn new() -> Counting {
        Counting { live: AtomicUsize::new(0), peak: AtomicUsize::new(0) }
    }

    /// Bytes in use.
    pub fn live(&self) -> usize {
        self.live.load(Ordering::Relaxed)
    }

    /// Most bytes in use since the last [`Counting::restart`].
    pub fn peak(&self) -> usize {
        self.peak.load(Ordering::Relaxed)
    }

    /// Forgets the peak.
    pub fn restart(&self) {
        self.peak.store(self.live(), Ordering::Relaxed);
    }

    fn add(&self, bytes: usize) {
        let live = self.live.fetch_add(bytes, Ordering::Relaxed) + bytes;
        self.peak.fetch_max(live, Ordering::Relaxed);
    }
}

// SAFETY: every call is passed on to the system's allocator as it is; counting allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        self.add(layout.size());
        // SAFETY: the caller's promises are the same.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        self.add(layout.size());
        // SAFETY: the caller's promises are the same.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, start: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        // Both may be in use for a moment.
        self.add(bytes);
        // SAFETY: the caller's promises are the same.
        let moved = unsafe { System.realloc(start, layout, bytes) };
        self.live.fetch_sub(layout.size(), Ordering::Relaxed);
        moved
    }

    unsafe fn dealloc(&self, start: *mut u8, layout: Layout) {
        // SAFETY: the caller's promises are the same.
        unsafe { System.dealloc(start, layout) };
        self.live.fetch_sub(layout.size(), Ordering::Relaxed);
    }
}
