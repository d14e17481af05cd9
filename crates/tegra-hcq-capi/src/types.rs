//! The C types: handles, and structs that calls fill.

#![allow(non_camel_case_types, reason = "these are the names of the C header")]

/// An open GPU. Handles are not pointers to memory: they are compared and passed on, never dereferenced.
#[derive(Debug)]
pub struct tegra_hcq_device(());

/// Memory that the GPU accesses.
#[derive(Debug)]
pub struct tegra_hcq_buffer(());

/// A loaded cubin.
#[derive(Debug)]
pub struct tegra_hcq_program(());

/// A kernel of a program. It keeps the program loaded.
#[derive(Debug)]
pub struct tegra_hcq_kernel(());

/// An in-order stream of launches, copies and signals.
#[derive(Debug)]
pub struct tegra_hcq_queue(());

/// The end of a submission.
#[derive(Debug)]
pub struct tegra_hcq_fence(());

/// A 64-bit value that the CPU and queues set and wait for.
#[derive(Debug)]
pub struct tegra_hcq_signal(());

/// A graph while it is recorded.
#[derive(Debug)]
pub struct tegra_hcq_graph_builder(());

/// A recorded sequence of launches, copies and fills.
#[derive(Debug)]
pub struct tegra_hcq_graph(());

/// Times of operations that a queue has recorded.
#[derive(Debug)]
pub struct tegra_hcq_profile(());

/// Kernels for products of matrices, loaded on a device.
#[derive(Debug)]
pub struct tegra_hcq_gemm(());

/// Number of the ABI: grows when a function or struct changes so that programs must be compiled again.
pub const TEGRA_HCQ_ABI: u32 = 1;

/// Numbers of blocks in a grid or of threads in a block, 1 or more each.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct tegra_hcq_dim3 {
    /// First dimension.
    pub x: u32,
    /// Second dimension.
    pub y: u32,
    /// Third dimension.
    pub z: u32,
}

impl From<tegra_hcq_dim3> for tegra_hcq::Dim3 {
    fn from(size: tegra_hcq_dim3) -> Self {
        (size.x, size.y, size.z).into()
    }
}

/// What a buffer is used for, a hint that selects its memory and how the CPU caches it. The purpose parameter of
/// `tegra_hcq_buffer_alloc` takes these values.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum tegra_hcq_purpose {
    /// Data of kernels, rarely accessed by the CPU. On a GPU with its own memory, memory of the GPU.
    Device = 0,
    /// Written by the CPU, read by the GPU.
    Upload = 1,
    /// Written by the GPU, read by the CPU.
    ReadBack = 2,
    /// Small values that CPU and GPU exchange while both run.
    Signals = 3,
}

/// Kind of a kernel argument, in `tegra_hcq_arg`.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum tegra_hcq_arg_kind {
    /// A pointer into a buffer: `value` is the handle, `offset` the offset in bytes.
    Buffer = 0,
    /// A number: the low `size` bytes of `value`, 1, 2, 4 or 8.
    Value = 1,
    /// A struct by value: `value` is the address of `size` bytes, read during the call.
    Bytes = 2,
}

/// A kernel argument. The functions `tegra_hcq_arg_buffer`, `tegra_hcq_arg_f32` and so on make them.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct tegra_hcq_arg {
    /// A `tegra_hcq_arg_kind`.
    pub kind: u32,
    /// Size in bytes; 8 for a buffer.
    pub size: u32,
    /// Handle, number or address.
    pub value: u64,
    /// Offset in the buffer, in bytes.
    pub offset: u64,
}

/// Elements of the matrices of a product.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum tegra_hcq_element {
    /// IEEE halves.
    F16 = 0,
    /// bfloat16 numbers: the upper halves of floats.
    Bf16 = 1,
    /// 32-bit floats.
    F32 = 2,
}

/// How the second factor of a product is stored.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum tegra_hcq_form {
    /// `k` rows of `n` elements.
    Rows = 0,
    /// `n` rows of `k` elements: transposed.
    Columns = 1,
}

/// How exactly a product multiplies floats.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum tegra_hcq_precision {
    /// Each product of two floats has about 22 bits.
    Full = 0,
    /// Each float is rounded to 11 bits.
    Tf32 = 1,
}

/// Sizes and kinds of a product of matrices: `out = scale * a * b + bias` for `batch` pairs of matrices that follow
/// each other. All are row major, without gaps between rows: `a` has `m` rows of `k` elements, `out` has `m` rows of
/// `n` elements.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct tegra_hcq_product {
    /// Size of this struct, set by the caller.
    pub struct_size: u32,
    /// A `tegra_hcq_element`: the elements of both factors.
    pub element: u32,
    /// A `tegra_hcq_element`: the elements of the result.
    pub output: u32,
    /// A `tegra_hcq_form`.
    pub form: u32,
    /// A `tegra_hcq_precision`; for other elements than floats without effect.
    pub precision: u32,
    /// 1 to add the product to the elements that `out` has, 0 to replace them.
    pub accumulate: u32,
    /// Factor of the sums, in most cases 1.
    pub scale: f32,
    /// 0.
    pub reserved: u32,
    /// Number of products, in most cases 1.
    pub batch: u64,
    /// Rows of `a` and of the result.
    pub m: u64,
    /// Columns of `b` and of the result.
    pub n: u64,
    /// Length of the sums, at least 1.
    pub k: u64,
}

