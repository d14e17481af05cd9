//! One message of the kernel log, in each of its text formats.
//!
//! `/dev/kmsg` gives `priority,sequence,microseconds,flags;text` with unprintable bytes as `\xNN` and
//! continuation lines that start with a space (Linux `Documentation/ABI/testing/dev-kmsg`). `dmesg`
//! prints `[seconds] text`, with `-r` a priority `<N>` in front, with `-x` facility and level in words,
//! with `-T` the time of day. Log files have a date, the host's name and `kernel:`.

use core::fmt;

/// Severity of a message, by printk's numbers.
///
/// ```
/// use gpu_log::Level;
///
/// assert_eq!(Level::from_priority(3), Level::Error);
/// assert_eq!(Level::Error.name(), "err");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Level {
    /// 0: the system is unusable.
    Emergency,
    /// 1: action must be taken at once.
    Alert,
    /// 2: critical conditions.
    Critical,
    /// 3: errors.
    Error,
    /// 4: warnings.
    Warning,
    /// 5: normal but significant.
    Notice,
    /// 6: information.
    Information,
    /// 7: messages for debugging.
    Debug,
}

impl Level {
    const ALL: [(Self, &'static str); 8] = [
        (Self::Emergency, "emerg"),
        (Self::Alert, "alert"),
        (Self::Critical, "crit"),
        (Self::Error, "err"),
        (Self::Warning, "warn"),
        (Self::Notice, "notice"),
        (Self::Information, "info"),
        (Self::Debug, "debug"),
    ];

    /// The level in the low three bits of a priority; the other bits are the facility.
    pub fn from_priority(priority: u64) -> Self {
        // CAST: three bits.
        Self::ALL[(priority & 7) as usize].0
    }

    /// The name that `dmesg -x` prints.
    pub fn name(self) -> &'static str {
        Self::ALL[self as usize].1
    }

    fn from_name(name: &str) -> Option<Self> {
        Self::ALL.iter().find(|(_, known)| *known == name).map(|(level, _)| *level)
    }
}

/// Time of a message.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Stamp {
    /// Unknown.
    #[default]
    None,
    /// Microseconds since the kernel started.
    Uptime(u64),
    /// A date or time of day, as printed in the log.
    Wall(String),
}

impl fmt::Display for Stamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => Ok(()),
            Self::Uptime(micros) => write!(f, "[{:5}.{:06}]", micros / 1_000_000, micros % 1_000_000),
            Self::Wall(text) => write!(f, "[{text}]"),
        }
    }
}

/// One message of the kernel log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// Severity, if the log has it.
    pub level: Option<Level>,
    /// Sequence number since the kernel started, if the log has it.
    pub sequence: Option<u64>,
    /// Time of the message.
    pub stamp: Stamp,
    /// The message.
    pub text: String,
}

impl Record {
    /// A message of which only the text is known.
    pub fn from_text(text: &str) -> Self {
        Self { text: printable(text), ..Self::default() }
    }

    /// Parses a record of `/dev/kmsg`; `None` if it is malformed. Invalid UTF-8 is replaced.
    pub fn from_kmsg(record: &[u8]) -> Option<Self> {
        let record = String::from_utf8_lossy(record);
        let (prefix, message) = record.split_once(';')?;
        let mut fields = prefix.split(',');
        let priority: u64 = decimal(fields.next()?)?;
        let sequence = decimal(fields.next()?)?;
        let micros = decimal(fields.next()?)?;
        fields.next()?;
        let text = unescape(message.lines().next().unwrap_or_default().trim_end());
        let level = Some(Level::from_priority(priority));
        Some(Self { level, sequence: Some(sequence), stamp: Stamp::Uptime(micros), text })
    }

    /// Parses a line printed by `dmesg` or `journalctl -k`, of a log file, or saved from `/dev/kmsg`. A line of
    /// unknown format is all text.
    pub fn from_line(line: &str) -> Self {
        let line = line.trim_end();
        if let Some(record) = Self::from_kmsg(line.as_bytes()) {
            return record;
        }
        let mut record = Self::default();
        let mut rest = line;
        if let Some((level, after)) = raw_priority(rest).or_else(|| facility_and_level(rest)) {
            record.level = Some(level);
            rest = after;
        }
        if let Some((stamp, after)) = log_file_prefix(rest).or_else(|| iso_date(rest)) {
            record.stamp = stamp;
            rest = after;
        }
        if let Some((stamp, after)) = bracketed_stamp(rest) {
            if stamp != Stamp::None || record.stamp == Stamp::None {
                record.stamp = stamp;
            }
            rest = caller(after).unwrap_or(after);
        }
        record.text = printable(rest);
        record
    }

