//! Launch records: what the compute scheduler reads to run a kernel.
//!
//! A record is constant bank 0 (driver words, then the parameters), padded to 256 bytes, and the launch descriptor
//! (QMD). It does not change until its submission has ended. In the order of a launch:
//!
//! 1. Check: [`KernelCode::shape`] and [`check_arguments`] compare the launch with the kernel and the chip.
//! 2. Write: [`fill_bank`] completes the kernel's template of bank 0, [`write`] that of its descriptor, and copies both
//!    to the memory of the record.
//! 3. Chain: a [`Link`] makes the scheduler continue with the record of the next launch in the batch, without a word
//!    for the host engine (DEPENDENT_QMD0_*).
//! 4. Release: the last descriptor of a submission may release the timeline instead of the host engine ([`Release`]).
//!
//! Links and releases are written into a descriptor that is already in the memory, because only the following launch,
//! or the end of the batch, decides on them. The memory is write-combined or across a PCIe bus, so it is written but
//! never read: a link keeps what else is in the words of a chain, and the words of a release contain nothing else.

use std::sync::Arc;

use ampere_cmd::qmd::{Patch, Qmd, pointer, v3_0, v4_0};
use ampere_cmd::words::lower_upper;
use gpu_hal::MemoryUse;
use gpu_hal::chip::{Chip, MAX_BLOCK, MAX_BLOCK_THREADS, MAX_GRID, QmdVersion};

use crate::args::Arg;
use crate::descriptor::layout::{Layout, RELEASE_FIELDS};
use crate::descriptor::{ALIGN, CHAIN_WORDS, Descriptor, Latches, Template, Versioned, put};
use crate::error::{Error, LaunchError, Result};
use crate::heap::{Content, DeviceId, Handle, Heap, Mapped};
use crate::limits::Dim3;
use crate::occupancy;
use crate::program::Kernel;
use crate::program::code::KernelCode;
use crate::ring::Cursor;

/// Size of the ring in bytes: over a thousand records of usual size.
const BYTES: u64 = 2 << 20;
// Offsets in constant bank 0: block size and grid size (x, y, z; u32 each), dynamic shared memory in bytes (u32).
const BLOCK_AT: usize = 0x00;
const GRID_AT: usize = 0x0c;
const DYNAMIC_SHARED_AT: usize = 0x2c;
/// Alignment of a released semaphore in bytes: it has four words.
const SEMAPHORE_ALIGN: u64 = 16;

/// Shared memory of a launch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SharedMemory {
    /// Dynamic shared memory of a block in bytes.
    pub(crate) dynamic_bytes: u32,
    /// Shared memory of a block in bytes, as in the launch descriptor: static, dynamic and reserved.
    pub(crate) bytes: u32,
    /// Code of the smallest configuration of the SM that holds one block.
    pub(crate) config: u32,
    /// Code of the configuration that holds as many blocks as the SM's other resources allow.
    pub(crate) target: u32,
}

/// Grid, block and shared memory of a launch, checked against kernel and chip.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub(crate) grid: Dim3,
    pub(crate) block: Dim3,
    pub(crate) shared: SharedMemory,
    /// Number of blocks that an SM holds, for a grid of at most one block per SM; 0 for larger grids or if unknown.
    pub(crate) empty_sm_slots: u32,
}

impl KernelCode {
    /// Checks grid, block and dynamic shared memory of a launch.
    pub(crate) fn shape(&self, grid: Dim3, block: Dim3, shared_bytes: u32) -> Result<Shape> {
        check_grid(grid)?;
        self.check_block(block)?;
        let (shared, sm_blocks) = self.shared_memory(block.count(), shared_bytes)?;
        let empty_sm_slots = if grid.count() <= self.sm_count { sm_blocks } else { 0 };
        Ok(Shape { grid, block, shared, empty_sm_slots })
    }

