//! The namespace's device node: found, opened, identified, and opened again after it was lost.

mod discovery;
mod path;
pub(super) mod sys;

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use nvme_kv_command_set::{CSI_KV, IdentifyKvNamespace, cns};

pub(super) use discovery::{Discovery, discover};

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

    /// The node to send commands to. When commands failed as on a lost node and the node has been
    /// created again since, it is opened again, if it is the same namespace.
    pub(super) fn current(&self) -> Arc<OpenNode> {
        if self.suspect.swap(false, Ordering::Relaxed) {
            match self.reopen() {
                Ok(true) => {}
                // The next call tries again.
                Ok(false) => self.suspect.store(true, Ordering::Relaxed),
                Err(reason) => {
                    self.suspect.store(true, Ordering::Relaxed);
                    log::warning!("{}: {reason}", self.path.display());
                }
            }
        }
        Arc::clone(&self.open.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// `false`: there is no node now.
    fn reopen(&self) -> Result<bool, String> {
        let mut open = self.open.write().unwrap_or_else(PoisonError::into_inner);
        let Ok(metadata) = std::fs::metadata(&self.path) else { return Ok(false) };
        if numbers(&metadata) == open.created {
            return Ok(true);
        }
        let again = OpenNode::open(&self.path, open.generation + 1)
            .map_err(|error| format!("the node was created again and cannot be opened: {error}"))?;
        let nsid = sys::namespace_id(again.as_fd())
            .map_err(|error| format!("the node was created again and has no namespace: {error}"))?;
        let namespace = identify(&again, nsid, self.timeout_ms)
            .map_err(|error| format!("the node was created again; Identify: {error}"))?;
        if nsid != self.nsid || Identity::from(&namespace) != self.identity {
            return Err(format!(
                "the node was created again for another namespace (identifier {nsid}, was {}); \
                 its commands fail until ours is back",
                self.nsid
            ));
        }
        log::info!("{}: the node was created again and is open again", self.path.display());
        *open = Arc::new(again);
        Ok(true)
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
