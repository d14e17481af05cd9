//! The layouts of the launch descriptor: which field of each version a launch sets.

use ampere_cmd::qmd::{Field, Group, Patch, Qmd, Version, v3_0, v4_0};

use super::Code;
use crate::error::Result;
use crate::limits::Priority;

/// Unit of the code prefetch at a launch, in bytes.
const PREFETCH_UNIT: u64 = 256;

/// A version of the descriptor, with the fields that a launch sets. What the fields are set to depends on the chip and
/// is in the chip table.
pub(crate) trait Layout: Version {
    /// Grid x, y, z.
    const GRID: [Field<Self>; 3];
    /// The group of grids. Blocks of a group with a lower number are placed first: seen on an H100 for neighbours from
    /// 58 to 63, and for 0 and 1 beside 63. A grid of a lower number then ended within 20 µs beside one that had 1.7 ms
    /// of blocks left.
    const GROUP: Field<Self>;
    /// Block x, y, z.
    const BLOCK: [Field<Self>; 3];
    /// Shared memory of a block.
    const SHARED: Field<Self>;
    /// Smallest, target and largest configuration of the SM's shared memory.
    const CONFIG: [Field<Self>; 3];
    /// Number of blocks that an empty SM has room for.
    const EMPTY_SM_SLOTS: Field<Self>;
    /// Low and high word of the code's address.
    const CODE: [Field<Self>; 2];
    /// Barrier at the end of the grid.
    const BARRIER: Field<Self>;
    /// The descriptor that follows.
    const NEXT: Next<Self>;
    /// Field and value that make the scheduler prefetch constant bank 0 before the grid begins; `None` if the version
    /// has none.
    const BANK0_PREFETCH: Option<(Field<Self>, u64)>;
    /// The fields about latches; `None` if the version has none.
    const LATCHES: Option<LatchFields<Self>>;
    /// Kind of the grid, the value for clusters, and the blocks of a cluster along x, y, z; `None` if the version has
    /// none.
    const CLUSTERS: Option<(Field<Self>, u64, [Field<Self>; 3])>;
    /// The first release.
    const RELEASE: Group<Self, RELEASE_FIELDS>;

    /// Lower and upper field of the address of constant bank 0.
    const BANK0: [Field<Self>; 2];
    /// Lower and upper field of the address of a constant bank.
    fn bank(bank: u32) -> Result<[Field<Self>; 2]>;

    /// Sets what all launches of a kernel have in common, except fields that depend on the chip.
    fn set_basics(qmd: &mut Qmd<Self>, code: &Code<'_>) -> Result<()>;
}

/// The fields about the descriptor that follows.
pub(crate) struct Next<V> {
    /// Its address, shifted right by 8. The field is a whole word.
    pub(crate) pointer: Field<V>,
    /// Whether there is one.
    pub(crate) enable: Field<V>,
    /// The scheduler's action on it.
    pub(crate) action: Field<V>,
    /// Whether the scheduler reads it while the grid before it runs.
    pub(crate) prefetch: Field<V>,
    /// Whether the barrier between both overlaps the tasks that it follows; `None` if the version lacks the field.
    pub(crate) chasing: Option<Field<V>>,
}

/// The fields with which grids overlap.
pub(crate) struct LatchFields<V> {
    /// Whether blocks can let the next grid begin before they end.
    pre_exit: Field<V>,
    /// Whether the grid arrives at a latch.
    arrive: Field<V>,
    /// The number of that latch. The field is a whole word.
    pub(crate) arrive_number: Field<V>,
    /// Whether the grid waits for a latch, and its number.
    wait: [Field<V>; 2],
    /// Whether the first-level caches forget data when the wait ends: what they read before may be old.
    invalidate: [Field<V>; 2],
}

impl<V: Version> LatchFields<V> {
    /// Makes a chained grid arrive at its latch.
    pub(super) fn arrive<const WORDS: usize>(self, chain: Patch<V, WORDS>) -> Result<Patch<V, WORDS>> {
        Ok(chain.with(self.pre_exit, 1)?.with(self.arrive, 1)?)
    }

