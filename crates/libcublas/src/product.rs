//! Launches of the kernels for products, row major: the columns of cuBLAS's matrices are the rows here.

use ampere_cmd::tensor_map::{Axis, Element as MapElement, Swizzle, TensorMap};

use crate::driver;
use crate::handle::Handle;
use crate::kernels::{DenseParams, Kernel, Scalar, WIDE_SHARED, arguments};
use crate::status::{Failure, Result};

/// Type of a matrix' elements, with the number that the kernels have for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Element {
    F32 = 0,
    F16 = 1,
    Bf16 = 2,
}

impl Element {
    /// The type with a number (`cudaDataType`).
    pub(crate) fn of(code: u32) -> Result<Self> {
        match code {
            0 => Ok(Self::F32),
            2 => Ok(Self::F16),
            14 => Ok(Self::Bf16),
            _ => Err(Failure::Missing("elements other than F16, BF16 and F32")),
        }
    }

    pub(crate) const fn bytes(self) -> u32 {
        if matches!(self, Self::F32) { 4 } else { 2 }
    }
}

/// How factors are multiplied, with the number that the kernels have for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Multiply {
    F16 = 0,
    Bf16 = 1,
    /// Floats that are rounded to 11 bits.
    Tf32 = 2,
    F32 = 3,
}

/// The matrices of a batch, also as a parameter of the kernels of `kernels/blas/blas.cu`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct Matrices {
    /// Address of the first, or of an array of pointers.
    pub(crate) at: u64,
    /// Bytes from a matrix to the next.
    pub(crate) batch: u64,
    /// Elements from a row to the next.
    pub(crate) row: u32,
    pub(crate) element: Element,
    /// 1 if there is an array of pointers, else 0.
    pub(crate) is_array: u32,
    pub(crate) unused: u32,
}

impl Matrices {
    /// Those from a matrix of the batch on.
    pub(crate) const fn skip(self, count: u64) -> Self {
        let distance = if self.is_array == 1 { 8 } else { self.batch };
        Self { at: self.at.wrapping_add(count.wrapping_mul(distance)), ..self }
    }

    /// Whether all rows begin at multiples of 16 bytes.
    fn is_aligned(&self) -> bool {
        // CAST: bytes of an element widen.
        let row = self.row as u64 * self.element.bytes() as u64;
        self.is_array == 0 && (self.at | self.batch | row).is_multiple_of(16)
    }
}

/// Products of a batch: `c` (m x n) = alpha * `a` (m x k) * `b` + beta * `c`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Products {
    /// m, n, k.
    pub(crate) sizes: [u32; 3],
    /// Number of products: 1 to 65,535.
    pub(crate) batch: u32,
    pub(crate) a: Matrices,
    /// Whether `a` is stored as k x m.
    pub(crate) is_a_transposed: bool,
    pub(crate) b: Matrices,
    /// Whether `b` is stored as n x k.
    pub(crate) is_b_transposed: bool,
    pub(crate) c: Matrices,
    pub(crate) alpha: Scalar,
    pub(crate) beta: Scalar,
    pub(crate) multiply: Multiply,
}

/// Memory for a product, which a stream frees when the product is done.
struct Workspace {
    address: u64,
    allocated: Option<usize>,
}

impl Workspace {
    /// The handle's memory if that is large enough.
    fn new(handle: &Handle, bytes: u64) -> Result<Self> {
        let bytes = usize::try_from(bytes).map_err(|_| Failure::ALLOC_FAILED)?;
        if bytes <= handle.workspace.1 {
            // CAST: addresses have 64 bits.
            return Ok(Self { address: handle.workspace.0 as u64, allocated: None });
        }
        let mut address = 0;
        driver::allocate(&mut address, bytes, handle.stream)?;
        Ok(Self { address, allocated: Some(handle.stream) })
    }
}

impl Drop for Workspace {
    fn drop(&mut self) {
        if let Some(stream) = self.allocated {
            // No error can be reported here; the memory ends with the context at the latest.
            let _ = driver::free(self.address, stream);
        }
    }
}

