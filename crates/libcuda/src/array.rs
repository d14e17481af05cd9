//! Arrays, with levels or without.

use core::ffi::c_uint;
use std::sync::Arc;

use orin_cuda_core::array::{Array, Element, Mipmapped, Shape};
use orin_cuda_core::context::current;
use orin_cuda_core::{Code, Failure, Result, driver};

use crate::abi::{Handle, In, Ordinal, Out};
use crate::call::api;
use crate::descriptors::Descriptor3d;

/// `CUDA_ARRAY_DESCRIPTOR`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Descriptor {
    pub(crate) width: usize,
    pub(crate) height: usize,
    pub(crate) format: u32,
    pub(crate) channels: u32,
}

/// `CUDA_ARRAY_MEMORY_REQUIREMENTS`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Requirements {
    size: usize,
    alignment: usize,
    reserved: [u32; 4],
}

impl Descriptor3d {
    fn shape(self) -> Result<Shape> {
        let Self { width, height, depth, format, channels, flags } = self;
        Ok(Shape { element: Element::check(format, channels)?, width, height, depth, flags })
    }

    fn of(shape: Shape) -> Self {
        let Shape { element: Element { format, channels }, width, height, depth, flags } = shape;
        Self { width, height, depth, format, channels, flags }
    }
}

impl From<Descriptor> for Descriptor3d {
    fn from(descriptor: Descriptor) -> Self {
        let Descriptor { width, height, format, channels } = descriptor;
        Self { width, height, depth: 0, format, channels, flags: 0 }
    }
}

/// The array that a handle names.
pub(crate) fn array_of(handle: Handle) -> Result<Arc<Array>> {
    driver()?.objects.get(handle)
}

/// The mipmapped array that a handle names.
pub(crate) fn mipmapped_of(handle: Handle) -> Result<Arc<Mipmapped>> {
    driver()?.objects.get(handle)
}

fn create(place: Out<Handle>, descriptor: Descriptor3d) -> Result<()> {
    let place = place.need("the place for the array")?;
    let shape = descriptor.shape()?;
    place.set(Array::create(current()?.owner()?, shape)?.handle);
    Ok(())
}

/// Sparse arrays are refused when they are created.
fn not_sparse() -> Result<()> {
    Err(Failure::invalid("the array is not sparse"))
}

api! {
    array_create(place: Out<Handle>, descriptor: In<Descriptor>) [cuArrayCreate_v2 Legacy] {
        create(place, descriptor.read("the descriptor")?.into())
    }

    array_create_3d(place: Out<Handle>, descriptor: In<Descriptor3d>) [cuArray3DCreate_v2 Legacy] {
        create(place, descriptor.read("the descriptor")?)
    }

    array_descriptor(place: Out<Descriptor>, array: Handle) [cuArrayGetDescriptor_v2 Legacy] {
        let place = place.need("the place for the descriptor")?;
        let Descriptor3d { width, height, format, channels, .. } = Descriptor3d::of(array_of(array)?.shape);
        place.set(Descriptor { width, height, format, channels });
        Ok(())
    }

    array_descriptor_3d(place: Out<Descriptor3d>, array: Handle) [cuArray3DGetDescriptor_v2 Legacy] {
        let place = place.need("the place for the descriptor")?;
        place.set(Descriptor3d::of(array_of(array)?.shape));
        Ok(())
    }

    array_requirements(place: Out<Requirements>, array: Handle, device: Ordinal)
    [cuArrayGetMemoryRequirements Legacy] {
        let place = place.need("the place for the requirements")?;
        driver()?.gpu(device)?;
        array_of(array)?;
        place.need("the place")?;
        Err(Failure::invalid("the array was created without CUDA_ARRAY3D_DEFERRED_MAPPING"))
    }

    array_sparse(place: Out<c_uint>, array: Handle) [cuArrayGetSparseProperties Legacy] {
        place.need("the place for the properties")?;
        array_of(array)?;
        not_sparse()
    }

    array_plane(place: Out<Handle>, array: Handle, plane: c_uint) [cuArrayGetPlane Legacy] {
        place.need("the place for the plane")?;
        array_of(array)?;
        Err(Failure::invalid(format!("plane {plane} of an array of one plane")))
    }

    array_destroy(array: Handle) [cuArrayDestroy Legacy] {
        array_of(array)?.destroy(&driver()?.objects)
    }

    mipmapped_create(place: Out<Handle>, descriptor: In<Descriptor3d>, levels: c_uint)
    [cuMipmappedArrayCreate Legacy] {
        let place = place.need("the place for the array")?;
        let shape = descriptor.read("the descriptor")?.shape()?;
        place.set(Mipmapped::create(current()?.owner()?, shape, levels)?.handle);
        Ok(())
    }

    mipmapped_level(place: Out<Handle>, array: Handle, level: c_uint) [cuMipmappedArrayGetLevel Legacy] {
        let place = place.need("the place for the level")?;
        place.set(mipmapped_of(array)?.level(&driver()?.objects, level)?.handle);
        Ok(())
    }

    mipmapped_requirements(place: Out<Requirements>, array: Handle, device: Ordinal)
    [cuMipmappedArrayGetMemoryRequirements Legacy] {
        place.need("the place for the requirements")?;
        driver()?.gpu(device)?;
        mipmapped_of(array)?;
        Err(Failure::new(Code::InvalidValue, "the array was created without CUDA_ARRAY3D_DEFERRED_MAPPING"))
    }

    mipmapped_sparse(place: Out<c_uint>, array: Handle) [cuMipmappedArrayGetSparseProperties Legacy] {
        place.need("the place for the properties")?;
        mipmapped_of(array)?;
        not_sparse()
    }

    mipmapped_destroy(array: Handle) [cuMipmappedArrayDestroy Legacy] {
        mipmapped_of(array)?.destroy(&driver()?.objects)
    }
}
