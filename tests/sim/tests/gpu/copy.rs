//! The copy engine and inline uploads.

use ampere_cmd::command::SemaphoreRelease;
use ampere_cmd::command::{CopyRelease, CopySide, Fill, LinearCopy, Pattern, SurfaceCopy};
use ampere_cmd::{Method, Subchannel, compute_c7c0, copy_c7b5 as class};

use crate::rig::{Rig, SEMAPHORES, acquire, release};

const SOURCE: u64 = 0x10_0000_0000;
const TARGET: u64 = 0x1_0020_0000_0000; // above the host engine's range, within the copy engine's 49 bits

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|index| (index * 31 + index / 256) as u8).collect()
}

#[test]
fn a_linear_copy_crosses_mappings_and_releases_with_time() {
    let rig = Rig::new();
    let mut ring = rig.channel(1, 8);
    for page in 0..4 {
        rig.map(SOURCE + page * 0x1000, 0x1000);
        rig.map(TARGET + page * 0x1000, 0x1000);
    }
    let data = pattern(0x3000);
    rig.write(SOURCE + 0x123, &data);
    ring.commands(|encoder| {
        encoder.set_object(Subchannel::COPY, u32::from(class::CLASS)).unwrap();
        encoder
            .linear_copy(&LinearCopy { source: SOURCE + 0x123, destination: TARGET + 0xfff, bytes: 0x3000 })
            .unwrap();
        encoder.copy_release(&CopyRelease { va: SEMAPHORES, payload: 9, timestamp: true }).unwrap();
    });
    rig.wait_for(0, 9);
    assert!(rig.read(TARGET + 0xfff, 0x3000) == data);
    assert_eq!(rig.semaphores.load(4), 0);
    assert_ne!(rig.semaphores.load(8), 0, "four words carry the time");
}

#[test]
fn a_big_copy_runs_in_slices_with_other_work_between() {
    let rig = Rig::new();
    let (mut copier, mut other) = (rig.channel(1, 8), rig.channel(2, 8));
    let len = 64 << 20;
    rig.map(SOURCE, len);
    rig.map(TARGET, len);
    rig.write(SOURCE + len as u64 - 8, &pattern(8));
    let stamped = |offset, wait_for_idle| SemaphoreRelease {
        wait_for_idle,
        timestamp: true,
        ..release(SEMAPHORES + offset, 1)
    };
    copier.commands(|encoder| {
        for _ in 0..8 {
            encoder
                .linear_copy(&LinearCopy { source: SOURCE, destination: TARGET, bytes: len as u64 })
                .unwrap();
        }
        encoder.semaphore_release(&stamped(0x20, false)).unwrap();
        encoder.semaphore_release(&stamped(0, true)).unwrap();
    });
    // The other channel waits until the copies have started, and responds before they are done.
    other.commands(|encoder| {
        encoder.semaphore_acquire(&acquire(SEMAPHORES + 0x20, 1)).unwrap();
        encoder.semaphore_release(&stamped(0x10, false)).unwrap();
    });
    rig.wait_for(0, 1);
    rig.wait_for(0x10, 1);
    assert!(rig.time(0x10) < rig.time(0), "half a GiB was copied in one go");
    assert_eq!(rig.read(TARGET + len as u64 - 8, 8), pattern(8));
}

#[test]
fn host_overtakes_a_copy_that_it_does_not_wait_for() {
    let rig = Rig::new();
    let mut ring = rig.channel(1, 8);
    let len = 32 << 20;
    rig.map(SOURCE, len);
    rig.map(TARGET, len);
    rig.write(SOURCE + len as u64 - 4, &[1, 2, 3, 4]);
    let late = SemaphoreRelease { wait_for_idle: false, timestamp: true, ..release(SEMAPHORES, 1) };
    ring.commands(|encoder| {
        encoder.linear_copy(&LinearCopy { source: SOURCE, destination: TARGET, bytes: len as u64 }).unwrap();
        encoder.semaphore_release(&late).unwrap();
        encoder.copy_release(&CopyRelease { va: SEMAPHORES + 16, payload: 1, timestamp: true }).unwrap();
    });
    rig.wait_for(16, 1);
    assert_eq!(rig.semaphores.load(0), 1);
    assert!(rig.time(0) < rig.time(16), "a release without WFI does not wait for the copy");
}

