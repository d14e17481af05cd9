//! Parser of one line of a trace.
//!
//! `[pid 12] 10:00:00.123 ioctl(4, _IOC(...), 0xff <unfinished ...>`: columns that depend on strace's
//! options, then a call, or the part of a call before another thread's call interrupted it.

/// Highest process number of Linux; a larger number at a line's start is a time in seconds.
const PID_LIMIT: u32 = 1 << 22;

/// Content of a line.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Event<'a> {
    /// A call that returned.
    Call(Call<'a>),
    /// The start of a call, up to the interruption.
    Unfinished(&'a str),
    /// The rest of a call that this process started on an earlier line.
    Resumed(&'a str),
    /// The process ended.
    Exited,
    /// A signal, a message of the program, an empty line.
    Other,
    /// Starts like a call but does not end like one.
    Garbled,
}

/// A system call.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Call<'a> {
    /// Name of the call.
    pub(super) name: &'a str,
    /// The arguments as printed.
    pub(super) arguments: Vec<&'a str>,
    /// The result.
    pub(super) result: Outcome,
    /// Path printed after a returned descriptor.
    pub(super) result_path: Option<&'a str>,
}

/// Result of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// A value that is not an error.
    Value(i64),
    /// An error, by its name.
    Error(String),
    /// Unknown: the process ended, or strace detached, inside the call.
    Unknown,
}

/// Parses a line: the process, if the line names one, and the event.
pub(super) fn parse(line: &str) -> (Option<u32>, Event<'_>) {
    let (pid, rest) = strip_columns(line);
    let rest = rest.trim_end();
    if let Some(resumed) = rest.strip_prefix("<... ") {
        let event = resumed.split_once(" resumed>").map_or(Event::Garbled, |(_, tail)| Event::Resumed(tail));
        return (pid, event);
    }
    if rest.starts_with("+++ exited") || rest.starts_with("+++ killed") {
        return (pid, Event::Exited);
    }
    let name = rest.bytes().take_while(|byte| byte.is_ascii_alphanumeric() || *byte == b'_').count();
    if name == 0 || rest.as_bytes().get(name) != Some(&b'(') {
        return (pid, Event::Other);
    }
    for mark in ["<unfinished ...>", "<detached ...>"] {
        if let Some(begun) = rest.strip_suffix(mark) {
            return (pid, Event::Unfinished(begun));
        }
    }
    (pid, call(rest).map_or(Event::Garbled, Event::Call))
}

/// Parses a complete call, `name(arguments) = result`.
pub(super) fn call(text: &str) -> Option<Call<'_>> {
    let open = text.find('(')?;
    let (arguments, close) = arguments(text, open + 1)?;
    let result = text.get(close + 1..)?.trim_start().strip_prefix('=')?.trim_start();
    let (result, result_path) = outcome(result);
    Some(Call { name: &text[..open], arguments, result, result_path })
}

/// Skips the columns before a call: process, time of day, time since the last call, call number,
/// instruction pointer.
fn strip_columns(line: &str) -> (Option<u32>, &str) {
    let mut pid = None;
    let mut rest = line.trim_start();
    loop {
        if let Some(bracket) = rest.strip_prefix('[') {
            let Some((inside, after)) = bracket.split_once(']') else { return (pid, rest) };
            if let Some(number) = inside.strip_prefix("pid") {
                pid = number.trim().parse().ok().or(pid);
            }
            rest = after.trim_start();
        } else if rest.starts_with("(+") {
            let Some((_, after)) = rest.split_once(')') else { return (pid, rest) };
            rest = after.trim_start();
        } else {
            let Some((word, after)) = rest.split_once([' ', '\t']) else { return (pid, rest) };
            if !word.starts_with(|first: char| first.is_ascii_digit())
                || !word.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.' || byte == b':')
            {
                return (pid, rest);
            }
            if pid.is_none() {
                pid = word.parse().ok().filter(|number| *number <= PID_LIMIT);
            }
            rest = after.trim_start();
        }
    }
}

/// Splits the arguments that start at byte `start` at the commas outside strings, brackets and
/// `-y` annotations; also returns where the closing parenthesis is.
fn arguments(text: &str, start: usize) -> Option<(Vec<&str>, usize)> {
    let bytes = text.as_bytes();
    let mut parts = Vec::new();
    let mut begin = start;
    let mut depth = 0_usize;
    let mut at = start;
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'"' => at = string_end(bytes, at)?,
            b'<' if bytes[at - 1].is_ascii_digit() && bytes.get(at + 1) != Some(&b'<') => {
                at = annotation_end(bytes, at)?;
            }
            b'(' | b'{' | b'[' => depth += 1,
            b')' if depth == 0 => {
                let last = text.get(begin..at)?.trim();
                if !last.is_empty() || !parts.is_empty() {
                    parts.push(last);
                }
                return Some((parts, at));
            }
            b')' | b'}' | b']' => depth = depth.checked_sub(1)?,
            b',' if depth == 0 => {
                parts.push(text.get(begin..at)?.trim());
                begin = at + 1;
            }
            _ => {}
        }
        at += 1;
    }
    None
}

