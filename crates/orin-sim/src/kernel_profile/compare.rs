//! Changes of profiles since an earlier run.

use core::fmt::{self, Write};
use std::collections::BTreeMap;

use serde::Serialize;

use super::Counts;
use super::access::ratio;
use super::align::{Row, file_name, rows};
use super::bound::{Bound, time};
use super::report::KernelProfile;
use super::text::{number, shape};
use crate::board::Profile;

/// Maximum number of source lines in the text of a kernel.
const ROWS: usize = 20;
/// What is compared. The last one is a time in seconds.
const MEASURES: [&str; 5] =
    ["instructions", "transactions", "bank conflicts", "divergent branches", "lower bound"];
/// Index of the lower bound.
const BOUND: usize = MEASURES.len() - 1;

/// A mean per launch, before and now.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Change {
    /// What is counted. Transactions are sectors of global and local memory; `lower bound` is a time in seconds.
    pub measure: &'static str,
    /// In the baseline.
    pub before: f64,
    /// In this run.
    pub now: f64,
}

impl Change {
    /// Increase as a fraction of the earlier value; infinite from 0, negative if it decreases.
    ///
    /// ```
    /// use orin_sim::kernel_profile::Change;
    ///
    /// assert_eq!(Change { measure: "instructions", before: 4.0, now: 5.0 }.increase(), 0.25);
    /// ```
    pub fn increase(&self) -> f64 {
        // Means of equal launches are equal up to rounding.
        let more = self.now - self.before;
        if more.abs() <= 1e-9 * self.before.abs() { 0.0 } else { more / self.before }
    }
}

/// Changes of a source line.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LineChange {
    /// Name of the source file, without its folder.
    pub file: String,
    /// The line; of one that this run lacks, its number in the baseline.
    pub line: u32,
    /// Its number in the baseline, if that is another.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub before: Option<u32>,
    /// Whether this run lacks it.
    pub removed: bool,
    /// All measures. The lower bound of a line is its part of the kernel's.
    pub changes: Vec<Change>,
}

/// Changes of a kernel.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct KernelChange {
    /// Its name.
    pub kernel: String,
    /// Its grid and block, and those of the baseline if they differ.
    pub shape: String,
    /// All measures; the lower bound only with a board.
    pub changes: Vec<Change>,
    /// The lines with changes, those that change most of the kernel first.
    pub lines: Vec<LineChange>,
}

impl KernelChange {
    /// The largest increase of a measure, as [`Change::increase`].
    pub fn increase(&self) -> f64 {
        self.changes.iter().map(Change::increase).fold(f64::NEG_INFINITY, f64::max)
    }
}

/// Two runs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Comparison {
    /// Kernels of both runs, those with the largest changes first.
    pub kernels: Vec<KernelChange>,
    /// Kernels of the baseline alone, with their shapes.
    pub only_before: Vec<String>,
    /// Kernels of this run alone.
    pub only_now: Vec<String>,
    /// Numbers of SMs of the two boards, the baseline's first, if they differ: grids may depend on them.
    pub sms: Option<(u32, u32)>,
}

