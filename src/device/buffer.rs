//! Aligned transport buffers, reused: fresh memory costs a page fault per 4 KiB.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard};

use super::arena::Arena;

/// Alignment and granularity of every buffer, bytes: a page.
const PAGE: usize = 4096;

/// Hands out page-aligned buffers and takes them back when they are dropped. Thread-safe; clones
/// share one pool.
#[derive(Clone)]
pub struct BufferPool(Arc<Shelves>);

struct Shelves {
    /// Most bytes kept for reuse; more are given back to the allocator.
    keep: usize,
    inner: Mutex<Free>,
    /// Buffers come from here while there is room; declared last, as they point into it.
    arena: Option<Arena>,
}

/// Free buffers by size class: `classes[c]` holds buffers of `PAGE << c` bytes.
#[derive(Default)]
struct Free {
    bytes: usize,
    classes: Vec<Vec<Memory>>,
    /// Bytes of the arena handed out so far, gaps included.
    arena_used: usize,
}

/// `PAGE << class` initialised bytes at a page boundary, owned alone.
struct Memory {
    start: NonNull<u8>,
    class: usize,
    /// Part of the pool's arena, not an allocation of its own.
    in_arena: bool,
}

// SAFETY: `Memory` is the only owner of its bytes, which have no thread affinity.
unsafe impl Send for Memory {}

impl Memory {
    fn layout(class: usize) -> Layout {
        let bytes = PAGE << class;
        Layout::from_size_align(bytes, PAGE)
            .unwrap_or_else(|_| handle_alloc_error(Layout::new::<u8>()))
    }

    fn new(class: usize) -> Self {
        let layout = Memory::layout(class);
        // SAFETY: the layout's size is at least one page, never zero.
        let start = NonNull::new(unsafe { alloc_zeroed(layout) })
            .unwrap_or_else(|| handle_alloc_error(layout));
        Memory { start, class, in_arena: false }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        if !self.in_arena {
            // SAFETY: allocated in `new` with this very layout, and dropped once.
            unsafe { dealloc(self.start.as_ptr(), Memory::layout(self.class)) }
        }
    }
}

impl BufferPool {
    /// A pool that keeps at most `keep` bytes for reuse.
    pub fn new(keep: usize) -> Self {
        BufferPool(Arc::new(Shelves { keep, inner: Mutex::default(), arena: None }))
    }

    /// The same with an arena of `arena` bytes that buffers come from first: one range that can
    /// be registered with the kernel. Without memory for it there is none.
    pub(super) fn with_arena(keep: usize, arena: usize) -> Self {
        let arena = Arena::new(arena);
        BufferPool(Arc::new(Shelves { keep, inner: Mutex::default(), arena }))
    }

    /// Address and bytes of the arena.
    pub(super) fn arena(&self) -> Option<(usize, usize)> {
        self.0.arena.as_ref().map(|arena| (arena.start(), arena.len()))
    }

    /// A buffer of at least `len` bytes (at least one page), page-aligned. Its bytes are
    /// initialised but arbitrary: whatever its last user left there.
    pub fn get(&self, len: usize) -> Buffer {
        let class = len.div_ceil(PAGE).next_power_of_two().trailing_zeros() as usize;
        let reused = {
            let mut free = self.0.lock();
            match free.classes.get_mut(class).and_then(Vec::pop) {
                Some(memory) => {
                    if !memory.in_arena {
                        free.bytes -= PAGE << class;
                    }
                    Some(memory)
                }
                None => self.0.carve(&mut free, class),
            }
        };
        let memory = reused.unwrap_or_else(|| Memory::new(class));
        Buffer { memory: Some(memory), shelves: Arc::clone(&self.0) }
    }

    /// Bytes now kept for reuse outside of the arena.
    pub fn kept_bytes(&self) -> usize {
        self.0.lock().bytes
    }
}

impl Shelves {
    fn lock(&self) -> MutexGuard<'_, Free> {
        self.inner.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// A buffer from the arena that was never handed out before. Buffers are aligned to their
    /// size, so that none crosses the border of a registered region of that size or more.
    fn carve(&self, free: &mut Free, class: usize) -> Option<Memory> {
        let arena = self.arena.as_ref()?;
        let bytes = PAGE << class;
        let at = free.arena_used.checked_next_multiple_of(bytes)?;
        let end = at.checked_add(bytes).filter(|end| *end <= arena.len())?;
        free.arena_used = end;
        Some(Memory { start: arena.at(at)?, class, in_arena: true })
    }

    fn put(&self, memory: Memory) {
        let bytes = if memory.in_arena { 0 } else { PAGE << memory.class };
        let mut free = self.lock();
        if free.bytes + bytes > self.keep {
            return;
        }
        if free.classes.len() <= memory.class {
            free.classes.resize_with(memory.class + 1, Vec::new);
        }
        free.bytes += bytes;
        let class = memory.class;
        free.classes[class].push(memory);
    }
}

impl fmt::Debug for BufferPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BufferPool").field("kept_bytes", &self.kept_bytes()).finish_non_exhaustive()
    }
}

/// A page-aligned buffer from a [`BufferPool`]; goes back to it when dropped.
pub struct Buffer {
    memory: Option<Memory>,
    shelves: Arc<Shelves>,
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.memory {
            // SAFETY: the allocation is `PAGE << class` initialised bytes and uniquely owned.
            Some(memory) => unsafe {
                std::slice::from_raw_parts(memory.start.as_ptr(), PAGE << memory.class)
            },
            None => &[],
        }
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        match &mut self.memory {
            // SAFETY: as in `deref`, and `&mut self` makes the access unique.
            Some(memory) => unsafe {
                std::slice::from_raw_parts_mut(memory.start.as_ptr(), PAGE << memory.class)
            },
            None => &mut [],
        }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if let Some(memory) = self.memory.take() {
            self.shelves.put(memory);
        }
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Buffer({} bytes)", self.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_is_page_aligned_and_large_enough() {
        let pool = BufferPool::new(1 << 20);
        for len in [0, 1, 4096, 4097, 270_336] {
            let buffer = pool.get(len);
            assert_eq!(buffer.as_ptr() as usize % PAGE, 0);
            assert!(buffer.len() >= len.max(PAGE));
        }
    }

    #[test]
    fn a_dropped_buffer_is_reused_and_the_pool_keeps_no_more_than_its_limit() {
        let pool = BufferPool::new(3 * PAGE);
        let first = pool.get(1);
        let address = first.as_ptr();
        drop(first);
        assert_eq!(pool.get(1).as_ptr(), address);
        let many: Vec<_> = (0..10).map(|_| pool.get(PAGE)).collect();
        drop(many);
        assert_eq!(pool.kept_bytes(), 3 * PAGE);
    }

    #[test]
    fn buffers_come_from_the_arena_until_it_is_full_and_go_back_to_it() {
        let pool = BufferPool::with_arena(0, 8 * PAGE);
        let (start, len) = pool.arena().expect("there is memory for 8 pages");
        let inside = |buffer: &Buffer| (start..start + len).contains(&(buffer.as_ptr() as usize));
        let small = pool.get(PAGE);
        let large = pool.get(4 * PAGE);
        assert!(inside(&small) && inside(&large));
        assert_eq!(large.as_ptr() as usize % (4 * PAGE), 0, "aligned to its size");
        assert!(!inside(&pool.get(4 * PAGE)), "only 8 pages");
        let address = large.as_ptr();
        drop(large);
        assert_eq!(pool.get(3 * PAGE).as_ptr(), address);
        assert_eq!(pool.kept_bytes(), 0);
    }
}
