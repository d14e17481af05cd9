//! What each exported function does besides its work.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::Write as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, PoisonError};

use crate::status::{Failure, NOT_SUPPORTED, Result};

/// Environment variable with the file for lines `CALLS FUNCTION REASON`, as the driver's library writes it.
const REPORT: &str = "ORIN_CUDA_REPORT";

/// Does the work of a function.
pub(crate) fn run(symbol: &'static str, work: impl FnOnce() -> Result) -> u32 {
    match catch_unwind(AssertUnwindSafe(work)).unwrap_or(Err(Failure::INTERNAL_ERROR)) {
        Ok(()) => 0,
        Err(Failure::Status(status)) => status,
        Err(Failure::Missing(reason)) => {
            report(symbol, reason);
            NOT_SUPPORTED
        }
    }
}

/// Says what is not supported, once per reason on standard error.
fn report(symbol: &'static str, reason: &'static str) {
    static SEEN: Mutex<BTreeSet<(&str, &str)>> = Mutex::new(BTreeSet::new());
    if SEEN.lock().unwrap_or_else(PoisonError::into_inner).insert((symbol, reason)) {
        eprintln!(
            "libcublas (orin): {symbol} is not supported ({reason}); it returns CUBLAS_STATUS_NOT_SUPPORTED"
        );
    }
    if let Some(path) = std::env::var_os(REPORT).filter(|path| !path.is_empty()) {
        // A full disk does not stop the program. One write per line, because several processes append.
        let _ = File::options()
            .create(true)
            .append(true)
            .open(path)
            .and_then(|mut file| file.write_all(format!("1 {symbol} {reason}\n").as_bytes()));
    }
}

/// Writes a result to the host's memory; NULL is refused.
pub(crate) fn write<T>(address: usize, value: T) -> Result {
    if address == 0 {
        return Err(Failure::INVALID_VALUE);
    }
    // SAFETY: the program promised, as `cublas_api.h` documents, that the pointer is NULL or valid for a write.
    unsafe { core::ptr::with_exposed_provenance_mut::<T>(address).write_unaligned(value) };
    Ok(())
}

/// Reads an argument from the host's memory; NULL is refused.
pub(crate) fn read<T: Copy>(address: usize) -> Result<T> {
    if address == 0 {
        return Err(Failure::INVALID_VALUE);
    }
    // SAFETY: as in `write`, for a read.
    Ok(unsafe { core::ptr::with_exposed_provenance::<T>(address).read_unaligned() })
}

/// Declares functions and exports them, also in the form with 64-bit sizes if there is a second name. Kinds of
/// arguments: `size`, an integer with a width by the form; `long`; `code`, a value of an enumeration; `word`, a pointer
/// or a handle.
macro_rules! api {
    ($([$symbol:ident $($wide:ident)?] $arguments:tt $body:block)*) => {$(
        $crate::call::export!(narrow $symbol $arguments $body);
        $($crate::call::export!(wide $wide $arguments $body);)?
    )*};
}

macro_rules! export {
    ($width:ident $symbol:ident ($($argument:ident: $kind:ident),* $(,)?) $body:block) => {
        #[doc = concat!("`", stringify!($symbol), "` of `cublas_api.h`.")]
        ///
        /// # Safety
        ///
        /// Pointers are null or as it documents.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $symbol($($argument: $crate::call::kind!($width $kind)),*) -> u32 {
            $crate::call::run(stringify!($symbol), || {
                $(let $argument = <$crate::call::kind!(wide $kind)>::from($argument);)*
                $body
            })
        }
    };
}

macro_rules! kind {
    (narrow size) => {
        i32
    };
    (wide size) => {
        i64
    };
    ($width:ident long) => {
        i64
    };
    ($width:ident code) => {
        u32
    };
    ($width:ident word) => {
        usize
    };
}

pub(crate) use {api, export, kind};
