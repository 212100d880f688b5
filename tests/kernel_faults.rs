//! What happens on a real kernel when the target stops answering, goes away and comes back.
//! Needs the guest of `kernel_tests/run`; skipped where `MNKV_KERNEL_NODE` is not set.

mod executor_bench;

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use executor_bench::{Bench, Pages};
use mooncake_nvme_kv::ErrorCode;
use mooncake_nvme_kv::config::{ConnectorConfig, Transport};
use mooncake_nvme_kv::device::{
    CommandError, Completion, Connector, Direction, Operation, Payload, Request, Stream, Target,
    Value, execute_one,
};

const NQN: &str = "nqn.2014-08.org.nvmexpress:uuid:6d6e6b76-0000-4000-8000-0000006661756c";
const ADDRESS: &str = "127.0.0.1:4431";
/// Longer than a reconnect takes, shorter than a hang.
const PATIENCE: Duration = Duration::from_secs(30);
const TIMEOUT: Duration = Duration::from_millis(1000);

/// A second target in the guest and the node the kernel has of it.
struct Remote {
    server: Child,
    directory: PathBuf,
    node: String,
}

fn tool() -> Command {
    Command::new(std::env::var_os("MNKV_KERNEL_TOOL").expect("the guest names the tool"))
}

fn serve(directory: &PathBuf, options: &[&str]) -> Child {
    let mut command = tool();
    command.args(["serve", "--listen", ADDRESS, "--nqn", NQN, "--device"]).arg(directory);
    let server = command.args(options).stdout(Stdio::null()).spawn().expect("the target starts");
    until("the target listens", || std::net::TcpStream::connect(ADDRESS).is_ok());
    server
}

fn attach() -> String {
    let mut command = tool();
    command.args(["attach", "--address", ADDRESS, "--nqn", NQN, "--option", "reconnect_delay=1"]);
    let output = command.stderr(Stdio::inherit()).output().expect("the tool starts");
    assert!(output.status.success(), "attach failed");
    String::from_utf8(output.stdout).expect("a path").trim().to_owned()
}

fn detach() {
    tool().args(["detach", "--nqn", NQN]).status().expect("the tool starts");
}

/// Waits for something outside of this process.
fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < PATIENCE, "{what}: not within {PATIENCE:?}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

impl Remote {
    /// `None` outside of the guest.
    fn new(name: &str, options: &[&str]) -> Option<Remote> {
        if std::env::var_os("MNKV_KERNEL_NODE").is_none() {
            eprintln!("SKIPPED: MNKV_KERNEL_NODE is not set");
            return None;
        }
        let directory = std::env::temp_dir().join(format!("faults-{name}"));
        std::fs::create_dir_all(&directory).expect("the temporary directory is writable");
        let server = serve(&directory, options);
        Some(Remote { server, directory, node: attach() })
    }

    fn open(&self, transport: Transport, name: &'static str) -> Bench {
        let config = ConnectorConfig {
            device_path: self.node.clone(),
            transport,
            command_timeout: TIMEOUT,
            ..ConnectorConfig::default()
        };
        let connector = Connector::open(&config).expect("the namespace opens");
        Bench::new(
            connector,
            if transport == Transport::Ioctl { "ioctl" } else { "io_uring" },
            name,
        )
    }

    fn kill(&mut self) {
        self.server.kill().expect("it runs");
        self.server.wait().expect("it was started here");
    }

    fn restart(&mut self) {
        self.server = serve(&self.directory, &[]);
    }
}

