//! Programs: compiled kernels in GPU memory, ready to launch.
//!
//! Loading a cubin copies its image into one allocation and prepares, for each kernel, everything that
//! does not change from launch to launch: a template of the launch descriptor (QMD) and of constant
//! bank 0. Bank 0 begins with words that NVIDIA's compiler expects of the driver (block and grid size,
//! window addresses, stack pointer); the parameters follow, at 0x160 or where the cubin says.

use core::fmt;
use std::sync::{Arc, Mutex};

use ampere_cmd::qmd::{QmdV3_0, shared_memory_config_for, v3_0 as field};
use cubin::Cubin;
use nvmap::volatile;

use crate::backend::{MemoryUse, Properties};
use crate::device::Device;
use crate::error::{Error, Result};
use crate::fault::CodeLocation;
use crate::grid::{Dim3, MAX_BLOCK_THREADS};
use crate::memory::{Content, Handle};
use crate::shared::{DeviceId, Shared, Uses};

/// Bytes of a thread's local memory that lie above the initial stack pointer.
pub(crate) const STACK_RESERVE: u32 = 0x240;
/// The initial stack pointer: the top of the 16 MiB local window less [`STACK_RESERVE`].
const STACK_POINTER: u32 = (16 << 20) - STACK_RESERVE;
/// Shared memory that a CTA needs beyond its own, in bytes; code of NVIDIA's compiler relies on it.
pub(crate) const RESERVED_SHARED: u32 = 0x400;
/// Granularity of a CTA's shared memory in the launch descriptor, in bytes.
pub(crate) const SHARED_ALIGN: u32 = 128;
/// Registers of an SM.
const SM_REGISTERS: u32 = 65_536;
/// Unit of the code prefetch at a launch, in bytes, and the largest number of units.
const PREFETCH: (u64, u64) = (256, 0x1ff);

/// Byte offsets of the driver words in constant bank 0 on SM 8.x.
pub(crate) mod bank0 {
    /// Block size x, y, z (u32 each).
    pub(crate) const BLOCK: usize = 0x00;
    /// Grid size x, y, z (u32 each).
    pub(crate) const GRID: usize = 0x0c;
    /// Generic address of the shared window (u64).
    pub(crate) const SHARED_WINDOW: usize = 0x18;
    /// Generic address of the local window (u64).
    pub(crate) const LOCAL_WINDOW: usize = 0x20;
    /// Initial stack pointer (u32).
    pub(crate) const STACK_POINTER: usize = 0x28;
    /// Dynamic shared memory in bytes (u32).
    pub(crate) const DYNAMIC_SHARED: usize = 0x2c;
    /// Number of SMs (u32).
    pub(crate) const SM_COUNT: usize = 0x10c;
    /// Shared memory that belongs to the system, in bytes (u32).
    pub(crate) const RESERVED_SHARED: usize = 0x114;
    /// End of the driver words; parameters begin here or later.
    pub(crate) const END: usize = 0x160;
}

/// One kernel, prepared.
#[derive(Debug)]
pub(crate) struct KernelCode {
    pub(crate) name: String,
    pub(crate) code_va: u64,
    code_bytes: u64,
    pub(crate) qmd: QmdV3_0,
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
    /// SM version that the code is for, major and minor.
    pub(crate) sm_version: (u32, u32),
    max_threads: u32,
    required_block: Option<[u32; 3]>,
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

/// Shared memory of a launch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SharedMemory {
    /// What the launch asks for beyond the kernel's own, in bytes.
    pub(crate) dynamic_bytes: u32,
    /// All that a CTA gets, as the launch descriptor wants it, in bytes.
    pub(crate) bytes: u32,
    /// Code of the smallest configuration of the SM that holds it.
    pub(crate) config: u32,
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

