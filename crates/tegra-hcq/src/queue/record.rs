//! Launch records: constant bank 0, then the launch descriptor (QMD), of one launch.
//!
//! A record is written from the kernel's template, patched with grid, block and arguments, and stays
//! untouched until its submission has ended. A launch that directly follows another of the same batch is
//! *chained*: the earlier descriptor's dependent pointer leads to the later one, so that the compute
//! scheduler goes on by itself, without the host engine (DEPENDENT_QMD0_*).

use crate::args::Arg;
use crate::descriptor::{self, ALIGN, Link, Shape};
use crate::error::{Error, Result};
use crate::program::{Kernel, KernelCode};
use crate::shared::DeviceId;

/// Bytes of constant bank 0 in a record.
pub(crate) fn bank_bytes(code: &KernelCode) -> u64 {
    (code.bank0.len() as u64).next_multiple_of(ALIGN)
}

/// Bytes of a whole record.
pub(crate) fn record_bytes(code: &KernelCode) -> u64 {
    bank_bytes(code) + code.qmd.bytes().next_multiple_of(ALIGN)
}

/// Writes the image of constant bank 0 to `bank`, which it replaces.
pub(crate) fn fill_bank(bank: &mut Vec<u8>, code: &KernelCode, shape: &Shape, arguments: &[Arg<'_>]) {
    bank.clear();
    bank.extend_from_slice(&code.bank0);
    descriptor::put_shape(code.qmd.chip(), bank, shape);
    for (param, argument) in code.params.iter().zip(arguments) {
        argument.write_to(&mut bank[param.offset..param.offset + param.size]);
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

/// Writes a whole record, whose GPU address is `va`. Returns how its launch is chained to another.
///
/// # Errors
///
/// When a number does not fit its field; nothing is written then.
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
) -> Result<Link> {
    let bank_bytes = bank_bytes(code) as usize;
    code.qmd.launch(shape, va, |words| {
        // SAFETY: the bank is at most `bank_bytes` long, the descriptor follows it; by the contract both lie in
        // memory that may be written.
        unsafe {
            store_bytes(target, bank);
            store_bytes(target.add(bank_bytes), bytemuck::cast_slice(words));
        }
    })
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
