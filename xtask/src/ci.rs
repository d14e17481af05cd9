//! `cargo xtask ci`: the steps of continuous integration, in groups that can run on machines of their own.

use std::collections::{BTreeMap, VecDeque};
use std::env;
use std::fs::File;
use std::io::{Read, Seek};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::thread;
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use clap::{Args, ValueEnum};
use orin_cli::say;
use rustix::fs::{MemfdFlags, memfd_create};
use serde::Deserialize;

use xtask::workspace;

/// Options of the command.
#[derive(Args)]
pub(crate) struct Options {
    /// The groups to run; if none is named, all but `each-feature`
    #[arg(value_enum)]
    groups: Vec<Group>,
}

/// Steps that need the same builds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Group {
    /// Format, source rules, lints, generated files, tests, documentation, the README's main job
    Host,
    /// Libraries without features
    Features,
    /// Libraries with each of their features, and with some pairs: only if it is named, as once a day
    EachFeature,
    /// C under valgrind, Python, CUDA programs, tinygrad
    Bindings,
    /// Archives of the published packages
    Packages,
    /// Licences, sources and known vulnerabilities of dependencies
    Licences,
    /// What depends on the processor, for the Orin's
    Arm64,
}

/// One step: its group, its name, and a command line of cargo, a script, [`TESTS`] or [`BUILT`], by its first word.
/// Words with `=` before it are environment variables.
type Step = (Group, &'static str, &'static [&'static str]);

/// The step that does what `cargo test --workspace` does, with as many programs at a time as there are processors: one
/// after the other, as cargo runs them, they leave a third of two processors idle.
const TESTS: &str = "tests";

/// Programs that take longest: they begin first, so that none of them runs alone at the end.
const LONG: [&str; 6] = ["infer", "stack", "programs", "suites", "commands", "language"];

/// First word of a step that runs programs that the step `tests` has built; their names follow, each with `:` and a
/// filter of tests or without, then `--` and their arguments. Cargo would build a part of the workspace again, with the
/// features that this part alone needs.
const BUILT: &str = "built";

/// What depends on the kernel's release, on the newest one; the step `tests` runs it on the oldest one. Long modules
/// that use no call of their own are left out. So are the checks of kernels, which see nothing of the release.
const NEWEST_KERNEL: &[&str] = &[
    "ORIN_SIM_KERNEL=r39.2",
    "ORIN_SIM_CHECK=",
    BUILT,
    "suites",
    "stack",
    "programs:bring_up::all_stages",
    "--",
    "--skip=models",
    "--skip=soak",
    "--skip=stress",
    "--skip=hot_path::",
    "--skip=futures::",
];

/// In order of cost: cheap checks fail first. The tests are those of the README's command, with the default features.
/// `.ci/run` has all compilations linted; the lints are for what the tests do not compile: all features, which the
/// documentation needs as well, and the benchmarks. The main job is a program that the tests have built: an optimised
/// build takes minutes more and checks nothing new. Scripts install what cargo does not.
const STEPS: &[Step] = &[
    (Group::Host, "format", &["fmt", "--all", "--check"]),
    (Group::Host, "line width, panics and examples", &["xtask", "check-source"]),
    (Group::Host, "import circles", &["xtask", "import-graph"]),
    (Group::Host, "generated command tables", &["xtask", "gen-classes", "--check"]),
    (Group::Host, "lints", &["check", "--workspace", "--lib", "--bins", "--bench", "*", "--all-features"]),
    (Group::Host, "tests", &[TESTS]),
    (Group::Host, "stack, suites and bring-up on the newest kernel", NEWEST_KERNEL),
    (Group::Host, "kernels match their sources", &[BUILT, "orin-dev", "--", "kernels", "--check"]),
    (Group::Host, "documentation", &["doc", "--workspace", "--no-deps", "--all-features"]),
    (Group::Host, "main job", &[BUILT, "vector_add"]),
    (Group::Host, "L4T headers", &[".ci/headers"]),
    (Group::Features, "no features", &[".ci/features"]),
    (Group::EachFeature, "each feature", &[".ci/features", "each"]),
    (Group::Bindings, "C under valgrind", &[".ci/c"]),
    (Group::Bindings, "Python", &[".ci/python"]),
    (Group::Bindings, "CUDA programs", &[".ci/cuda"]),
    (Group::Bindings, "tinygrad", &[".ci/tinygrad"]),
    (Group::Packages, "packages", &[".ci/packages"]),
    (Group::Licences, "licences and vulnerabilities", &[".ci/cargo-deny"]),
    (Group::Arm64, "arm64", &[".ci/aarch64"]),
];

/// Runs the steps of the groups, prints the time of each, and stops at the first failure. The scripts come last, and
/// run together if the tests have built what they use: most of them use one processor, or wait for a network.
pub(crate) fn run(options: &Options) -> Result<()> {
    let (root, begin) = (workspace::root()?, Instant::now());
    ensure!(env::var_os("CLIPPY_ARGS").is_some(), "start .ci/run instead, which has all compilations linted");
    let is_asked = |group: Group| {
        options.groups.contains(&group) || options.groups.is_empty() && group != Group::EachFeature
    };
    let steps = STEPS.iter().filter(|(group, ..)| is_asked(*group));
    let (mut scripts, others): (Vec<&Step>, Vec<&Step>) =
        steps.partition(|(.., words): &&Step| is_asked(Group::Host) && words[0].starts_with(".ci/"));
    // The longest first.
    scripts.sort_by_key(|(group, ..)| *group != Group::Arm64);
    let mut times = Vec::new();
    for (_, name, words) in others {
        let start = Instant::now();
        step(&root, name, words).with_context(|| format!("step '{name}'"))?;
        let seconds = start.elapsed().as_secs_f64();
        say!("<== {name}: {seconds:.1} s")?;
        times.push(((*name).to_owned(), seconds));
    }
    let script = |(_, name, words): &Step| {
        let mut command = Command::new(root.join(words[0]));
        command.args(&words[1..]).current_dir(&root);
        Job { name: (*name).to_owned(), command, is_script: true }
    };
    times.extend(run_together(scripts.into_iter().map(script).collect())?);
    say!("")?;
    for (name, seconds) in &times {
        say!("{seconds:8.1} s  {name}")?;
    }
    say!("{:8.1} s  in all", begin.elapsed().as_secs_f64())?;
    Ok(())
}

/// Runs one step.
fn step(root: &Path, name: &str, line: &[&str]) -> Result<()> {
    let (variables, words) = line.split_at(line.iter().take_while(|word| word.contains('=')).count());
    let variables = variables.iter().filter_map(|word| word.split_once('='));
    let shown: String = variables.clone().map(|(name, value)| format!("{name}={value} ")).collect();
    let tool = if words[0].starts_with(".ci/") || [TESTS, BUILT].contains(&words[0]) { "" } else { "cargo " };
    say!("==> {name}: {shown}{tool}{}", words.join(" "))?;
    let cargo = |words: &[&str]| {
        let mut command = Command::new(workspace::cargo());
        command.args(words);
        command
    };
    let mut commands = match words {
        [TESTS] => {
            let mut programs = tests(root)?;
            programs.insert(0, cargo(&["test", "--workspace", "--doc"]));
            programs
        }
        [BUILT, words @ ..] => built_programs(root, words)?,
        [script, words @ ..] if script.starts_with(".ci/") => {
            let mut command = Command::new(root.join(script));
            command.args(words);
            vec![command]
        }
        _ => vec![cargo(words)],
    };
    for command in &mut commands {
        if command.get_current_dir().is_none() {
            command.current_dir(root);
        }
        command.env("RUSTDOCFLAGS", "-D warnings").envs(variables.clone());
    }
    if let [command] = &mut commands[..] {
        return workspace::run_command(command);
    }
    let job = |command: Command| {
        let name = Path::new(command.get_program()).file_name().unwrap_or_default();
        Job { name: name.to_string_lossy().into_owned(), command, is_script: false }
    };
    run_together(commands.into_iter().map(job).collect()).map(drop)
}

/// A command that runs beside others.
struct Job {
    name: String,
    command: Command,
    /// Whether all of its output is of interest, and not only the results of tests.
    is_script: bool,
}

/// Runs as many jobs at a time as there are processors, until one fails. Returns their names and seconds.
fn run_together(jobs: Vec<Job>) -> Result<Vec<(String, f64)>> {
    let (queue, times) = (Mutex::new(VecDeque::from(jobs)), Mutex::new(Vec::new()));
    // PANIC: no thread panics while it holds the lock.
    let queue = || queue.lock().expect("the queue of jobs");
    let work = || {
        while let Some(mut job) = { queue().pop_front() } {
            let seconds = job.run().inspect_err(|_| queue().clear())?;
            // PANIC: as above.
            times.lock().expect("the times of jobs").push((job.name, seconds));
        }
        Ok(())
    };
    let threads = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| {
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        // PANIC: a panic of a thread is a bug there.
        threads
            .into_iter()
            .try_for_each(|thread| -> Result<()> { thread.join().expect("a thread with jobs") })
    })?;
    // PANIC: as above.
    Ok(times.into_inner().expect("the times of jobs"))
}

impl Job {
    /// Runs the command and prints what is of interest, or all of its output if it fails. Returns the seconds.
    fn run(&mut self) -> Result<f64> {
        let (start, command) = (Instant::now(), &mut self.command);
        // No pipe: processes that the command leaves behind would keep it open.
        let mut output = File::from(memfd_create("output", MemfdFlags::CLOEXEC)?);
        command.stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output.try_clone()?);
        let status = command.status().with_context(|| format!("starting {command:?}"))?;
        let (seconds, mut bytes) = (start.elapsed().as_secs_f64(), Vec::new());
        output.rewind()?;
        output.read_to_end(&mut bytes)?;
        let text = String::from_utf8_lossy(&bytes);
        if !status.success() {
            say!("{text}")?;
            bail!("{command:?} ended with {status}");
        }
        let is_shown = |line: &&str| self.is_script || line.starts_with("test result");
        let shown: Vec<&str> = text.lines().filter(is_shown).collect();
        say!("<== {}: {seconds:.1} s\n{}", self.name, shown.join("\n"))?;
        Ok(seconds)
    }
}

