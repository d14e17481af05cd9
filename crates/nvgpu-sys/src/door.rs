//! The door to the kernel.
//!
//! Everything above this module reaches the kernel through [`Door`]: open, ioctl, mmap, munmap,
//! read, poll, close. [`crate::LinuxDoor`] makes real system calls; a software kernel implements
//! the same trait, so that not one line above differs between the two.
//!
//! [`DoorFd`] and [`DoorMapping`] own what a door handed out and give it back on drop.

use core::ffi::{CStr, c_void};
use core::fmt;
use core::ptr::NonNull;
use core::time::Duration;
use std::os::fd::RawFd;
use std::sync::Arc;

use rustix::io::Errno;

bitflags::bitflags! {
    /// How to open a node; a subset of the kernel's `O_*` flags.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
    pub struct OpenFlags: u32 {
        /// Read and write (`O_RDWR`); without it the node is opened read-only.
        const READ_WRITE = 1;
        /// Close the descriptor on exec (`O_CLOEXEC`).
        const CLOSE_ON_EXEC = 2;
        /// Reads and polls return at once (`O_NONBLOCK`).
        const NON_BLOCKING = 4;
        /// Synchronised writes (`O_SYNC`); nvmap's own users pass it.
        const SYNC = 8;
    }
}

bitflags::bitflags! {
    /// What a CPU mapping may do.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
    pub struct Protection: u32 {
        /// Loads (`PROT_READ`).
        const READ = 1;
        /// Stores (`PROT_WRITE`).
        const WRITE = 2;
    }
}

bitflags::bitflags! {
    /// What to wait for, or what has happened, on a descriptor.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
    pub struct Events: u32 {
        /// Data to read (`POLLIN`).
        const IN = 1;
        /// Exceptional condition (`POLLPRI`); nvgpu and sync files use it for errors.
        const PRIORITY = 2;
        /// Error on the descriptor (`POLLERR`); only in results.
        const ERROR = 4;
        /// Peer gone (`POLLHUP`); only in results.
        const HANG_UP = 8;
        /// Not an open descriptor (`POLLNVAL`); only in results.
        const INVALID = 16;
    }
}

/// One shared mapping of a descriptor, as asked of [`Door::mmap`].
#[derive(Clone, Copy, Debug)]
pub struct MapRequest {
    /// Descriptor to map: a dma-buf, or a control node for the doorbell page.
    pub fd: RawFd,
    /// Offset into the descriptor, in bytes; a multiple of the CPU page size.
    pub offset: u64,
    /// Length in bytes, not 0.
    pub len: usize,
    /// Loads, stores or both.
    pub protection: Protection,
}

/// One descriptor of a [`Door::poll`] call.
#[derive(Clone, Copy, Debug)]
pub struct PollEntry {
    /// Descriptor to watch.
    pub fd: RawFd,
    /// Events asked for.
    pub wanted: Events,
    /// Events that happened; written by the call.
    pub happened: Events,
}

/// The system calls that driving the GPU needs, and no others.
///
/// # Errors
///
/// Each call returns the kernel's errno unchanged; what it means is decided by the caller, who
/// knows the object.
pub trait Door: Send + Sync + fmt::Debug {
    /// What answers the calls, for messages: `"Linux"` or the name of a software kernel.
    fn name(&self) -> &'static str;

    /// Opens the node at `path`.
    fn open(&self, path: &CStr, flags: OpenFlags) -> Result<RawFd, Errno>;

    /// Sends one request. A positive result is passed through: nvgpu returns the residue of a
    /// failed copy-out that way.
    ///
    /// # Safety
    ///
    /// `argument` is what the request says it is: a pointer to the request's struct, valid for
    /// reads and writes of the size encoded in `request` for the length of the call, or a plain
    /// value for requests of size 0. Pointers inside the struct are valid as the request says.
    unsafe fn ioctl(&self, fd: RawFd, request: u32, argument: *mut c_void) -> Result<i32, Errno>;

    /// Maps a descriptor shared into the process at an address of the kernel's choice.
    fn mmap(&self, request: &MapRequest) -> Result<NonNull<u8>, Errno>;

    /// Undoes [`Door::mmap`].
    ///
    /// # Safety
    ///
    /// `pointer` and `len` are those of one earlier `mmap` of this door, not yet undone, and
    /// nothing uses the memory any more.
    unsafe fn munmap(&self, pointer: NonNull<u8>, len: usize) -> Result<(), Errno>;

    /// Reads up to `buffer.len()` bytes; returns how many. Used for `/dev/kmsg` and event files.
    fn read(&self, fd: RawFd, buffer: &mut [u8]) -> Result<usize, Errno>;

    /// Positions `/dev/kmsg` behind its last record, as `lseek(fd, 0, SEEK_END)` does.
    fn seek_end(&self, fd: RawFd) -> Result<(), Errno>;

    /// Waits for events at most `timeout` long; returns the number of descriptors with events.
    fn poll(&self, entries: &mut [PollEntry], timeout: Duration) -> Result<usize, Errno>;

    /// Closes a descriptor.
    fn close(&self, fd: RawFd) -> Result<(), Errno>;
}

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

    /// Takes over a descriptor that a request of `door` returned.
    pub fn from_raw(door: &Arc<dyn Door>, raw: RawFd) -> Self {
        Self { door: Arc::clone(door), raw }
    }

    /// The descriptor's number.
    pub fn raw(&self) -> RawFd {
        self.raw
    }

    /// The door it came through.
    pub fn door(&self) -> &Arc<dyn Door> {
        &self.door
    }

    /// Maps the descriptor; see [`Door::mmap`].
    ///
    /// # Errors
    ///
    /// The errno of the mmap.
    pub fn map(&self, offset: u64, len: usize, protection: Protection) -> Result<DoorMapping, Errno> {
        let pointer = self.door.mmap(&MapRequest { fd: self.raw, offset, len, protection })?;
        Ok(DoorMapping { door: Arc::clone(&self.door), pointer, len })
    }
}

impl Drop for DoorFd {
    fn drop(&mut self) {
        // A failed close leaves nothing to do: the number is gone either way.
        let _ = self.door.close(self.raw);
    }
}

impl fmt::Debug for DoorFd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("DoorFd").field(&self.raw).finish()
    }
}

/// A CPU mapping; unmapped through its door on drop.
///
/// The memory is shared with a device, so it is only ever reached through raw pointers and
/// volatile or atomic accesses, never through references.
pub struct DoorMapping {
    door: Arc<dyn Door>,
    pointer: NonNull<u8>,
    len: usize,
}

// SAFETY: the mapping is an address range of the whole process, and `DoorMapping` offers no access
// to the bytes beyond a raw pointer; synchronising accesses is the job of whoever dereferences it.
unsafe impl Send for DoorMapping {}
// SAFETY: as for `Send`: `&DoorMapping` only yields the pointer and the length.
unsafe impl Sync for DoorMapping {}

impl DoorMapping {
    /// First byte of the mapping. Valid for `len` bytes as long as `self` lives.
    pub fn pointer(&self) -> NonNull<u8> {
        self.pointer
    }

    /// Length in bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the mapping has no bytes; never the case, the kernel refuses it.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

impl Drop for DoorMapping {
    fn drop(&mut self) {
        // SAFETY: pointer and length are those of the mmap that made `self`, undone only here;
        // pointers handed out do not outlive `self` by the contract of `pointer`.
        let _ = unsafe { self.door.munmap(self.pointer, self.len) };
    }
}

impl fmt::Debug for DoorMapping {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DoorMapping").field("pointer", &self.pointer).field("len", &self.len).finish()
    }
}
