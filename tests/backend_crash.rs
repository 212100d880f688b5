//! A crash at every command of a write, and commands without an answer at every one of them.
//!
//! One run a command index: the command is the last one of a dying process, or the first one that
//! never arrives, or it arrives after the next process has opened the device; or the process lives
//! on without its answer. The old version is readable or the new one, whole; a repeated offload
//! succeeds, and leaves on the device one object and exactly those orphans that the rules allow.

mod support;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use mooncake_nvme_kv::ErrorCode;
use mooncake_nvme_kv::device::CommandError;
use mooncake_nvme_kv::device::fault::{Effect as HostEffect, Kind};
use nvme_kv_command_set::Opcode;
use nvme_kv_emulator::{Effect, Fault, Personality, Trigger};

use support::characters::{Character, characters, small_values};
use support::places::{Piece, Places};
use support::{Device, Rig, manual_clock, payload};

const KEY: &[u8] = b"tenant\0object";
const LATE: Effect = Effect::LateNoAnswer { after: u64::MAX };

/// Sizes by shape; the chunked ones depend on the largest value of the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Size {
    Inline,
    /// Two whole chunks.
    Two,
    /// Two chunks and 100 bytes.
    TwoAndMore,
    /// Three chunks and 5 bytes.
    Large,
}

use Size::{Inline, Large, Two, TwoAndMore};

/// A version: its bytes follow from size and number.
type Version = (Size, u64);

struct Scenario {
    name: &'static str,
    /// Objects on the device, by slot; the lowest is what readers see.
    roots: &'static [(u32, Version)],
    /// Chunks on the device without a root, by slot and index, taken from a version.
    orphans: &'static [(u32, u32, Version)],
    /// What is offloaded.
    new: Version,
}

const SCENARIOS: &[Scenario] = &[
    Scenario { name: "offload inline", roots: &[], orphans: &[], new: (Inline, 1) },
    Scenario { name: "offload chunked", roots: &[], orphans: &[], new: (TwoAndMore, 1) },
    Scenario {
        name: "offload again, inline",
        roots: &[(0, (Inline, 1))],
        orphans: &[],
        new: (Inline, 1),
    },
    Scenario {
        name: "offload again, chunked",
        roots: &[(0, (Two, 1))],
        orphans: &[],
        new: (Two, 1),
    },
    Scenario {
        name: "rewrite, inline to inline",
        roots: &[(0, (Inline, 1))],
        orphans: &[],
        new: (Inline, 2),
    },
    Scenario {
        name: "rewrite, inline to chunked",
        roots: &[(0, (Inline, 1))],
        orphans: &[],
        new: (Two, 2),
    },
    Scenario {
        name: "rewrite, chunked to inline",
        roots: &[(0, (Two, 1))],
        orphans: &[],
        new: (Inline, 2),
    },
    Scenario { name: "rewrite to smaller", roots: &[(0, (Large, 1))], orphans: &[], new: (Two, 2) },
    Scenario {
        name: "rewrite to equal size",
        roots: &[(0, (TwoAndMore, 1))],
        orphans: &[],
        new: (TwoAndMore, 2),
    },
    Scenario { name: "rewrite to larger", roots: &[(0, (Two, 1))], orphans: &[], new: (Large, 2) },
    Scenario {
        name: "rewrite below the old version, with hidden roots and holes",
        roots: &[(1, (Two, 1)), (2, (Inline, 3)), (5, (TwoAndMore, 4))],
        orphans: &[],
        new: (TwoAndMore, 2),
    },
    Scenario {
        name: "rewrite as what is stored hidden, without holes",
        roots: &[(0, (Two, 1)), (1, (TwoAndMore, 2)), (2, (Inline, 3))],
        orphans: &[],
        new: (TwoAndMore, 2),
    },
    Scenario {
        name: "offload again, with hidden roots",
        roots: &[(1, (Two, 1)), (2, (TwoAndMore, 2)), (9, (Two, 3))],
        orphans: &[],
        new: (Two, 1),
    },
    Scenario {
        name: "rewrite past orphans, some of them equal",
        roots: &[(0, (Inline, 1))],
        orphans: &[(1, 0, (Two, 2)), (1, 1, (Two, 7)), (2, 1, (Two, 2))],
        new: (Two, 2),
    },
];

/// What a run does at its command.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Accident {
    /// The process dies; this command and all later ones are not sent.
    CrashBefore,
    /// The process dies; this command is executed later, at that moment.
    CrashAndLate(Moment),
    /// The process lives on; this command gets no answer, so many times.
    Unanswered(Effect, u64),
}

/// When a command of the dead process is executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Moment {
    /// The next process has opened the device.
    Reopened,
    /// The next process has loaded the object.
    Loaded,
    /// The next process has offloaded it again.
    Offloaded,
}

