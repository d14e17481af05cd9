//! Counters of ncu, and the counts of the software Orin that they are compared with.

use std::collections::BTreeMap;
use std::path::Path;

use orin_sim::Config;
use orin_sim::kernel_profile::{KernelProfile, Profiler, Selection, Totals};
use orin_sim::sm::SmOptions;
use serde::{Deserialize, Serialize};

use super::sanitizer::Machine;
use super::{hopper, profiled};
use crate::run::RunError;
use crate::silicon::{Error, json_error, read};
use crate::{Case, cubins, on_the_model_with, run};

/// Name of the file of [`Stored`] in the folder of the results.
pub const FILE: &str = "profile.json";
/// Name of the file of [`Instructions`] in the folder of the results, and in the output of `vendor.py`.
pub const INSTRUCTIONS_FILE: &str = "instructions.json";
/// What ncu counts of an instruction, in the order of `vendor.py`.
const COLUMNS: [&str; 7] = [
    "executions",
    "threads",
    "threads with a true guard",
    "divergent branches",
    "sectors",
    "passes",
    "ideal passes",
];

/// ncu's counts of each instruction, by kernel. The first instruction is at offset 0.
pub type Instructions = BTreeMap<String, Vec<[u64; COLUMNS.len()]>>;

/// ncu's counters.
#[derive(Debug, Serialize, Deserialize)]
pub struct Stored {
    /// Machine that produced them.
    pub machine: Machine,
    /// By kernel and metric.
    pub kernels: BTreeMap<String, BTreeMap<String, u64>>,
}

impl Stored {
    /// Reads the output of `vendor.py`.
    ///
    /// # Errors
    ///
    /// If a file is missing or damaged, or a kernel was not profiled.
    pub fn import(folder: &Path) -> Result<Self, Error> {
        let (path, counters) = (folder.join("machine.json"), folder.join(FILE));
        let machine = serde_json::from_slice(&read(&path)?).map_err(json_error(&path))?;
        let mut kernels: BTreeMap<String, BTreeMap<String, u64>> =
            serde_json::from_slice(&read(&counters)?).map_err(json_error(&counters))?;
        if let Some(missing) = profiled().find(|case| !kernels.contains_key(case.kernel)) {
            let what = format!("ncu has not profiled {}", missing.kernel);
            return Err(Error::Content { path: counters, what });
        }
        for metrics in kernels.values_mut() {
            metrics.retain(|name, _| is_kept(name));
        }
        Ok(Self { machine, kernels })
    }
}

/// Whether a metric counts instructions or accesses. ncu reports hundreds that do not.
fn is_kept(metric: &str) -> bool {
    let counter = metric.starts_with("smsp__") || metric.starts_with("l1tex__");
    counter && metric.ends_with(".sum") && !metric.contains("cycles")
        || metric.starts_with("memory_l")
        || metric == "sass__thread_inst_executed_true_per_opcode"
}

/// A count, and the metrics of ncu whose sum it should be.
#[derive(Clone, Copy, Debug)]
pub struct Measure {
    /// Name in the list of differences.
    pub name: &'static str,
    /// Names of the metrics.
    pub metrics: &'static [&'static str],
    /// The count.
    pub ours: fn(&Totals) -> u64,
}

/// Counts of accesses: they are equal for all machine code with the same accesses.
pub const ACCESSES: [Measure; 17] = [
    Measure {
        name: "requests of global loads",
        metrics: &["l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum"],
        ours: |totals| totals.loads.global.requests + totals.copies.global.requests,
    },
    Measure {
        name: "sectors of global loads",
        metrics: &["l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum"],
        ours: |totals| totals.loads.global.sectors + totals.copies.global.sectors,
    },
    Measure {
        name: "requests of global stores",
        metrics: &["l1tex__t_requests_pipe_lsu_mem_global_op_st.sum"],
        ours: |totals| totals.stores.global.requests,
    },
    Measure {
        name: "sectors of global stores",
        metrics: &["l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum"],
        ours: |totals| totals.stores.global.sectors,
    },
    Measure {
        name: "requests of local loads",
        metrics: &["l1tex__t_requests_pipe_lsu_mem_local_op_ld.sum"],
        ours: |totals| totals.loads.local.requests,
    },
    Measure {
        name: "sectors of local loads",
        metrics: &["l1tex__t_sectors_pipe_lsu_mem_local_op_ld.sum"],
        ours: |totals| totals.loads.local.sectors,
    },
    Measure {
        name: "requests of local stores",
        metrics: &["l1tex__t_requests_pipe_lsu_mem_local_op_st.sum"],
        ours: |totals| totals.stores.local.requests,
    },
    Measure {
        name: "sectors of local stores",
        metrics: &["l1tex__t_sectors_pipe_lsu_mem_local_op_st.sum"],
        ours: |totals| totals.stores.local.sectors,
    },
    Measure {
        name: "requests of global atomics",
        metrics: &[
            "l1tex__t_requests_pipe_lsu_mem_global_op_atom.sum",
            "l1tex__t_requests_pipe_lsu_mem_global_op_red.sum",
        ],
        ours: |totals| totals.atomics.global.requests,
    },
    Measure {
        name: "sectors of global atomics",
        metrics: &[
            "l1tex__t_sectors_pipe_lsu_mem_global_op_atom.sum",
            "l1tex__t_sectors_pipe_lsu_mem_global_op_red.sum",
        ],
        ours: |totals| totals.atomics.global.sectors,
    },
    Measure {
        name: "sectors of global memory",
        metrics: &["memory_l2_theoretical_sectors_global"],
        ours: |totals| totals.all.global.sectors,
    },
    Measure {
        name: "ideal sectors of global memory",
        metrics: &["memory_l2_theoretical_sectors_global_ideal"],
        ours: |totals| totals.all.global.ideal_sectors,
    },
    Measure {
        name: "passes of shared loads",
        metrics: &["l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum"],
        ours: |totals| totals.loads.shared.passes,
    },
    Measure {
        name: "passes of shared stores",
        metrics: &["l1tex__data_pipe_lsu_wavefronts_mem_shared_op_st.sum"],
        ours: |totals| totals.stores.shared.passes,
    },
    Measure {
        name: "passes of shared memory",
        metrics: &["memory_l1_wavefronts_shared"],
        ours: |totals| totals.all.shared.passes,
    },
    Measure {
        name: "ideal passes of shared memory",
        metrics: &["memory_l1_wavefronts_shared_ideal"],
        ours: |totals| totals.all.shared.ideal_passes,
    },
    Measure {
        name: "bank conflicts",
        metrics: &["l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum"],
        ours: |totals| totals.all.shared.conflicts(),
    },
];

