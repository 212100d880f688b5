//! Namespaces by path, shared inside the process.

use std::{
    collections::HashMap,
    fs::{self, File},
    io::{self, Read},
    path::{Path, PathBuf},
    sync::{Arc, Condvar, LazyLock, Mutex, PoisonError, Weak},
};

use crate::{
    namespace::Namespace,
    personality::Personality,
    store::{DirectoryError, FileStore, MemoryStore},
    sync::lock,
};

/// Why a namespace could not be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// A path without a name.
    #[error("\"{path}\" names no namespace: give mem:NAME or a directory")]
    Name {
        /// The path as given.
        path: String,
    },
    /// Another process has the directory open.
    #[error(
        "namespace directory {} is in use by process {holder}; \
         end that process or give another directory",
        path.display()
    )]
    InUse {
        /// The directory.
        path: PathBuf,
        /// Process that holds it, as far as it is known.
        holder: String,
    },
    /// The directory holds something else.
    #[error(
        "directory {} is not empty and holds no namespace; \
         give an empty or a new directory",
        path.display()
    )]
    NotANamespace {
        /// The directory.
        path: PathBuf,
    },
    /// The directory was written by another version.
    #[error(
        "namespace directory {} has format version {found}, expected {expected}; \
         open it with the version that wrote it",
        path.display()
    )]
    Format {
        /// The directory.
        path: PathBuf,
        /// Version in the directory.
        found: u32,
        /// Version that this crate reads and writes.
        expected: u32,
    },
    /// The directory lacks a part of a namespace.
    #[error("namespace directory {} is damaged: {what}; give another directory", path.display())]
    Damaged {
        /// The directory.
        path: PathBuf,
        /// What is wrong with it.
        what: String,
    },
    /// The operating system refused something.
    #[error("namespace {} cannot be opened: {source}", path.display())]
    Io {
        /// The path.
        path: PathBuf,
        /// Its answer.
        source: io::Error,
    },
    /// The storage engine could not open or recover its files.
    #[error("the database in namespace directory {} cannot be opened: {source}", path.display())]
    Database {
        /// The directory.
        path: PathBuf,
        /// The engine's error.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

/// Opens a namespace, creating it if it does not exist.
///
/// `mem:NAME` is a namespace in memory, kept by this process until [`forget`].
/// Anything else is a directory: kept on disk, and closed when the last
/// reference in this process is dropped. Opening the same path again gives the
/// same namespace. A new one has the default personality; one that is open
/// keeps the personality it has.
pub fn open(path: &str) -> Result<Arc<Namespace>, OpenError> {
    match path.strip_prefix("mem:") {
        Some("") => Err(OpenError::Name { path: path.into() }),
        None if path.is_empty() => Err(OpenError::Name { path: path.into() }),
        Some(name) => open_memory(name),
        None => open_directory(Path::new(path)),
    }
}

/// As [`open`], and sets the personality, also that of a namespace that is
/// open already.
pub fn open_with(path: &str, personality: Personality) -> Result<Arc<Namespace>, OpenError> {
    let namespace = open(path)?;
    namespace.set_personality(personality);
    Ok(namespace)
}

/// Drops the namespace `mem:NAME`; `name` with or without the `mem:`. Whoever
/// holds it keeps it, but the next [`open`] makes a new one, with another NGUID.
pub fn forget(name: &str) {
    let name = name.strip_prefix("mem:").unwrap_or(name);
    let forgotten = lock(&MEMORY).remove(name);
    // Its memory is freed after the registry's lock was released.
    drop(forgotten);
}

static MEMORY: LazyLock<Mutex<HashMap<String, Arc<Namespace>>>> = LazyLock::new(Mutex::default);

/// By canonical path. An entry whose namespace cannot be upgraded is closing.
static DIRECTORIES: LazyLock<Mutex<HashMap<PathBuf, Weak<Namespace>>>> =
    LazyLock::new(Mutex::default);

/// Signalled when a directory was closed.
static CLOSED: Condvar = Condvar::new();

/// Held by the namespace of a directory and dropped after its store: takes the
/// directory out of the registry once it is really closed.
pub(crate) struct Registration(PathBuf);

impl Drop for Registration {
    fn drop(&mut self) {
        lock(&DIRECTORIES).remove(&self.0);
        CLOSED.notify_all();
    }
}

fn open_memory(name: &str) -> Result<Arc<Namespace>, OpenError> {
    let mut open = lock(&MEMORY);
    if let Some(namespace) = open.get(name) {
        return Ok(namespace.clone());
    }
    let nguid = random_nguid().map_err(|source| io_error(Path::new(name), source))?;
    let namespace =
        Arc::new(Namespace::new(Box::new(MemoryStore::new()), nguid, Personality::default(), None));
    open.insert(name.into(), namespace.clone());
    Ok(namespace)
}

fn open_directory(path: &Path) -> Result<Arc<Namespace>, OpenError> {
    let path = fs::create_dir_all(path)
        .and_then(|()| path.canonicalize())
        .map_err(|source| io_error(path, source))?;
    let mut open = lock(&DIRECTORIES);
    while let Some(namespace) = open.get(&path) {
        match namespace.upgrade() {
            Some(namespace) => return Ok(namespace),
            None => open = CLOSED.wait(open).unwrap_or_else(PoisonError::into_inner),
        }
    }
    let store = random_nguid()
        .map_err(DirectoryError::Io)
        .and_then(|nguid| FileStore::open(&path, nguid))
        .map_err(|error| directory_error(&path, error))?;
    let nguid = store.nguid();
    let namespace = Arc::new(Namespace::new(
        Box::new(store),
        nguid,
        Personality::default(),
        Some(Registration(path.clone())),
    ));
    open.insert(path, Arc::downgrade(&namespace));
    Ok(namespace)
}

fn random_nguid() -> io::Result<[u8; 16]> {
    let mut nguid = [0; 16];
    File::open("/dev/urandom")?.read_exact(&mut nguid)?;
    Ok(nguid)
}

fn io_error(path: &Path, source: io::Error) -> OpenError {
    OpenError::Io { path: path.into(), source }
}

fn directory_error(path: &Path, error: DirectoryError) -> OpenError {
    let path = path.to_path_buf();
    match error {
        DirectoryError::InUse { holder } => OpenError::InUse { path, holder },
        DirectoryError::NotANamespace => OpenError::NotANamespace { path },
        DirectoryError::Format { found, expected } => OpenError::Format { path, found, expected },
        DirectoryError::Damaged { what } => OpenError::Damaged { path, what },
        DirectoryError::Io(source) => OpenError::Io { path, source },
        DirectoryError::Database(source) => OpenError::Database { path, source: source.into() },
    }
}
