//! Copies and fills.

use core::ffi::c_void;

use orin_cuda_core::array::Array;
use orin_cuda_core::{Context, Failure, Fill, MemoryCopy, Result, Side, Work, driver};

use crate::abi::{Address, Handle, In};
use crate::call::{Order, api};
use crate::memory::find;
use crate::stream::stream_of;

/// A pointer of which the program has not said where it is, or which it says is the host's; the GPU may see it too.
fn any(context: &Context, address: u64) -> Result<Side> {
    if address == 0 {
        return Err(Failure::invalid("a side of the copy is NULL"));
    }
    Ok(match find(context, address) {
        // Registered host memory has an address of its own on the GPU.
        Some(found) => Side::line(found.base + found.offset(address), true, found.host != 0),
        None => Side::line(address, false, true),
    })
}

/// A pointer of which the program has not said where it is, so that it may be the GPU's, and freed.
fn either(context: &Context, address: u64) -> Result<Side> {
    let side = any(context, address)?;
    let page = address & !(rustix::param::page_size() as u64 - 1);
    let mut resident = 0;
    // CAST: an address of this process. SAFETY: the call reads no memory at the address, and writes one byte.
    if !side.on_gpu && unsafe { libc::mincore(page as usize as *mut c_void, 1, &raw mut resident) } != 0 {
        return Err(Failure::invalid(format!("no memory at {address:#x}")));
    }
    Ok(side)
}

/// A pointer that the program says is the GPU's.
fn on_gpu(context: &Context, address: u64) -> Result<Side> {
    let side = any(context, address)?;
    if side.on_gpu {
        Ok(side)
    } else {
        Err(Failure::invalid(format!("no memory of the GPU at {address:#x}")))
    }
}

/// Does a copy of consecutive bytes; at once, or in the order of a stream.
fn line(
    order: Order,
    stream: Option<Handle>,
    bytes: usize,
    sides: impl FnOnce(&Context) -> Result<(Side, Side)>,
) -> Result<()> {
    let (context, queue) = stream_of(order, stream.unwrap_or(0))?;
    if bytes == 0 {
        return Ok(());
    }
    let (target, source) = sides(&context)?;
    for side in [target, source] {
        check_end(&context, side, bytes)?;
    }
    let copy = MemoryCopy::line(target, source, bytes);
    submit(&context, &queue, copy, stream.is_some())
}

/// Refuses a copy that ends after the allocation in which it begins.
fn check_end(context: &Context, side: Side, bytes: usize) -> Result<()> {
    let Some(found) = find(context, side.address).filter(|_| side.on_gpu) else { return Ok(()) };
    let left = found.base + found.bytes as u64 - side.address;
    if bytes as u64 > left {
        let address = side.address;
        return Err(Failure::invalid(format!("{bytes} bytes at {address:#x}, where {left} are allocated")));
    }
    Ok(())
}

/// Refuses handles that name no context.
fn contexts(handles: [Handle; 2]) -> Result<()> {
    let known = |handle| driver()?.objects.get::<Context>(handle).map(drop);
    handles.into_iter().try_for_each(known)
}

fn submit(context: &Context, stream: &orin_cuda_core::Stream, copy: MemoryCopy, later: bool) -> Result<()> {
    let pageable = !copy.target.on_gpu || !copy.source.on_gpu;
    // As CUDA does, a copy to pageable memory ends before the call returns.
    if !later || (pageable && !copy.target.on_gpu && stream.captured()?.is_none()) {
        return copy.now(context, stream);
    }
    stream.copy(context, &copy)
}

/// `CUDA_MEMCPY2D`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Copy2d {
    source_x: usize,
    source_y: usize,
    source_type: u32,
    source_host: u64,
    source_device: u64,
    source_array: u64,
    source_pitch: usize,
    target_x: usize,
    target_y: usize,
    target_type: u32,
    target_host: u64,
    target_device: u64,
    target_array: u64,
    target_pitch: usize,
    width: usize,
    height: usize,
}

/// `CUDA_MEMCPY3D`; `CUDA_MEMCPY3D_PEER` has contexts in the places of the reserved fields.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Copy3d {
    source: Side3d,
    target: Side3d,
    width: usize,
    height: usize,
    depth: usize,
}

/// One side of a [`Copy3d`].
#[derive(Clone, Copy, Debug)]
#[repr(C)]
struct Side3d {
    x: usize,
    y: usize,
    z: usize,
    level: usize,
    kind: u32,
    host: u64,
    device: u64,
    array: u64,
    reserved: u64,
    pitch: usize,
    rows: usize,
}

