//! Texture and surface references of modules.

use core::ffi::{c_int, c_uint};
use std::sync::Arc;

use orin_cuda_core::array::Element;
use orin_cuda_core::context::current;
use orin_cuda_core::reference::{Bound, Reference, State};
use orin_cuda_core::{Code, Failure, Module, Result, driver};

use crate::abi::{Address, Handle, In, Out, Text};
use crate::array::{Descriptor, array_of, mipmapped_of};
use crate::call::api;
use crate::module::function_of;
use crate::texture::memory;

/// CU_TRSA_OVERRIDE_FORMAT, which arrays need.
const OVERRIDE_FORMAT: c_uint = 1;

fn reference_of(handle: Handle, surface: bool) -> Result<Arc<Reference>> {
    let found = driver()?.objects.get::<Reference>(handle)?;
    if found.surface == surface { Ok(found) } else { Err(Code::InvalidHandle.into()) }
}

/// Changes a texture reference.
fn change(handle: Handle, change: impl FnOnce(&mut State)) -> Result<()> {
    reference_of(handle, false)?.change(change)
}

/// Binds texels to a reference of a texture.
fn bind(handle: Handle, element: Element, bound: Bound) -> Result<()> {
    change(handle, |state| (state.element, state.bound) = (element, Some(bound)))
}

/// Writes something of a texture reference.
fn answer<T: Copy>(place: Out<T>, handle: Handle, of: impl FnOnce(State) -> Result<T>) -> Result<()> {
    let place = place.need("the place for the answer")?;
    place.set(of(reference_of(handle, false)?.state())?);
    Ok(())
}

fn axis(axis: c_int) -> Result<usize> {
    let found = usize::try_from(axis).ok().filter(|axis| *axis < 3);
    found.ok_or_else(|| Failure::invalid(format!("axis {axis}")))
}

fn mode(mode: u32, most: u32) -> Result<u32> {
    if mode <= most { Ok(mode) } else { Err(Failure::invalid(format!("mode {mode}"))) }
}

fn override_format(flags: c_uint) -> Result<()> {
    if flags == OVERRIDE_FORMAT { Ok(()) } else { Err(Failure::invalid(format!("flags {flags:#x}"))) }
}

fn find(place: Out<Handle>, module: Handle, name: Text, surface: bool) -> Result<()> {
    let (place, name) = (place.need("the place for the reference")?, name.get("the name")?);
    current()?;
    place.set(driver()?.objects.get::<Module>(module)?.reference(name, surface)?.handle());
    Ok(())
}

fn set_lines(handle: Handle, descriptor: In<Descriptor>, address: Address, pitch: usize) -> Result<()> {
    let Descriptor { width, height, format, channels } = descriptor.read("the descriptor")?;
    let element = Element::check(format, channels)?;
    let bytes = pitch.checked_mul(height).ok_or_else(|| Failure::invalid("the pitch is too large"))?;
    let address = memory(address, bytes)?;
    bind(handle, element, Bound::Pitch(address, [width, height, pitch]))
}

