//! Memory of one connection: the receive buffer, and a pool for values.

use std::{
    io::{self, IoSliceMut, Read},
    net::TcpStream,
};

/// Holds a whole command capsule with its data, and many without.
const RECEIVE_LEN: usize = 64 * 1024;

/// Bytes that were received and not yet looked at.
pub(super) struct ReceiveBuffer {
    bytes: Box<[u8]>,
    start: usize,
    end: usize,
}

impl ReceiveBuffer {
    pub(super) fn new() -> Self {
        Self { bytes: vec![0; RECEIVE_LEN].into(), start: 0, end: 0 }
    }

    pub(super) fn unread(&self) -> &[u8] {
        &self.bytes[self.start..self.end]
    }

    pub(super) fn consume(&mut self, len: usize) {
        self.start += len;
        debug_assert!(self.start <= self.end);
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        }
    }

    /// One read: into `first` as far as it goes, the rest behind what is
    /// unread. Returns how much went into `first` and whether the host is
    /// still there. With a non-empty `first` nothing may be unread.
    pub(super) fn receive(
        &mut self,
        mut socket: &TcpStream,
        first: &mut [u8],
    ) -> io::Result<(usize, bool)> {
        if self.start > 0 {
            self.bytes.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        let behind = &mut self.bytes[self.end..];
        let len = if first.is_empty() {
            socket.read(behind)?
        } else {
            socket.read_vectored(&mut [IoSliceMut::new(first), IoSliceMut::new(behind)])?
        };
        let into_first = len.min(first.len());
        self.end += len - into_first;
        Ok((into_first, len > 0))
    }
}

/// Buffers kept for reuse, so that large values neither fault pages in nor
/// clear them each time.
const POOLED: usize = 4;

/// Initialised memory for the data of commands; what is in it is left over
/// from the command before.
#[derive(Default)]
pub(super) struct Pool(Vec<Vec<u8>>);

impl Pool {
    /// A buffer of at least `len` bytes.
    pub(super) fn take(&mut self, len: usize) -> Vec<u8> {
        let mut buffer = self.0.pop().unwrap_or_default();
        if buffer.len() < len {
            buffer.resize(len, 0);
        }
        buffer
    }

    pub(super) fn give(&mut self, buffer: Vec<u8>) {
        if self.0.len() < POOLED && !buffer.is_empty() {
            self.0.push(buffer);
        }
    }
}
