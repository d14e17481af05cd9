//! REMAP: maps and unmaps single pages of sparse areas (`os/linux/vm_remap.c`, `common/mm/vm_remap.c`).

use std::os::fd::RawFd;
use std::sync::Arc;

use gpu_log::MemoryLine;
use nvgpu_sys::address_space::{KIND_INVALID, PAGE_SIZE, Remap, RemapFlags, RemapOp};
use rustix::io::Errno;
use zerocopy::IntoBytes;

use crate::mmu::MappedRange;

use super::address_space::{Space, SpaceId};
use super::nvmap::Buffer;
use super::process::task::Task;
use super::{Kernel, State};

/// GPU page in bytes.
const PAGE: u64 = PAGE_SIZE as u64;
/// Maximum number of operations; beyond it the kernel has no memory for a copy.
const OPS_LIMIT: u32 = 1 << 20;

/// The target of an operation.
struct Target {
    buffer: Buffer,
    /// Offset in the buffer, in bytes.
    offset: u64,
    writable: bool,
    cached: bool,
}

/// An operation with valid fields.
struct Checked {
    va: u64,
    len: u64,
    /// Buffer, offset in bytes, whether stores are allowed; `None` unmaps.
    target: Option<Target>,
}

/// The page size of an operation in bytes; `None` unless exactly one is given.
fn page_size(flags: RemapFlags) -> Option<u64> {
    let sizes = RemapFlags::PAGESIZE_4K | RemapFlags::PAGESIZE_64K | RemapFlags::PAGESIZE_128K;
    match flags.intersection(sizes) {
        RemapFlags::PAGESIZE_4K => Some(4 << 10),
        RemapFlags::PAGESIZE_64K => Some(64 << 10),
        RemapFlags::PAGESIZE_128K => Some(128 << 10),
        _ => None,
    }
}

/// Checks an operation by itself, in an address space that ends at `limit`. An operation that unmaps takes only the
/// page-size flag.
fn check_fields(op: &RemapOp, limit: u64) -> Result<(), Errno> {
    let flags = RemapFlags::from_bits(op.flags).ok_or(Errno::INVAL)?;
    let page = page_size(flags).ok_or(Errno::INVAL)?;
    let unmap_of_something = op.mem_handle == 0
        && (op.compr_kind != KIND_INVALID
            || op.incompr_kind != KIND_INVALID
            || op.mem_offset_in_pages != 0
            || flags.intersects(RemapFlags::CACHEABLE | RemapFlags::ACCESS_NO_WRITE));
    let beyond = |pages: u64| pages > limit / page;
    if unmap_of_something
        || op.num_pages == 0
        || [op.num_pages, op.mem_offset_in_pages, op.virt_offset_in_pages].into_iter().any(beyond)
    {
        return Err(Errno::INVAL);
    }
    Ok(())
}

/// Stores the operations again, as the kernel does after success, so the array must be writable. The model stores the
/// values that it read. A board copies the fields of the last operation, except the kinds, into all of them, which is a
/// defect that no caller can rely on.
fn store_operations(task: &Task<'_>, args: &Remap, operations: &[RemapOp]) -> Result<(), u32> {
    for (at, op) in (0_u32..).zip(operations) {
        if task.write_bytes(address_of(args, at), op.as_bytes()) > 0 {
            return Err(at);
        }
    }
    Ok(())
}

fn address_of(args: &Remap, at: u32) -> u64 {
    args.ops.wrapping_add(u64::from(at) * size_of::<RemapOp>() as u64)
}

impl State {
    /// REMAP: checks everything before it changes anything. `num_ops` returns the number of executed operations; it is
    /// unchanged if the operations cannot be read.
    pub(super) fn remap(
        &mut self,
        task: &Task<'_>,
        kernel: &Kernel,
        space: SpaceId,
        args: &mut Remap,
    ) -> Result<(), Errno> {
        let count = args.num_ops;
        if count == 0 {
            return Ok(());
        }
        if count > OPS_LIMIT {
            return Err(Errno::NOMEM);
        }
        let limit = self.spaces.get(&space).ok_or(Errno::NODEV)?.limit();
        let mut operations = Vec::new();
        for at in 0..count {
            let op: RemapOp = task.read(address_of(args, at))?;
            if let Err(errno) = check_fields(&op, limit) {
                args.num_ops = 0;
                return Err(errno);
            }
            operations.push(op);
        }
        args.num_ops = 0;
        let area = self.spaces.get(&space).ok_or(Errno::NODEV)?.sparse_area(&operations[0])?;
        let mut checked = Vec::new();
        for op in &operations {
            checked.push(self.check_remap(task, kernel, area, op)?);
        }
        let space = self.spaces.get_mut(&space).ok_or(Errno::NODEV)?;
        for operation in checked {
            space.execute_remap(operation);
        }
        let stored = store_operations(task, args, &operations);
        args.num_ops = stored.err().unwrap_or(count);
        stored.map_err(|_| Errno::FAULT)
    }

