//! What a block computes, as a graph: each operation of lanes is a node with up to three operands.
//!
//! [`Node`] implements [`Lanes`], so the semantics of instructions are those that the handlers have. Operations whose
//! result is known are simplified as they are made, and equal ones are made once.

use std::cell::RefCell;
use std::collections::HashMap;

use crate::sm::exec::steps::eight::Lanes;
use crate::sm::numeric::f32::NAN;

/// Index of a node in the graph of the running thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Node(u16);

impl Node {
    /// Operand of a node that has fewer.
    const NONE: Self = Self(0);

    pub(super) fn index(self) -> usize {
        self.0.into()
    }
}

/// Operation of a node. The first ones have no operands, but read memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Operation {
    /// A value that is the same for all lanes.
    Splat(u32),
    /// A register at the start of the block.
    Row(u8),
    /// A predicate at the start of the block, all ones in the lanes where it is true.
    Predicate(u8),
    /// A word of a constant bank.
    Constant {
        bank: u8,
        offset: u16,
    },
    /// A uniform register.
    Uniform(u8),
    /// A loaded word of the block.
    Loaded(u8),
    /// A convergence barrier at the start of the block.
    Barrier(u8),
    /// An axis of the threads' indices in the CTA.
    Thread(u8),
    /// An axis of the CTA's index.
    Block(u8),
    /// The number of each lane.
    Number,
    /// The lanes of the path, in one word.
    Mask,
    /// An operand, in a node of its own.
    Copy,
    And,
    Or,
    Xor,
    Add,
    Sub,
    Multiply,
    /// 64-bit products of the even lanes.
    MultiplyEven,
    MultiplyEvenSigned,
    /// Shifts each two lanes to the right by 32 bits.
    Upper,
    /// The even lanes of A and the odd ones of B.
    Interleave,
    ShiftLeft(u8),
    ShiftRight(u8),
    ShiftRightSigned(u8),
    Min,
    Max,
    Equal,
    Greater,
    AddFloat,
    MultiplyFloat,
    Fma,
    /// Rounded down.
    FmaDown,
    /// A float from a signed word.
    FromSigned,
    /// A signed word from a float: the nearest one, the next one towards 0.
    ToSigned,
    ToSignedTruncated,
    /// The function of MUFU with this number.
    Mufu(u8),
    /// Shifts each half.
    HalvesRightSigned(u8),
    /// The sum of the products of the halves.
    MultiplyHalves,
    /// Whether A or B is NaN.
    Unordered,
    EqualFloat,
    LessFloat,
    AtMostFloat,
    /// B where A is all ones, else C.
    Select,
    /// Bytes of each lane of A.
    Bytes(u32),
}

impl Operation {
    /// Number of operands.
    pub(super) fn arity(self) -> usize {
        match self {
            Self::Splat(_) | Self::Row(_) | Self::Predicate(_) => 0,
            Self::Constant { .. } | Self::Uniform(_) | Self::Loaded(_) => 0,
            Self::Barrier(_) | Self::Thread(_) | Self::Block(_) | Self::Number | Self::Mask => 0,
            Self::Copy | Self::Upper | Self::Bytes(_) | Self::FromSigned => 1,
            Self::ToSigned | Self::ToSignedTruncated | Self::HalvesRightSigned(_) | Self::Mufu(_) => 1,
            Self::ShiftLeft(_) | Self::ShiftRight(_) | Self::ShiftRightSigned(_) => 1,
            Self::Fma | Self::FmaDown | Self::Select => 3,
            _ => 2,
        }
    }

    /// Whether A and B may be exchanged.
    pub(super) fn commutes(self) -> bool {
        match self {
            Self::And | Self::Or | Self::Xor | Self::Add | Self::Multiply | Self::Equal | Self::Fma => true,
            Self::MultiplyEven | Self::MultiplyEvenSigned | Self::MultiplyHalves => true,
            Self::Min | Self::Max => true,
            // Of two NaN operands the first is the result, but which NaN it is never matters.
            Self::AddFloat | Self::MultiplyFloat | Self::Unordered | Self::EqualFloat => true,
            _ => false,
        }
    }
}

/// The nodes of a block, operands before the nodes that use them.
#[derive(Debug, Default)]
pub(super) struct Graph {
    nodes: Vec<(Operation, [Node; 3])>,
    known: HashMap<(Operation, [Node; 3]), Node>,
}

thread_local! {
    /// The graph under construction: operations of [`Lanes`] have no other place to look for it.
    static GRAPH: RefCell<Graph> = RefCell::default();
}

impl Graph {
    /// Most nodes. Blocks end before.
    pub(super) const LIMIT: usize = 4096;

    /// Starts a new graph.
    pub(super) fn start() {
        GRAPH.take();
    }

    /// Returns the graph that was built since the start.
    pub(super) fn finish() -> Self {
        GRAPH.take()
    }

    /// Returns the number of nodes so far.
    pub(super) fn count() -> usize {
        GRAPH.with_borrow(|graph| graph.nodes.len())
    }

    pub(super) fn len(&self) -> usize {
        self.nodes.len()
    }

