//! A process that is killed while it offloads to a namespace in a directory.
//!
//! The child is this test binary again, running the ignored test at the end. It says what it
//! begins and what was acknowledged; the parent kills it and takes account.

mod support;

use std::collections::BTreeMap;
use std::env;
use std::io::{BufRead, BufReader, Write, stdout};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;

use mooncake_nvme_kv::ErrorCode;
use nvme_kv_emulator::Personality;

use support::characters::small_values;
use support::places::{Piece, Places};
use support::random::Random;
use support::{Device, Rig, payload, seed};

const CHILD: &str = "child_process_of_the_other_test";
const DIRECTORY: &str = "MNKV_TEST_DIRECTORY";
const CHILD_SEED: &str = "MNKV_TEST_SEED";

const KILLS: u64 = 8;
/// Threads of the child, each with keys of its own, so that the order of versions is known.
const THREADS: u64 = 3;
const KEYS_PER_THREAD: u64 = 3;
/// Versions that a child writes with one thread should nobody kill it.
const VERSIONS: u64 = 5000;
/// Inline, and one to four chunks.
const SIZES: [usize; 5] = [40, 4000, 8193, 16_484, 32_768];

fn rig(directory: &Path) -> Rig {
    let path = directory.to_str().expect("a path of text");
    Rig::at(path, Personality::default(), small_values)
}

fn name(key: u64) -> Vec<u8> {
    format!("tenant\0object {key}").into_bytes()
}

/// A version; size and bytes follow from its number.
fn bytes_of(key: u64, version: u64) -> Vec<u8> {
    let mut random = Random::new(version << 8 | key);
    let len = *random.pick(&SIZES);
    payload(len, random.next())
}

/// Offloads new versions until killed.
fn offload_until_killed(directory: &str, seed: u64) {
    let say = |line: String| {
        let mut out = stdout().lock();
        out.write_all(line.as_bytes()).and_then(|()| out.flush()).expect("the parent listens");
    };
    // The test harness has written the beginning of a line.
    say("\nopening\n".into());
    let rig = rig(Path::new(directory));
    let device = rig.open();
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let (device, say) = (&device, &say);
            scope.spawn(move || {
                let mut random = Random::new(seed ^ thread << 56);
                for count in 0..VERSIONS {
                    let key = thread * KEYS_PER_THREAD + random.below(KEYS_PER_THREAD);
                    let version = seed % (1 << 32) + count;
                    say(format!("begin {key} {version}\n"));
                    match device.put(&name(key), &bytes_of(key, version)) {
                        Ok(_) => say(format!("stored {key} {version}\n")),
                        Err(error) => say(format!("failed {error}\n")),
                    }
                }
            });
        }
    });
}

/// What may be stored under a key: what was acknowledged last, and what was begun since.
#[derive(Clone, Copy, Debug, Default)]
struct Account {
    acknowledged: Option<u64>,
    begun: Option<u64>,
}

/// Kills the child after so many of its lines, a little later, and takes account of every line
/// that it had written by then.
fn kill_after(mut child: Child, lines: u64, spins: u64, accounts: &mut BTreeMap<u64, Account>) {
    let mut seen = 0;
    for line in BufReader::new(child.stdout.take().expect("a pipe")).lines() {
        let line = line.expect("lines of text");
        assert!(!line.starts_with("failed"), "the child: {line}");
        let words: Vec<&str> = line.split(' ').collect();
        let [what @ ("begin" | "stored"), key, version] = words[..] else { continue };
        // A line is one write of less than PIPE_BUF bytes: it is there or it is not.
        let (key, version) = (key.parse().expect("a key"), version.parse().expect("a version"));
        let account = accounts.entry(key).or_default();
        if what == "stored" {
            *account = Account { acknowledged: Some(version), begun: None };
        } else {
            account.begun = Some(version);
        }
        seen += 1;
        if seen == lines {
            (0..spins).for_each(|_| std::hint::spin_loop());
            child.kill().expect("the child runs");
        }
    }
    assert!(seen >= lines, "the child ended by itself");
    assert!(!child.wait().expect("its end").success());
}

