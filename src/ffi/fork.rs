//! Which handles belong to this process.
//!
//! Numbers of handles only grow. At a fork the child notes how far they had got: what is below
//! was opened by an ancestor, whose threads and locks do not exist here. It also closes its copies
//! of the ancestor's lock files, so that a namespace is free when its owner ends.

use std::sync::Once;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::{backend, device};
use crate::device::inherited_descriptors;

/// Distance of two numbers, so that they look like aligned addresses.
const STEP: usize = 16;

static NEXT: AtomicUsize = AtomicUsize::new(STEP);
static FIRST_OF_THIS_PROCESS: AtomicUsize = AtomicUsize::new(0);

/// Begins to watch for forks; before anything is opened that a child must not keep.
pub(super) fn watch() {
    static WATCH: Once = Once::new();
    WATCH.call_once(|| {
        // SAFETY: the handler is a function of this library, which is never unloaded, and does
        // only what is allowed in the child of a process with threads: it stores to atomics and
        // closes descriptors. Without memory for the registration, forks go unnoticed.
        unsafe { libc::pthread_atfork(None, None, Some(in_the_child)) };
    });
}

/// A number that no other handle has or had.
pub(super) fn next_number() -> usize {
    watch();
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
    for descriptor in inherited_descriptors() {
        // SAFETY: the child's own copy of a lock file's descriptor. What it belongs to is in
        // memory that nothing in the child reaches any more.
        unsafe { libc::close(descriptor) };
    }
}
