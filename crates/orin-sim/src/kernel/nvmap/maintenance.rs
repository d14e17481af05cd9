//! Cache maintenance: checks alone, as the model has no caches (`nvmap_cache.c`).

use nvgpu_sys::nvmap::{CACHE_OP_WB, CACHE_OP_WB_INV, CacheOpList};
use rustix::io::Errno;

use super::super::state::{Mapped, State};
use super::super::user;
use super::Nvmap;

/// CACHE and CACHE_64: `addr` lies in a CPU mapping of just this handle.
pub(super) fn cache(state: &State, addr: u64, id: u32, len: u64, op: i32) -> Result<(), Errno> {
    if addr == 0 || !(CACHE_OP_WB..=CACHE_OP_WB_INV).contains(&op) {
        return Err(Errno::INVAL);
    }
    let handle = &state.nvmap.lookup(id)?.handle;
    let at = usize::try_from(addr).map_err(|_| Errno::ADDRNOTAVAIL)?;
    let found = state.mappings.range(..=at).next_back();
    let (start, mapping) =
        found.filter(|(start, mapping)| at - **start < mapping.len).ok_or(Errno::ADDRNOTAVAIL)?;
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

impl Nvmap {
    /// The handles of a list must exist and have memory; on this chip there is nothing more to do.
    pub(super) fn cache_list(&self, args: &CacheOpList) -> Result<(), Errno> {
        if args.nr == 0 || args.handles == 0 || args.offsets == 0 || args.sizes == 0 {
            return Err(Errno::INVAL);
        }
        let mut unallocated = false;
        for at in 0..u64::from(args.nr) {
            let id: u32 = user::read(args.handles.wrapping_add(4 * at))?;
            unallocated |= self.lookup(id)?.handle.storage().is_none();
        }
        if unallocated { Err(Errno::PERM) } else { Ok(()) }
    }
}
