//! The requests of `/dev/nvmap`, by code (`nvmap_dev.c`, `nvmap_ioctl.c`).

use std::os::fd::RawFd;
use std::sync::Arc;

use gpu_log::{Level, MemoryLine, NoteLine};
use nvgpu_sys::nvmap::{
    self as abi, AllocHandle, AvailableHeaps, CacheOp, CacheOp32, CacheOp64, CacheOpList, CreateHandle,
    CreateHandle64, CreateHandleFromVa, DuplicateHandle, FdForRangeFromList, HandleParameters, HeapSize,
    Heaps, QueryHeapParams, RwHandle, RwHandle32, code,
};
use rustix::fs::OFlags;
use rustix::io::Errno;

use super::super::Kernel;
use super::super::State;
use super::super::argument::{Argument, Code};
use super::super::log::Log;
use super::super::process::ProcessId;
use super::super::process::fds::{Fresh, Object};
use super::super::process::task::Task;
use super::{Buffer, Exporter, maintenance, range, refuse_unallocated, transfer};
use crate::procfs;

/// The carveouts that GET_AVAILABLE_HEAPS of the board lists.
const CARVEOUTS: Heaps = Heaps::VPR.union(Heaps::FSI);
/// Requests of the real driver that are not modelled.
const NOT_MODELLED: &[u32] = &[
    code::FROM_IVC_ID,
    code::GET_IVC_ID,
    code::GET_IVM_HEAPS,
    code::GUP_TEST,
    code::ALLOC_IVM,
    code::VPR_FLOOR_SIZE,
    code::GET_SCIIPCID,
    code::HANDLE_FROM_SCIIPCID,
];

/// The line of a request that the driver refuses explicitly; `compat` is whether it serves 32-bit processes.
fn deprecated(request: u32, compat: bool) -> Option<NoteLine> {
    match request {
        code::FROM_ID | code::GET_ID => Some(NoteLine::DeprecatedId {}),
        code::READ_32 | code::WRITE_32 if !compat => Some(NoteLine::DeprecatedTransfer {}),
        code::CACHE_32 if !compat => Some(NoteLine::DeprecatedCache {}),
        _ => None,
    }
}

/// End of a process's address range: 48 bits, as configured in L4T's arm64 kernels.
const USER_END: u64 = 1 << 48;

/// The first check of an address: whether it is a user-space address. Whether memory is mapped there shows on access.
fn check_address(code: Code, address: u64) -> Result<(), Errno> {
    // CAST: at most 16 KiB.
    let end = address.checked_add(code.bytes as u64);
    if code.has_direction() && end.is_none_or(|end| end > USER_END) { Err(Errno::FAULT) } else { Ok(()) }
}

/// Creates a descriptor of a dma-buf: an open file of its own, so that the table can detect when it is closed.
pub(in crate::kernel) fn export(task: &Task<'_>, buffer: &Buffer) -> Result<Fresh, Errno> {
    let file = buffer.handle.file()?;
    let access = if buffer.read_only { OFlags::RDONLY } else { OFlags::RDWR };
    let descriptor = procfs::reopen(&**file, access)?;
    Ok(Fresh::locked(task, descriptor, Arc::clone(file)))
}

/// GET_FD: the second word contains the handle number, the first one returns the descriptor.
fn get_fd(task: &Task<'_>, state: &mut State, log: &Log, args: &mut CreateHandle) -> Result<(), Errno> {
    let Ok(buffer) = state.nvmap.lookup(args.handle).cloned() else {
        // The kernel treats an unknown number as a descriptor and returns EINVAL even for a dma-buf. CAST: a descriptor
        // is the same 32 bits.
        let fd = args.handle as RawFd;
        return match state.fds.get(task, fd) {
            Some(_) => Err(Errno::INVAL),
            None => Err(state.fds.missing(task, fd, Errno::INVAL)),
        };
    };
    let Ok(descriptor) = export(task, &buffer) else {
        report_full_table(log);
        return Err(Errno::FAULT);
    };
    let number = state.fds.insert(task, descriptor, Object::DmaBuf(buffer)).map_err(|_| {
        report_full_table(log);
        Errno::FAULT
    })?;
    // CAST: a descriptor is never negative.
    args.size_or_fd = number as u32;
    Ok(())
}

