//! Launch records: constant bank 0, then the launch descriptor (QMD), of one launch.
//!
//! A record is written from the kernel's template, patched with grid, block and arguments, and stays
//! untouched until its submission has ended. A launch that directly follows another of the same batch is
//! *chained*: the earlier descriptor's dependent pointer leads to the later one, so that the compute
//! scheduler goes on by itself, without the host engine (QMD v3.0 DEPENDENT_QMD0_*).

use ampere_cmd::qmd::{QmdV3_0, v3_0 as field};

use crate::args::Arg;
use crate::error::{Error, Result};
use crate::grid::Dim3;
use crate::program::{Kernel, KernelCode, SharedMemory, bank0, put};
use crate::shared::DeviceId;

/// Size of a launch descriptor in memory, and its alignment, in bytes.
pub(crate) const QMD_BYTES: u64 = 256;
/// Code of the 100 KiB shared-memory configuration: the largest that an SM is switched to for launches
/// that need no more.
const USUAL_SHARED_CONFIG: u32 = 100 / 4 + 1;
/// Index of the word that is DEPENDENT_QMD0_POINTER; the word behind it holds the other fields.
const LINK: usize = field::DEPENDENT_QMD0_POINTER.info().lo as usize / 32;
/// Number of words that a link changes.
const LINK_WORDS: usize = 2;
/// What a link sets in the second word.
const LINK_FLAGS: u32 = 1 << (field::DEPENDENT_QMD0_ENABLE.info().lo % 32)
    | (field::DEPENDENT_QMD0_ACTION_QMD_INVALIDATE_COPY_SCHEDULE as u32)
        << (field::DEPENDENT_QMD0_ACTION.info().lo % 32);

/// What a launch asks for, checked against kernel and chip.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub(crate) grid: Dim3,
    pub(crate) block: Dim3,
    pub(crate) shared: SharedMemory,
}

impl Shape {
    /// Checks a launch.
    pub(crate) fn new(code: &KernelCode, grid: Dim3, block: Dim3, shared_bytes: u32) -> Result<Self> {
        grid.check_grid()?;
        code.check_block(block)?;
        Ok(Self { grid, block, shared: code.shared_memory(shared_bytes)? })
    }
}

/// Bytes of constant bank 0 in a record.
pub(crate) fn bank_bytes(code: &KernelCode) -> u64 {
    (code.bank0.len() as u64).next_multiple_of(QMD_BYTES)
}

/// Bytes of a whole record.
pub(crate) fn record_bytes(code: &KernelCode) -> u64 {
    bank_bytes(code) + QMD_BYTES
}

