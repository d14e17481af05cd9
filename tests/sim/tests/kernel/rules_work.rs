//! Rules of kernel-mode submission, WAIT and the remaining graphics requests, one row each. If a row violates two
//! rules, it names the one that takes precedence.

use crate::support::rules::*;
use crate::support::*;
use kernel_door::{DoorFd, Errno};
use nvgpu_sys::channel::{self, Fence, SetupBindFlags, SubmitFlags, SubmitGpfifo, Wait};
use nvgpu_sys::ctrl::{self, GpuFlags, ZbcQueryTable, ZbcSetTable};
use nvgpu_sys::tsg;
use orin_sim::Config;
use zerocopy::IntoBytes;

const NONE: SubmitFlags = SubmitFlags::empty();
const SKIP: SubmitFlags = SubmitFlags::SKIP_BUFFER_REFCOUNTING;
/// Fence descriptor or syncpoint that does not exist.
const BAD_FENCE: Fence = Fence { id: 1024, value: 0 };

/// Entries without work for host.
static NOTHING: [u8; 8 * 16] = [0; 8 * 16];

fn submit_at(fd: &DoorFd, gpfifo: u64, num_entries: u32, flags: SubmitFlags) -> Answer {
    let mut args = SubmitGpfifo { gpfifo, num_entries, flags: flags.bits(), fence: BAD_FENCE };
    // SAFETY: the software kernel checks every address before it uses it.
    let result = unsafe { channel::SUBMIT_GPFIFO.send_pointing(fd, &mut args) };
    if result.is_err() {
        assert_eq!((args.fence.id, args.fence.value), (1024, 0), "nothing is copied out on failure");
    }
    result
}

fn submit(fd: &DoorFd, num_entries: u32, flags: SubmitFlags) -> Answer {
    submit_at(fd, NOTHING.as_ptr().expose_provenance() as u64, num_entries, flags)
}

/// A channel with a kernel-mode ring, in an address space whose kernel area host can reach.
fn kernel_ring(bench: &Bench, flags: SetupBindFlags, jobs: u32) -> (DoorFd, DoorFd, DoorFd) {
    let space = bench.try_alloc_as(LOGGED_START, 0xff_0000_0000).unwrap();
    let tsg = bench.tsg();
    let channel = join(bench, &space, &tsg, 0);
    let mut args = channel::SetupBind {
        num_gpfifo_entries: 16,
        num_inflight_jobs: jobs,
        flags: flags.bits(),
        ..Default::default()
    };
    channel::SETUP_BIND.send(&channel, &mut args).unwrap();
    assert_eq!(args.work_submit_token, 0, "the token is for user space's rings");
    (space, tsg, channel)
}

/// Like [`kernel_ring`], with a full ring that makes no progress.
fn full(bench: &Bench) -> (DoorFd, DoorFd, DoorFd) {
    let ring = kernel_ring(bench, SetupBindFlags::empty(), 0);
    channel::DISABLE.send(&ring.2, 0).unwrap();
    while submit(&ring.2, 10, NONE).is_ok() {}
    ring
}

