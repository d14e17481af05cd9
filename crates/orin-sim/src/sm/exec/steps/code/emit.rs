//! Machine code for a graph: eight lanes at a time, four times.
//!
//! Values are kept in the 16 vector registers in the order in which nodes were made. When there is none free, the value
//! that is needed last gives its register up; it is read again from where it came from, from the register of the warp
//! that it has been written to, or from a place in the frame. A register of the warp is written as soon as its old
//! value is no longer needed.

use core::mem::offset_of;

use super::assembler::{
    Assembler, Jump, NARROW, Opcode, Place, R8, R9, R10, R11, RAX, RCX, RDI, RDX, RSI, Vector,
};
use super::frame::{Frame, SPILLS};
use super::graph::{Graph, Node, Operation};
use super::links::Links;
use crate::sm::warp::LAYOUT;

/// What a block does to a warp.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Effect {
    /// Writes a register.
    Row(u8),
    /// Writes a predicate.
    Predicate(u8),
    /// Writes a convergence barrier.
    Barrier(u8),
    /// Writes a uniform register.
    Uniform(u8),
    /// Puts a word that will be stored into a row of the frame.
    Stored(u8),
    /// Counts lanes.
    Count,
}

/// An effect, with its value and when it takes place: after the node with this index.
#[derive(Clone, Copy, Debug)]
pub(super) struct Planned {
    pub(super) effect: Effect,
    pub(super) value: Node,
    pub(super) at: usize,
}

/// Emits the code of a block, with or without lanes that the path does not have. `None` if it needs too much room.
///
/// The code jumps to that of the next block as long as all lanes go the same way; it returns where there is no block,
/// where fuel ends, where lanes part, and where a load may fault.
pub(super) fn emit(
    assembler: &mut Assembler,
    graph: &Graph,
    effects: &[Planned],
    links: &Links,
    masked: bool,
) -> Option<()> {
    let mut live = vec![false; graph.len()];
    effects.iter().for_each(|planned| live[planned.value.index()] = true);
    for node in graph.nodes().rev() {
        if live[node.index()] {
            graph.operands(node).iter().for_each(|operand| live[operand.index()] = true);
        }
    }
    let effects = schedule(graph, &live, effects);
    let mut uses = vec![Vec::new(); graph.len()];
    // Each effect has a time of its own, so that one does not give up the value of the next.
    for (order, planned) in effects.iter().enumerate() {
        uses[planned.value.index()].push(TIMES * planned.at + 1 + order);
    }
    for node in graph.nodes().filter(|node| live[node.index()]) {
        graph.operands(node).iter().for_each(|operand| uses[operand.index()].push(TIMES * node.index()));
    }
    uses.iter_mut().for_each(|uses| uses.sort_unstable_by(|a, b| b.cmp(a)));
    let count = graph.len();
    let mut emitter = Emitter {
        assembler,
        graph,
        uses,
        registers: vec![None; count],
        homes: vec![None; count],
        contents: [None; 16],
        pinned: if masked { 1 << REST } else { 0 },
        spills: 0,
        masked,
        written: effects.iter().fold(0, |written, planned| match planned.effect {
            Effect::Predicate(number) => written | 1 << number,
            _ => written,
        }),
        now: 0,
        exits: Vec::new(),
    };
    emitter.begin(links);
    let start = emitter.assembler.here();
    emitter.begin_lanes();
    let mut left = effects.iter().enumerate().peekable();
    for node in graph.nodes() {
        if live[node.index()] && graph.operation(node).arity() != 0 {
            emitter.now = TIMES * node.index();
            emitter.compute(node)?;
        }
        while let Some((order, planned)) = left.next_if(|(_, planned)| planned.at == node.index()) {
            emitter.now = TIMES * planned.at + 1 + order;
            emitter.apply(planned)?;
        }
    }
    // The next eight lanes.
    emitter.assembler.general_with(&[0x83], 0, R9.into(), false, Some(32));
    emitter.assembler.general_with(&[0x83], 0, RCX.into(), false, Some(1));
    emitter.assembler.general_with(&[0x83], 7, RCX.into(), false, Some(4));
    emitter.assembler.jump_if_not_zero(start);
    for planned in &effects {
        if let Effect::Uniform(number) = planned.effect {
            let at = 4 * usize::from(number);
            emitter.assembler.general(&[0x8b], RAX, Place::at(RDI, offset_of!(Frame, uniform) + at), false);
            emitter.assembler.general(&[0x89], RAX, Place::at(RDX, LAYOUT.uniform + at), false);
        }
    }
    emitter.end(links);
    Some(())
}

