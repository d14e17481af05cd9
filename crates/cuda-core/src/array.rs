//! Arrays (`CUarray`), with levels or without: memory of textures and surfaces, whose texels lie in blocks.

use core::mem::take;
use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tegra_hcq::texture::blocks::{Layout, Level};
use tegra_hcq::texture::{Components, Dimension, Format, Header, Numbers, Storage};
use tegra_hcq::{BlockSurface, Buffer, Device};

use crate::code::{Code, Failure, Result};
use crate::objects::{Kind, Objects};

/// CUDA_ARRAY3D_LAYERED, _SURFACE_LDST, _CUBEMAP, _TEXTURE_GATHER, _COLOR_ATTACHMENT.
const LAYERED: u32 = 1;
const SURFACE: u32 = 2;
const CUBEMAP: u32 = 4;
const KNOWN: u32 = LAYERED | SURFACE | CUBEMAP | 8 | 0x20;
/// CUDA_ARRAY3D_DEPTH_TEXTURE, _SPARSE, _DEFERRED_MAPPING.
const REFUSED: u32 = 0x10 | 0x40 | 0x80;
/// Logarithm of the largest height of a block in GOBs.
const BLOCK_HEIGHT_LOG2: u32 = 4;

/// What a component is (`CUarray_format`), with the number of components of a texel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Element {
    /// CU_AD_FORMAT_*.
    pub format: u32,
    /// 1, 2 or 4.
    pub channels: u32,
}

impl Element {
    /// Checks a format, and the number of components.
    ///
    /// # Errors
    ///
    /// [`Code::InvalidValue`] if there is no such format; [`Code::NotSupported`] for those of videos and blocks.
    pub fn check(format: u32, channels: u32) -> Result<Self> {
        let element = Self { format, channels };
        match format {
            1..=3 | 8..=10 | 0x10 | 0x20 if matches!(channels, 1 | 2 | 4) => Ok(element),
            0xb0 | 0x91..=0x9f | 0xc0..=0xdf => {
                Err(Failure::new(Code::NotSupported, format!("array format {format:#x}")))
            }
            _ => Err(Failure::invalid(format!("array format {format:#x} with {channels} channels"))),
        }
    }

    fn bits(self) -> u32 {
        match self.format {
            1 | 8 => 8,
            2 | 9 | 0x10 => 16,
            _ => 32,
        }
    }

    /// Bytes of a texel.
    pub fn bytes(self) -> usize {
        (self.channels * self.bits() / 8) as usize
    }

    /// The GPU's format. Integers of 8 and 16 bits become numbers from 0 or -1 to 1 unless they are read as integers.
    pub(crate) fn texels(self, as_integers: bool) -> Result<Format> {
        let numbers = match self.format {
            0x10 | 0x20 => Numbers::Float,
            1 | 2 if !as_integers => Numbers::Unorm,
            8 | 9 if !as_integers => Numbers::Snorm,
            1..=3 => Numbers::Uint,
            _ => Numbers::Sint,
        };
        let components = Components::of(self.channels, self.bits());
        let components = components.ok_or_else(|| Failure::invalid(format!("{} channels", self.channels)))?;
        Ok(Format::new(components, numbers))
    }
}

/// Size and kind of an array as `CUDA_ARRAY3D_DESCRIPTOR` has them: 0 stands for a dimension that is absent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Texels.
    pub element: Element,
    /// Texels of a row.
    pub width: usize,
    /// Rows.
    pub height: usize,
    /// Slices or layers.
    pub depth: usize,
    /// CUDA_ARRAY3D_*.
    pub flags: u32,
}

