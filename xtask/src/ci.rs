//! `cargo xtask ci`: the steps of continuous integration, in groups that can run on machines of their own.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use clap::{Args, ValueEnum};
use orin_cli::say;
use serde::Deserialize;

use xtask::workspace;

/// Options of the command.
#[derive(Args)]
pub(crate) struct Options {
    /// The groups to run; all of them if none is named
    #[arg(value_enum)]
    groups: Vec<Group>,
}

/// Steps that need the same builds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Group {
    /// Format, source rules, lints, generated files, tests, documentation, the README's main job
    Host,
    /// Libraries with none, each, some pairs and all of their features
    Features,
    /// C under valgrind, Python, CUDA programs, tinygrad
    Bindings,
    /// Archives of the published packages
    Packages,
    /// Licences, sources and known vulnerabilities of dependencies
    Licences,
    /// What depends on the processor, for the Orin's
    Arm64,
}

/// One step: its group, its name, and a command line of cargo, a script, or [`BUILT`], by its first word. Words with
/// `=` before it are environment variables.
type Step = (Group, &'static str, &'static [&'static str]);

/// First word of a step that runs programs that the step `tests` has built; their names follow, then `--` and their
/// arguments. Cargo would build a part of the workspace again, with the features that this part alone needs.
const BUILT: &str = "built";

/// What depends on the kernel's release, on the newest one; the step `tests` runs it on the oldest one. Long modules
/// that use no call of their own are left out.
const NEWEST_KERNEL: &[&str] = &[
    "ORIN_SIM_KERNEL=r39.2",
    BUILT,
    "suites",
    "stack",
    "--",
    "--skip=models",
    "--skip=soak",
    "--skip=stress",
];
const NEWEST_BRING_UP: &[&str] = &["ORIN_SIM_KERNEL=r39.2", BUILT, "programs", "--", "bring_up"];

/// In order of cost: cheap checks fail first. The test command is the README's; the lints compile the benchmarks. The
/// main job is a program that the tests have built: an optimised build takes minutes more and checks nothing new.
/// Scripts install what cargo does not.
const STEPS: &[Step] = &[
    (Group::Host, "format", &["fmt", "--all", "--check"]),
    (Group::Host, "line width, panics and examples", &["xtask", "check-source"]),
    (Group::Host, "import circles", &["xtask", "import-graph"]),
    (Group::Host, "generated command tables", &["xtask", "gen-classes", "--check"]),
    (Group::Host, "lints", &["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"]),
    (Group::Host, "tests", &["test", "--workspace"]),
    (Group::Host, "stack and suites on the newest kernel", NEWEST_KERNEL),
    (Group::Host, "bring-up on the newest kernel", NEWEST_BRING_UP),
    (Group::Host, "kernels match their sources", &["xtask", "kernels", "--check"]),
    (Group::Host, "documentation", &["doc", "--workspace", "--no-deps", "--all-features"]),
    (Group::Host, "main job", &[BUILT, "vector_add"]),
    (Group::Host, "L4T headers", &[".ci/headers"]),
    (Group::Features, "subsets of features", &[".ci/features"]),
    (Group::Bindings, "C under valgrind", &[".ci/c"]),
    (Group::Bindings, "Python", &[".ci/python"]),
    (Group::Bindings, "CUDA programs", &[".ci/cuda"]),
    (Group::Bindings, "tinygrad", &[".ci/tinygrad"]),
    (Group::Packages, "packages", &[".ci/packages"]),
    (Group::Licences, "licences and vulnerabilities", &[".ci/cargo-deny"]),
    (Group::Arm64, "arm64", &[".ci/aarch64"]),
];

/// Runs the steps of the groups, prints the time of each, and stops at the first failure.
pub(crate) fn run(options: &Options) -> Result<()> {
    let root = workspace::root()?;
    let mut times = Vec::new();
    for (group, name, words) in STEPS {
        if !options.groups.is_empty() && !options.groups.contains(group) {
            continue;
        }
        let start = Instant::now();
        step(&root, name, words).with_context(|| format!("step '{name}'"))?;
        let seconds = start.elapsed().as_secs_f64();
        say!("<== {name}: {seconds:.1} s")?;
        times.push((name, seconds));
    }
    say!("")?;
    for (name, seconds) in &times {
        say!("{seconds:8.1} s  {name}")?;
    }
    say!("{:8.1} s  in all", times.iter().map(|(_, seconds)| seconds).sum::<f64>())?;
    Ok(())
}

/// Runs one step.
fn step(root: &Path, name: &str, line: &[&str]) -> Result<()> {
    let (variables, words) = line.split_at(line.iter().take_while(|word| word.contains('=')).count());
    let variables = variables.iter().filter_map(|word| word.split_once('='));
    let shown: String = variables.clone().map(|(name, value)| format!("{name}={value} ")).collect();
    let tool = if words[0].starts_with(".ci/") || words[0] == BUILT { "" } else { "cargo " };
    say!("==> {name}: {shown}{tool}{}", words.join(" "))?;
    let commands = match words {
        [BUILT, words @ ..] => built_programs(root, words)?,
        [script] if script.starts_with(".ci/") => vec![Command::new(root.join(script))],
        _ => {
            let mut command = Command::new(workspace::cargo());
            command.args(words);
            vec![command]
        }
    };
    commands.into_iter().try_for_each(|mut command| {
        if command.get_current_dir().is_none() {
            command.current_dir(root);
        }
        workspace::run_command(command.env("RUSTDOCFLAGS", "-D warnings").envs(variables.clone()))
    })
}

/// What cargo says of a compiled target.
#[derive(Deserialize)]
struct Artifact {
    manifest_path: PathBuf,
    target: Named,
    executable: Option<PathBuf>,
}

#[derive(Deserialize)]
struct Named {
    name: String,
}

/// The commands that run programs of `cargo test --workspace`, as cargo runs them, with the arguments after `--`.
fn built_programs(root: &Path, words: &[&str]) -> Result<Vec<Command>> {
    let mut parts = words.split(|word| *word == "--");
    let (names, arguments) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    let mut cargo = Command::new(workspace::cargo());
    cargo.args(["test", "--workspace", "--no-run", "--quiet", "--message-format=json"]).current_dir(root);
    cargo.stderr(Stdio::inherit());
    let output = cargo.output().context("starting cargo")?;
    ensure!(output.status.success(), "{cargo:?} ended with {}", output.status);
    let output = String::from_utf8_lossy(&output.stdout);
    let artifacts = output.lines().filter_map(|line| serde_json::from_str::<Artifact>(line).ok());
    let mut commands = Vec::new();
    let mut missing = names.to_vec();
    for Artifact { manifest_path, target, executable } in artifacts {
        let (Some(program), Some(folder)) = (executable, manifest_path.parent()) else { continue };
        if !names.contains(&&*target.name) {
            continue;
        }
        missing.retain(|name| *name != target.name);
        let mut command = Command::new(program);
        command.args(arguments).current_dir(folder).env("CARGO_MANIFEST_DIR", folder);
        commands.push(command);
    }
    ensure!(missing.is_empty(), "cargo test --workspace builds no program {}", missing.join(", "));
    Ok(commands)
}
