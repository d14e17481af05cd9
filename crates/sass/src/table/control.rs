//! Control flow, barriers, special registers and hints.

use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use crate::field::*;
use crate::instruction::Instruction;
use crate::op::Op;
use crate::print::{Printer, number};
use crate::row::Layout::{Own, Unary};
use crate::row::Operand::{
    Barrier, By, ConditionIfUsed, Hex, HexUnless, Named, UniformD, Unless, When, Word,
};
use crate::row::Part::{Always, Clear, Computed, Join, One, Required, Set};
use crate::row::{A, AB, B, D, Operand, Part, Row, f, named, printed, row};

const DEPTHS: Part = One(DEPTH, &["", "INC", "DEC"]);
const KINDS: [&str; 4] = ["", "U", "DIV", "CONV"];
const CONDITION_OPERAND: Operand = ConditionIfUsed(CONDITION);
const SPECIAL_OPERAND: Operand = By(&[SPECIAL], |p| p.push(special(p.i.bits(SPECIAL))));
/// A target relative to the next instruction.
const RELATIVE: Operand = By(&[BRANCH_LOW, BRANCH_HIGH], |p| p.push(p.relative(p.i.branch_offset())));
/// An absolute target.
const ABSOLUTE: Operand = By(&[BRANCH_LOW, BRANCH_HIGH], |p| p.push(number::signed(p.i.branch_offset())));
/// A register and the offset itself.
const REGISTER_OFFSET: Operand = By(&[BRANCH_LOW, BRANCH_HIGH, UNIFORM], |p| {
    let offset = number::signed(p.i.branch_offset());
    p.push(format_args!("{} {offset}", pointer(p)));
});
/// A register and a relative target.
const REGISTER_RELATIVE: Operand = By(&[BRANCH_LOW, BRANCH_HIGH, UNIFORM], |p| {
    let target = p.relative(p.i.branch_offset());
    p.push(format_args!("{} {target}", pointer(p)));
});
/// A register and an absolute offset, unless that is 0.
const REGISTER_ABSOLUTE: Operand = By(&[BRANCH_LOW, BRANCH_HIGH, UNIFORM], |p| {
    let register = pointer(p);
    match p.i.branch_offset() {
        0 => p.push(register),
        offset => p.push(format_args!("{register} {}", number::signed(offset))),
    }
});
/// A word of a constant bank.
const POINTER: Operand = By(&[BANK, BANK_OFFSET], |p| {
    // CAST: 5 and 16 bits; words are aligned.
    let (bank, offset) = (p.i.bits(BANK) as u8, p.i.bits(BANK_OFFSET) as u16 & !3);
    p.push(p.constant(bank, offset, false));
});
const BRANCH_NAME: &[Part] = &[
    DEPTHS,
    // A branch with a uniform register must have a kind.
    Join(&[BRANCH_KIND, UNIFORM], &["", "U", "DIV", "CONV", "INVALID0", "INVALID1", "DIV", "CONV"]),
];
const BRANCH: &[Operand] = &[
    CONDITION_OPERAND,
    When(
        UNIFORM,
        &[By(&[BRANCH_COMPLEMENT], |p| {
            let sign = if p.i.bit(BRANCH_COMPLEMENT) { "~" } else { "" };
            p.push(format_args!("{sign}{}", p.uniform(UNIFORM_A)));
        })],
    ),
    RELATIVE,
];
const JUMP_NAME: &[Part] = &[DEPTHS, One(BRANCH_KIND, &KINDS)];
const CALL_ABSOLUTE_NAME: &[Part] = &[Always("ABS"), Set(DEPTH_KEPT, "NOINC")];
const CALL_RELATIVE_NAME: &[Part] = &[Always("REL"), Set(DEPTH_KEPT, "NOINC")];
const MOVE_NAME: &[Part] = &[Always("32"), Set(STATE_QUADS, "PQUAD")];
const SLEEP_NAME: &[Part] = &[Set(SLEEP_RANDOM, "RAND"), Set(SLEEP_WARP, "WARP")];
const STATE_OPERAND: Operand = By(&[STATE], |p| p.push(state(p.i.bits(STATE))));
const STATE_2_OPERAND: Operand = By(&[STATE_2], |p| p.push(state(p.i.bits(STATE_2))));
/// A half of the counter of RPCMOV.
const COUNTER: Operand = Named(COUNTER_HIGH, &["Rpc.LO", "Rpc.HI"]);
const LONG: Operand = By(&[LONG_LOW, LONG_HIGH], |p| {
    let value = u64::from(p.i.bits(LONG_HIGH)) << 32 | u64::from(p.i.bits(LONG_LOW) & !3);
    p.push(format_args!("{value:#x}"));
});
const SCOREBOARD_NAMES: [&str; 6] = ["SB0", "SB1", "SB2", "SB3", "SB4", "SB5"];

