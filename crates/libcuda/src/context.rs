//! Contexts.

use core::ffi::c_int;
use std::sync::Arc;

use orin_cuda_core::context::{current, peek, pop, push, set_current};
use orin_cuda_core::{Code, Context, Failure, PRIORITIES, Result, driver};

use crate::abi::{Handle, In, Ordinal, Out};
use crate::call::api;

/// The context that a handle names; the current one for NULL.
pub(crate) fn context_or_current(handle: Handle) -> Result<Arc<Context>> {
    if handle == 0 { current() } else { driver()?.objects.get::<Context>(handle) }
}

fn create(place: Out<Handle>, flags: u32, device: Ordinal) -> Result<()> {
    let place = place.need("the place for the context")?;
    let context = Context::create(driver()?.gpu(device)?, flags, false)?;
    place.set(context.handle);
    push(context)
}

/// Default of a limit, in the order of `CUlimit`; `None` if there is no such limit.
fn default_limit(limit: u32) -> Option<usize> {
    Some(match limit {
        // The device has the stack of a thread, the printf buffer and the heap of malloc.
        0..=2 => 0,
        // L2 fetch granularity.
        5 => 64,
        // Persisting part of the L2.
        6 => 0,
        _ => return None,
    })
}

fn limit_default(limit: u32) -> Result<usize> {
    default_limit(limit).ok_or_else(|| match limit {
        // Those of launches from kernels and of graphics.
        3 | 4 | 7..=10 => Failure::new(Code::UnsupportedLimit, format!("limit {limit}")),
        _ => Failure::invalid(format!("there is no limit {limit}")),
    })
}

