//! Launch descriptors (QMD) and constant bank 0: what differs between the generations of the GPU.
//!
//! The compute scheduler reads a descriptor from memory: which code to run, on what grid, with which resources.
//! Ampere takes version 3.0 (256 bytes, `clc7c0qmd.h`), Hopper version 4.0 (384 bytes, `clcbc0qmd.h`), in
//! which nearly every field lies elsewhere; a descriptor of the wrong version hangs the channel. Constant bank
//! 0 begins with words that NVIDIA's compiler expects of the driver; the parameters follow.

use ampere_cmd::command::PcasAction;
use ampere_cmd::dump::Classes;
use ampere_cmd::qmd::{Field, FieldInfo, Qmd, QmdV3_0, QmdV4_0, Version, v3_0, v4_0};

use crate::backend::Properties;
use crate::error::Result;
use crate::grid::Dim3;

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

    /// Constant bank 0 of `bytes` bytes or more, with the words that are the same for every launch. Bank 3, the
    /// `__constant__` variables, lies at `constants_va`.
    pub(crate) fn bank0(self, bytes: usize, constants_va: u64, properties: &Properties) -> Vec<u8> {
        let places = self.places();
        let mut bank = vec![0; bytes.max(places.end).next_multiple_of(16)];
        if let Some(at) = places.shared_window {
            put(&mut bank, at, &properties.shared_window.to_le_bytes());
        }
        put(&mut bank, bank0::LOCAL_WINDOW, &properties.local_window.to_le_bytes());
        put(&mut bank, bank0::STACK_POINTER, &STACK_POINTER.to_le_bytes());
        put(&mut bank, bank0::SM_COUNT, &properties.sm_count.to_le_bytes());
        put(&mut bank, places.constants, &constants_va.to_le_bytes());
        put(&mut bank, bank0::RESERVED_SHARED, &RESERVED_SHARED.to_le_bytes());
        if self == Self::Hopper {
            put(&mut bank, bank0::RESERVED_SHARED_END, &RESERVED_SHARED.to_le_bytes());
            // A block is a cluster of its own.
            for axis in 0..3 {
                put(&mut bank, bank0::CLUSTER + 4 * axis, &1_u32.to_le_bytes());
            }
            put(&mut bank, bank0::CLUSTER_RECIPROCAL, &1_f32.to_le_bytes());
            put(&mut bank, bank0::CLUSTER_BLOCKS, &1_u32.to_le_bytes());
        }
        bank
    }

    fn places(self) -> Places {
        match self {
            Self::Ampere => Places { shared_window: Some(0x18), constants: 0x50, end: 0x160 },
            Self::Hopper => Places { shared_window: None, constants: 0xd0, end: 0x210 },
        }
    }
}

/// Where bank 0 has what the generations place differently, as byte offsets.
struct Places {
    /// Generic address of the shared window (u64).
    shared_window: Option<usize>,
    /// Generic address of constant bank 3 (u64).
    constants: usize,
    /// End of the driver words; parameters begin here or later.
    end: usize,
}

/// Byte offsets of the driver words in constant bank 0.
mod bank0 {
    /// Block size x, y, z (u32 each).
    pub(super) const BLOCK: usize = 0x00;
    /// Grid size x, y, z (u32 each).
    pub(super) const GRID: usize = 0x0c;
    /// Generic address of the local window (u64).
    pub(super) const LOCAL_WINDOW: usize = 0x20;
    /// Initial stack pointer (u32).
    pub(super) const STACK_POINTER: usize = 0x28;
    /// Dynamic shared memory in bytes (u32).
    pub(super) const DYNAMIC_SHARED: usize = 0x2c;
    /// Number of SMs (u32).
    pub(super) const SM_COUNT: usize = 0x10c;
    /// Shared memory that belongs to the system (u32): what code subtracts from the size of a block's shared memory.
    pub(super) const RESERVED_SHARED: usize = 0x114;
    /// Hopper: where that ends (u32).
    pub(super) const RESERVED_SHARED_END: usize = 0x68;
    /// Hopper: blocks of a cluster x, y, z (u32 each).
    pub(super) const CLUSTER: usize = 0x144;
    /// Hopper: 1 / blocks of a cluster in x (f32).
    pub(super) const CLUSTER_RECIPROCAL: usize = 0x150;
    /// Hopper: clusters of the grid x, y, z (u32 each).
    pub(super) const CLUSTERS: usize = 0x15c;
    /// Hopper: blocks of a cluster (u32).
    pub(super) const CLUSTER_BLOCKS: usize = 0x188;
}

/// Writes bytes at an offset.
pub(crate) fn put(bank: &mut [u8], offset: usize, bytes: &[u8]) {
    bank[offset..offset + bytes.len()].copy_from_slice(bytes);
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
    let Shape { grid, block, shared } = shape;
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
    V::set_bank(&mut qmd, 0, bank_va)?;
    let words = qmd.as_words();
    store(words);
    Ok(Link { generation: V::GENERATION, flags: words[Link::flags_at::<V>()] })
}

