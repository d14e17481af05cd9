//! Arrays, with levels or without.

use crate::call::{api, read, write};
use crate::descriptors::Descriptor3d;
use crate::device::primary;
use crate::driver::cu;
use crate::error::{Error, Result};
use crate::memory::Extent;

/// `cudaChannelFormatDesc`: bits of each component, and the kind of numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Channels {
    bits: [i32; 4],
    kind: u32,
}

impl Channels {
    /// The driver's format, and the number of components.
    pub(crate) fn element(self) -> Result<(u32, u32)> {
        let count = self.bits.iter().take_while(|bits| **bits != 0).count();
        let bits = self.bits[0];
        let rest_is_zero = self.bits[count..].iter().all(|bits| *bits == 0);
        if !self.bits[..count].iter().all(|other| *other == bits) || !rest_is_zero {
            return Err(Error::INVALID_CHANNEL_DESCRIPTOR);
        }
        // cudaChannelFormatKindSigned, Unsigned, Float.
        let format = match (self.kind, bits) {
            (0, 8) => 8,
            (0, 16) => 9,
            (0, 32) => 10,
            (1, 8) => 1,
            (1, 16) => 2,
            (1, 32) => 3,
            (2, 16) => 0x10,
            (2, 32) => 0x20,
            // Normalised and compressed ones.
            (5.., _) => return Err(Error::NOT_SUPPORTED),
            _ => return Err(Error::INVALID_CHANNEL_DESCRIPTOR),
        };
        // CAST: at most 4.
        if matches!(count, 1 | 2 | 4) {
            Ok((format, count as u32))
        } else {
            Err(Error::INVALID_CHANNEL_DESCRIPTOR)
        }
    }

    /// The components of a driver's format.
    pub(crate) fn of(format: u32, count: u32) -> Self {
        let (kind, width) = match format {
            1 => (1, 8),
            2 => (1, 16),
            3 => (1, 32),
            8 => (0, 8),
            9 => (0, 16),
            10 => (0, 32),
            0x10 => (2, 16),
            _ => (2, 32),
        };
        let mut bits = [0; 4];
        bits[..count.min(4) as usize].fill(width);
        Self { bits, kind }
    }
}

impl Descriptor3d {
    fn of(array: usize) -> Result<Self> {
        let mut descriptor = Self::default();
        cu!(cuArray3DGetDescriptor_v2, &raw mut descriptor, array)?;
        Ok(descriptor)
    }
}

/// Bytes of an array's element.
pub(crate) fn element_bytes(array: usize) -> Result<usize> {
    let Descriptor3d { format, channels, .. } = Descriptor3d::of(array)?;
    // CAST: 8 to 32.
    Ok(Channels::of(format, channels).bits.iter().sum::<i32>() as usize / 8)
}

/// Bytes of an array's row.
pub(crate) fn row_bytes(array: usize) -> Result<usize> {
    Ok(Descriptor3d::of(array)?.width * element_bytes(array)?)
}

/// Handles of arrays are null or the program's.
fn handle(array: usize) -> Result<usize> {
    if array == 0 { Err(Error::INVALID_HANDLE) } else { Ok(array) }
}

fn descriptor(channels: *const Channels, extent: Extent, flags: u32) -> Result<Descriptor3d> {
    let (format, channels) = read(channels)?.element()?;
    let Extent { width, height, depth } = extent;
    Ok(Descriptor3d { width, height, depth, format, channels, flags })
}

fn create(place: *mut usize, channels: *const Channels, extent: Extent, flags: u32) -> Result {
    write(place, 0)?;
    let descriptor = descriptor(channels, extent, flags)?;
    cu!(cuArray3DCreate_v2, place, &raw const descriptor)
}

/// The array is not sparse, and its memory was not deferred; the driver says so.
fn refused(place: *mut usize, array: usize) -> Result {
    if place.is_null() {
        return Err(Error::INVALID_VALUE);
    }
    handle(array)?;
    Err(Error::INVALID_VALUE)
}

api! {
    array_create(place: *mut usize, channels: *const Channels, width: usize, height: usize, flags: u32)
    [cudaMallocArray Legacy] {
        create(place, channels, Extent { width, height, depth: 0 }, flags)
    }

    array_create_3d(place: *mut usize, channels: *const Channels, extent: Extent, flags: u32)
    [cudaMalloc3DArray Legacy] {
        create(place, channels, extent, flags)
    }

    array_free(array: usize) [cudaFreeArray Legacy] {
        if array == 0 { Ok(()) } else { cu!(cuArrayDestroy, array) }
    }

    array_information(channels: *mut Channels, extent: *mut Extent, flags: *mut u32, array: usize)
    [cudaArrayGetInfo Legacy] {
        let found = Descriptor3d::of(handle(array)?)?;
        // Each place is optional.
        if !channels.is_null() {
            write(channels, Channels::of(found.format, found.channels))?;
        }
        if !extent.is_null() {
            write(extent, Extent { width: found.width, height: found.height, depth: found.depth })?;
        }
        if flags.is_null() { Ok(()) } else { write(flags, found.flags) }
    }

    array_channels(channels: *mut Channels, array: usize) [cudaGetChannelDesc Legacy] {
        let found = Descriptor3d::of(handle(array)?)?;
        write(channels, Channels::of(found.format, found.channels))
    }

    array_plane(place: *mut usize, array: usize, plane: u32) [cudaArrayGetPlane Legacy] {
        cu!(cuArrayGetPlane, place, handle(array)?, plane)
    }

    array_requirements(place: *mut usize, array: usize, device: i32) [cudaArrayGetMemoryRequirements Legacy] {
        primary(device)?;
        refused(place, array)
    }

    array_sparse(place: *mut usize, array: usize) [cudaArrayGetSparseProperties Legacy] {
        refused(place, array)
    }

    mipmapped_create(place: *mut usize, channels: *const Channels, extent: Extent, levels: u32, flags: u32)
    [cudaMallocMipmappedArray Legacy] {
        write(place, 0)?;
        let descriptor = descriptor(channels, extent, flags)?;
        cu!(cuMipmappedArrayCreate, place, &raw const descriptor, levels)
    }

    mipmapped_level(place: *mut usize, array: usize, level: u32) [cudaGetMipmappedArrayLevel Legacy] {
        write(place, 0)?;
        cu!(cuMipmappedArrayGetLevel, place, handle(array)?, level)
    }

    mipmapped_free(array: usize) [cudaFreeMipmappedArray Legacy] {
        if array == 0 { Ok(()) } else { cu!(cuMipmappedArrayDestroy, array) }
    }

    mipmapped_requirements(place: *mut usize, array: usize, device: i32)
    [cudaMipmappedArrayGetMemoryRequirements Legacy] {
        primary(device)?;
        refused(place, array)
    }

    mipmapped_sparse(place: *mut usize, array: usize) [cudaMipmappedArrayGetSparseProperties Legacy] {
        refused(place, array)
    }
}
