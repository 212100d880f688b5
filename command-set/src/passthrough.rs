//! The 72-byte command structure that Linux takes by ioctl and by io_uring.

use std::fmt;

use crate::identify::IDENTIFY_LEN;
use crate::{Command, Key, MAX_KEY_LEN, Opcode, Status, StoreOptions, admin};

/// `struct nvme_passthru_cmd` and `struct nvme_uring_cmd`.
///
/// Both have this layout; they differ only in the last word, which is the result (completion
/// DW0) of an ioctl and reserved in an io_uring command. Fields are in native byte order, and
/// the kernel stores CDWs little-endian into the submission.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct PassthroughCommand {
    /// Opcode: of an I/O command see [`Opcode`], of an admin command see [`admin`].
    pub opcode: u8,
    /// CDW0 bits 15:8. The Linux driver refuses anything but zero.
    pub flags: u8,
    /// Reserved.
    pub rsvd1: u16,
    /// Namespace identifier.
    pub nsid: u32,
    /// Command dword 2: key bytes 0 to 3.
    pub cdw2: u32,
    /// Command dword 3: key bytes 4 to 7.
    pub cdw3: u32,
    /// Address of the metadata buffer; Key Value commands have none.
    pub metadata: u64,
    /// Address of the data buffer, or of an iovec array in a vectored command.
    pub addr: u64,
    /// Length of the metadata buffer in bytes.
    pub metadata_len: u32,
    /// Length of the data buffer in bytes, or number of iovecs in a vectored command.
    pub data_len: u32,
    /// Command dword 10: value size or host buffer size in bytes.
    pub cdw10: u32,
    /// Command dword 11: key length in bits 7:0, options in bits 15:8.
    pub cdw11: u32,
    /// Command dword 12.
    pub cdw12: u32,
    /// Command dword 13.
    pub cdw13: u32,
    /// Command dword 14: key bytes 8 to 11.
    pub cdw14: u32,
    /// Command dword 15: key bytes 12 to 15.
    pub cdw15: u32,
    /// Timeout in milliseconds; zero is the driver's default.
    pub timeout_ms: u32,
    /// Completion DW0 after an ioctl; reserved (zero) in an io_uring command.
    pub result: u32,
}

/// `struct nvme_passthru_cmd64`, 80 bytes: the same command with a 64-bit result.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct PassthroughCommand64 {
    /// The command. Its last word is reserved here and not the result.
    pub command: PassthroughCommand,
    /// Completion DW0 (low half) and DW1 (high half).
    pub result: u64,
}

impl From<&PassthroughCommand> for PassthroughCommand64 {
    fn from(command: &PassthroughCommand) -> Self {
        Self { command: PassthroughCommand { result: 0, ..*command }, result: 0 }
    }
}

const _: () = {
    use std::mem::offset_of;
    assert!(size_of::<PassthroughCommand>() == 72);
    assert!(align_of::<PassthroughCommand>() == align_of::<u64>());
    assert!(offset_of!(PassthroughCommand, opcode) == 0);
    assert!(offset_of!(PassthroughCommand, flags) == 1);
    assert!(offset_of!(PassthroughCommand, rsvd1) == 2);
    assert!(offset_of!(PassthroughCommand, nsid) == 4);
    assert!(offset_of!(PassthroughCommand, cdw2) == 8);
    assert!(offset_of!(PassthroughCommand, cdw3) == 12);
    assert!(offset_of!(PassthroughCommand, metadata) == 16);
    assert!(offset_of!(PassthroughCommand, addr) == 24);
    assert!(offset_of!(PassthroughCommand, metadata_len) == 32);
    assert!(offset_of!(PassthroughCommand, data_len) == 36);
    assert!(offset_of!(PassthroughCommand, cdw10) == 40);
    assert!(offset_of!(PassthroughCommand, cdw11) == 44);
    assert!(offset_of!(PassthroughCommand, cdw12) == 48);
    assert!(offset_of!(PassthroughCommand, cdw13) == 52);
    assert!(offset_of!(PassthroughCommand, cdw14) == 56);
    assert!(offset_of!(PassthroughCommand, cdw15) == 60);
    assert!(offset_of!(PassthroughCommand, timeout_ms) == 64);
    assert!(offset_of!(PassthroughCommand, result) == 68);
    assert!(size_of::<PassthroughCommand64>() == 80);
    assert!(offset_of!(PassthroughCommand64, result) == 72);
};

