//! The backend room: logical objects on one namespace.
//!
//! | file | idea |
//! |---|---|
//! | `offload`, `load` | batches: lanes, order, who is told what |
//! | `write`, `read` | one object: "the rules of one key" |
//! | `roots`, `chunks`, `sums` | pieces of one object on the device and in memory |
//! | `lane` | many objects over one executor stream |
//! | `mixed` | operations of all kinds in one lane, for simulation |
//! | `key_table` | who is working on which key |
//! | `index`, `entries`, `manifest_cache` | what is known without asking the device |
//! | `listing`, `scan` | from the device to the index |
//! | `quota`, `evict` | what may be stored, and what leaves |
//! | `remove`, `deletion`, `sweep` | objects, values and orphans that go |
//! | `sync` | where threads meet |

mod chunks;
mod core;
mod deletion;
mod entries;
mod evict;
mod index;
mod key_table;
mod lane;
mod listing;
mod load;
mod manifest_cache;
mod mixed;
mod offload;
mod quota;
mod read;
mod remove;
mod roots;
mod scan;
mod sums;
mod sweep;
mod sync;
mod write;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use nvme_kv_command_set::parse_list;

use self::core::{Clock, Core, system_clock};
use self::sync::{Condvar, Mutex, MutexGuard};
use crate::config::{Access, Config, EvictionPolicy, IoConcurrency};
use crate::device::{Capabilities, Connector, Ownership};
use crate::error::{Error, ErrorCode, Result};
use crate::layout::{KeyCodec, XxhKeyCodec};
use crate::log;

pub use evict::OnEvicted;
pub use index::Usage;
pub use load::ObjectToLoad;
#[doc(hidden)]
pub use mixed::{Done, Mixed};
pub use offload::{Handlers, ObjectToStore, OffloadReport};
use scan::ScanProgress;
pub use scan::{ScanReport, ScannedObject};
pub use sweep::SweepReport;
pub use write::Stored;

/// A storage backend over one namespace. Thread-safe: every method may be called from many
/// threads at once.
pub struct Backend {
    core: Core,
    io: IoConcurrency,
    read_plan_batch_size: u32,
    staging_bytes: u64,
    calls: Calls,
    scan_progress: Mutex<ScanProgress>,
    /// The device was listed for every object once, or cannot be.
    surveyed: Mutex<bool>,
    /// Given back by [`Backend::close`].
    ownership: Mutex<Option<Ownership>>,
}

impl std::fmt::Debug for Backend {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Backend")
            .field("executor", &self.core.executor)
            .field("io", &self.io)
            .finish_non_exhaustive()
    }
}

/// Parts of a backend that tests replace.
#[derive(Clone)]
pub struct Parts {
    /// How logical keys become physical ones.
    pub codec: Arc<dyn KeyCodec>,
    /// Time since some fixed moment.
    pub clock: Arc<dyn Fn() -> Duration + Send + Sync>,
}

impl Default for Parts {
    fn default() -> Self {
        Parts { codec: Arc::new(XxhKeyCodec), clock: system_clock() }
    }
}

impl std::fmt::Debug for Parts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Parts").field("codec", &self.codec).finish_non_exhaustive()
    }
}

impl Backend {
    /// Opens the configured namespace and, unless configured otherwise, takes its ownership.
    ///
    /// # Errors
    /// As [`Connector::open`] and [`Connector::own`].
    pub fn open(config: &Config) -> Result<Backend> {
        let connector = Connector::open(&config.connector)?;
        let ownership = match config.lifecycle.access {
            Access::Exclusive => Some(connector.own(&config.connector)?),
            Access::ReadOnly | Access::Shared => None,
        };
        let mut backend = Backend::with_parts(config, &connector, Parts::default());
        backend.ownership = Mutex::new(ownership);
        Ok(backend)
    }

    /// A backend over an open connector and replaced parts. It owns nothing: whoever opened the
    /// connector keeps others away.
    pub fn with_parts(config: &Config, connector: &Connector, parts: Parts) -> Backend {
        let Parts { codec, clock } = parts;
        let clock: Clock = clock;
        let executor = Arc::clone(connector.executor());
        // A command that was given up after its timeout is aborted with its connection; it gets
        // the same time again to be executed late.
        let settle = config.connector.command_timeout;
        let core = Core::new(executor, codec, config.checksum, clock, settle, config.lifecycle);
        // Beside another writer absence is never proven but by asking.
        if config.lifecycle.access == Access::Exclusive && holds_no_keys(&core) {
            core.index.set_complete();
        }
        log::info!("{}", config.io);
        Backend {
            core,
            io: config.io,
            read_plan_batch_size: config.read_plan_batch_size,
            staging_bytes: config.staging_bytes,
            calls: Calls::default(),
            scan_progress: Mutex::default(),
            surveyed: Mutex::new(false),
            ownership: Mutex::new(None),
        }
    }

