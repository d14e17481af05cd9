//! Rare answers of the kernel, and answers to requests that the software Orin does not support, from a door in front of
//! it: clocks, cancelled fences, interrupted polls, video memory, misplaced mappings, characteristics of other
//! releases, a flooded log.

use core::sync::atomic::Ordering;
use core::time::Duration;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use crate::common::front::{FIRST_OWN, Front, NODE, argument};
use kernel_door::{Errno, Events};
use nvgpu_channel::{
    ClockRange, ClockReading, Error, FenceNode, Gpu, GpuVa, MapOptions, Threshold, UserSyncpoint,
    open_kernel_log,
};
use nvgpu_sys::{Release, channel, ctrl, host1x, sync_file, tsg};

const TICK: Duration = Duration::from_millis(1);
const POINTS: [u64; 3] = [306_000_000, 612_000_000, 1_300_000_000];

/// The array behind an address in an argument.
///
/// # Safety
///
/// `count` values of `T` are at the address, and nothing else refers to them.
unsafe fn array<'a, T>(address: u64, count: usize) -> &'a mut [T] {
    let pointer = core::ptr::with_exposed_provenance_mut(usize::try_from(address).unwrap());
    // SAFETY: guaranteed by the caller.
    unsafe { core::slice::from_raw_parts_mut(pointer, count) }
}

/// A model of the driver's clock arbiter.
fn arbiter(request: u32, pointer: *mut core::ffi::c_void, target: &Mutex<u64>) -> Option<Result<i32, Errno>> {
    use ctrl::code;
    Some(match request {
        code::CLK_GET_RANGE => {
            // SAFETY: the request's argument, and the entry it names.
            let range = unsafe {
                let args = argument::<ctrl::ClkRangeArgs>(pointer);
                assert_eq!((args.flags, args.num_entries), (1, 1));
                &mut array::<ctrl::ClkRange>(args.clk_range_entries, 1)[0]
            };
            (range.min_hz, range.max_hz) = (POINTS[0], POINTS[2]);
            if range.clk_domain == ctrl::CLK_DOMAIN_GPCCLK { Ok(0) } else { Err(Errno::INVAL) }
        }
        code::CLK_GET_VF_POINTS => {
            // SAFETY: the request's argument.
            let args = unsafe { argument::<ctrl::ClkVfPointsArgs>(pointer) };
            if args.max_entries == 0 {
                args.max_entries = 3;
                return Some(Ok(0));
            }
            assert_eq!(args.max_entries, 3);
            args.num_entries = 3;
            // SAFETY: `max_entries` entries.
            let points = unsafe { array::<ctrl::ClkVfPoint>(args.clk_vf_point_entries, 3) };
            points.iter_mut().zip(POINTS).for_each(|(point, hz)| point.freq_hz = hz);
            Ok(0)
        }
        code::CLK_GET_INFO => {
            // SAFETY: the request's argument, and the entry it names.
            let info = unsafe {
                let args = argument::<ctrl::ClkGetInfo>(pointer);
                &mut array::<ctrl::ClkInfo>(args.clk_info_entries, 1)[0]
            };
            info.freq_hz = *target.lock().unwrap() + u64::from(info.clk_type);
            Ok(0)
        }
        code::CLK_SET_INFO => {
            // SAFETY: the request's argument, and the entry it names.
            let (args, info) = unsafe {
                let args = argument::<ctrl::ClkSetInfo>(pointer);
                let info = array::<ctrl::ClkInfo>(args.clk_info_entries, 1)[0];
                (args, info)
            };
            assert_eq!((args.flags, args.num_entries, info.clk_type), (0, 1, ctrl::CLK_TYPE_TARGET));
            *target.lock().unwrap() = info.freq_hz;
            args.completion_fd = FIRST_OWN + 5;
            Ok(0)
        }
        _ => return None,
    })
}

