//! Classes of instructions, for the mix.

use sass::Op;

/// The class of an instruction; `other` for words that are not decoded.
pub(super) fn class_of(word: u128) -> &'static str {
    sass::decode(word).map_or("other", |instruction| instruction.op.class())
}

/// Kind of the memory instruction `word`: `load`, `store`, `atomic` or `copy`; `None` for others.
pub(super) fn access_of(word: u128) -> Option<&'static str> {
    access_of_op(sass::decode(word).ok()?.op)
}

/// As [`access_of`], for an operation.
pub(super) fn access_of_op(op: Op) -> Option<&'static str> {
    match op {
        Op::Ldg | Op::Ld | Op::Lds | Op::Ldl | Op::Ldsm => Some("load"),
        // Loads from global memory; their stores to shared memory count there.
        Op::Ldgsts => Some("copy"),
        Op::Stg | Op::St | Op::Sts | Op::Stl => Some("store"),
        Op::Atom
        | Op::AtomSwap
        | Op::Atomg
        | Op::AtomgSwap
        | Op::Red
        | Op::Atoms
        | Op::AtomsSwap
        | Op::AtomsInc
        | Op::Arrives => Some("atomic"),
        _ => None,
    }
}

/// Whether the threads that execute it may diverge.
pub(crate) fn is_branch(op: Op) -> bool {
    matches!(
        op,
        Op::Bra
            | Op::Jmp
            | Op::Brx
            | Op::Brxu
            | Op::Jmx
            | Op::Call
            | Op::CallAbsolute
            | Op::CallRegister
            | Op::CallAbsoluteRegister
            | Op::Ret
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_have_a_class() {
        assert_eq!(class_of(0x000f_ea00_0380_0000_0000_0000_0000_794d), "control");
        assert_eq!(class_of(!0), "other");
        assert!(Op::CLASSES.contains(&class_of(0x0000_0000_078e_02ff_0000_0003_0000_7224)));
        assert_eq!(access_of(0x000f_ea00_0380_0000_0000_0000_0000_794d), None);
    }
}
