#![doc = include_str!("../README.md")]
//! # Where to find what
//!
//! - Reading a log: [`Record`], [`Level`], [`Stamp`], [`check`], [`Checker`], [`Line`], [`Event`], [`Summary`].
//! - The table: [`table`], [`Row`], [`Class`], [`Kind`], [`Role`]; as a document: [`document`].
//! - Lines with values: [`Message`], [`ChannelLine`], [`FaultLine`], [`HangLine`], [`MemoryLine`], [`NoteLine`],
//!   [`StartLine`], [`SystemLine`], [`SplitHex`], [`MESSAGE_BYTES`], [`nvgpu_line`], [`nvmap_line`],
//!   [`is_about_the_gpu`].
//! - What lines say about a fault: [`Facts`], [`RefusedAccess`], [`StoppedChannel`], [`Owner`]; codes of the MMU:
//!   [`mmu`].
#![forbid(unsafe_code)]

pub mod document;
mod facts;
pub mod mmu;
mod record;
#[cfg(test)]
mod samples;
pub mod table;
mod template;

use std::collections::BTreeSet;

pub use facts::{Facts, Owner, RefusedAccess, StoppedChannel};
pub use record::{Level, Record, Stamp};
pub use table::{
    ChannelLine, Class, FaultLine, HangLine, Kind, MESSAGE_BYTES, MemoryLine, Message, NoteLine, Role, Row,
    StartLine, SystemLine, is_about_the_gpu, nvgpu_line, nvmap_line,
};
pub use template::SplitHex;

/// Longest gap between two lines of one event, in microseconds; a hung GPU reports every 100 ms.
const GAP_US: u64 = 1_000_000;
/// Longest trace in lines; a trace without an end is closed after that many.
const TRACE_LINES: usize = 200;

/// A line about the GPU and its row of the table.
#[derive(Clone, Debug)]
pub struct Line {
    /// The message.
    pub record: Record,
    /// Its row.
    pub row: &'static Row,
}

/// An event: one line, or the lines that report one event together.
#[derive(Clone, Debug)]
pub struct Event {
    /// Its lines, oldest first; at least one.
    pub lines: Vec<Line>,
    /// Whether the lines are a kernel WARNING with its call trace.
    pub trace: bool,
}

impl Event {
    /// The most severe class of its lines.
    pub fn class(&self) -> Class {
        self.lines.iter().map(|line| line.row.class).max().unwrap_or(Class::Information)
    }

    /// The kinds of its lines, without those explained by another: the kernel sets a notifier for the cause in
    /// the lines above, and an SM also reports an access that the MMU refused.
    pub fn kinds(&self) -> BTreeSet<Kind> {
        let mut kinds: BTreeSet<_> = self.lines.iter().map(|line| line.row.kind).collect();
        kinds.remove(&Kind::None);
        if kinds.len() > 1 {
            kinds.remove(&Kind::Notifier);
        }
        if kinds.contains(&Kind::Mmu) {
            kinds.remove(&Kind::Sm);
        }
        kinds
    }

    /// The programs that its lines name.
    pub fn owners(&self) -> Vec<Owner> {
        self.lines.iter().filter_map(|line| Facts::of(&line.record.text).owner).collect()
    }

    /// The row of the first line of the most severe class.
    pub fn row(&self) -> &'static Row {
        let class = self.class();
        let line = self.lines.iter().find(|line| line.row.class == class);
        // PANIC: an event has at least one line.
        line.unwrap_or(&self.lines[0]).row
    }

    /// The cures, without duplicates, in the order of the lines.
    pub fn cures(&self) -> Vec<&'static str> {
        let mut cures = Vec::new();
        for cure in self.lines.iter().map(|line| line.row.cure) {
            if !cure.is_empty() && !cures.contains(&cure) {
                cures.push(cure);
            }
        }
        cures
    }
}

