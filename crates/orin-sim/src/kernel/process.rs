//! Processes: owners of descriptors, handle numbers and CPU mappings.
//!
//! All of them live in one process of the host. As in the kernel, the current process is a property of the thread. Each
//! call of a door sets it for its duration.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::os::fd::RawFd;

use rustix::io::Errno;

use super::{Kernel, SoftwareOrin};

/// Number of a process of the board; never reused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ProcessId(pub(super) u32);

thread_local! {
    static CURRENT: Cell<ProcessId> = const { Cell::new(ProcessId(0)) };
}

/// The process for which this thread runs.
pub(super) fn current() -> ProcessId {
    CURRENT.get()
}

/// Ends [`enter`].
pub(super) struct Entered {
    before: ProcessId,
}

/// Makes `process` the current process until the result is dropped.
pub(super) fn enter(process: ProcessId) -> Entered {
    Entered { before: CURRENT.replace(process) }
}

impl Drop for Entered {
    fn drop(&mut self) {
        CURRENT.set(self.before);
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
    /// Creates another process on the same board, with no open descriptors.
    #[must_use]
    pub fn process(&self) -> Self {
        let mut state = self.board.kernel.lock();
        state.next_process += 1;
        let process = ProcessId(state.next_process);
        drop(state);
        Self { board: std::sync::Arc::clone(&self.board), process }
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
        if !std::sync::Arc::ptr_eq(&self.board, &to.board) {
            return Err(Errno::XDEV);
        }
        let _entered = enter(self.process);
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
        let _entered = enter(self.process);
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
