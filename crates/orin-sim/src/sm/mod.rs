//! Streaming multiprocessors: an interpreter of SM 8.x machine code.
//!
//! The compute engine builds a [`Launch`] from a launch descriptor and runs it as a [`GridRun`]. Instructions are
//! read from GPU memory, decoded once (`sass`, `program`) and executed by warps of 32 lanes. `warp` holds the
//! registers and divergent paths of a warp; `cta` the warps, shared memory and barriers of a block; `flight` the
//! blocks in flight and the scheme that makes results independent of the number of host threads (`pool`); `grid` the
//! grid. `exec` contains the instructions, and `numeric` their arithmetic on one lane.

mod arrival;
mod constants;
mod copies;
mod coverage;
mod cta;

mod examined;
mod exec;
mod fetched;
mod flight;
mod grid;
pub(crate) mod numeric;
mod pool;
mod port;
mod program;
mod space;
mod texture;
mod tier;
mod warp;

use std::sync::Arc;

use parking_lot::Mutex;

pub(crate) use arrival::Arrival;
pub(crate) use copies::InFlight;
pub use coverage::Coverage;
pub use grid::GridRun;
pub(crate) use grid::ctas_per_sm;
pub(crate) use space::Space;
pub use texture::{Table, Tables, TextureRefusal};
pub use tier::Tier;
pub(crate) use warp::{Row, Unmet, lanes};

use crate::check::Checker;
use crate::kernel_profile::Profiler;
use crate::mmu::MmuFault;
use pool::Pool;
use program::CodeCache;
use warp::Warp;

/// Options of the SM model. None of them is visible to a correct program.
#[derive(Clone, Debug, Default)]
pub struct SmOptions {
    /// Recorder of executed instructions; no overhead if `None`.
    pub coverage: Option<Coverage>,
    /// Checks of kernels: see [`crate::check`]. No overhead if `None`.
    pub check: Option<Checker>,
    /// Profiles of kernels: see [`crate::kernel_profile`]. No overhead if `None`.
    pub profile: Option<Profiler>,
    /// Host threads that run a grid, including the stepping one; `None` for one per host processor, at most 8.
    /// Results do not depend on it.
    pub threads: Option<usize>,
    /// Seed of a random order of warps. Without a seed, the warps of a CTA take turns of equal length in the order of
    /// their numbers. With a seed, order and lengths are random, different for each CTA and equal for each run with
    /// that seed. A missing barrier then shows as results that depend on the seed. Half of the copies by `cp.async` are
    /// then complete when they begin; without a seed all of them are when their threads have waited.
    pub seed: Option<u64>,
    /// How instructions are executed. Results do not depend on it.
    pub tier: Tier,
}

/// The SMs of one GPU, shared by all of its channels.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # use std::sync::Arc;
/// # use orin_sim::memory::Memory;
/// # use orin_sim::mmu::{AddressSpace, MappedRange};
/// # use orin_sim::sm::Launch;
/// # let space = AddressSpace::new();
/// # let memory = Arc::new(Memory::new("code", 0x1000)?);
/// # for (at, word) in [0x794d_u32, 0, 0x0380_0000, 0x000f_ea00].into_iter().enumerate() {
/// #     memory.store(4 * at, word);
/// # }
/// # space.map(MappedRange { va: 0x20_0000, len: 0x1000, memory, offset: 0, writable: false, cached: false });
/// # let launch = Launch {
/// #     program_va: 0x20_0000,
/// #     grid: [4, 1, 1],
/// #     block: [32, 1, 1],
/// #     registers: 16,
/// #     shared_bytes: 0,
/// #     shared_limit: 164 << 10,
/// #     local_bytes: 0,
/// #     barriers: 0,
/// #     constants: [None; 8],
/// #     shared_window: 0xfe << 32,
/// #     local_window: 0xff << 32,
/// #     sm_count: 16,
/// #     textures: Default::default(),
/// # };
/// use orin_sim::sm::{GridRun, SmOptions, Sms};
///
/// let sms = Sms::new(16, SmOptions { threads: Some(1), ..SmOptions::default() });
/// for _ in 0..2 {
///     GridRun::on(&sms, launch.clone(), space.view())?.step(u64::MAX)?;
/// }
/// // The second launch reuses the decoded code.
/// assert_eq!(sms.decoded_pages(), 1);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Sms {
    count: u32,
    options: SmOptions,
    code: CodeCache,
    pool: Pool,
    /// Warps of ended grids, for reuse: their registers take 32 KiB each, which the system zeroes.
    warps: Mutex<Vec<Warp>>,
}

