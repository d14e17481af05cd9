//! `cargo xtask import-graph`: circular imports between the modules of each crate.
//!
//! A module is a source file. It imports another one if a path in it names that module or an item in it: a
//! `use`, or a path in an expression, a type or a macro call. The path counts for the file that defines the
//! item: re-exports are followed, so they cannot hide a circle. Imports from a module's own descendants do
//! not count: a parent consists of its children, while a child that needs its parent or a sibling imports it.
//! Items under `#[cfg(test)]` are ignored.

mod circles;
mod modules;
mod paths;
#[cfg(test)]
mod tests;

use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Args;
use orin_cli::{say, warn};
use serde_json::{Value, json};

use crate::workspace::{self, Target};
pub(crate) use modules::Modules;

/// Number of files in the largest accepted circle. A reader can still keep six mutually dependent files in
/// mind. In a larger circle, reading one means reading all, and none can move to another crate.
const LIMIT: usize = 6;

/// Options of the command.
#[derive(Args)]
pub(crate) struct Options {
    /// Print one JSON array instead of a table
    #[arg(long)]
    json: bool,
    /// Also print every import of every crate, one per line
    #[arg(long, conflicts_with = "json")]
    edges: bool,
}

/// Result for one crate.
struct Report {
    /// Package and target.
    name: String,
    /// Number of source files.
    modules: usize,
    /// Files of the largest circle, sorted by path; one file if there is no circle.
    circle: Vec<PathBuf>,
    /// The imports, as pairs of files.
    edges: Vec<(PathBuf, PathBuf)>,
}

/// Reads all crates of the workspace and prints their circles; exit code 1 if one is too large.
pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let root = workspace::root()?;
    let mut reports = Vec::new();
    for target in workspace::targets(&root)? {
        reports.push(report(&root, &target)?);
    }
    if options.json {
        say!("{}", serde_json::to_string_pretty(&reports.iter().map(to_json).collect::<Vec<_>>())?)?;
    } else {
        print(&reports, options.edges)?;
    }
    let failed: Vec<&Report> = reports.iter().filter(|report| report.circle.len() > LIMIT).collect();
    for report in &failed {
        warn(format_args!(
            "error: {}: {} modules import each other in a circle; at most {LIMIT} are accepted. Move what several of \
             them need into a module that imports none of them",
            report.name,
            report.circle.len(),
        ));
    }
    Ok(if failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Reads one crate.
fn report(root: &Path, target: &Target) -> Result<Report> {
    let name = target.to_string();
    let modules = Modules::read(&target.source).with_context(|| name.clone())?;
    let relative = |path: &Path| path.strip_prefix(root).unwrap_or(path).to_owned();
    let graph = modules.imports();
    let circle = circles::largest(&graph).into_iter().map(|file| relative(&modules.files()[file])).collect();
    let edges =
        graph.iter().enumerate().flat_map(|(from, imports)| imports.iter().map(move |to| (from, *to)));
    let edges =
        edges.map(|(from, to)| (relative(&modules.files()[from]), relative(&modules.files()[to]))).collect();
    Ok(Report { name, modules: graph.len(), circle, edges })
}

/// One object per crate.
fn to_json(report: &Report) -> Value {
    json!({ "crate": report.name, "modules": report.modules, "largest_circle": report.circle })
}

/// Prints a line per crate with more than one module, and the files of its largest circle.
fn print(reports: &[Report], with_edges: bool) -> io::Result<()> {
    let reports = || reports.iter().filter(|report| report.modules > 1);
    let width = reports().map(|report| report.name.len()).max().unwrap_or(0);
    say!("{:width$}  modules  largest circle", "crate")?;
    for report in reports() {
        say!("{:width$}  {:7}  {:14}", report.name, report.modules, report.circle.len())?;
        if report.circle.len() > 1 {
            for file in &report.circle {
                say!("{:width$}    {}", "", file.display())?;
            }
        }
        if with_edges {
            for (from, to) in &report.edges {
                say!("    {} -> {}", from.display(), to.display())?;
            }
        }
    }
    Ok(())
}
