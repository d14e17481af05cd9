//! Processes: owners of descriptors, handle numbers and CPU mappings.
//!
//! All of them live in one process of the host. As in the kernel, the current process is a property of the thread. Each
//! call of a door sets it for its duration.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::os::fd::RawFd;
use std::sync::Arc;

use kernel_door::MapRequest;
use rustix::io::Errno;

use crate::caller::guard::{self, Inside};
use crate::caller::{Caller, CallerMemory, OwnMemory};

use super::{Kernel, SoftwareOrin};

/// Number of a process of the board; never reused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ProcessId(pub(super) u32);

thread_local! {
    static CURRENT: Cell<ProcessId> = const { Cell::new(ProcessId(0)) };
    /// The memory of the current process; `None` if it is the host's.
    static MEMORY: RefCell<Option<Arc<dyn CallerMemory>>> = const { RefCell::new(None) };
    /// The caller, if it is a thread of another process of the host.
    static CALLER: RefCell<Option<Arc<dyn Caller>>> = const { RefCell::new(None) };
}

/// The process for which this thread runs.
pub(super) fn current() -> ProcessId {
    CURRENT.get()
}

/// Calls `access` with the memory of the current process.
pub(super) fn with_memory<R>(access: impl FnOnce(&dyn CallerMemory) -> R) -> R {
    // Cloned, because an access may enter another process.
    match MEMORY.with_borrow(Option::clone) {
        Some(memory) => access(&*memory),
        None => access(&OwnMemory),
    }
}

/// The caller, if it is a thread of another process of the host.
pub(super) fn caller() -> Option<Arc<dyn Caller>> {
    CALLER.with_borrow(Option::clone)
}

/// Whether the current process is another process of the host.
pub(super) fn is_served() -> bool {
    CALLER.with_borrow(Option::is_some)
}

/// Id of the current process on the host.
pub(super) fn host_id() -> u32 {
    caller().map_or_else(std::process::id, |caller| caller.process_id())
}

/// Name of the current process in the kernel.
pub(super) fn command() -> String {
    let own = || std::fs::read_to_string("/proc/self/comm").unwrap_or_default().trim().to_owned();
    caller().map_or_else(own, |caller| caller.name())
}

/// Name of the current thread.
pub(super) fn thread_name() -> String {
    let own = || std::thread::current().name().unwrap_or("user").to_owned();
    caller().map_or_else(own, |caller| caller.name())
}

/// Ends [`SoftwareOrin::enter`].
pub(super) struct Entered {
    before: ProcessId,
    memory_before: Option<Arc<dyn CallerMemory>>,
    caller_before: Option<Arc<dyn Caller>>,
    _inside: Inside,
}

impl Drop for Entered {
    fn drop(&mut self) {
        CURRENT.set(self.before);
        MEMORY.set(self.memory_before.take());
        CALLER.set(self.caller_before.take());
    }
}

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
    /// Makes this the current process of the thread until the result is dropped.
    pub(super) fn enter(&self) -> Entered {
        Entered {
            before: CURRENT.replace(self.process),
            memory_before: MEMORY.replace(self.memory.clone()),
            caller_before: CALLER.replace(self.caller.clone()),
            _inside: guard::enter(),
        }
    }

    /// Creates another process on the same board, with no open descriptors and the same memory.
    #[must_use]
    pub fn process(&self) -> Self {
        let mut state = self.board.kernel.lock();
        state.next_process += 1;
        let process = ProcessId(state.next_process);
        drop(state);
        let (memory, caller) = (self.memory.clone(), self.caller.clone());
        Self { board: Arc::clone(&self.board), process, memory, caller }
    }

    /// Creates another process on the same board, with no open descriptors. The addresses in its requests, including
    /// those of the arguments, are addresses in `memory`. Memory of such a process cannot be imported (FROM_VA) unless
    /// it [is direct](CallerMemory::is_direct).
    #[must_use]
    pub fn process_with_memory(&self, memory: Arc<dyn CallerMemory>) -> Self {
        Self { memory: Some(memory), caller: None, ..self.process() }
    }

    /// Returns a handle of this process for requests of `caller`, a thread of another process of the host. The memory
    /// and the descriptors of its requests are the caller's.
    ///
    /// The host reports the last close of the caller's descriptors, so such a process needs no [`SoftwareOrin::exit`].
    /// Memory that it maps must be mapped by its own system call, after [`SoftwareOrin::approve_mmap`].
    #[must_use]
    pub fn served(&self, caller: Arc<dyn Caller>) -> Self {
        self.board.kernel.start_serving();
        let memory: Arc<dyn CallerMemory> = Arc::clone(&caller) as _;
        let board = Arc::clone(&self.board);
        Self { board, process: self.process, memory: Some(memory), caller: Some(caller) }
    }

    /// Moves a kernel-log descriptor of a served process to the end of the log. Returns whether `fd` is one; any other
    /// seek is the host's.
    pub fn seek_log_end(&self, fd: RawFd) -> bool {
        let _entered = self.enter();
        self.board.kernel.seek_log_end(fd)
    }

    /// Checks a mapping that a served process is about to make, and prepares the board for it. If the result is `Ok`,
    /// the process may continue with its mmap. Returns whether the file is one of the board.
    ///
    /// # Errors
    ///
    /// The errno with which the mmap must fail.
    pub fn approve_mmap(&self, request: &MapRequest) -> Result<bool, Errno> {
        let _entered = self.enter();
        self.board.kernel.approve_mmap(request)
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
        let numbers = self.board.kernel.lock().fds.numbers(self.process);
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
        let _entered = self.enter();
        let mut state = self.board.kernel.lock();
        if state.exited.contains(&to.process) {
            return Err(Errno::SRCH);
        }
        state.fds.duplicate(fd, to.process)
    }

    /// Ends the process: closes its descriptors and frees its handle numbers. Its CPU mappings no longer count. Their
    /// addresses stay readable, because all processes share one host process.
    pub fn exit(&self) {
        let kernel: &Kernel = &self.board.kernel;
        let _entered = self.enter();
        let numbers = {
            let mut state = kernel.lock();
            state.exited.insert(self.process);
            state.fds.numbers(self.process)
        };
        for fd in numbers {
            // Fails only if another thread of the process has just closed it.
            let _ = kernel.close(fd);
        }
        kernel.lock().fds.abandon(self.process);
        kernel.settle_all();
        let pages = kernel.lock().forget_mappings(self.process);
        for page in pages {
            kernel.gpu(|gpu| gpu.remove_doorbell_page(&page));
        }
    }

    /// Returns the numbers of objects that this process owns.
    pub fn process_counts(&self) -> ProcessCounts {
        self.board.kernel.settle_all();
        let state = self.board.kernel.lock();
        ProcessCounts {
            descriptors: state.fds.numbers(self.process).len(),
            mappings: state.mappings.values().filter(|mapping| mapping.owner == self.process).count(),
            handles: state.nvmap.handles_of(self.process),
        }
    }
}
