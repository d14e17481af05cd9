//! Resources of the SMs, limits and tuning values.

use ampere_cmd::qmd;

/// Threads of a warp, on every generation.
pub const WARP: u32 = 32;
/// Largest number of threads of a block, on every generation (CUDA C++ Programming Guide, "Technical Specifications per
/// Compute Capability").
pub const MAX_BLOCK_THREADS: u32 = 1024;
/// Largest number of blocks of a cluster. Measured on an H100, where NVIDIA's library refuses more.
pub const MAX_CLUSTER: u32 = 16;
/// The same that every GPU with clusters supports: CUDA C++ Programming Guide, "Thread Block Clusters".
pub const PORTABLE_CLUSTER: u32 = 8;
/// Largest number of blocks of clusters on an SM at a time. Measured on an H100.
pub const CLUSTER_BLOCKS_PER_SM: u32 = 8;
/// Largest block size along x, y and z, on every generation (same table).
pub const MAX_BLOCK: [u32; 3] = [1024, 1024, 64];
/// Largest grid size along x, y and z, on every generation (same table).
pub const MAX_GRID: [u32; 3] = [(1 << 31) - 1, 65_535, 65_535];
/// Barriers that a block can use, on every generation (same table).
pub const MAX_BLOCK_BARRIERS: u32 = 16;

/// Rounds up to a multiple of `unit`, a power of two, without a division.
const fn round_up(value: u32, unit: u32) -> u32 {
    (value + unit - 1) & !(unit - 1)
}

/// Resources of a streaming multiprocessor (CUDA C++ Programming Guide, "Technical Specifications per Compute
/// Capability", and the toolkit's occupancy calculator).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sm {
    /// Warps that are resident at a time.
    pub warps: u32,
    /// Blocks that are resident at a time.
    pub blocks: u32,
    /// Barriers shared by all resident blocks; `None` if each block has its own [`MAX_BLOCK_BARRIERS`].
    pub barriers: Option<u32>,
    /// 32-bit registers; also the most that one block can have.
    pub registers: u32,
    /// Largest number of registers of a thread.
    pub max_thread_registers: u32,
    /// Unit in which a warp gets registers; a power of two.
    pub register_unit: u32,
    /// Partitions: each has its own warps and an equal share of the registers.
    pub partitions: u32,
}

impl Sm {
    /// Threads that are resident at a time.
    #[must_use]
    pub const fn threads(&self) -> u32 {
        self.warps * WARP
    }

    /// Registers that a warp occupies if its threads use `registers` each.
    #[must_use]
    #[inline]
    pub const fn warp_registers(&self, registers: u32) -> u32 {
        let registers = if registers == 0 { 1 } else { registers };
        round_up(registers * WARP, self.register_unit)
    }

    /// Warps whose registers fit the SM. A warp belongs to one partition.
    #[must_use]
    #[inline]
    pub const fn warps_for_registers(&self, registers: u32) -> u32 {
        self.registers / self.partitions / self.warp_registers(registers) * self.partitions
    }
}

/// Shared memory of an SM.
///
/// ```
/// use gpu_hal::chip;
///
/// let orin = chip::of((8, 7)).expect("a row of the table");
/// assert!(orin.shared.size_for(48 << 10).is_some());
/// assert!(orin.shared.size_for(1 << 20).is_none());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SharedMemory {
    /// Sizes in KiB that an SM can be configured for, ascending.
    pub sizes_kib: &'static [u32],
    /// Unit in which a block gets shared memory, in bytes, as the occupancy calculator counts.
    pub unit: u32,
    /// Unit of the size in a launch descriptor, in bytes; a power of two.
    pub descriptor_unit: u32,
    /// Shared memory of each block that belongs to the system, in bytes.
    pub reserved: u32,
    /// Whether the size that the compiler records for a kernel contains the reserved bytes.
    pub reserved_in_size: bool,
    /// Size in KiB up to which a launch may configure an SM although it needs less.
    pub usual_kib: u32,
}

