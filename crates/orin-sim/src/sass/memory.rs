//! Loads, stores, atomics and cache control.

use super::{Text, number};

pub(super) const EVICT: [&str; 6] = ["EF", "", "EL", "LU", "EU", "NA"];
pub(super) const SIZE: [&str; 7] = ["U8", "S8", "U16", "S16", "", "64", "128"];
const PREFETCH: [&str; 4] = ["", "LTC64B", "LTC128B", "LTC256B"];
pub(super) const ORDER_OF_LOADS: [&str; 16] = [
    "",
    "CONSTANT.PRIVATE",
    "CONSTANT.CTA",
    "CONSTANT.CTA.PRIVATE",
    "CONSTANT",
    "STRONG.SM",
    "STRONG.GPU.PRIVATE",
    "STRONG.GPU",
    "MMIO.GPU",
    "CONSTANT.SM",
    "STRONG.SYS",
    "CONSTANT.SM.PRIVATE",
    "MMIO.SYS",
    "CONSTANT.VC",
    "CONSTANT.VC.PRIVATE",
    "CONSTANT.GPU",
];
const ORDER_OF_COPIES: [&str; 16] = [
    "",
    "CONSTANT.PRIVATE",
    "CONSTANT.CTA",
    "CONSTANT.CTA.PRIVATE",
    "CONSTANT",
    "MMIO.CTA",
    "GPU.PRIVATE",
    "MMIO.CTA.PRIVATE",
    "MMIO.SM",
    "CONSTANT.SM",
    "MMIO.VC",
    "CONSTANT.SM.PRIVATE",
    "MMIO.GPU",
    "CONSTANT.VC",
    "CONSTANT.VC.PRIVATE",
    "CONSTANT.GPU",
];
const ATOMIC: [&str; 10] = ["ADD", "MIN", "MAX", "INC", "DEC", "AND", "OR", "XOR", "EXCH", "SAFEADD"];
const ATOMIC_TYPE: [&str; 7] = ["", "S32", "64", "F32.FTZ.RN", "F16x2.RN", "S64", "F64.RN"];

pub(super) fn print(t: &mut Text) -> Option<()> {
    match t.base() {
        0x180 | 0x181 => load(t),
        0x185 | 0x186 => store(t),
        0x183 | 0x187 | 0x184 | 0x188 => window(t),
        0x182 | 0x0b8 | 0x0b9 | 0x0bb => constant(t)?,
        0x1ae => copy(t),
        0x18a | 0x1a8 | 0x18e => atomic(t),
        0x18b | 0x1a9 => compare_and_swap(t),
        0x18c | 0x18d => shared_atomic(t)?,
        0x1aa => query(t),
        0x1b0 => {
            t.name("ARRIVES").choose(72, 1, &["LDGSTSBAR", "???1"]);
            let kind = t.bits(73, 3);
            t.modifier(&if kind == 5 { "64".to_owned() } else { format!("???{kind}") });
            let address = Address { uniform: t.bit(91).then_some(64), ..Address::new(t) }.text(t);
            t.push(address);
        }
        0x03b => {
            t.name("LDSM").modifier("16").choose(78, 2, &["M88", "MT88", "M816", "M832"]);
            t.choose(72, 2, &["", "2", "4"]).d();
            let address = Address { uniform: t.bit(91).then_some(32), ..Address::new(t) }.text(t);
            t.push(address);
        }
        0x18f => cache(t)?,
        _ => return None,
    }
    Some(())
}

/// An address in brackets.
struct Address {
    /// Written behind the register: the width, or the stride.
    suffix: String,
    /// Where the uniform register stands, if there is one.
    uniform: Option<u32>,
    /// Where a descriptor stands, if there is one.
    descriptor: Option<u32>,
    offset: i64,
    /// Whether RZ is written beside a uniform register.
    keep_zero: bool,
    /// The bits that the offset has.
    offset_mask: i64,
}

