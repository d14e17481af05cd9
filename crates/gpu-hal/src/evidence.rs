//! Details of a fault from a driver's own requests.

/// An access that the MMU refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Address of the access.
    pub address: u64,
    /// Fault type, `NV_PFAULT_FAULT_TYPE_*` (`dev_fault.h`).
    pub kind: u32,
    /// Access type, `NV_PFAULT_ACCESS_TYPE_*` (`dev_fault.h`).
    pub access: u32,
}

/// The exception state of an SM.
///
/// ```
/// use gpu_hal::{Evidence, SmRecord};
///
/// let record = SmRecord { warp_esr: 0xf, pc: 0x1230, address: 0 };
/// assert_eq!(Evidence::of_sms(&[record]).pc, Some(0x1230));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SmRecord {
    /// Warp error status (`hww_warp_esr`); 0 if only the SM as a whole has an error.
    pub warp_esr: u32,
    /// Program counter of the warp; 0 if unknown.
    pub pc: u64,
    /// Address of the warp's access; 0 if unknown.
    pub address: u64,
}

/// Details of a fault from a driver's own requests, beyond the kernel log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Evidence {
    /// Program counter of the stopped warp.
    pub pc: Option<u64>,
    /// Warp error status (`hww_warp_esr`).
    pub warp_esr: Option<u32>,
    /// Address of the warp's access.
    pub address: Option<u64>,
    /// The access that the MMU refused.
    pub mmu: Option<Refusal>,
}

impl Evidence {
    /// The evidence of SMs with an error: of the first that names a warp error, else of the first.
    pub fn of_sms(records: &[SmRecord]) -> Self {
        let of_a_warp = |record: &&SmRecord| record.warp_esr & 0xffff != 0;
        let Some(record) = records.iter().find(of_a_warp).or(records.first()) else { return Self::default() };
        Self {
            pc: (record.pc != 0).then_some(record.pc),
            warp_esr: Some(record.warp_esr),
            address: (record.address != 0).then_some(record.address),
            mmu: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_warp_error_outranks_an_error_of_the_sm() {
        let sm = SmRecord { warp_esr: 0x10_0000, pc: 0, address: 0 };
        let warp = SmRecord { warp_esr: 0xf, pc: 0x80, address: 1 };
        let evidence = Evidence::of_sms(&[sm, warp]);
        assert_eq!((evidence.pc, evidence.warp_esr, evidence.address), (Some(0x80), Some(0xf), Some(1)));
        let evidence = Evidence::of_sms(&[sm]);
        assert_eq!((evidence.pc, evidence.warp_esr, evidence.address), (None, Some(0x10_0000), None));
        assert_eq!(Evidence::of_sms(&[]), Evidence::default());
    }
}
