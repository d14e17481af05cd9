//! Floating-point operations and conversions.

use super::arithmetic::COMBINE;
use super::{Marks, Number, Text, number};

/// Comparisons of floating-point numbers.
const COMPARE: [&str; 16] =
    ["F", "LT", "EQ", "LE", "GT", "NE", "GE", "NUM", "NAN", "LTU", "EQU", "LEU", "GTU", "NEU", "GEU", "T"];
const ROUND: [&str; 4] = ["", "RM", "RP", "RZ"];
const ROUND_TO_INTEGER: [&str; 4] = ["", "FLOOR", "CEIL", "TRUNC"];
/// Which halves of a register an operation takes.
const HALVES: [&str; 4] = ["", ".F32", ".H0_H0", ".H1_H1"];

/// Marks with the sign and the absolute value in two bits.
fn marks(t: &Text, negative: u32, absolute: u32) -> Marks {
    Marks { sign: t.minus(negative), absolute: t.bit(absolute), suffix: "" }
}

pub(super) fn print(t: &mut Text) -> Option<()> {
    match t.base() {
        0x008..=0x00b | 0x020..=0x023 | 0x102 | 0x108 => single(t),
        0x028..=0x02b => double(t),
        0x030..=0x035 | 0x040 => half(t),
        0x03e | 0x043 | 0x045 | 0x104..=0x107 | 0x110..=0x113 => convert(t),
        _ => None,
    }
}

/// The second operand of an operation with two.
fn second(t: &Text, number: Number) -> String {
    t.slot(number, marks(t, 63, 62), false)
}

/// What becomes of numbers close to zero.
fn denormals(t: &mut Text) {
    match (t.bit(76), t.bit(80)) {
        (true, true) => t.modifier("INVALID3"),
        (true, false) => t.modifier("FMZ"),
        (false, true) => t.modifier("FTZ"),
        (false, false) => t,
    };
}

fn single(t: &mut Text) -> Option<()> {
    let a = marks(t, 72, 73);
    let b = second(t, Number::Single);
    match t.base() {
        0x021 => {
            t.name("FADD").flag(80, "FTZ").choose(78, 2, &ROUND).flag(77, "SAT").d().a(a).push(b);
        }
        0x020 => {
            t.name("FMUL");
            denormals(t);
            t.choose(84, 3, &["INVALID0", "D8", "D4", "D2", "", "M2", "M4", "M8"]);
            t.choose(78, 2, &ROUND).flag(77, "SAT").d().a(a).push(b);
        }
        0x023 => {
            t.name("FFMA");
            denormals(t);
            t.choose(78, 2, &ROUND).flag(77, "SAT");
            let [b, c] = t.b_and_c(Number::Single, marks(t, 63, 62), marks(t, 75, 74));
            t.d().a(a).push(b).push(c);
        }
        0x022 => {
            t.name("FSWZADD").flag(80, "FTZ").choose(78, 2, &ROUND).flag(77, "NDV").d().a(Marks::default());
            let b = t.register(64);
            let pairs = (0..4).rev().map(|pair| ["PP", "PN", "NP", "ZP"][t.bits(32 + 2 * pair, 2) as usize]);
            let swizzle: String = pairs.collect();
            t.push(b).push(swizzle);
        }
        0x009 => {
            t.name("FMNMX").flag(80, "FTZ").flag(81, "NAN").flag(82, "XORSIGN");
            t.d().a(a).push(b).condition(87);
        }
        0x008 => {
            t.name("FSEL").flag(80, "FTZ").d().a(a).push(b).condition(87);
        }
        0x00a => {
            t.name("FSET").modifier("BF").choose(76, 4, &COMPARE).flag(80, "FTZ").choose(74, 2, &COMBINE);
            t.d().a(a).push(b).condition(87);
        }
        0x00b => {
            t.name("FSETP").choose(76, 4, &COMPARE).flag(80, "FTZ").choose(74, 2, &COMBINE);
            t.target(81).target(84).a(a).push(b).condition(87);
        }
        0x102 => {
            t.name("FCHK").target(81).a(a).push(b);
        }
        0x108 => {
            const FUNCTIONS: [&str; 10] =
                ["COS", "SIN", "EX2", "LG2", "RCP", "RSQ", "RCP64H", "RSQ64H", "SQRT", "TANH"];
            t.name("MUFU").choose(74, 4, &FUNCTIONS).flag(73, "F16");
            let b = if t.bits(74, 4) & 0xe == 6 { second(t, Number::Double) } else { b };
            let b = match (t.bit(73), t.form()) {
                (true, 4) => number::immediate(t.bits(32, 16), Number::Half),
                (true, 5) => t.slot(Number::Single, marks(t, 63, 62), true),
                (true, _) => half_place(t, b),
                _ => b,
            };
            t.d().push(b);
        }
        _ => return None,
    }
    Some(())
}

