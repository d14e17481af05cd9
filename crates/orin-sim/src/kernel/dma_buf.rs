//! dma-bufs: the requests on them (the kernel's `dma-buf.c`; nvmap's part is in `nvmap_dmabuf.c`), and how nvgpu pins
//! them.

use std::sync::Arc;

use gpu_log::MemoryLine;
use kernel_door::{Door, LinuxDoor};
use nvgpu_sys::dma_buf::{ALL, Sync, SyncFlags, code};
use rustix::io::Errno;

use crate::config::Call;
use crate::memory::Memory;

use super::Kernel;
use super::argument::{Argument, Code};
use super::nvmap::{Buffer, Exporter};
use super::process::task::Task;

/// SYNC checks its flags and that the buffer has memory. Caches are not modelled.
fn sync(task: &Task<'_>, buffer: &Buffer, fd: i32, code: Code, address: u64) -> Result<i32, Errno> {
    let mut args: Sync = Argument::copy_in(task, code, address)?.peek();
    let flags = u32::try_from(args.flags).ok().and_then(SyncFlags::from_bits).ok_or(Errno::INVAL)?;
    if !flags.intersects(SyncFlags::READ | SyncFlags::WRITE) {
        return Err(Errno::INVAL);
    }
    if buffer.handle.exporter() == Exporter::Host {
        // SAFETY: the argument is the request's struct; the caller owns or borrows the descriptor.
        return unsafe { LinuxDoor.ioctl(fd, code.code, (&raw mut args).cast()) };
    }
    if buffer.handle.storage().is_some() { Ok(0) } else { Err(Errno::PERM) }
}

impl Kernel {
    /// The requests on a dma-buf. Naming one is not modelled.
    pub(super) fn dma_buf_ioctl(
        &self,
        task: &Task<'_>,
        buffer: &Buffer,
        fd: i32,
        code: Code,
        address: u64,
    ) -> Result<i32, Errno> {
        match code.code {
            _ if !self.has(ALL, code) => Err(Errno::NOTTY),
            code::EXPORT_SYNC_FILE => self.export_sync_file(task, buffer, code, address),
            code::IMPORT_SYNC_FILE => self.import_sync_file(task, buffer, code, address),
            _ => sync(task, buffer, fd, code, address),
        }
    }

    /// Pins a dma-buf for the GPU, as `nvgpu_mm_pin` does with the kernel's generic calls: `dma_buf_attach`, then
    /// `dma_buf_map_attachment` (`os/linux/dmabuf.c`). Each returns the exporter's errno as it is.
    ///
    /// # Errors
    ///
    /// EINVAL from nvmap for a buffer without memory; ENOMEM if the host cannot map it; a failure on demand.
    pub(super) fn pin(&self, buffer: &Buffer) -> Result<Arc<Memory>, Errno> {
        let failed = |line: fn(i32) -> MemoryLine, errno: Errno| {
            self.log.error("nvgpu_mm_pin", line(-errno.raw_os_error()));
            errno
        };
        self.fail_on_demand(Call::Attach)
            .map_err(|errno| failed(|error| MemoryLine::AttachFailed { error }, errno))?;
        let without = if buffer.handle.storage().is_none() { Errno::INVAL } else { Errno::NOMEM };
        self.fail_on_demand(Call::MapAttachment)
            .and_then(|()| buffer.handle.memory().map(Arc::clone).ok_or(without))
            .map_err(|errno| failed(|error| MemoryLine::MapAttachment { error }, errno))
    }
}