pub(crate) const SUBMISSION: &[Rule] = &[
    ("6.10: out of service wins over a usermode ring", TIMEDOUT, &[], |bench| {
        let chain = bench.chain();
        channel::FORCE_RESET.send(&chain.channel, 0).unwrap();
        submit(&chain.channel, 1, NONE)
    }),
    ("6.10: a usermode ring wins over too many entries", INVAL, &[], |bench| {
        submit(&bench.chain().channel, u32::MAX, NONE)
    }),
    ("6.10: a missing ring wins over a missing address space", NOMEM, &[], |bench| {
        let (tsg, channel) = (bench.tsg(), bench.channel());
        bind_tsg(&tsg, &channel, 0).unwrap();
        submit(&channel, 1, NONE)
    }),
    ("6.10: three slots stay free: 13 entries fit into 16, 14 never do", NOMEM, &[], |bench| {
        let (_space, _tsg, channel) = kernel_ring(bench, SetupBindFlags::empty(), 0);
        assert_eq!(submit(&channel, 13, NONE), Ok(0));
        submit(&channel, 14, NONE)
    }),
    ("6.10: too many entries win over a flag forbidden for deterministic channels", NOMEM, &[], |bench| {
        let (_space, _tsg, channel) = kernel_ring(bench, SetupBindFlags::DETERMINISTIC, 0);
        submit(&channel, 14, NONE)
    }),
    ("6.10: a deterministic channel must skip the reference counts", INVAL, &[], |bench| {
        let (_space, _tsg, channel) = kernel_ring(bench, SetupBindFlags::DETERMINISTIC, 0);
        assert_eq!(submit(&channel, 1, SKIP), Ok(0));
        submit_at(&channel, 8, 1, NONE)
    }),
    ("6.10: and gets no sync-file", INVAL, &[], |bench| {
        let (_space, _tsg, channel) = kernel_ring(bench, SetupBindFlags::DETERMINISTIC, 0);
        assert_eq!(submit(&channel, 1, SKIP | SubmitFlags::FENCE_GET), Ok(0));
        let before = bench.orin.live().descriptors;
        let result = submit(&channel, 1, SKIP | SubmitFlags::FENCE_GET | SubmitFlags::SYNC_FENCE);
        assert_eq!(bench.orin.live().descriptors, before);
        result
    }),
    ("6.10: a full ring wins over a bad fence and a bad address, and can be retried", AGAIN, &[], |bench| {
        let (_space, _tsg, channel) = full(bench);
        let result = submit_at(&channel, 8, 10, SubmitFlags::FENCE_WAIT);
        channel::ENABLE.send(&channel, 0).unwrap();
        wait_until("room", || submit(&channel, 10, NONE).is_ok());
        result
    }),
    ("6.10: exhausted job slots win over a bad fence", AGAIN, &[], |bench| {
        let (_space, _tsg, channel) = kernel_ring(bench, SetupBindFlags::empty(), 2);
        channel::DISABLE.send(&channel, 0).unwrap();
        assert_eq!([submit(&channel, 1, NONE), submit(&channel, 1, NONE)], [Ok(0), Ok(0)]);
        let result = submit(&channel, 1, SubmitFlags::FENCE_WAIT);
        channel::ENABLE.send(&channel, 0).unwrap();
        wait_until("a slot", || submit(&channel, 1, NONE).is_ok());
        result
    }),
    ("6.10: a bad syncpoint of a wait wins over a bad address", INVAL, &[], |bench| {
        let (_space, _tsg, channel) = kernel_ring(bench, SetupBindFlags::empty(), 0);
        submit_at(&channel, 8, 1, SubmitFlags::FENCE_WAIT)
    }),
    ("6.10: a bad fence descriptor wins over a bad address", INVAL, &[], |bench| {
        let (_space, _tsg, channel) = kernel_ring(bench, SetupBindFlags::empty(), 0);
        submit_at(&channel, 8, 1, SubmitFlags::FENCE_WAIT | SubmitFlags::SYNC_FENCE)
    }),
    ("6.10: unreadable entries leave no job", FAULT, &[], |bench| {
        let (_space, _tsg, channel) = kernel_ring(bench, SetupBindFlags::empty(), 1);
        let result = submit_at(&channel, 8, 1, NONE);
        assert_eq!(submit(&channel, 1, NONE), Ok(0));
        result
    }),
    ("6.10: a channel without a TSG is out of service", TIMEDOUT, &[], |bench| {
        submit(&bench.channel(), 1, NONE)
    }),
];

/// SET_DETERMINISTIC_OPTS on descriptors; the number of channels is not copied out on failure.
fn options(bench: &Bench, fds: &[i32], count: u32, flags: u32) -> Answer {
    let channels = fds.as_ptr().expose_provenance() as u64;
    let mut args = ctrl::SetDeterministicOpts { num_channels: count, flags, channels };
    // SAFETY: the software kernel checks every address before it uses it.
    let result = unsafe { ctrl::SET_DETERMINISTIC_OPTS.send_pointing(&bench.ctrl, &mut args) };
    assert_eq!(args.num_channels, count);
    result
}

