//! A software Orin and small pushbuffers for it.

#![allow(dead_code, reason = "each test binary uses its own part of this module")]

pub(crate) mod front;

use core::sync::atomic::Ordering;
use core::time::Duration;
use std::sync::Arc;
use std::time::Instant;

use kernel_door::Door;
use nvgpu_channel::{AddressSpace, Channel, Gpu, GpuVa, MapOptions, Mapping};
use nvmap::Buffer;
use orin_sim::{Config, SoftwareOrin};

/// Longest wait for the GPU thread.
const PATIENCE: Duration = Duration::from_secs(20);

/// A booted board and the door to it.
pub(crate) fn boot(config: Config) -> (SoftwareOrin, Arc<dyn Door>) {
    let orin = SoftwareOrin::new(config).unwrap();
    let door: Arc<dyn Door> = Arc::new(orin.clone());
    (orin, door)
}

/// A board and its GPU.
pub(crate) fn open() -> (SoftwareOrin, Gpu) {
    let (orin, door) = boot(Config::default());
    let gpu = Gpu::open(&door).unwrap();
    (orin, gpu)
}

/// A compute channel on its own TSG, with a ring of `entries`.
pub(crate) fn compute_channel(gpu: &Gpu, space: &AddressSpace, entries: u32) -> Channel {
    let subcontext = gpu.tsg().unwrap().subcontext(space).unwrap();
    let class = gpu.characteristics().compute_class();
    subcontext.channel(class).entries(entries).label("compute").open().unwrap()
}

/// A board, its GPU, an address space, and a page of work and a compute channel with a ring of `entries` in it.
pub(crate) fn working(entries: u32) -> (SoftwareOrin, Gpu, AddressSpace, Work, Channel) {
    let (orin, gpu) = open();
    let space = gpu.address_space().unwrap();
    let work = Work::new(&gpu, &space);
    let channel = compute_channel(&gpu, &space, entries);
    (orin, gpu, space, work, channel)
}

/// A page with a pushbuffer at 0 and semaphores from 2048.
pub(crate) struct Work {
    pub(crate) buffer: Arc<Buffer>,
    pub(crate) mapping: Mapping,
}

impl Work {
    pub(crate) fn new(gpu: &Gpu, space: &AddressSpace) -> Self {
        let buffer = Arc::new(gpu.nvmap().buffer(4096).label("work").allocate().unwrap());
        let mapping = space.map(&buffer, MapOptions::default()).unwrap();
        Self { buffer, mapping }
    }

    /// GPU address of the semaphore.
    pub(crate) fn semaphore(&self) -> GpuVa {
        self.mapping.va().checked_add(2048).unwrap()
    }

    /// Writes a release of `value` at `target` into pushbuffer slot `slot` and returns its entry.
    pub(crate) fn release(&self, slot: usize, target: GpuVa, value: u64) -> u64 {
        // Host class C76F: SEM_ADDR_LO, SEM_ADDR_HI, SEM_PAYLOAD_LO, SEM_PAYLOAD_HI, SEM_EXECUTE
        // (release, 64-bit payload) on subchannel 0, incrementing.
        let low = |value: u64| u32::try_from(value & 0xffff_ffff).unwrap();
        let (address, words) = (target.get(), slot * 32);
        self.buffer
            .copy_from_slice(
                words,
                &[
                    0x2005_0017_u32,
                    low(address),
                    low(address >> 32),
                    low(value),
                    low(value >> 32),
                    1 | 1 << 24,
                ],
            )
            .unwrap();
        (self.mapping.va().get() + words as u64) | 6 << 42
    }

    /// As [`Work::release`], followed by a non-stalling interrupt of the host engine.
    pub(crate) fn release_and_interrupt(&self, slot: usize, target: GpuVa, value: u64) -> u64 {
        let entry = self.release(slot, target, value);
        // NON_STALL_INTERRUPT of class C76F, with an unused value.
        self.buffer.copy_from_slice(slot * 32 + 24, &[0x2001_0008_u32, 0]).unwrap();
        entry + (2 << 42)
    }

    /// Whether the semaphore is `value`.
    pub(crate) fn is(&self, value: u64) -> bool {
        self.buffer.load_u64(2048, Ordering::Acquire) == value
    }

    /// Waits for the semaphore to become `value` and returns whether it did.
    pub(crate) fn wait(&self, value: u64) -> bool {
        eventually(|| self.buffer.load_u64(2048, Ordering::Acquire) == value)
    }
}

/// Polls until `condition` holds and returns whether it did in time.
pub(crate) fn eventually(mut condition: impl FnMut() -> bool) -> bool {
    let start = Instant::now();
    while !condition() {
        if start.elapsed() > PATIENCE {
            return false;
        }
        std::thread::yield_now();
    }
    true
}
