//! Queues: in-order streams of launches and copies.
//!
//! A queue owns a compute and a copy channel on one TSG, a pushbuffer ring for each, a ring of launch
//! records and a timeline. `launch` and `copy` encode into a batch; `submit` closes it with a release
//! of the next timeline value, writes one GPFIFO entry and rings the doorbell. Once warm, neither makes
//! a system call or allocates: all rings, the batch and the record of what is in flight have a fixed
//! size, and a full ring makes the call wait for the oldest submission.
//!
//! Everything runs in the order of the calls: launches of a batch are separated by wait-for-idle, and a
//! batch for one engine first acquires the last value that the other engine was to release.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ampere_cmd::command::{
    AcquireCondition, LinearCopy, Payload, PcasAction, SemaphoreAcquire, SemaphoreRelease, SmLayout,
    local_memory_size,
};
use ampere_cmd::gpfifo;
use ampere_cmd::host_c76f::WfiScope;
use ampere_cmd::pushbuffer::{Encoder, SliceSink, Subchannel};
use ampere_cmd::qmd::v3_0 as field;
use nvmap::volatile;

use crate::args::Arg;
use crate::backend::{DeviceMemory, Engine, SubmitRing};
use crate::device::{DEFAULT_TIMEOUT, Shared, Uses};
use crate::error::{Error, Result};
use crate::grid::Dim3;
use crate::memory::{Buffer, Pod};
use crate::program::{Kernel, KernelCode, STACK_RESERVE, SharedMemory, bank0, put};
use crate::ring::{Cursor, Mark};
use crate::wait::{Fence, QueueState};

/// Size of one pushbuffer ring in bytes: 64 Ki words, over a thousand full submissions.
const PUSHBUFFER_BYTES: u64 = 256 << 10;
/// Size of the ring of launch records in bytes: over a thousand records of usual size.
const LAUNCH_BYTES: u64 = 2 << 20;
/// Largest number of words of a batch; a longer one is submitted in parts.
const BATCH_WORDS: usize = 4096;
/// Words that one launch, copy or the end of a batch adds at most.
const STEP_WORDS: usize = 64;
/// A launch record holds constant bank 0 (at most 64 KiB), then the QMD.
const QMD_BYTES: u64 = 256;
/// Code of the 100 KiB shared-memory configuration: the largest that an SM is switched to for launches
/// that need no more.
const USUAL_SHARED_CONFIG: u32 = 100 / 4 + 1;
/// SET_SHADER_LOCAL_MEMORY_NON_THROTTLED_C: no limit on the number of SMs.
const LOCAL_MAX_SM_COUNT: u32 = 0xff;

/// Memory that `Queue::drop` takes out and parks.
#[derive(Debug)]
struct Held(Option<Box<dyn DeviceMemory>>);

impl Held {
    fn get(&self) -> &dyn DeviceMemory {
        // PANIC: only `Queue::drop` takes the memory.
        self.0.as_deref().expect("a live queue has its memory")
    }

    fn take(&mut self) -> Option<Box<dyn DeviceMemory>> {
        self.0.take()
    }
}

/// One channel with its pushbuffer.
#[derive(Debug)]
struct Lane {
    ring: SubmitRing,
    pushbuffer: Held,
    cursor: Cursor,
}

/// What a submission holds until its timeline value has passed.
#[derive(Clone, Copy, Debug)]
struct Submission {
    value: u64,
    engine: Engine,
    pushbuffer: Mark,
    launches: Mark,
}

/// A batch that is being encoded.
#[derive(Clone, Copy, Debug)]
struct Open {
    engine: Engine,
    /// Nothing that needs a wait-for-idle has been encoded yet.
    fresh: bool,
}

/// An in-order stream of launches and copies; see the module.
#[derive(Debug)]
pub struct Queue {
    state: Arc<QueueState>,
    compute: Lane,
    copy: Lane,
    launch_memory: Held,
    launch_cursor: Cursor,
    batch: Box<[u32; BATCH_WORDS]>,
    batch_len: usize,
    open: Option<Open>,
    last_engine: Engine,
    in_flight: VecDeque<Submission>,
    /// Ring entries less the one that stays empty.
    max_in_flight: usize,
    local: Option<LocalMemory>,
    /// Scratch for constant bank 0 and the QMD of one launch.
    record: Vec<u8>,
}

/// Backing store of the threads' stacks.
#[derive(Debug)]
struct LocalMemory {
    memory: Box<dyn DeviceMemory>,
    bytes_per_thread: u32,
}

