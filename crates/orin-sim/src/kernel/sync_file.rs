//! Sync-files: descriptors of fences (Linux `drivers/dma-buf/sync_file.c`), and the fences of dma-bufs.
//!
//! A sync-file polls readable after its last fence has ended. [`ForeignFence`] is a fence of a driver that the model
//! does not have.

use std::os::fd::RawFd;
use std::sync::Arc;

use nvgpu_sys::dma_buf::{ExportSyncFile, ImportSyncFile, SyncFlags};
use nvgpu_sys::sync_file::{FileInfo, Merge, code};
use rustix::io::Errno;
use zerocopy::{Immutable, IntoBytes};

use super::argument::{Argument, Code};
use super::fence::{Fence, SyncFile, padded};
use super::nvmap::Buffer;
use super::process::fds::{self, Object};
use super::process::task::Task;
use super::pulse::Pulse;
use super::{Kernel, SoftwareOrin};

/// The data that SYNC_IOC_FILE_INFO returns per fence (Linux `include/uapi/linux/sync_file.h`).
#[repr(C)]
#[derive(Clone, Copy, IntoBytes, Immutable)]
struct FenceInfo {
    object: [u8; 32],
    driver: [u8; 32],
    status: i32,
    flags: u32,
    timestamp_ns: u64,
}

/// The status of a fence in the kernel's encoding.
fn status(result: Option<Result<(), Errno>>) -> i32 {
    match result {
        None => 0,
        Some(Ok(())) => 1,
        Some(Err(errno)) => -errno.raw_os_error(),
    }
}

impl Kernel {
    /// Creates a descriptor.
    pub(super) fn sync_file(&self, task: &Task<'_>, file: Arc<SyncFile>) -> Result<RawFd, Errno> {
        if task.is_served() {
            let descriptor = fds::readable(task, |_| "sync_file".to_owned())?;
            return self.state.lock().fds.insert(task, descriptor, Object::SyncFile(file));
        }
        let (fresh, keep) = fds::pipe()?;
        let number = self.state.lock().fds.insert(task, fresh, Object::SyncFile(Arc::clone(&file)))?;
        self.readable.add(&file, keep, &self.log.pulse);
        Ok(number)
    }

    /// The sync-file behind a descriptor.
    fn sync_file_of(&self, task: &Task<'_>, fd: RawFd, otherwise: Errno) -> Result<Arc<SyncFile>, Errno> {
        match self.state.lock().fds.get(task, fd) {
            Some(Object::SyncFile(file)) => Ok(Arc::clone(file)),
            _ => Err(otherwise),
        }
    }

    /// Handles the requests on a sync-file.
    pub(super) fn sync_file_ioctl(
        &self,
        task: &Task<'_>,
        file: &SyncFile,
        code: Code,
        address: u64,
    ) -> Result<i32, Errno> {
        let argument = Argument::copy_in(task, code, address);
        match code.code {
            code::FILE_INFO => {
                let mut argument = argument?;
                argument.call(|args: &mut FileInfo| file_info(task, file, args))?;
                if argument.copy_out() > 0 { Err(Errno::FAULT) } else { Ok(0) }
            }
            code::MERGE => {
                let mut argument = argument?;
                argument.call(|args: &mut Merge| {
                    if args.flags != 0 || args.pad != 0 {
                        return Err(Errno::INVAL);
                    }
                    let other = self.sync_file_of(task, args.fd2, Errno::NOENT)?;
                    let mut name = args.name;
                    name[31] = 0;
                    let fences = file.fences.iter().chain(&other.fences).map(Arc::clone);
                    args.fence = self.sync_file(task, SyncFile::of_all(name, fences))?;
                    Ok(())
                })?;
                self.finish(task, &argument, |args: Merge| args.fence)
            }
            _ => Err(Errno::NOTTY),
        }
    }

    /// Copies the argument out. If that fails, removes the descriptor that it returns.
    fn finish<T: zerocopy::FromBytes>(
        &self,
        task: &Task<'_>,
        argument: &Argument<'_>,
        number: impl FnOnce(T) -> RawFd,
    ) -> Result<i32, Errno> {
        if argument.copy_out() == 0 {
            return Ok(0);
        }
        self.state.lock().fds.remove(task, number(argument.peek()));
        Err(Errno::FAULT)
    }

