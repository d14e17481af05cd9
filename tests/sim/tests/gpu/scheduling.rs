//! Several channels: time slices, order under a seed, blocked acquires, waits for each other, and deadlock.

use core::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use ampere_cmd::command::{
    AcquireCondition, LinearCopy, Payload, PcasAction, SemaphoreAcquire, SemaphoreRelease,
};
use ampere_cmd::{Encoder, Subchannel, compute_c7c0, copy_c7b5, host_c76f};
use orin_sim::gpu::{Activity, ChannelGroup, GpuConfig, Preemption, Waiter};
use orin_sim::mmu::Access;

use crate::compute::{DATA, Kernels, faulty, launch};
use crate::rig::{Rig, Ring, SEMAPHORES, acquire, release};

/// Counter of the steps of all channels. Each step stores the count in the next slot of its channel.
const COUNTER: u64 = SEMAPHORES + 0x8000;
const SLOTS: u64 = SEMAPHORES + 0x1000;
/// Slots per channel.
const STEPS: u64 = 24;

fn group(tsg: u32, timeslice_us: u32) -> ChannelGroup {
    ChannelGroup { tsg, veid: 0, timeslice_us }
}

/// Steps that take one slice of the channel each: a copy of the counter, which is incremented on completion.
fn steps(encoder: &mut Encoder<Vec<u32>>, channel: u64) {
    for step in 0..STEPS {
        let slot = SLOTS + (channel * STEPS + step) * 4;
        let halves = |va: u64| [(va >> 32) as u32, va as u32];
        let [[a, b], [c, d]] = [halves(COUNTER), halves(slot)];
        encoder.methods(Subchannel::COPY, 0x400, &[a, b, c, d]).unwrap();
        encoder.methods(Subchannel::COPY, 0x418, &[4]).unwrap();
        encoder.methods(Subchannel::COPY, 0x240, &[a, b, 1]).unwrap();
        let launch = copy_c7b5::LaunchDma {
            data_transfer_type: copy_c7b5::LaunchDmaDataTransferType::NonPipelined,
            src_memory_layout: copy_c7b5::LaunchDmaSrcMemoryLayout::Pitch,
            dst_memory_layout: copy_c7b5::LaunchDmaDstMemoryLayout::Pitch,
            semaphore_type: copy_c7b5::LaunchDmaSemaphoreType::RELEASE_ONE_WORD_SEMAPHORE,
            semaphore_reduction: copy_c7b5::LaunchDmaSemaphoreReduction::Iadd,
            semaphore_reduction_sign: copy_c7b5::LaunchDmaSemaphoreReductionSign::Unsigned,
            semaphore_reduction_enable: true,
            ..Default::default()
        };
        encoder.method(Subchannel::COPY, &launch).unwrap();
        encoder.method(Subchannel::HOST, &host_c76f::Yield { op: host_c76f::YieldOp::Tsg }).unwrap();
    }
}

