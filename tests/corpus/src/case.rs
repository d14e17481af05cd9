//! A case: one kernel, its launch, its arguments and its expected results.

use std::sync::OnceLock;

use super::compare::Tolerance;
use super::data::{Data, Element};
use test_support::Numbers;

/// An argument of a kernel.
#[derive(Clone, Debug)]
pub enum Argument {
    /// A pointer to memory that the kernel reads.
    Input(Data),
    /// A pointer to memory that the kernel writes, with its initial contents.
    Output(Data),
    /// A value, as bytes.
    Scalar(Vec<u8>),
}

type Reference = Box<dyn Fn(&[Argument]) -> Vec<Data> + Send + Sync>;

/// A kernel of the corpus with one launch.
pub struct Case {
    /// `kernels/corpus/FILE.cu`.
    pub file: &'static str,
    /// Name of the kernel and of the case.
    pub kernel: &'static str,
    /// Blocks in x, y and z.
    pub grid: [u32; 3],
    /// Threads per block in x, y and z.
    pub block: [u32; 3],
    /// Dynamic shared memory per block, in bytes.
    pub shared_bytes: u32,
    /// Arguments in order.
    pub arguments: Vec<Argument>,
    /// Tolerance of the results.
    pub tolerance: Tolerance,
    /// Reason for the tolerance.
    pub reason: &'static str,
    reference: Reference,
    expected: OnceLock<Vec<Data>>,
}

impl std::fmt::Debug for Case {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Case").field("file", &self.file).field("kernel", &self.kernel).finish_non_exhaustive()
    }
}

impl Case {
    /// A case of one block of 32 threads, without arguments, with exact results.
    pub fn new(file: &'static str, kernel: &'static str) -> Self {
        Self {
            file,
            kernel,
            grid: [1, 1, 1],
            block: [32, 1, 1],
            shared_bytes: 0,
            arguments: Vec::new(),
            tolerance: Tolerance::Exact,
            reason: "integers, or IEEE arithmetic in a fixed order",
            reference: Box::new(|_| Vec::new()),
            expected: OnceLock::new(),
        }
    }

    /// Random numbers for the inputs: the same in every run, different for every kernel.
    pub fn numbers(kernel: &str) -> Numbers {
        Numbers::new(kernel.bytes().fold(7, |hash: u64, byte| hash.wrapping_mul(131) ^ u64::from(byte)))
    }

    /// Sets a one-dimensional grid and block.
    #[must_use]
    pub fn launch(self, grid: u32, block: u32) -> Self {
        Self { grid: [grid, 1, 1], block: [block, 1, 1], ..self }
    }

    /// Sets a three-dimensional grid and block.
    #[must_use]
    pub fn launch3(self, grid: [u32; 3], block: [u32; 3]) -> Self {
        Self { grid, block, ..self }
    }

    /// Sets the dynamic shared memory, in bytes.
    #[must_use]
    pub fn shared(self, shared_bytes: u32) -> Self {
        Self { shared_bytes, ..self }
    }

    /// Adds an argument: a buffer to read.
    #[must_use]
    pub fn input<T: Element>(mut self, values: &[T]) -> Self {
        self.arguments.push(Argument::Input(Data::of(values)));
        self
    }

    /// Adds an argument: a buffer of `len` elements to write.
    #[must_use]
    pub fn output<T: Element>(mut self, len: usize) -> Self {
        self.arguments.push(Argument::Output(Data::poison::<T>(len)));
        self
    }

    /// Adds an argument: a buffer to read and write.
    #[must_use]
    pub fn update<T: Element>(mut self, values: &[T]) -> Self {
        self.arguments.push(Argument::Output(Data::of(values)));
        self
    }

    /// Adds an argument: a value.
    #[must_use]
    pub fn scalar<T: Element>(mut self, value: T) -> Self {
        self.arguments.push(Argument::Scalar(Data::of(&[value]).bytes));
        self
    }

    /// Adds an argument: a struct, as the bytes of its C layout.
    #[must_use]
    pub fn bytes(mut self, bytes: Vec<u8>) -> Self {
        self.arguments.push(Argument::Scalar(bytes));
        self
    }

    /// Sets the tolerance of the results and the reason for it.
    #[must_use]
    pub fn within(self, tolerance: Tolerance, reason: &'static str) -> Self {
        Self { tolerance, reason, ..self }
    }

    /// Sets the function that computes the expected outputs, in argument order.
    #[must_use]
    pub fn reference(self, reference: impl Fn(&[Argument]) -> Vec<Data> + Send + Sync + 'static) -> Self {
        Self { reference: Box::new(reference), ..self }
    }

    /// Sets a reference for one output that depends only on captured values.
    #[must_use]
    pub fn gives<T: Element>(self, reference: impl Fn() -> Vec<T> + Send + Sync + 'static) -> Self {
        self.reference(move |_| vec![Data::of(&reference())])
    }

