//! Queries about a header, answered by a C compiler.
//!
//! The probe is compiled to assembler text and never linked or run, so a cross compiler works as well. Each
//! answer is a constant of the C program, which inline assembler writes into that text.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fmt::{self, Write};
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};
use orin_cli::UsageError;
use tempfile::TempDir;

/// Marker of an answer in the assembler text.
const MARK: &str = "->check-headers";
/// File name in compiler errors about a question; the line is the number of the question.
const QUESTION: &str = "question";

/// A query about a header, by C names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Question {
    /// The size of a struct.
    Size {
        /// The struct.
        of: &'static str,
    },
    /// Offset and size of a field.
    Place {
        /// The struct.
        of: &'static str,
        /// The field, possibly inside a member: `condition.semaphore.offset`.
        field: &'static str,
    },
    /// Whether a struct has a bit-field.
    Bits {
        /// The struct.
        of: &'static str,
        /// The bit-field.
        field: &'static str,
    },
    /// The value of a macro.
    Macro {
        /// The macro.
        name: &'static str,
    },
}

impl fmt::Display for Question {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Size { of } => write!(f, "struct {of}"),
            Self::Place { of, field } | Self::Bits { of, field } => write!(f, "{of}.{field}"),
            Self::Macro { name } => f.write_str(name),
        }
    }
}

/// The answer to a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// A size in bytes or the value of a macro.
    Number(u64),
    /// Offset and size of a field in bytes.
    Place {
        /// Offset in the struct.
        offset: u64,
        /// Size.
        size: u64,
    },
    /// The field is a bit-field, whose offset C cannot express.
    BitField,
    /// The header does not declare it.
    Absent,
}

impl Answer {
    /// A size in bytes.
    pub(super) fn number(size: usize) -> Self {
        // CAST: a usize has at most 64 bits.
        Self::Number(size as u64)
    }

    /// Offset and size in bytes.
    pub(super) fn place(offset: usize, size: usize) -> Self {
        // CAST: a usize has at most 64 bits.
        Self::Place { offset: offset as u64, size: size as u64 }
    }
}

/// The consumer for which a header is compiled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum View {
    /// A program.
    User,
    /// The kernel, which also sees the structs of 32-bit programs.
    Kernel,
}

impl View {
    /// Returns the macros that select the view.
    fn macros(self) -> &'static [&'static str] {
        match self {
            Self::User => &[],
            Self::Kernel => &["-D__KERNEL__", "-DCONFIG_COMPAT"],
        }
    }
}

/// A working C compiler.
pub(super) struct Compiler {
    program: String,
    options: Vec<String>,
    /// Contains the probe, its translation and, as link `linux`, the folder of a header outside a `linux`.
    scratch: TempDir,
}

impl Compiler {
    /// Checks `command`: a program and its options.
    pub(super) fn new(command: &str) -> Result<Self> {
        let mut words = command.split_whitespace().map(str::to_owned);
        let program = words
            .next()
            .ok_or_else(|| UsageError("the C compiler's name is empty; name one with --cc".to_owned()))?;
        let scratch = tempfile::tempdir().context("making a folder for the probes")?;
        let compiler = Self { program, options: words.collect(), scratch };
        let includes = "#include <stddef.h>\n#include <linux/ioctl.h>\n#include <linux/types.h>\n";
        let questions = format!("{}\n{}\n", say(0, "sizeof(void *)"), say(1, "sizeof(__u64)"));
        let assembler = compiler.translate(&probe(includes, &questions), &[])?.map_err(|errors| {
            UsageError(format!(
                "{command} cannot compile a program with <linux/ioctl.h> and <linux/types.h>: {}; install \
                 the kernel's headers for user space (Debian and Ubuntu: linux-libc-dev), or name another \
                 compiler with --cc",
                first_error(&errors)
            ))
        })?;
        match values(&assembler, 2).as_slice() {
            [Some(8), Some(8)] => Ok(compiler),
            [Some(pointer), _] => Err(UsageError(format!(
                "{command} compiles for a machine with {}-bit addresses, the Orin has 64-bit ones; name a \
                 64-bit compiler with --cc, for example aarch64-linux-gnu-gcc",
                pointer * 8
            ))
            .into()),
            _ => Err(UsageError(format!(
                "{command} does not behave like a C compiler; name gcc or clang with --cc"
            ))
            .into()),
        }
    }