impl Address {
    /// Register and offset of 24 bits.
    fn new(t: &Text) -> Self {
        let offset = i64::from(t.bits(40, 24).cast_signed() << 8 >> 8);
        Self {
            suffix: String::new(),
            uniform: None,
            descriptor: None,
            offset,
            keep_zero: false,
            offset_mask: 0xff_ffff,
        }
    }

    /// The address of a global or generic access.
    fn global(t: &Text, descriptor: u32, uniform: u32) -> Self {
        let mut address = Self::new(t);
        if t.form() == 1 {
            return address;
        }
        if !t.bit(91) {
            if uniform == 32 {
                // There is no uniform register, and the offset takes its place.
                address.offset = t.bits(32, 32).cast_signed().into();
                address.offset_mask = 0xffff_ffff;
            }
            return address;
        }
        // Atomics with a result use bit 90 for the operation.
        let wide = match t.base() {
            0x18a | 0x1a8 => t.bit(70),
            0x1ae => true,
            _ => t.bit(90),
        };
        let described = t.bit(101) && t.bit(descriptor);
        if !t.bit(descriptor) || t.base() == 0x1aa {
            address.uniform = Some(uniform);
        }
        if described {
            (address.uniform, address.descriptor) = (None, Some(uniform));
        }
        address.suffix = if wide { ".64" } else { ".U32" }.to_owned();
        address
    }

    fn text(&self, t: &Text) -> String {
        let mut inside = String::new();
        let zero = t.bits(24, 8) == 255;
        if !zero || self.keep_zero {
            let register = t.register(24);
            inside.push_str(&register);
            inside.push_str(&self.suffix);
        }
        if let Some(low) = self.uniform {
            if !inside.is_empty() {
                inside.push('+');
            }
            inside.push_str(&t.uniform(low));
        }
        match (inside.is_empty(), self.offset) {
            (true, 0) => {
                inside.push_str("RZ");
                if self.suffix == ".64" {
                    inside.push_str(&self.suffix);
                }
            }
            // Without a register the bits are a number of their own.
            (true, offset) => inside = format!("{:#x}", offset & self.offset_mask),
            (false, 0) => {}
            (false, offset) => {
                inside.push('+');
                inside.push_str(&number::signed(offset));
            }
        }
        match self.descriptor {
            Some(low) => format!("desc[{}][{inside}]", t.uniform(low)),
            None => format!("[{inside}]"),
        }
    }
}

/// The mark of an address of 64 bits; an address register of 64 bits without it is a contradiction.
fn extended(t: &mut Text) -> &mut Text {
    let wide = t.form() != 1 && t.bit(91) && (t.bit(90) || matches!(t.base(), 0x18a | 0x1a8));
    match (t.bit(72), wide) {
        (true, _) => t.modifier("E"),
        (false, true) => t.modifier("???0"),
        (false, false) => t,
    }
}

fn load(t: &mut Text) {
    t.name(if t.base() == 0x180 { "LD" } else { "LDG" });
    extended(t).choose(84, 3, &EVICT).choose(68, 2, &PREFETCH).choose(73, 3, &SIZE);
    t.choose(77, 4, &ORDER_OF_LOADS);
    if t.base() == 0x181 {
        t.target_if_kept(81);
    }
    t.d();
    let address = Address::global(t, 76, 32).text(t);
    t.push(address);
    // This predicate's inversion is the other way round: dropped when 0.
    if t.bits(64, 4) != 0 {
        let index = t.bits(64, 3) ^ 7;
        let name = if index == 7 { "PT".to_owned() } else { format!("P{index}") };
        let not = if t.bit(67) { "!" } else { "" };
        t.push(format!("{not}{name}"));
    }
}

/// The order of accesses that have no weak read-only variant.
pub(super) fn strong_order(t: &mut Text) {
    let mut order = ORDER_OF_LOADS;
    order[4] = "STRONG.SM.PRIVATE";
    t.choose(77, 4, &order);
}

