//! Rules of TSGs, one row each. If a row violates two rules, it names the one that takes precedence.

use crate::support::rules::*;
use crate::support::*;
use kernel_door::DoorFd;
use nvgpu_sys::tsg;

const MISMATCH: &str = "channel VM does not match with subcontext VM";

fn sync_kind(bench: &Bench, kind: u32, as_fd: i32) -> Answer {
    let mut args = tsg::CreateSubcontext { kind, as_fd, veid: 77, ..Default::default() };
    let result = tsg::CREATE_SUBCONTEXT.send(&bench.tsg(), &mut args);
    assert_eq!(args.veid, 77, "nothing is copied out on failure");
    result
}

fn delete(tsg_fd: &DoorFd, veid: u32) -> Answer {
    tsg::DELETE_SUBCONTEXT.send(tsg_fd, &mut tsg::DeleteSubcontext { veid, reserved: 0 })
}

fn bind_by_number(tsg_fd: &DoorFd, fd: i32) -> Answer {
    tsg::BIND_CHANNEL.send(tsg_fd, &mut { fd })
}

fn unbind(tsg_fd: &DoorFd, fd: i32) -> Answer {
    tsg::UNBIND_CHANNEL.send(tsg_fd, &mut { fd })
}

/// A channel with an address space, and a TSG that it has not joined.
fn apart(bench: &Bench) -> (DoorFd, DoorFd, DoorFd) {
    let (space, tsg, channel) = (bench.space(), bench.tsg(), bench.channel());
    bind_space(&space, &channel).unwrap();
    (space, tsg, channel)
}

/// A TSG whose VEID 0 is in use without an address space.
fn poisoned(bench: &Bench) -> (DoorFd, DoorFd) {
    let (tsg, first) = (bench.tsg(), bench.channel());
    bind_tsg(&tsg, &first, 0).unwrap();
    (tsg, first)
}

