//! The device: one opened GPU, its memory and its queues.
//!
//! A [`Device`] is a handle that is cheap to clone; buffers, programs and queues keep what is behind
//! it alive, so they may be dropped in any order.

use core::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use nvgpu_sys::{Door, LinuxDoor};

use crate::backend::nvgpu::NvgpuBackend;
use crate::backend::{Backend, DeviceMemory, Properties};
use crate::error::{Error, Result};
use crate::memory::{Buffer, Pod};
use crate::program::ProgramCode;
use crate::queue::Queue;
use crate::timeline::{self, Timeline};
use crate::wait::QueueState;

/// Largest number of queues that a device has open at a time.
pub const MAX_QUEUES: usize = 8;

/// How long calls wait for the GPU that have no time-out of their own: reading a buffer, a launch
/// that finds the rings full, opening and closing a queue.
pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(30);

/// The node whose presence decides what [`DeviceKind::Auto`] means.
const CTRL_NODE: &str = "/dev/nvgpu/igpu0/ctrl";

/// Which GPU to open, or which one is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum DeviceKind {
    /// The Orin's GPU when `/dev/nvgpu/igpu0/ctrl` exists, else the software Orin.
    Auto,
    /// The Orin's GPU, through NVIDIA's nvgpu kernel driver.
    Nvgpu,
    /// The software Orin (feature `sim`).
    Sim,
}

impl DeviceKind {
    /// The name by which programs select the kind: `auto`, `nvgpu` or `sim`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Nvgpu => "nvgpu",
            Self::Sim => "sim",
        }
    }
}

impl core::fmt::Display for DeviceKind {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(self.name())
    }
}

impl core::str::FromStr for DeviceKind {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        let kinds = [Self::Auto, Self::Nvgpu, Self::Sim];
        let kind = kinds.into_iter().find(|kind| kind.name() == name);
        kind.ok_or_else(|| Error::UnknownKind(name.to_owned()))
    }
}

/// Last timeline value of each queue that touches an object.
#[derive(Debug, Default)]
pub(crate) struct Uses([AtomicU64; MAX_QUEUES]);

impl Uses {
    /// Notes that work up to `value` of the queue in `slot` uses the object.
    pub(crate) fn note(&self, slot: usize, value: u64) {
        self.0[slot].store(value, Ordering::Relaxed);
    }

    fn snapshot(&self) -> [u64; MAX_QUEUES] {
        core::array::from_fn(|slot| self.0[slot].load(Ordering::Relaxed))
    }
}

/// Tells devices apart; arguments of one device make no sense on another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceId(usize);

/// Memory that was dropped while the GPU might still use it.
#[derive(Debug)]
struct Parked {
    _memory: Box<dyn DeviceMemory>,
    until: [u64; MAX_QUEUES],
}

/// Which queues exist.
#[derive(Debug, Default)]
struct Slots {
    states: [Option<Weak<QueueState>>; MAX_QUEUES],
}

/// What all handles of a device share.
#[derive(Debug)]
pub(crate) struct Shared {
    // Before `backend`: memory goes before the driver that made it.
    parked: Mutex<Vec<Parked>>,
    timelines: Box<dyn DeviceMemory>,
    slots: Mutex<Slots>,
    programs: Mutex<Vec<Weak<ProgramCode>>>,
    backend: Box<dyn Backend>,
}

