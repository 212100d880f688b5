//! Which handles belong to this process.
//!
//! Numbers of handles only grow. At a fork the child notes how far they had got: what is below
//! was opened by an ancestor, whose threads and locks do not exist here.

use std::sync::Once;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::{backend, device};

/// Distance of two numbers, so that they look like aligned addresses.
const STEP: usize = 16;

static NEXT: AtomicUsize = AtomicUsize::new(STEP);
static FIRST_OF_THIS_PROCESS: AtomicUsize = AtomicUsize::new(0);

/// A number that no other handle has or had.
pub(super) fn next_number() -> usize {
    static WATCH: Once = Once::new();
    WATCH.call_once(|| {
        // SAFETY: the handler is a function of this library, which is never unloaded, and does
        // only what is allowed in the child of a process with threads: it stores to atomics.
        // Without memory for the registration, forks go unnoticed.
        unsafe { libc::pthread_atfork(None, None, Some(in_the_child)) };
    });
    NEXT.fetch_add(STEP, Ordering::Relaxed)
}

/// Whether the handle with this number was opened before a fork of which this is the child.
pub(super) fn is_inherited(number: usize) -> bool {
    number < FIRST_OF_THIS_PROCESS.load(Ordering::Relaxed)
}

extern "C" fn in_the_child() {
    FIRST_OF_THIS_PROCESS.store(NEXT.load(Ordering::Relaxed), Ordering::Relaxed);
    backend::HANDLES.forget();
    device::HANDLES.forget();
}