pub(crate) const BINDING: &[Rule] = &[
    ("5.2: BIND_CHANNEL takes no power reference", Ok(0), &QUIESCE, |bench| {
        let (_space, tsg, channel) = apart(bench);
        bench.orin.quiesce();
        bench.orin.lock_scheduling(true);
        let result = bind_by_number(&tsg, channel.raw());
        assert_eq!(bind_by_number(&tsg, -1), INVAL);
        result
    }),
    ("5.3: a locked scheduler wins over power and over a bad descriptor", PERM, &QUIESCE, |bench| {
        let tsg = bench.tsg();
        bench.orin.lock_scheduling(true);
        bench.orin.quiesce();
        bind_tsg(&tsg, &bench.nvmap, 64)
    }),
    (
        "5.3: power wins over a bad descriptor",
        NODEV,
        &[QUIESCE[0], QUIESCE[1], "failed to power on gpu"],
        |bench| {
            let tsg = bench.tsg();
            bench.orin.quiesce();
            bind_tsg(&tsg, &bench.nvmap, 64)
        },
    ),
    ("5.3: a refused subcontext number is not stored in the channel", Ok(0), &[], |bench| {
        let (_space, tsg, channel) = apart(bench);
        assert_eq!(bind_tsg(&tsg, &channel, 64), INVAL);
        bind_by_number(&tsg, channel.raw())
    }),
    (
        "5.3: a subcontext number survives a failed bind",
        INVAL,
        &[MISMATCH, MISMATCH, "… on a board its close() now hangs for ever; use BIND_CHANNEL_EX"],
        |bench| {
            let (_space, tsg, channel) = apart(bench);
            assert_eq!(bind_tsg(&tsg, &channel, 5), INVAL);
            bind_by_number(&tsg, channel.raw())
        },
    ),
    (
        "5.3: so does the host engine, which is no longer 0 even on VEID 0",
        INVAL,
        &[MISMATCH, "Can't have Graphics in non-zero'th PBDMA", "Invalid class/veid/pbdma config"],
        |bench| {
            let (_space, tsg, channel) = apart(bench);
            assert_eq!(bind_tsg(&tsg, &channel, 5), INVAL);
            bind_tsg(&tsg, &channel, 0).unwrap();
            object(&channel, 0xc797)
        },
    ),
    (
        "5.3: a poisoned VEID 0 wins over a channel that is in a TSG",
        NOSPC,
        &["SYNC VEID not available"],
        |bench| {
            let (_space, _own, channel) = bench.bound();
            let (tsg, _first) = poisoned(bench);
            bind_tsg(&tsg, &channel, 0)
        },
    ),
    ("5.3: another address space wins over a channel that is in a TSG", INVAL, &[MISMATCH], |bench| {
        let (_space, _own, channel) = bench.bound();
        let (tsg, other) = (bench.tsg(), bench.space());
        subcontext(&tsg, &other, tsg::SUBCONTEXT_SYNC).unwrap();
        bind_tsg(&tsg, &channel, 0)
    }),
    (
        "5.3: a channel in a TSG wins over another runlist, and still claims VEID 0",
        NOSPC,
        &["SYNC VEID not available"],
        |bench| {
            let (space, _own, channel) = bench.bound();
            let tsg = bench.tsg();
            assert_eq!(bind_tsg(&tsg, &channel, 0), INVAL);
            subcontext(&tsg, &space, tsg::SUBCONTEXT_SYNC).map(|_| 0)
        },
    ),
    (
        "5.3: 128 channels win over another runlist",
        INVAL,
        &["TSG 0 trying to bind more than supported channels (128)"],
        |bench| {
            let (space, tsg) = (bench.space(), bench.tsg());
            let _members: Vec<DoorFd> = (0..128).map(|_| join(bench, &space, &tsg, 0)).collect();
            let copy = bench.try_channel(1).unwrap();
            bind_space(&space, &copy).unwrap();
            bind_tsg(&tsg, &copy, 0)
        },
    ),
    (
        "5.3: all channels must be on one runlist; the line names both",
        INVAL,
        &["runlist_id mismatch ch[1] tsg[0]"],
        |bench| {
            let (space, tsg, _channel) = bench.bound();
            let copy = bench.try_channel(1).unwrap();
            bind_space(&space, &copy).unwrap();
            bind_tsg(&tsg, &copy, 0)
        },
    ),
    ("5.2: a negative descriptor", INVAL, &[], |bench| bind_by_number(&bench.tsg(), -1)),
    ("5.2: a descriptor that is not a channel", INVAL, &[], |bench| {
        bind_by_number(&bench.tsg(), bench.ctrl.raw())
    }),
    ("5.3: a descriptor that is not a channel", INVAL, &[], |bench| bind_tsg(&bench.tsg(), &bench.nvmap, 0)),
    ("5.3: subcontext 64", INVAL, &[], |bench| bind_tsg(&bench.tsg(), &bench.channel(), 64)),
];

