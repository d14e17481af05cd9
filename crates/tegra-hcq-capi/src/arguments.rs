//! Kernel arguments as C passes them.

use core::ffi::c_void;
use core::slice;

use smallvec::SmallVec;
use tegra_hcq::{Arg, Buffer};

use crate::handle::TABLE;
use crate::object::Kind;
use crate::pass;
use crate::status::Failure;
use crate::types::{tegra_hcq_arg, tegra_hcq_arg_kind};

/// Arguments of a launch; most kernels have fewer.
pub(crate) type List<'a> = SmallVec<[Arg<'a>; 16]>;

const BUFFER: u32 = tegra_hcq_arg_kind::Buffer as u32;
const VALUE: u32 = tegra_hcq_arg_kind::Value as u32;
const BYTES: u32 = tegra_hcq_arg_kind::Bytes as u32;

/// A pointer into a buffer.
///
/// # Errors
///
/// If the offset is outside of the buffer.
#[inline]
pub(crate) fn part(buffer: &Buffer<u8>, offset: u64, index: usize) -> Result<Arg<'_>, Failure> {
    if offset == 0 {
        return Ok(buffer.into());
    }
    let len = buffer.byte_len();
    let range = pass::range(offset, 0, len).map_err(|_| offset_outside(index, offset, len))?;
    Ok(buffer.slice(range.start..)?.into())
}

/// Converts one argument.
///
/// # Errors
///
/// If the kind, size or offset is invalid, or the handle is not a buffer's.
///
/// # Safety
///
/// The caller holds the lock of a queue for `'a`, as [`Table::peek`](crate::handle::Table::peek) demands. The address
/// of an argument of kind bytes is valid for `'a`.
#[inline]
pub(crate) unsafe fn convert<'a>(arg: &tegra_hcq_arg, index: usize) -> Result<Arg<'a>, Failure> {
    match arg.kind {
        BUFFER => {
            // SAFETY: the caller's promise. A buffer's slot has the address of a `Buffer<u8>`.
            let buffer: &'a Buffer<u8> = unsafe { TABLE.peek(arg.value, Kind::Buffer)? };
            part(buffer, arg.offset, index)
        }
        VALUE => match arg.size {
            // CAST: the low bytes are the value.
            1 => Ok(Arg::U8(arg.value as u8)),
            2 => Ok(Arg::U16(arg.value as u16)),
            4 => Ok(Arg::U32(arg.value as u32)),
            8 => Ok(Arg::U64(arg.value)),
            size => Err(wrong_size(index, size)),
        },
        BYTES => {
            // CAST: pointers have 64 bits on the supported targets.
            let address = core::ptr::with_exposed_provenance::<c_void>(arg.value as usize);
            // SAFETY: the caller's promise.
            let bytes = unsafe { pass::bytes(address, u64::from(arg.size), "the address of an argument")? };
            Ok(Arg::Bytes(bytes))
        }
        kind => Err(wrong_kind(index, kind)),
    }
}

/// Converts a list of arguments and appends it to `list`. A list that a function returned would be copied.
///
/// # Errors
///
/// As [`convert`].
///
/// # Safety
///
/// As for [`convert`]; `args` is valid for `count` reads.
#[inline]
pub(crate) unsafe fn append<'a>(
    list: &mut List<'a>,
    args: *const tegra_hcq_arg,
    count: usize,
) -> Result<(), Failure> {
    if count == 0 {
        return Ok(());
    }
    if args.is_null() {
        return Err(pass::null("args"));
    }
    // SAFETY: the caller's promise.
    let args = unsafe { slice::from_raw_parts(args, count) };
    for (index, arg) in args.iter().enumerate() {
        // SAFETY: the caller's promise.
        list.push(unsafe { convert(arg, index)? });
    }
    Ok(())
}

#[cold]
fn offset_outside(index: usize, offset: u64, len: usize) -> Failure {
    Failure::argument(format!("argument {index}: offset {offset} is outside of a buffer of {len} bytes"))
}

#[cold]
fn wrong_size(index: usize, size: u32) -> Failure {
    Failure::argument(format!("argument {index}: a value has {size} bytes; permitted are 1, 2, 4 and 8"))
}

#[cold]
fn wrong_kind(index: usize, kind: u32) -> Failure {
    Failure::argument(format!("argument {index}: kind is {kind}; permitted are 0 to 2"))
}
