//! The scheduler's cache of launch descriptors, and the effect of each PCAS action on it.

use ampere_cmd::command::PcasAction;
use ampere_cmd::qmd::{QmdV3_0, v3_0 as q};
use ampere_cmd::{Encoder, Subchannel, compute_c7c0 as class};

use crate::compute::{Kernels, basics, launch, qmd_at, set_release};
use crate::rig::{Ring, SEMAPHORES, release};

/// Target of the grids' own releases.
const RESULT: usize = 0x20;

/// An empty grid that releases `payload`.
fn telling(kernels: &Kernels, index: u64, payload: u64) -> QmdV3_0 {
    let mut qmd = kernels.prepare("empty", index, [1, 1, 1], [32, 1, 1], &[]);
    set_release(&mut qmd, SEMAPHORES + RESULT as u64, payload, &[]);
    qmd
}

/// Sends `commands`, waits for completion, and returns the last grid's payload.
fn run(
    kernels: &Kernels,
    ring: &mut Ring<'_>,
    end: u32,
    commands: impl FnOnce(&mut Encoder<Vec<u32>>),
) -> u32 {
    ring.commands(|encoder| {
        commands(encoder);
        encoder.semaphore_release(&release(SEMAPHORES, end)).unwrap();
    });
    kernels.rig.wait_for(0, end);
    kernels.rig.semaphores.load(RESULT)
}

#[test]
fn a_cached_descriptor_is_not_read_again() {
    use PcasAction::*;
    // An action that may cache the descriptor, and one that runs it after it was rewritten.
    let cases = [
        (vec![Prefetch], vec![Schedule], 1),
        (vec![Prefetch], vec![PrefetchSchedule], 1),
        (vec![Prefetch], vec![Invalidate, Schedule], 2),
        (vec![Prefetch], vec![Invalidate, PrefetchSchedule], 2),
        (vec![Prefetch], vec![InvalidateCopySchedule], 2),
        (vec![Prefetch], vec![InvalidatePrefetchCopySchedule], 2),
        (vec![Prefetch], vec![InvalidateCopySchedule, Schedule], 2),
        // The end of its grid takes a descriptor out of the cache.
        (vec![PrefetchSchedule], vec![PrefetchSchedule], 2),
        (vec![Schedule], vec![Schedule], 2),
        (vec![PrefetchSchedule], vec![Schedule], 2),
        // The grid's own copy leaves nothing in the cache.
        (vec![InvalidateCopySchedule], vec![Schedule], 2),
        (vec![InvalidatePrefetchCopySchedule], vec![PrefetchSchedule], 2),
        (vec![Prefetch, Nop], vec![Nop, Schedule], 1),
    ];
    let kernels = basics();
    let mut ring = kernels.channel(511);
    for (end, (before, after, expected)) in (1..).step_by(2).zip(cases) {
        kernels.store(0, &telling(&kernels, 0, 1));
        let send = |actions: &[PcasAction], encoder: &mut Encoder<Vec<u32>>| {
            actions.iter().for_each(|&action| launch(encoder, 0, action));
        };
        run(&kernels, &mut ring, end, |encoder| {
            launch(encoder, 0, Invalidate);
            send(&before, encoder);
        });
        kernels.store(0, &telling(&kernels, 0, 2));
        let seen = run(&kernels, &mut ring, end + 1, |encoder| send(&after, encoder));
        assert_eq!(seen, expected, "{before:?}, rewritten, {after:?}");
    }
}

