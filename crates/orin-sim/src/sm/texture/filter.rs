//! Lookups: texels and levels around a place, weighted.

use core::array;

use ampere_cmd::texture::{Addressing, Dimension, Filter, MipFilter, Sampler};

use super::address::{Axis, ONE, Place};
use super::blend::{alone, blend, weights, weights_of_level};
use super::bound::{Bound, Failure};
use super::{TextureRefusal, cube, format};
use crate::mmu::Access;
use crate::sm::SmFaultCause;
use crate::sm::port::Port;

/// Where a lookup is.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::sm) struct Coordinates {
    /// Along each axis.
    pub(in crate::sm) at: [f32; 3],
    /// Number of the layer, or of the cube.
    pub(in crate::sm) layer: u32,
    /// Axes that the instruction gives.
    pub(in crate::sm) axes: usize,
    /// Whether they are a direction.
    pub(in crate::sm) cube: bool,
    /// Whether the instruction gives a layer.
    pub(in crate::sm) layered: bool,
}

/// The level of a lookup.
#[derive(Clone, Copy, Debug)]
pub(in crate::sm) enum Level {
    /// The first one.
    First,
    /// As a number.
    Number(f32),
}

/// Fractional bits of a level.
const LEVEL_ONE: f64 = 256.0;

/// A layer of a level, with the sampler.
struct Slice<'a> {
    bound: &'a Bound,
    sampler: &'a Sampler,
    level: u32,
    layer: u32,
}

/// The axes that matter.
fn axes(dimension: Dimension) -> usize {
    match dimension {
        Dimension::OneD | Dimension::OneDArray | Dimension::Buffer => 1,
        Dimension::ThreeD => 3,
        _ => 2,
    }
}

/// A row of components as the numbers of their kinds.
type Numbers = [f64; 4];

