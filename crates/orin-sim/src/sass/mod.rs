//! Instructions of SM 8.x as text, in the style of the vendor's disassembler.
//!
//! This is for reading, and independent of the interpreter's decoder ([`crate::sm::decode`]): it also
//! names instructions and variants that are not executed. Which encodings of the list in
//! `tests/sass/golden.jsonl` it does not print as that disassembler does is kept in
//! `tests/sass/unequal.txt`, with reasons.

mod arithmetic;
mod control;
mod float;
mod memory;
mod number;
mod tensor;
mod texture;

use core::fmt::Write as _;

/// The text of one instruction word that stands at an address (branch targets are absolute), without
/// the closing semicolon; `None` for a word that is no instruction that is known here.
///
/// ```
/// use orin_sim::sass::disassemble;
///
/// let word = 0x000f_c200_078e_02ff_0000_0003_0000_7224;
/// assert_eq!(disassemble(word, 0).as_deref(), Some("IMAD R0, R0, R3, RZ"));
/// ```
pub fn disassemble(word: u128, address: u64) -> Option<String> {
    Text::of(word, address).map(Text::finish)
}

/// The name of one instruction with its modifiers, without guard and operands; `None` as for
/// [`disassemble`].
///
/// ```
/// use orin_sim::sass::mnemonic;
///
/// assert_eq!(mnemonic(0x000f_c200_078e_02ff_0000_0003_0000_7224).as_deref(), Some("IMAD"));
/// ```
pub fn mnemonic(word: u128) -> Option<String> {
    Text::of(word, 0).map(|text| text.name)
}

/// How an immediate is written.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Number {
    /// A hexadecimal pattern.
    Pattern,
    /// A signed hexadecimal number.
    Signed,
    /// Single precision.
    Single,
    /// The upper half of double precision.
    Double,
    /// Half precision, in the lower 16 bits.
    Half,
    /// Two of half precision, the upper first.
    Halves,
    /// Two of bfloat16, the upper first.
    Brains,
}

/// What stands beside a register operand.
#[derive(Clone, Copy, Default)]
struct Marks {
    absolute: bool,
    /// Written before the operand: `-`, `~`, or nothing.
    sign: &'static str,
    /// Written behind the operand, after the bar of an absolute value.
    suffix: &'static str,
}

/// An instruction on its way to text.
struct Text {
    word: u128,
    address: u64,
    name: String,
    operands: Vec<String>,
    /// Whether operands follow each other without commas, as a register and a branch target do.
    plain: bool,
}

impl Text {
    /// The name and the operands of a word; `None` when it is no known instruction.
    fn of(word: u128, address: u64) -> Option<Self> {
        let mut text = Self { word, address, name: String::new(), operands: Vec::new(), plain: false };
        arithmetic::print(&mut text)
            .or_else(|| float::print(&mut text))
            .or_else(|| tensor::print(&mut text))
            .or_else(|| memory::print(&mut text))
            .or_else(|| texture::print(&mut text))
            .or_else(|| control::print(&mut text))?;
        Some(text)
    }

    /// Bits `low..low + len`, at most 32.
    fn bits(&self, low: u32, len: u32) -> u32 {
        // CAST: at most 32 bits are kept.
        (self.word >> low) as u32 & (u32::MAX >> (32 - len))
    }

    fn bit(&self, at: u32) -> bool {
        self.word >> at & 1 != 0
    }

    /// Bits 0 to 8: the operation.
    fn base(&self) -> u32 {
        self.bits(0, 9)
    }

    /// Bits 9 to 11: the kinds of operands.
    fn form(&self) -> u32 {
        self.bits(9, 3)
    }

    /// Whether the instruction belongs to the uniform datapath.
    fn is_uniform(&self) -> bool {
        (0x080..0x0c0).contains(&self.base())
    }

    /// Begins the name.
    fn name(&mut self, name: &str) -> &mut Self {
        self.name.push_str(name);
        self
    }

