//! Copies from and to the memory of the caller.
//!
//! The kernel survives any address that a request carries: what cannot be accessed is EFAULT. The
//! model does the same by having the host fault the pages in first (`MADV_POPULATE_READ` and
//! `MADV_POPULATE_WRITE`, Linux 5.14), which fails without a signal where an access would trap.

use core::ffi::c_void;
use core::ptr;

use bytemuck::Pod;
use rustix::io::Errno;
use rustix::mm::Advice;

/// Fills `buffer` from `address`.
///
/// # Errors
///
/// EFAULT when not all of it can be read.
pub(super) fn read_bytes(address: u64, buffer: &mut [u8]) -> Result<(), Errno> {
    let mut done = 0;
    while done < buffer.len() {
        let at = address.checked_add(done as u64).ok_or(Errno::FAULT)?;
        let len = accessible(at, buffer.len() - done, Advice::LinuxPopulateRead).ok_or(Errno::FAULT)?;
        // SAFETY: the host has just confirmed that `len` bytes at `at` can be read; they stay mapped
        // for the call because the caller of the request lends them. The target is our own slice.
        unsafe {
            let source = ptr::with_exposed_provenance::<u8>(at as usize);
            ptr::copy_nonoverlapping(source, buffer[done..].as_mut_ptr(), len);
        }
        done += len;
    }
    Ok(())
}

/// Stores `bytes` at `address`; returns how many of them could not be stored.
pub(super) fn write_bytes(address: u64, bytes: &[u8]) -> usize {
    let mut done = 0;
    while done < bytes.len() {
        let step = address.checked_add(done as u64).and_then(|at| {
            accessible(at, bytes.len() - done, Advice::LinuxPopulateWrite).map(|len| (at, len))
        });
        let Some((at, len)) = step else { break };
        // SAFETY: as in `read_bytes`, with the roles exchanged.
        unsafe {
            let target = ptr::with_exposed_provenance_mut::<u8>(at as usize);
            ptr::copy_nonoverlapping(bytes[done..].as_ptr(), target, len);
        }
        done += len;
    }
    bytes.len() - done
}

/// Reads one `T` at `address`.
///
/// # Errors
///
/// EFAULT.
pub(super) fn read<T: Pod>(address: u64) -> Result<T, Errno> {
    let mut value = T::zeroed();
    read_bytes(address, bytemuck::bytes_of_mut(&mut value))?;
    Ok(value)
}

/// How many of `len` bytes at `address`, at most to the end of the page, can be accessed as
/// `advice` says; `None` when none can.
fn accessible(address: u64, len: usize, advice: Advice) -> Option<usize> {
    let page = rustix::param::page_size();
    let address = usize::try_from(address).ok()?;
    let start = address / page * page;
    if start == 0 {
        return None;
    }
    // SAFETY: populating changes no contents and no permissions, whatever is mapped there.
    unsafe { rustix::mm::madvise(ptr::with_exposed_provenance_mut::<c_void>(start), page, advice) }.ok()?;
    Some(len.min(start + page - address))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_memory_is_copied_both_ways() {
        let mut target = vec![0_u8; 20_000];
        let source: Vec<u8> = (0..20_000).map(|i| i as u8).collect();
        assert_eq!(write_bytes(target.as_mut_ptr().expose_provenance() as u64, &source), 0);
        assert_eq!(target, source);
        let mut back = vec![0; 20_000];
        read_bytes(target.as_ptr().expose_provenance() as u64, &mut back).unwrap();
        assert_eq!(back, source);
    }

    #[test]
    fn impossible_addresses_are_refused() {
        for address in [0, 8, 1 << 63, u64::MAX] {
            assert_eq!(read::<u64>(address), Err(Errno::FAULT), "{address:#x}");
            assert_eq!(write_bytes(address, &[0; 8]), 8, "{address:#x}");
        }
    }

    #[test]
    fn read_only_memory_is_not_written() {
        static CONSTANT: [u8; 8] = [7; 8];
        let address = CONSTANT.as_ptr().expose_provenance() as u64;
        assert_eq!(read::<[u8; 8]>(address), Ok([7; 8]));
        assert_eq!(write_bytes(address, &[0; 8]), 8);
    }
}
