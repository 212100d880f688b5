//! Values in a directory: a fjall database that survives `kill -9`.
//!
//! ```text
//! DIR/lock             held (flock) while a process has the namespace open
//! DIR/namespace/       the database, with two keyspaces:
//!   identity             "format" -> u32 LE, "nguid" -> 16 bytes
//!   values               key (1..=16 bytes) -> value; values of 1 KiB and more
//!                        go to blob files (key-value separation)
//! DIR/namespace.new/   a creation that a crash interrupted; removed at open
//! ```
//!
//! A command is answered after its journal record, checksummed and replayed
//! at open, was handed to the operating system. The end of the process at any
//! moment therefore loses nothing that was acknowledged. A power failure or a
//! crash of the operating system is outside this promise: it may lose the last
//! values, as a device with a volatile write cache would.

use std::{
    fs::{self, File, OpenOptions, TryLockError},
    io::{self, Read, Write},
    path::{Path, PathBuf},
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering},
    },
};

use fjall::{Database, Keyspace, KeyspaceCreateOptions, KvSeparationOptions, PersistMode};
use nvme_kv_command_set::{Key, StoreOptions};

use crate::{
    data::Payload,
    store::{
        PutError, Store, StoreFailure, Usage, Value, WalkOrder,
        accounting::{Accounting, Limits},
        check_options,
        shards::{SHARDS, Shards, shard_of},
    },
    sync::lock,
};

/// Version of the directory's content.
const FORMAT: u32 = 1;

/// Why a directory could not be opened as a namespace.
#[derive(Debug)]
pub(crate) enum DirectoryError {
    InUse { holder: String },
    NotANamespace,
    Format { found: u32, expected: u32 },
    Damaged { what: String },
    Io(io::Error),
    Database(fjall::Error),
}

impl From<io::Error> for DirectoryError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl From<fjall::Error> for DirectoryError {
    fn from(error: fjall::Error) -> Self {
        Self::Database(error)
    }
}

/// Write buffer in bytes; about four times this is the memory in use.
const WRITE_BUFFER: u64 = 64 * 1024 * 1024;

/// Fields are dropped in this order: the lock is released last.
pub(crate) struct FileStore {
    values: Keyspace,
    /// Length of every value. Presence, order and capacity are answered from
    /// here; it changes only after the database has.
    lengths: Shards<u32>,
    accounting: Accounting,
    /// Serialises changes of the keys of one shard: reading `lengths`, writing
    /// the database, writing `lengths`.
    changing: Box<[Mutex<()>]>,
    /// Bytes written since the engine's write buffer was last sealed.
    unsealed: AtomicU64,
    nguid: [u8; 16],
    _database: Database,
    _lock: File,
}

impl FileStore {
    /// Opens the namespace in an existing directory; creates it, with
    /// `new_nguid`, when the directory is empty.
    pub(crate) fn open(directory: &Path, new_nguid: [u8; 16]) -> Result<Self, DirectoryError> {
        let home = directory.join("namespace");
        let lock_path = directory.join("lock");
        if !lock_path.try_exists()? && fs::read_dir(directory)?.next().is_some() {
            return Err(DirectoryError::NotANamespace);
        }
        let lock = acquire(&lock_path)?;
        if !home.try_exists()? {
            create(directory, &home, new_nguid)?;
        }
        let database = Database::builder(&home).open()?;
        let nguid = read_identity(&database)?;
        let values = database.keyspace("values", value_options)?;
        let (lengths, usage) = read_lengths(&values)?;
        Ok(Self {
            values,
            lengths,
            accounting: Accounting::new(usage),
            changing: (0..SHARDS).map(|_| Mutex::new(())).collect(),
            unsealed: AtomicU64::new(0),
            nguid,
            _database: database,
            _lock: lock,
        })
    }

    pub(crate) fn nguid(&self) -> [u8; 16] {
        self.nguid
    }

    /// Seals the write buffer when it is full. The engine leaves that to its
    /// background threads, which steady writers keep from their turn: memory
    /// then grows without bound (10 GB were seen). A writer that seals itself
    /// is also held back while too many sealed buffers wait to be flushed.
    fn seal_when_full(&self, written: u64) -> Result<(), StoreFailure> {
        let before = self.unsealed.fetch_add(written, Ordering::Relaxed);
        // Of several writers, the one that crosses the line.
        if before < WRITE_BUFFER && before + written >= WRITE_BUFFER {
            self.unsealed.store(0, Ordering::Relaxed);
            self.values.rotate_memtable()?;
        }
        Ok(())
    }
}

impl Store for FileStore {
    fn contains(&self, key: &Key) -> bool {
        self.lengths.read(key).contains_key(key)
    }

    fn get(&self, key: &Key) -> Result<Option<Value>, StoreFailure> {
        if !self.contains(key) {
            return Ok(None);
        }
        Ok(self.values.get(key.as_bytes())?.map(Value::File))
    }

