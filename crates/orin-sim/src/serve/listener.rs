//! The listener of a filter: notifications and their answers (Linux `include/uapi/linux/seccomp.h`).

use core::ffi::c_int;
use std::collections::BTreeMap;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};

use crate::serve::filter;
use crate::serve::kernel;

/// `SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP`: the kernel wakes caller and supervisor on the same CPU.
const SYNC_WAKE_UP: libc::c_ulong = 1;

/// `PIDFD_THREAD`, since Linux 6.9: a descriptor of a thread that is not the thread-group leader.
const PIDFD_THREAD: PidfdFlags = PidfdFlags::from_bits_retain(libc::O_EXCL.cast_unsigned());
/// Number of threads whose descriptors are kept.
const THREADS: usize = 64;

/// Time for which a received call counts as valid without a check. A short request takes 3 microseconds.
const FRESH: Duration = Duration::from_micros(20);

/// The listener.
#[derive(Debug)]
pub(crate) struct Listener {
    descriptor: OwnedFd,
    /// Whether callers continue before the answer only if they are killed.
    waits_killable: bool,
    /// Descriptors of threads that have made requests. A descriptor stays bound to its thread when the id is reused.
    threads: Mutex<BTreeMap<u32, Arc<OwnedFd>>>,
}

/// A system call that waits for its answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Notification {
    /// Number of the notification.
    pub(crate) id: u64,
    /// Id of the thread that makes the call.
    pub(crate) thread: u32,
    /// Whether the call has the numbers of this machine. Only creations of processes have others.
    pub(crate) is_native: bool,
    /// Number of the call.
    pub(crate) call: libc::c_long,
    /// Its arguments.
    pub(crate) args: [u64; 6],
    /// When the supervisor received it.
    pub(crate) received: Instant,
}

/// Answer to a notification.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// The kernel makes the call as if there were no filter.
    Continue,
    /// The call returns this value.
    Value(i64),
    /// The call fails.
    Error(Errno),
    /// The answer has been sent.
    Sent,
}

impl Listener {
    pub(crate) fn new(descriptor: OwnedFd) -> Self {
        let waits_killable = kernel::has(kernel::WAITS_KILLABLE);
        let listener = Self { descriptor, waits_killable, threads: Mutex::default() };
        // CAST: the argument is the flags themselves. Kernels before 6.6 refuse it, which costs time only.
        // SAFETY: no pointers.
        let _ = unsafe {
            libc::ioctl(listener.descriptor.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_SET_FLAGS, SYNC_WAKE_UP)
        };
        listener
    }

    /// One of the listener's requests. A signal interrupts only the wait for a call.
    fn request<T>(&self, code: libc::Ioctl, argument: &mut T) -> Result<c_int, Errno> {
        loop {
            // SAFETY: the code belongs to the struct, which outlives the call.
            let result =
                unsafe { libc::ioctl(self.descriptor.as_raw_fd(), code, core::ptr::from_mut(argument)) };
            if result >= 0 {
                return Ok(result);
            }
            match last_errno() {
                Errno::INTR if code != libc::SECCOMP_IOCTL_NOTIF_RECV => {}
                errno => return Err(errno),
            }
        }
    }

    /// Waits for the next call. Returns `None` if the call has gone since, or was taken by another thread.
    ///
    /// # Errors
    ///
    /// The errno of the request.
    pub(crate) fn receive(&self) -> Result<Option<Notification>, Errno> {
        // SAFETY: zeros are a valid value, and the kernel demands them.
        let mut raw: libc::seccomp_notif = unsafe { core::mem::zeroed() };
        match self.request(libc::SECCOMP_IOCTL_NOTIF_RECV, &mut raw) {
            Ok(_) => Ok(Some(Notification {
                id: raw.id,
                thread: raw.pid,
                is_native: raw.data.arch == filter::ARCH,
                call: raw.data.nr.into(),
                args: raw.data.args,
                received: Instant::now(),
            })),
            Err(Errno::NOENT | Errno::INTR) => Ok(None),
            Err(errno) => Err(errno),
        }
    }

