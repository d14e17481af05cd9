//! Products of matrices on the tensor cores.

use std::sync::Arc;

use tegra_hcq::Device;

use crate::device::{device, hand_out};
use crate::handle::{TABLE, share};
use crate::object::{Kernels, Kind, Object};
use crate::pass;
use crate::status::{Failure, Status, guard};
use crate::types::{
    tegra_hcq_arg, tegra_hcq_device, tegra_hcq_gemm, tegra_hcq_graph_builder, tegra_hcq_product,
    tegra_hcq_queue,
};

/// The calls of a library with the kernels.
#[cfg(feature = "gemm")]
mod calls {
    use crate::buffer::buffer;
    use crate::device::pointer;
    use crate::graph::{add, builder, lock_builder};
    use crate::product::{Operand, Product, Recorder};
    use crate::queue::lock;
    use crate::types::{tegra_hcq_arg_kind, tegra_hcq_element, tegra_hcq_form, tegra_hcq_precision};

    use super::*;

    const F32: u32 = tegra_hcq_element::F32 as u32;
    const COLUMNS: u32 = tegra_hcq_form::Columns as u32;
    const TF32: u32 = tegra_hcq_precision::Tf32 as u32;

    pub(super) fn load(device: &Device) -> Result<Kernels, Failure> {
        Kernels::load(device)
    }

    /// A field's value, if it is permitted.
    fn permitted(value: u32, most: u32, name: &str) -> Result<(), Failure> {
        if value <= most {
            return Ok(());
        }
        Err(Failure::argument(format!("product: {name} is {value}; permitted are 0 to {most}")))
    }

    /// Reads what C passes: `a`, `b`, `out`, and a fourth operand for the bias.
    ///
    /// # Safety
    ///
    /// `product` is NULL or valid for reads of its `struct_size` bytes, `operands` for `count` reads.
    unsafe fn read(
        product: *const tegra_hcq_product,
        operands: *const tegra_hcq_arg,
        count: usize,
    ) -> Result<Product, Failure> {
        if product.is_null() || operands.is_null() {
            return Err(pass::null(if product.is_null() { "product" } else { "operands" }));
        }
        // SAFETY: the struct begins with its size, which belongs to the caller.
        let size = unsafe { product.cast::<u32>().read_unaligned() } as usize;
        if size != size_of::<tegra_hcq_product>() {
            return Err(Failure::argument(format!(
                "product: struct_size is {size}; set it to the size of the struct"
            )));
        }
        // SAFETY: the caller's promise; the size is that of the struct.
        let given = unsafe { product.read_unaligned() };
        let tegra_hcq_product { element, output, form, precision, accumulate, .. } = given;
        permitted(element, F32, "element")?;
        permitted(output, F32, "output")?;
        permitted(form, COLUMNS, "form")?;
        permitted(precision, TF32, "precision")?;
        permitted(accumulate, 1, "accumulate")?;
        permitted(given.reserved, 0, "reserved")?;
        if !(3..=4).contains(&count) {
            return Err(Failure::argument(format!(
                "a product has 3 operands, or 4 with a bias, not {count}"
            )));
        }
        let tegra_hcq_product { batch, m, n, k, .. } = given;
        let operand = |at: usize, name: &str, element: u32, sizes: [u64; 3]| {
            let elements = sizes.into_iter().try_fold(1_u64, u64::checked_mul);
            let bytes = elements.and_then(|count| count.checked_mul(if element == F32 { 4 } else { 2 }));
            let bytes = bytes.ok_or_else(|| Failure::argument(format!("{name} has over 2^64 bytes")))?;
            // SAFETY: the caller's promise: `at` is below `count`.
            let argument = unsafe { operands.add(at).read() };
            if argument.kind != tegra_hcq_arg_kind::Buffer as u32 {
                return Err(Failure::argument(format!("{name} is not a buffer")));
            }
            let buffer = buffer(pointer(argument.value))?;
            let range = pass::range(argument.offset, bytes, buffer.byte_len());
            let range = range.map_err(|failure| Failure::argument(format!("{name}: {}", failure.text)))?;
            Ok(Operand { buffer, range })
        };
        let a = operand(0, "a", element, [batch, m, k])?;
        let b = operand(1, "b", element, [batch, k, n])?;
        let out = operand(2, "out", output, [batch, m, n])?;
        let bias = if count == 4 { Some(operand(3, "bias", F32, [1, 1, n])?) } else { None };
        for (other, name) in [(Some(&a), "a"), (Some(&b), "b"), (bias.as_ref(), "bias")] {
            let overlaps = |other: &&Operand| {
                let shared = other.range.start.max(out.range.start)..other.range.end.min(out.range.end);
                Arc::ptr_eq(&other.buffer, &out.buffer) && !shared.is_empty()
            };
            if other.is_some_and(|other| overlaps(&other)) {
                return Err(Failure::argument(format!("out and {name} overlap")));
            }
        }
        Ok(Product { given, a, b, out, bias })
    }

    /// Adds a product to a queue.
    ///
    /// # Safety
    ///
    /// As for [`tegra_hcq_queue_multiply`].
    pub(super) unsafe fn launch(
        kernels: &Kernels,
        queue: *mut tegra_hcq_queue,
        product: *const tegra_hcq_product,
        operands: *const tegra_hcq_arg,
        count: usize,
    ) -> Result<(), Failure> {
        // SAFETY: the caller's promise.
        let product = unsafe { read(product, operands, count)? };
        let mut locked = lock(queue)?;
        // SAFETY: the caller's promise.
        unsafe { kernels.multiply(&mut locked.get()?.queue, &product) }
    }

