//! Types of MMU faults and of the accesses that they refuse: numbers of the hardware's fault packet (`dev_fault.h`,
//! `NV_PFAULT_FAULT_TYPE_*` and `NV_PFAULT_ACCESS_TYPE_*`), words that the Orin's driver logs, and names of those
//! constants, which the desktop driver logs.

use core::fmt;

/// Defines an enum whose variants have a number, a name in the desktop driver's log and words in the Orin driver's log.
macro_rules! vocabulary {
    (
        $(#[$about:meta])*
        $vis:vis enum $type:ident, prefix $prefix:literal, unknown $unknown:literal;
        $($(#[$doc:meta])* $variant:ident = $number:literal, $name:literal, $words:literal;)*
    ) => {
        $(#[$about])*
        #[derive(Clone, Debug, PartialEq, Eq)]
        #[non_exhaustive]
        $vis enum $type {
            $($(#[$doc])* $variant,)*
            /// Any other type, in the words of the log, or its number.
            Other(String),
        }

        impl $type {
            /// Every known type: number, name in the desktop driver, type. `Display` has the words.
            pub const ALL: &[(u32, &str, Self)] = &[$(($number, $name, Self::$variant),)*];

            /// The type with a number in the hardware's fault packet.
            pub fn from_number(number: u32) -> Self {
                match number {
                    $($number => Self::$variant,)*
                    _ => Self::Other(format!(concat!($unknown, " {:#x}"), number)),
                }
            }

            /// The type that the Orin's driver logs in these words.
            pub fn from_words(words: &str) -> Self {
                match words {
                    $($words => Self::$variant,)*
                    _ => Self::Other(words.to_owned()),
                }
            }

            /// The type that the desktop driver logs by this name.
            pub fn from_name(name: &str) -> Self {
                let name = name.trim_start_matches($prefix);
                match name {
                    $($name => Self::$variant,)*
                    _ => Self::Other(name.to_lowercase().replace('_', " ")),
                }
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(match self {
                    $(Self::$variant => $words,)*
                    Self::Other(words) => words,
                })
            }
        }
    };
}

vocabulary! {
    /// Why the MMU refused an access. `Display` prints the words of the Orin's driver (`mmu_fault_ga10b_fusa.c`).
    ///
    /// ```
    /// use gpu_log::mmu::MmuFaultType;
    ///
    /// assert_eq!(MmuFaultType::ReadOnlyViolation.to_string(), "write/ro violation");
    /// ```
    pub enum MmuFaultType, prefix "FAULT_", unknown "fault type";
    /// No page directory entry: nothing is mapped nearby.
    InvalidPde = 0, "PDE", "invalid pde";
    /// Invalid size in a page directory entry.
    InvalidPdeSize = 1, "PDE_SIZE", "invalid pde size";
    /// No page table entry: the page is not mapped.
    InvalidPte = 2, "PTE", "invalid pte";
    /// The address is above the limit of the address space.
    LimitViolation = 3, "VA_LIMIT_VIOLATION", "limit violation";
    /// The channel has no instance block.
    UnboundInstanceBlock = 4, "UNBOUND_INST_BLOCK", "unbound inst block";
    /// Access of a user channel to a privileged page.
    PrivilegeViolation = 5, "PRIV_VIOLATION", "priv violation";
    /// Store to a read-only page.
    ReadOnlyViolation = 6, "RO_VIOLATION", "write/ro violation";
    /// Load from a write-only page.
    WriteOnlyViolation = 7, "WO_VIOLATION", "read/wo violation";
    /// A pitch mask was violated.
    PitchMaskViolation = 8, "PITCH_MASK_VIOLATION", "pitch mask violation";
    /// Work creation.
    WorkCreation = 9, "WORK_CREATION", "work creation";
    /// The page is in an aperture that the unit cannot access.
    UnsupportedAperture = 10, "UNSUPPORTED_APERTURE", "unsupported aperture";
    /// Compressed data could not be decompressed.
    CompressionFailure = 11, "COMPRESSION_FAILURE", "compression failure";
    /// The unit cannot access pages of this kind.
    UnsupportedKind = 12, "UNSUPPORTED_KIND", "unsupported kind";
    /// A region was violated.
    RegionViolation = 13, "REGION_VIOLATION", "region violation";
    /// The memory is poisoned.
    Poisoned = 14, "POISONED", "poison";
    /// Atomic access to a page that does not allow it.
    AtomicViolation = 15, "ATOMIC_VIOLATION", "atomic violation";
}

vocabulary! {
    /// Type of the access that the MMU refused.
    pub enum MmuAccess, prefix "ACCESS_TYPE_", unknown "access type";
    /// Load from a virtual address.
    VirtRead = 0, "VIRT_READ", "virt read";
    /// Store to a virtual address.
    VirtWrite = 1, "VIRT_WRITE", "virt write";
    /// Strong atomic operation on a virtual address.
    VirtAtomicStrong = 2, "VIRT_ATOMIC_STRONG", "virt atomic strong";
    /// Prefetch from a virtual address.
    VirtPrefetch = 3, "VIRT_PREFETCH", "virt prefetch";
    /// Weak atomic operation on a virtual address.
    VirtAtomicWeak = 4, "VIRT_ATOMIC_WEAK", "virt atomic weak";
    /// Load from a physical address.
    PhysRead = 8, "PHYS_READ", "phys read";
    /// Store to a physical address.
    PhysWrite = 9, "PHYS_WRITE", "phys write";
    /// Atomic operation on a physical address.
    PhysAtomic = 10, "PHYS_ATOMIC", "phys atomic";
    /// Prefetch from a physical address.
    PhysPrefetch = 11, "PHYS_PREFETCH", "phys prefetch";
}

impl MmuAccess {
    /// Whether the access loads without storing.
    pub fn is_read(&self) -> bool {
        matches!(self, Self::VirtRead | Self::VirtPrefetch | Self::PhysRead | Self::PhysPrefetch)
    }

    /// Whether the access stores without loading.
    pub fn is_write(&self) -> bool {
        matches!(self, Self::VirtWrite | Self::PhysWrite)
    }

    /// Whether the access is an atomic operation.
    pub fn is_atomic(&self) -> bool {
        matches!(self, Self::VirtAtomicStrong | Self::VirtAtomicWeak | Self::PhysAtomic)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_names_and_words_mean_the_same_type() {
        assert_eq!((MmuFaultType::ALL.len(), MmuAccess::ALL.len()), (16, 9));
        for (number, name, known) in MmuFaultType::ALL {
            assert_eq!(MmuFaultType::from_number(*number), *known);
            assert_eq!(MmuFaultType::from_name(&format!("FAULT_{name}")), *known);
            assert_eq!(MmuFaultType::from_words(&known.to_string()), *known);
        }
        for (number, name, known) in MmuAccess::ALL {
            assert_eq!(MmuAccess::from_number(*number), *known);
            assert_eq!(MmuAccess::from_name(&format!("ACCESS_TYPE_{name}")), *known);
            assert_eq!(MmuAccess::from_words(&known.to_string()), *known);
            let kinds = [known.is_read(), known.is_write(), known.is_atomic()];
            assert_eq!(kinds.iter().filter(|kind| **kind).count(), 1, "{known}");
        }
        assert!(MmuAccess::VirtRead.is_read() && MmuAccess::PhysWrite.is_write());
        assert!(MmuAccess::VirtAtomicWeak.is_atomic());
    }

    #[test]
    fn unknown_numbers_names_and_words_are_passed_on() {
        assert_eq!(MmuFaultType::from_number(77).to_string(), "fault type 0x4d");
        assert_eq!(MmuFaultType::from_name("FAULT_NEW_ONE"), MmuFaultType::Other("new one".into()));
        assert_eq!(MmuFaultType::from_words("other words").to_string(), "other words");
        let access = MmuAccess::from_number(7);
        assert_eq!(access.to_string(), "access type 0x7");
        assert!(!access.is_read() && !access.is_write() && !access.is_atomic());
    }
}
