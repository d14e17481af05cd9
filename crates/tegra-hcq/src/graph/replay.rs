//! Replays of a graph: prepare an instance, submit its commands.

use std::sync::Arc;

use gpu_hal::{MemoryUse, volatile};

use super::instance::{Early, Instance, Patch, latches};
use super::words::Release;
use super::{Begin, Graph, Node};
use crate::error::{Error, Result};
use crate::heap::Content;
use crate::launch::record;
use crate::limits::DEFAULT_TIMEOUT;
use crate::profile::Work;
use crate::queue::Queue;
use crate::queue::profile::{STEP_BYTES, Steps};
use crate::queue::schedule::Engine;
use crate::wait::Fence;

impl Graph {
    /// How the GPU places a step before the step before it has ended; `None` if it waits for that.
    fn early(&self, at: usize) -> Option<Early> {
        let node = self.nodes.get(at).filter(|node| self.plan.overlaps() && node.begin == Begin::After)?;
        Some(if node.waits_itself { Early::Kernel } else { Early::Gate })
    }

    /// Writes the changed arguments of an instance.
    fn apply_patches(&mut self, index: usize) {
        let Instance { memory, dirty, patches, .. } = &mut self.instances[index];
        for Patch { node, place } in patches.drain(..) {
            let Node { bank, offset, .. } = &self.nodes[node];
            // A record that is rewritten as a whole already contains its arguments.
            if !dirty.contains(&node) {
                // SAFETY: the place lies inside the record's bank, which `build` has laid out at `offset`;
                // the memory lives as long as the instance, and no replay of it is in flight.
                unsafe {
                    let target = memory.cpu().add(*offset as usize + place.start);
                    record::copy_out(target, &bank[place]);
                }
                self.nodes[node].observe(memory);
            }
        }
    }

    /// Writes the changed records of an instance.
    #[cold]
    fn refresh(&mut self, index: usize) -> Result<()> {
        let instance = &self.instances[index];
        let base = instance.memory.gpu_va();
        for at in instance.dirty.clone() {
            let node = &self.nodes[at];
            let code = node.kernel.code();
            let bank_bytes = record::bank_bytes(code);
            node.observe(&instance.memory);
            let latches = latches(instance.latch, at, |at| self.early(at));
            // SAFETY: `build` has laid the record out at `offset` inside the instance's memory, which lives
            // as long as the instance; no replay of the instance is in flight.
            unsafe {
                let target = instance.memory.cpu().add(node.offset as usize);
                let link = record::write(target, base + node.offset, &node.bank, code, &node.shape, latches)?;
                let is_chained = |next: &&Node| self.plan.is_chained() && next.begin == Begin::After;
                if let Some(next) = self.nodes.get(at + 1).filter(is_chained) {
                    let next_va = base + next.offset + record::bank_bytes(next.kernel.code());
                    link.chain(next_va, target.add(bank_bytes as usize))?;
                }
            }
        }
        self.instances[index].dirty = 0..0;
        Ok(())
    }

    /// Whether the last descriptor releases the timeline. With `recorded` it writes a time instead: a descriptor has
    /// one release.
    #[inline]
    fn releases_by_descriptor(&self, queue: &Queue, recorded: bool) -> bool {
        queue.schedule.release_by_descriptor && self.plan.ends_with_last() && !recorded
    }

