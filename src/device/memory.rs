//! Views of the caller's memory: what is stored from, what is loaded into.
//!
//! No view copies. [`Payload`] is safe Rust over borrowed slices. [`Destination`] hands out
//! disjoint raw ranges of memory that its creator lends exclusively for `'a`; the unsafe code
//! that rests on this is in this file.

use std::marker::PhantomData;
use std::ptr::NonNull;

/// The bytes of one object, in the caller's slices.
#[derive(Clone, Copy, Debug)]
pub struct Payload<'a> {
    slices: &'a [&'a [u8]],
    len: u64,
}

impl<'a> Payload<'a> {
    /// The concatenation of `slices`; empty slices count for nothing.
    pub fn new(slices: &'a [&'a [u8]]) -> Self {
        Payload { slices, len: slices.iter().map(|slice| slice.len() as u64).sum() }
    }

    /// Bytes in all.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// No bytes at all.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// All of it. `None` when it is longer than `u32::MAX`, which no value can hold.
    pub fn whole(&self) -> Option<PayloadRange<'a>> {
        let len = u32::try_from(self.len).ok()?;
        Some(PayloadRange { slices: self.slices, skip: 0, len })
    }

    /// Consecutive ranges of `chunk` bytes, the last one shorter. `chunk` is not zero.
    pub fn chunks(&self, chunk: u32) -> impl Iterator<Item = PayloadRange<'a>> + use<'a> {
        let mut rest = PayloadRange { slices: self.slices, skip: 0, len: 0 };
        let mut left = self.len;
        std::iter::from_fn(move || {
            if left == 0 {
                return None;
            }
            let len = left.min(u64::from(chunk)) as u32;
            let range = PayloadRange { len, ..rest };
            rest = range.after();
            left -= u64::from(len);
            Some(range)
        })
    }
}

/// A run of an object's bytes: one chunk, or all of a small object.
#[derive(Clone, Copy, Debug)]
pub struct PayloadRange<'a> {
    /// The first slice holds the first byte, at `skip`.
    slices: &'a [&'a [u8]],
    skip: usize,
    len: u32,
}

impl<'a> PayloadRange<'a> {
    /// The empty range.
    pub const EMPTY: PayloadRange<'static> = PayloadRange { slices: &[], skip: 0, len: 0 };

    /// Bytes in the range.
    pub fn len(&self) -> u32 {
        self.len
    }

    /// No bytes at all.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The non-empty pieces in order.
    pub fn segments(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let mut left = self.len as usize;
        let mut skip = self.skip;
        self.slices
            .iter()
            .map_while(move |slice| {
                if left == 0 {
                    return None;
                }
                let piece = &slice[skip..];
                skip = 0;
                let piece = &piece[..piece.len().min(left)];
                left -= piece.len();
                Some(piece)
            })
            .filter(|piece| !piece.is_empty())
    }

    /// Where the next range starts.
    fn after(&self) -> PayloadRange<'a> {
        let mut slices = self.slices;
        let mut skip = self.skip + self.len as usize;
        while let Some(first) = slices.first() {
            if skip < first.len() {
                break;
            }
            skip -= first.len();
            slices = &slices[1..];
        }
        PayloadRange { slices, skip, len: 0 }
    }

    /// The same bytes as `other`?
    pub fn equals(&self, mut other: &[u8]) -> bool {
        if other.len() != self.len as usize {
            return false;
        }
        self.segments().all(|piece| {
            let (head, tail) = other.split_at(piece.len());
            other = tail;
            head == piece
        })
    }
}

/// What one Store writes: some bytes made for it, then a run of the caller's.
#[derive(Debug)]
pub struct Value<'a> {
    /// Header and identity of a root; empty for a chunk.
    pub head: Vec<u8>,
    /// The caller's bytes.
    pub body: PayloadRange<'a>,
}

impl<'a> Value<'a> {
    /// Bytes in all, before any padding.
    pub fn len(&self) -> u32 {
        self.head.len() as u32 + self.body.len()
    }

    /// No bytes at all.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The non-empty pieces in order.
    pub fn segments(&self) -> impl Iterator<Item = &[u8]> {
        std::iter::once(self.head.as_slice())
            .filter(|head| !head.is_empty())
            .chain(self.body.segments())
    }
}

/// Where one object is loaded to: one or several pieces of memory, lent exclusively for `'a`.
#[derive(Debug)]
pub struct Destination<'a> {
    pieces: Vec<Piece>,
    len: u64,
    slack: usize,
    lent: PhantomData<&'a mut [u8]>,
}

