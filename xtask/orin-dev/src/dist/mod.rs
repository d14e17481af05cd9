//! `cargo xtask dist`: a pack for a board without cargo, as a folder and as an archive.

mod glibc;
pub(crate) mod library;
mod notices;
mod pack;
mod toolchain;
pub(crate) mod wheel;

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use orin_cli::{UsageError, say};
use serde_json::Value;

use xtask::workspace;

use crate::commit;
use glibc::Version;
use pack::{Pack, Program};
use toolchain::{Target, Toolchain};

/// The C library of Ubuntu 22.04, the base of JetPack 6: programs for a board must not need a newer one.
const BOARD_GLIBC: Version = Version::new(2, 35);
/// The examples in a pack, next to `orin` and this program.
const EXAMPLES: [&str; 4] = ["control_loop", "from_source", "real_time", "vector_add"];

/// Options of the command.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Target of the programs: a Jetson, or a PC for the software Orin; with musl, one static program for any system
    #[arg(long, value_enum)]
    target: Target,
    /// Build for this glibc and newer ones, such as 2.17, with cargo-zigbuild; default: for this machine's
    #[arg(long, value_name = "VERSION")]
    glibc: Option<Version>,
    /// Folder for the pack, which is a folder and a .tar.gz file; created if missing
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Write into a folder that is not empty: replaces an earlier pack of this name and keeps other files
    #[arg(long)]
    force: bool,
}

/// Builds and packs. Replaces an earlier pack once the new one is complete.
pub(crate) fn run(options: &Options) -> Result<()> {
    let root = workspace::root()?;
    check_folder(&options.out, options.force)?;
    check_place(&options.out)?;
    let toolchain = Toolchain::find(options.target, options.glibc)?;

    say!("building for {} with all optimisations; the first build takes minutes", options.target.triple())?;
    let triple = options.target.triple();
    let mut documents = orin_tool::Cli::documents()?;
    let packages = [
        "orin-dev",
        "orin-tool",
        "orin-libcuda",
        "orin-libcudart",
        "orin-libcublas",
        "tegra-hcq-capi",
        "examples",
        "networks",
    ];
    documents.push((notices::NAME.to_owned(), notices::text(&root, triple, &packages)?.into_bytes()));
    let name = format!("nvgpu-rs-{}-{triple}", env!("CARGO_PKG_VERSION"));
    fs::create_dir_all(&options.out).with_context(|| format!("creating {}", options.out.display()))?;
    let made = if options.target.is_musl() {
        let programs = [build_static(&root, toolchain)?];
        let pack = Pack {
            name: &name,
            triple,
            glibc: None,
            programs: &programs,
            documents: &documents,
            library: &[],
        };
        say!("image    {} bytes in a container that has nothing else", programs[0].content.len())?;
        pack.write(&root, &options.out)?
    } else {
        let programs = build(&root, toolchain)?;
        let library = library::build(&root, toolchain, library::Wanted::All)?;
        let glibc = oldest_glibc(&programs)?.max(library.glibc()?);
        if options.target == Target::Arm64 {
            ensure!(
                glibc <= BOARD_GLIBC,
                "the programs need glibc {glibc}, JetPack 6 has {BOARD_GLIBC}: build on an older system (Ubuntu \
                 22.04, Debian 12), or with --glibc {BOARD_GLIBC}"
            );
        }
        say!("needs    glibc {glibc} or newer")?;
        let files = library.files(&root, library::LIB)?;
        let glibc = Some(glibc);
        let pack =
            Pack { name: &name, triple, glibc, programs: &programs, documents: &documents, library: &files };
        pack.write(&root, &options.out)?
    };
    say!("folder   {} ({} files)", made.folder.display(), made.files)?;
    say!("archive  {} ({} bytes)", made.archive.display(), made.archive_bytes)?;
    say!("next     scp the archive to the board, `tar -xf` it there, then ./orin doctor; see its README.md")?;
    Ok(())
}

