//! Refusals of each unit, and their fault reports.

use ampere_cmd::command::LinearCopy;
use ampere_cmd::gpfifo::{Entry, Operation, Segment, userd};
use ampere_cmd::{Encoder, Method, Subchannel, compute_c7c0, copy_c7b5, host_c76f};
use orin_sim::gpu::{Activity, ChannelFault};
use orin_sim::mmu::{Access, FaultKind};

use crate::rig::{Rig, SEMAPHORES, release};

/// An unmapped address.
const NOWHERE: u64 = 0x30_0000_0000;

/// The fault of a fresh channel that executes these words.
fn fault_of(words: &[u32]) -> ChannelFault {
    let rig = Rig::new();
    let mut ring = rig.channel(5, 8);
    ring.submit(words);
    let (id, fault) = rig.fault();
    assert_eq!(id, 5);
    assert_eq!(rig.gpu.status(5).unwrap().activity, Activity::Faulted);
    // A halted channel does not continue.
    ring.commands(|encoder| encoder.semaphore_release(&release(SEMAPHORES + 0x100, 1)).unwrap());
    let mut other = rig.channel(6, 8);
    other.commands(|encoder| encoder.semaphore_release(&release(SEMAPHORES + 0x110, 1)).unwrap());
    rig.wait_for(0x110, 1);
    assert_eq!(rig.semaphores.load(0x100), 0);
    fault
}

fn commands<R>(encode: impl FnOnce(&mut Encoder<Vec<u32>>) -> R) -> Vec<u32> {
    let mut encoder = Encoder::new(Vec::new());
    encode(&mut encoder);
    encoder.into_sink()
}

/// Asserts that one method word ends the channel with a method fault whose reason contains `reason`.
fn refused(subchannel: Subchannel, address: u32, data: u32, reason: &str) {
    let words = commands(|encoder| encoder.methods(subchannel, address, &[data]).unwrap());
    let fault = fault_of(&words);
    let ChannelFault::Method { subchannel: at, address: method, data: word, reason: said, .. } = &fault
    else {
        panic!("{address:#x} <- {data:#x}: {fault}");
    };
    assert_eq!((*at, *method, *word), (subchannel.index(), address, data));
    assert!(said.contains(reason), "{said:?} does not say {reason:?}");
}

fn mmu(fault: ChannelFault, client: &str) -> (u64, FaultKind, Access) {
    let ChannelFault::Mmu { client: by, fault } = fault else { panic!("{fault}") };
    assert_eq!(by, client);
    (fault.va, fault.kind, fault.access)
}

#[test]
fn host_refuses_methods_that_it_lacks() {
    refused(Subchannel::HOST, 0x0c, 0, "no such method");
    refused(Subchannel::HOST, host_c76f::Illegal::ADDRESS, 0, "ILLEGAL");
    refused(Subchannel::HOST, host_c76f::ClearFaulted::ADDRESS, 0, "software method");
    refused(Subchannel::HOST, host_c76f::Yield::ADDRESS, 2, "YIELD");
    refused(Subchannel::HOST, host_c76f::Wfi::ADDRESS, 2, "no field at bits 0x00000002");
    refused(Subchannel::HOST, host_c76f::MemOpD::ADDRESS, 9 << 27, "privileged");
    refused(Subchannel::HOST, host_c76f::MemOpD::ADDRESS, 0x16 << 27, "privileged");
    refused(Subchannel::HOST, host_c76f::MemOpD::ADDRESS, 1 << 27, "no such operation");
}

#[test]
fn objects_are_checked_against_the_subchannel() {
    let set_object = host_c76f::SetObject::ADDRESS;
    refused(Subchannel::COMPUTE, set_object, 0xc7b5, "0xc7c0");
    refused(Subchannel::COPY, set_object, 0xc7c0, "0xc7b5");
    refused(Subchannel::THREE_D, set_object, 0xc797, "not modelled");
    refused(Subchannel::COMPUTE, set_object, 0x1f_c7c0, "software object");
    for index in 5..8 {
        refused(Subchannel::new(index).unwrap(), 0x100, 0, "software method");
    }
    refused(Subchannel::INLINE_TO_MEMORY, 0x180, 0, "not modelled");
}

