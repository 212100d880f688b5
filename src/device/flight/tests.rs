use std::cell::RefCell;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;

use nvme_kv_command_set::{Command, PhysicalKey};

use super::*;
use crate::device::Payload;

/// A queue that a test completes by hand.
#[derive(Default)]
struct Script {
    depth: usize,
    region: Option<u16>,
    /// Tokens pushed, not yet submitted.
    staged: Vec<u64>,
    started: VecDeque<u64>,
    log: Rc<RefCell<Log>>,
    /// Delivered before anything else.
    injected: VecDeque<RawCompletion>,
    /// What the next completions say; success with DW0 0 when there is nothing.
    answers: VecDeque<(i32, u32)>,
    /// Refuse what is staged at this submission, counted from 1.
    refuse_at: Option<(usize, i32)>,
    ready: VecDeque<RawCompletion>,
}

/// What a queue saw, for after it is gone.
#[derive(Default)]
struct Log {
    groups: Vec<usize>,
    commands: Vec<(PassthroughCommand, Addressing)>,
    most_in_flight: usize,
    tokens: Vec<u64>,
    left_in_flight: usize,
}

impl Script {
    fn new(depth: usize) -> (Script, Rc<RefCell<Log>>) {
        let script = Script { depth, ..Script::default() };
        let log = Rc::clone(&script.log);
        (script, log)
    }

    fn complete_one(&mut self) {
        let Some(token) = self.started.pop_front() else { return };
        let (result, dw0) = self.answers.pop_front().unwrap_or((0, 0));
        self.ready.push_back(RawCompletion { token, result, dw0 });
        self.log.borrow_mut().left_in_flight = self.started.len();
    }
}

impl Queue for Script {
    fn depth(&self) -> usize {
        self.depth
    }

    fn takes_segments(&self) -> bool {
        true
    }

    fn region(&self, _: u64, _: u32) -> Option<u16> {
        self.region
    }

    unsafe fn push(&mut self, token: u64, command: &PassthroughCommand, addressing: Addressing) {
        self.staged.push(token);
        let mut log = self.log.borrow_mut();
        log.tokens.push(token);
        log.commands.push((*command, addressing));
    }

    fn submit(&mut self, want: usize) -> Result<(), Refused> {
        {
            let mut log = self.log.borrow_mut();
            log.groups.push(self.staged.len());
            if let Some((at, errno)) = self.refuse_at
                && log.groups.len() == at
            {
                let tokens = self.staged.drain(..).collect();
                return Err(Refused { errno, tokens });
            }
            self.started.extend(self.staged.drain(..));
            log.most_in_flight = log.most_in_flight.max(self.started.len());
            log.left_in_flight = self.started.len();
        }
        while self.ready.len() < want {
            self.complete_one();
        }
        Ok(())
    }

    fn pop(&mut self) -> Option<RawCompletion> {
        self.injected.pop_front().or_else(|| self.ready.pop_front())
    }
}

/// Requests in order; completions as they come.
#[derive(Default)]
struct List<'a> {
    waiting: VecDeque<Request<'a>>,
    done: Vec<Completion>,
    panic_at_completion: Option<usize>,
    panic_at_next: Option<usize>,
    asked: usize,
}

impl<'a> List<'a> {
    fn of(operations: impl IntoIterator<Item = Operation<'a>>) -> Self {
        let number = |(tag, operation)| Request { tag: tag as u64, operation };
        List {
            waiting: operations.into_iter().enumerate().map(number).collect(),
            ..List::default()
        }
    }

    fn exists(count: usize) -> Self {
        List::of((0..count).map(|_| Operation::Exist { key: PhysicalKey([1; 16]) }))
    }
}

impl<'a> Stream<'a> for List<'a> {
    fn next(&mut self) -> Option<Request<'a>> {
        self.asked += 1;
        assert_ne!(self.panic_at_next, Some(self.asked), "wanted by the test");
        self.waiting.pop_front()
    }

    fn complete(&mut self, completion: Completion) {
        self.done.push(completion);
        assert_ne!(self.panic_at_completion, Some(self.done.len()), "wanted by the test");
    }
}

struct Bench {
    wire: Wire,
    buffers: BufferPool,
    counters: Counters,
}

impl Bench {
    fn new() -> Self {
        Bench { wire: Wire::default(), buffers: BufferPool::new(0), counters: Counters::default() }
    }

