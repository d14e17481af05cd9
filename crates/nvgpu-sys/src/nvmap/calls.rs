//! Requests that access memory of the caller, as functions that take slices.

use super::{
    ALLOC, ALLOC_R39, AllocHandle, AllocHandleR39, CACHE_LIST, CACHE_LIST_ELEM_SIZE_U64, CacheOpList,
    FdForRangeFromList, GET_FD_FOR_RANGE_FROM_LIST, READ, RwHandle, SET_TAG_LABEL, SetTagLabel, WRITE,
};
use crate::Release;
use kernel_door::{DoorFd, Errno};

/// Layout of a [`read_rows`] or [`write_rows`]: rows of `row_bytes`, with a stride of `handle_stride` bytes in the
/// handle's memory and of `user_stride` bytes in the caller's.
///
/// ```
/// use nvgpu_sys::nvmap::Rows;
///
/// // Two rows of 16 bytes, 64 bytes apart in the buffer.
/// let rows = Rows { offset: 0, row_bytes: 16, handle_stride: 64, user_stride: 16, count: 2 };
/// assert_eq!(rows.user_len(), Some(32));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rows {
    /// First byte of the handle's memory.
    pub offset: u64,
    /// Bytes of a row.
    pub row_bytes: u64,
    /// Stride in the handle's memory in bytes, at least `row_bytes`.
    pub handle_stride: u64,
    /// Stride in the caller's memory in bytes, at least `row_bytes`.
    pub user_stride: u64,
    /// Number of rows.
    pub count: u64,
}

impl Rows {
    /// One row of `len` bytes at `offset`.
    pub const fn single(offset: u64, len: u64) -> Self {
        Self { offset, row_bytes: len, handle_stride: len, user_stride: len, count: 1 }
    }

    /// Size of the rows in the caller's memory, in bytes; `None` if it exceeds 64 bits.
    pub fn user_len(&self) -> Option<u64> {
        match self.count.checked_sub(1) {
            Some(steps) => self.user_stride.checked_mul(steps)?.checked_add(self.row_bytes),
            None => Some(0),
        }
    }

    fn argument(&self, handle: u32, pointer: *const u8) -> RwHandle {
        RwHandle {
            // CAST: an address has at most 64 bits.
            addr: pointer.expose_provenance() as u64,
            handle,
            offset: self.offset,
            elem_size: self.row_bytes,
            hmem_stride: self.handle_stride,
            user_stride: self.user_stride,
            count: self.count,
            ..RwHandle::default()
        }
    }

    /// Whether the rows fit in `len` bytes of the caller's memory.
    fn fit(&self, len: usize) -> Result<(), Errno> {
        // CAST: a length has at most 64 bits.
        if self.user_len().is_some_and(|needed| needed <= len as u64) { Ok(()) } else { Err(Errno::OVERFLOW) }
    }
}

/// Copies `bytes` into the memory of `handle` at `offset` and returns the number of bytes copied.
///
/// # Errors
///
/// `EINVAL` for an unknown handle or a range outside it, `EPERM` for a handle without memory or a
/// read-only one.
pub fn write(fd: &DoorFd, handle: u32, offset: u64, bytes: &[u8]) -> Result<u64, Errno> {
    // CAST: a length has at most 64 bits.
    write_rows(fd, handle, Rows::single(offset, bytes.len() as u64), bytes)
}

/// Copies the memory of `handle` at `offset` into `bytes` and returns the number of bytes copied.
///
/// # Errors
///
/// As [`write()`]; `EPERM` also for protected memory.
pub fn read(fd: &DoorFd, handle: u32, offset: u64, bytes: &mut [u8]) -> Result<u64, Errno> {
    // CAST: a length has at most 64 bits.
    read_rows(fd, handle, Rows::single(offset, bytes.len() as u64), bytes)
}

/// Copies rows of `bytes` into the memory of `handle` and returns the number of bytes copied.
///
/// # Errors
///
/// `EOVERFLOW` without a request if the rows leave `bytes`; `EINVAL` also for a stride below the
/// row and for a user stride above (size - offset) / count; else as [`write()`].
pub fn write_rows(fd: &DoorFd, handle: u32, rows: Rows, bytes: &[u8]) -> Result<u64, Errno> {
    rows.fit(bytes.len())?;
    let mut argument = rows.argument(handle, bytes.as_ptr());
    // SAFETY: `addr` is the start of `bytes`, which the call only reads; the rows are inside.
    unsafe { WRITE.send_pointing(fd, &mut argument) }?;
    Ok(argument.count)
}

