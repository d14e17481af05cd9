//! Invalid requests, refused before they have any effect.

use core::ops::{Bound, RangeBounds};

use crate::limits::Dim3;

/// Why a launch does not fit the kernel or the chip.
///
/// ```
/// # #[cfg(feature = "sim")] fn main() -> tegra_hcq::Result<()> {
/// # let device = tegra_hcq::Device::open(tegra_hcq::DeviceKind::Sim)?;
/// # let cubin = include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/kernels/vector_add.cubin"));
/// # let program = tegra_hcq::Program::load(&device, cubin)?;
/// # let mut queue = device.queue()?;
/// # let timeout = std::time::Duration::from_secs(10);
/// use tegra_hcq::{Error, LaunchError, args};
///
/// let kernel = program.kernel("vector_add")?;
/// // SAFETY: a block of 2,048 threads is refused; nothing runs.
/// let refused = unsafe { queue.launch(&kernel, 1, (64, 32), &args![0_u64, 0_u64, 0_u64, 0_u32]) };
/// assert!(matches!(refused, Err(Error::Launch(LaunchError::BlockThreads { .. }))));
/// # Ok(())
/// # }
/// # #[cfg(not(feature = "sim"))] fn main() {}
/// ```
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LaunchError {
    /// An extent of the grid or block is zero, or larger than the launch descriptor can hold.
    #[error("{what} {size}: {axis} must be between 1 and {limit}")]
    Extent {
        /// `grid` or `block`.
        what: &'static str,
        /// Requested size.
        size: Dim3,
        /// `x`, `y` or `z`.
        axis: char,
        /// Largest extent along the axis.
        limit: u32,
    },

    /// A block has more threads than an SM supports per block.
    #[error("block {block} has {threads} threads; at most {limit} fit")]
    BlockThreads {
        /// Requested block.
        block: Dim3,
        /// Number of its threads.
        threads: u32,
        /// Largest number of threads per block.
        limit: u32,
    },

    /// The kernel was compiled for blocks of another size.
    #[error("kernel {kernel}: was compiled for blocks of {required}, not {block}")]
    RequiredBlock {
        /// Name of the kernel.
        kernel: String,
        /// The block size in the cubin (`__block_size__`, `reqntid`).
        required: Dim3,
        /// Requested block.
        block: Dim3,
    },

    /// The GPU cannot form such clusters of thread blocks.
    #[error("kernel {kernel}: clusters of {cluster} blocks: {reason}")]
    Cluster {
        /// Name of the kernel.
        kernel: String,
        /// Requested size of a cluster in blocks.
        cluster: Dim3,
        /// Why not.
        reason: &'static str,
    },

    /// A grid does not consist of whole clusters of thread blocks.
    #[error(
        "kernel {kernel}: the grid of {grid} blocks is not whole clusters of {cluster}: make each extent a multiple"
    )]
    ClusterGrid {
        /// Name of the kernel.
        kernel: String,
        /// Size of a cluster in blocks.
        cluster: Dim3,
        /// Requested grid.
        grid: Dim3,
    },

    /// The kernel has a barrier of the whole grid, and the GPU cannot hold all blocks at once: the barrier would never
    /// end.
    #[error(
        "kernel {kernel}: waits for all blocks of the grid (cooperative groups), so all {blocks} must fit the GPU at \
         once; at most {limit} do: launch fewer blocks and let each do more"
    )]
    GridBarrier {
        /// Name of the kernel.
        kernel: String,
        /// Number of blocks of the grid.
        blocks: u32,
        /// Number of such blocks that the GPU holds at once.
        limit: u32,
    },

    /// A graph with a kernel that has a barrier of the whole grid.
    #[error(
        "kernel {kernel}: waits for all blocks of the grid (cooperative groups), which a graph does not support: \
         launch it on a queue"
    )]
    GridBarrierInGraph {
        /// Name of the kernel.
        kernel: String,
    },

    /// The kernel's registers or launch bounds allow fewer threads per block.
    #[error(
        "kernel {kernel}: a block of {threads} threads is too large; at most {limit} fit (registers, launch bounds)"
    )]
    KernelThreads {
        /// Name of the kernel.
        kernel: String,
        /// Number of threads of the requested block.
        threads: u32,
        /// Largest number of threads per block for this kernel.
        limit: u32,
    },

    /// Static and dynamic shared memory exceed the maximum for one block.
    #[error(
        "kernel {kernel}: {static_bytes} bytes of static and {dynamic_bytes} bytes of dynamic shared memory do not \
         fit; a block has at most {limit} bytes of both"
    )]
    SharedMemory {
        /// Name of the kernel.
        kernel: String,
        /// Static shared memory of the kernel in bytes.
        static_bytes: u32,
        /// Requested dynamic shared memory in bytes.
        dynamic_bytes: u32,
        /// Largest shared memory of a block in bytes.
        limit: u32,
    },

    /// An SM cannot hold a single block of this size.
    #[error(
        "kernel {kernel}: a block of {block} threads with {dynamic_bytes} bytes of dynamic shared memory does not fit \
         an SM: not enough {limit}"
    )]
    Occupancy {
        /// Name of the kernel.
        kernel: String,
        /// Requested block.
        block: Dim3,
        /// Requested dynamic shared memory in bytes.
        dynamic_bytes: u32,
        /// The exhausted resource.
        limit: String,
    },

    /// The chip table has no resources for this SM version.
    #[error("the occupancy of SM {}.{} is unknown, only of {known}", version.0, version.1)]
    UnknownSm {
        /// SM version, major and minor.
        version: (u32, u32),
        /// The SM versions of the chip table.
        known: String,
    },

    /// The launch record (constant bank 0 and launch descriptor) is larger than the launch ring.
    #[error("a launch record of {bytes} bytes does not fit the launch ring")]
    Record {
        /// Size of the record in bytes.
        bytes: u64,
    },
}

