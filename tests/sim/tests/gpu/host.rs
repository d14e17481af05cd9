//! Ring, pushbuffer, host methods.

use core::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use ampere_cmd::command::{
    AcquireCondition, Payload, ReductionOperation, SemaphoreAcquire, SemaphoreReduction, SemaphoreRelease,
};
use ampere_cmd::gpfifo::{Entry, Operation, Segment, userd};
use ampere_cmd::pushbuffer::Header;
use ampere_cmd::{Method, Subchannel, host_c76f, usermode_c561};
use orin_sim::gpu::{
    Activity, ChannelFault, ChannelGroup, ChannelSetup, FaultHandler, Gpu, GpuConfig, ptimer_ns,
};
use orin_sim::memory::Memory;
use orin_sim::mmu::AddressSpace;

use crate::rig::{Rig, SEMAPHORES, acquire, release};

#[test]
fn a_release_writes_payload_and_time() {
    let rig = Rig::new();
    let mut ring = rig.channel(511, 4);
    let before = ptimer_ns();
    let write = SemaphoreRelease {
        va: SEMAPHORES,
        payload: Payload::Bits64(0x00de_adbe_ef42),
        wait_for_idle: true,
        timestamp: true,
    };
    ring.commands(|encoder| encoder.semaphore_release(&write).unwrap());
    rig.wait_for(0, 0xadbe_ef42);
    assert_eq!(rig.semaphores.load(4), 0xde);
    let time = rig.time(0);
    assert!((before..=ptimer_ns()).contains(&time), "{time} is not after {before}");
    assert_eq!(time % 32, 0, "PTIMER counts in steps of 32 ns");
}

#[test]
fn the_ring_wraps_and_gp_get_follows() {
    let rig = Rig::new();
    let mut ring = rig.channel(3, 4);
    for value in 1..=100 {
        ring.commands(|encoder| encoder.semaphore_release(&release(SEMAPHORES, value)).unwrap());
    }
    rig.wait_for(0, 100);
    assert_eq!(ring.gp_get(), 100 % 4);
}

#[test]
fn gp_put_without_a_doorbell_does_nothing() {
    let rig = Rig::new();
    let mut ring = rig.channel(3, 8);
    let mut encoder = ampere_cmd::Encoder::new(Vec::new());
    encoder.semaphore_release(&release(SEMAPHORES, 1)).unwrap();
    let words = encoder.into_sink();
    let va = ring.place(&words);
    ring.entry(Entry::from(Segment::new(va, words.len() as u32)).encode().unwrap());
    std::thread::sleep(Duration::from_millis(20));
    assert_eq!((ring.gp_get(), rig.semaphores.load(0)), (0, 0));
    ring.ring_doorbell();
    rig.wait_for(0, 1);
}

#[test]
fn a_lost_token_loses_no_channel() {
    let rig = Rig::new();
    let mut rings: Vec<_> = (0..4).map(|id| rig.channel(id, 16)).collect();
    for value in 1..50 {
        // All doorbells in quick succession: most tokens are overwritten before the GPU polls.
        for (index, ring) in rings.iter_mut().enumerate() {
            ring.commands(|encoder| {
                encoder.semaphore_release(&release(SEMAPHORES + index as u64 * 16, value)).unwrap();
            });
        }
        (0..4).for_each(|index| rig.wait_for(index * 16, value));
    }
}

#[test]
fn channels_wait_for_each_other() {
    let rig = Rig::new();
    let (mut first, mut second) = (rig.channel(10, 16), rig.channel(11, 16));
    for round in 0..20 {
        let value = round * 2 + 1;
        second.commands(|encoder| {
            encoder.semaphore_acquire(&acquire(SEMAPHORES, value)).unwrap();
            encoder.semaphore_release(&release(SEMAPHORES, value + 1)).unwrap();
        });
        first.commands(|encoder| {
            encoder.semaphore_acquire(&acquire(SEMAPHORES, value - 1)).unwrap();
            encoder.semaphore_release(&release(SEMAPHORES, value)).unwrap();
        });
    }
    rig.wait_for(0, 40);
}

