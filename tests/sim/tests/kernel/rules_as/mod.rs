//! Rules of address spaces, row by row: refusals, their errno and precedence, and the kernel log.

pub(crate) mod mapping;
pub(crate) mod remap;
pub(crate) mod reservations;

use crate::support::rules::*;
use crate::support::*;
use kernel_door::DoorFd;
use nvgpu_sys::address_space::{self as space, KIND_INVALID, MapBufferEx, MapBufferFlags, code};
use zerocopy::IntoBytes;

const FIXED: u32 = MapBufferFlags::FIXED_OFFSET.bits();

pub(crate) const NODE: &[Rule] = &[
    ("pre-checks: another family is EINVAL even with a bad address", INVAL, &[], |bench| {
        send_at(&bench.space(), 0xc028_4707, NOWHERE)
    }),
    ("pre-checks: number 0", INVAL, &[], |bench| send_at(&bench.space(), 0xc028_4100, NOWHERE)),
    ("pre-checks: a bad address wins over an unknown code", FAULT, &[], |bench| {
        send_at(&bench.space(), 0xc010_4104, NOWHERE)
    }),
    ("pre-checks: a code of the wrong size", NOTTY, &[], |bench| {
        send(&bench.space(), 0xc020_4107, &mut [0; 32])
    }),
    ("pre-checks: a code of the wrong direction", NOTTY, &[], |bench| {
        send(&bench.space(), 0x4028_4107, &mut [0; 40])
    }),
    ("pre-checks: without a direction the address is not checked", NOTTY, &[], |bench| {
        send_at(&bench.space(), 0x0028_4107, NOWHERE)
    }),
    ("copy-out: this node returns EFAULT, and the reservation remains", FAULT, &[], |bench| {
        let space = bench.space();
        let args = space::AllocSpace { pages: 1, page_size: 4096, ..Default::default() };
        let result = send_constant(&space, code::ALLOC_SPACE, args.as_bytes());
        assert_eq!(reserve(&space, 1, 0, 0), Ok(0xff_ffa0_1000), "the first page is taken");
        result
    }),
    ("quiesce: ENODEV wins over an unknown code", NODEV, &QUIESCE, |bench| {
        let space = bench.space();
        bench.orin.quiesce();
        send(&space, 0xc020_4109, &mut [0; 32])
    }),
    ("pre-checks: numbers without a request", NOTTY, &[], |bench| {
        let space = bench.space();
        assert_eq!(send(&space, 0xc008_4104, &mut [0; 8]), NOTTY);
        assert_eq!(send(&space, 0xc020_4109, &mut [0; 32]), NOTTY);
        send(&space, 0xc028_410a, &mut [0; 40])
    }),
];

/// A buffer without memory.
fn empty(bench: &Bench) -> u32 {
    // The descriptor stays open as long as the board exists.
    let fd = bench.export(bench.create(4096));
    let number = raw(&fd);
    core::mem::forget(fd);
    number
}

/// Sends unmaps and maps, given as addresses and counts.
fn batch(space: &DoorFd, unmaps: (u64, u32), maps: (u64, u32)) -> Answer {
    let mut args = space::MapBufferBatch {
        unmaps: unmaps.0,
        maps: maps.0,
        num_unmaps: unmaps.1,
        num_maps: maps.1,
        reserved: 0,
    };
    // SAFETY: the software kernel checks every address before it uses it.
    let result = unsafe { space::MAP_BUFFER_BATCH.send_pointing(space, &mut args) };
    assert_eq!((args.num_unmaps, args.num_maps), (unmaps.1, maps.1), "the counts never change");
    result
}

/// GET_VA_REGIONS into memory that is not accessible; the answer and the returned size.
fn va_regions(bench: &Bench, buf_size: u32) -> (Answer, u32) {
    let mut args = space::GetVaRegions { buf_addr: NOWHERE, buf_size, reserved: 0 };
    // SAFETY: the software kernel checks every address before it uses it.
    let result = unsafe { space::GET_VA_REGIONS.send_pointing(&bench.space(), &mut args) };
    (result, args.buf_size)
}

pub(crate) const OTHERS: &[Rule] = &[
    ("MAP_BUFFER_BATCH: too many maps win over an unreadable list of unmaps", INVAL, &[], |bench| {
        batch(&bench.space(), (NOWHERE, 1), (NOWHERE, 257))
    }),
    ("MAP_BUFFER_BATCH: empty lists need no address", Ok(0), &[], |bench| {
        batch(&bench.space(), (NOWHERE, 0), (NOWHERE, 0))
    }),
    (
        "MAP_BUFFER_BATCH: unmaps, and maps before the failing one, take effect",
        NOMEM,
        &["No comptags and no incompressible fallback kind"],
        |bench| {
            let space = bench.space();
            let buffer = bench.buffer(4096);
            let unmaps = [map(&space, &buffer).unwrap()];
            let bad = MapBufferEx { incompr_kind: KIND_INVALID, ..map_args(&buffer) };
            let cached = MapBufferEx { flags: MapBufferFlags::CACHEABLE.bits(), ..map_args(&buffer) };
            let maps = [map_args(&buffer), bad, cached];
            let result = batch(&space, (constant(unmaps.as_bytes()), 1), (constant(maps.as_bytes()), 3));
            assert_eq!(bench.orin.live().gpu_mappings, 1, "the first map");
            result
        },
    ),
    ("GET_VA_REGIONS: capacity 0 needs no address, and the size is returned", Ok(0), &[], |bench| {
        let (result, size) = va_regions(bench, 23);
        assert_eq!(size, 24);
        result
    }),
    ("BIND_CHANNEL: a closed descriptor is EINVAL as well", INVAL, &[], |bench| {
        space::BIND_CHANNEL.send(&bench.space(), &mut space::BindChannel { channel_fd: CLOSED })
    }),
    ("BIND_CHANNEL: already bound, to the same address space", INVAL, &[], |bench| {
        let (space, channel) = (bench.space(), bench.channel());
        bind_space(&space, &channel).unwrap();
        bind_space(&space, &channel)
    }),
    ("MAP_BUFFER_BATCH: too many unmaps", INVAL, &[], |bench| {
        batch(&bench.space(), (NOWHERE, 257), (NOWHERE, 0))
    }),
    ("MAP_BUFFER_BATCH: an unreadable list", FAULT, &[], |bench| {
        assert_eq!(batch(&bench.space(), (NOWHERE, 1), (NOWHERE, 0)), FAULT);
        batch(&bench.space(), (NOWHERE, 0), (NOWHERE, 1))
    }),
    ("GET_VA_REGIONS: an address that is not writable", FAULT, &[], |bench| va_regions(bench, 24).0),
];
