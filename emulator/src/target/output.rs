//! What waits to be sent on one connection.

use std::{
    collections::VecDeque,
    io::{self, ErrorKind, IoSlice, Write},
    net::TcpStream,
};

use crate::target::{
    buffer::Pool,
    pdu::{self, SHORT_LEN},
};

/// Pieces handed to the kernel in one call.
const MAX_PIECES: usize = 64;
/// Headers gathered in one piece.
const HEADERS_LEN: usize = 16 * 1024;

/// PDUs in the order in which the host will see them. Headers are gathered;
/// the data of values is sent from where the device left it.
#[derive(Default)]
pub(super) struct Output {
    pieces: VecDeque<Piece>,
    /// Bytes of the first piece that are sent.
    sent: usize,
    len: usize,
    spare_headers: Vec<u8>,
}

enum Piece {
    Headers(Vec<u8>),
    Data { buffer: Vec<u8>, len: usize },
}

impl Piece {
    fn bytes(&self) -> &[u8] {
        match self {
            Self::Headers(bytes) => bytes,
            Self::Data { buffer, len } => &buffer[..*len],
        }
    }
}

impl Output {
    /// Bytes that are not sent.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// A PDU without data, or the header of one.
    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.len += bytes.len();
        match self.pieces.back_mut() {
            Some(Piece::Headers(headers)) if headers.len() < HEADERS_LEN => {
                headers.extend_from_slice(bytes);
            }
            _ => {
                let mut headers = std::mem::take(&mut self.spare_headers);
                headers.extend_from_slice(bytes);
                self.pieces.push_back(Piece::Headers(headers));
            }
        }
    }

    /// The first `len` bytes of `buffer` as the C2HData of a command, which
    /// begin `data_offset` bytes after the start of the PDU.
    pub(super) fn push_data(
        &mut self,
        command_id: u16,
        data_offset: u8,
        buffer: Vec<u8>,
        len: usize,
    ) {
        self.push(&pdu::controller_data(command_id, data_offset, len));
        let padding = [0; u8::MAX as usize];
        self.push(&padding[..usize::from(data_offset).saturating_sub(SHORT_LEN)]);
        self.len += len;
        self.pieces.push_back(Piece::Data { buffer, len });
    }

    /// Sends until nothing is left or the socket would block. Memory of values
    /// that are sent goes to `pool`.
    pub(super) fn flush(&mut self, mut socket: &TcpStream, pool: &mut Pool) -> io::Result<()> {
        while self.len > 0 {
            let mut slices = [IoSlice::new(&[]); MAX_PIECES];
            let mut count = 0;
            for (slice, piece) in slices.iter_mut().zip(&self.pieces) {
                let from = if count == 0 { self.sent } else { 0 };
                *slice = IoSlice::new(&piece.bytes()[from..]);
                count += 1;
            }
            match socket.write_vectored(&slices[..count]) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(len) => self.advance(len, pool),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn advance(&mut self, len: usize, pool: &mut Pool) {
        self.len -= len;
        self.sent += len;
        while let Some(first) = self.pieces.front()
            && first.bytes().len() <= self.sent
        {
            self.sent -= first.bytes().len();
            match self.pieces.pop_front() {
                Some(Piece::Headers(mut bytes)) => {
                    bytes.clear();
                    self.spare_headers = bytes;
                }
                Some(Piece::Data { buffer, .. }) => pool.give(buffer),
                None => {}
            }
        }
    }
}
