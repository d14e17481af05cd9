//! The requests of `/dev/nvmap`, by code (`nvmap_dev.c`, `nvmap_ioctl.c`).

use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};

use nvgpu_sys::nvmap::{
    self as abi, AllocHandle, AvailableHeaps, CacheOp, CacheOp64, CacheOpList, CreateHandle, CreateHandle64,
    CreateHandleFromVa, DuplicateHandle, HandleParameters, HeapSize, Heaps, QueryHeapParams, RwHandle, code,
};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use super::super::argument::{Argument, Code};
use super::super::fds::Object;
use super::super::log::{Level, Log};
use super::super::process::ProcessId;
use super::super::state::State;
use super::super::{Kernel, user};
use super::{Buffer, maintenance, refuse_unallocated, transfer};

/// Highest request number.
const LAST: u32 = 107;
/// The carveouts that GET_AVAILABLE_HEAPS of the board lists.
const CARVEOUTS: Heaps = Heaps::VPR.union(Heaps::FSI);
/// Requests of the real driver that have no handler here.
const NOT_MODELLED: &[u32] = &[
    code::FROM_IVC_ID,
    code::GET_IVC_ID,
    code::GET_IVM_HEAPS,
    code::GUP_TEST,
    code::ALLOC_IVM,
    code::VPR_FLOOR_SIZE,
    code::GET_SCIIPCID,
    code::HANDLE_FROM_SCIIPCID,
    code::GET_FD_FOR_RANGE_FROM_LIST,
    code::WRITE_32,
    code::READ_32,
    code::CACHE_32,
];
/// FROM_ID and GET_ID, which the driver refuses by name.
const DEPRECATED: [u32; 2] = [code::FROM_ID, code::GET_ID];

/// A new descriptor of a dma-buf.
fn export(buffer: &Buffer) -> Result<OwnedFd, Errno> {
    if buffer.read_only {
        let path = format!("/proc/self/fd/{}", buffer.handle.file.as_raw_fd());
        return rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty());
    }
    rustix::io::fcntl_dupfd_cloexec(buffer.handle.file.as_fd(), 0)
}

/// GET_FD: the handle number is in the second word, the descriptor comes back in the first.
fn get_fd(state: &mut State, log: &Log, args: &mut CreateHandle) -> Result<(), Errno> {
    let Ok(buffer) = state.nvmap.lookup(args.handle).cloned() else {
        // The kernel takes an unknown number for a descriptor; EINVAL even for a dma-buf.
        // CAST: a descriptor is the same 32 bits.
        let fd = args.handle as RawFd;
        return match state.fds.get(fd) {
            Some(_) => Err(Errno::INVAL),
            None => Err(state.fds.missing(fd, Errno::INVAL)),
        };
    };
    let Ok(descriptor) = export(&buffer) else {
        let uid = rustix::process::getuid().as_raw();
        log.nvmap(Level::Error, "nvmap_install_fd", format_args!("NvMap: FD limit is crossed for uid {uid}"));
        return Err(Errno::FAULT);
    };
    // CAST: a descriptor is never negative.
    args.size_or_fd = state.fds.insert(descriptor, Object::DmaBuf(buffer)) as u32;
    Ok(())
}

/// FROM_FD: a new number for the buffer of a descriptor.
fn from_fd(state: &mut State, log: &Log, args: &mut CreateHandle) -> Result<(), Errno> {
    // CAST: a descriptor is the same 32 bits.
    let buffer = state.fds.dma_buf(args.size_or_fd as RawFd)?;
    refuse_unallocated(log, &buffer)?;
    args.handle = state.nvmap.enter(buffer);
    Ok(())
}

impl Kernel {
    pub(in crate::kernel) fn nvmap_ioctl(
        &self,
        client: ProcessId,
        code: Code,
        address: u64,
    ) -> Result<i32, Errno> {
        if code.family != abi::FAMILY || code.number > LAST {
            return Err(Errno::NOTTY);
        }
        if code.code == code::FREE {
            // CAST: the argument is the 32-bit number itself.
            self.nvmap_free(client, address as u32);
            return Ok(0);
        }
        let log = &self.log;
        let Some(handler) = handler(code.code) else {
            if DEPRECATED.contains(&code.code) {
                log.nvmap(
                    Level::Info,
                    "nvmap_ioctl",
                    format_args!(
                        "NVMAP_IOC_GET_ID/FROM_ID pair is deprecated. Use the pair NVMAP_IOC_GET_FD/FROM_FD."
                    ),
                );
                return Err(Errno::NOTTY);
            }
            let known = NOT_MODELLED.contains(&code.code);
            if !known {
                log.nvmap(Level::Error, "nvmap_ioctl", format_args!("Unknown NVMAP_IOC = {:#x}", code.code));
            }
            return Err(self.unhandled(code, NOT_MODELLED));
        };
        // These are declared as output alone, yet the handlers read them.
        let input = [code::GET_HEAP_SIZE, code::PARAMETERS, code::QUERY_HEAP_PARAMS];
        let mut argument = if input.contains(&code.code) {
            Argument::copy_in_always(code, address)?
        } else {
            Argument::copy_in(code, address)?
        };
        let mut state = self.lock();
        state.nvmap.activate(client);
        let result = handler(&mut state, log, &mut argument);
        if matches!(code.code, code::READ | code::WRITE) && matches!(result, Ok(()) | Err(Errno::INTR)) {
            // The count is stored by itself, whatever the direction says and the result is.
            argument.store(address);
        }
        result?;
        if argument.copy_out() == 0 {
            return Ok(0);
        }
        self.undo(&mut state, &mut argument);
        Err(if code.code == code::GET_AVAILABLE_HEAPS { Errno::INVAL } else { Errno::FAULT })
    }

