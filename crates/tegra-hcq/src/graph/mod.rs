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
use core::sync::atomic::{AtomicU64, Ordering, fence};
use std::sync::Arc;

use crate::args::{Arg, FillValue};
use crate::device::Device;
use crate::error::{LaunchError, RangeError, Result};
use crate::heap::{Content, Handle, Mapped};
use crate::launch::record::{self, Parameters};
use crate::launch::shape::Shape;
use crate::limits::{Dim3, Priority};
use crate::memory::{Pod, Slice, SliceMut};
use crate::program::Kernel;
use crate::shared::Shared;
use crate::transfer;
use gpu_hal::MemoryUse;

mod change;
mod instance;
mod replay;
mod words;

use instance::Instance;
use words::Plan;

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
    /// Whether its kernel waits for the step before it.
    waits_itself: bool,
    begin: Begin,
}

/// When a step begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Begin {
    /// When the step before it has ended.
    #[default]
    After,
    /// When the steps before the last [`Begin::Join`] have ended.
    Beside,
    /// When all steps before it have ended.
    Join,
}

impl Node {
    fn new(
        device: &Shared,
        kernel: &Kernel,
        grid: Dim3,
        block: Dim3,
        shared_bytes: u32,
        parameters: Parameters<'_>,
    ) -> Result<Self> {
        let code = kernel.code();
        if code.needs.grid_barrier.is_some() {
            return Err(LaunchError::GridBarrierInGraph { kernel: code.name.clone() }.into());
        }
        let shape = code.shape(grid, block, shared_bytes)?;
        let id = device.heap().id();
        let (buffers, parts) = match parameters {
            Parameters::List(arguments) => {
                record::check_own_arguments(id, kernel, arguments)?;
                (arguments.iter().map(keep).collect(), arguments.iter().map(Arg::part).collect())
            }
            Parameters::Block(_) => {
                parameters.check(id, kernel)?;
                (vec![None; code.params.len()], vec![None; code.params.len()])
            }
        };
        let mut bank = Vec::new();
        record::fill_bank(&mut bank, code, &shape, parameters);
        Ok(Self {
            kernel: kernel.clone(),
            shape,
            bank,
            buffers,
            parts,
            offset: 0,
            waits_itself: false,
            begin: Begin::After,
        })
    }

    /// Reports a launch of the node, whose record is in `memory`, to the checks of a software GPU.
    fn observe(&self, memory: &Mapped) {
        let va = memory.gpu_va() + self.offset;
        record::observe(memory.heap(), va, self.kernel.code(), &self.shape, self.parts.iter().copied());
    }
}

