//! What each exported function does besides its work.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, PoisonError};

use crate::error::{Error, Result, keep};

/// Which stream is the null stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// The legacy default stream.
    Legacy,
    /// The thread's own, in functions with `_ptds` or `_ptsz`.
    PerThread,
}

impl Order {
    /// The driver's handle of a stream.
    pub(crate) fn stream(self, stream: usize) -> usize {
        // CU_STREAM_PER_THREAD.
        if self == Self::PerThread && stream == 0 { 2 } else { stream }
    }
}

/// Does the work of a function; an error becomes the last one of the thread.
pub(crate) fn run(work: impl FnOnce() -> Result) -> u32 {
    match catch_unwind(AssertUnwindSafe(work)).unwrap_or(Err(Error::UNKNOWN)) {
        Ok(()) => 0,
        Err(error) => {
            keep(error);
            error.0
        }
    }
}

/// Writes a result; NULL is refused.
pub(crate) fn write<T>(place: *mut T, value: T) -> Result {
    if place.is_null() {
        return Err(Error::INVALID_VALUE);
    }
    // SAFETY: the program promised, as `cuda_runtime_api.h` documents, that the pointer is NULL or valid for a write.
    unsafe { place.write_unaligned(value) };
    Ok(())
}

/// Reads an argument; NULL is refused.
pub(crate) fn read<T: Copy>(place: *const T) -> Result<T> {
    if place.is_null() {
        return Err(Error::INVALID_VALUE);
    }
    // SAFETY: as in `write`, for a read.
    Ok(unsafe { place.read_unaligned() })
}

/// Environment variable with the file for lines `CALLS FUNCTION REASON`, as the driver's library writes it.
const REPORT: &str = "ORIN_CUDA_REPORT";

/// A function that is missing: says so, once on standard error, and returns cudaErrorNotSupported.
pub(crate) fn missing(symbol: &'static str, reason: &'static str) -> u32 {
    static CALLS: Mutex<BTreeMap<&str, u64>> = Mutex::new(BTreeMap::new());
    run(|| {
        let count = {
            let mut calls = CALLS.lock().unwrap_or_else(PoisonError::into_inner);
            let count = calls.entry(symbol).or_insert(0);
            *count += 1;
            *count
        };
        if count == 1 {
            eprintln!(
                "libcudart (orin): {symbol} is not supported ({reason}); it returns cudaErrorNotSupported"
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
        Err(Error::NOT_SUPPORTED)
    })
}

/// Declares functions and exports them, each under symbols. A list of arguments that begins with `order @` gives the
/// body an argument `order: Order`: how the symbol reads the null stream.
macro_rules! api {
    ($($name:ident $arguments:tt $([$symbol:ident $order:ident])+ $body:block)*) => {$(
        $crate::call::declare!($name $arguments $body);
        $($crate::call::export!($symbol $order $name $arguments);)+
    )*};
}

macro_rules! declare {
    ($name:ident ($order:ident @ $($argument:ident: $type:ty),* $(,)?) $body:block) => {
        fn $name($order: $crate::call::Order, $($argument: $type),*) -> $crate::error::Result $body
    };
    ($name:ident ($($argument:ident: $type:ty),* $(,)?) $body:block) => {
        fn $name($($argument: $type),*) -> $crate::error::Result $body
    };
}

macro_rules! export {
    ($symbol:ident $order:ident $name:ident ($_order:ident @ $($argument:ident: $type:ty),* $(,)?)) => {
        #[doc = concat!("`", stringify!($symbol), "` of `cuda_runtime_api.h`.")]
        ///
        /// # Safety
        ///
        /// Pointers are null or as it documents.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $symbol($($argument: $type),*) -> u32 {
            $crate::call::run(|| self::$name($crate::call::Order::$order, $($argument),*))
        }
    };
    ($symbol:ident $order:ident $name:ident ($($argument:ident: $type:ty),* $(,)?)) => {
        #[doc = concat!("`", stringify!($symbol), "` of `cuda_runtime_api.h`.")]
        ///
        /// # Safety
        ///
        /// Pointers are null or as it documents.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $symbol($($argument: $type),*) -> u32 {
            $crate::call::run(|| self::$name($($argument),*))
        }
    };
}

pub(crate) use {api, declare, export};
