//! `cargo xtask check-headers`: the tables of `nvgpu-sys` against the headers of an L4T release.
//!
//! The C headers in the sources of each release (package "Driver Package (BSP) Sources") define the kernel's
//! interface. This project does not include them. The command makes the C compiler report the size of each struct,
//! the offset of each field and the code of each request, and compares them with the tables of `nvgpu-sys`.

mod locate;
mod probe;
mod release;
mod report;

use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Result;
use nvgpu_sys::headers::{self, Header};
use orin_cli::UsageError;

use probe::{Answer, Compiler, Question, View};
use report::{HeaderReport, Outcome, Report, Row};

/// Options of the command.
#[derive(clap::Args)]
#[command(after_help = "\
The folder contains the sources of an L4T release (nvgpu/ and nvidia-oot/), any part of them, or
copies of nvgpu.h, nvgpu-ctrl.h, nvgpu-as.h, nvmap.h and host1x-fence.h. No compiled program is run,
so a cross compiler works too: --cc aarch64-linux-gnu-gcc

Exit codes: 0 nothing differs; 1 a size, an offset or a number differs; 2 the headers could not be
checked. A name that the release does not have is reported as absent; that is not a failure.")]
pub(crate) struct Options {
    /// Folder with the headers of the release [default: the environment's L4T_HEADERS]
    #[arg(long, value_name = "DIR")]
    l4t: Option<PathBuf>,
    /// Fail with exit code 2 if one of the five headers is not in the folder
    #[arg(long)]
    complete: bool,
    /// C compiler and its options [default: the environment's CC, else cc]
    #[arg(long)]
    cc: Option<String>,
    /// Omit the rows that agree
    #[arg(long)]
    differences: bool,
    /// Print one JSON object instead of a table
    #[arg(long)]
    json: bool,
}

/// Compares and prints. The exit code is 1 if something differs.
pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let folder = options.l4t.clone().or_else(|| std::env::var_os("L4T_HEADERS").map(PathBuf::from));
    let folder = folder.ok_or_else(|| {
        UsageError(
            "no folder to check: name the headers of an L4T release with --l4t or L4T_HEADERS".to_owned(),
        )
    })?;
    if !folder.is_dir() {
        return Err(UsageError(format!(
            "{} is not a folder; name the folder with the headers of an L4T release",
            folder.display()
        ))
        .into());
    }
    let located = locate::headers(&folder)?;
    let command = options.cc.clone().or_else(|| std::env::var("CC").ok());
    let command = command.unwrap_or_else(|| "cc".to_owned());
    let compiler = Compiler::new(&command)?;
    let mut reports = Vec::new();
    for (header, path) in headers::ALL.iter().zip(located) {
        let outcome = match &path {
            Some(path) => compare(&compiler, header, path)?,
            None => Outcome::Compared(rows(header, |_| Answer::Absent)),
        };
        reports.push(HeaderReport { header: header.path, path, outcome });
    }
    let report = Report { compiler: command, headers: reports };
    report.print(options.json, options.differences)?;
    if report.counts().drift > 0 {
        return Ok(ExitCode::FAILURE);
    }
    let missing = report.missing();
    if options.complete && !missing.is_empty() {
        return Err(UsageError(format!(
            "{} does not contain {}; add the headers, or omit --complete",
            folder.display(),
            missing.join(", ")
        ))
        .into());
    }
    match report.unread() {
        None => Ok(ExitCode::SUCCESS),
        Some((path, reason)) => Err(UsageError(format!(
            "{} does not compile with {}: {reason}; add the headers that it includes to the folder",
            path.display(),
            report.compiler
        ))
        .into()),
    }
}

/// Queries the compiler for everything that one header should declare.
fn compare(compiler: &Compiler, header: &Header, path: &Path) -> Result<Outcome> {
    let questions: Vec<Question> =
        rows(header, |_| Answer::Absent).into_iter().map(|row| row.question).collect();
    let mut answers: HashMap<Question, Answer> = match compiler.ask(path, View::User, &questions)? {
        Ok(given) => questions.iter().copied().zip(given).collect(),
        Err(reason) => return Ok(Outcome::Unread(reason)),
    };
    let absent = |answers: &HashMap<Question, Answer>| -> Vec<Question> {
        questions.iter().filter(|question| answers[question] == Answer::Absent).copied().collect()
    };
    // A field without an offset may be a bit-field.
    for question in absent(&answers) {
        if let Question::Place { of, field } = question
            && answers[&Question::Size { of }] != Answer::Absent
            && let Ok(given) = compiler.ask(path, View::User, &[Question::Bits { of, field }])?
        {
            answers.insert(question, given[0]);
        }
    }
    // Some names are declared only for the kernel.
    let missing = absent(&answers);
    if !missing.is_empty()
        && let Ok(given) = compiler.ask(path, View::Kernel, &missing)?
    {
        answers.extend(missing.into_iter().zip(given));
    }
    Ok(Outcome::Compared(rows(header, |question| answers[question])))
}

/// The rows of a header: the values of the tables, next to those in `theirs`.
fn rows(header: &Header, theirs: impl Fn(&Question) -> Answer) -> Vec<Row> {
    let mut rows = Vec::new();
    let mut seen = BTreeSet::new();
    let mut row = |question: Question, ours: Answer| {
        // Two Rust structs may be views of one C struct.
        if seen.insert(question) {
            rows.push(Row { question, ours, theirs: theirs(&question), compared: true });
        }
    };
    for known in header.structs.iter().copied().flatten() {
        row(Question::Size { of: known.name }, Answer::number(known.size));
        for field in known.fields.iter().filter(|field| !field.implicit) {
            row(
                Question::Place { of: known.name, field: field.name },
                Answer::place(field.offset, field.size),
            );
        }
    }
    for request in header.requests.iter().copied().flatten() {
        row(Question::Macro { name: request.name }, Answer::Number(request.code.into()));
    }
    for last in release::last_of(header.path) {
        let question = Question::Macro { name: last.name };
        let ours = Answer::Number(last.number.into());
        rows.push(Row { question, ours, theirs: theirs(&question), compared: false });
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_struct_field_and_request_becomes_one_row() {
        let nvmap = headers::ALL.iter().find(|header| header.path.ends_with("nvmap.h")).unwrap();
        let rows = rows(nvmap, |_| Answer::Absent);
        let named = |name: &str| rows.iter().filter(|row| row.question.to_string() == name).count();
        // CREATE and CREATE_64 have one C struct with two views.
        assert_eq!(named("struct nvmap_create_handle"), 1);
        assert_eq!(named("nvmap_create_handle.size"), 1);
        assert_eq!(named("nvmap_create_handle.size64"), 1);
        assert_eq!(named("NVMAP_IOC_ALLOC"), 1);
        // Padding that the compiler inserts has no name to query.
        assert_eq!(named("nvmap_heap_size.padding"), 0);
    }
}
