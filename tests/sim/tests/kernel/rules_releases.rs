//! Rules that hold for some releases only.

use crate::rules_nvmap::KERNEL;
use crate::support::rules::*;
use crate::support::*;
use kernel_door::DoorFd;
use nvgpu_sys::channel::{self, AllocGpfifoEx, AllocGpfifoExR39};
use nvgpu_sys::nvmap::{self, CacheOp32, CreateHandleFromVa, HeapSize, RwHandle32, SetTagLabel, code};
use nvgpu_sys::{address_space, ctrl, tsg};
use zerocopy::IntoBytes;

/// An argument of zeros, as long as the request says.
fn zeros(fd: &DoorFd, request: u32) -> Answer {
    send(fd, request, &mut vec![0; (request >> 16 & 0x3fff) as usize])
}

/// ALLOC of a new handle of some pages, of which `available` are available.
fn alloc_pages(bench: &Bench, pages: u32, available: u64) -> Answer {
    bench.orin.limit_allocations(available * nvmap::PAGE_SIZE);
    bench.try_alloc(bench.create(pages * 4096), nvmap::Heaps::IOVMM.bits(), TAG)
}

/// ALLOC of a handle that has memory, while none is available.
fn alloc_again(bench: &Bench) -> Answer {
    let handle = bench.create(4096);
    bench.alloc(handle);
    bench.orin.limit_allocations(0);
    bench.try_alloc(handle, nvmap::Heaps::IOVMM.bits(), TAG)
}

/// FROM_VA of a page, while none is available.
fn import_page(bench: &Bench) -> Answer {
    bench.orin.limit_allocations(0);
    let flags = TAG | nvmap::HandleFlags::READ_ONLY.bits();
    let mut args = CreateHandleFromVa { va: constant(&[0; 1]), size: 4096, flags, size_or_handle: 0 };
    // SAFETY: the memory is never unmapped.
    unsafe { nvmap::FROM_VA.send_pointing(&bench.nvmap, &mut args) }
}

/// A copy to the memory of a 32-bit process.
fn read_32(bench: &Bench) -> Answer {
    send(&bench.nvmap, code::READ_32, RwHandle32::default().as_mut_bytes())
}

/// Cache maintenance of a 32-bit process.
fn cache_32(bench: &Bench) -> Answer {
    send(&bench.nvmap, code::CACHE_32, CacheOp32::default().as_mut_bytes())
}

/// Checks the free bytes of system memory, of which 1000 pages are available.
fn heap_of_node(bench: &Bench, node: u32) -> Answer {
    bench.orin.limit_allocations(4096 * 1000);
    let heap_mask = nvmap::Heaps::IOVMM.bits();
    let mut args = nvmap::QueryHeapParams { heap_mask, padding1: node, ..Default::default() };
    let result = nvmap::QUERY_HEAP_PARAMS_NUMA.send(&bench.nvmap, &mut args);
    assert_eq!(args.free, if result.is_ok() { 4096 * 999 } else { 0 });
    result
}

pub(crate) const OF_R36: &[Rule] = &[
    ("nvmap: number 108", NOTTY, &[], |bench| send_at(&bench.nvmap, 0xc008_4e6c, KERNEL)),
    ("control node: number 45", INVAL, &[], |bench| send_at(&bench.ctrl, 0xc010_472d, NOWHERE)),
    ("address space: number 15", INVAL, &[], |bench| send_at(&bench.space(), 0xc028_410f, NOWHERE)),
    ("address space: 41 bytes", INVAL, &[], |bench| send_at(&bench.space(), 0xc029_4107, NOWHERE)),
    ("ALLOC: the form of R39", NOTTY, &["nvmap_ioctl: Unknown NVMAP_IOC = 0x40204e03"], |bench| {
        zeros(&bench.nvmap, code::ALLOC_R39)
    }),
    ("ALLOC_GPFIFO_EX: the form of R39", NOTTY, &[], |bench| {
        channel::ALLOC_GPFIFO_EX_R39.send(&bench.bound().2, &mut AllocGpfifoExR39::default())
    }),
    ("READ_32: no address", INVAL, &[], read_32),
    ("CACHE_32: no address", INVAL, &[], cache_32),
    ("SETUP_BIND: reserved words are not written", Ok(7), &[], |bench| reserved_word(bench, 7)),
];

pub(crate) const OF_R36_4_3: &[Rule] = &[
    ("ALLOC: all that is available", Ok(0), &[], |bench| alloc_pages(bench, 1000, 1000)),
    ("ALLOC: existing memory wins over more than is available", EXIST, &[], alloc_again),
    ("FROM_VA: more than is available", Ok(0), &[], import_page),
];

pub(crate) const SINCE_R36_4_7: &[Rule] = &[
    ("ALLOC: all that is available", NOMEM, &[], |bench| alloc_pages(bench, 1000, 1000)),
    ("ALLOC: all but 0.1 % of what is available", Ok(0), &[], |bench| alloc_pages(bench, 999, 1000)),
    ("ALLOC: more than is available wins over existing memory", NOMEM, &[], alloc_again),
    ("FROM_VA: more than is available", NOMEM, &[], import_page),
];

