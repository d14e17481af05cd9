//! Faults: why the GPU stopped the work of a queue.
//!
//! On an unrecoverable error the kernel writes a number into the channel's error notifier (16 bytes
//! of memory that the driver registered). Requests return what each SM recorded about its exception, with the
//! program counter, and on a desktop GPU what the MMU refused. The kernel's log has the rest: on an Orin the
//! address of an MMU fault, and everything about commands. It may be closed to ordinary users; then that stays unknown.

mod submission;

use core::fmt;
use std::path::PathBuf;

use gpu_hal::ErrorCode;

use crate::limits::Dim3;
pub use gpu_log::mmu::{MmuAccess, MmuFaultType};
pub use submission::{LaunchRecord, Submission};

/// Kind of a fault, decoded from the notifier (`nvgpu.h`, `NVGPU_CHANNEL_*`) and the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FaultKind {
    /// Notifier 31, or 13 with the warp error of a refused access, if the SM reported it before the MMU: an access to
    /// an address that is not mapped, or not mapped for this kind of access.
    Mmu,
    /// Notifier 13 with another warp error code: an SM stopped at an instruction.
    Sm(WarpError),
    /// Notifier 13 with a `sked exception` in the log: the scheduler refused the launch descriptor.
    LaunchDescriptor,
    /// An SM stopped at the trap of a failed `assert`; [`Fault::details`] has the messages.
    Assert,
    /// Notifier 13, without more detail.
    GraphicsException,
    /// Notifier 32: malformed or forbidden commands.
    Pushbuffer,
    /// Notifier 11: the copy engine refused a copy.
    CopyEngine,
    /// No fault was reported: the work hung until [`Device::recover`](crate::Device::recover) stopped it.
    Abandoned,
    /// Any other notifier number.
    Other(ErrorCode),
}

/// Warp error code, the low 16 bits of `hww_warp_esr`: why an SM stopped a warp (`hw_gr_ga10b.h`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WarpError {
    /// 9 or 0xb: illegal instruction or illegal instruction parameter.
    IllegalInstruction,
    /// 0xe: address outside the shared or local memory.
    OutOfRangeAddress,
    /// 0xf: address not aligned to the access size.
    MisalignedAddress,
    /// 0x10: address space invalid for the access.
    InvalidAddressSpace,
    /// 0x12: constant bank access outside the bank.
    InvalidConstantAddress,
    /// 5 or 6: program counter misaligned or out of range.
    ProgramCounter,
    /// 0x17 or 0x20: the MMU refused the access.
    MmuNack,
    /// Any other number. 0 is a trap instruction, which sets no warp error.
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

/// The buffer nearest to an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NearBuffer {
    /// Name of the buffer, or its content if it has no name.
    pub name: String,
    /// GPU address of the buffer.
    pub va: u64,
    /// Length of the buffer in bytes.
    pub bytes: u64,
    /// The address that was looked up.
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
///
/// ```
/// # #[cfg(feature = "sim")] fn main() -> tegra_hcq::Result<()> {
/// # let device = tegra_hcq::Device::open(tegra_hcq::DeviceKind::Sim)?;
/// # let mut queue = device.queue()?;
/// # let timeout = std::time::Duration::from_secs(10);
/// # let cubin = include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/kernels/vector_add.cubin"));
/// # let program = tegra_hcq::Program::load(&device, cubin)?;
/// # let kernel = program.kernel("vector_add")?;
/// use tegra_hcq::{Error, FaultKind, args};
///
/// // A null pointer.
/// // SAFETY: the software Orin runs one kernel, which faults at its first load.
/// unsafe { queue.launch(&kernel, 1, 32, &args![0_u64, 0_u64, 0_u64, 32_u32])? };
/// match queue.wait(timeout) {
///     Err(Error::Fault(fault)) => {
///         assert_eq!(fault.kind, FaultKind::Mmu);
///         assert_eq!(fault.location.as_ref().map(|place| place.kernel.as_str()), Some("vector_add"));
///     }
///     other => panic!("{other:?}"),
/// }
/// # Ok(())
/// # }
/// # #[cfg(not(feature = "sim"))] fn main() {}
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Fault {
    /// Kind of the fault.
    pub kind: FaultKind,
    /// Code in the error notifier.
    pub notifier: ErrorCode,
    /// Address of the access, if the driver or the log reports it. For an MMU fault it is the address of the 4 KiB
    /// page; for an access outside shared memory it is an address inside the shared window.
    pub address: Option<u64>,
    /// Why the MMU refused an access and the type of the access, if the driver or the log reports them.
    pub access: Option<(MmuFaultType, MmuAccess)>,
    /// Address of the faulting instruction, if the driver or the log reports it.
    pub pc: Option<u64>,
    /// The kernel that contains `pc`; the most recently launched kernel if `pc` is unknown.
    pub location: Option<CodeLocation>,
    /// Grid and block of that kernel's last launch.
    pub grid: Option<(Dim3, Dim3)>,
    /// The buffer nearest to `address`.
    pub nearest: Option<NearBuffer>,
    /// The last submissions of the queue, as stored in memory.
    pub submissions: Vec<Submission>,
    /// Other details from the log; on the software Orin, its explanation. The messages of failed assertions.
    pub details: Vec<String>,
    /// The log's lines about the fault, or the reason why the log could not be read.
    pub log: Result<Vec<String>, String>,
    /// The crash bundle written about the fault, if bundles are enabled; see
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
            FaultKind::Assert => f.write_str("failed assertion")?,
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
        let reported = match self.kind {
            FaultKind::Mmu => self.address.is_some(),
            FaultKind::Sm(_) => self.pc.is_some(),
            _ => false,
        };
        if let (Err(reason), false) = (&self.log, reported) {
            write!(f, " (more is in the kernel log, which cannot be read: {reason})")?;
        }
        if let Some(bundle) = &self.bundle {
            write!(f, "; crash bundle: {}", bundle.display())?;
        }
        Ok(())
    }
}

/// The text, and the amount of the data that belongs to it: the words of submissions take thousands of characters.
impl fmt::Debug for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines = self.log.as_ref().map_or(0, Vec::len);
        write!(f, "Fault({self}; {} submissions, {lines} lines of the kernel log)", self.submissions.len())
    }
}
