//! The opcode table: every instruction that the decoder knows, in one place.
//!
//! An instruction word names its operation in bits 0..8 and, for operations of the arithmetic
//! units, the kinds of its operands in bits 9..11. A row of the table gives the legal values of the
//! latter, the mnemonic, the layout of the operands, how many consecutive registers each operand
//! takes, and which bits of the upper half are modifiers that the interpreter understands. A word
//! with any other bit set is a real instruction in a variant that is not modelled.
//!
//! Source: sections 1, 2 and 12 of the SASS fact sheet (measured on the sm_87 disassembler).

/// What an instruction does; one name per handler of the interpreter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Op {
    // Integer.
    Imad,
    ImadWide,
    ImadHi,
    Iadd3,
    Lop3,
    Shf,
    Lea,
    Prmt,
    Mov,
    Sel,
    Imnmx,
    Iabs,
    Isetp,
    Bmsk,
    Sgxt,
    Flo,
    Brev,
    Popc,
    Idp,
    Vabsdiff,
    Vabsdiff4,
    I2i,
    I2ip,
    // Predicates.
    P2r,
    R2p,
    Plop3,
    Plop3Signs,
    // Single precision.
    Fadd,
    Fmul,
    Ffma,
    Fmnmx,
    Fsel,
    Fset,
    Fsetp,
    Mufu,
    Fchk,
    // Double precision.
    Dadd,
    Dmul,
    Dfma,
    Dsetp,
    // Half precision, two lanes per register.
    Hadd2,
    Hmul2,
    Hfma2,
    Hset2,
    Hsetp2,
    Hmnmx2,
    // Conversions.
    F2i,
    I2f,
    I2fp,
    F2f,
    F2fp,
    F2ip,
    Frnd,
    // Uniform datapath.
    Uimad,
    UimadWide,
    Uiadd3,
    Ulop3,
    Ushf,
    Ulea,
    Uprmt,
    Umov,
    Usel,
    Uisetp,
    Ubmsk,
    Usgxt,
    Uflo,
    Ubrev,
    Upopc,
    Uplop3,
    Uplop3Sign,
    Up2ur,
    Ur2up,
    Uldc,
    // Special registers.
    S2r,
    Cs2r,
    S2ur,
    R2ur,
    // Memory.
    Ldg,
    Stg,
    Ld,
    St,
    Ldl,
    Stl,
    Lds,
    Sts,
    Ldc,
    Ldsm,
    Ldgsts,
    Qspc,
    Arrives,
    // Atomics.
    Atomg,
    Red,
    Atoms,
    AtomsInc,
    // Warp-wide exchange.
    Shfl,
    Vote,
    Voteu,
    Match,
    Redux,
    Movm,
    // Tensor cores.
    Hmma,
    Imma,
    Bmma,
    Dmma,
    // Control flow.
    Bra,
    Jmp,
    Brx,
    Jmx,
    Call,
    CallAbsolute,
    CallRegister,
    CallAbsoluteRegister,
    Ret,
    Exit,
    Bssy,
    Bsync,
    Break,
    BmovToRegister,
    BmovFromBarrier,
    Bmov,
    Warpsync,
    Yield,
    Nanosleep,
    Bpt,
    Lepc,
    // Barriers of a CTA.
    Bar,
    B2r,
    /// Hints, fences and cache control: nothing to do in coherent, in-order memory.
    Nothing,
    /// An instruction whose executions are counted, or whose outcome depends on the order of CTAs.
    Watched,
    /// Known by name only.
    Unmodelled,
}

/// Where the operands of an instruction are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Layout {
    /// A, B and C; bits 9..11 say which of B and C sits in bits 32..63 and of which kind it is.
    Ternary,
    /// A and B, B always in bits 32..63; bits 64..71 are free for modifiers.
    Binary,
    /// As `Binary`, but B of the register form sits in bits 64..71.
    BinaryUpper,
    /// B alone, in bits 32..63.
    Unary,
    /// Registers at 16, 24, 32 and 64; everything else is up to the handler.
    Own,
}

