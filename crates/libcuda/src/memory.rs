//! Allocation, host memory, and questions about pointers.

use core::ffi::{c_int, c_void};
use core::ptr::NonNull;
use core::sync::atomic::Ordering;
use std::sync::Arc;

use orin_cuda_core::context::current;
use orin_cuda_core::ipc::free_imported;
use orin_cuda_core::memory::{Allocation, Kind};
use orin_cuda_core::{Code, Context, Failure, Gpu, Pool, Result, driver};

use crate::abi::{Address, In, Out};
use crate::call::api;

/// CU_MEMHOSTALLOC_PORTABLE, _DEVICEMAP, _WRITECOMBINED.
const HOST_FLAGS: u32 = 7;
/// CU_MEMHOSTREGISTER_PORTABLE, _DEVICEMAP, _IOMEMORY, _READ_ONLY.
const REGISTER_FLAGS: u32 = 15;
/// CU_MEMHOSTREGISTER_IOMEMORY, _READ_ONLY.
const REGISTER_UNSUPPORTED: u32 = 12;
/// Alignment of the rows of pitched memory, in bytes.
const PITCH: usize = 512;

/// The allocation that contains an address of the GPU, or registered host memory.
pub(crate) fn find(context: &Context, address: Address) -> Option<Arc<Allocation>> {
    find_on(context.gpu, address)
}

fn find_on(gpu: &Gpu, address: Address) -> Option<Arc<Allocation>> {
    let memory = &gpu.memory;
    memory.find(address).or_else(|| memory.find_registered(address))
}

pub(crate) fn known(context: &Context, address: Address) -> Result<Arc<Allocation>> {
    find(context, address)
        .ok_or_else(|| Failure::invalid(format!("{address:#x} is in no memory of this library")))
}

fn allocate_host(place: Out<*mut c_void>, bytes: usize, flags: u32) -> Result<()> {
    let place = place.need("the place for the address")?;
    if flags & !HOST_FLAGS != 0 {
        return Err(Failure::invalid(format!("flags {flags:#x} of host memory")));
    }
    let context = current()?;
    let allocation =
        context.gpu.memory.allocate_unified(context.handle, &context.device, bytes, Kind::Host, flags)?;
    // CAST: an address of this process.
    place.set(allocation.host as *mut c_void);
    Ok(())
}

/// The GPUs that a pointer is looked for on: that of the thread's context, if it has one, then all.
fn asked() -> Result<impl Iterator<Item = &'static Gpu> + Clone> {
    let first = match current() {
        Ok(context) => Some(context.gpu),
        Err(failure) if failure.code == Code::InvalidContext => None,
        Err(failure) => return Err(failure),
    };
    Ok(first.into_iter().chain(&driver()?.gpus))
}

/// Writes a pointer attribute.
fn write_attribute(
    mut gpus: impl Iterator<Item = &'static Gpu>,
    data: Out<u64>,
    attribute: u32,
    pointer: Address,
) -> Result<()> {
    let found = gpus.find_map(|gpu| Some((gpu, find_on(gpu, pointer)?)));
    let Some((gpu, found)) = found else {
        return Err(Failure::invalid(format!("{pointer:#x} is in no memory of this library")));
    };
    let offset = found.offset(pointer);
    let base = pointer - offset;
    match attribute {
        1 => data.set(found.context),
        // CU_MEMORYTYPE_HOST, _DEVICE.
        2 => data.cast::<u32>().set(if matches!(found.kind, Kind::Host | Kind::Registered) { 1 } else { 2 }),
        3 => data.set(found.base + offset),
        4 if found.host != 0 => data.set(found.host as u64 + offset),
        4 => return Err(Failure::invalid("the CPU does not see the memory")),
        6 => data.cast::<u8>().set(found.synchronous.load(Ordering::Relaxed).into()),
        7 | 20 => data.set(found.id),
        8 => data.cast::<u8>().set(found.is_managed().into()),
        // CAST: a machine has few GPUs.
        9 => data.cast::<c_int>().set(gpu.ordinal as c_int),
        // IS_LEGACY_CUDA_IPC_CAPABLE.
        10 => data.cast::<u8>().set((found.kind == Kind::Device).into()),
        15 | 21 => data.cast::<u8>().set(0),
        11 => data.set(base),
        12 | 18 => data.set(found.bytes as u64),
        13 => data.cast::<u8>().set(1),
        14 => data.set(0),
        // CU_MEM_ACCESS_FLAGS_PROT_READWRITE.
        16 => data.cast::<u32>().set(3),
        17 => data.set(found.pool),
        19 => data.set(base),
        5 => return Err(Failure::new(Code::NotSupported, "tokens for other devices")),
        _ => return Err(Failure::invalid(format!("there is no pointer attribute {attribute}"))),
    }
    Ok(())
}