pub(crate) const SUBCONTEXTS: &[Rule] = &[
    ("5.4: an unknown kind wins over a bad address space", INVAL, &["Invalid subcontext type 2"], |bench| {
        sync_kind(bench, 2, -1)
    }),
    (
        "5.4: the descriptor must be an address space",
        INVAL,
        &["Invalid VM (fd = -1) specified for subcontext"],
        |bench| sync_kind(bench, tsg::SUBCONTEXT_ASYNC, -1),
    ),
    ("5.4: SYNC exists once", NOSPC, &["SYNC VEID not available"], |bench| {
        let (space, tsg) = (bench.space(), bench.tsg());
        assert_eq!(subcontext(&tsg, &space, tsg::SUBCONTEXT_SYNC), Ok(0));
        subcontext(&tsg, &space, tsg::SUBCONTEXT_SYNC).map(|_| 0)
    }),
    (
        "5.4: ASYNC takes the lowest free number from 1; DELETE frees a number, used or not",
        Ok(0),
        &[],
        |bench| {
            let (space, tsg) = (bench.space(), bench.tsg());
            let next = || subcontext(&tsg, &space, tsg::SUBCONTEXT_ASYNC).unwrap();
            assert_eq!([next(), next(), next()], [1, 2, 3]);
            assert_eq!(delete(&tsg, 2), Ok(0));
            assert_eq!(next(), 2);
            delete(&tsg, 40)
        },
    ),
    ("5.4: DELETE of number 64", INVAL, &[], |bench| delete(&bench.tsg(), 64)),
    ("5.4: DELETE while a channel is on it", INVAL, &[], |bench| {
        let (_space, tsg, _channel) = bench.bound();
        delete(&tsg, 0)
    }),
    ("5.4: a failed bind to another number leaves the channel on its old one", INVAL, &[MISMATCH], |bench| {
        let (_space, tsg, channel) = bench.bound();
        assert_eq!(bind_tsg(&tsg, &channel, 5), INVAL);
        delete(&tsg, 0)
    }),
    ("5.4: one TSG serves several address spaces", Ok(0), &[], |bench| {
        let (_first, tsg, _channel) = bench.bound();
        let second = bench.space();
        let veid = subcontext(&tsg, &second, tsg::SUBCONTEXT_ASYNC).unwrap();
        let other = join(bench, &second, &tsg, veid);
        object(&other, 0xc7c0)
    }),
    ("5.4: a channel on VEID 0 takes SYNC", NOSPC, &["SYNC VEID not available"], |bench| {
        let (space, tsg, _channel) = bench.bound();
        subcontext(&tsg, &space, tsg::SUBCONTEXT_SYNC).map(|_| 0)
    }),
    ("5.4: 64 ASYNC, the last of them 0", NOSPC, &["ASYNC & SYNC VEIDs not available"], |bench| {
        let (space, tsg) = (bench.space(), bench.tsg());
        let next = || subcontext(&tsg, &space, tsg::SUBCONTEXT_ASYNC);
        (1..64).chain([0]).for_each(|veid| assert_eq!(next(), Ok(veid)));
        next().map(|_| 0)
    }),
];

pub(crate) const UNBINDING: &[Rule] = &[
    ("5.5: a negative descriptor wins over power", INVAL, &QUIESCE, |bench| {
        let tsg = bench.tsg();
        bench.orin.quiesce();
        unbind(&tsg, -1)
    }),
    (
        "5.5: power wins over a descriptor that is not a channel",
        NODEV,
        &[QUIESCE[0], QUIESCE[1], "failed to host gk20a for ioctl cmd: 0x40045402"],
        |bench| {
            let tsg = bench.tsg();
            bench.orin.quiesce();
            unbind(&tsg, bench.ctrl.raw())
        },
    ),
    ("5.5: a channel of another TSG wins over busy hardware", INVAL, &[], |bench| {
        let (_space, _own, channel) = bench.bound();
        let other = bench.tsg();
        stalled(bench, || unbind(&other, channel.raw()))
    }),
    ("5.5: busy hardware can be retried, and the channel stays in service meanwhile", AGAIN, &[], |bench| {
        let (_space, tsg, channel) = bench.bound();
        bench.orin.stall_engines(true);
        let result = unbind(&tsg, channel.raw());
        assert!(!timed_out(&channel));
        bench.orin.stall_engines(false);
        assert_eq!(unbind(&tsg, channel.raw()), Ok(0));
        assert!(timed_out(&channel));
        result
    }),
    ("5.5: an unbound channel is in no TSG", INVAL, &[], |bench| {
        let (_space, tsg, channel) = bench.bound();
        unbind(&tsg, channel.raw()).unwrap();
        unbind(&tsg, channel.raw())
    }),
    ("5.5: it joins another formally, and stays out of service (inferred)", Ok(0), &[], |bench| {
        let (_space, tsg, channel) = bench.bound();
        unbind(&tsg, channel.raw()).unwrap();
        let result = bind_tsg(&bench.tsg(), &channel, 0);
        assert!(timed_out(&channel));
        result
    }),
];

