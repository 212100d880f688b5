//! One owner per namespace, across processes and inside one.
//!
//! The namespace is named by its own identifier and not by a path, since one namespace has several
//! device nodes. The mark is an advisory lock on a file of that name, which the kernel releases
//! when its holder dies. It keeps instances of this library apart; Mooncake's C++ backend takes
//! no lock.

use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Read, Seek, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicI32, Ordering};

use crate::error::{Error, ErrorCode, Result};
use crate::log;

/// Where lock files are, in order of preference: the first that can be written to is used.
const DIRECTORIES: [&str; 2] = ["/run/lock", "/tmp"];
/// Their folder there; everybody may lock.
const FOLDER: &str = "mooncake-nvme-kv";

/// Namespaces that one process can own at once.
const MAX_HELD: usize = 1024;
/// A place of [`HELD`] that holds no descriptor.
const FREE: RawFd = -1;
/// Descriptors of all lock files of this process, so that a forked child can close its copies
/// without a lock and without memory.
static HELD: [AtomicI32; MAX_HELD] = [const { AtomicI32::new(FREE) }; MAX_HELD];

/// The right to change a namespace; given back when dropped.
#[derive(Debug)]
pub struct Ownership {
    file: Noted,
    /// The process that took it. A lock belongs to whoever has a copy of its descriptor, so that
    /// only the taker may give it back.
    owner: u32,
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
        let file = open(&name).map_err(|error| failed(&error))?;
        // Before it is locked: no child gets a locked copy that it does not know of.
        let noted = Noted::new(file)?;
        let mut file = &noted.0;
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
        // Only decoration: the lock is held all the same.
        if let Err(error) = written {
            log::warning!("lock file {}: cannot note its holder: {error}", name.display());
        }
        Ok(Ownership { file: noted, owner: std::process::id() })
    }
}

impl Drop for Ownership {
    fn drop(&mut self) {
        if self.owner == std::process::id() {
            // Ends the lock even if a child has a copy of the descriptor. Cannot fail on a
            // descriptor that is open, and the close ends the lock otherwise.
            let _ = self.file.0.unlock();
        }
    }
}

/// A lock file whose descriptor is in [`HELD`].
#[derive(Debug)]
struct Noted(File);

impl Noted {
    fn new(file: File) -> Result<Noted> {
        let descriptor = file.as_raw_fd();
        let noted = HELD.iter().any(|place| {
            place.compare_exchange(FREE, descriptor, Ordering::AcqRel, Ordering::Relaxed).is_ok()
        });
        if noted {
            return Ok(Noted(file));
        }
        Err(Error::new(
            ErrorCode::FileLockFail,
            format!("this process owns {MAX_HELD} namespaces, the most that are possible"),
        ))
    }
}

impl Drop for Noted {
    fn drop(&mut self) {
        let descriptor = self.0.as_raw_fd();
        HELD.iter().any(|place| {
            place.compare_exchange(descriptor, FREE, Ordering::AcqRel, Ordering::Relaxed).is_ok()
        });
    }
}

/// The descriptors of all lock files, to be closed by a child that was just forked: it shares the
/// locks, and would keep them after its parent's death. Forgets them. Safe in the child of a process
/// with threads: it takes no lock and no memory.
pub(crate) fn inherited_descriptors() -> impl Iterator<Item = RawFd> {
    let descriptors = HELD.iter().map(|place| place.swap(FREE, Ordering::AcqRel));
    descriptors.filter(|descriptor| *descriptor != FREE)
}

/// Opens a lock file, made if it is not there. Another user may have made it: a kernel that
/// protects files of others in sticky folders (sysctl fs.protected_regular) refuses to open
/// it with O_CREAT, and reading is enough for a lock.
fn open(name: &Path) -> std::io::Result<File> {
    let existing = || match OpenOptions::new().read(true).write(true).open(name) {
        Err(error) if error.kind() == ErrorKind::PermissionDenied => File::open(name),
        opened => opened,
    };
    match existing() {
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        opened => return opened,
    }
    match OpenOptions::new().read(true).write(true).create_new(true).open(name) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => existing(),
        Err(error) => Err(error),
        Ok(file) => {
            // Whatever the umask is: the next owner may be another user, who notes itself here.
            let _ = file.set_permissions(fs::Permissions::from_mode(0o666));
            Ok(file)
        }
    }
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
            Err(error) if error.kind() == ErrorKind::AlreadyExists => return Ok(folder),
            Err(error) => failure = Some(error),
        }
    }
    Err(failure.unwrap_or_else(|| ErrorKind::NotFound.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_namespace_has_one_owner_and_the_message_says_who() {
        let folder = std::env::temp_dir().join(format!("mnkv-ownership-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let first = Ownership::take_in(&folder, "nguid-1", "/dev/ng0n1").unwrap();
        let held =
            |descriptor| HELD.iter().any(|place| place.load(Ordering::Acquire) == descriptor);
        let descriptor = first.file.0.as_raw_fd();
        assert!(held(descriptor));
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

    #[test]
    fn another_user_may_take_a_lock_file_that_was_left() {
        let folder = std::env::temp_dir().join(format!("mnkv-lock-mode-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        drop(Ownership::take_in(&folder, "nguid", "/dev/ng0n1").unwrap());
        let name = folder.join("nguid.lock");
        assert_eq!(fs::metadata(&name).unwrap().permissions().mode() & 0o777, 0o666);
        // A file that can only be read is taken all the same (also by root, who may write it).
        fs::set_permissions(&name, fs::Permissions::from_mode(0o444)).unwrap();
        let owner = Ownership::take_in(&folder, "nguid", "/dev/ng0n1").unwrap();
        Ownership::take_in(&folder, "nguid", "/dev/ng0n1").unwrap_err();
        drop(owner);
        fs::remove_dir_all(&folder).unwrap();
    }
}
