//! The device's memory, and the timelines that determine when it may be reused.
//!
//! Buffers, programs and queues hold memory by [`Handle`]s. After the last handle of a block is dropped, the block is
//! parked until the timelines have passed its [`Uses`]; then it returns to the pool.

use core::any::Any;
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::collections::VecDeque;
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

use gpu_hal::{DeviceMemory, Driver, MemoryInfo, MemoryUse};
use parking_lot::Mutex;

use crate::error::{Error, RangeError, Result};
use crate::interrupt::Interrupts;
use crate::limits::MAX_QUEUES;
use files::Files;
use peers::Peers;
use pool::{Pool, Slab};
use staging::Staging;
use timeline::{Progress, Timeline};

mod files;
mod handle;
mod observer;
mod peers;
mod pool;
mod staging;
pub(crate) mod timeline;
mod uses;

pub(crate) use handle::{Handle, Mapped};
pub(crate) use observer::Observer;
pub use pool::PoolUsage;
pub(crate) use pool::{Content, CpuAccess, Memory};
use uses::Claims;
pub(crate) use uses::Uses;

/// Identifies a device; a call with objects of different devices is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DeviceId(usize);

/// Number of bytes copied by the CPU before a copy channel is opened for such copies.
const WORTH_A_CHANNEL: usize = 1 << 20;

/// State of the copy channel that copies between the process and GPU memory.
#[derive(Debug)]
enum StagingState {
    /// Not open yet; bytes copied by the CPU so far.
    Closed(usize),
    Open(Staging),
    /// Failed; not retried.
    Failed,
}

impl StagingState {
    /// Opens the channel once enough bytes were copied. Returns `None` if there is no channel.
    fn open(&mut self, driver: &dyn Driver, bytes: usize) -> Option<&mut Staging> {
        if let Self::Closed(copied) = self {
            *copied = copied.saturating_add(bytes);
            if *copied < WORTH_A_CHANNEL {
                return None;
            }
            *self = Staging::open(driver).map_or_else(Self::failed, Self::Open);
        }
        match self {
            Self::Open(staging) => Some(staging),
            Self::Closed(_) | Self::Failed => None,
        }
    }

    fn failed(error: staging::Failure) -> Self {
        tracing::warn!(%error, "copies between the process and GPU memory are slow from now on");
        Self::Failed
    }

    /// Copies with `copy`, if there is a channel. Returns whether the bytes were copied.
    fn copy(
        &mut self,
        driver: &dyn Driver,
        bytes: usize,
        copy: impl FnOnce(&mut Staging) -> Result<(), staging::Failure>,
    ) -> bool {
        let Some(staging) = self.open(driver, bytes) else { return false };
        match copy(staging) {
            Ok(()) => true,
            Err(error) => {
                *self = Self::failed(error);
                false
            }
        }
    }
}

/// Number of parked blocks that are all checked at each sweep.
const FEW_PARKED: usize = 32;

/// Blocks without an owner that the GPU may still use, oldest first.
#[derive(Debug, Default)]
struct Parked {
    blocks: VecDeque<Arc<Memory>>,
    /// Number of blocks from which a sweep checks all of them: twice the number that the last such sweep left.
    check_all_at: usize,
}

/// Memory, timelines and driver of a device.
#[derive(Debug)]
pub(crate) struct Heap {
    /// The checks of a software GPU. Declared first: its quarantine is freed before the pool.
    observer: Option<Box<dyn Observer>>,
    // Declared before `driver`: memory is freed before the driver that allocated it.
    pool: Pool,
    staging: Mutex<StagingState>,
    /// Blocks without an owner that the GPU may still use.
    parked: Mutex<Parked>,
    parked_count: AtomicUsize,
    timelines: Box<[Timeline]>,
    /// The most recent values seen on the timelines. Avoids CPU loads of cache lines that the GPU writes.
    seen: Box<[AtomicU64]>,
    /// The queues whose work may use any memory.
    claims: Claims,
    /// The queue in each slot.
    queues: Mutex<Vec<Option<Weak<dyn Progress>>>>,
    /// What kernels print, once a program can print.
    output: OnceLock<Weak<dyn Drain>>,
    /// The GPFIFO entry of an interrupt: see [`timeline`].
    interrupt: u64,
    /// The memory of the timelines and of the interrupt's commands.
    signals: Box<dyn DeviceMemory>,
    /// The devices whose memory this device may map.
    peers: Peers,
    /// Memory of other devices that is mapped on this one.
    mapped: Mutex<Vec<Weak<Slab>>>,
    /// Memory that files stand for.
    files: Files,
    driver: Box<dyn Driver>,
}

