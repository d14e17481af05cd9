//! Interrupts the system call in which a thread sleeps when a descriptor becomes readable.
//!
//! `SECCOMP_IOCTL_NOTIF_RECV` waits for one descriptor only, and a poll before it costs every served call 0.6
//! microseconds. So the thread waits in the request itself, and a second thread polls the descriptor and sends a
//! signal.

use core::ffi::c_int;
use core::mem::zeroed;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::OnceLock;
use std::thread::ScopedJoinHandle;

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::Errno;

/// The signal. Its default action is to ignore it, and few programs use it.
const SIGNAL: c_int = libc::SIGURG;
/// Time between two signals in nanoseconds. They are repeated because one may arrive before the thread sleeps.
const REPEAT_NS: i64 = 500_000;

/// Runs `sleeper` with a second thread that interrupts its system calls by EINTR as soon as `stop` is readable or
/// closed, again and again until `sleeper` returns.
///
/// # Errors
///
/// The error that prevents the second thread; `sleeper` has not run then.
pub(crate) fn interrupt_on<T>(stop: BorrowedFd<'_>, sleeper: impl FnOnce() -> T) -> io::Result<T> {
    if !*INSTALLED.get_or_init(install) {
        return Err(io::Error::other("the signal of the supervisor is in use"));
    }
    let done = eventfd(0, EventfdFlags::CLOEXEC)?;
    unblock();
    let (process, thread) = (std::process::id(), this_thread());
    std::thread::scope(|scope| {
        let done = &done;
        let watch = move || watch(stop, done, || send(process, thread));
        let _watcher: ScopedJoinHandle<'_, ()> =
            std::thread::Builder::new().name("orin-serve-stop".to_owned()).spawn_scoped(scope, watch)?;
        let _over = Over(done);
        Ok(sleeper())
    })
}

/// Stops the watcher on drop, so that a panic stops it too.
struct Over<'done>(&'done OwnedFd);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        let _ = rustix::io::write(self.0, &1_u64.to_ne_bytes());
    }
}

/// Calls `interrupt` from the time when `stop` is ready, until `done` is.
fn watch(stop: BorrowedFd<'_>, done: &OwnedFd, interrupt: impl Fn()) {
    let repeat = Timespec { tv_sec: 0, tv_nsec: REPEAT_NS };
    let mut stopped = false;
    loop {
        let mut ready = [PollFd::new(done, PollFlags::IN), PollFd::from_borrowed_fd(stop, PollFlags::IN)];
        // A descriptor that is ready would end each poll at once.
        let (watched, limit) =
            if stopped { (&mut ready[..1], Some(&repeat)) } else { (&mut ready[..], None) };
        match poll(watched, limit) {
            Ok(_) | Err(Errno::INTR) => {}
            // ENOMEM. Sleep instead.
            Err(_) => std::thread::sleep(core::time::Duration::from_millis(1)),
        }
        let [done, stop] = ready.map(|ready| !ready.revents().is_empty());
        if done {
            return;
        }
        stopped |= stop;
        if stopped {
            interrupt();
        }
    }
}

/// Whether the process has the handler. It stays installed: another session may need it.
static INSTALLED: OnceLock<bool> = OnceLock::new();

/// Installs a handler that does nothing, unless the program has one.
fn install() -> bool {
    extern "C" fn nothing(_: c_int) {}
    // SAFETY: zeros are a valid `sigaction`; the calls read and write local variables; the handler does nothing.
    unsafe {
        let (mut before, mut action): (libc::sigaction, libc::sigaction) = (zeroed(), zeroed());
        if libc::sigaction(SIGNAL, core::ptr::null(), &raw mut before) != 0
            || ![libc::SIG_DFL, libc::SIG_IGN].contains(&before.sa_sigaction)
        {
            return false;
        }
        // Without SA_RESTART a system call ends with EINTR.
        action.sa_sigaction = nothing as extern "C" fn(_) as usize;
        libc::sigaction(SIGNAL, &raw const action, core::ptr::null_mut()) == 0
    }
}

/// Lets the signal reach this thread.
fn unblock() {
    // SAFETY: zeros are a valid set; the calls write to it and read it.
    unsafe {
        let mut set: libc::sigset_t = zeroed();
        libc::sigemptyset(&raw mut set);
        libc::sigaddset(&raw mut set, SIGNAL);
        libc::pthread_sigmask(libc::SIG_UNBLOCK, &raw const set, core::ptr::null_mut());
    }
}

fn this_thread() -> libc::pid_t {
    // By a system call: the C library has a function for it since glibc 2.30 only.
    rustix::thread::gettid().as_raw_nonzero().get()
}

fn send(process: u32, thread: libc::pid_t) {
    // SAFETY: no pointers. The thread lives: it is the one that waits for the caller.
    let _ = unsafe { libc::syscall(libc::SYS_tgkill, process, thread, SIGNAL) };
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd as _;

    use super::*;

    /// Sleeps until a signal; returns the errno.
    fn sleep() -> Errno {
        poll(&mut [], Some(&Timespec { tv_sec: 60, tv_nsec: 0 })).expect_err("nothing to poll")
    }

    #[test]
    fn a_sleeping_thread_is_interrupted_until_it_returns() {
        let stop = eventfd(0, EventfdFlags::CLOEXEC).unwrap();
        let started = std::time::Instant::now();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(core::time::Duration::from_millis(20));
                rustix::io::write(&stop, &1_u64.to_ne_bytes()).unwrap();
            });
            let interrupted = interrupt_on(stop.as_fd(), || [sleep(), sleep(), sleep()]).unwrap();
            assert_eq!(interrupted, [Errno::INTR; 3]);
        });
        let taken = started.elapsed().as_millis();
        assert!((20..30_000).contains(&taken), "{taken} ms");
    }

    #[test]
    fn a_thread_that_ends_by_itself_is_not_interrupted() {
        let stop = eventfd(0, EventfdFlags::CLOEXEC).unwrap();
        let short = Timespec { tv_sec: 0, tv_nsec: 5_000_000 };
        let slept = interrupt_on(stop.as_fd(), || poll(&mut [], Some(&short))).unwrap();
        assert_eq!(slept, Ok(0));
    }
}
