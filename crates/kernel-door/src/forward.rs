//! A door in front of another door, for tests.
//!
//! A test that counts calls, makes a call fail or overrides an answer implements only these calls; the door behind
//! receives the others. Built with the feature `test-support`; products do not need it.

use core::any::Any;
use core::ffi::{CStr, c_void};
use core::fmt;
use core::ptr::NonNull;
use core::time::Duration;
use std::os::fd::RawFd;

use crate::Errno;
use crate::door::{Door, Events, MapRequest, OpenFlags};

/// A door that forwards its calls. Every implementer of this trait implements [`Door`] too.
///
/// Each method forwards to the method of [`Door`] with the same name by default.
///
/// # Errors
///
/// Those of the door behind.
///
/// # Safety
///
/// As for [`Door`]: an answer that differs from that of the door behind still keeps its promises.
///
/// ```
/// use std::sync::atomic::{AtomicU32, Ordering};
/// use kernel_door::forward::Forward;
/// use kernel_door::{Door, Errno, LinuxDoor, OpenFlags};
///
/// /// Counts opened nodes.
/// #[derive(Debug, Default)]
/// struct Counting(AtomicU32);
///
/// // SAFETY: it changes no answer.
/// unsafe impl Forward for Counting {
///     fn behind(&self) -> &dyn Door {
///         &LinuxDoor
///     }
///
///     fn open(&self, path: &core::ffi::CStr, flags: OpenFlags) -> Result<i32, Errno> {
///         self.0.fetch_add(1, Ordering::Relaxed);
///         LinuxDoor.open(path, flags)
///     }
/// }
///
/// let door = Counting::default();
/// assert!(Door::open(&door, c"/dev/no/such/node", OpenFlags::empty()).is_err());
/// assert_eq!(door.0.into_inner(), 1);
/// ```
pub unsafe trait Forward: Send + Sync + fmt::Debug {
    /// The door behind; called once per forwarded call.
    fn behind(&self) -> &dyn Door;

    /// See [`Door::name`].
    fn name(&self) -> &'static str {
        self.behind().name()
    }

    /// See [`Door::software`].
    fn software(&self) -> Option<&(dyn Any + Send + Sync)> {
        self.behind().software()
    }

    /// See [`Door::open`].
    fn open(&self, path: &CStr, flags: OpenFlags) -> Result<RawFd, Errno> {
        self.behind().open(path, flags)
    }

    /// See [`Door::ioctl`].
    ///
    /// # Safety
    ///
    /// As for [`Door::ioctl`].
    unsafe fn ioctl(&self, fd: RawFd, request: u32, argument: *mut c_void) -> Result<i32, Errno> {
        // SAFETY: the contract of the caller is the same.
        unsafe { self.behind().ioctl(fd, request, argument) }
    }

    /// See [`Door::mmap`].
    ///
    /// # Safety
    ///
    /// As for [`Door::mmap`].
    unsafe fn mmap(&self, request: &MapRequest) -> Result<NonNull<u8>, Errno> {
        // SAFETY: the contract of the caller is the same.
        unsafe { self.behind().mmap(request) }
    }

    /// See [`Door::munmap`].
    ///
    /// # Safety
    ///
    /// As for [`Door::munmap`].
    unsafe fn munmap(&self, pointer: NonNull<u8>, len: usize) -> Result<(), Errno> {
        // SAFETY: the contract of the caller is the same.
        unsafe { self.behind().munmap(pointer, len) }
    }

    /// See [`Door::read`].
    ///
    /// # Safety
    ///
    /// As for [`Door::read`].
    unsafe fn read(&self, fd: RawFd, buffer: &mut [u8]) -> Result<usize, Errno> {
        // SAFETY: the contract of the caller is the same.
        unsafe { self.behind().read(fd, buffer) }
    }

    /// See [`Door::seek_end`].
    ///
    /// # Safety
    ///
    /// As for [`Door::seek_end`].
    unsafe fn seek_end(&self, fd: RawFd) -> Result<u64, Errno> {
        // SAFETY: the contract of the caller is the same.
        unsafe { self.behind().seek_end(fd) }
    }

    /// See [`Door::poll`].
    ///
    /// # Safety
    ///
    /// As for [`Door::poll`].
    unsafe fn poll(&self, fd: RawFd, wanted: Events, timeout: Duration) -> Result<Events, Errno> {
        // SAFETY: the contract of the caller is the same.
        unsafe { self.behind().poll(fd, wanted, timeout) }
    }

    /// See [`Door::close`].
    ///
    /// # Safety
    ///
    /// As for [`Door::close`].
    unsafe fn close(&self, fd: RawFd) -> Result<(), Errno> {
        // SAFETY: the contract of the caller is the same.
        unsafe { self.behind().close(fd) }
    }
}