impl Heap {
    /// Creates a heap without allocations.
    pub(crate) fn new(driver: Box<dyn Driver>, observer: Option<Box<dyn Observer>>) -> Result<Arc<Self>> {
        let signals = pool::driver_memory(&*driver, timeline::WHOLE_BYTES, MemoryUse::Signals, "timelines")?;
        // SAFETY: fresh memory of `WHOLE_BYTES` bytes.
        let interrupt = unsafe { timeline::write_interrupt(&*signals)? };
        if let Some(observer) = &observer {
            observer.driver_memory(signals.gpu_va(), signals.bytes(), "timelines");
        }
        Ok(Arc::new(Self {
            observer,
            pool: Pool::new(driver.memory_info().map_or(0, |info| info.total)),
            staging: Mutex::new(StagingState::Closed(0)),
            parked: Mutex::default(),
            parked_count: AtomicUsize::new(0),
            // SAFETY: the memory has at least `timeline::BYTES` bytes; `signals` keeps it as long as the timelines.
            timelines: unsafe { timeline::over(&*signals)? },
            seen: (0..MAX_QUEUES).map(|_| AtomicU64::new(0)).collect(),
            claims: Claims::default(),
            queues: Mutex::default(),
            output: OnceLock::new(),
            interrupt,
            signals,
            peers: Peers::default(),
            mapped: Mutex::default(),
            files: Files::default(),
            driver,
        }))
    }

    pub(crate) fn driver(&self) -> &dyn Driver {
        &*self.driver
    }

    pub(crate) fn pool(&self) -> &Pool {
        &self.pool
    }

    pub(crate) fn id(&self) -> DeviceId {
        DeviceId(core::ptr::from_ref(self).addr())
    }

    /// Whether CPU and GPU use the same memory.
    pub(crate) fn has_unified_memory(&self) -> bool {
        self.driver.properties().unified_memory
    }

    /// Copies from GPU address `va` to `target` with the copy engine, if that is faster than loads by the CPU. The
    /// memory must not be written during the copy. Returns `false` if nothing was copied.
    pub(crate) fn read_out(&self, purpose: MemoryUse, va: u64, target: &mut [u8]) -> bool {
        let worth = self.driver.reads_by_engine_from().is_some_and(|least| target.len() >= least);
        let (driver, bytes) = (&*self.driver, target.len());
        worth
            && purpose == MemoryUse::Device
            && self.staging.lock().copy(driver, bytes, |staging| staging.read(va, target))
    }

    /// Copies `source` to GPU address `va` with the copy engine, if that is faster than stores by the CPU. No work may
    /// use the memory during the copy. Returns `false` if the CPU has to copy.
    pub(crate) fn write_in(&self, purpose: MemoryUse, va: u64, source: &[u8]) -> bool {
        let worth = self.driver.writes_by_engine_from().is_some_and(|least| source.len() >= least);
        if !worth || purpose != MemoryUse::Device {
            return false;
        }
        // While another thread uses the channel, stores of this thread are faster than waiting.
        let Some(mut staging) = self.staging.try_lock() else { return false };
        staging.copy(&*self.driver, source.len(), |staging| staging.write(va, source))
    }

    /// The timeline of the queue in `slot`.
    #[inline]
    pub(crate) fn timeline(&self, slot: usize) -> Timeline {
        self.timelines[slot]
    }

    /// GPU address and size in bytes of the memory of all timelines.
    #[cfg(feature = "reports")]
    pub(crate) fn timelines_at(&self) -> (u64, u64) {
        (self.timelines[0].gpu_va(), timeline::BYTES)
    }

    /// The GPFIFO entry that makes the GPU raise an interrupt.
    pub(crate) fn interrupt(&self) -> u64 {
        self.interrupt
    }

    /// The most recent value seen on the timeline in `slot`; the timeline may already be higher.
    #[inline]
    pub(crate) fn seen(&self, slot: usize) -> u64 {
        self.seen[slot].load(Ordering::Acquire)
    }

    /// Whether the timeline in `slot` has reached `value`. Writes made before the release are then visible.
    #[inline]
    pub(crate) fn reached(&self, slot: usize, value: u64) -> bool {
        self.seen(slot) >= value || self.look(slot) >= value
    }

    /// Reads the timeline in `slot`.
    #[inline]
    pub(crate) fn look(&self, slot: usize) -> u64 {
        let value = self.timelines[slot].value();
        // Timelines only grow. An older value stored by another thread is still a lower bound.
        if self.seen[slot].load(Ordering::Relaxed) != value {
            self.seen[slot].store(value, Ordering::Release);
        }
        value
    }