#[test]
fn clocks_are_read_and_requested() {
    let target = Arc::new(Mutex::new(POINTS[0]));
    let set = Arc::clone(&target);
    let front = Front::new(move |request, pointer| arbiter(request, pointer, &set));
    let gpu = Gpu::open(&front.door()).unwrap();
    assert_eq!(gpu.clock_range().unwrap(), ClockRange { min_hz: POINTS[0], max_hz: POINTS[2] });
    assert_eq!(gpu.clock_points().unwrap(), POINTS);
    assert_eq!(gpu.clock_hz(ClockReading::Target).unwrap(), POINTS[0] + 1);
    assert_eq!(gpu.clock_hz(ClockReading::Effective).unwrap(), POINTS[0] + 3);
    let request = gpu.boost_clock().unwrap();
    assert_eq!(*target.lock().unwrap(), POINTS[2]);
    front.will_poll([Ok(Events::empty()), Err(Errno::INTR), Ok(Events::IN), Err(Errno::INVAL)]);
    assert!(!request.wait(TICK).unwrap());
    assert!(!request.wait(TICK).unwrap());
    assert!(request.wait(TICK).unwrap());
    assert_eq!(request.wait(TICK).unwrap_err().errno(), Some(Errno::INVAL));
    assert_eq!(request.gpu().characteristics().chip_name(), "ga10b");
    drop(request);
    assert_eq!(*front.closed.lock().unwrap(), [FIRST_OWN + 5]);
}

#[test]
fn a_refused_clock_request_is_reported() {
    for (errno, name) in [(Errno::INVAL, "NVGPU_GPU_IOCTL_CLK_SET_INFO"), (Errno::PERM, "CLK_SET_INFO")] {
        let front = Front::new(move |request, _| (request == ctrl::code::CLK_SET_INFO).then_some(Err(errno)));
        let gpu = Gpu::open(&front.door()).unwrap();
        let error = gpu.request_clock(1).unwrap_err();
        assert_eq!(error.errno(), Some(errno));
        assert!(error.to_string().contains(name), "{error}");
        assert!(!error.to_string().contains("scheduling control"), "{error}");
    }
}

/// The fence node and its sync-files.
fn fences(request: u32, pointer: *mut core::ffi::c_void, status: &Mutex<i32>) -> Option<Result<i32, Errno>> {
    use host1x::code;
    Some(match request {
        code::CREATE_FENCE => {
            // SAFETY: the request's argument.
            let args = unsafe { argument::<host1x::CreateFence>(pointer) };
            assert_eq!(args.reserved, [0]);
            if args.id >= 1024 {
                return Some(Err(Errno::INVAL));
            }
            args.fence_fd = FIRST_OWN + 1;
            Ok(0)
        }
        sync_file::code::FILE_INFO => {
            // SAFETY: the request's argument.
            let args = unsafe { argument::<sync_file::FileInfo>(pointer) };
            assert_eq!((args.flags, args.num_fences), (0, 0));
            args.status = *status.lock().unwrap();
            Ok(0)
        }
        _ => return None,
    })
}

#[test]
fn fences_end_with_success_an_error_or_not_yet() {
    let status = Arc::new(Mutex::new(1));
    let set = Arc::clone(&status);
    let front = Front::new(move |request, pointer| fences(request, pointer, &status));
    let node = FenceNode::open(&front.door()).unwrap();
    let syncpoint = UserSyncpoint { id: 17, gpu_va: GpuVa(0xfc_0001_0000), value: u32::MAX };
    let threshold = syncpoint.after(4);
    assert_eq!(threshold, Threshold { id: 17, value: 3 });

    let fence = node.fence(threshold).unwrap();
    front.will_poll([Ok(Events::empty()), Err(Errno::INTR), Ok(Events::IN), Ok(Events::IN), Ok(Events::IN)]);
    assert!(!fence.wait(TICK).unwrap());
    assert!(!fence.wait(TICK).unwrap());
    assert!(fence.wait(TICK).unwrap());
    // The kernel cancels the fence after 30 s; the sync-file then polls readable too.
    *set.lock().unwrap() = -110;
    let error = fence.wait(TICK).unwrap_err();
    assert_eq!(error.errno(), Some(Errno::TIMEDOUT), "{error}");
    assert!(error.to_string().ends_with("create a new one"), "no channel is at fault: {error}");
    *set.lock().unwrap() = 0;
    assert!(!fence.wait(TICK).unwrap());
    assert_eq!(node.fence(Threshold { id: 1024, value: 0 }).unwrap_err().errno(), Some(Errno::INVAL));

    drop((node, fence));
    assert_eq!(*front.closed.lock().unwrap(), [NODE, FIRST_OWN + 1]);
}

