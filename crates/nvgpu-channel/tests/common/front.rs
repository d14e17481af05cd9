//! A door in front of the software Orin, for requests and answers that it does not support.

use core::ffi::{CStr, c_void};
use core::fmt;
use core::time::Duration;
use std::collections::VecDeque;
use std::os::fd::RawFd;
use std::sync::{Arc, Mutex};

use kernel_door::forward::Forward;
use kernel_door::{Door, Errno, Events, OpenFlags};
use nvgpu_sys::paths;
use orin_sim::{Config, SoftwareOrin};

/// First descriptor of the front itself.
pub(crate) const FIRST_OWN: RawFd = 100_000;
/// Descriptor of the fence node.
pub(crate) const FENCE_NODE: RawFd = FIRST_OWN;

/// Answers a request, or forwards it to the software Orin. The argument matches the request.
pub(crate) type Answer = dyn Fn(u32, *mut c_void) -> Option<Result<i32, Errno>> + Send + Sync;

/// State of the front.
pub(crate) struct Front {
    behind: SoftwareOrin,
    answer: Box<Answer>,
    /// Results of polls of its own descriptors, in order.
    pub(crate) polls: Mutex<VecDeque<Result<Events, Errno>>>,
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
        Arc::new(Self { behind, answer: Box::new(answer), polls: Mutex::default(), closed: Mutex::default() })
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
        if path == paths::HOST1X_FENCE { Ok(FENCE_NODE) } else { self.behind.open(path, flags) }
    }

    unsafe fn ioctl(&self, fd: RawFd, request: u32, argument: *mut c_void) -> Result<i32, Errno> {
        match (self.answer)(request, argument) {
            Some(result) => result,
            // SAFETY: the call is forwarded unchanged.
            None => unsafe { self.behind.ioctl(fd, request, argument) },
        }
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