    /// What the checks of a software GPU want to know is reported to it; `None` without checks.
    #[inline]
    pub(crate) fn observer(&self) -> Option<&dyn Observer> {
        self.observer.as_deref()
    }

    /// As [`Heap::allocate`], under checks.
    #[cold]
    fn allocate_observed(
        &self,
        observer: &dyn Observer,
        bytes: u64,
        purpose: MemoryUse,
        content: Content,
    ) -> Result<Arc<Memory>> {
        let whole = observer.with_red_zone(bytes);
        let take = || match self.pool.reuse(whole, purpose, content) {
            Some(memory) => Ok(memory),
            None => self.allocate_new(whole, purpose, content),
        };
        let mut allocated = take();
        if allocated.as_ref().is_err_and(Error::is_out_of_memory) {
            self.end_quarantine();
            allocated = take();
        }
        let memory = allocated.map_err(|mut error| {
            // The program has not asked for the red zone.
            if let Error::OutOfMemory { wanted, .. } = &mut error {
                *wanted = bytes;
            }
            error
        })?;
        memory.set_wanted(bytes);
        observer.allocated(&memory, bytes);
        Ok(memory)
    }

    /// Returns the blocks in quarantine to the pool.
    fn end_quarantine(&self) {
        let blocks = self.observer().map_or_else(Vec::new, Observer::release_all);
        blocks.into_iter().for_each(|memory| self.pool.free(memory));
    }

    /// Returns idle memory to the driver. Returns the number of bytes.
    pub(crate) fn trim(&self) -> u64 {
        self.sweep_all();
        self.end_quarantine();
        self.pool.trim()
    }

    /// Allocates at least `bytes` bytes, aligned to 256, after freeing parked memory.
    fn allocate(&self, bytes: u64, purpose: MemoryUse, content: Content) -> Result<Arc<Memory>> {
        self.sweep();
        if let Some(observer) = self.observer() {
            return self.allocate_observed(observer, bytes, purpose, content);
        }
        match self.pool.reuse(bytes, purpose, content) {
            Some(memory) => Ok(memory),
            None => self.allocate_new(bytes, purpose, content),
        }
    }

    #[cold]
    fn allocate_new(&self, bytes: u64, purpose: MemoryUse, content: Content) -> Result<Arc<Memory>> {
        let mut allocated = self.pool.allocate(&*self.driver, bytes, purpose, content);
        if allocated.as_ref().is_err_and(Error::is_out_of_memory) && self.sweep_all() > 0 {
            allocated = match self.pool.reuse(bytes, purpose, content) {
                Some(memory) => Ok(memory),
                None => self.pool.allocate(&*self.driver, bytes, purpose, content),
            };
        }
        allocated.map_err(|error| self.out_of_memory(bytes, error))
    }

    /// Adds the figures to an error of the driver about a lack of memory.
    fn out_of_memory(&self, wanted: u64, error: Error) -> Error {
        let Error::Driver(gpu_hal::Error::OutOfMemory { shortage, fits, .. }) = &error else { return error };
        let memory = self.driver.memory_info();
        // Figures before what the driver assumes.
        let of_figures = memory.and_then(|info| info.shortage(wanted));
        let shortage = of_figures.or(*shortage);
        let memory = match of_figures {
            Some(_) => memory,
            None => memory.map(|info| MemoryInfo { largest: *fits, ..info }),
        };
        let in_use = self.pool.usage().in_use;
        Error::OutOfMemory { wanted, in_use, shortage, memory, source: Box::new(error) }
    }

    /// Takes ownership of `bytes` bytes of memory that the driver has imported.
    pub(crate) fn adopt(&self, memory: Box<dyn DeviceMemory>, bytes: u64) -> Arc<Memory> {
        let memory = self.pool.adopt(memory, bytes);
        if let Some(observer) = self.observer() {
            observer.adopted(&memory, bytes);
        }
        memory
    }

    /// Names a block.
    pub(crate) fn name(&self, memory: &Memory, name: &str) {
        memory.set_name(name);
        if let Some(observer) = self.observer() {
            observer.named(memory, name);
        }
    }

    /// Returns memory that the GPU has finished with to the pool.
    #[inline]
    fn give_back(&self, memory: Arc<Memory>) {
        match self.observer() {
            None => self.pool.free(memory),
            Some(observer) => {
                let is_imported = memory.is_imported();
                observer.freed(memory, is_imported).into_iter().for_each(|memory| self.pool.free(memory));
            }
        }
    }

