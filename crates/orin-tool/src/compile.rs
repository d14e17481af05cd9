//! `orin compile`: CUDA C++ or PTX to a cubin.

use std::fs;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use cubin::Cubin;
use orin_cli::{ExitStatus, Output, Progress, UsageError, stdout, unless_closed, warn};
use serde_json::json;
use tegra_hcq::{Compiler, Error, Linker, Source};

/// Options of the command.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  orin compile add.cu                            writes add.cubin for the Orin
  orin compile add.cu -D N=4 -I include --option=--use_fast_math
  orin compile add.ptx -o add.cubin              PTX, by nvJitLink
  orin compile add.cu --arch sm_90 -o - | orin decode cubin -

CUDA C++ is compiled by NVIDIA's NVRTC, PTX by nvJitLink. They are found in CUDA_HOME, in an active Python
environment (pip install nvidia-cuda-nvrtc-cu12 nvidia-nvjitlink-cu12), in the folders of the dynamic loader,
and in /usr/local/cuda* (JetPack, CUDA toolkits); NVGPU_NVRTC and NVGPU_NVJITLINK name a file or folder.

Exit code 1: the source does not compile. Exit code 2: the compiler is not installed.")]
pub(crate) struct Options {
    /// The source: FILE.cu, or FILE.ptx; - is standard input, CUDA C++
    file: PathBuf,
    /// The cubin; - is standard output [default: FILE.cubin]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Architecture: sm_87 (Jetson Orin), sm_80, sm_86, sm_89 or sm_90
    #[arg(long, value_name = "SM", default_value = "sm_87", value_parser = architecture)]
    arch: (u32, u32),
    /// Search this folder for headers; may be given several times
    #[arg(short = 'I', long = "include", value_name = "FOLDER")]
    include: Vec<PathBuf>,
    /// Define a macro: NAME or NAME=VALUE; may be given several times
    #[arg(short = 'D', long = "define", value_name = "NAME[=VALUE]")]
    define: Vec<String>,
    /// Pass an option to the compiler, for example --option=--use_fast_math; may be given several times
    #[arg(long, value_name = "OPTION", allow_hyphen_values = true)]
    option: Vec<String>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// An architecture, `sm_87` or `87`, as major and minor SM version.
fn architecture(text: &str) -> Result<(u32, u32), String> {
    let digits = text.strip_prefix("sm_").unwrap_or(text);
    let number: Option<u32> = digits.parse().ok().filter(|_| digits.len() >= 2);
    number.map(|number| (number / 10, number % 10)).ok_or_else(|| "give sm_87, for example".to_owned())
}

/// Output of a compiler.
struct Made {
    cubin: Vec<u8>,
    log: String,
    /// The compiler, for the report.
    by: String,
}

/// Compiles and writes.
pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let from_stdin = options.file == Path::new("-");
    let target = match &options.output {
        Some(path) => path.clone(),
        None if from_stdin => {
            return Err(
                UsageError("standard input has no name: name the cubin with --output".to_owned()).into()
            );
        }
        None => options.file.with_extension("cubin"),
    };
    if target == options.file {
        return Err(UsageError(format!("{} would be overwritten", options.file.display())).into());
    }
    let output = Output::prepare(&target).map_err(UsageError::from)?;
    let text = read(&options.file)?;
    let is_ptx = options.file.extension().is_some_and(|extension| extension == "ptx");
    let progress = Progress::new("compiling");
    let made = if is_ptx { link(options, &text) } else { compile(options, text, from_stdin) };
    drop(progress);
    let made = made?;
    output.write(&made.cubin)?;
    if !made.log.trim().is_empty() {
        warn(made.log.trim_end());
    }
    // The cubin is written even if the pipe of the report is closed.
    if !output.is_stdout() {
        unless_closed(report(&mut stdout(), options, &output, &made))?;
    }
    Ok(ExitStatus::Success.into())
}

fn read(path: &Path) -> Result<String> {
    let wrong = |error: &dyn std::fmt::Display| UsageError(format!("{}: {error}", path.display()));
    let mut text = String::new();
    if path == Path::new("-") {
        io::stdin().lock().read_to_string(&mut text).map_err(|error| wrong(&error))?;
    } else {
        text = fs::read_to_string(path).map_err(|error| wrong(&error))?;
    }
    Ok(text)
}

/// A missing compiler is a usage error: the text says how to get it.
fn loaded<T>(result: Result<T, Error>) -> Result<T> {
    result.map_err(|error| match error {
        Error::NoNvrtc { .. } | Error::NoNvJitLink { .. } => UsageError(error.to_string()).into(),
        error => error.into(),
    })
}

