//! Handlers of steps, and the selection of the handler for an instruction.

use sass::{Instruction, Op, PT, Predicate, RZ, Sign, Source, URZ, field};

use super::arithmetic::{self as calculate, NEVER, compare, map, packed, set};
use super::eight::{Eight, Native as V, part};
use super::memory as access;
use super::operands::{Operand, Pool, Sources};
use super::{Machine, Step};
use crate::sm::constants::Constants;
use crate::sm::exec::float::SignMask;
use crate::sm::exec::memory::{offset, stored, whole_words};
use crate::sm::exec::{Flow, Outcome, control, convert, execute_rare, float, half, integer, memory};
use crate::sm::warp::Warp;

/// Executes a step. Returns false if it fails, with the reason in the machine.
///
/// # Safety
///
/// The processor must support the vector extensions that the handler was compiled for.
pub(super) type Handler = unsafe fn(&mut Machine, &Step) -> bool;

/// Declares the handlers: a name, and a body that is compiled for the vectors of the processor.
macro_rules! handlers {
    ($($kind:ident: |$machine:ident, $step:ident| $body:expr,)+) => {
        #[derive(Clone, Copy)]
        enum Kind {
            $($kind,)+
        }

        impl Kind {
            fn handler(self) -> Handler {
                match self {
                    $(Self::$kind => {
                        #[cfg_attr(
                            target_arch = "x86_64",
                            target_feature(enable = "avx2,fma,bmi1,bmi2,lzcnt,popcnt")
                        )]
                        fn handler($machine: &mut Machine, $step: &Step) -> bool {
                            $body
                        }
                        handler
                    })+
                }
            }
        }
    };
}

/// Executes the instruction of a step by a function of the interpreter.
macro_rules! interpret {
    ($machine:ident, $function:path) => {{
        let i = $machine.instruction();
        let outcome = $function($machine.context, $machine.warp, i, $machine.active);
        $machine.note(outcome)
    }};
}

