//! A backend under shuttle's scheduler, and everything that is to be true of it.

#![allow(unreachable_pub)] // a module of one test binary

pub mod history;

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use mooncake_nvme_kv::backend::{
    Backend, Handlers, ObjectToLoad, ObjectToStore, ScannedObject, Usage,
};
use mooncake_nvme_kv::config::{Config, EvictionPolicy, IoConcurrency};
use mooncake_nvme_kv::device::{
    BufferPool, Capabilities, CommandError, Completion, Connector, Destination, Executor, Request,
    Stream,
};
use mooncake_nvme_kv::{Error, ErrorCode, Result};
use nvme_kv_command_set::{IdentifyKvNamespace, Key};
use nvme_kv_emulator::{CompletionOrder, Personality};
use shuttle::rand::{Rng, thread_rng};
use shuttle::scheduler::{PctScheduler, RandomScheduler, Scheduler};

use self::history::{Event, Version, What, is_sound};
use crate::support::places::{Piece, Places};
use crate::support::{Rig, payload, seed};

/// Values of one page, so that small objects have several chunks.
const VALUE: usize = 4096;
const SIZES: [usize; 3] = [200, VALUE + 77, 2 * VALUE + 100];
/// Slots that an object can get into here.
const SLOTS: u32 = 6;

/// Schedules of a scenario under each scheduler, unless `MNKV_SCHEDULES` says how many.
const SCHEDULES: usize = 100;
/// Priority changes of a PCT schedule, plus 1.
const PCT_DEPTH: usize = 4;

/// Runs `scenario` under many schedules: half of them random at every point, half of them with
/// priorities that change at a few points (PCT), which hold a thread still for long.
///
/// The printed seed repeats them, in the same order; what shuttle prints repeats the one that fails.
pub fn explore(scenario: impl Fn() + Copy + Send + Sync + 'static) {
    explore_long(1, scenario);
}

/// The same with fewer schedules of a scenario that takes so many times as long as others.
pub fn explore_long(times: usize, scenario: impl Fn() + Copy + Send + Sync + 'static) {
    // A refused eviction is worth a line, and there are thousands.
    mooncake_nvme_kv::log::set_sink(Some(Box::new(|_, _| {})));
    let seed = seed();
    let schedules = std::env::var("MNKV_SCHEDULES")
        .map_or(SCHEDULES, |text| text.parse().expect("MNKV_SCHEDULES is a number"));
    let schedules = schedules.div_ceil(times);
    run("random", RandomScheduler::new_from_seed(seed, schedules), scenario);
    run("PCT", PctScheduler::new_from_seed(seed, PCT_DEPTH, schedules), scenario);
}

fn run(
    scheduler: &'static str,
    of: impl Scheduler + 'static,
    scenario: impl Fn() + Send + Sync + 'static,
) {
    let mut config = shuttle::Config::new();
    // Frames of a build without optimisation are large.
    config.stack_size = 1 << 20;
    // It warns that weak memory orders are not modelled, which ARCHITECTURE.md says too.
    config.silence_warnings = true;
    config.ungraceful_shutdown_config.immediately_return_on_panic = true;
    let done =
        Arc::new(Done { scheduler, schedules: AtomicU64::new(0), points: AtomicU64::new(0) });
    let count = Arc::clone(&done);
    shuttle::Runner::new(of, config).run(move || {
        scenario();
        count.schedules.fetch_add(1, Ordering::Relaxed);
        let points = shuttle::current::context_switches() as u64;
        count.points.fetch_add(points, Ordering::Relaxed);
    });
    assert!(done.schedules.load(Ordering::Relaxed) > 0, "nothing ran");
}

/// Schedules in which nothing was wrong; they are printed when the last one is done or has failed.
struct Done {
    scheduler: &'static str,
    schedules: AtomicU64,
    points: AtomicU64,
}

