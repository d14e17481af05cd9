//! Fences as futures, for any executor; see [`Waiter`](crate::waiter::Waiter).

use core::future::{Future, IntoFuture};
use core::pin::Pin;
use core::task::{Context, Poll};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::error::Result;
use crate::limits::DEFAULT_TIMEOUT;
use crate::wait::{Fence, QueueState};
use crate::waiter::{Step, Work};

/// Waits for the end of a submission without blocking a thread. Created by awaiting a [`Fence`] or by
/// [`Fence::within`].
///
/// A future does nothing until it is polled. Dropping it cancels the wait, not the work.
#[derive(Debug)]
#[must_use = "a future does nothing unless it is awaited"]
pub struct FenceFuture {
    fence: Fence,
    timeout: Duration,
    /// Registration at the waiter, and the time of the first poll; `None` before the wait.
    waiting: Option<(u64, Instant)>,
}

impl Fence {
    /// A future that resolves at the end of the submission, or to [`Error::Timeout`](crate::Error::Timeout) after
    /// `timeout` from its first
    /// poll. It works with any executor.
    pub fn within(self, timeout: Duration) -> FenceFuture {
        FenceFuture { fence: self, timeout, waiting: None }
    }
}

impl IntoFuture for Fence {
    type Output = Result<()>;
    type IntoFuture = FenceFuture;

    /// As [`Fence::within`] with [`DEFAULT_TIMEOUT`].
    fn into_future(self) -> FenceFuture {
        self.within(DEFAULT_TIMEOUT)
    }
}

impl FenceFuture {
    fn forget(&mut self) {
        if let Some((id, _)) = self.waiting.take() {
            self.fence.state.device.waiter().forget(id);
        }
    }
}

impl Future for FenceFuture {
    type Output = Result<()>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<()>> {
        let this = self.get_mut();
        let state = &this.fence.state;
        if let Some(outcome) = state.peek(this.fence.value) {
            this.forget();
            return Poll::Ready(outcome);
        }
        let start = this.waiting.map_or_else(Instant::now, |(_, start)| start);
        let work = Work {
            state: Arc::<QueueState>::downgrade(state),
            value: this.fence.value,
            start,
            timeout: this.timeout,
        };
        let known = this.waiting.map(|(id, _)| id);
        match state.device.waiter().poll(known, work, context.waker()) {
            Ok(Step::Waiting(id)) => {
                this.waiting = Some((id, start));
                Poll::Pending
            }
            Ok(Step::Ended(outcome)) => {
                this.waiting = None;
                Poll::Ready(outcome)
            }
            Err(error) => Poll::Ready(Err(error)),
        }
    }
}

impl Drop for FenceFuture {
    fn drop(&mut self) {
        self.forget();
    }
}
