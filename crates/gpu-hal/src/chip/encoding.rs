//! Encodings that the hardware interprets, and where each was seen working.

use core::fmt;

use ampere_cmd::qmd;

/// Hardware or model on which an encoding was seen working.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Seen {
    /// On a board with this chip, in another program. The row's source says which.
    Board,
    /// On this GPU, in this project's tests.
    Silicon(&'static str),
    /// On the software Orin only.
    Model,
    /// Nowhere: from public headers or documentation.
    Nowhere,
}

impl fmt::Display for Seen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Board => f.write_str("seen on a board, in another program"),
            Self::Silicon(name) => write!(f, "seen on {name}"),
            Self::Model => f.write_str("seen on the software Orin only"),
            Self::Nowhere => f.write_str("never tried"),
        }
    }
}

/// An encoding and where it was seen working.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fact<T> {
    /// The encoding.
    pub value: T,
    /// Where it was seen working.
    pub seen: Seen,
}

/// A class of RM or nvgpu objects, as SET_OBJECT and the kernel drivers take it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClassId {
    /// Class number.
    pub number: u32,
    /// Name in NVIDIA's headers.
    pub name: &'static str,
}

/// Classes of the engines and of the channels that feed them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Classes {
    /// Compute engine.
    pub compute: ClassId,
    /// Copy engine.
    pub copy: ClassId,
    /// Channel with a GPFIFO ring.
    pub channel: ClassId,
    /// Doorbell page; `None` if the driver maps it without an object.
    pub usermode: Option<Usermode>,
}

/// Class of the doorbell page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usermode {
    /// The class.
    pub class: ClassId,
    /// Whether the page can be mapped through BAR1 (from Hopper on).
    pub bar1: bool,
}

/// Version of the launch descriptor (QMD). A descriptor of another version than the chip's hangs the channel.
///
/// Exhaustive on purpose: code that encodes descriptors has to handle every version.
///
/// ```
/// use gpu_hal::chip;
///
/// let orin = chip::of((8, 7)).expect("a row of the table");
/// assert_eq!(orin.descriptor.value, chip::QmdVersion::V3_0);
/// assert_eq!(orin.descriptor.value.words(), 64);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum QmdVersion {
    /// Version 3.0, 256 bytes (`clc7c0qmd.h`).
    V3_0,
    /// Version 4.0, 384 bytes (`clcbc0qmd.h`).
    V4_0,
}

impl QmdVersion {
    /// Length of a descriptor in 32-bit words.
    #[must_use]
    pub const fn words(self) -> usize {
        match self {
            Self::V3_0 => qmd::QmdV3_0::WORDS,
            Self::V4_0 => qmd::QmdV4_0::WORDS,
        }
    }
}

/// How the descriptor of one launch starts the next (fields DEPENDENT_QMD0 of the descriptor).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chain {
    /// The scheduler's action on the next descriptor: the value of DEPENDENT_QMD0_ACTION.
    pub action: u64,
    /// Whether the scheduler reads the next descriptor while the grid before it runs.
    pub prefetch: bool,
    /// Barrier at the end of a grid that is followed by another; `None` to keep the barrier of a single launch.
    pub barrier: Option<ChainBarrier>,
}

/// Barrier at the end of a grid that is followed by another. The barrier of the last grid orders the stores of all
/// grids for the whole system, so this one orders them for the GPU only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChainBarrier {
    /// Value of CWD_MEMBAR_TYPE.
    pub membar: u64,
    /// Whether the barrier overlaps the tasks that it follows (CWD_MEMBAR_TASK_CHASING_ENABLE).
    pub chasing: bool,
}

/// The release of a timeline by the last descriptor of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DescriptorRelease {
    /// Whether descriptors release timelines by default; the host engine does otherwise.
    pub by_default: bool,
    /// Whether the release has its own system barrier, in addition to the one at the end of the grid.
    pub system_barrier: bool,
}

/// Byte offsets of the words that NVIDIA's compiler expects at the start of constant bank 0, where generations differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bank0 {
    /// Generic address of the shared-memory window (u64); `None` if the code does not read it from the bank.
    pub shared_window: Option<usize>,
    /// Generic address of constant bank 3 (u64).
    pub constants: usize,
    /// Generic address of the bank itself, for code that takes the address of a parameter (u64).
    pub own: OwnAddress,
    /// Address of the workspace for barriers of the whole grid, upper and lower half (u32 each): `%envreg1` and
    /// `%envreg2`. Source: `driver_abi.h` of CUDA's cooperative groups, machine code of NVRTC 12.6.
    pub grid_workspace: usize,
    /// End of the driver's words. The parameters begin here or later.
    pub end: usize,
    /// Words about clusters; `None` before clusters exist.
    pub cluster: Option<ClusterWords>,
}

impl Bank0 {
    /// Byte offset of the state of the run time of kernels (u64): `%envreg30` and `%envreg31`, which no driver of
    /// NVIDIA's is known to use. Source: machine code of NVRTC 12.6.
    #[must_use]
    pub const fn runtime(&self) -> usize {
        self.grid_workspace + (30 - 1) * 4
    }
}

/// Where constant bank 0 contains an address of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OwnAddress {
    /// Byte offset of the word (u64). Source: machine code of NVRTC 12.6 for functions that get a parameter by
    /// reference.
    pub at: usize,
    /// Byte offset of what it is the address of: the bank, or the first parameter.
    pub of: u64,
}

/// Byte offsets of the driver's words about clusters in constant bank 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClusterWords {
    /// End of the reserved shared memory (u32).
    pub reserved_shared_end: usize,
    /// 1 if the launch has clusters (u32, `%is_explicit_cluster`).
    pub explicit: usize,
    /// Blocks of a cluster along x, y, z (u32 each).
    pub shape: usize,
    /// 1 / blocks of a cluster along x, y, z (f32 each).
    pub reciprocals: usize,
    /// Clusters of the grid along x, y, z (u32 each).
    pub count: usize,
    /// Blocks of a cluster (u32).
    pub blocks: usize,
}

/// Where a value was seen working; [`Seen::Nowhere`] if the facts do not contain it.
pub(super) fn seen<T: PartialEq>(facts: &[Fact<T>], value: &T) -> Seen {
    facts.iter().find(|fact| fact.value == *value).map_or(Seen::Nowhere, |fact| fact.seen)
}
