//! Recorded graphs: a fixed sequence of launches, copies and fills that the GPU gets as a whole.
//!
//! Recording does the work of launching once. It writes every launch record and chains the descriptors, so the compute
//! scheduler runs the whole sequence by itself, and it encodes the commands that start the chain into a separate
//! pushbuffer. A replay patches the timeline value, writes one GPFIFO entry and rings the doorbell: a few stores and
//! two barriers, whatever the number of kernels. Copies and fills in a graph are kernels, because a switch to the copy
//! engine would break the chain.
//!
//! A graph owns several *instances* of that memory. Each replay takes the next one, so changing arguments or sizes
//! between replays never touches memory that the GPU may still read. A replay waits only if all instances are in
//! flight; it then waits for the oldest.

use core::fmt;
use core::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

use gpu_hal::volatile;

use crate::args::Arg;
use crate::descriptor::Shape;
use crate::device::Device;
use crate::error::{Error, RangeError, Result};
use crate::fill::FillValue;
use crate::grid::Dim3;
use crate::heap::{Content, Handle, Mapped};
use crate::limits::DEFAULT_TIMEOUT;
use crate::memory::{Pod, Slice, SliceMut};
use crate::profile::Work;
use crate::program::Kernel;
use crate::queue::profile::{STEP_BYTES, Steps};
use crate::queue::records;
use crate::queue::{Engine, Queue};
use crate::shared::Shared;
use crate::transfer;
use crate::wait::Fence;
use gpu_hal::MemoryUse;

mod change;
mod instance;
mod kept;
mod words;

use instance::{Instance, Patch, latches};
use kept::Kept;
use words::{Plan, Release};

/// Default number of instances of a graph.
const INSTANCES: usize = 4;
/// Largest number of instances.
const MAX_INSTANCES: usize = 64;

/// Identifies a step of one graph, for later changes.
///
/// ```
/// # #[cfg(feature = "sim")] fn main() -> tegra_hcq::Result<()> {
/// # let device = tegra_hcq::Device::open(tegra_hcq::DeviceKind::Sim)?;
/// # let mut queue = device.queue()?;
/// # let timeout = std::time::Duration::from_secs(10);
/// let (source, mut target) = (device.alloc_from(&[1_u8; 64])?, device.alloc::<u8>(64)?);
/// let other = device.alloc_from(&[2_u8; 64])?;
/// let mut recording = device.graph();
/// let copy = recording.copy(&source, &mut target)?;
/// let mut graph = recording.build()?;
/// graph.set_copy(copy, &other, &mut target)?;
/// queue.replay(&mut graph)?.wait(timeout)?;
/// assert_eq!(target.to_vec()?, [2; 64]);
/// # Ok(())
/// # }
/// # #[cfg(not(feature = "sim"))] fn main() {}
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct NodeId {
    /// Number of the graph, unique in the process.
    graph: u64,
    index: usize,
}

/// Number of the next graph.
static NEXT_GRAPH: AtomicU64 = AtomicU64::new(0);

/// One launch of a graph.
#[derive(Debug)]
struct Node {
    kernel: Kernel,
    shape: Shape,
    /// Constant bank 0 with its arguments.
    bank: Vec<u8>,
    /// Memory that the arguments refer to; kept as long as the graph may run.
    buffers: Vec<Option<Handle>>,
    /// Address and length of these arguments, for the checks of the software Orin.
    parts: Vec<Option<(u64, usize)>>,
    /// Offset of the record in an instance.
    offset: u64,
    /// Whether it may begin before the step before it has ended.
    early: bool,
}