    /// Parses a saved log, without empty lines and the key-value lines of `/dev/kmsg`.
    pub fn parse_log(log: &str) -> Vec<Self> {
        let mut records: Vec<Self> = Vec::new();
        for line in log.lines() {
            let continuation = line.starts_with(' ') && records.last().is_some_and(|r| r.sequence.is_some());
            if !continuation && !line.trim().is_empty() {
                records.push(Self::from_line(line));
            }
        }
        records
    }
}

/// A decimal number without sign or space.
fn decimal(text: &str) -> Option<u64> {
    if text.bytes().all(|byte| byte.is_ascii_digit()) { text.parse().ok() } else { None }
}

/// Decodes `\xNN` of `/dev/kmsg`, except for terminal control characters.
fn unescape(text: &str) -> String {
    if !text.contains("\\x") {
        return printable(text);
    }
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, tail)) = rest.split_first() {
        let escaped = tail.strip_prefix(b"x").filter(|_| first == b'\\').and_then(|digits| digits.get(..2));
        let byte = escaped
            .and_then(|digits| core::str::from_utf8(digits).ok())
            .and_then(|digits| u8::from_str_radix(digits, 16).ok());
        match byte {
            Some(byte) if byte == b'\t' || !byte.is_ascii_control() => {
                bytes.push(byte);
                rest = &tail[3..];
            }
            _ => {
                bytes.push(first);
                rest = tail;
            }
        }
    }
    printable(&String::from_utf8_lossy(&bytes))
}

/// Replaces terminal control characters, since any program may write to a log, and tabs by spaces.
fn printable(text: &str) -> String {
    let shown = |character: char| match character {
        '\t' => ' ',
        control if control.is_control() => char::REPLACEMENT_CHARACTER,
        other => other,
    };
    text.chars().map(shown).collect()
}

/// `<4>` of `dmesg -r`.
fn raw_priority(line: &str) -> Option<(Level, &str)> {
    let (number, rest) = line.strip_prefix('<')?.split_once('>')?;
    if number.is_empty() || number.len() > 3 {
        return None;
    }
    Some((Level::from_priority(decimal(number)?), rest))
}

/// `kern  :err   : ` of `dmesg -x`.
fn facility_and_level(line: &str) -> Option<(Level, &str)> {
    const FACILITIES: [&str; 13] = [
        "kern", "user", "mail", "daemon", "auth", "syslog", "lpr", "news", "uucp", "cron", "authpriv", "ftp",
        "local",
    ];
    let (facility, rest) = line.split_once(':')?;
    let facility = facility.trim_end().trim_end_matches(|c: char| c.is_ascii_digit());
    if !FACILITIES.contains(&facility) {
        return None;
    }
    let (level, rest) = rest.split_once(':')?;
    Some((Level::from_name(level.trim_end())?, rest.strip_prefix(' ').unwrap_or(rest)))
}

/// `[    5.140900] `, `[Thu Feb 12 10:11:12 2026] ` and similar. Any other bracket is part of the text.
fn bracketed_stamp(line: &str) -> Option<(Stamp, &str)> {
    let (inside, rest) = line.trim_start().strip_prefix('[')?.split_once(']')?;
    let rest = rest.strip_prefix(' ').unwrap_or(rest);
    // `dmesg -d` adds the distance to the line before: `[    5.140900 <    0.000012>]`.
    let inside = inside.split('<').next().unwrap_or_default().trim();
    if let Some(micros) = microseconds(inside) {
        return Some((Stamp::Uptime(micros), rest));
    }
    // `dmesg -e` gives most lines only the distance to the line before.
    if inside.strip_prefix('+').is_some_and(|number| microseconds(number.trim()).is_some()) {
        return Some((Stamp::None, rest));
    }
    is_date(inside).then(|| (Stamp::Wall(inside.to_owned()), rest))
}

