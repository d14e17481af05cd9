//! Launch descriptors (QMD v3.0): reading, the scheduler's checks, and the values for the SMs.
//!
//! SKED reports refusals as bits of its ESR (GA100 `pri_sked`); a check with such a bit names it. In addition the model
//! refuses every field whose effect is not modelled, and every undefined bit, rather than behave differently from a
//! board.

mod memory;
mod release;

use ampere_cmd::qmd::{ALIGNMENT, Field, QmdV3_0, pointed_va, v3_0 as q};
use ampere_cmd::words::join;
use gpu_hal::chip::{self, Chain, Fact, Seen, SharedMemory, Sm, WARP};

use crate::check::{Encoding, Unit, Watch};
use crate::chip::CHIP;
use crate::gpu::ChannelFault;
use crate::mmu::View;
use crate::sm::{ConstantBank, Launch, Tables};

/// Bits of the SKED ESR.
mod esr {
    /// Constant buffer size.
    pub(super) const CONSTANT_BUFFER_SIZE: u32 = 7;
    /// Low part of local memory.
    pub(super) const LOCAL_LOW: u32 = 9;
    /// High part of local memory.
    pub(super) const LOCAL_HIGH: u32 = 10;
    /// Sum of both parts.
    pub(super) const LOCAL_TOTAL: u32 = 12;
    /// Registers per thread.
    pub(super) const REGISTER_COUNT: u32 = 13;
    /// Threads per CTA.
    pub(super) const TOTAL_THREADS: u32 = 18;
    /// Program address.
    pub(super) const PROGRAM_OFFSET: u32 = 20;
    /// Shared memory per CTA.
    pub(super) const SHARED_MEMORY_SIZE: u32 = 21;
    /// A dimension of the CTA is zero.
    pub(super) const ZERO_THREAD_DIMENSION: u32 = 23;
    /// A window overlaps mapped memory, or the other window.
    pub(super) const WINDOW_OVERLAP: u32 = 24;
    /// The SM configuration has too little shared memory for a CTA.
    pub(super) const SM_CONFIG_TOO_SMALL: u32 = 25;
    /// Registers per CTA.
    pub(super) const CTA_REGISTERS: u32 = 26;
}

/// Maximum number of threads of a CTA, in total and along x and y.
const MAX_THREADS: u64 = chip::MAX_BLOCK_THREADS as u64;
/// Maximum number of threads along z.
const MAX_THREADS_Z: u32 = chip::MAX_BLOCK[2];
/// Maximum number of CTAs along x.
const MAX_GRID_X: u64 = chip::MAX_GRID[0] as u64;
/// Resources of an SM.
const SM: Sm = CHIP.sm;
/// Maximum number of registers per thread.
const MAX_REGISTERS: u64 = SM.max_thread_registers as u64;
/// Maximum number of named barriers per CTA.
const MAX_BARRIERS: u64 = chip::MAX_BLOCK_BARRIERS as u64;
/// Shared memory of an SM.
const SHARED: SharedMemory = CHIP.shared;
/// Allocation granularity of shared memory in bytes.
const SHARED_UNIT: u64 = SHARED.descriptor_unit as u64;
/// Maximum shared memory per CTA in bytes, including the system's 1 KiB.
const MAX_SHARED: u64 = SHARED.largest() as u64;
/// Alignment of a program and of a constant bank, in bytes.
const PROGRAM_ALIGNMENT: u64 = 128;
const BANK_ALIGNMENT: u64 = 64;
/// Maximum size of a constant bank in bytes.
const MAX_BANK: u64 = 64 << 10;
/// Machine-code versions that an SM of this chip runs; zero means unspecified.
const SASS_VERSIONS: [u64; 4] = [0, 0x80, 0x86, 0x87];
/// Maximum DEPENDENCE_COUNTER.
pub(super) const MAX_DEPENDENCE: u64 = 0xffff;