api! {
    information(free: Out<usize>, total: Out<usize>) [cuMemGetInfo_v2 Legacy] {
        let information = current()?.gpu.memory_info()?;
        // CAST: usize has 64 bits.
        free.set(information.0 as usize);
        total.set(information.1 as usize);
        Ok(())
    }

    allocate(place: Out<Address>, bytes: usize) [cuMemAlloc_v2 Legacy] {
        let place = place.need("the place for the address")?;
        if bytes == 0 {
            return Err(Failure::invalid("no bytes are asked for"));
        }
        let context = current()?;
        place.set(context.gpu.memory.allocate(context.handle, &context.device, bytes)?.base);
        Ok(())
    }

    allocate_pitched(place: Out<Address>, pitch: Out<usize>, width: usize, height: usize, element: u32)
    [cuMemAllocPitch_v2 Legacy] {
        let (place, pitch) = (place.need("the place for the address")?, pitch.need("the place for the pitch")?);
        if !matches!(element, 4 | 8 | 16) {
            return Err(Failure::invalid(format!("elements of {element} bytes")));
        }
        let row = width.checked_next_multiple_of(PITCH);
        let bytes = row.and_then(|row| row.checked_mul(height)).filter(|bytes| *bytes > 0);
        let bytes = bytes.ok_or_else(|| Failure::invalid(format!("{height} rows of {width} bytes")))?;
        let context = current()?;
        place.set(context.gpu.memory.allocate(context.handle, &context.device, bytes)?.base);
        pitch.set(bytes / height);
        Ok(())
    }

    free(address: Address) [cuMemFree_v2 Legacy] {
        let context = current()?;
        if address == 0 {
            return Ok(());
        }
        if let Some(done) = context.gpu.memory.free_for_graph(address) {
            context.settle()?;
            return done;
        }
        if let Some(done) = free_imported(&context, address) {
            return done;
        }
        let memory = &context.gpu.memory;
        let pinned = if memory.is_pooled(address) { Kind::Host } else { Kind::Device };
        let kinds = [Kind::Device, Kind::Managed, Kind::Pooled, pinned];
        let allocation = memory.remove(address, &kinds)?;
        // CUDA's free waits for the work that may use the memory.
        context.settle()?;
        // Without its pool, the block is freed.
        if let Ok(pool) = driver()?.objects.get::<Pool>(allocation.pool) {
            pool.free(allocation, &context.legacy);
        }
        Ok(())
    }

    range(base: Out<Address>, bytes: Out<usize>, address: Address) [cuMemGetAddressRange_v2 Legacy] {
        let context = current()?;
        let found = context.gpu.memory.find(address);
        let found = found.ok_or_else(|| Failure::new(Code::NotFound, format!("no memory at {address:#x}")))?;
        base.set(found.base);
        bytes.set(found.bytes);
        Ok(())
    }

    allocate_host_1(place: Out<*mut c_void>, bytes: usize) [cuMemAllocHost_v2 Legacy] {
        allocate_host(place, bytes, 0)
    }

    allocate_host_2(place: Out<*mut c_void>, bytes: usize, flags: u32) [cuMemHostAlloc Legacy] {
        allocate_host(place, bytes, flags)
    }

    free_host(pointer: u64) [cuMemFreeHost Legacy] {
        let context = current()?;
        if pointer == 0 {
            return Ok(());
        }
        let memory = &context.gpu.memory;
        if memory.is_pooled(pointer) {
            return Err(Failure::invalid(format!("{pointer:#x} is memory of a pool")));
        }
        let allocation = memory.remove(pointer, &[Kind::Host])?;
        context.settle()?;
        drop(allocation);
        Ok(())
    }

    allocate_managed(place: Out<Address>, bytes: usize, flags: u32) [cuMemAllocManaged Legacy] {
        let place = place.need("the place for the address")?;
        // CU_MEM_ATTACH_GLOBAL, _HOST.
        if !matches!(flags, 1 | 2) {
            return Err(Failure::invalid(format!("flags {flags} of managed memory")));
        }
        let context = current()?;
        let memory = &context.gpu.memory;
        let allocation =
            memory.allocate_unified(context.handle, &context.device, bytes, Kind::Managed, flags)?;
        place.set(allocation.base);
        Ok(())
    }

    register(pointer: *mut u8, bytes: usize, flags: u32)
    [cuMemHostRegister Legacy] [cuMemHostRegister_v2 Legacy] {
        let pointer = NonNull::new(pointer).ok_or_else(|| Failure::invalid("the address is NULL"))?;
        if flags & !REGISTER_FLAGS != 0 || bytes == 0 {
            return Err(Failure::invalid(format!("{bytes} bytes with the flags {flags:#x}")));
        }
        let context = current()?;
        if flags & REGISTER_UNSUPPORTED != 0 {
            return Err(Failure::new(Code::NotSupported, "registered memory that is read-only or of a device"));
        }
        // SAFETY: the program promised, as `cuda.h` documents, that the memory stays mapped until it is
        // unregistered.
        unsafe { context.gpu.memory.register(context.handle, &context.device, pointer, bytes, flags) }.map(drop)
    }

    unregister(pointer: u64) [cuMemHostUnregister Legacy] {
        let context = current()?;
        if pointer == 0 {
            return Err(Failure::invalid("the address is NULL"));
        }
        let allocation = context.gpu.memory.unregister(pointer)?;
        context.settle()?;
        drop(allocation);
        Ok(())
    }

    device_pointer(place: Out<Address>, pointer: u64, flags: u32) [cuMemHostGetDevicePointer_v2 Legacy] {
        let place = place.need("the place for the address")?;
        if flags != 0 {
            return Err(Failure::invalid("cuMemHostGetDevicePointer takes the flags 0"));
        }
        let context = current()?;
        let found = find(&context, pointer).filter(|found| found.host != 0);
        let found = found.ok_or_else(|| Failure::invalid(format!("no host memory of this library at {pointer:#x}")))?;
        place.set(found.base + found.offset(pointer));
        Ok(())
    }

    host_flags(flags: Out<u32>, pointer: u64) [cuMemHostGetFlags Legacy] {
        let flags = flags.need("the place for the flags")?;
        let context = current()?;
        let found = find(&context, pointer).filter(|found| matches!(found.kind, Kind::Host | Kind::Registered));
        let found = found.ok_or_else(|| Failure::invalid(format!("no host memory of this library at {pointer:#x}")))?;
        flags.set(found.flags | 2);
        Ok(())
    }

    pointer_attribute(data: Out<u64>, attribute: u32, pointer: Address) [cuPointerGetAttribute Legacy] {
        let data = data.need("the place for the attribute")?;
        write_attribute(asked()?, data, attribute, pointer)
    }

    pointer_attributes(count: u32, attributes: In<u32>, places: In<Out<u64>>, pointer: Address)
    [cuPointerGetAttributes Legacy] {
        let attributes = attributes.each(count as usize, "the list of attributes");
        let places = places.each(count as usize, "the list of places");
        let gpus = asked()?;
        for (attribute, place) in attributes.zip(places) {
            let (attribute, place) = (attribute?, place?);
            // Of a pointer that is unknown, every attribute is 0.
            if write_attribute(gpus.clone(), place, attribute, pointer).is_err() {
                match attribute {
                    // CU_DEVICE_INVALID
                    9 => place.cast::<c_int>().set(-2),
                    2 | 16 => place.cast::<u32>().set(0),
                    6 | 8 | 10 | 13 | 15 => place.cast::<u8>().set(0),
                    1..=22 => place.set(0),
                    _ => return Err(Failure::invalid(format!("there is no pointer attribute {attribute}"))),
                }
            }
        }
        Ok(())
    }

    set_pointer_attribute(value: In<u32>, attribute: u32, pointer: Address) [cuPointerSetAttribute Legacy] {
        let value = value.read("the attribute")?;
        let found = known(&*current()?, pointer)?;
        // CU_POINTER_ATTRIBUTE_SYNC_MEMOPS.
        if attribute != 6 {
            return Err(Failure::invalid(format!("attribute {attribute} cannot be set")));
        }
        found.synchronous.store(value != 0, Ordering::Relaxed);
        Ok(())
    }

}
