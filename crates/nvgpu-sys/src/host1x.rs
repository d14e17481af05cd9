//! CPU waits on syncpoints: `/dev/host1x-fence` (family `X`).
//!
//! A poll descriptor is armed for one syncpoint threshold and becomes readable when the syncpoint
//! reaches it. Layouts: `nvidia-oot/drivers/gpu/host1x-fence/include/uapi/linux/host1x-fence.h`.

use kernel_door::{DoorFd, Errno, requests, uapi_struct};

/// Family letter of the requests.
pub const FAMILY: u8 = b'X';

requests! {
    unsafe family FAMILY;
    /// Creates a sync-file for a threshold.
    ReadWrite 2 CREATE_FENCE ("HOST1X_IOCTL_CREATE_FENCE"): CreateFence;
    /// Lists the thresholds inside a sync-file.
    ReadWrite 5 FENCE_EXTRACT ("HOST1X_IOCTL_FENCE_EXTRACT"): FenceExtract;
    /// Creates a descriptor to poll.
    ReadWrite 16 CREATE_POLLFD ("HOST1X_IOCTL_CREATE_POLLFD"): CreatePollfd;
    /// Arms such a descriptor.
    ReadWrite 17 TRIGGER_POLLFD ("HOST1X_IOCTL_TRIGGER_POLLFD"): TriggerPollfd;
}

uapi_struct! {
    /// Argument of [`CREATE_FENCE`].
    unsafe plain CreateFence = "host1x_create_fence", 16 bytes {
        /// Syncpoint.
        0 => id: u32;
        /// Value it must reach.
        4 => threshold: u32;
        /// Out: the sync-file.
        8 => fence_fd: i32;
        /// Must be 0.
        12 => reserved: [u32; 1];
    }

    /// One threshold of a sync-file.
    unsafe plain FenceExtractFence = "host1x_fence_extract_fence", 8 bytes {
        /// Syncpoint.
        0 => id: u32;
        /// Value it must reach.
        4 => threshold: u32;
    }

    /// Argument of [`FENCE_EXTRACT`].
    pointing(fences_ptr) FenceExtract = "host1x_fence_extract", 24 bytes {
        /// The sync-file.
        0 => fence_fd: i32;
        /// In: capacity of the array. Out: number of elements.
        4 => num_fences: u32;
        /// Array of [`FenceExtractFence`].
        8 => fences_ptr: u64;
        /// Must be 0.
        16 => reserved: [u32; 2];
    }

    /// Result of [`CREATE_POLLFD`].
    unsafe plain CreatePollfd = "host1x_create_pollfd", 8 bytes {
        /// Out: the descriptor.
        0 => fd: i32;
        /// Must be 0.
        4 => reserved: u32;
    }

    /// Argument of [`TRIGGER_POLLFD`].
    unsafe plain TriggerPollfd = "host1x_trigger_pollfd", 16 bytes {
        /// Descriptor of [`CREATE_POLLFD`].
        0 => fd: i32;
        /// Syncpoint.
        4 => id: u32;
        /// Value it must reach.
        8 => threshold: u32;
        /// Must be 0.
        12 => reserved: u32;
    }
}

/// Writes the thresholds inside the sync-file `fence` to `thresholds` and returns their number, which
/// may exceed the length of `thresholds`. The kernel may omit fences that have signalled.
///
/// # Errors
///
/// `EINVAL` if `fence` is not a sync-file, or contains an active fence of another driver.
pub fn fence_extract(
    node: &DoorFd,
    fence: &DoorFd,
    thresholds: &mut [FenceExtractFence],
) -> Result<usize, Errno> {
    let mut argument = FenceExtract {
        fence_fd: fence.raw(),
        num_fences: u32::try_from(thresholds.len()).map_err(|_| Errno::OVERFLOW)?,
        // CAST: an address has at most 64 bits.
        fences_ptr: thresholds.as_mut_ptr().expose_provenance() as u64,
        ..FenceExtract::default()
    };
    // SAFETY: the address is the exclusively borrowed `thresholds`, `num_fences` long.
    unsafe { FENCE_EXTRACT.send_pointing(node, &mut argument) }?;
    // CAST: a u32 fits a usize on every supported target.
    Ok(argument.num_fences as usize)
}
