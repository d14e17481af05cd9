//! Programs: compiled kernels in GPU memory, ready to launch.
//!
//! Loading a cubin copies its image into one allocation. For each kernel it prepares the data that does not change
//! between launches: a template of the launch descriptor (QMD) and of constant bank 0. Bank 0 begins with words that
//! NVIDIA's compiler expects from the driver (block and grid size, window addresses, stack pointer); the parameters
//! follow. See `descriptor`.

use core::fmt;
use std::sync::Arc;

use cubin::Cubin;
use gpu_hal::{MemoryUse, volatile};
use parking_lot::Mutex;

use crate::device::Device;
use crate::error::{Error, RangeError, Result};
use crate::heap::{Content, DeviceId, Uses};
use crate::limits::Dim3;
use crate::runtime::Runtime;
use crate::shared::Shared;
use code::{KernelCode, Place, ProgramCode};
use gate::Gates;

pub(crate) mod code;
mod gate;
pub(crate) mod needs;

/// The kernels of one cubin, loaded into GPU memory.
///
/// ```
/// # #[cfg(feature = "sim")] fn main() -> tegra_hcq::Result<()> {
/// # let device = tegra_hcq::Device::open(tegra_hcq::DeviceKind::Sim)?;
/// # let cubin = include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/kernels/vector_add.cubin"));
/// use tegra_hcq::Program;
///
/// let program = Program::load(&device, cubin)?;
/// assert!(program.kernel_names().any(|name| name == "vector_add"));
/// # Ok(())
/// # }
/// # #[cfg(not(feature = "sim"))] fn main() {}
/// ```
#[derive(Clone)]
pub struct Program {
    code: Arc<ProgramCode>,
}

/// One kernel of a program. Keeps the program loaded.
#[derive(Clone)]
pub struct Kernel {
    pub(crate) program: Arc<ProgramCode>,
    index: usize,
    /// Its code for launches in clusters that the program asks for.
    clustered: Option<Arc<KernelCode>>,
}

impl Program {
    /// Loads a cubin.
    ///
    /// # Errors
    ///
    /// Returns an error if the file is not a cubin, is for another architecture or uses an unsupported feature, or if
    /// there is not enough memory.
    pub fn load(device: &Device, cubin: &[u8]) -> Result<Self> {
        Self::load_on(device.shared(), cubin)
    }

