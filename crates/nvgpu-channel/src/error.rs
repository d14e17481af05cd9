//! Errors of the driver interface, with remedies.

use gpu_hal::Shortage;
use kernel_door::Errno;
use kernel_door::cure::{self, Tail};
use nvgpu_sys::cure::{UNKNOWN_REQUEST, of_open};
use nvgpu_sys::{Release, address_space, channel, ctrl, paths, sync_file, tsg};

use crate::fault::Fault;
use crate::va::GpuVa;

/// Path of the control node, for messages.
pub(crate) const NODE: &str = paths::text(paths::CTRL);

/// A failed call, or an unsupported GPU.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The control node could not be opened.
    #[error("cannot open {path}: {errno}{}", Tail(of_open(*errno, ABSENT)))]
    Open {
        /// Path of the node.
        path: &'static str,
        /// The kernel's errno.
        errno: Errno,
    },
    /// A request failed.
    #[error("{call} on {object} failed: {errno}{}", Tail(call_cure(call, *errno)))]
    Call {
        /// The request, as the kernel's headers name it, or the system call.
        call: &'static str,
        /// The object of the call.
        object: String,
        /// The kernel's errno.
        errno: Errno,
    },
    /// Memory for the channel itself could not be allocated.
    #[error(transparent)]
    Memory(#[from] nvmap::Error),
    /// The driver's characteristics have a layout that this crate does not know.
    #[error(
        "the GPU driver reports characteristics of {bytes} bytes, as {} does, but flags and classes are not where any \
         known release has them; /etc/nv_tegra_release names the release, `orin bring-up` records the bytes",
        release.map_or("no known release", Release::name)
    )]
    UnknownLayout {
        /// Size of the kernel's struct in bytes.
        bytes: u64,
        /// Oldest known release with a struct of this size.
        release: Option<Release>,
    },
    /// The GPU has another engine class than an Orin.
    #[error(
        "this GPU's {engine} class is {found:#06x}, an Orin's is {known:#06x}: the chip is not an Orin, or newer than \
         this crate"
    )]
    UnknownClass {
        /// The engine.
        engine: &'static str,
        /// Class number that the driver reports.
        found: u32,
        /// Class number of an Orin.
        known: u32,
    },
    /// The driver lacks features that every launch needs.
    #[error(
        "the GPU driver lacks {missing}: it is too old, or runs in a reduced profile; L4T r36 has all of it"
    )]
    MissingFeature {
        /// Names of the missing feature flags.
        missing: String,
    },
    /// The driver lacks a required request.
    #[error(
        "the GPU driver's {node} requests end at number {last}, but {request} is number {needed}: the driver is too \
         old; L4T r36 has it"
    )]
    DriverTooOld {
        /// Kind of descriptor.
        node: &'static str,
        /// The required request.
        request: &'static str,
        /// Its number.
        needed: i16,
        /// Highest request number of the driver.
        last: i16,
    },
    /// GPU virtual addresses are too narrow for the ranges that this crate uses.
    #[error("the GPU driver supports {bits}-bit GPU addresses; 40 bits are needed")]
    NarrowAddresses {
        /// Bits of a GPU virtual address.
        bits: u8,
    },
    /// The number of ring entries is invalid.
    #[error("a GPFIFO ring cannot have {entries} entries: the number must be a power of two from 2 to {max}")]
    RingSize {
        /// Requested number of entries.
        entries: u32,
        /// Maximum number of entries of this GPU.
        max: u32,
    },
    /// A size, address or time is outside its range, or not a multiple of the GPU page size.
    #[error("{what} {value:#x} does not fit: {rule}")]
    Range {
        /// Name of the value.
        what: &'static str,
        /// The value.
        value: u64,
        /// Requirement.
        rule: &'static str,
    },
    /// The kernel mapped a buffer at another address than requested.
    #[error("the kernel placed a mapping at {got} instead of {wanted}")]
    Misplaced {
        /// Requested address.
        wanted: GpuVa,
        /// Address returned.
        got: GpuVa,
    },
    /// The addresses overlap an existing mapping.
    #[error("{len} bytes at {va} overlap a mapping of the same reservation: unmap that first")]
    Overlap {
        /// First requested address.
        va: GpuVa,
        /// Length in bytes.
        len: u64,
    },
    /// A file of the system could not be read or written.
    #[error("cannot {action} {}: {reason}{}", path.display(), Tail(file_cure(*kind)))]
    File {
        /// The operation: `read` or `write`.
        action: &'static str,
        /// The file.
        path: std::path::PathBuf,
        /// Kind of the system's error.
        kind: std::io::ErrorKind,
        /// The system's error.
        reason: String,
    },
    /// The descriptor to wait for is no sync-file.
    #[error("the descriptor is no sync-file, so no fence to wait for")]
    NotASyncFile,
    /// An active fence of the sync-file is of another driver than host1x, so no syncpoint stands for it.
    #[error(
        "the sync-file has a fence of another driver than host1x, which the GPU cannot wait for: wait on the CPU, with \
         poll, before the submission"
    )]
    ForeignFence,
    /// The fence to wait for has signalled an error: the work before it has failed or was cancelled.
    #[error("the work behind the sync-file has failed: {0}")]
    FailedFence(Errno),
    /// The kernel took the channel out of service.
    #[error("the channel was taken out of service: {0}")]
    Fault(#[from] Fault),
    /// The ring has no free entry.
    #[error(transparent)]
    RingFull(#[from] gpu_hal::RingFull),
}

impl Error {
    /// The kernel's errno, if a call failed.
    pub fn errno(&self) -> Option<Errno> {
        match self {
            Self::Open { errno, .. } | Self::Call { errno, .. } => Some(*errno),
            Self::Memory(error) => error.errno(),
            Self::FailedFence(errno) => Some(*errno),
            _ => None,
        }
    }
}

/// Requests whose `ENOMEM` means that no range of addresses is free (`ioctl_as.c`).
const ADDRESSED: [&str; 2] = [address_space::ALLOC_SPACE.name(), address_space::MAP_BUFFER_EX.name()];

impl From<Error> for gpu_hal::Error {
    fn from(error: Error) -> Self {
        if error.errno() != Some(Errno::NOMEM) {
            return Self::driver(error);
        }
        let needs_addresses = matches!(&error, Error::Call { call, .. } if ADDRESSED.contains(call));
        Self::out_of_memory(error, needs_addresses.then_some(Shortage::Addresses))
    }
}

/// Creates the error of a failed request; for `map_err`.
pub(crate) fn call(call: &'static str, object: impl Into<String>) -> impl FnOnce(Errno) -> Error {
    move |errno| Error::Call { call, object: object.into(), errno }
}

/// The meaning of a missing control node.
const ABSENT: &str =
    "there is no nvgpu: this is not a Jetson Orin with L4T r34 or later, or its nvgpu module is not loaded";

/// Remedies for a file that cannot be read or written.
fn file_cure(kind: std::io::ErrorKind) -> Option<&'static str> {
    match kind {
        std::io::ErrorKind::PermissionDenied => Some("run as root"),
        std::io::ErrorKind::NotFound => Some("this is not a Jetson Orin with L4T r34 or later"),
        _ => None,
    }
}

