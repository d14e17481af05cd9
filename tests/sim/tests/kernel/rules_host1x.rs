//! Rules of `/dev/host1x-fence`, syncpoints and the doorbell mapping, one row each. If a row violates two rules, it
//! names the one that takes precedence.

use core::time::Duration;

use crate::support::rules::*;
use crate::support::*;
use kernel_door::{DoorFd, Errno, Events, Protection};
use nvgpu_sys::channel::{self, GetUserSyncpoint};
use nvgpu_sys::host1x::{self, CreateFence, CreatePollfd, FenceExtract, FenceExtractFence, TriggerPollfd};
use nvgpu_sys::{ctrl, paths, sync_file};
use orin_sim::Config;

const READ_WRITE: Protection = Protection::READ.union(Protection::WRITE);

fn node(bench: &Bench) -> DoorFd {
    DoorFd::open(&bench.door, paths::HOST1X_FENCE, FLAGS).unwrap()
}

fn create(fd: &DoorFd, id: u32, threshold: u32, reserved: u32) -> Result<DoorFd, Errno> {
    let mut args = CreateFence { id, threshold, fence_fd: 77, reserved: [reserved] };
    let result = host1x::CREATE_FENCE.send(fd, &mut args);
    if result.is_err() {
        assert_eq!(args.fence_fd, 77, "nothing is copied out on failure");
    }
    result.map(|_| adopt(fd.door(), args.fence_fd))
}

fn pollfd(fd: &DoorFd) -> DoorFd {
    let mut args = CreatePollfd::default();
    host1x::CREATE_POLLFD.send(fd, &mut args).unwrap();
    adopt(fd.door(), args.fd)
}

fn trigger(fd: &DoorFd, set: i32, id: u32, threshold: u32) -> Answer {
    host1x::TRIGGER_POLLFD.send(fd, &mut TriggerPollfd { fd: set, id, threshold, reserved: 7 })
}

fn extract(fd: &DoorFd, change: impl FnOnce(&mut FenceExtract)) -> Result<u32, Errno> {
    let mut args = FenceExtract::default();
    change(&mut args);
    // SAFETY: the software kernel checks every address before it uses it.
    unsafe { host1x::FENCE_EXTRACT.send_pointing(fd, &mut args) }?;
    Ok(args.num_fences)
}

fn poll(fd: &DoorFd) -> Events {
    fd.poll(Events::IN | Events::PRIORITY, Duration::ZERO).unwrap()
}

