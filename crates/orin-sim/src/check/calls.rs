//! Where an object was allocated, freed or viewed: calls of the program.

use std::backtrace::Backtrace;
use std::cell::RefCell;
use std::sync::Arc;

/// Number of calls that a finding shows.
const CALLS: usize = 4;

thread_local! {
    static GIVEN: RefCell<Option<Arc<[String]>>> = const { RefCell::new(None) };
}

/// Sets the calls that findings show for what this thread allocates, frees and launches from now on, innermost first,
/// for example "main at program.py:12". `None`: those of the native stack, and none for launches. For languages whose
/// calls are not on it.
///
/// ```
/// orin_sim::check::set_calls(Some(vec!["main at program.py:12".to_owned()]));
/// assert_eq!(orin_sim::check::set_calls(None).as_deref(), Some(&["main at program.py:12".to_owned()][..]));
/// ```
pub fn set_calls(calls: Option<Vec<String>>) -> Option<Arc<[String]>> {
    // The calls of a thread that ends are not known.
    GIVEN.try_with(|given| given.replace(calls.map(Into::into))).unwrap_or_default()
}

/// The calls of [`set_calls`].
pub(super) fn given() -> Option<Arc<[String]>> {
    GIVEN.try_with(|given| given.borrow().clone()).unwrap_or_default()
}

/// The calls that a finding shows.
pub(super) fn shown(given: Option<&[String]>) -> Vec<String> {
    given.unwrap_or_default().iter().take(CALLS).cloned().collect()
}

/// The calls at one moment.
#[derive(Debug)]
pub(super) enum Trace {
    /// Of the native stack.
    Native(Backtrace),
    /// Given by [`set_calls`].
    Given(Arc<[String]>),
}

impl Trace {
    /// The calls of this thread now.
    pub(super) fn capture() -> Self {
        given().map_or_else(|| Self::Native(Backtrace::force_capture()), Self::Given)
    }

    /// No calls.
    pub(super) fn none() -> Self {
        Self::Native(Backtrace::disabled())
    }

    /// The calls outside of the libraries that allocate, innermost first.
    pub(super) fn calls(&self) -> Vec<String> {
        match self {
            Self::Native(trace) => calls_of(&trace.to_string()),
            Self::Given(calls) => shown(Some(calls)),
        }
    }
}

/// Whether a source file belongs to a library that allocates.
fn is_own(place: &str) -> bool {
    const FOLDERS: [&str; 4] = ["orin-sim", "tegra-hcq", "cuda-core", "libcuda"];
    let own = |folder: &str| FOLDERS.iter().any(|name| folder.starts_with(name));
    place.split('/').zip(place.split('/').skip(1)).any(|(folder, next)| own(folder) && next == "src")
}

fn calls_of(text: &str) -> Vec<String> {
    let mut calls: Vec<String> = Vec::new();
    let mut hidden = false;
    for line in text.lines().map(str::trim) {
        if let Some(place) = line.strip_prefix("at ") {
            // Inlined functions have names without their crate.
            if !hidden && calls.len() == 1 && is_own(place) {
                calls.clear();
                hidden = true;
            }
            if let Some(call) = calls.last_mut().filter(|_| !hidden) {
                *call = format!("{call} at {}", short(place));
            }
            continue;
        }
        let name = line.split_once(": ").map_or(line, |(_, name)| name);
        if name.contains("__rust_begin_short_backtrace") {
            break;
        }
        // A program or library without symbols.
        if name == "<unknown>" || name == "disabled backtrace" {
            hidden = true;
            continue;
        }
        let own = [
            "orin_sim::",
            "tegra_hcq::",
            "tegra_hcq_",
            "orin_cuda_core::",
            "cuda::",
            "<orin_sim::",
            "<tegra_hcq::",
            "<orin_cuda_core::",
            "core::",
            "std::",
            "alloc::",
            "<core::",
        ];
        hidden = calls.is_empty() && own.iter().any(|prefix| name.starts_with(prefix))
            || ["core::ops::", "core::iter::", "<core::", "<alloc::", "<std::", "std::", "__"]
                .iter()
                .any(|prefix| name.starts_with(prefix));
        if !hidden {
            if calls.len() == CALLS {
                break;
            }
            calls.push(name.to_owned());
        }
    }
    calls
}

/// A place without its column.
fn short(place: &str) -> &str {
    place.rsplit_once(':').map_or(place, |(place, _)| place)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_begin_outside_of_the_libraries() {
        let text = "   0: allocate
             at /build/nvgpu/crates/tegra-hcq/src/heap/handle.rs:39:9
   1: tegra_hcq::device::Device::alloc
             at /cargo/registry/src/index/tegra-hcq-0.1.0/src/device.rs:57:5
   2: upload
             at /build/program/src/main.rs:12:5
   3: core::ops::function::FnOnce::call_once
             at /rustc/library/core/src/ops/function.rs:250:5
   4: program::main
             at /build/program/src/main.rs:20:5
   5: std::sys::backtrace::__rust_begin_short_backtrace
   6: main";
        let expected =
            ["upload at /build/program/src/main.rs:12", "program::main at /build/program/src/main.rs:20"];
        assert_eq!(calls_of(text), expected);
        assert_eq!(calls_of("disabled backtrace"), [""; 0]);
        let stripped = "   0: tegra_hcq_buffer_alloc\n   1: <unknown>\n   2: step\n   3: <unknown>";
        assert_eq!(calls_of(stripped), ["step"]);
        let cuda = "   0: orin_cuda_core::memory::Memory::allocate
   1: cuda::memory::allocate
   2: cuda::memory::cuMemAlloc_v2::{{closure}}
   3: std::panicking::catch_unwind
   4: cuda::call::run
   5: cuMemAlloc_v2
   6: upload";
        assert_eq!(calls_of(cuda), ["cuMemAlloc_v2", "upload"]);
    }

    #[test]
    fn given_calls_take_the_place_of_the_native_ones() {
        set_calls(Some((0..6).map(|line| format!("main at program.py:{line}")).collect()));
        let trace = Trace::capture();
        set_calls(None);
        assert_eq!((trace.calls().len(), &*trace.calls()[3]), (4, "main at program.py:3"));
        assert!(matches!(Trace::capture(), Trace::Native(_)));
    }
}
