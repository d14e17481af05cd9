//! Handles: creation, allocation, destruction.

use crate::support::rules::*;
use crate::support::*;
use nvgpu_sys::nvmap::{self, AllocHandle, CreateHandle, DuplicateHandle, Heaps, code};
use orin_sim::Config;
use orin_sim::check::Tools;
use zerocopy::IntoBytes;

fn get_fd(bench: &Bench, handle: u32) -> Answer {
    nvmap::GET_FD.send(&bench.nvmap, &mut CreateHandle { size_or_fd: 0, handle })
}

fn from_fd(bench: &Bench, size_or_fd: u32) -> Answer {
    nvmap::FROM_FD.send(&bench.nvmap, &mut CreateHandle { size_or_fd, handle: 0 })
}

pub(crate) const HANDLES: &[Rule] = &[
    ("CREATE: size 0", INVAL, &[], |bench| send(&bench.nvmap, code::CREATE, &mut [0; 8])),
    ("CREATE: after a failed copy-out the handle is gone", FAULT, &[], |bench| {
        let args = CreateHandle { size_or_fd: 4096, handle: 0 };
        let result = send_constant(&bench.nvmap, code::CREATE, args.as_bytes());
        let live = bench.orin.live();
        assert_eq!((live.handles, live.buffers), (0, 0));
        result
    }),
    ("CREATE_64: a size beyond any machine's memory", Ok(0), &[], |bench| {
        let mut args = nvmap::CreateHandle64 { size_or_handle: 1 << 40 };
        nvmap::CREATE_64.send(&bench.nvmap, &mut args)
    }),
    ("FREE: number 0 closes nothing", Ok(0), &[], |bench| bench.free_number(0)),
    ("FREE: a descriptor that is not a dma-buf stays open", Ok(0), &[], |bench| {
        bench.free_number(raw(&bench.ctrl)).unwrap();
        bench.try_channel(-1).map(|_| 0)
    }),
    (
        "FREE: the descriptor outlives the number, and the number outlives other descriptors",
        Ok(0),
        &[],
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
    ),
    ("GET_FD: after a failed copy-out there is no descriptor", FAULT, &[], |bench| {
        let handle = bench.create(4096);
        let before = bench.orin.live().descriptors;
        let args = CreateHandle { size_or_fd: 0, handle };
        let result = send_constant(&bench.nvmap, code::GET_FD, args.as_bytes());
        assert_eq!(bench.orin.live().descriptors, before);
        result
    }),
    ("FROM_FD: a closed descriptor wins over all other errors", BADF, &[], |bench| {
        let mut args = CreateHandle { size_or_fd: CLOSED, handle: 7 };
        let result = nvmap::FROM_FD.send(&bench.nvmap, &mut args);
        assert_eq!(args.handle, 7, "nothing comes back");
        result
    }),
    (
        "FROM_FD: a read-only descriptor gives a read-only number",
        PERM,
        &["nvmap_ioctl_dup_handle: Duplicating RW handle from RO handle is not allowed"],
        |bench| {
            let fd = bench.export(read_only(bench));
            let mut args = CreateHandle { size_or_fd: raw(&fd), handle: 0 };
            nvmap::FROM_FD.send(&bench.nvmap, &mut args).unwrap();
            let mut copy = DuplicateHandle { handle: args.handle, access_flags: 0, dup_handle: 0 };
            nvmap::DUP_HANDLE.send(&bench.nvmap, &mut copy)
        },
    ),
    (
        "DUP_HANDLE: an unknown number",
        INVAL,
        &["nvmap_ioctl_dup_handle: Handle ID RO check failed"],
        |bench| twin(bench, 77).map(|_| 0),
    ),
    (
        "DUP_HANDLE: excess rights win over missing memory",
        PERM,
        &["nvmap_ioctl_dup_handle: Duplicating RW handle from RO handle is not allowed"],
        |bench| {
            let handle = read_only(bench);
            let mut args = DuplicateHandle { handle, access_flags: 1 << 9 | 1, dup_handle: 0 };
            nvmap::DUP_HANDLE.send(&bench.nvmap, &mut args)
        },
    ),
    ("DUP_HANDLE: a handle without memory", INVAL, &["… duplicating unallocated handle"], |bench| {
        twin(bench, bench.create(4096)).map(|_| 0)
    }),
    ("CREATE: more than the memory, which only ALLOC needs", Ok(0), &[], |bench| {
        bench.orin.limit_allocations(0);
        nvmap::CREATE.send(&bench.nvmap, &mut CreateHandle { size_or_fd: 1 << 30, handle: 0 })
    }),
    ("CREATE_64: size 0", INVAL, &[], |bench| send(&bench.nvmap, code::CREATE_64, &mut [0; 8])),
    ("FREE: the descriptor of a dma-buf is closed", Ok(0), &[], |bench| {
        let buffer = bench.buffer(4096);
        let before = bench.orin.live().descriptors;
        let result = bench.free_number(raw(&buffer));
        assert_eq!(bench.orin.live().descriptors, before - 1);
        core::mem::forget(buffer);
        result
    }),
    ("GET_FD: the descriptor of another node is not a handle", INVAL, &[], |bench| {
        get_fd(bench, raw(&bench.ctrl))
    }),
    ("GET_FD: nor is that of a dma-buf", INVAL, &[], |bench| get_fd(bench, raw(&bench.buffer(4096)))),
    ("FROM_FD: a descriptor that is not a dma-buf", INVAL, &[], |bench| from_fd(bench, foreign())),
    ("FROM_FD: a buffer without memory", INVAL, &["… duplicating unallocated handle"], |bench| {
        from_fd(bench, raw(&bench.export(bench.create(4096))))
    }),
];