    /// A modifier; an empty one is not written.
    fn modifier(&mut self, text: &str) -> &mut Self {
        if !text.is_empty() {
            self.name.push('.');
            self.name.push_str(text);
        }
        self
    }

    /// A modifier if a bit is set.
    fn flag(&mut self, at: u32, text: &str) -> &mut Self {
        if self.bit(at) { self.modifier(text) } else { self }
    }

    /// A modifier if a bit is clear.
    fn flag_not(&mut self, at: u32, text: &str) -> &mut Self {
        if self.bit(at) { self } else { self.modifier(text) }
    }

    /// A modifier that a field chooses; a value that the list lacks is written as invalid.
    fn choose(&mut self, low: u32, len: u32, list: &[&str]) -> &mut Self {
        let value = self.bits(low, len);
        let text = list.get(value as usize).copied().map(str::to_owned);
        let text = text.unwrap_or_else(|| format!("INVALID{value}"));
        self.modifier(&text)
    }

    /// An operand.
    fn push(&mut self, text: impl Into<String>) -> &mut Self {
        self.operands.push(text.into());
        self
    }

    /// A general register with its mark of reuse.
    fn register(&self, low: u32) -> String {
        // The mark belongs to the role of an operand: first, second or third source. Without bit 109 the
        // scheduler may switch to another warp, and nothing is kept; units of variable latency keep nothing.
        let keeps = self.bit(109) && self.base() < 0x100 && !matches!(self.base(), 0x03a | 0x03b);
        let reuse = match low {
            _ if !keeps => false,
            24 => self.bit(122),
            32 if self.is_sum() => self.bit(124),
            32 => self.bit(123),
            64 if self.is_swapped() => self.bit(123),
            64 => self.bit(124),
            _ => false,
        };
        let mut text = match self.bits(low, 8) {
            255 => "RZ".to_owned(),
            number => format!("R{number}"),
        };
        if reuse {
            text.push_str(".reuse");
        }
        text
    }

    /// A uniform register.
    fn uniform(&self, low: u32) -> String {
        match self.bits(low, 6) {
            63 => "URZ".to_owned(),
            number => format!("UR{number}"),
        }
    }

    /// A register of the instruction's own file.
    fn own(&self, low: u32) -> String {
        if self.is_uniform() { self.uniform(low) } else { self.register(low) }
    }

    /// A predicate of the file that is named, with the inversion in the bit behind it if there is one.
    fn predicate_of(&self, low: u32, uniform: bool, inverts: bool) -> String {
        let not = if inverts && self.bit(low + 3) { "!" } else { "" };
        let file = if uniform { "U" } else { "" };
        match self.bits(low, 3) {
            7 => format!("{not}{file}PT"),
            number => format!("{not}{file}P{number}"),
        }
    }

    /// A source predicate.
    fn condition(&mut self, low: u32) -> &mut Self {
        let text = self.predicate_of(low, self.is_uniform(), true);
        self.push(text)
    }

    /// A source predicate that is written unless it is always true.
    fn condition_unless_true(&mut self, low: u32) -> &mut Self {
        if self.bits(low, 4) == 7 { self } else { self.condition(low) }
    }

    /// A destination predicate.
    fn target(&mut self, low: u32) -> &mut Self {
        let text = self.predicate_of(low, self.is_uniform(), false);
        self.push(text)
    }

    /// A destination predicate that is written unless it is dropped.
    fn target_if_kept(&mut self, low: u32) -> &mut Self {
        if self.bits(low, 3) == 7 { self } else { self.target(low) }
    }

    /// The destination register.
    fn d(&mut self) -> &mut Self {
        let text = self.own(16);
        self.push(text)
    }

