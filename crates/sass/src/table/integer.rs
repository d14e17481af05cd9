//! Integers, moves and predicates.

use crate::field::*;
use crate::instruction::{Instruction, RZ, Source};
use crate::op::Op;
use crate::row::Layout::{Binary, Own, Ternary, Unary};
use crate::row::Operand::{Condition, Hex, HexJoin, HexUnless, Target, TargetIfKept, Unless, When, Word};
use crate::row::Part::{Always, Clear, Computed, Join, One, Set};
use crate::row::{A, AB, ABC, B, C, D, Operand, Part, Row, SIGNED_B, Signs, Style, Suffix, f, printed, row};

/// Comparisons.
pub(super) const COMPARISONS: [&str; 8] = ["F", "LT", "EQ", "LE", "GT", "NE", "GE", "T"];
/// Combinations of an outcome with a predicate.
pub(super) const COMBINATIONS: [&str; 3] = ["AND", "OR", "XOR"];
/// Bytes of a predicate register.
const BYTES: [&str; 4] = ["", "B1", "B2", "B3"];
/// Signed and unsigned bytes.
const BYTE_TYPES: [&str; 2] = ["U8", "S8"];

pub(super) const UNSIGNED: Part = Clear(SIGNED, "U32");
pub(super) const X: Part = Set(EXTENDED, "X");
/// A with the sign of sums with carry.
pub(super) const CARRY_A: Operand = Operand::A(Signs::Carry, Suffix::NONE);
/// Style of operands of sums with carry.
pub(super) const CARRY: Style = Style { signs: Signs::Carry, ..Style::SIGNED };
/// Style of an operand that can be inverted.
const INVERTED: Style = Style { signs: Signs::Complement, ..Style::PATTERN };
/// An operand whose sign is an input of PLOP3.
pub(super) const SIGN: Style = {
    let sign = Suffix { fields: &[], list: &[".SIGN"] };
    Style { slot: sign, upper: sign, spaced: true, ..Style::PATTERN }
};
/// A, whose sign is an input of PLOP3.
pub(super) const SIGN_A: Operand = Operand::A(Signs::None, SIGN.slot);

/// Sources and carries of IADD3.
pub(super) const ADD3: &[Operand] = &[
    D,
    TargetIfKept(TARGET),
    TargetIfKept(TARGET_2),
    CARRY_A,
    Operand::B(CARRY),
    Operand::C(CARRY),
    When(EXTENDED, &[Condition(CONDITION), Condition(CONDITION_2)]),
];
/// Sources of IMAD; only the third has a sign.
pub(super) const MULTIPLY: &[Operand] =
    &[D, A, SIGNED_B, Operand::C(CARRY), When(EXTENDED, &[Condition(CONDITION)])];
/// As [`MULTIPLY`], with a carry.
pub(super) const MULTIPLY_CARRY: &[Operand] =
    &[D, TargetIfKept(TARGET), A, SIGNED_B, Operand::C(CARRY), When(EXTENDED, &[Condition(CONDITION)])];
pub(super) const LOGIC: &[Operand] = &[TargetIfKept(TARGET), D, A, B, C, Hex(LUT), Condition(CONDITION)];
pub(super) const LOGIC_NAME: &[Part] = &[Always("LUT"), Set(LUT_AND, "PAND")];
pub(super) const SHIFT_NAME: &[Part] = &[
    One(SHIFT_RIGHT, &["L", "R"]),
    Set(WRAP, "W"),
    One(SHIFT_TYPE, &["S64", "U64", "S32", "U32"]),
    Set(SHIFT_HIGH, "HI"),
];
pub(super) const LEA_NAME: &[Part] = &[Set(LEA_HIGH, "HI"), X, Set(LEA_SIGN_EXTENDS, "SX32")];
/// Sources of LEA. The third is the upper word of a shifted pair.
pub(super) const LEA: &[Operand] = &[
    D,
    TargetIfKept(TARGET),
    CARRY_A,
    Operand::B(Style { signs: Signs::Carry, ..Style::PATTERN }),
    When(LEA_HIGH, &[Unless(LEA_SIGN_EXTENDS, &[C])]),
    Hex(LEA_SHIFT),
    When(EXTENDED, &[Condition(CONDITION)]),
];
/// As [`LEA`], where the sign of B would be in the field of the shift.
pub(super) const LEA_IMMEDIATE: &[Operand] = &[
    D,
    TargetIfKept(TARGET),
    CARRY_A,
    B,
    When(LEA_HIGH, &[Unless(LEA_SIGN_EXTENDS, &[C])]),
    Hex(LEA_SHIFT),
    When(EXTENDED, &[Condition(CONDITION)]),
];
pub(super) const COMPARE_NAME: &[Part] =
    &[One(COMPARE, &COMPARISONS), UNSIGNED, One(COMBINE, &COMBINATIONS), Set(COMPARE_EXTENDED, "EX")];
