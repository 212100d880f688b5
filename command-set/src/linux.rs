//! Request numbers of the Linux NVMe passthrough interface (`linux/nvme_ioctl.h`).
//!
//! A Key Value namespace has only the generic character node `/dev/ngXnY`, on which all of
//! these work. The numbers are those of architectures with the common ioctl encoding (x86-64,
//! AArch64, RISC-V).

use crate::{PassthroughCommand, PassthroughCommand64};

/// `NVME_IOCTL_ID`: the return value is the namespace identifier of the node.
pub const NVME_IOCTL_ID: u32 = 0x4e40;
/// `NVME_IOCTL_ADMIN_CMD`: an admin command as [`PassthroughCommand`].
pub const NVME_IOCTL_ADMIN_CMD: u32 = 0xc048_4e41;
/// `NVME_IOCTL_IO_CMD`: an I/O command as [`PassthroughCommand`].
pub const NVME_IOCTL_IO_CMD: u32 = 0xc048_4e43;
/// `NVME_IOCTL_IO64_CMD`: an I/O command as [`PassthroughCommand64`].
pub const NVME_IOCTL_IO64_CMD: u32 = 0xc050_4e48;

/// `NVME_URING_CMD_IO`: `cmd_op` of an `IORING_OP_URING_CMD` with one contiguous buffer.
pub const NVME_URING_CMD_IO: u32 = 0xc048_4e80;
/// `NVME_URING_CMD_IO_VEC`: the same with `addr` an iovec array and `data_len` its length in
/// elements.
pub const NVME_URING_CMD_IO_VEC: u32 = 0xc048_4e81;
/// `NVME_URING_CMD_ADMIN`: an admin command.
pub const NVME_URING_CMD_ADMIN: u32 = 0xc048_4e82;

/// `_IOWR('N', number, T)`: direction in bits 31:30, size in 29:16, type in 15:8.
const fn iowr<T>(number: u32) -> u32 {
    0xc000_0000 | (size_of::<T>() as u32) << 16 | (b'N' as u32) << 8 | number
}

const _: () = {
    assert!(NVME_IOCTL_ADMIN_CMD == iowr::<PassthroughCommand>(0x41));
    assert!(NVME_IOCTL_IO_CMD == iowr::<PassthroughCommand>(0x43));
    assert!(NVME_IOCTL_IO64_CMD == iowr::<PassthroughCommand64>(0x48));
    assert!(NVME_URING_CMD_IO == iowr::<PassthroughCommand>(0x80));
    assert!(NVME_URING_CMD_IO_VEC == iowr::<PassthroughCommand>(0x81));
    assert!(NVME_URING_CMD_ADMIN == iowr::<PassthroughCommand>(0x82));
};
