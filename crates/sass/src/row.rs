//! The parts of a row of the table.

use crate::field::{self, Field};
use crate::instruction::{Instruction, Refusal, Sizes};
use crate::op::Op;
use crate::print::Printer;

/// Places of the sources B and C.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// B and C. Forms 2, 3 and 7 have C in the slot and B after it, the others the reverse.
    Ternary,
    /// As `Ternary`, but with the sign bits of HFMA2 above the slot.
    TernaryHalf,
    /// B in the slot; bits 64 to 71 are free for modifiers.
    Binary,
    /// B in the slot with the role of the third source: sums, and comparisons in the same units.
    Sum,
    /// As `Sum`, but B of the register form is above the slot.
    SumUpper,
    /// B alone, in the slot.
    Unary,
    /// Registers A, B and C at bits 24, 32 and 64. The row describes all other operands.
    Own,
}

impl Layout {
    /// Returns whether B and C change places with the form.
    pub(crate) const fn is_ternary(self) -> bool {
        matches!(self, Self::Ternary | Self::TernaryHalf)
    }

    /// Returns whether B has the role of the third source.
    pub(crate) const fn is_sum(self) -> bool {
        matches!(self, Self::Sum | Self::SumUpper)
    }
}

/// Signs of a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Signs {
    /// None.
    None,
    /// `-`.
    Minus,
    /// `~`.
    Complement,
    /// `-`, and `~` if the operation is extended.
    Carry,
    /// `-` and absolute value.
    Float,
}

/// Notation of an immediate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Number {
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
    /// Two numbers of half precision, the upper first.
    Halves,
    /// Two numbers of half precision or bfloat16, as [`field::BFLOAT16`] says.
    HalvesOrBrains,
}

/// Text after a source, selected by fields; the first field has the lowest bits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Suffix {
    pub(crate) fields: &'static [Field],
    pub(crate) list: &'static [&'static str],
}

impl Suffix {
    pub(crate) const NONE: Self = Self { fields: &[], list: &[""] };
}

/// Notation of a source in the slot or above it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Style {
    pub(crate) number: Number,
    pub(crate) signs: Signs,
    /// Suffix of an operand in the slot.
    pub(crate) slot: Suffix,
    /// Suffix of an operand above the slot.
    pub(crate) upper: Suffix,
    /// Whether a blank follows the bank of a constant.
    pub(crate) spaced: bool,
}

impl Style {
    const fn new(number: Number, signs: Signs) -> Self {
        Self { number, signs, slot: Suffix::NONE, upper: Suffix::NONE, spaced: false }
    }

    /// Patterns.
    pub(crate) const PATTERN: Self = Self::new(Number::Pattern, Signs::None);
    /// Signed integers.
    pub(crate) const SIGNED: Self = Self::new(Number::Signed, Signs::None);
    /// Single precision.
    pub(crate) const SINGLE: Self = Self::new(Number::Single, Signs::Float);
    /// Double precision.
    pub(crate) const DOUBLE: Self = Self::new(Number::Double, Signs::Float);
}

