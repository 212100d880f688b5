//! What every executor does, whatever carries its commands. Each scenario uses keys of its own,
//! so that all of them may run on one namespace, one after the other or at once.

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};

use mooncake_nvme_kv::device::{
    Completion, Operation, Payload, Request, Stream, Target, Value, execute_batch, execute_one,
};
use nvme_kv_command_set::{Key, ListScanner, PhysicalKey, WireProfile};

use crate::executor_bench::{Bench, Pages};

fn sizes(bench: &Bench) -> Vec<usize> {
    let largest = bench.executor().capabilities().max_value_size as usize;
    let mut sizes = vec![0, 1, 3, 4, 512, 4095, 4096, 4097, 65_536, 262_144, largest - 1, largest];
    sizes.retain(|size| *size <= largest);
    sizes
}

pub(crate) fn values_of_every_size_come_back(bench: &Bench) {
    for (number, size) in sizes(bench).into_iter().enumerate() {
        let key = bench.key(number as u32);
        let value = bench.bytes(size);
        bench.delete(key);
        bench.stored(key, &[], &[Pages::of(&value).as_slice()]);
        execute_one(bench.executor(), Operation::Exist { key }).result.expect("it exists");
        bench.holds(key, &value, 0);
        bench.delete(key);
    }
}

pub(crate) fn values_at_every_address_come_back(bench: &Bench) {
    let memory = Pages::of(&bench.bytes(70_000));
    for (number, skip) in [0, 1, 2, 3, 4, 7, 512, 4092, 4095].into_iter().enumerate() {
        for (more, size) in [100, 4096, 5000, 65_536].into_iter().enumerate() {
            let key = bench.key((number * 4 + more) as u32);
            let value = &memory.as_slice()[skip..skip + size];
            bench.delete(key);
            bench.stored(key, &[], &[value]);
            bench.holds(key, value, skip);
            bench.delete(key);
        }
    }
}

pub(crate) fn values_in_several_slices_come_back_as_one(bench: &Bench) {
    let bytes = Pages::of(&bench.bytes(262_144));
    let all = bytes.as_slice();
    let cuts: [&[usize]; 8] = [
        &[0, 4096, 8192],
        &[0, 1, 2, 3, 40_000],
        &[0, 0, 4095, 4095, 8191],
        &[0, 32_768, 65_536, 98_304],
        &[4, 36_868, 40_964],
        &[4, 4096, 40_960],
        &[0, 100, 200, 300, 400, 500, 600, 700, 800, 900, 50_000],
        &[131_072, 262_144],
    ];
    for (number, cuts) in cuts.iter().enumerate() {
        // Copied pieces are not adjacent in memory; pieces of `all` are.
        let apart: Vec<Pages> =
            cuts.windows(2).map(|cut| Pages::of(&all[cut[0]..cut[1]])).collect();
        let apart: Vec<&[u8]> = apart.iter().map(Pages::as_slice).collect();
        let adjacent: Vec<&[u8]> = cuts.windows(2).map(|cut| &all[cut[0]..cut[1]]).collect();
        for (more, slices) in [apart, adjacent].into_iter().enumerate() {
            let key = bench.key((number * 2 + more) as u32);
            bench.delete(key);
            bench.stored(key, &[], &slices);
            bench.holds(key, &slices.concat(), 0);
            bench.delete(key);
        }
    }
}

pub(crate) fn heads_and_payloads_come_back_as_one(bench: &Bench) {
    let payload = Pages::of(&bench.bytes(131_072));
    let head = bench.bytes(5000);
    let mut number = 0;
    for head_len in [1, 81, 84, 100, 103, 4096, 4100] {
        for (skip, size) in [(0, 4096), (0, 65_536), (0, 65_532), (4, 65_532), (1, 65_535)] {
            number += 1;
            let key = bench.key(number);
            let body = &payload.as_slice()[skip..skip + size];
            bench.delete(key);
            bench.stored(key, &head[..head_len], &[body]);
            bench.holds(key, &[&head[..head_len], body].concat(), 0);
            bench.delete(key);
        }
    }
}

