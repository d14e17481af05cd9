//! `orin new`: a project with a kernel. The files of a crate are those of `examples/template`, a package of this
//! workspace; those of other languages are in `template`.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context, Result, ensure};
use clap::ValueEnum;
use orin_cli::{ExitStatus, UsageError, page, stdout, unless_closed};
use orin_compile::Compiler;

/// Options of the command.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  orin new median
  orin new projects/median --vcs none
  orin new median --path ~/nvgpu-rs      use a local checkout of this project
  orin new median --python               a project in Python; --c: in C

The crate has a kernel, a build script that compiles it, a test under checks and a CI file. The compiled kernel
is part of it, so that NVRTC is needed only after a change of the kernel. A project in Python or C has the same, but no
build script.")]
pub(crate) struct Options {
    /// The folder to make; its last part is the name of the project
    #[arg(value_name = "NAME")]
    folder: PathBuf,
    /// Name of the package, if it is not that of the folder
    #[arg(long)]
    name: Option<String>,
    /// Version control [default: git, unless the folder is inside of a repository or git is not installed]
    #[arg(long, value_enum)]
    vcs: Option<Vcs>,
    /// Use the crates of this local checkout of the project instead of its git address
    #[arg(long, value_name = "CHECKOUT", conflicts_with_all = ["python", "c"])]
    path: Option<PathBuf>,
    /// Make a project in Python, for the package `tegra_hcq`
    #[arg(long, conflicts_with = "name")]
    python: bool,
    /// Make a project in C, for the library `libtegra_hcq`, with a Makefile
    #[arg(long, conflicts_with_all = ["python", "name"])]
    c: bool,
}

/// A file of a project: its path and its content in the template.
type File = (&'static str, &'static [u8]);

