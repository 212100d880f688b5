//! Opening, sharing, closing and reopening namespaces.

mod common;

use std::{fs, path::Path, sync::Arc, thread};

use common::*;
use nvme_kv_command_set::Status;
use nvme_kv_emulator::{OpenError, Personality, Usage, forget, open, open_with};
use tempfile::TempDir;

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[test]
fn a_memory_namespace_lives_until_it_is_forgotten() {
    let first = open("mem:kept").unwrap();
    store(&first, key("k"), b"v");
    let nguid = first.nguid();
    drop(first);
    let again = open("mem:kept").unwrap();
    assert_eq!(again.nguid(), nguid);
    assert_eq!(again.peek(&key("k")).unwrap(), b"v");
    forget("kept");
    let new = open("mem:kept").unwrap();
    assert_ne!(new.nguid(), nguid);
    assert_eq!(new.keys(), []);
    assert_eq!(again.peek(&key("k")).unwrap(), b"v", "whoever holds it keeps it");
    forget("mem:kept");
    assert_ne!(open("mem:kept").unwrap().nguid(), new.nguid());
    forget("kept");
}

#[test]
fn opening_again_keeps_the_personality_and_open_with_changes_it() {
    let first = open_with("mem:changed", "exist=no".parse().unwrap()).unwrap();
    assert!(!open("mem:changed").unwrap().personality().exist);
    open_with("mem:changed", Personality::default()).unwrap();
    assert!(first.personality().exist);
    forget("changed");
}

#[test]
fn a_path_without_a_name_is_an_error() {
    for path in ["", "mem:"] {
        assert!(matches!(open(path), Err(OpenError::Name { .. })), "{path}");
    }
}

#[test]
fn a_directory_is_shared_by_all_its_spellings() {
    let directory = TempDir::new().unwrap();
    let first = open(text(directory.path())).unwrap();
    let second = open(text(&directory.path().join("."))).unwrap();
    assert!(Arc::ptr_eq(&first, &second));
}

#[test]
fn a_reopened_directory_has_its_values_its_usage_and_its_nguid() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("created/when/opened");
    let first = open(text(&path)).unwrap();
    let mut random = Random::new(3);
    let values: Vec<Vec<u8>> =
        [0, 1, 1023, 1024, 4096, 262_144, 524_288].map(|len| random.bytes(len)).into();
    for (index, value) in values.iter().enumerate() {
        assert_eq!(store(&first, key(&index.to_string()), value), Status::SUCCESS);
    }
    submit_delete(&first, key("0"));
    store(&first, key("1"), b"rewritten");
    let (nguid, usage, keys) = (first.nguid(), first.usage(), first.keys());
    assert_eq!(usage, Usage { keys: 6, bytes: 9 + 1023 + 1024 + 4096 + 262_144 + 524_288 });
    drop(first);

    let second = open(text(&path)).unwrap();
    assert_eq!((second.nguid(), second.usage(), second.keys()), (nguid, usage, keys));
    assert_eq!(second.peek(&key("0")), None);
    assert_eq!(second.peek(&key("1")).unwrap(), b"rewritten");
    for (index, value) in values.iter().enumerate().skip(2) {
        assert_eq!(second.peek(&key(&index.to_string())).as_ref(), Some(value));
    }
    assert_eq!(store_if_absent(&second, key("5"), b"new"), Status::KEY_EXISTS);
}

#[test]
fn capacity_counts_what_is_there_after_reopening() {
    let directory = TempDir::new().unwrap();
    let personality: Personality = "capacity=100".parse().unwrap();
    let first = open_with(text(directory.path()), personality.clone()).unwrap();
    assert_eq!(store(&first, key("a"), &[0; 60]), Status::SUCCESS);
    drop(first);
    let second = open_with(text(directory.path()), personality).unwrap();
    assert_eq!(store(&second, key("b"), &[0; 41]), Status::CAPACITY_EXCEEDED);
    assert_eq!(store(&second, key("b"), &[0; 40]), Status::SUCCESS);
}

#[test]
fn threads_that_open_and_close_one_directory_never_meet_a_lock() {
    let directory = TempDir::new().unwrap();
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..10 {
                    drop(open(text(directory.path())).unwrap());
                }
            });
        }
    });
}

#[test]
fn a_directory_with_something_else_in_it_is_left_alone() {
    let directory = TempDir::new().unwrap();
    fs::write(directory.path().join("thesis.txt"), "text").unwrap();
    let error = open(text(directory.path())).unwrap_err();
    assert!(matches!(error, OpenError::NotANamespace { .. }));
    assert!(error.to_string().contains(text(&directory.path().canonicalize().unwrap())));
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
}

#[test]
fn a_path_that_cannot_be_a_directory_is_an_error_naming_it() {
    let directory = TempDir::new().unwrap();
    let file = directory.path().join("file");
    fs::write(&file, "").unwrap();
    let error = open(text(&file)).unwrap_err();
    assert!(matches!(error, OpenError::Io { .. }));
    assert!(error.to_string().contains(text(&file)));
}

#[test]
fn another_format_version_is_refused() {
    let directory = TempDir::new().unwrap();
    drop(open(text(directory.path())).unwrap());
    {
        let database = fjall::Database::builder(directory.path().join("namespace")).open().unwrap();
        let identity = database.keyspace("identity", Default::default).unwrap();
        identity.insert("format", 2u32.to_le_bytes()).unwrap();
    }
    let error = open(text(directory.path())).unwrap_err();
    assert!(matches!(error, OpenError::Format { found: 2, expected: 1, .. }), "{error}");
}

#[test]
fn a_namespace_without_identity_is_damaged() {
    let directory = TempDir::new().unwrap();
    drop(open(text(directory.path())).unwrap());
    {
        let database = fjall::Database::builder(directory.path().join("namespace")).open().unwrap();
        let identity = database.keyspace("identity", Default::default).unwrap();
        identity.remove("nguid").unwrap();
    }
    let error = open(text(directory.path())).unwrap_err();
    assert!(error.to_string().contains("it has no NGUID"), "{error}");
}

#[test]
fn an_interrupted_creation_is_started_again() {
    let directory = TempDir::new().unwrap();
    let unfinished = directory.path().join("namespace.new");
    fs::create_dir(&unfinished).unwrap();
    fs::write(directory.path().join("lock"), "").unwrap();
    // A journal without its version marker: what a creation leaves half-way,
    // and what the engine itself refuses to create again.
    fs::write(unfinished.join("0.jnl"), "half").unwrap();
    let namespace = open(text(directory.path())).unwrap();
    assert_eq!(store(&namespace, key("k"), b"v"), Status::SUCCESS);
    assert!(!unfinished.exists());
}
