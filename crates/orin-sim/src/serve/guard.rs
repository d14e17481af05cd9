//! Supervision of processes: none outlives the program.
//!
//! The program consists of two processes: the guard, which the user has started, and the supervisor, its child. Each
//! adopts the orphans below it. If the supervisor is killed, the guard kills what is left; if the guard is killed, the
//! supervisor does so.

use core::fmt;
use std::fs;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, ExitStatus};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::process::{
    Pid, Resource, Rlimit, Signal, WaitOptions, getpid, kill_process, set_child_subreaper, setrlimit, wait,
    waitpid,
};

use crate::serve::Error;
use crate::serve::listener::last_errno;
use crate::serve::processes::Tree;

/// Signals that end or control a program. They are forwarded to the served program.
const FORWARDED: [i32; 6] =
    [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT, libc::SIGUSR1, libc::SIGUSR2];
/// Longest wait for the end of killed processes.
// TIMEOUT: processes that the kernel holds in a device cannot be waited for.
const END: Duration = Duration::from_secs(10);

/// Role of this process.
#[derive(Debug)]
pub enum Part {
    /// The supervisor: it serves. Signals arrive at the [`Signals`].
    Supervisor(Signals),
    /// The guard: the supervisor has ended with this status, and so has everything that it started.
    Guard(ExitStatus),
}

/// Signals as a file. They are blocked in the whole process.
pub struct Signals {
    file: OwnedFd,
    /// The previous signal mask.
    before: libc::sigset_t,
}

impl fmt::Debug for Signals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Signals").field("file", &self.file).finish_non_exhaustive()
    }
}

/// The signal of a supervisor whose guard has been killed.
fn orphaned() -> i32 {
    libc::SIGRTMIN()
}

impl Signals {
    /// Blocks the signals for this process, so that they can be read.
    fn block() -> io::Result<Self> {
        // SAFETY: an all-zero set is valid, and the calls access only the local variables.
        let (file, before) = unsafe {
            let (mut set, mut before): (libc::sigset_t, libc::sigset_t) = core::mem::zeroed();
            libc::sigemptyset(&raw mut set);
            for signal in FORWARDED.into_iter().chain([libc::SIGCHLD, orphaned()]) {
                libc::sigaddset(&raw mut set, signal);
            }
            libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, &raw mut before);
            (libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC), before)
        };
        if file < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel has just created the descriptor.
        Ok(Self { file: unsafe { OwnedFd::from_raw_fd(file) }, before })
    }

    /// Restores the previous signal mask in a program that this process starts.
    pub fn restore_in(&self, command: &mut Command) {
        let before = self.before;
        // SAFETY: the closure makes one system call, which reads the captured mask.
        unsafe {
            command.pre_exec(move || {
                libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, core::ptr::null_mut());
                Ok(())
            });
        }
    }

    /// Waits for the next signal. Returns its number, and whether a process has sent it: the terminal sends its signals
    /// to the whole foreground group.
    fn next(&self) -> io::Result<(i32, bool)> {
        // SAFETY: zeros are a valid value.
        let mut info: libc::signalfd_siginfo = unsafe { core::mem::zeroed() };
        let size = size_of_val(&info);
        loop {
            // SAFETY: the buffer is the local variable.
            let read = unsafe { libc::read(self.file.as_raw_fd(), (&raw mut info).cast(), size) };
            match usize::try_from(read) {
                Ok(read) if read == size => break,
                _ if io::Error::last_os_error().kind() == io::ErrorKind::Interrupted => {}
                _ => return Err(io::Error::last_os_error()),
            }
        }
        // CAST: signal numbers are small.
        Ok((info.ssi_signo as i32, info.ssi_code <= libc::SI_USER))
    }

    /// Sends the signals that processes send to this one on to `program`, from a thread of its own. Reaps the orphans
    /// that have ended. If the guard has been killed, kills everything below this process, and ends it.
    ///
    /// # Errors
    ///
    /// The error of the thread's start.
    pub fn forward_to(self, program: u32) -> io::Result<()> {
        let forward = move || {
            while let Ok((signal, sent)) = self.next() {
                if signal == orphaned() {
                    kill_descendants();
                    std::process::exit(128 + libc::SIGKILL);
                }
                if signal == libc::SIGCHLD {
                    reap_orphans(program);
                } else if sent {
                    send(program, signal);
                }
            }
        };
        std::thread::Builder::new().name("orin-signals".to_owned()).spawn(forward).map(|_| ())
    }
}

/// Sends a signal. A process that has ended needs none.
fn send(process: u32, signal: i32) {
    // SAFETY: no pointers. CAST: process ids are positive.
    unsafe { libc::kill(process.cast_signed(), signal) };
}

/// Runs a program without serving it. Signals that processes send to this one are sent on to it; those of a terminal
/// reach it anyway, and this process waits for its end.
///
/// # Errors
///
/// The error of its start, or of signalfd(2).
pub fn run(mut command: Command) -> io::Result<ExitStatus> {
    let signals = Signals::block()?;
    signals.restore_in(&mut command);
    let mut program = command.spawn()?;
    signals.forward_to(program.id())?;
    program.wait()
}

