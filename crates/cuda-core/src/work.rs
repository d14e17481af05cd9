//! Pieces of work: what a stream does, and a graph's node holds.

use core::fmt;
use std::sync::{Arc, OnceLock};

use tegra_hcq::{DEFAULT_TIMEOUT, Dim3, Fence, GraphBuilder, Queue, RawPlane, RawSide};

use crate::array::Rectangle;
use crate::cluster::Cluster;
use crate::code::{Code, Failure, Result};
use crate::context::Context;
use crate::event::Event;
use crate::graph::Graph;
use crate::graph_memory::GraphMemory;
use crate::module::Function;
use crate::recording::Step;
use crate::stream::{Stream, priority};
use crate::words::Words;

/// A piece of work.
#[derive(Clone, Debug)]
pub enum Work {
    /// A kernel.
    Launch(Launch),
    /// A copy. It is larger than all others.
    Copy(Box<MemoryCopy>),
    /// A fill.
    Fill(Fill),
    /// Waits for words of memory, and writes to them.
    Words(Arc<Words>),
    /// A function of the host.
    Host(HostCall),
    /// An event is recorded, in a graph.
    Record(Arc<Event>),
    /// A wait for an event, in a graph.
    Wait(Arc<Event>),
    /// A wait for what an event was recorded in when the graph was launched.
    Until(Option<Fence>),
    /// Another graph, which belongs to the node.
    Child(Arc<Graph>),
    /// The work of another graph, in order, in an executable graph.
    Sequence(Arc<[Work]>),
    /// Memory is allocated.
    Allocate(Arc<GraphMemory>),
    /// Memory of a graph at an address is freed.
    Free(u64),
    /// Nothing.
    Empty,
}

/// A function that the host runs.
#[derive(Clone)]
pub struct HostCall {
    /// Calls it.
    pub call: Arc<dyn Fn() + Send + Sync>,
    /// Addresses of the program's function and its argument; 0 if it is none of the program.
    pub program: [usize; 2],
}

impl fmt::Debug for HostCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HostCall")
    }
}

/// A launch of a kernel. Whoever makes one promises that the kernel may run with these parameters.
#[derive(Clone, Debug)]
pub struct Launch {
    /// The kernel.
    pub function: Arc<Function>,
    /// Grid, block and shared memory.
    pub size: LaunchSize,
    /// The parameter block.
    pub parameters: Arc<Parameters>,
}

/// The parameter block of a launch in a graph.
#[derive(Debug)]
pub struct Parameters {
    bytes: Box<[u8]>,
    /// The address of each parameter in the block, once the program has asked.
    pointers: OnceLock<Box<[usize]>>,
}

impl Parameters {
    /// Keeps a block.
    pub fn new(bytes: &[u8]) -> Arc<Self> {
        Arc::new(Self { bytes: bytes.into(), pointers: OnceLock::new() })
    }

    /// Address of the list of the parameters' addresses. It lives as long as the block.
    pub fn pointers(&self, function: &Function) -> usize {
        let base = self.bytes.as_ptr().expose_provenance();
        let of = || function.parameters.iter().map(|&(offset, _)| base + offset).collect();
        self.pointers.get_or_init(of).as_ptr().expose_provenance()
    }
}

/// Grid, block, dynamic shared memory, clusters and priority of a launch.
#[derive(Clone, Copy, Debug)]
pub struct LaunchSize {
    /// Blocks.
    pub grid: [u32; 3],
    /// Threads of a block.
    pub block: [u32; 3],
    /// Dynamic shared memory of a block in bytes.
    pub shared_bytes: u32,
    /// Clusters that the launch asks for.
    pub cluster: Cluster,
    /// Priority that the launch asks for; `None` for that of the stream.
    pub priority: Option<i32>,
}

/// A piece of memory in a copy: planes of rows.
#[derive(Clone, Copy, Debug)]
pub struct Side {
    /// Address of the first byte, on the GPU or the CPU.
    pub address: u64,
    /// Whether the GPU uses the address; otherwise only the CPU does.
    pub on_gpu: bool,
    /// Whether the CPU sees the memory too.
    pub on_host: bool,
    /// From one row to the next, in bytes.
    pub pitch: usize,
    /// From one plane to the next, in bytes.
    pub plane: usize,
    /// The part of an array that it is, instead of rows.
    pub array: Option<Rectangle>,
}

