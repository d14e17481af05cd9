//! Memory and events of other processes.

use orin_cuda_core::context::current;
use orin_cuda_core::{Event, Failure, driver, ipc};

use crate::abi::{Address, Handle, Out};
use crate::call::api;

/// `CUipcMemHandle`, `CUipcEventHandle`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct IpcHandle(ipc::Handle);

api! {
    memory_handle(place: Out<ipc::Handle>, address: Address) [cuIpcGetMemHandle Legacy] {
        let place = place.need("the place for the handle")?;
        place.set(ipc::export_memory(&*current()?, address)?);
        Ok(())
    }

    open_memory(place: Out<Address>, handle: IpcHandle, flags: u32)
    [cuIpcOpenMemHandle Legacy] [cuIpcOpenMemHandle_v2 Legacy] {
        let place = place.need("the place for the address")?;
        // CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS.
        if flags != 1 {
            return Err(Failure::invalid(format!("flags {flags:#x} for memory of another process")));
        }
        place.set(ipc::open_memory(&*current()?, &handle.0)?.base);
        Ok(())
    }

    close_memory(address: Address) [cuIpcCloseMemHandle Legacy] {
        ipc::close_memory(&*current()?, address)
    }

    event_handle(place: Out<ipc::Handle>, event: Handle) [cuIpcGetEventHandle Legacy] {
        let place = place.need("the place for the handle")?;
        let context = current()?;
        let event = driver()?.objects.get::<Event>(event)?;
        place.set(ipc::export_event(&context, &event)?);
        Ok(())
    }

    open_event(place: Out<Handle>, handle: IpcHandle) [cuIpcOpenEventHandle Legacy] {
        let place = place.need("the place for the event")?;
        place.set(ipc::open_event(&*current()?, &handle.0)?.handle());
        Ok(())
    }
}
