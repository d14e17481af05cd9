//! A `Door` that counts calls and fails a chosen one.

use std::any::Any;
use std::ffi::{CStr, c_void};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use kernel_door::forward::Forward;
use kernel_door::{Door, Errno, MapRequest, OpenFlags};
use nvgpu_sys::{address_space, nvmap};
use orin_sim::SoftwareOrin;

/// A software Orin with a counter in front of it.
#[derive(Debug)]
pub struct Probe {
    orin: SoftwareOrin,
    calls: AtomicU64,
    fallible_calls: AtomicU64,
    failing: Option<(u64, Errno)>,
}

impl Probe {
    /// Counts the calls to `orin`.
    pub fn new(orin: SoftwareOrin) -> Self {
        Self { orin, calls: AtomicU64::new(0), fallible_calls: AtomicU64::new(0), failing: None }
    }

    /// Also fails the call with this number, counted from 0 over opens, mappings and requests. Requests that
    /// release something always pass.
    pub fn failing(orin: SoftwareOrin, nth: u64, errno: Errno) -> Self {
        Self { failing: Some((nth, errno)), ..Self::new(orin) }
    }

    /// Calls of any kind so far.
    pub fn calls(&self) -> u64 {
        self.calls.load(Ordering::SeqCst)
    }

    /// Whether the chosen call has been reached.
    pub fn has_failed(&self) -> bool {
        self.failing.is_some_and(|(nth, _)| self.fallible_calls.load(Ordering::SeqCst) > nth)
    }

    /// Counts a call that may be chosen to fail.
    fn chosen(&self) -> Result<(), Errno> {
        let number = self.fallible_calls.fetch_add(1, Ordering::SeqCst);
        match self.failing {
            Some((nth, errno)) if nth == number => Err(errno),
            _ => Ok(()),
        }
    }
}

// SAFETY: the door behind answers, or an errno.
unsafe impl Forward for Probe {
    fn behind(&self) -> &dyn Door {
        self.calls.fetch_add(1, Ordering::SeqCst);
        &self.orin
    }

    fn name(&self) -> &'static str {
        // Not a system call.
        self.orin.name()
    }

    fn software(&self) -> Option<&(dyn Any + Send + Sync)> {
        // Not a system call either.
        self.orin.software()
    }

    fn open(&self, path: &CStr, flags: OpenFlags) -> Result<i32, Errno> {
        self.chosen()?;
        self.behind().open(path, flags)
    }

    unsafe fn ioctl(&self, fd: i32, request: u32, argument: *mut c_void) -> Result<i32, Errno> {
        if ![nvmap::code::FREE, address_space::code::UNMAP_BUFFER].contains(&request) {
            self.chosen()?;
        }
        // SAFETY: the caller's contract is the same.
        unsafe { self.behind().ioctl(fd, request, argument) }
    }

    unsafe fn mmap(&self, request: &MapRequest) -> Result<NonNull<u8>, Errno> {
        self.chosen()?;
        // SAFETY: the caller's contract is the same.
        unsafe { self.behind().mmap(request) }
    }
}
