//! Allocations under the checks of the software Orin (`orin_sim::check`).
//!
//! The model cannot see where a buffer ends inside of a slab. While it checks or profiles, the heap tells it each
//! block. With memcheck it leaves a red zone behind each block, and keeps freed blocks in quarantine before they are
//! used again.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use gpu_hal::Driver;
use orin_sim::check::{Checker, Pointer, Tools, Watcher, What};

use super::lock;
use super::pool::{Content, Memory};

/// Smallest and largest red zone in bytes.
const RED_ZONE: (u64, u64) = (256, 64 << 10);
/// Limits of the quarantine: bytes, and blocks.
const QUARANTINE: (u64, usize) = (64 << 20, 4096);

/// Freed blocks, oldest first.
#[derive(Debug, Default)]
struct Quarantine {
    blocks: VecDeque<Arc<Memory>>,
    bytes: u64,
}

/// The watcher of a heap, and its quarantine.
#[derive(Debug)]
pub(crate) struct Watched {
    watcher: Arc<Watcher>,
    quarantine: Mutex<Quarantine>,
}

impl Watched {
    /// The watcher of a driver, if a software GPU behind it checks.
    pub(super) fn of(driver: &dyn Driver) -> Option<Self> {
        let watcher = driver.watcher()?.downcast().ok()?;
        Some(Self { watcher, quarantine: Mutex::default() })
    }

    /// The checks.
    pub(crate) fn checker(&self) -> &Checker {
        self.watcher.checker()
    }

    /// Whether objects have red zones, and freed ones are kept for a while.
    fn keeps_apart(&self) -> bool {
        self.checker().tools().contains(Tools::MEMCHECK)
    }

    /// Bytes to allocate for an object of `bytes` bytes, with its red zone.
    pub(super) fn with_red_zone(&self, bytes: u64) -> u64 {
        if !self.keeps_apart() {
            return bytes;
        }
        bytes.saturating_add(bytes.clamp(RED_ZONE.0, RED_ZONE.1))
    }

    /// Memory of the driver that is not a block of the pool.
    pub(super) fn driver_memory(&self, va: u64, bytes: u64, name: &str) {
        self.watcher.allocated(va, bytes, bytes, What::Driver, name);
    }

    /// A block was allocated for `bytes` bytes.
    pub(super) fn allocated(&self, memory: &Memory, bytes: u64) {
        let (va, whole, name) = (memory.gpu_va(), memory.bytes(), memory.content().name());
        let what = match memory.content() {
            Content::Buffer => What::Data,
            Content::Program => What::Program,
            // Kernels may use them; their first value is written by the CPU.
            Content::Signal => return self.watcher.imported(va, bytes, whole, name),
            _ => What::Driver,
        };
        self.watcher.allocated(va, bytes, whole, what, name);
    }

    /// Memory of the process was imported.
    pub(super) fn adopted(&self, memory: &Memory, bytes: u64) {
        let (va, whole) = (memory.gpu_va(), memory.bytes());
        self.watcher.imported(va, bytes.min(whole), whole, "imported memory");
    }

    /// A block was named.
    pub(super) fn named(&self, memory: &Memory, name: &str) {
        self.watcher.named(memory.gpu_va(), name);
    }

    /// A block was freed. Returns those that may be used again.
    pub(super) fn freed(&self, memory: Arc<Memory>) -> Vec<Arc<Memory>> {
        if memory.is_imported() || !self.keeps_apart() {
            self.watcher.recycled(memory.gpu_va());
            return vec![memory];
        }
        self.watcher.freed(memory.gpu_va());
        let mut quarantine = lock(&self.quarantine);
        quarantine.bytes += memory.bytes();
        quarantine.blocks.push_back(memory);
        let mut released = Vec::new();
        while (quarantine.bytes > QUARANTINE.0 || quarantine.blocks.len() > QUARANTINE.1)
            && let Some(oldest) = quarantine.blocks.pop_front()
        {
            quarantine.bytes -= oldest.bytes();
            self.watcher.recycled(oldest.gpu_va());
            released.push(oldest);
        }
        released
    }

    /// Ends the quarantine of all blocks.
    pub(super) fn release_all(&self) -> Vec<Arc<Memory>> {
        let quarantine = std::mem::take(&mut *lock(&self.quarantine));
        quarantine.blocks.iter().for_each(|memory| self.watcher.recycled(memory.gpu_va()));
        quarantine.blocks.into()
    }

    /// A launch whose constant bank 0 is at `va` uses `shared` bytes of shared memory, and buffers: offset in the bank,
    /// address and bytes.
    pub(super) fn launch(&self, va: u64, shared: u32, buffers: impl Iterator<Item = (usize, u64, usize)>) {
        // CAST: an offset in a constant bank; usize is at most 64 bits.
        let pointer = |(offset, va, bytes)| Pointer { offset: offset as u32, va, bytes: bytes as u64 };
        self.watcher.launch(va, shared, buffers.map(pointer).collect());
    }

    /// A program was loaded into a block.
    pub(crate) fn loaded(&self, va: u64, cubin: &[u8]) {
        self.watcher.loaded(va, cubin);
    }

    /// The CPU opens or closes a view.
    pub(crate) fn viewed(&self, va: u64, viewed: bool) {
        self.watcher.viewed(va, viewed);
    }

    /// The CPU has written bytes.
    pub(crate) fn written(&self, va: u64, bytes: usize) {
        // CAST: usize is at most 64 bits.
        self.watcher.written(va, bytes as u64);
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.watcher.closed();
    }
}