/// A copy. Whoever makes one promises that both sides stay valid until it has ended.
#[derive(Clone, Copy, Debug)]
pub struct MemoryCopy {
    /// Where to.
    pub target: Side,
    /// Where from.
    pub source: Side,
    /// Bytes of a row.
    pub width: usize,
    /// Rows of a plane.
    pub height: usize,
    /// Planes.
    pub depth: usize,
}

/// A fill of rows. Whoever makes one promises that the memory stays valid until it has ended.
#[derive(Clone, Copy, Debug)]
pub struct Fill {
    /// First address.
    pub address: u64,
    /// From one row to the next, in bytes.
    pub pitch: usize,
    /// The element; its low bytes count.
    pub value: u32,
    /// Bytes of an element: 1, 2 or 4.
    pub element: usize,
    /// Elements of a row.
    pub width: usize,
    /// Rows.
    pub height: usize,
}

impl Side {
    /// Side of a copy of consecutive bytes.
    pub fn line(address: u64, on_gpu: bool, on_host: bool) -> Self {
        Self { address, on_gpu, on_host, pitch: 0, plane: 0, array: None }
    }

    /// Side of a copy that is a part of an array.
    pub fn of_array(array: Rectangle) -> Self {
        Self { array: Some(array), ..Self::line(array.first.va, true, false) }
    }

    fn rows(self) -> RawPlane {
        RawPlane { gpu_va: self.address, pitch: self.pitch as u64 }
    }

    /// A plane on the GPU.
    fn on_plane(self, plane: usize) -> RawSide {
        match self.array {
            Some(array) => array.plane(plane).into(),
            None => {
                let gpu_va = self.address + (plane * self.plane) as u64;
                RawPlane { gpu_va, ..self.rows() }.into()
            }
        }
    }
}

impl MemoryCopy {
    /// A copy of consecutive bytes.
    pub fn line(target: Side, source: Side, bytes: usize) -> Self {
        Self { target, source, width: bytes, height: 1, depth: 1 }
    }

    /// Whether it copies nothing.
    pub fn is_empty(&self) -> bool {
        self.width == 0 || self.height == 0 || self.depth == 0
    }

    /// Whether a side is part of an array.
    fn has_array(&self) -> bool {
        self.target.array.is_some() || self.source.array.is_some()
    }

    /// The rows as pairs of addresses: target and source. One row if all bytes are consecutive.
    fn rows(&self) -> (usize, impl Iterator<Item = (u64, u64)>) {
        let whole = |side: &Side, rows: usize| {
            (rows == 1 || side.pitch == self.width) && (self.depth == 1 || side.plane == self.width * rows)
        };
        let Self { target, source, height, depth, .. } = *self;
        let joined = whole(&target, height) && whole(&source, height);
        let (width, height, depth) =
            if joined { (self.width * height * depth, 1, 1) } else { (self.width, height, depth) };
        let at = move |side: Side, plane: usize, row: usize| {
            side.address + (plane * side.plane + row * side.pitch) as u64
        };
        let places = (0..depth).flat_map(move |plane| (0..height).map(move |row| (plane, row)));
        (width, places.map(move |(plane, row)| (at(target, plane, row), at(source, plane, row))))
    }

    /// Copies at once, after the work of a stream. Waits if a side is pageable memory of the host.
    ///
    /// # Errors
    ///
    /// The fault of the work; [`Code::InvalidValue`] for bytes outside of an allocation.
    pub fn now(&self, context: &Context, stream: &Stream) -> Result<()> {
        if self.is_empty() {
            return Ok(());
        }
        if self.has_array() {
            stream.copy(context, self)?;
            return stream.synchronize(context);
        }
        if self.target.on_gpu && self.source.on_gpu {
            stream.copy(context, self)?;
            // The program may look at memory of the host at once.
            let seen = self.target.on_host || self.source.on_host;
            return if seen { stream.synchronize(context) } else { Ok(()) };
        }
        stream.synchronize(context)?;
        let (width, rows) = self.rows();
        for (target, source) in rows {
            // CAST: addresses of this process.
            let (to, from) = (target as usize as *mut u8, source as usize as *const u8);
            // SAFETY: whoever made the copy promised that both sides are valid; the work that uses them has ended.
            unsafe {
                match (self.target.on_gpu, self.source.on_gpu) {
                    (true, _) => {
                        context.device.write_raw(core::slice::from_raw_parts(from, width), target)?
                    }
                    (_, true) => {
                        context.device.read_raw(source, core::slice::from_raw_parts_mut(to, width))?
                    }
                    _ => core::ptr::copy(from, to, width),
                }
            }
        }
        Ok(())
    }