pub(super) const COMPARE_OPERANDS: &[Operand] = &[
    Target(TARGET),
    Target(TARGET_2),
    A,
    SIGNED_B,
    Condition(CONDITION),
    When(COMPARE_EXTENDED, &[Condition(CONDITION_3)]),
];
pub(super) const TABLE_NAME: &[Part] = &[Always("LUT")];
/// PLOP3 of the sign of B.
pub(super) const SIGN_OF_B: &[Operand] = &[
    Target(TARGET),
    Target(TARGET_2),
    Condition(CONDITION),
    Operand::B(SIGN),
    Condition(CONDITION_3),
    Hex(LUT),
    Hex(LUT_2),
];
/// PLOP3 of the signs of B and C.
pub(super) const SIGNS_OF_B_AND_C: &[Operand] = &[
    Target(TARGET),
    Target(TARGET_2),
    Condition(CONDITION),
    Operand::B(SIGN),
    Operand::C(SIGN),
    Hex(LUT),
    Hex(LUT_2),
];
/// PLOP3 of the signs of all sources.
pub(super) const SIGNS_OF_ALL: &[Operand] =
    &[Target(TARGET), Target(TARGET_2), SIGN_A, Operand::B(SIGN), Operand::C(SIGN), Hex(LUT), Hex(LUT_2)];
/// Forms of PLOP3 of signs.
const SIGN_FORMS: u8 = f(1) | f(5) | f(6);
pub(super) const EXTEND_NAME: &[Part] = &[Set(WRAP, "W"), UNSIGNED];
pub(super) const LEADING_NAME: &[Part] = &[UNSIGNED, Set(FLO_SHIFT, "SH")];
pub(super) const LEADING: &[Operand] = &[D, TargetIfKept(TARGET), Operand::B(INVERTED)];
pub(super) const COUNT: &[Operand] = &[D, Operand::B(INVERTED)];
pub(super) const BYTE_NAME: &[Part] = &[One(PREDICATE_BYTE, &BYTES)];
/// A with the byte that R2P reads.
pub(super) const BYTE_OF_A: Operand =
    Operand::A(Signs::None, Suffix { fields: &[PREDICATE_BYTE], list: &["", ".B1", ".B2", ".B3"] });
/// Place of I2IP's result: by the place, then by the size of the type.
const I2IP_PLACES: Suffix = Suffix {
    fields: &[I2IP_PLACE, I2IP_SIZE],
    list: &[
        "", ".H1", ".???2", ".???3", "", ".H1", ".???2", ".???3", ".???0", ".???1", ".???2", ".28", ".???0",
        ".???1", ".24", ".???3",
    ],
};
const PACKED: Style = Style { upper: I2IP_PLACES, ..Style::PATTERN };