/// Runs the steps of channels in these groups, all submitted before any of them runs. Returns the order of the steps,
/// by the channel's index in `groups`.
fn order(rig: &Rig, groups: &[ChannelGroup], rings: &mut [Ring<'_>]) -> Vec<usize> {
    rig.gpu.stall(true);
    rig.semaphores.store(0x8000, 0);
    for (channel, ring) in (0..).zip(&mut *rings) {
        ring.commands(|encoder| steps(encoder, channel));
    }
    rig.gpu.stall(false);
    let count = groups.len() * STEPS as usize;
    rig.wait_for(0x8000, count as u32);
    let mut order = vec![usize::MAX; count];
    let slots = rig.words(SLOTS, count);
    for (index, slot) in slots.into_iter().enumerate() {
        order[slot as usize] = index / STEPS as usize;
    }
    order
}

fn run(seed: u64, groups: &[ChannelGroup]) -> Vec<usize> {
    let rig = Rig::with(GpuConfig { seed, ..GpuConfig::default() });
    let mut rings: Vec<_> = (0..).zip(groups).map(|(id, group)| rig.channel_of(*group, id, 16)).collect();
    order(&rig, groups, &mut rings)
}

#[test]
fn time_slices_share_the_time_in_their_proportion() {
    // Three milliseconds against one: three steps for each one, until the first TSG has finished.
    let order = run(0, &[group(5, 3000), group(6, 1000)]);
    let expected: Vec<usize> = [0, 0, 0, 1].repeat(8);
    assert_eq!(order[..32], expected);
    assert!(order[32..].iter().all(|&channel| channel == 1));
    // Channels of one TSG take turns within its time slice.
    let order = run(0, &[group(5, 2048), group(6, 1024), group(5, 2048)]);
    assert_eq!(order[..10], [0, 2, 0, 2, 1, 0, 2, 0, 2, 1]);
}

#[test]
fn a_time_slice_can_be_changed() {
    let groups = [group(5, 1000), group(6, 1000)];
    let rig = Rig::new();
    let mut rings: Vec<_> = (0..).zip(groups).map(|(id, group)| rig.channel_of(group, id, 16)).collect();
    assert_eq!(order(&rig, &groups, &mut rings)[..4], [0, 1, 0, 1]);
    rig.gpu.set_timeslice(6, 4096);
    assert_eq!(order(&rig, &groups, &mut rings)[..6], [0, 1, 1, 1, 1, 0]);
}

#[test]
fn only_the_seed_decides_the_order() {
    let groups: Vec<_> = (0..4).map(|tsg| group(tsg, 1000)).collect();
    let bound = run(0, &groups);
    assert_eq!(bound[..8], [0, 1, 2, 3, 0, 1, 2, 3]);
    let orders: Vec<_> = (1..6).map(|seed| run(seed, &groups)).collect();
    for (seed, order) in (1..).zip(&orders) {
        assert_eq!(run(seed, &groups), *order, "seed {seed} again");
        // Every round contains all of them.
        for round in order.chunks(4) {
            let mut round = round.to_vec();
            round.sort_unstable();
            assert_eq!(round, [0, 1, 2, 3], "seed {seed}");
        }
    }
    assert!(orders.iter().any(|order| *order != bound) && orders[0] != orders[1]);
}

/// An acquire with or without SWITCH_TSG.
fn wait(va: u64, value: u32, switch_tsg: bool) -> SemaphoreAcquire {
    SemaphoreAcquire { switch_tsg, ..acquire(va, value) }
}

#[test]
fn a_blocked_acquire_lets_its_tsg_and_others_work() {
    for switch_tsg in [false, true] {
        let rig = Rig::new();
        let tsg = group(1, 3000);
        let mut blocked = rig.channel_of(tsg, 1, 8);
        let mut sibling = rig.channel_of(tsg, 2, 8);
        let mut other = rig.channel_of(group(2, 1000), 3, 8);
        blocked.commands(|encoder| {
            encoder.semaphore_acquire(&wait(SEMAPHORES, 2, switch_tsg)).unwrap();
            encoder.semaphore_release(&release(SEMAPHORES + 0x10, 1)).unwrap();
        });
        let waiting = |activity: &Activity| matches!(activity, Activity::WaitingForSemaphore { .. });
        rig.wait_activity(1, waiting);
        // The other TSG is served although the first one holds its time slice, and so is the sibling.
        other.commands(|encoder| encoder.semaphore_release(&release(SEMAPHORES + 0x20, 1)).unwrap());
        rig.wait_for(0x20, 1);
        sibling.commands(|encoder| encoder.semaphore_release(&release(SEMAPHORES, 2)).unwrap());
        rig.wait_for(0x10, 1);
    }
}

#[test]
fn a_yield_lets_the_next_channel_of_the_tsg_see_the_state_between() {
    let rig = Rig::new();
    let mut first = rig.channel_of(group(1, 1000), 1, 8);
    let mut second = rig.channel_of(group(1, 1000), 2, 8);
    rig.gpu.stall(true);
    first.commands(|encoder| {
        encoder.semaphore_release(&release(SEMAPHORES, 1)).unwrap();
        encoder.method(Subchannel::HOST, &host_c76f::Yield { op: host_c76f::YieldOp::Nop }).unwrap();
        encoder.semaphore_release(&release(SEMAPHORES, 2)).unwrap();
        encoder.method(Subchannel::HOST, &host_c76f::Yield { op: host_c76f::YieldOp::Tsg }).unwrap();
        encoder.semaphore_release(&release(SEMAPHORES, 3)).unwrap();
    });
    second.commands(|encoder| {
        let exactly = SemaphoreAcquire { condition: AcquireCondition::Equal, ..acquire(SEMAPHORES, 2) };
        encoder.semaphore_acquire(&exactly).unwrap();
        encoder.semaphore_release(&release(SEMAPHORES + 0x10, 1)).unwrap();
    });
    rig.gpu.stall(false);
    rig.wait_for(0x10, 1);
    rig.wait_for(0, 3);
}

#[test]
fn an_endless_grid_of_one_tsg_leaves_time_to_others() {
    let kernels = faulty();
    let rig = &kernels.rig;
    let mut endless = compute_channel(&kernels, 1, group(1, 50_000));
    start_endless(&kernels, &mut endless);
    let mut other = rig.channel_of(group(2, 1000), 2, 16);
    for value in 1..4 {
        other.commands(|encoder| encoder.semaphore_release(&release(SEMAPHORES, value)).unwrap());
        rig.wait_for(0, value);
    }
    assert!(matches!(rig.gpu.status(1).unwrap().activity, Activity::RunningGrid { .. }));
    end_endless(&kernels);
    rig.wait_for(0x10, 1);
}

#[test]
fn without_instruction_preemption_an_endless_grid_keeps_the_engine() {
    let config = GpuConfig { sm_count: 8, switch_timeout: Duration::from_millis(2), ..GpuConfig::default() };
    let kernels = Kernels::on(Rig::with(config), include_bytes!("../../../../kernels/faults.cubin"));
    let rig = &kernels.rig;
    let mut endless = compute_channel(&kernels, 1, group(1, 1000));
    let mut other = rig.channel_of(group(2, 1000), 2, 16);
    rig.gpu.set_preemption(1, Preemption::Wait);
    start_endless(&kernels, &mut endless);
    assert!(rig.gpu.occupies_engine(1) && !rig.gpu.occupies_engine(2));
    other.commands(|encoder| encoder.semaphore_release(&release(SEMAPHORES, 1)).unwrap());
    rig.wait_switch_timeouts(1, 40);
    assert_eq!(rig.semaphores.load(0), 0, "the other TSG was not served");
    // A finer mode takes effect at once, a coarser one again.
    rig.gpu.set_preemption(1, Preemption::Instruction);
    rig.wait_for(0, 1);
    rig.gpu.set_preemption(1, Preemption::Wait);
    other.commands(|encoder| encoder.semaphore_release(&release(SEMAPHORES, 2)).unwrap());
    rig.wait_switch_timeouts(1, 45);
    assert_eq!(rig.semaphores.load(0), 1);
    end_endless(&kernels);
    rig.wait_for(0, 2);
    rig.wait_for(0x10, 1);
    assert!(!rig.gpu.occupies_engine(1));
}

/// With block preemption a grid of many short blocks yields between them; a block that does not end keeps the engine.
#[test]
fn with_block_preemption_other_tsgs_are_served_between_blocks() {
    let config =
        GpuConfig { sm_count: 8, switch_timeout: Duration::from_millis(500), ..GpuConfig::default() };
    let kernels = Kernels::on(Rig::with(config), include_bytes!("../../../../kernels/basics.cubin"));
    let rig = &kernels.rig;
    let mut long = compute_channel(&kernels, 1, group(1, 1000));
    let mut other = rig.channel_of(group(2, 1000), 2, 16);
    rig.gpu.set_preemption(1, Preemption::Block);
    // Far more blocks than fit the SMs. Together they run for most of a second, so that they have not ended when this
    // thread gets a processor late.
    let mut bytes = DATA.to_le_bytes().to_vec();
    let (blocks, rounds) = (8000_u32, 100_000_u32);
    bytes.extend(rounds.to_le_bytes());
    let qmd = kernels.prepare("spin", 0, [blocks, 1, 1], [32, 1, 1], &bytes);
    kernels.store(0, &qmd);
    long.commands(|encoder| {
        launch(encoder, 0, PcasAction::InvalidateCopySchedule);
        encoder.semaphore_release(&release(SEMAPHORES + 0x10, 1)).unwrap();
    });
    rig.wait_activity(1, |activity| matches!(activity, Activity::RunningGrid { .. }));
    for value in 1..=3 {
        other.commands(|encoder| encoder.semaphore_release(&release(SEMAPHORES, value)).unwrap());
        rig.wait_for(0, value);
        assert_eq!(rig.semaphores.load(0x10), 0, "the long grid has not ended");
    }
    // The kernel takes the TSG off the engine in the same way.
    rig.gpu.preempt(1, true);
    let start = std::time::Instant::now();
    while rig.gpu.occupies_engine(1) {
        assert!(start.elapsed() < Duration::from_secs(60), "blocks do not end");
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(rig.semaphores.load(0x10), 0);
    let ended = || {
        let (view, mut word) = (rig.space.view(), [0; 4]);
        let mut has_run = |block| view.read(DATA + block * 128, &mut word).is_ok() && word != [0; 4];
        (0..u64::from(blocks)).filter(|block| has_run(*block)).count()
    };
    let stands_still = || {
        let before = ended();
        std::thread::sleep(Duration::from_millis(50));
        ended() == before
    };
    // A slice that has begun may start more blocks.
    while !stands_still() {}
    assert_eq!(rig.semaphores.load(0x10), 0, "the grid has ended");
    rig.gpu.preempt(1, false);
    rig.wait_for(0x10, 1);
    let view = rig.space.view();
    let wanted: Vec<u32> = (1..=32)
        .map(|seed| (0..rounds).fold(seed, |x: u32, _| x.wrapping_mul(1_664_525).wrapping_add(1_013_904_223)))
        .collect();
    let mut seen = vec![0; 128];
    for block in 0..u64::from(blocks) {
        view.read(DATA + block * 128, &mut seen).unwrap();
        assert!(
            seen.chunks(4)
                .map(|word| u32::from_le_bytes(word.try_into().unwrap()))
                .eq(wanted.iter().copied())
        );
    }
}

fn compute_channel<'a>(kernels: &'a Kernels, id: u32, group: ChannelGroup) -> Ring<'a> {
    let mut ring = kernels.rig.channel_of(group, id, 64);
    kernels.set_up(&mut ring);
    ring
}