impl Queue {
    pub(crate) fn open(device: &Arc<Shared>) -> Result<Self> {
        let channels = device.backend().open_channels()?;
        let lane = |engine, label| -> Result<Lane> {
            Ok(Lane {
                ring: channels.ring(engine),
                pushbuffer: Held(Some(device.allocate(PUSHBUFFER_BYTES, label)?)),
                cursor: Cursor::new(PUSHBUFFER_BYTES),
            })
        };
        let compute = lane(Engine::Compute, "compute pushbuffer")?;
        let copy = lane(Engine::Copy, "copy pushbuffer")?;
        let launch_memory = Held(Some(device.allocate(LAUNCH_BYTES, "launch records")?));
        let state = device.register_queue(|slot| Ok(Arc::new(QueueState::new(device, slot, channels))))?;
        let entries = compute.ring.entries().min(copy.ring.entries()) as usize;
        let mut queue = Self {
            state,
            compute,
            copy,
            launch_memory,
            launch_cursor: Cursor::new(LAUNCH_BYTES),
            batch: Box::new([0; BATCH_WORDS]),
            batch_len: 0,
            open: None,
            last_engine: Engine::Compute,
            in_flight: VecDeque::with_capacity(entries),
            max_in_flight: entries - 1,
            local: None,
            record: Vec::with_capacity((64 << 10) + QMD_BYTES as usize),
        };
        queue.set_up()?;
        Ok(queue)
    }

    /// Tells both engines their class and the compute engine its windows and local memory.
    fn set_up(&mut self) -> Result<()> {
        let device = Arc::clone(&self.state.device);
        let properties = device.backend().properties();
        self.begin(Engine::Compute)?;
        self.encode(|encoder| {
            encoder.set_object(Subchannel::COMPUTE, properties.compute_class)?;
            encoder.shader_local_memory_window(properties.local_window)?;
            encoder.shader_shared_memory_window(properties.shared_window)
        })?;
        self.grow_local(STACK_RESERVE)?;
        self.begin(Engine::Copy)?;
        self.encode(|encoder| encoder.set_object(Subchannel::COPY, properties.copy_class))?;
        self.submit()?.wait(DEFAULT_TIMEOUT)
    }