const ALLOW: u32 = ctrl::DeterministicOpts::ALLOW_RAILGATING.bits();
const DISALLOW: u32 = ctrl::DeterministicOpts::DISALLOW_RAILGATING.bits();

pub(crate) const POWER: &[Rule] = &[
    ("3.12: more than 512 channels win over a bad address", INVAL, &[], |bench| {
        options(bench, &[], 513, ALLOW)
    }),
    ("3.12: no channels at all", Ok(0), &[], |bench| options(bench, &[], 0, ALLOW | DISALLOW)),
    ("3.12: a channel that is not deterministic, even without a flag", INVAL, &[], |bench| {
        options(bench, &[bench.bound().2.raw()], 1, 0)
    }),
    ("3.12: both at once", INVAL, &[], |bench| {
        options(bench, &[bench.chain().channel.raw()], 1, ALLOW | DISALLOW)
    }),
    ("3.12: changes before the first failure take effect; DISALLOW reverts them", Ok(0), &[], |bench| {
        let (_space, _tsg, channel) = kernel_ring(bench, SetupBindFlags::DETERMINISTIC, 0);
        let fds = [channel.raw(), bench.ctrl.raw()];
        assert_eq!(options(bench, &fds, 2, ALLOW), INVAL);
        assert_eq!(submit(&channel, 1, SKIP), INVAL, "section 6.10: dormant");
        assert_eq!(options(bench, &fds, 1, 0), Ok(0));
        assert_eq!(submit(&channel, 1, SKIP), INVAL);
        assert_eq!(options(bench, &fds, 1, DISALLOW), Ok(0));
        submit(&channel, 1, SKIP)
    }),
    ("6.10: a dormant channel wins over a full ring", INVAL, &[], |bench| {
        let (_space, _tsg, channel) = kernel_ring(bench, SetupBindFlags::DETERMINISTIC, 0);
        channel::DISABLE.send(&channel, 0).unwrap();
        while submit(&channel, 10, SKIP).is_ok() {}
        options(bench, &[channel.raw()], 1, ALLOW).unwrap();
        submit(&channel, 10, SKIP)
    }),
    ("6.5: the watchdog of a deterministic channel stays off", INVAL, &[], |bench| {
        let (_space, _tsg, channel) = kernel_ring(bench, SetupBindFlags::DETERMINISTIC, 0);
        wdt(&channel, channel::WDT_ENABLE)
    }),
    ("3.12: a descriptor that is not a channel", INVAL, &[], |bench| {
        options(bench, &[bench.ctrl.raw()], 1, ALLOW)
    }),
    ("3.12: an unreadable list", FAULT, &[], |bench| {
        let args = ctrl::SetDeterministicOpts { num_channels: 1, flags: ALLOW, channels: NOWHERE };
        send_constant(&bench.ctrl, ctrl::code::SET_DETERMINISTIC_OPTS, args.as_bytes())
    }),
];

fn wait(fd: &DoorFd, change: impl FnOnce(&mut Wait)) -> Answer {
    let mut args = Wait { kind: channel::WAIT_SEMAPHORE, timeout: 1, ..Default::default() };
    change(&mut args);
    channel::WAIT.send(fd, &mut args)
}

/// WAIT for a semaphore in a buffer of zeroes.
fn semaphore(bench: &Bench, change: impl FnOnce(&mut Wait)) -> Answer {
    let (buffer, bound) = (bench.buffer(4096), bench.bound());
    wait(&bound.2, |args| {
        args.dmabuf_fd = raw(&buffer);
        change(args);
    })
}

