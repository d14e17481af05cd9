//! A door in front of the software Orin, for requests and answers that it does not support.

use core::ffi::{CStr, c_void};
use core::fmt;
use core::sync::atomic::{AtomicU64, Ordering};
use core::time::Duration;
use std::collections::VecDeque;
use std::os::fd::RawFd;
use std::sync::{Arc, Mutex};

use kernel_door::forward::Forward;
use kernel_door::{Door, Errno, Events, OpenFlags};
use nvgpu_sys::{address_space, paths};
use orin_sim::{Config, SoftwareOrin};

/// First descriptor of the front itself.
pub(crate) const FIRST_OWN: RawFd = 100_000;
/// Descriptor of the fence node, and of the kernel's log.
pub(crate) const NODE: RawFd = FIRST_OWN;

/// Answers a request, or forwards it to the software Orin. The argument matches the request.
pub(crate) type Answer = dyn Fn(u32, *mut c_void) -> Option<Result<i32, Errno>> + Send + Sync;

/// The argument of a request.
///
/// # Safety
///
/// The request's argument is a `T`, and nothing else refers to it.
pub(crate) unsafe fn argument<'a, T>(pointer: *mut c_void) -> &'a mut T {
    // SAFETY: guaranteed by the caller.
    unsafe { &mut *pointer.cast() }
}

/// State of the front.
pub(crate) struct Front {
    behind: SoftwareOrin,
    answer: Box<Answer>,
    /// Results of polls of its own descriptors, in order.
    pub(crate) polls: Mutex<VecDeque<Result<Events, Errno>>>,
    /// Results of reads of the kernel's log, in order.
    pub(crate) records: Mutex<VecDeque<Result<&'static str, Errno>>>,
    /// Offset that MAP_BUFFER_EX and ALLOC_SPACE add to addresses.
    pub(crate) displacement: AtomicU64,
    /// Closed descriptors of the front.
    pub(crate) closed: Mutex<Vec<RawFd>>,
}

impl fmt::Debug for Front {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Front").finish_non_exhaustive()
    }
}

impl Front {
    pub(crate) fn new(
        answer: impl Fn(u32, *mut c_void) -> Option<Result<i32, Errno>> + Send + Sync + 'static,
    ) -> Arc<Self> {
        let behind = SoftwareOrin::new(Config::default()).unwrap();
        Arc::new(Self {
            behind,
            answer: Box::new(answer),
            polls: Mutex::default(),
            records: Mutex::default(),
            displacement: AtomicU64::default(),
            closed: Mutex::default(),
        })
    }

    pub(crate) fn door(self: &Arc<Self>) -> Arc<dyn Door> {
        Arc::clone(self) as _
    }

    pub(crate) fn will_poll(&self, results: impl IntoIterator<Item = Result<Events, Errno>>) {
        self.polls.lock().unwrap().extend(results);
    }
}

// SAFETY: mappings come from the door behind.
unsafe impl Forward for Front {
    fn behind(&self) -> &dyn Door {
        &self.behind
    }

    fn open(&self, path: &CStr, flags: OpenFlags) -> Result<RawFd, Errno> {
        let is_own = path == paths::HOST1X_FENCE || path == paths::KMSG;
        if is_own { Ok(NODE) } else { self.behind.open(path, flags) }
    }

    unsafe fn ioctl(&self, fd: RawFd, request: u32, argument: *mut c_void) -> Result<i32, Errno> {
        if let Some(result) = (self.answer)(request, argument) {
            return result;
        }
        // SAFETY: the call is forwarded unchanged.
        let result = unsafe { self.behind.ioctl(fd, request, argument) }?;
        let displacement = self.displacement.load(Ordering::Relaxed);
        // SAFETY: the arguments of the requests are these structs, by the contract of `ioctl`.
        unsafe {
            match request {
                address_space::code::MAP_BUFFER_EX => {
                    self::argument::<address_space::MapBufferEx>(argument).offset += displacement;
                }
                address_space::code::ALLOC_SPACE => {
                    self::argument::<address_space::AllocSpace>(argument).offset += displacement;
                }
                _ => {}
            }
        }
        Ok(result)
    }

    unsafe fn read(&self, fd: RawFd, buffer: &mut [u8]) -> Result<usize, Errno> {
        assert_eq!(fd, NODE);
        let text = self.records.lock().unwrap().pop_front().unwrap_or(Err(Errno::AGAIN))?;
        buffer[..text.len()].copy_from_slice(text.as_bytes());
        Ok(text.len())
    }

    unsafe fn seek_end(&self, fd: RawFd) -> Result<u64, Errno> {
        assert_eq!(fd, NODE);
        Ok(0)
    }

    unsafe fn poll(&self, fd: RawFd, wanted: Events, timeout: Duration) -> Result<Events, Errno> {
        if fd < FIRST_OWN {
            // SAFETY: the call is forwarded unchanged.
            return unsafe { self.behind.poll(fd, wanted, timeout) };
        }
        self.polls.lock().unwrap().pop_front().unwrap()
    }

    unsafe fn close(&self, fd: RawFd) -> Result<(), Errno> {
        if fd < FIRST_OWN {
            // SAFETY: the call is forwarded unchanged.
            return unsafe { self.behind.close(fd) };
        }
        self.closed.lock().unwrap().push(fd);
        Ok(())
    }
}
