//! The control node's requests for buffers: metadata, compression, video memory (`ioctl_ctrl.c`, `os/linux/cde.c`).
//!
//! Compression needs 64 KiB pages, which ga10b does not have, so no buffer ever has compression tags. There is no video
//! memory.

use std::os::fd::RawFd;

use gpu_log::MemoryLine;
use nvgpu_sys::channel::SubmitFlags;
use nvgpu_sys::ctrl::{
    AllocVidmem, AllocVidmemFlags, BufferInfoFlags, BufferInfoIn, BufferInfoOut, COMPTAGS_ALLOC_REQUIRED,
    CPU_ACCESS_MASK, GetMemoryState, MarkCompressibleWrite, PrepareCompressibleRead,
    REGISTER_BUFFER_METADATA_MAX_SIZE, RegisterBuffer, RegisterBufferFlags, code,
};
use rustix::io::Errno;

use super::Kernel;
use super::argument::Argument;
use super::nvmap::{Buffer, Metadata};
use super::process::fds;
use super::process::task::Task;

/// Page of video memory in bytes.
const PAGE: u64 = 4096;

impl Kernel {
    /// Handles the requests of this module.
    pub(super) fn buffer_request(&self, argument: &mut Argument<'_>) -> Result<(), Errno> {
        let task = argument.task();
        match argument.code() {
            code::REGISTER_BUFFER => argument.call(|args: &mut RegisterBuffer| self.register(task, args)),
            code::GET_BUFFER_INFO => {
                let info = self.buffer_info(task, &argument.peek())?;
                argument.call(|args: &mut BufferInfoOut| {
                    *args = info;
                    Ok(())
                })
            }
            code::PREPARE_COMPRESSIBLE_READ => {
                argument.call(|args: &mut PrepareCompressibleRead| self.prepare_read(task, args))
            }
            code::MARK_COMPRESSIBLE_WRITE => argument.call(|args: &mut MarkCompressibleWrite| {
                // CAST: a descriptor is the same 32 bits.
                self.image(task, args.handle as RawFd).map(|_| ()).inspect_err(|_| {
                    self.log.error("gk20a_mark_compressible_write", MemoryLine::InvalidDmabuf);
                })
            }),
            code::GET_MEMORY_STATE => argument.call(|args: &mut GetMemoryState| {
                Err(if args.reserved == [0; 4] { Errno::NOSYS } else { Errno::INVAL })
            }),
            _ => argument.call(|args: &mut AllocVidmem| Err(alloc_vidmem(args))),
        }
    }

    fn prepare_read(&self, task: &Task<'_>, args: &mut PrepareCompressibleRead) -> Result<(), Errno> {
        let flags = SubmitFlags::from_bits_retain(args.submit_flags);
        let sync_file = flags.contains(SubmitFlags::FENCE_GET.union(SubmitFlags::SYNC_FENCE));
        if sync_file {
            // The kernel first allocates a number for the fence, and frees it later.
            fds::readable(task, |_| "sync_file".to_owned())?;
        }
        // CAST: a descriptor is the same 32 bits.
        self.image(task, args.handle as RawFd)?;
        (args.compbits, args.zbc_color) = (0, 0);
        if sync_file {
            // Without work there is no fence: the descriptor is -1.
            args.fence_id = u32::MAX;
        }
        Ok(())
    }

    fn buffer(&self, task: &Task<'_>, fd: RawFd, function: &str) -> Result<Buffer, Errno> {
        self.state.lock().fds.dma_buf(task, fd).inspect_err(|_| {
            self.log.warning(function, MemoryLine::NotDmabuf { function: function.to_owned(), fd });
        })
    }

    /// Returns the buffer of an image; any other descriptor is EINVAL.
    fn image(&self, task: &Task<'_>, fd: RawFd) -> Result<Buffer, Errno> {
        self.state.lock().fds.dma_buf(task, fd).map_err(|_| Errno::INVAL)
    }

    fn register(&self, task: &Task<'_>, args: &mut RegisterBuffer) -> Result<(), Errno> {
        let function = "nvgpu_gpu_ioctl_register_buffer";
        let refused = |line: MemoryLine| {
            self.log.error(function, line);
            Err(Errno::INVAL)
        };
        if args.metadata_size > REGISTER_BUFFER_METADATA_MAX_SIZE {
            return refused(MemoryLine::MetadataSize);
        }
        if args.comptags_alloc_control > COMPTAGS_ALLOC_REQUIRED {
            return refused(MemoryLine::InvalidComptagsControl);
        }
        let buffer = self.buffer(task, args.dmabuf_fd, function)?;
        let flags = RegisterBufferFlags::from_bits_retain(args.flags);
        let mut metadata = buffer.metadata();
        match &*metadata {
            Some(_) if !flags.contains(RegisterBufferFlags::MODIFY) => {
                return refused(MemoryLine::MetadataWithoutModify {});
            }
            Some(old) if !old.mutable => return refused(MemoryLine::MetadataImmutable),
            _ => {}
        }
        // CAST: at most 256.
        let mut bytes = vec![0; args.metadata_size as usize];
        task.read_bytes(args.metadata_addr, &mut bytes).inspect_err(|_| {
            self.log.error(function, MemoryLine::MetadataUnreadable);
        })?;
        if args.comptags_alloc_control == COMPTAGS_ALLOC_REQUIRED {
            let number = -Errno::NOMEM.raw_os_error();
            self.log.error("nvgpu_handle_comptags_control", MemoryLine::ComptagsRequired { error: number });
            self.log.error(function, MemoryLine::ComptagsControl { error: number });
            return Err(Errno::NOMEM);
        }
        *metadata = Some(Metadata { bytes, mutable: flags.contains(RegisterBufferFlags::MUTABLE) });
        // No input is returned, because no buffer has compression tags.
        args.flags = 0;
        Ok(())
    }

    fn buffer_info(&self, task: &Task<'_>, args: &BufferInfoIn) -> Result<BufferInfoOut, Errno> {
        let buffer = self.buffer(task, args.dmabuf_fd, "nvgpu_gpu_ioctl_get_buffer_info")?;
        let mut info = BufferInfoOut { size: buffer.handle.size(), ..BufferInfoOut::default() };
        let metadata = buffer.metadata();
        if let Some(Metadata { bytes, mutable }) = &*metadata {
            let len = bytes.len().min(args.metadata_size as usize);
            if task.write_bytes(args.metadata_addr, &bytes[..len]) > 0 {
                let function = "nvgpu_gpu_ioctl_get_buffer_info";
                self.log.error(function, MemoryLine::MetadataUnwritable);
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

/// ALLOC_VIDMEM always fails. ENOMEM for a correct request is an assumption. The alignment, where 0 means a page, is
/// compared with the size rounded up to a power of two.
fn alloc_vidmem(args: &AllocVidmem) -> Errno {
    let (size, alignment) = (args.size_or_fd, u64::from(args.alignment));
    let alignment = if alignment == 0 { PAGE } else { alignment };
    let mapped = args.flags & CPU_ACCESS_MASK != 0;
    let protected = args.flags & AllocVidmemFlags::VPR.bits() != 0;
    let rounded = size.checked_next_power_of_two().unwrap_or(u64::MAX);
    let aligned = alignment.is_power_of_two() && alignment <= rounded;
    if mapped || protected || size == 0 || !size.is_multiple_of(PAGE) || !aligned {
        return Errno::INVAL;
    }
    Errno::NOMEM
}