fn alloc(bench: &Bench, change: impl FnOnce(&mut AllocHandle)) -> Answer {
    let handle = bench.create(8192);
    let heap_mask = Heaps::IOVMM.bits();
    let mut args = AllocHandle { handle, heap_mask, flags: TAG | 1, align: 4096, numa_nid: -1 };
    change(&mut args);
    bench.send_alloc(&args)
}

pub(crate) const ALLOCATION: &[Rule] = &[
    ("ALLOC 2 before 3: alignment and handle 0", INVAL, &[], |bench| {
        alloc(bench, |args| (args.align, args.handle) = (6, 0))
    }),
    ("ALLOC 3 before 4: handle 0 and a bad node", INVAL, &[], |bench| {
        alloc(bench, |args| (args.handle, args.numa_nid) = (0, -2))
    }),
    (
        "ALLOC 4 before 5: a bad node and an unknown handle",
        INVAL,
        &["nvmap_ioctl_alloc: numa id:-2 is invalid"],
        |bench| alloc(bench, |args| (args.handle, args.numa_nid) = (1, -2)),
    ),
    ("ALLOC: node 0", Ok(0), &[], |bench| alloc(bench, |args| args.numa_nid = 0)),
    ("ALLOC 5 before 7: an unknown handle and no heap", INVAL, &[], |bench| {
        alloc(bench, |args| (args.handle, args.heap_mask) = (1, 0))
    }),
    ("ALLOC 7 before 8: no heap, already allocated", NOMEM, &[], |bench| {
        alloc(bench, |args| {
            bench.alloc(args.handle);
            args.heap_mask = 0;
        })
    }),
    ("ALLOC 7: carveouts that do not exist", NOMEM, &[], |bench| {
        alloc(bench, |args| args.heap_mask = Heaps::IVM.bits() | Heaps::TSEC.bits())
    }),
    ("ALLOC 8 before 9: already allocated, mixed heaps; a missing tag prints no line", EXIST, &[], |bench| {
        alloc(bench, |args| {
            bench.alloc(args.handle);
            (args.heap_mask, args.flags) = (Heaps::IOVMM.bits() | Heaps::IVM.bits(), 1);
        })
    }),
    (
        "ALLOC 9: exclusive heaps",
        INVAL,
        &["… alloc mixes exclusive heap 67108864 and other heaps"],
        |bench| alloc(bench, |args| args.heap_mask |= Heaps::VIDMEM.bits()),
    ),
    ("ALLOC: GENERIC is system memory here", Ok(0), &[], |bench| {
        alloc(bench, |args| args.heap_mask = Heaps::GENERIC.bits())
    }),
    ("ALLOC: through a read-only number", EXIST, &[], |bench| {
        let handle = read_only(bench);
        alloc(bench, |args| args.handle = handle)
    }),
    ("ALLOC 2: alignment 3", INVAL, &[], |bench| alloc(bench, |args| args.align = 3)),
    ("ALLOC 2: alignment 0", Ok(0), &[], |bench| alloc(bench, |args| args.align = 0)),
    ("ALLOC 4: node 1000", INVAL, &["nvmap_ioctl_alloc: numa id:1000 is invalid"], |bench| {
        alloc(bench, |args| args.numa_nid = 1000)
    }),
    ("ALLOC: more than the memory", NOMEM, &[], |bench| {
        bench.orin.limit_allocations(4096);
        alloc(bench, |_| ())
    }),
    ("ALLOC: more than is left", NOMEM, &[], |bench| {
        bench.orin.limit_allocations(8192);
        bench.alloc(bench.create(4096));
        alloc(bench, |_| ())
    }),
    (
        "ALLOC: no tag is a warning",
        Ok(0),
        &["…Please pass the tag to the API call NvRmMemHanldeAllocAttr() or relevant. "],
        |bench| alloc(bench, |args| args.flags = 1),
    ),
];

/// nvmap of L4T r36.4 rounds the size to a multiple of 0 for this heap bit. The order check refuses it.
#[test]
fn the_order_check_refuses_the_carveout_of_the_gpu() {
    for (tools, wanted) in [(Tools::KERNELS, Ok(0)), (Tools::ORDERING, NOMEM)] {
        let bench = Bench::with(Config::default().with_checks(tools));
        let handle = bench.create(4096);
        let heaps = Heaps::GPU | Heaps::IOVMM;
        assert_eq!(bench.try_alloc(handle, heaps.bits(), TAG | 1), wanted);
        let told =
            bench.orin.kernel_log().iter().any(|line| line.contains("rounds the size of 4096 bytes to 0"));
        assert_eq!(told, wanted.is_err());
    }
}
