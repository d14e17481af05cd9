//! Processes: owners of descriptors, handle numbers and CPU mappings.
//!
//! All of them live in one process of the host, except those that are served ([`CallerDoor`]).

mod closes;
pub(super) mod fds;
pub(super) mod mappings;
pub(super) mod served;
pub(super) mod task;

use core::ffi::CStr;
use std::collections::BTreeMap;
use std::ffi::CString;
use std::os::fd::RawFd;
use std::sync::Arc;

use kernel_door::{MapRequest, OpenFlags};
use rustix::io::Errno;

use crate::caller::guard;
use crate::caller::{Caller, CallerFile, CallerMemory};

use super::{Kernel, SoftwareOrin};

use task::Task;

/// Number of a process of the board; never reused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::kernel) struct ProcessId(pub(in crate::kernel) u32);

/// Numbers of objects that a process owns.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use orin_sim::{Config, SoftwareOrin};
///
/// let orin = SoftwareOrin::new(Config::default())?;
/// assert_eq!(orin.process_counts().descriptors, 0);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProcessCounts {
    /// Open descriptors.
    pub descriptors: usize,
    /// CPU mappings.
    pub mappings: usize,
    /// nvmap handle numbers.
    pub handles: usize,
}

impl SoftwareOrin {
    /// The task that makes the requests of this handle.
    pub(in crate::kernel) fn task(&self) -> Task<'_> {
        Task::own(self.process, self.memory.as_deref())
    }

    /// Creates another process on the same board, with no open descriptors and the same memory.
    #[must_use]
    pub fn process(&self) -> Self {
        let mut state = self.board.kernel.state.lock();
        state.next_process += 1;
        let process = ProcessId(state.next_process);
        drop(state);
        Self { board: Arc::clone(&self.board), process, memory: self.memory.clone() }
    }

    /// Creates another process on the same board, with no open descriptors. The addresses in its requests, including
    /// those of the arguments, are addresses in `memory`. Memory of such a process cannot be imported (FROM_VA) unless
    /// it [is direct](CallerMemory::is_direct).
    #[must_use]
    pub fn process_with_memory(&self, memory: Arc<dyn CallerMemory>) -> Self {
        Self { memory: Some(memory), ..self.process() }
    }

    /// Returns the door for requests that `caller`, a thread of another process of the host, makes for this process.
    /// The memory and the descriptors of its requests are the caller's.
    ///
    /// The host reports the last close of the caller's descriptors, so such a process needs no [`SoftwareOrin::exit`].
    #[must_use]
    pub fn served<'a>(&'a self, caller: &'a dyn Caller) -> CallerDoor<'a> {
        self.board.kernel.start_serving();
        CallerDoor { kernel: &self.board.kernel, task: Task::served(self.process, caller) }
    }

    /// Creates a process with this one's descriptors, like fork(). Both share their open files, so if the doorbell page
    /// of a control node is mapped here, it cannot be mapped there. CPU mappings of dma-bufs and of the doorbell are
    /// not inherited.
    ///
    /// Returns the process and the number that each descriptor has there. On a board the numbers are equal.
    ///
    /// # Errors
    ///
    /// EMFILE or ENFILE if the descriptor table of the host is full; then nothing is created.
    pub fn fork(&self) -> Result<(Self, BTreeMap<RawFd, RawFd>), Errno> {
        let child = self.process();
        let numbers = self.board.kernel.state.lock().fds.numbers(self.process);
        let mut inherited = BTreeMap::new();
        for fd in numbers {
            match self.send(fd, &child) {
                Ok(copy) => inherited.insert(fd, copy),
                Err(errno) => {
                    child.exit();
                    return Err(errno);
                }
            };
        }
        Ok((child, inherited))
    }

    /// Passes a descriptor to another process of the board, like a message with SCM_RIGHTS. Returns its number there.
    ///
    /// # Errors
    ///
    /// EBADF if this process has no such descriptor; EMFILE or ENFILE if the descriptor table of the host is full;
    /// ESRCH if the other process has exited; EXDEV if it is a process of another board.
    pub fn send(&self, fd: RawFd, to: &Self) -> Result<RawFd, Errno> {
        if !Arc::ptr_eq(&self.board, &to.board) {
            return Err(Errno::XDEV);
        }
        let mut state = self.board.kernel.state.lock();
        if state.exited.contains(&to.process) {
            return Err(Errno::SRCH);
        }
        state.fds.duplicate(&self.task(), fd, to.process)
    }

    /// Ends the process: closes its descriptors and frees its handle numbers. Its CPU mappings no longer count. Their
    /// addresses stay readable, because all processes share one host process.
    pub fn exit(&self) {
        let kernel: &Kernel = &self.board.kernel;
        let _inside = guard::enter();
        let numbers = {
            let mut state = kernel.state.lock();
            state.exited.insert(self.process);
            state.fds.numbers(self.process)
        };
        for fd in numbers {
            // Fails only if another thread of the process has just closed it.
            let _ = kernel.close(&self.task(), fd);
        }
        kernel.state.lock().fds.abandon(self.process);
        kernel.settle_all();
        let pages = kernel.state.lock().forget_mappings(self.process);
        for page in pages {
            kernel.gpu(|gpu| gpu.remove_doorbell_page(&page));
        }
    }

    /// Returns the numbers of objects that this process owns.
    pub fn process_counts(&self) -> ProcessCounts {
        self.board.kernel.settle_all();
        let state = self.board.kernel.state.lock();
        ProcessCounts {
            descriptors: state.fds.numbers(self.process).len(),
            mappings: state.mappings.values().filter(|mapping| mapping.owner == self.process).count(),
            handles: state.nvmap.handles_of(self.process),
        }
    }
}

