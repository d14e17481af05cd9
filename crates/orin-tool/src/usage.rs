//! Errors with their own exit code.

use std::fmt;
use std::io;

/// A command cannot do what its arguments ask for: exit code 2, like an invalid option. The text has the reason and
/// the cure.
#[derive(Debug)]
pub struct UsageError(pub String);

impl fmt::Display for UsageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for UsageError {}

/// Whether the output failed because its reader has closed the pipe, as `head` does.
pub fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let io = error.downcast_ref::<io::Error>();
    io.is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}
