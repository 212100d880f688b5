//! What the backend's tests share: a backend over an emulated namespace whose commands are
//! counted and can be made to fail, payloads that can be checked, and the personalities.

#![allow(dead_code, unreachable_pub)] // each test binary uses its part

pub mod characters;
pub mod faults;
pub mod life;
pub mod places;
pub mod random;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use mooncake_nvme_kv::backend::{
    Backend, ObjectToLoad, ObjectToStore, Parts, ScanReport, ScannedObject, Stored,
};
use mooncake_nvme_kv::config::{Config, EvictionPolicy, Transport};
use mooncake_nvme_kv::device::{Connector, Destination, fault::FaultExecutor};
use mooncake_nvme_kv::layout::{Limits, WritePlan, root_prefix_len, write_plan};
use mooncake_nvme_kv::{Error, Result};
use nvme_kv_emulator::{Namespace, Personality};

/// A namespace and everything needed to open backends on it, one after the other.
pub struct Rig {
    pub namespace: Arc<Namespace>,
    pub config: Config,
    pub parts: Parts,
    name: String,
}

impl Rig {
    /// A fresh memory namespace of the kindest personality and the default settings.
    pub fn new() -> Rig {
        Rig::with(Personality::default(), |_| {})
    }

    /// A fresh memory namespace of `personality`, settings changed by `change`.
    pub fn with(personality: Personality, change: impl FnOnce(&mut Config)) -> Rig {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let name = format!("rig-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        Rig::at(&format!("mem:{name}"), personality, change)
    }

    /// A namespace at `path`.
    pub fn at(path: &str, personality: Personality, change: impl FnOnce(&mut Config)) -> Rig {
        let namespace = nvme_kv_emulator::open_with(path, personality).expect("namespace opens");
        let mut config = Config::default();
        config.connector.device_path = path.to_string();
        config.connector.transport = Transport::Emulated;
        // A full device is a failure like any other unless a test says otherwise.
        config.lifecycle.eviction = EvictionPolicy::None;
        change(&mut config);
        Rig { namespace, config, parts: Parts::default(), name: path.to_string() }
    }

    /// A backend that knows nothing yet, and the executor that counts its commands.
    pub fn open(&self) -> Device {
        let connector = Connector::open(&self.config.connector).expect("device opens");
        let faults = FaultExecutor::new(Arc::clone(connector.executor()));
        let connector = Connector::from_executor(faults.clone());
        let backend = Backend::with_parts(&self.config, &connector, self.parts.clone());
        faults.take_counts();
        Device { backend, faults }
    }

    /// Values on the device.
    pub fn value_count(&self) -> usize {
        self.namespace.keys().len()
    }

    /// The largest value that a backend writes, bytes.
    pub fn max_value_size(&self) -> u32 {
        let connector = &self.config.connector;
        let device = self.namespace.personality().max_value_size;
        let device = device - device % connector.transfer_alignment;
        connector.effective_max_value_size().min(device)
    }

    /// The largest payload that is stored inside the root of a key of `key_len` bytes.
    pub fn largest_inline(&self, key_len: usize) -> usize {
        self.max_value_size() as usize - root_prefix_len(key_len)
    }

    /// Values that an object becomes: its root and its chunks.
    pub fn values_of(&self, key: &[u8], len: usize) -> usize {
        let limits = Limits { max_value_size: self.max_value_size() };
        match write_plan(key.len(), len as u64, limits).expect("an object that fits") {
            WritePlan::Inline => 1,
            WritePlan::Chunked { chunk_count, .. } => 1 + chunk_count as usize,
        }
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        if let Some(name) = self.name.strip_prefix("mem:") {
            nvme_kv_emulator::forget(name);
        }
    }
}

/// An open backend whose commands are counted.
pub struct Device {
    pub backend: Backend,
    pub faults: Arc<FaultExecutor>,
}

impl Device {
    /// Offloads one object.
    pub fn put(&self, key: &[u8], payload: &[u8]) -> Result<Stored> {
        self.put_slices(key, &[payload])
    }

    /// Offloads one object whose payload is in several slices.
    pub fn put_slices(&self, key: &[u8], slices: &[&[u8]]) -> Result<Stored> {
        let mut told = Vec::new();
        let report = self.backend.offload(&[ObjectToStore { key, slices }], &mut |stored| {
            told.extend_from_slice(stored);
            Ok(())
        })?;
        assert!(report.callback_error.is_none());
        let [result] = <[_; 1]>::try_from(report.results).expect("one result");
        assert_eq!(
            told,
            if result.is_ok() { vec![0] } else { vec![] },
            "told exactly what is stored"
        );
        result
    }

    /// Loads one object into an aligned buffer of `len` bytes.
    pub fn get(&self, key: &[u8], len: usize) -> Result<Vec<u8>> {
        let mut memory = vec![0xEEu8; len + 4096];
        let start = memory.as_ptr().align_offset(4096);
        self.get_into(key, &mut memory[start..start + len])?;
        Ok(memory[start..start + len].to_vec())
    }

    /// Loads one object into `memory`.
    pub fn get_into(&self, key: &[u8], memory: &mut [u8]) -> Result<()> {
        self.get_to(key, Destination::new(memory))
    }

    /// Loads one object into `destination`.
    pub fn get_to(&self, key: &[u8], destination: Destination<'_>) -> Result<()> {
        let results = self.backend.load(vec![ObjectToLoad { key, destination }])?;
        let [result] = <[Result<()>; 1]>::try_from(results).expect("one result");
        result
    }

    /// Scans; the report, and what was reported in order of the keys.
    #[track_caller]
    pub fn scan(&self) -> (ScanReport, Vec<ScannedObject>) {
        let mut found = Vec::new();
        let report = self.backend.scan(&mut |page| {
            found.extend_from_slice(page);
            Ok(())
        });
        found.sort_by(|a, b| a.key.cmp(&b.key));
        (report.expect("a scan that ends"), found)
    }

    /// Loads one object and compares it.
    #[track_caller]
    pub fn expect(&self, key: &[u8], payload: &[u8]) {
        match self.get(key, payload.len()) {
            Ok(loaded) => assert!(loaded == payload, "wrong bytes ({} of them)", payload.len()),
            Err(error) => panic!("load of {} bytes: {error}", payload.len()),
        }
    }
}

/// `len` bytes that differ between seeds, and between one place and another.
pub fn payload(len: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ 0xD1B5_4A32_D192_ED03;
    let mut bytes = Vec::with_capacity(len + 8);
    while bytes.len() < len {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes.truncate(len);
    bytes
}

/// The seed of a randomised test: from `MNKV_SEED`, else from the clock; printed.
pub fn seed() -> u64 {
    let seed = std::env::var("MNKV_SEED").ok().and_then(|text| text.parse().ok());
    let seed = seed.unwrap_or_else(|| {
        std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .map_or(1, |time| time.as_nanos() as u64)
    });
    println!("seed {seed} (set MNKV_SEED={seed} to repeat)");
    seed
}

/// A clock that moves only when told.
pub fn manual_clock() -> (Arc<AtomicU64>, Arc<dyn Fn() -> Duration + Send + Sync>) {
    let millis = Arc::new(AtomicU64::new(0));
    let shown = Arc::clone(&millis);
    (millis, Arc::new(move || Duration::from_millis(shown.load(Ordering::Relaxed))))
}

/// The message of an error, for assertions.
pub fn text(error: &Error) -> String {
    error.to_string()
}