fn store(t: &mut Text) {
    t.name(if t.base() == 0x185 { "ST" } else { "STG" });
    extended(t).choose(84, 3, &EVICT).choose(73, 3, &SIZE);
    strong_order(t);
    // A generic store to a 32-bit address keeps the data elsewhere and has a longer offset.
    let short = t.form() == 1 && t.base() == 0x185;
    let mut address = Address::global(t, 76, 64);
    if short {
        address.offset = t.bits(32, 32).cast_signed().into();
    }
    let address = address.text(t);
    let data = t.register(if short { 64 } else { 32 });
    t.push(address).push(data);
}

/// Local and shared memory.
fn window(t: &mut Text) {
    let (name, is_load, shared) = match t.base() {
        0x183 => ("LDL", true, false),
        0x187 => ("STL", false, false),
        0x184 => ("LDS", true, true),
        _ => ("STS", false, true),
    };
    t.name(name);
    if !shared {
        t.choose(84, 3, &EVICT);
    }
    t.choose(73, 3, &SIZE);
    let mut address = Address::new(t);
    if t.bit(91) && t.form() == 4 {
        address.uniform = Some(if is_load { 32 } else { 64 });
    }
    if shared && t.bits(78, 2) != 0 {
        address.suffix = format!(".X{}", 2 << t.bits(78, 2));
    }
    let address = address.text(t);
    let data = t.register(if is_load { 16 } else { 32 });
    if is_load {
        t.push(data).push(address);
    } else {
        t.push(address).push(data);
    }
}

fn constant(t: &mut Text) -> Option<()> {
    let size = ["U8", "S8", "U16", "S16", "", "64"];
    let uniform = t.is_uniform();
    t.name(if uniform { "ULDC" } else { "LDC" }).choose(73, 3, &size);
    match t.base() {
        0x182 => {
            t.choose(78, 2, &["", "IL", "IS", "ISL"]).d();
            let offset = i64::from(t.bits(38, 16).cast_signed() << 16 >> 16);
            let index = if t.bit(91) { 64 } else { 24 };
            let mut place = if t.bits(index, 8) == 255 { String::new() } else { t.register(index) };
            if place.is_empty() {
                place = number::signed(offset);
            } else if offset != 0 {
                place = format!("{place}+{}", number::signed(offset));
            }
            let bank = match t.bit(91) {
                true => format!("cx[{}]", t.uniform(24)),
                false => format!("c[{:#x}]", t.bits(54, 5)),
            };
            t.push(format!("{bank}[{place}]"));
        }
        0x0b9 => {
            let place = t.constant(false);
            t.d().push(place);
        }
        0x0bb => {
            let mut place = t.uniform(24);
            let offset = i64::from(t.bits(38, 16).cast_signed() << 16 >> 16);
            if offset != 0 {
                place = format!("{place}+{}", number::signed(offset));
            }
            let place = format!("c[{:#x}][{place}]", t.bits(54, 5));
            t.d().push(place);
        }
        _ => {
            // CAST: 32 bits are kept.
            let offset = i64::from(((t.word >> 38) as u32).cast_signed());
            let mut place = t.uniform(24);
            if offset != 0 {
                place = format!("{place}+{}", number::signed(offset));
            }
            t.d().push(format!("[{place}]")).condition(87);
        }
    }
    Some(())
}

/// A copy from global to shared memory.
fn copy(t: &mut Text) {
    let size = ["INVALID0", "INVALID1", "INVALID2", "INVALID3", "", "64", "128", "INVALID7"];
    t.name("LDGSTS").modifier("E").flag_not(81, "BYPASS").choose(84, 3, &EVICT).choose(71, 2, &PREFETCH);
    t.choose(73, 3, &size).flag(82, "ZFILL").choose(77, 4, &ORDER_OF_COPIES);
    // Two offsets: 40 to 63 of the source in global memory, and 44 on of the target in shared memory.
    let global =
        Address { offset: i64::from(t.bits(32, 12).cast_signed() << 20 >> 20), ..Address::global(t, 76, 64) };
    let shared = Address { offset: i64::from(t.bits(44, 20).cast_signed() << 12 >> 12), ..Address::new(t) };
    let register = t.register(16);
    let shared = match shared.offset {
        0 => format!("[{register}]"),
        offset => format!("[{register}+{}]", number::signed(offset)),
    };
    let global = global.text(t);
    t.push(shared).push(global);
    if t.bits(87, 4) != 7 {
        t.condition(87);
    }
}

