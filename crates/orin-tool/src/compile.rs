//! `orin compile`: CUDA C++ or PTX to a cubin.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, anyhow};
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use cubin::{Cubin, FileKind};
use orin_cli::{ExitStatus, Output, Progress, UsageError, stdout, unless_closed, warn};
use orin_compile::{ARCHITECTURES, Compiled, Error, FileOptions, RequestError, architecture};
use serde_json::json;

use crate::files;

/// Options of the command.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  orin compile add.cu                            writes add.cubin for the Orin
  orin compile add.cu -D N=4 -I include --option=--use_fast_math
  orin compile add.cu --line-info                the tools then print file and line of instructions
  orin compile add.ptx -o add.cubin              PTX, by nvJitLink or ptxas
  orin compile - --arch sm_90 -o - < add.cu | orin decode cubin -

CUDA C++ is compiled by NVIDIA's NVRTC, PTX by nvJitLink, or by ptxas if its version is below 3.1 or there is
no nvJitLink. They are found in CUDA_HOME, in an active Python environment (pip install nvidia-cuda-nvrtc-cu12
nvidia-nvjitlink-cu12 nvidia-cuda-nvcc-cu12), in the folders of the dynamic loader or of PATH, and in
/usr/local/cuda* (JetPack, CUDA toolkits); NVGPU_NVRTC, NVGPU_NVJITLINK and NVGPU_PTXAS name a file or folder.

Exit code 1: the source does not compile. Exit code 2: the compiler is not installed.")]
pub(crate) struct Options {
    /// The source, CUDA C++ or PTX; - is standard input
    file: PathBuf,
    /// The cubin; - is standard output [default: FILE.cubin]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Architecture; sm_87 is the Jetson Orin's
    #[arg(long, value_name = "SM", default_value = "sm_87", value_parser = architectures())]
    arch: (u32, u32),
    #[command(flatten)]
    compiler: CompilerOptions,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Options of the commands that compile.
#[derive(Debug, clap::Args)]
pub(crate) struct CompilerOptions {
    /// Search this folder for headers of a source; may be given several times
    #[arg(short = 'I', long = "include", value_name = "FOLDER")]
    include: Vec<PathBuf>,
    /// Define a macro of a source: NAME or NAME=VALUE; may be given several times
    #[arg(short = 'D', long = "define", value_name = "NAME[=VALUE]")]
    define: Vec<String>,
    /// Pass an option to the compiler, for example --option=--use_fast_math; may be given several times
    #[arg(long, value_name = "OPTION", allow_hyphen_values = true)]
    option: Vec<String>,
    /// Record file and line of each instruction, as nvcc's -lineinfo does, for checks and profiles
    #[arg(long)]
    line_info: bool,
    /// The spelling of nvcc, which has one dash
    #[arg(short = 'l', hide = true, value_name = "ineinfo", value_parser = ["ineinfo"])]
    lineinfo: Option<String>,
}

/// The parser of an architecture, which completion scripts know the names of.
fn architectures() -> impl TypedValueParser<Value = (u32, u32)> {
    let names = ARCHITECTURES.map(|(name, _)| PossibleValue::new(name).alias(&name[3..]));
    PossibleValuesParser::new(names).try_map(|text| architecture(&text))
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
    if options.json && target == Path::new("-") {
        let text = "--json needs standard output, to which --output - writes the cubin: name a file";
        return Err(UsageError(text.to_owned()).into());
    }
    let text = source(&options.file)?;
    let output = Output::prepare(&target).map_err(UsageError::from)?;
    output.spare([&options.file]).map_err(UsageError::from)?;
    let compiler = &options.compiler;
    let made = compiler.compile(&options.file, &text, options.arch, compiler.has_line_info())?;
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

/// Reads a source.
///
/// # Errors
///
/// [`UsageError`] if it cannot be read, or is a file of another kind.
pub(crate) fn source(path: &Path) -> Result<String, UsageError> {
    files::read_text(path, "CUDA C++ or PTX", &[FileKind::Cuda, FileKind::Ptx, FileKind::Text])
}

impl CompilerOptions {
    /// Whether line information is asked for.
    fn has_line_info(&self) -> bool {
        self.line_info || self.lineinfo.is_some()
    }

    /// Whether an option is given.
    pub(crate) fn is_given(&self) -> bool {
        let lists = self.include.is_empty() && self.define.is_empty() && self.option.is_empty();
        !lists || self.has_line_info()
    }

    /// Compiles CUDA C++ or PTX for an architecture, as major and minor SM version, with line information.
    ///
    /// # Errors
    ///
    /// [`UsageError`] if the compiler is missing, or its options do not fit PTX; else that of the compiler.
    pub(crate) fn compile_with_lines(&self, path: &Path, text: &str, arch: (u32, u32)) -> Result<Compiled> {
        self.compile(path, text, arch, true)
    }

    fn compile(&self, path: &Path, text: &str, arch: (u32, u32), line_info: bool) -> Result<Compiled> {
        if let Some(folder) = self.include.iter().find(|folder| !folder.is_dir()) {
            return Err(UsageError(format!("--include {}: there is no such folder", folder.display())).into());
        }
        let _progress = Progress::new("compiling");
        let options = FileOptions {
            include: self.include.clone(),
            define: self.define.clone(),
            line_info,
            other: self.option.clone(),
        };
        options.compile(&files::named(path), text, arch).map_err(|error| match error {
            // The text says how to get the compiler, or what to leave out.
            Error::NoNvrtc { .. }
            | Error::NoNvJitLink { .. }
            | Error::NoPtxas { .. }
            | Error::Request(RequestError::PtxOptions) => UsageError(error.to_string()).into(),
            Error::Cubin(cubin::Error::WrongArchitecture { cubin, .. }) => {
                let advice = format!("`orin compile --arch sm_{cubin}` compiles for sm_{cubin}");
                anyhow!("{}: {error}; {advice}", files::named(path))
            }
            // NVRTC's name of the error.
            Error::Nvrtc { ref reason, .. } if reason.contains("INVALID_OPTION") => {
                UsageError(error.to_string()).into()
            }
            error => error.into(),
        })
    }
}

/// Prints the file and its kernels.
fn report(out: &mut dyn Write, options: &Options, output: &Output, made: &Compiled) -> Result<()> {
    let cubin = Cubin::parse(&made.cubin);
    let cubin = cubin.with_context(|| files::named(&options.file))?;
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
    if cubin.kernels().is_empty() {
        writeln!(out, "no kernel: the source has no function declared extern \"C\" __global__")?;
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
        let mut made = Compiled::default();
        (made.cubin, made.log, made.by) = (cubin, "a remark".to_owned(), "NVRTC 1.2 (lib)".to_owned());
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
}
