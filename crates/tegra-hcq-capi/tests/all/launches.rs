//! Launches, copies, waits, faults and profiles.

use core::ffi::CStr;
use core::ptr;
use std::os::fd::{BorrowedFd, FromRawFd, OwnedFd};

use tegra_hcq_capi::*;

use crate::support::{Board, LONG, at, dim, fails, ok, read, word};

#[test]
fn a_launch_writes_what_the_kernel_computes() {
    let board = Board::open();
    let kernel = board.kernel("vector_add", c"vector_add");
    let of = |value: f32| vec![value.to_bits(); 100];
    let (a, b, sum) = (board.words(&of(1.5)), board.words(&of(2.0)), board.alloc(400));
    ok(board.launch(kernel, 4, &[at(a, 0), at(b, 0), at(sum, 0), word(100)]));
    ok(board.wait());
    assert_eq!(read(sum, 100), of(3.5));
}

#[test]
fn offsets_and_values_reach_the_kernel() {
    let board = Board::open();
    let (kernel, buffer) = (board.kernel("basics", c"fill_u32"), board.words(&[0; 8]));
    ok(board.launch(kernel, 1, &[at(buffer, 12), word(7), word(2)]));
    ok(board.wait());
    assert_eq!(read(buffer, 8), [0, 0, 0, 7, 7, 0, 0, 0]);
    // An integer argument may be the buffer's address.
    let mut address = 0;
    // SAFETY: the result has a place.
    ok(unsafe { tegra_hcq_buffer_gpu_address(buffer, &raw mut address) });
    let pointer = tegra_hcq_arg { kind: 1, size: 8, value: address, offset: 0 };
    ok(board.launch(kernel, 1, &[pointer, word(9), word(1)]));
    ok(board.wait());
    assert_eq!(read(buffer, 1), [9]);
}

#[test]
fn wrong_arguments_are_refused_with_their_number() {
    let board = Board::open();
    let (kernel, buffer) = (board.kernel("basics", c"fill_u32"), board.alloc(64));
    let bad =
        |args: &[tegra_hcq_arg], part| fails(board.launch(kernel, 1, args), Status::InvalidArgument, part);
    bad(&[at(buffer, 65), word(1), word(1)], "argument 0: offset 65 is outside of a buffer of 64 bytes");
    bad(&[at(buffer, 0), word(1)], "fill_u32");
    bad(&[at(buffer, 0), word(1), tegra_hcq_arg { size: 3, ..word(1) }], "argument 2: a value has 3 bytes");
    bad(&[at(buffer, 0), word(1), tegra_hcq_arg { kind: 9, ..word(1) }], "argument 2: kind is 9");
    bad(&[at(buffer, 0), word(1), tegra_hcq_arg { size: 8, ..word(1) }], "fill_u32");
    // SAFETY: NULL is refused; the grid is refused.
    unsafe {
        let status = tegra_hcq_queue_launch(board.queue, kernel, dim(1), dim(32), 0, ptr::null(), 3);
        fails(status, Status::InvalidArgument, "args is NULL");
        let args = [at(buffer, 0), word(1), word(1)];
        let status = tegra_hcq_queue_launch(board.queue, kernel, dim(0), dim(32), 0, args.as_ptr(), 3);
        fails(status, Status::InvalidArgument, "grid");
        let status = tegra_hcq_queue_launch(board.queue, kernel, dim(1), dim(4096), 0, args.as_ptr(), 3);
        fails(status, Status::InvalidArgument, "1024");
    }
}

