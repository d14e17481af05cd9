//! Checks of programs: errors of kernels that a board does not report.
//!
//! A kernel that writes past its buffer into the neighbour's, reads freed memory, races with another warp, or
//! reads uninitialised memory, usually ends without an error. With a [`Checker`] in
//! [`SmOptions::check`](crate::sm::SmOptions::check) the model compares each access with the objects that the program
//! registered, and records a [`Finding`] for each cause:
//!
//! | tool | finds |
//! |---|---|
//! | memcheck | accesses outside of live objects, after free, below the stack frame, misaligned, unmapped |
//! | racecheck | two warps that access the same bytes without ordering, at least one writing |
//! | initcheck | loads of device memory that neither CPU nor GPU has written |
//! | synccheck | barriers in divergent code, without exited threads, with wrong counts; masks of `__syncwarp` |
//! | leakcheck | objects that are alive when the board is closed, or the process ends |
//! | warpcheck | accesses of two lanes of a warp to the same shared memory without `__syncwarp()` (`lockstep`) |
//! | ordering | work without order, stale caches, unwritten words, unproven encodings (`ordering`) |
//!
//! # How it works
//!
//! A library that cuts its own buffers from large allocations, such as `tegra-hcq`, registers them
//! with a [`Watcher`] of its address space (`objects`). Only then can memcheck distinguish neighbours. `program` knows
//! loaded cubins: kernels, parameters and source lines; `known` recognises the code of other cubins. An
//! instruction that a tool examines is decoded into one that calls `block` before it executes, so the interpreter
//! without a checker has no further test. Errors that the hardware detects (misaligned, unmapped, beyond shared memory)
//! become findings when they end the grid.
//!
//! Checking does not change what a program computes, with one exception: stores to mapped memory outside of live
//! objects are dropped, so that they cannot destroy other objects, in particular commands of the GPU.

mod block;
mod calls;
mod constants;
mod copies;
mod environment;
mod fate;
mod finding;
mod grid;
mod init;
mod known;
mod lockstep;
mod mapped;
mod merge;
mod objects;
mod ordering;
mod output;
mod padding;
mod program;
mod race;
mod request;
mod shuffle;
mod suppress;
mod sync;
mod tools;
mod watcher;
mod work;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};

use parking_lot::{Mutex, RwLock, RwLockReadGuard};

pub use calls::set_calls;
pub use environment::{
    AUTO_VARIABLE, CHECK_VARIABLE, EXIT_CODE, EXIT_VARIABLE, REPORT_VARIABLE, STRICT_VARIABLE,
    SUPPRESSIONS_VARIABLE,
};
pub use finding::{Accessing, Finding, Kind, Located, NearObject, OtherSide, Place, Worker};
pub use known::BadCubin;
pub use ordering::POISON;
pub use output::{json, sarif, text};
pub use suppress::{BadSuppression, Suppressions};
pub use tools::{Tools, UnknownTool};
pub use watcher::{Pointer, Watcher, What};
pub use work::Work;

pub(crate) use block::BlockCheck;
pub(crate) use copies::Rows;
pub(crate) use environment::close;
use finding::Findings;
pub(crate) use grid::GridCheck;
pub(crate) use known::Known;
use objects::Objects;
pub(crate) use ordering::{Accessed, Cache, Encoding, OrderCheck, Shadow, Strength, Unit, Watch};
pub(crate) use program::Image;
pub(crate) use request::{Fence, Request, Role, Scope, Site};
pub(crate) use suppress::is_like;

/// The tools, the registered objects and the findings; clones are handles to the same.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use orin_sim::check::{Checker, Tools};
/// use orin_sim::sm::SmOptions;
/// use orin_sim::{Config, SoftwareOrin};
///
/// let checker = Checker::new(Tools::MEMCHECK);
/// let sm = SmOptions { check: Some(checker.clone()), ..SmOptions::default() };
/// let orin = SoftwareOrin::new(Config { sm, ..Config::default() })?;
/// // Run a driver and kernels on `orin`; then:
/// assert!(checker.findings().is_empty());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Checker(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    /// Bits of [`Tools`].
    tools: AtomicU8,
    objects: RwLock<Objects>,
    /// Changes with `objects`.
    generation: AtomicU64,
    /// Number of objects that the CPU has views of.
    views: AtomicU64,
    findings: Arc<Mutex<Findings>>,
    work: Mutex<Work>,
    /// Whether the environment selects it, so that its findings are reported at the end.
    reports: AtomicBool,
    /// For others: the launches that were reported when a board was closed.
    counted: AtomicU64,
    known: Known,
}

