//! One simulated run: a device, the backends that live on it one after the other, and the ledger
//! of what they promised.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use mooncake_nvme_kv::backend::{Backend, ObjectToLoad, Parts};
use mooncake_nvme_kv::config::{Config, EvictionPolicy, Transport};
use mooncake_nvme_kv::device::{Connector, Destination};
use mooncake_nvme_kv::layout::{ChecksumKind, ChunkIndex, ObjectKeys, Slot};
use mooncake_nvme_kv::{Error, ErrorCode, Result};
use nvme_kv_command_set::{Key, PhysicalKey, Wire, WireProfile};
use nvme_kv_emulator::{
    CompletionOrder, DeleteMissing, ListSupport, Namespace, Personality, RetrieveLength,
    ShortRetrieve,
};

use crate::device::{FaultPlan, SimulatedDevice};
use crate::model::{Object, Version};
use crate::random::Random;
use crate::survey::Survey;

/// What does not agree with the rules.
pub(crate) type Checked<T = ()> = std::result::Result<T, String>;

/// Slots and chunks whose values traces call by name.
const NAMED_SLOTS: u32 = 8;
const NAMED_CHUNKS: u32 = 8;

/// A simulated run.
pub(crate) struct World {
    pub(crate) random: Random,
    pub(crate) config: Config,
    pub(crate) wire: Wire,
    pub(crate) namespace: Arc<Namespace>,
    pub(crate) device: Arc<SimulatedDevice>,
    pub(crate) backend: Backend,
    pub(crate) ledger: RefCell<Ledger>,
    pub(crate) trace: Vec<String>,
    pub(crate) crashes: u64,
    pub(crate) operations: u64,
    /// The process has scanned the device to the end, and not reset that.
    pub(crate) scanned: bool,
    name: String,
}

/// All keys, their versions, and what may be read of them.
pub(crate) struct Ledger {
    pub(crate) keys: Vec<Vec<u8>>,
    pub(crate) objects: Vec<Object>,
    /// Payloads of each key.
    pub(crate) versions: Vec<Vec<Vec<u8>>>,
    /// Keys that the backend is evicting: how many faults there had been when it said so.
    pub(crate) evicting: BTreeMap<usize, u64>,
    /// Keys that the backend said it evicts during this step.
    pub(crate) told: Vec<usize>,
    /// Keys under one of whose root keys there is something else.
    pub(crate) junk: Vec<bool>,
    /// The first violation that a callback saw.
    violation: Option<String>,
}

impl Ledger {
    pub(crate) fn position(&self, key: &[u8]) -> Checked<usize> {
        self.keys
            .iter()
            .position(|known| known == key)
            .ok_or_else(|| format!("a key that nobody stored: {}", key.escape_ascii()))
    }

    pub(crate) fn version_of(&self, key: usize, bytes: &[u8]) -> Vec<Version> {
        let versions = self.versions[key].iter().enumerate();
        versions.filter(|(_, payload)| *payload == bytes).map(|(version, _)| version).collect()
    }

    /// Notes what a callback found.
    pub(crate) fn check(&mut self, checked: Checked) {
        if let Err(violation) = checked {
            self.violation.get_or_insert(violation);
        }
    }

    pub(crate) fn describe(&self, key: usize) -> String {
        let object = &self.objects[key];
        let mut states: Vec<String> = object
            .possible
            .iter()
            .map(|state| state.map_or("absent".into(), |version| format!("v{version}")))
            .collect();
        if object.damaged {
            states.push("damaged".into());
        }
        if object.unsettled {
            states.push("unsettled".into());
        }
        format!("k{key} may be {}", states.join(" or "))
    }
}

static NEXT_NAMESPACE: AtomicU64 = AtomicU64::new(0);

impl World {
    pub(crate) fn new(seed: u64) -> Checked<World> {
        let mut random = Random::new(seed);
        let personality = personality(&mut random);
        let number = NEXT_NAMESPACE.fetch_add(1, Ordering::Relaxed);
        let name = format!("simulation-{}-{number}", std::process::id());
        let path = format!("mem:{name}");
        let open = |error: &dyn std::fmt::Display| format!("opening the namespace: {error}");
        let namespace = nvme_kv_emulator::open_with(&path, personality.clone())
            .map_err(|error| open(&error))?;
        let config = config(&mut random, path);
        let wire = Wire {
            profile: config.connector.wire_profile,
            transfer_alignment: config.connector.transfer_alignment,
            ..Wire::default()
        };
        let keys: Vec<Vec<u8>> =
            (0..random.between(2, 7)).map(|n| format!("tenant\0key {n}").into_bytes()).collect();
        let connector = Connector::open(&config.connector).map_err(|error| open(&error))?;
        let device = SimulatedDevice::new(
            Arc::clone(connector.executor()),
            Arc::clone(&namespace),
            wire,
            config.connector.command_timeout,
            names(&keys, &wire),
            random.next(),
        );
        let backend = open_backend(&config, &device);
        let trace = vec![
            format!("device: {personality}"),
            format!(
                "backend: {:?}, {} keys, values of {} bytes, queue depth {}, {:?}, {:?}",
                config.connector.wire_profile,
                keys.len(),
                config.connector.runtime_transfer_limit,
                config.connector.queue_depth,
                config.checksum,
                config.lifecycle,
            ),
        ];
        let ledger = Ledger {
            objects: keys.iter().map(|_| Object::absent()).collect(),
            versions: keys.iter().map(|_| Vec::new()).collect(),
            junk: keys.iter().map(|_| false).collect(),
            keys,
            evicting: BTreeMap::new(),
            told: Vec::new(),
            violation: None,
        };
        Ok(World {
            random,
            config,
            wire,
            namespace,
            device,
            backend,
            ledger: RefCell::new(ledger),
            trace,
            crashes: 0,
            operations: 0,
            scanned: false,
            name,
        })
    }