/// Fields whose effect is not modelled, or that belong to the hardware: zero in any descriptor that a driver prepares.
const UNMODELLED: &[Field<q::Layout>] = &[
    q::OUTER_PUT,
    q::OUTER_OVERFLOW,
    q::OUTER_GET,
    q::OUTER_STICKY_OVERFLOW,
    q::INNER_GET,
    q::INNER_OVERFLOW,
    q::INNER_PUT,
    q::INNER_STICKY_OVERFLOW,
    q::IS_QUEUE,
    q::QMD_RESERVED04A,
    q::QMD_RESERVED04B,
    q::SELF_COPY_ON_COMPLETION,
    q::QMD_RESERVED04C,
    q::CIRCULAR_QUEUE_SIZE,
    q::CTA_RASTER_WIDTH_RESUME,
    q::CTA_RASTER_HEIGHT_RESUME,
    q::CTA_RASTER_DEPTH_RESUME,
    q::CIRCULAR_QUEUE_ADDR_LOWER,
    q::CIRCULAR_QUEUE_ADDR_UPPER,
    q::CIRCULAR_QUEUE_ENTRY_SIZE,
    q::CWD_REFERENCE_COUNT_ID,
    q::CWD_REFERENCE_COUNT_DELTA_MINUS_ONE,
    q::QMD_RESERVED11A,
    q::CWD_REFERENCE_COUNT_INCR_ENABLE,
    q::SEQUENTIALLY_RUN_CTAS,
    q::CWD_REFERENCE_COUNT_DECR_ENABLE,
    q::QMD_RESERVED11B,
    q::QMD_RESERVED11C,
    q::DEPENDENT_QMD1_ENABLE,
    q::DEPENDENT_QMD1_ACTION,
    q::DEPENDENT_QMD1_PREFETCH,
    q::COALESCE_WAITING_PERIOD,
    q::QUEUE_ENTRIES_PER_CTA_LOG2,
    q::CTA_LAUNCH_QUEUE,
    q::OCCUPANCY_THRESHOLD_SHARED_MEM,
    q::OCCUPANCY_MAX_SHARED_MEM,
    q::OCCUPANCY_THRESHOLD_WARP,
    q::OCCUPANCY_MAX_WARP,
    q::OCCUPANCY_THRESHOLD_REGISTER,
    q::OCCUPANCY_MAX_REGISTER,
    q::SHARED_ALLOCATION_ENABLE,
    q::FREE_CTA_SLOTS_EMPTY_SM,
    q::QMD_RESERVED17A,
    q::QMD_RESERVED17B,
    q::SM_DISABLE_MASK_LOWER,
    q::SM_DISABLE_MASK_UPPER,
    q::SEMAPHORE_RESERVED25A,
    q::SEMAPHORE_RESERVED29A,
    q::SEMAPHORE_RESERVED53A,
    q::HW_ONLY_INNER_GET,
    q::HW_ONLY_REQUIRE_SCHEDULING_PCAS,
    q::HW_ONLY_INNER_PUT,
    q::HW_ONLY_SPAN_LIST_HEAD_INDEX,
    q::HW_ONLY_SPAN_LIST_HEAD_INDEX_VALID,
    q::HW_ONLY_SKED_NEXT_QMD_POINTER,
    q::HW_ONLY_DEPENDENCE_COUNTER,
];

/// The part of the compute class's state that a launch uses.
#[derive(Clone, Copy, Debug)]
pub(super) struct Environment {
    pub(super) shared_window: u64,
    pub(super) local_window: u64,
    /// GPU address of the local memory for all TPCs.
    pub(super) local_memory: u64,
    /// Local memory of a TPC, in bytes.
    pub(super) local_bytes_per_tpc: u64,
    pub(super) sm_count: u32,
    /// Tables of texture headers and samplers.
    pub(super) textures: Tables,
}

/// A checked descriptor.
#[derive(Debug)]
pub(super) struct Grid {
    pub(super) launch: Launch,
    pub(super) program_va: u64,
    /// Code that is fetched before the first instruction runs: first byte and one past the last.
    pub(super) prefetch: Option<(u64, u64)>,
    pub(super) releases: [Option<release::Release>; 3],
    pub(super) dependent: Option<Dependent>,
}

/// The descriptor that follows.
#[derive(Clone, Copy, Debug)]
pub(super) struct Dependent {
    pub(super) va: u64,
    pub(super) action: DependentAction,
    /// Whether it is prefetched when the previous grid starts.
    pub(super) prefetch: bool,
}

impl Dependent {
    /// Reports a dependent descriptor that no board has been seen to accept.
    pub(super) fn check_proven(&self, watch: &Watch) {
        let known = |chain: &&Fact<Chain>| {
            chain.value.action == self.action.number() && chain.value.prefetch == self.prefetch
        };
        if CHIP.chains.iter().find(known).is_none_or(|chain| chain.seen != Seen::Board) {
            // CAST: the field has 3 bits.
            let action = self.action.number() as u32;
            watch.unproven(Encoding::Chain { action, prefetch: self.prefetch }, self.va);
        }
    }
}

