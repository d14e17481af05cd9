//! The table of kernel-log lines: what each line looks like, what it means, and what to do about it.
//!
//! The lines are those of nvgpu and nvmap of L4T r36.4, as their sources print them, compared with logs of a board.
//! One row serves three purposes. The parser ([`Message::parse`]) reads a line's values by the row's template, the
//! software Orin prints the line with the same template, and `docs/kernel-log-*.md` are generated from the rows.

mod channels;
mod faults;
mod hangs;
mod memory;
mod notes;
mod startup;
mod system;

use core::fmt;

pub use channels::ChannelLine;
pub use faults::FaultLine;
pub use hangs::HangLine;
pub use memory::MemoryLine;
pub use notes::NoteLine;
pub use startup::StartLine;
pub use system::SystemLine;

use crate::record::{Level, Record};

/// Severity of a line for the user of the GPU.
///
/// ```
/// use gpu_log::Class;
///
/// assert!(Class::Error > Class::Warning);
/// assert_eq!(Class::Error.name(), "error");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Class {
    /// Nothing to do; of interest only when searching for a cause.
    Information,
    /// Looks like an error but is not one.
    Harmless,
    /// Worth a look; work continues.
    Warning,
    /// Work was lost or refused, or hardware failed.
    Error,
}

impl Class {
    /// All classes, most severe last.
    pub const ALL: [Self; 4] = [Self::Information, Self::Harmless, Self::Warning, Self::Error];

    /// The class in one word.
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

/// Kind of event that a line belongs to. A test declares the kind of event that it provokes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Kind {
    /// Not a separate event.
    None,
    /// The MMU refused an access.
    Mmu,
    /// An SM stopped at an instruction.
    Sm,
    /// The compute scheduler refused a launch descriptor.
    LaunchDescriptor,
    /// An engine refused a method or its data.
    Method,
    /// The host engine could not read a pushbuffer.
    Pushbuffer,
    /// The copy engine refused a copy.
    CopyEngine,
    /// Work did not end in time.
    Hang,
    /// The kernel refused a request of a program.
    Refused,
    /// Memory or bus of the GPU failed.
    Hardware,
    /// The GPU is out of service until a reboot.
    Fatal,
    /// Strict mode of the software Orin found an error that a board hides.
    Strict,
    /// The kernel set a channel's error notifier; the surrounding lines have the reason.
    Notifier,
    /// An error without a row in the table.
    Unknown,
}

impl Kind {
    /// A short name, for reports.
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

/// Role of a line in a report of several lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// A separate report.
    Alone,
    /// Names a cause: starts a report, or joins the open one.
    Cause,
    /// Adds to the open report.
    Detail,
    /// Last step of the kernel; a cause after it starts the next report.
    End,
}

/// Longest message of nvgpu in bytes; nvgpu cuts off the rest.
pub const MESSAGE_BYTES: usize = 159;

/// Start of an explanation by the software Orin.
const EXPLANATION: &str = "orin-sim: ";

/// One row of the table.
#[derive(Debug)]
pub struct Row {
    /// Pattern of the line: these pieces in this order, with any text at each `*`.
    pub pattern: &'static str,
    /// Severity of the line.
    pub class: Class,
    /// Kind of event.
    pub kind: Kind,
    /// Role in a report.
    pub role: Role,
    /// Meaning of the line.
    pub meaning: &'static str,
    /// Cure; empty if none is needed.
    pub cure: &'static str,
    /// Reads the values of a line that matches; `None` for a row without values.
    read: Option<fn(&str) -> Option<Message>>,
}

impl Row {
    /// Whether the row applies to `text`.
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

/// The rows under their headings. The first row that matches a line applies.
pub const TABLE: [(&str, &[Row]); 7] = [
    ("GPU faults", faults::FAULTS),
    ("Hangs and the end of the GPU", hangs::HANGS),
    ("Refused requests: memory", memory::MEMORY),
    ("Refused requests: channels", channels::CHANNELS),
    ("Notes and dumps", notes::NOTES),
    ("Start, power and firmware", startup::STARTUP),
    ("The desktop driver and the system", system::SYSTEM),
];

/// All rows in the order in which they are tried.
pub(crate) fn rows() -> impl Iterator<Item = &'static Row> {
    TABLE.iter().flat_map(|(_, rows)| rows.iter())
}

/// The rows that match a line. The software Orin's explanations may quote any text, so only its own rows apply to
/// them.
fn rows_of(text: &str) -> impl Iterator<Item = &'static Row> + use<'_> {
    let explained = text.contains(EXPLANATION);
    rows().filter(move |row| (!explained || row.pattern.starts_with("orin-sim:")) && row.matches(text))
}