pub(crate) const FENCES: &[Rule] = &[
    ("8.3: an unknown request wins over a bad address", NOTTY, &[], |bench| {
        send_at(&node(bench), 0xc010_5803, 8)
    }),
    ("8.3: type, number and size are not checked", NOTTY, &[], |bench| {
        send(&node(bench), 0xffff_4eff, &mut [])
    }),
    ("8.3: a bad address wins over all argument errors", FAULT, &[], |bench| {
        send_at(&node(bench), 0xc010_5802, 8)
    }),
    ("8.3: a failed copy-out is EFAULT here", FAULT, &[], |bench| {
        send_at(&node(bench), 0xc008_5810, constant(&[]))
    }),
    ("8.3: CREATE_FENCE refuses a reserved word", INVAL, &[], |bench| {
        create(&node(bench), 1, 0, 1).map(|_| 0)
    }),
    ("8.3: and a syncpoint that does not exist, although number 0 does", INVAL, &[], |bench| {
        let node = node(bench);
        for id in [0, 1, 1023] {
            create(&node, id, 1, 0).unwrap();
        }
        create(&node, 1024, 0, 0).map(|_| 0)
    }),
    ("8.3: fences need no power", Ok(0), &QUIESCE, |bench| {
        bench.orin.quiesce();
        create(&node(bench), 1, 0, 0).map(|_| 0)
    }),
    ("8.3: FENCE_EXTRACT refuses a reserved word with a valid fence", INVAL, &[], |bench| {
        let node = node(bench);
        let fence = create(&node, 1, 5, 0).unwrap();
        extract(&node, |args| (args.fence_fd, args.reserved) = (fence.raw(), [0, 1])).map(|_| 0)
    }),
    ("8.3: FENCE_EXTRACT of a poll descriptor, and of a closed descriptor", INVAL, &[], |bench| {
        let node = node(bench);
        let set = pollfd(&node);
        assert_eq!(extract(&node, |args| args.fence_fd = set.raw()), Err(Errno::INVAL));
        extract(&node, |args| args.fence_fd = 0x7fff_0000).map(|_| 0)
    }),
    ("8.3: FENCE_EXTRACT stores as many as fit, and returns the total number", FAULT, &[], |bench| {
        let node = node(bench);
        let fence = create(&node, 9, 5, 0).unwrap();
        assert_eq!(extract(&node, |args| args.fence_fd = fence.raw()), Ok(1));
        let mut inside = [FenceExtractFence::default(); 3];
        assert_eq!(host1x::fence_extract(&node, &fence, &mut inside), Ok(1));
        assert_eq!((inside[0].id, inside[0].threshold, inside[1].id), (9, 5, 0));
        extract(&node, |args| (args.fence_fd, args.num_fences, args.fences_ptr) = (fence.raw(), 1, 8))
            .map(|_| 0)
    }),
    ("8.3: TRIGGER_POLLFD needs a poll descriptor", INVAL, &[], |bench| {
        let node = node(bench);
        let fence = create(&node, 1, 5, 0).unwrap();
        for other in [-1, fence.raw(), node.raw(), bench.ctrl.raw()] {
            assert_eq!(trigger(&node, other, 1, 0), INVAL);
        }
        trigger(&node, pollfd(&node).raw(), 1024, 0)
    }),
    ("8.3: a passed threshold is reported once, even if there are several", Ok(0), &[], |bench| {
        let node = node(bench);
        let set = pollfd(&node);
        for threshold in [0, u32::MAX, 0x8000_0001] {
            assert_eq!(trigger(&node, set.raw(), 3, threshold), Ok(0));
        }
        assert_eq!(poll(&set), Events::IN | Events::PRIORITY);
        assert_eq!(poll(&set), Events::empty());
        trigger(&node, set.raw(), 3, 0x8000_0000)
    }),
    (
        "8.1: thresholds compare modulo 2^32: a value half the range ahead is not reached",
        Ok(0),
        &[],
        |bench| {
            let node = node(bench);
            let set = pollfd(&node);
            for threshold in [1, 0x7fff_ffff, 0x8000_0000] {
                trigger(&node, set.raw(), 3, threshold).unwrap();
            }
            assert_eq!(poll(&set), Events::empty());
            let reached = create(&node, 3, 0x8000_0001, 0).unwrap();
            assert_eq!(sync_file::status(&reached), Ok(Some(Ok(()))));
            Ok(0)
        },
    ),
    ("8.3: a fence whose threshold is reached", Ok(0), &[], |bench| {
        let fence = create(&node(bench), 1, 0, 0).unwrap();
        assert_eq!(sync_file::status(&fence), Ok(Some(Ok(()))));
        assert_eq!(poll(&fence), Events::IN);
        Ok(0)
    }),
    ("8.3: a fence times out after its first poll", TIMEDOUT, &[], |_| {
        let bench = Bench::with(Config { fence_timeout: Duration::from_millis(20), ..Config::default() });
        let fence = create(&node(&bench), 1, 1, 0).unwrap();
        wait_until("the time-out", || poll(&fence) == Events::IN);
        sync_file::status(&fence).unwrap().expect("an end").map(|()| 0)
    }),
];

fn syncpoint(fd: &DoorFd) -> GetUserSyncpoint {
    let mut args = GetUserSyncpoint::default();
    channel::GET_USER_SYNCPOINT.send(fd, &mut args).unwrap();
    args
}

