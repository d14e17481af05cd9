//! Ledger of a run: operations, injected faults, reported faults.

use std::collections::{BTreeMap, VecDeque};
use std::time::Instant;

use parking_lot::Mutex;

/// Number of steps printed with a failure.
const TAIL: usize = 40;

/// The ledger, shared by all threads.
#[derive(Debug)]
pub(super) struct Ledger {
    begun: Instant,
    pages: Mutex<Pages>,
}

#[derive(Debug, Default)]
struct Pages {
    operations: BTreeMap<&'static str, u64>,
    injected: BTreeMap<&'static str, u64>,
    reported: BTreeMap<&'static str, u64>,
    history: VecDeque<String>,
}

impl Ledger {
    pub(super) fn new() -> Self {
        Self { begun: Instant::now(), pages: Mutex::default() }
    }

    fn write(&self, change: impl FnOnce(&mut Pages)) {
        change(&mut self.pages.lock());
    }

    fn line(&self, pages: &mut Pages, thread: usize, text: &str) {
        if pages.history.len() == TAIL {
            pages.history.pop_front();
        }
        pages
            .history
            .push_back(format!("{:10.3} s thread {thread}: {text}", self.begun.elapsed().as_secs_f64()));
    }

    /// Records the start of an operation.
    pub(super) fn operation(&self, thread: usize, name: &'static str) {
        self.write(|pages| {
            *pages.operations.entry(name).or_default() += 1;
            self.line(pages, thread, name);
        });
    }

    /// Records a fault about to be injected.
    pub(super) fn inject(&self, thread: usize, name: &'static str, detail: &str) {
        self.write(|pages| {
            *pages.injected.entry(name).or_default() += 1;
            self.line(pages, thread, &format!("injects {name}: {detail}"));
        });
    }

    /// Records that the fault was reported correctly.
    pub(super) fn report(&self, thread: usize, name: &'static str) {
        self.write(|pages| {
            *pages.reported.entry(name).or_default() += 1;
            self.line(pages, thread, &format!("{name} was reported"));
        });
    }

    /// Operations and injected faults so far.
    pub(super) fn totals(&self) -> (u64, u64) {
        let mut totals = (0, 0);
        self.write(|pages| totals = (pages.operations.values().sum(), pages.injected.values().sum()));
        totals
    }

    /// The first kind of fault with fewer or more reports than injections.
    pub(super) fn unreported(&self) -> Option<String> {
        let mut missing = None;
        self.write(|pages| {
            let reported = |name: &str| pages.reported.get(name).copied().unwrap_or(0);
            let differs = pages.injected.iter().find(|(name, count)| reported(name) != **count);
            missing =
                differs.map(|(name, count)| format!("{name}: injected {count}, reported {}", reported(name)));
        });
        missing
    }

    /// Two lines: the operations, and the faults as `kind reported/injected`.
    pub(super) fn summary(&self) -> [String; 2] {
        let mut lines = [String::new(), String::new()];
        self.write(|pages| {
            let done: Vec<_> =
                pages.operations.iter().map(|(name, count)| format!("{name} {count}")).collect();
            let faults = pages.injected.iter().map(|(name, count)| {
                format!("{name} {}/{count}", pages.reported.get(name).copied().unwrap_or(0))
            });
            lines = [
                format!("operations: {}", done.join(", ")),
                format!("faults reported/injected: {}", faults.collect::<Vec<_>>().join(", ")),
            ];
        });
        lines
    }

    /// The last steps, oldest first.
    pub(super) fn tail(&self) -> String {
        let mut text = String::new();
        self.write(|pages| text = pages.history.iter().map(|line| format!("\n  {line}")).collect());
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_reported_is_named() {
        let ledger = Ledger::new();
        ledger.operation(0, "copy");
        ledger.inject(1, "trap", "thread 3");
        assert_eq!(ledger.unreported().unwrap(), "trap: injected 1, reported 0");
        ledger.report(1, "trap");
        assert_eq!((ledger.unreported(), ledger.totals()), (None, (1, 1)));
        assert_eq!(ledger.summary(), ["operations: copy 1", "faults reported/injected: trap 1/1"]);
        assert!(ledger.tail().lines().any(|line| line.ends_with("thread 1: injects trap: thread 3")));
    }

    #[test]
    fn the_tail_is_short_and_new() {
        let ledger = Ledger::new();
        for _ in 0..100 {
            ledger.operation(0, "old");
        }
        ledger.operation(0, "new");
        let tail = ledger.tail();
        assert_eq!(tail.trim().lines().count(), TAIL);
        assert!(tail.ends_with("new"), "{tail}");
    }
}