#[test]
fn a_class_needs_its_context() {
    let rig = Rig::new();
    let mut ring = rig.bare_channel(5, 8);
    rig.gpu.add_object(5, u32::from(copy_c7b5::CLASS));
    ring.commands(|encoder| {
        encoder.set_object(Subchannel::COPY, 0xc7b5).unwrap();
        encoder.semaphore_release(&release(SEMAPHORES, 1)).unwrap();
        encoder.set_object(Subchannel::COMPUTE, 0xc7c0).unwrap();
    });
    let (_, fault) = rig.fault();
    assert!(fault.to_string().contains("no context"), "{fault}");
    assert_eq!(rig.semaphores.load(0), 1);
    // A channel without any class.
    let mut ring = rig.bare_channel(6, 8);
    ring.commands(|encoder| encoder.set_object(Subchannel::COPY, 0xc7b5).unwrap());
    let (id, fault) = rig.fault();
    assert!(id == 6 && fault.to_string().contains("no context"), "{fault}");
}

/// As on an AGX Orin, where a channel with the compute class alone executed SET_OBJECT of the copy class.
#[test]
fn the_copy_engine_serves_a_channel_with_the_compute_class_alone() {
    let rig = Rig::new();
    let mut ring = rig.bare_channel(5, 8);
    rig.gpu.add_object(5, u32::from(compute_c7c0::CLASS));
    rig.semaphores.store(0x100, 0x1234_5678);
    let copy = LinearCopy { source: SEMAPHORES + 0x100, destination: SEMAPHORES + 0x200, bytes: 4 };
    ring.commands(|encoder| {
        encoder.set_object(Subchannel::COMPUTE, 0xc7c0).unwrap();
        encoder.set_object(Subchannel::COPY, 0xc7b5).unwrap();
        encoder.linear_copy(&copy).unwrap();
        encoder.semaphore_release(&release(SEMAPHORES, 1)).unwrap();
    });
    rig.wait_for(0, 1);
    assert_eq!(rig.semaphores.load(0x200), 0x1234_5678);
}

#[test]
fn engines_refuse_methods_that_their_class_or_the_model_lacks() {
    refused(Subchannel::COMPUTE, 0x12c, 0, "no such method");
    refused(Subchannel::COPY, 0x104, 0, "no such method");
    refused(Subchannel::COMPUTE, compute_c7c0::Notify::ADDRESS, 0, "not modelled");
    refused(Subchannel::COMPUTE, 0x3800, 0, "not modelled");
    refused(Subchannel::COMPUTE, compute_c7c0::SetInlineQmdAddressA::ADDRESS, 0, "not modelled");
    refused(Subchannel::COMPUTE, compute_c7c0::SetRenderEnableC::ADDRESS, 2, "not modelled");
    refused(Subchannel::COMPUTE, compute_c7c0::SendSignalingPcas2B::ADDRESS, 6, "not modelled");
    refused(Subchannel::COMPUTE, compute_c7c0::SendSignalingPcas2B::ADDRESS, 5, "no such PCAS action");
    refused(Subchannel::COMPUTE, compute_c7c0::SetShaderLocalMemoryA::ADDRESS, 0x2_0000, "no field");
    refused(Subchannel::COMPUTE, compute_c7c0::LoadInlineData::ADDRESS, 0, "more inline data");
    refused(Subchannel::COMPUTE, compute_c7c0::LaunchDma::ADDRESS, 0, "block-linear");
    refused(Subchannel::COMPUTE, compute_c7c0::LaunchDma::ADDRESS, 0x11, "must not be zero");
    refused(Subchannel::COMPUTE, compute_c7c0::SetReportSemaphoreD::ADDRESS, 3, "plain releases");
}

#[test]
fn pushbuffer_words_must_be_headers() {
    for (word, reason) in [
        (0xc000_0000, "reserved mode 6"),
        (0x4000_0000, "obsolete"),
        (0x2001_1000, "reserved bits"),
        (0x0004_0000, "obsolete"),
    ] {
        let ChannelFault::PushbufferEntry { va, word: at, reason: said, .. } = fault_of(&[0, word]) else {
            panic!("{word:#x}");
        };
        assert_eq!((va & 0xfff, at), (4, word));
        assert!(said.starts_with("PBENTRY") && said.contains(reason), "{said}");
    }
    // Two words for the last method address and the one beyond, after a release: none of it is executed.
    for mode in [1_u32, 5] {
        let beyond = mode << 29 | 2 << 16 | 1 << 13 | 0x3ffc >> 2;
        let ChannelFault::PushbufferEntry { word, reason, .. } = fault_of(&[beyond, 0, 0]) else {
            panic!("mode {mode}");
        };
        assert_eq!(word, beyond);
        assert!(reason.starts_with("PBENTRY"), "{reason}");
    }
}

