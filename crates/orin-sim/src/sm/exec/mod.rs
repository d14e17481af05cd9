//! Execution of decoded instructions on a warp.
//!
//! Each operation reads its sources for all 32 lanes, computes a row of results and writes the active lanes: the
//! path's lanes whose guard predicate is true. The loops have a fixed trip count and no branches, so the compiler
//! vectorises them. The interpreter's loop is compiled a second time with AVX2 and FMA for hosts that support them.

mod atomic;
mod collective;
mod control;
mod convert;
mod double;
mod float;
mod half;
mod integer;
mod memory;
mod observe;
mod runs;
mod special;
pub(super) mod steps;
mod tensor;
mod texture;
mod transfer;
mod uniform;

use core::ops::{BitAnd, BitOr, BitXor};

use sass::{Instruction, Op, Predicate, Source, URZ, field};

use super::arrival::Arrival;
use super::constants::Constants;
use super::coverage::Counter;
use super::examined::groups_left;
use super::fetched::Fetched;
use super::port::Port;
use super::program::Program;
use super::warp::{Row, Warp, lanes};
use super::{Launch, SmFault, SmFaultCause, Tier};
use crate::check::BlockCheck;
use crate::kernel_profile::{Tally, is_branch};

/// Data that a warp shares with the other warps of its CTA and its grid.
pub(crate) struct Context<'a> {
    /// The launch.
    pub(crate) launch: &'a Launch,
    /// Constant banks.
    pub(crate) constants: &'a Constants,
    /// Global memory.
    pub(crate) port: &'a mut Port,
    /// Counter of executed instructions.
    pub(crate) counter: &'a mut Counter,
    /// Shared memory of the CTA, in words.
    pub(crate) shared: &'a mut [u32],
    /// Index of the CTA in the grid.
    pub(crate) block: [u32; 3],
    /// SM that executes the CTA.
    pub(crate) sm: u32,
    /// Whether it is the CTA's turn to execute ordered instructions.
    pub(crate) in_turn: bool,
    /// Number of executed ordered instructions.
    pub(crate) ordered: u32,
    /// The checks of the CTA, if enabled.
    pub(crate) check: Option<&'a mut BlockCheck>,
    /// Counts for the grid's profile, if profiling is enabled.
    pub(crate) tally: Option<&'a mut Tally>,
}

/// Reason why a warp stopped.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Stop {
    /// The fuel is used up.
    Fuel,
    /// No path can run.
    Blocked,
    /// The next instruction must wait for the CTA's turn.
    Ordered,
    /// Lanes have exited.
    Exited,
    /// Lanes have arrived at a barrier of the CTA.
    Arrived(Arrival),
}

/// Control flow after an instruction.
enum Flow {
    /// Continue with the next instruction.
    Next,
    /// Continue with the warp's current path.
    Moved,
    /// Stop the warp and return the reason to the CTA.
    Stop(Stop),
}

/// A fault and the lane that raised it; `None` for the instruction as a whole.
struct Trap {
    lane: Option<usize>,
    cause: SmFaultCause,
}

impl From<SmFaultCause> for Trap {
    fn from(cause: SmFaultCause) -> Self {
        Self { lane: None, cause }
    }
}

type Outcome = Result<(), Trap>;

/// Executed instructions of a run.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Spent {
    /// Warp instructions.
    pub(crate) warp: u64,
    /// Active lanes of these instructions.
    pub(crate) lane: u64,
}

impl core::ops::AddAssign for Spent {
    fn add_assign(&mut self, other: Self) {
        self.warp += other.warp;
        self.lane += other.lane;
    }
}

