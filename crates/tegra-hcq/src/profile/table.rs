//! The table of a profile.

use core::fmt::Write as _;
use std::collections::{HashMap, HashSet};

use super::{Span, Work};

const HEADERS: [&str; 9] = ["name", "calls", "total", "mean", "min", "p50", "p99", "max", "share"];

/// GPU times by name.
pub(super) fn render(spans: &[Span], unfinished: usize, left_out: usize) -> String {
    let mut groups: HashMap<String, Vec<u64>> = HashMap::new();
    for span in spans {
        groups.entry(span.work.name()).or_default().push(span.end.saturating_sub(span.start));
    }
    // The time of a graph is that of its steps, if they are recorded.
    let stepped = |pair: &[Span]| matches!(pair[0].work, Work::Graph { .. }) && pair[1].step == Some(0);
    let graphs: HashSet<String> =
        spans.windows(2).filter(|pair| stepped(pair)).map(|pair| pair[0].work.name()).collect();
    let counted = groups.iter().filter(|(name, _)| !graphs.contains(*name));
    let sum: u64 = counted.flat_map(|(_, times)| times).sum();
    let mut groups: Vec<_> = groups.into_iter().collect();
    groups.sort_by(|(name_a, a), (name_b, b)| {
        let (total_a, total_b): (u64, u64) = (a.iter().sum(), b.iter().sum());
        total_b.cmp(&total_a).then_with(|| name_a.cmp(name_b))
    });
    let mut rows = vec![HEADERS.map(str::to_owned)];
    rows.extend(groups.into_iter().map(|(name, times)| {
        let sum = (!graphs.contains(&name)).then_some(sum);
        row(name, times, sum)
    }));

    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: [usize; HEADERS.len()] = core::array::from_fn(width);
    let mut text = String::new();
    for row in &rows {
        let _ = write!(text, "{:<width$}", row[0], width = widths[0]);
        for (cell, width) in row.iter().zip(widths).skip(1) {
            let _ = write!(text, "  {cell:>width$}");
        }
        text.truncate(text.trim_end().len());
        text.push('\n');
    }
    if unfinished > 0 {
        let _ = writeln!(text, "{unfinished} more never finished: a fault or a recovery has cut them off");
    }
    if left_out > 0 {
        let _ = writeln!(text, "{left_out} more were not kept");
    }
    text
}

/// `sum` is the time of everything, or `None` for a row without a share.
fn row(name: String, mut times: Vec<u64>, sum: Option<u64>) -> [String; HEADERS.len()] {
    times.sort_unstable();
    let total: u64 = times.iter().sum();
    let count = times.len();
    let share = |sum: u64| if sum == 0 { 0.0 } else { total as f64 * 100.0 / sum as f64 };
    [
        name,
        count.to_string(),
        duration(total as f64),
        duration(total as f64 / count as f64),
        duration(times[0] as f64),
        duration(percentile(&times, 50) as f64),
        duration(percentile(&times, 99) as f64),
        duration(times[count - 1] as f64),
        sum.map_or_else(String::new, |sum| format!("{:.1}%", share(sum))),
    ]
}

/// The smallest time that at least `percent` percent of the times do not exceed; `sorted` is not empty.
fn percentile(sorted: &[u64], percent: usize) -> u64 {
    sorted[(sorted.len() * percent).div_ceil(100).max(1) - 1]
}

/// A time with at least three decimals, in a suitable unit.
fn duration(ns: f64) -> String {
    match ns {
        ns if ns < 1e6 => format!("{:.3} µs", ns / 1e3),
        ns if ns < 1e9 => format!("{:.3} ms", ns / 1e6),
        ns => format!("{:.3} s", ns / 1e9),
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::span;
    use super::*;

    #[test]
    fn percentiles_are_values_that_occurred() {
        let times: Vec<u64> = (1..=200).collect();
        assert_eq!((percentile(&times, 50), percentile(&times, 99)), (100, 198));
        assert_eq!(percentile(&[7], 1), 7);
        assert_eq!(percentile(&[7], 99), 7);
    }

    #[test]
    fn rows_are_sorted_by_their_total() {
        let spans =
            [span("short", 0, 1000, 2500), span("long", 0, 3000, 2_003_000), span("short", 0, 4000, 4500)];
        let expected = "\
name   calls     total      mean       min       p50       p99       max  share
long       1  2.000 ms  2.000 ms  2.000 ms  2.000 ms  2.000 ms  2.000 ms  99.9%
short      2  2.000 µs  1.000 µs  0.500 µs  0.500 µs  1.500 µs  1.500 µs   0.1%
3 more never finished: a fault or a recovery has cut them off
";
        assert_eq!(render(&spans, 3, 0), expected);
        assert_eq!(render(&[], 0, 9).lines().last(), Some("9 more were not kept"));
    }
}
