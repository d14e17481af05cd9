//! Classes of instructions, for the mix.

use sass::Op;

/// Class of an instruction, in the order in which the mix lists them.
pub(super) const CLASSES: [&str; 16] = [
    "integer",
    "single precision",
    "half precision",
    "double precision",
    "special function",
    "tensor",
    "conversion",
    "move and predicate",
    "uniform",
    "global memory",
    "shared memory",
    "local memory",
    "constant memory",
    "exchange",
    "control",
    "other",
];

/// The class of an instruction; `other` for words that are not decoded.
pub(super) fn class_of(word: u128) -> &'static str {
    sass::decode(word).map_or("other", |instruction| class(instruction.op))
}

fn class(op: Op) -> &'static str {
    match op {
        Op::Imad
        | Op::ImadWide
        | Op::ImadHi
        | Op::Iadd3
        | Op::Lop3
        | Op::Shf
        | Op::Lea
        | Op::Imnmx
        | Op::Iabs
        | Op::Isetp
        | Op::Bmsk
        | Op::Sgxt
        | Op::Flo
        | Op::Brev
        | Op::Popc
        | Op::Idp
        | Op::Vabsdiff
        | Op::Vabsdiff4 => "integer",
        Op::Fadd | Op::Fmul | Op::Ffma | Op::Fmnmx | Op::Fsel | Op::Fset | Op::Fsetp | Op::Fchk => {
            "single precision"
        }
        Op::Hadd2 | Op::Hmul2 | Op::Hfma2 | Op::Hset2 | Op::Hsetp2 | Op::Hmnmx2 => "half precision",
        Op::Dadd | Op::Dmul | Op::Dfma | Op::Dsetp => "double precision",
        Op::Mufu => "special function",
        Op::Hmma | Op::Imma | Op::Bmma | Op::Dmma | Op::Movm => "tensor",
        Op::I2i | Op::I2ip | Op::F2i | Op::I2f | Op::I2fp | Op::F2f | Op::F2fp | Op::F2ip | Op::Frnd => {
            "conversion"
        }
        Op::Mov
        | Op::Prmt
        | Op::Sel
        | Op::P2r
        | Op::R2p
        | Op::Plop3
        | Op::Plop3Sign
        | Op::Plop3TwoSigns
        | Op::Plop3Signs
        | Op::S2r
        | Op::Cs2r
        | Op::Lepc => "move and predicate",
        Op::Uimad
        | Op::UimadWide
        | Op::Uiadd3
        | Op::Ulop3
        | Op::Ushf
        | Op::Ulea
        | Op::Uprmt
        | Op::Umov
        | Op::Usel
        | Op::Uisetp
        | Op::Ubmsk
        | Op::Usgxt
        | Op::Uflo
        | Op::Ubrev
        | Op::Upopc
        | Op::Uplop3
        | Op::Uplop3Sign
        | Op::Uplop3TwoSigns
        | Op::Uplop3Signs
        | Op::Up2ur
        | Op::Ur2up
        | Op::S2ur
        | Op::R2ur
        | Op::Voteu => "uniform",
        Op::Ldg
        | Op::Stg
        | Op::Ld
        | Op::St
        | Op::Ldgsts
        | Op::Qspc
        | Op::Atom
        | Op::AtomSwap
        | Op::Atomg
        | Op::AtomgSwap
        | Op::Red => "global memory",
        Op::Lds | Op::Sts | Op::Ldsm | Op::Arrives | Op::Atoms | Op::AtomsSwap | Op::AtomsInc => {
            "shared memory"
        }
        Op::Ldl | Op::Stl => "local memory",
        Op::Ldc | Op::Uldc | Op::UldcIndexed => "constant memory",
        Op::Shfl | Op::Vote | Op::Match | Op::Redux => "exchange",
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
        | Op::Exit
        | Op::Bssy
        | Op::Bsync
        | Op::Break
        | Op::BmovToRegister
        | Op::BmovFromBarrier
        | Op::Bmov
        | Op::Warpsync
        | Op::Yield
        | Op::Nanosleep
        | Op::Bpt
        | Op::Bar
        | Op::B2r => "control",
        Op::Nothing | Op::Watched | Op::Unmodelled => "other",
    }
}

/// Kind of the memory instruction `word`: `load`, `store` or `atomic`; `None` for others.
pub(super) fn access_of(word: u128) -> Option<&'static str> {
    match sass::decode(word).ok()?.op {
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
        assert!(CLASSES.contains(&class_of(0x0000_0000_078e_02ff_0000_0003_0000_7224)));
        assert_eq!(access_of(0x000f_ea00_0380_0000_0000_0000_0000_794d), None);
    }
}