api! {
    texture_reference(place: Out<Handle>, module: Handle, name: Text) [cuModuleGetTexRef Legacy] {
        find(place, module, name, false)
    }

    surface_reference(place: Out<Handle>, module: Handle, name: Text) [cuModuleGetSurfRef Legacy] {
        find(place, module, name, true)
    }

    create(place: Out<Handle>) [cuTexRefCreate Legacy] {
        let place = place.need("the place for the reference")?;
        let context = current()?;
        place.set(Reference::create(context.gpu, context.owner()?, false, false)?.handle());
        Ok(())
    }

    destroy(handle: Handle) [cuTexRefDestroy Legacy] {
        let reference = reference_of(handle, false)?;
        if reference.of_module {
            return Err(Failure::invalid("the reference belongs to a module"));
        }
        reference.change(|state| state.bound = None)?;
        driver()?.objects.remove::<Reference>(handle).map(drop)
    }

    set_array(handle: Handle, array: Handle, flags: c_uint) [cuTexRefSetArray Legacy] {
        override_format(flags)?;
        let array = array_of(array)?;
        bind(handle, array.shape.element, Bound::Array(array))
    }

    set_mipmapped(handle: Handle, array: Handle, flags: c_uint) [cuTexRefSetMipmappedArray Legacy] {
        override_format(flags)?;
        let array = mipmapped_of(array)?;
        bind(handle, array.shape.element, Bound::Mipmapped(array))
    }

    set_address(offset: Out<usize>, handle: Handle, address: Address, bytes: usize)
    [cuTexRefSetAddress_v2 Legacy] {
        let address = if bytes == 0 { None } else { Some(memory(address, bytes)?) };
        change(handle, |state| state.bound = address.map(|address| Bound::Linear(address, bytes)))?;
        offset.set(0);
        Ok(())
    }

    set_address_2d(handle: Handle, descriptor: In<Descriptor>, address: Address, pitch: usize)
    [cuTexRefSetAddress2D_v2 Legacy] [cuTexRefSetAddress2D_v3 Legacy] {
        set_lines(handle, descriptor, address, pitch)
    }

    set_format(handle: Handle, format: u32, channels: c_int) [cuTexRefSetFormat Legacy] {
        let element = Element::check(format, u32::try_from(channels).unwrap_or(0))?;
        change(handle, |state| state.element = element)
    }

    set_addressing(handle: Handle, number: c_int, value: u32) [cuTexRefSetAddressMode Legacy] {
        let (number, value) = (axis(number)?, mode(value, 3)?);
        change(handle, |state| state.lookup.addressing[number] = value)
    }

    set_filter(handle: Handle, value: u32) [cuTexRefSetFilterMode Legacy] {
        let value = mode(value, 1)?;
        change(handle, |state| state.lookup.filter = value)
    }

    set_level_filter(handle: Handle, value: u32) [cuTexRefSetMipmapFilterMode Legacy] {
        let value = mode(value, 1)?;
        change(handle, |state| state.lookup.level_filter = value)
    }

    set_bias(handle: Handle, bias: f32) [cuTexRefSetMipmapLevelBias Legacy] {
        change(handle, |state| state.lookup.bias = bias)
    }

    set_levels(handle: Handle, least: f32, most: f32) [cuTexRefSetMipmapLevelClamp Legacy] {
        change(handle, |state| (state.lookup.min_level, state.lookup.max_level) = (least, most))
    }

    set_anisotropy(handle: Handle, most: c_uint) [cuTexRefSetMaxAnisotropy Legacy] {
        change(handle, |state| state.lookup.anisotropy = most)
    }

    set_border(handle: Handle, border: In<[f32; 4]>) [cuTexRefSetBorderColor Legacy] {
        let border = border.read("the colour")?;
        change(handle, |state| state.lookup.border = border)
    }

    set_flags(handle: Handle, flags: c_uint) [cuTexRefSetFlags Legacy] {
        // CU_TRSF_READ_AS_INTEGER, _NORMALIZED_COORDINATES, _SRGB, _DISABLE_TRILINEAR_OPTIMIZATION, _SEAMLESS_CUBEMAP.
        if flags & !0x73 != 0 {
            return Err(Failure::invalid(format!("flags {flags:#x} of a texture reference")));
        }
        change(handle, |state| state.lookup.flags = flags)
    }

    get_array(place: Out<Handle>, handle: Handle) [cuTexRefGetArray Legacy] {
        answer(place, handle, |state| match state.bound {
            Some(Bound::Array(array)) => Ok(array.handle),
            _ => Err(Failure::invalid("no array is bound")),
        })
    }

    get_mipmapped(place: Out<Handle>, handle: Handle) [cuTexRefGetMipmappedArray Legacy] {
        answer(place, handle, |state| match state.bound {
            Some(Bound::Mipmapped(array)) => Ok(array.handle),
            _ => Err(Failure::invalid("no array with levels is bound")),
        })
    }

    get_address(place: Out<Address>, handle: Handle) [cuTexRefGetAddress_v2 Legacy] {
        answer(place, handle, |state| match state.bound {
            Some(Bound::Linear(address, _) | Bound::Pitch(address, _)) => Ok(address),
            _ => Err(Failure::invalid("no memory is bound")),
        })
    }

    get_format(format: Out<u32>, channels: Out<c_int>, handle: Handle) [cuTexRefGetFormat Legacy] {
        let element = reference_of(handle, false)?.state().element;
        if format.is_null() && channels.is_null() {
            return Err(Failure::invalid("both places are NULL"));
        }
        format.set(element.format);
        channels.set(element.channels.cast_signed());
        Ok(())
    }

    get_addressing(place: Out<u32>, handle: Handle, number: c_int) [cuTexRefGetAddressMode Legacy] {
        let number = axis(number)?;
        answer(place, handle, |state| Ok(state.lookup.addressing[number]))
    }

    get_filter(place: Out<u32>, handle: Handle) [cuTexRefGetFilterMode Legacy] {
        answer(place, handle, |state| Ok(state.lookup.filter))
    }

    get_level_filter(place: Out<u32>, handle: Handle) [cuTexRefGetMipmapFilterMode Legacy] {
        answer(place, handle, |state| Ok(state.lookup.level_filter))
    }

    get_bias(place: Out<f32>, handle: Handle) [cuTexRefGetMipmapLevelBias Legacy] {
        answer(place, handle, |state| Ok(state.lookup.bias))
    }

    get_levels(least: Out<f32>, most: Out<f32>, handle: Handle) [cuTexRefGetMipmapLevelClamp Legacy] {
        let most = most.need("the place for the largest level")?;
        answer(least, handle, |state| Ok(state.lookup.min_level))?;
        answer(most, handle, |state| Ok(state.lookup.max_level))
    }

    get_anisotropy(place: Out<c_uint>, handle: Handle) [cuTexRefGetMaxAnisotropy Legacy] {
        answer(place, handle, |state| Ok(state.lookup.anisotropy))
    }

    get_border(place: Out<[f32; 4]>, handle: Handle) [cuTexRefGetBorderColor Legacy] {
        answer(place, handle, |state| Ok(state.lookup.border))
    }

    get_flags(place: Out<c_uint>, handle: Handle) [cuTexRefGetFlags Legacy] {
        answer(place, handle, |state| Ok(state.lookup.flags))
    }

    set_of_function(function: Handle, unit: c_int, handle: Handle) [cuParamSetTexRef Legacy] {
        function_of(function)?;
        reference_of(handle, false)?;
        // CU_PARAM_TR_DEFAULT: the references of a module belong to its functions anyway.
        if unit == -1 { Ok(()) } else { Err(Failure::invalid(format!("texture unit {unit}"))) }
    }

    set_surface(handle: Handle, array: Handle, flags: c_uint) [cuSurfRefSetArray Legacy] {
        if flags != 0 {
            return Err(Failure::invalid(format!("flags {flags:#x} of a surface reference")));
        }
        let array = array_of(array)?;
        if !array.is_surface() {
            return Err(Failure::invalid("the array was created without CUDA_ARRAY3D_SURFACE_LDST"));
        }
        reference_of(handle, true)?.change(|state| state.bound = Some(Bound::Array(array)))
    }

    get_surface(place: Out<Handle>, handle: Handle) [cuSurfRefGetArray Legacy] {
        let place = place.need("the place for the array")?;
        match reference_of(handle, true)?.state().bound {
            Some(Bound::Array(array)) => place.set(array.handle),
            _ => return Err(Failure::invalid("no array is bound")),
        }
        Ok(())
    }
}
