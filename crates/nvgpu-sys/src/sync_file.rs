//! Sync-files: the fences of `/dev/host1x-fence` once they are descriptors (family `>`).
//!
//! A sync-file polls readable when its fence has signalled, be it with success or with an error;
//! only [`FILE_INFO`] tells which. Layout: Linux `include/uapi/linux/sync_file.h`.

use crate::Errno;
use crate::door::DoorFd;
use crate::layout::uapi_struct;
use crate::request::requests;

/// Family letter of the requests.
pub const FAMILY: u8 = b'>';

requests! {
    family FAMILY;
    /// State of a sync-file and of the fences in it.
    ReadWrite 4 FILE_INFO ("SYNC_IOC_FILE_INFO"): FileInfo;
}

uapi_struct! {
    /// Argument of [`FILE_INFO`].
    pointing(sync_fence_info) FileInfo = "sync_file_info", 56 bytes {
        /// Out: name, zero-padded.
        0 => name: [u8; 32];
        /// Out: 1 signalled, 0 active, a negative errno after an error.
        32 => status: i32;
        /// Must be 0.
        36 => flags: u32;
        /// In: elements at the address, 0 for none. Out: fences there are.
        40 => num_fences: u32;
        /// Must be 0.
        44 => pad: u32;
        /// Array of per-fence records, or 0.
        48 => sync_fence_info: u64;
    }
}

/// State of a sync-file: `None` while it is active, else success or the error it ended with.
///
/// # Errors
///
/// The kernel's errno; `ENOTTY` for a descriptor that is no sync-file.
pub fn status(fd: &DoorFd) -> Result<Option<Result<(), Errno>>, Errno> {
    let mut argument = FileInfo::default();
    // SAFETY: no array is given, so the request touches its argument alone.
    unsafe { FILE_INFO.send_pointing(fd, &mut argument) }?;
    Ok(match argument.status {
        0 => None,
        1.. => Some(Ok(())),
        error => Some(Err(Errno::from_raw_os_error(error.saturating_neg()))),
    })
}
