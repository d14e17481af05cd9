//! Every check of the launch descriptor.

use ampere_cmd::command::PcasAction;
use ampere_cmd::qmd::{Field, FieldArray, QmdV3_0, shared_memory_config, v3_0 as q};
use ampere_cmd::{Encoder, Method, Subchannel, compute_c7c0 as class};
use orin_sim::check::Kind;
use orin_sim::gpu::ChannelFault;
use orin_sim::mmu::{Access, MmuFault};
use orin_sim::sm::{SmFault, SmFaultCause};

use crate::compute::{
    DATA, LOCAL, LOCAL_PER_TPC, LOCAL_WINDOW, SHARED_WINDOW, arguments, bank_at, basics, faulty, launch,
    ordered, qmd_at,
};
use crate::rig::{SEMAPHORES, release};

/// A change of a descriptor or of the channel's set-up before a launch.
type Change<'a> = (&'a str, Option<u32>, &'a [(Field<q::Layout>, u64)], &'a str);

#[test]
fn the_scheduler_refuses_bad_descriptors_one_by_one() {
    let bank = |array: FieldArray<q::Layout>| array.at(0).unwrap();
    let cases: &[Change<'_>] = &[
        ("major version", None, &[(q::QMD_MAJOR_VERSION, 2)], "version 2.0"),
        ("minor version", None, &[(q::QMD_VERSION, 3)], "version 3.3"),
        ("machine code", None, &[(q::SASS_VERSION, 0x90)], "SASS_VERSION"),
        ("queue", None, &[(q::IS_QUEUE, 1)], "IS_QUEUE is 0x1: not modelled"),
        ("second dependent", None, &[(q::DEPENDENT_QMD1_ENABLE, 1)], "DEPENDENT_QMD1_ENABLE"),
        ("hardware's own", None, &[(q::HW_ONLY_SKED_NEXT_QMD_POINTER, 5)], "HW_ONLY"),
        ("SM mask", None, &[(q::SM_DISABLE_MASK_LOWER, 1)], "SM_DISABLE_MASK_LOWER"),
        ("sequential CTAs", None, &[(q::SEQUENTIALLY_RUN_CTAS, 1)], "SEQUENTIALLY_RUN_CTAS"),
        ("membar", None, &[(q::CWD_MEMBAR_TYPE, 2)], "CWD_MEMBAR_TYPE"),
        ("occupancy", None, &[(q::OCCUPANCY_MAX_WARP, 1)], "OCCUPANCY_MAX_WARP"),
        ("prefetch", None, &[(q::PROGRAM_PREFETCH_TYPE, 2)], "PROGRAM_PREFETCH_TYPE"),
        ("no grid", None, &[(q::CTA_RASTER_DEPTH, 0)], "no CTAs"),
        ("wide grid", None, &[(q::CTA_RASTER_WIDTH, 1 << 31)], "CTA_RASTER_WIDTH"),
        ("no threads", Some(23), &[(q::CTA_THREAD_DIMENSION1, 0)], "no threads"),
        ("many threads", Some(18), &[(q::CTA_THREAD_DIMENSION0, 512), (q::CTA_THREAD_DIMENSION1, 3)], "1536"),
        ("deep block", None, &[(q::CTA_THREAD_DIMENSION0, 1), (q::CTA_THREAD_DIMENSION2, 65)], "along z"),
        ("no registers", Some(13), &[(q::REGISTER_COUNT_V, 0)], "REGISTER_COUNT_V"),
        ("many registers", Some(13), &[(q::REGISTER_COUNT_V, 256)], "REGISTER_COUNT_V"),
        (
            "register file",
            Some(26),
            &[(q::REGISTER_COUNT_V, 128), (q::CTA_THREAD_DIMENSION0, 1024)],
            "room for 16",
        ),
        ("barriers", None, &[(q::BARRIER_COUNT, 17)], "BARRIER_COUNT"),
        ("program", Some(20), &[(q::PROGRAM_ADDRESS_LOWER, 0x1000_0010)], "not aligned to 128"),
        ("odd shared memory", Some(21), &[(q::SHARED_MEMORY_SIZE, 1000)], "SHARED_MEMORY_SIZE"),
        ("big shared memory", Some(21), &[(q::SHARED_MEMORY_SIZE, 165 * 1024)], "SHARED_MEMORY_SIZE"),
        (
            "no such configuration",
            Some(25),
            &[(q::MIN_SM_CONFIG_SHARED_MEM_SIZE, 13)],
            "is not a configuration",
        ),
        ("small configuration", Some(25), &[(q::SHARED_MEMORY_SIZE, 9 * 1024)], "SM configurations"),
        ("small maximum", Some(25), &[(q::MAX_SM_CONFIG_SHARED_MEM_SIZE, 1)], "SM configurations"),
        ("low local memory", Some(9), &[(q::SHADER_LOCAL_MEMORY_LOW_SIZE, 8)], "LOW_SIZE"),
        ("high local memory", Some(10), &[(q::SHADER_LOCAL_MEMORY_HIGH_SIZE, 24)], "HIGH_SIZE"),
        ("all local memory", Some(12), &[(q::SHADER_LOCAL_MEMORY_HIGH_SIZE, 0x10_0000)], "NON_THROTTLED"),
        (
            "local window",
            Some(12),
            &[(q::SHADER_LOCAL_MEMORY_LOW_SIZE, 0xff_fff0), (q::SHADER_LOCAL_MEMORY_HIGH_SIZE, 16)],
            "window",
        ),
        ("big constant bank", Some(7), &[(bank(q::CONSTANT_BUFFER_SIZE_SHIFTED4), 0x1001)], "64 KiB"),
        // 4.25 KiB whose byte count was not divided by 16.
        ("constant bank in bytes", Some(7), &[(bank(q::CONSTANT_BUFFER_SIZE_SHIFTED4), 0x1100)], "64 KiB"),
        ("odd constant bank", None, &[(bank(q::CONSTANT_BUFFER_ADDR_LOWER), 32)], "not aligned to 64"),
        ("odd release", None, &[(q::RELEASE0_ENABLE, 1), (q::RELEASE0_ADDRESS_LOWER, 8)], "multiple of 16"),
        (
            "wide word",
            None,
            &[(q::RELEASE1_ENABLE, 1), (q::RELEASE1_STRUCTURE_SIZE, 1), (q::RELEASE1_PAYLOAD64B, 1)],
            "one-word",
        ),
        ("structure", None, &[(q::RELEASE2_ENABLE, 1), (q::RELEASE2_STRUCTURE_SIZE, 3)], "structure size"),
        ("trap", None, &[(q::RELEASE0_ENABLE, 1), (q::RELEASE0_TRAP_TYPE, 2)], "trap type"),
        (
            "reduction",
            None,
            &[(q::RELEASE0_ENABLE, 1), (q::RELEASE0_REDUCTION_ENABLE, 1), (q::RELEASE0_REDUCTION_FORMAT, 2)],
            "no such reduction",
        ),
        (
            "dependent",
            None,
            &[(q::DEPENDENT_QMD0_ENABLE, 1), (q::DEPENDENT_QMD0_ACTION, 0)],
            "DEPENDENT_QMD0_ACTION",
        ),
    ];
    let kernels = basics();
    let rig = &kernels.rig;
    for (index, (name, bit, changes, reason)) in cases.iter().enumerate() {
        let id = index as u32;
        let mut qmd = kernels.prepare("empty", 0, [1, 1, 1], [32, 1, 1], &[]);
        for &(field, value) in *changes {
            qmd.set(field, value).unwrap();
        }
        kernels.store(0, &qmd);
        let mut ring = kernels.channel(id);
        ring.commands(|encoder| launch(encoder, 0, PcasAction::InvalidateCopySchedule));
        let (from, fault) = rig.fault();
        let ChannelFault::LaunchDescriptor { va, esr_bit, reason: said } = &fault else {
            panic!("{name}: {fault}");
        };
        assert_eq!((from, *va, *esr_bit), (id, qmd_at(0), *bit), "{name}: {said}");
        assert!(said.contains(reason), "{name}: {said:?} does not say {reason:?}");
        rig.gpu.stop_channels(&[id]);
    }
}