handlers! {
    Ffma: |m, s| calculate::ffma::<V>(m, s),
    FfmaSigned: |m, s| calculate::ffma_signed::<V>(m, s),
    FfmaAny: |m, _s| interpret!(m, float::ffma),
    Fadd: |m, s| calculate::fadd::<V>(m, s),
    FaddAny: |m, _s| interpret!(m, float::fadd),
    Fmul: |m, s| calculate::fmul::<V>(m, s),
    FmulAny: |m, _s| interpret!(m, float::fmul),
    FloatEqual: |m, s| compare!(m, s, |a, b| a.equal_float(b)),
    FloatLess: |m, s| compare!(m, s, |a, b| a.less_float(b)),
    FloatAtMost: |m, s| compare!(m, s, |a, b| a.at_most_float(b)),
    FsetpAny: |m, _s| interpret!(m, float::fsetp),
    FselectAny: |m, _s| interpret!(m, float::select),
    Imad: |m, s| map!(m, s, |a, b, c| a.mul(b).add(c)),
    ImadAny: |m, _s| interpret!(m, integer::imad),
    ImadWide: |m, s| calculate::imad_wide::<V>(m, s, false),
    ImadWideSigned: |m, s| calculate::imad_wide::<V>(m, s, true),
    ImadWideAny: |m, _s| interpret!(m, integer::imad_wide),
    ImadHighAny: |m, _s| interpret!(m, integer::imad_high),
    Iadd3: |m, s| map!(m, s, |a, b, c| a.add(b).add(c)),
    Iadd3Signed: |m, s| calculate::iadd3_signed::<V>(m, s),
    Iadd3Carries: |m, s| calculate::iadd3_carries::<V>(m, s),
    Iadd3Any: |m, _s| interpret!(m, integer::iadd3),
    And: |m, s| map!(m, s, |a, b| a.and(b)),
    Or: |m, s| map!(m, s, |a, b| a.or(b)),
    Xor: |m, s| map!(m, s, |a, b| a.xor(b)),
    Lop3: |m, s| calculate::lop3::<V>(m, s),
    Lop3Any: |m, _s| interpret!(m, integer::lop3),
    ShiftLeft: |m, s| map!(m, s, |a| a.shift_left(s.extra[0] & 31)),
    ShiftRight: |m, s| map!(m, s, |b| b.shift_right(s.extra[0] & 31)),
    ShiftRightSigned: |m, s| map!(m, s, |b| b.shift_right_signed(s.extra[0] & 31)),
    ShfAny: |m, _s| interpret!(m, integer::shf),
    Lea: |m, s| map!(m, s, |a, b| a.shift_left(s.extra[0] & 31).add(b)),
    LeaAny: |m, _s| interpret!(m, integer::lea),
    Copy: |m, s| map!(m, s, |b| b),
    MovAny: |m, _s| interpret!(m, integer::mov),
    Sel: |m, s| calculate::sel::<V>(m, s),
    SelAny: |m, _s| interpret!(m, integer::sel),
    Equal: |m, s| compare!(m, s, |a, b| a.equal(b)),
    Below: |m, s| calculate::below::<V>(m, s),
    IsetpAny: |m, _s| interpret!(m, integer::isetp),
    ImnmxAny: |m, _s| interpret!(m, integer::imnmx),
    Permute: |m, s| calculate::permute::<V>(m, s),
    PrmtAny: |m, _s| interpret!(m, integer::prmt),
    HalfAny: |m, _s| interpret!(m, half::arithmetic),
    PackAny: |m, _s| interpret!(m, convert::pack),
    Lds1: |m, s| access::lds::<V, 1>(m, s) || m.lds(),
    Lds2: |m, s| access::lds::<V, 2>(m, s) || m.lds(),
    Lds4: |m, s| access::lds::<V, 4>(m, s) || m.lds(),
    LdsAny: |m, _s| m.lds(),
    Sts1: |m, s| access::sts::<V, 1>(m, s) || m.sts(),
    Sts2: |m, s| access::sts::<V, 2>(m, s) || m.sts(),
    Sts4: |m, s| access::sts::<V, 4>(m, s) || m.sts(),
    StsAny: |m, _s| m.sts(),
    LdgAny: |m, _s| m.ldg(),
    Ldg1: |m, s| access::ldg::<V, 1, false>(m, s) || m.ldg(),
    Ldg1Signed: |m, s| access::ldg::<V, 1, true>(m, s) || m.ldg(),
    Ldg2: |m, s| access::ldg::<V, 2, false>(m, s) || m.ldg(),
    Ldg2Signed: |m, s| access::ldg::<V, 2, true>(m, s) || m.ldg(),
    Ldg4: |m, s| access::ldg::<V, 4, false>(m, s) || m.ldg(),
    Ldg8: |m, s| access::ldg::<V, 8, false>(m, s) || m.ldg(),
    Ldg16: |m, s| access::ldg::<V, 16, false>(m, s) || m.ldg(),
    StgAny: |m, _s| m.stg(),
    Stg1: |m, s| access::stg::<V, 1>(m, s) || m.stg(),
    Stg2: |m, s| access::stg::<V, 2>(m, s) || m.stg(),
    Stg4: |m, s| access::stg::<V, 4>(m, s) || m.stg(),
    Stg8: |m, s| access::stg::<V, 8>(m, s) || m.stg(),
    Stg16: |m, s| access::stg::<V, 16>(m, s) || m.stg(),
    Nothing: |_m, _s| true,
    Branch: |m, _s| m.branch(),
    Jump: |m, _s| m.jump(),
    Rare: |m, _s| m.jump(),
}

impl Step {
    /// A step that is not part of a run.
    pub(super) const NONE: Self = Self {
        run: |_, _| unreachable!("a slot outside of runs"),
        always: true,
        uniform_guard: false,
        guard: Predicate { index: PT, not: false },
        d: RZ,
        base: URZ,
        spread: [URZ; 2],
        a: RZ as Operand,
        b: RZ as Operand,
        c: RZ as Operand,
        upper: RZ as Operand,
        extra: [0; 6],
    };
}