impl Slice<'_> {
    fn axis(&self, axis: usize) -> Axis {
        Axis {
            size: self.bound.size(self.level)[axis],
            normalized: self.bound.header.normalized,
            mode: self.sampler.addressing[axis],
        }
    }

    /// The components of a texel as the bits of integers; the border's if it is outside.
    fn integers(&self, port: &mut Port, at: [Option<u64>; 3]) -> Result<[u32; 4], Failure> {
        let format = self.bound.header.format;
        let [Some(x), Some(y), Some(z)] = at else {
            // The bits of the colour, cut to the size of the component.
            let bits = format.components.component_bits();
            return Ok(self
                .sampler
                .border
                .map(|colour| format::integer(format, colour & (u32::MAX >> (32 - bits)))));
        };
        let components = self.bound.components(port, self.level, self.layer, [x, y, z])?;
        Ok(components.map(|component| format::integer(format, component)))
    }

    /// The components of a texel; the border's if it is outside.
    fn numbers(&self, port: &mut Port, at: [Option<u64>; 3]) -> Result<Numbers, Failure> {
        let format = self.bound.header.format;
        let [Some(x), Some(y), Some(z)] = at else {
            return Ok(array::from_fn(|index| format::border(format, index, self.sampler.border[index])));
        };
        let components = self.bound.components(port, self.level, self.layer, [x, y, z])?;
        Ok(array::from_fn(|index| format::number(format, index, components[index])))
    }

    /// The components of a texel as the bits of a register.
    fn texel(&self, port: &mut Port, at: [Option<u64>; 3]) -> Result<[u32; 4], Failure> {
        let format = self.bound.header.format;
        if format.is_integer() {
            return self.integers(port, at);
        }
        let numbers = self.numbers(port, at)?;
        Ok(array::from_fn(|index| alone(format::kind(format, index), numbers[index]).to_bits()))
    }

    /// The nearest texel.
    fn hit(&self, at: [f32; 3]) -> [Option<u64>; 3] {
        let mut texel = [Some(0); 3];
        for axis in 0..axes(self.bound.header.dimension) {
            texel[axis] = self.axis(axis).nearest(at[axis]);
        }
        texel
    }

    fn point(&self, port: &mut Port, at: [f32; 3]) -> Result<[u32; 4], Failure> {
        self.texel(port, self.hit(at))
    }

    /// The texels on both sides of a place along each axis, and the weights of the second ones.
    fn around(&self, at: [f32; 3]) -> ([[Option<u64>; 2]; 3], [u32; 3], usize) {
        let count = axes(self.bound.header.dimension);
        let (mut sides, mut weights) = ([[Some(0); 2]; 3], [0; 3]);
        for axis in 0..count {
            let reading = self.axis(axis);
            let Place { first, weight } = reading.between(at[axis]);
            sides[axis] = [first, first + 1].map(|number| reading.within(number));
            weights[axis] = weight;
        }
        (sides, weights, count)
    }

    /// The texels around a place, with what is left of their weights beside another level.
    fn corners(
        &self,
        port: &mut Port,
        at: [f32; 3],
        share: Option<(u32, bool)>,
    ) -> Result<([(Numbers, i32); 8], usize), Failure> {
        let (sides, second, count) = self.around(at);
        let weights = match share {
            None => weights(count, second),
            Some((share, is_second)) => weights_of_level(count, second, share, is_second),
        };
        let mut corners = [([0.0; 4], 0); 8];
        for (corner, (numbers, weight)) in corners[..1 << count].iter_mut().enumerate() {
            *weight = weights[corner];
            if *weight != 0 {
                let texel = array::from_fn(|axis| sides[axis][corner >> axis & 1]);
                *numbers = self.numbers(port, texel)?;
            }
        }
        Ok((corners, 1 << count))
    }

    /// The weighted sum of texels.
    fn sum(&self, corners: &[(Numbers, i32)]) -> [u32; 4] {
        let format = self.bound.header.format;
        array::from_fn(|index| {
            let mut texels = [(0.0, 0); 16];
            for (texel, (numbers, weight)) in texels.iter_mut().zip(corners) {
                *texel = (numbers[index], *weight);
            }
            blend(format::kind(format, index), &texels[..corners.len()]).to_bits()
        })
    }

    fn linear(&self, port: &mut Port, at: [f32; 3]) -> Result<[u32; 4], Failure> {
        let (corners, count) = self.corners(port, at, None)?;
        Ok(self.sum(&corners[..count]))
    }

    /// The mean of this level and the next one, which has a weight.
    fn with_next(&self, port: &mut Port, at: [f32; 3], next: &Self, share: u32) -> Result<[u32; 4], Failure> {
        let mut all = [([0.0; 4], 0); 16];
        let mut count = 0;
        for (slice, is_second) in [(self, false), (next, true)] {
            if self.sampler.filter == Filter::Linear {
                let (corners, more) = slice.corners(port, at, Some((share, is_second)))?;
                // Slices of a level are cut together, so a line takes the place of a rectangle.
                let more = more.max(4);
                all[count..count + more].copy_from_slice(&corners[..more]);
                count += more;
            } else {
                let numbers = slice.numbers(port, slice.hit(at))?;
                // CAST: 8 bits.
                let weight = if is_second { share } else { ONE - share } as i32;
                all[count] = (numbers, weight);
                count += 1;
            }
        }
        Ok(self.sum(&all[..count]))
    }

    fn filtered(&self, port: &mut Port, at: [f32; 3]) -> Result<[u32; 4], Failure> {
        if self.sampler.filter == Filter::Linear && !self.bound.header.format.is_integer() {
            self.linear(port, at)
        } else {
            self.point(port, at)
        }
    }
}

impl Bound {
    /// The components of a texel in memory, of which the place is inside.
    fn components(
        &self,
        port: &mut Port,
        level: u32,
        layer: u32,
        [x, y, z]: [u64; 3],
    ) -> Result<[u32; 4], SmFaultCause> {
        let components = self.header.format.components;
        let bytes = u64::from(components.bytes());
        // CAST: rows and slices have 17 bits.
        let va = self.va(level, layer, x * bytes, y as u32, z as u32);
        let mut texel = [0; 16];
        let texel = &mut texel[..components.bytes() as usize];
        let pointer = port.pointer(va, bytes, Access::Read).map_err(SmFaultCause::Mmu)?;
        for (at, byte) in texel.iter_mut().enumerate() {
            // SAFETY: the port guarantees access to the bytes of the texel. Volatile, because other threads may write
            // the memory at any time.
            *byte = unsafe { pointer.add(at).read_volatile() };
        }
        Ok(format::components(components, texel))
    }

