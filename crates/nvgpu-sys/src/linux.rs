//! The door of the running Linux kernel, through rustix.

use core::ffi::{CStr, c_void};
use core::ptr::{self, NonNull};
use core::time::Duration;
use std::os::fd::{BorrowedFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fs::{Mode, OFlags, SeekFrom};
use rustix::io::Errno;
use rustix::ioctl::{Ioctl, IoctlOutput, Opcode};
use rustix::mm::{MapFlags, ProtFlags};

use crate::door::{Door, Events, MapRequest, OpenFlags, PollEntry, Protection};

/// Real system calls on the running kernel.
#[derive(Clone, Copy, Debug, Default)]
pub struct LinuxDoor;

/// One request; the caller defines its meaning.
struct Request {
    code: u32,
    argument: *mut c_void,
}

// SAFETY: the opcode and the pointer are passed to the kernel unchanged; the caller of
// `LinuxDoor::ioctl`, which is unsafe, guarantees that they match.
unsafe impl Ioctl for Request {
    type Output = i32;
    const IS_MUTATING: bool = true;

    fn opcode(&self) -> Opcode {
        // CAST: request codes are 32 bits; `Opcode` is the C type of the ioctl argument.
        self.code as Opcode
    }

    fn as_ptr(&mut self) -> *mut c_void {
        self.argument
    }

    unsafe fn output_from_ptr(result: IoctlOutput, _: *mut c_void) -> rustix::io::Result<i32> {
        Ok(result)
    }
}

/// Lends a raw descriptor for one call.
fn borrow<'a>(fd: RawFd) -> Result<BorrowedFd<'a>, Errno> {
    if fd < 0 {
        return Err(Errno::BADF);
    }
    // SAFETY: the number is not -1. If it is not open, the kernel returns EBADF. The borrow ends with
    // the call that it is made for, and no Rust object is accessed through it.
    Ok(unsafe { BorrowedFd::borrow_raw(fd) })
}

// SAFETY: the kernel answers.
unsafe impl Door for LinuxDoor {
    fn name(&self) -> &'static str {
        "Linux"
    }

    fn open(&self, path: &CStr, flags: OpenFlags) -> Result<RawFd, Errno> {
        let mut native = if flags.contains(OpenFlags::READ_WRITE) { OFlags::RDWR } else { OFlags::RDONLY };
        for (flag, bit) in [
            (OpenFlags::CLOSE_ON_EXEC, OFlags::CLOEXEC),
            (OpenFlags::NON_BLOCKING, OFlags::NONBLOCK),
            (OpenFlags::SYNC, OFlags::SYNC),
        ] {
            native.set(bit, flags.contains(flag));
        }
        Ok(rustix::fs::open(path, native, Mode::empty())?.into_raw_fd())
    }

    unsafe fn ioctl(&self, fd: RawFd, request: u32, argument: *mut c_void) -> Result<i32, Errno> {
        // SAFETY: the caller guarantees that the argument matches the request.
        unsafe { rustix::ioctl::ioctl(borrow(fd)?, Request { code: request, argument }) }
    }

    fn mmap(&self, request: &MapRequest) -> Result<NonNull<u8>, Errno> {
        let mut protection = ProtFlags::empty();
        protection.set(ProtFlags::READ, request.protection.contains(Protection::READ));
        protection.set(ProtFlags::WRITE, request.protection.contains(Protection::WRITE));
        // SAFETY: no address is requested, so the kernel picks a free range and no existing
        // mapping of the process is touched.
        let pointer = unsafe {
            rustix::mm::mmap(
                ptr::null_mut(),
                request.len,
                protection,
                MapFlags::SHARED,
                borrow(request.fd)?,
                request.offset,
            )?
        };
        NonNull::new(pointer.cast()).ok_or(Errno::NOMEM)
    }

    unsafe fn munmap(&self, pointer: NonNull<u8>, len: usize) -> Result<(), Errno> {
        // SAFETY: the caller guarantees that the range is one unused mapping of this door.
        unsafe { rustix::mm::munmap(pointer.as_ptr().cast(), len) }
    }

    fn read(&self, fd: RawFd, buffer: &mut [u8]) -> Result<usize, Errno> {
        rustix::io::read(borrow(fd)?, buffer)
    }

    fn seek_end(&self, fd: RawFd) -> Result<(), Errno> {
        rustix::fs::seek(borrow(fd)?, SeekFrom::End(0)).map(drop)
    }

    fn poll(&self, entries: &mut [PollEntry], timeout: Duration) -> Result<usize, Errno> {
        let pairs = [
            (Events::IN, PollFlags::IN),
            (Events::PRIORITY, PollFlags::PRI),
            (Events::ERROR, PollFlags::ERR),
            (Events::HANG_UP, PollFlags::HUP),
            (Events::INVALID, PollFlags::NVAL),
        ];
        let descriptors = entries.iter().map(|entry| borrow(entry.fd)).collect::<Result<Vec<_>, _>>()?;
        let mut native: Vec<PollFd<'_>> = descriptors
            .iter()
            .zip(entries.iter())
            .map(|(fd, entry)| {
                let wanted = pairs.iter().filter(|(ours, _)| entry.wanted.contains(*ours));
                PollFd::new(fd, wanted.map(|(_, theirs)| *theirs).collect())
            })
            .collect();
        let timeout = Timespec::try_from(timeout).map_err(|_| Errno::INVAL)?;
        let count = rustix::event::poll(&mut native, Some(&timeout))?;
        for (entry, result) in entries.iter_mut().zip(&native) {
            let seen = pairs.iter().filter(|(_, theirs)| result.revents().contains(*theirs));
            entry.happened = seen.map(|(ours, _)| *ours).collect();
        }
        Ok(count)
    }

    fn close(&self, fd: RawFd) -> Result<(), Errno> {
        if fd < 0 {
            return Err(Errno::BADF);
        }
        // SAFETY: the number came from this door, and its owner passes ownership with this call;
        // `OwnedFd` closes it.
        drop(unsafe { OwnedFd::from_raw_fd(fd) });
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_absent_node_is_enoent() {
        assert_eq!(LinuxDoor.open(c"/dev/no-such-node", OpenFlags::READ_WRITE), Err(Errno::NOENT));
    }

    #[test]
    fn a_wrong_request_is_enotty() {
        // TCGETS, which /dev/null does not implement.
        const TERMINAL_ATTRIBUTES: u32 = 0x5401;
        let fd = LinuxDoor.open(c"/dev/null", OpenFlags::READ_WRITE).unwrap();
        let mut argument = [0_u64; 32];
        // SAFETY: the request writes a struct of less than 100 bytes at most.
        let result = unsafe { LinuxDoor.ioctl(fd, TERMINAL_ATTRIBUTES, argument.as_mut_ptr().cast()) };
        assert_eq!(result, Err(Errno::NOTTY));
        LinuxDoor.close(fd).unwrap();
    }

    #[test]
    fn negative_descriptors_are_ebadf() {
        assert_eq!(LinuxDoor.close(-1), Err(Errno::BADF));
        assert_eq!(LinuxDoor.read(-1, &mut [0]), Err(Errno::BADF));
    }
}