pub(super) const ROWS: &[Row] = &[
    // Special registers.
    row(0x119, f(4), "S2R", Op::S2r, Own, [1, 0, 0, 0]).operands(&[D, SPECIAL_OPERAND]),
    row(0x005, f(4), "CS2R", Op::Cs2r, Own, [1, 0, 0, 0])
        .name(&[Clear(SPECIAL_WIDE, "32")])
        .operands(&[D, SPECIAL_OPERAND])
        .sized(|i, sizes| Ok([if i.bit(SPECIAL_WIDE) { 2 } else { 1 }, sizes[1], sizes[2], sizes[3]])),
    row(0x1c3, f(4), "S2UR", Op::S2ur, Own, [1, 0, 0, 0]).operands(&[UniformD, SPECIAL_OPERAND]),
    // Branches.
    row(0x147, f(4), "BRA", Op::Bra, Own, [0; 4])
        .name(BRANCH_NAME)
        .operands(BRANCH)
        .refuses(DEPTH)
        // The uniform register is the mask of lanes to compare with.
        .only(|i| i.bit(UNIFORM) == (i.bits(BRANCH_KIND) > 1)),
    printed(0x147, f(2), "BRA", Own).name(BRANCH_NAME).operands(BRANCH),
    row(0x14a, f(4), "JMP", Op::Jmp, Own, [0; 4])
        .name(JUMP_NAME)
        .operands(&[CONDITION_OPERAND, ABSOLUTE])
        .refuses(DEPTH),
    printed(0x14a, f(2) | f(3), "JMP", Own).name(JUMP_NAME).operands(&[CONDITION_OPERAND, ABSOLUTE]),
    printed(0x14a, f(5), "JMP", Own).name(JUMP_NAME).operands(&[CONDITION_OPERAND, POINTER]),
    row(0x149, f(4), "BRX", Op::Brx, Own, [0, 2, 0, 0])
        .name(&[DEPTHS])
        .operands(&[CONDITION_OPERAND, REGISTER_OFFSET])
        .refuses(DEPTH)
        .refuses(UNIFORM),
    row(0x14c, f(4), "JMX", Op::Jmx, Own, [0, 2, 0, 0])
        .name(&[DEPTHS])
        .operands(&[CONDITION_OPERAND, REGISTER_OFFSET])
        .refuses(DEPTH)
        .refuses(UNIFORM),
    printed(0x14c, f(1), "JMX", Own).name(&[DEPTHS]).operands(&[CONDITION_OPERAND, REGISTER_OFFSET]),
    row(0x144, f(4), "CALL", Op::Call, Own, [0; 4])
        .name(CALL_RELATIVE_NAME)
        .operands(&[CONDITION_OPERAND, When(UNIFORM, &[REGISTER_RELATIVE]), Unless(UNIFORM, &[RELATIVE])])
        .refuses(UNIFORM),
    row(0x144, f(1), "CALL", Op::CallRegister, Own, [0, 2, 0, 0])
        .name(CALL_RELATIVE_NAME)
        .operands(&[CONDITION_OPERAND, REGISTER_RELATIVE])
        .refuses(UNIFORM),
    row(0x143, f(4), "CALL", Op::CallAbsolute, Own, [0; 4])
        .name(CALL_ABSOLUTE_NAME)
        .operands(&[CONDITION_OPERAND, When(UNIFORM, &[REGISTER_ABSOLUTE]), Unless(UNIFORM, &[ABSOLUTE])])
        .refuses(UNIFORM),
    row(0x143, f(1), "CALL", Op::CallAbsoluteRegister, Own, [0, 2, 0, 0])
        .name(CALL_ABSOLUTE_NAME)
        .operands(&[CONDITION_OPERAND, REGISTER_ABSOLUTE])
        .refuses(UNIFORM),
    printed(0x143, f(5), "CALL", Own).name(CALL_ABSOLUTE_NAME).operands(&[CONDITION_OPERAND, POINTER]),
    row(0x150, f(4), "RET", Op::Ret, Own, [0, 2, 0, 0])
        .name(&[One(RET_ABSOLUTE, &["REL", "ABS"]), Set(DEPTH_KEPT, "NODEC")])
        .operands(&[
            CONDITION_OPERAND,
            When(RET_ABSOLUTE, &[REGISTER_OFFSET]),
            Unless(RET_ABSOLUTE, &[REGISTER_RELATIVE]),
        ])
        .refuses(UNIFORM),
    row(0x14d, f(4), "EXIT", Op::Exit, Own, [0; 4])
        .name(&[
            One(EXIT_KIND, &["", "KEEPREFCOUNT", "PREEMPTED", "INVALID3"]),
            Set(EXIT_NO_HANDLER, "NO_ATEXIT"),
        ])
        .operands(&[CONDITION_OPERAND])
        .refuses(EXIT_KIND)
        .refuses(EXIT_NO_HANDLER),
    printed(0x15b, f(4), "KILL", Own).operands(&[CONDITION_OPERAND]),
    row(0x14e, f(1), "LEPC", Op::Lepc, Own, [2, 0, 0, 0]).operands(&[D]),
    printed(0x14e, f(4), "LEPC", Own).operands(&[D]),
    row(0x158, f(4), "BRXU", Op::Brxu, Own, [0; 4])
        .name(JUMP_NAME)
        .operands(&[CONDITION_OPERAND, REGISTER_OFFSET])
        .refuses(DEPTH)
        .refuses(BRANCH_KIND)
        .only(|i| i.bit(UNIFORM)),
    named(0x159, f(4), "JMXU"),
    // Convergence and the state of a warp.
    row(0x145, f(4), "BSSY", Op::Bssy, Own, [0; 4]).operands(&[
        CONDITION_OPERAND,
        Barrier(BARRIER),
        By(&[], |p| p.push(p.relative(p.i.signed(BSSY_TARGET) & !3))),
    ]),
    row(0x141, f(4), "BSYNC", Op::Bsync, Own, [0; 4]).operands(&[CONDITION_OPERAND, Barrier(BARRIER)]),
    row(0x142, f(4), "BREAK", Op::Break, Own, [0; 4]).operands(&[CONDITION_OPERAND, Barrier(BARRIER)]),
    row(0x155, f(1), "BMOV", Op::BmovToRegister, Own, [1, 0, 0, 0])
        .name(&[Always("32"), Set(STATE_CLEAR, "CLEAR")])
        .operands(&[D, STATE_OPERAND]),
    row(0x155, f(7), "BMOV", Op::BmovFromBarrier, Own, [0; 4])
        .name(&[Always("32"), Set(STATE_CLEAR, "CLEAR")])
        .operands(&[STATE_2_OPERAND, By(&[], cleared_state)]),
    row(0x156, AB, "BMOV", Op::Bmov, Unary, [0, 0, 1, 0])
        .name(MOVE_NAME)
        .operands(&[STATE_OPERAND, B])
        .refuses(STATE_QUADS),
    printed(0x156, f(7), "BMOV", Own).name(MOVE_NAME).operands(&[STATE_OPERAND, STATE_2_OPERAND]),
    printed(0x157, f(4), "BMOV", Own).name(&[Always("64")]).operands(&[Word("ATEXIT_PC"), LONG]),
    printed(0x157, f(1) | f(5) | f(6), "BMOV", Unary).name(&[Always("64")]).operands(&[Word("ATEXIT_PC"), B]),
    printed(0x152, AB, "RPCMOV", Unary).name(&[Always("32")]).operands(&[COUNTER, B]),
    printed(0x153, AB, "RPCMOV", Own).name(&[Always("32")]).operands(&[D, COUNTER]),
    printed(0x154, f(4), "RPCMOV", Own).name(&[Always("64")]).operands(&[Word("Rpc"), LONG]),
    printed(0x154, AB & !f(4), "RPCMOV", Unary).name(&[Always("64")]).operands(&[Word("Rpc"), B]),
    row(0x148, f(1), "WARPSYNC", Op::Warpsync, Unary, [0, 0, 1, 0])
        .name(&[Set(EXCLUSIVE, "EXCLUSIVE")])
        .operands(&[CONDITION_OPERAND, B]),
    row(0x148, AB & !f(1), "WARPSYNC", Op::Warpsync, Unary, [0, 0, 1, 0])
        .operands(&[CONDITION_OPERAND, B])
        .ignores(EXCLUSIVE),
    row(0x146, f(4), "YIELD", Op::Yield, Own, [0; 4]).operands(&[CONDITION_OPERAND]),
    row(0x15d, f(4), "NANOSLEEP", Op::Nanosleep, Unary, [0, 0, 1, 0])
        .name(&[Set(SLEEP_RANDOM, "RAND"), Set(SLEEP_WARP, "WARP"), Set(SLEEP_CLEAR, "CLEAR")])
        .operands(&[CONDITION_OPERAND, Unless(SLEEP_CLEAR, &[B])])
        .refuses(SLEEP_CLEAR),
    row(0x15d, AB & !f(4), "NANOSLEEP", Op::Nanosleep, Unary, [0, 0, 1, 0])
        .name(SLEEP_NAME)
        .operands(&[CONDITION_OPERAND, B]),
    row(0x15c, f(4), "BPT", Op::Bpt, Own, [0; 4])
        .name(&[One(TRAP, &["???0", "???1", "???2", "TRAP", "INT"])])
        .operands(&[HexUnless(TRAP_CODE, 0)])
        .only(|i| i.bits(TRAP) == 3),
    // Barriers of a CTA.
    row(0x11d, f(1) | f(2) | f(4), "BAR", Op::Bar, Own, [0, 0, 1, 0])
        .name(BARRIER_NAME)
        .operands(&[By(&[CONDITION], barrier)])
        .ignores(BAR_IGNORED)
        .only(barrier_is_modelled),
    row(0x11d, f(5), "BAR", Op::Bar, Own, [0; 4])
        .name(BARRIER_NAME)
        .operands(&[By(&[CONDITION], barrier)])
        .ignores(BAR_IGNORED)
        .only(barrier_is_modelled),
    row(0x11c, f(1), "B2R", Op::B2r, Own, [1, 0, 0, 0])
        .name(&[One(B2R_KIND, &["", "RESULT", "WARP"])])
        .operands(&[
            D,
            By(&[TARGET], |p| match p.i.bits(B2R_KIND) {
                0 => p.push(format_args!("{:#x}", p.i.bits(BAR_NUMBER))),
                1 => p.target_if_kept(TARGET),
                _ => {}
            }),
        ])
        .only(|i| i.bits(B2R_KIND) == 1),
    // Hints and fences.
    row(0x118, f(4), "NOP", Op::Nothing, Own, [0; 4]).operands(&[]).any(),
    row(0x192, f(4), "MEMBAR", Op::Nothing, Own, [0; 4])
        .name(&[
            One(FENCE_ORDER, &["SC", "ALL", "", "MMIO"]),
            One(FENCE_SCOPE, &["CTA", "SM", "GPU", "SYS", "INVALID4", "VC"]),
        ])
        .operands(&[])
        .any(),
    row(0x1ab, f(4), "ERRBAR", Op::Nothing, Own, [0; 4]).operands(&[]).any(),
    row(0x001, f(4), "PMTRIG", Op::Nothing, Own, [0; 4]).operands(&[CONDITION_OPERAND, Hex(EVENTS)]).any(),
    row(0x11a, f(4), "DEPBAR", Op::Depbar, Own, [0; 4])
        .name(&[Set(DEPENDS_ON_COUNT, "LE")])
        .operands(&[
            When(DEPENDS_ON_COUNT, &[Named(SCOREBOARD, &SCOREBOARD_NAMES), Hex(SCOREBOARD_COUNT)]),
            By(&[SCOREBOARDS], scoreboards),
        ])
        .any(),
    row(0x1af, f(4), "LDGDEPBAR", Op::Ldgdepbar, Own, [0; 4]).operands(&[]).any(),
    // Others.
    printed(0x1c0, f(1), "GETLMEMBASE", Own).operands(&[D]),
    printed(0x1c1, f(1), "SETLMEMBASE", Own).operands(&[A]),
    named(0x11f, f(1), "SETCTAID"),
    named(0x00d, f(4), "CSMTEST"),
];

