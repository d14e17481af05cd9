//! Requirements of a cross build: the target's standard library and a linker.

use std::env;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use clap::ValueEnum;
use orin_cli::UsageError;

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

    /// The variable that selects another linker in cargo.
    pub(crate) fn linker_variable(self) -> String {
        format!("CARGO_TARGET_{}_LINKER", self.triple().to_uppercase().replace('-', "_"))
    }
}

/// Returns the linker for cargo, `None` for cargo's default.
///
/// # Errors
///
/// Returns a [`UsageError`] with the cure if the target's standard library or a linker is not installed.
pub(crate) fn check(target: Target) -> Result<Option<&'static str>> {
    check_standard_library(target)?;
    let variable = target.linker_variable();
    let (compiler, packages) = target.linker();
    if let Some(chosen) = env::var_os(&variable) {
        ensure!(
            starts(&chosen),
            UsageError(format!("{variable} names {}, which cannot be started", chosen.display()))
        );
        return Ok(None);
    }
    if host()?.as_deref() == Some(target.with_glibc().triple()) {
        return Ok(None);
    }
    if starts(compiler.as_ref()) {
        return Ok(Some(compiler));
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

fn starts(program: &std::ffi::OsStr) -> bool {
    let version = Command::new(program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    version.is_ok_and(|status| status.success())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_variable_is_the_one_of_cargo() {
        assert_eq!(Target::Arm64.linker_variable(), "CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER");
        assert_eq!(Target::X86_64.linker_variable(), "CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_LINKER");
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
            && env::var_os(target.linker_variable()).is_none()
        {
            assert_eq!(check(*target).unwrap(), None, "cargo's own choice");
        }
    }
}
