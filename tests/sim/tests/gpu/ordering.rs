//! The order check: each finding, and the correct variant of each.

use std::sync::Arc;

use ampere_cmd::command::{LinearCopy, PcasAction};
use ampere_cmd::gpfifo::{Entry, Segment};
use ampere_cmd::host_c76f::{MemOpDOperation, WfiScope};
use ampere_cmd::qmd::{QmdV3_0, v3_0 as q};
use ampere_cmd::{Encoder, Subchannel, compute_c7c0 as class, host_c76f};
use orin_sim::check::{Finding, Kind};
use orin_sim::gpu::Activity;
use orin_sim::memory::Memory;

use crate::compute::{DATA, Kernels, arguments, basics, launch, ordered, qmd_at};
use crate::rig::{Rig, Ring, SEMAPHORES, acquire, release};

type Words = Encoder<Vec<u32>>;

/// A descriptor that adds 1 to 32 words at `va`.
fn increment(kernels: &Kernels, index: u64, va: u64) -> QmdV3_0 {
    let qmd = kernels.prepare("increment", index, [1, 1, 1], [32, 1, 1], &arguments(va, &[32]));
    kernels.store(index, &qmd);
    qmd
}

/// Writes 32 words at `va` from the CPU.
fn zero(kernels: &Kernels, va: u64) {
    kernels.rig.write(va, &[0; 128]);
}

/// Sends commands and waits for completion.
fn run(kernels: &Kernels, ring: &mut Ring<'_>, end: u32, commands: impl FnOnce(&mut Words)) {
    ring.commands(|encoder| {
        commands(encoder);
        encoder.semaphore_release(&release(SEMAPHORES, end)).unwrap();
    });
    kernels.rig.wait_for(0, end);
}

/// A kind of finding, and the memory, cache or encoding that it is about.
type Found = (Kind, String);

fn found_in(findings: &[Finding]) -> Vec<Found> {
    let space = |finding: &Finding| finding.access.as_ref().unwrap().space.to_string();
    findings.iter().map(|finding| (finding.kind, space(finding))).collect()
}

/// The findings so far.
fn found(kernels: &Kernels) -> Vec<Found> {
    found_in(&kernels.rig.findings())
}

/// The only finding, and its address.
fn only(kernels: &Kernels) -> (Finding, u64) {
    let findings = kernels.rig.findings();
    let [finding] = &findings[..] else { panic!("{findings:?}") };
    (finding.clone(), finding.access.as_ref().unwrap().address)
}

fn stale(cache: &str) -> Found {
    (Kind::Stale, cache.to_owned())
}

fn unproven(encoding: &str) -> Found {
    (Kind::Unproven, encoding.to_owned())
}

const COPY: PcasAction = PcasAction::InvalidatePrefetchCopySchedule;

#[test]
fn unwritten_memory_is_reported_once_per_grid() {
    let kernels = ordered();
    let mut ring = kernels.channel(511);
    increment(&kernels, 0, DATA);
    run(&kernels, &mut ring, 1, |encoder| launch(encoder, 0, COPY));
    let (finding, va) = only(&kernels);
    assert_eq!((finding.kind, finding.channel, va), (Kind::Unwritten, Some(511), DATA));
    let named =
        format!("the grid of descriptor {:#x} reads {DATA:#x}, which has not been written (data)", qmd_at(0));
    assert_eq!(finding.message, named);
    // The grid has written the words by now.
    increment(&kernels, 1, DATA);
    run(&kernels, &mut ring, 2, |encoder| launch(encoder, 1, COPY));
    only(&kernels);
}

#[test]
fn memory_written_by_the_cpu_or_another_engine_may_be_read() {
    let kernels = ordered();
    let mut ring = kernels.channel(511);
    zero(&kernels, DATA);
    for (index, va) in [(0, DATA), (1, DATA + 0x1000), (2, DATA + 0x2000)] {
        increment(&kernels, index, va);
    }
    run(&kernels, &mut ring, 1, |encoder| {
        launch(encoder, 0, COPY);
        encoder.linear_copy(&LinearCopy { source: DATA, destination: DATA + 0x1000, bytes: 128 }).unwrap();
        encoder.inline_upload(DATA + 0x2000, &[7; 32]).unwrap();
        encoder.invalidate_shader_caches_no_wfi().unwrap();
        launch(encoder, 1, COPY);
        launch(encoder, 2, COPY);
    });
    assert_eq!(found(&kernels), []);
    assert_eq!(kernels.rig.words(DATA + 0x1000, 1), [2]);
}

