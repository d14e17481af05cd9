//! SETUP_BIND and its requirements.

use super::{CLOSED, large, setup_with};
use crate::support::rules::*;
use crate::support::*;
use kernel_door::DoorFd;
use nvgpu_sys::channel::{self, SetupBind, SetupBindFlags};
use nvgpu_sys::ctrl::GpuFlags;
use orin_sim::Config;

/// SETUP_BIND of a bound channel with valid arguments that `change` makes invalid.
fn spoiled(bench: &Bench, change: impl FnOnce(&mut SetupBind)) -> Answer {
    let (_space, _tsg, channel) = bench.bound();
    setup_with(bench, &channel, change)
}

fn alloc_ring(bench: &Bench, fd: &DoorFd, num_entries: u32, flags: u32) -> Answer {
    if bench.release < Release::R39_2 {
        let mut args = channel::AllocGpfifoEx { num_entries, flags, ..Default::default() };
        return channel::ALLOC_GPFIFO_EX.send(fd, &mut args);
    }
    let mut args = channel::AllocGpfifoExR39 { num_entries, flags, ..Default::default() };
    let result = channel::ALLOC_GPFIFO_EX_R39.send(fd, &mut args);
    assert_eq!(args.hw_channel_id, if result.is_ok() { 511 } else { 0 });
    result
}

