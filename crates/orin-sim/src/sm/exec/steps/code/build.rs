//! Blocks from instructions.

use sass::{Instruction, Op, PT, Predicate, RZ, Source, URZ, field};

use super::emit::{Effect, Planned};
use super::frame::{STORES, WORDS};
use super::graph::{self, Graph, Node, Operation};
use super::links::{Branch, Stop};
use super::loads::{Address, Group, Load};
use super::shuffles::Shuffle;
use super::stores::Store;
use crate::sm::exec::collective::fixed_sources;
use crate::sm::exec::float::SignMask;
use crate::sm::exec::memory::{self, Format};
use crate::sm::exec::special::Fixed;
use crate::sm::exec::steps::arithmetic::{Inputs, Lanewise, predicate};
use crate::sm::exec::steps::eight::Lanes;
use crate::sm::exec::steps::operands::{Operand, REGISTERS, Sources};
use crate::sm::exec::steps::{Step, choice};
use crate::sm::fetched::Fetched;
use crate::sm::warp::Warp;

/// Most instructions of a block, so that turns of warps rarely end inside of one.
const LENGTH: usize = 120;

/// Most calls of functions in a block, each of which needs room in the frame.
const FUNCTIONS: usize = 6;

/// Returns the instruction after a block if all lanes usually pass it.
pub(super) fn stop(i: &Fetched) -> Option<Stop> {
    let always = Predicate { index: PT, not: false };
    match i.op {
        _ if i.guard != always || i.uniform_guard => None,
        Op::Yield => Some(Stop::Yield),
        Op::Bsync if i.source_predicate(field::CONDITION) == always => {
            Some(Stop::Converge(i.bits(field::BARRIER)))
        }
        Op::Warpsync if i.source_predicate(field::CONDITION) == always => {
            (i.b == Source::Immediate(!0)).then_some(Stop::Together)
        }
        _ => None,
    }
}

/// Returns the branch that the instruction at a slot is; `None` if the interpreter must execute it.
pub(super) fn branch(i: &Fetched, slot: usize) -> Option<Branch> {
    let plain = i.op == Op::Bra
        && i.bits(field::BRANCH_KIND) == 0
        && i.source_predicate(field::CONDITION) == (Predicate { index: PT, not: false });
    let target = i64::try_from(slot).ok()? + 1 + i.branch_offset().checked_div_euclid(16)?;
    let target = usize::try_from(target).ok().filter(|&target| target < 256)?;
    let guard = (i.guard != Predicate { index: PT, not: false }).then_some((
        i.guard.index,
        i.guard.not,
        i.uniform_guard,
    ));
    (plain && i.branch_offset() % 16 == 0).then_some(Branch { guard, target })
}

/// Sources that are not known in advance, as nodes.
#[derive(Debug, Default)]
struct Symbols(Vec<Operation>);

impl Symbols {
    fn add(&mut self, operation: Operation) -> Operand {
        self.0.push(operation);
        // CAST: a few.
        (REGISTERS + self.0.len() - 1) as Operand
    }
}

impl Sources for Symbols {
    fn value(&mut self, value: u32) -> Option<Operand> {
        Some(self.add(Operation::Splat(value)))
    }

    fn signed(&mut self, source: Source, sign: SignMask) -> Option<(Operand, SignMask)> {
        Some(match source {
            Source::Register(number) => (number.into(), sign),
            Source::Immediate(value) => (self.add(Operation::Splat(sign.bits(value))), SignMask::NONE),
            Source::Uniform(URZ) => (self.add(Operation::Splat(sign.bits(0))), SignMask::NONE),
            Source::Uniform(number) => (self.add(Operation::Uniform(number)), sign),
            Source::Constant { bank: 8.., .. } => return None,
            Source::Constant { bank, offset } => (self.add(Operation::Constant { bank, offset }), sign),
        })
    }

    fn double(&mut self, bank: u8, offset: u16) -> Option<[Operand; 2]> {
        let upper = offset.checked_add(4).filter(|_| bank < 8)?;
        Some([offset, upper].map(|offset| self.add(Operation::Constant { bank, offset })))
    }

