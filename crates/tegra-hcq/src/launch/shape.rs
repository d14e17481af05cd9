//! The shape of a launch: grid, block and shared memory, checked against kernel and chip.

use gpu_hal::chip::{MAX_BLOCK, MAX_BLOCK_THREADS, MAX_GRID};

use crate::error::{LaunchError, Result};
use crate::limits::{Dim3, Priority};
use crate::occupancy;
use crate::program::code::KernelCode;

/// Shared memory of a launch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SharedMemory {
    /// Dynamic shared memory of a block in bytes.
    pub(crate) dynamic_bytes: u32,
    /// Shared memory of a block in bytes, as in the launch descriptor: static, dynamic and reserved.
    pub(crate) bytes: u32,
    /// Code of the smallest configuration of the SM that holds one block.
    pub(crate) config: u32,
    /// Code of the configuration that holds as many blocks as the SM's other resources allow.
    pub(crate) target: u32,
}

/// Grid, block and shared memory of a launch, checked against kernel and chip.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub(crate) grid: Dim3,
    /// The grid in clusters, as the launch descriptor counts it.
    pub(crate) clusters: Dim3,
    pub(crate) block: Dim3,
    pub(crate) shared: SharedMemory,
    /// Number of blocks that an SM holds, for a grid of at most one block per SM; 0 for larger grids or if unknown.
    pub(crate) empty_sm_slots: u32,
    pub(crate) priority: Priority,
}

impl KernelCode {
    /// Checks grid, block and dynamic shared memory of a launch.
    pub(crate) fn shape(&self, grid: Dim3, block: Dim3, shared_bytes: u32) -> Result<Shape> {
        check_grid(grid)?;
        self.check_block(block)?;
        let clusters = self.clusters(grid)?;
        let (shared, sm_blocks) = self.shared_memory(block.count(), shared_bytes)?;
        if self.needs.grid_barrier.is_some() {
            self.check_residence(grid, sm_blocks * self.sm_count)?;
        }
        let empty_sm_slots = if grid.count() <= self.sm_count { sm_blocks } else { 0 };
        Ok(Shape { grid, clusters, block, shared, empty_sm_slots, priority: Priority::USUAL })
    }

    /// Refuses a grid with a barrier of all blocks if the GPU cannot hold all of them.
    fn check_residence(&self, grid: Dim3, limit: u32) -> Result<()> {
        let blocks = grid.count();
        if blocks > limit {
            return Err(LaunchError::GridBarrier { kernel: self.name.clone(), blocks, limit }.into());
        }
        Ok(())
    }

    /// Refuses a block size that the kernel was not compiled for.
    pub(crate) fn check_block(&self, block: Dim3) -> Result<()> {
        check_block(block)?;
        if let Some(required) = self.required_block
            && required != block.to_array()
        {
            let required = Dim3::from(required);
            return Err(LaunchError::RequiredBlock { kernel: self.name.clone(), required, block }.into());
        }
        let threads = block.count();
        if threads > self.max_threads {
            let (kernel, limit) = (self.name.clone(), self.max_threads);
            return Err(LaunchError::KernelThreads { kernel, threads, limit }.into());
        }
        Ok(())
    }

    /// The clusters of a grid; refuses one that is not whole clusters.
    fn clusters(&self, grid: Dim3) -> Result<Dim3> {
        let Some(cluster) = self.cluster else { return Ok(grid) };
        let axes = [(grid.x, cluster[0]), (grid.y, cluster[1]), (grid.z, cluster[2])];
        if axes.iter().all(|(blocks, cluster)| blocks.is_multiple_of(*cluster)) {
            return Ok(Dim3::from(axes.map(|(blocks, cluster)| blocks / cluster)));
        }
        Err(LaunchError::ClusterGrid { kernel: self.name.clone(), cluster: cluster.into(), grid }.into())
    }

    /// Shared memory for a launch with blocks of `threads` threads and `dynamic_bytes` of dynamic shared memory, and
    /// the number of such blocks that an SM holds.
    fn shared_memory(&self, threads: u32, dynamic_bytes: u32) -> Result<(SharedMemory, u32)> {
        let shared = &self.qmd.chip.shared;
        let own = shared.own(self.static_shared).checked_next_multiple_of(16);
        let bytes = own.and_then(|own| shared.descriptor_bytes(own.saturating_add(dynamic_bytes)));
        let config = bytes.and_then(|bytes| shared.config_for(bytes));
        let fitting = bytes.zip(config).map(|(bytes, config)| {
            let room = occupancy::room(self, threads, bytes);
            let wanted = room.map_or(bytes, |room| room.shared_bytes);
            let target = shared.config_for(wanted).map_or(config, |target| target.max(config));
            let sm_blocks = room.map_or(0, |room| room.blocks);
            (SharedMemory { dynamic_bytes, bytes, config, target }, sm_blocks)
        });
        fitting.ok_or_else(|| {
            let (kernel, static_bytes) = (self.name.clone(), self.static_shared);
            let limit = shared.largest().saturating_sub(shared.reserved);
            LaunchError::SharedMemory { kernel, static_bytes, dynamic_bytes, limit }.into()
        })
    }

    /// Shared memory that a block may use, in bytes: without the reserved bytes, and before it is rounded.
    pub(super) fn exact_shared(&self, shape: &Shape) -> u32 {
        let own = self.qmd.chip.shared.own(self.static_shared).next_multiple_of(16);
        own + shape.shared.dynamic_bytes
    }
}

/// Refuses a grid that the launch descriptor cannot hold: 1 to 2^31 - 1 blocks in x, 1 to 65,535 in y and z (QMD
/// CTA_RASTER_WIDTH, _HEIGHT, _DEPTH).
pub(super) fn check_grid(grid: Dim3) -> Result<()> {
    check_extents("grid", grid, MAX_GRID)
}

/// Refuses a block that an SM cannot run: 1 to 1024 threads in x and y, 1 to 64 in z, at most 1024 in total.
pub(super) fn check_block(block: Dim3) -> Result<()> {
    check_extents("block", block, MAX_BLOCK)?;
    let threads = block.count();
    if threads > MAX_BLOCK_THREADS {
        return Err(LaunchError::BlockThreads { block, threads, limit: MAX_BLOCK_THREADS }.into());
    }
    Ok(())
}

fn check_extents(what: &'static str, size: Dim3, limits: [u32; 3]) -> Result<()> {
    for ((value, limit), axis) in size.to_array().into_iter().zip(limits).zip(['x', 'y', 'z']) {
        if value == 0 || value > limit {
            return Err(LaunchError::Extent { what, size, axis, limit }.into());
        }
    }
    Ok(())
}