/// What cargo says of a compiled target.
#[derive(Deserialize)]
struct Artifact {
    manifest_path: PathBuf,
    target: Named,
    profile: Profile,
    executable: Option<PathBuf>,
}

#[derive(Deserialize)]
struct Named {
    name: String,
}

#[derive(Deserialize)]
struct Profile {
    test: bool,
}

impl Artifact {
    /// The command that runs the program as cargo does; `None` if there is none.
    fn command(&self) -> Option<Command> {
        let (program, folder) = (self.executable.as_ref()?, self.manifest_path.parent()?);
        let mut command = Command::new(program);
        command.current_dir(folder).env("CARGO_MANIFEST_DIR", folder);
        Some(command)
    }
}

/// What `cargo test --workspace` builds.
fn built(root: &Path) -> Result<Vec<Artifact>> {
    let mut cargo = Command::new(workspace::cargo());
    cargo.args(["test", "--workspace", "--no-run", "--quiet", "--message-format=json"]).current_dir(root);
    cargo.stderr(Stdio::inherit());
    let output = cargo.output().context("starting cargo")?;
    ensure!(output.status.success(), "{cargo:?} ended with {}", output.status);
    let output = String::from_utf8_lossy(&output.stdout);
    Ok(output.lines().filter_map(|line| serde_json::from_str::<Artifact>(line).ok()).collect())
}