/// A kind of device, and where the key's values are on it.
struct Ground {
    character: Character,
    places: Places,
}

impl Ground {
    fn new(character: Character) -> Ground {
        let rig = Rig::with(character.personality.clone(), character.settings);
        Ground { character, places: Places::new(&rig, KEY, 5) }
    }
}

/// One device in the state in which a scenario begins.
struct Stage<'s> {
    name: String,
    scenario: &'s Scenario,
    rig: Rig,
    millis: Arc<std::sync::atomic::AtomicU64>,
    places: &'s Places,
    old: Option<Vec<u8>>,
    new: Vec<u8>,
    initial: BTreeSet<Piece>,
}

impl<'s> Stage<'s> {
    fn new(scenario: &'s Scenario, ground: &'s Ground) -> Stage<'s> {
        let Ground { character, places } = ground;
        let mut rig = Rig::with(character.personality.clone(), character.settings);
        let (millis, clock) = manual_clock();
        rig.parts.clock = clock;
        let value = rig.max_value_size() as usize;
        let bytes = |(size, number): Version| {
            let len = match size {
                Inline => 500,
                Two => 2 * value,
                TwoAndMore => 2 * value + 100,
                Large => 3 * value + 5,
            };
            payload(len, number)
        };
        for &(slot, version) in scenario.roots {
            places.put_object(&rig, slot, &bytes(version));
        }
        for &(slot, index, version) in scenario.orphans {
            let bytes = bytes(version);
            let chunk = bytes.chunks(value).nth(index as usize).expect("a chunk");
            places.put(&rig, Piece::Chunk(slot, index), chunk);
        }
        let name = format!("{}, on a device that is {}", scenario.name, character.name);
        let old = scenario.roots.first().map(|&(_, version)| bytes(version));
        let new = bytes(scenario.new);
        let initial = places.on_device(&rig);
        Stage { name, scenario, rig, millis, places, old, new, initial }
    }

    /// Reads old and new; exactly one of them is there, the new one if it was acknowledged.
    /// Nothing is there if nothing was before. Returns whether it is the new one.
    fn check(&self, device: &Device, acknowledged: bool, when: &str) -> bool {
        let name = &self.name;
        let new = match device.get(KEY, self.new.len()) {
            Ok(bytes) if bytes == self.new => true,
            Ok(bytes) => {
                assert!(self.old.as_ref() == Some(&bytes), "{name}, {when}: wrong bytes");
                false
            }
            Err(error) => {
                let absent = error.code() == ErrorCode::ObjectNotFound;
                let other_size = text_says_other_size(&error.to_string());
                assert!(absent || other_size, "{name}, {when}: {error}");
                false
            }
        };
        let same = self.old.as_ref() == Some(&self.new);
        if new && !same {
            if let Some(old) = self.old.as_ref().filter(|old| old.len() != self.new.len()) {
                assert!(device.get(KEY, old.len()).is_err(), "{name}, {when}: both versions");
            }
        } else if let Some(old) = &self.old {
            let loaded = device.get(KEY, old.len());
            assert!(loaded.as_ref().is_ok_and(|bytes| bytes == old), "{name}, {when}: {loaded:?}");
        }
        assert!(new || !acknowledged, "{name}, {when}: an acknowledged version is gone");
        let there = device.backend.exists(KEY).expect("Exist works");
        assert_eq!(there, new || self.old.is_some(), "{name}, {when}: exists");
        new
    }

    /// Offloads the new version, which succeeds, and compares what is on the device then.
    fn offload_again(&self, device: &Device, when: &str) {
        let name = &self.name;
        let before = self.places.on_device(&self.rig);
        let stored = device.put(KEY, &self.new);
        assert!(stored.is_ok(), "{name}, {when}: {stored:?}");
        let after = self.places.on_device(&self.rig);
        let roots: Vec<u32> = after.iter().filter_map(|piece| root_slot(*piece)).collect();
        let [slot] = roots[..] else { panic!("{name}, {when}: {after:?}") };
        // Chunks that no root claimed when the offload began, in other slots than its own.
        let mut expected = self.places.object(slot, self.new.len());
        let orphans = before.iter().copied().filter(|piece| {
            !before.contains(&Piece::Root(piece.slot())) && !expected.contains(piece)
        });
        let orphans: BTreeSet<Piece> = orphans.collect();
        // They were there before the first attempt: nothing of the new version is left over.
        assert!(orphans.is_subset(&self.initial), "{name}, {when}: {orphans:?}");
        expected.extend(&orphans);
        assert_eq!(after, expected, "{name}, {when}, before it {before:?}");
        if self.scenario.orphans.is_empty() {
            // At most what is left of one version whose root was deleted.
            let slots: BTreeSet<u32> = orphans.iter().map(|piece| piece.slot()).collect();
            assert!(slots.len() <= 1, "{name}, {when}: {orphans:?}");
        }
    }

    /// Lets an accident happen at command `index` of the offload; whether it was acknowledged.
    fn offload_with(&self, device: &Device, index: usize, accident: Accident) -> bool {
        let namespace = Arc::clone(&self.rig.namespace);
        let wire = self.places.wire;
        let mut seen = 0;
        device.faults.set_rule(move |kind, key| {
            let now = seen;
            seen += 1;
            let script = |effect, times| {
                let kind = Some(opcode(kind));
                let on = Trigger { kind, nth: 1, key: Some(wire.device_key(&key)) };
                (0..times).for_each(|_| namespace.script(Fault { on, effect }));
                HostEffect::Pass
            };
            match accident {
                Accident::CrashAndLate(_) if now == index => script(LATE, 1),
                Accident::Unanswered(effect, times) if now == index => script(effect, times),
                Accident::Unanswered(..) => HostEffect::Pass,
                _ if now < index => HostEffect::Pass,
                _ => HostEffect::Fail(CommandError::Unanswered("crashed")),
            }
        });
        let result = device.put(KEY, &self.new);
        device.faults.clear_rule();
        self.rig.namespace.clear_faults();
        result.is_ok()
    }

    fn settle(&self) {
        let timeout = self.rig.config.connector.command_timeout.as_millis() as u64;
        self.millis.fetch_add(timeout + 1, Ordering::Relaxed);
    }
}

