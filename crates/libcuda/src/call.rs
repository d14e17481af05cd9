//! What each exported function does besides its work: it stops panics, writes the trace, and names what is missing.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::OnceLock;
use std::time::Instant;

use orin_cuda_core::{Code, Failure, Result, driver};
use parking_lot::Mutex;

/// Environment variable with the file that gets a line per call.
pub(crate) const TRACE: &str = "ORIN_CUDA_TRACE";

/// Which stream stands for the null stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// The legacy default stream.
    Legacy,
    /// The thread's own, in functions with `_ptds` or `_ptsz`.
    PerThread,
}

/// The trace.
struct Trace {
    file: File,
    start: Instant,
}

static TRACING: OnceLock<Option<Trace>> = OnceLock::new();

fn trace() -> Option<&'static Trace> {
    TRACING
        .get_or_init(|| {
            let path = std::env::var_os(TRACE).filter(|path| !path.is_empty())?;
            match File::options().create(true).append(true).open(&path) {
                Ok(file) => Some(Trace { file, start: Instant::now() }),
                Err(error) => {
                    eprintln!("libcuda (orin): {TRACE}: {}: {error}", path.display());
                    None
                }
            }
        })
        .as_ref()
}

/// Environment variable with the file that gets a line `cuInit`, and lines `CALLS FUNCTION REASON` for functions that
/// are missing.
const REPORT: &str = "ORIN_CUDA_REPORT";

/// Appends a line to the file of [`REPORT`], if there is one.
pub(crate) fn report(line: &str) {
    let Some(path) = std::env::var_os(REPORT).filter(|path| !path.is_empty()) else { return };
    // A full disk does not stop the program. One write per line, because several processes append.
    let _ = File::options()
        .create(true)
        .append(true)
        .open(path)
        .and_then(|mut file| file.write_all(format!("{line}\n").as_bytes()));
}

/// Functions that were called and are missing, with the reason and the number of calls.
static MISSING: Mutex<BTreeMap<&'static str, (&'static str, u64)>> = Mutex::new(BTreeMap::new());

/// Reports the calls of missing functions after the first of each. A child that was forked has those of its parent.
extern "C" fn report_rest() {
    if let (Some(missing), Ok(_)) = (MISSING.try_lock(), driver()) {
        for (symbol, (area, count)) in missing.iter().filter(|(_, (_, count))| *count > 1) {
            report(&format!("{} {symbol} {area}", count - 1));
        }
    }
}

/// Does the work of a function that may be called before `cuInit`.
pub(crate) fn early(symbol: &'static str, work: impl FnOnce() -> Result<()>) -> u32 {
    let result = catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        let text =
            panic.downcast_ref::<String>().map(String::as_str).or(panic.downcast_ref::<&str>().copied());
        Err(Failure::new(Code::Unknown, format!("a bug of this library: {}", text.unwrap_or("a panic"))))
    });
    if let Some(trace) = trace() {
        let micros = trace.start.elapsed().as_micros();
        let line = match &result {
            Ok(()) => format!("{micros} {symbol} CUDA_SUCCESS\n"),
            Err(failure) => format!("{micros} {symbol} {failure}\n"),
        };
        // One write per line instead of a lock, which a child that is forked might find locked. A full disk does not
        // stop the program.
        let _ = (&trace.file).write_all(line.as_bytes());
    }
    match result {
        Ok(()) => Code::Success.number(),
        Err(failure) => {
            tracing::debug!(target: "cuda", "{symbol}: {failure}");
            failure.code.number()
        }
    }
}

/// Does the work of a function.
pub(crate) fn run(symbol: &'static str, work: impl FnOnce() -> Result<()>) -> u32 {
    early(symbol, || {
        driver()?;
        #[cfg(feature = "sim")]
        crate::python::name_calls();
        work()
    })
}

/// A function that is missing: says so once, and returns CUDA_ERROR_NOT_SUPPORTED.
pub(crate) fn missing(symbol: &'static str, area: &'static str) -> u32 {
    early(symbol, || {
        driver()?;
        let first = {
            let mut missing = MISSING.lock();
            if missing.is_empty() {
                // SAFETY: the function has no argument and does not unwind. It runs before this library is
                // unloaded.
                unsafe { libc::atexit(report_rest) };
            }
            let (_, count) = missing.entry(symbol).or_insert((area, 0));
            *count += 1;
            *count == 1
        };
        if first {
            report(&format!("1 {symbol} {area}"));
            eprintln!(
                "libcuda (orin): {symbol} is not supported ({area}); it returns CUDA_ERROR_NOT_SUPPORTED"
            );
        }
        Err(Failure::new(Code::NotSupported, area))
    })
}

/// Declares the exported functions of a module.
///
/// `name(arguments)[symbols] { body }` declares a function `name` that returns `Result<()>`, and exports it under each
/// symbol. A list that begins with `order @` gives the body an argument `order: Order`: how the symbol reads the null
/// stream. [`early_api`] permits calls before `cuInit`.
macro_rules! api {
    ($($(#[$meta:meta])* $name:ident $arguments:tt $([$symbol:ident $order:ident])+ $body:block)*) => {$(
        $crate::call::declare!($(#[$meta])* $name $arguments $body);
        $($crate::call::export!($symbol $order run $name $arguments);)+
    )*};
}

macro_rules! early_api {
    ($($(#[$meta:meta])* $name:ident $arguments:tt [$symbol:ident] $body:block)*) => {$(
        $crate::call::declare!($(#[$meta])* $name $arguments $body);
        $crate::call::export!($symbol Legacy early $name $arguments);
    )*};
}

macro_rules! declare {
    ($(#[$meta:meta])* $name:ident ($order:ident @ $($argument:ident: $type:ty),* $(,)?) $body:block) => {
        $(#[$meta])*
        fn $name($order: $crate::call::Order, $($argument: $type),*) -> orin_cuda_core::Result<()> $body
    };
    ($(#[$meta:meta])* $name:ident ($($argument:ident: $type:ty),* $(,)?) $body:block) => {
        $(#[$meta])*
        fn $name($($argument: $type),*) -> orin_cuda_core::Result<()> $body
    };
}

macro_rules! export {
    ($symbol:ident $order:ident $run:ident $name:ident ($_order:ident @ $($argument:ident: $type:ty),* $(,)?)) => {
        #[doc = concat!("`", stringify!($symbol), "` of `cuda.h`.")]
        ///
        /// # Safety
        ///
        /// Pointers are null or as `cuda.h` documents.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $symbol($($argument: $type),*) -> u32 {
            $crate::call::$run(stringify!($symbol), || self::$name($crate::call::Order::$order, $($argument),*))
        }
    };
    ($symbol:ident $order:ident $run:ident $name:ident ($($argument:ident: $type:ty),* $(,)?)) => {
        #[doc = concat!("`", stringify!($symbol), "` of `cuda.h`.")]
        ///
        /// # Safety
        ///
        /// Pointers are null or as `cuda.h` documents.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $symbol($($argument: $type),*) -> u32 {
            $crate::call::$run(stringify!($symbol), || self::$name($($argument),*))
        }
    };
}

macro_rules! absent {
    ($($symbol:ident $area:literal)*) => {$(
        #[doc = concat!("`", stringify!($symbol), "` of `cuda.h`, which is not supported: ", $area, ".")]
        ///
        /// # Safety
        ///
        /// None is needed: the function reads no argument.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $symbol() -> u32 {
            $crate::call::missing(stringify!($symbol), $area)
        }
    )*};
}

pub(crate) use {absent, api, declare, early_api, export};