    fn scalar(&self, source: Source) -> Option<u32> {
        match source {
            Source::Immediate(value) => Some(value),
            _ => None,
        }
    }
}

/// What a block of instructions does.
#[derive(Debug)]
pub(super) struct Builder {
    /// Values of registers that differ from those at the start.
    rows: [Option<Node>; 256],
    predicates: [Option<Node>; 8],
    barriers: [Option<Node>; 16],
    uniforms: [Option<Node>; 64],
    counts: Vec<Planned>,
    pub(super) groups: Vec<Group>,
    pub(super) stores: Vec<Store>,
    pub(super) shuffles: Vec<Shuffle>,
    /// The words of stores, with the index of their row.
    stored: Vec<(u8, Node)>,
    words: usize,
    /// Number of calls of functions.
    functions: usize,
    /// Number of instructions that all lanes of the path execute.
    pub(super) unguarded: u64,
    /// Number of instructions.
    pub(super) length: usize,
    /// Size that each bank must have.
    pub(super) banks: [u32; 8],
}

impl Builder {
    /// Starts a block, and the graph of this thread.
    pub(super) fn new() -> Self {
        Graph::start();
        Self {
            rows: [None; 256],
            predicates: [None; 8],
            barriers: [None; 16],
            uniforms: [None; 64],
            counts: Vec::new(),
            groups: Vec::new(),
            stores: Vec::new(),
            shuffles: Vec::new(),
            stored: Vec::new(),
            words: 0,
            functions: 0,
            unguarded: 0,
            length: 0,
            banks: [0; 8],
        }
    }

    /// Adds the next instruction. Returns `None`, and ends the block, if it cannot be a part of it.
    pub(super) fn add(&mut self, i: &Fetched) -> Option<()> {
        if self.length == LENGTH || Graph::count() > Graph::LIMIT - 64 {
            return None;
        }
        let always = i.guard == Predicate { index: PT, not: false };
        if !always && i.uniform_guard {
            return None;
        }
        // Before the instruction, which may write it.
        let lanes = self.predicate(i.guard);
        match i.op {
            Op::Nothing => {}
            Op::Lds | Op::Ldg => self.load(i, lanes)?,
            Op::Sts | Op::Stg => self.store(i)?,
            Op::S2r | Op::Cs2r => self.special(i, lanes)?,
            Op::Bssy | Op::Bmov | Op::BmovFromBarrier | Op::BmovToRegister => self.barrier(i, lanes)?,
            Op::Umov | Op::Uldc if always => self.uniform(i)?,
            Op::Shfl => self.shuffle(i, lanes)?,
            Op::Mufu if self.functions == FUNCTIONS => return None,
            Op::Uiadd3 | Op::Uimad | Op::Ulop3 | Op::Ushf | Op::Ulea if always => self.uniform_value(i)?,
            _ => {
                self.functions += usize::from(i.op == Op::Mufu);
                let (mut step, mut symbols) = (Step::of(i), Symbols::default());
                let operation = choice::lanewise(i, &mut step, &mut symbols)?;
                self.compute(lanes, operation, &step, &symbols)?;
            }
        }
        if always {
            self.unguarded += 1;
        } else {
            self.counts.push(Planned { effect: Effect::Count, value: lanes, at: Graph::count() - 1 });
        }
        self.length += 1;
        Some(())
    }

    /// Returns the value of a register.
    fn row(&self, number: u8) -> Node {
        match self.rows[usize::from(number)] {
            _ if number == RZ => Node::splat(0),
            Some(node) => node,
            None => graph::input(Operation::Row(number)),
        }
    }

    /// Returns the lanes in which a predicate operand is true.
    fn predicate(&self, operand: Predicate) -> Node {
        let value = match self.predicates[usize::from(operand.index)] {
            _ if operand.index == PT => Node::splat(!0),
            Some(node) => node,
            None => graph::input(Operation::Predicate(operand.index)),
        };
        if operand.not { value.xor(Node::splat(!0)) } else { value }
    }

