//! Tokens for asynchronous programs.

use core::future::Future;
use core::pin::Pin;
use core::task::{Context, Poll};

use futures_core::Stream;
use tegra_hcq::FenceFuture;

use super::engine::TIMEOUT;
use super::session::{Session, Tokens};
use crate::error::Result;

/// Tokens that continue a context, as [`Tokens`], without blocking a thread. Created by [`Session::stream`]. Works with
/// any executor.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # use tegra_hcq::{Device, DeviceKind};
/// # let device = Device::open(DeviceKind::Sim)?;
/// # use infer::decode::Engine;
/// # use infer::model::Model;
/// # use infer::synthetic::Recipe;
/// # let model = Model::from_bytes(Recipe::tiny_llama().to_bytes()?)?;
/// # let engine = Engine::load(&device, &model, 64, |_, _| ())?;
/// # let mut session = engine.session(64)?;
/// # session.feed(&[1, 2, 3])?;
/// use std::pin::Pin;
/// use std::task::{Context, Poll, Waker};
///
/// use futures_core::Stream;
///
/// let mut stream = session.stream(4)?;
/// // An executor does this; here the waker does nothing.
/// let mut context = Context::from_waker(Waker::noop());
/// let mut tokens = Vec::new();
/// loop {
///     match Pin::new(&mut stream).poll_next(&mut context) {
///         Poll::Ready(Some(token)) => tokens.push(token?),
///         Poll::Ready(None) => break,
///         Poll::Pending => std::thread::yield_now(),
///     }
/// }
/// assert_eq!(tokens.len(), 4);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[must_use = "a stream does nothing unless it is polled"]
pub struct TokenStream<'s> {
    tokens: Tokens<'s>,
    /// The end of the oldest step in flight.
    waiting: Option<FenceFuture>,
}

impl Session {
    /// As [`Session::tokens`], as a stream.
    ///
    /// # Errors
    ///
    /// As [`Session::tokens`].
    pub fn stream(&mut self, limit: usize) -> Result<TokenStream<'_>> {
        Ok(TokenStream { tokens: self.tokens(limit)?, waiting: None })
    }
}

impl Stream for TokenStream<'_> {
    type Item = Result<u32>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<u32>>> {
        let this = self.get_mut();
        if let Err(error) = this.tokens.submit() {
            return Poll::Ready(Some(Err(error)));
        }
        let Some(oldest) = this.tokens.oldest() else { return Poll::Ready(None) };
        if let Some(fence) = oldest {
            let waiting = this.waiting.get_or_insert_with(|| fence.within(TIMEOUT));
            // A failure is reported by the wait for the token.
            if Pin::new(waiting).poll(context).is_pending() {
                return Poll::Pending;
            }
        }
        this.waiting = None;
        Poll::Ready(this.tokens.next())
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.tokens.size_hint()
    }
}
