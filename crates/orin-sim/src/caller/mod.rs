//! Memory of the program that makes a request.
//!
//! The kernel copies arguments from and to the address space of the calling process. The model does so through
//! [`CallerMemory`], so that a caller can also be another process of the host. `OwnMemory` is the memory of the
//! host process itself; its pages can be accessed in place (`guard`).
//!
//! A [`Caller`] is a thread of another process that also owns its descriptors: the model installs descriptors there
//! and recognises them by their inode.

pub(crate) mod guard;
pub(crate) mod maps;
mod own;

use core::fmt;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};

use rustix::io::Errno;
use serde::{Deserialize, Serialize};

pub use maps::{CallerMapping, parse_mapping};

pub(crate) use own::OwnMemory;

/// Memory of a process, accessed by address like the kernel accesses user memory. Any address is allowed; inaccessible
/// memory is an error, never a signal.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use std::sync::{Arc, Mutex};
/// use kernel_door::{Door, Errno, OpenFlags};
/// use orin_sim::{CallerMemory, Config, SoftwareOrin};
///
/// /// A process whose memory is a vector that starts at address 0x1000.
/// #[derive(Debug)]
/// struct Program(Mutex<Vec<u8>>);
///
/// impl CallerMemory for Program {
///     fn read(&self, address: u64, buffer: &mut [u8]) -> Result<(), Errno> {
///         let memory = self.0.lock().map_err(|_| Errno::FAULT)?;
///         let start = address.checked_sub(0x1000).ok_or(Errno::FAULT)? as usize;
///         let source = memory.get(start..).and_then(|rest| rest.get(..buffer.len()));
///         buffer.copy_from_slice(source.ok_or(Errno::FAULT)?);
///         Ok(())
///     }
///     fn write(&self, address: u64, bytes: &[u8]) -> usize {
///         let Ok(mut memory) = self.0.lock() else { return bytes.len() };
///         let start = address.wrapping_sub(0x1000) as usize;
///         let Some(target) = memory.get_mut(start..).and_then(|rest| rest.get_mut(..bytes.len())) else {
///             return bytes.len();
///         };
///         target.copy_from_slice(bytes);
///         0
///     }
/// }
///
/// let program = Arc::new(Program(Mutex::new(vec![0; 64])));
/// let orin = SoftwareOrin::new(Config::default())?.process_with_memory(program.clone());
/// let nvmap = orin.open(c"/dev/nvmap", OpenFlags::READ_WRITE)?;
/// // NVMAP_IOC_CREATE of a page: the argument is at 0x1010 of the program, not of this process.
/// program.0.lock().unwrap()[0x10..0x14].copy_from_slice(&4096_u32.to_le_bytes());
/// let argument = core::ptr::without_provenance_mut(0x1010);
/// // SAFETY: the model resolves the address through `Program`.
/// unsafe { orin.ioctl(nvmap, nvgpu_sys::nvmap::CREATE.code(), argument)? };
/// assert_ne!(program.0.lock().unwrap()[0x14..0x18], [0; 4]);
/// // SAFETY: opened above.
/// unsafe { orin.close(nvmap)? };
/// # Ok(())
/// # }
/// ```
pub trait CallerMemory: fmt::Debug + Send + Sync {
    /// Fills `buffer` from `address`.
    ///
    /// # Errors
    ///
    /// [`Errno::FAULT`] if a part cannot be read; part of `buffer` may have been filled.
    fn read(&self, address: u64, buffer: &mut [u8]) -> Result<(), Errno>;

    /// Stores `bytes` at `address`, from the first byte on. Returns the number of bytes that could not be stored.
    fn write(&self, address: u64, bytes: &[u8]) -> usize;

    /// Whether an address of the caller is the same address of the host process, so that the model may map the memory
    /// for the GPU in place. FROM_VA fails with EINVAL for other callers.
    fn is_direct(&self) -> bool {
        false
    }
}

/// The file behind a descriptor of a [`Caller`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallerFile {
    /// Device number of the file system (`st_dev`).
    pub device: u64,
    /// Inode number (`st_ino`).
    pub inode: u64,
}

impl CallerFile {
    /// The file behind a descriptor of this process.
    ///
    /// # Errors
    ///
    /// The errno of fstat(2).
    pub fn of(descriptor: impl AsFd) -> Result<Self, Errno> {
        let stat = rustix::fs::fstat(descriptor)?;
        Ok(Self { device: stat.st_dev, inode: stat.st_ino })
    }
}

/// A thread of another process of the host that makes a request: its memory, its descriptors and its names.
///
/// The addresses and descriptor numbers in its requests are those of its process. Every file that the model installs
/// has an inode of its own, so numbers need no bookkeeping: dup, fork, exec and passing are the host's.
pub trait Caller: CallerMemory {
    /// Installs a duplicate of `file` in the caller's descriptor table. Returns its number there.
    ///
    /// # Errors
    ///
    /// EMFILE if the table is full, ESRCH or ENOENT if the caller has ended.
    fn install(&self, file: BorrowedFd<'_>, close_on_exec: bool) -> Result<RawFd, Errno>;

    /// Returns the file behind a number.
    ///
    /// # Errors
    ///
    /// [`Errno::BADF`] if the number is not open.
    fn file(&self, number: RawFd) -> Result<CallerFile, Errno>;

    /// Returns a duplicate of the descriptor behind a number, for memory that another driver has exported.
    ///
    /// # Errors
    ///
    /// [`Errno::BADF`] if the number is not open, or if the caller's descriptors cannot be had.
    fn open(&self, number: RawFd) -> Result<OwnedFd, Errno> {
        let _ = number;
        Err(Errno::BADF)
    }

    /// Whether a number is open for writing.
    fn is_writable(&self, number: RawFd) -> bool;

    /// The file mappings of the caller's memory, by address.
    fn mappings(&self) -> Vec<CallerMapping>;

    /// Id of the process on the host, for the kernel log.
    fn process_id(&self) -> u32;

    /// Name of the thread, for the kernel log.
    fn name(&self) -> String;

    /// Whether a signal is pending for the caller: a blocking request then ends with EINTR.
    fn is_interrupted(&self) -> bool {
        false
    }
}