/// The upper half of a register that holds two values of 16 bits.
fn half_place(t: &Text, operand: String) -> String {
    let place = match t.bits(60, 2) {
        1 if t.form() == 1 => ".H1",
        2 if t.form() == 1 => ".INVALID2",
        3 if t.form() == 1 => ".INVALID3",
        _ => return operand,
    };
    // Within the bars of an absolute value.
    match operand.strip_suffix('|') {
        Some(inside) => format!("{inside}{place}|"),
        None => operand + place,
    }
}

fn double(t: &mut Text) -> Option<()> {
    let a = marks(t, 72, 73);
    match t.base() {
        0x029 => {
            // Two registers stand in the places of the first and the third source.
            let b = if t.form() == 1 { t.upper(marks(t, 75, 74)) } else { second(t, Number::Double) };
            t.name("DADD").choose(78, 2, &ROUND).d().a(a).push(b);
        }
        0x028 => {
            let b = second(t, Number::Double);
            t.name("DMUL").choose(78, 2, &ROUND).d().a(a).push(b);
        }
        0x02b => {
            let [b, c] = t.b_and_c(Number::Double, marks(t, 63, 62), marks(t, 75, 74));
            t.name("DFMA").choose(78, 2, &ROUND).d().a(a).push(b).push(c);
        }
        _ => {
            let b = second(t, Number::Double);
            let mut compare = COMPARE;
            (compare[0], compare[15]) = ("MIN", "MAX");
            t.name("DSETP").choose(76, 4, &compare).choose(74, 2, &COMBINE);
            t.target(81).target(84).a(a).push(b).condition(87);
        }
    }
    Some(())
}

fn half(t: &mut Text) -> Option<()> {
    let brain = t.bit(85) && matches!(t.base(), 0x031 | 0x040);
    let fused_tensor = t.base() == 0x035;
    let number = if brain { Number::Brains } else { Number::Halves };
    let place = |t: &Text, low: u32| HALVES[t.bits(low, 2) as usize];
    let mut a = marks(t, 72, 73);
    let mut slot = marks(t, 63, 62);
    if !fused_tensor {
        a.suffix = place(t, 74);
        slot.suffix = place(t, 60);
    }
    match t.base() {
        0x030 | 0x032 => {
            let b = t.slot(number, slot, true);
            t.name(if t.base() == 0x030 { "HADD2" } else { "HMUL2" });
            t.flag(78, "F32");
            if t.base() == 0x032 {
                denormals(t);
            } else {
                t.flag(80, "FTZ");
            }
            t.flag(77, "SAT").d().a(a).push(b);
        }
        0x031 | 0x035 => {
            t.name("HFMA2");
            if fused_tensor {
                t.modifier("MMA");
            } else {
                t.flag(78, "F32");
            }
            if brain {
                t.modifier("BF16_V2");
            }
            denormals(t);
            t.flag(79, "RELU").flag(77, "SAT");
            let mut upper = marks(t, 84, 83);
            if !fused_tensor && t.bit(86) {
                slot.suffix = [".H0_NH1", ".INVALID5", ".INVALID6", ".INVALID7"][t.bits(60, 2) as usize];
            }
            if !fused_tensor {
                upper.suffix = place(t, 81);
            }
            let [b, c] = if t.is_swapped() {
                // The modifiers belong to the places of the sources.
                [t.upper(upper), t.slot(number, slot, !fused_tensor)]
            } else {
                [t.slot(number, slot, !fused_tensor), t.upper(upper)]
            };
            t.d().a(a).push(b).push(c);
            if t.bit(79) {
                t.condition_unless_true(87);
            }
        }
        0x033 | 0x034 => {
            let b = t.slot(number, slot, true);
            let predicate = t.base() == 0x034;
            t.name(if predicate { "HSETP2" } else { "HSET2" });
            if !predicate {
                t.flag(71, "BF");
            }
            t.choose(76, 4, &COMPARE).flag(80, "FTZ");
            if predicate {
                t.flag(71, "H_AND");
            }
            t.choose(69, 2, &COMBINE);
            if predicate {
                t.target(81).target(84);
            } else {
                t.d();
            }
            t.a(a).push(b).condition(87);
        }
        _ => {
            let b = t.slot(number, slot, true);
            t.name("HMNMX2");
            if brain {
                t.modifier("BF16_V2");
            }
            t.flag(80, "FTZ").flag(81, "NAN").flag(82, "XORSIGN").d().a(a).push(b).condition(87);
        }
    }
    Some(())
}

/// Name of a floating-point type by the logarithm of its bytes.
const FLOATS: [&str; 4] = ["???0", "F16", "F32", "F64"];