#[test]
fn semaphores_and_descriptors_must_have_been_written() {
    let kernels = ordered();
    let mut ring = kernels.channel(511);
    // The upper half of a 64-bit semaphore in fresh memory satisfies almost any acquire.
    run(&kernels, &mut ring, 1, |encoder| {
        encoder.semaphore_acquire(&acquire(DATA + 0x100, 0xa500_0000)).unwrap();
    });
    let (finding, va) = only(&kernels);
    assert_eq!((finding.kind, va), (Kind::Unwritten, DATA + 0x100));
    assert!(finding.message.starts_with("host reads "), "{finding}");
    ring.commands(|encoder| encoder.launch(DATA + 0x4000, COPY).unwrap());
    kernels.rig.fault();
    let last = kernels.rig.findings().pop().unwrap();
    assert!(last.message.starts_with("the scheduler reads "), "{last}");
}

#[test]
fn a_segment_longer_than_its_words_is_reported() {
    let kernels = ordered();
    let mut encoder = Words::new(Vec::new());
    encoder.semaphore_release(&release(SEMAPHORES, 1)).unwrap();
    let words = encoder.into_sink();
    let mut ring = kernels.channel(511);
    let va = ring.place(&words);
    // The length of the whole page, whose rest is fresh memory.
    ring.entry(Entry::from(Segment::new(va, 1024)).encode().unwrap());
    ring.ring_doorbell();
    kernels.rig.fault();
    let finding = kernels.rig.findings().remove(0);
    let end = va + 4 * words.len() as u64;
    assert_eq!((finding.kind, finding.access.as_ref().unwrap().address), (Kind::Unwritten, end));
    assert!(finding.message.starts_with("host reads "), "{finding}");
}

#[test]
fn unordered_grids_may_not_share_words() {
    let kernels = ordered();
    zero(&kernels, DATA);
    zero(&kernels, DATA + 0x1000);
    let mut ring = kernels.channel(511);
    increment(&kernels, 0, DATA);
    increment(&kernels, 1, DATA);
    increment(&kernels, 2, DATA + 0x1000);
    run(&kernels, &mut ring, 1, |encoder| (0..3).for_each(|index| launch(encoder, index, COPY)));
    let (finding, va) = only(&kernels);
    assert_eq!((finding.kind, va), (Kind::Unordered, DATA));
    let grid = |index| format!("the grid of descriptor {:#x}", qmd_at(index));
    let works = format!("{} and {} both access {DATA:#x}", grid(1), grid(0));
    assert!(finding.message.starts_with(&works), "{finding}");
}

#[test]
fn a_wait_a_chain_and_the_cpu_order_grids() {
    let kernels = ordered();
    zero(&kernels, DATA);
    let mut ring = kernels.channel(511);
    for index in 0..6 {
        increment(&kernels, index, DATA);
    }
    let mut first = increment(&kernels, 2, DATA);
    for (field, value) in [
        (q::DEPENDENT_QMD0_ENABLE, 1),
        (q::DEPENDENT_QMD0_ACTION, q::DEPENDENT_QMD0_ACTION_QMD_SCHEDULE),
        (q::DEPENDENT_QMD0_PREFETCH, 1),
        (q::DEPENDENT_QMD0_POINTER, qmd_at(3) >> 8),
    ] {
        first.set(field, value).unwrap();
    }
    kernels.store(2, &first);
    run(&kernels, &mut ring, 1, |encoder| {
        launch(encoder, 0, COPY);
        encoder.wait_for_idle(WfiScope::All).unwrap();
        launch(encoder, 1, COPY);
        encoder.method(Subchannel::COMPUTE, &class::WaitForIdle::default()).unwrap();
        launch(encoder, 2, COPY);
    });
    // The CPU has waited, and submits more.
    run(&kernels, &mut ring, 2, |encoder| launch(encoder, 4, COPY));
    assert_eq!(found(&kernels), []);
    assert_eq!(kernels.rig.words(DATA, 1), [5]);
}

