//! Decodes pushbuffers and launch descriptors to structured items and to text.
//!
//! [`Decoder`] wraps [`MethodStream`] and looks up each method in the class of its subchannel, which it learns from
//! SET_OBJECT. [`pushbuffer`] and [`qmd`] format the result as text:
//!
//! ```
//! use ampere_cmd::dump::{self, Classes};
//!
//! let text = dump::pushbuffer(&[0x2001_20b0, 0x0000_0009], &Classes::AMPERE);
//! let lines: Vec<&str> = text.lines().collect();
//! assert_eq!(lines[0], "   0: 200120b0  subchannel 1, 1 method from 0x02c0");
//! assert_eq!(lines[1], "   1: 00000009    SEND_SIGNALING_PCAS2_B PCAS_ACTION PREFETCH_SCHEDULE");
//! ```

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt::{self, Write as _};

use crate::error::Error;
use crate::generated::{compute_c7c0, compute_cbc0, copy_c7b5, copy_c8b5, host_c56f, host_c76f, host_c86f};
use crate::gpfifo::{Entry, Level};
use crate::method::{Class, MethodInfo, class};
use crate::pushbuffer::{HOST_METHODS_END, Header, MethodStream, MethodWrite, Mode, Subchannel};
use crate::qmd::{Group, Qmd, Version, v2_4, v3_0, v4_0};

