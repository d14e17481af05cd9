//! `cargo xtask wheel`: the Python package with the C library, as a wheel for one kind of machine.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use object::read::elf::FileHeader;
use object::{Endianness, elf};
use orin_cli::{UsageError, say};

use super::glibc::{self, Version};
use super::toolchain::{Target, Toolchain};
use super::{check_place, library, notices};
use xtask::workspace;

/// The tag of libraries for musl: of 1.2, whose `time_t` Rust's crates use.
const MUSL_TAG: &str = "musllinux_1_2";
/// The oldest C library that installers know by the tag's scheme.
const OLDEST_TAG: Version = Version::new(2, 17);
/// The variables that `hatch_build.py` reads.
const LIBRARY_VARIABLE: &str = "TEGRA_HCQ_WHEEL_LIBRARY";
const PLATFORM_VARIABLE: &str = "TEGRA_HCQ_WHEEL_PLATFORM";
const NOTICES_VARIABLE: &str = "TEGRA_HCQ_WHEEL_NOTICES";

/// Options of the command.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Machine that the wheel is for, with glibc or, through cargo-zigbuild, with musl; default: this one
    #[arg(long, value_enum)]
    target: Option<Target>,
    /// Build for this glibc and newer ones, such as 2.17, with cargo-zigbuild; default: for this machine's
    #[arg(long, value_name = "VERSION")]
    glibc: Option<Version>,
    /// Folder for the wheel; created if missing
    #[arg(long, value_name = "DIR", default_value = "target/wheel")]
    out: PathBuf,
    /// Pack this shared library instead of building one
    #[arg(long, value_name = "FILE", conflicts_with_all = ["target", "glibc"])]
    library: Option<PathBuf>,
}

/// Builds the library, and the wheel with Python's pip.
pub(crate) fn run(options: &Options) -> Result<()> {
    let root = workspace::root()?;
    check_pip()?;
    check_place(&options.out)?;
    let folder = tempfile::tempdir().context("a temporary folder")?;
    let path = folder.path().join("libtegra_hcq.so");
    let shared = shared_library(&root, options)?;
    fs::write(&path, &shared).with_context(|| format!("writing {}", path.display()))?;
    let platform = platform(&shared)?;
    let licences = folder.path().join(notices::NAME);
    let target = if platform.ends_with("aarch64") { Target::Arm64 } else { Target::X86_64 };
    fs::write(&licences, notices::text(&root, target.triple(), &["tegra-hcq-capi"])?)
        .with_context(|| format!("writing {}", licences.display()))?;

    fs::create_dir_all(&options.out).with_context(|| format!("creating {}", options.out.display()))?;
    let mut pip = Command::new("python3");
    pip.args(["-m", "pip", "wheel", "--quiet", "--no-deps", "--no-cache-dir", "--wheel-dir"])
        .arg(&options.out);
    pip.arg(root.join("bindings/python")).env(LIBRARY_VARIABLE, &path).env(PLATFORM_VARIABLE, &platform);
    pip.env(NOTICES_VARIABLE, &licences);
    let status = pip.stdin(Stdio::null()).status().context("starting python3")?;
    ensure!(
        status.success(),
        "pip has not built the wheel: see above. It installs the build tool hatchling, which needs a package index; \
         without one, install hatchling and set PIP_NO_BUILD_ISOLATION=0"
    );
    let name = format!("tegra_hcq-{}-py3-none-{platform}.whl", env!("CARGO_PKG_VERSION"));
    let wheel = options.out.join(name);
    let size =
        fs::metadata(&wheel).with_context(|| format!("pip has not written {}", wheel.display()))?.len();
    say!("wheel    {} ({size} bytes)", wheel.display())?;
    say!("next     pip install {}", wheel.display())?;
    Ok(())
}

/// Refuses to work without pip, before the build.
fn check_pip() -> Result<()> {
    let mut pip = Command::new("python3");
    let status = pip.args(["-m", "pip", "--version"]).stdout(Stdio::null()).stderr(Stdio::null()).status();
    ensure!(
        status.is_ok_and(|status| status.success()),
        UsageError(
            "`python3 -m pip` does not start: install Python 3.10 or newer with pip (apt-get install \
                    python3-pip)"
                .to_owned()
        )
    );
    Ok(())
}

/// The library to pack.
fn shared_library(root: &Path, options: &Options) -> Result<Vec<u8>> {
    if let Some(path) = &options.library {
        return fs::read(path).map_err(|error| UsageError(format!("{}: {error}", path.display())).into());
    }
    let target = options.target.map_or_else(Target::host, Ok)?;
    let toolchain = Toolchain::find_for_library(target, options.glibc)?;
    say!("building for {} with all optimisations; the first build takes minutes", target.triple())?;
    Ok(library::build(root, toolchain, library::Wanted::C)?.shared)
}

/// The platform in a wheel's name: the machine, and the C library that the shared library needs.
fn platform(library: &[u8]) -> Result<String> {
    let header = elf::FileHeader64::<Endianness>::parse(library).context("not a 64-bit ELF file")?;
    let machine = match header.e_machine(header.endian().context("byte order")?) {
        elf::EM_X86_64 => "x86_64",
        elf::EM_AARCH64 => "aarch64",
        other => {
            return Err(
                UsageError(format!("the library is for machine {other}, not x86_64 or aarch64")).into()
            );
        }
    };
    if glibc::is_musl(library)? {
        return Ok(format!("{MUSL_TAG}_{machine}"));
    }
    let glibc = glibc::needed(library)?.context("the library uses no C library")?.max(OLDEST_TAG);
    Ok(format!("manylinux_{}_{machine}", glibc.to_string().replace('.', "_")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_platform_is_that_of_the_library() {
        let own = fs::read(std::env::current_exe().expect("this program")).expect("a file");
        let platform = platform(&own).expect("a platform");
        assert!(
            platform.starts_with("manylinux_2_") && platform.ends_with(std::env::consts::ARCH),
            "{platform}"
        );
        let needed = glibc::needed(&own).expect("an ELF file").expect("a C library").to_string();
        assert!(platform.contains(&needed.replace('.', "_")), "{platform}");
        let mut other = own;
        // e_machine
        other[18..20].copy_from_slice(&243_u16.to_ne_bytes());
        assert!(super::platform(&other).expect_err("RISC-V").is::<UsageError>());
        assert!(super::platform(b"#!/bin/sh").is_err());
    }

    #[test]
    fn the_package_reads_the_variables_that_are_set() {
        let hook = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../bindings/python/hatch_build.py");
        let hook = fs::read_to_string(hook).expect("the build hook");
        for variable in [LIBRARY_VARIABLE, PLATFORM_VARIABLE, NOTICES_VARIABLE] {
            assert!(hook.contains(&format!("\"{variable}\"")), "{variable}");
        }
    }
}
