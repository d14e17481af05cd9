//! Copies.

use crate::array::{element_bytes, row_bytes};
use crate::call::{api, read};
use crate::device::primary;
use crate::driver::cu;
use crate::error::{Error, Result};
use crate::memory::{Extent, Pitched, When};
use crate::register::variable;

/// The memory that a `cudaMemcpyKind` says both sides are in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    HostToHost,
    HostToDevice,
    DeviceToHost,
    DeviceToDevice,
    Default,
}

impl Kind {
    fn of(kind: u32) -> Result<Self> {
        Ok(match kind {
            0 => Self::HostToHost,
            1 => Self::HostToDevice,
            2 => Self::DeviceToHost,
            3 => Self::DeviceToDevice,
            4 => Self::Default,
            _ => return Err(Error::INVALID_DIRECTION),
        })
    }

    /// Memory types of target and source (`CUmemorytype`): host 1, device 2, by the address 4.
    fn types(self) -> (usize, usize) {
        match self {
            Self::HostToHost => (1, 1),
            Self::HostToDevice => (2, 1),
            Self::DeviceToHost => (1, 2),
            Self::DeviceToDevice => (2, 2),
            Self::Default => (4, 4),
        }
    }
}

/// Copies consecutive bytes.
fn line(when: When, to: usize, from: usize, bytes: usize, kind: u32) -> Result {
    let kind = Kind::of(kind)?;
    if bytes == 0 {
        return Ok(());
    }
    if to == 0 || from == 0 {
        return Err(Error::INVALID_VALUE);
    }
    match (kind, when.stream()) {
        (Kind::HostToDevice, None) => cu!(cuMemcpyHtoD_v2, to, from, bytes),
        (Kind::DeviceToHost, None) => cu!(cuMemcpyDtoH_v2, to, from, bytes),
        (Kind::DeviceToDevice, None) => cu!(cuMemcpyDtoD_v2, to, from, bytes),
        (_, None) => cu!(cuMemcpy, to, from, bytes),
        (Kind::HostToDevice, Some(stream)) => cu!(cuMemcpyHtoDAsync_v2, to, from, bytes, stream),
        (Kind::DeviceToHost, Some(stream)) => cu!(cuMemcpyDtoHAsync_v2, to, from, bytes, stream),
        (Kind::DeviceToDevice, Some(stream)) => cu!(cuMemcpyDtoDAsync_v2, to, from, bytes, stream),
        (_, Some(stream)) => cu!(cuMemcpyAsync, to, from, bytes, stream),
    }?;
    when.finish()
}

/// `cudaPos`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct Position {
    x: usize,
    y: usize,
    z: usize,
}

/// One side of a copy of a region.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Side {
    array: usize,
    position: Position,
    memory: Pitched,
}

/// `cudaMemcpy3DParms`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Region {
    from: Side,
    to: Side,
    extent: Extent,
    kind: u32,
}

/// `cudaMemcpy3DPeerParms`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct PeerRegion {
    from: Side,
    from_device: i32,
    to: Side,
    to_device: i32,
    extent: Extent,
}

/// `CUDA_MEMCPY3D`: source and target of eleven words each, and the extent.
pub(crate) type DriverCopy = [usize; 25];

impl Side {
    /// A side of consecutive rows.
    fn rows(pointer: usize, pitch: usize, rows: usize) -> Self {
        Self {
            array: 0,
            position: Position::default(),
            memory: Pitched { pointer, pitch, width: pitch, rows },
        }
    }

    /// The driver's words: position, mip level, memory type, host, device, array, reserved, pitch, rows.
    fn words(self, kind: usize) -> Result<[usize; 11]> {
        let Self { array, position: Position { x, y, z }, memory } = self;
        if (array == 0) == (memory.pointer == 0) {
            return Err(Error::INVALID_VALUE);
        }
        Ok(match (array, kind) {
            (0, 1) => [x, y, z, 0, 1, memory.pointer, 0, 0, 0, memory.pitch, memory.rows],
            (0, kind) => [x, y, z, 0, kind, 0, memory.pointer, 0, 0, memory.pitch, memory.rows],
            _ => [x, y, z, 0, 3, 0, 0, array, 0, 0, 0],
        })
    }

