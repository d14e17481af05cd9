//! `cargo xtask ci`: format, source rules, lints, generated files, features, tests, documentation,
//! packages, headers, licences, and the tests again on arm64.

use std::path::Path;
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result};
use orin_cli::say;
use orin_sim::check::CHECK_VARIABLE;

use crate::{run_command, workspace};

/// One step: its name and the command line.
type Step = (&'static str, &'static [&'static str]);

/// In order of cost: cheap checks fail first. The test command is the README's; the lints compile the
/// benchmarks. The main job reuses the build of the tests: an optimised build takes two minutes more and
/// checks nothing new.
const STEPS: &[Step] = &[
    ("format", &["fmt", "--all", "--check"]),
    ("line width, panics and examples", &["xtask", "check-source"]),
    ("import circles", &["xtask", "import-graph"]),
    ("lints", &["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"]),
    ("generated command tables", &["xtask", "gen-classes", "--check"]),
    ("kernels match their sources", &["xtask", "kernels", "--check"]),
    ("subsets of features", &["xtask", "check-features"]),
    ("tests", &["test", "--workspace"]),
    ("documentation", &["doc", "--workspace", "--no-deps", "--all-features"]),
    ("main job", &["run", "--example", "vector_add"]),
];

/// Scripts, because they install or remove what cargo does not: stale packages, cargo-deny, Debian packages.
const SCRIPTS: &[(&str, &str)] = &[
    ("C under valgrind", ".ci/c"),
    ("Python", ".ci/python"),
    ("tinygrad", ".ci/tinygrad"),
    ("packages", ".ci/packages"),
    ("licences and vulnerabilities", ".ci/cargo-deny"),
    ("arm64", ".ci/aarch64"),
];

/// Runs all steps; stops at the first failure.
pub(crate) fn run() -> Result<()> {
    let root = workspace::root()?;
    for (name, arguments) in STEPS {
        say!("==> {name}: cargo {}", arguments.join(" "))?;
        let mut command = Command::new(workspace::cargo());
        command.args(*arguments).env("RUSTDOCFLAGS", "-D warnings");
        step(name, &root, &mut command)?;
    }
    checked_suites(&root)?;
    headers(&root)?;
    for (name, script) in SCRIPTS {
        say!("==> {name}: {script}")?;
        step(name, &root, &mut Command::new(root.join(script)))?;
    }
    Ok(())
}

/// Runs the command of one step and prints its time.
fn step(name: &str, root: &Path, command: &mut Command) -> Result<()> {
    let start = Instant::now();
    run_command(command.current_dir(root)).with_context(|| format!("step '{name}'"))?;
    say!("<== {name}: {:.1} s", start.elapsed().as_secs_f64())?;
    Ok(())
}

/// The device suites whose kernels have no errors, under all checks of the software Orin: a finding makes the process
/// fail. Of the others, `jit` limits the growth of memory, and checks keep freed memory.
fn checked_suites(root: &Path) -> Result<()> {
    const SUITES: [&str; 6] = ["edge_cases", "hcq", "models", "stress", "submissions", "ioctl"];
    let name = "suites under checks";
    say!("==> {name}: {CHECK_VARIABLE}=all cargo xtask test-device --device sim, {}", SUITES.join(", "))?;
    let mut command = Command::new(workspace::cargo());
    command.args(["xtask", "test-device", "--device", "sim"]).env(CHECK_VARIABLE, "all");
    command.args(SUITES.iter().flat_map(|suite| ["--suite", suite]));
    step(name, root, &mut command)
}

/// The ioctl tables against the headers of an L4T release, if the environment names a folder with some.
fn headers(root: &Path) -> Result<()> {
    let Some(folder) = std::env::var_os("L4T_HEADERS") else {
        say!(
            "==> L4T headers: SKIPPED, L4T_HEADERS does not name a folder with the headers of an L4T release"
        )?;
        return Ok(());
    };
    say!("==> L4T headers: cargo xtask check-headers --l4t {}", folder.display())?;
    let mut command = Command::new(workspace::cargo());
    command.args(["xtask", "check-headers", "--differences", "--l4t"]).arg(folder);
    step("L4T headers", root, &mut command)
}
