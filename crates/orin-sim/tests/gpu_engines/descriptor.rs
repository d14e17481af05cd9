//! Every check of the launch descriptor.

use ampere_cmd::Encoder;
use ampere_cmd::command::PcasAction;
use ampere_cmd::qmd::{Field, FieldArray, QmdV3_0, v3_0 as q};
use orin_sim::gpu::ChannelFault;

use crate::compute::{
    DATA, LOCAL, LOCAL_PER_TPC, LOCAL_WINDOW, SHARED_WINDOW, basics, faulty, launch, qmd_at,
};

/// Changes a descriptor or the channel's set-up before a launch.
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
        ("no such configuration", Some(25), &[(q::MIN_SM_CONFIG_SHARED_MEM_SIZE, 13)], "is no configuration"),
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

/// The fault of a launch of `qmd` on a channel set up by `set_up` alone.
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
    // A fresh channel has both windows at zero: the SKED exception 0x01000000 of a board.
    let (bit, reason) = refused_after(|_| {}, 0);
    assert_eq!((bit, reason.contains("overlap")), (Some(24), true), "{reason}");
    let (bit, reason) = refused_after(
        |encoder| {
            encoder.shader_shared_memory_window(SHARED_WINDOW).unwrap();
            encoder.shader_local_memory_window(DATA - 0x100_0000 + 0x1000).unwrap();
        },
        0,
    );
    assert_eq!((bit, reason.contains("overlaps mapped memory")), (Some(24), true), "{reason}");
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
