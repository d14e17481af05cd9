//! `orin cuda`: runs an unmodified program on this project's libraries of CUDA's driver API and run time.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result};
use clap::Args;
use cubin::FileKind;
use orin_cli::profile::DEVICE;
use orin_cli::{ExitStatus as Status, Output, UsageError, page, warn};
use orin_sim::check::{Tools, json};
use orin_sim::serve::guard;
use serde_json::{Value, json};
use tegra_hcq::{DeviceKind, DeviceName};

use crate::check::{Found, Report};
use crate::{files, serve};

/// Environment variable that names the library.
const LIBRARY: &str = "ORIN_LIBCUDA";
/// The library's variables: devices, trace, and the file that says what the program called.
const DEVICES: &str = "ORIN_CUDA_DEVICE";
const TRACE: &str = "ORIN_CUDA_TRACE";
const REPORT: &str = "ORIN_CUDA_REPORT";
/// The folder with the library, for Triton, which searches the driver's own folders otherwise.
const TRITON: &str = "TRITON_LIBCUDA_PATH";
/// The names by which programs load the library.
const NAMES: [&str; 2] = ["libcuda.so.1", "libcuda.so"];
/// The names by which programs load the run-time library and cuBLAS, and those that cargo gives them. They are beside
/// the library.
const OTHERS: [(&str, &str); 4] = [
    ("libcudart.so.12", "libcudart.so"),
    ("libcudart.so.13", "libcudart.so"),
    ("libcublas.so.12", "libcublas.so"),
    ("libcublas.so.13", "libcublas.so"),
];
/// Where an installation has the library, below a folder `lib` of its prefix. It is none that the loader searches.
const INSTALLED: &str = "orin/cuda/libcuda.so.1";

/// Options of the command.
#[derive(Args, Debug)]
#[command(after_help = concat!("\
Examples:
  orin cuda -- python3 train.py
  orin cuda --check memcheck,racecheck --sarif findings.sarif -- python3 -m pytest tests
  orin cuda --device sim --trace calls.txt -- ./program

The library is the file that ORIN_LIBCUDA names, else libcuda.so beside this program, which `cargo build --release
-p orin-libcuda -p orin-libcudart -p orin-libcublas` builds, else lib/orin/cuda/libcuda.so.1 below its prefix or
/usr/local, which `cargo xtask install-library` writes. The command puts it, the run-time library and cuBLAS beside
it (libcudart.so.12 and .13, libcublas.so.12 and .13) first in LD_LIBRARY_PATH, and prints at the end which
functions the program has called that are not supported. If an output of this command goes to standard output, the
program prints to standard error.

Exit codes: 1 if --check finds anything, the GPU stops a channel, or --require-launches is given and no kernel was
launched; otherwise the program's own. See ", page!("cuda"), "."))]
pub(crate) struct Options {
    /// Check the kernels on the software Orin: memcheck, racecheck, initcheck, synccheck, leakcheck or all, several
    /// separated by commas. Default: memcheck
    #[arg(long, value_name = "TOOLS", num_args = 0..=1, default_missing_value = "memcheck")]
    check: Option<Tools>,
    /// The devices that the program gets
    #[arg(
        long,
        value_name = "DEVICE",
        value_delimiter = ',',
        help = format!(
            "{DEVICE}. Several, separated by commas, are all given to the program. Default: sim with --check, else \
             ORIN_CUDA_DEVICE or auto"
        )
    )]
    device: Vec<DeviceName>,
    /// Write a line for each call of the library to this file: microseconds, function, result, reason
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    #[command(flatten)]
    report: Report,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "PROGRAM")]
    program: Vec<OsString>,
}

