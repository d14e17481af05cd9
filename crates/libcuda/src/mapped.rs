//! Virtual memory management.

use core::ffi::c_int;
use std::os::fd::IntoRawFd as _;
use std::sync::Arc;

use orin_cuda_core::context::peek;
use orin_cuda_core::mapped::{GRANULARITY, Physical, file_of};
use orin_cuda_core::{Code, Failure, Gpu, Result, driver};
use tegra_hcq::FileAccess;

use crate::abi::{Address, Handle, In, Out};
use crate::call::api;

/// `CUmemAllocationProp` up to the location: type, handle types, location type, location id.
type Properties = [u32; 4];
/// CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR.
const FILE: u32 = 1;

/// The GPU that properties name, and whether they ask for files.
fn check(properties: Properties) -> Result<(&'static Gpu, bool)> {
    let [kind, handles, location, device] = properties;
    // CU_MEM_ALLOCATION_TYPE_PINNED, CU_MEM_LOCATION_TYPE_DEVICE.
    if kind != 1 || location == 0 || location > 4 {
        return Err(Failure::invalid(format!("memory of type {kind} at a location of type {location}")));
    }
    if location != 1 || handles > FILE {
        let reason = format!("memory at a location of type {location}, with handle types {handles:#x}");
        return Err(Failure::new(Code::NotSupported, reason));
    }
    Ok((driver()?.gpu(device.cast_signed())?, handles == FILE))
}

fn physical_of(handle: Handle) -> Result<Arc<Physical>> {
    driver()?.objects.get::<Physical>(handle)
}

/// The GPU whose addresses are meant: the current context's, or the first.
fn gpu() -> Result<&'static Gpu> {
    match peek()? {
        Some(context) => Ok(context.gpu),
        None => driver()?.gpu(0),
    }
}

/// Waits for work that may use memory whose mapping changes.
fn settle() -> Result<()> {
    peek()?.map_or(Ok(()), |context| context.settle())
}

/// Refuses flags of calls that have none.
fn no_flags(flags: u64) -> Result<()> {
    if flags == 0 { Ok(()) } else { Err(Failure::invalid(format!("flags {flags:#x}"))) }
}

