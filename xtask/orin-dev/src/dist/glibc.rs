//! The C library that a program needs: the highest `GLIBC_x.y` among the versions of its imports.

use std::fmt;
use std::str::FromStr;

use anyhow::{Context, Result};
use object::Endianness;
use object::elf::FileHeader64;
use object::read::elf::{FileHeader, ProgramHeader, SectionHeader};

/// A release of the GNU C library.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Version {
    major: u32,
    minor: u32,
    patch: u32,
}

impl Version {
    pub(crate) const fn new(major: u32, minor: u32) -> Self {
        Self { major, minor, patch: 0 }
    }

    /// Parses the name of a version in a symbol table, such as `GLIBC_2.34`.
    fn parse(name: &str) -> Option<Self> {
        name.strip_prefix("GLIBC_")?.parse().ok()
    }
}

impl FromStr for Version {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parse = || {
            let mut numbers = text.split('.').map(str::parse);
            let (major, minor) = (numbers.next()?.ok()?, numbers.next()?.ok()?);
            let patch = numbers.next().transpose().ok()?.unwrap_or(0);
            numbers.next().is_none().then_some(Self { major, minor, patch })
        };
        parse().ok_or("not a version of the GNU C library, such as 2.17")
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)?;
        if self.patch > 0 { write!(f, ".{}", self.patch) } else { Ok(()) }
    }
}

/// Whether a program names a dynamic loader.
///
/// # Errors
///
/// Returns an error if the file is not a 64-bit ELF file.
pub(crate) fn is_dynamic(program: &[u8]) -> Result<bool> {
    let file = FileHeader64::<Endianness>::parse(program).context("not a 64-bit ELF file")?;
    let endian = file.endian().context("byte order")?;
    let segments = file.program_headers(endian, program).context("segments")?;
    Ok(segments.iter().any(|segment| segment.p_type(endian) == object::elf::PT_INTERP))
}

/// Whether a library uses musl, by the name of the C library that it needs: musl's own, or that of Alpine.
///
/// # Errors
///
/// Returns an error if the file is not a 64-bit ELF file, or its tables exceed it.
pub(crate) fn is_musl(library: &[u8]) -> Result<bool> {
    let file = FileHeader64::<Endianness>::parse(library).context("not a 64-bit ELF file")?;
    let endian = file.endian().context("byte order")?;
    let sections = file.sections(endian, library).context("sections")?;
    let table = sections.dynamic_table(endian, library).context("dynamic section")?;
    let needed = table.iter().filter(|entry| entry.tag == object::elf::DT_NEEDED);
    let mut names = needed.filter_map(|entry| table.string(entry).ok());
    Ok(names.any(|name| name == b"libc.so" || name.starts_with(b"libc.musl-")))
}

/// The oldest release that runs a program; `None` if the program does not use the library.
///
/// # Errors
///
/// Returns an error if the file is not a 64-bit ELF file, or its tables exceed it.
pub(crate) fn needed(program: &[u8]) -> Result<Option<Version>> {
    let file = FileHeader64::<Endianness>::parse(program).context("not a 64-bit ELF file")?;
    let endian = file.endian().context("byte order")?;
    let sections = file.sections(endian, program).context("sections")?;
    let mut highest = None;
    for section in sections.iter() {
        let Some((mut libraries, link)) =
            section.gnu_verneed(endian, program).context("versions of imports")?
        else {
            continue;
        };
        let strings = sections.strings(endian, program, link).context("names of versions")?;
        while let Some((_, mut versions)) = libraries.next().context("versions of imports")? {
            while let Some(version) = versions.next().context("versions of a library")? {
                let name = version.name(endian, strings).context("name of a version")?;
                highest = highest.max(std::str::from_utf8(name).ok().and_then(Version::parse));
            }
        }
    }
    Ok(highest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_compare_by_number() {
        let parse = |name| Version::parse(name).unwrap();
        assert!(parse("GLIBC_2.4") < parse("GLIBC_2.17"));
        assert!(parse("GLIBC_2.2.5") > parse("GLIBC_2.2"));
        assert!(parse("GLIBC_2.35") <= Version::new(2, 35));
        assert_eq!(parse("GLIBC_2.2.5").to_string(), "2.2.5");
        for other in ["GLIBC_PRIVATE", "GLIBC_2", "GLIBC_2.1.1.1", "GCC_3.0", ""] {
            assert_eq!(Version::parse(other), None, "{other}");
        }
    }

    #[test]
    fn this_program_needs_a_c_library() {
        let program = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        let version = needed(&program).unwrap().unwrap();
        assert!(version >= Version::new(2, 17), "the oldest that Rust supports: {version}");
    }

    #[test]
    fn other_files_are_refused() {
        assert!(needed(b"#!/bin/sh\n").is_err());
        assert!(needed(&[]).is_err());
    }
}
