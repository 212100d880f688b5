//! Commands without an answer, in a process that lives on: the device may have executed them, may
//! do so later, or never. No acknowledged version is ever lost, hidden or mixed with another.

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use mooncake_nvme_kv::backend::Stored;
use mooncake_nvme_kv::config::Config;
use mooncake_nvme_kv::{ErrorCode, Result};
use nvme_kv_command_set::Opcode;
use nvme_kv_emulator::{DeleteMissing, Effect, Fault, Personality, RetrieveLength, Trigger};

use support::places::{Piece, Places};
use support::random::Random;
use support::{Device, Rig, manual_clock, payload, seed, text};

const KEY: &[u8] = b"tenant\0object";
/// Values of two pages, so that small objects have several chunks.
const VALUE: usize = 8192;
/// Inline, and two kinds of three chunks.
const INLINE: usize = 500;
const CHUNKED: usize = 2 * VALUE + 100;

fn small_values(config: &mut Config) {
    config.connector.runtime_transfer_limit = VALUE as u32;
}

/// A rig whose backends live on a clock that only moves when told.
struct Bench {
    rig: Rig,
    places: Places,
    millis: Arc<AtomicU64>,
}

impl Bench {
    fn new(personality: Personality) -> Bench {
        let mut rig = Rig::with(personality, small_values);
        let (millis, clock) = manual_clock();
        rig.parts.clock = clock;
        let places = Places::new(&rig, KEY, 8);
        Bench { rig, places, millis }
    }

    /// The next `times` commands of `kind` on `piece` get no answer.
    fn lose(&self, kind: Opcode, piece: Piece, effect: Effect, times: u64) {
        for _ in 0..times {
            let on = Trigger { kind: Some(kind), nth: 1, key: Some(self.places.device_key(piece)) };
            self.rig.namespace.script(Fault { on, effect });
        }
    }

    /// Loaded by `device` and by a fresh backend.
    #[track_caller]
    fn expect(&self, device: &Device, bytes: &[u8]) {
        device.expect(KEY, bytes);
        self.rig.open().expect(KEY, bytes);
    }

    /// The device holds an object of `len` bytes in `slot`, and `orphans`, and nothing else.
    #[track_caller]
    fn expect_pieces(&self, slot: u32, len: usize, orphans: &[Piece]) {
        let mut expected = self.places.object(slot, len);
        expected.extend(orphans);
        assert_eq!(self.places.on_device(&self.rig), expected);
    }

    /// Time passes until the device can no longer execute what it was sent before.
    fn settle(&self) {
        self.rig.namespace.release_late();
        let timeout = self.rig.config.connector.command_timeout.as_millis() as u64;
        self.millis.fetch_add(timeout + 1, Ordering::Relaxed);
    }
}

/// What may be read: one version once acknowledged; several after failures that say so.
struct Model {
    versions: Vec<Vec<u8>>,
    allowed: Vec<usize>,
    /// Some version was acknowledged, so one is there.
    stored: bool,
}

impl Model {
    fn wrote(&mut self, version: usize, result: &Result<Stored>) {
        match result {
            Ok(_) => {
                self.allowed = vec![version];
                self.stored = true;
            }
            Err(error) if error.to_string().contains("either version") => {
                self.allowed.push(version);
            }
            Err(_) => {}
        }
    }

    /// Loads by every size there is; all that can be loaded is allowed, and something can.
    fn check(&self, device: &Device, who: &str, history: &[String]) {
        let mut sizes: Vec<usize> = self.versions.iter().map(Vec::len).collect();
        sizes.sort_unstable();
        sizes.dedup();
        let mut errors = Vec::new();
        // While either version is possible, a late command may swap them between two loads.
        for _ in 0..if self.allowed.len() > 1 { 4 } else { 1 } {
            let mut loaded = 0;
            for &size in &sizes {
                match device.get(KEY, size) {
                    Ok(bytes) => {
                        let version = self.versions.iter().position(|version| *version == bytes);
                        assert!(
                            version.is_some_and(|version| self.allowed.contains(&version)),
                            "{who} read version {version:?}, allowed are {:?}\n{}",
                            self.allowed,
                            history.join("\n")
                        );
                        loaded += 1;
                    }
                    Err(error) => errors.push(error.to_string()),
                }
            }
            if loaded == 1 || (loaded == 0 && !self.stored) {
                return;
            }
        }
        panic!(
            "{who} read none or several of {:?}: {errors:?}\n{}",
            self.allowed,
            history.join("\n")
        );
    }
}

