//! Remedies for a node that does not open; [`kernel_door::cure`] has those of every call.

use kernel_door::Errno;
use kernel_door::cure::of_call;

/// Remedy for a node without permission: L4T's udev rules give the nodes to this group.
pub const JOIN_GROUP: &str = "add yourself to group video (sudo usermod -aG video $USER) and log in again";

/// Remedy for a request that the kernel does not know in this size (`ENOTTY`): its release has another form of it.
pub const UNKNOWN_REQUEST: &str = "this kernel has no known form of the request: run `orin doctor`, which names the \
                                   release and what is known of it";

/// Returns the remedy for a node that does not open. `absent` explains a missing node or device.
pub fn of_open(errno: Errno, absent: &'static str) -> Option<&'static str> {
    match errno {
        Errno::ACCESS | Errno::PERM => Some(JOIN_GROUP),
        Errno::NOENT | Errno::NXIO | Errno::NODEV => Some(absent),
        _ => of_call(errno),
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
        assert_eq!(of_open(Errno::MFILE, "absent"), of_call(Errno::MFILE));
    }
}
