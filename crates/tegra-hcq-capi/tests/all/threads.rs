//! Calls of several threads on the same objects.

use core::ffi::CStr;
use core::ptr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use tegra_hcq_capi::*;

use crate::support::{Board, LONG, at, fails, ok, read, word};

/// A handle that threads share, as C programs do.
struct Shared<T>(*mut T);

impl<T> Clone for Shared<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Shared<T> {}

// SAFETY: a handle is a number.
unsafe impl<T> Send for Shared<T> {}
// SAFETY: as for `Send`.
unsafe impl<T> Sync for Shared<T> {}

#[test]
fn threads_share_one_queue() {
    let board = Board::open();
    let (kernel, buffer) = (board.kernel("atomics", c"atomic_tickets"), board.words(&[0; 4]));
    let order = board.alloc(4 * 32 * 4 * 25);
    let shared = (Shared(board.queue), Shared(kernel), Shared(buffer), Shared(order));
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(move || {
                let (queue, kernel, buffer, order) = shared;
                let board = core::mem::ManuallyDrop::new(Board { device: ptr::null_mut(), queue: queue.0 });
                for _ in 0..25 {
                    ok(board.launch(kernel.0, 1, &[at(buffer.0, 0), at(order.0, 0)]));
                    // SAFETY: the fence is not wanted.
                    ok(unsafe { tegra_hcq_queue_submit(queue.0, ptr::null_mut()) });
                }
            });
        }
    });
    ok(board.wait());
    assert_eq!(read(buffer, 1), [100 * 32], "each of 100 launches has taken 32 tickets");
}

/// Objects are freed by one thread while another launches with their handles. Each call succeeds or says that the
/// handle is invalid.
#[test]
fn objects_are_freed_under_a_busy_queue() {
    let board = Board::open();
    let kernel = board.kernel("basics", c"fill_u32");
    let (stop, launched, refused) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
    let current = AtomicU64::new(board.alloc(256).addr() as u64);
    let shared = (Shared(board.queue), Shared(kernel), Shared(board.device));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let (queue, kernel, _) = shared;
            let board = core::mem::ManuallyDrop::new(Board { device: ptr::null_mut(), queue: queue.0 });
            while !stop.load(Ordering::Relaxed) {
                let handle = ptr::without_provenance_mut(current.load(Ordering::Acquire) as usize);
                match board.launch(kernel.0, 1, &[at(handle, 0), word(1), word(8)]) {
                    Status::Ok => launched.fetch_add(1, Ordering::Relaxed),
                    status => {
                        assert_eq!(status, Status::InvalidHandle);
                        refused.fetch_add(1, Ordering::Relaxed)
                    }
                };
            }
            ok(board.wait());
        });
        scope.spawn(|| {
            let (_, _, device) = shared;
            let board = core::mem::ManuallyDrop::new(Board { device: device.0, queue: ptr::null_mut() });
            for _ in 0..2000 {
                let next = board.alloc(256);
                let old = current.load(Ordering::Relaxed);
                ok(tegra_hcq_buffer_free(ptr::without_provenance_mut(old as usize)));
                current.store(next.addr() as u64, Ordering::Release);
            }
            stop.store(true, Ordering::Relaxed);
        });
    });
    assert!(launched.load(Ordering::Relaxed) > 0);
    ok(board.wait());
}

#[test]
fn a_wait_blocks_neither_the_queue_nor_the_signal_that_ends_it() {
    let board = Board::open();
    let mut signal = ptr::null_mut();
    // SAFETY: the result has a place.
    ok(unsafe { tegra_hcq_signal_create(board.device, 0, &raw mut signal) });
    ok(tegra_hcq_queue_wait_signal(board.queue, signal, 1));
    let queue = Shared(board.queue);
    let start = Instant::now();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(move || {
            let queue = queue;
            tegra_hcq_queue_wait(queue.0, LONG)
        });
        std::thread::sleep(std::time::Duration::from_millis(20));
        ok(tegra_hcq_queue_memory_barrier(board.queue));
        let unused = board.alloc(64);
        ok(tegra_hcq_buffer_free(unused));
        ok(tegra_hcq_signal_set(signal, 1));
        ok(waiting.join().expect("no panic"));
    });
    assert!(start.elapsed().as_secs() < 30);
    ok(board.wait());
}

#[test]
fn the_last_error_belongs_to_its_thread() {
    fails(tegra_hcq_queue_close(ptr::null_mut()), Status::InvalidHandle, "the queue is NULL");
    std::thread::spawn(|| {
        fails(Status::Ok, Status::Ok, "");
        assert_eq!(crate::support::last_error(), "");
        fails(tegra_hcq_buffer_free(ptr::null_mut()), Status::InvalidHandle, "the buffer is NULL");
    })
    .join()
    .expect("no panic");
    fails(Status::Ok, Status::Ok, "the queue is NULL");
}