const BARRIER_NAME: &[Part] = &[
    Required(BAR_MODE, &["SYNC", "ARV", "RED", "SCAN", "SYNCALL"]),
    Computed(&[BAR_MODE, BAR_REDUCTION], |i| match i.bits(BAR_MODE) {
        BAR_RED => ["POPC", "AND", "OR", "INVALID3"][i.bits(BAR_REDUCTION) as usize],
        _ => "",
    }),
    Set(BAR_DEFERS, "DEFER_BLOCKING"),
];

/// Values of [`BAR_MODE`].
const BAR_RED: u32 = 2;
const BAR_SCAN: u32 = 3;
const BAR_SYNCALL: u32 = 4;

fn barrier_is_modelled(i: &Instruction) -> bool {
    i.bits(BAR_MODE) <= BAR_RED && i.bits(BAR_REDUCTION) < 3
}

/// Barrier and number of threads, each a register or an immediate.
fn barrier(p: &mut Printer<'_>) {
    let (i, mode) = (p.i, p.i.bits(BAR_MODE));
    if mode == BAR_SYNCALL {
        return;
    }
    let register = p.register(SLOT_REGISTER);
    let number =
        if matches!(i.form, 1 | 2) { register.clone() } else { format!("{:#x}", i.bits(BAR_NUMBER)) };
    let threads = if matches!(i.form, 1 | 4) { register } else { format!("{:#x}", i.bits(BAR_THREADS)) };
    p.push(number);
    if mode == BAR_SCAN || !matches!(threads.as_str(), "0x0" | "RZ") {
        p.push(threads);
    }
    if matches!(mode, BAR_RED | BAR_SCAN) {
        p.condition(CONDITION, false);
    }
}

