//! Everything that can be wrong with a cubin, or with the request made of it.

use alloc::string::String;
use alloc::vec::Vec;

/// Why a cubin cannot be parsed, loaded or run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The bytes do not begin like an ELF file.
    #[error("not a cubin: {found}")]
    NotElf {
        /// What the bytes look like, and the cure where there is one.
        found: &'static str,
    },
    /// A 32-bit ELF file.
    #[error("32-bit ELF file: cubins of sm_70 and newer are 64-bit")]
    Not64Bit,
    /// A big-endian ELF file.
    #[error("big-endian ELF file: cubins are little-endian")]
    NotLittleEndian,
    /// An ELF file for another processor.
    #[error("ELF machine {machine} is not CUDA (190): this is a program or library for a CPU")]
    WrongMachine {
        /// `e_machine`.
        machine: u16,
    },
    /// A CUDA ELF file whose layout this crate does not know.
    #[error(
        "CUDA ELF ABI version {version} (OS ABI {os_abi:#x}) is not supported, only version 7 (OS ABI 0x33) and \
         version 8 (OS ABI 0x41): compile with a toolkit of version 11, 12 or 13"
    )]
    UnknownAbi {
        /// `e_ident[EI_OSABI]`.
        os_abi: u8,
        /// `e_ident[EI_ABIVERSION]`.
        version: u8,
    },
    /// An object file (`ET_REL`), which nvlink has not linked yet.
    #[error(
        "relocatable object, not a loadable cubin: compile without --relocatable-device-code (-rdc, -dc), \
         or link it with nvlink"
    )]
    Relocatable,
    /// Neither an executable nor an object file.
    #[error("ELF type {e_type} is not an executable (2)")]
    UnexpectedType {
        /// `e_type`.
        e_type: u16,
    },
    /// The file ends before one of its tables does.
    #[error("truncated: {what} takes {bytes} bytes at {offset:#x}, the file has {file_bytes}")]
    Truncated {
        /// Which table or section.
        what: String,
        /// Where it begins, in bytes from the start of the file.
        offset: u64,
        /// Its length in bytes.
        bytes: u64,
        /// Length of the file in bytes.
        file_bytes: u64,
    },
    /// Sections that share bytes of the file.
    #[error("sections overlap: together they are longer than the file's {file_bytes} bytes")]
    OverlappingSections {
        /// Length of the file in bytes.
        file_bytes: u64,
    },
    /// A name that is not in the string table, not terminated, or not UTF-8.
    #[error("no valid name at offset {offset:#x} of the string table for {of}")]
    BadName {
        /// The names of what: `sections` or `symbols`.
        of: &'static str,
        /// Offset in the string table, in bytes.
        offset: u32,
    },
    /// Names that overlap so much that they are many times longer than the file.
    #[error("the names in the string table for {of} overlap too much")]
    NamesTooLong {
        /// The names of what: `sections` or `symbols`.
        of: &'static str,
    },
    /// A section whose header or content contradicts what its name or type promises.
    #[error("section `{section}`: {reason}")]
    BadSection {
        /// Name of the section.
        section: String,
        /// What is wrong.
        reason: &'static str,
    },
    /// An attribute record that is cut off or has the wrong length.
    #[error("attribute {attribute:#04x} at {offset:#x} of section `{section}`: {reason}")]
    BadAttribute {
        /// Name of the section.
        section: String,
        /// Offset of the record in the section, in bytes.
        offset: u64,
        /// Attribute number.
        attribute: u8,
        /// What is wrong.
        reason: &'static str,
    },
    /// A symbol whose section or extent makes no sense.
    #[error("symbol `{symbol}`: {reason}")]
    BadSymbol {
        /// Name of the symbol.
        symbol: String,
        /// What is wrong.
        reason: &'static str,
    },
    /// A kernel without something that every kernel has.
    #[error("kernel `{kernel}` has no {what}")]
    Incomplete {
        /// Name of the kernel.
        kernel: String,
        /// The section or attribute that is missing.
        what: &'static str,
    },
    /// Parameters that overlap, have gaps in their numbering or leave the parameter block.
    #[error("parameters of kernel `{kernel}`: {reason}")]
    BadParameters {
        /// Name of the kernel.
        kernel: String,
        /// What is wrong.
        reason: &'static str,
    },
    /// Two kernels of one name.
    #[error("kernel `{name}` is defined twice")]
    DuplicateKernel {
        /// The name.
        name: String,
    },
    /// Two variables of one name.
    #[error("variable `{name}` is defined twice")]
    DuplicateGlobal {
        /// The name.
        name: String,
    },
    /// A relocation type that this crate cannot apply.
    #[error("relocation type {kind} at {offset:#x} of section `{section}` is not supported")]
    UnknownRelocation {
        /// Section to be patched.
        section: String,
        /// Offset in that section, in bytes.
        offset: u64,
        /// Relocation type number.
        kind: u32,
    },
    /// A relocation that cannot be applied where it points, or for this load address.
    #[error("relocation at {offset:#x} of `{section}`: {reason}")]
    BadRelocation {
        /// Section to be patched, or `image` when the load address is at fault.
        section: String,
        /// Offset in that section or in the image, in bytes.
        offset: u64,
        /// What is wrong.
        reason: &'static str,
    },
    /// A symbol that is used and has no place in the image.
    #[error(
        "unresolved symbol `{symbol}`, used by section `{section}`: {}",
        if *.undefined {
            "it is not defined in the cubin (device-side printf, assert and malloc need CUDA's run time)"
        } else {
            "it lies in a section that is not loaded"
        }
    )]
    UnresolvedSymbol {
        /// Name of the symbol.
        symbol: String,
        /// Section that uses it.
        section: String,
        /// Whether the symbol is undefined, as against defined in a section that is not loaded.
        undefined: bool,
    },
    /// The code is for another GPU.
    #[error("compiled for sm_{cubin}{}, the GPU is sm_{gpu}: {reason}", if *.accelerated { "a" } else { "" })]
    WrongArchitecture {
        /// SM version of the code.
        cubin: u32,
        /// Whether the code uses architecture-specific features (`sm_90a`).
        accelerated: bool,
        /// SM version of the GPU.
        gpu: u32,
        /// The rule that forbids it.
        reason: &'static str,
    },
    /// A name that no kernel has.
    #[error("no kernel `{name}` in the cubin; there is {}", list(.available))]
    NoSuchKernel {
        /// The name that was asked for.
        name: String,
        /// The names of all kernels, sorted.
        available: Vec<String>,
    },
    /// A name that no variable has.
    #[error("no variable `{name}` in the cubin; there is {}", list(.available))]
    NoSuchVariable {
        /// The name that was asked for.
        name: String,
        /// The names of all variables, sorted.
        available: Vec<String>,
    },
    /// More variables than a GPU's memory holds.
    #[error("the image takes {bytes} bytes, more than can be loaded")]
    ImageTooLarge {
        /// Its size in bytes, as far as it could be counted.
        bytes: u64,
    },
    /// A load address at which the image cannot stand.
    #[error(
        "the image cannot be loaded at {base_va:#x}: it needs {bytes} bytes, aligned to {align}, below 2^49"
    )]
    BadBase {
        /// The load address.
        base_va: u64,
        /// Size of the image in bytes.
        bytes: u64,
        /// Required alignment in bytes.
        align: u64,
    },
    /// A buffer that is not as long as the image.
    #[error("the image has {needed} bytes, the buffer {given}")]
    WrongImageLength {
        /// Length of the buffer in bytes.
        given: usize,
        /// Size of the image in bytes.
        needed: u64,
    },
}

/// The names for a message: all of a few, the first of many.
fn list(names: &[String]) -> String {
    const SHOWN: usize = 16;
    if names.is_empty() {
        return String::from("none at all");
    }
    let mut text = names.iter().take(SHOWN).map(|n| alloc::format!("`{n}`")).collect::<Vec<_>>().join(", ");
    if names.len() > SHOWN {
        text += &alloc::format!(" and {} more", names.len() - SHOWN);
    }
    text
}
