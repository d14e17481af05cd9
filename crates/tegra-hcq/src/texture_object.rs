//! Textures of a device's memory, as arguments of kernels.

use core::fmt;
use std::sync::Arc;

use ampere_cmd::texture::blocks::Layout;
use ampere_cmd::texture::{Dimension, Header, Sampler, Storage};
use gpu_hal::MemoryUse;

use crate::args::{Arg, BufferUse};
use crate::device::Device;
use crate::error::{Error, RangeError, Result};
use crate::heap::{Content, Handle};
use crate::memory::{Buffer, Pod, Slice};
use crate::shared::Shared;

/// A texture: memory with a format, a shape and a way to look it up. As a kernel's argument (`cudaTextureObject_t`) it
/// is a number.
///
/// ```
/// # #[cfg(feature = "sim")] fn main() -> tegra_hcq::Result<()> {
/// # let device = tegra_hcq::Device::open(tegra_hcq::DeviceKind::Sim)?;
/// # let cubin = include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/kernels/texture.cubin"));
/// use tegra_hcq::texture::{Components, Dimension, Filter, Format, Header, Numbers, Sampler, Storage};
/// use tegra_hcq::{Program, Texture, args};
///
/// // A ramp of 4 by 2 texels, in lines of 64 bytes.
/// let texels = device.alloc_from(&(0..32).map(|at| (at % 16) as f32).collect::<Vec<_>>())?;
/// let header = Header {
///     format: Format::new(Components::R32, Numbers::Float),
///     storage: Storage::Pitch { va: 0, pitch: 64 }, // from the beginning of the buffer
///     dimension: Dimension::TwoDNoMipmap,
///     width: 4,
///     height: 2,
///     depth: 1,
///     levels: 1,
///     first_level: 0,
///     last_level: 0,
///     normalized: false,
/// };
/// let sampler = Sampler { filter: Filter::Linear, ..Sampler::default() };
/// let texture = device.texture(&texels, &header, &sampler)?;
/// type LookUp = (&'static Texture, &'static [f32], &'static mut [f32], tegra_hcq::Count<u32>);
/// // SAFETY: looks up (x[2 * i], x[2 * i + 1]) for i < n, and writes out[i].
/// let kernel = unsafe { Program::load(&device, cubin)?.typed::<LookUp>("look_up")? };
/// let places = device.alloc_from(&[1.0_f32, 0.5, 2.75, 1.5])?;
/// let mut found = device.alloc::<f32>(2)?;
/// let mut queue = device.queue()?;
/// kernel.launch(&mut queue, 1, 32, (&texture, &places, &mut found, 2))?;
/// queue.wait(tegra_hcq::DEFAULT_TIMEOUT)?;
/// assert_eq!(found.to_vec()?, [0.5, 2.25]);
/// # Ok(())
/// # }
/// # #[cfg(not(feature = "sim"))] fn main() {}
/// ```
pub struct Texture {
    /// Number of its header and sampler.
    number: u32,
    /// The memory of the texels, or that of the tables.
    memory: Handle,
    owns: bool,
    device: Arc<Shared>,
}

/// Bytes that a texture takes from its address on; `None` if they exceed 64 bits.
fn extent(header: &Header) -> Option<u64> {
    let texel = u64::from(header.format.components.bytes());
    let row = header.width.checked_mul(texel)?;
    match header.storage {
        Storage::Buffer { .. } => Some(row),
        Storage::Pitch { pitch, .. } => {
            u64::from(pitch).checked_mul(u64::from(header.height).checked_sub(1)?)?.checked_add(row)
        }
        Storage::Blocks { height_log2, depth_log2, .. } => {
            let (depth, layers) = match header.dimension {
                Dimension::ThreeD => (header.depth, 1),
                Dimension::Cube | Dimension::CubeArray => (1, u64::from(header.depth) * 6),
                _ => (1, u64::from(header.depth)),
            };
            let layout = Layout { width_bytes: row, height: header.height, depth, height_log2, depth_log2 };
            layout.layer_bytes(header.levels, texel).checked_mul(layers)
        }
    }
}

