//! Host semaphores: every condition, width, structure and reduction, compared with explicit definitions.

use ampere_cmd::Encoder;
use orin_sim::gpu::{Activity, ChannelFault, ptimer_ns};

use crate::rig::{Rig, SEMAPHORES, release};

/// SEM_ADDR_LO, SEM_ADDR_HI, SEM_PAYLOAD_LO, SEM_PAYLOAD_HI, SEM_EXECUTE.
fn execute(offset: u64, payload: u64, execute: u32) -> [u32; 6] {
    let va = SEMAPHORES + offset;
    [0x2005_0017, va as u32, (va >> 32) as u32, payload as u32, (payload >> 32) as u32, execute]
}

/// SEMAPHOREA, B, C and D.
fn execute_old(offset: u64, payload: u32, execute: u32) -> [u32; 5] {
    let va = SEMAPHORES + offset;
    [0x2004_0004, (va >> 32) as u32, va as u32, payload, execute]
}

const WIDE: u32 = 1 << 24;
const SWITCH: u32 = 1 << 12;
const TIMESTAMP: u32 = 1 << 25;

/// Returns whether an acquire with SEM_EXECUTE's operation passes.
fn passes(operation: u32, wide: bool, memory: u64, payload: u64) -> bool {
    let bits = if wide { 64 } else { 32 };
    let range = if wide { u128::from(u64::MAX) + 1 } else { 1 << 32 };
    let (m, p) = (u128::from(memory) % range, u128::from(payload) % range);
    match operation {
        0 => m == p,
        2 => m >= p,
        // Within half the range above the payload, modulo the range.
        3 => (m + range - p) % range < range / 2,
        4 => (0..bits).any(|bit| m >> bit & 1 == 1 && p >> bit & 1 == 1),
        5 => (0..bits).any(|bit| m >> bit & 1 == 0 && p >> bit & 1 == 0),
        other => unreachable!("{other}"),
    }
}

const VALUES: [u64; 9] =
    [0, 1, 5, 0x7fff_ffff, 0x8000_0000, 0xffff_ffff, 0x1_0000_0001, 0x8000_0000_0000_0000, u64::MAX];

fn store(rig: &Rig, offset: usize, value: u64) {
    rig.semaphores.store(offset, value as u32);
    rig.semaphores.store(offset + 4, (value >> 32) as u32);
}

#[test]
fn acquires_pass_and_block_as_they_are_defined() {
    let rig = Rig::new();
    let mut ring = rig.channel(7, 8);
    let (mut offset, mut words, mut blocked) = (0x100, Vec::new(), Vec::new());
    for operation in [0, 2, 3, 4, 5] {
        for wide in [false, true] {
            for (memory, payload) in VALUES.into_iter().flat_map(|m| VALUES.map(|p| (m, p))) {
                let word = operation | if wide { WIDE } else { 0 };
                if passes(operation, wide, memory, payload) {
                    store(&rig, offset, memory);
                    words.extend(execute(offset as u64, payload, word));
                    offset += 8;
                } else if let Some(good) =
                    VALUES.into_iter().find(|&good| passes(operation, wide, good, payload))
                {
                    blocked.push((operation, wide, memory, payload, good));
                }
            }
        }
    }
    // All passing ones in one segment.
    ring.submit(&words);
    ring.commands(|encoder| encoder.semaphore_release(&release(SEMAPHORES, 1)).unwrap());
    rig.wait_for(0, 1);
    // The others one by one; every other one with SWITCH_TSG, which has no effect on a single channel.
    assert!(blocked.len() > 200, "{}", blocked.len());
    for (index, (operation, wide, memory, payload, good)) in (2..).zip(blocked) {
        store(&rig, 0x10, memory);
        let word = operation | if wide { WIDE } else { 0 } | if index % 2 == 0 { SWITCH } else { 0 };
        ring.submit(&execute(0x10, payload, word));
        ring.commands(|encoder| encoder.semaphore_release(&release(SEMAPHORES, index)).unwrap());
        let waiting = |activity: &Activity| matches!(activity, Activity::WaitingForSemaphore { .. });
        let Activity::WaitingForSemaphore { va, memory: seen, payload: wanted, .. } =
            rig.wait_activity(7, waiting)
        else {
            unreachable!()
        };
        let mask = if wide { u64::MAX } else { u64::from(u32::MAX) };
        assert_eq!((va, seen, wanted), (SEMAPHORES + 0x10, memory & mask, payload & mask));
        assert_eq!(rig.semaphores.load(0), index - 1);
        // The upper half first, so that no intermediate value satisfies the condition by its lower half.
        rig.semaphores.store(0x14, (good >> 32) as u32);
        rig.semaphores.store(0x10, good as u32);
        rig.wait_for(0, index);
    }
}