impl SharedMemory {
    /// Largest shared memory of an SM, in bytes.
    #[must_use]
    #[inline]
    pub const fn largest(&self) -> u32 {
        match self.sizes_kib {
            [.., kib] => *kib * 1024,
            [] => 0,
        }
    }

    #[inline]
    fn kib_for(&self, bytes: u32) -> Option<u32> {
        self.sizes_kib.iter().copied().find(|kib| bytes <= kib * 1024)
    }

    /// The smallest configuration with `bytes` bytes, as its size in bytes; `None` if no configuration has as much.
    #[must_use]
    #[inline]
    pub fn size_for(&self, bytes: u32) -> Option<u32> {
        self.kib_for(bytes).map(|kib| kib * 1024)
    }

    /// Code of the smallest configuration with `bytes` bytes, for the fields *_SM_CONFIG_SHARED_MEM_SIZE of a launch
    /// descriptor; `None` if no configuration has as much.
    #[must_use]
    #[inline]
    pub fn config_for(&self, bytes: u32) -> Option<u32> {
        self.kib_for(bytes).and_then(qmd::shared_memory_config)
    }

    /// Bytes of the configuration with this code; `None` if the chip has no such configuration.
    #[must_use]
    pub fn config_bytes(&self, code: u32) -> Option<u32> {
        let kib = qmd::shared_memory_config_kib(code)?;
        self.sizes_kib.contains(&kib).then_some(kib * 1024)
    }

    /// The kernel's own shared memory in bytes: the recorded size minus the reserved bytes.
    #[must_use]
    #[inline]
    pub const fn own(&self, recorded: u32) -> u32 {
        if self.reserved_in_size { recorded.saturating_sub(self.reserved) } else { recorded }
    }

    /// Shared memory to request in a descriptor for a block that uses `own` bytes; `None` on overflow.
    #[must_use]
    #[inline]
    pub const fn descriptor_bytes(&self, own: u32) -> Option<u32> {
        let unit = self.descriptor_unit;
        match own.saturating_add(self.reserved).checked_add(unit - 1) {
            Some(bytes) => Some(bytes & !(unit - 1)),
            None => None,
        }
    }
}

/// Local memory of threads: stack frames and spilled registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LocalMemory {
    /// Size of the window through which a thread addresses it, in bytes.
    pub window: u32,
    /// Bytes above the initial stack pointer.
    pub stack_reserve: u32,
    /// Limit on the number of SMs in SET_SHADER_LOCAL_MEMORY_NON_THROTTLED_C: no limit.
    pub max_sm_count: u32,
}

impl LocalMemory {
    /// Initial stack pointer of a thread.
    #[must_use]
    pub const fn stack_pointer(&self) -> u32 {
        self.window - self.stack_reserve
    }
}

/// Sizes in bytes that decide how a queue copies between its GPU's memory and that of another GPU. They concern speed
/// only.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PeerCopies {
    /// From here on a kernel is faster than the queue's copy engine; `None` if it never is or if it was not measured.
    pub by_kernel_from: Option<u64>,
    /// From here on the engine for copies between GPUs is fastest ([`ChannelGroup::open_link`]); `None` if it never is
    /// or if it was not measured.
    ///
    /// [`ChannelGroup::open_link`]: crate::ChannelGroup::open_link
    pub by_link_engine_from: Option<u64>,
}

impl PeerCopies {
    /// The queue's copy engine copies all sizes.
    pub const UNMEASURED: Self = Self { by_kernel_from: None, by_link_engine_from: None };
}

/// Thresholds between two ways to do the same work. They concern speed only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tuning {
    /// Bytes from which a kernel copies device memory faster than the copy engine; `None` if it never does or if it
    /// was not measured.
    pub copies_by_kernel_from: Option<u64>,
    /// Bytes from which the copy engine brings device memory to the CPU faster than the CPU's own loads; `None` if it
    /// never does.
    pub reads_by_engine_from: Option<usize>,
    /// Bytes from which the copy engine takes device memory from the CPU faster than the CPU's own stores; `None` if it
    /// never does or if it was not measured.
    pub writes_by_engine_from: Option<usize>,
    /// Copies between two GPUs.
    pub peers: PeerCopies,
}