fn event(tsg_fd: &DoorFd, cmd: u32, event_id: u32) -> Answer {
    let mut args = tsg::EventIdCtrl { cmd, event_id, event_fd: 77, ..Default::default() };
    let result = tsg::EVENT_ID_CTRL.send(tsg_fd, &mut args);
    match result {
        Ok(_) => drop(adopt(tsg_fd.door(), args.event_fd)),
        Err(_) => assert_eq!(args.event_fd, 77),
    }
    result
}

pub(crate) const EVENTS: &[Rule] = &[
    (
        "5.6: PREEMPT waits until the TSG is off the hardware",
        TIMEDOUT,
        &["preempt timed out for tsgid: 0, ctxsw timeout will trigger recovery if needed"],
        |bench| {
            let (_space, tsg, _channel) = bench.bound();
            stalled(bench, || tsg::PREEMPT.send(&tsg, 0))
        },
    ),
    ("5.6: a TSG without channels is off the hardware", Ok(0), &[], |bench| {
        stalled(bench, || tsg::PREEMPT.send(&bench.tsg(), 0))
    }),
    (
        "5.6: ENABLE and DISABLE need power",
        NODEV,
        &[
            QUIESCE[0],
            QUIESCE[1],
            "failed to host gk20a for ioctl cmd: 0x5404",
            "failed to host gk20a for ioctl cmd: 0x5403",
        ],
        |bench| {
            let tsg = bench.tsg();
            assert_eq!(tsg::DISABLE.send(&tsg, 0), Ok(0));
            bench.orin.quiesce();
            assert_eq!(tsg::DISABLE.send(&tsg, 0), NODEV);
            tsg::ENABLE.send(&tsg, 0)
        },
    ),
    ("5.7: an unknown event wins over an unknown command", INVAL, &[], |bench| event(&bench.tsg(), 0, 6)),
    ("5.7: an unknown command", INVAL, &["unrecognized tsg event id cmd: 0x2"], |bench| {
        event(&bench.tsg(), 2, 5)
    }),
    ("5.7: an event descriptor can be polled, but not read", INVAL, &[], |bench| {
        let mut args = tsg::EventIdCtrl { cmd: tsg::EVENT_CMD_ENABLE, event_id: 2, ..Default::default() };
        tsg::EVENT_ID_CTRL.send(&bench.tsg(), &mut args).unwrap();
        let fd = adopt(&bench.door, args.event_fd);
        fd.read(&mut [0; 8]).map(|_| 0)
    }),
    ("5.7: events need no power", Ok(0), &QUIESCE, |bench| {
        let tsg = bench.tsg();
        bench.orin.quiesce();
        event(&tsg, tsg::EVENT_CMD_ENABLE, 5)
    }),
];

fn interleave(tsg_fd: &DoorFd, level: u32) -> Answer {
    tsg::SET_RUNLIST_INTERLEAVE.send(tsg_fd, &mut tsg::RunlistInterleave { level, reserved: 0 })
}

fn timeslice(tsg_fd: &DoorFd) -> u32 {
    let mut args = tsg::Timeslice::default();
    tsg::GET_TIMESLICE.send(tsg_fd, &mut args).unwrap();
    args.timeslice_us
}

fn set_timeslice(tsg_fd: &DoorFd, timeslice_us: u32) -> Answer {
    tsg::SET_TIMESLICE.send(tsg_fd, &mut tsg::Timeslice { timeslice_us, reserved: 0 })
}

fn domain(tsg_fd: &DoorFd, last_reserved: u64) -> Answer {
    let mut args = tsg::BindSchedulingDomain { domain_fd: -1, ..Default::default() };
    args.reserved[2] = last_reserved;
    tsg::BIND_SCHEDULING_DOMAIN.send(tsg_fd, &mut args)
}

