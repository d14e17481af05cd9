//! The requests of the control node about buffers: metadata, compression, video memory
//! (`ioctl_ctrl.c`, `os/linux/cde.c`).
//!
//! Compression needs 64 KiB pages, which ga10b runs without, so no buffer ever has compression tags.
//! There is no video memory either.

use std::os::fd::RawFd;

use nvgpu_sys::channel::SubmitFlags;
use nvgpu_sys::ctrl::{
    AllocVidmem, AllocVidmemFlags, BufferInfoFlags, BufferInfoIn, BufferInfoOut, COMPTAGS_ALLOC_REQUIRED,
    CPU_ACCESS_MASK, GetMemoryState, MarkCompressibleWrite, PrepareCompressibleRead,
    REGISTER_BUFFER_METADATA_MAX_SIZE, RegisterBuffer, RegisterBufferFlags, code,
};
use rustix::io::Errno;

use super::argument::Argument;
use super::nvmap::Buffer;
use super::{Kernel, user};

/// What REGISTER_BUFFER attached to a buffer.
#[derive(Clone, Debug)]
pub(super) struct Metadata {
    bytes: Vec<u8>,
    mutable: bool,
}

/// The most bytes of an alignment rule of video memory.
const PAGE: u64 = 4096;

impl Kernel {
    /// The requests that this module has.
    pub(super) fn buffer_request(&self, argument: &mut Argument) -> Result<(), Errno> {
        match argument.code() {
            code::REGISTER_BUFFER => argument.call(|args: &mut RegisterBuffer| self.register(args)),
            code::GET_BUFFER_INFO => {
                let info = self.buffer_info(&argument.peek())?;
                argument.call(|args: &mut BufferInfoOut| {
                    *args = info;
                    Ok(())
                })
            }
            code::PREPARE_COMPRESSIBLE_READ => argument.call(|args: &mut PrepareCompressibleRead| {
                // CAST: a descriptor is the same 32 bits.
                self.image(args.handle as RawFd)?;
                (args.compbits, args.zbc_color) = (0, 0);
                let fence = SubmitFlags::FENCE_GET.union(SubmitFlags::SYNC_FENCE);
                if SubmitFlags::from_bits_retain(args.submit_flags).contains(fence) {
                    // No work, no fence: the descriptor is -1.
                    args.fence_id = u32::MAX;
                }
                Ok(())
            }),
            code::MARK_COMPRESSIBLE_WRITE => argument.call(|args: &mut MarkCompressibleWrite| {
                // CAST: a descriptor is the same 32 bits.
                self.image(args.handle as RawFd).map(|_| ())
            }),
            code::GET_MEMORY_STATE => argument.call(|args: &mut GetMemoryState| {
                Err(if args.reserved == [0; 4] { Errno::NOSYS } else { Errno::INVAL })
            }),
            _ => argument.call(|args: &mut AllocVidmem| Err(alloc_vidmem(args))),
        }
    }

    fn buffer(&self, fd: RawFd, function: &str) -> Result<Buffer, Errno> {
        self.lock().fds.dma_buf(fd).inspect_err(|_| {
            self.log.warning(function, format_args!("{function}: fd {fd} is not a dmabuf"));
        })
    }

    /// The buffer of an image; anything else is EINVAL.
    fn image(&self, fd: RawFd) -> Result<Buffer, Errno> {
        self.lock().fds.dma_buf(fd).map_err(|_| Errno::INVAL)
    }

    fn register(&self, args: &mut RegisterBuffer) -> Result<(), Errno> {
        if args.metadata_size > REGISTER_BUFFER_METADATA_MAX_SIZE
            || args.comptags_alloc_control > COMPTAGS_ALLOC_REQUIRED
        {
            return Err(Errno::INVAL);
        }
        let buffer = self.buffer(args.dmabuf_fd, "nvgpu_gpu_ioctl_register_buffer")?;
        let flags = RegisterBufferFlags::from_bits_retain(args.flags);
        let mut metadata = buffer.handle.metadata();
        if let Some(old) = &*metadata
            && (!flags.contains(RegisterBufferFlags::MODIFY) || !old.mutable)
        {
            return Err(Errno::INVAL);
        }
        // CAST: at most 256.
        let mut bytes = vec![0; args.metadata_size as usize];
        user::read_bytes(args.metadata_addr, &mut bytes)?;
        if args.comptags_alloc_control == COMPTAGS_ALLOC_REQUIRED {
            return Err(Errno::NOMEM);
        }
        *metadata = Some(Metadata { bytes, mutable: flags.contains(RegisterBufferFlags::MUTABLE) });
        args.flags &= !RegisterBufferFlags::COMPTAGS_ALLOCATED.bits();
        Ok(())
    }

    fn buffer_info(&self, args: &BufferInfoIn) -> Result<BufferInfoOut, Errno> {
        let buffer = self.buffer(args.dmabuf_fd, "nvgpu_gpu_ioctl_get_buffer_info")?;
        let mut info = BufferInfoOut { size: buffer.handle.size(), ..BufferInfoOut::default() };
        let metadata = buffer.handle.metadata();
        if let Some(Metadata { bytes, mutable }) = &*metadata {
            let len = bytes.len().min(args.metadata_size as usize);
            if user::write_bytes(args.metadata_addr, &bytes[..len]) > 0 {
                return Err(Errno::FAULT);
            }
            let mut flags = BufferInfoFlags::METADATA_REGISTERED;
            flags.set(BufferInfoFlags::MUTABLE_METADATA, *mutable);
            info.flags = flags.bits();
            // CAST: at most 256.
            info.metadata_size = bytes.len() as u32;
        }
        Ok(info)
    }
}

/// ALLOC_VIDMEM never succeeds. That the errno of a correct request is ENOMEM is an assumption.
fn alloc_vidmem(args: &AllocVidmem) -> Errno {
    let (size, alignment) = (args.size_or_fd, u64::from(args.alignment));
    let mapped = args.flags & CPU_ACCESS_MASK != 0;
    let protected = args.flags & AllocVidmemFlags::VPR.bits() != 0;
    let aligned = alignment == 0 || alignment.is_power_of_two() && alignment <= size;
    if mapped || protected || size == 0 || !size.is_multiple_of(PAGE) || !aligned {
        return Errno::INVAL;
    }
    Errno::NOMEM
}
