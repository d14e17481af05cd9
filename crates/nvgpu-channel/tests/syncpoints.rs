//! Syncpoints, clocks and L2 settings on the software Orin.

use core::time::Duration;

use crate::common::{compute_channel, eventually, open, working};
use kernel_door::Errno;
use nvgpu_channel::{ClockReading, ErrorCode, FenceNode, GpuVa, SectorPromotion, Threshold, has_reached};

const SHORT: Duration = Duration::from_millis(5);
const PATIENCE: Duration = Duration::from_secs(20);

#[test]
fn the_cpu_sleeps_until_the_gpu_has_counted() {
    let (_orin, gpu, _space, work, mut channel) = working(16);
    let syncpoint = channel.user_syncpoint().unwrap();
    assert_eq!(channel.user_syncpoint().unwrap(), syncpoint, "nothing has counted yet");
    let node = FenceNode::open(gpu.door()).unwrap();

    let fence = node.fence(syncpoint.after(1)).unwrap();
    let second = node.fence(syncpoint.after(2)).unwrap();
    assert!(!fence.wait(SHORT).unwrap());
    // Any write to the window increments the syncpoint; the value does not matter.
    let count = work.release(0, syncpoint.gpu_va, 0);
    channel.submit(count).unwrap();
    assert!(fence.wait(PATIENCE).unwrap());
    // A release of 8 bytes writes two words.
    let after = channel.user_syncpoint().unwrap().value;
    assert!(has_reached(after, syncpoint.after(1).value));
    assert!(
        node.fence(syncpoint.after(1)).unwrap().wait(SHORT).unwrap(),
        "a threshold already passed counts"
    );
    let next = node.fence(Threshold { id: syncpoint.id, value: after.wrapping_add(1) }).unwrap();
    assert!(!next.wait(SHORT).unwrap());
    channel.submit(count).unwrap();
    assert!(next.wait(PATIENCE).unwrap());
    assert!(second.wait(PATIENCE).unwrap());
    assert_eq!(channel.error_notifier(), None);
}

/// A completed wait does not mean success.
#[test]
fn a_fault_wakes_everybody_and_the_notifier_says_why() {
    let (_orin, gpu, _space, work, mut channel) = working(16);
    let syncpoint = channel.user_syncpoint().unwrap();
    let node = FenceNode::open(gpu.door()).unwrap();
    let fence = node.fence(syncpoint.after(500)).unwrap();
    let entry = work.release(0, GpuVa(0x12_3456_7000), 1);
    channel.submit(entry).unwrap();
    assert!(fence.wait(PATIENCE).unwrap());
    assert!(eventually(|| channel.error_notifier().is_some()));
    assert_eq!(channel.error_notifier().unwrap().code, ErrorCode::MmuFault);
}

#[test]
fn the_window_over_all_syncpoints_is_mapped_once() {
    let (_orin, gpu) = open();
    let space = gpu.address_space().unwrap();
    let window = space.syncpoint_window().unwrap();
    assert_eq!((window.stride, window.count), (0x1_0000, 1024));
    assert_eq!(space.syncpoint_window().unwrap(), window);
    // The window is in the kernel's range, which ends below the shader windows.
    assert!(window.base >= nvgpu_channel::VA_END);
    assert!(window.address(1023).unwrap() < nvgpu_channel::LOCAL_WINDOW);
    assert_eq!(window.address(1024), None);
}

#[test]
fn syncpoints_that_do_not_exist_are_refused() {
    let (_orin, gpu) = open();
    let node = FenceNode::open(gpu.door()).unwrap();
    let nowhere = Threshold { id: 1024, value: 0 };
    assert_eq!(node.fence(nowhere).unwrap_err().errno(), Some(Errno::INVAL));
}

#[test]
fn the_clock_follows_requests() {
    let (_orin, gpu) = open();
    let range = gpu.clock_range().unwrap();
    let points = gpu.clock_points().unwrap();
    assert_eq!((points.first(), points.last()), (Some(&range.min_hz), Some(&range.max_hz)));
    assert!(points.is_sorted());
    let request = gpu.boost_clock().unwrap();
    assert!(request.wait(PATIENCE).unwrap());
    for reading in [ClockReading::Target, ClockReading::Actual, ClockReading::Effective] {
        assert_eq!(gpu.clock_hz(reading).unwrap(), range.max_hz, "{reading:?}");
    }
    assert!(gpu.request_clock(range.min_hz).unwrap().wait(PATIENCE).unwrap());
    assert_eq!(gpu.clock_hz(ClockReading::Target).unwrap(), range.min_hz);
}

#[test]
fn an_orin_has_no_video_memory() {
    let (_orin, gpu) = open();
    assert_eq!(gpu.video_memory_free().unwrap(), None);
}

#[test]
fn the_l2_can_be_told_what_to_keep() {
    let (_orin, gpu) = open();
    let space = gpu.address_space().unwrap();
    let channel = compute_channel(&gpu, &space, 16);
    let tsg = channel.subcontext().tsg();
    tsg.set_l2_evict_last_ways(8).unwrap();
    assert_eq!(tsg.l2_evict_last_ways().unwrap(), 8);
    assert_eq!(tsg.set_l2_evict_last_ways(17).unwrap_err().errno(), Some(Errno::INVAL));
    for promotion in [SectorPromotion::None, SectorPromotion::Bytes64, SectorPromotion::Bytes128] {
        tsg.set_l2_sector_promotion(promotion).unwrap();
    }
}

/// Work that was submitted while the TSG was disabled runs once it is enabled again.
#[test]
fn a_disabled_tsg_waits() {
    let (_orin, _gpu, _space, work, mut channel) = working(16);
    let tsg = channel.subcontext().tsg().clone();
    tsg.disable().unwrap();
    let entry = work.release(0, work.semaphore(), 3);
    channel.submit(entry).unwrap();
    std::thread::sleep(SHORT);
    assert!(!work.is(3));
    tsg.enable().unwrap();
    assert!(work.wait(3));
    tsg.preempt().unwrap();
}