/// The header with an address that counts from `base`, and the address that it had.
fn moved(header: &Header, base: u64) -> (Header, u64) {
    let mut moved = *header;
    let (Storage::Buffer { va } | Storage::Pitch { va, .. } | Storage::Blocks { va, .. }) =
        &mut moved.storage;
    let offset = *va;
    *va = base.saturating_add(offset);
    (moved, offset)
}

impl Device {
    /// Whether kernels of this device can use textures: on GPUs of SM 8.x and 9.x.
    pub fn has_textures(&self) -> bool {
        self.shared().has_textures()
    }

    /// A texture of a buffer's memory. The address in `header` counts from the beginning of the buffer. The texture
    /// keeps the memory allocated, and a launch with it as an argument records the use. Kernels read it; a kernel that
    /// writes it as a surface is not one that [`Program::typed`](crate::Program::typed) may assert.
    ///
    /// # Errors
    ///
    /// [`Error::Texture`] for a header or sampler that cannot be encoded, [`Error::Range`] if the texels end outside of
    /// the buffer, [`Error::TooManyTextures`], or [`Error::OtherDevice`].
    pub fn texture<T: Pod>(&self, memory: &Buffer<T>, header: &Header, sampler: &Sampler) -> Result<Texture> {
        let handle = Slice::from(memory).handle();
        if handle.heap().id() != self.shared().heap().id() {
            return Err(Error::OtherDevice("the memory of the texture".to_owned()));
        }
        let (header, offset) = moved(header, memory.gpu_va());
        // CAST: usize is at most 64 bits.
        let (start, len) = (memory.gpu_va(), memory.byte_len() as u64);
        let bytes = extent(&header).unwrap_or(u64::MAX);
        if offset.checked_add(bytes).is_none_or(|end| end > len) {
            return Err(
                RangeError::Memory { address: start.saturating_add(offset), bytes, start, len }.into()
            );
        }
        Texture::enter(self.shared(), &header, sampler, Some(handle))
    }

    /// A texture or surface of memory by its address in `header`.
    ///
    /// # Errors
    ///
    /// As [`Device::texture`].
    ///
    /// # Safety
    ///
    /// While launches get the texture as an argument, the memory stays allocated, and is not viewed if they write it.
    pub unsafe fn texture_raw(&self, header: &Header, sampler: &Sampler) -> Result<Texture> {
        Texture::enter(self.shared(), header, sampler, None)
    }
}

impl Texture {
    fn enter(
        device: &Arc<Shared>,
        header: &Header,
        sampler: &Sampler,
        memory: Option<&Handle>,
    ) -> Result<Self> {
        if !device.has_textures() {
            return Err(gpu_hal::Error::Unsupported("textures of this GPU, whose headers differ").into());
        }
        let (header, sampler) = (header.encode()?, sampler.encode()?);
        let allocate = |bytes| device.allocate_mapped(bytes, MemoryUse::Device, Content::Textures);
        let (number, tables) = device.textures().enter(allocate, &header, &sampler)?;
        Ok(Self {
            number,
            owns: memory.is_some(),
            memory: memory.cloned().unwrap_or(tables),
            device: Arc::clone(device),
        })
    }

    /// The number that kernels get.
    pub fn handle(&self) -> u64 {
        self.number.into()
    }
}

impl Drop for Texture {
    fn drop(&mut self) {
        let memory = self.owns.then(|| self.memory.clone());
        self.device.textures().leave(self.number, memory);
    }
}

impl<'a> From<&'a Texture> for Arg<'a> {
    fn from(texture: &'a Texture) -> Self {
        Self::Buffer(BufferUse::of_number(texture.handle(), &texture.memory))
    }
}

impl fmt::Debug for Texture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Texture({:#x})", self.number)
    }
}