    /// Makes a grid wait for a latch, if there is one.
    #[inline]
    pub(crate) fn wait(self, qmd: &mut Qmd<V>, latch: Option<u32>) -> Result<()> {
        if let Some(latch) = latch {
            let [valid, number] = self.wait;
            qmd.set(valid, 1_u64)?;
            qmd.set(number, latch)?;
            for field in self.invalidate {
                qmd.set(field, 1_u64)?;
            }
        }
        Ok(())
    }
}

/// Number of fields of a release: enable, 64-bit payload, system barrier, address (low, high), payload (low, high). The
/// structure size and all other fields stay 0: four words (payload and time), no reduction, no interrupt.
pub(crate) const RELEASE_FIELDS: usize = 7;

/// Sets the fields that have the same name in all versions.
macro_rules! set_common {
    ($qmd:ident, $field:ident, $code:ident) => {{
        let Code { kernel, code_va, .. } = *$code;
        let prefetch_max = u64::from($field::PROGRAM_PREFETCH_SIZE.info().max());
        for (field, value) in [
            ($field::QMD_MAJOR_VERSION, u64::from(Self::MAJOR)),
            ($field::QMD_GROUP_ID, u64::from(Priority::USUAL.group())),
            ($field::API_VISIBLE_CALL_LIMIT, 1),
            // The sampler with the number of the header: see `texture_table`.
            ($field::SAMPLER_INDEX, $field::SAMPLER_INDEX_VIA_HEADER_INDEX),
            // Caches may hold data that earlier launches or the CPU have overwritten.
            ($field::INVALIDATE_TEXTURE_HEADER_CACHE, 1),
            ($field::INVALIDATE_TEXTURE_SAMPLER_CACHE, 1),
            ($field::INVALIDATE_TEXTURE_DATA_CACHE, 1),
            ($field::INVALIDATE_SHADER_DATA_CACHE, 1),
            // The grid's stores are visible to the whole system when it ends.
            ($field::CWD_MEMBAR_TYPE, $field::CWD_MEMBAR_TYPE_L1_SYSMEMBAR),
            ($field::PROGRAM_PREFETCH_SIZE, (kernel.code_bytes / PREFETCH_UNIT).min(prefetch_max)),
            ($field::SASS_VERSION, $code.sass_version),
            ($field::BARRIER_COUNT, u64::from(kernel.barriers)),
            ($field::SHADER_LOCAL_MEMORY_HIGH_SIZE, u64::from($code.local_bytes)),
        ] {
            $qmd.set(field, value)?;
        }
        $qmd.set_address($field::PROGRAM_ADDRESS_LOWER, $field::PROGRAM_ADDRESS_UPPER, code_va)?;
        $qmd.set_address(
            $field::PROGRAM_PREFETCH_ADDR_LOWER_SHIFTED,
            $field::PROGRAM_PREFETCH_ADDR_UPPER_SHIFTED,
            code_va - code_va % PREFETCH_UNIT,
        )?;
        let banks = kernel.constants.iter();
        let banks = banks.map(|bank| (u32::from(bank.bank), $code.image_va + bank.offset, bank.bytes as u64));
        // Each launch sets the address of bank 0.
        for (bank, va, bytes) in banks.chain([(0, 0, $code.bank0_bytes as u64)]) {
            $qmd.set($field::CONSTANT_BUFFER_VALID.at(bank)?, 1_u64)?;
            $qmd.set($field::CONSTANT_BUFFER_INVALIDATE.at(bank)?, 1_u64)?;
            $qmd.set_shifted($field::CONSTANT_BUFFER_SIZE_SHIFTED4.at(bank)?, bytes.next_multiple_of(16))?;
            let [lower, upper] = Self::bank(bank)?;
            $qmd.set_address(lower, upper, va)?;
        }
    }};
}

impl Layout for v3_0::Layout {
    const GRID: [Field<Self>; 3] = [v3_0::CTA_RASTER_WIDTH, v3_0::CTA_RASTER_HEIGHT, v3_0::CTA_RASTER_DEPTH];
    const GROUP: Field<Self> = v3_0::QMD_GROUP_ID;
    const BLOCK: [Field<Self>; 3] =
        [v3_0::CTA_THREAD_DIMENSION0, v3_0::CTA_THREAD_DIMENSION1, v3_0::CTA_THREAD_DIMENSION2];
    const SHARED: Field<Self> = v3_0::SHARED_MEMORY_SIZE;
    const CONFIG: [Field<Self>; 3] = [
        v3_0::MIN_SM_CONFIG_SHARED_MEM_SIZE,
        v3_0::TARGET_SM_CONFIG_SHARED_MEM_SIZE,
        v3_0::MAX_SM_CONFIG_SHARED_MEM_SIZE,
    ];
    const EMPTY_SM_SLOTS: Field<Self> = v3_0::FREE_CTA_SLOTS_EMPTY_SM;
    const CODE: [Field<Self>; 2] = [v3_0::PROGRAM_ADDRESS_LOWER, v3_0::PROGRAM_ADDRESS_UPPER];
    const BARRIER: Field<Self> = v3_0::CWD_MEMBAR_TYPE;
    const NEXT: Next<Self> = Next {
        pointer: v3_0::DEPENDENT_QMD0_POINTER,
        enable: v3_0::DEPENDENT_QMD0_ENABLE,
        action: v3_0::DEPENDENT_QMD0_ACTION,
        prefetch: v3_0::DEPENDENT_QMD0_PREFETCH,
        chasing: None,
    };
    const BANK0_PREFETCH: Option<(Field<Self>, u64)> = None;
    const LATCHES: Option<LatchFields<Self>> = None;
    const CLUSTERS: Option<(Field<Self>, u64, [Field<Self>; 3])> = None;
    const BANK0: [Field<Self>; 2] =
        [v3_0::CONSTANT_BUFFER_ADDR_LOWER.first(), v3_0::CONSTANT_BUFFER_ADDR_UPPER.first()];
    const RELEASE: Group<Self, RELEASE_FIELDS> = Group::new([
        v3_0::RELEASE0_ENABLE,
        v3_0::RELEASE0_PAYLOAD64B,
        v3_0::RELEASE0_MEMBAR_TYPE,
        v3_0::RELEASE0_ADDRESS_LOWER,
        v3_0::RELEASE0_ADDRESS_UPPER,
        v3_0::RELEASE0_PAYLOAD_LOWER,
        v3_0::RELEASE0_PAYLOAD_UPPER,
    ]);