/// Version of this crate.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Groups records into events.
///
/// ```
/// # use gpu_log::Record;
/// # let log = "[   12.5] usb 1-2: new device\n\
/// #            [   13.0] nvgpu: 17000000.gpu f:1 [ERR]  sked exception: esr 0x01000000\n\
/// #            [   13.0] nvgpu: 17000000.gpu g:1 [ERR]  error notifier set to 13 for ch 511 owned by a\n";
/// use gpu_log::Checker;
///
/// // Lines as they arrive.
/// let mut checker = Checker::default();
/// for record in Record::parse_log(log) {
///     checker.push(record);
///     for event in checker.take() {
///         println!("{}", event.row().meaning);
///     }
/// }
/// // The last event was open: another line could have belonged to it.
/// assert_eq!(checker.finish().len(), 1);
/// ```
#[derive(Debug, Default)]
pub struct Checker {
    /// The open fault report, and whether its end has been seen.
    open: Option<(Event, bool)>,
    /// Events that began after the open report, and have ended.
    behind: Vec<Event>,
    /// The open kernel WARNING.
    trace: Option<Vec<Record>>,
    /// Finished events, in the order of their first lines.
    done: Vec<Event>,
}

impl Checker {
    /// Adds the next record.
    pub fn push(&mut self, record: Record) {
        if record.text.contains("[ cut here ]") {
            self.end_trace();
            self.trace = Some(vec![record]);
            return;
        }
        let Some(trace) = &mut self.trace else {
            self.line(record);
            return;
        };
        let last = record.text.contains("[ end trace") || trace.len() == TRACE_LINES;
        trace.push(record);
        if last {
            self.end_trace();
        }
    }

    /// Takes the events that are complete.
    pub fn take(&mut self) -> Vec<Event> {
        std::mem::take(&mut self.done)
    }

    /// Takes the remaining events, complete or not.
    pub fn finish(&mut self) -> Vec<Event> {
        self.end_trace();
        self.close();
        self.take()
    }

    /// Adds a record outside a trace.
    fn line(&mut self, record: Record) {
        if !table::is_about_the_gpu(&record.text) {
            return;
        }
        let row = table::lookup(&record);
        let apart = self.open.as_ref().is_some_and(|(event, ended)| {
            *ended && row.role == Role::Cause || is_later(event.lines.last(), &record)
        });
        if apart {
            self.close();
        }
        let line = Line { record, row };
        match (row.role, &mut self.open) {
            (Role::Alone, _) => self.end(Event { lines: vec![line], trace: false }),
            (role, Some((event, ended))) => {
                event.lines.push(line);
                *ended |= role == Role::End;
            }
            (role, None) => {
                self.open = Some((Event { lines: vec![line], trace: false }, role == Role::End));
            }
        }
    }

    fn close(&mut self) {
        self.done.extend(self.open.take().map(|(event, _)| event));
        self.done.append(&mut self.behind);
    }

    /// Adds an event that has ended.
    fn end(&mut self, event: Event) {
        if self.open.is_some() { self.behind.push(event) } else { self.done.push(event) }
    }

    /// Keeps a trace if it is about the GPU. Lines without a row count as information.
    fn end_trace(&mut self) {
        let Some(records) = self.trace.take() else { return };
        if !records.iter().any(|record| table::is_about_the_gpu(&record.text)) {
            return;
        }
        let mut lines: Vec<_> =
            records.into_iter().map(|record| Line { row: table::trace_row(&record.text), record }).collect();
        // The row of a plain WARNING is redundant once another line has the cause.
        if lines.iter().any(|line| line.row.class > Class::Information && !table::is_plain_warning(line.row))
        {
            for line in lines.iter_mut().filter(|line| table::is_plain_warning(line.row)) {
                line.row = table::trace_row("");
            }
        }
        self.end(Event { lines, trace: true });
    }
}

/// Whether a record is too late for the event of `last`; false without time stamps.
fn is_later(last: Option<&Line>, record: &Record) -> bool {
    match (last.map(|line| &line.record.stamp), &record.stamp) {
        (Some(Stamp::Uptime(before)), Stamp::Uptime(now)) => now.saturating_sub(*before) > GAP_US,
        _ => false,
    }
}

/// Returns the events of a complete log.
pub fn check(records: impl IntoIterator<Item = Record>) -> Vec<Event> {
    let mut checker = Checker::default();
    for record in records {
        checker.push(record);
    }
    checker.finish()
}

/// Number of events per class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    counts: [usize; Class::ALL.len()],
}

impl Summary {
    /// Counts an event.
    pub fn add(&mut self, event: &Event) {
        self.counts[event.class() as usize] += 1;
    }

    /// Number of events of a class.
    pub fn of(&self, class: Class) -> usize {
        self.counts[class as usize]
    }
}

#[cfg(test)]
mod tests;