/// A language of projects.
struct Language {
    files: &'static [File],
    /// Whether cargo builds it.
    is_crate: bool,
    /// What the project is, in the message at the end.
    what: &'static str,
    /// The commands to try, with what they do.
    steps: [[&'static str; 2]; 2],
}

/// Version control of the new crate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Vcs {
    Git,
    None,
}

/// Names of the template's package and library.
const NAMES: [&str; 2] = ["orin-template", "orin_template"];
/// Where the template's dependencies are.
const CRATES: &str = "path = \"../../crates/";
/// The address of the project's repository.
const REPOSITORY: &str = env!("CARGO_PKG_REPOSITORY");
/// The file of [`Vcs::Git`].
const GITIGNORE: &str = ".gitignore";

macro_rules! template {
    ($($name:literal = $file:literal;)*) => {
        &[$(($name, include_bytes!(concat!("../template/", $file)))),*]
    };
}

/// A crate. The links in `template` have other names where cargo gives a name a meaning.
const RUST: Language = Language {
    files: template! {
        "Cargo.toml" = "manifest.toml";
        "build.rs" = "build.rs";
        "src/lib.rs" = "src/lib.rs";
        "src/main.rs" = "src/main.rs";
        "tests/kernels.rs" = "tests/kernels.rs";
        "kernels/saxpy.cu" = "kernels/saxpy.cu";
        "kernels/saxpy.sm_87.cubin" = "kernels/saxpy.sm_87.cubin";
        "kernels/kernels.lock" = "kernels/kernels.lock";
        ".github/workflows/ci.yml" = "ci.yml";
        ".gitignore" = "gitignore";
        "README.md" = "README.md";
    },
    is_crate: true,
    what: "package",
    steps: [
        ["cargo test", "on the software Orin, with memcheck, racecheck, initcheck and synccheck"],
        ["cargo run", "on the Orin's GPU, else a desktop GPU, else the software Orin"],
    ],
};

/// A module and its test.
const PYTHON: Language = Language {
    files: template! {
        "saxpy.py" = "python/saxpy.py";
        "tests/test_saxpy.py" = "python/tests/test_saxpy.py";
        "kernels/saxpy.cu" = "kernels/saxpy.cu";
        "kernels/saxpy.sm_87.cubin" = "kernels/saxpy.sm_87.cubin";
        ".github/workflows/ci.yml" = "python/ci.yml";
        ".gitignore" = "python/gitignore";
        "README.md" = "python/README.md";
    },
    is_crate: false,
    what: "Python project",
    steps: [
        ["orin check -- python3 -m unittest discover tests", "on the software Orin, with checks"],
        ["python3 saxpy.py", "on the Orin's GPU, else a desktop GPU, else the software Orin"],
    ],
};

/// A program with a Makefile.
const C: Language = Language {
    files: template! {
        "Makefile" = "c/Makefile";
        "src/saxpy.h" = "c/src/saxpy.h";
        "src/saxpy.c" = "c/src/saxpy.c";
        "src/main.c" = "c/src/main.c";
        "tests/test_saxpy.c" = "c/tests/test_saxpy.c";
        "kernels/saxpy.cu" = "kernels/saxpy.cu";
        "kernels/saxpy.sm_87.cubin" = "kernels/saxpy.sm_87.cubin";
        ".github/workflows/ci.yml" = "c/ci.yml";
        ".gitignore" = "c/gitignore";
        "README.md" = "c/README.md";
    },
    is_crate: false,
    what: "C project",
    steps: [
        ["make check", "on the software Orin, with checks"],
        ["make run", "on the Orin's GPU, else a desktop GPU, else the software Orin"],
    ],
};

/// Added to the manifest: a package of a workspace cannot have it.
const PROFILE: &str = "
# Without these lines a debug build interprets kernels on the software Orin about 15 times slower.
[profile.dev.package]
orin-sim.opt-level = 2
sass.opt-level = 2
";
/// Added to the manifest of a package that is inside of another one's folder.
const WORKSPACE: &str = "
# Keeps the package out of the workspace above it.
[workspace]
";

/// Words of Rust, which cannot name a crate.
const KEYWORDS: [&str; 53] = [
    "abstract", "as", "async", "await", "become", "box", "break", "const", "continue", "crate", "do", "dyn",
    "else", "enum", "extern", "false", "final", "fn", "for", "gen", "if", "impl", "in", "let", "loop",
    "macro", "match", "mod", "move", "mut", "override", "priv", "pub", "ref", "return", "self", "Self",
    "static", "struct", "super", "trait", "true", "try", "type", "typeof", "unsafe", "unsized", "use",
    "virtual", "where", "while", "yield", "_",
];
/// Crates of Rust and of the template, and folders of cargo's builds.
const TAKEN: [&str; 11] = [
    "alloc",
    "build",
    "core",
    "deps",
    "examples",
    "incremental",
    "orin_build",
    "proc_macro",
    "std",
    "tegra_hcq",
    "test",
];

/// Makes the crate and prints the next steps.
pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let folder = &options.folder;
    let of_folder = || folder.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let name = options.name.clone().unwrap_or_else(of_folder);
    let language = match (options.python, options.c) {
        (true, _) => &PYTHON,
        (_, true) => &C,
        _ => &RUST,
    };
    let checked = if language.is_crate { check_name(&name) } else { check_title(&name) };
    if let Err(reason) = checked {
        let cure =
            if options.name.is_some() || !language.is_crate { "" } else { "; name the package with --name" };
        return Err(UsageError(format!("the name {name:?} {reason}{cure}")).into());
    }
    let checkout = options.path.as_deref().map(checkout).transpose()?;
    if folder.symlink_metadata().is_ok() {
        return Err(UsageError(format!("{} exists already: choose another folder", folder.display())).into());
    }
    let parent = folder.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    fs::create_dir_all(parent)
        .and_then(|()| fs::create_dir(folder))
        .map_err(|error| UsageError(format!("{} cannot be made: {error}", folder.display())))?;
    let vcs = options.vcs.unwrap_or_else(|| usual_vcs(parent));
    let made = fill(folder, language, &name, checkout.as_deref(), vcs);
    if made.is_err() {
        // The folder was made above.
        let _ = fs::remove_dir_all(folder);
    }
    made?;
    unless_closed(next_steps(&mut stdout(), folder, language, &name))?;
    Ok(ExitStatus::Success.into())
}

/// Whether a package may have a name, by cargo's rules.
fn check_name(name: &str) -> Result<(), &'static str> {
    if name.is_empty() {
        return Err("is empty");
    }
    if name.starts_with(|c: char| !c.is_ascii_alphabetic() && c != '_') {
        return Err("must begin with a letter (a to z) or an underscore");
    }
    if name.contains(|c: char| !c.is_ascii_alphanumeric() && c != '-' && c != '_') {
        return Err("must have only letters (a to z), digits, hyphens and underscores");
    }
    let library = name.replace('-', "_");
    if KEYWORDS.contains(&&*library) {
        return Err("is a word of Rust");
    }
    if TAKEN.contains(&&*library) {
        return Err("is that of a crate of Rust, of a crate that the package uses, or of a folder of cargo");
    }
    Ok(())
}

/// Whether a project in another language may have a name: it is only a title.
fn check_title(name: &str) -> Result<(), &'static str> {
    if name.is_empty() { Err("is empty") } else { Ok(()) }
}

/// The folder of crates in a checkout of this project.
fn checkout(path: &Path) -> Result<PathBuf, UsageError> {
    let crates = path.join("crates");
    let wrong = |reason: String| UsageError(format!("--path {}: {reason}", path.display()));
    let crates = crates.canonicalize().map_err(|error| wrong(format!("{}: {error}", crates.display())))?;
    let missing =
        ["tegra-hcq", "orin-build"].iter().find(|name| !crates.join(name).join("Cargo.toml").is_file());
    match missing {
        Some(name) => Err(wrong(format!("no checkout of {REPOSITORY}: there is no crate {name} in it"))),
        None => Ok(crates),
    }
}

