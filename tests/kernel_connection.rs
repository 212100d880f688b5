//! What happens on a real kernel when a connection is cut and when a device executes commands
//! that nobody waits for any more. Needs the guest of `kernel_tests/run`; skipped where
//! `MNKV_KERNEL_NODE` is not set.

mod executor_bench;
mod kernel_support;
mod support;

use std::sync::Arc;

use executor_bench::Pages;
use kernel_support::served::Served;
use kernel_support::{
    TIMEOUT, bench_on, both_transports, comes_back, is_loss, until, within_patience,
};
use mooncake_nvme_kv::ErrorCode;
use mooncake_nvme_kv::backend::{ObjectToLoad, ObjectToStore};
use mooncake_nvme_kv::config::Transport;
use mooncake_nvme_kv::device::fault::{Effect as Passage, Kind};
use mooncake_nvme_kv::device::{
    Completion, Destination, Direction, Operation, Payload, Request, Stream, Target as Memory,
    Value, execute_one,
};
use nvme_kv_command_set::Opcode;
use nvme_kv_emulator::target::Target;
use nvme_kv_emulator::{Effect, Fault, Personality, Trigger};
use support::{Device, Rig, payload};

/// What memory that was given back is filled with.
const POISON: u8 = 0xee;
const PATH: &str = "mem:kernel-connection";

fn is_poison(memory: &[u8]) -> bool {
    memory.iter().all(|byte| *byte == POISON)
}

/// Cuts the connections after some completions.
struct Cutting<'s, 'a> {
    waiting: Vec<Request<'a>>,
    done: Vec<Completion>,
    target: &'s Target,
    at: usize,
}

impl<'a> Stream<'a> for Cutting<'_, 'a> {
    fn next(&mut self) -> Option<Request<'a>> {
        self.waiting.pop()
    }

    fn complete(&mut self, completion: Completion) {
        self.done.push(completion);
        if self.done.len() == self.at {
            self.target.drop_connections();
        }
    }
}

impl Cutting<'_, '_> {
    /// Tags of the requests that succeeded; all others are lost.
    fn succeeded(&self) -> Vec<u64> {
        for error in self.done.iter().filter_map(|done| done.result.as_ref().err()) {
            assert!(is_loss(error), "{error}");
        }
        self.done.iter().filter(|done| done.result.is_ok()).map(|done| done.tag).collect()
    }
}

fn a_cut_connection_ends_the_batch_and_the_next_one_works(transport: Transport) {
    // Far more than are in flight at once, so that some meet the cut whatever the target was
    // quick enough to answer.
    const COUNT: usize = 400;
    const SIZE: usize = 65_536;
    let Some(served) = Served::new(PATH, Personality::default()) else { return };
    let bench = bench_on(&served.node, transport, "cut");
    let mut source = Pages::of(&bench.bytes(SIZE));
    let value = source.as_slice().to_vec();
    let stored = {
        let slices = [source.as_slice()];
        let body = Payload::new(&slices).whole().expect("short");
        let waiting = (0..COUNT).map(|number| Request {
            tag: number as u64,
            operation: Operation::Store {
                key: bench.key(number as u32),
                value: Value { head: Vec::new(), body },
            },
        });
        let waiting = waiting.collect();
        let mut stream = Cutting { waiting, done: Vec::new(), target: &served.target, at: 50 };
        within_patience(|| bench.executor().execute(&mut stream));
        assert_eq!(stream.done.len(), COUNT);
        stream.succeeded()
    };
    assert!((50..COUNT).contains(&stored.len()), "{} were stored", stored.len());
    source.bytes().fill(POISON);
    comes_back(&bench);
    for &tag in &stored {
        bench.holds(bench.key(tag as u32), &value, 0);
    }

    let mut memory = Pages::new(COUNT * SIZE);
    {
        let keys = stored.iter().cycle();
        let waiting = memory.bytes().chunks_mut(SIZE).zip(keys).map(|(chunk, &tag)| Request {
            tag,
            operation: Operation::RetrieveInto {
                key: bench.key(tag as u32),
                target: Memory::new(chunk),
                len: SIZE as u32,
            },
        });
        let waiting = waiting.collect();
        let mut stream = Cutting { waiting, done: Vec::new(), target: &served.target, at: 50 };
        within_patience(|| bench.executor().execute(&mut stream));
        assert_eq!(stream.done.len(), COUNT);
        assert!((50..COUNT).contains(&stream.succeeded().len()));
    }
    memory.bytes().fill(POISON);
    comes_back(&bench);
    for number in 0..COUNT as u32 {
        let key = bench.key(number);
        bench.delete(key);
        bench.stored(key, &[], &[&value]);
        bench.holds(key, &value, 0);
    }
    assert!(is_poison(memory.as_slice()), "written after the call returned");
}