    /// Loads the first of several cubins that the device can run, for example one kernel file compiled for several
    /// architectures.
    ///
    /// # Errors
    ///
    /// The error of [`Program::load`] for the last cubin if the device can run none of them.
    /// [`Error::Range`](crate::Error::Range) if no
    /// cubin is given.
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
        Self::load_on(shared, chosen.ok_or(RangeError::NoCubin)?)
    }

    /// As [`Program::load`].
    pub(crate) fn load_on(shared: &Arc<Shared>, file: &[u8]) -> Result<Self> {
        let _span = tracing::debug_span!("load", cubin_bytes = file.len()).entered();
        let mut cubin = Cubin::parse(file)?;
        let properties = shared.driver().properties();
        let sm = properties.sm_version.0 * 10 + properties.sm_version.1;
        cubin.check_arch(sm)?;
        let needs = match Runtime::is_wanted(&cubin) {
            true => Some(shared.load_runtime(sm, Runtime::wants_heap(&cubin))?.link(&mut cubin)),
            false => None,
        };

        // The size of the image includes the bytes that the instruction prefetcher reads after the code.
        // Variables that the host uses by their addresses need memory that both see there.
        let is_managed = cubin.globals().iter().any(|global| global.managed);
        let purpose = if is_managed { MemoryUse::Unified } else { MemoryUse::Device };
        let gates = shared.encodings().chip().early_start.value;
        let gates = gates.then(|| Gates::new(cubin.image_bytes(), cubin.kernels().len()));
        let bytes = gates.map_or(cubin.image_bytes(), Gates::end);
        let memory = shared.allocate(bytes, purpose, Content::Program)?;
        if let Some(observer) = shared.heap().observer() {
            observer.loaded(memory.gpu_va(), file);
        }
        let front = cubin.initialised_at(memory.gpu_va())?;
        // CAST: an image is at most 4 GiB, and mapped by the CPU.
        let zeros = bytes as usize - front.len();
        // SAFETY: the allocation has `bytes` bytes, of which `front` is the first part and gates are the last, and is
        // owned by this function.
        unsafe {
            let image = memory.map()?;
            volatile::store(image, &front);
            volatile::fill(image.add(front.len()), 0, zeros);
            if let Some(gates) = gates {
                for (index, kernel) in cubin.kernels().iter().enumerate() {
                    let at = gates.of(index);
                    // CAST: offsets in an image of at most 4 GiB.
                    let code = gate::code(kernel.code_offset as i64 - at as i64);
                    volatile::store(image.add(at as usize), bytemuck::bytes_of(&code));
                }
            }
        }

        let stack = shared.runtime_sizes().stack;
        let kernels = cubin
            .kernels()
            .iter()
            .enumerate()
            .map(|(index, kernel)| {
                let code = code_of(kernel, &front);
                let va = memory.gpu_va();
                let place = Place { image_va: va, gate_va: gates.map(|gates| va + gates.of(index)) };
                let target = (cubin.sm(), stack);
                KernelCode::prepare(kernel, code, place, target, needs, properties, shared.encodings())
            })
            .collect::<Result<Arc<[_]>>>()?;
        let globals = cubin.globals().to_vec();
        let ptx_version = cubin.virtual_sm().map(|sm| (sm / 10, sm % 10));
        let code = Arc::new(ProgramCode { memory, kernels, ptx_version, globals, variables: Mutex::new(()) });
        shared.register_program(&code);
        tracing::debug!(
            kernels = code.kernels.len(),
            image_bytes = cubin.image_bytes(),
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

    /// Names of the texture and surface references of all kernels, each once per kernel, and whether it is one of a
    /// surface: see [`Kernel::references`].
    pub fn reference_names(&self) -> impl Iterator<Item = (&str, bool)> {
        let all = self.code.kernels.iter().flat_map(|kernel| &kernel.references);
        all.map(|reference| (&*reference.name, reference.surface))
    }

    /// The kernel named `name`.
    ///
    /// # Errors
    ///
    /// Returns an error if there is no such kernel; the error lists the existing ones. [`Error::TexturesAbsent`] if the
    /// kernel uses textures or surfaces, and the GPU is not of SM 8.x or 9.x.
    pub fn kernel(&self, name: &str) -> Result<Kernel> {
        let index = self.code.kernels.iter().position(|kernel| kernel.name == name).ok_or_else(|| {
            let available = self.kernel_names().map(str::to_owned).collect();
            cubin::Error::NoSuchKernel { name: name.to_owned(), available }
        })?;
        if let Some(instruction) = self.code.kernels[index].needs.texture {
            return Err(Error::TexturesAbsent { kernel: name.to_owned(), instruction });
        }
        Ok(Kernel { program: Arc::clone(&self.code), index, clustered: None })
    }
}

/// The machine code of a kernel in the initialised part of its image.
fn code_of<'a>(kernel: &cubin::Kernel, image: &'a [u8]) -> &'a [u8] {
    // CAST: an image is at most 4 GiB.
    let (start, bytes) = (kernel.code_offset as usize, kernel.code_bytes as usize);
    image.get(start..start + bytes).unwrap_or_default()
}

impl Kernel {
    #[inline]
    pub(crate) fn code(&self) -> &KernelCode {
        self.clustered.as_deref().unwrap_or_else(|| &self.program.kernels[self.index])
    }

    /// The kernel with launches that form clusters of `blocks` blocks (`cudaLaunchAttributeClusterDimension`), which
    /// run at the same time on one GPC and see each other's shared memory. Kernels with `__cluster_dims__` form theirs
    /// without this. Each extent of the grid must be a multiple of the cluster's.
    ///
    /// # Errors
    ///
    /// [`LaunchError::Cluster`](crate::LaunchError::Cluster) if the GPU has no clusters, the cluster has none or over
    /// 16 blocks, or the kernel was compiled for another size.
    pub fn with_cluster(&self, blocks: impl Into<Dim3>) -> Result<Self> {
        let mut code = self.code().clone();
        code.form_clusters(blocks.into().to_array())?;
        Ok(Self { program: Arc::clone(&self.program), index: self.index, clustered: Some(Arc::new(code)) })
    }

