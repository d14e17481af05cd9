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
    /// Time from a doorbell to the first fetch of an idle channel.
    pub(super) hold: Duration,
    /// Receives the segments.
    pub(super) segments: Option<SegmentWatcher>,
}

/// Time that host leaves an idle channel alone after its doorbell, for the order check. A CPU that does not wait
/// submits to other channels meanwhile. Otherwise the first work would end before, as if the CPU had waited for it.
pub(super) const HOLD: Duration = Duration::from_micros(500);

/// The line that host is fetching, and the time that a fetch takes.
#[derive(Debug)]
pub(super) struct Pace {
    line_time: Duration,
    hold: Duration,
    /// End of the time after a doorbell.
    held: Option<Instant>,
    /// Line number in the address space, and arrival time.
    line: Option<(u64, Instant)>,
}

impl Pace {
    pub(super) fn new(fetching: &Fetching) -> Self {
        Self { line_time: fetching.line_time, hold: fetching.hold, held: None, line: None }
    }

    /// The doorbell of the channel, which was idle.
    pub(super) fn rung(&mut self) {
        if !self.hold.is_zero() {
            self.held = Some(Instant::now() + self.hold);
        }
    }

    /// Whether the time after the doorbell is not over.
    pub(super) fn is_held(&mut self) -> bool {
        self.held = self.held.filter(|end| Instant::now() < *end);
        self.held.is_some()
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