/// Returns whether the host has the vector extensions of the fast loop.
#[cfg(target_arch = "x86_64")]
fn has_vectors() -> bool {
    static HAS: std::sync::LazyLock<bool> =
        std::sync::LazyLock::new(|| is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma"));
    *HAS
}

/// Runs the ready paths of `warp` for at most `fuel` instructions.
///
/// # Errors
///
/// Returns the fault of the instruction that could not be executed.
pub(crate) fn run(
    program: &mut Program,
    context: &mut Context,
    warp: &mut Warp,
    fuel: u64,
    spent: &mut Spent,
) -> Result<Stop, SmFault> {
    let mut fuel = fuel;
    if follows(context, warp) {
        look_ahead(program, context, warp);
        fuel = fuel.min(1);
    }
    #[cfg(target_arch = "x86_64")]
    if has_vectors() {
        // SAFETY: the features have been detected; the function accesses only its arguments.
        return unsafe { run_vectors(program, context, warp, fuel, spent) };
    }
    run_loop(program, context, warp, fuel, spent)
}

/// [`run_loop`] for hosts with AVX2 and FMA.
///
/// # Safety
///
/// The host must support the features.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma,bmi1,bmi2,lzcnt,popcnt")]
unsafe fn run_vectors(
    program: &mut Program,
    context: &mut Context,
    warp: &mut Warp,
    fuel: u64,
    spent: &mut Spent,
) -> Result<Stop, SmFault> {
    run_loop(program, context, warp, fuel, spent)
}

/// Whether the checks follow undefined values of shuffles through the registers of the warp.
fn follows(context: &Context, warp: &Warp) -> bool {
    context.check.as_ref().is_some_and(|check| check.follows(warp.index, warp.live))
}

/// Examines the registers of the next instruction.
#[cold]
fn look_ahead(program: &mut Program, context: &mut Context, warp: &mut Warp) {
    if !warp.path.runs() {
        warp.settle();
    }
    if warp.path.runs()
        && let Ok(i) = program.fetch(warp.path.pc)
        && (context.in_turn || !i.is_ordered())
    {
        let active = warp.path.mask & guard(warp, i);
        observe::registers(context, warp, &i.unwatched(), active);
    }
}

#[inline(always)]
fn run_loop(
    program: &mut Program,
    context: &mut Context,
    warp: &mut Warp,
    fuel: u64,
    spent: &mut Spent,
) -> Result<Stop, SmFault> {
    let limit = spent.warp + fuel;
    if !warp.path.runs() {
        warp.settle();
    }
    loop {
        if !warp.path.runs() {
            return Ok(Stop::Blocked);
        }
        if spent.warp >= limit {
            return Ok(Stop::Fuel);
        }
        match program.tier() {
            Tier::Interpreter => {}
            Tier::Compiled => {
                if steps::advance(program, context, warp, limit - spent.warp, spent, false)? {
                    continue;
                }
            }
            Tier::Both => {
                if steps::compare(program, context, warp, limit - spent.warp, spent)? {
                    continue;
                }
            }
        }
        spent.warp += 1;
        let pc = warp.path.pc;
        let instruction = match program.fetch(pc) {
            Ok(instruction) => instruction,
            Err(cause) => return Err(place(context, warp, pc, warp.path.mask, cause.into())),
        };
        let active = warp.path.mask & guard(warp, instruction);
        spent.lane += u64::from(active.count_ones());
        if active == 0 {
            if instruction.op == Op::Watched {
                skipped(context, warp, instruction);
            }
            warp.path.pc = pc + 16;
            warp.tick();
            continue;
        }
        match execute(context, warp, instruction, active) {
            Ok(Flow::Next) => warp.path.pc = pc + 16,
            Ok(Flow::Moved) => {}
            Ok(Flow::Stop(stop)) => {
                if matches!(stop, Stop::Ordered) {
                    // It was not executed.
                    spent.warp -= 1;
                    spent.lane -= u64::from(active.count_ones());
                }
                return Ok(stop);
            }
            Err(trap) => return Err(place(context, warp, pc, active, trap)),
        }
        warp.tick();
    }
}

/// Returns the lanes whose guard is true.
#[inline(always)]
fn guard(warp: &Warp, instruction: &Instruction) -> u32 {
    if instruction.uniform_guard {
        if warp.uniform_predicate(instruction.guard) { !0 } else { 0 }
    } else {
        warp.predicate(instruction.guard)
    }
}

/// Adds the location to a fault.
#[cold]
fn place(context: &Context, warp: &Warp, pc: u64, active: u32, trap: Trap) -> SmFault {
    let lane = trap.lane.unwrap_or(active.trailing_zeros() as usize & 31);
    SmFault {
        pc,
        block: context.block,
        thread: [0, 1, 2].map(|axis| warp.tid[axis][lane]),
        cause: trap.cause,
    }
}

/// Executes the frequent operations, which are inlined into the loop; all others need a call.
#[inline(always)]
fn execute(context: &mut Context, warp: &mut Warp, i: &Fetched, active: u32) -> Result<Flow, Trap> {
    match i.op {
        Op::Ffma => float::ffma(context, warp, i, active)?,
        Op::Fadd => float::fadd(context, warp, i, active)?,
        Op::Fmul => float::fmul(context, warp, i, active)?,
        Op::Fsetp => float::fsetp(context, warp, i, active)?,
        Op::Imad => integer::imad(context, warp, i, active)?,
        Op::ImadWide => integer::imad_wide(context, warp, i, active)?,
        Op::Iadd3 => integer::iadd3(context, warp, i, active)?,
        Op::Lop3 => integer::lop3(context, warp, i, active)?,
        Op::Shf => integer::shf(context, warp, i, active)?,
        Op::Lea => integer::lea(context, warp, i, active)?,
        Op::Mov => integer::mov(context, warp, i, active)?,
        Op::Sel => integer::sel(context, warp, i, active)?,
        Op::Isetp => integer::isetp(context, warp, i, active)?,
        Op::Lds => memory::lds(context, warp, i, active)?,
        Op::Sts => memory::sts(context, warp, i, active)?,
        Op::Ldg => memory::ldg(context, warp, i, active)?,
        Op::Stg => memory::stg(context, warp, i, active)?,
        Op::Nothing => {}
        Op::Bra => return control::bra(warp, i, active),
        _ => return execute_rare(context, warp, i, active),
    }
    Ok(Flow::Next)
}

#[inline(never)]
fn execute_rare(context: &mut Context, warp: &mut Warp, i: &Fetched, active: u32) -> Result<Flow, Trap> {
    match i.op {
        Op::Ffma | Op::Fadd | Op::Fmul | Op::Fsetp => unreachable!("a frequent operation"),
        Op::Imad | Op::ImadWide | Op::Iadd3 | Op::Lop3 | Op::Shf | Op::Lea => {
            unreachable!("a frequent operation")
        }
        Op::Mov | Op::Sel | Op::Isetp | Op::Nothing | Op::Bra => unreachable!("a frequent operation"),
        Op::Lds | Op::Sts | Op::Ldg | Op::Stg => unreachable!("a frequent operation"),
        Op::ImadHi => integer::imad_high(context, warp, i, active)?,
        Op::Prmt => integer::prmt(context, warp, i, active)?,
        Op::Imnmx => integer::imnmx(context, warp, i, active)?,
        Op::Iabs | Op::Flo | Op::Brev | Op::Popc | Op::I2i => integer::unary(context, warp, i, active)?,
        Op::Bmsk | Op::Sgxt => integer::binary(context, warp, i, active)?,
        Op::Idp | Op::Vabsdiff | Op::Vabsdiff4 | Op::I2ip => integer::ternary(context, warp, i, active)?,
        Op::P2r => integer::p2r(context, warp, i, active)?,
        Op::R2p => integer::r2p(context, warp, i, active)?,
        Op::Plop3 => integer::plop3(warp, i, active),
        Op::Plop3Sign | Op::Plop3TwoSigns | Op::Plop3Signs => integer::plop3_signs(context, warp, i, active)?,
        Op::Fmnmx | Op::Fsel => float::select(context, warp, i, active)?,
        Op::Fset => float::fset(context, warp, i, active)?,
        Op::Mufu => float::mufu(context, warp, i, active)?,
        Op::Fchk => float::fchk(context, warp, i, active)?,
        Op::Dadd | Op::Dmul | Op::Dfma => double::arithmetic(context, warp, i, active)?,
        Op::Dsetp => double::dsetp(context, warp, i, active)?,
        Op::Hadd2 | Op::Hmul2 | Op::Hfma2 | Op::Hmnmx2 | Op::Hset2 => {
            half::arithmetic(context, warp, i, active)?
        }
        Op::Hsetp2 => half::hsetp2(context, warp, i, active)?,
        Op::F2i | Op::I2f | Op::F2f | Op::Frnd => convert::between(context, warp, i, active)?,
        Op::I2fp => convert::i2fp(context, warp, i, active)?,
        Op::F2fp | Op::F2ip => convert::pack(context, warp, i, active)?,
        Op::Uimad
        | Op::UimadWide
        | Op::Uiadd3
        | Op::Ulop3
        | Op::Ushf
        | Op::Ulea
        | Op::Uprmt
        | Op::Umov
        | Op::Usel
        | Op::Uisetp
        | Op::Ubmsk
        | Op::Usgxt
        | Op::Uflo
        | Op::Ubrev
        | Op::Upopc
        | Op::Uplop3
        | Op::Uplop3Sign
        | Op::Uplop3TwoSigns
        | Op::Uplop3Signs
        | Op::Up2ur
        | Op::Ur2up
        | Op::Uldc
        | Op::UldcIndexed => uniform::execute(context, warp, i)?,
        Op::S2r | Op::Cs2r | Op::S2ur => special::read(context, warp, i, active)?,
        Op::R2ur => collective::r2ur(warp, i, active),
        Op::Ld => memory::ld(context, warp, i, active)?,
        Op::St => memory::st(context, warp, i, active)?,
        Op::Ldl => memory::ldl(context, warp, i, active)?,
        Op::Stl => memory::stl(context, warp, i, active)?,
        Op::Ldc => transfer::ldc(context, warp, i, active)?,
        Op::Ldsm => transfer::ldsm(context, warp, i, active)?,
        Op::Ldgsts => transfer::ldgsts(context, warp, i, active)?,
        Op::Ldgdepbar => warp.copies.end_group(active),
        Op::Depbar => {
            if let Some(left) = groups_left(i) {
                warp.copies.wait(active, Some(left), context.shared);
            }
        }
        Op::Qspc => transfer::qspc(context, warp, i, active)?,
        Op::Arrives => atomic::arrives(context, warp, i, active)?,
        Op::Atom | Op::AtomSwap | Op::Atomg | Op::AtomgSwap | Op::Red => {
            atomic::global(context, warp, i, active)?
        }
        Op::Atoms | Op::AtomsSwap => atomic::shared(context, warp, i, active)?,
        Op::AtomsInc => atomic::shared_count(context, warp, i, active)?,
        Op::Tex | Op::Tld | Op::Tld4 | Op::Txd => texture::look_up(context, warp, i, active)?,
        Op::Txq => texture::query(context, warp, i, active)?,
        Op::Suld | Op::Sust => texture::surface(context, warp, i, active)?,
        Op::Sured => texture::reduce(context, warp, i, active)?,
        Op::Shfl => collective::shfl(warp, i, active),
        Op::Vote => collective::vote(warp, i, active)?,
        Op::Voteu => collective::voteu(warp, i, active)?,
        Op::Match => collective::match_lanes(warp, i, active),
        Op::Redux => collective::redux(warp, i, active)?,
        Op::Movm => collective::movm(warp, i, active)?,
        Op::Hmma | Op::Imma | Op::Bmma | Op::Dmma => tensor::multiply(warp, i, active)?,
        Op::Jmp
        | Op::Brx
        | Op::Brxu
        | Op::Jmx
        | Op::Call
        | Op::CallAbsolute
        | Op::CallRegister
        | Op::CallAbsoluteRegister
        | Op::Ret
        | Op::Exit
        | Op::Bssy
        | Op::Bsync
        | Op::Break
        | Op::BmovToRegister
        | Op::BmovFromBarrier
        | Op::Bmov
        | Op::Warpsync
        | Op::Yield
        | Op::Nanosleep
        | Op::Bpt
        | Op::Lepc
        | Op::Bar
        | Op::B2r => return control::execute(context, warp, i, active),
        Op::Watched => return watched(context, warp, i, active),
        Op::Unmodelled => return Err(unmodelled(i)),
    }
    Ok(Flow::Next)
}

/// Executes an instruction that is counted, examined, or must wait for the CTA's turn.
fn watched(context: &mut Context, warp: &mut Warp, i: &Fetched, active: u32) -> Result<Flow, Trap> {
    if i.is_ordered() {
        if !context.in_turn {
            return Ok(Flow::Stop(Stop::Ordered));
        }
        context.ordered += 1;
    }
    if let Some(number) = i.number() {
        context.counter.count(number);
    }
    let own = i.unwatched();
    let (pc, path, mut active) = (warp.path.pc, warp.path.mask, active);
    if i.is_profiled()
        && let Some(tally) = context.tally.take()
    {
        tally.executed(pc, own.word(), path, active);
        observe::before(context, &mut observe::Tallied { tally, pc }, warp, &own, active);
        context.tally = Some(tally);
    }
    if i.is_examined()
        && let Some(check) = context.check.take()
    {
        active &= !observe::before(context, check, warp, &own, active);
        context.check = Some(check);
        if active == 0 {
            return Ok(Flow::Next);
        }
    }
    context.port.set_strong(i.is_ordered());
    let flow = execute(context, warp, &own, active);
    context.port.set_strong(false);
    if own.op == Op::Shfl && follows(context, warp) {
        // From here on, `run` looks at each instruction.
        warp.path.pc = pc + 16;
        return flow.map(|_| Flow::Stop(Stop::Fuel));
    }
    if path & !warp.path.mask != 0
        && is_branch(own.op)
        && let Some(tally) = &mut context.tally
    {
        tally.diverged(pc);
    }
    flow
}

/// Counts an instruction that no lane executes.
#[cold]
fn skipped(context: &mut Context, warp: &Warp, i: &Fetched) {
    if i.is_profiled()
        && let Some(tally) = &mut context.tally
    {
        tally.executed(warp.path.pc, i.word(), warp.path.mask, 0);
    }
}

/// Returns a trap that reports the instruction as not modelled.
#[cold]
fn unmodelled(i: &Instruction) -> Trap {
    SmFaultCause::Unmodelled { mnemonic: i.mnemonic(), word: i.word() }.into()
}

impl Context<'_> {
    /// Returns the value of a source that is the same for all lanes; `None` for a register.
    #[inline(always)]
    fn scalar(&self, warp: &Warp, source: Source) -> Result<Option<u32>, Trap> {
        Ok(match source {
            Source::Register(_) => None,
            Source::Immediate(value) => Some(value),
            Source::Uniform(number) => Some(warp.uniform(number)),
            Source::Constant { bank, offset } => Some(self.constants.word(bank, offset.into())?),
        })
    }

    /// Returns the values of a source for all lanes. A value that is the same for all is broadcast into `room`.
    #[inline(always)]
    fn values<'w>(&self, warp: &'w Warp, source: Source, room: &'w mut Row) -> Result<&'w Row, Trap> {
        if let Source::Register(number) = source {
            return Ok(warp.row(number));
        }
        *room = [self.scalar(warp, source)?.unwrap_or(0); 32];
        Ok(room)
    }

    /// Returns the values of a 64-bit source: low and high words.
    fn pairs(&self, warp: &Warp, source: Source) -> Result<[Row; 2], Trap> {
        let spread = |value: u64| {
            // CAST: the halves of the value.
            [[value as u32; 32], [(value >> 32) as u32; 32]]
        };
        Ok(match source {
            Source::Register(number) => [*warp.row(number), *warp.row(Warp::next(number, 1))],
            Source::Immediate(value) => spread(u64::from(value) << 32),
            Source::Uniform(number) => {
                [[warp.uniform(number); 32], [warp.uniform(Warp::next_uniform(number)); 32]]
            }
            Source::Constant { bank, offset } => spread(self.constants.double(bank, offset.into())?),
        })
    }
}

