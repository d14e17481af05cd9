//! Text of decoded instructions: guard, mnemonic without modifiers, operands in the order of the
//! vendor's disassembler. Immediates are hexadecimal patterns whatever their type; branch targets
//! are offsets from the instruction.

use core::fmt::{self, Display, Formatter};

use super::table::{Layout, Op};
use super::{Instruction, PT, Predicate, RZ, Sign, Source, URZ, sign_extend};

/// A general or a uniform register.
struct Register(u8, bool);

impl Display for Register {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match (self.0, self.1) {
            (RZ, false) => f.write_str("RZ"),
            (URZ, true) => f.write_str("URZ"),
            (number, false) => write!(f, "R{number}"),
            (number, true) => write!(f, "UR{number}"),
        }
    }
}

/// A predicate, inverted or not, of the vector or the uniform file.
struct PredicateText(Predicate, bool);

impl Display for PredicateText {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let (not, uniform) = (if self.0.not { "!" } else { "" }, if self.1 { "U" } else { "" });
        match self.0.index {
            PT => write!(f, "{not}{uniform}PT"),
            index => write!(f, "{not}{uniform}P{index}"),
        }
    }
}

impl Display for Source {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Register(number) => Register(number, false).fmt(f),
            Self::Uniform(number) => Register(number, true).fmt(f),
            Self::Immediate(value) => write!(f, "{value:#x}"),
            // CAST: shown as a signed number.
            Self::Constant { bank, offset } => match offset as i16 {
                offset @ ..0 => write!(f, "c[{bank:#x}][-{:#x}]", offset.unsigned_abs()),
                offset => write!(f, "c[{bank:#x}][{offset:#x}]"),
            },
        }
    }
}

/// The operands of an instruction as text.
struct Operands<'a>(&'a Instruction, Vec<String>);