fn convert(t: &mut Text) -> Option<()> {
    let (target, source) = (t.bits(75, 2), t.bits(84, 2));
    let number = if source == 3 { Number::Double } else { Number::Single };
    let b = t.slot(number, marks(t, 63, 62), source == 1);
    match t.base() {
        0x105 | 0x111 => {
            let signed = t.bit(72);
            t.name("F2I").flag(80, "FTZ");
            let kind = match (signed, target) {
                (true, 2) => String::new(),
                (true, 3) if t.base() == 0x105 => "???7".to_owned(),
                (false, 3) if t.base() == 0x105 => "???6".to_owned(),
                (true, size) => format!("S{}", 8 << size),
                (false, size) => format!("U{}", 8 << size),
            };
            t.modifier(&kind);
            if source != 2 {
                t.modifier(FLOATS[source as usize]);
            }
            t.choose(78, 2, &ROUND_TO_INTEGER).flag(77, "NTZ");
            let b = if source == 1 { half_place(t, b) } else { b };
            t.d().push(b);
        }
        0x106 | 0x112 => {
            t.name("I2F");
            if target != 2 {
                let name = if target == 3 && t.base() == 0x106 { "???3" } else { FLOATS[target as usize] };
                t.modifier(name);
            }
            let signed = t.bit(74);
            let kind = match (signed, source) {
                (true, 2) => String::new(),
                (true, size) => format!("S{}", 8 << size),
                (false, size) => format!("U{}", 8 << size),
            };
            t.modifier(&kind).choose(78, 2, &ROUND);
            let b = t.slot(Number::Pattern, Marks::default(), source < 2);
            let b = match (source, t.bits(60, 2)) {
                (0, place @ 1..) => format!("{b}.B{place}"),
                (1, _) => half_place(t, b),
                _ => b,
            };
            t.d().push(b);
        }
        0x045 => {
            t.name("I2FP").choose(75, 3, &["???0", "???1", "F32", "???3", "???4", "???5", "???6", "???7"]);
            let kind = t.bits(84, 2) << 1 | t.bits(74, 1);
            t.modifier(["???0", "???1", "???2", "???3", "U32", "S32", "???6", "???7"][kind as usize]);
            t.choose(78, 2, &["", "INVALID1", "INVALID2", "RZ"]);
            let b = t.slot(Number::Pattern, Marks::default(), false);
            t.d().push(b);
        }
        0x104 | 0x110 => {
            // The names of both types, but single precision to bfloat16 has bits of its own.
            let name = if t.bit(77) { "BF16" } else { FLOATS[target as usize] };
            t.name("F2F").flag(80, "FTZ").modifier(name).modifier(FLOATS[source as usize]);
            t.choose(78, 2, &ROUND).d().push(b);
        }
        0x107 | 0x113 => {
            t.name("FRND").flag(80, "FTZ");
            if target != 2 {
                t.modifier(FLOATS[target as usize]);
            }
            t.choose(78, 2, &ROUND_TO_INTEGER);
            let b = if source == 1 { half_place(t, b) } else { b };
            t.d().push(b);
        }
        0x03e => {
            t.name("F2FP").flag(77, "SATFINITE").flag(75, "RELU");
            t.modifier(match (t.bit(86), t.bit(76)) {
                (false, true) if t.bit(78) && t.bit(81) => "???1",
                (false, true) => "BF16",
                (false, false) => "",
                (true, true) => "INVALID3",
                (true, false) => "INVALID2",
            });
            t.modifier(if t.bit(78) { "MERGE_C" } else { "PACK_AB" });
            t.choose(79, 3, &["", "INVALID1", "INVALID2", "RZ", "RS.7b"]);
            let a = Marks::default();
            let [b, c] = t.b_and_c(Number::Single, a, a);
            t.d();
            if !t.bit(78) || t.bit(81) {
                t.a(a);
            }
            t.push(b);
            if t.bit(78) || t.bit(81) {
                t.push(c);
            }
        }
        _ => {
            t.name("F2IP").choose(76, 2, &["U8", "S8"]).modifier("F32").choose(
                78,
                2,
                &["", "INVALID1", "INVALID2", "TRUNC"],
            );
            t.flag(74, "NTZ").flag(75, "RELU");
            // The upper half of the third source, wherever that stands.
            let third = Marks { suffix: if t.bit(72) { ".H1" } else { "" }, ..Marks::default() };
            let none = Marks::default();
            let (slot, upper) = if t.is_swapped() { (third, none) } else { (none, third) };
            let (slot, upper) = (t.slot(Number::Single, slot, t.is_swapped()), t.upper(upper));
            let [b, c] = if t.is_swapped() { [upper, slot] } else { [slot, upper] };
            t.d().a(Marks::default()).push(b).push(c);
        }
    }
    Some(())
}
