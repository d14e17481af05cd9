//! MAP_BUFFER_EX from the descriptor to the pages, and MAPPING_MODIFY of its result.

use super::{FIXED, INVAL, NOMEM, empty};
use crate::support::rules::*;
use crate::support::*;
use nvgpu_sys::Errno;
use nvgpu_sys::address_space::{self as space, KIND_INVALID, MapBufferEx};
use nvgpu_sys::door::DoorFd;
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

#[test]
fn a_mapping_is_checked_from_the_descriptor_to_the_pages() {
    check(&[
        (
            "MAP_BUFFER_EX 2: a closed descriptor wins over all other errors",
            |bench| {
                map_with(bench, |_, args| {
                    (args.dmabuf_fd, args.offset, args.flags) = (CLOSED, 1, 1 << 12);
                })
            },
            Err(Errno::BADF),
            &["nvgpu_vm_map_buffer: fd 999999 is not a dmabuf"],
        ),
        (
            "MAP_BUFFER_EX 2: -1 is not open",
            |bench| map_with(bench, |_, args| args.dmabuf_fd = u32::MAX),
            Err(Errno::BADF),
            &["nvgpu_vm_map_buffer: fd -1 is not a dmabuf"],
        ),
        (
            "MAP_BUFFER_EX 2: a descriptor of the board that is not a dma-buf",
            |bench| map_with(bench, |_, args| args.dmabuf_fd = raw(&bench.nvmap)),
            INVAL,
            &["… is not a dmabuf"],
        ),
        (
            "MAP_BUFFER_EX 3 before 4: offset and size without FIXED",
            |bench| map_with(bench, |_, args| (args.offset, args.mapping_size) = (4096, 4096)),
            INVAL,
            &["Regular map with addr/buf offset is not supported!"],
        ),
        (
            "MAP_BUFFER_EX 3: buffer offset without FIXED",
            |bench| map_with(bench, |_, args| args.buffer_offset = 4096),
            INVAL,
            &["Regular map with addr/buf offset is not supported!"],
        ),
        (
            "MAP_BUFFER_EX 4 before 5: size without FIXED, larger than the buffer",
            |bench| map_with(bench, |_, args| args.mapping_size = 1 << 40),
            INVAL,
            &["map_size && non-fixed-mapping!"],
        ),
        (
            "MAP_BUFFER_EX 5 before 6: too large and access 3",
            |bench| {
                map_fixed(bench, |_, args| {
                    args.mapping_size = 0x4001;
                    args.flags |= 3 << space::ACCESS_SHIFT;
                })
            },
            INVAL,
            &["buf size 4000 < (offset(0) + map_size(4001))"],
        ),
        (
            "MAP_BUFFER_EX 5: an offset whose sum with the size wraps",
            |bench| {
                map_fixed(bench, |_, args| {
                    (args.buffer_offset, args.mapping_size) = (u64::MAX - 0xfff, 0x2000);
                })
            },
            INVAL,
            &["buf size 4000 < (offset(fffffffffffff000) + map_size(2000))"],
        ),
        (
            "MAP_BUFFER_EX 6 before 7: access 3 and TEGRA_RAW",
            |bench| map_with(bench, |_, args| args.flags = 3 << space::ACCESS_SHIFT | 1 << 12),
            INVAL,
            &["Invalid map access specified 3", "map access translation failed"],
        ),
        (
            "MAP_BUFFER_EX 7 before 8: TEGRA_RAW and an unknown flag",
            |bench| map_with(bench, |_, args| args.flags = 1 << 12 | 1 << 31),
            INVAL,
            &["TEGRA_RAW requested when not supported."],
        ),
        (
            "MAP_BUFFER_EX 8: unknown flags, all of them logged; the deprecated flag is accepted",
            |bench| map_with(bench, |_, args| args.flags = 1 << 1 | 1 << 6 | 1 << 31),
            INVAL,
            &[
                "Ignoring deprecated flag: NVGPU_AS_MAP_BUFFER_FLAGS_MAPPABLE_COMPBITS",
                "Extra flags: 0x80000002",
            ],
        ),
        (
            "MAP_BUFFER_EX 8 before 10: an unknown flag and a buffer without memory",
            |bench| map_with(bench, |_, args| (args.flags, args.dmabuf_fd) = (1 << 3, empty(bench))),
            INVAL,
            &["Extra flags: 0x8"],
        ),
        (
            "MAP_BUFFER_EX 10 before 16: no memory, and an address outside every reservation",
            |bench| {
                map_with(bench, |_, args| {
                    (args.flags, args.offset, args.dmabuf_fd) = (FIXED, 0x123, empty(bench));
                })
            },
            INVAL,
            &["Failed to pin dma_buf!"],
        ),
        (
            "MAP_BUFFER_EX 11 before 16: writing a read-only buffer, outside every reservation",
            |bench| {
                let twin = bench.export(read_only(bench));
                map_with(bench, |_, args| {
                    args.flags = FIXED | space::ACCESS_READ_WRITE << space::ACCESS_SHIFT;
                    (args.offset, args.dmabuf_fd) = (0x1000, raw(&twin));
                })
            },
            INVAL,
            &["RW mapping requested for RO buffer"],
        ),
        (
            "MAP_BUFFER_EX: a read-only buffer with its descriptor's access",
            |bench| {
                let twin = bench.export(read_only(bench));
                map_with(bench, |_, args| args.dmabuf_fd = raw(&twin))
            },
            Ok(0),
            &[],
        ),
        (
            "MAP_BUFFER_EX 14 before 15: a length that does not fit after the offset, and a bad address",
            |bench| {
                let whole = map_fixed(bench, |_, args| (args.offset, args.buffer_offset) = (1, 0x1000));
                assert_eq!(whole, INVAL);
                map_fixed(bench, |area, args| {
                    (args.offset, args.mapping_size, args.buffer_offset) = (area + 1, 0x1001, 0x2fff);
                })
            },
            INVAL,
            &[],
        ),
        (
            "MAP_BUFFER_EX 15: an address near the end of the address space",
            |bench| map_fixed(bench, |_, args| args.offset = u64::MAX),
            INVAL,
            &["fixed offset mapping with invalid map_size"],
        ),
        (
            "MAP_BUFFER_EX 15 before 16: not aligned, outside every reservation",
            |bench| map_fixed(bench, |_, args| args.offset = 0x123),
            INVAL,
            &["map offset must be buffer page size aligned 0x123"],
        ),
        (
            "MAP_BUFFER_EX 16: just after a reservation",
            |bench| map_fixed(bench, |area, args| args.offset = area + 0x8000),
            INVAL,
            &["fixed offset mapping without space allocation"],
        ),
        (
            "MAP_BUFFER_EX 16: an automatic mapping is not a reservation",
            |bench| {
                map_with(bench, |space, args| {
                    args.flags = FIXED;
                    args.offset = map(space, &bench.buffer(0x8000)).unwrap();
                    // This row has already mapped the buffer; the check of the others does not apply.
                    unmap(space, args.offset);
                })
            },
            INVAL,
            &["fixed offset mapping without space allocation"],
        ),
        (
            "MAP_BUFFER_EX 17 before 19: beyond the reservation, and no fallback kind",
            |bench| {
                map_fixed(bench, |area, args| {
                    (args.offset, args.compr_kind, args.incompr_kind) = (area + 0x5000, 8, KIND_INVALID);
                })
            },
            INVAL,
            &["fixed offset mapping size overflows va node"],
        ),
        (
            "MAP_BUFFER_EX 19: a compressible kind without a fallback",
            |bench| map_with(bench, |_, args| (args.compr_kind, args.incompr_kind) = (8, KIND_INVALID)),
            INVAL,
            &[
                "Unsupported page size for compressible kind, but no fallback kind",
                "failure setting up compression",
            ],
        ),
        (
            "MAP_BUFFER_EX: a compressible kind with a fallback",
            |bench| map_with(bench, |_, args| (args.compr_kind, args.incompr_kind) = (8, 0)),
            Ok(0),
            &[],
        ),
        (
            "MAP_BUFFER_EX 20: kind 256",
            |bench| map_with(bench, |_, args| args.incompr_kind = 256),
            NOMEM,
            &["No comptags and no incompressible fallback kind"],
        ),
        (
            "MAP_BUFFER_EX 20: a negative kind other than -1, with a compressible kind",
            |bench| map_with(bench, |_, args| (args.compr_kind, args.incompr_kind) = (8, -2)),
            NOMEM,
            &["No comptags and no incompressible fallback kind"],
        ),
        (
            "MAP_BUFFER_EX 20 before 21: no kind, and a buffer offset inside a page",
            |bench| {
                map_fixed(bench, |_, args| {
                    (args.buffer_offset, args.mapping_size) = (8, 0x1000);
                    args.incompr_kind = KIND_INVALID;
                })
            },
            NOMEM,
            &["No comptags and no incompressible fallback kind"],
        ),
        (
            "MAP_BUFFER_EX 21: a buffer offset inside a page",
            |bench| map_fixed(bench, |_, args| (args.buffer_offset, args.mapping_size) = (8, 0x1000)),
            NOMEM,
            &["failed to update ptes on map, err=-22", "nvgpu_gmmu_map_locked: failed with err=-22"],
        ),
        (
            "MAP_BUFFER_EX: a size inside a page is rounded up",
            |bench| map_fixed(bench, |_, args| args.mapping_size = 1),
            Ok(0),
            &[],
        ),
        (
            "MAP_BUFFER_EX: protected memory",
            |bench| {
                let handle = bench.create(4096);
                bench.try_alloc(handle, Heaps::VPR.bits(), TAG).unwrap();
                let fd = bench.export(handle);
                map_with(bench, |_, args| args.dmabuf_fd = raw(&fd))
            },
            Ok(0),
            &[],
        ),
    ]);
}