#[test]
fn devices_are_closed_at_the_same_time() {
    let start = std::sync::Barrier::new(3);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                for _ in 0..5 {
                    let board = core::mem::ManuallyDrop::new(Board::open());
                    ok(board.wait());
                    start.wait();
                    ok(tegra_hcq_device_close(board.device));
                }
            });
        }
    });
}

/// A queue belongs to the thread that used it last; any other thread can still close it.
#[test]
fn another_thread_closes_the_device() {
    let board = core::mem::ManuallyDrop::new(Board::open());
    let (kernel, buffer) = (board.kernel("basics", c"fill_u32"), board.words(&[0; 32]));
    for _ in 0..20 {
        ok(board.launch(kernel, 1, &[at(buffer, 0), word(7), word(32)]));
    }
    ok(board.wait());
    let device = Shared(board.device);
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let device = device;
            ok(tegra_hcq_device_close(device.0));
        });
    });
    fails(board.wait(), Status::InvalidHandle, "was closed");
}

/// The calls that a function makes while it interrupts a wait, and their answers.
struct Nested {
    queue: *mut tegra_hcq_queue,
    graph: *mut tegra_hcq_graph,
    answers: Vec<Status>,
}

unsafe extern "C" fn interrupt(user: *mut core::ffi::c_void) -> i32 {
    // SAFETY: the test passes its struct, which nothing else uses during the wait.
    let nested = unsafe { &mut *user.cast::<Nested>() };
    let mut steps = 0;
    // SAFETY: the result has a place.
    nested.answers.push(unsafe { tegra_hcq_graph_len(nested.graph, &raw mut steps) });
    nested.answers.push(tegra_hcq_queue_memory_barrier(nested.queue));
    i32::from(nested.answers.len() == 4)
}

#[test]
fn a_function_interrupts_waits_of_its_thread_and_may_call_the_library() {
    let board = Board::open();
    let (mut builder, mut graph, mut other, mut signal) =
        (ptr::null_mut(), ptr::null_mut(), ptr::null_mut(), ptr::null_mut());
    let (buffer, mut node) = (board.alloc(64), 0);
    // SAFETY: results have places.
    unsafe {
        ok(tegra_hcq_graph_begin(board.device, &raw mut builder));
        ok(tegra_hcq_graph_set_instances(builder, 1));
        ok(tegra_hcq_graph_fill(builder, buffer, 0, 64, 1, 1, &raw mut node));
        ok(tegra_hcq_graph_build(builder, &raw mut graph));
        ok(tegra_hcq_queue_open(board.device, ptr::null(), &raw mut other));
        ok(tegra_hcq_signal_create(board.device, 0, &raw mut signal));
    }
    let mut nested = Nested { queue: other, graph, answers: Vec::new() };
    ok(tegra_hcq_queue_wait_signal(board.queue, signal, 1));
    // SAFETY: the struct lives until the function is removed; fences are not wanted.
    unsafe {
        ok(tegra_hcq_queue_replay(board.queue, graph, ptr::null_mut()));
        ok(tegra_hcq_set_interrupt(Some(interrupt), (&raw mut nested).cast()));
        // The only instance is in flight: the replay waits with queue and graph locked.
        let replayed = tegra_hcq_queue_replay(board.queue, graph, ptr::null_mut());
        fails(replayed, Status::Interrupted, "interrupted");
        assert_eq!(nested.answers, [Status::Busy, Status::Ok, Status::Busy, Status::Ok]);
        // A wait without locks: everything works in the function.
        nested.answers.truncate(2);
        nested.queue = board.queue;
        fails(tegra_hcq_signal_wait(signal, 1, LONG), Status::Interrupted, "interrupted");
        assert_eq!(nested.answers[2..], [Status::Ok; 2]);
        ok(tegra_hcq_set_interrupt(None, ptr::null_mut()));
    }
    ok(tegra_hcq_signal_set(signal, 1));
    ok(board.wait());
}

/// A child inherits locks of the model's threads. It makes no call that may take one.
#[test]
fn a_forked_child_is_refused_while_a_device_is_open() {
    let board = Board::open();
    // SAFETY: the child calls the library, which takes no lock there, and ends.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let mut device = ptr::null_mut();
        // SAFETY: the name is a string, and the place is valid; the error text lives until the next failed call.
        let refused = unsafe {
            let opened = tegra_hcq_device_open(c"sim".as_ptr(), 0, &raw mut device);
            let waited = tegra_hcq_queue_wait(board.queue, 0);
            let text = CStr::from_ptr(tegra_hcq_last_error()).to_bytes();
            opened == Status::Device && waited == opened && text.starts_with(b"forked child: ")
        };
        // SAFETY: no pointers.
        unsafe { libc::_exit(i32::from(!refused)) };
    }
    let mut status = -1;
    // SAFETY: the place is a local variable.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert_eq!(status, 0);
    ok(board.wait());
}
