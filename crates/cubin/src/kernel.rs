//! What one kernel needs of a launch.

use alloc::string::String;
use alloc::vec::Vec;

/// One parameter of a kernel, as it stands in constant bank 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Param {
    /// Position in the parameter list, from 0.
    pub ordinal: u16,
    /// Offset from [`Kernel::param_base`], in bytes.
    pub offset: u16,
    /// Size in bytes.
    pub bytes: u16,
}

/// A constant bank of a kernel whose content is part of the image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConstantBank {
    /// Bank number: 2 literals and jump tables of the kernel, 3 `__constant__` variables of the
    /// module, 4 addresses of `__device__` variables of the module.
    pub bank: u8,
    /// Offset in the image, a multiple of [`CONSTANT_ALIGN`](crate::CONSTANT_ALIGN).
    pub offset: u64,
    /// Size in bytes, 1 to 65536. The image is mapped beyond it up to the next multiple of 256.
    pub bytes: u32,
}

/// A kernel and the limits and layout that a launch of it must respect.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Kernel {
    /// Name of the entry symbol.
    pub name: String,
    /// Registers per thread.
    pub registers: u32,
    /// Static shared memory of a CTA, in bytes. Dynamic shared memory follows it, rounded up to 16.
    ///
    /// On sm_8x the KiB that the system reserves per CTA is not part of it (a launch adds it); code for
    /// sm_90 that uses shared memory already counts it.
    pub shared_bytes: u32,
    /// Local memory of a thread that is known to be needed, in bytes: stack frames of the kernel and of
    /// all functions it is known to call.
    pub local_bytes: u32,
    /// Whether the compiler found no limit for the stack, because of recursion or calls through pointers:
    /// [`Kernel::local_bytes`] is then only a lower limit. See [`Kernel::stack_bytes`].
    pub unbounded_stack: bool,
    /// Threads of a CTA in x, y, z that `__launch_bounds__` allows; the product is the limit.
    pub max_threads: Option<[u32; 3]>,
    /// Threads of a CTA in x, y, z that the code was compiled for, and no others (`.reqntid`).
    pub required_threads: Option<[u32; 3]>,
    /// CTAs of a cluster in x, y, z that the code was compiled for, and no others (`__cluster_dims__`, sm_90):
    /// the launch has to form such clusters.
    pub cluster: Option<[u32; 3]>,
    /// Named CTA barriers used, 0 to 16.
    pub barriers: u32,
    /// Offset of the first parameter in constant bank 0, in bytes: 0x160 on sm_8x (0x1a80 with
    /// more than 4 KiB of parameters), 0x210 on sm_90. The driver's own words stand below it.
    pub param_base: u32,
    /// Size of all parameters with their padding, in bytes.
    pub param_bytes: u32,
    /// The parameters in order.
    pub params: Vec<Param>,
    /// Size of constant bank 0, driver's words and parameters together, in bytes.
    pub constant0_bytes: u32,
    /// Offset of the first instruction in the image, in bytes.
    pub code_offset: u64,
    /// Size of the kernel's code, the functions that were compiled into it included, in bytes.
    pub code_bytes: u64,
    /// Constant banks 2 and up, in ascending order.
    pub constants: Vec<ConstantBank>,
}

impl Kernel {
    /// CUDA's default limit of a thread's stack, in bytes (`cudaLimitStackSize`): a good argument for
    /// [`Kernel::stack_bytes`].
    pub const DEFAULT_STACK_LIMIT: u32 = 1024;

    /// Local memory to give each thread, in bytes: [`Kernel::local_bytes`], and where the need cannot be
    /// known (recursion, calls through pointers) at least `limit`.
    pub fn stack_bytes(&self, limit: u32) -> u32 {
        if self.unbounded_stack { self.local_bytes.max(limit) } else { self.local_bytes }
    }

    /// The constant bank with this number.
    pub fn constant(&self, bank: u8) -> Option<&ConstantBank> {
        self.constants.iter().find(|c| c.bank == bank)
    }
}