    pub(super) fn operation(&self, node: Node) -> Operation {
        self.nodes[node.index()].0
    }

    /// Returns the operands of a node.
    pub(super) fn operands(&self, node: Node) -> &[Node] {
        let (operation, operands) = &self.nodes[node.index()];
        &operands[..operation.arity()]
    }

    /// Returns all nodes in order.
    pub(super) fn nodes(&self) -> impl DoubleEndedIterator<Item = Node> + use<> {
        // CAST: below the limit.
        (0..self.nodes.len() as u16).map(Node)
    }
}

/// Returns the operation and the operands of a node of the graph under construction.
pub(super) fn operation_of(node: Node) -> (Operation, [Node; 3]) {
    GRAPH.with_borrow(|graph| graph.nodes[node.index()])
}

fn constant(node: Node) -> Option<u32> {
    match operation_of(node).0 {
        Operation::Splat(value) => Some(value),
        _ => None,
    }
}

/// Returns a node without operands.
pub(super) fn input(operation: Operation) -> Node {
    add(operation, [Node::NONE; 3])
}

/// Returns a node for a row or predicate that can be kept while the original is overwritten.
pub(super) fn copy(node: Node) -> Node {
    add(Operation::Copy, [node, Node::NONE, Node::NONE])
}

fn add(operation: Operation, operands: [Node; 3]) -> Node {
    GRAPH.with_borrow_mut(|graph| {
        let key = (operation, operands);
        if let Some(&node) = graph.known.get(&key) {
            return node;
        }
        // CAST: below the limit, or a little above it at the end of a block.
        let node = Node(graph.nodes.len() as u16);
        graph.nodes.push(key);
        graph.known.insert(key, node);
        node
    })
}

fn unary(operation: Operation, a: Node) -> Node {
    add(operation, [a, Node::NONE, Node::NONE])
}

fn binary(operation: Operation, a: Node, b: Node) -> Node {
    add(operation, [a, b, Node::NONE])
}

/// Orders the operands of an operation that commutes: what can be an operand in memory is the second.
fn ordered(a: Node, b: Node) -> (Node, Node) {
    let rank = |node| match operation_of(node).0 {
        Operation::Splat(_) => 2,
        Operation::Row(_) => 1,
        _ => 0,
    };
    if (rank(a), a) > (rank(b), b) { (b, a) } else { (a, b) }
}

/// Returns a value that is NaN if and only if `node` is, and else is equal, with fewer operations: results that may be
/// NaN are replaced by the canonical NaN where their bits matter, which is not so in an operand of a float operation.
fn raw(node: Node) -> Node {
    let (operation, [a, b, c]) = operation_of(node);
    match operation {
        Operation::Select
            if constant(b) == Some(NAN) && operation_of(a) == (Operation::Unordered, [c, c, Node::NONE]) =>
        {
            c
        }
        Operation::Xor if constant(b) == Some(1 << 31) => raw(a).xor(b),
        Operation::And if constant(b) == Some(!(1 << 31)) => raw(a).and(b),
        _ => node,
    }
}

impl Lanes for Node {
    fn splat(value: u32) -> Self {
        input(Operation::Splat(value))
    }

    fn and(self, other: Self) -> Self {
        let (a, b) = ordered(self, other);
        match (constant(a), constant(b)) {
            (Some(a), Some(b)) => Self::splat(a & b),
            (_, Some(0)) => b,
            (_, Some(u32::MAX)) => a,
            _ if a == b => a,
            _ => binary(Operation::And, a, b),
        }
    }

    fn or(self, other: Self) -> Self {
        let (a, b) = ordered(self, other);
        match (constant(a), constant(b)) {
            (Some(a), Some(b)) => Self::splat(a | b),
            (_, Some(0)) => a,
            (_, Some(u32::MAX)) => b,
            _ if a == b => a,
            _ => binary(Operation::Or, a, b),
        }
    }

    fn xor(self, other: Self) -> Self {
        let (a, b) = ordered(self, other);
        match (constant(a), constant(b)) {
            (Some(a), Some(b)) => return Self::splat(a ^ b),
            (_, Some(0)) => return a,
            _ if a == b => return Self::splat(0),
            _ => {}
        }
        for (whole, part) in [(a, b), (b, a)] {
            if let (Operation::Xor, [x, y, _]) = operation_of(whole) {
                if x == part {
                    return y;
                }
                if y == part {
                    return x;
                }
                if let (Some(y), Some(part)) = (constant(y), constant(part)) {
                    return x.xor(Self::splat(y ^ part));
                }
            }
        }
        binary(Operation::Xor, a, b)
    }

    fn add(self, other: Self) -> Self {
        let (a, b) = ordered(self, other);
        match (constant(a), constant(b)) {
            (Some(a), Some(b)) => Self::splat(a.wrapping_add(b)),
            (_, Some(0)) => a,
            _ => binary(Operation::Add, a, b),
        }
    }

    fn sub(self, other: Self) -> Self {
        match (constant(self), constant(other)) {
            (Some(a), Some(b)) => Self::splat(a.wrapping_sub(b)),
            (_, Some(0)) => self,
            _ => binary(Operation::Sub, self, other),
        }
    }