impl PassthroughCommand {
    /// A Key Value command without data buffer: the caller adds `addr` and `data_len`.
    pub fn new(command: &Command, nsid: u32, timeout_ms: u32) -> Self {
        let (cdw10, options) = match *command {
            Command::Store { value_len, options, .. } => (value_len, options.to_bits()),
            Command::Retrieve { buffer_len, raw, .. } => (buffer_len, u8::from(raw)),
            Command::List { buffer_len, .. } => (buffer_len, 0),
            Command::Delete { .. } | Command::Exist { .. } => (0, 0),
        };
        let key_len = command.key().map_or(0, |key| key.len() as u32);
        let [cdw2, cdw3, cdw14, cdw15] = key_dwords(command.key());
        Self {
            opcode: command.opcode() as u8,
            nsid,
            cdw2,
            cdw3,
            cdw10,
            cdw11: u32::from(options) << 8 | key_len,
            cdw14,
            cdw15,
            timeout_ms,
            ..Self::default()
        }
    }

    /// An admin Identify of 4096 bytes to `addr`.
    ///
    /// `cns` selects the data structure (see [`cns`](crate::cns)) and `csi` the command set
    /// (CDW11 bits 31:24), which only some structures use.
    pub fn identify(nsid: u32, cns: u8, csi: u8, addr: u64, timeout_ms: u32) -> Self {
        Self {
            opcode: admin::IDENTIFY,
            nsid,
            addr,
            data_len: IDENTIFY_LEN as u32,
            cdw10: u32::from(cns),
            cdw11: u32::from(csi) << 24,
            timeout_ms,
            ..Self::default()
        }
    }

    /// The bytes of the structure as they are in memory (native byte order).
    pub fn to_bytes(&self) -> [u8; 72] {
        let mut bytes = [0; 72];
        bytes[0] = self.opcode;
        bytes[1] = self.flags;
        bytes[2..4].copy_from_slice(&self.rsvd1.to_ne_bytes());
        for (offset, word) in [(4, self.nsid), (8, self.cdw2), (12, self.cdw3)] {
            bytes[offset..offset + 4].copy_from_slice(&word.to_ne_bytes());
        }
        bytes[16..24].copy_from_slice(&self.metadata.to_ne_bytes());
        bytes[24..32].copy_from_slice(&self.addr.to_ne_bytes());
        let tail = [
            self.metadata_len,
            self.data_len,
            self.cdw10,
            self.cdw11,
            self.cdw12,
            self.cdw13,
            self.cdw14,
            self.cdw15,
            self.timeout_ms,
            self.result,
        ];
        for (slot, word) in bytes[32..].chunks_exact_mut(4).zip(tail) {
            slot.copy_from_slice(&word.to_ne_bytes());
        }
        bytes
    }

    /// The structure of these bytes; the inverse of [`to_bytes`](Self::to_bytes). Any bytes are
    /// a structure: whether it is a command is the answer of [`decode`](Self::decode).
    pub fn from_bytes(bytes: &[u8; 72]) -> Self {
        let u32_at = |at: usize| {
            u32::from_ne_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
        };
        let u64_at = |at: usize| {
            let mut word = [0; 8];
            word.copy_from_slice(&bytes[at..at + 8]);
            u64::from_ne_bytes(word)
        };
        Self {
            opcode: bytes[0],
            flags: bytes[1],
            rsvd1: u16::from_ne_bytes([bytes[2], bytes[3]]),
            nsid: u32_at(4),
            cdw2: u32_at(8),
            cdw3: u32_at(12),
            metadata: u64_at(16),
            addr: u64_at(24),
            metadata_len: u32_at(32),
            data_len: u32_at(36),
            cdw10: u32_at(40),
            cdw11: u32_at(44),
            cdw12: u32_at(48),
            cdw13: u32_at(52),
            cdw14: u32_at(56),
            cdw15: u32_at(60),
            timeout_ms: u32_at(64),
            result: u32_at(68),
        }
    }