#[test]
fn ring_entries_must_be_valid() {
    let illegal = Entry::Control { operation: Operation::Illegal(0), sync: false }.encode().unwrap();
    let hopper = Entry::Control { operation: Operation::SetExtendedBase(1), sync: false }.encode().unwrap();
    let plain = Entry::from(Segment::new(0x1000, 1)).encode().unwrap();
    // Undefined bits (40 was the privilege bit of older chips), undefined opcodes, and a segment that contains the last
    // word of the address space.
    let (stray, privileged, opcode) = (plain | 2, plain | 1 << 40, 5 << 32);
    let last = 0xff_ffff_fffc | 1 << 42;
    for entry in [illegal, hopper, stray, privileged, opcode, illegal | 1 << 40, last] {
        let rig = Rig::new();
        let mut ring = rig.channel(5, 8);
        ring.entry(entry);
        ring.ring_doorbell();
        let (_, fault) = rig.fault();
        let ChannelFault::PushbufferEntry { reason, .. } = &fault else { panic!("{fault}") };
        assert!(reason.starts_with("GPENTRY: entry 0"), "{reason}");
    }
    let rig = Rig::new();
    let ring = rig.channel(5, 8);
    ring.userd.store(userd::GP_PUT as usize, 8);
    ring.ring_doorbell();
    let (_, fault) = rig.fault();
    assert!(matches!(&fault, ChannelFault::PushbufferEntry { reason, .. } if reason.starts_with("GPPTR")));
}

#[test]
fn unmapped_memory_names_its_client() {
    // Host fetching a pushbuffer.
    let rig = Rig::new();
    let mut ring = rig.channel(5, 8);
    ring.entry(Entry::from(Segment::new(NOWHERE, 3)).encode().unwrap());
    ring.ring_doorbell();
    assert_eq!(mmu(rig.fault().1, "host"), (NOWHERE, FaultKind::InvalidPde, Access::Read));
    // Host semaphores.
    let words = commands(|encoder| encoder.semaphore_release(&release(NOWHERE + 8, 1)).unwrap());
    assert_eq!(mmu(fault_of(&words), "host"), (NOWHERE + 8, FaultKind::InvalidPde, Access::Write));
    let words = commands(|encoder| encoder.semaphore_acquire(&crate::rig::acquire(NOWHERE, 1)).unwrap());
    assert_eq!(mmu(fault_of(&words), "host").2, Access::Read);
    // The copy engine, beyond the end of a mapping.
    let copy = LinearCopy { source: SEMAPHORES, destination: SEMAPHORES + 0xff00, bytes: 0x200 };
    let words = commands(|encoder| encoder.linear_copy(&copy).unwrap());
    assert_eq!(mmu(fault_of(&words), "copy"), (SEMAPHORES + 0x1_0000, FaultKind::InvalidPte, Access::Write));
    // An inline upload, and a launch descriptor.
    let words = commands(|encoder| encoder.inline_upload(NOWHERE, &[1]).unwrap());
    assert_eq!(mmu(fault_of(&words), "compute"), (NOWHERE, FaultKind::InvalidPde, Access::Write));
    let words = commands(|encoder| {
        encoder.launch(NOWHERE, ampere_cmd::command::PcasAction::PrefetchSchedule).unwrap();
    });
    assert_eq!(mmu(fault_of(&words), "compute"), (NOWHERE, FaultKind::InvalidPde, Access::Read));
}

#[test]
fn a_read_only_mapping_is_not_written() {
    let rig = Rig::new();
    let memory = std::sync::Arc::new(orin_sim::memory::Memory::new("read only", 0x1000).unwrap());
    rig.map_memory(NOWHERE, &memory, false);
    let mut ring = rig.channel(5, 8);
    ring.commands(|encoder| encoder.semaphore_release(&release(NOWHERE, 1)).unwrap());
    assert_eq!(mmu(rig.fault().1, "host"), (NOWHERE, FaultKind::WriteReadOnly, Access::Write));
    assert_eq!(memory.load(0), 0);
}

