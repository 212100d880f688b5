//! The backend room: logical objects on one namespace.
//!
//! | file | idea |
//! |---|---|
//! | `offload`, `load` | batches: lanes, order, who is told what |
//! | `write`, `read` | one object: "the rules of one key" |
//! | `roots`, `chunks`, `sums` | pieces of one object on the device and in memory |
//! | `lane` | many objects over one executor stream |
//! | `key_table` | who is working on which key |
//! | `index`, `manifest_cache` | what is known without asking the device |

mod chunks;
mod core;
mod index;
mod key_table;
mod lane;
mod load;
mod manifest_cache;
mod offload;
mod read;
mod roots;
mod sums;
mod write;

use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Duration;

use nvme_kv_command_set::parse_list;

use self::core::{Clock, Core, system_clock};
use crate::config::{Config, IoConcurrency};
use crate::device::{Capabilities, Connector};
use crate::error::{Error, ErrorCode, Result};
use crate::layout::{KeyCodec, XxhKeyCodec};
use crate::log;

pub use load::ObjectToLoad;
pub use offload::{ObjectToStore, OffloadReport};
pub use write::Stored;

/// A storage backend over one namespace. Thread-safe: every method may be called from many
/// threads at once.
pub struct Backend {
    core: Core,
    io: IoConcurrency,
    read_plan_batch_size: u32,
    calls: Calls,
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
    /// Opens the configured namespace.
    ///
    /// # Errors
    /// As [`Connector::open`].
    pub fn open(config: &Config) -> Result<Backend> {
        Ok(Backend::with_parts(config, &Connector::open(&config.connector)?, Parts::default()))
    }

    /// A backend over an open connector and replaced parts.
    pub fn with_parts(config: &Config, connector: &Connector, parts: Parts) -> Backend {
        let Parts { codec, clock } = parts;
        let clock: Clock = clock;
        let executor = Arc::clone(connector.executor());
        // A command that was given up after its timeout is aborted with its connection; it gets
        // the same time again to be executed late.
        let settle = config.connector.command_timeout;
        let core = Core::new(executor, codec, config.checksum, clock, settle);
        if holds_no_keys(&core) {
            core.index.set_complete();
        }
        log::info!("{}", config.io);
        Backend {
            core,
            io: config.io,
            read_plan_batch_size: config.read_plan_batch_size,
            calls: Calls::default(),
        }
    }

    /// Whether the device still takes objects: false only when it says itself that it is full.
    ///
    /// # Errors
    /// INTERNAL_ERROR after [`Backend::close`].
    pub fn is_enabled(&self) -> Result<bool> {
        let _call = self.calls.enter()?;
        // A device that cannot be asked is not proven full.
        let full = self.core.executor.identify().is_ok_and(|namespace| {
            namespace.size_bytes > 0 && namespace.used_bytes >= namespace.size_bytes
        });
        Ok(!full)
    }

    /// Offers memory for transfers, see [`Executor::register_memory`].
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

    /// Takes back an offer, see [`Executor::unregister_memory`].
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
        let answer = std::cell::RefCell::new(None);
        let lane = lane::Lane::new();
        let mut task: Option<lane::Task<'_>> = Some(Box::pin(async {
            *answer.borrow_mut() = Some(self.core.exists(&lane, &object).await);
        }));
        lane::drive(&*self.core.executor, &lane, 1, &mut || task.take());
        drop(task);
        answer.take().unwrap_or_else(|| Err(unfinished()))
    }

    /// What the device can do.
    pub fn capabilities(&self) -> &Capabilities {
        self.core.executor.capabilities()
    }

    /// Objects known to be stored.
    pub fn known_objects(&self) -> usize {
        self.core.index.len()
    }

    /// Whether every object of the device is in the index, so that a miss costs no command.
    pub fn index_is_complete(&self) -> bool {
        self.core.index.is_complete()
    }

    /// Waits for calls in flight and refuses later ones. A second close does nothing.
    pub fn close(&self) {
        self.calls.close();
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
