//! Counts of executed instructions.
//!
//! Boards have no such counter. Use it to see what the tests of a kernel execute. Pass a [`Coverage`] in
//! [`SmOptions::coverage`](super::SmOptions::coverage), a field of [`Config::sm`](crate::Config::sm), run, and read
//! [`Coverage::counts`]:
//!
//! ```
//! use orin_sim::sm::{Coverage, SmOptions};
//!
//! let coverage = Coverage::new();
//! let config = orin_sim::Config {
//!     sm: SmOptions { coverage: Some(coverage.clone()), ..SmOptions::default() },
//!     ..orin_sim::Config::default()
//! };
//! // Boot `config`, launch kernels, wait for them; until then there is nothing to count.
//! assert!(coverage.counts().is_empty());
//! # drop(config);
//! ```
//!
//! Keys are mnemonics with modifiers as printed by the disassembler, for example `ISETP.GE.U32.AND`
//! ([`sass::mnemonic`]). A value counts executions by a warp with at least one active lane. Counts are added when a
//! grid ends.
//!
//! Names are looked up when a program is decoded. A counted instruction is replaced by one that counts and then
//! executes it, so the interpreter has no overhead without a recorder.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use parking_lot::Mutex;

/// A recorder of executed instructions; clones share their counts.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # use std::sync::Arc;
/// # use orin_sim::memory::Memory;
/// # use orin_sim::mmu::{AddressSpace, MappedRange};
/// # use orin_sim::sm::Launch;
/// # let space = AddressSpace::new();
/// # let memory = Arc::new(Memory::new("code", 0x1000)?);
/// # for (at, word) in [0x794d_u32, 0, 0x0380_0000, 0x000f_ea00].into_iter().enumerate() {
/// #     memory.store(4 * at, word);
/// # }
/// # space.map(MappedRange { va: 0x20_0000, len: 0x1000, memory, offset: 0, writable: false, cached: false });
/// # let launch = Launch {
/// #     program_va: 0x20_0000,
/// #     grid: [4, 1, 1],
/// #     block: [32, 1, 1],
/// #     registers: 16,
/// #     shared_bytes: 0,
/// #     shared_limit: 164 << 10,
/// #     local_bytes: 0,
/// #     barriers: 0,
/// #     constants: [None; 8],
/// #     shared_window: 0xfe << 32,
/// #     local_window: 0xff << 32,
/// #     sm_count: 16,
/// #     textures: Default::default(),
/// # };
/// use orin_sim::sm::{Coverage, GridRun, SmOptions, Sms};
///
/// let coverage = Coverage::new();
/// let options = SmOptions { coverage: Some(coverage.clone()), ..SmOptions::default() };
/// // A kernel of one instruction, on four warps.
/// let mut grid = GridRun::on(&Sms::new(16, options), launch, space.view())?;
/// grid.step(u64::MAX)?;
/// drop(grid);
/// assert_eq!(coverage.counts()["EXIT"], 4);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default)]
pub struct Coverage(Arc<Mutex<Record>>);

#[derive(Debug, Default)]
struct Record {
    names: Vec<String>,
    numbers: HashMap<String, u32>,
    counts: Vec<u64>,
}

impl Coverage {
    /// Creates an empty recorder.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the number of executions of each instruction executed at least once, by name.
    pub fn counts(&self) -> BTreeMap<String, u64> {
        let record = self.0.lock();
        let counts = record.names.iter().cloned().zip(record.counts.iter().copied());
        counts.filter(|(_, count)| *count != 0).collect()
    }

    /// Returns the counter index of an instruction word.
    pub(super) fn number(&self, word: u128) -> u32 {
        let name = sass::mnemonic(word).unwrap_or_else(|| format!("unnamed {:#05x}", word & 0xfff));
        let mut record = self.0.lock();
        if let Some(number) = record.numbers.get(&name) {
            return *number;
        }
        // CAST: there are a few thousand names.
        let number = record.names.len() as u32;
        record.names.push(name.clone());
        record.counts.push(0);
        record.numbers.insert(name, number);
        number
    }

    /// Adds executions, indexed by counter.
    fn add(&self, counts: &[u64]) {
        let mut record = self.0.lock();
        for (sum, count) in record.counts.iter_mut().zip(counts) {
            *sum += count;
        }
    }
}

/// Counts of one thread; added to the recorder on drop.
#[derive(Debug, Default)]
pub(super) struct Counter {
    coverage: Option<Coverage>,
    counts: Vec<u64>,
}

impl Counter {
    pub(super) fn new(coverage: Option<Coverage>) -> Self {
        Self { coverage, counts: Vec::new() }
    }

    /// Counts one execution.
    pub(super) fn count(&mut self, number: u32) {
        let number = number as usize;
        if number >= self.counts.len() {
            self.counts.resize(number + 1, 0);
        }
        self.counts[number] += 1;
    }
}

impl Drop for Counter {
    fn drop(&mut self) {
        if let Some(coverage) = &self.coverage {
            coverage.add(&self.counts);
        }
    }
}