fn simulate(seed: u64) {
    let mut random = Random::new(seed);
    let personality = Personality {
        delete_missing: *random.pick(&[DeleteMissing::Success, DeleteMissing::KeyNotFound]),
        retrieve_length: *random.pick(&[RetrieveLength::Exact, RetrieveLength::Zero]),
        exist: !random.one_in(4),
        ..Personality::default()
    };
    let bench = Bench::new(personality);
    let namespace = &bench.rig.namespace;
    let sizes = [INLINE, INLINE, CHUNKED, CHUNKED, VALUE + 1];
    let versions = sizes.iter().zip(0..).map(|(&size, n)| payload(size, n)).collect();
    let mut model = Model { versions, allowed: Vec::new(), stored: false };
    let mut history = vec![format!("seed {seed}, {}", namespace.personality())];

    // Holes and several roots to begin with.
    for slot in 0..random.below(4) as u32 {
        if !random.one_in(3) {
            let version = random.below(sizes.len() as u64) as usize;
            bench.places.put_object(&bench.rig, slot, &model.versions[version]);
            history.push(format!("slot {slot} holds version {version}"));
            if !model.stored {
                (model.stored, model.allowed) = (true, vec![version]);
            }
        }
    }

    let mut device = bench.rig.open();
    for _ in 0..12 {
        match random.below(8) {
            0 => {
                bench.settle();
                history.push("settled".to_string());
            }
            1 => {
                let released = namespace.release_late();
                history.push(format!("released {released}"));
            }
            2 => {
                // What a dead process left in flight is done when the next one opens.
                bench.settle();
                device = bench.rig.open();
                history.push("reopened".to_string());
            }
            _ => {
                let version = random.below(sizes.len() as u64) as usize;
                let mut faults = Vec::new();
                for _ in 0..random.below(3) {
                    let kinds = [Opcode::Store, Opcode::Delete, Opcode::Store, Opcode::Delete];
                    let kind = if random.one_in(6) { None } else { Some(*random.pick(&kinds)) };
                    let nth = 1 + random.below(6);
                    let again = 1 + random.below(2);
                    for nth in nth..nth + again {
                        let after = *random.pick(&[0, 1, 2, 5, 20, 200, u64::MAX]);
                        let effects =
                            [NEVER, Effect::ExecutedNoAnswer, Effect::LateNoAnswer { after }];
                        let effect = *random.pick(&effects);
                        faults.push(format!("{nth}. {kind:?} {effect:?}"));
                        let on = Trigger { kind, nth, key: None };
                        namespace.script(Fault { on, effect });
                    }
                }
                let result = device.put(KEY, &model.versions[version]);
                namespace.clear_faults();
                let outcome = result.as_ref().map_or_else(ToString::to_string, |stored| {
                    format!("stored{}", if stored.already { " already" } else { "" })
                });
                history.push(format!("offload of version {version}, {faults:?}: {outcome}"));
                model.wrote(version, &result);
            }
        }
        history.push(format!("  {:?}", bench.places.on_device(&bench.rig)));
        model.check(&device, "the same backend", &history);
        model.check(&bench.rig.open(), "a fresh backend", &history);
    }

    bench.settle();
    let last = random.below(sizes.len() as u64) as usize;
    let result = device.put(KEY, &model.versions[last]);
    assert!(result.is_ok(), "{result:?}\n{}", history.join("\n"));
    model.wrote(last, &result);
    model.check(&device, "the same backend", &history);
    model.check(&bench.rig.open(), "a fresh backend", &history);
    let pieces = bench.places.on_device(&bench.rig);
    let roots = pieces.iter().filter(|piece| matches!(piece, Piece::Root(_))).count();
    assert_eq!(roots, 1, "{pieces:?}\n{}", history.join("\n"));
}

const NEVER: Effect = Effect::NotExecutedNoAnswer;
const DONE: Effect = Effect::ExecutedNoAnswer;
/// Executed when the test says so.
const LATE: Effect = Effect::LateNoAnswer { after: u64::MAX };

