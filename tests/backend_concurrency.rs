//! Many threads on one backend and the same keys: what is acknowledged is readable, what is read
//! was written and not replaced before, and nothing is left over.

mod support;

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Barrier, Mutex, mpsc};
use std::thread;

use mooncake_nvme_kv::ErrorCode;
use mooncake_nvme_kv::backend::ObjectToStore;
use mooncake_nvme_kv::config::Config;
use mooncake_nvme_kv::device::fault::{Effect, HoldPoint, Kind};
use nvme_kv_emulator::{CompletionOrder, Personality};

use support::places::{Piece, Places};
use support::random::Random;
use support::{Device, Rig, payload, seed};

/// Values of one page, so that small objects have several chunks.
const VALUE: usize = 4096;
const SIZES: [usize; 3] = [200, VALUE + 77, 2 * VALUE + 100];

fn small_values(config: &mut Config) {
    config.connector.runtime_transfer_limit = VALUE as u32;
}

/// A version of a key: the bytes say which.
fn bytes_of(key: u64, version: u64, len: usize) -> Vec<u8> {
    let mut bytes = payload(len, key << 32 | version);
    bytes[..8].copy_from_slice(&key.to_le_bytes());
    bytes[8..16].copy_from_slice(&version.to_le_bytes());
    bytes
}

/// Which version of `key` the bytes are, all of them.
fn version_in(key: u64, bytes: &[u8]) -> u64 {
    let number = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("8 bytes"));
    assert_eq!(number(0), key, "bytes of another key");
    let version = number(8);
    assert!(bytes == bytes_of(key, version, bytes.len()), "mixed bytes of version {version}");
    version
}

fn name(key: u64) -> Vec<u8> {
    format!("tenant\0object {key}").into_bytes()
}

/// Something that happened to a key, between two readings of one global counter.
#[derive(Clone, Copy, Debug)]
struct Event {
    key: u64,
    version: u64,
    begin: u64,
    end: u64,
}

/// What was read was not replaced by a write that began after it and ended before the read.
fn assert_no_stale_read(writes: &[Event], loads: &[Event]) {
    let mut by_key: HashMap<u64, Vec<&Event>> = HashMap::new();
    for write in writes {
        by_key.entry(write.key).or_default().push(write);
    }
    for load in loads {
        let writes = &by_key[&load.key];
        let replaced = |write: &Event| {
            writes.iter().any(|later| {
                later.version != write.version && write.end < later.begin && later.end < load.begin
            })
        };
        let current = writes.iter().any(|write| {
            write.version == load.version && write.begin < load.end && !replaced(write)
        });
        assert!(current, "stale: {load:?}");
    }
}

/// Rounds, threads in each, and keys that they share.
const ROUNDS: u64 = 4000;
const WRITERS: u64 = 5;
const READERS: u64 = 3;
const KEYS: u64 = 50;

