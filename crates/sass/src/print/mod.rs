//! Text of instructions, in the syntax of nvdisasm.
//!
//! The rows of the table describe the text; this module writes it.

pub(crate) mod number;

use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::{String, ToString};
use core::fmt::{Display, Write};

use crate::field::{self, Field};
use crate::instruction::{Instruction, PT, Predicate, RZ, Sign, Source, URZ};
use crate::row::{Addressing, Number, Operand, Part, Signs, Style, Suffix};

/// Role of a source; reuse marks belong to the role.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    A,
    B,
    C,
}

/// Writes the operands of one instruction.
pub(crate) struct Printer<'a> {
    /// The instruction.
    pub(crate) i: &'a Instruction,
    address: u64,
    out: String,
    separator: &'static str,
}

/// Returns the text of an instruction at an address; `None` if its row is not printed.
pub(crate) fn text(i: &Instruction, address: u64) -> Option<String> {
    let operands = i.row().operands?;
    let mut out = String::new();
    if i.guard != (Predicate { index: PT, not: false }) {
        out = format!("@{} ", predicate(i.guard, i.uniform_guard));
    }
    out.push_str(&name(i)?);
    let mut printer = Printer { i, address, out, separator: " " };
    printer.operands(operands);
    let mut out = printer.out;
    out.truncate(out.trim_end().len());
    Some(out)
}

/// Returns the mnemonic with modifiers; `None` if the row is not printed, or if a field has no meaning.
pub(crate) fn name(i: &Instruction) -> Option<String> {
    i.row().operands?;
    let mut out = i.row().mnemonic.to_owned();
    for part in i.row().name {
        match choose(i, part) {
            Choice::Text("") => {}
            Choice::Text(text) => {
                out.push('.');
                out.push_str(text);
            }
            // Writing to a String cannot fail.
            Choice::Missing(value) => drop(write!(out, ".INVALID{value}")),
            Choice::Nothing => return None,
        }
    }
    Some(out)
}

/// Returns whether all modifiers have named values.
pub(crate) fn is_valid(i: &Instruction) -> bool {
    i.row().name.iter().all(|part| match choose(i, part) {
        Choice::Text(text) => !text.starts_with("INVALID") && !text.starts_with("???"),
        Choice::Missing(_) | Choice::Nothing => false,
    })
}

/// A part of the name for one instruction.
enum Choice {
    Text(&'static str),
    /// A value without a name.
    Missing(u32),
    /// A value that makes the word not an instruction.
    Nothing,
}

fn choose(i: &Instruction, part: &Part) -> Choice {
    let list = |value: u32, list: &[&'static str]| match list.get(value as usize) {
        Some(text) => Choice::Text(text),
        None => Choice::Missing(value),
    };
    match *part {
        Part::Always(text) => Choice::Text(text),
        Part::Set(bit, text) => Choice::Text(if i.bit(bit) { text } else { "" }),
        Part::Clear(bit, text) => Choice::Text(if i.bit(bit) { "" } else { text }),
        Part::One(field, texts) => list(i.bits(field), texts),
        Part::Join(fields, texts) => list(i.join(fields), texts),
        Part::Required(field, texts) => match texts.get(i.bits(field) as usize) {
            Some(text) => Choice::Text(text),
            None => Choice::Nothing,
        },
        Part::Computed(_, text) => Choice::Text(text(i)),
    }
}

/// A predicate with its inversion.
fn predicate(predicate: Predicate, uniform: bool) -> String {
    let (not, file) = (if predicate.not { "!" } else { "" }, if uniform { "U" } else { "" });
    match predicate.index {
        PT => format!("{not}{file}PT"),
        number => format!("{not}{file}P{number}"),
    }
}

/// A general register.
fn general(number: u8) -> String {
    match number {
        RZ => "RZ".to_owned(),
        number => format!("R{number}"),
    }
}

/// A uniform register.
fn uniform(number: u8) -> String {
    match number {
        URZ => "URZ".to_owned(),
        number => format!("UR{number}"),
    }
}

/// Returns the text of a suffix.
fn suffix(i: &Instruction, suffix: Suffix) -> &'static str {
    suffix.list.get(i.join(suffix.fields) as usize).copied().unwrap_or_default()
}