#[test]
fn bits_without_a_name_are_refused() {
    let kernels = basics();
    let qmd = kernels.prepare("empty", 0, [1, 1, 1], [32, 1, 1], &[]);
    let mut words = qmd.as_words().to_vec();
    words[464 / 32] |= 1 << (464 % 32);
    kernels.store(0, &QmdV3_0::from_slice(&words).unwrap());
    let mut ring = kernels.channel(511);
    ring.commands(|encoder| launch(encoder, 0, PcasAction::InvalidateCopySchedule));
    let (_, fault) = kernels.rig.fault();
    assert!(fault.to_string().contains("bit 464"), "{fault}");
}

/// The fault of a launch on a channel with only the given set-up.
fn refused_after(set_up: impl FnOnce(&mut Encoder<Vec<u32>>), local_bytes: u64) -> (Option<u32>, String) {
    let kernels = basics();
    let mut qmd = kernels.prepare("empty", 0, [1, 1, 1], [32, 1, 1], &[]);
    qmd.set(q::SHADER_LOCAL_MEMORY_HIGH_SIZE, local_bytes).unwrap();
    kernels.store(0, &qmd);
    let mut ring = kernels.rig.channel(511, 16);
    ring.commands(|encoder| {
        set_up(encoder);
        launch(encoder, 0, PcasAction::InvalidateCopySchedule);
    });
    let (_, fault) = kernels.rig.fault();
    let ChannelFault::LaunchDescriptor { esr_bit, reason, .. } = fault else { panic!("{fault}") };
    (esr_bit, reason)
}