/// One row of the table.
#[derive(Debug)]
pub(crate) struct Row {
    /// Bits 0..8.
    pub(crate) base: u16,
    /// Bit n set: value n of bits 9..11 is legal.
    pub(crate) forms: u8,
    /// Mnemonic without modifiers.
    pub(crate) mnemonic: &'static str,
    /// Handler.
    pub(crate) op: Op,
    /// Places of the operands.
    pub(crate) layout: Layout,
    /// Registers taken by D, A, B and C, 0 for those not used; widths that depend on a size
    /// modifier are found by the decoder.
    pub(crate) widths: [u8; 4],
    /// Understood bits of the upper half (bit 0 is bit 64 of the word), besides the place of C.
    pub(crate) modifiers: u64,
}

/// Mask of bits `low..=high` of the word, which must lie in the upper half.
const fn m(low: u32, high: u32) -> u64 {
    ((1u64 << (high - low + 1)) - 1) << (low - 64)
}

const fn row(
    base: u16,
    forms: u8,
    mnemonic: &'static str,
    op: Op,
    layout: Layout,
    widths: [u8; 4],
    modifiers: u64,
) -> Row {
    Row { base, forms, mnemonic, op, layout, widths, modifiers }
}

/// A row of an instruction known by name only.
const fn named(base: u16, forms: u8, mnemonic: &'static str) -> Row {
    row(base, forms, mnemonic, Op::Unmodelled, Layout::Own, [0; 4], !0)
}

/// Forms 1 to 7.
const ABC: u8 = 0b1111_1110;
/// Forms 1, 4, 5 and 6.
const AB: u8 = 0b0111_0010;
/// Forms 1, 2, 3 and 7.
const AC: u8 = 0b1000_1110;
/// Forms 1, 2 and 4 of the uniform datapath.
const UABC: u8 = 0b0001_0110;
/// Forms 1 and 4.
const UAB: u8 = 0b0001_0010;
/// Forms 1, 5 and 6.
const SIGNS: u8 = 0b0110_0010;
/// Form `n` alone.
const fn f(n: u8) -> u8 {
    1 << n
}

/// Destination predicate.
const PD: u64 = m(81, 83);
/// Second destination predicate.
const PD2: u64 = m(84, 86);
/// Source predicate and its negation.
const PP: u64 = m(87, 90);
/// Second source predicate and its negation.
const PQ: u64 = m(77, 80);
/// Negation and absolute value of A.
const SIGN_A: u64 = m(72, 73);
/// Absolute value and negation of the register at 64..71.
const SIGN_C: u64 = m(74, 75);
/// Rounding mode.
const RND: u64 = m(78, 79);
const FTZ: u64 = m(80, 80);
const SAT: u64 = m(77, 77);
/// Eviction priority.
const EVICT: u64 = m(84, 86);
/// Size of a memory access.
const SIZE: u64 = m(73, 75);
/// The uniform register flag, where it is part of an address.
const UR: u64 = m(91, 91);
/// Ignored by the disassembler except for how it prints descriptors.
const DESC: u64 = m(101, 101);

use Layout::{Binary, BinaryUpper, Own, Ternary, Unary};

