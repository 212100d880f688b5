//! What every test of the emulator uses: a device on each store, commands in
//! one line, and seeded randomness.

#![allow(dead_code, unreachable_pub, reason = "no test file uses all of it")]

use std::{
    env,
    ops::Deref,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{SystemTime, UNIX_EPOCH},
};

use nvme_kv_command_set::{Command, Key, PassthroughCommand, Status, StoreOptions, parse_list};
use nvme_kv_emulator::{Data, NSID, Namespace, Outcome, forget, open_with};
use tempfile::TempDir;

/// A namespace that goes away with this value.
pub struct Device {
    pub namespace: Arc<Namespace>,
    memory: Option<String>,
    _directory: Option<TempDir>,
}

impl Device {
    pub fn in_memory(personality: &str) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let name = format!("mem:test-{}", NEXT.fetch_add(1, Ordering::Relaxed));
        let namespace = open_with(&name, personality.parse().unwrap()).unwrap();
        Self { namespace, memory: Some(name), _directory: None }
    }

    pub fn in_directory(personality: &str) -> Self {
        let directory = TempDir::new().unwrap();
        let path = directory.path().to_str().unwrap();
        let namespace = open_with(path, personality.parse().unwrap()).unwrap();
        Self { namespace, memory: None, _directory: Some(directory) }
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        if let Some(name) = &self.memory {
            forget(name);
        }
    }
}

impl Deref for Device {
    type Target = Namespace;

    fn deref(&self) -> &Namespace {
        &self.namespace
    }
}

/// Runs a test on a memory store and on a file store.
pub fn on_both_stores(personality: &str, mut test: impl FnMut(&Namespace)) {
    test(&Device::in_memory(personality));
    test(&Device::in_directory(personality));
}

pub fn key(text: &str) -> Key {
    Key::new(text.as_bytes()).unwrap()
}

/// The bytes of a command with a data buffer of `data_len` bytes.
pub fn bytes(command: Command, data_len: usize) -> [u8; 72] {
    let data_len = data_len as u32;
    PassthroughCommand { data_len, ..PassthroughCommand::new(&command, NSID, 0) }.to_bytes()
}

pub fn submit_store(device: &Namespace, key: Key, value: &[u8], options: StoreOptions) -> Outcome {
    let command = Command::Store { key, value_len: value.len() as u32, options };
    device.execute(&bytes(command, value.len()), Data::ToDevice(&[value]))
}

pub fn submit_retrieve(device: &Namespace, key: Key, buffer: &mut [u8]) -> Outcome {
    let command = Command::Retrieve { key, buffer_len: buffer.len() as u32, raw: false };
    device.execute(&bytes(command, buffer.len()), Data::FromDevice(buffer))
}

pub fn submit_list(device: &Namespace, start: Option<Key>, buffer: &mut [u8]) -> Outcome {
    let command = Command::List { start, buffer_len: buffer.len() as u32 };
    device.execute(&bytes(command, buffer.len()), Data::FromDevice(buffer))
}

pub fn submit_delete(device: &Namespace, key: Key) -> Outcome {
    device.execute(&bytes(Command::Delete { key }, 0), Data::None)
}

pub fn submit_exist(device: &Namespace, key: Key) -> Outcome {
    device.execute(&bytes(Command::Exist { key }, 0), Data::None)
}

/// Status and dword 0 of a completion.
pub fn completion(outcome: Outcome) -> (Status, u32) {
    match outcome {
        Outcome::Completed { status, dw0, .. } => (status, dw0),
        other => panic!("no completion but {other:?}"),
    }
}

pub fn status(outcome: Outcome) -> Status {
    completion(outcome).0
}

pub fn store(device: &Namespace, key: Key, value: &[u8]) -> Status {
    status(submit_store(device, key, value, StoreOptions::NONE))
}

pub fn store_if_absent(device: &Namespace, key: Key, value: &[u8]) -> Status {
    status(submit_store(device, key, value, StoreOptions::IF_ABSENT))
}

/// Retrieves into a buffer of `len` bytes that held EEh: the buffer and dword 0.
pub fn retrieve(device: &Namespace, key: Key, len: usize) -> Result<(Vec<u8>, u32), Status> {
    let mut buffer = vec![0xee; len];
    match completion(submit_retrieve(device, key, &mut buffer)) {
        (status, dw0) if status.is_success() => Ok((buffer, dw0)),
        (status, _) => Err(status),
    }
}

/// One List page in a buffer of `len` bytes.
pub fn list(device: &Namespace, start: Option<Key>, len: usize) -> Result<Vec<Key>, Status> {
    let mut buffer = vec![0; len];
    match status(submit_list(device, start, &mut buffer)) {
        status if status.is_success() => Ok(parse_list(&buffer).unwrap()),
        status => Err(status),
    }
}

/// A small generator (SplitMix64) whose whole sequence is its seed.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Seeded by MNKV_SEED or else by the clock; the seed is printed.
    pub fn for_test(test: &str) -> Self {
        let seed = match env::var("MNKV_SEED") {
            Ok(text) => text.parse().expect("MNKV_SEED is a number"),
            Err(_) => SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as u64,
        };
        println!("{test}: MNKV_SEED={seed}");
        Self(seed)
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    pub fn bytes(&mut self, len: usize) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(len + 8);
        while bytes.len() < len {
            bytes.extend_from_slice(&self.next().to_le_bytes());
        }
        bytes.truncate(len);
        bytes
    }
}