#[test]
fn threads_that_write_and_read_the_same_keys_never_lose_or_mix_one() {
    let seed = seed();
    let order = CompletionOrder::Shuffled { seed };
    let personality = Personality { completion_order: order, ..Personality::default() };
    let rig = Rig::with(personality, small_values);
    let device = rig.open();
    let clock = AtomicU64::new(0);
    let now = || clock.fetch_add(1, Ordering::SeqCst);
    let start = Barrier::new((WRITERS + READERS) as usize);
    // What everybody does in a round follows from the seed.
    let plan = |round: u64| {
        let mut random = Random::new(seed ^ round << 20);
        (random.below(KEYS), *random.pick(&SIZES), random.one_in(3))
    };
    let (writes, loads) = thread::scope(|scope| {
        let writers = (0..WRITERS).map(|writer| {
            let (device, start, now) = (&device, &start, &now);
            scope.spawn(move || {
                let mut events = Vec::new();
                for round in 0..ROUNDS {
                    let (key, len, same) = plan(round);
                    let version = round * WRITERS + if same { 0 } else { writer };
                    let bytes = bytes_of(key, version, len);
                    start.wait();
                    let begin = now();
                    device.put(&name(key), &bytes).expect("every concurrent offload succeeds");
                    events.push(Event { key, version, begin, end: now() });
                }
                events
            })
        });
        let writers: Vec<_> = writers.collect();
        let readers = (0..READERS).map(|reader| {
            let (device, start, now) = (&device, &start, &now);
            scope.spawn(move || {
                let mut events = Vec::new();
                for round in 0..ROUNDS {
                    // This round's key by its new size, or an earlier round's by its own.
                    let back = if reader == 0 { 0 } else { round.min(reader) };
                    let (key, len, _) = plan(round - back);
                    start.wait();
                    for _ in 0..2 {
                        let begin = now();
                        match device.get(&name(key), len) {
                            Ok(bytes) => {
                                let version = version_in(key, &bytes);
                                events.push(Event { key, version, begin, end: now() });
                            }
                            Err(error) => {
                                let code = error.code();
                                let absent = code == ErrorCode::ObjectNotFound && back == 0;
                                let size = error.to_string().contains("were wanted");
                                assert!(absent || size, "{error}");
                            }
                        }
                    }
                    if back > 0 {
                        assert!(device.backend.exists(&name(key)).expect("Exist works"));
                    }
                }
                events
            })
        });
        let readers: Vec<_> = readers.collect();
        let gather = |threads: Vec<thread::ScopedJoinHandle<'_, Vec<Event>>>| {
            let events = threads.into_iter().flat_map(|thread| thread.join().expect("no panic"));
            events.collect::<Vec<Event>>()
        };
        (gather(writers), gather(readers))
    });
    assert!(loads.len() as u64 > ROUNDS, "most loads deliver");
    assert_no_stale_read(&writes, &loads);

    let last_len: HashMap<u64, usize> =
        (0..ROUNDS).map(|round| (plan(round).0, plan(round).1)).collect();
    let mut values = 0;
    let fresh = rig.open();
    for (&key, &len) in &last_len {
        let bytes = fresh.get(&name(key), len).expect("every key is readable");
        let (begin, end) = (now(), u64::MAX);
        let version = version_in(key, &bytes);
        assert_no_stale_read(&writes, &[Event { key, version, begin, end }]);
        values += rig.values_of(&name(key), len);
    }
    assert_eq!(rig.value_count(), values, "no stray values");
}

#[test]
fn batches_of_the_same_keys_from_many_threads_all_succeed() {
    const BATCH: u64 = 300;
    let rig = Rig::with(Personality::default(), small_values);
    let device = rig.open();
    let seed = seed();
    thread::scope(|scope| {
        for batch in 0..8 {
            let device = &device;
            scope.spawn(move || {
                let mut random = Random::new(seed ^ batch);
                let mut keys: Vec<u64> = (0..BATCH).collect();
                for index in (1..keys.len()).rev() {
                    keys.swap(index, random.below(index as u64 + 1) as usize);
                }
                // Every key twice: the second of a batch follows the first.
                keys.extend_from_within(..);
                let names: Vec<_> = keys.iter().map(|key| name(*key)).collect();
                let versions = keys.iter().zip(0..).map(|(key, place)| {
                    bytes_of(*key, batch * 2 + place / BATCH, SIZES[*key as usize % 3])
                });
                let versions: Vec<_> = versions.collect();
                let slices: Vec<_> = versions.iter().map(|bytes| [&bytes[..]]).collect();
                let objects: Vec<_> = names
                    .iter()
                    .zip(&slices)
                    .map(|(key, slices)| ObjectToStore { key, slices })
                    .collect();
                let mut told = vec![0; objects.len()];
                let report = device.backend.offload(&objects, &mut |stored| {
                    stored.iter().for_each(|index| told[*index] += 1);
                    // Whoever is told may read at once, from within the callback.
                    let first = keys[stored[0]];
                    let bytes = device.get(&name(first), SIZES[first as usize % 3])?;
                    version_in(first, &bytes);
                    Ok(())
                });
                let report = report.expect("an open backend");
                assert!(report.callback_error.is_none(), "{:?}", report.callback_error);
                assert!(report.results.iter().all(Result::is_ok));
                assert!(told.iter().all(|times| *times == 1), "everyone told once");
            });
        }
    });
    let fresh = rig.open();
    let mut values = 0;
    for key in 0..BATCH {
        let len = SIZES[key as usize % 3];
        let version = version_in(key, &fresh.get(&name(key), len).expect("readable"));
        assert_eq!(version % 2, 1, "the second of its batch");
        values += rig.values_of(&name(key), len);
    }
    assert_eq!(rig.value_count(), values, "no stray values");
}

const KEY: &[u8] = b"tenant\0object";
const OLD: usize = 2 * VALUE + 100;

