//! Streaming multiprocessors: an interpreter of SM 8.x machine code.
//!
//! The compute engine makes a [`Launch`] out of a launch descriptor and runs it as a [`GridRun`].
//! Instructions are read from GPU memory, decoded once ([`decode`], `program`) and executed by warps
//! of 32 lanes; `warp` holds the registers and the divergent paths of a warp, `cta` the warps,
//! shared memory and barriers of a block, `flight` the blocks in flight and what makes their results
//! independent of the number of threads (`pool`) that run them, `grid` the grid. `exec` has the instructions,
//! and [`numeric`] their arithmetic on one lane.

mod constants;
mod coverage;
mod cta;

mod exec;
mod fetched;
mod flight;
mod grid;
pub mod numeric;
mod pool;
mod port;
mod program;
mod warp;

use std::sync::Arc;

pub use coverage::Coverage;
pub use grid::GridRun;
pub(crate) use grid::ctas_per_sm;

use crate::mmu::MmuFault;
use pool::Pool;
use program::CodeCache;

/// How the SMs are modelled; nothing that a program could see.
#[derive(Clone, Debug, Default)]
pub struct SmOptions {
    /// Records which instructions are executed. Costs nothing when absent.
    pub coverage: Option<Coverage>,
    /// Host threads that work on a grid, the one that steps it included; `None` for as many as the host
    /// has processors, at most 8. Results do not depend on it.
    pub threads: Option<usize>,
    /// Without a seed the warps of a CTA take turns of the same length in the order of their numbers.
    /// With one, order and lengths are drawn at random, differently for each CTA and the same for each
    /// run with that seed: a barrier that is missing shows as results that depend on the seed.
    pub seed: Option<u64>,
}

/// The SMs of one GPU, shared by all of its channels.
#[derive(Debug)]
pub struct Sms {
    count: u32,
    options: SmOptions,
    code: CodeCache,
    pool: Pool,
}

impl Sms {
    /// `count` SMs.
    pub fn new(count: u32, options: SmOptions) -> Arc<Self> {
        let pool = Pool::new(options.threads);
        Arc::new(Self { count, options, code: CodeCache::default(), pool })
    }

    /// How many there are.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// Pages of code that have been decoded so far. A launch whose code has been decoded before, and has
    /// not changed since, adds none.
    pub fn decoded_pages(&self) -> u64 {
        self.code.decoded()
    }
}

/// A constant bank as a launch descriptor gives it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConstantBank {
    /// GPU address of its first byte.
    pub va: u64,
    /// Length in bytes.
    pub bytes: u32,
}

/// What the compute engine asks the SMs to run: the relevant fields of a launch descriptor and of
/// the compute class state.
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
    /// Shared memory of an SM in the largest configuration that the launch allows, in bytes.
    pub shared_limit: u32,
    /// Local memory of a thread, low and high part together, in bytes.
    pub local_bytes: u32,
    /// Named barriers of a CTA.
    pub barriers: u32,
    /// Constant banks 0 to 7; `None` where not valid.
    pub constants: [Option<ConstantBank>; 8],
    /// Generic address of the shared-memory window (16 MiB).
    pub shared_window: u64,
    /// Generic address of the local-memory window (16 MiB).
    pub local_window: u64,
    /// Number of SMs of the chip.
    pub sm_count: u32,
}

/// Why a grid ended early.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SmFaultCause {
    /// An access was refused by the MMU.
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
    /// An access outside of what the launch owns.
    #[error("{space} access of {bytes} bytes at {offset:#x} is out of range")]
    OutOfRange {
        /// `"shared"`, `"local"` or `"constant"` memory, a `"register"` or `"barrier"` that the launch
        /// has not allocated, or a `"block"` with a number of threads that an SM cannot hold.
        space: &'static str,
        /// Offset in the space in bytes; number of the register, of the barrier or of threads.
        offset: u64,
        /// Size of the access in bytes.
        bytes: u32,
    },
    /// The encoding is not an instruction of SM 8.7.
    #[error("illegal instruction {word:#034x}")]
    IllegalInstruction {
        /// The 128-bit instruction.
        word: u128,
    },
    /// A real instruction that the interpreter does not model.
    #[error("instruction {mnemonic} ({word:#034x}) is not modelled")]
    Unmodelled {
        /// Its mnemonic, or `"unknown opcode"`.
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
    /// A generic address that leads to a space in which the instruction cannot work.
    #[error("{mnemonic} cannot work in {space} memory, where {va:#x} lies")]
    InvalidAddressSpace {
        /// The instruction.
        mnemonic: &'static str,
        /// `"shared"` or `"local"`.
        space: &'static str,
        /// The generic address.
        va: u64,
    },
    /// The program counter is no multiple of 16.
    #[error("misaligned program counter")]
    MisalignedPc,
    /// The program counter left the address space.
    #[error("program counter beyond the address space")]
    PcOverflow,
    /// More counted returns (RET without NODEC) than counted calls (CALL without NOINC), or more calls than
    /// the count has room for.
    #[error("call depth below zero or too large")]
    StackError,
    /// The kernel executed a trap.
    #[error("trap instruction")]
    Trap,
    /// Every warp of the grid waits for another and none can move.
    #[error("deadlock: {0}")]
    Deadlock(&'static str),
}

impl SmFaultCause {
    /// What the SM records in the low 16 bits of `hww_warp_esr` (`hw_gr_ga10b.h`); 0 for what is no error of a
    /// warp.
    pub fn warp_error(&self) -> u32 {
        match self {
            Self::StackError => 0x2,
            Self::MisalignedPc => 0x5,
            Self::PcOverflow => 0x6,
            Self::MisalignedRegister { .. } => 0x8,
            Self::IllegalInstruction { .. } | Self::Unmodelled { .. } => 0x9,
            // A barrier that the CTA does not have is a bad parameter of a good instruction.
            Self::OutOfRange { space: "barrier", .. } => 0xb,
            Self::OutOfRange { space: "register", .. } => 0xd,
            Self::OutOfRange { space: "constant", .. } => 0x12,
            Self::OutOfRange { .. } => 0xe,
            Self::MisalignedAddress { .. } => 0xf,
            Self::InvalidAddressSpace { .. } => 0x10,
            Self::Mmu(_) => 0x20,
            Self::Trap | Self::Deadlock(_) => 0,
        }
    }
}

/// A fault with the place where it happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{cause} at pc {pc:#x}, block {block:?}, thread {thread:?}")]
pub struct SmFault {
    /// GPU address of the instruction.
    pub pc: u64,
    /// CTA index in x, y, z.
    pub block: [u32; 3],
    /// Index in the CTA of the first faulting thread in x, y, z.
    pub thread: [u32; 3],
    /// What went wrong.
    pub cause: SmFaultCause,
}

/// What a grid has done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GridStats {
    /// Warp instructions executed.
    pub warp_instructions: u64,
    /// Instructions counted per active lane.
    pub lane_instructions: u64,
}

/// Result of [`GridRun::step`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// More to do.
    Running,
    /// All CTAs have ended.
    Finished(GridStats),
}
