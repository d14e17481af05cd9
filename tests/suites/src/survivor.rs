//! Work that must not be affected by errors in another queue or another process.

use tegra_hcq::{Buffer, Device, Error, Kernel, Queue, args};

use super::fixtures::{ensure, equal, kernel, patience};
use test_harness::{Check, Context};

/// A queue with its own memory. Each round checks the results of all previous rounds.
pub(super) struct Survivor<'a> {
    pub(super) context: &'a Context,
    pub(super) device: &'a Device,
    pub(super) queue: Queue,
    increment: Kernel,
    data: Buffer<u32>,
    copy: Buffer<u32>,
    rounds: u32,
}

/// Elements that the survivor works on.
const LEN: usize = 1000;

impl<'a> Survivor<'a> {
    pub(super) fn new(context: &'a Context) -> Result<Self, Error> {
        let device = context.device()?;
        Ok(Self {
            context,
            device,
            queue: device.queue()?,
            increment: kernel!(device, "basics", "increment")?,
            data: device.alloc_zeroed(LEN)?,
            copy: device.alloc_zeroed(LEN)?,
            rounds: 0,
        })
    }

    /// One round of work, checked.
    pub(super) fn work(&mut self) -> Check {
        self.rounds += 1;
        // CAST: far below 2^32.
        unsafe { self.queue.launch(&self.increment, 8, 128, &args![&self.data, LEN as u32]) }?;
        self.queue.copy(&self.data, &mut self.copy)?;
        self.queue.submit()?.wait(patience(self.context))?;
        equal("the survivor's data", &self.copy.to_vec()?, &[self.rounds; LEN])
    }

    /// Checks that the queue works and needs no recovery.
    pub(super) fn undisturbed(&mut self) -> Check {
        self.work()?;
        let recovery = self.device.recover()?;
        ensure(recovery.is_empty(), || format!("recovery found lost work: {recovery:?}"))
    }
}