    /// Adds a launch of `grid` blocks of `block` threads to the batch. See [`Queue::submit`].
    ///
    /// # Errors
    ///
    /// When grid, block or arguments do not fit kernel or chip; when the queue has faulted.
    pub fn launch(
        &mut self,
        kernel: &Kernel,
        grid: impl Into<Dim3>,
        block: impl Into<Dim3>,
        arguments: &[Arg<'_>],
    ) -> Result<()> {
        self.launch_with_shared(kernel, grid, block, 0, arguments)
    }

    /// As [`Queue::launch`], with `shared_bytes` of dynamic shared memory per block.
    ///
    /// # Errors
    ///
    /// As [`Queue::launch`].
    pub fn launch_with_shared(
        &mut self,
        kernel: &Kernel,
        grid: impl Into<Dim3>,
        block: impl Into<Dim3>,
        shared_bytes: u32,
        arguments: &[Arg<'_>],
    ) -> Result<()> {
        let (grid, block) = (grid.into(), block.into());
        let code = kernel.code();
        grid.check_grid()?;
        code.check_block(block)?;
        let shared = code.shared_memory(shared_bytes)?;
        self.check_arguments(kernel, arguments)?;

        self.begin(Engine::Compute)?;
        if self.local.as_ref().is_none_or(|local| local.bytes_per_thread < code.local_bytes) {
            self.grow_local(code.local_bytes)?;
        }

        let qmd_va = self.write_record(code, grid, block, shared, arguments)?;
        let fresh = self.open.is_some_and(|open| open.fresh);
        self.encode(|encoder| {
            if !fresh {
                encoder.wait_for_idle(WfiScope::CurrentScgType)?;
            }
            encoder.invalidate_shader_caches_no_wfi()?;
            encoder.launch(qmd_va, PcasAction::InvalidateCopySchedule)
        })?;
        if let Some(open) = &mut self.open {
            open.fresh = false;
        }
        self.note_uses(kernel, arguments);
        Ok(())
    }

    /// Adds a copy of the whole of `source` to `target` by the copy engine.
    ///
    /// # Errors
    ///
    /// When the lengths differ or a buffer belongs to another device; when the queue has faulted.
    pub fn copy<T: Pod>(&mut self, source: &Buffer<T>, target: &mut Buffer<T>) -> Result<()> {
        if source.len() != target.len() {
            return Err(Error::Range(format!(
                "a buffer of {} elements cannot be copied to one of {}",
                source.len(),
                target.len()
            )));
        }
        let id = self.state.device.id();
        if source.as_use().device != id || target.as_use().device != id {
            return Err(Error::OtherDevice("a buffer"));
        }
        let bytes = (source.len() * size_of::<T>()) as u64;
        if bytes == 0 {
            return Ok(());
        }
        self.begin(Engine::Copy)?;
        let copy = LinearCopy { source: source.gpu_va(), destination: target.gpu_va(), bytes };
        self.encode(|encoder| encoder.linear_copy(&copy))?;
        let value = self.next_value();
        source.uses().note(self.state.slot, value);
        target.uses().note(self.state.slot, value);
        Ok(())
    }

    /// Sends the batch to the GPU. Returns the fence of its end; without a batch, that of the last one.
    ///
    /// # Errors
    ///
    /// When the queue has faulted, or the rings stay full for [`DEFAULT_TIMEOUT`].
    pub fn submit(&mut self) -> Result<Fence> {
        let Some(open) = self.open else {
            return Ok(Fence { state: Arc::clone(&self.state), value: self.state.submitted() });
        };
        let value = self.next_value();
        let release = SemaphoreRelease {
            va: self.state.timeline.gpu_va(),
            payload: Payload::Bits64(value),
            wait_for_idle: true,
            timestamp: true,
        };
        self.encode(|encoder| encoder.semaphore_release(&release))?;
        self.reclaim();
        while self.in_flight.len() >= self.max_in_flight {
            self.wait_oldest()?;
        }
        let bytes = self.batch_len as u64 * 4;
        let offset = loop {
            if let Some(offset) = self.lane(open.engine).cursor.reserve(bytes, 4) {
                break offset;
            }
            self.wait_oldest()?;
        };
        let pushbuffer = self.lane(open.engine).pushbuffer.get();
        let (target, va) = (pushbuffer.cpu(), pushbuffer.gpu_va() + offset);
        let words = &self.batch[..self.batch_len];
        // SAFETY: the cursor gave room for the words at `offset` inside the pushbuffer, a multiple of
        // 4, and nothing in flight uses it; the memory lives as long as `self`.
        unsafe { volatile::store(target.as_ptr().add(offset as usize), bytemuck::cast_slice(words)) };
        // CAST: a batch has at most BATCH_WORDS words.
        let entry = gpfifo::Entry::from(gpfifo::Segment::new(va, words.len() as u32)).encode()?;
        self.ring(open.engine, entry)?;
        let submission = Submission {
            value,
            engine: open.engine,
            pushbuffer: self.lane(open.engine).cursor.mark(),
            launches: self.launch_cursor.mark(),
        };
        self.in_flight.push_back(submission);
        self.state.set_submitted(value);
        self.last_engine = open.engine;
        self.open = None;
        self.batch_len = 0;
        Ok(Fence { state: Arc::clone(&self.state), value })
    }

    /// Submits the batch and waits until everything has ended.
    ///
    /// # Errors
    ///
    /// Those of [`Queue::submit`] and [`Fence::wait`].
    pub fn wait(&mut self, timeout: Duration) -> Result<()> {
        self.submit()?.wait(timeout)
    }

    /// The value that the open batch, or the next one, will release.
    fn next_value(&self) -> u64 {
        self.state.submitted() + 1
    }

    /// Makes sure that a batch for `engine` is open and has room for one more step.
    fn begin(&mut self, engine: Engine) -> Result<()> {
        if let Some(open) = self.open
            && (open.engine != engine || self.batch_len + STEP_WORDS > BATCH_WORDS)
        {
            self.submit()?;
        }
        if self.open.is_some() {
            return Ok(());
        }
        self.state.check()?;
        self.open = Some(Open { engine, fresh: true });
        if self.last_engine != engine {
            let acquire = SemaphoreAcquire {
                va: self.state.timeline.gpu_va(),
                payload: Payload::Bits64(self.state.submitted()),
                condition: AcquireCondition::CircularGreaterOrEqual,
                switch_tsg: true,
            };
            self.encode(|encoder| encoder.semaphore_acquire(&acquire))?;
        }
        Ok(())
    }

    /// Appends commands to the batch, whole or not at all.
    fn encode(
        &mut self,
        commands: impl FnOnce(&mut Encoder<&mut SliceSink<'_>>) -> core::result::Result<(), ampere_cmd::Error>,
    ) -> Result<()> {
        let mut sink = SliceSink::new(&mut self.batch[self.batch_len..]);
        commands(&mut Encoder::new(&mut sink))?;
        self.batch_len += sink.len();
        Ok(())
    }

    fn lane(&mut self, engine: Engine) -> &mut Lane {
        match engine {
            Engine::Compute => &mut self.compute,
            Engine::Copy => &mut self.copy,
        }
    }

    /// Writes constant bank 0 and the launch descriptor of one launch into the launch ring; returns the
    /// descriptor's address.
    fn write_record(
        &mut self,
        code: &KernelCode,
        grid: Dim3,
        block: Dim3,
        shared: SharedMemory,
        arguments: &[Arg<'_>],
    ) -> Result<u64> {
        let bank_bytes = (code.bank0.len() as u64).next_multiple_of(256);
        let offset = self.reserve_launch(bank_bytes + QMD_BYTES)?;
        let bank_va = self.launch_memory.get().gpu_va() + offset;
        let qmd_va = bank_va + bank_bytes;

        self.record.clear();
        self.record.extend_from_slice(&code.bank0);
        for (axis, (block, grid)) in block.to_array().into_iter().zip(grid.to_array()).enumerate() {
            put(&mut self.record, bank0::BLOCK + 4 * axis, &block.to_le_bytes());
            put(&mut self.record, bank0::GRID + 4 * axis, &grid.to_le_bytes());
        }
        put(&mut self.record, bank0::DYNAMIC_SHARED, &shared.dynamic_bytes.to_le_bytes());
        for (param, argument) in code.params.iter().zip(arguments) {
            argument.write_to(&mut self.record[param.offset..param.offset + param.size]);
        }
        self.record.resize(bank_bytes as usize, 0);

        let mut qmd = code.qmd;
        for (field, value) in [
            (field::CTA_RASTER_WIDTH, u64::from(grid.x)),
            (field::CTA_RASTER_HEIGHT, u64::from(grid.y)),
            (field::CTA_RASTER_DEPTH, u64::from(grid.z)),
            (field::CTA_THREAD_DIMENSION0, u64::from(block.x)),
            (field::CTA_THREAD_DIMENSION1, u64::from(block.y)),
            (field::CTA_THREAD_DIMENSION2, u64::from(block.z)),
            (field::SHARED_MEMORY_SIZE, u64::from(shared.bytes)),
            (field::MIN_SM_CONFIG_SHARED_MEM_SIZE, u64::from(shared.config)),
            (field::TARGET_SM_CONFIG_SHARED_MEM_SIZE, u64::from(shared.config)),
            (field::MAX_SM_CONFIG_SHARED_MEM_SIZE, u64::from(shared.config.max(USUAL_SHARED_CONFIG))),
            (field::CONSTANT_BUFFER_ADDR_LOWER.at(0)?, bank_va & 0xffff_ffff),
            (field::CONSTANT_BUFFER_ADDR_UPPER.at(0)?, bank_va >> 32),
        ] {
            qmd.set(field, value)?;
        }
        for word in qmd.as_words() {
            self.record.extend_from_slice(&word.to_le_bytes());
        }
        // SAFETY: `reserve_launch` gave `record.len()` bytes at `offset` inside the launch memory, and
        // nothing in flight uses them; the memory lives as long as `self`.
        unsafe {
            volatile::store(self.launch_memory.get().cpu().as_ptr().add(offset as usize), &self.record)
        };
        Ok(qmd_va)
    }

    /// Reserves a launch record. A full ring is emptied by waiting, the open batch by submitting it.
    fn reserve_launch(&mut self, bytes: u64) -> Result<u64> {
        if bytes > self.launch_cursor.capacity() {
            return Err(Error::Launch(format!(
                "a launch record of {bytes} bytes does not fit the launch ring"
            )));
        }
        self.reclaim();
        loop {
            if let Some(offset) = self.launch_cursor.reserve(bytes, QMD_BYTES) {
                return Ok(offset);
            }
            if self.in_flight.is_empty() {
                self.submit()?;
                self.begin(Engine::Compute)?;
            }
            self.wait_oldest()?;
        }
    }

    /// Takes back what the GPU has finished with.
    fn reclaim(&mut self) {
        let seen = self.state.timeline.value();
        while let Some(oldest) = self.in_flight.front().copied()
            && oldest.value <= seen
        {
            self.lane(oldest.engine).cursor.release(oldest.pushbuffer);
            self.launch_cursor.release(oldest.launches);
            self.in_flight.pop_front();
        }
    }

    /// Waits for the oldest submission and takes back what it held.
    fn wait_oldest(&mut self) -> Result<()> {
        if let Some(oldest) = self.in_flight.front() {
            self.state.wait(oldest.value, DEFAULT_TIMEOUT)?;
        }
        self.reclaim();
        Ok(())
    }

    /// Writes one ring entry and rings the doorbell. The host engine reports its progress through the
    /// ring lazily, so a ring that looks full is looked at again.
    fn ring(&mut self, engine: Engine, entry: u64) -> Result<()> {
        let start = Instant::now();
        while self.lane(engine).ring.submit(entry).is_err() {
            self.state.check()?;
            if start.elapsed() >= DEFAULT_TIMEOUT {
                return Err(Error::Timeout {
                    timeout: DEFAULT_TIMEOUT,
                    wanted: self.next_value(),
                    seen: self.state.timeline.value(),
                    cause: "the GPFIFO ring stays full".to_owned(),
                });
            }
            std::thread::yield_now();
        }
        Ok(())
    }

    /// Gives the queue's threads at least `bytes_per_thread` bytes of local memory.
    fn grow_local(&mut self, bytes_per_thread: u32) -> Result<()> {
        let bytes_per_thread = bytes_per_thread.next_multiple_of(32);
        let device = Arc::clone(&self.state.device);
        let properties = device.backend().properties();
        let tpc_count = properties.tpc_count.max(1);
        let layout = SmLayout {
            warps_per_sm: properties.warps_per_sm,
            sm_per_tpc: properties.sm_count.div_ceil(tpc_count),
            tpc_count,
        };
        let size = local_memory_size(bytes_per_thread, layout);
        let memory = device.allocate(size.area_bytes, "local memory")?;
        let va = memory.gpu_va();
        self.encode(|encoder| {
            // Threads of earlier launches still use the old memory.
            encoder.wait_for_idle(WfiScope::CurrentScgType)?;
            encoder.shader_local_memory(va)?;
            encoder.shader_local_memory_size(size.bytes_per_tpc, LOCAL_MAX_SM_COUNT)
        })?;
        if let Some(old) = self.local.replace(LocalMemory { memory, bytes_per_thread }) {
            self.park(old.memory);
        }
        Ok(())
    }

    /// Frees memory once everything encoded so far has ended.
    fn park(&self, memory: Box<dyn DeviceMemory>) {
        let uses = Uses::default();
        uses.note(self.state.slot, self.next_value());
        self.state.device.free(memory, &uses);
    }

    fn check_arguments(&self, kernel: &Kernel, arguments: &[Arg<'_>]) -> Result<()> {
        let id = self.state.device.id();
        if kernel.program.device.id() != id {
            return Err(Error::OtherDevice("the kernel"));
        }
        let params = &kernel.code().params;
        let refuse = |reason| Err(Error::Arguments { kernel: kernel.name().to_owned(), reason });
        if params.len() != arguments.len() {
            let sizes: Vec<String> = kernel.parameter_sizes().map(|size| size.to_string()).collect();
            return refuse(format!(
                "takes {} arguments, {} were given (parameter sizes in bytes: {})",
                params.len(),
                arguments.len(),
                if sizes.is_empty() { "none".to_owned() } else { sizes.join(", ") }
            ));
        }
        for (index, (param, argument)) in params.iter().zip(arguments).enumerate() {
            if param.size != argument.size() {
                return refuse(format!(
                    "argument {index} has {} bytes, the parameter has {}",
                    argument.size(),
                    param.size
                ));
            }
            if let Arg::Buffer(buffer) = argument
                && buffer.device != id
            {
                return Err(Error::OtherDevice("a buffer"));
            }
        }
        Ok(())
    }

    /// Records that the open batch uses the kernel's code and the buffers.
    fn note_uses(&self, kernel: &Kernel, arguments: &[Arg<'_>]) {
        let (slot, value) = (self.state.slot, self.next_value());
        kernel.program.uses.note(slot, value);
        self.state.set_last_kernel(kernel.code().code_va);
        for argument in arguments {
            if let Arg::Buffer(buffer) = argument {
                buffer.uses.note(slot, value);
            }
        }
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        // Submitted work is allowed to end, unless it has already failed to; what was never submitted
        // is dropped. A fence may keep the channels open beyond this point, so the memory that the GPU
        // reads is parked rather than freed.
        if self.state.may_finish() {
            let _ = self.state.wait(self.state.submitted(), DEFAULT_TIMEOUT);
        }
        let lanes = [self.compute.pushbuffer.take(), self.copy.pushbuffer.take(), self.launch_memory.take()];
        let local = self.local.take().map(|local| local.memory);
        let uses = Uses::default();
        uses.note(self.state.slot, self.state.submitted());
        for memory in lanes.into_iter().flatten().chain(local) {
            self.state.device.free(memory, &uses);
        }
    }
}
