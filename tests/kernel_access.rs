//! What happens on a real kernel where the process may not do everything. Needs the guest of
//! `kernel_tests/run`; skipped where `MNKV_KERNEL_NODE` is not set.

mod executor_bench;

use std::fs::{Permissions, set_permissions};
use std::os::unix::fs::PermissionsExt;
use std::sync::{Arc, Mutex};

use executor_bench::{Bench, Pages};
use mooncake_nvme_kv::config::{ConnectorConfig, Transport};
use mooncake_nvme_kv::device::Connector;
use mooncake_nvme_kv::{Error, ErrorCode, log};

const KERNEL: [Transport; 3] = [Transport::Auto, Transport::IoUring, Transport::Ioctl];

fn config(transport: Transport) -> Option<ConnectorConfig> {
    let Ok(device_path) = std::env::var("MNKV_KERNEL_NODE") else {
        eprintln!("SKIPPED: MNKV_KERNEL_NODE is not set");
        return None;
    };
    Some(ConnectorConfig { device_path, transport, ..ConnectorConfig::default() })
}

/// Runs `body` in a thread of its own that has given up the rights of root.
fn as_nobody<T: Send>(body: impl FnOnce() -> T + Send) -> T {
    let body = move || {
        const NOBODY: libc::uid_t = 65534;
        // SAFETY: the bare system call changes this thread alone and touches no memory.
        let result = unsafe { libc::syscall(libc::SYS_setresuid, NOBODY, NOBODY, NOBODY) };
        assert_eq!(result, 0, "root may become anybody");
        body()
    };
    std::thread::scope(|scope| scope.spawn(body).join()).expect("it does not panic")
}

/// Sets a soft limit while `body` runs.
fn with_limit<T>(resource: libc::__rlimit_resource_t, soft: u64, body: impl FnOnce() -> T) -> T {
    let mut before = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `before` is a structure of the call's type.
    assert_eq!(unsafe { libc::getrlimit(resource, &mut before) }, 0);
    let lowered = libc::rlimit { rlim_cur: soft, ..before };
    // SAFETY: as above.
    assert_eq!(unsafe { libc::setrlimit(resource, &lowered) }, 0);
    let result = body();
    // SAFETY: as above.
    assert_eq!(unsafe { libc::setrlimit(resource, &before) }, 0);
    result
}

fn works(connector: Connector, transport: &'static str, scenario: &'static str) -> Bench {
    let bench = Bench::new(connector, transport, scenario);
    let value = Pages::of(&bench.bytes(100_000));
    bench.delete(bench.key(0));
    bench.stored(bench.key(0), &[1; 84], &[value.as_slice()]);
    bench.holds(bench.key(0), &[&[1; 84], value.as_slice()].concat(), 0);
    bench.delete(bench.key(0));
    bench
}

#[test]
fn a_process_without_rights_is_told_what_it_lacks() {
    for transport in KERNEL {
        let Some(config) = config(transport) else { return };
        let open = || as_nobody(|| Connector::open(&config).map(|_| ()));
        let no_permission = |error: Error| {
            assert_eq!(error.code(), ErrorCode::FileOpenFail, "{error}");
            assert!(error.message().contains("no permission"), "{error}");
            assert!(error.message().contains("CAP_SYS_ADMIN"), "{error}");
        };
        no_permission(open().expect_err("the node is root's"));
        set_permissions(&config.device_path, Permissions::from_mode(0o666)).expect("root may");
        // Newer kernels let anybody send commands whom the node's mode lets in.
        if let Err(error) = open() {
            no_permission(error);
        }
        set_permissions(&config.device_path, Permissions::from_mode(0o600)).expect("root may");
    }
}

#[test]
fn auto_takes_ioctl_where_no_io_uring_can_be_set_up_and_explicit_io_uring_does_not() {
    let Some(config) = config(Transport::Auto) else { return };
    // The lowest free descriptor goes to the node, and none is left for a ring.
    let next = std::fs::File::open("/dev/null").expect("it exists");
    let descriptors = std::os::fd::AsRawFd::as_raw_fd(&next) as u64 + 1;
    drop(next);
    let open = |transport| {
        let config = ConnectorConfig { transport, ..config.clone() };
        with_limit(libc::RLIMIT_NOFILE, descriptors, || Connector::open(&config))
    };
    let error = open(Transport::IoUring).expect_err("there is no ring");
    assert_eq!(error.code(), ErrorCode::NotSupported, "{error}");
    assert!(error.message().contains("MOONCAKE_NVME_KV_TRANSPORT"), "{error}");
    let connector = open(Transport::Auto).expect("there is ioctl");
    assert!(format!("{:?}", connector.executor()).starts_with("IoctlExecutor"));
    works(connector, "ioctl", "fallback");
}

#[test]
fn auto_takes_io_uring_where_it_can() {
    let Some(config) = config(Transport::Auto) else { return };
    let connector = Connector::open(&config).expect("the namespace opens");
    assert!(format!("{:?}", connector.executor()).starts_with("IoUringExecutor"));
    works(connector, "io_uring", "auto");
}

/// Takes CAP_IPC_LOCK from this thread.
fn drop_ipc_lock() {
    const VERSION_3: u32 = 0x2008_0522;
    const CAP_IPC_LOCK: u32 = 14;
    let header = [VERSION_3, 0];
    let mut sets = [0u32; 6];
    // SAFETY: version 3 has a header of two and data of six 32-bit words.
    let got = unsafe { libc::syscall(libc::SYS_capget, header.as_ptr(), sets.as_mut_ptr()) };
    assert_eq!(got, 0);
    sets[0] &= !(1 << CAP_IPC_LOCK);
    // SAFETY: as above.
    let set = unsafe { libc::syscall(libc::SYS_capset, header.as_ptr(), sets.as_ptr()) };
    assert_eq!(set, 0);
}

#[test]
fn io_uring_goes_on_without_registered_memory_where_little_may_be_locked_and_warns_once() {
    let Some(config) = config(Transport::IoUring) else { return };
    let warnings = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&warnings);
    log::set_sink(Some(Box::new(move |level, line| {
        if level == log::Level::Warning {
            seen.lock().expect("no panic").push(line.to_owned());
        }
    })));
    let body = || {
        drop_ipc_lock();
        let open = || Connector::open(&config).expect("the namespace opens");
        let connector = with_limit(libc::RLIMIT_MEMLOCK, 65_536, open);
        let bench =
            with_limit(libc::RLIMIT_MEMLOCK, 65_536, || works(connector, "io_uring", "lock"));
        assert_eq!(bench.executor().statistics().fixed, 0);
    };
    std::thread::scope(|scope| scope.spawn(body).join()).expect("it does not panic");
    log::set_sink(None);
    let warnings = warnings.lock().expect("no panic").clone();
    let about: Vec<_> = warnings.iter().filter(|line| line.contains("RLIMIT_MEMLOCK")).collect();
    assert_eq!(about.len(), 1, "{warnings:?}");
}
