//! Syncpoints: the counting window, the ends of channels, and the ways to wait for them.

use core::sync::atomic::Ordering;
use core::time::Duration;
use std::time::Instant;

use crate::support::*;
use kernel_door::{DoorFd, DoorMapping, Errno, Events};
use nvgpu_sys::channel::{self, GET_USER_SYNCPOINT, GetUserSyncpoint};
use nvgpu_sys::host1x::{self, CreateFence, CreatePollfd, FenceExtractFence, TriggerPollfd};
use nvgpu_sys::{address_space, paths, sync_file};
use orin_sim::{Config, LiveCounts};

/// Words of a host semaphore release: SEM_ADDR_LO, _HI, PAYLOAD_LO, _HI, EXECUTE.
fn release(va: u64, payload: u32) -> [u32; 6] {
    [0x2005_0017, va as u32, (va >> 32) as u32, payload, 0, 1]
}

/// Words of an acquire that waits until memory has reached the payload.
fn acquire(va: u64, payload: u32) -> [u32; 6] {
    [0x2005_0017, va as u32, (va >> 32) as u32, payload, 0, 3]
}

fn write(memory: &DoorMapping, words: &[u32]) {
    for (at, value) in words.iter().enumerate() {
        word(memory, 4 * at).store(*value, Ordering::Relaxed);
    }
}

fn fences(bench: &Bench) -> DoorFd {
    DoorFd::open(&bench.door, paths::HOST1X_FENCE, FLAGS).unwrap()
}

fn syncpoint(channel: &DoorFd) -> Result<GetUserSyncpoint, Errno> {
    let mut args = GetUserSyncpoint::default();
    GET_USER_SYNCPOINT.send(channel, &mut args).map(|_| args)
}

fn create_fence(bench: &Bench, node: &DoorFd, id: u32, threshold: u32) -> DoorFd {
    let mut args = CreateFence { id, threshold, ..CreateFence::default() };
    host1x::CREATE_FENCE.send(node, &mut args).unwrap();
    adopt(&bench.door, args.fence_fd)
}

fn pollfd(bench: &Bench, node: &DoorFd) -> DoorFd {
    let mut args = CreatePollfd::default();
    host1x::CREATE_POLLFD.send(node, &mut args).unwrap();
    adopt(&bench.door, args.fd)
}

fn trigger(node: &DoorFd, set: &DoorFd, id: u32, threshold: u32) -> Result<i32, Errno> {
    host1x::TRIGGER_POLLFD.send(node, &mut TriggerPollfd { fd: set.raw(), id, threshold, reserved: 0 })
}

fn poll(fd: &DoorFd, timeout: Duration) -> Events {
    fd.poll(Events::IN | Events::PRIORITY, timeout).unwrap()
}

const NOW: Duration = Duration::ZERO;
/// Far above the model's needs, so that only a hang fails.
const LONG: Duration = Duration::from_secs(20);

#[test]
fn the_gpu_counts_and_both_sides_wait() {
    let bench = Bench::new();
    let chain = bench.chain();
    let point = syncpoint(&chain.channel).unwrap();
    assert_eq!((point.gpu_va, point.syncpoint_id, point.syncpoint_max), (0xff_ffe1_0000, 1, 0));
    assert_eq!(bench.orin.live().syncpoints, 1);
    let (node, doorbell) = (fences(&bench), bench.doorbell());
    let (ring, userd) = (cpu(&chain.ring, 8192), cpu(&chain.userd, 4096));
    let buffer = bench.buffer(4096);
    let (memory, va) = (cpu(&buffer, 4096), map(&chain.space, &buffer).unwrap());

    let fence = create_fence(&bench, &node, 1, 2);
    let set = pollfd(&bench, &node);
    trigger(&node, &set, 1, 2).unwrap();
    assert_eq!(poll(&fence, NOW), Events::empty());
    assert_eq!(sync_file::status(&fence), Ok(None));
    assert_eq!(poll(&set, NOW), Events::empty());

    // The view of all syncpoints lies above 2^40 here, out of host's reach, so the acquire reads the window.
    write(&memory, &release(point.gpu_va, 77));
    submit(&ring, &userd, &doorbell, chain.token, va, 6);
    wait_until("the first increment", || syncpoint(&chain.channel).unwrap().syncpoint_max == 1);
    assert_eq!(poll(&fence, NOW), Events::empty());
    write(
        &memory,
        &[release(point.gpu_va + 0x4000, 0), acquire(point.gpu_va, 2), release(va + 0x800, 9)].concat(),
    );
    submit(&ring, &userd, &doorbell, chain.token, va, 18);
    assert_eq!(poll(&fence, LONG), Events::IN);
    assert_eq!(sync_file::status(&fence), Ok(Some(Ok(()))));
    assert_eq!(poll(&set, LONG), Events::IN | Events::PRIORITY);
    assert_eq!(poll(&set, NOW), Events::empty(), "a poll descriptor reports once");
    assert_eq!(poll(&fence, NOW), Events::IN, "a fence stays");
    wait_until("the acquire", || word(&memory, 0x800).load(Ordering::Acquire) == 9);
    assert_eq!(syncpoint(&chain.channel).unwrap().syncpoint_max, 2);

    // A threshold that has already been reached is reported immediately.
    trigger(&node, &set, 1, 1).unwrap();
    assert_eq!(poll(&set, NOW), Events::IN | Events::PRIORITY);
    assert_eq!(poll(&create_fence(&bench, &node, 1, 2), NOW), Events::IN);
    let mut inside = [FenceExtractFence::default(); 2];
    assert_eq!(host1x::fence_extract(&node, &fence, &mut inside), Ok(1));
    assert_eq!((inside[0].id, inside[0].threshold), (1, 2));
}

