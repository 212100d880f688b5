//! The C ABI's log callback, of which there is one per process: one test in a process of its own.

mod ffi_support;

use std::ffi::{c_char, c_void};
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, mpsc};

use ffi_support::*;
use mooncake_nvme_kv::ffi::*;

/// What the callback saw.
static LINES: Mutex<Vec<(i32, String)>> = Mutex::new(Vec::new());

unsafe extern "C" fn collect(user: *mut c_void, level: i32, line: *const c_char, size: usize) {
    assert_eq!(user, ptr::without_provenance_mut(42));
    // SAFETY: the library gives `size` bytes.
    let line = unsafe { std::slice::from_raw_parts(line.cast::<u8>(), size) };
    let line = std::str::from_utf8(line).expect("UTF-8").to_owned();
    LINES.lock().expect("not poisoned").push((level, line));
}

/// What calls from inside the callback returned.
static INSIDE: Mutex<Vec<mnkv_status_t>> = Mutex::new(Vec::new());

unsafe extern "C" fn call_back(backend: *mut c_void, _: i32, _: *const c_char, _: usize) {
    let backend = backend.cast::<mnkv_backend>();
    let mut other = ptr::null_mut();
    // SAFETY: all pointers are good.
    let statuses = unsafe {
        [
            exists(backend, b"k").err().unwrap_or(OK),
            mnkv_backend_close(backend),
            mnkv_backend_open(&config(&fresh_path()), &mut other),
            mnkv_device_open(&config(&fresh_path()), &mut other.cast()),
            mnkv_set_log_callback(None, ptr::null_mut()),
        ]
    };
    INSIDE.lock().expect("not poisoned").extend(statuses);
}

struct Held {
    entered: mpsc::Sender<()>,
    release: Mutex<mpsc::Receiver<()>>,
    left: AtomicBool,
}

unsafe extern "C" fn hold(held: *mut c_void, _: i32, _: *const c_char, _: usize) {
    // SAFETY: the pointer that was set, which outlives the callback.
    let held = unsafe { &*held.cast::<Held>() };
    held.entered.send(()).expect("the test waits");
    held.release.lock().expect("not poisoned").recv().expect("the test releases");
    held.left.store(true, Ordering::SeqCst);
}

fn set(callback: mnkv_log_fn, user: *mut c_void) {
    // SAFETY: the callback copes with its pointer on any thread.
    assert_eq!(unsafe { mnkv_set_log_callback(callback, user) }, OK, "{}", thread_error());
}

/// Opens and closes a backend, which logs.
fn open_and_close(change: impl FnOnce(&mut mnkv_config)) {
    let path = fresh_path();
    let mut settings = config(&path);
    change(&mut settings);
    close(open_with(&settings));
}

#[test]
fn the_log_callback_gets_every_line_until_it_is_replaced() {
    set(Some(collect), ptr::without_provenance_mut(42));
    open_and_close(|settings| settings.io_concurrency = 500);
    let lines = std::mem::take(&mut *LINES.lock().expect("not poisoned"));
    let has = |level: mnkv_log_level, text: &str| {
        lines.iter().any(|(of, line)| *of == level as i32 && line.contains(text))
    };
    assert!(has(mnkv_log_level::MNKV_LOG_INFO, "I/O concurrency: 256 (max 256)"), "{lines:?}");
    assert!(has(mnkv_log_level::MNKV_LOG_WARNING, "IO_CONCURRENCY=500"), "{lines:?}");

    // Calls from inside are refused; nothing waits for itself.
    let backend = open();
    set(Some(call_back), backend.cast());
    LINES.lock().expect("not poisoned").clear();
    open_and_close(|_| {});
    set(None, ptr::null_mut());
    let inside = INSIDE.lock().expect("not poisoned");
    assert!(inside.len() >= 5 && inside.iter().all(|status| *status == INTERNAL_ERROR));
    close(backend);

    // Replacing waits for the callback that runs.
    let (entered, has_entered) = mpsc::channel();
    let (release, released) = mpsc::channel();
    let held = Held { entered, release: Mutex::new(released), left: AtomicBool::new(false) };
    set(Some(hold), ptr::from_ref(&held).cast_mut().cast());
    std::thread::scope(|scope| {
        let logging = scope.spawn(|| open_and_close(|_| {}));
        has_entered.recv().expect("a line is logged");
        let replaced = scope.spawn(|| {
            set(None, ptr::null_mut());
            held.left.load(Ordering::SeqCst)
        });
        // Time for one that does not wait to show it.
        for _ in 0..1000 {
            std::thread::yield_now();
        }
        // Every line that was logged before the callback was replaced takes one.
        while !(replaced.is_finished() && logging.is_finished()) {
            release.send(()).expect("the receiver lives");
            std::thread::yield_now();
        }
        assert!(replaced.join().expect("no panic"), "it was still running");
    });

    assert!(LINES.lock().expect("not poisoned").is_empty(), "called after it was replaced");
}