/// Returns the step of an instruction; `None` if it may stop the warp, or jump in other ways than a branch.
pub(super) fn prepare(i: &Instruction, pool: &mut Pool, constants: &Constants) -> Option<Step> {
    let mut step = Step {
        always: i.guard == Predicate { index: PT, not: false },
        uniform_guard: i.uniform_guard,
        guard: i.guard,
        d: i.d,
        a: i.a.into(),
        ..Step::NONE
    };
    let mut sources = Sources { pool, constants, spread: [URZ; 2] };
    let special = special(i, &mut step, &mut sources);
    if special.is_some() {
        step.spread = sources.spread;
        step.always &= step.spread == [URZ; 2];
    }
    step.run = special.or_else(|| general(i))?.handler();
    Some(step)
}

/// Whether an instruction may jump, so that it ends a run.
pub(super) fn may_jump(i: &Instruction) -> bool {
    matches!(general(i), Some(Kind::Branch | Kind::Jump))
}

/// Whether an instruction has handlers of its own, besides the interpreter's function.
pub(super) fn has_own(i: &Instruction) -> bool {
    !matches!(general(i), None | Some(Kind::Branch | Kind::Jump | Kind::Rare | Kind::Nothing))
}

/// Returns the handler for all forms of an operation.
fn general(i: &Instruction) -> Option<Kind> {
    Some(match i.op {
        Op::Ffma => Kind::FfmaAny,
        Op::Fadd => Kind::FaddAny,
        Op::Fmul => Kind::FmulAny,
        Op::Fsetp => Kind::FsetpAny,
        Op::Fmnmx | Op::Fsel => Kind::FselectAny,
        Op::Imad => Kind::ImadAny,
        Op::ImadWide => Kind::ImadWideAny,
        Op::ImadHi => Kind::ImadHighAny,
        Op::Iadd3 => Kind::Iadd3Any,
        Op::Lop3 => Kind::Lop3Any,
        Op::Shf => Kind::ShfAny,
        Op::Lea => Kind::LeaAny,
        Op::Mov => Kind::MovAny,
        Op::Sel => Kind::SelAny,
        Op::Isetp => Kind::IsetpAny,
        Op::Imnmx => Kind::ImnmxAny,
        Op::Prmt => Kind::PrmtAny,
        Op::Hadd2 | Op::Hmul2 | Op::Hfma2 | Op::Hmnmx2 | Op::Hset2 => Kind::HalfAny,
        Op::F2fp | Op::F2ip => Kind::PackAny,
        Op::Lds => Kind::LdsAny,
        Op::Sts => Kind::StsAny,
        Op::Ldg => Kind::LdgAny,
        Op::Stg => Kind::StgAny,
        Op::Nothing => Kind::Nothing,
        Op::Bra => Kind::Branch,
        Op::Bssy | Op::BmovToRegister | Op::BmovFromBarrier | Op::Bmov | Op::B2r | Op::Lepc => Kind::Rare,
        Op::Bsync | Op::Break | Op::Warpsync => Kind::Jump,
        Op::Jmp | Op::Brx | Op::Brxu | Op::Jmx | Op::Ret => Kind::Jump,
        Op::Call | Op::CallAbsolute | Op::CallRegister | Op::CallAbsoluteRegister => Kind::Jump,
        Op::Watched | Op::Unmodelled => return None,
        Op::Exit | Op::Yield | Op::Nanosleep | Op::Bpt | Op::Bar => return None,
        _ => Kind::Rare,
    })
}

/// Returns the handler for the form of the instruction, if it has one of its own, and fills in its operands.
fn special(i: &Instruction, step: &mut Step, sources: &mut Sources) -> Option<Kind> {
    match i.op {
        Op::Ffma | Op::Fadd | Op::Fmul | Op::Fsetp => float_kind(i, step, sources),
        Op::Lds | Op::Sts | Op::Ldg | Op::Stg => access_kind(i, step),
        _ => integer_kind(i, step, sources),
    }
}

/// Returns the operand of a float source. Signs of constants are applied at once; those of registers are returned.
fn float_operand(sources: &mut Sources, source: Source, sign: Sign) -> Option<(Operand, SignMask)> {
    let mask = SignMask::of(sign);
    let operand = sources.operand(source, |value| mask.bits(value))?;
    let constant = matches!(source, Source::Immediate(_) | Source::Constant { .. });
    Some((operand, if constant { SignMask::of(Sign::default()) } else { mask }))
}

