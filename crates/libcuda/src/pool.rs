//! Stream-ordered allocation.

use std::sync::Arc;

use orin_cuda_core::ipc::free_imported;
use orin_cuda_core::memory::Kind;
use orin_cuda_core::pool::{Home, Sharing, check_place, choose, current_of, default_of};
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

/// The home that a `CUmemLocation` and a type of memory name.
fn home_of(location: In<[u32; 2]>, kind: u32) -> Result<Home> {
    let [location, id] = location.read("the location")?;
    Home::of(kind, (location, id.cast_signed()))
}

/// Whether a device, or the CPU, has access to a pool's memory.
fn has_access(pool: &Pool, [kind, id]: [u32; 2]) -> Result<bool> {
    match kind {
        // CU_MEM_LOCATION_TYPE_DEVICE.
        1 => Ok(driver()?.gpu(id.cast_signed())?.ordinal == pool.gpu.ordinal),
        // CU_MEM_LOCATION_TYPE_HOST, _HOST_NUMA, _HOST_NUMA_CURRENT.
        2..=4 => Ok(pool.home.is_on_host()),
        _ => Err(Failure::invalid(format!("location {id} of type {kind}"))),
    }
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
        None => current_of(Home::device(context.gpu))?,
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
        let memory = &context.gpu.memory;
        let kinds: &[_] = if memory.is_pooled(address) {
            &[Kind::Pooled, Kind::Managed, Kind::Host]
        } else {
            &[Kind::Pooled, Kind::Device]
        };
        let allocation = memory.remove(address, kinds)?;
        // Memory of cuMemAlloc, or of a pool that is gone: the buffer waits for all queues by itself.
        if let Ok(pool) = pool_of(allocation.pool) {
            pool.free(allocation, &stream);
        }
        Ok(())
    }

    create(place: Out<Handle>, properties: In<Properties>) [cuMemPoolCreate Legacy] {
        let place = place.need("the place for the pool")?;
        let [kind, handles, location, id] = properties.read("the properties")?;
        let home = Home::of(kind, (location, id.cast_signed()))?;
        let shared = handles != 0 && check_place(kind, handles)?;
        if shared && home.is_on_host() {
            return Err(Failure::new(Code::NotSupported, "host memory for other processes"));
        }
        let sharing = if shared { Sharing::Exported } else { Sharing::Own };
        place.set(Pool::create(home, sharing)?.handle());
        Ok(())
    }

    destroy(handle: Handle) [cuMemPoolDestroy Legacy] {
        pool_of(handle)?.destroy()
    }

    default_pool(place: Out<Handle>, device: Ordinal) [cuDeviceGetDefaultMemPool Legacy] {
        let place = place.need("the place for the pool")?;
        place.set(default_of(Home::device(driver()?.gpu(device)?))?.handle());
        Ok(())
    }

    device_pool(place: Out<Handle>, device: Ordinal) [cuDeviceGetMemPool Legacy] {
        let place = place.need("the place for the pool")?;
        place.set(current_of(Home::device(driver()?.gpu(device)?))?.handle());
        Ok(())
    }

    set_device_pool(device: Ordinal, pool: Handle) [cuDeviceSetMemPool Legacy] {
        choose(Home::device(driver()?.gpu(device)?), pool_of(pool)?)
    }

    default_pool_at(place: Out<Handle>, location: In<[u32; 2]>, kind: u32) [cuMemGetDefaultMemPool Legacy] {
        let place = place.need("the place for the pool")?;
        place.set(default_of(home_of(location, kind)?)?.handle());
        Ok(())
    }

    pool_at(place: Out<Handle>, location: In<[u32; 2]>, kind: u32) [cuMemGetMemPool Legacy] {
        let place = place.need("the place for the pool")?;
        place.set(current_of(home_of(location, kind)?)?.handle());
        Ok(())
    }

    set_pool_at(location: In<[u32; 2]>, kind: u32, pool: Handle) [cuMemSetMemPool Legacy] {
        choose(home_of(location, kind)?, pool_of(pool)?)
    }

    trim(pool: Handle, keep: usize) [cuMemPoolTrimTo Legacy] {
        pool_of(pool)?.trim(keep as u64);
        Ok(())
    }

    attribute(pool: Handle, attribute: u32, value: Out<u64>) [cuMemPoolGetAttribute Legacy] {
        let value = value.need("the place for the attribute")?;
        let pool = pool_of(pool)?;
        let (figures, Home { managed, location }) = (pool.figures(), pool.home);
        match attribute {
            1..=3 => value.cast::<u32>().set((!figures.refused[attribute as usize - 1]).into()),
            4 => value.set(figures.threshold),
            5 => value.set(figures.reserved),
            6 => value.set(figures.reserved_high),
            7 => value.set(figures.used),
            8 => value.set(figures.used_high),
            // CU_MEM_ALLOCATION_TYPE_PINNED, _MANAGED; handle types; the place.
            9 => value.cast::<u32>().set(1 + u32::from(managed)),
            10 => value.cast::<u32>().set((pool.sharing == Sharing::Exported).into()),
            11 => value.cast::<i32>().set(location.1),
            12 => value.cast::<u32>().set(location.0),
            // The largest size: any. Nothing is decompressed.
            13 => value.set(0),
            14 => value.cast::<u32>().set(0),
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
        let location = location.read("the location")?;
        // CU_MEM_ACCESS_FLAGS_PROT_READWRITE.
        flags.set(if has_access(&*pool_of(pool)?, location)? { 3 } else { 0 });
        Ok(())
    }

    set_access(pool: Handle, list: In<[u32; 3]>, count: usize) [cuMemPoolSetAccess Legacy] {
        let pool = pool_of(pool)?;
        for location in list.each(count, "the list of locations") {
            let [kind, id, flags] = location?;
            match (has_access(&pool, [kind, id])?, flags) {
                (true, 3) | (false, 0) => {}
                (true, _) => return Err(Failure::invalid("a pool's own device has access, and the CPU to host memory")),
                (false, _) => return Err(Code::PeerAccessUnsupported.into()),
            }
        }
        Ok(())
    }
}
