//! LAUNCH_DMA of the copy engine: semaphores, reductions, order, sizes, and faulting transfers.

use ampere_cmd::{Encoder, Method, Subchannel, copy_c7b5 as class};
use orin_sim::gpu::ChannelFault;
use orin_sim::mmu::{Access, FaultKind};

use crate::rig::{Rig, SEMAPHORES, release};

const SOURCE: u64 = 0x10_0000_0000;
const TARGET: u64 = 0x20_0000_0000;

/// A copy of whole bytes, pitch to pitch, that flushes.
fn copy() -> class::LaunchDma {
    class::LaunchDma {
        data_transfer_type: class::LaunchDmaDataTransferType::NonPipelined,
        flush_enable: true,
        src_memory_layout: class::LaunchDmaSrcMemoryLayout::Pitch,
        dst_memory_layout: class::LaunchDmaDstMemoryLayout::Pitch,
        ..Default::default()
    }
}

/// A launch that moves nothing and releases a semaphore.
fn releasing(semaphore_type: class::LaunchDmaSemaphoreType) -> class::LaunchDma {
    class::LaunchDma { flush_enable: true, semaphore_type, ..Default::default() }
}

fn methods(encoder: &mut Encoder<Vec<u32>>, address: u32, data: &[u32]) {
    encoder.methods(Subchannel::COPY, address, data).unwrap();
}

/// OFFSET_IN, OFFSET_OUT, PITCH_IN, PITCH_OUT, LINE_LENGTH_IN, LINE_COUNT.
fn lines(encoder: &mut Encoder<Vec<u32>>, from: u64, to: u64, pitches: [u32; 2], length: u32, count: u32) {
    let halves = |va: u64| [(va >> 32) as u32, va as u32];
    let [[a, b], [c, d]] = [halves(from), halves(to)];
    methods(encoder, class::OffsetInUpper::ADDRESS, &[a, b, c, d, pitches[0], pitches[1], length, count]);
}

fn semaphore(encoder: &mut Encoder<Vec<u32>>, va: u64, payload: u64) {
    let data = [(va >> 32) as u32, va as u32, payload as u32, (payload >> 32) as u32];
    methods(encoder, class::SetSemaphoreA::ADDRESS, &data);
}

fn launch(encoder: &mut Encoder<Vec<u32>>, launch: &class::LaunchDma) {
    encoder.method(Subchannel::COPY, launch).unwrap();
}

/// The fault of a launch after `state`.
fn refused(state: impl FnOnce(&mut Encoder<Vec<u32>>), dma: &class::LaunchDma) -> String {
    let rig = Rig::new();
    let mut ring = rig.channel(5, 8);
    ring.commands(|encoder| {
        state(encoder);
        launch(encoder, dma);
    });
    let (_, fault) = rig.fault();
    assert!(matches!(fault, ChannelFault::Copy { .. }), "{fault}");
    fault.to_string()
}

#[test]
fn semaphores_write_one_two_or_four_words() {
    use class::LaunchDmaSemaphorePayloadSize::{OneWord, TwoWord};
    use class::LaunchDmaSemaphoreType as Type;
    let rig = Rig::new();
    let mut ring = rig.channel(1, 8);
    (0..0x100).step_by(4).for_each(|offset| rig.semaphores.store(offset, 0xaaaa_aaaa));
    let payload = 0x7_0000_0009;
    ring.commands(|encoder| {
        for (offset, semaphore_type, semaphore_payload_size) in [
            (0x14, Type::RELEASE_ONE_WORD_SEMAPHORE, OneWord),
            (0x28, Type::RELEASE_ONE_WORD_SEMAPHORE, TwoWord),
            (0x40, Type::RELEASE_FOUR_WORD_SEMAPHORE, OneWord),
            (0x60, Type::RELEASE_FOUR_WORD_SEMAPHORE, TwoWord),
        ] {
            semaphore(encoder, SEMAPHORES + offset, payload);
            launch(encoder, &class::LaunchDma { semaphore_payload_size, ..releasing(semaphore_type) });
        }
        encoder.semaphore_release(&release(SEMAPHORES + 0x100, 1)).unwrap();
    });
    rig.wait_for(0x100, 1);
    let words = |offset| rig.words(SEMAPHORES + offset, 4);
    assert_eq!(words(0x10), [0xaaaa_aaaa, 9, 0xaaaa_aaaa, 0xaaaa_aaaa]);
    assert_eq!(words(0x20), [0xaaaa_aaaa, 0xaaaa_aaaa, 9, 7]);
    assert_eq!(words(0x30), [0xaaaa_aaaa; 4]);
    assert_eq!(words(0x40)[..2], [9, 0]);
    assert_eq!(words(0x60)[..2], [9, 7]);
    assert!(rig.time(0x60) >= rig.time(0x40) && rig.time(0x40) != 0xaaaa_aaaa_aaaa_aaaa);
    assert_eq!(words(0x50), [0xaaaa_aaaa; 4]);
}