#[test]
fn copies_fills_and_uploads_keep_the_order_of_the_queue() {
    let board = Board::open();
    let (a, b) = (board.words(&[1, 2, 3, 4]), board.words(&[0; 4]));
    let upload = [8_u32, 9];
    let mut fence = ptr::null_mut();
    // SAFETY: the source has this length, results have places; nothing else uses the buffers.
    unsafe {
        ok(tegra_hcq_queue_copy(board.queue, b, 4, a, 0, 8));
        ok(tegra_hcq_queue_fill(board.queue, a, 0, 8, 5, 4));
        ok(tegra_hcq_queue_fill(board.queue, a, 8, 3, 0xff, 1));
        ok(tegra_hcq_queue_upload(board.queue, b, 8, upload.as_ptr().cast(), 8, &raw mut fence));
        ok(tegra_hcq_fence_wait(fence, LONG));
        ok(tegra_hcq_queue_copy(board.queue, a, 12, a, 0, 4));
        ok(board.wait());
        let overlap = tegra_hcq_queue_copy(board.queue, a, 4, a, 0, 8);
        fails(overlap, Status::InvalidArgument, "overlap");
        let outside = tegra_hcq_queue_copy(board.queue, a, 8, b, 0, 12);
        fails(outside, Status::InvalidArgument, "12 bytes at offset 8 are outside of a buffer of 16 bytes");
        fails(tegra_hcq_queue_fill(board.queue, a, 1, 8, 1, 4), Status::InvalidArgument, "aligned");
        fails(tegra_hcq_queue_fill(board.queue, a, 0, 8, 256, 1), Status::InvalidArgument, "one byte");
        fails(tegra_hcq_queue_fill(board.queue, a, 0, 8, 1, 2), Status::InvalidArgument, "width");
    }
    assert_eq!(read(a, 4), [5, 5, 0x00ff_ffff, 5]);
    assert_eq!(read(b, 4), [0, 1, 8, 9]);
}

#[test]
fn the_cpu_sees_the_memory_of_a_buffer() {
    let board = Board::open();
    let buffer = board.words(&[4, 5]);
    let (mut address, mut bytes) = (ptr::null_mut(), 0);
    // SAFETY: results have places; the buffer lives until the end, and no work uses it.
    unsafe {
        ok(tegra_hcq_buffer_cpu_address(buffer, &raw mut address));
        ok(tegra_hcq_buffer_size(buffer, &raw mut bytes));
        assert_eq!((address.cast::<u32>().add(1).read_volatile(), bytes), (5, 8));
        address.cast::<u32>().write_volatile(6);
    }
    assert_eq!(read(buffer, 2), [6, 5]);
}

#[test]
fn memory_of_the_process_is_used_in_place() {
    let board = Board::open();
    let pages = tegra_hcq::HostMemory::<u32>::new(1024).expect("memory");
    let (mut buffer, address) = (ptr::null_mut(), pages.as_ptr().cast_mut());
    // SAFETY: whole pages, which live until after the buffer.
    ok(unsafe { tegra_hcq_buffer_import(board.device, address.cast(), 4096, &raw mut buffer) });
    ok(board.launch(board.kernel("basics", c"fill_u32"), 1, &[at(buffer, 0), word(3), word(4)]));
    ok(board.wait());
    // SAFETY: inside the pages; the work has ended.
    assert_eq!(unsafe { address.add(3).read_volatile() }, 3);
    ok(tegra_hcq_buffer_free(buffer));
    // SAFETY: refused.
    let status = unsafe { tegra_hcq_buffer_import(board.device, address.add(1).cast(), 64, &raw mut buffer) };
    assert_ne!(status, Status::Ok);
}

#[test]
fn memory_and_fences_go_through_files() {
    let board = Board::open();
    let (mut buffer, mut again, mut fd, mut fence) = (ptr::null_mut(), ptr::null_mut(), -1, -1);
    // SAFETY: every place is valid, and the descriptors are open.
    unsafe {
        ok(tegra_hcq_buffer_alloc_shared(board.device, 400, &raw mut buffer));
        ok(tegra_hcq_buffer_export(buffer, true, &raw mut fd));
        ok(tegra_hcq_buffer_import_file(board.device, fd, false, &raw mut again));
        ok(board.launch(board.kernel("basics", c"fill_u32"), 1, &[at(buffer, 0), word(3), word(4)]));
        ok(tegra_hcq_queue_submit_to_file(board.queue, &raw mut fence));
        ok(tegra_hcq_queue_wait_file(board.queue, fence));
    }
    ok(board.wait());
    ok(tegra_hcq_buffer_begin_cpu(again, false));
    assert_eq!(read(again, 5)[..5], [3, 3, 3, 3, 0]);
    ok(tegra_hcq_buffer_end_cpu(again, false));
    // SAFETY: `word` is four bytes; the places are valid; the descriptors are this test's.
    unsafe {
        let word = 7_u32;
        let status = tegra_hcq_buffer_write(again, 0, (&raw const word).cast(), 4);
        fails(status, Status::InvalidArgument, "reading only");
        fails(tegra_hcq_buffer_export(board.alloc(4), true, &raw mut fd), Status::Unsupported, "not shared");
        fails(tegra_hcq_queue_wait_file(board.queue, -1), Status::InvalidArgument, "fd is -1");
        fails(tegra_hcq_queue_wait_file(board.queue, fd), Status::Device, "no sync-file");
        let refused = tegra_hcq_buffer_import_file(board.device, fence, true, &raw mut again);
        fails(refused, Status::Device, "no dma-buf");
        for fd in [fd, fence] {
            drop(OwnedFd::from_raw_fd(fd));
        }
    }
}

