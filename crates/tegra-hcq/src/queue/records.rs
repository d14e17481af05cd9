//! Launch records: constant bank 0, then the launch descriptor (QMD), of one launch.
//!
//! A record is the kernel's template, patched with grid, block and arguments. It does not change until its submission
//! has ended. A launch that directly follows another in the same batch is *chained*: the earlier descriptor's dependent
//! pointer refers to the later one, and the compute scheduler starts it without the host engine (DEPENDENT_QMD0_*). The
//! last descriptor of a submission may release the timeline instead of the host engine.

use std::sync::Arc;

use gpu_hal::MemoryUse;

use crate::args::Arg;
use crate::descriptor::{self, ALIGN, Latches, Link, Shape};
use crate::error::{Error, Result};
use crate::heap::{Content, DeviceId, Handle, Mapped};
use crate::program::Kernel;
use crate::program::code::KernelCode;
use crate::ring::{Cursor, Mark};
use crate::shared::Shared;

/// Size of the ring in bytes: over a thousand records of usual size.
const BYTES: u64 = 2 << 20;

/// A launch record in the ring.
#[derive(Clone, Copy, Debug)]
pub(super) struct Record {
    /// Offset of its descriptor in the ring.
    offset: u64,
    /// The descriptor words that chaining changes.
    link: Link,
}

/// The ring of a queue's launch records.
#[derive(Debug)]
pub(super) struct Records {
    memory: Mapped,
    cursor: Cursor,
    /// Scratch for constant bank 0 of one launch.
    bank: Vec<u8>,
}

impl Records {
    /// An empty ring.
    ///
    /// # Errors
    ///
    /// Returns an error if there is not enough memory.
    pub(super) fn new(device: &Arc<Shared>) -> Result<Self> {
        let memory = device.allocate_mapped(BYTES, MemoryUse::Commands, Content::LaunchRecords)?;
        Ok(Self { memory, cursor: Cursor::new(BYTES), bank: Vec::with_capacity(64 << 10) })
    }

    /// Restarts with an empty ring. None of the records may still be in use.
    pub(super) fn restart(&mut self) {
        self.cursor = Cursor::new(BYTES);
    }

    /// The memory of the records.
    pub(super) fn memory(&self) -> &Handle {
        &self.memory
    }

    /// Offset of `bytes` bytes for a record; `None` while the ring is too full.
    #[inline]
    pub(super) fn reserve(&mut self, bytes: u64) -> Option<u64> {
        self.cursor.reserve(bytes, ALIGN)
    }

    /// Whether a record of `bytes` bytes fits an empty ring.
    pub(super) fn fits(&self, bytes: u64) -> bool {
        bytes <= self.cursor.capacity()
    }

    /// The end of everything reserved so far.
    #[inline]
    pub(super) fn mark(&self) -> Mark {
        self.cursor.mark()
    }

    /// Number of times that the ring was full, up to the last record. Within a lap each address is used once.
    #[inline]
    pub(super) fn lap(&self) -> u64 {
        self.cursor.lap()
    }

    /// Frees everything reserved before `mark`.
    #[inline]
    pub(super) fn release(&mut self, mark: Mark) {
        self.cursor.release(mark);
    }

    /// GPU address of the descriptor of a record.
    #[inline]
    pub(super) fn va(&self, record: Record) -> u64 {
        self.memory.gpu_va() + record.offset
    }

