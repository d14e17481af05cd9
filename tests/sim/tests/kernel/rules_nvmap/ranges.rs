//! One dma-buf over parts of several buffers.

use super::{READ, WRITE, allocated};
use crate::support::rules::*;
use crate::support::*;
use nvgpu_sys::nvmap::{self, CreateHandle, FdForRangeFromList, Heaps, code};
use zerocopy::IntoBytes;

/// A dma-buf over `[offset, offset + size)` of buffers of the given sizes, filled with their index + 1.
fn range(bench: &Bench, sizes: &[u32], offset: u64, size: u64) -> Answer {
    let mut handles = Vec::new();
    for (at, bytes) in sizes.iter().enumerate() {
        let handle = bench.create(*bytes);
        bench.alloc(handle);
        let mapping = cpu(&bench.export(handle), *bytes as usize);
        for word_at in (0..*bytes as usize).step_by(4096) {
            let value = (at as u32 + 1) << 16 | (word_at / 4096) as u32;
            word(&mapping, word_at).store(value, core::sync::atomic::Ordering::Relaxed);
        }
        handles.push(handle);
    }
    range_of(bench, &handles, offset, size)
}

fn range_of(bench: &Bench, handles: &[u32], offset: u64, size: u64) -> Answer {
    let mut args = FdForRangeFromList {
        handles: constant(handles.as_bytes()),
        num_handles: u32::try_from(handles.len()).unwrap(),
        offset,
        size,
        ..Default::default()
    };
    // SAFETY: the list is never unmapped.
    unsafe { nvmap::GET_FD_FOR_RANGE_FROM_LIST.send_pointing(&bench.nvmap, &mut args) }?;
    Ok(args.fd)
}

#[test]
fn a_range_of_several_buffers_shows_their_bytes() {
    let bench = Bench::new();
    let space = bench.space();
    let fd = range(&bench, &[0x2000, 0x1000, 0x3000], 0x1000, 0x5000).unwrap();
    let fd = adopt(&bench.door, fd);
    let mapping = cpu(&fd, 0x5000);
    let value = |at| word(&mapping, at).load(core::sync::atomic::Ordering::Relaxed);
    let values: Vec<u32> = (0..5).map(|page| value(page * 4096)).collect();
    assert_eq!(values, [0x1_0001, 0x2_0000, 0x3_0000, 0x3_0001, 0x3_0002]);
    // Only a part of it; both mappings are the same memory.
    let middle = fd.map(0x1000, 0x2000, READ | WRITE).unwrap();
    word(&middle, 0x1004).store(9, core::sync::atomic::Ordering::Relaxed);
    assert_eq!(value(0x2004), 9);
    // The GPU can map it like any other dma-buf, and it can be the source of another range.
    map(&space, &fd).unwrap();
    let mut import = CreateHandle { size_or_fd: raw(&fd), handle: 0 };
    nvmap::FROM_FD.send(&bench.nvmap, &mut import).unwrap();
    let again = range_of(&bench, &[import.handle], 0x1000, 0x1000).unwrap();
    let again = adopt(&bench.door, again);
    assert_eq!(word(&cpu(&again, 0x1000), 0).load(core::sync::atomic::Ordering::Relaxed), 0x2_0000);
    // The range keeps its sources alive, and uses no handle number.
    assert_eq!(bench.orin.live().handles, 4);
    let used = bench.orin.live().memory_bytes;
    drop((mapping, middle, bench.nvmap));
    assert_eq!(bench.orin.live().memory_bytes, used);
    drop((fd, again, space));
    assert_eq!((bench.orin.live().memory_bytes, bench.orin.live().buffers), (0, 0));
}

