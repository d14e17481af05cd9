//! Settings of TSGs and channels, waiting, and recovery after a fault.

use core::time::Duration;
use std::time::Instant;

use crate::common::{Work, compute_channel, eventually, open, working};
use kernel_door::Errno;
use nvgpu_channel::{Error, ErrorCode, EventKind, GpuVa, Interleave, Preemption, Watchdog};
use orin_sim::LiveCounts;

/// Longest wait for an expected event.
const PATIENCE: Duration = Duration::from_secs(20);

#[test]
fn a_tsg_takes_every_interleave() {
    let (orin, gpu) = open();
    let tsg = gpu.tsg().unwrap();
    for interleave in [Interleave::High, Interleave::Medium, Interleave::Low] {
        tsg.set_interleave(interleave).unwrap();
    }
    assert_eq!(orin.ioctl_counts().get(&nvgpu_sys::tsg::code::SET_RUNLIST_INTERLEAVE), Some(&3));
}

#[test]
fn preemption_only_gets_finer() {
    let (_orin, gpu) = open();
    let space = gpu.address_space().unwrap();
    let channel = compute_channel(&gpu, &space, 16);
    channel.set_preemption(Preemption::Wait).unwrap();
    channel.set_preemption(Preemption::Block).unwrap();
    channel.set_preemption(Preemption::Instruction).unwrap();
    assert_eq!(channel.set_preemption(Preemption::Block).unwrap_err().errno(), Some(Errno::INVAL));
}

#[test]
fn a_channel_without_the_kernels_jobs_has_no_watchdog() {
    let (_orin, gpu) = open();
    let channel = compute_channel(&gpu, &gpu.address_space().unwrap(), 16);
    channel.set_watchdog(Watchdog::Off).unwrap();
    let on = Watchdog::On { limit: Duration::from_secs(5), quiet: true };
    assert_eq!(channel.set_watchdog(on).unwrap_err().errno(), Some(Errno::INVAL));
    let endless = Watchdog::On { limit: Duration::from_secs(u64::MAX), quiet: false };
    assert!(matches!(channel.set_watchdog(endless), Err(Error::Range { .. })));

    channel.set_switch_limit(Some(Duration::from_secs(10)), false).unwrap();
    channel.set_switch_limit(None, true).unwrap();
    let longest = Duration::from_millis(u64::from(u32::MAX) - 1);
    channel.set_switch_limit(Some(longest), false).unwrap();
    let too_long = longest + Duration::from_millis(1);
    assert!(matches!(channel.set_switch_limit(Some(too_long), false), Err(Error::Range { .. })));
}

/// Every kind of event can be opened; this one follows a semaphore release with awaken.
#[test]
fn a_thread_sleeps_until_the_gpu_interrupts() {
    let (_orin, _gpu, _space, work, mut channel) = working(16);
    let tsg = channel.subcontext().tsg().clone();
    for kind in [
        EventKind::Breakpoint,
        EventKind::Pause,
        EventKind::PreemptionStarted,
        EventKind::PreemptionComplete,
        EventKind::SemaphoreAwaken,
    ] {
        let event = tsg.event(kind).unwrap();
        assert_eq!(event.kind(), kind);
        assert!(!event.wait(Duration::from_millis(1)).unwrap(), "nothing has happened: {kind:?}");
    }
    let event = tsg.completion_event().unwrap();
    let entry = work.release_and_interrupt(0, work.semaphore(), 5);
    channel.submit(entry).unwrap();
    let start = Instant::now();
    while !work.is(5) {
        // A wait may time out; only the condition matters.
        event.wait(Duration::from_millis(100)).unwrap();
        assert!(start.elapsed() < PATIENCE, "the GPU is silent");
    }
}

