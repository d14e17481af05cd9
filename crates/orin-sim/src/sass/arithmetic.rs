//! Integer operations, moves, selections and predicates, of the vector and the uniform datapath.

use super::{Marks, Number, Text};

/// Comparisons of integers.
const COMPARE: [&str; 8] = ["F", "LT", "EQ", "LE", "GT", "NE", "GE", "T"];
/// Combinations of two predicates.
pub(super) const COMBINE: [&str; 3] = ["AND", "OR", "XOR"];
const BYTES: [&str; 4] = ["", ".B1", ".B2", ".B3"];

/// Marks with a sign only.
fn signed(sign: &'static str) -> Marks {
    Marks { sign, ..Marks::default() }
}

/// Marks with a suffix only.
fn suffixed(suffix: &'static str) -> Marks {
    Marks { suffix, ..Marks::default() }
}

pub(super) fn print(t: &mut Text) -> Option<()> {
    let prefix = if t.is_uniform() { "U" } else { "" };
    t.name.push_str(prefix);
    let known = match t.base() {
        0x010 | 0x090 | 0x097 => add3(t),
        0x024..=0x027 | 0x0a4 | 0x0a5 => multiply(t),
        0x011 | 0x091 => lea(t),
        0x012 | 0x092 => lop3(t),
        0x019 | 0x099 => shift(t),
        0x00c | 0x08c => compare(t),
        0x01c..=0x01f | 0x09c..=0x09f => plop3(t),
        _ => simple(t),
    };
    if known.is_none() {
        t.name.clear();
    }
    known
}

fn add3(t: &mut Text) -> Option<()> {
    t.name("IADD3");
    if t.base() == 0x097 {
        t.modifier("64");
    }
    let extended = t.bit(74);
    t.flag(74, "X");
    let minus = if extended { "~" } else { "-" };
    let sign = |set: bool| signed(if set { minus } else { "" });
    let (a, slot, upper) = (sign(t.bit(72)), sign(t.bit(63)), sign(t.bit(75)));
    t.d().target_if_kept(81).target_if_kept(84).a(a);
    let [b, c] = t.b_and_c(Number::Signed, slot, upper);
    t.push(b).push(c);
    if extended {
        t.condition(87).condition(77);
    }
    Some(())
}

fn multiply(t: &mut Text) -> Option<()> {
    if t.base() == 0x026 {
        return dot(t);
    }
    t.name("IMAD");
    let wide = matches!(t.base(), 0x025 | 0x0a5);
    let high = t.base() == 0x027;
    let low = !wide && !high;
    if wide {
        t.modifier("WIDE");
    } else if high {
        t.modifier("HI");
    }
    let extended = t.bit(74);
    if low && !t.is_uniform() && !extended {
        t.modifier(multiply_alias(t));
    }
    if !t.bit(73) {
        t.modifier("U32");
    }
    t.flag(74, "X");
    let minus = if extended { "~" } else { "-" };
    let third = if t.bit(75) { minus } else { "" };
    // The sign of the third source lies where that source is.
    let in_slot = if t.bit(63) { minus } else { "" };
    let (slot, upper) = if t.is_swapped() { (in_slot, "") } else { ("", third) };
    let (slot, upper) = (signed(slot), signed(upper));
    t.d();
    if !low {
        t.target_if_kept(81);
    }
    t.a(signed(""));
    let [b, c] = t.b_and_c(Number::Signed, slot, upper);
    t.push(b).push(c);
    if extended {
        t.condition(87);
    }
    Some(())
}

/// The name that a multiplication with a trivial factor is written with.
fn multiply_alias(t: &Text) -> &'static str {
    let zero = |low| t.bits(low, 8) == 255;
    if matches!(t.form(), 3 | 5..=7) && t.bit(91) {
        return "";
    }
    let b_is_zero = match t.form() {
        1 => zero(32),
        2 | 3 | 7 => zero(64),
        4 => t.bits(32, 32) == 0,
        _ => false,
    };
    if zero(24) || b_is_zero {
        return "MOV";
    }
    if t.form() == 4 {
        match t.bits(32, 32) {
            1 if zero(64) => return "MOV",
            1 => return "IADD",
            // A factor of 2^16 is no shift, for whatever reason.
            factor if factor.is_power_of_two() && !matches!(factor, 0x1_0000 | 0x8000_0000) && zero(64) => {
                return "SHL";
            }
            _ => {}
        }
    }
    ""
}

fn dot(t: &mut Text) -> Option<()> {
    t.name("IDP");
    if t.bit(76) {
        t.modifier("2A").choose(77, 1, &["LO", "HI"]);
        t.choose(73, 1, &["U16", "S16"]);
    } else {
        t.modifier("4A").choose(73, 1, &["U8", "S8"]);
    }
    t.choose(74, 1, &["U8", "S8"]);
    let upper = signed(t.minus(75));
    t.d().a(signed(""));
    let [b, c] = t.b_and_c(Number::Signed, signed(""), upper);
    t.push(b).push(c);
    Some(())
}

