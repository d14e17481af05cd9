//! Buffers side by side, as the parts of a larger one.

use std::os::fd::AsFd;
use std::sync::Arc;

use kernel_door::{Door, Errno};
use nvgpu_sys::nvmap as sys;
use nvmap::{Buffer, CacheMode, DmaBuf, Error, Nvmap};
use orin_sim::{Call, Config, Failure, SoftwareOrin};

const PAGE: usize = 4096;
/// Sizes of the parts in pages.
const PAGES: [u64; 3] = [2, 5, 1];

fn open(config: Config) -> (SoftwareOrin, Nvmap) {
    let orin = SoftwareOrin::new(config).unwrap();
    let door: Arc<dyn Door> = Arc::new(orin.clone());
    let nvmap = Nvmap::open(&door).unwrap();
    (orin, nvmap)
}

fn parts(nvmap: &Nvmap) -> Result<Vec<DmaBuf>, Error> {
    let allocate = |pages| nvmap.buffer(pages * PAGE as u64).label("part").allocate_unmapped();
    PAGES.into_iter().map(allocate).collect()
}

#[test]
fn one_pointer_reaches_all_parts() {
    let (orin, nvmap) = open(Config::default());
    let before = orin.live();
    let buffers = Buffer::side_by_side(parts(&nvmap).unwrap()).unwrap();
    let sizes: Vec<u64> = buffers.iter().map(|buffer| (buffer.size() / PAGE) as u64).collect();
    assert_eq!((sizes, buffers[2].cache_mode()), (PAGES.to_vec(), CacheMode::InnerCacheable));
    let first = buffers[0].pointer().cast::<u32>();
    for page in 0..8 {
        // SAFETY: the parts have eight pages, one behind the other, and live.
        unsafe { first.byte_add(page * PAGE + 8).write_volatile(page as u32 + 1) };
    }
    assert_eq!((buffers[1].read_u32(8), buffers[2].read_u32(8)), (3, 8));
    // The parts may be dropped in any order, and leave the others alone.
    let [head, body, tail] = <[Buffer; 3]>::try_from(buffers).unwrap();
    drop(body);
    assert_eq!((head.read_u32(PAGE + 8), tail.read_u32(8)), (2, 8));
    drop((head, tail));
    assert_eq!(orin.live(), before);
}

/// A descriptor is that of one part; a joined buffer is all of them as one descriptor.
#[test]
fn parts_are_shared_one_by_one_or_joined() {
    let (_orin, nvmap) = open(Config::default());
    let buffers = Buffer::side_by_side(parts(&nvmap).unwrap()).unwrap();
    for (buffer, mark) in buffers.iter().zip(1..) {
        buffer.write_u32(buffer.size() - 4, mark);
    }
    let import = |part: &DmaBuf| nvmap.import_buffer(part.as_fd(), "imported").unwrap();
    let again = import(buffers[1].as_dma_buf());
    assert_eq!((again.size(), again.read_u32(5 * PAGE - 4)), (5 * PAGE, 2));
    let whole: Vec<_> = buffers.iter().map(|part| (part.as_dma_buf(), 0, part.size())).collect();
    let joined = import(&nvmap.join(&whole, "joined").unwrap());
    let marks = [2, 7, 8].map(|pages| joined.read_u32(pages * PAGE - 4));
    assert_eq!((joined.size(), marks), (8 * PAGE, [1, 2, 3]));
    // Joined buffers can be parts, too.
    let joined = nvmap.import(joined.as_dma_buf().as_fd(), "joined").unwrap();
    let two = Buffer::side_by_side(vec![nvmap.buffer(4096).allocate_unmapped().unwrap(), joined]).unwrap();
    // SAFETY: the second part follows the first.
    assert_eq!(unsafe { two[0].pointer().byte_add(3 * PAGE - 4).cast::<u32>().read_volatile() }, 1);
}

#[test]
fn a_failure_at_any_part_leaves_nothing() {
    let (orin, nvmap) = open(Config::default());
    let before = orin.live();
    for (call, name) in [
        (Call::Ioctl(sys::code::ALLOC), "NVMAP_IOC_ALLOC"),
        (Call::Ioctl(sys::code::PARAMETERS), "NVMAP_IOC_PARAMETERS"),
        (Call::Mmap, "mmap"),
    ] {
        for nth in 1..=3 {
            orin.fail(Failure { call, nth, errno: Errno::NOMEM });
            let error = parts(&nvmap).and_then(Buffer::side_by_side).unwrap_err();
            assert!(matches!(&error, Error::Buffer { call, .. } if *call == name), "{error}");
            assert_eq!(orin.live(), before, "{name} {nth}");
        }
    }
    assert!(matches!(Buffer::side_by_side(Vec::new()), Err(Error::Size { .. })));
    assert!(parts(&nvmap).and_then(Buffer::side_by_side).is_ok());
}

/// The parts of memory that is fragmented fit where the whole does not.
#[test]
fn a_fragmented_memory_has_room_for_parts() {
    let (_orin, nvmap) = open(Config { largest_free_range: 1 << 20, ..Config::default() });
    let error = nvmap.buffer((1 << 20) + 1).label("whole").allocate().unwrap_err();
    assert_eq!(error.errno(), Some(Errno::NOMEM));
    let free = nvmap.system_memory().unwrap();
    let parts: Result<Vec<_>, _> = (0..2).map(|_| nvmap.buffer(1 << 20).allocate_unmapped()).collect();
    assert_eq!(Buffer::side_by_side(parts.unwrap()).unwrap()[1].size(), 1 << 20);
    assert_eq!(free.largest_allocation(), ((64 << 30) / 1000 * 999) >> 21 << 21);
}