fn compile(options: &Options, text: String, from_stdin: bool) -> Result<Made> {
    let compiler = loaded(Compiler::load())?;
    let name = if from_stdin { "standard input".into() } else { options.file.to_string_lossy() };
    let mut source = Source::new(text).name(name);
    for folder in &options.include {
        source = source.option(format!("--include-path={}", folder.display()));
    }
    for macro_text in &options.define {
        source = source.option(format!("--define-macro={macro_text}"));
    }
    for option in &options.option {
        source = source.option(option);
    }
    let compiled = compiler.compile(&source, options.arch)?;
    let (major, minor) = compiler.version();
    let by = format!("NVRTC {major}.{minor} ({})", compiler.library());
    Ok(Made { cubin: compiled.cubin, log: compiled.log, by })
}

fn link(options: &Options, text: &str) -> Result<Made> {
    if !options.include.is_empty() || !options.define.is_empty() {
        return Err(
            UsageError("PTX has no headers and macros: omit --include and --define".to_owned()).into()
        );
    }
    let linker = loaded(Linker::load())?;
    let cubin = linker.compile(&options.file.to_string_lossy(), text, &options.option, options.arch)?;
    Ok(Made { cubin, log: String::new(), by: format!("nvJitLink ({})", linker.library()) })
}

/// Prints the file and its kernels.
fn report(out: &mut dyn Write, options: &Options, output: &Output, made: &Made) -> Result<()> {
    let cubin = Cubin::parse(&made.cubin).context("reading the compiler's output")?;
    let (path, bytes) = (output.path().display(), made.cubin.len());
    let arch = format!("sm_{}{}", options.arch.0, options.arch.1);
    if options.json {
        let kernels: Vec<_> = cubin
            .kernels()
            .iter()
            .map(|kernel| json!({ "name": kernel.name, "registers": kernel.registers }))
            .collect();
        let value = json!({
            "file": path.to_string(),
            "bytes": bytes,
            "arch": arch,
            "compiler": made.by,
            "log": made.log,
            "kernels": kernels,
        });
        writeln!(out, "{value:#}")?;
        return Ok(());
    }
    writeln!(out, "{path}: {bytes} bytes for {arch}, by {}", made.by)?;
    for kernel in cubin.kernels() {
        let mangled =
            if kernel.name.starts_with("_Z") { "; declare it extern \"C\" for a plain name" } else { "" };
        writeln!(out, "kernel {}: {} registers{mangled}", kernel.name, kernel.registers)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        options: Options,
    }

    fn reported(arguments: &[&str]) -> String {
        use clap::Parser;
        let line = Line::parse_from([&["compile", "scale.cu"][..], arguments].concat());
        let cubin = include_bytes!("../../../kernels/saxpy.cubin").to_vec();
        let made = Made { cubin, log: "a remark".to_owned(), by: "NVRTC 1.2 (lib)".to_owned() };
        let folder = tempfile::tempdir().unwrap();
        let output = Output::prepare(folder.path().join("scale.cubin")).unwrap();
        let mut text = Vec::new();
        report(&mut text, &line.options, &output, &made).unwrap();
        String::from_utf8(text).unwrap().replace(&format!("{}/", folder.path().display()), "")
    }

    #[test]
    fn the_report_names_file_compiler_and_kernels() {
        let bytes = include_bytes!("../../../kernels/saxpy.cubin").len();
        let text = reported(&["--arch", "sm_86"]);
        let (first, kernel) = text.split_once('\n').unwrap();
        assert_eq!(first, format!("scale.cubin: {bytes} bytes for sm_86, by NVRTC 1.2 (lib)"));
        assert!(kernel.starts_with("kernel saxpy: ") && kernel.ends_with(" registers\n"), "{text}");
        let value: serde_json::Value = serde_json::from_str(&reported(&["--json"])).unwrap();
        assert_eq!((&value["file"], &value["bytes"]), (&json!("scale.cubin"), &json!(bytes)));
        assert_eq!((&value["arch"], &value["log"]), (&json!("sm_87"), &json!("a remark")));
        assert_eq!(value["kernels"][0]["name"], "saxpy");
        assert!(value["kernels"][0]["registers"].as_u64().unwrap() > 0, "{value}");
    }

    #[test]
    fn an_architecture_has_two_or_more_digits() {
        assert_eq!(
            (architecture("sm_87"), architecture("90"), architecture("sm_100")),
            (Ok((8, 7)), Ok((9, 0)), Ok((10, 0)))
        );
        for text in ["sm_", "sm_8", "compute_87", "", "sm_8x"] {
            assert!(architecture(text).is_err(), "{text}");
        }
    }
}
