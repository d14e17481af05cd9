//! `orin profile-kernel`: runs a program on the software Orin and counts what its kernels do.
//!
//! As with `orin check`, the program is served, and one that opens a software Orin of its own counts for itself: it
//! gets a file by an environment variable.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, ExitStatus};

use anyhow::{Context, Result};
use clap::Args;
use cubin::FileKind;
use orin_cli::{ExitStatus as Status, Output, UsageError, page, say, warn, within, write_all};
use orin_sim::board::{BOARD_VARIABLE, Profile as Board};
use orin_sim::check::AUTO_VARIABLE;
use orin_sim::kernel_profile::{
    Comparison, KERNELS_VARIABLE, KernelProfile, LAUNCHES_VARIABLE, PROFILE_VARIABLE, Profiler, Selection,
    Unprofiled, compare, html, json, merge, parse, parse_unprofiled, text,
};
use orin_sim::release;
use orin_sim::serve::guard::{self, Signals};
use orin_sim::{Config, SoftwareOrin};

use crate::{cubins, files, serve};

/// Options of the command.
#[derive(Args, Debug)]
#[command(after_help = concat!("\
Examples:
  orin profile-kernel -- python3 test_nvgpu.py
  orin profile-kernel --kernel 'gemm*' --launch-count 1 --html gemm.html -- ./program
  orin profile-kernel --json=profiles.json -- cargo test
  orin profile-kernel --board nano-8 -- ./program
  orin profile-kernel --baseline profiles.json --fail-over 5 -- cargo test
  orin profile-kernel --import profiles.json --html profiles.html

A program that uses tegra-hcq with the feature sim, and does not name a device, opens a software Orin of its own,
which knows its kernels. Any other program is served. If an output of this command goes to standard output, the
program prints to standard error.

Exit codes: that of the program; 1 if no kernel was profiled, or one is worse than --fail-over permits. See
", page!("profile-kernel"), "."))]
pub(crate) struct Options {
    /// Profile only kernels with this name, in which * stands for any characters; may be given several times
    #[arg(long = "kernel", short = 'k', value_name = "NAME", value_parser = kernel_name)]
    kernels: Vec<String>,
    /// Skip the first launches of these kernels
    #[arg(long, short = 's', value_name = "N", default_value_t = 0, value_parser = within(0..=u64::MAX))]
    launch_skip: u64,
    /// Profile at most N launches
    #[arg(long, short = 'c', value_name = "N", value_parser = within(1..=u64::MAX))]
    launch_count: Option<u64>,
    /// A cubin with kernels of the program, or a folder of cubins, to know their names and source lines. Not needed for
    /// cubins that a served program has in its memory; may be given several times
    #[arg(long, value_name = "FILE")]
    cubin: Vec<PathBuf>,
    /// Print a lower bound of each kernel's time on this board, and its limits: agx-64, nx-16:15w, ...; the program
    /// runs on a software Orin of this board
    #[arg(long, value_name = "BOARD")]
    board: Option<Board>,
    /// Print what changed since the profiles of this file, made with --json or ORIN_SIM_PROFILE, instead of tables
    #[arg(long, value_name = "FILE")]
    baseline: Option<PathBuf>,
    /// End with exit code 1 if a measure of a kernel is more than PERCENT above the baseline
    #[arg(long, value_name = "PERCENT", requires = "baseline", value_parser = percent)]
    fail_over: Option<f64>,
    /// Print the profiles as one JSON object instead of tables; with FILE, write it to this file
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = "-")]
    json: Option<PathBuf>,
    /// Write the profiles with the annotated disassembly to this file, as one HTML page
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Search this folder for the source files that the page shows; may be given several times
    #[arg(long, value_name = "FOLDER", requires = "html")]
    source_folder: Vec<PathBuf>,
    /// Do not serve the program, only set the environment: for systems where programs cannot be served
    #[arg(long)]
    no_serve: bool,
    /// Show profiles of this file, made with --json or ORIN_SIM_PROFILE, instead of running a program
    #[arg(long, value_name = "FILE", conflicts_with_all = ["cubin", "no_serve", "launch_skip", "launch_count"])]
    import: Option<PathBuf>,
    /// The program and its arguments
    #[arg(
        required_unless_present = "import",
        conflicts_with = "import",
        trailing_var_arg = true,
        value_name = "PROGRAM"
    )]
    program: Vec<OsString>,
}

