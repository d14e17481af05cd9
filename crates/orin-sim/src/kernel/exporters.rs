//! Exporters of dma-bufs other than nvmap: the nodes `/dev/udmabuf` and `/dev/dma_heap/system`, and the files of the
//! program that [`Foreign`](super::foreign::Foreign) accepts.

use std::os::fd::{BorrowedFd, OwnedFd, RawFd};
use std::sync::Arc;

use nvgpu_sys::dma_heap::{self, AllocationData};
use nvgpu_sys::udmabuf::{self, Create, CreateItem, CreateList};
use rustix::fs::OFlags;
use rustix::io::Errno;

use super::Kernel;
use super::argument::{Argument, Code};
use super::foreign::is_sealed;
use super::nvmap::{Buffer, Handle, export};
use super::process::fds::{Fds, Object};
use super::process::task::Task;
use crate::memory::{Memory, Part, inode_of};

/// Page of the CPU in bytes.
const PAGE: u64 = 4096;
/// Limits of udmabuf, the defaults of its module parameters: size in bytes, and number of ranges.
const UDMABUF_BYTES: u64 = 64 << 20;
const UDMABUF_RANGES: u32 = 1024;
/// The flags of a descriptor that a heap accepts: an access mode, and to close it on exec.
const HEAP_FD_FLAGS: u32 = dma_heap::CLOEXEC | 3;

impl Fds {
    /// The dma-buf of another exporter behind a number that is not in the table.
    pub(super) fn foreign(&self, task: &Task<'_>, fd: RawFd) -> Option<Buffer> {
        if let Some(caller) = task.caller {
            let found = caller.file(fd).ok()?;
            let known = self.exporters.get((found.device, found.inode));
            let handle = known.or_else(|| self.exporters.of_file(caller.open(fd).ok()?))?;
            return Some(Buffer { handle, read_only: !caller.is_writable(fd) });
        }
        if fd < 0 || self.is_of_another(task, fd) {
            return None;
        }
        // SAFETY: the borrow ends with this function, whose calls fail if the number is not open.
        let file = unsafe { BorrowedFd::borrow_raw(fd) };
        let read_only = !rustix::fs::fcntl_getfl(file).ok()?.intersects(OFlags::RDWR | OFlags::WRONLY);
        let inode = inode_of(file)?;
        let handle = match self.of_inode(inode) {
            // Arrived without the door, from another process of this board.
            Some(Object::DmaBuf(buffer)) => Arc::clone(&buffer.handle),
            Some(_) => return None,
            None => {
                let known = self.exporters.get(inode);
                known.or_else(|| self.exporters.of_file(rustix::io::fcntl_dupfd_cloexec(file, 0).ok()?))?
            }
        };
        Some(Buffer { handle, read_only })
    }
}

/// The file behind a number of the task.
fn file_of(task: &Task<'_>, fd: RawFd) -> Result<OwnedFd, Errno> {
    match task.caller {
        Some(caller) => caller.open(fd),
        None if fd < 0 => Err(Errno::BADF),
        // SAFETY: the borrow ends with the call, which fails if the number is not open.
        None => rustix::io::fcntl_dupfd_cloexec(unsafe { BorrowedFd::borrow_raw(fd) }, 0),
    }
}

impl Kernel {
    /// The requests of `/dev/udmabuf` (`drivers/dma-buf/udmabuf.c`). The result is a descriptor.
    pub(super) fn udmabuf_ioctl(&self, task: &Task<'_>, code: Code, address: u64) -> Result<i32, Errno> {
        let argument = Argument::copy_in(task, code, address);
        let (flags, items) = match code.code {
            udmabuf::code::CREATE => {
                let Create { memfd, flags, offset, size } = argument?.peek();
                (flags, vec![CreateItem { memfd, pad: 0, offset, size }])
            }
            udmabuf::CREATE_LIST => {
                let CreateList { flags, count } = argument?.peek();
                if count > UDMABUF_RANGES {
                    return Err(Errno::INVAL);
                }
                let place = |at: u32| {
                    let before = size_of::<CreateList>() + at as usize * size_of::<CreateItem>();
                    // CAST: at most 24 KiB.
                    address.wrapping_add(before as u64)
                };
                (flags, (0..count).map(|at| task.read(place(at))).collect::<Result<_, _>>()?)
            }
            _ => return Err(Errno::NOTTY),
        };
        let handle = self.udmabuf(task, &items)?;
        self.export(task, Buffer { handle, read_only: false }, flags & udmabuf::CLOEXEC != 0)
    }

