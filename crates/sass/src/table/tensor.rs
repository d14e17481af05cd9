//! Products of matrices.

use crate::field::*;
use crate::instruction::{Instruction, Refusal, Sizes};
use crate::op::Op;
use crate::print::Printer;
use crate::row::Layout::Ternary;
use crate::row::Operand::{By, Hex, Register, When};
use crate::row::Part::{Join, One, Set};
use crate::row::{C, D, FLOAT_A, Operand, Row, Signs, Style, Suffix, f, row};

use super::float::ROUNDING;

const MINUS: Style = Style { signs: Signs::Minus, ..Style::PATTERN };
/// Sources with the order of their elements.
const ROWS_OF_A: Operand =
    Operand::A(Signs::None, Suffix { fields: &[A_NOT_IN_ROWS], list: &[".ROW", ".???1"] });
const COLUMNS_OF_B: Operand = Operand::B(Style {
    slot: Suffix { fields: &[B_IN_COLUMNS], list: &[".???0", ".COL"] },
    ..Style::PATTERN
});
const FACTOR: Operand = Operand::B(Style { signs: Signs::Float, ..Style::PATTERN });
const ADDEND: Operand = Operand::C(Style { signs: Signs::Float, ..Style::PATTERN });
const SKIPS: Operand = By(&[SKIP], skip);
/// Elements of IMMA: signedness, then size.
const ELEMENTS: [&str; 8] = ["U8", "S8", "INVALID2", "INVALID3", "U4", "S4", "INVALID6", "INVALID7"];

pub(super) const ROWS: &[Row] = &[
    row(0x03c, f(1), "HMMA", Op::Hmma, Ternary, [1, 1, 1, 1])
        .name(&[
            Set(HMMA_SPARSE, "SP"),
            Join(
                &[MMA_SHAPE_LOW, HMMA_SHAPE_HIGH, HMMA_SPARSE],
                &["1688", "16816", "1684", "INVALID3", "1688", "16816", "INVALID2", "16832"],
            ),
            One(HMMA_SINGLE, &["F16", "F32"]),
            One(HMMA_TYPE, &["", "BF16", "TF32"]),
        ])
        .operands(&[
            D,
            Operand::A(Signs::Minus, Suffix::NONE),
            Operand::B(MINUS),
            C,
            SKIPS,
            When(HMMA_SPARSE, &[Register(METADATA), Hex(METADATA_SELECTOR)]),
        ])
        .ignores(HMMA_IGNORED)
        .refuses(A_NEGATE)
        .refuses(SKIP)
        .only(factor_is_plain)
        .sized(sizes),
    row(0x037, f(1), "IMMA", Op::Imma, Ternary, [1, 1, 1, 1])
        .name(&[
            Set(IMMA_SPARSE, "SP"),
            Join(
                &[MMA_SHAPE_LOW, IMMA_SHAPE_HIGH, IMMA_SPARSE],
                &[
                    "8816", "INVALID1", "8832", "INVALID3", "16816", "16832", "16864", "INVALID7",
                    "INVALID0", "INVALID1", "8832", "8864", "INVALID4", "16832", "16864", "168128",
                ],
            ),
            Join(&[IMMA_A_TYPE, IMMA_A_SMALL], &ELEMENTS),
            Join(&[IMMA_B_TYPE, IMMA_B_SMALL], &ELEMENTS),
            Set(IMMA_SATURATE, "SAT"),
        ])
        .operands(&[
            D,
            ROWS_OF_A,
            COLUMNS_OF_B,
            C,
            SKIPS,
            When(IMMA_SPARSE, &[Register(METADATA), Hex(METADATA_SELECTOR)]),
        ])
        .refuses(A_NOT_IN_ROWS)
        .refuses(SKIP)
        .only(factor_is_plain)
        .sized(sizes),
    row(0x03d, f(1), "BMMA", Op::Bmma, Ternary, [1, 1, 1, 1])
        .name(&[
            One(BMMA_SHAPE, &["88128", "168128", "168256"]),
            One(BMMA_OPERATION, &["XOR", "INVALID1", "AND"]),
            One(BMMA_COUNTS, &["???0", "POPC"]),
        ])
        .operands(&[D, ROWS_OF_A, COLUMNS_OF_B, C, SKIPS])
        .refuses(A_NOT_IN_ROWS)
        .refuses(SKIP)
        .only(factor_is_plain)
        .sized(sizes),
    row(0x03f, f(1), "DMMA", Op::Dmma, Ternary, [4, 2, 2, 4])
        .name(&[One(DMMA_SHAPE, &["884", "???1"]), ROUNDING])
        .operands(&[D, FLOAT_A, FACTOR, ADDEND, SKIPS])
        .refuses(SKIP),
];

/// Returns whether B has no signs.
fn factor_is_plain(i: &Instruction) -> bool {
    !i.b_sign.negate && !i.b_sign.absolute
}

fn sizes(i: &Instruction, _: Sizes) -> Result<Sizes, Refusal> {
    let shape = i.fragment().ok_or(Refusal::Unmodelled(i.mnemonic()))?;
    Ok([shape.c, shape.a, shape.b, shape.c])
}

/// Writes the uniform predicate that can skip the product, unless it is always true. All bits of its number are
/// inverted: 0 is UPT.
fn skip(p: &mut Printer<'_>) {
    let bits = p.i.bits(SKIP);
    let not = if bits & 8 != 0 { "!" } else { "" };
    match bits & 7 {
        _ if bits == 0 => {}
        0 => p.push(format_args!("{not}UPT")),
        number => p.push(format_args!("{not}UP{}", 7 - number)),
    }
}
