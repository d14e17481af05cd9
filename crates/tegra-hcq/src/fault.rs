//! Why the GPU stopped: the error notifier, what the driver's requests tell, and the kernel log, decoded once.
//!
//! When the GPU cannot go on, the kernel writes a number into the channel's error notifier (16 bytes
//! of memory that the driver registered). Requests tell what each SM has recorded about its exception, with the
//! program counter, and on a desktop GPU what the MMU refused. The kernel's log has the rest: on an Orin the
//! address of an MMU fault, and everything about commands. It may be closed to ordinary users; then that stays unknown.

use core::fmt;
use std::path::PathBuf;

use gpu_hal::ErrorCode;
use gpu_log::{Facts, mmu};

use crate::grid::Dim3;
use crate::inspect::Submission;
use gpu_hal::Evidence;

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

impl WarpError {
    fn from_esr(esr: u32) -> Self {
        match esr & 0xffff {
            5 | 6 => Self::ProgramCounter,
            9 | 0xb => Self::IllegalInstruction,
            0xe => Self::OutOfRangeAddress,
            0xf => Self::MisalignedAddress,
            0x10 => Self::InvalidAddressSpace,
            0x12 => Self::InvalidConstantAddress,
            0x17 | 0x20 => Self::MmuNack,
            other => Self::Unknown(other),
        }
    }
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
    /// Address of the access, where driver or log tell: of an MMU fault, that of the page of 4 KiB; of an access outside
    /// of shared memory, one inside of that.
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

impl Fault {
    /// Decodes a notifier number, the log's lines and what the driver's own calls tell.
    pub(crate) fn decode(notifier: ErrorCode, log: Result<Vec<String>, String>, evidence: &Evidence) -> Self {
        let lines = log.as_deref().unwrap_or(&[]);
        let facts: Vec<_> = lines.iter().map(|line| Facts::of(line)).collect();
        // The last lines: stragglers of an earlier fault may precede them.
        let pc = evidence.pc.or_else(|| facts.iter().rev().find_map(|facts| facts.pc));
        let logged = || facts.iter().rev().find_map(|facts| facts.warp_esr);
        let warp = evidence.warp_esr.or_else(logged).map(WarpError::from_esr);
        let kind = match notifier {
            ErrorCode::MmuFault => FaultKind::Mmu,
            ErrorCode::EngineException if facts.iter().any(|facts| facts.descriptor_refused) => {
                FaultKind::LaunchDescriptor
            }
            ErrorCode::EngineException => warp.map_or(FaultKind::GraphicsException, FaultKind::Sm),
            ErrorCode::PbdmaError => FaultKind::Pushbuffer,
            ErrorCode::CopyEngineFault => FaultKind::CopyEngine,
            other => FaultKind::Other(other),
        };
        let reported = evidence
            .mmu
            .map(|fault| (fault.address, (mmu::fault_type(fault.kind), mmu::access_type(fault.access))));
        let logged = || {
            let access = facts.iter().rev().find_map(|facts| facts.access.clone())?;
            Some((access.address, (access.fault_type, access.access_type)))
        };
        let (address, access) = reported.or_else(logged).unzip();
        let details = facts.into_iter().filter_map(|facts| facts.explanation).collect();
        Self {
            kind,
            notifier,
            address: address.or(evidence.address),
            access,
            pc,
            location: None,
            grid: None,
            nearest: None,
            submissions: Vec::new(),
            details,
            log,
            bundle: None,
        }
    }
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

#[cfg(test)]
mod tests {
    use super::*;
    use gpu_hal::Refusal;

    fn lines(text: &str) -> Result<Vec<String>, String> {
        Ok(text.lines().map(str::to_owned).collect())
    }

