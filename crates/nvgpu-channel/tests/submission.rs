//! Successful and faulting submissions on the software Orin.

use std::time::SystemTime;

use crate::common::{Work, boot, compute_channel, eventually, open, working};
use kernel_door::Errno;
use nvgpu_channel::{Channel, ErrorCode, GpuVa, RingFull, open_kernel_log};
use orin_sim::{Config, Node, Nodes};

/// Submits, waiting for the GPU while the ring is full.
fn submit(channel: &mut Channel, entry: u64) {
    assert!(eventually(|| channel.submit(entry).is_ok()), "the ring stays full");
}

#[test]
fn a_submission_reaches_memory_without_a_system_call() {
    let (orin, _gpu, _space, work, mut channel) = working(1024);
    let entry = work.release(0, work.semaphore(), 0x1234_5678_9abc);
    let before = orin.ioctl_count();
    channel.submit(entry).unwrap();
    assert!(work.wait(0x1234_5678_9abc));
    assert!(eventually(|| channel.ring().is_drained()));
    assert_eq!(channel.error_notifier(), None);
    assert_eq!((channel.gp_get(), channel.gp_put()), (1, 1));
    assert_eq!(orin.ioctl_count(), before);
}

/// Wraps around rings of all small sizes many times; the last value shows the order.
#[test]
fn rings_wrap() {
    let (_orin, gpu) = open();
    let space = gpu.address_space().unwrap();
    for entries in [2, 4, 8, 64] {
        let work = Work::new(&gpu, &space);
        let mut channel = compute_channel(&gpu, &space, entries);
        let rounds = 5 * u64::from(entries) + 3;
        for value in 1..=rounds {
            // A slot of the pushbuffer is reused only after its release.
            if value > 32 {
                assert!(eventually(
                    || work.buffer.load_u64(2048, std::sync::atomic::Ordering::Acquire) >= value - 32
                ));
            }
            let slot = usize::try_from(value % 33).unwrap();
            let entry = work.release(slot, work.semaphore(), value);
            submit(&mut channel, entry);
        }
        assert!(work.wait(rounds), "ring of {entries}");
        assert_eq!(u64::from(channel.gp_put()), rounds % u64::from(entries));
    }
}

/// The GPU consumes nothing before the doorbell rings, so the ring fills up.
#[test]
fn pushed_entries_wait_for_the_kick() {
    let (_orin, _gpu, _space, work, mut channel) = working(8);
    for value in 1..=7 {
        let entry = work.release(usize::try_from(value).unwrap(), work.semaphore(), value);
        channel.push(entry).unwrap();
    }
    let full = RingFull { entries: 8, put: 7, get: 0 };
    assert_eq!(channel.push(0), Err(full));
    assert_eq!(channel.submit(0), Err(full));
    assert_eq!(work.buffer.read_u64(2048), 0);
    channel.kick();
    assert!(work.wait(7));
    assert!(full.to_string().contains("8 entries is full"), "{full}");
}

#[test]
fn two_channels_share_one_doorbell() {
    let (_orin, gpu) = open();
    let space = gpu.address_space().unwrap();
    let (first, second) = (Work::new(&gpu, &space), Work::new(&gpu, &space));
    let mut one = compute_channel(&gpu, &space, 16);
    let mut two = compute_channel(&gpu, &space, 16);
    let (a, b) = (first.release(0, first.semaphore(), 1), second.release(0, second.semaphore(), 2));
    two.submit(b).unwrap();
    one.submit(a).unwrap();
    assert!(first.wait(1) && second.wait(2));
}

#[test]
fn a_channel_can_be_fed_from_another_thread() {
    let (_orin, _gpu, _space, work, mut channel) = working(16);
    let entry = work.release(0, work.semaphore(), 9);
    let channel = std::thread::spawn(move || {
        channel.submit(entry).unwrap();
        channel
    });
    assert!(work.wait(9));
    drop(channel.join().unwrap());
}

#[test]
fn a_fault_is_reported_by_notifier_and_log_and_cured_by_a_new_tsg() {
    let (_orin, gpu) = open();
    let start = SystemTime::now();
    let space = gpu.address_space().unwrap();
    let work = Work::new(&gpu, &space);
    let mut log = open_kernel_log(gpu.door());
    assert_eq!(log.unavailable(), None);
    assert_eq!(log.drain(), Vec::<String>::new());

    let mut channel = compute_channel(&gpu, &space, 16);
    let notifier = channel.notifier().clone();
    let nowhere = GpuVa(0x12_3456_7000);
    let entry = work.release(0, nowhere, 1);
    channel.submit(entry).unwrap();
    assert!(eventually(|| channel.error_notifier().is_some()));
    let fault = channel.error_notifier().unwrap();
    assert_eq!(fault.code, ErrorCode::MmuFault);
    assert!(fault.time >= start && fault.time <= SystemTime::now(), "{:?}", fault.time);
    assert_eq!(fault.to_string(), "MMU fault (code 31)");
    assert!(eventually(|| !channel.in_service().unwrap()));

    let mut lines = Vec::new();
    assert!(
        eventually(|| {
            lines.extend(log.drain());
            lines.iter().any(|line| line.contains("MMU FAULT") && line.contains("0x123456"))
        }),
        "{lines:?}"
    );
    drop(channel);
    assert_eq!(notifier.fault(), Some(fault));

    // The address space and its mappings are still valid.
    let mut channel = compute_channel(&gpu, &space, 16);
    let entry = work.release(0, work.semaphore(), 77);
    channel.submit(entry).unwrap();
    assert!(work.wait(77));
}

#[test]
fn a_reset_takes_the_whole_tsg_down() {
    let (_orin, gpu) = open();
    let space = gpu.address_space().unwrap();
    let subcontext = gpu.tsg().unwrap().subcontext(&space).unwrap();
    let one = subcontext.channel(0xc7c0).open().unwrap();
    let two = subcontext.channel(0xc7b5).open().unwrap();
    one.force_reset().unwrap();
    for channel in [&one, &two] {
        assert!(eventually(|| channel.error_notifier().is_some()));
        assert_eq!(channel.error_notifier().unwrap().code, ErrorCode::ChannelReset);
        assert!(!channel.in_service().unwrap());
    }
}

#[test]
fn a_log_that_cannot_be_read_yields_nothing_and_says_why() {
    for (node, words) in [(Node::Denied, "kernel.dmesg_restrict"), (Node::Absent, "/dev/kmsg")] {
        let nodes = Nodes { kernel_log: node, ..Nodes::default() };
        let (_orin, door) = boot(Config { nodes, ..Config::default() });
        let mut log = open_kernel_log(&door);
        let reason = log.unavailable().unwrap().to_owned();
        assert!(reason.contains(words), "{reason}");
        assert!(log.drain().is_empty());
    }
}

#[test]
fn a_gpu_that_gave_up_says_so() {
    let (orin, gpu) = open();
    orin.quiesce();
    let error = gpu.address_space().unwrap_err();
    assert_eq!(error.errno(), Some(Errno::NODEV));
    assert!(error.to_string().contains("reboot"), "{error}");
}

#[test]
fn sm_error_states_can_be_read_for_each_sm() {
    let (_orin, gpu) = open();
    let tsg = gpu.tsg().unwrap();
    for sm in 0..gpu.characteristics().sm_count() {
        assert_eq!(tsg.sm_error_state(sm).unwrap().warp_esr, 0);
    }
    assert_eq!(tsg.sm_error_state(16).unwrap_err().errno(), Some(Errno::INVAL));
}
