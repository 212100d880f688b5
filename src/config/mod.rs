//! Settings: environment variables to plain structs, read once, at open.
//!
//! The variables keep Mooncake's names, defaults, derivations and number syntax, so that one
//! environment configures this library and the C++ backend alike. Nothing here touches a device,
//! a file or the process environment; see [`Environment`] for where the values come from.

mod connector;
mod environment;
mod io_concurrency;
mod lifecycle;
mod number;
mod variables;

#[cfg(test)]
mod tests;

pub use connector::{ConnectorConfig, Transport};
pub use environment::{Environment, ProcessEnvironment};
pub use io_concurrency::IoConcurrency;
pub use lifecycle::{Access, EvictionPolicy, LifecycleConfig};

use crate::layout::ChecksumKind;
use crate::{Result, log};
use variables::Variables;

/// Logical objects that one read planning task covers, unless configured.
const DEFAULT_READ_PLAN_BATCH_SIZE: u32 = 8;
/// The most logical objects that one read planning task may cover.
const MAX_READ_PLAN_BATCH_SIZE: u32 = 1024;

/// MiB that one offload has in flight at most, unless configured.
const DEFAULT_STAGING_MIB: u32 = 128;

/// Everything the environment decides.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// The namespace and how it is talked to.
    pub connector: ConnectorConfig,
    /// How much runs at once.
    pub io: IoConcurrency,
    /// Checksum of newly written objects; both kinds are readable at any time.
    /// `MOONCAKE_NVME_KV_CHECKSUM`: `xxh32` (default) or `crc32`.
    pub checksum: ChecksumKind,
    /// Logical objects per read planning task, 1 to 1024.
    /// `MOONCAKE_NVME_KV_READ_PLAN_BATCH_SIZE`, default 8.
    pub read_plan_batch_size: u32,
    /// Bytes of data that one offload has in flight at most: what is copied for it takes no more
    /// memory, however large the batch. `MOONCAKE_NVME_KV_STAGING_MIB`, default 128.
    pub staging_bytes: u64,
    /// How much is kept, and what leaves when that is reached.
    pub lifecycle: LifecycleConfig,
}

impl Config {
    /// Reads every variable of `env`.
    ///
    /// A number that cannot be parsed or does not fit falls back to its default, and one over its
    /// cap is lowered to it; both are logged as warnings that name the variable.
    ///
    /// # Errors
    ///
    /// `INVALID_PARAMS` when the device path is missing or a variable with a fixed set of values
    /// holds another one.
    pub fn from_environment(env: &dyn Environment) -> Result<Config> {
        let mut variables = Variables::new(env);
        let config = Config::read(&mut variables);
        for warning in variables.warnings() {
            log::warning!("{warning}");
        }
        config
    }

    fn read(variables: &mut Variables<'_>) -> Result<Config> {
        let connector = ConnectorConfig::read(variables)?;
        let checksum = variables.choice(
            "MOONCAKE_NVME_KV_CHECKSUM",
            &[("xxh32", ChecksumKind::Xxh32), ("crc32", ChecksumKind::Crc32)],
        )?;
        let io = IoConcurrency::read(variables, connector.queue_depth);
        let read_plan_batch_size = variables.capped(
            "MOONCAKE_NVME_KV_READ_PLAN_BATCH_SIZE",
            DEFAULT_READ_PLAN_BATCH_SIZE,
            MAX_READ_PLAN_BATCH_SIZE,
        );
        let staging = variables.positive_or("MOONCAKE_NVME_KV_STAGING_MIB", DEFAULT_STAGING_MIB);
        let staging_bytes = u64::from(staging) << 20;
        let lifecycle = LifecycleConfig::read(variables)?;
        Ok(Config { connector, io, checksum, read_plan_batch_size, staging_bytes, lifecycle })
    }
}

/// What an empty environment gives, were the device path not required.
impl Default for Config {
    fn default() -> Self {
        let connector = ConnectorConfig::default();
        Config {
            io: IoConcurrency::derived(connector.queue_depth),
            connector,
            checksum: ChecksumKind::default(),
            read_plan_batch_size: DEFAULT_READ_PLAN_BATCH_SIZE,
            staging_bytes: u64::from(DEFAULT_STAGING_MIB) << 20,
            lifecycle: LifecycleConfig::default(),
        }
    }
}