    /// A dma-buf of these ranges.
    fn udmabuf(&self, task: &Task<'_>, items: &[CreateItem]) -> Result<Arc<Handle>, Errno> {
        let mut total = 0_u64;
        for item in items {
            if !item.offset.is_multiple_of(PAGE) || !item.size.is_multiple_of(PAGE) {
                return Err(Errno::INVAL);
            }
            total = total.saturating_add(item.size);
        }
        if total == 0 || total > UDMABUF_BYTES {
            return Err(Errno::INVAL);
        }
        let mut parts = Vec::new();
        for item in items {
            // Also for a number that is not open.
            let file = file_of(task, item.memfd.cast_signed()).map_err(|_| Errno::BADFD)?;
            if !is_sealed(&file).map_err(|_| Errno::BADFD)? {
                return Err(Errno::INVAL);
            }
            let len = u64::try_from(rustix::fs::fstat(&file)?.st_size).map_err(|_| Errno::INVAL)?;
            if item.offset.checked_add(item.size).is_none_or(|end| end > len) {
                return Err(Errno::INVAL);
            }
            if items.len() == 1 && item.size == len {
                return self.state.lock().fds.exporters.of_file(file).ok_or(Errno::NOMEM);
            }
            let size = usize::try_from(item.size).map_err(|_| Errno::NOMEM)?;
            parts.push(Part::new(Arc::new(file), item.offset, size));
        }
        let memory = Memory::join(parts)?.labelled("udmabuf");
        Ok(Arc::new(Handle::of_parts(Arc::new(memory))))
    }

    /// The request of `/dev/dma_heap/system` (`drivers/dma-buf/dma-heap.c`), which is selected by its number alone.
    pub(super) fn dma_heap_ioctl(&self, task: &Task<'_>, code: Code, address: u64) -> Result<i32, Errno> {
        if code.number != 0 {
            return Err(Errno::INVAL);
        }
        let whole = Code::new(dma_heap::code::ALLOC);
        if code.bytes < whole.bytes {
            return Err(Errno::NOTTY);
        }
        let mut argument = Argument::copy_in(task, whole, address)?;
        let mut number = -1;
        argument.call(|args: &mut AllocationData| {
            if args.fd != 0 || args.fd_flags & !HEAP_FD_FLAGS != 0 || args.heap_flags != 0 {
                return Err(Errno::INVAL);
            }
            let len = args.len.checked_next_multiple_of(PAGE).filter(|len| *len > 0).ok_or(Errno::INVAL)?;
            if len > self.config.memory_bytes {
                return Err(Errno::NOMEM);
            }
            let file = Memory::file("dma_heap", len)?;
            let handle = self.state.lock().fds.exporters.of_file(file).ok_or(Errno::NOMEM)?;
            let read_only = args.fd_flags & 3 == 0;
            let buffer = Buffer { handle, read_only };
            number = self.export(task, buffer, args.fd_flags & dma_heap::CLOEXEC != 0)?;
            args.fd = number.cast_unsigned();
            Ok(())
        })?;
        if argument.copy_out() == 0 {
            return Ok(0);
        }
        self.state.lock().fds.remove(task, number);
        Err(Errno::FAULT)
    }

    /// Installs a descriptor of a dma-buf that nvmap did not export.
    fn export(&self, task: &Task<'_>, buffer: Buffer, on_exec: bool) -> Result<RawFd, Errno> {
        let descriptor = export(task, &buffer)?;
        self.state.lock().fds.insert_with(task, descriptor, Object::DmaBuf(buffer), on_exec)
    }
}