pub(crate) const SCHEDULING: &[Rule] = &[
    ("5.8: interleave levels are 0 to 2", INVAL, &[], |bench| {
        let tsg = bench.tsg();
        (0..3).for_each(|level| assert_eq!(interleave(&tsg, level), Ok(0)));
        interleave(&tsg, 3)
    }),
    ("5.8: a locked scheduler wins over a bad level (inferred)", PERM, &[], |bench| {
        bench.orin.lock_scheduling(true);
        interleave(&bench.tsg(), 3)
    }),
    ("5.8: a refused time slice leaves the old one", INVAL, &[], |bench| {
        let tsg = bench.tsg();
        assert_eq!(timeslice(&tsg), 1024);
        for us in [1000, 50_000] {
            assert_eq!(set_timeslice(&tsg, us), Ok(0));
            assert_eq!(timeslice(&tsg), us);
        }
        let result = set_timeslice(&tsg, 999);
        assert_eq!(timeslice(&tsg), 50_000);
        result
    }),
    (
        "5.8: GET_TIMESLICE needs neither power nor the lock",
        NODEV,
        &[QUIESCE[0], QUIESCE[1], "failed to power on gpu"],
        |bench| {
            let tsg = bench.tsg();
            bench.orin.quiesce();
            bench.orin.lock_scheduling(true);
            assert_eq!(timeslice(&tsg), 1024);
            bench.orin.lock_scheduling(false);
            set_timeslice(&tsg, 999)
        },
    ),
    ("5.8: a reserved word of BIND_SCHEDULING_DOMAIN wins over a bad descriptor", INVAL, &[], |bench| {
        domain(&bench.tsg(), 1)
    }),
    ("5.8: a descriptor that is not a domain", NOENT, &[], |bench| domain(&bench.tsg(), 0)),
    ("5.8: a time slice above 50 ms", INVAL, &[], |bench| set_timeslice(&bench.tsg(), 50_001)),
    ("5.8: a time slice while the scheduler is locked", PERM, &[], |bench| {
        bench.orin.lock_scheduling(true);
        set_timeslice(&bench.tsg(), 2000)
    }),
];

fn sm_state(tsg_fd: &DoorFd, sm_id: u32, record_mem: u64, record_size: u64) -> Answer {
    let mut args = tsg::ReadSingleSmErrorState { sm_id, record_mem, record_size, ..Default::default() };
    // SAFETY: the software kernel checks every address before it uses it.
    unsafe { tsg::READ_SINGLE_SM_ERROR_STATE.send_pointing(tsg_fd, &mut args) }
}

pub(crate) const ERROR_STATES: &[Rule] = &[
    ("5.9: a missing SM wins over size 0", INVAL, &[], |bench| sm_state(&bench.tsg(), 16, 0, 0)),
    ("5.9: a size of 0 touches nothing", Ok(0), &[], |bench| sm_state(&bench.tsg(), 7, 8, 0)),
    ("1.4: a failed copy-out returns the positive number of bytes not copied", Ok(0), &[], |bench| {
        let record = if bench.release < Release::R39_2 { 24 } else { 32 };
        assert_eq!(sm_state(&bench.tsg(), 7, 8, 1 << 40), Ok(record));
        Ok(0)
    }),
    ("5.10: 17 ways win over a missing context", INVAL, &[], |bench| {
        let mut args = tsg::L2MaxWaysEvictLast { max_ways: 17, reserved: 0 };
        tsg::SET_L2_MAX_WAYS_EVICT_LAST.send(&bench.tsg(), &mut args)
    }),
    ("5.10: the number of ways is read back", Ok(5), &[], |bench| {
        let (_space, tsg, channel) = bench.bound();
        object(&channel, 0xc7c0).unwrap();
        let mut args = tsg::L2MaxWaysEvictLast { max_ways: 5, reserved: 0 };
        tsg::SET_L2_MAX_WAYS_EVICT_LAST.send(&tsg, &mut args).unwrap();
        args.max_ways = 77;
        tsg::GET_L2_MAX_WAYS_EVICT_LAST.send(&tsg, &mut args).unwrap();
        Ok(args.max_ways.cast_signed())
    }),
    ("5.10: 16 ways, but not 17", INVAL, &[], |bench| {
        let chain = bench.chain();
        let ways = |max_ways| {
            let mut args = tsg::L2MaxWaysEvictLast { max_ways, reserved: 0 };
            tsg::SET_L2_MAX_WAYS_EVICT_LAST.send(&chain.tsg, &mut args)
        };
        assert_eq!(ways(16), Ok(0));
        ways(17)
    }),
    ("5.10: promotion to 128 bytes, but no unknown one", INVAL, &[], |bench| {
        let chain = bench.chain();
        let promote = |promotion_flag| {
            let mut args = tsg::SetL2SectorPromotion { promotion_flag, reserved: 0 };
            tsg::SET_L2_SECTOR_PROMOTION.send(&chain.tsg, &mut args)
        };
        assert_eq!(promote(tsg::L2_SECTOR_PROMOTE_128B), Ok(0));
        promote(3)
    }),
];

