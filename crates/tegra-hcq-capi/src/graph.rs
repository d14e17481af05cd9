//! Recorded graphs.

use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use smallvec::SmallVec;
use tegra_hcq::{Buffer, NodeId};

use crate::arguments;
use crate::buffer::buffer;
use crate::device::{device, hand_out};
use crate::handle::{Locked, TABLE, share};
use crate::interrupt;
use crate::object::{BuilderObject, GraphObject, Kind, Object};
use crate::pass;
use crate::program::kernel;
use crate::queue::{self, Pair, Pattern};
use crate::status::{Failure, Status, guard};
use crate::types::{
    tegra_hcq_arg, tegra_hcq_arg_kind, tegra_hcq_buffer, tegra_hcq_device, tegra_hcq_dim3, tegra_hcq_fence,
    tegra_hcq_graph, tegra_hcq_graph_builder, tegra_hcq_kernel, tegra_hcq_queue,
};

pub(crate) fn lock_builder(handle: *mut tegra_hcq_graph_builder) -> Result<Locked, Failure> {
    TABLE.lock(handle.addr() as u64, Kind::Builder)
}

pub(crate) fn builder(locked: &mut Locked) -> Result<&mut BuilderObject, Failure> {
    match &mut **locked {
        Object::Builder(_, builder) => Ok(builder),
        other => Err(Failure::handle(format!("a {} is not a graph builder", other.kind().name()))),
    }
}

fn graph(handle: *mut tegra_hcq_graph) -> Result<Arc<Mutex<GraphObject>>, Failure> {
    share(handle.addr() as u64, Kind::Graph, |object| match object {
        Object::Graph(_, graph) => Some(graph),
        _ => None,
    })
}

/// Locks a graph. A call from the function that interrupts waits does not wait for the lock, because its own thread may
/// hold it.
fn lock(graph: &Mutex<GraphObject>) -> Result<MutexGuard<'_, GraphObject>, Failure> {
    if !interrupt::is_inside() {
        return Ok(graph.lock());
    }
    graph
        .try_lock()
        .ok_or_else(|| Failure::new(Status::Busy, "the graph is in use, perhaps by the interrupted call"))
}

impl GraphObject {
    fn node(&self, node: u32) -> Result<NodeId, Failure> {
        let found = self.nodes.get(node as usize).copied();
        found.ok_or_else(|| {
            Failure::argument(format!("there is no step {node}, the graph has {}", self.nodes.len()))
        })
    }
}

/// Adds a step to a builder; if `node` is not NULL, `*node` receives its number.
///
/// # Safety
///
/// `node` is NULL or valid for a write.
pub(crate) unsafe fn add(object: &mut BuilderObject, step: NodeId, node: *mut u32) -> Result<(), Failure> {
    object.nodes.push(step);
    if !node.is_null() {
        let number = u32::try_from(object.nodes.len() - 1)
            .map_err(|_| Failure::argument("the graph has 2^32 steps"))?;
        // SAFETY: the caller's promise.
        unsafe { pass::out(node, "node")? }.put(number);
    }
    Ok(())
}

/// Converts arguments with a share of each buffer, and passes them to `then`.
///
/// # Safety
///
/// As for [`arguments::append`], without the lock of a queue.
unsafe fn with_arguments<R>(
    args: *const tegra_hcq_arg,
    count: usize,
    then: impl FnOnce(&arguments::List<'_>) -> Result<R, Failure>,
) -> Result<R, Failure> {
    if count > 0 && args.is_null() {
        return Err(pass::null("args"));
    }
    let mut held: SmallVec<[Arc<Buffer<u8>>; 16]> = SmallVec::new();
    for at in 0..count {
        // SAFETY: the caller's promise.
        let arg = unsafe { args.add(at).read() };
        if arg.kind == tegra_hcq_arg_kind::Buffer as u32 {
            held.push(buffer(crate::device::pointer(arg.value))?);
        }
    }
    let mut buffers = held.iter();
    let mut list = arguments::List::new();
    for at in 0..count {
        // SAFETY: the caller's promise.
        let arg = unsafe { args.add(at).read() };
        if arg.kind == tegra_hcq_arg_kind::Buffer as u32 {
            // PANIC: the loop above has held one buffer for each such argument.
            let buffer = buffers.next().expect("the buffer is held");
            arguments::append_part(&mut list, buffer, arg.offset, at)?;
        } else {
            // SAFETY: the caller's promise; an argument that is not a buffer needs no lock.
            unsafe { arguments::append_one(&mut list, &arg, at)? };
        }
    }
    then(&list)
}

/// Begins the recording of a graph. `*out` is set only on success. Thread-safe.
///
/// # Safety
///
/// `out` is NULL or valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tegra_hcq_graph_begin(
    device: *mut tegra_hcq_device,
    out: *mut *mut tegra_hcq_graph_builder,
) -> Status {
    guard(|| {
        let (owner, device) = self::device(device)?;
        // SAFETY: the caller's promise.
        let out = unsafe { pass::out(out, "out")? };
        let builder = BuilderObject { builder: device.graph(), nodes: Vec::new() };
        hand_out(out, Object::Builder(owner, Box::new(builder)))
    })
}

