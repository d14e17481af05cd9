//! Faults: why the GPU stopped the work of a queue.
//!
//! When the GPU cannot go on, the kernel writes a number into the channel's error notifier (16 bytes
//! of memory that the driver registered). Requests tell what each SM has recorded about its exception, with the
//! program counter, and on a desktop GPU what the MMU refused. The kernel's log has the rest: on an Orin the
//! address of an MMU fault, and everything about commands. It may be closed to ordinary users; then that stays unknown.

mod submission;

use core::fmt;
use std::path::PathBuf;

use gpu_hal::ErrorCode;

use crate::grid::Dim3;
pub use submission::{LaunchRecord, Submission};

/// What kind of fault it was, from the notifier (`nvgpu.h`, `NVGPU_CHANNEL_*`) and the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FaultKind {
    /// Notifier 31: an access to an address that is not mapped, or not for this kind of access.
    Mmu,
    /// Notifier 13 with a warp error code in the log: an SM gave up on an instruction.
    Sm(WarpError),
    /// Notifier 13 with a `sked exception` in the log: the launch descriptor was refused.
    LaunchDescriptor,
    /// Notifier 13, without more detail.
    GraphicsException,
    /// Notifier 32: malformed or forbidden commands.
    Pushbuffer,
    /// Notifier 11: the copy engine refused a copy.
    CopyEngine,
    /// Nothing faulted: the work hung until [`Device::recover`](crate::Device::recover) stopped it.
    Abandoned,
    /// Any other notifier number.
    Other(ErrorCode),
}

/// Low 16 bits of `hww_warp_esr`: why an SM stopped a warp (`hw_gr_ga10b.h`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WarpError {
    /// 9 or 0xb: not an instruction, or a forbidden parameter.
    IllegalInstruction,
    /// 0xe: address outside of the shared or local memory.
    OutOfRangeAddress,
    /// 0xf: address is not a multiple of the access size.
    MisalignedAddress,
    /// 0x10: address space of the access does not fit.
    InvalidAddressSpace,
    /// 0x12: constant bank access outside of the bank.
    InvalidConstantAddress,
    /// 5 or 6: the program counter is misaligned or ran away.
    ProgramCounter,
    /// 0x17 or 0x20: the MMU refused the access.
    MmuNack,
    /// Any other number. 0 stands for a trap instruction, which sets no warp error.
    Unknown(u32),
}

impl fmt::Display for WarpError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::IllegalInstruction => "illegal instruction",
            Self::OutOfRangeAddress => "address out of range",
            Self::MisalignedAddress => "misaligned address",
            Self::InvalidAddressSpace => "invalid address space",
            Self::InvalidConstantAddress => "invalid constant address",
            Self::ProgramCounter => "invalid program counter",
            Self::MmuNack => "access refused by the MMU",
            Self::Unknown(0) => "trap",
            Self::Unknown(code) => return write!(f, "warp error {code:#x}"),
        })
    }
}

/// An instruction of a loaded kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CodeLocation {
    /// Name of the kernel.
    pub kernel: String,
    /// Offset in the kernel's code, in bytes.
    pub offset: u64,
}

/// The buffer that lies nearest to an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NearBuffer {
    /// Its name, or what it holds.
    pub name: String,
    /// Its address on the GPU.
    pub va: u64,
    /// Its length in bytes.
    pub bytes: u64,
    /// The address that it is near to.
    pub address: u64,
}

impl fmt::Display for NearBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, va, bytes, address } = self;
        let end = va + bytes;
        if address < va {
            write!(f, "{} bytes before {name}", va - address)?;
        } else if *address >= end {
            write!(f, "{} bytes past the end of {name}", address - end)?;
        } else {
            write!(f, "at byte {} of {name}", address - va)?;
        }
        write!(f, " ({va:#x}, {bytes} bytes)")
    }
}

/// Why the GPU stopped the work of a queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// What kind of fault.
    pub kind: FaultKind,
    /// What the error notifier says.
    pub notifier: ErrorCode,
    /// Address of the access, where driver or log tell: of an MMU fault, that of the page of 4 KiB; of an access
    /// outside of shared memory, one inside of that.
    pub address: Option<u64>,
    /// Type of the MMU fault and of the access, where driver or log tell: `("invalid pte", "virt read")`.
    pub access: Option<(String, String)>,
    /// Address of the faulting instruction, where driver or log tell.
    pub pc: Option<u64>,
    /// The kernel that contains `pc`, or else the one launched last.
    pub location: Option<CodeLocation>,
    /// Grid and block of that kernel's last launch.
    pub grid: Option<(Dim3, Dim3)>,
    /// The buffer nearest to `address`.
    pub nearest: Option<NearBuffer>,
    /// The last submissions of the queue, as they stand in memory.
    pub submissions: Vec<Submission>,
    /// What the log says beyond that; on the software Orin, its explanation.
    pub details: Vec<String>,
    /// The log's lines about the fault, or why the log could not be read.
    pub log: Result<Vec<String>, String>,
    /// The crash bundle that was written about it, if one was asked for; see
    /// [`Device::write_bundle`](crate::Device::write_bundle).
    pub bundle: Option<PathBuf>,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("GPU fault: ")?;
        match self.kind {
            FaultKind::Mmu => f.write_str("MMU fault")?,
            FaultKind::Sm(error) => write!(f, "{error}")?,
            FaultKind::LaunchDescriptor => f.write_str("launch descriptor refused")?,
            FaultKind::GraphicsException => f.write_str("graphics engine exception")?,
            FaultKind::Pushbuffer => f.write_str("malformed or forbidden command in the pushbuffer")?,
            FaultKind::CopyEngine => f.write_str("copy engine error")?,
            FaultKind::Abandoned => f.write_str("the work hung and was stopped")?,
            FaultKind::Other(code) => write!(f, "{code}")?,
        }
        if let Some(address) = self.address {
            write!(f, " at address {address:#x}")?;
        }
        if let Some((kind, access)) = &self.access {
            write!(f, " ({kind}, {access} access)")?;
        }
        match (&self.location, self.pc) {
            (Some(location), Some(pc)) => {
                write!(f, " in kernel {} at offset {:#x} (pc {pc:#x})", location.kernel, location.offset)?;
            }
            (Some(location), None) => write!(f, " while kernel {} ran", location.kernel)?,
            (None, Some(pc)) => write!(f, " at pc {pc:#x}")?,
            (None, None) => {}
        }
        if let Some((grid, block)) = self.grid {
            write!(f, ", grid {grid}, block {block}")?;
        }
        if let Some(nearest) = &self.nearest {
            write!(f, ", {nearest}")?;
        }
        for detail in &self.details {
            write!(f, "; {detail}")?;
        }
        let told = match self.kind {
            FaultKind::Mmu => self.address.is_some(),
            FaultKind::Sm(_) => self.pc.is_some(),
            _ => false,
        };
        if let (Err(reason), false) = (&self.log, told) {
            write!(f, " (more is in the kernel log, which cannot be read: {reason})")?;
        }
        if let Some(bundle) = &self.bundle {
            write!(f, "; crash bundle: {}", bundle.display())?;
        }
        Ok(())
    }
}