fn share(bench: &Bench, tsg: &DoorFd, source: u64, target: u64) -> Answer {
    bench.share(tsg, source, target).map(|_| 0)
}

fn revoke(bench: &Bench, tsg: &DoorFd, source: u64, target: u64, number: u64) -> Answer {
    tsg::revoke_share_token(tsg, bench.release, source, target, number).map(|()| 0)
}

pub(crate) const TOKENS: &[Rule] = &[
    ("5.11: 64 tokens win over an unknown target", NOSPC, &[], |bench| {
        let tsg = bench.tsg();
        (0..64).for_each(|_| assert_eq!(share(bench, &tsg, 1, 1), Ok(0)));
        share(bench, &tsg, 1, 99)
    }),
    ("5.11: an unknown target", INVAL, &[], |bench| share(bench, &bench.tsg(), 1, 2)),
    ("5.11: zero, unauthorised and unknown tokens cannot revoke", INVAL, &[], |bench| {
        let tsg = bench.tsg();
        share(bench, &tsg, 1, 1).unwrap();
        for (source, target, token) in [(0, 1, 1), (1, 0, 1), (1, 1, 0), (2, 1, 1)] {
            assert_eq!(revoke(bench, &tsg, source, target, token), INVAL);
        }
        revoke(bench, &tsg, 1, 1, 77)
    }),
];

pub(crate) const R36_TOKENS: &[Rule] = &[
    ("5.11: a source without authority wins over 64 tokens", INVAL, &[], |bench| {
        let tsg = bench.tsg();
        (0..64).for_each(|_| assert_eq!(share(bench, &tsg, 1, 1), Ok(0)));
        share(bench, &tsg, 2, 1)
    }),
    ("5.11: source 0", INVAL, &[], |bench| share(bench, &bench.tsg(), 0, 1)),
];

pub(crate) const NODE: &[Rule] = &[
    ("1.2: a number above 21", INVAL, &[], |bench| send(&bench.tsg(), 0x5416, &mut [])),
    ("1.2: a bad address wins over an unknown request", FAULT, &[], |bench| {
        send_at(&bench.tsg(), 0x4008_5406, 8)
    }),
    (
        "1.2: an unknown request is logged in hexadecimal, and needs no power",
        NOTTY,
        &[
            "nvgpu_sw_quiesce_bug_cb:0 SW quiesce requested",
            "SW quiesce thread running",
            "unrecognized tsg gpu ioctl cmd: 0x40085406",
        ],
        |bench| {
            let tsg = bench.tsg();
            bench.orin.quiesce();
            send(&tsg, 0x4008_5406, &mut [0; 8])
        },
    ),
    (
        "1.2: a known number with another size is unknown",
        NOTTY,
        &["unrecognized tsg gpu ioctl cmd: 0x40105409"],
        |bench| send(&bench.tsg(), 0x4010_5409, &mut [0; 16]),
    ),
    ("1.4: a failed copy-out returns the positive number of bytes not copied", Ok(8), &[], |bench| {
        send_at(&bench.tsg(), 0x8008_540a, constant(&[]))
    }),
    ("1.2: an argument above 32 bytes", INVAL, &[], |bench| send(&bench.tsg(), 0xc021_540b, &mut [0; 33])),
    ("1.2: READ_ALL_SM_ERROR_STATES", NOTTY, &["unrecognized tsg gpu ioctl cmd: 0xc0185411"], |bench| {
        send(&bench.tsg(), 0xc018_5411, &mut [0; 24])
    }),
];
