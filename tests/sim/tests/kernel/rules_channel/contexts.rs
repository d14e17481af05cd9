//! Engine contexts and preemption modes.

use crate::support::rules::*;
use crate::support::*;
use kernel_door::DoorFd;
use nvgpu_sys::channel::{self, AllocObjCtxFlags};
use nvgpu_sys::tsg;

/// A TSG with a compute channel on VEID 0, and a channel on VEID 1.
fn beside(bench: &Bench) -> (DoorFd, DoorFd, DoorFd, DoorFd) {
    let (space, tsg, first) = bench.bound();
    let veid = subcontext(&tsg, &space, tsg::SUBCONTEXT_ASYNC).unwrap();
    let second = join(bench, &space, &tsg, veid);
    (space, tsg, first, second)
}

fn object_with(fd: &DoorFd, class_num: u32, flags: AllocObjCtxFlags) -> Answer {
    let mut args = channel::AllocObjCtx { class_num, flags: flags.bits(), obj_id: 0x1234_5678_9abc_def0 };
    let result = channel::ALLOC_OBJ_CTX.send(fd, &mut args);
    assert_eq!(args.obj_id, 0x1234_5678_9abc_def0, "never written");
    result
}

fn modes(fd: &DoorFd, graphics_preempt_mode: u32, compute_preempt_mode: u32) -> Answer {
    let mut args = channel::PreemptionMode { graphics_preempt_mode, compute_preempt_mode };
    channel::SET_PREEMPTION_MODE.send(fd, &mut args)
}

pub(crate) const CONTEXTS: &[Rule] = &[
    (
        "6.4: a missing address space wins over an unknown class",
        INVAL,
        &["not bound to address space at time of grctx allocation"],
        |bench| object(&bench.channel(), 0x1234),
    ),
    ("6.4: an unknown class wins over a missing TSG", INVAL, &["invalid obj class 0xc6c0"], |bench| {
        let (space, channel) = (bench.space(), bench.channel());
        bind_space(&space, &channel).unwrap();
        object(&channel, 0xc6c0)
    }),
    ("6.4: a missing TSG prints nothing, and the channel keeps the class", Ok(0), &[], |bench| {
        let (space, tsg, channel) = (bench.space(), bench.tsg(), bench.channel());
        bind_space(&space, &channel).unwrap();
        assert_eq!(object(&channel, 0xc7c0), INVAL);
        bind_tsg(&tsg, &channel, 0).unwrap();
        modes(&channel, 0, 2)
    }),
    ("6.4: a missing TSG wins over stuck engines", INVAL, &[], |bench| {
        let (space, channel) = (bench.space(), bench.channel());
        bind_space(&space, &channel).unwrap();
        stalled(bench, || object(&channel, 0xc7c0))
    }),
    (
        "6.4: stuck engines win over graphics on VEID 1",
        TIMEDOUT,
        &[
            "preempt timed out for tsgid: 0, ctxsw timeout will trigger recovery if needed",
            "preempt failed -110",
        ],
        |bench| {
            let (_space, _tsg, _first, second) = beside(bench);
            stalled(bench, || object(&second, 0xc797))
        },
    ),
    (
        "5.4: graphics only on host engine 0, which excludes VEIDs above 0",
        INVAL,
        &["Can't have Graphics in non-zero'th PBDMA", "Invalid class/veid/pbdma config"],
        |bench| {
            let (_space, _tsg, _first, second) = beside(bench);
            object(&second, 0xc597)
        },
    ),
    ("5.4: graphics on VEID 0 next to compute on VEID 1", Ok(0), &[], |bench| {
        let (_space, _tsg, first, second) = beside(bench);
        object(&second, 0xc7c0).unwrap();
        object(&first, 0xc797).unwrap();
        object(&second, 0xc7c0)
    }),
    (
        "5.4: with graphics on VEID 0, no compute on VEID 0 on host engine 1",
        INVAL,
        &[
            "channel VM does not match with subcontext VM",
            "VEID0 can't do Graphics and Async Compute",
            "Invalid class/veid/pbdma config",
        ],
        |bench| {
            let (space, tsg, first, _second) = beside(bench);
            object(&first, 0xc797).unwrap();
            let third = bench.channel();
            bind_space(&space, &third).unwrap();
            assert_eq!(bind_tsg(&tsg, &third, 9), INVAL);
            bind_tsg(&tsg, &third, 0).unwrap();
            object(&third, 0xc7c0)
        },
    ),
    (
        "5.4: no graphics on VEID 0 while it has compute on host engine 1",
        INVAL,
        &[
            "channel VM does not match with subcontext VM",
            "VEID0 can't do Graphics and Async Compute",
            "Invalid class/veid/pbdma config",
        ],
        |bench| {
            let (space, tsg, first, _second) = beside(bench);
            let third = bench.channel();
            bind_space(&space, &third).unwrap();
            assert_eq!(bind_tsg(&tsg, &third, 9), INVAL);
            bind_tsg(&tsg, &third, 0).unwrap();
            object(&third, 0xc7c0).unwrap();
            object(&first, 0xc797)
        },
    ),
    ("6.4: the classes of older chips, which the context ignores", Ok(0), &[], |bench| {
        let (_space, _tsg, channel) = bench.bound();
        [0xc637, 0xc5c0, 0xc3c0, 0xa140, 0x902d, 0xc76f]
            .into_iter()
            .try_fold(0, |_, class| object(&channel, class))
    }),
    ("6.4: GFXP with CILP", INVAL, &["set_ctxsw_preemption_mode failed"], |bench| {
        let (_space, _tsg, channel) = bench.bound();
        object_with(&channel, 0xc7c0, AllocObjCtxFlags::GFXP | AllocObjCtxFlags::CILP)
    }),
    (
        "6.4: unknown flags are ignored, and so are all flags for a class of another engine",
        Ok(0),
        &[],
        |bench| {
            let (_space, _tsg, channel) = bench.bound();
            object_with(&channel, 0xc7c0, AllocObjCtxFlags::from_bits_retain(0xffff_fff9)).unwrap();
            object_with(&channel, 0xc7b5, AllocObjCtxFlags::GFXP | AllocObjCtxFlags::CILP)
        },
    ),
    ("6.4: class 0", INVAL, &["invalid obj class 0x0"], |bench| object(&bench.bound().2, 0)),
];

