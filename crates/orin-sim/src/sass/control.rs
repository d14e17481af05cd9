//! Control flow, barriers, special registers and everything else.

use super::{Marks, Number, Text, number};

/// Names of the special registers that have one.
const SPECIAL: [(u32, &str); 87] = [
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
    match SPECIAL.iter().find(|(known, _)| *known == number) {
        Some((_, name)) => format!("SR_{name}"),
        None => format!("SR{number}"),
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

pub(super) fn print(t: &mut Text) -> Option<()> {
    let none = Marks::default();
    match t.base() {
        0x118 => {
            t.name("NOP");
        }
        0x119 | 0x1c3 | 0x005 => {
            let source = special(t.bits(72, 8));
            match t.base() {
                0x119 => t.name("S2R").d(),
                0x005 => t.name("CS2R").flag_not(80, "32").d(),
                _ => {
                    let d = t.uniform(16);
                    t.name("S2UR").push(d)
                }
            };
            t.push(source);
        }
        0x147 | 0x149 | 0x14a | 0x14c | 0x143 | 0x144 | 0x150 => branch(t)?,
        0x14d => {
            t.name("EXIT")
                .choose(84, 2, &["", "KEEPREFCOUNT", "PREEMPTED", "INVALID3"])
                .flag(86, "NO_ATEXIT");
            t.condition_unless_true(87);
        }
        0x145 => {
            let barrier = format!("B{}", t.bits(16, 4));
            let offset = i64::from((t.bits(32, 32) & !3).cast_signed());
            let target = offset.wrapping_add(t.address.cast_signed()).wrapping_add(16);
            t.name("BSSY").condition_unless_true(87).push(barrier).push(number::signed(target));
        }
        0x141 | 0x142 => {
            let barrier = format!("B{}", t.bits(16, 4));
            t.name(if t.base() == 0x141 { "BSYNC" } else { "BREAK" }).condition_unless_true(87).push(barrier);
        }
        0x146 | 0x15b => {
            t.name(if t.base() == 0x146 { "YIELD" } else { "KILL" }).condition_unless_true(87);
        }
        0x148 => {
            t.name("WARPSYNC");
            if t.form() == 1 {
                t.flag(86, "EXCLUSIVE");
            }
            t.condition_unless_true(87);
            let b = t.slot(Number::Pattern, none, false);
            t.push(b);
        }
        0x15d => {
            t.name("NANOSLEEP").flag(86, "RAND").flag(85, "WARP").condition_unless_true(87);
            if t.form() == 4 && t.bit(83) {
                t.modifier("CLEAR");
            } else {
                let b = t.slot(Number::Pattern, none, false);
                t.push(b);
            }
        }
        0x155..=0x157 => state_move(t)?,
        0x152..=0x154 => counter_move(t)?,
        0x15c => {
            t.name("BPT").choose(84, 3, &["???0", "???1", "???2", "TRAP", "INT"]);
            let code = t.bits(34, 3);
            if code != 0 {
                t.push(format!("{code:#x}"));
            }
        }
        0x11d => barrier(t)?,
        0x11c => {
            t.name("B2R").choose(78, 2, &["", "RESULT", "WARP"]).d();
            match t.bits(78, 2) {
                0 => {
                    let number = t.bits(54, 4);
                    t.push(format!("{number:#x}"));
                }
                1 => {
                    t.target_if_kept(81);
                }
                _ => {}
            }
        }
        0x192 => membar(t),
        0x1ab => {
            t.name("ERRBAR");
        }
        0x1af => {
            t.name("LDGDEPBAR");
        }
        0x11a => scoreboard(t),
        0x001 => {
            t.name("PMTRIG").condition_unless_true(87);
            let mask = t.bits(32, 16);
            t.push(format!("{mask:#x}"));
        }
        0x14e => {
            t.name("LEPC").d();
        }
        0x1c0 => {
            t.name("GETLMEMBASE").d();
        }
        0x1c1 => {
            t.name("SETLMEMBASE").a(none);
        }
        _ => return None,
    }
    Some(())
}

fn branch(t: &mut Text) -> Option<()> {
    let form = t.form();
    let (name, relative) = match t.base() {
        0x147 => ("BRA", true),
        0x149 => ("BRX", true),
        0x14a => ("JMP", false),
        0x14c => ("JMX", false),
        0x143 => ("CALL", false),
        0x144 => ("CALL", true),
        _ => ("RET", !t.bit(85)),
    };
    t.name(name);
    match t.base() {
        0x143 => t.modifier("ABS").flag(86, "NOINC"),
        0x144 => t.modifier("REL").flag(86, "NOINC"),
        0x150 => t.choose(85, 1, &["REL", "ABS"]).flag(86, "NODEC"),
        _ => t.choose(85, 2, &["", "INC", "DEC"]),
    };
    let uniform = t.base() == 0x147 && t.bit(91);
    if matches!(t.base(), 0x147 | 0x14a) {
        t.choose(32, 2, &[if uniform { "INVALID0" } else { "" }, "U", "DIV", "CONV"]);
    }
    t.condition_unless_true(87);
    if uniform {
        let sign = if t.bit(30) { "~" } else { "" };
        let register = t.uniform(24);
        t.push(format!("{sign}{register}"));
    }
    if form == 5 {
        let constant = t.constant(false);
        t.push(constant);
        return Some(());
    }
    let by_register = matches!(t.base(), 0x149 | 0x14c | 0x150)
        || form == 1
        || matches!(t.base(), 0x143 | 0x144) && t.bit(91);
    if !by_register {
        let target = if relative { t.relative_target() } else { number::signed(t.branch_offset()) };
        t.push(target);
        return Some(());
    }
    let register = if t.bit(91) { t.uniform(24) } else { t.register(24) };
    let offset = match t.base() {
        0x150 if relative => t.relative_target(),
        _ => number::signed(t.branch_offset()),
    };
    let offset = if t.base() == 0x144 { t.relative_target() } else { offset };
    let hidden = t.base() == 0x143 && t.branch_offset() == 0;
    t.push(if hidden { register } else { format!("{register} {offset}") });
    Some(())
}

fn state_move(t: &mut Text) -> Option<()> {
    t.name("BMOV");
    match (t.base(), t.form()) {
        (0x155, 1) => {
            let source = state(t.bits(24, 6));
            t.modifier("32").flag(84, "CLEAR").d().push(source);
        }
        (0x155, 7) => {
            let source = match t.bits(24, 6) {
                number if number >= 16 || !t.bit(84) => format!("???{number}"),
                number => state(number),
            };
            let target = state(t.bits(16, 4));
            t.modifier("32").flag(84, "CLEAR").push(target).push(source);
        }
        (0x156, 7) => {
            let (target, source) = (state(t.bits(24, 6)), state(t.bits(16, 4)));
            t.modifier("32").flag(84, "PQUAD").push(target).push(source);
        }
        (0x156, _) => {
            let b = t.slot(Number::Pattern, Marks::default(), false);
            let target = state(t.bits(24, 6));
            t.modifier("32").flag(84, "PQUAD").push(target).push(b);
        }
        (_, _) => {
            let b = wide(t);
            t.modifier("64").push("ATEXIT_PC").push(b);
        }
    }
    Some(())
}

/// A source of 64 bits, whose immediate has 49 bits.
fn wide(t: &Text) -> String {
    if t.form() == 4 {
        // CAST: 49 bits are kept.
        return format!("{:#x}", (t.word >> 32) as u64 & ((1 << 49) - 4));
    }
    t.slot(Number::Pattern, Marks::default(), false)
}

fn counter_move(t: &mut Text) -> Option<()> {
    t.name("RPCMOV");
    match t.base() {
        0x152 => {
            let b = t.slot(Number::Pattern, Marks::default(), false);
            let half = if t.bit(31) { "Rpc.HI" } else { "Rpc.LO" };
            t.modifier("32").push(half).push(b);
        }
        0x153 => {
            let half = if t.bit(31) { "Rpc.HI" } else { "Rpc.LO" };
            t.modifier("32").d().push(half);
        }
        _ => {
            let b = wide(t);
            t.modifier("64").push("Rpc").push(b);
        }
    }
    Some(())
}

fn barrier(t: &mut Text) -> Option<()> {
    let mode = t.bits(77, 3);
    t.name("BAR");
    match mode {
        0 => t.modifier("SYNC"),
        1 => t.modifier("ARV"),
        2 => t.modifier("RED").choose(74, 2, &["POPC", "AND", "OR"]),
        3 => t.modifier("SCAN"),
        4 => t.modifier("SYNCALL"),
        _ => return None,
    };
    t.flag(80, "DEFER_BLOCKING");
    if mode == 4 {
        return Some(());
    }
    let immediate = format!("{:#x}", t.bits(54, 4));
    let count = format!("{:#x}", t.bits(42, 12));
    let (number, threads) = match t.form() {
        // One register holds both.
        1 => (t.register(32), Some(t.register(32))),
        2 => (t.register(32), Some(count)),
        4 => (immediate, Some(t.register(32))),
        _ => (immediate, Some(count)),
    };
    t.push(number);
    if let Some(threads) = threads
        && (mode == 3 || !matches!(threads.as_str(), "0x0" | "RZ"))
    {
        t.push(threads);
    }
    if matches!(mode, 2 | 3) {
        t.condition(87);
    }
    Some(())
}

fn membar(t: &mut Text) {
    t.name("MEMBAR").choose(79, 2, &["SC", "ALL", "", "MMIO"]);
    t.choose(76, 3, &["CTA", "SM", "GPU", "SYS", "INVALID4", "VC"]);
}

fn scoreboard(t: &mut Text) {
    t.name("DEPBAR");
    let listed: Vec<String> = (0..6).rev().filter(|bit| t.bit(32 + bit)).map(|bit| bit.to_string()).collect();
    if t.bit(47) {
        let number = t.bits(44, 3);
        let counter = if number < 6 { format!("SB{number}") } else { format!("INVALID{number}") };
        let count = t.bits(38, 6);
        t.modifier("LE").push(counter).push(format!("{count:#x}"));
    }
    if !listed.is_empty() {
        t.push(format!("{{{}}}", listed.join(",")));
    }
}
