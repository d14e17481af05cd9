//! Products of matrices on the tensor cores.

use std::sync::Arc;

use crate::device::{device, hand_out};
use crate::handle::{TABLE, share};
use crate::object::{Kind, Object};
use crate::pass;
#[cfg(feature = "gemm")]
pub(crate) use crate::product as kernels;
use crate::status::{Failure, Status, guard};
use crate::types::{
    tegra_hcq_arg, tegra_hcq_device, tegra_hcq_gemm, tegra_hcq_graph_builder, tegra_hcq_product,
    tegra_hcq_queue,
};
pub(crate) use kernels::Kernels;

/// A library without the kernels.
#[cfg(not(feature = "gemm"))]
mod kernels {
    use core::convert::Infallible;

    use tegra_hcq::Device;

    use super::*;

    /// There are none.
    #[derive(Debug)]
    pub(crate) struct Kernels(Infallible);

    impl Kernels {
        pub(crate) fn load(_: &Device) -> Result<Self, Failure> {
            Err(Failure::new(Status::Unsupported, "this library was built without products of matrices"))
        }

        pub(crate) unsafe fn launch(
            &self,
            _: *mut tegra_hcq_queue,
            _: *const tegra_hcq_product,
            _: *const tegra_hcq_arg,
            _: usize,
        ) -> Result<(), Failure> {
            match self.0 {}
        }

        pub(crate) unsafe fn record(
            &self,
            _: *mut tegra_hcq_graph_builder,
            _: *const tegra_hcq_product,
            _: *const tegra_hcq_arg,
            _: usize,
            _: *mut u32,
        ) -> Result<(), Failure> {
            match self.0 {}
        }
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
        hand_out(out, Object::Gemm(owner, Arc::new(Kernels::load(&device)?)))
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
    guard(|| unsafe { kernels_of(gemm)?.launch(queue, product, operands, operand_count) })
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
    guard(|| unsafe { kernels_of(gemm)?.record(builder, product, operands, operand_count, node) })
}
