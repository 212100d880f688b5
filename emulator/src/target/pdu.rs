//! Protocol data units of NVMe/TCP: layouts, and what makes one malformed.
//!
//! Every PDU begins with a common header of 8 bytes: type, flags, header
//! length, data offset and, in 4 bytes, the length of the whole PDU. Numbers
//! are little-endian. Source: NVMe TCP Transport Specification 1.0.

/// Length of the common header in bytes.
pub(super) const COMMON_LEN: usize = 8;
/// Length of ICReq and ICResp in bytes.
pub(super) const INITIALIZE_LEN: usize = 128;
/// Header length of a command capsule: common header and submission entry.
pub(super) const COMMAND_LEN: usize = COMMON_LEN + 64;
/// Header length of every other PDU that a controller sends or takes.
pub(super) const SHORT_LEN: usize = 24;

/// Largest in-capsule data in bytes, which IOCCSZ announces.
pub(super) const MAX_IN_CAPSULE: usize = 8192;
/// Largest H2CData payload in bytes (MAXH2CDATA). As much as may be asked for
/// at once, so that one R2T is answered by one PDU.
pub(super) const MAX_H2C_DATA: usize = 256 * 1024;

/// Longest H2CTermReq: its header and 128 bytes of the PDU it is about.
const MAX_TERMINATE_LEN: usize = SHORT_LEN + MAX_QUOTE;
const MAX_QUOTE: usize = 128;

/// Flag of the last data PDU of an R2T or of a transfer.
const LAST: u8 = 1 << 2;

/// PDU types.
pub(super) mod kind {
    pub(in crate::target) const ICREQ: u8 = 0x0;
    pub(in crate::target) const ICRESP: u8 = 0x1;
    pub(in crate::target) const H2C_TERMINATE: u8 = 0x2;
    pub(in crate::target) const C2H_TERMINATE: u8 = 0x3;
    pub(in crate::target) const COMMAND: u8 = 0x4;
    pub(in crate::target) const RESPONSE: u8 = 0x5;
    pub(in crate::target) const H2C_DATA: u8 = 0x6;
    pub(in crate::target) const C2H_DATA: u8 = 0x7;
    pub(in crate::target) const R2T: u8 = 0x9;
}

/// Fatal Error Status (FES) of a C2HTermReq.
#[repr(u16)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FatalStatus {
    InvalidHeader = 1,
    Sequence = 2,
    OutOfRange = 4,
    LimitExceeded = 5,
    UnsupportedParameter = 6,
}

/// Why a connection has to end: the host broke the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fatal {
    pub(super) status: FatalStatus,
    /// Byte offset of the wrong field in the PDU (FEI).
    pub(super) field: u32,
}

impl Fatal {
    pub(super) const fn new(status: FatalStatus, field: u32) -> Self {
        Self { status, field }
    }
}

/// The common header of a PDU that a host sent, checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) kind: u8,
    /// Where the data begins; the PDU's length if there is none.
    pub(super) data_offset: usize,
    pub(super) len: usize,
}

impl Header {
    /// Checks everything that the common header says. Digests are never
    /// agreed upon, so their flags are as wrong as any other unknown one.
    pub(super) fn parse(bytes: [u8; COMMON_LEN]) -> Result<Self, Fatal> {
        let [kind, flags, header_len, data_offset, len @ ..] = bytes;
        let len = u32::from_le_bytes(len) as usize;
        let (expected_header, allowed_flags, max_data) = match kind {
            kind::ICREQ => (INITIALIZE_LEN, 0, 0),
            kind::H2C_TERMINATE => (SHORT_LEN, 0, 0),
            kind::COMMAND => (COMMAND_LEN, 0, MAX_IN_CAPSULE),
            kind::H2C_DATA => (SHORT_LEN, LAST, MAX_H2C_DATA),
            _ => return Err(Fatal::new(FatalStatus::InvalidHeader, 0)),
        };
        if flags & !allowed_flags != 0 {
            return Err(Fatal::new(FatalStatus::InvalidHeader, 1));
        }
        if usize::from(header_len) != expected_header {
            return Err(Fatal::new(FatalStatus::InvalidHeader, 2));
        }
        let wrong_len = Fatal::new(FatalStatus::InvalidHeader, 4);
        if kind == kind::H2C_TERMINATE {
            let fits = (SHORT_LEN..=MAX_TERMINATE_LEN).contains(&len);
            return if fits { Ok(Self { kind, data_offset: len, len }) } else { Err(wrong_len) };
        }
        if len < expected_header {
            return Err(wrong_len);
        }
        if len == expected_header {
            return Ok(Self { kind, data_offset: len, len });
        }
        let data_offset = usize::from(data_offset);
        if data_offset < expected_header || !data_offset.is_multiple_of(4) || data_offset > len {
            return Err(Fatal::new(FatalStatus::InvalidHeader, 3));
        }
        if max_data == 0 {
            return Err(wrong_len);
        }
        if len - data_offset > max_data {
            return Err(Fatal::new(FatalStatus::LimitExceeded, 4));
        }
        Ok(Self { kind, data_offset, len })
    }

