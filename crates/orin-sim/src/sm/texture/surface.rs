//! Surfaces: places in bytes.

use ampere_cmd::texture::Dimension;

use super::TextureRefusal;
use super::bound::Bound;

/// What an access outside of the surface does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::sm) enum Outside {
    /// Reads zeros, writes nothing.
    Ignored,
    /// Goes to the nearest place.
    Clamped,
    /// Is a fault.
    Trap,
}

/// A place of a surface.
#[derive(Clone, Copy, Debug)]
pub(in crate::sm) struct Spot {
    /// Byte of a row.
    pub(in crate::sm) x: i32,
    /// Row.
    pub(in crate::sm) y: i32,
    /// Slice or layer.
    pub(in crate::sm) z: i32,
    /// Bytes of the access.
    pub(in crate::sm) bytes: u32,
    /// What happens outside.
    pub(in crate::sm) outside: Outside,
}

impl Bound {
    /// GPU address of a place; `None` if the access does nothing.
    pub(in crate::sm) fn spot(&self, spot: Spot) -> Result<Option<u64>, TextureRefusal> {
        let level = self.header.first_level;
        let texel = u64::from(self.header.format.components.bytes());
        let [width, height, depth] = self.size(level);
        let layers = u64::from(self.layers());
        let is_3d = self.header.dimension == Dimension::ThreeD;
        let slices = if is_3d { depth } else { layers };
        let bytes = width * texel;
        let last = [bytes.saturating_sub(spot.bytes.into()), height - 1, slices - 1];
        let mut place = [0; 3];
        for (axis, at) in [spot.x, spot.y, spot.z].into_iter().enumerate() {
            // The number of a layer has no sign. CAST: two's complement; at most 2^36.
            let at = if axis == 2 && !is_3d { i64::from(at as u32) } else { i64::from(at) };
            let inside = at.clamp(0, last[axis] as i64);
            if inside != at {
                match spot.outside {
                    Outside::Ignored => return Ok(None),
                    Outside::Trap => return Err(TextureRefusal::Outside),
                    Outside::Clamped => {}
                }
            }
            // CAST: not negative.
            place[axis] = inside as u64;
        }
        let [x, y, z] = place;
        // CAST: rows, slices and layers have 17 bits.
        let (y, z) = (y as u32, z as u32);
        let (layer, z) = if is_3d { (0, z) } else { (z, 0) };
        Ok(Some(self.va(level, layer, x, y, z)))
    }
}
