//! Programs: compiled kernels in GPU memory, ready to launch.
//!
//! Loading a cubin copies its image into one allocation and prepares, for each kernel, everything that
//! does not change from launch to launch: a template of the launch descriptor (QMD) and of constant
//! bank 0. Bank 0 begins with words that NVIDIA's compiler expects of the driver (block and grid size,
//! window addresses, stack pointer), then come the parameters; see `descriptor.rs`.

use core::fmt;
use std::sync::{Arc, Mutex};

use cubin::Cubin;
use gpu_hal::chip::{self, Chip, Sm, WARP};
use gpu_hal::volatile;

use crate::descriptor::{self, Code, Descriptor, Shape, SharedMemory};
use crate::device::Device;
use crate::error::{Error, Result};
use crate::fault::CodeLocation;
use crate::grid::{Dim3, MAX_BLOCK_THREADS};
use crate::memory::{Content, Handle};
use crate::occupancy;
use crate::shared::{DeviceId, Shared, Uses};
use gpu_hal::{MemoryUse, Properties};

/// One kernel, prepared.
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
    /// Stack frames that are known to be needed, in bytes.
    pub(crate) frame_bytes: u32,
    /// Constant bank 3: `__constant__` variables, in bytes.
    pub(crate) constant_bytes: u32,
    /// SM version that the code was compiled for, major and minor.
    pub(crate) sm_version: (u32, u32),
    /// Row of the chip that the code was compiled for; `None` if the chip table does not contain it.
    pub(crate) target: Option<&'static Chip>,
    /// SMs of the GPU.
    sm_count: u32,
    max_threads: u32,
    required_block: Option<[u32; 3]>,
    /// Blocks of the clusters that the launch would have to form.
    cluster: Option<[u32; 3]>,
}

/// Where a parameter goes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ParamSlot {
    /// Offset in constant bank 0, in bytes.
    pub(crate) offset: usize,
    /// Size in bytes.
    pub(crate) size: usize,
}

/// A loaded image. Lives as long as a program, a kernel or a recorded graph refers to it; its memory, until
/// pending launches have ended.
#[derive(Debug)]
pub(crate) struct ProgramCode {
    pub(crate) memory: Handle,
    kernels: Vec<KernelCode>,
    /// The variables, sorted by name.
    pub(crate) globals: Vec<cubin::Global>,
    /// Held while the CPU reads or writes a variable.
    pub(crate) variables: Mutex<()>,
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

/// The kernels of one cubin, loaded into GPU memory.
#[derive(Clone, Debug)]
pub struct Program {
    code: Arc<ProgramCode>,
}

/// One kernel of a program. Keeps the program loaded.
#[derive(Clone)]
pub struct Kernel {
    pub(crate) program: Arc<ProgramCode>,
    index: usize,
}

impl Program {
    /// Loads a cubin.
    ///
    /// # Errors
    ///
    /// When it is not a cubin, is for another architecture, uses what cannot be loaded, or when there
    /// is no memory.
    pub fn load(device: &Device, cubin: &[u8]) -> Result<Self> {
        Self::load_on(device.shared(), cubin)
    }

    /// Loads the first of several cubins that runs on the device: one kernel file, compiled for several
    /// architectures.
    ///
    /// # Errors
    ///
    /// As [`Program::load`] with the last of them, when none runs there; [`Error::Range`] without cubins.
    pub fn load_fitting(device: &Device, cubins: &[&[u8]]) -> Result<Self> {
        Self::load_fitting_on(device.shared(), cubins)
    }

    /// As [`Program::load_fitting`].
    pub(crate) fn load_fitting_on(shared: &Arc<Shared>, cubins: &[&[u8]]) -> Result<Self> {
        let (major, minor) = shared.driver().properties().sm_version;
        let fits = |cubin: &&&[u8]| {
            Cubin::parse(cubin).is_ok_and(|cubin| cubin.check_arch(10 * major + minor).is_ok())
        };
        let chosen = cubins.iter().find(fits).or(cubins.last());
        Self::load_on(shared, chosen.ok_or_else(|| Error::Range("no cubin was given".to_owned()))?)
    }

    /// As [`Program::load`].
    pub(crate) fn load_on(shared: &Arc<Shared>, cubin: &[u8]) -> Result<Self> {
        let _span = tracing::debug_span!("load", cubin_bytes = cubin.len()).entered();
        let cubin = Cubin::parse(cubin)?;
        let properties = shared.driver().properties();
        cubin.check_arch(properties.sm_version.0 * 10 + properties.sm_version.1)?;

        // The image already counts the bytes that the instruction prefetcher reads behind the code.
        let memory = shared.allocate(cubin.image_bytes(), MemoryUse::Device, Content::Program)?;
        let bytes = cubin.image_at(memory.gpu_va())?;
        // SAFETY: the allocation is at least as long as the image, aligned and owned by this function.
        unsafe { volatile::store(memory.cpu(), &bytes) };

        let kernels = cubin
            .kernels()
            .iter()
            .map(|kernel| KernelCode::prepare(kernel, cubin.sm(), memory.gpu_va(), properties, shared.chip()))
            .collect::<Result<Vec<_>>>()?;
        let globals = cubin.globals().to_vec();
        let code = Arc::new(ProgramCode { memory, kernels, globals, variables: Mutex::new(()) });
        shared.register_program(&code);
        tracing::debug!(
            kernels = code.kernels.len(),
            image_bytes = bytes.len(),
            va = format_args!("{:#x}", code.memory.gpu_va()),
            "program loaded"
        );
        Ok(Self { code })
    }

    pub(crate) fn from_code(code: Arc<ProgramCode>) -> Self {
        Self { code }
    }