/// Properties of a GPU. Set `struct_size` to the size of the struct before the call.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct tegra_hcq_properties {
    /// Size of this struct, set by the caller. Fields beyond it are not written.
    pub struct_size: u32,
    /// SM version, major: 8 on an Orin.
    pub sm_major: u32,
    /// SM version, minor: 7 on an Orin.
    pub sm_minor: u32,
    /// Number of streaming multiprocessors in use.
    pub sm_count: u32,
    /// Number of warps that an SM holds at a time.
    pub warps_per_sm: u32,
    /// Largest number of threads of a block.
    pub max_block_threads: u32,
    /// 1 if CPU and GPU use the same memory, 0 if the GPU has its own.
    pub unified_memory: u32,
    /// Number of graphics processing clusters in use.
    pub gpc_count: u32,
    /// Size of the L2 cache in bytes.
    pub l2_bytes: u64,
    /// Highest clock in Hz; 0 if the driver does not report it.
    pub max_clock_hz: u64,
    /// Driver: "nvgpu", "nvrm" or "sim". Ends with a zero byte.
    pub kind: [u8; 16],
    /// Name of the chip, for example "ga10b". Ends with a zero byte.
    pub chip: [u8; 64],
}

/// Resources of a kernel. Set `struct_size` to the size of the struct before the call.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct tegra_hcq_kernel_attributes {
    /// Size of this struct, set by the caller. Fields beyond it are not written.
    pub struct_size: u32,
    /// Registers of a thread.
    pub registers: u32,
    /// Static shared memory of a block in bytes.
    pub static_shared_bytes: u32,
    /// Largest dynamic shared memory of a block in bytes.
    pub max_dynamic_shared_bytes: u32,
    /// Local memory of a thread in bytes.
    pub local_bytes: u32,
    /// Largest number of threads of a block.
    pub max_threads: u32,
}

/// Options of a queue. Set `struct_size` to the size of the struct and the other fields to 0 for the defaults.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct tegra_hcq_queue_options {
    /// Size of this struct.
    pub struct_size: u32,
    /// 1: threads that wait sleep on an interrupt soon; 0: they poll, which is faster by microseconds.
    pub sleep: u32,
    /// 1: the queue holds its engine while it waits for a signal.
    pub hold: u32,
}

/// Where the output of kernels belongs.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum tegra_hcq_output_stream {
    /// Standard output: `printf`.
    Out = 1,
    /// Standard error: failed assertions, and notes about output that was lost.
    Err = 2,
}

/// Kind of an operation in a profile.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum tegra_hcq_work {
    /// A launch of a kernel.
    Launch = 0,
    /// A copy.
    Copy = 1,
    /// A fill.
    Fill = 2,
    /// A replay of a graph; its steps follow.
    Graph = 3,
    /// Any other operation.
    Other = 4,
}

/// An operation in a profile. Times are nanoseconds since the UNIX epoch. Set `struct_size` before the call.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct tegra_hcq_span {
    /// Size of this struct, set by the caller. Fields beyond it are not written.
    pub struct_size: u32,
    /// A `tegra_hcq_work`.
    pub work: u32,
    /// Name of the kernel, or "copy", "fill", "graph of 3 steps". Valid until the profile is freed.
    pub name: *const core::ffi::c_char,
    /// CPU time of the call.
    pub called_ns: u64,
    /// CPU time just before the doorbell.
    pub submitted_ns: u64,
    /// GPU time at the start.
    pub start_ns: u64,
    /// GPU time at the end.
    pub end_ns: u64,
    /// Size of a copy or fill in bytes, else 0.
    pub bytes: u64,
    /// Grid of a launch, else zeros.
    pub grid: tegra_hcq_dim3,
    /// Block of a launch, else zeros.
    pub block: tegra_hcq_dim3,
    /// Number of the queue.
    pub queue: u32,
    /// Index of the step of a graph, -1 for an operation of its own.
    pub step: i32,
}

/// Kind of a fault.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum tegra_hcq_fault_kind {
    /// An access to an address that is not mapped, or not mapped for this kind of access.
    Mmu = 0,
    /// An SM stopped at an instruction: `reason` says why.
    Sm = 1,
    /// The launch descriptor was refused.
    LaunchDescriptor = 2,
    /// The graphics engine stopped without more detail.
    GraphicsException = 3,
    /// Malformed or forbidden commands.
    Pushbuffer = 4,
    /// The copy engine refused a copy.
    CopyEngine = 5,
    /// The work hung until a recovery stopped it.
    Abandoned = 6,
    /// Any other error of the channel.
    Other = 7,
    /// An `assert` of a kernel has failed: `reason` has the messages.
    Assert = 8,
}

/// Why the GPU has stopped the work of a queue. Set `struct_size` before the call. Strings are valid until the
/// thread's next failed call, and NULL where unknown.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct tegra_hcq_fault {
    /// Size of this struct, set by the caller. Fields beyond it are not written.
    pub struct_size: u32,
    /// A `tegra_hcq_fault_kind`.
    pub kind: u32,
    /// 1 if `address` is known.
    pub has_address: u32,
    /// 1 if `pc` is known.
    pub has_pc: u32,
    /// Address of the access; of an MMU fault, its page.
    pub address: u64,
    /// Address of the faulting instruction.
    pub pc: u64,
    /// Offset of that instruction in the kernel's code, in bytes.
    pub code_offset: u64,
    /// Kernel that contains the instruction; the last launched kernel if the instruction is unknown.
    pub kernel: *const core::ffi::c_char,
    /// What happened, for example "misaligned address" or "page table entry invalid, write access".
    pub reason: *const core::ffi::c_char,
    /// The nearest buffer, for example "4 bytes past the end of weights (0x1000, 256 bytes)".
    pub nearest: *const core::ffi::c_char,
    /// The whole report in one line.
    pub text: *const core::ffi::c_char,
    /// Grid of the kernel's last launch; zeros if unknown.
    pub grid: tegra_hcq_dim3,
    /// Block of the kernel's last launch; zeros if unknown.
    pub block: tegra_hcq_dim3,
}