    /// Refuses a block size that the kernel was not compiled for.
    pub(crate) fn check_block(&self, block: Dim3) -> Result<()> {
        check_block(block)?;
        if let Some(required) = self.required_block
            && required != block.to_array()
        {
            let required = Dim3::from(required);
            return Err(LaunchError::RequiredBlock { kernel: self.name.clone(), required, block }.into());
        }
        if let Some(cluster) = self.cluster {
            let (kernel, cluster) = (self.name.clone(), Dim3::from(cluster));
            return Err(LaunchError::Cluster { kernel, cluster }.into());
        }
        let threads = block.count();
        if threads > self.max_threads {
            let (kernel, limit) = (self.name.clone(), self.max_threads);
            return Err(LaunchError::KernelThreads { kernel, threads, limit }.into());
        }
        Ok(())
    }

    /// Shared memory for a launch with blocks of `threads` threads and `dynamic_bytes` of dynamic shared memory, and
    /// the number of such blocks that an SM holds.
    fn shared_memory(&self, threads: u32, dynamic_bytes: u32) -> Result<(SharedMemory, u32)> {
        let shared = &self.qmd.chip.shared;
        let own = shared.own(self.static_shared).checked_next_multiple_of(16);
        let bytes = own.and_then(|own| shared.descriptor_bytes(own.saturating_add(dynamic_bytes)));
        let config = bytes.and_then(|bytes| shared.config_for(bytes));
        let fitting = bytes.zip(config).map(|(bytes, config)| {
            let room = occupancy::room(self, threads, bytes);
            let wanted = room.map_or(bytes, |room| room.shared_bytes);
            let target = shared.config_for(wanted).map_or(config, |target| target.max(config));
            let sm_blocks = room.map_or(0, |room| room.blocks);
            (SharedMemory { dynamic_bytes, bytes, config, target }, sm_blocks)
        });
        fitting.ok_or_else(|| {
            let (kernel, static_bytes) = (self.name.clone(), self.static_shared);
            let limit = shared.largest().saturating_sub(shared.reserved);
            LaunchError::SharedMemory { kernel, static_bytes, dynamic_bytes, limit }.into()
        })
    }

    /// Shared memory that a block may use, in bytes: without the reserved bytes, and before it is rounded.
    fn exact_shared(&self, shape: &Shape) -> u32 {
        let own = self.qmd.chip.shared.own(self.static_shared).next_multiple_of(16);
        own + shape.shared.dynamic_bytes
    }
}

/// Refuses a grid that the launch descriptor cannot hold: 1 to 2^31 - 1 blocks in x, 1 to 65,535 in y and z (QMD
/// CTA_RASTER_WIDTH, _HEIGHT, _DEPTH).
pub(super) fn check_grid(grid: Dim3) -> Result<()> {
    check_extents("grid", grid, MAX_GRID)
}

/// Refuses a block that an SM cannot run: 1 to 1024 threads in x and y, 1 to 64 in z, at most 1024 in total.
pub(super) fn check_block(block: Dim3) -> Result<()> {
    check_extents("block", block, MAX_BLOCK)?;
    let threads = block.count();
    if threads > MAX_BLOCK_THREADS {
        return Err(LaunchError::BlockThreads { block, threads, limit: MAX_BLOCK_THREADS }.into());
    }
    Ok(())
}

fn check_extents(what: &'static str, size: Dim3, limits: [u32; 3]) -> Result<()> {
    for ((value, limit), axis) in size.to_array().into_iter().zip(limits).zip(['x', 'y', 'z']) {
        if value == 0 || value > limit {
            return Err(LaunchError::Extent { what, size, axis, limit }.into());
        }
    }
    Ok(())
}

