//! Memory of the host process, as the caller of its own requests.
//!
//! The model lets the host's kernel do the copy, through a file in memory: `pwrite` and `pread` with an invalid address
//! return EFAULT instead of raising a signal.

use core::ffi::c_void;
use core::ptr;
use std::os::fd::{AsRawFd, OwnedFd};

use parking_lot::{MappedMutexGuard, Mutex, MutexGuard};
use rustix::fs::MemfdFlags;
use rustix::io::Errno;

use super::CallerMemory;

/// Chunk size of a copy in bytes; the size of the file.
const PIECE: usize = 64 << 10;

/// The memory of the host process.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OwnMemory;

/// The file for all copies of the process, one at a time. A child of fork(2) makes another one: parent and child would
/// overwrite each other's copies.
fn bounce() -> Result<MappedMutexGuard<'static, OwnedFd>, Errno> {
    static FILE: Mutex<Option<(u32, OwnedFd)>> = Mutex::new(None);
    let (mut file, process) = (FILE.lock(), std::process::id());
    if file.as_ref().is_none_or(|(owner, _)| *owner != process) {
        *file = Some((process, rustix::fs::memfd_create("orin-sim-copy", MemfdFlags::CLOEXEC)?));
    }
    MutexGuard::try_map(file, |file| file.as_mut().map(|(_, file)| file)).map_err(|_| Errno::BADF)
}

impl CallerMemory for OwnMemory {
    fn read(&self, address: u64, buffer: &mut [u8]) -> Result<(), Errno> {
        let file = bounce()?;
        let mut done = 0;
        while done < buffer.len() {
            let at = address.checked_add(done as u64).ok_or(Errno::FAULT)?;
            let source =
                ptr::with_exposed_provenance::<c_void>(usize::try_from(at).map_err(|_| Errno::FAULT)?);
            let len = PIECE.min(buffer.len() - done);
            // SAFETY: the kernel reads only what the address allows; a bad address is an error.
            let copied = unsafe { libc::pwrite(file.as_raw_fd(), source, len, 0) };
            let copied = usize::try_from(copied).ok().filter(|copied| *copied > 0).ok_or(Errno::FAULT)?;
            let taken = rustix::io::pread(&*file, &mut buffer[done..done + copied], 0)?;
            done += taken;
        }
        Ok(())
    }

    fn write(&self, address: u64, bytes: &[u8]) -> usize {
        let Ok(file) = bounce() else { return bytes.len() };
        let mut done = 0;
        while done < bytes.len() {
            let len = PIECE.min(bytes.len() - done);
            let at = address.checked_add(done as u64).and_then(|at| usize::try_from(at).ok());
            let (Some(at), Ok(len)) = (at, rustix::io::pwrite(&*file, &bytes[done..done + len], 0)) else {
                break;
            };
            let target = ptr::with_exposed_provenance_mut::<c_void>(at);
            // SAFETY: the caller of the request lends the memory for the duration of the call. Otherwise the kernel
            // refuses the store.
            let stored = unsafe { libc::pread(file.as_raw_fd(), target, len, 0) };
            match usize::try_from(stored) {
                Ok(stored) if stored > 0 => done += stored,
                _ => break,
            }
        }
        bytes.len() - done
    }

    fn is_direct(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_memory_is_copied_both_ways() {
        let mut target = vec![0_u8; 20_000];
        let source: Vec<u8> = (0..20_000).map(|i| i as u8).collect();
        assert_eq!(OwnMemory.write(target.as_mut_ptr().expose_provenance() as u64, &source), 0);
        assert_eq!(target, source);
        let mut back = vec![0; 20_000];
        OwnMemory.read(target.as_ptr().expose_provenance() as u64, &mut back).unwrap();
        assert_eq!(back, source);
    }

    #[test]
    fn impossible_addresses_are_refused() {
        for address in [0, 8, 1 << 63, u64::MAX] {
            assert_eq!(OwnMemory.read(address, &mut [0; 8]), Err(Errno::FAULT), "{address:#x}");
            assert_eq!(OwnMemory.write(address, &[0; 8]), 8, "{address:#x}");
        }
    }

    #[test]
    fn read_only_memory_is_not_written() {
        static CONSTANT: [u8; 8] = [7; 8];
        let address = CONSTANT.as_ptr().expose_provenance() as u64;
        let mut bytes = [0; 8];
        assert_eq!(OwnMemory.read(address, &mut bytes), Ok(()));
        assert_eq!(bytes, [7; 8]);
        assert_eq!(OwnMemory.write(address, &[0; 8]), 8);
    }
}
