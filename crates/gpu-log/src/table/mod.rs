//! What each line of the GPU's drivers means, and what to do about it: the one table.
//!
//! The lines are those of L4T r36.4's nvgpu and nvmap, as their sources print them, with what logs of a
//! real board show; `docs/kernel-log.md` has the table for readers, and a test keeps both the same.

mod faults;
mod others;
mod requests;

use core::fmt;

use super::record::{Level, Record};

/// What a line is to whoever runs programs on the GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Class {
    /// Nothing to do, nothing to know unless one looks for a cause.
    Information,
    /// Looks bad and is not.
    Harmless,
    /// Worth a look; work goes on.
    Warning,
    /// Work was lost or refused, or hardware failed.
    Error,
}

impl Class {
    /// All of them, worst last.
    pub const ALL: [Self; 4] = [Self::Information, Self::Harmless, Self::Warning, Self::Error];

    /// One word.
    pub fn name(self) -> &'static str {
        match self {
            Self::Information => "information",
            Self::Harmless => "harmless",
            Self::Warning => "warning",
            Self::Error => "error",
        }
    }
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Which kind of event a line speaks of; a test that provokes one declares it by this.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Kind {
    /// Nothing that needs a name.
    None,
    /// An access that the GPU's MMU refused.
    Mmu,
    /// An SM gave up on an instruction.
    Sm,
    /// The compute scheduler refused a launch descriptor.
    LaunchDescriptor,
    /// An engine refused a method or its data.
    Method,
    /// The host engine could not read a pushbuffer.
    Pushbuffer,
    /// The copy engine refused a copy.
    CopyEngine,
    /// Something did not end in time.
    Hang,
    /// The kernel refused a request of a program.
    Refused,
    /// Memory or bus of the GPU failed.
    Hardware,
    /// The GPU is out of service until a reboot.
    Fatal,
    /// Strict mode of the software Orin found what a board would hide.
    Strict,
    /// A channel's error notifier was set, for a reason that the lines around it have.
    Notifier,
    /// An error that the table does not know.
    Unknown,
}

impl Kind {
    /// A few words, for reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "-",
            Self::Mmu => "MMU fault",
            Self::Sm => "SM exception",
            Self::LaunchDescriptor => "launch descriptor refused",
            Self::Method => "method refused",
            Self::Pushbuffer => "pushbuffer error",
            Self::CopyEngine => "copy engine error",
            Self::Hang => "hang",
            Self::Refused => "request refused",
            Self::Hardware => "hardware error",
            Self::Fatal => "GPU out of service",
            Self::Strict => "strict mode",
            Self::Notifier => "error notifier set",
            Self::Unknown => "unknown error",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// What part a line has in a report of several lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// A report of its own.
    Alone,
    /// Names a cause: begins a report, or joins the one that is being made.
    Cause,
    /// Adds to the report that is being made.
    Detail,
    /// What the kernel does in the end; a cause after it begins the next report.
    End,
}

/// One row of the table.
#[derive(Debug)]
pub struct Row {
    /// What a line must contain: pieces in this order, with anything at each `*`.
    pub pattern: &'static str,
    /// What it is.
    pub class: Class,
    /// Which event it speaks of.
    pub kind: Kind,
    /// Its part in a report.
    pub role: Role,
    /// What it means.
    pub meaning: &'static str,
    /// What to do; empty where there is nothing.
    pub cure: &'static str,
}

impl Row {
    /// Whether `text` is such a line.
    pub fn matches(&self, text: &str) -> bool {
        let mut rest = text;
        self.pattern.split('*').all(|piece| match rest.find(piece) {
            Some(at) => {
                rest = &rest[at + piece.len()..];
                true
            }
            None => false,
        })
    }
}

/// The rows under their headings. The first row that matches a line is the line's.
pub const TABLE: [(&str, &[Row]); 6] = [
    ("GPU faults", faults::FAULTS),
    ("Hangs and the end of the GPU", faults::HANGS),
    ("Refused requests: memory", requests::MEMORY),
    ("Refused requests: channels", requests::CHANNELS),
    ("Power, notes and dumps", others::NOTES),
    ("The desktop driver and the system", others::SYSTEM),
];

/// A line that no row of [`TABLE`] knows, by what its driver calls it.
const UNKNOWN_ERROR: Row = Row {
    pattern: "[ERR]",
    class: Class::Error,
    kind: Kind::Unknown,
    role: Role::Alone,
    meaning: "the driver calls it an error; this table does not know it",
    cure: "read the lines around it; search the driver's source for the text",
};
const UNKNOWN_WARNING: Row = Row {
    pattern: "[WRN]",
    class: Class::Warning,
    kind: Kind::None,
    role: Role::Alone,
    meaning: "the driver warns of something that this table does not know",
    cure: "read the lines around it",
};
const UNKNOWN_LINE: Row = Row {
    pattern: "",
    class: Class::Information,
    kind: Kind::None,
    role: Role::Alone,
    meaning: "a line about the GPU that this table does not know",
    cure: "",
};

