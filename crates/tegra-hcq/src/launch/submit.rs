//! Batches and submissions: the path of command words from an encoder to the GPU.
//!
//! A batch collects the commands for one engine. It ends with a release of the next timeline value, by the host engine
//! or by the descriptor of the last launch. The words go to the pushbuffer ring of the engine's channel, a GPFIFO entry
//! refers to them, and the doorbell notifies the host engine. Space is reused after the timeline has passed the
//! submission that used it.

use std::sync::Arc;
use std::time::Instant;

use ampere_cmd::command::{
    AcquireCondition, L2Operation, Payload, PcasAction, SemaphoreAcquire, SemaphoreRelease,
};
use ampere_cmd::gpfifo;
use ampere_cmd::host_c76f::WfiScope;
use ampere_cmd::pushbuffer::{Encoder, Sink, SliceSink};

use super::record::{self, Parameters, Record, Release, copy_out};
use crate::args::Arg;
use crate::descriptor::ALIGN;
use crate::error::{LaunchError, Result};
use crate::interrupt::Interrupts;
use crate::launch::shape::Shape;
use crate::limits::{DEFAULT_TIMEOUT, Dim3};
use crate::program::Kernel;
use crate::queue::Queue;
use crate::queue::schedule::Engine;
use crate::wait::{Fence, Health};

/// Largest number of words in a batch; a longer batch is submitted in parts.
const BATCH_WORDS: usize = 4096;
/// Largest number of words that one command adds, including the end of a batch.
const STEP_WORDS: usize = 96;

/// A batch that is being encoded.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Open {
    pub(crate) engine: Engine,
    /// Whether the engine may still run earlier work; if so, a release has to wait until it is idle.
    pub(crate) busy: bool,
}

/// The commands of the submission being encoded.
#[derive(Debug)]
pub(crate) struct Batch {
    words: Box<[u32; BATCH_WORDS]>,
    len: usize,
    pub(crate) open: Option<Open>,
    /// The launch at the end of the batch; the next launch may be chained to it.
    pub(crate) chain_end: Option<Record>,
    /// Whether the descriptor of that launch writes a time stamp, and therefore cannot release the timeline.
    pub(crate) stamped: bool,
}

impl Batch {
    pub(crate) fn new() -> Self {
        Self { words: Box::new([0; BATCH_WORDS]), len: 0, open: None, chain_end: None, stamped: false }
    }

    /// Discards the commands.
    pub(crate) fn clear(&mut self) {
        self.open = None;
        self.chain_end = None;
        self.stamped = false;
        self.len = 0;
    }

