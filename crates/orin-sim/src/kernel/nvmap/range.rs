//! GET_FD_FOR_RANGE_FROM_LIST: a dma-buf for a range of several concatenated buffers (`nvmap_ioctl.c`,
//! `nvmap_ioctl_get_fd_from_list`; `nvmap_handle.c`, `nvmap_alloc.c`).
//!
//! The new dma-buf shares the pages, and keeps the source buffers alive. It has no handle number; FROM_FD assigns one.

use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};

use gpu_log::{Level, MemoryLine};
use nvgpu_sys::nvmap::{FdForRangeFromList, Heaps};
use rustix::io::Errno;

use crate::memory::{Memory, Part};

use super::super::State;
use super::super::log::Log;
use super::super::process::fds::Object;
use super::super::process::task::Task;
use super::maintenance::read_ids;
use super::requests::{export, report_full_table};
use super::{Buffer, Handle, PAGE, Storage};

const FUNCTION: &str = "nvmap_ioctl_get_fd_from_list";

/// A piece of one of the buffers: index, first byte, length.
type Piece = (usize, u64, u64);

/// The pieces of the range, which must end inside the buffers.
fn pieces(sizes: &[u64], offset: u64, size: u64) -> Vec<Piece> {
    let (mut skip, mut left) = (offset, size);
    let mut pieces = Vec::new();
    for (at, bytes) in sizes.iter().enumerate() {
        let start = skip.min(*bytes);
        let len = left.min(bytes - start);
        if len > 0 {
            pieces.push((at, start, len));
        }
        (skip, left) = (skip - start, left - len);
    }
    pieces
}

/// The pieces according to r36.4.3's algorithm; `None` if its arithmetic leaves a buffer or the new list of pages. It
/// is correct for ranges that begin in the first buffer and either end there, are at least as long as it, or begin at
/// its start. Otherwise the result depends on the sizes.
fn pieces_of_kernel(sizes: &[u64], offset: u64, size: u64) -> Option<Vec<Piece>> {
    let (mut total, mut start, mut first) = (0_u64, offset, 0);
    for (at, bytes) in sizes.iter().enumerate() {
        total += bytes;
        first = at;
        if offset <= total {
            break;
        }
        // The kernel subtracts the running total each time.
        start = start.checked_sub(total)?;
    }
    let mut reached = total - offset;
    let mut last = first;
    while reached < size {
        last += 1;
        reached += sizes.get(last)?;
    }
    let (mut left, mut pieces) = (size, Vec::new());
    for (at, bytes) in sizes.iter().enumerate().take(last + 1).skip(first) {
        let rest = bytes.checked_sub(start)?;
        let len = if left >= *bytes { rest } else { left };
        if len > rest {
            return None;
        }
        if len > 0 {
            pieces.push((at, start, len));
        }
        left = left.saturating_sub(rest);
        start = 0;
    }
    (pieces.iter().map(|(.., len)| len).sum::<u64>() == size).then_some(pieces)
}

/// The files behind the pieces.
fn parts(handles: &[Arc<Handle>], pieces: &[Piece]) -> Option<Vec<Part>> {
    let mut parts = Vec::new();
    for (at, start, len) in pieces {
        let len = usize::try_from(len.next_multiple_of(PAGE)).ok()?;
        let memory = handles.get(*at)?.memory()?;
        parts.extend(memory.parts(usize::try_from(*start).ok()?, len)?);
    }
    Some(parts)
}

/// Buffers that provided pages of another one, kept alive with it. The kernel has only one link field per buffer, so a
/// buffer in two lists corrupts both.
#[derive(Debug, Default)]
pub(super) struct Sources(Vec<Arc<Handle>>);

impl Sources {
    /// Takes the link of each buffer. Returns whether all of them were free.
    fn link(handles: Vec<Arc<Handle>>) -> (Self, bool) {
        let taken = |handle: &Arc<Handle>| handle.linked.fetch_add(1, Ordering::AcqRel) > 0;
        let sound = handles.iter().filter(|handle| taken(handle)).count() == 0;
        (Self(handles), sound)
    }
}

impl Drop for Sources {
    fn drop(&mut self) {
        for handle in &self.0 {
            handle.linked.fetch_sub(1, Ordering::AcqRel);
        }
    }
}

