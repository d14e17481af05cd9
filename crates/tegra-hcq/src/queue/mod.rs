//! Queues: in-order streams of launches, copies and signals.
//!
//! A queue owns a compute and a copy channel on one TSG, a pushbuffer ring for each, a ring of launch records and a
//! timeline. Its calls encode into a batch. `submit` closes the batch with a release of the next timeline value, writes
//! a GPFIFO entry (two for a queue that sleeps) and rings the doorbell. After warm-up neither makes a system call or
//! allocates: all rings, the batch and the list of submissions in flight have a fixed size. If a ring is full, the call
//! waits for the oldest submission.
//!
//! Everything runs in the order of the calls. Consecutive launches in a batch are chained; other steps are separated by
//! a wait for idle. A batch for one engine first acquires the last value that the other engine releases. Work that may
//! run out of order goes to a second queue, connected by [`Queue::wait_fence`] or signals. On a desktop GPU the work of
//! two queues overlaps. The Orin has one graphics engine, which serves two queues in turns: time slices of a
//! millisecond, or kernel by kernel. A queue belongs to one thread at a time; threads that submit concurrently use a
//! queue each, or share one behind a `Mutex`.

use core::fmt;
use std::sync::Arc;
use std::time::Duration;

use ampere_cmd::command::{AcquireCondition, Payload, SemaphoreAcquire, SemaphoreRelease, local_memory_size};
use ampere_cmd::host_c76f::{MemOpCMembarType, WfiScope};
use ampere_cmd::pushbuffer::{Encoder, SliceSink, Subchannel};

use crate::args::Arg;
use crate::device::Device;
use crate::diagnose::Diagnosis;
use crate::encodings::Encodings;
use crate::error::{Error, Result};
use crate::heap::{Content, Handle};
use crate::launch::lanes::Lanes;
use crate::launch::record::{Records, name_of};
use crate::launch::submit::Batch;
use crate::limits::Priority;
use crate::memory::Buffer;
use crate::profile::collect;
use crate::program::Kernel;
use crate::shared::Shared;
use crate::signal::Signal;
use crate::wait::{Fence, Health, OpenChannels, QueueState, WaitPolicy};
use copy::Copier;
pub use copy::Download;
use gpu_hal::{Channels, MemoryUse, Preemption, SubmitRing};
use host::HostFunctions;
pub use options::{QueueOptions, Until};
use profile::Profiling;
pub use raw::{RawPlane, RawSide};
use schedule::{Engine, Schedule};

mod copy;
mod file;
mod fill;
mod host;
mod options;
pub(crate) mod profile;
mod raw;
pub(crate) mod schedule;

/// The backing store of the threads' stacks and spilled registers.
///
/// The hardware lays it out per TPC, SM and warp. A kernel that needs more bytes per thread than allocated needs a
/// larger area before its launch (SET_SHADER_LOCAL_MEMORY_*, `clc7c0.h`).
#[derive(Debug)]
struct LocalMemory {
    memory: Handle,
    bytes_per_thread: u32,
}