/// The version control without an option.
fn usual_vcs(parent: &Path) -> Vcs {
    let mut git = Command::new("git");
    git.arg("-C").arg(parent).args(["rev-parse", "--is-inside-work-tree"]);
    // Fails outside of a repository.
    let done = git.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
    if done.is_ok_and(|status| !status.success()) { Vcs::Git } else { Vcs::None }
}

/// Writes the files.
fn fill(folder: &Path, language: &Language, name: &str, crates: Option<&Path>, vcs: Vcs) -> Result<()> {
    for &(file, content) in language.files {
        if file == GITIGNORE && vcs == Vcs::None && !is_in_repository(folder) {
            continue;
        }
        let path = folder.join(file);
        fs::create_dir_all(path.parent().context("a file is in a folder")?)?;
        let content = match core::str::from_utf8(content) {
            Ok(text) => adapted(file, text, name, crates, folder).into_bytes(),
            Err(_) => content.to_vec(),
        };
        fs::write(&path, content).with_context(|| format!("writing {}", path.display()))?;
    }
    if vcs == Vcs::Git {
        let output =
            Command::new("git").args(["init", "--quiet"]).arg(folder).output().context("running git init")?;
        ensure!(output.status.success(), "git init: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(())
}

/// A file of the template for a package.
fn adapted(file: &str, text: &str, name: &str, crates: Option<&Path>, folder: &Path) -> String {
    let text = text.replace(NAMES[0], name).replace(NAMES[1], &name.replace('-', "_"));
    let text = text.replace("REPOSITORY/", concat!(env!("CARGO_PKG_REPOSITORY"), "/"));
    if file != "Cargo.toml" {
        return text;
    }
    let mut lines = String::new();
    for line in text.lines() {
        let adapted = line.split_once(CRATES).and_then(|(before, after)| {
            let (package, rest) = after.split_once('"')?;
            let place = match crates {
                Some(crates) => format!("path = {:?}", crates.join(package).display().to_string()),
                None => format!("git = \"{REPOSITORY}\""),
            };
            Some(format!("{before}{place}{rest}"))
        });
        lines += adapted.as_deref().unwrap_or(line);
        lines.push('\n');
    }
    let workspace = if is_in_workspace(folder) { WORKSPACE } else { "" };
    lines + PROFILE + workspace
}

/// Whether a folder above has a file.
fn above(folder: &Path, has: impl Fn(&Path) -> bool) -> bool {
    folder.canonicalize().is_ok_and(|folder| folder.ancestors().skip(1).any(has))
}

fn is_in_repository(folder: &Path) -> bool {
    above(folder, |folder| folder.join(".git").exists())
}

/// Whether cargo would take the package for one of a workspace.
fn is_in_workspace(folder: &Path) -> bool {
    above(folder, |folder| folder.join("Cargo.toml").is_file())
}

fn next_steps(out: &mut dyn Write, folder: &Path, language: &Language, name: &str) -> Result<()> {
    let Language { is_crate, what, steps, .. } = language;
    let shown = folder.display();
    writeln!(out, "{shown}: the {what} `{name}`, with a kernel, its test under checks and a CI file")?;
    writeln!(out, "\n  cd {shown}")?;
    let width = steps.iter().map(|[command, _]| command.len()).max().unwrap_or_default();
    for [command, does] in steps {
        writeln!(out, "  {command:width$}    # {does}")?;
    }
    writeln!(out)?;
    if !is_crate {
        let page = page!("install");
        writeln!(
            out,
            "README.md says how to compile the kernel after a change. To install the library: {page}"
        )?;
        return Ok(());
    }
    match Compiler::shared() {
        Ok(compiler) => {
            let ((major, minor), library) = (compiler.version(), compiler.library());
            writeln!(
                out,
                "The kernel in kernels/saxpy.cu is compiled after a change, by NVRTC {major}.{minor} ({library})."
            )?;
        }
        Err(_) => writeln!(
            out,
            "To change the kernel in kernels/saxpy.cu you need NVRTC, which was not found: pip install \
             nvidia-cuda-nvrtc-cu12\nin an active Python environment, or apt install cuda-nvrtc-12-6 of JetPack."
        )?,
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_follow_cargo_s_rules() {
        for name in ["median", "my-kernels", "_x", "k3"] {
            assert_eq!(check_name(name), Ok(()), "{name}");
        }
        for (name, reason) in [
            ("", "is empty"),
            ("3d", "must begin"),
            ("-x", "must begin"),
            ("a b", "must have only"),
            ("a.b", "must have only"),
            ("größe", "must have only"),
            ("loop", "is a word"),
            ("test", "is that of a crate"),
            ("tegra-hcq", "is that of a crate"),
        ] {
            assert!(check_name(name).is_err_and(|text| text.starts_with(reason)), "{name}");
        }
    }
}
