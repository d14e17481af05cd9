//! The raw interface of NVIDIA's kernel modules `nvidia` and `nvidia-uvm`: numbers and structs.
//!
//! Layouts are those of release 580 of the driver; `release.rs` contains the differences of other releases. Layouts are
//! asserted at compile time, and a test compares them with a table extracted from the driver's headers.

use kernel_door::layout::StructInfo;

pub mod alloc;
pub mod control;
pub mod escape;
mod number;
pub mod uvm;

pub use number::{Class, Command};

/// All structs of this module, for listings and checks.
pub const STRUCTS: &[StructInfo] = &[
    StructInfo::of::<alloc::Device>(),
    StructInfo::of::<alloc::Subdevice>(),
    StructInfo::of::<alloc::Usermode>(),
    StructInfo::of::<alloc::VaSpace>(),
    StructInfo::of::<alloc::ChannelGroup>(),
    StructInfo::of::<alloc::ContextShare>(),
    StructInfo::of::<alloc::Memory>(),
    StructInfo::of::<alloc::ChannelGpfifo>(),
    StructInfo::of::<alloc::Debugger>(),
    StructInfo::of::<alloc::Event>(),
    StructInfo::of::<alloc::CopyEngine>(),
    StructInfo::of::<control::GrInfo>(),
    StructInfo::of::<control::MmuFault>(),
    StructInfo::of::<control::SmErrorState>(),
    StructInfo::of::<control::IdInfo>(),
    StructInfo::of::<control::ClassList>(),
    StructInfo::of::<control::GidInfo>(),
    StructInfo::of::<control::FbInfo>(),
    StructInfo::of::<control::NameString>(),
    StructInfo::of::<control::PerfBoost>(),
    StructInfo::of::<control::WorkSubmitToken>(),
    StructInfo::of::<control::GpfifoSchedule>(),
    StructInfo::of::<control::MmuFaults>(),
    StructInfo::of::<control::SmErrorStates>(),
    StructInfo::of::<control::CeAllCaps>(),
    StructInfo::of::<escape::ApiVersion>(),
    StructInfo::of::<escape::RmAlloc>(),
    StructInfo::of::<escape::RmControl>(),
    StructInfo::of::<escape::RmFree>(),
    StructInfo::of::<escape::CardInfo>(),
    StructInfo::of::<escape::RegisterFd>(),
    StructInfo::of::<escape::RmMapMemory>(),
    StructInfo::of::<escape::RmUnmapMemory>(),
    StructInfo::of::<escape::RmAllocMemory>(),
    StructInfo::of::<escape::AllocOsEvent>(),
    StructInfo::of::<uvm::Initialize>(),
    StructInfo::of::<uvm::MmInitialize>(),
    StructInfo::of::<uvm::RegisterGpu>(),
    StructInfo::of::<uvm::UnregisterGpu>(),
    StructInfo::of::<uvm::RegisterGpuVaSpace>(),
    StructInfo::of::<uvm::UnregisterGpuVaSpace>(),
    StructInfo::of::<uvm::CreateExternalRange>(),
    StructInfo::of::<uvm::MappingAttributes>(),
    StructInfo::of::<uvm::MapExternalAllocation>(),
    StructInfo::of::<uvm::EnablePeerAccess>(),
    StructInfo::of::<uvm::Free>(),
    StructInfo::of::<uvm::RegisterChannel>(),
    StructInfo::of::<uvm::UnregisterChannel>(),
];