    /// The layer that a lookup means, and the place in it.
    fn layer(&self, place: Coordinates) -> Result<(u32, [f32; 3]), TextureRefusal> {
        let dimension = self.header.dimension;
        let is_cube = matches!(dimension, Dimension::Cube | Dimension::CubeArray);
        let is_array =
            matches!(dimension, Dimension::OneDArray | Dimension::TwoDArray | Dimension::CubeArray);
        if is_cube != place.cube || is_array != place.layered || place.axes < axes(dimension) {
            return Err(TextureRefusal::Dimensions);
        }
        let layer = place.layer.min(self.header.depth.saturating_sub(1));
        let layer = if is_array { layer } else { 0 };
        if !is_cube {
            return Ok((layer, place.at));
        }
        let (face, [s, t]) = cube::face(place.at);
        Ok((layer * 6 + face, [s, t, 0.0]))
    }

    /// A lookup with filters.
    pub(in crate::sm) fn look_up(
        &self,
        port: &mut Port,
        place: Coordinates,
        level: Level,
    ) -> Result<[u32; 4], Failure> {
        let sampler = self.sampler.as_ref().map_err(|refusal| *refusal)?;
        if self.header.dimension == Dimension::Buffer {
            return Err(TextureRefusal::Dimensions.into());
        }
        if sampler.seamless && sampler.filter == Filter::Linear && place.cube {
            return Err(TextureRefusal::Unmodelled("seamless cubes").into());
        }
        let (layer, at) = self.layer(place)?;
        let view = self.header.last_level.min(self.header.levels - 1);
        let most = view.saturating_sub(self.header.first_level);
        let slice = |level: u32| Slice {
            bound: self,
            sampler,
            level: self.header.first_level + level.min(most),
            layer,
        };
        let number = match level {
            Level::First => 0.0,
            Level::Number(number) => number,
        };
        // CAST: at most 16 levels.
        let number =
            (number + sampler.bias).max(sampler.min_level).min(sampler.max_level).clamp(0.0, most as f32);
        // CAST: cut to units of 1/256, not negative.
        let units = (f64::from(number) * LEVEL_ONE) as u32;
        let texel = match sampler.mip_filter {
            MipFilter::Linear => {
                let (first, weight) = (units >> 8, units & 0xff);
                let level = slice(first);
                if weight == 0 || self.header.format.is_integer() {
                    level.filtered(port, at)?
                } else {
                    level.with_next(port, at, &slice(first + 1), weight)?
                }
            }
            MipFilter::Point => slice((units + 128) >> 8).filtered(port, at)?,
            _ => slice(0).filtered(port, at)?,
        };
        Ok(format::select(self.header.format, texel))
    }

    /// One component of the four texels that a filter would use.
    pub(in crate::sm) fn gather(
        &self,
        port: &mut Port,
        place: Coordinates,
        component: usize,
    ) -> Result<[u32; 4], Failure> {
        let sampler = self.sampler.as_ref().map_err(|refusal| *refusal)?;
        if axes(self.header.dimension) != 2 || place.cube {
            return Err(TextureRefusal::Unmodelled("gathers of such textures").into());
        }
        let (layer, at) = self.layer(place)?;
        let slice = Slice { bound: self, sampler, level: self.header.first_level, layer };
        let (sides, ..) = slice.around(at);
        let mut out = [0; 4];
        for (value, [x, y]) in out.iter_mut().zip([[0, 1], [1, 1], [1, 0], [0, 0]]) {
            let texel = slice.texel(port, [sides[0][x], sides[1][y], Some(0)])?;
            *value = format::select(self.header.format, texel)[component];
        }
        Ok(out)
    }

    /// A texel by its numbers; zeros outside.
    pub(in crate::sm) fn fetch(
        &self,
        port: &mut Port,
        at: [u32; 3],
        layer: u32,
        level: u32,
    ) -> Result<[u32; 4], Failure> {
        let format = self.header.format;
        let level = self.header.first_level.saturating_add(level);
        let size = if level < self.header.levels { self.size(level) } else { [0; 3] };
        let inside = (0..axes(self.header.dimension)).all(|axis| u64::from(at[axis]) < size[axis]);
        if !inside || layer >= self.layers() {
            return Ok(format::select(format, [0; 4]));
        }
        let mut place = [0; 3];
        for axis in 0..axes(self.header.dimension) {
            place[axis] = at[axis].into();
        }
        let sampler = Sampler { addressing: [Addressing::Clamp; 3], ..Sampler::default() };
        let slice = Slice { bound: self, sampler: &sampler, level, layer };
        let texel = slice.texel(port, place.map(Some))?;
        Ok(format::select(format, texel))
    }
}
