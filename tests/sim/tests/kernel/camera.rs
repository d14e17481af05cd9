//! The synthetic camera: its frames, their fences, lost frames and faults.

use core::time::Duration;
use std::os::fd::{AsFd, BorrowedFd, IntoRawFd};
use std::time::Instant;

use crate::support::*;
use kernel_door::{DoorFd, Errno, Events};
use nvgpu_sys::host1x::{self, FenceExtractFence};
use nvgpu_sys::{paths, sync_file};
use orin_sim::{
    Camera, CameraError, CameraFault, CameraOptions, Frame, FrameFences, FrameFormat, LiveCounts,
};

/// Far above the model's needs, so that only a hang fails.
const LONG: Duration = Duration::from_secs(30);
const MILLISECOND: Duration = Duration::from_millis(1);

/// A small and fast camera.
fn small(fences: FrameFences) -> CameraOptions {
    CameraOptions {
        width: 64,
        height: 16,
        interval: 4 * MILLISECOND,
        readout: MILLISECOND,
        fences,
        ..CameraOptions::default()
    }
}

/// A fence as a descriptor of the door.
fn file(bench: &Bench, frame: &mut Frame) -> Option<DoorFd> {
    frame.fence.take().map(|fence| adopt(&bench.door, fence.into_raw_fd()))
}

fn is_signalled(file: &DoorFd, timeout: Duration) -> bool {
    file.poll(Events::IN, timeout).unwrap().contains(Events::IN)
}

fn bytes_in(camera: &Camera, index: usize) -> Vec<u8> {
    let mut bytes = vec![0; usize::try_from(camera.layout().bytes).unwrap()];
    let len = rustix::io::pread(camera.buffer(index).unwrap(), &mut bytes, 0).unwrap();
    bytes.truncate(len);
    bytes
}

#[test]
fn frames_come_in_order_and_are_complete_after_their_fence() {
    let bench = Bench::new();
    let node = DoorFd::open(&bench.door, paths::HOST1X_FENCE, FLAGS).unwrap();
    let before = bench.orin.live();
    for fences in [FrameFences::Host1x, FrameFences::Other, FrameFences::None] {
        // So many buffers and so much time that no frame is lost on a slow host.
        let options = CameraOptions { buffers: 32, interval: 20 * MILLISECOND, ..small(fences) };
        let camera = bench.orin.camera(options.clone()).unwrap();
        let (mut last, mut threshold) = (Duration::ZERO, None);
        for expected in 0..12 {
            let mut frame = camera.next_frame(LONG).unwrap();
            assert_eq!((frame.sequence, frame.index, frame.is_whole), (expected, expected as usize, true));
            // A frame may be late, but does not overlap the one before it.
            assert!(last.is_zero() || frame.timestamp >= last + options.readout, "{fences:?}");
            last = frame.timestamp;
            let fence = file(&bench, &mut frame);
            assert_eq!(fence.is_some(), fences != FrameFences::None);
            if let Some(fence) = &fence {
                let mut point = [FenceExtractFence::default()];
                if fences == FrameFences::Host1x {
                    assert_eq!(host1x::fence_extract(&node, fence, &mut point), Ok(1));
                    let before = threshold.replace(point[0].threshold);
                    assert!(before.is_none_or(|before| before.wrapping_add(1) == point[0].threshold));
                }
                assert!(is_signalled(fence, LONG));
                assert_eq!(sync_file::status(fence), Ok(Some(Ok(()))));
            }
            assert!(bytes_in(&camera, frame.index) == options.content(expected).unwrap(), "{expected}");
            drop(fence);
            camera.queue(frame.index, None).unwrap();
        }
        assert_eq!(camera.dropped(), 0, "{fences:?}");
        drop(camera);
        assert_eq!(bench.orin.live(), before, "{fences:?}");
    }
}

#[test]
fn the_gpu_has_a_frame_at_one_address() {
    let bench = Bench::new();
    let camera = bench.orin.camera(small(FrameFences::None)).unwrap();
    let space = bench.space();
    let mut addresses = std::collections::BTreeMap::new();
    for _ in 0..8 {
        let frame = camera.next_frame(LONG).unwrap();
        let buffer = rustix::io::dup(camera.buffer(frame.index).unwrap()).unwrap();
        let buffer = adopt(&bench.door, buffer.into_raw_fd());
        let va = map(&space, &buffer).unwrap();
        assert_eq!(*addresses.entry(frame.index).or_insert(va), va);
        camera.queue(frame.index, None).unwrap();
    }
    assert_eq!((addresses.len(), bench.orin.live().gpu_mappings), (4, 4));
}