/// Starts a grid that ends when the CPU writes a word, followed by a release of `SEMAPHORES` + 0x10.
fn start_endless(kernels: &Kernels, ring: &mut Ring<'_>) {
    let mut bytes = DATA.to_le_bytes().to_vec();
    bytes.extend((DATA + 0x100).to_le_bytes());
    let qmd = kernels.prepare("fault_endless", 0, [1, 1, 1], [32, 1, 1], &bytes);
    kernels.store(0, &qmd);
    ring.commands(|encoder| {
        launch(encoder, 0, PcasAction::InvalidateCopySchedule);
        encoder.semaphore_release(&release(SEMAPHORES + 0x10, 1)).unwrap();
    });
    kernels.rig.wait_activity(ring.id, |activity| matches!(activity, Activity::RunningGrid { .. }));
}

fn end_endless(kernels: &Kernels) {
    let view = kernels.rig.space.view();
    let word = view.pointer(DATA, 4, Access::Write).unwrap();
    // SAFETY: an aligned word that the view keeps mapped; the grid reads it concurrently.
    unsafe { AtomicU32::from_ptr(word.cast()) }.store(1, Ordering::Relaxed);
}

#[test]
fn a_wait_for_idle_covers_its_scope() {
    let kernels = faulty();
    let rig = &kernels.rig;
    let tsg = |veid| ChannelGroup { veid, ..group(1, 1000) };
    let mut endless = compute_channel(&kernels, 1, tsg(1));
    start_endless(&kernels, &mut endless);
    // On another subcontext its own work is idle, but the whole engine is not. The preceding method selects the engine
    // to wait for.
    let mut near = compute_channel(&kernels, 2, tsg(0));
    let idle = |encoder: &mut Encoder<Vec<u32>>, scope, offset| {
        let at_once = |offset| SemaphoreRelease { wait_for_idle: false, ..release(SEMAPHORES + offset, 1) };
        encoder.method(Subchannel::COMPUTE, &compute_c7c0::NoOperation { v: 0 }).unwrap();
        encoder.semaphore_release(&at_once(offset + 8)).unwrap();
        encoder.wait_for_idle(scope).unwrap();
        encoder.semaphore_release(&at_once(offset)).unwrap();
    };
    near.commands(|encoder| idle(encoder, host_c76f::WfiScope::CurrentScgType, 0x20));
    rig.wait_for(0x20, 1);
    near.commands(|encoder| idle(encoder, host_c76f::WfiScope::All, 0x30));
    // On the same subcontext it waits with either scope, in another TSG with neither.
    let mut same = compute_channel(&kernels, 3, tsg(1));
    same.commands(|encoder| idle(encoder, host_c76f::WfiScope::CurrentScgType, 0x40));
    let mut other = compute_channel(&kernels, 4, group(2, 1000));
    other.commands(|encoder| idle(encoder, host_c76f::WfiScope::All, 0x50));
    rig.wait_for(0x50, 1);
    // The copy engine is not busy.
    let mut copier = rig.channel_of(tsg(2), 5, 8);
    rig.map(0x30_0000_0000, 0x2000);
    copier.commands(|encoder| {
        let copy = LinearCopy { source: 0x30_0000_0000, destination: 0x30_0000_1000, bytes: 64 };
        encoder.linear_copy(&copy).unwrap();
        encoder.wait_for_idle(host_c76f::WfiScope::All).unwrap();
        encoder.semaphore_release(&release(SEMAPHORES + 0x60, 1)).unwrap();
    });
    rig.wait_for(0x60, 1);
    // The release is in the same slice as the wait, and the status query waits for the end of a slice.
    for (id, offset) in [(2, 0x38), (3, 0x48)] {
        rig.wait_for(offset, 1);
        assert_eq!(rig.gpu.status(id).unwrap().activity, Activity::Fetching);
    }
    assert_eq!((rig.semaphores.load(0x30), rig.semaphores.load(0x40)), (0, 0));
    end_endless(&kernels);
    rig.wait_for(0x30, 1);
    rig.wait_for(0x40, 1);
    rig.wait_for(0x10, 1);
}

