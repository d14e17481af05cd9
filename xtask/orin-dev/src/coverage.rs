//! `coverage`: the instructions that the corpus executes on the software Orin, and required ones that it does
//! not.

use std::io;
use std::process::ExitCode;

use anyhow::Result;
use orin_cli::{Progress, say};
use serde::Serialize;
use test_corpus::cases;
use test_corpus::coverage::{Executed, Need, Wanted, execute, wanted};

/// Maximum number of kernel names per line of text.
const SHOWN: usize = 3;

/// Options of the command.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Print one JSON object instead of a table
    #[arg(long)]
    json: bool,
    /// List every instruction that was executed, with its modifiers
    #[arg(long)]
    all: bool,
}

/// A line of the report: a listed or an executed instruction.
#[derive(Serialize)]
struct Line {
    need: &'static str,
    name: String,
    executions: u64,
    executed_by: Vec<&'static str>,
}

/// The report for `--json`.
#[derive(Serialize)]
struct Answer {
    wanted: Vec<Line>,
    executed: Vec<Line>,
    untested_must: Vec<String>,
}

/// Runs the corpus and prints the table; exit code 1 if a required instruction was not executed.
///
/// # Errors
///
/// Returns an error if a case does not run.
pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let progress = Progress::new("executing the corpus");
    let executed = execute(cases())?;
    drop(progress);
    let lines: Vec<Line> = wanted().iter().flat_map(|wanted| lines(wanted, &executed)).collect();
    let untested = |line: &&Line| line.need == Need::Must.name() && line.executed_by.is_empty();
    let untested_must: Vec<String> = lines.iter().filter(untested).map(|line| line.name.clone()).collect();
    let failed = !untested_must.is_empty();
    if options.json {
        let answer = Answer { wanted: lines, executed: every(&executed), untested_must };
        say!("{}", serde_json::to_string_pretty(&answer)?)?;
    } else {
        print(if options.all { every(&executed) } else { lines })?;
        say!("{} instructions with modifiers were executed", executed.counts.len())?;
        if failed {
            say!("untested: {}", untested_must.join(", "))?;
        }
    }
    Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// The lines of an instruction and its forms. Only the instruction itself is required. Forms that no compiler
/// of the corpus emits are reported only.
fn lines(wanted: &Wanted, executed: &Executed) -> Vec<Line> {
    if wanted.need == Need::Named {
        return Vec::new();
    }
    let forms = wanted.forms.iter().map(|form| line("form", form, executed));
    std::iter::once(line(wanted.need.name(), &wanted.mnemonic, executed)).chain(forms).collect()
}

fn line(need: &'static str, name: &str, executed: &Executed) -> Line {
    let bare = !name.contains('.');
    let fits = |key: &str| key == name || bare && key.split('.').next() == Some(name);
    let executions = executed.counts.iter().filter(|(key, _)| fits(key)).map(|(_, count)| count).sum();
    Line { need, name: name.to_owned(), executions, executed_by: executed.users(name).into_iter().collect() }
}

/// Lines of all executed instructions.
fn every(executed: &Executed) -> Vec<Line> {
    let line = |(name, count): (&String, &u64)| Line {
        need: "",
        name: name.clone(),
        executions: *count,
        executed_by: executed.by.get(name).into_iter().flatten().copied().collect(),
    };
    executed.counts.iter().map(line).collect()
}

fn print(lines: Vec<Line>) -> io::Result<()> {
    for line in lines {
        let by = match line.executed_by.as_slice() {
            [] => "UNTESTED".to_owned(),
            few if few.len() <= SHOWN => format!("executed by: {}", few.join(", ")),
            many => {
                format!("executed by: {} and {} more", many[..SHOWN].join(", "), many.len() - SHOWN)
            }
        };
        say!("{:6} {:40} {:>10}  {by}", line.need, line.name, line.executions)?;
    }
    Ok(())
}
