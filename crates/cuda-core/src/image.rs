//! Images: what programs hand over as code, and how it becomes a cubin.

use core::ffi::CStr;

use crate::code::{Code, Failure, Result};
use crate::context::Context;

/// What a compilation is asked for, and where its logs go.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Most registers of a thread.
    pub max_registers: Option<u32>,
    /// Level of optimisation, 0 to 4.
    pub optimisation: Option<u32>,
    /// Whether to add line information.
    pub lines: bool,
    /// Whether to add debug information.
    pub debug: bool,
    /// Whether the information log tells what the kernels use.
    pub verbose: bool,
}

/// A cubin, and what the compiler had to say.
#[derive(Clone, Debug, Default)]
pub struct Compiled {
    /// The cubin.
    pub cubin: Vec<u8>,
    /// The log.
    pub log: String,
}

/// The bytes of an image: up to the end of an ELF file or fat binary by its headers, or to the zero byte of a text.
///
/// # Errors
///
/// [`Code::InvalidImage`] if the headers are not those of such a file.
///
/// # Safety
///
/// `pointer` is valid for reads of a whole image of one of these kinds.
pub unsafe fn bytes_at<'a>(pointer: *const u8) -> Result<&'a [u8]> {
    // SAFETY: the shortest image, an empty text, has one byte; each further byte is read only if the one before is part
    // of the mark of a longer file.
    let begins = |mark: &[u8]| unsafe { (0..mark.len()).all(|at| pointer.add(at).read() == mark[at]) };
    let word = |at: usize| {
        // SAFETY: the headers of an ELF file or a fat binary are at least 64 or 16 bytes long, by the mark.
        u64::from_le_bytes(core::array::from_fn(|byte| unsafe { pointer.add(at + byte).read() }))
    };
    let bytes = if begins(b"\x7fELF") {
        elf_bytes(word)?
    } else if begins(&FAT_BINARY.to_le_bytes()) {
        // Size of the header, and of the entries after it.
        (word(4) >> 16 & 0xffff) + word(8)
    } else if begins(&WRAPPER.to_le_bytes()) {
        // CAST: an address of this process.
        let data = word(8) as usize as *const u8;
        if data.is_null() {
            return Err(Failure::new(Code::InvalidImage, "a fat binary without data"));
        }
        // SAFETY: the wrapper of a fat binary points to one.
        return unsafe { bytes_at(data) };
    } else {
        // SAFETY: a text ends with a zero byte.
        return Ok(unsafe { CStr::from_ptr(pointer.cast()) }.to_bytes());
    };
    let bytes = usize::try_from(bytes).map_err(|_| Code::InvalidImage)?;
    // SAFETY: the file is as long as its headers say.
    Ok(unsafe { core::slice::from_raw_parts(pointer, bytes) })
}

/// Mark of a fat binary.
const FAT_BINARY: u32 = 0xba55_ed50;
/// Mark of the structure that points to a fat binary.
const WRAPPER: u32 = 0x4662_43b1;
/// Longest ELF file that is believed, in bytes.
const LONGEST: u64 = 4 << 30;

/// Length of an ELF file: the end of its section headers, program headers or sections, whichever is last.
fn elf_bytes(word: impl Fn(usize) -> u64) -> Result<u64> {
    let half = |at: usize| word(at) & 0xffff;
    let (programs, sections) = (word(0x20), word(0x28));
    let (program_size, program_count) = (half(0x36), half(0x38));
    let (section_size, section_count) = (half(0x3a), half(0x3c));
    let mut end = (programs + program_size * program_count).max(sections + section_size * section_count);
    if end > LONGEST || section_size < 0x40 {
        return Err(Failure::new(Code::InvalidImage, "the headers of the ELF file are wrong"));
    }
    for section in 0..section_count {
        // CAST: below the limit above.
        let at = (sections + section * section_size) as usize;
        // SHT_NOBITS sections have no bytes in the file.
        if word(at + 4) & 0xffff_ffff != 8 {
            end = end.max(word(at + 0x18).saturating_add(word(at + 0x20)));
        }
    }
    if end > LONGEST { Err(Failure::new(Code::InvalidImage, "the sections of the ELF file are wrong")) } else { Ok(end) }
}

/// The cubin of an image for the GPU of a context.
///
/// # Errors
///
/// [`Code::InvalidPtx`], [`Code::JitCompilerNotFound`], [`Code::NoBinaryForGpu`], [`Code::InvalidImage`], with the log.
pub fn compile(context: &Context, image: &[u8], options: &Options) -> Result<Compiled> {
    let _ = options;
    if image.starts_with(b"\x7fELF") {
        return Ok(Compiled { cubin: image.to_vec(), log: String::new() });
    }
    let text = core::str::from_utf8(image).map_err(|_| Code::InvalidImage)?;
    if !text.contains(".version") {
        return Err(Code::InvalidImage.into());
    }
    let linker = tegra_hcq::Linker::load()?;
    let cubin = linker.compile("ptx", text, &[], context.device.info().sm_version)?;
    Ok(Compiled { cubin, log: String::new() })
}