#[test]
fn formats_have_their_layout_and_show_their_number() {
    for (format, pitch, planes, bytes) in [
        (FrameFormat::Nv12, 256, vec![(0, 64, 16), (4096, 64, 8)], 256 * 24),
        (FrameFormat::Raw10, 256, vec![(0, 128, 16)], 256 * 16),
        (FrameFormat::Rgba, 256, vec![(0, 256, 16)], 256 * 16),
    ] {
        let options = CameraOptions { format, ..small(FrameFences::None) };
        let layout = options.layout().unwrap();
        let found: Vec<_> =
            layout.planes.iter().map(|plane| (plane.offset, plane.row_bytes, plane.rows)).collect();
        assert_eq!((layout.pitch, found, layout.bytes), (pitch, planes, bytes), "{format:?}");
        for number in [0, 1, 0x8000_0001, u32::MAX] {
            let frame = options.content(number).unwrap();
            assert_eq!(options.number_in(&frame), Some(number), "{format:?}");
        }
        let frame = options.content(5).unwrap();
        assert_ne!(frame, options.content(6).unwrap());
        // The second row is no bar of bits.
        assert_eq!(options.number_in(&frame[256..]), None, "{format:?}");
        assert_eq!(options.number_in(&frame[..8]), None);
        // Padding stays 0, and samples of 10 bits in their range.
        assert!(layout.planes[0].row_bytes == 256 || frame[255] == 0);
        let in_range = |word: &[u8]| u16::from_le_bytes([word[0], word[1]]) < 1024;
        assert!(format != FrameFormat::Raw10 || frame.chunks(2).all(in_range));
    }
    // A pitch of the caller's choice.
    let options = CameraOptions { pitch: 68, ..small(FrameFences::None) };
    assert_eq!(options.layout().unwrap().bytes, 68 * 24);
}

#[test]
fn a_frame_without_a_free_buffer_is_lost_and_its_number_missing() {
    let bench = Bench::new();
    let camera = bench.orin.camera(CameraOptions { buffers: 2, ..small(FrameFences::None) }).unwrap();
    wait_until("lost frames", || camera.dropped() >= 3);
    let (first, second) = (camera.next_frame(LONG).unwrap(), camera.next_frame(LONG).unwrap());
    assert_eq!((first.sequence, second.sequence), (0, 1));
    assert!(matches!(camera.next_frame(8 * MILLISECOND), Err(CameraError::TimedOut(_))));
    camera.queue(first.index, None).unwrap();
    let third = camera.next_frame(LONG).unwrap();
    assert!(third.sequence >= 5, "{third:?}");
    assert!(camera.dropped() >= u64::from(third.sequence) - 2);
    assert_eq!(third.index, first.index);
    // A buffer is given back once.
    camera.queue(second.index, None).unwrap();
    for index in [second.index, 2] {
        let refused = camera.queue(index, None);
        assert!(matches!(refused, Err(CameraError::NotGivenOut { index: other }) if other == index));
    }
}

#[test]
fn a_buffer_is_not_written_before_the_fence_of_its_user() {
    let bench = Bench::new();
    let camera = bench.orin.camera(CameraOptions { buffers: 2, ..small(FrameFences::None) }).unwrap();
    let (first, second) = (camera.next_frame(LONG).unwrap(), camera.next_frame(LONG).unwrap());
    let user = bench.orin.foreign_fence("user");
    let file = adopt(&bench.door, user.file(&bench.orin).unwrap());
    // SAFETY: the descriptor is open.
    let file = unsafe { BorrowedFd::borrow_raw(file.raw()) };
    camera.queue(first.index, Some(file)).unwrap();
    let before = camera.dropped();
    wait_until("lost frames", || camera.dropped() >= before + 3);
    assert_eq!(
        CameraOptions::default().number_in(&bytes_in(&camera, first.index)),
        Some(0),
        "not overwritten"
    );
    let refused = camera.queue(second.index, Some(std::io::stdin().as_fd()));
    assert!(matches!(refused, Err(CameraError::Fence(Errno::INVAL | Errno::BADF))));
    user.signal(Ok(()));
    assert_eq!(camera.next_frame(LONG).unwrap().index, first.index);
}

/// What a fault does to the frame with number 2, and that nothing follows.
fn broken(bench: &Bench, fences: FrameFences, fault: CameraFault) -> (Camera, Option<DoorFd>) {
    let camera = bench.orin.camera(CameraOptions { faults: vec![fault], ..small(fences) }).unwrap();
    for _ in 0..2 {
        let frame = camera.next_frame(LONG).unwrap();
        camera.queue(frame.index, None).unwrap();
    }
    let fence = match fences {
        FrameFences::None => None,
        _ => file(bench, &mut camera.next_frame(LONG).unwrap()),
    };
    (camera, fence)
}