/// Splits this process. It returns twice: in the supervisor at once, in the guard after the supervisor's end.
///
/// # Errors
///
/// [`Error::Guard`] if the kernel refuses the calls that keep processes from outliving the program,
/// [`Error::Setup`] with the errno of fork(2), signalfd(2) or waitpid(2).
///
/// # Safety
///
/// The process must have one thread, because the supervisor is a fork of it.
pub unsafe fn split() -> Result<Part, Error> {
    let signals = Signals::block().map_err(Error::Setup)?;
    adopt_orphans()?;
    let guard = std::process::id();
    // SAFETY: the caller guarantees that there is no other thread.
    match unsafe { libc::fork() } {
        -1 => Err(Error::Setup(io::Error::last_os_error())),
        0 => {
            adopt_orphans()?;
            // CAST: signal numbers are small.
            let signal = orphaned() as libc::c_ulong;
            // SAFETY: no pointers.
            if unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, signal) } != 0 {
                return Err(Error::Guard { call: "prctl(PR_SET_PDEATHSIG)", errno: last_errno() });
            }
            if rustix::process::getppid()
                .is_none_or(|pid| pid.as_raw_nonzero().get().cast_unsigned() != guard)
            {
                std::process::exit(128 + libc::SIGKILL);
            }
            Ok(Part::Supervisor(signals))
        }
        supervisor => guard_over(&signals, supervisor).map(Part::Guard).map_err(Error::Setup),
    }
}

/// Orphans below this process become its children.
fn adopt_orphans() -> Result<(), Error> {
    set_child_subreaper(Some(getpid()))
        .map_err(|errno| Error::Guard { call: "prctl(PR_SET_CHILD_SUBREAPER)", errno })
}

fn guard_over(signals: &Signals, supervisor: i32) -> io::Result<ExitStatus> {
    let pid = Pid::from_raw(supervisor);
    loop {
        if let Some((_, status)) = waitpid(pid, WaitOptions::NOHANG)? {
            kill_descendants();
            return Ok(ExitStatus::from_raw(status.as_raw()));
        }
        let (signal, sent) = signals.next()?;
        if sent && signal != libc::SIGCHLD && signal != orphaned() {
            send(supervisor.cast_unsigned(), signal);
        }
    }
}

/// Kills all descendants of this process, waits until they have ended, and discards their exit status. Call it only in
/// a process whose children all belong to it, and which adopts orphans ([`split`]).
pub fn kill_descendants() {
    let end = Instant::now() + END;
    let mut before = Vec::new();
    while reap_ended() && Instant::now() < end {
        let children = children();
        for process in children.iter().filter_map(|process| Pid::from_raw(*process)) {
            let _ = kill_process(process, Signal::KILL);
        }
        // A process that keeps forking and exiting changes its id, so sleep only while the children stay the same.
        if children == before {
            std::thread::sleep(Duration::from_millis(1));
        }
        before = children;
    }
}

/// Reaps the children that have ended. Stops at `program`, which its own waiter reaps.
fn reap_orphans(program: u32) {
    while let Some(ended) = zombie().filter(|ended| ended.as_raw_nonzero().get().cast_unsigned() != program) {
        let _ = waitpid(Some(ended), WaitOptions::NOHANG);
    }
}

/// A child that has ended and was not reaped: a zombie.
fn zombie() -> Option<Pid> {
    // SAFETY: zeros are a valid value.
    let mut info: libc::siginfo_t = unsafe { core::mem::zeroed() };
    let flags = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
    // SAFETY: the kernel fills the local variable. Without a child that has ended, the id in it is 0.
    let ended = unsafe { (libc::waitid(libc::P_ALL, 0, &raw mut info, flags) == 0).then(|| info.si_pid()) };
    ended.and_then(Pid::from_raw)
}

/// Reaps the children that have ended. Returns whether others are left. If there are none, there is no descendant
/// either: the parent of each is a descendant or this process.
fn reap_ended() -> bool {
    loop {
        match wait(WaitOptions::NOHANG) {
            Ok(Some(_)) | Err(Errno::INTR) => {}
            Ok(None) => return true,
            Err(_) => return false,
        }
    }
}

/// The ids of the children, or of all processes below this one if the kernel has no list of children
/// (`CONFIG_PROC_CHILDREN`).
fn children() -> Vec<i32> {
    let tasks = fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let mut lists = tasks.filter_map(|task| fs::read_to_string(task.path().join("children")).ok()).peekable();
    if lists.peek().is_none() {
        // CAST: process ids are positive.
        let below = Tree::read().below(std::process::id().cast_signed());
        return below.iter().filter(|process| !process.has_ended).map(|process| process.id).collect();
    }
    lists
        .flat_map(|list| list.split_ascii_whitespace().filter_map(|id| id.parse().ok()).collect::<Vec<_>>())
        .collect()
}

/// Ends this process as a child with `status` has ended: with the same exit code, or by the same signal. Writes no core
/// dump.
pub fn end_like(status: ExitStatus) -> ! {
    if let Some(signal) = status.signal() {
        let _ = setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) });
        // SAFETY: an all-zero set is valid; the calls access only the local variable and change this process's own
        // disposition of the signal.
        unsafe {
            libc::signal(signal, libc::SIG_DFL);
            let mut set: libc::sigset_t = core::mem::zeroed();
            libc::sigemptyset(&raw mut set);
            libc::sigaddset(&raw mut set, signal);
            libc::pthread_sigmask(libc::SIG_UNBLOCK, &raw const set, core::ptr::null_mut());
            libc::kill(libc::getpid(), signal);
        }
        std::process::exit(128 + signal);
    }
    std::process::exit(status.code().unwrap_or(1));
}
