//! Launch descriptors (QMD) and constant bank 0: what differs between the generations of the GPU.
//!
//! The compute scheduler reads a descriptor from memory: which code to run, on what grid, with which resources.
//! Ampere takes version 3.0 (256 bytes, `clc7c0qmd.h`), Hopper version 4.0 (384 bytes, `clcbc0qmd.h`), in
//! which nearly every field lies elsewhere; a descriptor of the wrong version hangs the channel. Constant bank
//! 0 begins with words that NVIDIA's compiler expects of the driver; the parameters follow.

use ampere_cmd::command::PcasAction;
use ampere_cmd::dump::Classes;
use ampere_cmd::qmd::{Field, FieldInfo, Qmd, QmdV3_0, QmdV4_0, Version, v3_0, v4_0};

use crate::error::Result;
use crate::grid::Dim3;

mod bank0;
mod end;

pub(crate) use bank0::put_shape;
pub(crate) use end::{Link, Seen, read};
use end::{LinkedBarrier, ReleaseFields};

/// Alignment of a descriptor, in bytes.
pub(crate) const ALIGN: u64 = ampere_cmd::qmd::ALIGNMENT;
/// The initial stack pointer: the top of the 16 MiB local window less what lies above it.
const STACK_POINTER: u32 = (16 << 20) - STACK_RESERVE;
/// Bytes of a thread's local memory that lie above the initial stack pointer.
pub(crate) const STACK_RESERVE: u32 = 0x240;
/// Shared memory that belongs to the system in each block, in bytes.
pub(crate) const RESERVED_SHARED: u32 = 0x400;
/// Unit of the code prefetch at a launch, in bytes, and the largest number of units.
const PREFETCH: (u64, u64) = (256, 0x1ff);

/// A generation of GPUs, as far as launches are concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Generation {
    /// SM 8.x.
    Ampere,
    /// SM 9.0.
    Hopper,
}

impl Generation {
    /// By the SM version of the GPU.
    pub(crate) fn of(sm_version: (u32, u32)) -> Self {
        if sm_version.0 >= 9 { Self::Hopper } else { Self::Ampere }
    }

    /// The classes of its engines, for decoding commands.
    pub(crate) fn classes(self) -> &'static Classes {
        match self {
            Self::Ampere => &Classes::AMPERE,
            Self::Hopper => &Classes::HOPPER,
        }
    }

    /// What the scheduler does with a descriptor that the host engine gives it. Ring and graph memory is used again,
    /// so no cached copy is trusted.
    pub(crate) fn launch_action(self) -> PcasAction {
        match self {
            Self::Ampere => PcasAction::InvalidateCopySchedule,
            // 0.2 us faster on an H200.
            Self::Hopper => PcasAction::InvalidatePrefetchCopySchedule,
        }
    }

    /// Whether descriptors release timelines, unless a queue is told otherwise: 0.7 us faster on an H200.
    pub(crate) fn releases_by_descriptor(self) -> bool {
        match self {
            // It should work: nobody has tried.
            Self::Ampere => false,
            Self::Hopper => true,
        }
    }

    /// Words of a descriptor.
    pub(crate) fn words(self) -> usize {
        match self {
            Self::Ampere => QmdV3_0::WORDS,
            Self::Hopper => QmdV4_0::WORDS,
        }
    }

    /// Sizes that an SM's shared memory can be configured for, in KiB, ascending.
    fn shared_kib(self) -> &'static [u32] {
        match self {
            Self::Ampere => &ampere_cmd::qmd::SHARED_MEMORY_KIB_SM87,
            Self::Hopper => &[0, 8, 16, 32, 64, 100, 132, 164, 196, 228],
        }
    }

    /// Unit in which a block gets shared memory, in bytes.
    pub(crate) fn shared_unit(self) -> u32 {
        match self {
            Self::Ampere => 128,
            Self::Hopper => 256,
        }
    }

    /// Code of the smallest configuration with `bytes` bytes of shared memory.
    pub(crate) fn shared_config(self, bytes: u32) -> Option<u32> {
        self.shared_kib().iter().find(|kib| bytes <= *kib * 1024).map(|kib| kib / 4 + 1)
    }

    /// Code of the configuration that an SM is at most switched to for launches that need no more.
    fn usual_config(self) -> u32 {
        match self {
            Self::Ampere => 100 / 4 + 1,
            Self::Hopper => 228 / 4 + 1,
        }
    }

    /// Shared memory that the compiler has counted for a kernel, without what belongs to the system: from SM 9.0 on
    /// code that uses shared memory counts that as its own.
    pub(crate) fn own_shared(self, recorded: u32) -> u32 {
        match self {
            Self::Ampere => recorded,
            Self::Hopper => recorded.saturating_sub(RESERVED_SHARED),
        }
    }
}