#[test]
fn memory_unmapped_under_a_waiting_channel_is_reported() {
    let rig = Rig::new();
    rig.map(NOWHERE, 0x1000);
    let mut ring = rig.channel(5, 8);
    ring.commands(|encoder| encoder.semaphore_acquire(&crate::rig::acquire(NOWHERE, 1)).unwrap());
    rig.wait_activity(5, |activity| matches!(activity, Activity::WaitingForSemaphore { .. }));
    rig.space.unmap(NOWHERE).unwrap();
    assert_eq!(mmu(rig.fault().1, "host").0, NOWHERE);
}

#[test]
fn semaphores_must_be_aligned_and_valid() {
    // SEM_ADDR_LO, SEM_ADDR_HI, payload, SEM_EXECUTE.
    let semaphore = |low: u32, execute: u32| {
        let fault = fault_of(&[0x2005_0017, low, 0x12, 1, 0, execute]);
        let ChannelFault::Semaphore { va, reason } = fault else { panic!("{fault}") };
        assert_eq!(va, 0x12_0000_0000 | u64::from(low));
        reason
    };
    assert!(semaphore(2, 1).contains("multiple of 4"));
    assert!(semaphore(4, 0x0100_0001).contains("multiple of 8"));
    assert!(semaphore(4, 0x0100_0003).contains("multiple of 8"));
    assert!(semaphore(8, 0x0200_0001).contains("multiple of 16"));
    assert!(semaphore(0, 7).contains("no such operation"));
    assert!(semaphore(0, 0x0000_0101).contains("unused bits"));
    // Reductions: increment of 64 bits, signed increment, number 8.
    assert!(semaphore(0, 6 | 6 << 27 | 1 << 31 | 1 << 24).contains("no 64-bit form"));
    assert!(semaphore(0, 6 | 6 << 27).contains("unsigned only"));
    assert!(semaphore(0, 6 | 8 << 27).contains("no such reduction"));
}

#[test]
fn the_copy_engine_names_unsupported_operations() {
    let launch = |launch: copy_c7b5::LaunchDma| {
        fault_of(&commands(|encoder| encoder.method(Subchannel::COPY, &launch).unwrap()))
    };
    let transfer = copy_c7b5::LaunchDma {
        data_transfer_type: copy_c7b5::LaunchDmaDataTransferType::Pipelined,
        src_memory_layout: copy_c7b5::LaunchDmaSrcMemoryLayout::Pitch,
        dst_memory_layout: copy_c7b5::LaunchDmaDstMemoryLayout::Pitch,
        ..Default::default()
    };
    let cases = [
        (copy_c7b5::LaunchDma { src_type: copy_c7b5::LaunchDmaSrcType::Physical, ..transfer }, "HCE_PRIV"),
        (
            copy_c7b5::LaunchDma {
                dst_memory_layout: copy_c7b5::LaunchDmaDstMemoryLayout::Blocklinear,
                ..transfer
            },
            "block-linear",
        ),
        (
            copy_c7b5::LaunchDma { interrupt_type: copy_c7b5::LaunchDmaInterruptType::Blocking, ..transfer },
            "INTERRUPT_TYPE",
        ),
        (
            copy_c7b5::LaunchDma {
                semaphore_type: copy_c7b5::LaunchDmaSemaphoreType::ReleaseConditionalIntrSemaphore,
                ..transfer
            },
            "SEMAPHORE_TYPE",
        ),
        (
            copy_c7b5::LaunchDma {
                data_transfer_type: copy_c7b5::LaunchDmaDataTransferType::Unknown(3),
                ..transfer
            },
            "DATA_TRANSFER_TYPE",
        ),
        (copy_c7b5::LaunchDma { reserved_err_code: 1, ..transfer }, "reserved"),
    ];
    for (method, reason) in cases {
        let fault = launch(method);
        let physical = method.src_type == copy_c7b5::LaunchDmaSrcType::Physical;
        assert_eq!(matches!(fault, ChannelFault::Method { .. }), physical, "{fault}");
        assert!(fault.to_string().contains(reason), "{fault}");
    }
}