/// Runs the program. Ends like it if nothing is found.
pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    serve::check_program(&options.program)?;
    let devices = devices(options)?;
    options.report.suppressions()?;
    let library = library()?;
    let outputs = options.report.prepare(&options.program, &[&library])?;
    let trace = options.trace.as_deref().map(|path| trace(path, &outputs)).transpose()?;

    let folder = tempfile::tempdir().context("making a folder for the library")?;
    let [findings, calls] = ["findings", "calls"].map(|name| folder.path().join(name));
    let mut command = serve::command(&options.program);
    put_first(&mut command, &library, folder.path())?;
    command.env(REPORT, &calls).envs(trace.map(|path| (TRACE, path)));
    command.envs(devices.map(|names| (DEVICES, names)));
    if let Some(tools) = options.check {
        options.report.check(&mut command, tools, &findings);
    }
    if outputs.iter().any(Output::is_stdout) {
        command.stdout(std::io::stderr());
    }
    let status = serve::plain(command)?;

    let mut found = Found::default();
    found.add_own(&findings)?;
    let calls = Calls::read(&calls);
    let mut object = json(&found.findings, options.check.unwrap_or(Tools::empty()), &found.work);
    object["unsupported"] = calls.json();
    options.report.write(&outputs, &options.program, &found, object)?;
    if !calls.initialised {
        let name = options.program[0].display();
        warn(format_args!(
            "{name} has not called cuInit of {}: it does not use CUDA's driver API, or has loaded another library",
            library.display()
        ));
    }
    if let (Some(signal), Some(_), false) = (status.signal(), options.check, findings.exists()) {
        warn(format_args!("signal {signal} has ended the program before it reported findings"));
    } else if options.report.is_text() {
        calls.print();
        options.check.iter().for_each(|tools| found.print(*tools));
    }
    // `end_like` runs no destructors.
    drop(folder);
    if options.report.is_failure(&found) {
        return Ok(Status::Failure.into());
    }
    guard::end_like(status)
}

/// What the library's variable for devices is set to; `None` to leave it alone.
fn devices(options: &Options) -> Result<Option<String>, UsageError> {
    let report = &options.report;
    if options.check.is_none() {
        if report.sarif.is_some() || report.suppressions.is_some() || report.require_launches {
            return Err(UsageError("--sarif, --suppressions and --require-launches need --check".to_owned()));
        }
        let names: Vec<String> = options.device.iter().map(ToString::to_string).collect();
        return Ok(Some(names.join(",")).filter(|names| !names.is_empty()));
    }
    let names = options.device.iter().map(|name| match name.kind {
        DeviceKind::Auto => Ok(DeviceKind::Sim.name().to_owned()),
        DeviceKind::Sim => Ok(name.to_string()),
        _ => Err(UsageError(format!("--check needs the software Orin, not {name}; give --device sim"))),
    });
    let names = names.collect::<Result<Vec<_>, _>>()?.join(",");
    Ok(Some(if names.is_empty() { DeviceKind::Sim.name().to_owned() } else { names }))
}

/// The library: as [`LIBRARY`] names it, as cargo builds it beside this program, or as installed.
fn library() -> Result<PathBuf, UsageError> {
    if let Some(path) = std::env::var_os(LIBRARY).filter(|path| !path.is_empty()) {
        let found = fs::canonicalize(&path).ok().filter(|path| path.is_file());
        let found =
            found.ok_or_else(|| UsageError(format!("{LIBRARY}: {} is not a file", path.display())))?;
        let kind = files::kind(&found).unwrap_or(FileKind::Empty);
        if kind != FileKind::Elf {
            return Err(UsageError(format!("{LIBRARY}: {}", files::not(&found, kind, "a shared library"))));
        }
        return Ok(found);
    }
    let program = std::env::current_exe().and_then(fs::canonicalize).unwrap_or_default();
    let folder = program.parent().unwrap_or(Path::new("/"));
    let prefix =
        folder.parent().filter(|prefix| *prefix != Path::new("/")).unwrap_or(Path::new("/usr/local"));
    find(folder).ok_or_else(|| {
        UsageError(format!(
            "there is no libcuda.so of this project beside {}, and no lib/{INSTALLED} of an installation: run `cargo \
             build --release -p orin-libcuda -p orin-libcudart -p orin-libcublas` or `cargo xtask install-library \
             --prefix {}`, or name the library in {LIBRARY}",
            program.display(),
            prefix.display()
        ))
    })
}

/// Finds the library for a program in a folder.
fn find(folder: &Path) -> Option<PathBuf> {
    let above = folder.parent().unwrap_or(folder);
    let built = [folder.join(NAMES[1]), above.join("release").join(NAMES[1])];
    // A pack has `lib` beside the program, an installation beside `bin`.
    let libs = [folder, above, Path::new("/usr/local")].into_iter().flat_map(|prefix| {
        let entries = fs::read_dir(prefix).into_iter().flatten().flatten().map(|entry| entry.path());
        let mut libs: Vec<_> = entries.filter(|path| is_lib(path)).map(|path| path.join(INSTALLED)).collect();
        libs.sort();
        libs
    });
    built.into_iter().chain(libs).find(|path| path.is_file())
}

/// Whether a folder is one for libraries: `lib`, `lib64`.
fn is_lib(path: &Path) -> bool {
    path.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.starts_with("lib"))
}

