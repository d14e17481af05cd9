//! The uniform datapath: one value for the whole warp.

use super::integer::{
    ADD3, BYTE_NAME, BYTE_OF_A, COMPARE_NAME, COMPARE_OPERANDS, COUNT, EXTEND_NAME, LEA, LEA_IMMEDIATE,
    LEA_NAME, LEADING, LEADING_NAME, LOGIC, LOGIC_NAME, MULTIPLY, MULTIPLY_CARRY, SHIFT_NAME, SIGN_OF_B,
    SIGNS_OF_ALL, SIGNS_OF_B_AND_C, TABLE_NAME, UNSIGNED, X, factor_is_plain,
};
use crate::field::*;
use crate::op::Op;
use crate::row::Layout::{Binary, Own, Ternary, Unary};
use crate::row::Operand::{Condition, Hex, HexJoin, Target, Word};
use crate::row::Part::{Always, Set};
use crate::row::{A, B, C, D, Row, UAB, UABC, f, printed, row};

pub(super) const ROWS: &[Row] = &[
    row(0x0a4, UABC, "UIMAD", Op::Uimad, Ternary, [1, 1, 1, 1])
        .name(&[UNSIGNED, X])
        .operands(MULTIPLY)
        .drops(TARGET)
        .only(factor_is_plain),
    row(0x0a5, UABC, "UIMAD", Op::UimadWide, Ternary, [2, 1, 1, 2])
        .name(&[Always("WIDE"), UNSIGNED, X])
        .operands(MULTIPLY_CARRY)
        .only(factor_is_plain),
    row(0x090, UAB, "UIADD3", Op::Uiadd3, Ternary, [1, 1, 1, 1]).name(&[X]).operands(ADD3),
    printed(0x097, UAB, "UIADD3", Ternary).name(&[Always("64"), X]).operands(ADD3),
    row(0x092, UAB, "ULOP3", Op::Ulop3, Ternary, [1, 1, 1, 1]).name(LOGIC_NAME).operands(LOGIC),
    row(0x099, UABC, "USHF", Op::Ushf, Ternary, [1, 1, 1, 1]).name(SHIFT_NAME).operands(&[D, A, B, C]),
    row(0x091, UAB, "ULEA", Op::Ulea, Ternary, [1, 1, 1, 1]).name(LEA_NAME).operands(LEA),
    printed(0x091, f(2), "ULEA", Ternary).name(LEA_NAME).operands(LEA_IMMEDIATE),
    row(0x096, UAB, "UPRMT", Op::Uprmt, Ternary, [1, 1, 1, 1]).operands(&[D, A, B, C]),
    row(0x082, f(4) | f(6), "UMOV", Op::Umov, Unary, [1, 0, 1, 0]).operands(&[D, B]),
    row(0x087, UAB, "USEL", Op::Usel, Binary, [1, 1, 1, 0]).operands(&[D, A, B, Condition(CONDITION)]),
    row(0x08c, UAB, "UISETP", Op::Uisetp, Binary, [0, 1, 1, 0]).name(COMPARE_NAME).operands(COMPARE_OPERANDS),
    row(0x09b, UAB, "UBMSK", Op::Ubmsk, Binary, [1, 1, 1, 0]).name(&[Set(WRAP, "W")]).operands(&[D, A, B]),
    row(0x09a, UAB, "USGXT", Op::Usgxt, Binary, [1, 1, 1, 0]).name(EXTEND_NAME).operands(&[D, A, B]),
    row(0x0bd, UAB, "UFLO", Op::Uflo, Unary, [1, 0, 1, 0]).name(LEADING_NAME).operands(LEADING).drops(TARGET),
    row(0x0be, UAB, "UBREV", Op::Ubrev, Unary, [1, 0, 1, 0]).operands(&[D, B]),
    row(0x0bf, UAB, "UPOPC", Op::Upopc, Unary, [1, 0, 1, 0]).operands(COUNT),
    printed(0x0bc, f(4), "UCLEA", Own).operands(&[
        D,
        Target(TARGET),
        A,
        Hex(UCLEA_IMMEDIATE),
        Hex(UCLEA_SHIFT),
    ]),
    printed(0x0bc, f(6), "UCLEA", Binary).operands(&[D, Target(TARGET), A, B, Hex(UCLEA_SHIFT)]),
    row(0x09c, f(4), "UPLOP3", Op::Uplop3, Own, [0; 4]).name(TABLE_NAME).operands(&[
        Target(TARGET),
        Target(TARGET_2),
        Condition(CONDITION),
        Condition(CONDITION_2),
        Condition(CONDITION_3),
        HexJoin(&TRUTH_TABLE),
        Hex(LUT_2),
    ]),
    row(0x09d, f(1), "UPLOP3", Op::Uplop3Sign, Ternary, [0; 4]).name(TABLE_NAME).operands(SIGN_OF_B),
    row(0x09e, f(1), "UPLOP3", Op::Uplop3TwoSigns, Ternary, [0; 4])
        .name(TABLE_NAME)
        .operands(SIGNS_OF_B_AND_C),
    row(0x09f, f(1), "UPLOP3", Op::Uplop3Signs, Ternary, [0; 4])
        .name(TABLE_NAME)
        .operands(SIGNS_OF_ALL)
        .ignores(CONDITION),
    row(0x083, f(4) | f(6), "UP2UR", Op::Up2ur, Binary, [1, 1, 1, 0]).name(BYTE_NAME).operands(&[
        D,
        Word("UPR"),
        A,
        B,
    ]),
    row(0x084, f(4) | f(6), "UR2UP", Op::Ur2up, Binary, [0, 1, 1, 0]).operands(&[Word("UPR"), BYTE_OF_A, B]),
];