impl Shape {
    /// Dimensions of the texture, and the most of each size.
    fn dimension(&self) -> Result<(Dimension, [usize; 3])> {
        const LAYERS: usize = 2048;
        let wide = 1 << 17;
        let found = match (self.flags & (LAYERED | CUBEMAP), self.height, self.depth) {
            (0, 0, 0) => (Dimension::OneD, [wide, 0, 0]),
            (0, _, 0) => (Dimension::TwoD, [wide, 1 << 16, 0]),
            (0, 1.., _) => (Dimension::ThreeD, [1 << 14; 3]),
            (LAYERED, 0, 1..) => (Dimension::OneDArray, [1 << 15, 0, LAYERS]),
            (LAYERED, _, 1..) => (Dimension::TwoDArray, [1 << 15, 1 << 15, LAYERS]),
            (CUBEMAP, height, 6) if height == self.width => (Dimension::Cube, [1 << 15, 1 << 15, 6]),
            (5, height, 6..) if height == self.width && self.depth.is_multiple_of(6) => {
                (Dimension::CubeArray, [1 << 15, 1 << 15, 2046])
            }
            _ => return Err(Failure::invalid(format!("{self:?}"))),
        };
        Ok(found)
    }

    fn check(&self) -> Result<Dimension> {
        if self.flags & REFUSED != 0 {
            return Err(Failure::new(Code::NotSupported, format!("array flags {:#x}", self.flags)));
        }
        let (dimension, most) = self.dimension()?;
        let fits = [self.width, self.height, self.depth].iter().zip(most).all(|(size, most)| *size <= most);
        if self.flags & !KNOWN != 0 || self.width == 0 || !fits {
            return Err(Failure::invalid(format!("{self:?}")));
        }
        Ok(dimension)
    }

    /// Rows of the first level.
    fn rows(&self) -> usize {
        self.height.max(1)
    }
}

/// The memory of all levels.
#[derive(Debug)]
pub(crate) struct Memory {
    buffer: Buffer<u8>,
    layout: Layout,
    dimension: Dimension,
    levels: u32,
}

/// An array.
#[derive(Debug)]
pub struct Array {
    /// Its handle.
    pub handle: u64,
    /// Handle of its context.
    pub context: u64,
    /// Size of this level.
    pub shape: Shape,
    /// Which level of the memory it is.
    level: u32,
    /// Whether it belongs to a mipmapped array.
    part: bool,
    memory: Arc<Memory>,
}

/// An array with levels (`CUmipmappedArray`).
#[derive(Debug)]
pub struct Mipmapped {
    /// Its handle.
    pub handle: u64,
    /// Handle of its context.
    pub context: u64,
    /// Size of the first level.
    pub shape: Shape,
    memory: Arc<Memory>,
    parts: Mutex<BTreeMap<u32, Arc<Array>>>,
}

/// Where arrays and texture objects are created.
#[derive(Clone, Copy, Debug)]
pub struct Owner<'a> {
    /// The device with the memory.
    pub device: &'a Device,
    /// Handle of the context that they end with.
    pub context: u64,
    /// Where the handles are entered.
    pub objects: &'a Objects,
}

impl Kind for Array {}
impl Kind for Mipmapped {}

impl Memory {
    fn new(device: &Device, shape: &Shape, levels: u32) -> Result<Arc<Self>> {
        let dimension = shape.check()?;
        let texel = shape.element.bytes() as u64;
        let depth = if dimension == Dimension::ThreeD { shape.depth } else { 1 };
        let number = |size: usize| u32::try_from(size).map_err(|_| Failure::invalid(format!("{shape:?}")));
        let layout = Layout {
            width_bytes: shape.width as u64 * texel,
            height: number(shape.rows())?,
            depth: number(depth)?,
            height_log2: BLOCK_HEIGHT_LOG2,
            depth_log2: 0,
        };
        let first = layout.level(0, texel);
        let layout = Layout { height_log2: first.height_log2, ..layout };
        let layers = if dimension == Dimension::ThreeD { 1 } else { shape.depth.max(1) as u64 };
        let bytes = layout.layer_bytes(levels, texel).checked_mul(layers).ok_or(Code::OutOfMemory)?;
        // CAST: usize has 64 bits.
        let buffer = device.alloc::<u8>(bytes as usize)?;
        Ok(Arc::new(Self { buffer, layout, dimension, levels }))
    }