    /// Checks an operation against its buffer and the area `(start, len)`, in this order.
    fn check_remap(
        &self,
        task: &Task<'_>,
        kernel: &Kernel,
        area: (u64, u64),
        op: &RemapOp,
    ) -> Result<Checked, Errno> {
        let failed = |step: fn(i32) -> MemoryLine, errno: Errno| {
            kernel.log.error("nvgpu_vm_remap_locked", step(-errno.raw_os_error()));
            errno
        };
        let (va, len) = (op.virt_offset_in_pages * PAGE, op.num_pages * PAGE);
        let inside = va >= area.0 && va + len <= area.0 + area.1;
        if op.mem_handle == 0 {
            return if inside {
                Ok(Checked { va, len, target: None })
            } else {
                Err(failed(|error| MemoryLine::ValidateUnmap { error }, Errno::INVAL))
            };
        }
        let flags = RemapFlags::from_bits_retain(op.flags);
        let writable = !flags.contains(RemapFlags::ACCESS_NO_WRITE);
        let buffer = self
            .remap_buffer(task, kernel, op.mem_handle, writable)
            .map_err(|errno| failed(|error| MemoryLine::RemapBuffer { error }, errno))?;
        // Buffer offsets are in pages of the operation, addresses in pages of the area.
        let page = page_size(flags).unwrap_or(PAGE);
        let end = op.mem_offset_in_pages.checked_add(op.num_pages).and_then(|pages| pages.checked_mul(page));
        if end.is_none_or(|end| end > buffer.handle.size()) || !inside {
            return Err(failed(|error| MemoryLine::ValidateMap { error }, Errno::INVAL));
        }
        let (offset, cached) = (op.mem_offset_in_pages * PAGE, flags.contains(RemapFlags::CACHEABLE));
        let target = Target { buffer, offset, writable, cached };
        Ok(Checked { va, len, target: Some(target) })
    }

    /// Returns the buffer of an operation, if it has memory and allows the access.
    fn remap_buffer(
        &self,
        task: &Task<'_>,
        kernel: &Kernel,
        handle: u32,
        writable: bool,
    ) -> Result<Buffer, Errno> {
        let log = &kernel.log;
        let function = "nvgpu_vm_remap_os_buf_get";
        // CAST: a descriptor is the same 32 bits.
        let Ok(buffer) = self.fds.dma_buf(task, handle as RawFd) else {
            log.warning(function, MemoryLine::RemapNotDmabuf { handle });
            return Err(Errno::INVAL);
        };
        if writable && buffer.read_only {
            log.error(function, MemoryLine::RemapReadOnly);
            return Err(Errno::INVAL);
        }
        if kernel.pin(&buffer).is_err() {
            log.warning(function, MemoryLine::RemapPinFailed);
            return Err(Errno::NOMEM);
        }
        Ok(buffer)
    }
}

impl Space {
    /// Returns the sparse area that contains the start of an operation. Its pages are 4 KiB, and those of the operation
    /// must be as well.
    fn sparse_area(&self, op: &RemapOp) -> Result<(u64, u64), Errno> {
        if page_size(RemapFlags::from_bits_retain(op.flags)) != Some(PAGE) {
            return Err(Errno::INVAL);
        }
        self.sparse_at(op.virt_offset_in_pages * PAGE).ok_or(Errno::INVAL)
    }

    fn execute_remap(&mut self, Checked { va, len, target }: Checked) {
        self.clear_pages(va, len);
        let Some(Target { buffer, offset, writable, cached }) = target else { return };
        let Some(memory) = buffer.handle.memory().map(Arc::clone) else { return };
        self.mmu.map(MappedRange { va, len, memory, offset, writable, cached });
        self.keep_pages(va, len, &buffer);
    }
}
