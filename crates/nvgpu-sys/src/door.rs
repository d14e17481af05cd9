//! The door to the kernel.
//!
//! Everything above this module reaches the kernel through [`Door`]: open, ioctl, mmap, munmap,
//! read, poll, close. [`crate::LinuxDoor`] makes real system calls; a software kernel implements
//! the same trait, so the code above is the same for both.
//!
//! [`DoorFd`] and [`DoorMapping`] own a descriptor and a mapping, and release them on drop.

use core::any::Any;
use core::ffi::{CStr, c_void};
use core::fmt;
use core::ptr::NonNull;
use core::time::Duration;
use std::os::fd::RawFd;
use std::sync::Arc;

use rustix::io::Errno;

bitflags::bitflags! {
    /// Flags of [`Door::open`]: a subset of the kernel's `O_*` flags.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
    pub struct OpenFlags: u32 {
        /// Read and write (`O_RDWR`); without it, the node is opened read-only.
        const READ_WRITE = 1;
        /// Close the descriptor on exec (`O_CLOEXEC`).
        const CLOSE_ON_EXEC = 2;
        /// Reads do not block (`O_NONBLOCK`).
        const NON_BLOCKING = 4;
        /// Synchronised writes (`O_SYNC`); NVIDIA's nvmap library passes it.
        const SYNC = 8;
    }
}

bitflags::bitflags! {
    /// Access rights of a CPU mapping.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
    pub struct Protection: u32 {
        /// Loads (`PROT_READ`).
        const READ = 1;
        /// Stores (`PROT_WRITE`).
        const WRITE = 2;
    }
}

bitflags::bitflags! {
    /// Events to wait for, or that have occurred, on a descriptor.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
    pub struct Events: u32 {
        /// Data to read (`POLLIN`).
        const IN = 1;
        /// Exceptional condition (`POLLPRI`); nvgpu and sync-files use it for errors.
        const PRIORITY = 2;
        /// Error on the descriptor (`POLLERR`); only in results.
        const ERROR = 4;
        /// Peer gone (`POLLHUP`); only in results.
        const HANG_UP = 8;
        /// Not an open descriptor (`POLLNVAL`); only in results.
        const INVALID = 16;
    }
}

/// Arguments of [`Door::mmap`]: a shared mapping of a descriptor.
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
    /// Requested events.
    pub wanted: Events,
    /// Events that have occurred; written by the call.
    pub happened: Events,
}

/// The system calls that the driver needs.
///
/// # Errors
///
/// Each call returns the kernel's errno unchanged; the caller, which knows the object, interprets it.
///
/// # Safety
///
/// The callers rely on the answers as on the kernel's. [`Door::mmap`] returns `len` bytes that are valid for volatile
/// accesses of the requested kind until [`Door::munmap`], and which no reference covers. A request writes to its
/// argument and through its pointers no more than the kernel does.
pub unsafe trait Door: Send + Sync + fmt::Debug {
    /// Name of the kernel, for messages: `"Linux"`, or that of a software kernel.
    fn name(&self) -> &'static str;

    /// The software kernel behind the door, for tools that talk to it beside the kernel's calls; `None` for a real
    /// kernel. A door in front of another one answers as that one.
    fn software(&self) -> Option<&(dyn Any + Send + Sync)> {
        None
    }

    /// Opens the node at `path`.
    fn open(&self, path: &CStr, flags: OpenFlags) -> Result<RawFd, Errno>;

    /// Sends one request. A positive result is returned as is: nvgpu reports the residue of a failed
    /// copy-out that way.
    ///
    /// # Safety
    ///
    /// `argument` matches the request: a pointer to the request's struct, valid for reads and writes
    /// of the size encoded in `request` for the duration of the call, or a number if that size is 0.
    /// Pointers inside the struct are valid for the accesses of the request.
    unsafe fn ioctl(&self, fd: RawFd, request: u32, argument: *mut c_void) -> Result<i32, Errno>;

    /// Creates a shared mapping of a descriptor, at an address that the kernel chooses.
    fn mmap(&self, request: &MapRequest) -> Result<NonNull<u8>, Errno>;

    /// Unmaps a mapping made by [`Door::mmap`].
    ///
    /// # Safety
    ///
    /// `pointer` and `len` describe one mapping made by `mmap` of this door and not yet unmapped, and
    /// nothing uses the memory any more.
    unsafe fn munmap(&self, pointer: NonNull<u8>, len: usize) -> Result<(), Errno>;

    /// Reads up to `buffer.len()` bytes and returns their number. Used for `/dev/kmsg` and event files.
    fn read(&self, fd: RawFd, buffer: &mut [u8]) -> Result<usize, Errno>;

    /// Seeks to the end of `/dev/kmsg`, after its last record (`lseek(fd, 0, SEEK_END)`).
    fn seek_end(&self, fd: RawFd) -> Result<(), Errno>;

    /// Waits for events, at most for `timeout`, and returns the number of descriptors with events.
    fn poll(&self, entries: &mut [PollEntry], timeout: Duration) -> Result<usize, Errno>;

    /// Closes a descriptor.
    fn close(&self, fd: RawFd) -> Result<(), Errno>;
}

/// An open descriptor; closed through its door on drop.
///
/// ```
/// use std::sync::Arc;
/// use nvgpu_sys::{Door, DoorFd, Errno, LinuxDoor, door::OpenFlags};
///
/// let door: Arc<dyn Door> = Arc::new(LinuxDoor);
/// // Closed when it is dropped.
/// let node = DoorFd::open(&door, c"/dev/null", OpenFlags::READ_WRITE | OpenFlags::CLOSE_ON_EXEC)?;
/// assert!(node.raw() >= 0);
/// # Ok::<(), Errno>(())
/// ```
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
    pub fn from_raw(door: &Arc<dyn Door>, raw: RawFd) -> Self {
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
        let pointer = self.door.mmap(&MapRequest { fd: self.raw, offset, len, protection })?;
        Ok(DoorMapping { door: Arc::clone(&self.door), pointer, len })
    }
}

impl Drop for DoorFd {
    fn drop(&mut self) {
        // Linux releases the descriptor even if close fails, so the error is ignored.
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
    /// Pointer to the first byte, valid for `len` bytes while `self` is alive.
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
