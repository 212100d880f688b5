//! Submission and completion entries: their fields, and where data goes.

use nvme_kv_command_set::{KvStatus, PassthroughCommand, Status};

use crate::target::pdu::{MAX_IN_CAPSULE, u16_at, u32_at};

/// Opcode of every Fabrics command.
pub(super) const FABRICS: u8 = 0x7f;

/// Generic status 0Ch: a command that has to wait for another one.
pub(super) const COMMAND_SEQUENCE_ERROR: Status = Status::new(0, 0x0c);
const DATA_LENGTH_INVALID: Status = Status::new(0, 0x0f);
const DESCRIPTOR_TYPE_INVALID: Status = Status::new(0, 0x11);
const OFFSET_INVALID: Status = Status::new(0, 0x16);

/// SGL descriptor for data inside the capsule: data block, offset.
const IN_CAPSULE: u8 = 0x01;
/// SGL descriptor for data that the transport moves.
const TRANSPORT: u8 = 0x5a;

/// A submission entry of 64 bytes.
#[derive(Clone, Copy)]
pub(super) struct Entry<'a>(pub(super) &'a [u8; 64]);

/// Where the data of a command comes from or goes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Movement {
    None,
    /// To the controller, in the capsule.
    InCapsule(usize),
    /// To the controller, when it asks.
    OnRequest(usize),
    /// To the host.
    ToHost(usize),
}

impl Entry<'_> {
    pub(super) fn opcode(self) -> u8 {
        self.0[0]
    }

    pub(super) fn command_id(self) -> u16 {
        u16_at(self.0, 2)
    }

    /// Fabrics command type, in place of the namespace identifier.
    pub(super) fn fabrics_type(self) -> u8 {
        self.0[4]
    }

    /// Command dword 0 to 15.
    pub(super) fn dword(self, index: usize) -> u32 {
        u32_at(self.0, index * 4)
    }

    /// Reads the SGL descriptor. `capsule` is how much data is in the capsule,
    /// `max_transfer` the most that a command may move.
    pub(super) fn movement(self, capsule: usize, max_transfer: usize) -> Result<Movement, Status> {
        let len = u32_at(self.0, 32) as usize;
        if len == 0 {
            return Ok(Movement::None);
        }
        // Bit 0 of the opcode (of the type, for Fabrics) is the direction.
        let directed = match self.opcode() {
            FABRICS => self.fabrics_type(),
            opcode => opcode,
        };
        let to_controller = directed & 1 == 1;
        match self.0[39] {
            IN_CAPSULE if to_controller && self.0[24..32] != [0; 8] => Err(OFFSET_INVALID),
            IN_CAPSULE if to_controller && len > capsule.min(MAX_IN_CAPSULE) => {
                Err(DATA_LENGTH_INVALID)
            }
            IN_CAPSULE if to_controller => Ok(Movement::InCapsule(len)),
            TRANSPORT if len > max_transfer => Err(DATA_LENGTH_INVALID),
            TRANSPORT if to_controller => Ok(Movement::OnRequest(len)),
            TRANSPORT => Ok(Movement::ToHost(len)),
            _ => Err(DESCRIPTOR_TYPE_INVALID),
        }
    }

    /// The command as the namespace takes it, with `data_len` bytes of data.
    pub(super) fn passthrough(self, data_len: usize) -> PassthroughCommand {
        PassthroughCommand {
            opcode: self.opcode(),
            nsid: self.dword(1),
            cdw2: self.dword(2),
            cdw3: self.dword(3),
            data_len: data_len as u32,
            cdw10: self.dword(10),
            cdw11: self.dword(11),
            cdw12: self.dword(12),
            cdw13: self.dword(13),
            cdw14: self.dword(14),
            cdw15: self.dword(15),
            ..PassthroughCommand::default()
        }
    }
}

/// A completion entry. Do Not Retry goes with every error except those that
/// say "later".
pub(super) fn completion(
    command_id: u16,
    status: Status,
    result: u64,
    queue_head: u16,
    queue_id: u16,
) -> [u8; 16] {
    // The Key Value meaning belongs to generic statuses: 82h of type 1 is an
    // invalid parameter of Connect.
    let later = status.sct() == 0
        && matches!(
            status.kv(),
            Some(
                KvStatus::NamespaceNotReady
                    | KvStatus::ReservationConflict
                    | KvStatus::FormatInProgress
            )
        );
    let status = if status.is_success() || later { status } else { status.with_dnr() };
    let mut entry = [0; 16];
    entry[..8].copy_from_slice(&result.to_le_bytes());
    entry[8..10].copy_from_slice(&queue_head.to_le_bytes());
    entry[10..12].copy_from_slice(&queue_id.to_le_bytes());
    entry[12..14].copy_from_slice(&command_id.to_le_bytes());
    // Bit 0 is the phase, which fabrics do not use.
    entry[14..].copy_from_slice(&(status.to_u16() << 1).to_le_bytes());
    entry
}
