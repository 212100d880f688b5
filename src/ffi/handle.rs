//! Handles: numbers that look like pointers and are never used twice, so that a call on a closed
//! handle, or on no handle at all, is an error and not an access to freed memory.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, RwLock};

use super::fork;
use super::status::mnkv_status_t;
use crate::error::{Error, ErrorCode, Result};

thread_local! {
    /// Handles with a call under way on this thread.
    static CALLS: RefCell<Vec<usize>> = const { RefCell::new(Vec::new()) };
    /// Whether this thread is inside the log callback.
    static LOGGING: Cell<bool> = const { Cell::new(false) };
    /// The latest failure on this thread.
    static LAST_ERROR: RefCell<String> = const { RefCell::new(String::new()) };
}

/// The open handles of one kind: `H` as the header names it, `T` what it stands for.
pub(super) struct Registry<H, T> {
    noun: &'static str,
    /// Null until the first open of this process, see [`Registry::forget`].
    table: AtomicPtr<Table<T>>,
    handle: std::marker::PhantomData<fn(H)>,
}

type Table<T> = RwLock<HashMap<usize, Slot<T>>>;

struct Slot<T> {
    value: Arc<T>,
    calls: Arc<Calls>,
}

/// The calls under way on one handle, and how the latest failed one ended.
#[derive(Default)]
struct Calls {
    running: Mutex<usize>,
    idle: Condvar,
    last_error: Mutex<String>,
}

impl<H, T: Send + Sync + 'static> Registry<H, T> {
    /// No handle yet; `noun` names the kind in messages.
    pub(super) const fn new(noun: &'static str) -> Self {
        Registry { noun, table: AtomicPtr::new(ptr::null_mut()), handle: std::marker::PhantomData }
    }

    /// A new handle for `value`.
    pub(super) fn open(&self, value: T) -> *mut H {
        let number = fork::next_number();
        let slot = Slot { value: Arc::new(value), calls: Arc::default() };
        self.table().write().unwrap_or_else(PoisonError::into_inner).insert(number, slot);
        ptr::without_provenance_mut(number)
    }

    /// Runs `body` on what `handle` stands for, which stays open meanwhile.
    pub(super) fn call<R>(
        &self,
        handle: *const H,
        body: impl FnOnce(&T) -> Result<R>,
    ) -> Result<R> {
        refuse_in_log_callback()?;
        let call = self.enter(handle)?;
        body(&call.value)
    }

    /// Ends a handle: later calls fail, calls under way, which `hurry` may cut short, are waited
    /// for, and then what it stood for is dropped.
    pub(super) fn close(&self, handle: *mut H, hurry: impl FnOnce(&T)) -> Result<()> {
        if handle.is_null() {
            return Ok(());
        }
        refuse_in_log_callback()?;
        let number = handle.addr();
        self.refuse_inherited(number)?;
        if CALLS.try_with(|calls| calls.borrow().contains(&number)).unwrap_or(false) {
            return Err(misuse(format!(
                "{} closed from inside one of its own callbacks; close it after the call that \
                 runs the callback has returned",
                self.noun
            )));
        }
        let mut table = self.table().write().unwrap_or_else(PoisonError::into_inner);
        let Slot { value, calls } = table.remove(&number).ok_or_else(|| self.not_open())?;
        // Under the lock of the table: who is refused knows that the others end soon.
        hurry(&value);
        drop(table);
        calls.wait_until_idle();
        drop(value);
        Ok(())
    }

    /// Records how a call on `handle` failed; gives its status.
    pub(super) fn fail(&self, handle: *const H, error: &Error) -> mnkv_status_t {
        if let Some(calls) = self.calls(handle) {
            *lock(&calls.last_error) = error.to_string();
        }
        fail_on_this_thread(error)
    }

    /// How the latest failed call on `handle` ended; on this thread, when it is not open.
    pub(super) fn last_error(&self, handle: *const H) -> String {
        match self.calls(handle) {
            Some(calls) => lock(&calls.last_error).clone(),
            None => last_error_on_this_thread(),
        }
    }

    /// For the child of a fork: starts anew, without a look at what another thread of the parent
    /// may have held locked.
    pub(super) fn forget(&self) {
        self.table.store(ptr::null_mut(), Ordering::Release);
    }

    fn enter(&self, handle: *const H) -> Result<Call<T>> {
        let number = handle.addr();
        self.refuse_inherited(number)?;
        let table = self.table().read().unwrap_or_else(PoisonError::into_inner);
        let Slot { value, calls } = table.get(&number).ok_or_else(|| self.not_open())?;
        // Under the lock of the table: who finds a handle is waited for by who removes it.
        *lock(&calls.running) += 1;
        let _ = CALLS.try_with(|calls| calls.borrow_mut().push(number));
        let running = Running { number, calls: Arc::clone(calls) };
        Ok(Call { value: Arc::clone(value), _running: running })
    }

    fn calls(&self, handle: *const H) -> Option<Arc<Calls>> {
        if fork::is_inherited(handle.addr()) {
            return None;
        }
        let table = self.table().read().unwrap_or_else(PoisonError::into_inner);
        table.get(&handle.addr()).map(|slot| Arc::clone(&slot.calls))
    }

    fn table(&self) -> &'static Table<T> {
        let mut table = self.table.load(Ordering::Acquire);
        if table.is_null() {
            let fresh = Box::into_raw(Box::<Table<T>>::default());
            let published = self.table.compare_exchange(
                ptr::null_mut(),
                fresh,
                Ordering::AcqRel,
                Ordering::Acquire,
            );
            table = fresh;
            if let Err(other) = published {
                // SAFETY: made above, and nobody else has seen it.
                drop(unsafe { Box::from_raw(fresh) });
                table = other;
            }
        }
        // SAFETY: made by `Box::into_raw` above, and a published table is never freed.
        unsafe { &*table }
    }

    fn refuse_inherited(&self, number: usize) -> Result<()> {
        if number != 0 && fork::is_inherited(number) {
            return Err(misuse(format!(
                "{} used in a forked child; open one of its own after the fork",
                self.noun
            )));
        }
        Ok(())
    }

    fn not_open(&self) -> Error {
        misuse(format!("no open {}: NULL, closed already, or never opened", self.noun))
    }
}

