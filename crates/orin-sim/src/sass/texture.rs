//! Textures and surfaces.

use super::Text;
use super::memory::{EVICT, ORDER_OF_LOADS, SIZE, strong_order};

pub(super) fn print(t: &mut Text) -> Option<()> {
    match (t.base(), t.form()) {
        (0x160, 5) | (0x161, 1) => {
            t.name("TEX");
            place(t);
            precision(t).choose(87, 3, &["", "LZ", "LB", "LL", "LC", "LB.LC", "LC.FDV"]);
            t.flag(76, "AOFFI").choose(84, 3, &EVICT).flag(77, "NDV").flag(78, "DC");
            operands(t, &["1D", "2D", "3D", "CUBE", "ARRAY_1D", "ARRAY_2D", "INVALID6", "ARRAY_CUBE"]);
        }
        (0x163, 5) | (0x164, 1) => {
            t.name("TLD4").flag(60, "SCR").choose(87, 2, &["R", "G", "B", "A"]);
            handle(t);
            precision(t).flag(76, "AOFFI").choose(84, 3, &EVICT).flag(77, "PTP").flag(78, "DC");
            let kinds =
                ["INVALID0", "2D", "INVALID2", "CUBE", "INVALID4", "ARRAY_2D", "INVALID6", "ARRAY_CUBE"];
            operands(t, &kinds);
        }
        (0x166, 5) | (0x167, 1) => {
            t.name("TLD");
            place(t);
            precision(t).choose(87, 3, &["INVALID0", "LZ", "INVALID2", "LL"]);
            t.flag(76, "AOFFI").choose(84, 3, &EVICT).flag(77, "CL").flag(78, "MS");
            operands(t, &["1D", "2D", "3D", "INVALID3", "ARRAY_1D", "ARRAY_2D"]);
        }
        (0x16c, 5) | (0x16d, 1) => {
            t.name("TXD");
            handle(t);
            precision(t).flag(87, "LC").flag(76, "AOFFI").choose(84, 3, &EVICT);
            operands(t, &["1D", "2D", "INVALID2", "INVALID3", "ARRAY_1D", "ARRAY_2D"]);
        }
        (0x16f, 5) | (0x170, 1) => query(t),
        (0x199, 5) | (0x19a, 4) => {
            surface(t, "SULD");
            t.choose(84, 3, &EVICT).choose(73, 3, &SIZE).choose(77, 4, &ORDER_OF_LOADS);
            trap(t).target_if_kept(81).d();
            let address = format!("[{}]", t.register(24));
            t.push(address);
            surface_place(t);
        }
        (0x19d, 5) | (0x19e, 4) => {
            surface(t, "SUST");
            t.choose(84, 3, &EVICT).choose(73, 3, &SIZE);
            strong_order(t);
            trap(t);
            surface_address(t);
        }
        (0x19f, 2) | (0x1a0, 1) => {
            let types = ["", "S32", "U64", "F32.FTZ.RN", "F16x2.RN", "S64", "SD32", "SD64"];
            surface(t, "SURED");
            t.choose(87, 3, &["ADD", "MIN", "MAX", "INC", "DEC", "AND", "OR", "XOR"]);
            t.choose(84, 3, &EVICT).choose(73, 3, &types);
            strong_order(t);
            trap(t);
            surface_address(t);
        }
        _ => return None,
    }
    Some(())
}

/// Scores and the kind of handle: in a register, or in a constant bank.
fn place(t: &mut Text) {
    t.flag(60, "SCR");
    handle(t);
}

fn handle(t: &mut Text) {
    if t.form() == 1 {
        t.choose(59, 1, &["???0", "B"]);
    } else {
        t.flag(59, "B");
    }
}

fn precision(t: &mut Text) -> &mut Text {
    t.choose(79, 2, &["", "F16.RN", "F16.RZ"])
}

fn bank_and_offset(t: &mut Text) {
    let (bank, offset) = (t.bits(54, 5), t.bits(40, 14));
    t.push(format!("{bank:#x}")).push(format!("{offset:#x}"));
}

/// Both destinations, the sources, the handle, the kind of texture and the mask of components.
fn operands(t: &mut Text, kinds: &[&str]) {
    t.flag(90, "NODEP").target_if_kept(81);
    let (upper, second) = (t.register(64), t.register(32));
    t.push(upper).d().a(super::Marks::default());
    // A load without a level and without a handle has nothing in its second source.
    let absent = t.base() == 0x166 && !t.bit(59) && t.bits(32, 8) == 255;
    if !absent {
        t.push(second);
    }
    if t.form() == 5 {
        bank_and_offset(t);
    }
    let kind = t.bits(61, 3);
    let text = kinds.get(kind as usize).map_or_else(|| format!("INVALID{kind}"), |kind| (*kind).to_owned());
    t.push(text);
    mask(t, true);
}

fn mask(t: &mut Text, full_is_hidden: bool) {
    let mask = t.bits(72, 4);
    if mask != 15 || !full_is_hidden {
        t.push(format!("{mask:#x}"));
    }
}

fn query(t: &mut Text) {
    let what = t.bits(62, 2);
    t.name("TXQ");
    handle(t);
    t.flag(90, "NODEP");
    let upper = t.register(64);
    t.push(upper).d().a(super::Marks::default());
    let names = ["TEX_HEADER_DIMENSION", "TEX_HEADER_TEXTURE_TYPE", "TEX_HEADER_SAMPLER_POS", "INVALID3"];
    t.push(names[what as usize]);
    if t.form() == 5 {
        bank_and_offset(t);
    }
    mask(t, true);
}

fn surface(t: &mut Text, name: &str) {
    t.name(name).modifier("D").flag(72, "BA");
    t.choose(61, 3, &["1D", "1D_BUFFER", "1D_ARRAY", "2D", "2D_ARRAY", "3D"]);
}

/// What an access outside does.
fn trap(t: &mut Text) -> &mut Text {
    t.choose(59, 2, &["IGN", "", "TRAP"])
}

fn surface_place(t: &mut Text) {
    if matches!(t.form(), 2 | 5) {
        bank_and_offset(t);
    } else {
        let handle = t.register(64);
        t.push(handle);
    }
}

fn surface_address(t: &mut Text) {
    let (address, data) = (format!("[{}]", t.register(24)), t.register(32));
    t.push(address).push(data);
    surface_place(t);
}