    /// The expected outputs, computed once and then cached.
    ///
    /// # Panics
    ///
    /// If the reference returns other buffers than the case declares.
    pub fn expected(&self) -> &[Data] {
        self.expected.get_or_init(|| {
            let expected = (self.reference)(&self.arguments);
            let shape = |data: &Data| (data.kind, data.bytes.len());
            let given: Vec<_> = expected.iter().map(shape).collect();
            let declared: Vec<_> = self.outputs().map(shape).collect();
            assert_eq!(given, declared, "{}: the reference's outputs", self.kernel);
            expected
        })
    }

    /// The outputs before the launch.
    pub fn outputs(&self) -> impl Iterator<Item = &Data> {
        self.arguments.iter().filter_map(|argument| match argument {
            Argument::Output(data) => Some(data),
            _ => None,
        })
    }
}

/// Source of a map's values.
pub struct Source<T> {
    /// Values that are combined exhaustively.
    pub edges: Vec<T>,
    /// Other values.
    pub random: fn(&mut Numbers) -> T,
}

/// Any value of a type, edge values first.
pub fn any<T: Element>() -> Source<T> {
    Source { edges: T::EDGES.to_vec(), random: T::random }
}

/// Values returned by a function, in addition to the given ones.
pub fn made<T: Element>(edges: &[T], random: fn(&mut Numbers) -> T) -> Source<T> {
    Source { edges: edges.to_vec(), random }
}

/// Elements of a map: a prime, so it is not a multiple of any tile size.
pub const MAP_LEN: usize = 1009;

/// Index `at` of the combinations of edge values, if it exists.
fn pick<T: Element>(source: &Source<T>, at: usize, numbers: &mut Numbers) -> T {
    source.edges.get(at).copied().unwrap_or_else(|| (source.random)(numbers))
}

/// A case whose thread `i` computes `K` elements starting at `K * i`, with a block size that does not divide
/// the total.
fn map<O: Element, const K: usize>(file: &'static str, kernel: &'static str, inputs: Vec<Argument>) -> Case {
    let block = [33, 64, 96, 111, 128, 160, 250][kernel.len() % 7];
    // CAST: far below 2^32.
    let n = MAP_LEN as u32;
    let mut case = Case::new(file, kernel).launch(n.div_ceil(block), block);
    case.arguments = inputs;
    case.output::<O>(MAP_LEN * K).scalar(n)
}

/// `kernel(const A* a, O* out, unsigned n)`.
pub fn map1<A: Element, O: Element, const K: usize>(
    file: &'static str,
    kernel: &'static str,
    a: Source<A>,
    f: impl Fn(A) -> [O; K] + Send + Sync + 'static,
) -> Case {
    let mut numbers = Case::numbers(kernel);
    let a: Vec<A> = (0..MAP_LEN).map(|i| pick(&a, i, &mut numbers)).collect();
    map::<O, K>(file, kernel, vec![Argument::Input(Data::of(&a))])
        .gives(move || a.iter().flat_map(|a| f(*a)).collect())
}

/// `kernel(const A* a, const B* b, O* out, unsigned n)`.
pub fn map2<A: Element, B: Element, O: Element, const K: usize>(
    file: &'static str,
    kernel: &'static str,
    (sa, sb): (Source<A>, Source<B>),
    f: impl Fn(A, B) -> [O; K] + Send + Sync + 'static,
) -> Case {
    let mut numbers = Case::numbers(kernel);
    let columns = sa.edges.len().max(1);
    let a: Vec<A> = (0..MAP_LEN)
        .map(|i| {
            let at = if i / columns < sb.edges.len() { i % columns } else { usize::MAX };
            pick(&sa, at, &mut numbers)
        })
        .collect();
    let b: Vec<B> = (0..MAP_LEN).map(|i| pick(&sb, i / columns, &mut numbers)).collect();
    map::<O, K>(file, kernel, vec![Argument::Input(Data::of(&a)), Argument::Input(Data::of(&b))])
        .gives(move || a.iter().zip(&b).flat_map(|(a, b)| f(*a, *b)).collect())
}

/// `kernel(const A* a, const A* b, const A* c, O* out, unsigned n)`.
pub fn map3<A: Element, O: Element, const K: usize>(
    file: &'static str,
    kernel: &'static str,
    source: Source<A>,
    f: impl Fn(A, A, A) -> [O; K] + Send + Sync + 'static,
) -> Case {
    let mut numbers = Case::numbers(kernel);
    let edges = source.edges.len().max(1);
    // Three counters of different speed, then random values.
    let mut column = |divisor: usize| -> Vec<A> {
        (0..MAP_LEN)
            .map(|i| {
                let at = if i < MAP_LEN / 2 { (i / divisor + i % 3) % edges } else { usize::MAX };
                pick(&source, at, &mut numbers)
            })
            .collect()
    };
    let (a, b, c) = (column(1), column(edges), column(7));
    let inputs = [&a, &b, &c].map(|values| Argument::Input(Data::of(values)));
    map::<O, K>(file, kernel, inputs.into())
        .gives(move || (0..MAP_LEN).flat_map(|i| f(a[i], b[i], c[i])).collect())
}