    /// Whether new objects are taken: always while eviction is on, otherwise unless a limit is
    /// reached or the device says itself that it is full.
    ///
    /// # Errors
    /// INTERNAL_ERROR after [`Backend::close`].
    pub fn is_enabled(&self) -> Result<bool> {
        let _call = self.calls.enter()?;
        if self.core.lifecycle.eviction != EvictionPolicy::None {
            return Ok(true);
        }
        let one = Usage { objects: 1, values: 1, bytes: 1 };
        if self.core.quota.missing(&self.core.index, one) != Usage::default() {
            return Ok(false);
        }
        // A device that cannot be asked is not proven full.
        let full = self.core.executor.identify().is_ok_and(|namespace| {
            namespace.size_bytes > 0 && namespace.used_bytes >= namespace.size_bytes
        });
        Ok(!full)
    }

    /// Offers memory for transfers, see [`crate::device::Executor::register_memory`].
    ///
    /// # Errors
    /// INVALID_PARAMS when the range is empty or overlaps one that is registered, INTERNAL_ERROR
    /// after [`Backend::close`].
    ///
    /// # Safety
    /// The range stays mapped until [`Backend::unregister_memory`] was called with `start` or the
    /// backend is dropped.
    pub unsafe fn register_memory(&self, start: *mut u8, len: usize) -> Result<()> {
        let _call = self.calls.enter()?;
        // SAFETY: the caller's promise.
        unsafe { self.core.executor.register_memory(start, len) }
    }

    /// Takes back an offer, see [`crate::device::Executor::unregister_memory`].
    ///
    /// # Errors
    /// INTERNAL_ERROR after [`Backend::close`].
    pub fn unregister_memory(&self, start: *mut u8) -> Result<()> {
        let _call = self.calls.enter()?;
        self.core.executor.unregister_memory(start);
        Ok(())
    }

    /// Whether `key` is stored; false only when its absence is proven.
    ///
    /// # Errors
    /// INTERNAL_ERROR after [`Backend::close`]; otherwise the device's.
    pub fn exists(&self, key: &[u8]) -> Result<bool> {
        let _call = self.calls.enter()?;
        let object = self.core.object(key);
        if let Some(known) = self.core.known_presence(&object) {
            return Ok(known);
        }
        let answer = lane::each(&*self.core.executor, [&object], async |lane, object| {
            self.core.exists(lane, object).await
        });
        answer.into_iter().next().unwrap_or_else(|| Err(unfinished()))
    }

    /// What the device can do.
    pub fn capabilities(&self) -> &Capabilities {
        self.core.executor.capabilities()
    }

    /// What the known objects take on the device.
    pub fn usage(&self) -> Usage {
        self.core.index.usage()
    }

    /// Whether every object of the device is in the index, so that a miss costs no command.
    pub fn index_is_complete(&self) -> bool {
        self.core.index.is_complete()
    }

    /// Refuses later calls, waits for those in flight, which end early as
    /// [`Backend::begin_close`] says, and gives the ownership back. A second close does nothing.
    pub fn close(&self) {
        self.begin_close();
        self.calls.close();
        *self.ownership.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = None;
    }

    /// Lets long calls end early, without waiting for them: an offload begins no further object, a
    /// scan, a sweep and a removal of everything fail.
    pub fn begin_close(&self) {
        self.core.closing.store(true, Ordering::Release);
    }

    fn is_closing(&self) -> bool {
        self.core.closing.load(Ordering::Acquire)
    }

    /// Between the steps of something long.
    ///
    /// # Errors
    /// INTERNAL_ERROR once [`Backend::close`] was called.
    fn go_on(&self) -> Result<()> {
        if self.is_closing() {
            return Err(Error::new(ErrorCode::InternalError, "the backend was closed meanwhile"));
        }
        Ok(())
    }

    /// Begins a call that changes the device.
    fn enter_to_change(&self) -> Result<Call<'_>> {
        let call = self.calls.enter()?;
        match self.core.lifecycle.access {
            Access::Exclusive | Access::Shared => Ok(call),
            Access::ReadOnly => Err(Error::new(
                ErrorCode::NotSupported,
                "the namespace was opened with MOONCAKE_NVME_KV_ACCESS=read_only",
            )),
        }
    }
}

/// One List command that returns no key proves that the device is empty.
fn holds_no_keys(core: &Core) -> bool {
    let mut page = vec![0; 4096];
    core.executor.list(None, &mut page).is_ok()
        && parse_list(&page).is_ok_and(|keys| keys.is_empty())
}

/// What an operation that a lane lost track of ends with; no path leads here.
fn unfinished() -> Error {
    Error::new(ErrorCode::InternalError, "the operation was not finished")
}

/// Calls in flight, so that closing can wait for them.
#[derive(Debug, Default)]
struct Calls {
    state: Mutex<CallState>,
    last_left: Condvar,
}

#[derive(Debug, Default)]
struct CallState {
    closed: bool,
    running: usize,
}

impl Calls {
    fn lock(&self) -> MutexGuard<'_, CallState> {
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn enter(&self) -> Result<Call<'_>> {
        let mut state = self.lock();
        if state.closed {
            return Err(Error::new(ErrorCode::InternalError, "the backend is closed"));
        }
        state.running += 1;
        Ok(Call { calls: self })
    }

    fn close(&self) {
        let mut state = self.lock();
        state.closed = true;
        drop(self.last_left.wait_while(state, |state| state.running > 0));
    }
}

struct Call<'c> {
    calls: &'c Calls,
}

impl Drop for Call<'_> {
    fn drop(&mut self) {
        self.calls.lock().running -= 1;
        self.calls.last_left.notify_all();
    }
}