/// Most matrices of a launch.
const MOST: i64 = 65_535;

/// Launches a batch in parts, with the number of matrices before a part and in it.
pub(crate) fn in_parts(batch: i64, mut launch: impl FnMut(u64, u32) -> Result) -> Result {
    let mut done = 0;
    while done < batch {
        // CAST: the number is positive, and the part small.
        launch(done as u64, (batch - done).min(MOST) as u32)?;
        done += MOST;
    }
    Ok(())
}

/// A size that is a number of blocks.
pub(crate) fn blocks(count: u64) -> Result<u32> {
    u32::try_from(count).ok().filter(|count| *count < 1 << 31).ok_or(Failure::Missing("grids of 2^31 blocks"))
}

/// c = alpha * w + beta * c for `rows` x `columns` elements; without an address `w` is zeros.
fn combine(
    handle: &Handle,
    [rows, columns, batch]: [u32; 3],
    [w, c]: [Matrices; 2],
    [alpha, beta]: [Scalar; 2],
) -> Result {
    let grid = blocks((u64::from(rows) * u64::from(columns)).div_ceil(256))?;
    let arguments = arguments![w, c, alpha, beta, rows, columns];
    handle.kernels.combine.launch([grid, batch, 256, 0], handle.stream, &arguments)
}

impl Products {
    /// Appends the products to the handle's stream.
    pub(crate) fn run(mut self, handle: &Handle) -> Result {
        let Self { sizes: [m, n, k], batch, alpha, beta, c, .. } = self;
        if k == 0 || alpha.known() == Some(0.0) {
            return match beta.known() {
                Some(1.0) => Ok(()),
                _ => combine(handle, [m, n, batch], [Matrices { at: 0, ..c }, c], [alpha, beta]),
            };
        }
        if self.a.at == 0 || self.b.at == 0 {
            return Err(Failure::INVALID_VALUE);
        }
        let [m_long, n_long, k_long, batch_long] = [m, n, k, batch].map(u64::from);
        // Rows of the transposed factor are aligned, as are the parts of the memory.
        let bytes = u64::from(self.a.element.bytes());
        let row = (k_long * bytes).next_multiple_of(16);
        let turned = if self.is_a_transposed { m_long * row } else { 0 };
        let is_direct = alpha.known().is_some() && matches!(beta.known(), Some(0.0 | 1.0));
        let sums = if is_direct { 0 } else { m_long * n_long * 4 };
        let total = turned.checked_add(sums).and_then(|sum| sum.checked_mul(batch_long));
        let total = total.and_then(|total| total.checked_add(256)).ok_or(Failure::ALLOC_FAILED)?;
        let workspace = if total > 256 { Some(Workspace::new(handle, total)?) } else { None };
        let mut address = workspace.as_ref().map_or(0, |memory| memory.address);
        if self.is_a_transposed {
            // CAST: a row of k elements and 14 bytes: below 2^32 elements.
            let to =
                Matrices { at: address, row: (row / bytes) as u32, batch: turned, is_array: 0, ..self.a };
            self.transpose(handle, to)?;
            (self.a, self.is_a_transposed) = (to, false);
            address += (turned * batch_long).next_multiple_of(256);
        }
        if is_direct {
            return self.multiply(handle);
        }
        let w = Matrices { at: address, element: Element::F32, row: n, batch: sums, is_array: 0, unused: 0 };
        Self { c: w, alpha: Scalar::value(1.0), beta: Scalar::value(0.0), ..self }.multiply(handle)?;
        combine(handle, [m, n, batch], [w, c], [alpha, beta])
    }

    fn transpose(&self, handle: &Handle, to: Matrices) -> Result {
        let [columns, _, rows] = self.sizes;
        let kernel = handle.kernels.transpose[usize::from(self.a.element == Element::F32)];
        let grid = blocks(u64::from(rows.div_ceil(32)) * u64::from(columns.div_ceil(32)))?;
        let arguments = arguments![self.a, to, rows, columns];
        kernel.launch([grid, self.batch, 256, 0], handle.stream, &arguments)
    }