impl Warp {
    /// Returns the second register of a uniform pair; URZ for URZ.
    fn next_uniform(number: u8) -> u8 {
        if number == URZ { number } else { number + 1 }
    }
}

/// Writes `f` of one source.
#[inline(always)]
fn map1(context: &Context, warp: &mut Warp, i: &Instruction, active: u32, f: impl Fn(u32) -> u32) -> Outcome {
    let mut room = [0; 32];
    let b = context.values(warp, i.b, &mut room)?;
    let mut out = [0; 32];
    for lane in 0..32 {
        out[lane] = f(b[lane]);
    }
    warp.write(i.d, active, &out);
    Ok(())
}

/// Writes `f` of the register A and the source B.
#[inline(always)]
fn map2(
    context: &Context,
    warp: &mut Warp,
    i: &Instruction,
    active: u32,
    f: impl Fn(u32, u32) -> u32,
) -> Outcome {
    let mut room = [0; 32];
    let b = context.values(warp, i.b, &mut room)?;
    let a = warp.row(i.a);
    let mut out = [0; 32];
    for lane in 0..32 {
        out[lane] = f(a[lane], b[lane]);
    }
    warp.write(i.d, active, &out);
    Ok(())
}

/// Writes `f` of the register A and the source B.
#[inline(always)]
fn map3(
    context: &Context,
    warp: &mut Warp,
    i: &Instruction,
    active: u32,
    f: impl Fn(u32, u32, u32) -> u32,
) -> Outcome {
    let (mut room_b, mut room_c) = ([0; 32], [0; 32]);
    let b = context.values(warp, i.b, &mut room_b)?;
    let c = context.values(warp, i.c, &mut room_c)?;
    let a = warp.row(i.a);
    let mut out = [0; 32];
    for lane in 0..32 {
        out[lane] = f(a[lane], b[lane], c[lane]);
    }
    warp.write(i.d, active, &out);
    Ok(())
}