    /// Adds the copy to a queue.
    pub(crate) fn encode(&self, queue: &mut Queue) -> Result<()> {
        if self.is_empty() {
            return Ok(());
        }
        if self.source.on_gpu && !self.target.on_gpu {
            return (0..self.depth).try_for_each(|plane| self.encode_download(queue, plane));
        }
        if self.has_array() {
            return (0..self.depth).try_for_each(|plane| self.encode_array(queue, plane));
        }
        if self.target.on_gpu && self.height > 1 && self.depth == 1 {
            let Self { target, source, width, height, .. } = *self;
            // SAFETY: whoever made the copy promised that both sides are valid until it has ended.
            unsafe {
                if source.on_gpu {
                    queue.copy_raw_2d(source.rows(), target.rows(), width as u64, height as u64)?;
                } else {
                    let bytes = (height - 1) * source.pitch + width;
                    // CAST: an address of this process.
                    let rows = core::slice::from_raw_parts(source.address as usize as *const u8, bytes);
                    queue.upload_raw_2d(rows, source.pitch, target.rows(), width, height)?;
                }
            }
            return Ok(());
        }
        let (width, rows) = self.rows();
        for (target, source) in rows {
            // SAFETY: as above.
            unsafe { self.encode_row(queue, target, source, width)? }
        }
        Ok(())
    }

    /// Adds the copy of a plane to an array, or inside the GPU from one.
    fn encode_array(&self, queue: &mut Queue, plane: usize) -> Result<()> {
        let Self { target, source, width, height, .. } = *self;
        let to = target.on_plane(plane);
        // SAFETY: whoever made the copy promised that both sides are valid until it has ended.
        unsafe {
            if source.on_gpu {
                queue.copy_raw_2d(source.on_plane(plane), to, width as u64, height as u64)?;
            } else {
                let bytes = (height - 1) * source.pitch + width;
                // CAST: an address of this process.
                let first = source.address as usize + plane * source.plane;
                let rows = core::slice::from_raw_parts(first as *const u8, bytes);
                queue.upload_raw_2d(rows, source.pitch.max(width), to, width, height)?;
            }
        }
        Ok(())
    }

    /// Adds the copy of a plane from the GPU to memory that only the CPU sees.
    fn encode_download(&self, queue: &mut Queue, plane: usize) -> Result<()> {
        let Self { target, source, width, height, .. } = *self;
        // SAFETY: whoever made the copy promised that the source is valid until it has ended.
        let download = unsafe {
            if height > 1 || source.array.is_some() {
                queue.download_raw_2d(source.on_plane(plane), width, height)?
            } else {
                queue.download_raw(source.address + (plane * source.plane) as u64, width)?
            }
        };
        // CAST: an address of this process.
        let (address, pitch) = (target.address as usize + plane * target.plane, target.pitch);
        let write = move || match download.wait(DEFAULT_TIMEOUT) {
            Ok(bytes) => {
                for (row, line) in bytes.chunks(width).enumerate() {
                    let to = (address + row * pitch) as *mut u8;
                    // SAFETY: as above for the target; `line` is memory of this library.
                    unsafe { core::ptr::copy_nonoverlapping(line.as_ptr(), to, width) };
                }
            }
            Err(error) => tracing::error!(%error, "a copy to the host failed"),
        };
        Ok(queue.host_function(write)?)
    }

    /// Adds the copy of one row, unless it goes from the GPU to the host.
    ///
    /// # Safety
    ///
    /// Both sides are valid until the copy has ended.
    unsafe fn encode_row(&self, queue: &mut Queue, target: u64, source: u64, bytes: usize) -> Result<()> {
        match (self.target.on_gpu, self.source.on_gpu) {
            // SAFETY: the caller's promise.
            (true, true) => unsafe { queue.copy_raw(source, target, bytes as u64)? },
            // SAFETY: the caller's promise.
            (true, false) => unsafe {
                let source = core::slice::from_raw_parts(source as usize as *const u8, bytes);
                queue.upload_raw(source, target)?;
            },
            (false, _) => {
                let (target, source) = (target as usize, source as usize);
                // SAFETY: the caller's promise covers both sides until the copy has ended, which is then.
                queue.host_function(move || unsafe {
                    core::ptr::copy(source as *const u8, target as *mut u8, bytes);
                })?;
            }
        }
        Ok(())
    }
}

