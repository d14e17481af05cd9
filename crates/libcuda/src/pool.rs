//! Stream-ordered allocation.

use std::sync::Arc;

use orin_cuda_core::ipc::free_imported;
use orin_cuda_core::memory::Kind;
use orin_cuda_core::pool::{Sharing, check_place, choose, current_of, default_of};
use orin_cuda_core::{Code, Failure, GraphMemory, Pool, Result, Work, driver};

use crate::abi::{Address, Handle, In, Ordinal, Out};
use crate::call::{Order, api};
use crate::node::release;
use crate::stream::stream_of;

/// `CUmemPoolProps` up to the location: allocation type, handle types, location type, location id.
type Properties = [u32; 4];

fn pool_of(handle: Handle) -> Result<Arc<Pool>> {
    driver()?.objects.get::<Pool>(handle)
}

fn allocate(
    order: Order,
    place: Out<Address>,
    bytes: usize,
    pool: Option<Handle>,
    stream: Handle,
) -> Result<()> {
    let place = place.need("the place for the address")?;
    let (context, stream) = stream_of(order, stream)?;
    let pool = match pool {
        Some(handle) => pool_of(handle)?,
        None => current_of(context.gpu)?,
    };
    if bytes == 0 {
        // No memory, which may be freed.
        place.set(0);
        return Ok(());
    }
    if stream.captured()?.is_some() {
        // The node allocates for each launch of the graph.
        let memory = GraphMemory::create(context.gpu, context.handle, bytes, false)?;
        let address = memory.address();
        stream.run(&context, Work::Allocate(memory))?;
        place.set(address);
        return Ok(());
    }
    place.set(pool.allocate(&context, &stream, bytes)?.base);
    Ok(())
}