    fn mul(self, other: Self) -> Self {
        let (a, b) = ordered(self, other);
        match (constant(a), constant(b)) {
            (Some(a), Some(b)) => Self::splat(a.wrapping_mul(b)),
            (_, Some(0)) => b,
            (_, Some(factor)) if factor.is_power_of_two() => a.shift_left(factor.trailing_zeros()),
            _ => binary(Operation::Multiply, a, b),
        }
    }

    fn mul_wide(self, other: Self, signed: bool) -> [Self; 2] {
        let operation = if signed { Operation::MultiplyEvenSigned } else { Operation::MultiplyEven };
        let (a, b) = ordered(self, other);
        let upper = |x: Self| match constant(x) {
            Some(_) => x,
            None => unary(Operation::Upper, x),
        };
        let even = binary(operation, a, b);
        let odd = binary(operation, upper(a), upper(b));
        [a.mul(b), binary(Operation::Interleave, unary(Operation::Upper, even), odd)]
    }

    fn shift_left(self, amount: u32) -> Self {
        // CAST: below 32, here and below.
        if amount == 0 { self } else { unary(Operation::ShiftLeft(amount as u8), self) }
    }

    fn shift_right(self, amount: u32) -> Self {
        if amount == 0 { self } else { unary(Operation::ShiftRight(amount as u8), self) }
    }

    fn shift_right_signed(self, amount: u32) -> Self {
        if amount == 0 { self } else { unary(Operation::ShiftRightSigned(amount as u8), self) }
    }

    fn min(self, other: Self) -> Self {
        let (a, b) = ordered(self, other);
        binary(Operation::Min, a, b)
    }

    fn max(self, other: Self) -> Self {
        let (a, b) = ordered(self, other);
        binary(Operation::Max, a, b)
    }

    fn equal(self, other: Self) -> Self {
        let (a, b) = ordered(self, other);
        binary(Operation::Equal, a, b)
    }

    fn below(self, other: Self) -> Self {
        binary(Operation::Greater, other, self)
    }

    fn add_float(self, other: Self) -> Self {
        let (a, b) = ordered(raw(self), raw(other));
        binary(Operation::AddFloat, a, b)
    }

    fn mul_float(self, other: Self) -> Self {
        let (a, b) = ordered(raw(self), raw(other));
        binary(Operation::MultiplyFloat, a, b)
    }

    fn fma(self, other: Self, third: Self) -> Self {
        let (a, b) = ordered(raw(self), raw(other));
        add(Operation::Fma, [a, b, raw(third)])
    }

    fn fma_down(self, other: Self, third: Self) -> Self {
        let (a, b) = ordered(raw(self), raw(other));
        add(Operation::FmaDown, [a, b, raw(third)])
    }

    fn signed_to_float(self) -> Self {
        unary(Operation::FromSigned, self)
    }

    fn float_to_signed(self, towards_zero: bool) -> Self {
        unary(if towards_zero { Operation::ToSignedTruncated } else { Operation::ToSigned }, raw(self))
    }

    fn mufu(self, function: u32) -> Self {
        unary(Operation::Mufu(function as u8), self)
    }

    fn halves_right_signed(self, amount: u32) -> Self {
        unary(Operation::HalvesRightSigned(amount as u8), self)
    }

    fn mul_halves(self, other: Self) -> Self {
        let (a, b) = ordered(self, other);
        binary(Operation::MultiplyHalves, a, b)
    }

    fn is_nan(self) -> Self {
        let a = raw(self);
        binary(Operation::Unordered, a, a)
    }

    fn equal_float(self, other: Self) -> Self {
        let (a, b) = ordered(raw(self), raw(other));
        binary(Operation::EqualFloat, a, b)
    }

    fn less_float(self, other: Self) -> Self {
        binary(Operation::LessFloat, raw(self), raw(other))
    }

    fn at_most_float(self, other: Self) -> Self {
        binary(Operation::AtMostFloat, raw(self), raw(other))
    }

    fn select(self, yes: Self, no: Self) -> Self {
        match constant(self) {
            Some(0) => return no,
            Some(u32::MAX) => return yes,
            _ if yes == no => return yes,
            _ => {}
        }
        match operation_of(self) {
            (Operation::Xor, [a, b, _]) if constant(b) == Some(!0) => return a.select(no, yes),
            _ => {}
        }
        // A choice by the same lanes again.
        let no = match operation_of(no) {
            (Operation::Select, [a, _, c]) if a == self => c,
            _ => no,
        };
        match (constant(yes), constant(no)) {
            (Some(u32::MAX), Some(0)) => self,
            (_, Some(0)) => self.and(yes),
            (Some(u32::MAX), _) => self.or(no),
            _ => add(Operation::Select, [self, yes, no]),
        }
    }

    fn bytes(self, selector: u32) -> Self {
        match selector {
            0x0302_0100 => self,
            0x8080_8080 => Self::splat(0),
            _ => unary(Operation::Bytes(selector), self),
        }
    }
}
