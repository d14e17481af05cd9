//! `cargo xtask compare-board`: the output of a program on the software Orin against its log from a board.
//!
//! Values that differ from run to run or from machine to machine are masked in both: times, addresses of the CPU,
//! descriptors, handle numbers, syncpoints. GPU addresses, tokens and everything else must be equal.

use std::ffi::OsString;
use std::fs;
use std::io::{Read, Write};
use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context, Result};
use clap::Args;
use orin_cli::{ExitStatus, UsageError, stdout};
use orin_sim::serve::Session;
use orin_sim::{Config, Profile, SoftwareOrin};

/// End of the GPU's addresses; hexadecimal values from here on are addresses of the CPU.
const GPU_END: u64 = 1 << 40;
/// Words before a value that differs between runs.
const VOLATILE: [&str; 9] =
    ["fd", "handle", "dmabuf", "dmabuf_fd", "timestamp", "syncpoint", "max", "pid", "id"];
/// Units of times and rates.
const UNITS: [&str; 5] = ["ms", "us", "s", "ns", "mb"];

/// Options of the command.
#[derive(Args)]
#[command(after_help = "\
Example:
  cargo xtask compare-board tests/test_gpu_submit.log -- python3 tests/test_gpu_submit.py")]
pub(crate) struct Options {
    /// The log of a board
    log: PathBuf,
    /// The board of the log, as BOARD:MODE
    #[arg(long, default_value = "agx-64:30w")]
    board: Profile,
    /// Compare with this output instead of a new run
    #[arg(long, value_name = "FILE", conflicts_with = "program")]
    with: Option<PathBuf>,
    /// The program and its arguments
    #[arg(last = true, value_name = "PROGRAM", required_unless_present = "with")]
    program: Vec<OsString>,
}

/// Compares and prints the differences.
pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let read = |path: &PathBuf| {
        let bytes = fs::read(path).map_err(|error| UsageError(format!("{}: {error}", path.display())))?;
        Ok::<_, UsageError>(String::from_utf8_lossy(&bytes).into_owned())
    };
    let board = read(&options.log)?;
    let ours = match &options.with {
        Some(path) => read(path)?,
        None => output(options)?,
    };
    let (board, ours) = (masked_lines(&board), masked_lines(&ours));
    let differences = differences(&board, &ours);
    let mut out = stdout();
    for difference in &differences {
        writeln!(out, "{difference}")?;
    }
    writeln!(
        out,
        "{} lines of the board, {} of ours, {} differ",
        board.len(),
        ours.len(),
        differences.len()
    )?;
    out.flush()?;
    Ok(ExitStatus::failed_if(!differences.is_empty()).into())
}

/// Standard output and error of the program on the software Orin.
fn output(options: &Options) -> Result<String> {
    let orin = SoftwareOrin::new(Config::of(options.board)).context("starting the software Orin")?;
    let (mut reader, writer) = std::io::pipe()?;
    // PANIC: the command line demands a program.
    let (program, arguments) = options.program.split_first().expect("a program");
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).stdout(writer.try_clone()?).stderr(writer);
    let mut session = Session::start(&orin, command, &orin_sim::serve::Options::default())?;
    let mut output = Vec::new();
    reader.read_to_end(&mut output)?;
    session.wait()?;
    Ok(String::from_utf8_lossy(&output).into_owned())
}

fn masked_lines(text: &str) -> Vec<String> {
    text.lines().map(masked).filter(|line| !line.is_empty()).collect()
}

/// A line without its time stamp, with masks for volatile values.
fn masked(line: &str) -> String {
    let is_time = |text: &str| text.trim().bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    let stamp = line.strip_prefix('[').and_then(|rest| rest.split_once(']'));
    let mut rest = stamp.filter(|(stamp, _)| is_time(stamp)).map_or(line, |(_, rest)| rest).trim();
    let mut masked = String::new();
    // The last word, for the meaning of a value after it.
    let mut word = String::new();
    while let Some(first) = rest.chars().next() {
        if first.is_ascii_digit() {
            let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '.').unwrap_or(rest.len());
            let number = rest[..end].trim_end_matches('.');
            // The second half of a date or time.
            let continues = masked.ends_with("<n>-") || masked.ends_with("<n>:");
            let shown =
                if continues { "<n>".to_owned() } else { value(&word, number, &rest[number.len()..]) };
            masked.push_str(&shown);
            rest = &rest[number.len()..];
            continue;
        }
        let end = rest.find(|c: char| !c.is_alphabetic() && c != '_').unwrap_or(rest.len());
        if end > 0 {
            word = rest[..end].to_lowercase();
            masked.push_str(&rest[..end]);
            rest = &rest[end..];
            continue;
        }
        masked.push(first);
        rest = &rest[first.len_utf8()..];
    }
    masked.trim_end().to_owned()
}

