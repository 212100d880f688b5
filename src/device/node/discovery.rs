//! From a configured path to an open Key-Value namespace.

use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use nvme_kv_command_set::{CSI_KV, IdentifyKvNamespace, NamespaceDescriptors, Status, cns};

use super::path::{NodeName, QueueLimits, Sysfs, generic_nodes};
use super::{Node, OpenNode, identify, sys};
use crate::config::ConnectorConfig;
use crate::device::CommandError;
use crate::error::{Error, ErrorCode, Result};
use crate::log;

/// What was found behind the configured path.
#[derive(Debug)]
pub(in crate::device) struct Discovery {
    /// The open node.
    pub(in crate::device) node: Node,
    /// The namespace identifier for commands.
    pub(in crate::device) nsid: u32,
    /// What the namespace says of itself.
    pub(in crate::device) namespace: IdentifyKvNamespace,
    /// What the block layer allows.
    pub(in crate::device) limits: QueueLimits,
}

/// Finds, opens and identifies the configured namespace.
///
/// # Errors
/// INVALID_PARAMS for a path or identifier that does not fit what is there, NOT_SUPPORTED for a
/// namespace of another command set, FILE_OPEN_FAIL for what cannot be opened or asked,
/// FILE_LOCK_FAIL when it is busy.
pub(in crate::device) fn discover(config: &ConnectorConfig) -> Result<Discovery> {
    let sysfs = Sysfs(Path::new("/sys"));
    let (path, open) = open_node(config, &sysfs)?;
    let timeout_ms = u32::try_from(config.command_timeout.as_millis()).unwrap_or(u32::MAX);
    let nsid = sys::namespace_id(open.as_fd()).map_err(|error| no_namespace(&path, &error))?;
    check_nsid(config, &path, nsid)?;
    let namespace = identify(&open, nsid, timeout_ms)
        .map_err(|error| not_identified(&path, &open, nsid, timeout_ms, &error))?;
    let name = kernel_name(&path, &open, &sysfs);
    let limits = name.as_deref().map(|name| sysfs.queue_limits(name)).unwrap_or_default();
    if limits.max_transfer.is_none() {
        log::info!(
            "{}: the kernel does not tell the longest transfer; the configured limits hold",
            path.display()
        );
    }
    let node = Node::new(path, open, nsid, timeout_ms, &namespace);
    Ok(Discovery { node, nsid, namespace, limits })
}

fn open_node(config: &ConnectorConfig, sysfs: &Sysfs<'_>) -> Result<(PathBuf, OpenNode)> {
    let given = Path::new(&config.device_path);
    // A link such as /dev/disk/by-id/... leads to the kernel's name. A block node need not exist:
    // a Key-Value namespace has only the generic one.
    let path = given.canonicalize().unwrap_or_else(|_| given.to_owned());
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let path = match NodeName::parse(name) {
        NodeName::Generic => path,
        NodeName::Block { generic } => {
            let path = path.with_file_name(generic);
            log::info!("{}: using the generic node {}", given.display(), path.display());
            path
        }
        NodeName::Controller { instance } => {
            let directory = path.parent().unwrap_or(Path::new("/dev"));
            return of_controller(config, directory, sysfs.namespace_instance(instance));
        }
        NodeName::Partition => {
            return Err(Error::new(
                ErrorCode::InvalidParams,
                format!("{} is a partition; name the namespace, e.g. /dev/ng0n1", given.display()),
            ));
        }
        NodeName::Other => path,
    };
    let kind = std::fs::metadata(&path).map_err(|error| not_opened(&path, &error))?.file_type();
    if !kind.is_char_device() {
        return Err(Error::new(
            ErrorCode::InvalidParams,
            format!(
                "{} is not a character device; name the namespace's generic node, e.g. \
                 /dev/ng0n1 (mem:NAME and directories need MOONCAKE_NVME_KV_TRANSPORT=emulated)",
                path.display()
            ),
        ));
    }
    let open = OpenNode::open(&path, 0).map_err(|error| not_opened(&path, &error))?;
    Ok((path, open))
}

