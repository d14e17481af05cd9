//! One thread of the load: two queues, a few programs, random decisions.

use std::time::Duration;

use tegra_hcq::{Device, Fence, Kernel, Program, Queue};

use super::Soak;
use test_harness::Check;
use test_support::Numbers;

/// An embedded cubin of `kernels`.
macro_rules! cubin {
    ($file:literal) => {
        [
            include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../kernels/", $file, ".cubin"))
                .as_slice(),
            include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../kernels/sm_90/", $file, ".cubin")),
        ]
    };
}
pub(super) use cubin;

/// State of a worker thread.
pub(super) struct Worker<'a> {
    pub(super) soak: &'a Soak<'a>,
    pub(super) device: &'a Device,
    /// Thread number, for the ledger.
    pub(super) number: usize,
    pub(super) numbers: Numbers,
    /// The queue used for faults.
    pub(super) queue: Queue,
    /// The second queue, which no fault may affect.
    pub(super) other: Queue,
    pub(super) basics: Program,
    pub(super) faults: Program,
}

impl<'a> Worker<'a> {
    pub(super) fn new(
        soak: &'a Soak<'a>,
        device: &'a Device,
        number: usize,
        seed: u64,
    ) -> Result<Self, tegra_hcq::Error> {
        Ok(Self {
            soak,
            device,
            number,
            numbers: Numbers::new(seed),
            queue: device.queue()?,
            other: device.queue()?,
            basics: Program::load_fitting(device, &cubin!("basics"))?,
            faults: Program::load_fitting(device, &cubin!("faults"))?,
        })
    }

    /// A random number in `0..end`.
    pub(super) fn below(&mut self, end: u32) -> u32 {
        self.numbers.u32() % end
    }

    /// A random number of elements, usually small.
    pub(super) fn len(&mut self) -> usize {
        let most = [16, 300, 5000][self.below(3) as usize];
        1 + self.below(most) as usize
    }

    pub(super) fn basic(&self, kernel: &str) -> Result<Kernel, tegra_hcq::Error> {
        self.basics.kernel(kernel)
    }

    /// Time limit for undisturbed work.
    pub(super) fn patience(&self) -> Duration {
        super::super::fixtures::patience(self.soak.context)
    }

    /// Waits for undisturbed work.
    pub(super) fn finish(&self, fence: &Fence) -> Check {
        Ok(fence.wait(self.patience())?)
    }
}
