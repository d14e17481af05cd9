//! The listener of a filter: notifications and their answers (Linux `include/uapi/linux/seccomp.h`).

use core::ffi::c_int;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

use rustix::io::Errno;

/// The listener.
#[derive(Debug)]
pub(crate) struct Listener(OwnedFd);

/// A system call that waits for its answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Notification {
    /// Number of the notification.
    pub(crate) id: u64,
    /// Id of the thread that makes the call.
    pub(crate) thread: u32,
    /// Number of the call.
    pub(crate) call: libc::c_long,
    /// Its arguments.
    pub(crate) args: [u64; 6],
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
        Self(descriptor)
    }

    /// One of the listener's requests.
    fn request<T>(&self, code: libc::Ioctl, argument: &mut T) -> Result<c_int, Errno> {
        // SAFETY: the code belongs to the struct, which outlives the call.
        let result = unsafe { libc::ioctl(self.0.as_raw_fd(), code, core::ptr::from_mut(argument)) };
        if result < 0 { Err(last_errno()) } else { Ok(result) }
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
                call: raw.data.nr.into(),
                args: raw.data.args,
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

    /// Returns whether the caller still waits for the answer.
    pub(crate) fn is_valid(&self, id: u64) -> bool {
        let mut id = id;
        self.request(libc::SECCOMP_IOCTL_NOTIF_ID_VALID, &mut id).is_ok()
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// The errno of the last call through the C library.
pub(crate) fn last_errno() -> Errno {
    std::io::Error::last_os_error().raw_os_error().map_or(Errno::IO, Errno::from_raw_os_error)
}
