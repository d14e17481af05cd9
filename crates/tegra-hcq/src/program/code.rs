//! A loaded image: its code in GPU memory, and the launch data of each kernel.

use core::fmt;
use std::sync::Mutex;

use gpu_hal::Properties;
use gpu_hal::chip::{self, Chip, MAX_BLOCK, MAX_BLOCK_THREADS, MAX_GRID, Sm, WARP};

use crate::descriptor::{self, Code, Descriptor, Shape, SharedMemory};
use crate::encodings::Encodings;
use crate::error::{LaunchError, Result};
use crate::fault::CodeLocation;
use crate::grid::Dim3;
use crate::heap::Handle;
use crate::occupancy;

/// One kernel, ready for launches.
#[derive(Debug)]
pub(crate) struct KernelCode {
    pub(crate) name: String,
    pub(crate) code_va: u64,
    code_bytes: u64,
    pub(crate) qmd: Descriptor,
    /// Template of constant bank 0: driver words and zeroed parameters.
    pub(crate) bank0: Vec<u8>,
    pub(crate) params: Vec<ParamSlot>,
    pub(crate) local_bytes: u32,
    pub(crate) static_shared: u32,
    pub(crate) registers: u32,
    pub(crate) barriers: u32,
    /// Known size of the stack frames, in bytes.
    pub(crate) frame_bytes: u32,
    /// Constant bank 3: `__constant__` variables, in bytes.
    pub(crate) constant_bytes: u32,
    /// SM version that the code was compiled for, major and minor.
    pub(crate) sm_version: (u32, u32),
    /// Chip table row of the SM version that the code was compiled for; `None` if the table does not contain it.
    pub(crate) target: Option<&'static Chip>,
    /// Limits of an SM of that chip for the kernel.
    pub(crate) limits: Option<occupancy::Limits>,
    /// SMs of the GPU.
    sm_count: u32,
    pub(super) max_threads: u32,
    required_block: Option<[u32; 3]>,
    /// Size in blocks of the clusters that the kernel requires.
    cluster: Option<[u32; 3]>,
}

/// Location of a parameter.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ParamSlot {
    /// Offset in constant bank 0, in bytes.
    pub(crate) offset: usize,
    /// Size in bytes.
    pub(crate) size: usize,
}

/// A loaded image. Lives as long as a program, a kernel or a recorded graph refers to it; its memory lives until
/// pending launches have ended.
pub(crate) struct ProgramCode {
    pub(crate) memory: Handle,
    pub(crate) kernels: Vec<KernelCode>,
    /// The variables, sorted by name.
    pub(crate) globals: Vec<cubin::Global>,
    /// Held while the CPU reads or writes a variable.
    pub(crate) variables: Mutex<()>,
}

/// Number of kernels that [`ProgramCode`] prints by name.
const NAMES: usize = 4;

impl fmt::Debug for ProgramCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.kernels.iter().take(NAMES).map(|kernel| kernel.name.as_str()).collect();
        let more = if self.kernels.len() > NAMES { ", .." } else { "" };
        f.debug_struct("Program")
            .field("kernels", &self.kernels.len())
            .field("names", &format_args!("[{}{more}]", names.join(", ")))
            .field("gpu_va", &format_args!("{:#x}", self.memory.gpu_va()))
            .finish_non_exhaustive()
    }
}

impl ProgramCode {
    /// The kernel that contains a code address.
    pub(crate) fn locate(&self, pc: u64) -> Option<CodeLocation> {
        let inside =
            |kernel: &&KernelCode| (kernel.code_va..kernel.code_va + kernel.code_bytes).contains(&pc);
        let kernel = self.kernels.iter().find(inside)?;
        Some(CodeLocation { kernel: kernel.name.clone(), offset: pc - kernel.code_va })
    }
}

