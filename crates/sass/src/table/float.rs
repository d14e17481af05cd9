//! Floating point: single, double and half precision.

use super::integer::COMBINATIONS;
use crate::field::*;
use crate::op::Op;
use crate::print::{Printer, number};
use crate::row::Layout::{Binary, Own, Sum, SumUpper, Ternary, TernaryHalf, Unary};
use crate::row::Operand::{By, Condition, ConditionIfUsed, Target, When};
use crate::row::Part::{Always, Join, One, Set};
use crate::row::{
    A, AB, ABC, AC, C, D, FLOAT_A, Number, Operand, Part, Row, Signs, Style, Suffix, f, printed, row,
};

/// Comparisons of single and half precision.
const COMPARISONS: [&str; 16] =
    ["F", "LT", "EQ", "LE", "GT", "NE", "GE", "NUM", "NAN", "LTU", "EQU", "LEU", "GTU", "NEU", "GEU", "T"];
const DOUBLE_COMPARISONS: [&str; 16] = {
    let mut names = COMPARISONS;
    (names[0], names[15]) = ("MIN", "MAX");
    names
};
pub(super) const ROUNDING: Part = One(ROUND, &["", "RM", "RP", "RZ"]);
pub(super) const FLUSH: Part = Set(FTZ, "FTZ");
/// How products treat denormals.
const DENORMALS: Part = Join(&[FMZ, FTZ], &["", "FMZ", "FTZ", "INVALID3"]);
const CLAMP: Part = Set(SATURATE, "SAT");
const COMPARISON: Part = One(FLOAT_COMPARE, &COMPARISONS);
const COMBINATION: Part = One(COMBINE, &COMBINATIONS);
const SINGLE_B: Operand = Operand::B(Style::SINGLE);
const SINGLE_C: Operand = Operand::C(Style::SINGLE);
const DOUBLE_B: Operand = Operand::B(Style::DOUBLE);
const DOUBLE_C: Operand = Operand::C(Style::DOUBLE);
/// Minimum and maximum.
const SELECT_NAME: &[Part] = &[FLUSH, Set(KEEP_NAN, "NAN"), Set(XOR_SIGN, "XORSIGN")];

/// Halves of a register that an operation reads.
const HALVES: [&str; 4] = ["", ".F32", ".H0_H0", ".H1_H1"];
const HALF_A: Operand = Operand::A(Signs::Float, Suffix { fields: &[A_HALVES], list: &HALVES });
/// Operands of half precision.
const HALF: Style = Style {
    number: Number::Halves,
    slot: Suffix { fields: &[SLOT_HALVES], list: &HALVES },
    spaced: true,
    ..Style::SINGLE
};
const HALF_B: Operand = Operand::B(HALF);
/// Operands of HFMA2.
const FUSED: Style = Style {
    number: Number::HalvesOrBrains,
    slot: Suffix {
        fields: &[SLOT_HALVES, SLOT_HALF_NEGATE],
        list: &["", ".F32", ".H0_H0", ".H1_H1", ".H0_NH1", ".INVALID5", ".INVALID6", ".INVALID7"],
    },
    upper: Suffix { fields: &[UPPER_HALVES], list: &HALVES },
    ..HALF
};
/// Operands of HFMA2 on the tensor cores' datapath.
const TENSOR_HALF: Style = Style { number: Number::Halves, ..Style::SINGLE };

