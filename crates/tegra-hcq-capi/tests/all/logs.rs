//! Events reach the callback.

use core::ffi::{CStr, c_char, c_void};
use core::ptr;
use std::sync::Mutex;

use tegra_hcq_capi::*;

use crate::support::{Board, fails, ok};

/// Collects the events in the `Mutex<Vec<String>>` at `user`.
unsafe extern "C" fn collect(level: u32, module: *const c_char, text: *const c_char, user: *mut c_void) {
    // SAFETY: the test passes this pointer, and strings are valid during the call.
    unsafe {
        let lines = &*user.cast::<Mutex<Vec<String>>>();
        let (module, text) =
            (CStr::from_ptr(module).to_string_lossy(), CStr::from_ptr(text).to_string_lossy());
        lines.lock().expect("no test panics here").push(format!("{level} {module}: {text}"));
    }
}

#[test]
fn events_reach_the_function_until_it_is_replaced() {
    let lines: &'static Mutex<Vec<String>> = Box::leak(Box::default());
    let user = ptr::from_ref(lines).cast_mut().cast();
    // SAFETY: `lines` is never freed.
    unsafe {
        fails(tegra_hcq_set_log(6, Some(collect), user), Status::InvalidArgument, "0 to 5");
        ok(tegra_hcq_set_log(3, Some(collect), user));
        drop(Board::open());
        ok(tegra_hcq_set_log(0, None, ptr::null_mut()));
    }
    let seen = lines.lock().unwrap().clone();
    let opened = seen.iter().find(|line| line.contains("device opened")).expect("an event");
    assert!(opened.starts_with("3 tegra_hcq") && opened.contains("chip=\"ga10b\""), "{opened}");
    assert!(seen.iter().all(|line| line.as_bytes()[0] <= b'3'), "{seen:?}");
    drop(Board::open());
    assert_eq!(lines.lock().unwrap().len(), seen.len());
}