#[test]
fn overlaps_and_reuse_are_distinguished() {
    check(&[
        (
            "MAP_BUFFER_EX 13 before 18: the same address, other offset and size",
            |bench| {
                let space = bench.space();
                let area = reserve(&space, 8, 0, 0).unwrap();
                let buffer = bench.buffer(0x4000);
                let first =
                    MapBufferEx { flags: FIXED, offset: area, mapping_size: 0x2000, ..map_args(&buffer) };
                space::MAP_BUFFER_EX.send(&space, &mut { first }).unwrap();
                let mut again = MapBufferEx { buffer_offset: 0x1000, mapping_size: 0x3000, ..first };
                let result = space::MAP_BUFFER_EX.send(&space, &mut again);
                assert_eq!(bench.orin.live().gpu_mappings, 1);
                result
            },
            Ok(0),
            &[],
        ),
        (
            "MAP_BUFFER_EX 18: the same address, another access",
            |bench| {
                let space = bench.space();
                let area = reserve(&space, 8, 0, 0).unwrap();
                let buffer = bench.buffer(0x4000);
                let first = MapBufferEx { flags: FIXED, offset: area, ..map_args(&buffer) };
                space::MAP_BUFFER_EX.send(&space, &mut { first }).unwrap();
                let flags = FIXED | space::ACCESS_READ_ONLY << space::ACCESS_SHIFT;
                space::MAP_BUFFER_EX.send(&space, &mut MapBufferEx { flags, ..first })
            },
            INVAL,
            &["overlapping buffer map requested"],
        ),
        (
            "MAP_BUFFER_EX 18 before 19: an overlap from below, and no fallback kind",
            |bench| {
                let space = bench.space();
                let area = reserve(&space, 8, 0, 0).unwrap();
                let buffer = bench.buffer(0x4000);
                let first = MapBufferEx { flags: FIXED, offset: area + 0x3000, ..map_args(&buffer) };
                space::MAP_BUFFER_EX.send(&space, &mut { first }).unwrap();
                let mut below =
                    MapBufferEx { offset: area, compr_kind: 8, incompr_kind: KIND_INVALID, ..first };
                space::MAP_BUFFER_EX.send(&space, &mut below)
            },
            INVAL,
            &["overlapping buffer map requested"],
        ),
        (
            "MAP_BUFFER_EX: reuse needs the same key kind, not the same fallback",
            |bench| {
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
            },
            Ok(0),
            &[],
        ),
        (
            "UNMAP_BUFFER: an automatic mapping with references is not waited for",
            |bench| {
                let space = bench.space();
                let buffer = bench.buffer(4096);
                let va = map(&space, &buffer).unwrap();
                assert_eq!(map(&space, &buffer), Ok(va));
                unmap(&space, va);
                assert_eq!(bench.orin.live().gpu_mappings, 1);
                unmap(&space, va);
                assert_eq!(bench.orin.live().gpu_mappings, 0);
                Ok(0)
            },
            Ok(0),
            &[],
        ),
        (
            "MAP_BUFFER_EX: no room for the mapping",
            |bench| {
                let space = bench.try_alloc_as(0x20_0000, 0x40_0000).unwrap();
                reserve(&space, 512, 0, 0).unwrap();
                map(&space, &bench.buffer(0x3000)).map(|_| 0)
            },
            NOMEM,
            &[
                "(gk20a_as) oom: sz=0x3000",
                "failed to allocate va space",
                "nvgpu_gmmu_map_locked: failed with err=-12",
            ],
        ),
    ]);
}

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

