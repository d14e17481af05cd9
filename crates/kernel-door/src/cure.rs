//! Remedies for an errno: the end of an error message.
//!
//! The crates above add remedies for the object of the call. Every text is a clause without a capital letter and
//! without a full stop, so it can follow a semicolon.

use core::fmt;
use std::sync::OnceLock;

use crate::Errno;

/// The error of every call of a software kernel that has panicked. Linux returns it only for robust mutexes.
pub const PANICKED: Errno = Errno::NOTRECOVERABLE;

/// The remedy for [`PANICKED`].
static PANIC: OnceLock<String> = OnceLock::new();

/// Sets the remedy for [`PANICKED`], once per process: the text of the panic, and where to report it. A software kernel
/// calls this before it returns the error.
pub fn set_panic(text: String) {
    // Of several panics, the first is the cause.
    let _ = PANIC.set(text);
}

/// Returns the remedy for an errno that has the same meaning for every call: the two limits on open
/// descriptors, and the panic of a software kernel.
pub fn of_call(errno: Errno) -> Option<&'static str> {
    match errno {
        PANICKED => PANIC.get().map(String::as_str),
        Errno::MFILE => Some("too many open descriptors: raise the limit with ulimit -n"),
        Errno::NFILE => {
            Some("too many open descriptors in the whole system: close some, or raise fs.file-max")
        }
        _ => None,
    }
}

/// The end of a message: a semicolon and the remedy, or nothing.
///
/// ```
/// use kernel_door::cure::Tail;
///
/// assert_eq!(format!("open failed{}", Tail(Some("log in again"))), "open failed; log in again");
/// assert_eq!(format!("open failed{}", Tail(None)), "open failed");
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Tail(pub Option<&'static str>);

impl fmt::Display for Tail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(cure) => write!(f, "; {cure}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_of_the_process_is_not_that_of_the_system() {
        for (errno, word) in [(Errno::MFILE, "ulimit"), (Errno::NFILE, "fs.file-max")] {
            assert!(of_call(errno).unwrap().contains(word));
        }
        assert_eq!((of_call(Errno::PERM), of_call(Errno::NODEV)), (None, None));
    }
}
