//! `cargo xtask check-headers`: the tables of `nvgpu-sys` against the headers of an L4T release.
//!
//! The C headers in the sources of each release (package "Driver Package (BSP) Sources") define the kernel's
//! interface. This project does not include them. The command makes the C compiler report the size of each struct,
//! the offset of each field and the code of each request, and compares them with the tables of `nvgpu-sys`: with the
//! rows of one release, which the headers themselves identify.

mod locate;
mod probe;
mod release;
mod report;

use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Result;
use nvgpu_sys::Release;
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
    /// Compare with the rows of this release: r36.4.3, r36.4.7 or r39.2 [default: the one that differs least]
    #[arg(long, value_name = "RELEASE")]
    release: Option<Release>,
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
    let mut asked = Vec::new();
    for (header, path) in headers::ALL.iter().zip(located) {
        let answers = match &path {
            Some(path) => ask(&compiler, header, path)?,
            None => Ok(HashMap::new()),
        };
        asked.push((header, path, answers));
    }
    let reports = |release: Release| -> Vec<HeaderReport> {
        asked
            .iter()
            .map(|(header, path, answers)| {
                let outcome = match answers {
                    Ok(answers) => Outcome::Compared(rows(header, release, answers)),
                    Err(reason) => Outcome::Unread(reason.clone()),
                };
                HeaderReport { header: header.path, path: path.clone(), outcome }
            })
            .collect()
    };
    let report = |release| Report { compiler: command.clone(), release, headers: reports(release) };
    let mut columns = Release::ALL.into_iter().map(report);
    let report = match options.release {
        Some(release) => columns.find(|report| report.release == release),
        // The oldest of those that differ equally.
        None => columns.min_by_key(|report| report.counts().drift),
    };
    // PANIC: every release has a report.
    let report = report.expect("every release is compared");
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

/// The compiler's answers about one header, or its first error.
type Answers = HashMap<Question, Answer>;

/// Queries the compiler for everything that one header declares in any release.
fn ask(compiler: &Compiler, header: &Header, path: &Path) -> Result<Result<Answers, String>> {
    let questions: Vec<Question> = questions(header).into_iter().collect();
    let mut answers: Answers = match compiler.ask(path, View::User, &questions)? {
        Ok(given) => questions.iter().copied().zip(given).collect(),
        Err(reason) => return Ok(Err(reason)),
    };
    let absent = |answers: &Answers| -> Vec<Question> {
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
    Ok(Ok(answers))
}

/// What a header should declare in a release, with the values of the tables.
fn column(header: &Header, release: Release) -> Vec<(Question, Answer)> {
    let mut ours = Vec::new();
    let mut seen = BTreeSet::new();
    let mut row = |question: Question, answer: Answer| {
        // Two Rust structs may be views of one C struct.
        if seen.insert(question) {
            ours.push((question, answer));
        }
    };
    for known in header.structs.iter().copied().flatten().filter(|known| release.has(known.releases)) {
        row(Question::Size { of: known.name }, Answer::number(known.size));
        for field in known.fields.iter().filter(|field| !field.implicit) {
            let place = Answer::place(field.offset, field.size);
            row(Question::Place { of: known.name, field: field.name }, place);
        }
    }
    for request in header.requests.iter().flat_map(|requests| release.requests(requests)) {
        row(Question::Macro { name: request.name }, Answer::Number(request.code.into()));
    }
    ours
}

/// Everything that a header declares in one release or another, and the macros with the highest request numbers.
fn questions(header: &Header) -> BTreeSet<Question> {
    let declared =
        Release::ALL.into_iter().flat_map(|release| column(header, release)).map(|(question, _)| question);
    let last = release::last_of(header.path).iter().map(|name| Question::Macro { name });
    declared.chain(last).collect()
}

/// The rows of a header in a release: the values of the tables, next to those in `theirs`.
fn rows(header: &Header, release: Release, theirs: &Answers) -> Vec<Row> {
    let answer = |question: &Question| theirs.get(question).copied().unwrap_or(Answer::Absent);
    let ours = column(header, release);
    let compared = |question, ours| Row { question, ours, theirs: answer(&question), compared: true };
    let mut rows: Vec<Row> = ours.iter().map(|(question, ours)| compared(*question, *ours)).collect();
    let lasts = release::last_of(header.path);
    for (name, family) in lasts.iter().zip(header.requests) {
        let question = Question::Macro { name };
        let ours = Answer::Number(release.last(family).into());
        rows.push(Row { question, ours, theirs: answer(&question), compared: false });
    }
    // Other releases have these; this one must not.
    for question in questions(header) {
        let is_last = lasts.iter().any(|name| question == Question::Macro { name });
        let is_ours = ours.iter().any(|(known, _)| *known == question);
        if !is_last && !is_ours && answer(&question) != Answer::Absent {
            rows.push(compared(question, Answer::Absent));
        }
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nvmap() -> &'static Header {
        headers::ALL.iter().find(|header| header.path.ends_with("nvmap.h")).unwrap()
    }

    #[test]
    fn every_struct_field_and_request_becomes_one_row() {
        let rows = rows(nvmap(), Release::R36_4_3, &Answers::new());
        let named = |name: &str| rows.iter().filter(|row| row.question.to_string() == name).count();
        // CREATE and CREATE_64 have one C struct with two views.
        assert_eq!(named("struct nvmap_create_handle"), 1);
        assert_eq!(named("nvmap_create_handle.size"), 1);
        assert_eq!(named("nvmap_create_handle.size64"), 1);
        assert_eq!(named("NVMAP_IOC_ALLOC"), 1);
        // Padding that the compiler inserts has no name to query.
        assert_eq!(named("nvmap_heap_size.padding"), 0);
    }

    /// A header with exactly the declarations of one release drifts from the other's column.
    #[test]
    fn each_release_has_its_own_rows() {
        for header in headers::ALL {
            for release in Release::ALL {
                let theirs: Answers = column(header, release).into_iter().collect();
                let drift = |release| {
                    let rows = rows(header, release, &theirs);
                    let drifting = rows.iter().filter(|row| row.status() == report::Status::Drift);
                    drifting
                        .filter(|row| row.compared)
                        .map(|row| row.question.to_string())
                        .collect::<Vec<_>>()
                };
                assert_eq!(drift(release), Vec::<String>::new());
                if header.path.ends_with("nvmap.h") {
                    let other =
                        drift(if release < Release::R39_2 { Release::R39_2 } else { Release::R36_4_3 });
                    for name in ["struct nvmap_alloc_handle", "NVMAP_IOC_ALLOC"] {
                        assert!(other.iter().any(|found| found == name), "{release}: {other:?}");
                    }
                    let removed = other.iter().any(|found| found == "NVMAP_IOC_CACHE_LIST");
                    assert_eq!(removed, release < Release::R39_2, "{release}: {other:?}");
                }
            }
        }
    }
}