    /// Takes memory whose last owner is gone, and frees it when the GPU has finished with it.
    #[inline]
    fn free(&self, memory: Arc<Memory>) {
        for (slot, value) in self.claims.values() {
            if !self.reached(slot, value) {
                memory.uses.note(slot, value);
            }
        }
        if self.passed(&memory.uses) {
            self.give_back(memory);
            return;
        }
        self.parked.lock().blocks.push_back(memory);
        self.parked_count.fetch_add(1, Ordering::Relaxed);
    }

    /// Makes memory that is freed from now on wait for `value` of the queue in `slot`.
    #[inline]
    pub(crate) fn claim(&self, slot: usize, value: u64) {
        self.claims.note(slot, value);
    }

    /// The block that contains `bytes` bytes at a GPU address; `None` if the address is in no block of this device.
    ///
    /// # Errors
    ///
    /// [`RangeError::Memory`] if the bytes begin in a block and do not end in it, or if the block is free.
    pub(crate) fn find(&self, va: u64, bytes: u64) -> Result<Option<Arc<Memory>>> {
        let Some(memory) = self.pool.at(va) else { return Ok(None) };
        let (start, len) = (memory.gpu_va(), memory.wanted());
        // A request for 0 bytes has 1.
        if len == 0 || va - start > len || bytes > len - (va - start) {
            return Err(RangeError::Memory { address: va, bytes, start, len }.into());
        }
        Ok(Some(memory))
    }

    /// Frees parked memory whose last use has ended. Of many blocks it checks only the oldest ones, which usually end
    /// first, so the cost per block does not grow with their number.
    #[inline]
    pub(crate) fn sweep(&self) {
        if self.parked_count.load(Ordering::Relaxed) != 0 {
            self.sweep_parked();
        }
    }

    fn sweep_parked(&self) {
        let mut parked = self.parked.lock();
        while parked.blocks.front().is_some_and(|memory| self.passed(&memory.uses)) {
            parked.blocks.pop_front().into_iter().for_each(|memory| self.give_back(memory));
        }
        let count = parked.blocks.len();
        if count < FEW_PARKED || count >= parked.check_all_at {
            self.check_all(&mut parked);
            parked.check_all_at = 2 * parked.blocks.len();
        }
        self.parked_count.store(parked.blocks.len(), Ordering::Relaxed);
    }

    /// Frees all parked memory whose last use has ended. Returns the number of blocks.
    pub(crate) fn sweep_all(&self) -> usize {
        let mut parked = self.parked.lock();
        let freed = self.check_all(&mut parked);
        self.parked_count.store(parked.blocks.len(), Ordering::Relaxed);
        freed
    }

    fn check_all(&self, parked: &mut Parked) -> usize {
        let before = parked.blocks.len();
        parked.blocks.retain(|memory| {
            let passed = self.passed(&memory.uses);
            if passed {
                self.give_back(Arc::clone(memory));
            }
            !passed
        });
        before - parked.blocks.len()
    }

    /// Whether the last use of an object has ended.
    pub(crate) fn has_passed(&self, uses: &Uses) -> bool {
        self.passed(uses)
    }

    #[inline]
    fn passed(&self, uses: &Uses) -> bool {
        uses.all(|slot, value| self.reached(slot, value)) && uses.passed_on_peers()
    }

    /// Waits until no queue uses the object.
    pub(crate) fn wait_for(&self, uses: &Uses, timeout: Duration) -> Result<()> {
        self.wait_for_values(uses.values(), timeout)?;
        uses.wait_for_peers(timeout)?;
        self.drain();
        Ok(())
    }

    /// Makes all waits call `output` from now on.
    pub(crate) fn drain_into(&self, output: Weak<dyn Drain>) {
        if self.output.set(output).is_ok() {
            // A queue that registers later sees the output itself.
            self.queues
                .lock()
                .iter()
                .flatten()
                .filter_map(Weak::upgrade)
                .for_each(|queue| queue.expect_output());
        }
    }

    /// Whether kernels may print.
    pub(crate) fn has_output(&self) -> bool {
        self.output.get().is_some()
    }

    /// Prints what kernels have printed.
    #[inline]
    pub(crate) fn drain(&self) {
        if let Some(output) = self.output.get().and_then(Weak::upgrade) {
            output.drain();
        }
    }

    /// Waits until the timelines of the queues in some slots have reached values.
    fn wait_for_values(&self, values: impl Iterator<Item = (usize, u64)>, timeout: Duration) -> Result<()> {
        for (slot, value) in values {
            if self.reached(slot, value) {
                continue;
            }
            match self.queue(slot) {
                Some(queue) => queue.wait(value, timeout)?,
                // The queue is being closed. Closing stops its channels and completes its timeline.
                None => self.wait_for_close(slot, value, timeout)?,
            }
        }
        Ok(())
    }