    fn operand(&mut self, operand: Operand, symbols: &Symbols) -> Node {
        match usize::from(operand).checked_sub(REGISTERS) {
            // CAST: below 256.
            None => self.row(operand as u8),
            Some(at) => {
                let operation = symbols.0[at];
                match operation {
                    Operation::Uniform(number) => self.uniform_register(number),
                    Operation::Constant { bank, offset } => self.constant(bank, offset),
                    _ => graph::input(operation),
                }
            }
        }
    }

    /// Returns a word of a bank, which is below 8.
    fn constant(&mut self, bank: u8, offset: u16) -> Node {
        let needed = &mut self.banks[usize::from(bank)];
        *needed = (*needed).max(u32::from(offset) + 4);
        graph::input(Operation::Constant { bank, offset })
    }

    /// S2R and CS2R of special registers that do not change.
    fn special(&mut self, i: &Instruction, lanes: Node) -> Option<()> {
        let value = match Fixed::read_by(i)? {
            Fixed::Zero => Node::splat(0),
            Fixed::Lane => graph::input(Operation::Number),
            Fixed::Thread(axis) => graph::input(Operation::Thread(axis)),
            Fixed::Block(axis) => graph::input(Operation::Block(axis)),
        };
        self.write(i.d, lanes, value);
        if i.op == Op::Cs2r && i.bit(field::SPECIAL_WIDE) {
            self.write(Warp::next(i.d, 1), lanes, value);
        }
        Some(())
    }

    /// BSSY, and moves of convergence barriers.
    fn barrier(&mut self, i: &Instruction, lanes: Node) -> Option<()> {
        let old = |of: &Self, number: usize| match of.barriers[number] {
            Some(node) => node,
            // CAST: below 16.
            None => graph::input(Operation::Barrier(number as u8)),
        };
        let set = |of: &mut Self, number: usize, value: Node| {
            of.barriers[number] = Some(lanes.select(value, old(of, number)));
        };
        let (state, other) = (i.bits(field::STATE) as usize, i.bits(field::STATE_2) as usize);
        if i.op == Op::Bssy {
            let condition = i.source_predicate(field::CONDITION);
            if lanes != Node::splat(!0) || condition != (Predicate { index: PT, not: false }) {
                return None;
            }
            set(self, i.bits(field::BARRIER) as usize, graph::input(Operation::Mask));
            return Some(());
        }
        if state > 15 || other > 15 {
            return None;
        }
        let clears = i.bit(field::STATE_CLEAR);
        match i.op {
            Op::BmovToRegister => {
                self.write(i.d, lanes, old(self, state));
                if clears {
                    set(self, state, Node::splat(0));
                }
            }
            Op::BmovFromBarrier => {
                let value = old(self, state);
                if clears {
                    set(self, state, Node::splat(0));
                }
                set(self, other, value);
            }
            _ => {
                let mut symbols = Symbols::default();
                let operand = symbols.operand(i.b)?;
                let value = self.operand(operand, &symbols);
                set(self, state, value);
            }
        }
        Some(())
    }

    /// UMOV, and ULDC of words.
    fn uniform(&mut self, i: &Instruction) -> Option<()> {
        let mut values = [None; 2];
        if i.op == Op::Uldc {
            let (bank, offset) = (i.register(field::BANK), u16::try_from(i.bits(field::BANK_OFFSET)).ok()?);
            let words = match Format::of(i).bytes {
                4 => 1,
                8 => 2,
                _ => return None,
            };
            if bank > 7 || !offset.is_multiple_of(4 * words) {
                return None;
            }
            for (value, offset) in values.iter_mut().zip([offset, offset.checked_add(4)?]).take(words.into())
            {
                *value = Some(self.constant(bank, offset));
            }
        } else {
            let mut symbols = Symbols::default();
            let operand = symbols.operand(i.b)?;
            values[0] = (usize::from(operand) >= REGISTERS).then(|| self.operand(operand, &symbols));
            values[0]?;
        }
        for (step, value) in values.into_iter().flatten().enumerate() {
            let number = usize::from(i.d & URZ) + step;
            if number < usize::from(URZ) {
                self.uniforms[number] = Some(value);
            }
        }
        Some(())
    }