#[test]
fn a_semaphore_orders_grids_of_two_channels() {
    for is_ordered in [true, false] {
        let kernels = ordered();
        zero(&kernels, DATA);
        increment(&kernels, 0, DATA);
        increment(&kernels, 1, DATA);
        let (mut first, mut second) = (kernels.channel(1), kernels.channel(2));
        // The second channel has its launch before the first one starts.
        second.commands(|encoder| {
            encoder.semaphore_acquire(&acquire(SEMAPHORES + 0x10, 1)).unwrap();
            launch(encoder, 1, COPY);
            encoder.semaphore_release(&release(SEMAPHORES, 1)).unwrap();
        });
        kernels.rig.wait_activity(2, |activity| matches!(activity, Activity::WaitingForSemaphore { .. }));
        first.commands(|encoder| {
            launch(encoder, 0, COPY);
            let semaphore = release(SEMAPHORES + 0x10, 1);
            let early = ampere_cmd::command::SemaphoreRelease { wait_for_idle: is_ordered, ..semaphore };
            encoder.semaphore_release(&early).unwrap();
        });
        kernels.rig.wait_for(0, 1);
        let kinds: Vec<Kind> = kernels.rig.findings().iter().map(|finding| finding.kind).collect();
        assert_eq!(kinds, if is_ordered { vec![] } else { vec![Kind::Unordered] });
    }
}

#[test]
fn an_upload_does_not_wait_for_the_grid_before_it() {
    let kernels = ordered();
    zero(&kernels, DATA);
    increment(&kernels, 0, DATA);
    let mut ring = kernels.channel(511);
    run(&kernels, &mut ring, 1, |encoder| {
        launch(encoder, 0, COPY);
        encoder.inline_upload(DATA, &[7; 32]).unwrap();
    });
    assert_eq!(only(&kernels).0.kind, Kind::Unordered);
}

/// A sum of two arrays that the order check watches.
struct Sum(Kernels);

impl Sum {
    const A: u64 = DATA;
    const B: u64 = DATA + 0x1000;

    fn new() -> Self {
        let kernels =
            Kernels::on(Rig::with_order_check(), include_bytes!("../../../../kernels/vector_add.cubin"));
        zero(&kernels, Self::A);
        zero(&kernels, Self::B);
        Self(kernels)
    }

    fn descriptor(&self) -> QmdV3_0 {
        let mut bytes: Vec<u8> =
            [Self::A, Self::B, DATA + 0x2000].iter().flat_map(|va| va.to_le_bytes()).collect();
        bytes.extend(32_u32.to_le_bytes());
        self.0.prepare("vector_add", 0, [1, 1, 1], [32, 1, 1], &bytes)
    }

    /// Runs the grid, makes a change, and runs it again from a second descriptor after the given commands. Returns the
    /// findings.
    fn twice(
        &self,
        change: impl FnOnce(),
        prepare: impl FnOnce(&mut QmdV3_0),
        commands: impl FnOnce(&mut Words),
    ) -> Vec<Found> {
        let mut ring = self.0.channel(511);
        let mut qmd = self.descriptor();
        self.0.store(0, &qmd);
        run(&self.0, &mut ring, 1, |encoder| launch(encoder, 0, COPY));
        change();
        prepare(&mut qmd);
        self.0.store(0, &qmd);
        run(&self.0, &mut ring, 2, |encoder| {
            commands(encoder);
            launch(encoder, 0, COPY);
        });
        found(&self.0)
    }
}

fn no_wfi(instruction: bool, global_data: bool, constant: bool) -> impl Fn(&mut Words) {
    let caches = class::InvalidateShaderCachesNoWfi { instruction, global_data, constant };
    move |encoder| encoder.method(Subchannel::COMPUTE, &caches).unwrap()
}

#[test]
fn constants_that_the_cpu_changed_need_an_invalidation() {
    // A word of bank 0 that the kernel does not use, in a line that it uses.
    let change = |sum: &Sum| sum.0.rig.write(qmd_at(0) - 0x300 + 0x10, &[9]);
    let unset = |qmd: &mut QmdV3_0| {
        qmd.set(q::CONSTANT_BUFFER_INVALIDATE.at(0).unwrap(), false).unwrap();
    };
    let sum = Sum::new();
    let stale = [stale("constant cache")];
    assert_eq!(sum.twice(|| change(&sum), |_| {}, |_| {}), stale, "the bank's own bit is unproven");
    let sum = Sum::new();
    assert_eq!(sum.twice(|| change(&sum), unset, no_wfi(true, true, false)), stale);
    let text = sum.0.rig.findings()[0].to_string();
    assert!(text.contains("constant cache") && text.contains("CONSTANT"), "{text}");
    let sum = Sum::new();
    assert_eq!(sum.twice(|| change(&sum), unset, no_wfi(false, false, true)), []);
    let sum = Sum::new();
    let older = |encoder: &mut Words| {
        let caches = class::InvalidateShaderCaches { constant: true, ..Default::default() };
        encoder.method(Subchannel::COMPUTE, &caches).unwrap();
    };
    assert_eq!(sum.twice(|| change(&sum), unset, older), []);
    let sum = Sum::new();
    let whole = |qmd: &mut QmdV3_0| {
        unset(qmd);
        qmd.set(q::INVALIDATE_SHADER_CONSTANT_CACHE, true).unwrap();
    };
    assert_eq!(sum.twice(|| change(&sum), whole, |_| {}), stale, "so is that of the cache");
    let sum = Sum::new();
    assert_eq!(sum.twice(|| {}, unset, |_| {}), [], "nothing has changed");
}