/// Owner of an argument's memory.
fn keep(argument: &Arg<'_>) -> Option<Handle> {
    match argument {
        Arg::Buffer(buffer) => Some(buffer.handle().clone()),
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
    /// When the next step begins.
    begin: Begin,
    /// Priority of the steps that follow.
    priority: Priority,
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
        let (nodes, instances) = (Vec::new(), INSTANCES);
        let (early, begin, priority) = (false, Begin::After, Priority::USUAL);
        Self { device: Arc::clone(device), number, nodes, instances, early, begin, priority }
    }

    /// Sets how many replays may be in flight before the next one waits: 1 to 64, default 4.
    ///
    /// # Errors
    ///
    /// [`Error::Range`](crate::Error::Range) if the number is outside these limits.
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

    /// Sets the priority of the steps that follow, in all replays.
    pub fn set_priority(&mut self, priority: Priority) -> &mut Self {
        self.priority = priority;
        self
    }

    /// Lets the next step begin beside the steps before it: when those before the last [`GraphBuilder::join`] have
    /// ended, or at the start of the graph. Steps that follow it without a word of their own come after it.
    ///
    /// # Safety
    ///
    /// The next step and those that follow it up to the next [`GraphBuilder::join`] access no memory that steps since
    /// the last one write, and write none that those access.
    pub unsafe fn beside(&mut self) -> &mut Self {
        self.begin = Begin::Beside;
        self
    }

    /// Lets the next step begin when all steps before it have ended; without a call it waits only for the one before,
    /// and for what that has waited for.
    ///
    /// ```
    /// # #[cfg(feature = "sim")] fn main() -> tegra_hcq::Result<()> {
    /// # let device = tegra_hcq::Device::open(tegra_hcq::DeviceKind::Sim)?;
    /// # let timeout = std::time::Duration::from_secs(10);
    /// # let mut queue = device.queue()?;
    /// let (mut a, mut b) = (device.alloc::<u32>(64)?, device.alloc::<u32>(64)?);
    /// let mut recording = device.graph();
    /// recording.fill(&mut a, 1)?;
    /// // SAFETY: the fills write different memory.
    /// unsafe { recording.beside() };
    /// recording.fill(&mut b, 2)?;
    /// recording.join().copy(&a, &mut b)?;
    /// queue.replay(&mut recording.build()?)?.wait(timeout)?;
    /// assert_eq!(b.to_vec()?, [1; 64]);
    /// # Ok(())
    /// # }
    /// # #[cfg(not(feature = "sim"))] fn main() {}
    /// ```
    pub fn join(&mut self) -> &mut Self {
        self.begin = Begin::Join;
        self
    }

    /// Adds a launch with a list of arguments. The graph keeps its buffers alive.
    /// [`TypedKernel::record`](crate::TypedKernel::record) is the safe alternative.
    ///
    /// # Errors
    ///
    /// As [`Queue::launch`](crate::Queue::launch).
    ///
    /// # Safety
    ///
    /// As for [`Queue::launch`](crate::Queue::launch), for every replay.
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
    /// As [`Queue::launch`](crate::Queue::launch).
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
        let (early, parameters) = (self.early, Parameters::List(arguments));
        self.add(kernel, grid.into(), block.into(), shared_bytes, parameters, early)
    }

    /// Adds a launch with a parameter block, as [`Queue::launch_raw`](crate::Queue::launch_raw) does. The graph keeps
    /// no memory alive that the block names.
    ///
    /// ```
    /// # #[cfg(feature = "sim")] fn main() -> tegra_hcq::Result<()> {
    /// # let device = tegra_hcq::Device::open(tegra_hcq::DeviceKind::Sim)?;
    /// # let cubin = include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/kernels/vector_add.cubin"));
    /// # let program = tegra_hcq::Program::load(&device, cubin)?;
    /// # let kernel = program.kernel("vector_add")?;
    /// # let (a, c) = (device.alloc_from(&[1.0_f32; 64])?, device.alloc::<f32>(64)?);
    /// # let mut queue = device.queue()?;
    /// let mut block = Vec::new();
    /// for address in [a.gpu_va(), a.gpu_va(), c.gpu_va()] {
    ///     block.extend_from_slice(&address.to_le_bytes());
    /// }
    /// block.extend_from_slice(&64_u32.to_le_bytes());
    /// let mut recording = device.graph();
    /// // SAFETY: reads a[i] and writes c[i] for i < 64; both live until the replay has ended.
    /// unsafe { recording.launch_raw(&kernel, 1, 64, 0, &block)? };
    /// queue.replay(&mut recording.build()?)?.wait(tegra_hcq::DEFAULT_TIMEOUT)?;
    /// assert_eq!(c.to_vec()?, [2.0; 64]);
    /// # Ok(())
    /// # }
    /// # #[cfg(not(feature = "sim"))] fn main() {}
    /// ```
    ///
    /// # Errors
    ///
    /// As [`Queue::launch_raw`](crate::Queue::launch_raw); for a kernel with a barrier of the grid
    /// ([`LaunchError::GridBarrierInGraph`]).
    ///
    /// # Safety
    ///
    /// As for [`Queue::launch_raw`](crate::Queue::launch_raw), for every replay.
    pub unsafe fn launch_raw(
        &mut self,
        kernel: &Kernel,
        grid: impl Into<Dim3>,
        block: impl Into<Dim3>,
        shared_bytes: u32,
        parameters: &[u8],
    ) -> Result<NodeId> {
        let (early, parameters) = (self.early, Parameters::Block(parameters));
        self.add(kernel, grid.into(), block.into(), shared_bytes, parameters, early)
    }

    fn add(
        &mut self,
        kernel: &Kernel,
        grid: Dim3,
        block: Dim3,
        shared_bytes: u32,
        parameters: Parameters<'_>,
        early: bool,
    ) -> Result<NodeId> {
        let mut node = Node::new(&self.device, kernel, grid, block, shared_bytes, parameters)?;
        node.waits_itself = early;
        node.begin = core::mem::take(&mut self.begin);
        node.shape.priority = self.priority;
        self.nodes.push(node);
        Ok(NodeId { graph: self.number, index: self.nodes.len() - 1 })
    }

    /// Adds the kernel of a copy or fill.
    fn add_transfer(&mut self, step: &transfer::Step<'_>) -> Result<NodeId> {
        let (grid, parameters) = (step.grid.into(), Parameters::List(&step.arguments));
        self.add(&step.kernel, grid, transfer::BLOCK.into(), 0, parameters, false)
    }

    /// Adds a copy of all of `source` to `target`.
    ///
    /// # Errors
    ///
    /// [`Error::Range`](crate::Error::Range) if the lengths differ or are zero;
    /// [`Error::OtherDevice`](crate::Error::OtherDevice).
    pub fn copy<'s, 't, T: Pod>(
        &mut self,
        source: impl Into<Slice<'s, T>>,
        target: impl Into<SliceMut<'t, T>>,
    ) -> Result<NodeId> {
        let (source, target) = (source.into(), target.into());
        let step = transfer::copy(&self.device, &source, &target)?;
        self.add_transfer(&step)
    }

    /// Adds a fill of all of `target` with a value.
    ///
    /// # Errors
    ///
    /// [`Error::Range`](crate::Error::Range) if there are no elements;
    /// [`Error::OtherDevice`](crate::Error::OtherDevice).
    pub fn fill<'t, T: FillValue>(&mut self, target: impl Into<SliceMut<'t, T>>, value: T) -> Result<NodeId> {
        let target = target.into();
        let step = transfer::fill(&self.device, &target, value)?;
        self.add_transfer(&step)
    }

    /// Writes the graph to memory, ready for replays.
    ///
    /// # Errors
    ///
    /// [`Error::Range`](crate::Error::Range) if the graph has no steps;
    /// [`Error::OutOfMemory`](crate::Error::OutOfMemory).
    pub fn build(self) -> Result<Graph> {
        let Self { device, number, mut nodes, instances, .. } = self;
        if nodes.is_empty() {
            return Err(RangeError::EmptyGraph.into());
        }
        let mut bytes = 0;
        for node in &mut nodes {
            node.offset = bytes;
            bytes += record::record_bytes(node.kernel.code());
        }
        let start_offset = bytes;
        let plan = Plan::new(&device, &nodes);
        let scratch = vec![0; plan.max_words()].into_boxed_slice();
        bytes += scratch.len() as u64 * 4;
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

/// Programs and buffers that a graph keeps alive and marks as used. Each program and each block of memory is kept once,
/// however many steps use it.
#[derive(Debug, Default)]
struct Kept {
    /// One kernel of each program.
    programs: Vec<Kernel>,
    /// Each buffer, with the number of arguments that refer to it.
    buffers: Vec<(Handle, u32)>,
}

impl Kept {
    /// Adds a use of the kernel's program by a step.
    fn add_program(&mut self, kernel: &Kernel) {
        if !self.programs.iter().any(|known| known.same_program(kernel)) {
            self.programs.push(kernel.clone());
        }
    }

    /// Adds an argument that refers to the buffer.
    fn add(&mut self, handle: &Handle) {
        match self.position(handle) {
            Some(at) => self.buffers[at].1 += 1,
            None => self.buffers.push((handle.clone(), 1)),
        }
    }

    /// Removes an argument that referred to the buffer.
    fn remove(&mut self, handle: &Handle) {
        if let Some(at) = self.position(handle) {
            self.buffers[at].1 -= 1;
            if self.buffers[at].1 == 0 {
                self.buffers.swap_remove(at);
            }
        }
    }

    fn position(&self, handle: &Handle) -> Option<usize> {
        let memory = core::ptr::from_ref(handle.memory());
        self.buffers.iter().position(|(known, _)| core::ptr::eq(known.memory(), memory))
    }

    /// Marks everything as used up to `value` of the queue in `slot`. Returns whether the CPU has a view of a buffer.
    #[inline]
    fn note(&self, slot: usize, value: u64) -> bool {
        for kernel in &self.programs {
            kernel.uses().note(slot, value);
        }
        for (handle, _) in &self.buffers {
            handle.uses().note(slot, value);
        }
        // A view sets its mark, then reads the uses; a replay records the uses, then reads the marks. With a full fence
        // on both sides, at least one sees the other.
        fence(Ordering::SeqCst);
        self.buffers.iter().any(|(handle, _)| handle.memory().is_viewed())
    }
}

/// A recorded sequence of launches, copies and fills. Replayed by [`Queue::replay`](crate::Queue::replay).
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

    /// Whether the next replay would not wait for an earlier one.
    pub fn is_ready(&self) -> bool {
        let instance = &self.instances[self.next];
        self.device.heap().reached(instance.slot, instance.value)
    }

    /// Always `false`: a graph has at least one step.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
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