/// Refuses arguments that do not fit the kernel. Returns the first that is a buffer of another device, if any.
#[inline]
pub(crate) fn check_arguments(
    device: DeviceId,
    kernel: &Kernel,
    arguments: &[Arg<'_>],
) -> Result<Option<usize>> {
    if kernel.device_id() != device {
        return Err(Error::OtherDevice("the kernel".to_owned()));
    }
    let params = &kernel.code().params;
    if params.len() != arguments.len() {
        return Err(wrong_count(kernel, arguments.len()));
    }
    let mut foreign = None;
    for (index, (param, argument)) in params.iter().zip(arguments).enumerate() {
        if check_argument(device, kernel, index, param.size, argument)? {
            foreign = foreign.or(Some(index));
        }
    }
    Ok(foreign)
}

/// As [`check_arguments`], for launches that use memory of their own device only.
pub(crate) fn check_own_arguments(device: DeviceId, kernel: &Kernel, arguments: &[Arg<'_>]) -> Result<()> {
    match check_arguments(device, kernel, arguments)? {
        Some(index) => Err(Error::OtherDevice(name_of(kernel, index))),
        None => Ok(()),
    }
}

/// Refuses an argument that does not fit. Returns whether it is a buffer of another device.
#[inline]
pub(crate) fn check_argument(
    device: DeviceId,
    kernel: &Kernel,
    index: usize,
    size: usize,
    argument: &Arg<'_>,
) -> Result<bool> {
    if size != argument.size() {
        let reason = format!("argument {index} has {} bytes, the parameter has {size}", argument.size());
        return Err(Error::Arguments { kernel: kernel.name().to_owned(), reason });
    }
    Ok(matches!(argument, Arg::Buffer(buffer) if buffer.device() != device))
}

/// The buffer of an argument, in errors.
#[cold]
pub(crate) fn name_of(kernel: &Kernel, index: usize) -> String {
    format!("the buffer of argument {index} of kernel {}", kernel.name())
}

#[cold]
fn wrong_count(kernel: &Kernel, given: usize) -> Error {
    let sizes: Vec<String> = kernel.parameter_sizes().map(|size| size.to_string()).collect();
    let reason = format!(
        "takes {} arguments, {given} were given (parameter sizes in bytes: {})",
        sizes.len(),
        if sizes.is_empty() { "none".to_owned() } else { sizes.join(", ") }
    );
    Error::Arguments { kernel: kernel.name().to_owned(), reason }
}

impl Arg<'_> {
    /// Writes the value, little endian, to `target`, which is [`Arg::size`] bytes long.
    pub(crate) fn write_to(&self, target: &mut [u8]) {
        match self {
            Self::U8(value) => target.copy_from_slice(&[*value]),
            Self::U16(value) => target.copy_from_slice(&value.to_le_bytes()),
            Self::U32(value) => target.copy_from_slice(&value.to_le_bytes()),
            Self::U64(value) => target.copy_from_slice(&value.to_le_bytes()),
            Self::Buffer(buffer) => target.copy_from_slice(&buffer.gpu_va().to_le_bytes()),
            Self::Bytes(bytes) => target.copy_from_slice(bytes),
        }
    }

    /// Address and length of the buffer; `None` for a value.
    pub(crate) fn part(&self) -> Option<(u64, usize)> {
        match self {
            Self::Buffer(buffer) => Some((buffer.gpu_va(), buffer.bytes())),
            _ => None,
        }
    }
}

/// Writes the image of constant bank 0 to `bank`, replacing its contents.
pub(crate) fn fill_bank(bank: &mut Vec<u8>, code: &KernelCode, shape: &Shape, arguments: &[Arg<'_>]) {
    bank.clear();
    bank.extend_from_slice(&code.bank0);
    put_shape(code.qmd.chip, bank, shape);
    for (param, argument) in code.params.iter().zip(arguments) {
        argument.write_to(&mut bank[param.offset..param.offset + param.size]);
    }
}

/// Writes the driver words of bank 0 that depend on the launch.
#[inline]
pub(crate) fn put_shape(chip: &Chip, bank: &mut [u8], shape: &Shape) {
    let (grid, block) = (shape.grid.to_array(), shape.block.to_array());
    for (axis, (block, grid)) in block.into_iter().zip(grid).enumerate() {
        put(bank, BLOCK_AT + 4 * axis, &block.to_le_bytes());
        put(bank, GRID_AT + 4 * axis, &grid.to_le_bytes());
    }
    put(bank, DYNAMIC_SHARED_AT, &shape.shared.dynamic_bytes.to_le_bytes());
    if let Some(cluster) = &chip.bank0.value.cluster {
        for (axis, grid) in grid.into_iter().enumerate() {
            put(bank, cluster.count + 4 * axis, &grid.to_le_bytes());
        }
    }
}

/// Bytes of constant bank 0 in a record: the offset of the descriptor.
pub(crate) fn bank_bytes(code: &KernelCode) -> u64 {
    (code.bank0.len() as u64).next_multiple_of(ALIGN)
}

/// Bytes of a whole record.
pub(crate) fn record_bytes(code: &KernelCode) -> u64 {
    bank_bytes(code) + code.qmd.bytes().next_multiple_of(ALIGN)
}

impl Descriptor {
    /// Completes a copy of the template for a launch whose constant bank 0 is at `bank_va`.
    ///
    /// # Errors
    ///
    /// Returns an error if a value does not fit its field.
    // In place: words that are returned by value are copied once more, by loads that stall behind the stores of fields.
    #[inline]
    pub(super) fn complete<V: Layout>(
        &self,
        qmd: &mut Qmd<V>,
        shape: &Shape,
        latches: Latches,
        bank_va: u64,
    ) -> Result<()> {
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
        qmd.set(max, shared.target.max(self.usual_config))?;
        if self.chip.empty_sm_slots.value {
            qmd.set(V::EMPTY_SM_SLOTS, shape.empty_sm_slots)?;
        }
        let [lower, upper] = V::BANK0;
        qmd.set_address(lower, upper, bank_va)?;
        if let Some(fields) = V::LATCHES {
            fields.set(qmd, latches)?;
        }
        Ok(())
    }
}

/// Copies bytes to memory that the GPU reads after a later doorbell. Unlike volatile stores, the copy may move whole
/// cache lines at once. The barriers of a submission order the stores.
///
/// # Safety
///
/// `target` is valid for writes of `bytes.len()` bytes, which the GPU does not use and no reference covers.
#[inline]
pub(crate) unsafe fn copy_out(target: *mut u8, bytes: &[u8]) {
    // SAFETY: the caller vouches for the target; `bytes` is ordinary memory and does not overlap it.
    unsafe { core::ptr::copy_nonoverlapping(bytes.as_ptr(), target, bytes.len()) };
}

/// Writes a whole record, whose GPU address is `va`. Returns how its launch is chained to another.
///
/// # Errors
///
/// Returns an error if a value does not fit its field; nothing is written in that case.
///
/// # Safety
///
/// As [`copy_out`], for [`record_bytes`].
#[inline]
pub(crate) unsafe fn write(
    target: *mut u8,
    va: u64,
    bank: &[u8],
    code: &KernelCode,
    shape: &Shape,
    latches: Latches,
) -> Result<Link> {
    // SAFETY: the caller's promise is passed on.
    unsafe {
        match &code.qmd.template {
            Versioned::V3_0(template) => write_in(target, va, bank, code, template, shape, latches),
            Versioned::V4_0(template) => write_in(target, va, bank, code, template, shape, latches),
        }
    }
}

/// As [`write`], in one version of the descriptor.
#[inline]
unsafe fn write_in<V: Layout>(
    target: *mut u8,
    va: u64,
    bank: &[u8],
    code: &KernelCode,
    template: &Template<V>,
    shape: &Shape,
    latches: Latches,
) -> Result<Link> {
    let chip = code.qmd.chip;
    let own = chip.bank0.value.own;
    let (before, rest) = bank.split_at(own.at);
    let (_, after) = rest.split_at(size_of::<u64>());
    let mut qmd = template.qmd;
    code.qmd.complete(&mut qmd, shape, latches, va)?;
    let words = qmd.as_words();
    // SAFETY: the bank is at most `bank_bytes` long, the descriptor follows it; by the contract both lie in memory that
    // may be written. The parts of the bank are neighbours.
    unsafe {
        // In the order of the addresses: the memory may combine writes.
        copy_out(target, before);
        copy_out(target.add(own.at), &(va + own.of).to_le_bytes());
        copy_out(target.add(own.at + size_of::<u64>()), after);
        copy_out(target.add(bank_bytes(code) as usize), bytemuck::cast_slice(words));
    }
    Ok(Link::of(chip, &template.chain, words))
}

/// The words of a descriptor that chain it to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Link {
    chip: &'static Chip,
    /// Index of the pointer's word.
    pointer: u32,
    /// The other words, with their indices; `used` of them.
    words: [(u32, u32); CHAIN_WORDS],
    used: u32,
}

impl Link {
    /// The link of a descriptor with these words.
    #[inline]
    pub(super) fn of<V: Layout>(chip: &'static Chip, chain: &Patch<V, CHAIN_WORDS>, words: &[u32]) -> Self {
        // CAST: descriptors have up to 96 words.
        let mut link =
            Self { chip, pointer: V::NEXT.pointer.bits().1 / 32, words: [(0, 0); CHAIN_WORDS], used: 0 };
        chain.over(words, |index, word| {
            link.words[link.used as usize] = (index as u32, word);
            link.used += 1;
        });
        link
    }

    /// Makes the scheduler continue with the descriptor at `next_va` when the grid of the one at `qmd_at` has ended.
    ///
    /// # Errors
    ///
    /// If the address does not fit a pointer to a descriptor; nothing is written then.
    ///
    /// # Safety
    ///
    /// `qmd_at` is valid for volatile writes of the descriptor that the link was made for and aligned to 8, and the GPU
    /// does not use the descriptor.
    #[inline]
    pub(crate) unsafe fn chain(self, next_va: u64, qmd_at: *mut u8) -> Result<()> {
        let words = qmd_at.cast::<u32>();
        let next = pointer(next_va)?;
        // SAFETY: the words are inside of the descriptor, which is valid by the caller's promise.
        unsafe { words.add(self.pointer as usize).write_volatile(next) };
        for (index, word) in &self.words[..self.used as usize] {
            // SAFETY: as above.
            unsafe { words.add(*index as usize).write_volatile(*word) };
        }
        Ok(())
    }
}

/// What the scheduler writes to a semaphore of 16 bytes when a grid has ended: a value and the time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Release([u64; RELEASE_FIELDS]);

impl Release {
    /// No release.
    pub(crate) const NONE: Self = Self([0; RELEASE_FIELDS]);

    /// A release of `value` to the semaphore at `va`, after the stores of the grid are visible.
    #[inline]
    pub(crate) fn timeline(chip: &Chip, va: u64, value: u64) -> Self {
        Self::new(va, value, chip.descriptor_release.value.system_barrier)
    }

    /// A release of 1 to the semaphore at `va`. It carries no barrier, so it delays no other work; a later release of
    /// the queue orders it.
    pub(crate) fn stamp(va: u64) -> Self {
        Self::new(va, 1, false)
    }

    #[inline]
    fn new(va: u64, value: u64, barrier: bool) -> Self {
        let ([va_low, va_high], [low, high]) = (lower_upper(va), lower_upper(value));
        Self([1, 1, barrier.into(), va_low.into(), va_high.into(), low.into(), high.into()])
    }

    /// Makes the grid of the descriptor at `qmd_at` make this release, instead of any other.
    ///
    /// # Errors
    ///
    /// If the address is not a multiple of 16 or does not fit its field; nothing is written then.
    ///
    /// # Safety
    ///
    /// As [`Link::chain`], for a descriptor of this chip.
    #[inline]
    pub(crate) unsafe fn write(self, chip: &Chip, qmd_at: *mut u8) -> Result<()> {
        // SAFETY: the caller's promise is passed on.
        unsafe {
            match chip.descriptor.value {
                QmdVersion::V4_0 => self.write_in::<v4_0::Layout>(qmd_at),
                QmdVersion::V3_0 => self.write_in::<v3_0::Layout>(qmd_at),
            }
        }
    }

    /// As [`Release::write`], in one version of the descriptor.
    #[inline]
    unsafe fn write_in<V: Layout>(self, qmd_at: *mut u8) -> Result<()> {
        let [.., va_low, va_high, _, _] = self.0;
        if !va_low.is_multiple_of(SEMAPHORE_ALIGN) {
            let (what, va) = ("semaphore of a launch descriptor", va_high << 32 | va_low);
            return Err(ampere_cmd::Error::Misaligned { what, va, alignment: SEMAPHORE_ALIGN }.into());
        }
        V::RELEASE.patch(self.0)?.over(&[], |index, word| {
            // SAFETY: the word is inside of the descriptor, which is valid by the caller's promise.
            unsafe { qmd_at.cast::<u32>().add(index).write_volatile(word) };
        });
        Ok(())
    }
}

/// A launch record in the ring.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Record {
    /// Offset of its descriptor in the ring.
    offset: u64,
    link: Link,
}