fn spawn(directory: &Path, seed: u64) -> Child {
    Command::new(env::current_exe().expect("this program"))
        .args(["--exact", CHILD, "--ignored", "--nocapture", "--test-threads=1"])
        .env(DIRECTORY, directory)
        .env(CHILD_SEED, seed.to_string())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the child starts")
}

/// The version stored under `key`, which is one of the account, whole.
fn version_of(device: &Device, key: u64, account: Account) -> Option<u64> {
    for version in [account.begun, account.acknowledged].into_iter().flatten() {
        let expected = bytes_of(key, version);
        match device.get(&name(key), expected.len()) {
            Ok(bytes) if bytes == expected => return Some(version),
            Ok(bytes) => {
                let other = account.acknowledged.map(|version| bytes_of(key, version));
                assert!(other == Some(bytes), "key {key}: wrong bytes");
            }
            Err(error) => {
                let absent = error.code() == ErrorCode::ObjectNotFound;
                let size = error.to_string().contains("were wanted");
                assert!(absent || size, "key {key}: {error}");
            }
        }
    }
    None
}

/// A directory that is removed in the end.
struct Scratch(PathBuf);

impl Drop for Scratch {
    fn drop(&mut self) {
        // What cannot be removed stays in the build directory.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn kill_9_at_any_moment_loses_no_acknowledged_object_and_mixes_none() {
    let seed = seed();
    let mut random = Random::new(seed);
    let scratch = format!("kill9-{}", std::process::id());
    let scratch = Scratch(Path::new(env!("CARGO_TARGET_TMPDIR")).join(scratch));
    let mut accounts = BTreeMap::new();
    let mut interrupted = 0;
    for _ in 0..KILLS {
        let child = spawn(&scratch.0, random.next());
        let (lines, spins) = (5 + random.below(80), random.below(400_000));
        kill_after(child, lines, spins, &mut accounts);

        let rig = rig(&scratch.0);
        let device = rig.open();
        let mut found = 0;
        for (&key, account) in &mut accounts {
            let version = version_of(&device, key, *account);
            assert!(version.is_some() || account.acknowledged.is_none(), "key {key} is lost");
            assert_eq!(device.backend.exists(&name(key)).unwrap(), version.is_some());
            interrupted += u64::from(account.begun.is_some());
            // The interrupted offload again, or a repetition.
            let version = account.begun.or(account.acknowledged).expect("something was begun");
            let bytes = bytes_of(key, version);
            device.put(&name(key), &bytes).expect("an offload after a crash succeeds");
            device.expect(&name(key), &bytes);
            *account = Account { acknowledged: Some(version), begun: None };

            let places = Places::new(&rig, &name(key), 4);
            let keys = rig.namespace.keys();
            let pieces: Vec<Piece> = keys.iter().filter_map(|key| places.piece(key)).collect();
            let roots = pieces.iter().filter(|piece| matches!(piece, Piece::Root(_))).count();
            assert_eq!(roots, 1, "key {key}: {pieces:?}");
            found += pieces.len();
        }
        assert_eq!(rig.value_count(), found, "every value belongs to a key");
        let fresh = rig.open();
        for (&key, account) in &accounts {
            fresh.expect(&name(key), &bytes_of(key, account.acknowledged.unwrap()));
        }
    }
    println!("{KILLS} kills, {interrupted} offloads interrupted");
    assert!(interrupted > 0, "some offload was interrupted");
}

#[test]
#[ignore = "run by the other test, in a process of its own"]
fn child_process_of_the_other_test() {
    let Ok(directory) = env::var(DIRECTORY) else { return };
    let seed = env::var(CHILD_SEED).expect("a seed").parse().expect("a number");
    offload_until_killed(&directory, seed);
}
