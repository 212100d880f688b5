//! How much of a batch runs at once.

use std::fmt;

use super::variables::Variables;

const DEFAULT_MAX_IO: u32 = 256;
const DEFAULT_IO: u32 = 18;
const DEFAULT_PREPARE: u32 = 12;
const DEFAULT_BATCH_SUBMIT: u32 = 6;
const DEFAULT_ROOT_SUBMIT: u32 = 1;

/// The concurrency settings in effect. The three parts are derived from and capped by `io`.
///
/// Its `Display` is the line that is logged after a successful open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IoConcurrency {
    /// Total I/O concurrency. `MOONCAKE_NVME_KV_IO_CONCURRENCY`, at most `max_io`; unset, the
    /// smallest of the queue depth, 18 and `max_io`.
    pub io: u32,
    /// Upper bound of `io`. `MOONCAKE_NVME_KV_MAX_IO_CONCURRENCY`, default 256.
    pub max_io: u32,
    /// Objects being prepared (checksums, keys, layout).
    /// `MOONCAKE_NVME_KV_PREPARE_CONCURRENCY`, default 12, at most what `batch_submit` leaves of
    /// `io`, at least 1.
    pub prepare: u32,
    /// Chunk lanes. `MOONCAKE_NVME_KV_BATCH_SUBMIT_CONCURRENCY`, default 6, at most one less than
    /// `io`, at least 1.
    pub batch_submit: u32,
    /// Root lanes. `MOONCAKE_NVME_KV_ROOT_SUBMIT_CONCURRENCY`, default 1, at most one less than
    /// `io`, at least 1.
    pub root_submit: u32,
}

impl IoConcurrency {
    /// What an environment without any of the variables gives at this queue depth.
    pub fn derived(queue_depth: u32) -> Self {
        const NOTHING: [(&str, &str); 0] = [];
        Self::read(&mut Variables::new(&NOTHING), queue_depth)
    }

    pub(super) fn read(variables: &mut Variables<'_>, queue_depth: u32) -> Self {
        let max_io = variables.positive_or("MOONCAKE_NVME_KV_MAX_IO_CONCURRENCY", DEFAULT_MAX_IO);
        let io = variables.capped(
            "MOONCAKE_NVME_KV_IO_CONCURRENCY",
            queue_depth.clamp(1, DEFAULT_IO).min(max_io),
            max_io,
        );
        let max_submit = io.saturating_sub(1).max(1);
        let batch_submit = variables.capped(
            "MOONCAKE_NVME_KV_BATCH_SUBMIT_CONCURRENCY",
            DEFAULT_BATCH_SUBMIT.min(max_submit),
            max_submit,
        );
        let root_submit = variables.capped(
            "MOONCAKE_NVME_KV_ROOT_SUBMIT_CONCURRENCY",
            DEFAULT_ROOT_SUBMIT.min(max_submit),
            max_submit,
        );
        let max_prepare = io.saturating_sub(batch_submit).max(1);
        let prepare = variables.capped(
            "MOONCAKE_NVME_KV_PREPARE_CONCURRENCY",
            DEFAULT_PREPARE.min(max_prepare),
            max_prepare,
        );
        IoConcurrency { io, max_io, prepare, batch_submit, root_submit }
    }
}

/// One of everything: a backend that does one thing at a time.
impl Default for IoConcurrency {
    fn default() -> Self {
        IoConcurrency { io: 1, max_io: DEFAULT_MAX_IO, prepare: 1, batch_submit: 1, root_submit: 1 }
    }
}

/// Mooncake's wording, which its own tests look for.
impl fmt::Display for IoConcurrency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let IoConcurrency { io, max_io, prepare, batch_submit, root_submit } = self;
        write!(
            f,
            "NVMe KV backend I/O concurrency: {io} (max {max_io}), \
             batch submit concurrency: {batch_submit}, \
             root submit concurrency: {root_submit}, prepare concurrency: {prepare}"
        )
    }
}
