//! Values of a record that differ from board to board: where handle numbers are, and which answers cannot be compared.

use core::mem::offset_of;

use nvgpu_sys::nvmap::{
    AllocHandle, CacheOp, CacheOp32, CacheOp64, CreateHandle, DuplicateHandle, HandleParameters, RwHandle,
    code,
};
use nvgpu_sys::{channel, ctrl, host1x, sync_file};

/// Offset of the handle that a request takes, in its argument.
pub(super) fn taken(request: u32) -> Option<usize> {
    Some(match request {
        code::ALLOC | code::ALLOC_R39 => offset_of!(AllocHandle, handle),
        code::GET_FD => offset_of!(CreateHandle, handle),
        code::READ | code::WRITE => offset_of!(RwHandle, handle),
        code::DUP_HANDLE => offset_of!(DuplicateHandle, handle),
        code::PARAMETERS => offset_of!(HandleParameters, handle),
        code::CACHE => offset_of!(CacheOp, handle),
        code::CACHE_64 => offset_of!(CacheOp64, handle),
        code::CACHE_32 => offset_of!(CacheOp32, handle),
        _ => return None,
    })
}

/// Offset of the handle that a request returns, in its argument.
pub(super) fn returned(request: u32) -> Option<usize> {
    match request {
        code::CREATE | code::FROM_FD => Some(offset_of!(CreateHandle, handle)),
        code::CREATE_64 => Some(0),
        code::DUP_HANDLE => Some(offset_of!(DuplicateHandle, dup_handle)),
        _ => None,
    }
}

/// Whether an answer depends on the clock, on the work of the GPU or on earlier work of the machine.
pub(super) fn is_volatile(request: u32) -> bool {
    const VOLATILE: [u32; 13] = [
        ctrl::code::GET_GPU_TIME,
        ctrl::code::GET_CPU_TIME_CORRELATION_INFO,
        ctrl::code::CLK_GET_INFO,
        channel::code::WAIT,
        channel::code::SUBMIT_GPFIFO,
        channel::code::GET_USER_SYNCPOINT,
        host1x::code::CREATE_FENCE,
        host1x::code::TRIGGER_POLLFD,
        host1x::code::FENCE_EXTRACT,
        sync_file::code::FILE_INFO,
        code::READ,
        code::QUERY_HEAP_PARAMS,
        code::QUERY_HEAP_PARAMS_NUMA,
    ];
    VOLATILE.contains(&request)
}

/// Whether the replay skips a request because it waits for work of the GPU, which a record does not contain.
pub(super) fn is_left_out(request: u32) -> bool {
    const LEFT_OUT: [u32; 4] = [
        channel::code::WAIT,
        channel::code::SUBMIT_GPFIFO,
        host1x::code::CREATE_FENCE,
        host1x::code::TRIGGER_POLLFD,
    ];
    LEFT_OUT.contains(&request)
}