/// Compares profiles with those of an earlier run, kernel by kernel: those of one name, grid and block, or of one name
/// if each run has one other profile of it. Bounds of both are those of `board`.
///
/// ```
/// # let (before, now) = (Vec::new(), Vec::new());
/// let changes = orin_sim::kernel_profile::compare(&before, &now, "nano-8".parse().ok());
/// assert_eq!(changes.over(5.0).count(), 0, "{changes}");
/// ```
pub fn compare(before: &[KernelProfile], now: &[KernelProfile], board: Option<Profile>) -> Comparison {
    let mut rest: Vec<&KernelProfile> = before.iter().collect();
    let mut open: Vec<&KernelProfile> = Vec::new();
    let mut pairs = Vec::new();
    for profile in now {
        let same = |old: &&KernelProfile| {
            (&old.kernel, old.grid, old.block) == (&profile.kernel, profile.grid, profile.block)
        };
        match rest.iter().position(same) {
            Some(at) => pairs.push((rest.remove(at), profile)),
            None => open.push(profile),
        }
    }
    let only = |all: &[&KernelProfile], name: &str| {
        let mut found = (0..all.len()).filter(|&at| all[at].kernel == name);
        found.next().filter(|_| found.next().is_none())
    };
    for profile in core::mem::take(&mut open) {
        let alone = only(&now.iter().collect::<Vec<_>>(), &profile.kernel).is_some();
        match only(&rest, &profile.kernel).filter(|_| alone) {
            Some(at) => pairs.push((rest.remove(at), profile)),
            None => open.push(profile),
        }
    }
    let sms =
        pairs.iter().map(|(old, new)| (old.occupancy.sms, new.occupancy.sms)).find(|(old, new)| old != new);
    let mut kernels: Vec<KernelChange> =
        pairs.into_iter().map(|(old, new)| kernel(old, new, board)).collect();
    let size = |kernel: &KernelChange| {
        kernel.changes.iter().map(|change| change.increase().abs()).fold(0.0, f64::max)
    };
    kernels.sort_by(|a, b| size(b).total_cmp(&size(a)));
    let titles = |all: Vec<&KernelProfile>| all.into_iter().map(title).collect();
    Comparison { kernels, only_before: titles(rest), only_now: titles(open), sms }
}

fn title(profile: &KernelProfile) -> String {
    format!("{}: {}", profile.kernel, shape(profile))
}

/// Means per launch, in the order of [`MEASURES`].
type Values = [f64; MEASURES.len()];

fn values(counts: &Counts, launches: u64, seconds: f64) -> Values {
    let mean = |count| ratio(count, launches.max(1));
    [
        mean(counts.executed),
        mean(counts.global.sectors + counts.local.sectors),
        mean(counts.shared.conflicts()),
        mean(counts.divergent),
        seconds,
    ]
}

fn kernel(old: &KernelProfile, new: &KernelProfile, board: Option<Profile>) -> KernelChange {
    let measures = if board.is_some() { MEASURES.len() } else { BOUND };
    let changes = |before: &Values, now: &Values| -> Vec<Change> {
        let change = |at: usize| Change { measure: MEASURES[at], before: before[at], now: now[at] };
        (0..measures).map(change).collect()
    };
    let bounds = [old, new].map(|profile| board.map(|board| Bound::of(profile, board)));
    let all = [(old, &bounds[0]), (new, &bounds[1])].map(|(profile, bound)| {
        let seconds = bound.as_ref().map_or(0.0, |bound| bound.seconds);
        values(&profile.totals().all, profile.launches, seconds)
    });
    let mut lines: BTreeMap<(String, Row), [Values; 2]> = BTreeMap::new();
    let mut numbers: BTreeMap<(String, Row), u32> = BTreeMap::new();
    let rows = rows(old, new);
    for (side, (profile, bound)) in [(old, &bounds[0]), (new, &bounds[1])].into_iter().enumerate() {
        let shares = bound.as_ref().map(|bound| (bound.seconds, bound.line_shares(profile)));
        for line in profile.lines() {
            let part = shares
                .as_ref()
                .and_then(|(all, by_line)| Some(all * by_line.get(&(line.file.clone(), line.line))?));
            let place = (file_name(&line.file).to_owned(), line.line);
            let known = rows.get(&place).filter(|_| side == 0);
            let row = known.copied().unwrap_or(Row { line: line.line, removed: false });
            let key = (place.0, row);
            if side == 0 {
                numbers.insert(key.clone(), line.line);
            }
            let sum = &mut lines.entry(key).or_default()[side];
            let own = values(&line.counts, profile.launches, part.unwrap_or(0.0));
            sum.iter_mut().zip(own).for_each(|(sum, value)| *sum += value);
        }
    }
    // A line's change as a part of the kernel, summed over the counts.
    let weight = |[before, now]: &[Values; 2]| -> f64 {
        let part = |at: usize| (now[at] - before[at]).abs() / all[0][at].max(all[1][at]).max(1.0);
        (0..BOUND).map(part).sum()
    };
    let mut lines: Vec<_> = lines.into_iter().filter(|(_, sides)| weight(sides) > 0.0).collect();
    lines.sort_by(|(_, a), (_, b)| weight(b).total_cmp(&weight(a)));
    let line = |(key, [before, now]): ((String, Row), [Values; 2])| LineChange {
        before: numbers.get(&key).copied().filter(|number| *number != key.1.line),
        file: key.0,
        line: key.1.line,
        removed: key.1.removed,
        changes: changes(&before, &now),
    };
    let shape = match (shape(old), shape(new)) {
        (old, new) if old == new => new,
        (old, new) => format!("{new} (before: {old})"),
    };
    KernelChange {
        kernel: new.kernel.clone(),
        shape,
        changes: changes(&all[0], &all[1]),
        lines: lines.into_iter().map(line).collect(),
    }
}