api! {
    allocate_async(order @ place: Out<Address>, bytes: usize, stream: Handle)
    [cuMemAllocAsync Legacy] [cuMemAllocAsync_ptsz PerThread] {
        allocate(order, place, bytes, None, stream)
    }

    allocate_from(order @ place: Out<Address>, bytes: usize, pool: Handle, stream: Handle)
    [cuMemAllocFromPoolAsync Legacy] [cuMemAllocFromPoolAsync_ptsz PerThread] {
        allocate(order, place, bytes, Some(pool), stream)
    }

    free_async(order @ address: Address, stream: Handle) [cuMemFreeAsync Legacy] [cuMemFreeAsync_ptsz PerThread] {
        let (context, stream) = stream_of(order, stream)?;
        if address == 0 {
            return Ok(());
        }
        if stream.captured()?.is_some() {
            return stream.run(&context, release(address)?);
        }
        if let Some(done) = context.gpu.memory.free_for_graph(address) {
            return done;
        }
        if let Some(done) = free_imported(&context, address) {
            return done;
        }
        let allocation = context.gpu.memory.remove(address, &[Kind::Pooled, Kind::Device])?;
        // Memory of cuMemAlloc, or of a pool that is gone: the buffer waits for all queues by itself.
        if let Ok(pool) = pool_of(allocation.pool) {
            pool.free(allocation, &stream);
        }
        Ok(())
    }

    create(place: Out<Handle>, properties: In<Properties>) [cuMemPoolCreate Legacy] {
        let place = place.need("the place for the pool")?;
        let [kind, handles, location, device] = properties.read("the properties")?;
        let sharing = if check_place(kind, handles)? { Sharing::Exported } else { Sharing::Own };
        // CU_MEM_LOCATION_TYPE_DEVICE.
        if location != 1 {
            return Err(Failure::invalid(format!("location type {location}")));
        }
        place.set(Pool::create(driver()?.gpu(device.cast_signed())?, sharing)?.handle());
        Ok(())
    }

    destroy(handle: Handle) [cuMemPoolDestroy Legacy] {
        let pool = pool_of(handle)?;
        if Arc::ptr_eq(&pool, &default_of(pool.gpu)?) {
            return Err(Failure::invalid("the default pool is not destroyed"));
        }
        if Arc::ptr_eq(&pool, &current_of(pool.gpu)?) {
            choose(pool.gpu, None);
        }
        pool.destroy()
    }

    default_pool(place: Out<Handle>, device: Ordinal) [cuDeviceGetDefaultMemPool Legacy] {
        let place = place.need("the place for the pool")?;
        place.set(default_of(driver()?.gpu(device)?)?.handle());
        Ok(())
    }

    device_pool(place: Out<Handle>, device: Ordinal) [cuDeviceGetMemPool Legacy] {
        let place = place.need("the place for the pool")?;
        place.set(current_of(driver()?.gpu(device)?)?.handle());
        Ok(())
    }

    set_device_pool(device: Ordinal, pool: Handle) [cuDeviceSetMemPool Legacy] {
        let (gpu, pool) = (driver()?.gpu(device)?, pool_of(pool)?);
        if pool.gpu.ordinal != gpu.ordinal {
            return Err(Failure::invalid("the pool belongs to another device"));
        }
        choose(gpu, Some(pool));
        Ok(())
    }

    trim(pool: Handle, keep: usize) [cuMemPoolTrimTo Legacy] {
        pool_of(pool)?.trim(keep as u64);
        Ok(())
    }

    attribute(pool: Handle, attribute: u32, value: Out<u64>) [cuMemPoolGetAttribute Legacy] {
        let value = value.need("the place for the attribute")?;
        let figures = pool_of(pool)?.figures();
        match attribute {
            1..=3 => value.cast::<u32>().set((!figures.refused[attribute as usize - 1]).into()),
            4 => value.set(figures.threshold),
            5 => value.set(figures.reserved),
            6 => value.set(figures.reserved_high),
            7 => value.set(figures.used),
            8 => value.set(figures.used_high),
            _ => return Err(Failure::invalid(format!("there is no pool attribute {attribute}"))),
        }
        Ok(())
    }

    set_attribute(pool: Handle, attribute: u32, value: In<u64>) [cuMemPoolSetAttribute Legacy] {
        let pool = pool_of(pool)?;
        if matches!(attribute, 1..=3) {
            let refused = value.within::<u32>(0).read("the attribute")? == 0;
            pool.change(|figures| figures.refused[attribute as usize - 1] = refused);
            return Ok(());
        }
        let value = value.read("the attribute")?;
        match (attribute, value) {
            (4, threshold) => pool.change(|figures| figures.threshold = threshold),
            (6, 0) => pool.change(|figures| figures.reserved_high = figures.reserved),
            (8, 0) => pool.change(|figures| figures.used_high = figures.used),
            _ => return Err(Failure::invalid(format!("pool attribute {attribute} set to {value}"))),
        }
        Ok(())
    }

    access(flags: Out<u32>, pool: Handle, location: In<[u32; 2]>) [cuMemPoolGetAccess Legacy] {
        let flags = flags.need("the place for the flags")?;
        let [_, device] = location.read("the location")?;
        let pool = pool_of(pool)?;
        // CU_MEM_ACCESS_FLAGS_PROT_READWRITE for the pool's own device.
        flags.set(if driver()?.gpu(device.cast_signed())?.ordinal == pool.gpu.ordinal { 3 } else { 0 });
        Ok(())
    }

    set_access(pool: Handle, list: In<[u32; 3]>, count: usize) [cuMemPoolSetAccess Legacy] {
        let pool = pool_of(pool)?;
        for location in list.each(count, "the list of locations") {
            let [_, device, flags] = location?;
            let own = driver()?.gpu(device.cast_signed())?.ordinal == pool.gpu.ordinal;
            match (own, flags) {
                (true, 3) | (false, 0) => {}
                (true, _) => return Err(Failure::invalid("a pool's own device has access")),
                (false, _) => return Err(Code::PeerAccessUnsupported.into()),
            }
        }
        Ok(())
    }
}
