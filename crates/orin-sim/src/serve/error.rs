//! Errors of the supervisor.

use std::io;
use std::path::PathBuf;

use rustix::io::Errno;

/// Why a program cannot be served.
///
/// ```
/// use orin_sim::serve::Error;
/// use rustix::io::Errno;
///
/// let error = Error::Memory { errno: Errno::PERM };
/// assert!(error.to_string().contains("process_vm_readv"));
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The kernel is too old.
    #[error("Linux {release} cannot inject descriptors into another process; use Linux 5.14 or later")]
    OldKernel {
        /// The release of the kernel.
        release: String,
    },
    /// The kernel cannot tie processes to the program that supervises them.
    #[error(
        "the kernel refuses {call}: {errno}; the supervisor runs on Linux itself, not under an emulator such as \
         qemu-user"
    )]
    Guard {
        /// The system call.
        call: &'static str,
        /// Its errno.
        errno: Errno,
    },
    /// There is no `/proc`, which has the names and times of the program's processes.
    #[error(
        "{path} is missing: the supervisor finds the program's processes there; mount it (mount -t proc proc /proc)"
    )]
    NoProc {
        /// The file that is missing.
        path: &'static str,
    },
    /// The filter cannot be installed.
    #[error(
        "the kernel refuses a seccomp filter with a listener: {errno}{}; allow seccomp(2) with user notification in \
         the sandbox or container, or run outside of it",
        filter_hint(*.errno)
    )]
    Filter {
        /// The errno of seccomp(2) or prctl(2).
        errno: Errno,
    },
    /// The listener cannot be used.
    #[error("the seccomp listener fails: {call}: {errno}")]
    Listener {
        /// The request.
        call: &'static str,
        /// Its errno.
        errno: Errno,
    },
    /// The memory of the program cannot be accessed.
    #[error(
        "the kernel refuses process_vm_readv of the program: {errno}; allow it in the sandbox or container \
         (CAP_SYS_PTRACE), and set kernel.yama.ptrace_scope to 0 or 1"
    )]
    Memory {
        /// The errno of process_vm_readv(2).
        errno: Errno,
    },
    /// The program cannot be started.
    #[error("cannot start {program}: {error}")]
    Start {
        /// Its name.
        program: String,
        /// The error of fork or exec.
        error: io::Error,
    },
    /// The socket of a shared board cannot be used.
    #[error("the board at {}: {error}", .path.display())]
    Socket {
        /// Its path.
        path: PathBuf,
        /// The error of connect or bind.
        error: io::Error,
    },
    /// The supervisor cannot be set up.
    #[error("cannot set up the supervisor: {0}")]
    Setup(io::Error),
    /// The software Orin cannot be started.
    #[error("cannot start the software Orin: {0}")]
    Board(Errno),
}

/// More about an errno of seccomp(2).
fn filter_hint(errno: Errno) -> &'static str {
    match errno {
        Errno::BUSY => " (another listener supervises this process already; one program has one listener)",
        Errno::INVAL | Errno::NOSYS => " (the kernel has no user notification)",
        _ => "",
    }
}