/// The namespace with the configured identifier behind a controller.
fn of_controller(
    config: &ConnectorConfig,
    directory: &Path,
    instance: u32,
) -> Result<(PathBuf, OpenNode)> {
    let nodes = generic_nodes(directory, instance);
    let mut found = Vec::new();
    for path in nodes {
        let open = OpenNode::open(&path, 0).map_err(|error| not_opened(&path, &error))?;
        let nsid = sys::namespace_id(open.as_fd()).map_err(|error| no_namespace(&path, &error))?;
        if nsid == config.nsid {
            log::info!("{}: namespace {nsid} is {}", config.device_path, path.display());
            return Ok((path, open));
        }
        found.push(nsid);
    }
    Err(Error::new(
        ErrorCode::FileOpenFail,
        format!(
            "{} has no namespace with identifier {}, only {found:?}: set MOONCAKE_NVME_KV_NSID \
             to one of these, or name the namespace's node, e.g. /dev/ng{instance}n1",
            config.device_path, config.nsid
        ),
    ))
}

/// The name that sysfs knows the node by, whatever it is called in the file system.
fn kernel_name(path: &Path, open: &OpenNode, sysfs: &Sysfs<'_>) -> Option<String> {
    let numbers = open.file.metadata().ok()?.rdev();
    sysfs
        .character_device(libc::major(numbers), libc::minor(numbers))
        .or_else(|| Some(path.file_name()?.to_str()?.to_owned()))
}

fn check_nsid(config: &ConnectorConfig, path: &Path, nsid: u32) -> Result<()> {
    if config.nsid == nsid {
        return Ok(());
    }
    if config.nsid_explicit {
        return Err(Error::new(
            ErrorCode::InvalidParams,
            format!(
                "MOONCAKE_NVME_KV_NSID={} but {} is namespace {nsid}: unset the variable, or \
                 name the node of namespace {}",
                config.nsid,
                path.display(),
                config.nsid
            ),
        ));
    }
    log::info!("{}: namespace identifier {nsid}", path.display());
    Ok(())
}

fn not_opened(path: &Path, error: &io::Error) -> Error {
    let path = path.display();
    let errno = error.raw_os_error().unwrap_or_default();
    let (code, remedy) = match errno {
        libc::ENOENT => (
            ErrorCode::FileOpenFail,
            "no such device: check that the drive is attached and that the kernel (6.0 or later) \
             shows it as /dev/ngXnY",
        ),
        libc::ENXIO | libc::ENODEV => (
            ErrorCode::FileOpenFail,
            "no device behind the node: the drive or its connection is gone; attach it again",
        ),
        libc::EACCES | libc::EPERM | libc::EROFS => (
            ErrorCode::FileOpenFail,
            "no permission: run with read and write access to the node and with CAP_SYS_ADMIN \
             (kernels since 6.2 can do with the former)",
        ),
        libc::EBUSY => (ErrorCode::FileLockFail, "busy: another process uses it exclusively"),
        _ => (ErrorCode::FileOpenFail, "cannot be opened"),
    };
    Error::new(code, format!("{path}: {remedy} ({error})"))
}

fn no_namespace(path: &Path, error: &io::Error) -> Error {
    match error.raw_os_error() {
        Some(libc::ENOTTY | libc::EINVAL) => Error::new(
            ErrorCode::InvalidParams,
            format!(
                "{} is not an NVMe namespace: name its generic node, e.g. /dev/ng0n1 ({error})",
                path.display()
            ),
        ),
        Some(libc::EAGAIN) => not_opened(path, &io::Error::from_raw_os_error(libc::ENODEV)),
        _ => not_opened(path, error),
    }
}

fn not_identified(
    path: &Path,
    open: &OpenNode,
    nsid: u32,
    timeout_ms: u32,
    error: &CommandError,
) -> Error {
    match error {
        CommandError::Errno(errno @ (libc::EACCES | libc::EPERM | libc::ENODEV | libc::ENXIO)) => {
            not_opened(path, &io::Error::from_raw_os_error(*errno))
        }
        CommandError::Status(status) if *status != Status::HOST_PATHING_ERROR => {
            let csi = sys::identify(open.as_fd(), nsid, cns::DESCRIPTORS, 0, timeout_ms)
                .ok()
                .and_then(|data| NamespaceDescriptors::parse(&data).ok())
                .map(|descriptors| descriptors.csi.unwrap_or(0));
            let what = match csi {
                Some(CSI_KV) | None => String::new(),
                Some(csi) => format!(" but one of command set {csi}"),
            };
            Error::new(
                ErrorCode::NotSupported,
                format!(
                    "{} is not a Key-Value namespace{what}: Identify for command set 1 was \
                     answered {status}; name a namespace of the Key Value command set",
                    path.display()
                ),
            )
        }
        error => Error::new(
            ErrorCode::FileOpenFail,
            format!("{}: Identify failed: {error}; check the drive", path.display()),
        ),
    }
}

#[cfg(test)]
mod tests;