    /// Records a product.
    ///
    /// # Safety
    ///
    /// As for [`tegra_hcq_graph_multiply`].
    pub(super) unsafe fn record(
        kernels: &Kernels,
        graph: *mut tegra_hcq_graph_builder,
        product: *const tegra_hcq_product,
        operands: *const tegra_hcq_arg,
        count: usize,
        node: *mut u32,
    ) -> Result<(), Failure> {
        // SAFETY: the caller's promise.
        let product = unsafe { read(product, operands, count)? };
        let mut locked = lock_builder(graph)?;
        let object = builder(&mut locked)?;
        let mut recorder = Recorder { builder: &mut object.builder, step: None };
        // SAFETY: the caller's promise.
        unsafe { kernels.multiply(&mut recorder, &product)? };
        let step = recorder.step.ok_or_else(|| Failure::argument("an empty product makes no step"))?;
        // SAFETY: the caller's promise.
        unsafe { add(object, step, node) }
    }
}

/// The calls of a library without them: there is no set of kernels.
#[cfg(not(feature = "gemm"))]
mod calls {
    use super::*;

    pub(super) fn load(_: &Device) -> Result<Kernels, Failure> {
        Err(Failure::new(Status::Unsupported, "this library was built without products of matrices"))
    }

    pub(super) unsafe fn launch(
        kernels: &Kernels,
        _: *mut tegra_hcq_queue,
        _: *const tegra_hcq_product,
        _: *const tegra_hcq_arg,
        _: usize,
    ) -> Result<(), Failure> {
        match *kernels {}
    }

    pub(super) unsafe fn record(
        kernels: &Kernels,
        _: *mut tegra_hcq_graph_builder,
        _: *const tegra_hcq_product,
        _: *const tegra_hcq_arg,
        _: usize,
        _: *mut u32,
    ) -> Result<(), Failure> {
        match *kernels {}
    }
}

/// The kernels that a handle names.
fn kernels_of(handle: *mut tegra_hcq_gemm) -> Result<Arc<Kernels>, Failure> {
    share(handle.addr() as u64, Kind::Gemm, |object| match object {
        Object::Gemm(_, kernels) => Some(kernels),
        _ => None,
    })
}

/// Loads the kernels for products of matrices. `*out` is set only on success. Thread-safe.
///
/// Returns TEGRA_HCQ_STATUS_UNSUPPORTED if the library was built without them.
///
/// # Safety
///
/// `out` is NULL or valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tegra_hcq_gemm_load(
    device: *mut tegra_hcq_device,
    out: *mut *mut tegra_hcq_gemm,
) -> Status {
    guard(|| {
        let (owner, device) = self::device(device)?;
        // SAFETY: the caller's promise.
        let out = unsafe { pass::out(out, "out")? };
        hand_out(out, Object::Gemm(owner, Arc::new(calls::load(&device)?)))
    })
}

/// Frees the kernels. Work that was launched with them goes on. Thread-safe.
#[unsafe(no_mangle)]
pub extern "C" fn tegra_hcq_gemm_free(gemm: *mut tegra_hcq_gemm) -> Status {
    guard(|| TABLE.remove(gemm.addr() as u64, Kind::Gemm))
}

/// Adds a product of matrices. It runs after all earlier work of the queue, once submitted. `operands` are arguments of
/// kind buffer: `a`, `b`, `out` and, if `operand_count` is 4, a bias of `n` floats that is added to each row; `out`
/// overlaps none of the others. Sums are in 32-bit floats, in a fixed order: the same factors give the same bits. Rows
/// that begin at multiples of 16 bytes are fastest. Thread-safe; calls on one queue run one after the other.
///
/// # Safety
///
/// `product` is NULL or valid for reads of its `struct_size` bytes, `operands` for `operand_count` reads. As for
/// `tegra_hcq_queue_copy`, for each operand.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tegra_hcq_queue_multiply(
    queue: *mut tegra_hcq_queue,
    gemm: *mut tegra_hcq_gemm,
    product: *const tegra_hcq_product,
    operands: *const tegra_hcq_arg,
    operand_count: usize,
) -> Status {
    // SAFETY: the caller's promise.
    guard(|| unsafe { calls::launch(&*kernels_of(gemm)?, queue, product, operands, operand_count) })
}

/// Records a product of matrices, as `tegra_hcq_queue_multiply` adds it. If `node` is not NULL, `*node` receives the
/// number of the step, whose arguments cannot be changed. Thread-safe.
///
/// # Safety
///
/// As for `tegra_hcq_queue_multiply`, for every replay. `node` is NULL or valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tegra_hcq_graph_multiply(
    builder: *mut tegra_hcq_graph_builder,
    gemm: *mut tegra_hcq_gemm,
    product: *const tegra_hcq_product,
    operands: *const tegra_hcq_arg,
    operand_count: usize,
    node: *mut u32,
) -> Status {
    // SAFETY: the caller's promise.
    guard(|| unsafe { calls::record(&*kernels_of(gemm)?, builder, product, operands, operand_count, node) })
}
