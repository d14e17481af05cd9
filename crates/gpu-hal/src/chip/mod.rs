//! The chip table: everything that depends on the generation of the GPU, one row per SM version.
//!
//! [`of`] returns the [`Chip`] of an SM version. Class numbers, the version of the launch descriptor, the actions of
//! launches and chains, shared memory, registers, local memory, limits and tuning values are fields of that row and
//! defined only there.
//!
//! An encoding that the hardware interprets is a [`Fact`]: it also records where it was [`Seen`] working. A value that
//! follows from a public header alone is [`Seen::Nowhere`], however plausible.
//!
//! To add a generation, add a row to `rows.rs` and list it in [`ALL`].

use core::fmt;

use ampere_cmd::command::PcasAction;
use ampere_cmd::{dump, qmd};

mod rows;

pub use rows::{ALL, SM_8_0, SM_8_6, SM_8_7, SM_8_9, SM_9_0};

/// Threads of a warp, on every generation.
pub const WARP: u32 = 32;
/// Largest number of threads of a block, on every generation (CUDA C++ Programming Guide, "Technical Specifications per
/// Compute Capability").
pub const MAX_BLOCK_THREADS: u32 = 1024;
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

/// Hardware or model on which an encoding was seen working.
///
/// ```
/// use gpu_hal::chip;
///
/// let orin = chip::of((8, 7)).expect("a row of the table");
/// assert_eq!(orin.classes.seen, chip::Seen::Board);
/// ```
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
///
/// ```
/// use gpu_hal::chip;
///
/// let orin = chip::of((8, 7)).expect("a row of the table");
/// println!("{:?}, seen: {:?}", orin.descriptor.value, orin.descriptor.seen);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fact<T> {
    /// The encoding.
    pub value: T,
    /// Where it was seen working.
    pub seen: Seen,
}

/// A class of RM or nvgpu objects, as SET_OBJECT and the kernel drivers take it.
///
/// ```
/// use gpu_hal::chip;
///
/// let orin = chip::of((8, 7)).expect("a row of the table");
/// assert_eq!(orin.classes.value.compute.number, 0xc7c0);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClassId {
    /// Class number.
    pub number: u32,
    /// Name in NVIDIA's headers.
    pub name: &'static str,
}

/// Classes of the engines and of the channels that feed them.
///
/// ```
/// use gpu_hal::chip;
///
/// let orin = chip::of((8, 7)).expect("a row of the table");
/// assert_eq!(orin.classes.value.copy.number, 0xc7b5);
/// ```
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
///
/// ```
/// use gpu_hal::chip;
///
/// let orin = chip::of((8, 7)).expect("a row of the table");
/// // The Orin's driver maps the doorbell without a class.
/// println!("{:?}", orin.classes.value.usermode);
/// ```
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
///
/// ```
/// use gpu_hal::chip;
///
/// let orin = chip::of((8, 7)).expect("a row of the table");
/// assert_eq!(orin.chain().action, 1);
/// assert!(orin.chain().prefetch);
/// ```
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
///
/// ```
/// use gpu_hal::chip;
///
/// let orin = chip::of((8, 7)).expect("a row of the table");
/// assert!(orin.chain().barrier.is_none());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChainBarrier {
    /// Value of CWD_MEMBAR_TYPE.
    pub membar: u64,
    /// Whether the barrier overlaps the tasks that it follows (CWD_MEMBAR_TASK_CHASING_ENABLE).
    pub chasing: bool,
}

/// The release of a timeline by the last descriptor of a batch.
///
/// ```
/// use gpu_hal::chip;
///
/// let orin = chip::of((8, 7)).expect("a row of the table");
/// assert!(!orin.descriptor_release.value.by_default);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DescriptorRelease {
    /// Whether descriptors release timelines by default; the host engine does otherwise.
    pub by_default: bool,
    /// Whether the release has its own system barrier, in addition to the one at the end of the grid.
    pub system_barrier: bool,
}

