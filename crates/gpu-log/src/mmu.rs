//! Types of MMU faults and accesses in words: for numbers of the hardware's fault packet (`dev_fault.h`,
//! `NV_PFAULT_FAULT_TYPE_*` and `NV_PFAULT_ACCESS_TYPE_*`), for the Orin's driver, which logs the words, and for the
//! desktop driver, which logs the names of those constants.

/// Fault types in the order of their numbers: the desktop driver's name and the words of the Orin's driver
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

/// Access types by number; the numbers between are unused.
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

/// Words for a fault type's number.
pub fn fault_type(number: u32) -> String {
    let known = usize::try_from(number).ok().and_then(|number| KINDS.get(number));
    known.map_or_else(|| format!("fault type {number:#x}"), |(_, words)| (*words).to_owned())
}

/// Words for a fault type's name in the desktop driver, for example `FAULT_PDE`.
pub fn named_fault_type(name: &str) -> String {
    let name = name.trim_start_matches("FAULT_");
    let known = KINDS.iter().find(|(known, _)| *known == name);
    known.map_or_else(|| name.to_lowercase().replace('_', " "), |(_, words)| (*words).to_owned())
}

/// Words for an access type's number.
pub fn access_type(number: u32) -> String {
    let known = ACCESSES.iter().find(|(known, _)| *known == number);
    known.map_or_else(|| format!("access type {number:#x}"), |(_, words)| (*words).to_owned())
}

/// Words for an access type's name in the desktop driver, for example `ACCESS_TYPE_VIRT_READ`.
pub fn named_access_type(name: &str) -> String {
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
            assert_eq!((fault_type(number), named_fault_type(name)), (words.to_owned(), words.to_owned()));
        }
        assert_eq!(
            (access_type(1), named_access_type("ACCESS_TYPE_VIRT_WRITE")),
            ("virt write".into(), "virt write".into())
        );
        // Unknown numbers and names are passed on.
        assert_eq!(
            (fault_type(77), named_fault_type("FAULT_NEW_ONE")),
            ("fault type 0x4d".into(), "new one".into())
        );
        assert_eq!(access_type(7), "access type 0x7");
    }
}