/// An in-order stream of launches, copies and signals; see the module documentation.
///
/// ```
/// # #[cfg(feature = "sim")] fn main() -> tegra_hcq::Result<()> {
/// # let device = tegra_hcq::Device::open(tegra_hcq::DeviceKind::Sim)?;
/// # let cubin = include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/kernels/vector_add.cubin"));
/// # let program = tegra_hcq::Program::load(&device, cubin)?;
/// # type VectorAdd = (&'static [f32], &'static [f32], &'static mut [f32], tegra_hcq::Count<u32>);
/// # // SAFETY: reads a[i] and b[i] and writes c[i] for i < n.
/// # let add = unsafe { program.typed::<VectorAdd>("vector_add")? };
/// # let (a, b) = (device.alloc_from(&[1.0_f32; 256])?, device.alloc_from(&[2.0_f32; 256])?);
/// # let mut c = device.alloc::<f32>(256)?;
/// # let mut queue = device.queue()?;
/// # let timeout = std::time::Duration::from_secs(10);
/// add.launch(&mut queue, 1, 256, (&a, &b, &mut c, 256))?;
/// queue.fill(&mut c, 0.5)?;
/// // One write to the doorbell for both.
/// queue.submit()?.wait(timeout)?;
/// assert_eq!(c.to_vec()?, [0.5; 256]);
/// # Ok(())
/// # }
/// # #[cfg(not(feature = "sim"))] fn main() {}
/// ```
pub struct Queue {
    // Declared before `state`, whose drop completes the timeline and frees memory: the rings own the channels, which
    // must be closed by then, also if the driver cannot abort their work.
    pub(crate) lanes: Lanes,
    pub(crate) state: Arc<QueueState>,
    pub(crate) batch: Batch,
    pub(crate) records: Records,
    pub(crate) schedule: Schedule,
    local: Option<LocalMemory>,
    copier: Copier,
    /// From the first function on.
    host: Option<HostFunctions>,
    /// From the first fence as a file on.
    counter: Option<file::Counter>,
    pub(crate) encodings: Encodings,
    /// Whether the engine is held while it waits for a signal or a word.
    hold: bool,
    /// Whether the queue's work may use any memory of the device.
    pub(crate) any_memory: bool,
    /// Whether the tables of textures are set.
    pub(crate) textures: bool,
    /// See [`Queue::set_overlap`].
    pub(crate) overlap: bool,
    /// See [`Queue::set_priority`].
    pub(crate) priority: Priority,
    /// Longest wait for set-up work, and for unfinished work on drop.
    timeout: Duration,
    pub(crate) profiling: Profiling,
}

/// Opens channels and gets their rings, in the group of another queue if the driver can. With [`WaitPolicy::Sleep`], an
/// interrupt follows each submission.
fn open_channels(
    device: &Shared,
    policy: WaitPolicy,
    beside: Option<&Fence>,
) -> Result<(OpenChannels, [SubmitRing; 2])> {
    let other = beside.and_then(|fence| fence.state.channels());
    let shared = other.and_then(|channels| match channels.group.open_beside() {
        Ok(channels) => channels,
        Err(error) => {
            tracing::debug!(%error, "the group is full; the queue gets its own");
            None
        }
    });
    let Channels { group, compute, copy } = match shared {
        Some(channels) => channels,
        None => device.driver().open_channels()?,
    };
    // Earlier log lines about channels with these numbers refer to other channels. An unreadable log has no lines.
    let _ = device.kernel_log_about(&group.channel_ids());
    let mut rings = [compute, copy];
    if policy == WaitPolicy::Sleep {
        rings.iter_mut().for_each(|ring| ring.follow_with(device.heap().interrupt()));
    }
    let views = rings.iter().map(SubmitRing::view).collect();
    Ok((OpenChannels { group, rings: views }, rings))
}

impl Device {
    /// Opens a queue with its own compute and copy channels, set up and idle.
    ///
    /// # Errors
    ///
    /// Returns an error if [`MAX_QUEUES`](crate::MAX_QUEUES) queues are open, if the driver refuses a step, or if the
    /// GPU does not answer.
    pub fn queue(&self) -> Result<Queue> {
        self.queue_with(&QueueOptions::default())
    }

    /// As [`Device::queue`], with options.
    ///
    /// # Errors
    ///
    /// As [`Device::queue`].
    pub fn queue_with(&self, options: &QueueOptions) -> Result<Queue> {
        Queue::open(self.shared(), options, None)
    }

    /// As [`Device::queue_with`], in the channel group of the queue that a fence belongs to: kernels of both queues may
    /// run at the same time, where the GPU otherwise runs the groups of queues in turns. Give both
    /// [`Queue::set_overlap`]. A fault of one queue stops both, and so does the drop of one with unfinished work. On
    /// drivers that cannot share groups (nvgpu), in a full group, and beside a queue that is closed, the queue gets a
    /// group of its own.
    ///
    /// # Errors
    ///
    /// As [`Device::queue`]; [`Error::OtherDevice`] if the fence belongs to another device.
    pub fn queue_beside(&self, fence: &Fence, options: &QueueOptions) -> Result<Queue> {
        if !Arc::ptr_eq(fence.state.heap(), self.shared().heap()) {
            return Err(Error::OtherDevice("the fence".to_owned()));
        }
        Queue::open(self.shared(), options, Some(fence))
    }
}