impl Fill {
    fn encode(&self, queue: &mut Queue) -> Result<()> {
        let Self { address, pitch, value, element, width, height } = *self;
        if width == 0 || height == 0 {
            return Ok(());
        }
        let (width, height) =
            if height > 1 && pitch == width * element { (width * height, 1) } else { (width, height) };
        let plane = RawPlane { gpu_va: address, pitch: pitch as u64 };
        // SAFETY: whoever made the fill promised that the memory is valid until it has ended.
        unsafe {
            match element {
                // CAST: the low bytes count.
                1 => queue.fill_raw_2d(plane, value as u8, width, height)?,
                2 => queue.fill_raw_2d(plane, value as u16, width, height)?,
                _ => queue.fill_raw_2d(plane, value, width, height)?,
            }
        }
        Ok(())
    }
}

impl LaunchSize {
    /// Checks what a launch must meet, before anything is done.
    ///
    /// # Errors
    ///
    /// [`Code::InvalidValue`] if grid, block or shared memory are too large or zero, or the block larger than the
    /// source of the kernel permits; [`Code::LaunchOutOfResources`] if the kernel's registers do not permit the block;
    /// [`Code::InvalidClusterSize`].
    pub fn check(&self, function: &Function) -> Result<()> {
        use gpu_hal::chip::{MAX_BLOCK, MAX_BLOCK_THREADS, MAX_GRID};
        let fits = |size: [u32; 3], most: [u32; 3]| (0..3).all(|axis| (1..=most[axis]).contains(&size[axis]));
        let threads: u64 = self.block.iter().map(|&size| u64::from(size)).product();
        let (grid, block) = (Dim3::from(self.grid), Dim3::from(self.block));
        if !fits(self.grid, MAX_GRID)
            || !fits(self.block, MAX_BLOCK)
            || threads > u64::from(MAX_BLOCK_THREADS)
        {
            return Err(Failure::invalid(format!("a grid of {grid} blocks of {block} threads")));
        }
        let declared = function.kernel.declared_threads();
        if threads > u64::from(declared) {
            return Err(Failure::invalid(format!(
                "blocks of {block} threads; the kernel permits {declared}"
            )));
        }
        if threads > u64::from(function.attributes.max_threads) {
            let most = function.attributes.max_threads;
            return Err(Failure::new(
                Code::LaunchOutOfResources,
                format!("blocks of {block} threads; the kernel runs with up to {most}"),
            ));
        }
        let most = function.max_dynamic_shared();
        if self.shared_bytes > most {
            let bytes = self.shared_bytes;
            return Err(Failure::invalid(format!(
                "{bytes} bytes of dynamic shared memory; up to {most} are set"
            )));
        }
        function.clusters.check(&function.kernel, self.cluster, self.grid)
    }

    /// Adds the launch to a queue. Whoever calls it promises that the kernel may run with these parameters.
    pub(crate) fn encode(self, function: &Function, parameters: &[u8], queue: &mut Queue) -> Result<()> {
        let own = queue.priority();
        if let Some(asked) = self.priority {
            queue.set_priority(priority(asked));
        }
        let added = self.add(function, parameters, queue);
        queue.set_priority(own);
        added
    }

    fn add(self, function: &Function, parameters: &[u8], queue: &mut Queue) -> Result<()> {
        let Self { grid, block, shared_bytes, cluster, .. } = self;
        let kernel = function.clusters.kernel(&function.kernel, cluster)?;
        if !function.references.is_empty() {
            let mut whole = parameters.to_vec();
            whole.resize(function.kernel.block_bytes(), 0);
            for (offset, reference) in &function.references {
                // CAST: kernels use the lower half.
                let number = reference.number()? as u32;
                whole[*offset..offset + 4].copy_from_slice(&number.to_le_bytes());
            }
            // SAFETY: the promise of the caller of `encode`.
            unsafe { queue.launch_raw(&kernel, grid, block, shared_bytes, &whole)? };
            return Ok(());
        }
        // SAFETY: the promise of the caller of `encode`.
        unsafe { queue.launch_raw(&kernel, grid, block, shared_bytes, parameters)? };
        Ok(())
    }
}

