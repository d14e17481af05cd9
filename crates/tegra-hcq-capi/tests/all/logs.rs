//! Events and what kernels print reach the callbacks.

use core::ffi::{CStr, c_char, c_void};
use core::ptr;
use std::sync::Mutex;

use tegra_hcq_capi::*;

use crate::support::{Board, at, fails, ok, word};

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

/// Collects stream and text in the `Mutex<Vec<(u32, String)>>` at `user`.
unsafe extern "C" fn print(stream: u32, text: *const c_char, bytes: u64, user: *mut c_void) {
    // SAFETY: the test passes this pointer, and the text has this length during the call.
    unsafe {
        let text = core::slice::from_raw_parts(text.cast::<u8>(), bytes as usize);
        let lines = &*user.cast::<Mutex<Vec<(u32, String)>>>();
        lines.lock().expect("no test panics here").push((stream, String::from_utf8_lossy(text).into_owned()));
    }
}

#[test]
fn output_of_kernels_reaches_the_function_of_its_device() {
    let [first, second]: [&'static Mutex<Vec<(u32, String)>>; 2] =
        [Box::leak(Box::default()), Box::leak(Box::default())];
    let user = |lines: &'static Mutex<_>| ptr::from_ref(lines).cast_mut().cast();
    let board = Board::open();
    let (many, results) = (board.kernel("device_calls", c"print_many"), board.alloc(4 * 32));
    let run = || {
        ok(board.launch(many, 1, &[word(1), at(results, 0)]));
        ok(board.wait());
    };
    // SAFETY: the vectors are never freed.
    unsafe { ok(tegra_hcq_device_set_output(board.device, Some(print), user(first))) };
    run();
    // SAFETY: as above.
    unsafe { ok(tegra_hcq_device_set_output(board.device, Some(print), user(second))) };
    run();
    // A failed assertion goes to standard error, and ends the work.
    let assert = board.kernel("device_calls", c"assert_all");
    ok(board.launch(assert, 1, &[word(3), at(results, 0)]));
    fails(board.wait(), Status::Fault, "device_calls.cu");
    // SAFETY: NULL is the standard streams again.
    unsafe { ok(tegra_hcq_device_set_output(board.device, None, ptr::null_mut())) };
    let taken = |lines: &Mutex<Vec<(u32, String)>>| lines.lock().expect("no test panics here").clone();
    let expected: Vec<_> = (0..32).map(|thread| (1, format!("{thread} 0 even\n"))).collect();
    assert_eq!(taken(first), expected);
    let of_second = taken(second);
    assert_eq!(of_second[..32], expected);
    let [(2, text)] = &of_second[32..] else { panic!("{:?}", &of_second[32..]) };
    assert!(text.contains("Assertion `thread != wrong` failed"), "{text}");
}

#[test]
fn the_sizes_of_the_run_time_are_set_and_checked() {
    let board = Board::open();
    type Get = unsafe extern "C" fn(*mut tegra_hcq_device, *mut u64) -> Status;
    type Set = extern "C" fn(*mut tegra_hcq_device, u64) -> Status;
    let [printf, heap]: [(Get, Set); 2] = [
        (tegra_hcq_device_printf_bytes, tegra_hcq_device_set_printf_bytes),
        (tegra_hcq_device_kernel_heap_bytes, tegra_hcq_device_set_kernel_heap_bytes),
    ];
    for ((get, set), initial) in [(printf, 1 << 20), (heap, 8 << 20)] {
        let size = || {
            let mut bytes = 0;
            // SAFETY: the result has a place.
            ok(unsafe { get(board.device, &raw mut bytes) });
            bytes
        };
        assert_eq!(size(), initial);
        ok(set(board.device, 1 << 16));
        assert_eq!(size(), 1 << 16);
        fails(set(board.device, (4 << 30) + 1), Status::InvalidArgument, "4294967297");
        fails(set(ptr::null_mut(), 1), Status::InvalidHandle, "");
        // SAFETY: NULL is refused.
        fails(unsafe { get(board.device, ptr::null_mut()) }, Status::InvalidArgument, "bytes");
        assert_eq!(size(), 1 << 16);
    }
    // What is printed beyond the size is refused: `results` counts what was accepted.
    ok(printf.1(board.device, 4096));
    // SAFETY: the lines are dropped.
    unsafe extern "C" fn ignore(_: u32, _: *const c_char, _: u64, _: *mut c_void) {}
    // SAFETY: the function needs no pointer.
    unsafe { ok(tegra_hcq_device_set_output(board.device, Some(ignore), ptr::null_mut())) };
    let results = board.alloc(4 * 32);
    ok(board.launch(board.kernel("device_calls", c"print_many"), 1, &[word(1000), at(results, 0)]));
    ok(board.wait());
    let mut accepted = [0_u32; 32];
    // SAFETY: the target has this length.
    ok(unsafe { tegra_hcq_buffer_read(results, 0, accepted.as_mut_ptr().cast(), 128) });
    assert!((1..500).contains(&accepted.iter().sum::<u32>()), "{accepted:?}");
}
