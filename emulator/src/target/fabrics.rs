//! Fabrics commands: Connect, and the controller properties behind Property
//! Get and Property Set. Source: NVMe Base Specification 2.0, sections 3 and 6.

use nvme_kv_command_set::Status;

use crate::target::{
    entry::Entry,
    pdu::{u16_at, u32_at},
};

/// Fabrics command types.
pub(super) mod kind {
    pub(in crate::target) const PROPERTY_SET: u8 = 0x00;
    pub(in crate::target) const CONNECT: u8 = 0x01;
    pub(in crate::target) const PROPERTY_GET: u8 = 0x04;
}

/// Entries of the largest queue.
pub(super) const MAX_QUEUE_ENTRIES: u16 = 1024;

/// NVMe version 2.0, as property VS and in Identify Controller.
pub(super) const VERSION: u32 = 0x0002_0000;

const CONNECT_FORMAT: Status = Status::new(1, 0x80);
const CONNECT_INVALID_PARAMETERS: Status = Status::new(1, 0x82);

/// Length of the data of a Connect in bytes.
const CONNECT_DATA_LEN: usize = 1024;
/// Controller identifier of a Connect that asks for a new controller.
const NEW_CONTROLLER: u16 = 0xffff;

/// What a host asks for with Connect.
pub(super) struct Connect {
    pub(super) queue_id: u16,
    /// Entries of the queue.
    pub(super) entries: u16,
    /// Milliseconds; 0 for no limit.
    pub(super) keep_alive: u32,
    pub(super) controller: u16,
    pub(super) host: Host,
}

/// Who a controller belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Host {
    id: [u8; 16],
    nqn: [u8; 256],
}

/// A refused Connect: status and result.
#[derive(Clone, Copy, Debug)]
pub(super) struct Refusal {
    pub(super) status: Status,
    pub(super) result: u64,
}

impl Refusal {
    /// A wrong field at this offset of the submission entry.
    pub(super) const fn entry(offset: u16) -> Self {
        Self { status: CONNECT_INVALID_PARAMETERS, result: offset as u64 }
    }

    /// A wrong field at this offset of the data (result bit 16).
    pub(super) const fn data(offset: u16) -> Self {
        Self { status: CONNECT_INVALID_PARAMETERS, result: 1 << 16 | offset as u64 }
    }

    pub(super) const fn status(status: Status) -> Self {
        Self { status, result: 0 }
    }
}

impl Connect {
    /// Offset of the queue identifier in the submission entry.
    pub(super) const QUEUE_ID: u16 = 42;
    const ENTRIES: u16 = 44;
    /// Offset of the controller identifier in the data.
    pub(super) const CONTROLLER: u16 = 16;
    const SUBSYSTEM: u16 = 256;

    /// Reads a Connect to the subsystem called `nqn`.
    pub(super) fn parse(entry: Entry<'_>, data: &[u8], nqn: &str) -> Result<Self, Refusal> {
        let Some(data) = data.first_chunk::<CONNECT_DATA_LEN>() else {
            return Err(Refusal::entry(32));
        };
        if u16_at(entry.0, 40) != 0 {
            return Err(Refusal::status(CONNECT_FORMAT));
        }
        let entries = u16_at(entry.0, 44).saturating_add(1);
        if !(2..=MAX_QUEUE_ENTRIES).contains(&entries) {
            return Err(Refusal::entry(Self::ENTRIES));
        }
        let name = &data[256..512];
        let name = name.split(|byte| *byte == 0).next().unwrap_or_default();
        if name != nqn.as_bytes() {
            return Err(Refusal::data(Self::SUBSYSTEM));
        }
        let mut host = Host { id: [0; 16], nqn: [0; 256] };
        host.id.copy_from_slice(&data[..16]);
        host.nqn.copy_from_slice(&data[512..768]);
        let connect = Self {
            queue_id: u16_at(entry.0, 42),
            entries,
            keep_alive: u32_at(entry.0, 48),
            controller: u16_at(data, 16),
            host,
        };
        if connect.queue_id == 0 && connect.controller != NEW_CONTROLLER {
            return Err(Refusal::data(Self::CONTROLLER));
        }
        Ok(connect)
    }
}

/// The properties of one controller that a host can change.
#[derive(Debug, Default)]
pub(super) struct Properties {
    configuration: u32,
    status: u32,
}

const CAP: u32 = 0x00;
const VS: u32 = 0x08;
const CC: u32 = 0x14;
const CSTS: u32 = 0x1c;

const ENABLE: u32 = 1;
const SHUTDOWN_MASK: u32 = 0x3 << 14;
const READY: u32 = 1;
const SHUTDOWN_COMPLETE: u32 = 0x2 << 2;

impl Properties {
    pub(super) fn is_ready(&self) -> bool {
        self.status & READY != 0
    }

    pub(super) fn get(&self, entry: Entry<'_>) -> Result<u64, Status> {
        // Attribute bit 0: a property of 8 bytes and not of 4.
        let wide = entry.0[40] & 1 == 1;
        match (entry.dword(11), wide) {
            (CAP, true) => Ok(capabilities()),
            (VS, false) => Ok(VERSION.into()),
            (CC, false) => Ok(self.configuration.into()),
            (CSTS, false) => Ok(self.status.into()),
            _ => Err(Status::INVALID_FIELD),
        }
    }

    pub(super) fn set(&mut self, entry: Entry<'_>) -> Result<(), Status> {
        if (entry.dword(11), entry.0[40] & 1) != (CC, 0) {
            return Err(Status::INVALID_FIELD);
        }
        self.configuration = entry.dword(12);
        self.status = 0;
        if self.configuration & ENABLE != 0 {
            self.status |= READY;
        }
        if self.configuration & SHUTDOWN_MASK != 0 {
            self.status |= SHUTDOWN_COMPLETE;
        }
        Ok(())
    }
}

/// CAP: MQES, contiguous queues, ready within 10 s (TO, in 500 ms), and in CSS
/// the NVM command set (bit 37) and several command sets (bit 43), without
/// which Linux does not look for Key-Value namespaces.
fn capabilities() -> u64 {
    u64::from(MAX_QUEUE_ENTRIES - 1) | 1 << 16 | 20 << 24 | 1 << 37 | 1 << 43
}