/// Holds the `nth` command (from 0) of the thread whose name is `who`.
fn hold(device: &Device, who: &'static str, nth: usize) -> Arc<HoldPoint> {
    let point = HoldPoint::new();
    let held = Arc::clone(&point);
    let mut seen = 0;
    device.faults.set_rule(move |_, _| {
        if thread::current().name() != Some(who) {
            return Effect::Pass;
        }
        seen += 1;
        if seen == nth + 1 { Effect::Hold(Arc::clone(&held)) } else { Effect::Pass }
    });
    point
}

/// Releases a hold point when the test fails, so that it ends.
struct ReleaseOnDrop<'p>(&'p HoldPoint);

impl Drop for ReleaseOnDrop<'_> {
    fn drop(&mut self) {
        self.0.release();
    }
}

/// How many commands `act` needs.
fn commands(device: &Device, act: impl FnOnce()) -> usize {
    device.faults.take_counts();
    act();
    device.faults.take_counts().total() as usize
}

fn spawn<'scope, T: Send + 'scope>(
    scope: &'scope thread::Scope<'scope, '_>,
    who: &str,
    act: impl FnOnce() -> T + Send + 'scope,
) -> thread::ScopedJoinHandle<'scope, T> {
    thread::Builder::new().name(who.into()).spawn_scoped(scope, act).expect("a thread starts")
}

/// A device with an old version, known to it or not.
fn with_old_version(old: &[u8], warm: bool) -> (Rig, Places, Device) {
    let rig = Rig::with(Personality::default(), small_values);
    let places = Places::new(&rig, KEY, 8);
    places.put_object(&rig, 0, old);
    let device = rig.open();
    if warm {
        device.expect(KEY, old);
    }
    (rig, places, device)
}

#[test]
fn a_reader_held_at_any_command_keeps_the_chunks_it_reads() {
    let (old, new) = (payload(OLD, 1), payload(OLD, 2));
    for warm in [false, true] {
        let count = {
            let (_rig, _, device) = with_old_version(&old, warm);
            commands(&device, || device.expect(KEY, &old))
        };
        for nth in 0..count {
            let (rig, places, device) = with_old_version(&old, warm);
            let point = HoldPoint::new();
            let held = Arc::clone(&point);
            let log = Arc::new(Mutex::new(Vec::new()));
            let events = Arc::clone(&log);
            let keys = Places::new(&rig, KEY, 8);
            let mut seen = 0;
            device.faults.set_rule(move |kind, key| {
                let piece = keys.piece(&keys.wire.device_key(&key)).expect("a piece of the key");
                let reader = thread::current().name() == Some("reader");
                events.lock().unwrap().push((kind, piece, reader));
                seen += usize::from(reader);
                let hold = reader && seen == nth + 1;
                if hold { Effect::Hold(Arc::clone(&held)) } else { Effect::Pass }
            });
            thread::scope(|scope| {
                let _release = ReleaseOnDrop(&point);
                let reader = spawn(scope, "reader", || device.get(KEY, OLD));
                point.wait_for_arrival();
                let writer = spawn(scope, "writer", || device.put(KEY, &new));
                while rig.namespace.peek(&places.device_key(Piece::Root(0))).is_some() {
                    thread::yield_now();
                }
                // Others see the new version already.
                device.expect(KEY, &new);
                rig.open().expect(KEY, &new);
                point.release();
                let read = reader.join().unwrap().expect("the reader gets one of them");
                assert!(read == old || read == new, "mixed bytes");
                assert!(!writer.join().unwrap().expect("the writer succeeds").already);
            });
            let log = log.lock().unwrap();
            let first_delete = log.iter().position(|(kind, piece, _)| {
                *kind == Kind::Delete && matches!(piece, Piece::Chunk(..))
            });
            let last_read = log.iter().rposition(|(kind, piece, reader)| {
                *reader && *kind == Kind::Retrieve && matches!(piece, Piece::Chunk(0, _))
            });
            assert!(last_read < first_delete, "warm {warm}, command {nth}: {log:?}");
            assert_eq!(places.on_device(&rig), places.object(1, OLD));
        }
    }
}