impl Drop for Done {
    fn drop(&mut self) {
        let (schedules, points) = (*self.schedules.get_mut(), *self.points.get_mut());
        println!("{}: {schedules} schedules passed, {points} scheduling points", self.scheduler);
    }
}

/// A number below `limit` that belongs to the schedule.
pub fn below(limit: u64) -> u64 {
    thread_rng().gen_range(0..limit)
}

/// Bytes of a version.
pub fn size_of(version: Version) -> usize {
    SIZES[version as usize % SIZES.len()]
}

/// The bytes say which key and version they are.
pub fn bytes_of(key: u64, version: Version) -> Vec<u8> {
    let mut bytes = payload(size_of(version), key << 32 | version);
    bytes[..8].copy_from_slice(&key.to_le_bytes());
    bytes[8..16].copy_from_slice(&version.to_le_bytes());
    bytes
}

/// Which version of `key` the bytes are, all of them.
fn version_in(key: u64, bytes: &[u8]) -> Version {
    let number = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("8 bytes"));
    assert_eq!(number(0), key, "bytes of another key");
    let version = number(8);
    assert!(bytes == bytes_of(key, version), "mixed bytes of version {version}");
    version
}

fn name(key: u64) -> Vec<u8> {
    format!("tenant\0object {key}").into_bytes()
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// The emulated device, at whose commands a schedule may go on with another thread. What the
/// device does for one command is one step.
#[derive(Debug)]
struct Scheduled {
    inner: Arc<dyn Executor>,
    commands: shuttle::sync::atomic::AtomicU64,
    /// Nothing may reach the device any more.
    closed: AtomicBool,
}

impl Scheduled {
    fn point(&self) {
        self.commands.fetch_add(1, Ordering::Relaxed);
    }

    fn assert_open(&self) {
        assert!(!self.closed.load(Ordering::Relaxed), "a command after the close");
    }
}

struct ScheduledStream<'s, 'a> {
    device: &'s Scheduled,
    inner: &'s mut dyn Stream<'a>,
}

impl<'a> Stream<'a> for ScheduledStream<'_, 'a> {
    fn next(&mut self) -> Option<Request<'a>> {
        let request = self.inner.next()?;
        self.device.assert_open();
        Some(request)
    }

    fn complete(&mut self, completion: Completion) {
        self.device.assert_open();
        // The 63 slots in which a search finds nothing are not worth a point each.
        let found_nothing = completion.buffer.is_none() && completion.result.is_err();
        self.inner.complete(completion);
        if !found_nothing {
            self.device.point();
        }
    }
}

impl Executor for Scheduled {
    fn capabilities(&self) -> &Capabilities {
        self.inner.capabilities()
    }

    fn buffers(&self) -> &BufferPool {
        self.inner.buffers()
    }

    fn execute<'a>(&self, stream: &mut dyn Stream<'a>) {
        self.inner.execute(&mut ScheduledStream { device: self, inner: stream });
    }

    fn list(&self, start: Option<&Key>, page: &mut [u8]) -> std::result::Result<(), CommandError> {
        self.assert_open();
        self.point();
        self.inner.list(start, page)
    }

    fn identify(&self) -> std::result::Result<IdentifyKvNamespace, CommandError> {
        self.inner.identify()
    }
}

/// One execution: a device, a backend on it, and what its threads did.
pub struct World {
    rig: Rig,
    places: Vec<Places>,
    device: Arc<Scheduled>,
    pub backend: Backend,
    histories: Mutex<Vec<Vec<Event>>>,
    clock: AtomicU64,
    /// Keys that a scan is telling of right now, which must not be evicted meanwhile.
    told_by_scan: Mutex<HashSet<u64>>,
    /// The handler objects to every second eviction.
    pub refuses: bool,
}

impl World {
    /// A device that holds nothing, and a backend that knows it.
    pub fn new(keys: u64, change: impl FnOnce(&mut Config)) -> World {
        World::with(keys, change, |_, _| {})
    }