/// Defines an enum of lines and their rows.
///
/// A row is: role, class, kind, pattern, then `=> Variant { fields } "template"` if the software Orin prints the line
/// or the parser reads its values, then meaning and cure. Without a template, the pattern is the whole line.
macro_rules! lines {
    (@template $pattern:literal) => { $pattern };
    (@template $pattern:literal $template:literal) => { $template };
    (@read $line:ident) => { None };
    (@read $line:ident $name:ident) => { Some(|_| Some($crate::Message::from($line::$name))) };
    (@read $line:ident $name:ident {} $template:literal) => {
        Some(|_| Some($crate::Message::from($line::$name {})))
    };
    (@read $line:ident $name:ident { $($field:ident)+ } $template:literal) => {
        Some(|text| {
            let mut values = $crate::template::capture($template, text)?;
            Some($crate::Message::from($line::$name { $($field: values.read()?),+ }))
        })
    };
    (
        $(#[$doc:meta])*
        $line:ident in $rows:ident;
        $(
            $role:ident $class:ident $kind:ident $pattern:literal
                $(=> $name:ident $({ $($field:ident : $type:ty),* } $template:literal)?)?,
                $meaning:literal, $cure:expr;
        )*
    ) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq)]
        #[non_exhaustive]
        pub enum $line {$($(
            #[doc = $meaning]
            $name $({ $(
                #[doc = concat!("Value of `", stringify!($field), "` in the line.")]
                $field: $type,
            )* })?,
        )?)*}

        impl core::fmt::Display for $line {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                match self {$($(
                    Self::$name $({ $($field),* })? => {
                        write!(f, lines!(@template $pattern $($template)?) $($(, $field = $field)*)?)
                    }
                )?)*}
            }
        }

        pub(super) const $rows: &[super::Row] = &[$(super::Row {
            pattern: $pattern,
            class: super::Class::$class,
            kind: super::Kind::$kind,
            role: super::Role::$role,
            meaning: $meaning,
            cure: $cure,
            read: lines!(@read $line $($name $({ $($field)* } $template)?)?),
        }),*];

        #[cfg(test)]
        impl $line {
            /// Each line once, with values from `source`.
            pub(crate) fn samples(source: &mut crate::samples::Source) -> Vec<crate::Message> {
                let _ = &source;
                vec![$($(crate::Message::from(Self::$name $({ $($field: source.draw()),* })?),)?)*]
            }
        }
    };
}
use lines;

/// A line with its values. `to_string` gives the text that the driver prints, without what the log puts before it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Message {
    /// A fault of work on the GPU.
    Fault(FaultLine),
    /// A hang, or the end of the GPU.
    Hang(HangLine),
    /// A refused request of nvmap or of an address space.
    Memory(MemoryLine),
    /// A refused request of a TSG or channel.
    Channel(ChannelLine),
    /// A note or a dump.
    Note(NoteLine),
    /// A line about start, power or firmware.
    Start(StartLine),
    /// A line of the desktop driver or of another driver.
    System(SystemLine),
}

macro_rules! messages {
    ($($variant:ident($line:ident)),*) => {
        $(impl From<$line> for Message {
            fn from(line: $line) -> Self {
                Self::$variant(line)
            }
        })*

        impl fmt::Display for Message {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self {
                    $(Self::$variant(line) => line.fmt(f),)*
                }
            }
        }
    };
}
messages!(
    Fault(FaultLine),
    Hang(HangLine),
    Memory(MemoryLine),
    Channel(ChannelLine),
    Note(NoteLine),
    Start(StartLine),
    System(SystemLine)
);

impl Message {
    /// Reads a line of the log; `None` if no row has a template for it.
    pub fn parse(text: &str) -> Option<Self> {
        let message = message_of(text);
        rows_of(text).find_map(|row| row.read?(message))
    }
}

/// A line of nvgpu, as its function `function` prints it for the device `device`. nvgpu cuts messages off after
/// [`MESSAGE_BYTES`].
pub fn nvgpu_line(level: Level, device: &str, function: &str, message: &Message) -> String {
    let tag = match level {
        Level::Warning => "WRN",
        Level::Notice | Level::Information | Level::Debug => "INFO",
        _ => "ERR",
    };
    let mut message = message.to_string();
    if let Some((cut, _)) = message.char_indices().find(|(at, c)| at + c.len_utf8() > MESSAGE_BYTES) {
        message.truncate(cut);
    }
    format!("nvgpu: {device} {function:>33}:{:<4} [{tag}]  {message}", 0)
}

/// A line of nvmap, as its function `function` prints it.
pub fn nvmap_line(function: &str, message: &Message) -> String {
    format!("{function}: {message}")
}

/// The message of a line of nvgpu, without device, function and tag; other lines as they are.
fn message_of(text: &str) -> &str {
    let tags = ["[ERR]", "[WRN]", "[INFO]"];
    tags.iter().find_map(|tag| Some(text.split_once(tag)?.1.trim_start())).unwrap_or(text)
}

