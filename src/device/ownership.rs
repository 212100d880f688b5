//! One owner per namespace, across processes and inside one.
//!
//! The namespace is named by its own identifier and not by a path, since one namespace has several
//! device nodes. The mark is an advisory lock on a file of that name, which the kernel releases
//! when its holder dies. It keeps instances of this library apart; Mooncake's C++ backend takes
//! no lock.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use crate::error::{Error, ErrorCode, Result};

/// Where lock files are, in order of preference: the first that can be written to is used.
const DIRECTORIES: [&str; 2] = ["/run/lock", "/tmp"];
/// Their folder there; everybody may lock.
const FOLDER: &str = "mooncake-nvme-kv";

/// Descriptors of all locks of this process, so that a forked child can close its copies.
static HELD: Mutex<Vec<RawFd>> = Mutex::new(Vec::new());

/// The right to change a namespace; given back when dropped.
#[derive(Debug)]
pub struct Ownership {
    file: File,
}

impl Ownership {
    /// Takes the namespace with this identity; `path` is how the caller calls it.
    ///
    /// # Errors
    /// FILE_LOCK_FAIL when somebody else has it, with who that is, or when the lock file cannot be
    /// made.
    pub fn take(identity: &str, path: &str) -> Result<Ownership> {
        let folder = folder().map_err(|error| {
            let message = format!("no folder for lock files in {DIRECTORIES:?}: {error}");
            Error::new(ErrorCode::FileLockFail, message)
        })?;
        Ownership::take_in(&folder, identity, path)
    }

    fn take_in(folder: &Path, identity: &str, path: &str) -> Result<Ownership> {
        let name = folder.join(format!("{identity}.lock"));
        let failed = |error: &std::io::Error| {
            let message = format!("lock file {} of {path}: {error}", name.display());
            Error::new(ErrorCode::FileLockFail, message)
        };
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o666)
            .open(&name)
            .map_err(|error| failed(&error))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(fs::TryLockError::WouldBlock) => {
                let mut holder = String::new();
                // Only decoration: an unreadable name does not change the answer.
                let _ = file.read_to_string(&mut holder);
                let holder = holder.trim();
                let holder = if holder.is_empty() { "another process" } else { holder };
                return Err(Error::new(
                    ErrorCode::FileLockFail,
                    format!(
                        "{path} is owned by {holder} (lock {}): close it there, or open it \
                         with MOONCAKE_NVME_KV_ACCESS=read_only",
                        name.display()
                    ),
                ));
            }
            Err(fs::TryLockError::Error(error)) => return Err(failed(&error)),
        }
        let program = fs::read_to_string("/proc/self/comm").unwrap_or_default();
        let holder = format!("process {} ({})\n", std::process::id(), program.trim());
        let written = file
            .set_len(0)
            .and_then(|()| file.rewind())
            .and_then(|()| file.write_all(holder.as_bytes()));
        written.map_err(|error| failed(&error))?;
        held().push(file.as_raw_fd());
        Ok(Ownership { file })
    }
}

impl Drop for Ownership {
    fn drop(&mut self) {
        let descriptor = self.file.as_raw_fd();
        let mut held = held();
        held.retain(|other| *other != descriptor);
    }
}

fn held() -> std::sync::MutexGuard<'static, Vec<RawFd>> {
    HELD.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// The descriptors of all locks held, for a child that was forked from this process: it shares the
/// locks, and would keep them after its parent's death, unless it closes them.
pub fn held_descriptors() -> Vec<RawFd> {
    HELD.try_lock().map(|held| held.clone()).unwrap_or_default()
}

/// The folder, made if it is not there.
fn folder() -> std::io::Result<PathBuf> {
    let mut failure = None;
    for directory in DIRECTORIES {
        let folder = Path::new(directory).join(FOLDER);
        match fs::create_dir(&folder) {
            Ok(()) => {
                // Others may hold other namespaces; nobody may remove another's files.
                let _ = fs::set_permissions(&folder, fs::Permissions::from_mode(0o1777));
                return Ok(folder);
            }
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => return Ok(folder),
            Err(error) => failure = Some(error),
        }
    }
    Err(failure.unwrap_or_else(|| std::io::ErrorKind::NotFound.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_namespace_has_one_owner_and_the_message_says_who() {
        let folder = std::env::temp_dir().join(format!("mnkv-ownership-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let first = Ownership::take_in(&folder, "nguid-1", "/dev/ng0n1").unwrap();
        assert!(held_descriptors().contains(&first.file.as_raw_fd()));
        let error = Ownership::take_in(&folder, "nguid-1", "/dev/ng5n1").unwrap_err();
        assert_eq!(error.code(), ErrorCode::FileLockFail);
        let who = format!("process {}", std::process::id());
        assert!(
            error.message().contains(&who) && error.message().contains("/dev/ng5n1"),
            "{error}"
        );
        Ownership::take_in(&folder, "nguid-2", "/dev/ng0n2").unwrap();
        drop(first);
        Ownership::take_in(&folder, "nguid-1", "/dev/ng5n1").unwrap();
        fs::remove_dir_all(&folder).unwrap();
    }
}
