//! Texture and surface objects.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tegra_hcq::Texture;
use tegra_hcq::texture::{Addressing, Dimension, Filter, Header, MipFilter, Numbers, Sampler, Storage};

use crate::array::{Array, Element, Mipmapped, Owner};
use crate::code::{Code, Failure, Result};
use crate::ids::next_id;

/// CU_TRSF_READ_AS_INTEGER, _NORMALIZED_COORDINATES, _SRGB, _DISABLE_TRILINEAR_OPTIMIZATION, _SEAMLESS_CUBEMAP.
const AS_INTEGERS: u32 = 1;
const NORMALIZED: u32 = 2;
const SRGB: u32 = 0x10;
const SEAMLESS: u32 = 0x40;
const FLAGS: u32 = AS_INTEGERS | NORMALIZED | SRGB | 0x20 | SEAMLESS;
/// Alignment of lines of memory of a texture and of their pitch, in bytes. CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT is
/// more.
const ALIGNMENT: u64 = 32;
/// Most texels of linear memory.
const MOST_LINEAR: usize = 1 << 28;

/// What a texture or surface is made of.
#[derive(Clone, Debug)]
pub enum Resource {
    /// An array.
    Array(Arc<Array>),
    /// An array with levels.
    Mipmapped(Arc<Mipmapped>),
    /// Memory.
    Linear {
        /// GPU address.
        address: u64,
        /// Texels.
        element: Element,
        /// Size.
        bytes: usize,
    },
    /// Memory in lines.
    Pitch {
        /// GPU address.
        address: u64,
        /// Texels.
        element: Element,
        /// Texels of a line.
        width: usize,
        /// Lines.
        height: usize,
        /// Bytes from one line to the next.
        pitch: usize,
    },
}

/// How a texture is looked up, as `CUDA_TEXTURE_DESC`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Lookup {
    /// CU_TR_ADDRESS_MODE_* of each axis.
    pub addressing: [u32; 3],
    /// CU_TR_FILTER_MODE_*.
    pub filter: u32,
    /// CU_TRSF_*.
    pub flags: u32,
    /// Largest anisotropy.
    pub anisotropy: u32,
    /// Filter between levels.
    pub level_filter: u32,
    /// Added to levels.
    pub bias: f32,
    /// Least level.
    pub min_level: f32,
    /// Largest level.
    pub max_level: f32,
    /// Colour of the border.
    pub border: [f32; 4],
}

/// Part and format of a resource that a texture shows, as `CUDA_RESOURCE_VIEW_DESC`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Part {
    /// CU_RES_VIEW_FORMAT_*.
    pub format: u32,
    /// First and last level.
    pub levels: [u32; 2],
    /// First and last layer.
    pub layers: [u32; 2],
}

/// A texture object.
#[derive(Debug)]
pub struct TextureObject {
    /// Its numbers are taken until the object is gone.
    _texture: Texture,
    context: u64,
    /// What it is made of.
    pub resource: Resource,
    /// How it is looked up; `None` for a surface.
    pub lookup: Option<Lookup>,
    /// The part that it shows.
    pub part: Option<Part>,
}

/// The texture and surface objects of a GPU, by the numbers that kernels get.
#[derive(Debug, Default)]
pub struct Textures(Mutex<HashMap<u64, Arc<TextureObject>>>);

fn addressing(mode: u32, normalized: bool) -> Result<Addressing> {
    Ok(match mode {
        0 if normalized => Addressing::Wrap,
        2 if normalized => Addressing::Mirror,
        0..=2 => Addressing::Clamp,
        3 => Addressing::Border,
        _ => return Err(Failure::invalid(format!("address mode {mode}"))),
    })
}

fn filter(mode: u32) -> Result<bool> {
    match mode {
        0 | 1 => Ok(mode == 1),
        _ => Err(Failure::invalid(format!("filter mode {mode}"))),
    }
}

/// The code of a largest ratio of axes.
fn anisotropy(most: u32) -> u32 {
    [2, 4, 6, 8, 10, 12, 16].iter().filter(|ratio| most >= **ratio).count() as u32
}

