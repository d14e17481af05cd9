//! Misuse of handles is an error that says what is wrong.

use core::ptr;

use tegra_hcq_capi::*;

use crate::support::{Board, LONG, at, dim, fails, ok, word};

#[test]
fn a_freed_handle_is_refused_by_every_kind_of_call() {
    let board = Board::open();
    let buffer = board.alloc(64);
    ok(tegra_hcq_buffer_free(buffer));
    fails(tegra_hcq_buffer_free(buffer), Status::InvalidHandle, "was freed");
    fails(tegra_hcq_buffer_wait(buffer, 0), Status::InvalidHandle, "was freed");
    // The slot has a new object of the same kind; the old handle stays invalid.
    let other = board.alloc(64);
    assert_ne!(other, buffer);
    fails(tegra_hcq_buffer_wait(buffer, 0), Status::InvalidHandle, "was freed");
    let kernel = board.kernel("basics", c"fill_u32");
    fails(board.launch(kernel, 1, &[at(buffer, 0), word(1), word(1)]), Status::InvalidHandle, "the buffer");
    ok(tegra_hcq_kernel_free(kernel));
    fails(board.launch(kernel, 1, &[at(other, 0), word(1), word(1)]), Status::InvalidHandle, "the kernel");
    ok(board.wait());
}

#[test]
fn a_handle_of_another_kind_is_named() {
    let board = Board::open();
    let buffer = board.alloc(64);
    fails(
        tegra_hcq_queue_wait(buffer.cast(), LONG),
        Status::InvalidHandle,
        "is the handle of a buffer, not of a queue",
    );
    let kernel = board.kernel("basics", c"fill_u32");
    fails(
        board.launch(kernel, 1, &[at(board.queue.cast(), 0), word(1), word(1)]),
        Status::InvalidHandle,
        "is the handle of a queue, not of a buffer",
    );
    fails(tegra_hcq_queue_close(ptr::null_mut()), Status::InvalidHandle, "the queue is NULL");
    for number in [1, 0xdead_beef, usize::MAX, 1 << 63] {
        let invented = ptr::without_provenance_mut(number);
        fails(tegra_hcq_device_close(invented), Status::InvalidHandle, "is not a handle of this library");
    }
}

#[test]
fn objects_of_a_closed_device_are_invalid() {
    let board = Board::open();
    let (buffer, kernel) = (board.alloc(64), board.kernel("basics", c"fill_u32"));
    let (mut fence, mut signal) = (ptr::null_mut(), ptr::null_mut());
    let (mut builder, mut profile) = (ptr::null_mut(), ptr::null_mut());
    // SAFETY: results have places.
    unsafe {
        ok(tegra_hcq_signal_create(board.device, 1, &raw mut signal));
        ok(tegra_hcq_queue_submit(board.queue, &raw mut fence));
        ok(tegra_hcq_graph_begin(board.device, &raw mut builder));
        ok(tegra_hcq_queue_take_profile(board.queue, &raw mut profile));
    }
    let other = Board::open();
    ok(tegra_hcq_device_close(board.device));
    for (status, what) in [
        (tegra_hcq_buffer_free(buffer), "the device of the buffer"),
        (tegra_hcq_kernel_free(kernel), "the device of the kernel"),
        (tegra_hcq_queue_wait(board.queue, LONG), "the device of the queue"),
        (tegra_hcq_fence_wait(fence, LONG), "the device of the fence"),
        (tegra_hcq_signal_set(signal, 2), "the device of the signal"),
        (tegra_hcq_graph_abandon(builder), "the device of the graph builder"),
        (tegra_hcq_profile_free(profile), "the device of the profile"),
    ] {
        assert_eq!(status, Status::InvalidHandle, "{what}");
    }
    // Another test may use the slot by now, so the text may be the general one.
    fails(tegra_hcq_buffer_free(buffer), Status::InvalidHandle, "was closed");
    fails(tegra_hcq_device_close(board.device), Status::InvalidHandle, "was freed");
    // Another device is not affected.
    ok(other.wait());
}

#[test]
fn a_missing_place_for_a_result_changes_nothing() {
    let board = Board::open();
    // SAFETY: NULL is refused.
    unsafe {
        fails(
            tegra_hcq_device_open(c"sim".as_ptr(), 0, ptr::null_mut()),
            Status::InvalidArgument,
            "out is NULL",
        );
        fails(
            tegra_hcq_buffer_alloc(board.device, 64, 0, ptr::null_mut()),
            Status::InvalidArgument,
            "out is NULL",
        );
        let mut device = ptr::null_mut();
        fails(
            tegra_hcq_device_open(c"toaster".as_ptr(), 0, &raw mut device),
            Status::InvalidArgument,
            "toaster",
        );
        fails(tegra_hcq_device_open(c"sim".as_ptr(), 16, &raw mut device), Status::Device, "sim:16");
        ok(tegra_hcq_device_open(c"sim".as_ptr(), 15, &raw mut device));
        ok(tegra_hcq_device_close(device));
        fails(
            tegra_hcq_queue_launch(board.queue, ptr::null_mut(), dim(1), dim(1), 0, ptr::null(), 0),
            Status::InvalidHandle,
            "the kernel is NULL",
        );
    }
}

#[test]
fn buffers_of_another_device_are_refused() {
    let (board, other) = (Board::open(), Board::open());
    let (kernel, foreign) = (board.kernel("basics", c"fill_u32"), other.alloc(64));
    fails(
        board.launch(kernel, 1, &[at(foreign, 0), word(1), word(1)]),
        Status::InvalidArgument,
        "belongs to another device",
    );
}

#[test]
fn thousands_of_objects_come_and_go() {
    let board = Board::open();
    let mut buffers: Vec<_> = (0..3000).map(|_| board.alloc(16)).collect();
    for buffer in &buffers {
        ok(tegra_hcq_buffer_free(*buffer));
    }
    for buffer in &mut buffers {
        let freed = *buffer;
        *buffer = board.alloc(16);
        assert_ne!(*buffer, freed);
        assert_eq!(tegra_hcq_buffer_free(freed), Status::InvalidHandle);
    }
    buffers.sort();
    buffers.dedup();
    assert_eq!(buffers.len(), 3000, "each object has its own handle");
}