fn chunked(version: u64) -> Vec<u8> {
    payload(CHUNKED, version)
}

#[track_caller]
fn assert_either_version(result: Result<Stored>) {
    let error = result.expect_err("a root without an answer");
    assert_eq!(error.code(), ErrorCode::FileWriteFail);
    assert!(text(&error).contains("either version"), "{error}");
}

#[track_caller]
fn assert_refused(result: Result<Stored>) {
    let error = result.expect_err("a slot that may still be taken");
    assert_eq!(error.code(), ErrorCode::InvalidRead);
    assert!(text(&error).contains("may still appear"), "{error}");
}

#[test]
fn a_root_without_an_answer_keeps_its_slot_until_the_device_can_no_longer_store_it() {
    for effect in [NEVER, DONE, LATE] {
        for (first, second) in [(payload(INLINE, 1), payload(INLINE, 2)), (chunked(1), chunked(2))]
        {
            let bench = Bench::new(Personality::default());
            let device = bench.rig.open();
            bench.lose(Opcode::Store, Piece::Root(0), effect, 2);
            assert_either_version(device.put(KEY, &first));
            if effect == DONE {
                bench.expect(&device, &first);
                assert!(device.put(KEY, &first).unwrap().already);
            } else {
                assert!(!device.backend.exists(KEY).unwrap());
                assert_refused(device.put(KEY, &first));
            }
            assert_refused(device.put(KEY, &second));
            bench.millis.fetch_add(29_999, Ordering::Relaxed);
            assert_refused(device.put(KEY, &second));
            bench.settle();
            assert_eq!(device.backend.exists(KEY).unwrap(), effect != NEVER);
            if effect != NEVER {
                bench.expect(&device, &first);
            }
            assert!(!device.put(KEY, &second).unwrap().already);
            bench.expect(&device, &second);
            let pieces = bench.places.on_device(&bench.rig);
            let slot = u32::from(effect != NEVER || second.len() > INLINE);
            let orphans: Vec<_> = match effect {
                // Chunks of a root that never came: kept for it, and nobody's afterwards.
                NEVER => {
                    pieces.iter().copied().filter(|piece| piece.slot() == 0 && slot == 1).collect()
                }
                _ => Vec::new(),
            };
            assert!(!orphans.contains(&Piece::Root(0)));
            bench.expect_pieces(slot, second.len(), &orphans);
        }
    }
}

#[test]
fn a_version_above_a_slot_where_a_failed_one_may_appear_is_not_acknowledged_again() {
    let bench = Bench::new(Personality::default());
    let (old, new) = (chunked(1), chunked(2));
    bench.places.put_object(&bench.rig, 1, &old);
    let device = bench.rig.open();
    bench.lose(Opcode::Store, Piece::Root(0), LATE, 2);
    assert_either_version(device.put(KEY, &new));
    bench.expect(&device, &old);
    assert_refused(device.put(KEY, &old));
    assert_eq!(bench.rig.namespace.release_late(), 2);
    bench.rig.open().expect(KEY, &new);
    bench.settle();
    assert!(!device.put(KEY, &old).unwrap().already);
    bench.expect(&device, &old);
    bench.expect_pieces(1, CHUNKED, &[]);
}

#[test]
fn a_refused_write_leaves_the_object_readable() {
    let bench = Bench::new(Personality::default());
    let (old, new) = (chunked(1), payload(INLINE, 2));
    bench.places.put_object(&bench.rig, 1, &old);
    let device = bench.rig.open();
    device.expect(KEY, &old);
    bench.lose(Opcode::Store, Piece::Root(0), LATE, 2);
    assert_either_version(device.put(KEY, &new));
    bench.rig.namespace.release_late();
    // The failed version hides the old one now; both are still whole.
    assert_refused(device.put(KEY, &old));
    bench.expect(&device, &new);
    let both: Vec<_> = bench.places.object(0, INLINE).into_iter().collect();
    bench.expect_pieces(1, CHUNKED, &both);
}

