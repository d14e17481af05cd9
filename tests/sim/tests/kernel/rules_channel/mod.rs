//! Rules of channels, one row each. If a row violates two rules, it names the one that takes precedence.

pub(crate) mod contexts;
pub(crate) mod control;
pub(crate) mod setup;

use crate::support::rules::*;
use crate::support::*;
use kernel_door::{DoorFd, Errno};
use nvgpu_sys::channel::{self, SetupBind};
use nvgpu_sys::nvmap;
use orin_sim::Config;

const CLOSED: i32 = 0x7fff_0000;

fn host_line(code: &str) -> String {
    format!("gk20a 17000000.gpu: gk20a_channel_ioctl: failed to host gk20a for ioctl cmd: {code}")
}

fn setup_with(bench: &Bench, fd: &DoorFd, change: impl FnOnce(&mut SetupBind)) -> Answer {
    let (ring, userd) = (bench.buffer(4096), bench.buffer(4096));
    let mut args = SetupBind { work_submit_token: 77, ..setup_args(&ring, &userd, 512) };
    change(&mut args);
    let result = channel::SETUP_BIND.send(fd, &mut args);
    if result.is_err() {
        assert_eq!(args.work_submit_token, 77, "nothing is copied out on failure");
    }
    result
}

/// A dma-buf of `bytes`, including sizes that do not fit 32 bits.
fn large(bench: &Bench, bytes: u64) -> DoorFd {
    let mut args = nvmap::CreateHandle64 { size_or_handle: bytes };
    nvmap::CREATE_64.send(&bench.nvmap, &mut args).unwrap();
    // CAST: the number is the low half.
    let handle = args.size_or_handle as u32;
    bench.alloc(handle);
    let fd = bench.export(handle);
    bench.free(handle);
    fd
}

#[test]
fn requests_need_power_as_specified() {
    let bench = Bench::new();
    let (_space, tsg, channel) = bench.bound();
    let unbound = bench.channel();
    bench.orin.quiesce();
    let mut expected: Vec<String> = QUIESCE.map(str::to_owned).into();
    let bad_setup = setup_with(&bench, &unbound, |args| args.num_gpfifo_entries = 3);
    assert_eq!(bad_setup, NODEV, "power wins over everything");
    expected.push(host_line("0xc0684880"));
    assert_eq!(object(&unbound, 0), NODEV);
    expected.push(host_line("0xc010486c"));
    let powered = [
        (0x4020_487b, 32),
        (0xc010_486e, 16),
        (0xc018_486f, 24),
        (0x4871, 0),
        (0x4872, 0),
        (0x4873, 0),
        (0x4874, 0),
        (0x4008_487a, 8),
        (0x8010_487e, 16),
    ];
    for (code, bytes) in powered {
        assert_eq!(send(&unbound, code, &mut vec![0; bytes]), NODEV, "{code:#x}");
        expected.push(host_line(&format!("{code:#x}")));
    }
    assert_eq!(messages(&bench), expected);
    // The others behave as usual.
    assert!(timed_out(&channel));
    assert_eq!(wdt(&channel, channel::WDT_DISABLE), Ok(0));
    assert_eq!(wdt(&channel, 3), INVAL);
    assert_eq!(channel::SET_NVMAP_FD.send(&channel, &mut channel::SetNvmapFd { fd: 1 }), Ok(0));
    assert_eq!(channel::SET_TIMEOUT.send(&channel, &mut channel::SetTimeout { timeout: 0 }), Ok(0));
    assert_eq!(send(&channel, 0x4008_4878, &mut [0; 8]), NOTTY);
    assert_eq!(send(&channel, 0x4004_487f, &mut [0; 4]), PERM);
    assert_eq!(send(&channel, 0xc018_486b, &mut [0; 24]), TIMEDOUT, "it is out of service");
    drop(tsg);
    assert_eq!(messages(&bench), expected);
}

