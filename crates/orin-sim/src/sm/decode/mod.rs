//! From 128-bit instruction words to what the interpreter executes.
//!
//! Instructions of SM 8.x are 16 bytes, little-endian. The decoder finds the row of the opcode
//! table (`table`), the kinds and numbers of the operands and the guard predicate, and checks
//! that registers are aligned and that every modifier bit is one the interpreter understands.
//! Bits 105 to 125 steer the scheduler of the hardware (stall counts, scoreboards, register reuse)
//! and never change a result; they are ignored.

mod display;
mod fragment;
pub(crate) mod table;

use std::sync::LazyLock;

use table::{Layout, Op, Row, TABLE};

/// Number of the register that reads 0 and drops writes (RZ).
pub(crate) const RZ: u8 = 255;
/// Number of the uniform register that reads 0 and drops writes (URZ).
pub(crate) const URZ: u8 = 63;
/// Number of the predicate that reads true and drops writes (PT, UPT).
pub(crate) const PT: u8 = 7;

/// Why a word is not executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// Not an instruction of SM 8.7.
    #[error("illegal instruction")]
    Illegal,
    /// A register pair or group that does not begin at a multiple of its size.
    #[error("misaligned register")]
    MisalignedRegister,
    /// A real instruction, but it, or its variant, is not modelled; holds the mnemonic.
    #[error("instruction {0} is not modelled in this variant")]
    Unmodelled(&'static str),
}

/// A source operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// General register, one value per lane.
    Register(u8),
    /// Uniform register, one value per warp.
    Uniform(u8),
    /// Constant of the instruction word.
    Immediate(u32),
    /// Word of a constant bank at a byte offset.
    Constant {
        /// Bank, 0 to 31.
        bank: u8,
        /// Byte offset, 0 to 65535.
        offset: u16,
    },
}

/// Sign modifiers of a source operand; the absolute value is taken first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sign {
    /// Negate (integers: also one's complement, as the operation says).
    pub(crate) negate: bool,
    /// Absolute value.
    pub(crate) absolute: bool,
}

/// A predicate operand: number and whether it is inverted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Predicate {
    /// P0 to P6, or [`PT`].
    pub(crate) index: u8,
    /// Inverted when read.
    pub(crate) not: bool,
}

/// One decoded instruction.
#[derive(Clone, Copy, Debug)]
pub struct Instruction {
    /// Handler.
    pub(crate) op: Op,
    /// Bits 9 to 11.
    pub(crate) form: u8,
    /// Guard predicate.
    pub(crate) guard: Predicate,
    /// Whether the guard is a uniform predicate.
    pub(crate) uniform_guard: bool,
    /// Destination register.
    pub(crate) d: u8,
    /// First source register.
    pub(crate) a: u8,
    /// Second source.
    pub(crate) b: Source,
    /// Third source.
    pub(crate) c: Source,
    /// Signs of the second source, when it is not an immediate.
    pub(crate) b_sign: Sign,
    /// Signs of the third source, when it is not an immediate.
    pub(crate) c_sign: Sign,
    /// Highest general register touched, if any.
    top: Option<u8>,
    row: &'static Row,
    word: u128,
    /// Number under which executions are counted, if they are.
    number: Option<u32>,
    /// Whether the outcome depends on which CTA comes first.
    ordered: bool,
}

/// Row of each 12-bit opcode.
static BY_OPCODE: LazyLock<Box<[Option<&'static Row>; 4096]>> = LazyLock::new(|| {
    let mut rows = Box::new([None; 4096]);
    for row in TABLE {
        for form in (0..8).filter(|form| row.forms >> form & 1 != 0) {
            let slot = &mut rows[usize::from(row.base) | form << 9];
            assert!(slot.is_none(), "two rows for {} form {form}", row.mnemonic);
            *slot = Some(row);
        }
    }
    rows
});

/// Bits `low..low + len` of `word`.
#[inline(always)]
fn field(word: u128, low: u32, len: u32) -> u32 {
    // CAST: at most 32 bits are kept.
    (word >> low) as u32 & (u32::MAX >> (32 - len))
}

