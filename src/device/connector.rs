//! One configured namespace: picks one executor at open, and stays with it.

use std::sync::Arc;

use nvme_kv_command_set::{IdentifyKvNamespace, Wire, WireProfile};

use super::BufferPool;
use super::Ownership;
use super::executor::{Capabilities, Executor};
use super::io_uring::{IoUringExecutor, OpenError, Room};
use super::ioctl::IoctlExecutor;
use super::node::{self, Discovery, QueueLimits};
use crate::config::{ConnectorConfig, Transport};
use crate::error::{Error, ErrorCode, Result};
use crate::log;

/// Bytes of idle transport buffers that are kept for reuse.
const KEPT_BUFFER_BYTES: usize = 64 << 20;
/// Bytes of transport buffers that are registered with the kernel, where it allows that.
const ARENA_BYTES: usize = 16 << 20;
/// Commands in flight of one call where the kernel does not tell how many it has room for.
const MAX_QUEUE_DEPTH: u32 = 4096;

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
            Transport::Auto | Transport::IoUring | Transport::Ioctl => open_kernel(config)?,
        };
        Ok(Connector { executor })
    }

    /// A connector over an executor that was made elsewhere, such as a decorated one.
    pub fn from_executor(executor: Arc<dyn Executor>) -> Connector {
        Connector { executor }
    }

    /// Takes the ownership of the namespace, which ends when the answer is dropped.
    ///
    /// # Errors
    /// FILE_LOCK_FAIL when somebody else owns it, in this process or another; the device's.
    pub fn own(&self, config: &ConnectorConfig) -> Result<Ownership> {
        let path = &config.device_path;
        let namespace = self.executor.identify().map_err(|error| {
            error.into_error(super::Direction::Read, format_args!("{path}: Identify"))
        })?;
        let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        let identity = if namespace.nguid != [0; 16] {
            format!("nguid-{}-{}", hex(&namespace.nguid), config.nsid)
        } else if namespace.eui64 != [0; 8] {
            format!("eui64-{}-{}", hex(&namespace.eui64), config.nsid)
        } else {
            log::warning!("{path}: the namespace has no identifier; its path stands for it");
            format!("path-{}", hex(path.as_bytes()))
        };
        Ownership::take(&identity, path)
    }

    /// The executor in use.
    pub fn executor(&self) -> &Arc<dyn Executor> {
        &self.executor
    }

    /// Offers memory for transfers, see [`Executor::register_memory`].
    ///
    /// # Errors
    /// INVALID_PARAMS when the range is empty or overlaps one that is registered.
    ///
    /// # Safety
    /// The range stays mapped until [`Connector::unregister_memory`] was called with `start` or
    /// the executor is dropped.
    pub unsafe fn register_memory(&self, start: *mut u8, len: usize) -> Result<()> {
        // SAFETY: the caller's promise is the same.
        unsafe { self.executor.register_memory(start, len) }
    }

    /// Takes back an offer, see [`Executor::unregister_memory`].
    pub fn unregister_memory(&self, start: *mut u8) {
        self.executor.unregister_memory(start);
    }
}

/// The wire settings of a configuration, for the namespace with identifier `nsid`.
fn wire(config: &ConnectorConfig, nsid: u32) -> Wire {
    Wire {
        profile: config.wire_profile,
        nsid,
        transfer_alignment: config.transfer_alignment,
        value_block_unit: config.value_block_unit,
        timeout_ms: u32::try_from(config.command_timeout.as_millis()).unwrap_or(u32::MAX),
    }
}