    /// Instructions of the uniform datapath that an instruction of the lanes corresponds to.
    fn uniform_value(&mut self, i: &Instruction) -> Option<()> {
        let (mut lanewise, mut symbols) = (*i, Symbols::default());
        lanewise.op = match i.op {
            Op::Uiadd3 => Op::Iadd3,
            Op::Uimad => Op::Imad,
            Op::Ulop3 => Op::Lop3,
            Op::Ushf => Op::Shf,
            _ => Op::Lea,
        };
        let mut step = Step::of(i);
        let operation = choice::lanewise(&lanewise, &mut step, &mut symbols)?;
        let has = operation.operands();
        if has.targets || has.predicates != 0 || has.upper {
            return None;
        }
        let mut operand = |has: bool, operand| match usize::from(operand) < REGISTERS {
            _ if !has => Some(Node::splat(0)),
            true => None,
            false => Some(self.operand(operand, &symbols)),
        };
        let (b, c) = (operand(has.b, step.b)?, operand(has.c, step.c)?);
        let a = if i.a == URZ { Node::splat(0) } else { self.uniform_register(i.a) };
        let inputs = Inputs { a, b, c, upper: Node::splat(0), predicates: [Node::splat(0); 3] };
        let value = operation.compute(&step, &inputs).d;
        if i.d & URZ != URZ {
            self.uniforms[usize::from(i.d & URZ)] = Some(value);
        }
        Some(())
    }

    /// Returns the value of a uniform register, for all lanes.
    fn uniform_register(&self, number: u8) -> Node {
        match self.uniforms[usize::from(number & URZ)] {
            Some(node) => node,
            None => graph::input(Operation::Uniform(number)),
        }
    }

    fn compute(&mut self, lanes: Node, operation: Lanewise, step: &Step, symbols: &Symbols) -> Option<()> {
        let has = operation.operands();
        let mut operand =
            |has: bool, operand| if has { self.operand(operand, symbols) } else { Node::splat(0) };
        let (a, b) = (operand(has.a, step.a), operand(has.b, step.b));
        let (c, upper) = (operand(has.c, step.c), operand(has.upper, step.upper));
        let predicates = step.predicates.map(|packed| self.predicate(predicate(packed)));
        let results = operation.compute(step, &Inputs { a, b, c, upper, predicates });
        if has.d {
            self.write(step.d, lanes, results.d);
        }
        if has.above {
            self.write(Warp::next(step.d, 1), lanes, results.above);
        }
        if has.targets {
            for (target, value) in step.targets.into_iter().zip(results.targets) {
                if target != PT {
                    let old = self.predicate(Predicate { index: target, not: false });
                    self.predicates[usize::from(target)] = Some(lanes.select(value, old));
                }
            }
        }
        Some(())
    }

    fn write(&mut self, register: u8, lanes: Node, value: Node) {
        if register != RZ {
            let old = self.row(register);
            self.rows[usize::from(register)] = Some(lanes.select(value, old));
        }
    }

    /// Adds an access to the groups, with an address and a guard that are known when the block starts. Returns the
    /// index of its first row or word, and that of its group.
    fn access(&mut self, i: &Instruction) -> Option<(usize, usize)> {
        let address = Address::of(i);
        let changed = [address.low, address.high].iter().any(|at| self.rows[usize::from(*at)].is_some())
            || [address.base, address.base + 1]
                .iter()
                .any(|at| self.uniforms.get(usize::from(*at)).is_some_and(Option::is_some));
        let always = i.guard == Predicate { index: PT, not: false };
        if changed || !always && self.predicates[usize::from(i.guard.index)].is_some() {
            return None;
        }
        let format = Format::of(i);
        let words = usize::from(format.words());
        if self.words + words > WORDS {
            return None;
        }
        let load = Load { offset: memory::offset(i).cast_signed(), format, first: self.words };
        let guard = (!always).then_some(i.guard);
        let is_store = matches!(i.op, Op::Sts | Op::Stg);
        let group = self.groups.iter_mut().position(|group| group.add(&address, guard, &load, is_store));
        let group = match group {
            Some(group) => group,
            None => {
                let stores = self.groups.iter().filter(|group| group.store().is_some()).count();
                if is_store && stores == STORES {
                    return None;
                }
                self.groups.push(Group::new(address, guard, load, is_store.then_some(stores)));
                self.groups.len() - 1
            }
        };
        self.words += words;
        Some((self.words - words, group))
    }