impl Queue {
    pub(crate) fn open(device: &Arc<Shared>, options: &QueueOptions, beside: Option<&Fence>) -> Result<Self> {
        let (channels, rings) = open_channels(device, options.wait, beside)?;
        let lanes = Lanes::new(device, rings)?;
        let records = Records::new(device.heap())?;
        if device.heap().is_crowded() {
            // A dropped queue may stay open while the waiter reads it.
            device.waiter().settle();
        }
        let state = device.heap().register_queue(|slot| {
            let timeline = device.heap().timeline(slot);
            if options.first_value > timeline.value() {
                timeline.set(options.first_value);
            }
            Ok(Arc::new(QueueState::new(device, slot, options.wait, channels, &Diagnosis)))
        })?;
        let release_by_descriptor =
            options.wait == WaitPolicy::Spin && device.encodings().releases_by_descriptor(options.release);
        let schedule = Schedule::new(state.submitted(), lanes.capacity(), release_by_descriptor);
        let mut queue = Self {
            lanes,
            state,
            batch: Batch::new(),
            records,
            schedule,
            local: None,
            copier: Copier::new(device),
            host: None,
            counter: None,
            encodings: *device.encodings(),
            hold: options.hold,
            any_memory: options.any_memory,
            textures: false,
            overlap: false,
            priority: Priority::USUAL,
            timeout: options.timeout,
            profiling: Profiling::default(),
        };
        queue.set_up()?;
        #[cfg(feature = "reports")]
        collect::start_from_environment();
        if collect::is_on() {
            queue.profile(true)?;
        }
        tracing::debug!(queue = queue.state.slot, wait = ?options.wait, "queue opened");
        Ok(queue)
    }

    /// Sets the class of both engines, and the windows and local memory of the compute engine.
    fn set_up(&mut self) -> Result<()> {
        let device = Arc::clone(&self.state.device);
        let properties = device.driver().properties();
        self.begin(Engine::Compute)?;
        self.encode(|encoder| {
            encoder.set_object(Subchannel::COMPUTE, properties.compute_class)?;
            encoder.shader_local_memory_window(properties.local_window)?;
            encoder.shader_shared_memory_window(properties.shared_window)
        })?;
        self.grow_local(device.chip().local.stack_reserve)?;
        self.begin(Engine::Copy)?;
        self.encode(|encoder| encoder.set_object(Subchannel::COPY, properties.copy_class))?;
        self.submit()?.wait(self.timeout)
    }

    /// Opens new channels in place of those that `Device::recover` has stopped.
    #[cold]
    fn rebuild(&mut self) -> Result<()> {
        let device = Arc::clone(&self.state.device);
        let (channels, rings) = open_channels(&device, self.state.policy, None)?;
        self.lanes.replace(rings);
        self.records.restart();
        self.batch.clear();
        self.schedule.restart();
        self.local = None;
        self.textures = false;
        // The syncpoint of the old channels.
        self.counter = None;
        self.state.set_submitted(self.schedule.queued);
        self.state.adopt(channels);
        self.schedule.queued = self.state.submitted();
        tracing::debug!(queue = self.state.slot, "queue opened anew after a recovery");
        self.set_up()
    }

    /// Returns an error if the GPU has stopped the queue; rebuilds a recovered queue.
    #[inline]
    pub(crate) fn check_health(&mut self) -> Result<()> {
        match self.state.health() {
            Health::Working => Ok(()),
            Health::Faulted => self.state.check(),
            Health::Forgiven => self.rebuild(),
        }
    }