    fn bank(bank: u32) -> Result<[Field<Self>; 2]> {
        Ok([v3_0::CONSTANT_BUFFER_ADDR_LOWER.at(bank)?, v3_0::CONSTANT_BUFFER_ADDR_UPPER.at(bank)?])
    }

    fn set_basics(qmd: &mut Qmd<Self>, code: &Code<'_>) -> Result<()> {
        set_common!(qmd, v3_0, code);
        qmd.set(v3_0::SM_GLOBAL_CACHING_ENABLE, 1_u64)?;
        qmd.set(v3_0::REGISTER_COUNT_V, code.registers)?;
        Ok(())
    }
}

impl Layout for v4_0::Layout {
    const GRID: [Field<Self>; 3] = [v4_0::GRID_WIDTH, v4_0::GRID_HEIGHT, v4_0::GRID_DEPTH];
    const GROUP: Field<Self> = v4_0::QMD_GROUP_ID;
    const BLOCK: [Field<Self>; 3] =
        [v4_0::CTA_THREAD_DIMENSION0, v4_0::CTA_THREAD_DIMENSION1, v4_0::CTA_THREAD_DIMENSION2];
    const SHARED: Field<Self> = v4_0::SHARED_MEMORY_SIZE;
    const CONFIG: [Field<Self>; 3] = [
        v4_0::MIN_SM_CONFIG_SHARED_MEM_SIZE,
        v4_0::TARGET_SM_CONFIG_SHARED_MEM_SIZE,
        v4_0::MAX_SM_CONFIG_SHARED_MEM_SIZE,
    ];
    const EMPTY_SM_SLOTS: Field<Self> = v4_0::FREE_CTA_SLOTS_EMPTY_SM;
    const CODE: [Field<Self>; 2] = [v4_0::PROGRAM_ADDRESS_LOWER, v4_0::PROGRAM_ADDRESS_UPPER];
    const BARRIER: Field<Self> = v4_0::CWD_MEMBAR_TYPE;
    const NEXT: Next<Self> = Next {
        pointer: v4_0::DEPENDENT_QMD0_POINTER,
        enable: v4_0::DEPENDENT_QMD_ENABLE.first(),
        action: v4_0::DEPENDENT_QMD_ACTION.first(),
        prefetch: v4_0::DEPENDENT_QMD_PREFETCH.first(),
        chasing: Some(v4_0::CWD_MEMBAR_TASK_CHASING_ENABLE),
    };
    const BANK0_PREFETCH: Option<(Field<Self>, u64)> =
        Some((v4_0::CONSTANT_BUFFER_PREFETCH.first(), v4_0::CONSTANT_BUFFER_PREFETCH_PREFETCH_PRE));
    const BANK0: [Field<Self>; 2] = [
        v4_0::CONSTANT_BUFFER_ADDR_LOWER_SHIFTED6.first(),
        v4_0::CONSTANT_BUFFER_ADDR_UPPER_SHIFTED6.first(),
    ];
    const LATCHES: Option<LatchFields<Self>> = Some(LatchFields {
        pre_exit: v4_0::ENABLE_PROGRAM_PRE_EXIT,
        arrive: v4_0::ARRIVE_AT_LATCH_VALID,
        arrive_number: v4_0::ARRIVE_AT_LATCH_ID,
        wait: [v4_0::WAIT_ON_LATCH_VALID, v4_0::WAIT_ON_LATCH_ID],
        invalidate: [
            v4_0::LATCH_ACQUIRE_INVALIDATE_SHADER_DATA_CACHE,
            v4_0::LATCH_ACQUIRE_INVALIDATE_TEXTURE_DATA_CACHE,
        ],
    });
    const CLUSTERS: Option<(Field<Self>, u64, [Field<Self>; 3])> = Some((
        v4_0::QMD_TYPE,
        v4_0::QMD_TYPE_GRID_GPC_CGA,
        [v4_0::GPC_CGA_WIDTH, v4_0::GPC_CGA_HEIGHT, v4_0::GPC_CGA_DEPTH],
    ));
    const RELEASE: Group<Self, RELEASE_FIELDS> = Group::new([
        v4_0::RELEASE_ENABLE.first(),
        v4_0::RELEASE_PAYLOAD64B.first(),
        v4_0::RELEASE_MEMBAR_TYPE.first(),
        v4_0::RELEASE_SEMAPHORE0_ADDR_LOWER,
        v4_0::RELEASE_SEMAPHORE0_ADDR_UPPER,
        v4_0::RELEASE_SEMAPHORE0_PAYLOAD_LOWER,
        v4_0::RELEASE_SEMAPHORE0_PAYLOAD_UPPER,
    ]);

