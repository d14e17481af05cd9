//! Checks of programs: errors of kernels that a board does not report.
//!
//! A kernel that writes past its buffer into the neighbour's, reads freed memory, races with another warp, or
//! reads what nobody wrote, usually ends without an error. With a [`Checker`] in
//! [`SmOptions::check`](crate::sm::SmOptions::check) the model holds each access against what the program has told it,
//! and records a [`Finding`] for each cause:
//!
//! | tool | finds |
//! |---|---|
//! | memcheck | accesses outside of live objects, after free, below the stack frame, misaligned, unmapped |
//! | racecheck | two warps that access the same bytes without ordering, at least one writing |
//! | initcheck | loads of device memory that neither CPU nor GPU has written |
//! | synccheck | barriers in divergent code, without exited threads, with wrong counts; masks of `__syncwarp` |
//! | leakcheck | objects that are alive when the board is closed, or the process ends |
//!
//! # How it works
//!
//! A library that cuts its own buffers from large allocations, such as `tegra-hcq`, tells the model where they are,
//! by a [`Watcher`] of its address space (`objects`). Only then can memcheck tell neighbours apart. `program` knows
//! loaded cubins: kernels, parameters and source lines; `known` recognises the code of other cubins. An
//! instruction that a tool examines is decoded into one that calls `block` before it executes, so the interpreter
//! without a checker has no further test. Errors that the hardware detects (misaligned, unmapped, beyond shared memory)
//! become findings when they end the grid.
//!
//! Checking does not change what a program computes, with one exception: stores to mapped memory outside of live
//! objects are dropped, so that they cannot destroy other objects, in particular commands of the GPU.

mod block;
mod copies;
mod environment;
mod finding;
mod grid;
mod init;
mod known;
mod mapped;
mod objects;
mod output;
mod program;
mod race;
mod suppress;
mod sync;
mod watcher;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

pub use environment::{CHECK_VARIABLE, EXIT_CODE, EXIT_VARIABLE, REPORT_VARIABLE, SUPPRESSIONS_VARIABLE};
pub use finding::{Accessing, Finding, Kind, Located, NearObject, OtherSide, Place, Worker};
pub use known::BadCubin;
pub use output::{json, sarif, text};
pub use suppress::{BadSuppression, Suppressions};
pub use watcher::{Pointer, Watcher, What};

pub(crate) use block::BlockCheck;
pub(crate) use copies::Rows;
pub(crate) use environment::close;
use finding::Findings;
pub(crate) use grid::{GridCheck, Request, Role, Site, Space};
pub(crate) use known::Known;
use objects::Objects;
pub(crate) use program::Image;
pub(crate) use suppress::is_like;

bitflags::bitflags! {
    /// The tools of a [`Checker`].
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Tools: u8 {
        /// Accesses outside of live objects.
        const MEMCHECK = 1;
        /// Unordered accesses of two warps.
        const RACECHECK = 2;
        /// Loads of memory that was never written.
        const INITCHECK = 4;
        /// Misuse of barriers.
        const SYNCCHECK = 8;
        /// Objects alive at the end.
        const LEAKCHECK = 16;
    }
}

/// Names of the tools.
const NAMES: [(&str, Tools); 5] = [
    ("memcheck", Tools::MEMCHECK),
    ("racecheck", Tools::RACECHECK),
    ("initcheck", Tools::INITCHECK),
    ("synccheck", Tools::SYNCCHECK),
    ("leakcheck", Tools::LEAKCHECK),
];

/// A name that is not a tool's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown tool '{0}'; known are memcheck, racecheck, initcheck, synccheck, leakcheck and all")]
pub struct UnknownTool(pub String);

impl core::str::FromStr for Tools {
    type Err = UnknownTool;

    /// Names separated by commas; `all` and `1` mean all tools.
    fn from_str(text: &str) -> Result<Self, UnknownTool> {
        text.split(',').map(str::trim).filter(|name| !name.is_empty()).try_fold(
            Self::empty(),
            |tools, name| {
                let tool = match name {
                    "all" | "1" => Some(Self::all()),
                    "0" => Some(Self::empty()),
                    _ => NAMES.iter().find(|(known, _)| *known == name).map(|(_, tool)| *tool),
                };
                Ok(tools | tool.ok_or_else(|| UnknownTool(name.to_owned()))?)
            },
        )
    }
}

