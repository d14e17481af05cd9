//! Decodes faults: error notifier, the driver's requests, kernel log.
//!
//! On an unrecoverable error the kernel writes a number into the channel's error notifier. Requests return what each
//! SM has recorded about its exception, and on a desktop GPU what the MMU refused. The kernel log has the rest: on an
//! Orin the address of an MMU fault, and all errors in commands. These stay unknown if the user cannot read the log.

use gpu_hal::{ErrorCode, Evidence};
use gpu_log::mmu::{MmuAccess, MmuFaultType};
use gpu_log::{Facts, RefusedAccess};

use crate::fault::{Fault, FaultKind, WarpError};

/// Decodes an error number, the log's lines and what the driver's own requests report. `channels` are the ids of the
/// group that was stopped; accesses of other channels are stragglers of other faults.
pub(crate) fn decode(
    notifier: ErrorCode,
    log: Result<Vec<String>, String>,
    evidence: &Evidence,
    channels: &[u32],
) -> Fault {
    let lines = log.as_deref().unwrap_or(&[]);
    let facts: Vec<_> = lines.iter().map(|line| Facts::of(line)).collect();
    // The last lines: stragglers of an earlier fault may precede them.
    let pc = evidence.pc.or_else(|| facts.iter().rev().find_map(|facts| facts.pc));
    let logged = || facts.iter().rev().find_map(|facts| facts.warp_esr);
    let warp = evidence.warp_esr.or_else(logged).map(warp_error);
    let kind = match notifier {
        ErrorCode::MmuFault => FaultKind::Mmu,
        ErrorCode::EngineException if facts.iter().any(|facts| facts.descriptor_refused) => {
            FaultKind::LaunchDescriptor
        }
        // An SM may report the refused access before the MMU does.
        ErrorCode::EngineException if warp == Some(WarpError::MmuNack) => FaultKind::Mmu,
        ErrorCode::EngineException => warp.map_or(FaultKind::GraphicsException, FaultKind::Sm),
        ErrorCode::PbdmaError => FaultKind::Pushbuffer,
        ErrorCode::CopyEngineFault => FaultKind::CopyEngine,
        other => FaultKind::Other(other),
    };
    let types = |kind, access| (MmuFaultType::from_number(kind), MmuAccess::from_number(access));
    let reported = evidence.mmu.map(|fault| (fault.address, types(fault.kind, fault.access)));
    let logged = || {
        let own = |access: &&RefusedAccess| access.channel.is_none_or(|channel| channels.contains(&channel));
        // Lines about an access that an SM has reported first follow the end of the channel. Those before it are about
        // an earlier channel with the same id.
        let ended = |facts: &Facts| facts.stopped.is_some_and(|stopped| channels.contains(&stopped.channel));
        let late = notifier == ErrorCode::EngineException;
        let first = facts.iter().rposition(ended).filter(|_| late).map_or(0, |end| end + 1);
        let access = facts[first..].iter().rev().find_map(|facts| facts.access.as_ref().filter(own))?.clone();
        Some((access.address, (access.fault_type, access.access_type)))
    };
    let (address, access) = reported.or_else(logged).unzip();
    let details = facts.into_iter().filter_map(|facts| facts.explanation).collect();
    Fault {
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

/// Decodes the low 16 bits of `hww_warp_esr` (`hw_gr_ga10b.h`).
fn warp_error(esr: u32) -> WarpError {
    match esr & 0xffff {
        5 | 6 => WarpError::ProgramCounter,
        9 | 0xb => WarpError::IllegalInstruction,
        0xe => WarpError::OutOfRangeAddress,
        0xf => WarpError::MisalignedAddress,
        0x10 => WarpError::InvalidAddressSpace,
        0x12 => WarpError::InvalidConstantAddress,
        0x17 | 0x20 => WarpError::MmuNack,
        other => WarpError::Unknown(other),
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
        let fault = decode(ErrorCode::MmuFault, lines(line), &Evidence::default(), &[0xb]);
        assert_eq!((fault.kind, fault.address), (FaultKind::Mmu, Some(0x30_0000_0000)));
        assert_eq!(fault.access, Some((MmuFaultType::InvalidPde, MmuAccess::VirtRead)));
        let line = "NVRM: Xid (PCI:0000:00:06): 13, pid=717, name=x, Graphics Exception: ESR 0x519730=0x30009 \
                    0x519734=0x0 0x519728=0x1f81fb60 0x51972c=0x1174";
        let fault = decode(ErrorCode::EngineException, lines(line), &Evidence::default(), &[0xb]);
        assert_eq!(fault.kind, FaultKind::Sm(WarpError::IllegalInstruction));
        let evidence = Evidence { pc: Some(0x1230), warp_esr: Some(0xf), ..Evidence::default() };
        let fault = decode(ErrorCode::EngineException, lines(""), &evidence, &[]);
        assert_eq!((fault.kind, fault.pc), (FaultKind::Sm(WarpError::MisalignedAddress), Some(0x1230)));
    }

    #[test]
    fn an_mmu_fault_has_address_and_access() {
        let fault = decode(
            ErrorCode::MmuFault,
            lines(
                "nvgpu: 17000000.gpu x:1 [ERR]  page fault error: err_type = 0x1, fault_status = 0x1\n\
                 nvgpu: 17000000.gpu x:1 [ERR]  [MMU FAULT] mmu engine id:  0, ch id:  511, fault addr: 0xfb12345000, \
                 fault addr aperture: 0, fault type: invalid pte, access type: virt read, ",
            ),
            &Evidence::default(),
            &[511],
        );
        assert_eq!(fault.kind, FaultKind::Mmu);
        assert_eq!(fault.address, Some(0xfb_1234_5000));
        let text = fault.to_string();
        assert!(text.contains("0xfb12345000") && text.contains("invalid pte, virt read"), "{text}");
    }

    #[test]
    fn an_sm_that_reports_a_refused_access_first_is_an_mmu_fault() {
        let access = |channel| {
            format!(
                "nvgpu: 17000000.gpu x:1 [ERR]  [MMU FAULT] mmu engine id:  64, ch id:  {channel}, fault addr: \
                 0xfb12345000, fault addr aperture: 0, fault type: invalid pte, access type: virt write, "
            )
        };
        for esr in [0x17, 0x20] {
            let evidence = Evidence { pc: Some(0x1230), warp_esr: Some(esr), ..Evidence::default() };
            let decode = |text: &str| decode(ErrorCode::EngineException, lines(text), &evidence, &[510, 511]);
            assert_eq!((decode("").kind, decode("").address), (FaultKind::Mmu, None));
            let fault = decode(&access(510));
            assert_eq!((fault.kind, fault.address), (FaultKind::Mmu, Some(0xfb_1234_5000)));
            assert_eq!(decode(&access(7)).address, None, "another queue's fault");
            let end = "nvgpu: 17000000.gpu x:1 [ERR]  error notifier set to 13 for ch 511 owned by a";
            assert_eq!(decode(&format!("{}\n{end}", access(511))).address, None, "an earlier channel's");
            assert!(decode(&format!("{end}\n{}", access(511))).address.is_some());
        }
        let evidence = Evidence { warp_esr: Some(0xf), ..Evidence::default() };
        let fault = decode(ErrorCode::EngineException, lines(&access(7)), &evidence, &[511]);
        assert_eq!((fault.kind, fault.address), (FaultKind::Sm(WarpError::MisalignedAddress), None));
    }

    #[test]
    fn an_sm_exception_has_cause_and_pc() {
        // The original's log of a misaligned-space access: the ESR values are decimal.
        let fault = decode(
            ErrorCode::EngineException,
            lines(
                "nvgpu: sm err state gpc_id(0), tpc_id(1), offset(0), sm_id(2), hww_global_esr 4,hww_warp_esr 15, \
                 hww_warp_esr_pc 0xff55a2a830",
            ),
            &Evidence::default(),
            &[511],
        );
        assert_eq!(fault.kind, FaultKind::Sm(WarpError::MisalignedAddress));
        assert_eq!(fault.pc, Some(0xff_55a2_a830));
    }

    #[test]
    fn without_a_log_the_notifier_still_tells_the_kind() {
        let fault =
            decode(ErrorCode::PbdmaError, Err("permission denied".to_owned()), &Evidence::default(), &[]);
        assert_eq!(fault.kind, FaultKind::Pushbuffer);
        assert!(fault.to_string().contains("permission denied"));
        assert_eq!(
            decode(ErrorCode::Unknown(77), lines(""), &Evidence::default(), &[]).kind,
            FaultKind::Other(ErrorCode::Unknown(77))
        );
    }

    #[test]
    fn without_a_log_the_driver_tells_address_and_place() {
        let closed = || Err("permission denied".to_owned());
        let refusal = Refusal { address: 0x1_2345_6000, kind: 6, access: 1 };
        let evidence = Evidence { mmu: Some(refusal), ..Evidence::default() };
        let fault = decode(ErrorCode::MmuFault, closed(), &evidence, &[]);
        let text = "GPU fault: MMU fault at address 0x123456000 (write/ro violation, virt write access)";
        assert_eq!(fault.to_string(), text);
        let evidence = Evidence { pc: Some(0x80), warp_esr: Some(0x500_000f), address: Some(1), mmu: None };
        let fault = decode(ErrorCode::EngineException, closed(), &evidence, &[]);
        assert_eq!(fault.to_string(), "GPU fault: misaligned address at address 0x1 at pc 0x80");
    }

    #[test]
    fn a_refused_descriptor_is_told_from_an_sm_exception() {
        let fault = decode(
            ErrorCode::EngineException,
            lines("nvgpu: sked exception: esr 0x01000000\norin-sim: window overlap"),
            &Evidence::default(),
            &[511],
        );
        assert_eq!(fault.kind, FaultKind::LaunchDescriptor);
        assert!(fault.to_string().ends_with("window overlap"));
    }
}