#[test]
fn the_older_pcas_method_invalidates_and_schedules() {
    let kernels = basics();
    let mut ring = kernels.channel(511);
    let send = |encoder: &mut Encoder<Vec<u32>>, invalidate, schedule| {
        let address = class::SendPcasA { qmd_address_shifted8: (qmd_at(0) >> 8) as u32 };
        encoder.method(Subchannel::COMPUTE, &address).unwrap();
        encoder.method(Subchannel::COMPUTE, &class::SendSignalingPcasB { invalidate, schedule }).unwrap();
    };
    for (end, invalidate, expected) in [(1, false, 1), (3, true, 2)] {
        kernels.store(0, &telling(&kernels, 0, 1));
        run(&kernels, &mut ring, end, |encoder| {
            send(encoder, true, false);
            launch(encoder, 0, PcasAction::Prefetch);
        });
        kernels.store(0, &telling(&kernels, 0, 2));
        let seen = run(&kernels, &mut ring, end + 1, |encoder| send(encoder, invalidate, true));
        assert_eq!(seen, expected, "INVALIDATE {invalidate}");
    }
}

#[test]
fn all_cached_descriptors_can_be_dropped() {
    let kernels = basics();
    let mut ring = kernels.channel(511);
    kernels.store(0, &telling(&kernels, 0, 1));
    run(&kernels, &mut ring, 1, |encoder| launch(encoder, 0, PcasAction::Prefetch));
    kernels.store(0, &telling(&kernels, 0, 2));
    let seen = run(&kernels, &mut ring, 2, |encoder| {
        encoder.method(Subchannel::COMPUTE, &class::InvalidateSkedCaches::default()).unwrap();
        launch(encoder, 0, PcasAction::Schedule);
    });
    assert_eq!(seen, 2);
}

#[test]
fn a_dependent_is_prefetched_on_request() {
    for (prefetch, action, expected) in [
        (true, q::DEPENDENT_QMD0_ACTION_QMD_SCHEDULE, 1),
        (false, q::DEPENDENT_QMD0_ACTION_QMD_SCHEDULE, 2),
        (true, q::DEPENDENT_QMD0_ACTION_QMD_INVALIDATE_COPY_SCHEDULE, 2),
    ] {
        let kernels = basics();
        let mut ring = kernels.channel(511);
        // The first grid overwrites a word of the second one's descriptor: its payload.
        let payload_at = qmd_at(1) + 832 / 8;
        let mut bytes = payload_at.to_le_bytes().to_vec();
        bytes.extend([2_u32, 1].iter().flat_map(|word| word.to_le_bytes()));
        let mut first = kernels.prepare("fill_u32", 0, [1, 1, 1], [32, 1, 1], &bytes);
        for (field, value) in [
            (q::DEPENDENT_QMD0_ENABLE, 1),
            (q::DEPENDENT_QMD0_ACTION, action),
            (q::DEPENDENT_QMD0_POINTER, qmd_at(1) >> 8),
            (q::DEPENDENT_QMD0_PREFETCH, u64::from(prefetch)),
        ] {
            first.set(field, value).unwrap();
        }
        kernels.store(0, &first);
        kernels.store(1, &telling(&kernels, 1, 1));
        let seen = run(&kernels, &mut ring, 1, |encoder| launch(encoder, 0, PcasAction::PrefetchSchedule));
        assert_eq!(seen, expected, "prefetch {prefetch}, action {action}");
    }
}

#[test]
fn invalidation_resets_the_dependence_counter() {
    let kernels = basics();
    let mut ring = kernels.channel(511);
    let mut qmd = telling(&kernels, 0, 7);
    qmd.set(q::DEPENDENCE_COUNTER, 2u32).unwrap();
    kernels.store(0, &qmd);
    let seen = run(&kernels, &mut ring, 1, |encoder| {
        launch(encoder, 0, PcasAction::DecrementDependence);
        launch(encoder, 0, PcasAction::Invalidate);
        launch(encoder, 0, PcasAction::DecrementDependence);
    });
    assert_eq!(seen, 0, "one of two is left");
    let seen = run(&kernels, &mut ring, 2, |encoder| {
        launch(encoder, 0, PcasAction::IncrementDependence);
        launch(encoder, 0, PcasAction::DecrementDependence);
    });
    assert_eq!(seen, 0, "one of two is left");
    let seen = run(&kernels, &mut ring, 3, |encoder| launch(encoder, 0, PcasAction::DecrementDependence));
    assert_eq!(seen, 7);
}