    /// Reads the structure as a Key Value I/O command, as a device does.
    ///
    /// Reserved dwords and reserved CDW11 bits 31:16 are not looked at: the `mooncake` profile
    /// puts a block count into CDW12. Key bytes past the key length are ignored. Whether `nsid`
    /// exists and the data buffer is large enough is for the device to judge.
    ///
    /// # Errors
    /// [`DecodeError`], whose [`status`](DecodeError::status) is the device's answer.
    pub fn decode(&self) -> Result<Command, DecodeError> {
        let opcode = Opcode::try_from(self.opcode)
            .map_err(|unknown| DecodeError::UnknownOpcode(unknown.0))?;
        if self.flags != 0 {
            return Err(DecodeError::Field { name: "CDW0 flags", value: self.flags.into() });
        }
        let [key_len, options, ..] = self.cdw11.to_le_bytes();
        let unknown_options =
            || DecodeError::Field { name: "CDW11 options", value: options.into() };
        match opcode {
            Opcode::Store => Ok(Command::Store {
                key: self.key(key_len)?,
                value_len: self.cdw10,
                options: StoreOptions::from_bits(options).ok_or_else(unknown_options)?,
            }),
            Opcode::Retrieve => Ok(Command::Retrieve {
                key: self.key(key_len)?,
                buffer_len: self.cdw10,
                raw: match options {
                    0 => false,
                    1 => true,
                    _ => return Err(unknown_options()),
                },
            }),
            Opcode::List => Ok(Command::List {
                start: if key_len == 0 { None } else { Some(self.key(key_len)?) },
                buffer_len: self.cdw10,
            }),
            Opcode::Delete => Ok(Command::Delete { key: self.key(key_len)? }),
            Opcode::Exist => Ok(Command::Exist { key: self.key(key_len)? }),
        }
    }

    fn key(&self, len: u8) -> Result<Key, DecodeError> {
        let mut bytes = [0; MAX_KEY_LEN];
        for (slot, dword) in
            bytes.chunks_exact_mut(4).zip([self.cdw2, self.cdw3, self.cdw14, self.cdw15])
        {
            slot.copy_from_slice(&dword.to_le_bytes());
        }
        bytes.get(..usize::from(len)).and_then(Key::new).ok_or(DecodeError::KeyLength(len.into()))
    }
}

/// CDW2, CDW3, CDW14, CDW15 of a key: its bytes in order, each dword little-endian.
fn key_dwords(key: Option<Key>) -> [u32; 4] {
    let bytes = key.map_or([0; MAX_KEY_LEN], |key| key.padded());
    let mut dwords = [0; 4];
    for (dword, chunk) in dwords.iter_mut().zip(bytes.chunks_exact(4)) {
        *dword = u32::from_le_bytes([chunk[0], chunk[1], chunk[2], chunk[3]]);
    }
    dwords
}

/// Why a structure is not a Key Value command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DecodeError {
    /// The opcode is not of this command set.
    UnknownOpcode(u8),
    /// The key length is not 1 to 16 (0 to 16 for a List).
    KeyLength(u32),
    /// A field has a value that the command set does not define.
    Field {
        /// Name of the field.
        name: &'static str,
        /// What it holds.
        value: u32,
    },
}

impl DecodeError {
    /// What a device answers.
    pub fn status(&self) -> Status {
        match self {
            Self::UnknownOpcode(_) => Status::INVALID_OPCODE,
            Self::KeyLength(_) => Status::INVALID_KEY_SIZE,
            Self::Field { .. } => Status::INVALID_FIELD,
        }
    }
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownOpcode(opcode) => {
                write!(f, "opcode {opcode:02x}h is not a Key Value command")
            }
            Self::KeyLength(len) => write!(f, "key length is {len} bytes, expected 1 to 16"),
            Self::Field { name, value } => write!(f, "{name} has undefined bits: {value:#x}"),
        }
    }
}

impl std::error::Error for DecodeError {}