fn text_says_other_size(error: &str) -> bool {
    error.contains("were wanted")
}

fn root_slot(piece: Piece) -> Option<u32> {
    match piece {
        Piece::Root(slot) => Some(slot),
        Piece::Chunk(..) => None,
    }
}

fn opcode(kind: Kind) -> Opcode {
    match kind {
        Kind::Store => Opcode::Store,
        Kind::Retrieve => Opcode::Retrieve,
        Kind::Delete => Opcode::Delete,
        Kind::Exist => Opcode::Exist,
    }
}

/// The commands that the offload of a scenario sends when nothing happens, in order.
fn trace(scenario: &Scenario, ground: &Ground) -> Vec<Kind> {
    let stage = Stage::new(scenario, ground);
    let device = stage.rig.open();
    let (sender, receiver) = std::sync::mpsc::channel();
    device.faults.set_rule(move |kind, _| {
        sender.send(kind).expect("the test listens");
        HostEffect::Pass
    });
    device.put(KEY, &stage.new).expect("nothing happens");
    device.faults.clear_rule();
    stage.check(&device, true, "undisturbed");
    receiver.try_iter().collect()
}

/// Indexes of the commands that change the device, of the first and of the last one.
fn changes(trace: &[Kind]) -> Vec<usize> {
    let changes = |index: &usize| matches!(trace[*index], Kind::Store | Kind::Delete);
    let mut indexes: Vec<usize> = (0..trace.len()).filter(changes).collect();
    indexes.extend([0, trace.len() - 1]);
    indexes.sort_unstable();
    indexes.dedup();
    indexes
}

fn crash(scenario: &Scenario, ground: &Ground, index: usize, accident: Accident) {
    let mut stage = Stage::new(scenario, ground);
    stage.name = format!("{}, {accident:?} at command {index}", stage.name);
    let acknowledged = {
        let device = stage.rig.open();
        stage.offload_with(&device, index, accident)
    };
    let device = stage.rig.open();
    let release = |moment| {
        if accident == Accident::CrashAndLate(moment) {
            stage.rig.namespace.release_late();
        }
    };
    release(Moment::Reopened);
    stage.check(&device, acknowledged, "after the crash");
    if accident == Accident::CrashAndLate(Moment::Loaded) {
        release(Moment::Loaded);
        stage.check(&stage.rig.open(), acknowledged, "after a late command");
        stage.check(&device, acknowledged, "after a late command, by who had loaded before");
    }
    stage.offload_again(&device, "after the crash");
    if accident == Accident::CrashAndLate(Moment::Offloaded) {
        // Nobody can know of it, so it may take a piece away; it cannot make bytes wrong.
        release(Moment::Offloaded);
        let late = stage.rig.open();
        match late.get(KEY, stage.new.len()) {
            Ok(bytes) => assert!(bytes == stage.new, "{}: wrong bytes", stage.name),
            Err(error) => assert!(
                matches!(error.code(), ErrorCode::ObjectNotFound | ErrorCode::FileReadFail),
                "{}: {error}",
                stage.name
            ),
        }
        assert!(late.put(KEY, &stage.new).is_ok(), "{}", stage.name);
        stage.check(&late, true, "repaired");
        return;
    }
    stage.check(&device, true, "offloaded again");
    stage.check(&stage.rig.open(), true, "offloaded again and opened again");
}