pub(crate) const OF_R39: &[Rule] = &[
    ("nvmap: number 109", NOTTY, &[], |bench| send_at(&bench.nvmap, 0xc008_4e6d, KERNEL)),
    ("control node: number 49", INVAL, &[], |bench| send_at(&bench.ctrl, 0xc010_4731, NOWHERE)),
    ("address space: number 16", INVAL, &[], |bench| send_at(&bench.space(), 0xc028_4110, NOWHERE)),
    ("address space: 73 bytes", INVAL, &[], |bench| send_at(&bench.space(), 0xc049_4107, NOWHERE)),
    (
        "new requests of nvgpu are not modelled",
        NOTTY,
        &["orin-sim: request 0xc010472d is not modelled", "orin-sim: request 0x8048410f is not modelled"],
        |bench| {
            assert_eq!(zeros(&bench.ctrl, ctrl::code::GET_PPC_MASKS), NOTTY);
            zeros(&bench.space(), address_space::code::GET_SYNC_RO_MAP_V2)
        },
    ),
    ("QUERY_HEAP_PARAMS_NUMA: node 0", Ok(0), &[], |bench| heap_of_node(bench, 0)),
    (
        "QUERY_HEAP_PARAMS_NUMA: node 1",
        INVAL,
        &["nvmap_query_heap: Incorrect input for numa_id:1"],
        |bench| heap_of_node(bench, 1),
    ),
    ("ALLOC: the form of R36", NOTTY, &["nvmap_ioctl: Unknown NVMAP_IOC = 0x40144e03"], |bench| {
        nvmap::ALLOC.send(&bench.nvmap, &mut nvmap::AllocHandle::default())
    }),
    ("CACHE_LIST", NOTTY, &["nvmap_ioctl: Unknown NVMAP_IOC = 0x40204e11"], |bench| {
        zeros(&bench.nvmap, code::CACHE_LIST)
    }),
    ("SET_TAG_LABEL", NOTTY, &["nvmap_ioctl: Unknown NVMAP_IOC = 0x40104e18"], |bench| {
        send(&bench.nvmap, code::SET_TAG_LABEL, SetTagLabel::default().as_mut_bytes())
    }),
    ("GET_HEAP_SIZE", NOTTY, &["nvmap_ioctl: Unknown NVMAP_IOC = 0x80104e1a"], |bench| {
        nvmap::GET_HEAP_SIZE.send(&bench.nvmap, &mut HeapSize::default())
    }),
    (
        "READ_32",
        NOTTY,
        &["nvmap_ioctl: NVMAP_IOC_WRITE_32/READ_32 pair are deprecated. Use the pair NVMAP_IOC_WRITE/READ."],
        read_32,
    ),
    (
        "CACHE_32",
        NOTTY,
        &["nvmap_ioctl: NVMAP_IOC_CACHE_32 is deprecated. Use NVMAP_IOC_CACHE instead."],
        cache_32,
    ),
    ("ALLOC_GPFIFO_EX: the form of R36", NOTTY, &[], |bench| {
        channel::ALLOC_GPFIFO_EX.send(&bench.bound().2, &mut AllocGpfifoEx::default())
    }),
    ("SETUP_BIND: the first reserved word returns the channel", Ok(511), &[], |bench| {
        reserved_word(bench, 7)
    }),
    ("GET_CHARACTERISTICS: the classes follow the larger fields", Ok(0xc7c0), &[], |bench| {
        let mut bytes = [0_u8; 512];
        let mut args = ctrl::GetCharacteristics {
            gpu_characteristics_buf_size: 512,
            gpu_characteristics_buf_addr: bytes.as_mut_ptr().expose_provenance() as u64,
        };
        // SAFETY: the bytes outlive the call.
        unsafe { ctrl::GET_CHARACTERISTICS.send_pointing(&bench.ctrl, &mut args) }?;
        let word = |at: usize| i32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
        // Twod class, GPFIFO class, SM version.
        assert_eq!([80, 92, 108].map(word), [0x902d, 0xc76f, 0x807]);
        Ok(word(88))
    }),
    ("GET_SHARE_TOKEN: a token begins with the instance that created it", Ok(0), &[], |bench| {
        let mut args = tsg::GetShareTokenR39 { target_device_instance_id: 1, share_token: [0; 2] };
        send(&bench.tsg(), tsg::code::GET_SHARE_TOKEN, args.as_mut_bytes())?;
        assert!(args.share_token[0] == 1 && args.share_token[1] != 0);
        Ok(0)
    }),
];

/// The first reserved word of SETUP_BIND after the call; before, `value`.
fn reserved_word(bench: &Bench, value: u32) -> Answer {
    let (_space, _tsg, channel) = bench.bound();
    let (ring, userd) = (bench.buffer(8192), bench.buffer(4096));
    let mut args = setup_args(&ring, &userd, 1024);
    args.reserved[0] = value;
    channel::SETUP_BIND.send(&channel, &mut args)?;
    Ok(args.reserved[0].cast_signed())
}
