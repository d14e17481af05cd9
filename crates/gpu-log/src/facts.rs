//! Facts about a fault from a log line, independent of the driver that printed it.

use crate::mmu::{MmuAccess, MmuFaultType};
use crate::table::{FaultLine, Message, SystemLine};
use crate::template;

/// An access that the MMU refused.
///
/// ```
/// use gpu_log::Facts;
///
/// let line = "[MMU FAULT] mmu engine id:  0, ch id:  511, fault addr: 0xfb12345000, fault addr aperture: 0, fault \
///             type: invalid pte, access type: virt read, ";
/// let access = Facts::of(line).access.expect("an access");
/// assert_eq!((access.channel, access.address), (Some(511), 0xfb_1234_5000));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusedAccess {
    /// The channel that made the access, if the line names it.
    pub channel: Option<u32>,
    /// Address of the access; of a page of 4 KiB on an Orin.
    pub address: u64,
    /// Why the MMU refused the access.
    pub fault_type: MmuFaultType,
    /// Type of the access.
    pub access_type: MmuAccess,
}

/// A channel that the kernel has stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoppedChannel {
    /// Notifier code (`NVGPU_CHANNEL_*`), or the number of the Xid.
    pub notifier: u32,
    /// Channel id.
    pub channel: u32,
}

impl StoppedChannel {
    /// Notifier of a channel that a program has reset (`NVGPU_CHANNEL_RESETCHANNEL_VERIF_ERROR`).
    pub const RESET: u32 = 43;
}

/// The program that a line about a fault names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    /// Id of the process, in the namespace of the kernel; `None` if the line has none.
    pub pid: Option<u32>,
    /// Name of the process, or of the thread that opened the channel; at most 15 bytes.
    pub name: String,
}

/// Facts about a fault from one line of the kernel log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Facts {
    /// The channel that the kernel has stopped.
    pub stopped: Option<StoppedChannel>,
    /// The access that the MMU refused.
    pub access: Option<RefusedAccess>,
    /// The warp error register of an SM (`hww_warp_esr`); 0 after a trap.
    pub warp_esr: Option<u32>,
    /// Address of the instruction at which an SM stopped.
    pub pc: Option<u64>,
    /// Whether the compute scheduler refused a launch descriptor.
    pub descriptor_refused: bool,
    /// The program whose work failed.
    pub owner: Option<Owner>,
    /// The software Orin's explanation.
    pub explanation: Option<String>,
}

impl Facts {
    /// Reads the facts of a line; all empty for a line about something else.
    pub fn of(line: &str) -> Self {
        let mut facts = Self::default();
        if let Some((_, text)) = line.split_once("orin-sim: ") {
            facts.explanation = Some(text.to_owned());
            return facts;
        }
        match Message::parse(line) {
            Some(Message::Fault(line)) => facts.add_fault(line),
            Some(Message::System(line)) => facts.add_system(line),
            _ => {}
        }
        facts.stopped = facts.stopped.or_else(|| stopped_by_xid(line));
        facts.owner = facts.owner.or_else(|| owner_in_xid(line));
        if let (Some(access), Some(stopped)) = (&mut facts.access, facts.stopped) {
            access.channel = access.channel.or(Some(stopped.channel));
        }
        facts
    }

    fn add_fault(&mut self, line: FaultLine) {
        match line {
            FaultLine::MmuFault { channel, address, fault_type, access_type, .. } => {
                self.access = Some(RefusedAccess {
                    channel: Some(channel),
                    address,
                    fault_type: MmuFaultType::from_words(&fault_type),
                    access_type: MmuAccess::from_words(&access_type),
                });
            }
            FaultLine::SmState { warp_esr, pc, .. } => {
                self.warp_esr = Some(warp_esr);
                self.pc = Some(pc);
            }
            FaultLine::DescriptorRefused { .. } => self.descriptor_refused = true,
            FaultLine::NotifierSet { code, channel, owner } => {
                self.stopped = Some(StoppedChannel { notifier: code, channel });
                self.owner = (!owner.is_empty()).then_some(Owner { pid: None, name: owner });
            }
            _ => {}
        }
    }

    fn add_system(&mut self, line: SystemLine) {
        match line {
            SystemLine::MmuFault { address, fault_type, access_type, .. } => {
                self.access = Some(RefusedAccess {
                    channel: None,
                    address: address.0,
                    fault_type: MmuFaultType::from_name(&fault_type),
                    access_type: MmuAccess::from_name(&access_type),
                });
            }
            SystemLine::Exception { warp_esr, .. } => self.warp_esr = Some(warp_esr),
            _ => {}
        }
    }
}

/// The channel that a line of the desktop driver names, whatever the kind of its error.
fn stopped_by_xid(line: &str) -> Option<StoppedChannel> {
    let mut values = template::capture("NVRM: Xid ({device}): {number}, {rest} channel {channel:x}", line)?;
    let (_, notifier, _): (String, u32, String) = (values.read()?, values.read()?, values.read()?);
    Some(StoppedChannel { notifier, channel: values.read()? })
}