/// Counts of instructions: they are comparable for equal machine code only.
pub const INSTRUCTIONS: [Measure; 5] = [
    Measure {
        name: "instructions",
        metrics: &["smsp__inst_executed.sum"],
        ours: |totals| totals.all.executed,
    },
    Measure {
        name: "threads",
        metrics: &["smsp__thread_inst_executed.sum"],
        ours: |totals| totals.all.threads,
    },
    Measure {
        name: "threads with a true guard",
        metrics: &["sass__thread_inst_executed_true_per_opcode"],
        ours: |totals| totals.all.active,
    },
    Measure { name: "branches", metrics: &["smsp__sass_branch_targets.sum"], ours: |totals| totals.branches },
    Measure {
        name: "divergent branches",
        metrics: &["smsp__sass_branch_targets_threads_divergent.sum"],
        ours: |totals| totals.all.divergent,
    },
];

/// The profile of a case on the software Orin: of the code for sm_90, which ncu profiles, if `hopper`; otherwise of
/// that for sm_87.
///
/// # Errors
///
/// If the case does not run, or its results are wrong.
pub fn of(case: &'static Case, hopper: bool) -> Result<KernelProfile, RunError> {
    let profiler = Profiler::new(Selection::default());
    let sm = SmOptions { profile: Some(profiler.clone()), ..SmOptions::default() };
    let cubin = |file| {
        let built_in = |sm| cubins::built_in(file, sm).expect("a file of the corpus");
        if hopper { hopper::for_the_model(built_in(90)).into() } else { built_in(87).into() }
    };
    for (case, outputs) in on_the_model_with(Config { sm, ..Config::default() }, [case], cubin)? {
        run::judge(case, &outputs, case.expected(), "the CPU")?;
    }
    // PANIC: the profiler has seen the launch.
    Ok(profiler.profiles().swap_remove(0))
}

/// The measures that differ from ncu's counters, with both numbers; a metric that ncu does not have counts nothing.
pub fn differences<'a>(
    totals: &Totals,
    ncu: &BTreeMap<String, u64>,
    measures: impl IntoIterator<Item = &'a Measure>,
) -> Vec<String> {
    let one = |measure: &Measure| {
        let theirs: u64 = measure.metrics.iter().filter_map(|metric| ncu.get(*metric)).sum();
        let ours = (measure.ours)(totals);
        (ours != theirs).then(|| format!("{}: {ours}, ncu {theirs}", measure.name))
    };
    measures.into_iter().filter_map(one).collect()
}

/// Reads ncu's counts of instructions from the output of `vendor.py`, as text with one kernel per line. Instructions at
/// the end that were not executed are left out.
///
/// # Errors
///
/// If the file is missing or damaged.
pub fn import_instructions(folder: &Path) -> Result<String, Error> {
    let path = folder.join(INSTRUCTIONS_FILE);
    let all: Instructions = serde_json::from_slice(&read(&path)?).map_err(json_error(&path))?;
    let kernel = |(name, mut rows): (String, Vec<[u64; COLUMNS.len()]>)| {
        rows.truncate(rows.iter().rposition(|row| row[0] != 0).map_or(0, |last| last + 1));
        Ok(format!("\"{name}\": {}", serde_json::to_string(&rows).map_err(json_error(&path))?))
    };
    let lines: Result<Vec<_>, Error> = all.into_iter().map(kernel).collect();
    Ok(format!("{{\n{}\n}}\n", lines?.join(",\n")))
}

/// The offsets at which the counts of a kernel's instructions differ from ncu's, by count. Functions that the kernel
/// calls are not compared.
pub fn instruction_differences(profile: &KernelProfile, ncu: &[[u64; COLUMNS.len()]]) -> Vec<String> {
    let mut all = BTreeMap::<usize, Vec<String>>::new();
    for instruction in
        profile.instructions.iter().filter(|instruction| instruction.at.kernel == profile.kernel)
    {
        let counts = &instruction.counts;
        let ours = [
            counts.executed,
            counts.threads,
            counts.active,
            counts.divergent,
            counts.global.sectors,
            counts.shared.passes,
            counts.shared.ideal_passes,
        ];
        // CAST: an offset in a kernel.
        let theirs = ncu.get(instruction.at.offset as usize / 16).copied().unwrap_or_default();
        for column in (0..COLUMNS.len()).filter(|&column| ours[column] != theirs[column]) {
            all.entry(column).or_default().push(format!("{:#x}", instruction.at.offset));
        }
    }
    all.into_iter().map(|(column, places)| format!("{} at {}", COLUMNS[column], places.join(" "))).collect()
}