#[test]
fn closing_a_channel_wakes_its_waiters() {
    let bench = Bench::new();
    let chain = bench.chain();
    let point = syncpoint(&chain.channel).unwrap();
    let node = fences(&bench);
    let (first, second) = (pollfd(&bench, &node), pollfd(&bench, &node));
    trigger(&node, &first, point.syncpoint_id, 1000).unwrap();
    trigger(&node, &second, point.syncpoint_id, 2000).unwrap();
    let fence = create_fence(&bench, &node, point.syncpoint_id, 2000);

    channel::FORCE_RESET.send(&chain.channel, 0).unwrap();
    assert_eq!(poll(&first, NOW), Events::IN | Events::PRIORITY);
    assert_eq!(poll(&second, NOW), Events::empty());
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(20));
            close(&bench.door, chain.channel.raw()).unwrap();
        });
        assert_eq!(poll(&second, LONG), Events::IN | Events::PRIORITY);
    });
    std::mem::forget(chain.channel);
    assert_eq!(sync_file::status(&fence), Ok(Some(Ok(()))), "as if the work had been done");

    // The syncpoint is free again and keeps its value.
    let next = bench.channel();
    bind_space(&chain.space, &next).unwrap();
    let again = syncpoint(&next).unwrap();
    assert_eq!((again.syncpoint_id, again.syncpoint_max), (point.syncpoint_id, 2000));
    drop((next, chain.space, chain.tsg, chain.ring, chain.userd, node, first, second, fence));
    assert_eq!(bench.orin.live(), LiveCounts { descriptors: 2, ..LiveCounts::default() });
}

#[test]
fn a_sync_file_times_out() {
    let bench = Bench::with(Config { fence_timeout: Duration::from_millis(30), ..Config::default() });
    let node = fences(&bench);
    let fence = create_fence(&bench, &node, 9, 1);
    std::thread::sleep(Duration::from_millis(60));
    assert_eq!(sync_file::status(&fence), Ok(None), "no wait has started yet");
    let begun = Instant::now();
    assert_eq!(poll(&fence, LONG), Events::IN);
    assert!((Duration::from_millis(30)..LONG).contains(&begun.elapsed()));
    assert_eq!(sync_file::status(&fence), Ok(Some(Err(Errno::TIMEDOUT))));
    assert_eq!(Config::default().fence_timeout, Duration::from_secs(30));
}

#[test]
fn the_view_of_all_syncpoints_is_created_once() {
    let bench = Bench::new();
    let space = bench.try_alloc_as(LOGGED_START, 0xff_0000_0000).unwrap();
    let view = || {
        let mut args = address_space::GetSyncRoMap::default();
        address_space::GET_SYNC_RO_MAP.send(&space, &mut args).unwrap();
        (args.base_gpuva, args.sync_size, args.num_syncpoints)
    };
    assert_eq!(view(), (0xff_0000_0000, 0x1_0000, 1024));
    assert_eq!(view(), view());
    let channel = bench.channel();
    bind_space(&space, &channel).unwrap();
    assert_eq!(syncpoint(&channel).unwrap().gpu_va, 0xff_0400_0000);
}

#[test]
fn every_channel_can_have_one() {
    let bench = Bench::new();
    let space = bench.space();
    let mut channels = Vec::new();
    for _ in 0..512 {
        let channel = bench.channel();
        bind_space(&space, &channel).unwrap();
        syncpoint(&channel).unwrap();
        channels.push(channel);
    }
    assert_eq!(bench.orin.live().syncpoints, 512);
    drop(channels);
    assert_eq!(bench.orin.live().syncpoints, 0);
    let unbound = bench.channel();
    assert_eq!(syncpoint(&unbound).unwrap_err(), Errno::INVAL);
    assert!(bench.orin.kernel_log().iter().any(|line| line.contains("null pointer")));
}

#[test]
fn earlier_work_leaves_its_values() {
    let bench = Bench::with(Config { seed: 7, ..Config::default() });
    let (space, channel) = (bench.space(), bench.channel());
    bind_space(&space, &channel).unwrap();
    let value = syncpoint(&channel).unwrap().syncpoint_max;
    assert!(value > 0 && value.is_multiple_of(1000), "{value}");
}

#[test]
fn requests_of_the_node_are_checked() {
    let bench = Bench::new();
    let node = fences(&bench);
    let mut args = CreateFence { id: 1024, ..CreateFence::default() };
    assert_eq!(host1x::CREATE_FENCE.send(&node, &mut args), Err(Errno::INVAL));
    let set = pollfd(&bench, &node);
    assert_eq!(trigger(&node, &set, 1024, 0), Err(Errno::INVAL));
    assert_eq!(trigger(&node, &bench.ctrl, 1, 0), Err(Errno::INVAL));
    assert_eq!(host1x::fence_extract(&node, &set, &mut []), Err(Errno::INVAL));
    assert_eq!(sync_file::status(&set), Err(Errno::NOTTY));
    let fence = create_fence(&bench, &node, 3, 9);
    assert_eq!(host1x::fence_extract(&node, &fence, &mut []), Ok(1), "the number without room for it");
    let mut info = sync_file::FileInfo { flags: 1, ..Default::default() };
    // SAFETY: no array is given.
    assert_eq!(unsafe { sync_file::FILE_INFO.send_pointing(&fence, &mut info) }, Err(Errno::INVAL));
}