impl KernelCode {
    pub(super) fn prepare(
        kernel: &cubin::Kernel,
        sm: u32,
        image_va: u64,
        properties: &Properties,
        encodings: &Encodings,
    ) -> Result<Self> {
        let chip = encodings.chip();
        let code_va = image_va + kernel.code_offset;
        let stack = kernel.stack_bytes(cubin::Kernel::DEFAULT_STACK_LIMIT);
        // The descriptor refuses a size that does not fit its field.
        let local_bytes = stack.saturating_add(chip.local.stack_reserve);
        let local_bytes = local_bytes.checked_next_multiple_of(32).unwrap_or(u32::MAX);
        let params: Vec<ParamSlot> = kernel
            .params
            .iter()
            .map(|param| ParamSlot {
                offset: kernel.param_base as usize + usize::from(param.offset),
                size: usize::from(param.bytes),
            })
            .collect();
        let constants_va = kernel.constant(3).map_or(0, |bank| image_va + bank.offset);
        let bank0 = descriptor::bank0(chip, kernel.constant0_bytes as usize, constants_va, properties);
        let (major, minor) = properties.sm_version;
        let code = Code {
            kernel,
            code_va,
            image_va,
            local_bytes,
            bank0_bytes: bank0.len(),
            sass_version: u64::from(major) << 4 | u64::from(minor),
        };
        let qmd = Descriptor::template(encodings, &code)?;

        let target = chip::of((sm / 10, sm % 10));
        let declared = kernel.max_threads.map_or(MAX_BLOCK_THREADS, product);
        let code = Self {
            name: kernel.name.clone(),
            code_va,
            code_bytes: kernel.code_bytes,
            qmd,
            bank0,
            params,
            local_bytes,
            static_shared: kernel.shared_bytes,
            registers: kernel.registers,
            barriers: kernel.barriers,
            frame_bytes: kernel.local_bytes,
            constant_bytes: kernel.constant(3).map_or(0, |bank| bank.bytes),
            sm_version: (sm / 10, sm % 10),
            target,
            limits: target.map(|chip| occupancy::Limits::of(chip, kernel.registers, kernel.barriers)),
            sm_count: properties.sm_count,
            max_threads: declared.min(threads_for_registers(&chip.sm, kernel.registers)),
            required_block: kernel.required_threads,
            cluster: kernel.cluster,
        };
        Ok(code)
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
        if let Some(cluster) = self.cluster {
            let (kernel, cluster) = (self.name.clone(), Dim3::from(cluster));
            return Err(LaunchError::Cluster { kernel, cluster }.into());
        }
        let threads = product(block.to_array());
        if threads > self.max_threads {
            let (kernel, limit) = (self.name.clone(), self.max_threads);
            return Err(LaunchError::KernelThreads { kernel, threads, limit }.into());
        }
        Ok(())
    }

    /// Checks a launch.
    pub(crate) fn shape(&self, grid: Dim3, block: Dim3, shared_bytes: u32) -> Result<Shape> {
        check_grid(grid)?;
        self.check_block(block)?;
        let (shared, sm_blocks) = self.shared_memory(product(block.to_array()), shared_bytes)?;
        let empty_sm_slots = if product(grid.to_array()) <= self.sm_count { sm_blocks } else { 0 };
        Ok(Shape { grid, block, shared, empty_sm_slots })
    }

    /// Shared memory that a block may use, in bytes: without the reserved bytes, and before it is rounded.
    pub(crate) fn exact_shared(&self, shape: &Shape) -> u32 {
        let shared = &self.qmd.chip().shared;
        let own = shared.own(self.static_shared).next_multiple_of(16);
        own + shape.shared.dynamic_bytes
    }

    /// Shared memory for a launch with blocks of `threads` threads and `dynamic_bytes` of dynamic shared memory.
    fn shared_memory(&self, threads: u32, dynamic_bytes: u32) -> Result<(SharedMemory, u32)> {
        let shared = &self.qmd.chip().shared;
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
}

/// Refuses a grid that the launch descriptor cannot hold: 1 to 2^31 - 1 blocks in x, 1 to 65,535 in y and z (QMD
/// CTA_RASTER_WIDTH, _HEIGHT, _DEPTH).
fn check_grid(grid: Dim3) -> Result<()> {
    check_extents("grid", grid, MAX_GRID)
}

/// Refuses a block that an SM cannot run: 1 to 1024 threads in x and y, 1 to 64 in z, at most 1024 in total.
fn check_block(block: Dim3) -> Result<()> {
    check_extents("block", block, MAX_BLOCK)?;
    let threads = product(block.to_array());
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

/// Number of threads or blocks. Cannot overflow for sizes within the limits of a block.
fn product([x, y, z]: [u32; 3]) -> u32 {
    x.saturating_mul(y).saturating_mul(z)
}

/// Largest number of threads per block whose registers fit an SM.
fn threads_for_registers(sm: &Sm, registers: u32) -> u32 {
    (sm.warps_for_registers(registers) * WARP).min(MAX_BLOCK_THREADS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn registers_limit_threads_as_the_hardware_allocates_them() {
        for chip in chip::ALL {
            let threads = |registers| threads_for_registers(&chip.sm, registers);
            assert_eq!(threads(16), 1024);
            assert_eq!(threads(64), 1024);
            assert_eq!(threads(65), 896, "65 round up to 72: 28 warps of 32");
            assert_eq!(threads(255), 256);
            assert_eq!(threads(0), 1024);
        }
    }

    #[test]
    fn limits_are_those_of_the_descriptor() {
        assert!(check_grid(Dim3::from(i32::MAX as u32)).is_ok());
        assert!(check_grid(Dim3::from(1 << 31)).is_err());
        assert!(check_grid(Dim3::from((1, 65_536))).is_err());
        assert!(check_grid(Dim3::from(0)).is_err());
        assert!(check_block(Dim3::from((32, 32))).is_ok());
        assert!(check_block(Dim3::from((32, 33))).is_err());
        assert!(check_block(Dim3::from((1, 1, 65))).is_err());
    }
}
