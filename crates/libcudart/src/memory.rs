//! Allocation, fills, and questions about pointers.

use core::ffi::c_void;

use crate::call::{Order, api, write};
use crate::driver::cu;
use crate::error::{Error, Result, is_13};

/// `cudaExtent`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Extent {
    pub(crate) width: usize,
    pub(crate) height: usize,
    pub(crate) depth: usize,
}

/// `cudaPitchedPtr`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Pitched {
    pub(crate) pointer: usize,
    pub(crate) pitch: usize,
    pub(crate) width: usize,
    pub(crate) rows: usize,
}

/// Allocates; no bytes have the address NULL.
fn allocate(place: *mut usize, bytes: usize, work: impl FnOnce() -> Result) -> Result {
    write(place, 0)?;
    if bytes == 0 { Ok(()) } else { work() }
}

fn pitched(place: *mut usize, pitch: *mut usize, width: usize, height: usize) -> Result {
    write(place, 0)?;
    write(pitch, 0)?;
    if width == 0 || height == 0 {
        return Ok(());
    }
    // Rows are aligned for elements of every size.
    cu!(cuMemAllocPitch_v2, place, pitch, width, height, 16_usize)
}

/// When a fill or copy is done.
#[derive(Clone, Copy, Debug)]
pub(crate) enum When {
    /// Before the call returns, in the order of the null stream.
    Now(Order),
    /// In the order of a stream.
    On(usize),
}

impl When {
    /// The stream; `None` to do it with the driver's function that waits.
    pub(crate) fn stream(self) -> Option<usize> {
        match self {
            Self::Now(Order::Legacy) => None,
            Self::Now(order) => Some(order.stream(0)),
            Self::On(stream) => Some(stream),
        }
    }

    /// Waits for the thread's own stream, if the call must.
    pub(crate) fn finish(self) -> Result {
        match self {
            Self::Now(order @ Order::PerThread) => cu!(cuStreamSynchronize, order.stream(0)),
            _ => Ok(()),
        }
    }
}

/// Fills bytes.
fn fill(when: When, address: usize, value: i32, bytes: usize) -> Result {
    // CAST: CUDA takes the low byte.
    let value = u32::from(value as u8);
    match when.stream() {
        None => cu!(cuMemsetD8_v2, address, value, bytes),
        Some(stream) => cu!(cuMemsetD8Async, address, value, bytes, stream).and_then(|()| when.finish()),
    }
}

/// Fills the rows of a region.
fn fill_rows(when: When, to: Pitched, value: i32, extent: Extent) -> Result {
    let Extent { width, height, depth } = extent;
    if width == 0 || height == 0 || depth == 0 {
        return Ok(());
    }
    if to.pitch < width && height * depth > 1 {
        return Err(Error::INVALID_PITCH);
    }
    // CAST: CUDA takes the low byte.
    let value = u32::from(value as u8);
    let plane = |first: usize, rows: usize| {
        let offset = to.pitch.checked_mul(to.rows).and_then(|plane| plane.checked_mul(first));
        let address = offset.and_then(|offset| to.pointer.checked_add(offset)).ok_or(Error::INVALID_VALUE)?;
        match when.stream() {
            None => cu!(cuMemsetD2D8_v2, address, to.pitch, value, width, rows),
            Some(stream) => cu!(cuMemsetD2D8Async, address, to.pitch, value, width, rows, stream),
        }
    };
    if depth == 1 || to.rows == height {
        plane(0, height.checked_mul(depth).ok_or(Error::INVALID_VALUE)?)?;
    } else if to.rows < height {
        return Err(Error::INVALID_VALUE);
    } else {
        (0..depth).try_for_each(|at| plane(at, height))?;
    }
    when.finish()
}

/// A region of one plane.
fn rows(pointer: usize, pitch: usize, width: usize, height: usize) -> (Pitched, Extent) {
    (Pitched { pointer, pitch, width, rows: height }, Extent { width, height, depth: 1 })
}

/// `cudaPointerAttributes` of CUDA 12; CUDA 13 has reserved words after it.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct PointerAttributes {
    kind: u32,
    device: i32,
    on_device: usize,
    on_host: usize,
}