    #[test]
    fn a_line_of_the_desktop_driver_has_address_and_access() {
        let line = "NVRM: Xid (PCI:0000:00:06): 31, pid=440, name=x, channel 0x0000000b, intr 00000000. MMU Fault: \
                    ENGINE CE0 HUBCLIENT_CE0 faulted @ 0x30_00000000. Fault is of type FAULT_PDE \
                    ACCESS_TYPE_VIRT_READ";
        let fault = Fault::decode(ErrorCode::MmuFault, lines(line), &Evidence::default());
        assert_eq!((fault.kind, fault.address), (FaultKind::Mmu, Some(0x30_0000_0000)));
        assert_eq!(fault.access, Some(("invalid pde".to_owned(), "virt read".to_owned())));
        let line = "NVRM: Xid (PCI:0000:00:06): 13, pid=717, name=x, Graphics Exception: ESR 0x519730=0x30009 \
                    0x519734=0x0 0x519728=0x1f81fb60 0x51972c=0x1174";
        let fault = Fault::decode(ErrorCode::EngineException, lines(line), &Evidence::default());
        assert_eq!(fault.kind, FaultKind::Sm(WarpError::IllegalInstruction));
        let evidence = Evidence { pc: Some(0x1230), warp_esr: Some(0xf), ..Evidence::default() };
        let fault = Fault::decode(ErrorCode::EngineException, lines(""), &evidence);
        assert_eq!((fault.kind, fault.pc), (FaultKind::Sm(WarpError::MisalignedAddress), Some(0x1230)));
    }

    #[test]
    fn an_mmu_fault_has_address_and_access() {
        let fault = Fault::decode(
            ErrorCode::MmuFault,
            lines(
                "nvgpu: 17000000.gpu x:1 [ERR]  page fault error: err_type = 0x1, fault_status = 0x1\n\
                 nvgpu: 17000000.gpu x:1 [ERR]  [MMU FAULT] mmu engine id:  0, ch id:  511, fault addr: 0xfb12345000, \
                 fault addr aperture: 0, fault type: invalid pte, access type: virt read, ",
            ),
            &Evidence::default(),
        );
        assert_eq!(fault.kind, FaultKind::Mmu);
        assert_eq!(fault.address, Some(0xfb_1234_5000));
        let text = fault.to_string();
        assert!(text.contains("0xfb12345000") && text.contains("invalid pte, virt read"), "{text}");
    }

    #[test]
    fn an_sm_exception_has_cause_and_pc() {
        // The original's log of a misaligned-space access: the ESR values are decimal.
        let fault = Fault::decode(
            ErrorCode::EngineException,
            lines(
                "nvgpu: sm err state gpc_id(0), tpc_id(1), offset(0), sm_id(2), hww_global_esr 4,hww_warp_esr 15, \
                 hww_warp_esr_pc 0xff55a2a830",
            ),
            &Evidence::default(),
        );
        assert_eq!(fault.kind, FaultKind::Sm(WarpError::MisalignedAddress));
        assert_eq!(fault.pc, Some(0xff_55a2_a830));
    }

    #[test]
    fn without_a_log_the_notifier_still_tells_the_kind() {
        let fault =
            Fault::decode(ErrorCode::PbdmaError, Err("permission denied".to_owned()), &Evidence::default());
        assert_eq!(fault.kind, FaultKind::Pushbuffer);
        assert!(fault.to_string().contains("permission denied"));
        assert_eq!(
            Fault::decode(ErrorCode::Unknown(77), lines(""), &Evidence::default()).kind,
            FaultKind::Other(ErrorCode::Unknown(77))
        );
    }

    #[test]
    fn without_a_log_the_driver_tells_address_and_place() {
        let closed = || Err("permission denied".to_owned());
        let refusal = Refusal { address: 0x1_2345_6000, kind: 6, access: 1 };
        let evidence = Evidence { mmu: Some(refusal), ..Evidence::default() };
        let fault = Fault::decode(ErrorCode::MmuFault, closed(), &evidence);
        let text = "GPU fault: MMU fault at address 0x123456000 (write/ro violation, virt write access)";
        assert_eq!(fault.to_string(), text);
        let evidence = Evidence { pc: Some(0x80), warp_esr: Some(0x500_000f), address: Some(1), mmu: None };
        let fault = Fault::decode(ErrorCode::EngineException, closed(), &evidence);
        assert_eq!(fault.to_string(), "GPU fault: misaligned address at address 0x1 at pc 0x80");
    }

    #[test]
    fn a_refused_descriptor_is_told_from_an_sm_exception() {
        let fault = Fault::decode(
            ErrorCode::EngineException,
            lines("nvgpu: sked exception: esr 0x01000000\norin-sim: window overlap"),
            &Evidence::default(),
        );
        assert_eq!(fault.kind, FaultKind::LaunchDescriptor);
        assert!(fault.to_string().ends_with("window overlap"));
    }
}
