//! Sparse reservations whose pages come and go one by one.

mod common;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use common::{Work, compute_channel, eventually, open};
use nvgpu_channel::{Channel, Error, GpuVa, MapOptions, PageChange, PageOptions, Reservation};
use nvgpu_sys::{Errno, address_space};
use nvmap::{Access, Buffer};
use orin_sim::{Call, Failure};

const PAGE: u64 = 4096;

/// Maps `pages` of a buffer from page `from` on at page `at`.
fn show<'a>(at: u64, buffer: &'a Arc<Buffer>, from: u64, pages: u64) -> PageChange<'a> {
    let options = PageOptions::default();
    PageChange::Map { offset: at * PAGE, buffer, buffer_offset: from * PAGE, len: pages * PAGE, options }
}

fn clear<'a>(at: u64, pages: u64) -> PageChange<'a> {
    PageChange::Clear { offset: at * PAGE, len: pages * PAGE }
}

/// The GPU stores a value at a page of the reservation.
fn store(channel: &mut Channel, work: &Work, array: &Reservation, page: u64, value: u64) {
    let target = GpuVa(array.va().get() + page * PAGE);
    for (slot, target) in [(0, target), (1, work.semaphore())] {
        let entry = work.release(slot, target, value);
        channel.submit(entry).unwrap();
    }
    assert!(work.wait(value) && eventually(|| channel.ring().is_drained()));
    assert_eq!(channel.error_notifier(), None);
}

#[test]
fn the_gpu_stores_to_what_a_page_shows() {
    let (orin, gpu) = open();
    let space = gpu.address_space().unwrap();
    let work = Work::new(&gpu, &space);
    let mut channel = compute_channel(&gpu, &space, 64);
    let array = space.reserve(64 * PAGE, true).unwrap();
    assert!(array.is_sparse());
    let buffer = |label| Arc::new(gpu.nvmap().buffer(4 * PAGE).label(label).allocate().unwrap());
    let (first, second) = (buffer("first"), buffer("second"));
    let word = |buffer: &Buffer, page: u64| buffer.load_u64((page * PAGE) as usize, Ordering::Acquire);

    // Nothing is there, and nothing faults.
    store(&mut channel, &work, &array, 7, 1);
    array.change_pages(&[show(0, &first, 0, 4), show(10, &second, 1, 2)]).unwrap();
    assert_eq!(array.shown_bytes(), 6 * PAGE);
    for (page, value) in [(2, 2), (11, 3), (12, 4)] {
        store(&mut channel, &work, &array, page, value);
    }
    assert_eq!((word(&first, 2), word(&second, 2), word(&second, 3)), (2, 3, 0));
    // In order, within one request: the later change of a page counts.
    array.change_pages(&[clear(1, 2), show(2, &second, 3, 1), show(63, &first, 3, 1)]).unwrap();
    for (page, value) in [(1, 5), (2, 6), (3, 7), (63, 8)] {
        store(&mut channel, &work, &array, page, value);
    }
    assert_eq!((word(&first, 1), word(&first, 2), word(&second, 3), word(&first, 3)), (0, 2, 6, 8));
    assert_eq!(array.shown_bytes(), 6 * PAGE);
    drop((channel, work, array, space, first, second));
    let live = orin.live();
    assert_eq!((live.buffers, live.address_spaces, live.gpu_mappings), (0, 0, 0));
}

#[test]
fn pages_keep_their_buffers() {
    let (orin, gpu) = open();
    let space = gpu.address_space().unwrap();
    let array = space.reserve(16 * PAGE, true).unwrap();
    let buffer = Arc::new(gpu.nvmap().buffer(8 * PAGE).allocate().unwrap());
    let weak = Arc::downgrade(&buffer);
    array.change_pages(&[show(0, &buffer, 0, 8)]).unwrap();
    drop(buffer);
    assert_eq!(orin.live().buffers, 1);
    // Holes at the start, in the middle and at the end.
    for (at, pages, left) in [(0, 2, 6), (4, 1, 5), (7, 4, 4), (2, 3, 2)] {
        array.change_pages(&[clear(at, pages)]).unwrap();
        assert_eq!(array.shown_bytes(), left * PAGE);
        assert!(weak.upgrade().is_some());
    }
    array.change_pages(&[clear(0, 16)]).unwrap();
    assert_eq!((array.shown_bytes(), weak.strong_count(), orin.live().buffers), (0, 0, 0));
    // The reservation lets go of all of them.
    let buffer = Arc::new(gpu.nvmap().buffer(PAGE).allocate().unwrap());
    array.change_pages(&[show(3, &buffer, 0, 1)]).unwrap();
    drop(array);
    assert_eq!(Arc::strong_count(&buffer), 1);
}

