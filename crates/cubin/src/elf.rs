//! The ELF container: header, section headers, names and symbols.
//!
//! A cubin is a little-endian ELF64 file of machine 190. All section addresses are 0: the loader places the sections.
//! Toolkits 11 and 12 write OS ABI 0x33 with ABI version 7: the low byte of `e_flags` is the SM version of the code,
//! and bit 11 is set for architecture-specific code (`sm_90a`). Toolkit 13 writes OS ABI 0x41 with ABI version 8: the
//! SM version is in bits 8 to 15 of `e_flags`, and only the options of ptxas in the note `.note.nv.tkinfo` show
//! whether the code is architecture-specific.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use crate::{Error, FileKind};

pub(crate) const SHT_NULL: u32 = 0;
pub(crate) const SHT_PROGBITS: u32 = 1;
pub(crate) const SHT_SYMTAB: u32 = 2;
pub(crate) const SHT_STRTAB: u32 = 3;
pub(crate) const SHT_RELA: u32 = 4;
pub(crate) const SHT_NOTE: u32 = 7;
pub(crate) const SHT_NOBITS: u32 = 8;
pub(crate) const SHT_REL: u32 = 9;
pub(crate) const SHT_CUDA_INFO: u32 = 0x7000_0000;
pub(crate) const SHT_CUDA_CALLGRAPH: u32 = 0x7000_0001;

pub(crate) const SHF_ALLOC: u64 = 2;
pub(crate) const SHF_EXECINSTR: u64 = 4;

pub(crate) const STT_OBJECT: u8 = 1;
pub(crate) const STT_FUNC: u8 = 2;
/// Bit of `st_other`: the symbol is a kernel.
pub(crate) const STO_CUDA_ENTRY: u8 = 0x10;
/// Bit of `st_other`: the host uses the variable by its address as well.
pub(crate) const STO_CUDA_MANAGED: u8 = 4;

const EHDR_BYTES: u64 = 64;
const SHDR_BYTES: u64 = 64;
const SYM_BYTES: u64 = 24;
const EM_CUDA: u16 = 190;
const SHN_XINDEX: u16 = 0xffff;

/// `len` bytes at `offset`; `None` past the end of the file.
fn range(data: &[u8], offset: u64, len: u64) -> Option<&[u8]> {
    let start = usize::try_from(offset).ok()?;
    let end = start.checked_add(usize::try_from(len).ok()?)?;
    data.get(start..end)
}

/// Little-endian integers at fixed offsets; `None` past the end.
pub(crate) fn u16_at(data: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(*data.get(at..)?.first_chunk()?))
}

pub(crate) fn u32_at(data: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(*data.get(at..)?.first_chunk()?))
}

pub(crate) fn u64_at(data: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(*data.get(at..)?.first_chunk()?))
}

/// A string table, with a bound on the total length of the names read from it. Names can share their ends, so a hostile
/// table could give each of many symbols a name as long as the file.
struct Names<'a> {
    of: &'static str,
    bytes: &'a [u8],
    budget: usize,
}

impl<'a> Names<'a> {
    fn new(of: &'static str, bytes: &'a [u8], file_bytes: usize) -> Self {
        Self { of, bytes, budget: file_bytes.saturating_mul(16) }
    }

    fn get(&mut self, offset: u32) -> Result<&'a str, Error> {
        let bad = || Error::BadName { of: self.of, offset };
        let tail = usize::try_from(offset).ok().and_then(|o| self.bytes.get(o..)).ok_or_else(bad)?;
        let window = &tail[..tail.len().min(self.budget)];
        let Some(len) = window.iter().position(|&b| b == 0) else {
            return Err(if window.len() < tail.len() { Error::NamesTooLong { of: self.of } } else { bad() });
        };
        self.budget -= len;
        core::str::from_utf8(&tail[..len]).map_err(|_| bad())
    }
}

/// One section.
pub(crate) struct Section<'a> {
    pub(crate) name: &'a str,
    pub(crate) kind: u32,
    pub(crate) flags: u64,
    /// Size in bytes. The file contains no bytes of a `NOBITS` section.
    pub(crate) bytes: u64,
    pub(crate) link: u32,
    pub(crate) info: u32,
    pub(crate) align: u64,
    /// Content; empty for a `NOBITS` section.
    pub(crate) data: &'a [u8],
}

impl Section<'_> {
    pub(crate) fn bad(&self, reason: &'static str) -> Error {
        Error::BadSection { section: String::from(self.name), reason }
    }

    /// Whether the section is code.
    pub(crate) fn is_code(&self) -> bool {
        self.kind == SHT_PROGBITS && self.flags & (SHF_ALLOC | SHF_EXECINSTR) == SHF_ALLOC | SHF_EXECINSTR
    }
}