/// Requests that the driver refuses while another process holds the scheduling control (`sched.c`).
const LOCKABLE: [&str; 3] =
    [tsg::BIND_CHANNEL_EX.name(), tsg::SET_RUNLIST_INTERLEAVE.name(), tsg::SET_TIMESLICE.name()];

/// Remedies for a failed request. `EPERM` and `ETIMEDOUT` mean different things to different requests.
fn call_cure(call: &str, errno: Errno) -> Option<&'static str> {
    let is = |name: &str| call == name;
    Some(match errno {
        Errno::NODEV => "the driver has disabled the GPU after an unrecoverable error: reboot",
        Errno::NOMEM => "free GPU addresses or memory, or request less",
        Errno::NOTTY => UNKNOWN_REQUEST,
        Errno::PERM if LOCKABLE.contains(&call) => {
            "another process holds the GPU's scheduling control (/dev/nvgpu/igpu0/sched)"
        }
        Errno::PERM if is(ctrl::CLK_SET_INFO.name()) => "the process may not change clocks: run as root",
        Errno::PERM if is(channel::RESCHEDULE_RUNLIST.name()) => "the process needs CAP_SYS_NICE",
        Errno::TIMEDOUT if is(tsg::PREEMPT.name()) => {
            "the running work does not yield: wait until it ends, or reset a channel of the TSG"
        }
        Errno::TIMEDOUT if is(channel::SET_PREEMPTION_MODE.name()) => {
            "the running work does not yield, or the channel is out of service"
        }
        Errno::TIMEDOUT if is(sync_file::FILE_INFO.name()) => {
            "the kernel cancels a fence 30 s after the first wait for it: create a new one"
        }
        Errno::TIMEDOUT if call.starts_with("NVGPU_IOCTL_CHANNEL_") => {
            "the channel is out of service: drop it with its TSG and create new ones"
        }
        _ => return cure::of_call(errno),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A healthy channel is not to be dropped, and no other process is to blame.
    #[test]
    fn a_cure_belongs_to_the_request_and_its_errno() {
        let dead = "out of service: drop it";
        let locked = "scheduling control";
        for (call, errno, cure) in [
            (tsg::SET_TIMESLICE.name(), Errno::PERM, locked),
            (tsg::SET_RUNLIST_INTERLEAVE.name(), Errno::PERM, locked),
            (tsg::BIND_CHANNEL_EX.name(), Errno::PERM, locked),
            (ctrl::CLK_SET_INFO.name(), Errno::PERM, "run as root"),
            (channel::RESCHEDULE_RUNLIST.name(), Errno::PERM, "CAP_SYS_NICE"),
            (tsg::PREEMPT.name(), Errno::TIMEDOUT, "does not yield: wait"),
            (channel::SET_PREEMPTION_MODE.name(), Errno::TIMEDOUT, "does not yield, or"),
            (sync_file::FILE_INFO.name(), Errno::TIMEDOUT, "create a new one"),
            (channel::WAIT.name(), Errno::TIMEDOUT, dead),
            (channel::SETUP_BIND.name(), Errno::TIMEDOUT, dead),
            (ctrl::ALLOC_AS.name(), Errno::NODEV, "reboot"),
            (ctrl::ALLOC_AS.name(), Errno::MFILE, "ulimit"),
            (ctrl::GET_CHARACTERISTICS.name(), Errno::NOTTY, "no known form"),
        ] {
            let text = call_cure(call, errno).unwrap();
            assert!(text.contains(cure), "{call} {errno}: {text}");
            assert_eq!(
                (text.contains(dead), text.contains(locked)),
                (cure == dead, cure == locked),
                "{call}"
            );
        }
        for (call, errno) in [
            (ctrl::ALLOC_AS.name(), Errno::PERM),
            (tsg::CREATE_SUBCONTEXT.name(), Errno::TIMEDOUT),
            ("poll", Errno::TIMEDOUT),
        ] {
            assert_eq!(call_cure(call, errno), None, "{call}");
        }
    }
}
