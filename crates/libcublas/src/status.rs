//! What calls return, and their names.

use core::ffi::{CStr, c_char};

/// A call that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// With this status (`cublasStatus_t`).
    Status(u32),
    /// The library lacks this.
    Missing(&'static str),
}

impl Failure {
    pub(crate) const NOT_INITIALIZED: Self = Self::Status(1);
    pub(crate) const ALLOC_FAILED: Self = Self::Status(3);
    pub(crate) const INVALID_VALUE: Self = Self::Status(7);
    pub(crate) const ARCH_MISMATCH: Self = Self::Status(8);
    pub(crate) const EXECUTION_FAILED: Self = Self::Status(13);
    pub(crate) const INTERNAL_ERROR: Self = Self::Status(14);
}

/// CUBLAS_STATUS_NOT_SUPPORTED.
pub(crate) const NOT_SUPPORTED: u32 = 15;

/// What a call returns.
pub(crate) type Result<T = ()> = core::result::Result<T, Failure>;

/// The name of a status.
const fn name(status: u32) -> &'static CStr {
    match status {
        0 => c"CUBLAS_STATUS_SUCCESS",
        1 => c"CUBLAS_STATUS_NOT_INITIALIZED",
        3 => c"CUBLAS_STATUS_ALLOC_FAILED",
        7 => c"CUBLAS_STATUS_INVALID_VALUE",
        8 => c"CUBLAS_STATUS_ARCH_MISMATCH",
        11 => c"CUBLAS_STATUS_MAPPING_ERROR",
        13 => c"CUBLAS_STATUS_EXECUTION_FAILED",
        14 => c"CUBLAS_STATUS_INTERNAL_ERROR",
        15 => c"CUBLAS_STATUS_NOT_SUPPORTED",
        16 => c"CUBLAS_STATUS_LICENSE_ERROR",
        _ => c"unknown status",
    }
}

/// `cublasGetStatusName` of `cublas_api.h`.
#[unsafe(no_mangle)]
pub extern "C" fn cublasGetStatusName(status: u32) -> *const c_char {
    name(status).as_ptr()
}

/// `cublasGetStatusString` of `cublas_api.h`: the name, too.
#[unsafe(no_mangle)]
pub extern "C" fn cublasGetStatusString(status: u32) -> *const c_char {
    name(status).as_ptr()
}