fn float_kind(i: &Instruction, step: &mut Step, sources: &mut Sources) -> Option<Kind> {
    let sa = SignMask::of(i.a_sign());
    let (b, sb) = float_operand(sources, i.b, i.b_sign)?;
    step.b = b;
    if i.op == Op::Fsetp {
        let plain = !i.bit(field::FTZ) && [i.a_sign(), i.b_sign] == [Sign::default(); 2];
        // A truth table of less, equal, greater and unordered.
        let (kind, exchange, invert) = match i.bits(field::FLOAT_COMPARE) {
            1 => (Kind::FloatLess, false, false),
            2 => (Kind::FloatEqual, false, false),
            3 => (Kind::FloatAtMost, false, false),
            4 => (Kind::FloatLess, true, false),
            6 => (Kind::FloatAtMost, true, false),
            9 => (Kind::FloatAtMost, true, true),
            11 => (Kind::FloatLess, true, true),
            12 => (Kind::FloatAtMost, false, true),
            13 => (Kind::FloatEqual, false, true),
            14 => (Kind::FloatLess, false, true),
            _ => return None,
        };
        comparison(i, step, exchange, invert, 0);
        return plain.then_some(kind);
    }
    if !float::plain(i) || i.op != Op::Fadd && i.bit(field::FMZ) {
        return None;
    }
    let mut signs = [sa, sb, SignMask::of(Sign::default())];
    let kind = match i.op {
        Op::Fadd => Kind::Fadd,
        Op::Fmul if i.bits(field::SCALE) == 4 => Kind::Fmul,
        Op::Fmul => return None,
        _ => {
            (step.c, signs[2]) = float_operand(sources, i.c, i.c_sign)?;
            let none = signs.iter().all(|sign| sign.bits(0) == 0 && sign.bits(!0) == !0);
            if none { Kind::Ffma } else { Kind::FfmaSigned }
        }
    };
    let [SignMask(a, b), SignMask(c, d), SignMask(e, f)] = signs;
    step.extra = [a, b, c, d, e, f];
    Some(kind)
}

/// Packs the destination predicates.
fn targets(i: &Instruction) -> u32 {
    u32::from(i.target_predicate(field::TARGET)) | u32::from(i.target_predicate(field::TARGET_2)) << 3
}

/// Fills in what comparisons need.
fn comparison(i: &Instruction, step: &mut Step, exchange: bool, invert: bool, flip: u32) {
    if exchange {
        (step.a, step.b) = (step.b, step.a);
    }
    step.extra = [
        packed(i.source_predicate(field::CONDITION)),
        targets(i),
        i.bits(field::COMBINE),
        if invert { !0 } else { 0 },
        flip,
        0,
    ];
}