    fn run<'a>(&self, script: &mut Script, tokens: &mut Tokens, stream: &mut dyn Stream<'a>) {
        let judge = |error: CommandError, addressing| match (&error, addressing) {
            (CommandError::Errno(libc::EINVAL), Addressing::Fixed(_)) => Verdict::RetryContiguous,
            _ => Verdict::Fail(error),
        };
        let rules = Rules {
            wire: &self.wire,
            max_transfer: 1 << 20,
            buffers: &self.buffers,
            counters: &self.counters,
            judge: &judge,
        };
        run(&rules, script, tokens, stream);
    }
}

#[test]
fn every_request_gets_one_completion_and_the_queue_is_never_overfilled() {
    let (mut script, log) = Script::new(16);
    let mut list = List::exists(1000);
    Bench::new().run(&mut script, &mut Tokens::default(), &mut list);
    let mut tags: Vec<u64> = list.done.iter().map(|completion| completion.tag).collect();
    tags.sort_unstable();
    assert_eq!(tags, (0..1000).collect::<Vec<_>>());
    assert!(log.borrow().most_in_flight <= 16);
    assert_eq!(log.borrow().left_in_flight, 0);
}

#[test]
fn commands_are_submitted_in_small_groups_while_requests_are_still_being_made() {
    let (mut script, log) = Script::new(256);
    Bench::new().run(&mut script, &mut Tokens::default(), &mut List::exists(24));
    assert_eq!(log.borrow().groups[0], GROUP);
}

#[test]
fn large_values_are_submitted_before_their_group_is_full() {
    let (mut script, log) = Script::new(256);
    let bytes = vec![0u8; 524_288];
    let slices: [&[u8]; 1] = [&bytes];
    let payload = Payload::new(&slices);
    let body = payload.whole().expect("short");
    let store =
        |_| Operation::Store { key: PhysicalKey([0; 16]), value: Value { head: Vec::new(), body } };
    Bench::new().run(&mut script, &mut Tokens::default(), &mut List::of((0..4).map(store)));
    assert_eq!(log.borrow().groups[0], 2);
}

#[test]
fn a_completion_of_a_former_batch_is_rejected_and_counted() {
    let bench = Bench::new();
    let mut tokens = Tokens::default();
    let (mut script, log) = Script::new(4);
    bench.run(&mut script, &mut tokens, &mut List::exists(4));
    let former = log.borrow().tokens.clone();

    let (mut script, log) = Script::new(4);
    script.injected =
        former.iter().map(|&token| RawCompletion { token, result: 0x87, dw0: 0 }).collect();
    let mut list = List::exists(4);
    bench.run(&mut script, &mut tokens, &mut list);
    assert!(log.borrow().tokens.iter().all(|token| !former.contains(token)));
    assert_eq!(list.done.len(), 4);
    assert!(list.done.iter().all(|completion| completion.result.is_ok()));
    assert_eq!(bench.counters.snapshot().rejected, 4);
}

#[test]
fn duplicate_and_foreign_completions_are_rejected_and_counted() {
    let bench = Bench::new();
    let (mut script, _) = Script::new(1);
    // The first token of fresh tokens, three times, and two that were never handed out.
    let token = Tokens::default().take(0);
    let twice = [token, token, token, u64::MAX, token + 1];
    script.injected =
        twice.into_iter().map(|token| RawCompletion { token, result: 0, dw0: 0 }).collect();
    let mut list = List::exists(1);
    let mut tokens = Tokens::default();
    bench.run(&mut script, &mut tokens, &mut list);
    assert_eq!(list.done.len(), 1);
    // The queue's own completion comes last, when the command has ended already.
    assert_eq!(bench.counters.snapshot().rejected, 5);
}

#[test]
fn nothing_is_in_flight_after_a_panic_of_the_stream() {
    let bench = Bench::new();
    for (at_completion, at_next) in [(Some(3), None), (None, Some(30))] {
        let (mut script, log) = Script::new(32);
        let mut list = List::exists(100);
        list.panic_at_completion = at_completion;
        list.panic_at_next = at_next;
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            bench.run(&mut script, &mut Tokens::default(), &mut list);
        }));
        assert!(panicked.is_err());
        assert_eq!(log.borrow().left_in_flight, 0);
        assert!(script.staged.is_empty());
    }
}