#[test]
fn every_acquire_condition_blocks_until_it_holds() {
    let rig = Rig::new();
    let mut ring = rig.channel(7, 8);
    // Condition, payload, a value that does not satisfy it, and one that does.
    let cases = [
        (AcquireCondition::Equal, Payload::Bits32(5), 6, 5),
        (AcquireCondition::StrictGreaterOrEqual, Payload::Bits32(5), 4, 0xffff_ffff),
        (AcquireCondition::CircularGreaterOrEqual, Payload::Bits32(0xffff_fff0), 0xffff_ffef, 2),
        (AcquireCondition::CircularGreaterOrEqual, Payload::Bits64(9), 8, 9),
        (AcquireCondition::AnySet, Payload::Bits32(6), 1, 4),
        (AcquireCondition::AnyClear, Payload::Bits32(!8), 8, 0),
    ];
    for (index, (condition, payload, blocking, passing)) in cases.into_iter().enumerate() {
        let done = index as u32 + 1;
        rig.semaphores.store(0, blocking);
        let wait = SemaphoreAcquire { va: SEMAPHORES, payload, condition, switch_tsg: false };
        ring.commands(|encoder| {
            encoder.semaphore_acquire(&wait).unwrap();
            encoder.semaphore_release(&release(SEMAPHORES + 16, done)).unwrap();
        });
        let waiting = |activity: &Activity| matches!(activity, Activity::WaitingForSemaphore { .. });
        let Activity::WaitingForSemaphore { va, memory, .. } = rig.wait_activity(7, waiting) else {
            unreachable!();
        };
        assert_eq!((va, memory), (SEMAPHORES, u64::from(blocking)), "{condition:?}");
        assert_eq!(rig.semaphores.load(16), done - 1, "{condition:?} let {blocking} pass");
        rig.semaphores.store(0, passing);
        rig.wait_for(16, done);
        rig.wait_activity(7, |activity| *activity == Activity::Idle);
    }
}

#[test]
fn reductions_happen_in_memory() {
    let rig = Rig::new();
    let mut ring = rig.channel(7, 8);
    rig.semaphores.store(0, 10);
    rig.semaphores.store(8, u32::MAX);
    let reduction = |va, payload, operation, signed| SemaphoreReduction {
        va,
        payload,
        operation,
        signed,
        wait_for_idle: false,
    };
    ring.commands(|encoder| {
        for (va, payload, operation, signed) in [
            (SEMAPHORES, Payload::Bits32(5), ReductionOperation::Iadd, false),
            (SEMAPHORES, Payload::Bits32(0xffff_ffff), ReductionOperation::Imax, true),
            (SEMAPHORES, Payload::Bits32(15), ReductionOperation::Inc, false),
            (SEMAPHORES, Payload::Bits32(0x70), ReductionOperation::Ior, false),
            (SEMAPHORES + 8, Payload::Bits64(1), ReductionOperation::Iadd, false),
        ] {
            encoder.semaphore_reduction(&reduction(va, payload, operation, signed)).unwrap();
        }
        encoder.semaphore_release(&release(SEMAPHORES + 0x20, 1)).unwrap();
    });
    rig.wait_for(0x20, 1);
    // (10 + 5), max(15, -1) = 15, INC to 15 wraps to 0, then 0x70; the 64-bit sum carries.
    assert_eq!(rig.semaphores.load(0), 0x70);
    assert_eq!((rig.semaphores.load(8), rig.semaphores.load(12)), (0, 1));
}

#[test]
fn the_older_semaphore_methods_work() {
    let rig = Rig::new();
    let mut ring = rig.channel(7, 8);
    let execute = host_c76f::Semaphored {
        operation: host_c76f::SemaphoredOperation::Release,
        release_size: host_c76f::SemaphoredReleaseSize::_16byte,
        ..Default::default()
    };
    ring.commands(|encoder| {
        encoder
            .sequence(
                Subchannel::HOST,
                &(
                    host_c76f::Semaphorea { offset_upper: (SEMAPHORES >> 32) as u32 },
                    host_c76f::Semaphoreb { offset_lower: SEMAPHORES as u32 >> 2 },
                    host_c76f::Semaphorec { payload: 77 },
                    execute,
                ),
            )
            .unwrap();
    });
    rig.wait_for(0, 77);
    assert_ne!(rig.semaphores.load(8), 0, "16 bytes carry the time");
}