#[test]
fn video_memory_is_none_or_counted() {
    for (answer, expected) in [(Err(Errno::NOSYS), None), (Err(Errno::NOTTY), None), (Ok(0), Some(1 << 30))] {
        let front = Front::new(move |request, pointer| {
            (request == ctrl::code::GET_MEMORY_STATE).then(|| {
                // SAFETY: the request's argument.
                unsafe { argument::<ctrl::GetMemoryState>(pointer) }.total_free_bytes = 1 << 30;
                answer
            })
        });
        let gpu = Gpu::open(&front.door()).unwrap();
        assert_eq!(gpu.video_memory_free().unwrap(), expected);
    }
    let front =
        Front::new(|request, _| (request == ctrl::code::GET_MEMORY_STATE).then_some(Err(Errno::NODEV)));
    let error = Gpu::open(&front.door()).unwrap().video_memory_free().unwrap_err();
    assert!(matches!(error, Error::Call { errno: Errno::NODEV, .. }), "{error}");
}

/// Opens the GPU of a kernel whose characteristics have `size` bytes and begin with `bytes`.
fn open_with(bytes: Vec<u8>, size: u64) -> Result<Gpu, Error> {
    let front = Front::new(move |request, pointer| {
        (request == ctrl::code::GET_CHARACTERISTICS).then(|| {
            // SAFETY: the request's argument.
            let args = unsafe { argument::<ctrl::GetCharacteristics>(pointer) };
            assert_eq!(args.gpu_characteristics_buf_size, 344, "all known layouts fit");
            let len = bytes.len().min(344).min(usize::try_from(size).unwrap());
            // SAFETY: the buffer has 344 bytes.
            unsafe { array::<u8>(args.gpu_characteristics_buf_addr, len) }.copy_from_slice(&bytes[..len]);
            args.gpu_characteristics_buf_size = size;
            Ok(0)
        })
    });
    Gpu::open(&front.door())
}

#[test]
fn the_gpu_opens_with_the_characteristics_of_each_release() {
    let orin = ctrl::Characteristics { huge_page_size: 2 << 20, ..orin_sim::config::agx_orin() };
    for (release, sizes) in [(Release::R36_4_3, &[328][..]), (Release::R39_2, &[336, 344, 400])] {
        for size in sizes {
            let gpu = open_with(orin.write(release), *size).unwrap();
            let seen = gpu.characteristics();
            assert_eq!((seen.interface(), seen.chip_name().as_str()), (release, "ga10b"), "{size}");
            assert_eq!(seen.raw().compression_page_size, 0x1_0000);
            assert_eq!(seen.raw().huge_page_size != 0, release == Release::R39_2);
        }
    }
    let error = open_with(vec![0xa5; 344], 344).unwrap_err();
    assert!(matches!(error, Error::UnknownLayout { bytes: 344, release: Some(Release::R39_2) }), "{error}");
    let error = open_with(orin.write(Release::R39_2), 60).unwrap_err();
    assert!(matches!(error, Error::UnknownLayout { bytes: 60, release: None }), "{error}");
}

#[test]
fn a_channels_syncpoint_is_read_in_the_kernels_order() {
    let front = Front::new(|request, pointer| {
        (request == channel::code::GET_USER_SYNCPOINT).then(|| {
            // The answer of an Orin, with this layout.
            let answer =
                channel::GetUserSyncpoint { gpu_va: 0xff_ffe1_0000, syncpoint_id: 17, syncpoint_max: 28_000 };
            // SAFETY: the request's argument.
            *unsafe { argument(pointer) } = answer;
            Ok(0)
        })
    });
    let gpu = Gpu::open(&front.door()).unwrap();
    let channel = crate::common::compute_channel(&gpu, &gpu.address_space().unwrap(), 16);
    let expected = UserSyncpoint { id: 17, gpu_va: GpuVa(0xff_ffe1_0000), value: 28_000 };
    assert_eq!(channel.user_syncpoint().unwrap(), expected);
}