#[test]
fn windows_and_local_memory_must_be_set_up() {
    let windows = |encoder: &mut Encoder<Vec<u32>>| {
        encoder.shader_shared_memory_window(SHARED_WINDOW).unwrap();
        encoder.shader_local_memory_window(LOCAL_WINDOW).unwrap();
    };
    // A fresh channel has both windows at zero: SKED exception 0x01000000 on a board.
    let (bit, reason) = refused_after(|_| {}, 0);
    assert_eq!((bit, reason.contains("has not been set")), (Some(24), true), "{reason}");
    for (shared, local, wrong) in [
        (SHARED_WINDOW, 0, "LOCAL_MEMORY_WINDOW 0x0: the window has not been set"),
        (SHARED_WINDOW, SHARED_WINDOW, "the windows of shared and local memory overlap"),
        (
            SHARED_WINDOW + 0x80_0000,
            LOCAL_WINDOW,
            "SHARED_MEMORY_WINDOW 0x729400800000: the window is not aligned",
        ),
        (SHARED_WINDOW, DATA, "LOCAL_MEMORY_WINDOW 0x1500000000: the window overlaps mapped memory"),
    ] {
        let (bit, reason) = refused_after(
            |encoder| {
                encoder.shader_shared_memory_window(shared).unwrap();
                encoder.shader_local_memory_window(local).unwrap();
            },
            0,
        );
        assert_eq!((bit, reason.contains(wrong)), (Some(24), true), "{reason} does not say {wrong}");
    }
    let (bit, reason) = refused_after(windows, 0x240);
    assert_eq!((bit, reason.contains("NON_THROTTLED")), (Some(12), true), "{reason}");
    let (bit, reason) = refused_after(
        |encoder| {
            windows(encoder);
            encoder.shader_local_memory(LOCAL + 0x8000).unwrap();
            encoder.shader_local_memory_size(LOCAL_PER_TPC, 0xff).unwrap();
        },
        0x240,
    );
    assert_eq!((bit, reason.contains("must map")), (Some(12), true), "{reason}");
}

#[test]
fn local_memory_must_hold_all_warps_of_a_tpc_at_once() {
    // 4 KiB per thread are 128 KiB per warp; the class has memory for four warps per TPC.
    let kernels = basics();
    let cases = [
        ("four CTAs of a warp", [4, 1, 1], [32, 1, 1], 164, true),
        ("five", [5, 1, 1], [32, 1, 1], 164, false),
        ("one CTA of five warps", [1, 1, 1], [160, 1, 1], 164, false),
        // Two SMs with shared memory for two CTAs each run four at once, whatever the grid.
        ("many that do not fit", [100, 1, 1], [32, 1, 1], 8, true),
    ];
    for (id, (name, grid, block, kib, fits)) in (0..).zip(cases) {
        let mut qmd = kernels.prepare("empty", 0, grid, block, &[]);
        let config = shared_memory_config(kib).unwrap();
        for (field, value) in [
            (q::SHADER_LOCAL_MEMORY_HIGH_SIZE, 4096),
            (q::SHARED_MEMORY_SIZE, 4096),
            (q::MAX_SM_CONFIG_SHARED_MEM_SIZE, u64::from(config)),
        ] {
            qmd.set(field, value).unwrap();
        }
        kernels.store(0, &qmd);
        let mut ring = kernels.rig.channel(id, 16);
        ring.commands(|encoder| {
            encoder.shader_shared_memory_window(SHARED_WINDOW).unwrap();
            encoder.shader_local_memory_window(LOCAL_WINDOW).unwrap();
            encoder.shader_local_memory(LOCAL).unwrap();
            encoder.shader_local_memory_size(4 * 32 * 4096, 0xff).unwrap();
            launch(encoder, 0, PcasAction::InvalidateCopySchedule);
            encoder.semaphore_release(&release(SEMAPHORES, id + 1)).unwrap();
        });
        if fits {
            kernels.rig.wait_for(0, id + 1);
        } else {
            let (_, fault) = kernels.rig.fault();
            let ChannelFault::LaunchDescriptor { esr_bit, .. } = &fault else { panic!("{name}: {fault}") };
            assert_eq!(*esr_bit, Some(12), "{name}: {fault}");
        }
        kernels.rig.gpu.stop_channels(&[id]);
    }
}