/// Why a length, range or count of a request is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RangeError {
    /// The size in bytes overflows.
    #[error("the size of {len} elements of {element_bytes} bytes overflows")]
    Overflow {
        /// Number of elements.
        len: usize,
        /// Size of an element in bytes.
        element_bytes: usize,
    },

    /// A file cannot be mapped as host memory: it has no seal against becoming shorter (F_SEAL_SHRINK), or fewer
    /// elements.
    #[error(
        "the file has fewer than {len} elements of {element_bytes} bytes in whole pages, or may become shorter; seal \
         it with F_SEAL_SHRINK"
    )]
    HostFile {
        /// Number of elements.
        len: usize,
        /// Size of an element in bytes.
        element_bytes: usize,
    },

    /// Host memory of this size cannot be mapped: the size is zero or overflows, or the system has no memory.
    #[error("the system cannot map {len} elements of {element_bytes} bytes")]
    HostMemory {
        /// Number of elements.
        len: usize,
        /// Size of an element in bytes.
        element_bytes: usize,
    },

    /// The size exceeds the memory of any device.
    #[error("{bytes} bytes exceed the memory of any device")]
    TooLarge {
        /// Requested size in bytes.
        bytes: u64,
    },

    /// A range lies outside its buffer.
    #[error("the range {} lies outside of a buffer of {len} elements", range_text(*start, *end))]
    Outside {
        /// Start of the range.
        start: Bound<usize>,
        /// End of the range.
        end: Bound<usize>,
        /// Length of the buffer in elements.
        len: usize,
    },

    /// Source and target of a copy differ in length.
    #[error("{source_len} elements cannot be copied to {target_len}")]
    Lengths {
        /// Length of the source in elements.
        source_len: usize,
        /// Length of the target in elements.
        target_len: usize,
    },

    /// A slice differs in length from the elements to copy.
    #[error("a slice of {given} elements cannot be copied from or to {len} elements")]
    Slice {
        /// Length of the slice.
        given: usize,
        /// Number of elements.
        len: usize,
    },

    /// The elements of a plane are not whole rows.
    #[error("{len} elements are not whole rows of {pitch}")]
    Pitch {
        /// Number of elements.
        len: usize,
        /// Elements per row.
        pitch: usize,
    },

    /// A block-linear surface does not fit its slice, or the copy engine.
    #[error("a block-linear surface of {columns}x{rows} elements in blocks of 2^{block_height_log2} GOBs needs {}, and \
        the slice has {len}: {}", surface_text(*bytes), surface_cure(*bytes, *len, *block_height_log2))]
    BlockSurface {
        /// Elements per row.
        columns: usize,
        /// Number of rows.
        rows: usize,
        /// Logarithm of the height of a block in GOBs.
        block_height_log2: u32,
        /// Size of the surface in bytes; `None` if it does not fit the copy engine.
        bytes: Option<u64>,
        /// Size of the slice in bytes.
        len: u64,
    },

    /// A fill of a block-linear surface.
    #[error("a fill cannot write a block-linear surface: fill a pitch-linear one and copy it")]
    BlockLinear,

    /// Source and target of a 2-D copy differ in shape.
    #[error("a rectangle of {}x{} elements cannot be copied to one of {}x{}", source_size.0, source_size.1,
        target_size.0, target_size.1)]
    Shapes {
        /// Columns and rows of the source.
        source_size: (usize, usize),
        /// Columns and rows of the target.
        target_size: (usize, usize),
    },

    /// Bytes at an address do not lie in the allocation that contains the address.
    #[error("{bytes} bytes at {address:#x} do not lie in {}", allocation_text(*start, *len))]
    Memory {
        /// GPU address of the first byte.
        address: u64,
        /// Number of bytes.
        bytes: u64,
        /// GPU address of the allocation.
        start: u64,
        /// Size of the allocation in bytes; 0 if it was freed.
        len: u64,
    },

    /// An address is in no allocation of the device.
    #[error("the address {address:#x} is in no allocation of the device")]
    NoMemory {
        /// GPU address.
        address: u64,
    },

    /// The memory at an address may only be read: it was imported so.
    #[error("the memory at {address:#x} was imported for reading only")]
    ReadOnly {
        /// GPU address.
        address: u64,
    },

    /// A buffer for output, a heap or a stack of kernels is too large.
    #[error("{bytes} bytes are too many for the output, the heap or the stack of kernels; at most {limit}")]
    RunTime {
        /// Requested size in bytes.
        bytes: u64,
        /// Largest size in bytes.
        limit: u64,
    },

    /// The heap of `malloc` in kernels cannot get another size while kernels have memory of it.
    #[error("the heap of {bytes} bytes is in use: set its size before a kernel calls malloc")]
    KernelHeapInUse {
        /// Size of the heap in bytes.
        bytes: u64,
    },

    /// Bytes that are not a whole number of aligned elements of another type.
    #[error("{bytes} bytes at offset {first} are not whole, aligned elements of {element_bytes} bytes")]
    Cast {
        /// Offset in the buffer in bytes.
        first: usize,
        /// Length in bytes.
        bytes: usize,
        /// Size of an element of the other type.
        element_bytes: usize,
    },

    /// A copy or fill of zero elements in a graph.
    #[error("a step of a graph needs at least one element")]
    EmptyStep,

    /// A graph without steps cannot be replayed.
    #[error("a graph without steps cannot be replayed")]
    EmptyGraph,

    /// The number of instances of a graph is outside its limits.
    #[error("a graph has 1 to {limit} instances, not {count}")]
    Instances {
        /// Requested number.
        count: usize,
        /// Largest number.
        limit: usize,
    },

    /// The step belongs to another graph.
    #[error("the step belongs to another graph")]
    OtherGraph,

    /// The step of the graph is not a copy.
    #[error("the step is not a copy")]
    NotACopy,

    /// The size of a variable is not a multiple of the element size.
    #[error("the variable {name} has {bytes} bytes, which are not elements of {element_bytes} bytes")]
    VariableSize {
        /// Name of the variable.
        name: String,
        /// Size of the variable in bytes.
        bytes: u64,
        /// Size of an element in bytes.
        element_bytes: u64,
    },

    /// The number of elements given differs from the length of the variable.
    #[error("{given} elements do not fill a variable of {len}")]
    VariableLength {
        /// Number of elements given.
        given: usize,
        /// Number of elements of the variable.
        len: usize,
    },

    /// No cubin was given.
    #[error("no cubin was given")]
    NoCubin,
}

