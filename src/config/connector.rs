//! The namespace, its limits and how commands reach it.

use std::fmt;
use std::time::Duration;

use nvme_kv_command_set::WireProfile;

use super::variables::Variables;
use crate::{Error, ErrorCode, Result};

const DEFAULT_NSID: u32 = 1;
const DEFAULT_QUEUE_DEPTH: u32 = 256;
const DEFAULT_RUNTIME_TRANSFER_LIMIT: u32 = 270_336;
const DEFAULT_PROTOCOL_MAX_VALUE_SIZE: u32 = 524_288;
const DEFAULT_TRANSFER_ALIGNMENT: u32 = 4096;
const DEFAULT_VALUE_BLOCK_UNIT: u32 = 512;
const DEFAULT_COMMAND_TIMEOUT_MS: u32 = 30_000;

/// One configured namespace. Sizes are in bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectorConfig {
    /// The namespace's device node; with [`Transport::Emulated`], `mem:NAME` or a directory.
    /// `MOONCAKE_NVME_KV_DEVICE_PATH`, required.
    pub device_path: String,
    /// Namespace identifier in every command. `MOONCAKE_NVME_KV_NSID`, default 1.
    pub nsid: u32,
    /// Whether `nsid` was set rather than left at its default.
    pub nsid_explicit: bool,
    /// Commands in flight at once, never 0. `MOONCAKE_NVME_KV_QUEUE_DEPTH`, default (and 0) 256.
    pub queue_depth: u32,
    /// Largest transfer that the host wants to make.
    /// `MOONCAKE_NVME_KV_RUNTIME_TRANSFER_LIMIT`, default (and 0) 270336.
    pub runtime_transfer_limit: u32,
    /// Largest value that the device takes.
    /// `MOONCAKE_NVME_KV_PROTOCOL_MAX_VALUE_SIZE`, default 524288.
    pub protocol_max_value_size: u32,
    /// Transfer lengths are multiples of this and DMA buffers start at one, never 0.
    /// `MOONCAKE_NVME_KV_TRANSFER_ALIGNMENT_BYTES`, default (and 0) 4096.
    pub transfer_alignment: u32,
    /// Unit of the value block count in CDW12 (`mooncake` wire profile), never 0.
    /// `MOONCAKE_NVME_KV_VALUE_BLOCK_UNIT_BYTES`, default (and 0) 512.
    pub value_block_unit: u32,
    /// Which executor carries the commands. `MOONCAKE_NVME_KV_TRANSPORT`.
    pub transport: Transport,
    /// How commands are encoded.
    /// `MOONCAKE_NVME_KV_WIRE_PROFILE`: `mooncake` (default) or `spec`.
    pub wire_profile: WireProfile,
    /// How long one command may take, in whole milliseconds, never 0.
    /// `MOONCAKE_NVME_KV_COMMAND_TIMEOUT_MS`, default (and 0) 30000.
    pub command_timeout: Duration,
}

impl ConnectorConfig {
    /// The largest value that is stored: the smaller of the protocol's and the host's limit,
    /// rounded down to the transfer alignment. 0 when the alignment is larger than both.
    pub fn effective_max_value_size(&self) -> u32 {
        let limit = self.protocol_max_value_size.min(self.runtime_transfer_limit);
        limit - limit.checked_rem(self.transfer_alignment).unwrap_or(0)
    }