    /// Appends all of the commands or none. A launch cannot be chained across them.
    #[inline]
    pub(crate) fn encode<R>(
        &mut self,
        commands: impl FnOnce(&mut Encoder<&mut SliceSink<'_>>) -> core::result::Result<R, ampere_cmd::Error>,
    ) -> Result<R> {
        let mut sink = SliceSink::new(&mut self.words[self.len..]);
        let result = commands(&mut Encoder::new(&mut sink))?;
        self.len += sink.len();
        self.chain_end = None;
        Ok(result)
    }

    /// Records that the engine of the open batch has work, or that a release has waited for its end.
    #[inline]
    pub(crate) fn set_busy(&mut self, busy: bool) {
        if let Some(open) = &mut self.open {
            open.busy = busy;
        }
    }
}

/// Encodes the end of a submission: releases `value` with a time stamp on the timeline at `timeline` after all work has
/// ended. The wait for idle can be left out if the engine has been idle since the previous release. No word may follow,
/// because the CPU owns the words from the moment it sees the value. With `l2_flush`, the L2 cache is written back
/// first. Returns the position of the value, as [`Encoder::semaphore_release`] does.
#[inline]
pub(crate) fn encode_end<S: Sink>(
    encoder: &mut Encoder<S>,
    timeline: u64,
    value: u64,
    wait_for_idle: bool,
    l2_flush: bool,
) -> core::result::Result<usize, ampere_cmd::Error> {
    if l2_flush {
        // The host engine runs it at once.
        if wait_for_idle {
            encoder.wait_for_idle(WfiScope::All)?;
        }
        encoder.l2_operation(L2Operation::FlushDirty)?;
    }
    encoder.semaphore_release(&SemaphoreRelease {
        va: timeline,
        payload: Payload::Bits64(value),
        wait_for_idle,
        timestamp: true,
    })
}

impl Queue {
    /// Adds a launch of `grid` blocks of `block` threads to the batch, with a list of arguments. See [`Queue::submit`].
    /// [`TypedKernel::launch`](crate::TypedKernel::launch) is the safe alternative.
    ///
    /// # Errors
    ///
    /// Returns an error if the grid, block or arguments do not fit the kernel or the chip, or if the queue has faulted.
    ///
    /// # Safety
    ///
    /// A kernel can access all memory that the process has mapped for the GPU. Run with this grid, block and these
    /// arguments, it must access none of it except
    ///
    /// - the buffers among the arguments, and the variables and constants of its program,
    /// - memory that the caller keeps allocated, and to which the CPU has no [`View`](crate::View), until the work has
    ///   ended.
    ///
    /// The queue records the use of the buffers among the arguments, so views wait, and dropped buffers are freed
    /// later. It does not know memory that the kernel reaches by a number, or by a pointer inside a struct or a buffer.
    /// An access to an address without memory is a fault, not undefined behaviour.
    pub unsafe fn launch(
        &mut self,
        kernel: &Kernel,
        grid: impl Into<Dim3>,
        block: impl Into<Dim3>,
        arguments: &[Arg<'_>],
    ) -> Result<()> {
        // SAFETY: the caller's promise is passed on.
        unsafe { self.launch_with_shared(kernel, grid, block, 0, arguments) }
    }

    /// As [`Queue::launch`], with `shared_bytes` of dynamic shared memory per block.
    ///
    /// # Errors
    ///
    /// As [`Queue::launch`].
    ///
    /// # Safety
    ///
    /// As for [`Queue::launch`].
    pub unsafe fn launch_with_shared(
        &mut self,
        kernel: &Kernel,
        grid: impl Into<Dim3>,
        block: impl Into<Dim3>,
        shared_bytes: u32,
        arguments: &[Arg<'_>],
    ) -> Result<()> {
        self.add_launch(kernel, grid.into(), block.into(), shared_bytes, Parameters::List(arguments))
    }

    /// Adds a launch. The caller has made the promises of [`Queue::launch`].
    #[inline]
    pub(crate) fn add_launch(
        &mut self,
        kernel: &Kernel,
        grid: Dim3,
        block: Dim3,
        shared_bytes: u32,
        parameters: Parameters<'_>,
    ) -> Result<()> {
        let code = kernel.code();
        let shape = Shape { priority: self.priority, ..code.shape(grid, block, shared_bytes)? };
        if parameters.check(self.state.heap().id(), kernel)? {
            self.reach_arguments(kernel, parameters.arguments())?;
        }
        if self.profiling.enabled {
            self.begin_launch_span(kernel, &shape)?;
        }
        self.begin(Engine::Compute)?;
        self.need_local(code.local_bytes)?;
        self.records.need_workspace(code)?;

        let offset = self.reserve_launch(record::record_bytes(code))?;
        let programs = self.state.device.programs_loaded();
        // Code loaded since the last invalidation of the caches may occupy addresses of earlier code.
        let stale = self.schedule.invalidated != programs;
        let last = self.batch.chain_end.filter(|_| !stale && self.encodings.chain.is_some());
        let latches = record::latches(code, (self.state.slot, offset), last);
        let record = self.records.write(offset, code, &shape, parameters, latches)?;
        match last {
            Some(last) => self.records.chain(last, record)?,
            None => self.start(record, stale)?,
        }
        self.schedule.invalidated = programs;
        self.batch.chain_end = Some(record);
        self.batch.stamped = false;
        if self.profiling.enabled {
            self.end_launch_span(record)?;
        }
        self.note_launch(kernel, parameters.arguments());
        tracing::trace!(
            queue = self.state.slot,
            value = self.next_value(),
            kernel = code.name,
            grid = %shape.grid,
            block = %shape.block,
            shared_bytes,
            "launch"
        );
        Ok(())
    }

    /// Encodes the words that start the launch of a record after all earlier work. `stale` is whether caches may hold
    /// other code.
    fn start(&mut self, record: Record, stale: bool) -> Result<()> {
        let qmd_va = self.records.va(record);
        // PANIC: `launch` has opened the batch.
        let open = self.batch.open.as_mut().expect("a batch is open");
        let wait = open.busy;
        open.busy = true;
        let invalidate = stale || self.encodings.shader_invalidate;
        // A prefetch takes what is cached, so the caches must not contain an earlier descriptor at the address.
        let lap = self.records.cursor.lap();
        let can_prefetch = wait && self.encodings.early_prefetch;
        let prefetch = can_prefetch && self.schedule.swept_lap == lap;
        let action = if prefetch { PcasAction::Schedule } else { self.encodings.pcas_action };
        self.encode(|encoder| {
            if prefetch {
                encoder.launch(qmd_va, PcasAction::Prefetch)?;
            }
            if wait {
                encoder.wait_for_idle(WfiScope::CurrentScgType)?;
            }
            if can_prefetch && !prefetch {
                encoder.invalidate_sked_caches()?;
            }
            if invalidate {
                encoder.invalidate_shader_caches_no_wfi()?;
            }
            encoder.launch(qmd_va, action)
        })?;
        if can_prefetch {
            self.schedule.swept_lap = lap;
        }
        Ok(())
    }

    /// Reserves a launch record. If the ring is full, submits the open batch and waits for submissions to end.
    fn reserve_launch(&mut self, bytes: u64) -> Result<u64> {
        if let Some(offset) = self.records.cursor.reserve(bytes, ALIGN) {
            return Ok(offset);
        }
        if bytes > self.records.cursor.capacity() {
            return Err(LaunchError::Record { bytes }.into());
        }
        self.reclaim(self.state.look());
        loop {
            if let Some(offset) = self.records.cursor.reserve(bytes, ALIGN) {
                return Ok(offset);
            }
            if self.schedule.in_flight.is_empty() {
                self.submit()?;
                self.begin(Engine::Compute)?;
            }
            self.wait_oldest()?;
        }
    }

    /// Records that the open batch uses the kernel's code and the buffers.
    #[inline]
    pub(crate) fn note_launch(&self, kernel: &Kernel, arguments: &[Arg<'_>]) {
        let (slot, value) = (self.state.slot, self.next_value());
        kernel.uses().note(slot, value);
        self.state.set_last_kernel(kernel.code().code_va);
        for argument in arguments {
            if let Arg::Buffer(buffer) = argument {
                buffer.handle().note(self.state.heap(), slot, value);
            }
        }
    }

    /// Submits the batch to the GPU. Returns the fence of its end; without an open batch, the fence of the last one.
    ///
    /// # Errors
    ///
    /// Returns an error if the queue has faulted, or if the rings stay full for [`DEFAULT_TIMEOUT`].
    // Inlined, so that the fence stays in registers: see `queue::schedule`.
    #[inline]
    pub fn submit(&mut self) -> Result<Fence> {
        self.send_batch()?;
        Ok(self.fence(self.schedule.queued))
    }

    /// As [`Queue::submit`], without a fence. Returns the submission's value: [`Fence::at`] of another fence of this
    /// queue makes its fence. For callers that submit much more often than they wait: the store to the doorbell is the
    /// last step, and nothing waits for it to reach the GPU.
    ///
    /// # Errors
    ///
    /// As [`Queue::submit`].
    #[inline]
    pub fn send(&mut self) -> Result<u64> {
        self.send_batch()?;
        Ok(self.schedule.queued)
    }

    /// Submits the batch to the GPU, if one is open. After an error the batch stays open, without its end.
    fn send_batch(&mut self) -> Result<()> {
        if self.batch.open.is_none() && self.state.health() == Health::Forgiven {
            // The last submission is lost: an end of nothing on new channels, not that submission's fault again.
            self.begin(Engine::Compute)?;
        }
        let Some(open) = self.batch.open else { return Ok(()) };
        self.make_room()?;
        let (value, timeline) = (self.next_value(), self.state.timeline.gpu_va());
        let by_descriptor = self.schedule.release_by_descriptor && !self.batch.stamped;
        let last = self.batch.chain_end.filter(|_| by_descriptor);
        let words = self.batch.len;
        if last.is_none() {
            let flush = self.encodings.l2_flush;
            self.encode(|encoder| encode_end(encoder, timeline, value, open.busy, flush))?;
        }
        if let Err(error) = self.hand_over(open.engine, value, last) {
            self.batch.len = words;
            return Err(error);
        }
        self.batch.clear();
        self.submitted(open.engine, value, last.is_some());
        Ok(())
    }

    /// Passes the words of the batch to the GPU. If there is a `last` launch, it releases `value`.
    fn hand_over(&mut self, engine: Engine, value: u64, last: Option<Record>) -> Result<()> {
        let bytes = self.batch.len as u64 * 4;
        let offset = loop {
            if let Some(offset) = self.lanes.get(engine).cursor.reserve(bytes, 4) {
                break offset;
            }
            self.wait_oldest()?;
        };
        let pushbuffer = &self.lanes.get(engine).pushbuffer;
        let (target, va) = (pushbuffer.cpu(), pushbuffer.gpu_va() + offset);
        let words = &self.batch.words[..self.batch.len];
        // SAFETY: the cursor reserved space for the words at `offset` inside the pushbuffer, a multiple of 4, and
        // nothing in flight uses it. The memory lives as long as `self`.
        unsafe { copy_out(target.add(offset as usize), bytemuck::cast_slice(words)) };
        // CAST: a batch has at most BATCH_WORDS words.
        let entry = gpfifo::Entry::from(gpfifo::Segment::new(va, words.len() as u32)).encode()?;
        // Recorded operations may be submitted after recording is switched off.
        if self.profiling.is_in_use() {
            self.stamp_spans(false);
        }
        tracing::trace!(queue = self.state.slot, value, ?engine, words = self.batch.len, "submit");
        let Some(last) = last else { return self.ring(engine, entry) };
        let release = Release::timeline(self.encodings.chip(), self.state.timeline.gpu_va(), value);
        self.records.release(last, release)?;
        self.ring(engine, entry).or_else(|error| {
            // More launches may follow in the batch.
            self.records.release(last, Release::NONE)?;
            Err(error)
        })
    }

    /// Records that a submission is in the ring, and whether its last launch releases its value.
    #[inline]
    pub(crate) fn submitted(&mut self, engine: Engine, value: u64, by_descriptor: bool) {
        let (pushbuffer, launches) = (self.lanes.get(engine).cursor.mark(), self.records.cursor.mark());
        self.schedule.in_flight.push(value, engine, pushbuffer, launches);
        self.schedule.queued = value;
        if !self.lanes.holding {
            self.state.set_submitted(value);
        }
        self.schedule.last_engine = engine;
        self.schedule.trailing = by_descriptor;
    }

    /// Whether the engine may still run the last submission, which does not wait for the engine to be idle.
    #[inline]
    pub(crate) fn is_trailing(&self) -> bool {
        self.schedule.trailing && !self.state.reached(self.schedule.queued)
    }

    /// Frees the resources of ended submissions and waits until another submission fits.
    #[inline]
    pub(crate) fn make_room(&mut self) -> Result<()> {
        self.reclaim(self.state.seen());
        if self.schedule.in_flight.len() >= self.schedule.in_flight.capacity() / 2 {
            self.reclaim(self.state.look());
        }
        while self.schedule.in_flight.is_full() {
            self.wait_oldest()?;
        }
        Ok(())
    }

    /// Prepares the fence of a value for [`Queue::fence`]. On some CPUs, counting a reference waits for all earlier
    /// stores, and so does moving data that was stored in parts. The fence is therefore prepared before the stores that
    /// the GPU sees.
    #[inline]
    pub(crate) fn prepare_fence(&mut self, value: u64) {
        self.schedule.prepared = Some(Fence { state: Arc::clone(&self.state), value });
    }

    /// Makes every buffer that is freed from now on wait for `value`, if the queue may use any memory.
    #[inline]
    pub(crate) fn claim_memory(&self, value: u64) {
        if self.any_memory {
            self.state.heap().claim(self.state.slot, value);
        }
    }

    /// The fence of a value.
    #[inline]
    pub(crate) fn fence(&mut self, value: u64) -> Fence {
        let prepared = self.schedule.prepared.take_if(|fence| fence.value == value);
        prepared.unwrap_or_else(|| Fence { state: Arc::clone(&self.state), value })
    }

    /// The value that the open batch, or the next one, will release.
    #[inline]
    pub(crate) fn next_value(&self) -> u64 {
        self.schedule.queued + 1
    }

    /// Ensures that a batch for `engine` is open and has room for one more step.
    pub(crate) fn begin(&mut self, engine: Engine) -> Result<()> {
        self.check_health()?;
        let tables = engine == Engine::Compute && self.lacks_textures();
        if let Some(open) = self.batch.open
            && (open.engine != engine || self.batch.len + STEP_WORDS > BATCH_WORDS || tables)
        {
            self.submit()?;
        }
        if self.batch.open.is_some() {
            return Ok(());
        }
        // The last value of another engine follows the end of this engine's work, because that engine has waited
        // for it.
        let (changes, trailing) = (self.schedule.last_engine != engine, self.is_trailing());
        // A wait for an idle engine also stops the other queues of the group.
        let acquires = changes || trailing && self.overlap;
        let busy = trailing && !acquires;
        self.batch.open = Some(Open { engine, busy });
        self.claim_memory(self.next_value());
        self.prepare_fence(self.next_value());
        if acquires {
            let acquire = SemaphoreAcquire {
                va: self.state.timeline.gpu_va(),
                payload: Payload::Bits64(self.schedule.queued),
                condition: AcquireCondition::CircularGreaterOrEqual,
                switch_tsg: true,
            };
            self.encode(|encoder| encoder.semaphore_acquire(&acquire))?;
        }
        if self.encodings.l2_invalidate {
            self.encode(|encoder| {
                if busy {
                    encoder.wait_for_idle(WfiScope::All)?;
                }
                encoder.l2_operation(L2Operation::SysmemInvalidate)
            })?;
        }
        if tables { self.set_textures() } else { Ok(()) }
    }

    /// Whether there are textures whose tables the queue has not set.
    #[inline]
    pub(crate) fn lacks_textures(&self) -> bool {
        !self.textures && self.state.device.textures().exist()
    }

    /// Sets the tables of texture headers and samplers.
    #[cold]
    fn set_textures(&mut self) -> Result<()> {
        self.textures = true;
        let Some(places) = self.state.device.textures().places() else { return Ok(()) };
        self.encode(|encoder| {
            encoder.texture_headers(places.headers, places.last)?;
            encoder.texture_samplers(places.samplers, places.last)
        })
    }

    /// Appends commands to the batch: see [`Batch::encode`].
    #[inline]
    pub(crate) fn encode<R>(
        &mut self,
        commands: impl FnOnce(&mut Encoder<&mut SliceSink<'_>>) -> core::result::Result<R, ampere_cmd::Error>,
    ) -> Result<R> {
        self.batch.encode(commands)
    }

    /// Frees the resources of submissions up to the timeline value `seen`.
    #[inline]
    pub(crate) fn reclaim(&mut self, seen: u64) {
        while let Some(oldest) = self.schedule.in_flight.oldest().copied()
            && oldest.value <= seen
        {
            self.lanes.get(oldest.engine).cursor.release(oldest.pushbuffer);
            self.records.cursor.release(oldest.launches);
            self.schedule.in_flight.pop();
        }
    }

    /// Waits for the oldest submission and frees its resources.
    #[cold]
    pub(crate) fn wait_oldest(&mut self) -> Result<()> {
        self.release_held();
        if let Some(oldest) = self.schedule.in_flight.oldest() {
            self.state.wait(oldest.value, DEFAULT_TIMEOUT)?;
        }
        self.reclaim(self.state.look());
        Ok(())
    }

    /// Writes one ring entry and rings the doorbell. The host engine updates GP_GET lazily, so a ring that looks full
    /// is read again.
    #[inline]
    pub(crate) fn ring(&mut self, engine: Engine, entry: u64) -> Result<()> {
        if self.lanes.holding {
            return self.hold(engine, entry);
        }
        // SAFETY: the entry is one of the queue's own batches or graphs, which keep the memory that they use from
        // references until they have ended.
        if unsafe { self.lanes.get(engine).ring.submit(entry) }.is_ok() {
            return Ok(());
        }
        self.ring_when_free(engine, entry)
    }

    /// Writes one ring entry without ringing the doorbell.
    #[cold]
    fn hold(&mut self, engine: Engine, entry: u64) -> Result<()> {
        // SAFETY: as in `ring`.
        if unsafe { self.lanes.get(engine).ring.push(entry) }.is_err() {
            // The GPU can free slots only after it has seen the pending entries.
            self.release_held();
            return self.ring_when_free(engine, entry);
        }
        self.lanes.get(engine).held = true;
        Ok(())
    }

    /// Rings the doorbell for all entries that were held back.
    pub(crate) fn release_held(&mut self) {
        if !self.lanes.holding {
            return;
        }
        for lane in [&mut self.lanes.compute, &mut self.lanes.copy].into_iter().chain(&mut self.lanes.link) {
            if core::mem::take(&mut lane.held) {
                lane.ring.publish();
            }
        }
        self.state.set_submitted(self.schedule.queued);
    }

    #[cold]
    fn ring_when_free(&mut self, engine: Engine, entry: u64) -> Result<()> {
        let start = Instant::now();
        let mut interrupts = Interrupts::since(start);
        // SAFETY: as in `ring`.
        while unsafe { self.lanes.get(engine).ring.submit(entry) }.is_err() {
            self.state.check()?;
            interrupts.check()?;
            if start.elapsed() >= DEFAULT_TIMEOUT {
                let (wanted, seen) = (self.next_value(), self.state.timeline.value());
                let reason = Some("the GPFIFO ring stays full");
                return Err(self.state.time_out(wanted, seen, DEFAULT_TIMEOUT, reason));
            }
            std::thread::yield_now();
        }
        Ok(())
    }
}