pub(crate) fn bytes_behind_a_value_are_zero_on_the_device(bench: &Bench) {
    if bench.executor().capabilities().wire_profile == WireProfile::Spec {
        return;
    }
    let key = bench.key(0);
    for (head, size) in [(0, 100), (0, 36_868), (84, 32_768), (81, 5000)] {
        let value = Pages::of(&bench.bytes(size));
        let head = bench.bytes(head);
        bench.delete(key);
        bench.stored(key, &head, &[value.as_slice()]);
        let mut expected = [&head, value.as_slice()].concat();
        expected.resize(bench.transfer_len(expected.len()), 0);
        bench.holds(key, &expected, 0);
    }
    bench.delete(key);
}

pub(crate) fn a_short_retrieve_returns_the_leading_bytes_and_the_whole_size(bench: &Bench) {
    let key = bench.key(0);
    let value = bench.bytes(20_000);
    bench.delete(key);
    bench.stored(key, &[], &[&value]);
    let buffer = bench.executor().buffers().get(4096);
    let done = execute_one(bench.executor(), Operation::Retrieve { key, buffer, len: 4096 });
    match done.result {
        Ok(reply) => {
            bench.length_fits(reply, value.len());
            let buffer = done.buffer.expect("the buffer comes back");
            bench.same(&buffer[..4096], &value[..4096]);
        }
        Err(error) => assert!(error.is_short_buffer(), "{error}"),
    }
    bench.delete(key);
}

pub(crate) fn a_long_retrieve_returns_the_value_and_its_size(bench: &Bench) {
    let key = bench.key(0);
    let value = bench.bytes(5000);
    bench.delete(key);
    bench.stored(key, &[], &[&value]);
    let len = 65_536;
    let buffer = bench.executor().buffers().get(len);
    let len = len as u32;
    let done = execute_one(bench.executor(), Operation::Retrieve { key, buffer, len });
    bench.length_fits(done.result.expect("the value is retrieved"), value.len());
    bench.same(&done.buffer.expect("the buffer comes back")[..5000], &value);
    bench.delete(key);
}

pub(crate) fn a_missing_key_is_not_found(bench: &Bench) {
    let key = bench.key(0);
    bench.delete(key);
    bench.delete(key);
    let buffer = bench.executor().buffers().get(4096);
    let done = execute_one(bench.executor(), Operation::Retrieve { key, buffer, len: 10 });
    assert!(done.result.expect_err("it is missing").is_not_found());
    assert!(done.buffer.is_some(), "the buffer comes back");
    let mut memory = Pages::new(4096);
    let target = Target::new(memory.bytes());
    let done = execute_one(bench.executor(), Operation::RetrieveInto { key, target, len: 10 });
    assert!(done.result.expect_err("it is missing").is_not_found());
    let done = execute_one(bench.executor(), Operation::Exist { key });
    assert!(done.result.expect_err("it is missing").is_not_found());
}

pub(crate) fn a_second_store_meets_the_first_value_and_leaves_it(bench: &Bench) {
    let key = bench.key(0);
    let value = bench.bytes(6000);
    bench.delete(key);
    bench.stored(key, &[], &[&value]);
    let again = bench.store(key, &[], &[&bench.bytes(6000)]);
    assert!(again.result.expect_err("there is a value").is_exists());
    bench.holds(key, &value, 0);
    bench.delete(key);
    let done = execute_one(bench.executor(), Operation::Exist { key });
    assert!(done.result.expect_err("it was deleted").is_not_found());
}

pub(crate) fn deep_batches_complete_every_command_once(bench: &Bench) {
    const COUNT: u32 = 2000;
    let values: Vec<Vec<u8>> =
        (0..COUNT).map(|number| bench.bytes(number as usize % 300)).collect();
    let slices: Vec<[&[u8]; 1]> = values.iter().map(|value| [value.as_slice()]).collect();
    let run = |operations: Vec<Operation<'_>>| {
        let done = execute_batch(bench.executor(), operations);
        let tags: Vec<u64> = done.iter().map(|completion| completion.tag).collect();
        assert_eq!(tags, (0..u64::from(COUNT)).collect::<Vec<_>>());
        done
    };
    let keys = || (0..COUNT).map(|number| bench.key(number));
    run(keys().map(|key| Operation::Delete { key }).collect());
    let stores = keys().zip(&slices).map(|(key, slices)| {
        let body = Payload::new(slices).whole().expect("short");
        Operation::Store { key, value: Value { head: Vec::new(), body } }
    });
    assert!(run(stores.collect()).iter().all(|done| done.result.is_ok()));
    let buffers = bench.executor().buffers();
    let retrieves =
        keys().map(|key| Operation::Retrieve { key, buffer: buffers.get(4096), len: 300 });
    for (done, value) in run(retrieves.collect()).into_iter().zip(&values) {
        done.result.expect("the value is retrieved");
        bench.same(&done.buffer.expect("the buffer comes back")[..value.len()], value);
    }
    let exists = run(keys().map(|key| Operation::Exist { key }).collect());
    assert!(exists.iter().all(|done| done.result.is_ok()));
    run(keys().map(|key| Operation::Delete { key }).collect());
    let exists = run(keys().map(|key| Operation::Exist { key }).collect());
    let missing = |done: &Completion| done.result.as_ref().is_err_and(|error| error.is_not_found());
    assert!(exists.iter().all(missing));
}

