//! Launches and occupancy.

use core::ffi::c_int;
use std::sync::Arc;

use orin_cuda_core::cluster::{Cluster, active};
use orin_cuda_core::{
    Code, Context, Event, Failure, Function, Launch, LaunchSize, Result, Target, driver, function,
    with_target,
};
use smallvec::SmallVec;

use crate::abi::{Handle, In, Out};
use crate::call::{Order, api};
use crate::module::function_of;
use crate::stream::{record_event, stream_of};

/// The parameters of a launch: an array of pointers, or a list that names a ready block.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Parameters {
    /// A pointer to each parameter.
    pub(crate) pointers: In<In<u8>>,
    /// CU_LAUNCH_PARAM_BUFFER_POINTER and _SIZE with their values, up to CU_LAUNCH_PARAM_END.
    pub(crate) extra: In<usize>,
}

impl Parameters {
    /// The parameter block of a function.
    pub(crate) fn read(self, function: &Function) -> Result<SmallVec<[u8; 128]>> {
        if !self.extra.is_null() {
            return self.read_block(function);
        }
        let mut block = SmallVec::from_elem(0, function.parameter_bytes);
        if function.parameters.is_empty() {
            return Ok(block);
        }
        if self.pointers.is_null() {
            return Err(Failure::invalid(format!("the parameters of {} are NULL", function.kernel.name())));
        }
        for (index, &(offset, size)) in function.parameters.iter().enumerate() {
            self.pointers.at(index).read("a parameter")?.copy_to(&mut block[offset..offset + size])?;
        }
        Ok(block)
    }

    fn read_block(self, function: &Function) -> Result<SmallVec<[u8; 128]>> {
        let (mut data, mut size) = (In::none(), 0);
        let mut at = 0;
        loop {
            let value = |at| self.extra.at(at).read("the list of a parameter block");
            match value(at)? {
                0 => break,
                1 => data = In::at_address(value(at + 1)?),
                2 => size = In::<usize>::at_address(value(at + 1)?).read("the size of a parameter block")?,
                other => {
                    return Err(Failure::invalid(format!("{other:#x} in the list of a parameter block")));
                }
            }
            at += 2;
        }
        if size < function.parameter_bytes {
            let (name, wanted) = (function.kernel.name(), function.parameter_bytes);
            return Err(Failure::invalid(format!("{size} bytes of parameters; {name} has {wanted}")));
        }
        let mut block = SmallVec::from_elem(0, function.parameter_bytes);
        data.copy_to(&mut block)?;
        Ok(block)
    }
}

/// A checked launch.
pub(crate) fn launch_of(function: Arc<Function>, size: LaunchSize, parameters: Parameters) -> Result<Launch> {
    let parameters = parameters.read(&function)?;
    size.check(&function)?;
    Ok(Launch { function, size, parameters: orin_cuda_core::Parameters::new(&parameters) })
}

/// Launches a kernel; a cooperative one only if the whole grid can be resident at once.
pub(crate) fn start(
    order: Order,
    handle: Handle,
    size: LaunchSize,
    stream: Handle,
    parameters: Parameters,
    cooperative: bool,
) -> Result<()> {
    let find = || {
        let (context, stream) = stream_of(order, stream)?;
        let function = function(&context, handle)?;
        Ok(Target { context, stream, function })
    };
    // CAST: one of two.
    with_target((stream, handle, order as u8), find, |Target { context, stream, function }| {
        if cooperative {
            check_cooperative(context, function, size).map_err(|failure| stream.invalidate(failure))?;
        }
        let parameters = parameters.read(function)?;
        stream.launch(context, function, size, &parameters)
    })
}

/// Refuses a grid that cannot be resident at once.
fn check_cooperative(context: &Context, function: &Function, size: LaunchSize) -> Result<()> {
    let blocks: u64 = size.grid.iter().map(|&blocks| u64::from(blocks)).product();
    let per_sm = function.kernel.occupancy(size.block, size.shared_bytes)?.blocks_per_sm;
    let info = context.device.info();
    let most = match function.clusters.of_launch(size.cluster).map(|cluster| cluster.iter().product()) {
        Some(cluster) if cluster > 1 => active(info, cluster, per_sm)? * cluster,
        _ => per_sm * info.sm_count,
    };
    if blocks > u64::from(most) {
        return Err(Failure::new(
            Code::CooperativeLaunchTooLarge,
            format!("{blocks} blocks; the GPU holds {most} of {} at a time", function.kernel.name()),
        ));
    }
    Ok(())
}

/// The size of a launch, as `CUlaunchConfig` and the parameters of nodes contain it.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Size {
    pub(crate) grid: [u32; 3],
    pub(crate) block: [u32; 3],
    pub(crate) shared_bytes: u32,
}

impl Size {
    pub(crate) fn with(self, cluster: Cluster, priority: Option<i32>) -> LaunchSize {
        let Self { grid, block, shared_bytes } = self;
        LaunchSize { grid, block, shared_bytes, cluster, priority }
    }
}

