//! Texture and surface objects.

use crate::array::Channels;
use crate::call::{api, read, write};
use crate::descriptors::TextureDescriptor;
use crate::device::primary;
use crate::driver::cu;
use crate::error::{Error, Result, is_13};

/// `cudaResourceDesc` up to the longest of its variants: the kind, an array or an address, components, and up to three
/// sizes. That of CUDA 13 is longer.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct Resource {
    kind: u32,
    object: usize,
    channels: Channels,
    sizes: [usize; 3],
}

/// `CUDA_RESOURCE_DESC`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
struct DriverResource {
    kind: u32,
    gap: u32,
    words: [usize; 16],
    flags: u32,
    rest: u32,
}

/// `cudaTextureDesc`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct Texture {
    addressing: [u32; 3],
    filter: u32,
    read_mode: u32,
    srgb: i32,
    border: [f32; 4],
    normalized: i32,
    anisotropy: u32,
    level_filter: u32,
    bias: f32,
    min_level: f32,
    max_level: f32,
    no_trilinear: i32,
    seamless: i32,
}

/// `cudaResourceViewDesc` without the reserved words that CUDA 13 has.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct View {
    format: u32,
    sizes: [usize; 3],
    levels: [u32; 2],
    layers: [u32; 2],
}

/// `CUDA_RESOURCE_VIEW_DESC`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
struct DriverView {
    view: View,
    reserved: [u32; 16],
}

/// CU_TRSF_*: read as integers, normalised coordinates, sRGB, no optimisation, seamless cubes.
const FLAGS: [u32; 5] = [1, 2, 0x10, 0x20, 0x40];

impl Resource {
    fn driver(self) -> Result<DriverResource> {
        let Self { kind, object, channels, sizes } = self;
        let mut words = [0; 16];
        words[0] = object;
        if kind >= 2 {
            let (format, count) = channels.element()?;
            words[1] = (count as usize) << 32 | format as usize;
            words[2..5].copy_from_slice(&sizes);
            if kind == 2 {
                words[3..5].fill(0);
            }
        }
        Ok(DriverResource { kind, words, ..DriverResource::default() })
    }

    fn of(driver: &DriverResource) -> Self {
        let [object, element, sizes @ ..] = driver.words;
        // CAST: the halves of the word.
        let channels = if driver.kind >= 2 {
            Channels::of(element as u32, (element >> 32) as u32)
        } else {
            Channels::default()
        };
        Self { kind: driver.kind, object, channels, sizes: [sizes[0], sizes[1], sizes[2]] }
    }
}

impl Texture {
    fn driver(self) -> Result<TextureDescriptor> {
        // cudaReadModeElementType, cudaReadModeNormalizedFloat.
        if self.read_mode > 1 {
            return Err(Error::INVALID_VALUE);
        }
        let set = [
            self.read_mode == 0,
            self.normalized != 0,
            self.srgb != 0,
            self.no_trilinear != 0,
            self.seamless != 0,
        ];
        let flags = FLAGS.iter().zip(set).filter(|(_, set)| *set).fold(0, |flags, (flag, _)| flags | flag);
        Ok(TextureDescriptor {
            addressing: self.addressing,
            filter: self.filter,
            flags,
            anisotropy: self.anisotropy,
            level_filter: self.level_filter,
            bias: self.bias,
            min_level: self.min_level,
            max_level: self.max_level,
            border: self.border,
            reserved: [0; 12],
        })
    }

    fn of(driver: &TextureDescriptor) -> Self {
        let [integers, normalized, srgb, no_trilinear, seamless] =
            FLAGS.map(|flag| i32::from(driver.flags & flag != 0));
        Self {
            addressing: driver.addressing,
            filter: driver.filter,
            read_mode: u32::from(integers == 0),
            srgb,
            border: driver.border,
            normalized,
            anisotropy: driver.anisotropy,
            level_filter: driver.level_filter,
            bias: driver.bias,
            min_level: driver.min_level,
            max_level: driver.max_level,
            no_trilinear,
            seamless,
        }
    }
}

/// A resource, its flags and what is reserved in that of CUDA 13 are written as zeros.
fn write_resource(place: *mut Resource, driver: &DriverResource) -> Result {
    if is_13() {
        // The layout of the driver's, apart from the components.
        let mut whole = [0_usize; 18];
        // CAST: a small number.
        whole[0] = driver.kind as usize;
        write(place.cast::<[usize; 18]>(), whole)?;
    }
    write(place, Resource::of(driver))
}

api! {
    texture_create(place: *mut u64, resource: *const Resource, texture: *const Texture, view: *const View)
    [cudaCreateTextureObject Legacy] {
        write(place, 0)?;
        let resource = read(resource)?.driver()?;
        let texture = read(texture)?.driver()?;
        let view = if view.is_null() { None } else { Some(DriverView { view: read(view)?, reserved: [0; 16] }) };
        let view = view.as_ref().map_or(core::ptr::null(), core::ptr::from_ref);
        cu!(cuTexObjectCreate, place, &raw const resource, &raw const texture, view)
    }

    texture_destroy(texture: usize) [cudaDestroyTextureObject Legacy] {
        if texture == 0 { Ok(()) } else { cu!(cuTexObjectDestroy, texture) }
    }

    texture_resource(place: *mut Resource, texture: usize) [cudaGetTextureObjectResourceDesc Legacy] {
        let mut driver = DriverResource::default();
        cu!(cuTexObjectGetResourceDesc, &raw mut driver, texture)?;
        write_resource(place, &driver)
    }

    texture_descriptor(place: *mut Texture, texture: usize) [cudaGetTextureObjectTextureDesc Legacy] {
        let mut driver = TextureDescriptor::default();
        cu!(cuTexObjectGetTextureDesc, &raw mut driver, texture)?;
        write(place, Texture::of(&driver))
    }

    texture_view(place: *mut View, texture: usize) [cudaGetTextureObjectResourceViewDesc Legacy] {
        let mut driver = DriverView::default();
        cu!(cuTexObjectGetResourceViewDesc, &raw mut driver, texture)?;
        write(place, driver.view)
    }

    surface_create(place: *mut u64, resource: *const Resource) [cudaCreateSurfaceObject Legacy] {
        write(place, 0)?;
        let resource = read(resource)?.driver()?;
        cu!(cuSurfObjectCreate, place, &raw const resource)
    }

    surface_destroy(surface: usize) [cudaDestroySurfaceObject Legacy] {
        if surface == 0 { Ok(()) } else { cu!(cuSurfObjectDestroy, surface) }
    }

    surface_resource(place: *mut Resource, surface: usize) [cudaGetSurfaceObjectResourceDesc Legacy] {
        let mut driver = DriverResource::default();
        cu!(cuSurfObjectGetResourceDesc, &raw mut driver, surface)?;
        write_resource(place, &driver)
    }

    linear_width(place: *mut usize, channels: *const Channels, device: i32)
    [cudaDeviceGetTexture1DLinearMaxWidth Legacy] {
        primary(device)?;
        read(channels)?.element()?;
        // CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_LINEAR_WIDTH.
        let mut most = 0_i32;
        cu!(no_context cuDeviceGetAttribute, &raw mut most, 69_i32, device)?;
        write(place, usize::try_from(most).unwrap_or(0))
    }
}