#[derive(Clone, Copy, Debug)]
struct Piece {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: a destination is an exclusive loan of plain memory, like `&mut [u8]`, which is `Send`.
unsafe impl Send for Destination<'_> {}

impl<'a> Destination<'a> {
    /// One contiguous piece.
    pub fn new(memory: &'a mut [u8]) -> Self {
        Destination::from_slices([memory])
    }

    /// Several pieces, filled in order.
    pub fn from_slices(slices: impl IntoIterator<Item = &'a mut [u8]>) -> Self {
        let pieces: Vec<Piece> = slices
            .into_iter()
            .filter(|slice| !slice.is_empty())
            .map(|slice| Piece { start: NonNull::from(&mut *slice).cast(), len: slice.len() })
            .collect();
        let len = pieces.iter().map(|piece| piece.len as u64).sum();
        Destination { pieces, len, slack: 0, lent: PhantomData }
    }

    /// Several pieces given as (address, length), as they come over a C boundary; zero lengths
    /// are skipped whatever their address.
    ///
    /// # Safety
    /// Each piece of non-zero length is valid for writes and reads for `'a`, initialised, and
    /// used by nobody else meanwhile. `slack` bytes after the last piece are too.
    pub unsafe fn from_raw(
        pieces: impl IntoIterator<Item = (*mut u8, usize)>,
        slack: usize,
    ) -> Self {
        let pieces: Vec<Piece> = pieces
            .into_iter()
            .filter_map(|(start, len)| {
                NonNull::new(start).filter(|_| len > 0).map(|start| Piece { start, len })
            })
            .collect();
        let len = pieces.iter().map(|piece| piece.len as u64).sum();
        Destination { pieces, len, slack, lent: PhantomData }
    }

    /// Bytes wanted.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// No bytes wanted.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Calls `visit` for each piece of `offset .. offset + len`.
    ///
    /// # Panics
    /// When the range leaves the destination; callers check sizes against [`Destination::len`].
    fn visit(&self, offset: u64, len: usize, mut visit: impl FnMut(NonNull<u8>, usize)) {
        assert!(offset + len as u64 <= self.len, "range outside of the destination");
        let mut skip = offset;
        let mut left = len;
        for piece in &self.pieces {
            if left == 0 {
                break;
            }
            if skip >= piece.len as u64 {
                skip -= piece.len as u64;
                continue;
            }
            let take = (piece.len - skip as usize).min(left);
            // SAFETY: `skip < piece.len`, so the address is inside the piece.
            visit(unsafe { piece.start.add(skip as usize) }, take);
            skip = 0;
            left -= take;
        }
    }

    /// Copies `bytes` to `offset`.
    pub fn write(&mut self, offset: u64, bytes: &[u8]) {
        let mut rest = bytes;
        self.visit(offset, bytes.len(), |start, len| {
            let (head, tail) = rest.split_at(len);
            // SAFETY: `visit` stays inside memory lent exclusively to `self`; `bytes` is a
            // shared borrow and cannot overlap it.
            unsafe { std::ptr::copy_nonoverlapping(head.as_ptr(), start.as_ptr(), len) };
            rest = tail;
        });
    }

    /// Reads back `offset .. offset + len`, piece by piece. No device may be writing there.
    pub fn read(&self, offset: u64, len: usize, mut read: impl FnMut(&[u8])) {
        self.visit(offset, len, |start, len| {
            // SAFETY: `visit` stays inside lent, initialised memory, and the caller's executor
            // has completed every command that wrote there.
            read(unsafe { std::slice::from_raw_parts(start.as_ptr(), len) });
        });
    }

    /// A contiguous run at `offset` that a device may fill directly with `transfer` bytes, of
    /// which `len` are wanted: it starts at a multiple of `alignment`, and the bytes past `len`
    /// fall into the slack behind the object (never into bytes of the next chunk).
    ///
    /// While the range is in use by a device, the same bytes are not touched through `self`.
    pub fn target(
        &self,
        offset: u64,
        len: u32,
        transfer: u32,
        alignment: u32,
    ) -> Option<Target<'a>> {
        let mut skip = offset;
        for (index, piece) in self.pieces.iter().enumerate() {
            if skip >= piece.len as u64 {
                skip -= piece.len as u64;
                continue;
            }
            let room = piece.len - skip as usize;
            let behind = if index + 1 == self.pieces.len() { self.slack } else { 0 };
            // SAFETY: `skip < piece.len`, so the address is inside the piece.
            let start = unsafe { piece.start.add(skip as usize) };
            let padded_into_own_bytes = transfer > len && room > len as usize;
            let fits = room >= len as usize
                && room + behind >= transfer as usize
                && !padded_into_own_bytes
                && (start.as_ptr() as usize).is_multiple_of(alignment as usize);
            return fits.then_some(Target { start, capacity: transfer, lent: PhantomData });
        }
        None
    }
}

