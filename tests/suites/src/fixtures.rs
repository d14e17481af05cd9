//! Fixtures of the suites above `tegra-hcq`: embedded kernels, so that a copied binary needs no files, and
//! comparisons that name the difference.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use tegra_hcq::{Device, Error, ErrorCode, Fault, FaultKind, Fence, Kernel, Program};

use test_harness::{Check, Context};

/// Longest wait for work that takes milliseconds on a board.
const WAIT: Duration = Duration::from_secs(20);

/// A test built from a function of the same name, or from a name and a function.
macro_rules! case {
    ($function:ident, $about:literal) => {
        $crate::fixtures::case!($function, $about, $function)
    };
    ($name:ident, $about:literal, $function:expr) => {
        test_harness::Test::new(stringify!($name), $about, |context| $function(context).into())
    };
}
pub(super) use case;

/// Loads the kernel `$kernel` of `kernels/$file.cu`, compiled for the device.
macro_rules! kernel {
    ($device:expr, $file:literal, $kernel:expr) => {
        $crate::fixtures::load(
            $device,
            &[
                include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../kernels/", $file, ".cubin")),
                include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../kernels/sm_90/", $file, ".cubin")),
            ],
            $kernel,
        )
    };
}
pub(super) use kernel;

/// Loads the cubin that fits the device and returns one kernel, which keeps the program loaded.
pub(super) fn load(device: &Device, cubins: &[&[u8]], kernel: &str) -> Result<Kernel, tegra_hcq::Error> {
    Program::load_fitting(device, cubins)?.kernel(kernel)
}

/// How long a test waits for its work.
pub(super) fn patience(context: &Context) -> Duration {
    context.patience(WAIT)
}

/// Fails at the first different element.
pub(super) fn equal<T: PartialEq + Debug>(what: &str, got: &[T], wanted: &[T]) -> Check {
    if got.len() != wanted.len() {
        return Err(format!("{what}: {} elements, expected {}", got.len(), wanted.len()).into());
    }
    match got.iter().zip(wanted).position(|(got, wanted)| got != wanted) {
        None => Ok(()),
        Some(at) => Err(format!("{what}: element {at} is {:?}, not {:?}", got[at], wanted[at]).into()),
    }
}

/// Fails at the first element whose error exceeds `tolerance`, relative to the larger of 1 and the value.
pub(super) fn close(what: &str, got: &[f32], wanted: &[f32], tolerance: f32) -> Check {
    if got.len() != wanted.len() {
        return Err(format!("{what}: {} elements, expected {}", got.len(), wanted.len()).into());
    }
    let off = |(got, wanted): (&f32, &f32)| {
        let difference = (got - wanted).abs();
        // NaN is never close.
        difference.is_nan() || difference > tolerance * wanted.abs().max(1.0)
    };
    match got.iter().zip(wanted).position(off) {
        None => Ok(()),
        Some(at) => {
            Err(format!("{what}: element {at} is {}, not {} within {tolerance}", got[at], wanted[at]).into())
        }
    }
}

/// Fails with `text` unless `holds`.
pub(super) fn ensure(holds: bool, text: impl FnOnce() -> String) -> Check {
    if holds { Ok(()) } else { Err(text().into()) }
}

/// The fault that a fence reports.
pub(super) fn reported(fence: &Fence, patience: Duration) -> Result<Arc<Fault>, String> {
    match fence.wait(patience) {
        Err(Error::Fault(fault)) => Ok(fault),
        Err(other) => Err(format!("expected a fault: {other}")),
        Ok(()) => Err("expected a fault, but the work succeeded".to_owned()),
    }
}

/// The kernel that a fault names.
pub(super) fn place(fault: &Fault) -> Option<&str> {
    fault.location.as_ref().map(|location| location.kernel.as_str())
}

/// Fails unless the fault is of that kind and names that kernel.
pub(super) fn named(fault: &Fault, kind: FaultKind, kernel: &str) -> Check {
    let place = place(fault);
    ensure(fault.kind == kind && place == Some(kernel), || {
        format!(
            "expected {kind:?} in {kernel}, got {:?} in {place:?}: {fault}; log {:?}",
            fault.kind, fault.log
        )
    })
}

/// Fails unless the fault says that the endless kernel was stopped: by a recovery, or by a driver that limits
/// how long a kernel may delay another program's work.
pub(super) fn stopped(fault: &Fault) -> Check {
    let kind = match fault.kind {
        kind @ FaultKind::Other(ErrorCode::IdleTimeout) => kind,
        _ => FaultKind::Abandoned,
    };
    named(fault, kind, "fault_endless")
}

/// Number of blocks of `block` threads for `elements` elements.
pub(super) fn blocks(elements: usize, block: u32) -> u32 {
    // CAST: the suites' sizes are far below 2^32.
    (elements as u32).div_ceil(block).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comparisons_name_the_first_difference() {
        assert!(equal("a", &[1, 2], &[1, 2]).is_ok());
        assert!(equal("a", &[1, 2], &[1, 3]).unwrap_err().to_string().contains("element 1 is 2, not 3"));
        assert!(equal("a", &[1], &[1, 3]).is_err());
        assert!(close("a", &[1.0, 100.0], &[1.0005, 100.05], 1e-3).is_ok());
        assert!(close("a", &[f32::NAN], &[f32::NAN], 1.0).is_err());
        assert!(close("a", &[1.0], &[1.1], 1e-3).unwrap_err().to_string().contains("element 0"));
    }
}