    fn put(
        &self,
        key: &Key,
        payload: Payload<'_>,
        options: StoreOptions,
        limits: Limits,
    ) -> Result<(), PutError> {
        check_options(options, self.contains(key))?;
        let value = match payload.contiguous() {
            Some(bytes) => fjall::UserValue::from(bytes),
            None => fjall::UserValue::from(payload.to_vec()),
        };
        let new = payload.len() as u64;

        let changing = lock(&self.changing[shard_of(key)]);
        let old = self.lengths.read(key).get(key).map(|length| u64::from(*length));
        check_options(options, old.is_some())?;
        if !self.accounting.replace(old, new, limits) {
            return Err(PutError::CapacityExceeded);
        }
        if let Err(error) = self.values.insert(key.as_bytes(), value) {
            self.accounting.undo(old, new);
            return Err(PutError::Failure(error.into()));
        }
        // Not cut: a payload is as long as a u32 of its command says.
        self.lengths.write(key).insert(*key, payload.len() as u32);
        drop(changing);
        self.seal_when_full(new).map_err(PutError::Failure)
    }

    fn remove(&self, key: &Key) -> Result<bool, StoreFailure> {
        let _changing = lock(&self.changing[shard_of(key)]);
        let Some(length) = self.lengths.read(key).get(key).copied() else {
            return Ok(false);
        };
        self.values.remove(key.as_bytes())?;
        self.lengths.write(key).remove(key);
        self.accounting.remove(length.into());
        Ok(true)
    }

    fn walk(&self, order: WalkOrder, start: Option<&Key>, visit: &mut dyn FnMut(&Key) -> bool) {
        self.lengths.walk(order, start, visit);
    }

    fn usage(&self) -> Usage {
        self.accounting.usage()
    }
}

/// Locks the directory and leaves this process's id in the lock file, for the
/// error message of the next one.
fn acquire(path: &Path) -> Result<File, DirectoryError> {
    let mut file =
        OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)?;
    match file.try_lock() {
        Ok(()) => {
            file.set_len(0)?;
            file.write_all(std::process::id().to_string().as_bytes())?;
            Ok(file)
        }
        Err(TryLockError::WouldBlock) => {
            let mut holder = String::new();
            // The id is a courtesy; without it the message is still right.
            let _ = file.read_to_string(&mut holder);
            Err(DirectoryError::InUse { holder })
        }
        Err(TryLockError::Error(error)) => Err(error.into()),
    }
}

/// Creates the database under a temporary name and renames it when complete,
/// so that an interrupted creation leaves nothing that looks like a namespace.
fn create(directory: &Path, home: &Path, nguid: [u8; 16]) -> Result<(), DirectoryError> {
    let unfinished: PathBuf = directory.join("namespace.new");
    if unfinished.try_exists()? {
        fs::remove_dir_all(&unfinished)?;
    }
    let database = Database::builder(&unfinished).open()?;
    let identity = database.keyspace("identity", KeyspaceCreateOptions::default)?;
    let values = database.keyspace("values", value_options)?;
    identity.insert("format", FORMAT.to_le_bytes())?;
    identity.insert("nguid", nguid)?;
    database.persist(PersistMode::SyncAll)?;
    drop((identity, values, database));
    fs::rename(&unfinished, home)?;
    File::open(directory)?.sync_all()?;
    Ok(())
}

fn value_options() -> KeyspaceCreateOptions {
    // Not manual: a record is handed to the operating system before its insert
    // returns, which is the durability this store promises.
    KeyspaceCreateOptions::default()
        .manual_journal_persist(false)
        .with_kv_separation(Some(KvSeparationOptions::default().separation_threshold(1024)))
}

fn read_identity(database: &Database) -> Result<[u8; 16], DirectoryError> {
    let missing = |what: &str| DirectoryError::Damaged { what: what.into() };
    if !database.keyspace_exists("identity") || !database.keyspace_exists("values") {
        return Err(missing("it lacks a keyspace"));
    }
    let identity = database.keyspace("identity", KeyspaceCreateOptions::default)?;
    let format = identity.get("format")?.ok_or_else(|| missing("it has no format version"))?;
    let format = <[u8; 4]>::try_from(&format[..])
        .map_err(|_| missing("its format version is not 4 bytes"))?;
    let found = u32::from_le_bytes(format);
    if found != FORMAT {
        return Err(DirectoryError::Format { found, expected: FORMAT });
    }
    let nguid = identity.get("nguid")?.ok_or_else(|| missing("it has no NGUID"))?;
    <[u8; 16]>::try_from(&nguid[..]).map_err(|_| missing("its NGUID is not 16 bytes"))
}

/// Reads keys and lengths, not values. Nothing changes the keyspace meanwhile,
/// so two iterators over it stay in step.
fn read_lengths(values: &Keyspace) -> Result<(Shards<u32>, Usage), DirectoryError> {
    let lengths = Shards::new();
    let mut usage = Usage::default();
    for (key, length) in values.iter().zip(values.iter()) {
        let (key, length) = (key.key()?, length.size()?);
        let Some(key) = Key::new(&key) else {
            let what = format!("it has a key of {} bytes", key.len());
            return Err(DirectoryError::Damaged { what });
        };
        usage.keys += 1;
        usage.bytes += u64::from(length);
        lengths.write(&key).insert(key, length);
    }
    Ok((lengths, usage))
}
