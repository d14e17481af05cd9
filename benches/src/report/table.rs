//! The table in text form.

use comfy_table::{Cell, CellAlignment, Table, presets};
use tegra_hcq::DeviceKind;

use super::growth::{GOAL, growth};
use super::{figures, optional_time, remark, three_digits, time_text};
use crate::baseline::{NOISE, Verdict, doubts};
use crate::case::Unit;
use crate::measure::Summary;
use crate::run::Run;

/// One line per measured case, a second one for its rival, then the cases that were not measured, with reasons.
pub fn table(run: &Run) -> String {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING);
    let mut head = vec!["case", "n", "min", "median", "mean", "p90", "p99", "p99.9", "max", "rate"];
    if run.rival.is_some() {
        head.extend(["CUDA / ours", "at p99"]);
    }
    if run.baseline.is_some() {
        head.push("change");
    }
    table.set_header(head.iter().enumerate().map(|(at, text)| cell(at, (*text).to_owned())));
    if let Some(names) = table.column_mut(0) {
        names.set_padding((0, 1));
    }
    let mut remarks = String::new();
    for measurement in &run.measurements {
        let (ours, rival) = figures(&measurement.outcome);
        if let Some(ours) = ours {
            let mut row = row(measurement.name.clone(), &ours, measurement.unit);
            if let Some(rival) = rival {
                row.extend([rival.median / ours.median, rival.p99 / ours.p99].map(three_digits));
            } else if run.rival.is_some() {
                row.extend([String::new(), String::new()]);
            }
            row.extend(run.change(measurement).map(|change| change.to_string()));
            table.add_row(row.into_iter().enumerate().map(|(at, text)| cell(at, text)));
        }
        if let Some(rival) = rival {
            let row = row("  CUDA".to_owned(), &rival, measurement.unit);
            table.add_row(row.into_iter().enumerate().map(|(at, text)| cell(at, text)));
        }
        if let Some(remark) = remark(&measurement.outcome) {
            remarks += &format!("{}: {remark}\n", measurement.name);
        }
    }
    let separator = if remarks.is_empty() { "" } else { "\n" };
    let incomplete = run.incomplete().map_or_else(String::new, |text| format!("\n{text}\n"));
    let model = match run.device.kind {
        DeviceKind::Sim => "\non the software Orin: these times do not predict those of a board\n".to_owned(),
        kind => format!("\nmeasured on {} ({kind})\n", run.device.chip),
    };
    let (growth, comparison) = (growth_lines(run), comparison(run));
    format!("{}\n{growth}{comparison}{separator}{remarks}{model}{incomplete}", table.trim_fmt())
}

/// Names the baseline and how many cases changed; empty without a baseline.
fn comparison(run: &Run) -> String {
    let Some(baseline) = &run.baseline else { return String::new() };
    let changes = || run.measurements.iter().filter_map(|case| run.change(case));
    let count = |verdict| changes().filter(|change| change.verdict == verdict).count();
    let mut lines = format!(
        "\nagainst the run of {}{}: {} faster, {} slower, {} unclear, {} without a change of more than {:.0} %\n",
        baseline.date,
        baseline.commit.as_ref().map_or_else(String::new, |commit| format!(", commit {commit}")),
        count(Verdict::Faster),
        count(Verdict::Slower),
        count(Verdict::Unclear),
        count(Verdict::Same),
        100.0 * NOISE
    );
    for doubt in doubts(baseline, &super::json(run)) {
        lines += &format!("warning: {doubt}\n");
    }
    lines
}

/// A line per group of growth cases; empty if there are none.
fn growth_lines(run: &Run) -> String {
    let groups = growth(run);
    let mut lines = String::new();
    if !groups.is_empty() {
        lines +=
            &format!("\ncost per item at the lowest and at the highest count; goal: at most {GOAL} times\n");
    }
    for group in groups {
        let (first, last) = (group.first, group.last);
        let ratio = group.ratio();
        let verdict = if ratio > GOAL { ", above the goal" } else { "" };
        lines += &format!(
            "{}: {} at {}, {} at {}: {ratio:.2} times{verdict}\n",
            group.name,
            time_text(first.1),
            first.0,
            time_text(last.1),
            last.0
        );
    }
    lines
}