    /// Sets whether a submission waits for the one before by the timeline, not for an idle engine, from the next
    /// submission on. The latter, which is the default, stops the other queues of the group too: see
    /// [`Device::queue_beside`].
    #[inline]
    pub fn set_overlap(&mut self, overlap: bool) {
        self.overlap = overlap;
    }

    /// Sets the priority of the launches that follow, also of those that copy and fill. Launches of graphs have their
    /// own: [`GraphBuilder::set_priority`](crate::GraphBuilder::set_priority).
    #[inline]
    pub fn set_priority(&mut self, priority: Priority) {
        self.priority = priority;
    }

    /// The priority of launches.
    #[inline]
    pub fn priority(&self) -> Priority {
        self.priority
    }

    /// Makes the queue wait until the submission of another queue has ended.
    ///
    /// # Errors
    ///
    /// [`Error::OtherDevice`] if the fence belongs to a device that is not [connected](Device::enable_peer), or whose
    /// memory this GPU cannot map. Also returns an error if the fence belongs to work that has faulted, or if the queue
    /// has faulted.
    pub fn wait_fence(&mut self, fence: &Fence) -> Result<()> {
        if !Arc::ptr_eq(fence.state.heap(), self.state.heap())
            && !self.state.heap().sees_timelines_of(fence.state.heap())
        {
            return Err(Error::OtherDevice("the fence".to_owned()));
        }
        if fence.is_done() {
            return fence.wait(Duration::ZERO);
        }
        // The TSG is switched while the queue waits, because the other queue's work has to run.
        self.acquire64(fence.state.timeline.gpu_va(), fence.value, true)
    }

    /// Makes the queue wait until the signal's value is at least `value`.
    ///
    /// # Errors
    ///
    /// Returns an error if the signal belongs to another device or the queue has faulted.
    pub fn wait_signal(&mut self, signal: &Signal, value: u64) -> Result<()> {
        let handle = signal.on(self.state.heap());
        self.check_device("the signal", handle)?;
        self.acquire64(handle.gpu_va(), value, !self.hold)?;
        self.note(handle);
        Ok(())
    }

    /// Sets the signal's value and time after all earlier work has ended.
    ///
    /// # Errors
    ///
    /// Returns an error if the signal belongs to another device or the queue has faulted.
    pub fn signal(&mut self, signal: &Signal, value: u64) -> Result<()> {
        let handle = signal.on(self.state.heap());
        self.check_device("the signal", handle)?;
        let (va, payload) = (handle.gpu_va(), Payload::Bits64(value));
        self.step(|encoder, busy| {
            let release = SemaphoreRelease { va, payload, wait_for_idle: busy, timestamp: true };
            encoder.semaphore_release(&release)?;
            // Wakes threads that sleep until this release.
            encoder.non_stall_interrupt()
        })?;
        self.batch.set_busy(false);
        self.note(handle);
        Ok(())
    }

    /// Writes the GPU's time to the signal after all earlier work has ended: see [`Signal::gpu_time_ns`]. Its value
    /// becomes `value`.
    ///
    /// # Errors
    ///
    /// As [`Queue::signal`].
    pub fn timestamp(&mut self, signal: &Signal, value: u64) -> Result<()> {
        self.signal(signal, value)
    }

    /// Makes writes by the CPU and other queues visible to later work of this queue, and writes of earlier work visible
    /// to them. Needed only if work is connected by other means than submissions, fences and signals, for example by a
    /// kernel that polls memory.
    ///
    /// # Errors
    ///
    /// Returns an error if the queue has faulted.
    pub fn memory_barrier(&mut self) -> Result<()> {
        let compute = self.current_engine() == Engine::Compute;
        self.step(|encoder, _| {
            encoder.wait_for_idle(WfiScope::CurrentScgType)?;
            encoder.memory_barrier(MemOpCMembarType::SysMembar)?;
            if compute { encoder.invalidate_shader_caches_no_wfi() } else { Ok(()) }
        })
    }