fn lea(t: &mut Text) -> Option<()> {
    t.name("LEA");
    t.flag(80, "HI").flag(74, "X").flag(73, "SX32");
    let minus = if t.bit(74) { "~" } else { "-" };
    let sign = |set: bool| signed(if set { minus } else { "" });
    let (a, slot) = (sign(t.bit(72)), sign(t.bit(63) && !matches!(t.form(), 2 | 4)));
    t.d().target_if_kept(81).a(a);
    let [b, c] = t.b_and_c(Number::Pattern, slot, signed(""));
    t.push(b);
    // The third source is the upper half of a shifted pair.
    if t.bit(80) && !t.bit(73) {
        t.push(c);
    }
    let shift = t.bits(75, 5);
    t.push(format!("{shift:#x}"));
    if t.bit(74) {
        t.condition(87);
    }
    Some(())
}

fn lop3(t: &mut Text) -> Option<()> {
    t.name("LOP3").modifier("LUT").flag(80, "PAND");
    t.target_if_kept(81).d().a(signed(""));
    let [b, c] = t.b_and_c(Number::Pattern, signed(""), signed(""));
    let table = t.bits(72, 8);
    t.push(b).push(c).push(format!("{table:#x}")).condition(87);
    Some(())
}

fn shift(t: &mut Text) -> Option<()> {
    t.name("SHF").choose(76, 1, &["L", "R"]).flag(75, "W");
    t.choose(73, 2, &["S64", "U64", "S32", "U32"]).flag(80, "HI");
    t.d().a(signed(""));
    let [b, c] = t.b_and_c(Number::Pattern, signed(""), signed(""));
    t.push(b).push(c);
    Some(())
}

fn compare(t: &mut Text) -> Option<()> {
    t.name("ISETP").choose(76, 3, &COMPARE).flag_not(73, "U32").choose(74, 2, &COMBINE).flag(72, "EX");
    t.target(81).target(84).a(signed(""));
    let b = t.slot(Number::Signed, signed(""), false);
    t.push(b).condition(87);
    if t.bit(72) {
        t.condition(68);
    }
    Some(())
}

fn plop3(t: &mut Text) -> Option<()> {
    t.name("PLOP3").modifier("LUT").target(81).target(84);
    let kinds = t.base() & 3;
    let sign = |text: String| format!("{text}.SIGN");
    let (table, second);
    if kinds == 0 {
        if t.form() != 4 {
            return None;
        }
        t.condition(87).condition(77);
        let third = t.predicate_of(68, t.is_uniform() || t.bit(67), true);
        t.push(third);
        table = t.bits(72, 5) << 3 | t.bits(64, 3);
        second = t.bits(16, 8);
    } else {
        if kinds == 3 {
            let first = sign(t.own(24));
            t.push(first);
        } else {
            t.condition(87);
        }
        let middle = sign(t.slot(Number::Pattern, signed(""), true));
        t.push(middle);
        if kinds == 1 {
            t.condition(68);
        } else {
            let third = sign(t.own(64));
            t.push(third);
        }
        table = t.bits(72, 8);
        second = t.bits(16, 8);
    }
    t.push(format!("{table:#x}")).push(format!("{second:#x}"));
    Some(())
}