#[test]
fn acquires_that_nothing_satisfies_wait_forever() {
    // AND with a zero payload and NOR with all ones never pass.
    for (operation, payload) in [(4, 0), (5, u64::from(u32::MAX))] {
        for memory in [0, 1, u32::MAX] {
            let rig = Rig::new();
            let mut ring = rig.channel(7, 8);
            rig.semaphores.store(0x10, memory);
            ring.submit(&execute(0x10, payload, operation));
            rig.wait_activity(7, |activity| matches!(activity, Activity::WaitingForSemaphore { .. }));
            rig.gpu.stop_channels(&[7]);
        }
    }
}

#[test]
fn a_release_writes_the_words_of_its_structure() {
    let rig = Rig::new();
    let mut ring = rig.channel(7, 8);
    (0..0x100).step_by(4).for_each(|offset| rig.semaphores.store(offset, 0xaaaa_aaaa));
    let payload = 0x7_0000_0009;
    let before = ptimer_ns();
    let words: Vec<u32> = [
        execute(0x04, payload, 1),
        execute(0x18, payload, 1 | WIDE),
        execute(0x20, payload, 1 | TIMESTAMP),
        execute(0x40, payload, 1 | TIMESTAMP | WIDE | 1 << 20),
    ]
    .concat();
    ring.submit(&words);
    rig.wait_for(0x40, 9);
    let aa = 0xaaaa_aaaa;
    assert_eq!(rig.words(SEMAPHORES, 4), [aa, 9, aa, aa]);
    assert_eq!(rig.words(SEMAPHORES + 0x10, 4), [aa, aa, 9, 7]);
    assert_eq!(rig.words(SEMAPHORES + 0x20, 2), [9, 0]);
    assert_eq!(rig.words(SEMAPHORES + 0x30, 4), [aa; 4]);
    assert_eq!(rig.words(SEMAPHORES + 0x40, 2), [9, 7]);
    assert!(before <= rig.time(0x20) && rig.time(0x20) <= rig.time(0x40));
    assert!(rig.time(0x40) <= ptimer_ns());
}

/// The value that the L2 leaves in memory; `None` without such a reduction. Numbers of SEM_EXECUTE.REDUCTION.
fn reduced(number: u32, unsigned: bool, wide: bool, v: u64, p: u64) -> Option<u64> {
    let mask = if wide { u64::MAX } else { u64::from(u32::MAX) };
    let (v, p) = (v & mask, p & mask);
    // Signed order is unsigned order with an inverted sign bit.
    let turned = if unsigned { 0 } else { 1 << if wide { 63 } else { 31 } };
    let less = (v ^ turned) < (p ^ turned);
    let result = match number {
        0 => {
            if less {
                v
            } else {
                p
            }
        }
        1 => {
            if less {
                p
            } else {
                v
            }
        }
        2 => v ^ p,
        3 => v & p,
        4 => v | p,
        5 if wide && !unsigned => return None,
        5 => v.wrapping_add(p),
        6 | 7 if wide || !unsigned => return None,
        6 => {
            if v < p {
                v + 1
            } else {
                0
            }
        }
        7 => {
            if v == 0 || v > p {
                p
            } else {
                v - 1
            }
        }
        _ => return None,
    };
    Some(result & mask)
}

#[test]
fn reductions_of_every_kind_width_and_format() {
    let rig = Rig::new();
    let mut ring = rig.channel(7, 8);
    let (mut offset, mut words, mut expected, mut refused) = (0x10, Vec::new(), Vec::new(), Vec::new());
    for number in 0..16 {
        for (unsigned, wide) in [(false, false), (false, true), (true, false), (true, true)] {
            let format = if unsigned { 1 << 31 } else { 0 } | if wide { WIDE } else { 0 };
            let word = 6 | number << 27 | format;
            if reduced(number, unsigned, wide, 0, 0).is_none() {
                refused.push(word);
                continue;
            }
            for (v, p) in VALUES.into_iter().flat_map(|v| VALUES.map(|p| (v, p))) {
                store(&rig, offset, v);
                words.extend(execute(offset as u64, p, word));
                let upper = if wide { 0 } else { v >> 32 << 32 };
                let result = reduced(number, unsigned, wide, v, p).unwrap() | upper;
                expected.push((offset, word, v, p, result));
                offset += 8;
            }
        }
    }
    ring.submit(&words);
    ring.commands(|encoder| encoder.semaphore_release(&release(SEMAPHORES, 1)).unwrap());
    rig.wait_for(0, 1);
    for (offset, word, v, p, result) in expected {
        let found = u64::from(rig.semaphores.load(offset + 4)) << 32 | u64::from(rig.semaphores.load(offset));
        assert_eq!(found, result, "{word:#010x} of {v:#x} and {p:#x}");
    }
    assert_eq!(refused.len(), 8 * 4 + 3 + 3 + 1, "operations 8 to 15, INC, DEC and the signed 64-bit IADD");
    for word in refused {
        let rig = Rig::new();
        let mut ring = rig.channel(7, 8);
        ring.submit(&execute(0, 1, word));
        let (_, fault) = rig.fault();
        assert!(matches!(fault, ChannelFault::Semaphore { va: SEMAPHORES, .. }), "{word:#010x}: {fault}");
    }
}