/// Writes the driver words of bank 0 that depend on the launch.
#[inline]
pub(crate) fn put_shape(generation: Generation, bank: &mut [u8], shape: &Shape) {
    let (grid, block) = (shape.grid.to_array(), shape.block.to_array());
    for (axis, (block, grid)) in block.into_iter().zip(grid).enumerate() {
        put(bank, bank0::BLOCK + 4 * axis, &block.to_le_bytes());
        put(bank, bank0::GRID + 4 * axis, &grid.to_le_bytes());
    }
    put(bank, bank0::DYNAMIC_SHARED, &shape.shared.dynamic_bytes.to_le_bytes());
    if generation == Generation::Hopper {
        for (axis, grid) in grid.into_iter().enumerate() {
            put(bank, bank0::CLUSTERS + 4 * axis, &grid.to_le_bytes());
        }
    }
}

/// The words of a descriptor that lead to the next one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Link {
    generation: Generation,
    /// The word with the flags, as it is without a next one.
    flags: u32,
}

impl Link {
    /// Index of the word with the flags.
    const fn flags_at<V: Layout>() -> usize {
        let (action, _) = V::NEXT_ACTION;
        assert!(V::NEXT_ENABLE.lo / 32 == action.lo / 32, "both flags lie in one word");
        (action.lo / 32) as usize
    }

    /// What a link adds to that word.
    const fn flags<V: Layout>() -> u32 {
        let (action, value) = V::NEXT_ACTION;
        let prefetch = match V::NEXT_PREFETCH {
            Some(field) => 1 << (field.lo % 32),
            None => 0,
        };
        1 << (V::NEXT_ENABLE.lo % 32) | value << (action.lo % 32) | prefetch
    }

    /// Makes the scheduler go on with the descriptor at `next_va` when the grid of the one at `qmd_at` has
    /// ended. The scheduler takes a private copy, so a stale one of an earlier launch at this address is never
    /// used.
    ///
    /// # Safety
    ///
    /// `qmd_at` is valid for volatile writes of the descriptor that the link was made for, aligned to 8, and the
    /// GPU does not use it.
    #[inline]
    pub(crate) unsafe fn store(self, next_va: u64, qmd_at: *mut u8) {
        // SAFETY: the caller's promise is passed on.
        unsafe {
            match self.generation {
                Generation::Ampere => self.store_in::<v3_0::Layout>(next_va, qmd_at),
                Generation::Hopper => self.store_in::<v4_0::Layout>(next_va, qmd_at),
            }
        }
    }

    /// As [`Link::store`].
    #[inline]
    unsafe fn store_in<V: Layout>(self, next_va: u64, qmd_at: *mut u8) {
        let words = qmd_at.cast::<u32>();
        // SAFETY: both words lie inside the descriptor, for which the caller vouches.
        unsafe {
            // CAST: a descriptor lies below 2^40.
            words.add((V::NEXT.lo / 32) as usize).write_volatile((next_va >> 8) as u32);
            words.add(Self::flags_at::<V>()).write_volatile(self.flags | Self::flags::<V>());
        }
    }
}

/// What a descriptor in memory says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) code_va: u64,
    pub(crate) grid: Dim3,
    pub(crate) block: Dim3,
    /// The descriptor that comes next.
    pub(crate) next: Option<u64>,
}

/// Reads the words of a descriptor; `None` when there are too few or too many.
pub(crate) fn read(generation: Generation, words: &[u32]) -> Option<Seen> {
    match generation {
        Generation::Ampere => QmdV3_0::from_slice(words).map(|qmd| seen(&qmd)),
        Generation::Hopper => QmdV4_0::from_slice(words).map(|qmd| seen(&qmd)),
    }
}

fn seen<V: Layout>(qmd: &Qmd<V>) -> Seen {
    // CAST: no field has more than 32 bits.
    let dim = |fields: [Field<V>; 3]| Dim3::from(fields.map(|field| qmd.get(field) as u32));
    let [low, high] = V::CODE.map(|field| qmd.get(field));
    let words = qmd.as_words();
    let enabled = words[Link::flags_at::<V>()] >> (V::NEXT_ENABLE.lo % 32) & 1 != 0;
    Seen {
        code_va: high << 32 | low,
        grid: dim(V::GRID),
        block: dim(V::BLOCK),
        next: enabled.then(|| u64::from(words[(V::NEXT.lo / 32) as usize]) << 8),
    }
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
        Shape { grid: Dim3::from([70_000, 3, 5]), block: Dim3::from([32, 2, 4]), shared }
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
            (v4_0::DEPENDENT_QMD0_POINTER, 0xab_cdef_1200 >> 8),
            (v4_0::DEPENDENT_QMD_ENABLE.at(0).unwrap(), 1),
            (v4_0::DEPENDENT_QMD_ACTION.at(0).unwrap(), 3),
            (v4_0::DEPENDENT_QMD_PREFETCH.at(0).unwrap(), 1),
        ] {
            expected.set(field, value).unwrap();
        }
        assert_eq!(words, expected.as_words());
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