    /// Whether both kernels belong to the same loaded program.
    pub(crate) fn same_program(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.program, &other.program)
    }

    #[inline]
    pub(crate) fn uses(&self) -> &Uses {
        self.program.memory.uses()
    }

    #[inline]
    pub(crate) fn device_id(&self) -> DeviceId {
        self.program.memory.heap().id()
    }

    /// Name of the kernel.
    pub fn name(&self) -> &str {
        &self.code().name
    }

    /// Whether it has a barrier of all blocks (a cooperative launch). Graphs refuse such kernels.
    pub fn has_grid_barrier(&self) -> bool {
        self.code().needs.grid_barrier.is_some()
    }

    /// Sizes of the parameters in bytes, in order.
    pub fn parameter_sizes(&self) -> impl Iterator<Item = usize> {
        self.code().params.iter().map(|param| param.size)
    }

    /// Offsets of the parameters in their block in bytes, in order: where
    /// [`Queue::launch_raw`](crate::Queue::launch_raw) reads them.
    ///
    /// ```
    /// # #[cfg(feature = "sim")] fn main() -> tegra_hcq::Result<()> {
    /// # let device = tegra_hcq::Device::open(tegra_hcq::DeviceKind::Sim)?;
    /// # let cubin = include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/kernels/vector_add.cubin"));
    /// // Three pointers and a count.
    /// let kernel = tegra_hcq::Program::load(&device, cubin)?.kernel("vector_add")?;
    /// assert_eq!(kernel.parameter_offsets().collect::<Vec<_>>(), [0, 8, 16, 24]);
    /// assert_eq!(kernel.parameter_bytes(), 28);
    /// # Ok(())
    /// # }
    /// # #[cfg(not(feature = "sim"))] fn main() {}
    /// ```
    pub fn parameter_offsets(&self) -> impl Iterator<Item = usize> {
        let code = self.code();
        code.params.iter().map(|param| param.offset - code.param_base)
    }

    /// Size of the parameter block in bytes: the end of the last parameter, 0 without parameters.
    #[inline]
    pub fn parameter_bytes(&self) -> usize {
        let code = self.code();
        code.params.last().map_or(0, |param| param.offset + param.size - code.param_base)
    }

    /// Texture and surface references (`texture<>`, `surface<>`, up to CUDA 11): the name, the offset in the block of
    /// [`Queue::launch_raw`](crate::Queue::launch_raw) of the number of a [`Texture`](crate::Texture), 32 bits wide,
    /// and whether it is one of a surface. Only raw launches set them.
    pub fn references(&self) -> impl Iterator<Item = (&str, usize, bool)> {
        let code = self.code();
        let of = |reference: &cubin::Reference| reference.offset as usize - code.param_base;
        code.references.iter().map(move |reference| (&*reference.name, of(reference), reference.surface))
    }

    /// Size in bytes of the block of [`Queue::launch_raw`](crate::Queue::launch_raw): [`Kernel::parameter_bytes`], or
    /// the end of the last reference.
    #[inline]
    pub fn block_bytes(&self) -> usize {
        let code = self.code();
        let last = code.references.last();
        last.map_or(0, |last| last.offset as usize + 4 - code.param_base).max(self.parameter_bytes())
    }

    /// Largest number of threads per block with which the kernel can run.
    pub fn max_threads(&self) -> u32 {
        self.code().max_threads
    }

    /// Largest number of threads per block that the source permits (`__launch_bounds__`); [`Kernel::max_threads`] is
    /// less if the kernel's registers do not fit so many.
    pub fn declared_threads(&self) -> u32 {
        self.code().declared_threads
    }
}

impl fmt::Debug for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Kernel").field("name", &self.name()).finish_non_exhaustive()
    }
}

impl fmt::Debug for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.code.fmt(f)
    }
}