/// One symbol; the index is its position in the table.
#[derive(Clone, Copy)]
pub(crate) struct Symbol<'a> {
    pub(crate) name: &'a str,
    /// Low four bits of `st_info`.
    pub(crate) kind: u8,
    pub(crate) other: u8,
    /// Section index; 0 means undefined.
    pub(crate) section: u16,
    pub(crate) value: u64,
    pub(crate) bytes: u64,
}

/// Layout version and header fields of a cubin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    /// `e_ident[EI_OSABI]`.
    pub(crate) os_abi: u8,
    /// `e_ident[EI_ABIVERSION]`: 7 or 8.
    pub(crate) abi_version: u8,
    /// `e_type`: 1 relocatable, 2 executable.
    pub(crate) e_type: u16,
    /// `e_version`; in ABI version 7 ten times the toolkit's version.
    pub(crate) e_version: u32,
    /// `e_flags`.
    pub(crate) flags: u32,
}

impl Header {
    /// SM version of the code.
    fn sm(&self) -> u32 {
        if self.abi_version == 7 { self.flags & 0xff } else { self.flags >> 8 & 0xff }
    }

    /// Version of the PTX architecture that the code was compiled from: bits 16 to 23 in ABI version 7. Where ABI
    /// version 8 has it is unknown.
    pub(crate) fn virtual_sm(&self) -> Option<u32> {
        let version = self.flags >> 16 & 0xff;
        (self.abi_version == 7 && version != 0).then_some(version)
    }
}

/// The container, after the checks that apply to every cubin.
pub(crate) struct Elf<'a> {
    pub(crate) header: Header,
    /// SM version of the code.
    pub(crate) sm: u32,
    pub(crate) accelerated: bool,
    pub(crate) sections: Vec<Section<'a>>,
    pub(crate) symbols: Vec<Symbol<'a>>,
}

impl<'a> Elf<'a> {
    /// A cubin that can be loaded, or an object file.
    pub(crate) fn parse(data: &'a [u8], is_object: bool) -> Result<Self, Error> {
        match read_header(data)?.e_type {
            2 if !is_object => Self::read(data),
            1 if is_object => Self::read(data),
            1 => Err(Error::Relocatable),
            e_type => Err(Error::UnexpectedType { e_type }),
        }
    }

    /// Any cubin, including relocatable ones.
    pub(crate) fn read(data: &'a [u8]) -> Result<Self, Error> {
        let header = read_header(data)?;
        let sections = read_sections(data)?;
        let symbols = read_symbols(data, &sections)?;
        let accelerated = match header.abi_version {
            7 => header.flags & 0x800 != 0,
            _ => sections.iter().any(|section| names_accelerated(section, header.sm())),
        };
        Ok(Self { header, sm: header.sm(), accelerated, sections, symbols })
    }
}

/// Whether a section is the note of the tools and shows that ptxas was called with `-arch sm_NNa`.
fn names_accelerated(section: &Section<'_>, sm: u32) -> bool {
    if section.kind != SHT_NOTE || section.name != ".note.nv.tkinfo" {
        return false;
    }
    let option = format!("sm_{sm}a");
    section.data.split(|byte| *byte == 0).any(|text| {
        let mut words = text.split(|byte| *byte == b' ');
        words.any(|word| word == b"-arch") && words.next() == Some(option.as_bytes())
    })
}

fn truncated(what: impl Into<String>, offset: u64, bytes: u64, data: &[u8]) -> Error {
    Error::Truncated { what: what.into(), offset, bytes, file_bytes: data.len() as u64 }
}

/// Checks the fields of the ELF header that identify a cubin.
fn read_header(data: &[u8]) -> Result<Header, Error> {
    if !data.starts_with(b"\x7fELF") {
        return Err(Error::NotElf { found: FileKind::of(data) });
    }
    let header = range(data, 0, EHDR_BYTES).ok_or_else(|| truncated("ELF header", 0, EHDR_BYTES, data))?;
    // All offsets below are inside of the 64 bytes of the header.
    let half = |at: usize| u16::from_le_bytes([header[at], header[at + 1]]);
    // PANIC: as above.
    let word = |at: usize| u32_at(header, at).expect("inside of the header");
    if header[4] != 2 {
        return Err(Error::Not64Bit);
    }
    if header[5] != 1 {
        return Err(Error::NotLittleEndian);
    }
    let machine = half(18);
    if machine != EM_CUDA {
        return Err(Error::WrongMachine { machine });
    }
    let (os_abi, abi_version) = (header[7], header[8]);
    if !matches!((os_abi, abi_version), (0x33, 7) | (0x41, 8)) {
        return Err(Error::UnknownAbi { os_abi, version: abi_version });
    }
    Ok(Header { os_abi, abi_version, e_type: half(16), e_version: word(20), flags: word(48) })
}