/// Shared memory of a launch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SharedMemory {
    /// What the launch asks for beyond the kernel's own, in bytes.
    pub(crate) dynamic_bytes: u32,
    /// All that a block gets, as the launch descriptor wants it, in bytes.
    pub(crate) bytes: u32,
    /// Code of the smallest configuration of the SM that holds it.
    pub(crate) config: u32,
    /// Code of the one that holds as many blocks as the SM has room for otherwise.
    pub(crate) target: u32,
}

/// Grid, block and shared memory of a launch, checked against kernel and chip.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub(crate) grid: Dim3,
    pub(crate) block: Dim3,
    pub(crate) shared: SharedMemory,
    /// For a grid of at most one block per SM the number of blocks that an SM holds, if it is known; else 0.
    pub(crate) empty_sm_slots: u32,
}

/// What a kernel asks of a descriptor.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Code<'a> {
    pub(crate) kernel: &'a cubin::Kernel,
    pub(crate) code_va: u64,
    pub(crate) image_va: u64,
    pub(crate) local_bytes: u32,
    pub(crate) bank0_bytes: usize,
    /// The SM version in two digits of 4 bits.
    pub(crate) sass_version: u64,
}

/// A layout of the descriptor: where the fields are that a launch sets.
trait Layout: Version {
    /// Grid x, y, z.
    const GRID: [Field<Self>; 3];
    /// Block x, y, z.
    const BLOCK: [Field<Self>; 3];
    /// Shared memory of a block.
    const SHARED: Field<Self>;
    /// Smallest, wanted and largest configuration of the SM's shared memory.
    const CONFIG: [Field<Self>; 3];
    /// Low and high word of the code's address.
    const CODE: [Field<Self>; 2];
    /// Address of the descriptor that comes next.
    const NEXT: FieldInfo;
    /// Whether one comes next.
    const NEXT_ENABLE: FieldInfo;
    /// What the scheduler does with it, and the value for "read it anew, then run it".
    const NEXT_ACTION: (FieldInfo, u32);
    /// Whether it is read while the grid before it runs, where that was proven.
    const NEXT_PREFETCH: Option<FieldInfo>;
    /// What a grid with one behind it does instead of its usual barrier at the end, where that was proven.
    const NEXT_BARRIER: Option<LinkedBarrier>;
    /// The first release: see [`ReleaseFields`].
    const RELEASE: ReleaseFields;
    /// How many blocks an SM without any has room for, where that was tried. The scheduler begins a grid sooner when it
    /// knows: 0.08 us of a chained launch on an H200. It believes what it is told: with too large a number a grid that
    /// fills an SM ends in an exception, with too small a one blocks share an SM while others are idle. So only grids of
    /// at most one block per SM say it: they fill none, and are the ones that gain.
    const EMPTY_SM_SLOTS: Option<Field<Self>>;
    const GENERATION: Generation;

    /// Writes the address of a constant bank, a multiple of 64.
    fn set_bank(qmd: &mut Qmd<Self>, bank: u32, va: u64) -> Result<()>;

