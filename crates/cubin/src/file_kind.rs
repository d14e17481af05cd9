//! What a file is, by its first bytes.

use alloc::format;
use alloc::string::String;
use core::fmt;

use crate::fatbin;

/// What a file is, by its first bytes, for errors about files of the wrong kind. Displays as its name and the command
/// that reads it.
///
/// ```
/// use cubin::FileKind;
///
/// let kind = FileKind::of(b"extern \"C\" __global__ void k() {}");
/// assert_eq!(kind, FileKind::Cuda);
/// assert_eq!(kind.to_string(), "CUDA C++; `orin compile FILE.cu` makes a cubin of it");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FileKind {
    /// No bytes.
    Empty,
    /// A CUDA ELF file.
    Cubin,
    /// Another ELF file.
    Elf,
    /// A fat binary.
    FatBinary,
    /// The structure in a program that points to a fat binary.
    FatWrapper,
    /// Input of link-time optimisation (LTO IR, NVVM).
    LtoIr,
    /// PTX assembly; it may end with zero bytes.
    Ptx,
    /// CUDA C++.
    Cuda,
    /// A language model in GGUF.
    Gguf,
    /// A static library, `.a`.
    Library,
    /// A compressed file, a tar or a zip archive.
    Archive,
    /// A record of `orin record`.
    Record,
    /// Profiles of `orin profile-kernel`.
    Profiles,
    /// Other JSON, or several objects of it.
    Json,
    /// Other text.
    Text,
    /// Anything else.
    Binary,
}

/// First word of NVIDIA's input of link-time optimisation, as NVRTC 12.6 writes it with `-dlto`.
const LTO_IR_MAGIC: u32 = 0x7f4e_43ed;
/// First bytes of compressed files and archives: gzip, zip, xz, zstd, bzip2.
const ARCHIVES: [&[u8]; 5] = [b"\x1f\x8b\x08", b"PK\x03\x04", b"\xfd7zXZ\0", b"\x28\xb5\x2f\xfd", b"BZh"];

impl FileKind {
    /// Longest part of a file that is examined, in bytes: a comment at its start may be long.
    pub const EXAMINED: usize = 1 << 16;

    /// Examines the first bytes of a file, at most [`FileKind::EXAMINED`].
    pub fn of(bytes: &[u8]) -> Self {
        let start = &bytes[..bytes.len().min(Self::EXAMINED)];
        if start.is_empty() {
            return Self::Empty;
        }
        if start.starts_with(b"\x7fELF") {
            // `e_machine`: 190 is CUDA.
            return if start.get(18..20) == Some(&[190, 0]) { Self::Cubin } else { Self::Elf };
        }
        for (magic, kind) in [
            (fatbin::MAGIC, Self::FatBinary),
            (fatbin::WRAPPER_MAGIC, Self::FatWrapper),
            (LTO_IR_MAGIC, Self::LtoIr),
        ] {
            if start.starts_with(&magic.to_le_bytes()) {
                return kind;
            }
        }
        if start.starts_with(b"!<arch>\n") {
            return Self::Library;
        }
        if start.starts_with(b"GGUF") {
            return Self::Gguf;
        }
        if ARCHIVES.iter().any(|magic| start.starts_with(magic)) || start.get(257..262) == Some(b"ustar") {
            return Self::Archive;
        }
        Self::of_text(start)
    }