impl Side3d {
    fn resolve(self, context: &Context, width: usize, height: usize, depth: usize) -> Result<Side> {
        if self.kind == 3 {
            return self.resolve_array([width, height, depth]);
        }
        let overflow = || Failure::invalid("the offsets of the copy overflow");
        // The sum of products of an offset or size.
        let sum = |parts: [[usize; 2]; 3]| {
            let mut products = parts.into_iter().map(|[count, size]| count.checked_mul(size));
            products.try_fold(0_usize, |sum, product| sum.checked_add(product?)).ok_or_else(overflow)
        };
        let pitch = if self.pitch == 0 { sum([[1, self.x], [1, width], [0, 0]])? } else { self.pitch };
        let rows = if self.rows == 0 { sum([[1, self.y], [1, height], [0, 0]])? } else { self.rows };
        if (height > 1 || depth > 1) && pitch < width || depth > 1 && rows < height {
            return Err(Failure::invalid(format!("a pitch of {pitch} bytes for rows of {width}")));
        }
        let plane = pitch.checked_mul(rows).ok_or_else(overflow)?;
        let offset = sum([[self.z, plane], [self.y, pitch], [self.x, 1]])? as u64;
        let end = sum([[depth - 1, plane], [height - 1, pitch], [width, 1]])?;
        // CU_MEMORYTYPE_HOST, _DEVICE, _ARRAY, _UNIFIED.
        let base = match self.kind {
            1 => any(context, self.host)?,
            2 => on_gpu(context, self.device)?,
            4 => either(context, self.device)?,
            kind => return Err(Failure::invalid(format!("memory type {kind}"))),
        };
        let address = base.address.checked_add(offset).ok_or_else(overflow)?;
        check_end(context, base, (offset as usize).checked_add(end).ok_or_else(overflow)?)?;
        Ok(Side { address, pitch, plane, ..base })
    }
}

impl Side3d {
    /// A part of an array of this size in bytes, rows, and slices or layers.
    fn resolve_array(self, size: [usize; 3]) -> Result<Side> {
        if self.level != 0 {
            return Err(Failure::invalid(format!("level {} of an array", self.level)));
        }
        let array = driver()?.objects.get::<Array>(self.array)?;
        Ok(Side::of_array(array.rectangle([self.x, self.y, self.z], size)?))
    }
}

impl Copy3d {
    /// The copy with what its pointers name in a context.
    pub(crate) fn resolve(self, context: &Context) -> Result<MemoryCopy> {
        let Self { width, height, depth, .. } = self;
        if width == 0 || height == 0 || depth == 0 {
            let nothing = Side::line(0, false, false);
            return Ok(MemoryCopy { target: nothing, source: nothing, width, height, depth });
        }
        let target = self.target.resolve(context, width, height, depth)?;
        let source = self.source.resolve(context, width, height, depth)?;
        Ok(MemoryCopy { target, source, width, height, depth })
    }
}

impl Side3d {
    /// The side of a resolved copy.
    fn of(side: Side) -> Self {
        if let Some(part) = side.array {
            let [x, y, z] = part.origin;
            let nothing = Self::of(Side::line(0, false, false));
            return Self { x, y, z, kind: 3, array: part.array, ..nothing };
        }
        let (kind, host, device) = if side.on_gpu { (2, 0, side.address) } else { (1, side.address, 0) };
        let Side { pitch, plane, .. } = side;
        let rows = plane.checked_div(pitch).unwrap_or(0);
        Self { x: 0, y: 0, z: 0, level: 0, kind, host, device, array: 0, reserved: 0, pitch, rows }
    }
}

impl Copy3d {
    /// The form of a resolved copy.
    pub(crate) fn of(copy: &MemoryCopy) -> Self {
        let MemoryCopy { target, source, width, height, depth } = *copy;
        Self { source: Side3d::of(source), target: Side3d::of(target), width, height, depth }
    }
}

impl From<Copy2d> for Copy3d {
    fn from(copy: Copy2d) -> Self {
        let side = |x, y, kind, host, device, array, pitch| Side3d {
            x,
            y,
            z: 0,
            level: 0,
            kind,
            host,
            device,
            array,
            reserved: 0,
            pitch,
            rows: 0,
        };
        Self {
            source: side(
                copy.source_x,
                copy.source_y,
                copy.source_type,
                copy.source_host,
                copy.source_device,
                copy.source_array,
                copy.source_pitch,
            ),
            target: side(
                copy.target_x,
                copy.target_y,
                copy.target_type,
                copy.target_host,
                copy.target_device,
                copy.target_array,
                copy.target_pitch,
            ),
            width: copy.width,
            height: copy.height,
            depth: 1,
        }
    }
}