    pub(crate) fn loaded(&self) -> &Arc<ProgramCode> {
        &self.code
    }

    /// Names of the kernels, in the order of the file.
    pub fn kernel_names(&self) -> impl Iterator<Item = &str> {
        self.code.kernels.iter().map(|kernel| kernel.name.as_str())
    }

    /// The kernel called `name`.
    ///
    /// # Errors
    ///
    /// When there is none; the error lists those there are.
    pub fn kernel(&self, name: &str) -> Result<Kernel> {
        let index = self.code.kernels.iter().position(|kernel| kernel.name == name).ok_or_else(|| {
            let available = self.kernel_names().map(str::to_owned).collect();
            cubin::Error::NoSuchKernel { name: name.to_owned(), available }
        })?;
        Ok(Kernel { program: Arc::clone(&self.code), index })
    }
}

impl Kernel {
    #[inline]
    pub(crate) fn code(&self) -> &KernelCode {
        &self.program.kernels[self.index]
    }

    /// Whether both kernels belong to one loaded program.
    pub(crate) fn same_program(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.program, &other.program)
    }

    #[inline]
    pub(crate) fn uses(&self) -> &Uses {
        self.program.memory.uses()
    }

    #[inline]
    pub(crate) fn device_id(&self) -> DeviceId {
        self.program.memory.device().id()
    }

    /// Name of the kernel.
    pub fn name(&self) -> &str {
        &self.code().name
    }

    /// Sizes of the parameters in bytes, in order.
    pub fn parameter_sizes(&self) -> impl Iterator<Item = usize> {
        self.code().params.iter().map(|param| param.size)
    }

    /// Largest number of threads of a block with which the kernel can run.
    pub fn max_threads(&self) -> u32 {
        self.code().max_threads
    }
}

impl fmt::Debug for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Kernel").field("name", &self.name()).finish_non_exhaustive()
    }
}

impl KernelCode {
    fn prepare(
        kernel: &cubin::Kernel,
        sm: u32,
        image_va: u64,
        properties: &Properties,
        chip: &'static Chip,
    ) -> Result<Self> {
        let code_va = image_va + kernel.code_offset;
        let stack = kernel.stack_bytes(cubin::Kernel::DEFAULT_STACK_LIMIT);
        let local_bytes = stack.saturating_add(chip.local.stack_reserve).next_multiple_of(32);
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
        let qmd = Descriptor::template(chip, &code)?;

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
            target: chip::of((sm / 10, sm % 10)),
            sm_count: properties.sm_count,
            max_threads: declared.min(threads_for_registers(&chip.sm, kernel.registers)),
            required_block: kernel.required_threads,
            cluster: kernel.cluster,
        };
        Ok(code)
    }

    /// Refuses a block that the kernel was not compiled for.
    pub(crate) fn check_block(&self, block: Dim3) -> Result<()> {
        block.check_block()?;
        if let Some(required) = self.required_block
            && required != block.to_array()
        {
            let required = Dim3::from(required);
            return Err(Error::Launch(format!(
                "kernel {}: was compiled for blocks of {required}, not {block}",
                self.name
            )));
        }
        if let Some(cluster) = self.cluster {
            return Err(Error::Launch(format!(
                "kernel {}: was compiled for clusters of {} blocks, which launches do not form; compile it \
                 without __cluster_dims__",
                self.name,
                Dim3::from(cluster)
            )));
        }
        let threads = product(block.to_array());
        if threads > self.max_threads {
            return Err(Error::Launch(format!(
                "kernel {}: a block of {threads} threads is too large, at most {} fit (registers, launch \
                 bounds)",
                self.name, self.max_threads
            )));
        }
        Ok(())
    }

    /// Checks a launch.
    pub(crate) fn shape(&self, grid: Dim3, block: Dim3, shared_bytes: u32) -> Result<Shape> {
        grid.check_grid()?;
        self.check_block(block)?;
        let (shared, sm_blocks) = self.shared_memory(product(block.to_array()), shared_bytes)?;
        let empty_sm_slots = if product(grid.to_array()) <= self.sm_count { sm_blocks } else { 0 };
        Ok(Shape { grid, block, shared, empty_sm_slots })
    }

    /// Shared memory for a launch of blocks of `threads` threads with `dynamic_bytes` of its own.
    fn shared_memory(&self, threads: u32, dynamic_bytes: u32) -> Result<(SharedMemory, u32)> {
        let shared = &self.qmd.chip().shared;
        let own = shared.own(self.static_shared).next_multiple_of(16).saturating_add(dynamic_bytes);
        let bytes = shared.descriptor_bytes(own);
        let config = bytes.and_then(|bytes| shared.config_for(bytes));
        let fitting = bytes.zip(config).map(|(bytes, config)| {
            let room = occupancy::room(self, threads, bytes);
            let wanted = room.map_or(bytes, |room| room.shared_bytes);
            let target = shared.config_for(wanted).map_or(config, |target| target.max(config));
            let sm_blocks = room.map_or(0, |room| room.blocks);
            (SharedMemory { dynamic_bytes, bytes, config, target }, sm_blocks)
        });
        fitting.ok_or_else(|| {
            Error::Launch(format!(
                "kernel {}: {} bytes of static and {dynamic_bytes} bytes of dynamic shared memory do not fit",
                self.name, self.static_shared
            ))
        })
    }
}

/// Number of threads or blocks. Cannot overflow for sizes that passed the limits of a block.
fn product([x, y, z]: [u32; 3]) -> u32 {
    x.saturating_mul(y).saturating_mul(z)
}

/// Largest number of threads of a block whose registers fit an SM.
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
}
