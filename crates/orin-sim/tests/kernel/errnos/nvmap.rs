//! Rows of `/dev/nvmap`.

use core::ptr;

use nvgpu_sys::Errno;
use nvgpu_sys::door::Protection;
use nvgpu_sys::nvmap::{self, AllocHandle, CreateHandle, Heaps};
use orin_sim::Config;
use rustix::mm::ProtFlags;

use super::{CLOSED, Outcome, UNKNOWN, foreign, foreign_number, read_only_page, send, send_at};
use crate::support::*;

pub(crate) fn nvmap_node(ioctl: &str, condition: &str) -> Outcome {
    let bench = Bench::new();
    Ok(match (ioctl, condition) {
        (_, "ioctl type is not N") => send(&bench.nvmap, 0xc008_4700, &mut [0; 8]),
        (_, "nr greater than 107") => send(&bench.nvmap, 0xc008_4e6c, &mut [0; 8]),
        (_, "argument address not accessible") => send_at(&bench.nvmap, nvmap::code::CREATE, 8),
        (_, "any mmap of the nvmap node") => bench.nvmap.map(0, 4096, Protection::READ).map(|_| 0),
        (_, "handle in VPR") => {
            let handle = bench.create(4096);
            bench.try_alloc(handle, Heaps::VPR.bits(), TAG).unwrap();
            bench.export(handle).map(0, 4096, Protection::READ).map(|_| 0)
        }
        (_, "writable mapping of a read-only FROM_VA handle") => return Err("private mappings"),
        _ => return Err(UNKNOWN),
    })
}

pub(crate) fn nvmap_alloc(condition: &str) -> Outcome {
    const IOVMM: u32 = Heaps::IOVMM.bits();
    let bench = Bench::with(Config { memory_bytes: 1 << 20, ..Config::default() });
    let handle = bench.create(8192);
    let mut args = AllocHandle { handle, heap_mask: IOVMM, flags: TAG | 1, align: 4096, numa_nid: -1 };
    match condition {
        "align is not a power of two" => args.align = 3,
        "align is 0" => args.align = 0,
        "handle is 0" => args.handle = 0,
        "numa_nid greater than MAX_NUMNODES" => args.numa_nid = 1000,
        "numa_nid is -2" => args.numa_nid = -2,
        "handle unknown in this process" => args.handle += 1,
        "heap_mask is 0" => args.heap_mask = 0,
        "heap_mask IOVMM and size larger than total RAM" => args.handle = bench.create(2 << 20),
        "handle already allocated" => bench.alloc(handle),
        "exclusive heap (IVM or VIDMEM) combined with another heap" => {
            args.heap_mask = IOVMM | Heaps::VIDMEM.bits();
        }
        "no heap can satisfy the request" => bench.alloc(bench.create(1 << 20)),
        "tag bits 31:16 are zero (warning only)" => args.flags = 1,
        _ => return Err(UNKNOWN),
    }
    let result = nvmap::ALLOC.send(&bench.nvmap, &mut args);
    let warnings = bench.orin.kernel_log().iter().filter(|line| line.contains("must have a tag")).count();
    assert_eq!(warnings, usize::from(args.flags >> 16 == 0));
    Ok(result)
}