#[test]
fn code_that_the_cpu_changed_needs_an_invalidation() {
    // After the last instruction, where nothing is executed.
    let change = |sum: &Sum| {
        let (program, bytes) = sum.0.program("vector_add");
        assert_eq!(program / 4096, (program + bytes) / 4096, "the same page");
        sum.0.rig.write(program + bytes, &[1]);
    };
    let sum = Sum::new();
    let stale = sum.twice(|| change(&sum), |_| {}, no_wfi(false, true, true));
    assert_eq!(stale, [self::stale("instruction cache")]);
    let sum = Sum::new();
    assert_eq!(sum.twice(|| change(&sum), |_| {}, no_wfi(true, false, false)), []);
    let sum = Sum::new();
    let set = |qmd: &mut QmdV3_0| qmd.set(q::INVALIDATE_INSTRUCTION_CACHE, true).unwrap();
    assert_eq!(sum.twice(|| change(&sum), set, |_| {}), stale, "the bit is unproven");
}

#[test]
fn data_that_the_cpu_changed_needs_an_invalidation() {
    let change = |sum: &Sum| sum.0.rig.write(Sum::B + 0x10, &[9]);
    let sum = Sum::new();
    let stale = sum.twice(|| change(&sum), |_| {}, no_wfi(true, false, true));
    assert_eq!(stale, [self::stale("L1 data cache")]);
    assert_eq!(only(&sum.0).1, Sum::B, "the line");
    let sum = Sum::new();
    assert_eq!(sum.twice(|| change(&sum), |_| {}, no_wfi(false, true, false)), []);
    let sum = Sum::new();
    let set = |qmd: &mut QmdV3_0| qmd.set(q::INVALIDATE_SHADER_DATA_CACHE, true).unwrap();
    assert_eq!(sum.twice(|| change(&sum), set, |_| {}), stale, "the bit is unproven");
}

#[test]
fn copies_do_not_reach_the_l1() {
    let copy = |encoder: &mut Words| {
        encoder.linear_copy(&LinearCopy { source: Sum::A + 0x400, destination: Sum::A, bytes: 128 }).unwrap();
    };
    let sum = Sum::new();
    sum.0.rig.write(Sum::A + 0x400, &[1; 128]);
    assert_eq!(sum.twice(|| {}, |_| {}, copy), [stale("L1 data cache")]);
    let sum = Sum::new();
    sum.0.rig.write(Sum::A + 0x400, &[1; 128]);
    let right = |encoder: &mut Words| {
        copy(encoder);
        no_wfi(false, true, false)(encoder);
    };
    assert_eq!(sum.twice(|| {}, |_| {}, right), []);
}

#[test]
fn memory_cached_by_l2_needs_its_own_invalidation() {
    const CACHED: u64 = 0x16_0000_0000;
    let invalidate =
        host_c76f::MemOpD { operation: MemOpDOperation::L2SysmemInvalidate, ..Default::default() };
    for (cached, done, expected) in
        [(true, false, &[stale("L2 cache")][..]), (true, true, &[]), (false, false, &[])]
    {
        let rig = Rig::with_order_check();
        let memory = Arc::new(Memory::new("cached", 0x1000).unwrap());
        rig.map_as(CACHED, &memory, true, cached);
        rig.map(DATA, 0x1000);
        let mut ring = rig.channel(511, 16);
        let mut copy = |value: u32| {
            ring.commands(|encoder| {
                if done {
                    let zeros = (host_c76f::MemOpA::default(), host_c76f::MemOpB::default());
                    let sequence = (zeros.0, zeros.1, host_c76f::MemOpC::default(), invalidate);
                    encoder.sequence(Subchannel::COMPUTE, &sequence).unwrap();
                }
                encoder.linear_copy(&LinearCopy { source: CACHED, destination: DATA, bytes: 64 }).unwrap();
                encoder.semaphore_release(&release(SEMAPHORES, value)).unwrap();
            });
            rig.wait_for(0, value);
        };
        copy(1);
        memory.store(0x20, 5);
        copy(2);
        assert_eq!(found_in(&rig.findings()), expected, "cached {cached}, invalidated {done}");
    }
}

