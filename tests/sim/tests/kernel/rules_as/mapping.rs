//! MAP_BUFFER_EX from the descriptor to the pages, and MAPPING_MODIFY of its result.

use super::{FIXED, empty};
use crate::support::rules::*;
use crate::support::*;
use kernel_door::DoorFd;
use nvgpu_sys::address_space::{self as space, KIND_INVALID, MapBufferEx};
use nvgpu_sys::nvmap::Heaps;

fn map_with(bench: &Bench, change: impl FnOnce(&DoorFd, &mut MapBufferEx)) -> Answer {
    let space = bench.space();
    let buffer = bench.buffer(0x4000);
    let mut args = map_args(&buffer);
    change(&space, &mut args);
    let before = args;
    let result = space::MAP_BUFFER_EX.send(&space, &mut args);
    if result.is_err() {
        assert_eq!(args, before, "nothing is copied out after an error");
        assert_eq!(bench.orin.live().gpu_mappings, 0);
    }
    result
}

/// In a reservation of 8 pages.
fn map_fixed(bench: &Bench, change: impl FnOnce(u64, &mut MapBufferEx)) -> Answer {
    map_with(bench, |space, args| {
        args.flags = FIXED;
        args.offset = reserve(space, 8, 0, 0).unwrap();
        change(args.offset, args);
    })
}

