//! `cargo xtask ci`: format, lints, generated files, tests, documentation, licences.

use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result};

use crate::{run_command, workspace_root};

/// One step: its name and the command line.
type Step = (&'static str, &'static [&'static str]);

/// In order of cost: the cheap checks fail first. The test command is the README's.
const STEPS: &[Step] = &[
    ("format", &["fmt", "--all", "--check"]),
    ("lints", &["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"]),
    ("generated command tables", &["xtask", "gen-classes", "--check"]),
    ("kernels match their sources", &["xtask", "kernels", "--check"]),
    ("tests", &["test", "--workspace"]),
    ("documentation", &["doc", "--workspace", "--no-deps"]),
    ("main job", &["run", "--release", "--example", "vector_add"]),
    ("benchmarks compile", &["bench", "--package", "benches", "--no-run"]),
];

/// Runs all steps; stops at the first that fails.
pub(crate) fn run() -> Result<()> {
    let root = workspace_root()?;
    for (name, arguments) in STEPS {
        println!("==> {name}: cargo {}", arguments.join(" "));
        let start = Instant::now();
        let mut command = Command::new(env!("CARGO"));
        command.args(*arguments).current_dir(&root).env("RUSTDOCFLAGS", "-D warnings");
        run_command(&mut command).with_context(|| format!("step '{name}'"))?;
        println!("<== {name}: {:.1} s", start.elapsed().as_secs_f64());
    }
    deny(&root)
}

/// Licences and sources of the dependencies; needs cargo-deny, which is not part of cargo.
fn deny(root: &std::path::Path) -> Result<()> {
    let present = Command::new(env!("CARGO")).args(["deny", "--version"]).output();
    if !present.is_ok_and(|output| output.status.success()) {
        println!("==> licences: SKIPPED, cargo-deny is not installed (cargo install cargo-deny --locked)");
        return Ok(());
    }
    println!("==> licences: cargo deny check bans licenses sources");
    let mut command = Command::new(env!("CARGO"));
    command.args(["deny", "check", "bans", "licenses", "sources"]).current_dir(root);
    run_command(&mut command).context("step 'licences'")
}