#[test]
fn lines_keep_their_pitches() {
    let rig = Rig::new();
    let mut ring = rig.channel(1, 8);
    rig.map(SOURCE, 0x10000);
    rig.map(TARGET, 0x20000);
    let data = pattern(0x10000);
    rig.write(SOURCE, &data);
    ring.commands(|encoder| {
        encoder
            .surface_copy(&SurfaceCopy {
                source: CopySide::Pitch { va: SOURCE, pitch: 512 },
                destination: CopySide::Pitch { va: TARGET, pitch: 1024 },
                line_bytes: 320,
                lines: 64,
            })
            .unwrap();
        encoder.semaphore_release(&release(SEMAPHORES, 1)).unwrap();
    });
    rig.wait_for(0, 1);
    let target = rig.read(TARGET, 0x20000);
    for line in 0..64 {
        assert_eq!(target[line * 1024..][..320], data[line * 512..][..320], "line {line}");
        assert!(target[line * 1024 + 320..][..704].iter().all(|&byte| byte == 0), "gap of line {line}");
    }
}

#[test]
fn fills_of_every_width() {
    let rig = Rig::new();
    let mut ring = rig.channel(1, 8);
    rig.map(TARGET, 0x10000);
    let fills = [
        (TARGET + 3, Pattern::Bits8(0xa5), 1000u32),
        (TARGET + 0x1000, Pattern::Bits32(0xdead_beef), 1024),
        (TARGET + 0x2002, Pattern::Bits16(0xbeef), 1001),
        (TARGET + 0x8000, Pattern::Bits64(0x0123_4567_89ab_cdef), 2000),
    ];
    ring.commands(|encoder| {
        for (destination, pattern, count) in fills {
            encoder.fill(&Fill { destination, pattern, count }).unwrap();
        }
        encoder.semaphore_release(&release(SEMAPHORES, 1)).unwrap();
    });
    rig.wait_for(0, 1);
    let mut expected = vec![0; 0x10000];
    expected[3..1003].fill(0xa5);
    expected[0x1000..0x2000]
        .chunks_exact_mut(4)
        .for_each(|word| word.copy_from_slice(&0xdead_beefu32.to_le_bytes()));
    expected[0x8000..0x8000 + 16000]
        .chunks_exact_mut(8)
        .for_each(|word| word.copy_from_slice(&0x0123_4567_89ab_cdefu64.to_le_bytes()));
    expected[0x2002..0x2002 + 2002].chunks_exact_mut(2).for_each(|word| word.copy_from_slice(&[0xef, 0xbe]));
    assert!(rig.read(TARGET, 0x10000) == expected);
}

#[test]
fn semaphores_of_the_engine_take_wide_payloads_reductions_and_interrupts() {
    let rig = Rig::new();
    let mut ring = rig.channel(1, 8);
    rig.semaphores.store(0x20, 40);
    let launch = class::LaunchDma {
        flush_enable: true,
        semaphore_type: class::LaunchDmaSemaphoreType::RELEASE_ONE_WORD_SEMAPHORE,
        ..Default::default()
    };
    ring.commands(|encoder| {
        let mut at = |va: u64, payload: u64, launch: class::LaunchDma| {
            encoder
                .sequence(
                    Subchannel::COPY,
                    &(
                        class::SetSemaphoreA { upper: (va >> 32) as u32 },
                        class::SetSemaphoreB { lower: va as u32 },
                        class::SetSemaphorePayload { payload: payload as u32 },
                        class::SetSemaphorePayloadUpper { payload: (payload >> 32) as u32 },
                    ),
                )
                .unwrap();
            encoder.method(Subchannel::COPY, &launch).unwrap();
        };
        at(
            SEMAPHORES + 0x10,
            0x7_0000_0009,
            class::LaunchDma {
                semaphore_payload_size: class::LaunchDmaSemaphorePayloadSize::TwoWord,
                ..launch
            },
        );
        at(
            SEMAPHORES + 0x20,
            2,
            class::LaunchDma {
                semaphore_reduction: class::LaunchDmaSemaphoreReduction::Iadd,
                semaphore_reduction_sign: class::LaunchDmaSemaphoreReductionSign::Unsigned,
                semaphore_reduction_enable: true,
                interrupt_type: class::LaunchDmaInterruptType::NonBlocking,
                ..launch
            },
        );
        at(SEMAPHORES, 0xffff_ffff_0000_0001, launch);
    });
    rig.wait_for(0, 1);
    assert_eq!(rig.semaphores.load(4), 0, "one word is one word");
    assert_eq!((rig.semaphores.load(0x10), rig.semaphores.load(0x14)), (9, 7));
    assert_eq!(rig.semaphores.load(0x20), 42);
    rig.wait_interrupts(1);
}