#[test]
fn a_root_stored_twice_and_late_after_a_rewrite_stays_hidden() {
    let bench = Bench::new(Personality::default());
    let versions: Vec<_> = (0..4).map(chunked).collect();
    let device = bench.rig.open();
    device.put(KEY, &versions[0]).unwrap();
    bench.lose(Opcode::Store, Piece::Root(1), LATE, 1);
    device.put(KEY, &versions[1]).unwrap();
    bench.expect_pieces(1, CHUNKED, &[]);
    device.put(KEY, &versions[2]).unwrap();
    bench.expect_pieces(0, CHUNKED, &[]);
    assert_eq!(bench.rig.namespace.release_late(), 1);
    bench.expect_pieces(0, CHUNKED, &[Piece::Root(1)]);
    bench.expect(&device, &versions[2]);
    // The lowest free slot is above it: the next version waits.
    assert_refused(device.put(KEY, &versions[3]));
    bench.expect(&device, &versions[2]);
    bench.settle();
    device.put(KEY, &versions[3]).unwrap();
    bench.expect(&device, &versions[3]);
    bench.expect_pieces(1, CHUNKED, &[]);
}

#[test]
fn the_version_whose_delete_had_no_answer_is_not_taken_for_a_good_copy() {
    for again in 0..2 {
        let bench = Bench::new(Personality::default());
        let versions = [chunked(1), chunked(2)];
        let device = bench.rig.open();
        device.put(KEY, &versions[0]).unwrap();
        bench.lose(Opcode::Delete, Piece::Root(0), LATE, 2);
        let error = device.put(KEY, &versions[1]).unwrap_err();
        assert!(text(&error).contains("either version"), "{error}");
        device.put(KEY, &versions[again]).unwrap();
        bench.expect(&device, &versions[again]);
        assert_eq!(bench.rig.namespace.release_late(), 2);
        bench.expect(&device, &versions[again]);
        bench.expect_pieces(2 - again as u32, CHUNKED, &[]);
        bench.settle();
        device.put(KEY, &versions[1 - again]).unwrap();
        bench.expect(&device, &versions[1 - again]);
        bench.expect_pieces(0, CHUNKED, &[]);
    }
}

#[test]
fn a_version_with_a_pending_delete_is_not_all_that_is_left_while_its_successor_is_stored() {
    let bench = Bench::new(Personality::default());
    let versions = [chunked(1), chunked(2), chunked(3)];
    let device = bench.rig.open();
    device.put(KEY, &versions[0]).unwrap();
    bench.lose(Opcode::Delete, Piece::Root(0), LATE, 2);
    assert!(device.put(KEY, &versions[1]).is_err());
    // The next write dies before it has stored its root; the late Deletes are executed.
    bench.lose(Opcode::Store, Piece::Root(2), NEVER, 2);
    assert_either_version(device.put(KEY, &versions[2]));
    bench.rig.namespace.release_late();
    bench.expect(&device, &versions[1]);
}

#[test]
fn a_living_backend_sees_the_version_that_a_late_delete_uncovers() {
    let bench = Bench::new(Personality::default());
    let (old, new) = (payload(INLINE, 1), chunked(2));
    let device = bench.rig.open();
    device.put(KEY, &old).unwrap();
    bench.lose(Opcode::Delete, Piece::Root(0), LATE, 2);
    assert!(device.put(KEY, &new).is_err());
    bench.expect(&device, &old);
    bench.rig.namespace.release_late();
    bench.expect(&device, &new);
    assert_eq!(device.get(KEY, INLINE).unwrap_err().code(), ErrorCode::FileReadFail);
}

#[test]
fn a_root_that_appears_late_is_found_though_its_absence_was_seen_before() {
    let bench = Bench::new(Personality::default());
    let bytes = chunked(1);
    let device = bench.rig.open();
    assert!(device.backend.index_is_complete());
    bench.lose(Opcode::Store, Piece::Root(0), LATE, 2);
    assert_either_version(device.put(KEY, &bytes));
    assert_eq!(device.get(KEY, CHUNKED).unwrap_err().code(), ErrorCode::ObjectNotFound);
    assert!(!device.backend.exists(KEY).unwrap());
    bench.rig.namespace.release_late();
    assert!(device.backend.exists(KEY).unwrap());
    bench.expect(&device, &bytes);
}