    /// Answers questions about the header at `path`, in order. Returns the compiler's first error if the header
    /// does not compile.
    pub(super) fn ask(
        &self,
        path: &Path,
        view: View,
        questions: &[Question],
    ) -> Result<Result<Vec<Answer>, String>> {
        let mut arguments = self.arguments(path)?;
        arguments.extend(view.macros().iter().map(OsString::from));
        let mut answers = vec![Answer::Absent; questions.len()];
        let mut open: Vec<usize> = (0..questions.len()).collect();
        // A name that does not exist fails the whole probe. The errors name the unanswered questions; the
        // loop repeats the probe without them.
        loop {
            let asked: Vec<Question> = open.iter().map(|index| questions[*index]).collect();
            match self.ask_exactly(&asked, &arguments)? {
                Ok(given) => {
                    for (index, answer) in open.into_iter().zip(given) {
                        answers[index] = answer;
                    }
                    return Ok(Ok(answers));
                }
                Err(errors) if open.is_empty() => return Ok(Err(first_error(&errors))),
                Err(errors) => {
                    let failed = failed_questions(&errors);
                    let before = open.len();
                    let mut position = 0..;
                    open.retain(|_| position.next().is_none_or(|position| !failed.contains(&position)));
                    if open.len() == before {
                        break;
                    }
                }
            }
        }
        // The errors name no question: check the header alone, then each question separately.
        if let Err(errors) = self.ask_exactly(&[], &arguments)? {
            return Ok(Err(first_error(&errors)));
        }
        for index in open {
            if let Ok(given) = self.ask_exactly(&questions[index..=index], &arguments)? {
                answers[index] = given[0];
            }
        }
        Ok(Ok(answers))
    }

    /// Answers all questions with one probe, or returns the compiler's errors.
    fn ask_exactly(
        &self,
        questions: &[Question],
        arguments: &[OsString],
    ) -> Result<Result<Vec<Answer>, String>> {
        let mut body = String::new();
        for (index, question) in questions.iter().enumerate() {
            let (first, second) = (2 * index, 2 * index + 1);
            let (condition, value, extent, end) = match question {
                Question::Size { of } => (String::new(), format!("sizeof(struct {of})"), "0".to_owned(), ""),
                Question::Place { of, field } => (
                    String::new(),
                    format!("__builtin_offsetof(struct {of}, {field})"),
                    format!("sizeof(((struct {of} *)0)->{field})"),
                    "",
                ),
                // Arithmetic promotes a bit-field to a type with a size.
                Question::Bits { of, field } => {
                    (String::new(), format!("sizeof(+((struct {of} *)0)->{field})"), "0".to_owned(), "")
                }
                Question::Macro { name } => {
                    (format!("#ifdef {name}\n"), (*name).to_owned(), "0".to_owned(), "#endif\n")
                }
            };
            // Errors then name the question instead of the line of the probe.
            writeln!(body, "{condition}#line {} \"{QUESTION}\"", index + 1)?;
            writeln!(body, "{} {}", say(first, &value), say(second, &extent))?;
            body.push_str(end);
        }
        let assembler = match self.translate(&probe("", &body), arguments)? {
            Ok(assembler) => assembler,
            Err(errors) => return Ok(Err(errors)),
        };
        let values = values(&assembler, 2 * questions.len());
        let answer = |(question, pair): (&Question, &[Option<u64>])| match (question, pair) {
            (Question::Place { .. }, &[Some(offset), Some(size)]) => Ok(Answer::Place { offset, size }),
            (Question::Bits { .. }, &[Some(_), Some(_)]) => Ok(Answer::BitField),
            (Question::Macro { .. }, &[None, None]) => Ok(Answer::Absent),
            (_, &[Some(value), Some(_)]) => Ok(Answer::Number(value)),
            _ => bail!("the output of {} lacks the answer about {question}", self.program),
        };
        questions.iter().zip(values.chunks_exact(2)).map(answer).collect::<Result<_>>().map(Ok)
    }

    /// Returns the options to include the header at `path` and find the headers next to it.
    fn arguments(&self, path: &Path) -> Result<Vec<OsString>> {
        let folder = path.parent().with_context(|| format!("{} has no folder", path.display()))?;
        let include_root = match folder.parent() {
            Some(parent) if folder.ends_with("linux") => parent.to_owned(),
            _ => {
                // In a flat folder, <linux/nvgpu.h> is nvgpu.h.
                let link = self.scratch.path().join("linux");
                if link.symlink_metadata().is_ok() {
                    fs::remove_file(&link).context("removing the link to the last header's folder")?;
                }
                std::os::unix::fs::symlink(folder, &link).context("linking the header's folder")?;
                self.scratch.path().to_owned()
            }
        };
        Ok(vec![
            "-include".into(),
            "stddef.h".into(),
            "-include".into(),
            path.into(),
            // After the system folders: a kernel tree has a linux/types.h that is not for user space.
            "-idirafter".into(),
            include_root.into(),
        ])
    }

