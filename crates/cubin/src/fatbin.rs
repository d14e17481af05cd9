//! Fat binaries: containers of one program for several architectures, as cubins and as PTX.
//!
//! A container begins with a header of 16 bytes (magic, version, size of the header, size of the rest). Entries follow,
//! each with a header of at least 64 bytes and a payload. Little-endian fields of an entry's header, by offset: 0 kind
//! (u16), 4 size of this header, 8 size of the payload with its padding (u64), 16 size of a compressed payload without
//! padding, 20 offset of the record of options, 24 minor and 26 major version (u16), 28 SM version, 32 offset and 36
//! length of the source's name, 40 flags (u64), 56 size of the payload after decompression (u64). Offsets count from
//! the entry's header. The record of options is an offset and a length, or, for a group of cubins that are compressed
//! together, their number, the record's size and a header of 64 bytes for each, whose field 4 is the offset in the
//! decompressed payload.
//!
//! Sources: `fatbinary_section.h` of CUDA's headers for the wrapper and its magic, and files that `fatbinary` 13.5
//! wrote with different options for the rest. NVIDIA documents neither entries nor flags.

use alloc::borrow::{Cow, ToOwned};
use alloc::vec::Vec;
use core::fmt;
use core::ops::Range;

use ruzstd::decoding::StreamingDecoder;
use ruzstd::io::Read;

use crate::elf::{u16_at, u32_at, u64_at};
use crate::{Error, arch};

/// First word of a container, little-endian.
pub const MAGIC: u32 = 0xba55_ed50;
/// First word of `__fatBinC_Wrapper_t`, which a host compiler places in a program: magic, version (1 or 2), address of
/// the container, and another address. Only a caller that may read the process's memory can follow the address.
pub const WRAPPER_MAGIC: u32 = 0x4662_43b1;
/// First word of the containers of CUDA 3 and older.
const OLD_MAGIC: u32 = 0x1ee5_5a01;
/// Size of the container's header in bytes.
const HEADER_BYTES: usize = 16;
/// Size of an entry's header in bytes, without the texts behind it.
const ENTRY_BYTES: usize = 64;
/// Largest payload after decompression in bytes.
pub const MAX_ENTRY_BYTES: u64 = 256 << 20;

const KIND_PTX: u16 = 1;
const KIND_ELF: u16 = 2;
const KIND_LTO_IR: u16 = 8;
/// Several cubins, compressed together (`fatbinary --concat`).
const KIND_GROUP: u16 = 0x100;

const FLAG_DEBUG: u64 = 2;
/// NVIDIA's own compression of older toolkits, which is not documented.
const FLAG_OWN: u64 = 0x1000;
const FLAG_LZ4: u64 = 0x2000;
const FLAG_ZSTD: u64 = 0x8000;
const FLAG_SPECIFIC: u64 = 0x10_0000;
const FLAG_FAMILY: u64 = 0x20_0000;

/// What an entry contains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Kind {
    /// PTX text.
    Ptx,
    /// A cubin.
    Cubin,
    /// Input of link-time optimisation (LTO IR, NVVM).
    LtoIr,
    /// Another kind, by its number.
    Other(u16),
}

/// On which other architectures code or PTX can be used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Features {
    /// Those that binary compatibility permits (`sm_90`).
    #[default]
    Common,
    /// Those of the same family (`sm_100f`).
    Family,
    /// None (`sm_90a`).
    Specific,
}

impl Features {
    /// What follows the number in the name of an architecture: nothing, `f` or `a`.
    pub fn suffix(self) -> &'static str {
        match self {
            Self::Common => "",
            Self::Family => "f",
            Self::Specific => "a",
        }
    }

    /// Whether PTX for SM version `sm` can be compiled for a GPU of SM version `gpu_sm`.
    pub fn permit(self, sm: u32, gpu_sm: u32) -> bool {
        match self {
            Self::Common => sm <= gpu_sm,
            Self::Family => sm / 10 == gpu_sm / 10 && sm <= gpu_sm,
            Self::Specific => sm == gpu_sm,
        }
    }
}

