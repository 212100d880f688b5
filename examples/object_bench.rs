//! Measures offloads and loads of objects of several sizes on the configured device, through one
//! transport after the other, and prints a table.
//!
//! ```text
//! MOONCAKE_NVME_KV_DEVICE_PATH=/dev/ng0n1 object_bench io_uring ioctl
//! ```
//!
//! The arguments are values of `MOONCAKE_NVME_KV_TRANSPORT`; the other variables apply as well.
//! Offloads follow a scan, as in a storage node, which asks for one at its start. "warm" loads are
//! those of the backend that offloaded; "cold" ones begin in a fresh backend that knows nothing.
//! "missing" asks a fresh backend for keys that are not there, "scanned" does so after a scan.
//! Commands, calls into the kernel and copied bytes are the executor's own counts. Every loaded
//! byte is compared, outside of the measured time.

use std::error::Error;
use std::time::{Duration, Instant};

use mooncake_nvme_kv::backend::{Backend, ObjectToLoad, ObjectToStore, Parts};
use mooncake_nvme_kv::config::{Config, Environment, ProcessEnvironment};
use mooncake_nvme_kv::device::{Connector, Destination, Statistics};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;
const SIZES: [(&str, usize); 6] = [
    ("4 KiB", 4 * KIB),
    ("64 KiB", 64 * KIB),
    ("256 KiB", 256 * KIB),
    ("1 MiB", MIB),
    ("1 MiB+1000", MIB + 1000),
    ("8 MiB", 8 * MIB),
];
/// Objects of one size: this many bytes of them, within these bounds.
const BYTES: usize = 64 * MIB;
const OBJECTS: std::ops::RangeInclusive<usize> = 8..=2048;
/// Objects of one call, as a storage node hands them over.
const OBJECTS_A_CALL: usize = 64;
/// Loads of every object, each cold one by another backend.
const ROUNDS: usize = 3;
/// Keys that are asked for and not there.
const MISSES: usize = 1000;
/// Destinations start at a multiple of this, as Mooncake's buffers do.
const PAGE: usize = 4096;

/// The process's environment with another transport.
struct WithTransport<'a>(&'a str);

impl Environment for WithTransport<'_> {
    fn var(&self, name: &str) -> Option<String> {
        if name == "MOONCAKE_NVME_KV_TRANSPORT" {
            return Some(self.0.to_owned());
        }
        ProcessEnvironment.var(name)
    }
}

/// An open backend and the counts of its executor.
struct Device {
    connector: Connector,
    backend: Backend,
}

impl Device {
    fn open(config: &Config) -> Result<Device> {
        let connector = Connector::open(&config.connector)?;
        let backend = Backend::with_parts(config, &connector, Parts::default());
        Ok(Device { connector, backend })
    }

    fn statistics(&self) -> Statistics {
        self.connector.executor().statistics()
    }

    /// Adds what `body` takes to `row`.
    fn measure<T>(&self, row: &mut Row, body: impl FnOnce() -> T) -> T {
        let (before, start) = (self.statistics(), Instant::now());
        let result = body();
        row.time += start.elapsed();
        let after = self.statistics();
        row.commands += after.commands - before.commands;
        row.enters += after.enters - before.enters;
        row.copied += after.bytes_copied - before.bytes_copied;
        result
    }
}

/// One line of the table.
#[derive(Default)]
struct Row {
    objects: usize,
    bytes: usize,
    time: Duration,
    commands: u64,
    enters: u64,
    copied: u64,
}

impl Row {
    fn print(&self, transport: &str, size: &str, what: &str) {
        let (objects, seconds) = (self.objects as f64, self.time.as_secs_f64());
        println!(
            "{transport:<9} {size:<11} {what:<8} {:>8} {:>10.0} {:>9.1} {:>9.3} {:>9.2} {:>9.2} {:>12.0}",
            self.objects,
            objects / seconds,
            self.bytes as f64 / seconds / 1e6,
            seconds * 1e3 / objects,
            self.commands as f64 / objects,
            self.enters as f64 / objects,
            self.copied as f64 / objects,
        );
    }
}

/// Memory for objects of one size, each at a multiple of [`PAGE`].
struct Memory {
    bytes: Vec<u8>,
    start: usize,
    size: usize,
}

impl Memory {
    fn new(size: usize, count: usize) -> Memory {
        let bytes = vec![0; count * size.next_multiple_of(PAGE) + PAGE];
        let start = bytes.as_ptr().align_offset(PAGE);
        Memory { bytes, start, size }
    }

    fn objects(&mut self) -> Vec<&mut [u8]> {
        let size = self.size;
        let chunks = self.bytes[self.start..].chunks_exact_mut(size.next_multiple_of(PAGE));
        chunks.map(|chunk| &mut chunk[..size]).collect()
    }
}

