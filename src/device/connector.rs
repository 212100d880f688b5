//! One configured namespace: picks one executor at open, and stays with it.

use std::sync::Arc;

use nvme_kv_command_set::{IdentifyKvNamespace, Wire, WireProfile};

use super::executor::{Capabilities, Executor};
use super::{BufferPool, CommandError};
use crate::config::{ConnectorConfig, Transport};
use crate::error::{Error, ErrorCode, Result};
use crate::log;

/// Bytes of idle transport buffers that are kept for reuse.
const KEPT_BUFFER_BYTES: usize = 64 << 20;

/// An open namespace.
#[derive(Clone, Debug)]
pub struct Connector {
    executor: Arc<dyn Executor>,
}

impl Connector {
    /// Opens the configured device with the configured transport.
    ///
    /// # Errors
    /// INVALID_PARAMS for a bad path or setting, NOT_SUPPORTED for a transport that this build
    /// or machine lacks, FILE_OPEN_FAIL when the device cannot be opened or identified.
    pub fn open(config: &ConnectorConfig) -> Result<Connector> {
        if config.device_path.is_empty() {
            return Err(Error::new(
                ErrorCode::InvalidParams,
                "MOONCAKE_NVME_KV_DEVICE_PATH is not set: name the namespace, e.g. /dev/ng0n1",
            ));
        }
        let executor: Arc<dyn Executor> = match config.transport {
            Transport::Emulated => open_emulated(config)?,
            Transport::Auto | Transport::IoUring | Transport::Ioctl => {
                return Err(Error::new(
                    ErrorCode::NotSupported,
                    format!(
                        "transport {} for {} is not available in this build: set \
                         MOONCAKE_NVME_KV_TRANSPORT=emulated with a mem:NAME or directory path",
                        config.transport, config.device_path
                    ),
                ));
            }
        };
        Ok(Connector { executor })
    }

    /// A connector over an executor that was made elsewhere, such as a decorated one.
    pub fn from_executor(executor: Arc<dyn Executor>) -> Connector {
        Connector { executor }
    }

    /// The executor in use.
    pub fn executor(&self) -> &Arc<dyn Executor> {
        &self.executor
    }
}

/// The wire settings of a configuration.
fn wire(config: &ConnectorConfig) -> Wire {
    Wire {
        profile: config.wire_profile,
        nsid: config.nsid,
        transfer_alignment: config.transfer_alignment,
        value_block_unit: config.value_block_unit,
        timeout_ms: u32::try_from(config.command_timeout.as_millis()).unwrap_or(u32::MAX),
    }
}

/// The configured limits, lowered (never raised) by what the namespace says of itself.
fn capabilities(config: &ConnectorConfig, namespace: &IdentifyKvNamespace) -> Result<Capabilities> {
    let configured = config.effective_max_value_size();
    let alignment = config.transfer_alignment.max(1);
    let device = namespace.current().map_or(u32::MAX, |format| format.max_value_len);
    let lowered = configured.min(device - device % alignment);
    if lowered < configured {
        log::info!(
            "{}: the namespace holds values of at most {device} bytes: \
             value size lowered from {configured} to {lowered}",
            config.device_path
        );
    }
    if lowered == 0 {
        return Err(Error::new(
            ErrorCode::InvalidParams,
            format!(
                "{}: no value fits: protocol limit {}, runtime limit {}, namespace limit {device}, \
                 each rounded down to the transfer alignment {alignment}; raise the smallest",
                config.device_path, config.protocol_max_value_size, config.runtime_transfer_limit
            ),
        ));
    }
    Ok(Capabilities {
        max_value_size: lowered,
        max_retrieve_size: config.protocol_max_value_size.max(lowered),
        queue_depth: config.queue_depth,
        transfer_alignment: match config.wire_profile {
            WireProfile::Mooncake => alignment,
            // Values keep their exact size; only the buffer is a multiple of 4, which the kernel
            // takes without copying.
            WireProfile::Spec => 4,
        },
        destination_alignment: 4,
        wire_profile: config.wire_profile,
    })
}

#[cfg(feature = "emulated")]
fn open_emulated(config: &ConnectorConfig) -> Result<Arc<dyn Executor>> {
    let path = &config.device_path;
    let failed = |what: &dyn std::fmt::Display| {
        Error::new(ErrorCode::FileOpenFail, format!("emulated namespace {path}: {what}"))
    };
    let namespace = nvme_kv_emulator::open(path).map_err(|error| failed(&error))?;
    let wire = wire(config);
    let identified = super::emulated::identify(&namespace, &wire)
        .map_err(|error: CommandError| failed(&format!("Identify: {error}")))?;
    let capabilities = capabilities(config, &identified)?;
    let buffers = BufferPool::new(KEPT_BUFFER_BYTES);
    Ok(Arc::new(super::EmulatedExecutor::new(namespace, wire, capabilities, buffers)))
}

#[cfg(not(feature = "emulated"))]
fn open_emulated(config: &ConnectorConfig) -> Result<Arc<dyn Executor>> {
    Err(Error::new(
        ErrorCode::NotSupported,
        format!(
            "MOONCAKE_NVME_KV_TRANSPORT=emulated for {}: this build has no emulator; \
             build with the cargo feature `emulated`",
            config.device_path
        ),
    ))
}