    /// The header of the texture or surface.
    pub(crate) fn header(&self, shape: &Shape, format: Format, normalized: bool, surface: bool) -> Header {
        let (width, depth) =
            (self.layout.width_bytes / u64::from(format.components.bytes()), shape.depth.max(1));
        // CAST: checked when the array was created.
        let depth = depth as u32;
        let (dimension, depth) = match self.dimension {
            // Kernels name the faces of surfaces by the number of the layer.
            Dimension::Cube | Dimension::CubeArray if surface => (Dimension::TwoDArray, depth),
            Dimension::Cube | Dimension::CubeArray => (self.dimension, depth / 6),
            // Code for one dimension looks up in two, at the row 0.
            Dimension::OneD if !surface => (Dimension::TwoD, depth),
            dimension => (dimension, depth),
        };
        Header {
            format,
            storage: Storage::Blocks {
                va: self.buffer.gpu_va(),
                height_log2: self.layout.height_log2,
                depth_log2: self.layout.depth_log2,
            },
            dimension,
            width,
            height: self.layout.height,
            depth,
            levels: self.levels,
            first_level: 0,
            last_level: self.levels - 1,
            normalized,
        }
    }
}

/// A rectangle of an array in each of several slices or layers.
#[derive(Clone, Copy, Debug)]
pub struct Rectangle {
    /// In the first one.
    pub first: BlockSurface,
    /// Bytes from one to the next.
    pub step: u64,
    /// Handle of the array.
    pub array: u64,
    /// Byte of a row, row, and slice or layer at which it begins.
    pub origin: [usize; 3],
}

impl Rectangle {
    /// The rectangle in slice or layer `number` from the first on.
    pub(crate) fn plane(&self, number: usize) -> BlockSurface {
        BlockSurface { va: self.first.va + number as u64 * self.step, ..self.first }
    }
}

impl Array {
    /// Creates an array.
    ///
    /// # Errors
    ///
    /// [`Code::InvalidValue`] for a shape that does not exist, [`Code::NotSupported`], [`Code::OutOfMemory`].
    pub fn create(owner: Owner<'_>, shape: Shape) -> Result<Arc<Self>> {
        let memory = Memory::new(owner.device, &shape, 1)?;
        let context = owner.context;
        owner.objects.insert(|handle| Ok(Self { handle, context, shape, level: 0, part: false, memory }))
    }

    /// Destroys it. The memory stays while work that was submitted uses it.
    ///
    /// # Errors
    ///
    /// [`Code::InvalidHandle`] if it was destroyed; [`Code::InvalidValue`] for a level of a mipmapped array.
    pub fn destroy(&self, objects: &Objects) -> Result<()> {
        if self.part {
            return Err(Failure::invalid("a level belongs to its mipmapped array"));
        }
        objects.remove::<Self>(self.handle).map(drop)
    }

    pub(crate) fn memory(&self) -> &Arc<Memory> {
        &self.memory
    }

    /// Number of its level.
    pub(crate) fn level(&self) -> u32 {
        self.level
    }

    /// Whether kernels may write it as a surface.
    pub fn is_surface(&self) -> bool {
        self.shape.flags & SURFACE != 0
    }

    /// Bytes of a row, rows, and slices or layers.
    pub fn extent(&self) -> [usize; 3] {
        [self.shape.width * self.shape.element.bytes(), self.shape.rows(), self.shape.depth.max(1)]
    }

    /// GPU address and size in bytes of the memory of all levels.
    pub fn bytes(&self) -> (u64, usize) {
        (self.memory.buffer.gpu_va(), self.memory.buffer.len())
    }