pub(super) const ROWS: &[Row] = &[
    row(0x024, ABC, "IMAD", Op::Imad, Ternary, [1, 1, 1, 1])
        .name(&[Computed(&[], multiply_alias), UNSIGNED, X])
        .operands(MULTIPLY)
        // The meaning of a carry of the low product is not known.
        .drops(TARGET)
        .only(factor_is_plain),
    row(0x025, ABC, "IMAD", Op::ImadWide, Ternary, [2, 1, 1, 2])
        .name(&[Always("WIDE"), UNSIGNED, X])
        .operands(MULTIPLY_CARRY)
        .only(factor_is_plain),
    row(0x027, ABC, "IMAD", Op::ImadHi, Ternary, [1, 1, 1, 2])
        .name(&[Always("HI"), UNSIGNED, X])
        .operands(MULTIPLY_CARRY)
        .ignores(HIGH_IGNORED)
        .only(factor_is_plain),
    row(0x010, AB, "IADD3", Op::Iadd3, Ternary, [1, 1, 1, 1]).name(&[X]).operands(ADD3),
    row(0x012, AB, "LOP3", Op::Lop3, Ternary, [1, 1, 1, 1]).name(LOGIC_NAME).operands(LOGIC),
    row(0x019, AB | f(2) | f(3), "SHF", Op::Shf, Ternary, [1, 1, 1, 1])
        .name(SHIFT_NAME)
        .operands(&[D, A, B, C]),
    row(0x011, AB, "LEA", Op::Lea, Ternary, [1, 1, 1, 1]).name(LEA_NAME).operands(LEA),
    printed(0x011, f(2), "LEA", Ternary).name(LEA_NAME).operands(LEA_IMMEDIATE),
    row(0x016, ABC, "PRMT", Op::Prmt, Ternary, [1, 1, 1, 1])
        .name(&[One(PERMUTE, &["", "F4E", "B4E", "RC8", "ECL", "ECR", "RC16"])])
        .operands(&[D, A, B, C]),
    row(0x002, AB, "MOV", Op::Mov, Unary, [1, 0, 1, 0]).operands(&[D, B, HexUnless(MOV_MASK, 15)]),
    row(0x007, AB, "SEL", Op::Sel, Binary, [1, 1, 1, 0]).operands(&[D, A, B, Condition(CONDITION)]),
    row(0x017, AB, "IMNMX", Op::Imnmx, Binary, [1, 1, 1, 0]).name(&[UNSIGNED]).operands(&[
        D,
        A,
        SIGNED_B,
        Condition(CONDITION),
    ]),
    row(0x013, AB, "IABS", Op::Iabs, Unary, [1, 0, 1, 0]).operands(&[D, B]),
    row(0x00c, AB, "ISETP", Op::Isetp, Binary, [0, 1, 1, 0]).name(COMPARE_NAME).operands(COMPARE_OPERANDS),
    row(0x01b, AB, "BMSK", Op::Bmsk, Binary, [1, 1, 1, 0]).name(&[Set(WRAP, "W")]).operands(&[D, A, B]),
    row(0x01a, AB, "SGXT", Op::Sgxt, Binary, [1, 1, 1, 0]).name(EXTEND_NAME).operands(&[D, A, B]),
    row(0x100, AB, "FLO", Op::Flo, Unary, [1, 0, 1, 0]).name(LEADING_NAME).operands(LEADING).drops(TARGET),
    row(0x101, AB, "BREV", Op::Brev, Unary, [1, 0, 1, 0]).operands(&[D, B]),
    row(0x109, AB, "POPC", Op::Popc, Unary, [1, 0, 1, 0]).operands(COUNT),
    row(0x026, AB, "IDP", Op::Idp, Ternary, [1, 1, 1, 1])
        .name(&[
            Join(&[DOT_TWO, DOT_HIGH], &["4A", "2A.LO", "4A", "2A.HI"]),
            Join(&[SIGNED, DOT_TWO], &["U8", "S8", "U16", "S16"]),
            One(DOT_B_SIGNED, &BYTE_TYPES),
        ])
        .operands(&[D, A, SIGNED_B, Operand::C(Style { signs: Signs::Minus, ..Style::SIGNED })]),
    row(0x014, ABC, "VABSDIFF", Op::Vabsdiff, Ternary, [1, 1, 1, 1])
        .name(&[UNSIGNED])
        .operands(&[D, TargetIfKept(TARGET), A, B, C])
        .drops(TARGET),
    row(0x015, ABC, "VABSDIFF4", Op::Vabsdiff4, Ternary, [1, 1, 1, 1])
        .name(&[Clear(SIGNED, "U8"), Set(ACCUMULATE, "ACC")])
        .operands(&[D, TargetIfKept(TARGET), A, B, C])
        .drops(TARGET),
    row(0x038, AB, "I2I", Op::I2i, Unary, [1, 0, 1, 0])
        .name(&[One(I2I_TYPE, &["U8", "S8", "U16", "S16"]), Always("S32"), Always("SAT")])
        .operands(&[D, SIGNED_B]),
    row(0x039, AB, "I2IP", Op::I2ip, Ternary, [1, 1, 1, 1])
        .name(&[
            One(I2IP_TYPE, &["U8", "S8", "U16", "S16", "U2", "S2", "U4", "S4"]),
            Always("S32"),
            One(I2IP_SATURATION, &["SAT", "", "SATRELU"]),
        ])
        .operands(&[D, A, Operand::B(PACKED), Operand::C(PACKED)])
        .refuses(I2IP_SATURATION),
    printed(0x02c, ABC & !f(2) & !f(4), "CLMAD", Ternary)
        .name(&[One(CARRYLESS_HIGH, &["LO", "HI"])])
        .operands(&[D, A, B, C]),
    row(0x003, AB, "P2R", Op::P2r, Binary, [1, 1, 1, 0]).name(BYTE_NAME).operands(&[
        D,
        Word("PR"),
        A,
        SIGNED_B,
    ]),
    row(0x004, AB, "R2P", Op::R2p, Binary, [0, 1, 1, 0]).operands(&[Word("PR"), BYTE_OF_A, B]),
    row(0x01c, f(4), "PLOP3", Op::Plop3, Own, [0; 4]).name(TABLE_NAME).operands(&[
        Target(TARGET),
        Target(TARGET_2),
        Condition(CONDITION),
        Condition(CONDITION_2),
        Operand::By(&[CONDITION_3, CONDITION_3_UNIFORM], |p| {
            p.condition(CONDITION_3, p.i.bit(CONDITION_3_UNIFORM));
        }),
        HexJoin(&TRUTH_TABLE),
        Hex(LUT_2),
    ]),
    row(0x01d, SIGN_FORMS, "PLOP3", Op::Plop3Sign, Ternary, [0, 0, 1, 0])
        .name(TABLE_NAME)
        .operands(SIGN_OF_B),
    row(0x01e, SIGN_FORMS, "PLOP3", Op::Plop3TwoSigns, Ternary, [0, 0, 1, 1])
        .name(TABLE_NAME)
        .operands(SIGNS_OF_B_AND_C),
    row(0x01f, SIGN_FORMS, "PLOP3", Op::Plop3Signs, Ternary, [0, 1, 1, 1])
        .name(TABLE_NAME)
        .operands(SIGNS_OF_ALL),
];

/// Returns whether the factor B of a product has no sign; the meaning of a sign is not known.
pub(super) fn factor_is_plain(i: &Instruction) -> bool {
    !i.b_sign.negate
}

/// Returns the alias of a multiplication with a trivial factor.
fn multiply_alias(i: &Instruction) -> &'static str {
    if i.bit(EXTENDED) || matches!(i.form, 3 | 5..=7) && i.bit(UNIFORM) {
        return "";
    }
    let zero = |source| matches!(source, Source::Register(RZ) | Source::Immediate(0));
    if i.a == RZ || zero(i.b) {
        return "MOV";
    }
    match i.b {
        Source::Immediate(1) if i.c == Source::Register(RZ) => "MOV",
        Source::Immediate(1) => "IADD",
        // Factors of 2^16 and 2^31 are not written as shifts.
        Source::Immediate(factor)
            if factor.is_power_of_two()
                && !matches!(factor, 0x1_0000 | 0x8000_0000)
                && i.c == Source::Register(RZ) =>
        {
            "SHL"
        }
        _ => "",
    }
}
