//! Process memory as a buffer, and a buffer as process memory.

use super::{INVAL, NODEV, NOMEM, PERM, READ, WRITE, allocated, parameters};
use crate::support::rules::*;
use crate::support::*;
use nvgpu_sys::Errno;
use nvgpu_sys::door::Protection;
use nvgpu_sys::nvmap::{self, CreateHandleFromVa, HandleFlags};

/// FROM_VA; the returned handle stays open.
fn import(bench: &Bench, va: u64, size: u32, flags: u32) -> Answer {
    let mut args = CreateHandleFromVa { va, size, flags: TAG | flags, size_or_handle: 0 };
    // SAFETY: memory of these tests is never unmapped; the software kernel checks every address.
    unsafe { nvmap::FROM_VA.send_pointing(&bench.nvmap, &mut args) }
}

#[test]
fn memory_of_the_process_is_imported_after_all_checks() {
    const READ_ONLY: u32 = HandleFlags::READ_ONLY.bits();
    check(&[
        ("FROM_VA: alignment comes before everything", |bench| import(bench, u64::MAX, 1, 0), INVAL, &[]),
        (
            "FROM_VA: no mapping at or above the address",
            |bench| import(bench, u64::MAX - 0xfff, 1, 0),
            INVAL,
            &[],
        ),
        (
            "FROM_VA: a size above the machine's memory wins over read-only memory",
            |bench| {
                bench.orin.limit_allocations(0);
                let va = constant(&[0; 1]);
                let mut args = CreateHandleFromVa { va, size: 0, flags: TAG, size_or_handle: 1 << 50 };
                // SAFETY: as in `import`.
                unsafe { nvmap::FROM_VA.send_pointing(&bench.nvmap, &mut args) }
            },
            NOMEM,
            &[],
        ),
        (
            "FROM_VA: read-only memory without the flag",
            |bench| import(bench, constant(&[0; 1]), 4096, 0),
            INVAL,
            &[],
        ),
        (
            "FROM_VA: read-only memory with the flag; the number is read-only",
            |bench| {
                let va = constant(&[0; 1]);
                let mut args = CreateHandleFromVa { va, size: 1, flags: TAG | READ_ONLY, size_or_handle: 0 };
                // SAFETY: as in `import`.
                unsafe { nvmap::FROM_VA.send_pointing(&bench.nvmap, &mut args) }.unwrap();
                let (result, parameters) = parameters(bench, args.size_or_handle as u32);
                assert_eq!((parameters.access_flags, parameters.size), (READ_ONLY, 4096));
                result
            },
            Ok(0),
            &[],
        ),
        (
            "FROM_VA: registers cannot be pinned",
            |bench| {
                let doorbell = bench.doorbell();
                import(bench, doorbell.pointer().as_ptr().expose_provenance() as u64, 4096, 0)
            },
            INVAL,
            &[
                "alloc_handle_from_va: get_user_pages requested/got: 1/-14]",
                "nvmap_create_handle_from_va: alloc_handle_from_va failed -22",
            ],
        ),
        (
            "FROM_VA: the CPU mapping of a dma-buf",
            |bench| {
                let mapping = cpu(&bench.buffer(4096), 4096);
                let result = import(bench, mapping.pointer().as_ptr().expose_provenance() as u64, 4096, 3);
                // The model uses the pages in place.
                core::mem::forget(mapping);
                result
            },
            Ok(0),
            &[],
        ),
    ]);
}

fn map_cpu(bench: &Bench, offset: u64, len: usize, protection: Protection) -> Answer {
    bench.buffer(8192).map(offset, len, protection).map(|_| 0)
}

#[test]
fn cpu_mappings_are_checked_in_order() {
    check(&[
        ("mmap: part of the buffer", |bench| map_cpu(bench, 4096, 4096, READ | WRITE), Ok(0), &[]),
        ("mmap: no length", |bench| map_cpu(bench, 0, 0, READ), INVAL, &[]),
        ("mmap: an offset inside a page", |bench| map_cpu(bench, 8, 4096, READ), INVAL, &[]),
        ("mmap: one page beyond the end", |bench| map_cpu(bench, 4096, 4097, READ), INVAL, &[]),
        ("mmap: a sum that wraps", |bench| map_cpu(bench, u64::MAX - 0xfff, 8192, READ), INVAL, &[]),
        (
            "mmap: an unaligned offset wins over a closed descriptor",
            |bench| {
                let fd = i32::try_from(CLOSED).unwrap();
                let request = nvgpu_sys::door::MapRequest { fd, offset: 8, len: 4096, protection: READ };
                bench.door.mmap(&request).map(|_| 0)
            },
            INVAL,
            &[],
        ),
        (
            "mmap: a closed descriptor wins over length 0",
            |bench| {
                let fd = i32::try_from(CLOSED).unwrap();
                let request = nvgpu_sys::door::MapRequest { fd, offset: 0, len: 0, protection: READ };
                bench.door.mmap(&request).map(|_| 0)
            },
            Err(Errno::BADF),
            &[],
        ),
        (
            "mmap: writing through a read-only descriptor wins over the range",
            |bench| bench.export(read_only(bench)).map(0, 8192, READ | WRITE).map(|_| 0),
            Err(Errno::ACCESS),
            &[],
        ),
        (
            "mmap: the range wins over missing memory",
            |bench| bench.export(bench.create(4096)).map(0, 8192, READ).map(|_| 0),
            INVAL,
            &[],
        ),
        (
            "mmap: missing memory",
            |bench| bench.export(bench.create(4096)).map(0, 4096, READ).map(|_| 0),
            PERM,
            &[],
        ),
        ("mmap: the nvmap node", |bench| bench.nvmap.map(0, 4096, READ).map(|_| 0), PERM, &[]),
        ("mmap: the nvmap node, no length", |bench| bench.nvmap.map(0, 0, READ).map(|_| 0), INVAL, &[]),
        ("mmap: an address space", |bench| bench.space().map(0, 4096, READ).map(|_| 0), NODEV, &[]),
        (
            "mmap: uncached memory prints one line",
            |bench| {
                let fd = bench.export(allocated(bench, nvmap::CACHE_UNCACHED));
                for _ in 0..2 {
                    fd.map(0, 4096, READ).unwrap();
                }
                Ok(0)
            },
            Ok(0),
            &["… NVMAP_HANDLE_WRITE_COMBINE should be used in place of NVMAP_HANDLE_UNCACHEABLE on ARM64"],
        ),
    ]);
}
