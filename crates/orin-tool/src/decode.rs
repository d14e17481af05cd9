//! `orin decode`: the requests of a program to the GPU's driver, from a trace of its system calls, and the words and
//! code that it wrote for the GPU.

use std::fs::File;
use std::io::{self, BufRead, BufReader, BufWriter, Read};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use cubin::FileKind;
use orin_cli::{ExitStatus, Plain, UsageError, number, plain_stdout, warn};

use crate::commands::{self, Generation, QmdVersion, Verdict};
use crate::strace as trace;
use crate::{code, files};

/// Input to decode.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Input {
    /// A system-call trace written by strace
    Strace(StraceOptions),
    /// The words of a pushbuffer: headers, methods and their fields
    Pushbuf(PushbufOptions),
    /// A launch descriptor (QMD)
    Qmd(QmdOptions),
    /// The entries of a channel's ring (GPFIFO)
    Gpfifo(GpfifoOptions),
    /// A compiled program (cubin): kernels, parameters, variables, sections, relocations; a fat binary: its entries
    Cubin(CubinOptions),
    /// Machine code: instructions as nvdisasm prints them
    Sass(SassOptions),
}

/// Options of `decode strace`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Record with: strace -f -o FILE -e trace=%desc,%process PROGRAM
Traces of other options (-tt, -r, -T, -y, -X raw, without -f, fewer calls) are accepted. If the trace
does not show where a descriptor comes from, its role is guessed from the request and marked with ?.

Exit code 1: a line is cut or damaged, or the trace has no request of the GPU's driver.

With --json, each line is one object: each call, with \"kind\": \"ioctl\", then one with
\"kind\": \"summary\".")]
pub(crate) struct StraceOptions {
    /// The trace, or - for standard input
    file: PathBuf,
    /// Print JSON, one object per line
    #[arg(long)]
    json: bool,
}

/// Formats of the input, for the help of each command.
const WORDS_HELP: &str = "\
The file contains little-endian words, or hexadecimal text: numbers with or without 0x, separated by
white space or commas, comments after #, offsets with a colon. A file of printable characters is read
as text; the last line reports the format.

Unknown methods, fields and bits are printed as numbers. Exit code 1: the input is malformed, truncated
or inconsistent; everything that can be decoded is printed.";

/// Options of `decode pushbuf`.
#[derive(Debug, clap::Args)]
#[command(after_help = WORDS_HELP)]
pub(crate) struct PushbufOptions {
    /// The words of one segment, or - for standard input
    file: PathBuf,
    /// Generation whose classes give the names; SET_OBJECT in the words overrides it
    #[arg(long, value_enum, default_value_t)]
    class: Generation,
    /// GPU address of the first word, to print the address of each
    #[arg(long, value_name = "ADDR", value_parser = address)]
    base: Option<u64>,
    /// Print JSON, one object per line: each word, then a summary
    #[arg(long)]
    json: bool,
}

/// Options of `decode qmd`.
#[derive(Debug, clap::Args)]
#[command(after_help = WORDS_HELP)]
pub(crate) struct QmdOptions {
    /// The descriptor, or - for standard input
    file: PathBuf,
    /// Layout to use instead of the one in the version fields
    #[arg(long, value_enum)]
    version: Option<QmdVersion>,
    /// Print one JSON object with every field
    #[arg(long)]
    json: bool,
}

/// Options of `decode gpfifo`.
#[derive(Debug, clap::Args)]
#[command(after_help = WORDS_HELP)]
pub(crate) struct GpfifoOptions {
    /// Entries of eight bytes, or - for standard input
    file: PathBuf,
    /// Print JSON, one object per line: each entry, then a summary
    #[arg(long)]
    json: bool,
}