impl Node {
    fn new(
        device: &Shared,
        kernel: &Kernel,
        grid: Dim3,
        block: Dim3,
        shared_bytes: u32,
        arguments: &[Arg<'_>],
    ) -> Result<Self> {
        let code = kernel.code();
        let shape = code.shape(grid, block, shared_bytes)?;
        records::check_own_arguments(device.heap().id(), kernel, arguments)?;
        let mut bank = Vec::new();
        records::fill_bank(&mut bank, code, &shape, arguments);
        let buffers = arguments.iter().map(keep).collect();
        let parts = arguments.iter().map(part).collect();
        Ok(Self { kernel: kernel.clone(), shape, bank, buffers, parts, offset: 0, early: false })
    }

    /// Tells the checks of the software Orin about a launch of the node, whose record is in `memory`.
    #[inline]
    fn note(&self, memory: &Mapped) {
        let code = self.kernel.code();
        let buffers = code.params.iter().zip(&self.parts);
        let buffers = buffers.filter_map(|(param, part)| part.map(|(va, bytes)| (param.offset, va, bytes)));
        let va = memory.gpu_va() + self.offset;
        memory.heap().note_launch(va, || code.exact_shared(&self.shape), buffers);
    }
}

/// Owner of an argument's memory.
fn keep(argument: &Arg<'_>) -> Option<Handle> {
    match argument {
        Arg::Buffer(buffer) => Some(buffer.handle().clone()),
        _ => None,
    }
}

/// Address and length of an argument's memory, if the checks of the software Orin use them.
fn part(argument: &Arg<'_>) -> Option<(u64, usize)> {
    match argument {
        Arg::Buffer(buffer) => buffer.part(),
        _ => None,
    }
}

/// Records a graph. Created by [`Device::graph`](crate::Device::graph).
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
/// let mut recording = device.graph();
/// add.record(&mut recording, 1, 256, (&a, &b, &mut c, 256))?;
/// recording.fill(&mut c, 0.0)?;
/// assert_eq!(recording.build()?.len(), 2);
/// # Ok(())
/// # }
/// # #[cfg(not(feature = "sim"))] fn main() {}
/// ```
pub struct GraphBuilder {
    device: Arc<Shared>,
    number: u64,
    nodes: Vec<Node>,
    instances: usize,
    /// Whether launches may begin early.
    early: bool,
}

impl Device {
    /// Starts the recording of a graph.
    pub fn graph(&self) -> GraphBuilder {
        GraphBuilder::new(self.shared())
    }
}

impl GraphBuilder {
    pub(crate) fn new(device: &Arc<Shared>) -> Self {
        let number = NEXT_GRAPH.fetch_add(1, Ordering::Relaxed);
        Self { device: Arc::clone(device), number, nodes: Vec::new(), instances: INSTANCES, early: false }
    }

    /// Sets how many replays may be in flight before the next one waits: 1 to 64, default 4.
    ///
    /// # Errors
    ///
    /// [`Error::Range`] if the number is outside these limits.
    pub fn instances(&mut self, count: usize) -> Result<&mut Self> {
        if !(1..=MAX_INSTANCES).contains(&count) {
            return Err(RangeError::Instances { count, limit: MAX_INSTANCES }.into());
        }
        self.instances = count;
        Ok(self)
    }

    /// Lets the launches that are added from now on begin before the step before them has ended, where the chip can do
    /// it (SM 9.0). CUDA calls that programmatic dependent launch. `false` ends it; copies and fills never begin early.
    ///
    /// A launch begins early if all blocks of the step before it have executed `griddepcontrol.launch_dependents` or
    /// ended, and waits in `griddepcontrol.wait` until that step has ended and its stores are visible. On other chips
    /// each launch begins when the step before it has ended.
    ///
    /// # Safety
    ///
    /// Each thread of these launches executes `griddepcontrol.wait` before it accesses memory that another step of the
    /// graph, or an earlier replay of it, accesses; memory that nothing writes is excepted. In each launch at least one
    /// thread executes it.
    ///
    /// ```
    /// # #[cfg(feature = "sim")] fn main() -> tegra_hcq::Result<()> {
    /// # let device = tegra_hcq::Device::open(tegra_hcq::DeviceKind::Sim)?;
    /// # let cubin = include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/kernels/vector_add.cubin"));
    /// # let program = tegra_hcq::Program::load(&device, cubin)?;
    /// # let kernel = program.kernel("vector_add")?;
    /// # let a = device.alloc_from(&[1.0_f32; 256])?;
    /// # let mut c = device.alloc::<f32>(256)?;
    /// # let mut queue = device.queue()?;
    /// # let timeout = std::time::Duration::from_secs(10);
    /// let mut recording = device.graph();
    /// // SAFETY: this kernel is compiled for a chip without the instruction, where launches do not begin early.
    /// unsafe { recording.begin_early(true) };
    /// let arguments = tegra_hcq::args![&a, &a, &mut c, 256_u32];
    /// // SAFETY: reads a[i] and writes c[i] for i < 256.
    /// unsafe { recording.launch(&kernel, 1, 256, &arguments)? };
    /// queue.replay(&mut recording.build()?)?.wait(timeout)?;
    /// assert_eq!(c.to_vec()?, [2.0; 256]);
    /// # Ok(())
    /// # }
    /// # #[cfg(not(feature = "sim"))] fn main() {}
    /// ```
    pub unsafe fn begin_early(&mut self, early: bool) -> &mut Self {
        self.early = early;
        self
    }

