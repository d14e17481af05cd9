//! The raw tables of a cubin, for tools that display them. Launches use [`Cubin`](crate::Cubin) instead.

use alloc::string::{String, ToString};
use alloc::vec::Vec;

use crate::Error;
use crate::elf::{self, Elf, u64_at};
use crate::info::attributes;
use crate::names;

/// All entries of the tables of a cubin, in file order.
///
/// ```
/// # let file = include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/globals.cubin"));
/// let contents = cubin::Contents::read(file)?;
/// assert_eq!(contents.sm, 87);
/// for section in &contents.sections {
///     println!("{} {} bytes", section.name, section.bytes);
/// }
/// # Ok::<(), cubin::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Contents {
    /// `e_ident[EI_OSABI]`: 0x33, or 0x41 with ABI version 8.
    pub os_abi: u8,
    /// `e_ident[EI_ABIVERSION]`: 7 (toolkits 11 and 12) or 8 (toolkit 13).
    pub abi_version: u8,
    /// `e_type`: 1 for an object file (input of nvlink), 2 for a loadable cubin.
    pub e_type: u16,
    /// `e_version`: ten times the toolkit's version in ABI version 7, always 1 in version 8.
    pub e_version: u32,
    /// `e_flags`.
    pub flags: u32,
    /// The SM version that the code was compiled for.
    pub sm: u32,
    /// Whether the code was compiled for the architecture-specific feature set (`sm_90a`).
    pub accelerated: bool,
    /// All sections; the first is the null section.
    pub sections: Vec<Section>,
    /// All symbols.
    pub symbols: Vec<Symbol>,
    /// The records of all attribute sections.
    pub attributes: Vec<Attribute>,
    /// The entries of all relocation tables.
    pub relocations: Vec<Relocation>,
}

/// One section header.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Section {
    /// Its name.
    pub name: String,
    /// `sh_type`.
    pub kind: u32,
    /// `sh_flags`.
    pub flags: u64,
    /// `sh_size`, in bytes.
    pub bytes: u64,
    /// `sh_link`.
    pub link: u32,
    /// `sh_info`.
    pub info: u32,
    /// `sh_addralign`, in bytes.
    pub align: u64,
    /// Byte range of its content in the file; `None` if the file contains none.
    pub range: Option<core::ops::Range<usize>>,
}

/// One symbol.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Symbol {
    /// Its name.
    pub name: String,
    /// Low four bits of `st_info`: 1 for an object, 2 for a function, 3 for a section.
    pub kind: u8,
    /// `st_other`; bit 4 marks a kernel.
    pub other: u8,
    /// Index of its section; 0 if the file does not define it.
    pub section: u16,
    /// Offset in the section, in bytes.
    pub value: u64,
    /// Size in bytes.
    pub bytes: u64,
}

/// One record of an attribute section.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Attribute {
    /// Index of the section.
    pub section: usize,
    /// Format: 1 no value, 2 eight bits, 3 sixteen bits, 4 bytes.
    pub format: u8,
    /// Attribute number.
    pub number: u8,
    /// The value, two bytes, or the bytes.
    pub payload: Vec<u8>,
}

impl Attribute {
    /// Name of the attribute in NVIDIA's tools, without `EIATTR_`; `None` if this crate does not know it.
    pub fn name(&self) -> Option<&'static str> {
        names::ATTRIBUTES.get(usize::from(self.number)).copied()
    }
}

/// One entry of a relocation table.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Relocation {
    /// Index of the section to patch.
    pub section: usize,
    /// Offset in that section, in bytes.
    pub offset: u64,
    /// Relocation type.
    pub kind: u32,
    /// Index of the symbol.
    pub symbol: u32,
    /// Addend; `None` if the table has none (`SHT_REL`).
    pub addend: Option<i64>,
}

impl Relocation {
    /// Name of the type in NVIDIA's tools; `None` if this crate does not know it.
    pub fn name(&self) -> Option<&'static str> {
        names::RELOCATIONS.get(usize::try_from(self.kind).ok()?).copied()
    }
}

