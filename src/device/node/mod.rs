//! The namespace's device node: found, opened, identified, and opened again after it was lost.

mod discovery;
mod path;
pub(super) mod sys;

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use nvme_kv_command_set::{CSI_KV, IdentifyKvNamespace, cns};

pub(super) use discovery::{Discovery, discover};
pub(super) use path::QueueLimits;

use super::CommandError;
use crate::log;

/// An open node. Clones of the [`OpenNode`] inside keep a descriptor alive while it is in use.
#[derive(Debug)]
pub(super) struct Node {
    /// The generic node (`/dev/ngXnY`), or what was given in its place.
    path: PathBuf,
    nsid: u32,
    timeout_ms: u32,
    identity: Identity,
    open: RwLock<Arc<OpenNode>>,
    /// A command failed as commands to a lost node do.
    suspect: AtomicBool,
}

/// What makes a namespace the same one under another descriptor.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Identity {
    nguid: [u8; 16],
    eui64: [u8; 8],
}

impl Identity {
    /// The device states one at all.
    fn is_stated(&self) -> bool {
        self.nguid != [0; 16] || self.eui64 != [0; 8]
    }
}

impl From<&IdentifyKvNamespace> for Identity {
    fn from(namespace: &IdentifyKvNamespace) -> Self {
        Identity { nguid: namespace.nguid, eui64: namespace.eui64 }
    }
}

/// One opening of the node.
#[derive(Debug)]
pub(super) struct OpenNode {
    file: File,
    /// Counts openings; what was set up for another one is of no use.
    pub(super) generation: u64,
    /// Inode and device numbers, by which a node that was created again is recognised.
    created: (u64, u64, u64),
}

impl OpenNode {
    fn open(path: &Path, generation: u64) -> io::Result<OpenNode> {
        let file = sys::open(path)?;
        let created = numbers(&file.metadata()?);
        Ok(OpenNode { file, generation, created })
    }
}

impl AsFd for OpenNode {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// The node at `path` is the one that is open.
fn is_still(path: &Path, open: &OpenNode) -> bool {
    std::fs::metadata(path).is_ok_and(|metadata| numbers(&metadata) == open.created)
}

fn numbers(metadata: &std::fs::Metadata) -> (u64, u64, u64) {
    (metadata.dev(), metadata.ino(), metadata.rdev())
}

impl Node {
    fn new(
        path: PathBuf,
        open: OpenNode,
        nsid: u32,
        timeout_ms: u32,
        namespace: &IdentifyKvNamespace,
    ) -> Node {
        Node {
            path,
            nsid,
            timeout_ms,
            identity: namespace.into(),
            open: RwLock::new(Arc::new(open)),
            suspect: AtomicBool::new(false),
        }
    }

    /// Where it was found.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// The node to send commands to. When commands failed as on a lost node and the namespace has
    /// got a new node since, that one is opened.
    pub(super) fn current(&self) -> Arc<OpenNode> {
        if self.suspect.swap(false, Ordering::Relaxed) && !self.look_again() {
            // The next call looks once more.
            self.suspect.store(true, Ordering::Relaxed);
        }
        Arc::clone(&self.open.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Opens the namespace's node again if it is another one than before. `false`: there is none
    /// now.
    ///
    /// A controller that was removed and connected again while our descriptor held its old node
    /// gets another name, so every generic node in the directory may be the one.
    fn look_again(&self) -> bool {
        let mut open = self.open.write().unwrap_or_else(PoisonError::into_inner);
        if is_still(&self.path, &open) {
            return true;
        }
        let directory = self.path.parent().unwrap_or(Path::new("/dev"));
        let others = path::all_generic_nodes(directory).into_iter().filter(|it| *it != self.path);
        for path in std::iter::once(self.path.clone()).chain(others) {
            if is_still(&path, &open) {
                return true;
            }
            // The name we were given needs no other proof than the namespace's own.
            let identified = self.identity.is_stated() || path == self.path;
            if let (true, Some(again)) = (identified, self.same_namespace(&path, open.generation)) {
                log::info!("{}: open again as {}", self.path.display(), path.display());
                *open = Arc::new(again);
                return true;
            }
        }
        false
    }

    /// Opens `path` if it leads to the namespace that this node was opened for.
    fn same_namespace(&self, path: &Path, generation: u64) -> Option<OpenNode> {
        if !std::fs::metadata(path).ok()?.file_type().is_char_device() {
            return None;
        }
        let again = OpenNode::open(path, generation + 1).ok()?;
        let nsid = sys::namespace_id(again.as_fd()).ok()?;
        let namespace = identify(&again, nsid, self.timeout_ms).ok()?;
        (nsid == self.nsid && Identity::from(&namespace) == self.identity).then_some(again)
    }

    /// What the failure of a command says. Where the last path to a namespace is gone, the kernel
    /// (multipath) answers EINVAL or EAGAIN to every command; asking for the identifier tells.
    pub(super) fn judge(&self, error: CommandError) -> CommandError {
        let lost = match error {
            CommandError::Errno(libc::ENODEV | libc::ENXIO) => true,
            CommandError::Errno(libc::EINVAL | libc::EAGAIN | libc::EIO) => {
                let open = Arc::clone(&self.open.read().unwrap_or_else(PoisonError::into_inner));
                sys::namespace_id(open.as_fd()).is_err()
            }
            _ => false,
        };
        if lost || error.is_device_gone() || error.outcome_unknown() {
            self.suspect.store(true, Ordering::Relaxed);
        }
        if lost { CommandError::Errno(libc::ENODEV) } else { error }
    }

    /// Identify Namespace of the Key Value command set.
    pub(super) fn identify(&self) -> Result<IdentifyKvNamespace, CommandError> {
        identify(&self.current(), self.nsid, self.timeout_ms).map_err(|error| self.judge(error))
    }
}

fn identify(
    node: &OpenNode,
    nsid: u32,
    timeout_ms: u32,
) -> Result<IdentifyKvNamespace, CommandError> {
    let data = sys::identify(node.as_fd(), nsid, cns::CSI_NAMESPACE, CSI_KV, timeout_ms)?;
    IdentifyKvNamespace::parse(&data).map_err(|_| CommandError::Errno(libc::EBADMSG))
}
