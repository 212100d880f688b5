//! Admin commands: Identify, as far as a host needs it to attach the namespace.
//!
//! Offsets and values are those of the NVMe base specification 2.0 and of the
//! Key Value command set specification 1.0. What the Linux driver insists on:
//! CNTRLTYPE 1, KAS not 0, SGLS bit 0, a CSI descriptor, NSTAT bit 0.

use std::time::Duration;

use nvme_kv_command_set::{
    CSI_KV, IDENTIFY_LEN, IdentifyKvNamespace, KvFormat, MAX_KEY_LEN, NamespaceDescriptors,
    PassthroughCommand, Status, admin, cns,
};

use crate::{
    data::{Data, Outcome},
    execute::check_buffer,
    namespace::{NSID, Namespace},
};

const CSI_NVM: u8 = 0;

/// Controller ID of the emulated controller.
const CNTLID: u16 = 1;

impl Namespace {
    /// Executes one admin command: Identify with CNS 00h to 03h and 05h to 08h,
    /// into a buffer of 4096 bytes. Any other opcode is Invalid Opcode. No
    /// scripted fault applies.
    pub fn execute_admin(&self, command: &[u8; 72], mut data: Data<'_>) -> Outcome {
        let raw = PassthroughCommand::from_bytes(command);
        if let Err(errno) = check_buffer(&raw, &data) {
            return Outcome::Errno(errno);
        }
        let status = match (raw.opcode, &mut data) {
            (admin::IDENTIFY, Data::FromDevice(buffer)) if buffer.len() >= IDENTIFY_LEN => {
                self.counters.count_identify();
                match self.identify(&raw) {
                    Ok(page) => {
                        buffer[..IDENTIFY_LEN].copy_from_slice(&page);
                        Status::SUCCESS
                    }
                    Err(status) => status,
                }
            }
            (admin::IDENTIFY, _) => Status::INVALID_FIELD,
            _ => Status::INVALID_OPCODE,
        };
        Outcome::Completed { status, dw0: 0, latency: Duration::ZERO }
    }

    fn identify(&self, raw: &PassthroughCommand) -> Result<[u8; IDENTIFY_LEN], Status> {
        let csi = (raw.cdw11 >> 24) as u8;
        match raw.cdw10 as u8 {
            cns::NAMESPACE => only_namespace(raw.nsid).map(|()| self.common_namespace()),
            cns::CONTROLLER => Ok(self.controller()),
            cns::ACTIVE_NAMESPACES => active_namespaces(raw.nsid),
            cns::DESCRIPTORS => only_namespace(raw.nsid).map(|()| self.descriptors()),
            cns::CSI_NAMESPACE if csi == CSI_KV => {
                only_namespace(raw.nsid).map(|()| self.kv_namespace())
            }
            // All limits "not reported". Linux asks for the NVM command set's
            // even when the controller has no such namespace.
            cns::CSI_CONTROLLER if csi == CSI_KV || csi == CSI_NVM => Ok([0; IDENTIFY_LEN]),
            cns::CSI_ACTIVE if csi == CSI_KV => active_namespaces(raw.nsid),
            cns::CSI_INDEPENDENT => only_namespace(raw.nsid).map(|()| independent_namespace()),
            _ => Err(Status::INVALID_FIELD),
        }
    }

    /// CNS 00h. A Key-Value namespace has no logical blocks, so every size is
    /// 0; what remains is the identity.
    fn common_namespace(&self) -> [u8; IDENTIFY_LEN] {
        let mut page = [0; IDENTIFY_LEN];
        put(&mut page, 104, &self.nguid());
        page
    }