impl Tools {
    /// Name of a single tool.
    fn name(self) -> &'static str {
        NAMES.iter().find(|(_, tool)| *tool == self).map_or("check", |(name, _)| name)
    }

    /// Whether the global accesses of kernels must be examined.
    pub(crate) fn examine_global(self) -> bool {
        self.intersects(Self::MEMCHECK | Self::RACECHECK | Self::INITCHECK)
    }
}

/// What a checker knows and has found; clones are handles to the same.
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
    tools: Tools,
    objects: RwLock<Objects>,
    /// Changes with `objects`.
    generation: AtomicU64,
    /// Number of objects that the CPU has views of.
    views: AtomicU64,
    findings: Mutex<Findings>,
    known: Known,
}

impl Checker {
    /// A checker without findings.
    pub fn new(tools: Tools) -> Self {
        Self(Arc::new(Inner {
            tools,
            objects: RwLock::default(),
            generation: AtomicU64::new(0),
            views: AtomicU64::new(0),
            findings: Mutex::default(),
            known: Known::default(),
        }))
    }

    /// Leaves out the findings that `suppressions` match, from now on.
    pub fn suppress(&self, suppressions: Suppressions) {
        self.lock().suppress(suppressions);
    }

    /// Adds a cubin with the code of kernels. Programs with driver code of their own do not tell the model what they
    /// load: with the cubin, the model recognises a function by its code, and findings from now on have its name and
    /// its source lines.
    ///
    /// # Errors
    ///
    /// [`BadCubin`] if the file cannot be parsed, or is for another GPU.
    pub fn add_cubin(&self, file: &[u8]) -> Result<(), BadCubin> {
        self.0.known.add(file)
    }

    /// Sets how cubins are searched for, once: `search` returns files, and the model ignores those that are no cubins
    /// for the Orin. It is called while a kernel runs, for the first finding about each kernel that is not known.
    pub fn search_cubins_by(&self, search: impl Fn() -> Vec<Vec<u8>> + Send + Sync + 'static) {
        self.0.known.search_by(Box::new(search));
    }

    /// The tools in use.
    pub fn tools(&self) -> Tools {
        self.0.tools
    }

    /// The findings so far, one per cause, oldest first.
    pub fn findings(&self) -> Vec<Finding> {
        self.lock().all()
    }

    /// As [`Checker::findings`], with the objects that are alive now as leaks if [`Tools::LEAKCHECK`] is on. Call it
    /// when the program should have freed everything.
    pub fn findings_at_end(&self) -> Vec<Finding> {
        if self.0.tools.contains(Tools::LEAKCHECK) {
            let leaks = self.objects().leaks();
            leaks
                .into_iter()
                .for_each(|leak| self.lock().add((Kind::Leak, leak.key()), 1, |_| false, || leak.finding()));
        }
        self.findings()
    }

    /// Number of suppressed findings.
    pub fn suppressed(&self) -> u64 {
        self.lock().suppressed()
    }

    /// The loaded program that contains an address, and the offset in it.
    pub(crate) fn image(&self, space: u64, va: u64) -> Option<(Arc<Image>, u64)> {
        self.objects().image(space, va)
    }

    fn lock(&self) -> MutexGuard<'_, Findings> {
        self.0.findings.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The objects. A thread must not call this while it has them: a writer that waits in between blocks both.
    fn objects(&self) -> RwLockReadGuard<'_, Objects> {
        self.0.objects.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn objects_mut(&self) -> RwLockWriteGuard<'_, Objects> {
        self.0.objects.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the objects that extents at hand may belong to.
    fn change<R>(&self, change: impl FnOnce(&mut Objects) -> R) -> R {
        let result = change(&mut self.objects_mut());
        self.0.generation.fetch_add(1, Ordering::Release);
        result
    }

    /// A number that changes whenever an object does.
    fn generation(&self) -> u64 {
        self.0.generation.load(Ordering::Acquire)
    }

    /// A view was opened or closed.
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
        self.lock().add((kind, key), count, |_| false, finding);
    }

    /// The watcher of an address space.
    pub(crate) fn watcher(&self, space: Arc<crate::mmu::AddressSpace>) -> Watcher {
        Watcher::new(self.clone(), space)
    }
}
