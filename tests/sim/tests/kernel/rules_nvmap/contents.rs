//! Contents of a buffer: reading, writing, cache maintenance.

use super::allocated;
use crate::support::rules::*;
use crate::support::*;
use kernel_door::Errno;
use nvgpu_sys::nvmap::{
    self, CACHE_LIST_ELEM_SIZE_U64, CACHE_OP_WB_INV, CacheOp, CacheOp64, CacheOpList, HandleFlags, Heaps,
    RwHandle, RwHandle32,
};
use zerocopy::IntoBytes;

/// READ or WRITE of two elements of 8 bytes of a one-page buffer. Checks the returned count.
fn transfer(bench: &Bench, read: bool, count: u64, change: impl FnOnce(&mut RwHandle)) -> Answer {
    let mut bytes = [0_u8; 64];
    let handle = bench.create(4096);
    bench.alloc(handle);
    let mut args = RwHandle {
        addr: bytes.as_mut_ptr().expose_provenance() as u64,
        handle,
        elem_size: 8,
        hmem_stride: 16,
        user_stride: 8,
        count: 2,
        ..RwHandle::default()
    };
    change(&mut args);
    let request = if read { nvmap::READ } else { nvmap::WRITE };
    // SAFETY: `bytes` outlives the call; the software kernel checks every address anyway.
    let result = unsafe { request.send_pointing(&bench.nvmap, &mut args) };
    assert_eq!(args.count, count, "the bytes copied");
    result
}

pub(crate) const TRANSFERS: &[Rule] = &[
    ("READ: two elements", Ok(0), &[], |bench| transfer(bench, true, 16, |_| ())),
    ("WRITE: two elements", Ok(0), &[], |bench| transfer(bench, false, 16, |_| ())),
    ("READ: element size 0 wins over an unknown handle, and the count is unchanged", INVAL, &[], |bench| {
        transfer(bench, true, 2, |args| (args.elem_size, args.handle) = (0, 1))
    }),
    (
        "WRITE: read-only wins over the range, and the count is unchanged",
        PERM,
        &["nvmap_ioctl_rw_handle: Write operation is not allowed on RO handle"],
        |bench| {
            let handle = read_only(bench);
            transfer(bench, false, 2, |args| (args.handle, args.offset) = (handle, 1 << 20))
        },
    ),
    (
        "READ: of protected memory",
        PERM,
        &["nvmap_ioctl_rw_handle: CPU read operation is not allowed on VPR carveout"],
        |bench| {
            let handle = bench.create(4096);
            bench.try_alloc(handle, Heaps::VPR.bits(), TAG).unwrap();
            transfer(bench, true, 2, |args| args.handle = handle)
        },
    ),
    ("READ: missing memory wins over the range, and nothing is copied", PERM, &[], |bench| {
        let handle = bench.create(4096);
        transfer(bench, true, 0, |args| (args.handle, args.offset) = (handle, 1 << 20))
    }),
    ("READ: an element larger than its stride", INVAL, &[], |bench| {
        transfer(bench, true, 0, |args| args.hmem_stride = 7)
    }),
    ("READ: the user stride may not exceed the remaining bytes per element", INVAL, &[], |bench| {
        transfer(bench, true, 0, |args| args.user_stride = 2049)
    }),
    ("READ: an offset at the end", INVAL, &[], |bench| {
        transfer(bench, true, 0, |args| (args.offset, args.count) = (4096, 1))
    }),
    ("READ: the last element is beyond the end", INVAL, &[], |bench| {
        transfer(bench, true, 0, |args| args.hmem_stride = 4089)
    }),
    (
        "READ: user memory that is not writable: the bytes left of the first element",
        Err(Errno::INTR),
        &[],
        |bench| transfer(bench, true, 8, |args| args.addr = NOWHERE),
    ),
    ("READ: a transfer that is merged into one reports success", Ok(0), &[], |bench| {
        transfer(bench, true, 16, |args| (args.addr, args.hmem_stride) = (NOWHERE, 8))
    }),
    ("READ: no address, no elements, or elements of no size", INVAL, &[], |bench| {
        assert_eq!(transfer(bench, true, 2, |args| args.addr = 0), INVAL);
        assert_eq!(transfer(bench, true, 0, |args| args.count = 0), INVAL);
        transfer(bench, true, 2, |args| args.elem_size = 0)
    }),
    ("WRITE: an unknown handle", INVAL, &[], |bench| transfer(bench, false, 2, |args| args.handle = 1)),
];

