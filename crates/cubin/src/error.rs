//! Errors of parsing and loading cubins.

use alloc::string::String;
use alloc::vec::Vec;

use crate::FileKind;

/// The reason why a cubin cannot be parsed, loaded or run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The bytes are not an ELF file.
    #[error("not a cubin: {found}")]
    NotElf {
        /// What the file is.
        found: FileKind,
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
    /// A CUDA ELF file with an unknown layout.
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
    /// An object file (`ET_REL`) that was not linked by nvlink.
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
    /// The file ends inside a table or section.
    #[error("truncated: {what} takes {bytes} bytes at {offset:#x}, the file has {file_bytes}")]
    Truncated {
        /// The table or section.
        what: String,
        /// Its offset in the file, in bytes.
        offset: u64,
        /// Its length in bytes.
        bytes: u64,
        /// Length of the file in bytes.
        file_bytes: u64,
    },
    /// Sections overlap in the file.
    #[error("sections overlap: together they are longer than the file's {file_bytes} bytes")]
    OverlappingSections {
        /// Length of the file in bytes.
        file_bytes: u64,
    },
    /// A name that is not in the string table, not terminated, or not UTF-8.
    #[error("the name of {of}, at offset {offset:#x} of the string table, is not valid")]
    BadName {
        /// Owner of the names: `sections` or `symbols`.
        of: &'static str,
        /// Offset in the string table, in bytes.
        offset: u32,
    },
    /// Overlapping names that add up to many times the length of the file.
    #[error("the names in the string table for {of} overlap too much")]
    NamesTooLong {
        /// Owner of the names: `sections` or `symbols`.
        of: &'static str,
    },
    /// A section whose header or content does not match its name or type.
    #[error("section `{section}`: {reason}")]
    BadSection {
        /// Name of the section.
        section: String,
        /// The fault.
        reason: &'static str,
    },
    /// An attribute record that is truncated or has the wrong length.
    #[error("attribute {attribute:#04x} at {offset:#x} of section `{section}`: {reason}")]
    BadAttribute {
        /// Name of the section.
        section: String,
        /// Offset of the record in the section, in bytes.
        offset: u64,
        /// Attribute number.
        attribute: u8,
        /// The fault.
        reason: &'static str,
    },
    /// A symbol with an invalid section or extent.
    #[error("symbol `{symbol}`: {reason}")]
    BadSymbol {
        /// Name of the symbol.
        symbol: String,
        /// The fault.
        reason: &'static str,
    },
    /// A kernel without a section or attribute that every kernel has.
    #[error("kernel `{kernel}` has no {what}")]
    Incomplete {
        /// Name of the kernel.
        kernel: String,
        /// The missing section or attribute.
        what: &'static str,
    },
    /// Parameters that overlap, are not numbered consecutively or exceed the parameter block.
    #[error("parameters of kernel `{kernel}`: {reason}")]
    BadParameters {
        /// Name of the kernel.
        kernel: String,
        /// The fault.
        reason: &'static str,
    },
    /// Two kernels with the same name.
    #[error("kernel `{name}` is defined twice")]
    DuplicateKernel {
        /// The name.
        name: String,
    },
    /// Two variables with the same name.
    #[error("variable `{name}` is defined twice")]
    DuplicateGlobal {
        /// The name.
        name: String,
    },
    /// A relocation type that this crate cannot apply.
    #[error("relocation type {kind} at {offset:#x} of section `{section}` is not supported")]
    UnknownRelocation {
        /// Section to patch.
        section: String,
        /// Offset in that section, in bytes.
        offset: u64,
        /// Relocation type number.
        kind: u32,
    },
    /// A relocation that cannot be applied at its offset, or for this load address.
    #[error("relocation at {offset:#x} of `{section}`: {reason}")]
    BadRelocation {
        /// Section to patch, or `image` if the load address is at fault.
        section: String,
        /// Offset in that section or in the image, in bytes.
        offset: u64,
        /// The fault.
        reason: &'static str,
    },
    /// A symbol that is used but is not part of the image.
    #[error(
        "unresolved symbol `{symbol}`, used by section `{section}`: {}",
        if *.undefined {
            "it is not defined in the cubin; link its definition with nvlink or nvJitLink"
        } else {
            "it is in a section that is not loaded"
        }
    )]
    UnresolvedSymbol {
        /// Name of the symbol.
        symbol: String,
        /// Section that uses it.
        section: String,
        /// Whether the symbol is undefined. If not, it is defined in a section that is not loaded.
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
        /// The rule of binary compatibility.
        reason: &'static str,
    },
    /// A fat binary with an unknown or damaged layout.
    #[error("not a fat binary that can be read, at {offset:#x}: {reason}")]
    BadFatBinary {
        /// Offset in the file in bytes.
        offset: u64,
        /// The fault.
        reason: &'static str,
    },
    /// An entry of a fat binary whose content cannot be decompressed.
    #[error("{entry} of the fat binary: {reason}")]
    BadPayload {
        /// Kind and architecture of the entry.
        entry: String,
        /// The fault.
        reason: &'static str,
    },
    /// A fat binary without code for the GPU, and without PTX that can be compiled for it.
    #[error(
        "the fat binary has nothing for sm_{gpu}; it has: {}; compile for sm_{gpu}, or add PTX \
         (-gencode arch=compute_{gpu},code=compute_{gpu})", list(.available)
    )]
    NoFittingEntry {
        /// SM version of the GPU.
        gpu: u32,
        /// Kind and architecture of each entry.
        available: Vec<String>,
    },
    /// No kernel has this name.
    #[error("no kernel `{name}` in the cubin; its kernels: {}", list(.available))]
    NoSuchKernel {
        /// The requested name.
        name: String,
        /// The names of all kernels, sorted.
        available: Vec<String>,
    },
    /// No variable has this name.
    #[error("no variable `{name}` in the cubin; its variables: {}", list(.available))]
    NoSuchVariable {
        /// The requested name.
        name: String,
        /// The names of all variables, sorted.
        available: Vec<String>,
    },
    /// An image larger than 4 GiB, or than the memory of the host.
    #[error(
        "the image has {bytes} bytes, more than can be loaded: allocate large arrays at run time instead of declaring \
         them as __device__ variables"
    )]
    ImageTooLarge {
        /// Its size in bytes, or a lower bound.
        bytes: u64,
    },
    /// A load address that the image does not fit.
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
    /// A buffer of another length than the image.
    #[error("the image has {needed} bytes, the buffer {given}")]
    WrongImageLength {
        /// Length of the buffer in bytes.
        given: usize,
        /// Size of the image in bytes.
        needed: u64,
    },
}

/// Formats names for a message: up to 16, and the number of the others.
fn list(names: &[String]) -> String {
    const SHOWN: usize = 16;
    if names.is_empty() {
        return String::from("none");
    }
    let mut text = names.iter().take(SHOWN).map(|n| alloc::format!("`{n}`")).collect::<Vec<_>>().join(", ");
    if names.len() > SHOWN {
        text += &alloc::format!(" and {} more", names.len() - SHOWN);
    }
    text
}