    /// After a failed copy-out a new handle is destroyed again.
    fn undo(&self, state: &mut State, argument: &mut Argument) {
        let id = match argument.code() {
            code::CREATE | code::FROM_FD => argument.peek::<CreateHandle>().handle,
            // CAST: the low half is the number.
            code::CREATE_64 => argument.peek::<CreateHandle64>().size_or_handle as u32,
            // CAST: the low half is the number.
            code::FROM_VA => argument.peek::<CreateHandleFromVa>().size_or_handle as u32,
            code::DUP_HANDLE => argument.peek::<DuplicateHandle>().dup_handle,
            _ => return,
        };
        state.nvmap.forget(id);
    }

    /// FREE: drops the number; a dma-buf descriptor of the same number is closed.
    fn nvmap_free(&self, client: ProcessId, id: u32) {
        let mut state = self.lock();
        state.nvmap.activate(client);
        let buffer = state.nvmap.forget(id);
        // CAST: a descriptor is the same 32 bits.
        let fd = id as RawFd;
        let closed = match state.fds.get(fd) {
            Some(Object::DmaBuf(_)) => state.fds.remove(fd),
            _ => None,
        };
        drop(state);
        drop((buffer, closed));
    }
}

type Handler = fn(&mut State, &Log, &mut Argument) -> Result<(), Errno>;

/// The handler of a request.
fn handler(code: u32) -> Option<Handler> {
    Some(match code {
        code::CREATE => |state, _, argument| {
            argument.call(|args: &mut CreateHandle| {
                args.handle = state.nvmap.create(u64::from(args.size_or_fd))?;
                Ok(())
            })
        },
        code::CREATE_64 => |state, _, argument| {
            argument.call(|args: &mut CreateHandle64| {
                let id = state.nvmap.create(args.size_or_handle)?;
                // Only the low half is written.
                args.size_or_handle = args.size_or_handle & !u64::from(u32::MAX) | u64::from(id);
                Ok(())
            })
        },
        code::ALLOC => {
            |state, log, argument| argument.call(|args: &mut AllocHandle| state.nvmap.alloc(log, args))
        }
        code::GET_FD => {
            |state, log, argument| argument.call(|args: &mut CreateHandle| get_fd(state, log, args))
        }
        code::FROM_FD => {
            |state, log, argument| argument.call(|args: &mut CreateHandle| from_fd(state, log, args))
        }
        code::DUP_HANDLE => |state, log, argument| {
            argument.call(|args: &mut DuplicateHandle| state.nvmap.duplicate(log, args))
        },
        code::READ => |state, log, argument| {
            argument.call(|args: &mut RwHandle| transfer::read_write(state, log, true, args))
        },
        code::WRITE => |state, log, argument| {
            argument.call(|args: &mut RwHandle| transfer::read_write(state, log, false, args))
        },
        code::CACHE_LIST => {
            |state, _, argument| argument.call(|args: &mut CacheOpList| state.nvmap.cache_list(args))
        }
        code::CACHE => |state, _, argument| {
            argument.call(|args: &mut CacheOp| {
                maintenance::cache(state, args.addr, args.handle, u64::from(args.len), args.op)
            })
        },
        code::CACHE_64 => |state, _, argument| {
            argument.call(|args: &mut CacheOp64| {
                maintenance::cache(state, args.addr, args.handle, args.len, args.op)
            })
        },
        code::FROM_VA => |state, log, argument| {
            argument.call(|args: &mut CreateHandleFromVa| state.nvmap.import(log, args))
        },
        code::SET_TAG_LABEL => |_, _, argument| {
            argument.call(|args: &mut abi::SetTagLabel| {
                // CAST: at most 31.
                let mut label = [0; 31];
                user::read_bytes(args.addr, &mut label[..args.len.min(31) as usize])
            })
        },
        code::GET_AVAILABLE_HEAPS => |_, _, argument| {
            argument.call(|args: &mut AvailableHeaps| {
                args.heaps = u64::from(CARVEOUTS.bits());
                Ok(())
            })
        },
        code::GET_HEAP_SIZE => {
            |state, _, argument| argument.call(|args: &mut HeapSize| state.nvmap.heap_size(args))
        }
        code::PARAMETERS => {
            |state, _, argument| argument.call(|args: &mut HandleParameters| state.nvmap.parameters(args))
        }
        code::QUERY_HEAP_PARAMS => {
            |state, _, argument| argument.call(|args: &mut QueryHeapParams| state.nvmap.heap_params(args))
        }
        _ => return None,
    })
}
