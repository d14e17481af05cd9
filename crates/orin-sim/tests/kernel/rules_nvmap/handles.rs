//! Handles: creation, allocation, destruction.

use super::{FAULT, INVAL, NOMEM, PERM};
use crate::support::rules::*;
use crate::support::*;
use nvgpu_sys::Errno;
use nvgpu_sys::nvmap::{self, AllocHandle, CreateHandle, DuplicateHandle, Heaps, code};
use orin_sim::Config;
use zerocopy::IntoBytes;

#[test]
fn handles_are_created_and_destroyed() {
    check(&[
        ("CREATE: size 0", |bench| send(&bench.nvmap, code::CREATE, &mut [0; 8]), INVAL, &[]),
        (
            "CREATE: after a failed copy-out the handle is gone",
            |bench| {
                let args = CreateHandle { size_or_fd: 4096, handle: 0 };
                let result = send_constant(&bench.nvmap, code::CREATE, args.as_bytes());
                let live = bench.orin.live();
                assert_eq!((live.handles, live.buffers), (0, 0));
                result
            },
            FAULT,
            &[],
        ),
        (
            "CREATE_64: a size beyond any machine's memory",
            |bench| {
                let mut args = nvmap::CreateHandle64 { size_or_handle: 1 << 40 };
                nvmap::CREATE_64.send(&bench.nvmap, &mut args)
            },
            Ok(0),
            &[],
        ),
        ("FREE: number 0 closes nothing", |bench| nvmap::FREE.send(&bench.nvmap, 0), Ok(0), &[]),
        (
            "FREE: a descriptor that is not a dma-buf stays open",
            |bench| {
                nvmap::FREE.send(&bench.nvmap, raw(&bench.ctrl)).unwrap();
                bench.try_channel(-1).map(|_| 0)
            },
            Ok(0),
            &[],
        ),
        (
            "FREE: the descriptor outlives the number, and the number outlives other descriptors",
            |bench| {
                let handle = bench.create(4096);
                bench.alloc(handle);
                let twin = twin(bench, handle).unwrap();
                let fd = bench.export(handle);
                bench.free(handle);
                drop(fd);
                assert_eq!(bench.orin.live().buffers, 1, "the read-only number holds it");
                bench.free(twin);
                assert_eq!(bench.orin.live().buffers, 0);
                Ok(0)
            },
            Ok(0),
            &[],
        ),
        (
            "GET_FD: after a failed copy-out there is no descriptor",
            |bench| {
                let handle = bench.create(4096);
                let before = bench.orin.live().descriptors;
                let args = CreateHandle { size_or_fd: 0, handle };
                let result = send_constant(&bench.nvmap, code::GET_FD, args.as_bytes());
                assert_eq!(bench.orin.live().descriptors, before);
                result
            },
            FAULT,
            &[],
        ),
        (
            "FROM_FD: a closed descriptor wins over all other errors",
            |bench| {
                let mut args = CreateHandle { size_or_fd: CLOSED, handle: 7 };
                let result = nvmap::FROM_FD.send(&bench.nvmap, &mut args);
                assert_eq!(args.handle, 7, "nothing comes back");
                result
            },
            Err(Errno::BADF),
            &[],
        ),
        (
            "FROM_FD: a read-only descriptor gives a read-only number",
            |bench| {
                let fd = bench.export(read_only(bench));
                let mut args = CreateHandle { size_or_fd: raw(&fd), handle: 0 };
                nvmap::FROM_FD.send(&bench.nvmap, &mut args).unwrap();
                let mut copy = DuplicateHandle { handle: args.handle, access_flags: 0, dup_handle: 0 };
                nvmap::DUP_HANDLE.send(&bench.nvmap, &mut copy)
            },
            PERM,
            &["nvmap_ioctl_dup_handle: Duplicating RW handle from RO handle is not allowed"],
        ),
        (
            "DUP_HANDLE: an unknown number",
            |bench| twin(bench, 77).map(|_| 0),
            INVAL,
            &["nvmap_ioctl_dup_handle: Handle ID RO check failed"],
        ),
        (
            "DUP_HANDLE: excess rights win over missing memory",
            |bench| {
                let handle = read_only(bench);
                let mut args = DuplicateHandle { handle, access_flags: 1 << 9 | 1, dup_handle: 0 };
                nvmap::DUP_HANDLE.send(&bench.nvmap, &mut args)
            },
            PERM,
            &["nvmap_ioctl_dup_handle: Duplicating RW handle from RO handle is not allowed"],
        ),
        (
            "DUP_HANDLE: a handle without memory",
            |bench| twin(bench, bench.create(4096)).map(|_| 0),
            INVAL,
            &["… duplicating unallocated handle"],
        ),
    ]);
}