/// Handles the request.
pub(super) fn get_fd(
    task: &Task<'_>,
    state: &mut State,
    log: &Log,
    args: &mut FdForRangeFromList,
) -> Result<(), Errno> {
    let (offset, size) = (args.offset, args.size);
    if args.handles == 0 || args.num_handles == 0 || size == 0 || args.num_handles > u32::MAX / 4 {
        return Err(Errno::INVAL);
    }
    let ids = read_ids(task, args.handles, args.num_handles).inspect_err(|_| {
        log.nvmap(Level::Error, FUNCTION, MemoryLine::ListUnreadable { list: "handles".to_owned() });
    })?;
    let mut handles = Vec::new();
    for (at, id) in ids.iter().enumerate() {
        // r36.4.3 dereferences the missing handle before it checks it. The model does what the kernel intends.
        let buffer = state.nvmap.lookup(*id).inspect_err(|_| {
            log.nvmap(Level::Error, FUNCTION, MemoryLine::ListHandle { index: at, handle: *id });
        })?;
        handles.push(Arc::clone(&buffer.handle));
    }
    let sizes: Vec<u64> = handles.iter().map(|handle| handle.size).collect();
    let total = sizes.iter().try_fold(0_u64, |sum, bytes| sum.checked_add(*bytes));
    let end = offset.checked_add(size);
    if end.zip(total).is_none_or(|(end, total)| total < end) {
        return Err(Errno::INVAL);
    }
    // Imported memory has no file.
    let has_file = |handle: &Handle| handle.memory().is_some_and(|memory| memory.parts(0, 0).is_some());
    let of_system = |handle: &&Arc<Handle>| {
        handle.storage().is_some_and(|storage| storage.heap == Heaps::IOVMM) && has_file(handle)
    };
    let storages: Vec<&Storage> =
        handles.iter().filter(of_system).filter_map(|handle| handle.storage()).collect();
    let alike = storages.windows(2).all(|pair| pair[0].cache == pair[1].cache);
    if storages.len() != handles.len() || !alike {
        log.nvmap(Level::Error, FUNCTION, MemoryLine::MixedHandles {});
        return Err(Errno::INVAL);
    }
    if !offset.is_multiple_of(PAGE) {
        log.model(MemoryLine::RangeInsidePage { offset });
        return Err(Errno::INVAL);
    }
    let pieces = pieces(&sizes, offset, size);
    if pieces_of_kernel(&sizes, offset, size).as_ref() != Some(&pieces) {
        log.model(MemoryLine::RangeMidBuffer { bytes: size, offset, sizes: format!("{sizes:x?}") });
    }
    let sources = pieces.iter().map(|(at, ..)| Arc::clone(&handles[*at])).collect();
    let (sources, sound) = Sources::link(sources);
    if !sound {
        log.model(MemoryLine::RangeShared {});
    }
    let (first, parts) = (storages[0], parts(&handles, &pieces).ok_or(Errno::NOMEM)?);
    let storage = Storage {
        memory: OnceLock::from(Arc::new(
            Memory::join(parts).map_err(|_| Errno::NOMEM)?.labelled("nvmap range").requested_as(size),
        )),
        label: String::new(),
        watched: None,
        heap: Heaps::IOVMM,
        align: 0,
        cache: first.cache,
        flags: 0,
        bytes: 0,
        pool: Arc::clone(&first.pool),
        _sources: sources,
    };
    let handle = Handle::new(size, OnceLock::from(storage), &mut state.nvmap).ok_or(Errno::NOMEM)?;
    let buffer = Buffer { handle: Arc::new(handle), read_only: false };
    let descriptor = export(task, &buffer).inspect_err(|_| report_full_table(log))?;
    args.fd = state.fds.insert(task, descriptor, Object::DmaBuf(buffer))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIB: u64 = 1 << 10;

    #[test]
    fn the_kernels_pieces_are_the_right_ones_or_none() {
        let sizes = [8 * KIB, 16 * KIB, 4 * KIB];
        for (offset, size, expected, sound) in [
            (0, 8 * KIB, vec![(0, 0, 8 * KIB)], true),
            (4 * KIB, 4 * KIB, vec![(0, 4 * KIB, 4 * KIB)], true),
            (0, 28 * KIB, vec![(0, 0, 8 * KIB), (1, 0, 16 * KIB), (2, 0, 4 * KIB)], true),
            (0, 10 * KIB, vec![(0, 0, 8 * KIB), (1, 0, 2 * KIB)], true),
            (4 * KIB, 8 * KIB, vec![(0, 4 * KIB, 4 * KIB), (1, 0, 4 * KIB)], true),
            (12 * KIB, 4 * KIB, vec![(1, 4 * KIB, 4 * KIB)], true),
            // At a boundary the kernel starts beyond the end of the previous buffer.
            (8 * KIB, 8 * KIB, vec![(1, 0, 8 * KIB)], true),
            (8 * KIB, 4 * KIB, vec![(1, 0, 4 * KIB)], false),
            // Shorter than the buffer in which it begins, and beyond that buffer's end.
            (20 * KIB, 8 * KIB, vec![(1, 12 * KIB, 4 * KIB), (2, 0, 4 * KIB)], false),
            // The third buffer: the kernel subtracts too much from the offset.
            (25 * KIB, KIB, vec![(2, KIB, KIB)], false),
        ] {
            assert_eq!(pieces(&sizes, offset, size), expected, "{offset:#x}, {size:#x}");
            let kernel = pieces_of_kernel(&sizes, offset, size);
            assert_eq!(kernel, sound.then_some(expected), "{offset:#x}, {size:#x}");
        }
    }
}