    /// The side of a driver's copy, which `words` has made.
    fn of_words(words: &[usize]) -> Self {
        Self {
            array: words[7],
            position: Position { x: words[0], y: words[1], z: words[2] },
            memory: Pitched {
                // One of host and device is 0.
                pointer: words[5] | words[6],
                pitch: words[9],
                width: words[9],
                rows: words[10],
            },
        }
    }
}

impl Region {
    /// A region of consecutive bytes.
    pub(crate) fn line(to: usize, from: usize, bytes: usize, kind: u32) -> Self {
        let (to, from) = (Side::rows(to, bytes, 1), Side::rows(from, bytes, 1));
        Self { from, to, extent: Extent { width: bytes, height: 1, depth: 1 }, kind }
    }

    /// The driver's form.
    pub(crate) fn words(self) -> Result<DriverCopy> {
        let (to, from) = Kind::of(self.kind)?.types();
        let mut words = [0; 25];
        words[..11].copy_from_slice(&self.from.words(from)?);
        words[11..22].copy_from_slice(&self.to.words(to)?);
        words[22..].copy_from_slice(&[self.extent.width, self.extent.height, self.extent.depth]);
        // Places in arrays, and the width of a copy with an array, count elements.
        for (side, at) in [(self.from, 0), (self.to, 11)] {
            if side.array != 0 {
                let bytes = element_bytes(side.array)?;
                words[at] = side.position.x.checked_mul(bytes).ok_or(Error::INVALID_VALUE)?;
                words[22] = self.extent.width.checked_mul(bytes).ok_or(Error::INVALID_VALUE)?;
            }
        }
        Ok(words)
    }

    /// The region of a driver's copy.
    pub(crate) fn of_words(words: DriverCopy) -> Self {
        let (mut from, mut to) = (Side::of_words(&words[..11]), Side::of_words(&words[11..22]));
        let mut width = words[22];
        for side in [&mut from, &mut to] {
            // An array that is gone has no elements.
            if side.array != 0
                && let Ok(bytes) = element_bytes(side.array)
            {
                side.position.x /= bytes;
                width = words[22] / bytes;
            }
        }
        // CAST: a memory type is an `int`.
        let kind = match (words[4] as u32, words[15] as u32) {
            (1, 1) => 0,
            (1, 2 | 3) => 1,
            (2 | 3, 1) => 2,
            (2 | 3, 2 | 3) => 3,
            _ => 4,
        };
        Self { from, to, extent: Extent { width, height: words[23], depth: words[24] }, kind }
    }
}

/// Copies a region.
fn region(when: When, region: Region) -> Result {
    let Region { from, to, extent, .. } = region;
    let words = region.words()?;
    if extent.width == 0 || extent.height == 0 || extent.depth == 0 {
        return Ok(());
    }
    let is_short = |side: Side| side.array == 0 && side.memory.pitch < words[22];
    if extent.height * extent.depth > 1 && (is_short(from) || is_short(to)) {
        return Err(Error::INVALID_PITCH);
    }
    match when.stream() {
        None => cu!(cuMemcpy3D_v2, words.as_ptr()),
        Some(stream) => cu!(cuMemcpy3DAsync_v2, words.as_ptr(), stream).and_then(|()| when.finish()),
    }
}

/// A part of an array: byte of a row, and row.
fn part_of_array(array: usize, x: usize, y: usize) -> [usize; 11] {
    [x, y, 0, 0, 3, 0, 0, array, 0, 0, 0]
}

/// Rows of memory.
fn rows_of(kind: usize, pointer: usize, pitch: usize) -> [usize; 11] {
    let [host, device] = if kind == 1 { [pointer, 0] } else { [0, pointer] };
    [0, 0, 0, 0, kind, host, device, 0, 0, pitch, 0]
}

