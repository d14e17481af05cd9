//! Waiting on syncpoints: `/dev/host1x-fence`.
//!
//! A syncpoint is a 32-bit counter of the host1x unit that only goes up, and around. The GPU counts
//! one up by writing anything into its window ([`crate::UserSyncpoint::gpu_va`]); the CPU sleeps until
//! one has reached a threshold, by a sync-file ([`FenceNode::fence`]) or a reusable poll descriptor
//! ([`FenceNode::poller`]).
//!
//! When a TSG is reset and when a channel closes, the kernel adds 1000 to the syncpoints concerned, so
//! that nobody waits for ever (`nvhost_host1x.c:nvgpu_nvhost_syncpt_set_safe_state`). A wait that ends
//! therefore says nothing of success: look at the error notifier.

use core::time::Duration;

use nvgpu_sys::door::{Events, OpenFlags, PollEntry};
use nvgpu_sys::{Door, DoorFd, Errno, host1x, paths, sync_file};
use std::sync::Arc;

use crate::channel::UserSyncpoint;
use crate::error::{self, Error};

/// The node's path in messages.
const NODE: &str = "/dev/host1x-fence";

/// Whether a syncpoint of `value` has reached `threshold`. Values wrap, so thresholds may lie at most
/// 2^31 ahead (`syncpt.c:host1x_syncpt_is_expired`).
pub const fn has_reached(value: u32, threshold: u32) -> bool {
    value.wrapping_sub(threshold) & 1 << 31 == 0
}

/// A value that a syncpoint is to reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Threshold {
    /// Number of the syncpoint.
    pub id: u32,
    /// The value.
    pub value: u32,
}

impl UserSyncpoint {
    /// What the syncpoint will have reached after `increments` more than when it was asked for.
    pub const fn after(&self, increments: u32) -> Threshold {
        Threshold { id: self.id, value: self.value.wrapping_add(increments) }
    }
}

/// The open node.
#[derive(Clone, Debug)]
pub struct FenceNode {
    fd: Arc<DoorFd>,
}

impl FenceNode {
    /// Opens the node through `door`.
    ///
    /// # Errors
    ///
    /// [`Error::Open`].
    pub fn open(door: &Arc<dyn Door>) -> Result<Self, Error> {
        let flags = OpenFlags::READ_WRITE | OpenFlags::CLOSE_ON_EXEC;
        let fd = DoorFd::open(door, paths::HOST1X_FENCE, flags)
            .map_err(|errno| Error::Open { path: NODE, errno })?;
        Ok(Self { fd: Arc::new(fd) })
    }

    /// Makes a sync-file for a threshold: what other drivers and processes wait on, too.
    ///
    /// # Errors
    ///
    /// [`Error::Call`]; `EINVAL` for a syncpoint that does not exist.
    pub fn fence(&self, threshold: Threshold) -> Result<Fence, Error> {
        let mut argument = host1x::CreateFence {
            id: threshold.id,
            threshold: threshold.value,
            ..host1x::CreateFence::default()
        };
        host1x::CREATE_FENCE
            .send(&self.fd, &mut argument)
            .map_err(error::call(host1x::CREATE_FENCE.name(), format!("syncpoint {}", threshold.id)))?;
        Ok(Fence { fd: DoorFd::from_raw(self.fd.door(), argument.fence_fd) })
    }

    /// The thresholds inside a sync-file that have not been reached, 16 at most.
    ///
    /// # Errors
    ///
    /// [`Error::Call`]; `EINVAL` if it holds an active fence of another driver.
    pub fn thresholds(&self, fence: &Fence) -> Result<Vec<Threshold>, Error> {
        let mut inside = [host1x::FenceExtractFence::default(); 16];
        let count = host1x::fence_extract(&self.fd, &fence.fd, &mut inside)
            .map_err(error::call(host1x::FENCE_EXTRACT.name(), "the fence"))?;
        let threshold =
            |fence: &host1x::FenceExtractFence| Threshold { id: fence.id, value: fence.threshold };
        Ok(inside[..count.min(inside.len())].iter().map(threshold).collect())
    }