    /// Answers a call. A caller that has ended needs no answer.
    ///
    /// # Errors
    ///
    /// The errno of the request.
    pub(crate) fn answer(&self, id: u64, answer: Answer) -> Result<(), Errno> {
        let mut raw = libc::seccomp_notif_resp { id, val: 0, error: 0, flags: 0 };
        match answer {
            // CAST: 1.
            Answer::Continue => raw.flags = libc::SECCOMP_USER_NOTIF_FLAG_CONTINUE as u32,
            Answer::Value(value) => raw.val = value,
            Answer::Error(errno) => raw.error = -errno.raw_os_error(),
            Answer::Sent => return Ok(()),
        }
        match self.request(libc::SECCOMP_IOCTL_NOTIF_SEND, &mut raw) {
            Ok(_) | Err(Errno::NOENT) => Ok(()),
            Err(errno) => Err(errno),
        }
    }

    /// Installs a duplicate of a descriptor in the caller. With `finish`, its number is also the answer.
    ///
    /// # Errors
    ///
    /// EMFILE of the caller's table; ENOENT or ESRCH if the caller has ended.
    pub(crate) fn install(
        &self,
        id: u64,
        file: BorrowedFd<'_>,
        close_on_exec: bool,
        finish: bool,
    ) -> Result<RawFd, Errno> {
        let mut raw = libc::seccomp_notif_addfd {
            id,
            // CAST: small flags, and a number that is not negative.
            flags: if finish { libc::SECCOMP_ADDFD_FLAG_SEND as u32 } else { 0 },
            srcfd: file.as_raw_fd().cast_unsigned(),
            newfd: 0,
            newfd_flags: if close_on_exec { libc::O_CLOEXEC.cast_unsigned() } else { 0 },
        };
        self.request(libc::SECCOMP_IOCTL_NOTIF_ADDFD, &mut raw)
    }

    /// A duplicate of a descriptor of the thread that makes a call.
    ///
    /// # Errors
    ///
    /// EBADF if the number is not open; other errors if the host cannot do this.
    pub(crate) fn duplicate(&self, id: u64, thread: u32, number: RawFd) -> Result<OwnedFd, Errno> {
        // Programs pass any number; rustix accepts none below 0.
        if number < 0 {
            return Err(Errno::BADF);
        }
        let mut threads = self.threads.lock();
        let known = threads.get(&thread).map(|known| pidfd_getfd(known, number, PidfdGetfdFlags::empty()));
        match known {
            Some(Err(Errno::SRCH)) | None => {}
            Some(result) => return result,
        }
        let opened = Arc::new(open_thread(thread)?);
        // The id belongs to the caller now, so the descriptor stays valid.
        if !self.is_valid(id) {
            return Err(Errno::SRCH);
        }
        if threads.len() >= THREADS {
            threads.clear();
        }
        threads.insert(thread, Arc::clone(&opened));
        pidfd_getfd(&opened, number, PidfdGetfdFlags::empty())
    }

    /// Returns whether the caller still waits for the answer, as [`Listener::is_valid`] does. A call that has just been
    /// received is not checked: the caller can also end between a check and the access that follows it.
    pub(crate) fn is_fresh_or_valid(&self, id: u64, received: Instant) -> bool {
        self.waits_killable && received.elapsed() < FRESH || self.is_valid(id)
    }

    /// Returns whether the caller still waits for the answer.
    pub(crate) fn is_valid(&self, id: u64) -> bool {
        let mut id = id;
        self.request(libc::SECCOMP_IOCTL_NOTIF_ID_VALID, &mut id).is_ok()
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

fn open_thread(thread: u32) -> Result<OwnedFd, Errno> {
    let thread = Pid::from_raw(thread.cast_signed()).ok_or(Errno::SRCH)?;
    pidfd_open(thread, PIDFD_THREAD).or_else(|_| pidfd_open(thread, PidfdFlags::empty()))
}

/// The errno of the last call through the C library.
pub(crate) fn last_errno() -> Errno {
    std::io::Error::last_os_error().raw_os_error().map_or(Errno::IO, Errno::from_raw_os_error)
}
