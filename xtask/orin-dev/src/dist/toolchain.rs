//! Builds for a target: the target's standard library, a linker, cargo's command.

use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use clap::ValueEnum;
use orin_cli::UsageError;

use super::glibc::Version;
use xtask::workspace;

/// Target machine of a pack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Target {
    /// A Jetson.
    #[value(name = "aarch64-unknown-linux-gnu")]
    Arm64,
    /// A PC, for the software Orin.
    #[value(name = "x86_64-unknown-linux-gnu")]
    X86_64,
    /// A Jetson with any system: one static program.
    #[value(name = "aarch64-unknown-linux-musl")]
    Arm64Musl,
    /// A PC with any system: one static program.
    #[value(name = "x86_64-unknown-linux-musl")]
    X86_64Musl,
}

impl Target {
    /// This machine.
    ///
    /// # Errors
    ///
    /// Returns a [`UsageError`] for another kind of machine.
    pub(crate) fn host() -> Result<Self> {
        let host = host()?.unwrap_or_default();
        let known = [Self::Arm64, Self::X86_64].into_iter().find(|target| target.triple() == host);
        known.ok_or_else(|| {
            UsageError(format!("there are builds for aarch64 and x86_64 Linux with glibc, not for {host}"))
                .into()
        })
    }

    /// The target triple.
    pub(crate) fn triple(self) -> &'static str {
        match self {
            Self::Arm64 => "aarch64-unknown-linux-gnu",
            Self::X86_64 => "x86_64-unknown-linux-gnu",
            Self::Arm64Musl => "aarch64-unknown-linux-musl",
            Self::X86_64Musl => "x86_64-unknown-linux-musl",
        }
    }

    /// Whether programs for the target contain their C library unless told otherwise.
    pub(crate) fn is_musl(self) -> bool {
        matches!(self, Self::Arm64Musl | Self::X86_64Musl)
    }

    /// The target of the same machine whose C library is glibc, for [`Target::is_musl`] ones.
    pub(crate) fn with_glibc(self) -> Self {
        match self {
            Self::Arm64 | Self::Arm64Musl => Self::Arm64,
            Self::X86_64 | Self::X86_64Musl => Self::X86_64,
        }
    }

    /// Debian's and Ubuntu's cross compiler, used as the linker, and its packages.
    fn linker(self) -> (&'static str, &'static str) {
        // It also links programs with musl, whose start files and library come with Rust's.
        match self.with_glibc() {
            Self::X86_64 => ("x86_64-linux-gnu-gcc", "gcc-x86-64-linux-gnu libc6-dev-amd64-cross"),
            _ => ("aarch64-linux-gnu-gcc", "gcc-aarch64-linux-gnu libc6-dev-arm64-cross"),
        }
    }

    /// Cargo's variable of a setting for the target, such as `LINKER`.
    fn variable(self, setting: &str) -> String {
        format!("CARGO_TARGET_{}_{setting}", self.triple().to_uppercase().replace('-', "_"))
    }
}

/// What builds for a target.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Toolchain {
    /// The target.
    pub(crate) target: Target,
    linker: Linker,
}

/// What links for a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Linker {
    /// Cargo's choice, or the user's.
    Default,
    /// A cross compiler.
    Cross(&'static str),
    /// Zig, for this C library and newer ones; for musl there is no choice.
    Zig(Option<Version>),
}

impl Toolchain {
    /// Finds what builds programs for a target, or shared libraries for glibc; with `glibc`, for that C library and
    /// newer ones.
    ///
    /// # Errors
    ///
    /// Returns a [`UsageError`] with the cure if the target's standard library or a linker is not installed, and if
    /// the target has no glibc to choose.
    pub(crate) fn find(target: Target, glibc: Option<Version>) -> Result<Self> {
        check_standard_library(target)?;
        if glibc.is_none() {
            return Ok(Self { target, linker: linker(target)? });
        }
        ensure!(!target.is_musl(), UsageError(format!("--glibc: {} has no glibc", target.triple())));
        check_zig()?;
        Ok(Self { target, linker: Linker::Zig(glibc) })
    }

    /// Finds what builds shared libraries for a target. Rust brings a static musl only, so zig links with the shared
    /// one.
    ///
    /// # Errors
    ///
    /// Like [`Self::find`].
    pub(crate) fn find_for_library(target: Target, glibc: Option<Version>) -> Result<Self> {
        if !target.is_musl() || glibc.is_some() {
            return Self::find(target, glibc);
        }
        check_standard_library(target)?;
        check_zig()?;
        Ok(Self { target, linker: Linker::Zig(None) })
    }

    /// Cargo's command that builds for distribution, without packages; messages are JSON on standard output, progress
    /// goes to standard error.
    pub(crate) fn command(&self, root: &Path) -> Command {
        let triple = self.target.triple();
        let (verb, target) = match self.linker {
            Linker::Zig(Some(glibc)) => ("zigbuild", format!("{triple}.{glibc}")),
            Linker::Zig(None) => ("zigbuild", triple.to_owned()),
            Linker::Default | Linker::Cross(_) => ("build", triple.to_owned()),
        };
        let mut command = Command::new(workspace::cargo());
        command.current_dir(root).stdout(Stdio::piped());
        // Backtraces keep function names; this machine's files and lines are useless elsewhere.
        command.env("CARGO_PROFILE_DIST_DEBUG", "false").env("CARGO_PROFILE_DIST_STRIP", "debuginfo");
        match self.linker {
            Linker::Cross(compiler) => {
                command.env(self.target.variable("LINKER"), compiler);
            }
            Linker::Zig(None) => {
                command.env(self.target.variable("RUSTFLAGS"), "-C target-feature=-crt-static");
            }
            Linker::Default | Linker::Zig(Some(_)) => {}
        }
        command.args([verb, "--profile", "dist", "--locked", "--target", &target]);
        command.args(["--message-format", "json-render-diagnostics"]);
        command
    }
}

