//! What all handles of a device share: the back end, memory, timelines, queues and programs.
//!
//! Buffers, programs, queues and fences hold it, so that they may be dropped in any order.

use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use crate::device::Properties;
use crate::error::{Error, Result};
use crate::future::Waiter;
use crate::interrupt;
use crate::kind::DeviceKind;
use crate::log::LogBook;
use crate::memory::pool::{Memory, Pool};
use crate::memory::readout::Readout;
use crate::memory::{Content, Handle};
use crate::program::{Program, ProgramCode};
use crate::timeline::{self, Timeline};
use crate::wait::QueueState;
use gpu_hal::chip::{self, Chip};
use gpu_hal::{DeviceMemory, Driver, MemoryUse};

/// Largest number of queues that a device has open at a time.
pub const MAX_QUEUES: usize = 8;

/// Last timeline value of each queue that touches an object.
#[derive(Debug, Default)]
pub(crate) struct Uses([AtomicU64; MAX_QUEUES]);

impl Uses {
    /// Notes that work up to `value` of the queue in `slot` uses the object.
    pub(crate) fn note(&self, slot: usize, value: u64) {
        self.0[slot].store(value, Ordering::Relaxed);
    }

    /// Last value of each queue, 0 where there is none.
    pub(crate) fn values(&self) -> impl Iterator<Item = (usize, u64)> {
        self.0.iter().map(|value| value.load(Ordering::Relaxed)).enumerate()
    }
}

/// Tells devices apart; arguments of one device make no sense on another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceId(usize);

/// Which queues exist.
#[derive(Debug, Default)]
struct Slots {
    states: [Option<Weak<QueueState>>; MAX_QUEUES],
}

/// Bytes that have to be read, or have been, until it is worth opening a channel for that.
const WORTH_A_CHANNEL: usize = 1 << 20;

/// Whether the copy engine reads for the CPU.
#[derive(Debug)]
enum ReadoutState {
    /// Not yet; so many bytes were read otherwise.
    Closed(usize),
    Open(Readout),
    /// It failed, and is not tried again.
    Failed,
}

/// What all handles of a device share.
#[derive(Debug)]
pub(crate) struct Shared {
    // Before `driver`: memory goes before the driver that made it.
    pool: Pool,
    readout: Mutex<ReadoutState>,
    /// Memory that nobody owns but the GPU may still use.
    parked: Mutex<Vec<Arc<Memory>>>,
    parked_count: AtomicUsize,
    timelines: [Timeline; MAX_QUEUES],
    /// The GPFIFO entry that leads to an interrupt: see [`interrupt`].
    interrupt: u64,
    // Keeps the memory of the timelines and of the interrupt's commands.
    _signals: Box<dyn DeviceMemory>,
    /// Values that the timelines have been seen at: spares the CPU looks at lines that the GPU writes.
    seen: [AtomicU64; MAX_QUEUES],
    slots: Mutex<Slots>,
    programs: Mutex<Vec<Weak<ProgramCode>>>,
    /// The library's own kernels, while a graph uses them.
    builtin: Mutex<Weak<ProgramCode>>,
    /// Programs loaded so far: code may since lie where other code was.
    programs_loaded: AtomicU64,
    /// Names that the user gave to memory, by GPU address.
    names: Mutex<BTreeMap<u64, String>>,
    log: Mutex<LogBook>,
    /// Held by a recovery.
    recovering: Mutex<()>,
    waiter: Waiter,
    driver: Box<dyn Driver>,
    properties: Properties,
    /// The GPU's row of the chip table.
    chip: &'static Chip,
}