impl Contents {
    /// Reads the tables of a cubin or of an object file. Nothing is resolved, so it also reads files that
    /// [`Cubin::parse`](crate::Cubin::parse) refuses.
    ///
    /// Work and memory are bounded by a small multiple of `bytes.len()`.
    ///
    /// # Errors
    ///
    /// One of the variants of [`Error`] if a table cannot be read.
    pub fn read(bytes: &[u8]) -> Result<Self, Error> {
        let elf = Elf::read(bytes)?;
        let (mut records, mut relocations) = (Vec::new(), Vec::new());
        for (index, section) in elf.sections.iter().enumerate() {
            match section.kind {
                elf::SHT_CUDA_INFO => {
                    for record in attributes(section) {
                        let record = record?;
                        let (format, number) = (record.format, record.number);
                        records.push(Attribute {
                            section: index,
                            format,
                            number,
                            payload: record.payload.to_vec(),
                        });
                    }
                }
                elf::SHT_REL | elf::SHT_RELA => read_relocations(&elf, section, &mut relocations)?,
                _ => {}
            }
        }
        // Offset of a slice of the file.
        let place = |data: &[u8]| {
            let start = data.as_ptr().addr().checked_sub(bytes.as_ptr().addr())?;
            (!data.is_empty()).then(|| start..start + data.len())
        };
        let sections = elf.sections.iter().map(|section| Section {
            name: section.name.to_string(),
            kind: section.kind,
            flags: section.flags,
            bytes: section.bytes,
            link: section.link,
            info: section.info,
            align: section.align,
            range: place(section.data),
        });
        let symbols = elf.symbols.iter().map(|symbol| Symbol {
            name: symbol.name.to_string(),
            kind: symbol.kind,
            other: symbol.other,
            section: symbol.section,
            value: symbol.value,
            bytes: symbol.bytes,
        });
        Ok(Self {
            os_abi: elf.header.os_abi,
            abi_version: elf.header.abi_version,
            e_type: elf.header.e_type,
            e_version: elf.header.e_version,
            flags: elf.header.flags,
            sm: elf.sm,
            accelerated: elf.accelerated,
            sections: sections.collect(),
            symbols: symbols.collect(),
            attributes: records,
            relocations,
        })
    }

    /// Checks whether a GPU of SM version `gpu_sm` can run the code, as [`Cubin::check_arch`](crate::Cubin::check_arch)
    /// does.
    ///
    /// # Errors
    ///
    /// [`Error::WrongArchitecture`], with both architectures.
    pub fn check_arch(&self, gpu_sm: u32) -> Result<(), Error> {
        crate::arch::check(self.sm, self.accelerated, gpu_sm)
    }

    /// The symbol with this index in the symbol table.
    pub fn symbol(&self, index: u32) -> Option<&Symbol> {
        self.symbols.get(usize::try_from(index).ok()?)
    }
}

fn read_relocations(elf: &Elf<'_>, table: &elf::Section<'_>, out: &mut Vec<Relocation>) -> Result<(), Error> {
    let target = usize::try_from(table.info).ok().filter(|&index| index < elf.sections.len());
    let section = target.ok_or_else(|| table.bad("it relocates a section that does not exist"))?;
    let entry_bytes = if table.kind == elf::SHT_RELA { 24 } else { 16 };
    if !table.data.len().is_multiple_of(entry_bytes) {
        return Err(table.bad("its size is not a multiple of its entries'"));
    }
    out.extend(table.data.chunks_exact(entry_bytes).map(|entry| {
        // PANIC: an entry has 16 or 24 bytes.
        let (offset, info) = u64_at(entry, 0).zip(u64_at(entry, 8)).expect("inside of the entry");
        Relocation {
            section,
            offset,
            // CAST: the two halves of r_info.
            kind: info as u32,
            symbol: (info >> 32) as u32,
            addend: u64_at(entry, 16).map(u64::cast_signed),
        }
    }));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_file_and_one_that_cannot_be_loaded_are_listed() {
        let object = Contents::read(include_bytes!("../tests/data/tiny.relocatable.cubin")).unwrap();
        assert_eq!((object.e_type, object.sm, object.abi_version), (1, 87, 7));
        let printf = Contents::read(include_bytes!("../tests/data/printf.cubin")).unwrap();
        assert!(printf.relocations.iter().any(|relocation| {
            relocation.name().is_some() && printf.symbol(relocation.symbol).unwrap().name == "vprintf"
        }));
        assert!(printf.attributes.iter().any(|attribute| attribute.name() == Some("REGCOUNT")));
    }

    #[test]
    fn ranges_are_those_of_the_file() {
        let file = include_bytes!("../tests/data/tiny.cubin");
        let contents = Contents::read(file).unwrap();
        let names = contents.sections.iter().find(|section| section.name == ".shstrtab").unwrap();
        let bytes = &file[names.range.clone().unwrap()];
        assert!(bytes.windows(9).any(|window| window == b".text.tin"));
        assert_eq!(bytes.len() as u64, names.bytes);
    }
}