fn read_sections(data: &[u8]) -> Result<Vec<Section<'_>>, Error> {
    let cut = |bytes| truncated("section header table", u64_at(data, 40).unwrap_or(0), bytes, data);
    let (Some(offset), Some(entry_bytes), Some(count), Some(names_index)) =
        (u64_at(data, 40), u16_at(data, 58), u16_at(data, 60), u16_at(data, 62))
    else {
        return Err(cut(SHDR_BYTES));
    };
    if u64::from(entry_bytes) != SHDR_BYTES {
        return Err(Error::BadSection {
            section: String::from("section header table"),
            reason: "its entries are not 64 bytes long",
        });
    }
    // Numbers that do not fit the 16-bit fields are in the first section header.
    let first = range(data, offset, SHDR_BYTES).ok_or_else(|| cut(SHDR_BYTES))?;
    let count = if count == 0 { u64_at(first, 32).unwrap_or(0) } else { u64::from(count) };
    let names_index = match names_index {
        SHN_XINDEX => u32_at(first, 40).unwrap_or(0),
        index => u32::from(index),
    };
    let bytes = count.saturating_mul(SHDR_BYTES);
    let table = range(data, offset, bytes).ok_or_else(|| cut(bytes))?;

    let header =
        usize::try_from(names_index).ok().and_then(|i| table.chunks_exact(64).nth(i)).ok_or_else(|| {
            Error::BadSection {
                section: String::from("section header table"),
                reason: "the table of section names is not in it",
            }
        })?;
    // PANIC: a header has 64 bytes.
    let (offset, bytes) = u64_at(header, 24).zip(u64_at(header, 32)).expect("inside of the header");
    let name_table =
        range(data, offset, bytes).ok_or_else(|| truncated("table of section names", offset, bytes, data))?;
    let mut names = Names::new("sections", name_table, data.len());

    let mut sections = Vec::new();
    let mut total = 0u64;
    for header in table.chunks_exact(64) {
        let section = read_section(data, header, &mut names)?;
        total = total.saturating_add(section.data.len() as u64);
        if total > data.len() as u64 {
            return Err(Error::OverlappingSections { file_bytes: data.len() as u64 });
        }
        sections.push(section);
    }
    Ok(sections)
}

/// Reads one 64-byte section header.
fn read_section<'a>(data: &'a [u8], header: &[u8], names: &mut Names<'a>) -> Result<Section<'a>, Error> {
    // PANIC: the caller passes exactly 64 bytes; the offsets are those of Elf64_Shdr.
    let word = |at: usize| u32_at(header, at).expect("inside of the header");
    // PANIC: as above.
    let long = |at: usize| u64_at(header, at).expect("inside of the header");
    let kind = word(4);
    if kind == SHT_NULL {
        return Ok(Section { name: "", kind, flags: 0, bytes: 0, link: 0, info: 0, align: 0, data: &[] });
    }
    let name = names.get(word(0))?;
    let (offset, bytes) = (long(24), long(32));
    let content = match kind {
        SHT_NOBITS => &[],
        _ => range(data, offset, bytes)
            .ok_or_else(|| truncated(format!("section `{name}`"), offset, bytes, data))?,
    };
    Ok(Section {
        name,
        kind,
        flags: long(8),
        bytes,
        link: word(40),
        info: word(44),
        align: long(48),
        data: content,
    })
}

fn read_symbols<'a>(data: &'a [u8], sections: &[Section<'a>]) -> Result<Vec<Symbol<'a>>, Error> {
    let mut tables = sections.iter().filter(|s| s.kind == SHT_SYMTAB);
    let Some(table) = tables.next() else { return Ok(Vec::new()) };
    if tables.next().is_some() {
        return Err(table.bad("there is a second symbol table"));
    }
    if !table.bytes.is_multiple_of(SYM_BYTES) {
        return Err(table.bad("its size is not a multiple of 24 bytes"));
    }
    let strings = usize::try_from(table.link)
        .ok()
        .and_then(|i| sections.get(i))
        .filter(|s| s.kind == SHT_STRTAB)
        .ok_or_else(|| table.bad("it links to no string table"))?;
    let mut names = Names::new("symbols", strings.data, data.len());
    table
        .data
        .chunks_exact(24)
        .map(|entry| {
            // PANIC: an entry has 24 bytes; the offsets are those of Elf64_Sym.
            let long = |at: usize| u64_at(entry, at).expect("inside of the entry");
            // PANIC: as above.
            let name = u32_at(entry, 0).expect("inside of the entry");
            Ok(Symbol {
                name: names.get(name)?,
                kind: entry[4] & 0xf,
                other: entry[5],
                section: u16::from_le_bytes([entry[6], entry[7]]),
                value: long(8),
                bytes: long(16),
            })
        })
        .collect()
}
