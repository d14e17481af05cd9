//! Products of matrices.

use core::ptr;

use tegra_hcq_capi::*;

use crate::support::{Board, LONG, at, fails, ok, read, word};

/// Two rows of a (2 x 3), and b (3 x 2).
const A: [f32; 6] = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0];
const B: [f32; 6] = [1.0, 0.5, 0.0, -1.0, 2.0, 3.0];
/// Their product.
const C: [f32; 4] = [7.0, 7.5, 16.0, 15.0];

fn bits(floats: &[f32]) -> Vec<u32> {
    floats.iter().map(|x| x.to_bits()).collect()
}

/// The product of `A` and `B`, as floats.
fn product() -> tegra_hcq_product {
    tegra_hcq_product {
        // CAST: 64.
        struct_size: size_of::<tegra_hcq_product>() as u32,
        element: tegra_hcq_element::F32 as u32,
        output: tegra_hcq_element::F32 as u32,
        form: tegra_hcq_form::Rows as u32,
        precision: 0,
        accumulate: 0,
        scale: 1.0,
        reserved: 0,
        batch: 1,
        m: 2,
        n: 2,
        k: 3,
    }
}

fn load(board: &Board) -> *mut tegra_hcq_gemm {
    let mut gemm = ptr::null_mut();
    // SAFETY: the result has a place.
    ok(unsafe { tegra_hcq_gemm_load(board.device, &raw mut gemm) });
    gemm
}

#[test]
fn queues_and_graphs_multiply_matrices() {
    let board = Board::open();
    let gemm = load(&board);
    let (a, b, bias) =
        (board.words(&bits(&A)), board.words(&bits(&B)), board.words(&bits(&[0.0, 10.0, -1.0])));
    let out = board.words(&bits(&[1.0; 8]));
    let (mut builder, mut graph, mut node) = (ptr::null_mut(), ptr::null_mut(), 9);
    // The result begins at the third element.
    let operands = [at(a, 0), at(b, 0), at(out, 8), at(bias, 4)];
    let added = tegra_hcq_product { scale: 2.0, accumulate: 1, ..product() };
    // SAFETY: the structs and operands are alive, results have places.
    unsafe {
        ok(tegra_hcq_queue_multiply(board.queue, gemm, &product(), operands.as_ptr(), 3));
        ok(board.wait());
        assert_eq!(read(out, 8), bits(&[1.0, 1.0, C[0], C[1], C[2], C[3], 1.0, 1.0]));
        ok(tegra_hcq_graph_begin(board.device, &raw mut builder));
        ok(tegra_hcq_graph_multiply(builder, gemm, &raw const added, operands.as_ptr(), 4, &raw mut node));
        let empty = tegra_hcq_product { m: 0, ..product() };
        let refused =
            tegra_hcq_graph_multiply(builder, gemm, &raw const empty, operands.as_ptr(), 3, ptr::null_mut());
        fails(refused, Status::InvalidArgument, "an empty product");
        ok(tegra_hcq_graph_build(builder, &raw mut graph));
        assert_eq!(node, 0);
        ok(tegra_hcq_gemm_free(gemm));
        ok(tegra_hcq_queue_replay(board.queue, graph, ptr::null_mut()));
    }
    ok(board.wait());
    let expected =
        [1.0, 1.0, 3.0 * C[0] + 10.0, 3.0 * C[1] - 1.0, 3.0 * C[2] + 10.0, 3.0 * C[3] - 1.0, 1.0, 1.0];
    assert_eq!(read(out, 8), bits(&expected));
    // SAFETY: refused.
    let gone = unsafe { tegra_hcq_queue_multiply(board.queue, gemm, &product(), operands.as_ptr(), 3) };
    fails(gone, Status::InvalidHandle, "was freed");
}

#[test]
fn products_that_do_not_fit_are_refused() {
    let board = Board::open();
    let gemm = load(&board);
    let (a, b, out) = (board.words(&bits(&A)), board.words(&bits(&B)), board.alloc(16));
    let multiply = |product: tegra_hcq_product, operands: &[tegra_hcq_arg]| {
        // SAFETY: struct and operands are alive.
        unsafe {
            tegra_hcq_queue_multiply(board.queue, gemm, &raw const product, operands.as_ptr(), operands.len())
        }
    };
    let good = [at(a, 0), at(b, 0), at(out, 0)];
    for (wrong, part) in [
        (tegra_hcq_product { struct_size: 60, ..product() }, "struct_size is 60"),
        (tegra_hcq_product { element: 3, ..product() }, "element is 3; permitted are 0 to 2"),
        (tegra_hcq_product { output: 3, ..product() }, "output is 3"),
        (tegra_hcq_product { form: 2, ..product() }, "form is 2; permitted are 0 to 1"),
        (tegra_hcq_product { precision: 2, ..product() }, "precision is 2"),
        (tegra_hcq_product { accumulate: 2, ..product() }, "accumulate is 2"),
        (tegra_hcq_product { reserved: 1, ..product() }, "reserved is 1"),
        (
            tegra_hcq_product { m: 3, ..product() },
            "a: 36 bytes at offset 0 are outside of a buffer of 24 bytes",
        ),
        (tegra_hcq_product { batch: u64::MAX, ..product() }, "a has over 2^64 bytes"),
        (tegra_hcq_product { k: 0, ..product() }, "0 elements instead of 1"),
    ] {
        fails(multiply(wrong, &good), Status::InvalidArgument, part);
    }
    let [first, second, third] = good;
    for (operands, part) in [
        (vec![first, second], "3 operands, or 4 with a bias, not 2"),
        (vec![first, second, third, third], "out and bias overlap"),
        (vec![first, second, at(a, 8)], "out and a overlap"),
        (vec![first, second, word(1)], "out is not a buffer"),
        (vec![first, second, at(out, 8)], "out: 16 bytes at offset 8"),
    ] {
        fails(multiply(product(), &operands), Status::InvalidArgument, part);
    }
    // SAFETY: NULL is refused.
    unsafe {
        let none = tegra_hcq_queue_multiply(board.queue, gemm, ptr::null(), good.as_ptr(), 3);
        fails(none, Status::InvalidArgument, "product is NULL");
        let none = tegra_hcq_queue_multiply(board.queue, gemm, &product(), ptr::null(), 3);
        fails(none, Status::InvalidArgument, "operands is NULL");
    }
    fails(tegra_hcq_gemm_free(board.queue.cast()), Status::InvalidHandle, "is the handle of a queue");
    ok(multiply(product(), &good));
    ok(tegra_hcq_queue_wait(board.queue, LONG));
    assert_eq!(read(out, 4), bits(&C));
}
