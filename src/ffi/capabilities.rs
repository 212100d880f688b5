//! What an open backend can do.

use super::backend::OpenBackend;
use super::config::{mnkv_transport, mnkv_wire_profile};
use super::sized::Sized;
use crate::config::Transport;
use crate::layout::{Limits, max_object_size};
use nvme_kv_command_set::WireProfile;

/// What an open backend can do and how it was configured. Sizes are in bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct mnkv_capabilities {
    /// sizeof(mnkv_capabilities), set by the caller.
    pub struct_size: usize,
    /// Largest payload of an object with a short key (16 bytes); longer keys leave less.
    pub max_object_size: u64,
    /// Largest value that is written to the device; larger objects become chunks of this size.
    pub max_value_size: u32,
    /// Commands in flight at once in one call.
    pub queue_depth: u32,
    /// Values are padded to a multiple of this many bytes on their way.
    pub transfer_alignment: u32,
    /// A destination is filled without a copy when it starts at a multiple of this many bytes.
    pub destination_alignment: u32,
    /// One of `enum mnkv_wire_profile`.
    pub wire_profile: u32,
    /// One of `enum mnkv_transport`, as configured; which one MNKV_TRANSPORT_AUTO picked is in the
    /// log.
    pub transport: u32,
    /// Upper bound of `io_concurrency`.
    pub max_io_concurrency: u32,
    /// I/O concurrency in all.
    pub io_concurrency: u32,
    /// Objects being prepared at once.
    pub prepare_concurrency: u32,
    /// Lanes for chunks.
    pub batch_submit_concurrency: u32,
    /// Lanes for roots.
    pub root_submit_concurrency: u32,
}

// SAFETY: repr(C), struct_size first, and the rest are numbers.
unsafe impl Sized for mnkv_capabilities {
    const NAME: &'static str = "mnkv_capabilities";
    const LEAST: usize = size_of::<usize>();
}

/// The key size for which `max_object_size` holds.
const SHORT_KEY: usize = 16;

pub(super) fn of(open: &OpenBackend) -> mnkv_capabilities {
    let device = open.backend.capabilities();
    let limits = Limits { max_value_size: device.max_value_size };
    let io = open.io;
    mnkv_capabilities {
        struct_size: size_of::<mnkv_capabilities>(),
        max_object_size: max_object_size(SHORT_KEY, limits),
        max_value_size: device.max_value_size,
        queue_depth: device.queue_depth,
        transfer_alignment: device.transfer_alignment,
        destination_alignment: device.destination_alignment,
        wire_profile: match device.wire_profile {
            WireProfile::Mooncake => mnkv_wire_profile::MNKV_WIRE_MOONCAKE,
            WireProfile::Spec => mnkv_wire_profile::MNKV_WIRE_SPEC,
        } as u32,
        transport: match open.transport {
            Transport::Auto => mnkv_transport::MNKV_TRANSPORT_AUTO,
            Transport::IoUring => mnkv_transport::MNKV_TRANSPORT_IO_URING,
            Transport::Ioctl => mnkv_transport::MNKV_TRANSPORT_IOCTL,
            Transport::Emulated => mnkv_transport::MNKV_TRANSPORT_EMULATED,
        } as u32,
        max_io_concurrency: io.max_io,
        io_concurrency: io.io,
        prepare_concurrency: io.prepare,
        batch_submit_concurrency: io.batch_submit,
        root_submit_concurrency: io.root_submit,
    }
}
