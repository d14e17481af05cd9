//! The commands that raise an interrupt after a submission has ended.
//!
//! NON_STALL_INTERRUPT (`clc76f.h`) wakes threads that sleep in the kernel until the GPU has finished something. It has
//! to follow the release that it reports. But the release also returns the words of the submission to the CPU, so a
//! command after it could be overwritten before the host engine has fetched it. The interrupt is therefore in separate
//! words, written once and valid as long as the device, with a separate GPFIFO entry.

use ampere_cmd::gpfifo;
use ampere_cmd::pushbuffer::{Encoder, SliceSink};
use gpu_hal::volatile;

use crate::error::Result;
use gpu_hal::DeviceMemory;

/// Largest number of words in the commands.
const MAX_WORDS: usize = 4;
/// Space for the commands in bytes.
pub(crate) const BYTES: u64 = 4 * MAX_WORDS as u64;

/// Writes the commands to `memory` at `offset` and returns their GPFIFO entry.
///
/// # Safety
///
/// [`BYTES`] bytes at `offset`, a multiple of 4, must lie inside the memory, and the GPU must not use them yet.
pub(crate) unsafe fn write(memory: &dyn DeviceMemory, offset: u64) -> Result<u64> {
    let mut words = [0; MAX_WORDS];
    let mut sink = SliceSink::new(&mut words);
    Encoder::new(&mut sink).non_stall_interrupt()?;
    let len = sink.len();
    let first = memory.cpu()?.as_ptr();
    // SAFETY: the words fit by the caller's promise.
    unsafe { volatile::store(first.add(offset as usize), bytemuck::cast_slice(&words[..len])) };
    // CAST: at most `MAX_WORDS`.
    let segment = gpfifo::Segment::new(memory.gpu_va() + offset, len as u32);
    Ok(gpfifo::Entry::from(segment).encode()?)
}
