//! Process memory as a buffer, and a buffer as process memory.

use super::{READ, WRITE, allocated, parameters};
use crate::support::rules::*;
use crate::support::*;
use kernel_door::{Errno, Protection};
use nvgpu_sys::nvmap::{self, CreateHandleFromVa, HandleFlags};

/// FROM_VA; the returned handle stays open.
fn import(bench: &Bench, va: u64, size: u32, flags: u32) -> Answer {
    let mut args = CreateHandleFromVa { va, size, flags: TAG | flags, size_or_handle: 0 };
    // SAFETY: memory of these tests is never unmapped; the software kernel checks every address.
    unsafe { nvmap::FROM_VA.send_pointing(&bench.nvmap, &mut args) }
}

const READ_ONLY: u32 = HandleFlags::READ_ONLY.bits();

/// Writable pages that are never unmapped.
fn writable(pages: usize) -> u64 {
    #[derive(Clone)]
    #[repr(align(4096))]
    struct Page {
        _bytes: [u8; 4096],
    }
    vec![Page { _bytes: [0; 4096] }; pages].leak().as_mut_ptr().expose_provenance() as u64
}

pub(crate) const IMPORTS: &[Rule] = &[
    ("FROM_VA: alignment comes before everything", INVAL, &[], |bench| import(bench, u64::MAX, 1, 0)),
    ("FROM_VA: no mapping at or above the address", INVAL, &[], |bench| {
        import(bench, u64::MAX - 0xfff, 1, 0)
    }),
    ("FROM_VA: a size above the machine's memory wins over read-only memory", NOMEM, &[], |bench| {
        bench.orin.limit_allocations(0);
        let va = constant(&[0; 1]);
        let mut args = CreateHandleFromVa { va, size: 0, flags: TAG, size_or_handle: 1 << 50 };
        // SAFETY: as in `import`.
        unsafe { nvmap::FROM_VA.send_pointing(&bench.nvmap, &mut args) }
    }),
    ("FROM_VA: read-only memory without the flag", INVAL, &[], |bench| {
        import(bench, constant(&[0; 1]), 4096, 0)
    }),
    ("FROM_VA: read-only memory with the flag; the number is read-only", Ok(0), &[], |bench| {
        let va = constant(&[0; 1]);
        let mut args = CreateHandleFromVa { va, size: 1, flags: TAG | READ_ONLY, size_or_handle: 0 };
        // SAFETY: as in `import`.
        unsafe { nvmap::FROM_VA.send_pointing(&bench.nvmap, &mut args) }.unwrap();
        let (result, parameters) = parameters(bench, args.size_or_handle as u32);
        assert_eq!((parameters.access_flags, parameters.size), (READ_ONLY, 4096));
        result
    }),
    (
        "FROM_VA: registers cannot be pinned",
        INVAL,
        &[
            "alloc_handle_from_va: get_user_pages requested/got: 1/-14]",
            "nvmap_create_handle_from_va: alloc_handle_from_va failed -22",
        ],
        |bench| {
            let doorbell = bench.doorbell();
            import(bench, doorbell.pointer().as_ptr().expose_provenance() as u64, 4096, 0)
        },
    ),
    ("FROM_VA: the CPU mapping of a dma-buf", Ok(0), &[], |bench| {
        let mapping = cpu(&bench.buffer(4096), 4096);
        let result = import(bench, mapping.pointer().as_ptr().expose_provenance() as u64, 4096, 3);
        // The model uses the pages in place.
        core::mem::forget(mapping);
        result
    }),
    ("FROM_VA: an address inside a page", INVAL, &[], |bench| import(bench, writable(2) + 8, 4096, 0)),
    ("FROM_VA: anonymous memory", Ok(0), &[], |bench| import(bench, writable(2), 5000, 2)),
    (
        "FROM_VA: the second page cannot be pinned",
        INVAL,
        &[
            "alloc_handle_from_va: get_user_pages requested/got: 2/-14]",
            "nvmap_create_handle_from_va: alloc_handle_from_va failed -22",
        ],
        |bench| {
            let start = writable(2);
            let second = core::ptr::with_exposed_provenance_mut(start as usize + 4096);
            // SAFETY: the second page of fresh memory that no other code uses. It stays mapped, so that no other
            // mapping takes its place.
            unsafe { rustix::mm::mprotect(second, 4096, rustix::mm::MprotectFlags::empty()) }.unwrap();
            import(bench, start, 8192, 2)
        },
    ),
];

fn map_cpu(bench: &Bench, offset: u64, len: usize, protection: Protection) -> Answer {
    bench.buffer(8192).map(offset, len, protection).map(|_| 0)
}

pub(crate) const MAPPINGS: &[Rule] = &[
    ("mmap: part of the buffer", Ok(0), &[], |bench| map_cpu(bench, 4096, 4096, READ | WRITE)),
    ("mmap: no length", INVAL, &[], |bench| map_cpu(bench, 0, 0, READ)),
    ("mmap: an offset inside a page", INVAL, &[], |bench| map_cpu(bench, 8, 4096, READ)),
    ("mmap: one page beyond the end", INVAL, &[], |bench| map_cpu(bench, 4096, 4097, READ)),
    ("mmap: a sum that wraps", INVAL, &[], |bench| map_cpu(bench, u64::MAX - 0xfff, 8192, READ)),
    ("mmap: an unaligned offset wins over a closed descriptor", INVAL, &[], |bench| {
        let fd = i32::try_from(CLOSED).unwrap();
        let request = kernel_door::MapRequest { fd, offset: 8, len: 4096, protection: READ, place: None };
        mmap(&bench.door, &request).map(|_| 0)
    }),
    ("mmap: a closed descriptor wins over length 0", BADF, &[], |bench| {
        let fd = i32::try_from(CLOSED).unwrap();
        let request = kernel_door::MapRequest { fd, offset: 0, len: 0, protection: READ, place: None };
        mmap(&bench.door, &request).map(|_| 0)
    }),
    ("mmap: writing through a read-only descriptor wins over the range", Err(Errno::ACCESS), &[], |bench| {
        bench.export(read_only(bench)).map(0, 8192, READ | WRITE).map(|_| 0)
    }),
    ("mmap: the range wins over missing memory", INVAL, &[], |bench| {
        bench.export(bench.create(4096)).map(0, 8192, READ).map(|_| 0)
    }),
    ("mmap: missing memory", PERM, &[], |bench| {
        bench.export(bench.create(4096)).map(0, 4096, READ).map(|_| 0)
    }),
    ("mmap: the nvmap node", PERM, &[], |bench| bench.nvmap.map(0, 4096, READ).map(|_| 0)),
    ("mmap: the nvmap node, no length", INVAL, &[], |bench| bench.nvmap.map(0, 0, READ).map(|_| 0)),
    ("mmap: an address space", NODEV, &[], |bench| bench.space().map(0, 4096, READ).map(|_| 0)),
    (
        "mmap: uncached memory prints one line",
        Ok(0),
        &["… NVMAP_HANDLE_WRITE_COMBINE should be used in place of NVMAP_HANDLE_UNCACHEABLE on ARM64"],
        |bench| {
            let fd = bench.export(allocated(bench, nvmap::CACHE_UNCACHED));
            for _ in 0..2 {
                fd.map(0, 4096, READ).unwrap();
            }
            Ok(0)
        },
    ),
    ("mmap: protected memory", PERM, &[], |bench| {
        let handle = bench.create(4096);
        bench.try_alloc(handle, nvmap::Heaps::VPR.bits(), TAG).unwrap();
        bench.export(handle).map(0, 4096, READ).map(|_| 0)
    }),
];