#[test]
fn misplaced_semaphores_are_refused_before_anything_moves() {
    use class::LaunchDmaSemaphoreType as Type;
    let wide = class::LaunchDmaSemaphorePayloadSize::TwoWord;
    for (offset, dma, reason) in [
        (2, releasing(Type::RELEASE_ONE_WORD_SEMAPHORE), "multiple of 4"),
        (8, releasing(Type::RELEASE_FOUR_WORD_SEMAPHORE), "multiple of 16"),
        (
            4,
            class::LaunchDma { semaphore_payload_size: wide, ..releasing(Type::RELEASE_ONE_WORD_SEMAPHORE) },
            "multiple of 8",
        ),
        (0, releasing(Type::ReleaseConditionalIntrSemaphore), "SEMAPHORE_TYPE"),
    ] {
        let said = refused(|encoder| semaphore(encoder, SEMAPHORES + offset, 1), &dma);
        assert!(said.contains(reason), "{said}");
    }
}

#[test]
fn reductions_of_every_kind_and_sign() {
    /// The L2's 32-bit result for memory and payload, as defined by the class header's names.
    fn narrow(number: u32, unsigned: bool, v: u32, p: u32) -> u32 {
        let (sv, sp, fv, fp) = (v as i32, p as i32, f32::from_bits(v), f32::from_bits(p));
        match (number, unsigned) {
            (0, true) => {
                if v < p {
                    v
                } else {
                    p
                }
            }
            (0, false) => {
                if sv < sp {
                    v
                } else {
                    p
                }
            }
            (1, true) => {
                if v > p {
                    v
                } else {
                    p
                }
            }
            (1, false) => {
                if sv > sp {
                    v
                } else {
                    p
                }
            }
            (2, _) => v ^ p,
            (3, _) => v & p,
            (4, _) => v | p,
            (5, _) => (u64::from(v) + u64::from(p)) as u32,
            (6, _) => {
                if v >= p {
                    0
                } else {
                    v + 1
                }
            }
            (7, _) => {
                if v == 0 || v > p {
                    p
                } else {
                    v - 1
                }
            }
            (10, _) => (fv + fp).to_bits(),
            (11, _) => {
                if fv < fp {
                    v
                } else {
                    p
                }
            }
            (12, _) => {
                if fv > fp {
                    v
                } else {
                    p
                }
            }
            other => unreachable!("{other:?}"),
        }
    }
    const VALUES: [u32; 6] = [0, 1, 0x3fc0_0000, 0x7fff_ffff, 0x8000_0001, 0xffff_ffff];
    let rig = Rig::new();
    let mut ring = rig.channel(1, 8);
    let mut expected = Vec::new();
    ring.commands(|encoder| {
        for number in (0..8).chain(10..13) {
            for unsigned in [false, true] {
                // Increment and decrement are unsigned only; NaNs are not tested.
                if !unsigned && (number == 6 || number == 7) {
                    continue;
                }
                for (v, p) in VALUES.into_iter().flat_map(|v| VALUES.map(|p| (v, p))) {
                    if number >= 10 && [v, p].iter().any(|&bits| f32::from_bits(bits).is_nan()) {
                        continue;
                    }
                    let offset = expected.len() * 4;
                    rig.semaphores.store(offset, v);
                    expected.push((number, unsigned, v, p, narrow(number, unsigned, v, p)));
                    semaphore(encoder, SEMAPHORES + offset as u64, u64::from(p));
                    // SEMAPHORE_TYPE one word, REDUCTION, SIGN and ENABLE of LAUNCH_DMA.
                    let word = 1 << 3 | number << 14 | u32::from(unsigned) << 18 | 1 << 19;
                    methods(encoder, class::LaunchDma::ADDRESS, &[word]);
                }
            }
        }
        encoder.semaphore_release(&release(SEMAPHORES + 0xfff0, 1)).unwrap();
    });
    rig.wait_for(0xfff0, 1);
    for (index, (number, unsigned, v, p, result)) in expected.into_iter().enumerate() {
        let found = rig.semaphores.load(index * 4);
        assert_eq!(found, result, "reduction {number}, unsigned {unsigned}, of {v:#x} and {p:#x}");
    }
}

