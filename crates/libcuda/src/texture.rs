//! Texture and surface objects.

use orin_cuda_core::array::Element;
use orin_cuda_core::context::current;
use orin_cuda_core::texture::{Lookup, Part, Resource};
use orin_cuda_core::{Failure, Result};

use crate::abi::{Address, Handle, In, Out};
use crate::array::{array_of, mipmapped_of};
use crate::call::api;
use crate::descriptors::TextureDescriptor;

/// `CUDA_RESOURCE_DESC`: the kind, 16 double words whose meaning depends on it, flags.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct ResourceDescriptor {
    kind: u32,
    gap: u32,
    words: [u64; 16],
    flags: u32,
    rest: u32,
}

/// `CUDA_RESOURCE_VIEW_DESC`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct ViewDescriptor {
    format: u32,
    gap: u32,
    size: [usize; 3],
    levels: [u32; 2],
    layers: [u32; 2],
    reserved: [u32; 16],
}

/// The format and the number of channels in a double word.
fn element_of(word: u64) -> Result<Element> {
    // CAST: the halves.
    Element::check(word as u32, (word >> 32) as u32)
}

impl ResourceDescriptor {
    /// The resource; memory must be the GPU's.
    fn resource(self) -> Result<Resource> {
        let [first, second, third, fourth, fifth, ..] = self.words;
        // CAST: usize has 64 bits.
        let [third, fourth, fifth] = [third, fourth, fifth].map(|word| word as usize);
        Ok(match self.kind {
            0 => Resource::Array(array_of(first)?),
            1 => Resource::Mipmapped(mipmapped_of(first)?),
            2 => Resource::Linear {
                address: memory(first, third)?,
                element: element_of(second)?,
                bytes: third,
            },
            3 => {
                let bytes = fifth.checked_mul(fourth.saturating_sub(1));
                let bytes = bytes.ok_or_else(|| Failure::invalid("the pitch is too large"))?;
                Resource::Pitch {
                    address: memory(first, bytes)?,
                    element: element_of(second)?,
                    width: third,
                    height: fourth,
                    pitch: fifth,
                }
            }
            kind => return Err(Failure::invalid(format!("resource type {kind}"))),
        })
    }

    fn of(resource: &Resource) -> Self {
        let of_element = |element: &Element| u64::from(element.channels) << 32 | u64::from(element.format);
        let mut words = [0; 16];
        let kind = match resource {
            Resource::Array(array) => {
                words[0] = array.handle;
                0
            }
            Resource::Mipmapped(array) => {
                words[0] = array.handle;
                1
            }
            Resource::Linear { address, element, bytes } => {
                words[..3].copy_from_slice(&[*address, of_element(element), *bytes as u64]);
                2
            }
            Resource::Pitch { address, element, width, height, pitch } => {
                let sizes = [*width as u64, *height as u64, *pitch as u64];
                words[..2].copy_from_slice(&[*address, of_element(element)]);
                words[2..5].copy_from_slice(&sizes);
                3
            }
        };
        Self { kind, gap: 0, words, flags: 0, rest: 0 }
    }
}

/// The address on the GPU of that many bytes of memory of this library.
pub(crate) fn memory(address: Address, bytes: usize) -> Result<Address> {
    let context = current()?;
    let found = crate::memory::find(&context, address)
        .ok_or_else(|| Failure::invalid(format!("{address:#x} is in no memory of this library")))?;
    let offset = found.offset(address);
    if offset + bytes as u64 > found.bytes as u64 {
        return Err(Failure::invalid(format!(
            "{bytes} bytes at {address:#x} of a texture leave their memory"
        )));
    }
    Ok(found.base + offset)
}

impl From<TextureDescriptor> for Lookup {
    fn from(descriptor: TextureDescriptor) -> Self {
        Self {
            addressing: descriptor.addressing,
            filter: descriptor.filter,
            flags: descriptor.flags,
            anisotropy: descriptor.anisotropy,
            level_filter: descriptor.level_filter,
            bias: descriptor.bias,
            min_level: descriptor.min_level,
            max_level: descriptor.max_level,
            border: descriptor.border,
        }
    }
}

impl From<Lookup> for TextureDescriptor {
    fn from(lookup: Lookup) -> Self {
        Self {
            addressing: lookup.addressing,
            filter: lookup.filter,
            flags: lookup.flags,
            anisotropy: lookup.anisotropy,
            level_filter: lookup.level_filter,
            bias: lookup.bias,
            min_level: lookup.min_level,
            max_level: lookup.max_level,
            border: lookup.border,
            reserved: [0; 12],
        }
    }
}

api! {
    texture_create(
        place: Out<Handle>,
        resource: In<ResourceDescriptor>,
        lookup: In<TextureDescriptor>,
        view: In<ViewDescriptor>,
    ) [cuTexObjectCreate Legacy] {
        let place = place.need("the place for the texture")?;
        let (resource, lookup) = (resource.read("the resource")?, lookup.read("the texture's descriptor")?);
        let context = current()?;
        let part = if view.is_null() {
            None
        } else {
            let ViewDescriptor { format, levels, layers, .. } = view.read("the view")?;
            Some(Part { format, levels, layers })
        };
        place.set(context.gpu.textures.create(context.owner()?, resource.resource()?, lookup.into(), part)?);
        Ok(())
    }

    texture_destroy(texture: Handle) [cuTexObjectDestroy Legacy] {
        current()?.gpu.textures.destroy(texture, false)
    }

    texture_resource(place: Out<ResourceDescriptor>, texture: Handle) [cuTexObjectGetResourceDesc Legacy] {
        let place = place.need("the place for the resource")?;
        place.set(ResourceDescriptor::of(&current()?.gpu.textures.get(texture, false)?.resource));
        Ok(())
    }

    texture_descriptor(place: Out<TextureDescriptor>, texture: Handle) [cuTexObjectGetTextureDesc Legacy] {
        let place = place.need("the place for the descriptor")?;
        place.set(current()?.gpu.textures.get(texture, false)?.lookup.unwrap_or_default().into());
        Ok(())
    }

    texture_view(place: Out<ViewDescriptor>, texture: Handle) [cuTexObjectGetResourceViewDesc Legacy] {
        let place = place.need("the place for the view")?;
        let part = current()?.gpu.textures.get(texture, false)?.part;
        let Part { format, levels, layers } = part.ok_or_else(|| Failure::invalid("the texture has no view"))?;
        place.set(ViewDescriptor { format, gap: 0, size: [0; 3], levels, layers, reserved: [0; 16] });
        Ok(())
    }

    surface_create(place: Out<Handle>, resource: In<ResourceDescriptor>) [cuSurfObjectCreate Legacy] {
        let place = place.need("the place for the surface")?;
        let Resource::Array(array) = resource.read("the resource")?.resource()? else {
            return Err(Failure::invalid("a surface is made of an array"));
        };
        let context = current()?;
        place.set(context.gpu.textures.create_surface(context.owner()?, array)?);
        Ok(())
    }

    surface_destroy(surface: Handle) [cuSurfObjectDestroy Legacy] {
        current()?.gpu.textures.destroy(surface, true)
    }

    surface_resource(place: Out<ResourceDescriptor>, surface: Handle) [cuSurfObjectGetResourceDesc Legacy] {
        let place = place.need("the place for the resource")?;
        place.set(ResourceDescriptor::of(&current()?.gpu.textures.get(surface, true)?.resource));
        Ok(())
    }
}
