//! Operations: one name for each handler of an interpreter.

/// Declares the operations by class.
macro_rules! operations {
    ($(#[$meta:meta])* $($class:literal { $($(#[$doc:meta])* $op:ident,)+ })+) => {
        $(#[$meta])*
        pub enum Op {
            $($($(#[$doc])* $op,)+)+
        }

        impl Op {
            /// The classes, in the order in which listings have them.
            pub const CLASSES: &[&str] = &[$($class),+];

            /// The class: one of [`Op::CLASSES`].
            pub const fn class(self) -> &'static str {
                match self {
                    $($(Self::$op)|+ => $class,)+
                }
            }
        }
    };
}

operations! {
    /// Operation of an instruction.
    ///
    /// ```
    /// let instruction = sass::decode(0x000f_ea00_0380_0000_0000_0000_0000_794d).unwrap();
    /// assert_eq!(instruction.op, sass::Op::Exit);
    /// ```
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    "integer" {
        /// IMAD: product and sum, lower word.
        Imad,
        /// IMAD.WIDE: product and sum of 64 bits.
        ImadWide,
        /// IMAD.HI: product and sum, upper word.
        ImadHi,
        /// IADD3: sum of three.
        Iadd3,
        /// LOP3: any function of three bits, bit by bit.
        Lop3,
        /// SHF: shift of a pair of words.
        Shf,
        /// LEA: sum of a shifted and a plain operand.
        Lea,
        /// IMNMX: minimum or maximum.
        Imnmx,
        /// IABS: absolute value.
        Iabs,
        /// ISETP: comparison.
        Isetp,
        /// BMSK: mask of consecutive bits.
        Bmsk,
        /// SGXT: sign extension from any bit.
        Sgxt,
        /// FLO: position of the leading bit.
        Flo,
        /// BREV: reversed bits.
        Brev,
        /// POPC: number of set bits.
        Popc,
        /// IDP: dot product of small integers.
        Idp,
        /// VABSDIFF: absolute difference.
        Vabsdiff,
        /// VABSDIFF4: absolute differences of four bytes.
        Vabsdiff4,
    }
    "single precision" {
        /// FADD: sum.
        Fadd,
        /// FMUL: product.
        Fmul,
        /// FFMA: fused product and sum.
        Ffma,
        /// FMNMX: minimum or maximum.
        Fmnmx,
        /// FSEL: selection by a predicate.
        Fsel,
        /// FSET: comparison that returns 1.0 or 0.0.
        Fset,
        /// FSETP: comparison.
        Fsetp,
        /// FCHK: whether a division needs the slow path.
        Fchk,
    }
    "half precision" {
        /// HADD2: sum.
        Hadd2,
        /// HMUL2: product.
        Hmul2,
        /// HFMA2: fused product and sum.
        Hfma2,
        /// HSET2: comparison that returns numbers or masks.
        Hset2,
        /// HSETP2: comparison.
        Hsetp2,
        /// HMNMX2: minimum or maximum.
        Hmnmx2,
    }
    "double precision" {
        /// DADD: sum.
        Dadd,
        /// DMUL: product.
        Dmul,
        /// DFMA: fused product and sum.
        Dfma,
        /// DSETP: comparison.
        Dsetp,
    }
    "special function" {
        /// MUFU: reciprocal, root, logarithm and other functions.
        Mufu,
    }
    "tensor" {
        /// MOVM: transposition of a matrix.
        Movm,
        /// HMMA: product of matrices of 16- and 32-bit floating point.
        Hmma,
        /// IMMA: product of matrices of integers.
        Imma,
        /// BMMA: product of matrices of bits.
        Bmma,
        /// DMMA: product of matrices of double precision.
        Dmma,
    }
    "conversion" {
        /// I2I: conversion with saturation.
        I2i,
        /// I2IP: conversion of two with saturation, packed.
        I2ip,
        /// F2I: floating point to integer.
        F2i,
        /// I2F: integer to floating point.
        I2f,
        /// I2FP: integer to single precision.
        I2fp,
        /// F2F: between floating-point types.
        F2f,
        /// F2FP: two numbers to half precision, packed.
        F2fp,
        /// F2IP: two numbers to bytes, packed.
        F2ip,
        /// FRND: rounding to an integer.
        Frnd,
    }
    "move and predicate" {
        /// PRMT: selection of bytes.
        Prmt,
        /// MOV: copy.
        Mov,
        /// SEL: selection by a predicate.
        Sel,
        /// P2R: predicates to a register.
        P2r,
        /// R2P: register to predicates.
        R2p,
        /// PLOP3: any function of three predicates.
        Plop3,
        /// PLOP3 of the sign of B.
        Plop3Sign,
        /// PLOP3 of the signs of B and C.
        Plop3TwoSigns,
        /// PLOP3 of the signs of A, B and C.
        Plop3Signs,
        /// S2R: special register to a register.
        S2r,
        /// CS2R: special register to a register or pair.
        Cs2r,
        /// LEPC: address of the instruction.
        Lepc,
    }
    "uniform" {
        /// UIMAD: product and sum.
        Uimad,
        /// UIMAD.WIDE: product and sum of 64 bits.
        UimadWide,
        /// UIADD3: sum of three.
        Uiadd3,
        /// ULOP3: any function of three bits, bit by bit.
        Ulop3,
        /// USHF: shift of a pair of words.
        Ushf,
        /// ULEA: sum of a shifted and a plain operand.
        Ulea,
        /// UPRMT: selection of bytes.
        Uprmt,
        /// UMOV: copy.
        Umov,
        /// USEL: selection by a predicate.
        Usel,
        /// UISETP: comparison.
        Uisetp,
        /// UBMSK: mask of consecutive bits.
        Ubmsk,
        /// USGXT: sign extension from any bit.
        Usgxt,
        /// UFLO: position of the leading bit.
        Uflo,
        /// UBREV: reversed bits.
        Ubrev,
        /// UPOPC: number of set bits.
        Upopc,
        /// UPLOP3: any function of three predicates.
        Uplop3,
        /// UPLOP3 of the sign of B.
        Uplop3Sign,
        /// UPLOP3 of the signs of B and C.
        Uplop3TwoSigns,
        /// UPLOP3 of the signs of A, B and C.
        Uplop3Signs,
        /// UP2UR: predicates to a register.
        Up2ur,
        /// UR2UP: register to predicates.
        Ur2up,
        /// S2UR: special register to a uniform register.
        S2ur,
        /// R2UR: register to a uniform register.
        R2ur,
        /// VOTEU: predicate of all lanes, to the uniform datapath.
        Voteu,
    }
    "global memory" {
        /// LDG: load from global memory.
        Ldg,
        /// STG: store to global memory.
        Stg,
        /// LD: load from a generic address.
        Ld,
        /// ST: store to a generic address.
        St,
        /// LDGSTS: copy from global to shared memory.
        Ldgsts,
        /// QSPC: whether a generic address is in a space.
        Qspc,
        /// ATOM: atomic at a generic address.
        Atom,
        /// ATOM.CAS and ATOM.CAST: comparing exchange at a generic address.
        AtomSwap,
        /// ATOMG: atomic in global memory.
        Atomg,
        /// ATOMG.CAS: comparing exchange in global memory.
        AtomgSwap,
        /// RED: atomic in global memory without a result.
        Red,
    }
    "shared memory" {
        /// LDS: load from shared memory.
        Lds,
        /// STS: store to shared memory.
        Sts,
        /// LDSM: load of matrices from shared memory.
        Ldsm,
        /// ARRIVES: arrival at a barrier in shared memory.
        Arrives,
        /// ATOMS: atomic in shared memory.
        Atoms,
        /// ATOMS.CAS and ATOMS.CAST: comparing exchange in shared memory.
        AtomsSwap,
        /// ATOMS.POPC.INC and ATOMS.ARRIVE: counters in shared memory.
        AtomsInc,
    }
    "local memory" {
        /// LDL: load from local memory.
        Ldl,
        /// STL: store to local memory.
        Stl,
    }
    "constant memory" {
        /// ULDC: load from a constant bank.
        Uldc,
        /// ULDC with an address in a uniform register.
        UldcIndexed,
        /// LDC: load from a constant bank.
        Ldc,
    }
    "exchange" {
        /// SHFL: exchange between lanes.
        Shfl,
        /// VOTE: predicate of all lanes.
        Vote,
        /// MATCH: lanes with equal values.
        Match,
        /// REDUX: reduction over all lanes.
        Redux,
    }
    "control" {
        /// BRA: relative branch.
        Bra,
        /// JMP: absolute branch.
        Jmp,
        /// BRX: relative branch by a register.
        Brx,
        /// BRXU: relative branch by a uniform register.
        Brxu,
        /// JMX: absolute branch by a register.
        Jmx,
        /// CALL.REL: relative call.
        Call,
        /// CALL.ABS: absolute call.
        CallAbsolute,
        /// CALL.REL by a register.
        CallRegister,
        /// CALL.ABS by a register.
        CallAbsoluteRegister,
        /// RET: return.
        Ret,
        /// EXIT: end of the thread.
        Exit,
        /// BSSY: set a convergence barrier.
        Bssy,
        /// BSYNC: wait at a convergence barrier.
        Bsync,
        /// BREAK: leave a convergence barrier.
        Break,
        /// BMOV from a convergence barrier to a register.
        BmovToRegister,
        /// BMOV from a barrier register to a convergence barrier.
        BmovFromBarrier,
        /// BMOV from an operand to a convergence barrier.
        Bmov,
        /// WARPSYNC: wait for lanes.
        Warpsync,
        /// YIELD: let other paths of the warp run.
        Yield,
        /// NANOSLEEP: pause.
        Nanosleep,
        /// BPT: trap.
        Bpt,
        /// BAR: barrier of the CTA.
        Bar,
        /// B2R: result of a barrier's reduction.
        B2r,
    }
    "texture" {
        /// TEX: lookup at coordinates.
        Tex,
        /// TLD: texel by its numbers.
        Tld,
        /// TLD4: one component of the four texels of a filter.
        Tld4,
        /// TXD: lookup with derivatives.
        Txd,
        /// TXQ: property of a texture.
        Txq,
        /// SULD: load from a surface.
        Suld,
        /// SUST: store to a surface.
        Sust,
        /// SURED: atomic on a surface, without result.
        Sured,
    }
    "other" {
        /// Hints, fences and cache control: no effect in coherent, in-order memory.
        Nothing,
        /// LDGDEPBAR: end of a group of asynchronous copies.
        Ldgdepbar,
        /// DEPBAR: wait for groups of asynchronous copies, or for a scoreboard.
        Depbar,
        /// Not an operation of the table: an interpreter puts it into
        /// [`Instruction::op`](crate::Instruction::op) to intercept an instruction.
        Watched,
        /// Not executed: known to the printer only.
        Unmodelled,
    }
}