    fn of_text(start: &[u8]) -> Self {
        // A program hands over PTX as a C string.
        if let Some(end) = start.iter().position(|byte| *byte == 0) {
            let text = if end == 0 { Self::Binary } else { Self::of_text(&start[..end]) };
            return if text == Self::Ptx { text } else { Self::Binary };
        }
        // Colours are part of some logs.
        let is_control = |byte: &u8| byte.is_ascii_control() && !byte.is_ascii_whitespace() && *byte != 0x1b;
        // The last character may be cut.
        let is_text = match core::str::from_utf8(start) {
            Ok(_) => true,
            Err(error) => error.error_len().is_none() && error.valid_up_to() > 0,
        };
        if !is_text || start.iter().any(is_control) {
            return Self::Binary;
        }
        let has = |word: &str| start.windows(word.len()).any(|part| part == word.as_bytes());
        let lines = || start.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii);
        let begins =
            |words: &[&str]| lines().any(|line| words.iter().any(|word| line.starts_with(word.as_bytes())));
        match start.trim_ascii_start().first() {
            None => Self::Text,
            Some(b'{') if has("\"version\":") && has("\"board\":") => Self::Record,
            Some(b'{') if has("\"profiles\":") || has("\"occupancy\":") => Self::Profiles,
            // A line of the kernel log begins with a bracket, too.
            Some(b'{') => Self::Json,
            Some(b'[') if begins(&["[{", "[\"", "[]", "[["]) => Self::Json,
            _ if begins(&[".version ", ".version\t"]) => Self::Ptx,
            _ if has("__global__") || has("__device__") || begins(&["#include"]) => Self::Cuda,
            _ => Self::Text,
        }
    }

    /// The name, with an article where it needs one.
    pub fn name(self) -> &'static str {
        self.row().0
    }

    /// The command that reads such a file; empty if there is none.
    pub fn advice(self) -> &'static str {
        self.row().1
    }

    /// Whether the bytes show a format: they are neither other text nor other binary data, which may be anything.
    pub fn has_format(self) -> bool {
        !matches!(self, Self::Empty | Self::Text | Self::Binary)
    }

    /// The text of an error: what a file is, what was wanted, and the command that reads the file.
    pub fn instead_of(self, wanted: &str) -> String {
        let (name, advice) = self.row();
        format!("{name}, not {wanted}{}{advice}", if advice.is_empty() { "" } else { "; " })
    }

    fn row(self) -> (&'static str, &'static str) {
        match self {
            Self::Empty => ("an empty file", ""),
            Self::Cubin => ("a cubin", "`orin decode cubin` prints it, `orin run --cubin` runs its kernels"),
            Self::Elf => ("a program or library for a CPU", "`orin serve -- PROGRAM` runs a program"),
            Self::FatBinary => ("a fat binary", "`orin decode cubin` lists its entries"),
            Self::FatWrapper => ("the wrapper of a fat binary", "it contains only the fat binary's address"),
            Self::LtoIr => ("LTO IR", "compile without link-time optimisation (-dlto)"),
            Self::Ptx => ("PTX", "`orin compile FILE.ptx` makes a cubin of it"),
            Self::Cuda => ("CUDA C++", "`orin compile FILE.cu` makes a cubin of it"),
            Self::Gguf => ("a GGUF model", "`orin llm info --model` prints it"),
            Self::Library => ("a static library", ""),
            Self::Archive => (
                "a compressed file or archive",
                "`orin bring-up --show` prints a report; unpack others first",
            ),
            Self::Record => ("a record", "`orin replay` repeats it"),
            Self::Profiles => ("profiles of kernels", "`orin profile-kernel --import` shows them"),
            Self::Json => ("JSON", ""),
            Self::Text => ("text", ""),
            Self::Binary => ("binary data", ""),
        }
    }
}

impl fmt::Display for FileKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.row() {
            (name, "") => f.write_str(name),
            (name, advice) => write!(f, "{name}; {advice}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;

    use super::*;

    #[test]
    fn kinds_are_recognised_by_their_start() {
        let mut elf = [0; 64];
        elf[..4].copy_from_slice(b"\x7fELF");
        elf[18] = 62;
        let mut cubin = elf;
        cubin[18] = 190;
        let mut tar = [b'a'; 512];
        tar[257..262].copy_from_slice(b"ustar");
        let long = [&b"// a comment\n".repeat(2000)[..], b".version 8.4\n.target sm_87\n"].concat();
        for (bytes, kind) in [
            (&b""[..], FileKind::Empty),
            (&cubin, FileKind::Cubin),
            (&elf, FileKind::Elf),
            (b"\x7fELF", FileKind::Elf),
            (&[0x50, 0xed, 0x55, 0xba, 1, 0], FileKind::FatBinary),
            (b"\xb1\x43\x62\x46\x01\0\0\0", FileKind::FatWrapper),
            (b"\xed\x43\x4e\x7f\x01\x3e", FileKind::LtoIr),
            (b"!<arch>\n/ ", FileKind::Library),
            (b".version\t6.3\n\0\0\0", FileKind::Ptx),
            (b"text\0", FileKind::Binary),
            (b"//\n// Generated\n.version 8.4\n.target sm_87\n", FileKind::Ptx),
            (&long, FileKind::Ptx),
            (b"#include <stdint.h>\n", FileKind::Cuda),
            (b"/* \xc3\xa4 */ template<int N> __global__ void k() {}", FileKind::Cuda),
            (b"GGUF\x03\0\0\0", FileKind::Gguf),
            (b"\x1f\x8b\x08\0", FileKind::Archive),
            (b"PK\x03\x04", FileKind::Archive),
            (&tar, FileKind::Archive),
            (br#"{"version":2,"board":"agx-64:maxn"}"#, FileKind::Record),
            (br#"{"version":1,"profiles":[]}"#, FileKind::Profiles),
            (b" {}\n", FileKind::Json),
            (b"[{\"a\": 1}]", FileKind::Json),
            (b"[   12.5] nvgpu: a line\n", FileKind::Text),
            (b"0x1234 5678 # words", FileKind::Text),
            (b"\n", FileKind::Text),
            (b"text with a cut character \xc3", FileKind::Text),
            (b"\0\0\0\0", FileKind::Binary),
            (b"\x7fEL", FileKind::Binary),
            (&[0xff, 0xfe, 0x80], FileKind::Binary),
        ] {
            assert_eq!(FileKind::of(bytes), kind, "{:?}", &bytes[..bytes.len().min(40)]);
            assert!(!kind.name().is_empty() && kind.to_string().starts_with(kind.name()));
            let unknown = ["an empty file", "text", "binary data"].contains(&kind.name());
            assert_eq!(kind.has_format(), !unknown);
        }
    }
}