fn integer_kind(i: &Instruction, step: &mut Step, sources: &mut Sources) -> Option<Kind> {
    let plain = |value| value;
    let extended = i.bit(field::EXTENDED);
    let no_carry = [field::TARGET, field::TARGET_2].map(|target| i.target_predicate(target)) == [PT; 2];
    match i.op {
        Op::Mov if i.bits(field::MOV_MASK) == 15 => {
            step.b = sources.operand(i.b, plain)?;
            Some(Kind::Copy)
        }
        Op::Imad if !extended && !i.c_sign.negate => {
            if i.a == RZ || i.b == Source::Register(RZ) {
                step.b = sources.operand(i.c, plain)?;
                return Some(Kind::Copy);
            }
            (step.b, step.c) = (sources.operand(i.b, plain)?, sources.operand(i.c, plain)?);
            Some(Kind::Imad)
        }
        Op::ImadWide if !extended && !i.c_sign.negate && i.target_predicate(field::TARGET) == PT => {
            step.b = sources.operand(i.b, plain)?;
            (step.c, step.upper) = match i.c {
                Source::Register(number) => (number.into(), Warp::next(number, 1).into()),
                Source::Immediate(value) => (sources.pool.value(value)?, RZ.into()),
                Source::Constant { bank, offset } => {
                    let value = sources.constants.double(bank, offset.into()).ok()?;
                    // CAST: the halves of the value.
                    (sources.pool.value(value as u32)?, sources.pool.value((value >> 32) as u32)?)
                }
                Source::Uniform(_) => return None,
            };
            Some(if i.bit(field::SIGNED) { Kind::ImadWideSigned } else { Kind::ImadWide })
        }
        Op::Iadd3 if extended || !no_carry => {
            let negate = [i.bit(field::A_NEGATE), i.b_sign.negate, i.bit(field::UPPER_NEGATE)];
            if !extended && negate != [false; 3] {
                return None;
            }
            (step.b, step.c) = (sources.operand(i.b, plain)?, sources.operand(i.c, plain)?);
            let added = [field::CONDITION, field::CONDITION_2].map(|at| packed(i.source_predicate(at)));
            let [a, b, c] = integer::flips(negate);
            step.extra = [
                a,
                b,
                c,
                if extended { added[0] | added[1] << 4 } else { NEVER | NEVER << 4 },
                targets(i),
                0,
            ];
            Some(Kind::Iadd3Carries)
        }
        Op::Iadd3 => {
            (step.b, step.c) = (sources.operand(i.b, plain)?, sources.operand(i.c, plain)?);
            let negate = [i.bit(field::A_NEGATE), i.b_sign.negate, i.bit(field::UPPER_NEGATE)];
            let [a, b, c] = integer::flips(negate);
            step.extra = [a, b, c, 0, 0, 0];
            Some(if negate == [false; 3] { Kind::Iadd3 } else { Kind::Iadd3Signed })
        }
        Op::Lop3 if i.target_predicate(field::TARGET) == PT => {
            (step.b, step.c) = (sources.operand(i.b, plain)?, sources.operand(i.c, plain)?);
            let table = i.bits(field::LUT);
            step.extra[0] = table;
            Some(match table {
                0xc0 => Kind::And,
                0xfc => Kind::Or,
                0x3c => Kind::Xor,
                _ => Kind::Lop3,
            })
        }
        Op::Shf => {
            let Source::Immediate(amount) = i.b else { return None };
            step.extra[0] = amount;
            let kind = match integer::plain_shift(i)? {
                integer::PlainShift::Left => return Some(Kind::ShiftLeft),
                integer::PlainShift::Right => Kind::ShiftRight,
                integer::PlainShift::RightSigned => Kind::ShiftRightSigned,
            };
            step.b = sources.operand(i.c, plain)?;
            Some(kind)
        }
        Op::Lea if integer::is_plain_lea(i) => {
            step.b = sources.operand(i.b, plain)?;
            step.extra[0] = i.bits(field::LEA_SHIFT);
            Some(Kind::Lea)
        }
        Op::Prmt if i.bits(field::PERMUTE) == 0 => {
            let selector = Pool::scalar(i.b, sources.constants)?;
            let mut from = [0x8080_8080u32; 2];
            for byte in 0..4 {
                let number = selector >> (4 * byte) & 15;
                if number & 8 != 0 {
                    return None;
                }
                let from = &mut from[number as usize / 4];
                *from = *from & !(0xff << (8 * byte)) | (number & 3) << (8 * byte);
            }
            step.c = sources.operand(i.c, plain)?;
            (step.extra[0], step.extra[1]) = (from[0], from[1]);
            Some(Kind::Permute)
        }
        Op::Sel => {
            step.b = sources.operand(i.b, plain)?;
            step.extra[0] = packed(i.source_predicate(field::CONDITION));
            Some(Kind::Sel)
        }
        Op::Isetp if !i.bit(field::COMPARE_EXTENDED) => {
            step.b = sources.operand(i.b, plain)?;
            // A truth table of less, equal and greater.
            let (kind, exchange, invert) = match i.bits(field::COMPARE) {
                1 => (Kind::Below, false, false),
                2 => (Kind::Equal, false, false),
                3 => (Kind::Below, true, true),
                4 => (Kind::Below, true, false),
                5 => (Kind::Equal, false, true),
                6 => (Kind::Below, false, true),
                _ => return None,
            };
            // The vectors compare as signed.
            let flip = integer::order_flip(i) ^ 1 << 31;
            comparison(i, step, exchange, invert, flip);
            Some(kind)
        }
        _ => None,
    }
}

