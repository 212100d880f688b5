//! Threads that execute one blocking command each.

use std::collections::VecDeque;
use std::sync::mpsc::Sender;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use nvme_kv_command_set::PassthroughCommand;

use super::queue::RawCompletion;

/// Executes one command. A test puts its own in place of the system call.
pub(super) trait Device: Send + Sync + 'static {
    /// The kernel's answer, blocking until there is one.
    ///
    /// # Safety
    /// The memory that the command names is valid and unused by anybody else during the call.
    unsafe fn execute(&self, command: &PassthroughCommand) -> (i32, u32);
}

/// A command for a worker, and where its end goes.
pub(super) struct Job {
    device: Arc<dyn Device>,
    token: u64,
    command: PassthroughCommand,
    ended: Sender<RawCompletion>,
}

impl Job {
    /// # Safety
    /// The memory that the command names stays valid, and unused by anybody else for a Retrieve,
    /// until the end of the job was received, or the job was dropped without being executed.
    pub(super) unsafe fn new(
        device: Arc<dyn Device>,
        token: u64,
        command: PassthroughCommand,
        ended: Sender<RawCompletion>,
    ) -> Self {
        Job { device, token, command, ended }
    }

    /// Executes the command in this thread.
    pub(super) fn run(self) {
        // SAFETY: promised in `new`; the end is sent only afterwards.
        let (result, dw0) = unsafe { self.device.execute(&self.command) };
        // The receiver waits for every job; were it gone, nobody would want the end.
        let _ = self.ended.send(RawCompletion { token: self.token, result, dw0 });
    }
}

/// At most so many threads, started when there is work for one more. Dropping the set ends them.
#[derive(Debug)]
pub(super) struct Workers {
    most: usize,
    shared: Arc<Shared>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    jobs: VecDeque<Job>,
    idle: usize,
    closing: bool,
}

impl std::fmt::Debug for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("State").field("jobs", &self.jobs.len()).finish_non_exhaustive()
    }
}

impl Workers {
    /// At most `most` threads (at least one); none is started yet.
    pub(super) fn new(most: usize) -> Self {
        Workers { most: most.max(1), shared: Arc::default(), threads: Mutex::default() }
    }

    /// Commands that are executed at once.
    pub(super) fn most(&self) -> usize {
        self.most
    }

    /// Hands `jobs` to the threads, in order. Where not one thread can be started, they are
    /// executed here.
    pub(super) fn run(&self, jobs: impl IntoIterator<Item = Job>) {
        let missing = {
            let mut state = lock(&self.shared.state);
            state.jobs.extend(jobs);
            state.jobs.len().saturating_sub(state.idle)
        };
        self.shared.changed.notify_all();
        if self.start(missing) == 0 {
            while let Some(job) = { lock(&self.shared.state).jobs.pop_front() } {
                job.run();
            }
        }
    }

    /// Starts up to `missing` more threads; returns how many there are.
    fn start(&self, missing: usize) -> usize {
        let mut threads = lock(&self.threads);
        for _ in 0..missing.min(self.most.saturating_sub(threads.len())) {
            let shared = Arc::clone(&self.shared);
            let builder = std::thread::Builder::new().name("mnkv-ioctl".to_owned());
            match builder.spawn(move || shared.work()) {
                Ok(thread) => threads.push(thread),
                Err(_) => break,
            }
        }
        threads.len()
    }
}

impl Shared {
    fn work(&self) {
        block_signals();
        let mut state = lock(&self.state);
        loop {
            if let Some(job) = state.jobs.pop_front() {
                drop(state);
                job.run();
                state = lock(&self.state);
            } else if state.closing {
                return;
            } else {
                state.idle += 1;
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                state.idle -= 1;
            }
        }
    }
}

/// The host's signals are for the host's threads.
fn block_signals() {
    let mut all = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: sigfillset initialises the set before it is used; the old mask is not asked for.
    unsafe {
        libc::sigfillset(all.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_BLOCK, all.as_ptr(), std::ptr::null_mut());
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        lock(&self.shared.state).closing = true;
        self.shared.changed.notify_all();
        for thread in lock(&self.threads).drain(..) {
            // A worker does not panic; were it to, it has ended all the same.
            let _ = thread.join();
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