/// Sets how many replays of the graph may be in flight before the next one waits: 1 to 64, default 4. Thread-safe.
#[unsafe(no_mangle)]
pub extern "C" fn tegra_hcq_graph_set_instances(
    builder: *mut tegra_hcq_graph_builder,
    count: usize,
) -> Status {
    guard(|| {
        let mut locked = lock_builder(builder)?;
        self::builder(&mut locked)?.builder.instances(count)?;
        Ok(())
    })
}

/// Records a launch. If `node` is not NULL, `*node` receives the number of the step. The graph keeps its buffers alive.
/// Thread-safe.
///
/// # Safety
///
/// As for `tegra_hcq_queue_launch`, for every replay. `node` is NULL or valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tegra_hcq_graph_launch(
    builder: *mut tegra_hcq_graph_builder,
    kernel: *mut tegra_hcq_kernel,
    grid: tegra_hcq_dim3,
    block: tegra_hcq_dim3,
    shared_bytes: u32,
    args: *const tegra_hcq_arg,
    arg_count: usize,
    node: *mut u32,
) -> Status {
    guard(|| {
        let kernel = self::kernel(kernel)?;
        // SAFETY: the caller's promises.
        unsafe {
            with_arguments(args, arg_count, |list| {
                let mut locked = lock_builder(builder)?;
                let object = self::builder(&mut locked)?;
                let step =
                    object.builder.launch_with_shared(&kernel.kernel, grid, block, shared_bytes, list)?;
                add(object, step, node)
            })
        }
    })
}

/// Records a copy between buffers, or between two parts of one buffer that do not overlap. Thread-safe.
///
/// # Safety
///
/// As for `tegra_hcq_queue_copy`, for every replay. `node` is NULL or valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tegra_hcq_graph_copy(
    builder: *mut tegra_hcq_graph_builder,
    target: *mut tegra_hcq_buffer,
    target_offset: u64,
    source: *mut tegra_hcq_buffer,
    source_offset: u64,
    bytes: u64,
    node: *mut u32,
) -> Status {
    guard(|| {
        let pair = Pair::new(target, target_offset, source, source_offset, bytes)?;
        let mut locked = lock_builder(builder)?;
        let object = self::builder(&mut locked)?;
        // SAFETY: the parts do not overlap; the caller's promise.
        let target = unsafe { pair.target.slice_mut_unchecked(pair.to.clone())? };
        let step = object.builder.copy(pair.source.slice(pair.from.clone())?, target)?;
        // SAFETY: the caller's promise.
        unsafe { add(object, step, node) }
    })
}

/// Records a fill, as `tegra_hcq_queue_fill`. Thread-safe.
///
/// # Safety
///
/// As for `tegra_hcq_queue_fill`, for every replay. `node` is NULL or valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tegra_hcq_graph_fill(
    builder: *mut tegra_hcq_graph_builder,
    target: *mut tegra_hcq_buffer,
    offset: u64,
    bytes: u64,
    value: u32,
    width: u32,
    node: *mut u32,
) -> Status {
    guard(|| {
        let pattern = Pattern::new(value, width)?;
        let target = buffer(target)?;
        let range = pass::range(offset, bytes, target.byte_len())?;
        // SAFETY: the caller's promise.
        let part = unsafe { target.slice_mut_unchecked(range)? };
        let mut locked = lock_builder(builder)?;
        let object = self::builder(&mut locked)?;
        let step = match pattern {
            Pattern::Byte(byte) => object.builder.fill(part, byte)?,
            Pattern::Word(word) => object.builder.fill(part.cast::<u32>()?, word)?,
        };
        // SAFETY: the caller's promise.
        unsafe { add(object, step, node) }
    })
}

