//! Handlers of steps, and the selection of the handler for an instruction.

use sass::{Instruction, Op, PT, Predicate, RZ, URZ, field};

use super::arithmetic::{self, ALWAYS, Lanewise};
use super::eight::Native as V;
use super::memory as access;
use super::operands::{OfLaunch, Operand, Pool};
use super::{Machine, Step, choice};
use crate::sm::constants::Constants;
use crate::sm::exec::collective::fixed_sources;
use crate::sm::exec::memory::{offset, stored, whole_words};
use crate::sm::exec::special::Fixed;
use crate::sm::exec::{Flow, Outcome, control, convert, execute_rare, float, half, integer, memory, tensor};
use crate::sm::warp::Warp;

/// Executes a step. Returns false if it fails, with the reason in the machine.
///
/// # Safety
///
/// The processor must support the vector extensions that the handler was compiled for.
pub(super) type Handler = unsafe fn(&mut Machine, &Step) -> bool;

/// Declares an enum of handlers if it has a name, and for each kind a function that is compiled for the vectors of the
/// processor.
macro_rules! handlers {
    ($name:ident { $($kind:ident: |$machine:ident, $step:ident| $body:expr,)+ }) => {
        impl $name {
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
    (enum $name:ident { $($kind:ident: |$machine:ident, $step:ident| $body:expr,)+ }) => {
        #[derive(Clone, Copy)]
        enum $name {
            $($kind,)+
        }

        handlers!($name { $($kind: |$machine, $step| $body,)+ });
    };
    (lanes of $name:ident { $($kind:ident,)+ }) => {
        handlers!($name { $($kind: |m, s| arithmetic::lanes::<V>(m, s, $name::$kind),)+ });
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
    enum Kind {
    FfmaAny: |m, _s| interpret!(m, float::ffma),
    FaddAny: |m, _s| interpret!(m, float::fadd),
    FmulAny: |m, _s| interpret!(m, float::fmul),
    FsetpAny: |m, _s| interpret!(m, float::fsetp),
    FselectAny: |m, _s| interpret!(m, float::select),
    ImadAny: |m, _s| interpret!(m, integer::imad),
    ImadWideAny: |m, _s| interpret!(m, integer::imad_wide),
    ImadHighAny: |m, _s| interpret!(m, integer::imad_high),
    Iadd3Any: |m, _s| interpret!(m, integer::iadd3),
    Lop3Any: |m, _s| interpret!(m, integer::lop3),
    ShfAny: |m, _s| interpret!(m, integer::shf),
    LeaAny: |m, _s| interpret!(m, integer::lea),
    MovAny: |m, _s| interpret!(m, integer::mov),
    SelAny: |m, _s| interpret!(m, integer::sel),
    IsetpAny: |m, _s| interpret!(m, integer::isetp),
    ImnmxAny: |m, _s| interpret!(m, integer::imnmx),
    PrmtAny: |m, _s| interpret!(m, integer::prmt),
    HalfAny: |m, _s| interpret!(m, half::arithmetic),
    PackAny: |m, _s| interpret!(m, convert::pack),
    ConvertAny: |m, _s| interpret!(m, convert::between),
    TensorAny: |m, _s| {
        let i = m.instruction();
        let outcome = tensor::multiply(m.warp, i, m.active);
        m.note(outcome)
    },
    TernaryAny: |m, _s| interpret!(m, integer::ternary),
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
    Shuffle: |m, s| access::shuffle::<V>(m, s),
    Nothing: |_m, _s| true,
    Branch: |m, _s| m.branch(),
    Jump: |m, _s| m.jump(),
    Rare: |m, _s| m.jump(),
    }
}

handlers! {
    lanes of Lanewise {
        Ffma,
        FfmaSigned,
        FfmaSaturated,
        FfmaDown,
        Fadd,
        FaddSaturated,
        Fmul,
        FloatSelect,
        FloatMinMax,
        FromSigned,
        FromUnsigned,
        FromSignedUp,
        FromUnsignedUp,
        ToSigned,
        ToUnsigned,
        Mufu,
        Widen,
        FloatEqual,
        FloatLess,
        FloatAtMost,
        DivisionCheck,
        Imad,
        ImadLess,
        ImadWide,
        ImadWideSigned,
        ImadHigh,
        ImadHighSigned,
        Iadd3,
        Iadd3Signed,
        Iadd3Carries,
        And,
        Or,
        Xor,
        Lop3,
        Lop3Test,
        PredicateLogic,
        ShiftLeft,
        ShiftRight,
        ShiftRightSigned,
        Funnel,
        Lea,
        LeaCarries,
        LeaHighCarries,
        Copy,
        Sel,
        Equal,
        Below,
        IntegerMinMax,
        Permute,
        Dot,
    }
}

impl Step {
    /// A step that is not part of a run.
    pub(super) const NONE: Self = Self {
        run: |_, _| unreachable!("a slot outside of runs"),
        always: true,
        uniform_guard: false,
        guard: Predicate { index: PT, not: false },
        block: 0,
        d: RZ,
        base: URZ,
        spread: [URZ; 2],
        a: RZ as Operand,
        b: RZ as Operand,
        c: RZ as Operand,
        upper: RZ as Operand,
        predicates: [ALWAYS; 3],
        targets: [PT; 2],
        extra: [0; 6],
    };

    /// A step without handler and with the operands that all instructions have.
    pub(super) fn of(i: &Instruction) -> Self {
        Self {
            always: i.guard == Predicate { index: PT, not: false },
            uniform_guard: i.uniform_guard,
            guard: i.guard,
            d: i.d,
            a: i.a.into(),
            ..Self::NONE
        }
    }
}

/// Returns the step of an instruction; `None` if it may stop the warp, or jump in other ways than a branch.
pub(super) fn prepare(i: &Instruction, pool: &mut Pool, constants: &Constants) -> Option<Step> {
    let mut step = Step::of(i);
    step.run = match i.op {
        Op::Lds | Op::Sts | Op::Ldg | Op::Stg => access_kind(i, &mut step).or_else(|| general(i))?.handler(),
        Op::Shfl => {
            let fixed = fixed_sources(i).and_then(|(sources, inside)| Some((pool.row(sources)?, inside)));
            match fixed {
                Some((row, inside)) => {
                    (step.b, step.extra[0]) = (row, inside);
                    step.targets[0] = i.target_predicate(field::TARGET);
                    Kind::Shuffle.handler()
                }
                None => Kind::Rare.handler(),
            }
        }
        _ => {
            let mut sources = OfLaunch { pool, constants, spread: [URZ; 2] };
            match choice::lanewise(i, &mut step, &mut sources) {
                Some(operation) => {
                    step.spread = sources.spread;
                    step.always &= step.spread == [URZ; 2];
                    operation.handler()
                }
                None => general(i)?.handler(),
            }
        }
    };
    Some(step)
}

/// Whether an instruction may jump, so that it ends a run.
pub(super) fn may_jump(i: &Instruction) -> bool {
    matches!(general(i), Some(Kind::Branch | Kind::Jump))
}

/// Whether an instruction may have handlers of its own besides the interpreter's function, or be a part of a block.
pub(super) fn has_own(i: &Instruction) -> bool {
    let in_blocks = match i.op {
        Op::Plop3
        | Op::I2fp
        | Op::Mufu
        | Op::Fchk
        | Op::Bssy
        | Op::BmovToRegister
        | Op::BmovFromBarrier
        | Op::Bmov => true,
        Op::S2r | Op::Cs2r => Fixed::read_by(i).is_some(),
        Op::Umov | Op::Uldc | Op::Uiadd3 | Op::Uimad | Op::Ulop3 | Op::Ushf | Op::Ulea => true,
        Op::Shfl => fixed_sources(i).is_some(),
        _ => false,
    };
    in_blocks || !matches!(general(i), None | Some(Kind::Branch | Kind::Jump | Kind::Rare | Kind::Nothing))
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
        Op::F2i | Op::I2f | Op::F2f | Op::Frnd => Kind::ConvertAny,
        Op::Idp | Op::Vabsdiff | Op::Vabsdiff4 | Op::I2ip => Kind::TernaryAny,
        Op::Hmma | Op::Imma | Op::Bmma | Op::Dmma => Kind::TensorAny,
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
        Op::Yield | Op::Nanosleep => Kind::Jump,
        Op::Exit | Op::Bpt | Op::Bar => return None,
        _ => Kind::Rare,
    })
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
