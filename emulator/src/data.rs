//! What goes into a command besides its bytes, and what comes out.

use std::time::Duration;

use nvme_kv_command_set::Status;

/// The data buffer of a command.
#[derive(Debug)]
pub enum Data<'a> {
    /// No data: the command's data length is 0.
    None,
    /// Bytes for the device, in pieces whose lengths add up to the command's
    /// data length.
    ToDevice(&'a [&'a [u8]]),
    /// Memory the device writes to, at least the command's data length. Bytes
    /// the device does not return are left as they are.
    FromDevice(&'a mut [u8]),
}

/// What the host learns of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The device answered.
    Completed {
        /// Status of the completion.
        status: Status,
        /// Completion dword 0.
        dw0: u32,
        /// Time the device took; nobody has waited for it yet.
        latency: Duration,
    },
    /// The host refused or lost the command with this errno (positive).
    /// Nothing was executed.
    Errno(i32),
    /// There will be no completion. Whether the command was executed, or will
    /// be, the host cannot know.
    NoAnswer,
}

/// The leading `len` bytes of the pieces of a Store.
#[derive(Clone, Copy)]
pub(crate) struct Payload<'a> {
    parts: &'a [&'a [u8]],
    len: usize,
}

impl<'a> Payload<'a> {
    /// `None` when the pieces hold fewer than `len` bytes.
    pub(crate) fn new(parts: &'a [&'a [u8]], len: usize) -> Option<Self> {
        (total(parts) >= len).then_some(Self { parts, len })
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// The bytes, when one piece holds them all.
    pub(crate) fn contiguous(&self) -> Option<&'a [u8]> {
        if self.len == 0 {
            return Some(&[]);
        }
        self.parts.iter().find(|part| !part.is_empty())?.get(..self.len)
    }

    /// One copy, into memory of exactly the right size.
    pub(crate) fn to_vec(self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.len);
        for part in self.parts {
            let wanted = part.len().min(self.len - bytes.len());
            bytes.extend_from_slice(&part[..wanted]);
        }
        bytes
    }
}

pub(crate) fn total(parts: &[&[u8]]) -> usize {
    parts.iter().map(|part| part.len()).sum()
}