#[test]
fn host_methods_act() {
    let rig = Rig::new();
    let mut ring = rig.channel(7, 8);
    ring.commands(|encoder| {
        encoder.non_incrementing(Subchannel::HOST, host_c76f::Nop::ADDRESS, &[1, 2, 3]).unwrap();
        encoder.method(Subchannel::HOST, &host_c76f::SetReference { count: 0x1234 }).unwrap();
        encoder.wait_for_idle(host_c76f::WfiScope::All).unwrap();
        encoder.non_stall_interrupt().unwrap();
        // System barrier of section 5 of the encoding guide, then words that end the segment early.
        encoder.words(&[0x2004_000a, 0, 0, 0, 0x2800_0000]).unwrap();
        encoder.semaphore_release(&release(SEMAPHORES, 1)).unwrap();
        encoder.header(Header::EndSegment).unwrap();
        encoder.semaphore_release(&release(SEMAPHORES, 2)).unwrap();
    });
    ring.commands(|encoder| encoder.semaphore_release(&release(SEMAPHORES + 16, 1)).unwrap());
    rig.wait_for(16, 1);
    assert_eq!(rig.semaphores.load(0), 1, "words behind END_PB_SEGMENT are dropped");
    assert_eq!(ring.userd.load(userd::REFERENCE as usize), 0x1234);
    rig.wait_interrupts(1);
}

#[test]
fn a_method_continues_in_the_next_segment_and_control_entries_pass() {
    let rig = Rig::new();
    let mut ring = rig.channel(7, 8);
    let mut encoder = ampere_cmd::Encoder::new(Vec::new());
    encoder.semaphore_release(&release(SEMAPHORES, 5)).unwrap();
    let words = encoder.into_sink();
    let (head, tail) = words.split_at(3);
    let head = Segment::new(ring.place(head), head.len() as u32);
    let tail = Segment::new(ring.place(tail), tail.len() as u32);
    ring.entry(Entry::from(head).encode().unwrap());
    ring.entry(Entry::Control { operation: Operation::Nop(9), sync: false }.encode().unwrap());
    ring.entry(Entry::from(tail.with_sync()).encode().unwrap());
    ring.ring_doorbell();
    rig.wait_for(0, 5);
}

#[test]
fn a_conditional_segment_follows_the_subdevice_mask() {
    let rig = Rig::new();
    let mut ring = rig.channel(7, 8);
    let words = |value| {
        let mut encoder = ampere_cmd::Encoder::new(Vec::new());
        encoder.semaphore_release(&release(SEMAPHORES, value)).unwrap();
        encoder.into_sink()
    };
    let mask = ring.place(&[Header::SetSubdeviceMask(0xffe).encode().unwrap()]);
    let skipped = ring.place(&words(1));
    let restore = ring.place(&[Header::SetSubdeviceMask(0xfff).encode().unwrap()]);
    let taken = ring.place(&words(2));
    for segment in [
        Segment::new(mask, 1),
        Segment { conditional: true, ..Segment::new(skipped, 6) },
        Segment::new(restore, 1),
    ] {
        ring.entry(Entry::from(segment).encode().unwrap());
    }
    ring.ring_doorbell();
    rig.wait_activity(7, |activity| *activity == Activity::Idle);
    assert_eq!(rig.semaphores.load(0), 0);
    ring.entry(Entry::from(Segment { conditional: true, ..Segment::new(taken, 6) }).encode().unwrap());
    ring.ring_doorbell();
    rig.wait_for(0, 2);
}

#[test]
fn time_runs_on_the_page() {
    let rig = Rig::new();
    let ring = rig.channel(7, 8);
    let time = || {
        let word = |address: u32| rig.page.load(address as usize);
        u64::from(word(usermode_c561::Time1::ADDRESS)) << 32 | u64::from(word(usermode_c561::Time0::ADDRESS))
    };
    assert_eq!(rig.page.load(usermode_c561::Cfg0::ADDRESS as usize), 0xc561);
    let first = time();
    ring.ring_doorbell();
    let deadline = Instant::now() + Duration::from_secs(10);
    while time() == first {
        assert!(Instant::now() < deadline, "the time does not advance");
    }
    assert_eq!(time() % 32, 0);
    assert!(time() <= ptimer_ns());
    rig.gpu.remove_doorbell_page(&rig.page);
}