/// Sign extends the low `bits` of `value`.
pub(crate) fn sign_extend(value: u64, bits: u32) -> i64 {
    // CAST: reinterprets the bits as signed.
    (value << (64 - bits)) as i64 >> (64 - bits)
}

/// Decodes one instruction word.
///
/// # Errors
///
/// When the word is not an instruction, or not in a variant that the interpreter executes.
pub fn decode(word: u128) -> Result<Instruction, Refusal> {
    // CAST: 12 and 3 bits.
    let row = BY_OPCODE[field(word, 0, 12) as usize].ok_or(Refusal::Illegal)?;
    let form = field(word, 9, 3) as u8;
    if row.op == Op::Unmodelled {
        return Err(Refusal::Unmodelled(row.mnemonic));
    }
    let uniform = (0x080..0x0c0).contains(&row.base);
    let mut instruction = Instruction {
        op: row.op,
        form,
        guard: Predicate { index: field(word, 12, 3) as u8, not: field(word, 15, 1) != 0 },
        // VOTEU looks at the lanes of a warp, its guard too.
        uniform_guard: uniform && row.op != Op::Voteu || row.op == Op::S2ur,
        d: field(word, 16, if uniform { 6 } else { 8 }) as u8,
        a: field(word, 24, if uniform { 6 } else { 8 }) as u8,
        b: Source::Immediate(0),
        c: Source::Immediate(0),
        b_sign: Sign::default(),
        c_sign: Sign::default(),
        top: None,
        row,
        word,
        number: None,
        ordered: false,
    };
    instruction.find_sources(uniform)?;
    instruction.check_modifiers(uniform)?;
    instruction.check_registers(uniform)?;
    if instruction.depends_on_order() {
        (instruction.op, instruction.ordered) = (Op::Watched, true);
    }
    Ok(instruction)
}