#[test]
fn the_kernel_waits_for_a_word() {
    let (_orin, _gpu, _space, work, mut channel) = working(16);
    let short = Duration::from_millis(5);
    assert!(!channel.wait_semaphore(&work.buffer, 2048, 6, short).unwrap());
    let entry = work.release_and_interrupt(0, work.semaphore(), 6);
    channel.submit(entry).unwrap();
    assert!(channel.wait_semaphore(&work.buffer, 2048, 6, PATIENCE).unwrap());
    assert!(channel.wait_semaphore(&work.buffer, 2048, 6, short).unwrap(), "at once");
    for (offset, timeout) in [
        (2050, short),
        (4096, short),
        (usize::MAX - 3, short),
        (2048, Duration::ZERO),
        (2048, Duration::from_millis(u32::MAX.into())),
    ] {
        let error = channel.wait_semaphore(&work.buffer, offset, 0, timeout).unwrap_err();
        assert!(matches!(error, Error::Range { .. }), "{offset} {timeout:?}: {error}");
    }
    channel.force_reset().unwrap();
    let error = channel.wait_semaphore(&work.buffer, 2048, 7, PATIENCE).unwrap_err();
    assert_eq!(error.errno(), Some(Errno::TIMEDOUT));
    assert!(error.to_string().contains("out of service"), "{error}");
}

/// After a fault or a reset, everything except TSG and channels stays valid.
#[test]
fn work_goes_on_after_ten_faults() {
    let (orin, gpu) = open();
    let space = gpu.address_space().unwrap();
    let work = Work::new(&gpu, &space);
    let mut subcontext = gpu.tsg().unwrap().subcontext(&space).unwrap();
    let class = gpu.characteristics().compute_class();
    for round in 1..=10 {
        let mut channel = subcontext.channel(class).entries(16).open().unwrap();
        let entry = work.release(0, work.semaphore(), round);
        channel.submit(entry).unwrap();
        assert!(work.wait(round), "round {round}");

        let expected = if round % 2 == 0 {
            channel.force_reset().unwrap();
            ErrorCode::ChannelReset
        } else {
            let entry = work.release(1, GpuVa(0x12_3456_7000), 1);
            channel.submit(entry).unwrap();
            ErrorCode::MmuFault
        };
        assert!(eventually(|| channel.error_notifier().is_some()));
        assert_eq!(channel.error_notifier().unwrap().code, expected);
        assert!(eventually(|| !channel.in_service().unwrap()));
        // A channel on the old TSG never runs.
        drop(channel);
        subcontext = subcontext.renew().unwrap();
    }
    assert_eq!((orin.live().tsgs, orin.live().channels), (1, 0));
    drop((subcontext, work, space, gpu));
    assert_eq!(orin.live(), LiveCounts::default());
}

/// Two instances of the control node, as in two processes.
#[test]
fn a_tsg_is_shared_by_token() {
    let (orin, gpu) = open();
    let other = nvgpu_channel::Gpu::open(gpu.door()).unwrap();
    assert_ne!(gpu.instance_id(), other.instance_id());
    let tsg = gpu.tsg().unwrap();
    let token = tsg.share_with(other.instance_id()).unwrap();
    // The token is valid for that instance only, and once.
    assert_eq!(gpu.shared_tsg(token).unwrap_err().errno(), Some(Errno::INVAL));
    let shared = other.shared_tsg(token).unwrap();
    assert_eq!(other.shared_tsg(token).unwrap_err().errno(), Some(Errno::INVAL));
    shared.set_timeslice(Duration::from_millis(7)).unwrap();
    assert_eq!(tsg.timeslice().unwrap(), Duration::from_millis(7));

    let token = tsg.share_with(other.instance_id()).unwrap();
    tsg.revoke(token).unwrap();
    assert_eq!(tsg.revoke(token).unwrap_err().errno(), Some(Errno::INVAL));
    assert_eq!(other.shared_tsg(token).unwrap_err().errno(), Some(Errno::INVAL));
    assert_eq!(tsg.share_with(9999).unwrap_err().errno(), Some(Errno::INVAL));

    // The TSG exists until both instances have closed it.
    drop(tsg);
    assert_eq!(orin.live().tsgs, 1);
    assert_eq!(shared.timeslice().unwrap(), Duration::from_millis(7));
    drop((shared, other, gpu));
    assert_eq!(orin.live(), LiveCounts::default());
}
