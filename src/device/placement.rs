//! How the bytes of a value reach the device: where they lie, as an array of segments, or through
//! a transport buffer.
//!
//! The kernel maps user memory into a command without copying when every address and length is a
//! multiple of 4 and, between two segments, both sides of the border lie on a page boundary (the
//! driver asks for that whatever the transport). Elsewhere it would copy into fresh pages; then a
//! copy into a pooled buffer is cheaper.

use super::{Buffer, BufferPool, Value};

/// Page of the NVMe driver and of the buffer pool, bytes.
const PAGE: usize = 4096;
/// Address and length granularity of direct transfers, bytes.
const DWORD: usize = 4;
/// Segments of one command at most. The kernel keeps this many without allocating.
const MAX_SEGMENTS: usize = 8;
/// Values below this many bytes are copied: pinning the pages of several segments costs more.
const MIN_VECTORED: usize = 16 * 1024;

/// A page of zeros that pads values, at a page boundary.
#[repr(C, align(4096))]
struct ZeroPage([u8; PAGE]);
static ZEROS: ZeroPage = ZeroPage([0; PAGE]);

/// What the queue and the device allow.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// The queue takes arrays of segments.
    pub(super) vectored: bool,
    /// The longest transfer of the device, bytes.
    pub(super) max_transfer: usize,
}

impl Limits {
    /// A transfer of `len` bytes at `address` touches no more pages than the longest aligned one.
    pub(super) fn takes(&self, address: usize, len: usize) -> bool {
        address.is_multiple_of(DWORD) && pages(address, len) <= (self.max_transfer / PAGE).max(1)
    }
}

/// Pages that `len` bytes at `address` touch.
fn pages(address: usize, len: usize) -> usize {
    (address % PAGE + len).div_ceil(PAGE)
}

/// The segments of one vectored command. Stays where it is while the command is in flight.
pub(super) struct Segments {
    entries: Box<[libc::iovec; MAX_SEGMENTS]>,
    used: usize,
}

// SAFETY: the addresses are only read by the kernel, from memory that the command keeps borrowed.
unsafe impl Send for Segments {}

impl Segments {
    fn new() -> Self {
        let empty = libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };
        Segments { entries: Box::new([empty; MAX_SEGMENTS]), used: 0 }
    }

    /// Address of the array, for a command.
    pub(super) fn address(&self) -> u64 {
        self.entries.as_ptr() as u64
    }

    /// Number of segments.
    pub(super) fn len(&self) -> u32 {
        self.used as u32
    }

    fn push(&mut self, address: usize, len: usize) -> Option<()> {
        let entry = self.entries.get_mut(self.used)?;
        *entry = libc::iovec { iov_base: address as *mut libc::c_void, iov_len: len };
        self.used += 1;
        Some(())
    }

    #[cfg(test)]
    fn get(&self) -> Vec<(usize, usize)> {
        let entries = &self.entries[..self.used];
        entries.iter().map(|entry| (entry.iov_base as usize, entry.iov_len)).collect()
    }
}

/// How one value goes out.
pub(super) enum Placement {
    /// No bytes at all.
    Empty,
    /// From this address, in place.
    Direct(u64),
    /// As segments in place; the value's head, if any, was copied to the end of the buffer.
    Vectored(Segments, Option<Buffer>),
    /// From a transport buffer that holds the whole transfer, padding included.
    Copied(Buffer),
}

impl Placement {
    /// Decides for `value`, of which `transfer` bytes move, and does the copies it needs.
    /// Returns the bytes copied as well.
    pub(super) fn of(
        value: &Value<'_>,
        transfer: usize,
        limits: Limits,
        buffers: &BufferPool,
    ) -> (Placement, u64) {
        if transfer == 0 {
            return (Placement::Empty, 0);
        }
        match in_one_piece(value) {
            Some((address, len)) if len == transfer && limits.takes(address, len) => {
                return (Placement::Direct(address as u64), 0);
            }
            _ => {}
        }
        if limits.vectored
            && transfer >= MIN_VECTORED
            && let Some(vectored) = vectored(value, transfer, limits, buffers)
        {
            return (vectored, value.head.len() as u64);
        }
        let mut buffer = buffers.get(transfer);
        let mut at = 0;
        for segment in value.segments() {
            buffer[at..at + segment.len()].copy_from_slice(segment);
            at += segment.len();
        }
        buffer[at..transfer].fill(0);
        (Placement::Copied(buffer), at as u64)
    }
}

/// The pieces of a value's body, adjacent ones joined. `None` when there are too many.
fn runs(value: &Value<'_>) -> Option<Vec<(usize, usize)>> {
    let mut runs: Vec<(usize, usize)> = Vec::new();
    for segment in value.body.segments() {
        let address = segment.as_ptr() as usize;
        let full = runs.len() == MAX_SEGMENTS;
        match runs.last_mut() {
            Some((start, len)) if *start + *len == address => *len += segment.len(),
            _ if full => return None,
            _ => runs.push((address, segment.len())),
        }
    }
    Some(runs)
}

/// The address of a value that lies in one piece.
fn in_one_piece(value: &Value<'_>) -> Option<(usize, usize)> {
    if value.body.is_empty() {
        return Some((value.head.as_ptr() as usize, value.head.len()));
    }
    if !value.head.is_empty() {
        return None;
    }
    let mut segments = value.body.segments();
    let first = segments.next()?;
    let start = first.as_ptr() as usize;
    let mut len = first.len();
    for segment in segments {
        if segment.as_ptr() as usize != start + len {
            return None;
        }
        len += segment.len();
    }
    Some((start, len))
}

/// The value as segments, under the kernel's conditions.
fn vectored(
    value: &Value<'_>,
    transfer: usize,
    limits: Limits,
    buffers: &BufferPool,
) -> Option<Placement> {
    let head = value.head.len();
    let padding = transfer.checked_sub(value.len() as usize)?;
    if !head.is_multiple_of(DWORD) || padding % DWORD != 0 {
        return None;
    }
    let runs = runs(value)?;
    let mut touched = head.div_ceil(PAGE) + padding.div_ceil(PAGE);
    // The head is put where it ends at a page boundary; without one the first run starts anywhere.
    let mut border = None;
    if head > 0 {
        border = Some(0);
    }
    for &(address, len) in &runs {
        let unaligned = address % DWORD != 0 || len % DWORD != 0;
        if unaligned || border.is_some_and(|end| end != 0 || address % PAGE != 0) {
            return None;
        }
        border = Some((address + len) % PAGE);
        touched += pages(address, len);
    }
    if padding > 0 && border.is_some_and(|end| end != 0) {
        return None;
    }
    if touched > limits.max_transfer / PAGE {
        return None;
    }
    let mut segments = Segments::new();
    let mut head_buffer = None;
    if head > 0 {
        let mut buffer = buffers.get(head);
        let start = buffer.len() - head;
        buffer[start..].copy_from_slice(&value.head);
        segments.push(buffer[start..].as_ptr() as usize, head)?;
        head_buffer = Some(buffer);
    }
    for &(address, len) in &runs {
        segments.push(address, len)?;
    }
    let mut left = padding;
    while left > 0 {
        let len = left.min(PAGE);
        segments.push(ZEROS.0.as_ptr() as usize, len)?;
        left -= len;
    }
    Some(Placement::Vectored(segments, head_buffer))
}

#[cfg(test)]
mod tests;
