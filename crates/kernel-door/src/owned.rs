//! Owners of a descriptor and of a mapping: the safe form of the calls.

use core::ffi::CStr;
use core::fmt;
use core::ptr::NonNull;
use core::time::Duration;
use std::os::fd::RawFd;
use std::sync::Arc;

use crate::Errno;
use crate::door::{Door, Events, MapRequest, OpenFlags, Protection};

/// An open descriptor; closed through its door on drop.
pub struct DoorFd {
    door: Arc<dyn Door>,
    raw: RawFd,
}

impl DoorFd {
    /// Opens the node at `path`.
    ///
    /// # Errors
    ///
    /// The errno of the open.
    pub fn open(door: &Arc<dyn Door>, path: &CStr, flags: OpenFlags) -> Result<Self, Errno> {
        let raw = door.open(path, flags)?;
        Ok(Self { door: Arc::clone(door), raw })
    }

    /// Takes ownership of a descriptor that a request of `door` returned.
    ///
    /// # Safety
    ///
    /// `raw` is an open descriptor of `door`, and nothing else owns it.
    pub unsafe fn from_raw(door: &Arc<dyn Door>, raw: RawFd) -> Self {
        Self { door: Arc::clone(door), raw }
    }

    /// The descriptor's number.
    pub fn raw(&self) -> RawFd {
        self.raw
    }

    /// The door that the descriptor belongs to.
    pub fn door(&self) -> &Arc<dyn Door> {
        &self.door
    }

    /// Maps the descriptor; see [`Door::mmap`].
    ///
    /// # Errors
    ///
    /// The errno of the mmap.
    pub fn map(&self, offset: u64, len: usize, protection: Protection) -> Result<DoorMapping, Errno> {
        // SAFETY: the descriptor is `self`'s.
        let pointer = unsafe { self.door.mmap(&MapRequest { fd: self.raw, offset, len, protection }) }?;
        Ok(DoorMapping { door: Arc::clone(&self.door), pointer, len })
    }

    /// Reads up to `buffer.len()` bytes and returns their number.
    ///
    /// # Errors
    ///
    /// The errno of the read.
    pub fn read(&self, buffer: &mut [u8]) -> Result<usize, Errno> {
        // SAFETY: the descriptor is `self`'s.
        unsafe { self.door.read(self.raw, buffer) }
    }

    /// Seeks to the end of `/dev/kmsg`, after its last record.
    ///
    /// # Errors
    ///
    /// The errno of the lseek.
    pub fn seek_end(&self) -> Result<(), Errno> {
        // SAFETY: the descriptor is `self`'s.
        unsafe { self.door.seek_end(self.raw) }
    }

    /// Waits until an event of `wanted`, or an error, occurs, at most for `timeout`. Returns what has occurred; nothing
    /// after a time-out.
    ///
    /// # Errors
    ///
    /// The errno of the poll: `INTR` after a signal.
    pub fn poll(&self, wanted: Events, timeout: Duration) -> Result<Events, Errno> {
        // SAFETY: the descriptor is `self`'s.
        unsafe { self.door.poll(self.raw, wanted, timeout) }
    }
}

impl Drop for DoorFd {
    fn drop(&mut self) {
        // SAFETY: the descriptor is `self`'s, and `self` ends here. Linux releases the descriptor even if close fails,
        // so the error is ignored.
        let _ = unsafe { self.door.close(self.raw) };
    }
}

impl fmt::Debug for DoorFd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("DoorFd").field(&self.raw).finish()
    }
}

/// A CPU mapping; unmapped through its door on drop.
///
/// The memory is shared with a device: access it through raw pointers with volatile or atomic
/// operations, never through references.
pub struct DoorMapping {
    door: Arc<dyn Door>,
    pointer: NonNull<u8>,
    len: usize,
}

// SAFETY: the mapping is an address range of the whole process. `DoorMapping` only returns a raw
// pointer to it; code that dereferences the pointer has to synchronise its accesses.
unsafe impl Send for DoorMapping {}
// SAFETY: as for `Send`: `&DoorMapping` only yields the pointer and the length.
unsafe impl Sync for DoorMapping {}

impl DoorMapping {
    /// Pointer to the first byte; `len` bytes are mapped while `self` is alive. See [`Door::mmap`] for a descriptor
    /// whose object is shorter.
    pub fn pointer(&self) -> NonNull<u8> {
        self.pointer
    }

    /// Length in bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the mapping is empty; always `false`, because the kernel rejects an empty mapping.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

impl Drop for DoorMapping {
    fn drop(&mut self) {
        // SAFETY: pointer and length describe the mapping that `self` owns, which is unmapped only
        // here; by the contract of `pointer`, no pointer to it outlives `self`.
        let _ = unsafe { self.door.munmap(self.pointer, self.len) };
    }
}

impl fmt::Debug for DoorMapping {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DoorMapping").field("pointer", &self.pointer).field("len", &self.len).finish()
    }
}
