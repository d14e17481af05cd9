//! Profiles of kernels: exact counts for each instruction.
//!
//! With a [`Profiler`] in [`SmOptions::profile`](crate::sm::SmOptions::profile) the model counts for each instruction:
//! executions, active and predicated-off threads, divergent branches, sectors moved by accesses to global and local
//! memory, and passes of accesses to shared memory. The counts do not depend on the host, on time, or on the number of
//! host threads: equal runs have equal profiles. Nothing is estimated. Times are not modelled: [`Bound`] computes
//! how long a board takes at least.
//!
//! | module | contains |
//! |---|---|
//! | `tally` | the counts of a host thread |
//! | `access` | the costs of one request of a warp |
//! | `occupancy` | blocks per SM |
//! | `class` | the mix |
//! | `launch` | a running grid, and the launches of a kernel together |
//! | `report` | the profile of a kernel, its sums and its source lines |
//! | `port`, `bound` | units of an SM, and a lower bound of the time on a board |
//! | `compare` | changes since an earlier run |
//! | `text`, `html`, `advice` | reports for people |
//! | `environment` | programs that open their own software Orin |
//!
//! On a profiled GPU, an instruction is decoded into one that counts and then executes it. Without a profiler the
//! only overhead is one comparison for each instruction that no thread executes.

mod access;
mod advice;
mod align;
mod bound;
mod class;
mod compare;
mod environment;
mod html;
mod launch;
mod occupancy;
mod port;
mod report;
mod tally;
mod text;

use std::collections::BTreeSet;
use std::sync::Arc;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

pub use access::{Passes, Traffic};
pub use bound::{Bound, Limit};
pub use compare::{Change, Comparison, KernelChange, LineChange, compare};
pub use environment::{KERNELS_VARIABLE, LAUNCHES_VARIABLE, PROFILE_VARIABLE};
pub use html::html;
pub use occupancy::Occupancy;
pub use port::{Cost, Port};
pub use report::{
    InstructionProfile, KernelProfile, LineProfile, Totals, json, merge, parse, parse_unprofiled,
};
pub use tally::Counts;
pub use text::text;

use crate::check::{BadCubin, Checker, Known, is_like};
use crate::mmu::View;
use crate::sm::Launch;
pub(crate) use class::is_branch;
pub(crate) use environment::close;
use launch::Entry;
pub(crate) use launch::GridProfile;
pub(crate) use tally::Tally;

/// Which launches are profiled.
///
/// ```
/// use orin_sim::kernel_profile::Selection;
///
/// // The launches 10 to 12 of kernels whose names begin with gemm.
/// let some = Selection { kernels: vec!["gemm*".to_owned()], skip: 10, count: Some(3) };
/// assert_ne!(some, Selection::default());
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selection {
    /// Names, in which `*` stands for any characters; all kernels if empty.
    pub kernels: Vec<String>,
    /// Number of launches of these kernels to skip first.
    pub skip: u64,
    /// Number of launches to profile after that; all if `None`.
    pub count: Option<u64>,
}

impl Selection {
    /// Whether a kernel of this name is selected.
    pub fn names(&self, kernel: &str) -> bool {
        self.kernels.is_empty() || self.kernels.iter().any(|pattern| is_like(kernel, pattern))
    }
}

/// Collects the profiles of the kernels that a software Orin runs; clones are handles to the same profiler.
#[derive(Clone, Debug)]
pub struct Profiler(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    selection: Selection,
    state: Mutex<State>,
    known: Known,
}

#[derive(Debug, Default)]
struct State {
    /// Launches of selected kernels so far.
    launches: u64,
    /// Names of kernels that ran and are not selected.
    others: BTreeSet<String>,
    entries: Vec<Entry>,
}

/// What a profiler has seen and not profiled.
///
/// ```
/// use orin_sim::kernel_profile::{Profiler, Selection, Unprofiled};
///
/// assert_eq!(Profiler::new(Selection::default()).unprofiled(), Unprofiled::default());
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unprofiled {
    /// Launches of selected kernels, also those that were skipped.
    pub launches: u64,
    /// Names of kernels that ran and are not selected, sorted; at most 100.
    pub others: BTreeSet<String>,
}

/// Most names of kernels that are not selected.
const MOST_OTHERS: usize = 100;

impl Profiler {
    /// A profiler without profiles.
    pub fn new(selection: Selection) -> Self {
        Self(Arc::new(Inner { selection, state: Mutex::default(), known: Known::default() }))
    }

    /// Adds a cubin with the code of kernels, for programs that do not register what they load because they have
    /// driver code of their own. The model recognises its kernels by their code, with names and source lines.
    ///
    /// # Errors
    ///
    /// [`BadCubin`] if the file cannot be parsed, or is for another GPU.
    pub fn add_cubin(&self, file: &[u8]) -> Result<(), BadCubin> {
        self.0.known.add(file)
    }

    /// Sets how cubins are searched for, once: `search` returns files, and the model ignores those that are not cubins
    /// for the Orin. It is called at the first launch of each kernel that is not known.
    pub fn search_cubins_by(&self, search: impl Fn() -> Vec<Vec<u8>> + Send + Sync + 'static) {
        self.0.known.search_by(Box::new(search));
    }

    /// The profiles so far, one for each kernel and launch shape, in the order of their first launches. Running
    /// launches are not included.
    pub fn profiles(&self) -> Vec<KernelProfile> {
        self.0.state.lock().entries.iter().map(Entry::profile).collect()
    }

    /// What ran and was not profiled, to explain an empty profile.
    pub fn unprofiled(&self) -> Unprofiled {
        let state = self.0.state.lock();
        Unprofiled { launches: state.launches, others: state.others.clone() }
    }

    /// Starts profiling a launch; `None` if it is not selected.
    pub(crate) fn begin(
        &self,
        launch: &Launch,
        view: &View,
        checker: Option<&Checker>,
    ) -> Option<GridProfile> {
        let mut state = self.0.state.lock();
        let grid = GridProfile::new(self.clone(), launch, view, checker, &self.0.known);
        let Selection { skip, count, .. } = self.0.selection;
        if !self.0.selection.names(grid.kernel()) {
            if state.others.len() < MOST_OTHERS {
                state.others.insert(grid.kernel().to_owned());
            }
            return None;
        }
        let number = state.launches;
        state.launches += 1;
        (number >= skip && count.is_none_or(|count| number - skip < count)).then_some(grid)
    }
}
