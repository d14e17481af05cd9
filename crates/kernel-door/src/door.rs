//! The system calls, as a trait.

use core::any::Any;
use core::ffi::{CStr, c_void};
use core::fmt;
use core::ptr::NonNull;
use core::time::Duration;
use std::os::fd::RawFd;

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

    /// Access rights of a CPU mapping.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
    pub struct Protection: u32 {
        /// Loads (`PROT_READ`).
        const READ = 1;
        /// Stores (`PROT_WRITE`).
        const WRITE = 2;
    }

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
    /// First address of the mapping, which replaces what is mapped there; `None` if the kernel chooses.
    pub place: Option<NonNull<u8>>,
}

/// The system calls that a driver needs, by descriptor number.
///
/// [`DoorFd`](crate::DoorFd) and [`DoorMapping`](crate::DoorMapping) are their safe form.
///
/// # Errors
///
/// Each call returns the kernel's errno unchanged; the caller, which knows the object, interprets it.
///
/// # Safety
///
/// The callers rely on the answers as on the kernel's:
///
/// - [`Door::open`] returns a new descriptor, which the caller owns.
/// - [`Door::mmap`] returns `len` bytes of address space that no reference covers, until [`Door::munmap`]. They are
///   valid for volatile accesses of the requested kind as far as the object behind the descriptor extends; an access
///   beyond its end, or to what was cut off since, raises `SIGBUS`.
/// - A request writes to its argument and through its pointers no more than the kernel does.
///
/// ```
/// use kernel_door::{Door, Errno, LinuxDoor, OpenFlags};
///
/// let door: &dyn Door = &LinuxDoor;
/// assert_eq!(door.name(), "Linux");
/// assert_eq!(door.open(c"/dev/no/such/node", OpenFlags::empty()), Err(Errno::NOENT));
/// ```
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
    /// The caller owns or borrows `fd`. `argument` matches the request: a pointer to the request's struct, valid for
    /// reads and writes of the size encoded in `request` for the duration of the call, or a number if that size is 0.
    /// Pointers inside the struct are valid for the accesses of the request. Descriptors that the request closes belong
    /// to the caller.
    unsafe fn ioctl(&self, fd: RawFd, request: u32, argument: *mut c_void) -> Result<i32, Errno>;

    /// Creates a shared mapping of a descriptor. If it fails with a place, the addresses are either as before or
    /// unmapped.
    ///
    /// # Safety
    ///
    /// The caller owns or borrows the descriptor, and owns the addresses at the place, which nothing uses.
    unsafe fn mmap(&self, request: &MapRequest) -> Result<NonNull<u8>, Errno>;

    /// Unmaps a mapping made by [`Door::mmap`].
    ///
    /// # Safety
    ///
    /// `pointer` and `len` describe one mapping made by `mmap` of this door and not yet unmapped, and
    /// nothing uses the memory any more.
    unsafe fn munmap(&self, pointer: NonNull<u8>, len: usize) -> Result<(), Errno>;

    /// Reads up to `buffer.len()` bytes and returns their number. Used for `/dev/kmsg` and event files.
    ///
    /// # Safety
    ///
    /// The caller owns or borrows `fd`.
    unsafe fn read(&self, fd: RawFd, buffer: &mut [u8]) -> Result<usize, Errno>;

    /// Seeks to the end (`lseek(fd, 0, SEEK_END)`) and returns the position: the size of a dma-buf in bytes; 0 for
    /// `/dev/kmsg`, of which the next read returns the next new record.
    ///
    /// # Safety
    ///
    /// The caller owns or borrows `fd`.
    unsafe fn seek_end(&self, fd: RawFd) -> Result<u64, Errno>;

    /// Waits until an event of `wanted`, or an error, occurs on a descriptor, at most for `timeout`. Returns what has
    /// occurred; nothing after a time-out.
    ///
    /// # Safety
    ///
    /// The caller owns or borrows `fd`.
    unsafe fn poll(&self, fd: RawFd, wanted: Events, timeout: Duration) -> Result<Events, Errno>;

    /// Closes a descriptor.
    ///
    /// # Safety
    ///
    /// The caller owns `fd`, and nothing uses it afterwards.
    unsafe fn close(&self, fd: RawFd) -> Result<(), Errno>;
}
