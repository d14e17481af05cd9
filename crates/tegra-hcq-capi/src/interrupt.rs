//! Interrupts of waits.

use core::cell::Cell;
use core::ffi::c_void;

use crate::status::{Status, guard};

/// A function that ends a wait of its thread by returning a value other than 0. `user` is the pointer given with the
/// function. It must not unwind. It may call functions of this library; on objects that the interrupted call uses they
/// return TEGRA_HCQ_STATUS_BUSY.
#[allow(non_camel_case_types, reason = "this is the name of the C header")]
pub type tegra_hcq_interrupt_callback = Option<unsafe extern "C" fn(user: *mut c_void) -> i32>;

/// A function and its pointer.
type Target = (tegra_hcq_interrupt_callback, *mut c_void);

thread_local! {
    static CALLBACK: Cell<Target> = const { Cell::new((None, core::ptr::null_mut())) };
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// Whether the thread is in its function.
pub(crate) fn is_inside() -> bool {
    INSIDE.get()
}

fn ask() -> bool {
    let (Some(callback), user) = CALLBACK.get() else { return false };
    if INSIDE.replace(true) {
        return false;
    }
    // SAFETY: the promise of the caller of `tegra_hcq_set_interrupt`.
    let answer = unsafe { callback(user) };
    INSIDE.set(false);
    answer != 0
}

/// Sets the function that waits of this thread call every 20 ms; NULL removes it. Once it returns a value other than 0,
/// the wait fails with TEGRA_HCQ_STATUS_INTERRUPTED. The work of an interrupted wait counts as hanging until it has
/// ended: `tegra_hcq_queue_close` and `tegra_hcq_device_close` do not wait for it, and `tegra_hcq_device_recover` stops
/// it. Thread-safe; each thread has a function of its own.
///
/// # Safety
///
/// This thread may call `callback` with `user` until it is replaced or the thread ends.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tegra_hcq_set_interrupt(
    callback: tegra_hcq_interrupt_callback,
    user: *mut c_void,
) -> Status {
    guard(|| {
        CALLBACK.set((callback, user));
        tegra_hcq::set_interrupt(callback.is_some().then_some(ask as fn() -> bool));
        Ok(())
    })
}