/// Writes `f` of the register A, the sources B and C, and the lane of a predicate operand.
#[inline(always)]
fn map3p(
    context: &Context,
    warp: &mut Warp,
    i: &Instruction,
    active: u32,
    predicate: Predicate,
    f: impl Fn(u32, u32, u32, bool) -> u32,
) -> Outcome {
    let (mut room_b, mut room_c) = ([0; 32], [0; 32]);
    let b = context.values(warp, i.b, &mut room_b)?;
    let c = context.values(warp, i.c, &mut room_c)?;
    let a = warp.row(i.a);
    let p = warp.predicate(predicate);
    let mut out = [0; 32];
    for lane in 0..32 {
        out[lane] = f(a[lane], b[lane], c[lane], p >> lane & 1 != 0);
    }
    warp.write(i.d, active, &out);
    Ok(())
}

/// Returns the lanes in which `f` of A and B is true.
#[inline(always)]
fn lanes_where(a: &Row, b: &Row, f: impl Fn(u32, u32) -> bool) -> u32 {
    let mut mask = 0;
    for lane in 0..32 {
        mask |= u32::from(f(a[lane], b[lane])) << lane;
    }
    mask
}

/// Combines the outcome of a comparison with a predicate. `operation` is [`field::COMBINE`] or
/// [`field::HALF_COMBINE`]: 0 AND, 1 OR, else XOR.
#[inline(always)]
fn combine<T>(operation: u32, outcome: T, with: T) -> T
where
    T: BitAnd<Output = T> + BitOr<Output = T> + BitXor<Output = T>,
{
    match operation {
        0 => outcome & with,
        1 => outcome | with,
        _ => outcome ^ with,
    }
}

/// Combines the outcome of a comparison with a predicate and writes both destinations.
#[inline(always)]
fn set_compared(warp: &mut Warp, i: &Instruction, active: u32, outcome: u32, operation: u32) {
    let with = warp.predicate(i.source_predicate(field::CONDITION));
    warp.set_predicate(i.target_predicate(field::TARGET), active, combine(operation, outcome, with));
    warp.set_predicate(i.target_predicate(field::TARGET_2), active, combine(operation, !outcome, with));
}
