//! What the backend's threads meet at: locks, atomics, channels and threads of the standard
//! library, or, under `--cfg shuttle`, those of shuttle, whose scheduler decides at each of them
//! which thread goes on. tests/backend_schedules.rs runs the whole backend that way.

#[cfg(not(shuttle))]
mod primitives {
    pub(crate) use std::sync::atomic::{AtomicBool, AtomicU64};
    pub(crate) use std::sync::{Condvar, Mutex, MutexGuard, mpsc};
    pub(crate) use std::thread;
}

#[cfg(shuttle)]
mod primitives {
    pub(crate) use shuttle::sync::atomic::{AtomicBool, AtomicU64};
    pub(crate) use shuttle::sync::{Condvar, Mutex, MutexGuard, mpsc};

    pub(crate) mod thread {
        use std::io::{ErrorKind, Result};
        use std::num::NonZero;

        use shuttle::sync::mpsc;
        use shuttle::thread::Scope;

        /// The last thread of shuttle's scope that ends wakes the one that made the scope, whatever
        /// that waits for. Here one thread more stays until `f` waits for nothing any more.
        pub(crate) fn scope<'env, T>(
            f: impl for<'scope> FnOnce(&'scope Scope<'scope, 'env>) -> T,
        ) -> T {
            shuttle::thread::scope(|scope| {
                let (done, stay) = mpsc::channel::<()>();
                scope.spawn(move || {
                    let _ = stay.recv();
                });
                let result = f(scope);
                drop(done);
                result
            })
        }

        /// The same on every machine, so that a seed repeats a schedule anywhere.
        pub(crate) fn available_parallelism() -> Result<NonZero<usize>> {
            NonZero::new(2).ok_or(ErrorKind::Unsupported.into())
        }
    }
}

pub(super) use primitives::*;

/// Locks of a table that is split into so many. Under shuttle few: taking one is a scheduling
/// point, and hundreds that nobody else wants would hide the few that matter.
pub(super) const fn shards(of: usize) -> usize {
    if cfg!(shuttle) { 2 } else { of }
}