#[test]
fn a_fault_is_described_and_recovered_from() {
    let board = Board::open();
    let (kernel, buffer) = (board.kernel("faults", c"fault_write"), board.alloc(128));
    let pointer = tegra_hcq_arg { kind: 1, size: 8, value: 0x1000, offset: 0 };
    ok(board.launch(kernel, 1, &[pointer, word(1)]));
    fails(board.wait(), Status::Fault, "GPU fault: MMU fault");
    // SAFETY: zeros are valid in every field.
    let mut fault: tegra_hcq_fault = unsafe { core::mem::zeroed() };
    // SAFETY: the struct has this size, texts are valid until the next failure.
    unsafe {
        fails(tegra_hcq_last_fault(&raw mut fault), Status::InvalidArgument, "struct_size");
        fails(board.wait(), Status::Fault, "MMU");
        fault.struct_size = size_of::<tegra_hcq_fault>() as u32;
        ok(tegra_hcq_last_fault(&raw mut fault));
        assert_eq!((fault.kind, fault.has_address, fault.address), (0, 1, 0x1000));
        assert_eq!(CStr::from_ptr(fault.kernel), c"fault_write");
        assert!(
            CStr::from_ptr(fault.text)
                .to_str()
                .unwrap()
                .starts_with("GPU fault: MMU fault at address 0x1000")
        );
        assert!(CStr::from_ptr(fault.reason).to_str().unwrap().contains("write access"));
        assert_eq!(fault.struct_size as usize, size_of::<tegra_hcq_fault>());
    }
    let (mut faults, mut hanging) = (9, 9);
    // SAFETY: results have places.
    ok(unsafe { tegra_hcq_device_recover(board.device, &raw mut faults, &raw mut hanging) });
    assert_eq!((faults, hanging), (1, 0));
    ok(board.wait());
    ok(board.launch(board.kernel("basics", c"fill_u32"), 1, &[at(buffer, 0), word(3), word(4)]));
    ok(board.wait());
    ok(board.launch(board.kernel("device_calls", c"assert_all"), 1, &[word(7), at(buffer, 0)]));
    fails(board.wait(), Status::Fault, "GPU fault: failed assertion");
    // SAFETY: as above.
    unsafe {
        ok(tegra_hcq_last_fault(&raw mut fault));
        assert_eq!(fault.kind, tegra_hcq_fault_kind::Assert as u32);
        assert!(CStr::from_ptr(fault.reason).to_str().unwrap().contains("thread: [7,0,0] Assertion"));
    }
    // A success leaves the last error; another failure replaces its fault.
    fails(tegra_hcq_queue_end_span(board.queue), Status::InvalidArgument, "no open span");
    // SAFETY: the struct has its size.
    assert_eq!(unsafe { tegra_hcq_last_fault(&raw mut fault) }, Status::NotFound);
}