#[test]
fn a_fault_of_one_channel_releases_all_channels_of_the_tsg() {
    let bench = Bench::new();
    let (space, tsg, first) = bench.bound();
    let (second, apart) = (join(&bench, &space, &tsg, 0), bench.channel());
    bind_space(&space, &apart).unwrap();
    let points = [&first, &second, &apart].map(|fd| syncpoint(fd).syncpoint_id);
    assert_eq!(points, [1, 2, 3], "the lowest free number, without a TSG too");
    assert_eq!(syncpoint(&first).syncpoint_id, 1, "a channel has one");
    channel::FORCE_RESET.send(&second, 0).unwrap();
    assert_eq!([&first, &second, &apart].map(|fd| syncpoint(fd).syncpoint_max), [1000, 1000, 0]);
    // A closed channel's syncpoint goes to the next channel, with its value.
    drop(second);
    let next = bench.channel();
    bind_space(&space, &next).unwrap();
    assert_eq!((syncpoint(&next).syncpoint_id, syncpoint(&next).syncpoint_max), (2, 2000));
}

fn instance(fd: &DoorFd) -> u64 {
    ctrl::get_characteristics(fd).unwrap().0.device_instance_id
}

#[test]
fn a_doorbell_mapping_keeps_its_open_of_the_node() {
    let bench = Bench::new();
    let other = DoorFd::open(&bench.door, paths::CTRL, FLAGS).unwrap();
    let (source, target) = (instance(&bench.ctrl), instance(&other));
    let page = other.map(0, 4096, READ_WRITE).unwrap();
    let tsg = bench.tsg();
    let share = || bench.share(&tsg, source, target).map(|_| 0);
    close(&bench.door, other.raw()).unwrap();
    std::mem::forget(other);
    assert_eq!(share(), Ok(0), "section 3.15: the mapping holds the file");
    drop(page);
    assert_eq!(share(), INVAL);
}

#[test]
fn a_dead_process_releases_its_doorbell_and_its_syncpoints() {
    let bench = Bench::new();
    let victim = bench.orin.process();
    let door: std::sync::Arc<dyn kernel_door::Door> = std::sync::Arc::new(victim.clone());
    let dead = Bench {
        release: bench.release,
        orin: victim.clone(),
        nvmap: DoorFd::open(&door, paths::NVMAP, FLAGS).unwrap(),
        ctrl: DoorFd::open(&door, paths::CTRL, FLAGS).unwrap(),
        door,
    };
    let chain = dead.chain();
    let point = syncpoint(&chain.channel).syncpoint_id;
    let page = dead.doorbell();
    let node = node(&bench);
    let set = pollfd(&node);
    trigger(&node, set.raw(), point, 1000).unwrap();
    assert_eq!(poll(&set), Events::empty());
    let (inherited, numbers) = bench.orin.fork().unwrap();
    assert_eq!(numbers.len(), 4, "two nodes, the fence node and the poll descriptor");
    victim.exit();
    assert_eq!(poll(&set), Events::IN | Events::PRIORITY, "section 6.15: close lets waiters go on");
    let live = bench.orin.live();
    assert_eq!(
        (live.channels, live.tsgs, live.address_spaces, live.syncpoints, live.mappings),
        (0, 0, 0, 0, 0)
    );
    // Copies of a descriptor share one open file: the child's poll consumes the parent's event.
    trigger(&node, set.raw(), point, 0).unwrap();
    let child: std::sync::Arc<dyn kernel_door::Door> = std::sync::Arc::new(inherited.clone());
    assert_eq!(
        poll(&std::mem::ManuallyDrop::new(adopt(&child, numbers[&set.raw()]))),
        Events::IN | Events::PRIORITY
    );
    assert_eq!(poll(&set), Events::empty());
    inherited.exit();
    assert_eq!(trigger(&node, set.raw(), point, 0), Ok(0), "the parent's copies are still open");
    std::mem::forget((dead, chain, page));
}