/// How a payload is compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compression {
    /// It is not.
    None,
    /// One LZ4 block.
    Lz4,
    /// One Zstandard frame.
    Zstd,
    /// NVIDIA's format before LZ4, which cannot be decompressed.
    Own,
}

/// One entry of a fat binary.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Entry<'a> {
    /// What it contains.
    pub kind: Kind,
    /// SM version: 87 is compute capability 8.7.
    pub sm: u32,
    /// Where else it can be used.
    pub features: Features,
    /// Major and minor version: of the PTX language for PTX, of the cubin's layout for a cubin.
    pub version: (u16, u16),
    /// All flags.
    pub flags: u64,
    /// Name of the source, if it is recorded and is UTF-8.
    pub name: Option<&'a str>,
    /// Options for ptxas, if they are recorded and are UTF-8.
    pub options: Option<&'a str>,
    /// How the payload is compressed.
    pub compression: Compression,
    /// Size in the file in bytes; for a member of a group, that of the group.
    pub stored_bytes: usize,
    /// Size in bytes after decompression, as the file gives it.
    pub bytes: u64,
    payload: &'a [u8],
    /// Size of the payload after decompression in bytes.
    unpacked: u64,
    /// The entry's part of the decompressed payload.
    part: Range<u64>,
}

/// A parsed fat binary. Payloads are decompressed on demand.
///
/// ```
/// # let file = include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/zstd.fatbin"));
/// use cubin::fatbin::{FatBinary, Kind};
///
/// let fat = FatBinary::parse(file)?;
/// let entry = fat.select(87)?;
/// assert_eq!((entry.kind, entry.sm), (Kind::Cubin, 87));
/// let cubin = cubin::Cubin::parse(&entry.data()?)?;
/// assert_eq!(cubin.sm(), 87);
/// # Ok::<(), cubin::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FatBinary<'a> {
    entries: Vec<Entry<'a>>,
}

fn bad(offset: usize, reason: &'static str) -> Error {
    Error::BadFatBinary { offset: offset as u64, reason }
}

/// Size in bytes of a container that begins with `start`; `None` if these are not the 16 bytes of a header.
pub(crate) fn container_bytes(start: &[u8]) -> Option<u64> {
    let header = start.get(..HEADER_BYTES)?;
    if u32_at(header, 0)? != MAGIC {
        return None;
    }
    Some(u64::from(u16_at(header, 6)?).saturating_add(u64_at(header, 8)?))
}

impl<'a> FatBinary<'a> {
    /// Parses a container. Bytes after its end are ignored. Work and memory are bounded by a small multiple of
    /// `bytes.len()`.
    ///
    /// # Errors
    ///
    /// [`Error::BadFatBinary`] with the offset of the fault.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, Error> {
        match u32_at(bytes, 0) {
            Some(MAGIC) => {}
            Some(WRAPPER_MAGIC) => {
                return Err(bad(0, "a wrapper, which contains only the container's address"));
            }
            Some(OLD_MAGIC) => {
                return Err(bad(0, "a container of CUDA 3 or older: compile with toolkit 11 or newer"));
            }
            _ => return Err(bad(0, "the magic number is not that of a fat binary")),
        }
        let size = container_bytes(bytes).ok_or_else(|| bad(0, "the file ends inside of the header"))?;
        if u16_at(bytes, 4) != Some(1) {
            return Err(bad(4, "the version is not 1"));
        }
        let header = usize::from(u16_at(bytes, 6).unwrap_or_default());
        let whole = usize::try_from(size).ok().and_then(|size| bytes.get(..size));
        let whole = whole.ok_or_else(|| bad(8, "the container is longer than the file"))?;
        if header < HEADER_BYTES {
            return Err(bad(6, "the header has fewer than 16 bytes"));
        }
        let (mut entries, mut at) = (Vec::new(), header);
        while at < whole.len() {
            at = read_entry(whole, at, &mut entries)?;
        }
        Ok(Self { entries })
    }

    /// All entries, in the order of the file. Cubins that are compressed together are entries of their own.
    pub fn entries(&self) -> &[Entry<'a>] {
        &self.entries
    }

    /// The entry for a GPU of SM version `gpu_sm`: the cubin of the highest version that the GPU can run
    /// ([`Cubin::check_arch`](crate::Cubin::check_arch): for a Tegra chip exactly its own), otherwise the PTX of the
    /// highest version up to the GPU's. Among equal ones, the first.
    ///
    /// # Errors
    ///
    /// [`Error::NoFittingEntry`] with what there is.
    pub fn select(&self, gpu_sm: u32) -> Result<&Entry<'a>, Error> {
        let best = |kind| {
            let fitting = self.entries.iter().rev().filter(|entry| entry.kind == kind && entry.fits(gpu_sm));
            fitting.max_by_key(|entry| (entry.sm, entry.features != Features::Common))
        };
        best(Kind::Cubin).or_else(|| best(Kind::Ptx)).ok_or_else(|| Error::NoFittingEntry {
            gpu: gpu_sm,
            available: self.entries.iter().map(|entry| alloc::format!("{entry}")).collect(),
        })
    }
}

