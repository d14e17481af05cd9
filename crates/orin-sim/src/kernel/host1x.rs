//! `/dev/host1x-fence` (`drivers/gpu/host1x-fence/dev.c`).
//!
//! Its sync-files time out 30 seconds after the first wait: then they also poll readable, and only their status shows
//! the difference. A poll descriptor contains any number of fences without a time limit, and reports once that some
//! have signalled.

use std::sync::Arc;

use nvgpu_sys::host1x::{CreateFence, CreatePollfd, FenceExtract, FenceExtractFence, TriggerPollfd, code};
use rustix::io::Errno;
use zerocopy::IntoBytes;

use super::Kernel;
use super::argument::{Argument, Code};
use super::fence::{SyncFile, Threshold};
use super::process::fds::{self, Object};
use super::process::task::Task;

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
        args.fence_fd = self.sync_file(task, SyncFile::new(fence))?;
        Ok(())
    }

    fn extract(&self, task: &Task<'_>, args: &mut FenceExtract) -> Result<(), Errno> {
        if args.reserved != [0; 2] {
            return Err(Errno::INVAL);
        }
        let state = self.state.lock();
        let Some(Object::SyncFile(file)) = state.fds.get(task, args.fence_fd) else {
            return Err(Errno::INVAL);
        };
        let thresholds = file.thresholds()?;
        let mut place = args.fences_ptr;
        for Threshold { id, threshold } in thresholds.iter().take(args.num_fences as usize) {
            let item = FenceExtractFence { id: *id, threshold: *threshold };
            if task.write_bytes(place, item.as_bytes()) > 0 {
                return Err(Errno::FAULT);
            }
            place = place.wrapping_add(size_of_val(&item) as u64);
        }
        // CAST: as many as descriptors at most.
        args.num_fences = thresholds.len() as u32;
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
}
