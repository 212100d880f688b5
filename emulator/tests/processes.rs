//! The file store and other processes: kill -9, and a second opener.
//!
//! The child is this test binary again, running the ignored test at the end.

mod common;

use std::{
    collections::HashMap,
    env,
    io::{BufRead, BufReader, Write, stdout},
    path::Path,
    process::{Child, Command as Process, Stdio},
    thread,
};

use common::*;
use nvme_kv_command_set::{Key, Status};
use nvme_kv_emulator::{Usage, open};
use tempfile::TempDir;

const CHILD: &str = "child_process_of_the_other_tests";
const DIRECTORY: &str = "MNKV_TEST_DIRECTORY";
const SEED: &str = "MNKV_TEST_SEED";

const THREADS: u64 = 4;

fn spawn(directory: &Path, seed: u64) -> Child {
    Process::new(env::current_exe().unwrap())
        .args(["--exact", CHILD, "--ignored", "--nocapture", "--test-threads=1"])
        .env(DIRECTORY, directory)
        .env(SEED, seed.to_string())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

/// A key; everything else about it follows from it.
fn key_of(seed: u64, thread: u64, index: u64) -> Key {
    Key::new(&Random::new(seed ^ thread << 48 ^ index << 24).bytes(16)).unwrap()
}

/// Mostly small values, some of up to 512 KiB.
fn value_of(key: &Key) -> Vec<u8> {
    let mut random = Random::new(u64::from_le_bytes(key.as_bytes()[..8].try_into().unwrap()));
    let largest = [1024, 65_536, 65_536, 524_288][random.below(4) as usize];
    let len = random.below(largest + 1) as usize;
    random.bytes(len)
}

fn hex(key: &Key) -> String {
    key.as_bytes().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Stores and sometimes deletes, printing what was acknowledged, until killed.
fn store_until_killed(directory: &str, seed: u64) {
    let say = |line: String| stdout().write_all(line.as_bytes()).unwrap();
    // The test harness has written the beginning of a line.
    say("\nopening\n".into());
    let namespace = match open(directory) {
        Ok(namespace) => namespace,
        Err(error) => return say(format!("error {error}\n")),
    };
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let namespace = &namespace;
            scope.spawn(move || {
                // A limit, should nobody kill it.
                for index in 0..2000 {
                    let key = key_of(seed, thread, index);
                    assert_eq!(store_if_absent(namespace, key, &value_of(&key)), Status::SUCCESS);
                    say(format!("stored {}\n", hex(&key)));
                    if index % 4 == 3 {
                        let old = key_of(seed, thread, index - 2);
                        say(format!("deleting {}\n", hex(&old)));
                        assert_eq!(status(submit_delete(namespace, old)), Status::SUCCESS);
                        say(format!("deleted {}\n", hex(&old)));
                    }
                }
            });
        }
    });
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Fate {
    Stored,
    Deleting,
    Deleted,
}

/// Reads the child's lines, kills it after so many of them, and takes account
/// of every line it had written by then.
fn kill_after(mut child: Child, lines: u64, fates: &mut HashMap<String, Fate>) {
    let mut seen = 0;
    for line in BufReader::new(child.stdout.take().unwrap()).lines() {
        let line = line.unwrap();
        let Some((what, key)) = line.split_once(' ') else { continue };
        let fate = match what {
            "stored" => Fate::Stored,
            "deleting" => Fate::Deleting,
            "deleted" => Fate::Deleted,
            "error" => panic!("the child failed: {line}"),
            _ => continue,
        };
        fates.insert(key.into(), fate);
        seen += 1;
        if seen == lines {
            child.kill().unwrap();
        }
    }
    assert!(seen >= lines, "the child ended by itself");
    assert!(!child.wait().unwrap().success());
}

#[test]
fn kill_9_at_any_moment_loses_no_acknowledged_store() {
    let mut random = Random::for_test("kill_9_at_any_moment");
    let directory = TempDir::new().unwrap();
    let mut fates = HashMap::new();
    let mut nguid = None;
    for round in 0..10 {
        let child = spawn(directory.path(), random.next());
        // One child lives long enough to fill the engine's write buffer
        // (64 MiB), and may die while it is flushed.
        let least = if round == 6 { 900 } else { 1 };
        kill_after(child, least + random.below(400), &mut fates);

        let namespace = open(directory.path().to_str().unwrap()).unwrap();
        assert_eq!(*nguid.get_or_insert(namespace.nguid()), namespace.nguid());
        let keys = namespace.keys();
        let mut bytes = 0;
        for key in &keys {
            let value = namespace.peek(key).unwrap();
            bytes += value.len() as u64;
            // Also of a Store that was not acknowledged: whole or absent.
            assert!(value == value_of(key), "round {round}: {key:?} has other bytes");
            assert_ne!(fates.get(&hex(key)), Some(&Fate::Deleted), "round {round}: {key:?}");
        }
        assert_eq!(namespace.usage(), Usage { keys: keys.len() as u64, bytes });
        let present: HashMap<String, Key> = keys.iter().map(|key| (hex(key), *key)).collect();
        let stored: Vec<_> = fates.iter().filter(|(_, fate)| **fate == Fate::Stored).collect();
        for (key, _) in &stored {
            assert!(
                present.contains_key(*key),
                "round {round}: {key} was acknowledged and is lost"
            );
        }
        println!("round {round}: {} values acknowledged, {} there", stored.len(), keys.len());
    }
}

#[test]
fn kill_9_while_a_namespace_is_created_leaves_a_directory_that_opens() {
    for seed in 0..5 {
        let directory = TempDir::new().unwrap();
        let mut child = spawn(directory.path(), seed);
        let opening = BufReader::new(child.stdout.as_mut().unwrap())
            .lines()
            .any(|line| line.unwrap() == "opening");
        assert!(opening);
        child.kill().unwrap();
        child.wait().unwrap();
        let namespace = open(directory.path().to_str().unwrap()).unwrap();
        assert_eq!(store(&namespace, key("k"), b"v"), Status::SUCCESS);
    }
}

#[test]
fn a_second_process_is_told_who_has_the_directory_open() {
    let directory = TempDir::new().unwrap();
    let _namespace = open(directory.path().to_str().unwrap()).unwrap();
    let output = spawn(directory.path(), 0).wait_with_output().unwrap();
    let output = String::from_utf8(output.stdout).unwrap();
    let expected = format!(
        "error namespace directory {} is in use by process {}; \
         end that process or give another directory",
        directory.path().canonicalize().unwrap().display(),
        std::process::id()
    );
    assert!(output.contains(&expected), "{output}");
}

#[test]
#[ignore = "started as a child process by the other tests"]
fn child_process_of_the_other_tests() {
    // Without a directory somebody ran the ignored tests: nothing to do.
    if let (Ok(directory), Ok(seed)) = (env::var(DIRECTORY), env::var(SEED)) {
        store_until_killed(&directory, seed.parse().unwrap());
    }
}
