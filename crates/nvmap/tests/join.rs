//! Joined buffers.

use std::os::fd::AsFd;
use std::sync::Arc;

use kernel_door::{Door, Errno};
use nvmap::{Access, Buffer, CacheMode, DmaBuf, Error, Nvmap};
use orin_sim::{Config, SoftwareOrin};

const PAGE: usize = 4096;

fn open() -> (SoftwareOrin, Nvmap) {
    let orin = SoftwareOrin::new(Config::default()).unwrap();
    let door: Arc<dyn Door> = Arc::new(orin.clone());
    let nvmap = Nvmap::open(&door).unwrap();
    (orin, nvmap)
}

/// A buffer whose pages contain `mark` and their number.
fn marked(nvmap: &Nvmap, pages: u32, mark: u32) -> Buffer {
    let buffer = nvmap.buffer(u64::from(pages) * PAGE as u64).label("marked").allocate().unwrap();
    for page in 0..pages {
        buffer.write_u32(page as usize * PAGE, mark << 16 | page);
    }
    buffer
}

/// The marks of all pages.
fn marks(nvmap: &Nvmap, joined: &DmaBuf) -> Vec<u32> {
    let buffer = nvmap.import_buffer(joined.as_fd(), "joined").unwrap();
    (0..buffer.size() / PAGE).map(|page| buffer.read_u32(page * PAGE)).collect()
}

#[test]
fn parts_show_the_same_memory_in_order() {
    let (orin, nvmap) = open();
    let before = orin.live();
    let (a, b, c) = (marked(&nvmap, 4, 1), marked(&nvmap, 1, 2), marked(&nvmap, 3, 3));
    let parts =
        [(a.as_dma_buf(), 3 * PAGE, PAGE), (b.as_dma_buf(), 0, PAGE), (c.as_dma_buf(), PAGE, 2 * PAGE)];
    let joined = nvmap.join(&parts, "joined").unwrap();
    assert_eq!((joined.size(), joined.access(), joined.label()), (4 * PAGE, Access::ReadWrite, "joined"));
    assert_eq!(joined.parameters().unwrap().cache, a.cache_mode());
    assert_eq!(marks(&nvmap, &joined), [0x1_0003, 0x2_0000, 0x3_0001, 0x3_0002]);
    // Stores through one buffer are visible through the other, as are copies by the kernel.
    joined.write(PAGE + 8, &[7, 0, 0, 0]).unwrap();
    assert_eq!(b.read_u32(8), 7);
    // The parts may be dropped first; nothing is left in any order.
    drop((a, b, c));
    assert_eq!(marks(&nvmap, &joined)[3], 0x3_0002);
    drop(joined);
    assert_eq!(orin.live(), before);
    assert!(!orin.kernel_log().iter().any(|line| line.contains("orin-sim")), "{:?}", orin.kernel_log());
}

#[test]
fn every_cut_of_two_buffers_is_right() {
    let (orin, nvmap) = open();
    for first in 1..=3_u32 {
        for second in 1..=3_u32 {
            for skip in 0..first {
                for take in 1..=second {
                    let (a, b) = (marked(&nvmap, first, 1), marked(&nvmap, second, 2));
                    let head = (first - skip) as usize * PAGE;
                    let parts = [
                        (a.as_dma_buf(), skip as usize * PAGE, head),
                        (b.as_dma_buf(), 0, take as usize * PAGE),
                    ];
                    let joined = nvmap.join(&parts, "joined").unwrap();
                    let of_first = (skip..first).map(|page| 1 << 16 | page);
                    let expected: Vec<u32> = of_first.chain((0..take).map(|page| 2 << 16 | page)).collect();
                    assert_eq!(marks(&nvmap, &joined), expected);
                }
            }
        }
    }
    assert!(!orin.kernel_log().iter().any(|line| line.contains("orin-sim")), "{:?}", orin.kernel_log());
}

#[test]
fn one_part_alone_can_be_cut_out() {
    let (_orin, nvmap) = open();
    let buffer = marked(&nvmap, 3, 1);
    let joined = nvmap.join(&[(buffer.as_dma_buf(), PAGE, PAGE)], "middle").unwrap();
    assert_eq!(marks(&nvmap, &joined), [0x1_0001]);
    let whole = marked(&nvmap, 2, 2);
    let joined = nvmap.join(&[(whole.as_dma_buf(), 0, 2 * PAGE)], "whole").unwrap();
    assert_eq!(marks(&nvmap, &joined), [0x2_0000, 0x2_0001]);
}

#[test]
fn what_the_kernel_cannot_do_is_refused() {
    let (orin, nvmap) = open();
    let (a, b) = (marked(&nvmap, 2, 1), marked(&nvmap, 2, 2));
    let (first, second) = (a.as_dma_buf(), b.as_dma_buf());
    let refused = |parts: &[(&DmaBuf, usize, usize)]| {
        let before = orin.live();
        let error = nvmap.join(parts, "joined").unwrap_err();
        assert_eq!(orin.live(), before, "{error}");
        error
    };
    assert!(matches!(refused(&[]), Error::NotJoinable { .. }));
    for (offset, len) in [(8, PAGE), (0, 8), (0, 0), (PAGE, 2 * PAGE), (usize::MAX - PAGE + 1, PAGE)] {
        let error = refused(&[(second, 0, PAGE), (first, offset, len)]);
        assert!(matches!(error, Error::Part { size: 8192, .. }), "{error}");
    }
    let shared = first.duplicate(Access::ReadOnly).unwrap();
    assert!(matches!(refused(&[(&shared, 0, PAGE)]), Error::ReadOnly { .. }));
    // The same memory can be joined only once, even through another handle.
    let again = first.duplicate(Access::ReadWrite).unwrap();
    assert!(matches!(refused(&[(first, 0, PAGE), (&again, PAGE, PAGE)]), Error::NotJoinable { .. }));
    let cached = nvmap.buffer(4096).cache(CacheMode::Cacheable).allocate().unwrap();
    let combined = nvmap.buffer(4096).cache(CacheMode::WriteCombined).allocate().unwrap();
    let error = refused(&[(cached.as_dma_buf(), 0, PAGE), (combined.as_dma_buf(), 0, PAGE)]);
    assert_eq!(error.errno(), Some(Errno::INVAL), "{error}");
    assert!(error.to_string().contains("GET_FD_FOR_RANGE_FROM_LIST"), "{error}");
    // Rejected parts can still be joined; joined parts cannot, not even through a clone.
    drop(nvmap.join(&[(first, 0, PAGE), (second, 0, 2 * PAGE)], "joined").unwrap());
    assert!(matches!(nvmap.clone().join(&[(&again, 0, PAGE)], "x").unwrap_err(), Error::NotJoinable { .. }));
    // Imported host memory cannot be joined.
    let len = 2 * PAGE;
    let layout = std::alloc::Layout::from_size_align(len, PAGE).unwrap();
    // SAFETY: the layout is not empty.
    let pointer = core::ptr::NonNull::new(unsafe { std::alloc::alloc_zeroed(layout) }).unwrap();
    // SAFETY: the allocation outlives the buffer, and there are no references to it.
    let host = unsafe { nvmap.import_host(pointer, len, "host") }.unwrap();
    assert!(matches!(refused(&[(host.as_dma_buf(), 0, PAGE)]), Error::NotJoinable { .. }));
    drop(host);
    // SAFETY: allocated above with this layout.
    unsafe { std::alloc::dealloc(pointer.as_ptr(), layout) };
}