impl Lookup {
    fn sampler(&self, header: &Header, levels: bool) -> Result<Sampler> {
        let normalized = self.flags & NORMALIZED != 0;
        let mut modes = [Addressing::Clamp; 3];
        for (mode, number) in modes.iter_mut().zip(self.addressing) {
            *mode = addressing(number, normalized)?;
        }
        let linear = filter(self.filter)?;
        let linear_levels = filter(self.level_filter)?;
        let integers = header.format.is_integer();
        if integers && linear {
            return Err(Failure::invalid("integers are not filtered"));
        }
        let limit = |level: f32| level.clamp(0.0, 15.0);
        Ok(Sampler {
            addressing: modes,
            filter: if linear { Filter::Linear } else { Filter::Point },
            mip_filter: match (levels, linear_levels) {
                (false, _) => MipFilter::None,
                (true, false) => MipFilter::Point,
                (true, true) => MipFilter::Linear,
            },
            bias: if levels { self.bias.clamp(-16.0, 15.9) } else { 0.0 },
            min_level: if levels { limit(self.min_level) } else { 0.0 },
            max_level: if levels { limit(self.max_level) } else { 0.0 },
            anisotropy: anisotropy(self.anisotropy),
            seamless: self.flags & SEAMLESS != 0,
            srgb: self.flags & SRGB != 0,
            // Textures of integers get the bits, too.
            border: self.border.map(f32::to_bits),
        })
    }
}

impl Part {
    /// The format that a number names.
    fn element(self) -> Result<Option<Element>> {
        const FORMATS: [u32; 8] = [1, 8, 2, 9, 3, 10, 0x10, 0x20];
        let Some(at) = self.format.checked_sub(1) else { return Ok(None) };
        let format = FORMATS
            .get(at as usize / 3)
            .ok_or_else(|| Failure::new(Code::NotSupported, format!("view format {}", self.format)))?;
        Ok(Some(Element { format: *format, channels: [1, 2, 4][at as usize % 3] }))
    }
}

impl Resource {
    fn element(&self) -> Element {
        match self {
            Self::Array(array) => array.shape.element,
            Self::Mipmapped(array) => array.shape.element,
            Self::Linear { element, .. } | Self::Pitch { element, .. } => *element,
        }
    }

    /// The header of a texture.
    fn header(&self, lookup: &Lookup, part: Option<Part>) -> Result<Header> {
        let (own, normalized) = (self.element(), lookup.flags & NORMALIZED != 0);
        let element = part.map_or(Ok(None), Part::element)?.unwrap_or(own);
        if element.bytes() != own.bytes() {
            return Err(Failure::invalid("the format of the view has other bytes"));
        }
        let mut format = element.texels(lookup.flags & AS_INTEGERS != 0)?;
        format.srgb = lookup.flags & SRGB != 0 && format.numbers == Numbers::Unorm;
        let mut header = match self {
            Self::Array(array) => {
                let mut header = array.memory().header(&array.shape, format, normalized, false);
                (header.first_level, header.last_level) = (array.level(), array.level());
                header
            }
            Self::Mipmapped(array) => array.memory().header(&array.shape, format, normalized, false),
            Self::Linear { address, bytes, .. } => linear(*address, format, *bytes)?,
            Self::Pitch { address, width, height, pitch, .. } => {
                lines(*address, format, (*width, *height, *pitch), normalized)?
            }
        };
        if let Some(part) = part {
            part.show(&mut header)?;
        }
        Ok(header)
    }
}

/// The header of linear memory.
fn linear(address: u64, format: tegra_hcq::texture::Format, bytes: usize) -> Result<Header> {
    let width = bytes / format.components.bytes() as usize;
    let aligned = address.is_multiple_of(format.components.bytes().into());
    if !aligned || width == 0 || width > MOST_LINEAR {
        return Err(Failure::invalid(format!("a texture of {bytes} bytes at {address:#x}")));
    }
    Ok(Header {
        format,
        storage: Storage::Buffer { va: address },
        dimension: Dimension::Buffer,
        width: width as u64,
        height: 1,
        depth: 1,
        levels: 1,
        first_level: 0,
        last_level: 0,
        normalized: false,
    })
}

/// The header of memory in lines.
fn lines(
    address: u64,
    format: tegra_hcq::texture::Format,
    (width, height, pitch): (usize, usize, usize),
    normalized: bool,
) -> Result<Header> {
    let row = width.checked_mul(format.components.bytes() as usize);
    let fits = row.is_some_and(|row| row <= pitch) && pitch.is_multiple_of(ALIGNMENT as usize);
    if !address.is_multiple_of(ALIGNMENT) || !fits || width == 0 || height == 0 {
        let what = format!("{width} by {height} texels with a pitch of {pitch} at {address:#x}");
        return Err(Failure::invalid(what));
    }
    let number =
        |size: usize| u32::try_from(size).map_err(|_| Failure::invalid(format!("{size} in a texture")));
    Ok(Header {
        format,
        storage: Storage::Pitch { va: address, pitch: number(pitch)? },
        dimension: Dimension::TwoDNoMipmap,
        width: width as u64,
        height: number(height)?,
        depth: 1,
        levels: 1,
        first_level: 0,
        last_level: 0,
        normalized,
    })
}

