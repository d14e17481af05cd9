//! Images: what programs hand over as code.

use core::ffi::CStr;

use cubin::Extent;
use tegra_hcq::{Compiled, JitOptions, LinkInput, Linker};

use crate::code::{Code, Failure, Result};
use crate::context::Context;

/// Longest image that is believed, in bytes.
const LONGEST: u64 = 4 << 30;

/// The bytes of an image: an ELF file or fat binary up to its end, what a wrapper of a fat binary points to, or a text
/// up to its zero byte.
///
/// # Errors
///
/// [`Code::InvalidImage`] if the headers are wrong.
///
/// # Safety
///
/// `pointer` is valid for reads of a whole image of one of these kinds, for as long as the result is used.
pub unsafe fn bytes_at<'a>(pointer: *const u8) -> Result<&'a [u8]> {
    let invalid = |reason: &str| Failure::new(Code::InvalidImage, reason);
    // SAFETY: `Extent` asks for no more bytes than the image has by those before, and the shortest that begins with the
    // mark of a file is longer than four bytes. A text may be shorter, so its zero byte ends the read.
    let start = |bytes: usize| unsafe { core::slice::from_raw_parts(pointer, bytes) };
    // SAFETY: a byte is read only if all before it are not zero.
    let is_short_text = (0..4).any(|at| unsafe { pointer.add(at).read() } == 0);
    let mut known = 4;
    let mut extent = if is_short_text { Extent::Text } else { Extent::of(start(known)) };
    while let Extent::AtLeast(bytes) = extent {
        // CAST: at most LONGEST.
        known = if bytes <= LONGEST { bytes as usize } else { return Err(invalid("the headers are wrong")) };
        extent = Extent::of(start(known));
    }
    match extent {
        // CAST: at most LONGEST.
        Extent::Bytes(bytes) if bytes <= LONGEST => Ok(start(bytes as usize)),
        Extent::Wrapper => {
            let address = start(24)[8..16].try_into().map_or(0, u64::from_le_bytes);
            // CAST: an address of this process.
            let data: *const u8 = core::ptr::with_exposed_provenance(address as usize);
            if data.is_null() {
                return Err(invalid("a fat binary without data"));
            }
            // SAFETY: the wrapper of a fat binary points to one, of which the header is read.
            let Extent::Bytes(bytes) = Extent::of(unsafe { core::slice::from_raw_parts(data, 16) }) else {
                return Err(invalid("the wrapper points to no fat binary"));
            };
            if bytes > LONGEST {
                return Err(invalid("the headers are wrong"));
            }
            // CAST: at most LONGEST. SAFETY: the fat binary is as long as its header says.
            Ok(unsafe { core::slice::from_raw_parts(data, bytes as usize) })
        }
        // SAFETY: a text ends with a zero byte.
        Extent::Text => Ok(unsafe { CStr::from_ptr(pointer.cast()) }.to_bytes()),
        _ => Err(invalid("the headers are wrong")),
    }
}

/// The cubin of images for the GPU of a context.
///
/// # Errors
///
/// [`Code::InvalidPtx`], [`Code::JitCompilerNotFound`], [`Code::NoBinaryForGpu`], [`Code::InvalidImage`], with the log.
pub fn link(context: &Context, inputs: &[LinkInput<'_>], options: &JitOptions) -> Result<Compiled> {
    Ok(Linker::shared().link(inputs, options, context.device.info().sm_version)?)
}
