//! The profile of a kernel, its sums and its source lines.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{Bound, Cost, Counts, Occupancy, Unprofiled};
use crate::board::Profile;
use crate::check::Located;

/// Counts of one instruction.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InstructionProfile {
    /// The instruction and its source. `kernel` is the function that contains it.
    #[serde(flatten)]
    pub at: Located,
    /// Its class in the mix.
    pub class: String,
    /// `load`, `store`, `atomic`, or `copy` (from global to shared memory); `None` for other instructions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub access: Option<String>,
    /// Whether it is a branch, call or return, whose threads may diverge.
    #[serde(default, skip_serializing_if = "core::ops::Not::not")]
    pub branch: bool,
    /// What an execution occupies, besides an issue slot.
    #[serde(flatten)]
    pub cost: Cost,
    /// The counts; all 0 if it was not executed.
    #[serde(flatten)]
    pub counts: Counts,
}

/// The launches of a kernel with one shape.
///
/// ```
/// # let profiles: Vec<orin_sim::kernel_profile::KernelProfile> = Vec::new();
/// use orin_sim::kernel_profile::KernelProfile;
///
/// fn is_coalesced(profile: &KernelProfile) -> bool {
///     profile.totals().all.global.excess_sectors() == 0
/// }
/// # assert!(profiles.iter().all(is_coalesced));
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KernelProfile {
    /// Name, or the address of its code if no loaded program contains it.
    pub kernel: String,
    /// Blocks of a launch in x, y, z.
    pub grid: [u32; 3],
    /// Threads of a block in x, y, z.
    pub block: [u32; 3],
    /// Registers of a thread.
    pub registers: u32,
    /// Shared memory of a block in bytes, as in the launch descriptor: including the reserved part, rounded up.
    pub shared_bytes: u32,
    /// Local memory of a thread in bytes, as in the launch descriptor.
    pub local_bytes: u32,
    /// Launches; all counts are their sums.
    pub launches: u64,
    /// Launches that ended with a fault, or were stopped.
    pub incomplete: u64,
    /// Blocks per SM.
    pub occupancy: Occupancy,
    /// Size of the distinct sectors of global memory that a launch read, in bytes, summed over the launches.
    pub read_bytes: u64,
    /// Size of the distinct sectors of global memory that a launch wrote, in bytes, summed over the launches.
    pub written_bytes: u64,
    /// The instructions, by function and offset.
    pub instructions: Vec<InstructionProfile>,
    /// Texts of source lines with instructions, by file and line, if they were recorded.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub source: BTreeMap<String, BTreeMap<u32, String>>,
}

/// Sums over the instructions of a kernel.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Totals {
    /// All instructions.
    pub all: Counts,
    /// Loads.
    pub loads: Counts,
    /// Stores.
    pub stores: Counts,
    /// Atomics.
    pub atomics: Counts,
    /// Copies from global to shared memory.
    pub copies: Counts,
    /// Executions of branches.
    pub branches: u64,
    /// Executions by class, without those that were not executed.
    pub mix: BTreeMap<String, u64>,
}

impl Totals {
    /// Mean number of threads of an execution.
    pub fn threads_per_warp(&self) -> f64 {
        super::access::ratio(self.all.threads, self.all.executed)
    }

    /// Mean number of threads of an execution whose guard was true.
    pub fn active_per_warp(&self) -> f64 {
        super::access::ratio(self.all.active, self.all.executed)
    }

    /// The classes and their executions, most frequent first.
    pub fn ranked_mix(&self) -> Vec<(&'static str, u64)> {
        let count = |class: &&'static str| self.mix.get(*class).map(|count| (*class, *count));
        let mut ranked: Vec<_> = sass::Op::CLASSES.iter().filter_map(count).collect();
        ranked.sort_by_key(|(_, count)| core::cmp::Reverse(*count));
        ranked
    }
}

/// Counts of the instructions of one source line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LineProfile {
    /// Source file.
    pub file: String,
    /// Line; that of the innermost inlined function.
    pub line: u32,
    /// Sums over its instructions.
    #[serde(flatten)]
    pub counts: Counts,
}

impl KernelProfile {
    /// Sums over the instructions.
    pub fn totals(&self) -> Totals {
        let mut totals = Totals::default();
        for instruction in &self.instructions {
            let counts = &instruction.counts;
            totals.all.add(counts);
            match instruction.access.as_deref() {
                Some("load") => totals.loads.add(counts),
                Some("store") => totals.stores.add(counts),
                Some("atomic") => totals.atomics.add(counts),
                Some("copy") => totals.copies.add(counts),
                _ => {}
            }
            if counts.executed != 0 {
                *totals.mix.entry(instruction.class.clone()).or_default() += counts.executed;
                totals.branches += if instruction.branch { counts.executed } else { 0 };
            }
        }
        totals
    }