#[test]
fn reductions_that_the_l2_lacks_are_refused() {
    use class::LaunchDmaSemaphoreReduction as Reduction;
    let one = releasing(class::LaunchDmaSemaphoreType::RELEASE_ONE_WORD_SEMAPHORE);
    let unsigned = class::LaunchDmaSemaphoreReductionSign::Unsigned;
    let wide = class::LaunchDmaSemaphorePayloadSize::TwoWord;
    for (semaphore_reduction, changes, reason) in [
        (Reduction::Inc, one, "unsigned only"),
        (
            Reduction::Dec,
            class::LaunchDma { semaphore_payload_size: wide, semaphore_reduction_sign: unsigned, ..one },
            "no 64-bit form",
        ),
        (Reduction::Iadd, class::LaunchDma { semaphore_payload_size: wide, ..one }, "unsigned only"),
        (Reduction::Fadd, class::LaunchDma { semaphore_payload_size: wide, ..one }, "no 64-bit form"),
        (Reduction::Invalida, one, "no such reduction"),
        (Reduction::Invalide, one, "no such reduction"),
    ] {
        let dma = class::LaunchDma { semaphore_reduction, semaphore_reduction_enable: true, ..changes };
        let said = refused(|encoder| semaphore(encoder, SEMAPHORES, 1), &dma);
        assert!(said.contains(reason), "{semaphore_reduction:?}: {said}");
    }
}

#[test]
fn transfers_follow_each_other_and_semaphores_their_transfers() {
    let rig = Rig::new();
    let mut ring = rig.channel(1, 8);
    // Longer than a slice, so that the first is still running when the second is queued.
    let len = 3 << 20;
    rig.map(SOURCE, len);
    rig.map(TARGET, 2 * len);
    rig.write(SOURCE, &vec![0x5a; len]);
    let pipelined =
        class::LaunchDma { data_transfer_type: class::LaunchDmaDataTransferType::Pipelined, ..copy() };
    let signal = class::LaunchDma {
        semaphore_type: class::LaunchDmaSemaphoreType::RELEASE_ONE_WORD_SEMAPHORE,
        ..copy()
    };
    ring.commands(|encoder| {
        lines(encoder, SOURCE, TARGET, [0; 2], len as u32, 1);
        launch(encoder, &pipelined);
        // Reads what the first one writes.
        lines(encoder, TARGET, TARGET + len as u64, [0; 2], len as u32, 1);
        semaphore(encoder, SEMAPHORES, 1);
        launch(encoder, &signal);
    });
    rig.wait_for(0, 1);
    assert!(rig.read(TARGET + len as u64, len).iter().all(|&byte| byte == 0x5a));
}

#[test]
fn lines_that_overlap_each_other_are_written_in_order() {
    let rig = Rig::new();
    let mut ring = rig.channel(1, 8);
    rig.map(SOURCE, 0x1000);
    rig.map(TARGET, 0x1000);
    rig.write(SOURCE, &(0..=255).collect::<Vec<u8>>());
    ring.commands(|encoder| {
        // Lines of 16 bytes with a pitch of 10: the later line wins.
        lines(encoder, SOURCE, TARGET, [16, 10], 16, 3);
        launch(encoder, &class::LaunchDma { multi_line_enable: true, ..copy() });
        // Pitch 0: every line goes to the same address.
        lines(encoder, SOURCE, TARGET + 0x100, [16, 0], 16, 4);
        launch(encoder, &class::LaunchDma { multi_line_enable: true, ..copy() });
        // Without MULTI_LINE_ENABLE the count has no effect.
        lines(encoder, SOURCE, TARGET + 0x200, [16, 16], 16, 4);
        launch(encoder, &copy());
        encoder.semaphore_release(&release(SEMAPHORES, 1)).unwrap();
    });
    rig.wait_for(0, 1);
    let expected: Vec<u8> = (0..10).chain(16..26).chain(32..48).collect();
    assert_eq!(rig.read(TARGET, 36), expected);
    assert_eq!(rig.read(TARGET + 0x100, 16), (48..64).collect::<Vec<u8>>());
    assert_eq!(rig.read(TARGET + 0x200, 17)[15..], [15, 0]);
}