    fn bank(bank: u32) -> Result<[Field<Self>; 2]> {
        Ok([
            v4_0::CONSTANT_BUFFER_ADDR_LOWER_SHIFTED6.at(bank)?,
            v4_0::CONSTANT_BUFFER_ADDR_UPPER_SHIFTED6.at(bank)?,
        ])
    }

    fn set_basics(qmd: &mut Qmd<Self>, code: &Code<'_>) -> Result<()> {
        set_common!(qmd, v4_0, code);
        qmd.set(v4_0::QMD_TYPE, v4_0::QMD_TYPE_GRID_CTA)?;
        qmd.set(v4_0::REGISTER_COUNT, code.registers)?;
        Ok(())
    }
}

/// Proves for a layout what launches rely on: the pointer of the next descriptor fills its word, and no field
/// that a launch sets shares a word with a release, so both can be written without reading.
const fn check<V: Layout>() {
    assert!(V::NEXT.pointer.info().width() == 32, "the pointer fills its word");
    if let Some(fields) = V::LATCHES {
        assert!(fields.arrive_number.info().width() == 32, "the number fills its word");
        assert!(!V::RELEASE.shares_word(fields.arrive), "the words of a release contain nothing else");
    }
    let [width, height, depth] = V::GRID;
    let [x, y, z] = V::BLOCK;
    let [min, target, max] = V::CONFIG;
    let [low, high] = V::CODE;
    let launched = [
        width,
        height,
        depth,
        x,
        y,
        z,
        V::SHARED,
        min,
        target,
        max,
        low,
        high,
        V::EMPTY_SM_SLOTS,
        V::BARRIER,
        V::NEXT.pointer,
    ];
    let mut at = 0;
    while at < launched.len() {
        assert!(!V::RELEASE.shares_word(launched[at]), "the words of a release contain nothing else");
        at += 1;
    }
}

const _: () = check::<v3_0::Layout>();
const _: () = check::<v4_0::Layout>();