    /// Makes a descriptor that can be armed again and again.
    ///
    /// # Errors
    ///
    /// [`Error::Call`].
    pub fn poller(&self) -> Result<SyncpointPoller, Error> {
        let mut argument = host1x::CreatePollfd::default();
        host1x::CREATE_POLLFD
            .send(&self.fd, &mut argument)
            .map_err(error::call(host1x::CREATE_POLLFD.name(), NODE))?;
        let fd = DoorFd::from_raw(self.fd.door(), argument.fd);
        Ok(SyncpointPoller { fd, node: Arc::clone(&self.fd) })
    }
}

/// A sync-file.
#[derive(Debug)]
pub struct Fence {
    fd: DoorFd,
}

impl Fence {
    /// Waits at most `timeout`; whether the threshold was reached. The kernel gives a fence up 30 s
    /// after the first wait for it (`fence.c:do_fence_timeout`); for longer waits use a
    /// [`SyncpointPoller`].
    ///
    /// # Errors
    ///
    /// [`Error::Call`]: `ETIMEDOUT` once the kernel has given the fence up. An interruption by a
    /// signal counts as not reached.
    pub fn wait(&self, timeout: Duration) -> Result<bool, Error> {
        if !poll(&self.fd, Events::IN, timeout, "the fence")? {
            return Ok(false);
        }
        match sync_file::status(&self.fd) {
            Ok(None) => Ok(false),
            Ok(Some(Ok(()))) => Ok(true),
            Ok(Some(Err(errno))) | Err(errno) => {
                Err(error::call(sync_file::FILE_INFO.name(), "the fence")(errno))
            }
        }
    }

    /// The descriptor, for requests that take one.
    pub fn fd(&self) -> &DoorFd {
        &self.fd
    }
}

/// A descriptor that becomes readable when an armed threshold is reached.
///
/// One thread waits on one poller: a wait takes all reached thresholds off it. The kernel keeps a
/// little memory for each threshold ever armed until the process ends (`dev.c:
/// dev_file_ioctl_trigger_pollfd`), so make few pollers and keep them.
#[derive(Debug)]
pub struct SyncpointPoller {
    fd: DoorFd,
    node: Arc<DoorFd>,
}

impl SyncpointPoller {
    /// Arms the poller for a threshold; one already reached counts at once.
    ///
    /// # Errors
    ///
    /// [`Error::Call`]; `EINVAL` for a syncpoint that does not exist.
    pub fn arm(&self, threshold: Threshold) -> Result<(), Error> {
        let mut argument = host1x::TriggerPollfd {
            fd: self.fd.raw(),
            id: threshold.id,
            threshold: threshold.value,
            reserved: 0,
        };
        host1x::TRIGGER_POLLFD
            .send(&self.node, &mut argument)
            .map(drop)
            .map_err(error::call(host1x::TRIGGER_POLLFD.name(), format!("syncpoint {}", threshold.id)))
    }

    /// Waits at most `timeout` for any of the thresholds; whether one was reached.
    ///
    /// # Errors
    ///
    /// [`Error::Call`]. An interruption by a signal counts as not reached.
    pub fn wait(&self, timeout: Duration) -> Result<bool, Error> {
        poll(&self.fd, Events::IN | Events::PRIORITY, timeout, "the syncpoint poller")
    }
}

fn poll(fd: &DoorFd, wanted: Events, timeout: Duration, object: &'static str) -> Result<bool, Error> {
    let mut entries = [PollEntry { fd: fd.raw(), wanted, happened: Events::empty() }];
    match fd.door().poll(&mut entries, timeout) {
        Ok(_) => Ok(entries[0].happened.intersects(wanted)),
        Err(Errno::INTR) => Ok(false),
        Err(errno) => Err(error::call("poll", object)(errno)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::address_space::GpuVa;

    #[test]
    fn thresholds_wrap() {
        assert!(has_reached(5, 5) && has_reached(6, 5) && !has_reached(4, 5));
        assert!(has_reached(3, u32::MAX - 2), "wrapped past it");
        assert!(!has_reached(u32::MAX - 2, 3), "not yet wrapped");
        let syncpoint = UserSyncpoint { id: 9, gpu_va: GpuVa(0), value: u32::MAX };
        assert_eq!(syncpoint.after(2), Threshold { id: 9, value: 1 });
    }
}
