//! Processes: who has which descriptors, handle numbers and CPU mappings.
//!
//! All of them live in one process of the host. As in the kernel, the one on whose behalf a thread
//! runs is a property of the thread, set for the length of each call of a door.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::os::fd::RawFd;

use rustix::io::Errno;

use super::{Kernel, SoftwareOrin};

/// Number of a process of the board; never used again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ProcessId(pub(super) u32);

thread_local! {
    static CURRENT: Cell<ProcessId> = const { Cell::new(ProcessId(0)) };
}

/// The process that this thread works for.
pub(super) fn current() -> ProcessId {
    CURRENT.get()
}

/// Ends [`enter`].
pub(super) struct Entered {
    before: ProcessId,
}

/// Works for `process` until the result is dropped.
pub(super) fn enter(process: ProcessId) -> Entered {
    Entered { before: CURRENT.replace(process) }
}

impl Drop for Entered {
    fn drop(&mut self) {
        CURRENT.set(self.before);
    }
}

/// What one process has.
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
    /// Another process on the same board, with nothing open.
    #[must_use]
    pub fn process(&self) -> Self {
        let mut state = self.board.kernel.lock();
        state.next_process += 1;
        let process = ProcessId(state.next_process);
        drop(state);
        Self { board: std::sync::Arc::clone(&self.board), process }
    }

    /// A process with this one's descriptors, as fork() makes it: they share their open files, so the
    /// doorbell page of a control node that is mapped here cannot be mapped there. CPU mappings are not
    /// inherited, neither those of dma-bufs nor the doorbell's.
    ///
    /// Returns the process and the number that each descriptor has there; on a board they are equal.
    ///
    /// # Errors
    ///
    /// EMFILE or ENFILE when the table of the host is full; nothing is left behind then.
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

    /// Passes a descriptor to another process of the board, as a message with SCM_RIGHTS does. Returns
    /// its number there.
    ///
    /// # Errors
    ///
    /// EBADF when this process has no such descriptor; EMFILE or ENFILE when the table of the host is
    /// full.
    pub fn send(&self, fd: RawFd, to: &Self) -> Result<RawFd, Errno> {
        let _entered = enter(self.process);
        self.board.kernel.lock().fds.duplicate(fd, to.process)
    }

    /// Ends the process: its descriptors are closed and its handle numbers gone. CPU mappings no longer
    /// count; their addresses stay readable, because all processes are one to the host.
    pub fn exit(&self) {
        let kernel: &Kernel = &self.board.kernel;
        let _entered = enter(self.process);
        let numbers = kernel.lock().fds.numbers(self.process);
        for fd in numbers {
            // Only a race with another thread of the process can have closed it before.
            let _ = kernel.close(fd);
        }
        let pages = kernel.lock().forget_mappings(self.process);
        for page in pages {
            kernel.gpu(|gpu| gpu.remove_doorbell_page(&page));
        }
    }

    /// What this process has.
    pub fn process_counts(&self) -> ProcessCounts {
        let state = self.board.kernel.lock();
        ProcessCounts {
            descriptors: state.fds.numbers(self.process).len(),
            mappings: state.mappings.values().filter(|mapping| mapping.owner == self.process).count(),
            handles: state.nvmap.handles_of(self.process),
        }
    }
}
