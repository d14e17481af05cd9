//! What a run found.

use std::time::{Duration, SystemTime};

use gpu_log::Event;
use tegra_hcq::DeviceKind;

use super::Outcome;

/// What became of one test.
#[derive(Clone, Debug)]
pub struct TestReport {
    /// Name of the suite.
    pub suite: &'static str,
    /// Name of the test.
    pub name: &'static str,
    /// What it proves.
    pub about: &'static str,
    /// How it ended.
    pub outcome: Outcome,
    /// How long it took.
    pub elapsed: Duration,
    /// Measured values and observations.
    pub notes: Vec<String>,
    /// What the kernel log said about the GPU meanwhile.
    pub events: Vec<Event>,
}

/// What became of a run.
#[derive(Clone, Debug)]
pub struct RunReport {
    /// The GPU in one line.
    pub device: String,
    /// `Nvgpu` or `Sim`.
    pub kind: DeviceKind,
    /// The factor for durations and numbers of rounds.
    pub scale: f64,
    /// When it began.
    pub started: SystemTime,
    /// How long it took.
    pub elapsed: Duration,
    /// The tests in the order in which they ran.
    pub tests: Vec<TestReport>,
    /// Why the kernel log was not judged, if it could not be read.
    pub log_unavailable: Option<String>,
    /// Why the run ended early, if it did; the tests that were not run are skipped.
    pub stopped: Option<String>,
}

/// Numbers of tests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// That passed.
    pub passed: usize,
    /// That failed.
    pub failed: usize,
    /// That were skipped.
    pub skipped: usize,
}

impl Counts {
    /// Counts outcomes.
    pub fn of<'a>(tests: impl IntoIterator<Item = &'a TestReport>) -> Self {
        tests.into_iter().fold(Self::default(), |mut counts, test| {
            match test.outcome {
                Outcome::Passed => counts.passed += 1,
                Outcome::Failed(_) => counts.failed += 1,
                Outcome::Skipped(_) => counts.skipped += 1,
            }
            counts
        })
    }
}

impl RunReport {
    /// Numbers of tests.
    pub fn counts(&self) -> Counts {
        Counts::of(&self.tests)
    }

    /// The names of the suites, in the order in which they ran.
    pub fn suites(&self) -> Vec<&'static str> {
        let mut names: Vec<_> = self.tests.iter().map(|test| test.suite).collect();
        names.dedup();
        names
    }

    /// The tests that failed, with what was seen.
    pub fn failures(&self) -> impl Iterator<Item = (&TestReport, &str)> {
        self.tests.iter().filter_map(|test| match &test.outcome {
            Outcome::Failed(text) => Some((test, text.as_str())),
            _ => None,
        })
    }
}
