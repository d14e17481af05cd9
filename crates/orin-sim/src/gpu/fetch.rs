//! Host's fetches of pushbuffer words.

use core::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use crate::check::POISON;
use crate::mmu::{Access, FaultKind, MmuFault, Span, View};
use crate::segments::SegmentWatcher;

/// Number of bytes that host fetches at once.
const LINE: u64 = 128;

/// Properties of host's fetches.
#[derive(Clone, Debug, Default)]
pub(super) struct Fetching {
    /// Time for each line.
    pub(super) line_time: Duration,
    /// Receives the segments.
    pub(super) segments: Option<SegmentWatcher>,
}

/// The line that host is fetching, and the time that a fetch takes.
#[derive(Debug)]
pub(super) struct Pace {
    line_time: Duration,
    /// Line number in the address space, and arrival time.
    line: Option<(u64, Instant)>,
}

impl Pace {
    pub(super) fn new(line_time: Duration) -> Self {
        Self { line_time, line: None }
    }

    /// Begins another segment; its first line is fetched again.
    pub(super) fn begin(&mut self) {
        self.line = None;
    }

    /// Returns whether host can read the word at `va` now. If not, the fetch of its line is pending.
    pub(super) fn has_arrived(&mut self, va: u64) -> bool {
        if self.line_time.is_zero() {
            return true;
        }
        let line = va / LINE;
        match self.line {
            Some((known, arrival)) if known == line => Instant::now() >= arrival,
            _ => {
                self.line = Some((line, Instant::now() + self.line_time));
                false
            }
        }
    }
}

/// Reads the pushbuffer words of one slice, with one translation per mapping.
pub(super) struct Words<'a> {
    view: &'a View,
    span: Option<Span>,
}

impl<'a> Words<'a> {
    pub(super) fn new(view: &'a View) -> Self {
        Self { view, span: None }
    }

    /// Reads a word.
    ///
    /// # Errors
    ///
    /// The fault that the MMU raises.
    pub(super) fn fetch(&mut self, va: u64) -> Result<u32, MmuFault> {
        let pointer = match self.span.and_then(|span| span.at(va, 4)) {
            Some(pointer) => pointer,
            None => {
                let span = self.view.span(va, Access::Read)?;
                self.span = Some(span);
                let fault = MmuFault { va: span.end, kind: FaultKind::InvalidPte, access: Access::Read };
                span.at(va, 4).ok_or(fault)?
            }
        };
        // SAFETY: valid while the view of the span, which `self` borrows, is alive; aligned because entries contain
        // multiples of 4. User space may write the word concurrently.
        let word = unsafe { AtomicU32::from_ptr(pointer.cast()) }.load(Ordering::Relaxed);
        if word == POISON && self.view.watch().is_some() {
            // The order check reports a word that was never written.
            self.view.pointer(va, 4, Access::Read)?;
        }
        Ok(word)
    }
}
