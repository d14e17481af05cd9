//! `cargo xtask site`: the documentation as a folder of HTML that works offline: the book made of `docs/`, and the
//! references of the Rust, C and Python libraries. Every link in it is checked.

mod book;
mod html;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context, Result, bail};
use clap::Args;
use orin_cli::{UsageError, say};
use xtask::workspace::{self, run_command};

/// Folders of the references in the site. Pages link to the sources instead, and [`book`] replaces these links.
const RUST: &str = "rust";
const C: &str = "c";
const PYTHON: &str = "python";

/// File in each folder that the command has written.
const MARK: &str = "SITE";

/// Options of the command.
#[derive(Args)]
pub(crate) struct Options {
    /// The folder to write; an earlier site in it is replaced
    #[arg(long, value_name = "DIR", default_value = "target/site")]
    out: PathBuf,
    /// Build the book alone, in seconds; links to the references are not checked
    #[arg(long)]
    book: bool,
}

/// Builds the site and checks its links; exit code 1 if one leads nowhere.
pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let root = workspace::root()?;
    let out = std::path::absolute(&options.out)?;
    let mdbook = find("mdbook", "cargo install mdbook@0.5 --no-default-features --features search --locked")?;
    if !options.book {
        find("doxygen", "apt-get install doxygen")?;
        find("pdoc", "pip install pdoc")?;
    }
    replace(&out)?;
    let stage = root.join("target/site-source");
    replace(&stage)?;
    book::stage(&root, &stage)?;
    run_command(Command::new(mdbook).arg("build").arg(&stage).arg("--dest-dir").arg(&out))?;
    // mdBook has emptied the folder.
    mark(&out)?;
    if !options.book {
        rust(&root, &out.join(RUST))?;
        c(&root, &out)?;
        python(&root, &out.join(PYTHON))?;
    }
    let references: &[&str] = if options.book { &[RUST, C, PYTHON] } else { &[] };
    // rustdoc checks its own pages, and shows documentation of other libraries.
    let (pages, broken) = html::check(&out, RUST, references)?;
    for fault in &broken {
        say!("{fault}")?;
    }
    say!("{}: {pages} pages, {} links lead nowhere", out.join("index.html").display(), broken.len())?;
    Ok(if broken.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The program of this name in PATH or in the cache that `.ci/site` fills, or an error that says how to install it.
fn find(name: &str, install: &str) -> Result<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let cache = std::env::var_os("XDG_CACHE_HOME").filter(|folder| !folder.is_empty()).map(PathBuf::from);
    let cache = cache.or_else(|| Some(std::env::home_dir()?.join(".cache")));
    let mut folders: Vec<PathBuf> = std::env::split_paths(&path).collect();
    folders.extend(cache.map(|cache| cached(&cache.join("nvgpu-rs"), name)).unwrap_or_default());
    found(&folders, name)
        .ok_or_else(|| UsageError(format!("the site needs {name}: {install} (.ci/site installs all)")).into())
}

/// The folders `NAME-VERSION/bin` of a cache; the last in alphabetical order comes first.
fn cached(cache: &Path, name: &str) -> Vec<PathBuf> {
    let entries = cache.read_dir().into_iter().flatten().flatten();
    let is_ours = |folder: &std::fs::DirEntry| {
        folder.file_name().to_string_lossy().strip_prefix(name).is_some_and(|rest| rest.starts_with('-'))
    };
    let mut folders: Vec<PathBuf> = entries.filter(is_ours).map(|folder| folder.path().join("bin")).collect();
    folders.sort_unstable_by(|a, b| b.cmp(a));
    folders
}

/// The first file of this name in the folders.
fn found(folders: &[PathBuf], name: &str) -> Option<PathBuf> {
    folders.iter().map(|folder| folder.join(name)).find(|path| path.is_file())
}

