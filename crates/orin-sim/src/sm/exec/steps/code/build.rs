//! Blocks from instructions.

use sass::{Instruction, Op, PT, Predicate, RZ, Source, URZ};

use super::emit::{Effect, Planned};
use super::frame::WORDS;
use super::graph::{self, Graph, Node, Operation};
use super::loads::{Address, Group, Load};
use crate::sm::exec::float::SignMask;
use crate::sm::exec::memory;
use crate::sm::exec::steps::arithmetic::{Inputs, Lanewise, predicate};
use crate::sm::exec::steps::eight::Lanes;
use crate::sm::exec::steps::operands::{Operand, REGISTERS, Sources};
use crate::sm::exec::steps::{Step, choice};
use crate::sm::fetched::Fetched;
use crate::sm::warp::Warp;

/// Most instructions of a block, so that turns of warps rarely end inside of one.
const LENGTH: usize = 128;

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
            Source::Constant { bank, offset } => (self.add(Operation::Constant { bank, offset }), sign),
        })
    }

    fn double(&mut self, bank: u8, offset: u16) -> Option<[Operand; 2]> {
        let upper = offset.checked_add(4)?;
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
    counts: Vec<Planned>,
    pub(super) groups: Vec<Group>,
    words: usize,
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
            counts: Vec::new(),
            groups: Vec::new(),
            words: 0,
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
            _ => {
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
                if let Operation::Constant { bank, offset } = operation {
                    let needed = &mut self.banks[usize::from(bank)];
                    *needed = (*needed).max(u32::from(offset) + 4);
                }
                graph::input(operation)
            }
        }
    }

    fn compute(&mut self, lanes: Node, operation: Lanewise, step: &Step, symbols: &Symbols) -> Option<()> {
        if symbols.0.iter().any(|symbol| matches!(symbol, Operation::Constant { bank: 8.., .. })) {
            return None;
        }
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

    /// Adds a load, whose address and guard must be known when the block starts.
    fn load(&mut self, i: &Instruction, lanes: Node) -> Option<()> {
        let address = Address::of(i);
        let changed = [address.low, address.high].iter().any(|at| self.rows[usize::from(*at)].is_some());
        let always = i.guard.index == PT;
        if changed || !always && self.predicates[usize::from(i.guard.index)].is_some() {
            return None;
        }
        let format = memory::Format::of(i);
        let words = usize::from(format.words());
        if self.words + words > WORDS {
            return None;
        }
        let load = Load { offset: memory::offset(i).cast_signed(), format, first: self.words };
        let guard = (!always).then_some(i.guard);
        if !self.groups.iter_mut().any(|group| group.add(&address, guard, &load)) {
            self.groups.push(Group::new(address, guard, load));
        }
        for step in 0..words {
            // CAST: below `WORDS`, and at most 3.
            let word = graph::input(Operation::Loaded((self.words + step) as u8));
            self.write(Warp::next(i.d, step as u8), lanes, word);
        }
        self.words += words;
        Some(())
    }

    /// Returns what the block does to the warp.
    pub(super) fn effects(&self) -> Vec<Planned> {
        let mut effects = self.counts.clone();
        // CAST: the numbers of registers and predicates.
        let rows =
            self.rows.iter().zip(0..=u8::MAX).map(|(value, at)| (Effect::Row(at), Operation::Row(at), value));
        let predicates = self.predicates.iter().zip(0..PT);
        let predicates =
            predicates.map(|(value, at)| (Effect::Predicate(at), Operation::Predicate(at), value));
        for (effect, original, value) in rows.chain(predicates) {
            let Some(mut value) = value.filter(|value| *value != graph::input(original)) else { continue };
            if matches!(graph::operation_of(value).0, Operation::Row(_) | Operation::Predicate(_)) {
                // It may be overwritten before it is read.
                value = graph::copy(value);
            }
            effects.push(Planned { effect, value, at: 0 });
        }
        effects
    }
}
