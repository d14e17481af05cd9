//! Devices.

use core::ffi::c_int;

use orin_cuda_core::{Code, Failure, Gpu, Result, driver};

use crate::abi::{Handle, In, Ordinal, Out, Text, TextOut};
use crate::call::api;

fn gpu(ordinal: Ordinal) -> Result<&'static Gpu> {
    driver()?.gpu(ordinal)
}

/// The bytes that identify a GPU: its name and address, in the form of a version 8 UUID.
fn uuid(gpu: &Gpu) -> Result<[u8; 16]> {
    let (domain, bus, slot) = gpu.pci()?;
    let mut bytes = *b"orin-gpu\0\0\0\0\0\0\0\0";
    let name = gpu.name.to_string();
    let sum =
        name.bytes().fold(0xcbf2_9ce4_u32, |sum, byte| (sum ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    bytes[6] = 0x80;
    bytes[8..12].copy_from_slice(&sum.to_le_bytes());
    bytes[8] = bytes[8] & 0x3f | 0x80;
    // CAST: parts of a PCI address.
    bytes[12..16].copy_from_slice(&[domain as u8, bus as u8, slot as u8, gpu.ordinal as u8]);
    Ok(bytes)
}

api! {
    count(count: Out<c_int>) [cuDeviceGetCount Legacy] {
        let count = count.need("the place for the count")?;
        // CAST: a machine has few GPUs.
        count.set(driver()?.gpus.len() as c_int);
        Ok(())
    }

    name(name: TextOut, room: c_int, device: Ordinal) [cuDeviceGetName Legacy] {
        name.set("", usize::try_from(room).unwrap_or(0))?;
        name.set(&gpu(device)?.title()?, usize::try_from(room).unwrap_or(0))
    }

    uuid_of(place: Out<[u8; 16]>, device: Ordinal) [cuDeviceGetUuid Legacy] [cuDeviceGetUuid_v2 Legacy] {
        let place = place.need("the place for the UUID")?;
        place.set(uuid(gpu(device)?)?);
        Ok(())
    }

    total_memory(bytes: Out<usize>, device: Ordinal) [cuDeviceTotalMem_v2 Legacy] {
        let bytes = bytes.need("the place for the size")?;
        // CAST: usize has 64 bits.
        bytes.set(gpu(device)?.memory_info()?.1 as usize);
        Ok(())
    }

    attribute(value: Out<c_int>, attribute: u32, device: Ordinal) [cuDeviceGetAttribute Legacy] {
        let value = value.need("the place for the attribute")?;
        value.set(gpu(device)?.attribute(attribute)?);
        Ok(())
    }

    capability(major: Out<c_int>, minor: Out<c_int>, device: Ordinal) [cuDeviceComputeCapability Legacy] {
        let (major, minor) = (major.need("the place for the version")?, minor.need("the place for the version")?);
        let version = gpu(device)?.sm_version()?;
        major.set(version.0.cast_signed());
        minor.set(version.1.cast_signed());
        Ok(())
    }

    properties(place: Out<[c_int; 14]>, device: Ordinal) [cuDeviceGetProperties Legacy] {
        let place = place.need("the place for the properties")?;
        let gpu = gpu(device)?;
        // CUdevprop: threads, block, grid, shared memory, constants, warp, pitch, registers, clock, texture alignment.
        let attributes = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14];
        let mut values = [0; 14];
        for (value, attribute) in values.iter_mut().zip(attributes) {
            *value = gpu.attribute(attribute)?;
        }
        place.set(values);
        Ok(())
    }

    pci(place: TextOut, room: c_int, device: Ordinal) [cuDeviceGetPCIBusId Legacy] {
        let room = usize::try_from(room).unwrap_or(0);
        place.set("", room)?;
        let (domain, bus, slot) = gpu(device)?.pci()?;
        place.set(&format!("{domain:04x}:{bus:02x}:{slot:02x}.0"), room)
    }

    by_pci(device: Out<Ordinal>, text: Text) [cuDeviceGetByPCIBusId Legacy] {
        let device = device.need("the place for the device")?;
        let text = text.get("the PCI address")?;
        let wrong = || Failure::invalid(format!("'{text}' is no PCI address"));
        let part = |text: &str| u32::from_str_radix(text, 16).map_err(|_| wrong());
        let fields: Vec<_> = text.split('.').next().unwrap_or_default().split(':').collect();
        let address = match *fields {
            [domain, bus, slot] => (part(domain)?, part(bus)?, part(slot)?),
            [bus, slot] => (0, part(bus)?, part(slot)?),
            _ => return Err(wrong()),
        };
        for gpu in &driver()?.gpus {
            if gpu.pci()? == address {
                // CAST: a machine has few GPUs.
                device.set(gpu.ordinal as Ordinal);
                return Ok(());
            }
        }
        Err(Failure::new(Code::InvalidDevice, format!("no GPU at {text}")))
    }

    luid(place: Out<[u8; 8]>, mask: Out<u32>, device: Ordinal) [cuDeviceGetLuid Legacy] {
        gpu(device)?;
        let _ = (place, mask);
        Err(Failure::new(Code::NotSupported, "locally unique ids exist on Windows only"))
    }

    peer(can: Out<c_int>, device: Ordinal, peer: Ordinal) [cuDeviceCanAccessPeer Legacy] {
        let can = can.need("the place for the answer")?;
        gpu(device)?;
        gpu(peer)?;
        can.set(0);
        Ok(())
    }

    peer_attribute(value: Out<c_int>, attribute: u32, device: Ordinal, peer: Ordinal) [cuDeviceGetP2PAttribute Legacy] {
        let value = value.need("the place for the attribute")?;
        gpu(device)?;
        gpu(peer)?;
        // Performance rank, access, native atomics, arrays, and CUDA 13's partial atomics.
        if !(1..=5).contains(&attribute) || device == peer {
            return Err(Failure::invalid(format!("attribute {attribute} of devices {device} and {peer}")));
        }
        value.set(0);
        Ok(())
    }

    affinity(supported: Out<c_int>, kind: u32, device: Ordinal) [cuDeviceGetExecAffinitySupport Legacy] {
        let supported = supported.need("the place for the answer")?;
        let _ = kind;
        gpu(device)?;
        supported.set(0);
        Ok(())
    }

    primary_retain(context: Out<Handle>, device: Ordinal) [cuDevicePrimaryCtxRetain Legacy] {
        let context = context.need("the place for the context")?;
        context.set(gpu(device)?.retain_primary()?.handle);
        Ok(())
    }

    primary_release(device: Ordinal) [cuDevicePrimaryCtxRelease Legacy] [cuDevicePrimaryCtxRelease_v2 Legacy] {
        gpu(device)?.release_primary()
    }

    primary_reset(device: Ordinal) [cuDevicePrimaryCtxReset Legacy] [cuDevicePrimaryCtxReset_v2 Legacy] {
        gpu(device)?.reset_primary()
    }

    primary_flags(device: Ordinal, flags: u32)
    [cuDevicePrimaryCtxSetFlags Legacy] [cuDevicePrimaryCtxSetFlags_v2 Legacy] {
        gpu(device)?.set_primary_flags(flags)
    }

    primary_state(device: Ordinal, flags: Out<u32>, active: Out<c_int>) [cuDevicePrimaryCtxGetState Legacy] {
        let (flags, active) = (flags.need("the place for the flags")?, active.need("the place for the state")?);
        let state = gpu(device)?.primary_state();
        flags.set(state.0);
        active.set(state.1.into());
        Ok(())
    }

    texture_width(width: Out<usize>, format: u32, channels: u32, device: Ordinal)
    [cuDeviceGetTexture1DLinearMaxWidth Legacy] {
        let width = width.need("the place for the width")?;
        let _ = (format, channels);
        gpu(device)?;
        width.set(0);
        Ok(())
    }

    graph_memory(device: Ordinal, attribute: u32, value: Out<u64>)
    [cuDeviceGetGraphMemAttribute Legacy] {
        let value = value.need("the place for the attribute")?;
        let figures = *gpu(device)?.memory.graphs.lock();
        value.set(match attribute {
            0 => figures.used,
            1 => figures.used_high,
            2 => figures.reserved,
            3 => figures.reserved_high,
            _ => return Err(Failure::invalid(format!("attribute {attribute} of graph memory"))),
        });
        Ok(())
    }

    set_graph_memory(device: Ordinal, attribute: u32, value: In<u64>) [cuDeviceSetGraphMemAttribute Legacy] {
        let mut figures = gpu(device)?.memory.graphs.lock();
        match (attribute, value.read("the attribute")?) {
            (1, 0) => figures.used_high = figures.used,
            (3, 0) => figures.reserved_high = figures.reserved,
            (attribute, value) => {
                return Err(Failure::invalid(format!("attribute {attribute} of graph memory set to {value}")));
            }
        }
        Ok(())
    }

    trim_graph_memory(device: Ordinal) [cuDeviceGraphMemTrim Legacy] {
        gpu(device).map(drop)
    }
}