    /// Adds a launch with a list of arguments. The graph keeps its buffers alive.
    /// [`TypedKernel::record`](crate::TypedKernel::record) is the safe alternative.
    ///
    /// # Errors
    ///
    /// As [`Queue::launch`].
    ///
    /// # Safety
    ///
    /// As for [`Queue::launch`], for every replay.
    pub unsafe fn launch(
        &mut self,
        kernel: &Kernel,
        grid: impl Into<Dim3>,
        block: impl Into<Dim3>,
        arguments: &[Arg<'_>],
    ) -> Result<NodeId> {
        // SAFETY: the caller's promise is passed on.
        unsafe { self.launch_with_shared(kernel, grid, block, 0, arguments) }
    }

    /// As [`GraphBuilder::launch`], with `shared_bytes` of dynamic shared memory per block.
    ///
    /// # Errors
    ///
    /// As [`Queue::launch`].
    ///
    /// # Safety
    ///
    /// As for [`GraphBuilder::launch`].
    pub unsafe fn launch_with_shared(
        &mut self,
        kernel: &Kernel,
        grid: impl Into<Dim3>,
        block: impl Into<Dim3>,
        shared_bytes: u32,
        arguments: &[Arg<'_>],
    ) -> Result<NodeId> {
        let early = self.early;
        self.add(kernel, grid.into(), block.into(), shared_bytes, arguments, early)
    }

    fn add(
        &mut self,
        kernel: &Kernel,
        grid: Dim3,
        block: Dim3,
        shared_bytes: u32,
        arguments: &[Arg<'_>],
        early: bool,
    ) -> Result<NodeId> {
        let mut node = Node::new(&self.device, kernel, grid, block, shared_bytes, arguments)?;
        node.early = early;
        self.nodes.push(node);
        Ok(NodeId { graph: self.number, index: self.nodes.len() - 1 })
    }

    /// Adds a copy of all of `source` to `target`.
    ///
    /// # Errors
    ///
    /// [`Error::Range`] if the lengths differ or are zero; [`Error::OtherDevice`].
    pub fn copy<'s, 't, T: Pod>(
        &mut self,
        source: impl Into<Slice<'s, T>>,
        target: impl Into<SliceMut<'t, T>>,
    ) -> Result<NodeId> {
        let (source, target) = (source.into(), target.into());
        let step = transfer::copy(&self.device, &source, &target)?;
        self.add(&step.kernel, step.grid.into(), transfer::BLOCK.into(), 0, &step.arguments, false)
    }

    /// Adds a fill of all of `target` with a value.
    ///
    /// # Errors
    ///
    /// [`Error::Range`] if there are no elements; [`Error::OtherDevice`].
    pub fn fill<'t, T: FillValue>(&mut self, target: impl Into<SliceMut<'t, T>>, value: T) -> Result<NodeId> {
        let target = target.into();
        let step = transfer::fill(&self.device, &target, value)?;
        self.add(&step.kernel, step.grid.into(), transfer::BLOCK.into(), 0, &step.arguments, false)
    }

    /// Writes the graph to memory, ready for replays.
    ///
    /// # Errors
    ///
    /// [`Error::Range`] if the graph has no steps; [`Error::OutOfMemory`].
    pub fn build(self) -> Result<Graph> {
        let Self { device, number, mut nodes, instances, early: _ } = self;
        if nodes.is_empty() {
            return Err(RangeError::EmptyGraph.into());
        }
        let mut bytes = 0;
        for node in &mut nodes {
            node.offset = bytes;
            bytes += records::record_bytes(node.kernel.code());
        }
        let start_offset = bytes;
        let plan = Plan::new(&device, &nodes);
        let scratch = vec![0; plan.max_words()].into_boxed_slice();
        bytes += scratch.len() as u64 * 4;
        let overlaps = plan.is_chained() && device.encodings().chip().early_start.value;
        nodes.iter_mut().for_each(|node| node.early &= overlaps);
        let make = |_| {
            let memory = device.allocate_mapped(bytes, MemoryUse::Commands, Content::Graph)?;
            Ok(Instance::new(memory, nodes.len()))
        };
        let instances = (0..instances).map(make).collect::<Result<Vec<_>>>()?;
        let local_bytes = nodes.iter().map(|node| node.kernel.code().local_bytes).max().unwrap_or(0);
        let mut kept = Kept::default();
        for node in &nodes {
            kept.add_program(&node.kernel);
            node.buffers.iter().flatten().for_each(|handle| kept.add(handle));
        }
        Ok(Graph {
            device,
            number,
            nodes,
            kept,
            instances,
            next: 0,
            start_offset,
            plan,
            scratch,
            local_bytes,
            launches: None,
        })
    }
}

/// A recorded sequence of launches, copies and fills. Replayed by [`Queue::replay`].
///
/// The steps run in the order of recording; each starts after the previous one has ended, or waits for it
/// ([`GraphBuilder::begin_early`]). A graph keeps the programs and buffers that it uses alive.
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
/// let mut recording = device.graph();
/// add.record(&mut recording, 1, 256, (&a, &b, &mut c, 256))?;
/// let mut graph = recording.build()?;
/// for _ in 0..3 {
///     queue.replay(&mut graph)?.wait(timeout)?;
/// }
/// assert_eq!(c.to_vec()?, [3.0; 256]);
/// # Ok(())
/// # }
/// # #[cfg(not(feature = "sim"))] fn main() {}
/// ```
pub struct Graph {
    device: Arc<Shared>,
    number: u64,
    nodes: Vec<Node>,
    kept: Kept,
    instances: Vec<Instance>,
    /// The instance that the next replay takes.
    next: usize,
    /// Offset of the commands in an instance, after the records.
    start_offset: u64,
    plan: Plan,
    /// The commands while they are encoded.
    scratch: Box<[u32]>,
    local_bytes: u32,
    /// Kernel, grid and block of each step, for profiles; `None` before the first recorded replay.
    launches: Option<Arc<[(Kernel, Dim3, Dim3)]>>,
}

impl Graph {
    /// Number of steps.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Always `false`: a graph has at least one step.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
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
                    records::store_bytes(target, &bank[place]);
                }
                self.nodes[node].note(memory);
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
            let bank_bytes = records::bank_bytes(code);
            node.note(&instance.memory);
            let is_early = |at: usize| self.nodes.get(at).is_some_and(|node| node.early);
            let latches = latches(instance.latch, at, is_early);
            // SAFETY: `build` has laid the record out at `offset` inside the instance's memory, which lives
            // as long as the instance; no replay of the instance is in flight.
            unsafe {
                let target = instance.memory.cpu().add(node.offset as usize);
                let link =
                    records::store(target, base + node.offset, &node.bank, code, &node.shape, latches)?;
                if let Some(next) = self.nodes.get(at + 1).filter(|_| self.plan.is_chained()) {
                    let next_va = base + next.offset + records::bank_bytes(next.kernel.code());
                    link.store(next_va, target.add(bank_bytes as usize))?;
                }
            }
        }
        self.instances[index].dirty = 0..0;
        Ok(())
    }