/// An open file of a served process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Opened {
    /// The node; `None` for an object that a request has created.
    pub path: Option<CString>,
    /// Size of a dma-buf in bytes; 0 for other objects.
    pub size: u64,
}

/// The calls of a process that the model answers for one of its threads; the host makes all others.
#[derive(Clone, Copy)]
pub struct CallerDoor<'a> {
    kernel: &'a Kernel,
    task: Task<'a>,
}

impl CallerDoor<'_> {
    /// Opens a node of the board. Returns the number of the descriptor in the caller.
    ///
    /// # Errors
    ///
    /// As open(2); ENOENT if the board has no such node.
    pub fn open(&self, path: &CStr, flags: OpenFlags) -> Result<RawFd, Errno> {
        let _inside = guard::enter();
        self.kernel.open(&self.task, path, flags)
    }

    /// Makes a request. `argument` is an address in the caller's memory, or a number if the request takes one. Returns
    /// the result of the request.
    ///
    /// # Errors
    ///
    /// EBADF if the number is not open, ENOTTY if it is not a descriptor of the board; then the host must answer. Else
    /// the errno of the request.
    pub fn ioctl(&self, fd: RawFd, request: u32, argument: u64) -> Result<i32, Errno> {
        let _inside = guard::enter();
        self.kernel.ioctl(&self.task, fd, request, argument)
    }

    /// Checks a mapping that the caller is about to make, and prepares the board for it. If the result is `Ok`, the
    /// caller may continue with its mmap. Returns whether the file is one of the board.
    ///
    /// # Errors
    ///
    /// The errno with which the mmap must fail.
    pub fn approve_mmap(&self, request: &MapRequest) -> Result<bool, Errno> {
        let _inside = guard::enter();
        self.kernel.approve_mmap(&self.task, request)
    }

    /// Answers a seek to the end: of the log, or of a dma-buf, which returns its size. Returns `None` if the host must
    /// answer.
    pub fn seek_end(&self, fd: RawFd) -> Option<Result<u64, Errno>> {
        self.kernel.served_seek_end(&self.task, fd)
    }

    /// The open file behind a number; `None` if it is not one of the board.
    pub fn opened(&self, fd: RawFd) -> Option<Opened> {
        self.kernel.opened(&self.task, fd)
    }

    /// Returns the files that served processes have closed and the model has released since the last call. The first
    /// call starts the list.
    pub fn take_closed(&self) -> Vec<CallerFile> {
        let closed = self.kernel.take_closed_files();
        closed.into_iter().map(|(device, inode)| CallerFile { device, inode }).collect()
    }

    /// Releases what served processes have closed, also files whose last close the host does not report.
    pub fn settle(&self) {
        self.kernel.settle_all();
    }
}