/// A poisoned lock holds data that is still consistent here: every critical section only replaces
/// whole values.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    /// The state of a device on `driver`, with no queue and no program.
    pub(crate) fn new(driver: Box<dyn Driver>, kind: DeviceKind) -> Result<Arc<Self>> {
        let properties = Properties { kind, gpu: driver.properties().clone() };
        let (major, minor) = driver.properties().sm_version;
        let chip = chip::of((major, minor)).ok_or(Error::UnknownChip { major, minor })?;
        let signals = driver.allocate(timeline::BYTES + interrupt::BYTES, MemoryUse::Signals, "timelines")?;
        // SAFETY: the commands lie behind the timelines, in fresh memory.
        let interrupt = unsafe { interrupt::write(&*signals, timeline::BYTES)? };
        Ok(Arc::new(Self {
            pool: Pool::new(),
            readout: Mutex::new(ReadoutState::Closed(0)),
            parked: Mutex::default(),
            parked_count: AtomicUsize::new(0),
            timelines: timeline::over(&*signals),
            interrupt,
            _signals: signals,
            seen: Default::default(),
            slots: Mutex::default(),
            programs: Mutex::default(),
            builtin: Mutex::default(),
            programs_loaded: AtomicU64::new(0),
            names: Mutex::default(),
            log: Mutex::default(),
            recovering: Mutex::default(),
            waiter: Waiter::default(),
            driver,
            properties,
            chip,
        }))
    }

    pub(crate) fn driver(&self) -> &dyn Driver {
        &*self.driver
    }

    /// The GPU's row of the chip table.
    pub(crate) fn chip(&self) -> &'static Chip {
        self.chip
    }

    pub(crate) fn properties(&self) -> &Properties {
        &self.properties
    }

    pub(crate) fn pool(&self) -> &Pool {
        &self.pool
    }

    /// Copies from the GPU's address `va` on to `target` by the copy engine, where that is faster than loads by the CPU.
    /// Nothing may write the memory meanwhile. `false` when it was not done.
    pub(crate) fn read_out(&self, purpose: MemoryUse, va: u64, target: &mut [u8]) -> bool {
        let Some(least) = self.driver.reads_by_engine_from() else { return false };
        if purpose != MemoryUse::Device || target.len() < least {
            return false;
        }
        let mut state = lock(&self.readout);
        if let ReadoutState::Closed(read) = &mut *state {
            *read = read.saturating_add(target.len());
            if *read < WORTH_A_CHANNEL {
                return false;
            }
            *state = match Readout::open(&*self.driver) {
                Ok(readout) => ReadoutState::Open(readout),
                Err(error) => {
                    tracing::warn!(%error, "memory of the GPU is read slowly from now on");
                    ReadoutState::Failed
                }
            };
        }
        let ReadoutState::Open(readout) = &mut *state else { return false };
        match readout.read(va, target) {
            Ok(()) => true,
            Err(error) => {
                tracing::warn!(%error, "memory of the GPU is read slowly from now on");
                *state = ReadoutState::Failed;
                false
            }
        }
    }

    pub(crate) fn id(&self) -> DeviceId {
        DeviceId(core::ptr::from_ref(self).addr())
    }

    /// The timeline of the queue in `slot`.
    #[inline]
    pub(crate) fn timeline(&self, slot: usize) -> Timeline {
        self.timelines[slot]
    }

    /// The GPFIFO entry that makes the GPU raise an interrupt.
    pub(crate) fn interrupt(&self) -> u64 {
        self.interrupt
    }

    /// The value at which the timeline in `slot` was last seen; it may be further by now.
    #[inline]
    pub(crate) fn seen(&self, slot: usize) -> u64 {
        self.seen[slot].load(Ordering::Acquire)
    }

    /// Whether the timeline in `slot` has reached `value`. What was written before is then visible.
    #[inline]
    pub(crate) fn reached(&self, slot: usize, value: u64) -> bool {
        self.seen(slot) >= value || self.look(slot) >= value
    }

    /// The present value of the timeline in `slot`.
    #[inline]
    pub(crate) fn look(&self, slot: usize) -> u64 {
        let value = self.timeline(slot).value();
        // Timelines only grow; an older value that another thread stores over this one is still true.
        if self.seen[slot].load(Ordering::Relaxed) != value {
            self.seen[slot].store(value, Ordering::Release);
        }
        value
    }

    /// Allocates at least `bytes` bytes, aligned to 256, after freeing what has been waiting for that.
    pub(crate) fn allocate(
        self: &Arc<Self>,
        bytes: u64,
        purpose: MemoryUse,
        content: Content,
    ) -> Result<Handle> {
        self.sweep();
        let memory = self.pool.allocate(self.driver(), bytes, purpose, content).map_err(|error| {
            if !error.is_out_of_memory() {
                return error;
            }
            Error::OutOfMemory {
                wanted: bytes,
                in_use: self.pool.usage().in_use,
                free: self.driver.memory_info(),
                source: Box::new(error),
            }
        })?;
        Ok(Handle::new(memory, self))
    }

    /// Takes memory whose last owner is gone: frees it as soon as the GPU is done with it.
    pub(crate) fn free(&self, memory: Arc<Memory>) {
        if self.passed(&memory.uses) {
            self.recycle(memory);
            return;
        }
        lock(&self.parked).push(memory);
        self.parked_count.fetch_add(1, Ordering::Relaxed);
    }

    fn recycle(&self, memory: Arc<Memory>) {
        if memory.is_named() {
            lock(&self.names).remove(&memory.gpu_va());
        }
        self.pool.free(memory);
    }

    /// Frees parked memory whose last use has passed.
    pub(crate) fn sweep(&self) {
        if self.parked_count.load(Ordering::Relaxed) == 0 {
            return;
        }
        let mut parked = lock(&self.parked);
        let mut at = 0;
        while at < parked.len() {
            if self.passed(&parked[at].uses) {
                self.recycle(parked.swap_remove(at));
            } else {
                at += 1;
            }
        }
        self.parked_count.store(parked.len(), Ordering::Relaxed);
    }

    #[inline]
    fn passed(&self, uses: &Uses) -> bool {
        uses.values().all(|(slot, value)| self.reached(slot, value))
    }

    /// Waits until no queue uses the object any more.
    pub(crate) fn wait_for(&self, uses: &Uses, timeout: Duration) -> Result<()> {
        for (slot, value) in uses.values() {
            if self.reached(slot, value) {
                continue;
            }
            let state = lock(&self.slots).states[slot].as_ref().and_then(Weak::upgrade);
            match state {
                Some(state) => state.wait(value, timeout)?,
                // The queue is being closed, which stops its channels and ends its timeline.
                None => self.wait_for_close(slot, value, timeout)?,
            }
        }
        Ok(())
    }

    fn wait_for_close(&self, slot: usize, value: u64, timeout: Duration) -> Result<()> {
        let start = Instant::now();
        while self.timeline(slot).value() < value {
            if start.elapsed() >= timeout {
                let seen = self.timeline(slot).value();
                let cause = "its queue is being closed".to_owned();
                return Err(Error::Timeout { timeout, wanted: value, seen, cause });
            }
            std::thread::sleep(Duration::from_micros(100));
        }
        Ok(())
    }

    /// Remembers a name for the memory at a GPU address, until it is freed.
    pub(crate) fn name_memory(&self, va: u64, name: &str) {
        if let Some(memory) = self.pool.at(va) {
            memory.set_named();
            lock(&self.names).insert(memory.gpu_va(), name.to_owned());
        }
    }

    /// What the memory at the start address `va` is called: by its user, else by its content.
    pub(crate) fn memory_name(&self, memory: &Memory) -> String {
        let name = lock(&self.names).get(&memory.gpu_va()).cloned();
        name.unwrap_or_else(|| memory.content().name().to_owned())
    }

    /// Takes what the kernel has logged about the end of one of the channels, if it has, or says why the log
    /// cannot be read.
    pub(crate) fn kernel_log_about(&self, channels: &[u32]) -> Result<Option<Vec<String>>, String> {
        lock(&self.log).take(self.driver(), channels)
    }

    /// What the kernel has logged about the GPU, but not (yet) about the end of a channel, and nobody has seen.
    pub(crate) fn kernel_log_rest(&self) -> Result<Vec<String>, String> {
        lock(&self.log).show_rest(self.driver())
    }

    /// The last lines of the log, taken or not.
    pub(crate) fn kernel_log_history(&self) -> Result<Vec<String>, String> {
        lock(&self.log).last(self.driver())
    }

    /// Keeps other recoveries out until the result is dropped.
    pub(crate) fn begin_recovery(&self) -> MutexGuard<'_, ()> {
        lock(&self.recovering)
    }

    /// What futures wait with.
    pub(crate) fn waiter(&self) -> &Waiter {
        &self.waiter
    }

    /// GPU address and length of the timelines' page.
    pub(crate) fn timelines_at(&self) -> (u64, u64) {
        (self.timelines[0].gpu_va(), timeline::BYTES)
    }

    /// All open queues.
    pub(crate) fn queues(&self) -> Vec<Arc<QueueState>> {
        lock(&self.slots).states.iter().flatten().filter_map(Weak::upgrade).collect()
    }

    /// Finds a free queue slot and registers the state that `make` builds for it.
    pub(crate) fn register_queue(
        &self,
        make: impl FnOnce(usize) -> Result<Arc<QueueState>>,
    ) -> Result<Arc<QueueState>> {
        let mut slots = lock(&self.slots);
        if slots.states.iter().all(Option::is_some) {
            // A queue that was dropped may be open for as long as the waiter looks at it.
            drop(slots);
            self.waiter.settle();
            slots = lock(&self.slots);
        }
        let slot = slots.states.iter().position(Option::is_none).ok_or(Error::TooManyQueues(MAX_QUEUES))?;
        let state = make(slot)?;
        slots.states[slot] = Some(Arc::downgrade(&state));
        Ok(state)
    }

    /// Gives a slot back whose channels are closed and whose timeline has ended.
    pub(crate) fn release_queue(&self, slot: usize) {
        lock(&self.slots).states[slot] = None;
    }

    pub(crate) fn register_program(&self, program: &Arc<ProgramCode>) {
        let mut programs = lock(&self.programs);
        programs.retain(|weak| weak.strong_count() > 0);
        programs.push(Arc::downgrade(program));
        self.programs_loaded.fetch_add(1, Ordering::Release);
    }

    /// The library's own kernels; `load` loads them when nobody has them.
    pub(crate) fn builtin_program(&self, load: impl FnOnce() -> Result<Program>) -> Result<Program> {
        let mut builtin = lock(&self.builtin);
        if let Some(code) = builtin.upgrade() {
            return Ok(Program::from_code(code));
        }
        let program = load()?;
        *builtin = Arc::downgrade(program.loaded());
        Ok(program)
    }

    /// Number of programs loaded so far.
    #[inline]
    pub(crate) fn programs_loaded(&self) -> u64 {
        self.programs_loaded.load(Ordering::Acquire)
    }

    /// Name of the loaded kernel that contains the code address, and the offset in it.
    pub(crate) fn locate(&self, pc: u64) -> Option<crate::fault::CodeLocation> {
        lock(&self.programs).iter().filter_map(Weak::upgrade).find_map(|program| program.locate(pc))
    }
}
