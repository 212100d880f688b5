//! Admin commands that a controller on a fabric answers: Identify, log pages,
//! features, Keep Alive and events.

use std::time::Duration;

use nvme_kv_command_set::{CSI_KV, IDENTIFY_LEN, Opcode, Status, admin, cns};

use crate::{
    data::{Data, Outcome},
    namespace::Namespace,
    target::{
        controllers::MAX_IO_QUEUES,
        entry::Entry,
        fabrics::{MAX_QUEUE_ENTRIES, VERSION},
        pdu::MAX_IN_CAPSULE,
    },
};

const ABORT: u8 = 0x08;

const FEATURE_QUEUES: u8 = 0x07;
const FEATURE_EVENTS: u8 = 0x0b;
const FEATURE_KEEP_ALIVE: u8 = 0x0f;

const LOG_ERRORS: u8 = 0x01;
const LOG_HEALTH: u8 = 0x02;
const LOG_FIRMWARE: u8 = 0x03;
const LOG_EFFECTS: u8 = 0x05;

const EVENT_LIMIT_EXCEEDED: Status = Status::new(1, 0x05);
const INVALID_LOG_PAGE: Status = Status::new(1, 0x09);

/// Asynchronous Event Requests that a controller holds.
const MAX_EVENT_REQUESTS: u8 = 4;

/// Command Dwords of the effects log: supported, and changes what is stored.
const SUPPORTED: u32 = 1;
const CHANGES_CONTENT: u32 = 1 << 1;

/// State of one admin queue.
pub(super) struct AdminQueue {
    pub(super) controller: u16,
    /// Zero for no limit.
    pub(super) keep_alive: Duration,
    events: u32,
    held_events: u8,
}

/// Success with this result, or an error.
pub(super) type Answer = Result<u64, Status>;

impl AdminQueue {
    pub(super) fn new(controller: u16, keep_alive_ms: u32) -> Self {
        Self {
            controller,
            keep_alive: Duration::from_millis(keep_alive_ms.into()),
            events: 0,
            held_events: 0,
        }
    }

    /// Executes one command; `buffer` is the host's memory for its answer and
    /// full of zeros. `None`: there is no answer, as with an event request.
    pub(super) fn execute(
        &mut self,
        namespace: &Namespace,
        nqn: &str,
        entry: Entry<'_>,
        buffer: &mut [u8],
    ) -> Option<Answer> {
        Some(match entry.opcode() {
            admin::IDENTIFY => self.identify(namespace, nqn, entry, buffer),
            admin::GET_LOG_PAGE => log_page(entry, buffer),
            admin::SET_FEATURES => self.set_feature(entry),
            admin::GET_FEATURES => self.feature(entry),
            admin::KEEP_ALIVE => Ok(0),
            // Result bit 0: nothing was aborted.
            ABORT => Ok(1),
            admin::ASYNC_EVENT_REQUEST if self.held_events < MAX_EVENT_REQUESTS => {
                self.held_events += 1;
                return None;
            }
            admin::ASYNC_EVENT_REQUEST => Err(EVENT_LIMIT_EXCEEDED),
            _ => Err(Status::INVALID_OPCODE),
        })
    }

    fn identify(
        &self,
        namespace: &Namespace,
        nqn: &str,
        entry: Entry<'_>,
        buffer: &mut [u8],
    ) -> Answer {
        let mut page = [0; IDENTIFY_LEN];
        let command = entry.passthrough(IDENTIFY_LEN).to_bytes();
        match namespace.execute_admin(&command, Data::FromDevice(&mut page)) {
            Outcome::Completed { status, .. } if status.is_success() => {}
            Outcome::Completed { status, .. } => return Err(status),
            Outcome::Errno(_) | Outcome::NoAnswer => return Err(Status::INTERNAL),
        }
        if entry.dword(10) as u8 == cns::CONTROLLER {
            self.put_fabric_fields(&mut page, nqn, max_transfer(namespace));
        }
        let len = buffer.len().min(IDENTIFY_LEN);
        buffer[..len].copy_from_slice(&page[..len]);
        Ok(0)
    }