impl Entry<'_> {
    /// Whether it was compiled for debugging.
    pub fn is_debug(&self) -> bool {
        self.flags & FLAG_DEBUG != 0
    }

    /// Whether a GPU can run the code, or the PTX can be compiled for it.
    fn fits(&self, gpu_sm: u32) -> bool {
        match self.kind {
            Kind::Cubin => arch::check(self.sm, self.features == Features::Specific, gpu_sm).is_ok(),
            Kind::Ptx => self.features.permit(self.sm, gpu_sm),
            _ => false,
        }
    }

    /// The content, decompressed: a cubin, or PTX without the zero bytes behind it. At most [`MAX_ENTRY_BYTES`] are
    /// decompressed.
    ///
    /// # Errors
    ///
    /// [`Error::BadPayload`] if the payload is damaged, is larger or is compressed in NVIDIA's own format.
    pub fn data(&self) -> Result<Cow<'_, [u8]>, Error> {
        let wrong = |reason| Error::BadPayload { entry: alloc::format!("{self}"), reason };
        let whole = match self.compression {
            Compression::None => Cow::Borrowed(self.payload),
            _ if self.unpacked > MAX_ENTRY_BYTES => return Err(wrong("it is larger than 256 MiB")),
            Compression::Lz4 => Cow::Owned(unpack_lz4(self.payload, self.unpacked).map_err(wrong)?),
            Compression::Zstd => Cow::Owned(unpack_zstd(self.payload, self.unpacked).map_err(wrong)?),
            Compression::Own => {
                let reason = "it is compressed in NVIDIA's own format, which is not documented: compile with a newer \
                              toolkit, or without compression (-no-compress)";
                return Err(wrong(reason));
            }
        };
        let part = usize::try_from(self.part.start).ok().zip(usize::try_from(self.part.end).ok());
        let (start, end) = part.ok_or_else(|| wrong("it does not fit the memory"))?;
        let length = match self.kind {
            Kind::Ptx => whole.get(start..end).and_then(|text| text.iter().position(|byte| *byte == 0)),
            _ => None,
        };
        let end = length.map_or(end, |length| start + length);
        let outside = || wrong("it ends before the member of the group");
        match whole {
            Cow::Borrowed(whole) => whole.get(start..end).map(Cow::Borrowed).ok_or_else(outside),
            Cow::Owned(mut whole) if start == 0 && end <= whole.len() => {
                whole.truncate(end);
                Ok(Cow::Owned(whole))
            }
            Cow::Owned(whole) => {
                whole.get(start..end).map(|part| Cow::Owned(part.to_owned())).ok_or_else(outside)
            }
        }
    }
}

