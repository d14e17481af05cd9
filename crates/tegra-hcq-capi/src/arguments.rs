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

/// Appends a pointer into a buffer.
///
/// # Errors
///
/// If the offset is outside of the buffer.
#[inline]
pub(crate) fn append_part<'a>(
    list: &mut List<'a>,
    buffer: &'a Buffer<u8>,
    offset: u64,
    index: usize,
) -> Result<(), Failure> {
    if offset == 0 {
        list.push(buffer.into());
        return Ok(());
    }
    let len = buffer.byte_len();
    let range = pass::range(offset, 0, len).map_err(|_| offset_outside(index, offset, len))?;
    list.push(buffer.slice(range.start..)?.into());
    Ok(())
}

/// Converts one argument and appends it. A function that returned it would store it in parts and then load it whole,
/// for which the processor has to wait until the parts have left its store buffer.
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
pub(crate) unsafe fn append_one<'a>(
    list: &mut List<'a>,
    arg: &tegra_hcq_arg,
    index: usize,
) -> Result<(), Failure> {
    match arg.kind {
        BUFFER => {
            // SAFETY: the caller's promise. A buffer's slot has the address of a `Buffer<u8>`.
            let buffer: &'a Buffer<u8> = unsafe { TABLE.peek(arg.value, Kind::Buffer)? };
            append_part(list, buffer, arg.offset, index)?;
        }
        VALUE => match arg.size {
            // CAST: the low bytes are the value.
            1 => list.push(Arg::U8(arg.value as u8)),
            2 => list.push(Arg::U16(arg.value as u16)),
            4 => list.push(Arg::U32(arg.value as u32)),
            8 => list.push(Arg::U64(arg.value)),
            size => return Err(wrong_size(index, size)),
        },
        BYTES => {
            // CAST: pointers have 64 bits on the supported targets.
            let address = core::ptr::with_exposed_provenance::<c_void>(arg.value as usize);
            // SAFETY: the caller's promise.
            let bytes = unsafe { pass::bytes(address, u64::from(arg.size), "the address of an argument")? };
            list.push(Arg::Bytes(bytes));
        }
        kind => return Err(wrong_kind(index, kind)),
    }
    Ok(())
}

/// Converts a list of arguments and appends it to `list`. A list that a function returned would be copied.
///
/// # Errors
///
/// As [`append_one`].
///
/// # Safety
///
/// As for [`append_one`]; `args` is valid for `count` reads.
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
        unsafe { append_one(list, arg, index)? };
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