fn alloc(bench: &Bench, change: impl FnOnce(&mut AllocHandle)) -> Answer {
    let handle = bench.create(8192);
    let heap_mask = Heaps::IOVMM.bits();
    let mut args = AllocHandle { handle, heap_mask, flags: TAG | 1, align: 4096, numa_nid: -1 };
    change(&mut args);
    nvmap::ALLOC.send(&bench.nvmap, &mut args)
}

#[test]
fn memory_is_allocated_after_all_checks() {
    check(&[
        (
            "ALLOC 2 before 3: alignment and handle 0",
            |bench| alloc(bench, |args| (args.align, args.handle) = (6, 0)),
            INVAL,
            &[],
        ),
        (
            "ALLOC 3 before 4: handle 0 and a bad node",
            |bench| alloc(bench, |args| (args.handle, args.numa_nid) = (0, -2)),
            INVAL,
            &[],
        ),
        (
            "ALLOC 4 before 5: a bad node and an unknown handle",
            |bench| alloc(bench, |args| (args.handle, args.numa_nid) = (1, -2)),
            INVAL,
            &["nvmap_ioctl_alloc: numa id:-2 is invalid"],
        ),
        ("ALLOC: node 0", |bench| alloc(bench, |args| args.numa_nid = 0), Ok(0), &[]),
        (
            "ALLOC 5 before 7: an unknown handle and no heap",
            |bench| alloc(bench, |args| (args.handle, args.heap_mask) = (1, 0)),
            INVAL,
            &[],
        ),
        (
            "ALLOC 7 before 8: no heap, already allocated",
            |bench| {
                alloc(bench, |args| {
                    bench.alloc(args.handle);
                    args.heap_mask = 0;
                })
            },
            NOMEM,
            &[],
        ),
        (
            "ALLOC 7: carveouts that do not exist",
            |bench| alloc(bench, |args| args.heap_mask = Heaps::IVM.bits() | Heaps::TSEC.bits()),
            NOMEM,
            &[],
        ),
        (
            "ALLOC 8 before 9: already allocated, mixed heaps; a missing tag prints no line",
            |bench| {
                alloc(bench, |args| {
                    bench.alloc(args.handle);
                    (args.heap_mask, args.flags) = (Heaps::IOVMM.bits() | Heaps::IVM.bits(), 1);
                })
            },
            Err(Errno::EXIST),
            &[],
        ),
        (
            "ALLOC 9: exclusive heaps",
            |bench| alloc(bench, |args| args.heap_mask |= Heaps::VIDMEM.bits()),
            INVAL,
            &["… alloc mixes exclusive heap 67108864 and other heaps"],
        ),
        (
            "ALLOC: GENERIC is system memory here",
            |bench| alloc(bench, |args| args.heap_mask = Heaps::GENERIC.bits()),
            Ok(0),
            &[],
        ),
        (
            "ALLOC: through a read-only number",
            |bench| {
                let handle = read_only(bench);
                alloc(bench, |args| args.handle = handle)
            },
            Err(Errno::EXIST),
            &[],
        ),
    ]);
}

/// nvmap of L4T r36.4 rounds the size to a multiple of 0 for this heap bit. Strict mode refuses it.
#[test]
fn the_carveout_of_the_gpu_is_refused_in_strict_mode() {
    for (strict, wanted) in [(false, Ok(0)), (true, Err(Errno::NOMEM))] {
        let bench = Bench::with(Config { strict, ..Config::default() });
        let handle = bench.create(4096);
        let heaps = Heaps::GPU | Heaps::IOVMM;
        assert_eq!(bench.try_alloc(handle, heaps.bits(), TAG | 1), wanted);
        let told =
            bench.orin.kernel_log().iter().any(|line| line.contains("rounds the size of 4096 bytes to 0"));
        assert_eq!(told, strict);
    }
}