/// The kind and the architecture: `cubin sm_87`, `PTX compute_90a`.
impl fmt::Display for Entry<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, prefix) = match self.kind {
            Kind::Cubin => ("cubin", "sm"),
            Kind::Ptx => ("PTX", "compute"),
            Kind::LtoIr => ("LTO IR", "sm"),
            Kind::Other(number) => return write!(f, "kind {number:#x} sm_{}", self.sm),
        };
        write!(f, "{name} {prefix}_{}{}", self.sm, self.features.suffix())
    }
}

/// Reads the entry at `at`, and adds it, or the members of a group. Returns the offset of the next one.
fn read_entry<'a>(whole: &'a [u8], at: usize, entries: &mut Vec<Entry<'a>>) -> Result<usize, Error> {
    let cut = || bad(at, "an entry's header does not fit the container");
    let header = whole.get(at..).filter(|rest| rest.len() >= ENTRY_BYTES).ok_or_else(cut)?;
    // PANIC: the header has 64 bytes.
    let word = |offset| u32_at(header, offset).expect("inside of the header");
    let header_bytes = usize::try_from(word(4)).ok().filter(|size| *size >= ENTRY_BYTES).ok_or_else(cut)?;
    let header = header.get(..header_bytes).ok_or_else(cut)?;
    // PANIC: as above.
    let long = |offset| u64_at(header, offset).expect("inside of the header");
    let start = at + header_bytes;
    let end = usize::try_from(long(8)).ok().and_then(|size| start.checked_add(size));
    let padded = end.and_then(|end| whole.get(start..end));
    let padded = padded.ok_or_else(|| bad(at + 8, "an entry's payload does not fit the container"))?;

    let flags = long(40);
    let compression = compression(flags);
    let payload = match compression {
        Compression::None => padded,
        _ => usize::try_from(word(16))
            .ok()
            .and_then(|size| padded.get(..size))
            .ok_or_else(|| bad(at + 16, "an entry's compressed payload is longer than the payload"))?,
    };
    let unpacked = match compression {
        Compression::None => payload.len() as u64,
        _ => long(56),
    };
    let record = word(20);
    let stored_bytes = payload.len();
    let outer =
        Entry { payload, stored_bytes, unpacked, part: 0..unpacked, bytes: unpacked, ..fields(header) };
    // PANIC: the header has 64 bytes.
    if u16_at(header, 0).expect("inside of the header") == KIND_GROUP {
        read_group(header, at, record, &outer, entries)?;
    } else {
        entries.push(outer);
    }
    Ok(start + padded.len())
}

/// Adds the members of a group.
fn read_group<'a>(
    header: &'a [u8],
    at: usize,
    record: u32,
    group: &Entry<'a>,
    entries: &mut Vec<Entry<'a>>,
) -> Result<(), Error> {
    let wrong = || bad(at + 20, "the members of a group of cubins do not fit its header");
    let record = usize::try_from(record).ok().and_then(|offset| header.get(offset..)).ok_or_else(wrong)?;
    let count = u32_at(record, 0).and_then(|count| usize::try_from(count).ok()).ok_or_else(wrong)?;
    let table = record.get(8..).unwrap_or_default();
    let table = count.checked_mul(ENTRY_BYTES).and_then(|bytes| table.get(..bytes)).ok_or_else(wrong)?;
    for member in table.chunks_exact(ENTRY_BYTES) {
        let (Some(start), Some(bytes)) = (u32_at(member, 4), u64_at(member, 8)) else { return Err(wrong()) };
        let end =
            u64::from(start).checked_add(bytes).filter(|end| *end <= group.unpacked).ok_or_else(wrong)?;
        entries.push(Entry {
            compression: group.compression,
            stored_bytes: group.stored_bytes,
            payload: group.payload,
            unpacked: group.unpacked,
            part: u64::from(start)..end,
            bytes,
            ..fields(member)
        });
    }
    Ok(())
}

