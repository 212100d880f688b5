//! One io_uring instance with the namespace as its registered file.
//!
//! Rings are leased to whatever thread calls, so neither DEFER_TASKRUN nor SINGLE_ISSUER is set.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use io_uring::{IoUring, cqueue, opcode, squeue, types};
use nvme_kv_command_set::PassthroughCommand;
use nvme_kv_command_set::linux::{NVME_URING_CMD_IO, NVME_URING_CMD_IO_VEC};

use super::submission::RawRing;
use crate::device::queue::{Addressing, RawCompletion};

/// `IORING_ENTER_GETEVENTS`.
const ENTER_GETEVENTS: u32 = 1;

/// A ring with large submissions.
pub(super) struct Ring {
    instance: Instance,
    /// A node was registered.
    files: bool,
    /// Regions were registered.
    buffers: bool,
}

enum Instance {
    /// Large completions, which carry DW0.
    Full(IoUring<squeue::Entry128, cqueue::Entry32>),
    /// What is left where the kernel refuses large completions.
    SmallCompletions(IoUring<squeue::Entry128, cqueue::Entry>),
}

/// Does the same with either instance.
macro_rules! either {
    ($instance:expr, $ring:ident => $body:expr) => {
        match $instance {
            Instance::Full($ring) => $body,
            Instance::SmallCompletions($ring) => $body,
        }
    };
}

impl Ring {
    /// Sets up a ring of at least `entries` submissions (fewer where the kernel's limit is lower)
    /// for commands to `node`.
    pub(super) fn new(entries: u32, node: BorrowedFd<'_>) -> io::Result<Ring> {
        let mut ring = Ring::without_node(entries)?;
        ring.register_node(node)?;
        Ok(ring)
    }

    /// The same for no commands at all.
    pub(super) fn without_node(entries: u32) -> io::Result<Ring> {
        let entries = entries.clamp(1, 1 << 15);
        match IoUring::builder().setup_clamp().setup_coop_taskrun().build(entries) {
            Ok(ring) => Ok(Ring::over(Instance::Full(ring))),
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
                Ring::with_small_completions(entries)
            }
            Err(error) => Err(error),
        }
    }

    /// What is left where the kernel refuses large completions.
    pub(super) fn with_small_completions(entries: u32) -> io::Result<Ring> {
        let ring = IoUring::builder().setup_clamp().build(entries)?;
        Ok(Ring::over(Instance::SmallCompletions(ring)))
    }

    fn over(instance: Instance) -> Ring {
        Ring { instance, files: false, buffers: false }
    }

    pub(super) fn register_node(&mut self, node: BorrowedFd<'_>) -> io::Result<()> {
        let node = [node.as_raw_fd()];
        either!(&self.instance, ring => ring.submitter().register_files(&node))?;
        self.files = true;
        // Without a limit the kernel starts a thread for each command that it has no room for.
        // Kernels that know no limit go without.
        let most = &mut [1, 1];
        let _ = either!(&self.instance, ring => ring.submitter().register_iowq_max_workers(most));
        Ok(())
    }

    /// Registers regions as (address, bytes); their indices are their positions.
    ///
    /// # Safety
    /// The regions stay mapped until the ring is dropped.
    pub(super) unsafe fn register_regions(&mut self, regions: &[(usize, usize)]) -> io::Result<()> {
        let table: Vec<libc::iovec> = regions
            .iter()
            .map(|&(start, len)| libc::iovec { iov_base: start as *mut libc::c_void, iov_len: len })
            .collect();
        // SAFETY: the caller keeps the regions mapped; the kernel copies the table.
        either!(&self.instance, ring => unsafe { ring.submitter().register_buffers(&table) })?;
        self.buffers = true;
        Ok(())
    }

    /// Takes over the regions that the ring with this descriptor has, under the same indices.
    pub(super) fn share_regions(&mut self, other: BorrowedFd<'_>) -> io::Result<()> {
        let descriptor = other.as_raw_fd();
        either!(&self.instance, ring => ring.submitter().register_buffers_clone(descriptor))?;
        self.buffers = true;
        Ok(())
    }

    /// Submissions the ring has room for.
    pub(super) fn entries(&self) -> u32 {
        either!(&self.instance, ring => ring.params().sq_entries())
    }
}

impl AsFd for Ring {
    fn as_fd(&self) -> BorrowedFd<'_> {
        let descriptor = either!(&self.instance, ring => ring.as_raw_fd());
        // SAFETY: the ring owns the descriptor and is borrowed for as long.
        unsafe { BorrowedFd::borrow_raw(descriptor) }
    }
}

impl RawRing for Ring {
    unsafe fn push(&mut self, token: u64, command: &PassthroughCommand, addressing: Addressing) {
        let operation = match addressing {
            Addressing::Vectored => NVME_URING_CMD_IO_VEC,
            Addressing::Contiguous | Addressing::Fixed(_) => NVME_URING_CMD_IO,
        };
        let region = match addressing {
            Addressing::Fixed(index) => Some(index),
            Addressing::Contiguous | Addressing::Vectored => None,
        };
        let mut bytes = [0; 80];
        bytes[..72].copy_from_slice(&command.to_bytes());
        let entry = opcode::UringCmd80::new(types::Fixed(0), operation)
            .cmd(bytes)
            .buf_index(region)
            .build()
            .user_data(token);
        // SAFETY: the caller keeps the command's memory until its completion was popped.
        let pushed = either!(&mut self.instance, ring => unsafe { ring.submission().push(&entry) });
        assert!(pushed.is_ok(), "more commands in flight than the ring has entries");
    }

    fn queued(&mut self) -> usize {
        either!(&mut self.instance, ring => ring.submission().len())
    }

    fn enter(&mut self, submit: usize, want: usize) -> io::Result<()> {
        let flags = if want > 0 { ENTER_GETEVENTS } else { 0 };
        // SAFETY: no argument structure is passed, so nothing can dangle.
        either!(&self.instance, ring => unsafe {
            ring.submitter().enter::<libc::sigset_t>(submit as u32, want as u32, flags, None)
        })
        .map(|_| ())
    }

    fn ready(&mut self) -> usize {
        either!(&mut self.instance, ring => ring.completion().len())
    }

    fn pop(&mut self) -> Option<RawCompletion> {
        match &mut self.instance {
            Instance::Full(ring) => ring.completion().next().map(|entry| RawCompletion {
                token: entry.user_data(),
                result: entry.result(),
                // The low half of the NVMe result is DW0.
                dw0: entry.big_cqe()[0] as u32,
            }),
            Instance::SmallCompletions(ring) => ring.completion().next().map(|entry| {
                RawCompletion { token: entry.user_data(), result: entry.result(), dw0: 0 }
            }),
        }
    }
}

/// Closing a ring releases what was registered in the background; this releases it at once.
impl Drop for Ring {
    fn drop(&mut self) {
        // Failures leave the release to the kernel.
        if self.buffers {
            let _ = either!(&self.instance, ring => ring.submitter().unregister_buffers());
        }
        if self.files {
            let _ = either!(&self.instance, ring => ring.submitter().unregister_files());
        }
    }
}
impl std::fmt::Debug for Ring {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ring").field("entries", &self.entries()).finish_non_exhaustive()
    }
}