#[test]
fn all_channels_that_wait_for_each_other_are_reported() {
    let rig = Rig::with(GpuConfig { deadlock_after: Duration::from_millis(5), ..GpuConfig::default() });
    let mut first = rig.channel_of(group(1, 1000), 11, 8);
    let mut second = rig.channel_of(group(1, 1000), 12, 8);
    let mut third = rig.channel_of(group(2, 1000), 13, 8);
    rig.channel(14, 8);
    rig.semaphores.store(0x10, 7);
    // Each waits for the value that the next one would release after its own wait.
    first.commands(|encoder| {
        encoder.semaphore_acquire(&wait(SEMAPHORES + 0x10, 8, true)).unwrap();
        encoder.semaphore_release(&release(SEMAPHORES + 0x20, 1)).unwrap();
    });
    second.commands(|encoder| {
        let wide = SemaphoreAcquire {
            payload: Payload::Bits64(0x5_0000_0001),
            condition: AcquireCondition::Equal,
            ..wait(SEMAPHORES + 0x20, 0, false)
        };
        encoder.semaphore_acquire(&wide).unwrap();
        encoder.semaphore_release(&release(SEMAPHORES + 0x30, 1)).unwrap();
    });
    third.commands(|encoder| {
        encoder.semaphore_acquire(&wait(SEMAPHORES + 0x30, 1, true)).unwrap();
        encoder.semaphore_release(&release(SEMAPHORES + 0x10, 8)).unwrap();
    });
    let waiter = |channel_id, offset, condition, payload, memory, switch_tsg| Waiter {
        channel_id,
        va: SEMAPHORES + offset,
        condition,
        payload,
        memory,
        switch_tsg,
    };
    let all = [
        waiter(11, 0x10, "ACQ_CIRC_GEQ", 8, 7, true),
        waiter(12, 0x20, "ACQUIRE", 0x5_0000_0001, 0, false),
        waiter(13, 0x30, "ACQ_CIRC_GEQ", 1, 0, true),
    ];
    // A report may arrive when only some of the three have been submitted.
    let mut count = 1;
    while rig.deadlocks(count).last().unwrap()[..] != all {
        count += 1;
    }
    assert_eq!(rig.gpu.waiters(), all);
    let text = all[0].to_string();
    assert_eq!(text, "channel 11 waits for ACQ_CIRC_GEQ 0x8 at 0x1200000010, where 0x7 is");
    // The CPU intervenes; the remaining waiters are reported again.
    rig.semaphores.store(0x10, 8);
    let left = rig.deadlocks(count + 1).pop().unwrap();
    assert_eq!(left, [waiter(12, 0x20, "ACQUIRE", 0x5_0000_0001, 1, false), all[2]]);
    rig.semaphores.store(0x24, 5);
    rig.wait_activity(12, |activity| *activity == Activity::Idle);
    rig.wait_activity(13, |activity| *activity == Activity::Idle);
    assert_eq!(rig.gpu.waiters(), []);
    assert_eq!(rig.deadlocks(count + 1).len(), count + 1, "each is reported once");
}