#[test]
fn a_frame_that_never_completes_blocks_the_camera_until_it_is_dropped() {
    let bench = Bench::new();
    for fences in [FrameFences::Host1x, FrameFences::Other, FrameFences::None] {
        let (camera, fence) = broken(&bench, fences, CameraFault::NeverComplete(2));
        assert!(matches!(camera.next_frame(20 * MILLISECOND), Err(CameraError::TimedOut(_))), "{fences:?}");
        assert!(fence.as_ref().is_none_or(|fence| !is_signalled(fence, Duration::ZERO)));
        let start = Instant::now();
        drop(camera);
        assert!(start.elapsed() < LONG / 3);
        // A syncpoint is advanced for those that wait; a fence of another driver ends with an error.
        let end = fence.map(|fence| sync_file::status(&fence).unwrap());
        let expected = match fences {
            FrameFences::Host1x => Some(Some(Ok(()))),
            FrameFences::Other => Some(Some(Err(Errno::CANCELED))),
            FrameFences::None => None,
        };
        assert_eq!(end, expected);
    }
    assert_eq!(bench.orin.live().syncpoints, 0);
}

#[test]
fn a_camera_that_stops_says_so() {
    let bench = Bench::new();
    for fences in [FrameFences::Host1x, FrameFences::Other, FrameFences::None] {
        let (camera, fence) = broken(&bench, fences, CameraFault::Stop(2));
        assert!(matches!(camera.next_frame(LONG), Err(CameraError::Stopped)), "{fences:?}");
        let state = fence.map(|fence| sync_file::status(&fence).unwrap());
        let expected = match fences {
            FrameFences::Host1x => Some(None),
            FrameFences::Other => Some(Some(Err(Errno::CANCELED))),
            FrameFences::None => None,
        };
        assert_eq!(state, expected);
    }
}

#[test]
fn a_short_buffer_has_a_part_of_its_frame() {
    let bench = Bench::new();
    let faults = vec![CameraFault::ShortBuffer(1)];
    let options = CameraOptions { height: 64, faults, ..small(FrameFences::None) };
    let camera = bench.orin.camera(options.clone()).unwrap();
    let (whole, cut) = (camera.next_frame(LONG).unwrap(), camera.next_frame(LONG).unwrap());
    assert_eq!((whole.is_whole, cut.is_whole), (true, false));
    let size = rustix::fs::fstat(camera.buffer(1).unwrap()).unwrap().st_size as usize;
    let expected = options.content(1).unwrap();
    assert!(size < expected.len());
    assert_eq!(bytes_in(&camera, 1), expected[..size]);
}

#[test]
fn options_out_of_range_are_refused() {
    let bench = Bench::new();
    let right = small(FrameFences::None);
    for (what, options) in [
        ("one buffer", CameraOptions { buffers: 1, ..right.clone() }),
        ("33 buffers", CameraOptions { buffers: 33, ..right.clone() }),
        ("no interval", CameraOptions { interval: Duration::ZERO, readout: Duration::ZERO, ..right.clone() }),
        ("readout", CameraOptions { readout: 2 * right.interval, ..right.clone() }),
        ("odd", CameraOptions { width: 65, ..right.clone() }),
        ("narrow", CameraOptions { width: 30, ..right.clone() }),
        ("tall", CameraOptions { height: 16386, ..right.clone() }),
        ("pitch", CameraOptions { pitch: 60, ..right.clone() }),
        ("pitch in part words", CameraOptions { pitch: 66, ..right.clone() }),
    ] {
        assert!(matches!(bench.orin.camera(options), Err(CameraError::Options { .. })), "{what}");
    }
    assert!(bench.orin.camera(CameraOptions { buffers: 32, ..right }).is_ok());
}

/// The camera, its buffers and its fences may be dropped in any order, and the board's handles before them.
#[test]
fn a_camera_and_its_fences_outlive_the_board() {
    let bench = Bench::new();
    let camera = bench.orin.camera(small(FrameFences::Host1x)).unwrap();
    let frame = camera.next_frame(LONG).unwrap();
    let orin = bench.orin.clone();
    drop(bench);
    assert_eq!(orin.live(), LiveCounts { descriptors: 1, syncpoints: 1, ..LiveCounts::default() });
    drop(orin);
    let next = camera.next_frame(LONG).unwrap();
    drop(camera);
    // The caller's own: still open without the board.
    for fence in [frame.fence.unwrap(), next.fence.unwrap()] {
        assert!(rustix::fs::fstat(&fence).is_ok());
    }
}
