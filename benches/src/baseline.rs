//! Comparison with an earlier run, read from its JSON report.
//!
//! The verdict compares medians. Each has a 95 % confidence interval from the order of its samples, which needs no
//! assumption about their distribution (the ranks n/2 ± 0.98 √n). A change counts if the intervals do not overlap, and
//! if it is larger than [`NOISE`]: load, clocks and placement in memory change a median between equal runs by a few
//! percent.

use core::fmt;
use std::collections::HashMap;

use serde_json::Value;

use crate::error::{Error, Result};
use crate::measure::{Bin, Samples};
use crate::report::SCHEMA;

/// Changes of a median up to this share are noise.
pub const NOISE: f64 = 0.05;
/// Half-width of the 95 % confidence interval of a median, in ranks divided by the square root of their number.
const HALF_WIDTH: f64 = 0.98;

/// A case of an earlier run.
#[derive(Clone, Debug, PartialEq)]
struct Case {
    /// Median in nanoseconds.
    median: f64,
    /// Number of samples.
    count: u64,
    /// Its distribution.
    bins: Vec<Bin>,
}

/// An earlier run.
#[derive(Clone, Debug, PartialEq)]
pub struct Baseline {
    /// Its start time.
    pub date: String,
    /// Its commit, if known.
    pub commit: Option<String>,
    /// Its machine and device, in one line each.
    pub place: Vec<String>,
    /// Whether the program was optimised.
    pub optimised: bool,
    /// Number of samples and duration of each case.
    plan: Value,
    cases: HashMap<String, Case>,
}

/// The judgement of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Verdict {
    /// The median is lower, by more than noise.
    Faster,
    /// The median is higher, by more than noise.
    Slower,
    /// No change of more than noise.
    Same,
    /// A change of more than noise that the spread of the samples may explain.
    Unclear,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Faster => "faster",
            Self::Slower => "SLOWER",
            Self::Same => "no change",
            Self::Unclear => "unclear",
        })
    }
}

/// A case compared with the earlier run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Change {
    /// Change of the median: -0.1 is 10 % less time.
    pub share: f64,
    /// The judgement.
    pub verdict: Verdict,
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:+.1} % {}", 100.0 * self.share, self.verdict)
    }
}

impl Baseline {
    /// Reads the JSON report of a run.
    ///
    /// # Errors
    ///
    /// [`Error::Baseline`] if the text is no report of this layout, or contains no measured case.
    pub fn parse(text: &str) -> Result<Self> {
        let refuse = |reason: String| Error::Baseline(reason);
        let value: Value = serde_json::from_str(text).map_err(|error| refuse(error.to_string()))?;
        if value["schema"] != SCHEMA {
            return Err(refuse(format!("its \"schema\" is {}, not {SCHEMA}", value["schema"])));
        }
        let word = |value: &Value| value.as_str().map(str::to_owned);
        let results = value["results"].as_array().map_or(&[][..], Vec::as_slice);
        let cases: HashMap<_, _> = results
            .iter()
            .filter_map(|result| Some((word(&result["name"])?, case(&result["ours"])?)))
            .collect();
        if cases.is_empty() {
            return Err(refuse("it contains no measured case".to_owned()));
        }
        Ok(Self {
            date: word(&value["date"]).unwrap_or_default(),
            commit: word(&value["commit"]),
            place: place(&value),
            optimised: value["optimised"] == true,
            plan: value["plan"].clone(),
            cases,
        })
    }

    /// The change of a case; `None` if one of the runs has not measured it.
    pub fn change(&self, name: &str, now: &Samples) -> Option<Change> {
        let (before, bins) = (self.cases.get(name)?, now.bins());
        let median = now.summary()?.median;
        let share = median / before.median - 1.0;
        let (old, new) = (interval(&before.bins, before.count), interval(&bins, now.count()));
        let verdict = match share {
            share if share.abs() <= NOISE => Verdict::Same,
            _ if new.1 < old.0 => Verdict::Faster,
            _ if new.0 > old.1 => Verdict::Slower,
            _ => Verdict::Unclear,
        };
        Some(Change { share, verdict })
    }
}

/// The machine and the device of a report, which must be equal for a comparison.
fn place(report: &Value) -> Vec<String> {
    let (machine, device) = (&report["machine"], &report["device"]);
    let line = |parts: &[&Value]| {
        parts.iter().map(|part| part.to_string().replace('"', "")).collect::<Vec<_>>().join(", ")
    };
    vec![
        line(&[&machine["model"], &machine["cpus"], &machine["architecture"]]),
        line(&[&device["kind"], &device["chip"], &device["sm_count"]]),
    ]
}