/// Makes an empty folder in place of an earlier output.
fn replace(folder: &Path) -> Result<()> {
    let is_ours = folder.join(MARK).exists() || !folder.exists();
    if !is_ours && folder.read_dir()?.next().is_some() {
        return Err(UsageError(format!("{} has other files than a site", folder.display())).into());
    }
    if folder.exists() {
        std::fs::remove_dir_all(folder).with_context(|| folder.display().to_string())?;
    }
    std::fs::create_dir_all(folder)?;
    mark(folder)
}

/// Marks a folder as one to replace.
fn mark(folder: &Path) -> Result<()> {
    let path = folder.join(MARK);
    std::fs::write(&path, "Written by `cargo xtask site`, which replaces this folder.\n")
        .with_context(|| path.display().to_string())
}

/// The reference of the Rust libraries.
fn rust(root: &Path, out: &Path) -> Result<()> {
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
    let mut command = Command::new(workspace::cargo());
    command.args(["doc", "--quiet", "--no-deps", "--all-features", "--lib"]).current_dir(root);
    let target = target.join("site-rust");
    command.arg("--target-dir").arg(&target);
    for library in workspace::targets(root)?.iter().filter(|target| target.is_library()) {
        command.args(["--package", &library.package]);
    }
    run_command(&mut command)?;
    copy(&target.join("doc"), out)
}

/// The reference of the C library.
fn c(root: &Path, out: &Path) -> Result<()> {
    let mut settings = std::fs::read_to_string(root.join("docs/Doxyfile"))?;
    settings +=
        &format!("\nOUTPUT_DIRECTORY = \"{}\"\nHTML_OUTPUT = {C}\nGENERATE_HTML = YES\n", out.display());
    let mut command = Command::new("doxygen");
    let mut child = command.arg("-").current_dir(root).stdin(Stdio::piped()).spawn()?;
    // PANIC: the input is a pipe.
    child.stdin.take().expect("a pipe").write_all(settings.as_bytes())?;
    let status = child.wait()?;
    if !status.success() {
        bail!("doxygen ended with {status}");
    }
    Ok(())
}

/// The reference of the Python package.
fn python(root: &Path, out: &Path) -> Result<()> {
    let mut command = Command::new("pdoc");
    command
        .args(["--docformat", "restructuredtext", "--no-show-source", "--output-directory"])
        .arg(out)
        .arg("tegra_hcq");
    run_command(
        command.env("PYTHONPATH", root.join("bindings/python/src")).env("PYTHONDONTWRITEBYTECODE", "1"),
    )
}

/// Copies a folder.
fn copy(from: &Path, to: &Path) -> Result<()> {
    std::fs::create_dir_all(to)?;
    for entry in std::fs::read_dir(from).with_context(|| from.display().to_string())? {
        let path = entry?.path();
        let Some(name) = path.file_name() else { continue };
        if path.is_dir() {
            copy(&path, &to.join(name))?;
        } else {
            std::fs::copy(&path, to.join(name)).with_context(|| path.display().to_string())?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mdbook_is_found_where_ci_installs_it() {
        let cache = tempfile::tempdir().unwrap();
        let program = |folder: &str| {
            let folder = cache.path().join(folder).join("bin");
            std::fs::create_dir_all(&folder).unwrap();
            std::fs::write(folder.join("mdbook"), "").unwrap();
            folder
        };
        let (old, new) = (program("mdbook-0.5.3"), program("mdbook-0.5.4"));
        program("mdbookish");
        let folders = cached(cache.path(), "mdbook");
        assert_eq!(folders, [new.clone(), old]);
        assert_eq!(found(&folders, "mdbook"), Some(new.join("mdbook")));
        assert_eq!(found(&folders, "doxygen"), None);
        assert!(cached(&cache.path().join("missing"), "mdbook").is_empty());
        let script = std::fs::read_to_string(workspace::root().unwrap().join(".ci/site")).unwrap();
        assert!(script.contains("/nvgpu-rs/mdbook-$version") && script.contains("$cache/bin/mdbook"));
    }
}
