//! Launch records: what the compute scheduler reads to run a kernel.
//!
//! A record is constant bank 0 (driver words, then the parameters), padded to 256 bytes, and the launch descriptor
//! (QMD). It does not change until its submission has ended. In the order of a launch:
//!
//! 1. Check: [`KernelCode::shape`] (in [`super::shape`]) and [`check_arguments`] compare the launch with the kernel
//!    and the chip.
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

use ampere_cmd::qmd::{Qmd, pointer, v3_0, v4_0};
use ampere_cmd::words::lower_upper;
use gpu_hal::chip::{Chip, QmdVersion};
use gpu_hal::{MemoryUse, volatile};

use crate::args::Arg;
use crate::descriptor::layout::{Layout, RELEASE_FIELDS};
use crate::descriptor::{ALIGN, CHAIN_WORDS, Descriptor, Latches, Template, Versioned, put};
use crate::error::{Error, Result};
use crate::heap::{Content, DeviceId, Handle, Heap, Mapped};
use crate::launch::shape::Shape;
use crate::limits::Priority;
use crate::program::Kernel;
use crate::program::code::KernelCode;
use crate::ring::Cursor;

/// Size of the ring in bytes: over a thousand records of usual size.
const BYTES: u64 = 2 << 20;
// Offsets in constant bank 0: block size and grid size (x, y, z; u32 each), dynamic shared memory in bytes (u32).
const BLOCK_AT: usize = 0x00;
const GRID_AT: usize = 0x0c;
const DYNAMIC_SHARED_AT: usize = 0x2c;
/// Size of the workspace of barriers of the whole grid, in bytes (`grid_workspace` of CUDA's cooperative groups).
const WORKSPACE_BYTES: usize = 16;
/// Numbers of latches below this are those of graphs.
pub(crate) const GRAPH_LATCHES: u32 = 1 << 31;
/// Alignment of a released semaphore in bytes: it has four words.
const SEMAPHORE_ALIGN: u64 = 16;

/// The parameters of a launch.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Parameters<'a> {
    /// One argument per parameter.
    List(&'a [Arg<'a>]),
    /// The bytes of all parameters, in their places.
    Block(&'a [u8]),
}

impl<'a> Parameters<'a> {
    /// The arguments that name memory; empty for a block.
    #[inline]
    pub(crate) fn arguments(self) -> &'a [Arg<'a>] {
        match self {
            Self::List(arguments) => arguments,
            Self::Block(_) => &[],
        }
    }

    /// Refuses parameters that do not fit the kernel. Returns whether there is a buffer of another device.
    #[inline]
    pub(crate) fn check(self, device: DeviceId, kernel: &Kernel) -> Result<bool> {
        match self {
            Self::List(arguments) => Ok(check_arguments(device, kernel, arguments)?.is_some()),
            Self::Block(block) => check_block(device, kernel, block).map(|()| false),
        }
    }
}

/// Refuses a parameter block that does not fit the kernel.
#[inline]
fn check_block(device: DeviceId, kernel: &Kernel, block: &[u8]) -> Result<()> {
    check_kernel(device, kernel)?;
    let size = kernel.block_bytes();
    if block.len() != size {
        let reason = format!("the parameter block has {} bytes, the parameters have {size}", block.len());
        return Err(Error::Arguments { kernel: kernel.name().to_owned(), reason });
    }
    Ok(())
}

/// Refuses a kernel of another device.
#[inline]
fn check_kernel(device: DeviceId, kernel: &Kernel) -> Result<()> {
    if kernel.device_id() == device { Ok(()) } else { Err(Error::OtherDevice("the kernel".to_owned())) }
}