/// Lines without a row in [`TABLE`], by the severity that the driver gives them.
const UNKNOWN_ERROR: Row = Row {
    pattern: "[ERR]",
    class: Class::Error,
    kind: Kind::Unknown,
    role: Role::Alone,
    meaning: "The driver reports an error without a row in this table.",
    cure: "Read the surrounding lines; search the driver's source for the text.",
    read: None,
};
const UNKNOWN_WARNING: Row = Row {
    pattern: "[WRN]",
    class: Class::Warning,
    kind: Kind::None,
    role: Role::Alone,
    meaning: "The driver reports a warning without a row in this table.",
    cure: "Read the surrounding lines.",
    read: None,
};
const UNKNOWN_LINE: Row = Row {
    pattern: "",
    class: Class::Information,
    kind: Kind::None,
    role: Role::Alone,
    meaning: "A line about the GPU without a row in this table.",
    cure: "",
    read: None,
};

/// Returns the row of a record about the GPU.
pub fn lookup(record: &Record) -> &'static Row {
    let known = rows_of(&record.text).next();
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

/// A line of a kernel WARNING's trace without a row.
const TRACE_LINE: Row = Row { meaning: "Part of a kernel WARNING.", ..UNKNOWN_LINE };

/// Returns the row of a line in a kernel WARNING, ignoring its level.
pub(crate) fn trace_row(text: &str) -> &'static Row {
    let known = rows_of(text).next();
    known.unwrap_or(&TRACE_LINE)
}

/// Whether a row only reports that there is a kernel WARNING.
pub(crate) fn is_plain_warning(row: &Row) -> bool {
    row.pattern == notes::PLAIN_WARNING
}

/// Words that identify a message about the GPU: names of drivers and devices, functions in warnings, allocators,
/// syncpoints, reports of the memory controller, of the system MMU and of the desktop driver, explanations of the
/// software Orin.
const MARKS: [&str; 31] = [
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
    "NVRM",
    "nvidia-uvm",
    "nvidia_uvm",
    "nvidia-modeset",
    "nvidia-drm",
    "nvidia_drm",
    "nvidia-peermem",
    "nvidia-nvlink",
    "cma_alloc",
    "hsierrrptinj",
    "netlist",
    "arm-smmu",
    "tegra-carveouts",
    EXPLANATION,
];

/// Whether a message is about the GPU. The list of modules in a kernel WARNING names the GPU's drivers whatever the
/// cause, so it does not count.
pub fn is_about_the_gpu(text: &str) -> bool {
    !text.trim_start().starts_with("Modules linked in") && MARKS.iter().any(|mark| text.contains(mark))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;
    use crate::samples::Source;

    #[test]
    fn each_row_is_complete_and_reachable() {
        let mut patterns = BTreeSet::new();
        for row in rows() {
            assert!(patterns.insert(row.pattern), "{} is a duplicate", row.pattern);
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
    fn explanations_match_rows_of_the_software_orin_only() {
        let quoted = "orin-sim: channel 4: the class error 7 of offset 3 is an illegal method";
        let message = FaultLine::Explanation { channel: 4, text: quoted[20..].trim_start().to_owned() };
        assert_eq!(Message::parse(quoted), Some(message.into()));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]

        /// Each line that is printed through its template is read back with the same values.
        #[test]
        fn printed_lines_are_read_back(
            numbers in proptest::collection::vec(any::<u64>(), 1..8),
            words in proptest::collection::vec("[a-z][a-z_]{0,12}", 1..5),
        ) {
            let mut source = Source::new(numbers, words);
            for samples in [
                FaultLine::samples, HangLine::samples, MemoryLine::samples, ChannelLine::samples,
                NoteLine::samples, StartLine::samples, SystemLine::samples,
            ] {
                for message in samples(&mut source) {
                    let line = match message {
                        Message::System(_) => message.to_string(),
                        _ if message.to_string().starts_with(EXPLANATION) => message.to_string(),
                        _ if message.to_string().len() > MESSAGE_BYTES => message.to_string(),
                        Message::Note(_) => nvmap_line("nvmap_function", &message),
                        Message::Channel(ChannelLine::SetupFailed {}) => {
                            nvgpu_line(Level::Error, "17000000.gpu", "nvgpu_channel_setup_bind", &message)
                        }
                        _ => nvgpu_line(Level::Error, "17000000.gpu", "nvgpu_function", &message),
                    };
                    prop_assert_eq!(Message::parse(&line), Some(message), "{}", line);
                    let row = lookup(&Record::from_text(&line));
                    prop_assert!(rows().any(|known| known.pattern == row.pattern), "{}", line);
                }
            }
        }
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