#[test]
fn one_launch_moves_more_than_four_gib() {
    let rig = Rig::new();
    let mut ring = rig.channel(1, 8);
    // Pitch 0 on both sides, so that little memory suffices for 4 GiB and 1 MiB.
    let line = 4 << 20;
    rig.map(SOURCE, line);
    rig.map(TARGET, line);
    rig.write(SOURCE + line as u64 - 4, &[1, 2, 3, 4]);
    let signal = class::LaunchDma {
        multi_line_enable: true,
        semaphore_type: class::LaunchDmaSemaphoreType::RELEASE_ONE_WORD_SEMAPHORE,
        ..copy()
    };
    ring.commands(|encoder| {
        lines(encoder, SOURCE, TARGET, [0; 2], line as u32, 1025);
        semaphore(encoder, SEMAPHORES, 1);
        launch(encoder, &signal);
    });
    rig.wait_for(0, 1);
    assert_eq!(rig.read(TARGET + line as u64 - 4, 4), [1, 2, 3, 4]);
    // One line of maximum length, between sparse pages, with one byte of memory after the target's.
    let (from, to, length) = (0x30_0000_0000, 0x40_0000_0000, u32::MAX);
    rig.space.add_sparse(from, 1 << 32);
    rig.space.add_sparse(to, (1 << 32) - 0x1000);
    rig.map(to + (1 << 32) - 0x1000, 0x1000);
    rig.write(to + (1 << 32) - 0x1000, &[0x77; 0x1000]);
    ring.commands(|encoder| {
        lines(encoder, from, to, [0; 2], length, 1);
        semaphore(encoder, SEMAPHORES, 2);
        launch(encoder, &class::LaunchDma { multi_line_enable: false, ..signal });
    });
    rig.wait_for(0, 2);
    let tail = rig.read(to + (1 << 32) - 0x1000, 0x1000);
    assert!(tail[..0xfff].iter().all(|&byte| byte == 0) && tail[0xfff] == 0x77);
}

#[test]
fn a_faulting_transfer_keeps_what_it_already_wrote() {
    let rig = Rig::new();
    let mut ring = rig.channel(5, 8);
    rig.map(SOURCE, 0x4000);
    rig.map(TARGET, 0x2000);
    rig.write(SOURCE, &[0x5a; 0x4000]);
    ring.commands(|encoder| {
        // The third line runs into unmapped memory.
        lines(encoder, SOURCE, TARGET, [0x1000, 0x0fc0], 0x800, 4);
        semaphore(encoder, SEMAPHORES, 1);
        let signal = class::LaunchDma {
            multi_line_enable: true,
            semaphore_type: class::LaunchDmaSemaphoreType::RELEASE_ONE_WORD_SEMAPHORE,
            interrupt_type: class::LaunchDmaInterruptType::NonBlocking,
            ..copy()
        };
        launch(encoder, &signal);
        launch(encoder, &class::LaunchDma { data_transfer_type: Default::default(), ..signal });
    });
    let (id, fault) = rig.fault();
    let ChannelFault::Mmu { client, fault } = fault else { panic!("{fault}") };
    assert_eq!((id, client, fault.va, fault.access), (5, "copy", TARGET + 0x2000, Access::Write));
    assert_eq!(fault.kind, FaultKind::InvalidPte);
    let target = rig.read(TARGET, 0x2000);
    for (at, byte) in target.into_iter().enumerate() {
        let written = [0..0x800, 0x0fc0..0x17c0, 0x1f80..0x2000].iter().any(|line| line.contains(&at));
        assert_eq!(byte == 0x5a, written, "{at:#x}");
    }
    assert_eq!(rig.semaphores.load(0), 0, "neither its semaphore nor the next launch");
}