#[test]
fn modifying_a_mapping_is_checked_in_order() {
    check(&[
        (
            "MAPPING_MODIFY: an address inside a mapping is not its address",
            |bench| modify(bench, |args| args.map_address += 0x1000),
            INVAL,
            &["no buffer at map_address 0xffffa01000"],
        ),
        (
            "MAPPING_MODIFY: the offset wins over the size",
            |bench| modify(bench, |args| (args.buffer_offset, args.buffer_size) = (8, 9)),
            INVAL,
            &["buffer_offset 0x8 not page aligned"],
        ),
        (
            "MAPPING_MODIFY: a size inside a page wins over the range",
            |bench| modify(bench, |args| args.buffer_size = 0x10_0001),
            INVAL,
            &["buffer_size 0x100001 not page aligned"],
        ),
        (
            "MAPPING_MODIFY: the range wins over the kinds",
            |bench| modify(bench, |args| (args.buffer_offset, args.incompr_kind) = (0x1000, KIND_INVALID)),
            INVAL,
            &["buffer end exceeds buffer size. 0x1000 + 0x4000 > 0x4000"],
        ),
        (
            "MAPPING_MODIFY: a sum that wraps",
            |bench| modify(bench, |args| args.buffer_offset = u64::MAX - 0xfff),
            INVAL,
            &["buffer end exceeds buffer size. 0xfffffffffffff000 + 0x4000 > 0x4000"],
        ),
        (
            "MAPPING_MODIFY: no kind at all",
            |bench| modify(bench, |args| args.incompr_kind = KIND_INVALID),
            INVAL,
            &["both compr_kind and incompr_kind are invalid"],
        ),
        (
            "MAPPING_MODIFY: a compressible kind alone",
            |bench| modify(bench, |args| (args.compr_kind, args.incompr_kind) = (8, KIND_INVALID)),
            INVAL,
            &["invalid incompr_kind specified"],
        ),
        ("MAPPING_MODIFY: all of it", |bench| modify(bench, |args| args.compr_kind = 8), Ok(0), &[]),
    ]);
}