/// Prints the line for a full descriptor table.
pub(super) fn report_full_table(log: &Log) {
    let uid = rustix::process::getuid().as_raw();
    log.nvmap(Level::Error, "__nvmap_dmabuf_fd", MemoryLine::FdLimit { uid });
}

/// FROM_FD: assigns a new number to the buffer of a descriptor. For a dma-buf of another exporter, the field returns a
/// duplicate of the descriptor instead (`nvmap_ioctl.c`, `nvmap_ioctl_create_from_fd`;
/// `nvmap_dmabuf.c`, `nvmap_dmabuf_duplicate_gen_fd`).
fn from_fd(task: &Task<'_>, state: &mut State, log: &Log, args: &mut CreateHandle) -> Result<(), Errno> {
    // CAST: a descriptor is the same 32 bits.
    let fd = args.size_or_fd as RawFd;
    let buffer = state.fds.dma_buf(task, fd)?;
    if buffer.handle.exporter() != Exporter::Nvmap {
        args.handle = state.fds.duplicate_foreign(task, fd)?.cast_unsigned();
        return Ok(());
    }
    refuse_unallocated(task, log, &buffer)?;
    args.handle = state.nvmap.enter(buffer);
    Ok(())
}

impl Kernel {
    pub(in crate::kernel) fn nvmap_ioctl(
        &self,
        task: &Task<'_>,
        client: ProcessId,
        code: Code,
        address: u64,
    ) -> Result<i32, Errno> {
        if code.family != abi::FAMILY || code.number > self.config.release.last(abi::ALL) {
            return Err(Errno::NOTTY);
        }
        if code.code == code::FREE {
            // CAST: the argument is the 32-bit number itself.
            self.nvmap_free(task, client, address as u32);
            return Ok(0);
        }
        check_address(code, address)?;
        let log = &self.log;
        if let Some(line) = deprecated(code.code, self.facts().compat) {
            log.nvmap(Level::Warning, "nvmap_ioctl", line);
            return Err(Errno::NOTTY);
        }
        if [code::READ, code::WRITE, code::READ_32, code::WRITE_32].contains(&code.code) {
            return self.nvmap_transfer(task, client, code, address);
        }
        let Some(handler) = handler(code.code).filter(|_| self.has(abi::ALL, code)) else {
            let known = NOT_MODELLED.contains(&code.code);
            if !known {
                log.nvmap(Level::Warning, "nvmap_ioctl", MemoryLine::UnknownRequest { request: code.code });
            }
            return Err(self.unhandled(code, NOT_MODELLED));
        };
        // These are declared as output only, but the handlers read them.
        let input = [
            code::GET_HEAP_SIZE,
            code::PARAMETERS,
            code::QUERY_HEAP_PARAMS,
            code::QUERY_HEAP_PARAMS_NUMA,
            code::GET_FD_FOR_RANGE_FROM_LIST,
        ];
        let mut argument = if input.contains(&code.code) {
            Argument::copy_in_always(task, code, address)?
        } else {
            Argument::copy_in(task, code, address)?
        };
        let mut state = self.state.lock();
        state.nvmap.activate(client);
        handler(task, &mut state, log, &mut argument)?;
        if argument.copy_out() == 0 {
            return Ok(0);
        }
        self.undo(&mut state, &mut argument);
        Err(match code.code {
            code::GET_AVAILABLE_HEAPS => Errno::INVAL,
            code::PARAMETERS => Errno::NODEV,
            _ => Errno::FAULT,
        })
    }