pub(crate) fn no_buffer_is_touched_after_the_call_has_returned(bench: &Bench) {
    const COUNT: u32 = 64;
    const SIZE: usize = 65_536;
    let mut source = Pages::of(&bench.bytes(SIZE));
    let value = source.as_slice().to_vec();
    for number in 0..COUNT {
        bench.delete(bench.key(number));
    }
    {
        let slices = [source.as_slice()];
        let body = Payload::new(&slices).whole().expect("short");
        let store = |number| Operation::Store {
            key: bench.key(number),
            value: Value { head: Vec::new(), body },
        };
        let done = execute_batch(bench.executor(), (0..COUNT).map(store));
        assert!(done.iter().all(|done| done.result.is_ok()));
    }
    source.bytes().fill(0xee);
    let mut destination = Pages::new(COUNT as usize * SIZE);
    {
        let targets = destination.bytes().chunks_mut(SIZE);
        let retrieves = targets.zip(0..).map(|(chunk, number)| Operation::RetrieveInto {
            key: bench.key(number),
            target: Target::new(chunk),
            len: SIZE as u32,
        });
        let done = execute_batch(bench.executor(), retrieves);
        assert!(done.iter().all(|done| done.result.is_ok()));
    }
    for chunk in destination.as_slice().chunks(SIZE) {
        bench.same(chunk, &value);
    }
    destination.bytes().fill(0xee);
    // Whatever was still on its way would arrive before these.
    for number in 0..COUNT {
        bench.holds(bench.key(number), &value, 0);
        bench.delete(bench.key(number));
    }
    assert!(destination.as_slice().iter().all(|byte| *byte == 0xee));
}

pub(crate) fn a_panic_of_the_stream_leaves_nothing_in_flight(bench: &Bench) {
    struct Panics<'a> {
        left: Vec<Request<'a>>,
        completions: usize,
    }
    impl<'a> Stream<'a> for Panics<'a> {
        fn next(&mut self) -> Option<Request<'a>> {
            self.left.pop()
        }
        fn complete(&mut self, _: Completion) {
            self.completions += 1;
            assert_ne!(self.completions, 5, "wanted by the test");
        }
    }
    const COUNT: usize = 40;
    let value = bench.bytes(65_536);
    for number in 0..COUNT {
        let key = bench.key(number as u32);
        bench.delete(key);
        bench.stored(key, &[], &[&value]);
    }
    let mut memory = Pages::new(COUNT * 65_536);
    let left = memory.bytes().chunks_mut(65_536).enumerate().map(|(number, chunk)| Request {
        tag: number as u64,
        operation: Operation::RetrieveInto {
            key: bench.key(number as u32),
            target: Target::new(chunk),
            len: 65_536,
        },
    });
    let mut stream = Panics { left: left.collect(), completions: 0 };
    let executor = AssertUnwindSafe(bench.executor());
    catch_unwind(AssertUnwindSafe(|| executor.execute(&mut stream))).expect_err("it panics");
    drop(stream);
    memory.bytes().fill(0xee);
    for number in 0..COUNT {
        bench.holds(bench.key(number as u32), &value, 0);
        bench.delete(bench.key(number as u32));
    }
    assert!(memory.as_slice().iter().all(|byte| *byte == 0xee));
}

pub(crate) fn threads_do_not_get_in_each_others_way(bench: &Bench) {
    std::thread::scope(|scope| {
        for thread in 0..4 {
            scope.spawn(move || {
                for number in 0..50 {
                    let key = bench.key(thread * 1000 + number);
                    let value = bench.bytes((number as usize * 997) % 30_000);
                    bench.delete(key);
                    bench.stored(key, &[], &[&value]);
                    bench.holds(key, &value, number as usize % 5);
                    bench.delete(key);
                }
            });
        }
    });
}

