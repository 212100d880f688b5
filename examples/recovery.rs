//! What a restart costs: stores objects in an emulated namespace in a directory, opens it again
//! and scans it.
//!
//! `cargo run --release --example recovery [-- OBJECTS [BYTES [DIRECTORY]]]`; 100,000 objects of
//! 1,000 bytes in a temporary directory by default. Memory is what the whole process allocates,
//! the emulated device included.

#[allow(dead_code, unreachable_pub)] // used in part by others
#[path = "../tests/support/counting.rs"]
mod counting;

use std::sync::Arc;
use std::time::Instant;

use counting::Counting;
use mooncake_nvme_kv::Result;
use mooncake_nvme_kv::backend::{Backend, ObjectToStore, Parts};
use mooncake_nvme_kv::config::{Config, Transport};
use mooncake_nvme_kv::device::{Connector, fault::FaultExecutor};

#[global_allocator]
static ALLOCATOR: Counting = Counting::new();

/// Objects that are offloaded in one call.
const BATCH: usize = 10_000;

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |place: usize, default: usize| {
        arguments.get(place).and_then(|text| text.parse().ok()).unwrap_or(default)
    };
    let (count, bytes) = (number(0, 100_000), number(1, 1000));
    let temporary = std::env::temp_dir().join(format!("mnkv-recovery-{}", std::process::id()));
    let directory = arguments.get(2).map_or(temporary.clone(), Into::into);

    let mut config = Config::default();
    config.connector.transport = Transport::Emulated;
    config.connector.device_path = directory.display().to_string();
    let stored = store(&config, count, bytes);
    let recovered = stored.and_then(|()| recover(&config));
    // Only the directory that was made here goes; a leftover is no failure.
    let _ = std::fs::remove_dir_all(&temporary);
    recovered
}

fn store(config: &Config, count: usize, bytes: usize) -> Result<()> {
    let backend = Backend::open(config)?;
    let payload = vec![7; bytes];
    let slices: [&[u8]; 1] = [&payload];
    let start = Instant::now();
    for first in (0..count).step_by(BATCH) {
        let keys: Vec<String> =
            (first..count.min(first + BATCH)).map(|n| format!("tenant\0object {n:08}")).collect();
        let objects: Vec<ObjectToStore<'_>> =
            keys.iter().map(|key| ObjectToStore { key: key.as_bytes(), slices: &slices }).collect();
        let report = backend.offload(&objects, &mut |_| Ok(()))?;
        for result in report.results {
            result?;
        }
    }
    let seconds = start.elapsed().as_secs_f64();
    println!("stored {count} objects of {bytes} bytes: {:.0} objects/s", count as f64 / seconds);
    backend.close();
    Ok(())
}

fn recover(config: &Config) -> Result<()> {
    let start = Instant::now();
    let connector = Connector::open(&config.connector)?;
    let counted = FaultExecutor::new(Arc::clone(connector.executor()));
    let connector = Connector::from_executor(counted.clone());
    let backend = Backend::with_parts(config, &connector, Parts::default());
    println!("opened again in {:.3} s", start.elapsed().as_secs_f64());
    let before = ALLOCATOR.live();
    ALLOCATOR.restart();
    let (start, mut pages) = (Instant::now(), 0);
    let report = backend.scan(&mut |_| {
        pages += 1;
        Ok(())
    })?;
    let seconds = start.elapsed().as_secs_f64();
    let objects = report.objects as f64;
    let counts = counted.counts();
    println!("{report:?}");
    println!(
        "scanned {} objects in {pages} pages and {seconds:.3} s: {:.0} objects/s, {:.3} commands \
         per object besides List",
        report.objects,
        objects / seconds,
        counts.total() as f64 / objects,
    );
    println!(
        "memory: {:.1} bytes per object kept, {:.1} MiB more at the peak of the scan",
        ALLOCATOR.live().saturating_sub(before) as f64 / objects,
        ALLOCATOR.peak().saturating_sub(before) as f64 / f64::from(1 << 20),
    );
    println!("{:?}", backend.usage());
    Ok(())
}