/// Returns the end of the string that starts at `at`.
fn string_end(bytes: &[u8], at: usize) -> Option<usize> {
    let mut index = at + 1;
    while let Some(byte) = bytes.get(index) {
        match byte {
            b'\\' => index += 1,
            b'"' => return Some(index),
            _ => {}
        }
        index += 1;
    }
    None
}

/// Returns the end of the annotation that starts at `at`: `4</dev/nvmap<char 10:62>>`, `5<TCP:[1->2]>`.
fn annotation_end(bytes: &[u8], at: usize) -> Option<usize> {
    let mut depth = 0_usize;
    for (index, byte) in bytes.iter().enumerate().skip(at) {
        match byte {
            b'<' => depth += 1,
            b'>' if bytes[index - 1] != b'-' => {
                depth -= 1;
                if depth == 0 {
                    return Some(index);
                }
            }
            _ => {}
        }
    }
    None
}

/// Parses the text after the equals sign.
fn outcome(text: &str) -> (Outcome, Option<&str>) {
    let word = text.split([' ', '\t', '<']).next().unwrap_or_default();
    let value = match word.strip_prefix("0x") {
        // CAST: an address above 2^63 becomes negative, as in the kernel's long.
        Some(hex) => u64::from_str_radix(hex, 16).ok().map(u64::cast_signed),
        None => word.parse::<i64>().ok(),
    };
    let rest = text[word.len()..].trim_start();
    let name = rest.split([' ', '\t']).next().unwrap_or_default();
    let is_error = name.starts_with('E') && name.bytes().all(|byte| byte.is_ascii_alphanumeric());
    match value {
        Some(-1) if is_error => (Outcome::Error(name.to_owned()), None),
        Some(value) => {
            let path = text[word.len()..].strip_prefix('<').and_then(|_| {
                let close = annotation_end(text.as_bytes(), word.len())?;
                text.get(word.len() + 1..close)
            });
            (Outcome::Value(value), path)
        }
        None if word == "?" && is_error => (Outcome::Error(name.to_owned()), None),
        None => (Outcome::Unknown, None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> (Option<u32>, Call<'_>) {
        match parse(line) {
            (pid, Event::Call(call)) => (pid, call),
            other => panic!("{line}: {other:?}"),
        }
    }

    #[test]
    fn columns_before_the_call_are_skipped() {
        for (line, pid) in [
            ("close(3) = 0", None),
            ("  close(3)                = 0", None),
            ("1234 close(3) = 0", Some(1234)),
            ("[pid  1234] close(3) = 0", Some(1234)),
            ("10:11:12 close(3) = 0", None),
            ("1234 10:11:12.123456 close(3) = 0", Some(1234)),
            ("1234 1700000000.123456 close(3) = 0 <0.000012>", Some(1234)),
            ("1700000000 close(3) = 0", None),
            ("     0.000123 close(3) = 0", None),
            ("[pid 12] 10:11:12.1 (+     0.000100) close(3) = 0", Some(12)),
            ("[   3] [00007f0011223344] close(3) = 0", None),
        ] {
            let (found, call) = parsed(line);
            assert_eq!((found, call.name), (pid, "close"), "{line}");
            assert_eq!(call.arguments, ["3"], "{line}");
            assert_eq!(call.result, Outcome::Value(0), "{line}");
        }
    }

    #[test]
    fn commas_inside_do_not_split_arguments() {
        let (_, call) = parsed(
            r#"ioctl(4</dev/a(b,c<char 1:2>>, 0xc0104705 /* _IOC(_IOC_READ, 0x47) */, {a="x)\",", b=[1, 2]}) = 0"#,
        );
        assert_eq!(call.arguments.len(), 3);
        assert_eq!(call.arguments[0], "4</dev/a(b,c<char 1:2>>");
        assert_eq!(call.arguments[1], "0xc0104705 /* _IOC(_IOC_READ, 0x47) */");
    }

    #[test]
    fn results_are_values_errors_or_unknown() {
        let result = |text: &str| outcome(text).0;
        assert_eq!(result("-1 EINVAL (Invalid argument)"), Outcome::Error("EINVAL".into()));
        assert_eq!(result("? ERESTARTSYS (To be restarted)"), Outcome::Error("ERESTARTSYS".into()));
        assert_eq!(result("?"), Outcome::Unknown);
        assert_eq!(result("17"), Outcome::Value(17));
        assert_eq!(result("0xffff8a010000"), Outcome::Value(0xffff_8a01_0000));
        assert_eq!(result("5 (in [5])"), Outcome::Value(5));
        assert_eq!(outcome("3</dev/nvmap<char 10:62>> <0.01>").1, Some("/dev/nvmap<char 10:62>"));
    }

    #[test]
    fn broken_off_calls_are_recognised() {
        assert_eq!(
            parse("12 ioctl(4, 0x1, 0x2 <unfinished ...>"),
            (Some(12), Event::Unfinished("ioctl(4, 0x1, 0x2 "))
        );
        assert_eq!(parse("[pid 12] <... ioctl resumed>) = 0"), (Some(12), Event::Resumed(") = 0")));
        assert_eq!(parse("12 +++ exited with 0 +++"), (Some(12), Event::Exited));
        assert_eq!(parse("--- SIGCHLD {si_signo=SIGCHLD} ---"), (None, Event::Other));
        assert_eq!(parse("ioctl(4, (0x1 = 0"), (None, Event::Garbled));
    }
}
