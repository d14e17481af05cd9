//! Sync-files: descriptors for the fences of `/dev/host1x-fence` (family `>`).
//!
//! A sync-file polls readable when its fence has signalled, with success or with an error;
//! [`FILE_INFO`] returns the result. Layout: Linux `include/uapi/linux/sync_file.h`.

use kernel_door::{DoorFd, Errno, requests, uapi_struct};

/// Family letter of the requests.
pub const FAMILY: u8 = b'>';

requests! {
    unsafe family FAMILY;
    /// Creates a sync-file of the fences of two.
    ReadWrite 3 MERGE ("SYNC_IOC_MERGE"): Merge;
    /// State of a sync-file and of the fences in it.
    ReadWrite 4 FILE_INFO ("SYNC_IOC_FILE_INFO"): FileInfo;
}

uapi_struct! {
    /// Argument of [`MERGE`], which is sent to the first file.
    unsafe plain Merge = "sync_merge_data", 48 bytes {
        /// Name of the new file, zero-padded.
        0 => name: [u8; 32];
        /// The second file.
        32 => fd2: i32;
        /// Out: the new file.
        36 => fence: i32;
        /// Must be 0.
        40 => flags: u32;
        /// Must be 0.
        44 => pad: u32;
    }

    /// Argument of [`FILE_INFO`].
    pointing(sync_fence_info) FileInfo = "sync_file_info", 56 bytes {
        /// Out: name, zero-padded.
        0 => name: [u8; 32];
        /// Out: 1 signalled, 0 active, a negative errno after an error.
        32 => status: i32;
        /// Must be 0.
        36 => flags: u32;
        /// In: number of elements at the address, or 0. Out: number of fences.
        40 => num_fences: u32;
        /// Must be 0.
        44 => pad: u32;
        /// Array of per-fence records, or 0.
        48 => sync_fence_info: u64;
    }
}

/// Returns the state of a sync-file: `None` while it is active, otherwise success or its error.
///
/// # Errors
///
/// The kernel's errno; `ENOTTY` if the descriptor is not a sync-file.
pub fn status(fd: &DoorFd) -> Result<Option<Result<(), Errno>>, Errno> {
    let mut argument = FileInfo::default();
    // SAFETY: no array is passed, so the request accesses its argument only.
    unsafe { FILE_INFO.send_pointing(fd, &mut argument) }?;
    Ok(match argument.status {
        0 => None,
        1.. => Some(Ok(())),
        error => Some(Err(Errno::from_raw_os_error(error.saturating_neg()))),
    })
}

/// Creates a sync-file that signals when both have.
///
/// # Errors
///
/// `ENOTTY` if `first` is not a sync-file, `ENOENT` if `second` is not, `EMFILE`.
pub fn merge(first: &DoorFd, second: &DoorFd) -> Result<DoorFd, Errno> {
    let mut argument = Merge { fd2: second.raw(), fence: -1, ..Merge::default() };
    MERGE.send(first, &mut argument)?;
    // SAFETY: the request has returned a new descriptor.
    Ok(unsafe { DoorFd::from_raw(first.door(), argument.fence) })
}