/// `CUlaunchConfig`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Config {
    size: Size,
    stream: Handle,
    attributes: In<Attribute>,
    count: u32,
}

/// `CUlaunchAttribute`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Attribute {
    id: u32,
    pad: u32,
    value: [u32; 16],
}

/// What the attributes of a launch ask for.
#[derive(Debug, Default)]
struct Asked {
    cooperative: bool,
    cluster: Cluster,
    priority: Option<i32>,
    /// Events that are recorded with it.
    events: SmallVec<[Handle; 1]>,
}

/// The event of an attribute, which it must permit.
fn event_of(value: [u32; 16]) -> Result<Handle> {
    let [low, high, flags, ..] = value;
    let handle = u64::from(high) << 32 | u64::from(low);
    if flags != 0 || !driver()?.objects.get::<Event>(handle)?.is_plain() {
        return Err(Failure::invalid(
            "an event of a launch has no times and no flags, and is of this process",
        ));
    }
    Ok(handle)
}

/// Reads the attributes of a launch.
fn asked(attributes: In<Attribute>, count: u32) -> Result<Asked> {
    let mut asked = Asked::default();
    for attribute in attributes.each(count as usize, "the attributes") {
        let attribute = attribute?;
        match (attribute.id, attribute.value) {
            (2, [flag, ..]) => asked.cooperative = flag != 0,
            (4, [x, y, z, ..]) => asked.cluster = [x, y, z],
            (8, [priority, ..]) => asked.priority = Some(priority.cast_signed()),
            // CU_LAUNCH_ATTRIBUTE_IGNORE, and hints: access policy, synchronisation, scheduling, early start of the
            // next launch, memory domains, preferred clusters, shared memory.
            (0 | 1 | 3 | 5 | 6 | 9 | 10 | 11 | 14 | 15, _) => {}
            // Events that the kernel's blocks trigger, or its last block when it begins. They are recorded behind the
            // kernel, which is late enough.
            (7 | 12, value) => asked.events.push(event_of(value)?),
            (13, _) => return Err(Failure::new(Code::NotSupported, "nodes that the GPU updates")),
            (id, _) => return Err(Failure::invalid(format!("there is no launch attribute {id}"))),
        }
    }
    Ok(asked)
}

type SharedOfBlock = unsafe extern "C" fn(c_int) -> usize;

fn potential(
    grid: Out<c_int>,
    block: Out<c_int>,
    handle: Handle,
    shared: Option<SharedOfBlock>,
    bytes: usize,
    limit: c_int,
) -> Result<()> {
    let (grid, block) = (grid.need("the place for the grid")?, block.need("the place for the block")?);
    let function = function_of(handle)?;
    let of_block = |threads: u32| {
        // CAST: a block has at most 1024 threads. SAFETY: the program gave the function for this call.
        let bytes = shared.map_or(bytes, |shared| unsafe { shared(threads as c_int) });
        u32::try_from(bytes).unwrap_or(u32::MAX)
    };
    // 0 is no limit.
    let limit = u32::try_from(limit).ok().filter(|limit| *limit > 0).unwrap_or(u32::MAX);
    let (threads, blocks) = function.kernel.fullest_block(limit, of_block)?;
    // CAST: blocks and threads of one GPU.
    grid.set(blocks as c_int);
    block.set(threads as c_int);
    Ok(())
}

fn active_of_sm(count: Out<c_int>, handle: Handle, block: c_int, bytes: usize) -> Result<()> {
    let count = count.need("the place for the count")?;
    let function = function_of(handle)?;
    let block = u32::try_from(block).ok().filter(|block| *block > 0);
    let block = block.ok_or_else(|| Failure::invalid("a block has at least one thread"))?;
    let bytes = u32::try_from(bytes).map_err(|_| Failure::invalid("too much shared memory"))?;
    // CAST: an SM holds few blocks. A block that does not fit is no error here.
    count
        .set(function.kernel.occupancy(block, bytes).map_or(0, |occupancy| occupancy.blocks_per_sm as c_int));
    Ok(())
}

