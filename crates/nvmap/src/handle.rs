//! nvmap handles, and their export as dma-bufs.

use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::Arc;

use kernel_door::{DoorFd, Errno};
use nvgpu_sys::nvmap as sys;

/// A handle number; freed on drop.
///
/// The number is neither a descriptor nor an address, and is only valid in this process. Numbers start
/// near 2^31 (`nvmap_id_array.c`).
#[derive(Debug)]
pub(crate) struct Handle {
    client: Arc<DoorFd>,
    id: u32,
}

impl Handle {
    /// Creates a handle of `size` bytes without memory. The error includes the name of the request.
    pub(crate) fn create(client: &Arc<DoorFd>, size: u64) -> Result<Self, (&'static str, Errno)> {
        let id = match u32::try_from(size) {
            Ok(size_or_fd) => {
                let mut argument = sys::CreateHandle { size_or_fd, handle: 0 };
                sys::CREATE.send(client, &mut argument).map_err(|errno| (sys::CREATE.name(), errno))?;
                argument.handle
            }
            Err(_) => {
                let mut argument = sys::CreateHandle64 { size_or_handle: size };
                sys::CREATE_64.send(client, &mut argument).map_err(|errno| (sys::CREATE_64.name(), errno))?;
                low_half(argument.size_or_handle)
            }
        };
        Ok(Self { client: Arc::clone(client), id })
    }

    /// Creates a handle for `len` bytes of process memory at `address`.
    ///
    /// # Safety
    ///
    /// The memory is mapped writable until the handle and everything created from it are dropped.
    pub(crate) unsafe fn from_va(
        client: &Arc<DoorFd>,
        address: u64,
        len: u64,
        flags: u32,
    ) -> Result<Self, (&'static str, Errno)> {
        let mut argument = sys::CreateHandleFromVa { va: address, size: 0, flags, size_or_handle: len };
        // SAFETY: the caller guarantees that the memory is mapped.
        unsafe { sys::FROM_VA.send_pointing(client, &mut argument) }
            .map_err(|errno| (sys::FROM_VA.name(), errno))?;
        Ok(Self { client: Arc::clone(client), id: low_half(argument.size_or_handle) })
    }

    /// Creates a handle for the memory of a dma-buf, which may come from another process.
    ///
    /// For a dma-buf of another driver, the kernel returns a descriptor instead of a handle number. FREE
    /// closes it, so dropping the handle is correct in both cases.
    pub(crate) fn from_fd(client: &Arc<DoorFd>, fd: BorrowedFd<'_>) -> Result<Self, Errno> {
        // CAST: a borrowed descriptor is never negative.
        let mut argument = sys::CreateHandle { size_or_fd: fd.as_raw_fd().cast_unsigned(), handle: 0 };
        sys::FROM_FD.send(client, &mut argument)?;
        Ok(Self { client: Arc::clone(client), id: argument.handle })
    }

    /// Creates a second handle for the same memory.
    pub(crate) fn duplicate(&self, read_only: bool) -> Result<Self, Errno> {
        let access_flags = if read_only { sys::HandleFlags::READ_ONLY.bits() } else { 0 };
        let mut argument = sys::DuplicateHandle { handle: self.id, access_flags, dup_handle: 0 };
        sys::DUP_HANDLE.send(&self.client, &mut argument)?;
        Ok(Self { client: Arc::clone(&self.client), id: argument.dup_handle })
    }

    /// Returns the properties of the handle.
    pub(crate) fn parameters(&self) -> Result<sys::HandleParameters, Errno> {
        let mut argument = sys::HandleParameters { handle: self.id, ..sys::HandleParameters::default() };
        sys::PARAMETERS.send(&self.client, &mut argument)?;
        Ok(argument)
    }

    /// Exports the handle as a dma-buf descriptor other than 0. SETUP_BIND interprets 0 as "none", and a
    /// process without standard input would get that number.
    pub(crate) fn export(&self) -> Result<DoorFd, Errno> {
        let first = self.export_any()?;
        if first.raw() != 0 { Ok(first) } else { self.export_any() }
    }

    fn export_any(&self) -> Result<DoorFd, Errno> {
        let mut argument = sys::CreateHandle { size_or_fd: 0, handle: self.id };
        sys::GET_FD.send(&self.client, &mut argument)?;
        // SAFETY: the request returned a new descriptor.
        Ok(unsafe { DoorFd::from_raw(self.client.door(), argument.size_or_fd.cast_signed()) })
    }

    /// The handle number.
    pub(crate) fn id(&self) -> u32 {
        self.id
    }

    /// The descriptor that the handle belongs to.
    pub(crate) fn client(&self) -> &DoorFd {
        &self.client
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        // SAFETY: the number is a handle, or the descriptor that FROM_FD returned to this handle.
        if let Err(errno) = unsafe { sys::FREE.send_closing(&self.client, self.id) } {
            tracing::warn!(handle = self.id, %errno, "NVMAP_IOC_FREE failed");
        }
    }
}

/// The low 32 bits, in which the 64-bit requests return the handle number.
fn low_half(word: u64) -> u32 {
    // CAST: masked to 32 bits; the upper half contains the rest of the size that was passed in.
    (word & u64::from(u32::MAX)) as u32
}