/// Returns the linker for programs.
///
/// # Errors
///
/// Returns a [`UsageError`] with the cure if no linker is installed.
fn linker(target: Target) -> Result<Linker> {
    let variable = target.variable("LINKER");
    let (compiler, packages) = target.linker();
    if let Some(chosen) = env::var_os(&variable) {
        ensure!(
            starts(&chosen),
            UsageError(format!("{variable} names {}, which cannot be started", chosen.display()))
        );
        return Ok(Linker::Default);
    }
    if host()?.as_deref() == Some(target.with_glibc().triple()) {
        return Ok(Linker::Default);
    }
    if starts(compiler.as_ref()) {
        return Ok(Linker::Cross(compiler));
    }
    let error = format!(
        "no linker for {}: {compiler} does not start. Install it (apt-get install {packages}), or name \
         another one in {variable}",
        target.triple()
    );
    Err(UsageError(error).into())
}

fn rustc() -> Command {
    Command::new(env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()))
}

fn check_standard_library(target: Target) -> Result<()> {
    let triple = target.triple();
    let output = rustc()
        .args(["--print", "target-libdir", "--target", triple])
        .output()
        .context("querying rustc for its libraries")?;
    let folder = PathBuf::from(String::from_utf8_lossy(&output.stdout).trim());
    let is_std = |name: &str| name.starts_with("libstd-") && name.ends_with(".rlib");
    let found = output.status.success()
        && folder.read_dir().is_ok_and(|entries| {
            entries.flatten().any(|entry| entry.file_name().to_str().is_some_and(is_std))
        });
    ensure!(
        found,
        UsageError(format!(
            "the standard library for {triple} is not installed: run `rustup target add {triple}` (without \
             rustup, install your distribution's package of it)"
        ))
    );
    Ok(())
}

/// The host triple of rustc.
fn host() -> Result<Option<String>> {
    let output = rustc().arg("-vV").output().context("querying rustc for its version")?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    Ok(text.lines().find_map(|line| line.strip_prefix("host: ")).map(str::to_owned))
}

fn check_zig() -> Result<()> {
    let found = starts("cargo-zigbuild".as_ref());
    let error = "cargo-zigbuild does not start: install it and zig (pip install cargo-zigbuild ziglang)";
    ensure!(found, UsageError(error.to_owned()));
    Ok(())
}

fn starts(program: &std::ffi::OsStr) -> bool {
    let version = Command::new(program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    version.is_ok_and(|status| status.success())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_variable_is_the_one_of_cargo() {
        assert_eq!(Target::Arm64.variable("LINKER"), "CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER");
        assert_eq!(Target::X86_64.variable("LINKER"), "CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_LINKER");
    }

    #[test]
    fn the_names_of_the_option_are_those_of_rustc() {
        for target in Target::value_variants() {
            assert_eq!(target.to_possible_value().unwrap().get_name(), target.triple());
        }
    }

    #[test]
    fn this_machine_can_build_its_own_programs() {
        let host = host().unwrap().unwrap();
        let own = Target::value_variants().iter().find(|target| target.triple() == host);
        // Other hosts cannot be checked here.
        if let Some(target) = own
            && env::var_os(target.variable("LINKER")).is_none()
        {
            let found = Toolchain::find(*target, None).unwrap();
            assert_eq!(found.linker, Linker::Default);
            assert!(
                Toolchain::find(Target::X86_64Musl, Some(Version::new(2, 17))).is_err(),
                "musl has no glibc"
            );
        }
    }

    #[test]
    fn zig_gets_the_c_library_with_the_target() {
        let line = |target, linker| {
            let command = Toolchain { target, linker }.command(Path::new("/"));
            let words: Vec<_> = command.get_args().map(|word| word.to_str().unwrap().to_owned()).collect();
            let variables: Vec<_> =
                command.get_envs().map(|(name, _)| name.to_str().unwrap().to_owned()).collect();
            (words.join(" "), variables.join(" "))
        };
        let (words, _) = line(Target::Arm64, Linker::Zig(Some(Version::new(2, 17))));
        assert!(
            words.starts_with("zigbuild ") && words.contains(" aarch64-unknown-linux-gnu.2.17 "),
            "{words}"
        );
        let (words, variables) = line(Target::X86_64Musl, Linker::Zig(None));
        assert!(
            words.contains(" x86_64-unknown-linux-musl ") && variables.contains("_MUSL_RUSTFLAGS"),
            "{words}"
        );
        let (words, variables) = line(Target::Arm64, Linker::Cross("gcc"));
        assert!(words.starts_with("build ") && variables.contains("_GNU_LINKER"), "{words} {variables}");
    }
}