    /// A part: from byte `x` of row `y` of slice or layer `z`.
    ///
    /// # Errors
    ///
    /// [`Code::InvalidValue`] if it leaves the array.
    pub fn rectangle(&self, origin: [usize; 3], size: [usize; 3]) -> Result<Rectangle> {
        let inside =
            |axis: usize| origin[axis].checked_add(size[axis]).is_some_and(|end| end <= self.extent()[axis]);
        if !(0..3).all(inside) {
            return Err(Failure::invalid(format!(
                "{size:?} from {origin:?} leave an array of {:?}",
                self.extent()
            )));
        }
        let Memory { buffer, layout, dimension, levels } = &*self.memory;
        let texel = self.shape.element.bytes() as u64;
        let level: Level = layout.level(self.level, texel);
        let step = if *dimension == Dimension::ThreeD {
            level.bytes() / u64::from(level.depth)
        } else {
            layout.layer_bytes(*levels, texel)
        };
        let number =
            |size: u64| u32::try_from(size).map_err(|_| Failure::invalid(format!("{size} in an array")));
        let first = BlockSurface {
            va: buffer.gpu_va() + level.start + origin[2] as u64 * step,
            block_height_log2: level.height_log2,
            width: number(level.width_bytes)?,
            height: level.height,
            x: number(origin[0] as u64)?,
            y: number(origin[1] as u64)?,
        };
        Ok(Rectangle { first, step, array: self.handle, origin })
    }
}

impl Mipmapped {
    /// Creates an array with levels.
    ///
    /// # Errors
    ///
    /// As [`Array::create`].
    pub fn create(owner: Owner<'_>, shape: Shape, levels: u32) -> Result<Arc<Self>> {
        let largest = shape.width.max(shape.rows()).max(match shape.dimension()?.0 {
            Dimension::ThreeD => shape.depth,
            _ => 1,
        });
        // CUDA gives as many as there are.
        let levels = levels.min(usize::BITS - largest.leading_zeros());
        if levels == 0 {
            return Err(Failure::invalid("no levels"));
        }
        let memory = Memory::new(owner.device, &shape, levels)?;
        let context = owner.context;
        let parts = Mutex::default();
        owner.objects.insert(|handle| Ok(Self { handle, context, shape, memory, parts }))
    }

    /// A level, as an array.
    ///
    /// # Errors
    ///
    /// [`Code::InvalidValue`] if there is none.
    pub fn level(&self, objects: &Objects, level: u32) -> Result<Arc<Array>> {
        if level >= self.memory.levels {
            return Err(Failure::invalid(format!("level {level} of {}", self.memory.levels)));
        }
        let mut parts = self.parts.lock();
        if let Some(part) = parts.get(&level) {
            return Ok(Arc::clone(part));
        }
        let smaller = |size: usize| if size == 0 { 0 } else { (size >> level).max(1) };
        let deep = self.memory.dimension == Dimension::ThreeD;
        let shape = Shape {
            width: smaller(self.shape.width),
            height: smaller(self.shape.height),
            depth: if deep { smaller(self.shape.depth) } else { self.shape.depth },
            ..self.shape
        };
        let (context, memory) = (self.context, Arc::clone(&self.memory));
        let part =
            objects.insert(|handle| Ok(Array { handle, context, shape, level, part: true, memory }))?;
        parts.insert(level, Arc::clone(&part));
        Ok(part)
    }

    pub(crate) fn memory(&self) -> &Arc<Memory> {
        &self.memory
    }

    /// Destroys it and its levels.
    ///
    /// # Errors
    ///
    /// [`Code::InvalidHandle`] if it was destroyed.
    pub fn destroy(&self, objects: &Objects) -> Result<()> {
        objects.remove::<Self>(self.handle)?;
        for part in take(&mut *self.parts.lock()).into_values() {
            objects.remove::<Array>(part.handle)?;
        }
        Ok(())
    }
}

/// Destroys the arrays of a context.
pub(crate) fn free_of(objects: &Objects, context: u64) -> Result<()> {
    for array in objects.all::<Mipmapped>(|array| array.context == context) {
        array.destroy(objects)?;
    }
    for array in objects.all::<Array>(|array| array.context == context) {
        array.destroy(objects)?;
    }
    Ok(())
}