    /// Writes what every launch of a kernel has in common, but for banks, code, registers and the like, which
    /// have the same names in all versions.
    fn set_basics(qmd: &mut Qmd<Self>, code: &Code<'_>) -> Result<()>;
}

/// Writes the fields that have one name in all versions.
macro_rules! set_common {
    ($qmd:ident, $field:ident, $code:ident, $sass:expr) => {{
        let (prefetch_unit, prefetch_max) = PREFETCH;
        let Code { kernel, code_va, .. } = *$code;
        for (field, value) in [
            ($field::QMD_GROUP_ID, 0x3f),
            ($field::API_VISIBLE_CALL_LIMIT, 1),
            ($field::SAMPLER_INDEX, 1),
            // Caches may hold what earlier launches or the CPU have since overwritten.
            ($field::INVALIDATE_TEXTURE_HEADER_CACHE, 1),
            ($field::INVALIDATE_TEXTURE_SAMPLER_CACHE, 1),
            ($field::INVALIDATE_TEXTURE_DATA_CACHE, 1),
            ($field::INVALIDATE_SHADER_DATA_CACHE, 1),
            // 1: make the grid's stores visible to the whole system when it ends.
            ($field::CWD_MEMBAR_TYPE, 1),
            ($field::PROGRAM_ADDRESS_LOWER, code_va & 0xffff_ffff),
            ($field::PROGRAM_ADDRESS_UPPER, code_va >> 32),
            ($field::PROGRAM_PREFETCH_ADDR_LOWER_SHIFTED, code_va >> 8 & 0xffff_ffff),
            ($field::PROGRAM_PREFETCH_ADDR_UPPER_SHIFTED, code_va >> 40),
            ($field::PROGRAM_PREFETCH_SIZE, (kernel.code_bytes / prefetch_unit).min(prefetch_max)),
            ($field::SASS_VERSION, $sass),
            ($field::BARRIER_COUNT, u64::from(kernel.barriers)),
        ] {
            $qmd.set(field, value)?;
        }
        let banks = kernel.constants.iter();
        let banks = banks.map(|bank| (u32::from(bank.bank), $code.image_va + bank.offset, bank.bytes as u64));
        // Bank 0 is written with each launch.
        for (bank, va, bytes) in banks.chain([(0, 0, $code.bank0_bytes as u64)]) {
            $qmd.set($field::CONSTANT_BUFFER_VALID.at(bank)?, 1_u64)?;
            $qmd.set($field::CONSTANT_BUFFER_INVALIDATE.at(bank)?, 1_u64)?;
            $qmd.set($field::CONSTANT_BUFFER_SIZE_SHIFTED4.at(bank)?, bytes.div_ceil(16))?;
            Self::set_bank($qmd, bank, va)?;
        }
    }};
}

impl Layout for v3_0::Layout {
    const GRID: [Field<Self>; 3] = [v3_0::CTA_RASTER_WIDTH, v3_0::CTA_RASTER_HEIGHT, v3_0::CTA_RASTER_DEPTH];
    const BLOCK: [Field<Self>; 3] =
        [v3_0::CTA_THREAD_DIMENSION0, v3_0::CTA_THREAD_DIMENSION1, v3_0::CTA_THREAD_DIMENSION2];
    const SHARED: Field<Self> = v3_0::SHARED_MEMORY_SIZE;
    const CONFIG: [Field<Self>; 3] = [
        v3_0::MIN_SM_CONFIG_SHARED_MEM_SIZE,
        v3_0::TARGET_SM_CONFIG_SHARED_MEM_SIZE,
        v3_0::MAX_SM_CONFIG_SHARED_MEM_SIZE,
    ];
    const CODE: [Field<Self>; 2] = [v3_0::PROGRAM_ADDRESS_LOWER, v3_0::PROGRAM_ADDRESS_UPPER];
    const NEXT: FieldInfo = v3_0::DEPENDENT_QMD0_POINTER.info();
    const NEXT_ENABLE: FieldInfo = v3_0::DEPENDENT_QMD0_ENABLE.info();
    const NEXT_ACTION: (FieldInfo, u32) =
        (v3_0::DEPENDENT_QMD0_ACTION.info(), v3_0::DEPENDENT_QMD0_ACTION_QMD_INVALIDATE_COPY_SCHEDULE as u32);
    const NEXT_PREFETCH: Option<FieldInfo> = None;
    const NEXT_BARRIER: Option<LinkedBarrier> = None;
    const RELEASE: ReleaseFields = ReleaseFields {
        enable: v3_0::RELEASE0_ENABLE.info(),
        payload64: v3_0::RELEASE0_PAYLOAD64B.info(),
        // Nobody has proven that it can be left out.
        barrier: Some(v3_0::RELEASE0_MEMBAR_TYPE.info()),
        address: [v3_0::RELEASE0_ADDRESS_LOWER.info(), v3_0::RELEASE0_ADDRESS_UPPER.info()],
        payload: [v3_0::RELEASE0_PAYLOAD_LOWER.info(), v3_0::RELEASE0_PAYLOAD_UPPER.info()],
    };
    const EMPTY_SM_SLOTS: Option<Field<Self>> = None;
    const GENERATION: Generation = Generation::Ampere;

