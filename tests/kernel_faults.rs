//! What happens on a real kernel when the target stops answering, goes away and comes back.
//! Needs the guest of `kernel_tests/run`; skipped where `MNKV_KERNEL_NODE` is not set.

mod executor_bench;
mod kernel_support;

use std::path::PathBuf;
use std::process::{Child, Stdio};

use executor_bench::{Bench, Pages};
use kernel_support::{
    attach, bench_on, both_transports, comes_back, detach, in_guest, is_loss, tool, until,
    within_patience,
};
use mooncake_nvme_kv::ErrorCode;
use mooncake_nvme_kv::config::Transport;
use mooncake_nvme_kv::device::{
    Completion, Direction, Operation, Payload, Request, Stream, Target, Value, execute_one,
};

const NQN: &str = "nqn.2014-08.org.nvmexpress:uuid:6d6e6b76-0000-4000-8000-0000006661756c";
const ADDRESS: &str = "127.0.0.1:4431";

/// A second target in the guest and the node the kernel has of it.
struct Remote {
    server: Child,
    directory: PathBuf,
    node: String,
}

fn serve(directory: &PathBuf, options: &[&str]) -> Child {
    let mut command = tool();
    command.args(["serve", "--listen", ADDRESS, "--nqn", NQN, "--device"]).arg(directory);
    let server = command.args(options).stdout(Stdio::null()).spawn().expect("the target starts");
    until("the target listens", || std::net::TcpStream::connect(ADDRESS).is_ok());
    server
}

fn attach_it() -> String {
    attach(ADDRESS.parse().expect("an address"), NQN)
}

impl Remote {
    /// `None` outside of the guest.
    fn new(name: &str, options: &[&str]) -> Option<Remote> {
        if !in_guest() {
            return None;
        }
        let directory = std::env::temp_dir().join(format!("faults-{name}"));
        std::fs::create_dir_all(&directory).expect("the temporary directory is writable");
        let server = serve(&directory, options);
        Some(Remote { server, directory, node: attach_it() })
    }

    fn open(&self, transport: Transport, name: &'static str) -> Bench {
        bench_on(&self.node, transport, name)
    }

    fn kill(&mut self) {
        self.server.kill().expect("it runs");
        self.server.wait().expect("it was started here");
    }

    fn restart(&mut self, options: &[&str]) {
        self.server = serve(&self.directory, options);
    }
}

impl Drop for Remote {
    fn drop(&mut self) {
        detach(NQN);
        let _ = self.server.kill();
        let _ = self.server.wait();
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

fn a_node_attached_again_is_opened_again(transport: Transport) {
    let Some(remote) = Remote::new("again", &[]) else { return };
    let bench = remote.open(transport, "again");
    let value = bench.bytes(100_000);
    bench.stored(bench.key(0), &[], &[&value]);
    detach(NQN);
    for _ in 0..3 {
        let done = execute_one(bench.executor(), Operation::Exist { key: bench.key(0) });
        let error = done.result.expect_err("there is no device");
        assert!(error.is_device_gone(), "{error}");
        assert!(!error.is_not_found());
    }
    attach_it();
    bench.holds(bench.key(0), &value, 0);
    bench.stored(bench.key(1), &[], &[&value]);
    bench.holds(bench.key(1), &value, 0);
}

fn a_command_without_answer_ends_in_its_time(transport: Transport) {
    let Some(remote) = Remote::new("silent", &["--fault", "store:2=no-answer"]) else { return };
    let bench = remote.open(transport, "silent");
    let value = bench.bytes(5000);
    bench.stored(bench.key(0), &[], &[&value]);
    let done = within_patience(|| bench.store(bench.key(1), &[], &[&value]));
    let error = done.result.expect_err("it is not answered");
    assert!(error.outcome_unknown(), "{error}");
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
    remote.restart(&[]);
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
    remote.restart(&[]);
    comes_back(&bench);
    for &tag in &stored {
        bench.holds(bench.key(tag as u32), &value, 0);
    }
    assert!(memory.as_slice().iter().all(|byte| *byte == 0xee), "written after the call returned");
}

/// The device comes back as another one: smaller values, no lengths, no short Retrieve.
fn a_changed_personality_is_met_with_errors_and_not_with_wrong_bytes(transport: Transport) {
    let Some(mut remote) = Remote::new("changed", &[]) else { return };
    let bench = remote.open(transport, "changed");
    let value = bench.bytes(200_000);
    bench.stored(bench.key(0), &[], &[&value]);
    remote.kill();
    remote.restart(&["--personality", "max-value=64k,dw0=zero,short-retrieve=error,capacity=1m"]);
    comes_back(&bench);

    bench.holds(bench.key(0), &value, 0);
    let mut source = Pages::of(&value);
    let done = within_patience(|| bench.store(bench.key(1), &[], &[source.as_slice()]));
    let error = done.result.expect_err("it is larger than values may be now");
    assert_eq!(error.code(Direction::Write), ErrorCode::InvalidParams, "{error}");
    source.bytes().fill(0xee);
    let mut memory = Pages::new(4096);
    let target = Target::new(memory.bytes());
    let short = Operation::RetrieveInto { key: bench.key(0), target, len: 4096 };
    let error = within_patience(|| execute_one(bench.executor(), short)).result;
    assert!(error.expect_err("the value is longer").is_short_buffer());
    memory.bytes().fill(0xee);
    let missing = execute_one(bench.executor(), Operation::Exist { key: bench.key(1) }).result;
    assert!(missing.expect_err("nothing was stored").is_not_found());

    let small = &value[..60_000];
    for number in 1..5 {
        bench.stored(bench.key(number), &[], &[small]);
        bench.holds(bench.key(number), small, 0);
    }
    assert!(memory.as_slice().iter().all(|byte| *byte == 0xee), "written after the call returned");
    let again = remote.open(transport, "changed");
    assert_eq!(again.executor().capabilities().max_value_size, 65_536, "Identify lowers it");
    again.holds(bench.key(1), small, 0);
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
    a_changed_personality_is_met_with_errors_and_not_with_wrong_bytes =>
        io_uring_meets_a_changed_personality_with_errors_and_not_with_wrong_bytes,
        ioctl_meets_a_changed_personality_with_errors_and_not_with_wrong_bytes;
}