/// Creates the file of `--trace`. Returns its path from the root: the program may change its folder.
fn trace(path: &Path, outputs: &[Output]) -> Result<PathBuf> {
    let output = Output::prepare(path).map_err(UsageError::from)?;
    if output.is_stdout() || outputs.iter().any(|other| other.path() == path) {
        let text =
            format!("--trace {} is standard output, or another output of this command", path.display());
        return Err(UsageError(text).into());
    }
    File::create(path)
        .and_then(|_| fs::canonicalize(path))
        .map_err(|error| UsageError(format!("{} cannot be written: {error}", path.display())).into())
}

/// Lets the program find the library, the run time and cuBLAS, under all their names, before any other.
fn put_first(command: &mut Command, library: &Path, folder: &Path) -> Result<()> {
    let link = |file: &Path, name| {
        symlink(file, folder.join(name)).with_context(|| format!("linking {}", file.display()))
    };
    NAMES.into_iter().try_for_each(|name| link(library, name))?;
    for (name, built) in OTHERS {
        let found =
            [name, built].map(|file| library.with_file_name(file)).into_iter().find(|path| path.is_file());
        found.map_or(Ok(()), |file| link(&file, name))?;
    }
    let before = std::env::var_os("LD_LIBRARY_PATH").filter(|folders| !folders.is_empty());
    let mut folders = folder.as_os_str().to_owned();
    if let Some(before) = before {
        folders.push(":");
        folders.push(before);
    }
    command.env("LD_LIBRARY_PATH", folders).env(TRITON, folder);
    Ok(())
}

/// What the processes of the program have called.
#[derive(Debug, Default, PartialEq, Eq)]
struct Calls {
    /// Whether one of them has called `cuInit`.
    initialised: bool,
    /// Number of calls of missing functions, by name and reason.
    missing: BTreeMap<(String, String), u64>,
}

impl Calls {
    /// Reads the file that the library writes: a line `cuInit`, and lines `CALLS FUNCTION REASON`.
    fn read(path: &Path) -> Self {
        let mut calls = Self::default();
        for line in fs::read_to_string(path).unwrap_or_default().lines() {
            let mut fields = line.splitn(3, ' ');
            match (fields.next().map(str::parse::<u64>), fields.next(), fields.next()) {
                (Some(Ok(count)), Some(function), Some(reason)) => {
                    *calls.missing.entry((function.to_owned(), reason.to_owned())).or_default() += count;
                }
                _ => calls.initialised |= line == "cuInit",
            }
        }
        calls
    }

    fn json(&self) -> Value {
        let entries = self.missing.iter().map(
            |((function, reason), calls)| json!({ "function": function, "reason": reason, "calls": calls }),
        );
        entries.collect()
    }

    fn print(&self) {
        for ((function, reason), calls) in &self.missing {
            let plural = if *calls == 1 { "" } else { "s" };
            warn(format_args!("{function} is not supported ({reason}): {calls} call{plural}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_library_is_found_where_it_is_built_and_installed() {
        let root = tempfile::tempdir().unwrap();
        let put = |name: &str| {
            let path = root.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, "").unwrap();
            path
        };
        let (debug, bin) = (root.path().join("target/debug"), root.path().join("usr/bin"));
        fs::create_dir_all(&debug).unwrap();
        fs::create_dir_all(&bin).unwrap();
        // NVIDIA's, which is not taken.
        put("usr/lib/libcuda.so.1");
        let absent = [&debug, &bin].map(|folder| find(folder).filter(|path| path.starts_with(root.path())));
        assert_eq!(absent, [None, None]);
        for name in ["target/release/libcuda.so", "target/debug/libcuda.so"] {
            assert_eq!(put(name), find(&debug).unwrap());
        }
        assert_eq!(put("usr/lib64/orin/cuda/libcuda.so.1"), find(&bin).unwrap());
        assert_eq!(put("usr/bin/lib/orin/cuda/libcuda.so.1"), find(&bin).unwrap());
    }

    #[test]
    fn calls_of_all_processes_are_added() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("calls");
        assert_eq!(Calls::read(&path), Calls::default());
        fs::write(&path, "cuInit\n1 cuA two words\n1 cuB x\ncuInit\n4 cuA two words\nbroken\n").unwrap();
        let calls = Calls::read(&path);
        assert!(calls.initialised);
        assert_eq!(calls.json()[0], json!({ "function": "cuA", "reason": "two words", "calls": 5 }));
        assert_eq!(calls.missing.len(), 2);
    }
}