/// A name that fits the environment variable, where names are separated by commas.
fn kernel_name(text: &str) -> Result<String, String> {
    match text {
        "" => Err("a name is not empty; * stands for all kernels".to_owned()),
        _ if text.contains(',') => Err("a name has no comma; give --kernel several times".to_owned()),
        _ => Ok(text.to_owned()),
    }
}

/// A percentage of `--fail-over`.
fn percent(text: &str) -> Result<f64, String> {
    let percent = text.trim_end_matches('%').trim().parse().ok();
    let wrong = || format!("`{text}` is not a percentage of 0 or more");
    percent.filter(|percent: &f64| percent.is_finite() && *percent >= 0.0).ok_or_else(wrong)
}

/// Runs the program, or reads a file, and shows the profiles. Ends like the program.
pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let outputs = Output::prepare_all([&options.html, &options.json].into_iter().flatten());
    let outputs = outputs.map_err(UsageError::from)?;
    let files = options.import.iter().chain(&options.baseline).map(PathBuf::as_path);
    let inputs = files.chain(options.program.first().map(Path::new));
    let inputs: Vec<&Path> = inputs.chain(options.cubin.iter().map(PathBuf::as_path)).collect();
    outputs.iter().try_for_each(|output| output.spare(&inputs)).map_err(UsageError::from)?;
    let baseline = options.baseline.as_deref().map(|path| imported(options, path)).transpose()?;
    if let Some(path) = &options.import {
        let profiles = imported(options, path)?;
        if profiles.is_empty() {
            warn("no profile of these kernels is in the file");
        }
        return show(options, &outputs, &profiles, baseline.as_deref());
    }
    serve::check_program(&options.program)?;
    let profiler = profiler(options)?;
    let mut config = match options.board {
        Some(board) => {
            release::from_environment().and_then(|release| Config::from_environment_on(board, release))
        }
        None => Config::from_environment(),
    }
    .map_err(|error| UsageError(error.to_string()))?;
    config.sm.profile = Some(profiler.clone());
    let folder = tempfile::tempdir().context("making a folder for the profiles")?;
    let file = folder.path().join("profiles");
    let mut command = prepared(options, &file);
    if outputs.iter().any(Output::is_stdout) {
        command.stdout(std::io::stderr());
    }
    let status = if options.no_serve {
        serve::plain(command)?
    } else {
        // SAFETY: the command line has been parsed, and no thread was started.
        let signals = unsafe { serve::become_supervisor()? };
        profiler.search_cubins_by(orin_sim::serve::cubins_of_descendants);
        supervise(config, command, signals)?
    };
    let (mut profiles, mut unprofiled) = (profiler.profiles(), profiler.unprofiled());
    match fs::read_to_string(&file) {
        Ok(lines) => {
            profiles.extend(parse(&lines).context("reading the profiles of the program")?);
            let own = parse_unprofiled(&lines);
            unprofiled.launches += own.launches;
            unprofiled.others.extend(own.others);
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
        Err(error) => return Err(error).context("reading the profiles of the program"),
    }
    // `end_like` runs no destructors.
    drop(folder);
    if profiles.is_empty() {
        warn(nothing(options, &unprofiled));
    } else if profiles.iter().any(|profile| profile.kernel.starts_with("0x")) {
        warn("kernels without a name: give their cubins with --cubin");
    }
    let mut profiles = merge(profiles);
    for profile in &mut profiles {
        profile.record_source(|file| source(&options.source_folder, file));
    }
    let shown = show(options, &outputs, &profiles, baseline.as_deref())?;
    if status.success() { Ok(shown) } else { guard::end_like(status) }
}

/// The profiles of a file.
fn imported(options: &Options, path: &Path) -> Result<Vec<KernelProfile>> {
    let text = files::read_text(path, "profiles of kernels", &[FileKind::Profiles, FileKind::Json])?;
    let wrong = |error| files::wrong(path, format!("cut off, or not profiles of kernels: {error}"));
    let profiles = parse(&text).map_err(wrong)?;
    let selection = selection(options);
    Ok(merge(profiles).into_iter().filter(|profile| selection.names(&profile.kernel)).collect())
}