pub(crate) const MAPPING: &[Rule] = &[
    (
        "MAP_BUFFER_EX 2: a closed descriptor wins over all other errors",
        BADF,
        &["nvgpu_vm_map_buffer: fd 999999 is not a dmabuf"],
        |bench| {
            map_with(bench, |_, args| {
                (args.dmabuf_fd, args.offset, args.flags) = (CLOSED, 1, 1 << 12);
            })
        },
    ),
    ("MAP_BUFFER_EX 2: -1 is not open", BADF, &["nvgpu_vm_map_buffer: fd -1 is not a dmabuf"], |bench| {
        map_with(bench, |_, args| args.dmabuf_fd = u32::MAX)
    }),
    (
        "MAP_BUFFER_EX 2: a descriptor of the board that is not a dma-buf",
        INVAL,
        &["… is not a dmabuf"],
        |bench| map_with(bench, |_, args| args.dmabuf_fd = raw(&bench.nvmap)),
    ),
    (
        "MAP_BUFFER_EX 3 before 4: offset and size without FIXED",
        INVAL,
        &["Regular map with addr/buf offset is not supported!"],
        |bench| map_with(bench, |_, args| (args.offset, args.mapping_size) = (4096, 4096)),
    ),
    (
        "MAP_BUFFER_EX 3: buffer offset without FIXED",
        INVAL,
        &["Regular map with addr/buf offset is not supported!"],
        |bench| map_with(bench, |_, args| args.buffer_offset = 4096),
    ),
    (
        "MAP_BUFFER_EX 4 before 5: size without FIXED, larger than the buffer",
        INVAL,
        &["map_size && non-fixed-mapping!"],
        |bench| map_with(bench, |_, args| args.mapping_size = 1 << 40),
    ),
    (
        "MAP_BUFFER_EX 5 before 6: too large and access 3",
        INVAL,
        &["buf size 4000 < (offset(0) + map_size(4001))"],
        |bench| {
            map_fixed(bench, |_, args| {
                args.mapping_size = 0x4001;
                args.flags |= 3 << space::ACCESS_SHIFT;
            })
        },
    ),
    (
        "MAP_BUFFER_EX 5: an offset whose sum with the size wraps",
        INVAL,
        &["buf size 4000 < (offset(fffffffffffff000) + map_size(2000))"],
        |bench| {
            map_fixed(bench, |_, args| {
                (args.buffer_offset, args.mapping_size) = (u64::MAX - 0xfff, 0x2000);
            })
        },
    ),
    (
        "MAP_BUFFER_EX 6 before 7: access 3 and TEGRA_RAW",
        INVAL,
        &["Invalid map access specified 3", "map access translation failed"],
        |bench| map_with(bench, |_, args| args.flags = 3 << space::ACCESS_SHIFT | 1 << 12),
    ),
    (
        "MAP_BUFFER_EX 7 before 8: TEGRA_RAW and an unknown flag",
        INVAL,
        &["TEGRA_RAW requested when not supported."],
        |bench| map_with(bench, |_, args| args.flags = 1 << 12 | 1 << 31),
    ),
    (
        "MAP_BUFFER_EX 8: unknown flags, all of them logged; the deprecated flag is accepted",
        INVAL,
        &["Ignoring deprecated flag: NVGPU_AS_MAP_BUFFER_FLAGS_MAPPABLE_COMPBITS", "Extra flags: 0x80000002"],
        |bench| map_with(bench, |_, args| args.flags = 1 << 1 | 1 << 6 | 1 << 31),
    ),
    (
        "MAP_BUFFER_EX 8 before 10: an unknown flag and a buffer without memory",
        INVAL,
        &["Extra flags: 0x8"],
        |bench| map_with(bench, |_, args| (args.flags, args.dmabuf_fd) = (1 << 3, empty(bench))),
    ),
    (
        "MAP_BUFFER_EX 10 before 16: no memory, and an address outside every reservation",
        INVAL,
        &["Failed to map attachment (err = -22)!", "Failed to pin dma_buf!"],
        |bench| {
            map_with(bench, |_, args| {
                (args.flags, args.offset, args.dmabuf_fd) = (FIXED, 0x123, empty(bench));
            })
        },
    ),
    (
        "MAP_BUFFER_EX 11 before 16: writing a read-only buffer, outside every reservation",
        INVAL,
        &["RW mapping requested for RO buffer"],
        |bench| {
            let twin = bench.export(read_only(bench));
            map_with(bench, |_, args| {
                args.flags = FIXED | space::ACCESS_READ_WRITE << space::ACCESS_SHIFT;
                (args.offset, args.dmabuf_fd) = (0x1000, raw(&twin));
            })
        },
    ),
    ("MAP_BUFFER_EX: a read-only buffer with its descriptor's access", Ok(0), &[], |bench| {
        let twin = bench.export(read_only(bench));
        map_with(bench, |_, args| args.dmabuf_fd = raw(&twin))
    }),
    (
        "MAP_BUFFER_EX 14 before 15: a length that does not fit after the offset, and a bad address",
        INVAL,
        &[],
        |bench| {
            let whole = map_fixed(bench, |_, args| (args.offset, args.buffer_offset) = (1, 0x1000));
            assert_eq!(whole, INVAL);
            map_fixed(bench, |area, args| {
                (args.offset, args.mapping_size, args.buffer_offset) = (area + 1, 0x1001, 0x2fff);
            })
        },
    ),
    (
        "MAP_BUFFER_EX 15: an address near the end of the address space",
        INVAL,
        &["fixed offset mapping with invalid map_size"],
        |bench| map_fixed(bench, |_, args| args.offset = u64::MAX),
    ),
    (
        "MAP_BUFFER_EX 15 before 16: not aligned, outside every reservation",
        INVAL,
        &["map offset must be buffer page size aligned 0x123"],
        |bench| map_fixed(bench, |_, args| args.offset = 0x123),
    ),
    (
        "MAP_BUFFER_EX 16: just after a reservation",
        INVAL,
        &["fixed offset mapping without space allocation"],
        |bench| map_fixed(bench, |area, args| args.offset = area + 0x8000),
    ),
    (
        "MAP_BUFFER_EX 16: an automatic mapping is not a reservation",
        INVAL,
        &["fixed offset mapping without space allocation"],
        |bench| {
            map_with(bench, |space, args| {
                args.flags = FIXED;
                args.offset = map(space, &bench.buffer(0x8000)).unwrap();
                // This row has already mapped the buffer; the check of the others does not apply.
                unmap(space, args.offset);
            })
        },
    ),
    (
        "MAP_BUFFER_EX 17 before 19: beyond the reservation, and no fallback kind",
        INVAL,
        &["fixed offset mapping size overflows va node"],
        |bench| {
            map_fixed(bench, |area, args| {
                (args.offset, args.compr_kind, args.incompr_kind) = (area + 0x5000, 8, KIND_INVALID);
            })
        },
    ),
    (
        "MAP_BUFFER_EX 19: a compressible kind without a fallback",
        INVAL,
        &[
            "Unsupported page size for compressible kind, but no fallback kind",
            "failure setting up compression",
        ],
        |bench| map_with(bench, |_, args| (args.compr_kind, args.incompr_kind) = (8, KIND_INVALID)),
    ),
    ("MAP_BUFFER_EX: a compressible kind with a fallback", Ok(0), &[], |bench| {
        map_with(bench, |_, args| (args.compr_kind, args.incompr_kind) = (8, 0))
    }),
    ("MAP_BUFFER_EX 20: kind 256", NOMEM, &["No comptags and no incompressible fallback kind"], |bench| {
        map_with(bench, |_, args| args.incompr_kind = 256)
    }),
    (
        "MAP_BUFFER_EX 20: a negative kind other than -1, with a compressible kind",
        NOMEM,
        &["No comptags and no incompressible fallback kind"],
        |bench| map_with(bench, |_, args| (args.compr_kind, args.incompr_kind) = (8, -2)),
    ),
    (
        "MAP_BUFFER_EX 20 before 21: no kind, and a buffer offset inside a page",
        NOMEM,
        &["No comptags and no incompressible fallback kind"],
        |bench| {
            map_fixed(bench, |_, args| {
                (args.buffer_offset, args.mapping_size) = (8, 0x1000);
                args.incompr_kind = KIND_INVALID;
            })
        },
    ),
    (
        "MAP_BUFFER_EX 21: a buffer offset inside a page",
        NOMEM,
        &["failed to update ptes on map, err=-22", "nvgpu_gmmu_map_locked: failed with err=-22"],
        |bench| map_fixed(bench, |_, args| (args.buffer_offset, args.mapping_size) = (8, 0x1000)),
    ),
    ("MAP_BUFFER_EX: a size inside a page is rounded up", Ok(0), &[], |bench| {
        map_fixed(bench, |_, args| args.mapping_size = 1)
    }),
    ("MAP_BUFFER_EX: protected memory", Ok(0), &[], |bench| {
        let handle = bench.create(4096);
        bench.try_alloc(handle, Heaps::VPR.bits(), TAG).unwrap();
        let fd = bench.export(handle);
        map_with(bench, |_, args| args.dmabuf_fd = raw(&fd))
    }),
    ("MAP_BUFFER_EX 2: a descriptor of another driver", INVAL, &["… is not a dmabuf"], |bench| {
        map_with(bench, |_, args| args.dmabuf_fd = foreign())
    }),
    (
        "MAP_BUFFER_EX 5: an offset and a size beyond the buffer",
        INVAL,
        &["buf size 4000 < (offset(3000) + map_size(2000))"],
        |bench| map_fixed(bench, |_, args| (args.buffer_offset, args.mapping_size) = (0x3000, 0x2000)),
    ),
    ("MAP_BUFFER_EX 8: the flag of older headers", INVAL, &["Extra flags: 0x100"], |bench| {
        map_with(bench, |_, args| args.flags = 1 << 8)
    }),
    (
        "MAP_BUFFER_EX: the deprecated flag",
        Ok(0),
        &["Ignoring deprecated flag: NVGPU_AS_MAP_BUFFER_FLAGS_MAPPABLE_COMPBITS"],
        |bench| map_with(bench, |_, args| args.flags = 1 << 6),
    ),
    ("MAP_BUFFER_EX: any page size", Ok(0), &[], |bench| map_with(bench, |_, args| args.page_size = 12_345)),
];