pub(crate) const R36_TRANSFERS: &[Rule] =
    &[("READ_32: has the fields of READ", Err(Errno::INTR), &[], |bench| {
        let mut args = RwHandle32 {
            addr: 8,
            handle: allocated(bench, 0),
            elem_size: 8,
            hmem_stride: 16,
            user_stride: 8,
            count: 2,
            ..RwHandle32::default()
        };
        // SAFETY: nothing is mapped at the address, and the software kernel checks every address.
        let result = unsafe { nvmap::READ_32.send_pointing(&bench.nvmap, &mut args) };
        assert_eq!(args.count, 8, "the bytes left of the first element");
        result
    })];

/// CACHE_LIST of handles with 64-bit ranges.
fn cache_list(bench: &Bench, handles: &[u32], change: impl FnOnce(&mut CacheOpList)) -> Answer {
    let ranges = constant(&[0; 64]);
    let mut args = CacheOpList {
        handles: constant(handles.as_bytes()),
        offsets: ranges,
        sizes: ranges,
        nr: u32::try_from(handles.len()).unwrap(),
        op: CACHE_OP_WB_INV | CACHE_LIST_ELEM_SIZE_U64,
    };
    change(&mut args);
    // SAFETY: the software kernel checks every address before it uses it.
    unsafe { nvmap::CACHE_LIST.send_pointing(&bench.nvmap, &mut args) }
}

const DEFERRED: u32 = HandleFlags::CACHE_SYNC_AT_RESERVE.bits();

pub(crate) const CACHE_LISTS: &[Rule] = &[
    ("CACHE_LIST: 0 elements win over null lists", INVAL, &[], |bench| {
        cache_list(bench, &[], |args| args.handles = 0)
    }),
    (
        "CACHE_LIST: a null list wins over an unreadable one",
        INVAL,
        &["nvmap_ioctl_cache_maint_list: pointers are invalid"],
        |bench| cache_list(bench, &[1], |args| (args.handles, args.sizes) = (NOWHERE, 0)),
    ),
    (
        "CACHE_LIST: an unreadable list of sizes wins over an unknown handle",
        FAULT,
        &["nvmap_ioctl_cache_maint_list: Can't copy from user pointer op.sizes"],
        |bench| cache_list(bench, &[1], |args| args.sizes = NOWHERE),
    ),
    ("CACHE_LIST: without the 64-bit flag the ranges are 32-bit lists", Ok(0), &[], |bench| {
        let handle = allocated(bench, 0);
        let end = constant(&[0; 4096]) + 4092;
        cache_list(bench, &[handle], |args| {
            args.op &= !CACHE_LIST_ELEM_SIZE_U64;
            args.offsets = end;
        })
    }),
    (
        "CACHE_LIST: handles are checked in order: missing memory before unknown",
        PERM,
        &["nvmap_ioctl_cache_maint_list: heap 0 can't be accessed from cpu"],
        |bench| cache_list(bench, &[bench.create(4096), 3], |_| ()),
    ),
    (
        "CACHE_LIST: handles are checked in order: unknown before missing memory",
        INVAL,
        &["nvmap_ioctl_cache_maint_list: invalid handle_ptr[0] = 3"],
        |bench| cache_list(bench, &[3, bench.create(4096)], |_| ()),
    ),
    (
        "CACHE_LIST: some with CACHE_SYNC_AT_RESERVE and some without",
        INVAL,
        &["nvmap_ioctl_cache_maint_list: incorrect CACHE_SYNC_AT_RESERVE mix of handles"],
        |bench| cache_list(bench, &[allocated(bench, DEFERRED), allocated(bench, 0)], |_| ()),
    ),
    ("CACHE_LIST: all with CACHE_SYNC_AT_RESERVE", Ok(0), &[], |bench| {
        cache_list(bench, &[allocated(bench, DEFERRED), allocated(bench, DEFERRED)], |_| ())
    }),
];