/// A piece of the name.
#[derive(Clone, Copy)]
pub(crate) enum Part {
    /// A modifier that is always present.
    Always(&'static str),
    /// A modifier if a bit is set.
    Set(Field, &'static str),
    /// A modifier if a bit is clear.
    Clear(Field, &'static str),
    /// A modifier selected by a field. An empty one is not written, a missing one is invalid.
    One(Field, &'static [&'static str]),
    /// As `One`, selected by several fields; the first field has the lowest bits.
    Join(&'static [Field], &'static [&'static str]),
    /// As `One`, but with a missing modifier the word is not an instruction.
    Required(Field, &'static [&'static str]),
    /// The result of a function of these fields.
    Computed(&'static [Field], fn(&Instruction) -> &'static str),
}

/// A printed operand.
#[derive(Clone, Copy)]
pub(crate) enum Operand {
    /// Destination register.
    D,
    /// Uniform destination register of an instruction outside the uniform datapath.
    UniformD,
    /// Destination register unless it is RZ.
    DUnlessZero,
    /// First source.
    A(Signs, Suffix),
    /// Second source.
    B(Style),
    /// Third source.
    C(Style),
    /// A destination predicate.
    Target(Field),
    /// A destination predicate unless it is dropped.
    TargetIfKept(Field),
    /// A source predicate.
    Condition(Field),
    /// A source predicate unless it is always true.
    ConditionIfUsed(Field),
    /// A general register without marks.
    Register(Field),
    /// A uniform register.
    Uniform(Field),
    /// A hexadecimal number.
    Hex(Field),
    /// A hexadecimal number unless it has this value.
    HexUnless(Field, u32),
    /// A hexadecimal number of several fields; the first field has the lowest bits.
    HexJoin(&'static [Field]),
    /// A fixed word.
    Word(&'static str),
    /// A word selected by a field; a missing one is invalid.
    Named(Field, &'static [&'static str]),
    /// A convergence barrier.
    Barrier(Field),
    /// Operands if a bit is set.
    When(Field, &'static [Operand]),
    /// Operands if a bit is clear.
    Unless(Field, &'static [Operand]),
    /// An address in brackets.
    Address(&'static Addressing),
    /// The output of a function of these fields.
    By(&'static [Field], fn(&mut Printer<'_>)),
}

/// Parts of an address.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Addressing {
    /// Byte offset, signed.
    pub(crate) offset: Field,
    /// Uniform register, present if [`field::UNIFORM`] is set.
    pub(crate) uniform: Option<Field>,
    /// Scale of the register.
    pub(crate) stride: Option<Field>,
    /// Additional parts of a global or generic address.
    pub(crate) global: Option<Global>,
}

/// Width and descriptor of a global or generic address.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Global {
    /// Whether the register has 64 bits; always if `None`.
    pub(crate) wide: Option<Field>,
    /// Whether the uniform register is a descriptor.
    pub(crate) descriptor: Field,
    /// Whether a descriptor that is not shown as such is printed as a uniform register.
    pub(crate) keeps_uniform: bool,
}

/// A function that returns the number of registers of each operand, given those of the row.
type Sizing = fn(&Instruction, Sizes) -> Result<Sizes, Refusal>;

/// One row of the table: how an instruction is encoded, printed and executed.
///
/// ```
/// let instruction = sass::decode(0x000f_ea00_0380_0000_0000_0000_0000_794d).unwrap();
/// assert_eq!(instruction.row().mnemonic, "EXIT");
/// assert!(!instruction.row().is_uniform());
/// ```
pub struct Row {
    /// Bits 0 to 8: the operation.
    pub base: u16,
    /// Bit n set: value n of bits 9 to 11 is legal.
    pub forms: u8,
    /// Mnemonic without modifiers.
    pub mnemonic: &'static str,
    /// Operation.
    pub op: Op,
    /// Places of the sources.
    pub layout: Layout,
    /// Registers that D, A, B and C take, 0 for those not used; see also `sized`.
    pub(crate) widths: [u8; 4],
    /// Modifiers, in the order in which they are written.
    pub(crate) name: &'static [Part],
    /// Operands, in the order in which they are written; `None` if the row is not printed.
    pub(crate) operands: Option<&'static [Operand]>,
    /// Bits that the row names and an interpreter understands.
    pub(crate) understood: u128,
    /// Named bits that an interpreter accepts only if they are 0.
    pub(crate) refused: u128,
    /// Destination predicate that an interpreter accepts only if it is PT.
    pub(crate) dropped: Option<Field>,
    /// Whether an interpreter accepts any modifiers.
    pub(crate) any: bool,
    /// Further conditions of an interpreter.
    pub(crate) only: Option<fn(&Instruction) -> bool>,
    /// Number of registers of each operand, where modifiers change `widths`.
    pub(crate) sized: Option<Sizing>,
}

/// The destination register.
pub(crate) const D: Operand = Operand::D;
/// The first source, without signs.
pub(crate) const A: Operand = Operand::A(Signs::None, Suffix::NONE);
/// The first source, with sign and absolute value.
pub(crate) const FLOAT_A: Operand = Operand::A(Signs::Float, Suffix::NONE);
/// The second source; immediates are patterns.
pub(crate) const B: Operand = Operand::B(Style::PATTERN);
/// The second source; immediates are signed integers.
pub(crate) const SIGNED_B: Operand = Operand::B(Style::SIGNED);
/// The third source; immediates are patterns.
pub(crate) const C: Operand = Operand::C(Style::PATTERN);

/// Form `n` alone.
pub(crate) const fn f(n: u8) -> u8 {
    1 << n
}

/// Forms 1 to 7.
pub(crate) const ABC: u8 = 0b1111_1110;
/// Forms 1, 4, 5 and 6.
pub(crate) const AB: u8 = 0b0111_0010;
/// Forms 1, 2, 3 and 7.
pub(crate) const AC: u8 = 0b1000_1110;
/// Forms 1, 2 and 4 of the uniform datapath.
pub(crate) const UABC: u8 = 0b0001_0110;
/// Forms 1 and 4.
pub(crate) const UAB: u8 = 0b0001_0010;

/// Creates a row of an instruction that an interpreter executes.
pub(crate) const fn row(
    base: u16,
    forms: u8,
    mnemonic: &'static str,
    op: Op,
    layout: Layout,
    widths: [u8; 4],
) -> Row {
    Row {
        base,
        forms,
        mnemonic,
        op,
        layout,
        widths,
        name: &[],
        operands: None,
        understood: 0,
        refused: 0,
        dropped: None,
        any: false,
        only: None,
        sized: None,
    }
}

/// Creates a row of an instruction that is printed but not executed.
pub(crate) const fn printed(base: u16, forms: u8, mnemonic: &'static str, layout: Layout) -> Row {
    row(base, forms, mnemonic, Op::Unmodelled, layout, [0; 4])
}

/// Creates a row of an instruction that is known by name only.
pub(crate) const fn named(base: u16, forms: u8, mnemonic: &'static str) -> Row {
    printed(base, forms, mnemonic, Layout::Own)
}

impl Row {
    /// Adds modifiers.
    pub(crate) const fn name(self, name: &'static [Part]) -> Self {
        let mut understood = self.understood;
        let mut at = 0;
        while at < name.len() {
            understood |= name[at].mask();
            at += 1;
        }
        Self { name, understood, ..self }
    }

    /// Adds operands.
    pub(crate) const fn operands(self, operands: &'static [Operand]) -> Self {
        let understood = self.understood | operands_mask(operands, self.layout);
        Self { operands: Some(operands), understood, ..self }
    }

    /// Accepts a field that does not affect the text.
    pub(crate) const fn ignores(self, field: Field) -> Self {
        Self { understood: self.understood | field.mask(), ..self }
    }

    /// Refuses values of a field other than 0.
    pub(crate) const fn refuses(self, field: Field) -> Self {
        Self { refused: self.refused | field.mask(), ..self }
    }

    /// Refuses a destination predicate other than PT.
    pub(crate) const fn drops(self, target: Field) -> Self {
        Self { dropped: Some(target), understood: self.understood | target.mask(), ..self }
    }

    /// Accepts any modifiers.
    pub(crate) const fn any(self) -> Self {
        Self { any: true, ..self }
    }

    /// Adds a condition.
    pub(crate) const fn only(self, only: fn(&Instruction) -> bool) -> Self {
        Self { only: Some(only), ..self }
    }

    /// Sets the function for the number of registers.
    pub(crate) const fn sized(self, sized: Sizing) -> Self {
        Self { sized: Some(sized), ..self }
    }

    /// Returns whether the register above the slot is a second destination.
    pub(crate) const fn writes_upper(&self) -> bool {
        matches!(self.op, Op::Tex | Op::Tld | Op::Tld4 | Op::Txd | Op::Txq)
    }

    /// Returns whether the instruction belongs to the uniform datapath.
    #[inline]
    pub const fn is_uniform(&self) -> bool {
        self.base >= 0x080 && self.base < 0x0c0
    }
}

impl core::fmt::Debug for Row {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "Row({:#05x} {} {:?})", self.base, self.mnemonic, self.op)
    }
}

impl Part {
    /// Returns the bits that the part reads.
    const fn mask(&self) -> u128 {
        match self {
            Self::Always(_) => 0,
            Self::Set(field, _) | Self::Clear(field, _) => field.mask(),
            Self::One(field, names) | Self::Required(field, names) => {
                assert!(names.len() <= 1 << field.len, "more names than values");
                field.mask()
            }
            Self::Join(fields, names) => {
                let mask = masks(fields);
                assert!(names.len() == 1 << mask.count_ones(), "one name for each value");
                mask
            }
            Self::Computed(fields, _) => masks(fields),
        }
    }
}

const fn masks(fields: &[Field]) -> u128 {
    let (mut mask, mut at) = (0, 0);
    while at < fields.len() {
        mask |= fields[at].mask();
        at += 1;
    }
    mask
}

/// Returns the bits that operands read, except the registers.
const fn operands_mask(operands: &[Operand], layout: Layout) -> u128 {
    let (mut mask, mut at) = (0, 0);
    while at < operands.len() {
        mask |= operand_mask(&operands[at], layout);
        at += 1;
    }
    mask
}

const fn operand_mask(operand: &Operand, layout: Layout) -> u128 {
    match operand {
        Operand::D | Operand::UniformD | Operand::DUnlessZero | Operand::Word(_) => 0,
        Operand::A(signs, suffix) => masks(suffix.fields) | a_mask(*signs),
        Operand::B(style) | Operand::C(style) => {
            masks(style.slot.fields) | masks(style.upper.fields) | upper_mask(style.signs, layout)
        }
        Operand::Target(field)
        | Operand::TargetIfKept(field)
        | Operand::Condition(field)
        | Operand::ConditionIfUsed(field)
        | Operand::Register(field)
        | Operand::Uniform(field)
        | Operand::Hex(field)
        | Operand::HexUnless(field, _)
        | Operand::Named(field, _)
        | Operand::Barrier(field) => field.mask(),
        Operand::HexJoin(fields) | Operand::By(fields, _) => masks(fields),
        Operand::When(field, inner) | Operand::Unless(field, inner) => {
            field.mask() | operands_mask(inner, layout)
        }
        Operand::Address(addressing) => addressing.mask(),
    }
}

const fn a_mask(signs: Signs) -> u128 {
    match signs {
        Signs::None => 0,
        Signs::Float => field::A_NEGATE.mask() | field::A_ABSOLUTE.mask(),
        Signs::Minus | Signs::Complement | Signs::Carry => field::A_NEGATE.mask(),
    }
}

/// Returns the sign bits above the slot, if a source can be there.
const fn upper_mask(signs: Signs, layout: Layout) -> u128 {
    let (negate, absolute) = match layout {
        Layout::TernaryHalf => (field::UPPER_HALF_NEGATE, field::UPPER_HALF_ABSOLUTE),
        Layout::Ternary | Layout::SumUpper => (field::UPPER_NEGATE, field::UPPER_ABSOLUTE),
        Layout::Binary | Layout::Sum | Layout::Unary | Layout::Own => return 0,
    };
    match signs {
        Signs::None => 0,
        Signs::Float => negate.mask() | absolute.mask(),
        Signs::Minus | Signs::Complement | Signs::Carry => negate.mask(),
    }
}

impl Addressing {
    const fn mask(&self) -> u128 {
        let mut mask = self.offset.mask();
        if let Some(uniform) = self.uniform {
            mask |= uniform.mask() | field::UNIFORM.mask();
        }
        if let Some(stride) = self.stride {
            mask |= stride.mask();
        }
        if let Some(global) = self.global {
            mask |= global.descriptor.mask();
            if let Some(wide) = global.wide {
                mask |= wide.mask();
            }
        }
        mask
    }
}
