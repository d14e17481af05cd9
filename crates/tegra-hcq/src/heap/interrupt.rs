//! The commands that raise an interrupt once a submission has ended.
//!
//! NON_STALL_INTERRUPT (`clc76f.h`) wakes those who sleep in the kernel until the GPU has finished something. It has to
//! come after the release that it tells of, but the release is also what gives the words of a submission back to the
//! CPU: a command behind it could be overwritten before the host engine has fetched it. So the interrupt is in
//! words of its own, written once and valid as long as the device; a GPFIFO entry of its own leads to them.

use ampere_cmd::gpfifo;
use ampere_cmd::pushbuffer::{Encoder, SliceSink};
use gpu_hal::volatile;

use crate::error::Result;
use gpu_hal::DeviceMemory;

/// Most words that the commands have.
const MAX_WORDS: usize = 4;
/// Room for them in bytes.
pub(crate) const BYTES: u64 = 4 * MAX_WORDS as u64;

/// Writes the commands to `memory` at `offset` and returns the GPFIFO entry that leads to them.
///
/// # Safety
///
/// [`BYTES`] bytes at `offset`, a multiple of 4, lie inside the memory, and the GPU does not use them yet.
pub(crate) unsafe fn write(memory: &dyn DeviceMemory, offset: u64) -> Result<u64> {
    let mut words = [0; MAX_WORDS];
    let mut sink = SliceSink::new(&mut words);
    Encoder::new(&mut sink).non_stall_interrupt()?;
    let len = sink.len();
    // SAFETY: the words fit by the caller's promise.
    unsafe {
        volatile::store(memory.cpu().as_ptr().add(offset as usize), bytemuck::cast_slice(&words[..len]))
    };
    // CAST: at most `MAX_WORDS`.
    let segment = gpfifo::Segment::new(memory.gpu_va() + offset, len as u32);
    Ok(gpfifo::Entry::from(segment).encode()?)
}