pub(crate) const RANGES: &[Rule] = &[
    ("GET_FD_FOR_RANGE_FROM_LIST: size 0 wins over an unreadable list", INVAL, &[], |bench| {
        let mut args = FdForRangeFromList { handles: NOWHERE, num_handles: 1, ..Default::default() };
        // SAFETY: the software kernel checks every address before it uses it.
        unsafe { nvmap::GET_FD_FOR_RANGE_FROM_LIST.send_pointing(&bench.nvmap, &mut args) }
    }),
    ("GET_FD_FOR_RANGE_FROM_LIST: no handles", INVAL, &[], |bench| range(bench, &[], 0, 1)),
    (
        "GET_FD_FOR_RANGE_FROM_LIST: an unreadable list",
        FAULT,
        &["nvmap_ioctl_get_fd_from_list: Can't copy from user pointer op.handles"],
        |bench| {
            let mut args =
                FdForRangeFromList { handles: NOWHERE, num_handles: 1, size: 1, ..Default::default() };
            // SAFETY: the software kernel checks every address before it uses it.
            unsafe { nvmap::GET_FD_FOR_RANGE_FROM_LIST.send_pointing(&bench.nvmap, &mut args) }
        },
    ),
    (
        "GET_FD_FOR_RANGE_FROM_LIST: an unknown handle wins over one without memory",
        INVAL,
        &["nvmap_ioctl_get_fd_from_list: invalid handle_ptr[1] = 5"],
        |bench| range_of(bench, &[bench.create(4096), 5], 0, 4096),
    ),
    ("GET_FD_FOR_RANGE_FROM_LIST: a bad end wins over missing memory", INVAL, &[], |bench| {
        range_of(bench, &[bench.create(4096)], 0, 4097)
    }),
    (
        "GET_FD_FOR_RANGE_FROM_LIST: no memory",
        INVAL,
        &["… from system heap, of type RW, not from VA and having same cache coherency"],
        |bench| range_of(bench, &[bench.create(4096)], 0, 4096),
    ),
    (
        "GET_FD_FOR_RANGE_FROM_LIST: different cache modes",
        INVAL,
        &["… from system heap, of type RW, not from VA and having same cache coherency"],
        |bench| range_of(bench, &[allocated(bench, 1), allocated(bench, 3)], 0, 4096),
    ),
    (
        "GET_FD_FOR_RANGE_FROM_LIST: protected memory",
        INVAL,
        &["… from system heap, of type RW, not from VA and having same cache coherency"],
        |bench| {
            let handle = bench.create(4096);
            bench.try_alloc(handle, Heaps::VPR.bits(), TAG).unwrap();
            range_of(bench, &[handle], 0, 4096)
        },
    ),
    ("GET_FD_FOR_RANGE_FROM_LIST: a sum that wraps", INVAL, &[], |bench| {
        range(bench, &[4096], u64::MAX - 0xfff, 8192)
    }),
    (
        "GET_FD_FOR_RANGE_FROM_LIST: an unaligned offset, which corrupts memory on a board",
        INVAL,
        &[
            "orin-sim: a board's kernel of r36.4.3 corrupts its memory here: the offset 0x800 lies inside a page",
        ],
        |bench| range(bench, &[0x4000], 0x800, 0x1000),
    ),
    (
        "GET_FD_FOR_RANGE_FROM_LIST: a case that a board mishandles works, with a log line",
        Ok(0),
        &["… over buffers of [4000, 4000] bytes; begin at the start of the first buffer"],
        |bench| range(bench, &[0x4000, 0x4000], 0x3000, 0x2000).map(|_| 0),
    ),
    (
        "GET_FD_FOR_RANGE_FROM_LIST: the same buffer twice",
        Ok(0),
        &["… a buffer can be part of one such dma-buf at a time, and once"],
        |bench| {
            let handle = allocated(bench, 1);
            range_of(bench, &[handle, handle], 0, 8192).map(|_| 0)
        },
    ),
    (
        "GET_FD_FOR_RANGE_FROM_LIST: the same buffer again after the first dma-buf is freed",
        Ok(0),
        &[],
        |bench| {
            let handle = allocated(bench, 1);
            let first = range_of(bench, &[handle], 0, 4096).unwrap();
            close(&bench.door, first).unwrap();
            range_of(bench, &[handle], 0, 4096).map(|_| 0)
        },
    ),
    ("GET_FD_FOR_RANGE_FROM_LIST: the descriptor cannot be stored", FAULT, &[], |bench| {
        let handles = constant(allocated(bench, 1).as_bytes());
        let args = FdForRangeFromList { handles, num_handles: 1, size: 4096, ..Default::default() };
        let request = code::GET_FD_FOR_RANGE_FROM_LIST;
        let result = send_constant(&bench.nvmap, request, args.as_bytes());
        let live = bench.orin.live();
        assert_eq!((live.descriptors, live.buffers), (2, 1));
        result
    }),
];