/// The process that a line of the desktop driver names.
fn owner_in_xid(line: &str) -> Option<Owner> {
    let mut values =
        template::capture("NVRM: Xid ({device}): {number}, pid={pid}, name={name}, {rest}", line)?;
    let (_, _, pid, name): (String, u32, String, String) =
        (values.read()?, values.read()?, values.read()?, values.read()?);
    // Without a process the driver prints `<unknown>` for both.
    pid.parse().ok().map(|pid| Owner { pid: Some(pid), name })
}

#[cfg(test)]
mod tests {
    use super::*;

    const NVGPU: &str = "nvgpu: 17000000.gpu x:1 [ERR]  ";

    #[test]
    fn lines_of_the_orin_s_driver() {
        let facts = |message: &str| Facts::of(&format!("{NVGPU}{message}"));
        let mmu = facts(
            "[MMU FAULT] mmu engine id:  0, ch id:  511, fault addr: 0xfb12345000, fault addr aperture: 0, fault \
             type: invalid pte, access type: virt read, ",
        );
        let types = (MmuFaultType::InvalidPte, MmuAccess::VirtRead);
        let access = mmu.access.unwrap();
        assert_eq!(access.channel, Some(511));
        assert_eq!((access.address, (access.fault_type, access.access_type)), (0xfb_1234_5000, types));
        let sm = facts(
            "sm err state gpc_id(0), tpc_id(1), offset(0), sm_id(2), hww_global_esr 4,hww_warp_esr 15, \
             hww_warp_esr_pc 0xff55a2a830",
        );
        assert_eq!((sm.warp_esr, sm.pc), (Some(15), Some(0xff_55a2_a830)));
        assert!(facts("sked exception: esr 0x01000000").descriptor_refused);
        let stopped = facts("error notifier set to 43 for ch 511 owned by a b").stopped;
        assert_eq!(stopped, Some(StoppedChannel { notifier: StoppedChannel::RESET, channel: 511 }));
        assert_eq!(facts("TSG 0 generated a mmu fault"), Facts::default());
    }

    #[test]
    fn lines_of_the_desktop_driver() {
        let line = "NVRM: Xid (PCI:0000:00:06): 31, pid=440, name=x, channel 0x0000000b, intr 00000000. MMU Fault: \
                    ENGINE GRAPHICS GPC0 GPCCLIENT_T1_0 faulted @ 0x30_00001000. Fault is of type FAULT_PDE \
                    ACCESS_TYPE_VIRT_READ";
        let facts = Facts::of(line);
        assert_eq!(facts.stopped, Some(StoppedChannel { notifier: 31, channel: 0xb }));
        let access = facts.access.unwrap();
        assert_eq!(access.channel, Some(0xb));
        assert_eq!((access.address, access.fault_type), (0x30_0000_1000, MmuFaultType::InvalidPde));
        assert_eq!(access.access_type, MmuAccess::VirtRead);
        let line = "NVRM: Xid (PCI:0000:00:06): 13, pid=717, name=x, Graphics Exception: ESR 0x519730=0x30009 \
                    0x519734=0x0 0x519728=0x1f81fb60 0x51972c=0x1174";
        assert_eq!((Facts::of(line).warp_esr, Facts::of(line).stopped), (Some(0x3_0009), None));
        let line = "NVRM: Xid (PCI:0000:00:06): 69, pid=717, name=x, Class Error: channel 0x0000000c, Class 0000cbc0";
        assert_eq!(Facts::of(line).stopped, Some(StoppedChannel { notifier: 69, channel: 0xc }));
    }

    #[test]
    fn lines_name_the_program_whose_work_failed() {
        let owner = |line: &str| Facts::of(line).owner.map(|owner| (owner.pid, owner.name));
        let notifier = "error notifier set to 31 for ch 479 owned by consumer_thread";
        assert_eq!(owner(&format!("{NVGPU}{notifier}")), Some((None, "consumer_thread".to_owned())));
        let xid = |rest: &str| format!("NVRM: Xid (PCI:0000:cb:00): {rest}");
        let known = owner(&xid("109, pid=1797828, name=pt_main_thread, Ch 00000008, errorString CTX"));
        assert_eq!(known, Some((Some(1_797_828), "pt_main_thread".to_owned())));
        assert_eq!(owner(&xid("45, pid='<unknown>', name=<unknown>, Ch 00000008")), None);
        assert_eq!(owner(&xid("79, GPU has fallen off the bus")), None);
    }

    #[test]
    fn an_explanation_is_passed_on() {
        let text = "channel 3: an illegal method";
        assert_eq!(Facts::of(&format!("orin-sim: {text}")).explanation.as_deref(), Some(text));
        assert_eq!(Facts::of("usb 1-2: new high-speed USB device"), Facts::default());
    }
}
