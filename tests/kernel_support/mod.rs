//! What the tests on a real kernel share: NVMe/TCP targets, attached to this kernel.

#![allow(dead_code)] // each test program uses its part

pub(crate) mod served;

use std::net::SocketAddr;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use mooncake_nvme_kv::config::Transport;
use mooncake_nvme_kv::device::{CommandError, Direction, Operation, execute_one};
use mooncake_nvme_kv::{ErrorCode, config::ConnectorConfig, device::Connector};

use crate::executor_bench::Bench;

/// Longer than a reconnect takes, shorter than a hang.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);
/// A command's time limit where some are not answered: longer than a loaded machine takes to answer
/// all others that are in flight.
pub(crate) const TIMEOUT: Duration = Duration::from_millis(2000);

/// Whether there is a kernel to test on; says so where there is none.
pub(crate) fn in_guest() -> bool {
    let in_guest = std::env::var_os("MNKV_KERNEL_NODE").is_some();
    if !in_guest {
        eprintln!("SKIPPED: MNKV_KERNEL_NODE is not set");
    }
    in_guest
}

/// The name of a transport that tests and summaries use.
pub(crate) fn name_of(transport: Transport) -> &'static str {
    match transport {
        Transport::IoUring => "io_uring",
        Transport::Ioctl => "ioctl",
        Transport::Auto => "auto",
        Transport::Emulated => "emulated",
    }
}

/// The program `nvme-kv`.
pub(crate) fn tool() -> Command {
    Command::new(std::env::var_os("MNKV_KERNEL_TOOL").expect("the guest names the tool"))
}

/// Attaches what a target serves and returns its node. A lost connection is tried again every
/// second.
pub(crate) fn attach(address: SocketAddr, nqn: &str) -> String {
    let mut command = tool();
    command.args(["attach", "--address", &address.to_string(), "--nqn", nqn]);
    command.args(["--option", "reconnect_delay=1"]);
    let output = command.stderr(Stdio::inherit()).output().expect("the tool starts");
    assert!(output.status.success(), "attach failed");
    String::from_utf8(output.stdout).expect("a path").trim().to_owned()
}

/// Detaches it.
pub(crate) fn detach(nqn: &str) {
    tool().args(["detach", "--nqn", nqn]).status().expect("the tool starts");
}

/// Waits for something outside of this process.
pub(crate) fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < PATIENCE, "{what}: not within {PATIENCE:?}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Calls `body`, which must not take long, whatever happens to the device.
pub(crate) fn within_patience<T>(body: impl FnOnce() -> T) -> T {
    let start = Instant::now();
    let result = body();
    assert!(start.elapsed() < PATIENCE, "it took {:?}", start.elapsed());
    result
}

/// An executor on `node` whose commands have [`TIMEOUT`].
pub(crate) fn bench_on(node: &str, transport: Transport, scenario: &'static str) -> Bench {
    let config = ConnectorConfig {
        device_path: node.to_owned(),
        transport,
        command_timeout: TIMEOUT,
        ..ConnectorConfig::default()
    };
    let connector = Connector::open(&config).expect("the namespace opens");
    Bench::new(connector, name_of(transport), scenario)
}

/// Neither "not found" nor "full" nor any other answer about the key.
pub(crate) fn is_loss(error: &CommandError) -> bool {
    (error.is_device_gone() || error.outcome_unknown())
        && error.code(Direction::Write) == ErrorCode::FileWriteFail
        && error.code(Direction::Read) == ErrorCode::FileReadFail
}

/// Waits until the kernel has reconnected, which `bench` notices without being opened again.
pub(crate) fn comes_back(bench: &Bench) {
    until("the namespace answers again", || {
        let key = bench.key(u32::MAX);
        match execute_one(bench.executor(), Operation::Exist { key }).result {
            Err(error) if is_loss(&error) => false,
            result => {
                assert!(result.expect_err("it was never stored").is_not_found());
                true
            }
        }
    });
}

/// One test a transport of each scenario.
macro_rules! both_transports {
    ($($scenario:ident => $io_uring:ident, $ioctl:ident;)*) => {
        $(#[test]
        fn $io_uring() {
            $scenario(Transport::IoUring);
        }

        #[test]
        fn $ioctl() {
            $scenario(Transport::Ioctl);
        })*
    };
}
pub(crate) use both_transports;