pub(crate) const NODE: &[Rule] = &[
    ("1.2: a bad address wins over an unknown request", FAULT, &[], |bench| {
        send_at(&bench.channel(), 0xc010_4875, 8)
    }),
    ("1.2: a number above 128, and an argument above 104 bytes", INVAL, &[], |bench| {
        let channel = bench.channel();
        assert_eq!(send(&channel, 0x4881, &mut []), INVAL);
        send(&channel, 0xc069_4880, &mut [0; 105])
    }),
    ("1.4: a failed copy-out returns the positive number of bytes not copied", Ok(4), &[], |bench| {
        send_at(&bench.channel(), 0x8004_480c, constant(&[]))
    }),
    (
        "1.1: opening the node gives a channel; opening the TSG node, a TSG without control node",
        Ok(0),
        &[],
        |bench| {
            let open = |path| DoorFd::open(&bench.door, path, FLAGS).unwrap();
            let (space, tsg) = (bench.space(), open(c"/dev/nvgpu/igpu0/tsg"));
            let channels = [open(c"/dev/nvgpu/igpu0/channel"), open(c"/dev/nvhost-gpu")];
            for channel in &channels {
                bind_space(&space, channel).unwrap();
                bind_tsg(&tsg, channel, 0).unwrap();
            }
            assert_eq!(bench.share(&tsg, 1, 1), Err(Errno::INVAL));
            assert_eq!(bench.orin.live().tsgs, 1);
            assert_eq!(bench.door.open(c"/dev/nvhost-as-gpu", FLAGS), INVAL);
            object(&channels[0], 0xc7c0)
        },
    ),
    ("1.1: such opens need power", NODEV, &QUIESCE, |bench| {
        bench.orin.quiesce();
        assert_eq!(bench.door.open(c"/dev/nvhost-tsg-gpu", FLAGS), NODEV);
        bench.door.open(c"/dev/nvgpu/igpu0/channel", FLAGS)
    }),
    ("6.1: OPEN does not read the runlist", Ok(0), &[], |bench| {
        let channel = bench.channel();
        let mut args = channel::Open { channel_fd: 12_345 };
        let result = channel::OPEN.send(&channel, &mut args);
        let other = adopt(&bench.door, args.channel_fd);
        let (space, tsg) = (bench.space(), bench.tsg());
        bind_space(&space, &channel).unwrap();
        bind_space(&space, &other).unwrap();
        bind_tsg(&tsg, &channel, 0).unwrap();
        bind_tsg(&tsg, &other, 0).unwrap();
        result
    }),
    (
        "6.9: a syncpoint needs space in the kernel's area, and leaks none on failure",
        NOMEM,
        &["failed to map syncpt buffer", "failed to allocate syncpoint buffer"],
        |bench| {
            let (space, tsg, channel) = bench.bound();
            let ring = large(bench, 4 << 30);
            setup_with(bench, &channel, |args| args.gpfifo_dmabuf_fd = ring.raw()).unwrap();
            let other = join(bench, &space, &tsg, 0);
            let mut point = channel::GetUserSyncpoint::default();
            let result = channel::GET_USER_SYNCPOINT.send(&other, &mut point);
            assert_eq!(bench.orin.live().syncpoints, 0);
            result
        },
    ),
    ("6.1: EVENT_ID_CTRL", NOTTY, &[], |bench| send(&bench.channel(), 0xc010_4875, &mut [0; 16])),
    ("6.1: SET_RUNLIST_INTERLEAVE", NOTTY, &[], |bench| send(&bench.channel(), 0x4008_4878, &mut [0; 8])),
    ("6.1: another family", INVAL, &[], |bench| send(&bench.channel(), 0x4001, &mut [])),
    ("6.1: SET_NVMAP_FD takes any number", Ok(0), &[], |bench| {
        channel::SET_NVMAP_FD.send(&bench.channel(), &mut channel::SetNvmapFd { fd: 12_345 })
    }),
    ("6.14: SET_BOOSTED_CTX", INVAL, &[], |bench| {
        channel::SET_BOOSTED_CTX.send(&bench.bound().2, &mut channel::BoostedCtx::default())
    }),
    ("6.14: RESCHEDULE_RUNLIST, even with CAP_SYS_NICE", NOSYS, &[], |_| {
        let bench = Bench::with(Config { cap_sys_nice: true, ..Config::default() });
        channel::RESCHEDULE_RUNLIST.send(&bench.channel(), &mut channel::RescheduleRunlist { flags: 0 })
    }),
];
