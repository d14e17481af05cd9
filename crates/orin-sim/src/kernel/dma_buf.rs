//! Requests on a dma-buf itself (the kernel's `dma-buf.c`; nvmap's side is in `nvmap_dmabuf.c`).

use rustix::io::Errno;

use super::argument::{Argument, Code};
use super::nvmap::Buffer;

/// `DMA_BUF_IOCTL_SYNC`: begins or ends access by the CPU.
const SYNC: u32 = 0x4008_6200;
/// `DMA_BUF_SYNC_RW`: the CPU reads, writes or both.
const SYNC_READ_WRITE: u64 = 3;
/// `DMA_BUF_SYNC_END`: the access ends.
const SYNC_END: u64 = 4;

/// SYNC checks its flags and that there is memory; caches are not modelled. Naming a dma-buf is not
/// modelled either.
pub(super) fn ioctl(buffer: &Buffer, code: Code, address: u64) -> Result<i32, Errno> {
    if code.code != SYNC {
        return Err(Errno::NOTTY);
    }
    let flags: u64 = Argument::copy_in(code, address)?.peek();
    if flags & !(SYNC_READ_WRITE | SYNC_END) != 0 || flags & SYNC_READ_WRITE == 0 {
        return Err(Errno::INVAL);
    }
    if buffer.handle.storage().is_some() { Ok(0) } else { Err(Errno::PERM) }
}