#[test]
fn signals_and_fences_connect_queues_and_the_cpu() {
    let board = Board::open();
    let (mut other, mut signal, mut fence, mut done) =
        (ptr::null_mut(), ptr::null_mut(), ptr::null_mut(), true);
    let options = tegra_hcq_queue_options { struct_size: 12, sleep: 1, hold: 0 };
    let (mut value, mut descriptor) = (0, -1);
    // SAFETY: results have places.
    unsafe {
        ok(tegra_hcq_queue_open(board.device, &raw const options, &raw mut other));
        ok(tegra_hcq_signal_create(board.device, 0, &raw mut signal));
        ok(tegra_hcq_queue_wait_signal(board.queue, signal, 1));
        ok(tegra_hcq_queue_submit(board.queue, &raw mut fence));
        ok(tegra_hcq_fence_poll(fence, &raw mut done));
        assert!(!done);
        fails(tegra_hcq_fence_wait(fence, 1_000_000), Status::Timeout, "1ms");
        ok(tegra_hcq_fence_eventfd(fence, LONG, &raw mut descriptor));
        ok(tegra_hcq_queue_signal(other, signal, 1));
        ok(tegra_hcq_queue_submit(other, ptr::null_mut()));
        let event = BorrowedFd::borrow_raw(descriptor);
        let mut ready = [rustix::event::PollFd::new(&event, rustix::event::PollFlags::IN)];
        let limit = rustix::event::Timespec { tv_sec: 60, tv_nsec: 0 };
        assert_eq!(rustix::event::poll(&mut ready, Some(&limit)), Ok(1));
        drop(OwnedFd::from_raw_fd(descriptor));
        ok(tegra_hcq_fence_wait(fence, 0));
        ok(tegra_hcq_signal_wait(signal, 1, LONG));
        ok(tegra_hcq_signal_value(signal, &raw mut value));
        assert_eq!(value, 1);
        ok(tegra_hcq_queue_wait_fence(other, fence));
    }
    ok(tegra_hcq_queue_wait(other, LONG));
    ok(tegra_hcq_fence_free(fence));
    ok(tegra_hcq_signal_free(signal));
    ok(tegra_hcq_queue_close(other));
}

#[test]
fn a_profile_has_the_operations_and_spans() {
    let board = Board::open();
    let (kernel, buffer) = (board.kernel("basics", c"fill_u32"), board.alloc(64));
    ok(tegra_hcq_queue_profile(board.queue, true));
    let (mut profile, mut count, mut table) = (ptr::null_mut(), 0, ptr::null());
    // SAFETY: results have places, texts end with zero bytes; zeros are valid in every field.
    unsafe {
        ok(tegra_hcq_queue_begin_span(board.queue, c"frame".as_ptr()));
        ok(board.launch(kernel, 2, &[at(buffer, 0), word(3), word(16)]));
        ok(tegra_hcq_queue_fill(board.queue, buffer, 0, 64, 0, 4));
        ok(tegra_hcq_queue_end_span(board.queue));
        ok(tegra_hcq_queue_take_profile(board.queue, &raw mut profile));
        ok(tegra_hcq_profile_span_count(profile, &raw mut count));
        assert_eq!(count, 2);
        let mut span: tegra_hcq_span = core::mem::zeroed();
        span.struct_size = size_of::<tegra_hcq_span>() as u32;
        ok(tegra_hcq_profile_span(profile, 0, &raw mut span));
        assert_eq!((span.work, CStr::from_ptr(span.name), span.grid.x, span.step), (0, c"fill_u32", 2, -1));
        assert!(span.start_ns <= span.end_ns && span.called_ns > 1_500_000_000_000_000_000);
        ok(tegra_hcq_profile_span(profile, 1, &raw mut span));
        assert_eq!((span.work, span.bytes), (2, 64));
        fails(tegra_hcq_profile_span(profile, 2, &raw mut span), Status::InvalidArgument, "no operation 2");
        ok(tegra_hcq_profile_table(profile, &raw mut table));
        assert!(CStr::from_ptr(table).to_str().unwrap().contains("fill_u32"));
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("trace.json");
        let text = std::ffi::CString::new(path.to_str().unwrap()).unwrap();
        ok(tegra_hcq_profile_write_trace(profile, text.as_ptr()));
        assert!(std::fs::read_to_string(path).unwrap().contains("frame"));
    }
    ok(tegra_hcq_profile_free(profile));
}
