//! Requests on dma-bufs, whoever exported them (family `b`).
//!
//! A dma-buf is a descriptor of memory that several drivers share: nvmap's buffers, frames of a camera (V4L2), surfaces
//! of a display (DRM), memory of a heap ([`dma_heap`](crate::dma_heap)) or of a process
//! ([`udmabuf`](crate::udmabuf)). Its size is the position of its end ([`DoorFd::seek_end`]). Layouts: Linux
//! `include/uapi/linux/dma-buf.h`.

use std::os::fd::{AsRawFd, BorrowedFd};

use kernel_door::{DoorFd, Errno, requests, uapi_struct};

use crate::Release::R39_2;
use crate::release::since;

/// Family letter of the requests.
pub const FAMILY: u8 = b'b';

requests! {
    unsafe family FAMILY;
    /// Begins or ends an access of the CPU through a mapping; the exporter maintains the caches. `EINVAL` for other
    /// flags than those of [`SyncFlags`], and without a direction.
    Write 0 SYNC ("DMA_BUF_IOCTL_SYNC"): Sync;
    /// Creates a sync-file that signals when the pending accesses of devices have ended. Since Linux 6.0.
    ReadWrite 2 EXPORT_SYNC_FILE ("DMA_BUF_IOCTL_EXPORT_SYNC_FILE"): ExportSyncFile [since(R39_2)];
    /// Adds the fences of a sync-file to those that later accesses wait for. Since Linux 6.0.
    Write 3 IMPORT_SYNC_FILE ("DMA_BUF_IOCTL_IMPORT_SYNC_FILE"): ImportSyncFile [since(R39_2)];
}

bitflags::bitflags! {
    /// The direction of an access, and for [`SYNC`] whether it ends.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct SyncFlags: u32 {
        /// Loads (`DMA_BUF_SYNC_READ`).
        const READ = 1;
        /// Stores (`DMA_BUF_SYNC_WRITE`).
        const WRITE = 2;
        /// The access ends (`DMA_BUF_SYNC_END`); without it, it begins. Only [`SYNC`] takes it.
        const END = 4;
    }
}

uapi_struct! {
    /// Argument of [`SYNC`].
    unsafe plain Sync = "dma_buf_sync", 8 bytes {
        /// Bits of [`SyncFlags`].
        0 => flags: u64;
    }

    /// Argument of [`EXPORT_SYNC_FILE`].
    unsafe plain ExportSyncFile = "dma_buf_export_sync_file", 8 bytes [since(R39_2)] {
        /// Bits of [`SyncFlags`] without `END`: the access that is to follow. With `WRITE`, the file waits for all
        /// accesses, else for writes.
        0 => flags: u32;
        /// Out: the sync-file.
        4 => fd: i32;
    }

    /// Argument of [`IMPORT_SYNC_FILE`].
    unsafe plain ImportSyncFile = "dma_buf_import_sync_file", 8 bytes [since(R39_2)] {
        /// Bits of [`SyncFlags`] without `END`: the access that the fences are the end of.
        0 => flags: u32;
        /// The sync-file.
        4 => fd: i32;
    }
}

/// Begins an access of the CPU, or ends it with [`SyncFlags::END`].
///
/// # Errors
///
/// `EINVAL` without a direction; `ENOTTY` if the descriptor is not a dma-buf; else the exporter's.
pub fn sync(buffer: &DoorFd, flags: SyncFlags) -> Result<(), Errno> {
    SYNC.send(buffer, &mut Sync { flags: flags.bits().into() }).map(drop)
}

/// Creates a sync-file that signals when the accesses have ended that one of this kind must wait for.
///
/// # Errors
///
/// `ENOTTY` before Linux 6.0, `EINVAL` without a direction, `EMFILE`.
pub fn export_sync_file(buffer: &DoorFd, access: SyncFlags) -> Result<DoorFd, Errno> {
    let mut argument = ExportSyncFile { flags: access.bits(), fd: -1 };
    EXPORT_SYNC_FILE.send(buffer, &mut argument)?;
    // SAFETY: the request has returned a new descriptor.
    Ok(unsafe { DoorFd::from_raw(buffer.door(), argument.fd) })
}

/// Makes later accesses wait for a sync-file, as the end of an access of this kind.
///
/// # Errors
///
/// `ENOTTY` before Linux 6.0, `EINVAL` without a direction or if `fence` is not a sync-file.
pub fn import_sync_file(buffer: &DoorFd, access: SyncFlags, fence: BorrowedFd<'_>) -> Result<(), Errno> {
    let mut argument = ImportSyncFile { flags: access.bits(), fd: fence.as_raw_fd() };
    IMPORT_SYNC_FILE.send(buffer, &mut argument).map(drop)
}