pub(crate) const SETUP: &[Rule] = &[
    ("6.3: a bad number of entries wins over a missing address space", INVAL, &[], |bench| {
        setup_with(bench, &bench.channel(), |args| args.num_gpfifo_entries = 6)
    }),
    ("6.3: 2 entries are too few for a kernel-mode ring", INVAL, &[], |bench| {
        spoiled(bench, |args| (args.num_gpfifo_entries, args.flags) = (2, 0))
    }),
    ("6.3: 0 entries", INVAL, &[], |bench| spoiled(bench, |args| args.num_gpfifo_entries = 0)),
    (
        "6.3: 2^28 entries are allowed, but need a large enough ring",
        INVAL,
        &["Usermode buffer alloc failed", "fail"],
        |bench| spoiled(bench, |args| args.num_gpfifo_entries = 1 << 28),
    ),
    (
        "6.3: a missing address space wins over a missing TSG",
        INVAL,
        &["not bound to an address space at time of setup_bind"],
        |bench| setup_with(bench, &bench.channel(), |_| ()),
    ),
    (
        "6.3: a missing TSG wins over the watchdog",
        INVAL,
        &["not bound to tsg at time of setup_bind"],
        |bench| {
            let (space, channel) = (bench.space(), bench.channel());
            bind_space(&space, &channel).unwrap();
            setup_with(bench, &channel, |_| ())
        },
    ),
    (
        "6.3: a ring wins over USERMODE without DETERMINISTIC",
        EXIST,
        &["channel 511 : usermode buffers allocated"],
        |bench| {
            let (_space, _tsg, channel) = bench.bound();
            setup_with(bench, &channel, |_| ()).unwrap();
            let usermode = SetupBindFlags::USERMODE_SUPPORT.bits();
            setup_with(bench, &channel, |args| args.flags = usermode)
        },
    ),
    ("6.3: a bad number of entries wins over a ring", INVAL, &[], |bench| {
        let (_space, _tsg, channel) = bench.bound();
        setup_with(bench, &channel, |_| ()).unwrap();
        setup_with(bench, &channel, |args| args.num_gpfifo_entries = 1)
    }),
    (
        "6.3: the kernel's ring wins over the watchdog",
        EXIST,
        &["channel 511 :gpfifo already allocated"],
        |bench| {
            let (_space, _tsg, channel) = bench.bound();
            setup_with(bench, &channel, |args| args.flags = 0).unwrap();
            wdt(&channel, channel::WDT_ENABLE).unwrap();
            setup_with(bench, &channel, |_| ())
        },
    ),
    (
        "6.3: DETERMINISTIC with the default watchdog",
        INVAL,
        &["deterministic is not compatible with watchdog"],
        |bench| {
            let (space, tsg, channel) = (bench.space(), bench.tsg(), bench.channel());
            bind_space(&space, &channel).unwrap();
            bind_tsg(&tsg, &channel, 0).unwrap();
            setup_with(bench, &channel, |args| args.gpfifo_dmabuf_fd = 0)
        },
    ),
    (
        "6.3: USERMODE without DETERMINISTIC wins over descriptors of 0, and over the watchdog",
        INVAL,
        &["need deterministic for usermode submit"],
        |bench| {
            let (_space, _tsg, channel) = bench.bound();
            wdt(&channel, channel::WDT_ENABLE).unwrap();
            setup_with(bench, &channel, |args| {
                (args.flags, args.userd_dmabuf_fd) = (SetupBindFlags::USERMODE_SUPPORT.bits(), 0);
            })
        },
    ),
    ("6.3: flags without meaning are ignored, and VPR is supported", Ok(0), &[], |bench| {
        spoiled(bench, |args| args.flags = USERMODE | 1 | 4 | 16 | 0x8000_0000)
    }),
    (
        "6.3: a descriptor of 0 wins over an offset",
        INVAL,
        &["Usermode buffer alloc failed", "fail"],
        |bench| spoiled(bench, |args| (args.userd_dmabuf_fd, args.gpfifo_dmabuf_offset) = (0, 8)),
    ),
    (
        "6.3: a descriptor of 0 for USERD wins over a closed one for the ring",
        INVAL,
        &["Usermode buffer alloc failed", "fail"],
        |bench| spoiled(bench, |args| (args.userd_dmabuf_fd, args.gpfifo_dmabuf_fd) = (0, CLOSED)),
    ),
    (
        "6.3: an offset wins over a closed descriptor",
        INVAL,
        &["Usermode buffer alloc failed", "fail"],
        |bench| spoiled(bench, |args| (args.userd_dmabuf_offset, args.gpfifo_dmabuf_fd) = (1, CLOSED)),
    ),
    (
        "6.3: the ring's descriptor is checked before USERD's",
        INVAL,
        &["Usermode buffer alloc failed", "fail"],
        |bench| {
            let other = bench.ctrl.raw();
            spoiled(bench, |args| (args.gpfifo_dmabuf_fd, args.userd_dmabuf_fd) = (other, CLOSED))
        },
    ),
    ("6.3: a negative descriptor is not open", BADF, &["Usermode buffer alloc failed", "fail"], |bench| {
        spoiled(bench, |args| args.gpfifo_dmabuf_fd = -1)
    }),
    (
        "6.3: a ring without memory wins over its length",
        INVAL,
        &[
            "Failed to map attachment (err = -22)!",
            "Failed to pin dma_buf!",
            "Usermode buffer alloc failed",
            "fail",
        ],
        |bench| {
            let bare = bench.export(bench.create(64));
            spoiled(bench, |args| args.gpfifo_dmabuf_fd = bare.raw())
        },
    ),
    (
        "6.3: a ring that is too short wins over a closed descriptor for USERD",
        INVAL,
        &["Usermode buffer alloc failed", "fail"],
        |bench| spoiled(bench, |args| (args.num_gpfifo_entries, args.userd_dmabuf_fd) = (1024, CLOSED)),
    ),
    (
        "6.3: a full kernel area wins over a closed descriptor for USERD",
        NOMEM,
        &["Usermode buffer alloc failed", "fail"],
        |bench| {
            let ring = large(bench, 5 << 30);
            spoiled(bench, |args| (args.gpfifo_dmabuf_fd, args.userd_dmabuf_fd) = (ring.raw(), CLOSED))
        },
    ),
    (
        "6.3: USERD without memory",
        INVAL,
        &[
            "Failed to map attachment (err = -22)!",
            "Failed to pin dma_buf!",
            "Usermode buffer alloc failed",
            "fail",
        ],
        |bench| {
            let bare = bench.export(bench.create(4096));
            spoiled(bench, |args| args.userd_dmabuf_fd = bare.raw())
        },
    ),
    (
        "6.3: a failed attempt leaks no addresses and can be repeated",
        Ok(0),
        &["Usermode buffer alloc failed", "fail"],
        |bench| {
            let (_space, _tsg, channel) = bench.bound();
            let failed = setup_with(bench, &channel, |args| args.userd_dmabuf_fd = CLOSED);
            assert_eq!(failed, BADF);
            setup_with(bench, &channel, |_| ()).unwrap();
            let mut point = channel::GetUserSyncpoint::default();
            let result = channel::GET_USER_SYNCPOINT.send(&channel, &mut point);
            assert_eq!(point.gpu_va, 0xff_ffe1_0000, "behind the one ring");
            result
        },
    ),
    (
        "6.3: ALLOC_GPFIFO_EX has the same checks for a kernel-mode ring",
        EXIST,
        &["deterministic is not compatible with watchdog", "channel 511 :gpfifo already allocated"],
        |bench| {
            let (_space, _tsg, channel) = bench.bound();
            let alloc = |num_entries, flags| alloc_ring(bench, &channel, num_entries, flags);
            wdt(&channel, channel::WDT_ENABLE).unwrap();
            assert_eq!(alloc(3, 2), INVAL);
            assert_eq!(alloc(4, 2), INVAL);
            assert_eq!(alloc(4, 8), Ok(0), "USERMODE is no flag of this request");
            alloc(4, 0)
        },
    ),
    ("6.3: 2^29 entries", INVAL, &[], |bench| spoiled(bench, |args| args.num_gpfifo_entries = 1 << 29)),
    ("6.3: 2 entries", Ok(0), &[], |bench| spoiled(bench, |args| args.num_gpfifo_entries = 2)),
    ("6.3: a ring of 0", INVAL, &["Usermode buffer alloc failed", "fail"], |bench| {
        spoiled(bench, |args| args.gpfifo_dmabuf_fd = 0)
    }),
    ("6.3: USERD of 0", INVAL, &["Usermode buffer alloc failed", "fail"], |bench| {
        spoiled(bench, |args| args.userd_dmabuf_fd = 0)
    }),
    ("6.3: an offset of the ring", INVAL, &["Usermode buffer alloc failed", "fail"], |bench| {
        spoiled(bench, |args| args.gpfifo_dmabuf_offset = 8)
    }),
    ("6.3: USERD that is closed", BADF, &["Usermode buffer alloc failed", "fail"], |bench| {
        spoiled(bench, |args| args.userd_dmabuf_fd = CLOSED)
    }),
    ("6.3: USERD that is not a dma-buf", INVAL, &["Usermode buffer alloc failed", "fail"], |bench| {
        spoiled(bench, |args| args.userd_dmabuf_fd = bench.ctrl.raw())
    }),
    ("6.3: reserved words are ignored", Ok(0), &[], |bench| {
        spoiled(bench, |args| (args.reserved, args.padding) = ([7; 9], 7))
    }),
    ("6.3: ALLOC_GPFIFO_EX of 2 entries", INVAL, &[], |bench| alloc_ring(bench, &bench.bound().2, 2, 0)),
];

#[test]
fn protected_memory_has_to_be_supported() {
    let mut config = Config::default();
    config.characteristics.flags &= !GpuFlags::SUPPORT_VPR.bits();
    let bench = Bench::with(config);
    let (_space, _tsg, channel) = bench.bound();
    let vpr = USERMODE | SetupBindFlags::VPR_ENABLED.bits();
    let result = setup_with(&bench, &channel, |args| (args.flags, args.gpfifo_dmabuf_fd) = (vpr, 0));
    assert_eq!(result, INVAL);
    assert_eq!(messages(&bench), [""; 0], "it wins over the descriptor");
    assert_eq!(setup_with(&bench, &channel, |_| ()), Ok(0));
}