// SAFETY: the implementer of `Forward` has promised the same.
unsafe impl<F: Forward> Door for F {
    fn name(&self) -> &'static str {
        Forward::name(self)
    }

    fn software(&self) -> Option<&(dyn Any + Send + Sync)> {
        Forward::software(self)
    }

    fn open(&self, path: &CStr, flags: OpenFlags) -> Result<RawFd, Errno> {
        Forward::open(self, path, flags)
    }

    unsafe fn ioctl(&self, fd: RawFd, request: u32, argument: *mut c_void) -> Result<i32, Errno> {
        // SAFETY: the contract of the caller is the same.
        unsafe { Forward::ioctl(self, fd, request, argument) }
    }

    unsafe fn mmap(&self, request: &MapRequest) -> Result<NonNull<u8>, Errno> {
        // SAFETY: the contract of the caller is the same.
        unsafe { Forward::mmap(self, request) }
    }

    unsafe fn munmap(&self, pointer: NonNull<u8>, len: usize) -> Result<(), Errno> {
        // SAFETY: the contract of the caller is the same.
        unsafe { Forward::munmap(self, pointer, len) }
    }

    unsafe fn read(&self, fd: RawFd, buffer: &mut [u8]) -> Result<usize, Errno> {
        // SAFETY: the contract of the caller is the same.
        unsafe { Forward::read(self, fd, buffer) }
    }

    unsafe fn seek_end(&self, fd: RawFd) -> Result<u64, Errno> {
        // SAFETY: the contract of the caller is the same.
        unsafe { Forward::seek_end(self, fd) }
    }

    unsafe fn poll(&self, fd: RawFd, wanted: Events, timeout: Duration) -> Result<Events, Errno> {
        // SAFETY: the contract of the caller is the same.
        unsafe { Forward::poll(self, fd, wanted, timeout) }
    }

    unsafe fn close(&self, fd: RawFd) -> Result<(), Errno> {
        // SAFETY: the contract of the caller is the same.
        unsafe { Forward::close(self, fd) }
    }
}

#[cfg(test)]
mod tests {
    use core::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::Arc;

    use super::*;
    use crate::{DoorFd, LinuxDoor, Protection};

    /// Forwards all calls, and counts those to `close`.
    #[derive(Debug, Default)]
    struct Counting {
        passed: AtomicUsize,
        closed: AtomicUsize,
    }

    // SAFETY: the door behind answers.
    unsafe impl Forward for Counting {
        fn behind(&self) -> &dyn Door {
            self.passed.fetch_add(1, Ordering::Relaxed);
            &LinuxDoor
        }

        unsafe fn close(&self, fd: RawFd) -> Result<(), Errno> {
            self.closed.fetch_add(1, Ordering::Relaxed);
            // SAFETY: the contract of the caller is the same.
            unsafe { self.behind().close(fd) }
        }
    }

    #[test]
    fn every_call_arrives_behind_once() {
        let counting = Arc::new(Counting::default());
        let door: Arc<dyn Door> = Arc::clone(&counting) as _;
        assert_eq!(door.name(), LinuxDoor.name());
        assert!(door.software().is_none());
        let fd = DoorFd::open(&door, c"/dev/zero", OpenFlags::READ_WRITE | OpenFlags::CLOSE_ON_EXEC).unwrap();
        let mut buffer = [7; 4];
        assert_eq!(fd.read(&mut buffer), Ok(4));
        assert_eq!(buffer, [0; 4]);
        assert_eq!(fd.seek_end(), Ok(0));
        assert_eq!(fd.poll(Events::IN, Duration::ZERO), Ok(Events::IN));
        // TCGETS, which emulators of system calls implement too, writes 60 bytes on a terminal, and nothing here.
        let mut settings = [0_u8; 64];
        // SAFETY: the argument is valid for writes of more than the request's struct.
        let answer = unsafe { door.ioctl(fd.raw(), 0x5401, settings.as_mut_ptr().cast()) };
        assert_eq!(answer, Err(Errno::NOTTY));
        drop(fd.map(0, 4096, Protection::READ).unwrap());
        drop(fd);
        // Name, software, open, read, seek, poll, request, mapping, unmapping, close.
        assert_eq!(counting.passed.load(Ordering::Relaxed), 10);
        assert_eq!(counting.closed.load(Ordering::Relaxed), 1);
    }
}
