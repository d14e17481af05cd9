//! Results of compute-sanitizer: its output, and the committed data.

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::planted::{self, Planted};
use crate::silicon::{Error, json_error, read};

/// Name of the file in the folder of the results.
pub const FILE: &str = "sanitizer.json";
/// What a line of output begins with.
const MARK: &str = "=========";
/// Line that `vendor.py` puts in place of the middle of a long output.
const CUT: &str = "...";
/// Beginnings of lines that report no error of a kernel.
const REMARKS: [&str; 7] = [
    "COMPUTE-SANITIZER",
    "ERROR SUMMARY",
    "RACECHECK SUMMARY",
    "LEAK SUMMARY",
    "Target application",
    "Error: ",
    "No ",
];

/// The machine and the releases of the tools.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// Name of the GPU, as reported by its driver.
    pub device: String,
    /// CUDA version of the driver.
    pub driver: String,
    /// Version of compute-sanitizer.
    #[serde(rename = "compute-sanitizer")]
    pub sanitizer: String,
    /// Version of ncu.
    pub ncu: String,
}

/// What a tool reports at a source line, once or for many threads.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Report {
    /// The text without addresses and functions.
    pub what: String,
    /// Line of the access; both for a race.
    pub lines: Vec<u32>,
}

/// A run of a kernel under a tool.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Run {
    /// Whether it was killed, because it did not end.
    #[serde(default, skip_serializing_if = "core::ops::Not::not")]
    pub killed: bool,
    /// Error of the launch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed: Option<String>,
    /// The reports.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reports: Vec<Report>,
}

/// All runs.
#[derive(Debug, Serialize, Deserialize)]
pub struct Stored {
    /// Machine that produced them.
    pub machine: Machine,
    /// By kernel and tool. `memcheck-padded` is memcheck with unused memory behind each buffer.
    pub runs: BTreeMap<String, BTreeMap<String, Run>>,
}

/// Output of `vendor.py`: a line of `runs.jsonl`.
#[derive(Debug, Deserialize)]
struct RunOutput {
    kernel: String,
    tool: String,
    exit: Option<i32>,
    output: String,
}

/// The lines that the words ` in FILE.cu:LINE` name.
fn line(text: &str) -> Option<u32> {
    let (_, rest) = text.rsplit_once(".cu:")?;
    rest.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}

/// The reports in the output of compute-sanitizer, by text and lines.
pub fn reports(output: &str) -> Vec<Report> {
    let mut all: Vec<Report> = Vec::new();
    let mut open = false;
    for whole in output.lines() {
        if whole == CUT && open {
            // The report before the cut is not complete. Others of its kind are.
            all.pop();
        }
        let Some(text) = whole.strip_prefix(MARK).and_then(|rest| rest.strip_prefix(' ')) else {
            open = false;
            continue;
        };
        if !text.starts_with(' ') {
            let race = text.contains("Race reported");
            open = !text.is_empty() && (race || !REMARKS.iter().any(|remark| text.starts_with(remark)));
            if open {
                let what = text.split_once(" at ").map_or(text, |(what, _)| what);
                all.push(Report { what: what.to_owned(), lines: line(text).into_iter().collect() });
            }
        } else if let Some(report) = all.last_mut().filter(|_| open) {
            let text = text.trim_start();
            if let Some((what, _)) = text.strip_prefix("and ").and_then(|text| text.split_once(" access at "))
            {
                report.what += &format!(" and {what} access");
                report.lines.extend(line(text));
            } else if text.starts_with("at ") && report.lines.is_empty() {
                report.lines.extend(line(text));
            }
        }
    }
    all.sort();
    all.dedup();
    all
}

impl Stored {
    /// Reads the output of `vendor.py`.
    ///
    /// # Errors
    ///
    /// If a file is missing or damaged, belongs to other kernels, or a kernel was not launched.
    pub fn import(folder: &Path) -> Result<Self, Error> {
        let machine_path = folder.join("machine.json");
        let machine = serde_json::from_slice(&read(&machine_path)?).map_err(json_error(&machine_path))?;
        let mut stored = Self { machine, runs: BTreeMap::new() };
        let path = folder.join("runs.jsonl");
        let text = String::from_utf8_lossy(&read(&path)?).into_owned();
        let kernels = planted::all();
        for entry in text.lines() {
            let run: RunOutput = serde_json::from_str(entry).map_err(json_error(&path))?;
            let launched = run.output.contains("launch: ") || run.exit.is_none();
            if !launched || !kernels.iter().any(|planted| planted.kernel == run.kernel) {
                let what = format!("{} did not run under {}: {}", run.kernel, run.tool, run.output);
                return Err(Error::Content { path, what });
            }
            let errors = run.output.lines().filter_map(|line| line.strip_prefix("launch: "));
            let failed = errors.filter(|error| *error != "done").map(str::to_owned).next();
            let result = Run { killed: run.exit.is_none(), failed, reports: reports(&run.output) };
            stored.runs.entry(run.kernel).or_default().insert(run.tool, result);
        }
        Ok(stored)
    }
}