/// Ends the recording. The builder's handle becomes invalid if the call succeeds; `*out` is set only then. Thread-safe.
///
/// # Safety
///
/// `out` is NULL or valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tegra_hcq_graph_build(
    builder: *mut tegra_hcq_graph_builder,
    out: *mut *mut tegra_hcq_graph,
) -> Status {
    guard(|| {
        // SAFETY: the caller's promise.
        let out = unsafe { pass::out(out, "out")? };
        let mut locked = lock_builder(builder)?;
        if self::builder(&mut locked)?.nodes.is_empty() {
            return Err(Failure::argument("the graph has no steps"));
        }
        let Object::Builder(owner, object) = TABLE.withdraw(locked, builder.addr() as u64) else {
            return Err(Failure::new(Status::Internal, "a graph builder has changed its kind"));
        };
        let graph = GraphObject { graph: object.builder.build()?, nodes: object.nodes };
        hand_out(out, Object::Graph(owner, Arc::new(Mutex::new(graph))))
    })
}

/// Drops a recording that was not built. Thread-safe.
#[unsafe(no_mangle)]
pub extern "C" fn tegra_hcq_graph_abandon(builder: *mut tegra_hcq_graph_builder) -> Status {
    guard(|| TABLE.remove(builder.addr() as u64, Kind::Builder))
}

/// Replaces argument `index` of launch `node` from the next replay on. Thread-safe.
///
/// # Safety
///
/// As for `tegra_hcq_graph_launch`. `arg` is NULL or valid for a read.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tegra_hcq_graph_set_argument(
    graph: *mut tegra_hcq_graph,
    node: u32,
    index: usize,
    arg: *const tegra_hcq_arg,
) -> Status {
    guard(|| {
        let object = self::graph(graph)?;
        // SAFETY: the caller's promises.
        unsafe {
            with_arguments(arg, 1, |list| {
                let mut object = lock(&object)?;
                let node = object.node(node)?;
                Ok(object.graph.set_argument(node, index, list[0])?)
            })
        }
    })
}

/// Replaces grid and block of launch `node` from the next replay on. Thread-safe.
///
/// # Safety
///
/// As for `tegra_hcq_graph_launch`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tegra_hcq_graph_set_size(
    graph: *mut tegra_hcq_graph,
    node: u32,
    grid: tegra_hcq_dim3,
    block: tegra_hcq_dim3,
) -> Status {
    guard(|| {
        let object = self::graph(graph)?;
        let mut object = lock(&object)?;
        let node = object.node(node)?;
        // SAFETY: the caller's promise.
        unsafe { object.graph.set_size(node, grid, block)? };
        Ok(())
    })
}

/// Replaces source and target of copy `node` from the next replay on. Thread-safe.
///
/// # Safety
///
/// As for `tegra_hcq_graph_copy`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tegra_hcq_graph_set_copy(
    graph: *mut tegra_hcq_graph,
    node: u32,
    target: *mut tegra_hcq_buffer,
    target_offset: u64,
    source: *mut tegra_hcq_buffer,
    source_offset: u64,
    bytes: u64,
) -> Status {
    guard(|| {
        let pair = Pair::new(target, target_offset, source, source_offset, bytes)?;
        let object = self::graph(graph)?;
        let mut object = lock(&object)?;
        let node = object.node(node)?;
        // SAFETY: the parts do not overlap; the caller's promise.
        let target = unsafe { pair.target.slice_mut_unchecked(pair.to.clone())? };
        Ok(object.graph.set_copy(node, pair.source.slice(pair.from.clone())?, target)?)
    })
}

/// Submits a graph to run after all earlier work of the queue. If `fence` is not NULL, `*fence` receives a fence for
/// the replay. Thread-safe; calls on one queue or graph run one after the other.
///
/// # Safety
///
/// `fence` is NULL or valid for a write. The promises of the recording hold for this replay.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tegra_hcq_queue_replay(
    queue: *mut tegra_hcq_queue,
    graph: *mut tegra_hcq_graph,
    fence: *mut *mut tegra_hcq_fence,
) -> Status {
    guard(|| {
        TABLE.sweep();
        let graph = self::graph(graph)?;
        let (queue, mut graph) = (queue::lock(queue)?, lock(&graph)?);
        // SAFETY: the caller's promise.
        unsafe { queue::submit(queue, fence, |queue| queue.replay(&mut graph.graph)) }
    })
}

/// Number of steps of a graph. Thread-safe.
///
/// # Safety
///
/// `count` is NULL or valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tegra_hcq_graph_len(graph: *mut tegra_hcq_graph, count: *mut usize) -> Status {
    guard(|| {
        // SAFETY: the caller's promise.
        let count = unsafe { pass::out(count, "count")? };
        let object = self::graph(graph)?;
        count.put(lock(&object)?.graph.len());
        Ok(())
    })
}

/// Frees a graph after its replays have ended. Thread-safe.
#[unsafe(no_mangle)]
pub extern "C" fn tegra_hcq_graph_free(graph: *mut tegra_hcq_graph) -> Status {
    guard(|| TABLE.remove(graph.addr() as u64, Kind::Graph))
}