    pub(crate) fn note(&mut self, line: impl Into<String>) {
        self.trace.push(line.into());
    }

    pub(crate) fn survey(&self) -> Survey {
        Survey::of(&self.namespace, &self.wire)
    }

    /// Begins a step whose commands may fail by `plan`.
    pub(crate) fn begin(&mut self, plan: FaultPlan, what: String) {
        let faults =
            if plan == FaultPlan::default() { String::new() } else { format!(", {plan:?}") };
        let step = self.trace.iter().filter(|line| line.starts_with("step")).count();
        self.note(format!("step {step}: {what}{faults}"));
        self.operations += 1;
        self.ledger.get_mut().told.clear();
        self.device.begin(plan);
    }

    /// Ends a step: whoever was told to be evicted is gone for certain, if nothing went wrong
    /// since. After a crash the next process opens the device.
    pub(crate) fn end(&mut self, outcome: &str) -> Checked {
        let commands = self.device.end();
        self.trace.extend(commands.into_iter().map(|line| format!("    {line}")));
        self.note(format!("  {outcome}"));
        let crashed = self.device.has_crashed();
        let faults = self.device.faults().failed();
        let ledger = self.ledger.get_mut();
        for (key, before) in std::mem::take(&mut ledger.evicting) {
            if before == faults && !crashed {
                ledger.objects[key].removed();
            } else {
                ledger.objects[key].doubted = true;
            }
        }
        if let Some(violation) = ledger.violation.take() {
            return Err(violation);
        }
        if crashed {
            self.crashes += 1;
            self.reopen("crashed");
        }
        Ok(())
    }

    /// The next process opens the device.
    pub(crate) fn reopen(&mut self, why: &str) {
        self.note(format!("  {why}: the next process opens the device"));
        self.device.restart();
        self.backend.close();
        if self.random.one_in(2) {
            self.put_hidden();
        }
        self.backend = open_backend(&self.config, &self.device);
        self.scanned = false;
        for object in &mut self.ledger.get_mut().objects {
            object.unsettled = false;
            object.suspected = false;
            object.reported = false;
            object.doubted = false;
        }
    }

    /// Waits until no earlier command can be executed any more.
    pub(crate) fn settle(&mut self) {
        self.device.settle();
        self.ledger.get_mut().objects.iter_mut().for_each(|object| object.unsettled = false);
    }

    /// Marks keys that commands of unknown outcome may still change.
    pub(crate) fn unsettle(&mut self, keys: impl IntoIterator<Item = usize>) {
        let ledger = self.ledger.get_mut();
        keys.into_iter().for_each(|key| ledger.objects[key].unsettled = true);
    }

    pub(crate) fn key_count(&self) -> usize {
        self.ledger.borrow().keys.len()
    }

    pub(crate) fn any_key(&mut self) -> usize {
        let count = self.key_count() as u64;
        self.random.below(count) as usize
    }

    pub(crate) fn evicts(&self) -> bool {
        self.config.lifecycle.eviction != EvictionPolicy::None
    }

    pub(crate) fn lists(&self) -> bool {
        self.namespace.personality().list != ListSupport::Absent
    }

    /// A payload of `key`: one that it had before, one that differs from it in a single place, or
    /// a new one.
    pub(crate) fn any_version(&mut self, key: usize) -> Version {
        let value = self.config.connector.runtime_transfer_limit as usize;
        let sizes = [0, 1, 500, 3000, value, value + 1, 2 * value, 2 * value + 100, 4 * value + 5];
        let size = *self.random.pick(&sizes);
        let kind = self.random.below(6);
        let seed = self.random.next();
        let mut versions = std::mem::take(&mut self.ledger.get_mut().versions[key]);
        let earlier = versions.len() as u64;
        let version = match kind {
            0 | 1 if earlier > 0 => self.random.below(earlier) as usize,
            2 if earlier > 0 => {
                let mut payload = self.random.pick(&versions).clone();
                if let Some(len) = (payload.len() as u64).checked_sub(1) {
                    payload[self.random.between(0, len) as usize] ^= 0x55;
                }
                versions.push(payload);
                versions.len() - 1
            }
            _ => {
                versions.push(bytes(size, seed));
                versions.len() - 1
            }
        };
        self.ledger.get_mut().versions[key] = versions;
        version
    }
}

