//! dma-bufs of a process's memory: `/dev/udmabuf` (family `u`).
//!
//! A memfd becomes a dma-buf with the same pages. It must be sealed against shrinking (`F_SEAL_SHRINK`), and must not
//! be sealed against writing (`F_SEAL_WRITE`). Layouts: Linux `include/uapi/linux/udmabuf.h`; the errors are those of
//! `drivers/dma-buf/udmabuf.c`.

use core::ffi::c_void;
use std::os::fd::{AsRawFd, BorrowedFd};

use kernel_door::{Direction, DoorFd, Errno, encode, requests, uapi_struct};
use zerocopy::IntoBytes;

/// Family letter of the requests.
pub const FAMILY: u8 = b'u';

/// Flag: the new descriptor is closed on exec (`UDMABUF_FLAGS_CLOEXEC`).
pub const CLOEXEC: u32 = 1;

/// Code of `UDMABUF_CREATE_LIST`. Only [`create_list`] sends it: an array of [`CreateItem`] follows its argument, a
/// [`CreateList`], whose size alone the code contains.
pub const CREATE_LIST: u32 = encode(Direction::Write, FAMILY, 0x43, size_of::<CreateList>());

requests! {
    unsafe family FAMILY;
    /// Creates a dma-buf of a range of a memfd; the result of the ioctl is its descriptor.
    Write 0x42 CREATE ("UDMABUF_CREATE"): Create;
}

uapi_struct! {
    /// Argument of [`CREATE`].
    unsafe plain Create = "udmabuf_create", 24 bytes {
        /// The memfd.
        0 => memfd: u32;
        /// 0 or [`CLOEXEC`].
        4 => flags: u32;
        /// First byte, a multiple of the page size.
        8 => offset: u64;
        /// Length in bytes, a multiple of the page size.
        16 => size: u64;
    }

    /// One range of a list.
    unsafe plain CreateItem = "udmabuf_create_item", 24 bytes {
        /// The memfd.
        0 => memfd: u32;
        /// Not read.
        4 => pad: u32, "__pad";
        /// First byte, a multiple of the page size.
        8 => offset: u64;
        /// Length in bytes, a multiple of the page size.
        16 => size: u64;
    }

    /// Beginning of the argument of [`CREATE_LIST`].
    unsafe plain CreateList = "udmabuf_create_list", 8 bytes {
        /// 0 or [`CLOEXEC`].
        0 => flags: u32;
        /// Number of elements that follow, at most 1024.
        4 => count: u32;
    }
}

/// Creates a dma-buf of `size` bytes of a memfd, from `offset` on.
///
/// # Errors
///
/// `EBADFD` if `memfd` is none; `EINVAL` without its seal, with the other one, for a range that is empty, no whole
/// number of pages, longer than the driver's limit (64 MiB by default) or not in the file.
pub fn create(node: &DoorFd, memfd: BorrowedFd<'_>, offset: u64, size: u64) -> Result<DoorFd, Errno> {
    let mut argument = Create { memfd: number(memfd), flags: CLOEXEC, offset, size };
    let fd = CREATE.send(node, &mut argument)?;
    // SAFETY: the result of the request is a new descriptor.
    Ok(unsafe { DoorFd::from_raw(node.door(), fd) })
}

/// Creates a dma-buf of several ranges, one after the other: memfd, first byte, length in bytes.
///
/// # Errors
///
/// As [`create`], and `EINVAL` for more than 1024 ranges.
pub fn create_list(node: &DoorFd, ranges: &[(BorrowedFd<'_>, u64, u64)]) -> Result<DoorFd, Errno> {
    let count = u32::try_from(ranges.len()).map_err(|_| Errno::INVAL)?;
    let mut argument = CreateList { flags: CLOEXEC, count }.as_bytes().to_vec();
    for (memfd, offset, size) in ranges {
        let item = CreateItem { memfd: number(*memfd), pad: 0, offset: *offset, size: *size };
        argument.extend_from_slice(item.as_bytes());
    }
    let address = argument.as_mut_ptr().cast::<c_void>();
    // SAFETY: the argument contains the struct and its `count` elements, and no addresses.
    let fd = unsafe { node.door().ioctl(node.raw(), CREATE_LIST, address) }?;
    // SAFETY: as in `create`.
    Ok(unsafe { DoorFd::from_raw(node.door(), fd) })
}

/// The number of a descriptor.
fn number(fd: BorrowedFd<'_>) -> u32 {
    fd.as_raw_fd().cast_unsigned()
}