    /// Writes the record of a launch at `offset`, which [`Records::reserve`] returned for it.
    ///
    /// # Errors
    ///
    /// Returns an error if a value does not fit its field; nothing is written in that case.
    #[inline]
    pub(super) fn store(
        &mut self,
        offset: u64,
        code: &KernelCode,
        shape: &Shape,
        arguments: &[Arg<'_>],
    ) -> Result<Record> {
        fill_bank(&mut self.bank, code, shape, arguments);
        // SAFETY: `reserve` returned the record's bytes at `offset` inside the memory, which lives as long as `self`,
        // and nothing in flight uses them.
        let link = unsafe {
            let target = self.memory.cpu().add(offset as usize);
            store(target, self.memory.gpu_va() + offset, &self.bank, code, shape, Latches::default())?
        };
        let buffers = code.params.iter().zip(arguments).filter_map(|(param, argument)| match argument {
            Arg::Buffer(buffer) => buffer.part().map(|(va, bytes)| (param.offset, va, bytes)),
            _ => None,
        });
        let heap = self.memory.heap();
        heap.note_launch(self.memory.gpu_va() + offset, || code.exact_shared(shape), buffers);
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
        unsafe { last.link.store(next_va, self.memory.cpu().add(last.offset as usize)) }
    }

    /// Makes `last`, the last record written, which the GPU has not been given yet, release `value` to the semaphore at
    /// `va`.
    ///
    /// # Errors
    ///
    /// Returns an error if the address does not fit its field.
    #[inline]
    pub(super) fn release_by(&mut self, last: Record, va: u64, value: u64) -> Result<()> {
        // SAFETY: the descriptor lies inside the memory, which lives as long as `self`.
        unsafe {
            let descriptor = self.memory.cpu().add(last.offset as usize);
            last.link.store_release(va, value, descriptor)
        }
    }

    /// Makes the grid of `last`, the last record written, which the GPU has not been given yet, write the time to the
    /// semaphore at `va` when it has ended.
    ///
    /// # Errors
    ///
    /// Returns an error if the address does not fit its field.
    #[cold]
    pub(super) fn stamp_by(&mut self, last: Record, va: u64) -> Result<()> {
        // SAFETY: as in `release_by`.
        unsafe {
            let descriptor = self.memory.cpu().add(last.offset as usize);
            last.link.store_stamp(va, descriptor)
        }
    }

    /// Undoes [`Records::release_by`].
    #[cold]
    pub(super) fn revoke_release(&mut self, last: Record) {
        // SAFETY: as in `release_by`.
        unsafe {
            let descriptor = self.memory.cpu().add(last.offset as usize);
            last.link.clear_release(descriptor);
        }
    }
}

/// Bytes of constant bank 0 in a record.
pub(crate) fn bank_bytes(code: &KernelCode) -> u64 {
    (code.bank0.len() as u64).next_multiple_of(ALIGN)
}

/// Bytes of a whole record.
pub(crate) fn record_bytes(code: &KernelCode) -> u64 {
    bank_bytes(code) + code.qmd.bytes().next_multiple_of(ALIGN)
}

/// Writes the image of constant bank 0 to `bank`, replacing its contents.
pub(crate) fn fill_bank(bank: &mut Vec<u8>, code: &KernelCode, shape: &Shape, arguments: &[Arg<'_>]) {
    bank.clear();
    bank.extend_from_slice(&code.bank0);
    descriptor::put_shape(code.qmd.chip(), bank, shape);
    for (param, argument) in code.params.iter().zip(arguments) {
        argument.write_to(&mut bank[param.offset..param.offset + param.size]);
    }
}

/// Copies bytes to memory that the GPU reads after a later doorbell. Unlike volatile stores, the copy may move whole
/// cache lines at once. The barriers of a submission order the stores.
///
/// # Safety
///
/// `target` is valid for writes of `bytes.len()` bytes, which the GPU does not use and no reference covers.
#[inline]
pub(crate) unsafe fn store_bytes(target: *mut u8, bytes: &[u8]) {
    // SAFETY: the caller vouches for the target; `bytes` is ordinary memory and does not overlap it.
    unsafe { core::ptr::copy_nonoverlapping(bytes.as_ptr(), target, bytes.len()) };
}

/// Writes a whole record, whose GPU address is `va`. Returns the words for chaining its launch.
///
/// # Errors
///
/// Returns an error if a value does not fit its field; nothing is written in that case.
///
/// # Safety
///
/// As [`store_bytes`], for [`record_bytes`].
#[inline]
pub(crate) unsafe fn store(
    target: *mut u8,
    va: u64,
    bank: &[u8],
    code: &KernelCode,
    shape: &Shape,
    latches: Latches,
) -> Result<Link> {
    let bank_bytes = bank_bytes(code) as usize;
    let own = code.qmd.chip().bank0.value.own;
    let (before, rest) = bank.split_at(own.at);
    let (_, after) = rest.split_at(size_of::<u64>());
    code.qmd.launch(shape, latches, va, |words| {
        // SAFETY: the bank is at most `bank_bytes` long, the descriptor follows it; by the contract both lie in
        // memory that may be written. The parts of the bank are neighbours.
        unsafe {
            // In the order of the addresses: the memory may combine writes.
            store_bytes(target, before);
            store_bytes(target.add(own.at), &(va + own.of).to_le_bytes());
            store_bytes(target.add(own.at + size_of::<u64>()), after);
            store_bytes(target.add(bank_bytes), bytemuck::cast_slice(words));
        }
    })
}

/// Refuses arguments that do not fit the kernel. Returns whether a buffer among them belongs to another device.
#[inline]
pub(crate) fn check_arguments(device: DeviceId, kernel: &Kernel, arguments: &[Arg<'_>]) -> Result<bool> {
    if kernel.device_id() != device {
        return Err(Error::OtherDevice("the kernel".to_owned()));
    }
    let params = &kernel.code().params;
    if params.len() != arguments.len() {
        return Err(wrong_count(kernel, arguments.len()));
    }
    let mut peers = false;
    for (index, (param, argument)) in params.iter().zip(arguments).enumerate() {
        peers |= check_argument(device, kernel, index, param.size, argument)?;
    }
    Ok(peers)
}

/// As [`check_arguments`], for launches that use memory of their own device only.
#[inline]
pub(crate) fn check_own_arguments(device: DeviceId, kernel: &Kernel, arguments: &[Arg<'_>]) -> Result<()> {
    if check_arguments(device, kernel, arguments)? {
        let own = |argument: &Arg<'_>| !matches!(argument, Arg::Buffer(buffer) if buffer.device() != device);
        // PANIC: one of the arguments is a buffer of another device.
        let index = arguments.iter().position(|argument| !own(argument)).expect("a foreign buffer");
        return Err(Error::OtherDevice(name_of(kernel, index)));
    }
    Ok(())
}

/// As [`check_own_arguments`], for one argument.
#[inline]
pub(crate) fn check_own_argument(
    device: DeviceId,
    kernel: &Kernel,
    index: usize,
    size: usize,
    argument: &Arg<'_>,
) -> Result<()> {
    if check_argument(device, kernel, index, size, argument)? {
        return Err(Error::OtherDevice(name_of(kernel, index)));
    }
    Ok(())
}

/// Refuses an argument that does not fit. Returns whether it is a buffer of another device.
#[inline]
fn check_argument(
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
pub(super) fn name_of(kernel: &Kernel, index: usize) -> String {
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
