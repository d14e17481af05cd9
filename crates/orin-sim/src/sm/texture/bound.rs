//! Textures that a kernel has named.

use std::sync::Arc;

use ampere_cmd::texture::blocks::{self, Layout};
use ampere_cmd::texture::{BYTES, Dimension, Handle, Header, Sampler, Storage, TextureError, WORDS};

use super::{Table, Tables, TextureRefusal};
use crate::mmu::Access;
use crate::sm::SmFaultCause;
use crate::sm::port::Port;

/// A header with the sampler of a handle.
#[derive(Debug)]
pub(in crate::sm) struct Bound {
    pub(super) header: Header,
    /// The sampler, which surfaces and fetches do not use.
    pub(super) sampler: Result<Sampler, TextureRefusal>,
    /// Levels of a layer; one for lines and buffers.
    pub(super) levels: Vec<blocks::Level>,
    /// Bytes from one layer to the next.
    pub(super) layer_bytes: u64,
}

/// What a grid has named so far.
#[derive(Debug, Default)]
pub(in crate::sm) struct Cache(Vec<(u32, Arc<Bound>)>);

/// Kept entries; few kernels use more textures at a time.
const KEPT: usize = 16;

fn refusal(error: TextureError) -> TextureRefusal {
    match error {
        TextureError::Unsupported { field, value } => TextureRefusal::Field { field, value },
        // Decoding has no other failures.
        _ => TextureRefusal::Unmodelled("such descriptors"),
    }
}

/// Reads an entry of a table.
fn entry(
    port: &mut Port,
    table: Option<Table>,
    number: u32,
    what: &'static str,
) -> Result<[u32; WORDS], Failure> {
    let table = table.filter(|table| number <= table.last).ok_or(TextureRefusal::Absent(what))?;
    let mut words = [0; WORDS];
    for (word, at) in words.iter_mut().zip(0..) {
        let va = table.va + u64::from(number) * BYTES + 4 * at;
        *word = read_word(port, va)?;
    }
    Ok(words)
}

fn read_word(port: &mut Port, va: u64) -> Result<u32, SmFaultCause> {
    let pointer = port.pointer(va, 4, Access::Read).map_err(SmFaultCause::Mmu)?;
    // SAFETY: the port guarantees access to 4 bytes at the pointer, which is aligned because tables are. Atomic,
    // because other threads may write the memory at any time.
    Ok(unsafe { core::sync::atomic::AtomicU32::from_ptr(pointer.cast()) }
        .load(core::sync::atomic::Ordering::Relaxed))
}

/// Why a lookup fails: a fault of the machine, or a refusal.
#[derive(Clone, Copy, Debug)]
pub(in crate::sm) enum Failure {
    Fault(SmFaultCause),
    Refused(TextureRefusal),
}

impl From<SmFaultCause> for Failure {
    fn from(cause: SmFaultCause) -> Self {
        Self::Fault(cause)
    }
}

impl From<TextureRefusal> for Failure {
    fn from(refusal: TextureRefusal) -> Self {
        Self::Refused(refusal)
    }
}

impl Cache {
    /// The texture that a handle names.
    pub(in crate::sm) fn find(
        &mut self,
        tables: &Tables,
        port: &mut Port,
        handle: u32,
    ) -> Result<Arc<Bound>, Failure> {
        if let Some((_, bound)) = self.0.iter().find(|(known, _)| *known == handle) {
            return Ok(Arc::clone(bound));
        }
        let bound = Arc::new(Bound::read(tables, port, Handle::from_bits(handle))?);
        if self.0.len() == KEPT {
            self.0.remove(0);
        }
        self.0.push((handle, Arc::clone(&bound)));
        Ok(bound)
    }
}

impl Bound {
    fn read(tables: &Tables, port: &mut Port, handle: Handle) -> Result<Self, Failure> {
        let words = entry(port, tables.headers, handle.header(), "texture header")?;
        let header = Header::decode(&words).map_err(refusal)?;
        let sampler = if tables.sampler_by_header { handle.header() } else { handle.sampler() };
        let sampler = match entry(port, tables.samplers, sampler, "sampler") {
            Ok(words) => Sampler::decode(&words).map_err(refusal),
            Err(Failure::Refused(refusal)) => Err(refusal),
            Err(fault) => return Err(fault),
        };
        let texel = u64::from(header.format.components.bytes());
        let has_depth = header.dimension == Dimension::ThreeD;
        let mut layout = Layout {
            width_bytes: header.width * texel,
            height: header.height,
            depth: if has_depth { header.depth } else { 1 },
            height_log2: 0,
            depth_log2: 0,
        };
        if let Storage::Blocks { height_log2, depth_log2, .. } = header.storage {
            (layout.height_log2, layout.depth_log2) = (height_log2, depth_log2);
        }
        let levels = (0..header.levels).map(|level| layout.level(level, texel)).collect();
        Ok(Self { header, sampler, levels, layer_bytes: layout.layer_bytes(header.levels, texel) })
    }

    /// Number of layers; six for each cube.
    pub(super) fn layers(&self) -> u32 {
        match self.header.dimension {
            Dimension::OneDArray | Dimension::TwoDArray => self.header.depth,
            Dimension::Cube | Dimension::CubeArray => self.header.depth * 6,
            _ => 1,
        }
    }

    /// Width, height and depth of a level in texels.
    pub(super) fn size(&self, level: u32) -> [u64; 3] {
        let of = |size: u64| (size >> level).max(1);
        let depth = if self.header.dimension == Dimension::ThreeD { self.header.depth } else { 1 };
        [of(self.header.width), of(self.header.height.into()), of(depth.into())]
    }

    /// GPU address of byte `x` of a row, which is inside.
    pub(super) fn va(&self, level: u32, layer: u32, x: u64, y: u32, z: u32) -> u64 {
        match self.header.storage {
            Storage::Buffer { va } => va + x,
            Storage::Pitch { va, pitch } => va + u64::from(y) * u64::from(pitch) + x,
            Storage::Blocks { va, .. } => {
                va + u64::from(layer) * self.layer_bytes + self.levels[level as usize].offset(x, y, z)
            }
        }
    }

    /// What TXQ returns of a level: width, height, depth, levels; layers in the place of the first absent size, and 0
    /// for other absent ones.
    pub(in crate::sm) fn dimensions(&self, level: u32) -> [u32; 4] {
        // CAST: at most 32 bits; a width of 2^32 wraps around as in the register.
        let [width, height, depth] = self.size(level.min(self.header.levels - 1)).map(|size| size as u32);
        let (layers, levels) = (self.header.depth, self.header.levels);
        match self.header.dimension {
            Dimension::OneD | Dimension::Buffer => [width, 0, 0, levels],
            Dimension::OneDArray => [width, layers, 0, levels],
            Dimension::ThreeD => [width, height, depth, levels],
            Dimension::TwoDArray | Dimension::CubeArray => [width, height, layers, levels],
            _ => [width, height, 0, levels],
        }
    }
}
