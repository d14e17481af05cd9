//! Reserved addresses.

use super::FIXED;
use crate::support::rules::*;
use crate::support::*;
use kernel_door::DoorFd;
use nvgpu_sys::address_space::{self as space, MapBufferEx};

fn alloc_space(space: &DoorFd, pages: u64, page_size: u32, flags: u32, offset: u64) -> Answer {
    let mut args = space::AllocSpace { pages, page_size, flags, offset, padding: [0; 2] };
    let result = space::ALLOC_SPACE.send(space, &mut args);
    if result.is_err() {
        assert_eq!(args.offset, offset, "nothing is copied out after an error");
    }
    result
}

pub(crate) const RESERVATIONS: &[Rule] = &[
    ("ALLOC_SPACE: the page size is checked before the number of pages", INVAL, &[], |bench| {
        alloc_space(&bench.space(), 0, 65_536, 0, 0)
    }),
    ("ALLOC_SPACE: page size 0", INVAL, &[], |bench| alloc_space(&bench.space(), 1, 0, 0, 0)),
    ("ALLOC_SPACE: the page size is checked before the range", INVAL, &[], |bench| {
        alloc_space(&bench.space(), 1, 8192, 1, LOGGED_END)
    }),
    ("ALLOC_SPACE: an overlap by one page", NOMEM, &[], |bench| {
        let space = bench.space();
        reserve(&space, 2, 1, LOGGED_START + 0x1000).unwrap();
        alloc_space(&space, 2, 4096, 1, LOGGED_START)
    }),
    ("ALLOC_SPACE: a range across the end of the user area", NOMEM, &[], |bench| {
        alloc_space(&bench.space(), 2, 4096, 1, LOGGED_END - 4096)
    }),
    ("ALLOC_SPACE: without FIXED the offset is ignored", Ok(0), &[], |bench| {
        alloc_space(&bench.space(), 1, 4096, 0, 7)
    }),
    ("ALLOC_SPACE: an automatic mapping occupies its range", NOMEM, &[], |bench| {
        let space = bench.space();
        let va = map(&space, &bench.buffer(4096)).unwrap();
        alloc_space(&space, 1, 4096, 1, va)
    }),
    ("FREE_SPACE: an address in the middle frees all of it", Ok(0), &[], |bench| {
        let space = bench.space();
        let area = reserve(&space, 4, 0, 0).unwrap();
        let mut args = space::FreeSpace { offset: area + 0x2fff, ..Default::default() };
        space::FREE_SPACE.send(&space, &mut args).unwrap();
        alloc_space(&space, 4, 4096, 1, area)
    }),
    ("FREE_SPACE: the address of an automatic mapping is not a reservation", Ok(0), &[], |bench| {
        let space = bench.space();
        let va = map(&space, &bench.buffer(4096)).unwrap();
        let mut args = space::FreeSpace { offset: va, ..Default::default() };
        let result = space::FREE_SPACE.send(&space, &mut args);
        assert_eq!(bench.orin.live().gpu_mappings, 1);
        result
    }),
    (
        "FREE_SPACE: a mapping loses exactly one reference",
        Ok(0),
        &["sync-unmap failed on 0xffffa00000", "2 references remaining on 0xffffa00000"],
        |bench| {
            let space = bench.space();
            let area = reserve(&space, 1, 0, 0).unwrap();
            let buffer = bench.buffer(4096);
            let mut args = MapBufferEx { flags: FIXED, offset: area, ..map_args(&buffer) };
            for _ in 0..3 {
                space::MAP_BUFFER_EX.send(&space, &mut args).unwrap();
            }
            for _ in 0..2 {
                let mut free = space::FreeSpace { offset: area, ..Default::default() };
                space::FREE_SPACE.send(&space, &mut free).unwrap();
                assert_eq!(bench.orin.live().gpu_mappings, 1, "two references are left");
                reserve(&space, 1, 1, area).unwrap();
            }
            unmap(&space, area);
            unmap(&space, area);
            assert_eq!(bench.orin.live().gpu_mappings, 0);
            Ok(0)
        },
    ),
    ("ALLOC_SPACE: no pages", NOMEM, &[], |bench| alloc_space(&bench.space(), 0, 4096, 0, 0)),
    ("ALLOC_SPACE: an unaligned address", NOMEM, &[], |bench| {
        alloc_space(&bench.space(), 1, 4096, 1, LOGGED_START + 1)
    }),
    ("ALLOC_SPACE: below the user area", NOMEM, &[], |bench| {
        alloc_space(&bench.space(), 1, 4096, 1, LOGGED_START - 4096)
    }),
    ("ALLOC_SPACE: beyond the user area", NOMEM, &[], |bench| {
        alloc_space(&bench.space(), 1, 4096, 1, LOGGED_END)
    }),
    ("ALLOC_SPACE: more than is free", NOMEM, &[], |bench| {
        alloc_space(&bench.space(), (1 << 27) + 1, 4096, 0, 0)
    }),
    ("ALLOC_SPACE: unknown flags are ignored", Ok(0), &[], |bench| {
        alloc_space(&bench.space(), 1, 4096, 0xfff0, 0)
    }),
    ("FREE_SPACE: an address outside every reservation", Ok(0), &[], |bench| {
        space::FREE_SPACE.send(&bench.space(), &mut space::FreeSpace { offset: 7, ..Default::default() })
    }),
    ("UNMAP_BUFFER: an unknown address", Ok(0), &[], |bench| {
        space::UNMAP_BUFFER.send(&bench.space(), &mut space::UnmapBuffer { offset: 0x1234_5000 })
    }),
    ("UNMAP_BUFFER: an address inside a mapping has no effect", Ok(0), &[], |bench| {
        let space = bench.space();
        let va = map(&space, &bench.buffer(8192)).unwrap();
        unmap(&space, va + 4096);
        assert_eq!(bench.orin.live().gpu_mappings, 1);
        Ok(0)
    }),
];