/// The class of each subchannel.
///
/// ```
/// use ampere_cmd::Subchannel;
/// use ampere_cmd::dump::Classes;
///
/// let method = Classes::AMPERE.method_at(Subchannel::COMPUTE, 0x02b4);
/// assert_eq!(method.map(|(method, _)| method.name), Some("SEND_PCAS_A"));
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Classes {
    /// The channel's own class, for methods below 0x100.
    pub host: &'static Class,
    /// The engine class of each subchannel; `None` if unknown.
    pub engines: [Option<&'static Class>; 8],
}

impl Classes {
    /// Desktop GPUs of Ampere and Ada: c56f, c7c0, c7b5. Ada's compute class c9c0 has the same methods as c7c0; c6c0
    /// and c6b5 of the A100 have a subset.
    pub const AMPERE_A: Self =
        Self::new(&host_c56f::CLASS_TABLE, &compute_c7c0::CLASS_TABLE, &copy_c7b5::CLASS_TABLE);
    /// Orin: c76f, c7c0, c7b5.
    pub const AMPERE: Self =
        Self::new(&host_c76f::CLASS_TABLE, &compute_c7c0::CLASS_TABLE, &copy_c7b5::CLASS_TABLE);
    /// Hopper: c86f, cbc0, c8b5.
    pub const HOPPER: Self =
        Self::new(&host_c86f::CLASS_TABLE, &compute_cbc0::CLASS_TABLE, &copy_c8b5::CLASS_TABLE);

    const fn new(host: &'static Class, compute: &'static Class, copy: &'static Class) -> Self {
        let mut engines = [None; 8];
        engines[Subchannel::COMPUTE.index() as usize] = Some(compute);
        engines[Subchannel::COPY.index() as usize] = Some(copy);
        Self { host, engines }
    }

    /// The method at a byte offset, and the index of its element there. Methods below 0x100 belong to the host class;
    /// if its header is partial, the complete header of Ampere fills the gaps.
    #[must_use]
    pub fn method_at(&self, subchannel: Subchannel, address: u32) -> Option<(&'static MethodInfo, u32)> {
        if address < HOST_METHODS_END {
            let found = self.host.method_at(address);
            return found
                .or_else(|| self.host.partial.then(|| host_c76f::CLASS_TABLE.method_at(address)).flatten());
        }
        self.engines[usize::from(subchannel.index())]?.method_at(address)
    }
}

/// The meaning of one pushbuffer word.
#[derive(Clone, Copy, Debug)]
pub enum Content {
    /// A header or a control word. An immediate method is a [`Content::Write`].
    Header(Header),
    /// A write to a method.
    Write {
        /// The write.
        write: MethodWrite,
        /// The method and the index of its element; `None` if the class has no method there or is unknown.
        method: Option<(&'static MethodInfo, u32)>,
        /// Whether the data is in the header.
        immediate: bool,
    },
    /// Skipped: after END_PB_SEGMENT, or data for other sub-devices.
    Skipped,
    /// Not a valid word.
    Bad(Error),
}

/// One pushbuffer word with its meaning. [`Display`](fmt::Display) formats it as one line of text.
#[derive(Clone, Copy, Debug)]
pub struct Item {
    /// Position in the stream, in words.
    pub position: usize,
    /// The word.
    pub word: u32,
    /// The meaning.
    pub content: Content,
}

/// Decodes the words of a channel's pushbuffers.
#[derive(Clone, Debug)]
pub struct Decoder {
    classes: Classes,
    stream: MethodStream,
    position: usize,
}

impl Decoder {
    /// A decoder for a new channel.
    #[must_use]
    pub const fn new(classes: Classes) -> Self {
        Self { classes, stream: MethodStream::new(), position: 0 }
    }

    /// Decodes the next word.
    pub fn push(&mut self, word: u32) -> Item {
        let position = self.position;
        self.position += 1;
        Item { position, word, content: self.content(word) }
    }

    /// Ends the segment; see [`MethodStream::end_segment`].
    pub const fn end_segment(&mut self) {
        self.stream.end_segment();
    }

    /// Number of data words that the last header still expects; see [`MethodStream::owed`].
    #[must_use]
    pub const fn owed(&self) -> u32 {
        self.stream.owed()
    }

    fn content(&mut self, word: u32) -> Content {
        let expects_header = self.stream.owed() == 0 && !self.stream.is_dropping();
        match self.stream.push(word) {
            Ok(Some(write)) => {
                self.learn(&write);
                let method = self.classes.method_at(write.subchannel, write.address);
                Content::Write { write, method, immediate: expects_header }
            }
            Ok(None) if expects_header => match Header::decode(word) {
                Ok(header) => Content::Header(header),
                Err(error) => Content::Bad(error),
            },
            Ok(None) => Content::Skipped,
            Err(error) => Content::Bad(error),
        }
    }

    /// Learns the class of a subchannel from SET_OBJECT.
    fn learn(&mut self, write: &MethodWrite) {
        if write.address == 0
            && let Some(class) = class(write.data & 0xffff)
        {
            self.classes.engines[usize::from(write.subchannel.index())] = Some(class);
        }
    }
}

/// Decodes the words of one segment.
#[must_use]
pub fn decode(words: &[u32], classes: &Classes) -> Vec<Item> {
    let mut decoder = Decoder::new(*classes);
    words.iter().map(|word| decoder.push(*word)).collect()
}

/// Formats the words of one segment as text, one line per word.
#[must_use]
pub fn pushbuffer(words: &[u32], classes: &Classes) -> String {
    let mut text = String::new();
    for item in decode(words, classes) {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{item}");
    }
    text
}

impl fmt::Display for Item {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:4}: {:08x}  ", self.position, self.word)?;
        match &self.content {
            Content::Header(header) => header.fmt(f),
            Content::Write { write, method, immediate } => {
                if *immediate {
                    write!(f, "subchannel {}, immediate ", write.subchannel.index())?;
                } else {
                    f.write_str("  ")?;
                }
                match method {
                    Some((info, index)) => write_method(f, info, *index, write.data),
                    None => write!(f, "unknown method {:#06x} data {:#x}", write.address, write.data),
                }
            }
            Content::Skipped => f.write_str("  skipped"),
            Content::Bad(error) => write!(f, "error: {error}"),
        }
    }
}

/// Writes the name and the fields: the first field, unless it is conditional, and all fields that are not 0.
fn write_method(f: &mut fmt::Formatter<'_>, info: &MethodInfo, index: u32, word: u32) -> fmt::Result {
    f.write_str(info.name)?;
    if info.count > 1 {
        write!(f, "({index})")?;
    }
    for (position, field) in info.fields.iter().enumerate() {
        let value = field.get(word);
        if value == 0 && (position > 0 || field.when.is_some()) {
            continue;
        }
        match field.value_name(value) {
            Some(name) => write!(f, " {} {name}", field.name)?,
            None => write!(f, " {} {value:#x}", field.name)?,
        }
        if let Some(when) = field.when {
            write!(f, " (when {when})")?;
        }
    }
    let stray = word & !info.named_bits();
    if stray != 0 {
        write!(f, " unnamed bits {stray:#x}")?;
    }
    Ok(())
}

