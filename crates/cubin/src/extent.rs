//! The length of an image of which only the address is known.

use crate::elf::{u16_at, u32_at, u64_at};
use crate::fatbin;

/// How far an image reaches, by its first bytes: CUDA's calls pass images without a length.
///
/// ```
/// use cubin::Extent;
///
/// # let memory = include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/tiny.cubin"));
/// // The caller reads only as many bytes as the last answer permits, first 4.
/// let mut known = 4;
/// let bytes = loop {
///     match Extent::of(&memory[..known]) {
///         Extent::AtLeast(bytes) => known = bytes as usize,
///         Extent::Bytes(bytes) => break bytes,
///         other => panic!("{other:?}"),
///     }
/// };
/// assert_eq!(bytes, memory.len() as u64);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// The image has at least so many bytes, more than were given: repeat with them. After at most four answers the
    /// extent is known.
    AtLeast(u64),
    /// The image has so many bytes.
    Bytes(u64),
    /// `__fatBinC_Wrapper_t`: 24 bytes, with the address of a fat binary at offset 8.
    Wrapper,
    /// None of these: the image can only be text that ends with a zero byte.
    Text,
}

impl Extent {
    /// Examines the first bytes of an image: 4 at first, then as many as [`Extent::AtLeast`] permits.
    pub fn of(start: &[u8]) -> Self {
        let Some(magic) = u32_at(start, 0) else { return Self::AtLeast(4) };
        match magic {
            fatbin::MAGIC => fatbin::container_bytes(start).map_or(Self::AtLeast(16), Self::Bytes),
            fatbin::WRAPPER_MAGIC => Self::Wrapper,
            // "\x7fELF"
            0x464c_457f => Self::of_elf(start),
            _ => Self::Text,
        }
    }

    /// The end of an ELF file: of its headers' tables, and of the sections and segments in them.
    fn of_elf(start: &[u8]) -> Self {
        let tables = || {
            // Of sections and of segments: offset and number of the entries, their size, fields of offset and size.
            let sections = (u64_at(start, 40)?, u16_at(start, 60)?, 64, 24, 32);
            let segments = (u64_at(start, 32)?, u16_at(start, 56)?, 56, 8, 32);
            start.get(..64).map(|_| [sections, segments])
        };
        let Some(tables) = tables() else { return Self::AtLeast(64) };
        let end_of = |offset: u64, count: u16, size: u64| offset.saturating_add(u64::from(count) * size);
        let ends = tables.map(|(offset, count, size, ..)| end_of(offset, count, size));
        let mut end = ends[0].max(ends[1]).max(64);
        if end > start.len() as u64 {
            return Self::AtLeast(end);
        }
        for (offset, count, size, at, length) in tables {
            for index in 0..count {
                let header = usize::try_from(end_of(offset, index, size)).ok().and_then(|at| start.get(at..));
                let Some(header) = header else { continue };
                // NOBITS sections and the null section have no content.
                if size == 64 && matches!(u32_at(header, 4), Some(0 | 8)) {
                    continue;
                }
                let content = u64_at(header, at).zip(u64_at(header, length));
                end = end.max(content.map_or(0, |(at, bytes)| at.saturating_add(bytes)));
            }
        }
        Self::Bytes(end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The end of an image, as a caller finds it that may not read past it.
    fn measured(image: &[u8]) -> Extent {
        let mut known = 4;
        for _ in 0..4 {
            match Extent::of(&image[..known]) {
                Extent::AtLeast(bytes) => known = usize::try_from(bytes).unwrap(),
                extent => return extent,
            }
        }
        panic!("no end after four reads");
    }

    #[test]
    fn every_image_ends_where_its_file_does() {
        let files: [&[u8]; 6] = [
            include_bytes!("../tests/data/debug.cubin"),
            include_bytes!("../tests/data/globals.13_0.cubin"),
            include_bytes!("../tests/data/tiny.relocatable.cubin"),
            include_bytes!("../tests/data/tiny.sm_90a.13_0.cubin"),
            include_bytes!("../tests/data/lz4.fatbin"),
            include_bytes!("../tests/data/zstd.fatbin"),
        ];
        for file in files {
            assert_eq!(measured(file), Extent::Bytes(file.len() as u64));
        }
        assert_eq!(measured(b".version 8.4"), Extent::Text);
        assert_eq!(measured(b"// a\0"), Extent::Text);
        assert_eq!(measured(&fatbin::WRAPPER_MAGIC.to_le_bytes()), Extent::Wrapper);
        assert_eq!(Extent::of(b""), Extent::AtLeast(4));
    }

    #[test]
    fn hostile_headers_end_too() {
        let mut file = include_bytes!("../tests/data/tiny.cubin").to_vec();
        for at in 16..64 {
            let old = core::mem::replace(&mut file[at], 0xff);
            assert_ne!(Extent::of(&file), Extent::Text, "byte {at}");
            file[at] = old;
        }
        let huge = [&fatbin::MAGIC.to_le_bytes()[..], &[0xff; 12]].concat();
        assert_eq!(Extent::of(&huge), Extent::Bytes(u64::MAX));
    }
}