    fn marked(&self, text: &str, marks: Marks) -> String {
        let Marks { absolute, sign, suffix } = marks;
        if !absolute {
            return format!("{sign}{text}{suffix}");
        }
        if !text.starts_with('R') {
            return format!("{sign}|{text}{suffix}|");
        }
        // The mark of reuse stands outside of the bars.
        match text.strip_suffix(".reuse") {
            Some(text) => format!("{sign}|{text}|.reuse{suffix}"),
            None => format!("{sign}|{text}|{suffix}"),
        }
    }

    /// The first source register.
    fn a(&mut self, marks: Marks) -> &mut Self {
        let text = self.marked(&self.own(24), marks);
        self.push(text)
    }

    /// The operand in bits 32 to 63, as the form says.
    fn slot(&self, number: Number, marks: Marks, spaced: bool) -> String {
        let text = match self.form() {
            1 => self.own(32),
            2 | 4 => return number::immediate(self.bits(32, 32), number),
            3 | 5 => self.constant(spaced),
            _ => self.uniform(32),
        };
        self.marked(&text, marks)
    }

    /// A word of a constant bank.
    fn constant(&self, spaced: bool) -> String {
        let space = if spaced { " " } else { "" };
        // Words lie at multiples of 4; only loads of constants reach bytes.
        let bytes = self.bits(38, 16) & if self.base() == 0x0b9 { !0 } else { !3 };
        if self.bit(91) {
            let register = self.uniform(if self.base() == 0x0b9 { 24 } else { 32 });
            return format!("cx[{register}]{space}[{bytes:#x}]");
        }
        let offset = number::signed(i64::from(bytes.cast_signed() << 16 >> 16));
        format!("c[{:#x}]{space}[{offset}]", self.bits(54, 5))
    }

    /// Whether the second of two sources has the role of a third: additions, and comparisons in the same
    /// units.
    fn is_sum(&self) -> bool {
        matches!(self.base(), 0x021 | 0x029 | 0x02a | 0x030 | 0x033 | 0x034)
    }

    /// Whether the second source stands in bits 64 to 71 and the third in bits 32 to 63.
    fn is_swapped(&self) -> bool {
        matches!(self.form(), 2 | 3 | 7)
    }

    /// The register in bits 64 to 71.
    fn upper(&self, marks: Marks) -> String {
        self.marked(&self.own(64), marks)
    }

    /// The second and the third source of an operation that has both, in their order.
    fn b_and_c(&self, number: Number, slot: Marks, upper: Marks) -> [String; 2] {
        let (slot, upper) = (self.slot(number, slot, false), self.upper(upper));
        if self.is_swapped() { [upper, slot] } else { [slot, upper] }
    }

    /// `-` if a bit is set.
    fn minus(&self, at: u32) -> &'static str {
        if self.bit(at) { "-" } else { "" }
    }

    /// The address of a relative branch: 48 bits in units of 4 bytes, from the next instruction.
    fn relative_target(&self) -> String {
        number::signed(self.branch_offset().wrapping_add(self.address.cast_signed()).wrapping_add(16))
    }

    /// The offset of a branch in bytes.
    fn branch_offset(&self) -> i64 {
        // CAST: 48 bits are kept.
        ((self.word >> 34) as i64) << 16 >> 14
    }

    /// The guard, name and operands.
    fn finish(self) -> String {
        let mut out = String::new();
        // The uniform datapath has predicates of its own, and S2UR uses them too; not so VOTEU, which looks at
        // the lanes of a warp.
        if self.bits(12, 4) != 7 {
            let uniform = self.is_uniform() && self.base() != 0x086 || self.bits(0, 12) == 0x9c3;
            let guard = self.predicate_of(12, uniform, true);
            // Writing to a String cannot fail.
            let _ = write!(out, "@{guard} ");
        }
        out.push_str(&self.name);
        let mut separator = " ";
        for operand in &self.operands {
            out.push_str(separator);
            out.push_str(operand);
            separator = if self.plain { " " } else { ", " };
        }
        out.truncate(out.trim_end().len());
        out
    }
}