impl Instruction {
    /// Mnemonic without modifiers.
    pub fn mnemonic(&self) -> &'static str {
        self.row.mnemonic
    }

    /// The word it was decoded from.
    pub fn word(&self) -> u128 {
        self.word
    }

    /// The same instruction, its executions counted under `number`.
    pub(crate) fn counted(self, number: u32) -> Self {
        Self { op: Op::Watched, number: Some(number), ..self }
    }

    /// The instruction itself, of one that is watched.
    pub(crate) fn unwatched(&self) -> Self {
        Self { op: self.row.op, ..*self }
    }

    /// Number under which executions are counted, if they are.
    pub(crate) fn number(&self) -> Option<u32> {
        self.number
    }

    /// Whether the outcome depends on which CTA comes first.
    pub(crate) fn is_ordered(&self) -> bool {
        self.ordered
    }

    /// Atomics that return something or do not commute, and loads and stores of memory that others change
    /// meanwhile: `volatile` and stronger.
    fn depends_on_order(&self) -> bool {
        let strong = matches!(self.bits(77, 4), 4..=8 | 10 | 12);
        // Floating point, and wrapping increments and decrements.
        let commutes = !matches!(self.bits(73, 4), 3 | 4 | 6) && !matches!(self.bits(87, 3), 3 | 4);
        match self.op {
            // Here 4 is a load through the read-only path.
            Op::Ldg | Op::Ld => strong && self.bits(77, 4) != 4,
            Op::Stg | Op::St => strong,
            Op::Red => !commutes,
            Op::Atomg => true,
            _ => false,
        }
    }

    /// Highest general register that the instruction reads or writes.
    pub fn top_register(&self) -> Option<u8> {
        self.top
    }

    /// Bits 0 to 8: the operation, without the kinds of its operands.
    pub(crate) fn base(&self) -> u16 {
        self.row.base
    }

    /// Bits `low..low + len` of the word.
    #[inline(always)]
    pub(crate) fn bits(&self, low: u32, len: u32) -> u32 {
        field(self.word, low, len)
    }

    /// Bit `at` of the word.
    #[inline(always)]
    pub(crate) fn bit(&self, at: u32) -> bool {
        self.word >> at & 1 != 0
    }

    /// The register at bits `low..low + 8`.
    #[inline(always)]
    pub(crate) fn register(&self, low: u32) -> u8 {
        // CAST: 8 bits.
        self.bits(low, 8) as u8
    }

    /// The source predicate at `low`, its inversion in the next bit.
    #[inline(always)]
    pub(crate) fn source_predicate(&self, low: u32) -> Predicate {
        // CAST: 3 bits.
        Predicate { index: self.bits(low, 3) as u8, not: self.bit(low + 3) }
    }

    /// The destination predicate at `low`.
    #[inline(always)]
    pub(crate) fn target_predicate(&self, low: u32) -> u8 {
        // CAST: 3 bits.
        self.bits(low, 3) as u8
    }

    /// Signs of the first source of a floating-point operation.
    #[inline(always)]
    pub(crate) fn a_sign(&self) -> Sign {
        Sign { negate: self.bit(72), absolute: self.bit(73) }
    }

    /// Byte offset of a relative branch: 48 bits in units of 4 bytes, from the next instruction.
    pub(crate) fn branch_offset(&self) -> i64 {
        // CAST: 48 bits are kept.
        sign_extend((self.word >> 34) as u64 & ((1 << 48) - 1), 48) * 4
    }

    /// The whole slot of bits 32 to 63.
    fn slot(&self) -> u32 {
        field(self.word, 32, 32)
    }

    fn find_sources(&mut self, uniform: bool) -> Result<(), Refusal> {
        let register = |number: u8| {
            if uniform { Source::Uniform(number & 63) } else { Source::Register(number) }
        };
        let upper = register(self.register(64));
        let upper_sign = Sign { negate: self.bit(75), absolute: self.bit(74) };
        let slot = match self.form {
            1 => register(self.register(32)),
            2 | 4 => Source::Immediate(self.slot()),
            // CAST: 5 and 16 bits.
            3 | 5 => Source::Constant {
                bank: field(self.word, 54, 5) as u8,
                offset: field(self.word, 38, 16) as u16,
            },
            // CAST: 6 bits.
            6 | 7 => Source::Uniform(field(self.word, 32, 6) as u8),
            _ => Source::Immediate(0),
        };
        let slot_sign = match slot {
            Source::Immediate(_) => Sign::default(),
            _ => Sign { negate: self.bit(63), absolute: self.bit(62) },
        };
        match self.row.layout {
            Layout::Ternary if matches!(self.form, 2 | 3 | 7) => {
                (self.b, self.b_sign) = (upper, upper_sign);
                (self.c, self.c_sign) = (slot, slot_sign);
            }
            Layout::Ternary => {
                (self.b, self.b_sign) = (slot, slot_sign);
                (self.c, self.c_sign) = (upper, upper_sign);
            }
            Layout::BinaryUpper if self.form == 1 => (self.b, self.b_sign) = (upper, upper_sign),
            Layout::Binary | Layout::BinaryUpper | Layout::Unary => (self.b, self.b_sign) = (slot, slot_sign),
            Layout::Own => {
                (self.b, self.c) = (Source::Register(self.register(32)), Source::Register(self.register(64)));
            }
        }
        if self.row.layout == Layout::Own {
            return Ok(());
        }
        // The flag in bit 91 tells uniform registers (and bindless constants) from the rest.
        let flag = self.bit(91);
        let always = uniform && !matches!(self.op, Op::Uldc | Op::Umov);
        let wants_flag = always || matches!(self.form, 6 | 7);
        match (flag, slot) {
            (true, Source::Constant { .. }) => Err(Refusal::Unmodelled(self.row.mnemonic)),
            _ if flag != wants_flag => Err(Refusal::Illegal),
            _ => Ok(()),
        }
    }

    /// Refuses modifier bits without a meaning for the interpreter.
    fn check_modifiers(&self, uniform: bool) -> Result<(), Refusal> {
        // CAST: the upper half.
        let mut unknown = (self.word >> 64) as u64 & ((1 << 28) - 1) & !self.row.modifiers;
        if self.row.layout != Layout::Own {
            // The uniform flag has been checked.
            unknown &= !(1 << 27);
        }
        let uses_upper = match self.row.layout {
            Layout::Ternary => true,
            Layout::BinaryUpper => self.form == 1,
            Layout::Binary | Layout::Unary | Layout::Own => false,
        };
        if uses_upper {
            unknown &= if uniform { !0x3f } else { !0xff };
        } else if matches!(self.row.layout, Layout::Binary | Layout::BinaryUpper)
            && matches!(self.form, 2 | 3 | 7)
        {
            // The register place of a two-source operation in a slot form is not read.
            unknown &= if self.row.modifiers & 0xff == 0 { !0xff } else { !0 };
        }
        if unknown == 0 && self.variant_is_modelled() {
            Ok(())
        } else {
            Err(Refusal::Unmodelled(self.row.mnemonic))
        }
    }

    /// Conditions on modifiers that a mask cannot express.
    fn variant_is_modelled(&self) -> bool {
        let unused = |low| self.target_predicate(low) == PT;
        match self.op {
            // What the predicates of loads mean is not known.
            Op::Ldg => unused(81) && self.bits(64, 4) == 0,
            Op::Ld => matches!(self.target_predicate(81), 0 | PT) && self.bits(64, 4) == 0,
            // Nor what the carry of the low product does.
            Op::Imad | Op::Uimad => unused(81) && !self.b_sign.negate,
            Op::ImadWide | Op::ImadHi | Op::UimadWide => !self.b_sign.negate,
            // The mask of lanes to compare with.
            Op::Bra => self.bit(91) == (self.bits(32, 2) > 1),
            Op::Vabsdiff | Op::Vabsdiff4 | Op::Flo | Op::Uflo => unused(81),
            Op::Prmt => self.bits(72, 3) != 7,
            // Where the shift and the sign of B meet in one place.
            Op::Lea | Op::Ulea => self.form != 2,
            Op::I2ip => self.bits(74, 2) == 0,
            Op::F2ip => !self.bit(75) && self.bit(74),
            Op::Fmul => self.bits(84, 3) != 0,
            Op::I2fp => self.bits(75, 3) == 2 && self.bits(84, 2) == 2 && matches!(self.bits(78, 2), 0 | 3),
            // MERGE_C keeps one half of C; which one shows only when C is not RZ.
            Op::F2fp => {
                let whole = !self.bit(78) || self.c == Source::Register(RZ);
                matches!(self.bits(79, 2), 0 | 3) && !self.bit(77) && whole
            }
            Op::Hmma | Op::Imma | Op::Bmma => !self.b_sign.negate && !self.b_sign.absolute,
            Op::Arrives => self.bits(72, 4) == 10,
            Op::Isetp | Op::Uisetp => self.bits(74, 2) < 3,
            Op::Bar => self.bits(77, 3) < 3 && self.bits(74, 2) < 3,
            Op::B2r => self.bits(78, 2) == 1,
            Op::Bpt => self.bits(84, 3) == 3,
            Op::Hset2 | Op::Hsetp2 => self.bits(69, 2) < 3,
            Op::Fset | Op::Fsetp | Op::Dsetp => self.bits(74, 2) < 3,
            _ => true,
        }
    }

    /// Registers of D, A, B and C, with sizes filled in.
    fn widths(&self) -> Result<[u8; 4], Refusal> {
        let mut widths = self.row.widths;
        let data = || match self.bits(73, 3) {
            0..=4 => Ok(1),
            5 => Ok(2),
            6 => Ok(4),
            _ => Err(Refusal::Illegal),
        };
        let address = if self.bit(72) && (self.form == 1 || self.bit(90)) { 2 } else { 1 };
        match self.op {
            Op::Ldg | Op::Ld => (widths[0], widths[1]) = (data()?, address),
            Op::Stg => (widths[1], widths[2]) = (address, data()?),
            Op::St if self.form == 1 => (widths[1], widths[3]) = (if self.bit(72) { 2 } else { 1 }, data()?),
            Op::St => (widths[1], widths[2]) = (address, data()?),
            Op::Ldl | Op::Lds => widths[0] = data()?,
            Op::Ldc | Op::Uldc => {
                widths[0] = if self.bits(73, 3) == 6 { return Err(Refusal::Illegal) } else { data()? }
            }
            Op::Stl | Op::Sts => widths[2] = data()?,
            Op::Ldgsts => widths[1] = 2,
            Op::Atomg | Op::Red => {
                let narrow = self.op == Op::Atomg && self.form == 4 && !self.bit(70);
                widths[1] = if self.bit(72) && !narrow { 2 } else { 1 };
                let data = if matches!(self.bits(73, 4), 2 | 5 | 6) { 2 } else { 1 };
                for width in &mut widths[if self.op == Op::Red { 1..1 } else { 0..1 }] {
                    *width = data;
                }
                widths[2] = data;
                if widths[3] != 0 {
                    widths[3] = data;
                }
            }
            Op::Atoms => {
                let data = if self.bits(73, 3) & 3 == 2 { 2 } else { 1 };
                (widths[0], widths[2]) = (data, data);
                if widths[3] != 0 {
                    widths[3] = data;
                }
            }
            Op::AtomsInc => widths[0] = if self.bits(73, 3) & 3 == 2 { 2 } else { 1 },
            Op::Ldsm => widths[0] = 1 << self.bits(72, 2).min(2),
            Op::Cs2r => widths[0] = if self.bit(80) { 2 } else { 1 },
            Op::Qspc => widths[1] = address,
            Op::Match => widths[1] = if self.bit(73) { 2 } else { 1 },
            Op::Bar if self.form == 5 => widths[2] = 0,
            Op::F2i | Op::F2f | Op::I2f | Op::Frnd => {
                widths[0] = if self.bits(75, 2) == 3 { 2 } else { 1 };
                widths[2] = if self.bits(84, 2) == 3 { 2 } else { 1 };
            }
            Op::Imma | Op::Bmma | Op::Hmma => {
                let shape = self.fragment().ok_or(Refusal::Unmodelled(self.row.mnemonic))?;
                widths = [shape.c, shape.a, shape.b, shape.c];
            }
            _ => {}
        }
        Ok(widths)
    }

    /// Checks the alignment of register groups and finds the highest general register.
    fn check_registers(&mut self, uniform: bool) -> Result<(), Refusal> {
        let widths = self.widths()?;
        let uniform_target = matches!(self.op, Op::R2ur | Op::S2ur | Op::Redux);
        let mut top = None;
        let mut general = |number: u8, width: u8| {
            if number == RZ || width == 0 {
                return Ok(());
            }
            let last = number.checked_add(width - 1).ok_or(Refusal::MisalignedRegister)?;
            if !number.is_multiple_of(width.next_power_of_two()) || last == RZ {
                return Err(Refusal::MisalignedRegister);
            }
            top = top.max(Some(last));
            Ok(())
        };
        if !uniform {
            if !uniform_target {
                general(self.d, widths[0])?;
            }
            general(self.a, widths[1])?;
        }
        for (source, width) in [(self.b, widths[2]), (self.c, widths[3])] {
            if let Source::Register(number) = source {
                general(number, width)?;
            }
        }
        if self.is_sparse() {
            general(self.register(40), 1)?;
        }
        self.top = top;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_has_one_row_for_each_opcode() {
        assert!(BY_OPCODE.iter().flatten().count() > 250);
        assert!(BY_OPCODE[0x223].is_some_and(|row| row.mnemonic == "FFMA"));
    }

    #[test]
    fn words_without_a_row_are_illegal() {
        assert_eq!(decode(0).unwrap_err(), Refusal::Illegal);
        assert_eq!(decode(!0).unwrap_err(), Refusal::Illegal);
    }

    #[test]
    fn misaligned_pairs_are_refused() {
        // DMUL R2, R14, R16, and the same with R3.
        let word = 0x000f_e200_0000_0000_0000_0010_0e02_7228;
        assert_eq!(decode(word).unwrap().top_register(), Some(17));
        assert_eq!(decode(word | 1 << 16).unwrap_err(), Refusal::MisalignedRegister);
    }

    #[test]
    fn modifiers_without_a_handler_are_refused() {
        // FADD R0, R0, R0 with bit 88, which FADD does not have.
        let word: u128 = 0x000f_c200_0000_0000_0000_0000_0000_7221;
        assert!(decode(word).is_ok());
        assert_eq!(decode(word | 1 << 88).unwrap_err(), Refusal::Unmodelled("FADD"));
    }

    #[test]
    fn sign_extension_keeps_the_low_bits() {
        assert_eq!(sign_extend(0xff_ffff, 24), -1);
        assert_eq!(sign_extend(0x7f_ffff, 24), 0x7f_ffff);
    }
}