    pub(super) fn read(variables: &mut Variables<'_>) -> Result<Self> {
        let device_path = device_path(variables)?;
        let nsid = variables.number("MOONCAKE_NVME_KV_NSID", DEFAULT_NSID);
        let timeout_ms = variables
            .positive_or("MOONCAKE_NVME_KV_COMMAND_TIMEOUT_MS", DEFAULT_COMMAND_TIMEOUT_MS);
        Ok(ConnectorConfig {
            device_path,
            nsid: nsid.unwrap_or(DEFAULT_NSID),
            nsid_explicit: nsid.is_some(),
            queue_depth: variables.positive_or("MOONCAKE_NVME_KV_QUEUE_DEPTH", DEFAULT_QUEUE_DEPTH),
            runtime_transfer_limit: variables.positive_or(
                "MOONCAKE_NVME_KV_RUNTIME_TRANSFER_LIMIT",
                DEFAULT_RUNTIME_TRANSFER_LIMIT,
            ),
            protocol_max_value_size: variables.number_or(
                "MOONCAKE_NVME_KV_PROTOCOL_MAX_VALUE_SIZE",
                DEFAULT_PROTOCOL_MAX_VALUE_SIZE,
            ),
            transfer_alignment: variables.positive_or(
                "MOONCAKE_NVME_KV_TRANSFER_ALIGNMENT_BYTES",
                DEFAULT_TRANSFER_ALIGNMENT,
            ),
            value_block_unit: variables
                .positive_or("MOONCAKE_NVME_KV_VALUE_BLOCK_UNIT_BYTES", DEFAULT_VALUE_BLOCK_UNIT),
            transport: variables.choice("MOONCAKE_NVME_KV_TRANSPORT", &Transport::CHOICES)?,
            wire_profile: variables.choice(
                "MOONCAKE_NVME_KV_WIRE_PROFILE",
                &[("mooncake", WireProfile::Mooncake), ("spec", WireProfile::Spec)],
            )?,
            command_timeout: Duration::from_millis(timeout_ms.into()),
        })
    }
}

/// What an empty environment gives; the device path is empty, which nothing can open.
impl Default for ConnectorConfig {
    fn default() -> Self {
        ConnectorConfig {
            device_path: String::new(),
            nsid: DEFAULT_NSID,
            nsid_explicit: false,
            queue_depth: DEFAULT_QUEUE_DEPTH,
            runtime_transfer_limit: DEFAULT_RUNTIME_TRANSFER_LIMIT,
            protocol_max_value_size: DEFAULT_PROTOCOL_MAX_VALUE_SIZE,
            transfer_alignment: DEFAULT_TRANSFER_ALIGNMENT,
            value_block_unit: DEFAULT_VALUE_BLOCK_UNIT,
            transport: Transport::default(),
            wire_profile: WireProfile::default(),
            command_timeout: Duration::from_millis(DEFAULT_COMMAND_TIMEOUT_MS.into()),
        }
    }
}

/// Which executor carries the commands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Transport {
    /// `auto`: io_uring, or ioctl where io_uring cannot be initialised.
    #[default]
    Auto,
    /// `io_uring`, with no fallback.
    IoUring,
    /// `ioctl`, with no fallback.
    Ioctl,
    /// `emulated`: a namespace inside this process, in memory or in a directory.
    Emulated,
}

impl Transport {
    const CHOICES: [(&str, Transport); 4] = [
        ("auto", Transport::Auto),
        ("io_uring", Transport::IoUring),
        ("ioctl", Transport::Ioctl),
        ("emulated", Transport::Emulated),
    ];
}

/// The word that selects it in `MOONCAKE_NVME_KV_TRANSPORT`.
impl fmt::Display for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Transport::Auto => "auto",
            Transport::IoUring => "io_uring",
            Transport::Ioctl => "ioctl",
            Transport::Emulated => "emulated",
        })
    }
}

fn device_path(variables: &Variables<'_>) -> Result<String> {
    const NAME: &str = "MOONCAKE_NVME_KV_DEVICE_PATH";
    let invalid = |message| Err(Error::new(ErrorCode::InvalidParams, message));
    match variables.text(NAME) {
        None => invalid(format!("{NAME} is not set; it names the namespace, e.g. /dev/ng0n1")),
        // An Environment's mark for bytes that are not UTF-8: the path meant is another one.
        Some(path) if path.contains(char::REPLACEMENT_CHARACTER) => {
            invalid(format!("{NAME}={path:?} is not UTF-8; use a path that is"))
        }
        Some(path) => Ok(path),
    }
}