/// `123.456789` as microseconds.
fn microseconds(text: &str) -> Option<u64> {
    let (seconds, fraction) = text.split_once('.')?;
    if seconds.is_empty() || fraction.is_empty() || fraction.len() > 6 {
        return None;
    }
    let scale = 10_u64.pow(6 - u32::try_from(fraction.len()).ok()?);
    decimal(seconds)?.checked_mul(1_000_000)?.checked_add(decimal(fraction)? * scale)
}

/// `T1234` or `C0` in brackets: the thread or CPU that printed the line.
fn caller(line: &str) -> Option<&str> {
    let (inside, rest) = line.strip_prefix('[')?.split_once(']')?;
    let number = inside.trim().strip_prefix(['T', 'C'])?;
    decimal(number).filter(|_| !number.is_empty())?;
    Some(rest.strip_prefix(' ').unwrap_or(rest))
}

/// Whether the text begins with the name of a day or month and has a time of day.
fn is_date(text: &str) -> bool {
    const NAMES: [&str; 19] = [
        "Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun", "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul",
        "Aug", "Sep", "Oct", "Nov", "Dec",
    ];
    NAMES.iter().any(|name| text.starts_with(name)) && text.contains(':')
}

/// `Feb 12 10:11:12 host kernel: ` or `2026-02-12T10:11:12.123456+01:00 host kernel: `.
fn log_file_prefix(line: &str) -> Option<(Stamp, &str)> {
    let (prefix, rest) = line.split_once(" kernel: ")?;
    let (date, _host) = prefix.rsplit_once(' ')?;
    (is_date(date) || is_iso(date)).then(|| (Stamp::Wall(date.to_owned()), rest))
}

/// `2026-02-12T10:11:12,123456+00:00 ` of `dmesg --time-format iso`.
fn iso_date(line: &str) -> Option<(Stamp, &str)> {
    let (date, rest) = line.split_once(' ')?;
    is_iso(date).then(|| (Stamp::Wall(date.to_owned()), rest))
}