/// How the runs of a kernel under the tools of [`Stored::runs`] differ from the findings of the software Orin, which
/// name the source lines `ours`.
///
/// - The tool of a planted error reports nothing, or does not end.
/// - A tool reports something at another line. Also if there are none: in a repaired kernel.
pub fn differences(planted: &Planted, ours: &[u32], runs: &BTreeMap<String, Run>) -> Vec<String> {
    let mut all = Vec::new();
    for (tool, run) in runs {
        let mut add = |what: &str| all.push(format!("{} {tool}: {what}", planted.kernel));
        let own = tool.strip_suffix("-padded").unwrap_or(tool) == planted.tool;
        if run.killed {
            add("does not end");
        } else if own && planted.error.is_some() && run.reports.is_empty() {
            match &run.failed {
                Some(error) => add(&format!("no report, {error}")),
                None => add("no report"),
            }
        }
        for report in run.reports.iter().filter(|report| !report.lines.iter().any(|line| ours.contains(line)))
        {
            add(&format!("{} at {:?}", report.what, report.lines));
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(what: &str, lines: &[u32]) -> Report {
        Report { what: what.to_owned(), lines: lines.to_vec() }
    }

    #[test]
    fn reports_of_all_tools_are_read() {
        let memcheck = "\
========= COMPUTE-SANITIZER
========= Invalid __global__ write of size 4 bytes
=========     at bug_write_past_end+0x70 in mem.cu:15
=========     by thread (0,0,0) in block (4,0,0)
=========     Access to 0x7fd95d600400 is out of bounds
=========     and is 1 bytes after the nearest allocation at 0x7fd95d600000 of size 1,024 bytes
=========
========= Invalid __global__ write of size 4 bytes
=========     at bug_write_past_end+0x70 in mem.cu:15
=========     by thread (1,0,0) in block (4,0,0)
=========         Device Frame: bug_in_callee+0x80 in frames.cu:36
=========
========= Invalid __gl
...
1,0,0) in block (4,0,0)
=========     Access to 0x7fd95d600404 is out of bounds
=========
========= Target application returned an error
========= ERROR SUMMARY: 2 errors
launch: cuCtxSynchronize: unspecified launch failure
";
        assert_eq!(reports(memcheck), [report("Invalid __global__ write of size 4 bytes", &[15])]);
        let racecheck = "\
========= Error: Race reported between Write access at bug_neighbour+0x90 in race.cu:12
=========     and Read access at bug_neighbour+0xd0 in race.cu:13 [128 hazards]
=========
========= RACECHECK SUMMARY: 1 hazard displayed (1 error, 0 warnings)
";
        let what = "Error: Race reported between Write access and Read access";
        assert_eq!(reports(racecheck), [report(what, &[12, 13])]);
        let synccheck = "\
========= Barrier error detected. Divergent thread(s) in warp.
=========     at bug_both_branches+0xd0 in sync.cu:14
=========     by thread (16,0,0) in block (0,0,0)
=========
========= ERROR SUMMARY: 1 error
";
        assert_eq!(
            reports(synccheck),
            [report("Barrier error detected. Divergent thread(s) in warp.", &[14])]
        );
        assert!(
            reports("========= COMPUTE-SANITIZER\nlaunch: done\n========= ERROR SUMMARY: 0 errors\n")
                .is_empty()
        );
    }

    #[test]
    fn each_difference_is_named() {
        let all = planted::all();
        let of = |kernel: &str, ours: &[u32], tool: &str, run: Run| {
            let planted = all.iter().find(|planted| planted.kernel == kernel).unwrap();
            differences(planted, ours, &[(tool.to_owned(), run)].into())
        };
        let found = |line| Run { reports: vec![report("Invalid", &[line])], ..Run::default() };
        assert!(of("bug_write_past_end", &[15], "memcheck", found(15)).is_empty());
        assert!(of("bug_write_past_end", &[15], "racecheck", Run::default()).is_empty());
        assert!(of("fix_write_past_end", &[], "memcheck", Run::default()).is_empty());
        let missed = of("bug_write_past_end", &[15], "memcheck-padded", Run::default());
        assert_eq!(missed, ["bug_write_past_end memcheck-padded: no report"]);
        let other = of("bug_write_past_end", &[15], "memcheck", found(16));
        assert_eq!(other, ["bug_write_past_end memcheck: Invalid at [16]"]);
        let more = of("fix_write_past_end", &[], "memcheck", found(15));
        assert_eq!(more, ["fix_write_past_end memcheck: Invalid at [15]"]);
        let hung = of("bug_loop", &[1], "synccheck", Run { killed: true, ..Run::default() });
        let failed = Run { failed: Some("an error".to_owned()), ..Run::default() };
        assert_eq!(of("bug_loop", &[1], "synccheck", failed), ["bug_loop synccheck: no report, an error"]);
        assert_eq!(hung, ["bug_loop synccheck: does not end"]);
    }
}
