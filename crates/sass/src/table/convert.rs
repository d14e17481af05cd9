//! Conversions.

use super::float::{FLUSH, PARTS, ROUNDING, half_source};
use crate::field::*;
use crate::instruction::{Instruction, RZ, Refusal, Sizes};
use crate::op::Op;
use crate::print::Printer;
use crate::row::Layout::{Ternary, Unary};
use crate::row::Operand::{By, Unless, When};
use crate::row::Part::{Always, Join, One, Set};
use crate::row::{A, AB, ABC, B, D, Operand, Part, Row, Signs, Style, Suffix, row};

const TO_INTEGER: Part = One(ROUND, &["", "FLOOR", "CEIL", "TRUNC"]);
/// Floating-point types by the logarithm of their bytes; single precision is not written.
const FLOATS: [&str; 4] = ["???0", "F16", "", "F64"];
/// Floating-point types by the logarithm of their bytes.
const ALL_FLOATS: [&str; 4] = ["???0", "F16", "F32", "F64"];
const FLOAT_TO_INTEGER: &[Operand] = &[D, By(&[], float_source)];
const INTEGER_TO_FLOAT: &[Operand] = &[D, By(&[], integer_source)];
/// Integer types by signedness (lowest bit), then by the logarithm of their bytes; S32 is not written.
const INTEGER_TYPES: [&str; 8] = ["U8", "S8", "U16", "S16", "U32", "", "U64", "S64"];
/// Source types of I2F: signedness, then size.
const INTEGERS: Part = Join(&[FROM_SIGNED, FROM_SIZE], &INTEGER_TYPES);
const FLOAT_NAME: &[Part] = &[
    FLUSH,
    Join(&[TO_SIZE, F2F_BFLOAT16], &["???0", "F16", "F32", "F64", "BF16", "BF16", "BF16", "BF16"]),
    One(FROM_SIZE, &ALL_FLOATS),
    ROUNDING,
];
const ROUND_NAME: &[Part] = &[FLUSH, One(TO_SIZE, &FLOATS), TO_INTEGER];
/// Sources of a packing conversion.
const PACKED: Style = Style { signs: Signs::None, ..Style::SINGLE };
/// C of F2IP, with the half that it is merged into.
const MERGED: Style = {
    let half = Suffix { fields: &[F2IP_UPPER], list: &["", ".H1"] };
    Style { slot: half, upper: half, spaced: true, ..PACKED }
};

