//! Data that hosts send on request: one R2T at a time for a command, and not
//! too much for a connection.

use std::collections::VecDeque;

use crate::target::{
    buffer::Pool,
    pdu::{self, Fatal, FatalStatus, HostData, SHORT_LEN},
};

/// Bytes that one connection asks for at the same time, also by one R2T. More
/// of them make TCP over the loopback device stall, and smaller R2Ts cost a
/// round trip each.
const WINDOW: usize = 256 * 1024;

/// A command whose data is not complete.
pub(super) struct Transfer {
    pub(super) entry: [u8; 64],
    /// Bytes of data the command has.
    pub(super) len: usize,
    /// Memory for `len` bytes or more; empty until the first R2T.
    pub(super) buffer: Vec<u8>,
    received: usize,
    requested: usize,
}

/// The commands of one connection that wait for data, by transfer tag.
#[derive(Default)]
pub(super) struct Transfers {
    slots: Vec<Option<Transfer>>,
    free: Vec<u16>,
    /// Tags that have to ask for more.
    waiting: VecDeque<u16>,
    outstanding: usize,
}

impl Transfers {
    /// Commands that wait for data.
    pub(super) fn count(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Bytes asked for and not yet received.
    pub(super) fn outstanding(&self) -> usize {
        self.outstanding
    }

    /// Takes in a command with `len` bytes of data, at least 1. The caller
    /// keeps the number of commands below 65,536.
    pub(super) fn begin(&mut self, entry: [u8; 64], len: usize) {
        let transfer = Transfer { entry, len, buffer: Vec::new(), received: 0, requested: 0 };
        let tag = match self.free.pop() {
            Some(tag) => {
                self.slots[usize::from(tag)] = Some(transfer);
                tag
            }
            None => {
                self.slots.push(Some(transfer));
                (self.slots.len() - 1) as u16
            }
        };
        self.waiting.push_back(tag);
    }

    /// The next R2T, if the window has room for it.
    pub(super) fn request(&mut self, pool: &mut Pool) -> Option<[u8; SHORT_LEN]> {
        let tag = *self.waiting.front()?;
        let transfer = self.slots[usize::from(tag)].as_mut()?;
        let len = WINDOW.min(transfer.len - transfer.requested);
        if self.outstanding + len > WINDOW {
            return None;
        }
        self.waiting.pop_front();
        if transfer.requested == 0 {
            transfer.buffer = pool.take(transfer.len);
        }
        let offset = transfer.requested;
        transfer.requested += len;
        self.outstanding += len;
        Some(pdu::ready_to_transfer(pdu::u16_at(&transfer.entry, 2), tag, offset, len))
    }

    /// Whether a data PDU is what its R2T asked for. Data of one R2T comes in
    /// order, in one PDU or in several.
    pub(super) fn check(&self, data: HostData) -> Result<(), Fatal> {
        let transfer = self.slots.get(usize::from(data.tag)).and_then(Option::as_ref);
        let Some(transfer) = transfer.filter(|transfer| transfer.requested > transfer.received)
        else {
            return Err(Fatal::new(FatalStatus::Sequence, 10));
        };
        if pdu::u16_at(&transfer.entry, 2) != data.command_id {
            return Err(Fatal::new(FatalStatus::InvalidHeader, 8));
        }
        if data.offset != transfer.received {
            return Err(Fatal::new(FatalStatus::OutOfRange, 12));
        }
        if data.len == 0 || data.len > transfer.requested - transfer.received {
            return Err(Fatal::new(FatalStatus::OutOfRange, 16));
        }
        Ok(())
    }

    /// Memory for the next `len` bytes of a transfer whose PDU was checked.
    pub(super) fn destination(&mut self, tag: u16, len: usize) -> &mut [u8] {
        match &mut self.slots[usize::from(tag)] {
            Some(transfer) => &mut transfer.buffer[transfer.received..transfer.received + len],
            None => &mut [],
        }
    }

    /// Notes that `len` bytes are in the [`destination`](Self::destination).
    pub(super) fn received(&mut self, tag: u16, len: usize) {
        if let Some(transfer) = &mut self.slots[usize::from(tag)] {
            transfer.received += len;
            self.outstanding -= len;
        }
    }

    /// Ends a data PDU. Returns the transfer when it has all of its data.
    pub(super) fn end_pdu(&mut self, tag: u16) -> Option<Transfer> {
        let slot = &mut self.slots[usize::from(tag)];
        let transfer = slot.as_ref()?;
        if transfer.received == transfer.len {
            self.free.push(tag);
            return slot.take();
        }
        if transfer.received == transfer.requested {
            // First again, so that its memory is free soon.
            self.waiting.push_front(tag);
        }
        None
    }
}