impl fmt::Display for Header {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nop => f.write_str("nop"),
            Self::Methods { mode, subchannel, address, count } => {
                let plural = if *count == 1 { "" } else { "s" };
                let mode = match mode {
                    Mode::Incrementing => "from",
                    Mode::NonIncrementing => "all to",
                    Mode::IncrementOnce => "increment-once from",
                };
                let subchannel = subchannel.index();
                write!(f, "subchannel {subchannel}, {count} method{plural} {mode} {address:#06x}")
            }
            Self::Immediate { subchannel, address, data } => {
                write!(f, "subchannel {}, immediate {address:#06x} data {data:#x}", subchannel.index())
            }
            Self::SetSubdeviceMask(mask) => write!(f, "set sub-device mask {mask:#x}"),
            Self::StoreSubdeviceMask(mask) => write!(f, "store sub-device mask {mask:#x}"),
            Self::UseSubdeviceMask => f.write_str("use stored sub-device mask"),
            Self::EndSegment => f.write_str("end of segment"),
        }
    }
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sync = match self {
            Self::Segment(segment) => {
                write!(f, "segment {:#x}, {} words", segment.va, segment.words)?;
                if segment.level == Level::Subroutine {
                    f.write_str(", subroutine")?;
                }
                if segment.conditional {
                    f.write_str(", conditional")?;
                }
                segment.sync
            }
            Self::Control { operation, sync } => {
                write!(f, "control {operation:x?}")?;
                *sync
            }
        };
        if sync { f.write_str(", sync") } else { Ok(()) }
    }
}

/// Formats the words of a launch descriptor as text, one line per word that is not 0. The version is that of the
/// version fields. Returns `None` if the number of words is not that of the version.
#[must_use]
pub fn qmd(words: &[u32]) -> Option<String> {
    match major_version(words)? {
        2 => Qmd::<v2_4::Layout>::from_slice(words).map(|qmd| qmd_text(&qmd)),
        3 => Qmd::<v3_0::Layout>::from_slice(words).map(|qmd| qmd_text(&qmd)),
        4 => Qmd::<v4_0::Layout>::from_slice(words).map(|qmd| qmd_text(&qmd)),
        _ => None,
    }
}

/// QMD_MAJOR_VERSION, which has the same bits in all versions; `None` if there are too few words.
fn major_version(words: &[u32]) -> Option<u64> {
    const MAJOR: Group<v3_0::Layout, 1> = Group::new([v3_0::QMD_MAJOR_VERSION]);
    let at = MAJOR.words().next()?;
    let [major] = MAJOR.read(words);
    (at < words.len()).then_some(major)
}

/// Formats a launch descriptor as text, one line per word that is not 0.
#[must_use]
pub fn qmd_text<V: Version>(qmd: &Qmd<V>) -> String {
    let mut text = String::new();
    for (index, word) in (0u32..).zip(qmd.as_words()).filter(|(_, word)| **word != 0) {
        // Writing to a String cannot fail.
        let _ = write!(text, "word {index:2}  {word:08x} ");
        let mut separator = "";
        for (field, value) in qmd.set_fields().filter(|(field, _)| field.bits().1 / 32 == index) {
            let info = field.info();
            let _ = write!(text, "{separator} {}", info.name);
            separator = ",";
            if info.is_array() {
                let _ = write!(text, "({})", field.index());
            }
            let _ = match u32::try_from(value).ok().and_then(|value| info.value_name(value)) {
                Some(name) => write!(text, " {name}"),
                None => write!(text, " {value:#x}"),
            };
        }
        let stray = word & !V::NAMED[index as usize];
        if stray != 0 {
            let _ = write!(text, "{separator} unnamed bits {stray:#x}");
        }
        text.push('\n');
    }
    text
}