#[test]
fn a_wait_is_not_a_deadlock_while_other_work_can_progress() {
    let kernels = faulty();
    let rig = &kernels.rig;
    let patient = Rig::with(GpuConfig { deadlock_after: Duration::ZERO, ..GpuConfig::default() });
    // A grid is running.
    let mut endless = compute_channel(&kernels, 1, group(1, 1000));
    start_endless(&kernels, &mut endless);
    let mut waits = rig.channel_of(group(2, 1000), 2, 8);
    waits.commands(|encoder| encoder.semaphore_acquire(&wait(SEMAPHORES + 0x10, 1, true)).unwrap());
    rig.wait_activity(2, |activity| matches!(activity, Activity::WaitingForSemaphore { .. }));
    // A channel with work is off the runlist, and the engines are stalled.
    let mut off = patient.channel_of(group(1, 1000), 1, 8);
    patient.gpu.set_enabled(&[1], false);
    off.commands(|encoder| encoder.semaphore_release(&release(SEMAPHORES, 1)).unwrap());
    let mut waiting = patient.channel_of(group(2, 1000), 2, 8);
    waiting.commands(|encoder| {
        encoder.semaphore_acquire(&wait(SEMAPHORES, 1, true)).unwrap();
        encoder.semaphore_release(&release(SEMAPHORES + 0x10, 1)).unwrap();
    });
    patient.wait_activity(2, |activity| matches!(activity, Activity::WaitingForSemaphore { .. }));
    patient.wait_rounds(10);
    assert!(rig.deadlocks(0).is_empty() && patient.deadlocks(0).is_empty());
    patient.gpu.set_enabled(&[1], true);
    patient.wait_for(0x10, 1);
    assert!(patient.deadlocks(0).is_empty());
    end_endless(&kernels);
    rig.wait_for(0x10, 1);
}
