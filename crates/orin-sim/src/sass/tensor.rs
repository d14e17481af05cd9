//! Products of matrices.

use super::{Marks, Number, Text};

pub(super) fn print(t: &mut Text) -> Option<()> {
    let none = Marks::default();
    match t.base() {
        0x03c => hmma(t),
        0x037 => imma(t),
        0x03d => {
            t.name("BMMA").choose(75, 2, &["88128", "168128", "168256"]);
            t.choose(77, 2, &["XOR", "INVALID1", "AND"]).choose(80, 1, &["???0", "POPC"]);
            rows_and_columns(t);
        }
        0x03f => {
            t.name("DMMA").choose(76, 1, &["884", "???1"]).choose(78, 2, &["", "RM", "RP", "RZ"]);
            let a = Marks { sign: t.minus(72), absolute: t.bit(73), ..none };
            let slot = Marks { sign: t.minus(63), absolute: t.bit(62), ..none };
            let upper = Marks { sign: t.minus(75), absolute: t.bit(74), ..none };
            let [b, c] = t.b_and_c(Number::Pattern, slot, upper);
            t.d().a(a).push(b).push(c);
            skip(t);
        }
        _ => return None,
    }
    Some(())
}

/// The uniform predicate that can switch the product off, where it is not always true.
fn skip(t: &mut Text) {
    // All bits of the number are stored inverted, so that 0 is UPT.
    if t.bits(87, 4) != 0 {
        let not = if t.bit(90) { "!" } else { "" };
        let text = match t.bits(87, 3) {
            0 => format!("{not}UPT"),
            number => format!("{not}UP{}", 7 - number),
        };
        t.push(text);
    }
}

fn rows_and_columns(t: &mut Text) {
    let a = t.marked(
        &t.register(24),
        Marks { suffix: if t.bit(73) { ".???1" } else { ".ROW" }, ..Marks::default() },
    );
    let b = t.marked(
        &t.register(32),
        Marks { suffix: if t.bit(74) { ".COL" } else { ".???0" }, ..Marks::default() },
    );
    let c = t.register(64);
    t.d().push(a).push(b).push(c);
    skip(t);
}

fn hmma(t: &mut Text) {
    t.name("HMMA");
    let sparse = t.bit(73);
    t.flag(73, "SP");
    let shape = t.bits(78, 1) << 1 | t.bits(75, 1);
    let text = match (sparse, shape) {
        (false, 0) => "1688",
        (false, 1) => "16816",
        (false, 2) => "1684",
        (true, 0) => "1688",
        (true, 1) => "16816",
        (true, 2) => "INVALID2",
        (true, _) => "16832",
        (false, _) => "INVALID3",
    };
    t.modifier(text).choose(76, 1, &["F16", "F32"]).choose(82, 2, &["", "BF16", "TF32"]);
    let a = Marks { sign: t.minus(72), ..Marks::default() };
    let b = t.marked(&t.register(32), Marks { sign: t.minus(63), ..Marks::default() });
    let c = t.register(64);
    t.d().a(a).push(b).push(c);
    skip(t);
    selector(t, sparse);
}

/// The register that says which elements of a sparse matrix are there.
fn selector(t: &mut Text, sparse: bool) {
    if sparse {
        let register = match t.bits(40, 8) {
            255 => "RZ".to_owned(),
            number => format!("R{number}"),
        };
        let which = t.bits(48, 2);
        t.push(register).push(format!("{which:#x}"));
    }
}

fn imma(t: &mut Text) {
    t.name("IMMA");
    let sparse = t.bit(72);
    t.flag(72, "SP");
    let shape = match (t.bits(85, 2), t.bit(75)) {
        (0, false) if sparse => "INVALID0",
        (1, true) if sparse => "8864",
        (2, false) if sparse => "INVALID4",
        (3, true) if sparse => "168128",
        (0, false) => "8816",
        (1, false) => "8832",
        (2, false) => "16816",
        (3, false) => "16864",
        (0, true) => "INVALID1",
        (1, true) => "INVALID3",
        (2, true) => "16832",
        _ => "INVALID7",
    };
    t.modifier(shape);
    for (sign, small) in [(76, 83), (78, 84)] {
        let kind = t.bits(sign, 2) | t.bits(small, 1) << 2;
        t.modifier(["U8", "S8", "INVALID2", "INVALID3", "U4", "S4", "INVALID6", "INVALID7"][kind as usize]);
    }
    t.flag(82, "SAT");
    rows_and_columns(t);
    selector(t, sparse);
}