/// The attributes of a pointer that is known to the driver, or of host memory.
fn attributes(pointer: usize) -> Result<PointerAttributes> {
    let (mut kind, mut managed, mut device, mut on_device, mut on_host) =
        (0_u32, 0_u8, 0_i32, 0_usize, 0_usize);
    // CU_POINTER_ATTRIBUTE_MEMORY_TYPE, _IS_MANAGED, _DEVICE_ORDINAL, _DEVICE_POINTER, _HOST_POINTER.
    let wanted = [2_u32, 8, 9, 3, 4];
    let places: [*mut c_void; 5] = [
        (&raw mut kind).cast(),
        (&raw mut managed).cast(),
        (&raw mut device).cast(),
        (&raw mut on_device).cast(),
        (&raw mut on_host).cast(),
    ];
    cu!(cuPointerGetAttributes, 5_usize, wanted.as_ptr(), places.as_ptr(), pointer)?;
    Ok(match kind {
        // cudaMemoryTypeUnregistered.
        0 => PointerAttributes { kind, device: -2, on_device: 0, on_host: pointer },
        _ => PointerAttributes { kind: if managed != 0 { 3 } else { kind }, device, on_device, on_host },
    })
}

api! {
    malloc(place: *mut usize, bytes: usize) [cudaMalloc Legacy] {
        allocate(place, bytes, || cu!(cuMemAlloc_v2, place, bytes))
    }

    malloc_host(place: *mut usize, bytes: usize) [cudaMallocHost Legacy] {
        allocate(place, bytes, || cu!(cuMemHostAlloc, place, bytes, 0_usize))
    }

    host_alloc(place: *mut usize, bytes: usize, flags: u32) [cudaHostAlloc Legacy] {
        allocate(place, bytes, || cu!(cuMemHostAlloc, place, bytes, flags))
    }

    malloc_pitch(place: *mut usize, pitch: *mut usize, width: usize, height: usize) [cudaMallocPitch Legacy] {
        pitched(place, pitch, width, height)
    }

    malloc_3d(place: *mut Pitched, extent: Extent) [cudaMalloc3D Legacy] {
        let (mut pointer, mut pitch) = (0, 0);
        let rows = extent.height.checked_mul(extent.depth).ok_or(Error::INVALID_VALUE)?;
        write(place, Pitched { pointer, pitch, width: 0, rows: 0 })?;
        pitched(&raw mut pointer, &raw mut pitch, extent.width, rows)?;
        write(place, Pitched { pointer, pitch, width: extent.width, rows: extent.height })
    }

    set(order @ address: usize, value: i32, bytes: usize) [cudaMemset Legacy] [cudaMemset_ptds PerThread] {
        fill(When::Now(order), address, value, bytes)
    }

    set_async(order @ address: usize, value: i32, bytes: usize, stream: usize)
    [cudaMemsetAsync Legacy] [cudaMemsetAsync_ptsz PerThread] {
        fill(When::On(order.stream(stream)), address, value, bytes)
    }

    set_2d(order @ address: usize, pitch: usize, value: i32, width: usize, height: usize)
    [cudaMemset2D Legacy] [cudaMemset2D_ptds PerThread] {
        let (to, extent) = rows(address, pitch, width, height);
        fill_rows(When::Now(order), to, value, extent)
    }

    set_2d_async(order @ address: usize, pitch: usize, value: i32, width: usize, height: usize, stream: usize)
    [cudaMemset2DAsync Legacy] [cudaMemset2DAsync_ptsz PerThread] {
        let (to, extent) = rows(address, pitch, width, height);
        fill_rows(When::On(order.stream(stream)), to, value, extent)
    }

    set_3d(order @ to: Pitched, value: i32, extent: Extent) [cudaMemset3D Legacy] [cudaMemset3D_ptds PerThread] {
        fill_rows(When::Now(order), to, value, extent)
    }

    set_3d_async(order @ to: Pitched, value: i32, extent: Extent, stream: usize)
    [cudaMemset3DAsync Legacy] [cudaMemset3DAsync_ptsz PerThread] {
        fill_rows(When::On(order.stream(stream)), to, value, extent)
    }

    pointer_attributes(place: *mut PointerAttributes, pointer: usize) [cudaPointerGetAttributes Legacy] {
        write(place, attributes(pointer)?)?;
        // The rest of the structure of CUDA 13: no locality domain, and reserved words.
        if is_13() { write(place.wrapping_add(1).cast::<[i64; 8]>(), [-1, 0, 0, 0, 0, 0, 0, 0]) } else { Ok(()) }
    }
}
