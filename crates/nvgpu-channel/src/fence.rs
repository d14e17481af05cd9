//! Syncpoint fences: `/dev/host1x-fence`.
//!
//! A syncpoint is a 32-bit counter in the host1x unit. It only increments, and wraps. The GPU increments one when it
//! writes any value into the syncpoint's window ([`crate::UserSyncpoint::gpu_va`]). A sync-file ([`FenceNode::fence`])
//! lets the CPU sleep until a syncpoint reaches a threshold; the display, camera and video drivers accept the same
//! sync-file, which is how GPU work is ordered with theirs.
//!
//! When a TSG is reset or a channel closes, the kernel adds 1000 to the syncpoints of the channel so that waiters wake
//! up (`nvhost_host1x.c:nvgpu_nvhost_syncpt_set_safe_state`). A completed wait therefore does not mean success: check
//! the error notifier.

use core::time::Duration;

use kernel_door::{Door, DoorFd, Errno, Events, OpenFlags};
use nvgpu_sys::{host1x, paths, sync_file};
use std::sync::Arc;

use crate::channel::UserSyncpoint;
use crate::error::{self, Error};

/// Path of the node, for messages.
const NODE: &str = paths::text(paths::HOST1X_FENCE);

/// Whether a syncpoint with the value `value` has reached `threshold`. Values wrap, so a threshold may be at most
/// 2^31 ahead (`syncpt.c:host1x_syncpt_is_expired`).
pub const fn has_reached(value: u32, threshold: u32) -> bool {
    value.wrapping_sub(threshold) & 1 << 31 == 0
}

/// A syncpoint and the value to wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Threshold {
    /// Number of the syncpoint.
    pub id: u32,
    /// Value that the syncpoint has to reach.
    pub value: u32,
}

impl UserSyncpoint {
    /// The threshold `increments` above [`UserSyncpoint::value`].
    pub const fn after(&self, increments: u32) -> Threshold {
        Threshold { id: self.id, value: self.value.wrapping_add(increments) }
    }
}

/// An open `/dev/host1x-fence`.
#[derive(Debug)]
pub struct FenceNode {
    fd: DoorFd,
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
        Ok(Self { fd })
    }

    /// Creates a sync-file that signals at a threshold. Other drivers and processes can wait on it.
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
        // SAFETY: the request returned a new descriptor.
        Ok(Fence { fd: unsafe { DoorFd::from_raw(self.fd.door(), argument.fence_fd) } })
    }
}

impl FenceNode {
    /// The thresholds that a sync-file waits for, of any driver whose fences are syncpoints: camera, display, video,
    /// GPU. None if it has signalled.
    ///
    /// # Errors
    ///
    /// [`Error::NotASyncFile`], [`Error::ForeignFence`], [`Error::FailedFence`]; [`Error::Call`].
    pub fn thresholds(&self, file: &DoorFd) -> Result<Vec<Threshold>, Error> {
        let status = sync_file::status(file).map_err(|errno| match errno {
            Errno::NOTTY | Errno::INVAL => Error::NotASyncFile,
            errno => error::call(sync_file::FILE_INFO.name(), "the sync-file")(errno),
        })?;
        match status {
            Some(Ok(())) => return Ok(Vec::new()),
            Some(Err(errno)) => return Err(Error::FailedFence(errno)),
            None => {}
        }
        let mut found = vec![host1x::FenceExtractFence::default(); FEW_FENCES];
        loop {
            let count = host1x::fence_extract(&self.fd, file, &mut found).map_err(|errno| match errno {
                Errno::INVAL => Error::ForeignFence,
                errno => error::call(host1x::FENCE_EXTRACT.name(), "the sync-file")(errno),
            })?;
            if count <= found.len() {
                found.truncate(count);
                return Ok(found
                    .iter()
                    .map(|fence| Threshold { id: fence.id, value: fence.threshold })
                    .collect());
            }
            // The fences of a sync-file do not change, so the second call has room.
            found.resize(count, host1x::FenceExtractFence::default());
        }
    }
}

/// Number of fences in a sync-file for which one request suffices.
const FEW_FENCES: usize = 8;

/// A sync-file that signals when a syncpoint reaches a threshold.
///
/// ```
/// # use std::sync::Arc;
/// # use std::time::Duration;
/// # use nvgpu_channel::{FenceNode, Gpu};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let door: Arc<dyn kernel_door::Door> = Arc::new(orin_sim::SoftwareOrin::new(orin_sim::Config::default())?);
/// # let gpu = Gpu::open(&door)?;
/// # let subcontext = gpu.tsg()?.subcontext(&gpu.address_space()?)?;
/// let channel = subcontext.channel(gpu.characteristics().compute_class()).open()?;
/// let syncpoint = channel.user_syncpoint()?;
/// let fence = FenceNode::open(&door)?.fence(syncpoint.after(1))?;
/// // Submit work that writes to `syncpoint.gpu_va`, then pass `fence.fd()` to another driver, or wait here.
/// # channel.force_reset()?; // The kernel advances the syncpoint of a dead channel.
/// assert!(fence.wait(Duration::from_secs(10))?);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Fence {
    fd: DoorFd,
}

impl Fence {
    /// Waits at most `timeout` and returns whether the syncpoint reached the threshold. The kernel cancels a fence
    /// 30 s after the first wait for it (`fence.c:do_fence_timeout`); for a longer wait, create a new fence.
    ///
    /// # Errors
    ///
    /// [`Error::Call`]: `ETIMEDOUT` if the kernel has cancelled the fence. An interrupted wait returns `false`.
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

    /// The descriptor, for requests that take a sync-file.
    pub fn fd(&self) -> &DoorFd {
        &self.fd
    }
}

/// Waits for events of `object`, and returns whether one of them occurred; an interrupted wait returns `false`.
pub(crate) fn poll(
    fd: &DoorFd,
    wanted: Events,
    timeout: Duration,
    object: &'static str,
) -> Result<bool, Error> {
    match fd.poll(wanted, timeout) {
        Ok(happened) => Ok(happened.intersects(wanted)),
        Err(Errno::INTR) => Ok(false),
        Err(errno) => Err(error::call("poll", object)(errno)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::va::GpuVa;

    #[test]
    fn thresholds_wrap() {
        assert!(has_reached(5, 5) && has_reached(6, 5) && !has_reached(4, 5));
        assert!(has_reached(3, u32::MAX - 2), "wrapped past it");
        assert!(!has_reached(u32::MAX - 2, 3), "not yet wrapped");
        let syncpoint = UserSyncpoint { id: 9, gpu_va: GpuVa(0), value: u32::MAX };
        assert_eq!(syncpoint.after(2), Threshold { id: 9, value: 1 });
    }
}
