//! Fences: the ends of submissions.

use core::future::Future;
use core::pin::pin;
use core::task::{Context, Poll};
use std::os::fd::{IntoRawFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Wake, Waker};

use rustix::event::{EventfdFlags, eventfd};
use tegra_hcq::{Fence, FenceFuture};

use crate::device::hand_out;
use crate::handle::{TABLE, share};
use crate::object::{Kind, Object};
use crate::pass;
use crate::status::{Failure, Status, guard};
use crate::types::tegra_hcq_fence;

/// A fence, and the waits that write to event descriptors.
#[derive(Debug)]
pub(crate) struct FenceObject {
    pub(crate) fence: Fence,
    /// Dropping a future cancels its wait.
    waits: Mutex<Vec<FenceFuture>>,
}

/// Writes to an event descriptor when the work has ended.
struct Event(OwnedFd);

impl Wake for Event {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        // A full counter is readable already.
        let _ = rustix::io::write(&self.0, &1_u64.to_ne_bytes());
    }
}

/// The fence that a handle names.
pub(crate) fn fence(handle: *mut tegra_hcq_fence) -> Result<Arc<FenceObject>, Failure> {
    share(handle.addr() as u64, Kind::Fence, |object| match object {
        Object::Fence(_, fence) => Some(fence),
        _ => None,
    })
}

/// Gives a fence of a device to C, unless `out` is NULL.
///
/// # Safety
///
/// `out` is NULL or valid for a write.
pub(crate) unsafe fn hand_out_fence(
    out: *mut *mut tegra_hcq_fence,
    owner: u64,
    fence: Fence,
) -> Result<(), Failure> {
    if out.is_null() {
        return Ok(());
    }
    // SAFETY: the caller's promise.
    let out = unsafe { pass::out(out, "fence")? };
    hand_out(out, Object::Fence(owner, Arc::new(FenceObject { fence, waits: Mutex::default() })))
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
        let event =
            given.try_clone().map_err(|error| Failure::new(Status::Device, format!("dup: {error}")))?;
        let waker = Waker::from(Arc::new(Event(event)));
        let mut wait = fence.fence.clone().within(pass::timeout(timeout_ns));
        match pin!(&mut wait).poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(_) => waker.wake(),
            Poll::Pending => fence.waits.lock().unwrap_or_else(PoisonError::into_inner).push(wait),
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