/// Returns the effects in order. Each takes place when its value is there and the value that it overwrites is no longer
/// needed.
fn schedule(graph: &Graph, live: &[bool], effects: &[Planned]) -> Vec<Planned> {
    let mut first = vec![usize::MAX; graph.len()];
    let mut last = vec![0; graph.len()];
    let mut rows = [0; 256];
    let mut predicates = [0; 8];
    let mut barriers = [0; 16];
    let mut used = |value: Node, at: usize| {
        first[value.index()] = first[value.index()].min(at);
        last[value.index()] = last[value.index()].max(at);
    };
    for node in graph.nodes().filter(|node| live[node.index()]) {
        graph.operands(node).iter().for_each(|operand| used(*operand, node.index()));
    }
    effects.iter().filter(|e| e.effect == Effect::Count).for_each(|e| used(e.value, e.at));
    for node in graph.nodes() {
        match graph.operation(node) {
            Operation::Row(number) => rows[usize::from(number)] = last[node.index()],
            Operation::Predicate(number) => predicates[usize::from(number)] = last[node.index()],
            Operation::Barrier(number) => barriers[usize::from(number)] = last[node.index()],
            _ => {}
        }
    }
    let planned = |planned: &Planned| {
        let needed = match planned.effect {
            Effect::Row(number) => rows[usize::from(number)],
            Effect::Predicate(number) => predicates[usize::from(number)],
            Effect::Barrier(number) => barriers[usize::from(number)],
            Effect::Uniform(_) | Effect::Stored(_) => 0,
            Effect::Count => planned.at,
        };
        let value = planned.value.index();
        // What is read from memory is read when something else needs it, too.
        let ready = match first[value] {
            first if graph.operation(planned.value).arity() == 0 && first != usize::MAX => first,
            _ => value,
        };
        Planned { at: needed.max(ready), ..*planned }
    };
    let mut effects: Vec<_> = effects.iter().map(planned).collect();
    // Stable, so that the order is that of the numbers.
    effects.sort_by_key(|planned| planned.at);
    effects
}

/// Points in time for each node: more than a block has effects.
const TIMES: usize = 1 << 12;

/// The vector register of the lanes that the path does not have.
const REST: Vector = 15;

pub(super) struct Emitter<'a> {
    pub(super) assembler: &'a mut Assembler,
    graph: &'a Graph,
    /// When each node is needed, latest first. Operands of a node are needed at [`TIMES`] its index, and values of
    /// effects later.
    uses: Vec<Vec<usize>>,
    /// The register of each node.
    registers: Vec<Option<Vector>>,
    /// Where else a computed node is.
    homes: Vec<Option<Place>>,
    contents: [Option<Node>; 16],
    /// Registers that must not be given up.
    pinned: u16,
    spills: usize,
    pub(super) masked: bool,
    /// The predicates that the block writes. Their words rotate by eight lanes each time, as loads of words would wait
    /// for stores of bytes.
    written: u8,
    now: usize,
    /// Jumps to where the code returns, and the slot where execution goes on.
    pub(super) exits: Vec<(Jump, usize)>,
}

const LOAD: Opcode = Opcode(1, 2, 0x6f);
const STORE: Opcode = Opcode(1, 2, 0x7f);
const BROADCAST: Opcode = Opcode(2, 1, 0x58);
const BLEND: Opcode = Opcode(3, 1, 0x4a);
const SIGNS: Opcode = Opcode(1, 0, 0x50);