/// Options of `decode cubin`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Object files and cubins that cannot be loaded are listed as well, with the reason; exit code 1.
The entries of a fat binary are listed with their numbers; --entry prints one, PTX as text.
Unknown section types, attributes and relocations are printed as numbers.")]
pub(crate) struct CubinOptions {
    /// The cubin or fat binary, or - for standard input
    file: PathBuf,
    /// Print the entry of a fat binary with this number
    #[arg(long, value_name = "NUMBER")]
    entry: Option<usize>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Options of `decode sass`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
The file is a cubin, raw code of 16 bytes per instruction, or JSON lines with the instruction in the
field `hex` (32 digits: low half, high half). If a line has the field `text`, the output is compared
with it, ignoring white space. Each JSON line gives exactly one line of text.

Exit code 1: an instruction is unknown, or its text differs from the given one.")]
pub(crate) struct SassOptions {
    /// The code, or - for standard input
    file: PathBuf,
    /// Print JSON, one object per line: each instruction, then a summary
    #[arg(long)]
    json: bool,
}

/// A GPU address: decimal, or hexadecimal with 0x.
fn address(text: &str) -> Result<u64, String> {
    number(text, 0..=u64::MAX).map_err(|error| format!("{error}, for example 0x1400000000"))
}

/// Longest file that is read into memory, in bytes: more than any ring, pushbuffer or cubin.
const FILE_LIMIT: u64 = 1 << 30;

/// Decodes an input.
pub(crate) fn run(input: &Input) -> Result<ExitCode> {
    match input {
        Input::Strace(options) => strace(options),
        Input::Pushbuf(PushbufOptions { file, class, base, json }) => {
            whole(file, ("words of a pushbuffer", FileKind::has_format), |bytes, output| {
                commands::pushbuf(bytes, output, *class, *base, *json)
            })
        }
        Input::Qmd(QmdOptions { file, version, json }) => {
            whole(file, ("words of a launch descriptor", FileKind::has_format), |bytes, output| {
                commands::qmd(bytes, output, *version, *json)
            })
        }
        Input::Gpfifo(GpfifoOptions { file, json }) => {
            whole(file, ("entries of a ring", FileKind::has_format), |bytes, output| {
                commands::gpfifo(bytes, output, *json)
            })
        }
        Input::Sass(SassOptions { file, json }) => {
            // Lines of JSON may contain code.
            let refused = |kind| !matches!(kind, FileKind::Cubin | FileKind::Json | FileKind::Binary);
            whole(file, ("a cubin or machine code", refused), |bytes, output| {
                code::sass(bytes, output, *json)
            })
        }
        Input::Cubin(CubinOptions { file, entry: None, json }) => {
            let refused = |kind| !matches!(kind, FileKind::Cubin | FileKind::FatBinary);
            whole(file, ("a cubin", refused), |bytes, output| code::cubin(bytes, output, *json))
        }
        Input::Cubin(CubinOptions { file, entry: Some(entry), json }) => {
            whole(file, ("a fat binary", |kind| kind != FileKind::FatBinary), |bytes, output| {
                code::fat_entry(bytes, *entry, output, *json)
            })
        }
    }
}

/// Opens a file, or standard input for `-`.
fn open(path: &Path) -> Result<Box<dyn Read>> {
    if path == Path::new("-") {
        return Ok(Box::new(io::stdin().lock()));
    }
    let wrong =
        |what: &str| UsageError(format!("{}: {what}; give a file, or - for standard input", path.display()));
    let file = File::open(path).map_err(|error| wrong(&error.to_string()))?;
    if file.metadata().is_ok_and(|metadata| metadata.is_dir()) {
        return Err(wrong("a folder").into());
    }
    Ok(Box::new(file))
}

/// Reads a whole file and decodes it to standard output. Refuses files of some kinds, which are not what is wanted.
fn whole(
    path: &Path,
    (wanted, is_refused): (&str, impl Fn(FileKind) -> bool),
    decode: impl FnOnce(&[u8], BufWriter<Plain>) -> io::Result<Verdict>,
) -> Result<ExitCode> {
    let mut bytes = Vec::new();
    open(path)?
        .take(FILE_LIMIT + 1)
        .read_to_end(&mut bytes)
        .with_context(|| format!("reading {}", path.display()))?;
    if bytes.len() as u64 > FILE_LIMIT {
        return Err(
            UsageError(format!("{}: longer than 1 GiB; extract the relevant part", path.display())).into()
        );
    }
    let kind = FileKind::of(&bytes);
    if kind == FileKind::Empty || is_refused(kind) {
        return Err(files::not(path, kind, wanted).into());
    }
    if kind == FileKind::Text && !commands::has_words(&bytes) {
        return Err(files::not(path, kind, &format!("{wanted} in hexadecimal")).into());
    }
    let verdict = decode(&bytes, BufWriter::new(plain_stdout()))
        .with_context(|| format!("decoding {}", path.display()))?;
    if verdict == Verdict::Damaged {
        warn(format_args!(
            "{}: malformed, cut off or inconsistent; the output says where",
            files::named(path)
        ));
    }
    Ok(ExitStatus::failed_if(verdict == Verdict::Damaged).into())
}

/// Decodes a system-call trace and prints it.
fn strace(options: &StraceOptions) -> Result<ExitCode> {
    let mut reader = BufReader::new(open(&options.file)?);
    let start = reader.fill_buf().with_context(|| format!("reading {}", options.file.display()))?;
    let kind = FileKind::of(start);
    // A call may write CUDA C++.
    if !matches!(kind, FileKind::Text | FileKind::Cuda | FileKind::Empty) {
        return Err(files::not(&options.file, kind, "a trace of strace").into());
    }
    let output = BufWriter::new(plain_stdout());
    let verdict = trace::decode(reader, output, options.json)
        .with_context(|| format!("decoding {}", options.file.display()))?;
    Ok(ExitStatus::failed_if(verdict == Verdict::Damaged).into())
}