/// Without shared memory the configuration of the SM may be left open; with shared memory it may not.
#[test]
fn a_launch_without_shared_memory_needs_no_configuration() {
    for (bytes, runs) in [(0_u64, true), (1024, false)] {
        let kernels = basics();
        let mut qmd = kernels.prepare("empty", 0, [1, 1, 1], [32, 1, 1], &[]);
        for (field, value) in [
            (q::SHARED_MEMORY_SIZE, bytes),
            (q::MIN_SM_CONFIG_SHARED_MEM_SIZE, 0),
            (q::TARGET_SM_CONFIG_SHARED_MEM_SIZE, 0),
            (q::MAX_SM_CONFIG_SHARED_MEM_SIZE, 0),
        ] {
            qmd.set(field, value).unwrap();
        }
        kernels.store(0, &qmd);
        let mut ring = kernels.rig.channel(0, 16);
        ring.commands(|encoder| {
            encoder.shader_shared_memory_window(SHARED_WINDOW).unwrap();
            encoder.shader_local_memory_window(LOCAL_WINDOW).unwrap();
            encoder.shader_local_memory(LOCAL).unwrap();
            encoder.shader_local_memory_size(LOCAL_PER_TPC, 0xff).unwrap();
            launch(encoder, 0, PcasAction::InvalidateCopySchedule);
            encoder.semaphore_release(&release(SEMAPHORES, 1)).unwrap();
        });
        if runs {
            kernels.rig.wait_for(0, 1);
        } else {
            let (_, fault) = kernels.rig.fault();
            let ChannelFault::LaunchDescriptor { esr_bit, .. } = &fault else { panic!("{fault}") };
            assert_eq!(*esr_bit, Some(25), "{fault}");
        }
    }
}

/// The MMU fault of a launch with a changed descriptor.
fn unmapped(change: impl FnOnce(&mut QmdV3_0)) -> MmuFault {
    let kernels = basics();
    let mut qmd = kernels.prepare("empty", 0, [1, 1, 1], [32, 1, 1], &[]);
    change(&mut qmd);
    kernels.store(0, &qmd);
    let mut ring = kernels.channel(511);
    ring.commands(|encoder| launch(encoder, 0, PcasAction::InvalidateCopySchedule));
    match kernels.rig.fault() {
        (511, ChannelFault::Mmu { client: "compute", fault }) => fault,
        (511, ChannelFault::Sm(SmFault { cause: SmFaultCause::Mmu(fault), .. })) => fault,
        (id, fault) => panic!("channel {id}: {fault}"),
    }
}

#[test]
fn code_is_not_read_ahead_past_its_mapping() {
    let end = basics().code_end();
    let read_ahead = |from: u64, units: u64| {
        move |qmd: &mut QmdV3_0| {
            qmd.set(q::PROGRAM_PREFETCH_ADDR_LOWER_SHIFTED, from >> 8 & 0xffff_ffff).unwrap();
            qmd.set(q::PROGRAM_PREFETCH_ADDR_UPPER_SHIFTED, from >> 40).unwrap();
            qmd.set(q::PROGRAM_PREFETCH_SIZE, units).unwrap();
        }
    };
    let fault = unmapped(read_ahead(end - 0x400, 5));
    assert_eq!((fault.va, fault.access), (end, Access::Read));
    let kernels = basics();
    let mut qmd = kernels.prepare("empty", 0, [1, 1, 1], [32, 1, 1], &[]);
    read_ahead(end - 0x400, 4)(&mut qmd);
    kernels.store(0, &qmd);
    let mut ring = kernels.channel(511);
    ring.commands(|encoder| {
        launch(encoder, 0, PcasAction::InvalidateCopySchedule);
        encoder.semaphore_release(&release(SEMAPHORES, 1)).unwrap();
    });
    kernels.rig.wait_for(0, 1);
}

/// Declares bank `bank`: 16 pages, of which only the first `mapped` bytes are mapped.
fn declare_beyond(qmd: &mut QmdV3_0, bank: u32, mapped: u64) {
    let va = DATA + (1 << 20) - mapped;
    let at = |array: FieldArray<q::Layout>| array.at(bank).unwrap();
    qmd.set(at(q::CONSTANT_BUFFER_VALID), true).unwrap();
    qmd.set(at(q::CONSTANT_BUFFER_ADDR_LOWER), va & 0xffff_ffff).unwrap();
    qmd.set(at(q::CONSTANT_BUFFER_ADDR_UPPER), va >> 32).unwrap();
    qmd.set(at(q::CONSTANT_BUFFER_SIZE_SHIFTED4), 0x1000u32).unwrap();
}