fn region(order: Order, stream: Option<Handle>, copy: Copy3d) -> Result<()> {
    let (context, queue) = stream_of(order, stream.unwrap_or(0))?;
    let copy = copy.resolve(&context)?;
    submit(&context, &queue, copy, stream.is_some())
}

/// Does a copy of consecutive bytes between memory and an array, whose rows follow each other without gaps.
fn array_line(
    order: Order,
    stream: Option<Handle>,
    (array, offset): (Handle, usize),
    bytes: usize,
    to_array: bool,
    memory: impl FnOnce(&Context) -> Result<Side>,
) -> Result<()> {
    let (context, queue) = stream_of(order, stream.unwrap_or(0))?;
    let array = driver()?.objects.get::<Array>(array)?;
    let mut memory = memory(&context)?;
    check_end(&context, memory, bytes)?;
    let row = array.extent()[0];
    let (mut at, mut left) = (offset, bytes);
    while left > 0 {
        let (x, width) = (at % row, left.min(row - at % row));
        let height = if x == 0 { (left / row).max(1) } else { 1 };
        let part = Side::of_array(array.rectangle([x, at / row, 0], [width, height, 1])?);
        let lines = Side { pitch: width, ..memory };
        let (target, source) = if to_array { (part, lines) } else { (lines, part) };
        submit(&context, &queue, MemoryCopy { target, source, width, height, depth: 1 }, stream.is_some())?;
        (at, left) = (at + width * height, left - width * height);
        memory.address += (width * height) as u64;
    }
    Ok(())
}

/// Checks a fill; the result has the GPU's address, and tells whether the host sees the memory.
pub(crate) fn checked_fill(context: &Context, fill: Fill) -> Result<(Fill, bool)> {
    let Fill { address, pitch, element, width, height, .. } = fill;
    let side = on_gpu(context, address)?;
    let line = width.checked_mul(element).filter(|line| height == 1 || *line <= pitch);
    let line =
        line.ok_or_else(|| Failure::invalid(format!("{width} elements in a pitch of {pitch} bytes")))?;
    if !side.address.is_multiple_of(element as u64) || height > 1 && !pitch.is_multiple_of(element) {
        return Err(Failure::invalid(format!("{address:#x} is not aligned to {element} bytes")));
    }
    let end = pitch.checked_mul(height - 1).and_then(|rest| rest.checked_add(line));
    check_end(context, side, end.ok_or_else(|| Failure::invalid("the fill is too large"))?)?;
    Ok((Fill { address: side.address, ..fill }, side.on_host))
}

/// Fills at once, or in the order of a stream.
fn fill(order: Order, stream: Option<Handle>, fill: Fill) -> Result<()> {
    let (context, queue) = stream_of(order, stream.unwrap_or(0))?;
    if fill.width == 0 || fill.height == 0 {
        return Ok(());
    }
    let (fill, on_host) = checked_fill(&context, fill)?;
    queue.run(&context, Work::Fill(fill))?;
    // The program may look at memory of the host at once.
    if stream.is_none() && on_host { queue.synchronize(&context) } else { Ok(()) }
}

/// A fill of consecutive elements.
fn row(address: Address, value: u32, element: usize, count: usize) -> Fill {
    Fill { address, pitch: 0, value, element, width: count, height: 1 }
}

