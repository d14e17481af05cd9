//! Signals.

use std::sync::Arc;

use tegra_hcq::Signal;

use crate::device::{device, hand_out};
use crate::handle::{TABLE, share};
use crate::object::{Kind, Object};
use crate::pass;
use crate::status::{Failure, Status, guard};
use crate::types::{tegra_hcq_device, tegra_hcq_signal};

/// The signal that a handle names.
pub(crate) fn signal(handle: *mut tegra_hcq_signal) -> Result<Arc<Signal>, Failure> {
    share(handle.addr() as u64, Kind::Signal, |object| match object {
        Object::Signal(_, signal) => Some(signal),
        _ => None,
    })
}

/// Creates a signal with a value. `*out` is set only on success. Thread-safe.
///
/// # Safety
///
/// `out` is NULL or valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tegra_hcq_signal_create(
    device: *mut tegra_hcq_device,
    value: u64,
    out: *mut *mut tegra_hcq_signal,
) -> Status {
    guard(|| {
        let (owner, device) = self::device(device)?;
        // SAFETY: the caller's promise.
        let out = unsafe { pass::out(out, "out")? };
        hand_out(out, Object::Signal(owner, Arc::new(device.signal(value)?)))
    })
}

/// Frees a signal after the work that uses it has ended. Thread-safe.
#[unsafe(no_mangle)]
pub extern "C" fn tegra_hcq_signal_free(signal: *mut tegra_hcq_signal) -> Status {
    guard(|| TABLE.remove(signal.addr() as u64, Kind::Signal))
}

/// Sets the value. Writes that the CPU made before are visible to every waiter. Thread-safe.
#[unsafe(no_mangle)]
pub extern "C" fn tegra_hcq_signal_set(signal: *mut tegra_hcq_signal, value: u64) -> Status {
    guard(|| {
        self::signal(signal)?.set(value);
        Ok(())
    })
}

/// The value. Writes that the GPU made before it set the signal are visible to the caller. Thread-safe.
///
/// # Safety
///
/// `value` is NULL or valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tegra_hcq_signal_value(signal: *mut tegra_hcq_signal, value: *mut u64) -> Status {
    guard(|| {
        // SAFETY: the caller's promise.
        let value = unsafe { pass::out(value, "value")? };
        value.put(self::signal(signal)?.value());
        Ok(())
    })
}

/// GPU time of the last release by a queue, in nanoseconds of the GPU's clock; 0 before the first. Thread-safe.
///
/// # Safety
///
/// `time_ns` is NULL or valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tegra_hcq_signal_gpu_time(
    signal: *mut tegra_hcq_signal,
    time_ns: *mut u64,
) -> Status {
    guard(|| {
        // SAFETY: the caller's promise.
        let time = unsafe { pass::out(time_ns, "time_ns")? };
        time.put(self::signal(signal)?.gpu_time_ns());
        Ok(())
    })
}

/// Waits until the value is at least `value`, at most `timeout_ns` nanoseconds. Thread-safe.
#[unsafe(no_mangle)]
pub extern "C" fn tegra_hcq_signal_wait(
    signal: *mut tegra_hcq_signal,
    value: u64,
    timeout_ns: u64,
) -> Status {
    guard(|| Ok(self::signal(signal)?.wait(value, pass::timeout(timeout_ns))?))
}
