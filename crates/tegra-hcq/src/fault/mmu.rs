//! What the MMU refused, in words: the same for numbers of the hardware's fault packet (`dev_fault.h`,
//! `NV_PFAULT_FAULT_TYPE_*` and `NV_PFAULT_ACCESS_TYPE_*`), for the Orin's driver, which logs the words, and for the
//! desktop driver, which logs the names of those constants.

/// Kinds of faults in the order of their numbers: the desktop driver's name and the words of the Orin's
/// (`mmu_fault_ga10b_fusa.c`).
const KINDS: [(&str, &str); 16] = [
    ("PDE", "invalid pde"),
    ("PDE_SIZE", "invalid pde size"),
    ("PTE", "invalid pte"),
    ("VA_LIMIT_VIOLATION", "limit violation"),
    ("UNBOUND_INST_BLOCK", "unbound inst block"),
    ("PRIV_VIOLATION", "priv violation"),
    ("RO_VIOLATION", "write/ro violation"),
    ("WO_VIOLATION", "read/wo violation"),
    ("PITCH_MASK_VIOLATION", "pitch mask violation"),
    ("WORK_CREATION", "work creation"),
    ("UNSUPPORTED_APERTURE", "unsupported aperture"),
    ("COMPRESSION_FAILURE", "compression failure"),
    ("UNSUPPORTED_KIND", "unsupported kind"),
    ("REGION_VIOLATION", "region violation"),
    ("POISONED", "poison"),
    ("ATOMIC_VIOLATION", "atomic violation"),
];

/// Accesses in the order of their numbers; those between have none.
const ACCESSES: [(u32, &str); 9] = [
    (0, "virt read"),
    (1, "virt write"),
    (2, "virt atomic strong"),
    (3, "virt prefetch"),
    (4, "virt atomic weak"),
    (8, "phys read"),
    (9, "phys write"),
    (10, "phys atomic"),
    (11, "phys prefetch"),
];

/// The kind with a number of the hardware.
pub(super) fn kind(number: u32) -> String {
    let known = usize::try_from(number).ok().and_then(|number| KINDS.get(number));
    known.map_or_else(|| format!("fault type {number:#x}"), |(_, words)| (*words).to_owned())
}

/// The kind with a name of the desktop driver, for example `FAULT_PDE`.
pub(super) fn named_kind(name: &str) -> String {
    let name = name.trim_start_matches("FAULT_");
    let known = KINDS.iter().find(|(known, _)| *known == name);
    known.map_or_else(|| name.to_lowercase().replace('_', " "), |(_, words)| (*words).to_owned())
}

/// The access with a number of the hardware.
pub(super) fn access(number: u32) -> String {
    let known = ACCESSES.iter().find(|(known, _)| *known == number);
    known.map_or_else(|| format!("access type {number:#x}"), |(_, words)| (*words).to_owned())
}

/// The access with a name of the desktop driver, for example `ACCESS_TYPE_VIRT_READ`.
pub(super) fn named_access(name: &str) -> String {
    name.trim_start_matches("ACCESS_TYPE_").to_lowercase().replace('_', " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_numbers_have_the_same_words() {
        for (number, name, words) in
            [(0, "FAULT_PDE", "invalid pde"), (6, "FAULT_RO_VIOLATION", "write/ro violation")]
        {
            assert_eq!((kind(number), named_kind(name)), (words.to_owned(), words.to_owned()));
        }
        assert_eq!(
            (access(1), named_access("ACCESS_TYPE_VIRT_WRITE")),
            ("virt write".into(), "virt write".into())
        );
        // What nobody has heard of is told as it came.
        assert_eq!((kind(77), named_kind("FAULT_NEW_ONE")), ("fault type 0x4d".into(), "new one".into()));
        assert_eq!(access(7), "access type 0x7");
    }
}