/// Fills memory with numbers that differ between objects.
fn fill(objects: &mut [&mut [u8]], seed: u64) {
    let mut state = seed | 1;
    for word in objects.iter_mut().flat_map(|object| object.chunks_mut(8)) {
        // xorshift64
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        word.copy_from_slice(&state.to_le_bytes()[..word.len()]);
    }
}

fn offload(device: &Device, keys: &[Vec<u8>], sources: &[&mut [u8]]) -> Result<Row> {
    let mut row = Row::default();
    for (keys, sources) in keys.chunks(OBJECTS_A_CALL).zip(sources.chunks(OBJECTS_A_CALL)) {
        let slices: Vec<[&[u8]; 1]> = sources.iter().map(|source| [&source[..]]).collect();
        let objects: Vec<_> =
            keys.iter().zip(&slices).map(|(key, slices)| ObjectToStore { key, slices }).collect();
        let report =
            device.measure(&mut row, || device.backend.offload(&objects, &mut |_| Ok(())))?;
        for stored in report.results {
            if stored?.already {
                return Err("an object is on the device already: give a new device".into());
            }
        }
        row.objects += keys.len();
        row.bytes += sources.iter().map(|source| source.len()).sum::<usize>();
    }
    Ok(row)
}

fn load(
    device: &Device,
    row: &mut Row,
    keys: &[Vec<u8>],
    sources: &[&mut [u8]],
    destination: &mut Memory,
) -> Result<()> {
    let mut destinations = destination.objects();
    destinations.iter_mut().for_each(|destination| destination.fill(0));
    let calls = keys.chunks(OBJECTS_A_CALL).zip(destinations.chunks_mut(OBJECTS_A_CALL));
    for (keys, destinations) in calls {
        let objects = keys.iter().zip(destinations).map(|(key, destination)| ObjectToLoad {
            key,
            destination: Destination::new(destination),
        });
        let objects = objects.collect();
        for loaded in device.measure(row, || device.backend.load(objects))? {
            loaded?;
        }
        row.objects += keys.len();
    }
    row.bytes += destinations.iter().map(|destination| destination.len()).sum::<usize>();
    if destinations.iter().zip(sources).any(|(loaded, source)| loaded[..] != source[..]) {
        return Err("an object came back with other bytes".into());
    }
    Ok(())
}

fn bench(transport: &str) -> Result<()> {
    let config = Config::from_environment(&WithTransport(transport))?;
    for (number, (name, size)) in SIZES.into_iter().enumerate() {
        let count = (BYTES / size).clamp(*OBJECTS.start(), *OBJECTS.end());
        let keys: Vec<Vec<u8>> =
            (0..count).map(|object| format!("{transport}/{name}/{object}").into_bytes()).collect();
        let mut source = Memory::new(size, count);
        let mut destination = Memory::new(size, count);
        let mut sources = source.objects();
        fill(&mut sources, number as u64 * 2 + u64::from(transport == "ioctl"));

        let device = Device::open(&config)?;
        device.backend.scan(&mut |_| Ok(()))?;
        offload(&device, &keys, &sources)?.print(transport, name, "offload");
        let mut warm = Row::default();
        for _ in 0..ROUNDS {
            load(&device, &mut warm, &keys, &sources, &mut destination)?;
        }
        warm.print(transport, name, "warm");
        let mut cold = Row::default();
        for _ in 0..ROUNDS {
            load(&Device::open(&config)?, &mut cold, &keys, &sources, &mut destination)?;
        }
        cold.print(transport, name, "cold");
    }
    let device = Device::open(&config)?;
    miss(&device, transport)?.print(transport, "-", "missing");
    device.backend.scan(&mut |_| Ok(()))?;
    miss(&device, transport)?.print(transport, "-", "scanned");
    Ok(())
}

fn miss(device: &Device, transport: &str) -> Result<Row> {
    let mut row = Row { objects: MISSES, ..Row::default() };
    for number in 0..MISSES {
        let key = format!("{transport}/missing/{number}");
        if device.measure(&mut row, || device.backend.exists(key.as_bytes()))? {
            return Err(format!("{key} is on the device: give a new device").into());
        }
    }
    Ok(row)
}

fn main() -> Result<()> {
    let transports: Vec<String> = std::env::args().skip(1).collect();
    if transports.is_empty() {
        return Err("usage: object_bench TRANSPORT...    (io_uring, ioctl, emulated)".into());
    }
    println!("{OBJECTS_A_CALL} objects a call; commands, enters and copied bytes are per object");
    println!(
        "{:<9} {:<11} {:<8} {:>8} {:>10} {:>9} {:>9} {:>9} {:>9} {:>12}",
        "transport",
        "size",
        "",
        "objects",
        "objects/s",
        "MB/s",
        "ms/object",
        "commands",
        "enters",
        "bytes copied"
    );
    for transport in &transports {
        bench(transport)?;
    }
    Ok(())
}