pub(crate) const WAITING: &[Rule] = &[
    ("6.11: out of service wins over an unknown type", TIMEDOUT, &[], |bench| {
        wait(&bench.channel(), |args| args.kind = 9)
    }),
    ("6.11: an unknown type", INVAL, &[], |bench| wait(&bench.bound().2, |args| args.kind = 2)),
    ("6.11: a semaphore needs memory", INVAL, &[], |bench| {
        let bare = bench.export(bench.create(4096));
        semaphore(bench, |args| args.dmabuf_fd = raw(&bare))
    }),
    ("6.11: the last word of a buffer is a semaphore", Ok(0), &[], |bench| {
        semaphore(bench, |args| args.offset = 4092)
    }),
    ("6.11: a notification needs memory, with another errno", NOMEM, &[], |bench| {
        let (bare, bound) = (bench.export(bench.create(4096)), bench.bound());
        wait(&bound.2, |args| (args.kind, args.dmabuf_fd) = (channel::WAIT_NOTIFIER, raw(&bare)))
    }),
    ("6.11: its range wins over its memory", INVAL, &[], |bench| {
        let (bare, bound) = (bench.export(bench.create(4096)), bench.bound());
        wait(&bound.2, |args| {
            (args.kind, args.dmabuf_fd, args.offset) = (channel::WAIT_NOTIFIER, raw(&bare), 4081);
        })
    }),
    ("6.11: its descriptor must be a buffer", INVAL, &[], |bench| {
        let bound = bench.bound();
        wait(&bound.2, |args| (args.kind, args.dmabuf_fd) = (channel::WAIT_NOTIFIER, raw(&bench.ctrl)))
    }),
    ("6.11: a notification that was read gets filler values", Ok(0), &[], |bench| {
        let (buffer, bound) = (bench.buffer(4096), bench.bound());
        let result =
            wait(&bound.2, |args| (args.kind, args.dmabuf_fd) = (channel::WAIT_NOTIFIER, raw(&buffer)));
        let memory = cpu(&buffer, 4096);
        let load = |at| word(&memory, at).load(core::sync::atomic::Ordering::Acquire);
        assert_eq!([load(8), load(12)], [0xdead_beef, 511]);
        result
    }),
    ("6.11: a semaphore inside a word", INVAL, &[], |bench| semaphore(bench, |args| args.offset = 2)),
    ("6.11: a semaphore beyond its buffer", INVAL, &[], |bench| semaphore(bench, |args| args.offset = 4096)),
    ("6.11: a semaphore outside of buffers", INVAL, &[], |bench| {
        semaphore(bench, |args| args.dmabuf_fd = raw(&bench.ctrl))
    }),
    ("6.11: a semaphore without the value", TIMEDOUT, &[], |bench| semaphore(bench, |args| args.payload = 1)),
    ("6.11: a notification that does not come", Err(Errno::INTR), &[], |bench| {
        let (buffer, bound) = (bench.buffer(4096), bench.bound());
        word(&cpu(&buffer, 4096), 12).store(1 << 16, core::sync::atomic::Ordering::Relaxed);
        wait(&bound.2, |args| (args.kind, args.dmabuf_fd) = (channel::WAIT_NOTIFIER, raw(&buffer)))
    }),
];

fn zcull(fd: &DoorFd, gpu_va: u64, mode: u32) -> Answer {
    channel::ZCULL_BIND.send(fd, &mut channel::ZcullBind { gpu_va, mode, padding: 0 })
}

pub(crate) const CULLING: &[Rule] = &[
    ("6.13: ZCULL_BIND without a TSG", INVAL, &[], |bench| {
        stalled(bench, || zcull(&bench.channel(), 0x1000, 0))
    }),
    ("6.13: a separate buffer needs an address", INVAL, &["failed to setup zcull"], |bench| {
        zcull(&bench.chain().channel, 0, channel::ZCULL_MODE_SEPARATE_BUFFER)
    }),
    ("6.13: a TSG keeps its first buffer, later ones are ignored", Ok(0), &[], |bench| {
        let chain = bench.chain();
        zcull(&chain.channel, 0x1000, channel::ZCULL_MODE_SEPARATE_BUFFER).unwrap();
        let second = join(bench, &chain.space, &chain.tsg, 0);
        stalled(bench, || zcull(&second, 0, channel::ZCULL_MODE_SEPARATE_BUFFER))
    }),
    (
        "6.13: it takes the TSG off the hardware",
        TIMEDOUT,
        &[
            "preempt timed out for tsgid: 0, ctxsw timeout will trigger recovery if needed",
            "failed to preempt channel/TSG",
        ],
        |bench| {
            let chain = bench.chain();
            stalled(bench, || zcull(&chain.channel, 0x1000, channel::ZCULL_MODE_GLOBAL))
        },
    ),
];

