//! The C ABI after a fork: one test in a process of its own.

mod ffi_support;

use std::ffi::CStr;
use std::ptr;

use ffi_support::*;
use mooncake_nvme_kv::ffi::*;

/// Checks in a forked child; gives the number of the first one that failed, 0 for none.
fn in_a_child(checks: impl FnOnce() -> i32) -> i32 {
    // SAFETY: the child runs the checks, which take no lock that a thread of the parent could
    // hold, and leaves without running anything else.
    unsafe {
        let child = libc::fork();
        if child == 0 {
            // A check that hangs ends by a signal, which is no exit status.
            libc::alarm(60);
            libc::_exit(checks());
        }
        assert!(child > 0, "{}", std::io::Error::last_os_error());
        let mut status = 0;
        assert_eq!(libc::waitpid(child, &mut status, 0), child);
        assert!(libc::WIFEXITED(status), "the child died: {status:#x}");
        libc::WEXITSTATUS(status)
    }
}

fn first_failed(checks: &[bool]) -> i32 {
    checks.iter().position(|passed| !passed).map_or(0, |position| position as i32 + 1)
}

fn inherited_is_refused(backend: *mut mnkv_backend, device: *mut mnkv_device) -> [bool; 7] {
    [
        exists(backend, b"k") == Err(INTERNAL_ERROR),
        error(backend).contains("backend used in a forked child"),
        put(backend, b"k", b"v") == INTERNAL_ERROR,
        get(backend, b"k", 1) == Err(INTERNAL_ERROR),
        // SAFETY: any handle may be closed.
        unsafe { mnkv_backend_close(backend) } == INTERNAL_ERROR,
        // SAFETY: as above.
        unsafe { mnkv_device_close(device) } == INTERNAL_ERROR,
        thread_error().contains("device used in a forked child"),
    ]
}

/// How many lock files of namespaces this process has open.
fn open_lock_files() -> usize {
    let descriptors = std::fs::read_dir("/proc/self/fd").expect("Linux");
    let targets = descriptors.filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok());
    targets.filter(|target| target.to_string_lossy().contains("mooncake-nvme-kv/")).count()
}

fn try_to_open(path: &CStr) -> mnkv_status_t {
    let mut backend = ptr::null_mut();
    // SAFETY: both pointers are good.
    unsafe { mnkv_backend_open(&config(path), &mut backend) }
}

/// The namespace belongs to the parent as long as the parent has it open, and no longer, whatever
/// its children do.
fn ownership_stays_with_the_parent() {
    let path = fresh_path();
    let backend = open_with(&config(&path));
    assert_eq!(open_lock_files(), 1);
    let refused = || {
        first_failed(&[
            open_lock_files() == 0,
            try_to_open(&path) == LOCK_FAIL,
            // SAFETY: any handle may be closed.
            unsafe { mnkv_backend_close(backend) } == INTERNAL_ERROR,
            try_to_open(&path) == LOCK_FAIL,
        ])
    };
    assert_eq!(in_a_child(refused), 0);
    assert_eq!(try_to_open(&path), LOCK_FAIL, "after the child's end");

    // SAFETY: the child only waits, and ends by a signal.
    let child = unsafe {
        let child = libc::fork();
        if child == 0 {
            libc::alarm(60);
            libc::pause();
            libc::_exit(0);
        }
        child
    };
    assert!(child > 0, "{}", std::io::Error::last_os_error());
    close(backend);
    let again = try_to_open(&path);
    // SAFETY: the child was forked above and not waited for.
    unsafe {
        libc::kill(child, libc::SIGKILL);
        assert_eq!(libc::waitpid(child, &mut 0, 0), child);
    }
    assert_eq!(again, OK, "beside a child: {}", thread_error());
}

#[test]
fn a_child_is_refused_on_inherited_handles_and_may_open_its_own() {
    ownership_stays_with_the_parent();
    let backend = open();
    let path = fresh_path();
    let mut device = ptr::null_mut();
    // SAFETY: both pointers are good.
    assert_eq!(unsafe { mnkv_device_open(&config(&path), &mut device) }, OK);
    assert_eq!(put(backend, b"k", b"v"), OK);

    let failed = in_a_child(|| {
        let refused = first_failed(&inherited_is_refused(backend, device));
        if refused != 0 {
            return refused;
        }
        let own = open();
        let works = [
            put(own, b"k", b"own") == OK,
            get(own, b"k", 3) == Ok(b"own".to_vec()),
            exists(backend, b"k") == Err(INTERNAL_ERROR),
            // SAFETY: any handle may be closed.
            unsafe { mnkv_backend_close(own) } == OK,
        ];
        match first_failed(&works) {
            0 => 0,
            number => 10 + number,
        }
    });
    assert_eq!(failed, 0);

    // In the middle of a call, and without harm to it.
    let slices = [slice(b"payload")];
    let (status, _) = offload(backend, &[object(b"during", &slices)], |_| {
        in_a_child(|| first_failed(&inherited_is_refused(backend, device)))
    });
    assert_eq!(status, OK);
    assert_eq!(get(backend, b"during", 7), Ok(b"payload".to_vec()));
    assert_eq!(get(backend, b"k", 1), Ok(b"v".to_vec()));
    close(backend);
    // SAFETY: any handle may be closed.
    assert_eq!(unsafe { mnkv_device_close(device) }, OK);
}