/// The next command of `kind` is not answered, and executed when the test says so.
fn haunt(served: &Served, kind: Opcode) {
    let on = Trigger { kind: Some(kind), nth: 1, key: None };
    served.namespace.script(Fault { on, effect: Effect::LateNoAnswer { after: u64::MAX } });
}

fn ghosts_touch_no_memory_and_store_what_was_given(transport: Transport) {
    let Some(served) = Served::new(PATH, Personality::default()) else { return };
    let bench = bench_on(&served.node, transport, "ghost");
    let value = bench.bytes(60_000);
    bench.stored(bench.key(0), &[], &[&value]);

    let mut source = Pages::of(&value);
    haunt(&served, Opcode::Store);
    let done = within_patience(|| bench.store(bench.key(1), &[1; 84], &[source.as_slice()]));
    let error = done.result.expect_err("it is not answered");
    assert!(error.outcome_unknown(), "{error}");
    assert_eq!(error.code(Direction::Write), ErrorCode::FileWriteFail);
    source.bytes().fill(POISON);
    comes_back(&bench);

    let mut memory = Pages::new(60_000_usize.next_multiple_of(4096));
    haunt(&served, Opcode::Retrieve);
    let target = Memory::new(memory.bytes());
    let retrieve = Operation::RetrieveInto { key: bench.key(0), target, len: 60_000 };
    let done = within_patience(|| execute_one(bench.executor(), retrieve));
    let error = done.result.expect_err("it is not answered");
    assert!(error.outcome_unknown(), "{error}");
    assert_eq!(error.code(Direction::Read), ErrorCode::FileReadFail);
    memory.bytes().fill(POISON);
    comes_back(&bench);

    let key = bench.key(1);
    let missing = execute_one(bench.executor(), Operation::Exist { key }).result;
    assert!(missing.expect_err("it was not executed").is_not_found());
    assert_eq!(served.namespace.release_late(), 2);
    bench.holds(key, &[&[1; 84], &value[..]].concat(), 0);
    bench.holds(bench.key(0), &value, 0);
    bench.stored(bench.key(2), &[], &[&value]);
    bench.holds(bench.key(2), &value, 0);
    assert!(is_poison(memory.as_slice()), "written after the call returned");
    assert_eq!(bench.executor().statistics().rejected, 0);
}

/// A backend on the namespace, whose commands have [`TIMEOUT`].
fn rig_on(served: &Served, transport: Transport) -> Rig {
    Rig::at(PATH, Personality::default(), |config| {
        served.configure(config, transport);
        config.connector.command_timeout = TIMEOUT;
    })
}

/// Offloads until it succeeds: the kernel has to reconnect, and a slot in which an unanswered
/// Store may still appear is not used for a while.
fn put_in_the_end(device: &Device, key: &[u8], bytes: &[u8]) {
    let allowed = [ErrorCode::FileWriteFail, ErrorCode::FileReadFail, ErrorCode::InvalidRead];
    until("the object is stored", || match device.put(key, bytes) {
        Ok(_) => true,
        Err(error) => {
            assert!(allowed.contains(&error.code()), "{error}");
            false
        }
    });
}

fn a_rewrite_survives_its_ghosts(transport: Transport) {
    let Some(served) = Served::new(PATH, Personality::default()) else { return };
    let rig = rig_on(&served, transport);
    let bench = bench_on(&served.node, transport, "rewrite");
    // The first Store of a rewrite is that of a chunk, or of the root when it is inline.
    for (key, old, new) in [(b"chunked", 300_000, 600_000), (b"inline!", 3000, 5000)] {
        let device = rig.open();
        let (old, new) = (payload(old, 1), payload(new, 2));
        device.put(key, &old).expect("it is stored");
        haunt(&served, Opcode::Store);
        let mut given = new.clone();
        let rewritten = within_patience(|| device.put(key, &given));
        given.fill(POISON);
        if let Err(error) = &rewritten {
            assert_eq!(error.code(), ErrorCode::FileWriteFail, "{error}");
        }
        comes_back(&bench);
        let is_old_or_new = |device: &Device| {
            let was = |bytes: &[u8]| device.get(key, bytes.len()).is_ok_and(|got| got == bytes);
            assert!(was(&new) || (rewritten.is_err() && was(&old)), "neither old nor new");
        };
        is_old_or_new(&device);
        assert_eq!(served.namespace.release_late(), 1);
        is_old_or_new(&device);
        is_old_or_new(&rig.open());
        put_in_the_end(&device, key, &new);
        device.expect(key, &new);
        rig.open().expect(key, &new);
    }
}

