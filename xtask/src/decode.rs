//! `cargo xtask decode`: what a program asked of the GPU's driver, from recordings of its calls, and
//! what it wrote for the GPU.

use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, StdoutLock};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use xtask::code;
use xtask::commands::{self, Generation, QmdVersion, Verdict};

use crate::WrongUse;

/// What to explain.
#[derive(clap::Subcommand)]
pub(crate) enum Input {
    /// A system-call trace written by strace
    Strace(StraceOptions),
    /// The words of a pushbuffer: headers, methods and their fields
    Pushbuf(PushbufOptions),
    /// A launch descriptor (QMD)
    Qmd(QmdOptions),
    /// The entries of a channel's ring (GPFIFO)
    Gpfifo(GpfifoOptions),
    /// A compiled program (cubin): kernels, parameters, variables, sections, relocations
    Cubin(CubinOptions),
    /// Instructions as text, as the vendor's disassembler writes them
    Sass(SassOptions),
}

/// Options of `decode strace`.
#[derive(clap::Args)]
#[command(after_help = "\
Record with: strace -f -o FILE -e trace=%desc,%process PROGRAM
Every other way (-tt, -r, -T, -y, -X raw, without -f, fewer calls) is read too. Where the trace
does not show how a descriptor came about, its role is guessed from the request, and marked with ?.

With --json, each line is one object: every call, with \"kind\": \"ioctl\", then one with
\"kind\": \"summary\".")]
pub(crate) struct StraceOptions {
    /// The trace, or - for standard input
    file: PathBuf,
    /// Print JSON, one object per line
    #[arg(long)]
    json: bool,
}

/// How words are read, for the help of each command.
const WORDS_HELP: &str = "\
The file has little-endian words, or hexadecimal text: numbers with or without 0x, with white space
or commas between them, # before comments, offsets with a colon. A file of printable characters is
text; the last line says how it was read.

Unknown methods, fields and bits are shown as numbers. Exit code 1: something is broken, cut off or
contradicts itself; everything that can be decoded is printed nevertheless.";

/// Options of `decode pushbuf`.
#[derive(clap::Args)]
#[command(after_help = WORDS_HELP)]
pub(crate) struct PushbufOptions {
    /// The words of one segment, or - for standard input
    file: PathBuf,
    /// Generation whose classes give the names; SET_OBJECT in the words overrules it
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
#[derive(clap::Args)]
#[command(after_help = WORDS_HELP)]
pub(crate) struct QmdOptions {
    /// The descriptor, or - for standard input
    file: PathBuf,
    /// Layout to use whatever the version fields say
    #[arg(long, value_enum)]
    version: Option<QmdVersion>,
    /// Print one JSON object with every field
    #[arg(long)]
    json: bool,
}

/// Options of `decode gpfifo`.
#[derive(clap::Args)]
#[command(after_help = WORDS_HELP)]
pub(crate) struct GpfifoOptions {
    /// Entries of eight bytes, or - for standard input
    file: PathBuf,
    /// Print JSON, one object per line: each entry, then a summary
    #[arg(long)]
    json: bool,
}

/// Options of `decode cubin`.
#[derive(clap::Args)]
#[command(after_help = "\
Object files and cubins that cannot be loaded are listed too, and the reason is told; exit code 1.
Section types, attributes and relocations without a known name are shown as numbers.")]
pub(crate) struct CubinOptions {
    /// The cubin, or - for standard input
    file: PathBuf,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Options of `decode sass`.
#[derive(clap::Args)]
#[command(after_help = "\
The file is a cubin, raw code of 16 bytes per instruction, or JSON lines with the instruction in a
field `hex` (32 digits: low half, high half); with a field `text` beside it the text is compared,
white space apart. Of JSON lines, exactly one line of text comes out for each.

Exit code 1: an instruction is not known, or its text differs from the one given.")]
pub(crate) struct SassOptions {
    /// The code, or - for standard input
    file: PathBuf,
    /// Print JSON, one object per line: each instruction, then a summary
    #[arg(long)]
    json: bool,
}

/// A GPU address: decimal, or hexadecimal with 0x.
fn address(text: &str) -> Result<u64, String> {
    let number = match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => text.parse(),
    };
    number.map_err(|error| format!("{error}; give a number such as 0x1400000000"))
}

/// Longest file that is read into memory, in bytes: more than any ring, pushbuffer or cubin.
const FILE_LIMIT: u64 = 1 << 30;

/// Explains an input.
pub(crate) fn run(input: &Input) -> Result<ExitCode> {
    match input {
        Input::Strace(options) => strace(options).map(|()| ExitCode::SUCCESS),
        Input::Pushbuf(PushbufOptions { file, class, base, json }) => {
            whole(file, |bytes, output| commands::pushbuf(bytes, output, *class, *base, *json))
        }
        Input::Qmd(QmdOptions { file, version, json }) => {
            whole(file, |bytes, output| commands::qmd(bytes, output, *version, *json))
        }
        Input::Gpfifo(GpfifoOptions { file, json }) => {
            whole(file, |bytes, output| commands::gpfifo(bytes, output, *json))
        }
        Input::Sass(SassOptions { file, json }) => {
            whole(file, |bytes, output| code::sass(bytes, output, *json))
        }
        Input::Cubin(CubinOptions { file, json }) => {
            whole(file, |bytes, output| code::cubin(bytes, output, *json))
        }
    }
}

/// Opens a file, or standard input for `-`.
fn open(path: &Path) -> Result<Box<dyn Read>> {
    if path == Path::new("-") {
        return Ok(Box::new(io::stdin().lock()));
    }
    let wrong =
        |what: &str| WrongUse(format!("{}: {what}; give a file, or - for standard input", path.display()));
    let file = File::open(path).map_err(|error| wrong(&error.to_string()))?;
    if file.metadata().is_ok_and(|metadata| metadata.is_dir()) {
        return Err(wrong("a folder").into());
    }
    Ok(Box::new(file))
}

/// Reads a whole file and decodes it to standard output.
fn whole(
    path: &Path,
    decode: impl FnOnce(&[u8], BufWriter<StdoutLock<'static>>) -> io::Result<Verdict>,
) -> Result<ExitCode> {
    let mut bytes = Vec::new();
    open(path)?
        .take(FILE_LIMIT + 1)
        .read_to_end(&mut bytes)
        .with_context(|| format!("reading {}", path.display()))?;
    if bytes.len() as u64 > FILE_LIMIT {
        return Err(WrongUse(format!("{}: longer than 1 GiB; cut out what matters", path.display())).into());
    }
    match decode(&bytes, BufWriter::new(io::stdout().lock())) {
        Ok(Verdict::Whole) => Ok(ExitCode::SUCCESS),
        Ok(Verdict::Damaged) => Ok(ExitCode::FAILURE),
        // The reader of our output has seen enough.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(ExitCode::SUCCESS),
        Err(error) => Err(error).with_context(|| format!("decoding {}", path.display())),
    }
}

/// Decodes a system-call trace and prints it.
fn strace(options: &StraceOptions) -> Result<()> {
    let reader = open(&options.file)?;
    let output = BufWriter::new(io::stdout().lock());
    match xtask::strace::decode(BufReader::new(reader), output, options.json) {
        // The reader of our output has seen enough.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        result => result.with_context(|| format!("decoding {}", options.file.display())),
    }
}