impl Checker {
    /// A checker without findings.
    pub fn new(tools: Tools) -> Self {
        Self(Arc::new(Inner {
            tools: AtomicU8::new(tools.bits()),
            objects: RwLock::default(),
            generation: AtomicU64::new(0),
            views: AtomicU64::new(0),
            findings: Arc::default(),
            work: Mutex::default(),
            reports: AtomicBool::new(false),
            counted: AtomicU64::new(0),
            known: Known::default(),
        }))
    }

    /// Leaves out the findings that `suppressions` match, from now on.
    pub fn suppress(&self, suppressions: Suppressions) {
        self.0.findings.lock().suppress(suppressions);
    }

    /// Adds a cubin with the code of kernels, for programs that do not register what they load because they have
    /// driver code of their own. The model recognises the cubin's functions by their code. Later findings have their
    /// names and source lines.
    ///
    /// # Errors
    ///
    /// [`BadCubin`] if the file cannot be parsed, or is for another GPU.
    pub fn add_cubin(&self, file: &[u8]) -> Result<(), BadCubin> {
        self.0.known.add(file)
    }

    /// Sets how cubins are searched for, once: `search` returns files, and the model ignores those that are not cubins
    /// for the Orin. It is called while a kernel runs, for the first finding about each kernel that is not known.
    pub fn search_cubins_by(&self, search: impl Fn() -> Vec<Vec<u8>> + Send + Sync + 'static) {
        self.0.known.search_by(Box::new(search));
    }

    /// The tools in use.
    pub fn tools(&self) -> Tools {
        Tools::from_bits_retain(self.0.tools.load(Ordering::Relaxed))
    }

    /// Adds tools. Call it before the board starts: the model reads the tools when it allocates, loads and launches.
    pub fn add_tools(&self, tools: Tools) {
        self.0.tools.fetch_or(tools.bits(), Ordering::Relaxed);
    }

    /// The order check of a GPU, with [`Tools::ORDERING`].
    pub(crate) fn order_check(&self) -> Option<Arc<OrderCheck>> {
        self.tools().contains(Tools::ORDERING).then(|| OrderCheck::new(Arc::clone(&self.0.findings)))
    }

    /// The findings so far, one per cause, oldest first.
    pub fn findings(&self) -> Vec<Finding> {
        self.0.findings.lock().all()
    }

    /// As [`Checker::findings`], with the objects that are alive now as leaks if [`Tools::LEAKCHECK`] is on. Call it
    /// when the program should have freed everything.
    pub fn findings_at_end(&self) -> Vec<Finding> {
        if self.tools().contains(Tools::LEAKCHECK) {
            let leaks = self.objects().leaks();
            for leak in leaks {
                self.add(Kind::Leak, leak.key(), 1, || leak.finding());
            }
        }
        self.findings()
    }

    /// Number of suppressed findings.
    pub fn suppressed(&self) -> u64 {
        self.0.findings.lock().suppressed()
    }

    /// The loaded program that contains an address, and the offset in it.
    pub(crate) fn image(&self, space: u64, va: u64) -> Option<(Arc<Image>, u64)> {
        self.objects().image(space, va)
    }

    /// Locks the objects for reading. A thread must not do so twice: it deadlocks if a writer waits in between.
    fn objects(&self) -> RwLockReadGuard<'_, Objects> {
        self.0.objects.read()
    }

    /// Changes the objects; cached extents become invalid.
    fn change<R>(&self, change: impl FnOnce(&mut Objects) -> R) -> R {
        let result = change(&mut self.0.objects.write());
        self.0.generation.fetch_add(1, Ordering::Release);
        result
    }

    /// A number that changes whenever an object does.
    fn generation(&self) -> u64 {
        self.0.generation.load(Ordering::Acquire)
    }

    /// Records that a view was opened or closed.
    fn count_view(&self, opened: bool) {
        if opened {
            self.0.views.fetch_add(1, Ordering::Release);
        } else {
            self.0.views.fetch_sub(1, Ordering::Release);
        }
    }

    /// Whether stores must be compared with the CPU's views.
    #[inline]
    fn has_views(&self) -> bool {
        self.0.views.load(Ordering::Acquire) != 0
    }

    /// Records a finding of the model.
    fn add(&self, kind: Kind, key: u64, count: u64, finding: impl FnOnce() -> Finding) {
        self.0.findings.lock().add((kind, key), count, |_| false, finding);
    }

    /// The watcher of an address space.
    pub(crate) fn watcher(&self, space: Arc<crate::mmu::AddressSpace>) -> Watcher {
        Watcher::new(self.clone(), space)
    }
}