    /// As [`Program::load`].
    pub(crate) fn load_on(shared: &Arc<Shared>, cubin: &[u8]) -> Result<Self> {
        let _span = tracing::debug_span!("load", cubin_bytes = cubin.len()).entered();
        let cubin = Cubin::parse(cubin)?;
        let properties = shared.backend().properties();
        cubin.check_arch(properties.sm_version.0 * 10 + properties.sm_version.1)?;

        // The image already counts the bytes that the instruction prefetcher reads behind the code.
        let memory = shared.allocate(cubin.image_bytes(), MemoryUse::Device, Content::Program)?;
        let bytes = cubin.image_at(memory.gpu_va())?;
        // SAFETY: the allocation is at least as long as the image, aligned and owned by this function.
        unsafe { volatile::store(memory.cpu(), &bytes) };

        let kernels = cubin
            .kernels()
            .iter()
            .map(|kernel| KernelCode::prepare(kernel, cubin.sm(), memory.gpu_va(), properties))
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
    fn prepare(kernel: &cubin::Kernel, sm: u32, image_va: u64, properties: &Properties) -> Result<Self> {
        let code_va = image_va + kernel.code_offset;
        let stack = kernel.stack_bytes(cubin::Kernel::DEFAULT_STACK_LIMIT);
        let local_bytes = stack.saturating_add(STACK_RESERVE).next_multiple_of(32);
        let params: Vec<ParamSlot> = kernel
            .params
            .iter()
            .map(|param| ParamSlot {
                offset: kernel.param_base as usize + usize::from(param.offset),
                size: usize::from(param.bytes),
            })
            .collect();
        let mut bank0 = vec![0; (kernel.constant0_bytes as usize).max(bank0::END).next_multiple_of(16)];
        put(&mut bank0, bank0::SHARED_WINDOW, &properties.shared_window.to_le_bytes());
        put(&mut bank0, bank0::LOCAL_WINDOW, &properties.local_window.to_le_bytes());
        put(&mut bank0, bank0::STACK_POINTER, &STACK_POINTER.to_le_bytes());
        put(&mut bank0, bank0::SM_COUNT, &properties.sm_count.to_le_bytes());
        put(&mut bank0, bank0::RESERVED_SHARED, &RESERVED_SHARED.to_le_bytes());

        let declared = kernel.max_threads.map_or(MAX_BLOCK_THREADS, product);
        let code = Self {
            name: kernel.name.clone(),
            code_va,
            code_bytes: kernel.code_bytes,
            qmd: template(kernel, code_va, local_bytes, bank0.len(), image_va, properties)?,
            bank0,
            params,
            local_bytes,
            static_shared: kernel.shared_bytes,
            registers: kernel.registers,
            barriers: kernel.barriers,
            frame_bytes: kernel.local_bytes,
            constant_bytes: kernel.constant(3).map_or(0, |bank| bank.bytes),
            sm_version: (sm / 10, sm % 10),
            max_threads: declared.min(threads_for_registers(kernel.registers)),
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

    /// Shared memory for a launch with `dynamic_bytes` of its own.
    pub(crate) fn shared_memory(&self, dynamic_bytes: u32) -> Result<SharedMemory> {
        let own = self.static_shared.next_multiple_of(16).saturating_add(dynamic_bytes);
        let bytes = own.saturating_add(RESERVED_SHARED).checked_next_multiple_of(SHARED_ALIGN);
        let config = bytes.and_then(shared_memory_config_for);
        let fitting = bytes.zip(config).map(|(bytes, config)| SharedMemory { dynamic_bytes, bytes, config });
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

/// Writes bytes at an offset.
pub(crate) fn put(bank: &mut [u8], offset: usize, bytes: &[u8]) {
    bank[offset..offset + bytes.len()].copy_from_slice(bytes);
}

/// Registers are allocated per warp in units of 256 and warps in groups of 4.
fn threads_for_registers(registers: u32) -> u32 {
    let per_warp = (registers.max(1) * 32).next_multiple_of(256);
    let warps = SM_REGISTERS / per_warp / 4 * 4;
    (warps * 32).min(MAX_BLOCK_THREADS)
}

/// The parts of the launch descriptor that are the same for every launch of a kernel.
fn template(
    kernel: &cubin::Kernel,
    code_va: u64,
    local_bytes: u32,
    bank0_bytes: usize,
    image_va: u64,
    properties: &Properties,
) -> Result<QmdV3_0> {
    let mut qmd = QmdV3_0::new();
    let (prefetch_unit, prefetch_max) = PREFETCH;
    let sass_version = u64::from(properties.sm_version.0) << 4 | u64::from(properties.sm_version.1);
    for (field, value) in [
        (field::QMD_MAJOR_VERSION, 3),
        (field::QMD_GROUP_ID, 0x3f),
        (field::SM_GLOBAL_CACHING_ENABLE, 1),
        (field::API_VISIBLE_CALL_LIMIT, 1),
        (field::SAMPLER_INDEX, 1),
        // Caches may hold what earlier launches or the CPU have since overwritten.
        (field::INVALIDATE_TEXTURE_HEADER_CACHE, 1),
        (field::INVALIDATE_TEXTURE_SAMPLER_CACHE, 1),
        (field::INVALIDATE_TEXTURE_DATA_CACHE, 1),
        (field::INVALIDATE_SHADER_DATA_CACHE, 1),
        // 1: make the grid's stores visible to the whole system when it ends.
        (field::CWD_MEMBAR_TYPE, 1),
        (field::PROGRAM_ADDRESS_LOWER, code_va & 0xffff_ffff),
        (field::PROGRAM_ADDRESS_UPPER, code_va >> 32),
        (field::PROGRAM_PREFETCH_ADDR_LOWER_SHIFTED, code_va >> 8 & 0xffff_ffff),
        (field::PROGRAM_PREFETCH_ADDR_UPPER_SHIFTED, code_va >> 40),
        (field::PROGRAM_PREFETCH_SIZE, (kernel.code_bytes / prefetch_unit).min(prefetch_max)),
        (field::SASS_VERSION, sass_version),
        (field::REGISTER_COUNT_V, u64::from(kernel.registers)),
        (field::BARRIER_COUNT, u64::from(kernel.barriers)),
        (field::SHADER_LOCAL_MEMORY_HIGH_SIZE, u64::from(local_bytes)),
        (field::CONSTANT_BUFFER_VALID.at(0)?, 1),
        (field::CONSTANT_BUFFER_INVALIDATE.at(0)?, 1),
        (field::CONSTANT_BUFFER_SIZE_SHIFTED4.at(0)?, bank0_bytes as u64 / 16),
    ] {
        qmd.set(field, value)?;
    }
    for bank in &kernel.constants {
        let (index, va) = (u32::from(bank.bank), image_va + bank.offset);
        qmd.set(field::CONSTANT_BUFFER_VALID.at(index)?, 1_u64)?;
        qmd.set(field::CONSTANT_BUFFER_ADDR_LOWER.at(index)?, va & 0xffff_ffff)?;
        qmd.set(field::CONSTANT_BUFFER_ADDR_UPPER.at(index)?, va >> 32)?;
        qmd.set(field::CONSTANT_BUFFER_SIZE_SHIFTED4.at(index)?, bank.bytes.div_ceil(16))?;
        qmd.set(field::CONSTANT_BUFFER_INVALIDATE.at(index)?, 1_u64)?;
    }
    Ok(qmd)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn registers_limit_threads_as_the_hardware_allocates_them() {
        assert_eq!(threads_for_registers(16), 1024);
        assert_eq!(threads_for_registers(64), 1024);
        assert_eq!(threads_for_registers(65), 896, "65 round up to 72: 28 warps of 32");
        assert_eq!(threads_for_registers(255), 256);
        assert_eq!(threads_for_registers(0), 1024);
    }

    #[test]
    fn the_stack_pointer_is_the_one_the_compiler_counts_on() {
        assert_eq!(STACK_POINTER, 0xff_fdc0);
    }
}
