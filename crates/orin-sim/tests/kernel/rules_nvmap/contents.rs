//! Contents of a buffer: reading, writing, cache maintenance.

use super::{FAULT, INVAL, NOTTY, PERM, allocated};
use crate::support::rules::*;
use crate::support::*;
use nvgpu_sys::Errno;
use nvgpu_sys::nvmap::{
    self, CACHE_LIST_ELEM_SIZE_U64, CACHE_OP_WB_INV, CacheOp64, CacheOpList, HandleFlags, Heaps, RwHandle,
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

#[test]
fn transfers_report_what_was_copied() {
    check(&[
        ("READ: two elements", |bench| transfer(bench, true, 16, |_| ()), Ok(0), &[]),
        ("WRITE: two elements", |bench| transfer(bench, false, 16, |_| ()), Ok(0), &[]),
        (
            "READ: element size 0 wins over an unknown handle, and the count is unchanged",
            |bench| transfer(bench, true, 2, |args| (args.elem_size, args.handle) = (0, 1)),
            INVAL,
            &[],
        ),
        (
            "WRITE: read-only wins over the range, and the count is unchanged",
            |bench| {
                let handle = read_only(bench);
                transfer(bench, false, 2, |args| (args.handle, args.offset) = (handle, 1 << 20))
            },
            PERM,
            &["nvmap_ioctl_rw_handle: Write operation is not allowed on RO handle"],
        ),
        (
            "READ: of protected memory",
            |bench| {
                let handle = bench.create(4096);
                bench.try_alloc(handle, Heaps::VPR.bits(), TAG).unwrap();
                transfer(bench, true, 2, |args| args.handle = handle)
            },
            PERM,
            &["nvmap_ioctl_rw_handle: CPU read operation is not allowed on VPR carveout"],
        ),
        (
            "READ: missing memory wins over the range, and nothing is copied",
            |bench| {
                let handle = bench.create(4096);
                transfer(bench, true, 0, |args| (args.handle, args.offset) = (handle, 1 << 20))
            },
            PERM,
            &[],
        ),
        (
            "READ: an element larger than its stride",
            |bench| transfer(bench, true, 0, |args| args.hmem_stride = 7),
            INVAL,
            &[],
        ),
        (
            "READ: the user stride may not exceed the remaining bytes per element",
            |bench| transfer(bench, true, 0, |args| args.user_stride = 2049),
            INVAL,
            &[],
        ),
        (
            "READ: an offset at the end",
            |bench| transfer(bench, true, 0, |args| (args.offset, args.count) = (4096, 1)),
            INVAL,
            &[],
        ),
        (
            "READ: the last element is beyond the end",
            |bench| transfer(bench, true, 0, |args| args.hmem_stride = 4089),
            INVAL,
            &[],
        ),
        (
            "READ: user memory that is not writable: the bytes left of the first element",
            |bench| transfer(bench, true, 8, |args| args.addr = NOWHERE),
            Err(Errno::INTR),
            &[],
        ),
        (
            "READ: a transfer that is merged into one reports success",
            |bench| transfer(bench, true, 16, |args| (args.addr, args.hmem_stride) = (NOWHERE, 8)),
            Ok(0),
            &[],
        ),
    ]);
}

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

#[test]
fn cache_maintenance_is_checked_in_order() {
    const DEFERRED: u32 = HandleFlags::CACHE_SYNC_AT_RESERVE.bits();
    check(&[
        (
            "CACHE_LIST: 0 elements win over null lists",
            |bench| cache_list(bench, &[], |args| args.handles = 0),
            INVAL,
            &[],
        ),
        (
            "CACHE_LIST: a null list wins over an unreadable one",
            |bench| cache_list(bench, &[1], |args| (args.handles, args.sizes) = (NOWHERE, 0)),
            INVAL,
            &["nvmap_ioctl_cache_maint_list: pointers are invalid"],
        ),
        (
            "CACHE_LIST: an unreadable list of sizes wins over an unknown handle",
            |bench| cache_list(bench, &[1], |args| args.sizes = NOWHERE),
            FAULT,
            &["nvmap_ioctl_cache_maint_list: Can't copy from user pointer op.sizes"],
        ),
        (
            "CACHE_LIST: without the 64-bit flag the ranges are 32-bit lists",
            |bench| {
                let handle = allocated(bench, 0);
                let end = constant(&[0; 4096]) + 4092;
                cache_list(bench, &[handle], |args| {
                    args.op &= !CACHE_LIST_ELEM_SIZE_U64;
                    args.offsets = end;
                })
            },
            Ok(0),
            &[],
        ),
        (
            "CACHE_LIST: handles are checked in order: missing memory before unknown",
            |bench| cache_list(bench, &[bench.create(4096), 3], |_| ()),
            PERM,
            &["nvmap_ioctl_cache_maint_list: heap 0 can't be accessed from cpu"],
        ),
        (
            "CACHE_LIST: handles are checked in order: unknown before missing memory",
            |bench| cache_list(bench, &[3, bench.create(4096)], |_| ()),
            INVAL,
            &["nvmap_ioctl_cache_maint_list: invalid handle_ptr[0] = 3"],
        ),
        (
            "CACHE_LIST: some with CACHE_SYNC_AT_RESERVE and some without",
            |bench| cache_list(bench, &[allocated(bench, DEFERRED), allocated(bench, 0)], |_| ()),
            INVAL,
            &["nvmap_ioctl_cache_maint_list: incorrect CACHE_SYNC_AT_RESERVE mix of handles"],
        ),
        (
            "CACHE_LIST: all with CACHE_SYNC_AT_RESERVE",
            |bench| cache_list(bench, &[allocated(bench, DEFERRED), allocated(bench, DEFERRED)], |_| ()),
            Ok(0),
            &[],
        ),
        (
            "CACHE: a bad operation wins over an unknown handle",
            |bench| cache(bench, |args| (args.op, args.handle) = (3, 1)),
            INVAL,
            &[],
        ),
        (
            "CACHE: an unknown handle wins over a bad address",
            |bench| cache(bench, |args| (args.addr, args.handle) = (NOWHERE, 1)),
            INVAL,
            &[],
        ),
        (
            "CACHE: an address outside nvmap mappings",
            |bench| cache(bench, |args| args.addr = NOWHERE),
            Err(Errno::ADDRNOTAVAIL),
            &[],
        ),
        (
            "CACHE: a range beyond the mapping wins over another handle",
            |bench| cache(bench, |args| (args.len, args.handle) = (4097, bench.create(4096))),
            Err(Errno::ADDRNOTAVAIL),
            &[],
        ),
        (
            "CACHE: another handle wins over its missing memory",
            |bench| cache(bench, |args| args.handle = bench.create(4096)),
            FAULT,
            &[],
        ),
        ("CACHE: invalidate", |bench| cache(bench, |args| args.op = 1), Ok(0), &[]),
        (
            "CACHE: a mapping of another process is unknown here",
            |bench| {
                let fd = bench.buffer(4096);
                let child = bench.orin.process();
                let door: std::sync::Arc<dyn nvgpu_sys::Door> = std::sync::Arc::new(child.clone());
                let passed = bench.orin.send(fd.raw(), &child).unwrap();
                let passed = nvgpu_sys::DoorFd::from_raw(&door, passed);
                let theirs = cpu(&passed, 4096);
                cache(bench, |args| args.addr = theirs.pointer().as_ptr().expose_provenance() as u64)
            },
            Err(Errno::ADDRNOTAVAIL),
            &[],
        ),
    ]);
}

/// CACHE_64 of a mapped buffer of a page.
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
    // SAFETY: the mapping outlives the call; the software kernel checks every address anyway.
    unsafe { nvmap::CACHE_64.send_pointing(&bench.nvmap, &mut args) }
}