impl Operands<'_> {
    fn push(&mut self, operand: impl Display) {
        self.1.push(operand.to_string());
    }

    fn uniform(&self) -> bool {
        (0x080..0x0c0).contains(&self.0.base())
    }

    /// A destination predicate that is always shown.
    fn target(&mut self, low: u32) {
        let predicate = Predicate { index: self.0.target_predicate(low), not: false };
        let uniform = self.uniform();
        self.push(PredicateText(predicate, uniform));
    }

    /// A destination predicate that is shown unless writes to it are dropped.
    fn carry(&mut self, low: u32) {
        if self.0.target_predicate(low) != PT {
            self.target(low);
        }
    }

    fn predicate(&mut self, low: u32) {
        let uniform = self.uniform();
        self.push(PredicateText(self.0.source_predicate(low), uniform));
    }

    /// A condition beside the guard, shown unless it is always true.
    fn condition(&mut self) {
        if self.0.bits(87, 4) != 7 {
            self.predicate(87);
        }
    }

    fn signed(&mut self, source: impl Display, sign: Sign, negation: &str) {
        let text = if sign.absolute { format!("|{source}|") } else { source.to_string() };
        self.push(if sign.negate { format!("{negation}{text}") } else { text });
    }

    fn d(&mut self) {
        let register = Register(self.0.d, self.uniform());
        self.push(register);
    }

    fn a(&mut self) {
        let i = self.0;
        let sign = match i.op {
            Op::Fadd | Op::Fmul | Op::Ffma | Op::Fmnmx | Op::Fsel | Op::Fset | Op::Fsetp | Op::Fchk => {
                i.a_sign()
            }
            Op::Dadd | Op::Dmul | Op::Dfma | Op::Dsetp | Op::Dmma => i.a_sign(),
            Op::Hadd2 | Op::Hmul2 | Op::Hfma2 | Op::Hset2 | Op::Hsetp2 | Op::Hmnmx2 => i.a_sign(),
            Op::Iadd3 | Op::Uiadd3 | Op::Lea | Op::Ulea => Sign { negate: i.bit(72), absolute: false },
            _ => Sign::default(),
        };
        let register = Register(i.a, self.uniform());
        self.signed(register, sign, self.negation());
    }

    /// How a negated integer is written: extended operations complement.
    fn negation(&self) -> &'static str {
        let i = self.0;
        match i.op {
            Op::Iadd3 | Op::Uiadd3 | Op::Lea | Op::Ulea | Op::Imad | Op::ImadWide if i.bit(74) => "~",
            Op::Popc | Op::Upopc | Op::Flo | Op::Uflo => "~",
            _ => "-",
        }
    }

    /// Whether the places of signs hold signs.
    fn has_signs(&self) -> bool {
        !matches!(
            self.0.op,
            Op::Lop3 | Op::Ulop3 | Op::Prmt | Op::Shf | Op::Ushf | Op::Sel | Op::Mov | Op::Isetp
        ) && !matches!(
            self.0.op,
            Op::Imnmx | Op::F2fp | Op::F2ip | Op::I2ip | Op::I2i | Op::Vabsdiff | Op::Vabsdiff4
        )
    }

    /// Whether operands have absolute values; in integer operations those bits are others.
    fn is_float(&self) -> bool {
        let name = self.0.mnemonic();
        name.starts_with(['F', 'D', 'H']) && !name.starts_with("FLO") || self.0.op == Op::Mufu
    }

    fn b(&mut self) {
        let i = self.0;
        let sign = Sign { absolute: i.b_sign.absolute && self.is_float(), ..i.b_sign };
        let sign = if self.has_signs() { sign } else { Sign::default() };
        self.signed(i.b, sign, self.negation());
    }

    fn c(&mut self) {
        let i = self.0;
        let upper = !matches!(i.form, 2 | 3 | 7);
        let sign = match i.op {
            _ if !self.has_signs() => Sign::default(),
            // Here the modifiers of a half are elsewhere, or the places are those of a shift.
            Op::Hfma2 if upper => Sign { negate: i.bit(84), absolute: i.bit(83) },
            Op::Lea | Op::Ulea | Op::Imma | Op::Bmma | Op::Hmma => Sign::default(),
            _ => Sign { absolute: i.c_sign.absolute && self.is_float(), ..i.c_sign },
        };
        self.signed(i.c, sign, self.negation());
    }

    /// The operands of an arithmetic instruction.
    fn arithmetic(&mut self) {
        let i = self.0;
        match i.op {
            Op::Isetp | Op::Uisetp | Op::Fsetp | Op::Dsetp | Op::Hsetp2 => {
                self.target(81);
                self.target(84);
                self.a();
                self.b();
                self.predicate(87);
                if matches!(i.op, Op::Isetp | Op::Uisetp) && i.bit(72) {
                    self.predicate(68);
                }
                return;
            }
            Op::Fchk => self.target(81),
            Op::R2p | Op::Ur2up => self.push("PR"),
            Op::Lop3 | Op::Ulop3 => {
                self.carry(81);
                self.d();
            }
            _ => self.d(),
        }
        match i.op {
            Op::P2r | Op::Up2ur => self.push("PR"),
            Op::Imad | Op::ImadWide | Op::ImadHi | Op::Uimad | Op::UimadWide | Op::Lea | Op::Ulea => {
                self.carry(81)
            }
            Op::Iadd3 | Op::Uiadd3 => {
                self.carry(81);
                self.carry(84);
            }
            _ => {}
        }
        // MERGE_C converts B alone, and merges it with C.
        let merges = i.op == Op::F2fp && i.bit(78);
        if i.row.layout != Layout::Unary && !merges {
            self.a();
        }
        self.b();
        let high = i.bit(80) && !i.bit(73);
        let third = match i.op {
            Op::Lea | Op::Ulea => high,
            Op::F2fp => merges,
            _ => i.row.layout == Layout::Ternary,
        };
        if third {
            self.c();
        }
        match i.op {
            Op::Hmma | Op::Imma if i.is_sparse() => {
                self.push(Register(i.register(40), false));
                self.push(format_args!("{:#x}", i.bits(48, 2)));
            }
            Op::Lop3 | Op::Ulop3 => {
                self.push(format_args!("{:#x}", i.bits(72, 8)));
                self.predicate(87);
            }
            Op::Lea | Op::Ulea => {
                self.push(format_args!("{:#x}", i.bits(75, 5)));
                if i.bit(74) {
                    self.predicate(87);
                }
            }
            Op::Mov if i.bits(72, 4) != 15 => self.push(format_args!("{:#x}", i.bits(72, 4))),
            Op::Iadd3 | Op::Uiadd3 if i.bit(74) => {
                self.predicate(87);
                self.predicate(77);
            }
            Op::Imad | Op::ImadWide | Op::ImadHi | Op::Uimad | Op::UimadWide if i.bit(74) => {
                self.predicate(87)
            }
            Op::Sel | Op::Usel | Op::Fsel | Op::Imnmx | Op::Fmnmx | Op::Fset | Op::Hset2 | Op::Hmnmx2 => {
                self.predicate(87);
            }
            _ => {}
        }
    }

    /// An address: register with stride, uniform register, offset.
    fn address(&mut self, stride: u32, uniform: Option<u32>, offset: i64) {
        let i = self.0;
        let wide = i.form == 4
            && i.bit(90)
            && i.bit(72)
            && !matches!(i.op, Op::Lds | Op::Sts | Op::Atoms | Op::AtomsInc | Op::Ldl);
        let wide = wide || matches!(i.op, Op::Atomg) && i.form == 4;
        let mut text = String::new();
        if i.a != RZ || wide {
            text = Register(i.a, false).to_string();
            if wide && i.a != RZ {
                text += ".64";
            }
            if stride != 0 {
                text += &format!(".X{}", 2 << stride);
            }
        }
        if let Some(low) = uniform {
            // CAST: 6 bits.
            let register = Register(i.bits(low, 6) as u8, true).to_string();
            text = if text.is_empty() { register } else { format!("{text}+{register}") };
        }
        let offset = match (text.is_empty(), offset) {
            (true, 0) => "RZ".to_owned(),
            // Without a register the 24 bits are a number of their own.
            // CAST: two's complement of 24 bits.
            (true, offset) => format!("{:#x}", offset as u64 & 0xff_ffff),
            (false, 0) => String::new(),
            (false, offset) if offset < 0 => format!("+-{:#x}", offset.unsigned_abs()),
            (false, offset) => format!("+{offset:#x}"),
        };
        self.push(format_args!("[{text}{offset}]"));
    }

    /// The operands of loads, stores and atomics.
    fn memory(&mut self) {
        let i = self.0;
        let offset = sign_extend(i.bits(40, 24).into(), 24);
        let data = Register(i.register(32), false);
        let base =
            |descriptor: u32, low: u32| (i.form == 4 && i.bit(91) && !i.bit(descriptor)).then_some(low);
        let window = |low: u32| i.bit(91).then_some(low);
        match i.op {
            Op::Ldg | Op::Ld => {
                self.d();
                self.address(0, base(76, 32), offset);
            }
            Op::Ldl => {
                self.d();
                self.address(0, None, offset);
            }
            Op::Lds => {
                self.d();
                self.address(i.bits(78, 2), window(32), offset);
            }
            Op::Stg => {
                self.address(0, base(76, 64), offset);
                self.push(data);
            }
            Op::Stl => {
                self.address(0, None, offset);
                self.push(data);
            }
            Op::Sts => {
                self.address(i.bits(78, 2), window(64), offset);
                self.push(data);
            }
            Op::Red => {
                self.address(0, base(71, 64), offset);
                self.push(data);
            }
            _ => {
                if i.op == Op::Atomg {
                    self.target(81);
                }
                self.d();
                let stride = if i.op == Op::Atoms { i.bits(78, 2) } else { 0 };
                let uniform = if i.op == Op::Atoms { window(64) } else { base(71, 64) };
                self.address(stride, uniform, offset);
                self.push(data);
                if matches!(i.base(), 0x1a9 | 0x18b | 0x18d) {
                    self.push(Register(i.register(64), false));
                }
            }
        }
    }

    /// The operands of PLOP3 whose inputs are signs of registers.
    fn signs(&mut self) {
        let (i, uniform) = (self.0, self.uniform());
        self.target(81);
        self.target(84);
        match i.base() & 3 {
            3 => self.push(format_args!("{}.SIGN", Register(i.a, uniform))),
            _ => self.predicate(87),
        }
        self.push(format_args!("{}.SIGN", i.b));
        match i.base() & 3 {
            1 => self.predicate(68),
            _ => self.push(format_args!("{}.SIGN", i.c)),
        }
        self.push(format_args!("{:#x}", i.bits(72, 8)));
        self.push(format_args!("{:#x}", i.bits(16, 8)));
    }

    /// All operands that are shown.
    fn collect(&mut self) {
        let i = self.0;
        match i.op {
            Op::Ldg
            | Op::Ld
            | Op::Ldl
            | Op::Lds
            | Op::Stg
            | Op::Stl
            | Op::Sts
            | Op::Red
            | Op::Atomg
            | Op::Atoms => {
                self.memory();
            }
            Op::Bra | Op::Call => {
                self.condition();
                if i.op == Op::Bra && i.bits(32, 2) > 1 {
                    // CAST: 6 bits.
                    let register = Register(i.bits(24, 6) as u8, true);
                    self.signed(register, Sign { negate: i.bit(30), absolute: false }, "~");
                }
                self.push(format_args!("{:#x}", 16i64.wrapping_add(i.branch_offset())));
            }
            Op::Bsync => {
                self.condition();
                self.push(format_args!("B{}", i.bits(16, 4)));
            }
            Op::AtomsInc => {
                self.d();
                self.address(i.bits(78, 2), i.bit(91).then_some(64), sign_extend(i.bits(40, 24).into(), 24));
            }
            Op::Shfl => {
                self.target(81);
                self.d();
                self.a();
                match i.form {
                    4 | 7 => self.push(format_args!("{:#x}", i.bits(53, 5))),
                    _ => self.push(Register(i.register(32), false)),
                }
                match i.form {
                    2 | 7 => self.push(format_args!("{:#x}", i.bits(40, 13))),
                    _ => self.push(Register(i.register(64), false)),
                }
            }
            Op::Vote => {
                if i.d != RZ {
                    self.d();
                }
                self.target(81);
                self.predicate(87);
            }
            Op::Plop3 => {
                self.target(81);
                self.target(84);
                self.predicate(87);
                self.predicate(77);
                self.push(PredicateText(i.source_predicate(68), i.bit(67)));
                self.push(format_args!("{:#x}", i.bits(72, 5) << 3 | i.bits(64, 3)));
                self.push(format_args!("{:#x}", i.bits(16, 8)));
            }
            Op::Plop3Signs | Op::Uplop3Sign => self.signs(),
            Op::Bmov | Op::Warpsync | Op::Nanosleep => {
                if i.op == Op::Bmov {
                    self.push(format_args!("B{}", i.bits(24, 4)));
                } else {
                    self.condition();
                }
                self.push(i.b);
            }
            _ if i.row.layout != Layout::Own => self.arithmetic(),
            _ => {}
        }
    }
}

impl Display for Instruction {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if self.guard != (Predicate { index: PT, not: false }) {
            write!(f, "@{} ", PredicateText(self.guard, self.uniform_guard))?;
        }
        f.write_str(self.mnemonic())?;
        let plain = self.unwatched();
        let mut operands = Operands(&plain, Vec::new());
        operands.collect();
        for (at, operand) in operands.1.iter().enumerate() {
            f.write_str(if at == 0 { " " } else { ", " })?;
            f.write_str(operand)?;
        }
        Ok(())
    }
}