impl Printer<'_> {
    /// Writes an operand.
    pub(crate) fn push(&mut self, operand: impl Display) {
        // Writing to a String cannot fail.
        let _ = write!(self.out, "{}{operand}", self.separator);
        self.separator = ", ";
    }

    fn operands(&mut self, operands: &[Operand]) {
        for operand in operands {
            self.operand(operand);
        }
    }

    fn operand(&mut self, operand: &Operand) {
        let i = self.i;
        let own = i.row().is_uniform();
        match *operand {
            Operand::UniformD => self.push(self.uniform(field::UNIFORM_D)),
            Operand::DUnlessZero if i.d == if own { URZ } else { RZ } => {}
            Operand::D | Operand::DUnlessZero => self.push(if own { uniform(i.d) } else { general(i.d) }),
            Operand::A(signs, suffix) => self.a(signs, suffix),
            Operand::B(style) => self.push(self.b(style)),
            Operand::C(style) => self.push(self.c(style)),
            Operand::TargetIfKept(field) if i.target_predicate(field) == PT => {}
            Operand::Target(field) | Operand::TargetIfKept(field) => {
                self.push(predicate(Predicate { index: i.target_predicate(field), not: false }, own));
            }
            Operand::ConditionIfUsed(field) if i.bits(field) == u32::from(PT) => {}
            Operand::Condition(field) | Operand::ConditionIfUsed(field) => self.condition(field, own),
            Operand::Register(field) => self.push(self.register(field)),
            Operand::Uniform(field) => self.push(self.uniform(field)),
            Operand::HexUnless(field, hidden) if i.bits(field) == hidden => {}
            Operand::Hex(field) | Operand::HexUnless(field, _) => {
                self.push(format_args!("{:#x}", i.bits(field)));
            }
            Operand::HexJoin(fields) => self.push(format_args!("{:#x}", i.join(fields))),
            Operand::Word(text) => self.push(text),
            Operand::Named(field, list) => match list.get(i.bits(field) as usize) {
                Some(text) => self.push(text),
                None => self.push(format_args!("INVALID{}", i.bits(field))),
            },
            Operand::Barrier(field) => self.push(format_args!("B{}", i.bits(field))),
            Operand::When(bit, operands) if i.bit(bit) => self.operands(operands),
            Operand::Unless(bit, operands) if !i.bit(bit) => self.operands(operands),
            Operand::When(..) | Operand::Unless(..) => {}
            Operand::Address(addressing) => self.push(self.address(addressing)),
            Operand::By(_, print) => print(self),
        }
    }

    /// Writes a destination predicate unless it is dropped.
    pub(crate) fn target_if_kept(&mut self, field: Field) {
        self.operand(&Operand::TargetIfKept(field));
    }

    /// Writes a source predicate of the general or the uniform file.
    pub(crate) fn condition(&mut self, field: Field, uniform: bool) {
        self.push(predicate(self.i.source_predicate(field), uniform));
    }

    /// Returns the general register in a field.
    pub(crate) fn register(&self, field: Field) -> String {
        general(self.i.register(field))
    }

    /// Returns the uniform register in a field.
    pub(crate) fn uniform(&self, field: Field) -> String {
        uniform(self.i.register(field))
    }

    fn a(&mut self, signs: Signs, after: Suffix) {
        let i = self.i;
        let source = if i.row().is_uniform() { Source::Uniform(i.a) } else { Source::Register(i.a) };
        let style = Style { signs, ..Style::PATTERN };
        self.push(self.source(source, Role::A, i.a_sign(), suffix(i, after), style));
    }

    /// Returns the second source.
    pub(crate) fn b(&self, style: Style) -> String {
        let i = self.i;
        let role = if i.row().layout.is_sum() { Role::C } else { Role::B };
        let upper = i.is_swapped() && i.row().layout.is_ternary();
        let after = suffix(i, if upper { style.upper } else { style.slot });
        self.source(i.b, role, i.b_sign, after, style)
    }

    /// Returns the third source.
    fn c(&self, style: Style) -> String {
        let i = self.i;
        let after = suffix(i, if i.is_swapped() { style.slot } else { style.upper });
        self.source(i.c, Role::C, i.c_sign, after, style)
    }

    /// Returns a source with its sign and its suffix.
    fn source(&self, source: Source, role: Role, sign: Sign, suffix: &str, style: Style) -> String {
        let mut text = match source {
            Source::Immediate(bits) => return self.immediate(bits, style.number),
            Source::Register(number) => general(number),
            Source::Uniform(number) => uniform(number),
            Source::Constant { bank, offset } => self.constant(bank, offset & !3, style.spaced),
        };
        let is_register = matches!(source, Source::Register(_));
        let is_absolute = style.signs == Signs::Float && sign.absolute;
        if is_absolute {
            // The halves of a register are selected after the absolute value.
            let inside = if is_register { "" } else { suffix };
            text = format!("|{text}{inside}|");
        }
        let before = match style.signs {
            _ if !sign.negate => "",
            Signs::None => "",
            Signs::Complement => "~",
            Signs::Carry if self.i.bit(field::EXTENDED) => "~",
            Signs::Minus | Signs::Carry | Signs::Float => "-",
        };
        let reuse = if is_register && self.is_reused(role) { ".reuse" } else { "" };
        let after = if is_absolute && !is_register { "" } else { suffix };
        format!("{before}{text}{reuse}{after}")
    }

    fn immediate(&self, bits: u32, number: Number) -> String {
        number::immediate(bits, number, self.i.bit(field::BFLOAT16))
    }

    /// Returns whether the scheduler keeps the register of a source. Without [`field::KEEPS`] it may switch to
    /// another warp, and keeps nothing. Units of variable latency keep nothing.
    fn is_reused(&self, role: Role) -> bool {
        let mark = field::REUSE[role as usize];
        self.i.row().base < 0x100 && self.i.bit(field::KEEPS) && self.i.bit(mark)
    }

    /// Returns a word of a constant bank; bindless if the flag of uniform registers is set.
    pub(crate) fn constant(&self, bank: u8, offset: u16, spaced: bool) -> String {
        let space = if spaced { " " } else { "" };
        if self.i.bit(field::UNIFORM) {
            return format!("cx[{}]{space}[{offset:#x}]", self.uniform(field::SLOT_UNIFORM));
        }
        format!("c[{bank:#x}]{space}[{}]", number::signed(offset.cast_signed().into()))
    }

    /// Returns the target of a relative branch.
    pub(crate) fn relative(&self, offset: i64) -> String {
        number::signed(offset.wrapping_add(self.address.cast_signed()).wrapping_add(16))
    }

    /// Returns an address in brackets.
    pub(crate) fn address(&self, addressing: &Addressing) -> String {
        let i = self.i;
        let (mut base, mut descriptor, mut after) = (None, None, String::new());
        let mut offset = addressing.offset;
        match addressing.global {
            _ if i.form == 1 => {}
            None if i.bit(field::UNIFORM) => base = addressing.uniform,
            Some(global) if i.bit(field::UNIFORM) => {
                let shown = i.bit(global.descriptor);
                if shown && i.bit(field::DESCRIPTOR_SHOWN) {
                    descriptor = addressing.uniform;
                } else if !shown || global.keeps_uniform {
                    base = addressing.uniform;
                }
                let wide = global.wide.is_none_or(|wide| i.bit(wide));
                after.push_str(if wide { ".64" } else { ".U32" });
            }
            // Without a uniform register the offset takes its place.
            Some(_) if addressing.uniform == Some(field::SLOT_UNIFORM) => offset = field::LONG_OFFSET,
            _ => {}
        }
        if let Some(stride) = addressing.stride
            && i.bit(stride)
        {
            after = format!(".X{}", 2 << i.bits(stride));
        }
        let mut inside = if i.a == RZ { String::new() } else { general(i.a) + &after };
        if let Some(low) = base {
            let plus = if inside.is_empty() { "" } else { "+" };
            inside = format!("{inside}{plus}{}", self.uniform(low));
        }
        match (inside.is_empty(), i.signed(offset)) {
            (true, 0) if after == ".64" => inside.push_str("RZ.64"),
            (true, 0) => inside.push_str("RZ"),
            // Without a register the offset is unsigned.
            (true, value) => inside = format!("{:#x}", unsigned(value, offset)),
            (false, 0) => {}
            (false, value) => inside = format!("{inside}+{}", number::signed(value)),
        }
        match descriptor {
            Some(low) => format!("desc[{}][{inside}]", self.uniform(low)),
            None => format!("[{inside}]"),
        }
    }
}

/// Returns the pattern of a signed offset: 32 bits of a long one, else 24.
fn unsigned(value: i64, offset: Field) -> i64 {
    value & if offset.len == field::LONG_OFFSET.len { 0xffff_ffff } else { 0xff_ffff }
}

impl Display for Instruction {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(&text(self, 0).unwrap_or_else(|| self.mnemonic().to_string()))
    }
}