/// DMA_BUF_IOCTL_SYNC.
const SYNC: u32 = 0x4008_6200;

#[test]
fn a_dma_buf_supports_the_generic_dma_buf_requests() {
    check(&[
        (
            "dma-buf sync: begin and end of a read",
            |bench| {
                let fd = bench.buffer(4096);
                send(&fd, SYNC, &mut 1_u64.to_ne_bytes()).unwrap();
                send(&fd, SYNC, &mut 5_u64.to_ne_bytes())
            },
            Ok(0),
            &[],
        ),
        (
            "dma-buf sync: a bad address wins over missing memory",
            |bench| send_at(&bench.export(bench.create(4096)), SYNC, NOWHERE),
            FAULT,
            &[],
        ),
        (
            "dma-buf sync: a missing direction wins over missing memory",
            |bench| send(&bench.export(bench.create(4096)), SYNC, &mut 4_u64.to_ne_bytes()),
            INVAL,
            &[],
        ),
        (
            "dma-buf sync: an unknown flag",
            |bench| send(&bench.buffer(4096), SYNC, &mut 9_u64.to_ne_bytes()),
            INVAL,
            &[],
        ),
        (
            "dma-buf sync: missing memory",
            |bench| send(&bench.export(bench.create(4096)), SYNC, &mut 3_u64.to_ne_bytes()),
            PERM,
            &[],
        ),
        (
            "dma-buf: another request, before its address",
            |bench| send_at(&bench.buffer(4096), 0x4008_6207, NOWHERE),
            NOTTY,
            &[],
        ),
        (
            "dma-buf: lseek to the end works, read does not",
            |bench| {
                let fd = bench.buffer(4096);
                bench.door.seek_end(fd.raw()).unwrap();
                bench.door.read(fd.raw(), &mut [0; 8]).map(|_| 0)
            },
            INVAL,
            &[],
        ),
    ]);
}