    /// What of Identify Controller depends on the transport.
    fn put_fabric_fields(&self, page: &mut [u8; IDENTIFY_LEN], nqn: &str, max_transfer: usize) {
        let mut put = |at: usize, bytes: &[u8]| page[at..at + bytes.len()].copy_from_slice(bytes);
        put(77, &[(max_transfer / 4096).ilog2() as u8]); // MDTS, in pages of 4 KiB
        put(78, &self.controller.to_le_bytes());
        put(80, &VERSION.to_le_bytes());
        put(259, &[MAX_EVENT_REQUESTS - 1]); // AERL, 0's based
        put(514, &MAX_QUEUE_ENTRIES.to_le_bytes()); // MAXCMD
        put(536, &(1u32 | 1 << 20).to_le_bytes()); // SGLS: supported, also in the capsule
        put(768, &[0; 256]);
        put(768, nqn.as_bytes()); // SUBNQN
        put(1792, &((64 + MAX_IN_CAPSULE as u32) / 16).to_le_bytes()); // IOCCSZ
        put(1796, &1u32.to_le_bytes()); // IORCSZ: 16 bytes
        put(1803, &[1]); // MSDBD: one SGL descriptor
    }

    fn set_feature(&mut self, entry: Entry<'_>) -> Answer {
        let value = entry.dword(11);
        match entry.dword(10) as u8 {
            FEATURE_QUEUES => {
                let granted = |asked: u32| (asked & 0xffff).min(u32::from(MAX_IO_QUEUES) - 1);
                Ok(u64::from(granted(value >> 16) << 16 | granted(value)))
            }
            FEATURE_EVENTS => {
                self.events = value;
                Ok(0)
            }
            FEATURE_KEEP_ALIVE => {
                self.keep_alive = Duration::from_millis(value.into());
                Ok(0)
            }
            _ => Err(Status::INVALID_FIELD),
        }
    }

    fn feature(&self, entry: Entry<'_>) -> Answer {
        match entry.dword(10) as u8 {
            FEATURE_QUEUES => {
                let queues = u64::from(MAX_IO_QUEUES) - 1;
                Ok(queues << 16 | queues)
            }
            FEATURE_EVENTS => Ok(self.events.into()),
            FEATURE_KEEP_ALIVE => Ok(self.keep_alive.as_millis() as u64),
            _ => Err(Status::INVALID_FIELD),
        }
    }
}

/// Most bytes that one command moves: a power of two of at least 1 MiB, enough
/// for the largest value, and at most 64 MiB.
pub(super) fn max_transfer(namespace: &Namespace) -> usize {
    let value = namespace.personality().max_value_size as usize;
    value.clamp(1 << 20, 1 << 26).next_power_of_two()
}

/// Get Log Page: what Linux and `nvme-cli` ask of every controller. Only the
/// effects log has anything to say.
fn log_page(entry: Entry<'_>, buffer: &mut [u8]) -> Answer {
    let csi = (entry.dword(14) >> 24) as u8;
    let page = match entry.dword(10) as u8 {
        LOG_ERRORS | LOG_HEALTH | LOG_FIRMWARE => vec![0; 512],
        LOG_EFFECTS => effects(csi),
        _ => return Err(INVALID_LOG_PAGE),
    };
    let offset = u64::from(entry.dword(12)) | u64::from(entry.dword(13)) << 32;
    let rest = usize::try_from(offset)
        .ok()
        .and_then(|offset| page.get(offset..))
        .ok_or(Status::INVALID_FIELD)?;
    let len = buffer.len().min(rest.len());
    buffer[..len].copy_from_slice(&rest[..len]);
    Ok(0)
}

/// Commands Supported and Effects of a command set: a dword for each of the 256
/// admin opcodes, then one for each of the 256 I/O opcodes.
fn effects(csi: u8) -> Vec<u8> {
    let mut page = vec![0; 4096];
    let mut put = |index: usize, effects: u32| {
        page[index * 4..index * 4 + 4].copy_from_slice(&effects.to_le_bytes());
    };
    for opcode in [
        admin::GET_LOG_PAGE,
        admin::IDENTIFY,
        ABORT,
        admin::SET_FEATURES,
        admin::GET_FEATURES,
        admin::ASYNC_EVENT_REQUEST,
        admin::KEEP_ALIVE,
    ] {
        put(opcode.into(), SUPPORTED);
    }
    if csi == CSI_KV {
        for opcode in Opcode::ALL {
            let changes = match opcode {
                Opcode::Store | Opcode::Delete => CHANGES_CONTENT,
                Opcode::Retrieve | Opcode::List | Opcode::Exist => 0,
            };
            put(256 + opcode as usize, SUPPORTED | changes);
        }
    }
    page
}
