//! Copies from and to the memory of the process that makes the current request.
//!
//! The kernel survives any address in a request: inaccessible memory is EFAULT.

use rustix::io::Errno;
use zerocopy::{FromBytes, IntoBytes};

use super::process;

/// Fills `buffer` from `address`.
///
/// # Errors
///
/// EFAULT if a part cannot be read.
pub(super) fn read_bytes(address: u64, buffer: &mut [u8]) -> Result<(), Errno> {
    process::with_memory(|memory| memory.read(address, buffer))
}

/// Stores `bytes` at `address`. Returns the number of bytes that could not be stored.
pub(super) fn write_bytes(address: u64, bytes: &[u8]) -> usize {
    process::with_memory(|memory| memory.write(address, bytes))
}

/// Reads one `T` at `address`.
///
/// # Errors
///
/// EFAULT.
pub(super) fn read<T: FromBytes + IntoBytes>(address: u64) -> Result<T, Errno> {
    let mut value = T::new_zeroed();
    read_bytes(address, value.as_mut_bytes())?;
    Ok(value)
}