/// One call under way. Gives up what it holds before it says that it has ended.
struct Call<T> {
    value: Arc<T>,
    _running: Running,
}

struct Running {
    number: usize,
    calls: Arc<Calls>,
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = CALLS.try_with(|calls| {
            let mut calls = calls.borrow_mut();
            let position = calls.iter().rposition(|number| *number == self.number);
            position.map(|position| calls.remove(position))
        });
        *lock(&self.calls.running) -= 1;
        self.calls.idle.notify_all();
    }
}

impl Calls {
    fn wait_until_idle(&self) {
        let running = lock(&self.running);
        drop(self.idle.wait_while(running, |running| *running > 0));
    }
}

/// Marks this thread as being inside the log callback while `body` runs.
pub(super) fn inside_log_callback(body: impl FnOnce()) {
    let before = LOGGING.try_with(|logging| logging.replace(true)).unwrap_or(true);
    body();
    let _ = LOGGING.try_with(|logging| logging.set(before));
}

/// Refuses what may log, or waits for those who do.
pub(super) fn refuse_in_log_callback() -> Result<()> {
    if LOGGING.try_with(Cell::get).unwrap_or(false) {
        return Err(misuse("the library was called from inside the log callback".to_owned()));
    }
    Ok(())
}

/// Records a failure that belongs to no handle; gives its status.
pub(super) fn fail_on_this_thread(error: &Error) -> mnkv_status_t {
    let _ = LAST_ERROR.try_with(|last| *last.borrow_mut() = error.to_string());
    error.code() as mnkv_status_t
}

/// How the latest failed call on this thread ended; empty when none failed.
pub(super) fn last_error_on_this_thread() -> String {
    LAST_ERROR.try_with(|last| last.borrow().clone()).unwrap_or_default()
}

fn misuse(message: String) -> Error {
    Error::new(ErrorCode::InternalError, message)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