api! {
    granularity(place: Out<usize>, properties: In<Properties>, option: u32) [cuMemGetAllocationGranularity Legacy] {
        let place = place.need("the place for the size")?;
        check(properties.read("the properties")?)?;
        // CU_MEM_ALLOC_GRANULARITY_MINIMUM, _RECOMMENDED.
        if option > 1 {
            return Err(Failure::invalid(format!("there is no granularity {option}")));
        }
        place.set(GRANULARITY);
        Ok(())
    }

    create(place: Out<Handle>, bytes: usize, properties: In<Properties>, flags: u64) [cuMemCreate Legacy] {
        let place = place.need("the place for the handle")?;
        no_flags(flags)?;
        let (gpu, shareable) = check(properties.read("the properties")?)?;
        place.set(Physical::create(gpu, bytes, shareable)?.handle());
        Ok(())
    }

    release(handle: Handle) [cuMemRelease Legacy] {
        physical_of(handle)?.release()
    }

    properties(place: Out<Properties>, handle: Handle) [cuMemGetAllocationPropertiesFromHandle Legacy] {
        let place = place.need("the place for the properties")?;
        let memory = physical_of(handle)?;
        // The rest of the structure: no attributes of Windows, no compression.
        place.cast::<[u64; 4]>().set([0; 4]);
        // CAST: a machine has few GPUs.
        place.set([1, u32::from(memory.shareable), 1, memory.gpu.ordinal as u32]);
        Ok(())
    }

    reserve(place: Out<Address>, bytes: usize, alignment: usize, wanted: Address, flags: u64)
    [cuMemAddressReserve Legacy] {
        let place = place.need("the place for the address")?;
        no_flags(flags)?;
        if alignment != 0 && !alignment.is_power_of_two() {
            return Err(Failure::invalid(format!("an alignment of {alignment} bytes")));
        }
        let gpu = gpu()?;
        place.set(gpu.memory.ranges.reserve(gpu, bytes, alignment, wanted)?);
        Ok(())
    }

    free(address: Address, bytes: usize) [cuMemAddressFree Legacy] {
        gpu()?.memory.ranges.free(address, bytes)
    }

    map(address: Address, bytes: usize, from: usize, handle: Handle, flags: u64) [cuMemMap Legacy] {
        no_flags(flags)?;
        let memory = physical_of(handle)?;
        gpu()?.memory.ranges.map(address, bytes, memory, from)
    }

    unmap(address: Address, bytes: usize) [cuMemUnmap Legacy] {
        settle()?;
        let gpu = gpu()?;
        gpu.memory.ranges.unmap(gpu, address, bytes)
    }

    set_access(address: Address, bytes: usize, list: In<[u32; 3]>, count: usize) [cuMemSetAccess Legacy] {
        let gpu = gpu()?;
        if count == 0 {
            return Err(Failure::invalid("no accesses"));
        }
        for access in list.each(count, "the list of accesses") {
            let [location, device, flags] = access?;
            // CU_MEM_LOCATION_TYPE_DEVICE, and those of the host.
            if location == 0 || location > 4 {
                return Err(Failure::invalid(format!("a location of type {location}")));
            }
            if location != 1 {
                return Err(Failure::new(Code::NotSupported, format!("access of a location of type {location}")));
            }
            if driver()?.gpu(device.cast_signed())?.ordinal != gpu.ordinal {
                return Err(Code::PeerAccessUnsupported.into());
            }
            // CU_MEM_ACCESS_FLAGS_PROT_NONE, _READ, _READWRITE.
            let access = match flags {
                0 => None,
                1 => Some(FileAccess::ReadOnly),
                3 => Some(FileAccess::ReadWrite),
                _ => return Err(Failure::invalid(format!("access {flags}"))),
            };
            settle()?;
            gpu.memory.ranges.set_access(gpu, address, bytes, access)?;
        }
        Ok(())
    }

    access(place: Out<u64>, location: In<[u32; 2]>, address: Address) [cuMemGetAccess Legacy] {
        let place = place.need("the place for the access")?;
        let ([_, device], gpu) = (location.read("the location")?, gpu()?);
        let own = driver()?.gpu(device.cast_signed())?.ordinal == gpu.ordinal;
        let access = gpu.memory.ranges.access(address)?.filter(|_| own);
        place.set(access.map_or(0, |access| if access.is_writable() { 3 } else { 1 }));
        Ok(())
    }

    retain(place: Out<Handle>, address: Address) [cuMemRetainAllocationHandle Legacy] {
        let place = place.need("the place for the handle")?;
        let memory = gpu()?.memory.ranges.memory(address)?;
        place.set(memory.hold()?);
        Ok(())
    }

    export(place: Out<c_int>, handle: Handle, kind: u32, flags: u64) [cuMemExportToShareableHandle Legacy] {
        let place = place.need("the place for the file")?;
        no_flags(flags)?;
        let memory = physical_of(handle)?;
        if kind != FILE {
            return Err(Failure::new(Code::NotSupported, format!("handle type {kind:#x}")));
        }
        place.set(memory.export()?.into_raw_fd());
        Ok(())
    }

    import(place: Out<Handle>, file: usize, kind: u32) [cuMemImportFromShareableHandle Legacy] {
        let place = place.need("the place for the handle")?;
        if kind != FILE {
            return Err(Failure::new(Code::NotSupported, format!("handle type {kind:#x}")));
        }
        // CAST: the descriptor is passed as a pointer.
        let file = file_of(c_int::try_from(file).unwrap_or(-1))?;
        place.set(Physical::import(gpu()?, file)?.handle());
        Ok(())
    }
}
