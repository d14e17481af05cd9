//! Queries of handles and heaps.

use super::parameters;
use crate::support::rules::*;
use crate::support::*;
use nvgpu_sys::nvmap::{self, AllocHandle, HandleFlags, HandleParameters, Heaps, QueryHeapParams, code};
use zerocopy::IntoBytes;

fn heap_params(bench: &Bench, heap_mask: u32) -> (Answer, QueryHeapParams) {
    let mut args = QueryHeapParams { heap_mask, granule_size: 77, ..QueryHeapParams::default() };
    (nvmap::QUERY_HEAP_PARAMS.send(&bench.nvmap, &mut args), args)
}

pub(crate) const QUERIES: &[Rule] = &[
    ("PARAMETERS: a handle without memory", Ok(0), &[], |bench| {
        let (result, args) = parameters(bench, bench.create(5000));
        assert_eq!((args.size, args.heap, args.align, args.contig), (8192, 0, 0, 0));
        assert_eq!((args.coherency, args.heap_number, args.offset), (1, u32::MAX, 0));
        assert_eq!((args.import_id, args.access_flags), (5, 7), "what is not set stays");
        result
    }),
    ("PARAMETERS: contiguous memory, aligned", Ok(0), &[], |bench| {
        let handle = bench.create(4096);
        let flags = TAG | HandleFlags::PHYS_CONTIG.bits() | 3;
        let heap_mask = Heaps::IOVMM.bits();
        bench.send_alloc(&AllocHandle { handle, heap_mask, flags, align: 0x1_0000, numa_nid: -1 }).unwrap();
        let (result, args) = parameters(bench, handle);
        assert_eq!((args.contig, args.align, args.coherency), (1, 0x1_0000, 3));
        assert_eq!(args.heap, u64::from(heap_mask));
        result
    }),
    ("PARAMETERS: protected memory is contiguous and uncached", Ok(0), &[], |bench| {
        let handle = bench.create(4096);
        bench.try_alloc(handle, Heaps::VPR.bits(), TAG | 3).unwrap();
        let (result, args) = parameters(bench, handle);
        assert_eq!((args.contig, args.coherency), (1, 0));
        result
    }),
    ("PARAMETERS: a read-only number", Ok(0), &[], |bench| {
        let (result, args) = parameters(bench, read_only(bench));
        assert_eq!(args.access_flags, HandleFlags::READ_ONLY.bits());
        result
    }),
    ("PARAMETERS: an unknown number", NODEV, &[], |bench| parameters(bench, 3).0),
    ("PARAMETERS: the argument cannot be read", FAULT, &[], |bench| {
        send_at(&bench.nvmap, code::PARAMETERS, NOWHERE)
    }),
    ("PARAMETERS: the argument cannot be stored", NODEV, &[], |bench| {
        let args = HandleParameters { handle: bench.create(1), ..HandleParameters::default() };
        send_constant(&bench.nvmap, code::PARAMETERS, args.as_bytes())
    }),
    ("QUERY_HEAP_PARAMS: system memory", Ok(0), &[], |bench| {
        let (result, args) = heap_params(bench, Heaps::IOVMM.bits());
        assert_eq!((args.granule_size, args.largest_free_block), (4096, 4096));
        assert!(args.total > 0 && args.free <= args.total);
        result
    }),
    ("QUERY_HEAP_PARAMS: no heap", Ok(0), &[], |bench| {
        let (result, args) = heap_params(bench, 0);
        assert_eq!((args.total, args.free), (0, 0));
        result
    }),
    (
        "QUERY_HEAP_PARAMS: two bits print a warning, and a missing carveout wins over system memory",
        NODEV,
        &["WARNING in nvmap_ioctl_query_heap_params+0x0/0x0 [nvmap]"],
        |bench| heap_params(bench, Heaps::IOVMM.bits() | Heaps::GPU.bits()).0,
    ),
    ("GET_AVAILABLE_HEAPS: the argument cannot be stored", INVAL, &[], |bench| {
        send_constant(&bench.nvmap, code::GET_AVAILABLE_HEAPS, &[0; 8])
    }),
];

pub(crate) const R36_QUERIES: &[Rule] = &[
    ("GET_HEAP_SIZE: system memory is not a carveout", NODEV, &[], |bench| {
        let mut args = nvmap::HeapSize { heap: Heaps::IOVMM.bits(), ..Default::default() };
        nvmap::GET_HEAP_SIZE.send(&bench.nvmap, &mut args)
    }),
    ("GET_HEAP_SIZE: a carveout among other bits", Ok(0), &[], |bench| {
        let heap = Heaps::IOVMM.bits() | Heaps::VPR.bits();
        let mut args = nvmap::HeapSize { heap, ..Default::default() };
        let result = nvmap::GET_HEAP_SIZE.send(&bench.nvmap, &mut args);
        assert!(args.size > 0);
        result
    }),
    ("SET_TAG_LABEL: an empty text needs no address", Ok(0), &[], |bench| {
        let mut args = nvmap::SetTagLabel { tag: 9, len: 0, addr: NOWHERE };
        // SAFETY: the software kernel checks every address before it uses it.
        unsafe { nvmap::SET_TAG_LABEL.send_pointing(&bench.nvmap, &mut args) }
    }),
    ("SET_TAG_LABEL: an unreadable text", FAULT, &[], |bench| {
        let mut args = nvmap::SetTagLabel { tag: 9, len: 4, addr: NOWHERE };
        // SAFETY: the software kernel checks every address before it uses it.
        unsafe { nvmap::SET_TAG_LABEL.send_pointing(&bench.nvmap, &mut args) }
    }),
];
