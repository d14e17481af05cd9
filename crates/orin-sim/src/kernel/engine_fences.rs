//! Fences of an engine beside the GPU, such as that of a camera.

use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::Arc;

use rustix::io::Errno;

use super::SoftwareOrin;
use super::fence::{Fence, SyncFile};
use super::process::fds::Object;

/// How an engine signals.
#[derive(Debug)]
enum Signals {
    /// One syncpoint, which each frame increments: its number, and its value after all frames so far.
    Syncpoint { id: u32, end: u32 },
    /// One fence for each frame.
    Driver(&'static str),
}

/// The fences of an engine, in the order of its work.
#[derive(Debug)]
pub(crate) struct EngineFences {
    orin: SoftwareOrin,
    signals: Signals,
}

/// The end of one piece of work of an engine.
#[derive(Clone, Debug)]
pub(crate) struct EngineFence(Arc<Fence>);

/// What an engine waits for before it begins: the fences of a sync-file.
#[derive(Debug)]
pub(crate) struct Awaited(Arc<SyncFile>);

impl Awaited {
    /// Whether all have ended, with success or not.
    pub(crate) fn has_ended(&self) -> bool {
        self.0.result().is_some()
    }
}

impl EngineFences {
    /// Fences of a syncpoint of host1x.
    ///
    /// # Errors
    ///
    /// EBUSY if no syncpoint is free, as `host1x_syncpt_alloc` fails then.
    pub(crate) fn of_host1x(orin: &SoftwareOrin) -> Result<Self, Errno> {
        let mut state = orin.board.kernel.state.lock();
        let id = state.syncpoints.take_for_engine().ok_or(Errno::BUSY)?;
        let signals = Signals::Syncpoint { id, end: state.syncpoints.value(id) };
        Ok(Self { orin: orin.clone(), signals })
    }

    /// Fences of a driver with this name.
    pub(crate) fn of_driver(orin: &SoftwareOrin, name: &'static str) -> Self {
        Self { orin: orin.clone(), signals: Signals::Driver(name) }
    }

    /// The end of the next piece of work.
    ///
    /// # Errors
    ///
    /// None in practice: the syncpoint exists.
    pub(crate) fn next(&mut self) -> Result<EngineFence, Errno> {
        let kernel = &self.orin.board.kernel;
        Ok(EngineFence(match &mut self.signals {
            Signals::Syncpoint { id, end } => {
                *end = end.wrapping_add(1);
                kernel.state.lock().syncpoints.fence(*id, *end, Some(kernel.config.fence_timeout))?
            }
            Signals::Driver(name) => Arc::new(Fence::of_driver(name)),
        }))
    }

    /// The work has ended. Work of a syncpoint ends in order.
    pub(crate) fn complete(&self, fence: &EngineFence) {
        let kernel = &self.orin.board.kernel;
        match self.signals {
            Signals::Syncpoint { id, .. } => kernel.state.lock().syncpoints.add(id, 1),
            Signals::Driver(_) => fence.0.signal(Ok(()), &kernel.log.pulse),
        }
    }

    /// The work will not end. A driver says so; a syncpoint just does not reach the value.
    pub(crate) fn abort(&self, fence: &EngineFence) {
        if let Signals::Driver(_) = self.signals {
            fence.0.signal(Err(Errno::CANCELED), &self.orin.board.kernel.log.pulse);
        }
    }
}

impl Drop for EngineFences {
    /// Advances the syncpoint to its end, as the end of a channel does, so that no waiter is left.
    fn drop(&mut self) {
        if let Signals::Syncpoint { id, end } = self.signals {
            let mut state = self.orin.board.kernel.state.lock();
            state.syncpoints.finish(id, end);
            state.syncpoints.give_back(id);
        }
    }
}

impl SoftwareOrin {
    /// A sync-file of an engine's fence, which the caller owns also after the end of the board.
    ///
    /// # Errors
    ///
    /// EMFILE or ENFILE.
    pub(crate) fn engine_sync_file(&self, fence: &EngineFence) -> Result<OwnedFd, Errno> {
        let (kernel, task) = (&self.board.kernel, self.task());
        let number = kernel.sync_file(&task, SyncFile::new(Arc::clone(&fence.0)))?;
        // SAFETY: the number has just been created, and is closed below.
        let copy = rustix::io::fcntl_dupfd_cloexec(unsafe { BorrowedFd::borrow_raw(number) }, 0);
        // The table owns its number and nothing of the copy.
        kernel.close(&task, number)?;
        copy
    }

    /// The fences of a sync-file of this process.
    ///
    /// # Errors
    ///
    /// EBADF if the number is not open, EINVAL if it is no sync-file.
    pub(crate) fn awaited(&self, file: BorrowedFd<'_>) -> Result<Awaited, Errno> {
        let (state, fd): (_, RawFd) = (self.board.kernel.state.lock(), file.as_raw_fd());
        match state.fds.find(&self.task(), fd, Errno::INVAL)? {
            Object::SyncFile(file) => Ok(Awaited(file)),
            _ => Err(Errno::INVAL),
        }
    }
}
