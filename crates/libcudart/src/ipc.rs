//! Memory and events of other processes.

use core::ffi::c_void;

use crate::call::{api, write};
use crate::driver::symbol;

/// `cudaIpcMemHandle_t`, `cudaIpcEventHandle_t`: 64 bytes, which calls pass by value.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct IpcHandle([u64; 8]);

type OpenMemory = unsafe extern "C" fn(*mut usize, IpcHandle, u32) -> u32;
type OpenEvent = unsafe extern "C" fn(*mut usize, IpcHandle) -> u32;

api! {
    open_memory(place: *mut usize, handle: IpcHandle, flags: u32) [cudaIpcOpenMemHandle Legacy] {
        write(place, 0)?;
        let open = |address| {
            // SAFETY: the driver's function has this type. The place was written to above.
            unsafe { core::mem::transmute::<*mut c_void, OpenMemory>(address)(place, handle, flags) }
        };
        symbol!(cuIpcOpenMemHandle_v2).call_as(true, open)
    }

    open_event(place: *mut usize, handle: IpcHandle) [cudaIpcOpenEventHandle Legacy] {
        write(place, 0)?;
        let open = |address| {
            // SAFETY: as above.
            unsafe { core::mem::transmute::<*mut c_void, OpenEvent>(address)(place, handle) }
        };
        symbol!(cuIpcOpenEventHandle).call_as(true, open)
    }
}
