//! Standard output whose errors are returned and recognised.

use std::error::Error;
use std::fmt;
use std::io::{self, StdoutLock, Write};

use anstream::AutoStream;

/// Standard output with colours, which are removed if it is not a terminal. Each complete line is written at once.
pub type Stdout = Marked<AutoStream<StdoutLock<'static>>>;

/// Standard output that passes every byte on.
pub type Plain = Marked<StdoutLock<'static>>;

/// The error of a write to standard output.
///
/// ```
/// use std::io;
/// use orin_cli::{StdoutError, is_closed_pipe};
///
/// let is_of_stdout =
///     |error: &io::Error| error.get_ref().is_some_and(|inner| inner.is::<StdoutError>());
/// // The error of another file is not quiet, even if its reader is gone.
/// let other = io::Error::from(io::ErrorKind::BrokenPipe);
/// assert!(!is_of_stdout(&other) && !is_closed_pipe(&other.into()));
/// ```
#[derive(Debug)]
pub struct StdoutError(io::Error);

impl fmt::Display for StdoutError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "writing to standard output: {}", self.0)
    }
}

impl Error for StdoutError {}

/// A writer whose errors contain a [`StdoutError`].
#[derive(Debug)]
pub struct Marked<W>(W);

/// Locks standard output.
pub fn stdout() -> Stdout {
    Marked(anstream::stdout().lock())
}

/// Locks standard output, for bytes that are not text for people.
pub fn plain_stdout() -> Plain {
    Marked(io::stdout().lock())
}

/// Marks an error as one of standard output.
fn mark(error: io::Error) -> io::Error {
    io::Error::new(error.kind(), StdoutError(error))
}

impl<W: Write> Write for Marked<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // The standard library's helpers retry this kind, so it must stay what it is.
        self.0
            .write(bytes)
            .map_err(|error| if error.kind() == io::ErrorKind::Interrupted { error } else { mark(error) })
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush().map_err(mark)
    }

    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.0.write_all(bytes).map_err(mark)
    }
}

/// Prints a line to standard output as `println!` does, and returns an [`std::io::Result`].
#[macro_export]
macro_rules! say {
    ($($argument:tt)*) => {
        $crate::line(format_args!($($argument)*))
    };
}

/// Prints a line to standard output; [`say!`] formats it.
///
/// # Errors
///
/// Returns an error if standard output cannot be written.
pub fn line(text: fmt::Arguments<'_>) -> io::Result<()> {
    let mut out = stdout();
    writeln!(out, "{text}")?;
    out.flush()
}

/// Passes a result on, but turns a closed pipe into success: for commands whose exit code has a meaning even if the
/// output is not read to its end.
///
/// # Errors
///
/// Returns every other error.
pub fn unless_closed(printed: anyhow::Result<()>) -> anyhow::Result<()> {
    printed.or_else(|error| if is_closed_pipe(&error) { Ok(()) } else { Err(error) })
}

/// Whether an error says that the reader of standard output has closed the pipe, as `head` does.
pub fn is_closed_pipe(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| cause.downcast_ref::<io::Error>().is_some_and(is_closed))
}

fn is_closed(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::BrokenPipe
        && error.get_ref().is_some_and(|inner| inner.is::<StdoutError>())
}

#[cfg(test)]
mod tests {
    use anyhow::Context;

    use super::*;

    struct Broken(io::ErrorKind);

    impl Write for Broken {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(self.0.into())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn only_a_closed_pipe_of_standard_output_is_quiet() {
        let error = |kind| writeln!(Marked(Broken(kind)), "x").context("printing").unwrap_err();
        assert!(is_closed_pipe(&error(io::ErrorKind::BrokenPipe)));
        assert!(!is_closed_pipe(&error(io::ErrorKind::StorageFull)));
        let text = format!("{:#}", error(io::ErrorKind::StorageFull));
        assert_eq!(text, "printing: writing to standard output: no storage space");
        let other = anyhow::Error::new(io::Error::from(io::ErrorKind::BrokenPipe));
        assert!(!is_closed_pipe(&other), "another pipe's reader is gone");
    }
}