pub(crate) fn nvmap_requests(ioctl: &str, condition: &str) -> Outcome {
    let bench = Bench::new();
    let mut bytes = [0_u8; 4096];
    let address = bytes.as_mut_ptr().expose_provenance() as u64;
    let rw = |handle| nvmap::RwHandle {
        addr: address,
        handle,
        elem_size: 8,
        hmem_stride: 8,
        user_stride: 8,
        count: 1,
        ..nvmap::RwHandle::default()
    };
    let read = |args: &mut nvmap::RwHandle| {
        // SAFETY: `bytes` outlives the call; the software kernel checks every address anyway.
        unsafe { nvmap::READ.send_pointing(&bench.nvmap, args) }
    };
    let write = |args: &mut nvmap::RwHandle| {
        // SAFETY: as for `read`.
        unsafe { nvmap::WRITE.send_pointing(&bench.nvmap, args) }
    };
    let get_fd = |handle| nvmap::GET_FD.send(&bench.nvmap, &mut CreateHandle { size_or_fd: 0, handle });
    let from_fd = |size_or_fd| nvmap::FROM_FD.send(&bench.nvmap, &mut CreateHandle { size_or_fd, handle: 0 });
    let read_only = || {
        let handle = bench.create(4096);
        bench.alloc(handle);
        let mut args = nvmap::DuplicateHandle {
            handle,
            access_flags: nvmap::HandleFlags::READ_ONLY.bits(),
            dup_handle: 0,
        };
        nvmap::DUP_HANDLE.send(&bench.nvmap, &mut args).unwrap();
        args.dup_handle
    };
    let cache_list = |handle: u32| {
        let (handles, offsets, sizes) = ([handle], [0_u32], [0_u32]);
        let at = |array: &[u32; 1]| array.as_ptr().expose_provenance() as u64;
        let mut args = nvmap::CacheOpList {
            handles: at(&handles),
            offsets: at(&offsets),
            sizes: at(&sizes),
            nr: 1,
            op: nvmap::CACHE_OP_WB,
        };
        // SAFETY: the arrays outlive the call.
        unsafe { nvmap::CACHE_LIST.send_pointing(&bench.nvmap, &mut args) }
    };
    Ok(match (ioctl, condition) {
        ("NVMAP_IOC_PARAM", _) => send(&bench.nvmap, 0xc010_4e08, &mut bytes),
        ("NVMAP_IOC_FROM_ID", _) => send(&bench.nvmap, 0xc008_4e02, &mut bytes),
        ("NVMAP_IOC_GET_ID", _) => send(&bench.nvmap, 0xc008_4e0d, &mut bytes),
        ("NVMAP_IOC_CREATE", _) => {
            let bench = Bench::with(Config { memory_bytes: 1 << 20, ..Config::default() });
            nvmap::CREATE.send(&bench.nvmap, &mut CreateHandle { size_or_fd: 1 << 30, handle: 0 })
        }
        ("NVMAP_IOC_CREATE_64", "size64 is 0") => {
            nvmap::CREATE_64.send(&bench.nvmap, &mut nvmap::CreateHandle64 { size_or_handle: 0 })
        }
        ("NVMAP_IOC_FREE", "number is an open dma-buf fd (the fd is closed)") => {
            let buffer = bench.buffer(4096);
            let before = bench.orin.live().descriptors;
            let result = nvmap::FREE.send(&bench.nvmap, raw(&buffer));
            assert_eq!(bench.orin.live().descriptors, before - 1);
            result
        }
        ("NVMAP_IOC_GET_FD", "handle unknown and number is an open fd that is not a dma-buf") => {
            get_fd(raw(&bench.ctrl))
        }
        ("NVMAP_IOC_GET_FD", "handle is the number of an nvmap dma-buf fd") => {
            let buffer = bench.buffer(4096);
            get_fd(raw(&buffer))
        }
        ("NVMAP_IOC_GET_FD", "process fd table full") => return Err("tested on its own, in kernel_alone"),
        ("NVMAP_IOC_FROM_FD", "fd not open") => from_fd(CLOSED),
        ("NVMAP_IOC_FROM_FD", "fd open but not a dma-buf") => {
            let file = foreign();
            from_fd(u32::try_from(foreign_number(&file)).unwrap())
        }
        ("NVMAP_IOC_FROM_FD", "nvmap buffer without memory") => {
            let buffer = bench.export(bench.create(4096));
            from_fd(raw(&buffer))
        }
        ("NVMAP_IOC_DUP_HANDLE", "read-write duplicate of a read-only id") => {
            let mut args = nvmap::DuplicateHandle { handle: read_only(), ..Default::default() };
            nvmap::DUP_HANDLE.send(&bench.nvmap, &mut args)
        }
        ("NVMAP_IOC_READ", "addr, count or elem_size is 0") => {
            let handle = bench.create(4096);
            bench.alloc(handle);
            assert_eq!(read(&mut nvmap::RwHandle { addr: 0, ..rw(handle) }), Err(Errno::INVAL));
            assert_eq!(read(&mut nvmap::RwHandle { count: 0, ..rw(handle) }), Err(Errno::INVAL));
            read(&mut nvmap::RwHandle { elem_size: 0, ..rw(handle) })
        }
        ("NVMAP_IOC_READ", "handle in VPR") => {
            let handle = bench.create(4096);
            bench.try_alloc(handle, Heaps::VPR.bits(), TAG).unwrap();
            read(&mut rw(handle))
        }
        ("NVMAP_IOC_READ", "handle not allocated") => read(&mut rw(bench.create(4096))),
        ("NVMAP_IOC_WRITE", "unknown handle") => write(&mut rw(1)),
        ("NVMAP_IOC_WRITE", "handle id is read-only") => write(&mut rw(read_only())),
        ("NVMAP_IOC_CACHE_LIST", "unknown handle in the list") => cache_list(1),
        ("NVMAP_IOC_CACHE_LIST", "unallocated handle in the list") => cache_list(bench.create(4096)),
        ("NVMAP_IOC_GET_AVAILABLE_HEAPS", "copy-out fails") => {
            send_at(&bench.nvmap, nvmap::code::GET_AVAILABLE_HEAPS, read_only_page().expose_provenance())
        }
        ("NVMAP_IOC_QUERY_HEAP_PARAMS", condition) => {
            let heap_mask = if condition == "heap_mask 0" { 0 } else { Heaps::VIDMEM.bits() };
            let mut args = nvmap::QueryHeapParams { heap_mask, ..Default::default() };
            let result = nvmap::QUERY_HEAP_PARAMS.send(&bench.nvmap, &mut args);
            assert_eq!((args.total, args.free), (0, 0));
            result
        }
        ("NVMAP_IOC_FROM_VA", condition) => return from_va(&bench, condition),
        ("NVMAP_IOC_CACHE", condition) => return cache(&bench, condition),
        _ => return Err(UNKNOWN),
    })
}

