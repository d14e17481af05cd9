//! Memory, pools and events of other processes.

use core::ffi::c_int;
use std::os::fd::IntoRawFd as _;

use orin_cuda_core::context::current;
use orin_cuda_core::mapped::file_of;
use orin_cuda_core::{Code, Event, Failure, Pool, Result, driver, ipc};

use crate::abi::{Address, Handle, In, Out};
use crate::call::api;

/// `CUipcMemHandle`, `CUipcEventHandle`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct IpcHandle(ipc::Handle);

/// Refuses handles of pools that are no files.
fn files_only(kind: u32, flags: u64) -> Result<()> {
    match (kind, flags) {
        // CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR.
        (1, 0) => Ok(()),
        (_, 0) => Err(Failure::new(Code::NotSupported, format!("handle type {kind:#x} of a pool"))),
        _ => Err(Failure::invalid(format!("flags {flags:#x}"))),
    }
}

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

    export_pool(place: Out<c_int>, pool: Handle, kind: u32, flags: u64)
    [cuMemPoolExportToShareableHandle Legacy] {
        let place = place.need("the place for the file")?;
        let pool = driver()?.objects.get::<Pool>(pool)?;
        files_only(kind, flags)?;
        place.set(ipc::export_pool(&pool)?.into_raw_fd());
        Ok(())
    }

    import_pool(place: Out<Handle>, file: usize, kind: u32, flags: u64) [cuMemPoolImportFromShareableHandle Legacy] {
        let place = place.need("the place for the pool")?;
        files_only(kind, flags)?;
        // CAST: the descriptor is passed as a pointer.
        let file = file_of(c_int::try_from(file).unwrap_or(-1))?;
        place.set(ipc::import_pool(&file)?.handle());
        Ok(())
    }

    export_pointer(place: Out<ipc::Handle>, address: Address) [cuMemPoolExportPointer Legacy] {
        let place = place.need("the place for the data")?;
        place.set(ipc::export_pointer(address)?);
        Ok(())
    }

    import_pointer(place: Out<Address>, pool: Handle, data: In<ipc::Handle>) [cuMemPoolImportPointer Legacy] {
        let place = place.need("the place for the address")?;
        let data = data.read("the data")?;
        let pool = driver()?.objects.get::<Pool>(pool)?;
        place.set(ipc::import_pointer(&pool, &data)?.base);
        Ok(())
    }
}
