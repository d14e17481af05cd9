//! Decoded instructions.

use crate::field::{self, Field};
use crate::op::Op;
use crate::print;
use crate::row::{Layout, Row};

/// Number of the register that reads 0 and drops writes (RZ).
pub const RZ: u8 = 255;
/// Number of the uniform register that reads 0 and drops writes (URZ).
pub const URZ: u8 = 63;
/// Number of the predicate that reads true and drops writes (PT, UPT).
pub const PT: u8 = 7;

/// Registers that D, A, B and C take; 0 for those not used.
pub type Sizes = [u8; 4];

/// Reason why a word is not executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// The word is not an instruction.
    #[error("illegal instruction")]
    Illegal,
    /// A register pair or group does not begin at a multiple of its size.
    #[error("misaligned register")]
    MisalignedRegister,
    /// The instruction, or its variant, is not modelled; holds the mnemonic.
    #[error("instruction {0} is not modelled in this variant")]
    Unmodelled(&'static str),
}

/// A source operand.
///
/// ```
/// use sass::Source;
///
/// // MOV R1, c[0x0][0x28]
/// let instruction = sass::decode(0x000f_e400_0000_0f00_0000_0a00_0001_7a02).unwrap();
/// assert!(!matches!(instruction.b, Source::Immediate(_)));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// General register, one value per lane.
    Register(u8),
    /// Uniform register, one value per warp.
    Uniform(u8),
    /// Immediate value.
    Immediate(u32),
    /// Word of a constant bank.
    Constant {
        /// Bank, 0 to 31.
        bank: u8,
        /// Byte offset, 0 to 65535.
        offset: u16,
    },
}

/// Sign bits of a source operand, whether or not the operation uses them. The absolute value is taken first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sign {
    /// Negation; one's complement in some integer operations.
    pub negate: bool,
    /// Absolute value.
    pub absolute: bool,
}

/// A predicate operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Predicate {
    /// P0 to P6, or [`PT`].
    pub index: u8,
    /// Whether the value read is inverted.
    pub not: bool,
}

/// One decoded instruction.
#[derive(Clone, Copy, Debug)]
pub struct Instruction {
    /// Operation.
    pub op: Op,
    /// Kinds of operands: bits 9 to 11.
    pub form: u8,
    /// Guard predicate.
    pub guard: Predicate,
    /// Whether the guard is a uniform predicate.
    pub uniform_guard: bool,
    /// Destination register.
    pub d: u8,
    /// First source register.
    pub a: u8,
    /// Second source.
    pub b: Source,
    /// Third source.
    pub c: Source,
    /// Signs of the second source; none for an immediate.
    pub b_sign: Sign,
    /// Signs of the third source; none for an immediate.
    pub c_sign: Sign,
    /// Highest general register that is read or written.
    top: Option<u8>,
    row: &'static Row,
    /// The word: low, then high half. Halves, because the alignment of `u128` would leave gaps around an
    /// instruction.
    halves: [u64; 2],
}

impl Instruction {
    /// Decodes a word that belongs to `row`.
    pub(crate) fn new(row: &'static Row, word: u128) -> Self {
        let uniform = row.is_uniform();
        let [d, a] = if uniform {
            [field::UNIFORM_D, field::UNIFORM_A]
        } else {
            [field::D_REGISTER, field::A_REGISTER]
        };
        let mut instruction = Self {
            op: row.op,
            // CAST: 3 bits.
            form: field::FORM.of(word) as u8,
            guard: Predicate { index: PT, not: false },
            // VOTEU reads predicates of the lanes, including its guard.
            uniform_guard: uniform && row.op != Op::Voteu || row.op == Op::S2ur,
            // CAST: at most 8 bits.
            d: d.of(word) as u8,
            a: a.of(word) as u8,
            b: Source::Immediate(0),
            c: Source::Immediate(0),
            b_sign: Sign::default(),
            c_sign: Sign::default(),
            top: None,
            row,
            // CAST: the two halves.
            halves: [word as u64, (word >> 64) as u64],
        };
        instruction.guard = instruction.source_predicate(field::GUARD);
        instruction.find_sources(uniform);
        instruction
    }

