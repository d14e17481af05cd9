//! Suites of tests that run on a device: a board, or a software Orin.
//!
//! A [`Suite`] is a list of [`Test`]s; a test is a function of a [`Context`], which knows the device and
//! how to open it. [`runner::run`] runs a choice of tests one after another, each in a thread of its own:
//! a panic is a failure, and so is a test that exceeds its limit. Around each test the kernel log is
//! read, and an error in it fails the test, unless the test [declares](Test::expecting) that it provokes
//! that very kind of event: then the log must have it and no other.
//!
//! `cargo xtask test-device` runs the suites as a command; `cargo test -p tests --test suites` runs them
//! on the software Orin.
//!
//! ```
//! use test_harness::{Check, Context, Suite, Test};
//!
//! fn opens(context: &Context) -> Check {
//!     let device = context.device()?;
//!     assert!(device.info().sm_count > 0, "a GPU without SMs");
//!     Ok(())
//! }
//!
//! static SUITE: Suite = Suite {
//!     name: "example",
//!     about: "what a suite looks like",
//!     orin_only: false,
//!     tests: &[Test::new("opens", "the device opens", |context| opens(context).into())],
//! };
//! assert_eq!(SUITE.tests[0].name, "opens");
//! ```

mod context;
pub mod log;
mod machine;
mod neighbour;
mod panics;
pub mod report;
pub mod runner;

#[cfg(test)]
mod tests;

use std::error::Error;
use std::fmt::Write;
use std::time::Duration;

pub use context::Context;
pub use machine::{Load, Machine};
pub use neighbour::{Held, Neighbour, Played, Role};

use gpu_log::Kind;

/// Longest time that a test may take if it does not say otherwise.
pub const DEFAULT_LIMIT: Duration = Duration::from_secs(120);

/// A named list of tests.
#[derive(Debug)]
pub struct Suite {
    /// One word, for `--suite`.
    pub name: &'static str,
    /// What the suite is about, in one line.
    pub about: &'static str,
    /// Whether it sends requests of the Orin's own driver: on another device its tests are skipped.
    pub orin_only: bool,
    /// Its tests in the order in which they run.
    pub tests: &'static [Test],
}

/// One test.
#[derive(Debug)]
pub struct Test {
    /// Name, unique in its suite.
    pub name: &'static str,
    /// What it proves, in one line.
    pub about: &'static str,
    /// The test itself.
    pub run: fn(&Context) -> Outcome,
    /// Longest time that it may take.
    pub limit: Duration,
    /// The kind of event that it provokes in the kernel log.
    pub expects: Option<Kind>,
    /// Kinds of events that it may provoke besides.
    pub allows: &'static [Kind],
    /// Whether it runs on the suite's device instead of one of its own.
    pub shared: bool,
}

impl Test {
    /// A test that may take [`DEFAULT_LIMIT`], provokes no error and has a device of its own.
    pub const fn new(name: &'static str, about: &'static str, run: fn(&Context) -> Outcome) -> Self {
        Self { name, about, run, limit: DEFAULT_LIMIT, expects: None, allows: &[], shared: false }
    }

    /// The same with another limit.
    pub const fn limited_to(self, limit: Duration) -> Self {
        Self { limit, ..self }
    }

    /// The same, provoking events of this kind: the log must have at least one, and no error of another.
    pub const fn expecting(self, kind: Kind) -> Self {
        Self { expects: Some(kind), ..self }
    }

    /// The same, provoking events of these kinds besides, or not.
    pub const fn allowing(self, kinds: &'static [Kind]) -> Self {
        Self { allows: kinds, ..self }
    }

    /// The same, on the device that the suite's sharing tests have in common.
    pub const fn sharing_device(self) -> Self {
        Self { shared: true, ..self }
    }
}

/// How a test ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// What it was to prove holds.
    Passed,
    /// It could not be run here; why.
    Skipped(String),
    /// It does not hold; what was seen.
    Failed(String),
}

/// What a test's function may return to use `?`: any error is a failure.
pub type Check = Result<(), Box<dyn Error + Send + Sync>>;

impl From<Check> for Outcome {
    fn from(check: Check) -> Self {
        match check {
            Ok(()) => Self::Passed,
            Err(error) => match error.downcast::<Skip>() {
                Ok(skip) => Self::Skipped(skip.0),
                Err(error) => Self::Failed(chain(&*error)),
            },
        }
    }
}

/// An error with what caused it. Causes that the text above already tells are left out.
fn chain(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            let _ = write!(text, ": {cause_text}");
        }
        source = cause.source();
    }
    text
}

/// The error with which a [`Check`] says that the test cannot be run here; the text says why.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Skip(pub String);