/// Refuses arguments that do not fit the kernel. Returns the first that is a buffer of another device, if any.
#[inline]
pub(crate) fn check_arguments(
    device: DeviceId,
    kernel: &Kernel,
    arguments: &[Arg<'_>],
) -> Result<Option<usize>> {
    check_kernel(device, kernel)?;
    let params = &kernel.code().params;
    if params.len() != arguments.len() {
        return Err(wrong_count(kernel, arguments.len()));
    }
    if !kernel.code().references.is_empty() {
        let reason = "it has texture or surface references, which only raw launches set".to_owned();
        return Err(Error::Arguments { kernel: kernel.name().to_owned(), reason });
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
#[inline]
pub(crate) fn fill_bank(bank: &mut Vec<u8>, code: &KernelCode, shape: &Shape, parameters: Parameters<'_>) {
    bank.clear();
    bank.extend_from_slice(&code.bank0);
    put_shape(code.qmd.chip, bank, shape);
    match parameters {
        Parameters::List(arguments) => {
            for (param, argument) in code.params.iter().zip(arguments) {
                argument.write_to(&mut bank[param.offset..param.offset + param.size]);
            }
        }
        Parameters::Block(block) => put(bank, code.param_base, block),
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
    if let Some(places) = &chip.bank0.value.cluster {
        for (axis, clusters) in shape.clusters.to_array().into_iter().enumerate() {
            put(bank, places.count + 4 * axis, &clusters.to_le_bytes());
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
        let Shape { clusters, block, shared, .. } = shape;
        for (field, value) in V::GRID.into_iter().zip([clusters.x, clusters.y, clusters.z]) {
            qmd.set(field, value)?;
        }
        if shape.priority != Priority::USUAL {
            qmd.set(V::GROUP, shape.priority.group())?;
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
            fields.wait(qmd, latches.wait)?;
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
    if latches.at_gate
        && let Some(gate_va) = code.gate_va
    {
        let [lower, upper] = V::CODE;
        qmd.set_address(lower, upper, gate_va)?;
    }
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
    Ok(Link::of(chip, template, latches.arrive, words))
}

/// The words of a descriptor that chain it to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Link {
    chip: &'static Chip,
    /// Index of the pointer's word.
    pointer: u32,
    /// The other words, with their indices; `used` of them. The last may be the number of the latch.
    words: [(u32, u32); CHAIN_WORDS + 1],
    used: u32,
}

impl Link {
    /// The link of a descriptor with these words, whose grid arrives at `latch` if it is chained.
    #[inline]
    pub(super) fn of<V: Layout>(
        chip: &'static Chip,
        template: &Template<V>,
        latch: Option<u32>,
        words: &[u32],
    ) -> Self {
        let pointer = V::NEXT.pointer.bits().1 / 32;
        let mut link = Self { chip, pointer, words: [(0, 0); CHAIN_WORDS + 1], used: 0 };
        let mut add = |index: u32, word: u32| {
            link.words[link.used as usize] = (index, word);
            link.used += 1;
        };
        let chain = if latch.is_some() { &template.latched_chain } else { &template.chain };
        // CAST: descriptors have up to 96 words.
        chain.over(words, |index, word| add(index as u32, word));
        if let (Some(fields), Some(latch)) = (V::LATCHES, latch) {
            add(fields.arrive_number.bits().1 / 32, latch);
        }
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

/// A workspace for barriers of the whole grid: words of zeros. NVIDIA's code counts in the second one.
#[cold]
fn new_workspace(heap: &Arc<Heap>) -> Result<Mapped> {
    let memory = Handle::allocate(heap, WORKSPACE_BYTES as u64, MemoryUse::Device, Content::Signal)?;
    let workspace = Mapped::new(memory)?;
    // SAFETY: the memory is as long, and nothing else uses it yet.
    unsafe { volatile::fill(workspace.cpu(), 0, WORKSPACE_BYTES) };
    Ok(workspace)
}

/// A launch record in the ring.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Record {
    /// Offset of its descriptor in the ring.
    offset: u64,
    link: Link,
    /// The latch at which its grid arrives if another is chained to it; `None` on chips without.
    latch: Option<u32>,
}

/// The latches of the record at an offset of the ring of queue `slot`, which is to be chained to `last`. No other
/// record in use arrives at the same; latches of graphs have the other half of the numbers.
#[inline]
pub(super) fn latches(code: &KernelCode, (slot, offset): (usize, u64), last: Option<Record>) -> Latches {
    const PER_RING: u64 = BYTES / ALIGN;
    let number = u64::from(GRAPH_LATCHES) + slot as u64 * PER_RING + offset / ALIGN;
    let arrive = code.gate_va.and_then(|_| u32::try_from(number).ok());
    let wait = last.and_then(|last| last.latch);
    Latches { arrive, wait, at_gate: wait.is_some() }
}

/// The ring of a queue's launch records.
#[derive(Debug)]
pub(crate) struct Records {
    pub(crate) memory: Mapped,
    /// Space for records, in bytes.
    pub(crate) cursor: Cursor,
    /// Scratch for constant bank 0 of one launch.
    bank: Vec<u8>,
    /// Workspace of barriers of the whole grid, from the first launch on that has one. The queue runs one such grid at
    /// a time, and each barrier leaves it ready for the next.
    pub(crate) workspace: Option<Mapped>,
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
            workspace: None,
        })
    }

    /// Restarts with an empty ring. None of the records may still be in use.
    pub(crate) fn restart(&mut self) {
        self.cursor = Cursor::new(BYTES);
        // A grid that was stopped at a barrier has left its count there.
        self.workspace = None;
    }

    /// Allocates the workspace for the launch of a kernel that needs one.
    ///
    /// # Errors
    ///
    /// Returns an error if there is not enough memory.
    #[inline]
    pub(super) fn need_workspace(&mut self, code: &KernelCode) -> Result<()> {
        if code.needs.grid_barrier.is_some() && self.workspace.is_none() {
            self.workspace = Some(new_workspace(self.memory.heap())?);
        }
        Ok(())
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
        parameters: Parameters<'_>,
        latches: Latches,
    ) -> Result<Record> {
        fill_bank(&mut self.bank, code, shape, parameters);
        if let (Some(at), Some(workspace)) = (code.needs.grid_barrier, &self.workspace) {
            let [low, high] = lower_upper(workspace.gpu_va());
            put(&mut self.bank, at, &high.to_le_bytes());
            put(&mut self.bank, at + 4, &low.to_le_bytes());
        }
        let va = self.memory.gpu_va() + offset;
        // SAFETY: the cursor has reserved the record's bytes at `offset` inside the memory, which lives as long as
        // `self`, and nothing in flight uses them.
        let link = unsafe {
            let target = self.memory.cpu().add(offset as usize);
            write(target, va, &self.bank, code, shape, latches)?
        };
        observe(self.memory.heap(), va, code, shape, parameters.arguments().iter().map(Arg::part));
        Ok(Record { offset: offset + bank_bytes(code), link, latch: latches.arrive })
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