impl Comparison {
    /// The kernels with a measure that increases by more than `percent`.
    pub fn over(&self, percent: f64) -> impl Iterator<Item = &KernelChange> {
        self.kernels.iter().filter(move |kernel| kernel.increase() > percent / 100.0)
    }
}

/// A value as text.
pub(super) fn value(change: &Change, value: f64) -> String {
    // CAST: counts, far below 2^53.
    if change.measure == MEASURES[BOUND] { time(value) } else { number(value.round() as u64) }
}

/// A change as text: `=`, `new`, `+12.5 %`.
pub(super) fn relative(change: &Change) -> String {
    match change.increase() {
        0.0 => "=".to_owned(),
        increase if increase.is_infinite() => "new".to_owned(),
        increase => format!("{:+.1} %", 100.0 * increase),
    }
}

/// A line's change as text: the difference; empty if there is none.
pub(super) fn difference(change: &Change) -> String {
    let sign = match change.increase() {
        0.0 => return String::new(),
        increase if increase > 0.0 => "+",
        _ => "-",
    };
    format!("{sign}{}", value(change, (change.now - change.before).abs()))
}

/// A line's place as text.
pub(super) fn place(line: &LineChange) -> String {
    let LineChange { file, line, before, removed, .. } = line;
    match before {
        _ if *removed => format!("{file}:{line} of the baseline"),
        Some(before) => format!("{file}:{line} (before: {before})"),
        None => format!("{file}:{line}"),
    }
}

/// Sentences about what could not be compared.
pub(super) fn notes(comparison: &Comparison) -> Vec<String> {
    let mut notes = Vec::new();
    if let Some((before, now)) = comparison.sms {
        notes.push(format!(
            "the baseline is of a board with {before} SMs, this run of one with {now}: grids may depend on it"
        ));
    }
    notes.extend(comparison.only_before.iter().map(|kernel| format!("only in the baseline: {kernel}")));
    notes.extend(comparison.only_now.iter().map(|kernel| format!("only in this run: {kernel}")));
    notes
}

/// A table of each kernel, means per launch, and what could not be compared.
impl fmt::Display for Comparison {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for kernel in &self.kernels {
            write!(out, "{}: {}", kernel.kernel, kernel.shape)?;
            if kernel.lines.is_empty() && kernel.changes.iter().all(|change| change.increase() == 0.0) {
                writeln!(out, ": no change")?;
                continue;
            }
            writeln!(out, "\n  {:<18} {:>15} {:>15} {:>9}", "per launch", "before", "now", "change")?;
            for change in &kernel.changes {
                let [before, now] = [change.before, change.now].map(|number| value(change, number));
                let (name, relative) = (change.measure, relative(change));
                writeln!(out, "  {name:<18} {before:>15} {now:>15} {relative:>9}")?;
            }
            self::lines(out, kernel)?;
        }
        notes(self).iter().try_for_each(|note| writeln!(out, "{note}"))
    }
}

fn lines(out: &mut impl Write, kernel: &KernelChange) -> fmt::Result {
    if kernel.lines.is_empty() {
        return Ok(());
    }
    write!(out, " ")?;
    kernel.changes.iter().try_for_each(|change| write!(out, " {:>18}", change.measure))?;
    writeln!(out, "  where")?;
    for line in kernel.lines.iter().take(ROWS) {
        write!(out, " ")?;
        line.changes.iter().try_for_each(|change| write!(out, " {:>18}", difference(change)))?;
        writeln!(out, "  {}", place(line))?;
    }
    match kernel.lines.len().saturating_sub(ROWS) {
        0 => Ok(()),
        more => writeln!(out, "  ... and {more} lines with smaller changes"),
    }
}