api! {
    copy(order @ target: u64, source: u64, bytes: usize) [cuMemcpy Legacy] [cuMemcpy_ptds PerThread] {
        line(order, None, bytes, |context| Ok((either(context, target)?, either(context, source)?)))
    }

    copy_async(order @ target: u64, source: u64, bytes: usize, stream: Handle)
    [cuMemcpyAsync Legacy] [cuMemcpyAsync_ptsz PerThread] {
        line(order, Some(stream), bytes, |context| Ok((either(context, target)?, either(context, source)?)))
    }

    peer(order @ target: u64, target_context: Handle, source: u64, source_context: Handle, bytes: usize)
    [cuMemcpyPeer Legacy] [cuMemcpyPeer_ptds PerThread] {
        contexts([target_context, source_context])?;
        line(order, None, bytes, |context| Ok((on_gpu(context, target)?, on_gpu(context, source)?)))
    }

    peer_async(
        order @ target: u64, target_context: Handle, source: u64, source_context: Handle, bytes: usize, stream: Handle,
    ) [cuMemcpyPeerAsync Legacy] [cuMemcpyPeerAsync_ptsz PerThread] {
        contexts([target_context, source_context])?;
        line(order, Some(stream), bytes, |context| Ok((on_gpu(context, target)?, on_gpu(context, source)?)))
    }

    to_device(order @ target: Address, source: *const c_void, bytes: usize)
    [cuMemcpyHtoD_v2 Legacy] [cuMemcpyHtoD_v2_ptds PerThread] {
        line(order, None, bytes, |context| Ok((on_gpu(context, target)?, any(context, source.addr() as u64)?)))
    }

    to_device_async(order @ target: Address, source: *const c_void, bytes: usize, stream: Handle)
    [cuMemcpyHtoDAsync_v2 Legacy] [cuMemcpyHtoDAsync_v2_ptsz PerThread] {
        line(order, Some(stream), bytes, |context| Ok((on_gpu(context, target)?, any(context, source.addr() as u64)?)))
    }

    to_host(order @ target: *mut c_void, source: Address, bytes: usize)
    [cuMemcpyDtoH_v2 Legacy] [cuMemcpyDtoH_v2_ptds PerThread] {
        line(order, None, bytes, |context| Ok((any(context, target.addr() as u64)?, on_gpu(context, source)?)))
    }

    to_host_async(order @ target: *mut c_void, source: Address, bytes: usize, stream: Handle)
    [cuMemcpyDtoHAsync_v2 Legacy] [cuMemcpyDtoHAsync_v2_ptsz PerThread] {
        line(order, Some(stream), bytes, |context| Ok((any(context, target.addr() as u64)?, on_gpu(context, source)?)))
    }

    on_device(order @ target: Address, source: Address, bytes: usize)
    [cuMemcpyDtoD_v2 Legacy] [cuMemcpyDtoD_v2_ptds PerThread] {
        line(order, None, bytes, |context| Ok((on_gpu(context, target)?, on_gpu(context, source)?)))
    }

    on_device_async(order @ target: Address, source: Address, bytes: usize, stream: Handle)
    [cuMemcpyDtoDAsync_v2 Legacy] [cuMemcpyDtoDAsync_v2_ptsz PerThread] {
        line(order, Some(stream), bytes, |context| Ok((on_gpu(context, target)?, on_gpu(context, source)?)))
    }

    to_array(order @ target: Handle, offset: usize, source: Address, bytes: usize)
    [cuMemcpyDtoA_v2 Legacy] [cuMemcpyDtoA_v2_ptds PerThread] {
        array_line(order, None, (target, offset), bytes, true, |context| on_gpu(context, source))
    }

    from_array(order @ target: Address, source: Handle, offset: usize, bytes: usize)
    [cuMemcpyAtoD_v2 Legacy] [cuMemcpyAtoD_v2_ptds PerThread] {
        array_line(order, None, (source, offset), bytes, false, |context| on_gpu(context, target))
    }

    host_to_array(order @ target: Handle, offset: usize, source: *const c_void, bytes: usize)
    [cuMemcpyHtoA_v2 Legacy] [cuMemcpyHtoA_v2_ptds PerThread] {
        array_line(order, None, (target, offset), bytes, true, |context| any(context, source.addr() as u64))
    }

    host_to_array_async(order @ target: Handle, offset: usize, source: *const c_void, bytes: usize, stream: Handle)
    [cuMemcpyHtoAAsync_v2 Legacy] [cuMemcpyHtoAAsync_v2_ptsz PerThread] {
        array_line(order, Some(stream), (target, offset), bytes, true, |context| any(context, source.addr() as u64))
    }

    array_to_host(order @ target: *mut c_void, source: Handle, offset: usize, bytes: usize)
    [cuMemcpyAtoH_v2 Legacy] [cuMemcpyAtoH_v2_ptds PerThread] {
        array_line(order, None, (source, offset), bytes, false, |context| any(context, target.addr() as u64))
    }

    array_to_host_async(order @ target: *mut c_void, source: Handle, offset: usize, bytes: usize, stream: Handle)
    [cuMemcpyAtoHAsync_v2 Legacy] [cuMemcpyAtoHAsync_v2_ptsz PerThread] {
        array_line(order, Some(stream), (source, offset), bytes, false, |context| any(context, target.addr() as u64))
    }

    copy_2d(order @ copy: In<Copy2d>)
    [cuMemcpy2D_v2 Legacy] [cuMemcpy2D_v2_ptds PerThread]
    [cuMemcpy2DUnaligned_v2 Legacy] [cuMemcpy2DUnaligned_v2_ptds PerThread] {
        region(order, None, copy.read("the copy")?.into())
    }

    copy_2d_async(order @ copy: In<Copy2d>, stream: Handle)
    [cuMemcpy2DAsync_v2 Legacy] [cuMemcpy2DAsync_v2_ptsz PerThread] {
        region(order, Some(stream), copy.read("the copy")?.into())
    }

    copy_3d(order @ copy: In<Copy3d>)
    [cuMemcpy3D_v2 Legacy] [cuMemcpy3D_v2_ptds PerThread] [cuMemcpy3DPeer Legacy] [cuMemcpy3DPeer_ptds PerThread] {
        region(order, None, copy.read("the copy")?)
    }

    copy_3d_async(order @ copy: In<Copy3d>, stream: Handle)
    [cuMemcpy3DAsync_v2 Legacy] [cuMemcpy3DAsync_v2_ptsz PerThread]
    [cuMemcpy3DPeerAsync Legacy] [cuMemcpy3DPeerAsync_ptsz PerThread] {
        region(order, Some(stream), copy.read("the copy")?)
    }

    fill_8(order @ address: Address, value: u8, count: usize) [cuMemsetD8_v2 Legacy] [cuMemsetD8_v2_ptds PerThread] {
        fill(order, None, row(address, value.into(), 1, count))
    }

    fill_16(order @ address: Address, value: u16, count: usize)
    [cuMemsetD16_v2 Legacy] [cuMemsetD16_v2_ptds PerThread] {
        fill(order, None, row(address, value.into(), 2, count))
    }

    fill_32(order @ address: Address, value: u32, count: usize)
    [cuMemsetD32_v2 Legacy] [cuMemsetD32_v2_ptds PerThread] {
        fill(order, None, row(address, value, 4, count))
    }

    fill_8_async(order @ address: Address, value: u8, count: usize, stream: Handle)
    [cuMemsetD8Async Legacy] [cuMemsetD8Async_ptsz PerThread] {
        fill(order, Some(stream), row(address, value.into(), 1, count))
    }

    fill_16_async(order @ address: Address, value: u16, count: usize, stream: Handle)
    [cuMemsetD16Async Legacy] [cuMemsetD16Async_ptsz PerThread] {
        fill(order, Some(stream), row(address, value.into(), 2, count))
    }

    fill_32_async(order @ address: Address, value: u32, count: usize, stream: Handle)
    [cuMemsetD32Async Legacy] [cuMemsetD32Async_ptsz PerThread] {
        fill(order, Some(stream), row(address, value, 4, count))
    }

    fill_2d_8(order @ address: Address, pitch: usize, value: u8, width: usize, height: usize)
    [cuMemsetD2D8_v2 Legacy] [cuMemsetD2D8_v2_ptds PerThread] {
        fill(order, None, Fill { address, pitch, value: value.into(), element: 1, width, height })
    }

    fill_2d_16(order @ address: Address, pitch: usize, value: u16, width: usize, height: usize)
    [cuMemsetD2D16_v2 Legacy] [cuMemsetD2D16_v2_ptds PerThread] {
        fill(order, None, Fill { address, pitch, value: value.into(), element: 2, width, height })
    }

    fill_2d_32(order @ address: Address, pitch: usize, value: u32, width: usize, height: usize)
    [cuMemsetD2D32_v2 Legacy] [cuMemsetD2D32_v2_ptds PerThread] {
        fill(order, None, Fill { address, pitch, value, element: 4, width, height })
    }

    fill_2d_8_async(order @ address: Address, pitch: usize, value: u8, width: usize, height: usize, stream: Handle)
    [cuMemsetD2D8Async Legacy] [cuMemsetD2D8Async_ptsz PerThread] {
        fill(order, Some(stream), Fill { address, pitch, value: value.into(), element: 1, width, height })
    }

    fill_2d_16_async(order @ address: Address, pitch: usize, value: u16, width: usize, height: usize, stream: Handle)
    [cuMemsetD2D16Async Legacy] [cuMemsetD2D16Async_ptsz PerThread] {
        fill(order, Some(stream), Fill { address, pitch, value: value.into(), element: 2, width, height })
    }

    fill_2d_32_async(order @ address: Address, pitch: usize, value: u32, width: usize, height: usize, stream: Handle)
    [cuMemsetD2D32Async Legacy] [cuMemsetD2D32Async_ptsz PerThread] {
        fill(order, Some(stream), Fill { address, pitch, value, element: 4, width, height })
    }
}