pub(crate) const OVERLAPS: &[Rule] = &[
    ("MAP_BUFFER_EX 13 before 18: the same address, other offset and size", Ok(0), &[], |bench| {
        let space = bench.space();
        let area = reserve(&space, 8, 0, 0).unwrap();
        let buffer = bench.buffer(0x4000);
        let first = MapBufferEx { flags: FIXED, offset: area, mapping_size: 0x2000, ..map_args(&buffer) };
        space::MAP_BUFFER_EX.send(&space, &mut { first }).unwrap();
        let mut again = MapBufferEx { buffer_offset: 0x1000, mapping_size: 0x3000, ..first };
        let result = space::MAP_BUFFER_EX.send(&space, &mut again);
        assert_eq!(bench.orin.live().gpu_mappings, 1);
        result
    }),
    (
        "MAP_BUFFER_EX 18: the same address, another access",
        INVAL,
        &["overlapping buffer map requested"],
        |bench| {
            let space = bench.space();
            let area = reserve(&space, 8, 0, 0).unwrap();
            let buffer = bench.buffer(0x4000);
            let first = MapBufferEx { flags: FIXED, offset: area, ..map_args(&buffer) };
            space::MAP_BUFFER_EX.send(&space, &mut { first }).unwrap();
            let flags = FIXED | space::ACCESS_READ_ONLY << space::ACCESS_SHIFT;
            space::MAP_BUFFER_EX.send(&space, &mut MapBufferEx { flags, ..first })
        },
    ),
    (
        "MAP_BUFFER_EX 18 before 19: an overlap from below, and no fallback kind",
        INVAL,
        &["overlapping buffer map requested"],
        |bench| {
            let space = bench.space();
            let area = reserve(&space, 8, 0, 0).unwrap();
            let buffer = bench.buffer(0x4000);
            let first = MapBufferEx { flags: FIXED, offset: area + 0x3000, ..map_args(&buffer) };
            space::MAP_BUFFER_EX.send(&space, &mut { first }).unwrap();
            let mut below = MapBufferEx { offset: area, compr_kind: 8, incompr_kind: KIND_INVALID, ..first };
            space::MAP_BUFFER_EX.send(&space, &mut below)
        },
    ),
    ("MAP_BUFFER_EX: reuse needs the same key kind, not the same fallback", Ok(0), &[], |bench| {
        let space = bench.space();
        let buffer = bench.buffer(4096);
        let mut first = MapBufferEx { compr_kind: 8, ..map_args(&buffer) };
        space::MAP_BUFFER_EX.send(&space, &mut first).unwrap();
        let mut second = MapBufferEx { compr_kind: 8, incompr_kind: 1, ..map_args(&buffer) };
        space::MAP_BUFFER_EX.send(&space, &mut second).unwrap();
        assert_eq!(second.offset, first.offset);
        let mut third = map_args(&buffer);
        let result = space::MAP_BUFFER_EX.send(&space, &mut third);
        assert_ne!(third.offset, first.offset);
        result
    }),
    ("UNMAP_BUFFER: an automatic mapping with references is not waited for", Ok(0), &[], |bench| {
        let space = bench.space();
        let buffer = bench.buffer(4096);
        let va = map(&space, &buffer).unwrap();
        assert_eq!(map(&space, &buffer), Ok(va));
        unmap(&space, va);
        assert_eq!(bench.orin.live().gpu_mappings, 1);
        unmap(&space, va);
        assert_eq!(bench.orin.live().gpu_mappings, 0);
        Ok(0)
    }),
    (
        "MAP_BUFFER_EX: no room for the mapping",
        NOMEM,
        &[
            "(gk20a_as) oom: sz=0x3000",
            "failed to allocate va space",
            "nvgpu_gmmu_map_locked: failed with err=-12",
        ],
        |bench| {
            let space = bench.try_alloc_as(0x20_0000, 0x40_0000).unwrap();
            reserve(&space, 512, 0, 0).unwrap();
            map(&space, &bench.buffer(0x3000)).map(|_| 0)
        },
    ),
];

