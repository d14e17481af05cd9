//! `/dev/host1x-fence` and its sync-files (`drivers/gpu/host1x-fence/dev.c`; Linux `drivers/dma-buf/sync_file.c`).
//!
//! A sync-file contains a fence and polls readable after the fence has signalled. It times out 30 seconds after the
//! first wait: then it also polls readable, and only its status shows the difference. A poll descriptor contains any
//! number of fences without a time limit, and reports once that some have signalled.

use std::sync::Arc;
use std::time::Instant;

use nvgpu_sys::host1x::{CreateFence, CreatePollfd, FenceExtract, FenceExtractFence, TriggerPollfd, code};
use nvgpu_sys::sync_file::{self, FileInfo};
use rustix::io::Errno;
use zerocopy::{Immutable, IntoBytes};

use super::Kernel;
use super::argument::{Argument, Code};
use super::process::fds::{self, Object};
use super::process::task::Task;
use super::syncpoint::Fence;

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
fn status(fence: &Fence) -> i32 {
    match fence.result() {
        None => 0,
        Some(Ok(())) => 1,
        Some(Err(errno)) => -errno.raw_os_error(),
    }
}

/// A zero-padded text in a field of fixed size.
fn padded(text: &str) -> [u8; 32] {
    let mut field = [0; 32];
    let len = text.len().min(31);
    field[..len].copy_from_slice(&text.as_bytes()[..len]);
    field
}

impl Kernel {
    pub(super) fn host1x_ioctl(&self, task: &Task<'_>, code: Code, address: u64) -> Result<i32, Errno> {
        // This node has no generic check; only the exact code matters.
        let known = [code::CREATE_FENCE, code::FENCE_EXTRACT, code::CREATE_POLLFD, code::TRIGGER_POLLFD];
        if !known.contains(&code.code) {
            return Err(Errno::NOTTY);
        }
        let mut argument = Argument::copy_in(task, code, address)?;
        match code.code {
            code::CREATE_FENCE => argument.call(|args: &mut CreateFence| self.create_fence(task, args))?,
            code::FENCE_EXTRACT => argument.call(|args: &mut FenceExtract| self.extract(task, args))?,
            code::CREATE_POLLFD => argument.call(|args: &mut CreatePollfd| {
                let descriptor = fds::readable(task, |_| "host1x_pollfd".to_owned())?;
                args.fd = self.state.lock().fds.insert(task, descriptor, Object::PollSet(Arc::default()))?;
                Ok(())
            })?,
            _ => argument.call(|args: &mut TriggerPollfd| self.trigger(task, args))?,
        }
        if argument.copy_out() > 0 { Err(Errno::FAULT) } else { Ok(0) }
    }

    fn create_fence(&self, task: &Task<'_>, args: &mut CreateFence) -> Result<(), Errno> {
        if args.reserved != [0] {
            return Err(Errno::INVAL);
        }
        let limit = Some(self.config.fence_timeout);
        let fence = self.state.lock().syncpoints.fence(args.id, args.threshold, limit)?;
        args.fence_fd = self.sync_file(task, fence)?;
        Ok(())
    }

    /// Creates a descriptor for a fence.
    pub(super) fn sync_file(&self, task: &Task<'_>, fence: Arc<Fence>) -> Result<i32, Errno> {
        let descriptor = fds::readable(task, |_| "sync_file".to_owned())?;
        self.state.lock().fds.insert(task, descriptor, Object::SyncFile(fence))
    }

    fn extract(&self, task: &Task<'_>, args: &mut FenceExtract) -> Result<(), Errno> {
        if args.reserved != [0; 2] {
            return Err(Errno::INVAL);
        }
        let state = self.state.lock();
        let Some(Object::SyncFile(fence)) = state.fds.get(task, args.fence_fd) else {
            return Err(Errno::INVAL);
        };
        if args.num_fences > 0 {
            let item = FenceExtractFence { id: fence.id, threshold: fence.threshold };
            if task.write_bytes(args.fences_ptr, item.as_bytes()) > 0 {
                return Err(Errno::FAULT);
            }
        }
        args.num_fences = 1;
        Ok(())
    }

    fn trigger(&self, task: &Task<'_>, args: &TriggerPollfd) -> Result<(), Errno> {
        let mut state = self.state.lock();
        let Some(Object::PollSet(set)) = state.fds.get(task, args.fd).cloned() else {
            return Err(Errno::INVAL);
        };
        let fence = state.syncpoints.fence(args.id, args.threshold, None)?;
        // A served process has seen the last report: programs arm the descriptor before they poll it.
        state.fds.drain(task, args.fd);
        set.arm(fence);
        drop(state);
        // A poller may already wait for a threshold that has been reached.
        self.log.pulse.beat();
        Ok(())
    }

    /// Handles SYNC_IOC_FILE_INFO, the only sync-file request that GPU drivers use.
    pub(super) fn sync_file_ioctl(
        &self,
        task: &Task<'_>,
        fence: &Fence,
        code: Code,
        address: u64,
    ) -> Result<i32, Errno> {
        if code.code != sync_file::code::FILE_INFO {
            return Err(Errno::NOTTY);
        }
        let mut argument = Argument::copy_in(task, code, address)?;
        argument.call(|args: &mut FileInfo| {
            if args.flags != 0 || args.pad != 0 {
                return Err(Errno::INVAL);
            }
            let status = status(fence);
            if args.num_fences > 0 {
                let info = FenceInfo {
                    object: padded("host1x"),
                    driver: padded("host1x"),
                    status,
                    flags: 0,
                    timestamp_ns: 0,
                };
                if task.write_bytes(args.sync_fence_info, info.as_bytes()) > 0 {
                    return Err(Errno::FAULT);
                }
            }
            args.name = padded(&format!("host1x-{}:{}", fence.id, fence.threshold));
            (args.status, args.num_fences) = (status, 1);
            Ok(())
        })?;
        if argument.copy_out() > 0 { Err(Errno::FAULT) } else { Ok(0) }
    }
}

/// Returns whether a sync-file is readable; if not, its deadline.
pub(super) fn poll_fence(fence: &Fence) -> Result<(), Option<Instant>> {
    // The first poll starts the time limit.
    let deadline = fence.arm();
    match fence.result() {
        Some(_) => Ok(()),
        None => Err(deadline),
    }
}
