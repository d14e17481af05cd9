//! Checks of what C passes: pointers, texts, sizes.

use core::ffi::{CStr, c_char, c_void};
use core::ptr::NonNull;
use core::slice;
use std::time::Duration;

use crate::status::Failure;

/// The place of a result.
///
/// # Safety
///
/// `pointer` is NULL or valid for a write of `T`.
#[inline]
pub(crate) unsafe fn out<T>(pointer: *mut T, name: &str) -> Result<Out<T>, Failure> {
    NonNull::new(pointer).map(Out).ok_or_else(|| null(name))
}

/// A checked place of a result.
pub(crate) struct Out<T>(NonNull<T>);

impl<T> Out<T> {
    #[inline]
    pub(crate) fn put(self, value: T) {
        // SAFETY: the caller of `out` promised a place that is valid for writes. It may be unaligned in packed structs.
        unsafe { self.0.as_ptr().write_unaligned(value) };
    }
}

/// Writes a struct whose first field is its size as known to the caller, at most that size.
///
/// # Safety
///
/// `pointer` is NULL or valid for reads and writes of as many bytes as its first field says, at least four. `T` is a C
/// struct without padding that begins with that field.
pub(crate) unsafe fn put_sized<T: Copy>(pointer: *mut T, value: T, name: &str) -> Result<(), Failure> {
    let pointer = NonNull::new(pointer).ok_or_else(|| null(name))?;
    // SAFETY: the struct begins with its size.
    let given = unsafe { pointer.cast::<u32>().read_unaligned() } as usize;
    let size = size_of::<u32>();
    if given < 2 * size {
        return Err(Failure::argument(format!(
            "{name}: struct_size is {given}; set it to the size of the struct"
        )));
    }
    let value = (&raw const value).cast::<u8>();
    // SAFETY: `given` bytes at the pointer belong to the caller, and the value has its own size. The size stays.
    unsafe {
        let target = pointer.cast::<u8>().as_ptr();
        core::ptr::copy_nonoverlapping(value.add(size), target.add(size), given.min(size_of::<T>()) - size);
    }
    Ok(())
}

#[cold]
pub(crate) fn null(name: &str) -> Failure {
    Failure::argument(format!("{name} is NULL"))
}

/// A text of UTF-8.
///
/// # Safety
///
/// `pointer` is NULL or a string that ends with a zero byte and lives for `'a`.
pub(crate) unsafe fn text<'a>(pointer: *const c_char, name: &str) -> Result<&'a str, Failure> {
    if pointer.is_null() {
        return Err(null(name));
    }
    // SAFETY: the caller's promise.
    let text = unsafe { CStr::from_ptr(pointer) };
    text.to_str().map_err(|_| Failure::argument(format!("{name} is not UTF-8")))
}

/// A list of texts.
///
/// # Safety
///
/// `pointer` is NULL or valid for `count` pointers as for [`text`].
pub(crate) unsafe fn texts<'a>(
    pointer: *const *const c_char,
    count: usize,
    name: &str,
) -> Result<Vec<&'a str>, Failure> {
    if count == 0 {
        return Ok(Vec::new());
    }
    if pointer.is_null() {
        return Err(null(name));
    }
    // SAFETY: the caller's promise.
    (0..count).map(|at| unsafe { text(pointer.add(at).read(), name) }).collect()
}

/// Bytes that C passes.
///
/// # Safety
///
/// `pointer` is NULL or valid for reads of `bytes` bytes for `'a`; nothing writes them meanwhile.
pub(crate) unsafe fn bytes<'a>(pointer: *const c_void, bytes: u64, name: &str) -> Result<&'a [u8], Failure> {
    if bytes == 0 {
        return Ok(&[]);
    }
    if pointer.is_null() {
        return Err(null(name));
    }
    // SAFETY: the caller's promise.
    Ok(unsafe { slice::from_raw_parts(pointer.cast(), length(bytes, name)?) })
}

/// Bytes of C to write to. C need not have written them yet.
///
/// # Safety
///
/// `pointer` is NULL or valid for reads and writes of `bytes` bytes for `'a`; nothing else accesses them meanwhile.
pub(crate) unsafe fn bytes_mut<'a>(
    pointer: *mut c_void,
    bytes: u64,
    name: &str,
) -> Result<&'a mut [u8], Failure> {
    if bytes == 0 {
        return Ok(&mut []);
    }
    if pointer.is_null() {
        return Err(null(name));
    }
    let bytes = length(bytes, name)?;
    // SAFETY: no instruction. For the compiler, the statement may write any memory that the pointer reaches, so the
    // bytes are initialised, to unknown values, afterwards.
    unsafe { core::arch::asm!("/* {0} */", in(reg) pointer, options(nostack, preserves_flags)) };
    // SAFETY: the caller's promise; the bytes are initialised.
    Ok(unsafe { slice::from_raw_parts_mut(pointer.cast(), bytes) })
}

/// A size in bytes as a length of a slice.
pub(crate) fn length(bytes: u64, name: &str) -> Result<usize, Failure> {
    let fits = usize::try_from(bytes).ok().filter(|bytes| isize::try_from(*bytes).is_ok());
    fits.ok_or_else(|| {
        Failure::argument(format!("{name}: {bytes} bytes are more than the process can address"))
    })
}

/// The part of a buffer from `offset` on that is `bytes` long.
#[inline]
pub(crate) fn range(offset: u64, bytes: u64, whole: usize) -> Result<core::ops::Range<usize>, Failure> {
    // CAST: usize is at most 64 bits.
    match offset.checked_add(bytes) {
        Some(end) if end <= whole as u64 => Ok(offset as usize..end as usize),
        _ => Err(outside(offset, bytes, whole)),
    }
}

#[cold]
fn outside(offset: u64, bytes: u64, whole: usize) -> Failure {
    Failure::argument(format!("{bytes} bytes at offset {offset} are outside of a buffer of {whole} bytes"))
}

/// A time-out.
pub(crate) fn timeout(nanoseconds: u64) -> Duration {
    Duration::from_nanos(nanoseconds)
}

/// Copies a text to a field of a struct, cut to fit, with a zero byte at the end.
pub(crate) fn fixed<const N: usize>(text: &str) -> [u8; N] {
    let mut field = [0; N];
    let mut end = text.len().min(N - 1);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    field[..end].copy_from_slice(&text.as_bytes()[..end]);
    field
}
