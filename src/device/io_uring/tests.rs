//! On a real io_uring: /dev/null takes passthrough commands and does nothing with them. Skipped
//! where the kernel has no io_uring.

use std::fs::File;

use nvme_kv_command_set::PassthroughCommand;

use super::*;
use crate::device::executor::{Completion, Request};
use crate::device::{CommandError, Operation};

/// A ring on /dev/null, or `None` where there is no io_uring.
fn ring(entries: u32) -> Option<Ring> {
    available(Ring::new(entries, null().as_fd()))
}

fn small_ring() -> io::Result<Ring> {
    let mut ring = Ring::with_small_completions(8)?;
    ring.register_node(null().as_fd())?;
    Ok(ring)
}

fn null() -> File {
    File::options().read(true).write(true).open("/dev/null").expect("it exists")
}

fn available(ring: io::Result<Ring>) -> Option<Ring> {
    match ring {
        Ok(ring) => Some(ring),
        Err(error) => {
            eprintln!("SKIPPED: no io_uring here: {error}");
            None
        }
    }
}

struct Exists {
    left: u64,
    results: Vec<(u64, std::result::Result<(), CommandError>)>,
}

impl Stream<'_> for Exists {
    fn next(&mut self) -> Option<Request<'static>> {
        self.left = self.left.checked_sub(1)?;
        Some(Request { tag: self.left, operation: Operation::Exist { key: PhysicalKey([0; 16]) } })
    }

    fn complete(&mut self, completion: Completion) {
        self.results.push((completion.tag, completion.result.map(|_| ())));
    }
}

fn run(ring: &mut Ring, tokens: &mut Tokens, counters: &Counters, count: u64) -> Exists {
    let (regions, buffers) = (RegionTable::default(), BufferPool::new(0));
    let depth = ring.entries() as usize;
    let mut queue = Submission::new(ring, depth, &regions, counters);
    let judge = |error, _| Verdict::Fail(error);
    let wire = Wire::default();
    let rules =
        Rules { wire: &wire, max_transfer: 1 << 20, buffers: &buffers, counters, judge: &judge };
    let mut exists = Exists { left: count, results: Vec::new() };
    flight::run(&rules, &mut queue, tokens, &mut exists);
    exists
}

#[test]
fn two_thousand_commands_through_eight_entries_complete_once_each() {
    let Some(mut ring) = ring(8) else { return };
    let counters = Counters::default();
    let exists = run(&mut ring, &mut Tokens::default(), &counters, 2000);
    let mut tags: Vec<u64> = exists.results.iter().map(|(tag, _)| *tag).collect();
    tags.sort_unstable();
    assert_eq!(tags, (0..2000).collect::<Vec<_>>());
    assert!(exists.results.iter().all(|(_, result)| result.is_ok()));
    assert_eq!(counters.snapshot().commands, 2000);
    assert_eq!(counters.snapshot().rejected, 0);
}

#[test]
fn a_completion_left_in_a_ring_by_a_former_batch_is_rejected() {
    let Some(mut ring) = ring(8) else { return };
    let (mut tokens, counters) = (Tokens::default(), Counters::default());
    run(&mut ring, &mut tokens, &counters, 3);
    // The token of the first command of the former batch comes once more.
    // SAFETY: the command names no memory.
    unsafe {
        submission::RawRing::push(
            &mut ring,
            1 << 16,
            &PassthroughCommand::default(),
            Addressing::Contiguous,
        );
    }
    submission::RawRing::enter(&mut ring, 1, 1).expect("the kernel takes it");
    let exists = run(&mut ring, &mut tokens, &counters, 3);
    assert_eq!(exists.results.len(), 3);
    assert_eq!(counters.snapshot().rejected, 1);
}

#[test]
fn a_ring_moves_between_threads() {
    let Some(mut ring) = ring(8) else { return };
    let counters = Counters::default();
    for _ in 0..3 {
        let run = || run(&mut ring, &mut Tokens::default(), &counters, 20).results.len();
        let count = std::thread::scope(|scope| scope.spawn(run).join());
        assert_eq!(count.expect("it does not panic"), 20);
    }
}

#[test]
fn memory_is_registered_once_per_ring_and_released_with_it() {
    let Some(mut ring) = ring(8) else { return };
    let pool = BufferPool::with_arena(0, 1 << 20);
    let arena = pool.arena().expect("there is a mebibyte");
    let regions = RegionTable::cut(&[arena], 256 * 1024);
    // SAFETY: the pool outlives the ring.
    match unsafe { ring.register_regions(regions.regions()) } {
        Ok(()) => {
            // SAFETY: as above.
            let twice = unsafe { ring.register_regions(regions.regions()) };
            assert_eq!(twice.expect_err("it has regions").raw_os_error(), Some(libc::EBUSY));
        }
        Err(error) => eprintln!("SKIPPED: memory cannot be registered here: {error}"),
    }
    drop(ring);
}

#[test]
fn a_ring_with_small_completions_completes_commands_without_their_result() {
    let Some(mut ring) = available(small_ring()) else { return };
    let counters = Counters::default();
    let exists = run(&mut ring, &mut Tokens::default(), &counters, 20);
    assert_eq!(exists.results.len(), 20);
    assert_eq!(counters.snapshot().rejected, 0);
}

#[test]
fn rings_share_the_regions_of_one_and_lose_them_with_the_offer() {
    let Some(mut first) = ring(8) else { return };
    let Some(mut second) = ring(8) else { return };
    let pool = BufferPool::with_arena(0, 1 << 20);
    let arena = pool.arena().expect("there is a mebibyte");
    let mut offered = Offered::new(vec![arena]);
    // SAFETY: the pool outlives the rings.
    let one = unsafe { offered.register(&mut first, 256 * 1024) };
    // SAFETY: as above.
    let other = unsafe { offered.register(&mut second, 256 * 1024) };
    let (Ok(one), Ok(other)) = (one, other) else {
        return eprintln!("SKIPPED: memory cannot be registered here");
    };
    assert_eq!(one, other);
    assert_eq!(one.find(arena.0, 4096), Some(0));
    for ring in [&mut first, &mut second] {
        let regions = one.regions();
        // SAFETY: as above.
        let twice = unsafe { ring.register_regions(regions) }.expect_err("it has regions");
        assert_eq!(twice.raw_os_error(), Some(libc::EBUSY));
    }
    offered.withdraw(arena.0);
    let Some(mut third) = ring(8) else { return };
    // SAFETY: as above.
    let none = unsafe { offered.register(&mut third, 256 * 1024) };
    assert_eq!(none.expect("there is nothing to register"), RegionTable::default());
}