    /// A device that holds what `prepare` puts there, and a backend that knows nothing of it.
    pub fn with(
        keys: u64,
        change: impl FnOnce(&mut Config),
        prepare: impl FnOnce(&Rig, &[Places]),
    ) -> World {
        let order = CompletionOrder::Shuffled { seed: below(1 << 32) };
        let personality = Personality { completion_order: order, ..Personality::default() };
        let rig = Rig::with(personality, |config| {
            config.connector.runtime_transfer_limit = VALUE as u32;
            config.lifecycle.eviction = EvictionPolicy::Lru;
            config.io = IoConcurrency::derived(config.connector.queue_depth);
            change(config);
        });
        let places: Vec<Places> = (0..keys).map(|key| Places::new(&rig, &name(key), 3)).collect();
        prepare(&rig, &places);
        let (device, backend) = open(&rig);
        World {
            rig,
            places,
            device,
            backend,
            histories: Mutex::new(vec![Vec::new(); keys as usize]),
            clock: AtomicU64::new(0),
            told_by_scan: Mutex::default(),
            refuses: false,
        }
    }

    /// A device on which another process has left three objects: of key 0 a root that hides
    /// another one, of key 1 one above an empty slot, of key 2 one in its usual place.
    pub fn of_remains(change: impl FnOnce(&mut Config)) -> World {
        let world = World::with(3, change, |rig, places| {
            places[0].put_object(rig, 0, &bytes_of(0, 2));
            places[0].put_object(rig, 1, &bytes_of(0, 1));
            places[1].put_object(rig, 1, &bytes_of(1, 1));
            places[2].put_object(rig, 0, &bytes_of(2, 2));
        });
        for (key, version) in [(0, 2), (1, 1), (2, 2)] {
            world.note(key, What::Stored(version), world.now());
        }
        world
    }

    /// A key that a thread may take.
    pub fn any_key(&self) -> u64 {
        below(self.places.len() as u64)
    }

    fn now(&self) -> u64 {
        self.clock.fetch_add(1, Ordering::Relaxed)
    }

    fn note(&self, key: u64, what: What, begin: u64) {
        let event = Event { what, begin, end: self.now() };
        lock(&self.histories)[key as usize].push(event);
    }

    /// Offloads one object. A refusal is fine if it is for want of room or because of a close, and
    /// then nothing has changed.
    pub fn put(&self, key: u64, version: Version) -> Result<()> {
        self.put_and(key, version, || {})
    }

    /// The same; `told` runs inside of the callback that reports the object.
    pub fn put_and(&self, key: u64, version: Version, told: impl Fn()) -> Result<()> {
        let (name, bytes, begin) = (name(key), bytes_of(key, version), self.now());
        let mut reported = false;
        let mut on_stored = |stored: &[usize]| {
            assert!(stored == [0] && !reported, "told once");
            reported = true;
            self.note(key, What::Stored(version), begin);
            told();
            Ok(())
        };
        let mut evictions = Evictions::new(self);
        let report = self.backend.offload_with(
            &[ObjectToStore { key: &name, slices: &[&bytes[..9], &bytes[9..]] }],
            Handlers { on_stored: &mut on_stored, on_evicted: &mut |keys| evictions.begin(keys) },
        );
        evictions.end();
        let result = report.and_then(|report| {
            let [result] = <[_; 1]>::try_from(report.results).expect("one result");
            result.map(|_| ())
        });
        assert_eq!(result.is_ok(), reported, "told exactly what is stored");
        if let Err(error) = &result {
            let soft = [ErrorCode::InvalidRead, ErrorCode::InternalError];
            assert!(soft.contains(&error.code()), "{error}");
        }
        result
    }