    /// Compiles a probe to assembler text, or returns the compiler's errors.
    fn translate(&self, source: &str, arguments: &[OsString]) -> Result<Result<String, String>> {
        let input = self.scratch.path().join("probe.c");
        let output = self.scratch.path().join("probe.s");
        fs::write(&input, source).context("writing the probe")?;
        let run = Command::new(&self.program)
            .args(&self.options)
            // Annotations in kernel headers, which the kernel's build removes on installation.
            .args(["-D__user=", "-D__packed=__attribute__((packed))", "-std=gnu11", "-O0", "-w", "-S"])
            .args(arguments)
            .arg("-o")
            .args([&output, &input])
            .env("LC_ALL", "C")
            .output()
            .map_err(|error| {
                UsageError(format!(
                    "cannot run the C compiler {}: {error}; install one (Debian and Ubuntu: gcc) or name one \
                     with --cc",
                    self.program
                ))
            })?;
        if !run.status.success() {
            let errors = String::from_utf8_lossy(&run.stderr).into_owned();
            return Ok(Err(if errors.trim().is_empty() {
                format!("it ended with {}", run.status)
            } else {
                errors
            }));
        }
        match fs::read(&output) {
            Ok(bytes) => Ok(Ok(String::from_utf8_lossy(&bytes).into_owned())),
            Err(_) => Ok(Ok(String::new())),
        }
    }
}

/// Returns a statement that emits a constant into the assembler text.
fn say(index: usize, value: &str) -> String {
    format!("__asm__ volatile(\"\\n.ascii \\\"{MARK} {index} %0\\\"\" : : \"i\"((unsigned long)({value})));")
}

/// Returns a C program with these statements.
fn probe(includes: &str, body: &str) -> String {
    format!("{includes}void probe(void)\n{{\n{body}}}\n")
}

/// Returns the first `count` values in the assembler text, by index.
fn values(assembler: &str, count: usize) -> Vec<Option<u64>> {
    let mut values = vec![None; count];
    for line in assembler.lines() {
        let Some((_, answer)) = line.split_once(MARK) else { continue };
        let mut words = answer.trim_end_matches('"').split_whitespace();
        let index = words.next().and_then(|word| word.parse::<usize>().ok());
        // Some assemblers prefix a constant with punctuation.
        let value = words.next().and_then(|word| word.trim_start_matches(['$', '#']).parse().ok());
        if let Some(place) = index.and_then(|index| values.get_mut(index)) {
            *place = value;
        }
    }
    values
}

/// Returns the first error line.
fn first_error(errors: &str) -> String {
    let mut lines = errors.lines().map(str::trim).filter(|line| !line.is_empty());
    let first = lines.clone().find(|line| line.contains("error"));
    first.or_else(|| lines.next()).unwrap_or("no reason given").to_owned()
}

/// Returns the indexes of the questions in the errors: `question:3:17: error: ...`, and macros that a
/// question used.
fn failed_questions(errors: &str) -> BTreeSet<usize> {
    let mut failed = BTreeSet::new();
    for line in errors.lines() {
        if !["error:", "in expansion of macro", "expanded from"].iter().any(|mark| line.contains(mark)) {
            continue;
        }
        let number = line
            .split_once(QUESTION)
            .and_then(|(_, rest)| rest.strip_prefix(':')?.split(':').next()?.parse::<usize>().ok());
        failed.extend(number.and_then(|number| number.checked_sub(1)));
    }
    failed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_read_off_the_assembler_text() {
        let text = "probe:\n\tpushq %rbp\n#APP\n.ascii \"->check-headers 1 3228059392\"\n\
                    .ascii \"->check-headers 0 $16\"\n#NO_APP\n.ascii \"->check-headers 7 1\"\n\
                    .ascii \"->check-headers 2 x\"\n";
        assert_eq!(values(text, 4), [Some(16), Some(3_228_059_392), None, None]);
    }

    #[test]
    fn errors_identify_unanswered_questions() {
        // Formats of gcc and clang.
        let errors = "probe.c: In function 'probe':\n\
            question:3:61: error: invalid application of 'sizeof' to incomplete type 'struct x'\n\
            /usr/include/asm-generic/ioctl.h:73:24: error: invalid application of 'sizeof'\n\
            question:7:60: note: in expansion of macro 'NVGPU_X'\n\
            question:9:1: note: forward declaration of 'struct y'\n\
            question:12:55: note: expanded from macro 'NVGPU_Y'\n\
            question:0:1: error: no such question\n";
        assert_eq!(failed_questions(errors), BTreeSet::from([2, 6, 11]));
        assert!(first_error(errors).starts_with("question:3"));
        assert_eq!(first_error("  \n"), "no reason given");
    }

    #[test]
    fn an_absent_compiler_is_wrong_use_with_a_cure() {
        let error = Compiler::new("no-such-compiler-for-headers").err().unwrap();
        assert!(error.is::<UsageError>());
        assert!(error.to_string().contains("--cc"), "{error}");
        assert!(Compiler::new("  ").err().unwrap().is::<UsageError>());
    }

    #[test]
    fn a_program_other_than_a_compiler_is_wrong_use() {
        for program in ["true", "false"] {
            let error = Compiler::new(program).err().unwrap();
            assert!(error.is::<UsageError>(), "{program}: {error}");
        }
    }
}