pub(super) const ROWS: &[Row] = &[
    row(0x105, AB, "F2I", Op::F2i, Unary, [1, 0, 1, 0])
        .name(&[
            FLUSH,
            Join(&[TO_SIGNED, TO_SIZE], &["U8", "S8", "U16", "S16", "U32", "", "???6", "???7"]),
            One(FROM_SIZE, &FLOATS),
            TO_INTEGER,
            Set(NAN_TO_ZERO, "NTZ"),
        ])
        .operands(FLOAT_TO_INTEGER)
        .sized(sizes),
    row(0x111, AB, "F2I", Op::F2i, Unary, [1, 0, 1, 0])
        .name(&[
            FLUSH,
            Join(&[TO_SIGNED, TO_SIZE], &INTEGER_TYPES),
            One(FROM_SIZE, &FLOATS),
            TO_INTEGER,
            Set(NAN_TO_ZERO, "NTZ"),
        ])
        .operands(FLOAT_TO_INTEGER)
        .sized(sizes),
    row(0x106, AB, "I2F", Op::I2f, Unary, [1, 0, 1, 0])
        .name(&[One(TO_SIZE, &["???0", "F16", "", "???3"]), INTEGERS, ROUNDING])
        .operands(INTEGER_TO_FLOAT)
        .sized(sizes),
    row(0x112, AB, "I2F", Op::I2f, Unary, [1, 0, 1, 0])
        .name(&[One(TO_SIZE, &FLOATS), INTEGERS, ROUNDING])
        .operands(INTEGER_TO_FLOAT)
        .sized(sizes),
    row(0x045, AB, "I2FP", Op::I2fp, Unary, [1, 0, 1, 0])
        .name(&[
            One(I2FP_TYPE, &["???0", "???1", "F32", "???3", "???4", "???5", "???6", "???7"]),
            Join(&[FROM_SIGNED, FROM_SIZE], &["???0", "???1", "???2", "???3", "U32", "S32", "???6", "???7"]),
            One(ROUND, &["", "INVALID1", "INVALID2", "RZ"]),
        ])
        .operands(&[D, B]),
    row(0x104, AB, "F2F", Op::F2f, Unary, [1, 0, 1, 0])
        .name(FLOAT_NAME)
        .operands(&[D, By(&[], plain_source)])
        .sized(sizes),
    row(0x110, AB, "F2F", Op::F2f, Unary, [1, 0, 1, 0])
        .name(FLOAT_NAME)
        .operands(&[D, By(&[], plain_source)])
        .sized(sizes),
    row(0x107, AB, "FRND", Op::Frnd, Unary, [1, 0, 1, 0])
        .name(ROUND_NAME)
        .operands(FLOAT_TO_INTEGER)
        .ignores(FROM_SIZE)
        .sized(sizes),
    row(0x113, AB, "FRND", Op::Frnd, Unary, [1, 0, 1, 0])
        .name(ROUND_NAME)
        .operands(FLOAT_TO_INTEGER)
        .ignores(FROM_SIZE)
        .sized(sizes),
    row(0x03e, ABC, "F2FP", Op::F2fp, Ternary, [1, 1, 1, 1])
        .name(&[
            Set(F2FP_FINITE, "SATFINITE"),
            Set(PACK_RELU, "RELU"),
            Join(
                &[F2FP_INVALID, F2FP_BFLOAT16, F2FP_MERGE, F2FP_THREE],
                &[
                    "", "INVALID2", "BF16", "INVALID3", "", "INVALID2", "BF16", "INVALID3", "", "INVALID2",
                    "BF16", "INVALID3", "", "INVALID2", "???1", "INVALID3",
                ],
            ),
            One(F2FP_MERGE, &["PACK_AB", "MERGE_C"]),
            One(F2FP_ROUND, &["", "INVALID1", "INVALID2", "RZ", "RS.7b"]),
        ])
        .operands(&[
            D,
            Unless(F2FP_MERGE, &[A]),
            When(F2FP_MERGE, &[When(F2FP_THREE, &[A])]),
            Operand::B(PACKED),
            When(F2FP_MERGE, &[Operand::C(PACKED)]),
            Unless(F2FP_MERGE, &[When(F2FP_THREE, &[Operand::C(PACKED)])]),
        ])
        .refuses(F2FP_FINITE)
        .refuses(F2FP_THREE)
        .refuses(F2FP_INVALID)
        // An H100 refuses MERGE_C with an A.
        .only(|i| !i.bit(F2FP_MERGE) || i.a == RZ),
    row(0x043, ABC, "F2IP", Op::F2ip, Ternary, [1, 1, 1, 1])
        .name(&[
            One(F2IP_TYPE, &["U8", "S8"]),
            Always("F32"),
            One(ROUND, &["", "INVALID1", "INVALID2", "TRUNC"]),
            Set(F2IP_NAN_TO_ZERO, "NTZ"),
            Set(PACK_RELU, "RELU"),
        ])
        .operands(&[D, A, Operand::B(PACKED), Operand::C(MERGED)])
        .refuses(PACK_RELU)
        .only(|i| i.bit(F2IP_NAN_TO_ZERO)),
];

/// Double precision and 64-bit integers take two registers.
fn sizes(i: &Instruction, mut sizes: Sizes) -> Result<Sizes, Refusal> {
    let registers = |size: u32| if size == 3 { 2 } else { 1 };
    (sizes[0], sizes[2]) = (registers(i.bits(TO_SIZE)), registers(i.bits(FROM_SIZE)));
    Ok(sizes)
}

/// Returns the style of a floating-point source of any size.
fn float_style(i: &Instruction) -> Style {
    match i.bits(FROM_SIZE) {
        3 => Style::DOUBLE,
        size => Style { spaced: size == 1, ..Style::SINGLE },
    }
}

fn plain_source(p: &mut Printer<'_>) {
    p.push(p.b(float_style(p.i)));
}

fn float_source(p: &mut Printer<'_>) {
    let style = float_style(p.i);
    match p.i.bits(FROM_SIZE) {
        1 => half_source(p, style),
        _ => p.push(p.b(style)),
    }
}

fn integer_source(p: &mut Printer<'_>) {
    let (size, part) = (p.i.bits(FROM_SIZE), p.i.bits(SLOT_PART) as usize);
    let after = match size {
        0 => ["", ".B1", ".B2", ".B3"][part],
        1 if p.i.form != 4 => PARTS[part],
        _ => "",
    };
    let style = if size >= 2 && p.i.bit(FROM_SIGNED) { Style::SIGNED } else { Style::PATTERN };
    let text = p.b(Style { spaced: size < 2, ..style });
    p.push(format_args!("{text}{after}"));
}