/// A range as Rust writes it.
fn range_text(start: Bound<usize>, end: Bound<usize>) -> String {
    let start = match start {
        Bound::Included(start) => start.to_string(),
        // No range of the language has such a start, but a pair of bounds may.
        Bound::Excluded(start) => start.saturating_add(1).to_string(),
        Bound::Unbounded => String::new(),
    };
    match end {
        Bound::Included(end) => format!("{start}..={end}"),
        Bound::Excluded(end) => format!("{start}..{end}"),
        Bound::Unbounded => format!("{start}.."),
    }
}

/// The size of a block-linear surface, in errors.
fn surface_text(bytes: Option<u64>) -> String {
    bytes.map_or("more than the copy engine addresses".to_owned(), |bytes| format!("{bytes} bytes"))
}

/// What to change about a block-linear surface.
fn surface_cure(bytes: Option<u64>, len: u64, block_height_log2: u32) -> &'static str {
    match bytes {
        _ if block_height_log2 > ampere_cmd::command::MAX_BLOCK_HEIGHT_LOG2 => "a block has at most 2^5 GOBs",
        Some(bytes) if bytes > len => "allocate whole blocks",
        _ => "a row has at most 4 GiB",
    }
}

/// The allocation at an address, in errors.
fn allocation_text(start: u64, len: u64) -> String {
    if len == 0 {
        return format!("the memory at {start:#x}, which was freed");
    }
    format!("the {len} bytes at {start:#x}")
}

impl RangeError {
    /// The error for a range outside a buffer of `len` elements.
    pub(crate) fn outside(range: &impl RangeBounds<usize>, len: usize) -> Self {
        Self::Outside { start: range.start_bound().cloned(), end: range.end_bound().cloned(), len }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_written_as_in_a_program() {
        let text = |range: &dyn Fn() -> RangeError| range().to_string();
        assert_eq!(
            text(&|| RangeError::outside(&(10..6000), 1000)),
            "the range 10..6000 lies outside of a buffer of 1000 elements"
        );
        assert!(text(&|| RangeError::outside(&(5..=9), 8)).contains("range 5..=9 lies"));
        assert!(text(&|| RangeError::outside(&(9..), 8)).contains("range 9.. lies"));
        assert!(text(&|| RangeError::outside(&(..9), 8)).contains("range ..9 lies"));
    }
}