    /// Writes one word of a buffer after all earlier work has ended.
    ///
    /// # Errors
    ///
    /// [`Error::Range`] if the buffer has no element `index`. Also returns an error if the buffer belongs to another
    /// device or the queue has faulted.
    pub fn write(&mut self, target: &mut Buffer<u32>, index: usize, value: u32) -> Result<()> {
        let word = target.slice(index..=index)?;
        self.check_device("the buffer", word.handle())?;
        let (va, payload) = (word.gpu_va(), Payload::Bits32(value));
        self.step(|encoder, busy| {
            encoder.semaphore_release(&SemaphoreRelease {
                va,
                payload,
                wait_for_idle: busy,
                timestamp: false,
            })
        })?;
        self.batch.set_busy(false);
        self.note(word.handle());
        Ok(())
    }

    /// Makes the queue wait until a word of a buffer meets a condition.
    ///
    /// # Errors
    ///
    /// As [`Queue::write`].
    pub fn poll(&mut self, source: &Buffer<u32>, index: usize, until: Until) -> Result<()> {
        let word = source.slice(index..=index)?;
        self.check_device("the buffer", word.handle())?;
        let (value, condition) = match until {
            Until::Equal(value) => (value, AcquireCondition::Equal),
            Until::AtLeast(value) => (value, AcquireCondition::CircularGreaterOrEqual),
            Until::AnySet(value) => (value, AcquireCondition::AnySet),
        };
        let acquire = SemaphoreAcquire {
            va: word.gpu_va(),
            payload: Payload::Bits32(value),
            condition,
            switch_tsg: !self.hold,
        };
        self.step(|encoder, _| encoder.semaphore_acquire(&acquire))?;
        self.note(word.handle());
        Ok(())
    }

    /// How finely the queue's kernels can be interrupted for the work of others; `None` if the driver does not report
    /// it or the queue is closed.
    pub fn preemption(&self) -> Option<Preemption> {
        self.state.channels().and_then(|channels| channels.group.preemption())
    }

    /// Makes all submissions of `calls` with one doorbell per engine, at the end, so the GPU gets them together.
    /// Returns the result of `calls`. An open batch is submitted with them.
    ///
    /// The fence of such a submission can be waited for after `together` has returned. If the rings fill up, the
    /// doorbell is rung earlier.
    ///
    /// # Errors
    ///
    /// Those of `calls` and of [`Queue::submit`]. Submissions made before the error, or before a panic of `calls`, are
    /// sent.
    pub fn together<R>(&mut self, calls: impl FnOnce(&mut Self) -> Result<R>) -> Result<R> {
        /// Rings the doorbell at the end, also if `calls` panics.
        struct Held<'q>(&'q mut Queue);