/// A poisoned lock holds data that is still consistent here: every critical section only replaces
/// whole values.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    pub(crate) fn backend(&self) -> &dyn Backend {
        &*self.backend
    }

    pub(crate) fn id(&self) -> DeviceId {
        DeviceId(core::ptr::from_ref(self).addr())
    }

    /// The timeline of the queue in `slot`.
    pub(crate) fn timeline(&self, slot: usize) -> Timeline {
        timeline::at(&*self.timelines, slot)
    }

    /// Allocates memory for `label`, after freeing what has been waiting for that.
    pub(crate) fn allocate(&self, bytes: u64, label: &str) -> Result<Box<dyn DeviceMemory>> {
        self.sweep();
        self.backend.allocate(bytes, label)
    }

    /// Frees memory as soon as the GPU is done with it.
    pub(crate) fn free(&self, memory: Box<dyn DeviceMemory>, uses: &Uses) {
        let until = uses.snapshot();
        if self.passed(&until) {
            return;
        }
        lock(&self.parked).push(Parked { _memory: memory, until });
    }

    /// Frees parked memory whose last use has passed.
    pub(crate) fn sweep(&self) {
        lock(&self.parked).retain(|parked| !self.passed(&parked.until));
    }

    fn passed(&self, until: &[u64; MAX_QUEUES]) -> bool {
        until.iter().enumerate().all(|(slot, &value)| value == 0 || self.timeline(slot).value() >= value)
    }

    /// Waits until no queue uses the object any more.
    pub(crate) fn wait_for(&self, uses: &Uses, timeout: Duration) -> Result<()> {
        for (slot, value) in uses.snapshot().into_iter().enumerate() {
            if value == 0 || self.timeline(slot).value() >= value {
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

    /// Finds a free queue slot and registers the state that `make` builds for it.
    pub(crate) fn register_queue(
        &self,
        make: impl FnOnce(usize) -> Result<Arc<QueueState>>,
    ) -> Result<Arc<QueueState>> {
        let mut slots = lock(&self.slots);
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
    }

    /// Name of the loaded kernel that contains the code address, and the offset in it.
    pub(crate) fn locate(&self, pc: u64) -> Option<crate::fault::CodeLocation> {
        lock(&self.programs).iter().filter_map(Weak::upgrade).find_map(|program| program.locate(pc))
    }
}

/// An open GPU.
#[derive(Clone, Debug)]
pub struct Device {
    shared: Arc<Shared>,
}

impl Device {
    /// Opens a GPU.
    ///
    /// # Errors
    ///
    /// When the device, the permission or a feature of its driver is missing; the message says which
    /// and what to do.
    pub fn open(kind: DeviceKind) -> Result<Self> {
        let real_node = || std::path::Path::new(CTRL_NODE).exists();
        match kind {
            DeviceKind::Nvgpu => Self::open_through(Arc::new(LinuxDoor), DeviceKind::Nvgpu),
            DeviceKind::Auto if real_node() => Self::open_through(Arc::new(LinuxDoor), DeviceKind::Nvgpu),
            DeviceKind::Auto | DeviceKind::Sim => Self::open_software(),
        }
    }

    #[cfg(feature = "sim")]
    fn open_software() -> Result<Self> {
        let orin = orin_sim::SoftwareOrin::new(orin_sim::Config::default()).map_err(Error::SoftwareOrin)?;
        Self::open_through(Arc::new(orin), DeviceKind::Sim)
    }

    #[cfg(not(feature = "sim"))]
    fn open_software() -> Result<Self> {
        Err(Error::NoSoftwareOrin)
    }

    /// Opens the GPU behind a given door: a software Orin with options of its own, or a door that
    /// records what passes through it. `kind` is what [`Device::info`] reports.
    ///
    /// # Errors
    ///
    /// As [`Device::open`].
    pub fn open_through(door: Arc<dyn Door>, kind: DeviceKind) -> Result<Self> {
        let backend = Box::new(NvgpuBackend::open(door, kind)?);
        let timelines = backend.allocate(timeline::BYTES, "timelines")?;
        timeline::clear(&*timelines);
        let shared = Shared {
            parked: Mutex::default(),
            timelines,
            slots: Mutex::default(),
            programs: Mutex::default(),
            backend,
        };
        tracing::info!(chip = shared.backend.properties().chip, kind = kind.name(), "device opened");
        Ok(Self { shared: Arc::new(shared) })
    }

    /// What the GPU is.
    pub fn info(&self) -> &Properties {
        self.shared.backend.properties()
    }

    /// Allocates a buffer of `len` elements that CPU and GPU see. Its contents are unspecified.
    ///
    /// # Errors
    ///
    /// When the size overflows or the driver has no memory.
    pub fn alloc<T: Pod>(&self, len: usize) -> Result<Buffer<T>> {
        Buffer::new(&self.shared, len)
    }

    /// Allocates a buffer of `len` elements whose bytes are all zero.
    ///
    /// # Errors
    ///
    /// As [`Device::alloc`].
    pub fn alloc_zeroed<T: Pod>(&self, len: usize) -> Result<Buffer<T>> {
        let buffer = self.alloc(len)?;
        buffer.zero();
        Ok(buffer)
    }

    /// Allocates a buffer filled with a copy of `data`.
    ///
    /// # Errors
    ///
    /// As [`Device::alloc`].
    pub fn alloc_from<T: Pod>(&self, data: &[T]) -> Result<Buffer<T>> {
        let mut buffer = self.alloc(data.len())?;
        buffer.copy_from_slice(data)?;
        Ok(buffer)
    }

    /// Opens a queue: a compute and a copy channel of its own, set up and idle.
    ///
    /// # Errors
    ///
    /// When [`MAX_QUEUES`] are open, when the driver refuses a step, or when the GPU does not answer.
    pub fn queue(&self) -> Result<Queue> {
        Queue::open(&self.shared)
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }
}