    #[inline]
    fn set_bank(qmd: &mut Qmd<Self>, bank: u32, va: u64) -> Result<()> {
        qmd.set(v3_0::CONSTANT_BUFFER_ADDR_LOWER.at(bank)?, va & 0xffff_ffff)?;
        qmd.set(v3_0::CONSTANT_BUFFER_ADDR_UPPER.at(bank)?, va >> 32)?;
        Ok(())
    }

    fn set_basics(qmd: &mut Qmd<Self>, code: &Code<'_>) -> Result<()> {
        set_common!(qmd, v3_0, code, code.sass_version);
        qmd.set(v3_0::QMD_MAJOR_VERSION, 3_u64)?;
        qmd.set(v3_0::SM_GLOBAL_CACHING_ENABLE, 1_u64)?;
        qmd.set(v3_0::REGISTER_COUNT_V, code.kernel.registers)?;
        qmd.set(v3_0::SHADER_LOCAL_MEMORY_HIGH_SIZE, code.local_bytes)?;
        Ok(())
    }
}

impl Layout for v4_0::Layout {
    const GRID: [Field<Self>; 3] = [v4_0::GRID_WIDTH, v4_0::GRID_HEIGHT, v4_0::GRID_DEPTH];
    const BLOCK: [Field<Self>; 3] =
        [v4_0::CTA_THREAD_DIMENSION0, v4_0::CTA_THREAD_DIMENSION1, v4_0::CTA_THREAD_DIMENSION2];
    const SHARED: Field<Self> = v4_0::SHARED_MEMORY_SIZE;
    const CONFIG: [Field<Self>; 3] = [
        v4_0::MIN_SM_CONFIG_SHARED_MEM_SIZE,
        v4_0::TARGET_SM_CONFIG_SHARED_MEM_SIZE,
        v4_0::MAX_SM_CONFIG_SHARED_MEM_SIZE,
    ];
    const CODE: [Field<Self>; 2] = [v4_0::PROGRAM_ADDRESS_LOWER, v4_0::PROGRAM_ADDRESS_UPPER];
    const NEXT: FieldInfo = v4_0::DEPENDENT_QMD0_POINTER.info();
    // Element 0 of both.
    const NEXT_ENABLE: FieldInfo = v4_0::DEPENDENT_QMD_ENABLE.info();
    const NEXT_ACTION: (FieldInfo, u32) =
        (v4_0::DEPENDENT_QMD_ACTION.info(), v4_0::DEPENDENT_QMD_ACTION_QMD_INVALIDATE_COPY_SCHEDULE as u32);
    const NEXT_PREFETCH: Option<FieldInfo> = Some(v4_0::DEPENDENT_QMD_PREFETCH.info());
    const NEXT_BARRIER: Option<LinkedBarrier> = Some(LinkedBarrier {
        chasing: v4_0::CWD_MEMBAR_TASK_CHASING_ENABLE.info(),
        kind: v4_0::CWD_MEMBAR_TYPE.info(),
        membar: v4_0::CWD_MEMBAR_TYPE_L1_MEMBAR as u32,
    });
    // Element 0 of the flags.
    const RELEASE: ReleaseFields = ReleaseFields {
        enable: v4_0::RELEASE_ENABLE.info(),
        payload64: v4_0::RELEASE_PAYLOAD64B.info(),
        // The grid's own barrier at its end (CWD_MEMBAR_TYPE) is enough on an H200; this one costs 0.4 us.
        barrier: None,
        address: [v4_0::RELEASE_SEMAPHORE0_ADDR_LOWER.info(), v4_0::RELEASE_SEMAPHORE0_ADDR_UPPER.info()],
        payload: [
            v4_0::RELEASE_SEMAPHORE0_PAYLOAD_LOWER.info(),
            v4_0::RELEASE_SEMAPHORE0_PAYLOAD_UPPER.info(),
        ],
    };
    const EMPTY_SM_SLOTS: Option<Field<Self>> = Some(v4_0::FREE_CTA_SLOTS_EMPTY_SM);
    const GENERATION: Generation = Generation::Hopper;

    #[inline]
    fn set_bank(qmd: &mut Qmd<Self>, bank: u32, va: u64) -> Result<()> {
        debug_assert!(va.is_multiple_of(64), "banks are aligned to 256");
        qmd.set(v4_0::CONSTANT_BUFFER_ADDR_LOWER_SHIFTED6.at(bank)?, va >> 6 & 0xffff_ffff)?;
        qmd.set(v4_0::CONSTANT_BUFFER_ADDR_UPPER_SHIFTED6.at(bank)?, va >> 38)?;
        Ok(())
    }