/// The register that holds the target of a branch.
fn pointer(p: &Printer<'_>) -> String {
    if p.i.bit(UNIFORM) { p.uniform(UNIFORM_A) } else { p.register(A_REGISTER) }
}

/// The barrier that BMOV.CLEAR reads.
fn cleared_state(p: &mut Printer<'_>) {
    match p.i.bits(STATE) {
        number if number >= 16 || !p.i.bit(STATE_CLEAR) => p.push(format_args!("???{number}")),
        number => p.push(state(number)),
    }
}

/// The scoreboards that DEPBAR waits for.
fn scoreboards(p: &mut Printer<'_>) {
    let mask = p.i.bits(SCOREBOARDS);
    let listed: Vec<_> =
        (0..6).rev().filter(|bit| mask >> bit & 1 != 0).map(|bit: u32| bit.to_string()).collect();
    if !listed.is_empty() {
        p.push(format_args!("{{{}}}", listed.join(",")));
    }
}

/// The state of a warp that BMOV reads and writes: barriers, then others.
fn state(number: u32) -> String {
    const NAMES: [&str; 15] = [
        "THREAD_STATE_ENUM.0",
        "THREAD_STATE_ENUM.1",
        "THREAD_STATE_ENUM.2",
        "THREAD_STATE_ENUM.3",
        "THREAD_STATE_ENUM.4",
        "TRAP_RETURN_PC.LO",
        "TRAP_RETURN_PC.HI",
        "TRAP_RETURN_MASK",
        "MEXITED",
        "MKILL",
        "MACTIVE",
        "MATEXIT",
        "OPT_STACK",
        "API_CALL_DEPTH",
        "ATEXIT_PC.LO",
    ];
    match number {
        0..16 => format!("B{number}"),
        16..=30 => NAMES[number as usize - 16].to_owned(),
        31 => "ATEXIT_PC.HI".to_owned(),
        _ => format!("???{number}"),
    }
}

