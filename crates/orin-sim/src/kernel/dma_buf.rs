//! Requests on a dma-buf (the kernel's `dma-buf.c`; nvmap's part is in `nvmap_dmabuf.c`).

use rustix::io::Errno;

use super::argument::{Argument, Code};
use super::nvmap::Buffer;
use super::process::task::Task;

/// `DMA_BUF_IOCTL_SYNC`: begins or ends a CPU access.
const SYNC: u32 = 0x4008_6200;
/// `DMA_BUF_SYNC_RW`: the CPU reads, writes or both.
const SYNC_READ_WRITE: u64 = 3;
/// `DMA_BUF_SYNC_END`: the access ends.
const SYNC_END: u64 = 4;

/// SYNC checks its flags and that the buffer has memory. Caches are not modelled, and neither is naming a dma-buf.
pub(super) fn ioctl(task: &Task<'_>, buffer: &Buffer, code: Code, address: u64) -> Result<i32, Errno> {
    if code.code != SYNC {
        return Err(Errno::NOTTY);
    }
    let flags: u64 = Argument::copy_in(task, code, address)?.peek();
    if flags & !(SYNC_READ_WRITE | SYNC_END) != 0 || flags & SYNC_READ_WRITE == 0 {
        return Err(Errno::INVAL);
    }
    if buffer.handle.storage().is_some() { Ok(0) } else { Err(Errno::PERM) }
}