/// Most warps that are kept for reuse: those that the SMs of an Orin hold, 26 MiB.
const KEPT_WARPS: usize = 768;

impl Sms {
    /// Creates `count` SMs.
    pub fn new(count: u32, options: SmOptions) -> Arc<Self> {
        let pool = Pool::new(options.threads);
        Arc::new(Self { count, options, code: CodeCache::default(), pool, warps: Mutex::default() })
    }

    /// Returns an idle warp.
    fn take_warp(&self) -> Warp {
        self.warps.lock().pop().unwrap_or_else(Warp::new)
    }

    /// Keeps warps for reuse.
    fn keep_warps(&self, warps: impl Iterator<Item = Warp>) {
        let mut kept = self.warps.lock();
        let free = KEPT_WARPS.saturating_sub(kept.len());
        kept.extend(warps.take(free));
    }

    /// The checks of kernels, if enabled.
    pub(crate) fn checker(&self) -> Option<&Checker> {
        self.options.check.as_ref()
    }

    /// Returns the number of SMs.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// Returns the bytes of machine code that this process has generated for the tier `Compiled`, and that are still in
    /// use: at most 64 MiB. Beyond that, instructions are executed one by one.
    pub fn generated_bytes() -> usize {
        exec::steps::generated_bytes()
    }

    /// Returns the number of code pages decoded so far. A launch of unchanged code that has been decoded before adds
    /// none.
    pub fn decoded_pages(&self) -> u64 {
        self.code.decoded()
    }
}

/// A constant bank of a launch descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConstantBank {
    /// GPU address of its first byte.
    pub va: u64,
    /// Length in bytes.
    pub bytes: u32,
}

/// A launch: the relevant fields of a launch descriptor and of the compute class state.
///
/// ```
/// use orin_sim::sm::Launch;
///
/// let launch = Launch {
///     program_va: 0x1_0000_0000,
///     grid: [4, 1, 1],
///     block: [32, 1, 1],
///     registers: 16,
///     shared_bytes: 0,
///     shared_limit: 164 << 10,
///     local_bytes: 0,
///     barriers: 0,
///     constants: [None; 8],
///     shared_window: 0xfe << 32,
///     local_window: 0xff << 32,
///     sm_count: 16,
///     textures: Default::default(),
/// };
/// assert_eq!(launch.grid.iter().product::<u32>(), 4);
/// ```
#[derive(Clone, Debug)]
pub struct Launch {
    /// GPU address of the first instruction.
    pub program_va: u64,
    /// CTAs in x, y, z.
    pub grid: [u32; 3],
    /// Threads of a CTA in x, y, z.
    pub block: [u32; 3],
    /// Registers per thread.
    pub registers: u32,
    /// Shared memory of a CTA, in bytes.
    pub shared_bytes: u32,
    /// Shared memory of an SM in the largest configuration that the launch permits, in bytes.
    pub shared_limit: u32,
    /// Local memory of a thread, low and high part together, in bytes.
    pub local_bytes: u32,
    /// Named barriers of a CTA.
    pub barriers: u32,
    /// Constant banks 0 to 7; `None` if not valid.
    pub constants: [Option<ConstantBank>; 8],
    /// Generic address of the shared-memory window (16 MiB).
    pub shared_window: u64,
    /// Generic address of the local-memory window (16 MiB).
    pub local_window: u64,
    /// Number of SMs of the chip.
    pub sm_count: u32,
    /// Tables of texture headers and samplers.
    pub textures: Tables,
}

