//! Submission of words to a channel.

use core::sync::atomic::Ordering;

use kernel_door::{DoorFd, DoorMapping};
use nvgpu_sys::{nvmap, tsg};

use super::{Bench, Chain, TAG, adopt, cpu, map, submit, word};

/// Words of a host semaphore release: SEM_ADDR_LO, _HI, PAYLOAD_LO, _HI, EXECUTE.
pub(crate) fn release(va: u64, payload: u32) -> [u32; 6] {
    [0x2005_0017, va as u32, (va >> 32) as u32, payload, 0, 1]
}

pub(crate) fn write(memory: &DoorMapping, words: &[u32]) {
    for (at, value) in words.iter().enumerate() {
        word(memory, 4 * at).store(*value, Ordering::Relaxed);
    }
}

/// A chain with all mappings that a submission needs.
pub(crate) struct Running {
    pub(crate) chain: Chain,
    pub(crate) doorbell: DoorMapping,
    pub(crate) ring: DoorMapping,
    pub(crate) userd: DoorMapping,
    pub(crate) memory: DoorMapping,
    pub(crate) buffer: DoorFd,
    pub(crate) va: u64,
}

impl Running {
    pub(crate) fn new(bench: &Bench) -> Self {
        let chain = bench.chain();
        let (ring, userd) = (cpu(&chain.ring, 8192), cpu(&chain.userd, 4096));
        let buffer = bench.buffer(4096);
        let (memory, va) = (cpu(&buffer, 4096), map(&chain.space, &buffer).unwrap());
        Self { doorbell: bench.doorbell(), chain, ring, userd, memory, buffer, va }
    }

    pub(crate) fn submit(&self, words: &[u32]) {
        write(&self.memory, words);
        let len = u32::try_from(words.len()).unwrap();
        submit(&self.ring, &self.userd, &self.doorbell, self.chain.token, self.va, len);
    }

    /// Imports memory of the process and maps it for the GPU: handle, dma-buf and GPU address.
    ///
    /// # Safety
    ///
    /// The memory is unmapped only where the test says why the model may still use its addresses.
    pub(crate) unsafe fn import(&self, bench: &Bench, va: u64, size: u32) -> (u32, DoorFd, u64) {
        let flags = TAG | nvmap::CACHE_INNER_CACHEABLE;
        let mut args = nvmap::CreateHandleFromVa { va, size, flags, size_or_handle: 0 };
        // SAFETY: the caller's promise.
        unsafe { nvmap::FROM_VA.send_pointing(&bench.nvmap, &mut args) }.unwrap();
        let handle = u32::try_from(args.size_or_handle).unwrap();
        let buffer = bench.export(handle);
        let va = map(&self.chain.space, &buffer).unwrap();
        (handle, buffer, va)
    }

    /// The event that follows non-stalling interrupts.
    pub(crate) fn blocking_event(&self, bench: &Bench) -> DoorFd {
        let mut args = tsg::EventIdCtrl {
            cmd: tsg::EVENT_CMD_ENABLE,
            event_id: tsg::EVENT_BLOCKING_SYNC,
            ..Default::default()
        };
        tsg::EVENT_ID_CTRL.send(&self.chain.tsg, &mut args).unwrap();
        adopt(&bench.door, args.event_fd)
    }
}