#[test]
fn a_refusing_queue_ends_every_request_with_its_errno_and_waits_for_what_was_started() {
    let (mut script, log) = Script::new(256);
    script.refuse_at = Some((2, libc::EBADF));
    let mut list = List::exists(100);
    Bench::new().run(&mut script, &mut Tokens::default(), &mut list);
    assert_eq!(list.done.len(), 100);
    let ok = list.done.iter().filter(|completion| completion.result.is_ok()).count();
    assert_eq!(ok, GROUP, "the first group was started");
    let refused = Err(CommandError::Errno(libc::EBADF));
    assert_eq!(list.done.iter().filter(|completion| completion.result == refused).count(), 92);
    assert_eq!(log.borrow().left_in_flight, 0);
}

#[test]
fn a_command_refused_for_its_registered_memory_goes_again_without_it() {
    let bench = Bench::new();
    let (mut script, log) = Script::new(4);
    script.region = Some(7);
    script.answers = [(-libc::EINVAL, 0), (0, 4096)].into();
    let buffer = bench.buffers.get(4096);
    let mut list = List::of([Operation::Retrieve { key: PhysicalKey([0; 16]), buffer, len: 100 }]);
    bench.run(&mut script, &mut Tokens::default(), &mut list);
    assert_eq!(list.done[0].result, Ok(Reply { value_len: Some(4096) }));
    assert!(list.done[0].buffer.is_some());
    let addressings: Vec<_> = log.borrow().commands.iter().map(|(_, how)| *how).collect();
    assert_eq!(addressings, [Addressing::Fixed(7), Addressing::Contiguous]);
}

#[test]
fn a_retrieve_whose_buffer_is_too_short_never_reaches_the_queue() {
    let bench = Bench::new();
    let (mut script, log) = Script::new(4);
    let mut short = [0u8; 100];
    let mut list = List::of([
        Operation::Retrieve {
            key: PhysicalKey([0; 16]),
            buffer: bench.buffers.get(4096),
            len: 4097,
        },
        Operation::RetrieveInto {
            key: PhysicalKey([0; 16]),
            target: Target::new(&mut short),
            len: 100,
        },
    ]);
    bench.run(&mut script, &mut Tokens::default(), &mut list);
    assert!(log.borrow().commands.is_empty());
    assert!(list.done.iter().all(|done| done.result == Err(CommandError::Errno(libc::EFAULT))));
    assert!(list.done[0].buffer.is_some(), "the buffer comes back");
}

#[test]
fn commands_carry_the_bytes_of_the_wire_and_the_address_of_the_data() {
    let bench = Bench::new();
    let (mut script, log) = Script::new(4);
    let mut memory = bench.buffers.get(8192);
    let (source, destination) = memory.split_at_mut(4096);
    let source_address = source.as_ptr() as u64;
    let destination_address = destination.as_ptr() as u64;
    let slices: [&[u8]; 1] = [source];
    let body = Payload::new(&slices).whole().expect("short");
    let key = PhysicalKey([3; 16]);
    let mut list = List::of([
        Operation::Store { key, value: Value { head: Vec::new(), body } },
        Operation::RetrieveInto { key, target: Target::new(destination), len: 4000 },
        Operation::Delete { key },
    ]);
    bench.run(&mut script, &mut Tokens::default(), &mut list);
    let wire = &bench.wire;
    let log = log.borrow();
    let sent: Vec<PassthroughCommand> = log.commands.iter().map(|(command, _)| *command).collect();
    let expected = [
        wire.store(&key, 4096, StoreOptions::IF_ABSENT, source_address),
        wire.retrieve(&key, 4000, destination_address),
        wire.delete(&key),
    ];
    assert_eq!(sent, expected);
    let Ok(Command::Store { value_len, .. }) = sent[0].decode() else { panic!("no Store") };
    assert_eq!(value_len, 4096);
}

#[test]
fn a_target_off_the_dword_is_filled_through_a_buffer_up_to_the_value_and_no_further() {
    let bench = Bench::new();
    let (mut script, log) = Script::new(4);
    script.answers = [(0, 10)].into();
    let mut memory = vec![0xaa; 8192];
    let skip = memory.as_ptr().align_offset(4) + 1;
    let target = &mut memory[skip..skip + 4096];
    let address = target.as_ptr() as u64;
    let mut list = List::of([Operation::RetrieveInto {
        key: PhysicalKey([0; 16]),
        target: Target::new(target),
        len: 4096,
    }]);
    bench.run(&mut script, &mut Tokens::default(), &mut list);
    drop(list);
    assert_ne!(log.borrow().commands[0].0.addr, address);
    assert!(memory[skip + 10..].iter().all(|byte| *byte == 0xaa));
    assert_eq!(bench.counters.snapshot().bytes_copied, 10);
}