pub(crate) const PREEMPTION: &[Rule] = &[
    ("6.8: a channel without a class", INVAL, &[], |bench| {
        let (_space, _tsg, channel) = bench.bound();
        stalled(bench, || modes(&channel, 0, 0))
    }),
    ("6.8: a missing TSG wins over stuck engines", INVAL, &[], |bench| {
        let (space, channel) = (bench.space(), bench.channel());
        bind_space(&space, &channel).unwrap();
        assert_eq!(object(&channel, 0xc7c0), INVAL);
        stalled(bench, || modes(&channel, 1, 1))
    }),
    (
        "6.8: stuck engines win over an empty request",
        TIMEDOUT,
        &[
            "preempt timed out for tsgid: 0, ctxsw timeout will trigger recovery if needed",
            "failed to preempt channel/TSG",
        ],
        |bench| {
            let (_space, _tsg, channel) = bench.bound();
            object(&channel, 0xc7c0).unwrap();
            stalled(bench, || modes(&channel, 0, 0))
        },
    ),
    ("6.8: the valid modes", INVAL, &["set_ctxsw_preemption_mode failed"], |bench| {
        let (_space, _tsg, channel) = bench.bound();
        object(&channel, 0xc7c0).unwrap();
        for (graphics, compute) in [(0, 0), (1, 1), (1, 0), (0, 2), (0, 2), (1, 4), (0, 4)] {
            assert_eq!(modes(&channel, graphics, compute), Ok(0), "{graphics} {compute}");
        }
        modes(&channel, 0, 8)
    }),
    ("6.8: modes only go up", INVAL, &["set_ctxsw_preemption_mode failed"], |bench| {
        let (_space, _tsg, channel) = bench.bound();
        object(&channel, 0xc7c0).unwrap();
        modes(&channel, 0, 4).unwrap();
        modes(&channel, 0, 2)
    }),
    (
        "6.8: the modes belong to the TSG, and ALLOC_OBJ_CTX also sets them",
        INVAL,
        &["set_ctxsw_preemption_mode failed"],
        |bench| {
            let (_space, _tsg, first, second) = beside(bench);
            object_with(&first, 0xc7c0, AllocObjCtxFlags::CILP).unwrap();
            object(&second, 0xc7c0).unwrap();
            assert_eq!(modes(&second, 0, 4), Ok(0));
            modes(&second, 0, 2)
        },
    ),
    ("6.8: GFXP with CILP", INVAL, &["set_ctxsw_preemption_mode failed"], |bench| {
        let (_space, _tsg, channel) = bench.bound();
        object(&channel, 0xc797).unwrap();
        modes(&channel, 2, 4)
    }),
    (
        "6.8: no CILP for asynchronous compute next to graphics",
        INVAL,
        &[
            "SCG, with or without Sync Compute - CILP not allowed",
            "Invalid class/veid/pbdma config. CILP not allowed.",
            "set_ctxsw_preemption_mode failed",
        ],
        |bench| {
            let (_space, _tsg, first, second) = beside(bench);
            object(&first, 0xc797).unwrap();
            object(&second, 0xc7c0).unwrap();
            modes(&second, 0, 4)
        },
    ),
    ("6.8: an empty request", Ok(0), &[], |bench| {
        let (_space, _tsg, channel) = bench.bound();
        object(&channel, 0xc7c0).unwrap();
        modes(&channel, 0, 0)
    }),
];