/// Cause of a fault that ended a grid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SmFaultCause {
    /// The MMU refused an access.
    #[error("{0}")]
    Mmu(MmuFault),
    /// An address is not a multiple of the access size.
    #[error("misaligned address {va:#x} for an access of {bytes} bytes")]
    MisalignedAddress {
        /// The generic or window-relative address.
        va: u64,
        /// Size of the access in bytes.
        bytes: u32,
    },
    /// An access outside the resources of the launch.
    #[error("{space} access of {bytes} bytes at {offset:#x} is out of range")]
    OutOfRange {
        /// `"shared"`, `"local"` or `"constant"` memory; a `"register"` or `"barrier"` that the launch has not
        /// allocated; or a `"block"` whose number of threads does not fit an SM.
        space: &'static str,
        /// Offset in the space in bytes, or number of the register, barrier or threads.
        offset: u64,
        /// Size of the access in bytes.
        bytes: u32,
    },
    /// The encoding is not an instruction of compute capability 8.x.
    #[error("illegal instruction {word:#034x}")]
    IllegalInstruction {
        /// The 128-bit instruction.
        word: u128,
    },
    /// An instruction, or a variant of one, that the interpreter does not model.
    #[error("instruction {mnemonic} ({word:#034x}) is not modelled")]
    Unmodelled {
        /// Its mnemonic.
        mnemonic: &'static str,
        /// The 128-bit instruction.
        word: u128,
    },
    /// A register pair or group that does not begin at a multiple of its size.
    #[error("misaligned register in instruction {word:#034x}")]
    MisalignedRegister {
        /// The 128-bit instruction.
        word: u128,
    },
    /// A generic address in a space that the instruction does not support.
    #[error("{mnemonic} does not support {space} memory, which contains {va:#x}")]
    InvalidAddressSpace {
        /// The instruction.
        mnemonic: &'static str,
        /// `"shared"` or `"local"`.
        space: &'static str,
        /// The generic address.
        va: u64,
    },
    /// A texture or surface that the kernel names cannot be used so.
    #[error("{mnemonic} of the texture with handle {handle:#x}: {reason}")]
    Texture {
        /// The instruction.
        mnemonic: &'static str,
        /// The handle: numbers of header and sampler.
        handle: u32,
        /// Why not.
        reason: TextureRefusal,
    },
    /// The program counter is not a multiple of 16.
    #[error("misaligned program counter")]
    MisalignedPc,
    /// The program counter left the address space.
    #[error("program counter beyond the address space")]
    PcOverflow,
    /// More counted returns (RET without NODEC) than counted calls (CALL without NOINC), or a call depth that exceeds
    /// the counter.
    #[error("call depth below zero or too large")]
    StackError,
    /// The kernel executed a trap.
    #[error("trap instruction")]
    Trap,
    /// Every warp of the grid waits, and none can continue.
    #[error("deadlock: {0}")]
    Deadlock(&'static str),
}

impl SmFaultCause {
    /// Returns the value that the SM records in the low 16 bits of `hww_warp_esr` (`hw_gr_ga10b.h`); 0 if the cause
    /// is not a warp error.
    pub fn warp_error(&self) -> u32 {
        match self {
            Self::StackError => 0x2,
            Self::MisalignedPc => 0x5,
            Self::PcOverflow => 0x6,
            Self::MisalignedRegister { .. } => 0x8,
            Self::IllegalInstruction { .. } | Self::Unmodelled { .. } => 0x9,
            // A barrier that the CTA does not have is an invalid parameter of a valid instruction.
            Self::OutOfRange { space: "barrier", .. } => 0xb,
            Self::OutOfRange { space: "register", .. } => 0xd,
            Self::OutOfRange { space: "constant", .. } => 0x12,
            Self::OutOfRange { .. } => 0xe,
            Self::MisalignedAddress { .. } => 0xf,
            Self::InvalidAddressSpace { .. } => 0x10,
            Self::Mmu(_) => 0x20,
            // As an address outside of its space; the parameter is wrong otherwise.
            Self::Texture { reason: TextureRefusal::Outside, .. } => 0xe,
            Self::Texture { .. } => 0xb,
            Self::Trap | Self::Deadlock(_) => 0,
        }
    }
}