impl Drop for World {
    fn drop(&mut self) {
        nvme_kv_emulator::forget(&self.name);
    }
}

/// Loads one object into aligned memory.
pub(crate) fn load(backend: &Backend, key: &[u8], len: usize) -> Result<Vec<u8>> {
    let mut memory = vec![0xEE; len];
    let destination = Destination::new(&mut memory);
    let results = backend.load(vec![ObjectToLoad { key, destination }])?;
    match <[Result<()>; 1]>::try_from(results) {
        Ok([result]) => result.map(|()| memory),
        Err(results) => Err(Error::new(
            ErrorCode::InternalError,
            format!("{} results for one object", results.len()),
        )),
    }
}

fn open_backend(config: &Config, device: &Arc<SimulatedDevice>) -> Backend {
    let time = device.time.clone();
    let parts = Parts { clock: Arc::new(move || time.now()), ..Parts::default() };
    let connector = Connector::from_executor(device.clone());
    device.calmly(|| Backend::with_parts(config, &connector, parts))
}

fn personality(random: &mut Random) -> Personality {
    let tight = random.one_in(6);
    Personality {
        retrieve_length: *random.pick(&[
            RetrieveLength::Exact,
            RetrieveLength::Padded,
            RetrieveLength::Zero,
        ]),
        short_retrieve: *random.pick(&[ShortRetrieve::Success, ShortRetrieve::InvalidValueSize]),
        delete_missing: *random.pick(&[DeleteMissing::Success, DeleteMissing::KeyNotFound]),
        list: *random.pick(&[
            ListSupport::Ordered,
            ListSupport::Ordered,
            ListSupport::Unordered,
            ListSupport::Wrapping,
            ListSupport::Absent,
        ]),
        exist: !random.one_in(4),
        capacity_bytes: if tight { random.between(20, 60) * 4096 } else { 1 << 40 },
        max_keys: if random.one_in(6) { random.between(8, 30) } else { u64::MAX },
        completion_order: if random.one_in(4) {
            CompletionOrder::Fifo
        } else {
            CompletionOrder::Shuffled { seed: random.next() }
        },
        ..Personality::default()
    }
}

fn config(random: &mut Random, path: String) -> Config {
    let mut config = Config::default();
    config.connector.device_path = path;
    config.connector.transport = Transport::Emulated;
    config.connector.runtime_transfer_limit = *random.pick(&[4096, 8192]);
    config.connector.queue_depth = *random.pick(&[1, 2, 8, 64]);
    config.connector.wire_profile = *random.pick(&[WireProfile::Mooncake, WireProfile::Spec]);
    config.checksum = *random.pick(&[ChecksumKind::Xxh32, ChecksumKind::Crc32]);
    config.lifecycle.eviction = *random.pick(&[
        EvictionPolicy::Lru,
        EvictionPolicy::Lru,
        EvictionPolicy::Fifo,
        EvictionPolicy::None,
    ]);
    config.lifecycle.scan_page = random.between(1, 4) as u32;
    if random.one_in(3) {
        config.lifecycle.max_objects = random.between(1, 5);
    }
    if random.one_in(2) {
        config.lifecycle.max_bytes = random.between(10, 60) * 4096;
    }
    config
}

/// What traces call the values of these keys.
fn names(keys: &[Vec<u8>], wire: &Wire) -> HashMap<Key, String> {
    let mut names = HashMap::new();
    let mut name = |key: PhysicalKey, name: String| names.insert(wire.device_key(&key), name);
    for (number, key) in keys.iter().enumerate() {
        let keys = ObjectKeys::new(key);
        for slot in (0..NAMED_SLOTS).filter_map(Slot::new) {
            name(keys.root(slot), format!("k{number} root {}", slot.get()));
            for index in 0..NAMED_CHUNKS {
                let chunk = keys.chunk(slot, ChunkIndex(index));
                name(chunk, format!("k{number} chunk {}.{index}", slot.get()));
            }
        }
    }
    names
}

/// `len` bytes that differ between seeds, and between one place and another.
pub(crate) fn bytes(len: usize, seed: u64) -> Vec<u8> {
    let mut random = Random::new(seed);
    let mut bytes = Vec::with_capacity(len + 8);
    while bytes.len() < len {
        bytes.extend_from_slice(&random.next().to_le_bytes());
    }
    bytes.truncate(len);
    bytes
}

/// Another backend on the device of `world`, which knows nothing yet.
pub(crate) fn open_beside(world: &World) -> Backend {
    open_backend(&world.config, &world.device)
}