impl Part {
    /// Limits a header to the levels; parts of the layers are not supported.
    fn show(self, header: &mut Header) -> Result<()> {
        let [first, last] = self.levels;
        if first > last || last >= header.levels.max(1) {
            return Err(Failure::invalid(format!("levels {first} to {last} of {}", header.levels)));
        }
        let all = self.layers[0] == 0 && (self.layers[1] == 0 || self.layers[1] + 1 >= header.depth);
        if !all {
            return Err(Failure::new(Code::NotSupported, "textures of some layers of an array"));
        }
        (header.first_level, header.last_level) = (first, last);
        Ok(())
    }
}

impl Textures {
    /// Creates a texture object. Returns its number.
    ///
    /// # Errors
    ///
    /// [`Code::InvalidValue`] for a description that fits no texture, [`Code::NotSupported`].
    pub fn create(
        &self,
        owner: Owner<'_>,
        resource: Resource,
        lookup: Lookup,
        part: Option<Part>,
    ) -> Result<u64> {
        if lookup.flags & !FLAGS != 0 {
            return Err(Failure::invalid(format!("flags {:#x} of a texture", lookup.flags)));
        }
        let header = resource.header(&lookup, part)?;
        let sampler = lookup.sampler(&header, matches!(resource, Resource::Mipmapped(_)))?;
        self.enter(owner, &header, &sampler, (resource, Some(lookup), part))
    }

    /// Creates a surface object. Returns its number.
    ///
    /// # Errors
    ///
    /// [`Code::InvalidValue`] if the array was not created for surfaces.
    pub fn create_surface(&self, owner: Owner<'_>, array: Arc<Array>) -> Result<u64> {
        if !array.is_surface() {
            return Err(Failure::invalid("the array was created without CUDA_ARRAY3D_SURFACE_LDST"));
        }
        let format = array.shape.element.texels(true)?;
        let mut header = array.memory().header(&array.shape, format, false, true);
        (header.first_level, header.last_level) = (array.level(), array.level());
        self.enter(owner, &header, &Sampler::default(), (Resource::Array(array), None, None))
    }

    fn enter(
        &self,
        owner: Owner<'_>,
        header: &Header,
        sampler: &Sampler,
        (resource, lookup, part): (Resource, Option<Lookup>, Option<Part>),
    ) -> Result<u64> {
        // SAFETY: who launches a kernel with the number promises that the memory is still allocated; arrays are kept.
        let texture = unsafe { owner.device.texture_raw(header, sampler)? };
        // Kernels use the lower half; the upper one is never used again.
        let number = (next_id() & u64::from(u32::MAX >> 1)) << 32 | texture.handle();
        let context = owner.context;
        let object = TextureObject { _texture: texture, context, resource, lookup, part };
        self.0.lock().insert(number, Arc::new(object));
        Ok(number)
    }

    /// The object with a number; a surface, or a texture.
    ///
    /// # Errors
    ///
    /// [`Code::InvalidValue`] if there is none.
    pub fn get(&self, number: u64, surface: bool) -> Result<Arc<TextureObject>> {
        let found = self.0.lock().get(&number).cloned();
        let found = found.filter(|object| object.lookup.is_none() == surface);
        found.ok_or_else(|| Failure::invalid(format!("no such texture or surface as {number:#x}")))
    }

    /// Destroys an object.
    ///
    /// # Errors
    ///
    /// As [`Textures::get`].
    pub fn destroy(&self, number: u64, surface: bool) -> Result<()> {
        self.get(number, surface)?;
        let gone = self.0.lock().remove(&number);
        drop(gone);
        Ok(())
    }

    /// Destroys the objects of a context.
    pub(crate) fn free_of(&self, context: u64) {
        let mut gone = Vec::new();
        self.0.lock().retain(|_, object| {
            let stays = object.context != context;
            if !stays {
                gone.push(Arc::clone(object));
            }
            stays
        });
    }
}