impl Emitter<'_> {
    /// Emits what precedes the computation of eight lanes.
    fn begin_lanes(&mut self) {
        if self.masked {
            let mask = Place::indexed(RDI, RCX, 0, offset_of!(Frame, mask));
            self.assembler.general(&[0x0f, 0xb6], R8, mask, false);
            self.assembler.general(&[0x8b], RAX, R8.into(), false);
            self.assembler.general_with(&[0x80], 6, RAX.into(), false, Some(0xff));
            self.load_lanes(REST);
        }
    }

    /// Loads the vector of the mask in RAX.
    fn load_lanes(&mut self, to: Vector) {
        self.assembler.general_with(&[0xc1], 4, RAX.into(), false, Some(5));
        self.assembler.vector(LOAD, to, 0, Place::indexed(R10, RAX, 0, 0));
    }

    /// Returns when a node is needed next, after now; `None` if never.
    fn next_use(&mut self, node: Node) -> Option<usize> {
        let uses = &mut self.uses[node.index()];
        while uses.last().is_some_and(|&at| at <= self.now) {
            uses.pop();
        }
        uses.last().copied()
    }

    /// Returns a free register, and keeps it from being given up during this instruction.
    fn free(&mut self) -> Option<Vector> {
        let mut best = None;
        for register in 0..16 {
            if self.pinned >> register & 1 != 0 {
                continue;
            }
            let next = match self.contents[register] {
                None => usize::MAX,
                Some(node) => self.next_use(node).unwrap_or(usize::MAX - 1),
            };
            if best.is_none_or(|(_, last)| next > last) {
                best = Some((register, next));
            }
        }
        let (register, _) = best?;
        // CAST: below 16.
        let vector = register as Vector;
        if let Some(node) = self.contents[register] {
            self.give_up(node, vector)?;
        }
        self.pinned |= 1 << register;
        Some(vector)
    }

    /// Gives up the register of a node. Its value is kept elsewhere if it is needed.
    fn give_up(&mut self, node: Node, register: Vector) -> Option<()> {
        self.registers[node.index()] = None;
        self.contents[usize::from(register)] = None;
        let computed = self.graph.operation(node).arity() != 0;
        if computed && self.homes[node.index()].is_none() && self.next_use(node).is_some() {
            let place = self.spill()?;
            self.assembler.vector(STORE, register, 0, place);
            self.homes[node.index()] = Some(place);
        }
        Some(())
    }

    /// Where eight lanes of a register of the warp are.
    fn row(number: u8) -> Place {
        Place::indexed(RSI, R9, 0, 128 * usize::from(number))
    }

    /// The byte with eight lanes of a predicate.
    fn predicate(&self, number: u8) -> Place {
        let word = LAYOUT.predicates + 4 * usize::from(number);
        if self.written >> number & 1 != 0 {
            return Place::at(RDX, word);
        }
        Place::indexed(RDX, RCX, 0, word)
    }

    /// Where eight lanes of a convergence barrier are.
    fn barrier(number: u8) -> Place {
        Place::indexed(RDX, R9, 0, LAYOUT.barriers + 128 * usize::from(number))
    }

    /// Returns where a node can be read as an operand, without a register if it is needed only once more.
    fn operand(&mut self, node: Node) -> Option<Place> {
        if let Some(register) = self.registers[node.index()] {
            self.pinned |= 1 << register;
            return Some(Place::Register(register));
        }
        if self.next_use(node).is_none()
            && let Some(place) = self.memory(node)
        {
            return Some(place);
        }
        self.register(node).map(Place::Register)
    }

    /// Returns where a node is in memory; overwrites RAX.
    fn memory(&mut self, node: Node) -> Option<Place> {
        match self.graph.operation(node) {
            Operation::Splat(value) => Some(Place::Splat(value)),
            Operation::Row(number) => Some(Self::row(number)),
            Operation::Barrier(number) => Some(Self::barrier(number)),
            Operation::Thread(axis) => Some(Place::indexed(RDX, R9, 0, LAYOUT.tid + 128 * usize::from(axis))),
            Operation::Number => Some(Place::indexed(RDI, R9, 0, offset_of!(Frame, numbers))),
            Operation::Loaded(word) => {
                let pointer = offset_of!(Frame, words) + 32 * usize::from(word);
                self.assembler.general(&[0x8b], RAX, Place::indexed(RDI, RCX, 3, pointer), true);
                Some(Place::at(RAX, 0))
            }
            _ => self.homes[node.index()],
        }
    }

    /// Returns a register with a node.
    fn register(&mut self, node: Node) -> Option<Vector> {
        if let Some(register) = self.registers[node.index()] {
            self.pinned |= 1 << register;
            return Some(register);
        }
        let register = self.free()?;
        match self.graph.operation(node) {
            Operation::Predicate(number) => {
                self.assembler.general(&[0x0f, 0xb6], RAX, self.predicate(number), false);
                self.load_lanes(register);
            }
            Operation::Constant { bank, offset } => {
                let pointer = Place::at(RDI, offset_of!(Frame, banks) + 8 * usize::from(bank));
                self.assembler.general(&[0x8b], RAX, pointer, true);
                self.assembler.vector(BROADCAST, register, 0, Place::at(RAX, offset.into()));
            }
            Operation::Uniform(number) => {
                let place = Place::at(RDX, LAYOUT.uniform + 4 * usize::from(number));
                self.assembler.vector(BROADCAST, register, 0, place);
            }
            Operation::Block(axis) => {
                self.assembler.general(&[0x8b], RAX, Place::at(RDI, offset_of!(Frame, block)), true);
                self.assembler.vector(BROADCAST, register, 0, Place::at(RAX, 4 * usize::from(axis)));
            }
            Operation::Mask => {
                self.assembler.vector(BROADCAST, register, 0, Place::at(RDI, offset_of!(Frame, mask)));
            }
            // A register minus itself is 0.
            Operation::Splat(0) => {
                self.assembler.vector(Opcode(1, 1, 0xef), register, register, Place::Register(register));
            }
            _ => {
                let place = self.memory(node)?;
                self.assembler.vector(LOAD, register, 0, place);
            }
        }
        self.hold(node, register);
        Some(register)
    }

    /// Notes that a register has a node.
    fn hold(&mut self, node: Node, register: Vector) {
        self.registers[node.index()] = Some(register);
        self.contents[usize::from(register)] = Some(node);
    }

    /// Ends an instruction: gives up the registers of operands that are not needed any more.
    fn release(&mut self) {
        self.pinned &= if self.masked { 1 << REST } else { 0 };
        for register in 0..16 {
            if let Some(node) = self.contents[register]
                && self.next_use(node).is_none()
            {
                self.registers[node.index()] = None;
                self.contents[register] = None;
            }
        }
    }

    /// Emits the computation of a node.
    fn compute(&mut self, node: Node) -> Option<()> {
        let operation = self.graph.operation(node);
        let operands = self.graph.operands(node);
        for operand in operands {
            if let Some(register) = self.registers[operand.index()] {
                self.pinned |= 1 << register;
            }
        }
        if operation == Operation::Fma {
            return self.fma(node, [operands[0], operands[1], operands[2]]);
        }
        if operation == Operation::FmaDown {
            self.round(1);
            self.fma(node, [operands[0], operands[1], operands[2]])?;
            self.round(0);
            return Some(());
        }
        if let Operation::Mufu(function) = operation {
            return self.call_mufu(node, operands[0], function);
        }
        let (opcode, immediate) = encoding(operation);
        if let [a] = *operands {
            // What is both operand and result of these is in another place of the instruction.
            let shift = match operation {
                Operation::ShiftLeft(_) => Some(6),
                Operation::ShiftRight(_) | Operation::Upper => Some(2),
                Operation::ShiftRightSigned(_) | Operation::HalvesRightSigned(_) => Some(4),
                _ => None,
            };
            let a = if shift.is_some() || matches!(operation, Operation::Bytes(_)) {
                Place::Register(self.register(a)?)
            } else {
                self.operand(a)?
            };
            self.release();
            let to = self.free()?;
            match (shift, operation, a) {
                (Some(shift), ..) => self.assembler.vector_with(opcode, shift, to, a, immediate.unwrap_or(0)),
                (None, Operation::Bytes(selector), Place::Register(a)) => {
                    self.assembler.vector(opcode, to, a, Place::Bytes(selector));
                }
                _ => self.assembler.vector(opcode, to, 0, a),
            }
            self.hold(node, to);
            self.release();
            return Some(());
        }
        let (mut a, mut b) = (operands[0], operands[1]);
        let select = operation == Operation::Select;
        if select {
            // The operands of the instruction: what is taken if the mask is zero, what else.
            (a, b) = (operands[2], operands[1]);
        } else if operation.commutes()
            && self.registers[a.index()].is_none()
            && self.registers[b.index()].is_some()
        {
            (a, b) = (b, a);
        }
        let mask = if select { Some(self.register(operands[0])?) } else { None };
        let first = self.register(a)?;
        let second = self.operand(b)?;
        self.release();
        let to = self.free()?;
        match mask.map(|mask| mask << 4).or(immediate) {
            Some(immediate) => self.assembler.vector_with(opcode, to, first, second, immediate),
            None => self.assembler.vector(opcode, to, first, second),
        }
        self.hold(node, to);
        self.release();
        Some(())
    }

    /// Returns a place for a vector in the frame.
    fn spill(&mut self) -> Option<Place> {
        let place = Place::at(RDI, offset_of!(Frame, spills) + 32 * self.spills);
        self.spills += 1;
        (self.spills <= SPILLS).then_some(place)
    }

    /// Emits a call of MUFU's function, which overwrites all vector registers.
    fn call_mufu(&mut self, node: Node, a: Node, function: u8) -> Option<()> {
        let value = self.register(a)?;
        let place = self.spill()?;
        self.assembler.vector(STORE, value, 0, place);
        self.release();
        for register in 0..16 {
            if let Some(node) = self.contents[usize::from(register)] {
                self.give_up(node, register)?;
            }
        }
        // push rdi, rsi, rdx, rcx, r8, r9, r10: the stack is aligned then.
        self.assembler.bytes(&[0x57, 0x56, 0x52, 0x51, 0x41, 0x50, 0x41, 0x51, 0x41, 0x52]);
        self.assembler.general(&[0x8b], RAX, Place::at(RDI, offset_of!(Frame, mufu)), true);
        self.assembler.general(&[0x8d], RDI, place, true);
        // mov esi, function; call rax; pop
        self.assembler.bytes(&[0xbe, function, 0, 0, 0]);
        self.assembler.general_with(&[0xff], 2, RAX.into(), false, None);
        self.assembler.bytes(&[0x41, 0x5a, 0x41, 0x59, 0x41, 0x58, 0x59, 0x5a, 0x5e, 0x5f]);
        self.begin_lanes();
        let to = self.free()?;
        self.assembler.vector(LOAD, to, 0, place);
        self.homes[node.index()] = Some(place);
        self.hold(node, to);
        self.release();
        Some(())
    }

    /// Makes float operations round as an entry of [`ROUNDING`](crate::sm::exec::steps::eight::ROUNDING) says.
    fn round(&mut self, mode: usize) {
        self.assembler.general(&[0x8b], RAX, Place::at(RDI, offset_of!(Frame, rounding)), true);
        // vldmxcsr
        self.assembler.vector(Opcode(1, NARROW, 0xae), 2, 0, Place::at(RAX, 4 * mode));
    }

    /// Emits a fused multiplication and addition, whose result replaces one of its operands.
    fn fma(&mut self, node: Node, [a, b, c]: [Node; 3]) -> Option<()> {
        let (a, b) = if self.next_use(a).is_some() { (b, a) } else { (a, b) };
        let [needed_a, needed_c] = [a, c].map(|operand| self.next_use(operand).is_some());
        if needed_c && !needed_a && a != b && a != c {
            // a = b * a + c
            let (first, second) = (self.register(a)?, self.register(b)?);
            let third = self.operand(c)?;
            self.assembler.vector(Opcode(2, 1, 0xa8), first, second, third);
            return self.replace(a, node, first);
        }
        // c = a * b + c, or a copy of c.
        let first = self.register(a)?;
        let (sum, old) = if needed_c || c == a || c == b {
            let from = self.operand(c)?;
            let copy = self.free()?;
            self.assembler.vector(LOAD, copy, 0, from);
            (copy, None)
        } else {
            (self.register(c)?, Some(c))
        };
        let second = self.operand(b)?;
        self.assembler.vector(Opcode(2, 1, 0xb8), sum, first, second);
        match old {
            Some(old) => self.replace(old, node, sum),
            None => {
                self.release();
                self.hold(node, sum);
                self.release();
                Some(())
            }
        }
    }

    /// Notes that a register has a node instead of one that is not needed any more.
    fn replace(&mut self, old: Node, node: Node, register: Vector) -> Option<()> {
        self.registers[old.index()] = None;
        self.hold(node, register);
        self.release();
        Some(())
    }

    /// Emits an effect.
    fn apply(&mut self, planned: &Planned) -> Option<()> {
        let value = self.register(planned.value)?;
        match planned.effect {
            Effect::Row(number) | Effect::Barrier(number) => {
                let barrier = matches!(planned.effect, Effect::Barrier(_));
                let row = if barrier { Self::barrier(number) } else { Self::row(number) };
                let mut stored = value;
                if self.masked {
                    stored = self.free()?;
                    self.assembler.vector_with(BLEND, stored, value, row, REST << 4);
                }
                self.assembler.vector(STORE, stored, 0, row);
                self.homes[planned.value.index()].get_or_insert(row);
            }
            Effect::Predicate(number) => {
                self.assembler.vector(SIGNS, RAX.number(), 0, Place::Register(value));
                let word = self.predicate(number);
                self.assembler.general(&[0x8b], R11, word, false);
                if self.masked {
                    // old ^ (old ^ new) & mask
                    self.assembler.general(&[0x31], R11, RAX.into(), false);
                    self.assembler.general(&[0x21], R8, RAX.into(), false);
                    self.assembler.general(&[0x31], RAX, R11.into(), false);
                } else {
                    // mov r11b, al
                    self.assembler.general(&[0x88], RAX, R11.into(), false);
                }
                // ror
                self.assembler.general_with(&[0xc1], 1, R11.into(), false, Some(8));
                self.assembler.general(&[0x89], R11, word, false);
            }
            Effect::Uniform(number) => {
                // vmovd: the first of the lanes, which are all equal.
                let place = Place::at(RDI, offset_of!(Frame, uniform) + 4 * usize::from(number));
                self.assembler.vector(Opcode(1, 1 | NARROW, 0x7e), value, 0, place);
            }
            Effect::Stored(row) => {
                let place = Place::indexed(RDI, R9, 0, offset_of!(Frame, rows) + 128 * usize::from(row));
                self.assembler.vector(STORE, value, 0, place);
            }
            Effect::Count => {
                self.assembler.vector(SIGNS, RAX.number(), 0, Place::Register(value));
                if self.masked {
                    self.assembler.general(&[0x21], R8, RAX.into(), false);
                }
                // popcnt, whose prefix precedes the others.
                self.assembler.bytes(&[0xf3]);
                self.assembler.general(&[0x0f, 0xb8], RAX, RAX.into(), false);
                self.assembler.general(&[0x01], RAX, Place::at(RDI, offset_of!(Frame, counted)), false);
            }
        }
        self.release();
        Some(())
    }
}