/// A value, or its mask.
fn value(word: &str, number: &str, after: &str) -> String {
    let last = word.rsplit('_').next().unwrap_or(word);
    let is_volatile = VOLATILE.contains(&word) || VOLATILE.contains(&last);
    let hexadecimal = number.strip_prefix("0x").and_then(|digits| u64::from_str_radix(digits, 16).ok());
    let unit = number.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.');
    let next: String = after.trim_start().chars().take_while(char::is_ascii_alphabetic).collect();
    let is_time = UNITS.contains(&unit.to_lowercase().as_str())
        || unit.is_empty() && UNITS.contains(&next.to_lowercase().as_str());
    // A date: 2026-02-10T21:57:11.
    let is_date = unit.starts_with('T') || after.starts_with('-') || after.starts_with(':');
    match hexadecimal {
        Some(value) if value >= GPU_END || is_volatile => "<address>".to_owned(),
        Some(_) => number.to_owned(),
        None if is_volatile || is_time || is_date || number.contains('.') => "<n>".to_owned(),
        None => number.to_owned(),
    }
}

/// The lines that only one of them has, in order: `-` the board, `+` ours.
fn differences(board: &[String], ours: &[String]) -> Vec<String> {
    // Length of the longest common sequence of the rests.
    let mut common = vec![vec![0_u32; ours.len() + 1]; board.len() + 1];
    for (at, line) in board.iter().enumerate().rev() {
        for (to, own) in ours.iter().enumerate().rev() {
            common[at][to] = if line == own {
                common[at + 1][to + 1] + 1
            } else {
                common[at + 1][to].max(common[at][to + 1])
            };
        }
    }
    let (mut at, mut to, mut found) = (0, 0, Vec::new());
    while at < board.len() || to < ours.len() {
        if at < board.len() && to < ours.len() && board[at] == ours[to] {
            (at, to) = (at + 1, to + 1);
        } else if to == ours.len() || at < board.len() && common[at + 1][to] >= common[at][to + 1] {
            found.push(format!("- {}", board[at]));
            at += 1;
        } else {
            found.push(format!("+ {}", ours[to]));
            to += 1;
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn volatile_values_are_masked_and_others_kept() {
        for (line, expected) in [
            ("[   0.115]   gpfifo: handle=2147483673, dmabuf=8", "gpfifo: handle=<n>, dmabuf=<n>"),
            ("  as_fd=6, tsg_fd=7, veid=1", "as_fd=<n>, tsg_fd=<n>, veid=1"),
            ("token=511, gpfifo_gpu_va=0x000000000000", "token=511, gpfifo_gpu_va=0x000000000000"),
            (
                "sem_gpu_va=0x00ffffa00000, sem_cpu=0xfffff7fea000",
                "sem_gpu_va=0x00ffffa00000, sem_cpu=<address>",
            ),
            ("Timestamp: 0x000000a187e06c40", "Timestamp: <address>"),
            ("match! took 1.1ms, 35 MB/s", "match! took <n>, <n> MB/s"),
            ("=== Log started at 2026-02-10T21:57:11.057 ===", "=== Log started at <n>-<n>-<n>:<n>:<n> ==="),
            ("Time: 2026-02-10 16:01:23", "Time: <n>-<n>-<n> <n>:<n>:<n>"),
            ("Compute class: 0xc7c0, 15/15 tests", "Compute class: 0xc7c0, 15/15 tests"),
        ] {
            assert_eq!(masked(line), expected, "{line}");
        }
    }

    #[test]
    fn lines_of_one_side_are_listed() {
        let lines = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(differences(&lines("a b c d"), &lines("a c x d")), ["- b", "+ x"]);
        assert_eq!(differences(&lines("a b"), &lines("a b")), Vec::<String>::new());
    }
}
