//! The report of a run.

use std::time::{Duration, SystemTime};

use gpu_log::Event;
use tegra_hcq::DeviceKind;

use super::Outcome;

/// Result of one test.
#[derive(Clone, Debug)]
pub struct TestReport {
    /// Name of the suite.
    pub suite: &'static str,
    /// Name of the test.
    pub name: &'static str,
    /// What the test proves.
    pub about: &'static str,
    /// The test's outcome.
    pub outcome: Outcome,
    /// Duration of the test.
    pub elapsed: Duration,
    /// Measured values and observations.
    pub notes: Vec<String>,
    /// GPU events in the kernel log during the test.
    pub events: Vec<Event>,
}

/// Result of a run.
#[derive(Clone, Debug)]
pub struct RunReport {
    /// The GPU in one line.
    pub device: String,
    /// `Nvgpu` or `Sim`.
    pub kind: DeviceKind,
    /// The factor for durations and numbers of rounds.
    pub scale: f64,
    /// Start time.
    pub started: SystemTime,
    /// Duration of the run.
    pub elapsed: Duration,
    /// The tests in execution order.
    pub tests: Vec<TestReport>,
    /// Why the kernel log was not checked, if it could not be read.
    pub log_unavailable: Option<String>,
    /// Why the run ended early, if it did; the remaining tests are skipped.
    pub stopped: Option<String>,
    /// Whether the user ended the run; the running test and the remaining ones are skipped.
    pub interrupted: bool,
}

/// Numbers of tests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Tests that passed.
    pub passed: usize,
    /// Tests that failed.
    pub failed: usize,
    /// Tests that were skipped.
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

    /// Names of the suites in execution order.
    pub fn suites(&self) -> Vec<&'static str> {
        let mut names: Vec<_> = self.tests.iter().map(|test| test.suite).collect();
        names.dedup();
        names
    }

    /// The failed tests and their messages.
    pub fn failures(&self) -> impl Iterator<Item = (&TestReport, &str)> {
        self.tests.iter().filter_map(|test| match &test.outcome {
            Outcome::Failed(text) => Some((test, text.as_str())),
            _ => None,
        })
    }
}