fn set_value(bench: &Bench, kind: u32, value: u32) -> Answer {
    let mut args = ZbcSetTable {
        color_ds: [value; 4],
        color_l2: [value + 1; 4],
        depth: value,
        stencil: value,
        format: 3,
        kind,
    };
    ctrl::ZBC_SET_TABLE.send(&bench.ctrl, &mut args)
}

fn query(bench: &Bench, kind: u32, index_size: u32) -> Result<ZbcQueryTable, Errno> {
    let mut args = ZbcQueryTable { kind, index_size, ..Default::default() };
    ctrl::ZBC_QUERY_TABLE.send(&bench.ctrl, &mut args).map(|_| args)
}

#[test]
fn clear_values() {
    let bench = Bench::new();
    let size = query(&bench, ctrl::ZBC_TYPE_INVALID, 0).unwrap().index_size;
    for kind in [0, 4, u32::MAX] {
        assert_eq!(set_value(&bench, kind, 1), INVAL);
    }
    assert_eq!(query(&bench, 4, 1).err(), Some(Errno::INVAL));
    let kinds = [ctrl::ZBC_TYPE_COLOR, ctrl::ZBC_TYPE_DEPTH, ctrl::ZBC_TYPE_STENCIL];
    for kind in kinds {
        for index in [0, size + 1, u32::MAX] {
            assert_eq!(query(&bench, kind, index).err(), Some(Errno::INVAL), "{kind} {index}");
        }
        assert_eq!(query(&bench, kind, 1).unwrap().ref_cnt, 0, "empty at boot");
        // The same value twice is one entry with two users.
        for value in [7, 7, 9] {
            assert_eq!(set_value(&bench, kind, value), Ok(0));
        }
        let (first, second) = (query(&bench, kind, 1).unwrap(), query(&bench, kind, 2).unwrap());
        assert_eq!((first.ref_cnt, second.ref_cnt, second.format), (2, 1, 3));
        for value in 100..100 + size - 2 {
            assert_eq!(set_value(&bench, kind, value), Ok(0));
        }
        assert_eq!(set_value(&bench, kind, 1), NOMEM, "the table is full");
        assert_eq!(set_value(&bench, kind, 9), Ok(0), "a known value needs no entry");
    }
    let color = query(&bench, kinds[0], 2).unwrap();
    assert_eq!((color.color_ds, color.color_l2, color.depth, color.stencil), ([9; 4], [10; 4], 0, 0));
    assert_eq!(
        (query(&bench, kinds[1], 2).unwrap().depth, query(&bench, kinds[2], 2).unwrap().stencil),
        (9, 9)
    );
    bench.orin.quiesce();
    assert_eq!(set_value(&bench, kinds[0], 9), NODEV);

    let mut config = Config::default();
    config.characteristics.flags &= !GpuFlags::SUPPORT_ZBC.bits();
    let without = Bench::with(config);
    assert_eq!(set_value(&without, 0, 1), NODEV, "the feature wins over the kind");
    assert_eq!(query(&without, 4, 1).err(), Some(Errno::NODEV));
}

#[test]
fn preempting_a_channel_enables_its_tsg() {
    let bench = Bench::new();
    let (_space, tsg, channel) = full(&bench);
    assert_eq!(submit(&channel, 10, NONE), AGAIN);
    channel::PREEMPT.send(&channel, 0).unwrap();
    wait_until("room", || submit(&channel, 10, NONE).is_ok());
    tsg::DISABLE.send(&tsg, 0).unwrap();
    tsg::PREEMPT.send(&tsg, 0).unwrap();
    while submit(&channel, 10, NONE).is_ok() {}
    std::thread::sleep(core::time::Duration::from_millis(20));
    assert_eq!(submit(&channel, 10, NONE), AGAIN, "PREEMPT of the TSG leaves it disabled");
}