/// Copies rows from or to an array; sizes and places are in bytes.
fn array_rows(when: When, to: [usize; 11], from: [usize; 11], (width, height): (usize, usize)) -> Result {
    if width == 0 || height == 0 {
        return Ok(());
    }
    for side in [to, from] {
        if side[5] | side[6] | side[7] == 0 {
            return Err(Error::INVALID_VALUE);
        }
        if side[7] == 0 && height > 1 && side[9] < width {
            return Err(Error::INVALID_PITCH);
        }
    }
    let mut words = [0; 25];
    words[..11].copy_from_slice(&from);
    words[11..22].copy_from_slice(&to);
    words[22..].copy_from_slice(&[width, height, 1]);
    match when.stream() {
        None => cu!(cuMemcpy3D_v2, words.as_ptr()),
        Some(stream) => cu!(cuMemcpy3DAsync_v2, words.as_ptr(), stream).and_then(|()| when.finish()),
    }
}

/// Copies bytes to an array, whose rows follow each other.
fn to_array(
    when: When,
    array: usize,
    (x, y): (usize, usize),
    from: usize,
    bytes: usize,
    kind: u32,
) -> Result {
    let (_, from_kind) = Kind::of(kind)?.types();
    for Piece { x, y, at, width, height } in pieces(array, x, y, bytes)? {
        let rows = rows_of(from_kind, from + at, width);
        array_rows(when, part_of_array(array, x, y), rows, (width, height))?;
    }
    Ok(())
}

/// Copies bytes from an array.
fn from_array(
    when: When,
    to: usize,
    array: usize,
    (x, y): (usize, usize),
    bytes: usize,
    kind: u32,
) -> Result {
    let (to_kind, _) = Kind::of(kind)?.types();
    for Piece { x, y, at, width, height } in pieces(array, x, y, bytes)? {
        let rows = rows_of(to_kind, to + at, width);
        array_rows(when, rows, part_of_array(array, x, y), (width, height))?;
    }
    Ok(())
}

/// A rectangle of an array: its place, the bytes before it, and its size. Columns are bytes.
struct Piece {
    x: usize,
    y: usize,
    at: usize,
    width: usize,
    height: usize,
}

/// The rectangles that consecutive bytes of an array are.
fn pieces(array: usize, x: usize, y: usize, bytes: usize) -> Result<Vec<Piece>> {
    if array == 0 {
        return Err(Error::INVALID_HANDLE);
    }
    let row = row_bytes(array)?;
    let (mut x, mut y, mut at, mut found) = (x, y, 0, Vec::new());
    if x > row {
        return Err(Error::INVALID_VALUE);
    }
    while at < bytes {
        let left = bytes - at;
        let width = left.min(row - x);
        let height = if x == 0 { (left / row).max(1) } else { 1 };
        if width > 0 {
            found.push(Piece { x, y, at, width, height });
        }
        at += width * height;
        (x, y) = (0, y + height);
    }
    Ok(found)
}

/// Copies rows.
fn rows(
    when: When,
    to: (usize, usize),
    from: (usize, usize),
    (width, height): (usize, usize),
    kind: u32,
) -> Result {
    Kind::of(kind)?;
    if width == 0 || height == 0 {
        return Ok(());
    }
    let (to, from) = (Side::rows(to.0, to.1, height), Side::rows(from.0, from.1, height));
    region(when, Region { from, to, extent: Extent { width, height, depth: 1 }, kind })
}

/// Refuses devices that do not exist. Addresses name the memory of all devices.
fn devices(devices: [i32; 2]) -> Result {
    devices.into_iter().try_for_each(|device| primary(device).map(drop))
}

/// Copies between devices.
fn peer_region(when: When, copy: PeerRegion) -> Result {
    devices([copy.from_device, copy.to_device])?;
    region(when, Region { from: copy.from, to: copy.to, extent: copy.extent, kind: 4 })
}

/// The address of a part of a variable.
pub(crate) fn part(symbol: usize, offset: usize, bytes: usize) -> Result<usize> {
    let (address, size) = variable(symbol)?;
    match offset.checked_add(bytes) {
        Some(end) if end <= size => Ok(address + offset),
        _ => Err(Error::INVALID_VALUE),
    }
}

/// Refuses a kind that does not say the device on the side of a variable, or any by the address.
pub(crate) fn check_symbol_kind(kind: u32, wrong: u32) -> Result {
    match Kind::of(kind)? {
        Kind::DeviceToDevice | Kind::Default => Ok(()),
        _ if kind == wrong || kind == 0 => Err(Error::INVALID_DIRECTION),
        _ => Ok(()),
    }
}