fn is_iso(text: &str) -> bool {
    let bytes = text.as_bytes();
    bytes.len() >= 19
        && text.is_ascii()
        && bytes[..4].iter().all(u8::is_ascii_digit)
        && (bytes[4], bytes[7], bytes[10], bytes[13]) == (b'-', b'-', b'T', b':')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TEXT: &str = "nvgpu: 17000000.gpu gk20a_x:1 [ERR]  fault";

    fn record(level: Option<Level>, stamp: Stamp) -> Record {
        Record { level, sequence: None, stamp, text: TEXT.to_owned() }
    }

    #[test]
    fn a_record_of_kmsg() {
        let bytes = format!("3,1234,5678901,-,caller=T7;{TEXT}\\x09!\n SUBSYSTEM=platform\n DEVICE=+gpu\n");
        let record = Record::from_kmsg(bytes.as_bytes()).unwrap();
        assert_eq!((record.level, record.sequence), (Some(Level::Error), Some(1234)));
        assert_eq!(record.stamp, Stamp::Uptime(5_678_901));
        assert_eq!(record.text, format!("{TEXT} !"));
        // The facility is in the bits above the level: 30 is a daemon's "info".
        assert_eq!(Record::from_kmsg(b"30,1,2,-;x").unwrap().level, Some(Level::Information));
        for bad in ["", ";", "3,1,2;x", "a,1,2,-;x", "3,-1,2,-;x", "3,1,99999999999999999999,-;x"] {
            assert_eq!(Record::from_kmsg(bad.as_bytes()), None, "{bad}");
        }
    }

    #[test]
    fn every_form_of_dmesg() {
        let at = |micros| Stamp::Uptime(micros);
        let wall = |text: &str| Stamp::Wall(text.to_owned());
        let err = Some(Level::Error);
        for (prefix, expected) in [
            ("", record(None, Stamp::None)),
            ("[    5.140900] ", record(None, at(5_140_900))),
            ("[12345.000001 <    0.000012>] ", record(None, at(12_345_000_001))),
            ("[    5.140900][  T123] ", record(None, at(5_140_900))),
            ("<3>[    5.140900] ", record(err, at(5_140_900))),
            ("kern  :err   : [    5.140900] ", record(err, at(5_140_900))),
            ("kern  :err   : ", record(err, Stamp::None)),
            ("[Thu Feb 12 10:11:12 2026] ", record(None, wall("Thu Feb 12 10:11:12 2026"))),
            ("kern  :err   : [Thu Feb 12 10:11:12 2026] ", record(err, wall("Thu Feb 12 10:11:12 2026"))),
            ("[Feb12 10:11] ", record(None, wall("Feb12 10:11"))),
            ("[  +0.000123] ", record(None, Stamp::None)),
            ("2026-02-12T10:11:12,123456+00:00 ", record(None, wall("2026-02-12T10:11:12,123456+00:00"))),
            ("Feb 12 10:11:12 orin kernel: ", record(None, wall("Feb 12 10:11:12"))),
            ("Feb 12 10:11:12 orin kernel: [    5.140900] ", record(None, at(5_140_900))),
            ("2026-02-12T10:11:12.1+01:00 orin kernel: ", record(None, wall("2026-02-12T10:11:12.1+01:00"))),
        ] {
            assert_eq!(Record::from_line(&format!("{prefix}{TEXT}")), expected, "{prefix}");
        }
    }

    #[test]
    fn brackets_that_are_no_stamp_belong_to_the_text() {
        for text in ["[drm] Initialized tegra", "[MMU FAULT] x", "<x>y", "note: a: b", "[1.2.3] x", "[]"] {
            assert_eq!(Record::from_line(text).text, text);
        }
    }

    #[test]
    fn a_saved_log_is_read_line_by_line() {
        let log = "6,1,2,-;first\n SUBSYSTEM=x\n\n3,2,3,-;second\n[    0.000009] third\n  with a space\n";
        let texts: Vec<_> = Record::parse_log(log).into_iter().map(|record| record.text).collect();
        assert_eq!(texts, ["first", "second", "third", "  with a space"]);
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_record_or_none(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            if let Some(record) = Record::from_kmsg(&bytes) {
                prop_assert!(record.sequence.is_some() && record.level.is_some());
            }
            let text = String::from_utf8_lossy(&bytes);
            prop_assert!(Record::from_line(&text).text.chars().count() <= text.chars().count());
            prop_assert!(Record::parse_log(&text).len() <= text.lines().count());
        }

        #[test]
        fn nothing_that_commands_a_terminal_gets_through(line: String, bytes: Vec<u8>) {
            let clean = |text: &str| !text.chars().any(char::is_control);
            prop_assert!(clean(&Record::from_line(&line).text));
            prop_assert!(clean(&Record::from_text(&line).text));
            let escaped: String = bytes.iter().map(|byte| format!("\\x{byte:02x}")).collect();
            let record = format!("3,1,2,-;{escaped}");
            prop_assert!(clean(&Record::from_line(&record).text));
        }

        #[test]
        fn pieces_of_real_lines_in_any_order(
            pieces in proptest::collection::vec(
                prop_oneof![
                    Just("["), Just("]"), Just("<3>"), Just("<"), Just("kern  :err   : "), Just("\\x"),
                    Just("\\x0"), Just("12.5"), Just("+0.1"), Just(" kernel: "), Just(";"), Just("3,1,2,-"),
                    Just("Feb 12 10:11:12 orin"), Just("2026-02-12T10:11:12"), Just("\u{e9}"), Just("\n "),
                    Just("99999999999999999999.999999"), Just("T1"), Just(" "),
                ],
                0..12,
            )
        ) {
            let line = pieces.concat();
            // A replaced byte can only make the text longer where an escape stood, never the other way.
            prop_assert!(Record::from_line(&line).text.chars().count() <= line.chars().count());
        }

        #[test]
        fn what_kmsg_wrote_comes_back(
            level in 0_u64..8, sequence: u64, micros: u64, text in "[ -:<-\\[\\]-~]{0,80}[!-:<-\\[\\]-~]"
        ) {
            let record = Record::from_line(&format!("{level},{sequence},{micros},-;{text}"));
            prop_assert_eq!(record.level, Some(Level::from_priority(level)));
            prop_assert_eq!((record.sequence, record.stamp), (Some(sequence), Stamp::Uptime(micros)));
            prop_assert_eq!(record.text, text);
        }
    }
}
