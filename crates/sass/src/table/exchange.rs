//! Exchange between the lanes of a warp, and with the uniform datapath.

use crate::field::*;
use crate::op::Op;
use crate::row::Layout::Own;
use crate::row::Operand::{
    By, Condition, DUnlessZero, Hex, Register, Target, TargetIfKept, Uniform, UniformD, Unless, When,
};
use crate::row::Part::{Always, One, Set};
use crate::row::{A, D, Operand, Part, Row, f, row};

const VOTES: &[Part] = &[One(VOTE, &["ALL", "ANY", "EQ"])];
const SHUFFLES: &[Part] = &[One(SHUFFLE, &["IDX", "UP", "DOWN", "BFLY"])];

/// SHFL: lane and mask are each a register or an immediate.
const fn shuffle(form: u8, operands: &'static [Operand]) -> Row {
    row(0x189, f(form), "SHFL", Op::Shfl, Own, [1, 1, 0, 0]).name(SHUFFLES).operands(operands).ignores(UPPER)
}

pub(super) const ROWS: &[Row] = &[
    shuffle(1, &[Target(TARGET), D, A, Register(SLOT_REGISTER), Register(UPPER)]),
    shuffle(2, &[Target(TARGET), D, A, Register(SLOT_REGISTER), Hex(SHUFFLE_MASK)]),
    shuffle(4, &[Target(TARGET), D, A, Hex(SHUFFLE_LANE), Register(UPPER)]),
    shuffle(7, &[Target(TARGET), D, A, Hex(SHUFFLE_LANE), Hex(SHUFFLE_MASK)]),
    row(0x006, f(4), "VOTE", Op::Vote, Own, [1, 0, 0, 0]).name(VOTES).operands(&[
        DUnlessZero,
        Target(TARGET),
        Condition(CONDITION),
    ]),
    row(0x086, f(4), "VOTEU", Op::Voteu, Own, [1, 0, 0, 0])
        .name(VOTES)
        // The condition is a predicate of the lanes.
        .operands(&[DUnlessZero, Target(TARGET), By(&[CONDITION], |p| p.condition(CONDITION, false))]),
    row(0x1a1, f(1), "MATCH", Op::Match, Own, [1, 1, 0, 0])
        .name(&[One(MATCH_ANY, &["ALL", "ANY"]), Set(MATCH_WIDE, "U64")])
        .operands(&[Unless(MATCH_ANY, &[Target(TARGET)]), D, A])
        .sized(|i, mut sizes| {
            sizes[1] = if i.bit(MATCH_WIDE) { 2 } else { 1 };
            Ok(sizes)
        }),
    row(0x1c4, f(1), "REDUX", Op::Redux, Own, [1, 1, 0, 0])
        .name(&[One(REDUX, &["", "OR", "XOR", "SUM", "MIN", "MAX"]), Set(SIGNED, "S32")])
        .operands(&[UniformD, A]),
    row(0x03a, f(1), "MOVM", Op::Movm, Own, [1, 1, 0, 0])
        .name(&[Always("16"), One(MOVM_SHAPE, &["MT88", "M832", "M864"])])
        .operands(&[D, Register(A_REGISTER)])
        .refuses(MOVM_SHAPE),
    row(0x1c2, f(1), "R2UR", Op::R2ur, Own, [1, 1, 0, 0])
        .name(&[Set(R2UR_OR, "OR")])
        .operands(&[
            When(R2UR_OR, &[Target(TARGET)]),
            Unless(R2UR_OR, &[TargetIfKept(TARGET)]),
            Uniform(UNIFORM_D),
            A,
        ])
        .refuses(R2UR_OR),
];