#[test]
fn a_writer_held_at_any_command_leaves_one_version_readable() {
    for (old, new) in [
        (payload(OLD, 1), payload(OLD, 2)),
        (payload(500, 1), payload(OLD, 2)),
        (payload(OLD, 1), payload(500, 2)),
    ] {
        for warm in [false, true] {
            let count = {
                let (_rig, _, device) = with_old_version(&old, warm);
                commands(&device, || assert!(device.put(KEY, &new).is_ok()))
            };
            for nth in 0..count {
                let (rig, places, device) = with_old_version(&old, warm);
                let point = hold(&device, "writer", nth);
                thread::scope(|scope| {
                    let _release = ReleaseOnDrop(&point);
                    let writer = spawn(scope, "writer", || device.put(KEY, &new));
                    point.wait_for_arrival();
                    let fresh = rig.open();
                    let is = |loaded: mooncake_nvme_kv::Result<Vec<u8>>, bytes: &[u8]| {
                        loaded.is_ok_and(|loaded| loaded == bytes)
                    };
                    let first = is(fresh.get(KEY, old.len()), &old);
                    let second = is(fresh.get(KEY, new.len()), &new);
                    assert!(first != second, "command {nth}: one version, whole");
                    assert!(device.backend.exists(KEY).unwrap());
                    if old.len() == new.len() {
                        // By another size this would wait for the writer: nothing that is said of
                        // a key while it changes counts, but its bytes.
                        let bytes = device.get(KEY, old.len()).expect("either version");
                        assert!(bytes == old || bytes == new, "command {nth}: mixed bytes");
                    }
                    point.release();
                    writer.join().unwrap().expect("the writer succeeds");
                });
                device.expect(KEY, &new);
                rig.open().expect(KEY, &new);
                assert_eq!(places.on_device(&rig), places.object(1, new.len()));
            }
        }
    }
}

#[test]
fn many_waiters_on_one_key_are_all_served() {
    let rig = Rig::with(Personality::default(), small_values);
    let places = Places::new(&rig, KEY, 8);
    let device = rig.open();
    let point = hold(&device, "first", 0);
    thread::scope(|scope| {
        let _release = ReleaseOnDrop(&point);
        let first = spawn(scope, "first", || device.put(KEY, &bytes_of(0, 0, OLD)));
        point.wait_for_arrival();
        let waiters: Vec<_> = (1..=32)
            .map(|version| {
                let device = &device;
                scope.spawn(move || match version % 4 {
                    // Absence cannot be proven while a write is in flight, so a load waits too.
                    0 => version_in(0, &device.get(KEY, OLD).expect("something to load")),
                    _ => {
                        device.put(KEY, &bytes_of(0, version, OLD)).expect("stored");
                        version
                    }
                })
            })
            .collect();
        point.release();
        assert!(!first.join().unwrap().expect("stored").already);
        for waiter in waiters {
            assert!(waiter.join().expect("no panic") <= 32);
        }
    });
    let fresh = rig.open();
    assert!(version_in(0, &fresh.get(KEY, OLD).unwrap()) > 0, "the first one was replaced");
    let roots = places.on_device(&rig).len();
    assert_eq!(roots, rig.values_of(KEY, OLD), "one version");
}

#[test]
fn closing_waits_for_calls_that_run_and_refuses_later_ones() {
    let (old, new) = (payload(OLD, 1), payload(OLD, 2));
    let (rig, _, device) = with_old_version(&old, true);
    let point = HoldPoint::new();
    let held = Arc::clone(&point);
    device.faults.set_rule(move |kind, _| match kind {
        Kind::Store => Effect::Hold(Arc::clone(&held)),
        _ => Effect::Pass,
    });
    let (closed, is_closed) = mpsc::channel();
    thread::scope(|scope| {
        let writers: Vec<_> = (0..4)
            .map(|_| scope.spawn(|| device.put(KEY, &new).map(|stored| stored.already)))
            .collect();
        point.wait_for_arrival();
        for _ in 0..2 {
            let (device, closed) = (&device, closed.clone());
            scope.spawn(move || {
                device.backend.close();
                closed.send(()).expect("the test listens");
            });
        }
        // Until one of them has begun, calls are taken.
        while device.backend.is_enabled().is_ok() {
            thread::yield_now();
        }
        assert_eq!(device.get(KEY, OLD).unwrap_err().code(), ErrorCode::InternalError);
        assert_eq!(device.put(KEY, &old).unwrap_err().code(), ErrorCode::InternalError);
        assert!(is_closed.try_recv().is_err(), "a call still runs");
        point.release();
        let mut written = 0;
        for writer in writers {
            match writer.join().expect("no panic") {
                Ok(already) => written += usize::from(!already),
                // Refused at the door, or inside and not begun when the closing began.
                Err(error) => assert!(
                    matches!(error.code(), ErrorCode::InternalError | ErrorCode::InvalidRead),
                    "{error}"
                ),
            }
        }
        assert_eq!(written, 1);
    });
    assert_eq!(is_closed.try_iter().count(), 2);
    rig.open().expect(KEY, &new);
}