api! {
    kernel(
        order @ handle: Handle,
        grid_x: u32, grid_y: u32, grid_z: u32,
        block_x: u32, block_y: u32, block_z: u32,
        shared_bytes: u32,
        stream: Handle,
        pointers: In<In<u8>>,
        extra: In<usize>,
    ) [cuLaunchKernel Legacy] [cuLaunchKernel_ptsz PerThread] {
        let (grid, block) = ([grid_x, grid_y, grid_z], [block_x, block_y, block_z]);
        let size = LaunchSize { grid, block, shared_bytes, cluster: [0; 3], priority: None };
        start(order, handle, size, stream, Parameters { pointers, extra }, false)
    }

    cooperative(
        order @ handle: Handle,
        grid_x: u32, grid_y: u32, grid_z: u32,
        block_x: u32, block_y: u32, block_z: u32,
        shared_bytes: u32,
        stream: Handle,
        pointers: In<In<u8>>,
    ) [cuLaunchCooperativeKernel Legacy] [cuLaunchCooperativeKernel_ptsz PerThread] {
        let (grid, block) = ([grid_x, grid_y, grid_z], [block_x, block_y, block_z]);
        let size = LaunchSize { grid, block, shared_bytes, cluster: [0; 3], priority: None };
        start(order, handle, size, stream, Parameters { pointers, extra: In::none() }, true)
    }

    kernel_ex(order @ config: In<Config>, handle: Handle, pointers: In<In<u8>>, extra: In<usize>)
    [cuLaunchKernelEx Legacy] [cuLaunchKernelEx_ptsz PerThread] {
        let Config { size, stream, attributes, count } = config.read("the configuration")?;
        let Asked { cooperative, cluster, priority, events } = asked(attributes, count)?;
        start(order, handle, size.with(cluster, priority), stream, Parameters { pointers, extra }, cooperative)?;
        events.into_iter().try_for_each(|event| record_event(order, event, stream))
    }

    active_blocks(count: Out<c_int>, handle: Handle, block: c_int, bytes: usize)
    [cuOccupancyMaxActiveBlocksPerMultiprocessor Legacy] {
        active_of_sm(count, handle, block, bytes)
    }

    active_blocks_with_flags(count: Out<c_int>, handle: Handle, block: c_int, bytes: usize, flags: u32)
    [cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags Legacy] {
        if flags > 1 {
            return Err(Failure::invalid(format!("flags {flags}")));
        }
        active_of_sm(count, handle, block, bytes)
    }

    potential_block(
        grid: Out<c_int>,
        block: Out<c_int>,
        handle: Handle,
        shared: Option<SharedOfBlock>,
        bytes: usize,
        limit: c_int,
    ) [cuOccupancyMaxPotentialBlockSize Legacy] {
        potential(grid, block, handle, shared, bytes, limit)
    }

    potential_block_with_flags(
        grid: Out<c_int>,
        block: Out<c_int>,
        handle: Handle,
        shared: Option<SharedOfBlock>,
        bytes: usize,
        limit: c_int,
        flags: u32,
    ) [cuOccupancyMaxPotentialBlockSizeWithFlags Legacy] {
        if flags > 1 {
            return Err(Failure::invalid(format!("flags {flags}")));
        }
        potential(grid, block, handle, shared, bytes, limit)
    }

    available_shared(bytes: Out<usize>, handle: Handle, blocks: c_int, threads: c_int)
    [cuOccupancyAvailableDynamicSMemPerBlock Legacy] {
        let place = bytes.need("the place for the size")?;
        let function = function_of(handle)?;
        let wrong = || Failure::invalid(format!("{blocks} blocks of {threads} threads"));
        let blocks = u32::try_from(blocks).ok().filter(|blocks| *blocks > 0).ok_or_else(wrong)?;
        let threads = u32::try_from(threads).ok().filter(|threads| *threads > 0).ok_or_else(wrong)?;
        let fits = |bytes| function.kernel.occupancy(threads, bytes).is_ok_and(|found| found.blocks_per_sm >= blocks);
        if !fits(0) {
            return Err(wrong());
        }
        // The largest size with which the blocks fit, up to what a launch may have.
        let (mut low, mut high) = (0, function.max_dynamic_shared() + 1);
        while high - low > 1 {
            let middle = low + (high - low) / 2;
            if fits(middle) { low = middle } else { high = middle }
        }
        place.set(low as usize);
        Ok(())
    }

    potential_clusters(size: Out<c_int>, handle: Handle, config: In<Config>)
    [cuOccupancyMaxPotentialClusterSize Legacy] {
        let place = size.need("the place for the size")?;
        let Config { size, attributes, count, .. } = config.read("the configuration")?;
        asked(attributes, count)?;
        let context = orin_cuda_core::context::current()?;
        let function = function(&context, handle)?;
        let per_sm = function.kernel.occupancy(size.block, size.shared_bytes)?.blocks_per_sm;
        let mut largest = 1;
        for blocks in 2..=function.clusters.largest() {
            if active(context.device.info(), blocks, per_sm)? > 0 {
                largest = blocks;
            }
        }
        // CAST: at most 16.
        place.set(largest as c_int);
        Ok(())
    }

    active_clusters(count: Out<c_int>, handle: Handle, config: In<Config>) [cuOccupancyMaxActiveClusters Legacy] {
        let place = count.need("the place for the count")?;
        let Config { size, attributes, count, .. } = config.read("the configuration")?;
        let asked = asked(attributes, count)?.cluster;
        let context = orin_cuda_core::context::current()?;
        let function = function(&context, handle)?;
        size.with(asked, None).check(&function)?;
        let clusters = match function.clusters.of_launch(asked) {
            None => 0,
            Some(cluster) => {
                let per_sm = function.kernel.occupancy(size.block, size.shared_bytes)?.blocks_per_sm;
                active(context.device.info(), cluster.iter().product(), per_sm)?
            }
        };
        // CAST: blocks of one GPU.
        place.set(clusters as c_int);
        Ok(())
    }
}
