//! Cache maintenance: only the checks, because the model has no caches (`nvmap_cache.c`).

use gpu_log::{Level, MemoryLine};
use nvgpu_sys::nvmap::{CACHE_LIST_ELEM_SIZE_U64, CACHE_OP_WB, CACHE_OP_WB_INV, CacheOpList, HandleFlags};
use rustix::io::Errno;
use zerocopy::IntoBytes;

use crate::caller::{Caller, CallerMapping};

use super::super::State;
use super::super::log::Log;
use super::super::process::mappings::{Mapped, Mapping};
use super::super::process::task::Task;
use super::{Handle, Nvmap};
use crate::memory::inode_of;

/// CACHE and CACHE_64: `addr` must lie in a CPU mapping of this handle.
pub(super) fn cache(
    task: &Task<'_>,
    state: &State,
    addr: u64,
    id: u32,
    len: u64,
    op: i32,
) -> Result<(), Errno> {
    if addr == 0 || !(CACHE_OP_WB..=CACHE_OP_WB_INV).contains(&op) {
        return Err(Errno::INVAL);
    }
    let handle = &state.nvmap.lookup(id)?.handle;
    if let Some(caller) = task.caller {
        return cache_served(caller, handle, addr, len);
    }
    let at = usize::try_from(addr).map_err(|_| Errno::ADDRNOTAVAIL)?;
    let found = state.mappings.range(..=at).next_back();
    let inside =
        |(start, mapping): &(&usize, &Mapping)| at - **start < mapping.len && mapping.owner == task.process;
    let (start, mapping) = found.filter(inside).ok_or(Errno::ADDRNOTAVAIL)?;
    let Mapped::DmaBuf { buffer, offset } = &mapping.mapped else { return Err(Errno::ADDRNOTAVAIL) };
    // CAST: lengths and offsets of CPU mappings fit 64 bits.
    let inside = (at - *start) as u64;
    if inside.checked_add(len).is_none_or(|end| end > mapping.len as u64) {
        return Err(Errno::ADDRNOTAVAIL);
    }
    let same = std::sync::Arc::ptr_eq(&buffer.handle, handle);
    if !same || offset.checked_add(inside + len).is_none_or(|end| end > handle.size()) {
        return Err(Errno::FAULT);
    }
    handle.storage().map(drop).ok_or(Errno::PERM)
}

/// The same rules for a served process, whose mappings the host knows.
fn cache_served(caller: &dyn Caller, handle: &Handle, addr: u64, len: u64) -> Result<(), Errno> {
    let mappings = caller.mappings();
    let inside = |mapping: &&CallerMapping| mapping.start <= addr && addr < mapping.end;
    let mapping = mappings.iter().find(inside).ok_or(Errno::ADDRNOTAVAIL)?;
    let end = addr.checked_add(len).filter(|end| *end <= mapping.end).ok_or(Errno::ADDRNOTAVAIL)?;
    let file = inode_of(handle.file()?).ok_or(Errno::FAULT)?;
    if file != (mapping.device, mapping.inode) || mapping.offset + (end - mapping.start) > handle.size() {
        return Err(Errno::FAULT);
    }
    handle.storage().map(drop).ok_or(Errno::PERM)
}

/// Reads `count` elements of `size` bytes, so that an unreadable list is detected before its first element is used.
fn read_array(task: &Task<'_>, address: u64, count: u32, size: u64) -> Result<Vec<u8>, Errno> {
    const PIECE: u64 = 64 << 10;
    let bytes = u64::from(count) * size;
    let mut array = Vec::new();
    let mut done = 0;
    while done < bytes {
        let step = PIECE.min(bytes - done);
        // CAST: the chunk was read into memory of this process, so it fits; at most 64 KiB more.
        array.resize((done + step) as usize, 0);
        // CAST: as above.
        task.read_bytes(address.wrapping_add(done), &mut array[done as usize..])?;
        done += step;
    }
    Ok(array)
}

/// Reads a list of handle numbers.
///
/// # Errors
///
/// EFAULT.
pub(super) fn read_ids(task: &Task<'_>, address: u64, count: u32) -> Result<Vec<u32>, Errno> {
    let bytes = read_array(task, address, count, 4)?;
    let mut ids = vec![0_u32; bytes.len() / 4];
    ids.as_mut_bytes().copy_from_slice(&bytes);
    Ok(ids)
}

impl Nvmap {
    /// CACHE_LIST: checks that the handles exist, have memory and agree on CACHE_SYNC_AT_RESERVE. On this chip there is
    /// nothing else to do.
    pub(super) fn cache_list(&self, task: &Task<'_>, log: &Log, args: &CacheOpList) -> Result<(), Errno> {
        let function = "nvmap_ioctl_cache_maint_list";
        if args.nr == 0 || args.nr > u32::MAX / 4 {
            return Err(Errno::INVAL);
        }
        if args.handles == 0 || args.offsets == 0 || args.sizes == 0 {
            log.nvmap(Level::Error, function, MemoryLine::ListMissing);
            return Err(Errno::INVAL);
        }
        let fault = |list: &'static str| {
            move |errno| {
                log.nvmap(Level::Error, function, MemoryLine::ListUnreadable { list: list.to_owned() });
                errno
            }
        };
        let element = if args.op & CACHE_LIST_ELEM_SIZE_U64 == 0 { 4 } else { 8 };
        let ids = read_ids(task, args.handles, args.nr).map_err(fault("handles"))?;
        read_array(task, args.offsets, args.nr, element).map_err(fault("offsets"))?;
        read_array(task, args.sizes, args.nr, element).map_err(fault("sizes"))?;
        let mut deferred = 0;
        for (at, id) in ids.iter().enumerate() {
            let Ok(buffer) = self.lookup(*id) else {
                log.nvmap(Level::Error, function, MemoryLine::ListHandle { index: at, handle: *id });
                return Err(Errno::INVAL);
            };
            let Some(storage) = buffer.handle.storage() else {
                log.nvmap(Level::Error, function, MemoryLine::HeapWithoutCpu { heap: 0 });
                return Err(Errno::PERM);
            };
            deferred += usize::from(storage.flags & HandleFlags::CACHE_SYNC_AT_RESERVE.bits() != 0);
        }
        if deferred != 0 && deferred != ids.len() {
            log.nvmap(Level::Error, function, MemoryLine::MixedSync {});
            return Err(Errno::INVAL);
        }
        Ok(())
    }
}