fn live_on(scenario: &Scenario, ground: &Ground, index: usize, effect: Effect, times: u64) {
    let mut stage = Stage::new(scenario, ground);
    stage.name = format!("{}, {times} {effect:?} at command {index}", stage.name);
    let device = stage.rig.open();
    let acknowledged = stage.offload_with(&device, index, Accident::Unanswered(effect, times));
    stage.check(&device, acknowledged, "without an answer");
    stage.check(&stage.rig.open(), acknowledged, "without an answer, opened again");
    if effect == LATE {
        stage.rig.namespace.release_late();
        stage.check(&device, acknowledged, "after the late command");
        stage.check(&stage.rig.open(), acknowledged, "after the late command, opened again");
    }
    // Refused, or good for ever.
    let again = device.put(KEY, &stage.new);
    match &again {
        Ok(_) => {}
        Err(error) => assert_eq!(error.code(), ErrorCode::InvalidRead, "{}", stage.name),
    }
    stage.check(&device, acknowledged || again.is_ok(), "tried again");
    stage.check(&stage.rig.open(), acknowledged || again.is_ok(), "tried again, opened again");
    stage.settle();
    stage.offload_again(&device, "after the settle time");
    stage.check(&device, true, "offloaded again");
    stage.check(&stage.rig.open(), true, "offloaded again and opened again");
}

fn kind() -> Ground {
    let personality = Personality::default();
    Ground::new(Character { name: "kind", personality, settings: small_values })
}

#[test]
fn a_crash_at_any_command_leaves_one_version_whole_and_an_offload_repairs_the_rest() {
    let ground = kind();
    for scenario in SCENARIOS {
        for index in 0..=trace(scenario, &ground).len() {
            crash(scenario, &ground, index, Accident::CrashBefore);
        }
    }
}

#[test]
fn a_crash_is_survived_on_every_kind_of_device() {
    for ground in characters().into_iter().map(Ground::new) {
        for scenario in SCENARIOS {
            for index in changes(&trace(scenario, &ground)) {
                crash(scenario, &ground, index, Accident::CrashBefore);
            }
        }
    }
}

/// The kindest device and a few that differ most from it.
fn some_grounds() -> Vec<Ground> {
    let names = ["kind", "has no Exist", "spec, reports no length", "unkind, no lengths"];
    let some = characters().into_iter().filter(|character| names.contains(&character.name));
    let some: Vec<_> = some.map(Ground::new).collect();
    assert_eq!(some.len(), names.len());
    some
}

#[test]
fn a_command_of_a_dead_process_that_is_executed_late_does_no_harm() {
    for ground in some_grounds() {
        let moments = match ground.character.name {
            "kind" => &[Moment::Reopened, Moment::Loaded, Moment::Offloaded][..],
            _ => &[Moment::Reopened, Moment::Offloaded],
        };
        for scenario in SCENARIOS {
            for index in changes(&trace(scenario, &ground)) {
                for &moment in moments {
                    crash(scenario, &ground, index, Accident::CrashAndLate(moment));
                }
            }
        }
    }
}

#[test]
fn a_command_without_an_answer_at_any_point_is_lived_through() {
    for ground in some_grounds() {
        let effects = match ground.character.name {
            "kind" => &[Effect::NotExecutedNoAnswer, Effect::ExecutedNoAnswer, LATE][..],
            _ => &[LATE],
        };
        for scenario in SCENARIOS {
            for index in changes(&trace(scenario, &ground)) {
                for &effect in effects {
                    for times in 1..=2 {
                        live_on(scenario, &ground, index, effect, times);
                    }
                }
            }
        }
    }
}

#[test]
fn a_search_without_an_answer_changes_nothing() {
    let ground = kind();
    for scenario in SCENARIOS {
        for (index, kind) in trace(scenario, &ground).into_iter().enumerate() {
            if matches!(kind, Kind::Retrieve | Kind::Exist) && index % 7 == 0 {
                let stage = Stage::new(scenario, &ground);
                let device = stage.rig.open();
                let lost = Accident::Unanswered(Effect::NotExecutedNoAnswer, 1);
                assert!(!stage.offload_with(&device, index, lost), "{}", stage.name);
                assert_eq!(stage.places.on_device(&stage.rig), stage.initial, "{}", stage.name);
                stage.check(&device, false, "after a search without an answer");
                stage.offload_again(&device, "after a search without an answer");
            }
        }
    }
}