#[test]
fn the_cache_evicts_the_oldest_descriptor() {
    let kernels = basics();
    let mut ring = kernels.channel(511);
    for index in 0..65 {
        kernels.store(index, &telling(&kernels, index, 1));
    }
    run(&kernels, &mut ring, 1, |encoder| {
        (0..65).for_each(|index| launch(encoder, index, PcasAction::Prefetch));
    });
    for index in 0..65 {
        kernels.store(index, &telling(&kernels, index, 2));
    }
    for (end, index, expected) in [(2, 1, 1), (3, 64, 1), (4, 0, 2)] {
        let seen = run(&kernels, &mut ring, end, |encoder| launch(encoder, index, PcasAction::Schedule));
        assert_eq!(seen, expected, "descriptor {index}");
    }
}

/// Every structure size, payload size and reduction of every release.
#[test]
fn releases_write_as_their_fields_specify() {
    const OLD: u64 = 0x1111_2222_ffff_fff0;
    let kernels = basics();
    let mut ring = kernels.channel(511);
    let mut end = 0;
    for (slot, base) in (0..3u64).zip([768, 896, 1664]) {
        for structure in 0..3u64 {
            for wide in [false, true] {
                for reduction in [None, Some(0), Some(1), Some(2), Some(3), Some(5), Some(6), Some(7)] {
                    if wide && (structure == 1 || reduction == Some(3)) {
                        // Refused: no space for 64 bits, and no 64-bit INC.
                        continue;
                    }
                    end += 1;
                    let qmd = kernels.prepare("empty", 0, [1, 1, 1], [32, 1, 1], &[]);
                    let mut words = qmd.as_words().to_vec();
                    let payload: u64 = 0x5_0000_0011;
                    let at = base / 32;
                    words[at] = 0x40;
                    words[at + 1] = 0x12 | 1 << 23 | u32::from(wide) << 29 | (structure as u32) << 30;
                    if let Some(operation) = reduction {
                        words[at + 1] |= 1 << 26 | operation << 20;
                    }
                    words[at + 2] = payload as u32;
                    words[at + 3] = (payload >> 32) as u32;
                    kernels.store(0, &QmdV3_0::from_slice(&words).unwrap());
                    let semaphores = &kernels.rig.semaphores;
                    for (word, value) in [OLD as u32, (OLD >> 32) as u32, 0xaaaa, 0xbbbb].iter().enumerate() {
                        semaphores.store(0x40 + word * 4, *value);
                    }
                    run(&kernels, &mut ring, end, |encoder| {
                        launch(encoder, 0, PcasAction::InvalidateCopySchedule);
                    });
                    let [low, high, time_low, time_high] = [0, 4, 8, 12].map(|at| semaphores.load(0x40 + at));
                    let name = format!("release {slot}, structure {structure}, wide {wide}, {reduction:?}");
                    let wanted = match reduction {
                        None if structure == 1 => OLD & 0xffff_ffff_0000_0000 | payload & 0xffff_ffff,
                        None if wide => payload,
                        None => payload & 0xffff_ffff,
                        Some(operation) if wide => reduced(operation, OLD, payload),
                        Some(operation) => {
                            let low = |value: u64| value & 0xffff_ffff;
                            OLD & !0xffff_ffff | low(reduced(operation, low(OLD), low(payload)))
                        }
                    };
                    assert_eq!(u64::from(high) << 32 | u64::from(low), wanted, "{name}");
                    assert_eq!((time_low, time_high) != (0xaaaa, 0xbbbb), structure == 0, "{name}: time");
                }
            }
        }
    }
}

/// The reductions of a launch descriptor (`RELEASE0_REDUCTION_OP`), unsigned.
fn reduced(operation: u32, memory: u64, payload: u64) -> u64 {
    match operation {
        0 => memory.wrapping_add(payload),
        1 => memory.min(payload),
        2 => memory.max(payload),
        3 if memory >= payload => 0,
        3 => memory + 1,
        5 => memory & payload,
        6 => memory | payload,
        _ => memory ^ payload,
    }
}