fn a_backend_accounts_for_every_object_of_a_batch_that_is_cut(transport: Transport) {
    const COUNT: usize = 200;
    const SIZE: usize = 70_000;
    let Some(served) = Served::new(PATH, Personality::default()) else { return };
    let rig = rig_on(&served, transport);
    let bench = bench_on(&served.node, transport, "batch");
    let device = rig.open();
    let keys: Vec<Vec<u8>> = (0..COUNT).map(|number| format!("{number}").into_bytes()).collect();
    let payloads: Vec<Vec<u8>> = (0..COUNT).map(|number| payload(SIZE, number as u64)).collect();
    // Far more than are in flight at once have an answer by then.
    let cut_at = |kind: Kind, nth: usize| {
        let target = Arc::clone(&served.target);
        let mut seen = 0;
        device.faults.set_rule(move |command, _| {
            seen += usize::from(command == kind);
            if command == kind && seen == nth {
                target.drop_connections();
            }
            Passage::Pass
        });
    };

    cut_at(Kind::Store, COUNT / 2);
    let mut given = payloads.clone();
    let results = {
        let slices: Vec<[&[u8]; 1]> = given.iter().map(|bytes| [&bytes[..]]).collect();
        let objects = keys.iter().zip(&slices);
        let objects: Vec<_> = objects.map(|(key, slices)| ObjectToStore { key, slices }).collect();
        within_patience(|| device.backend.offload(&objects, &mut |_| Ok(()))).expect("it is open")
    };
    given.iter_mut().for_each(|bytes| bytes.fill(POISON));
    assert_eq!(results.results.len(), COUNT);
    let acknowledged = results.results.iter().filter(|result| result.is_ok()).count();
    assert!((1..COUNT).contains(&acknowledged), "{acknowledged} were stored");
    for error in results.results.iter().filter_map(|result| result.as_ref().err()) {
        assert_eq!(error.code(), ErrorCode::FileWriteFail, "{error}");
    }
    comes_back(&bench);
    for (number, result) in results.results.iter().enumerate() {
        if result.is_ok() {
            rig.open().expect(&keys[number], &payloads[number]);
        }
        put_in_the_end(&device, &keys[number], &payloads[number]);
    }

    cut_at(Kind::Retrieve, COUNT / 2);
    let mut memory: Vec<Pages> = (0..COUNT).map(|_| Pages::new(SIZE)).collect();
    let results = {
        let objects = keys.iter().zip(&mut memory);
        let objects = objects.map(|(key, memory)| ObjectToLoad {
            key,
            destination: Destination::new(memory.bytes()),
        });
        let objects = objects.collect();
        within_patience(|| device.backend.load(objects)).expect("it is open")
    };
    for ((result, memory), payload) in results.iter().zip(&mut memory).zip(&payloads) {
        match result {
            Ok(()) => assert!(memory.as_slice() == payload, "wrong bytes"),
            Err(error) => assert_eq!(error.code(), ErrorCode::FileReadFail, "{error}"),
        }
        memory.bytes().fill(POISON);
    }
    let loaded = results.iter().filter(|result| result.is_ok()).count();
    assert!((1..COUNT).contains(&loaded), "{loaded} were loaded");
    device.faults.clear_rule();
    comes_back(&bench);
    for (key, payload) in keys.iter().zip(&payloads) {
        device.expect(key, payload);
    }
    assert!(memory.iter().all(|memory| is_poison(memory.as_slice())), "written after the return");
}

both_transports! {
    a_cut_connection_ends_the_batch_and_the_next_one_works =>
        io_uring_works_again_after_its_connection_was_cut_in_a_batch,
        ioctl_works_again_after_its_connection_was_cut_in_a_batch;
    ghosts_touch_no_memory_and_store_what_was_given =>
        ghosts_of_io_uring_touch_no_memory_and_store_what_was_given,
        ghosts_of_ioctl_touch_no_memory_and_store_what_was_given;
    a_rewrite_survives_its_ghosts =>
        a_rewrite_by_io_uring_survives_its_ghosts,
        a_rewrite_by_ioctl_survives_its_ghosts;
    a_backend_accounts_for_every_object_of_a_batch_that_is_cut =>
        a_backend_on_io_uring_accounts_for_every_object_of_a_batch_that_is_cut,
        a_backend_on_ioctl_accounts_for_every_object_of_a_batch_that_is_cut;
}