impl Work {
    /// Whether both are of one type of node.
    pub(crate) fn is_like(&self, other: &Self) -> bool {
        let is_graph = |work: &Self| matches!(work, Self::Child(_) | Self::Sequence(_));
        core::mem::discriminant(self) == core::mem::discriminant(other) || is_graph(self) && is_graph(other)
    }

    /// What it is, for a description of a graph.
    pub(crate) fn label(&self) -> &str {
        match self {
            Self::Launch(launch) => launch.function.kernel.name(),
            Self::Copy(_) => "copy",
            Self::Fill(_) => "fill",
            Self::Words(_) => "words of memory",
            Self::Host(_) => "host function",
            Self::Record(_) => "record an event",
            Self::Wait(_) | Self::Until(_) => "wait for an event",
            Self::Child(_) | Self::Sequence(_) => "graph",
            Self::Allocate(_) => "allocate",
            Self::Free(_) => "free",
            Self::Empty => "nothing",
        }
    }

    /// The work for an executable graph, which later changes of child graphs do not concern.
    pub(crate) fn fixed(self) -> Result<Self> {
        match self {
            Self::Child(graph) => graph.sequence(),
            work => Ok(work),
        }
    }

    /// The pieces of a sequence, or itself.
    pub(crate) fn pieces(&self) -> &[Self] {
        match self {
            Self::Sequence(works) => works,
            work => core::slice::from_ref(work),
        }
    }

    /// Whether it waits for an event.
    pub(crate) fn waits(&self) -> bool {
        matches!(self, Self::Wait(_))
    }

    /// The work with the present record of each event that it waits for. A record has the lock of its event while it
    /// takes that of a queue, so who has a queue's must not take an event's.
    pub(crate) fn resolved(&self) -> Result<Self> {
        Ok(match self {
            Self::Wait(event) => Self::Until(event.fence()?),
            other => other.clone(),
        })
    }
}

/// Makes a queue wait for a fence, if there is one.
fn until(fence: Option<Fence>, queue: &mut Queue) -> Result<()> {
    fence.map_or(Ok(()), |fence| Ok(queue.wait_fence(&fence)?))
}

impl Step for Work {
    fn encode(&self, queue: &mut Queue) -> Result<()> {
        match self {
            Self::Launch(Launch { function, size, parameters }) => {
                size.encode(function, &parameters.bytes, queue)
            }
            Self::Copy(copy) => copy.encode(queue),
            Self::Fill(fill) => fill.encode(queue),
            Self::Words(words) => words.encode(queue),
            Self::Host(HostCall { call, .. }) => {
                let call = Arc::clone(call);
                Ok(queue.host_function(move || call())?)
            }
            Self::Record(event) => event.encode(queue),
            Self::Wait(event) => until(event.fence()?, queue),
            Self::Until(fence) => until(fence.clone(), queue),
            Self::Sequence(works) => works.iter().try_for_each(|work| work.encode(queue)),
            Self::Child(graph) => graph.sequence()?.encode(queue),
            // The memory was allocated with the node.
            Self::Allocate(_) | Self::Free(_) | Self::Empty => Ok(()),
        }
    }

    /// Kernels without a barrier of the grid, and without texture references, which have a number at each launch only.
    fn is_recordable(&self) -> bool {
        matches!(self, Self::Launch(Launch { function, .. })
            if function.references.is_empty() && !function.kernel.has_grid_barrier())
    }

    fn record(&self, builder: &mut GraphBuilder) -> Result<()> {
        if let Self::Launch(Launch { function, size, parameters }) = self {
            let LaunchSize { grid, block, shared_bytes, cluster, priority: asked } = *size;
            let kernel = function.clusters.kernel(&function.kernel, cluster)?;
            builder.set_priority(priority(asked.unwrap_or_default()));
            // SAFETY: whoever made the launch promised that the kernel may run with these parameters.
            unsafe { builder.launch_raw(&kernel, grid, block, shared_bytes, &parameters.bytes)? };
        }
        Ok(())
    }
}
