//! REMAP: pages of sparse areas that come and go one by one (`os/linux/vm_remap.c`,
//! `common/mm/vm_remap.c`).

use std::os::fd::RawFd;
use std::sync::Arc;

use nvgpu_sys::address_space::{KIND_INVALID, PAGE_SIZE, Remap, RemapFlags, RemapOp};
use rustix::io::Errno;

use crate::mmu::MappedRange;

use super::address_space::{Space, SpaceId};
use super::log::Log;
use super::nvmap::Buffer;
use super::state::State;
use super::user;

/// GPU page in bytes.
const PAGE: u64 = PAGE_SIZE as u64;
/// Counts of pages from here on leave the address space.
const PAGES_LIMIT: u64 = 1 << (49 - 12);
/// What an array of operations can hold; beyond it the kernel has no memory for a copy.
const OPS_LIMIT: u32 = 1 << 20;

/// An operation whose fields have been checked.
struct Checked {
    va: u64,
    len: u64,
    /// Buffer, offset in bytes, whether stores are allowed; `None` unmaps.
    target: Option<(Buffer, u64, bool)>,
}

/// The checks of an operation by itself.
fn check_fields(op: &RemapOp) -> Result<(), Errno> {
    let flags = RemapFlags::from_bits(op.flags).ok_or(Errno::INVAL)?;
    let sizes = RemapFlags::PAGESIZE_4K | RemapFlags::PAGESIZE_64K | RemapFlags::PAGESIZE_128K;
    let one_size = flags.intersection(sizes).bits().is_power_of_two();
    let unmap_of_something = op.mem_handle == 0
        && (op.compr_kind != KIND_INVALID || op.incompr_kind != KIND_INVALID || op.mem_offset_in_pages != 0);
    let beyond = |pages: u64| pages >= PAGES_LIMIT;
    if !one_size
        || unmap_of_something
        || op.num_pages == 0
        || [op.num_pages, op.mem_offset_in_pages, op.virt_offset_in_pages].into_iter().any(beyond)
    {
        return Err(Errno::INVAL);
    }
    Ok(())
}

impl State {
    /// REMAP: everything is checked before anything is done. `num_ops` tells how many were.
    pub(super) fn remap(&mut self, log: &Log, space: SpaceId, args: &mut Remap) -> Result<(), Errno> {
        let count = std::mem::take(&mut args.num_ops);
        if count == 0 {
            return Ok(());
        }
        if count > OPS_LIMIT {
            return Err(Errno::NOMEM);
        }
        let mut operations = Vec::new();
        for at in 0..count {
            let address = args.ops.wrapping_add(u64::from(at) * size_of::<RemapOp>() as u64);
            let op: RemapOp = user::read(address)?;
            check_fields(&op)?;
            operations.push(op);
        }
        let area = self.spaces.get(&space).ok_or(Errno::NODEV)?.sparse_area(&operations[0])?;
        let checked: Result<Vec<Checked>, Errno> =
            operations.iter().map(|op| self.check_remap(log, area, op)).collect();
        let checked = checked?;
        let space = self.spaces.get_mut(&space).ok_or(Errno::NODEV)?;
        for operation in checked {
            space.execute_remap(operation);
        }
        args.num_ops = count;
        Ok(())
    }

    /// The checks of an operation against the area `(start, len)` and its buffer.
    fn check_remap(&self, log: &Log, (start, area): (u64, u64), op: &RemapOp) -> Result<Checked, Errno> {
        let (va, len) = (op.virt_offset_in_pages * PAGE, op.num_pages * PAGE);
        let flags = RemapFlags::from_bits_retain(op.flags);
        if !flags.contains(RemapFlags::PAGESIZE_4K) || va < start || va + len > start + area {
            return Err(Errno::INVAL);
        }
        if op.mem_handle == 0 {
            return Ok(Checked { va, len, target: None });
        }
        // CAST: a descriptor is the same 32 bits.
        let buffer = self.fds.dma_buf(op.mem_handle as RawFd).map_err(|_| {
            let handle = op.mem_handle;
            log.error("nvgpu_vm_remap_os_buf_get", format_args!("mem_handle {handle:#x} is not a dmabuf"));
            Errno::INVAL
        })?;
        let offset = op.mem_offset_in_pages * PAGE;
        let writable = !flags.contains(RemapFlags::ACCESS_NO_WRITE);
        if offset + len > buffer.handle.size() || writable && buffer.read_only {
            return Err(Errno::INVAL);
        }
        if buffer.handle.memory().is_none() {
            return Err(Errno::NOMEM);
        }
        Ok(Checked { va, len, target: Some((buffer, offset, writable)) })
    }
}

impl Space {
    /// The sparse area that an operation begins in.
    fn sparse_area(&self, op: &RemapOp) -> Result<(u64, u64), Errno> {
        self.sparse_at(op.virt_offset_in_pages * PAGE).ok_or(Errno::INVAL)
    }

    fn execute_remap(&mut self, Checked { va, len, target }: Checked) {
        self.clear_pages(va, len);
        let Some((buffer, offset, writable)) = target else { return };
        let Some(memory) = buffer.handle.memory().map(Arc::clone) else { return };
        self.mmu.map(MappedRange { va, len, memory, offset, writable });
        self.keep_pages(va, len, &buffer);
    }
}