/// The action on it.
#[derive(Clone, Copy, Debug)]
pub(super) enum DependentAction {
    Schedule,
    InvalidateCopySchedule,
    DecrementDependence,
}

impl DependentAction {
    /// Value of DEPENDENT_QMD0_ACTION.
    pub(super) fn number(self) -> u64 {
        match self {
            Self::Schedule => q::DEPENDENT_QMD0_ACTION_QMD_SCHEDULE,
            Self::InvalidateCopySchedule => q::DEPENDENT_QMD0_ACTION_QMD_INVALIDATE_COPY_SCHEDULE,
            Self::DecrementDependence => q::DEPENDENT_QMD0_ACTION_QMD_DECREMENT_DEPENDENCE,
        }
    }
}

/// The fault of a refused descriptor.
pub(super) fn refuse(va: u64, esr_bit: Option<u32>, reason: impl Into<String>) -> ChannelFault {
    ChannelFault::LaunchDescriptor { va, esr_bit, reason: reason.into() }
}

/// Reads a descriptor from GPU memory.
///
/// # Errors
///
/// The MMU fault of the read. (A PCAS address cannot be misaligned: it is sent shifted by 8.)
pub(super) fn read(va: u64, view: &View) -> Result<QmdV3_0, ChannelFault> {
    debug_assert!(va.is_multiple_of(ALIGNMENT));
    let mut bytes = [0; QmdV3_0::BYTES];
    let view = view.watched_as(Unit::Scheduler);
    view.read(va, &mut bytes).map_err(|fault| ChannelFault::Mmu { client: "compute", fault })?;
    let mut words = [0; QmdV3_0::WORDS];
    for (word, bytes) in words.iter_mut().zip(bytes.chunks_exact(4)) {
        *word = bytes.iter().rev().fold(0, |word, &byte| word << 8 | u32::from(byte));
    }
    Ok(QmdV3_0::from_words(words))
}

/// Number of dependences that must be counted down before the descriptor runs.
pub(super) fn dependence_counter(descriptor: &QmdV3_0) -> u64 {
    descriptor.get(q::DEPENDENCE_COUNTER)
}

/// A reason with its ESR bit.
struct Refusal {
    bit: Option<u32>,
    reason: String,
}

type Checked<T> = Result<T, Refusal>;

fn fail<T>(bit: Option<u32>, reason: impl Into<String>) -> Checked<T> {
    Err(Refusal { bit, reason: reason.into() })
}

/// Checks a descriptor like the scheduler before a launch.
///
/// # Errors
///
/// The fault of the descriptor at `va`, with the reason.
pub(super) fn check(
    va: u64,
    descriptor: &QmdV3_0,
    environment: &Environment,
    view: &View,
) -> Result<Grid, ChannelFault> {
    let fields = Fields { descriptor, environment, view };
    fields.check().map_err(|Refusal { bit, reason }| refuse(va, bit, reason))
}

/// The fields of a launch descriptor, and the state and memory that they refer to.
struct Fields<'a> {
    descriptor: &'a QmdV3_0,
    environment: &'a Environment,
    view: &'a View,
}