    /// CNS 01h.
    fn controller(&self) -> [u8; IDENTIFY_LEN] {
        let mut page = [0; IDENTIFY_LEN];
        let serial = format!("{:020x}", u128::from_be_bytes(self.nguid()) & ((1 << 80) - 1));
        let subsystem = format!(
            "nqn.2014-08.org.nvmexpress:uuid:{}",
            uuid_text(u128::from_be_bytes(self.nguid()))
        );
        put(&mut page, 4, &padded::<20>(&serial)); // SN
        put(&mut page, 24, &padded::<40>("Emulated NVMe KV namespace")); // MN
        put(&mut page, 64, &padded::<8>(env!("CARGO_PKG_VERSION"))); // FR
        put(&mut page, 77, &[max_transfer_shift(self.personality().max_value_size)]); // MDTS
        put(&mut page, 78, &CNTLID.to_le_bytes());
        put(&mut page, 80, &0x0002_0000u32.to_le_bytes()); // VER 2.0
        put(&mut page, 111, &[1]); // CNTRLTYPE: I/O controller
        put(&mut page, 259, &[0]); // AERL: one outstanding event request
        put(&mut page, 320, &10u16.to_le_bytes()); // KAS, in 100 ms
        put(&mut page, 512, &[0x66, 0x44]); // SQES 64 bytes, CQES 16 bytes
        put(&mut page, 514, &128u16.to_le_bytes()); // MAXCMD
        put(&mut page, 516, &NSID.to_le_bytes()); // NN
        put(&mut page, 536, &1u32.to_le_bytes()); // SGLS: supported
        put(&mut page, 540, &NSID.to_le_bytes()); // MNAN
        put(&mut page, 768, subsystem.as_bytes()); // SUBNQN, ended by a NUL
        // For fabrics: a command of 64 bytes with 8 KiB of inline data, and a
        // response of 16 bytes, in units of 16 bytes.
        put(&mut page, 1792, &((64 + 8192u32) / 16).to_le_bytes()); // IOCCSZ
        put(&mut page, 1796, &1u32.to_le_bytes()); // IORCSZ
        page
    }

    /// CNS 03h.
    fn descriptors(&self) -> [u8; IDENTIFY_LEN] {
        NamespaceDescriptors {
            nguid: Some(self.nguid()),
            csi: Some(CSI_KV),
            ..NamespaceDescriptors::default()
        }
        .to_bytes()
    }

    /// CNS 05h, CSI 01h.
    fn kv_namespace(&self) -> [u8; IDENTIFY_LEN] {
        let personality = self.personality();
        IdentifyKvNamespace {
            size_bytes: personality.capacity_bytes,
            used_bytes: self.usage().bytes,
            optimal_value_granularity: personality.value_granularity,
            nguid: self.nguid(),
            formats: vec![KvFormat {
                max_key_len: MAX_KEY_LEN as u16,
                additional_format_options: 0,
                max_value_len: personality.max_value_size,
                // 0 is "not stated": for a limit this field cannot express.
                max_keys: u32::try_from(personality.max_keys).unwrap_or(0),
            }],
            ..IdentifyKvNamespace::default()
        }
        .to_bytes()
    }
}

fn only_namespace(nsid: u32) -> Result<(), Status> {
    if nsid == NSID { Ok(()) } else { Err(Status::INVALID_NAMESPACE) }
}

/// CNS 02h and 07h: the identifiers greater than the one given.
fn active_namespaces(after: u32) -> Result<[u8; IDENTIFY_LEN], Status> {
    // FFFFFFFEh and the broadcast identifier FFFFFFFFh leave nothing to list.
    if after >= 0xffff_fffe {
        return Err(Status::INVALID_NAMESPACE);
    }
    let mut page = [0; IDENTIFY_LEN];
    if after < NSID {
        put(&mut page, 0, &NSID.to_le_bytes());
    }
    Ok(page)
}

/// CNS 08h.
fn independent_namespace() -> [u8; IDENTIFY_LEN] {
    let mut page = [0; IDENTIFY_LEN];
    put(&mut page, 14, &[1]); // NSTAT: ready
    page
}

/// MDTS: the power of two of 4096-byte pages that holds the largest value.
fn max_transfer_shift(bytes: u32) -> u8 {
    // At least 1: a field of 0 means that there is no limit.
    bytes.div_ceil(4096).max(2).next_power_of_two().ilog2() as u8
}

fn uuid_text(id: u128) -> String {
    let hex = format!("{id:032x}");
    format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
}

/// ASCII, padded with spaces as the specification wants it; longer text is cut.
fn padded<const N: usize>(text: &str) -> [u8; N] {
    let mut bytes = [b' '; N];
    let len = text.len().min(N);
    bytes[..len].copy_from_slice(&text.as_bytes()[..len]);
    bytes
}

fn put(page: &mut [u8; IDENTIFY_LEN], offset: usize, bytes: &[u8]) {
    page[offset..offset + bytes.len()].copy_from_slice(bytes);
}