fn selection(options: &Options) -> Selection {
    Selection { kernels: options.kernels.clone(), skip: options.launch_skip, count: options.launch_count }
}

fn profiler(options: &Options) -> Result<Profiler> {
    let profiler = Profiler::new(selection(options));
    cubins::add(&options.cubin, |file| profiler.add_cubin(file))?;
    Ok(profiler)
}

/// The program with the variables for a software Orin of its own.
fn prepared(options: &Options, file: &Path) -> Command {
    let mut command = serve::command(&options.program);
    command.env(PROFILE_VARIABLE, file).env(KERNELS_VARIABLE, options.kernels.join(","));
    let count = options.launch_count.map_or_else(String::new, |count| format!(",{count}"));
    command.env(LAUNCHES_VARIABLE, format!("{}{count}", options.launch_skip)).env(AUTO_VARIABLE, "1");
    if let Some(board) = options.board {
        command.env(BOARD_VARIABLE, board.to_string());
    }
    command
}

/// Serves the program in the supervisor's process.
fn supervise(config: Config, command: Command, signals: Signals) -> Result<ExitStatus> {
    let board = SoftwareOrin::new(config).map_err(orin_sim::serve::Error::Board)?;
    serve::host(&board, command, signals, &orin_sim::serve::Options::default(), |_| {})
}

/// Why no kernel was profiled.
fn nothing(options: &Options, unprofiled: &Unprofiled) -> String {
    let Unprofiled { launches, others } = unprofiled;
    let others = others.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
    match launches {
        0 if others.is_empty() => "no kernel was profiled: none ran".to_owned(),
        0 => format!("no kernel was profiled: --kernel selects none of those that ran: {others}"),
        _ => format!("no kernel was profiled: --launch-skip {} skips all {launches}", options.launch_skip),
    }
}

/// Prints and writes the profiles, and the changes since a baseline. `outputs` are those of `--html` and `--json`, as
/// far as they are given.
fn show(
    options: &Options,
    outputs: &[Output],
    profiles: &[KernelProfile],
    baseline: Option<&[KernelProfile]>,
) -> Result<ExitCode> {
    let board = options.board;
    let comparison = baseline.map(|baseline| compare(baseline, profiles, board));
    let page = options
        .html
        .as_ref()
        .map(|_| html(profiles, board, comparison.as_ref(), |file| source(&options.source_folder, file)));
    let object = options.json.as_ref().map(|_| {
        let mut object = json(profiles, board);
        if let Some(comparison) = &comparison {
            object["comparison"] = serde_json::json!(comparison);
        }
        format!("{object:#}\n")
    });
    let contents = page.iter().chain(&object).map(String::as_bytes);
    write_all(&outputs.iter().zip(contents).collect::<Vec<_>>())?;
    if options.json.is_none() && !profiles.is_empty() {
        let tables = comparison.as_ref().map_or_else(|| text(profiles, board), Comparison::to_string);
        say!("{}", tables.trim_end())?;
    }
    let is_worse = comparison.as_ref().is_some_and(|comparison| is_worse(options, comparison));
    Ok(Status::failed_if(profiles.is_empty() || is_worse).into())
}

/// Whether `--fail-over` makes the command fail, with a warning that says why.
fn is_worse(options: &Options, comparison: &Comparison) -> bool {
    let Some(percent) = options.fail_over else { return false };
    if comparison.kernels.is_empty() {
        warn("no kernel of the baseline ran: there is nothing to compare");
        return true;
    }
    let worse: Vec<&str> = comparison.over(percent).map(|kernel| kernel.kernel.as_str()).collect();
    if !worse.is_empty() {
        warn(format!("worse than the baseline by more than {percent} %: {}", worse.join(", ")));
    }
    !worse.is_empty()
}

/// The text of a source file: at its path, or by its name in one of the folders.
fn source(folders: &[PathBuf], file: &str) -> Option<String> {
    let name = Path::new(file).file_name()?;
    let named = folders.iter().map(|folder| folder.join(name));
    std::iter::once(PathBuf::from(file)).chain(named).find_map(|path| fs::read_to_string(path).ok())
}
