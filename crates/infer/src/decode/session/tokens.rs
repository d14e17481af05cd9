//! The tokens that continue a context.

use tegra_hcq::Fence;

use super::{RUN_AHEAD, Session};
use crate::error::Result;

/// Tokens that continue a context. Created by [`Session::tokens`].
#[derive(Debug)]
pub struct Tokens<'s> {
    pub(super) session: &'s mut Session,
    pub(super) to_submit: usize,
    pub(super) to_return: usize,
}

impl Tokens<'_> {
    /// Keeps steps in flight. A failure ends the tokens.
    pub(in crate::decode) fn submit(&mut self) -> Result<()> {
        while self.to_submit > 0 && self.session.in_flight.len() < RUN_AHEAD {
            if let Err(error) = self.session.submit() {
                (self.to_submit, self.to_return) = (0, 0);
                return Err(error);
            }
            self.to_submit -= 1;
        }
        Ok(())
    }

    /// The end of the step with the next token, unless the token is known already; `None` at the end.
    pub(in crate::decode) fn oldest(&self) -> Option<Option<Fence>> {
        let session = &self.session;
        let is_known = session.buffers.read_token(session.produced + 1).0 == session.produced + 1;
        let fence = || session.in_flight.front().cloned();
        (self.to_return > 0).then(|| if is_known { None } else { fence() })
    }
}

impl Iterator for Tokens<'_> {
    type Item = Result<u32>;

    fn next(&mut self) -> Option<Result<u32>> {
        if self.to_return == 0 {
            return None;
        }
        if let Err(error) = self.submit() {
            return Some(Err(error));
        }
        let token = self.session.receive();
        self.to_return = if token.is_ok() { self.to_return - 1 } else { 0 };
        Some(token)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (0, Some(self.to_return))
    }
}

impl Drop for Tokens<'_> {
    fn drop(&mut self) {
        // A failure appears again at the session's next use.
        if self.session.discard_in_flight().is_err() {
            self.session.is_current = false;
        }
    }
}