/// Refuses a folder that is not empty, unless `force` is set.
fn check_folder(folder: &Path, force: bool) -> Result<()> {
    let refuse = |reason: &str| Err(UsageError(format!("{}: {reason}", folder.display())).into());
    match folder.read_dir().map(|mut entries| entries.next().is_none()) {
        Ok(false) if !force => {
            refuse("is not empty; name another folder, or pass --force to replace an earlier pack in it")
        }
        Ok(_) => Ok(()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Err(error) => refuse(&error.to_string()),
    }
}

/// Refuses a folder in which files cannot be created, or that cannot be created itself. Leaves nothing behind.
fn check_place(folder: &Path) -> Result<()> {
    let exists = folder.ancestors().find(|folder| folder.exists() || folder.as_os_str().is_empty());
    let place = exists.filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let refuse = |reason: &str| UsageError(format!("{} cannot be written: {reason}", folder.display()));
    ensure!(place.is_dir(), refuse(&format!("{} is not a folder", place.display())));
    let made = tempfile::tempdir_in(place);
    made.map_err(|_| refuse(&format!("folders cannot be created in {}", place.display())))?;
    Ok(())
}

/// Cargo's command that builds programs, with the one that every pack has.
fn cargo_build(root: &Path, toolchain: Toolchain) -> Command {
    let mut command = toolchain.command(root);
    // Sources without a repository have the commit in the environment.
    if let Some(commit) = env::var(commit::VARIABLE).ok().or_else(|| commit::of_folder(root)) {
        command.env(commit::VARIABLE, commit);
    }
    command.args(["--package", "orin-dev", "--bin", "orin-dev"]);
    command
}

/// Runs the command and reads the programs that it has built: name in the pack, name of cargo's target.
fn built(command: &mut Command, names: &[(&'static str, &str)]) -> Result<Vec<Program>> {
    let output = command.spawn().and_then(std::process::Child::wait_with_output).context("starting cargo")?;
    ensure!(output.status.success(), "the build failed: see above");
    let programs = names.iter().map(|&(name, target)| {
        let path =
            executable(&output.stdout, target).with_context(|| format!("cargo did not build {target}"))?;
        let content = fs::read(&path).with_context(|| format!("reading {}", path.display()))?;
        Ok(Program { name, content })
    });
    programs.collect()
}

/// Builds the programs of a pack.
fn build(root: &Path, toolchain: Toolchain) -> Result<Vec<Program>> {
    let mut command = cargo_build(root, toolchain);
    command.args([
        "--package",
        "orin-tool",
        "--bin",
        "orin",
        "--package",
        "examples",
        "--package",
        "networks",
    ]);
    command.args(EXAMPLES.iter().flat_map(|name| ["--example", name]));
    let names: Vec<_> = ["orin", "orin-dev"].into_iter().chain(EXAMPLES).map(|name| (name, name)).collect();
    built(&mut command, &names)
}

/// Builds this program statically. Under the name `orin` it has the commands of both.
fn build_static(root: &Path, toolchain: Toolchain) -> Result<Program> {
    let mut command = cargo_build(root, toolchain);
    let program = built(&mut command, &[("orin", "orin-dev")])?.remove(0);
    ensure!(
        !glibc::is_dynamic(&program.content)?,
        "the program needs a dynamic loader: do RUSTFLAGS or a configuration of cargo contain -crt-static?"
    );
    Ok(program)
}

/// The path of a built program, from cargo's messages.
fn executable(messages: &[u8], name: &str) -> Option<PathBuf> {
    let mut messages =
        messages.split(|&byte| byte == b'\n').filter_map(|line| serde_json::from_slice(line).ok());
    messages.find_map(|message: Value| {
        let named = message["target"]["name"] == name;
        message["executable"].as_str().filter(|_| named).map(PathBuf::from)
    })
}

/// The oldest C library that runs all programs.
fn oldest_glibc(programs: &[Program]) -> Result<Version> {
    let mut highest = None;
    for program in programs {
        highest = highest.max(glibc::needed(&program.content).with_context(|| program.name.to_owned())?);
    }
    highest.context("the programs use no C library: this is not the requested build")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_path_of_a_program_is_in_cargos_messages() {
        let messages = br#"{"reason":"compiler-artifact","target":{"name":"orin-dev"},"executable":null}
not json
{"reason":"compiler-artifact","target":{"name":"orin-dev"},"executable":"/t/dist/orin-dev"}
{"reason":"compiler-artifact","target":{"name":"vector_add"},"executable":"/t/dist/examples/vector_add"}
{"reason":"build-finished","success":true}"#;
        assert_eq!(executable(messages, "orin-dev"), Some("/t/dist/orin-dev".into()));
        assert_eq!(executable(messages, "vector_add"), Some("/t/dist/examples/vector_add".into()));
        assert_eq!(executable(messages, "control_loop"), None);
    }

    #[test]
    fn a_folder_that_is_not_empty_needs_force() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path();
        check_folder(path, false).unwrap();
        check_folder(&path.join("new/deep"), false).unwrap();
        fs::write(path.join("precious"), "x").unwrap();
        let error = check_folder(path, false).unwrap_err();
        assert!(error.is::<UsageError>() && error.to_string().contains("--force"), "{error}");
        check_folder(path, true).unwrap();
        assert!(check_folder(&path.join("precious"), true).unwrap_err().is::<UsageError>(), "a file");
    }
}