api! {
    copy(order @ to: usize, from: usize, bytes: usize, kind: u32) [cudaMemcpy Legacy] [cudaMemcpy_ptds PerThread] {
        line(When::Now(order), to, from, bytes, kind)
    }

    copy_async(order @ to: usize, from: usize, bytes: usize, kind: u32, stream: usize)
    [cudaMemcpyAsync Legacy] [cudaMemcpyAsync_ptsz PerThread] {
        line(When::On(order.stream(stream)), to, from, bytes, kind)
    }

    peer(to: usize, to_device: i32, from: usize, from_device: i32, bytes: usize) [cudaMemcpyPeer Legacy] {
        devices([to_device, from_device])?;
        line(When::Now(crate::call::Order::Legacy), to, from, bytes, 3)
    }

    peer_async(to: usize, to_device: i32, from: usize, from_device: i32, bytes: usize, stream: usize)
    [cudaMemcpyPeerAsync Legacy] {
        devices([to_device, from_device])?;
        line(When::On(stream), to, from, bytes, 3)
    }

    copy_2d(order @ to: usize, to_pitch: usize, from: usize, from_pitch: usize, width: usize, height: usize, kind: u32)
    [cudaMemcpy2D Legacy] [cudaMemcpy2D_ptds PerThread] {
        rows(When::Now(order), (to, to_pitch), (from, from_pitch), (width, height), kind)
    }

    copy_2d_async(
        order @ to: usize, to_pitch: usize, from: usize, from_pitch: usize, width: usize, height: usize, kind: u32,
        stream: usize,
    ) [cudaMemcpy2DAsync Legacy] [cudaMemcpy2DAsync_ptsz PerThread] {
        rows(When::On(order.stream(stream)), (to, to_pitch), (from, from_pitch), (width, height), kind)
    }

    to_array_2d(
        order @ to: usize, x: usize, y: usize, from: usize, pitch: usize, width: usize, height: usize, kind: u32,
    ) [cudaMemcpy2DToArray Legacy] [cudaMemcpy2DToArray_ptds PerThread] {
        let rows = rows_of(Kind::of(kind)?.types().1, from, pitch);
        array_rows(When::Now(order), part_of_array(to, x, y), rows, (width, height))
    }

    to_array_2d_async(
        order @ to: usize, x: usize, y: usize, from: usize, pitch: usize, width: usize, height: usize, kind: u32,
        stream: usize,
    ) [cudaMemcpy2DToArrayAsync Legacy] [cudaMemcpy2DToArrayAsync_ptsz PerThread] {
        let rows = rows_of(Kind::of(kind)?.types().1, from, pitch);
        array_rows(When::On(order.stream(stream)), part_of_array(to, x, y), rows, (width, height))
    }

    from_array_2d(
        order @ to: usize, pitch: usize, from: usize, x: usize, y: usize, width: usize, height: usize, kind: u32,
    ) [cudaMemcpy2DFromArray Legacy] [cudaMemcpy2DFromArray_ptds PerThread] {
        let rows = rows_of(Kind::of(kind)?.types().0, to, pitch);
        array_rows(When::Now(order), rows, part_of_array(from, x, y), (width, height))
    }

    from_array_2d_async(
        order @ to: usize, pitch: usize, from: usize, x: usize, y: usize, width: usize, height: usize, kind: u32,
        stream: usize,
    ) [cudaMemcpy2DFromArrayAsync Legacy] [cudaMemcpy2DFromArrayAsync_ptsz PerThread] {
        let rows = rows_of(Kind::of(kind)?.types().0, to, pitch);
        array_rows(When::On(order.stream(stream)), rows, part_of_array(from, x, y), (width, height))
    }

    between_arrays_2d(
        order @ to: usize, to_x: usize, to_y: usize, from: usize, x: usize, y: usize, width: usize, height: usize,
        kind: u32,
    ) [cudaMemcpy2DArrayToArray Legacy] [cudaMemcpy2DArrayToArray_ptds PerThread] {
        Kind::of(kind)?;
        array_rows(When::Now(order), part_of_array(to, to_x, to_y), part_of_array(from, x, y), (width, height))
    }

    between_arrays(
        order @ to: usize, to_x: usize, to_y: usize, from: usize, x: usize, y: usize, bytes: usize, kind: u32,
    ) [cudaMemcpyArrayToArray Legacy] [cudaMemcpyArrayToArray_ptds PerThread] {
        Kind::of(kind)?;
        array_rows(When::Now(order), part_of_array(to, to_x, to_y), part_of_array(from, x, y), (bytes, 1))
    }

    to_array_line(order @ to: usize, x: usize, y: usize, from: usize, bytes: usize, kind: u32)
    [cudaMemcpyToArray Legacy] [cudaMemcpyToArray_ptds PerThread] {
        to_array(When::Now(order), to, (x, y), from, bytes, kind)
    }

    to_array_line_async(order @ to: usize, x: usize, y: usize, from: usize, bytes: usize, kind: u32, stream: usize)
    [cudaMemcpyToArrayAsync Legacy] [cudaMemcpyToArrayAsync_ptsz PerThread] {
        to_array(When::On(order.stream(stream)), to, (x, y), from, bytes, kind)
    }

    from_array_line(order @ to: usize, from: usize, x: usize, y: usize, bytes: usize, kind: u32)
    [cudaMemcpyFromArray Legacy] [cudaMemcpyFromArray_ptds PerThread] {
        from_array(When::Now(order), to, from, (x, y), bytes, kind)
    }

    from_array_line_async(order @ to: usize, from: usize, x: usize, y: usize, bytes: usize, kind: u32, stream: usize)
    [cudaMemcpyFromArrayAsync Legacy] [cudaMemcpyFromArrayAsync_ptsz PerThread] {
        from_array(When::On(order.stream(stream)), to, from, (x, y), bytes, kind)
    }

    copy_3d(order @ copy: *const Region) [cudaMemcpy3D Legacy] [cudaMemcpy3D_ptds PerThread] {
        region(When::Now(order), read(copy)?)
    }

    copy_3d_async(order @ copy: *const Region, stream: usize)
    [cudaMemcpy3DAsync Legacy] [cudaMemcpy3DAsync_ptsz PerThread] {
        region(When::On(order.stream(stream)), read(copy)?)
    }

    peer_3d(order @ copy: *const PeerRegion) [cudaMemcpy3DPeer Legacy] [cudaMemcpy3DPeer_ptds PerThread] {
        peer_region(When::Now(order), read(copy)?)
    }

    peer_3d_async(order @ copy: *const PeerRegion, stream: usize)
    [cudaMemcpy3DPeerAsync Legacy] [cudaMemcpy3DPeerAsync_ptsz PerThread] {
        peer_region(When::On(order.stream(stream)), read(copy)?)
    }

    to_symbol(order @ symbol: usize, from: usize, bytes: usize, offset: usize, kind: u32)
    [cudaMemcpyToSymbol Legacy] [cudaMemcpyToSymbol_ptds PerThread] {
        check_symbol_kind(kind, 2)?;
        line(When::Now(order), part(symbol, offset, bytes)?, from, bytes, kind)
    }

    to_symbol_async(order @ symbol: usize, from: usize, bytes: usize, offset: usize, kind: u32, stream: usize)
    [cudaMemcpyToSymbolAsync Legacy] [cudaMemcpyToSymbolAsync_ptsz PerThread] {
        check_symbol_kind(kind, 2)?;
        line(When::On(order.stream(stream)), part(symbol, offset, bytes)?, from, bytes, kind)
    }

    from_symbol(order @ to: usize, symbol: usize, bytes: usize, offset: usize, kind: u32)
    [cudaMemcpyFromSymbol Legacy] [cudaMemcpyFromSymbol_ptds PerThread] {
        check_symbol_kind(kind, 1)?;
        line(When::Now(order), to, part(symbol, offset, bytes)?, bytes, kind)
    }

    from_symbol_async(order @ to: usize, symbol: usize, bytes: usize, offset: usize, kind: u32, stream: usize)
    [cudaMemcpyFromSymbolAsync Legacy] [cudaMemcpyFromSymbolAsync_ptsz PerThread] {
        check_symbol_kind(kind, 1)?;
        line(When::On(order.stream(stream)), to, part(symbol, offset, bytes)?, bytes, kind)
    }
}