#[test]
fn a_reduction_may_carry_the_time_and_needs_its_alignment() {
    let rig = Rig::new();
    let mut ring = rig.channel(7, 8);
    rig.semaphores.store(0x10, 40);
    rig.semaphores.store(0x14, 0x55);
    let add = 6 | 5 << 27 | 1 << 31;
    ring.submit(&execute(0x10, 2, add | TIMESTAMP));
    rig.wait_for(0x10, 42);
    assert_eq!(rig.semaphores.load(0x14), 0x55, "a reduction of 32 bits is no release of zero above them");
    assert_ne!(rig.time(0x10), 0);
    ring.submit(&execute(0x18, 2, add | TIMESTAMP));
    assert!(rig.fault().1.to_string().contains("multiple of 16"));
}

/// Whether a channel waits for a semaphore with this operation.
fn waits_for(activity: &Activity, operation: &str) -> bool {
    matches!(activity, Activity::WaitingForSemaphore { condition, .. } if *condition == operation)
}

#[test]
fn the_older_methods_acquire_release_and_reduce() {
    let rig = Rig::new();
    let mut ring = rig.channel(7, 8);
    (0x10..0x40).step_by(4).for_each(|offset| rig.semaphores.store(offset, 0xaaaa_aaaa));
    rig.semaphores.store(0x40, 0xffff_fff0);
    // RELEASE of 16 and of 4 bytes; REDUCTION: ADD, MAX signed and unsigned; ACQUIRE, ACQ_GEQ, ACQ_AND.
    let four = 1 << 24;
    let words: Vec<u32> = [
        execute_old(0x10, 7, 2),
        execute_old(0x20, 8, 2 | four | 1 << 20),
        execute_old(0x40, 0x20, 16 | four | 5 << 27 | 1 << 31),
        execute_old(0x40, 0xffff_ffff, 16 | four | 1 << 27),
        execute_old(0x10, 7, 1),
        execute_old(0x40, 0xffff_fff0, 4),
        execute_old(0x20, 0x18, 8),
        execute_old(0x50, 1, 2 | four),
    ]
    .concat();
    ring.submit(&words);
    rig.wait_for(0x50, 1);
    assert_eq!(rig.words(SEMAPHORES + 0x10, 2), [7, 0]);
    assert_ne!(rig.time(0x10), 0xaaaa_aaaa_aaaa_aaaa);
    assert_eq!(rig.words(SEMAPHORES + 0x20, 4), [8, 0xaaaa_aaaa, 0xaaaa_aaaa, 0xaaaa_aaaa]);
    assert_eq!(rig.semaphores.load(0x40), 0x10, "the maximum of 16 and -1 is signed");
    for (word, operation) in [(1, "ACQUIRE"), (4, "ACQ_GEQ"), (8, "ACQ_AND")] {
        let rig = Rig::new();
        let mut ring = rig.channel(7, 8);
        rig.semaphores.store(0, 1);
        ring.submit(&execute_old(0, 2, word));
        rig.wait_activity(7, |activity| waits_for(activity, operation));
    }
    // No operation, several operation bits, and an undefined reduction.
    for word in [0, 3, 32, 16 | 8 << 27] {
        let rig = Rig::new();
        let mut ring = rig.channel(7, 8);
        ring.submit(&execute_old(0, 2, word));
        let (_, fault) = rig.fault();
        let refused = matches!(fault, ChannelFault::Semaphore { .. } | ChannelFault::Method { .. });
        assert!(refused, "{word:#x}: {fault}");
    }
}

#[test]
fn wide_semaphores_update_both_words_atomically() {
    let rig = Rig::new();
    let mut ring = rig.channel(7, 8);
    let mut encoder = Encoder::new(Vec::new());
    // 64-bit payloads above 2^32, incremented and acquired by exact value.
    for value in [0xffff_ffff_u64, 0x1_0000_0000, 0x1_0000_0001] {
        encoder.words(&execute(0x10, value, 1 | WIDE)).unwrap();
        encoder.words(&execute(0x10, value, WIDE)).unwrap();
    }
    encoder.semaphore_release(&release(SEMAPHORES, 1)).unwrap();
    ring.submit(&encoder.into_sink());
    rig.wait_for(0, 1);
    assert_eq!(rig.words(SEMAPHORES + 0x10, 2), [1, 1]);
}