    /// READ and WRITE, also in the layout of 32-bit processes. The number of copied bytes is stored separately,
    /// whatever the direction of the code, and also after an error that follows the checks of the handle.
    fn nvmap_transfer(
        &self,
        task: &Task<'_>,
        client: ProcessId,
        code: Code,
        address: u64,
    ) -> Result<i32, Errno> {
        let argument = Argument::copy_in(task, code, address)?;
        let short = matches!(code.code, code::READ_32 | code::WRITE_32);
        let args = if short { widened(&argument.peek()) } else { argument.peek() };
        let mut state = self.state.lock();
        state.nvmap.activate(client);
        let read = matches!(code.code, code::READ | code::READ_32);
        let (copied, result) = transfer::read_write(task, &state, &self.log, read, &args)?;
        // A failure to store the count is not reported.
        let _ = if short {
            // CAST: a 32-bit process has no longer buffers.
            let place = address + core::mem::offset_of!(RwHandle32, count) as u64;
            task.write_bytes(place, &(copied as u32).to_ne_bytes())
        } else {
            let place = address + core::mem::offset_of!(RwHandle, count) as u64;
            task.write_bytes(place, &copied.to_ne_bytes())
        };
        result.map(|()| 0)
    }

    /// Destroys a new handle or descriptor after a failed copy-out.
    fn undo(&self, state: &mut State, argument: &mut Argument<'_>) {
        let task = argument.task();
        let fd = match argument.code() {
            // CAST: a descriptor is the same 32 bits.
            code::GET_FD => Some(argument.peek::<CreateHandle>().size_or_fd as RawFd),
            code::GET_FD_FOR_RANGE_FROM_LIST => Some(argument.peek::<FdForRangeFromList>().fd),
            _ => None,
        };
        if let Some(fd) = fd {
            state.fds.remove(task, fd);
            return;
        }
        let id = match argument.code() {
            code::CREATE | code::FROM_FD => argument.peek::<CreateHandle>().handle,
            // CAST: the low half is the number.
            code::CREATE_64 => argument.peek::<CreateHandle64>().size_or_handle as u32,
            // CAST: the low half is the number.
            code::FROM_VA => argument.peek::<CreateHandleFromVa>().size_or_handle as u32,
            code::DUP_HANDLE => argument.peek::<DuplicateHandle>().dup_handle,
            _ => return,
        };
        if state.nvmap.forget(id).is_none() {
            // FROM_FD has returned a descriptor.
            state.fds.remove(task, id.cast_signed());
        }
    }

    /// FREE: frees the number. If a dma-buf descriptor has the same number, it is closed.
    fn nvmap_free(&self, task: &Task<'_>, client: ProcessId, id: u32) {
        if id == 0 {
            return;
        }
        let mut state = self.state.lock();
        state.nvmap.activate(client);
        let buffer = state.nvmap.forget(id);
        // CAST: a descriptor is the same 32 bits.
        let fd = id as RawFd;
        let closed = state.fds.dma_buf(task, fd).ok().and_then(|_| state.fds.remove(task, fd));
        drop(state);
        drop((buffer, closed));
    }
}

/// Converts the argument of a 32-bit process.
fn widened(args: &RwHandle32) -> RwHandle {
    RwHandle {
        addr: u64::from(args.addr),
        handle: args.handle,
        offset: u64::from(args.offset),
        elem_size: u64::from(args.elem_size),
        hmem_stride: u64::from(args.hmem_stride),
        user_stride: u64::from(args.user_stride),
        count: u64::from(args.count),
        ..RwHandle::default()
    }
}

type Handler = fn(&Task<'_>, &mut State, &Log, &mut Argument<'_>) -> Result<(), Errno>;