/// Names of special registers.
const SPECIAL_NAMES: [(u32, &str); 87] = [
    (0, "LANEID"),
    (1, "CLOCK"),
    (2, "VIRTCFG"),
    (3, "VIRTID"),
    (15, "ORDERING_TICKET"),
    (16, "PRIM_TYPE"),
    (17, "INVOCATION_ID"),
    (18, "Y_DIRECTION"),
    (19, "THREAD_KILL"),
    (21, "DIRECTCBEWRITEADDRESSLOW"),
    (22, "DIRECTCBEWRITEADDRESSHIGH"),
    (23, "DIRECTCBEWRITEENABLED"),
    (24, "SW_SCRATCH"),
    (25, "MACHINE_ID_1"),
    (26, "MACHINE_ID_2"),
    (27, "MACHINE_ID_3"),
    (28, "AFFINITY"),
    (29, "INVOCATION_INFO"),
    (30, "WSCALEFACTOR_XY"),
    (31, "WSCALEFACTOR_Z"),
    (32, "TID"),
    (33, "TID.X"),
    (34, "TID.Y"),
    (35, "TID.Z"),
    (37, "CTAID.X"),
    (38, "CTAID.Y"),
    (39, "CTAID.Z"),
    (40, "NTID"),
    (41, "CirQueueIncrMinusOne"),
    (42, "NLATC"),
    (44, "SM_SPA_VERSION"),
    (45, "MULTIPASSSHADERINFO"),
    (46, "LWINHI"),
    (47, "SWINHI"),
    (48, "SWINLO"),
    (49, "SWINSZ"),
    (50, "SMEMSZ"),
    (51, "SMEMBANKS"),
    (52, "LWINLO"),
    (53, "LWINSZ"),
    (54, "LMEMLOSZ"),
    (55, "LMEMHIOFF"),
    (56, "EQMASK"),
    (57, "LTMASK"),
    (58, "LEMASK"),
    (59, "GTMASK"),
    (60, "GEMASK"),
    (61, "REGALLOC"),
    (62, "BARRIERALLOC"),
    (64, "GLOBALERRORSTATUS"),
    (66, "WARPERRORSTATUS"),
    (67, "VIRTUALSMID"),
    (68, "VIRTUALENGINEID"),
    (80, "CLOCKLO"),
    (81, "CLOCKHI"),
    (82, "GLOBALTIMERLO"),
    (83, "GLOBALTIMERHI"),
    (84, "ESR_PC"),
    (85, "ESR_PC_HI"),
    (96, "HWTASKID"),
    (97, "CIRCULARQUEUEENTRYINDEX"),
    (98, "CIRCULARQUEUEENTRYADDRESSLOW"),
    (99, "CIRCULARQUEUEENTRYADDRESSHIGH"),
    (132, "VARIABLE_RATE"),
    (100, "PM0"),
    (101, "PM_HI0"),
    (102, "PM1"),
    (103, "PM_HI1"),
    (104, "PM2"),
    (105, "PM_HI2"),
    (106, "PM3"),
    (107, "PM_HI3"),
    (108, "PM4"),
    (109, "PM_HI4"),
    (110, "PM5"),
    (111, "PM_HI5"),
    (112, "PM6"),
    (113, "PM_HI6"),
    (114, "PM7"),
    (115, "PM_HI7"),
    (116, "SNAP_PM0"),
    (117, "SNAP_PM_HI0"),
    (118, "SNAP_PM1"),
    (119, "SNAP_PM_HI1"),
    (120, "SNAP_PM2"),
    (121, "SNAP_PM_HI2"),
    (122, "SNAP_PM3"),
];

fn special(number: u32) -> String {
    match number {
        20 => return "SM_SHADER_TYPE".to_owned(),
        133 => return "__HIR0X000".to_owned(),
        255 => return "SRZ".to_owned(),
        123..=131 => {
            let high = if number & 1 == 1 { "_HI" } else { "" };
            return format!("SR_SNAP_PM{high}{}", (number - 116) / 2);
        }
        _ => {}
    }
    match SPECIAL_NAMES.iter().find(|(known, _)| *known == number) {
        Some((_, name)) => format!("SR_{name}"),
        None => format!("SR{number}"),
    }
}