/// Byte offsets of the words that NVIDIA's compiler expects at the start of constant bank 0, where generations differ.
///
/// ```
/// use gpu_hal::chip;
///
/// let orin = chip::of((8, 7)).expect("a row of the table");
/// let bank = orin.bank0.value;
/// assert!(bank.constants <= bank.end);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bank0 {
    /// Generic address of the shared-memory window (u64); `None` if the code does not read it from the bank.
    pub shared_window: Option<usize>,
    /// Generic address of constant bank 3 (u64).
    pub constants: usize,
    /// End of the driver's words. The parameters begin here or later.
    pub end: usize,
    /// Words about clusters; `None` before clusters exist.
    pub cluster: Option<ClusterWords>,
}

/// Byte offsets of the driver's words about clusters in constant bank 0.
///
/// ```
/// use gpu_hal::chip;
///
/// let orin = chip::of((8, 7)).expect("a row of the table");
/// // Clusters came with SM 9.0.
/// assert!(orin.bank0.value.cluster.is_none());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClusterWords {
    /// End of the reserved shared memory (u32).
    pub reserved_shared_end: usize,
    /// Blocks of a cluster along x, y, z (u32 each).
    pub shape: usize,
    /// 1 / blocks of a cluster along x (f32).
    pub reciprocal: usize,
    /// Clusters of the grid along x, y, z (u32 each).
    pub count: usize,
    /// Blocks of a cluster (u32).
    pub blocks: usize,
}

/// Resources of a streaming multiprocessor (CUDA C++ Programming Guide, "Technical Specifications per Compute
/// Capability", and the toolkit's occupancy calculator).
///
/// ```
/// use gpu_hal::chip;
///
/// let orin = chip::of((8, 7)).expect("a row of the table");
/// assert_eq!((orin.sm.warps, orin.sm.threads()), (48, 1536));
/// ```
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

    /// Shared memory of a kernel itself, in bytes, from the size that the compiler recorded: without the reserved
    /// bytes.
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
///
/// ```
/// use gpu_hal::chip;
///
/// let orin = chip::of((8, 7)).expect("a row of the table");
/// assert!(orin.local.stack_pointer() <= orin.local.window);
/// ```
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

/// Thresholds between two ways to do the same work. They concern speed only.
///
/// ```
/// use gpu_hal::chip;
///
/// let orin = chip::of((8, 7)).expect("a row of the table");
/// // CPU and GPU share the memory of an Orin: the CPU copies.
/// assert!(orin.tuning.reads_by_engine_from.is_none());
/// ```
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
}

/// One generation of GPUs: a row of the table.
///
/// ```
/// use gpu_hal::chip;
///
/// let orin = chip::of((8, 7)).expect("a row of the table");
/// assert!(orin.was_tried());
/// assert!(chip::of((7, 0)).is_none());
/// ```
#[derive(Clone, Copy)]
pub struct Chip {
    /// SM version, major and minor.
    pub sm_version: (u32, u32),
    /// Chips and products.
    pub name: &'static str,
    /// Classes of engines and channels.
    pub classes: Fact<Classes>,
    /// Tables that decode its commands.
    pub commands: &'static dump::Classes,
    /// Version of the launch descriptor.
    pub descriptor: Fact<QmdVersion>,
    /// Actions with which the scheduler takes a descriptor (SEND_SIGNALING_PCAS2_B). The first one is used; the others
    /// are known alternatives.
    pub launch_actions: &'static [Fact<PcasAction>],
    /// How launches are chained. The first one is used; the others are known alternatives.
    pub chains: &'static [Fact<Chain>],
    /// The release of a timeline by a descriptor.
    pub descriptor_release: Fact<DescriptorRelease>,
    /// Whether the shader caches are invalidated by a method before each chain of launches
    /// (INVALIDATE_SHADER_CACHES_NO_WFI). If not, the invalidation bits of the descriptors have to suffice.
    pub shader_invalidate: Fact<bool>,
    /// Layout of constant bank 0.
    pub bank0: Fact<Bank0>,
    /// Whether constant bank 0 is prefetched before the grid begins.
    pub bank0_prefetch: Fact<bool>,
    /// Whether a descriptor says how many blocks an empty SM has room for (FREE_CTA_SLOTS_EMPTY_SM). The scheduler then
    /// starts a grid earlier. It trusts the number: one too large ends a grid that fills an SM in an exception, one too
    /// small makes blocks share an SM while others are idle. So only grids of at most one block per SM say it.
    pub empty_sm_slots: Fact<bool>,
    /// Resources of an SM.
    pub sm: Sm,
    /// Shared memory of an SM.
    pub shared: SharedMemory,
    /// Local memory of threads.
    pub local: LocalMemory,
    /// Tuning values.
    pub tuning: Tuning,
}