pub(crate) fn a_list_names_what_was_stored_and_starts_where_it_is_told(bench: &Bench) {
    let keys: BTreeSet<PhysicalKey> = (0..300).map(|number| bench.key(number)).collect();
    for &key in &keys {
        bench.delete(key);
        bench.stored(key, &[], &[b"listed"]);
    }
    let mut seen: BTreeSet<Key> = BTreeSet::new();
    let mut start: Option<Key> = None;
    loop {
        let mut page = Pages::new(4096);
        bench.executor().list(start.as_ref(), page.bytes()).expect("the device lists");
        let listed: Vec<Key> = ListScanner::new(page.as_slice()).collect();
        let fresh = listed.iter().filter(|key| seen.insert(**key)).count();
        if fresh == 0 {
            break;
        }
        start = listed.last().copied();
    }
    let listed = |key: &PhysicalKey| {
        seen.iter().filter_map(Key::physical).any(|listed| {
            let ignored = 11;
            (0..16).all(|at| at == ignored || listed.0[at] == key.0[at])
        })
    };
    assert!(keys.iter().all(listed));
    keys.into_iter().for_each(|key| bench.delete(key));
}

pub(crate) fn identify_tells_the_limits_that_hold(bench: &Bench) {
    let namespace = bench.executor().identify().expect("the device identifies itself");
    let format = namespace.current().expect("there is a format");
    assert_eq!(format.max_key_len, 16);
    assert!(bench.executor().capabilities().max_value_size <= format.max_value_len);
    assert_ne!((namespace.nguid, namespace.eui64), ([0; 16], [0; 8]), "it has an identity");
}

pub(crate) fn registered_memory_holds_the_same_bytes(bench: &Bench) {
    const SIZE: usize = 65_536;
    let value = bench.bytes(SIZE);
    let key = bench.key(0);
    let mut memory = Pages::new(16 * SIZE + 100);
    memory.bytes()[..SIZE].copy_from_slice(&value);
    let (start, len) = (memory.bytes().as_mut_ptr(), memory.len());
    let connector = bench.connector();
    // SAFETY: `memory` lives until the end of this function, after the offer is taken back.
    unsafe { connector.register_memory(start, len) }.expect("it is registered once");
    bench.delete(key);
    bench.stored(key, &[], &[&memory.as_slice()[..SIZE]]);
    bench.holds(key, &value, 0);
    for at in [SIZE, 5 * SIZE + 4, 9 * SIZE + 1, 15 * SIZE + 100] {
        let target = Target::new(&mut memory.bytes()[at..at + SIZE]);
        let operation = Operation::RetrieveInto { key, target, len: SIZE as u32 };
        execute_one(bench.executor(), operation).result.expect("the value is retrieved");
        bench.same(&memory.as_slice()[at..at + SIZE], &value);
    }
    connector.unregister_memory(start);
    bench.holds(key, &value, 0);
    bench.delete(key);
}

/// One module of tests for one transport: `$open` gives a connector, or `None` to skip.
macro_rules! conformance {
    ($module:ident, $open:path) => {
        mod $module {
            $crate::executor_conformance::conformance!(@tests $open, stringify!($module);
                values_of_every_size_come_back,
                values_at_every_address_come_back,
                values_in_several_slices_come_back_as_one,
                heads_and_payloads_come_back_as_one,
                bytes_behind_a_value_are_zero_on_the_device,
                a_short_retrieve_returns_the_leading_bytes_and_the_whole_size,
                a_long_retrieve_returns_the_value_and_its_size,
                a_missing_key_is_not_found,
                a_second_store_meets_the_first_value_and_leaves_it,
                deep_batches_complete_every_command_once,
                no_buffer_is_touched_after_the_call_has_returned,
                a_panic_of_the_stream_leaves_nothing_in_flight,
                threads_do_not_get_in_each_others_way,
                a_list_names_what_was_stored_and_starts_where_it_is_told,
                identify_tells_the_limits_that_hold,
                registered_memory_holds_the_same_bytes,
            );
        }
    };
    (@tests $open:path, $transport:expr; $($scenario:ident,)*) => {
        $(#[test]
        fn $scenario() {
            let Some(connector) = $open() else { return };
            let bench = $crate::executor_bench::Bench::new(
                connector, $transport, stringify!($scenario));
            $crate::executor_conformance::$scenario(&bench);
        })*
    };
}
pub(crate) use conformance;