impl Fields<'_> {
    fn get(&self, field: Field<q::Layout>) -> u64 {
        self.descriptor.get(field)
    }

    /// Reads a field of at most 32 bits, as all fields are.
    fn get32(&self, field: Field<q::Layout>) -> u32 {
        // CAST: no field crosses a word.
        self.get(field) as u32
    }

    fn address(&self, upper: Field<q::Layout>, lower: Field<q::Layout>) -> u64 {
        join(self.get32(upper), self.get32(lower))
    }

    fn check(&self) -> Checked<Grid> {
        self.version()?;
        self.unmodelled()?;
        let grid = self.grid_size()?;
        let block = self.block_size()?;
        // At most MAX_THREADS.
        let threads: u32 = block.iter().product();
        let registers = self.registers(threads.div_ceil(WARP))?;
        let barriers = self.get(q::BARRIER_COUNT);
        if barriers > MAX_BARRIERS {
            return fail(None, format!("BARRIER_COUNT {barriers} is above {MAX_BARRIERS}"));
        }
        self.windows()?;
        let (shared_bytes, shared_limit) = self.shared_memory()?;
        let mut launch = Launch {
            program_va: self.program()?,
            grid,
            block,
            registers,
            shared_bytes,
            shared_limit,
            local_bytes: 0,
            // CAST: at most MAX_BARRIERS.
            barriers: barriers as u32,
            constants: self.constant_banks()?,
            shared_window: self.environment.shared_window,
            local_window: self.environment.local_window,
            sm_count: self.environment.sm_count,
            textures: Tables {
                sampler_by_header: self.get(q::SAMPLER_INDEX) == q::SAMPLER_INDEX_VIA_HEADER_INDEX,
                ..self.environment.textures
            },
        };
        launch.local_bytes = self.local_memory(&launch)?;
        Ok(Grid {
            program_va: launch.program_va,
            prefetch: self.prefetch()?,
            launch,
            releases: release::releases(self.descriptor)?,
            dependent: self.dependent()?,
        })
    }

    fn version(&self) -> Checked<()> {
        let (major, minor) = (self.get(q::QMD_MAJOR_VERSION), self.get(q::QMD_VERSION));
        if (major, minor) != (3, 0) {
            return fail(None, format!("QMD version {major}.{minor}: only 3.0 is modelled"));
        }
        let sass = self.get(q::SASS_VERSION);
        if !SASS_VERSIONS.contains(&sass) {
            return fail(None, format!("SASS_VERSION {sass:#x} is not supported by this chip"));
        }
        Ok(())
    }

    fn unmodelled(&self) -> Checked<()> {
        if let Some(bit) = self.descriptor.unassigned_bits_set().next() {
            return fail(None, format!("bit {bit} is set and belongs to no field"));
        }
        for &field in UNMODELLED {
            let value = self.get(field);
            if value != 0 {
                return fail(None, format!("{} is {value:#x}: not modelled", field.info().name));
            }
        }
        let membar = self.get(q::CWD_MEMBAR_TYPE);
        let known =
            [q::CWD_MEMBAR_TYPE_L1_NONE, q::CWD_MEMBAR_TYPE_L1_SYSMEMBAR, q::CWD_MEMBAR_TYPE_L1_MEMBAR];
        if !known.contains(&membar) {
            return fail(None, format!("CWD_MEMBAR_TYPE {membar} does not exist"));
        }
        Ok(())
    }

    fn grid_size(&self) -> Checked<[u32; 3]> {
        let fields = [q::CTA_RASTER_WIDTH, q::CTA_RASTER_HEIGHT, q::CTA_RASTER_DEPTH];
        let grid = fields.map(|field| self.get32(field));
        if grid.contains(&0) {
            return fail(None, format!("the grid {grid:?} has no CTAs"));
        }
        if u64::from(grid[0]) > MAX_GRID_X {
            return fail(None, format!("CTA_RASTER_WIDTH {} is above {MAX_GRID_X}", grid[0]));
        }
        Ok(grid)
    }

    fn block_size(&self) -> Checked<[u32; 3]> {
        let fields = [q::CTA_THREAD_DIMENSION0, q::CTA_THREAD_DIMENSION1, q::CTA_THREAD_DIMENSION2];
        let block = fields.map(|field| self.get32(field));
        if block.contains(&0) {
            return fail(Some(esr::ZERO_THREAD_DIMENSION), format!("the CTA {block:?} has no threads"));
        }
        let threads: u64 = block.iter().map(|&dimension| u64::from(dimension)).product();
        if threads > MAX_THREADS {
            let reason = format!("the CTA {block:?} has {threads} threads, more than {MAX_THREADS}");
            return fail(Some(esr::TOTAL_THREADS), reason);
        }
        if block[2] > MAX_THREADS_Z {
            return fail(None, format!("the CTA {block:?} has more than {MAX_THREADS_Z} threads along z"));
        }
        Ok(block)
    }

    /// Registers per thread. A partition's registers are allocated to whole warps.
    fn registers(&self, warps: u32) -> Checked<u32> {
        let registers = self.get(q::REGISTER_COUNT_V);
        if registers == 0 || registers > MAX_REGISTERS {
            let reason = format!("REGISTER_COUNT_V {registers} is not within 1 to {MAX_REGISTERS}");
            return fail(Some(esr::REGISTER_COUNT), reason);
        }
        // CAST: at most MAX_REGISTERS.
        let registers = registers as u32;
        let room = SM.warps_for_registers(registers);
        if warps > room {
            let reason = format!(
                "{warps} warps of {registers} registers per thread: an SM has room for {room} of them"
            );
            return fail(Some(esr::CTA_REGISTERS), reason);
        }
        Ok(registers)
    }

    fn program(&self) -> Checked<u64> {
        let va = self.address(q::PROGRAM_ADDRESS_UPPER, q::PROGRAM_ADDRESS_LOWER);
        if !va.is_multiple_of(PROGRAM_ALIGNMENT) {
            let reason = format!("the program at {va:#x} is not aligned to {PROGRAM_ALIGNMENT} bytes");
            return fail(Some(esr::PROGRAM_OFFSET), reason);
        }
        Ok(va)
    }

    /// Shared memory per CTA, and per SM in the largest allowed configuration.
    fn shared_memory(&self) -> Checked<(u32, u32)> {
        let size = self.get(q::SHARED_MEMORY_SIZE);
        if !size.is_multiple_of(SHARED_UNIT) || size > MAX_SHARED {
            let reason = format!(
                "SHARED_MEMORY_SIZE {size:#x} is not a multiple of {SHARED_UNIT} up to {MAX_SHARED:#x}"
            );
            return fail(Some(esr::SHARED_MEMORY_SIZE), reason);
        }
        let fields = [
            q::MIN_SM_CONFIG_SHARED_MEM_SIZE,
            q::TARGET_SM_CONFIG_SHARED_MEM_SIZE,
            q::MAX_SM_CONFIG_SHARED_MEM_SIZE,
        ];
        // A launch that leaves the configuration open, as programs for the Orin Nano do.
        if size == 0 && fields.iter().all(|field| self.get32(*field) == 0) {
            // CAST: below 1 MiB.
            return Ok((0, MAX_SHARED as u32));
        }
        let config = |field: Field<q::Layout>| {
            let code = self.get32(field);
            match SHARED.config_bytes(code) {
                Some(bytes) => Ok(u64::from(bytes)),
                None => {
                    let reason = format!("{} {code} is not a configuration of an SM", field.info().name);
                    fail(Some(esr::SM_CONFIG_TOO_SMALL), reason)
                }
            }
        };
        let [min, target, max] = fields.map(config);
        let (min, target, max) = (min?, target?, max?);
        if min < size || target < min || max < target {
            let reason = format!(
                "shared memory of {size:#x} bytes wants SM configurations of at least that, ascending, \
                 but minimum, target and maximum are {min:#x}, {target:#x} and {max:#x}"
            );
            return fail(Some(esr::SM_CONFIG_TOO_SMALL), reason);
        }
        // CAST: at most MAX_SHARED.
        Ok((size as u32, max as u32))
    }

    fn constant_banks(&self) -> Checked<[Option<ConstantBank>; 8]> {
        let mut banks = [None; 8];
        let fields = q::CONSTANT_BUFFER_VALID
            .iter()
            .zip(q::CONSTANT_BUFFER_ADDR_UPPER.iter().zip(q::CONSTANT_BUFFER_ADDR_LOWER.iter()))
            .zip(q::CONSTANT_BUFFER_SIZE_SHIFTED4.iter());
        for (index, (bank, ((valid, (upper, lower)), size))) in banks.iter_mut().zip(fields).enumerate() {
            if self.get(valid) == 0 {
                continue;
            }
            let (va, bytes) = (self.address(upper, lower), self.get(size) << 4);
            if bytes > MAX_BANK {
                let reason = format!("constant buffer {index} of {bytes:#x} bytes is above 64 KiB");
                return fail(Some(esr::CONSTANT_BUFFER_SIZE), reason);
            }
            if !va.is_multiple_of(BANK_ALIGNMENT) {
                let reason =
                    format!("constant buffer {index} at {va:#x} is not aligned to {BANK_ALIGNMENT} bytes");
                return fail(None, reason);
            }
            // CAST: at most MAX_BANK.
            *bank = Some(ConstantBank { va, bytes: bytes as u32 });
        }
        Ok(banks)
    }

    fn dependent(&self) -> Checked<Option<Dependent>> {
        if self.get(q::DEPENDENT_QMD0_ENABLE) == 0 {
            return Ok(None);
        }
        let action = match self.get(q::DEPENDENT_QMD0_ACTION) {
            q::DEPENDENT_QMD0_ACTION_QMD_SCHEDULE => DependentAction::Schedule,
            q::DEPENDENT_QMD0_ACTION_QMD_INVALIDATE_COPY_SCHEDULE => DependentAction::InvalidateCopySchedule,
            q::DEPENDENT_QMD0_ACTION_QMD_DECREMENT_DEPENDENCE => DependentAction::DecrementDependence,
            action => return fail(None, format!("DEPENDENT_QMD0_ACTION {action} is not modelled")),
        };
        let va = pointed_va(self.get32(q::DEPENDENT_QMD0_POINTER));
        Ok(Some(Dependent { va, action, prefetch: self.get(q::DEPENDENT_QMD0_PREFETCH) != 0 }))
    }
}