    /// EXPORT_SYNC_FILE of a dma-buf: a file of the fences that an access of this kind waits for. Those of a write are
    /// all, those of a read the ends of writes (`dma-buf.c`, `dma_buf_export_sync_file`).
    pub(super) fn export_sync_file(
        &self,
        task: &Task<'_>,
        buffer: &Buffer,
        code: Code,
        address: u64,
    ) -> Result<i32, Errno> {
        let mut argument = Argument::copy_in(task, code, address)?;
        argument.call(|args: &mut ExportSyncFile| {
            let access = direction(args.flags)?;
            let fences = buffer.handle.fences().clone().into_iter();
            let waited = fences.filter(|(writes, _)| *writes || access.contains(SyncFlags::WRITE));
            args.fd = self.sync_file(task, SyncFile::of_all([0; 32], waited.map(|(_, fence)| fence)))?;
            Ok(())
        })?;
        self.finish(task, &argument, |args: ExportSyncFile| args.fd)
    }

    /// IMPORT_SYNC_FILE of a dma-buf: later accesses wait for the fences (`dma_buf_import_sync_file`).
    pub(super) fn import_sync_file(
        &self,
        task: &Task<'_>,
        buffer: &Buffer,
        code: Code,
        address: u64,
    ) -> Result<i32, Errno> {
        let args: ImportSyncFile = Argument::copy_in(task, code, address)?.peek();
        let writes = direction(args.flags)?.contains(SyncFlags::WRITE);
        let file = self.sync_file_of(task, args.fd, Errno::INVAL)?;
        let mut fences = buffer.handle.fences();
        fences.retain(|(_, fence)| fence.result().is_none());
        fences.extend(file.fences.iter().map(|fence| (writes, Arc::clone(fence))));
        drop(fences);
        self.state.lock().fds.exporters.keep_until_signalled(&buffer.handle);
        Ok(0)
    }
}

/// The direction of an access.
fn direction(flags: u32) -> Result<SyncFlags, Errno> {
    let allowed = SyncFlags::READ | SyncFlags::WRITE;
    SyncFlags::from_bits(flags)
        .filter(|flags| !flags.is_empty() && allowed.contains(*flags))
        .ok_or(Errno::INVAL)
}

/// SYNC_IOC_FILE_INFO. An array for the fences has room for all, or none is passed.
fn file_info(task: &Task<'_>, file: &SyncFile, args: &mut FileInfo) -> Result<(), Errno> {
    // CAST: as many as descriptors at most.
    let count = file.fences.len() as u32;
    if args.flags != 0 || args.pad != 0 || args.num_fences != 0 && args.num_fences < count {
        return Err(Errno::INVAL);
    }
    if args.num_fences > 0 {
        let mut place = args.sync_fence_info;
        for fence in &file.fences {
            let driver = padded(fence.driver());
            let info = FenceInfo {
                object: driver,
                driver,
                status: status(fence.result()),
                flags: 0,
                timestamp_ns: 0,
            };
            if task.write_bytes(place, info.as_bytes()) > 0 {
                return Err(Errno::FAULT);
            }
            place = place.wrapping_add(size_of::<FenceInfo>() as u64);
        }
    }
    args.name = file.name;
    (args.status, args.num_fences) = (status(file.result()), count);
    Ok(())
}

/// A fence of a driver other than host1x: the end of work that the program itself, as that driver, signals. The GPU
/// cannot wait for it; the CPU can.
///
/// A board's fences of this kind are those of a display, a GPU of another make, or a V4L2 driver with fences; NVIDIA's
/// capture engine signals syncpoints.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use std::time::Duration;
/// use kernel_door::{Door, Events};
/// use orin_sim::{Config, SoftwareOrin};
///
/// let orin = SoftwareOrin::new(Config::default())?;
/// let fence = orin.foreign_fence("display");
/// let file = fence.file(&orin)?;
/// // SAFETY: the descriptor is open.
/// let poll = || unsafe { orin.poll(file, Events::IN, Duration::ZERO) };
/// assert_eq!(poll(), Ok(Events::empty()));
/// fence.signal(Ok(()));
/// assert_eq!(poll(), Ok(Events::IN));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct ForeignFence {
    fence: Arc<Fence>,
    pulse: Arc<Pulse>,
}

impl SoftwareOrin {
    /// Creates a fence of a driver with this name.
    pub fn foreign_fence(&self, driver: &str) -> ForeignFence {
        let pulse = Arc::clone(&self.board.kernel.log.pulse);
        ForeignFence { fence: Arc::new(Fence::of_driver(driver)), pulse }
    }
}

impl ForeignFence {
    /// Creates a sync-file of the fence in a process of the board. Returns the number of its descriptor, which the
    /// caller owns.
    ///
    /// # Errors
    ///
    /// EMFILE or ENFILE.
    pub fn file(&self, process: &SoftwareOrin) -> Result<RawFd, Errno> {
        process.board.kernel.sync_file(&process.task(), SyncFile::new(Arc::clone(&self.fence)))
    }

    /// Ends the fence, with an error if the work failed. Only the first call has an effect.
    pub fn signal(&self, result: Result<(), Errno>) {
        self.fence.signal(result, &self.pulse);
    }
}