/// The row of a record about the GPU.
pub fn lookup(record: &Record) -> &'static Row {
    let known = TABLE.iter().flat_map(|(_, rows)| rows.iter()).find(|row| row.matches(&record.text));
    known.unwrap_or_else(|| {
        if record.text.contains(UNKNOWN_ERROR.pattern) || record.level.is_some_and(|l| l <= Level::Error) {
            &UNKNOWN_ERROR
        } else if record.text.contains(UNKNOWN_WARNING.pattern) || record.level == Some(Level::Warning) {
            &UNKNOWN_WARNING
        } else {
            &UNKNOWN_LINE
        }
    })
}

/// A line of a kernel WARNING's trace that says nothing by itself.
const TRACE_LINE: Row = Row { meaning: "part of a kernel WARNING's report", ..UNKNOWN_LINE };

/// The row of a line in a kernel WARNING, whose level says nothing.
pub(super) fn trace_row(text: &str) -> &'static Row {
    let known = TABLE.iter().flat_map(|(_, rows)| rows.iter()).find(|row| row.matches(text));
    known.unwrap_or(&TRACE_LINE)
}

/// Whether a row only says that there is a kernel WARNING.
pub(super) fn is_plain_warning(row: &Row) -> bool {
    row.pattern == others::PLAIN_WARNING
}

/// Words by which a message is about the GPU: its driver's name, its functions in warnings, its
/// allocator, its syncpoints, the memory controller's and the desktop driver's reports, and the
/// explanations of a modelled GPU.
const MARKS: [&str; 22] = [
    "nvgpu",
    "ga10b",
    "gk20a",
    "gm20b",
    "gv11b",
    "tu104_gr",
    "17000000.gpu",
    "tpc_pg_mask",
    "nvmap",
    "NvMap",
    "NVMAP_",
    "host1x",
    "nvhost",
    "syncpt",
    "tegra-mc",
    "mc-err",
    "17000000.ga10b",
    "NVRM:",
    "nvidia-uvm",
    "nvidia_uvm",
    "nvidia-modeset",
    "orin-sim: ",
];

/// Whether a message is about the GPU. The list of modules in a warning's dump names the GPU's drivers
/// whoever is to blame, so it does not count.
pub fn is_about_the_gpu(text: &str) -> bool {
    !text.trim_start().starts_with("Modules linked in") && MARKS.iter().any(|mark| text.contains(mark))
}

/// A row in one line of source.
const fn row(
    role: Role,
    class: Class,
    kind: Kind,
    pattern: &'static str,
    meaning: &'static str,
    cure: &'static str,
) -> Row {
    Row { pattern, class, kind, role, meaning, cure }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn rows() -> impl Iterator<Item = &'static Row> {
        TABLE.iter().flat_map(|(_, rows)| rows.iter())
    }

    #[test]
    fn each_row_is_complete_and_reachable() {
        let mut patterns = BTreeSet::new();
        for row in rows() {
            assert!(patterns.insert(row.pattern), "{} stands twice", row.pattern);
            assert!(row.pattern.len() >= 5 && !row.meaning.is_empty(), "{}", row.pattern);
            assert!(row.class < Class::Warning || !row.cure.is_empty(), "no cure: {}", row.pattern);
            assert_eq!(row.class == Class::Error, row.kind != Kind::None, "{}", row.pattern);
            // A line that consists of the pattern must find this very row: no earlier one hides it.
            let found = lookup(&Record::from_text(row.pattern));
            assert_eq!(found.pattern, row.pattern, "hidden by {}", found.pattern);
        }
        assert!(patterns.len() > 100, "{}", patterns.len());
    }

    #[test]
    fn patterns_match_pieces_in_order() {
        let pattern = UNKNOWN_LINE;
        assert!(pattern.matches("") && pattern.matches("anything"));
        let row = Row { pattern: "a*bc*d", ..UNKNOWN_LINE };
        assert!(row.matches("xxa-bc-d") && row.matches("abcd"));
        assert!(!row.matches("bcad") && !row.matches("abc") && !row.matches("abd"));
    }

    #[test]
    fn unknown_lines_are_judged_by_what_the_driver_calls_them() {
        let class =
            |text: &str, level| lookup(&Record { level, text: text.to_owned(), ..Record::default() }).class;
        assert_eq!(class("nvgpu: 17000000.gpu f:1 [ERR]  never seen", None), Class::Error);
        assert_eq!(class("nvgpu: 17000000.gpu f:1 [WRN]  never seen", None), Class::Warning);
        assert_eq!(class("nvgpu: 17000000.gpu f:1 [INFO]  never seen", None), Class::Information);
        assert_eq!(class("nvmap: never seen", Some(Level::Critical)), Class::Error);
        assert_eq!(class("nvmap: never seen", Some(Level::Warning)), Class::Warning);
        assert_eq!(class("nvmap: never seen", Some(Level::Information)), Class::Information);
    }

    #[test]
    fn other_drivers_and_lists_of_modules_are_left_out() {
        assert!(is_about_the_gpu("__ga10b__ Channel Status - chip ga10b"));
        assert!(is_about_the_gpu("NVRM: Xid (PCI:0000:01:00): 31, pid=1"));
        assert!(!is_about_the_gpu("usb 1-2: new high-speed USB device"));
        assert!(!is_about_the_gpu("Modules linked in: nvgpu(OE) nvmap(OE) snd_soc"));
    }
}