    /// Bytes of data behind the header.
    pub(super) fn data_len(&self) -> usize {
        self.len - self.data_offset
    }
}

/// The fields of an H2CData header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct HostData {
    pub(super) command_id: u16,
    pub(super) tag: u16,
    pub(super) offset: usize,
    pub(super) len: usize,
}

impl HostData {
    pub(super) fn parse(pdu: &[u8; SHORT_LEN]) -> Self {
        Self {
            command_id: u16_at(pdu, 8),
            tag: u16_at(pdu, 10),
            offset: u32_at(pdu, 12) as usize,
            len: u32_at(pdu, 16) as usize,
        }
    }
}

/// ICResp: format 0, no alignment, no digests.
pub(super) fn initialize_response() -> [u8; INITIALIZE_LEN] {
    let mut pdu = [0; INITIALIZE_LEN];
    common(&mut pdu, kind::ICRESP, 0, 0, INITIALIZE_LEN);
    pdu[12..16].copy_from_slice(&(MAX_H2C_DATA as u32).to_le_bytes());
    pdu
}

/// R2T: the host may send `len` bytes of a command's data from `offset` on.
pub(super) fn ready_to_transfer(
    command_id: u16,
    tag: u16,
    offset: usize,
    len: usize,
) -> [u8; SHORT_LEN] {
    let mut pdu = [0; SHORT_LEN];
    common(&mut pdu, kind::R2T, 0, 0, SHORT_LEN);
    pdu[8..10].copy_from_slice(&command_id.to_le_bytes());
    pdu[10..12].copy_from_slice(&tag.to_le_bytes());
    pdu[12..16].copy_from_slice(&(offset as u32).to_le_bytes());
    pdu[16..20].copy_from_slice(&(len as u32).to_le_bytes());
    pdu
}

/// Header of the only C2HData of a command, whose `len` bytes begin
/// `data_offset` bytes (24 to 255) after the header does.
///
/// The flag SUCCESS, which spares the response, is never set: dword 0 of the
/// response is the length of the value.
pub(super) fn controller_data(command_id: u16, data_offset: u8, len: usize) -> [u8; SHORT_LEN] {
    let mut pdu = [0; SHORT_LEN];
    common(&mut pdu, kind::C2H_DATA, LAST, data_offset, usize::from(data_offset) + len);
    pdu[8..10].copy_from_slice(&command_id.to_le_bytes());
    pdu[16..20].copy_from_slice(&(len as u32).to_le_bytes());
    pdu
}

/// Response capsule around a completion entry.
pub(super) fn response(completion: &[u8; 16]) -> [u8; SHORT_LEN] {
    let mut pdu = [0; SHORT_LEN];
    common(&mut pdu, kind::RESPONSE, 0, 0, SHORT_LEN);
    pdu[8..].copy_from_slice(completion);
    pdu
}

/// C2HTermReq about the PDU that begins with `offending`.
pub(super) fn terminate(fatal: Fatal, offending: &[u8]) -> Vec<u8> {
    let quote = &offending[..offending.len().min(MAX_QUOTE)];
    let mut pdu = vec![0; SHORT_LEN + quote.len()];
    let len = pdu.len();
    common(&mut pdu, kind::C2H_TERMINATE, 0, 0, len);
    pdu[2] = SHORT_LEN as u8;
    pdu[8..10].copy_from_slice(&(fatal.status as u16).to_le_bytes());
    pdu[10..14].copy_from_slice(&fatal.field.to_le_bytes());
    pdu[SHORT_LEN..].copy_from_slice(quote);
    pdu
}

/// Fills the common header. The header length is what of it is in `pdu`.
fn common(pdu: &mut [u8], kind: u8, flags: u8, data_offset: u8, len: usize) {
    pdu[0] = kind;
    pdu[1] = flags;
    pdu[2] = pdu.len() as u8;
    pdu[3] = data_offset;
    pdu[4..8].copy_from_slice(&(len as u32).to_le_bytes());
}

pub(super) fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

pub(super) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}
