//! Calls of programs in other languages, for the checks of kernels.

use core::ffi::c_char;

use crate::pass;
use crate::status::{Failure, Status, guard};

/// Sets the calls that findings of the checks (`docs/check.md`) show for what this thread allocates, frees and
/// launches from now on, innermost first, for example "main at program.py:12". Without calls, they are those of the
/// native stack, and none for launches. For languages whose calls are not on it. Thread-safe; each thread has its own.
///
/// Returns TEGRA_HCQ_STATUS_UNSUPPORTED in a library without the software Orin.
///
/// # Safety
///
/// `calls` is valid for `count` reads of strings that end with a zero byte.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tegra_hcq_set_calls(calls: *const *const c_char, count: usize) -> Status {
    guard(|| {
        // SAFETY: the caller's promise.
        let calls = unsafe { pass::texts(calls, count, "calls")? };
        set((count > 0).then(|| calls.into_iter().map(ToOwned::to_owned).collect()))
    })
}

#[cfg(feature = "sim")]
fn set(calls: Option<Vec<String>>) -> Result<(), Failure> {
    tegra_hcq::check::set_calls(calls);
    Ok(())
}

#[cfg(not(feature = "sim"))]
fn set(_: Option<Vec<String>>) -> Result<(), Failure> {
    Err(Failure::new(Status::Unsupported, "this library has no software Orin, and so no checks"))
}
