//! Exit codes, and errors with their own exit code.

use std::fmt;
use std::io::{self, Write};
use std::process::ExitCode;

use crate::stdout::is_closed_pipe;

/// How a program ended. The numbers are the exit codes of all programs of this project.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ExitStatus {
    /// The command did what was asked, or the reader of its output has closed the pipe.
    Success = 0,
    /// The command failed: a wrong result, an error in the examined input, a GPU fault, a file that cannot be written.
    Failure = 1,
    /// The command line asks for something impossible. Nothing was run or written.
    Usage = 2,
    /// Ctrl-C or SIGTERM ended the command early. The output contains what was done, marked as incomplete.
    Interrupted = 130,
}

impl ExitStatus {
    /// Success, or failure if `failed`.
    pub const fn failed_if(failed: bool) -> Self {
        if failed { Self::Failure } else { Self::Success }
    }
}

impl fmt::Display for ExitStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self {
            Self::Success => "success",
            Self::Failure => "failure",
            Self::Usage => "usage error",
            Self::Interrupted => "interrupted",
        };
        // CAST: the discriminants are exit codes.
        write!(f, "{} {text}", *self as u8)
    }
}

impl From<ExitStatus> for ExitCode {
    fn from(status: ExitStatus) -> Self {
        // CAST: the discriminants are exit codes.
        Self::from(status as u8)
    }
}

/// A command cannot do what its arguments ask for: exit code 2, like an invalid option. The text has the reason and
/// the cure.
///
/// ```
/// use orin_cli::{ExitStatus, UsageError, report};
///
/// let error = UsageError("--count must not be 0; give 1 or more".to_owned());
/// // Prints the text.
/// assert_eq!(report(&error.into()), ExitStatus::Usage.into());
/// ```
#[derive(Debug)]
pub struct UsageError(pub String);

impl fmt::Display for UsageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for UsageError {}

/// Prints an error to standard error and returns its exit code: 2 for a [`UsageError`], else 1. A closed output pipe
/// is not an error: it prints nothing, with exit code 0.
pub fn report(error: &anyhow::Error) -> ExitCode {
    if is_closed_pipe(error) {
        return ExitStatus::Success.into();
    }
    let text = chain(error);
    // EMFILE, of any call in any library. Most errors have the cause in their text and not as their source.
    let is_descriptors = text.contains("(os error 24)") || text.contains("Too many open files");
    let cure = match is_descriptors && !text.contains("ulimit") {
        true => "; raise the limit of open files, for example with ulimit -n 4096",
        false => "",
    };
    warn(format_args!("error: {text}{cure}"));
    if error.is::<UsageError>() { ExitStatus::Usage.into() } else { ExitStatus::Failure.into() }
}

/// An error and its causes, without those that the text before has.
///
/// ```
/// let cause = anyhow::anyhow!("no space left");
/// let error = cause.context("writing a.txt: no space left").context("saving");
/// assert_eq!(orin_cli::chain(&error), "saving: writing a.txt: no space left");
/// ```
pub fn chain(error: &anyhow::Error) -> String {
    let add = |mut text: String, cause: String| {
        if !text.contains(&cause) {
            text = if text.is_empty() { cause } else { format!("{text}: {cause}") };
        }
        text
    };
    error.chain().map(ToString::to_string).fold(String::new(), add)
}

/// Prints a line to standard error. If that is not possible, there is no place to report it.
pub fn warn(text: impl fmt::Display) {
    let _ = writeln!(io::stderr().lock(), "{text}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_has_a_name() {
        use ExitStatus::{Failure, Interrupted, Success, Usage};
        let texts = [Success, Failure, Usage, Interrupted].map(|status| status.to_string());
        assert_eq!(texts, ["0 success", "1 failure", "2 usage error", "130 interrupted"]);
    }
}