    fn set_basics(qmd: &mut Qmd<Self>, code: &Code<'_>) -> Result<()> {
        set_common!(qmd, v4_0, code, code.sass_version);
        qmd.set(v4_0::QMD_MAJOR_VERSION, 4_u64)?;
        qmd.set(v4_0::QMD_TYPE, v4_0::QMD_TYPE_GRID_CTA)?;
        // Bank 0 is read before the grid begins: 0.2 us of a chained launch on an H200.
        qmd.set(v4_0::CONSTANT_BUFFER_PREFETCH.at(0)?, v4_0::CONSTANT_BUFFER_PREFETCH_PREFETCH_PRE)?;
        qmd.set(v4_0::REGISTER_COUNT, code.kernel.registers)?;
        qmd.set(v4_0::SHADER_LOCAL_MEMORY_HIGH_SIZE, code.local_bytes)?;
        Ok(())
    }
}

/// A launch descriptor.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Descriptor {
    /// Version 3.0.
    Ampere(QmdV3_0),
    /// Version 4.0.
    Hopper(QmdV4_0),
}

impl Descriptor {
    /// The parts that are the same for every launch of a kernel.
    pub(crate) fn template(generation: Generation, code: &Code<'_>) -> Result<Self> {
        Ok(match generation {
            Generation::Ampere => {
                let mut qmd = QmdV3_0::new();
                v3_0::Layout::set_basics(&mut qmd, code)?;
                Self::Ampere(qmd)
            }
            Generation::Hopper => {
                let mut qmd = QmdV4_0::new();
                v4_0::Layout::set_basics(&mut qmd, code)?;
                Self::Hopper(qmd)
            }
        })
    }

    pub(crate) fn generation(&self) -> Generation {
        match self {
            Self::Ampere(_) => Generation::Ampere,
            Self::Hopper(_) => Generation::Hopper,
        }
    }

    /// Gives `store` the words of the descriptor of a launch whose bank 0 lies at `bank_va`. Returns how it is
    /// chained to another.
    #[inline]
    pub(crate) fn launch(&self, shape: &Shape, bank_va: u64, store: impl FnOnce(&[u32])) -> Result<Link> {
        match self {
            Self::Ampere(template) => launch(template, shape, bank_va, store),
            Self::Hopper(template) => launch(template, shape, bank_va, store),
        }
    }
}