/// Aligns text to the left and numbers to the right.
fn cell(at: usize, text: String) -> Cell {
    let side = if at == 0 { CellAlignment::Left } else { CellAlignment::Right };
    Cell::new(text).set_alignment(side)
}

fn row(name: String, summary: &Summary, unit: Unit) -> Vec<String> {
    let Summary { count, min, median, mean, p90, p99, p999, max } = *summary;
    let mut row = vec![name, count.to_string()];
    row.extend([min, median, mean, p90, p99].map(time_text));
    row.extend([optional_time(p999), time_text(max)]);
    row.push(rate_text(unit, median));
    row
}

/// The rate for a time, if the case has one.
fn rate_text(unit: Unit, nanoseconds: f64) -> String {
    unit.rate(nanoseconds).map_or_else(String::new, |(name, rate)| format!("{} {name}", three_digits(rate)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::sample;

    #[test]
    fn a_run_with_a_rival() {
        let text = table(&sample::run());
        let line = |name: &str| text.lines().find(|line| line.starts_with(name)).unwrap_or_default();
        assert!(line("launch/wait").contains("2.50 µs") && line("launch/wait").contains("4.00"), "{text}");
        assert!(line("  CUDA").contains("8.00 µs"), "{text}");
        assert!(line("copy/a/4KiB").contains("3.20 GB/s"), "{text}");
        assert!(line("matmul/x: ").contains("skipped: needs a GPU"), "{text}");
        assert!(line("process/x: ").contains("FAILED: broken"), "{text}");
        assert!(line("copy/a/1MiB: ").contains("CUDA not measured"), "{text}");
    }

    #[test]
    fn growth_is_told_below_the_table() {
        let mut run = sample::run();
        assert!(!table(&run).contains("cost per item"));
        run.plan.divide_rounds = 1;
        for (at, name) in [(1, "growth/x/1"), (2, "growth/x/1048576")] {
            run.measurements[at].name = name.into();
        }
        run.measurements[1].size = 1;
        let text = table(&run);
        assert!(text.contains("at 1048576: ") && text.contains("above the goal"), "{text}");
    }

    #[test]
    fn a_baseline_gives_changes_and_a_summary() {
        let mut run = sample::run();
        let before = crate::report::json(&run).to_string();
        run.baseline = Some(crate::Baseline::parse(&before).unwrap());
        run.measurements[1].outcome = run.measurements[0].outcome.clone();
        let text = table(&run);
        let line = |name: &str| text.lines().find(|line| line.starts_with(name)).unwrap_or_default();
        assert!(line("launch/wait").ends_with("+0.0 % no change"), "{text}");
        assert!(line("copy/a/4KiB").contains(" % SLOWER"), "{text}");
        assert!(
            text.contains("commit 0123456789ab: 0 faster, 1 slower, 0 unclear, 2 without a change"),
            "{text}"
        );
        assert!(!text.contains("warning:"), "{text}");
    }

    #[test]
    fn only_times_of_the_software_orin_have_a_warning() {
        let mut run = sample::run();
        assert!(table(&run).ends_with("these times do not predict those of a board\n"));
        run.device.kind = DeviceKind::Nvgpu;
        assert!(!table(&run).contains("do not predict"));
    }

    #[test]
    fn few_samples_have_no_high_percentile() {
        let mut run = sample::run();
        assert!(!table(&run).contains('–'), "1,000 samples have one");
        let mut few = crate::Samples::default();
        (0..999).for_each(|_| few.add(std::time::Duration::from_micros(1), 1));
        run.measurements[0].outcome = crate::Outcome::Measured { ours: few, rival: None };
        assert!(table(&run).contains('–'));
    }

    #[test]
    fn another_machine_is_a_warning() {
        let mut run = sample::run();
        let before = crate::report::json(&run).to_string();
        run.baseline = Some(crate::Baseline::parse(&before).unwrap());
        run.machine.cpus += 1;
        let text = table(&run);
        assert!(text.contains("warning: the baseline is from A board, 2, "), "{text}");
    }

    #[test]
    fn without_a_rival_there_are_no_ratios() {
        let mut run = sample::run();
        run.rival = None;
        assert!(!table(&run).contains("CUDA / ours"));
    }
}
