//! What a process reports when it exits.

use core::sync::atomic::{AtomicU32, Ordering};

use parking_lot::Mutex;

/// Things to report when the process exits. A child that is forked does not report those of its parent.
#[derive(Debug)]
pub(crate) struct AtExit<T> {
    /// The process that has put them here; 0 for none.
    owner: AtomicU32,
    open: Mutex<Vec<T>>,
}

impl<T> AtExit<T> {
    pub(crate) const fn new() -> Self {
        Self { owner: AtomicU32::new(0), open: Mutex::new(Vec::new()) }
    }

    /// Whether the things are this process' own.
    pub(crate) fn is_own(&self) -> bool {
        self.owner.load(Ordering::Relaxed) == std::process::id()
    }

    /// Adds a thing. The first of a process registers `report`, which must not unwind. Returns whether it is the first.
    pub(crate) fn push(&self, thing: T, report: extern "C" fn()) -> bool {
        let mut open = self.open.lock();
        let process = std::process::id();
        let first = self.owner.swap(process, Ordering::Relaxed) != process;
        if first {
            open.clear();
            // SAFETY: the function takes no arguments and does not unwind.
            unsafe { libc::atexit(report) };
        }
        open.push(thing);
        first
    }

    /// Removes the first thing for which `test` holds.
    pub(crate) fn remove(&self, test: impl Fn(&T) -> bool) -> Option<T> {
        let mut open = self.open.lock();
        open.iter().position(test).map(|at| open.remove(at))
    }

    /// Removes all things of this process.
    pub(crate) fn take(&self) -> Vec<T> {
        // A child may find the lock as another thread of its parent has left it.
        if self.is_own() { core::mem::take(&mut *self.open.lock()) } else { Vec::new() }
    }
}