#[test]
fn pages_come_and_go() {
    let rig = Rig::new();
    let mut ring = rig.channel(7, 8);
    let page = Arc::new(Memory::new("usermode", 0x1_0000).unwrap());
    rig.gpu.add_doorbell_page(Arc::clone(&page));
    rig.gpu.remove_doorbell_page(&rig.page);
    // The thread may be processing its old list.
    std::thread::sleep(Duration::from_millis(20));
    ring.commands(|encoder| encoder.semaphore_release(&release(SEMAPHORES, 1)).unwrap());
    std::thread::sleep(Duration::from_millis(10));
    assert_eq!(rig.semaphores.load(0), 0, "the first page is no longer polled");
    page.store(usermode_c561::Doorbell::ADDRESS as usize, 7);
    rig.wait_for(0, 1);
}

#[test]
fn a_stopped_channel_touches_nothing() {
    let rig = Rig::new();
    let mut ring = rig.channel(7, 8);
    ring.commands(|encoder| {
        encoder.semaphore_acquire(&acquire(SEMAPHORES, 1)).unwrap();
        encoder.semaphore_release(&release(SEMAPHORES + 16, 1)).unwrap();
    });
    rig.wait_activity(7, |activity| matches!(activity, Activity::WaitingForSemaphore { .. }));
    rig.gpu.stop_channels(&[7, 8]);
    assert_eq!(rig.gpu.status(7), None);
    rig.semaphores.store(0, 1);
    ring.ring_doorbell();
    std::thread::sleep(Duration::from_millis(10));
    assert_eq!(rig.semaphores.load(16), 0);
    // The id can be bound again, with a new ring.
    drop(ring);
    rig.space.unmap(0x14_0070_0000).unwrap();
    let mut ring = rig.channel(7, 8);
    ring.commands(|encoder| encoder.semaphore_release(&release(SEMAPHORES + 16, 2)).unwrap());
    rig.wait_for(16, 2);
}

#[test]
fn a_handler_may_stop_the_channel_that_faults() {
    /// Stops the channel as the kernel does on recovery, and queries its status.
    struct Recovery {
        gpu: OnceLock<Gpu>,
        stopped: AtomicU32,
    }
    impl FaultHandler for Recovery {
        fn fault(&self, channel_id: u32, _fault: ChannelFault) {
            let gpu = self.gpu.get().unwrap();
            assert_eq!(gpu.status(channel_id).unwrap().activity, Activity::Faulted);
            gpu.stop_channels(&[channel_id, channel_id + 1]);
            assert_eq!(gpu.status(channel_id), None);
            self.stopped.fetch_add(1, Ordering::Release);
        }
    }
    let recovery = Arc::new(Recovery { gpu: OnceLock::new(), stopped: AtomicU32::new(0) });
    recovery
        .gpu
        .set(
            Gpu::start(GpuConfig { sm_count: 8, ..GpuConfig::default() }, Arc::clone(&recovery) as _)
                .unwrap(),
        )
        .unwrap();
    let gpu = recovery.gpu.get().unwrap();
    let memory = |name| Arc::new(Memory::new(name, 0x1_0000).unwrap());
    let (page, userd) = (memory("usermode"), memory("userd"));
    gpu.add_doorbell_page(Arc::clone(&page));
    for round in 1..=50 {
        for channel_id in [4, 5] {
            gpu.bind_channel(ChannelSetup {
                channel_id,
                ring: memory("gpfifo"),
                ring_entries: 8,
                userd: Arc::clone(&userd),
                address_space: Arc::new(AddressSpace::new()),
                group: ChannelGroup::alone(channel_id),
            });
        }
        // An index beyond the ring: both channels fault, and the first one served stops the other.
        userd.store(userd::GP_PUT as usize, 8);
        page.store(usermode_c561::Doorbell::ADDRESS as usize, 4);
        let deadline = Instant::now() + Duration::from_secs(20);
        while recovery.stopped.load(Ordering::Acquire) < round {
            assert!(Instant::now() < deadline, "round {round}");
            std::thread::yield_now();
        }
        userd.store(userd::GP_PUT as usize, 0);
    }
}