impl fmt::Debug for Chip {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (major, minor) = self.sm_version;
        write!(f, "Chip({major}.{minor})")
    }
}

/// Rows are static and differ in their SM version.
impl PartialEq for Chip {
    fn eq(&self, other: &Self) -> bool {
        self.sm_version == other.sm_version
    }
}

impl Eq for Chip {}

impl Chip {
    /// The action with which launches are started.
    #[must_use]
    #[inline]
    pub const fn launch_action(&self) -> PcasAction {
        self.launch_actions[0].value
    }

    /// How launches are chained.
    #[must_use]
    #[inline]
    pub const fn chain(&self) -> Chain {
        self.chains[0].value
    }

    /// The encodings in use, by name, with where each was seen working.
    #[must_use]
    pub fn encodings(&self) -> [(&'static str, Seen); 7] {
        [
            ("classes", self.classes.seen),
            ("launch descriptor", self.descriptor.seen),
            ("launch action", self.launch_actions[0].seen),
            ("chained launches", self.chains[0].seen),
            ("release by descriptor", self.descriptor_release.seen),
            ("invalidation of shader caches", self.shader_invalidate.seen),
            ("constant bank 0", self.bank0.seen),
        ]
    }

    /// One sentence on where the encodings of this chip were tried, for reports.
    ///
    /// ```
    /// let text = gpu_hal::chip::SM_8_6.tried();
    /// assert!(text.contains("never tried"), "{text}");
    /// ```
    #[must_use]
    pub fn tried(&self) -> String {
        let (major, minor) = self.sm_version;
        let of = |wanted: fn(&Seen) -> bool| {
            self.encodings()
                .into_iter()
                .filter(|(_, seen)| wanted(seen))
                .map(|(name, _)| name)
                .collect::<Vec<_>>()
        };
        let silicon = self.encodings().into_iter().find_map(|(_, seen)| match seen {
            Seen::Silicon(name) => Some(name),
            _ => None,
        });
        if let Some(name) = silicon {
            return format!("SM {major}.{minor} was tried on {name}");
        }
        let (model, board) = (of(|seen| *seen == Seen::Model), of(|seen| *seen == Seen::Board));
        if model.is_empty() && board.is_empty() {
            return format!(
                "SM {major}.{minor} ({}) was never tried: its encodings are from public headers",
                self.name
            );
        }
        let mut text = format!(
            "SM {major}.{minor} was tried on the software Orin only, never on a board; other programs ran on a \
             board with the same {}",
            board.join(", ")
        );
        if !model.is_empty() {
            text.push_str("; the model alone has seen: ");
            text.push_str(&model.join(", "));
        }
        text
    }

    /// Where an action of launches was seen working; [`Seen::Nowhere`] if the row does not contain it.
    #[must_use]
    pub fn launch_action_seen(&self, action: PcasAction) -> Seen {
        find(self.launch_actions, &action)
    }

    /// Where a way to chain launches was seen working; [`Seen::Nowhere`] if the row does not contain it.
    #[must_use]
    pub fn chain_seen(&self, chain: Chain) -> Seen {
        find(self.chains, &chain)
    }

    /// Whether some encoding in use was seen working on real hardware or on the model.
    #[must_use]
    pub fn was_tried(&self) -> bool {
        self.encodings().iter().any(|(_, seen)| *seen != Seen::Nowhere)
    }
}

fn find<T: PartialEq>(facts: &[Fact<T>], value: &T) -> Seen {
    facts.iter().find(|fact| fact.value == *value).map_or(Seen::Nowhere, |fact| fact.seen)
}

/// The row of an SM version; `None` for a generation that the table does not contain.
#[must_use]
pub fn of(sm_version: (u32, u32)) -> Option<&'static Chip> {
    ALL.iter().copied().find(|chip| chip.sm_version == sm_version)
}