        impl Drop for Held<'_> {
            fn drop(&mut self) {
                self.0.release_held();
                self.0.lanes.holding = false;
            }
        }

        if self.lanes.holding {
            return calls(self);
        }
        self.submit()?;
        self.lanes.holding = true;
        let held = Held(self);
        let value = calls(held.0)?;
        held.0.submit()?;
        Ok(value)
    }

    /// Submits the batch and waits until all work of the queue has ended.
    ///
    /// # Errors
    ///
    /// Those of [`Queue::submit`] and [`Fence::wait`].
    pub fn wait(&mut self, timeout: Duration) -> Result<()> {
        self.submit()?.wait(timeout)
    }

    /// The engine for the next step that can run on either engine.
    fn current_engine(&self) -> Engine {
        self.batch.open.map_or(self.schedule.last_engine, |open| open.engine)
    }

    /// Appends commands of the host engine, to run after all earlier work. The flag passed to the closure is `true` if
    /// the engine may be busy.
    fn step<R>(
        &mut self,
        commands: impl FnOnce(
            &mut Encoder<&mut SliceSink<'_>>,
            bool,
        ) -> core::result::Result<R, ampere_cmd::Error>,
    ) -> Result<R> {
        self.begin(self.current_engine())?;
        let busy = self.batch.open.is_some_and(|open| open.busy);
        self.encode(|encoder| commands(encoder, busy))
    }

    fn acquire64(&mut self, va: u64, value: u64, switch_tsg: bool) -> Result<()> {
        let acquire = SemaphoreAcquire {
            va,
            payload: Payload::Bits64(value),
            condition: AcquireCondition::CircularGreaterOrEqual,
            switch_tsg,
        };
        self.step(|encoder, _| encoder.semaphore_acquire(&acquire))
    }

    /// Refuses memory of another device, unless this device can map it; `what` names it.
    fn check_device(&self, what: &str, handle: &Handle) -> Result<()> {
        if Arc::ptr_eq(handle.heap(), self.state.heap()) {
            return Ok(());
        }
        self.state.heap().reach(what, handle)
    }

    /// As [`Queue::check_device`], for the arguments of a launch.
    #[cold]
    pub(crate) fn reach_arguments(&self, kernel: &Kernel, arguments: &[Arg<'_>]) -> Result<()> {
        for (index, argument) in arguments.iter().enumerate() {
            if let Arg::Buffer(buffer) = argument
                && buffer.device() != self.state.heap().id()
            {
                self.state.heap().reach(&name_of(kernel, index), buffer.handle())?;
            }
        }
        Ok(())
    }

    /// Ensures that threads have at least `bytes_per_thread` bytes of local memory in the open batch.
    #[inline]
    pub(crate) fn need_local(&mut self, bytes_per_thread: u32) -> Result<()> {
        if self.has_local(bytes_per_thread) { Ok(()) } else { self.grow_local(bytes_per_thread) }
    }

    /// Whether threads have at least that much local memory.
    #[inline]
    pub(crate) fn has_local(&self, bytes_per_thread: u32) -> bool {
        self.local.as_ref().is_some_and(|local| local.bytes_per_thread >= bytes_per_thread)
    }

    /// Sets the local memory of the queue's threads to `bytes_per_thread` bytes.
    #[cold]
    pub(crate) fn grow_local(&mut self, bytes_per_thread: u32) -> Result<()> {
        let bytes_per_thread = bytes_per_thread.checked_next_multiple_of(32).unwrap_or(u32::MAX);
        let device = Arc::clone(&self.state.device);
        let layout = device.driver().properties().local_layout;
        let size = local_memory_size(bytes_per_thread, layout)?;
        let memory = device.allocate(size.area_bytes, MemoryUse::Device, Content::LocalMemory)?;
        let va = memory.gpu_va();
        let old = self.local.is_some();
        self.encode(|encoder| {
            if old {
                // Threads of earlier launches still use the old memory.
                encoder.wait_for_idle(WfiScope::CurrentScgType)?;
            }
            encoder.shader_local_memory(va)?;
            encoder.shader_local_memory_size(size.bytes_per_tpc, device.chip().local.max_sm_count)
        })?;
        if let Some(old) = self.local.replace(LocalMemory { memory, bytes_per_thread }) {
            // Freed after everything encoded so far has ended.
            self.note(&old.memory);
        }
        Ok(())
    }

    /// Records that the open batch uses the memory.
    #[inline]
    pub(crate) fn note(&self, handle: &Handle) {
        handle.note(self.state.heap(), self.state.slot, self.next_value());
    }
}

impl fmt::Debug for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.state.fmt(f)
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        // Submitted work is allowed to end, unless the wait has already failed. Work that was never submitted is
        // dropped. A fence may keep the channels open beyond this point, so memory that the GPU reads waits for the
        // timeline, like all other memory.
        self.release_held();
        if self.state.may_finish() {
            let _ = self.state.wait(self.state.submitted(), self.timeout);
        }
        if let Some(host) = self.host.as_ref().filter(|_| !self.state.may_finish()) {
            host.abandon();
        }
        if collect::is_on() {
            self.collect();
        }
        let (slot, value) = (self.state.slot, self.state.submitted());
        let local = self.local.as_ref().map(|local| &local.memory);
        let own = self.lanes.all().map(|lane| &*lane.pushbuffer).chain([&*self.records.memory]);
        let own = own.chain(self.records.workspace.as_deref());
        for handle in own.chain(local) {
            handle.uses().note(slot, value);
        }
    }
}