/// The table.
pub(crate) static TABLE: &[Row] = &[
    // Integer.
    row(0x024, ABC, "IMAD", Op::Imad, Ternary, [1, 1, 1, 1], m(73, 75) | PD | PP),
    row(0x025, ABC, "IMAD", Op::ImadWide, Ternary, [2, 1, 1, 2], m(73, 75) | PD | PP),
    row(0x027, ABC, "IMAD", Op::ImadHi, Ternary, [1, 1, 1, 2], m(73, 75) | PD | PP | m(86, 86)),
    row(0x010, AB, "IADD3", Op::Iadd3, Ternary, [1, 1, 1, 1], m(72, 72) | m(74, 75) | PQ | PD | PD2 | PP),
    row(0x012, AB, "LOP3", Op::Lop3, Ternary, [1, 1, 1, 1], m(72, 80) | PD | PP),
    row(0x019, 0b0111_1110, "SHF", Op::Shf, Ternary, [1, 1, 1, 1], m(73, 76) | m(80, 80)),
    row(0x011, 0b0111_0110, "LEA", Op::Lea, Ternary, [1, 1, 1, 1], m(72, 80) | PD | PP),
    row(0x016, ABC, "PRMT", Op::Prmt, Ternary, [1, 1, 1, 1], m(72, 74)),
    row(0x002, AB, "MOV", Op::Mov, Unary, [1, 0, 1, 0], m(72, 75)),
    row(0x007, AB, "SEL", Op::Sel, Binary, [1, 1, 1, 0], PP),
    row(0x017, AB, "IMNMX", Op::Imnmx, Binary, [1, 1, 1, 0], m(73, 73) | PP),
    row(0x013, AB, "IABS", Op::Iabs, Unary, [1, 0, 1, 0], 0),
    row(0x00c, AB, "ISETP", Op::Isetp, Binary, [0, 1, 1, 0], m(68, 71) | m(72, 78) | PD | PD2 | PP),
    row(0x01b, AB, "BMSK", Op::Bmsk, Binary, [1, 1, 1, 0], m(75, 75)),
    row(0x01a, AB, "SGXT", Op::Sgxt, Binary, [1, 1, 1, 0], m(73, 73) | m(75, 75)),
    row(0x100, AB, "FLO", Op::Flo, Unary, [1, 0, 1, 0], m(73, 74) | PD),
    row(0x101, AB, "BREV", Op::Brev, Unary, [1, 0, 1, 0], 0),
    row(0x109, AB, "POPC", Op::Popc, Unary, [1, 0, 1, 0], 0),
    row(0x026, AB, "IDP", Op::Idp, Ternary, [1, 1, 1, 1], m(73, 77)),
    row(0x014, ABC, "VABSDIFF", Op::Vabsdiff, Ternary, [1, 1, 1, 1], m(73, 73) | PD),
    row(0x015, ABC, "VABSDIFF4", Op::Vabsdiff4, Ternary, [1, 1, 1, 1], m(73, 73) | m(75, 75) | PD),
    row(0x038, AB, "I2I", Op::I2i, Unary, [1, 0, 1, 0], m(76, 77)),
    row(0x039, AB, "I2IP", Op::I2ip, Ternary, [1, 1, 1, 1], m(72, 78)),
    // Predicates.
    row(0x003, AB, "P2R", Op::P2r, Binary, [1, 1, 1, 0], m(76, 77)),
    row(0x004, AB, "R2P", Op::R2p, Binary, [0, 1, 1, 0], m(76, 77)),
    row(0x01c, f(4), "PLOP3", Op::Plop3, Own, [0; 4], m(64, 76) | PQ | PD | PD2 | PP),
    // The same on the signs of registers: of B, of B and C, of all three.
    row(0x01d, SIGNS, "PLOP3", Op::Plop3Signs, Ternary, [0, 0, 1, 0], m(68, 79) | PD | PD2 | PP),
    row(0x01e, SIGNS, "PLOP3", Op::Plop3Signs, Ternary, [0, 0, 1, 1], m(72, 79) | PD | PD2 | PP),
    row(0x01f, SIGNS, "PLOP3", Op::Plop3Signs, Ternary, [0, 1, 1, 1], m(72, 79) | PD | PD2),
    // Single precision.
    row(0x021, AC, "FADD", Op::Fadd, Binary, [1, 1, 1, 0], SIGN_A | SAT | RND | FTZ),
    row(0x020, AB, "FMUL", Op::Fmul, Binary, [1, 1, 1, 0], SIGN_A | m(76, 80) | m(84, 86)),
    row(0x023, ABC, "FFMA", Op::Ffma, Ternary, [1, 1, 1, 1], SIGN_A | SIGN_C | m(76, 80)),
    row(0x009, AB, "FMNMX", Op::Fmnmx, Binary, [1, 1, 1, 0], SIGN_A | m(80, 82) | PP),
    row(0x008, AB, "FSEL", Op::Fsel, Binary, [1, 1, 1, 0], SIGN_A | FTZ | PP),
    row(0x00a, AB, "FSET", Op::Fset, Binary, [1, 1, 1, 0], SIGN_A | m(74, 80) | PP),
    row(0x00b, AB, "FSETP", Op::Fsetp, Binary, [0, 1, 1, 0], SIGN_A | m(74, 80) | PD | PD2 | PP),
    row(0x108, AB, "MUFU", Op::Mufu, Unary, [1, 0, 1, 0], m(73, 77)),
    row(0x102, AB, "FCHK", Op::Fchk, Binary, [0, 1, 1, 0], SIGN_A | PD),
    // Double precision.
    row(0x029, AC, "DADD", Op::Dadd, BinaryUpper, [2, 2, 2, 0], SIGN_A | SIGN_C | RND),
    row(0x028, AB, "DMUL", Op::Dmul, Binary, [2, 2, 2, 0], SIGN_A | RND),
    row(0x02b, ABC, "DFMA", Op::Dfma, Ternary, [2, 2, 2, 2], SIGN_A | SIGN_C | RND),
    row(0x02a, AC, "DSETP", Op::Dsetp, Binary, [0, 2, 2, 0], SIGN_A | m(74, 79) | PD | PD2 | PP),
    // Half precision.
    row(0x030, AC, "HADD2", Op::Hadd2, Binary, [1, 1, 1, 0], SIGN_A | m(74, 75) | m(77, 78) | FTZ),
    row(0x032, AB, "HMUL2", Op::Hmul2, Binary, [1, 1, 1, 0], SIGN_A | m(74, 77) | FTZ | m(85, 85)),
    row(0x031, ABC, "HFMA2", Op::Hfma2, Ternary, [1, 1, 1, 1], SIGN_A | m(74, 77) | m(79, 85) | PP),
    row(0x035, ABC, "HFMA2.MMA", Op::Hfma2, Ternary, [1, 1, 1, 1], SIGN_A | m(74, 77) | m(79, 84) | PP),
    row(0x033, AC, "HSET2", Op::Hset2, Binary, [1, 1, 1, 0], m(65, 65) | m(69, 80) | PP),
    row(0x034, AC, "HSETP2", Op::Hsetp2, Binary, [0, 1, 1, 0], m(65, 65) | m(69, 80) | PD | PD2 | PP),
    row(
        0x040,
        AB,
        "HMNMX2",
        Op::Hmnmx2,
        Binary,
        [1, 1, 1, 0],
        SIGN_A | m(74, 75) | m(80, 82) | m(85, 85) | PP,
    ),
    // Conversions.
    row(0x105, AB, "F2I", Op::F2i, Unary, [1, 0, 1, 0], m(72, 72) | m(75, 80) | m(84, 85)),
    row(0x111, AB, "F2I", Op::F2i, Unary, [1, 0, 1, 0], m(72, 72) | m(75, 80) | m(84, 85)),
    row(0x106, AB, "I2F", Op::I2f, Unary, [1, 0, 1, 0], m(74, 76) | RND | m(84, 85)),
    row(0x112, AB, "I2F", Op::I2f, Unary, [1, 0, 1, 0], m(74, 76) | RND | m(84, 85)),
    row(0x045, AB, "I2FP", Op::I2fp, Unary, [1, 0, 1, 0], m(74, 79) | m(84, 85)),
    row(0x104, AB, "F2F", Op::F2f, Unary, [1, 0, 1, 0], m(75, 77) | RND | FTZ | m(84, 85)),
    row(0x110, AB, "F2F", Op::F2f, Unary, [1, 0, 1, 0], m(75, 77) | RND | FTZ | m(84, 85)),
    row(0x03e, ABC, "F2FP", Op::F2fp, Ternary, [1, 1, 1, 1], m(75, 80)),
    row(0x043, ABC, "F2IP", Op::F2ip, Ternary, [1, 1, 1, 1], m(72, 72) | m(74, 79)),
    row(0x107, AB, "FRND", Op::Frnd, Unary, [1, 0, 1, 0], m(75, 76) | RND | FTZ | m(84, 85)),
    row(0x113, AB, "FRND", Op::Frnd, Unary, [1, 0, 1, 0], m(75, 76) | RND | FTZ | m(84, 85)),
    // Uniform datapath.
    row(0x0a4, UABC, "UIMAD", Op::Uimad, Ternary, [1, 1, 1, 1], m(73, 75) | PD | PP),
    row(0x0a5, UABC, "UIMAD", Op::UimadWide, Ternary, [2, 1, 1, 2], m(73, 75) | PD | PP),
    row(0x090, UAB, "UIADD3", Op::Uiadd3, Ternary, [1, 1, 1, 1], m(72, 72) | m(74, 75) | PQ | PD | PD2 | PP),
    row(0x092, UAB, "ULOP3", Op::Ulop3, Ternary, [1, 1, 1, 1], m(72, 80) | PD | PP),
    row(0x099, UABC, "USHF", Op::Ushf, Ternary, [1, 1, 1, 1], m(73, 76) | m(80, 80)),
    row(0x091, UABC, "ULEA", Op::Ulea, Ternary, [1, 1, 1, 1], m(72, 80) | PD | PP),
    row(0x096, UAB, "UPRMT", Op::Uprmt, Ternary, [1, 1, 1, 1], 0),
    row(0x082, f(4) | f(6), "UMOV", Op::Umov, Unary, [1, 0, 1, 0], 0),
    row(0x087, UAB, "USEL", Op::Usel, Binary, [1, 1, 1, 0], PP),
    row(0x08c, UAB, "UISETP", Op::Uisetp, Binary, [0, 1, 1, 0], m(68, 71) | m(72, 78) | PD | PD2 | PP),
    row(0x09b, UAB, "UBMSK", Op::Ubmsk, Binary, [1, 1, 1, 0], m(75, 75)),
    row(0x09a, UAB, "USGXT", Op::Usgxt, Binary, [1, 1, 1, 0], m(73, 73) | m(75, 75)),
    row(0x0bd, UAB, "UFLO", Op::Uflo, Unary, [1, 0, 1, 0], m(73, 74) | PD),
    row(0x0be, UAB, "UBREV", Op::Ubrev, Unary, [1, 0, 1, 0], 0),
    row(0x0bf, UAB, "UPOPC", Op::Upopc, Unary, [1, 0, 1, 0], 0),
    row(0x09c, f(4), "UPLOP3", Op::Uplop3, Own, [0; 4], m(64, 66) | m(68, 76) | PQ | PD | PD2 | PP),
    row(0x09d, f(1), "UPLOP3", Op::Uplop3Sign, Ternary, [0; 4], m(70, 79) | PD | PD2 | PP),
    row(0x09e, f(1), "UPLOP3", Op::Uplop3Sign, Ternary, [0; 4], m(72, 79) | PD | PD2 | PP),
    row(0x09f, f(1), "UPLOP3", Op::Uplop3Sign, Ternary, [0; 4], m(72, 79) | PD | PD2 | PP),
    row(0x083, f(4) | f(6), "UP2UR", Op::Up2ur, Binary, [1, 1, 1, 0], m(76, 77)),
    row(0x084, f(4) | f(6), "UR2UP", Op::Ur2up, Binary, [0, 1, 1, 0], m(76, 77)),
    row(0x0b9, f(5), "ULDC", Op::Uldc, Unary, [1, 0, 1, 0], SIZE),
    row(0x0bb, f(5), "ULDC", Op::Uldc, Own, [1, 1, 0, 0], SIZE | UR),
    row(0x086, f(4), "VOTEU", Op::Voteu, Own, [1, 0, 0, 0], m(72, 73) | PD | PP),
    // Special registers.
    row(0x119, f(4), "S2R", Op::S2r, Own, [1, 0, 0, 0], m(72, 79)),
    row(0x005, f(4), "CS2R", Op::Cs2r, Own, [1, 0, 0, 0], m(72, 80)),
    row(0x1c3, f(4), "S2UR", Op::S2ur, Own, [1, 0, 0, 0], m(72, 79)),
    row(0x1c2, f(1), "R2UR", Op::R2ur, Own, [1, 1, 0, 0], PD),
    // Memory.
    row(0x181, f(1) | f(4), "LDG", Op::Ldg, Own, [1, 1, 0, 0], m(64, 91) | DESC),
    row(0x186, f(1) | f(4), "STG", Op::Stg, Own, [0, 1, 1, 0], m(64, 91) | DESC),
    row(0x180, f(4), "LD", Op::Ld, Own, [1, 1, 0, 0], m(64, 91) | DESC),
    row(0x185, f(1) | f(4), "ST", Op::St, Own, [0, 1, 0, 0], m(64, 91) | DESC),
    row(0x183, f(4), "LDL", Op::Ldl, Own, [1, 1, 0, 0], SIZE | EVICT),
    row(0x187, f(1), "STL", Op::Stl, Own, [0, 1, 1, 0], SIZE | EVICT),
    row(0x184, f(4), "LDS", Op::Lds, Own, [1, 1, 0, 0], SIZE | m(78, 79) | UR),
    row(0x188, f(1) | f(4), "STS", Op::Sts, Own, [0, 1, 1, 0], SIZE | m(64, 69) | m(78, 79) | UR),
    row(0x182, f(5), "LDC", Op::Ldc, Own, [1, 1, 0, 0], SIZE),
    row(0x03b, f(4), "LDSM", Op::Ldsm, Own, [1, 1, 0, 0], m(72, 73) | m(78, 79) | UR),
    row(0x1ae, f(7), "LDGSTS", Op::Ldgsts, Own, [0, 1, 0, 0], m(64, 91) | DESC),
    row(
        0x1aa,
        f(1) | f(4),
        "QSPC",
        Op::Qspc,
        Own,
        [1, 1, 0, 0],
        m(72, 74) | PD | m(76, 76) | m(90, 91) | DESC,
    ),
    row(0x1b0, f(4), "ARRIVES", Op::Arrives, Own, [0, 1, 0, 0], m(64, 69) | m(72, 75) | UR),
    // Atomics.
    row(0x1a8, f(1) | f(4), "ATOMG", Op::Atomg, Own, [1, 1, 1, 0], m(64, 91) | DESC),
    row(0x1a9, f(1), "ATOMG", Op::Atomg, Own, [1, 1, 1, 1], m(64, 86) | DESC),
    row(0x18a, f(1) | f(4), "ATOM", Op::Atomg, Own, [1, 1, 1, 0], m(64, 91) | DESC),
    row(0x18b, f(1), "ATOM", Op::Atomg, Own, [1, 1, 1, 1], m(64, 90) | DESC),
    row(0x18e, f(4), "RED", Op::Red, Own, [0, 1, 1, 0], m(64, 91) | DESC),
    row(0x18c, f(1) | f(4), "ATOMS", Op::Atoms, Own, [1, 1, 1, 0], m(64, 69) | SIZE | m(78, 79) | m(87, 91)),
    row(0x18c, f(7), "ATOMS", Op::AtomsInc, Own, [1, 1, 0, 0], m(64, 69) | SIZE | m(78, 79) | m(87, 91)),
    row(0x18d, f(1), "ATOMS", Op::Atoms, Own, [1, 1, 1, 1], m(64, 71) | SIZE | m(78, 79) | m(87, 90)),
    // Warp-wide exchange.
    row(0x189, f(1) | f(2) | f(4) | f(7), "SHFL", Op::Shfl, Own, [1, 1, 0, 0], m(64, 71) | PD),
    row(0x006, f(4), "VOTE", Op::Vote, Own, [1, 0, 0, 0], m(72, 73) | PD | PP),
    row(0x1a1, f(1), "MATCH", Op::Match, Own, [1, 1, 0, 0], m(73, 73) | m(79, 79) | PD),
    row(0x1c4, f(1), "REDUX", Op::Redux, Own, [1, 1, 0, 0], m(73, 73) | m(78, 80)),
    row(0x03a, f(1), "MOVM", Op::Movm, Own, [1, 1, 0, 0], 0),
    // Tensor cores.
    row(0x03c, f(1), "HMMA", Op::Hmma, Ternary, [1, 1, 1, 1], m(73, 73) | m(75, 78) | m(82, 83)),
    row(0x037, f(1), "IMMA", Op::Imma, Ternary, [1, 1, 1, 1], m(72, 72) | m(74, 79) | m(82, 86)),
    row(0x03d, f(1), "BMMA", Op::Bmma, Ternary, [1, 1, 1, 1], m(74, 80)),
    row(0x03f, f(1), "DMMA", Op::Dmma, Ternary, [4, 2, 2, 4], SIGN_A | SIGN_C | RND),
    // Control flow.
    row(0x147, f(4), "BRA", Op::Bra, Own, [0; 4], m(64, 81) | m(87, 91)),
    row(0x14a, f(4), "JMP", Op::Jmp, Own, [0; 4], m(64, 81) | PP),
    row(0x149, f(4), "BRX", Op::Brx, Own, [0, 2, 0, 0], m(64, 81) | PP),
    row(0x14c, f(4), "JMX", Op::Jmx, Own, [0, 2, 0, 0], m(64, 81) | PP),
    row(0x144, f(4), "CALL", Op::Call, Own, [0; 4], m(64, 81) | m(86, 90)),
    row(0x144, f(1), "CALL", Op::CallRegister, Own, [0, 2, 0, 0], m(64, 81) | m(86, 90)),
    row(0x143, f(4), "CALL", Op::CallAbsolute, Own, [0; 4], m(64, 81) | m(86, 90)),
    row(0x143, f(1), "CALL", Op::CallAbsoluteRegister, Own, [0, 2, 0, 0], m(64, 81) | m(86, 90)),
    row(0x150, f(4), "RET", Op::Ret, Own, [0, 2, 0, 0], m(64, 81) | m(85, 90)),
    row(0x14d, f(4), "EXIT", Op::Exit, Own, [0; 4], PP),
    row(0x145, f(4), "BSSY", Op::Bssy, Own, [0; 4], PP),
    row(0x141, f(4), "BSYNC", Op::Bsync, Own, [0; 4], PP),
    row(0x142, f(4), "BREAK", Op::Break, Own, [0; 4], PP),
    row(0x155, f(1), "BMOV", Op::BmovToRegister, Own, [1, 0, 0, 0], m(84, 84)),
    row(0x155, f(7), "BMOV", Op::BmovFromBarrier, Own, [0; 4], m(84, 84)),
    row(0x156, AB, "BMOV", Op::Bmov, Unary, [0, 0, 1, 0], 0),
    row(0x148, AB, "WARPSYNC", Op::Warpsync, Unary, [0, 0, 1, 0], m(86, 90)),
    row(0x146, f(4), "YIELD", Op::Yield, Own, [0; 4], PP),
    row(0x15d, AB, "NANOSLEEP", Op::Nanosleep, Unary, [0, 0, 1, 0], m(85, 90)),
    row(0x15c, f(4), "BPT", Op::Bpt, Own, [0; 4], m(84, 86)),
    row(0x14e, f(1), "LEPC", Op::Lepc, Own, [2, 0, 0, 0], 0),
    // Barriers of a CTA.
    row(0x11d, f(1) | f(2) | f(4) | f(5), "BAR", Op::Bar, Own, [0, 0, 1, 0], m(74, 80) | PP),
    row(0x11c, f(1), "B2R", Op::B2r, Own, [1, 0, 0, 0], m(78, 79) | PD),
    // Hints, fences, cache control.
    row(0x118, f(4), "NOP", Op::Nothing, Own, [0; 4], !0),
    row(0x192, f(4), "MEMBAR", Op::Nothing, Own, [0; 4], !0),
    row(0x1ab, f(4), "ERRBAR", Op::Nothing, Own, [0; 4], !0),
    row(0x18f, f(4) | f(6), "CCTL", Op::Nothing, Own, [0; 4], !0),
    row(0x001, f(4), "PMTRIG", Op::Nothing, Own, [0; 4], !0),
    row(0x11a, f(4), "DEPBAR", Op::Nothing, Own, [0; 4], !0),
    row(0x1af, f(4), "LDGDEPBAR", Op::Nothing, Own, [0; 4], !0),
    // Known by name only.
    named(0x022, f(1) | f(4), "FSWZADD"),
    named(0x02c, 0b1110_1010, "CLMAD"),
    named(0x0b8, f(4), "ULDC"),
    named(0x0bc, f(4) | f(6), "UCLEA"),
    named(0x0ba, f(1) | f(2) | f(4), "UF2FP"),
    named(0x097, UAB, "UIADD3"),
    named(0x182, f(2), "LDC"),
    named(0x187, f(4), "STL"),
    named(0x143, f(5), "CALL"),
    named(0x147, f(2), "BRA"),
    named(0x14a, f(2) | f(3) | f(5), "JMP"),
    named(0x14c, f(1), "JMX"),
    named(0x14e, f(4), "LEPC"),
    named(0x15b, f(4), "KILL"),
    named(0x156, f(7), "BMOV"),
    named(0x157, f(1) | f(4) | f(5) | f(6), "BMOV"),
    named(0x158, f(4), "BRXU"),
    named(0x159, f(4), "JMXU"),
    named(0x160, f(5) | f(7), "TEX"),
    named(0x161, f(1), "TEX"),
    named(0x162, f(5), "TEX"),
    named(0x163, f(5) | f(7), "TLD4"),
    named(0x164, f(1), "TLD4"),
    named(0x165, f(5), "TLD4"),
    named(0x166, f(5) | f(7), "TLD"),
    named(0x167, f(1), "TLD"),
    named(0x168, f(5), "TLD"),
    named(0x169, f(5) | f(7), "TMML"),
    named(0x16a, f(1), "TMML"),
    named(0x16b, f(5), "TMML"),
    named(0x16c, f(5) | f(7), "TXD"),
    named(0x16d, f(1), "TXD"),
    named(0x16e, f(5), "TXD"),
    named(0x16f, f(5) | f(7), "TXQ"),
    named(0x170, f(1), "TXQ"),
    named(0x171, f(5), "TXQ"),
    named(0x172, f(5), "FOOTPRINT"),
    named(0x173, f(1), "FOOTPRINT"),
    named(0x174, f(5), "FOOTPRINT"),
    named(0x193, f(2) | f(3), "SUATOM"),
    named(0x194, f(1), "SUATOM"),
    named(0x195, f(2) | f(3), "SUATOM"),
    named(0x196, f(1), "SUATOM"),
    named(0x197, f(3) | f(5), "SULD"),
    named(0x198, f(4), "SULD"),
    named(0x199, f(3) | f(5) | f(7), "SULD"),
    named(0x19a, f(4), "SULD"),
    named(0x19b, f(3) | f(5), "SUST"),
    named(0x19c, f(4), "SUST"),
    named(0x19d, f(3) | f(5) | f(7), "SUST"),
    named(0x19e, f(4), "SUST"),
    named(0x19f, f(2) | f(3) | f(7), "SURED"),
    named(0x1a0, f(1), "SURED"),
    named(0x1b3, f(3) | f(4) | f(5), "SUQUERY"),
    named(0x120, f(4), "AL2P"),
    named(0x121, f(2), "ALD"),
    named(0x122, f(2), "AST"),
    named(0x123, f(4), "ISBERD"),
    named(0x124, f(1) | f(4), "OUT"),
    named(0x125, f(4), "PIXLD"),
    named(0x126, f(1) | f(2) | f(4) | f(5), "IPA"),
    named(0x127, f(4), "ISBEWR"),
    named(0x191, f(5), "CCTLT"),
    named(0x00d, f(4), "CSMTEST"),
    named(0x1ad, f(1), "LDTRAM"),
    named(0x1c0, f(1), "GETLMEMBASE"),
    named(0x1c1, f(1), "SETLMEMBASE"),
    named(0x11f, f(1), "SETCTAID"),
    named(0x152, AB, "RPCMOV"),
    named(0x153, AB, "RPCMOV"),
    named(0x154, AB, "RPCMOV"),
];
