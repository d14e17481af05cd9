//! Checks of programs that open their own software Orin: settings from the environment, and a report at the end.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use parking_lot::Mutex;

use super::{Checker, Finding, Suppressions, Tools, Work, text};
use crate::at_exit::AtExit;
use crate::settings::SettingsError;

/// Environment variable with the tools for programs that open their own software Orin.
pub const CHECK_VARIABLE: &str = "ORIN_SIM_CHECK";
/// Environment variable that adds [`Tools::ORDERING`], unless it is empty or `0`.
pub const STRICT_VARIABLE: &str = "ORIN_SIM_STRICT";
/// Environment variable with the path of a file to which findings are appended, one JSON object per line, and a
/// [`Work`](super::Work) for each board. Without it the findings are printed to standard error. Of a board with a
/// checker that the program has made, only the number of launches is appended.
pub const REPORT_VARIABLE: &str = "ORIN_SIM_CHECK_REPORT";
/// Environment variable with the path of a suppressions file.
pub const SUPPRESSIONS_VARIABLE: &str = "ORIN_SIM_CHECK_SUPPRESSIONS";
/// Environment variable with the exit code of a process with findings, 0 to keep the program's own.
pub const EXIT_VARIABLE: &str = "ORIN_SIM_CHECK_EXIT";
/// Environment variable that, with the value `1`, lets programs that choose a device by themselves open their own
/// software Orin, also if there are the nodes of another GPU. `orin check` and `orin profile-kernel` set it: a board in
/// the program's process knows its buffers, programs and names.
pub const AUTO_VARIABLE: &str = "ORIN_SIM_AUTO";
/// Exit code of a process with findings.
pub const EXIT_CODE: i32 = 1;

/// The checkers of this process that report at the end.
static OPEN: AtExit<Checker> = AtExit::new();
/// Number of findings reported so far.
static REPORTED: Mutex<u64> = Mutex::new(0);

impl Checker {
    /// The checker that the environment selects, if any.
    ///
    /// # Errors
    ///
    /// [`SettingsError::Variable`] for unknown tools and bad suppressions, [`SettingsError::File`].
    pub(crate) fn from_environment() -> Result<Option<Self>, SettingsError> {
        let value = std::env::var(CHECK_VARIABLE).unwrap_or_default();
        let mut tools: Tools = value
            .parse()
            .map_err(|error: super::UnknownTool| SettingsError::variable(CHECK_VARIABLE, &value, error))?;
        let strict = std::env::var_os(STRICT_VARIABLE).unwrap_or_default();
        tools.set(Tools::ORDERING, tools.contains(Tools::ORDERING) || !strict.is_empty() && strict != "0");
        if tools.is_empty() {
            return Ok(None);
        }
        let checker = Self::new(tools);
        if let Some(path) = std::env::var_os(SUPPRESSIONS_VARIABLE).filter(|path| !path.is_empty()) {
            let path = path.to_string_lossy().into_owned();
            let text = std::fs::read_to_string(&path)
                .map_err(|source| SettingsError::File { path: path.clone(), source })?;
            let parsed = Suppressions::parse(&text);
            let wrong = |error| SettingsError::variable(SUPPRESSIONS_VARIABLE, &path, error);
            checker.suppress(parsed.map_err(wrong)?);
        }
        watch_exit(&checker);
        Ok(Some(checker))
    }
}

/// Reports the findings of a checker when the process exits, unless [`close`] has done so.
fn watch_exit(checker: &Checker) {
    checker.0.reports.store(true, Ordering::Relaxed);
    if OPEN.push(checker.clone(), at_exit) {
        *REPORTED.lock() = 0;
    }
}

/// Reports the findings of a board that is powered off; of one with the program's own checker, the launches.
pub(crate) fn close(checker: &Checker) {
    if let Some(checker) = OPEN.remove(|other| Arc::ptr_eq(&other.0, &checker.0)) {
        report(&checker);
    } else if !checker.0.reports.load(Ordering::Relaxed) && !checker.tools().is_empty() {
        let launches = checker.work().launches;
        let own_launches = launches - checker.0.counted.swap(launches, Ordering::Relaxed).min(launches);
        if own_launches > 0 {
            // A full disk does not stop the program.
            let _ = append(&[], &Work { own_launches, ..Work::default() });
        }
    }
}

/// Appends to the file of [`REPORT_VARIABLE`]. Returns whether there is one.
fn append(findings: &[Finding], work: &Work) -> io::Result<bool> {
    let Some(path) = std::env::var_os(REPORT_VARIABLE).filter(|path| !path.is_empty()) else {
        return Ok(false);
    };
    let work = serde_json::to_string(work);
    let lines: Result<Vec<String>, _> = findings.iter().map(serde_json::to_string).chain([work]).collect();
    // One write, because several processes append.
    OpenOptions::new()
        .append(true)
        .create(true)
        .open(&path)?
        .write_all((lines?.join("\n") + "\n").as_bytes())?;
    Ok(true)
}

fn report(checker: &Checker) {
    let findings = checker.findings_at_end();
    // CAST: a count of findings.
    *REPORTED.lock() += findings.len() as u64;
    if append(&findings, &checker.work()).unwrap_or(false) {
        return;
    }
    // Not `eprint!`, which a test harness captures. A failure of this write cannot be reported.
    let _ = std::io::stderr().lock().write_all(text(&findings).as_bytes());
}

/// Runs when the process exits: reports the remaining findings, and changes the exit code if there were any.
extern "C" fn at_exit() {
    if !OPEN.is_own() {
        return;
    }
    OPEN.take().iter().for_each(report);
    let found = *REPORTED.lock();
    let wanted = std::env::var(EXIT_VARIABLE).ok().and_then(|code| code.parse().ok());
    let code: i32 = wanted.unwrap_or(EXIT_CODE);
    if found > 0 && code != 0 {
        let _ = std::io::stdout().flush();
        // SAFETY: flushes the streams of C, which `_exit` does not, and ends the process.
        unsafe {
            libc::fflush(core::ptr::null_mut());
            libc::_exit(code);
        }
    }
}