/// Operations with a regular list of operands.
fn simple(t: &mut Text) -> Option<()> {
    let none = signed("");
    let complement = signed(if t.bit(63) { "~" } else { "" });
    let slot = |t: &Text, number| t.slot(number, none, false);
    match t.base() {
        0x002 => {
            let mask = t.bits(72, 4);
            let b = slot(t, Number::Pattern);
            t.name("MOV").d().push(b);
            if mask != 15 {
                t.push(format!("{mask:#x}"));
            }
        }
        0x082 => {
            let b = slot(t, Number::Pattern);
            t.name("MOV").d().push(b);
        }
        0x007 | 0x087 => {
            let b = slot(t, Number::Pattern);
            t.name("SEL").d().a(none).push(b).condition(87);
        }
        0x016 | 0x096 => {
            t.name("PRMT");
            if t.base() == 0x016 {
                t.choose(72, 3, &["", "F4E", "B4E", "RC8", "ECL", "ECR", "RC16"]);
            }
            let [b, c] = t.b_and_c(Number::Pattern, none, none);
            t.d().a(none).push(b).push(c);
        }
        0x017 => {
            let b = slot(t, Number::Signed);
            t.name("IMNMX").flag_not(73, "U32").d().a(none).push(b).condition(87);
        }
        0x01a | 0x09a => {
            let b = slot(t, Number::Pattern);
            t.name("SGXT").flag(75, "W").flag_not(73, "U32").d().a(none).push(b);
        }
        0x01b | 0x09b => {
            let b = slot(t, Number::Pattern);
            t.name("BMSK").flag(75, "W").d().a(none).push(b);
        }
        0x013 => {
            let b = slot(t, Number::Pattern);
            t.name("IABS").d().push(b);
        }
        0x100 | 0x0bd => {
            let b = t.slot(Number::Pattern, complement, false);
            t.name("FLO").flag_not(73, "U32").flag(74, "SH").d().target_if_kept(81).push(b);
        }
        0x101 | 0x0be => {
            let b = slot(t, Number::Pattern);
            t.name("BREV").d().push(b);
        }
        0x109 | 0x0bf => {
            let b = t.slot(Number::Pattern, complement, false);
            t.name("POPC").d().push(b);
        }
        0x014 | 0x015 => {
            let [b, c] = t.b_and_c(Number::Pattern, none, none);
            if t.base() == 0x014 {
                t.name("VABSDIFF").flag_not(73, "U32");
            } else {
                t.name("VABSDIFF4").flag_not(73, "U8").flag(75, "ACC");
            }
            t.d().target_if_kept(81).a(none).push(b).push(c);
        }
        0x02c => {
            let [b, c] = t.b_and_c(Number::Pattern, none, none);
            t.name("CLMAD").choose(77, 1, &["LO", "HI"]).d().a(none).push(b).push(c);
        }
        0x038 => {
            let b = slot(t, Number::Signed);
            t.name("I2I").choose(76, 2, &["U8", "S8", "U16", "S16"]).modifier("S32").modifier("SAT");
            t.d().push(b);
        }
        0x039 => {
            const TYPES: [&str; 8] = ["U8", "S8", "U16", "S16", "U2", "S2", "U4", "S4"];
            let kind = TYPES[t.bits(76, 3) as usize];
            t.name("I2IP").modifier(kind);
            t.modifier("S32").choose(74, 2, &["SAT", "", "SATRELU"]);
            let places = match t.bits(77, 2) {
                2 => [".???0", ".???1", ".???2", ".28"],
                3 => [".???0", ".???1", ".24", ".???3"],
                _ => ["", ".H1", ".???2", ".???3"],
            };
            let place = places[t.bits(72, 2) as usize];
            let upper = suffixed(place);
            let [b, c] = t.b_and_c(Number::Pattern, none, upper);
            t.d().a(none).push(b).push(c);
        }
        0x003 | 0x083 => {
            let number = if t.is_uniform() { Number::Pattern } else { Number::Signed };
            let b = slot(t, number);
            let list = if t.is_uniform() { "UPR" } else { "PR" };
            t.name = if t.is_uniform() { "UP2UR" } else { "P2R" }.to_owned();
            t.choose(76, 2, &["", "B1", "B2", "B3"]).d().push(list).a(none).push(b);
        }
        0x004 | 0x084 => {
            let b = slot(t, Number::Pattern);
            let list = if t.is_uniform() { "UPR" } else { "PR" };
            t.name = if t.is_uniform() { "UR2UP" } else { "R2P" }.to_owned();
            let byte = suffixed(BYTES[t.bits(76, 2) as usize]);
            t.push(list).a(byte).push(b);
        }
        0x006 => {
            t.name("VOTE").choose(72, 2, &["ALL", "ANY", "EQ"]);
            if t.bits(16, 8) != 255 {
                t.d();
            }
            t.target(81).condition(87);
        }
        0x086 => {
            t.name = "VOTEU".to_owned();
            t.choose(72, 2, &["ALL", "ANY", "EQ"]);
            let condition = t.predicate_of(87, false, true);
            t.d().target(81).push(condition);
        }
        0x0bc => {
            let b = match t.form() {
                4 => format!("{:#x}", t.bits(32, 16)),
                _ => t.uniform(32),
            };
            let shift = t.bits(73, 4);
            t.name("CLEA").d().target(81).a(none).push(b).push(format!("{shift:#x}"));
        }
        0x1a1 => {
            t.name("MATCH").choose(79, 1, &["ALL", "ANY"]).flag(73, "U64");
            if !t.bit(79) {
                t.target(81);
            }
            t.d().a(none);
        }
        0x1c4 => {
            let (d, a) = (t.uniform(16), t.register(24));
            t.name("REDUX").choose(78, 3, &["", "OR", "XOR", "SUM", "MIN", "MAX"]).flag(73, "S32");
            t.push(d).push(a);
        }
        0x1c2 => {
            let (d, a) = (t.uniform(16), t.register(24));
            t.name("R2UR").flag(84, "OR");
            if t.bit(84) {
                t.target(81);
            } else {
                t.target_if_kept(81);
            }
            t.push(d).push(a);
        }
        0x03a => {
            t.name("MOVM").modifier("16").choose(78, 2, &["MT88", "M832", "M864"]).d().a(none);
        }
        0x189 => shuffle(t),
        _ => return None,
    }
    Some(())
}

fn shuffle(t: &mut Text) {
    let form = t.form();
    // Lane and mask are registers or immediates, each by its own.
    let (lane_is_register, mask_is_register) = (matches!(form, 1 | 2), matches!(form, 1 | 4));
    let lane = if lane_is_register { t.register(32) } else { format!("{:#x}", t.bits(53, 5)) };
    let mask = if mask_is_register { t.register(64) } else { format!("{:#x}", t.bits(40, 13)) };
    t.name("SHFL").choose(58, 2, &["IDX", "UP", "DOWN", "BFLY"]);
    t.target(81).d().a(Marks::default()).push(lane).push(mask);
}
