//! The system calls on a namespace node.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::path::Path;

use nvme_kv_command_set::linux::{NVME_IOCTL_ADMIN_CMD, NVME_IOCTL_ID, NVME_IOCTL_IO_CMD};
use nvme_kv_command_set::{IDENTIFY_LEN, PassthroughCommand};

use crate::device::CommandError;
use crate::device::kernel_result::interpret;

/// A command's end: the kernel's result as in a completion (negative errno or status) and DW0.
pub(in crate::device) type Ended = (i32, u32);

/// Opens a node for commands that read and write.
pub(super) fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).open(path)
}

/// The namespace identifier of the node.
pub(super) fn namespace_id(node: BorrowedFd<'_>) -> io::Result<u32> {
    // SAFETY: the request takes no argument.
    let result = unsafe { libc::ioctl(node.as_raw_fd(), NVME_IOCTL_ID as libc::Ioctl) };
    // The identifier is 32 bits wide, so that only -1 is an error.
    if result == -1 { Err(io::Error::last_os_error()) } else { Ok(result as u32) }
}

/// One Identify data structure.
pub(super) fn identify(
    node: BorrowedFd<'_>,
    nsid: u32,
    cns: u8,
    csi: u8,
    timeout_ms: u32,
) -> Result<[u8; IDENTIFY_LEN], CommandError> {
    let mut data = [0; IDENTIFY_LEN];
    let address = data.as_mut_ptr() as u64;
    let command = PassthroughCommand::identify(nsid, cns, csi, address, timeout_ms);
    // SAFETY: `data` has the 4096 bytes that an Identify writes and is used by nobody else.
    let (result, dw0) = unsafe { submit(node, NVME_IOCTL_ADMIN_CMD, &command) };
    interpret(result, dw0)?;
    Ok(data)
}

/// Executes an I/O command.
///
/// # Safety
/// The memory that the command names is valid and unused by anybody else during the call.
pub(in crate::device) unsafe fn io(node: BorrowedFd<'_>, command: &PassthroughCommand) -> Ended {
    // SAFETY: the caller's promise is the same.
    unsafe { submit(node, NVME_IOCTL_IO_CMD, command) }
}

/// # Safety
/// As for [`io`]; `request` takes a [`PassthroughCommand`].
unsafe fn submit(node: BorrowedFd<'_>, request: u32, command: &PassthroughCommand) -> Ended {
    let mut command = *command;
    // SAFETY: `command` is the 72-byte structure of the request and lives across the call; the
    // caller vouches for the memory it names.
    let result = unsafe {
        libc::ioctl(node.as_raw_fd(), request as libc::Ioctl, std::ptr::from_mut(&mut command))
    };
    if result == -1 {
        let errno = io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO);
        return (-errno, 0);
    }
    (result, command.result)
}