    /// Makes an instance ready for a replay on `queue` that releases `value`; returns its GPFIFO entry. With
    /// `recorded`, the descriptors write time stamps.
    #[inline]
    fn prepare(&mut self, index: usize, queue: &Queue, value: u64, recorded: bool) -> Result<u64> {
        let release = Release {
            timeline: queue.state.timeline.gpu_va(),
            // A descriptor has one release.
            by_descriptor: queue.schedule.release_by_descriptor && !recorded,
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
            let at = (*offset + records::bank_bytes(code)) as usize;
            // SAFETY: the last record's descriptor, in memory that lives as long as the instance; no replay of it is in
            // flight.
            unsafe {
                let qmd = instance.memory.cpu().add(at);
                code.qmd.store_release(release.timeline, value, qmd)?;
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
            let at = (node.offset + records::bank_bytes(code)) as usize;
            let va = stamps.gpu_va() + (step * STEP_BYTES) as u64;
            // SAFETY: the record's descriptor, in memory that lives as long as the instance; no replay is in flight.
            unsafe { code.qmd.store_stamp(va, instance.memory.cpu().add(at))? };
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
    // Inlined, so that the fence stays in registers: see `queue::in_flight`.
    #[inline]
    pub fn replay(&mut self, graph: &mut Graph) -> Result<Fence> {
        let value = self.send_graph(graph)?;
        Ok(self.fence(value))
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
        self.submitted(Engine::Compute, value, self.schedule.release_by_descriptor && !recorded);
        if recorded && let Some(steps) = graph.steps(index, self.state.slot, value) {
            self.end_graph_span(value, steps);
        }
        Ok(value)
    }
}

impl fmt::Debug for GraphBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GraphBuilder")
            .field("steps", &self.nodes.len())
            .field("instances", &self.instances)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Graph {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Graph")
            .field("steps", &self.nodes.len())
            .field("instances", &self.instances.len())
            .finish_non_exhaustive()
    }
}