    /// Makes an instance ready for a replay on `queue` that releases `value`; returns its GPFIFO entry. With
    /// `recorded`, the descriptors write time stamps.
    #[inline]
    fn prepare(&mut self, index: usize, queue: &Queue, value: u64, recorded: bool) -> Result<u64> {
        let release = Release {
            timeline: queue.state.timeline.gpu_va(),
            by_descriptor: self.releases_by_descriptor(queue, recorded),
        };
        let last = self.nodes.len() - 1;
        if self.instances[index].stamped && !recorded {
            self.instances[index].dirty = 0..self.nodes.len();
            self.instances[index].stamped = false;
        }
        let rewritten = !self.instances[index].dirty.is_empty();
        let before = self.instances[index].start.map(|start| start.release());
        if !release.by_descriptor && before.is_some_and(|before| before.by_descriptor) {
            // The previously last descriptor must no longer release.
            self.instances[index].soil(last);
        }
        if !self.instances[index].patches.is_empty() {
            self.apply_patches(index);
        }
        if !self.instances[index].dirty.is_empty() {
            self.refresh(index)?;
        }
        if recorded {
            self.stamp(index, rewritten)?;
        }
        let instance = &mut self.instances[index];
        // SAFETY: room for the commands lies at `start_offset` of the instance's memory.
        let target = unsafe { instance.memory.cpu().add(self.start_offset as usize) };
        let start = match instance.start {
            Some(start) if start.release() == release => start,
            _ => {
                let va = instance.memory.gpu_va();
                let commands = self.plan.encode(&mut self.scratch, va, release)?;
                let words = &self.scratch[..commands.len()];
                // SAFETY: `build` has reserved the size of the scratch at `target`; no replay of the instance is in
                // flight.
                unsafe { volatile::store(target, bytemuck::cast_slice(words)) };
                let start = commands.start(va + self.start_offset)?;
                instance.start = Some(start);
                start
            }
        };
        if release.by_descriptor {
            let Node { kernel, offset, .. } = &self.nodes[last];
            let code = kernel.code();
            let at = (*offset + record::bank_bytes(code)) as usize;
            // SAFETY: the last record's descriptor, in memory that lives as long as the instance; no replay of it is in
            // flight.
            unsafe {
                let qmd = instance.memory.cpu().add(at);
                record::Release::timeline(code.qmd.chip, release.timeline, value)
                    .write(code.qmd.chip, qmd)?;
            }
        } else {
            // SAFETY: the payload's words lie inside the commands; no replay of the instance is in flight.
            unsafe { start.set_value(target, value) };
        }
        instance.value = value;
        instance.slot = queue.state.slot;
        Ok(start.entry(queue.is_trailing()))
    }

    /// Clears the time stamps of an instance, and makes its descriptors write them; `rewritten` is whether descriptors
    /// have been written since.
    #[cold]
    fn stamp(&mut self, index: usize, rewritten: bool) -> Result<()> {
        let bytes = self.nodes.len() * STEP_BYTES;
        let instance = &mut self.instances[index];
        // Memory that another queue has not read yet is left to it.
        if instance.stamps.as_mut().is_none_or(|stamps| Arc::get_mut(stamps).is_none()) {
            let stamps = self.device.allocate_mapped(bytes as u64, MemoryUse::ReadBack, Content::Profile)?;
            instance.stamps = Some(Arc::new(stamps));
            instance.stamped = false;
        }
        let Some(stamps) = &instance.stamps else { return Ok(()) };
        for word in 0..bytes / 8 {
            // SAFETY: inside the memory, which `instance` keeps alive; no replay that writes it is in flight. Volatile,
            // since the GPU writes it.
            unsafe { stamps.cpu().cast::<u64>().add(word).write_volatile(0) };
        }
        if instance.stamped && !rewritten {
            return Ok(());
        }
        for (step, node) in self.nodes.iter().enumerate() {
            let code = node.kernel.code();
            let at = (node.offset + record::bank_bytes(code)) as usize;
            let va = stamps.gpu_va() + (step * STEP_BYTES) as u64;
            // SAFETY: the record's descriptor, in memory that lives as long as the instance; no replay is in flight.
            unsafe { record::Release::stamp(va).write(code.qmd.chip, instance.memory.cpu().add(at))? };
        }
        instance.stamped = true;
        Ok(())
    }

    /// The time stamps of a recorded replay of an instance, which ends with the `value` of a queue.
    #[cold]
    fn steps(&mut self, index: usize, slot: usize, value: u64) -> Option<Steps> {
        let stamps = Arc::clone(self.instances[index].stamps.as_ref()?);
        stamps.uses().note(slot, value);
        let launches = self.launches.get_or_insert_with(|| {
            self.nodes.iter().map(|node| (node.kernel.clone(), node.shape.grid, node.shape.block)).collect()
        });
        Some(Steps { stamps, launches: Arc::clone(launches) })
    }