/// The distribution of a case; `None` if it was not measured.
fn case(ours: &Value) -> Option<Case> {
    let bins: Option<Vec<Bin>> = ours["bins"]
        .as_array()?
        .iter()
        .map(|bin| Some(Bin { from: bin[0].as_f64()?, to: bin[1].as_f64()?, count: bin[2].as_u64()? }))
        .collect();
    let (median, count) = (ours["median"].as_f64()?, ours["count"].as_u64()?);
    (median > 0.0).then_some(Case { median, count, bins: bins? })
}

/// The 95 % confidence interval of the median of a distribution.
fn interval(bins: &[Bin], count: u64) -> (f64, f64) {
    let (count, half) = (count as f64, HALF_WIDTH * (count as f64).sqrt());
    (at_rank(bins, count / 2.0 - half), at_rank(bins, count / 2.0 + half))
}

/// The value at a rank, interpolated in its bin.
fn at_rank(bins: &[Bin], rank: f64) -> f64 {
    let mut before = 0.0;
    for bin in bins {
        let count = bin.count as f64;
        if rank <= before + count {
            return bin.from + (bin.to - bin.from) * ((rank - before) / count).clamp(0.0, 1.0);
        }
        before += count;
    }
    bins.last().map_or(0.0, |bin| bin.to)
}

/// Reasons to doubt a comparison, in one sentence each; `report` is the JSON form of the new run.
pub(crate) fn doubts(baseline: &Baseline, report: &Value) -> Vec<String> {
    let mut doubts = Vec::new();
    for (old, new) in baseline.place.iter().zip(place(report)) {
        if *old != new {
            doubts.push(format!("the baseline is from {old}, this run from {new}"));
        }
    }
    if baseline.plan != report["plan"] {
        doubts.push("only one of the two runs is a --quick one".to_owned());
    }
    if baseline.optimised != (report["optimised"] == true) {
        doubts.push("only one of the two programs is optimised".to_owned());
    }
    doubts
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::report::{json, sample};

    fn samples(count: u64, nanoseconds: u64, spread: u64) -> Samples {
        let mut samples = Samples::default();
        for at in 0..count {
            // Evenly spread, in no order.
            samples.add(Duration::from_nanos(nanoseconds + (at * 7919 % count) * spread / count), 1);
        }
        samples
    }

    fn baseline() -> Baseline {
        Baseline::parse(&json(&sample::run()).to_string()).unwrap()
    }

    #[test]
    fn a_report_is_its_own_baseline_without_a_change() {
        let run = sample::run();
        let baseline = baseline();
        for measurement in &run.measurements {
            if let crate::Outcome::Measured { ours, .. } = &measurement.outcome {
                let change = baseline.change(&measurement.name, ours).unwrap();
                assert!(change.share.abs() < 1e-6 && change.verdict == Verdict::Same, "{change}");
            } else {
                assert!(!baseline.cases.contains_key(&measurement.name));
            }
        }
        assert!(doubts(&baseline, &json(&run)).is_empty());
        assert_eq!(baseline.change("no/such", &samples(10, 10, 1)), None);
    }

    #[test]
    fn a_change_counts_if_it_is_more_than_noise_and_certain() {
        // The sample's case has a median of 2.5 µs.
        let verdict = |samples| baseline().change("launch/wait", &samples).unwrap();
        let text = |samples| verdict(samples).to_string();
        assert_eq!(text(samples(1000, 2000, 10)), "-19.8 % faster");
        assert_eq!(text(samples(1000, 3000, 10)), "+20.2 % SLOWER");
        assert_eq!(verdict(samples(1000, 2550, 10)).verdict, Verdict::Same, "2 % is noise");
        // Four samples between 1 and 5 µs say nothing.
        assert_eq!(verdict(samples(4, 1000, 4000)).verdict, Verdict::Unclear);
    }

    #[test]
    fn other_files_are_refused() {
        for (text, word) in [("{", "EOF"), ("{}", "\"schema\""), ("{\"schema\": 1}", "no measured case")] {
            let error = Baseline::parse(text).unwrap_err().to_string();
            assert!(error.contains(word), "{error}");
        }
    }

    #[test]
    fn another_machine_is_named() {
        let mut run = sample::run();
        run.machine.cpus = 64;
        run.device.gpu.sm_count = 14;
        run.plan = crate::Plan::FULL;
        let doubts = doubts(&baseline(), &json(&run));
        assert!(doubts.len() == 3 && doubts[0].contains("64") && doubts[1].contains("14"), "{doubts:?}");
    }
}