/// Returns the instruction of an operation, and its immediate.
fn encoding(operation: Operation) -> (Opcode, Option<u8>) {
    let opcode = match operation {
        Operation::Copy => LOAD,
        Operation::FromSigned => Opcode(1, 0, 0x5b),
        Operation::ToSigned => Opcode(1, 1, 0x5b),
        Operation::ToSignedTruncated => Opcode(1, 2, 0x5b),
        Operation::HalvesRightSigned(amount) => return (Opcode(1, 1, 0x71), Some(amount)),
        Operation::MultiplyHalves => Opcode(1, 1, 0xf5),
        Operation::And => Opcode(1, 1, 0xdb),
        Operation::Or => Opcode(1, 1, 0xeb),
        Operation::Xor => Opcode(1, 1, 0xef),
        Operation::Add => Opcode(1, 1, 0xfe),
        Operation::Sub => Opcode(1, 1, 0xfa),
        Operation::Multiply => Opcode(2, 1, 0x40),
        Operation::MultiplyEven => Opcode(1, 1, 0xf4),
        Operation::MultiplyEvenSigned => Opcode(2, 1, 0x28),
        Operation::Upper => return (Opcode(1, 1, 0x73), Some(32)),
        Operation::Interleave => return (Opcode(3, 1, 0x02), Some(0xaa)),
        Operation::ShiftLeft(amount)
        | Operation::ShiftRight(amount)
        | Operation::ShiftRightSigned(amount) => {
            return (Opcode(1, 1, 0x72), Some(amount));
        }
        Operation::Min => Opcode(2, 1, 0x3b),
        Operation::Max => Opcode(2, 1, 0x3f),
        Operation::Equal => Opcode(1, 1, 0x76),
        Operation::Greater => Opcode(1, 1, 0x66),
        Operation::AddFloat => Opcode(1, 0, 0x58),
        Operation::MultiplyFloat => Opcode(1, 0, 0x59),
        Operation::Unordered => return (Opcode(1, 0, 0xc2), Some(3)),
        Operation::EqualFloat => return (Opcode(1, 0, 0xc2), Some(0)),
        Operation::LessFloat => return (Opcode(1, 0, 0xc2), Some(0x11)),
        Operation::AtMostFloat => return (Opcode(1, 0, 0xc2), Some(0x12)),
        Operation::Select => BLEND,
        Operation::Bytes(_) => Opcode(2, 1, 0x00),
        Operation::Fma | Operation::FmaDown | Operation::Mufu(_) => unreachable!("emitted by itself"),
        Operation::Splat(_) | Operation::Row(_) | Operation::Predicate(_) => unreachable!("not computed"),
        Operation::Constant { .. } | Operation::Uniform(_) | Operation::Loaded(_) => {
            unreachable!("not computed")
        }
        Operation::Barrier(_) | Operation::Thread(_) | Operation::Block(_) => unreachable!("not computed"),
        Operation::Number | Operation::Mask => unreachable!("not computed"),
    };
    (opcode, None)
}