#[test]
fn a_descriptor_that_was_changed_in_place_is_reported() {
    let kernels = ordered();
    zero(&kernels, DATA);
    let mut ring = kernels.channel(511);
    increment(&kernels, 0, DATA);
    let rewrite = |blocks: u32| {
        let mut changed = increment(&kernels, 0, DATA);
        changed.set(q::CTA_RASTER_WIDTH, blocks).unwrap();
        kernels.store(0, &changed);
    };
    run(&kernels, &mut ring, 1, |encoder| launch(encoder, 0, PcasAction::PrefetchSchedule));
    rewrite(2);
    run(&kernels, &mut ring, 2, |encoder| {
        encoder.invalidate_shader_caches_no_wfi().unwrap();
        launch(encoder, 0, PcasAction::PrefetchSchedule);
    });
    assert_eq!(found(&kernels), [], "its grid has ended");
    run(&kernels, &mut ring, 3, |encoder| launch(encoder, 0, PcasAction::Prefetch));
    assert_eq!(found(&kernels), [unproven("PCAS action 8")]);
    rewrite(1);
    run(&kernels, &mut ring, 4, |encoder| {
        encoder.invalidate_shader_caches_no_wfi().unwrap();
        launch(encoder, 0, PcasAction::PrefetchSchedule);
    });
    assert_eq!(
        found(&kernels)[1..],
        [stale("scheduler's cache of launch descriptors")],
        "read before the change"
    );
}

#[test]
fn encodings_that_no_board_has_accepted_are_reported() {
    let starts = [
        (PcasAction::PrefetchSchedule, &[][..]),
        (PcasAction::InvalidatePrefetchCopySchedule, &[]),
        (PcasAction::InvalidateCopySchedule, &["PCAS action 3"]),
        (PcasAction::Schedule, &["PCAS action 2"]),
    ];
    let all_unproven = |encodings: &[&str]| encodings.iter().copied().map(unproven).collect::<Vec<_>>();
    for (action, expected) in starts {
        let kernels = ordered();
        zero(&kernels, DATA);
        increment(&kernels, 0, DATA);
        run(&kernels, &mut kernels.channel(511), 1, |encoder| launch(encoder, 0, action));
        assert_eq!(found(&kernels), all_unproven(expected), "{action:?}");
    }
    for (action, prefetch, expected) in [
        (1_u32, true, &[][..]),
        (1, false, &["a dependent descriptor with action 1 without prefetch"]),
        (3, false, &["a dependent descriptor with action 3 without prefetch"]),
        (3, true, &["a dependent descriptor with action 3 with prefetch"]),
    ] {
        let kernels = ordered();
        zero(&kernels, DATA);
        let mut first = increment(&kernels, 0, DATA);
        increment(&kernels, 1, DATA);
        first.set(q::DEPENDENT_QMD0_ENABLE, true).unwrap();
        first.set(q::DEPENDENT_QMD0_ACTION, action).unwrap();
        first.set(q::DEPENDENT_QMD0_PREFETCH, prefetch).unwrap();
        first.set(q::DEPENDENT_QMD0_POINTER, qmd_at(1) >> 8).unwrap();
        kernels.store(0, &first);
        run(&kernels, &mut kernels.channel(511), 1, |encoder| launch(encoder, 0, COPY));
        assert_eq!(found(&kernels), all_unproven(expected), "chain {action}, prefetch {prefetch}");
    }
    let kernels = ordered();
    zero(&kernels, DATA);
    increment(&kernels, 0, DATA);
    run(&kernels, &mut kernels.channel(511), 1, |encoder| {
        launch(encoder, 0, PcasAction::InvalidateCopySchedule)
    });
    let text = only(&kernels).0.message;
    assert!(text.contains("by PCAS action 3, which no board has been seen to accept"), "{text}");
}

#[test]
fn nothing_is_reported_without_the_order_check() {
    let kernels = basics();
    let mut ring = kernels.channel(511);
    increment(&kernels, 0, DATA);
    increment(&kernels, 1, DATA);
    run(&kernels, &mut ring, 1, |encoder| (0..2).for_each(|index| launch(encoder, index, COPY)));
    assert_eq!(found(&kernels), []);
}