/// The commands that run the programs with tests, long ones first.
fn tests(root: &Path) -> Result<Vec<Command>> {
    let mut artifacts = built(root)?;
    artifacts.retain(|artifact| artifact.profile.test);
    artifacts.sort_by_key(|artifact| {
        LONG.iter().position(|name| *name == artifact.target.name).unwrap_or(LONG.len())
    });
    Ok(artifacts.iter().filter_map(Artifact::command).collect())
}

/// The commands that run programs of `cargo test --workspace`, as cargo runs them, with the arguments after `--`. Of a
/// program and its own tests, which have one name, the program.
fn built_programs<'a>(root: &Path, words: &[&'a str]) -> Result<Vec<Command>> {
    let mut parts = words.split(|word| *word == "--");
    let (names, arguments) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    let split = |name: &&'a str| match name.split_once(':') {
        Some((name, filter)) => (name, Some(filter)),
        None => (*name, None),
    };
    let wanted: BTreeMap<&str, Option<&str>> = names.iter().map(split).collect();
    let (mut missing, mut artifacts): (Vec<&str>, _) = (wanted.keys().copied().collect(), built(root)?);
    artifacts.retain(|artifact| artifact.executable.is_some() && wanted.contains_key(&*artifact.target.name));
    let is_program = |artifact: &&Artifact| !artifact.profile.test;
    let programs: Vec<String> =
        artifacts.iter().filter(is_program).map(|artifact| artifact.target.name.clone()).collect();
    artifacts.retain(|artifact| !artifact.profile.test || !programs.contains(&artifact.target.name));
    let mut commands = Vec::new();
    for artifact in artifacts {
        let Some(mut command) = artifact.command() else { continue };
        let name = &*artifact.target.name;
        missing.retain(|wanted| *wanted != name);
        command.args(wanted.get(name).copied().flatten()).args(arguments);
        commands.push(command);
    }
    ensure!(missing.is_empty(), "cargo test --workspace builds no program {}", missing.join(", "));
    Ok(commands)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(script: &str) -> Job {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        Job { name: script.to_owned(), command, is_script: true }
    }

    #[test]
    fn jobs_run_until_one_fails() {
        // The first leaves a process behind that has its output.
        let scripts = ["sleep 60 & echo", "echo second >&2", ":"];
        let start = Instant::now();
        let times = run_together(scripts.map(job).into()).unwrap();
        let mut names: Vec<&str> = times.iter().map(|(name, _)| name.as_str()).collect();
        names.sort_unstable();
        assert_eq!(names, [":", "echo second >&2", "sleep 60 & echo"]);
        assert!(start.elapsed().as_secs() < 50);
        let error = run_together(["exit 3", ":"].map(job).into()).unwrap_err();
        assert!(error.to_string().contains("exit status: 3"), "{error}");
        assert!(
            run_together(vec![job("exit 1"), Job { command: Command::new("/no/such"), ..job("") }]).is_err()
        );
    }
}
