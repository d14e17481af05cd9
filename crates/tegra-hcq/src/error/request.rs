//! Requests that the library refuses before it does anything.

use core::ops::Bound;

use crate::grid::Dim3;

/// Why a launch does not fit kernel or chip.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LaunchError {
    /// An extent of grid or block is zero, or larger than the launch descriptor can hold.
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

    /// A block has more threads than an SM can run in one block.
    #[error("block {block} has {threads} threads, at most {limit} fit")]
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

    /// The kernel was compiled for thread block clusters.
    #[error(
        "kernel {kernel}: was compiled for clusters of {cluster} blocks, which launches do not form; compile it \
         without __cluster_dims__"
    )]
    Cluster {
        /// Name of the kernel.
        kernel: String,
        /// Cluster size in blocks.
        cluster: Dim3,
    },

    /// The kernel's registers or launch bounds allow fewer threads per block.
    #[error(
        "kernel {kernel}: a block of {threads} threads is too large, at most {limit} fit (registers, launch bounds)"
    )]
    KernelThreads {
        /// Name of the kernel.
        kernel: String,
        /// Number of threads of the requested block.
        threads: u32,
        /// Largest number of threads per block for this kernel.
        limit: u32,
    },

    /// Static and dynamic shared memory exceed what an SM can give one block.
    #[error(
        "kernel {kernel}: {static_bytes} bytes of static and {dynamic_bytes} bytes of dynamic shared memory do not fit"
    )]
    SharedMemory {
        /// Name of the kernel.
        kernel: String,
        /// The kernel's own shared memory in bytes.
        static_bytes: u32,
        /// Requested dynamic shared memory in bytes.
        dynamic_bytes: u32,
    },

    /// Not one block of this size fits an SM.
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
        /// The resource that is exhausted.
        limit: String,
    },

    /// The resources of this SM version are unknown.
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

/// Why lengths, ranges or counts of a request make no sense.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RangeError {
    /// The size in bytes overflows.
    #[error("{len} elements of {element_bytes} bytes overflow")]
    Overflow {
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

    /// No device has so much memory.
    #[error("{bytes} bytes are more than any device has")]
    TooLarge {
        /// Requested size in bytes.
        bytes: u64,
    },

    /// A range lies outside its buffer.
    #[error("the range {start:?}..{end:?} lies outside of a buffer of {len} elements")]
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

    /// A slice differs in length from the elements that it is copied from or to.
    #[error("a slice of {given} elements cannot be copied from or to {len} elements")]
    Slice {
        /// Length of the slice.
        given: usize,
        /// Number of elements.
        len: usize,
    },

    /// A fill has more elements than one command can write.
    #[error("{len} elements are too many for one fill")]
    Fill {
        /// Number of elements.
        len: usize,
    },

    /// A graph was to copy or fill zero elements.
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

    /// The graph has no such step.
    #[error("the graph has {count} steps, not {}", index + 1)]
    NoStep {
        /// Index of the requested step.
        index: usize,
        /// Number of steps.
        count: usize,
    },

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

    /// A variable was to be set from another number of elements than it has.
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

/// Why a compilation was refused before it began.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CompileRequestError {
    /// An option sets the architecture, which is that of the device.
    #[error(
        "option {option}: the architecture is that of the device, sm_{}{}; leave it out", sm_version.0, sm_version.1
    )]
    Architecture {
        /// The option.
        option: String,
        /// SM version of the device, major and minor.
        sm_version: (u32, u32),
    },

    /// A text contains a zero byte.
    #[error("{what} has a zero byte at offset {offset}")]
    ZeroByte {
        /// What the text is: the source, an option, a name.
        what: String,
        /// Offset of the byte.
        offset: usize,
    },

    /// A list has more entries than NVRTC can take.
    #[error("too many {what}")]
    TooMany {
        /// What is listed.
        what: String,
    },
}