/// MAPPING_MODIFY of a mapping of four pages.
fn modify(bench: &Bench, change: impl FnOnce(&mut space::MappingModify)) -> Answer {
    let space = bench.space();
    let map_address = map(&space, &bench.buffer(0x4000)).unwrap();
    let mut args = space::MappingModify {
        compr_kind: KIND_INVALID,
        buffer_size: 0x4000,
        map_address,
        ..Default::default()
    };
    change(&mut args);
    space::MAPPING_MODIFY.send(&space, &mut args)
}

pub(crate) const MODIFICATION: &[Rule] = &[
    (
        "MAPPING_MODIFY: an address inside a mapping is not its address",
        INVAL,
        &["no buffer at map_address 0xffffa01000"],
        |bench| modify(bench, |args| args.map_address += 0x1000),
    ),
    (
        "MAPPING_MODIFY: the offset wins over the size",
        INVAL,
        &["buffer_offset 0x8 not page aligned"],
        |bench| modify(bench, |args| (args.buffer_offset, args.buffer_size) = (8, 9)),
    ),
    (
        "MAPPING_MODIFY: a size inside a page wins over the range",
        INVAL,
        &["buffer_size 0x100001 not page aligned"],
        |bench| modify(bench, |args| args.buffer_size = 0x10_0001),
    ),
    (
        "MAPPING_MODIFY: the range wins over the kinds",
        INVAL,
        &["buffer end exceeds buffer size. 0x1000 + 0x4000 > 0x4000"],
        |bench| modify(bench, |args| (args.buffer_offset, args.incompr_kind) = (0x1000, KIND_INVALID)),
    ),
    (
        "MAPPING_MODIFY: a sum that wraps",
        INVAL,
        &["buffer end exceeds buffer size. 0xfffffffffffff000 + 0x4000 > 0x4000"],
        |bench| modify(bench, |args| args.buffer_offset = u64::MAX - 0xfff),
    ),
    ("MAPPING_MODIFY: no kind at all", INVAL, &["both compr_kind and incompr_kind are invalid"], |bench| {
        modify(bench, |args| args.incompr_kind = KIND_INVALID)
    }),
    ("MAPPING_MODIFY: a compressible kind alone", INVAL, &["invalid incompr_kind specified"], |bench| {
        modify(bench, |args| (args.compr_kind, args.incompr_kind) = (8, KIND_INVALID))
    }),
    ("MAPPING_MODIFY: all of it", Ok(0), &[], |bench| modify(bench, |args| args.compr_kind = 8)),
];