/// Writes the image of constant bank 0 to `bank`, which it replaces.
pub(crate) fn fill_bank(bank: &mut Vec<u8>, code: &KernelCode, shape: &Shape, arguments: &[Arg<'_>]) {
    bank.clear();
    bank.extend_from_slice(&code.bank0);
    put_shape(bank, shape);
    for (param, argument) in code.params.iter().zip(arguments) {
        argument.write_to(&mut bank[param.offset..param.offset + param.size]);
    }
}

/// Writes the driver words that depend on the launch.
pub(crate) fn put_shape(bank: &mut [u8], shape: &Shape) {
    for (axis, (block, grid)) in shape.block.to_array().into_iter().zip(shape.grid.to_array()).enumerate() {
        put(bank, bank0::BLOCK + 4 * axis, &block.to_le_bytes());
        put(bank, bank0::GRID + 4 * axis, &grid.to_le_bytes());
    }
    put(bank, bank0::DYNAMIC_SHARED, &shape.shared.dynamic_bytes.to_le_bytes());
}

/// The launch descriptor of a launch whose constant bank 0 lies at `bank_va`.
#[inline]
pub(crate) fn descriptor(code: &KernelCode, shape: &Shape, bank_va: u64) -> Result<QmdV3_0> {
    let mut qmd = code.qmd;
    let Shape { grid, block, shared } = shape;
    qmd.set(field::CTA_RASTER_WIDTH, grid.x)?;
    qmd.set(field::CTA_RASTER_HEIGHT, grid.y)?;
    qmd.set(field::CTA_RASTER_DEPTH, grid.z)?;
    qmd.set(field::CTA_THREAD_DIMENSION0, block.x)?;
    qmd.set(field::CTA_THREAD_DIMENSION1, block.y)?;
    qmd.set(field::CTA_THREAD_DIMENSION2, block.z)?;
    qmd.set(field::SHARED_MEMORY_SIZE, shared.bytes)?;
    qmd.set(field::MIN_SM_CONFIG_SHARED_MEM_SIZE, shared.config)?;
    qmd.set(field::TARGET_SM_CONFIG_SHARED_MEM_SIZE, shared.config)?;
    qmd.set(field::MAX_SM_CONFIG_SHARED_MEM_SIZE, shared.config.max(USUAL_SHARED_CONFIG))?;
    qmd.set(field::CONSTANT_BUFFER_ADDR_LOWER.at(0)?, bank_va & 0xffff_ffff)?;
    qmd.set(field::CONSTANT_BUFFER_ADDR_UPPER.at(0)?, bank_va >> 32)?;
    Ok(qmd)
}

/// The words of a descriptor that lead to the next one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Link([u32; LINK_WORDS]);

impl Link {
    /// Of a descriptor that leads nowhere yet.
    #[inline]
    pub(crate) fn of(qmd: &QmdV3_0) -> Self {
        let words = qmd.as_words();
        Self([words[LINK], words[LINK + 1]])
    }

    /// Makes the scheduler go on with the descriptor at `next_va` when the grid has ended. The scheduler
    /// takes a private copy, so a stale one of an earlier launch at this address is never used.
    #[inline]
    pub(crate) fn to(self, next_va: u64) -> Self {
        let Self([_, flags]) = self;
        // CAST: a descriptor lies below 2^40.
        Self([(next_va >> 8) as u32, flags | LINK_FLAGS])
    }

    /// Writes the words into a descriptor in memory.
    ///
    /// # Safety
    ///
    /// `qmd_at` is valid for volatile writes of a descriptor, aligned to 8, that the GPU does not use.
    #[inline]
    pub(crate) unsafe fn store(self, qmd_at: *mut u8) {
        let Self(words) = self;
        for (index, word) in words.into_iter().enumerate() {
            // SAFETY: the words lie inside the descriptor, for which the caller vouches.
            unsafe { qmd_at.cast::<u32>().add(LINK + index).write_volatile(word) };
        }
    }
}

/// Copies bytes to memory that the GPU reads once a doorbell has been rung after the copy: whole cache lines
/// may be moved at once, unlike with volatile stores. The barriers of a submission order them.
///
/// # Safety
///
/// `target` is valid for writes of `bytes.len()` bytes, which the GPU does not use and no reference covers.
#[inline]
pub(crate) unsafe fn store_bytes(target: *mut u8, bytes: &[u8]) {
    // SAFETY: the caller vouches for the target; `bytes` is ordinary memory and does not overlap it.
    unsafe { core::ptr::copy_nonoverlapping(bytes.as_ptr(), target, bytes.len()) };
}

/// Writes a whole record.
///
/// # Safety
///
/// As [`store_bytes`], for [`record_bytes`].
#[inline]
pub(crate) unsafe fn store(target: *mut u8, bank: &[u8], bank_bytes: u64, qmd: &QmdV3_0) {
    // SAFETY: the bank is at most `bank_bytes` long, the descriptor follows it; by the contract both lie in
    // memory that may be written.
    unsafe {
        store_bytes(target, bank);
        store_bytes(target.add(bank_bytes as usize), bytemuck::cast_slice(qmd.as_words()));
    }
}

/// Refuses arguments that do not fit the kernel, or belong to another device.
#[inline]
pub(crate) fn check_arguments(device: DeviceId, kernel: &Kernel, arguments: &[Arg<'_>]) -> Result<()> {
    if kernel.device_id() != device {
        return Err(Error::OtherDevice("the kernel"));
    }
    let params = &kernel.code().params;
    if params.len() != arguments.len() {
        return Err(wrong_count(kernel, arguments.len()));
    }
    for (index, (param, argument)) in params.iter().zip(arguments).enumerate() {
        check_argument(device, kernel, index, param.size, argument)?;
    }
    Ok(())
}

/// Refuses one argument that does not fit.
#[inline]
pub(crate) fn check_argument(
    device: DeviceId,
    kernel: &Kernel,
    index: usize,
    size: usize,
    argument: &Arg<'_>,
) -> Result<()> {
    if size != argument.size() {
        let reason = format!("argument {index} has {} bytes, the parameter has {size}", argument.size());
        return Err(Error::Arguments { kernel: kernel.name().to_owned(), reason });
    }
    if let Arg::Buffer(buffer) = argument
        && buffer.device() != device
    {
        return Err(Error::OtherDevice("a buffer"));
    }
    Ok(())
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_sets_the_dependent_fields_and_nothing_else() {
        let mut expected = QmdV3_0::new();
        expected.set(field::DEPENDENT_QMD0_POINTER, 0xab_cdef_1200_u64 >> 8).unwrap();
        expected.set(field::DEPENDENT_QMD0_ENABLE, 1_u32).unwrap();
        let action = field::DEPENDENT_QMD0_ACTION_QMD_INVALIDATE_COPY_SCHEDULE;
        expected.set(field::DEPENDENT_QMD0_ACTION, action).unwrap();
        let mut words = [0_u32; 64];
        // SAFETY: the array has the size of a descriptor.
        unsafe { Link::of(&QmdV3_0::new()).to(0xab_cdef_1200).store(words.as_mut_ptr().cast()) };
        assert_eq!(words, *expected.as_words());
    }
}
