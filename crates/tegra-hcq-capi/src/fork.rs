//! Children of fork(2).
//!
//! A child inherits all locks of the process, but only the thread that has forked. A lock that another thread held, of
//! this library, of the software Orin or of the library of locks itself, stays locked in the child for ever. While a
//! device is open, threads of the model may hold one at any time. So the library refuses all calls in such a child,
//! instead of a hang now and then. A process with a single thread holds no lock when it forks.

use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::status::{Failure, Status};

/// Number of open devices, and of calls in progress that need none.
static IN_USE: AtomicUsize = AtomicUsize::new(0);
/// Whether the process had a single thread when it last forked.
static ALONE: AtomicBool = AtomicBool::new(false);
/// Whether locks of this process may be locked for ever.
static BROKEN: AtomicBool = AtomicBool::new(false);

/// Counts as a use of the library, until it is dropped.
#[derive(Debug)]
pub(crate) struct Use(());

impl Use {
    pub(crate) fn begin() -> Self {
        IN_USE.fetch_add(1, Ordering::Relaxed);
        Self(())
    }
}

impl Drop for Use {
    fn drop(&mut self) {
        IN_USE.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Whether this process is a child that must not take a lock.
#[inline]
pub(crate) fn is_broken() -> bool {
    BROKEN.load(Ordering::Relaxed)
}

/// Fails in a child that must not take a lock.
#[inline]
pub(crate) fn check() -> Result<(), Failure> {
    if is_broken() { Err(refusal()) } else { Ok(()) }
}

#[cold]
fn refusal() -> Failure {
    let text = "forked child: the parent process had a device open, or was opening one, and several threads, whose \
                locks this process has inherited. Start processes by fork and exec (multiprocessing's method 'spawn'), \
                or fork while no device is open";
    Failure::new(Status::Device, text)
}

/// Before a fork, in the thread that forks.
unsafe extern "C" fn before() {
    let threads = || std::fs::read_dir("/proc/self/task").is_ok_and(|threads| threads.count() == 1);
    ALONE.store(IN_USE.load(Ordering::Relaxed) > 0 && threads(), Ordering::Relaxed);
}

/// After a fork, in the child. Its copy of the count also contains what other threads began after [`before`].
unsafe extern "C" fn in_child() {
    if IN_USE.load(Ordering::Relaxed) > 0 && !ALONE.load(Ordering::Relaxed) {
        BROKEN.store(true, Ordering::Relaxed);
    }
}

/// Runs when the library is loaded: a registration by a call could itself be interrupted by a fork.
extern "C" fn register() {
    // SAFETY: the functions live as long as the library, and the C library forgets them when it unloads it. Without
    // memory for them, children are not recognised.
    unsafe { libc::pthread_atfork(Some(before), None, Some(in_child)) };
}

// SAFETY: the section holds pointers to functions that the loader calls once; this one ignores its arguments.
#[used]
#[unsafe(link_section = ".init_array")]
static REGISTER: extern "C" fn() = register;