    /// Records that a replay uses the programs, the buffers and the instance. Returns whether the CPU has a view of a
    /// buffer.
    #[inline]
    fn note(&self, index: usize, slot: usize, value: u64) -> bool {
        self.instances[index].memory.uses().note(slot, value);
        self.kept.note(slot, value)
    }
}

impl Queue {
    /// Submits a graph to run after all earlier work of the queue, with one doorbell.
    ///
    /// Waits for the oldest replay if all instances of the graph are in flight.
    ///
    /// # Errors
    ///
    /// [`Error::OtherDevice`]; [`Error::Viewed`]; [`Error::Fault`] if the queue has faulted; [`Error::Timeout`] if the
    /// oldest replay does not end within [`DEFAULT_TIMEOUT`](DEFAULT_TIMEOUT).
    // Inlined, so that the fence stays in registers: see `queue::schedule`.
    #[inline]
    pub fn replay(&mut self, graph: &mut Graph) -> Result<Fence> {
        let value = self.send_graph(graph)?;
        Ok(self.fence(value))
    }

    /// Submits the open batch and the steps that a graph needs before it. The graph contains everything else.
    #[inline]
    fn settle_for_graph(&mut self, local_bytes: u32) -> Result<()> {
        let programs = self.state.device.programs_loaded();
        // The commands of a graph may invalidate the caches themselves.
        let stale = !self.encodings.shader_invalidate && self.schedule.invalidated != programs;
        if self.batch.open.is_none()
            && self.schedule.last_engine == Engine::Compute
            && self.has_local(local_bytes)
            && !self.lacks_textures()
            // A wait for idle, with which the graph would begin, also stops the other queues of the group.
            && !(self.overlap && self.is_trailing())
            && !stale
        {
            return Ok(());
        }
        // A batch for the compute engine waits for the copy engine, if necessary.
        self.begin(Engine::Compute)?;
        self.need_local(local_bytes)?;
        if stale {
            self.encode(|encoder| encoder.invalidate_shader_caches_no_wfi())?;
            self.schedule.invalidated = programs;
        }
        self.submit().map(drop)
    }

    /// Submits a graph; returns the timeline value of its end.
    fn send_graph(&mut self, graph: &mut Graph) -> Result<u64> {
        self.check_health()?;
        if !Arc::ptr_eq(&graph.device, &self.state.device) {
            return Err(Error::OtherDevice("the graph".to_owned()));
        }
        if self.profiling.enabled {
            self.begin_span(Engine::Compute, Work::Graph { steps: graph.len() })?;
        }
        self.settle_for_graph(graph.local_bytes)?;
        let index = graph.next;
        let instance = &graph.instances[index];
        if !self.state.heap().reached(instance.slot, instance.value) {
            self.release_held();
            self.state.heap().wait_for(instance.memory.uses(), DEFAULT_TIMEOUT)?;
        }
        let recorded = self.profiling.enabled;
        if recorded {
            self.read_spans();
        }
        self.make_room()?;
        let value = self.next_value();
        self.claim_memory(value);
        self.prepare_fence(value);
        if graph.note(index, self.state.slot, value) {
            // The recorded value is completed by an empty submission.
            self.begin(Engine::Compute)?;
            self.submit()?;
            return Err(Error::Viewed);
        }
        let entry = graph.prepare(index, self, value, recorded)?;
        self.state.set_last_kernel(graph.nodes[0].kernel.code().code_va);
        if recorded {
            self.stamp_spans(true);
        }
        tracing::trace!(
            queue = self.state.slot,
            value,
            steps = graph.nodes.len(),
            instance = index,
            "replay"
        );
        self.ring(Engine::Compute, entry)?;
        graph.next = if index + 1 == graph.instances.len() { 0 } else { index + 1 };
        self.submitted(Engine::Compute, value, graph.releases_by_descriptor(self, recorded));
        if recorded && let Some(steps) = graph.steps(index, self.state.slot, value) {
            self.end_graph_span(value, steps);
        }
        Ok(value)
    }
}