    /// Launches the product itself: alpha is known, beta is 0 or 1, `a` is not transposed.
    fn multiply(&self, handle: &Handle) -> Result {
        let Self { sizes: [m, n, k], a, b, c, batch, .. } = *self;
        let parameters = DenseParams {
            a_batch: a.batch,
            b_batch: b.batch,
            c_batch: c.batch,
            m,
            n,
            k,
            a_row: a.row,
            b_row: b.row,
            c_row: c.row,
            output: c.element as u32,
            accumulate: u32::from(self.beta.known() == Some(1.0)),
            scale: self.alpha.known().ok_or(Failure::INTERNAL_ERROR)?,
            arrays: a.is_array | b.is_array << 1 | c.is_array << 2,
        };
        let tiles = |rows, columns| u64::from(m.div_ceil(rows)) * u64::from(n.div_ceil(columns));
        let columns = if self.multiply == Multiply::F32 { 128 } else { 256 };
        let is_aligned = a.is_aligned() && b.is_aligned();
        let is_large = is_aligned && tiles(128, columns) * u64::from(batch) >= handle.kernels.enough;
        let bias = 0_u64;
        let last = arguments![a.at, b.at, c.at, bias, parameters];
        if let Some(wide) = self.wide(handle).filter(|_| is_large) {
            let grid = blocks(tiles(wide.tile[0], wide.tile[1]))?;
            let maps = arguments![*wide.maps[0].words(), *wide.maps[1].words()];
            let arguments = [&maps[..], &last].concat();
            return wide.kernel.launch([grid, batch, wide.threads, WIDE_SHARED], handle.stream, &arguments);
        }
        let (rows, columns, threads, size) = match (is_large, is_aligned) {
            (true, _) => (128, columns, 256, 0),
            (false, true) => (64, 64, 128, 1),
            (false, false) => (64, 64, 128, 2),
        };
        let kernel = handle.kernels.dense(self.multiply as usize, self.is_b_transposed, size);
        let shared = 3 * 128 * (rows + columns);
        kernel.launch([blocks(tiles(rows, columns))?, batch, threads, shared], handle.stream, &last)
    }

    /// The launch of a kernel of SM 9.0; `None` if the GPU or the product has none.
    fn wide(&self, handle: &Handle) -> Option<Wide> {
        let kernel = handle.kernels.wide(self.multiply as usize, self.is_b_transposed)?;
        let element = [MapElement::F16, MapElement::Bf16, MapElement::Tf32][self.multiply as usize];
        let [m, n, k] = self.sizes;
        // Where `b` has to be the first factor, the tile is transposed, and a group of threads copies.
        let is_exchanged = self.multiply == Multiply::Tf32 && !self.is_b_transposed;
        let (tile, threads) = if is_exchanged { ([256, 128], 384) } else { ([128, 256], 288) };
        let box_of = 128 / self.a.element.bytes();
        let map = |matrices: Matrices, [rows, columns]: [u32; 2], tile| {
            let row = u64::from(matrices.row) * u64::from(matrices.element.bytes());
            let batch = if self.batch == 1 { row } else { matrices.batch };
            let axes = [
                Axis { extent: columns.into(), stride: 0, tile: box_of },
                Axis { extent: rows.into(), stride: row, tile },
                Axis { extent: self.batch.into(), stride: batch, tile: 1 },
            ];
            TensorMap::new(element, matrices.at, &axes, Swizzle::Bytes128).ok()
        };
        let second =
            if self.is_b_transposed { map(self.b, [n, k], tile[1]) } else { map(self.b, [k, n], box_of) };
        let maps = [map(self.a, [m, k], tile[0])?, second?];
        Some(Wide { kernel, maps, tile, threads })
    }
}

/// A launch of a kernel of SM 9.0.
struct Wide {
    kernel: Kernel,
    maps: [TensorMap; 2],
    /// Rows and columns of a block.
    tile: [u32; 2],
    threads: u32,
}
