//! What helps when the kernel refuses: the part of an error message that follows from the errno alone.
//!
//! The crates above know what a call was about, and add what helps there. Every text is a clause without a
//! capital or a full stop, to stand behind a semicolon or by itself.

use core::fmt;

use crate::Errno;

/// For a node that the user may not open: L4T's rules give them to this group.
pub const JOIN_GROUP: &str = "add yourself to group video (sudo usermod -aG video $USER) and log in again";

/// What helps against an errno that means the same for every call: the two kinds of "too many open
/// descriptors".
pub fn of_call(errno: Errno) -> Option<&'static str> {
    match errno {
        Errno::MFILE => Some("too many open descriptors: raise the limit with ulimit -n"),
        Errno::NFILE => {
            Some("too many open descriptors in the whole system: end what holds them, or raise fs.file-max")
        }
        _ => None,
    }
}

/// What helps when a node does not open; `absent` is what it means that there is none, or no device behind
/// it.
pub fn of_open(errno: Errno, absent: &'static str) -> Option<&'static str> {
    match errno {
        Errno::ACCESS | Errno::PERM => Some(JOIN_GROUP),
        Errno::NOENT | Errno::NXIO | Errno::NODEV => Some(absent),
        _ => of_call(errno),
    }
}

/// The end of a message: a semicolon and the cure, or nothing.
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