fn from_va(bench: &Bench, condition: &str) -> Outcome {
    let page = |protection| {
        use rustix::mm::MapFlags;
        // SAFETY: a new anonymous mapping that is never unmapped.
        let pointer =
            unsafe { rustix::mm::mmap_anonymous(ptr::null_mut(), 8192, protection, MapFlags::PRIVATE) };
        pointer.unwrap().expose_provenance() as u64
    };
    let import = |va, size| {
        let mut args = nvmap::CreateHandleFromVa { va, size, flags: TAG | 2, size_or_handle: 0 };
        // SAFETY: the software kernel checks every address before it uses it, and the memory of the
        // accepted import is never unmapped.
        unsafe { nvmap::FROM_VA.send_pointing(&bench.nvmap, &mut args) }
    };
    let writable = page(ProtFlags::READ | ProtFlags::WRITE);
    Ok(match condition {
        "va not page aligned" => import(writable + 8, 4096),
        "no mapping at va" => import(u64::MAX - 0xfff, 4096),
        "mapping not writable and RO flag absent" => import(page(ProtFlags::READ), 4096),
        // A gap: the mapping above it is writable, but the address is unmapped.
        "pages cannot be pinned" => {
            // The second page stays mapped, so that no other thread's mapping can replace it.
            let start = page(ProtFlags::READ | ProtFlags::WRITE);
            let second = ptr::with_exposed_provenance_mut(start as usize + 4096);
            // SAFETY: the second page of the fresh, unused mapping.
            unsafe { rustix::mm::mprotect(second, 4096, rustix::mm::MprotectFlags::empty()) }.unwrap();
            import(start, 8192)
        }
        "anonymous writable memory, page aligned" => import(writable, 5000),
        _ => return Err(UNKNOWN),
    })
}

fn cache(bench: &Bench, condition: &str) -> Outcome {
    let (handle, other) = (bench.create(8192), bench.create(8192));
    bench.alloc(handle);
    let mapping = bench.export(handle).map(0, 8192, Protection::READ).unwrap();
    let addr = mapping.pointer().as_ptr().expose_provenance() as u64;
    let cache = |addr, handle, len, op| {
        let mut args = nvmap::CacheOp { addr, handle, len, op, padding: 0 };
        // SAFETY: nothing is accessed at the address.
        unsafe { nvmap::CACHE.send_pointing(&bench.nvmap, &mut args) }
    };
    assert_eq!(cache(addr + 4096, handle, 4096, nvmap::CACHE_OP_INV), Ok(0));
    assert_eq!(cache(addr + 4096, handle, 4097, nvmap::CACHE_OP_INV), Err(Errno::ADDRNOTAVAIL));
    assert_eq!(cache(addr + 8192, handle, 1, nvmap::CACHE_OP_INV), Err(Errno::ADDRNOTAVAIL));
    Ok(match condition {
        "addr is 0" => cache(0, handle, 1, nvmap::CACHE_OP_WB),
        "op outside 0..2" => cache(addr, handle, 1, 3),
        "mapping belongs to a different handle" => cache(addr, other, 1, nvmap::CACHE_OP_WB),
        _ => return Err(UNKNOWN),
    })
}