#[test]
fn a_remapped_transfer_faults_at_the_faulting_component() {
    let rig = Rig::new();
    let mut ring = rig.channel(5, 8);
    rig.map(TARGET, 0x1000);
    ring.commands(|encoder| {
        // Three bytes of an element are written and the fourth is kept, so it may be unmapped.
        methods(encoder, class::SetRemapConstA::ADDRESS, &[7, 9, 0x0300_6544]);
        lines(encoder, 0, TARGET + 0xff8, [0; 2], 2, 1);
        launch(encoder, &class::LaunchDma { remap_enable: true, ..copy() });
        lines(encoder, 0, TARGET + 0xff9, [0; 2], 2, 1);
        launch(encoder, &class::LaunchDma { remap_enable: true, ..copy() });
        lines(encoder, 0, TARGET + 0xffa, [0; 2], 2, 1);
        launch(encoder, &class::LaunchDma { remap_enable: true, ..copy() });
    });
    let (_, fault) = rig.fault();
    let ChannelFault::Mmu { client, fault } = fault else { panic!("{fault}") };
    assert_eq!((client, fault.va), ("copy", TARGET + 0x1000));
    assert_eq!(rig.read(TARGET + 0xff8, 8), [7, 7, 7, 7, 9, 7, 7, 7]);
}

#[test]
fn hints_change_nothing_and_reserved_values_are_refused() {
    let rig = Rig::new();
    let mut ring = rig.channel(1, 8);
    rig.map(SOURCE, 0x1000);
    rig.map(TARGET, 0x1000);
    rig.write(SOURCE, &[1, 2, 3, 4]);
    let hints = class::LaunchDma {
        force_rmwdisable: true,
        flush_type: class::LaunchDmaFlushType::Gl,
        disable_plc: true,
        interrupt_type: class::LaunchDmaInterruptType::NonBlocking,
        ..copy()
    };
    ring.commands(|encoder| {
        // Rendering is enabled by default; NOP and the triggers of counters have no effect.
        methods(encoder, class::SetRenderEnableC::ADDRESS, &[1]);
        methods(encoder, class::Nop::ADDRESS, &[5]);
        methods(encoder, class::PmTrigger::ADDRESS, &[5]);
        methods(encoder, class::PmTriggerEnd::ADDRESS, &[5]);
        lines(encoder, SOURCE, TARGET, [0; 2], 4, 1);
        launch(encoder, &hints);
        encoder.semaphore_release(&release(SEMAPHORES, 1)).unwrap();
    });
    rig.wait_for(0, 1);
    rig.wait_interrupts(1);
    assert_eq!(rig.read(TARGET, 4), [1, 2, 3, 4]);
    let state = |encoder: &mut Encoder<Vec<u32>>| lines(encoder, SOURCE, TARGET, [0; 2], 4, 1);
    for (dma, reason) in [
        (class::LaunchDma { reserved_start_of_copy: 1, ..copy() }, "reserved bits"),
        (class::LaunchDma { vprmode: class::LaunchDmaVprmode::VprVid2vid, ..copy() }, "VPRMODE"),
        (
            class::LaunchDma { interrupt_type: class::LaunchDmaInterruptType::Blocking, ..copy() },
            "INTERRUPT_TYPE",
        ),
    ] {
        let said = refused(state, &dma);
        assert!(said.contains(reason), "{said}");
    }
}

#[test]
fn methods_without_a_model_or_a_name_are_refused() {
    // Monitored fences, conditional rendering, and BYPASS_L2, which earlier classes had at bit 20.
    for (address, data, reason) in [
        (class::SetMonitoredFenceType::ADDRESS, 0, "not modelled"),
        (class::SetRenderEnableC::ADDRESS, 2, "conditional rendering"),
        (class::SetRenderEnableC::ADDRESS, 7, "HCE_RE_ILLEGAL_OP"),
        (class::LaunchDma::ADDRESS, 0x10_0182, "no field at bits 0x00100000"),
        (class::LaunchDma::ADDRESS, 0x1182, "HCE_PRIV"),
        (class::LaunchDma::ADDRESS, 0x2182, "HCE_PRIV"),
        (class::OffsetInUpper::ADDRESS, 0x2_0000, "no field"),
    ] {
        let rig = Rig::new();
        let mut ring = rig.channel(5, 8);
        ring.commands(|encoder| methods(encoder, address, &[data]));
        let (_, fault) = rig.fault();
        assert!(matches!(fault, ChannelFault::Method { .. }), "{fault}");
        assert!(fault.to_string().contains(reason), "{address:#x}: {fault}");
    }
}