/// The handler of a request.
fn handler(code: u32) -> Option<Handler> {
    Some(match code {
        code::CREATE => |_, state, _, argument| {
            argument.call(|args: &mut CreateHandle| {
                args.handle = state.nvmap.create(u64::from(args.size_or_fd))?;
                Ok(())
            })
        },
        code::CREATE_64 => |_, state, _, argument| {
            argument.call(|args: &mut CreateHandle64| {
                let id = state.nvmap.create(args.size_or_handle)?;
                // The kernel writes only the low half.
                args.size_or_handle = args.size_or_handle & !u64::from(u32::MAX) | u64::from(id);
                Ok(())
            })
        },
        // The form of R36 is the beginning of R39's, whose address matters only to heaps that the Orin lacks.
        code::ALLOC | code::ALLOC_R39 => |task, state, log, argument| {
            argument.call(|args: &mut AllocHandle| state.nvmap.alloc(task, log, args))
        },
        code::GET_FD => |task, state, log, argument| {
            argument.call(|args: &mut CreateHandle| get_fd(task, state, log, args))
        },
        code::FROM_FD => |task, state, log, argument| {
            argument.call(|args: &mut CreateHandle| from_fd(task, state, log, args))
        },
        code::DUP_HANDLE => |task, state, log, argument| {
            argument.call(|args: &mut DuplicateHandle| state.nvmap.duplicate(task, log, args))
        },
        code::CACHE_LIST => |task, state, log, argument| {
            argument.call(|args: &mut CacheOpList| state.nvmap.cache_list(task, log, args))
        },
        code::CACHE_32 => |task, state, _, argument| {
            argument.call(|args: &mut CacheOp32| {
                maintenance::cache(
                    task,
                    state,
                    u64::from(args.addr),
                    args.handle,
                    u64::from(args.len),
                    args.op,
                )
            })
        },
        code::CACHE => |task, state, _, argument| {
            argument.call(|args: &mut CacheOp| {
                maintenance::cache(task, state, args.addr, args.handle, u64::from(args.len), args.op)
            })
        },
        code::CACHE_64 => |task, state, _, argument| {
            argument.call(|args: &mut CacheOp64| {
                maintenance::cache(task, state, args.addr, args.handle, args.len, args.op)
            })
        },
        code::FROM_VA => |task, state, log, argument| {
            let devices = state.register_mappings(task.process);
            argument.call(|args: &mut CreateHandleFromVa| state.nvmap.import(task, log, &devices, args))
        },
        code::GET_FD_FOR_RANGE_FROM_LIST => |task, state, log, argument| {
            argument.call(|args: &mut FdForRangeFromList| range::get_fd(task, state, log, args))
        },
        code::SET_TAG_LABEL => |task, state, _, argument| {
            argument.call(|args: &mut abi::SetTagLabel| {
                // CAST: at most 31.
                let mut label = [0; 31];
                let label = &mut label[..args.len.min(31) as usize];
                task.read_bytes(args.addr, label)?;
                state.nvmap.label_tag(args.tag, label);
                Ok(())
            })
        },
        code::GET_AVAILABLE_HEAPS => |_, _, _, argument| {
            argument.call(|args: &mut AvailableHeaps| {
                args.heaps = u64::from(CARVEOUTS.bits());
                Ok(())
            })
        },
        code::GET_HEAP_SIZE => {
            |_, state, _, argument| argument.call(|args: &mut HeapSize| state.nvmap.heap_size(args))
        }
        code::PARAMETERS => {
            |_, state, _, argument| argument.call(|args: &mut HandleParameters| state.nvmap.parameters(args))
        }
        code::QUERY_HEAP_PARAMS => |task, state, log, argument| {
            argument.call(|args: &mut QueryHeapParams| state.nvmap.heap_params(task, log, args))
        },
        code::QUERY_HEAP_PARAMS_NUMA => |task, state, log, argument| {
            argument.call(|args: &mut QueryHeapParams| {
                let node = args.padding1.cast_signed();
                if node != 0 {
                    log.nvmap(Level::Error, "nvmap_query_heap", MemoryLine::NumaQuery { node });
                    return Err(Errno::INVAL);
                }
                state.nvmap.heap_params(task, log, args)
            })
        },
        _ => return None,
    })
}
