//! Remedies for an errno: the end of an error message.
//!
//! The crates above add remedies for the object of the call. Every text is a clause without a capital letter and
//! without a full stop, so it can follow a semicolon.

use core::fmt;

use crate::Errno;

/// Remedy for a node without permission: L4T's udev rules give the nodes to this group.
pub const JOIN_GROUP: &str = "add yourself to group video (sudo usermod -aG video $USER) and log in again";

/// Returns the remedy for an errno that has the same meaning for every call: the two limits on open
/// descriptors.
pub fn of_call(errno: Errno) -> Option<&'static str> {
    match errno {
        Errno::MFILE => Some("too many open descriptors: raise the limit with ulimit -n"),
        Errno::NFILE => {
            Some("too many open descriptors in the whole system: close some, or raise fs.file-max")
        }
        _ => None,
    }
}

/// Returns the remedy for a node that does not open. `absent` explains a missing node or device.
pub fn of_open(errno: Errno, absent: &'static str) -> Option<&'static str> {
    match errno {
        Errno::ACCESS | Errno::PERM => Some(JOIN_GROUP),
        Errno::NOENT | Errno::NXIO | Errno::NODEV => Some(absent),
        _ => of_call(errno),
    }
}

/// The end of a message: a semicolon and the remedy, or nothing.
///
/// ```
/// use nvgpu_sys::cure::Tail;
///
/// let error = format!("open failed{}", Tail(Some("log in again")));
/// assert!(error.contains("log in again"));
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
    fn an_open_has_cures_that_other_calls_do_not_have() {
        assert_eq!(of_open(Errno::PERM, "absent"), Some(JOIN_GROUP));
        assert_eq!(of_open(Errno::NXIO, "absent"), Some("absent"));
        assert_eq!(of_open(Errno::IO, "absent"), None);
        assert_eq!((of_call(Errno::PERM), of_call(Errno::NODEV)), (None, None));
    }

    #[test]
    fn the_limit_of_the_process_is_not_that_of_the_system() {
        for (errno, word) in [(Errno::MFILE, "ulimit"), (Errno::NFILE, "fs.file-max")] {
            assert!(of_call(errno).unwrap().contains(word));
            assert_eq!(of_open(errno, "absent"), of_call(errno));
        }
    }

    #[test]
    fn a_tail_is_empty_without_a_cure() {
        assert_eq!(format!("failed{}", Tail(None)), "failed");
        assert_eq!(format!("failed{}", Tail(Some("wait"))), "failed; wait");
    }
}