api! {
    create_2(place: Out<Handle>, flags: u32, device: Ordinal) [cuCtxCreate Legacy] [cuCtxCreate_v2 Legacy] {
        create(place, flags, device)
    }

    create_3(place: Out<Handle>, affinity: In<u8>, count: c_int, flags: u32, device: Ordinal) [cuCtxCreate_v3 Legacy] {
        place.need("the place for the context")?;
        if (count != 0) == affinity.is_null() {
            return Err(Failure::invalid(format!("{count} execution affinities in a list that is NULL, or not")));
        }
        driver()?.gpu(device)?;
        if count != 0 {
            return Err(Failure::new(Code::UnsupportedExecAffinity, "execution affinity"));
        }
        create(place, flags, device)
    }

    create_4(place: Out<Handle>, parameters: In<[usize; 2]>, flags: u32, device: Ordinal) [cuCtxCreate_v4 Legacy] {
        place.need("the place for the context")?;
        // CUctxCreateParams: pointers to execution affinity, with a count, and to parameters of graphics.
        if !parameters.is_null() && parameters.read("the parameters")?[0] != 0 {
            return Err(Failure::new(Code::UnsupportedExecAffinity, "execution affinity"));
        }
        create(place, flags, device)
    }

    destroy(handle: Handle) [cuCtxDestroy Legacy] [cuCtxDestroy_v2 Legacy] {
        let context = driver()?.objects.get::<Context>(handle)?;
        Context::destroy(&context)
    }

    attach(place: Out<Handle>, flags: u32) [cuCtxAttach Legacy] {
        let place = place.need("the place for the context")?;
        if flags != 0 {
            return Err(Failure::invalid("cuCtxAttach takes the flags 0"));
        }
        let context = current()?;
        context.attach();
        place.set(context.handle);
        Ok(())
    }

    detach(handle: Handle) [cuCtxDetach Legacy] {
        Context::detach(&driver()?.objects.get::<Context>(handle)?)
    }

    push_current(handle: Handle) [cuCtxPushCurrent Legacy] [cuCtxPushCurrent_v2 Legacy] {
        push(driver()?.objects.get::<Context>(handle)?)
    }

    pop_current(place: Out<Handle>) [cuCtxPopCurrent Legacy] [cuCtxPopCurrent_v2 Legacy] {
        place.set(pop()?.handle);
        Ok(())
    }

    make_current(handle: Handle) [cuCtxSetCurrent Legacy] {
        set_current(if handle == 0 { None } else { Some(driver()?.objects.get::<Context>(handle)?) })
    }

    get_current(place: Out<Handle>) [cuCtxGetCurrent Legacy] {
        let place = place.need("the place for the context")?;
        place.set(peek()?.map_or(0, |context| context.handle));
        Ok(())
    }

    device(place: Out<Ordinal>) [cuCtxGetDevice Legacy] {
        let place = place.need("the place for the device")?;
        // CAST: a machine has few GPUs. A context with a fault still has its device.
        place.set(peek()?.ok_or(Code::InvalidContext)?.gpu.ordinal as Ordinal);
        Ok(())
    }

    device_of(place: Out<Ordinal>, handle: Handle) [cuCtxGetDevice_v2 Legacy] {
        let place = place.need("the place for the device")?;
        // CAST: as above.
        place.set(context_or_current(handle)?.gpu.ordinal as Ordinal);
        Ok(())
    }

    flags(place: Out<u32>) [cuCtxGetFlags Legacy] {
        let place = place.need("the place for the flags")?;
        place.set(current()?.flags());
        Ok(())
    }

    set_flags(flags: u32) [cuCtxSetFlags Legacy] {
        current()?.set_flags(flags)
    }

    id(handle: Handle, place: Out<u64>) [cuCtxGetId Legacy] {
        let place = place.need("the place for the id")?;
        place.set(context_or_current(handle)?.id);
        Ok(())
    }

    api_version(handle: Handle, place: Out<u32>) [cuCtxGetApiVersion Legacy] {
        let place = place.need("the place for the version")?;
        context_or_current(handle)?;
        // The number that NVIDIA's driver gives for contexts of cuCtxCreate_v2 and later.
        place.set(3020);
        Ok(())
    }

    synchronize() [cuCtxSynchronize Legacy] {
        current()?.synchronize()
    }

    synchronize_of(handle: Handle) [cuCtxSynchronize_v2 Legacy] {
        let context = context_or_current(handle)?;
        context.check()?;
        context.synchronize()
    }

    limit(place: Out<usize>, limit: u32) [cuCtxGetLimit Legacy] {
        let place = place.need("the place for the limit")?;
        let default = limit_default(limit)?;
        let context = current()?;
        // CAST: usize has 64 bits.
        place.set(match limit {
            0 => context.device.stack_bytes() as usize,
            1 => context.device.printf_bytes() as usize,
            2 => context.device.kernel_heap_bytes() as usize,
            _ => context.limit(limit, default),
        });
        Ok(())
    }

    set_limit(limit: u32, value: usize) [cuCtxSetLimit Legacy] {
        limit_default(limit)?;
        let context = current()?;
        // CU_LIMIT_STACK_SIZE, CU_LIMIT_PRINTF_FIFO_SIZE, CU_LIMIT_MALLOC_HEAP_SIZE.
        match limit {
            0 => context.device.set_stack_bytes(value as u64)?,
            1 => context.device.set_printf_bytes(value as u64)?,
            2 => context.device.set_kernel_heap_bytes(value as u64)?,
            _ => context.set_limit(limit, value),
        }
        Ok(())
    }

    cache(place: Out<u32>) [cuCtxGetCacheConfig Legacy] [cuCtxGetSharedMemConfig Legacy] {
        let place = place.need("the place for the preference")?;
        current()?;
        // CU_FUNC_CACHE_PREFER_NONE; the bank size is fixed since Volta.
        place.set(0);
        Ok(())
    }

    set_cache(preference: u32) [cuCtxSetCacheConfig Legacy] [cuCtxSetSharedMemConfig Legacy] {
        if preference > 3 {
            return Err(Failure::invalid(format!("preference {preference}")));
        }
        // A hint; the driver chooses by the launches.
        current().map(drop)
    }

    priorities(least: Out<c_int>, greatest: Out<c_int>) [cuCtxGetStreamPriorityRange Legacy] {
        current()?;
        least.set(PRIORITIES.0);
        greatest.set(PRIORITIES.1);
        Ok(())
    }

    affinity(place: Out<[u32; 2]>, kind: u32) [cuCtxGetExecAffinity Legacy] {
        let _ = (place.need("the place for the affinity")?, kind);
        current()?;
        Err(Code::UnsupportedExecAffinity.into())
    }

    reset_l2() [cuCtxResetPersistingL2Cache Legacy] {
        current().map(drop)
    }

    enable_peer(peer: Handle, flags: u32) [cuCtxEnablePeerAccess Legacy] {
        if flags != 0 {
            return Err(Failure::invalid("cuCtxEnablePeerAccess takes the flags 0"));
        }
        current()?;
        driver()?.objects.get::<Context>(peer)?;
        Err(Code::PeerAccessUnsupported.into())
    }

    disable_peer(peer: Handle) [cuCtxDisablePeerAccess Legacy] {
        current()?;
        driver()?.objects.get::<Context>(peer)?;
        Err(Code::PeerAccessNotEnabled.into())
    }

    flush_writes(target: u32, scope: u32) [cuFlushGPUDirectRDMAWrites Legacy] {
        let _ = (target, scope);
        current()?;
        Err(Failure::new(Code::NotSupported, "GPUDirect RDMA"))
    }
}