pub(crate) const CACHES: &[Rule] = &[
    ("CACHE: a bad operation wins over an unknown handle", INVAL, &[], |bench| {
        cache(bench, |args| (args.op, args.handle) = (3, 1))
    }),
    ("CACHE: an unknown handle wins over a bad address", INVAL, &[], |bench| {
        cache(bench, |args| (args.addr, args.handle) = (NOWHERE, 1))
    }),
    ("CACHE: an address outside nvmap mappings", Err(Errno::ADDRNOTAVAIL), &[], |bench| {
        cache(bench, |args| args.addr = NOWHERE)
    }),
    ("CACHE: a range beyond the mapping wins over another handle", Err(Errno::ADDRNOTAVAIL), &[], |bench| {
        cache(bench, |args| (args.len, args.handle) = (4097, bench.create(4096)))
    }),
    ("CACHE: another handle wins over its missing memory", FAULT, &[], |bench| {
        cache(bench, |args| args.handle = bench.create(4096))
    }),
    ("CACHE: invalidate", Ok(0), &[], |bench| cache(bench, |args| args.op = 1)),
    ("CACHE: a mapping of another process is unknown here", Err(Errno::ADDRNOTAVAIL), &[], |bench| {
        let fd = bench.buffer(4096);
        let child = bench.orin.process();
        let door: std::sync::Arc<dyn kernel_door::Door> = std::sync::Arc::new(child.clone());
        let passed = bench.orin.send(fd.raw(), &child).unwrap();
        let passed = adopt(&door, passed);
        let theirs = cpu(&passed, 4096);
        cache(bench, |args| args.addr = theirs.pointer().as_ptr().expose_provenance() as u64)
    }),
    ("CACHE: address 0", INVAL, &[], |bench| cache(bench, |args| args.addr = 0)),
    ("CACHE: operation 3", INVAL, &[], |bench| cache(bench, |args| args.op = 3)),
];

/// CACHE_64, and CACHE, whose result is the same, of a mapped buffer of a page.
fn cache(bench: &Bench, change: impl FnOnce(&mut CacheOp64)) -> Answer {
    let handle = allocated(bench, nvmap::CACHE_CACHEABLE);
    let mapping = cpu(&bench.export(handle), 4096);
    let mut args = CacheOp64 {
        addr: mapping.pointer().as_ptr().expose_provenance() as u64,
        handle,
        len: 4096,
        op: CACHE_OP_WB_INV,
        ..Default::default()
    };
    change(&mut args);
    let CacheOp64 { addr, handle, op, .. } = args;
    let mut short = CacheOp { addr, handle, len: u32::try_from(args.len).unwrap(), op, padding: 0 };
    // SAFETY: the mapping outlives the calls; the software kernel checks every address anyway.
    let results = unsafe {
        [
            nvmap::CACHE_64.send_pointing(&bench.nvmap, &mut args),
            nvmap::CACHE.send_pointing(&bench.nvmap, &mut short),
        ]
    };
    assert_eq!(results[0], results[1]);
    results[0]
}

/// DMA_BUF_IOCTL_SYNC.
const SYNC: u32 = 0x4008_6200;

pub(crate) const DMA_BUF: &[Rule] = &[
    ("dma-buf sync: begin and end of a read", Ok(0), &[], |bench| {
        let fd = bench.buffer(4096);
        send(&fd, SYNC, &mut 1_u64.to_ne_bytes()).unwrap();
        send(&fd, SYNC, &mut 5_u64.to_ne_bytes())
    }),
    ("dma-buf sync: a bad address wins over missing memory", FAULT, &[], |bench| {
        send_at(&bench.export(bench.create(4096)), SYNC, NOWHERE)
    }),
    ("dma-buf sync: a missing direction wins over missing memory", INVAL, &[], |bench| {
        send(&bench.export(bench.create(4096)), SYNC, &mut 4_u64.to_ne_bytes())
    }),
    ("dma-buf sync: an unknown flag", INVAL, &[], |bench| {
        send(&bench.buffer(4096), SYNC, &mut 9_u64.to_ne_bytes())
    }),
    ("dma-buf sync: missing memory", PERM, &[], |bench| {
        send(&bench.export(bench.create(4096)), SYNC, &mut 3_u64.to_ne_bytes())
    }),
    ("dma-buf: another request, before its address", NOTTY, &[], |bench| {
        send_at(&bench.buffer(4096), 0x4008_6207, NOWHERE)
    }),
    ("dma-buf: lseek to the end works, read does not", INVAL, &[], |bench| {
        let fd = bench.buffer(4096);
        fd.seek_end().unwrap();
        fd.read(&mut [0; 8]).map(|_| 0)
    }),
];
