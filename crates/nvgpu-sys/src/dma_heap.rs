//! Memory for devices: the dma-buf heaps `/dev/dma_heap/*` (family `H`, like the channels of nvgpu).
//!
//! Layout: Linux `include/uapi/linux/dma-heap.h`; the errors are those of `drivers/dma-buf/dma-heap.c`.

use kernel_door::{DoorFd, Errno, requests, uapi_struct};

/// Family letter of the request. The kernel does not compare it.
pub const FAMILY: u8 = b'H';

/// Flag of [`AllocationData::fd_flags`]: CPU mappings may be written (`O_RDWR`).
pub const READ_WRITE: u32 = 2;
/// Flag of [`AllocationData::fd_flags`]: the descriptor is closed on exec (`O_CLOEXEC`).
pub const CLOEXEC: u32 = 0o2_000_000;

requests! {
    unsafe family FAMILY;
    /// Allocates memory and returns it as a dma-buf.
    ReadWrite 0 ALLOC ("DMA_HEAP_IOCTL_ALLOC"): AllocationData;
}

uapi_struct! {
    /// Argument of [`ALLOC`].
    unsafe plain AllocationData = "dma_heap_allocation_data", 24 bytes {
        /// Length in bytes; the kernel rounds it up to pages.
        0 => len: u64;
        /// In: 0. Out: the dma-buf.
        8 => fd: u32;
        /// [`READ_WRITE`] or 0, and [`CLOEXEC`].
        12 => fd_flags: u32;
        /// Must be 0.
        16 => heap_flags: u64;
    }
}

/// Allocates `len` bytes, rounded up to pages. Without `writable`, neither CPU nor GPU can write to them.
///
/// # Errors
///
/// `EINVAL` for length 0, `ENOMEM`, `EMFILE`.
pub fn allocate(heap: &DoorFd, len: u64, writable: bool) -> Result<DoorFd, Errno> {
    let fd_flags = if writable { READ_WRITE | CLOEXEC } else { CLOEXEC };
    let mut argument = AllocationData { len, fd_flags, ..AllocationData::default() };
    ALLOC.send(heap, &mut argument)?;
    // SAFETY: the request has returned a new descriptor.
    Ok(unsafe { DoorFd::from_raw(heap.door(), argument.fd.cast_signed()) })
}