/// A fault and its location.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # use std::sync::Arc;
/// # use orin_sim::memory::Memory;
/// # use orin_sim::mmu::{AddressSpace, MappedRange};
/// # use orin_sim::sm::Launch;
/// # let space = AddressSpace::new();
/// # let memory = Arc::new(Memory::new("code", 0x1000)?);
/// # for (at, word) in [0x794d_u32, 0, 0x0380_0000, 0x000f_ea00].into_iter().enumerate() {
/// #     memory.store(4 * at, word);
/// # }
/// # space.map(MappedRange { va: 0x20_0000, len: 0x1000, memory, offset: 0, writable: false, cached: false });
/// # let launch = Launch {
/// #     program_va: 0x20_0000,
/// #     grid: [4, 1, 1],
/// #     block: [32, 1, 1],
/// #     registers: 16,
/// #     shared_bytes: 0,
/// #     shared_limit: 164 << 10,
/// #     local_bytes: 0,
/// #     barriers: 0,
/// #     constants: [None; 8],
/// #     shared_window: 0xfe << 32,
/// #     local_window: 0xff << 32,
/// #     sm_count: 16,
/// #     textures: Default::default(),
/// # };
/// use orin_sim::sm::{GridRun, SmFaultCause};
///
/// let wrong = Launch { program_va: 0x20_0008, ..launch };
/// let fault = GridRun::new(wrong, space.view()).unwrap_err();
/// assert_eq!((fault.pc, fault.cause), (0x20_0008, SmFaultCause::MisalignedPc));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{cause} at pc {pc:#x}, block {block:?}, thread {thread:?}")]
pub struct SmFault {
    /// GPU address of the instruction.
    pub pc: u64,
    /// CTA index in x, y, z.
    pub block: [u32; 3],
    /// Index in the CTA of the first faulting thread in x, y, z.
    pub thread: [u32; 3],
    /// Cause of the fault.
    pub cause: SmFaultCause,
}

/// Instructions executed by a grid so far.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # use std::sync::Arc;
/// # use orin_sim::memory::Memory;
/// # use orin_sim::mmu::{AddressSpace, MappedRange};
/// # use orin_sim::sm::Launch;
/// # let space = AddressSpace::new();
/// # let memory = Arc::new(Memory::new("code", 0x1000)?);
/// # for (at, word) in [0x794d_u32, 0, 0x0380_0000, 0x000f_ea00].into_iter().enumerate() {
/// #     memory.store(4 * at, word);
/// # }
/// # space.map(MappedRange { va: 0x20_0000, len: 0x1000, memory, offset: 0, writable: false, cached: false });
/// # let launch = Launch {
/// #     program_va: 0x20_0000,
/// #     grid: [4, 1, 1],
/// #     block: [32, 1, 1],
/// #     registers: 16,
/// #     shared_bytes: 0,
/// #     shared_limit: 164 << 10,
/// #     local_bytes: 0,
/// #     barriers: 0,
/// #     constants: [None; 8],
/// #     shared_window: 0xfe << 32,
/// #     local_window: 0xff << 32,
/// #     sm_count: 16,
/// #     textures: Default::default(),
/// # };
/// use orin_sim::sm::GridRun;
///
/// let mut grid = GridRun::new(launch, space.view())?;
/// grid.step(u64::MAX)?;
/// let stats = grid.stats();
/// assert_eq!(stats.lane_instructions, 32 * stats.warp_instructions);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GridStats {
    /// Warp instructions executed.
    pub warp_instructions: u64,
    /// Instructions multiplied by their active lanes.
    pub lane_instructions: u64,
}

/// Result of [`GridRun::step`].
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # use std::sync::Arc;
/// # use orin_sim::memory::Memory;
/// # use orin_sim::mmu::{AddressSpace, MappedRange};
/// # use orin_sim::sm::Launch;
/// # let space = AddressSpace::new();
/// # let memory = Arc::new(Memory::new("code", 0x1000)?);
/// # for (at, word) in [0x794d_u32, 0, 0x0380_0000, 0x000f_ea00].into_iter().enumerate() {
/// #     memory.store(4 * at, word);
/// # }
/// # space.map(MappedRange { va: 0x20_0000, len: 0x1000, memory, offset: 0, writable: false, cached: false });
/// # let launch = Launch {
/// #     program_va: 0x20_0000,
/// #     grid: [4, 1, 1],
/// #     block: [32, 1, 1],
/// #     registers: 16,
/// #     shared_bytes: 0,
/// #     shared_limit: 164 << 10,
/// #     local_bytes: 0,
/// #     barriers: 0,
/// #     constants: [None; 8],
/// #     shared_window: 0xfe << 32,
/// #     local_window: 0xff << 32,
/// #     sm_count: 16,
/// #     textures: Default::default(),
/// # };
/// use orin_sim::sm::{GridRun, Step};
///
/// let mut grid = GridRun::new(launch, space.view())?;
/// // Without fuel nothing is executed.
/// assert_eq!(grid.step(0)?, Step::Running);
/// assert!(matches!(grid.step(u64::MAX)?, Step::Finished(_)));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The grid is still running.
    Running,
    /// All CTAs have ended.
    Finished(GridStats),
}