#[test]
fn a_request_is_all_or_nothing() {
    let (orin, gpu) = open();
    let space = gpu.address_space().unwrap();
    let array = space.reserve(16 * PAGE, true).unwrap();
    let buffer = Arc::new(gpu.nvmap().buffer(4 * PAGE).label("tiles").allocate().unwrap());
    let good = show(0, &buffer, 0, 1);
    let requests = orin.ioctl_count();
    let unaligned = |offset, buffer_offset, len| PageChange::Map {
        offset,
        buffer: &buffer,
        buffer_offset,
        len,
        options: PageOptions::default(),
    };
    let wrong = [
        show(16, &buffer, 0, 1),
        show(15, &buffer, 0, 2),
        show(0, &buffer, 4, 1),
        show(0, &buffer, 3, 2),
        show(0, &buffer, 0, 0),
        clear(15, 2),
        clear(0, 0),
        unaligned(8, 0, PAGE),
        unaligned(0, 8, PAGE),
        unaligned(0, 0, 8),
        unaligned(u64::MAX - PAGE + 1, 0, PAGE),
        unaligned(0, u64::MAX - PAGE + 1, PAGE),
    ];
    for wrong in wrong {
        let error = array.change_pages(&[good, wrong]).unwrap_err();
        assert!(matches!(error, Error::Range { .. }), "{wrong:?}: {error}");
    }
    let plain = space.reserve(16 * PAGE, false).unwrap();
    let requests = (orin.ioctl_count() - requests, orin.ioctl_count());
    assert_eq!(requests.0, 1, "the reservation alone");
    let error = plain.change_pages(&[good]).unwrap_err();
    assert!(matches!(error, Error::NotSparse { .. }) && error.to_string().contains("sparse"), "{error}");
    assert_eq!(orin.ioctl_count(), requests.1);
    // What the kernel refuses changes nothing here either.
    let code = address_space::code::REMAP;
    orin.fail(Failure { call: Call::Ioctl(code), nth: 1, errno: Errno::NOMEM });
    let error = array.change_pages(&[good, show(5, &buffer, 0, 1)]).unwrap_err();
    assert_eq!((error.errno(), array.shown_bytes()), (Some(Errno::NOMEM), 0), "{error}");
    assert!(error.to_string().contains("REMAP"), "{error}");
    array.change_pages(&[]).unwrap();
    array.change_pages(&[good]).unwrap();
    assert_eq!(array.shown_bytes(), PAGE);
}

#[test]
fn mappings_and_pages_keep_out_of_each_others_way() {
    let (orin, gpu) = open();
    let space = gpu.address_space().unwrap();
    let array = space.reserve(16 * PAGE, true).unwrap();
    let buffer = Arc::new(gpu.nvmap().buffer(4 * PAGE).allocate().unwrap());
    let mapping = array.map(4 * PAGE, &buffer, 0, 4 * PAGE, MapOptions::default()).unwrap();
    for change in [show(4, &buffer, 0, 1), show(1, &buffer, 0, 4), clear(7, 2), clear(0, 16)] {
        let error = array.change_pages(&[change]).unwrap_err();
        assert!(matches!(error, Error::Overlap { .. }), "{error}");
    }
    array.change_pages(&[show(0, &buffer, 0, 4), show(8, &buffer, 0, 4)]).unwrap();
    for offset in [1, 8, 11] {
        let error = array.map(offset * PAGE, &buffer, 0, PAGE, MapOptions::default()).unwrap_err();
        assert!(matches!(error, Error::Overlap { .. }), "{error}");
    }
    drop(mapping);
    array.change_pages(&[show(4, &buffer, 0, 4)]).unwrap();
    array.change_pages(&[clear(0, 16)]).unwrap();
    assert!(array.map(8 * PAGE, &buffer, 0, PAGE, MapOptions::default()).is_ok());
    assert!(!orin.kernel_log().iter().any(|line| line.contains("[ERR]")), "{:?}", orin.kernel_log());
}

#[test]
fn a_read_only_buffer_is_shown_for_reading_alone() {
    let (_orin, gpu) = open();
    let space = gpu.address_space().unwrap();
    let array = space.reserve(4 * PAGE, true).unwrap();
    let buffer = gpu.nvmap().buffer(PAGE).label("weights").allocate().unwrap();
    let shared = buffer.as_dma_buf().duplicate(Access::ReadOnly).unwrap();
    let shared = Arc::new(gpu.nvmap().import_buffer(std::os::fd::AsFd::as_fd(&shared), "weights").unwrap());
    let change = |read_only| PageChange::Map {
        offset: 0,
        buffer: &shared,
        buffer_offset: 0,
        len: PAGE,
        options: PageOptions { read_only, gpu_cached: true },
    };
    // The kernel would let the second of two through.
    let error = array.change_pages(&[change(true), change(false)]).unwrap_err();
    assert!(matches!(error, Error::Memory(nvmap::Error::ReadOnly { .. })), "{error}");
    array.change_pages(&[change(true)]).unwrap();
    // A store there is a fault, as for every mapping that is read-only.
    let work = Work::new(&gpu, &space);
    let mut channel = compute_channel(&gpu, &space, 8);
    let entry = work.release(0, array.va(), 1);
    channel.submit(entry).unwrap();
    assert!(eventually(|| channel.error_notifier().is_some()));
    assert_eq!(buffer.read_u64(0), 0);
}