/// A contiguous run of a [`Destination`] that one Retrieve fills directly.
#[derive(Debug)]
pub struct Target<'a> {
    start: NonNull<u8>,
    capacity: u32,
    lent: PhantomData<&'a mut [u8]>,
}

// SAFETY: as for `Destination`.
unsafe impl Send for Target<'_> {}

impl<'a> Target<'a> {
    /// A run over a borrowed slice.
    pub fn new(memory: &'a mut [u8]) -> Self {
        let capacity = u32::try_from(memory.len()).unwrap_or(u32::MAX);
        Target { start: NonNull::from(memory).cast(), capacity, lent: PhantomData }
    }

    /// Bytes that may be written.
    pub fn capacity(&self) -> u32 {
        self.capacity
    }

    /// Its address, for a command.
    pub fn address(&self) -> u64 {
        self.start.as_ptr() as u64
    }

    /// The run as a slice, for an executor that copies.
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        // SAFETY: the run is part of an exclusive loan for `'a`, and runs are disjoint.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.capacity as usize) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(n: usize) -> Vec<u8> {
        (0..n).map(|i| (i * 7 % 251) as u8).collect()
    }

    #[test]
    fn chunks_of_a_payload_in_several_slices_are_its_bytes_in_order() {
        let all = bytes(1000);
        let slices: [&[u8]; 6] =
            [&all[..0], &all[..1], &all[1..300], &[], &all[300..999], &all[999..]];
        let payload = Payload::new(&slices);
        for chunk in [1, 7, 299, 300, 301, 999, 1000, 5000] {
            let mut got = Vec::new();
            for (index, range) in payload.chunks(chunk).enumerate() {
                assert!(range.len() == chunk || got.len() + range.len() as usize == 1000);
                let start = index * chunk as usize;
                assert!(range.equals(&all[start..start + range.len() as usize]));
                range.segments().for_each(|piece| got.extend_from_slice(piece));
            }
            assert_eq!(got, all);
        }
    }

    #[test]
    fn a_destination_of_several_pieces_is_written_and_read_in_order() {
        let mut memory = [0u8; 100];
        let (a, rest) = memory.split_at_mut(13);
        let (b, c) = rest.split_at_mut(50);
        let mut destination = Destination::from_slices([a, b, c]);
        destination.write(0, &bytes(100));
        destination.write(10, &[1, 2, 3, 4, 5]);
        let mut got = Vec::new();
        destination.read(9, 7, |piece| got.extend_from_slice(piece));
        assert_eq!(got, [bytes(100)[9], 1, 2, 3, 4, 5, bytes(100)[15]]);
    }

    #[test]
    fn a_device_may_fill_directly_only_aligned_room_that_holds_no_other_bytes() {
        let mut memory = vec![0u8; 3 * 4096 + 4096];
        let skip = memory.as_ptr().align_offset(4096);
        let aligned = &mut memory[skip..skip + 2 * 4096];
        let destination = Destination::new(aligned);
        assert!(destination.target(0, 4096, 4096, 4096).is_some());
        assert!(destination.target(4096, 4096, 4096, 4096).is_some());
        assert!(destination.target(4, 4092, 4092, 4096).is_none(), "unaligned");
        assert!(destination.target(0, 100, 4096, 4096).is_none(), "padding would hit the object");
        assert!(destination.target(4096, 100, 8192, 4096).is_none(), "no room");
    }

    #[test]
    fn padding_goes_into_slack_only_when_it_was_promised() {
        let mut memory = vec![0u8; 3 * 4096];
        let skip = memory.as_ptr().align_offset(4096);
        let start = memory[skip..].as_mut_ptr();
        // SAFETY: 100 bytes and 3996 bytes of slack lie inside `memory`.
        let with = unsafe { Destination::from_raw([(start, 100)], 3996) };
        assert!(with.target(0, 100, 4096, 4096).is_some());
        // SAFETY: as above.
        let without = unsafe { Destination::from_raw([(start, 100)], 0) };
        assert!(without.target(0, 100, 4096, 4096).is_none());
    }
}