    /// Adds a load.
    fn load(&mut self, i: &Instruction, lanes: Node) -> Option<()> {
        if !self.stores.is_empty() {
            return None;
        }
        let (first, _) = self.access(i)?;
        for step in 0..Format::of(i).words() {
            // CAST: below `WORDS`.
            let word = graph::input(Operation::Loaded(first as u8 + step));
            self.write(Warp::next(i.d, step), lanes, word);
        }
        Some(())
    }

    /// Adds a SHFL from fixed lanes.
    fn shuffle(&mut self, i: &Instruction, lanes: Node) -> Option<()> {
        let (sources, _) = fixed_sources(i)?;
        let fits = self.rows[usize::from(i.a)].is_none() && self.words < WORDS;
        if !fits || i.target_predicate(field::TARGET) != PT {
            return None;
        }
        self.shuffles.push(Shuffle { register: i.a, sources, row: self.words });
        // CAST: below `WORDS`.
        self.write(i.d, lanes, graph::input(Operation::Loaded(self.words as u8)));
        self.words += 1;
        Some(())
    }

    /// Adds a store.
    fn store(&mut self, i: &Instruction) -> Option<()> {
        let (first, group) = self.access(i)?;
        let (offset, format) = (memory::offset(i).cast_signed(), Format::of(i));
        for step in 0..format.words() {
            // CAST: below `WORDS`.
            self.stored.push((first as u8 + step, self.row(Warp::next(memory::stored(i), step))));
        }
        let found = self.groups[group].store()?;
        self.stores.push(Store { offset, format, first, found });
        Some(())
    }

    /// Returns what the block does to the warp.
    pub(super) fn effects(&self) -> Vec<Planned> {
        let mut effects = self.counts.clone();
        for (row, value) in &self.stored {
            // A row that is overwritten later must not be read then.
            let read = graph::operation_of(*value).0;
            let value = if matches!(read, Operation::Row(_)) { graph::copy(*value) } else { *value };
            effects.push(Planned { effect: Effect::Stored(*row), value, at: 0 });
        }
        // CAST: the numbers of registers and predicates.
        let rows =
            self.rows.iter().zip(0..=u8::MAX).map(|(value, at)| (Effect::Row(at), Operation::Row(at), value));
        let predicates = self.predicates.iter().zip(0..PT);
        let predicates =
            predicates.map(|(value, at)| (Effect::Predicate(at), Operation::Predicate(at), value));
        let barriers = self.barriers.iter().zip(0..16);
        let barriers = barriers.map(|(value, at)| (Effect::Barrier(at), Operation::Barrier(at), value));
        let uniforms = self.uniforms.iter().zip(0..URZ);
        let uniforms = uniforms.map(|(value, at)| (Effect::Uniform(at), Operation::Uniform(at), value));
        for (effect, original, value) in rows.chain(predicates).chain(barriers).chain(uniforms) {
            let Some(mut value) = value.filter(|value| *value != graph::input(original)) else { continue };
            let operation = graph::operation_of(value).0;
            if matches!(operation, Operation::Row(_) | Operation::Predicate(_) | Operation::Barrier(_)) {
                // It may be overwritten before it is read.
                value = graph::copy(value);
            }
            effects.push(Planned { effect, value, at: 0 });
        }
        effects
    }
}