impl Drop for Remote {
    fn drop(&mut self) {
        detach();
        let _ = self.server.kill();
        let _ = self.server.wait();
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

/// Neither "not found" nor "full" nor any other answer about the key.
fn is_loss(error: &CommandError) -> bool {
    (error.is_device_gone() || error.outcome_unknown()) && !error.is_not_found()
}

/// Waits until the kernel has reconnected, which `bench` notices without being opened again.
fn comes_back(bench: &Bench) {
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

fn a_node_attached_again_is_opened_again(transport: Transport) {
    let Some(remote) = Remote::new("again", &[]) else { return };
    let bench = remote.open(transport, "again");
    let value = bench.bytes(100_000);
    bench.stored(bench.key(0), &[], &[&value]);
    detach();
    for _ in 0..3 {
        let done = execute_one(bench.executor(), Operation::Exist { key: bench.key(0) });
        let error = done.result.expect_err("there is no device");
        assert!(error.is_device_gone(), "{error}");
        assert!(!error.is_not_found());
    }
    attach();
    bench.holds(bench.key(0), &value, 0);
    bench.stored(bench.key(1), &[], &[&value]);
    bench.holds(bench.key(1), &value, 0);
}

fn a_command_without_answer_ends_in_its_time(transport: Transport) {
    let Some(remote) = Remote::new("silent", &["--fault", "store:2=no-answer"]) else { return };
    let bench = remote.open(transport, "silent");
    let value = bench.bytes(5000);
    bench.stored(bench.key(0), &[], &[&value]);
    let start = Instant::now();
    let error = bench.store(bench.key(1), &[], &[&value]).result.expect_err("it is not answered");
    assert!(error.outcome_unknown(), "{error}");
    assert!(start.elapsed() < PATIENCE);
    comes_back(&bench);
    bench.holds(bench.key(0), &value, 0);
    bench.stored(bench.key(1), &[], &[&value]);
    bench.holds(bench.key(1), &value, 0);
}

fn a_full_device_is_told_from_a_lost_one(transport: Transport) {
    let options = ["--personality", "capacity=1m,max-value=64k"];
    let Some(remote) = Remote::new("full", &options) else { return };
    let bench = remote.open(transport, "full");
    assert_eq!(bench.executor().capabilities().max_value_size, 65_536, "Identify lowers it");
    let value = bench.bytes(65_536);
    let full =
        (0..64).find_map(|number| bench.store(bench.key(number), &[], &[&value]).result.err());
    let error = full.expect("a mebibyte does not hold four");
    assert_eq!(error.code(Direction::Write), ErrorCode::KeysUltraLimit, "{error}");
    assert!(!is_loss(&error));
    bench.holds(bench.key(0), &value, 0);
}

/// Kills the target after some completions.
struct Killing<'s, 'a> {
    waiting: Vec<Request<'a>>,
    done: Vec<Completion>,
    remote: &'s mut Remote,
    at: usize,
}

impl<'a> Stream<'a> for Killing<'_, 'a> {
    fn next(&mut self) -> Option<Request<'a>> {
        self.waiting.pop()
    }

    fn complete(&mut self, completion: Completion) {
        self.done.push(completion);
        if self.done.len() == self.at {
            self.remote.kill();
        }
    }
}

fn a_killed_target_ends_the_batch_and_the_next_one_works(transport: Transport) {
    const COUNT: u32 = 200;
    const SIZE: usize = 65_536;
    let Some(mut remote) = Remote::new("killed", &[]) else { return };
    let bench = remote.open(transport, "killed");
    let value = bench.bytes(SIZE);
    let slices: [&[u8]; 1] = [&value];
    let body = Payload::new(&slices).whole().expect("short");
    let waiting = (0..COUNT).map(|number| Request {
        tag: number.into(),
        operation: Operation::Store {
            key: bench.key(number),
            value: Value { head: Vec::new(), body },
        },
    });
    let waiting = waiting.collect();
    let mut stream = Killing { waiting, done: Vec::new(), remote: &mut remote, at: 50 };
    bench.executor().execute(&mut stream);
    let done = stream.done;
    assert_eq!(done.len(), COUNT as usize);
    let stored: Vec<u64> =
        done.iter().filter(|done| done.result.is_ok()).map(|done| done.tag).collect();
    assert!((50..COUNT as usize).contains(&stored.len()), "{} were stored", stored.len());
    for error in done.iter().filter_map(|done| done.result.as_ref().err()) {
        assert!(is_loss(error), "{error}");
    }
    remote.restart();
    comes_back(&bench);
    for &tag in &stored {
        bench.holds(bench.key(tag as u32), &value, 0);
    }
    // Reads into memory that is ours again the moment the call returns; far more of them than are
    // in flight at once, so that the target cannot have answered them all.
    let mut memory = Pages::new(2 * COUNT as usize * SIZE);
    let keys = stored.iter().cycle();
    let waiting = memory.bytes().chunks_mut(SIZE).zip(keys).map(|(chunk, &tag)| Request {
        tag,
        operation: Operation::RetrieveInto {
            key: bench.key(tag as u32),
            target: Target::new(chunk),
            len: SIZE as u32,
        },
    });
    let waiting = waiting.collect();
    let mut stream = Killing { waiting, done: Vec::new(), remote: &mut remote, at: 10 };
    bench.executor().execute(&mut stream);
    let lost = stream.done.iter().filter(|done| done.result.is_err()).count();
    assert!(lost > 0, "the target was killed");
    drop(stream);
    memory.bytes().fill(0xee);
    remote.restart();
    comes_back(&bench);
    for &tag in &stored {
        bench.holds(bench.key(tag as u32), &value, 0);
    }
    assert!(memory.as_slice().iter().all(|byte| *byte == 0xee), "written after the call returned");
}

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

both_transports! {
    a_full_device_is_told_from_a_lost_one =>
        io_uring_tells_a_full_device_from_a_lost_one,
        ioctl_tells_a_full_device_from_a_lost_one;
    a_node_attached_again_is_opened_again =>
        io_uring_opens_a_node_again_that_was_attached_again,
        ioctl_opens_a_node_again_that_was_attached_again;
    a_command_without_answer_ends_in_its_time =>
        io_uring_ends_a_command_without_answer_in_its_time,
        ioctl_ends_a_command_without_answer_in_its_time;
    a_killed_target_ends_the_batch_and_the_next_one_works =>
        io_uring_works_again_after_the_target_was_killed_in_a_batch,
        ioctl_works_again_after_the_target_was_killed_in_a_batch;
}