/// The fields of a header that do not depend on the payload.
fn fields(header: &[u8]) -> Entry<'_> {
    // PANIC: the callers pass at least 64 bytes.
    let half = |offset| u16_at(header, offset).expect("inside of the header");
    // PANIC: as above.
    let word = |offset| u32_at(header, offset).expect("inside of the header");
    // PANIC: as above.
    let flags = u64_at(header, 40).expect("inside of the header");
    let text = |offset: u32, length: u32| -> Option<&str> {
        let start = usize::try_from(offset).ok().filter(|start| *start >= ENTRY_BYTES)?;
        let bytes = header.get(start..start.checked_add(usize::try_from(length).ok()?)?)?;
        core::str::from_utf8(bytes)
            .ok()
            .map(|text| text.trim_end_matches('\0'))
            .filter(|text| !text.is_empty())
    };
    let record = usize::try_from(word(20)).ok().filter(|offset| *offset >= ENTRY_BYTES);
    let options =
        record.and_then(|offset| Some((u32_at(header, offset)?, u32_at(header, offset.checked_add(4)?)?)));
    Entry {
        kind: match half(0) {
            KIND_PTX => Kind::Ptx,
            KIND_ELF => Kind::Cubin,
            KIND_LTO_IR => Kind::LtoIr,
            other => Kind::Other(other),
        },
        sm: word(28),
        features: match (flags & FLAG_SPECIFIC != 0, flags & FLAG_FAMILY != 0) {
            (true, _) => Features::Specific,
            (_, true) => Features::Family,
            _ => Features::Common,
        },
        version: (half(26), half(24)),
        flags,
        name: text(word(32), word(36)),
        options: options.and_then(|(offset, length)| text(offset, length)),
        compression: compression(flags),
        stored_bytes: 0,
        bytes: 0,
        payload: &[],
        unpacked: 0,
        part: 0..0,
    }
}

fn compression(flags: u64) -> Compression {
    match (flags & FLAG_ZSTD != 0, flags & FLAG_LZ4 != 0, flags & FLAG_OWN != 0) {
        (true, ..) => Compression::Zstd,
        (_, true, _) => Compression::Lz4,
        (.., true) => Compression::Own,
        _ => Compression::None,
    }
}

/// Decompresses one LZ4 block to exactly `size` bytes.
fn unpack_lz4(payload: &[u8], size: u64) -> Result<Vec<u8>, &'static str> {
    // A block grows at most by this factor: each further byte of a length adds 255.
    if size > (payload.len() as u64).saturating_mul(255) {
        return Err("its size does not fit its LZ4 block");
    }
    let size = usize::try_from(size).map_err(|_| "it does not fit the memory")?;
    let mut out = Vec::new();
    out.try_reserve_exact(size).map_err(|_| "it does not fit the memory")?;
    out.resize(size, 0);
    match lz4_flex::block::decompress_into(payload, &mut out) {
        Ok(done) if done == size => Ok(out),
        Ok(_) => Err("its LZ4 block is shorter than the header says"),
        Err(_) => Err("its LZ4 block is damaged"),
    }
}

/// Decompresses one Zstandard frame to exactly `size` bytes. Memory grows with what the frame contains.
fn unpack_zstd(payload: &[u8], size: u64) -> Result<Vec<u8>, &'static str> {
    const DAMAGED: &str = "its Zstandard frame is damaged";
    let mut decoder = StreamingDecoder::new(payload).map_err(|_| DAMAGED)?;
    let (mut out, mut chunk) = (Vec::new(), [0; 8192]);
    loop {
        match decoder.read(&mut chunk).map_err(|_| DAMAGED)? {
            0 => break,
            count if out.len() as u64 + count as u64 > size => return Err("its Zstandard frame is too long"),
            count => out.extend_from_slice(&chunk[..count]),
        }
    }
    if out.len() as u64 == size {
        Ok(out)
    } else {
        Err("its Zstandard frame is shorter than the header says")
    }
}