fn atomic(t: &mut Text) {
    t.name(match t.base() {
        0x18a => "ATOM",
        0x1a8 => "ATOMG",
        _ => "RED",
    });
    let operation = if t.base() == 0x18e { 3 } else { 4 };
    extended(t).choose(87, operation, &ATOMIC).choose(84, 3, &EVICT).choose(73, 4, &ATOMIC_TYPE);
    strong_order(t);
    if t.base() != 0x18e {
        t.target(81).d();
    }
    let address = Address::global(t, 71, 64).text(t);
    let data = t.register(32);
    t.push(address).push(data);
}

/// The name of a comparing exchange.
fn swap_name(t: &mut Text) {
    if t.bit(87) && t.base() != 0x1a9 {
        t.modifier("CAST").flag(88, "SPIN");
    } else {
        t.modifier("CAS");
    }
}

fn compare_and_swap(t: &mut Text) {
    t.name(if t.base() == 0x18b { "ATOM" } else { "ATOMG" });
    t.flag(72, "E");
    swap_name(t);
    t.choose(84, 3, &EVICT).choose(73, 4, &["", "S32", "64"]);
    strong_order(t);
    t.target(81).d();
    let address = Address::new(t).text(t);
    let (compare, swap) = (t.register(32), t.register(64));
    t.push(address).push(compare).push(swap);
}

fn shared_atomic(t: &mut Text) -> Option<()> {
    t.name("ATOMS");
    let mut address = Address::new(t);
    if t.bit(91) && t.form() != 1 {
        address.uniform = Some(64);
    }
    if t.bits(78, 2) != 0 {
        address.suffix = format!(".X{}", 2 << t.bits(78, 2));
    }
    let size = ["", "S32", "64", "INVALID3"];
    if t.base() == 0x18d {
        swap_name(t);
        t.choose(73, 2, &size);
    } else if t.form() == 7 {
        match t.bits(87, 4) {
            10 => t.modifier("POPC").modifier("INC"),
            9 => t.modifier("ARRIVE"),
            other => t.modifier(&format!("INVALID{other}")),
        };
        let kind = match (t.bits(87, 4), t.bits(73, 2)) {
            (10, 0) => "32".to_owned(),
            (9, 2) => "64".to_owned(),
            (_, other) => format!("???{other}"),
        };
        t.modifier(&kind);
    } else {
        t.choose(87, 4, &ATOMIC[..9]).choose(73, 2, &size);
    }
    t.d();
    let address = address.text(t);
    t.push(address);
    if t.form() != 7 {
        let data = t.register(32);
        t.push(data);
    }
    if t.base() == 0x18d {
        let swap = t.register(64);
        t.push(swap);
    }
    Some(())
}

fn query(t: &mut Text) {
    t.name("QSPC");
    extended(t).choose(73, 2, &["G", "L", "S"]).target(81).d();
    let address = Address::global(t, 71, 32).text(t);
    t.push(address);
}

fn cache(t: &mut Text) -> Option<()> {
    const OPERATIONS: [&str; 12] =
        ["PF1", "PF2", "WB", "IV", "IVALL", "RS", "IVALLP", "WBALL", "WBALLP", "PML2", "DML2", "RML2"];
    let operation = t.bits(87, 4);
    t.name("CCTL").flag(72, "E").choose(78, 3, &["", "U", "C", "I", "???4", "???5", "???6", "???7"]);
    t.modifier(OPERATIONS.get(operation as usize)?);
    if !matches!(operation, 4 | 6 | 7 | 8) {
        let offset = i64::from(t.bits(32, 32).cast_signed());
        let address = Address { offset, offset_mask: 0xffff_ffff, ..Address::new(t) }.text(t);
        t.push(address);
    }
    Some(())
}
