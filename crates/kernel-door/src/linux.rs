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

use crate::door::{Door, Events, MapRequest, OpenFlags, Protection};

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
///
/// # Safety
///
/// The caller owns or borrows `fd` for `'a`, or it is negative.
unsafe fn borrow<'a>(fd: RawFd) -> Result<BorrowedFd<'a>, Errno> {
    // SAFETY: passed on; -1 is refused.
    if fd < 0 { Err(Errno::BADF) } else { Ok(unsafe { BorrowedFd::borrow_raw(fd) }) }
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
        // SAFETY: the caller owns the descriptor and guarantees that the argument matches the request.
        unsafe { rustix::ioctl::ioctl(borrow(fd)?, Request { code: request, argument }) }
    }

    unsafe fn mmap(&self, request: &MapRequest) -> Result<NonNull<u8>, Errno> {
        let mut protection = ProtFlags::empty();
        protection.set(ProtFlags::READ, request.protection.contains(Protection::READ));
        protection.set(ProtFlags::WRITE, request.protection.contains(Protection::WRITE));
        let mut flags = MapFlags::SHARED;
        flags.set(MapFlags::FIXED, request.place.is_some());
        // SAFETY: the caller owns the addresses at the place, if there is one; otherwise the kernel picks a free range.
        // No other mapping of the process is touched. The caller owns the descriptor.
        let pointer = unsafe {
            rustix::mm::mmap(
                request.place.map_or(ptr::null_mut(), NonNull::as_ptr).cast(),
                request.len,
                protection,
                flags,
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

    unsafe fn read(&self, fd: RawFd, buffer: &mut [u8]) -> Result<usize, Errno> {
        // SAFETY: the caller owns the descriptor.
        rustix::io::read(unsafe { borrow(fd) }?, buffer)
    }

    unsafe fn seek_end(&self, fd: RawFd) -> Result<u64, Errno> {
        // SAFETY: the caller owns the descriptor.
        rustix::fs::seek(unsafe { borrow(fd) }?, SeekFrom::End(0))
    }

    unsafe fn poll(&self, fd: RawFd, wanted: Events, timeout: Duration) -> Result<Events, Errno> {
        let pairs = [
            (Events::IN, PollFlags::IN),
            (Events::PRIORITY, PollFlags::PRI),
            (Events::ERROR, PollFlags::ERR),
            (Events::HANG_UP, PollFlags::HUP),
            (Events::INVALID, PollFlags::NVAL),
        ];
        let native = pairs.iter().filter(|(ours, _)| wanted.contains(*ours)).map(|(_, theirs)| *theirs);
        // SAFETY: the caller owns the descriptor.
        let fd = unsafe { borrow(fd) }?;
        let mut entries = [PollFd::new(&fd, native.collect())];
        let timeout = Timespec::try_from(timeout).map_err(|_| Errno::INVAL)?;
        rustix::event::poll(&mut entries, Some(&timeout))?;
        let seen = pairs.iter().filter(|(_, theirs)| entries[0].revents().contains(*theirs));
        Ok(seen.map(|(ours, _)| *ours).collect())
    }

    unsafe fn close(&self, fd: RawFd) -> Result<(), Errno> {
        if fd < 0 {
            return Err(Errno::BADF);
        }
        // SAFETY: the caller passes ownership with this call; `OwnedFd` closes the descriptor.
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
        // SAFETY: opened above.
        unsafe { LinuxDoor.close(fd) }.unwrap();
    }

    #[test]
    fn negative_descriptors_are_ebadf() {
        // SAFETY: no descriptor has the number -1.
        let results = unsafe { (LinuxDoor.close(-1), LinuxDoor.read(-1, &mut [0])) };
        assert_eq!(results, (Err(Errno::BADF), Err(Errno::BADF)));
    }
}