/// tinygrad declares 16 times the size of its bank, and its kernels run on a board.
#[test]
fn a_constant_bank_may_extend_beyond_its_mapping() {
    for kernels in [basics(), ordered()] {
        let mut qmd = kernels.prepare("fill_u32", 0, [1, 1, 1], [32, 1, 1], &arguments(DATA, &[7, 32]));
        // Bank 0 at the end of the mapping, with its contents.
        let mut bank = vec![0; 0x300];
        kernels.rig.space.view().read(bank_at(0), &mut bank).unwrap();
        kernels.rig.write(DATA + (1 << 20) - 0x300, &bank);
        declare_beyond(&mut qmd, 0, 0x300);
        // A bank that the kernel does not use, all of it unmapped.
        declare_beyond(&mut qmd, 5, 0);
        kernels.store(0, &qmd);
        let mut ring = kernels.channel(511);
        ring.commands(|encoder| {
            launch(encoder, 0, PcasAction::InvalidatePrefetchCopySchedule);
            encoder.semaphore_release(&release(SEMAPHORES, 1)).unwrap();
        });
        kernels.rig.wait_for(0, 1);
        assert_eq!(kernels.rig.words(DATA, 32), [7; 32]);
        let reports = kernels.rig.findings();
        assert!(reports.iter().all(|report| report.kind == Kind::UnmappedBank), "{reports:?}");
        if let Some(report) = reports.first() {
            let access = report.access.as_ref().unwrap();
            assert_eq!((access.address, access.bytes), (DATA + (1 << 20) - 0x300, 0x1_0000));
            assert!(report.to_string().contains("units of 16 bytes"), "{report}");
        }
        assert_eq!(!reports.is_empty(), kernels.rig.checker.is_some());
    }
}

#[test]
fn a_load_from_an_unmapped_constant_bank_faults() {
    let end = DATA + (1 << 20);
    let fault = unmapped(|qmd| declare_beyond(qmd, 0, 0));
    assert_eq!((fault.va & !0xffff, fault.access), (end, Access::Read));
}

#[test]
fn addresses_have_no_more_bits_than_their_fields() {
    let stray = [
        (class::SetI2mSemaphoreA::ADDRESS, 1 << 8),
        (class::SetReportSemaphoreA::ADDRESS, 1 << 8),
        (class::SetReportSemaphoreAddressUpper::ADDRESS, 1 << 25),
        (class::OffsetOutUpper::ADDRESS, 1 << 17),
        (class::SetShaderLocalMemoryA::ADDRESS, 1 << 17),
        (class::SetShaderLocalMemoryNonThrottledA::ADDRESS, 1 << 8),
        (class::SetShaderSharedMemoryWindowA::ADDRESS, 1 << 17),
        (class::SetShaderLocalMemoryWindowA::ADDRESS, 1 << 17),
    ];
    let kernels = basics();
    for (id, (address, data)) in (0..).zip(stray) {
        let mut ring = kernels.channel(id);
        ring.commands(|encoder| encoder.methods(Subchannel::COMPUTE, address, &[data]).unwrap());
        let (from, fault) = kernels.rig.fault();
        assert_eq!(from, id);
        assert!(fault.to_string().contains("has no field at bits"), "{address:#x}: {fault}");
        kernels.rig.gpu.stop_channels(&[id]);
    }
}

#[test]
fn an_active_descriptor_is_not_scheduled_again() {
    let kernels = faulty();
    let mut bytes = DATA.to_le_bytes().to_vec();
    bytes.extend((DATA + 0x100).to_le_bytes());
    let qmd = kernels.prepare("fault_endless", 0, [1, 1, 1], [32, 1, 1], &bytes);
    kernels.store(0, &qmd);
    for (id, action, bit) in [(1, PcasAction::Schedule, None), (2, PcasAction::Invalidate, Some(29))] {
        let mut ring = kernels.channel(id);
        ring.commands(|encoder| {
            launch(encoder, 0, PcasAction::PrefetchSchedule);
            launch(encoder, 0, action);
        });
        let (from, fault) = kernels.rig.fault();
        let ChannelFault::LaunchDescriptor { esr_bit, .. } = fault else { panic!("{fault}") };
        assert_eq!((from, esr_bit), (id, bit));
        kernels.rig.gpu.stop_channels(&[id]);
    }
}