pub(super) const ROWS: &[Row] = &[
    // Single precision.
    row(0x021, AC, "FADD", Op::Fadd, Sum, [1, 1, 1, 0])
        .name(&[FLUSH, ROUNDING, CLAMP])
        .operands(&[D, FLOAT_A, SINGLE_B]),
    row(0x020, AB, "FMUL", Op::Fmul, Binary, [1, 1, 1, 0])
        .name(&[
            DENORMALS,
            One(SCALE, &["INVALID0", "D8", "D4", "D2", "", "M2", "M4", "M8"]),
            ROUNDING,
            CLAMP,
        ])
        .operands(&[D, FLOAT_A, SINGLE_B]),
    row(0x023, ABC, "FFMA", Op::Ffma, Ternary, [1, 1, 1, 1])
        .name(&[DENORMALS, ROUNDING, CLAMP])
        .operands(&[D, FLOAT_A, SINGLE_B, SINGLE_C]),
    printed(0x022, f(1) | f(4), "FSWZADD", Own)
        .name(&[FLUSH, ROUNDING, Set(SWIZZLE_NDV, "NDV")])
        .operands(&[D, A, C, By(&[], swizzle)]),
    row(0x009, AB, "FMNMX", Op::Fmnmx, Binary, [1, 1, 1, 0]).name(SELECT_NAME).operands(&[
        D,
        FLOAT_A,
        SINGLE_B,
        Condition(CONDITION),
    ]),
    row(0x008, AB, "FSEL", Op::Fsel, Binary, [1, 1, 1, 0]).name(&[FLUSH]).operands(&[
        D,
        FLOAT_A,
        SINGLE_B,
        Condition(CONDITION),
    ]),
    row(0x00a, AB, "FSET", Op::Fset, Binary, [1, 1, 1, 0])
        .name(&[Always("BF"), COMPARISON, FLUSH, COMBINATION])
        .operands(&[D, FLOAT_A, SINGLE_B, Condition(CONDITION)]),
    row(0x00b, AB, "FSETP", Op::Fsetp, Binary, [0, 1, 1, 0])
        .name(&[COMPARISON, FLUSH, COMBINATION])
        .operands(&[Target(TARGET), Target(TARGET_2), FLOAT_A, SINGLE_B, Condition(CONDITION)]),
    row(0x108, AB, "MUFU", Op::Mufu, Unary, [1, 0, 1, 0])
        .name(&[
            One(FUNCTION, &["COS", "SIN", "EX2", "LG2", "RCP", "RSQ", "RCP64H", "RSQ64H", "SQRT", "TANH"]),
            Set(FUNCTION_HALF, "F16"),
        ])
        .operands(&[D, By(&[], function_source)]),
    row(0x102, AB, "FCHK", Op::Fchk, Binary, [0, 1, 1, 0]).operands(&[Target(TARGET), FLOAT_A, SINGLE_B]),
    // Double precision.
    row(0x029, AC, "DADD", Op::Dadd, SumUpper, [2, 2, 2, 0])
        .name(&[ROUNDING])
        .operands(&[D, FLOAT_A, DOUBLE_B]),
    row(0x028, AB, "DMUL", Op::Dmul, Binary, [2, 2, 2, 0])
        .name(&[ROUNDING])
        .operands(&[D, FLOAT_A, DOUBLE_B]),
    row(0x02b, ABC, "DFMA", Op::Dfma, Ternary, [2, 2, 2, 2])
        .name(&[ROUNDING])
        .operands(&[D, FLOAT_A, DOUBLE_B, DOUBLE_C]),
    row(0x02a, AC, "DSETP", Op::Dsetp, Sum, [0, 2, 2, 0])
        .name(&[One(FLOAT_COMPARE, &DOUBLE_COMPARISONS), COMBINATION])
        .operands(&[Target(TARGET), Target(TARGET_2), FLOAT_A, DOUBLE_B, Condition(CONDITION)]),
    // Half precision.
    row(0x030, AC, "HADD2", Op::Hadd2, Sum, [1, 1, 1, 0])
        .name(&[Set(HALF_TO_SINGLE, "F32"), FLUSH, CLAMP])
        .operands(&[D, HALF_A, HALF_B]),
    row(0x032, AB, "HMUL2", Op::Hmul2, Binary, [1, 1, 1, 0])
        .name(&[Set(HALF_TO_SINGLE, "F32"), DENORMALS, CLAMP])
        .operands(&[D, HALF_A, HALF_B])
        .refuses(HALF_TO_SINGLE)
        .ignores(BFLOAT16),
    row(0x031, ABC, "HFMA2", Op::Hfma2, TernaryHalf, [1, 1, 1, 1])
        .name(&[Set(HALF_TO_SINGLE, "F32"), Set(BFLOAT16, "BF16_V2"), DENORMALS, Set(RELU, "RELU"), CLAMP])
        .operands(&[
            D,
            HALF_A,
            Operand::B(FUSED),
            Operand::C(FUSED),
            When(RELU, &[ConditionIfUsed(CONDITION)]),
        ])
        .refuses(HALF_TO_SINGLE)
        .refuses(SLOT_HALF_NEGATE),
    row(0x035, ABC, "HFMA2", Op::Hfma2, TernaryHalf, [1, 1, 1, 1])
        .name(&[Always("MMA"), DENORMALS, Set(RELU, "RELU"), CLAMP])
        .operands(&[
            D,
            FLOAT_A,
            Operand::B(TENSOR_HALF),
            Operand::C(TENSOR_HALF),
            When(RELU, &[ConditionIfUsed(CONDITION)]),
        ])
        .ignores(A_HALVES)
        .ignores(UPPER_HALVES),
    row(0x033, AC, "HSET2", Op::Hset2, Sum, [1, 1, 1, 0])
        .name(&[Set(HALF_SET_ONE, "BF"), COMPARISON, FLUSH, One(HALF_COMBINE, &COMBINATIONS)])
        .operands(&[D, HALF_A, HALF_B, Condition(CONDITION)])
        .ignores(COMPARE_BFLOAT16),
    row(0x034, AC, "HSETP2", Op::Hsetp2, Sum, [0, 1, 1, 0])
        .name(&[COMPARISON, FLUSH, Set(HALF_AND, "H_AND"), One(HALF_COMBINE, &COMBINATIONS)])
        .operands(&[Target(TARGET), Target(TARGET_2), HALF_A, HALF_B, Condition(CONDITION)])
        .ignores(COMPARE_BFLOAT16),
    row(0x040, AB, "HMNMX2", Op::Hmnmx2, Binary, [1, 1, 1, 0])
        .name(&[Set(BFLOAT16, "BF16_V2"), FLUSH, Set(KEEP_NAN, "NAN"), Set(XOR_SIGN, "XORSIGN")])
        .operands(&[
            D,
            HALF_A,
            Operand::B(Style { number: Number::HalvesOrBrains, ..HALF }),
            Condition(CONDITION),
        ]),
];

