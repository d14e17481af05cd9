//! Kernels: the requirements of a launch.

use alloc::string::String;
use alloc::vec::Vec;

/// One parameter of a kernel in constant bank 0.
///
/// ```
/// # let file = include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/globals.cubin"));
/// let cubin = cubin::Cubin::parse(file)?;
/// let parameters = &cubin.kernel("filter5")?.params;
/// assert_eq!(parameters.iter().map(|parameter| parameter.bytes).collect::<Vec<_>>(), [8, 8, 4]);
/// # Ok::<(), cubin::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Param {
    /// Position in the parameter list, from 0.
    pub ordinal: u16,
    /// Offset from [`Kernel::param_base`], in bytes.
    pub offset: u16,
    /// Size in bytes.
    pub bytes: u16,
}

/// A constant bank of a kernel that is part of the image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConstantBank {
    /// Bank number: 2 for literals and jump tables of the kernel, 3 for `__constant__` variables of the module, 4 for
    /// addresses of `__device__` variables of the module.
    pub bank: u8,
    /// Offset in the image, a multiple of [`CONSTANT_ALIGN`](crate::CONSTANT_ALIGN).
    pub offset: u64,
    /// Size in bytes, 1 to 65536. The image is mapped up to the next multiple of 256.
    pub bytes: u32,
}

/// A kernel, with the limits and the layout that a launch must observe.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Kernel {
    /// Name of the entry symbol.
    pub name: String,
    /// Registers per thread.
    pub registers: u32,
    /// Static shared memory of a CTA in bytes. Dynamic shared memory follows at the next multiple of 16.
    ///
    /// For sm_8x it does not include the KiB that the system reserves per CTA, which a launch adds. For sm_90 it
    /// does, if the kernel uses shared memory.
    pub shared_bytes: u32,
    /// Known need of local memory per thread in bytes: stack frames of the kernel and of all functions that it calls
    /// directly.
    pub local_bytes: u32,
    /// Whether the size of the stack is unknown, because of recursion or calls through pointers.
    /// [`Kernel::local_bytes`] is then a lower bound. See [`Kernel::stack_bytes`].
    pub unbounded_stack: bool,
    /// Limit of `__launch_bounds__` on the threads of a CTA, as x, y, z; the product is the limit.
    pub max_threads: Option<[u32; 3]>,
    /// Required number of threads of a CTA along x, y, z (`.reqntid`).
    pub required_threads: Option<[u32; 3]>,
    /// Required number of CTAs of a cluster along x, y, z (`__cluster_dims__`, sm_90). The launch must form such
    /// clusters.
    pub cluster: Option<[u32; 3]>,
    /// Number of CTA barriers used, 0 to 16.
    pub barriers: u32,
    /// Offset of the first parameter in constant bank 0, in bytes: 0x160 on sm_8x (0x1a80 with
    /// more than 4 KiB of parameters), 0x210 on sm_90. The words of the driver precede it.
    pub param_base: u32,
    /// Size of all parameters including padding, in bytes.
    pub param_bytes: u32,
    /// The parameters in order.
    pub params: Vec<Param>,
    /// Size of constant bank 0 in bytes: words of the driver and parameters.
    pub constant0_bytes: u32,
    /// Offset of the first instruction in the image, in bytes.
    pub code_offset: u64,
    /// Size of the kernel's code in bytes, including functions that were compiled into its section.
    pub code_bytes: u64,
    /// Constant banks from 2 on, in ascending order.
    pub constants: Vec<ConstantBank>,
    /// Texture and surface references, in the order of their places.
    pub references: Vec<Reference>,
}

/// A texture or surface reference (`texture<>`, `surface<>`, up to CUDA 11): a launch writes the number of the texture
/// or surface that is bound to it to a word of constant bank 0, behind the parameters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reference {
    /// Name in the symbol table.
    pub name: String,
    /// Offset of the word in constant bank 0, in bytes.
    pub offset: u32,
    /// Whether it is one of a surface.
    pub surface: bool,
}

impl Kernel {
    /// CUDA's default limit of the stack of a thread in bytes (`cudaLimitStackSize`), for [`Kernel::stack_bytes`].
    pub const DEFAULT_STACK_LIMIT: u32 = 1024;

    /// Local memory to allocate per thread in bytes: [`Kernel::local_bytes`], but at least `limit` if the size of the
    /// stack is unknown (recursion, calls through pointers).
    pub fn stack_bytes(&self, limit: u32) -> u32 {
        if self.unbounded_stack { self.local_bytes.max(limit) } else { self.local_bytes }
    }

    /// The constant bank with this number.
    pub fn constant(&self, bank: u8) -> Option<&ConstantBank> {
        self.constants.iter().find(|c| c.bank == bank)
    }
}