    fn wait_for_close(&self, slot: usize, value: u64, timeout: Duration) -> Result<()> {
        let start = Instant::now();
        let mut interrupts = Interrupts::since(start);
        while self.look(slot) < value {
            interrupts.check()?;
            if start.elapsed() >= timeout {
                let seen = self.look(slot);
                let cause = "its queue is being closed".to_owned();
                return Err(Error::Timeout { timeout, wanted: value, seen, cause });
            }
            std::thread::sleep(Duration::from_micros(100));
        }
        Ok(())
    }

    fn queue(&self, slot: usize) -> Option<Arc<dyn Progress>> {
        self.queues.lock().get(slot)?.as_ref()?.upgrade()
    }

    /// All open queues of type `Q`.
    pub(crate) fn queues<Q: Progress>(&self) -> Vec<Arc<Q>> {
        let queues: Vec<_> = self.queues.lock().iter().flatten().filter_map(Weak::upgrade).collect();
        queues.into_iter().filter_map(|queue| (queue as Arc<dyn Any + Send + Sync>).downcast().ok()).collect()
    }

    /// Whether every slot is taken.
    pub(crate) fn is_crowded(&self) -> bool {
        self.queues.lock().iter().flatten().count() == MAX_QUEUES
    }

    /// Assigns a free slot to the queue that `make` builds for it.
    pub(crate) fn register_queue<Q: Progress>(
        &self,
        make: impl FnOnce(usize) -> Result<Arc<Q>>,
    ) -> Result<Arc<Q>> {
        let mut queues = self.queues.lock();
        let slot = queues.iter().position(Option::is_none).unwrap_or(queues.len());
        if slot == MAX_QUEUES {
            return Err(Error::TooManyQueues(MAX_QUEUES));
        }
        let queue = make(slot)?;
        let weak: Weak<dyn Progress> = Arc::<Q>::downgrade(&queue);
        if slot == queues.len() {
            queues.push(Some(weak));
        } else {
            queues[slot] = Some(weak);
        }
        Ok(queue)
    }

    /// Frees a slot whose channels are closed and whose timeline is complete.
    pub(crate) fn release_queue(&self, slot: usize) {
        self.queues.lock()[slot] = None;
    }
}

/// What kernels print.
pub(crate) trait Drain: core::fmt::Debug + Send + Sync {
    /// Prints what is complete.
    fn drain(&self);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::adapter::nvgpu::Nvgpu;

    /// Parks blocks whose last uses are the given values of queue 0, which it has not reached.
    fn parked(values: impl Iterator<Item = u64>) -> Arc<Heap> {
        let orin = orin_sim::SoftwareOrin::new(orin_sim::Config::default()).unwrap();
        let driver = Nvgpu::open(&(Arc::new(orin) as _), None).unwrap();
        let heap = Heap::new(Box::new(driver), None).unwrap();
        let handles: Vec<_> = values
            .map(|value| {
                let handle = Handle::allocate(&heap, 256, MemoryUse::Device, Content::Buffer).unwrap();
                handle.uses().note(0, value);
                handle
            })
            .collect();
        drop(handles);
        heap
    }

    fn count(heap: &Heap) -> usize {
        let count = heap.parked.lock().blocks.len();
        assert_eq!(heap.parked_count.load(Ordering::Relaxed), count);
        count
    }

    #[test]
    fn blocks_that_end_in_order_are_freed_at_once() {
        let heap = parked(1..=1000);
        heap.sweep();
        assert_eq!(count(&heap), 1000);
        for value in [1, 2, 500, 999, 1000] {
            heap.timeline(0).set(value);
            heap.sweep();
            assert_eq!(count(&heap), 1000 - value as usize);
        }
        assert_eq!(heap.pool().usage().in_use, 0);
    }

    #[test]
    fn blocks_behind_a_long_use_are_freed_when_many_or_asked_for() {
        let heap = parked((1..=100).rev());
        heap.timeline(0).set(40);
        heap.sweep();
        assert_eq!(count(&heap), 60, "the first sweep checks all");
        heap.timeline(0).set(50);
        heap.sweep();
        assert_eq!(count(&heap), 60, "of many, only the oldest are checked");
        assert_eq!(heap.sweep_all(), 10);
        heap.timeline(0).set(80);
        assert_eq!(heap.sweep_all(), 30);
        heap.timeline(0).set(90);
        heap.sweep();
        assert_eq!(count(&heap), 10, "few are all checked");
    }
}
