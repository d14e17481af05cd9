//! Test suites that run on a device: a board, or a software Orin.
//!
//! A [`Suite`] is a list of [`Test`]s; a test is a function of a [`Context`], which opens the device.
//! [`runner::run`] runs a selection of tests one after another, each in its own thread. A panic is a failure,
//! and so is a test that exceeds its limit. The runner reads the kernel log around each test, and an error in
//! it fails the test. A test may [declare](Test::expecting) the kind of event that it provokes; then the log
//! must contain that kind and no other.
//!
//! `cargo xtask test-device` runs the suites as a command; `cargo test -p test-suites --test suites` runs
//! them on the software Orin.
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

/// Default time limit of a test.
pub const DEFAULT_LIMIT: Duration = Duration::from_secs(120);

/// A named list of tests.
#[derive(Debug)]
pub struct Suite {
    /// One word, for `--suite`.
    pub name: &'static str,
    /// Contents of the suite, in one line.
    pub about: &'static str,
    /// Whether the suite sends requests of the Orin's own driver; on another device its tests are skipped.
    pub orin_only: bool,
    /// The tests in execution order.
    pub tests: &'static [Test],
}

/// One test.
#[derive(Debug)]
pub struct Test {
    /// Name, unique in its suite.
    pub name: &'static str,
    /// What the test proves, in one line.
    pub about: &'static str,
    /// The test itself.
    pub run: fn(&Context) -> Outcome,
    /// Time limit.
    pub limit: Duration,
    /// The kind of event that the test provokes in the kernel log.
    pub expects: Option<Kind>,
    /// Other kinds of events that the test may provoke.
    pub allows: &'static [Kind],
    /// Whether the test runs on the suite's shared device instead of its own.
    pub shared: bool,
    /// Whether the test runs for the time of [`Load::duration`].
    pub timed: bool,
    /// Whether its outcome on an Orin's board is only reported, because no board has shown what is right.
    pub observed: bool,
    /// Whether the test may leave the GPU of an Orin's board unusable until it is rebooted.
    pub dangerous: bool,
}

impl Test {
    /// A test with the limit [`DEFAULT_LIMIT`], its own device and no expected error.
    pub const fn new(name: &'static str, about: &'static str, run: fn(&Context) -> Outcome) -> Self {
        Self {
            name,
            about,
            run,
            limit: DEFAULT_LIMIT,
            expects: None,
            allows: &[],
            shared: false,
            timed: false,
            observed: false,
            dangerous: false,
        }
    }

    /// The same with another limit.
    pub const fn limited_to(self, limit: Duration) -> Self {
        Self { limit, ..self }
    }

    /// The same, expecting events of this kind: the log must contain at least one, and no error of another
    /// kind.
    pub const fn expecting(self, kind: Kind) -> Self {
        Self { expects: Some(kind), ..self }
    }

    /// The same, allowing events of these kinds as well.
    pub const fn allowing(self, kinds: &'static [Kind]) -> Self {
        Self { allows: kinds, ..self }
    }

    /// The same, on the device shared by the suite's sharing tests.
    pub const fn sharing_device(self) -> Self {
        Self { shared: true, ..self }
    }

    /// The same, running for [`Context::load_time`].
    pub const fn for_a_time(self) -> Self {
        Self { timed: true, ..self }
    }

    /// The same, only observed on an Orin's board: a failure is reported there as skipped, with what was seen.
    pub const fn observed_on_a_board(self) -> Self {
        Self { observed: true, ..self }
    }

    /// The same, run on an Orin's board only on request ([`Machine::with_dangerous`]).
    pub const fn dangerous_on_a_board(self) -> Self {
        Self { dangerous: true, ..self }
    }
}

/// Outcome of a test.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The property holds.
    Passed,
    /// The test could not run; contains the reason.
    Skipped(String),
    /// The property does not hold; contains the observation.
    Failed(String),
}

/// Return type of a test's function; `?` works on any error, which is a failure.
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

/// An error with its causes. A cause whose text is already included is omitted.
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

/// The error with which a [`Check`] skips the test; contains the reason.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Skip(pub String);