/// The ring of a queue's launch records.
#[derive(Debug)]
pub(crate) struct Records {
    pub(crate) memory: Mapped,
    /// Space for records, in bytes.
    pub(crate) cursor: Cursor,
    /// Scratch for constant bank 0 of one launch.
    bank: Vec<u8>,
}

impl Records {
    /// An empty ring.
    ///
    /// # Errors
    ///
    /// Returns an error if there is not enough memory.
    pub(crate) fn new(heap: &Arc<Heap>) -> Result<Self> {
        let memory = Handle::allocate(heap, BYTES, MemoryUse::Commands, Content::LaunchRecords)?;
        Ok(Self {
            memory: Mapped::new(memory)?,
            cursor: Cursor::new(BYTES),
            bank: Vec::with_capacity(64 << 10),
        })
    }

    /// Restarts with an empty ring. None of the records may still be in use.
    pub(crate) fn restart(&mut self) {
        self.cursor = Cursor::new(BYTES);
    }

    /// GPU address of the descriptor of a record.
    #[inline]
    pub(super) fn va(&self, record: Record) -> u64 {
        self.memory.gpu_va() + record.offset
    }

    /// Writes the record of a launch at `offset`, which the cursor has reserved for it.
    ///
    /// # Errors
    ///
    /// Returns an error if a value does not fit its field; nothing is written in that case.
    #[inline]
    pub(super) fn write(
        &mut self,
        offset: u64,
        code: &KernelCode,
        shape: &Shape,
        arguments: &[Arg<'_>],
    ) -> Result<Record> {
        fill_bank(&mut self.bank, code, shape, arguments);
        let va = self.memory.gpu_va() + offset;
        // SAFETY: the cursor has reserved the record's bytes at `offset` inside the memory, which lives as long as
        // `self`, and nothing in flight uses them.
        let link = unsafe {
            let target = self.memory.cpu().add(offset as usize);
            write(target, va, &self.bank, code, shape, Latches::default())?
        };
        observe(self.memory.heap(), va, code, shape, arguments.iter().map(Arg::part));
        Ok(Record { offset: offset + bank_bytes(code), link })
    }

    /// Chains a record to `last`, the last record written, which the GPU has not been given yet.
    ///
    /// # Errors
    ///
    /// Returns an error if the address of the record does not fit a pointer; `last` is unchanged in that case.
    #[inline]
    pub(super) fn chain(&mut self, last: Record, next: Record) -> Result<()> {
        let next_va = self.va(next);
        // SAFETY: the descriptor lies inside the memory, which lives as long as `self`.
        unsafe { last.link.chain(next_va, self.memory.cpu().add(last.offset as usize)) }
    }

    /// Makes the grid of `last`, the last record written, which the GPU has not been given yet, make a release.
    ///
    /// # Errors
    ///
    /// Returns an error if the address does not fit its field.
    #[inline]
    pub(crate) fn release(&mut self, last: Record, release: Release) -> Result<()> {
        // SAFETY: as in `chain`.
        unsafe { release.write(last.link.chip, self.memory.cpu().add(last.offset as usize)) }
    }
}

/// Reports a launch whose constant bank 0 is at `va` to the checks of a software GPU; `parts` are those of its
/// arguments.
#[inline]
pub(crate) fn observe(
    heap: &Heap,
    va: u64,
    code: &KernelCode,
    shape: &Shape,
    parts: impl Iterator<Item = Option<(u64, usize)>>,
) {
    let Some(observer) = heap.observer() else { return };
    let parts = code.params.iter().zip(parts);
    let mut buffers = parts.filter_map(|(param, part)| part.map(|(va, bytes)| (param.offset, va, bytes)));
    observer.launched(va, code.exact_shared(shape), &mut buffers);
}