#[inline]
fn launch<V: Layout>(
    template: &Qmd<V>,
    shape: &Shape,
    bank_va: u64,
    store: impl FnOnce(&[u32]),
) -> Result<Link> {
    let mut qmd = *template;
    let Shape { grid, block, shared, .. } = shape;
    for (field, value) in V::GRID.into_iter().zip([grid.x, grid.y, grid.z]) {
        qmd.set(field, value)?;
    }
    for (field, value) in V::BLOCK.into_iter().zip([block.x, block.y, block.z]) {
        qmd.set(field, value)?;
    }
    qmd.set(V::SHARED, shared.bytes)?;
    let [min, target, max] = V::CONFIG;
    qmd.set(min, shared.config)?;
    qmd.set(target, shared.target)?;
    qmd.set(max, shared.target.max(V::GENERATION.usual_config()))?;
    if let Some(field) = V::EMPTY_SM_SLOTS {
        qmd.set(field, shape.empty_sm_slots)?;
    }
    V::set_bank(&mut qmd, 0, bank_va)?;
    let words = qmd.as_words();
    store(words);
    Ok(Link::of::<V>(words))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stack_pointer_is_the_one_the_compiler_counts_on() {
        assert_eq!(STACK_POINTER, 0xff_fdc0);
    }

    fn shape() -> Shape {
        let shared = SharedMemory { dynamic_bytes: 16, bytes: 2048, config: 3, target: 5 };
        Shape { grid: Dim3::from([70_000, 3, 5]), block: Dim3::from([32, 2, 4]), shared, empty_sm_slots: 7 }
    }

    /// Launches a template of zeros, links it and reads it back.
    fn round_trip(descriptor: &Descriptor) -> Vec<u32> {
        let mut words = Vec::new();
        let link =
            descriptor.launch(&shape(), 0x12_3456_7800, |image| words.extend_from_slice(image)).unwrap();
        let generation = descriptor.generation();
        assert_eq!(words.len(), generation.words());
        assert_eq!(read(generation, &words).unwrap().next, None);
        // SAFETY: the vector has the size of a descriptor.
        unsafe { link.store(0xab_cdef_1200, words.as_mut_ptr().cast()) };
        let seen = read(generation, &words).unwrap();
        assert_eq!((seen.grid, seen.block), (shape().grid, shape().block));
        assert_eq!(seen.next, Some(0xab_cdef_1200));
        words
    }

    #[test]
    fn a_launch_on_ampere_sets_its_fields_and_a_link_nothing_else() {
        let words = round_trip(&Descriptor::Ampere(QmdV3_0::new()));
        let mut expected = QmdV3_0::new();
        for (field, value) in [
            (v3_0::CTA_RASTER_WIDTH, 70_000_u64),
            (v3_0::CTA_RASTER_HEIGHT, 3),
            (v3_0::CTA_RASTER_DEPTH, 5),
            (v3_0::CTA_THREAD_DIMENSION0, 32),
            (v3_0::CTA_THREAD_DIMENSION1, 2),
            (v3_0::CTA_THREAD_DIMENSION2, 4),
            (v3_0::SHARED_MEMORY_SIZE, 2048),
            (v3_0::MIN_SM_CONFIG_SHARED_MEM_SIZE, 3),
            (v3_0::TARGET_SM_CONFIG_SHARED_MEM_SIZE, 5),
            (v3_0::MAX_SM_CONFIG_SHARED_MEM_SIZE, 26),
            (v3_0::CONSTANT_BUFFER_ADDR_LOWER.at(0).unwrap(), 0x3456_7800),
            (v3_0::CONSTANT_BUFFER_ADDR_UPPER.at(0).unwrap(), 0x12),
            (v3_0::DEPENDENT_QMD0_POINTER, 0xab_cdef_1200 >> 8),
            (v3_0::DEPENDENT_QMD0_ENABLE, 1),
            (v3_0::DEPENDENT_QMD0_ACTION, 3),
        ] {
            expected.set(field, value).unwrap();
        }
        assert_eq!(words, expected.as_words());
    }

    #[test]
    fn a_launch_on_hopper_sets_its_fields_and_a_link_nothing_else() {
        let words = round_trip(&Descriptor::Hopper(QmdV4_0::new()));
        let mut expected = QmdV4_0::new();
        for (field, value) in [
            (v4_0::GRID_WIDTH, 70_000_u64),
            (v4_0::GRID_HEIGHT, 3),
            (v4_0::GRID_DEPTH, 5),
            (v4_0::CTA_THREAD_DIMENSION0, 32),
            (v4_0::CTA_THREAD_DIMENSION1, 2),
            (v4_0::CTA_THREAD_DIMENSION2, 4),
            (v4_0::SHARED_MEMORY_SIZE, 2048),
            (v4_0::MIN_SM_CONFIG_SHARED_MEM_SIZE, 3),
            (v4_0::TARGET_SM_CONFIG_SHARED_MEM_SIZE, 5),
            (v4_0::MAX_SM_CONFIG_SHARED_MEM_SIZE, 58),
            (v4_0::CONSTANT_BUFFER_ADDR_LOWER_SHIFTED6.at(0).unwrap(), 0x12_3456_7800 >> 6),
            (v4_0::FREE_CTA_SLOTS_EMPTY_SM, 7),
            (v4_0::DEPENDENT_QMD0_POINTER, 0xab_cdef_1200 >> 8),
            (v4_0::DEPENDENT_QMD_ENABLE.at(0).unwrap(), 1),
            (v4_0::DEPENDENT_QMD_ACTION.at(0).unwrap(), 3),
            (v4_0::DEPENDENT_QMD_PREFETCH.at(0).unwrap(), 1),
            (v4_0::CWD_MEMBAR_TASK_CHASING_ENABLE, 1),
            (v4_0::CWD_MEMBAR_TYPE, v4_0::CWD_MEMBAR_TYPE_L1_MEMBAR),
        ] {
            expected.set(field, value).unwrap();
        }
        assert_eq!(words, expected.as_words());
    }

    fn releases(descriptor: &Descriptor, va: u64, value: u64) -> (Vec<u32>, Result<()>) {
        let mut words = Vec::new();
        descriptor.launch(&shape(), 0x12_3456_7800, |image| words.extend_from_slice(image)).unwrap();
        // SAFETY: the vector has the size of a descriptor.
        let result = unsafe { descriptor.generation().store_release(va, value, words.as_mut_ptr().cast()) };
        (words, result)
    }

    #[test]
    fn a_release_sets_its_fields_and_nothing_else() {
        const VALUE: u64 = 0x1122_3344_5566_7788;
        let ampere = Descriptor::Ampere(QmdV3_0::new());
        let (words, result) = releases(&ampere, 0xab_cdef_1230, VALUE);
        result.unwrap();
        assert_eq!(read(Generation::Ampere, &words).unwrap().release, Some((0xab_cdef_1230, VALUE)));
        let mut expected = QmdV3_0::from_slice(&releases(&ampere, 1, 0).0).unwrap();
        for (field, value) in [
            (v3_0::RELEASE0_ENABLE, 1),
            (v3_0::RELEASE0_STRUCTURE_SIZE, v3_0::RELEASE0_STRUCTURE_SIZE_SEMAPHORE_FOUR_WORDS),
            (v3_0::RELEASE0_PAYLOAD64B, 1),
            (v3_0::RELEASE0_MEMBAR_TYPE, v3_0::RELEASE0_MEMBAR_TYPE_FE_SYSMEMBAR),
            (v3_0::RELEASE0_ADDRESS_LOWER, 0xcdef_1230),
            (v3_0::RELEASE0_ADDRESS_UPPER, 0xab),
            (v3_0::RELEASE0_PAYLOAD_LOWER, VALUE & 0xffff_ffff),
            (v3_0::RELEASE0_PAYLOAD_UPPER, VALUE >> 32),
        ] {
            expected.set(field, value).unwrap();
        }
        assert_eq!(words, expected.as_words());

        let hopper = Descriptor::Hopper(QmdV4_0::new());
        let (words, result) = releases(&hopper, 0x1ab_cdef_1230, VALUE);
        result.unwrap();
        assert_eq!(read(Generation::Hopper, &words).unwrap().release, Some((0x1ab_cdef_1230, VALUE)));
        let mut expected = QmdV4_0::from_slice(&releases(&hopper, 1, 0).0).unwrap();
        for (field, value) in [
            (v4_0::RELEASE_ENABLE.at(0).unwrap(), 1),
            (v4_0::RELEASE_PAYLOAD64B.at(0).unwrap(), 1),
            (v4_0::RELEASE_SEMAPHORE0_ADDR_LOWER, 0xcdef_1230),
            (v4_0::RELEASE_SEMAPHORE0_ADDR_UPPER, 0x1ab),
            (v4_0::RELEASE_SEMAPHORE0_PAYLOAD_LOWER, VALUE & 0xffff_ffff),
            (v4_0::RELEASE_SEMAPHORE0_PAYLOAD_UPPER, VALUE >> 32),
        ] {
            expected.set(field, value).unwrap();
        }
        assert_eq!(words, expected.as_words());
    }

    #[test]
    fn a_release_that_is_revoked_leaves_nothing() {
        for descriptor in [Descriptor::Ampere(QmdV3_0::new()), Descriptor::Hopper(QmdV4_0::new())] {
            let (mut words, result) = releases(&descriptor, 0xab_cdef_1230, u64::MAX);
            result.unwrap();
            // SAFETY: the vector has the size of a descriptor.
            unsafe { descriptor.generation().clear_release(words.as_mut_ptr().cast()) };
            assert_eq!(words, releases(&descriptor, 1, 0).0);
        }
    }

    #[test]
    fn an_address_that_does_not_fit_a_release_is_refused_and_nothing_is_written() {
        let ampere = Descriptor::Ampere(QmdV3_0::new());
        for va in [1 << 40, 0x1008] {
            let (words, result) = releases(&ampere, va, 7);
            assert!(result.is_err(), "{va:#x}");
            assert_eq!(read(Generation::Ampere, &words).unwrap().release, None);
        }
    }

    #[test]
    fn configurations_of_shared_memory_are_those_of_the_chip() {
        assert_eq!(Generation::Ampere.shared_config(1024), Some(3));
        assert_eq!(Generation::Ampere.shared_config(164 << 10), Some(42));
        assert_eq!(Generation::Ampere.shared_config((164 << 10) + 1), None);
        assert_eq!(Generation::Hopper.shared_config((164 << 10) + 1), Some(50));
        assert_eq!(Generation::Hopper.shared_config((228 << 10) + 1), None);
    }
}