/// The SM versions of the table, for messages: "8.0, 8.6, 8.7, 8.9, 9.0".
#[must_use]
pub fn versions() -> String {
    let version = |chip: &&Chip| format!("{}.{}", chip.sm_version.0, chip.sm_version.1);
    ALL.iter().map(version).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use ampere_cmd::qmd::{v3_0, v4_0};

    #[test]
    fn rows_are_found_by_version_and_differ() {
        for (at, chip) in ALL.iter().enumerate() {
            assert_eq!(of(chip.sm_version).unwrap().sm_version, chip.sm_version);
            assert!(ALL[..at].iter().all(|other| other.sm_version < chip.sm_version), "ascending");
        }
        assert!(of((7, 5)).is_none());
        assert!(of((10, 0)).is_none());
        assert_eq!(versions(), "8.0, 8.6, 8.7, 8.9, 9.0");
    }

    #[test]
    fn values_fit_their_fields() {
        for chip in ALL {
            let (action, membar, shared, registers) = match chip.descriptor.value {
                QmdVersion::V3_0 => (
                    v3_0::DEPENDENT_QMD0_ACTION.info(),
                    v3_0::CWD_MEMBAR_TYPE.info(),
                    v3_0::SHARED_MEMORY_SIZE.info(),
                    v3_0::REGISTER_COUNT_V.info(),
                ),
                QmdVersion::V4_0 => (
                    v4_0::DEPENDENT_QMD_ACTION.info(),
                    v4_0::CWD_MEMBAR_TYPE.info(),
                    v4_0::SHARED_MEMORY_SIZE.info(),
                    v4_0::REGISTER_COUNT.info(),
                ),
            };
            assert!(!chip.launch_actions.is_empty());
            for chain in chip.chains {
                assert!(action.value_name(u32::try_from(chain.value.action).unwrap()).is_some());
                if let Some(barrier) = chain.value.barrier {
                    assert!(membar.value_name(u32::try_from(barrier.membar).unwrap()).is_some());
                }
            }
            assert!(chip.shared.largest() <= shared.max());
            assert!(chip.sm.max_thread_registers <= registers.max());
            for kib in chip.shared.sizes_kib {
                let code = chip.shared.config_for(kib * 1024).unwrap();
                assert_eq!(chip.shared.config_bytes(code), Some(kib * 1024));
            }
            assert!(chip.shared.sizes_kib.is_sorted());
            assert!(chip.shared.descriptor_unit.is_power_of_two() && chip.sm.register_unit.is_power_of_two());
            assert!(chip.shared.sizes_kib.contains(&chip.shared.usual_kib));
            assert_eq!(chip.shared.config_for(chip.shared.largest() + 1), None);
        }
    }

    #[test]
    fn classes_that_have_a_table_have_its_name() {
        for chip in ALL {
            let Classes { compute, copy, channel, usermode } = chip.classes.value;
            for class in [Some(compute), Some(copy), Some(channel), usermode.map(|page| page.class)]
                .into_iter()
                .flatten()
            {
                if let Some(table) = ampere_cmd::method::class(class.number) {
                    assert_eq!(table.name, class.name);
                }
            }
            assert_eq!(u32::from(chip.commands.host.number), channel.number);
        }
    }

    #[test]
    fn configurations_of_shared_memory_are_those_of_the_chip() {
        assert_eq!(SM_8_7.shared.config_for(1024), Some(3));
        assert_eq!(SM_8_7.shared.config_for(164 << 10), Some(42));
        assert_eq!(SM_8_7.shared.config_for((164 << 10) + 1), None);
        assert_eq!(SM_8_6.shared.config_for((100 << 10) + 1), None);
        assert_eq!(SM_9_0.shared.config_for((164 << 10) + 1), Some(50));
        assert_eq!(SM_9_0.shared.config_for((228 << 10) + 1), None);
        assert_eq!(SM_8_6.shared.config_bytes(42), None, "164 KiB");
    }

    #[test]
    fn the_reserved_bytes_count_once() {
        assert_eq!(SM_8_7.shared.own(2048), 2048);
        assert_eq!(SM_9_0.shared.own(2048), 1024);
        assert_eq!(SM_9_0.shared.own(0), 0);
        assert_eq!(SM_8_7.shared.descriptor_bytes(2000), Some(3072));
        assert_eq!(SM_9_0.shared.descriptor_bytes(2000), Some(3072));
        assert_eq!(SM_8_7.shared.descriptor_bytes(u32::MAX), None);
    }

    #[test]
    fn the_stack_pointer_is_the_one_that_the_compiler_expects() {
        for chip in ALL {
            assert_eq!(chip.local.stack_pointer(), 0xff_fdc0);
        }
    }

    #[test]
    fn registers_are_allocated_per_warp_and_partition() {
        let sm = SM_8_7.sm;
        assert_eq!(sm.warp_registers(65), 2304);
        assert_eq!(sm.warps_for_registers(65), 28, "7 in each partition of 16,384");
        assert_eq!(sm.warps_for_registers(255), 8);
        assert_eq!(sm.warp_registers(0), 256);
        assert_eq!((sm.threads(), SM_9_0.sm.threads()), (1536, 2048));
    }

    #[test]
    fn reports_say_where_a_chip_was_tried() {
        for chip in [&SM_8_0, &SM_8_6, &SM_8_9] {
            assert!(!chip.was_tried());
            assert!(chip.tried().contains("never tried"), "{}", chip.tried());
        }
        assert_eq!(SM_9_0.tried(), "SM 9.0 was tried on an H200");
        let orin = SM_8_7.tried();
        assert!(orin.contains("software Orin only, never on a board"), "{orin}");
        assert!(orin.contains("launch action, chained launches"), "{orin}");
        assert!(!orin.contains("the model alone"), "{orin}");
    }

    #[test]
    fn the_orin_uses_what_ran_on_a_board() {
        assert!(SM_8_7.encodings().iter().all(|(_, seen)| *seen == Seen::Board), "{:?}", SM_8_7.encodings());
        assert_eq!(SM_8_7.launch_action(), PcasAction::PrefetchSchedule);
        assert_eq!((SM_8_7.chain().action, SM_8_7.chain().prefetch), (1, true));
        assert_eq!(
            SM_8_7.launch_action_seen(PcasAction::InvalidatePrefetchCopySchedule),
            Seen::Board,
            "two other programs"
        );
        let copied = PcasAction::InvalidateCopySchedule;
        assert_eq!(SM_8_7.launch_action_seen(copied), Seen::Silicon("an H200"), "not this chip");
        assert_eq!(SM_8_7.launch_action_seen(PcasAction::Schedule), Seen::Nowhere);
        assert_eq!(SM_8_7.chain_seen(Chain { prefetch: false, ..SM_8_7.chain() }), Seen::Nowhere);
        assert_eq!(SM_9_0.launch_action(), PcasAction::InvalidatePrefetchCopySchedule);
        assert!(!SM_9_0.shader_invalidate.value);
    }
}
