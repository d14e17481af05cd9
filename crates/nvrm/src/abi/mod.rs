//! The raw interface of NVIDIA's kernel modules `nvidia` and `nvidia-uvm`: numbers and structs.
//!
//! Layouts are those of release 580 of the driver; `release.rs` contains the differences of other releases. Layouts are
//! asserted at compile time, and a test compares them with a table extracted from the driver's headers.

use kernel_door::layout::StructInfo;
use kernel_door::structs;

pub mod alloc;
pub mod control;
pub mod escape;
mod number;
pub mod uvm;

pub use number::{Class, Command};

/// All structs of this module, for listings and checks.
pub const STRUCTS: &[&[StructInfo]] = &[
    structs!(
        alloc:
        Device Subdevice Usermode VaSpace ChannelGroup ContextShare Memory ChannelGpfifo Debugger Event
        CopyEngine
    ),
    structs!(
        control:
        GrInfo SmOrder MmuFault SmErrorState IdInfo ClassList GidInfo FbInfo NameString PerfBoost
        WorkSubmitToken GpfifoSchedule MmuFaults SmErrorStates CeAllCaps ExportObject ImportObject SurfaceInfo
    ),
    structs!(
        escape:
        ApiVersion RmAlloc RmControl RmFree CardInfo RegisterFd RmMapMemory RmUnmapMemory RmAllocMemory
        AllocOsEvent
    ),
    structs!(
        uvm:
        Initialize MmInitialize RegisterGpu UnregisterGpu RegisterGpuVaSpace UnregisterGpuVaSpace
        CreateExternalRange MappingAttributes MapExternalAllocation EnablePeerAccess Free
        RegisterChannel UnregisterChannel
    ),
];