/// The configured limits, lowered (never raised) by what the namespace says of itself and by the
/// longest transfer.
fn capabilities(
    config: &ConnectorConfig,
    namespace: &IdentifyKvNamespace,
    limits: QueueLimits,
) -> Result<Capabilities> {
    let configured = config.effective_max_value_size();
    let alignment = config.transfer_alignment.max(1);
    let value = namespace.current().map_or(u32::MAX, |format| format.max_value_len);
    let transfer = limits.max_transfer.unwrap_or(u32::MAX);
    let device = value.min(transfer);
    let lowered = configured.min(device - device % alignment);
    if lowered < configured {
        log::info!(
            "{}: the namespace holds values of at most {value} bytes, a transfer moves at most \
             {transfer}: value size lowered from {configured} to {lowered}",
            config.device_path
        );
    }
    if lowered == 0 {
        return Err(Error::new(
            ErrorCode::InvalidParams,
            format!(
                "{}: no value fits: protocol limit {}, runtime limit {}, namespace limit {value}, \
                 transfer limit {transfer}, each rounded down to the transfer alignment \
                 {alignment}; raise the smallest",
                config.device_path, config.protocol_max_value_size, config.runtime_transfer_limit
            ),
        ));
    }
    let queue_depth = config.queue_depth.min(limits.per_queue.unwrap_or(MAX_QUEUE_DEPTH));
    if queue_depth < config.queue_depth {
        log::info!(
            "{}: queue depth lowered from {} to {queue_depth}, for which the kernel has room",
            config.device_path,
            config.queue_depth
        );
    }
    Ok(Capabilities {
        max_value_size: lowered,
        max_retrieve_size: config
            .protocol_max_value_size
            .min(transfer - transfer % alignment)
            .max(lowered),
        queue_depth,
        transfer_alignment: match config.wire_profile {
            WireProfile::Mooncake => alignment,
            // Values keep their exact size; only the buffer is a multiple of 4, which the kernel
            // takes without copying.
            WireProfile::Spec => 4,
        },
        destination_alignment: 4,
        wire_profile: config.wire_profile,
        namespace_bytes: Some(namespace.size_bytes).filter(|bytes| *bytes > 0),
        namespace_values: namespace
            .current()
            .map(|format| u64::from(format.max_keys))
            .filter(|values| *values > 0),
    })
}

/// A namespace behind the kernel's NVMe driver.
fn open_kernel(config: &ConnectorConfig) -> Result<Arc<dyn Executor>> {
    let Discovery { node, nsid, namespace, limits } = node::discover(config)?;
    let node = Arc::new(node);
    let wire = wire(config, nsid);
    let capabilities = capabilities(config, &namespace, limits)?;
    // Where the kernel does not tell, the longest transfer that we make is none too long.
    let max_transfer = limits.max_transfer.unwrap_or(capabilities.max_retrieve_size) as usize;
    if config.transport != Transport::Ioctl {
        let buffers = BufferPool::with_arena(KEPT_BUFFER_BYTES, ARENA_BYTES);
        let room = Room::new(limits.all_queues.unwrap_or(u32::MAX));
        let (node, capabilities) = (Arc::clone(&node), capabilities.clone());
        match IoUringExecutor::open(node, wire, capabilities, max_transfer, room, buffers) {
            Ok(executor) => {
                log::info!("{}: transport io_uring", config.device_path);
                return Ok(Arc::new(executor));
            }
            Err(OpenError::Failed(error)) => {
                let what = format!("{}: the first command through io_uring", config.device_path);
                return Err(Error::new(ErrorCode::FileOpenFail, format!("{what}: {error}")));
            }
            Err(OpenError::Unavailable(reason)) if config.transport == Transport::Auto => {
                log::warning!("{}: {reason}; using ioctl", config.device_path);
            }
            Err(OpenError::Unavailable(reason)) => {
                return Err(Error::new(
                    ErrorCode::NotSupported,
                    format!(
                        "{}: {reason}; set MOONCAKE_NVME_KV_TRANSPORT=auto or ioctl, or use a \
                         kernel (6.0 or later) that allows it (sysctl kernel.io_uring_disabled)",
                        config.device_path
                    ),
                ));
            }
        }
    }
    let buffers = BufferPool::new(KEPT_BUFFER_BYTES);
    log::info!("{}: transport ioctl", config.device_path);
    Ok(Arc::new(IoctlExecutor::new(node, wire, capabilities, max_transfer, buffers)))
}

#[cfg(feature = "emulated")]
fn open_emulated(config: &ConnectorConfig) -> Result<Arc<dyn Executor>> {
    let path = &config.device_path;
    let failed = |what: &dyn std::fmt::Display| {
        Error::new(ErrorCode::FileOpenFail, format!("emulated namespace {path}: {what}"))
    };
    let namespace = nvme_kv_emulator::open(path).map_err(|error| failed(&error))?;
    let wire = wire(config, config.nsid);
    let identified = super::emulated::identify(&namespace, &wire)
        .map_err(|error: super::CommandError| failed(&format!("Identify: {error}")))?;
    let capabilities = capabilities(config, &identified, QueueLimits::default())?;
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
