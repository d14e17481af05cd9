//! Fences: the ends of submissions.

use core::future::Future;
use core::pin::pin;
use core::sync::atomic::{AtomicBool, Ordering};
use core::task::{Context, Poll};
use std::os::fd::{IntoRawFd, OwnedFd};
use std::sync::Arc;
use std::task::{Wake, Waker};

use parking_lot::Mutex;
use rustix::event::{EventfdFlags, eventfd};
use tegra_hcq::{Fence, FenceFuture};

use crate::handle::{TABLE, share};
use crate::object::{Kind, Object};
use crate::pass;
use crate::status::{Failure, Status, guard};
use crate::types::tegra_hcq_fence;

/// A fence, and the waits that write to event descriptors.
#[derive(Debug)]
pub(crate) struct FenceObject {
    pub(crate) fence: Fence,
    /// The waits that have not ended. Dropping a future cancels its wait.
    waits: Mutex<Vec<(Arc<Event>, FenceFuture)>>,
}

impl FenceObject {
    pub(crate) fn new(fence: Fence) -> Self {
        Self { fence, waits: Mutex::default() }
    }

    /// Keeps a wait until it ends, and forgets those that have ended.
    fn keep(&self, event: Arc<Event>, wait: FenceFuture) {
        let mut waits = self.waits.lock();
        waits.retain(|(event, _)| !event.is_written.load(Ordering::Acquire));
        waits.push((event, wait));
    }
}

/// Writes to an event descriptor when the work has ended.
#[derive(Debug)]
struct Event {
    descriptor: OwnedFd,
    is_written: AtomicBool,
}

impl Wake for Event {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        // A full counter is readable already.
        let _ = rustix::io::write(&self.descriptor, &1_u64.to_ne_bytes());
        self.is_written.store(true, Ordering::Release);
    }
}

/// The fence that a handle names.
pub(crate) fn fence(handle: *mut tegra_hcq_fence) -> Result<Arc<FenceObject>, Failure> {
    share(handle.addr() as u64, Kind::Fence, |object| match object {
        Object::Fence(_, fence) => Some(fence),
        _ => None,
    })
}

/// Waits until a submission has ended, at most `timeout_ns` nanoseconds. Thread-safe.
///
/// Returns TEGRA_HCQ_STATUS_FAULT if the GPU stopped it, TEGRA_HCQ_STATUS_TIMEOUT if it has not ended; it may still end
/// later.
#[unsafe(no_mangle)]
pub extern "C" fn tegra_hcq_fence_wait(fence: *mut tegra_hcq_fence, timeout_ns: u64) -> Status {
    guard(|| Ok(self::fence(fence)?.fence.wait(pass::timeout(timeout_ns))?))
}

/// Sets `*done` to whether a submission has ended, successfully or not: `tegra_hcq_fence_wait` returns the outcome
/// without waiting. Thread-safe.
///
/// # Safety
///
/// `done` is NULL or valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tegra_hcq_fence_poll(fence: *mut tegra_hcq_fence, done: *mut bool) -> Status {
    guard(|| {
        // SAFETY: the caller's promise.
        let done = unsafe { pass::out(done, "done")? };
        done.put(self::fence(fence)?.fence.is_done());
        Ok(())
    })
}

/// Creates an eventfd that becomes readable when a submission has ended, faulted, or not ended within `timeout_ns`
/// nanoseconds; then call `tegra_hcq_fence_wait` with time-out 0 for the outcome. For poll, epoll and event loops. The
/// caller closes the descriptor. Nothing is written to it after the fence is freed. Thread-safe.
///
/// # Safety
///
/// `descriptor` is NULL or valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tegra_hcq_fence_eventfd(
    fence: *mut tegra_hcq_fence,
    timeout_ns: u64,
    descriptor: *mut i32,
) -> Status {
    guard(|| {
        // SAFETY: the caller's promise.
        let descriptor = unsafe { pass::out(descriptor, "descriptor")? };
        let fence = self::fence(fence)?;
        let system = |error| Failure::new(Status::Device, format!("eventfd: {error}"));
        let given = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(system)?;
        let copy =
            given.try_clone().map_err(|error| Failure::new(Status::Device, format!("dup: {error}")))?;
        let event = Arc::new(Event { descriptor: copy, is_written: AtomicBool::new(false) });
        let waker = Waker::from(Arc::clone(&event));
        let mut wait = fence.fence.clone().within(pass::timeout(timeout_ns));
        match pin!(&mut wait).poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(_) => waker.wake(),
            Poll::Pending => fence.keep(event, wait),
        }
        descriptor.put(given.into_raw_fd());
        Ok(())
    })
}

/// Frees a fence. The work goes on. Thread-safe.
#[unsafe(no_mangle)]
pub extern "C" fn tegra_hcq_fence_free(fence: *mut tegra_hcq_fence) -> Status {
    guard(|| TABLE.remove(fence.addr() as u64, Kind::Fence))
}

#[cfg(all(test, feature = "sim"))]
mod tests {
    use core::ptr;
    use std::os::fd::FromRawFd;

    use rustix::event::{PollFd, PollFlags, poll};

    use super::*;
    use crate::handle::ALONE;
    use crate::{
        tegra_hcq_device_close, tegra_hcq_device_open, tegra_hcq_queue_open, tegra_hcq_queue_submit,
        tegra_hcq_queue_wait_signal, tegra_hcq_signal_create, tegra_hcq_signal_set,
    };

    #[test]
    fn a_fence_forgets_the_waits_that_have_ended() {
        let _alone = ALONE.lock();
        let (mut device, mut queue, mut signal) = (ptr::null_mut(), ptr::null_mut(), ptr::null_mut());
        let mut fence = ptr::null_mut();
        // SAFETY: texts end with a zero byte, results have places.
        unsafe {
            assert_eq!(tegra_hcq_device_open(c"sim".as_ptr(), 0, &raw mut device), Status::Ok);
            assert_eq!(tegra_hcq_queue_open(device, ptr::null(), &raw mut queue), Status::Ok);
            assert_eq!(tegra_hcq_signal_create(device, 0, &raw mut signal), Status::Ok);
            assert_eq!(tegra_hcq_queue_wait_signal(queue, signal, 1), Status::Ok);
            assert_eq!(tegra_hcq_queue_submit(queue, &raw mut fence), Status::Ok);
        }
        let object = self::fence(fence).ok().unwrap();
        for _ in 0..20 {
            let mut number = -1;
            // SAFETY: the result has a place; the caller owns the descriptor.
            let event = unsafe {
                assert_eq!(tegra_hcq_fence_eventfd(fence, 1_000_000, &raw mut number), Status::Ok);
                OwnedFd::from_raw_fd(number)
            };
            assert_eq!(poll(&mut [PollFd::new(&event, PollFlags::IN)], None), Ok(1));
        }
        let kept = object.waits.lock().len();
        assert!(kept <= 2, "{kept} of 20 waits are kept");
        assert_eq!(tegra_hcq_signal_set(signal, 1), Status::Ok);
        assert_eq!(tegra_hcq_fence_wait(fence, 60_000_000_000), Status::Ok);
        assert_eq!(tegra_hcq_device_close(device), Status::Ok);
    }
}
