use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::channel;

use super::*;

/// Answers DW0 = CDW10 once so many commands are being executed at once.
struct Together {
    barrier: Barrier,
    executed: AtomicUsize,
}

impl Device for Together {
    unsafe fn execute(&self, command: &PassthroughCommand) -> (i32, u32) {
        self.barrier.wait();
        self.executed.fetch_add(1, Ordering::Relaxed);
        (0, command.cdw10)
    }
}

fn together(count: usize) -> Arc<Together> {
    Arc::new(Together { barrier: Barrier::new(count), executed: AtomicUsize::new(0) })
}

fn jobs(device: &Arc<Together>, count: u64, ended: &Sender<RawCompletion>) -> Vec<Job> {
    (0..count)
        .map(|token| {
            let command = PassthroughCommand { cdw10: token as u32, ..Default::default() };
            let device = Arc::clone(device) as Arc<dyn Device>;
            // SAFETY: the command names no memory.
            unsafe { Job::new(device, token, command, ended.clone()) }
        })
        .collect()
}

#[test]
fn as_many_commands_are_executed_at_once_as_there_may_be_threads() {
    let (sender, receiver) = channel();
    let device = together(4);
    let workers = Workers::new(4);
    workers.run(jobs(&device, 8, &sender));
    let mut ended: Vec<_> = receiver.iter().take(8).collect();
    ended.sort_by_key(|end| end.token);
    assert!(ended.iter().all(|end| end.result == 0 && u64::from(end.dw0) == end.token));
}

#[test]
fn dropping_the_workers_executes_what_was_handed_over_and_ends_the_threads() {
    let (sender, receiver) = channel();
    let device = together(1);
    let workers = Workers::new(3);
    workers.run(jobs(&device, 50, &sender));
    drop(workers);
    assert_eq!(device.executed.load(Ordering::Relaxed), 50);
    assert_eq!(Arc::strong_count(&device), 1, "no thread holds the device");
    drop(sender);
    assert_eq!(receiver.iter().count(), 50);
}