fn access_kind(i: &Instruction, step: &mut Step) -> Option<Kind> {
    let (store, uniform_at) = match i.op {
        Op::Lds | Op::Ldg => (false, field::SLOT_UNIFORM),
        _ => (true, field::UPPER_UNIFORM),
    };
    if store {
        step.d = stored(i);
    }
    if matches!(i.op, Op::Lds | Op::Sts) {
        if i.bit(field::UNIFORM) {
            // CAST: 6 bits.
            step.base = i.register(uniform_at);
        }
        // CAST: the address is 32 bits wide.
        step.extra[0] = offset(i) as u32;
        step.extra[1] = memory::stride(i);
        return Some(match (whole_words(i), store) {
            (1, false) => Kind::Lds1,
            (2, false) => Kind::Lds2,
            (4, false) => Kind::Lds4,
            (1, true) => Kind::Sts1,
            (2, true) => Kind::Sts2,
            (4, true) => Kind::Sts4,
            _ => return None,
        });
    }
    let wide = memory::is_wide(i);
    step.b = if wide { Warp::next(i.a, 1) } else { RZ }.into();
    if memory::has_uniform_base(i, i.bit(field::DESCRIPTOR)) {
        step.base = i.register(uniform_at);
    }
    let base = offset(i);
    // CAST: the halves of the offset.
    (step.extra[0], step.extra[1]) = (base as u32, (base >> 32) as u32);
    Some(match (i.bits(field::SIZE), store) {
        (0, false) => Kind::Ldg1,
        (1, false) => Kind::Ldg1Signed,
        (2, false) => Kind::Ldg2,
        (3, false) => Kind::Ldg2Signed,
        (4, false) => Kind::Ldg4,
        (5, false) => Kind::Ldg8,
        (_, false) => Kind::Ldg16,
        (0 | 1, true) => Kind::Stg1,
        (2 | 3, true) => Kind::Stg2,
        (4, true) => Kind::Stg4,
        (5, true) => Kind::Stg8,
        (_, true) => Kind::Stg16,
    })
}

impl Machine<'_, '_> {
    #[inline(always)]
    fn note(&mut self, outcome: Outcome) -> bool {
        match outcome {
            Ok(()) => true,
            Err(trap) => {
                self.trap = Some(trap);
                false
            }
        }
    }

    /// Sets the program counter of the warp, which checks and branches read.
    #[inline(always)]
    fn stand(&mut self) {
        self.warp.path.pc = self.address();
    }

    #[inline(never)]
    fn lds(&mut self) -> bool {
        self.stand();
        interpret!(self, memory::lds)
    }

    #[inline(never)]
    fn sts(&mut self) -> bool {
        self.stand();
        interpret!(self, memory::sts)
    }

    #[inline(never)]
    fn ldg(&mut self) -> bool {
        self.stand();
        interpret!(self, memory::ldg)
    }

    #[inline(never)]
    fn stg(&mut self) -> bool {
        self.stand();
        interpret!(self, memory::stg)
    }

    #[inline(always)]
    fn branch(&mut self) -> bool {
        self.stand();
        self.moved = true;
        match control::bra(self.warp, self.instruction(), self.active) {
            Ok(_) => true,
            Err(trap) => self.note(Err(trap)),
        }
    }

    /// Executes an instruction that may jump.
    #[inline(never)]
    fn jump(&mut self) -> bool {
        self.stand();
        let Ok(fetched) = &self.slots[self.at] else { unreachable!("a step without an instruction") };
        match execute_rare(self.context, self.warp, fetched, self.active) {
            Ok(Flow::Next) => true,
            Ok(Flow::Moved) => {
                self.moved = true;
                true
            }
            Ok(Flow::Stop(_)) => unreachable!("{} stops no warp", fetched.mnemonic()),
            Err(trap) => self.note(Err(trap)),
        }
    }
}
