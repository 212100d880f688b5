//! What the in-memory index costs: bytes a key, and how fast it answers, through the public
//! interface over a device that keeps nothing.
//!
//! `cargo bench --bench index`, or with other numbers of keys: `cargo bench --bench index -- 50000`.

#[allow(dead_code, unreachable_pub)] // used in part by others
#[path = "../tests/support/counting.rs"]
mod counting;
#[allow(dead_code, unreachable_pub)] // used in part by others
#[path = "../tests/support/nothing.rs"]
mod nothing;

use std::hint::black_box;
use std::time::Instant;

use counting::Counting;
use mooncake_nvme_kv::backend::{Backend, ObjectToStore, Parts};
use mooncake_nvme_kv::config::Config;
use mooncake_nvme_kv::device::Connector;
use nothing::Nothing;

#[global_allocator]
static ALLOCATOR: Counting = Counting::new();

/// Objects that are offloaded in one call.
const BATCH: u64 = 10_000;
/// Lookups that are timed.
const LOOKUPS: u64 = 2_000_000;

fn key(n: u64) -> [u8; 24] {
    let mut key = *b"tenant\0object 0000000000";
    let digits = format!("{n:010}");
    key[14..].copy_from_slice(digits.as_bytes());
    key
}

/// Lookups per second of keys from `first` on, in an order that no cache likes.
fn lookups_per_second(backend: &Backend, first: u64, count: u64, stored: bool) -> f64 {
    let start = Instant::now();
    let mut n = 0;
    for _ in 0..LOOKUPS {
        n = (n + 7_919_999_983) % count;
        let found = backend.exists(black_box(&key(first + n))).expect("an index that knows");
        assert_eq!(found, stored);
    }
    LOOKUPS as f64 / start.elapsed().as_secs_f64()
}

fn measure(count: u64) {
    let config = Config::default();
    let connector = Connector::from_executor(Nothing::new());
    let backend = Backend::with_parts(&config, &connector, Parts::default());
    let before = ALLOCATOR.live();
    ALLOCATOR.restart();
    let start = Instant::now();
    for first in (0..count).step_by(BATCH as usize) {
        let keys: Vec<[u8; 24]> = (first..count.min(first + BATCH)).map(key).collect();
        let objects: Vec<ObjectToStore<'_>> =
            keys.iter().map(|key| ObjectToStore { key, slices: &[] }).collect();
        let report = backend.offload(&objects, &mut |_| Ok(())).expect("an open backend");
        assert!(report.results.iter().all(Result::is_ok));
    }
    let offloads = count as f64 / start.elapsed().as_secs_f64();
    let bytes = (ALLOCATOR.live() - before) as f64 / count as f64;
    let peak = (ALLOCATOR.peak() - before) as f64 / count as f64;
    assert_eq!(backend.usage().objects, count);
    let hits = lookups_per_second(&backend, 0, count, true);
    let misses = lookups_per_second(&backend, count, count, false);
    println!("{count:>10} {bytes:>10.1} {peak:>10.1} {hits:>12.0} {misses:>12.0} {offloads:>12.0}");
}

fn main() {
    println!(
        "{:>10} {:>10} {:>10} {:>12} {:>12} {:>12}",
        "keys", "bytes/key", "peak", "hits/s", "misses/s", "offloads/s"
    );
    let counts: Vec<u64> = std::env::args().filter_map(|argument| argument.parse().ok()).collect();
    let counts = if counts.is_empty() { vec![1_000_000, 10_000_000] } else { counts };
    counts.into_iter().for_each(measure);
}
