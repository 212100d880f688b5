//! What large batches, many keys and long listings take of memory. In a binary of its own, and one
//! test after the other, because its allocator counts for all threads.

#[allow(dead_code, unreachable_pub)] // used in part by others
#[path = "support/counting.rs"]
mod counting;
#[allow(dead_code, unreachable_pub)] // used in part by others
#[path = "support/nothing.rs"]
mod nothing;

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use counting::Counting;
use mooncake_nvme_kv::backend::{Backend, ObjectToStore, Parts};
use mooncake_nvme_kv::config::Config;
use mooncake_nvme_kv::device::{
    Buffer, BufferPool, Capabilities, CommandError, Completion, Connector, Executor, Operation,
    Reply, Request, Statistics, Stream,
};
use nothing::Nothing;
use nvme_kv_command_set::{IdentifyKvNamespace, Key};

#[global_allocator]
static ALLOCATOR: Counting = Counting::new();

const MIB: usize = 1 << 20;

/// One test at a time.
fn alone() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// Takes as many commands as its queue holds before it completes the first, and copies what it
/// stores, as a transport does for data that is not aligned.
#[derive(Debug)]
struct Copying {
    inner: Arc<Nothing>,
    copied: AtomicUsize,
    most: AtomicUsize,
}

impl Copying {
    fn new() -> Arc<Copying> {
        let inner = Nothing::new();
        Arc::new(Copying { inner, copied: AtomicUsize::new(0), most: AtomicUsize::new(0) })
    }

    fn copy(&self, request: &Request<'_>) -> Option<Buffer> {
        let Operation::Store { value, .. } = &request.operation else { return None };
        let len = value.len() as usize;
        let mut buffer = self.buffers().get(len);
        let mut at = 0;
        for segment in value.segments() {
            buffer[at..at + segment.len()].copy_from_slice(segment);
            at += segment.len();
        }
        let copied = self.copied.fetch_add(len, Ordering::Relaxed) + len;
        self.most.fetch_max(copied, Ordering::Relaxed);
        Some(buffer)
    }
}

impl Executor for Copying {
    fn capabilities(&self) -> &Capabilities {
        self.inner.capabilities()
    }

    fn buffers(&self) -> &BufferPool {
        self.inner.buffers()
    }

    fn execute<'a>(&self, stream: &mut dyn Stream<'a>) {
        let mut flying = VecDeque::new();
        loop {
            while flying.len() < self.capabilities().queue_depth as usize {
                let Some(request) = stream.next() else { break };
                flying.push_back((request.tag, self.copy(&request), request));
            }
            let Some((tag, copy, request)) = flying.pop_front() else { return };
            if let (Some(_), Operation::Store { value, .. }) = (&copy, &request.operation) {
                self.copied.fetch_sub(value.len() as usize, Ordering::Relaxed);
            }
            drop(copy);
            stream.complete(Completion {
                tag,
                result: Ok(Reply { value_len: None }),
                buffer: None,
            });
        }
    }

    fn list(&self, start: Option<&Key>, page: &mut [u8]) -> Result<(), CommandError> {
        self.inner.list(start, page)
    }

    fn identify(&self) -> Result<IdentifyKvNamespace, CommandError> {
        self.inner.identify()
    }

    fn statistics(&self) -> Statistics {
        Statistics::default()
    }
}

/// Offloads `count` objects of `len` bytes in one call. Returns the most bytes that were copied at
/// once, and the most that was allocated besides the batch itself.
fn offload(staging: usize, count: usize, len: usize) -> (usize, usize) {
    let config = Config { staging_bytes: staging as u64, ..Config::default() };
    let device = Copying::new();
    let connector = Connector::from_executor(device.clone());
    let backend = Backend::with_parts(&config, &connector, Parts::default());
    let bytes: Vec<u8> = (0..len).map(|n| n as u8).collect();
    let slices: [&[u8]; 1] = [&bytes];
    let keys: Vec<String> = (0..count).map(|n| format!("tenant\0object {n}")).collect();
    let objects: Vec<ObjectToStore<'_>> =
        keys.iter().map(|key| ObjectToStore { key: key.as_bytes(), slices: &slices }).collect();
    let before = ALLOCATOR.live();
    ALLOCATOR.restart();
    let mut stored = 0;
    let report = backend
        .offload(&objects, &mut |positions| {
            stored += positions.len();
            Ok(())
        })
        .unwrap();
    let most = ALLOCATOR.peak() - before;
    assert!(report.results.iter().all(Result::is_ok) && stored == count);
    (device.most.load(Ordering::Relaxed), most)
}

fn large_batch(count: usize) {
    let (staging, len) = (8 * MIB, 256 << 10);
    let (copied, allocated) = offload(staging, count, len);
    println!("{count} objects: {copied} bytes copied at once, {allocated} bytes allocated");
    assert!(copied <= staging, "{copied} bytes are in flight");
    assert!(copied > staging / 4, "{copied} bytes: the limit is not what bounds it");
    // Results, index and keys: some hundred bytes an object.
    assert!(allocated < 2 * staging + 1000 * count, "{allocated} bytes");
}

#[test]
fn the_memory_of_a_batch_is_bounded_by_the_staging_limit() {
    let _alone = alone();
    large_batch(300);
}

#[test]
#[ignore = "hashes 12 GiB"]
fn the_memory_of_fifty_thousand_objects_of_256_kib_is_bounded_by_the_staging_limit() {
    let _alone = alone();
    large_batch(50_000);
}

#[test]
fn an_object_larger_than_the_staging_limit_is_stored_one_chunk_at_a_time() {
    let _alone = alone();
    let (copied, _) = offload(1, 2, MIB);
    assert_eq!(copied, 256 << 10, "one chunk");
}

#[test]
fn the_index_takes_less_than_eighty_bytes_a_key() {
    let _alone = alone();
    let connector = Connector::from_executor(Nothing::new());
    let backend = Backend::with_parts(&Config::default(), &connector, Parts::default());
    let before = ALLOCATOR.live();
    let count = 100_000;
    for first in (0..count).step_by(10_000) {
        let keys: Vec<String> = (first..first + 10_000).map(|n| format!("object {n}")).collect();
        let objects: Vec<ObjectToStore<'_>> =
            keys.iter().map(|key| ObjectToStore { key: key.as_bytes(), slices: &[] }).collect();
        backend.offload(&objects, &mut |_| Ok(())).unwrap();
    }
    assert_eq!(backend.usage().objects, count as u64);
    let bytes = (ALLOCATOR.live() - before) / count;
    println!("{bytes} bytes a key");
    assert!((40..80).contains(&bytes), "{bytes} bytes");
    backend.remove_all().unwrap();
}
