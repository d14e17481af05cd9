//! READ and WRITE: copies between a handle and the caller's memory (`nvmap_ioctl.c`,
//! `rw_handle`).

use gpu_log::{Level, MemoryLine};
use nvgpu_sys::nvmap::RwHandle;
use rustix::io::Errno;

use crate::memory::Memory;

use super::super::State;
use super::super::log::Log;
use super::super::process::task::Task;

/// Number of copied bytes, and the result.
type Copied = (u64, Result<(), Errno>);

/// READ and WRITE between a handle and user memory, element by element.
///
/// # Errors
///
/// Returns the errors detected before the copy is prepared; the caller's count is then unchanged.
pub(super) fn read_write(
    task: &Task<'_>,
    state: &State,
    log: &Log,
    read: bool,
    args: &RwHandle,
) -> Result<Copied, Errno> {
    if args.addr == 0 || args.count == 0 || args.elem_size == 0 {
        return Err(Errno::INVAL);
    }
    let buffer = state.nvmap.lookup(args.handle)?.clone();
    let storage = buffer.handle.storage();
    let function = "nvmap_ioctl_rw_handle";
    if !read && buffer.read_only {
        log.nvmap(Level::Error, function, MemoryLine::WriteReadOnly);
        return Err(Errno::PERM);
    }
    if read && storage.is_some_and(|storage| !storage.cpu_access()) {
        log.nvmap(Level::Error, function, MemoryLine::ReadProtected {});
        return Err(Errno::PERM);
    }
    if storage.is_none() {
        return Ok((0, Err(Errno::PERM)));
    }
    if !fits(args, buffer.handle.size) {
        return Ok((0, Err(Errno::INVAL)));
    }
    let wanted = args.count * args.elem_size;
    let memory = buffer.handle.memory().ok_or(Errno::NOMEM)?;
    let copied = copy_elements(task, memory, read, args);
    Ok((copied, if copied < wanted { Err(Errno::INTR) } else { Ok(()) }))
}

/// Returns whether all elements lie in a buffer of `size` bytes.
fn fits(args: &RwHandle, size: u64) -> bool {
    args.elem_size <= size
        && args.offset < size
        && args.elem_size <= args.hmem_stride
        && args.elem_size <= args.user_stride
        && args.user_stride <= (size - args.offset) / args.count
        && (args.count - 1)
            .checked_mul(args.hmem_stride)
            .and_then(|last| last.checked_add(args.offset)?.checked_add(args.elem_size))
            .is_some_and(|end| end <= size)
}

/// Copies until the first element that cannot be accessed completely. Returns the count that the kernel reports.
fn copy_elements(task: &Task<'_>, memory: &Memory, read: bool, args: &RwHandle) -> u64 {
    let whole = args.elem_size == args.hmem_stride
        && args.elem_size == args.user_stride
        && args.offset.is_multiple_of(8);
    let all = args.count * args.elem_size;
    let (count, element) = if whole { (1, all) } else { (args.count, args.elem_size) };
    for at in 0..count {
        let offset = args.offset + at * args.hmem_stride;
        let address = args.addr.wrapping_add(at * args.user_stride);
        let left = copy(task, memory, offset, address, element, read);
        if left > 0 {
            // The kernel reports the number of bytes of the element that were *not* copied as the bytes copied.
            return left;
        }
    }
    all
}

/// Copies one element. Returns the number of bytes that could not be copied. The caller has checked that the element
/// lies in the memory.
fn copy(task: &Task<'_>, memory: &Memory, offset: u64, address: u64, len: u64, read: bool) -> u64 {
    const CHUNK: u64 = 4096;
    let mut buffer = [0_u8; CHUNK as usize];
    let mut done = 0;
    while done < len {
        // CAST: at most a chunk, and offsets of a CPU mapping fit usize.
        let step = CHUNK.min(len - done) as usize;
        let at = (offset + done) as usize;
        let (bytes, address) = (&mut buffer[..step], address.wrapping_add(done));
        if read {
            // SAFETY: `at + step` lies in the memory, which `memory` keeps mapped; concurrent writes can only tear
            // bytes. The target is a local array.
            unsafe {
                core::ptr::copy(memory.pointer().as_ptr().add(at).cast_const(), bytes.as_mut_ptr(), step);
            }
            let left = task.write_bytes(address, bytes) as u64;
            if left > 0 {
                return len - done - (step as u64 - left);
            }
        } else {
            if task.read_bytes(address, bytes).is_err() {
                return len - done;
            }
            // SAFETY: as above with the roles exchanged.
            unsafe { core::ptr::copy(bytes.as_ptr(), memory.pointer().as_ptr().add(at), step) };
        }
        done += step as u64;
    }
    0
}