#[test]
fn the_completion_event_tells_events_from_silence() {
    let front = Front::new(|request, pointer| {
        (request == tsg::code::EVENT_ID_CTRL).then(|| {
            // SAFETY: the request's argument.
            let args = unsafe { argument::<tsg::EventIdCtrl>(pointer) };
            assert_eq!((args.cmd, args.event_id), (1, 2));
            args.event_fd = FIRST_OWN + 2;
            Ok(0)
        })
    });
    let tsg = Gpu::open(&front.door()).unwrap().tsg().unwrap();
    let event = tsg.completion_event().unwrap();
    let both = Events::IN | Events::PRIORITY;
    front.will_poll([Ok(both), Ok(Events::empty()), Err(Errno::INTR), Err(Errno::INVAL)]);
    assert!(event.wait(TICK).unwrap());
    assert!(!event.wait(TICK).unwrap());
    assert!(!event.wait(TICK).unwrap());
    assert_eq!(event.wait(TICK).unwrap_err().errno(), Some(Errno::INVAL));
    drop(event);
    assert_eq!(*front.closed.lock().unwrap(), [FIRST_OWN + 2]);
}

/// The kernel returns ETIMEDOUT for every request to a channel that is being torn down.
#[test]
fn a_channel_that_can_no_longer_be_asked_is_out_of_service() {
    let answer = Arc::new(Mutex::new(None));
    let set = Arc::clone(&answer);
    let front = Front::new(move |request, _| {
        let answer = *answer.lock().unwrap();
        answer.filter(|_| request == channel::code::GET_TIMEDOUT).map(Err)
    });
    let gpu = Gpu::open(&front.door()).unwrap();
    let channel = crate::common::compute_channel(&gpu, &gpu.address_space().unwrap(), 16);
    assert!(channel.in_service().unwrap());
    *set.lock().unwrap() = Some(Errno::TIMEDOUT);
    assert!(!channel.in_service().unwrap());
    *set.lock().unwrap() = Some(Errno::NODEV);
    assert_eq!(channel.in_service().unwrap_err().errno(), Some(Errno::NODEV));
}

#[test]
fn a_kernel_that_places_things_elsewhere_is_caught() {
    let front = Front::new(|_, _| None);
    let gpu = Gpu::open(&front.door()).unwrap();
    let space = gpu.address_space().unwrap();
    let buffer = Arc::new(gpu.nvmap().buffer(4096).allocate().unwrap());
    let va = GpuVa(0x1000_0000);
    let range = space.reserve_fixed(va, 8192, false).unwrap();
    front.displacement.store(4096, Ordering::Relaxed);
    let (wanted, got) = (GpuVa(0x2000_0000), GpuVa(0x2000_1000));
    let error = space.reserve_fixed(wanted, 8192, false).unwrap_err();
    assert!(matches!(error, Error::Misplaced { wanted: a, got: b } if (a, b) == (wanted, got)), "{error}");
    let error = range.map(0, &buffer, 0, 4096, MapOptions::default()).unwrap_err();
    assert_eq!(error.to_string(), "the kernel placed a mapping at 0x10001000 instead of 0x10000000");
}

#[test]
fn the_log_skips_lost_records_and_stops_at_errors() {
    let front = Front::new(|_, _| None);
    let mut log = open_kernel_log(&front.door());
    *front.records.lock().unwrap() = VecDeque::from([
        Ok("3,1,10,-;nvgpu: 17000000.gpu first\n SUBSYSTEM=platform\n"),
        Err(Errno::PIPE),
        Ok("6,7,11,-;usb 1-2: something else\n"),
        Ok("3,8,12,-;__ga10b__ second\n"),
        Err(Errno::AGAIN),
        Ok("3,9,13,-;nvgpu: third\n"),
        Err(Errno::IO),
        Ok("3,10,14,-;nvgpu: never read\n"),
    ]);
    assert_eq!(log.drain(), ["nvgpu: 17000000.gpu first", "__ga10b__ second"]);
    assert_eq!(log.drain(), ["nvgpu: third"]);
    assert!(log.unavailable().unwrap().contains("/dev/kmsg"));
    assert!(log.drain().is_empty());
}

/// The reader returns even if the log overflows faster than it reads.
#[test]
fn draining_the_log_is_bounded() {
    let front = Front::new(|_, _| None);
    let mut log = open_kernel_log(&front.door());
    *front.records.lock().unwrap() = (0..5000).map(|_| Ok("3,1,1,-;nvgpu: flood\n")).collect();
    assert_eq!(log.drain().len(), 4096);
    assert_eq!(log.drain().len(), 904);
}