#[test]
fn inline_data_is_uploaded_to_the_byte() {
    let rig = Rig::new();
    let mut ring = rig.channel(1, 8);
    rig.map(TARGET, 0x4000);
    rig.write(TARGET, &[0xff; 0x4000]);
    let words: Vec<u32> = (0..2000u32).map(|index| index.wrapping_mul(0x0101_0101)).collect();
    let launch = compute_c7c0::LaunchDma {
        dst_memory_layout: compute_c7c0::LaunchDmaDstMemoryLayout::Pitch,
        completion_type: compute_c7c0::LaunchDmaCompletionType::ReleaseSemaphore,
        semaphore_struct_size: compute_c7c0::LaunchDmaSemaphoreStructSize::OneWord,
        ..Default::default()
    };
    ring.commands(|encoder| {
        encoder.inline_upload(TARGET + 4, &words).unwrap();
        // Two lines of 8 bytes one pitch apart, then 5 bytes followed by a semaphore.
        let mut lines = |va: u64, length, count, launch: compute_c7c0::LaunchDma, data: &[u32]| {
            encoder
                .sequence(
                    Subchannel::COMPUTE,
                    &(
                        compute_c7c0::LineLengthIn { value: length },
                        compute_c7c0::LineCount { value: count },
                        compute_c7c0::OffsetOutUpper { value: (va >> 32) as u32 },
                        compute_c7c0::OffsetOut { value: va as u32 },
                        compute_c7c0::PitchOut { value: 0x100 },
                    ),
                )
                .unwrap();
            encoder
                .sequence(
                    Subchannel::COMPUTE,
                    &(
                        compute_c7c0::SetI2mSemaphoreA { offset_upper: (SEMAPHORES >> 32) as u32 },
                        compute_c7c0::SetI2mSemaphoreB { offset_lower: SEMAPHORES as u32 },
                        compute_c7c0::SetI2mSemaphoreC { payload: 3 },
                    ),
                )
                .unwrap();
            encoder.method(Subchannel::COMPUTE, &launch).unwrap();
            encoder
                .non_incrementing(Subchannel::COMPUTE, compute_c7c0::LoadInlineData::ADDRESS, data)
                .unwrap();
        };
        let quiet = compute_c7c0::LaunchDma {
            completion_type: compute_c7c0::LaunchDmaCompletionType::FlushOnly,
            ..launch
        };
        lines(TARGET + 0x3000, 8, 2, quiet, &[1, 2, 3, 4]);
        lines(TARGET + 0x3801, 5, 1, launch, &[0x0403_0201, 0xaaaa_aa05]);
    });
    rig.wait_for(0, 3);
    let mut expected = vec![0xff; 0x4000];
    for (chunk, word) in expected[4..].chunks_exact_mut(4).zip(&words) {
        chunk.copy_from_slice(&word.to_le_bytes());
    }
    expected[0x3000..0x3008].copy_from_slice(&[1, 0, 0, 0, 2, 0, 0, 0]);
    expected[0x3100..0x3108].copy_from_slice(&[3, 0, 0, 0, 4, 0, 0, 0]);
    expected[0x3801..0x3806].copy_from_slice(&[1, 2, 3, 4, 5]);
    assert!(rig.read(TARGET, 0x4000) == expected);
}