/// Copies the memory of `handle` into rows of `bytes` and returns the number of bytes copied.
///
/// # Errors
///
/// As [`write_rows`]; `EPERM` also for protected memory.
pub fn read_rows(fd: &DoorFd, handle: u32, rows: Rows, bytes: &mut [u8]) -> Result<u64, Errno> {
    rows.fit(bytes.len())?;
    let mut argument = rows.argument(handle, bytes.as_mut_ptr());
    // SAFETY: `addr` is the start of the exclusively borrowed `bytes`; the rows lie inside.
    unsafe { READ.send_pointing(fd, &mut argument) }?;
    Ok(argument.count)
}

/// Code of [`ALLOC`](super::ALLOC) in the form of a release.
pub const fn alloc_code(release: Release) -> u32 {
    match release {
        Release::R36_4_3 | Release::R36_4_7 => ALLOC.code(),
        Release::R39_2 => ALLOC_R39.code(),
    }
}

/// Gives a handle memory, as [`ALLOC`](super::ALLOC) does, on a kernel since R39.
///
/// # Errors
///
/// Those of [`ALLOC`](super::ALLOC); `ENOTTY` from an earlier kernel.
pub fn alloc_r39(fd: &DoorFd, argument: &AllocHandle) -> Result<(), Errno> {
    let AllocHandle { handle, heap_mask, flags, align, numa_nid } = *argument;
    let mut argument =
        AllocHandleR39 { handle, heap_mask, flags, align, numa_nid, ..AllocHandleR39::default() };
    // SAFETY: the only address, `va`, is 0: the kernel takes no memory of the process.
    unsafe { ALLOC_R39.send_pointing(fd, &mut argument) }.map(drop)
}

/// Performs cache maintenance on parts of several handles; the three lists have one element per part.
///
/// # Errors
///
/// `EINVAL` for an empty list, lists of different lengths, an unknown handle, or a mix of handles with
/// and without synchronisation at reservation; `EPERM` for a handle without memory.
pub fn cache_list(
    fd: &DoorFd,
    op: i32,
    handles: &[u32],
    offsets: &[u64],
    sizes: &[u64],
) -> Result<(), Errno> {
    if offsets.len() != handles.len() || sizes.len() != handles.len() {
        return Err(Errno::INVAL);
    }
    let mut argument = CacheOpList {
        // CAST: addresses have at most 64 bits.
        handles: handles.as_ptr().expose_provenance() as u64,
        offsets: offsets.as_ptr().expose_provenance() as u64,
        sizes: sizes.as_ptr().expose_provenance() as u64,
        nr: u32::try_from(handles.len()).map_err(|_| Errno::OVERFLOW)?,
        op: op | CACHE_LIST_ELEM_SIZE_U64,
    };
    // SAFETY: the three arrays of `nr` elements are borrowed for the call, which only reads them.
    unsafe { CACHE_LIST.send_pointing(fd, &mut argument) }.map(drop)
}

/// Creates a dma-buf over the `size` bytes at `offset` of the concatenated handles. It has no handle number;
/// [`FROM_FD`](super::FROM_FD) creates one.
///
/// r36.4.3 does not reject the following arguments, but corrupts its own memory: a range that starts after the first
/// byte of the first handle and extends beyond that handle, an offset inside a page, an unknown handle, and a handle
/// that is part of two such dma-bufs at a time, or twice of one.
///
/// # Errors
///
/// `EINVAL` for no handles or bytes, a range beyond the last handle, and handles that are not of system
/// memory, imported from the process, without memory or of different cache modes; `EMFILE`.
pub fn fd_for_range_from_list(fd: &DoorFd, handles: &[u32], offset: u64, size: u64) -> Result<DoorFd, Errno> {
    let mut argument = FdForRangeFromList {
        // CAST: addresses have at most 64 bits.
        handles: handles.as_ptr().expose_provenance() as u64,
        num_handles: u32::try_from(handles.len()).map_err(|_| Errno::OVERFLOW)?,
        offset,
        size,
        ..FdForRangeFromList::default()
    };
    // SAFETY: the array of `num_handles` elements is borrowed for the call, which only reads it.
    unsafe { GET_FD_FOR_RANGE_FROM_LIST.send_pointing(fd, &mut argument) }?;
    // SAFETY: the request returned a new descriptor.
    Ok(unsafe { DoorFd::from_raw(fd.door(), argument.fd) })
}

/// Registers `text` for the allocation tag `tag`, system-wide; the kernel stores 31 bytes.
///
/// # Errors
///
/// `ENOMEM`.
pub fn set_tag_label(fd: &DoorFd, tag: u16, text: &str) -> Result<(), Errno> {
    let mut argument = SetTagLabel {
        tag: tag.into(),
        len: u32::try_from(text.len()).map_err(|_| Errno::OVERFLOW)?,
        // CAST: an address has at most 64 bits.
        addr: text.as_ptr().expose_provenance() as u64,
    };
    // SAFETY: `addr` is the start of `text`, `len` bytes long, which the call only reads.
    unsafe { SET_TAG_LABEL.send_pointing(fd, &mut argument) }.map(drop)
}
