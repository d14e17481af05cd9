//! Errors, and which version of the run-time library this is.

use core::cell::Cell;
use core::ffi::{CStr, c_char, c_void};
use std::sync::OnceLock;

use crate::driver;

/// An error of a call (`cudaError_t`). Those of the driver have the same numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Error(pub(crate) u32);

impl Error {
    pub(crate) const INVALID_VALUE: Self = Self(1);
    pub(crate) const NOT_INITIALIZED: Self = Self(3);
    pub(crate) const INVALID_CONFIGURATION: Self = Self(9);
    pub(crate) const INVALID_PITCH: Self = Self(12);
    pub(crate) const INVALID_SYMBOL: Self = Self(13);
    pub(crate) const INVALID_CHANNEL_DESCRIPTOR: Self = Self(20);
    pub(crate) const INVALID_DIRECTION: Self = Self(21);
    pub(crate) const INSUFFICIENT_DRIVER: Self = Self(35);
    pub(crate) const NEWER_DRIVER: Self = Self(36);
    pub(crate) const MISSING_CONFIGURATION: Self = Self(52);
    pub(crate) const INVALID_DEVICE_FUNCTION: Self = Self(98);
    pub(crate) const INVALID_DEVICE: Self = Self(101);
    pub(crate) const INVALID_CONTEXT: Self = Self(201);
    pub(crate) const INVALID_HANDLE: Self = Self(400);
    pub(crate) const NOT_FOUND: Self = Self(500);
    pub(crate) const CONTEXT_IS_DESTROYED: Self = Self(709);
    pub(crate) const NOT_SUPPORTED: Self = Self(801);
    pub(crate) const UNKNOWN: Self = Self(999);
}

/// What a call returns.
pub(crate) type Result<T = ()> = core::result::Result<T, Error>;

/// Number, name, and the text of errors that the driver does not have.
static ERRORS: &[(u32, &CStr, Option<&CStr>)] = include!(concat!(env!("OUT_DIR"), "/errors.rs"));

/// Name and text of a number that is no error.
const UNRECOGNISED: &CStr = c"unrecognized error code";

thread_local! {
    /// The last error of the thread.
    static LAST: Cell<u32> = const { Cell::new(0) };
}

/// Keeps an error for `cudaGetLastError`.
pub(crate) fn keep(error: Error) {
    LAST.set(error.0);
}

/// Whether this is the library of CUDA 13: unless the name of its file ends in `.so.12`.
pub(crate) fn is_13() -> bool {
    static IS_13: OnceLock<bool> = OnceLock::new();
    *IS_13.get_or_init(|| {
        // SAFETY: a zeroed record is valid; the address is one of this library, whose name lives as long as it.
        let name = unsafe {
            let mut found: libc::Dl_info = core::mem::zeroed();
            let known = libc::dladdr(UNRECOGNISED.as_ptr().cast::<c_void>(), &raw mut found) != 0;
            if known && !found.dli_fname.is_null() { CStr::from_ptr(found.dli_fname).to_bytes() } else { b"" }
        };
        !name.ends_with(b".so.12")
    })
}

fn find(error: u32) -> Option<&'static (u32, &'static CStr, Option<&'static CStr>)> {
    ERRORS.binary_search_by_key(&error, |entry| entry.0).ok().map(|index| &ERRORS[index])
}

/// The text of an error.
fn text(error: u32) -> *const c_char {
    let Some((_, _, text)) = find(error) else { return UNRECOGNISED.as_ptr() };
    let mut found: *const c_char = core::ptr::null();
    match text {
        Some(text) => text.as_ptr(),
        None if driver::cu!(no_context cuGetErrorString, error, &raw mut found).is_ok() => found,
        None => UNRECOGNISED.as_ptr(),
    }
}

/// `cudaGetErrorName` of `cuda_runtime_api.h`.
#[unsafe(no_mangle)]
pub extern "C" fn cudaGetErrorName(error: u32) -> *const c_char {
    find(error).map_or(UNRECOGNISED, |(_, name, _)| name).as_ptr()
}

/// `cudaGetErrorString` of `cuda_runtime_api.h`.
#[unsafe(no_mangle)]
pub extern "C" fn cudaGetErrorString(error: u32) -> *const c_char {
    text(error)
}

/// `cudaGetLastError` of `cuda_runtime_api.h`.
#[unsafe(no_mangle)]
pub extern "C" fn cudaGetLastError() -> u32 {
    LAST.replace(0)
}

/// `cudaPeekAtLastError` of `cuda_runtime_api.h`.
#[unsafe(no_mangle)]
pub extern "C" fn cudaPeekAtLastError() -> u32 {
    LAST.get()
}