    /// Sums over the instructions of each source line, by file and line. Empty without line information.
    pub fn lines(&self) -> Vec<LineProfile> {
        let mut lines: BTreeMap<(&str, u32), Counts> = BTreeMap::new();
        for InstructionProfile { at, counts, .. } in &self.instructions {
            if let (Some(file), Some(line)) = (&at.file, at.line) {
                lines.entry((file, line)).or_default().add(counts);
            }
        }
        let line = |((file, line), counts): ((&str, u32), Counts)| LineProfile {
            file: file.to_owned(),
            line,
            counts,
        };
        lines.into_iter().map(line).collect()
    }

    /// Records the texts of the source lines, so that a later run can be compared with this one after the files have
    /// changed. `read` returns the contents of a file.
    pub fn record_source(&mut self, read: impl Fn(&str) -> Option<String>) {
        let mut wanted: BTreeMap<String, Vec<u32>> = BTreeMap::new();
        for line in self.lines() {
            wanted.entry(line.file).or_default().push(line.line);
        }
        for (file, lines) in wanted {
            let Some(text) = read(&file) else { continue };
            let all: Vec<&str> = text.lines().collect();
            // CAST: the number of a line.
            let text_of = |line: u32| Some((line, (*all.get((line as usize).wrapping_sub(1))?).to_owned()));
            self.source.insert(file, lines.into_iter().filter_map(text_of).collect());
        }
    }

    /// Blocks of a launch.
    pub fn blocks(&self) -> u64 {
        self.grid.iter().map(|&extent| u64::from(extent)).product()
    }

    /// Whether the counts of `other` can be added.
    fn is_like(&self, other: &Self) -> bool {
        let shape = |profile: &Self| {
            let Self { grid, block, registers, shared_bytes, local_bytes, .. } = *profile;
            (grid, block, registers, shared_bytes, local_bytes)
        };
        let places = |profile: &Self| -> Vec<Located> {
            profile.instructions.iter().map(|instruction| instruction.at.clone()).collect()
        };
        self.kernel == other.kernel && shape(self) == shape(other) && places(self) == places(other)
    }
}

/// Adds the profiles of equal kernels and shapes, such as those of several processes.
///
/// ```
/// assert!(orin_sim::kernel_profile::merge(Vec::new()).is_empty());
/// ```
pub fn merge(profiles: Vec<KernelProfile>) -> Vec<KernelProfile> {
    let mut merged: Vec<KernelProfile> = Vec::new();
    for profile in profiles {
        let Some(known) = merged.iter_mut().find(|known| known.is_like(&profile)) else {
            merged.push(profile);
            continue;
        };
        known.launches += profile.launches;
        known.incomplete += profile.incomplete;
        known.read_bytes += profile.read_bytes;
        known.written_bytes += profile.written_bytes;
        for (sum, instruction) in known.instructions.iter_mut().zip(&profile.instructions) {
            sum.counts.add(&instruction.counts);
        }
    }
    merged
}

/// The profiles as a JSON object with the field `profiles`: each with its `totals` and `lines`, and with the `bound` of
/// a board.
///
/// ```
/// assert_eq!(orin_sim::kernel_profile::json(&[], None)["profiles"].as_array().map(Vec::len), Some(0));
/// ```
pub fn json(profiles: &[KernelProfile], board: Option<Profile>) -> Value {
    let one = |profile: &KernelProfile| {
        let mut value = json!(profile);
        value["totals"] = json!(profile.totals());
        value["lines"] = json!(profile.lines());
        if let Some(board) = board {
            value["bound"] = json!(Bound::of(profile, board));
        }
        value
    };
    json!({ "version": 1, "profiles": profiles.iter().map(one).collect::<Vec<_>>() })
}

/// Parses the output of [`json()`], or profiles one per line, as programs append them to the file of
/// [`PROFILE_VARIABLE`](super::PROFILE_VARIABLE).
///
/// # Errors
///
/// If the text is neither.
///
/// ```
/// use orin_sim::kernel_profile::{json, parse};
///
/// assert!(parse(&json(&[], None).to_string()).unwrap().is_empty());
/// assert!(parse("{}").is_err());
/// ```
pub fn parse(text: &str) -> Result<Vec<KernelProfile>, serde_json::Error> {
    #[derive(Deserialize)]
    struct Whole {
        profiles: Vec<KernelProfile>,
    }
    let is_profile =
        |line: &&str| !line.trim().is_empty() && serde_json::from_str::<Unprofiled>(line).is_err();
    let lines = || text.lines().filter(is_profile);
    match serde_json::from_str::<Whole>(text) {
        Ok(whole) => Ok(whole.profiles),
        Err(error) => {
            let parsed: Result<Vec<_>, _> = lines().map(serde_json::from_str).collect();
            // The first error is more specific if the text is one object.
            parsed.map_err(|other| if lines().count() > 1 { other } else { error })
        }
    }
}

/// Reads what the processes of a file of `ORIN_SIM_PROFILE` have seen and not profiled.
pub fn parse_unprofiled(text: &str) -> Unprofiled {
    let all = text.lines().filter_map(|line| serde_json::from_str::<Unprofiled>(line).ok());
    all.fold(Unprofiled::default(), |mut sum, other| {
        sum.launches += other.launches;
        sum.others.extend(other.others);
        sum
    })
}