    /// Returns the row of the table.
    pub fn row(&self) -> &'static Row {
        self.row
    }

    /// Returns the mnemonic without modifiers.
    pub fn mnemonic(&self) -> &'static str {
        self.row.mnemonic
    }

    /// Returns the word that the instruction was decoded from.
    #[inline(always)]
    pub fn word(&self) -> u128 {
        // Not `map`: functions compiled for vector extensions do not inline it.
        let [low, high] = self.halves;
        u128::from(low) | u128::from(high) << 64
    }

    /// Returns the highest general register that the instruction reads or writes.
    #[inline(always)]
    pub fn top_register(&self) -> Option<u8> {
        self.top
    }

    /// Returns the value of a field.
    #[inline(always)]
    pub fn bits(&self, field: Field) -> u32 {
        field.of(self.word())
    }

    /// Returns whether a field is nonzero.
    #[inline(always)]
    pub fn bit(&self, field: Field) -> bool {
        self.bits(field) != 0
    }

    /// Returns the value of a field, sign extended.
    #[inline(always)]
    pub fn signed(&self, field: Field) -> i64 {
        field.signed(self.word())
    }

    /// Returns the concatenated values of fields; the first field has the lowest bits.
    #[inline(always)]
    pub fn join(&self, fields: &[Field]) -> u32 {
        fields.iter().rev().fold(0, |value, field| value << field.len | self.bits(*field))
    }

    /// Returns the register in a field of up to 8 bits.
    #[inline(always)]
    pub fn register(&self, field: Field) -> u8 {
        // CAST: at most 8 bits.
        self.bits(field) as u8
    }

    /// Returns the source predicate in a field: its number in three bits, then its inversion.
    #[inline(always)]
    pub fn source_predicate(&self, field: Field) -> Predicate {
        let bits = self.bits(field);
        // CAST: 3 bits.
        Predicate { index: (bits & 7) as u8, not: bits & 8 != 0 }
    }

    /// Returns the destination predicate in a field.
    #[inline(always)]
    pub fn target_predicate(&self, field: Field) -> u8 {
        // CAST: 3 bits.
        (self.bits(field) & 7) as u8
    }

    /// Returns the signs of the first source of a floating-point operation.
    #[inline(always)]
    pub fn a_sign(&self) -> Sign {
        Sign { negate: self.bit(field::A_NEGATE), absolute: self.bit(field::A_ABSOLUTE) }
    }

    /// Returns the byte offset of a relative branch from the next instruction, or the target of an absolute branch.
    pub fn branch_offset(&self) -> i64 {
        (self.signed(field::BRANCH_HIGH) << field::BRANCH_LOW.len | i64::from(self.bits(field::BRANCH_LOW)))
            * 4
    }

    /// Returns whether C is in the slot and B above it.
    pub(crate) fn is_swapped(&self) -> bool {
        matches!(self.form, 2 | 3 | 7)
    }

    fn find_sources(&mut self, uniform: bool) {
        let register = |number: u8| {
            if uniform { Source::Uniform(number & URZ) } else { Source::Register(number) }
        };
        let upper = register(self.register(field::UPPER));
        let [negate, absolute] = match self.row.layout {
            Layout::TernaryHalf => [field::UPPER_HALF_NEGATE, field::UPPER_HALF_ABSOLUTE],
            _ => [field::UPPER_NEGATE, field::UPPER_ABSOLUTE],
        };
        let upper_sign = Sign { negate: self.bit(negate), absolute: self.bit(absolute) };
        let slot = match self.form {
            1 => register(self.register(field::SLOT_REGISTER)),
            2 | 4 => Source::Immediate(self.bits(field::SLOT)),
            // CAST: 5 and 16 bits.
            3 | 5 => Source::Constant {
                bank: self.bits(field::BANK) as u8,
                offset: self.bits(field::BANK_OFFSET) as u16,
            },
            6 | 7 => Source::Uniform(self.register(field::SLOT_UNIFORM)),
            _ => Source::Immediate(0),
        };
        let slot_sign = match slot {
            Source::Immediate(_) => Sign::default(),
            _ => Sign { negate: self.bit(field::SLOT_NEGATE), absolute: self.bit(field::SLOT_ABSOLUTE) },
        };
        match self.row.layout {
            Layout::Ternary | Layout::TernaryHalf if self.is_swapped() => {
                (self.b, self.b_sign) = (upper, upper_sign);
                (self.c, self.c_sign) = (slot, slot_sign);
            }
            Layout::Ternary | Layout::TernaryHalf => {
                (self.b, self.b_sign) = (slot, slot_sign);
                (self.c, self.c_sign) = (upper, upper_sign);
            }
            Layout::SumUpper if self.form == 1 => (self.b, self.b_sign) = (upper, upper_sign),
            Layout::Binary | Layout::Sum | Layout::SumUpper | Layout::Unary => {
                (self.b, self.b_sign) = (slot, slot_sign);
            }
            Layout::Own => {
                (self.b, self.c) = (
                    Source::Register(self.register(field::SLOT_REGISTER)),
                    Source::Register(self.register(field::UPPER)),
                );
            }
        }
    }

    /// Returns the general registers that the instruction writes: the first one and their number, 0 for none.
    pub fn written(&self) -> (u8, u8) {
        let elsewhere = self.row.is_uniform() || matches!(self.op, Op::R2ur | Op::S2ur | Op::Redux);
        let width = self.sizes().map_or(0, |sizes| sizes[0]);
        if elsewhere || self.d == RZ { (RZ, 0) } else { (self.d, width) }
    }

    /// Returns the second group of general registers that a texture instruction writes, as [`Instruction::written`];
    /// none for other instructions.
    pub fn written_too(&self) -> (u8, u8) {
        let width = if self.row.writes_upper() { self.sizes().map_or(0, |sizes| sizes[3]) } else { 0 };
        match self.c {
            Source::Register(number) if number != RZ && width > 0 => (number, width),
            _ => (RZ, 0),
        }
    }

    /// Returns the general registers that the instruction reads, as [`Instruction::written`]: A, B, C and one more.
    pub fn read(&self) -> [(u8, u8); 4] {
        let [_, a, mut b, mut c] = self.sizes().unwrap_or_default();
        if self.row.writes_upper() {
            c = 0;
        }
        if self.op == Op::Shfl {
            (b, c) = (u8::from(matches!(self.form, 1 | 2)), u8::from(matches!(self.form, 1 | 4)));
        }
        let source = |source, width| match source {
            Source::Register(number) if number != RZ => (number, width),
            _ => (RZ, 0),
        };
        let more = match self.op {
            Op::Ldgsts => self.d,
            _ if self.is_sparse() => self.register(field::METADATA),
            _ => RZ,
        };
        let register = if self.row.is_uniform() { RZ } else { self.a };
        [
            source(Source::Register(register), a),
            source(self.b, b),
            source(self.c, c),
            source(Source::Register(more), 1),
        ]
    }

    /// Registers that the operands take.
    fn sizes(&self) -> Result<Sizes, Refusal> {
        match self.row.sized {
            Some(sized) => sized(self, self.row.widths),
            None => Ok(self.row.widths),
        }
    }

    /// Refuses words that an interpreter does not execute, and finds the highest register.
    ///
    /// # Errors
    ///
    /// As [`decode`](crate::decode).
    pub(crate) fn check(&mut self) -> Result<(), Refusal> {
        self.check_kinds()?;
        self.check_modifiers()?;
        self.check_registers()
    }

    fn unmodelled(&self) -> Refusal {
        Refusal::Unmodelled(self.row.mnemonic)
    }

    /// Compares the flag of uniform registers with the form.
    fn check_kinds(&self) -> Result<(), Refusal> {
        if self.row.layout == Layout::Own {
            return Ok(());
        }
        let flag = self.bit(field::UNIFORM);
        let always = self.row.is_uniform() && !matches!(self.op, Op::Uldc | Op::UldcIndexed | Op::Umov);
        let wants_flag = always || matches!(self.form, 6 | 7);
        // A constant with the flag is bindless.
        match flag {
            true if matches!(self.form, 3 | 5) => Err(self.unmodelled()),
            _ if flag != wants_flag => Err(Refusal::Illegal),
            _ => Ok(()),
        }
    }

    /// Refuses modifier bits that the row does not name, and values without a name.
    fn check_modifiers(&self) -> Result<(), Refusal> {
        let row = self.row;
        if row.any {
            return Ok(());
        }
        let mut allowed = row.understood & !row.refused;
        if row.layout != Layout::Own {
            // The flag has been checked.
            allowed |= field::UNIFORM.mask();
        }
        let reads_upper = match row.layout {
            Layout::Ternary | Layout::TernaryHalf => true,
            Layout::SumUpper => self.form == 1,
            Layout::Binary | Layout::Sum | Layout::Unary | Layout::Own => false,
        };
        let two = matches!(row.layout, Layout::Binary | Layout::Sum | Layout::SumUpper);
        if reads_upper {
            allowed |= if row.is_uniform() { field::UPPER_UNIFORM } else { field::UPPER }.mask();
        } else if two && self.is_swapped() && row.understood & field::UPPER.mask() == 0 {
            // An operation with two sources does not read the register above the slot.
            allowed |= field::UPPER.mask();
        }
        let unknown = self.word() & field::UPPER_HALF.mask() & !allowed != 0;
        let refused = self.word() & row.refused != 0;
        let kept = row.dropped.is_some_and(|target| self.target_predicate(target) != PT);
        let excluded = row.only.is_some_and(|only| !only(self));
        if unknown || refused || kept || excluded || !print::is_valid(self) {
            return Err(self.unmodelled());
        }
        Ok(())
    }

    /// Checks the alignment of register groups and finds the highest general register.
    fn check_registers(&mut self) -> Result<(), Refusal> {
        let row = self.row;
        let widths = self.sizes()?;
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
        if !row.is_uniform() {
            if !matches!(self.op, Op::R2ur | Op::S2ur | Op::Redux) {
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
            general(self.register(field::METADATA), 1)?;
        }
        self.top = top;
        Ok(())
    }
}