/// Halves of a source of half precision.
pub(super) const PARTS: [&str; 4] = ["", ".H1", ".INVALID2", ".INVALID3"];

/// Writes B with the selected half.
pub(super) fn half_source(p: &mut Printer<'_>, style: Style) {
    let text = p.b(style);
    // An immediate has no part selector.
    let part = if p.i.form == 4 { "" } else { PARTS[p.i.bits(SLOT_PART) as usize] };
    // Within the bars of an absolute value.
    match text.strip_suffix('|') {
        Some(inside) => p.push(format_args!("{inside}{part}|")),
        None => p.push(format_args!("{text}{part}")),
    }
}

/// The source of MUFU, by function and precision.
fn function_source(p: &mut Printer<'_>) {
    // RCP64H and RSQ64H.
    let double = p.i.bits(FUNCTION) & 0xe == 6;
    let style = if double { Style::DOUBLE } else { Style::SINGLE };
    match (p.i.bit(FUNCTION_HALF), p.i.form) {
        (true, 4) => p.push(number::immediate(p.i.bits(SLOT) & 0xffff, Number::Half, false)),
        (true, form) => half_source(p, Style { spaced: form == 5, ..style }),
        (false, _) => p.push(p.b(style)),
    }
}

/// Signs of the four lanes of FSWZADD.
fn swizzle(p: &mut Printer<'_>) {
    let [a, b, c, d] = SWIZZLE.map(|pair| ["PP", "PN", "NP", "ZP"][p.i.bits(pair) as usize]);
    p.push(format_args!("{a}{b}{c}{d}"));
}