    /// Loads one object as if it had the size of `version`.
    pub fn get(&self, key: u64, version: Version) -> Result<What> {
        let len = size_of(version);
        let mut memory = vec![0xEE; len];
        let (name, begin) = (name(key), self.now());
        let destination = Destination::new(&mut memory);
        let results = self.backend.load(vec![ObjectToLoad { key: &name, destination }])?;
        let [result] = <[_; 1]>::try_from(results).expect("one result");
        let seen = match result {
            Ok(()) => What::Loaded(version_in(key, &memory)),
            Err(error) if error.code() == ErrorCode::ObjectNotFound => What::Absent,
            Err(error) if error.message().ends_with("were wanted") => What::NotSized(len),
            Err(error) => panic!("{error}"),
        };
        self.note(key, seen, begin);
        Ok(seen)
    }

    /// Asks for one object.
    pub fn exists(&self, key: u64) -> Result<bool> {
        let begin = self.now();
        let exists = self.backend.exists(&name(key))?;
        self.note(key, if exists { What::Present } else { What::Absent }, begin);
        Ok(exists)
    }

    /// Removes one object.
    pub fn remove(&self, key: u64) -> Result<()> {
        let begin = self.now();
        match self.backend.remove(&name(key)) {
            Ok(()) => self.note(key, What::Removed, begin),
            Err(error) if error.code() == ErrorCode::ObjectNotFound => {
                self.note(key, What::Absent, begin);
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Evicts what may be evicted; whom.
    pub fn evict(&self) -> Result<Vec<u64>> {
        let mut evictions = Evictions::new(self);
        let evicted = self.backend.evict_above(0.0, 0.0, &mut |keys| evictions.begin(keys));
        let objected = evictions.end();
        match evicted {
            Err(error) if objected => {
                assert!(error.message().contains("objects"), "{error}");
                Ok(Vec::new())
            }
            evicted => evicted.map(|keys| keys.iter().map(|key| self.key_of(key)).collect()),
        }
    }

    /// Scans; the objects that were reported.
    pub fn scan(&self) -> Result<Vec<u64>> {
        let begin = self.now();
        let mut reported = Vec::new();
        self.backend.scan(&mut |page| {
            let keys: Vec<u64> = page.iter().map(|found| self.key_of(&found.key)).collect();
            lock(&self.told_by_scan).extend(&keys);
            for (key, ScannedObject { size, .. }) in keys.iter().zip(page) {
                self.note(*key, What::Sized(*size as usize), begin);
            }
            self.device.point();
            lock(&self.told_by_scan).clear();
            reported.extend(keys);
            Ok(())
        })?;
        let once: HashSet<&u64> = reported.iter().collect();
        assert_eq!(once.len(), reported.len(), "reported twice: {reported:?}");
        Ok(reported)
    }

    /// What any thread may do at any time.
    pub fn any_step(&self) -> Result<()> {
        let key = self.any_key();
        match below(8) {
            0..3 => self.put(key, below(6)),
            3..6 => self.get(key, below(3)).map(|_| ()),
            6 => self.exists(key).map(|_| ()),
            _ => self.remove(key),
        }
    }

    /// Closes the backend, after which nothing reaches the device.
    pub fn close(&self) {
        self.backend.close();
        self.device.closed.store(true, Ordering::Relaxed);
    }

    /// Whether a root of `key` is on the device.
    fn has_root(&self, key: u64) -> bool {
        let places = &self.places[key as usize];
        let root = |slot| places.device_key(Piece::Root(slot));
        (0..SLOTS).any(|slot| self.rig.namespace.peek(&root(slot)).is_some())
    }

    fn key_of(&self, wanted: &[u8]) -> u64 {
        let known = (0..self.places.len() as u64).find(|key| name(*key) == wanted);
        known.expect("a key that somebody stored")
    }

    /// When all threads are done: every key has a sound history and one value, backend and device
    /// agree on every value, and nothing is held, pinned or promised for ever.
    pub fn settle(mut self) {
        if self.device.closed.load(Ordering::Relaxed) {
            assert_eq!(self.exists(0).expect_err("closed").code(), ErrorCode::InternalError);
            (self.device, self.backend) = open(&self.rig);
        }
        self.refuses = false;
        let keys = 0..self.places.len() as u64;
        let present: Vec<u64> = keys.clone().filter(|key| self.loads(*key).is_some()).collect();
        self.backend.sweep(false).expect("a sweep");
        self.backend.reset_scan();
        let mut scanned = self.scan().expect("a scan");
        scanned.sort_unstable();
        assert_eq!(scanned, present, "a scan finds what can be loaded");
        let held = self.rig.namespace.usage();
        let counted = self.backend.usage();
        let objects = present.len() as u64;
        let device = Usage { objects, values: held.keys, bytes: held.bytes };
        assert_eq!(counted, device, "the index counts what the device holds");

        let mut evicted = self.evict().expect("an eviction");
        evicted.sort_unstable();
        assert_eq!(evicted, present, "what is idle can be evicted");
        assert_eq!(self.rig.value_count(), 0, "nothing is left over");
        assert_eq!(self.backend.usage(), Usage::default());
        for key in keys {
            assert_eq!(self.loads(key), None);
            self.put(key, 2).expect("an idle key can be stored");
            assert_eq!(self.loads(key), Some(2));
            let history = std::mem::take(&mut lock(&self.histories)[key as usize]);
            let lines = history.iter().map(|event| format!("{event}\n")).collect::<String>();
            assert!(is_sound(&history), "no order explains what happened to key {key}:\n{lines}");
        }
    }

    /// What every way to read says of `key`.
    fn loads(&self, key: u64) -> Option<Version> {
        let mut sizes = (0..SIZES.len() as u64).map(|version| self.get(key, version));
        let loaded = sizes.find_map(|seen| match seen.expect("an open backend") {
            What::Loaded(version) => Some(version),
            _ => None,
        });
        assert_eq!(self.exists(key).expect("an open backend"), loaded.is_some());
        assert_eq!(self.has_root(key), loaded.is_some());
        loaded
    }
}

fn open(rig: &Rig) -> (Arc<Scheduled>, Backend) {
    let connector = Connector::open(&rig.config.connector).expect("the device opens");
    let device = Arc::new(Scheduled {
        inner: Arc::clone(connector.executor()),
        commands: Default::default(),
        closed: AtomicBool::new(false),
    });
    let connector = Connector::from_executor(device.clone());
    let backend = Backend::with_parts(&rig.config, &connector, rig.parts.clone());
    (device, backend)
}

/// The evictions of one call.
struct Evictions<'w> {
    world: &'w World,
    begin: u64,
    /// Keys that the handler wants to keep, and when it said so.
    kept: Vec<(u64, u64)>,
}

impl<'w> Evictions<'w> {
    fn new(world: &'w World) -> Self {
        Evictions { world, begin: world.now(), kept: Vec::new() }
    }

    /// The handler: told before anything of the objects is deleted, and when no reader that begins
    /// now finds them.
    fn begin(&mut self, keys: &[Vec<u8>]) -> Result<()> {
        let world = self.world;
        let keys: Vec<u64> = keys.iter().map(|key| world.key_of(key)).collect();
        let keep = world.refuses && below(2) == 0;
        for key in keys {
            assert!(world.has_root(key), "deleted before the handler was told");
            assert!(!lock(&world.told_by_scan).contains(&key), "evicted while a scan tells of it");
            world.note(key, if keep { What::Hidden } else { What::Evicted }, self.begin);
            if keep {
                self.kept.push((key, world.now()));
            }
        }
        world.device.point();
        if keep { Err(Error::new(ErrorCode::InvalidRead, "kept")) } else { Ok(()) }
    }

    /// Whether the handler objected.
    fn end(self) -> bool {
        for (key, since) in &self.kept {
            self.world.note(*key, What::Shown, *since);
        }
        !self.kept.is_empty()
    }
}