#[test]
fn a_failed_look_at_the_device_does_not_end_a_quarantine() {
    let bench = Bench::new(Personality::default());
    let (old, new, newer) = (chunked(1), chunked(2), chunked(3));
    bench.places.put_object(&bench.rig, 1, &old);
    let device = bench.rig.open();
    bench.lose(Opcode::Store, Piece::Root(0), LATE, 2);
    assert_either_version(device.put(KEY, &new));
    device.expect(KEY, &old);
    bench.settle();
    for (kind, slot) in [(Opcode::Retrieve, 0), (Opcode::Exist, 0), (Opcode::Exist, 1)] {
        bench.lose(kind, Piece::Root(slot), NEVER, 1);
    }
    assert!(device.put(KEY, &newer).is_err());
    bench.rig.namespace.clear_faults();
    device.put(KEY, &newer).unwrap();
    bench.expect(&device, &newer);
    bench.expect_pieces(1, CHUNKED, &[]);
}

#[test]
fn a_chunk_stored_late_is_an_orphan_that_no_version_takes_for_its_own() {
    let bench = Bench::new(Personality::default());
    let versions: Vec<_> = (0..4).map(chunked).collect();
    let device = bench.rig.open();
    device.put(KEY, &versions[0]).unwrap();
    bench.lose(Opcode::Store, Piece::Chunk(1, 1), LATE, 1);
    device.put(KEY, &versions[1]).unwrap();
    device.put(KEY, &versions[2]).unwrap();
    bench.expect_pieces(0, CHUNKED, &[]);
    assert_eq!(bench.rig.namespace.release_late(), 1);
    bench.expect_pieces(0, CHUNKED, &[Piece::Chunk(1, 1)]);
    // Other bytes: the next version goes elsewhere.
    device.put(KEY, &versions[3]).unwrap();
    bench.expect(&device, &versions[3]);
    bench.expect_pieces(2, CHUNKED, &[Piece::Chunk(1, 1)]);
    device.put(KEY, &versions[0]).unwrap();
    bench.expect_pieces(0, CHUNKED, &[Piece::Chunk(1, 1)]);
    // Its own bytes: accepted.
    device.put(KEY, &versions[1]).unwrap();
    bench.expect(&device, &versions[1]);
    bench.expect_pieces(1, CHUNKED, &[]);
}

#[test]
fn chunks_whose_delete_had_no_answer_keep_their_slot_from_being_used() {
    for times in [1, 2] {
        let bench = Bench::new(Personality::default());
        let versions: Vec<_> = (0..4).map(chunked).collect();
        let device = bench.rig.open();
        device.put(KEY, &versions[0]).unwrap();
        bench.lose(Opcode::Delete, Piece::Chunk(0, 1), LATE, times);
        device.put(KEY, &versions[1]).unwrap();
        device.put(KEY, &versions[2]).unwrap();
        let orphan = [Piece::Chunk(0, 1)];
        bench.expect_pieces(2, CHUNKED, &orphan[..times as usize - 1]);
        assert_eq!(bench.rig.namespace.release_late(), times as usize);
        bench.expect(&device, &versions[2]);
        bench.settle();
        device.put(KEY, &versions[3]).unwrap();
        bench.expect(&device, &versions[3]);
        bench.expect_pieces(0, CHUNKED, &[]);
    }
}

#[test]
fn a_purge_without_an_answer_fails_the_write_and_is_done_again() {
    let bench = Bench::new(Personality::default());
    let (visible, hidden) = (chunked(1), chunked(2));
    bench.places.put_object(&bench.rig, 0, &visible);
    bench.places.put_object(&bench.rig, 2, &hidden);
    let device = bench.rig.open();
    bench.lose(Opcode::Delete, Piece::Root(2), LATE, 2);
    assert!(device.put(KEY, &hidden).is_err());
    bench.expect(&device, &visible);
    device.put(KEY, &hidden).unwrap();
    bench.expect(&device, &hidden);
    assert_eq!(bench.rig.namespace.release_late(), 2);
    bench.expect(&device, &hidden);
    bench.expect_pieces(1, CHUNKED, &[]);
}

#[test]
fn no_sequence_of_lost_and_late_commands_shows_a_version_that_was_replaced() {
    let mut seeds = Random::new(seed());
    for _ in 0..200 {
        simulate(seeds.next());
    }
}
